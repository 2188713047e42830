// SPDX-License-Identifier: Apache-2.0
// The harness's side of the step protocol (contracts/step_layout.h): creates the shared memory of
// one launch, runs the gate, and takes the records out. Used by the run loop of `upgate ab`; stores
// nothing.
//
// Threads: one thread at a time uses a reader. The process that calls reader_create() must outlive
// the launch and never open the file a second time: a POSIX lock on the file's first byte tells the
// workloads that the harness lives, and closing any descriptor of the file would drop it. Slots are
// claimed in order: indices 0 to reader_slot_count() - 1. A side may have claimed none (no step
// calls at all), and one process is one slot.
#ifndef UPGATE_HARNESS_STEPS_READER_H
#define UPGATE_HARNESS_STEPS_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "contracts/step_layout.h"

struct reader;

struct reader_opts {
    uint32_t slot_count;   // processes of the launch that may mark steps; 0 = 64, at most 1024
    uint64_t ring_records; // of a slot, rounded up to a power of two; 0 = 65536 (4 MiB)
    uint64_t ring_bytes;   // of a slot, rounded up likewise; 0 = 8 MiB, at least 64 KiB
    bool keep; // the file stays at the end, and one that a reader before us left is taken over with
               // what stands in it: for processes that live longer than their reader
    bool open; // true: processes run free; false: each is held at its first step
    uint32_t control_ppm; // positive control: every step takes so much longer; 0 = none
};

struct reader_slot {
    uint32_t pid; // as we know it; where it cannot be seen from here, as the process says it
    uint32_t rank;
    uint32_t ranks; // of its job on this machine, as the process knows; 0 = not told
    bool has_rank;  // from the environment of a launcher; else rank is the order of the claims
    bool held;      // stands at the gate, and has not been granted what it waits for
    enum ug_slot_state state;
    uint32_t steps;         // completed so far = index of the step it waits for when held
    uint32_t hold_count;    // arrivals at the gate
    uint64_t hold_begin_ns; // of the present or last hold; 0 = none yet
    uint32_t hold_tid; // the thread of it; 0 = not told: none yet, not to be seen from here, an
                       // older writer
    uint64_t claim_ns; // of the first step call
    uint64_t control_wait_ns, control_cpu_ns; // by which a control made its steps longer so far
    // Its times, here and in its records, are brought from its clock to ours (common/clock.h).
    // code: 0, or -errno of clock_compare(): they cannot be, are 0 here, and records stay away.
    int clock_code;
    int64_t clock_ahead_ns; // of ours, in a time namespace
};

// Every count is since the claim. seen = kept + dropped.
struct reader_counters {
    uint64_t records_kept, records_dropped;
    uint64_t bytes_kept, bytes_dropped; // byte records, not bytes
    uint64_t truncated;                 // names cut, phases nested too deep
    uint64_t misplaced;        // calls ignored: nested, of another thread, or outside a step
    uint64_t records_unplaced; // of those kept: not handed out, see reader_slot.clock_code
};

struct reader_bytes {
    enum ug_bytes_kind kind;
    enum ug_dtype dtype;
    uint32_t step;
    uint64_t count; // elements
    uint64_t payload_bytes;
    const void *payload; // 8-byte aligned; valid during the callback only
    char name[UG_STEP_BYTE_NAME_MAX + 1];
};

typedef void (*reader_record_fn)(void *arg, uint32_t slot_idx, const struct ug_step_record *record);
typedef void (*reader_bytes_fn)(void *arg, uint32_t slot_idx, const struct reader_bytes *bytes);

// Makes the file, which must not exist unless `keep` (a name in /dev/shm for UPGATE_STEPS). Sparse:
// a slot costs memory when it is claimed (its records) and as byte records come. -EINVAL for sizes
// out of range, -EEXIST, -EBUSY (another reader has it), -EBADMSG (no such file of ours), -ENOSPC,
// or what open() and mmap() say.
int reader_create(struct reader **ret_reader, const char *path, const struct reader_opts *opts,
        struct error *err);

// Opens every gate, unlinks the file (unless `keep`), frees. NULL is fine. What is left in the
// rings is lost: drain first.
void reader_free(struct reader *reader);

// Makes the file for readers with `keep`, one behind the other, in other processes than this one:
// between two of them no reader_sweep() takes it away as long as the descriptor that is returned is
// open. The caller unlinks it. -errno.
int reader_reserve(const char *path);

// Removes step files of ours in a directory that a killed harness left; name_prefix picks them.
// Returns how many.
int reader_sweep(const char *directory, const char *name_prefix);

// A process has cut the file short. Reading what is gone raises SIGBUS, which the program must
// survive.
bool reader_truncated(const struct reader *reader);

uint32_t reader_slot_count(const struct reader *reader); // claimed so far, ended ones included
uint32_t reader_refused_count(
        const struct reader *reader); // claims that found no slot or no memory

// -ENOENT when the slot is not claimed. A few loads from shared memory: asked several times a turn.
int reader_slot(const struct reader *reader, uint32_t slot_idx, struct reader_slot *ret_slot);
// False: not claimed, ended or killed; true also when it lives in another pid namespace. Reads
// /proc.
bool reader_slot_alive(const struct reader *reader, uint32_t slot_idx);
int reader_counters(
        const struct reader *reader, uint32_t slot_idx, struct reader_counters *ret_counters);

// Waits until at least `slots` slots have been claimed and every living one is held. 0, -ETIMEDOUT
// at deadline_ns (CLOCK_MONOTONIC), -EINTR when a signal arrived (call again), -ESRCH when slots
// were claimed and no process of them is left.
int reader_wait_held(struct reader *reader, uint32_t slots, int64_t deadline_ns);

// Lets every slot run `steps` more steps from where the foremost one stands, to the same index, so
// that ranks which wait for each other are held at the same step. Also sets it for slots not yet
// claimed.
void reader_grant(struct reader *reader, uint32_t steps);
// No gate any more.
void reader_open_gate(struct reader *reader);

// Steps with a lower index may run; UG_STEP_RUN_FREE: no gate.
uint32_t reader_granted(const struct reader *reader);
// From now on each grant adds 1 to the eventfd `fd`, which stays the caller's; -1: no more. For who
// holds processes that do not wait for the gate themselves (writer.h). Not while another thread
// grants.
void reader_tell(struct reader *reader, int fd);

// What processes saw that the rule they were given does not fit. A copy: entries are names or
// words, each with its end; nothing where the file was cut short.
void reader_looks(const struct reader *reader, struct ug_step_looks *ret_looks);

// Asks all slots for reports (enum ug_request_bit) at the next hold, unclaimed ones too.
void reader_request(struct reader *reader, uint32_t bits);

// A ring of bytes is more than a quarter full: what a process tells next may find no room. A few
// loads a slot.
bool reader_is_filling(const struct reader *reader);

// Takes what a slot has published since the last call, in order, and makes room. Either callback
// may be NULL: that ring is left alone. Returns 0, or -EPROTO when the process scribbled over its
// ring: the rest of that ring is skipped. -ENOENT when not claimed.
int reader_drain(struct reader *reader, uint32_t slot_idx, reader_record_fn on_record,
        reader_bytes_fn on_bytes, void *arg, struct error *err);

#endif
