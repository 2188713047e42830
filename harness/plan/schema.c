// SPDX-License-Identifier: Apache-2.0
// Binds maps of YAML to structs by table. Reads nodes, writes the caller's struct; every refusal
// names the place and what would be right. What spans several keys is checked elsewhere
// (plan_check.c).
#include "harness/plan/schema.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "common/units.h"

enum { SCHEMA_KEYS_MAX = 64 };

// --- one value
// --------------------------------------------------------------------------------------

static void schema_format(char *buf, size_t size, const struct field *field, double value)
{
    if (field->kind == FIELD_DURATION)
        unit_format_ns(buf, size, value);
    else if (field->kind == FIELD_FRACTION)
        snprintf(buf, size, "%.6g%%", value * 100);
    else
        snprintf(buf, size, "%.17g", value);
}

static int schema_check_range(
        const struct field *field, double value, const char *text, struct error *err)
{
    if (field->min == 0 && field->max == 0)
        return 0;
    if (value <= field->max && (field->above_min ? value > field->min : value >= field->min))
        return 0;
    char min[32], max[32], hint[64] = "";
    schema_format(min, sizeof min, field, field->min);
    schema_format(max, sizeof max, field, field->max);
    if (field->kind == FIELD_FRACTION && value > field->max && !strchr(text, '%'))
        snprintf(hint, sizeof hint, "; did you mean '%.20s%%'?", text);
    return error_set(err, -EINVAL, "'%s' is out of range; accepted: %s%s to %s%s", text,
            field->above_min ? "above " : "", min, max, hint);
}

static int schema_parse_choice(
        const struct field *field, const char *text, int *ret, struct error *err)
{
    size_t count = 0;
    struct strbuf list = {0};
    for (; field->choices[count]; count++) {
        if (strcmp(field->choices[count], text) == 0)
            *ret = (int)count;
        strbuf_add(&list, "%s%s", count ? ", " : "", field->choices[count]);
    }
    int rc = 0;
    if (*ret < 0) {
        const char *nearest = string_nearest(text, field->choices, count);
        rc = error_set(err, -EINVAL, "'%s' is not one of: %s%s%s%s", text, list.text,
                nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    }
    strbuf_free(&list);
    return rc;
}

static int schema_parse_text(const char *text, char **target, struct error *err)
{
    if (!*text)
        return error_set(err, -EINVAL, "is empty");
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return error_set(err, -EINVAL, "contains a control character");
    free(*target);
    *target = xstrdup(text);
    return 0;
}

static int schema_parse_bool(const char *text, bool *target, struct error *err)
{
    bool yes = strcmp(text, "true") == 0;
    if (!yes && strcmp(text, "false") != 0)
        return error_set(err, -EINVAL, "'%s' is neither true nor false", text);
    *target = yes;
    return 0;
}

static int schema_parse_number(
        const struct field *field, const char *text, void *target, struct error *err)
{
    double value = 0;
    int rc;
    if (field->kind == FIELD_FRACTION)
        rc = unit_parse_fraction(text, &value, err);
    else if (field->kind == FIELD_RATE)
        rc = unit_parse_rate(text, &value, err);
    else
        rc = unit_parse_double(text, -1e300, 1e300, &value, err);
    if (!rc)
        rc = schema_check_range(field, value, text, err);
    if (!rc)
        *(double *)target = value;
    return rc;
}

// The text of a scalar into the field; also for defaults.
static int schema_parse(
        const struct field *field, const char *text, void *target, struct error *err)
{
    int choice = -1, rc;
    int64_t ns = 0;
    uint64_t count = 0;
    switch (field->kind) {
    case FIELD_TEXT:
        return schema_parse_text(text, target, err);
    case FIELD_BOOL:
        return schema_parse_bool(text, target, err);
    case FIELD_SWITCH:
        rc = schema_parse_choice(field, text, &choice, err);
        if (!rc)
            *(bool *)target = choice == 1;
        return rc;
    case FIELD_CHOICE:
        rc = schema_parse_choice(field, text, &choice, err);
        if (!rc)
            *(int *)target = choice;
        return rc;
    case FIELD_UINT:
        rc = unit_parse_uint(text, 0, UINT64_MAX, &count, err);
        if (!rc)
            rc = schema_check_range(field, (double)count, text, err);
        if (!rc)
            *(uint64_t *)target = count;
        return rc;
    case FIELD_DURATION:
        rc = unit_parse_duration(text, &ns, err);
        if (!rc)
            rc = schema_check_range(field, (double)ns, text, err);
        if (!rc)
            *(int64_t *)target = ns;
        return rc;
    default:
        return schema_parse_number(field, text, target, err);
    }
}

void schema_set_defaults(const struct field *fields, void *target)
{
    for (const struct field *field = fields; field->kind != FIELD_END; field++) {
        char *at = (char *)target + field->offset;
        if (field->kind == FIELD_MAP)
            schema_set_defaults(field->fields, at);
        else if (field->default_text && schema_parse(field, field->default_text, at, NULL))
            abort(); // a row of the table contradicts itself
    }
}

// --- nodes
// ------------------------------------------------------------------------------------------

// Nodes of a kind that nobody may mean: nothing at all, tags of other programs, a NUL inside.
static int schema_check_node(struct schema *schema, const yaml_node_t *node, const char *key)
{
    static const char core[] = "tag:yaml.org,2002:";
    if (node->tag && strncmp((const char *)node->tag, core, strlen(core)) != 0)
        return yaml_file_error(
                schema->file, node, schema->err, "unknown tag '%.60s'", (const char *)node->tag);
    if (yaml_node_is_null(node))
        return yaml_file_error(schema->file, node, schema->err,
                "'%s' has no value; give it one or leave the key out", key);
    if (node->type == YAML_SCALAR_NODE &&
            strlen((const char *)node->data.scalar.value) != node->data.scalar.length)
        return yaml_file_error(schema->file, node, schema->err, "'%s' contains a NUL byte", key);
    return 0;
}

int schema_expect_list(
        struct schema *schema, const yaml_node_t *node, const char *what, const char *example)
{
    char buf[80];
    if (node->type != YAML_SEQUENCE_NODE)
        return yaml_file_error(schema->file, node, schema->err,
                "'%s' must be a list such as %s, not %s", what, example,
                yaml_node_words(node, buf, sizeof buf));
    ptrdiff_t count = node->data.sequence.items.top - node->data.sequence.items.start;
    if (count == 0)
        return yaml_file_error(schema->file, node, schema->err, "'%s' is an empty list", what);
    if (count > YAML_FILE_ENTRIES_MAX)
        return yaml_file_error(schema->file, node, schema->err, "'%s' has more than %d entries",
                what, YAML_FILE_ENTRIES_MAX);
    return 0;
}

int schema_expect_map(struct schema *schema, yaml_node_t *node, const char *what,
        const char *example, struct yaml_entry **ret_entries, size_t *ret_count)
{
    char buf[80];
    if (node->type != YAML_MAPPING_NODE)
        return yaml_file_error(schema->file, node, schema->err,
                "%s must be a map such as %s, not %s", what, example,
                yaml_node_words(node, buf, sizeof buf));
    return yaml_file_entries(schema->file, node, ret_entries, ret_count, schema->err);
}

static int schema_bind_texts(
        struct schema *schema, yaml_node_t *node, const char *key, char ***target)
{
    int rc = 0;
    bool empty = node->type == YAML_SEQUENCE_NODE &&
            node->data.sequence.items.top == node->data.sequence.items.start;
    if (empty) // prefix: [] says "none"
        return 0;
    rc = schema_expect_list(schema, node, key, "[\"one\", \"two\"]");
    if (rc)
        return rc;
    size_t count = 0;
    yaml_node_item_t *end = node->data.sequence.items.top;
    char **texts = xcalloc((size_t)(end - node->data.sequence.items.start) + 1, sizeof *texts);
    for (yaml_node_item_t *item = node->data.sequence.items.start; item < end && !rc; item++) {
        yaml_node_t *word = yaml_file_node(schema->file, *item);
        char buf[80];
        rc = schema_check_node(schema, word, key);
        if (!rc && word->type != YAML_SCALAR_NODE)
            rc = yaml_file_error(schema->file, word, schema->err,
                    "an entry of '%s' must be text, not %s", key,
                    yaml_node_words(word, buf, sizeof buf));
        if (!rc)
            texts[count++] = xstrdup((const char *)word->data.scalar.value);
    }
    *target = texts; // owned by the target from here, also when it is incomplete
    return rc;
}

static int schema_bind_value(
        struct schema *schema, yaml_node_t *node, const struct field *field, void *target)
{
    int rc = schema_check_node(schema, node, field->key);
    if (rc)
        return rc;
    if (field->kind == FIELD_CUSTOM)
        return field->custom->bind(schema, node, target);
    if (field->kind == FIELD_MAP)
        return schema_bind(schema, node, field->fields, field->key, target);
    if (field->kind == FIELD_TEXTS)
        return schema_bind_texts(schema, node, field->key, target);
    if (node->type != YAML_SCALAR_NODE) {
        char buf[80];
        return yaml_file_error(schema->file, node, schema->err,
                "'%s' must be a single value, not %s", field->key,
                yaml_node_words(node, buf, sizeof buf));
    }
    struct error why = {0};
    if (schema_parse(field, (const char *)node->data.scalar.value, target, &why))
        return yaml_file_error(schema->file, node, schema->err, "'%s': %s", field->key, why.text);
    return 0;
}

// --- maps
// -------------------------------------------------------------------------------------------

// "gate.alpha" for a key that stands in the wrong map; the caller frees; NULL when it is nowhere.
static char *schema_elsewhere(const struct field *fields, const char *key)
{
    for (const struct field *field = fields; field->kind != FIELD_END; field++)
        if (!field->json_only && strcmp(field->key, key) == 0)
            return xstrdup(key);
    for (const struct field *field = fields; field->kind != FIELD_END; field++) {
        char *below = field->fields ? schema_elsewhere(field->fields, key) : NULL;
        if (below) {
            char *path = xasprintf("%s.%s", field->key, below);
            free(below);
            return path;
        }
    }
    return NULL;
}

static int schema_unknown_key(struct schema *schema, const struct yaml_entry *entry,
        const struct field *fields, const char *what)
{
    const char *names[SCHEMA_KEYS_MAX];
    size_t count = 0;
    struct strbuf known = {0}, hint = {0};
    for (const struct field *field = fields; field->kind != FIELD_END; field++) {
        if (field->json_only || count == SCHEMA_KEYS_MAX)
            continue;
        names[count++] = field->key;
        strbuf_add(&known, "%s%s", known.len ? ", " : "", field->key);
    }
    const char *nearest = string_nearest(entry->key, names, count);
    char *elsewhere = schema->root ? schema_elsewhere(schema->root, entry->key) : NULL;
    if (elsewhere)
        strbuf_add(&hint, "; it belongs to '%s'.", elsewhere);
    else if (nearest)
        strbuf_add(&hint, "; did you mean '%s'?", nearest);
    else
        strbuf_add(&hint, ".");
    int rc = yaml_file_error(schema->file, entry->key_node, schema->err,
            "unknown key '%.80s' of %s%s Known keys here: %s", entry->key, what, hint.text,
            known.text);
    free(elsewhere);
    strbuf_free(&known);
    strbuf_free(&hint);
    return rc;
}

static const struct field *schema_find(const struct field *fields, const char *key)
{
    for (; fields->kind != FIELD_END; fields++)
        if (!fields->json_only && strcmp(fields->key, key) == 0)
            return fields;
    return NULL;
}

int schema_bind(struct schema *schema, yaml_node_t *node, const struct field *fields,
        const char *what, void *target)
{
    struct yaml_entry *entries = NULL;
    size_t count = 0;
    int rc = schema_check_node(schema, node, what);
    if (!rc)
        rc = schema_expect_map(schema, node, what, "{key: value}", &entries, &count);
    // All names first: a slip in a key explains the key that is then missing.
    for (size_t i = 0; i < count && !rc; i++)
        if (!schema_find(fields, entries[i].key))
            rc = schema_unknown_key(schema, &entries[i], fields, what);
    for (const struct field *field = fields; field->kind != FIELD_END && !rc; field++) {
        bool given = false;
        for (size_t i = 0; i < count; i++)
            given |= strcmp(entries[i].key, field->key) == 0;
        if (field->required && !given)
            rc = yaml_file_error(
                    schema->file, node, schema->err, "%s lacks the key '%s'", what, field->key);
    }
    for (size_t i = 0; i < count && !rc; i++) {
        const struct field *field = schema_find(fields, entries[i].key);
        rc = schema_bind_value(schema, entries[i].value, field, (char *)target + field->offset);
    }
    free(entries);
    return rc;
}
