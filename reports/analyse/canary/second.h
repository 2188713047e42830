// SPDX-License-Identifier: Apache-2.0
// What the arms of a canary did, second by second: the only form in which evidence travels (sources
// write it, the store keeps it, the tests and the report read it), so that a restart reaches the
// same state by reading the rows again.
#ifndef UPGATE_REPORTS_ANALYSE_CANARY_SECOND_H
#define UPGATE_REPORTS_ANALYSE_CANARY_SECOND_H

#include <stddef.h>
#include <stdint.h>

enum canary_arm { CANARY_BASELINE, CANARY_CANDIDATE, CANARY_ARMS };

// Bin i holds latencies from 1 us * 1.02^i up to the next; the first also what is below, the last
// what is above 2.4 h. A quantile is so known within 1 %; counts above a frozen threshold are exact
// where the threshold is a border of a bin.
enum { CANARY_BINS = 1152 };
#define CANARY_BIN_STEP 0.019802627296179712 // ln 1.02

struct canary_second {  // one arm
    uint64_t requests;  // that ended in this second, whatever their end
    uint64_t errors;    // of them: answered 5xx, not answered, or cut off
    uint64_t truncated; // of the errors: a stream that was cut off
    uint64_t wrong;     // of the requests: NaN, or not the baseline's answer (shadow, clients that
                        // check)
    uint64_t rejected; // of the requests, no errors: answered 4xx, or given up by the client before
                       // an answer began
    uint32_t bins[CANARY_BINS]; // latency of those that were answered without an error
};

int canary_bin(double latency_s); // 0 .. CANARY_BINS-1
double canary_bin_low_s(int bin); // its lower border
// Quantile of the latencies, seconds; NaN without any. `q` in 0..1.
double canary_quantile(const struct canary_second *second, double q);
void canary_second_add(struct canary_second *sum, const struct canary_second *more);

// The bins as bytes, for the store: pairs (bins skipped, count) as LEB128. ret holds
// CANARY_PACKED_MAX bytes at most.
enum { CANARY_PACKED_MAX = CANARY_BINS * 7 };
size_t canary_pack(const uint32_t bins[CANARY_BINS], uint8_t ret[CANARY_PACKED_MAX]);
int canary_unpack(const uint8_t *bytes, size_t size, uint32_t bins[CANARY_BINS]); // 0, -EBADMSG

#endif
