// SPDX-License-Identifier: Apache-2.0
// The parts of a rollout plan that are lists, have free keys or one key of several: traffic,
// sources, stages, metrics. Each is bound from YAML nodes, written to JSON and read back.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "common/units.h"
#include "harness/canary/plan/rollout_internal.h"

// As in the contract's example: where a plan names no metrics, and what an observed one is shown
// against. The median beside the tail: where 95 % of the answers come from a cache, a p99 says
// nothing of them.
#define ROLLOUT_MARGIN_ERRORS 0.5
#define ROLLOUT_MARGIN_LATENCY 0.1

// --- one map of several, by its key: {haproxy: {...}} --------------------------------------------

// kinds: a table of maps; *ret_kind is the row that is there. Defaults of that row are set first.
static int rollout_bind_kind(struct schema *schema, yaml_node_t *node, const struct field *kinds,
        const char *what, void *target, int *ret_kind)
{
    struct yaml_entry *entries = NULL;
    size_t count = 0;
    struct strbuf known = {0};
    for (const struct field *kind = kinds; kind->kind != FIELD_END; kind++)
        strbuf_add(&known, "%s%s", known.len ? ", " : "", kind->key);
    int rc = node->type == YAML_MAPPING_NODE
            ? yaml_file_entries(schema->file, node, &entries, &count, schema->err)
            : 0;
    for (int i = 0; kinds[i].kind != FIELD_END && count == 1; i++) {
        if (strcmp(kinds[i].key, entries[0].key) == 0) {
            *ret_kind = i;
            schema_set_defaults(kinds[i].fields, target);
        }
    }
    if (!rc)
        // an unknown kind gets its message here
        rc = schema_bind(schema, node, kinds, what, target);
    if (!rc && count != 1)
        rc = yaml_file_error(
                schema->file, node, schema->err, "%s is exactly one of: %s", what, known.text);
    free(entries);
    strbuf_free(&known);
    return rc;
}

static json_t *rollout_kind_to_json(const struct field *kind, const void *source)
{
    json_t *object = json_object();
    json_object_set_new(object, kind->key, schema_to_json(kind->fields, source));
    return object;
}

static int rollout_kind_from_json(const json_t *json, const struct field *kinds, void *target,
        int *ret_kind, struct error *err)
{
    for (int i = 0; kinds[i].kind != FIELD_END; i++) {
        const json_t *value = json_object_get(json, kinds[i].key);
        if (!value)
            continue;
        *ret_kind = i;
        schema_set_defaults(kinds[i].fields, target);
        return schema_from_json(value, kinds[i].fields, target, err);
    }
    return error_set(err, -EBADMSG, "of no known kind; a newer upgate wrote it");
}

static int rollout_traffic_bind(struct schema *schema, yaml_node_t *node, void *target)
{
    struct rollout *rollout = target;
    int kind = 0,
        rc = rollout_bind_kind(
                schema, node, rollout_traffic_fields, "traffic", &rollout->traffic, &kind);
    rollout->traffic.kind = (enum rollout_traffic_kind)kind;
    return rc;
}

static json_t *rollout_traffic_to_json(const void *target)
{
    const struct rollout *rollout = target;
    return rollout_kind_to_json(&rollout_traffic_fields[rollout->traffic.kind], &rollout->traffic);
}

static int rollout_traffic_from_json(const json_t *json, void *target, struct error *err)
{
    struct rollout *rollout = target;
    int kind = 0,
        rc = rollout_kind_from_json(json, rollout_traffic_fields, &rollout->traffic, &kind, err);
    rollout->traffic.kind = (enum rollout_traffic_kind)kind;
    return rc;
}

const struct field_custom rollout_traffic_custom = {
        "map", rollout_traffic_bind, rollout_traffic_to_json, rollout_traffic_from_json};

// --- sources -------------------------------------------------------------------------------------

static int rollout_sources_bind(struct schema *schema, yaml_node_t *node, void *target)
{
    struct rollout *rollout = target;
    int rc = schema_expect_list(
            schema, node, "sources", "[{haproxy_log: {listen: \"127.0.0.1:5514\"}}]");
    for (yaml_node_item_t *item = rc ? NULL : node->data.sequence.items.start;
            item && item < node->data.sequence.items.top && !rc; item++) {
        struct rollout_source *source = vector_add(rollout->sources, rollout->source_count);
        int kind = 0;
        rc = rollout_bind_kind(schema, yaml_file_node(schema->file, *item), rollout_source_fields,
                "a source", source, &kind);
        source->kind = (enum rollout_source_kind)kind;
    }
    return rc;
}

const char *rollout_source_kind_name(enum rollout_source_kind kind)
{
    return rollout_source_fields[kind].key;
}

static json_t *rollout_sources_to_json(const void *target)
{
    const struct rollout *rollout = target;
    json_t *list = json_array();
    for (int i = 0; i < rollout->source_count; i++)
        json_array_append_new(list,
                rollout_kind_to_json(
                        &rollout_source_fields[rollout->sources[i].kind], &rollout->sources[i]));
    return list;
}

static int rollout_sources_from_json(const json_t *json, void *target, struct error *err)
{
    struct rollout *rollout = target;
    size_t i;
    json_t *item;
    int rc = 0;
    json_array_foreach(json, i, item)
    {
        struct rollout_source *source = vector_add(rollout->sources, rollout->source_count);
        int kind = 0;
        rc = rc ? rc : rollout_kind_from_json(item, rollout_source_fields, source, &kind, err);
        source->kind = (enum rollout_source_kind)kind;
    }
    return rc;
}

const struct field_custom rollout_sources_custom = {
        "list of maps", rollout_sources_bind, rollout_sources_to_json, rollout_sources_from_json};

// --- stages --------------------------------------------------------------------------------------

static int rollout_stages_bind(struct schema *schema, yaml_node_t *node, void *target)
{
    struct rollout *rollout = target;
    int rc = schema_expect_list(
            schema, node, "stages", "[{percent: 1, soak: 30s}, {percent: 100, soak: 60s}]");
    for (yaml_node_item_t *item = rc ? NULL : node->data.sequence.items.start;
            item && item < node->data.sequence.items.top && !rc; item++) {
        struct rollout_stage *stage = vector_add(rollout->stages, rollout->stage_count);
        schema_set_defaults(rollout_stage_fields, stage);
        rc = schema_bind(schema, yaml_file_node(schema->file, *item), rollout_stage_fields,
                "a stage", stage);
    }
    return rc;
}

static json_t *rollout_stages_to_json(const void *target)
{
    const struct rollout *rollout = target;
    json_t *list = json_array();
    for (int i = 0; i < rollout->stage_count; i++)
        json_array_append_new(list, schema_to_json(rollout_stage_fields, &rollout->stages[i]));
    return list;
}

static int rollout_stages_from_json(const json_t *json, void *target, struct error *err)
{
    struct rollout *rollout = target;
    size_t i;
    json_t *item;
    int rc = 0;
    json_array_foreach(json, i, item)
    {
        struct rollout_stage *stage = vector_add(rollout->stages, rollout->stage_count);
        schema_set_defaults(rollout_stage_fields, stage);
        rc = rc ? rc : schema_from_json(item, rollout_stage_fields, stage, err);
    }
    return rc;
}

const struct field_custom rollout_stages_custom = {
        "list of maps", rollout_stages_bind, rollout_stages_to_json, rollout_stages_from_json};

// --- metrics -------------------------------------------------------------------------------------

// clang-format off
const struct field rollout_metric_fields[] = {
    {.key = "margin", .kind = FIELD_FRACTION, .offset = offsetof(struct canary_rule, margin), .min = 0, .max = 100,
     .above_min = true, .help = "how much worse the candidate may be, relative to the baseline"},
    {.key = "limit", .kind = FIELD_NUMBER, .offset = offsetof(struct canary_rule, limit), .min = 0, .max = 1e15,
     .help = "wrong_answers: so many in a stage at most"},
    {.key = "observe", .kind = FIELD_BOOL, .offset = offsetof(struct canary_rule, observed),
     .help = "measured and shown, never judged"},
    {.kind = FIELD_END},
};
// clang-format on

void rollout_metrics_default(struct canary_rules *rules)
{
    for (int i = 0; i < CANARY_METRICS; i++)
        rules->metrics[i] = (struct canary_rule){.margin = NAN, .limit = NAN};
    rules->metrics[CANARY_ERROR_RATE] =
            (struct canary_rule){.gated = true, .margin = ROLLOUT_MARGIN_ERRORS, .limit = NAN};
    rules->metrics[CANARY_REJECTED_RATE] =
            (struct canary_rule){.gated = true, .margin = ROLLOUT_MARGIN_ERRORS, .limit = NAN};
    rules->metrics[CANARY_LATENCY_P50] =
            (struct canary_rule){.gated = true, .margin = ROLLOUT_MARGIN_LATENCY, .limit = NAN};
    rules->metrics[CANARY_LATENCY_P99] =
            (struct canary_rule){.gated = true, .margin = ROLLOUT_MARGIN_LATENCY, .limit = NAN};
    rules->metrics[CANARY_WRONG_ANSWERS] =
            (struct canary_rule){.gated = true, .margin = NAN, .limit = 0};
}

static int rollout_metric_unknown(struct schema *schema, const struct yaml_entry *entry)
{
    const char *names[CANARY_METRICS];
    struct strbuf known = {0};
    for (int i = 0; i < CANARY_METRICS; i++) {
        names[i] = canary_metric_name((enum canary_metric)i);
        strbuf_add(&known, "%s%s", i ? ", " : "", names[i]);
    }
    const char *nearest = string_nearest(entry->key, names, CANARY_METRICS);
    int rc = yaml_file_error(schema->file, entry->key_node, schema->err,
            "unknown metric '%.80s'%s%s%s known metrics: %s", entry->key,
            nearest ? "; did you mean '" : ";", nearest ? nearest : "", nearest ? "'?" : "",
            known.text);
    strbuf_free(&known);
    return rc;
}

static int rollout_metric_bind(
        struct schema *schema, const struct yaml_entry *entry, struct canary_rules *rules)
{
    int id = canary_metric_by_name(entry->key);
    if (id < 0)
        return rollout_metric_unknown(schema, entry);
    struct canary_rule *rule = &rules->metrics[id];
    int rc = schema_bind(schema, entry->value, rollout_metric_fields, entry->key, rule);
    if (rc)
        return rc;
    rule->gated = !rule->observed;
    bool limited = id == CANARY_WRONG_ANSWERS;
    if (limited ? !isnan(rule->margin) : !isnan(rule->limit))
        return yaml_file_error(schema->file, entry->value, schema->err,
                limited ? "'%s' has a limit, a count, and no margin"
                        : "'%s' has a margin and no limit",
                entry->key);
    if (limited && isnan(rule->limit))
        rule->limit = 0;
    // shown against what it would be gated by
    if (!limited && isnan(rule->margin) && rule->observed)
        rule->margin = id == CANARY_ERROR_RATE || id == CANARY_REJECTED_RATE
                ? ROLLOUT_MARGIN_ERRORS
                : ROLLOUT_MARGIN_LATENCY;
    if (!limited && isnan(rule->margin))
        return yaml_file_error(schema->file, entry->value, schema->err,
                "'%s' lacks its margin, such as {margin: 10%%}; or {observe: true}", entry->key);
    return 0;
}

static int rollout_metrics_bind(struct schema *schema, yaml_node_t *node, void *target)
{
    struct canary_rules *rules = &((struct rollout *)target)->rules;
    struct yaml_entry *entries;
    size_t count;
    int rc = schema_expect_map(
            schema, node, "'metrics'", "{error_rate: {margin: 50%}}", &entries, &count);
    if (rc)
        return rc;
    ((struct rollout *)target)->metrics_named = true;
    if (count == 0)
        rc = yaml_file_error(schema->file, node, schema->err,
                "'metrics' names none; leave it out for the default ones");
    for (int i = 0; i < CANARY_METRICS; i++)
        rules->metrics[i] = (struct canary_rule){.margin = NAN, .limit = NAN};
    for (size_t i = 0; i < count && !rc; i++)
        rc = rollout_metric_bind(schema, &entries[i], rules);
    free(entries);
    return rc;
}

// NaN is no number of JSON: what does not hold is left out.
static json_t *rollout_metrics_to_json(const void *target)
{
    const struct canary_rules *rules = &((const struct rollout *)target)->rules;
    json_t *object = json_object();
    for (int i = 0; i < CANARY_METRICS; i++) {
        const struct canary_rule *rule = &rules->metrics[i];
        if (!rule->gated && !rule->observed)
            continue;
        json_t *one = json_object();
        if (!isnan(rule->margin))
            json_object_set_new(one, "margin", json_real(rule->margin));
        if (!isnan(rule->limit))
            json_object_set_new(one, "limit", json_real(rule->limit));
        json_object_set_new(one, "observe", json_boolean(rule->observed));
        json_object_set_new(object, canary_metric_name((enum canary_metric)i), one);
    }
    return object;
}

static int rollout_metrics_from_json(const json_t *json, void *target, struct error *err)
{
    struct canary_rules *rules = &((struct rollout *)target)->rules;
    const char *name;
    json_t *value;
    ((struct rollout *)target)->metrics_named = true;
    for (int i = 0; i < CANARY_METRICS; i++)
        rules->metrics[i] = (struct canary_rule){.margin = NAN, .limit = NAN};
    json_object_foreach((json_t *)json, name, value)
    {
        int id = canary_metric_by_name(name);
        if (id < 0)
            return error_set(err, -EBADMSG, "unknown metric '%s'; a newer upgate wrote it", name);
        int rc = schema_from_json(value, rollout_metric_fields, &rules->metrics[id], err);
        if (rc)
            return rc;
        rules->metrics[id].gated = !rules->metrics[id].observed;
    }
    return 0;
}

const struct field_custom rollout_metrics_custom = {
        "map of maps", rollout_metrics_bind, rollout_metrics_to_json, rollout_metrics_from_json};

// --- bytes ---------------------------------------------------------------------------------------

static int rollout_bytes_bind(struct schema *schema, yaml_node_t *node, void *target)
{
    struct error why = {0};
    uint64_t bytes = 0;
    char buf[80];
    if (node->type != YAML_SCALAR_NODE)
        return yaml_file_error(schema->file, node, schema->err,
                "a size such as 8GiB is expected, not %s", yaml_node_words(node, buf, sizeof buf));
    if (unit_parse_bytes((const char *)node->data.scalar.value, &bytes, &why))
        return yaml_file_error(schema->file, node, schema->err, "%s", why.text);
    *(double *)target = (double)bytes;
    return 0;
}

static json_t *rollout_bytes_to_json(const void *target)
{
    return json_real(*(const double *)target);
}

static int rollout_bytes_from_json(const json_t *json, void *target, struct error *err)
{
    if (!json_is_number(json))
        return error_set(err, -EBADMSG, "not a number of bytes");
    *(double *)target = json_number_value(json);
    return 0;
}

const struct field_custom rollout_bytes_custom = {
        "size, `8GiB`", rollout_bytes_bind, rollout_bytes_to_json, rollout_bytes_from_json};

void rollout_free_lists(struct rollout *rollout)
{
    schema_free(rollout_traffic_fields, &rollout->traffic);
    for (int i = 0; i < rollout->source_count; i++)
        schema_free(rollout_source_fields, &rollout->sources[i]);
    for (int i = 0; i < rollout->stage_count; i++)
        schema_free(rollout_stage_fields, &rollout->stages[i]);
    free(rollout->sources);
    free(rollout->stages);
    rollout_free_windows(rollout);
}
