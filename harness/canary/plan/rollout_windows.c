// SPDX-License-Identifier: Apache-2.0
// Windows and freezes of a rollout plan: bound from YAML, written to JSON, read back.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "harness/canary/plan/rollout_internal.h"
#include "harness/canary/plan/window.h"

struct window_words { // as a plan spells it
    char *days, *from, *to, *zone;
};

// clang-format off
const struct field rollout_window_fields[] = {
    {.key = "days", .kind = FIELD_TEXT, .offset = offsetof(struct window_words, days), .default_text = "mon-sun",
     .help = "`mon-thu`, `mon,wed,fri`"},
    {.key = "from", .kind = FIELD_TEXT, .offset = offsetof(struct window_words, from), .default_text = "00:00", .help = "time of day"},
    {.key = "to", .kind = FIELD_TEXT, .offset = offsetof(struct window_words, to), .default_text = "24:00",
     .help = "not included; before `from`: over midnight, of the day on which it opens"},
    {.key = "zone", .kind = FIELD_TEXT, .offset = offsetof(struct window_words, zone), .default_text = "UTC",
     .help = "of the time zone database, such as `Europe/Berlin`; of freezes, too: the first window's"},
    {.kind = FIELD_END},
};
// clang-format on

static int rollout_window_parse(
        const struct window_words *words, struct rollout_window *ret, struct error *err)
{
    struct rollout_window window = {0};
    int rc = window_parse_days(words->days, &window.days, err);
    if (!rc)
        rc = window_parse_minute(words->from, &window.from_min, err);
    if (!rc)
        rc = window_parse_minute(words->to, &window.to_min, err);
    if (!rc && window.from_min == window.to_min)
        rc = error_set(err, -EINVAL,
                "a window from %s to %s has no length; leave both out for whole days", words->from,
                words->to);
    if (!rc && strcmp(words->zone, "UTC") != 0)
        rc = window_check_zone(words->zone, err);
    if (rc)
        return rc;
    window.zone = strcmp(words->zone, "UTC") == 0 ? NULL : xstrdup(words->zone);
    *ret = window;
    return 0;
}

static int rollout_windows_bind(struct schema *schema, yaml_node_t *node, void *target)
{
    struct rollout *rollout = target;
    int rc = schema_expect_list(
            schema, node, "windows", "[{days: mon-thu, from: \"09:00\", to: \"16:00\"}]");
    for (yaml_node_item_t *item = rc ? NULL : node->data.sequence.items.start;
            item && item < node->data.sequence.items.top && !rc; item++) {
        yaml_node_t *one = yaml_file_node(schema->file, *item);
        struct window_words words = {0};
        struct rollout_window window;
        struct error why = {0};
        schema_set_defaults(rollout_window_fields, &words);
        rc = schema_bind(schema, one, rollout_window_fields, "a window", &words);
        if (!rc && rollout_window_parse(&words, &window, &why))
            rc = yaml_file_error(schema->file, one, schema->err, "%s", why.text);
        if (!rc)
            vector_push(rollout->windows, rollout->window_count, window);
        schema_free(rollout_window_fields, &words);
    }
    return rc;
}

static json_t *rollout_windows_to_json(const void *target)
{
    const struct rollout *rollout = target;
    json_t *list = json_array();
    for (int i = 0; i < rollout->window_count; i++) {
        const struct rollout_window *window = &rollout->windows[i];
        struct window_words words = {.days = window_format_days(window->days),
                .from = xasprintf("%02d:%02d", window->from_min / 60, window->from_min % 60),
                .to = xasprintf("%02d:%02d", window->to_min / 60, window->to_min % 60),
                .zone = xstrdup(window->zone ? window->zone : "UTC")};
        json_array_append_new(list, schema_to_json(rollout_window_fields, &words));
        schema_free(rollout_window_fields, &words);
    }
    return list;
}

static int rollout_windows_from_json(const json_t *json, void *target, struct error *err)
{
    struct rollout *rollout = target;
    size_t i;
    json_t *item;
    json_array_foreach(json, i, item)
    {
        struct window_words words = {0};
        struct rollout_window window;
        schema_set_defaults(rollout_window_fields, &words);
        int rc = schema_from_json(item, rollout_window_fields, &words, err);
        if (!rc && rollout_window_parse(&words, &window, err))
            rc = error_set(err, -EBADMSG,
                    "a window: not what upgate writes, or a time zone that this machine lacks");
        if (!rc)
            vector_push(rollout->windows, rollout->window_count, window);
        schema_free(rollout_window_fields, &words);
        if (rc)
            return rc;
    }
    return 0;
}

const struct field_custom rollout_windows_custom = {
        "list of maps", rollout_windows_bind, rollout_windows_to_json, rollout_windows_from_json};

static int rollout_freeze_bind(struct schema *schema, yaml_node_t *node, void *target)
{
    struct rollout *rollout = target;
    int rc = schema_expect_list(schema, node, "freeze", "[\"2026-12-20/2027-01-02\"]");
    for (yaml_node_item_t *item = rc ? NULL : node->data.sequence.items.start;
            item && item < node->data.sequence.items.top && !rc; item++) {
        yaml_node_t *one = yaml_file_node(schema->file, *item);
        struct rollout_freeze freeze;
        struct error why = {0};
        char buf[80];
        if (one->type != YAML_SCALAR_NODE)
            rc = yaml_file_error(schema->file, one, schema->err,
                    "an entry of 'freeze' must be text, not %s",
                    yaml_node_words(one, buf, sizeof buf));
        else if (window_parse_freeze((const char *)one->data.scalar.value, &freeze, &why))
            rc = yaml_file_error(schema->file, one, schema->err, "'freeze': %s", why.text);
        else
            vector_push(rollout->freezes, rollout->freeze_count, freeze);
    }
    return rc;
}

static json_t *rollout_freeze_to_json(const void *target)
{
    const struct rollout *rollout = target;
    json_t *list = json_array();
    for (int i = 0; i < rollout->freeze_count; i++)
        json_array_append_new(
                list, json_sprintf("%s/%s", rollout->freezes[i].from, rollout->freezes[i].to));
    return list;
}

static int rollout_freeze_from_json(const json_t *json, void *target, struct error *err)
{
    struct rollout *rollout = target;
    size_t i;
    json_t *item;
    json_array_foreach(json, i, item)
    {
        struct rollout_freeze freeze;
        if (!json_is_string(item) || window_parse_freeze(json_string_value(item), &freeze, NULL))
            return error_set(err, -EBADMSG, "not what upgate writes: a freeze");
        vector_push(rollout->freezes, rollout->freeze_count, freeze);
    }
    return 0;
}

const struct field_custom rollout_freeze_custom = {
        "list of text", rollout_freeze_bind, rollout_freeze_to_json, rollout_freeze_from_json};

void rollout_free_windows(struct rollout *rollout)
{
    for (int i = 0; i < rollout->window_count; i++)
        free(rollout->windows[i].zone);
    for (int i = 0; i < rollout->freeze_count; i++) {
        free(rollout->freezes[i].from);
        free(rollout->freezes[i].to);
    }
    free(rollout->windows);
    free(rollout->freezes);
}
