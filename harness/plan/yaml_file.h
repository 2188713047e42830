// SPDX-License-Identifier: Apache-2.0
// A YAML file as a tree of nodes that know their line and column. Refuses, in words, what no plan
// is: binary, too big, too deep, several documents. Knows nothing about plans.
#ifndef UPGATE_PLAN_YAML_FILE_H
#define UPGATE_PLAN_YAML_FILE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <yaml.h>

#include "common/error.h"

enum {
    YAML_FILE_BYTES_MAX = 1 << 20, // a plan of 1,000 workloads has 100 KiB
    YAML_FILE_DEPTH_MAX = 32,
    YAML_FILE_ENTRIES_MAX = 1024 // of one map or list
};

struct yaml_file {
    const char *path; // borrowed
    char *text;
    yaml_document_t document;
    bool loaded;
};

// -EINVAL for everything that is wrong in the file, also when it does not exist. Free with
// yaml_file_close, on failure too.
int yaml_file_open(const char *path, struct yaml_file *ret_file, struct error *err);
void yaml_file_close(struct yaml_file *file);
yaml_node_t *yaml_file_root(struct yaml_file *file);
yaml_node_t *yaml_file_node(struct yaml_file *file, int id);

// "PATH:LINE:COLUMN: text"; returns -EINVAL. node NULL: no position.
int yaml_file_error(const struct yaml_file *file, const yaml_node_t *node, struct error *err,
        const char *fmt, ...) __attribute__((format(printf, 4, 5)));

// The entries of a map, merge keys (<<) resolved: own entries first. -EINVAL for keys that are no
// text or that occur twice. The caller frees the array.
struct yaml_entry {
    const char *key;
    yaml_node_t *key_node, *value;
};
int yaml_file_entries(struct yaml_file *file, yaml_node_t *map, struct yaml_entry **ret_entries,
        size_t *ret_count, struct error *err);

// The node at "workloads.1.command.0". What does not exist gives the last node on the way there.
// want_key: of the last step its key, where errors about the name belong.
yaml_node_t *yaml_file_find(struct yaml_file *file, const char *path, bool want_key);

// In words: "a list", "a map", "'text'" (cut). buf has size bytes.
const char *yaml_node_words(const yaml_node_t *node, char *buf, size_t size);
bool yaml_node_is_null(const yaml_node_t *node); // plain ~, null or nothing

#endif
