// SPDX-License-Identifier: Apache-2.0
// The plan: what to run on which sides, how, and how it is judged. Read from YAML (every error with
// file:line:column and the nearest known word), or composed from command-line options. Also written
// as normalised JSON into the store, from where --resume and `upgate gate` read it back.
#ifndef UPGATE_HARNESS_PLAN_H
#define UPGATE_HARNESS_PLAN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "contracts/metrics.h"

// stored by name
enum plan_interleave {
    PLAN_INTERLEAVE_AUTO,
    PLAN_INTERLEAVE_STEPS,
    PLAN_INTERLEAVE_SLICES,
    PLAN_INTERLEAVE_LAUNCHES,
    PLAN_INTERLEAVE_COUNT
};
enum plan_mode { PLAN_MODE_TRAIN, PLAN_MODE_INFER, PLAN_MODE_COMMAND, PLAN_MODE_COUNT };
// AUTO: with 10 gating cells or more
enum plan_confirm {
    PLAN_CONFIRM_AUTO,
    PLAN_CONFIRM_ALWAYS,
    PLAN_CONFIRM_NEVER,
    PLAN_CONFIRM_COUNT
};
enum plan_parity { PLAN_PARITY_FP64_ANCHORED, PLAN_PARITY_OFF, PLAN_PARITY_COUNT };
enum plan_calibrate {       // what to do where no certificate covers cells that pass
    PLAN_CALIBRATE_AUTO,    // run a control at the end
    PLAN_CALIBRATE_REQUIRE, // no certificate: never pass
    PLAN_CALIBRATE_COUNT
};
enum plan_steps_from {     // where the steps of a command come from
    PLAN_STEPS_FROM_AUTO,  // its own calls, else what is found in a Python program
    PLAN_STEPS_FROM_CALLS, // its own calls
    PLAN_STEPS_FROM_OFF,   // nowhere: it is judged as a whole
    PLAN_STEPS_FROM_COUNT
};
enum plan_traced_gpu {
    PLAN_TRACED_GPU_KERNELS,
    PLAN_TRACED_GPU_NODES,
    PLAN_TRACED_GPU_OFF,
    PLAN_TRACED_GPU_COUNT
};
enum plan_engine { // of container images; AUTO: the first that has the image, else the first that
                   // works
    PLAN_ENGINE_AUTO,
    PLAN_ENGINE_PODMAN,
    PLAN_ENGINE_DOCKER,
    PLAN_ENGINE_APPTAINER,
    PLAN_ENGINE_COUNT
};
enum { PLAN_LOOKS_MAX = 16, PLAN_SIDES = 2, PLAN_FLOORS_MAX = 8 };
enum { PLAN_NAME_BYTES_MAX = 200 }; // of a workload: it stands in every line about it

struct plan_env {
    char *name, *value;
};

struct plan_side {
    char *name;
    char *python;  // interpreter; NULL for a native side
    char *models;  // directory of native workloads (dlrm, ...); NULL: upgate's own if no python
    char *cuda;    // toolkit directory; NULL
    char **libs;   // directories, prepended to LD_LIBRARY_PATH; NULL-terminated, may be NULL
    char **prefix; // launch prefix; NULL-terminated, may be NULL
    char *image;   // container image that it runs in; python, models, libs, cuda, workdir are paths
                   // in it. NULL: none
    enum plan_engine engine;
    char **mounts;      // of the image: "SOURCE[:TARGET[:ro]]"; NULL-terminated, may be NULL
    char **engine_args; // words for the engine before the image; NULL-terminated, may be NULL
    struct plan_env *env;
    int env_count;
    char *workdir; // NULL = the current one
};

struct plan_workload {
    char *name;
    char *model;    // "dlrm" …; NULL if command
    char **command; // NULL-terminated, {placeholders} and all; NULL if model
    enum plan_mode mode;
    uint64_t steps;     // of each launch
    uint64_t run_steps; // of a real run, over which the warm-up is spread; 0 = `steps`
    uint64_t ranks;
    double rate_per_s; // infer: open-loop rate; 0 = half the baseline's capacity (pilot)
    uint64_t threads;  // 0 = the workload's default
    char *size;        // NULL = default
    char *variant;     // of a model in Python: the path by which it is run; NULL = eager
    char **args;       // appended to a model's command line; NULL-terminated, may be NULL
    bool anchor;       // the command knows {dtype}: an fp64 launch can be made (models always do)
    enum plan_interleave interleave; // overrides the schedule's; AUTO = as the schedule
    enum plan_steps_from steps_from; // of a command
    char *step;                      // "FILE.py:FUNCTION", whose calls are the steps; NULL
};

struct plan_schedule {
    uint64_t looks[PLAN_LOOKS_MAX]; // rising numbers of pairs
    int look_count;
    uint64_t seed;
    enum plan_interleave interleave;
    int64_t block_ns;
    uint64_t block_steps; // on several nodes: steps of a turn; 0 = found from block_ns
    int64_t handover_ns;  // on several nodes: how long one waits for the others
    uint64_t traced_launches;
    enum plan_traced_gpu traced_gpu; // what of their GPU side is recorded
    int64_t timeout_ns;              // of one launch, active time
    char *cpus;                      // "0-3": pin both sides; NULL = chosen
    uint64_t voids_max;              // pairs that may be repeated, per workload
};

// The least share of perfect scaling that the candidate must have with so many ranks.
struct plan_floor {
    uint64_t ranks;
    double least;
};

struct plan_metric {
    bool present;                              // named in the plan, or gated by default
    bool observe;                              // never gates
    double margin;                             // fraction
    struct plan_floor floors[PLAN_FLOORS_MAX]; // of scaling_efficiency
    int floor_count;
    bool floors_given; // in the file, not by default: a workload must have each of them
};

struct plan_gate {
    double alpha; // one-sided, over all looks
    struct plan_metric metrics[METRIC_COUNT];
    bool metrics_default; // no metrics section: the mode's default metrics are gated
    enum plan_confirm confirm;
    bool fail_on_likely;
    enum plan_parity parity;
    double parity_factor;      // candidate may be this much further from fp64 than the baseline
    double parity_loss_margin; // its loss may be this much off the baseline's of the same seed,
                               // relative
    enum plan_calibrate calibrate;
    double calibration_bound;   // a certificate whose upper bound is above this does not count
    int64_t calibration_age_ns; // older certificates do not count
};

struct plan {
    struct plan_side sides[PLAN_SIDES]; // 0 = a, baseline
    struct plan_workload *workloads;
    int workload_count;
    struct plan_schedule schedule;
    struct plan_gate gate;
    char *path; // of the YAML file, NULL; not in the JSON
};

// All return 0 or -errno; *ret_plan is freed with plan_free. Unset fields get their defaults.
int plan_load(const char *path, struct plan **ret_plan, struct error *err);
// POLICY.yaml: a gate section, bare or under `gate`, or a whole plan.
int plan_load_gate(const char *path, struct plan_gate *ret_gate, struct error *err);
// A side is an interpreter, an environment (with bin/python) or a directory of native models; both
// NULL: upgate's own native models. "image:NAME": a container image. No command: dlrm-train,
// transformer-train, dlrm-infer.
int plan_from_command(const char *baseline, const char *candidate, char **command,
        int command_count, struct plan **ret_plan, struct error *err);
int plan_from_json(const json_t *json, struct plan **ret_plan, struct error *err);
// The rules that plan_load() holds a plan to, of one that options have changed since; without
// positions.
int plan_check_again(const struct plan *plan, struct error *err);
json_t *plan_to_json(const struct plan *plan);           // new reference
json_t *plan_gate_to_json(const struct plan_gate *gate); // new reference
void plan_free(struct plan *plan);
void plan_print_markdown(void *stream); // docs/plan.md, to a FILE *

const char *plan_interleave_name(enum plan_interleave interleave);
int plan_interleave_by_name(const char *name); // -1: none; NULL ok
const char *plan_mode_name(enum plan_mode mode);
// Is this "FILE.py:FUNCTION", "symbol:NAME", "symbol:LIBRARY:NAME", "nvtx:NAME", "nvtx:NAME@DOMAIN"
// or "graph"? Else -EINVAL.
int plan_check_step(const char *step, struct error *err);
bool plan_step_is_symbol(const char *step); // a function of native code; NULL: no
// marked by the library in the program: a range, or replays; NULL: no
bool plan_step_is_injected(const char *step);
// Can this be the name of an image? Else -EINVAL: it goes to an engine as a word, and must not be
// taken for an option of it.
int plan_check_image(const char *name, struct error *err);
// A path of a side as its processes need it, whatever their workdir is: paths of a plan are
// relative to the directory upgate was started in. A program without a slash is looked up in PATH.
// What is of an image is a path in it. The caller frees.
char *plan_side_program(const struct plan_side *side, const char *path);
char *plan_side_directory(const struct plan_side *side, const char *path);
// In a child before exec: the side's variables, and its libraries and toolkit in front of those
// that are there.
void plan_side_set_environment(const struct plan_side *side);
// Does the command say how many steps it shall make?
bool plan_workload_says_steps(const struct plan_workload *workload);
// Is this metric gated for a workload of this mode (with step calls or not)? Applies the defaults.
// What nobody measures there is let off by the gate: only it has seen the launches.
bool plan_metric_gated(
        const struct plan_gate *gate, enum plan_mode mode, bool has_steps, enum metric_id metric);
// Is this a metric that holds such a workload against another one of the same side: of several
// ranks against one, of a compiled one against an eager one?
bool plan_workload_relates(const struct plan_workload *workload, enum metric_id metric);
// That other workload, which differs only in its name and in ranks: 1 or variant: eager. NULL:
// there is none, or none is asked for.
const struct plan_workload *plan_workload_against(
        const struct plan *plan, const struct plan_workload *workload, enum metric_id metric);
// The floor of scaling_efficiency with so many ranks; NAN: none.
double plan_floor_of(const struct plan_gate *gate, uint64_t ranks);
// A metric by which a candidate is seen whose work takes longer: steps, requests, samples or the
// whole.
bool plan_metric_is_time(enum metric_id metric);
// Why no such metric is judged, in words: "gate.metrics names peak_memory only". NULL: one is. The
// caller frees.
char *plan_time_unjudged(const struct plan_gate *gate);

#endif
