// SPDX-License-Identifier: Apache-2.0
// The parts of a plan that are lists or have free keys: environments, workloads, looks, metrics.
// Each is bound from YAML nodes, written to JSON and read back. Frees nothing: plan_free does.
#include "harness/plan/plan_lists.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/environment.h"
#include "common/strings.h"
#include "common/units.h"
#include "harness/plan/plan_internal.h"

enum { PLAN_PAIRS_MAX = 1000, PLAN_FLOOR_RANKS_MAX = 1024 };

// --- env -----------------------------------------------------------------------------------------

static void plan_env_add(struct plan_side *side, const char *name, const char *value)
{
    vector_push(side->env, side->env_count, (struct plan_env){xstrdup(name), xstrdup(value)});
}

static bool plan_env_name_ok(const char *name)
{
    if (!*name || isdigit((unsigned char)*name))
        return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && *name != '_')
            return false;
    return true;
}

static int plan_env_bind(struct schema *schema, yaml_node_t *node, void *target)
{
    struct plan_side *side = target;
    struct yaml_entry *entries;
    size_t count;
    char buf[80];
    int rc = schema_expect_map(schema, node, "'env'", "{NAME: value}", &entries, &count);
    if (rc)
        return rc;
    for (size_t i = 0; i < count && !rc; i++) {
        const char *name = entries[i].key;
        yaml_node_t *value = entries[i].value;
        if (!plan_env_name_ok(name))
            rc = yaml_file_error(schema->file, entries[i].key_node, schema->err,
                    "'%.80s' is no name of an environment variable", name);
        else if (strcmp(name, environment_name(ENVIRONMENT_STEPS)) == 0)
            rc = yaml_file_error(schema->file, entries[i].key_node, schema->err,
                    "'%s' is set by upgate for every launch", name);
        else if (value->type != YAML_SCALAR_NODE)
            rc = yaml_file_error(schema->file, value, schema->err, "'%s' must be text, not %s",
                    name, yaml_node_words(value, buf, sizeof buf));
        else if (yaml_node_is_null(value))
            rc = yaml_file_error(schema->file, value, schema->err,
                    "'%s' has no value; write \"\" for an empty one", name);
        else if (strlen((const char *)value->data.scalar.value) != value->data.scalar.length)
            rc = yaml_file_error(
                    schema->file, value, schema->err, "'%s' contains a NUL byte", name);
        else
            plan_env_add(side, name, (const char *)value->data.scalar.value);
    }
    free(entries);
    return rc;
}

static json_t *plan_env_to_json(const void *target)
{
    const struct plan_side *side = target;
    json_t *object = json_object();
    for (int i = 0; i < side->env_count; i++)
        json_object_set_new(object, side->env[i].name, json_string(side->env[i].value));
    return object;
}

static int plan_env_from_json(const json_t *json, void *target, struct error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)json, name, value)
    {
        if (!json_is_string(value))
            return error_set(err, -EBADMSG, "'%s' is not text", name);
        plan_env_add(target, name, json_string_value(value));
    }
    return 0;
}

const struct field_custom plan_env_custom = {
        "map of text", plan_env_bind, plan_env_to_json, plan_env_from_json};

// --- workloads
// ------------------------------------------------------------------------------------

static struct plan_workload *plan_workload_add(struct plan *plan)
{
    struct plan_workload *workload = vector_add(plan->workloads, plan->workload_count);
    workload->mode = PLAN_MODE_COUNT; // not said
    schema_set_defaults(plan_workload_fields, workload);
    return workload;
}

static int plan_workloads_bind(struct schema *schema, yaml_node_t *node, void *target)
{
    int rc = schema_expect_list(schema, node, "workloads", "[{name: ..., model: ...}]");
    if (rc)
        return rc;
    for (yaml_node_item_t *item = node->data.sequence.items.start;
            item < node->data.sequence.items.top && !rc; item++)
        rc = schema_bind(schema, yaml_file_node(schema->file, *item), plan_workload_fields,
                "a workload", plan_workload_add(target));
    return rc;
}

static json_t *plan_workloads_to_json(const void *target)
{
    const struct plan *plan = target;
    json_t *list = json_array();
    for (int i = 0; i < plan->workload_count; i++)
        json_array_append_new(list, schema_to_json(plan_workload_fields, &plan->workloads[i]));
    return list;
}

static int plan_workloads_from_json(const json_t *json, void *target, struct error *err)
{
    size_t i;
    json_t *item;
    if (!json_is_array(json) || json_array_size(json) == 0)
        return error_set(err, -EBADMSG, "no list of workloads");
    json_array_foreach(json, i, item)
    {
        int rc = schema_from_json(item, plan_workload_fields, plan_workload_add(target), err);
        if (rc)
            return rc;
    }
    return 0;
}

const struct field_custom plan_workloads_custom = {
        "list of maps", plan_workloads_bind, plan_workloads_to_json, plan_workloads_from_json};

// --- looks
// ----------------------------------------------------------------------------------------

static int plan_looks_bind(struct schema *schema, yaml_node_t *node, void *target)
{
    struct plan_schedule *schedule = target;
    int rc = schema_expect_list(schema, node, "looks", "[10, 14, 20, 28]");
    if (rc)
        return rc;
    schedule->look_count = 0;
    for (yaml_node_item_t *item = node->data.sequence.items.start;
            item < node->data.sequence.items.top; item++) {
        yaml_node_t *look = yaml_file_node(schema->file, *item);
        struct error why = {0};
        char buf[80];
        uint64_t pairs;
        if (schedule->look_count == PLAN_LOOKS_MAX)
            return yaml_file_error(
                    schema->file, look, schema->err, "more than %d looks", PLAN_LOOKS_MAX);
        if (look->type != YAML_SCALAR_NODE)
            return yaml_file_error(schema->file, look, schema->err,
                    "a look is a number of pairs, not %s", yaml_node_words(look, buf, sizeof buf));
        if (unit_parse_uint((const char *)look->data.scalar.value, 1, PLAN_PAIRS_MAX, &pairs, &why))
            return yaml_file_error(schema->file, look, schema->err, "'looks': %s", why.text);
        schedule->looks[schedule->look_count++] = pairs;
    }
    return 0;
}

static json_t *plan_looks_to_json(const void *target)
{
    const struct plan_schedule *schedule = target;
    json_t *list = json_array();
    for (int i = 0; i < schedule->look_count; i++)
        json_array_append_new(list, json_integer((json_int_t)schedule->looks[i]));
    return list;
}

static int plan_looks_from_json(const json_t *json, void *target, struct error *err)
{
    struct plan_schedule *schedule = target;
    size_t i, count = json_array_size(json);
    json_t *item;
    if (count == 0 || count > PLAN_LOOKS_MAX)
        return error_set(err, -EBADMSG, "no list of 1 to %d looks", PLAN_LOOKS_MAX);
    json_array_foreach(json, i, item)
    {
        if (json_integer_value(item) < 1)
            return error_set(err, -EBADMSG, "a look is no number of pairs");
        schedule->looks[i] = (uint64_t)json_integer_value(item);
    }
    schedule->look_count = (int)count;
    return 0;
}

const struct field_custom plan_looks_custom = {
        "list of numbers", plan_looks_bind, plan_looks_to_json, plan_looks_from_json};

// --- metrics
// --------------------------------------------------------------------------------------

static int plan_floor_bind(
        struct schema *schema, const struct yaml_entry *entry, struct plan_metric *metric)
{
    struct plan_floor floor = {0};
    struct error why = {0};
    char buf[80];
    const char *text = (const char *)entry->value->data.scalar.value;
    if (unit_parse_uint(entry->key, 2, PLAN_FLOOR_RANKS_MAX, &floor.ranks, &why))
        return yaml_file_error(schema->file, entry->key_node, schema->err,
                "'floors' has numbers of ranks as keys: %s", why.text);
    for (int i = 0; i < metric->floor_count; i++)
        if (metric->floors[i].ranks == floor.ranks)
            return yaml_file_error(schema->file, entry->key_node, schema->err,
                    "'floors' has two of %llu ranks", (unsigned long long)floor.ranks);
    if (metric->floor_count == PLAN_FLOORS_MAX)
        return yaml_file_error(schema->file, entry->key_node, schema->err,
                "'floors' has more than %d entries", PLAN_FLOORS_MAX);
    if (entry->value->type != YAML_SCALAR_NODE)
        return yaml_file_error(schema->file, entry->value, schema->err,
                "a floor is a share such as 85%%, not %s",
                yaml_node_words(entry->value, buf, sizeof buf));
    if (unit_parse_fraction(text, &floor.least, &why))
        return yaml_file_error(schema->file, entry->value, schema->err, "'floors': %s", why.text);
    if (!(floor.least > 0 && floor.least <= 1))
        return yaml_file_error(schema->file, entry->value, schema->err,
                "'floors': '%s' is out of range; accepted: above 0%% to 100%%", text);
    metric->floors[metric->floor_count++] = floor;
    return 0;
}

static int plan_floors_bind(struct schema *schema, yaml_node_t *node, void *target)
{
    struct plan_metric *metric = target;
    struct yaml_entry *entries;
    size_t count;
    int rc = schema_expect_map(schema, node, "'floors'", "{2: 85%, 4: 80%}", &entries, &count);
    if (rc)
        return rc;
    metric->floor_count = 0;
    metric->floors_given = true;
    for (size_t i = 0; i < count && !rc; i++)
        rc = plan_floor_bind(schema, &entries[i], metric);
    free(entries);
    return rc;
}

static json_t *plan_floors_to_json(const void *target)
{
    const struct plan_metric *metric = target;
    json_t *list = json_array();
    for (int i = 0; i < metric->floor_count; i++)
        json_array_append_new(list,
                json_pack("{s:I, s:f}", "ranks", (json_int_t)metric->floors[i].ranks, "least",
                        metric->floors[i].least));
    return list;
}

static int plan_floors_from_json(const json_t *json, void *target, struct error *err)
{
    struct plan_metric *metric = target;
    size_t i, count = json_array_size(json);
    json_t *item;
    if (!json_is_array(json) || count > PLAN_FLOORS_MAX)
        return error_set(err, -EBADMSG, "no list of at most %d floors", PLAN_FLOORS_MAX);
    metric->floor_count = 0;
    json_array_foreach(json, i, item)
    {
        json_int_t ranks = json_integer_value(json_object_get(item, "ranks"));
        double least = json_number_value(json_object_get(item, "least"));
        if (ranks < 2 || !(least > 0 && least <= 1))
            return error_set(err, -EBADMSG, "a floor is no number of ranks and a share");
        metric->floors[metric->floor_count++] = (struct plan_floor){(uint64_t)ranks, least};
    }
    return 0;
}

static const struct field_custom plan_floors_custom = {
        "map of shares", plan_floors_bind, plan_floors_to_json, plan_floors_from_json};

#define PLAN_METRIC_ROWS \
    {.key = "margin", \
            .kind = FIELD_FRACTION, \
            .offset = offsetof(struct plan_metric, margin), \
            .min = 0, \
            .max = 1, \
            .above_min = true, \
            .help = "how much worse the candidate may be"}, \
    { \
        .key = "observe", .kind = FIELD_BOOL, .offset = offsetof(struct plan_metric, observe), \
        .help = "measured and shown, never judged" \
    }

const struct field plan_metric_fields[] = {
        PLAN_METRIC_ROWS,
        {.key = "floors",
                .kind = FIELD_CUSTOM,
                .custom = &plan_floors_custom,
                .help = "of `scaling_efficiency`: numbers of ranks, and the share of perfect scaling below which the candidate must not be with "
                        "so many; {}: none; default: {2: 85%, 4: 80%}"},
        {.kind = FIELD_END},
};

static const struct field plan_metric_plain_fields[] = {PLAN_METRIC_ROWS, {.kind = FIELD_END}};

static const struct field *plan_fields_of_metric(int id)
{
    return id == METRIC_SCALING_EFFICIENCY ? plan_metric_fields : plan_metric_plain_fields;
}

static int plan_metric_id(const char *name)
{
    for (int i = 0; i < METRIC_COUNT; i++)
        if (strcmp(metric_infos[i].name, name) == 0)
            return i;
    return -1;
}

static int plan_metric_unknown(struct schema *schema, const struct yaml_entry *entry)
{
    const char *names[METRIC_COUNT];
    struct strbuf known = {0};
    for (int i = 0; i < METRIC_COUNT; i++) {
        names[i] = metric_infos[i].name;
        strbuf_add(&known, "%s%s", i ? ", " : "", names[i]);
    }
    const char *nearest = string_nearest(entry->key, names, METRIC_COUNT);
    int rc = yaml_file_error(schema->file, entry->key_node, schema->err,
            "unknown metric '%.80s'%s%s%s known metrics: %s", entry->key,
            nearest ? "; did you mean '" : ";", nearest ? nearest : "", nearest ? "'?" : "",
            known.text);
    strbuf_free(&known);
    return rc;
}

static int plan_metrics_bind(struct schema *schema, yaml_node_t *node, void *target)
{
    struct plan_gate *gate = target;
    struct yaml_entry *entries;
    size_t count;
    int rc = schema_expect_map(
            schema, node, "'metrics'", "{step_time: {margin: 2%}}", &entries, &count);
    if (rc)
        return rc;
    if (count == 0)
        rc = yaml_file_error(schema->file, node, schema->err,
                "'metrics' names none; leave it out for the default ones");
    for (int i = 0; i < METRIC_COUNT; i++)
        gate->metrics[i].present = false;
    gate->metrics_default = false;
    for (size_t i = 0; i < count && !rc; i++) {
        int id = plan_metric_id(entries[i].key);
        if (id < 0) {
            rc = plan_metric_unknown(schema, &entries[i]);
            break;
        }
        gate->metrics[id].present = true;
        rc = schema_bind(schema, entries[i].value, plan_fields_of_metric(id), entries[i].key,
                &gate->metrics[id]);
    }
    plan_complete_metrics(gate);
    free(entries);
    return rc;
}

static json_t *plan_metrics_to_json(const void *target)
{
    const struct plan_gate *gate = target;
    json_t *object = json_object();
    for (int i = 0; i < METRIC_COUNT; i++)
        if (gate->metrics[i].present)
            json_object_set_new(object, metric_infos[i].name,
                    schema_to_json(plan_fields_of_metric(i), &gate->metrics[i]));
    return object;
}

static int plan_metrics_from_json(const json_t *json, void *target, struct error *err)
{
    struct plan_gate *gate = target;
    const char *name;
    json_t *value;
    for (int i = 0; i < METRIC_COUNT; i++)
        gate->metrics[i].present = false;
    json_object_foreach((json_t *)json, name, value)
    {
        int id = plan_metric_id(name);
        if (id < 0)
            return error_set(err, -EBADMSG, "unknown metric '%s'; a newer upgate wrote it", name);
        gate->metrics[id].present = true;
        // of stores from before there were any: the same verdict again
        if (!json_object_get(value, "floors"))
            gate->metrics[id].floor_count = 0;
        int rc = schema_from_json(value, plan_fields_of_metric(id), &gate->metrics[id], err);
        if (rc)
            return rc;
    }
    plan_complete_metrics(gate); // of stores from before the sums were judged
    return 0;
}

const struct field_custom plan_metrics_custom = {
        "map of maps", plan_metrics_bind, plan_metrics_to_json, plan_metrics_from_json};
