// SPDX-License-Identifier: Apache-2.0
// Equal keys get equal numbers: 0, 1, 2, ... Keys are arrays of 64-bit words. Bounded; the caller keeps what
// belongs to a number in an array of its own.
#ifndef UPGATE_TRACER_GPU_INTERN_H
#define UPGATE_TRACER_GPU_INTERN_H

#include <stdbool.h>
#include <stdint.h>

#define INTERN_FULL UINT32_MAX

struct intern;

struct intern *intern_new(uint32_t words, uint32_t max);
void intern_free(struct intern *intern); // NULL ok
uint32_t intern_number(struct intern *intern, const uint64_t *key, bool *ret_new); // INTERN_FULL: `max` are known
bool intern_is(const struct intern *intern, uint32_t number, const uint64_t *key); // has it that number?
uint32_t intern_count(const struct intern *intern);
void intern_clear(struct intern *intern);

#endif
