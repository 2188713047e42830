// SPDX-License-Identifier: Apache-2.0
// The plan: loads it from YAML, composes it from a command line, writes it to JSON and reads it
// back. Keys and their defaults: plan_tables.c. Relative paths are kept as they are written and
// mean what they mean in the user's shell: relative to the current directory, not to the plan's.
#include "harness/plan/plan.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/containers/vector.h"
#include "common/environment.h"
#include "common/strings.h"
#include "contracts/step_range.h"
#include "harness/plan/plan_internal.h"

#define PLAN_SCHEMA "upgate.plan/1"

static const uint64_t plan_looks_default[] = {10, 14, 20, 28};

// Gated when a plan names no metrics, by mode; without step calls there is no step to measure.
bool plan_metric_gated(
        const struct plan_gate *gate, enum plan_mode mode, bool has_steps, enum metric_id metric)
{
    if (!gate->metrics_default)
        return gate->metrics[metric].present && !gate->metrics[metric].observe;
    if (metric == METRIC_PEAK_MEMORY || metric == METRIC_PEAK_GPU_MEMORY)
        return true;
    if (!has_steps)
        return metric == METRIC_TOTAL_TIME || metric == METRIC_CPU_TIME;
    if (metric == METRIC_MEAN_STEP_TIME || metric == METRIC_SLOW_STEPS ||
            metric == METRIC_WARM_UP_TIME)
        return true;
    if (mode == PLAN_MODE_INFER)
        return metric == METRIC_LATENCY_P50 || metric == METRIC_LATENCY_P99;
    return metric == METRIC_STEP_TIME || metric == METRIC_THROUGHPUT;
}

bool plan_metric_is_time(enum metric_id metric)
{
    static const enum metric_id times[] = {METRIC_TOTAL_TIME, METRIC_STEP_TIME,
            METRIC_MEAN_STEP_TIME, METRIC_THROUGHPUT, METRIC_LATENCY_P50, METRIC_LATENCY_P99};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (times[i] == metric)
            return true;
    return false;
}

char *plan_time_unjudged(const struct plan_gate *gate)
{
    struct strbuf gated = {0}, observed = {0};
    bool judged = gate->metrics_default; // the default metrics of every mode have one of time
    for (int id = 0; id < METRIC_COUNT; id++) {
        const struct plan_metric *metric = &gate->metrics[id];
        bool of_time = plan_metric_is_time((enum metric_id)id);
        judged = judged || (of_time && metric->present && !metric->observe);
        if (metric->present && !metric->observe)
            strbuf_add(&gated, "%s%s", gated.len ? ", " : "", metric_infos[id].name);
        else if (metric->present && of_time)
            strbuf_add(&observed, "%s%s", observed.len ? ", " : "", metric_infos[id].name);
    }
    char *why = judged     ? NULL
            : observed.len ? xasprintf("gate.metrics only observes %s", observed.text)
            : gated.len    ? xasprintf("gate.metrics names %s only", gated.text)
                           : xstrdup("gate.metrics judges nothing");
    strbuf_free(&gated);
    strbuf_free(&observed);
    return why;
}

bool plan_step_is_symbol(const char *step)
{
    return step && strncmp(step, "symbol:", 7) == 0;
}

bool plan_step_is_injected(const char *step)
{
    return step &&
            (strncmp(step, UG_RANGE_RULE, strlen(UG_RANGE_RULE)) == 0 ||
                    strcmp(step, UG_GRAPH_RULE) == 0);
}

// The one colon that is none of C++'s "::"; NULL: there is none.
static const char *symbol_colon(const char *text)
{
    for (; *text; text++)
        if (text[0] == ':' && text[1] == ':')
            text++;
        else if (*text == ':')
            return text;
    return NULL;
}

static int check_symbol(const char *step, struct error *err)
{
    const char *rest = step + 7, *colon = symbol_colon(rest), *name = colon ? colon + 1 : rest;
    const char *paren = strchr(name, '(');
    if (!*name || colon == rest || symbol_colon(name))
        return error_set(err, -EINVAL,
                "'%s' is no symbol:NAME or symbol:LIBRARY:NAME, such as symbol:process_batch or "
                "symbol:libserve.so:Server::handle",
                step);
    // "(anonymous namespace)::f" and "Model::operator()" are names.
    if (paren && strncmp(paren, "(anonymous namespace)", 21) != 0 &&
            (paren < name + 8 || strncmp(paren - 8, "operator", 8) != 0))
        return error_set(err, -EINVAL, "'%s': a function is named without its parameters: %.*s",
                step, (int)(paren - step), step);
    return 0;
}

static int check_range(const char *step, struct error *err)
{
    struct step_range range;
    const char *why = step_range_parse(step + strlen(UG_RANGE_RULE), &range);
    return why
            ? error_set(err, -EINVAL,
                      "'%s' is no nvtx:NAME or nvtx:NAME@DOMAIN, such as nvtx:train_step, nvtx:iteration* or "
                      "nvtx:step@trainer: %s",
                      step, why)
            : 0;
}

int plan_check_step(const char *step, struct error *err)
{
    const char *colon = strrchr(step, ':');
    size_t file = colon ? (size_t)(colon - step) : 0;
    if (plan_step_is_symbol(step))
        return check_symbol(step, err);
    if (plan_step_is_injected(step))
        return strcmp(step, UG_GRAPH_RULE) == 0 ? 0 : check_range(step, err);
    if (strcmp(step, "nccl") == 0 || strncmp(step, "nccl:", 5) == 0)
        return error_set(err, -EINVAL,
                "'%s': a sequence of collectives does not say where a step ends, as equal layers repeat within one; "
                "name a range around it: nvtx:NAME",
                step);
    if (strncmp(step, UG_GRAPH_RULE ":", strlen(UG_GRAPH_RULE) + 1) == 0)
        return error_set(err, -EINVAL,
                "'%s': graphs have no names; it is 'graph', a round of those that are replayed",
                step);
    if (file < 4 || strncmp(colon - 3, ".py", 3) != 0 || !colon[1])
        return error_set(err, -EINVAL,
                "'%s' is no FILE.py:FUNCTION, no symbol:NAME, no nvtx:NAME and not 'graph', such as trainer.py:train_one, "
                "trainer.py:Trainer.train_one, symbol:process_batch or nvtx:train_step",
                step);
    return 0;
}

int plan_check_image(const char *name, struct error *err)
{
    bool bad = !*name || *name == '-';
    for (const char *at = name; *at && !bad; at++)
        bad = isspace((unsigned char)*at) || iscntrl((unsigned char)*at);
    return bad ? error_set(err, -EINVAL,
                         "'%s' is no name of an image; such as registry/train:torch2.1", name)
               : 0;
}

// Not resolved further: a venv's interpreter is a symbolic link, and its environment is found by
// the link's place.
char *plan_side_directory(const struct plan_side *side, const char *path)
{
    char dir[PATH_MAX];
    if (side->image || path[0] == '/' || !getcwd(dir, sizeof dir))
        return xstrdup(path);
    return xasprintf("%s/%s", dir, path);
}

char *plan_side_program(const struct plan_side *side, const char *path)
{
    return strchr(path, '/') ? plan_side_directory(side, path) : xstrdup(path);
}

void plan_side_set_environment(const struct plan_side *side)
{
    for (int i = 0; i < side->env_count; i++)
        setenv(side->env[i].name, side->env[i].value, 1);
    for (char **dir = side->libs; dir && *dir; dir++) {
        char *path = plan_side_directory(side, *dir);
        environment_put_first("LD_LIBRARY_PATH", path);
        free(path);
    }
    if (side->cuda) {
        char *cuda = plan_side_directory(side, side->cuda);
        char *lib = xasprintf("%s/lib64", cuda), *bin = xasprintf("%s/bin", cuda);
        environment_put_first("LD_LIBRARY_PATH", lib);
        environment_put_first("PATH", bin);
        setenv("CUDA_HOME", cuda, 1);
        free(lib);
        free(bin);
        free(cuda);
    }
}

bool plan_workload_says_steps(const struct plan_workload *workload)
{
    for (char **word = workload->command; word && *word; word++)
        if (strstr(*word, "{steps}"))
            return true;
    return workload->model != NULL;
}

// The typical step alone says nothing of a step in a hundred, nor of the first ones: who gates it
// gates the sums too, by the same margin, unless the plan says otherwise of them.
void plan_complete_metrics(struct plan_gate *gate)
{
    static const enum metric_id sums[] = {
            METRIC_MEAN_STEP_TIME, METRIC_SLOW_STEPS, METRIC_WARM_UP_TIME};
    const struct plan_metric *typical = &gate->metrics[METRIC_STEP_TIME];
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        if (typical->present && !gate->metrics[sums[i]].present)
            gate->metrics[sums[i]] = *typical;
}

static void plan_set_metric_defaults(struct plan_gate *gate)
{
    static const struct plan_floor floors[] = {{2, 0.85}, {4, 0.80}};
    struct plan_metric *scaling = &gate->metrics[METRIC_SCALING_EFFICIENCY];
    for (int id = 0; id < METRIC_COUNT; id++) {
        struct plan_metric *metric = &gate->metrics[id];
        metric->margin = metric_infos[id].margin_default;
        metric->present = plan_metric_gated(gate, PLAN_MODE_TRAIN, true, (enum metric_id)id) ||
                plan_metric_gated(gate, PLAN_MODE_INFER, true, (enum metric_id)id) ||
                plan_metric_gated(gate, PLAN_MODE_COMMAND, false, (enum metric_id)id);
    }
    memcpy(scaling->floors, floors, sizeof floors);
    scaling->floor_count = sizeof floors / sizeof *floors;
}

static void plan_gate_init(struct plan_gate *gate)
{
    *gate = (struct plan_gate){0};
    schema_set_defaults(plan_gate_fields, gate);
    plan_set_metric_defaults(gate);
}

static struct plan *plan_new(void)
{
    struct plan *plan = xcalloc(1, sizeof *plan);
    schema_set_defaults(plan_fields, plan);
    plan_gate_init(&plan->gate);
    plan->schedule.look_count = sizeof plan_looks_default / sizeof *plan_looks_default;
    memcpy(plan->schedule.looks, plan_looks_default, sizeof plan_looks_default);
    return plan;
}

void plan_free(struct plan *plan)
{
    if (!plan)
        return;
    for (int side = 0; side < PLAN_SIDES; side++) {
        for (int i = 0; i < plan->sides[side].env_count; i++) {
            free(plan->sides[side].env[i].name);
            free(plan->sides[side].env[i].value);
        }
        free(plan->sides[side].env);
    }
    for (int i = 0; i < plan->workload_count; i++)
        schema_free(plan_workload_fields, &plan->workloads[i]);
    free(plan->workloads);
    free(plan->path);
    schema_free(plan_fields, plan); // texts of sides and schedule
    free(plan);
}

// Does anything of the plan run in the interpreter of a side?
static bool plan_wants_python(const struct plan *plan)
{
    bool wants = false;
    for (int i = 0; i < plan->workload_count; i++) {
        wants |= plan->workloads[i].model != NULL;
        for (char **word = plan->workloads[i].command; word && *word; word++)
            wants |= strstr(*word, "{python}") != NULL;
    }
    return wants;
}

// Everything that no key set: per side, model and mode.
static void plan_normalise(struct plan *plan)
{
    static const char *const names[PLAN_SIDES] = {"baseline", "candidate"};
    bool wants_python = plan_wants_python(plan);
    for (int i = 0; i < PLAN_SIDES; i++) {
        struct plan_side *side = &plan->sides[i];
        if (!side->name)
            side->name = xstrdup(names[i]);
        if (side->image && !side->python && !side->models && wants_python)
            side->python = xstrdup("python3"); // the image's
    }
    for (int i = 0; i < plan->workload_count; i++) {
        struct plan_workload *workload = &plan->workloads[i];
        const struct plan_model *model = workload->model ? plan_model_find(workload->model) : NULL;
        if (workload->mode == PLAN_MODE_COUNT)
            workload->mode = workload->command ? PLAN_MODE_COMMAND : PLAN_MODE_TRAIN;
        if (!workload->steps)
            workload->steps =
                    workload->mode == PLAN_MODE_INFER ? PLAN_STEPS_INFER : PLAN_STEPS_TRAIN;
        if (!workload->ranks)
            workload->ranks = model ? model->ranks_default : 1;
    }
}

// --- YAML
// -------------------------------------------------------------------------------------------

static int plan_bind(struct yaml_file *file, struct plan *plan, struct error *err)
{
    struct schema schema = {.file = file, .root = plan_fields, .err = err};
    int rc = schema_bind(&schema, yaml_file_root(file), plan_fields, "the plan", plan);
    if (rc)
        return rc;
    plan_normalise(plan);
    return plan_check(plan, file, err);
}

int plan_load(const char *path, struct plan **ret_plan, struct error *err)
{
    struct yaml_file file;
    struct plan *plan = plan_new();
    plan->path = xstrdup(path);
    int rc = yaml_file_open(path, &file, err);
    if (!rc)
        rc = plan_bind(&file, plan, err);
    yaml_file_close(&file);
    if (rc)
        plan_free(plan);
    else
        *ret_plan = plan;
    return rc;
}

// A policy is a gate section, bare or under its key; a whole plan will do as well.
int plan_load_gate(const char *path, struct plan_gate *ret_gate, struct error *err)
{
    struct yaml_file file;
    struct plan_gate gate;
    plan_gate_init(&gate);
    int rc = yaml_file_open(path, &file, err);
    struct schema schema = {.file = &file, .root = plan_gate_fields, .err = err};
    yaml_node_t *root = rc ? NULL : yaml_file_root(&file);
    if (root && yaml_file_find(&file, "workloads", false) != root) {
        struct plan *plan = plan_new();
        rc = plan_bind(&file, plan, err);
        gate = plan->gate;
        plan_free(plan);
    } else if (root) {
        yaml_node_t *section = yaml_file_find(&file, "gate", false);
        const char *prefix = section == root ? "" : "gate.";
        if (section != root && root->data.mapping.pairs.top - root->data.mapping.pairs.start > 1)
            rc = yaml_file_error(
                    &file, root, err, "a policy is a gate section, or a plan with workloads");
        if (!rc)
            rc = schema_bind(&schema, section, plan_gate_fields, "the policy", &gate);
        if (!rc)
            rc = plan_check_gate(&gate, &file, prefix, err);
    }
    yaml_file_close(&file);
    if (!rc)
        *ret_gate = gate;
    return rc;
}

// --- command line
// -------------------------------------------------------------------------------------

static bool plan_is_directory(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

// An interpreter, an environment (a directory with bin/python), a directory of native workloads, or
// "image:NAME".
static void plan_side_from_path(struct plan_side *side, const char *path)
{
    static const char image[] = "image:";
    if (strncmp(path, image, sizeof image - 1) == 0) {
        side->image = xstrdup(path + sizeof image - 1);
        side->python = xstrdup("python3");
        return;
    }
    char *python = xasprintf("%s/bin/python", path);
    if (!plan_is_directory(path))
        side->python = xstrdup(path);
    else if (access(python, F_OK) == 0)
        side->python = xstrdup(python);
    else
        side->models = xstrdup(path);
    free(python);
}

static void plan_add_model(struct plan *plan, const char *model, enum plan_mode mode)
{
    vector_push(plan->workloads, plan->workload_count,
            (struct plan_workload){.name = xasprintf("%s-%s", model, plan_mode_name(mode)),
                    .model = xstrdup(model),
                    .mode = mode});
}

static const char *plan_basename(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static bool plan_is_python_name(const char *program)
{
    const char *name = plan_basename(program);
    if (strcmp(name, "{python}") == 0)
        return true;
    return strncmp(name, "python", 6) == 0 && strspn(name + 6, "0123456789.") == strlen(name + 6);
}

// "train.py" for `python train.py`; names go to terminals and files, so odd ones are left out.
static char *plan_command_name(char **command, int count)
{
    const char *word = command[0];
    if (count > 1 && command[1][0] != '-' && plan_is_python_name(word))
        word = command[1];
    const char *name = word[0] == '-' ? "command" : plan_basename(word);
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return xstrdup("command");
    return xstrdup(*name ? name : "command");
}

// `python train.py`, `train.py` and `-m train` mean the side's interpreter when the sides have one.
static void plan_add_command(struct plan *plan, char **command, int count)
{
    size_t len = strlen(command[0]);
    bool python = plan->sides[0].python && plan->sides[1].python;
    bool names_python = python && plan_is_python_name(command[0]);
    bool is_script = python && len > 3 && strcmp(command[0] + len - 3, ".py") == 0;
    // -c CODE, -m MODULE: no program has such a name
    bool is_option = python && command[0][0] == '-';
    char **words = xcalloc((size_t)count + 2, sizeof *words);
    int at = 0;
    if (names_python || is_script || is_option)
        words[at++] = xstrdup("{python}");
    for (int i = names_python; i < count; i++)
        words[at++] = xstrdup(command[i]);
    vector_push(plan->workloads, plan->workload_count,
            (struct plan_workload){.name = plan_command_name(command, count),
                    .command = words,
                    .mode = PLAN_MODE_COMMAND});
}

static int plan_check_utf8(const char *text, struct error *err)
{
    json_t *json = json_string(text); // NULL for what is not UTF-8
    if (!json)
        return error_set(err, -EINVAL, "'%s' is not UTF-8 text", text);
    json_decref(json);
    return 0;
}

int plan_from_command(const char *baseline, const char *candidate, char **command,
        int command_count, struct plan **ret_plan, struct error *err)
{
    int rc = 0;
    if (!baseline != !candidate)
        return error_set(err, -EINVAL, "only one side is named; '--%s' is missing",
                baseline ? "candidate" : "baseline");
    if (baseline && (!*baseline || !*candidate))
        return error_set(err, -EINVAL, "a side is named by an empty text");
    if (baseline)
        rc = plan_check_utf8(baseline, err);
    if (baseline && !rc)
        rc = plan_check_utf8(candidate, err);
    for (int i = 0; i < command_count && !rc; i++)
        rc = plan_check_utf8(command[i], err);
    if (!rc && command_count > 0 && !*command[0])
        rc = error_set(err, -EINVAL, "the program of the command is empty");
    if (rc)
        return rc;
    struct plan *plan = plan_new();
    if (baseline) {
        plan_side_from_path(&plan->sides[0], baseline);
        plan_side_from_path(&plan->sides[1], candidate);
    }
    if (command_count > 0) {
        plan_add_command(plan, command, command_count);
    } else {
        plan_add_model(plan, "dlrm", PLAN_MODE_TRAIN);
        plan_add_model(plan, "transformer", PLAN_MODE_TRAIN);
        plan_add_model(plan, "dlrm", PLAN_MODE_INFER);
    }
    plan_normalise(plan);
    rc = plan_check(plan, NULL, err);
    if (rc)
        plan_free(plan);
    else
        *ret_plan = plan;
    return rc;
}

int plan_check_again(const struct plan *plan, struct error *err)
{
    return plan_check(plan, NULL, err);
}

// --- JSON
// -------------------------------------------------------------------------------------------

json_t *plan_to_json(const struct plan *plan)
{
    json_t *json = json_object(), *fields = schema_to_json(plan_fields, plan);
    json_object_set_new(json, "schema", json_string(PLAN_SCHEMA));
    json_object_update(json, fields);
    json_decref(fields);
    return json;
}

int plan_from_json(const json_t *json, struct plan **ret_plan, struct error *err)
{
    const char *schema = json_string_value(json_object_get(json, "schema"));
    if (!schema || strcmp(schema, PLAN_SCHEMA) != 0)
        return error_set(err, -EBADMSG, "the stored plan is '%s', not '" PLAN_SCHEMA "'",
                schema ? schema : "not a document of upgate");
    struct plan *plan = plan_new();
    int rc = schema_from_json(json, plan_fields, plan, err);
    if (!rc && !plan->workload_count)
        rc = error_set(err, -EBADMSG, "workloads: none");
    for (int i = 0; i < plan->workload_count && !rc; i++)
        if (!plan->workloads[i].name || plan->workloads[i].mode >= PLAN_MODE_COUNT)
            rc = error_set(err, -EBADMSG, "workloads: one without name or mode");
    for (int side = 0; side < PLAN_SIDES && !rc; side++)
        if (!plan->sides[side].name)
            rc = error_set(err, -EBADMSG, "a side has no name");
    if (rc) {
        error_prefix(err, "failed to read the stored plan");
        plan_free(plan);
        return rc;
    }
    *ret_plan = plan;
    return 0;
}

json_t *plan_gate_to_json(const struct plan_gate *gate)
{
    return schema_to_json(plan_gate_fields, gate);
}
