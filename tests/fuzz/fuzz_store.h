// SPDX-License-Identifier: Apache-2.0
// A store for targets that only write one.
#ifndef UPGATE_TESTS_FUZZ_FUZZ_STORE_H
#define UPGATE_TESTS_FUZZ_FUZZ_STORE_H

#include "tracer/store/store.h"

// The template, open for writing, in memory: of an input that takes a millisecond the journal of a
// file would be half.
struct store *fuzz_store_open(void);

#endif
