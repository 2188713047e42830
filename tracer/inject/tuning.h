// SPDX-License-Identifier: Apache-2.0
// What only measurements change. From the environment, read once inside cuInit:
//   UPGATE_INJECT_FLUSH_MS=N       between two flushes (1000)
//   UPGATE_INJECT_PER_THREAD=0|1   CUPTI's buffers per thread (1)
//   UPGATE_INJECT_DEVICE_BUFFERS=0|1  0: as many as CUPTI takes by itself (1)
//   UPGATE_INJECT_DEBUG=1          what CUPTI answers, on stderr
#ifndef UPGATE_TRACER_INJECT_TUNING_H
#define UPGATE_TRACER_INJECT_TUNING_H

#include <stdbool.h>
#include <stdint.h>

struct tuning {
    uint64_t flush_ns;
    uint8_t per_thread;
    bool has_device_buffers, is_debug;
};

void tuning_read(void);
const struct tuning *tuning(void);

#endif
