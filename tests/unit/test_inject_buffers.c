// SPDX-License-Identifier: Apache-2.0
// Buffers for CUPTI when there is no spool: all of them are discarded, and one that two have is
// left alone.
#include "tests/unit/runner.h"
#include "tracer/inject/cupti/buffers.h"
#include "tracer/inject/inject.h"

bool inject_alive(void)
{
    return false;
}

void inject_wake(void)
{
}

TEST(a_shared_discard_buffer_is_not_zeroed)
{
    enum { DISTINCT = 64 };
    uint8_t *first = NULL, *buffer = NULL;
    size_t size = 0, records_max = 1;
    buffers_requested(&first, &size, &records_max);
    CHECK(size > 0);
    first[0] = 1; // CUPTI writes a record
    for (int i = 1; i < DISTINCT; i++) {
        buffers_requested(&buffer, &size, &records_max);
        CHECK(buffer != first);
    }
    buffers_requested(&buffer, &size, &records_max); // all are taken: one of them again
    CHECK(buffer == first);
    CHECK_INT(first[0], 1);
    buffers_completed(NULL, 0, buffer, size, 0);
    buffers_completed(NULL, 0, first, size, 0);
    buffers_requested(&buffer, &size, &records_max);
    CHECK(buffer == first);
    CHECK_INT(first[0], 0);
}
