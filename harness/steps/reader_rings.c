// SPDX-License-Identifier: Apache-2.0
// Takes records out of the rings of a slot. Reads what the process published, writes the two tails.
// The process is not trusted: every length is checked against what was published before it is used.

#include "harness/steps/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "harness/steps/reader_internal.h"

static bool claimed(const struct reader *reader, uint32_t slot_idx)
{
    return slot_idx < reader->plan.slot_count &&
            __atomic_load_n(&reader->slots[slot_idx].state, __ATOMIC_ACQUIRE) != UG_SLOT_FREE;
}

void reader_rings_unmap(struct reader *reader, uint32_t slot_idx)
{
    struct reader_rings *rings = &reader->rings[slot_idx];

    if (rings->records != NULL) {
        munmap((void *)(uintptr_t)rings->records, ug_step_ring_span(reader->plan.ring_records));
    }
    if (rings->bytes != NULL) {
        munmap((void *)(uintptr_t)rings->bytes, 2 * reader->plan.ring_bytes);
    }
    *rings = (struct reader_rings){0};
}

static int map_rings(struct reader *reader, uint32_t slot_idx, struct error *err)
{
    const struct ug_step_header *header = &reader->plan;
    struct reader_rings *rings = &reader->rings[slot_idx];
    off_t offset = (off_t)(header->rings_offset + slot_idx * header->stride_bytes);
    off_t byte_offset = offset + (off_t)ug_step_ring_span(header->ring_records);
    unsigned char *bytes;
    void *records;
    int rc = 0;

    if (rings->records != NULL) {
        return 0;
    }
    records = mmap(NULL, ug_step_ring_span(header->ring_records), PROT_READ, MAP_SHARED, reader->fd,
            offset);
    if (records == MAP_FAILED) {
        return error_set(
                err, -errno, "failed to map the records of slot %u: %s", slot_idx, strerror(errno));
    }
    bytes = mmap(NULL, 2 * header->ring_bytes, PROT_NONE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED) {
        rc = -errno;
        munmap(records, ug_step_ring_span(header->ring_records));
        return error_set(
                err, rc, "failed to map the bytes of slot %u: %s", slot_idx, strerror(-rc));
    }
    for (int half = 0; half < 2; half++) {
        if (mmap(bytes + (uint64_t)half * header->ring_bytes, header->ring_bytes, PROT_READ,
                    MAP_SHARED | MAP_FIXED, reader->fd, byte_offset) == MAP_FAILED) {
            rc = -errno;
        }
    }
    rings->records = records;
    rings->bytes = bytes;
    if (rc < 0) {
        reader_rings_unmap(reader, slot_idx);
        return error_set(
                err, rc, "failed to map the bytes of slot %u: %s", slot_idx, strerror(-rc));
    }
    return 0;
}

static int drain_records(struct reader *reader, uint32_t slot_idx, reader_record_fn on_record,
        void *arg, struct error *err)
{
    struct ug_step_slot *slot = &reader->slots[slot_idx];
    uint64_t head = __atomic_load_n(&slot->head, __ATOMIC_ACQUIRE), tail = slot->tail;
    uint64_t ring_records = reader->plan.ring_records;
    const struct reader_clock *clock = reader_slot_clock(reader, slot);

    if (head - tail > ring_records) {
        __atomic_store_n(&slot->tail, head, __ATOMIC_RELEASE);
        return error_set(err, -EPROTO, "records of slot %u (pid %u) are damaged, skipping them",
                slot_idx, slot->pid);
    }
    if (clock->code != 0) {
        reader->outside[slot_idx].unplaced += head - tail;
        tail = head;
    }
    for (uint64_t i = tail; i != head; i++) {
        struct ug_step_record record = reader->rings[slot_idx].records[i & (ring_records - 1)];

        record.name[UG_STEP_NAME_BYTES - 1] = '\0';
        record.begin_ns = reader_our_time(clock, record.begin_ns);
        record.end_ns = reader_our_time(clock, record.end_ns);
        record.sched_ns = reader_our_time(clock, record.sched_ns);
        on_record(arg, slot_idx, &record);
        if ((i & 255) ==
                255) { // room early, so that a long callback does not cost the process records
            __atomic_store_n(&slot->tail, i + 1, __ATOMIC_RELEASE);
        }
    }
    __atomic_store_n(&slot->tail, head, __ATOMIC_RELEASE);
    return 0;
}

// Fills *ret_bytes from the byte record at `at` of `left` published bytes; returns its size, 0 =
// damaged.
static uint64_t decode_bytes(const unsigned char *at, uint64_t left, struct reader_bytes *ret_bytes)
{
    struct ug_step_bytes head;
    uint64_t name_pad, size;

    if (left < sizeof(head)) {
        return 0;
    }
    memcpy(&head, at, sizeof(head));
    if (head.name_bytes > UG_STEP_BYTE_NAME_MAX || head.payload_bytes > left) {
        return 0;
    }
    name_pad = (head.name_bytes + 7u) & ~7u;
    size = sizeof(head) + name_pad + ((head.payload_bytes + 7) & ~(uint64_t)7);
    if (size > left) {
        return 0;
    }
    ret_bytes->kind = head.kind;
    ret_bytes->dtype = head.dtype;
    ret_bytes->step = head.step;
    ret_bytes->count = head.count;
    ret_bytes->payload_bytes = head.payload_bytes;
    ret_bytes->payload = at + sizeof(head) + name_pad;
    memcpy(ret_bytes->name, at + sizeof(head), head.name_bytes);
    ret_bytes->name[head.name_bytes] = '\0';
    return size;
}

static int drain_bytes(struct reader *reader, uint32_t slot_idx, reader_bytes_fn on_bytes,
        void *arg, struct error *err)
{
    struct ug_step_slot *slot = &reader->slots[slot_idx];
    uint64_t head = __atomic_load_n(&slot->byte_head, __ATOMIC_ACQUIRE), tail = slot->byte_tail;
    uint64_t ring_bytes = reader->plan.ring_bytes;

    while (tail != head) {
        struct reader_bytes bytes;
        uint64_t size = 0;

        if (head - tail <= ring_bytes) {
            size = decode_bytes(
                    reader->rings[slot_idx].bytes + (tail & (ring_bytes - 1)), head - tail, &bytes);
        }
        if (size == 0) {
            __atomic_store_n(&slot->byte_tail, head, __ATOMIC_RELEASE);
            return error_set(err, -EPROTO, "tensors of slot %u (pid %u) are damaged, skipping them",
                    slot_idx, slot->pid);
        }
        on_bytes(arg, slot_idx, &bytes);
        tail += size;
        __atomic_store_n(&slot->byte_tail, tail, __ATOMIC_RELEASE);
    }
    return 0;
}

int reader_drain(struct reader *reader, uint32_t slot_idx, reader_record_fn on_record,
        reader_bytes_fn on_bytes, void *arg, struct error *err)
{
    int rc, rc_bytes = 0;

    if (!claimed(reader, slot_idx)) {
        return error_set(
                err, -ENOENT, "failed to read slot %u: no process has claimed it", slot_idx);
    }
    rc = map_rings(reader, slot_idx, err);
    if (rc < 0) {
        return rc;
    }
    if (on_record != NULL) {
        rc = drain_records(reader, slot_idx, on_record, arg, err);
    }
    if (on_bytes != NULL) {
        rc_bytes = drain_bytes(reader, slot_idx, on_bytes, arg, err);
    }
    return rc < 0 ? rc : rc_bytes;
}

bool reader_is_filling(const struct reader *reader)
{
    uint32_t slot_count = reader_slot_count(reader);

    for (uint32_t i = 0; i < slot_count; i++) {
        const struct ug_step_slot *slot = &reader->slots[i];

        if (__atomic_load_n(&slot->byte_head, __ATOMIC_ACQUIRE) - slot->byte_tail >
                reader->plan.ring_bytes / 4) {
            return true;
        }
    }
    return false;
}

int reader_counters(
        const struct reader *reader, uint32_t slot_idx, struct reader_counters *ret_counters)
{
    const struct ug_step_slot *slot;

    if (!claimed(reader, slot_idx)) {
        return -ENOENT;
    }
    slot = &reader->slots[slot_idx];
    ret_counters->records_kept = __atomic_load_n(&slot->head, __ATOMIC_ACQUIRE);
    ret_counters->records_dropped = __atomic_load_n(&slot->dropped_count, __ATOMIC_RELAXED);
    ret_counters->bytes_kept = __atomic_load_n(&slot->byte_kept_count, __ATOMIC_RELAXED);
    ret_counters->bytes_dropped = __atomic_load_n(&slot->byte_dropped_count, __ATOMIC_RELAXED);
    ret_counters->truncated = __atomic_load_n(&slot->truncated_count, __ATOMIC_RELAXED);
    ret_counters->misplaced = __atomic_load_n(&slot->misplaced_count, __ATOMIC_RELAXED);
    ret_counters->records_unplaced = reader->outside[slot_idx].unplaced;
    return 0;
}
