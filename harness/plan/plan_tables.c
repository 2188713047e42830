// SPDX-License-Identifier: Apache-2.0
// The keys of a plan: one row each, with default and meaning; docs/plan.md is made from it. What
// has free keys or is a list (env, metrics, looks, workloads) is bound in plan_lists.c.
#include <string.h>

#include "harness/plan/plan_internal.h"
#include "harness/plan/plan_lists.h"

static const char *const plan_traced_gpu_names[] = {"kernels", "nodes", "off", NULL};
static const char *const plan_interleave_names[] = {"auto", "steps", "slices", "launches", NULL};
static const char *const plan_steps_from_names[] = {"auto", "calls", "off", NULL};
static const char *const plan_mode_names[] = {"train", "infer", "command", NULL};
static const char *const plan_engine_names[] = {"auto", "podman", "docker", "apptainer", NULL};
static const char *const plan_confirm_names[] = {"auto", "always", "never", NULL};
static const char *const plan_fail_on_names[] = {"certain", "likely", NULL};
static const char *const plan_parity_names[] = {"fp64-anchored", "off", NULL};
static const char *const plan_calibrate_names[] = {"auto", "require", NULL};

const char *plan_interleave_name(enum plan_interleave interleave)
{
    return plan_interleave_names[interleave];
}

int plan_interleave_by_name(const char *name)
{
    for (int i = 0; name && i < PLAN_INTERLEAVE_COUNT; i++)
        if (strcmp(plan_interleave_names[i], name) == 0)
            return i;
    return -1;
}

const char *plan_mode_name(enum plan_mode mode)
{
    return plan_mode_names[mode];
}

const struct plan_model plan_models[PLAN_MODEL_COUNT] = {
        {"dlrm", true, true, 1, 1, 1},
        {"dlrm-cached", true, true, 1, 1, 1},
        {"dlrm-sharded", true, true, 2, 1, 64},
        {"transformer", true, true, 1, 1, 1},
        {"transformer-decode", true, false, 1, 1, 1},
        {"hstu", true, true, 1, 1, 1},
        {"vision", true, true, 1, 1, 1},
        {"ddp", true, true, 2, 1, 64},
        {"fsdp", true, true, 2, 1, 64},
        {"allreduce", false, true, 2, 2, 64},
};

const char *const plan_variants[PLAN_VARIANT_COUNT] = {
        "eager",
        "compile",
        "compile-reduce-overhead",
        "compile-max-autotune",
        "cuda-graphs",
        "torchscript",
        "export",
        "aotinductor",
        "aotinductor-native",
        "fx-int8",
        "amp-bf16",
        "amp-fp16",
        "torchrec",
};

const struct plan_model *plan_model_find(const char *name)
{
    for (int i = 0; i < PLAN_MODEL_COUNT; i++)
        if (strcmp(plan_models[i].name, name) == 0)
            return &plan_models[i];
    return NULL;
}

// One row a key.
// clang-format off
#define ROW(name, type, member, ...) \
    {.key = name, .kind = type, .offset = offsetof(struct OWNER, member), __VA_ARGS__}
#define END {.kind = FIELD_END}

#define OWNER plan_side
const struct field plan_side_fields[] = {
    ROW("name", FIELD_TEXT, name, .help = "how reports call the side; default: baseline, "
            "candidate"),
    ROW("python", FIELD_TEXT, python,
        .help = "interpreter; models run in it, `{python}` of commands becomes it"),
    ROW("models", FIELD_TEXT, models,
        .help = "directory with native workloads (dlrm, dlrm-cached, dlrm-sharded, transformer, hstu, vision, ddp, fsdp, allreduce), such as "
                "that of those on the GPU; default without `python`: upgate's own"),
    ROW("cuda", FIELD_TEXT, cuda,
        .help = "toolkit directory: its lib64 leads LD_LIBRARY_PATH, its bin PATH, CUDA_HOME is "
                "set"),
    ROW("libs", FIELD_TEXTS, libs, .help = "directories that lead LD_LIBRARY_PATH"),
    ROW("prefix", FIELD_TEXTS, prefix,
        .help = "words before every command of the side, such as [\"taskset\", \"-c\", \"3\"]"),
    ROW("image", FIELD_TEXT, image,
        .help = "container image that the side runs in, such as registry/train:torch2.1; its other keys are then of the "
                "container; see IMAGES.md"),
    ROW("engine", FIELD_CHOICE, engine, .choices = plan_engine_names, .default_text = "auto",
        .help = "what runs the image; `auto`: the first that has it, else the first that works"),
    ROW("mounts", FIELD_TEXTS, mounts,
        .help = "of an image: files and directories that go in, SOURCE, SOURCE:/TARGET or SOURCE:/TARGET:ro"),
    ROW("engine_args", FIELD_TEXTS, engine_args,
        .help = "of an image: more words for the engine's run command, such as [\"--user=0\"]"),
    {.key = "env", .kind = FIELD_CUSTOM, .custom = &plan_env_custom,
     .help = "variables of the side's environment, added to upgate's own; of an image: to the image's"},
    ROW("workdir", FIELD_TEXT, workdir, .help = "where its processes start; default: where upgate "
            "does; of an image: there if it is mounted, else where the image says"),
    END};
#undef OWNER

#define OWNER plan_workload
const struct field plan_workload_fields[] = {
    ROW("name", FIELD_TEXT, name, .required = true, .help = "unique within the plan"),
    ROW("model", FIELD_TEXT, model,
        .help = "reference workload: dlrm, dlrm-cached, dlrm-sharded, transformer, transformer-decode, hstu, vision, ddp, fsdp (sides with a "
                "python), dlrm, dlrm-cached, dlrm-sharded, transformer, hstu, vision, ddp, fsdp, allreduce (native sides); see MODELS.md. "
                "This or `command`"),
    ROW("command", FIELD_TEXTS, command,
        .help = "program and arguments, run without a shell; `{python}` `{steps}` `{seed}` "
                "`{rank}` "
                "`{ranks}` `{rate}` `{dtype}` `{nodes}` `{node_rank}` `{master}` `{port}` are replaced"),
    ROW("mode", FIELD_CHOICE, mode, .choices = plan_mode_names,
        .help = "decides what is gated by default; default: train, of a command: command"),
    ROW("steps", FIELD_UINT, steps, .min = 1, .max = 1e9, .zero_is_absent = true,
        .help = "steps or requests of a launch; default: 200, in mode infer: 1000"),
    ROW("run_steps", FIELD_UINT, run_steps, .min = 1, .max = 1e15, .zero_is_absent = true,
        .help = "steps of a real run: `warm_up_time` is judged as a share of its time; default: `steps`"),
    ROW("ranks", FIELD_UINT, ranks, .min = 1, .max = 1024, .zero_is_absent = true,
        .help = "processes, of a node where there are several; default: 1, ddp, fsdp, dlrm-sharded and allreduce: 2"),
    ROW("rate", FIELD_RATE, rate_per_s, .json = "rate_per_s", .min = 1e-6, .max = 1e9,
        .zero_is_absent = true,
        .help = "mode infer: requests arrive at this rate, whatever the answers (open loop); "
                "default: "
                "half of what the baseline can do, found in a pilot"),
    ROW("threads", FIELD_UINT, threads, .min = 1, .max = 4096, .zero_is_absent = true,
        .help = "threads of a model; default: the model's"),
    ROW("size", FIELD_TEXT, size, .help = "of a model: small, demo or large; default: the model's"),
    ROW("variant", FIELD_TEXT, variant,
        .help = "of a model in Python, the path by which it is run: eager, compile, compile-reduce-overhead, compile-max-autotune, "
                "cuda-graphs, torchscript, export, aotinductor, aotinductor-native, fx-int8, amp-bf16, amp-fp16, torchrec; one that a side does not have "
                "is skipped, and said; default: eager"),
    ROW("args", FIELD_TEXTS, args, .help = "appended to a model's command line"),
    ROW("anchor", FIELD_BOOL, anchor, .default_text = "false",
        .help = "the command knows `{dtype}`: it can be run in float64, as the anchor of the "
                "parity "
                "rule. Models always can"),
    ROW("interleave", FIELD_CHOICE, interleave, .choices = plan_interleave_names,
        .default_text = "auto", .help = "as of the schedule, for this workload; auto: the "
                                        "schedule's"),
    ROW("steps_from", FIELD_CHOICE, steps_from, .choices = plan_steps_from_names,
        .default_text = "auto",
        .help = "of a command: `calls`: its own step calls; `auto`: these, else the steps that are "
                "found in a Python program; `off`: neither, it is judged on total time"),
    ROW("step", FIELD_TEXT, step,
        .help = "of a command: `FILE.py:FUNCTION`, `symbol:NAME` or `symbol:LIBRARY:NAME`, a call of which is a step; `nvtx:NAME` or "
                "`nvtx:NAME@DOMAIN`, a range of NVTX; `graph`: a round of CUDA graphs that are replayed; default: what the "
                "program calls again and again"),
    END};
#undef OWNER

#define OWNER plan_schedule
static const struct field plan_schedule_fields[] = {
    {.key = "looks", .kind = FIELD_CUSTOM, .custom = &plan_looks_custom,
     .help = "numbers of pairs after which is judged; only undecided cells go on; default: "
             "[10, 14, 20, 28]"},
    ROW("seed", FIELD_UINT, seed, .default_text = "7", .min = 0, .max = 9e18,
        .help = "of inputs, orders and everything else that is drawn"),
    ROW("interleave", FIELD_CHOICE, interleave, .choices = plan_interleave_names,
        .default_text = "auto",
        .help = "`steps`: both sides alive, turns at step borders; `slices`: both alive, frozen "
                "in turn; "
                "`launches`: one after the other; `auto`: the first that works"),
    ROW("block", FIELD_DURATION, block_ns, .json = "block_ns", .default_text = "20ms", .min = 1e6,
        .max = 60e9, .help = "length of a turn"),
    ROW("block_steps", FIELD_UINT, block_steps, .min = 2, .max = 4096, .zero_is_absent = true,
        .help = "`upgate node`: steps of a turn, the same on all nodes; its first one is not counted; default: 10 in the first pair, "
                "then as many as `block` holds, 4 at least"),
    ROW("handover", FIELD_DURATION, handover_ns, .json = "handover_ns", .default_text = "30s", .min = 1e9, .max = 3600e9,
        .help = "`upgate node`: a node that is waited for longer, or a turn without a step for longer, voids the pair"),
    ROW("traced_launches", FIELD_UINT, traced_launches, .default_text = "4", .min = 0, .max = 100,
        .help = "launches of each side and workload that are recorded once the verdict stands, for `upgate diff` and "
                "`upgate stalls`; 0: none"),
    ROW("traced_gpu", FIELD_CHOICE, traced_gpu, .choices = plan_traced_gpu_names,
        .default_text = "kernels",
        .help = "what of their GPU side is recorded: `kernels` (a CUDA graph as one launch), `nodes` (each kernel of it), `off`"),
    ROW("timeout", FIELD_DURATION, timeout_ns, .json = "timeout_ns", .default_text = "10min",
        .min = 1e8, .max = 604800e9, .help = "of one launch, time in which it was held not "
                "counted"),
    ROW("cpus", FIELD_TEXT, cpus,
        .help = "both sides are pinned to these, such as `0-3,8`; default: chosen by upgate"),
    ROW("voids", FIELD_UINT, voids_max, .default_text = "4", .min = 0, .max = 1000,
        .help = "pairs of a workload that may be repeated because the machine disturbed them"),
    END};
#undef OWNER

#define OWNER plan_gate
static const struct field plan_parity_fields[] = {
    ROW("rule", FIELD_CHOICE, parity, .choices = plan_parity_names, .default_text = "fp64-anchored",
        .help = "`fp64-anchored`: the candidate's values may be further from a run in float64 "
                "than the "
                "baseline's, by the factor"),
    ROW("factor", FIELD_NUMBER, parity_factor, .default_text = "2", .min = 1, .max = 1000,
        .help = "how much further"),
    ROW("loss_margin", FIELD_FRACTION, parity_loss_margin, .default_text = "1%", .min = 0,
        .max = 1, .above_min = true,
        .help = "the candidate's loss may be off the baseline's of the same seed by this fraction, "
                "or by what the baseline does to itself with one seed where that is more"),
    END};

static const struct field plan_calibration_fields[] = {
    ROW("bound", FIELD_FRACTION, calibration_bound, .default_text = "100%", .min = 0, .max = 1,
        .above_min = true,
        .help = "a certificate counts when its 95 % upper bound on false fails is at most this; one "
                "needs 59 A/A runs of that kind for 5 %"),
    ROW("age", FIELD_DURATION, calibration_age_ns, .json = "age_ns", .default_text = "30d",
        .min = 60e9, .max = 36500.0 * 86400e9, .help = "older certificates do not count"),
    END};

const struct field plan_gate_fields[] = {
    ROW("alpha", FIELD_FRACTION, alpha, .default_text = "0.01", .min = 0, .max = 0.5,
        .above_min = true, .help = "one-sided error rate of a cell, over all looks"),
    {.key = "metrics", .kind = FIELD_CUSTOM, .custom = &plan_metrics_custom,
     .fields = plan_metric_fields, .help = "metric: {margin, observe, floors}; default: what the mode of "
             "a workload is gated on, see below"},
    ROW("metrics_default", FIELD_BOOL, metrics_default, .json_only = true, .default_text = "true",
        .help = "no metrics were named"),
    ROW("confirm", FIELD_CHOICE, confirm, .choices = plan_confirm_names, .default_text = "auto",
        .help = "run failed cells again on fresh pairs; `auto`: with 10 gating cells or more"),
    ROW("fail_on", FIELD_SWITCH, fail_on_likely, .choices = plan_fail_on_names,
        .default_text = "certain",
        .help = "`likely`: after the last look, an estimate beyond the margin fails when the "
                "interval "
                "excludes 0"),
    {.key = "parity", .kind = FIELD_MAP, .fields = plan_parity_fields,
     .help = "the numerical gate"},
    ROW("calibrate", FIELD_CHOICE, calibrate, .choices = plan_calibrate_names,
        .default_text = "auto",
        .help = "where no certificate covers cells that pass: `auto` runs a control at the end, "
                "`require` never passes"),
    {.key = "calibration", .kind = FIELD_MAP, .fields = plan_calibration_fields,
     .help = "which certificates count"},
    END};
#undef OWNER

#define OWNER plan
const struct field plan_fields[] = {
    ROW("baseline", FIELD_MAP, sides[0], .required = true, .fields = plan_side_fields,
        .help = "the side that is trusted"),
    ROW("candidate", FIELD_MAP, sides[1], .required = true, .fields = plan_side_fields,
        .help = "the side that is judged; same keys"),
    {.key = "workloads", .kind = FIELD_CUSTOM, .required = true, .custom = &plan_workloads_custom,
     .fields = plan_workload_fields, .help = "what is run under both"},
    ROW("schedule", FIELD_MAP, schedule, .fields = plan_schedule_fields, .help = "how it is run"),
    ROW("gate", FIELD_MAP, gate, .fields = plan_gate_fields, .help = "how it is judged"),
    END};
#undef OWNER
// clang-format on
