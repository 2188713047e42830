// SPDX-License-Identifier: Apache-2.0
// From CUPTI's clock to CLOCK_MONOTONIC, from bracketed samples: median of the slopes between
// samples of a sliding window and median offset, so that single bad samples do not move it. CUPTI's
// clock follows the wall clock: where it jumps a new piece begins. Pure computation.
#ifndef UPGATE_TRACER_GPU_CLOCK_FIT_H
#define UPGATE_TRACER_GPU_CLOCK_FIT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CLOCK_FIT_WINDOW = 32,
    CLOCK_FIT_PIECES = 8, // jumps remembered; older records do not come
};

struct clock_sample {
    int64_t gpu_ns, host_ns; // host: the middle of the bracket
    int64_t width_ns;        // of the bracket
};

struct clock_piece {
    struct clock_sample samples[CLOCK_FIT_WINDOW]; // a ring
    uint32_t count, next;
    int64_t gpu_first_ns, gpu_last_ns;
    int64_t gpu_base_ns, host_base_ns; // host = host_base + (1 + turn) * (gpu - gpu_base)
    double turn;
};

struct clock_fit {
    struct clock_piece pieces[CLOCK_FIT_PIECES]; // the last is in use
    uint32_t piece_count;
    struct clock_sample candidate; // does not fit: a jump, if the next one agrees with it
    bool has_candidate;
    uint32_t wide;                    // brackets too wide to be used, in a row
    uint64_t samples, ignored, jumps; // ignored: too wide a bracket, or contradicted by the next
    uint64_t residuals; // measured: distance of a sample from the fit before it was part of it
    uint32_t histogram[64 * 4]; // of them, quarter octaves, for the median
    int64_t residual_max_ns;
};

// before <= the moment of gpu <= after. False: not used.
bool clock_fit_add(struct clock_fit *fit, uint64_t before_ns, uint64_t gpu_ns, uint64_t after_ns);
bool clock_fit_ready(const struct clock_fit *fit);
// The newest CUPTI time that lies before a sample.
int64_t clock_fit_until_ns(const struct clock_fit *fit);
// Before the first sample and after the last one: extrapolated. Without any sample: gpu_ns itself.
int64_t clock_fit_convert(const struct clock_fit *fit, uint64_t gpu_ns);
int64_t clock_fit_span(const struct clock_fit *fit, int64_t gpu_ns); // a duration
double clock_fit_slope(const struct clock_fit *fit);        // of the last piece; 1 without samples
int64_t clock_fit_residual_ns(const struct clock_fit *fit); // median; -1: none measured

#endif
