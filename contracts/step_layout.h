/*
 * Layout of the shared memory between the harness and the processes of one launch (step protocol).
 *
 * The harness creates the file and writes the header; each process that marks steps claims one slot
 * and is its only writer; the harness is the only reader. Sizes and offsets are asserted below and
 * hold for C17, C++17 and CUDA's C++. Next to no code: the writer is upgate_step.h, the reader
 * is harness/steps/reader.h. Change anything and raise UG_STEP_VERSION; a field in what was padding
 * needs no new version as long as 0 says "not told" in it.
 *
 * file = header (4 KiB; from 1 KiB on: what was looked at) | slots (256 B each) | per slot: ring of
 * records, ring of bytes
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef UPGATE_CONTRACTS_STEP_LAYOUT_H
#define UPGATE_CONTRACTS_STEP_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#define UG_STEP_MAGIC 0x5350455453475055ull /* "UPGSTEPS" in the file */
#define UG_STEP_VERSION 1u
#define UG_STEP_HEADER_BYTES 4096u
#define UG_STEP_SLOTS_MAX 1024u
#define UG_STEP_ALIGN_BYTES 65536u   /* of the rings: a page on every Linux we know */
#define UG_STEP_RUN_FREE 0xffffffffu /* value of granted: no gate */
#define UG_STEP_NAME_BYTES 24u       /* of a record, with its final NUL */
#define UG_STEP_BYTE_NAME_MAX 255u   /* of a byte record, without NUL */
#define UG_STEP_PHASE_DEPTH_MAX 8u
#define UG_STEP_RANK_UNKNOWN 0xffffffffu

#ifdef __cplusplus
#define UG_STEP_ASSERT(condition) static_assert(condition, #condition)
#else
#define UG_STEP_ASSERT(condition) _Static_assert(condition, #condition)
#endif
#define UG_STEP_LINE __attribute__((aligned(64)))

enum ug_record_kind {
    UG_RECORD_STEP =
            1, /* value = samples; sched_ns = scheduled time of a request, 0 = not a request */
    UG_RECORD_LOSS = 2,  /* value = loss; begin_ns = begin of its step */
    UG_RECORD_PHASE = 3, /* name; value = depth, 0 = outermost */
    UG_RECORD_HOLD = 4,  /* time held at the gate; step = the step that waited */
    UG_RECORD_NOTE = 5,  /* name, value: one number about the launch */
    /* of a server: value = status as HTTP has it, 0 = none; name "wrong" or "" */
    UG_RECORD_REQUEST = 6,
};

enum ug_bytes_kind {
    UG_BYTES_TENSOR = 1,      /* name, dtype, count, raw values */
    UG_BYTES_FINGERPRINT = 2, /* JSON text */
    UG_BYTES_TEXT = 3,        /* any other text, told apart by its name */
};

enum ug_dtype {
    UG_DTYPE_NONE = 0,
    UG_DTYPE_FLOAT64 = 1,
    UG_DTYPE_FLOAT32 = 2,
    UG_DTYPE_FLOAT16 = 3,
    UG_DTYPE_BFLOAT16 = 4,
    UG_DTYPE_INT64 = 5,
    UG_DTYPE_INT32 = 6,
    UG_DTYPE_INT16 = 7,
    UG_DTYPE_INT8 = 8,
    UG_DTYPE_UINT64 = 9,
    UG_DTYPE_UINT32 = 10,
    UG_DTYPE_UINT16 = 11,
    UG_DTYPE_UINT8 = 12,
    UG_DTYPE_BOOL = 13,
    UG_DTYPE_COMPLEX64 = 14,
    UG_DTYPE_COMPLEX128 = 15,
    UG_DTYPE_FLOAT8_E4M3 = 16,
    UG_DTYPE_FLOAT8_E5M2 = 17,
};

enum ug_slot_state {
    UG_SLOT_FREE = 0,
    UG_SLOT_RUNNING = 1,
    UG_SLOT_HELD = 2,
    UG_SLOT_CLOSED = 3, /* the process ended in good order */
};

enum ug_rank_source { UG_RANK_CLAIM_ORDER = 0, UG_RANK_ENVIRONMENT = 1 };

/* Bits of the request word: what the process reports at its next hold. */
enum ug_request_bit {
    UG_REQUEST_FINGERPRINT = 1, /* answered by a byte record UG_BYTES_FINGERPRINT */
    /* answered by NOTEs where there is a GPU: "peak_gpu_memory_bytes", what is reserved, and
       "peak_gpu_tensor_bytes", what tensors held */
    UG_REQUEST_GPU_MEMORY = 2,
};

struct ug_step_record {
    uint32_t kind;
    uint32_t step;
    uint64_t begin_ns;
    uint64_t end_ns;
    uint64_t sched_ns;
    double value;
    char name[UG_STEP_NAME_BYTES];
};

/* Followed by the name, then the payload, each padded to 8 bytes. */
struct ug_step_bytes {
    uint32_t kind;
    uint32_t step;
    uint32_t dtype;
    uint32_t name_bytes;
    uint64_t count; /* elements; 0 for text */
    uint64_t payload_bytes;
};

struct ug_step_header {
    uint64_t magic;
    uint32_t version;
    uint32_t slot_count;
    uint32_t slot_bytes;   /* sizeof(struct ug_step_slot) */
    uint32_t record_bytes; /* sizeof(struct ug_step_record) */
    uint64_t slots_offset;
    uint64_t rings_offset;
    uint64_t ring_records; /* a power of two */
    uint64_t ring_bytes;   /* a power of two, at least UG_STEP_ALIGN_BYTES */
    uint64_t stride_bytes; /* from the rings of one slot to those of the next */
    uint64_t file_bytes;
    uint64_t harness_image; /* see ug_impl_image() */
    uint32_t harness_pid;
    /* Positive control: every step is made longer by this share of its length, in parts per
     * million, before its end is taken. 0: not at all. Written before the first claim. */
    uint32_t control_ppm;
    UG_STEP_LINE uint32_t event; /* futex word: raised at every claim, hold and close */
    uint32_t waiting;            /* the harness sleeps on event */
    uint32_t claims_count;
    uint32_t refused_count; /* claims that found no slot or no memory */
};

struct ug_step_slot {
    /* The claim: written once by the process, before state leaves UG_SLOT_FREE. */
    uint32_t pid; /* in the process's own pid namespace */
    uint32_t rank;
    uint32_t rank_source;
    uint32_t ranks;       /* processes of its job on this machine that make steps; 0 = not told */
    uint64_t start_ticks; /* field 22 of /proc/PID/stat */
    uint64_t pid_namespace;
    uint64_t image;
    uint64_t claim_ns;
    /* Whose CLOCK_MONOTONIC all times of this slot are, and whose CLOCK_BOOTTIME start_ticks:
     * inode of /proc/self/ns/time; 0 = not told. */
    uint64_t time_namespace;
    uint64_t padding1;
    /* Written by the process at every record. */
    UG_STEP_LINE uint64_t head; /* records published since the claim = kept */
    uint64_t dropped_count;
    uint64_t byte_head; /* bytes published */
    uint64_t byte_kept_count;
    uint64_t byte_dropped_count;
    uint64_t truncated_count; /* names cut, phases nested too deep */
    uint64_t
            misplaced_count; /* nested or foreign-thread step, or a value outside a step: ignored */
    uint32_t steps;          /* index of the next step to begin */
    uint32_t padding2;
    /* Written by the process at the gate. */
    UG_STEP_LINE uint32_t state;
    uint32_t hold_count;
    uint64_t hold_begin_ns; /* of the present or last hold */
    uint32_t hold_tid; /* the thread that stands or stood there, in its own pid namespace; 0 = not
                          told */
    uint32_t padding3;
    /* Written by the process when a control made a step longer: by how much, in all. */
    uint64_t control_wait_ns;
    uint64_t control_cpu_ns; /* of its CPU time: a busy wait that lost its processor took less */
    uint64_t padding4[3];
    /* Written by the harness. */
    UG_STEP_LINE uint64_t tail;
    uint64_t byte_tail;
    uint32_t granted; /* futex word: steps with a lower index may run */
    uint32_t request; /* ug_request_bit; the process clears it */
    uint64_t padding5[5];
};

/* What processes saw where they were told to look for steps (tracer/inject/steps), so that who
 * finds none can say why: in the header's page, behind the header. Written by processes that claim
 * no slot, too. */
#define UG_STEP_LOOKS_OFFSET 1024u
#define UG_STEP_NEAR_MAX 23u

enum ug_step_near_state { UG_NEAR_FREE = 0, UG_NEAR_BUSY = 1, UG_NEAR_NAME = 2, UG_NEAR_WHY = 3 };

struct ug_step_near {
    uint32_t state; /* enum ug_step_near_state; NAME: like what was looked for; WHY: words about the
                       process */
    uint32_t distance; /* of a name: edits */
    char text[120];    /* with its final NUL */
};

struct ug_step_looks {
    uint32_t processes; /* that have looked */
    uint32_t seen;      /* names, or replays, that they saw; at most UINT32_MAX / 2 */
    uint32_t taken; /* entries of near that a process has taken for itself; may be more than there
                       are */
    uint32_t padding;
    struct ug_step_near near[UG_STEP_NEAR_MAX];
};

/* Bytes that a ring of records takes in the file; the ring of bytes follows. */
static inline uint64_t ug_step_ring_span(uint64_t ring_records)
{
    return (ring_records * sizeof(struct ug_step_record) + UG_STEP_ALIGN_BYTES - 1) &
            ~(uint64_t)(UG_STEP_ALIGN_BYTES - 1);
}

UG_STEP_ASSERT(sizeof(struct ug_step_record) == 64);
UG_STEP_ASSERT(offsetof(struct ug_step_record, begin_ns) == 8);
UG_STEP_ASSERT(offsetof(struct ug_step_record, value) == 32);
UG_STEP_ASSERT(offsetof(struct ug_step_record, name) == 40);
UG_STEP_ASSERT(sizeof(struct ug_step_bytes) == 32);
UG_STEP_ASSERT(offsetof(struct ug_step_bytes, count) == 16);
UG_STEP_ASSERT(sizeof(struct ug_step_header) == 192);
UG_STEP_ASSERT(offsetof(struct ug_step_header, file_bytes) == 64);
UG_STEP_ASSERT(offsetof(struct ug_step_header, control_ppm) == 84);
UG_STEP_ASSERT(offsetof(struct ug_step_header, event) == 128);
UG_STEP_ASSERT(sizeof(struct ug_step_near) == 128);
UG_STEP_ASSERT(UG_STEP_LOOKS_OFFSET + sizeof(struct ug_step_looks) <= UG_STEP_HEADER_BYTES);
UG_STEP_ASSERT(sizeof(struct ug_step_slot) == 256);
UG_STEP_ASSERT(offsetof(struct ug_step_slot, start_ticks) == 16);
UG_STEP_ASSERT(offsetof(struct ug_step_slot, time_namespace) == 48);
UG_STEP_ASSERT(offsetof(struct ug_step_slot, head) == 64);
UG_STEP_ASSERT(offsetof(struct ug_step_slot, steps) == 120);
UG_STEP_ASSERT(offsetof(struct ug_step_slot, state) == 128);
UG_STEP_ASSERT(offsetof(struct ug_step_slot, hold_tid) == 144);
UG_STEP_ASSERT(offsetof(struct ug_step_slot, control_wait_ns) == 152);
UG_STEP_ASSERT(offsetof(struct ug_step_slot, tail) == 192);
UG_STEP_ASSERT(offsetof(struct ug_step_slot, granted) == 208);

#endif
