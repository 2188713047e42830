// SPDX-License-Identifier: Apache-2.0
// How many rows the tables of events have, of a store that is looked at again and again: what was
// counted is not counted again. Its one recording goes on, and forgets its oldest rows where the
// store has a size. One owner thread.
#ifndef UPGATE_REPORTS_STALLS_TALLY_H
#define UPGATE_REPORTS_STALLS_TALLY_H

#include <stdint.h>

#include "common/error.h"
#include "tracer/store/store.h"

enum tally_table { TALLY_GAP, TALLY_SAMPLE, TALLY_LOCK_WAIT, TALLY_HOST_FACT, TALLY_TABLES };

struct stalls_tally;

struct stalls_tally *stalls_tally_new(void);
void stalls_tally_free(struct stalls_tally *tally); // NULL ok
// Of gaps, those that are no samples of short ones.
ERROR_CHECKED int stalls_tally_count(struct stalls_tally *tally, enum tally_table table,
        struct store *store, int64_t *ret, struct error *err);

#endif
