// SPDX-License-Identifier: Apache-2.0
// The state machine of a rollout, without I/O: (machine, input) -> (machine, action). The
// controller feeds it what it sees, stores what it decides, moves the traffic as it says, and tells
// it what became of the move. Property tests walk it at random.
//
// What holds whatever the input: the candidate's share rises only to the next stage's, after the
// present one has passed with evidence, or back to its stage's after a pause; 100 % is reached
// through every stage; from every state one input leads to the baseline; what has ended (promoted,
// rolled back, aborted, failed) stays so.
#ifndef UPGATE_HARNESS_CANARY_DECIDE_MACHINE_H
#define UPGATE_HARNESS_CANARY_DECIDE_MACHINE_H

#include <stdbool.h>

#include "harness/canary/plan/window.h"

enum rollout_state { // stored by name
    ROLLOUT_WAITING,
    ROLLOUT_RUNNING,
    ROLLOUT_PAUSED,
    ROLLOUT_PROMOTED,
    ROLLOUT_ROLLED_BACK,
    ROLLOUT_ABORTED,
    ROLLOUT_FAILED,
    ROLLOUT_STATES
};
enum rollout_rule { // why a decision was made; stored by name
    RULE_EVIDENCE,
    RULE_TRIPWIRE_ERRORS,
    RULE_TRIPWIRE_UNREACHABLE,
    RULE_TRIPWIRE_WRONG,
    RULE_SOAK,
    RULE_PATIENCE,
    RULE_WINDOW,
    RULE_FREEZE,
    RULE_STALE,
    RULE_CLOCK,
    RULE_PERSON,
    RULE_SIGNAL,
    RULE_PREFLIGHT,
    RULE_TRAFFIC,
    RULE_STORE,
    RULE_RESTART,
    RULE_PROXY, // it was started again, and has its weights again: no decision, an event
    RULE_COUNT
};
enum rollout_verb {
    REQUEST_NONE,
    REQUEST_PAUSE,
    REQUEST_PROMOTE,
    REQUEST_ABORT,
    REQUEST_RESUME,
    REQUEST_COUNT
};
const char *rollout_state_name(enum rollout_state state);
const char *rollout_rule_name(enum rollout_rule rule);
const char *rollout_verb_name(enum rollout_verb verb);
int rollout_state_by_name(const char *name); // -1: none; so the next two
int rollout_rule_by_name(const char *name);
int rollout_verb_by_name(const char *name);
bool rollout_state_ended(enum rollout_state state);

enum { MACHINE_STAGES_MAX = 64 };
#define MACHINE_TOLERANCE \
    0.5 // percent points between what is read and what is expected: a proxy's weights are whole
        // numbers

struct machine_plan {
    int count;
    struct machine_stage {
        double percent; // of the candidate; 0 in a shadow and an A/A stage
        bool aa;
    } stages[MACHINE_STAGES_MAX];
};
struct machine_plan machine_plan_of(const struct rollout *rollout);

struct machine {
    enum rollout_state state;
    enum rollout_rule rule; // why it is in it
    int stage;              // the one that traffic was last read back for; -1: not begun
    double percent;         // of the candidate, as read back
    bool moving;            // decided and stored, not yet carried out and read back: `to`
    struct machine_target {
        enum rollout_state state;
        int stage;
        double percent;
        bool aa;
    } to;
    bool free_window; // a person lets the next move up happen outside the windows
    bool draining;    // requests may still be in flight on the candidate
    bool ending;      // paused, and the controller ends
};

enum machine_moved { MOVED_NOT, MOVED_OK, MOVED_FAILED, MOVED_GAVE_UP };

struct machine_input {
    enum machine_moved moved; // answer to ACTION_MOVE; nothing else is looked at then but `percent`
    double percent;           // as read back
    bool store_failed;        // nothing can be stored any more
    bool traffic_wrong;       // another share than was set, or nobody can say
    bool proxy_silent;        // it does not answer, and still has its time for it
    bool proxy_anew;          // it is another process: it has forgotten what was set
    bool tripped;
    enum rollout_rule tripwire;
    bool cell_failed;                           // a gated metric
    bool fresh;                                 // evidence comes in
    bool soaked, requests_enough, cells_passed; // the stage has passed when all three
    bool impatient;                             // the stage has had its time
    bool waited; // a pause that nobody asked for has lasted long enough
    bool preflight_failed;
    int preflight_exit;
    enum window_answer window;
    enum rollout_verb request;
    int signals;   // SIGTERM, SIGINT so far
    bool lingered; // after the first signal, no second one came
    bool drained;  // nothing in flight on the candidate, or the time for it is over
};

enum machine_action {
    ACTION_NONE,
    ACTION_RECORD,  // a decision without a move: store it and the state
    ACTION_MOVE,    // store the decision (once: `decided`), set machine.to, answer with `moved`
    ACTION_CONFIRM, // a move was carried out: store the state
    ACTION_RESTORE, // set machine.percent again (of an A/A stage: its share), and store that as an
                    // event
    ACTION_END      // end with `exit_code`
};

struct machine_step {
    struct machine next;
    enum machine_action action;
    bool decided; // a row of rollout_decision: from the machine before to this one (or its `to`)
    enum rollout_rule rule; // of the decision
    int exit_code;
};

struct machine machine_fresh(void);
struct machine_step machine_step(const struct machine_plan *plan, const struct machine *machine,
        const struct machine_input *input);
// The controller starts, with what the store says (a new machine: for the first time). percent: as
// read back now; NaN: not known. forgot: the proxy has begun since the controller before lived, so
// it has the weights of its file. If not, somebody has set them.
struct machine_step machine_start(const struct machine_plan *plan, const struct machine *machine,
        double percent, bool forgot, enum window_answer window);

#endif
