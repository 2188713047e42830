// SPDX-License-Identifier: Apache-2.0
// What the verbs below `upgate canary` do, once their options are read. Each returns the exit code
// and has said what was wrong.
#ifndef UPGATE_VERBS_CANARY_VERBS_H
#define UPGATE_VERBS_CANARY_VERBS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/options.h"

struct canary_values {
    int64_t wait_ns;  // run: -1 where it was not given
    int64_t taken_ns; // pause …: how long the controller may take to hear of it, and to move the
                      // traffic
    const char *reason, *name;
    const char *listen, *token_file, *tls_cert, *tls_key;
    bool anew, watch, no_token, open_metrics;
    struct options_common common;
};

// path: ROLLOUT.yaml, or a rollout's store.
int canary_verb_plan(const char *path, const struct canary_values *values);
int canary_verb_run(const char *path, const struct canary_values *values, int argc, char **argv);
int canary_verb_status(const char *path, const struct canary_values *values);
// pause, promote, abort, resume
int canary_verb_ask(const char *path, const char *verb, const struct canary_values *values);
int canary_verb_report(const char *path, const struct canary_values *values);
int canary_verb_serve(const char *path, const struct canary_values *values);

// The store that belongs to `path`; the caller frees. *ret_plan (NULL ok): the plan, where path is
// one; rollout_free().
struct rollout;
int canary_store_of(
        const char *path, char **ret_store, struct rollout **ret_plan, struct error *err);
char *canary_who(void); // "ann@host"; the caller frees

#endif
