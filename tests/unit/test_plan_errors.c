// SPDX-License-Identifier: Apache-2.0
// Plans that are wrong: each is refused with -EINVAL, at its line and column, with the nearest
// word.
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/strings.h"
#include "harness/plan/plan.h"
#include "tests/unit/runner.h"

static struct error err;

static int load_bytes(const char *text, size_t len)
{
    char path[] = "/tmp/test_plan_XXXXXX";
    int fd = mkstemp(path);
    bool written = write(fd, text, len) == (ssize_t)len;
    close(fd);
    struct plan *plan = NULL;
    err = (struct error){0};
    int rc = plan_load(path, &plan, &err);
    CHECK(written && !plan);
    plan_free(plan);
    unlink(path);
    return rc;
}

struct bad {
    const char *text;  // appended to the head
    const char *where; // ":line:column: "
    const char *what;
};

#define SIDES "baseline: {python: a}\ncandidate: {python: b}\n" // lines 1 and 2
#define ONE "workloads: [{name: w, model: dlrm}]\n"             // line 3
#define HEAD SIDES ONE

static void check_all(const struct bad *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        CHECK_INT(load_bytes(cases[i].text, strlen(cases[i].text)), -EINVAL);
        CHECK_CONTAINS(err.text, cases[i].where);
        CHECK_CONTAINS(err.text, cases[i].what);
    }
}
#define CHECK_ALL(cases) check_all(cases, sizeof cases / sizeof *cases)

TEST(keys)
{
    static const struct bad cases[] = {
            {SIDES "wrokloads: []\n", ":3:1: ",
                    "unknown key 'wrokloads' of the plan; did you mean 'workloads'? Known keys here: "
                    "baseline, "
                    "candidate, workloads, schedule, gate"},
            {HEAD "alpha: 0.1\n",
                    ":4:1: ", "unknown key 'alpha' of the plan; it belongs to 'gate.alpha'."},
            {SIDES "workloads:\n  - {name: w, modle: dlrm}\n", ":4:15: ", "did you mean 'model'?"},
            {HEAD "schedule:\n  lokos: [10]\n", ":5:3: ", "did you mean 'looks'?"},
            {HEAD "gate: {parity: {rle: off}}\n", ":4:17: ", "unknown key 'rle' of parity"},
            {HEAD "gate:\n  zzzzzzz: 1\n",
                    ":5:3: ", "unknown key 'zzzzzzz' of gate. Known keys here: alpha"},
            {HEAD "gate: {metrics_default: true}\n", ":4:8: ", "unknown key 'metrics_default'"},
            {"baseline: {python: a}\n" ONE, ":1:1: ", "the plan lacks the key 'candidate'"},
            {SIDES "workloads:\n  - {model: dlrm}\n", ":4:5: ", "a workload lacks the key 'name'"},
            {HEAD "schedule: {seed: 1}\nschedule: {seed: 2}\n",
                    ":5:1: ", "duplicate key 'schedule'; first in line 4"},
            {SIDES "workloads:\n  - name: w\n    model: dlrm\n    steps: 1\n    steps: 2\n",
                    ":7:5: ", "duplicate key 'steps'; first in line 6"},
            {SIDES ONE "? [a, b]\n: c\n", ":4:3: ", "a key must be a word, not a list"},
    };
    CHECK_ALL(cases);
}

TEST(types_and_values)
{
    static const struct bad cases[] = {
            {"[1, 2]\n", ":1:1: ", "the plan must be a map such as {key: value}, not a list"},
            {"7\n", ":1:1: ", "not '7'"},
            {"baseline: torch\ncandidate: {}\n" ONE, ":1:11: ", "baseline must be a map"},
            {SIDES "workloads: {name: w}\n", ":3:12: ", "'workloads' must be a list"},
            {SIDES "workloads: []\n", ":3:12: ", "'workloads' is an empty list"},
            {SIDES "workloads: [dlrm]\n", ":3:13: ", "a workload must be a map"},
            {SIDES "workloads: [{name: w, command: python train.py}]\n", ":3:32: ",
                    "'command' must be a list such as [\"one\", \"two\"], not 'python train.py'"},
            {SIDES "workloads: [{name: w, command: [a, [b]]}]\n",
                    ":3:36: ", "must be text, not a list"},
            {SIDES "workloads: [{name: [w], model: dlrm}]\n",
                    ":3:20: ", "must be a single value, not a list"},
            {SIDES "workloads: [{name: w, model: dlrm, steps: many}]\n",
                    ":3:43: ", "'steps': 'many' is not a whole number"},
            {SIDES "workloads: [{name: w, model: dlrm, steps: 0}]\n",
                    ":3:43: ", "'steps': '0' is out of range; accepted: 1 to"},
            {SIDES "workloads: [{name: w, model: dlrm, ranks: 0}]\n",
                    ":3:43: ", "'ranks': '0' is out of range"},
            {SIDES "workloads: [{name: w, model: dlrm, steps: -3}]\n",
                    ":3:43: ", "not a whole number"},
            {SIDES "workloads: [{name: w, model: dlrm, mode: trian}]\n",
                    ":3:42: ", "did you mean 'train'?"},
            {SIDES "workloads: [{name: w, command: [x], anchor: maybe}]\n",
                    ":3:45: ", "neither true nor false"},
            {SIDES "workloads: [{name: , model: dlrm}]\n", ":3:20: ", "'name' has no value"},
            {SIDES "workloads: [{name: \"\", model: dlrm}]\n", ":3:20: ", "'name': is empty"},
            {SIDES "workloads: [{name: \"a\\eb\", model: dlrm}]\n", ":3:20: ", "control character"},
            {SIDES "workloads: [{name: \"a\\0b\", model: dlrm}]\n", ":3:20: ", "NUL byte"},
            {SIDES "workloads: [{name: !env w, model: dlrm}]\n", ":3:20: ", "unknown tag '!env'"},
            {HEAD "schedule:\n", ":4:1", "'schedule' has no value"},
            {HEAD "schedule: {block: 20}\n", ":4:19: ", "'20' has no unit; accepted: ns, us, ms"},
            {HEAD "schedule: {block: 20parsec}\n", ":4:19: ", "unknown unit 'parsec'"},
            {HEAD "schedule: {block: 1us}\n", ":4:19: ", "accepted: 1 ms to 1.0 min"},
            {HEAD "schedule: {timeout: 0s}\n", ":4:21: ", "'timeout': '0s' is out of range"},
            {HEAD "schedule: {interleave: step}\n", ":4:24: ", "did you mean 'steps'?"},
            {HEAD "schedule: {cpus: 3-1}\n", ":4:18: ", "no rising list of CPUs"},
            {HEAD "schedule: {cpus: \"1,\"}\n", ":4:18: ", "no rising list of CPUs"},
            {"baseline: {python: a, env: [A=1]}\ncandidate: {python: b}\n" ONE,
                    ":1:28: ", "must be a map such as"},
            {"baseline: {python: a, env: {A: [1]}}\ncandidate: {python: b}\n" ONE,
                    ":1:32: ", "'A' must be text"},
            {"baseline: {python: a, env: {A: }}\ncandidate: {python: b}\n" ONE, ":1:3",
                    "write \"\" for an empty one"},
            {"baseline: {python: a, env: {A B: 1}}\ncandidate: {python: b}\n" ONE,
                    ":1:29: ", "no name of an environment"},
            {"baseline: {python: a, env: {UPGATE_STEPS: x}}\ncandidate: {python: b}\n" ONE,
                    ":1:29: ", "set by upgate"},
    };
    CHECK_ALL(cases);
}

TEST(gate_and_looks)
{
    static const struct bad cases[] = {
            {HEAD "gate: {alpha: 0}\n", ":4:15: ", "accepted: above 0% to 50%"},
            {HEAD "gate:\n  metrics: {step_time: {margin: 0}}\n",
                    ":5:33: ", "'margin': '0' is out of range; accepted: above 0% to 100%"},
            {HEAD "gate:\n  metrics: {step_time: {margin: 0%}}\n", ":5:33: ", "out of range"},
            {HEAD "gate:\n  metrics: {step_time: {margin: -1%}}\n", ":5:33: ", "out of range"},
            {HEAD "gate:\n  metrics: {step_time: {margin: 101%}}\n", ":5:33: ", "out of range"},
            {HEAD "gate:\n  metrics: {step_time: {margin: 2}}\n", ":5:33: ", "did you mean '2%'?"},
            {HEAD "gate:\n  metrics: {step_tiem: {margin: 2%}}\n", ":5:13: ",
                    "unknown metric 'step_tiem'; did you mean 'step_time'? known metrics: total_time, "
                    "step_time"},
            {HEAD "gate:\n  metrics: {step_time: 2%}\n", ":5:24: ", "step_time must be a map"},
            {HEAD "gate:\n  metrics: [step_time]\n", ":5:12: ", "'metrics' must be a map"},
            {HEAD "gate:\n  metrics: {}\n", ":5:12: ", "'metrics' names none"},
            {HEAD "gate:\n  metrics: {cpu_time: {observe: true}}\n  parity: {rule: off}\n",
                    ":5:3: ", "nothing would be judged"},
            {HEAD "gate:\n  metrics:\n    latency_p99: {margin: 5%}\n", ":6:5: ",
                    "no workload of this plan can measure 'latency_p99': it needs one with mode: infer"},
            {HEAD "gate:\n  metrics: {scaling_efficiency: {}}\n", ":5:13: ", "ranks above 1"},
            {SIDES "workloads: [{name: w, model: dlrm, mode: infer, steps: 100}]\n",
                    ":3:56: ", "latency_p99, which is gated, needs 662"},
            {HEAD "schedule: {looks: [10, 10]}\n", ":4:24: ", "looks must rise: 10 after 10"},
            {HEAD "schedule: {looks: [14, 10]}\n", ":4:24: ", "looks must rise"},
            {HEAD "schedule: {looks: [6, 10]}\n", ":4:20: ",
                    "a look at 6 pairs can never decide: alpha 0.01 over 2 looks needs at least 8"},
            {HEAD "schedule: {looks: [8, 9, 10, 11]}\n", ":4:20: ", "needs at least 9"},
            {HEAD "schedule: {looks: []}\n", ":4:19: ", "empty list"},
            {HEAD "schedule: {looks: 10}\n", ":4:19: ", "must be a list such as [10, 14, 20, 28]"},
            {HEAD "schedule: {looks: [ten]}\n", ":4:20: ", "not a whole number"},
            {HEAD "schedule: {looks: [9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25]}\n",
                    ":4:67: ", "more than 16 looks"},
            {HEAD "gate: {calibration: {age: 30}}\n", ":4:27: ", "has no unit"},
            {HEAD "gate: {fail_on: maybe}\n", ":4:17: ", "not one of: certain, likely"},
    };
    CHECK_ALL(cases);
}

#define SCALES \
    SIDES "workloads: [{name: two, model: ddp}, {name: one, model: ddp, ranks: 1}]\n" // line 3
#define SCALING(keys) SCALES "gate: {metrics: {scaling_efficiency: {" keys "}}}\n"

TEST(metrics_of_two_workloads)
{
    static const struct bad cases[] = {
            {SCALING("floors: 85%"),
                    ":4:47: ", "'floors' must be a map such as {2: 85%, 4: 80%}, not '85%'"},
            {SCALING("floors: {1: 85%}"),
                    ":4:48: ", "numbers of ranks as keys: 1 is out of range; accepted: 2 to 1024"},
            {SCALING("floors: {two: 85%}"),
                    ":4:48: ", "numbers of ranks as keys: 'two' is not a whole number"},
            {SCALING("floors: {2: 85}"),
                    ":4:51: ", "'floors': '85' is out of range; accepted: above 0% to 100%"},
            {SCALING("floors: {2: 0%}"), ":4:51: ", "out of range"},
            {SCALING("floors: {2: [85%]}"),
                    ":4:51: ", "a floor is a share such as 85%, not a list"},
            {SCALING("floors: {2: 85%, 02: 80%}"), ":4:56: ", "'floors' has two of 2 ranks"},
            {SCALING("floors: {2: 1%, 3: 1%, 4: 1%, 5: 1%, 6: 1%, 7: 1%, 8: 1%, 9: 1%, 10: 1%}"),
                    ":4:104: ", "more than 8 entries"},
            {SCALING("floors: {2: 85%, 4: 80%}"), ":4:56: ",
                    "there is a floor of 4 ranks, and no workload of this plan has so many"},
            {SCALES "gate: {metrics: {step_time: {floors: {2: 85%}}}}\n",
                    ":4:30: ", "unknown key 'floors' of step_time"},
            {SIDES "workloads: [{name: two, model: ddp}, {name: one, model: ddp, ranks: 1, size: small}]\n"
                   "gate: {metrics: {scaling_efficiency: {}}}\n",
                    ":4:18: ", "a second one that differs only in name and ranks: 1"},
            {SIDES "workloads: [{name: two, command: [x, a], ranks: 2}, {name: one, command: [x, b]}]\n"
                   "gate: {metrics: {scaling_efficiency: {}}}\n",
                    ":4:18: ", "can measure 'scaling_efficiency'"},
            // of one thing by steps of another
            {SIDES "workloads: [{name: two, command: [x], ranks: 2, step: \"nvtx:step\"}, {name: one, command: [x], step: \"nvtx:forward\"}]\n"
                   "gate: {metrics: {scaling_efficiency: {}}}\n",
                    ":4:18: ", "can measure 'scaling_efficiency'"},
            {SIDES "workloads: [{name: two, command: [x], ranks: 2, steps_from: calls}, {name: one, command: [x]}]\n"
                   "gate: {metrics: {scaling_efficiency: {}}}\n",
                    ":4:18: ", "can measure 'scaling_efficiency'"},
            {SIDES "workloads: [{name: two, model: ddp, mode: infer, rate: 20/s}, {name: one, model: ddp, mode: infer, ranks: 1, rate: 10/s}]\n"
                   "gate: {metrics: {scaling_efficiency: {}}}\n",
                    ":4:18: ", "can measure 'scaling_efficiency'"},
            {SIDES "workloads: [{name: w, model: dlrm, variant: compile}]\ngate: {metrics: {memory_saved: {}}}\n",
                    ":4:18: ",
                    "it needs one with variant: compile, and a second one that differs only in name and variant: eager"},
    };
    CHECK_ALL(cases);
}

TEST(workloads)
{
    static const struct bad cases[] = {
            {SIDES "workloads:\n  - {name: w, model: dlrm}\n  - {name: w, model: dlrm}\n",
                    ":5:12: ", "two workloads are named 'w'"},
            {SIDES "workloads: [{name: w, model: dlmr}]\n",
                    ":3:30: ", "unknown model 'dlmr'; did you mean 'dlrm'?"},
            {SIDES "workloads: [{name: w, model: dlrm, variant: complie}]\n",
                    ":3:45: ", "unknown variant 'complie'; did you mean 'compile'?"},
            {SIDES "workloads: [{name: w, model: dlrm, variant: xyzzy}]\n", ":3:45: ",
                    "known variants: eager, compile, compile-reduce-overhead, compile-max-autotune, cuda-graphs"},
            {"baseline: {}\ncandidate: {}\nworkloads: [{name: w, model: dlrm, variant: compile}]\n",
                    ":3:36: ", "'variant' is of models in Python"},
            {SIDES "workloads: [{name: w, command: [x], variant: compile}]\n",
                    ":3:37: ", "'variant' is of models; put it into the command"},
            {SIDES "workloads: [{name: w, model: dlrm, command: [x]}]\n",
                    ":3:36: ", "both 'model' and 'command'"},
            {SIDES "workloads: [{name: w}]\n", ":3:13: ", "neither 'model' nor 'command'"},
            {SIDES "workloads: [{name: w, model: allreduce}]\n",
                    ":3:30: ", "is native only, and baseline has a python"},
            {"baseline: {python: a}\ncandidate: {}\nworkloads: [{name: w, model: transformer-decode}]\n",
                    ":3:30: ", "model 'transformer-decode' needs a python, and candidate has none"},
            {"baseline: {}\ncandidate: {}\nworkloads: [{name: w, model: dlrm-sharded, ranks: 65}]\n",
                    ":3:51: ", "takes 1 to 64 ranks, not 65"},
            {"baseline: {python: a}\ncandidate: {}\nworkloads: [{name: w, model: ddp}]\n",
                    ":3:30: ",
                    "model 'ddp' would be a Python program on one side and a native one"},
            {"baseline: {}\ncandidate: {}\nworkloads: [{name: w, model: fsdp, ranks: 65}]\n",
                    ":3:43: ", "takes 1 to 64 ranks, not 65"},
            {"baseline: {python: a}\ncandidate: {models: b}\n" ONE,
                    ":3:30: ", "Python program on one side"},
            {SIDES "workloads: [{name: w, model: dlrm, ranks: 2}]\n",
                    ":3:43: ", "takes 1 to 1 ranks, not 2"},
            {SIDES "workloads: [{name: w, model: dlrm, mode: command}]\n",
                    ":3:42: ", "is of commands"},
            {SIDES "workloads: [{name: w, model: dlrm, size: tiny}]\n",
                    ":3:42: ", "small, demo, large"},
            {SIDES "workloads: [{name: w, model: dlrm, anchor: true}]\n",
                    ":3:44: ", "'anchor' is of commands"},
            {SIDES "workloads: [{name: w, model: dlrm, rate: 200/s}]\n",
                    ":3:36: ", "it needs mode: infer, not train"},
            {SIDES "workloads: [{name: w, model: dlrm, mode: infer, rate: 0/s}]\n",
                    ":3:55: ", "out of range"},
            {SIDES "workloads: [{name: w, command: [x], size: small}]\n",
                    ":3:37: ", "'size' is of models"},
            {SIDES "workloads: [{name: w, command: [x], anchor: true}]\n",
                    ":3:45: ", "needs '{dtype}'"},
            {SIDES "workloads: [{name: w, command: [x, \"{stepz}\"]}]\n", ":3:36: ",
                    "unknown placeholder '{stepz}'; did you mean '{steps}'? known: {python}"},
            {SIDES "workloads: [{name: w, command: [x, \"--out={outdir}\"]}]\n",
                    ":3:36: ", "unknown placeholder '{outdir}'; known:"},
            {SIDES "workloads: [{name: w, command: [sh, -c, \"run {pyhton} -v\"]}]\n",
                    ":3:41: ", "'{python}'?"},
            {"baseline: {python: a}\ncandidate: {name: b}\nworkloads: [{name: w, command: "
             "[\"{python}\"]}]\n",
                    ":3:33: ", "'{python}' is used, and candidate has no python"},
            {SIDES "workloads: [{name: w, command: [\"\"]}]\n",
                    ":3:32: ", "program of a command is empty"},
            {SIDES "workloads: [{name: w, command: []}]\n",
                    ":3:13: ", "neither 'model' nor 'command'"},
    };
    CHECK_ALL(cases);
}

TEST(files_that_are_no_plans)
{
    static const struct bad cases[] = {
            {HEAD "schedule:\n\tseed: 1\n", ":5:1: ", "a tab; indent with spaces"},
            {HEAD "schedule: {seed: 1\n", ":5:1: ", "not valid YAML: "},
            {HEAD "gate: *nowhere\n", ":4:7: ", "found undefined alias"},
            {HEAD "---\na: 1\n", ":4:1: ", "a second document"},
            {HEAD "gate: {alpha: 0.1, <<: 7}\n", ":4:24: ", "'<<' takes a map"},
            {HEAD "gate: &x {<<: *x}\n", ":4:7: ", "merge keys nested too deep"},
            {HEAD "gate: &x {parity: *x}\n", ":4:11: ", "unknown key 'parity' of parity"},
            {"baseline: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n",
                    ":1:42: ", "nested too deep"},
            {"a: 1\nb: \"\xff\"\n", ":2:5: ", "not UTF-8 text"},
            {"a: \xc3\xa9\nb: \x01\n",
                    ":2:4: ", "not UTF-8 text: control characters are not allowed"},
    };
    CHECK_ALL(cases);
    CHECK_INT(load_bytes("", 0), -EINVAL);
    CHECK_CONTAINS(err.text, "is empty");
    CHECK_INT(load_bytes("# nothing\n", 10), -EINVAL);
    CHECK_CONTAINS(err.text, "is empty");
    CHECK_INT(load_bytes("\x7f"
                         "ELF\0\0",
                      6),
            -EINVAL);
    CHECK_CONTAINS(err.text, "is a binary file");
    struct plan *plan = NULL;
    CHECK_INT(plan_load("/tmp/no/such/plan.yaml", &plan, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "failed to read '/tmp/no/such/plan.yaml': No such file");
    CHECK_INT(plan_load("/tmp", &plan, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "Is a directory");
    CHECK_INT(plan_load("/dev/zero", &plan, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "larger than 1 MiB");
}

// What is of images alone, and what an engine must not be told.
TEST(images)
{
#define IMAGE(more) \
    "baseline: {python: a}\ncandidate: {image: i" more "}\nworkloads: [{name: w, model: dlrm}]\n"
    static const struct bad cases[] = {
            {"baseline: {python: a, mounts: [x]}\ncandidate: {python: b}\n" ONE,
                    ":1:23: ", "'mounts' is of images, and baseline has none"},
            {"baseline: {python: a}\ncandidate: {python: b, engine: podman}\n" ONE,
                    ":2:24: ", "'engine' is of images"},
            {IMAGE(", engine: dokcer"), ":2:31: ", "docker"},
            {"baseline: {image: --privileged}\ncandidate: {image: b}\n" ONE,
                    ":1:19: ", "'--privileged' is no name of an image"},
            {"baseline: {image: \"a b\"}\ncandidate: {image: b}\n" ONE,
                    ":1:19: ", "is no name of an image"},
            {IMAGE(", engine_args: [--user=0, --memory=1g]"),
                    ":2:47: ", "'--memory=1g' cannot be given to the engine"},
            {IMAGE(", engine_args: [\"-d\"]"), ":2:37: ", "'-d' cannot be given"},
            {IMAGE(", models: m"), ":3:", "model 'dlrm' would be a Python program on one side"},
    };
    CHECK_ALL(cases);
#undef IMAGE
}

// A megabyte of anything is refused quickly, and without a deep stack.
TEST(hostile_megabytes)
{
    static const char *const units[] = {
            "[", "{", "- ", "? ", "a: ", "&a ", "a\n", "a: b\n", "%", "\"", "|\n"};
    enum { SIZE = 1 << 20 };
    char *text = xcalloc(SIZE, 1);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t len = strlen(units[i]);
        for (size_t at = 0; at < SIZE; at++)
            text[at] = units[i][at % len];
        CHECK_INT(load_bytes(text, SIZE), -EINVAL);
        CHECK(strlen(err.text) > 0);
    }
    free(text);
}

// Merges of lists of merges of lists: exponential unless it is bounded.
TEST(merge_bomb)
{
    struct strbuf text = {0};
    strbuf_add(&text, "a0: &a0 {k: 1}\n");
    for (int level = 1; level <= 7; level++) {
        strbuf_add(&text, "a%d: &a%d {<<: [", level, level);
        for (int i = 0; i < 200; i++)
            strbuf_add(&text, "%s*a%d", i ? ", " : "", level - 1);
        strbuf_add(&text, "]}\n");
    }
    strbuf_add(&text, "<<: *a7\n");
    CHECK_INT(load_bytes(text.text, text.len), -EINVAL);
    CHECK_CONTAINS(err.text, "merge keys nested too deep");
    strbuf_free(&text);
}
