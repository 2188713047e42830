// SPDX-License-Identifier: Apache-2.0
// Numbers with units, in both directions. Parsers take the whole string, return 0 or -EINVAL (with
// a sentence that shows what is accepted) or -ERANGE, and leave *ret untouched on failure.
#ifndef UPGATE_COMMON_UNITS_H
#define UPGATE_COMMON_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

// 20ms 10min 1.5s 2h 300us 5ns
int unit_parse_duration(const char *text, int64_t *ret_ns, struct error *err);
int unit_parse_bytes(const char *text, uint64_t *ret_bytes, struct error *err); // 64M 1.5GiB 4096
// 2% -> 0.02, 0.02 -> 0.02
int unit_parse_fraction(const char *text, double *ret, struct error *err);
int unit_parse_rate(const char *text, double *ret_per_s, struct error *err); // 200/s 200 30/min
int unit_parse_uint(const char *text, uint64_t min, uint64_t max, uint64_t *ret, struct error *err);
int unit_parse_double(const char *text, double min, double max, double *ret, struct error *err);

// Into buf (32 bytes are enough for each); return buf. NAN prints "-".
char *unit_format_ns(char *buf, size_t size, double ns);       // "12.3 ms"
char *unit_format_bytes(char *buf, size_t size, double bytes); // "1.5 GiB"
// 0.051: "+5.1 %"; what rounds to 0 has no sign: "0.0 %"; "-" unless finite
char *unit_format_change(char *buf, size_t size, double fraction);

// How long a traced step took against an untraced one, the same words in the log and the notes of
// `upgate ab`, in `upgate diff` and in the page: "a traced step took 1.040 (a) and 1.050 (b) times
// as long as an untraced one"; a side that is NAN is "unknown". what: "step", "request", "launch".
// Returns text.
char *unit_format_traced(char *text, size_t size, const char *what, const double ratio[2]);

#endif
