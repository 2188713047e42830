// SPDX-License-Identifier: Apache-2.0
// Plans that are right: what is read, what is filled in, and that JSON gives the same plan back.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"
#include "harness/plan/plan.h"
#include "tests/unit/runner.h"

static struct error err;

static char *write_text(const char *text, size_t len)
{
    char path[] = "/tmp/test_plan_XXXXXX";
    int fd = mkstemp(path);
    ssize_t written = write(fd, text, len);
    close(fd);
    return written == (ssize_t)len ? xstrdup(path) : NULL;
}

static struct plan *load(const char *text)
{
    struct plan *plan = NULL;
    char *path = write_text(text, strlen(text));
    err = (struct error){0};
    int rc = plan_load(path, &plan, &err);
    CHECK_STR(err.text, "");
    CHECK_INT(rc, 0);
    unlink(path);
    free(path);
    if (!plan)
        exit(1);
    return plan;
}

// INTERFACES.md's example, as it stands there.
static const char example[] =
        "baseline:  {name: torch-1.13, python: /usr/bin/python3, env: {OMP_NUM_THREADS: \"1\"}}\n"
        "candidate: {name: torch-2.x,  python: envs/b/bin/python, cuda: /usr/local/cuda-13.0, prefix: "
        "[]}\n"
        "workloads:\n"
        "  - {name: dlrm-train, model: dlrm, mode: train, steps: 200, ranks: 1}\n"
        "  - {name: mine, command: [\"{python}\", \"train.py\", \"--steps\", \"{steps}\"], steps: "
        "300}\n"
        "schedule: {looks: [10, 14, 20, 28], seed: 7, interleave: auto, block: 20ms, traced_launches: "
        "4, timeout: 10min}\n"
        "gate:\n"
        "  alpha: 0.01\n"
        "  metrics: {step_time: {margin: 2%}, throughput: {margin: 2%}, latency_p99: {margin: 5%},\n"
        "            peak_memory: {margin: 1%}, first_step_time: {observe: true}}\n"
        "  parity: {rule: fp64-anchored}\n";

static const char minimal[] = "baseline: {python: a}\n"
                              "candidate: {python: b}\n"
                              "workloads: [{name: w, model: dlrm}]\n";

static const char everything[] =
        "baseline: &side\n"
        "  name: \"old \\u00e9\"\n"
        "  python: bin/python\n"
        "  env: {A: 1, EMPTY: \"\", YES: yes}\n"
        "  libs: [/a, /b]\n"
        "  prefix: [taskset, -c, \"3\"]\n"
        "  workdir: /tmp\n"
        "candidate:\n"
        "  <<: *side\n"
        "  name: new\n"
        "workloads:\n"
        "  - {name: serve, model: transformer, mode: infer, rate: 200/s, threads: 3, size: small,\n"
        "     args: [--x, \"1\"], interleave: launches}\n"
        "  - name: own\n"
        "    command: [\"./bench\", \"--dtype={dtype}\", '{\"a\": 1}', \"${HOME}\", "
        "\"print(f'{x}')\"]\n"
        "    anchor: true\n"
        "    mode: train\n"
        "schedule: {looks: [9, 60], seed: 9000000000000000000, interleave: slices, block: 1.5ms,\n"
        "           traced_launches: 3, traced_gpu: nodes, timeout: 2h, cpus: \"0-3,8\", voids: 0}\n"
        "gate:\n"
        "  alpha: 1%\n"
        "  confirm: never\n"
        "  fail_on: likely\n"
        "  calibrate: require\n"
        "  calibration: {bound: 1%, age: 7d}\n"
        "  parity: {rule: 'off', factor: 3.5}\n"
        "  metrics: {cpu_time: {margin: 33.3%}, total_time: {}, latency_p50: {observe: true}}\n";

TEST(example_of_the_interface)
{
    struct plan *plan = load(example);
    CHECK_STR(plan->sides[0].name, "torch-1.13");
    CHECK_STR(plan->sides[0].env[0].name, "OMP_NUM_THREADS");
    CHECK_STR(plan->sides[0].env[0].value, "1");
    CHECK_STR(plan->sides[1].cuda, "/usr/local/cuda-13.0");
    CHECK(!plan->sides[1].prefix);
    CHECK_INT(plan->workload_count, 2);
    CHECK_INT(plan->workloads[0].mode, PLAN_MODE_TRAIN);
    CHECK_INT(plan->workloads[1].mode, PLAN_MODE_COMMAND);
    CHECK_INT(plan->workloads[1].steps, 300);
    CHECK_STR(plan->workloads[1].command[3], "{steps}");
    CHECK(!plan->workloads[1].command[4]);
    CHECK_INT(plan->schedule.block_ns, 20000000);
    CHECK_DBL(plan->gate.metrics[METRIC_LATENCY_P99].margin, 0.05, 1e-15);
    CHECK(plan->gate.metrics[METRIC_FIRST_STEP_TIME].observe);
    CHECK(!plan->gate.metrics[METRIC_CPU_TIME].present);
    CHECK(!plan->gate.metrics_default);
    plan_free(plan);
}

TEST(defaults_are_those_of_the_example)
{
    struct plan *plan = load(minimal), *full = load(example);
    CHECK_STR(plan->sides[0].name, "baseline");
    CHECK_STR(plan->sides[1].name, "candidate");
    CHECK_INT(plan->workloads[0].mode, PLAN_MODE_TRAIN);
    CHECK_INT(plan->workloads[0].steps, full->workloads[0].steps);
    CHECK_INT(plan->workloads[0].ranks, 1);
    CHECK_INT(plan->schedule.look_count, full->schedule.look_count);
    for (int i = 0; i < 4; i++)
        CHECK_INT(plan->schedule.looks[i], full->schedule.looks[i]);
    CHECK_INT(plan->schedule.seed, full->schedule.seed);
    CHECK_INT(plan->schedule.block_ns, full->schedule.block_ns);
    CHECK_INT(plan->schedule.traced_launches, 4); // where it is not permitted, a note says so
    CHECK_INT(full->schedule.traced_launches, 4);
    CHECK_INT(full->schedule.traced_gpu, PLAN_TRACED_GPU_KERNELS);
    CHECK_INT(plan->schedule.timeout_ns, full->schedule.timeout_ns);
    CHECK_INT(plan->schedule.voids_max, 4);
    CHECK_DBL(plan->gate.alpha, 0.01, 1e-15);
    CHECK_INT(plan->gate.parity, PLAN_PARITY_FP64_ANCHORED);
    CHECK_DBL(plan->gate.parity_factor, 2, 0);
    CHECK_DBL(plan->gate.calibration_bound, 1, 0);
    CHECK_INT(plan->gate.calibration_age_ns, 30 * 86400 * 1000000000ll);
    CHECK(plan->gate.metrics_default);
    for (int id = 0; id < METRIC_COUNT; id++)
        CHECK_DBL(plan->gate.metrics[id].margin, metric_infos[id].margin_default, 0);
    plan_free(plan);
    plan_free(full);
}

TEST(every_key)
{
    struct plan *plan = load(everything);
    CHECK_STR(plan->sides[0].name, "old \xc3\xa9");
    CHECK_STR(plan->sides[1].name, "new"); // own keys win over merged ones
    CHECK_STR(plan->sides[1].python, "bin/python");
    CHECK_INT(plan->sides[1].env_count, 3);
    CHECK_STR(plan->sides[0].env[1].value, "");
    CHECK_STR(plan->sides[0].env[2].value, "yes");
    CHECK_STR(plan->sides[0].libs[1], "/b");
    CHECK_STR(plan->sides[0].prefix[2], "3");
    CHECK_DBL(plan->workloads[0].rate_per_s, 200, 0);
    CHECK_INT(plan->workloads[0].steps, 1000);
    CHECK_INT(plan->workloads[0].threads, 3);
    CHECK_STR(plan->workloads[0].args[1], "1");
    CHECK_INT(plan->workloads[0].interleave, PLAN_INTERLEAVE_LAUNCHES);
    CHECK(plan->workloads[1].anchor);
    CHECK_INT(plan->schedule.block_ns, 1500000);
    CHECK_INT(plan->schedule.timeout_ns, 7200000000000);
    CHECK_INT(plan->schedule.seed, 9000000000000000000);
    CHECK_STR(plan->schedule.cpus, "0-3,8");
    CHECK_INT(plan->schedule.voids_max, 0);
    CHECK_INT(plan->gate.confirm, PLAN_CONFIRM_NEVER);
    CHECK(plan->gate.fail_on_likely);
    CHECK_INT(plan->gate.calibrate, PLAN_CALIBRATE_REQUIRE);
    CHECK_INT(plan->gate.parity, PLAN_PARITY_OFF);
    CHECK_DBL(plan->gate.parity_factor, 3.5, 0);
    CHECK_DBL(plan->gate.metrics[METRIC_CPU_TIME].margin, 0.333, 1e-12);
    CHECK_DBL(plan->gate.metrics[METRIC_TOTAL_TIME].margin, 0.02, 1e-12);
    plan_free(plan);
}

// load -> JSON -> text -> plan -> JSON: nothing changes, no bit of a double.
static void check_round_trip(const struct plan *plan)
{
    json_t *json = plan_to_json(plan);
    char *text = json_dumps(json, JSON_COMPACT);
    json_t *again = json_loads(text, 0, NULL);
    struct plan *copy = NULL;
    err = (struct error){0};
    CHECK_INT(plan_from_json(again, &copy, &err), 0);
    CHECK_STR(err.text, "");
    if (!copy)
        exit(1);
    json_t *last = plan_to_json(copy);
    char *last_text = json_dumps(last, JSON_COMPACT);
    CHECK(json_equal(json, last));
    CHECK_STR(last_text, text);
    for (int id = 0; id < METRIC_COUNT; id++)
        CHECK(!plan->gate.metrics[id].present ||
                copy->gate.metrics[id].margin == plan->gate.metrics[id].margin);
    CHECK(copy->gate.metrics_default == plan->gate.metrics_default);
    json_decref(json);
    json_decref(again);
    json_decref(last);
    free(text);
    free(last_text);
    plan_free(copy);
}

TEST(json_round_trip)
{
    const char *const texts[] = {example, minimal, everything};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct plan *plan = load(texts[i]);
        check_round_trip(plan);
        plan_free(plan);
    }
}

// Many plans, drawn: every number of the schedule and the gate at values that are awkward in text.
TEST(json_round_trip_of_drawn_plans)
{
    uint64_t state = 42;
    for (int i = 0; i < 200; i++) {
        struct plan *plan = load(i % 2 ? everything : example);
        for (int id = 0; id < METRIC_COUNT; id++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            plan->gate.metrics[id].present = state >> 63;
            plan->gate.metrics[id].observe = (state >> 62) & 1;
            plan->gate.metrics[id].margin = (double)(state >> 11) / 9007199254740992.0;
        }
        // follow from step_time
        for (int id = METRIC_MEAN_STEP_TIME; id <= METRIC_WARM_UP_TIME; id++)
            plan->gate.metrics[id].present |= plan->gate.metrics[METRIC_STEP_TIME].present;
        plan->gate.alpha = (double)(state >> 12) / 9007199254740992.0;
        plan->gate.calibration_bound = 1.0 / (double)((state >> 33) | 1);
        plan->gate.metrics_default = state & (1u << 20);
        plan->schedule.block_ns = (int64_t)(state >> 20);
        plan->schedule.seed = state >> 1;
        plan->schedule.interleave = (enum plan_interleave)((state >> 40) % PLAN_INTERLEAVE_COUNT);
        plan->gate.confirm = (enum plan_confirm)((state >> 44) % PLAN_CONFIRM_COUNT);
        plan->workloads[0].rate_per_s = i % 3 ? 1e6 / (double)((state >> 30) | 1) : 0;
        plan->schedule.look_count = 1 + (int)((state >> 50) % PLAN_LOOKS_MAX);
        for (int k = 0; k < plan->schedule.look_count; k++)
            plan->schedule.looks[k] = 10 + (uint64_t)k;
        check_round_trip(plan);
        plan_free(plan);
    }
}

TEST(json_of_others_is_refused)
{
    static const char *const texts[] = {"{}", "[]", "{\"schema\":\"upgate.plan/2\"}",
            "{\"schema\":\"upgate.plan/1\"}", "{\"schema\":\"upgate.plan/1\",\"workloads\":[]}",
            "{\"schema\":\"upgate.plan/1\",\"workloads\":[{\"name\":7}]}",
            "{\"schema\":\"upgate.plan/1\",\"workloads\":[{\"name\":\"a\"}]}",
            "{\"schema\":\"upgate.plan/"
            "1\",\"baseline\":{\"name\":\"a\"},\"candidate\":{\"name\":\"b\"},"
            "\"workloads\":[{\"name\":\"a\",\"mode\":\"train\"}],\"schedule\":{\"looks\":"
            "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}}",
            ("{\"schema\":\"upgate.plan/1\",\"gate\":{\"metrics\":{\"speed\":{}}},"
             "\"workloads\":[{\"name\":\"a\",\"mode\":\"train\"}]}")};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *json = json_loads(texts[i], 0, NULL);
        struct plan *plan = NULL;
        err = (struct error){0};
        CHECK_INT(plan_from_json(json, &plan, &err), -EBADMSG);
        CHECK_CONTAINS(err.text, "stored plan");
        CHECK(!plan);
        json_decref(json);
    }
}

TEST(forms_of_text_files)
{
    struct plan *plan = load("\xef\xbb\xbf"
                             "baseline: {python: a}\r\ncandidate: {python: b}\r\n"
                             "workloads:\r\n  - {name: w, model: dlrm}\r\n");
    CHECK_STR(plan->sides[1].python, "b");
    CHECK_STR(plan->workloads[0].model, "dlrm");
    plan_free(plan);
    plan = load("--- # one document, marked\nbaseline: {python: a}\ncandidate: {python: b}\n"
                "workloads: [{name: w, model: dlrm}]\n...\n");
    CHECK_INT(plan->workload_count, 1);
    plan_free(plan);
}

TEST(native_and_distributed_models)
{
    struct plan *plan = load("baseline: {models: build/o1}\ncandidate: {name: own}\n"
                             "workloads: [{name: w, model: allreduce}, {name: x, model: dlrm}]\n");
    CHECK_INT(plan->workloads[0].ranks, 2);
    CHECK_STR(plan->sides[0].models, "build/o1");
    CHECK(!plan->sides[1].models);
    plan_free(plan);
    plan = load(
            "baseline: {models: build/o1}\ncandidate: {}\nworkloads: [{name: w, model: dlrm-cached, mode: infer}]\n");
    CHECK_STR(plan->workloads[0].model, "dlrm-cached");
    plan_free(plan);
    plan = load(
            "baseline: {models: build/o1}\ncandidate: {}\nworkloads: [{name: w, model: vision}]\n");
    CHECK_STR(plan->workloads[0].model, "vision");
    plan_free(plan);
    plan = load(
            "baseline: {models: build/o1}\ncandidate: {name: own}\n"
            "workloads: [{name: w, model: ddp}, {name: x, model: fsdp, ranks: 4, mode: infer}, {name: y, model: dlrm-sharded}]\n");
    CHECK_INT(plan->workloads[0].ranks, 2);
    CHECK_INT(plan->workloads[1].ranks, 4);
    CHECK_INT(plan->workloads[2].ranks, 2);
    plan_free(plan);
    plan = load("baseline: {python: a}\ncandidate: {python: b}\n"
                "workloads: [{name: two, model: ddp}, {name: one, model: ddp, ranks: 1}]\n"
                "gate: {metrics: {scaling_efficiency: {}}}\n");
    CHECK_INT(plan->workloads[0].ranks, 2);
    plan_free(plan);
}

TEST(metrics_of_two_workloads)
{
    struct plan *plan = load(
            "baseline: {python: a}\ncandidate: {python: b}\n"
            "workloads: [{name: two, command: [x, \"{ranks}\"], ranks: 2, step: graph},\n"
            "            {name: one, command: [x, \"{ranks}\"], step: graph, steps: 90, interleave: launches}]\n"
            "gate: {metrics: {scaling_efficiency: {}}}\n");
    CHECK(plan_workload_against(plan, &plan->workloads[0], METRIC_SCALING_EFFICIENCY) ==
            &plan->workloads[1]);
    CHECK(!plan_workload_against(plan, &plan->workloads[1], METRIC_SCALING_EFFICIENCY));
    CHECK(!plan_workload_against(plan, &plan->workloads[0], METRIC_MEMORY_SAVED));
    CHECK_DBL(plan_floor_of(&plan->gate, 2), 0.85, 0); // by default
    CHECK_DBL(plan_floor_of(&plan->gate, 4), 0.80, 0);
    CHECK(isnan(plan_floor_of(&plan->gate, 3)));
    CHECK(!plan->gate.metrics[METRIC_SCALING_EFFICIENCY].floors_given);
    check_round_trip(plan);
    plan_free(plan);
    plan = load(
            "baseline: {python: a}\ncandidate: {python: b}\n"
            "workloads: [{name: one, model: ddp, ranks: 1}, {name: c, model: ddp, ranks: 8, variant: compile}, {name: e, model: ddp, ranks: 8}]\n"
            "gate: {metrics: {scaling_efficiency: {margin: 3%, floors: {8: 72.5%}}, memory_saved: {}}}\n");
    CHECK(plan_workload_against(plan, &plan->workloads[1], METRIC_MEMORY_SAVED) ==
            &plan->workloads[2]);
    CHECK(plan_workload_against(plan, &plan->workloads[2], METRIC_SCALING_EFFICIENCY) ==
            &plan->workloads[0]);
    // compiled on one rank is none
    CHECK(!plan_workload_against(plan, &plan->workloads[1], METRIC_SCALING_EFFICIENCY));
    CHECK(!plan_workload_against(plan, &plan->workloads[2], METRIC_MEMORY_SAVED));
    CHECK_DBL(plan_floor_of(&plan->gate, 8), 0.725, 1e-12);
    CHECK(isnan(plan_floor_of(&plan->gate, 2)));
    check_round_trip(plan);
    plan_free(plan);
    plan = load(
            "baseline: {python: a}\ncandidate: {python: b}\nworkloads: [{name: two, model: ddp}, {name: one, model: ddp, ranks: 1}]\n"
            "gate: {metrics: {scaling_efficiency: {floors: {}}}}\n");
    CHECK(isnan(plan_floor_of(&plan->gate, 2)));
    check_round_trip(plan);
    plan_free(plan);
}

TEST(a_stored_plan_without_floors)
{
    struct plan *
            plan = load(
                   "baseline: {python: a}\ncandidate: {python: b}\nworkloads: [{name: two, model: ddp}, {name: one, model: ddp, ranks: 1}]\n"
                   "gate: {metrics: {scaling_efficiency: {}}}\n"),
           *copy = NULL;
    json_t *json = plan_to_json(plan),
           *metrics = json_object_get(json_object_get(json, "gate"), "metrics");
    CHECK_INT(json_object_del(json_object_get(metrics, "scaling_efficiency"), "floors"), 0);
    err = (struct error){0};
    CHECK_INT(plan_from_json(json, &copy, &err), 0);
    CHECK_STR(err.text, "");
    if (copy)
        CHECK(isnan(plan_floor_of(&copy->gate, 2)));
    json_decref(json);
    plan_free(copy);
    plan_free(plan);
}

static int from_command(const char *a, const char *b, char **command, struct plan **ret_plan)
{
    int count = 0;
    while (command && command[count])
        count++;
    err = (struct error){0};
    *ret_plan = NULL;
    return plan_from_command(a, b, command, count, ret_plan, &err);
}

TEST(from_the_command_line)
{
    struct plan *plan;
    CHECK_INT(from_command("py1", "py2", NULL, &plan), 0);
    CHECK_INT(plan->workload_count, 3);
    CHECK_STR(plan->workloads[0].name, "dlrm-train");
    CHECK_STR(plan->workloads[1].name, "transformer-train");
    CHECK_STR(plan->workloads[2].name, "dlrm-infer");
    CHECK_INT(plan->workloads[2].steps, 1000);
    CHECK(plan->gate.metrics_default);
    CHECK_STR(plan->sides[1].python, "py2");
    check_round_trip(plan);
    plan_free(plan);

    CHECK_INT(from_command("py1", "py2", (char *[]){"python3", "src/train.py", "-v", NULL}, &plan),
            0);
    CHECK_STR(plan->workloads[0].name, "train.py");
    CHECK_STR(plan->workloads[0].command[0], "{python}");
    CHECK_STR(plan->workloads[0].command[1], "src/train.py");
    CHECK(!plan->workloads[0].command[3]);
    CHECK_INT(plan->workloads[0].mode, PLAN_MODE_COMMAND);
    plan_free(plan);
    CHECK_INT(from_command("py1", "py2", (char *[]){"train.py", NULL}, &plan), 0);
    CHECK_STR(plan->workloads[0].command[0], "{python}");
    CHECK_STR(plan->workloads[0].command[1], "train.py");
    plan_free(plan);
    CHECK_INT(from_command("py1", "py2", (char *[]){"./bench", "--with={python}", NULL}, &plan), 0);
    CHECK_STR(plan->workloads[0].command[0], "./bench");
    CHECK_STR(plan->workloads[0].name, "bench");
    plan_free(plan);
    CHECK_INT(from_command(NULL, NULL, (char *[]){"./bench", NULL}, &plan), 0);
    CHECK(!plan->sides[0].python && !plan->sides[0].models);
    plan_free(plan);
}

// The interpreter of an image is the one it has, unless the plan names another; where nothing asks
// for one there is none.
TEST(images)
{
    struct plan *plan = NULL;
    char *words[] = {"train.py"};
    struct error why = {0};
    CHECK_INT(plan_from_command("image:reg:5000/x:1", "image:y", words, 1, &plan, &why), 0);
    CHECK_STR(plan->sides[0].image, "reg:5000/x:1");
    CHECK_STR(plan->sides[1].python, "python3");
    CHECK_STR(plan->workloads[0].command[0], "{python}");
    check_round_trip(plan);
    plan_free(plan);
    CHECK_INT(plan_from_command("image:", "image:y", words, 1, &plan, &why), -EINVAL);
    CHECK_INT(plan_from_command("image:-v", "image:y", words, 1, &plan, &why), -EINVAL);
    CHECK_CONTAINS(why.text, "is no name of an image");
}

TEST(directories_as_sides)
{
    char dir[] = "/tmp/test_plan_XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    struct plan *plan;
    CHECK_INT(from_command(dir, dir, NULL, &plan), 0);
    CHECK_STR(plan->sides[0].models, dir);
    plan_free(plan);
    char *bin = xasprintf("%s/bin", dir), *python = xasprintf("%s/bin/python", dir);
    CHECK_INT(mkdir(bin, 0755), 0);
    CHECK_INT(symlink("/usr/bin/python3", python), 0);
    CHECK_INT(from_command(dir, dir, NULL, &plan), 0);
    CHECK_STR(plan->sides[1].python, python);
    CHECK(!plan->sides[1].models);
    plan_free(plan);
    unlink(python);
    rmdir(bin);
    rmdir(dir);
    free(bin);
    free(python);
}

static void check_path(char *(*find)(const struct plan_side *, const char *),
        const struct plan_side *side, const char *path, const char *want)
{
    char *got = find(side, path), *here = getcwd(NULL, 0), *below = xasprintf("%s/%s", here, path);
    CHECK_STR(got, want ? want : below);
    free(got);
    free(here);
    free(below);
}

// A side may start elsewhere: what the plan says relative to here stays what it is.
TEST(paths_of_a_side_are_from_here)
{
    struct plan_side bare = {.name = (char *)"a"},
                     boxed = {.name = (char *)"b", .image = (char *)"train:1"};
    check_path(plan_side_program, &bare, "envs/b/bin/python", NULL);
    check_path(plan_side_program, &bare, "/usr/bin/python3", "/usr/bin/python3");
    check_path(plan_side_program, &bare, "python3", "python3"); // found in PATH
    check_path(plan_side_program, &boxed, "envs/b/bin/python", "envs/b/bin/python");
    check_path(plan_side_directory, &bare, "toolkit", NULL);
    check_path(plan_side_directory, &bare, "/usr/local/cuda", "/usr/local/cuda");
    check_path(plan_side_directory, &boxed, "toolkit", "toolkit");
}

// Its libraries and toolkit come before those of its own variables, and these in the place of ours.
TEST(environment_of_a_side)
{
    struct plan_side side = {.name = (char *)"a",
            .cuda = (char *)"/opt/cuda",
            .libs = (char *[]){"/one", "/two", NULL},
            .env_count = 1,
            .env = &(struct plan_env){.name = (char *)"LD_LIBRARY_PATH", .value = (char *)"/its"}};
    setenv("LD_LIBRARY_PATH", "/ours", 1);
    setenv("PATH", "/bin", 1);
    plan_side_set_environment(&side);
    CHECK_STR(getenv("LD_LIBRARY_PATH"), "/opt/cuda/lib64:/two:/one:/its");
    CHECK_STR(getenv("PATH"), "/opt/cuda/bin:/bin");
    CHECK_STR(getenv("CUDA_HOME"), "/opt/cuda");
}

TEST(bad_command_lines)
{
    struct plan *plan;
    CHECK_INT(from_command("py1", NULL, NULL, &plan), -EINVAL);
    CHECK_CONTAINS(err.text, "'--candidate' is missing");
    CHECK_INT(from_command("", "x", NULL, &plan), -EINVAL);
    CHECK_INT(from_command("a", "b", (char *[]){"", NULL}, &plan), -EINVAL);
    CHECK_INT(from_command("a", "b", (char *[]){"x", "{pyhton}", NULL}, &plan), -EINVAL);
    CHECK_CONTAINS(err.text, "unknown placeholder '{pyhton}'; did you mean '{python}'?");
    CHECK_INT(from_command(NULL, NULL, (char *[]){"{python}", NULL}, &plan), -EINVAL);
    CHECK_CONTAINS(err.text, "baseline has no python");
    CHECK_INT(from_command("a\xff", "b", NULL, &plan), -EINVAL);
    CHECK_CONTAINS(err.text, "not UTF-8");
    CHECK(!plan);
}

static int load_gate(const char *text, struct plan_gate *ret_gate)
{
    char *path = write_text(text, strlen(text));
    err = (struct error){0};
    int rc = plan_load_gate(path, ret_gate, &err);
    unlink(path);
    free(path);
    return rc;
}

TEST(policies)
{
    struct plan_gate gate = {0};
    CHECK_INT(load_gate("alpha: 0.05\nmetrics: {step_time: {margin: 5%}}\n", &gate), 0);
    CHECK_DBL(gate.alpha, 0.05, 1e-15);
    CHECK_DBL(gate.metrics[METRIC_STEP_TIME].margin, 0.05, 1e-15);
    CHECK(!gate.metrics[METRIC_THROUGHPUT].present);
    CHECK_INT(load_gate("gate:\n  confirm: always\n", &gate), 0);
    CHECK_INT(gate.confirm, PLAN_CONFIRM_ALWAYS);
    CHECK(gate.metrics_default);
    CHECK_INT(load_gate(everything, &gate), 0);
    CHECK(gate.fail_on_likely);
    struct plan_gate untouched = gate;
    CHECK_INT(load_gate("aplha: 0.05\n", &gate), -EINVAL);
    CHECK_CONTAINS(err.text, ":1:1: unknown key 'aplha' of the policy; did you mean 'alpha'?");
    CHECK_INT(load_gate("gate: {alpha: 2}\n", &gate), -EINVAL);
    CHECK_CONTAINS(err.text, ":1:15: 'alpha': '2' is out of range");
    CHECK_INT(load_gate("gate: {alpha: 1%}\nschedule: {}\n", &gate), -EINVAL);
    CHECK_CONTAINS(err.text, "a policy is a gate section");
    CHECK_INT(load_gate("metrics: {cpu_time: {observe: true}}\nparity: {rule: off}\n", &gate),
            -EINVAL);
    CHECK_CONTAINS(err.text, ":1:1: nothing would be judged");
    CHECK_INT(load_gate("- 1\n", &gate), -EINVAL);
    CHECK(memcmp(&untouched, &gate, sizeof gate) == 0);
}

TEST(what_is_gated)
{
    struct plan *plan = load(minimal);
    const struct {
        enum plan_mode mode;
        bool has_steps;
        enum metric_id gated[7];
        int count;
    } cases[] = {
            {PLAN_MODE_TRAIN, true,
                    {METRIC_STEP_TIME, METRIC_THROUGHPUT, METRIC_PEAK_MEMORY,
                            METRIC_PEAK_GPU_MEMORY, METRIC_MEAN_STEP_TIME, METRIC_SLOW_STEPS,
                            METRIC_WARM_UP_TIME},
                    7},
            {PLAN_MODE_COMMAND, true,
                    {METRIC_STEP_TIME, METRIC_THROUGHPUT, METRIC_PEAK_MEMORY,
                            METRIC_PEAK_GPU_MEMORY, METRIC_MEAN_STEP_TIME, METRIC_SLOW_STEPS,
                            METRIC_WARM_UP_TIME},
                    7},
            {PLAN_MODE_INFER, true,
                    {METRIC_LATENCY_P50, METRIC_LATENCY_P99, METRIC_PEAK_MEMORY,
                            METRIC_PEAK_GPU_MEMORY, METRIC_MEAN_STEP_TIME, METRIC_SLOW_STEPS,
                            METRIC_WARM_UP_TIME},
                    7},
            {PLAN_MODE_COMMAND, false,
                    {METRIC_TOTAL_TIME, METRIC_CPU_TIME, METRIC_PEAK_MEMORY,
                            METRIC_PEAK_GPU_MEMORY},
                    4},
            {PLAN_MODE_TRAIN, false,
                    {METRIC_TOTAL_TIME, METRIC_CPU_TIME, METRIC_PEAK_MEMORY,
                            METRIC_PEAK_GPU_MEMORY},
                    4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int id = 0; id < METRIC_COUNT; id++) {
            bool want = false;
            for (int k = 0; k < cases[i].count; k++)
                want |= (int)cases[i].gated[k] == id;
            CHECK_INT(plan_metric_gated(
                              &plan->gate, cases[i].mode, cases[i].has_steps, (enum metric_id)id),
                    want);
        }
    }
    plan_free(plan);
    plan = load(example);
    CHECK(plan_metric_gated(&plan->gate, PLAN_MODE_TRAIN, true, METRIC_STEP_TIME));
    CHECK(!plan_metric_gated(&plan->gate, PLAN_MODE_TRAIN, true, METRIC_FIRST_STEP_TIME));
    CHECK(!plan_metric_gated(&plan->gate, PLAN_MODE_COMMAND, false, METRIC_CPU_TIME));
    plan_free(plan);
}

TEST(time_that_nothing_judges)
{
    static const struct {
        const char *policy, *why;
    } cases[] = {
            {"alpha: 1%\n", NULL}, {"metrics: {throughput: {}}\n", NULL},
            {"metrics: {peak_memory: {}, latency_p99: {}}\n", NULL},
            {"metrics: {total_time: {}, step_time: {observe: true}}\n", NULL},
            {"metrics: {peak_memory: {margin: 1%}}\n", "gate.metrics names peak_memory only"},
            {"metrics: {peak_memory: {}, cpu_time: {}, first_step_time: {observe: true}}\n",
                    "gate.metrics names cpu_time, peak_memory only"},
            {"metrics: {peak_memory: {}, step_time: {observe: true}}\n",
                    "gate.metrics only observes step_time, mean_step_time"},
            {"metrics: {cpu_time: {observe: true}}\n", "gate.metrics judges nothing"}, // but parity
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan_gate gate = {0};
        CHECK_INT(load_gate(cases[i].policy, &gate), 0);
        char *why = plan_time_unjudged(&gate);
        CHECK_STR(why ? why : "", cases[i].why ? cases[i].why : "");
        free(why);
    }
}

// Bytes of right plans, changed at random: refused in words or read, and what was read round-trips.
TEST(mutated_plans)
{
    static const char noise[] = "\n :,[]{}&*!|>'\"%@`-?#\t<~0aZ\xc3\xff\\";
    const char *const texts[] = {example, everything};
    char path[] = "/tmp/test_plan_XXXXXX";
    int fd = mkstemp(path), read_count = 0;
    uint64_t state = 1;
    for (int i = 0; i < 3000; i++) {
        char text[4096];
        size_t len = strlen(texts[i % 2]);
        memcpy(text, texts[i % 2], len);
        for (int k = 0; k <= i % 3; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            text[(state >> 33) % len] = noise[(state >> 20) % (sizeof noise - 1)];
        }
        CHECK(pwrite(fd, text, len, 0) == (ssize_t)len && ftruncate(fd, (off_t)len) == 0);
        struct plan *plan = NULL;
        err = (struct error){0};
        int rc = plan_load(path, &plan, &err);
        CHECK(rc == 0 || (rc == -EINVAL && strstr(err.text, path)));
        if (rc == 0) {
            read_count++;
            check_round_trip(plan);
        }
        plan_free(plan);
    }
    CHECK(read_count > 100);
    close(fd);
    unlink(path);
}
