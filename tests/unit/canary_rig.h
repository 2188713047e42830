// SPDX-License-Identifier: Apache-2.0
// Whole rollouts in a small world (canary_world.h): a plan and a real store in a directory of their
// own, the controller in a process of its own, so that it can be killed.
#ifndef UPGATE_TESTS_CANARY_RIG_H
#define UPGATE_TESTS_CANARY_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/canary/decide/machine.h"
#include "tests/unit/canary_world.h"

#define NS 1000000000
#define STAGES \
    "stages: [{percent: 10, soak: 3s, warm_up: 1s}, {percent: 50, soak: 3s, warm_up: 1s}, {percent: 100, soak: 3s, warm_up: 1s}]\n"
#define LAST_RULE "SELECT rule FROM rollout_decision ORDER BY id DESC LIMIT 1"

extern char rig_dir[64], rig_store[96];

void rig_plan(const char *more);  // of the directory: traffic and sources, and what more says
void rig_begin(const char *more); // a new world and directory, and the plan
void rig_end(void);

enum { KILLED = -9, REFUSED = 100 };
// The exit code of a controller; KILLED; REFUSED + errno where it was not begun. CANARY_TEST_LOG in
// the environment: it says what it does.
int rig_run_with(int64_t wait_ns, bool anew);
int rig_run(void);

// Of the store; the text is valid until the next call.
int64_t rig_int(const char *sql);
char *rig_text(const char *sql);
void rig_ask(enum rollout_verb verb); // as `upgate canary pause` does, by "ann"

#endif
