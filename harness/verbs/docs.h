// SPDX-License-Identifier: Apache-2.0
// What is made from the option tables of all verbs: the pages in docs/.
#ifndef UPGATE_VERBS_DOCS_H
#define UPGATE_VERBS_DOCS_H

#include "common/error.h"
#include "common/options.h"

// upgate-VERB.md for each verb, plan.md, rollout.md, environment.md and stall-causes.md, into a
// directory that exists. `verbs` is NULL-terminated.
int docs_write(const struct verb *const *verbs, const char *directory, struct error *err);

#endif
