// SPDX-License-Identifier: Apache-2.0
#include "tracer/inject/tuning.h"

#include <stdlib.h>

// 1 s between flushes: a flush stops every thread of the workload that writes a record meanwhile.
static struct tuning values = {
        .flush_ns = 1000000000ull, .per_thread = 1, .has_device_buffers = true};

void tuning_read(void)
{
    const char *text = getenv("UPGATE_INJECT_FLUSH_MS");
    if (text != NULL && atoi(text) > 0)
        values.flush_ns = (uint64_t)atoi(text) * 1000000;
    text = getenv("UPGATE_INJECT_PER_THREAD");
    if (text != NULL)
        values.per_thread = atoi(text) != 0;
    text = getenv("UPGATE_INJECT_DEVICE_BUFFERS");
    values.has_device_buffers = text == NULL || atoi(text) != 0;
    values.is_debug = getenv("UPGATE_INJECT_DEBUG") != NULL;
}

const struct tuning *tuning(void)
{
    return &values;
}
