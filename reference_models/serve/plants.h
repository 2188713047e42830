// SPDX-License-Identifier: Apache-2.0
// Faults on purpose, for tests of what stands before the server: PLANT_SERVE=KIND[:VALUE][,KIND…].
// The server proper does not know them; it calls the functions here at the points where a fault
// would show.
#ifndef UPGATE_SERVE_PLANTS_H
#define UPGATE_SERVE_PLANTS_H

#include "reference_models/serve/request.h"

#define PLANTS_HELP \
    "errors:P%      of the answers are 500\n" \
    "slow:P%        every answer takes P % longer\n" \
    "hold:TIME      every answer takes so long at least\n" \
    "hold-long:TIME likewise, those to requests with many features\n" \
    "late:TIME      likewise, from a SIGUSR1 on\n" \
    "nan[:P%]       scores are not numbers (100 %)\n" \
    "wrong[:P%]     scores are off by 0.1 (100 %)\n" \
    "stream-cut[:P%] of the answers end in the middle (100 %)\n" \
    "leak[:BYTES]   so much more memory with each request (64K)\n" \
    "crash-after:N  the process aborts at request N\n" \
    "hang-after:N   from request N on nothing is answered\n" \
    "warm:TIME      the warm-up takes so long\n"

struct plants;

// text: the value of PLANT_SERVE, NULL or "" = none. -EINVAL with what is known.
int plants_new(const char *text, struct plants **ret_plants, struct error *err);
void plants_free(struct plants *plants); // NULL is fine; nothing may be held back any more

void plants_warm_up(struct plants *plants);
// A request has come. False: it is answered with request->status and ->text as set here.
bool plants_arrived(struct plants *plants, struct score_request *request);
// Its score is known. `long_count`: as many features are a long request.
void plants_scored(struct plants *plants, struct score_request *request, size_t long_count);
// Calls request->done(), now or when the request is due.
void plants_finish(struct plants *plants, struct score_request *request);
void plants_worker(struct plants *plants); // a worker begins a batch; may never return
bool plants_cuts(const struct plants *plants, const struct score_request *request);

#endif
