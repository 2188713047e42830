// SPDX-License-Identifier: Apache-2.0
// The same tables in JSON: what was bound is written normalised, every default filled in, and read
// back exactly. Absent is null. A document that does not fit was not written by us: -EBADMSG.
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "harness/plan/schema.h"

static const char *schema_json_key(const struct field *field)
{
    return field->json ? field->json : field->key;
}

static json_t *schema_texts_to_json(char *const *texts)
{
    if (!texts)
        return json_null();
    json_t *list = json_array();
    for (; *texts; texts++)
        json_array_append_new(list, json_string(*texts));
    return list;
}

static json_t *schema_value_to_json(const struct field *field, const void *at)
{
    switch (field->kind) {
    case FIELD_TEXT: {
        const char *text = *(char *const *)at;
        return text ? json_string(text) : json_null();
    }
    case FIELD_TEXTS:
        return schema_texts_to_json(*(char **const *)at);
    case FIELD_BOOL:
        return json_boolean(*(const bool *)at);
    case FIELD_SWITCH:
        return json_string(field->choices[*(const bool *)at]);
    case FIELD_CHOICE:
        return json_string(field->choices[*(const int *)at]);
    case FIELD_UINT: {
        uint64_t value = *(const uint64_t *)at;
        return value == 0 && field->zero_is_absent ? json_null() : json_integer((json_int_t)value);
    }
    case FIELD_DURATION:
        return json_integer(*(const int64_t *)at);
    case FIELD_NUMBER:
    case FIELD_FRACTION:
    case FIELD_RATE: {
        double value = *(const double *)at;
        return value == 0 && field->zero_is_absent ? json_null() : json_real(value);
    }
    case FIELD_MAP:
        return schema_to_json(field->fields, at);
    default:
        return field->custom->to_json(at);
    }
}

json_t *schema_to_json(const struct field *fields, const void *source)
{
    json_t *object = json_object();
    for (const struct field *field = fields; field->kind != FIELD_END; field++)
        json_object_set_new(object, schema_json_key(field),
                schema_value_to_json(field, (const char *)source + field->offset));
    return object;
}

// --- and back
// ---------------------------------------------------------------------------------------

static int schema_bad(struct error *err, const char *what)
{
    return error_set(err, -EBADMSG, "not what upgate writes: %s", what);
}

static int schema_texts_from_json(const json_t *json, char ***target, struct error *err)
{
    if (!json_is_array(json))
        return schema_bad(err, "not a list");
    size_t i;
    json_t *item;
    char **texts = xcalloc(json_array_size(json) + 1, sizeof *texts);
    *target = texts;
    json_array_foreach(json, i, item)
    {
        if (!json_is_string(item))
            return schema_bad(err, "not a list of text");
        texts[i] = xstrdup(json_string_value(item));
    }
    return 0;
}

static int schema_choice_from_json(
        const struct field *field, const json_t *json, int *ret, struct error *err)
{
    for (int i = 0; json_is_string(json) && field->choices[i]; i++) {
        if (strcmp(field->choices[i], json_string_value(json)) == 0) {
            *ret = i;
            return 0;
        }
    }
    return schema_bad(err, "an unknown name");
}

static int schema_value_from_json(
        const json_t *json, const struct field *field, void *at, struct error *err)
{
    int choice = 0, rc;
    switch (field->kind) {
    case FIELD_TEXT:
        if (!json_is_string(json))
            return schema_bad(err, "not text");
        free(*(char **)at);
        *(char **)at = xstrdup(json_string_value(json));
        return 0;
    case FIELD_TEXTS:
        return schema_texts_from_json(json, at, err);
    case FIELD_BOOL:
        *(bool *)at = json_is_true(json);
        return json_is_boolean(json) ? 0 : schema_bad(err, "neither true nor false");
    case FIELD_SWITCH:
        rc = schema_choice_from_json(field, json, &choice, err);
        *(bool *)at = choice == 1;
        return rc;
    case FIELD_CHOICE:
        return schema_choice_from_json(field, json, at, err);
    case FIELD_UINT:
        *(uint64_t *)at = (uint64_t)json_integer_value(json);
        return json_is_integer(json) && json_integer_value(json) >= 0
                ? 0
                : schema_bad(err, "not a whole number");
    case FIELD_DURATION:
        *(int64_t *)at = json_integer_value(json);
        return json_is_integer(json) ? 0 : schema_bad(err, "not a number of nanoseconds");
    case FIELD_MAP:
        return schema_from_json(json, field->fields, at, err);
    case FIELD_CUSTOM:
        return field->custom->from_json(json, at, err);
    default:
        *(double *)at = json_number_value(json);
        return json_is_number(json) ? 0 : schema_bad(err, "not a number");
    }
}

int schema_from_json(
        const json_t *json, const struct field *fields, void *target, struct error *err)
{
    if (!json_is_object(json))
        return schema_bad(err, "not a map");
    for (const struct field *field = fields; field->kind != FIELD_END; field++) {
        const json_t *value = json_object_get(json, schema_json_key(field));
        if (!value || json_is_null(value))
            continue;
        int rc = schema_value_from_json(value, field, (char *)target + field->offset, err);
        if (rc) {
            error_prefix(err, "%s", schema_json_key(field));
            return rc;
        }
    }
    return 0;
}

void schema_free(const struct field *fields, void *target)
{
    for (const struct field *field = fields; field->kind != FIELD_END; field++) {
        char *at = (char *)target + field->offset;
        if (field->kind == FIELD_TEXT) {
            free(*(char **)at);
            *(char **)at = NULL;
        } else if (field->kind == FIELD_TEXTS) {
            for (char **text = *(char ***)at; text && *text; text++)
                free(*text);
            free(*(char ***)at);
            *(char ***)at = NULL;
        } else if (field->kind == FIELD_MAP) {
            schema_free(field->fields, at);
        }
    }
}
