// SPDX-License-Identifier: Apache-2.0
// A table of integers as a SQLite database in memory (https://www.sqlite.org/fileformat2.html):
// page 1 is SQLite's own, page 2 the root, from page 3 on leaves. Big pages: their number stays
// small, and the root has room for all.
#include "tracer/gpu/image.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

enum {
    IMAGE_PAGE_BYTES = 65536,
    IMAGE_LEAF_HEAD = 8,
    IMAGE_ROOT_HEAD = 12,
    // length, rowid, length of the head, types and values
    IMAGE_CELL_MAX = 2 + 5 + 1 + IMAGE_COLUMNS_MAX * 9,
};

struct image {
    sqlite3 *db;
    char *name, *insert;
    int columns;
    unsigned char *pages;
    int pages_max;
};

static void put16(unsigned char *at, uint32_t value)
{
    at[0] = (unsigned char)(value >> 8);
    at[1] = (unsigned char)value;
}

static void put32(unsigned char *at, uint32_t value)
{
    put16(at, value >> 16);
    put16(at + 2, value & 0xffff);
}

// Seven bits a byte, highest first; rowids are below 2^21.
static int put_varint(unsigned char *at, uint32_t value)
{
    if (value < 0x80) {
        at[0] = (unsigned char)value;
        return 1;
    }
    if (value < 0x4000) {
        at[0] = (unsigned char)(0x80 | value >> 7);
        at[1] = value & 0x7f;
        return 2;
    }
    at[0] = (unsigned char)(0x80 | value >> 14);
    at[1] = (unsigned char)(0x80 | (value >> 7 & 0x7f));
    at[2] = value & 0x7f;
    return 3;
}

// The type of a value and how many bytes it has: the shortest of 0 (NULL, 0, 1), 1, 2, 3, 4, 6, 8.
static inline unsigned char value_type(int64_t value, int *ret_bytes)
{
    if (value == INT64_MIN) {
        *ret_bytes = 0;
        return 0;
    }
    if (value == 0 || value == 1) {
        *ret_bytes = 0;
        return (unsigned char)(8 + value);
    }
    uint64_t size = (uint64_t)(value < 0 ? ~value : value);
    static const struct {
        uint8_t type, bytes;
    } of_bits[64] = {[0 ... 7] = {1, 1},
            [8 ... 15] = {2, 2},
            [16 ... 23] = {3, 3},
            [24 ... 31] = {4, 4},
            [32 ... 47] = {5, 6},
            [48 ... 63] = {6, 8}};
    int bits = size ? 64 - __builtin_clzll(size) : 0; // and one for the sign
    *ret_bytes = of_bits[bits].bytes;
    return of_bits[bits].type;
}

// Writes the cell that ends at `end`; returns where it begins.
static unsigned char *cell_put(unsigned char *end, const int64_t *row, int columns, uint32_t rowid)
{
    unsigned char types[IMAGE_COLUMNS_MAX];
    unsigned char *at = end;
    for (int i = columns - 1; i >= 0; i--) {
        int bytes;
        types[i] = value_type(row[i], &bytes);
        uint64_t big = __builtin_bswap64((uint64_t)row[i] << (64 - 8 * (bytes ? bytes : 8)));
        at -= bytes;
        memcpy(at, &big, (size_t)bytes);
    }
    at -= columns;
    memcpy(at, types, (size_t)columns);
    *--at = (unsigned char)(1 + columns);
    uint32_t payload = (uint32_t)(end - at);
    unsigned char head[8];
    int len = put_varint(head, payload);
    len += put_varint(head + len, rowid);
    at -= len;
    memcpy(at, head, (size_t)len);
    return at;
}

// Rows from `first` on that fit on a leaf. Returns how many.
static int leaf_put(unsigned char *page, const int64_t *values, int columns, int first, int rows)
{
    unsigned char *pointers = page + IMAGE_LEAF_HEAD, *at = page + IMAGE_PAGE_BYTES;
    int count = 0;
    for (; first + count < rows && at - pointers > IMAGE_CELL_MAX + 2; count++, pointers += 2) {
        at = cell_put(at, values + (ptrdiff_t)(first + count) * columns, columns,
                (uint32_t)(first + count) + 1);
        put16(pointers, (uint32_t)(at - page));
    }
    page[0] = 0x0d; // leaf of a table
    put16(page + 1, 0);
    put16(page + 3, (uint32_t)count);
    put16(page + 5, (uint32_t)(at - page));
    page[7] = 0;
    return count;
}

// Pages of the database; 0: too few rows for two leaves.
static int image_build(struct image *image, const int64_t *values, int rows)
{
    unsigned char *root = image->pages + IMAGE_PAGE_BYTES, *at = root + IMAGE_PAGE_BYTES;
    int leaves = 0;
    for (int done = 0; done < rows; leaves++) {
        if (leaves) { // the one before has a cell in the root: its page and its last row
            unsigned char cell[8];
            put32(cell, (uint32_t)(leaves + 2));
            int len = 4 + put_varint(cell + 4, (uint32_t)done);
            at -= len;
            memcpy(at, cell, (size_t)len);
            put16(root + IMAGE_ROOT_HEAD + 2 * (leaves - 1), (uint32_t)(at - root));
        }
        if (leaves + 2 >= image->pages_max)
            return 0;
        done += leaf_put(image->pages + (ptrdiff_t)(leaves + 2) * IMAGE_PAGE_BYTES, values,
                image->columns, done, rows);
    }
    root[0] = 0x05; // interior page of a table
    put16(root + 1, 0);
    put16(root + 3, (uint32_t)(leaves - 1));
    put16(root + 5, (uint32_t)(at - root));
    root[7] = 0;
    put32(root + 8, (uint32_t)(leaves + 2));
    put32(image->pages + 28, (uint32_t)(leaves + 2)); // the size of the database
    return leaves > 1 ? leaves + 2 : 0;
}

int image_insert(struct image *image, const int64_t *values, int rows)
{
    int pages = image_build(image, values, rows);
    if (!pages)
        return SQLITE_ERROR;
    int64_t bytes = (int64_t)pages * IMAGE_PAGE_BYTES;
    // Not as read-only, though nobody writes it: BEGIN IMMEDIATE wants to be able to write every
    // database attached.
    int rc = sqlite3_deserialize(image->db, image->name, image->pages, bytes, bytes, 0);
    return rc == SQLITE_OK ? sqlite3_exec(image->db, image->insert, NULL, NULL, NULL) : rc;
}

// An empty database with the table, made by SQLite: its first page is ours.
static bool image_template(struct image *image, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_int64 bytes = 0;
    unsigned char *pages = NULL;
    if (sqlite3_open(":memory:", &db) == SQLITE_OK &&
            sqlite3_exec(db, "PRAGMA page_size = 65536", NULL, NULL, NULL) == SQLITE_OK &&
            sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK)
        pages = sqlite3_serialize(db, "main", &bytes, 0);
    bool ok = pages && bytes == 2 * IMAGE_PAGE_BYTES;
    if (ok)
        memcpy(image->pages, pages, IMAGE_PAGE_BYTES);
    sqlite3_free(pages);
    sqlite3_close(db);
    return ok;
}

struct image *image_new(sqlite3 *db, const char *table, int columns, int rows_max)
{
    struct image *image = xcalloc(1, sizeof *image);
    image->db = db;
    image->columns = columns;
    image->pages_max = 4 + rows_max / ((IMAGE_PAGE_BYTES - 128) / (IMAGE_CELL_MAX + 2));
    image->pages = xcalloc((size_t)image->pages_max, IMAGE_PAGE_BYTES);
    image->name = xasprintf("upgate_image_%s", table);
    image->insert = xasprintf("INSERT INTO main.%s SELECT * FROM %s.%s", table, image->name, table);
    char *ask = xasprintf(
            "SELECT sql FROM main.sqlite_master WHERE type = 'table' AND name = '%s'", table);
    char *attach = xasprintf("ATTACH ':memory:' AS %s", image->name);
    sqlite3_stmt *stmt = NULL;
    bool ok = sqlite3_prepare_v2(db, ask, -1, &stmt, NULL) == SQLITE_OK &&
            sqlite3_step(stmt) == SQLITE_ROW &&
            image_template(image, (const char *)sqlite3_column_text(stmt, 0));
    sqlite3_finalize(stmt);
    ok = ok && sqlite3_exec(db, attach, NULL, NULL, NULL) == SQLITE_OK;
    free(ask);
    free(attach);
    if (ok)
        return image;
    free(image->name);
    image->name = NULL; // not attached
    image_free(image);
    return NULL;
}

void image_free(struct image *image)
{
    if (!image)
        return;
    bool detached = true;
    if (image->name) {
        char *detach = xasprintf("DETACH %s", image->name);
        detached = sqlite3_exec(image->db, detach, NULL, NULL, NULL) == SQLITE_OK;
        free(detach);
    }
    if (detached) // else SQLite still looks at them; they are a megabyte, once
        free(image->pages);
    free(image->name);
    free(image->insert);
    free(image);
}
