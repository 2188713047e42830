// SPDX-License-Identifier: Apache-2.0
// The fake CUPTI's activity buffers: asked for, filled, given back, on whose thread, and in which
// order.
#ifndef UPGATE_TESTS_MOCK_FAKE_BUFFERS_H
#define UPGATE_TESTS_MOCK_FAKE_BUFFERS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tests/mock/cupti_records.h"

typedef void (*fake_requested_fn)(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void (*fake_completed_fn)(
        void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);

struct fake_behaviour { // of the environment, see fake.h
    int worker, shuffle, zero, unknown, drop, held, per_thread, hoard;
    double ppm;
    int64_t offset_ns;
    const char *fail;
};
extern struct fake_behaviour fake_behaviour;

// The layouts of the version this library plays.
const struct cupti_record_layout *fake_layout(enum cupti_record record);

void fake_buffers_kinds(int on); // how many kinds are on
int fake_buffers_register(fake_requested_fn requested, fake_completed_fn completed);
void fake_buffers_per_thread(int on);
void fake_buffers_zeroed(int on); // the client promises zeroed buffers: look
// A record, whole; is_host: of the calling thread's own buffer where there are such.
void fake_buffers_append(const void *record, size_t bytes, int is_host);
void fake_buffers_flush(void);     // all of it, completed when this returns
size_t fake_buffers_dropped(void); // since it was last asked
void fake_buffers_reset(void); // nobody is registered; what was not given back stays where it is
int fake_buffers_registered(void);
int fake_buffers_next(uint8_t *buffer, size_t valid, void **record); // cuptiActivityGetNextRecord

// Something the library must not do: kept for the report.
void fake_wrong(const char *what);
void fake_buffers_report(FILE *out); // fields of a JSON object

#endif
