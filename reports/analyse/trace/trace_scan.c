// SPDX-License-Identifier: Apache-2.0
// Reading a table's b-tree page by page (https://www.sqlite.org/fileformat2.html, section 1.6
// and 2.1), through the connection's own file handle and under its lock. Ten million rows of
// gpu_op: 2.1 s by sqlite3_step, 1.3 s through an aggregate function, 0.2 s so. Whatever looks odd
// ends the attempt, and SQL reads the table and finds the words. Reads only.
#include "reports/analyse/trace/trace_scan.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "tracer/store/ranges.h"

enum {
    PAGE_INTERIOR = 5, // types of pages of a table
    PAGE_LEAF = 13,
    PAGES_DEPTH_MAX = 20,  // SQLite's own limit
    PAGES_WINDOW_MAX = 64, // pages read at once, when they come in order
    PAGES_NEAR = 8,        // a page so little behind the last ones is "in order"
    PLANS_BITS = 6,
    PAGES_SLACK = 256, // a cell at the very end is read before it is found too short
    HEADER_BYTES = 100,
    ROWS_MAX = 128 // given to the caller at once: they stay in the nearest cache
};

struct pages {
    const struct scan *scan;
    sqlite3_file *file;
    uint32_t page_bytes, usable_bytes, page_count;
    uint32_t visited;
    uint32_t window_first, window_count, window_next; // pages in the buffer; how many to read next
    uint8_t *window;
    uint64_t times[SCAN_COLUMNS_MAX]; // all bits: the column is a time
    struct plan *plans;               // by a hash of the header
    struct scan_row *rows;
};

static uint32_t pages_u16(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static uint32_t pages_u32(const uint8_t *at)
{
    return pages_u16(at) << 16 | pages_u16(at + 2);
}

// A page, until the next one is asked for. NULL: there is none.
static const uint8_t *pages_get(struct pages *pages, uint32_t page)
{
    if (page < 2 || page > pages->page_count) // 1 is the root of the schema
        return NULL;
    uint32_t behind = pages->window_first + pages->window_count;
    if (page < pages->window_first || page >= behind) {
        bool in_order = page >= behind && page - behind < PAGES_NEAR;
        uint32_t count = in_order ? pages->window_next * 2 : 1;
        count = count > PAGES_WINDOW_MAX ? PAGES_WINDOW_MAX : count;
        if (count > pages->page_count - page + 1)
            count = pages->page_count - page + 1;
        pages->window_count = 0;
        if (pages->file->pMethods->xRead(pages->file, pages->window,
                    (int)(count * pages->page_bytes),
                    (sqlite3_int64)(page - 1) * pages->page_bytes) != SQLITE_OK)
            return NULL;
        pages->window_first = page;
        pages->window_count = pages->window_next = count;
    }
    return pages->window + (size_t)(page - pages->window_first) * pages->page_bytes;
}

// How to take the columns out of rows with one header: few headers repeat in millions of rows.
struct plan {        // 64 bytes: a line of the cache
    uint64_t header; // its bytes; 0: no plan
    uint32_t nulls;
    uint16_t body_bytes;
    bool plain; // nothing to keep or to add
    struct plan_column {
        uint8_t offset, shift; // of 8 bytes, to leave the column's
        int8_t keep, constant; // all bits or none of them; what is added
    } columns[SCAN_COLUMNS_MAX];
    uint8_t unused[16];
};

// header: its length, then a serial type a column. False: not all are integers.
static bool plan_make(const uint8_t *header, uint32_t columns, struct plan *ret)
{
    static const uint8_t bytes[] = {0, 1, 2, 3, 4, 6, 8, UINT8_MAX /* a real */, 0, 0};
    struct plan plan = {.plain = true};
    for (uint32_t i = 0; i < columns; i++) {
        unsigned kind = i + 1 < *header ? header[i + 1] : 0; // a column added later
        if (kind > 9 || bytes[kind] == UINT8_MAX)
            return false;
        plan.columns[i] = (struct plan_column){.offset = (uint8_t)plan.body_bytes,
                .shift = (uint8_t)(bytes[kind] ? 64 - 8 * bytes[kind] : 0),
                .keep = bytes[kind] ? -1 : 0,
                .constant = kind == 9};
        plan.nulls |= (uint32_t)(kind == 0) << i;
        plan.plain &= bytes[kind] != 0;
        plan.body_bytes = (uint16_t)(plan.body_bytes + bytes[kind]);
    }
    *ret = plan;
    return true;
}

// The row of a cell at an offset of a leaf. False: not a row of integers. The slack behind the
// pages takes what is read before it is looked at. Inlined where the number of columns is known:
// two thirds of the time.
static inline __attribute__((always_inline)) bool pages_row(struct pages *pages,
        const uint8_t *page, uint32_t offset, uint32_t columns, struct scan_row *ret)
{
    const uint8_t *at = page + offset, *end = page + pages->usable_bytes;
    uint32_t payload = *at++;
    uint64_t rowid, header; // of the rowid only the length counts: the first of its bytes without a
                            // high bit, or 9
    memcpy(&rowid, at, sizeof rowid);
    rowid = ~rowid & 0x8080808080808080ull;
    at += rowid ? __builtin_ctzll(rowid) / 8 + 1 : 9;
    if (!payload || payload > 127 || at + payload > end || *at < 1 ||
            *at > payload) // 127: more is no row of integers
        return false;
    memcpy(&header, at, sizeof header);
    struct plan *plan, odd;
    if (*at <= sizeof header) {
        header &= ~0ull >> (64 - 8 * *at); // little endian: the first byte is the lowest
        plan = &pages->plans[(header * 0x9e3779b97f4a7c15ull) >> (64 - PLANS_BITS)];
        if (plan->header != header) {
            if (!plan_make(at, columns, plan))
                return false;
            plan->header = header;
        }
    } else if (plan_make(at, columns, plan = &odd) == false) {
        return false;
    }
    const uint8_t *body = at + *at;
    if (*at + plan->body_bytes > payload)
        return false;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < columns; i++) {
        uint64_t raw;
        const struct plan_column *column = &plan->columns[i];
        memcpy(&raw, body + column->offset, sizeof raw);
        ret->values[i] = (int64_t)__builtin_bswap64(raw) >> column->shift;
    }
    for (uint32_t i = 0; i < columns && !plan->plain; i++)
        ret->values[i] = (ret->values[i] & plan->columns[i].keep) + plan->columns[i].constant;
    ret->nulls = plan->nulls;
    return true;
}

// A time out of its range sets one of the two highest bits: what is left of it when all rows are
// put over each other.
static inline __attribute__((always_inline)) uint64_t pages_odd(
        const struct pages *pages, const struct scan_row *row, uint32_t columns)
{
    uint64_t odd = 0;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < columns; i++)
        odd |= ((uint64_t)row->values[i] + (uint64_t)RANGE_NS_END) & pages->times[i];
    return odd & ~((uint64_t)RANGE_NS_END * 2 - 1);
}

static inline __attribute__((always_inline)) bool pages_rows(
        struct pages *pages, const uint8_t *page, uint32_t columns)
{
    uint32_t cells = pages_u16(page + 3), count = 0;
    uint64_t odd = 0;
    struct scan_row *rows = pages->rows;
    if (8 + 2 * cells > pages->usable_bytes)
        return false;
    for (uint32_t i = 0; i < cells; i++) {
        uint32_t offset = pages_u16(page + 8 + (size_t)2 * i);
        if (offset >= pages->usable_bytes || !pages_row(pages, page, offset, columns, &rows[count]))
            return false;
        odd |= pages_odd(pages, &rows[count], columns);
        if (++count == ROWS_MAX) {
            if (odd)
                return false; // SQL says what is wrong with it
            pages->scan->rows(pages->scan->arg, rows, count);
            count = 0;
        }
    }
    if (odd)
        return false;
    pages->scan->rows(pages->scan->arg, rows, count);
    return true;
}

static bool pages_leaf(struct pages *pages, const uint8_t *page)
{
    uint32_t columns = pages->scan->column_count;
    return columns == 5    ? pages_rows(pages, page, 5) // gpu_op
            : columns == 6 ? pages_rows(pages, page, 6) // python_mark
                           : pages_rows(pages, page, columns);
}

// Children of an interior page, for the caller to free. NULL: damaged.
static uint32_t *pages_children(const struct pages *pages, const uint8_t *page, uint32_t *ret_count)
{
    uint32_t cells = pages_u16(page + 3);
    if (page[0] != PAGE_INTERIOR || 12 + 2 * cells > pages->usable_bytes)
        return NULL;
    uint32_t *children = xcalloc((size_t)cells + 1, sizeof *children);
    for (uint32_t i = 0; i < cells; i++) {
        uint32_t offset = pages_u16(page + 12 + (size_t)2 * i);
        children[i] = offset + 4 <= pages->usable_bytes ? pages_u32(page + offset) : 0;
    }
    children[cells] = pages_u32(page + 8);
    *ret_count = cells + 1;
    return children;
}

// Owner of the first or the last row below a page; 0: not known.
static int64_t pages_owner(struct pages *pages, uint32_t number, bool last)
{
    for (int depth = 0; depth < PAGES_DEPTH_MAX; depth++) {
        const uint8_t *page = pages_get(pages, number);
        if (!page)
            return 0;
        uint32_t cells = pages_u16(page + 3), at;
        if (page[0] == PAGE_LEAF) {
            struct scan_row row;
            if (!cells || 8 + 2 * cells > pages->usable_bytes)
                return 0;
            at = pages_u16(page + 8 + (last ? 2 * ((size_t)cells - 1) : 0));
            return at < pages->usable_bytes &&
                            pages_row(pages, page, at, pages->scan->column_count, &row)
                    ? pages->scan->owner(pages->scan->arg, row.values)
                    : 0;
        }
        if (page[0] != PAGE_INTERIOR || 12 + 2 * cells > pages->usable_bytes)
            return 0;
        at = last || !cells ? 8 : pages_u16(page + 12);
        if (at + 4 > pages->usable_bytes)
            return 0;
        number = pages_u32(page + at);
    }
    return 0;
}

// Do all rows below belong to one other recording?
static bool pages_foreign(struct pages *pages, const uint32_t *children, uint32_t count)
{
    if (!pages->scan->owner)
        return false;
    int64_t first = pages_owner(pages, children[0], false);
    return first && first != pages->scan->wanted &&
            pages_owner(pages, children[count - 1], true) == first &&
            pages_owner(pages, children[count / 2], false) == first;
}

static bool pages_walk(struct pages *pages, uint32_t number, int depth)
{
    const uint8_t *page = pages_get(pages, number);
    if (!page || depth > PAGES_DEPTH_MAX || ++pages->visited > pages->page_count) // or in a circle
        return false;
    if (page[0] == PAGE_LEAF)
        return pages_leaf(pages, page);
    uint32_t count, *children = pages_children(pages, page, &count);
    bool ok = children;
    if (ok && !pages_foreign(pages, children, count))
        for (uint32_t i = 0; i < count && ok; i++)
            ok = pages_walk(pages, children[i], depth + 1);
    free(children);
    return ok;
}

// The page sizes out of the file's header. False: not to be read so.
static bool pages_header(struct pages *pages)
{
    uint8_t header[HEADER_BYTES];
    sqlite3_int64 size = 0;
    if (pages->file->pMethods->xRead(pages->file, header, sizeof header, 0) != SQLITE_OK ||
            pages->file->pMethods->xFileSize(pages->file, &size) != SQLITE_OK)
        return false;
    uint32_t bytes = pages_u16(header + 16);
    pages->page_bytes = bytes == 1 ? 65536 : bytes;
    if (pages->page_bytes < 512 || memcmp(header, "SQLite format 3", 16) != 0 || header[18] != 1 ||
            header[19] != 1)
        return false; // 2: a write-ahead log
    pages->usable_bytes = pages->page_bytes - header[20];
    int64_t count = size / pages->page_bytes;
    pages->page_count = count < UINT32_MAX ? (uint32_t)count : UINT32_MAX - 1;
    return pages->usable_bytes >= 480;
}

// Root page of the table; 0: another shape than ours, or hidden behind a temporary one. In the
// pages an alias of the rowid is NULL, a column added later has no default, and one that is
// computed may have no place.
static uint32_t pages_root(struct store *store, const struct scan *scan)
{
    int64_t root = 0;
    size_t len = strlen(scan->columns);
    char *columns = store_get_text(store,
            "SELECT group_concat(iif(pk OR hidden OR dflt_value IS NOT NULL, '?', '') || name, ', ') FROM "
            "(SELECT * FROM pragma_table_xinfo(?) ORDER BY cid)",
            "s", scan->table);
    if (columns && !strncmp(columns, scan->columns, len) && (!columns[len] || columns[len] == ','))
        store_get_int(store, &root, NULL,
                "SELECT rootpage FROM main.sqlite_master WHERE type = 'table' AND name = ?1 AND NOT EXISTS "
                "(SELECT 1 FROM sqlite_temp_master WHERE name = ?1)",
                "s", scan->table);
    free(columns);
    return root > 0 && root < UINT32_MAX ? (uint32_t)root : 0;
}

static bool scan_pages(struct store *store, const struct scan *scan)
{
    sqlite3 *db = store_db(store);
    const char *path = sqlite3_db_filename(db, "main");
    if (!path || !*path || !sqlite3_get_autocommit(db))
        return false;
    struct pages pages = {.scan = scan, .window_next = 1};
    if (sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &pages.file) != SQLITE_OK ||
            !pages.file || !pages.file->pMethods)
        return false;
    if (sqlite3_exec(db, "BEGIN", NULL, NULL, NULL) != SQLITE_OK)
        return false;
    uint32_t root = pages_root(store, scan); // takes the lock that keeps writers out until the end
    bool ok = root && pages_header(&pages);
    if (ok) {
        uint64_t times = ranges_ns_columns(scan->columns);
        for (int i = 0; i < SCAN_COLUMNS_MAX; i++)
            pages.times[i] = times >> i & 1 ? UINT64_MAX : 0;
        pages.window = xcalloc(1, (size_t)PAGES_WINDOW_MAX * pages.page_bytes + PAGES_SLACK);
        pages.plans = xcalloc(1 << PLANS_BITS, sizeof *pages.plans);
        pages.rows = xcalloc(ROWS_MAX, sizeof *pages.rows);
        ok = pages_walk(&pages, root, 0);
        free(pages.rows);
        free(pages.plans);
        free(pages.window);
    }
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    return ok;
}

static int scan_sql(struct store *store, const struct scan *scan, struct error *err)
{
    char *sql = xasprintf("SELECT %s FROM %s", scan->columns, scan->table);
    sqlite3_stmt *stmt = store_query(store, err, sql, "");
    free(sql);
    if (!stmt)
        return err->code;
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        struct scan_row row = {0};
        for (uint32_t i = 0; i < scan->column_count; i++) {
            row.values[i] = sqlite3_column_int64(stmt, (int)i);
            row.nulls |= (uint32_t)(sqlite3_column_type(stmt, (int)i) == SQLITE_NULL) << i;
        }
        scan->rows(scan->arg, &row, 1);
    }
    return rc;
}

int scan_table(struct store *store, const struct scan *scan, struct error *err)
{
    if (scan_pages(store, scan))
        return 0;
    scan->restart(scan->arg);
    return scan_sql(store, scan, err);
}
