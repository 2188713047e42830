// SPDX-License-Identifier: Apache-2.0
// Tables that bind a map of YAML, and of JSON, to a struct: one row a key. The same table gives
// defaults, parsing, the messages with line and column, the normalised JSON and the page in docs/.
#ifndef UPGATE_PLAN_SCHEMA_H
#define UPGATE_PLAN_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/error.h"
#include "harness/plan/yaml_file.h"

enum field_kind {
    FIELD_END,      // the last row
    FIELD_TEXT,     // char *; one line
    FIELD_TEXTS,    // char **, NULL-terminated; NULL = absent
    FIELD_BOOL,     // bool
    FIELD_SWITCH,   // bool by name: choices[0] is false, choices[1] true
    FIELD_CHOICE,   // an enum by name; value = index in choices
    FIELD_UINT,     // uint64_t; 0 is null in JSON when zero_is_absent
    FIELD_NUMBER,   // double
    FIELD_FRACTION, // double; "2%"
    FIELD_RATE,     // double; "200/s"
    FIELD_DURATION, // int64_t ns; "20ms"
    FIELD_MAP,      // a map with a table of its own
    FIELD_CUSTOM
};

struct schema {
    struct yaml_file *file;
    const struct field *root; // where misplaced keys are looked for
    struct error *err;
};

struct field_custom {
    const char *type; // for docs
    int (*bind)(struct schema *schema, yaml_node_t *node, void *target);
    json_t *(*to_json)(const void *target);
    int (*from_json)(const json_t *json, void *target, struct error *err);
};

struct field {
    const char *key;
    enum field_kind kind;
    size_t offset;
    const char *json; // its name in JSON where that differs (units last); NULL = key
    bool required;
    bool json_only;             // follows from other keys: not in YAML, not in docs
    bool zero_is_absent;        // numbers: 0 means "not given" and is null in JSON
    double min, max;            // both 0: any
    bool above_min;             // min itself is refused
    const char *const *choices; // NULL-terminated
    const struct field *fields; // FIELD_MAP; FIELD_CUSTOM: of its entries
    const struct field_custom *custom;
    const char *default_text; // parsed as a value of the plan would be
    const char *help;         // docs; says the default where it depends on other keys
};

void schema_set_defaults(const struct field *fields, void *target);

// Bind `node` to `target`. what names the map in messages ("a workload"). -EINVAL with position,
// nearest word and known keys. Strings are owned by target; on failure what was bound stays.
int schema_bind(struct schema *schema, yaml_node_t *node, const struct field *fields,
        const char *what, void *target);
// -EINVAL unless `node` is a list of 1 to YAML_FILE_ENTRIES_MAX. what: "workloads".
int schema_expect_list(
        struct schema *schema, const yaml_node_t *node, const char *what, const char *example);

// The entries of a map, for the caller to free. -EINVAL unless `node` is one. what: "'env'".
int schema_expect_map(struct schema *schema, yaml_node_t *node, const char *what,
        const char *example, struct yaml_entry **ret_entries, size_t *ret_count);

json_t *schema_to_json(const struct field *fields, const void *source); // new reference
// Only what schema_to_json wrote; -EBADMSG with the path otherwise. Missing keys keep their
// default.
int schema_from_json(
        const json_t *json, const struct field *fields, void *target, struct error *err);

void schema_free(const struct field *fields, void *target);

// A Markdown table of the keys; maps below follow as tables of their own.
void schema_print_markdown(const struct field *fields, const char *title, void *stream);

#endif
