// SPDX-License-Identifier: Apache-2.0
// Activity records of any CUPTI from 11.8 to 13.x into records of the spool. The offsets of their
// fields come from layout_table.c, generated from the headers of each CUPTI (make_layout.py): no
// CUPTI header is needed to build.
#ifndef UPGATE_TRACER_INJECT_DECODE_DECODE_H
#define UPGATE_TRACER_INJECT_DECODE_DECODE_H

#include <stddef.h>
#include <stdint.h>

struct cupti_layout; // fields of the records of one version of CUPTI

// The layout for a CUPTI_API_VERSION as cuptiGetVersion gives it; of a version that is newer than
// the table, the newest. *ret_exact = 0 then. NULL: older than 11.8.
const struct cupti_layout *cupti_layout_find(uint32_t api_version, int *ret_exact);
// 11.8, 12.0 and 12.1 all say 18, and only 11.8's kernel records are 8 bytes shorter. Its library
// is the one that has dlvsym(handle, "cuptiGetVersion", "libcupti.so.11.8"); cupti_layout_find
// gives that of 12.1.
const struct cupti_layout *cupti_layout_11_8(void);
// For a layout that is not exact: cuptiActivityGetNextRecord, which knows how long its own records
// are (fields were only ever appended, so their offsets hold). Without it a record that grew would
// end the buffer, or worse. NULL: sizes of the table.
typedef int (*decode_next_record)(uint8_t *buffer, size_t valid_bytes, void **record);
void decode_use_next_record(decode_next_record next);

struct decode_counts {
    uint64_t records, unknown, zero_time;
};

// All records of a completed buffer into the spool; kinds: enum ug_spool_want. Runs on a thread of
// CUPTI's or of the workload's.
void decode_buffer(const struct cupti_layout *layout, const void *buffer, size_t valid_bytes,
        uint32_t kinds, struct decode_counts *counts);
// Bytes of a record by its kind, 0: unknown (then decode_buffer ends the buffer and counts it).
size_t decode_record_bytes(const struct cupti_layout *layout, const void *record);

#endif
