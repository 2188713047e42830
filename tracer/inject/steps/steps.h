// SPDX-License-Identifier: Apache-2.0
// Steps of a program that marks none, by what repeats in it: ranges of NVTX (ranges.c), replays of
// CUDA graphs (graphs.c). The rule is what UPGATE_STEP says ("nvtx:NAME", "graph"), and they are
// said in the file that UPGATE_STEPS_INJECT names by the step protocol, as if the program did;
// without these nothing here does anything. The program's threads call what is here, and wait at
// the gate in it.
//
// What no rule fits is said in the same file (struct ug_step_looks), by which the harness says why
// there are no steps.
#ifndef UPGATE_TRACER_INJECT_STEPS_STEPS_H
#define UPGATE_TRACER_INJECT_STEPS_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "contracts/step_range.h"
#include "tracer/inject/cupti/cupti_abi.h"

enum steps_rule { STEPS_NONE, STEPS_NVTX, STEPS_GRAPH };

// From the environment, read once; any thread.
enum steps_rule steps_rule(void);
const struct step_range *steps_range(void); // of STEPS_NVTX

// Are steps looked for in this process still? False: it has no rule, or has given up, or has made a
// million of them.
bool steps_on(void);
// Waits at the gate, and begins a step. One thread at a time. `found`: what they are, in words;
// said at the first.
void steps_begin(const char *found);
// Ends it: from any thread. The device has done its work where the gate holds the process next.
void steps_end(void);
// What they are is another now.
void steps_are(const char *found);
// The program does what the rule does not fit: its steps are none. In words without an end.
void steps_give_up(const char *why);

// A process has come to where its steps would be seen: it uses NVTX, or CUDA.
void steps_look(void);
// A name that the rule does not match, until one does; domain NULL: the default one.
void steps_saw(const char *name, const char *domain);
// Words about this process, for when there are no steps.
void steps_why(const char *why);

// Who watches captures of graphs by callbacks of CUPTI (graphs.c): only then is the device waited
// for, as a wait in the middle of a capture would end it.
void steps_watch(bool is_watching);
void steps_captures(int change);

// In the child of a fork: its steps are its own.
void steps_child(void);

// --- ranges.c ---
// The functions of a module that uses NVTX become ours. export_table: as NVTX gives it.
void ranges_install(const void *(*export_table)(uint32_t id));
void ranges_child(void);

// --- graphs.c ---
// Asks for the calls that it wants to see.
void graphs_enable(const struct cupti *cupti, void *subscriber);
// From the subscriber's callback, of the driver's domain.
void graphs_callback(uint32_t cbid, const struct cupti_callback_data *call);
void graphs_child(void);

#endif
