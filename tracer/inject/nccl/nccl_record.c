// SPDX-License-Identifier: Apache-2.0
// An operation that is over, or given up, into the spool. Runs on NCCL's proxy threads, on the
// workload's and on the control thread: no allocation, no lock.
//
// The kernel's times are stamps of the GPU's globaltimer, which is no clock of the host's. The
// proxy thread hands out a stamp some time after it was taken, never before: the smallest "now -
// stamp" is the offset, and a converted time is late by at most the shortest of these delays (the
// proxy polls: microseconds). Durations are exact. The clocks drift, some 10 us a second: a new
// smallest may be larger than the last by 200 us for every second in between.
#include "tracer/inject/nccl/nccl_pool.h"

#include <string.h>

#include "contracts/spool.h"
#include "tracer/inject/inject.h"
#include "tracer/inject/spool/spool_writer.h"

#define DRIFT 5000 // 200 ppm
// A stamp so long before the call was made by an earlier kernel: NCCL's counters of host and GPU
// have parted, which happens to a communicator that runs captured graphs and eager collectives.
#define STALE_NS 50000000ll

void nccl_record_clock(struct nccl_comm *comm, uint64_t now_ns, uint64_t ptimer)
{
    if (ptimer >> 62) // beyond every clock: 146 years
        return;
    int64_t offset = (int64_t)(now_ns - ptimer);
    int64_t old = atomic_load_explicit(&comm->offset, memory_order_relaxed);
    uint64_t since = atomic_load_explicit(&comm->offset_ns, memory_order_relaxed);
    int64_t drift = now_ns > since ? (int64_t)((now_ns - since) / DRIFT) : 0;
    if (old != INT64_MAX && offset - old >= drift)
        return;
    // Several proxies at a time: the loser's difference is lost, which costs microseconds at most.
    if (atomic_compare_exchange_strong_explicit(
                &comm->offset, &old, offset, memory_order_relaxed, memory_order_relaxed))
        atomic_store_explicit(&comm->offset_ns, now_ns, memory_order_relaxed);
}

// "ncclBfloat16" -> 2: the first number in the name is of bits. 0: none.
static uint32_t nccl_element_bytes(const char *datatype)
{
    uint32_t bits = 0;
    if (!datatype)
        return 0;
    while (*datatype && (*datatype < '0' || *datatype > '9'))
        datatype++;
    for (; *datatype >= '0' && *datatype <= '9' && bits < 1000; datatype++)
        bits = bits * 10 + (uint32_t)(*datatype - '0');
    return bits / 8;
}

static uint32_t text(const char *string)
{
    return string && *string ? spool_string(string, strlen(string)) : 0;
}

// The kernel's times on the host's clock, 0 what is not known. False: the stamps are not of this
// operation.
static bool kernel_times(const struct nccl_comm *comm, const struct nccl_slot *slot, bool is_over,
        uint64_t *ret_start, uint64_t *ret_end)
{
    uint64_t start = atomic_load_explicit(&slot->gpu_start, memory_order_relaxed);
    uint64_t end = atomic_load_explicit(&slot->gpu_end, memory_order_relaxed);
    int64_t offset = atomic_load_explicit(&comm->offset, memory_order_relaxed);
    *ret_start = *ret_end = 0;
    if (start == UINT64_MAX || offset == INT64_MAX)
        return true;
    if (end && end < start)
        return false;
    uint64_t at = start + (uint64_t)offset;
    if ((int64_t)(slot->enqueued_ns - at) > STALE_NS)
        return false;
    *ret_start = at;
    *ret_end = is_over && end ? end + (uint64_t)offset : 0;
    return true;
}

void nccl_record_write(const struct nccl_comm *comm, const struct nccl_slot *slot, bool is_over,
        uint32_t channels, bool is_last)
{
    const struct nccl_op *op = &slot->op;
    uint32_t kinds = inject_kinds();
#ifdef UPGATE_INJECT_NOP
    kinds |= UG_WANT_NOTHING_KEPT;
#endif
    if (kinds & UG_WANT_NOTHING_KEPT) {
        spool_count(UG_PRODUCER_NCCL);
        return;
    }
    if (!(kinds & UG_WANT_NCCL) && !is_last)
        return;
    struct ug_rec_nccl record = {
            .head = {.type = UG_REC_NCCL, .bytes = sizeof(record), .tid = slot->tid},
            .enqueued_ns = slot->enqueued_ns,
            .communicator = op->communicator,
            .sequence = op->sequence,
            .count = op->count,
            .rank = op->rank,
            .ranks = comm->ranks,
            .peer = op->peer,
            .function = text(op->function),
            .datatype = text(op->datatype),
            .algorithm = text(op->algorithm),
            .protocol = text(op->protocol),
            .channels = channels,
            .warps = op->warps,
            .element_bytes = nccl_element_bytes(op->datatype),
            .plugin_version = comm->version,
            .communicator_name = text(comm->name),
    };
    if (kernel_times(comm, slot, is_over, &record.kernel_start_ns, &record.kernel_end_ns) &&
            is_over)
        record.ended_ns = atomic_load_explicit(&slot->last_stop_ns, memory_order_relaxed);
    void *room = spool_reserve(UG_PRODUCER_NCCL, sizeof(record));
    if (!room)
        return;
    memcpy(room, &record, sizeof(record));
    spool_publish(sizeof(record));
}

void nccl_record_drop(void)
{
    spool_drop(UG_PRODUCER_NCCL);
}
