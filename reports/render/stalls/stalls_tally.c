// SPDX-License-Identifier: Apache-2.0
// Rows counted once, in chunks of those that came between two looks: when the oldest ones are
// deleted, the chunks before go, and the one that is cut is counted again.
#include "reports/render/stalls/stalls_tally.h"

#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"

// then the last one takes what comes: half an hour, and some hours fill a store
enum { TALLY_CHUNKS_MAX = 1024 };

struct tally_chunk {
    int64_t last, count; // rows up to this one, behind the chunk before
};

struct tally {
    struct tally_chunk *chunks;
    size_t count;
    int64_t before; // the first chunk's rows lie behind it
};

struct stalls_tally {
    struct tally tables[TALLY_TABLES];
};

// Which rows count, which stay, and which do not: waits that go on are written anew each second,
// behind all others.
static const struct {
    const char *name, *counts, *stays, *goes; // goes NULL: none
} tally_tables[TALLY_TABLES] = {
        // UG_GAP_SHORT, UG_GAP_UNFINISHED
        [TALLY_GAP] = {"gap", "NOT flags & 0x100000", "NOT flags & 0x20", "flags & 0x20"},
        [TALLY_SAMPLE] = {"sample", "1", "1", NULL},
        [TALLY_LOCK_WAIT] = {"lock_wait", "1", "1", NULL},
        [TALLY_HOST_FACT] = {"host_fact", "1", "1", NULL},
};

struct stalls_tally *stalls_tally_new(void)
{
    return xcalloc(1, sizeof(struct stalls_tally));
}

static void tally_clear(struct tally *tally)
{
    free(tally->chunks);
    *tally = (struct tally){0};
}

void stalls_tally_free(struct stalls_tally *tally)
{
    for (int i = 0; tally && i < TALLY_TABLES; i++)
        tally_clear(&tally->tables[i]);
    free(tally);
}

// A number about the rows behind `from` and before `until` for which `where` holds.
static int tally_ask(struct store *store, enum tally_table table, const char *what,
        const char *where, int64_t from, int64_t until, int64_t *ret, struct error *err)
{
    char *sql = xasprintf("SELECT %s FROM %s WHERE rowid > ? AND rowid < ? AND %s", what,
            tally_tables[table].name, where);
    int rc = store_get_int(store, ret, err, sql, "ii", from, until);
    free(sql);
    return rc;
}

// Chunks whose rows have been deleted go. A table that was emptied gives its numbers anew: then all
// go.
static int tally_forget(
        struct tally *tally, struct store *store, enum tally_table table, struct error *err)
{
    int64_t first = 0, last = tally->count ? tally->chunks[tally->count - 1].last : 0, there = 0;
    int rc = tally_ask(store, table, "coalesce(min(rowid), 0)", "1", 0, INT64_MAX, &first, err);
    if (rc == 0 && last)
        rc = tally_ask(store, table, "count(*)", "1", last - 1, last + 1, &there, err);
    if (rc)
        return rc;
    if (!there) {
        tally_clear(tally);
        return 0;
    }
    size_t gone = 0;
    while (tally->chunks[gone].last < first) // the last one holds a row that is there
        tally->before = tally->chunks[gone++].last;
    tally->count -= gone;
    memmove(tally->chunks, tally->chunks + gone, tally->count * sizeof *tally->chunks);
    if (first <= tally->before + 1)
        return 0;
    tally->before = first - 1;
    return tally_ask(store, table, "count(*)", tally_tables[table].counts, tally->before,
            tally->chunks[0].last + 1, &tally->chunks[0].count, err);
}

// What came since, up to the first row that is not there to stay.
static int tally_add(struct tally *tally, struct store *store, enum tally_table table, int64_t from,
        struct error *err)
{
    const char *goes = tally_tables[table].goes;
    int64_t end = INT64_MAX;
    struct tally_chunk chunk = {0};
    int rc = goes ? tally_ask(store, table, "coalesce(min(rowid), 9223372036854775807)", goes, from,
                            INT64_MAX, &end, err)
                  : 0;
    if (rc == 0)
        rc = tally_ask(store, table, "coalesce(max(rowid), 0)", tally_tables[table].stays, from,
                end, &chunk.last, err);
    if (rc == 0 && chunk.last)
        rc = tally_ask(store, table, "count(*)", tally_tables[table].counts, from, chunk.last + 1,
                &chunk.count, err);
    if (rc || !chunk.last)
        return rc;
    if (tally->count < TALLY_CHUNKS_MAX) {
        vector_push(tally->chunks, tally->count, chunk);
    } else {
        tally->chunks[tally->count - 1].last = chunk.last;
        tally->chunks[tally->count - 1].count += chunk.count;
    }
    return 0;
}

int stalls_tally_count(struct stalls_tally *tally, enum tally_table table, struct store *store,
        int64_t *ret, struct error *err)
{
    struct tally *one = &tally->tables[table];
    int64_t sum = 0;
    int rc = tally_forget(one, store, table, err);
    if (rc == 0)
        rc = tally_add(one, store, table, one->count ? one->chunks[one->count - 1].last : 0, err);
    int64_t counted = one->count ? one->chunks[one->count - 1].last : 0;
    if (rc == 0)
        rc = tally_ask(store, table, "count(*)", tally_tables[table].counts, counted, INT64_MAX,
                &sum, err);
    if (rc) {
        tally_clear(one);
        return rc;
    }
    for (size_t i = 0; i < one->count; i++)
        sum += one->chunks[i].count;
    *ret = sum;
    return 0;
}
