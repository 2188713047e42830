// SPDX-License-Identifier: Apache-2.0
// What the commands of a run read that no fingerprint of a side has: the directory they are started
// in, and the scripts and settings that they name. --resume goes on only where they are the same.
#ifndef UPGATE_HARNESS_RUN_INPUTS_H
#define UPGATE_HARNESS_RUN_INPUTS_H

#include <jansson.h>
#include <stdbool.h>

#include "harness/plan/plan.h"

// {"directory": …, "files": {PATH: size and hash}}; new reference. Files are those among the words
// of commands and prefixes (and behind the = of an option) that say by their name or by #! that
// they are read by an interpreter: others may be what the command writes. Of an image those that
// are mounted. No directory where none matters.
json_t *inputs_describe(const struct plan *plan);
// What of `before` is not so now: "'/job/train.py' was changed; ..."; NULL: all of it is. `before`
// may be NULL: nothing is known. Caller frees.
char *inputs_changes(const json_t *before, const json_t *now);
// Takes those files from `before` that are not the same in `now`: of one launch, which has written
// them itself. True: there were some.
bool inputs_drop_changed(json_t *before, const json_t *now);

#endif
