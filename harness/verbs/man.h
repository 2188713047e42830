// SPDX-License-Identifier: Apache-2.0
// Manual pages, section 1, made from the option tables: what --help says, for man.
#ifndef UPGATE_VERBS_MAN_H
#define UPGATE_VERBS_MAN_H

#include "common/error.h"
#include "common/options.h"

struct man_program {
    const char *summary;             // what the program does, in sentences
    const char *exit_codes;          // lines that begin with a number
    const struct verb *const *verbs; // NULL-terminated
};

// upgate.1, and upgate-VERB.1 for each verb, into a directory that exists.
int man_write(const struct man_program *program, const char *directory, struct error *err);
// upgate-VERB.1 of a verb that is a program of its own.
int man_write_alone(const struct verb *verb, const char *directory, struct error *err);

#endif
