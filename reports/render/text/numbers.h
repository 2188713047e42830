// SPDX-License-Identifier: Apache-2.0
// Numbers as text, the same in every form of a report. Buffers are filled and returned;
// NUMBERS_SIZE is enough for each. What was not measured is "-".
#ifndef UPGATE_REPORTS_NUMBERS_H
#define UPGATE_REPORTS_NUMBERS_H

#include <stdint.h>

enum { NUMBERS_SIZE = 64 };

// A buffer of its own wherever it stands, to the end of the block: strbuf_add(out, "%s",
// numbers_count(count, NUMBERS_BUFFER)).
#define NUMBERS_BUFFER ((char[NUMBERS_SIZE]){0})

char *numbers_print(char *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *numbers_fraction(double fraction, char *buf); // 0.0124 -> "1.2 %": what was measured
char *numbers_setting(double fraction, char *buf);  // 0.0125 -> "1.25 %": what was set, of which a
                                                    // rounded number would be another one
char *numbers_change(double fraction, char *buf);   // "+5.1 %", as unit_format_change
char *numbers_error(double error, char *buf);       // "1.2e-06"
char *numbers_count(int64_t count, char *buf);      // 28400 -> "28,400"
char *numbers_ns(double ns, char *buf);             // "137 ms"
char *numbers_delta(double ns, char *buf);          // "+1.2 ms"; what rounds to nothing is "0"
char *numbers_duration(int64_t ns, char *buf);      // "24 min 00 s", "1 h 05 min"
char *numbers_time(int64_t wall_ns, char *buf);     // "2026-11-21 12:00 UTC"

#endif
