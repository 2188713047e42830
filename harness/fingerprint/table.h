// SPDX-License-Identifier: Apache-2.0
// Fingerprints and their differences for people: plain text, at most `width` columns wide.
#ifndef UPGATE_FINGERPRINT_TABLE_H
#define UPGATE_FINGERPRINT_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct table_opts {
    size_t width; // 0 = 100
    bool color;
    bool all; // every difference and library by itself, nothing summed up
};

// `differences` as from fingerprint_diff(). Those that rarely matter are summed up at the end.
void fingerprint_print_diff(FILE *file, const json_t *differences, size_t noise_count,
        const char *name_a, const char *name_b, const struct table_opts *opts);

// One fingerprint. Libraries without a role and packages are counted, not listed, unless opts->all.
void fingerprint_print(
        FILE *file, const json_t *document, const char *name, const struct table_opts *opts);

#endif
