// SPDX-License-Identifier: Apache-2.0
// No timestamp callback: with one, CUPTI 12.6 to 13.0 writes kernels without times and loses others
// (PyTorch 192021). The fit is the reader's (tracer/gpu).
#include "tracer/inject/cupti/clock.h"

#include "tracer/inject/inject.h"
#include "tracer/inject/spool/spool_writer.h"

#define BURST 5

void clock_sample(const struct cupti *cupti)
{
    struct ug_rec_clock best = {.head = {.type = UG_REC_CLOCK, .bytes = sizeof(best)}};
    uint64_t width = UINT64_MAX;
    for (int i = 0; i < BURST; i++) {
        uint64_t gpu = 0;
        uint64_t before = inject_now_ns();
        if (cupti->get_timestamp(&gpu) != CUPTI_OK || gpu == 0)
            continue;
        uint64_t after = inject_now_ns();
        if (after - before < width) {
            width = after - before;
            best.before_ns = before;
            best.gpu_ns = gpu;
            best.after_ns = after;
        }
    }
    struct ug_rec_clock *record =
            width == UINT64_MAX ? NULL : spool_reserve(UG_PRODUCER_OTHER, sizeof(*record));
    if (record == NULL)
        return;
    *record = best;
    spool_publish(sizeof(*record));
}
