// SPDX-License-Identifier: Apache-2.0
// The rollout plan: loads it from YAML, writes it to JSON and reads it back, says what differs
// between two. Keys and defaults: rollout_tables.c. Relative paths are kept as written: relative to
// the directory upgate is started in.
#include "harness/canary/plan/rollout.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "harness/canary/plan/rollout_internal.h"

enum { ROLLOUT_PATIENCE_SOAKS = 10 };
#define ROLLOUT_PATIENCE_MIN_NS 600000000000

static struct rollout *rollout_new(void)
{
    struct rollout *rollout = xcalloc(1, sizeof *rollout);
    schema_set_defaults(rollout_fields, rollout);
    rollout_metrics_default(&rollout->rules);
    return rollout;
}

void rollout_free(struct rollout *rollout)
{
    if (!rollout)
        return;
    rollout_free_lists(rollout);
    free(rollout->path);
    schema_free(rollout_fields, rollout);
    free(rollout);
}

// Logs, files and the step protocol have a place for it; a Prometheus tells what it is asked. A
// shadow stage compares for itself.
bool rollout_tells_wrong(const struct rollout *rollout)
{
    bool tells = false;
    for (int i = 0; i < rollout->source_count; i++)
        tells |= rollout->sources[i].kind != ROLLOUT_PROMETHEUS ||
                rollout->sources[i].queries[CANARY_CANDIDATE].wrong;
    for (int i = 0; i < rollout->stage_count; i++)
        tells |= rollout->stages[i].mirror > 0;
    return tells;
}

// What nothing can tell is not judged, rather than passed.
static void rollout_ungate(struct rollout *rollout, enum canary_metric metric)
{
    rollout->rules.metrics[metric] = (struct canary_rule){.margin = NAN, .limit = NAN};
}

// What no key set.
static void rollout_normalise(struct rollout *rollout)
{
    for (int i = 0; i < rollout->source_count && !rollout->metrics_named; i++) {
        const struct rollout_queries *queries = rollout->sources[i].queries;
        if (rollout->sources[i].kind == ROLLOUT_PROMETHEUS && queries[0].requests &&
                !(queries[0].rejected && queries[1].rejected))
            rollout_ungate(rollout, CANARY_REJECTED_RATE);
    }
    if (!rollout->metrics_named && !rollout_tells_wrong(rollout))
        rollout_ungate(rollout, CANARY_WRONG_ANSWERS);
    if (!rollout->store)
        rollout->store = xasprintf("%s.rollout.db", rollout->name);
    for (int i = 0; i < rollout->stage_count; i++) {
        struct rollout_stage *stage = &rollout->stages[i];
        if (!stage->name)
            stage->name = xasprintf("%g%%", stage->percent);
        if (strcmp(stage->name, "aa") == 0)
            stage->aa = true;
        int64_t long_enough;
        if (__builtin_mul_overflow(stage->soak_ns, ROLLOUT_PATIENCE_SOAKS, &long_enough) ||
                __builtin_add_overflow(long_enough, stage->warm_up_ns, &long_enough))
            long_enough = INT64_MAX; // of a damaged store: refused
        if (!stage->patience_ns)
            stage->patience_ns =
                    long_enough > ROLLOUT_PATIENCE_MIN_NS ? long_enough : ROLLOUT_PATIENCE_MIN_NS;
    }
}

int rollout_load(const char *path, struct rollout **ret_rollout, struct error *err)
{
    struct yaml_file file;
    struct rollout *rollout = rollout_new();
    rollout->path = xstrdup(path);
    int rc = yaml_file_open(path, &file, err);
    struct schema schema = {.file = &file, .root = rollout_fields, .err = err};
    if (!rc)
        rc = schema_bind(
                &schema, yaml_file_root(&file), rollout_fields, "the rollout plan", rollout);
    if (!rc) {
        rollout_normalise(rollout);
        rc = rollout_check(rollout, &file, err);
    }
    yaml_file_close(&file);
    if (rc)
        rollout_free(rollout);
    else
        *ret_rollout = rollout;
    return rc;
}

json_t *rollout_to_json(const struct rollout *rollout)
{
    json_t *json = json_object(), *fields = schema_to_json(rollout_fields, rollout);
    json_object_set_new(json, "schema", json_string(ROLLOUT_SCHEMA));
    json_object_update(json, fields);
    json_decref(fields);
    return json;
}

int rollout_from_json(const json_t *json, struct rollout **ret_rollout, struct error *err)
{
    const char *schema = json_string_value(json_object_get(json, "schema"));
    if (!schema || strcmp(schema, ROLLOUT_SCHEMA) != 0)
        return error_set(err, -EBADMSG,
                "the stored rollout plan is '%.60s', not '" ROLLOUT_SCHEMA "'",
                schema ? schema : "not a document of upgate");
    struct rollout *rollout = rollout_new();
    int rc = schema_from_json(json, rollout_fields, rollout, err);
    if (!rc && (!rollout->name || !rollout->source_count || !rollout->stage_count))
        rc = error_set(err, -EBADMSG, "it lacks its name, its sources or its stages");
    if (!rc) {
        const struct rollout_traffic *traffic = &rollout->traffic;
        bool servers = traffic->servers[CANARY_BASELINE] && traffic->servers[CANARY_CANDIDATE] &&
                traffic->socket && traffic->backend;
        if (traffic->kind == ROLLOUT_HAPROXY && !servers)
            rc = error_set(err, -EBADMSG, "its traffic lacks a key");
    }
    for (int i = 0; i < rollout->source_count && !rc; i++) {
        const struct rollout_source *source = &rollout->sources[i];
        if (((source->kind == ROLLOUT_JSONL || source->kind == ROLLOUT_STEPS) &&
                    (!source->paths[0] || !source->paths[1])) ||
                (source->kind == ROLLOUT_PROMETHEUS && !source->url))
            rc = error_set(err, -EBADMSG, "a source of it lacks a key");
    }
    if (!rc) {
        rollout_normalise(rollout);
        if (rollout_check(rollout, NULL, err))
            rc = err ? (err->code = -EBADMSG) : -EBADMSG;
    }
    // Where it is judged, a version that passed it for want of any wrote it.
    if (!rc && rollout->rules.metrics[CANARY_WRONG_ANSWERS].gated && !rollout_tells_wrong(rollout))
        rollout_ungate(rollout, CANARY_WRONG_ANSWERS);
    if (rc) {
        error_prefix(err, "failed to read the stored rollout plan");
        rollout_free(rollout);
        return rc;
    }
    *ret_rollout = rollout;
    return 0;
}

// --- what changed

static void rollout_changed(
        struct strbuf *list, const char *path, const json_t *old, const json_t *new)
{
    if (old && new &&json_equal((json_t *)old, (json_t *)new))
        return;
    if (json_is_object(old) && json_is_object(new)) {
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)old, key, value)
        {
            char *below = xasprintf("%s%s%s", path, *path ? "." : "", key);
            rollout_changed(list, below, value, json_object_get(new, key));
            free(below);
        }
        json_object_foreach((json_t *)new, key, value)
        {
            if (!json_object_get(old, key))
                strbuf_add(list, "%s%s%s%s (added)", list->len ? ", " : "", path, *path ? "." : "",
                        key);
        }
        return;
    }
    if (json_is_array(old) && json_is_array(new) && json_array_size(old) == json_array_size(new)) {
        for (size_t i = 0; i < json_array_size(old); i++) {
            char *below = xasprintf("%s.%zu", path, i);
            rollout_changed(list, below, json_array_get(old, i), json_array_get(new, i));
            free(below);
        }
        return;
    }
    size_t len = strlen(path);
    if (len >= 4 && strcmp(path + len - 4, ".url") == 0) { // may have a password in it
        strbuf_add(list, "%s%s (another one)", list->len ? ", " : "", path);
        return;
    }
    char *was =
            old ? json_dumps(old, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(12)) : NULL;
    char *is =
            new ? json_dumps(new, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(12)) : NULL;
    strbuf_add(list, "%s%s (was %.60s, is %.60s)", list->len ? ", " : "", path,
            was ? was : "absent", is ? is : "absent");
    free(was);
    free(is);
}

char *rollout_changes(const json_t *old, const json_t *new)
{
    struct strbuf list = {0};
    rollout_changed(&list, "", old, new);
    return strbuf_take(&list);
}

// A server with a third of the other's load answers faster than that one, though it is slower; with
// half of the traffic both have as much to do. At 90 % it is the other way round: an equal
// candidate that answers slower under load would be taken back.
char *rollout_advice(const struct rollout *rollout)
{
    double most = 0;
    for (int i = 0; i < rollout->stage_count; i++) {
        const struct rollout_stage *stage = &rollout->stages[i];
        if (!stage->aa && stage->mirror == 0 && stage->percent < 100 && stage->percent > most)
            most = stage->percent;
    }
    if (most >= 50)
        return NULL;
    char *stages = most > 0 ? xasprintf(" (%g %%, then 100 %%)", most) : xstrdup("");
    char *text = xasprintf(
            "the candidate is first seen with more than half of the traffic when no baseline is left%s: one that is slower under load "
            "only is found at 50 %%, where both arms have as much to do; put a stage of 50 between",
            stages);
    free(stages);
    return text;
}

double rollout_opens(const struct rollout *rollout, int stage)
{
    for (int i = stage + 1; i < rollout->stage_count; i++)
        if (!rollout->stages[i].aa && rollout->stages[i].percent > 0)
            return rollout->stages[i].percent / 100;
    return 1;
}
