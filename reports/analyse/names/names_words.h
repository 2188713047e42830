// SPDX-License-Identifier: Apache-2.0
// Between the parts of names: what a word of an identifier is worth, and the text that is written.
#ifndef UPGATE_ANALYSE_NAMES_WORDS_H
#define UPGATE_ANALYSE_NAMES_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct names_out { // what does not fit is hashed, so that names that differ late still differ
    char *text;
    size_t len, max;
    uint32_t lost; // hash of what did not fit
    bool cut;
};
void names_put(struct names_out *out, const char *text, size_t len);
void names_end(struct names_out *out, bool hash); // NUL, and the hash of what was cut

bool names_ident(char c); // of an identifier

// Without architectures, versions, hashes and counters of generated code. false: nothing is left of
// it.
bool names_identifier(struct names_out *out, const char *text, size_t len);
// says nothing about what the function does
bool names_namespace_noise(const char *text, size_t len);
// a type that differs between versions, with its arguments
bool names_plumbing(const char *text, size_t len);
// one spelling for a type of several; NULL: as it is
const char *names_type(const char *text, size_t len);
// the whole of NCCL's own kernels; false: none of them
bool names_nccl(struct names_out *out, const char *name);

#endif
