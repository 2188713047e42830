// SPDX-License-Identifier: Apache-2.0
// What is asked and what is answered: a pool of feature lists that requests draw from, and the
// check of an answer: its id, its scores, and whether they are those of the reference side for the
// same features.
#ifndef UPGATE_LOAD_BODIES_H
#define UPGATE_LOAD_BODIES_H

#include <stdint.h>

#include "common/strings.h"
#include "reference_models/load/account.h"

enum bodies_kind { BODIES_DLRM, BODIES_TRANSFORMER }; // numbers and ids; bytes

struct bodies_opts {
    enum bodies_kind kind;
    size_t least, most; // numbers of a request
    double long_share;  // have the most; the others less than half of the way
    size_t pool;        // feature lists
    uint64_t seed;
    const char *reference; // name of a side; NULL: scores are not compared
    double tolerance;      // relative
};

struct bodies;

struct bodies *bodies_new(const struct bodies_opts *opts);
void bodies_free(struct bodies *bodies); // NULL is fine

// The body of request `id`: {"id":…,"features":[…]}, appended.
void bodies_add(const struct bodies *bodies, uint64_t id, struct strbuf *out);
size_t bodies_size(const struct bodies *bodies, uint64_t id); // in bytes, of the same

// The answer to request `id` from `side`. *ret_compared: its scores had a reference.
enum wrong bodies_check(struct bodies *bodies, uint64_t id, const char *side, const char *answer,
        size_t size, bool *ret_compared);

#endif
