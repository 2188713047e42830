// SPDX-License-Identifier: Apache-2.0
// The buffers that CUPTI fills: a fixed pool of zeroed ones, mapped once and never unmapped,
// because CUPTI may hold one for as long as the process lives. A few discard buffers for when none
// is free: what is written there is lost, and counted; NULL is not returned, which only CUPTI
// of 12.9 and later survives.
#ifndef UPGATE_TRACER_INJECT_CUPTI_BUFFERS_H
#define UPGATE_TRACER_INJECT_CUPTI_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

#include "tracer/inject/decode/decode.h"

int buffers_create(void); // once a process, later calls do nothing; 0 or -errno
// How completed buffers are read from now on; layout NULL: not at all.
void buffers_decode_with(const struct cupti_layout *layout);
// The two callbacks of CUPTI. Any thread; neither waits, allocates or takes a lock.
void buffers_requested(uint8_t **buffer, size_t *size, size_t *records_max);
void buffers_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);
// Zeroes what came back and takes memory for the next ones; control thread.
void buffers_refresh(void);
// Off: the memory of all that are not CUPTI's goes back to the system; control thread.
void buffers_release(void);

#endif
