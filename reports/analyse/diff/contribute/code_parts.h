// SPDX-License-Identifier: Apache-2.0
// Between the parts that find code which one side alone has: Python functions by how often both
// sides' stacks show them, and runs of operations. Internal to this room. One owner thread.
#ifndef UPGATE_DIFF_CODE_PARTS_H
#define UPGATE_DIFF_CODE_PARTS_H

#include "reports/analyse/diff/contribute/contributions.h"

struct code_function {         // of Python; both sides'
    const char *name, *module; // module NULL: none
    double ticks[2];           // samples that show it, of all windows
    double shared[2];          // of them, on the way to operations that both sides have
    double elsewhere[2];       // samples of the launches' other instants; 0 where nobody looked
    uint16_t depth;            // the least
};

enum { CODE_NAMES_MAX = 64 };

struct code_run { // operations one behind the other that one side alone executes, or more often
    int side;
    uint32_t *groups; // in the order of launches, then waits
    size_t count;
    uint32_t names[CODE_NAMES_MAX]; // normalised, sorted
    size_t name_count;
    // samples on the way to its launches; of the function that was asked for last
    double votes, called;
};

struct code {
    struct contributions *all;
    uint32_t *item_of; // of each group
    uint32_t *owner;   // of each group: index of wholes; COST_NONE
    uint32_t *run_of;  // of each group: its run; COST_NONE
    uint32_t *name_of; // of each group of kernels: its normalised name; COST_NONE
    struct code_function *functions;
    size_t function_count;
    uint32_t *function_of[2]; // of each node of a side: its function; COST_NONE
    uint32_t *callers[2];     // of each of tree->callers: its function
    uint32_t *group_of[2];    // of each node of a side; COST_NONE
    bool *partner[2];         // of each place of a side: the other side has it
    double *order[2]; // of each place of a side: where its operations stand among the launches of a
                      // step, in the mean; NAN: none
    bool *below[2]; // of each node of a side: below the function that was asked for last, and below
                    // no place that both sides have
    struct code_run *runs;
    size_t run_count;
    struct contributions_whole *wholes;
    size_t whole_count;
    size_t asked; // hypotheses
};

// How many samples of the other side show it, wherever they are.
static inline double code_other(const struct code *code, int side, uint32_t function)
{
    return code->functions[function].ticks[!side] + code->functions[function].elsewhere[!side];
}

void code_parts_make(struct code *code);
void code_parts_clear(struct code *code);
// Asks for a function: fills below, and of the runs votes and called.
void code_ask(struct code *code, int side, uint32_t function);
// The outermost phase that a node of a side stands in; NULL.
const char *code_phase(const struct code *code, int side, uint32_t node);
// Do most of the leaves that a side has of a group stand in this phase?
bool code_in_phase(const struct code *code, int side, uint32_t group, const char *phase);
// contributions_compiled.c: code that torch.compile made and that one side alone runs; all of its
// phases becomes a whole, where their change is told from noise.
void code_compiled(struct code *code);
// Is it launched from the function that was asked for last, as far as samples tell?
bool code_run_calls(const struct code_run *run);
bool code_runs_alike(const struct code_run *a, const struct code_run *b);
// What both sides do at another place, too: "forward > layers.*"; NULL.
const char *code_run_repeats(const struct code *code, const struct code_run *run);
// Does the other side run it elsewhere in its launches, and not here, and this side here in place
// of that?
bool code_moved(const struct code *code, int side, uint32_t function);
// The smallest function that nearly all below the one that was asked for last is in: what a
// decorator's function is around, what one of the same file calls, what is new, or moved, below one
// that is not. Else that one itself.
uint32_t code_wrapped(const struct code *code, int side, uint32_t function);
// The outermost function that nearly all below the one that was asked for last is in, and that both
// sides have elsewhere; COST_NONE.
uint32_t code_repeated(const struct code *code, int side, uint32_t function);

#endif
