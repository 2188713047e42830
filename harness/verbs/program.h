// SPDX-License-Identifier: Apache-2.0
// How each program of ours begins and ends: descriptors, signals, the log, variables of the
// environment, what stdout did not take.
#ifndef UPGATE_VERBS_PROGRAM_H
#define UPGATE_VERBS_PROGRAM_H

#include "common/options.h"

void program_begin(void); // once, before any thread
// Parses the command line of a verb, as options_parse, and applies the options in `common`, which
// is in `values`. 1: --help was there, the help is printed, and the verb ends with 0.
int program_parse(const struct verb *verb, int argc, char **argv, void *values,
        const struct options_common *common, struct options_rest *ret_rest, struct error *err);
// Says the error, where rc is one. Returns the exit code of a verb: the error's, else `code`.
int program_judge(int rc, int code, const struct error *err);
// Closes stdout. Returns the exit code: rc, or EXIT_CODE_OPERATIONAL, with a message, where data
// was lost.
int program_end(int rc);

#endif
