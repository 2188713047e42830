/*
 * The step protocol for workloads: header only, C17, C++17 and CUDA's C++.
 *
 *     #include "contracts/upgate_step.h"
 *     for (...) { ug_step_begin(); work(); ug_step_loss(loss); ug_step_end(batch_size); }
 *
 * Writes to the shared memory named by UPGATE_STEPS (step_layout.h), which the harness reads.
 * Without UPGATE_STEPS every call is a no-op. Never exits, raises or aborts; no lock and no
 * allocation once the first call has claimed a slot; what does not fit is dropped and counted.
 * Compile with GNU extensions or -D_GNU_SOURCE; link with -pthread where the C library wants it
 * (glibc before 2.34).
 *
 * Threads: requests are told by any thread. A step belongs to the thread that begins it, until that
 * thread ends it. Calls of other threads meanwhile, and steps inside a step, are ignored and
 * counted. A process with several loops of its own marks one of them. fork: the child starts afresh
 * and claims its own slot at its first step.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef UPGATE_CONTRACTS_UPGATE_STEP_H
#define UPGATE_CONTRACTS_UPGATE_STEP_H

#include "contracts/step_claim.h"

/* Waits at the gate while the harness holds us, then marks the begin of a step. */
static inline void ug_step_begin(void)
{
    struct ug_step_state *s = ug_impl_enter();

    if (s != NULL) {
        if (ug_impl_gate_closed(s, s->step)) {
            ug_impl_hold(s);
        }
        s->sched_ns = 0;
        s->begin_ns = ug_impl_now_ns();
    }
}

/* Marks the end of the step, or of the request; samples = items processed in it. */
static inline void ug_step_end(double samples)
{
    struct ug_step_state *s = ug_impl_inside();

    if (s != NULL && !ug_impl_leave_nested(s)) {
        ug_impl_finish(s, samples);
    }
}

/* Inside a step: its loss. NaN and Inf are recorded as they are. */
static inline void ug_step_loss(double loss)
{
    struct ug_step_state *s = ug_impl_inside();

    if (s != NULL) {
        ug_impl_put(s, UG_RECORD_LOSS, s->begin_ns, 0, loss, NULL);
    }
}

/* Inside a step: raw values for the parity gate. data holds count elements, contiguous. Values that
 * are drawn at random take a name that starts with "sampled": their distribution is compared. */
static inline void ug_step_tensor(
        const char *name, enum ug_dtype dtype, const void *data, uint64_t count)
{
    struct ug_step_state *s = ug_impl_inside();

    if (s != NULL) {
        ug_impl_put_bytes(s, UG_BYTES_TENSOR, name, dtype, count, data,
                ug_impl_product(count, ug_dtype_bytes(dtype)));
    }
}

/* Inside a step: a named part of it, nested up to UG_STEP_PHASE_DEPTH_MAX; deeper ones are counted.
 * The name is copied, cut to 23 bytes. Phases still open at the end of the step end with it. */
static inline void ug_step_phase_begin(const char *name)
{
    struct ug_step_state *s = ug_impl_inside();

    if (s != NULL) {
        ug_impl_phase_begin(s, name);
    }
}

static inline void ug_step_phase_end(void)
{
    struct ug_step_state *s = ug_impl_inside();

    if (s != NULL) {
        ug_impl_phase_end(s);
    }
}

/* Open loop: requests arrive as a Poisson process of this rate, the same for the same seed on every
 * machine. The first gap starts at the first ug_request_begin(). A rate of 0, or outside 1e-6 to
 * 1e9, is a closed loop. Call it from the thread that makes the requests, before the first one. */
static inline void ug_request_schedule(double rate_per_s, uint64_t seed)
{
    ug_impl_schedule(&ug_step_state_v2, rate_per_s, seed);
}

/* Waits at the gate, then for the next scheduled arrival; ug_step_end() ends the request. Its
 * latency is end_ns - sched_ns. The clock of the schedule stands still while the harness holds us.
 */
static inline void ug_request_begin(void)
{
    struct ug_step_state *s = ug_impl_enter();

    if (s != NULL) {
        if (ug_impl_gate_closed(s, s->step)) {
            ug_impl_hold(s);
        }
        ug_impl_arrive(s);
    }
}

/* One request of a server, for `upgate canary`; `upgate ab` counts what fails. From its arrival
 * (CLOCK_MONOTONIC) until now. status as HTTP has it, 0: not answered, or cut off. wrong: the
 * server knows that its answer is wrong. From any thread, whether a step is open or not. A server
 * that begins before the file of UPGATE_STEPS is there looks for it again once a second. */
static inline void ug_request_done(uint64_t arrived_ns, uint32_t status, bool wrong)
{
    struct ug_step_state *s = ug_impl_requests();

    if (s != NULL) {
        ug_impl_put(s, UG_RECORD_REQUEST, arrived_ns, ug_impl_now_ns(), (double)status,
                wrong ? "wrong" : NULL);
    }
}

/* fn is called before the end mark of the last step of a block: wait for the device there. */
static inline void ug_step_set_sync(void (*fn)(void *), void *arg)
{
    ug_step_state_v2.sync = fn;
    ug_step_state_v2.sync_arg = arg;
}

/* fn is called at a hold when the harness asks for reports (enum ug_request_bit); it answers with
 * ug_step_text() and ug_step_note(). */
static inline void ug_step_set_report(void (*fn)(uint32_t bits, void *arg), void *arg)
{
    ug_step_state_v2.report = fn;
    ug_step_state_v2.report_arg = arg;
}

/* One number about the launch, such as "compile_time_ns"; inside or outside a step. */
static inline void ug_step_note(const char *name, double value)
{
    int borrowed;
    struct ug_step_state *s = ug_impl_borrow(&borrowed);

    if (s != NULL) {
        ug_impl_put(s, UG_RECORD_NOTE, ug_impl_now_ns(), 0, value, name);
        ug_impl_return(s, borrowed);
    }
}

/* Text for the store (kind UG_BYTES_FINGERPRINT or UG_BYTES_TEXT); inside or outside a step. */
static inline void ug_step_text(
        enum ug_bytes_kind kind, const char *name, const char *text, uint64_t text_bytes)
{
    int borrowed;
    struct ug_step_state *s = ug_impl_borrow(&borrowed);

    if (s != NULL) {
        ug_impl_put_bytes(s, kind, name, UG_DTYPE_NONE, 0, text, text_bytes);
        ug_impl_return(s, borrowed);
    }
}

/* Under a harness? Claims no slot, so that a launcher may ask. */
static inline bool ug_step_active(void)
{
    return ug_impl_active();
}

#endif
