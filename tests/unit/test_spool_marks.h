// SPDX-License-Identifier: Apache-2.0
// Records that say which they are, threads that write them, and who counts them, for the tests of
// the spool's writer.
#ifndef UPGATE_TESTS_UNIT_TEST_SPOOL_MARKS_H
#define UPGATE_TESTS_UNIT_TEST_SPOOL_MARKS_H

#include <pthread.h>

#include "tests/unit/test_spool_rig.h"
#include "tracer/inject/spool/spool_writer.h"

enum { THREADS = 6, RECORDS = 40000 };

// A mark whose fields all say which it is.
__attribute__((unused)) static bool write_mark(uint64_t writer, uint64_t index)
{
    struct ug_rec_mark *mark = spool_reserve(UG_PRODUCER_PYTHON, sizeof *mark);
    if (!mark)
        return false;
    *mark = (struct ug_rec_mark){
            .head = {.type = UG_REC_MARK, .bytes = sizeof *mark, .tid = spool_tid()},
            .at_ns = writer,
            .value = index,
            .name = (uint32_t)(writer * 1000003 + index),
            .kind = UG_MARK_MODULE};
    spool_publish(sizeof *mark);
    return true;
}

struct seen {
    uint64_t count[THREADS], wrong;
};

__attribute__((unused)) static void see_mark(struct spool_rig *rig, const struct ug_rec_head *head)
{
    struct seen *seen = rig->user;
    const struct ug_rec_mark *mark = (const void *)head;
    if (head->type != UG_REC_MARK)
        return;
    if (head->bytes != sizeof *mark || mark->at_ns >= THREADS ||
            mark->name != (uint32_t)(mark->at_ns * 1000003 + mark->value))
        seen->wrong++;
    else
        seen->count[mark->at_ns]++;
}

struct writer {
    pthread_t thread;
    uint64_t index, kept;
};

__attribute__((unused)) static void *write_many(void *user)
{
    struct writer *writer = user;
    for (uint64_t i = 0; i < RECORDS; i++)
        writer->kept += write_mark(writer->index, i);
    return NULL;
}

static bool stop_reading;

__attribute__((unused)) static void *read_all(void *user)
{
    struct spool_rig *rig = user;
    while (!__atomic_load_n(&stop_reading, __ATOMIC_ACQUIRE)) {
        spool_rig_drain(rig);
        usleep(500);
    }
    spool_rig_drain(rig);
    return NULL;
}

#endif
