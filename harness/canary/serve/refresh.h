// SPDX-License-Identifier: Apache-2.0
// A thread that looks at the store once a second and leaves fresh answers for the event loop: a
// disk that hangs holds no answer up.
#ifndef UPGATE_HARNESS_CANARY_SERVE_REFRESH_H
#define UPGATE_HARNESS_CANARY_SERVE_REFRESH_H

#include "harness/canary/serve/answers.h"

struct refresh;

// Looks once before it returns. -EINVAL: the file is no store of this rollout. A store that is not
// there yet is no error.
int refresh_start(
        const char *store, const char *name, struct refresh **ret_refresh, struct error *err);
void refresh_stop(struct refresh *refresh); // NULL ok. Waits for the thread, at most as long as one
                                            // look at the store takes

// The newest answers since the last call, now the caller's; NULL: none newer. One caller thread.
struct answers *refresh_take(struct refresh *refresh);

struct verdict_clock refresh_clock(void); // now

#endif
