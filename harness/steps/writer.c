// SPDX-License-Identifier: Apache-2.0
// The rings are written by the code that workloads have (contracts/step_writer.h), with a state of
// its own for each process. Nothing here opens the file: to close a descriptor of it would drop the
// lock that says that we live.
#include "harness/steps/writer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/clock.h"
#include "common/launcher.h"
#include "common/proc.h"
#include "common/target/file.h"
#include "contracts/upgate_step.h"
#include "harness/steps/reader_internal.h"

enum { WRITER_ENVIRONMENT_MAX = 1 << 20 };

struct step_writer {
    struct reader *reader;
    struct ug_step_state state;
    uint64_t dropped; // that others counted
};

// As ug_impl_read_rank() does it in the process itself.
static void read_rank(struct ug_step_slot *slot, pid_t pid, uint32_t claim_order)
{
    static const char *const names[] = {UG_IMPL_RANK_NAMES};
    char path[64];
    size_t len = 0, i;
    char *text;

    slot->rank = claim_order;
    slot->rank_source = UG_RANK_CLAIM_ORDER;
    snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    text = target_file_text(path, WRITER_ENVIRONMENT_MAX, &len);
    i = text != NULL ? ug_impl_rank_first(launcher_block_value(text, len, "LOCAL_RANK")) : 0;
    for (; text != NULL && slot->rank_source == UG_RANK_CLAIM_ORDER &&
            i < sizeof(names) / sizeof(names[0]);
            i++) {
        const char *value = launcher_block_value(text, len, names[i]);
        uint64_t rank = ug_impl_number(value, '\0');

        if (rank < UG_STEP_RANK_UNKNOWN) {
            slot->rank = (uint32_t)rank;
            slot->rank_source = UG_RANK_ENVIRONMENT;
        }
    }
    free(text);
}

static struct ug_step_slot *take_slot(struct reader *reader, pid_t pid, uint32_t *ret_idx)
{
    for (uint32_t i = 0; i < reader->plan.slot_count; i++) {
        struct ug_step_slot *slot = &reader->slots[i];
        uint32_t none = 0;

        if (__atomic_compare_exchange_n(
                    &slot->pid, &none, (uint32_t)pid, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            *ret_idx = i;
            return slot;
        }
    }
    return NULL;
}

// Memory for the first MiB of texts, so that ug_impl_reserve() has nothing to do, which would open
// the file.
static bool take_text_memory(struct step_writer *writer)
{
    struct ug_step_state *s = &writer->state;
    uint64_t want = s->byte_size < UG_IMPL_RESERVE_BYTES ? s->byte_size : UG_IMPL_RESERVE_BYTES;

    if (posix_fallocate(writer->reader->fd, (off_t)s->byte_offset, (off_t)want) != 0) {
        return false;
    }
    s->byte_reserved = s->byte_size; // texts are a few hundred bytes
    return true;
}

static int refuse(struct step_writer *writer, struct ug_step_slot *slot, struct error *err)
{
    __atomic_fetch_add(&writer->reader->header->refused_count, 1, __ATOMIC_RELAXED);
    if (slot != NULL) {
        __atomic_store_n(&slot->pid, 0, __ATOMIC_RELEASE);
    }
    step_writer_free(writer);
    return error_set(err, -ENOSPC,
            "failed to take a slot for the steps of a process: no slot or no memory is left");
}

int step_writer_claim(
        struct reader *reader, pid_t pid, struct step_writer **ret_writer, struct error *err)
{
    struct step_writer *writer = calloc(1, sizeof(*writer));
    struct proc_stat stat = {0};
    struct ug_step_slot *slot;
    uint32_t idx = 0;

    if (writer == NULL) {
        return error_set(err, -ENOMEM, "failed to make a step writer: out of memory");
    }
    writer->reader = reader;
    writer->state.header = reader->header;
    slot = take_slot(reader, pid, &idx);
    if (slot == NULL || ug_impl_map_rings(&writer->state, reader->fd, idx) != NULL ||
            !take_text_memory(writer)) {
        return refuse(writer, slot, err);
    }
    writer->state.slot = slot;
    (void)proc_stat_of(pid, &stat);
    slot->start_ticks = stat.start_ticks;
    slot->pid_namespace = reader->pid_namespace;
    slot->time_namespace = clock_namespace(); // start_ticks and all times are of our clocks
    slot->claim_ns = (uint64_t)clock_monotonic_ns();
    read_rank(slot, pid, idx);
    __atomic_store_n(&slot->state, UG_SLOT_RUNNING, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&reader->header->claims_count, 1, __ATOMIC_RELEASE); // after the state
    ug_impl_notify(reader->header);
    *ret_writer = writer;
    return 0;
}

void step_writer_step(struct step_writer *writer, uint32_t step, uint64_t begin_ns, uint64_t end_ns)
{
    struct ug_step_state *s = &writer->state;

    s->step = step;
    ug_impl_put(s, UG_RECORD_STEP, begin_ns, end_ns, 1, NULL);
    s->step = step + 1;
    __atomic_store_n(&s->slot->steps, step + 1, __ATOMIC_SEQ_CST);
}

void step_writer_text(struct step_writer *writer, const char *name, const char *text)
{
    ug_impl_put_bytes(&writer->state, UG_BYTES_TEXT, name, UG_DTYPE_NONE, 0, text, strlen(text));
}

void step_writer_hold(struct step_writer *writer, uint32_t steps, uint64_t at_ns, pid_t tid)
{
    struct ug_step_state *s = &writer->state;

    s->step = steps;
    s->hold_begin_ns = at_ns;
    __atomic_store_n(&s->slot->steps, steps, __ATOMIC_SEQ_CST);
    __atomic_store_n(&s->slot->hold_begin_ns, at_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&s->slot->hold_tid, (uint32_t)tid, __ATOMIC_RELAXED);
    __atomic_store_n(&s->slot->request, 0, __ATOMIC_RELAXED); // it reports nothing
    __atomic_fetch_add(&s->slot->hold_count, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&s->slot->state, UG_SLOT_HELD, __ATOMIC_SEQ_CST);
    ug_impl_notify(writer->reader->header);
}

void step_writer_go(struct step_writer *writer)
{
    struct ug_step_state *s = &writer->state;

    __atomic_store_n(&s->slot->state, UG_SLOT_RUNNING, __ATOMIC_RELEASE);
    ug_impl_put(s, UG_RECORD_HOLD, s->hold_begin_ns, (uint64_t)clock_monotonic_ns(), 0, NULL);
}

void step_writer_counts(
        struct step_writer *writer, uint64_t misplaced, uint64_t dropped, uint64_t control_wait_ns)
{
    struct ug_step_slot *slot = writer->state.slot;

    __atomic_store_n(&slot->misplaced_count, misplaced, __ATOMIC_RELAXED);
    __atomic_fetch_add(&slot->dropped_count, dropped - writer->dropped, __ATOMIC_RELAXED);
    writer->dropped = dropped;
    __atomic_store_n(&slot->control_wait_ns, control_wait_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->control_cpu_ns, control_wait_ns, __ATOMIC_RELAXED);
}

void step_writer_close(struct step_writer *writer)
{
    __atomic_store_n(&writer->state.slot->state, UG_SLOT_CLOSED, __ATOMIC_SEQ_CST);
    ug_impl_notify(writer->reader->header);
}

void step_writer_free(struct step_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    writer->state.header = NULL; // the reader's
    ug_impl_unmap(&writer->state);
    free(writer);
}
