// SPDX-License-Identifier: Apache-2.0
// Loads a YAML file by libyaml's document API, whose nodes carry the marks that every message about
// a plan needs. libcyaml, which binds YAML to structs, was looked at and left: it cannot load maps
// with free keys (env, metrics) and gives no position for a value that fails a later check. Reads
// one file, writes nothing. Not a YAML parser: libyaml is.
#include "harness/plan/yaml_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"

enum { YAML_FILE_MERGE_DEPTH_MAX = 8, YAML_FILE_MERGE_STEPS_MAX = 65536 };

static int yaml_file_fail(const struct yaml_file *file, size_t line, size_t column,
        struct error *err, const char *text)
{
    return error_set(err, -EINVAL, "%s:%zu:%zu: %s", file->path, line + 1, column + 1, text);
}

int yaml_file_error(const struct yaml_file *file, const yaml_node_t *node, struct error *err,
        const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = xvasprintf(fmt, args);
    va_end(args);
    if (node)
        yaml_file_fail(file, node->start_mark.line, node->start_mark.column, err, text);
    else
        error_set(err, -EINVAL, "%s: %s", file->path, text);
    free(text);
    return -EINVAL;
}

// libyaml's reader says only at which byte it stumbled.
static void yaml_file_locate(
        const struct yaml_file *file, size_t offset, size_t *ret_line, size_t *ret_column)
{
    *ret_line = *ret_column = 0;
    for (size_t i = 0; i < offset && file->text[i]; i++) {
        bool starts_character = ((unsigned char)file->text[i] & 0xc0) != 0x80;
        *ret_column += starts_character;
        if (file->text[i] == '\n') {
            ++*ret_line;
            *ret_column = 0;
        }
    }
}

static bool yaml_file_tab_at(const struct yaml_file *file, size_t line, size_t column)
{
    const char *at = file->text;
    for (; line && at; line--) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    if (!at)
        return false;
    size_t indent = strspn(at, " \t");
    return column <= indent && memchr(at, '\t', indent);
}

static int yaml_file_parser_error(
        const struct yaml_file *file, const yaml_parser_t *parser, struct error *err)
{
    const char *problem = parser->problem ? parser->problem : "unreadable";
    size_t line = parser->problem_mark.line, column = parser->problem_mark.column;
    char *text;
    if (parser->error == YAML_READER_ERROR) {
        yaml_file_locate(file, parser->problem_offset, &line, &column);
        text = xasprintf("not UTF-8 text: %s", problem);
    } else if (yaml_file_tab_at(file, line, column)) {
        text = xasprintf("not valid YAML: a tab; indent with spaces");
    } else if (parser->context && parser->context_mark.line != line) {
        text = xasprintf("not valid YAML: %s, %s that starts in line %zu", problem, parser->context,
                parser->context_mark.line + 1);
    } else {
        text = xasprintf("not valid YAML: %s", problem);
    }
    int rc = yaml_file_fail(file, line, column, err, text);
    free(text);
    return rc;
}

static void yaml_file_parser_init(yaml_parser_t *parser, const struct yaml_file *file, size_t len)
{
    if (!yaml_parser_initialize(parser))
        abort(); // only out of memory
    yaml_parser_set_input_string(parser, (const unsigned char *)file->text, len);
}

// A pass over the events, before anything is built: depth, size of the documents, their number.
static int yaml_file_check_events(const struct yaml_file *file, size_t len, struct error *err)
{
    yaml_parser_t parser;
    yaml_file_parser_init(&parser, file, len);
    int rc = 0, depth = 0, documents = 0;
    for (bool end = false; !end && !rc;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            rc = yaml_file_parser_error(file, &parser, err);
            break;
        }
        yaml_event_type_t type = event.type;
        yaml_mark_t mark = event.start_mark;
        yaml_event_delete(&event);
        end = type == YAML_STREAM_END_EVENT;
        documents += type == YAML_DOCUMENT_START_EVENT;
        depth += type == YAML_SEQUENCE_START_EVENT || type == YAML_MAPPING_START_EVENT;
        depth -= type == YAML_SEQUENCE_END_EVENT || type == YAML_MAPPING_END_EVENT;
        if (depth > YAML_FILE_DEPTH_MAX)
            rc = yaml_file_fail(file, mark.line, mark.column, err, "nested too deep");
        else if (documents > 1)
            rc = yaml_file_fail(
                    file, mark.line, mark.column, err, "a second document; one file is one plan");
    }
    yaml_parser_delete(&parser);
    return rc;
}

static int yaml_file_read(struct yaml_file *file, size_t *ret_len, struct error *err)
{
    file->text = string_read_file(file->path, YAML_FILE_BYTES_MAX + 1, ret_len);
    if (!file->text) {
        int code = errno == ENOENT || errno == EISDIR || errno == ENOTDIR ? -EINVAL : -errno;
        return error_set(err, code, "failed to read '%s': %s", file->path, strerror(errno));
    }
    if (*ret_len > YAML_FILE_BYTES_MAX)
        return error_set(err, -EINVAL, "'%s' is larger than 1 MiB; that is no plan", file->path);
    if (memchr(file->text, 0, *ret_len))
        return error_set(
                err, -EINVAL, "'%s' is a binary file; a plan is YAML in UTF-8", file->path);
    return 0;
}

int yaml_file_open(const char *path, struct yaml_file *ret_file, struct error *err)
{
    *ret_file = (struct yaml_file){.path = path};
    size_t len = 0;
    int rc = yaml_file_read(ret_file, &len, err);
    if (!rc)
        rc = yaml_file_check_events(ret_file, len, err);
    if (rc)
        return rc;
    yaml_parser_t parser;
    yaml_file_parser_init(&parser, ret_file, len);
    ret_file->loaded = yaml_parser_load(&parser, &ret_file->document);
    if (!ret_file->loaded)
        rc = yaml_file_parser_error(ret_file, &parser, err);
    else if (!yaml_file_root(ret_file))
        rc = error_set(err, -EINVAL, "'%s' is empty", path);
    yaml_parser_delete(&parser);
    return rc;
}

void yaml_file_close(struct yaml_file *file)
{
    if (file->loaded)
        yaml_document_delete(&file->document);
    free(file->text);
    *file = (struct yaml_file){0};
}

yaml_node_t *yaml_file_root(struct yaml_file *file)
{
    return yaml_document_get_root_node(&file->document);
}

yaml_node_t *yaml_file_node(struct yaml_file *file, int id)
{
    return yaml_document_get_node(&file->document, id);
}

const char *yaml_node_words(const yaml_node_t *node, char *buf, size_t size)
{
    if (node->type == YAML_SEQUENCE_NODE)
        return "a list";
    if (node->type == YAML_MAPPING_NODE)
        return "a map";
    snprintf(buf, size, "'%.60s'", (const char *)node->data.scalar.value);
    return buf;
}

bool yaml_node_is_null(const yaml_node_t *node)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    if (node->type != YAML_SCALAR_NODE || node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp((const char *)node->data.scalar.value, words[i]) == 0)
            return true;
    return false;
}

// --- maps
// -----------------------------------------------------------------------------------------

struct yaml_collector {
    struct yaml_file *file;
    struct yaml_entry *entries;
    size_t count;
    size_t steps; // bounds merges of merges of merges
    struct error *err;
};

static int yaml_collect(struct yaml_collector *to, yaml_node_t *map, int merge_depth);

// <<: *one, or <<: [*one, *two]
static int yaml_collect_merge(struct yaml_collector *to, yaml_node_t *value, int merge_depth)
{
    if (value->type == YAML_MAPPING_NODE)
        return yaml_collect(to, value, merge_depth + 1);
    if (value->type != YAML_SEQUENCE_NODE)
        return yaml_file_error(to->file, value, to->err, "'<<' takes a map or a list of maps");
    int rc = 0;
    for (yaml_node_item_t *item = value->data.sequence.items.start;
            item < value->data.sequence.items.top && !rc; item++) {
        yaml_node_t *one = yaml_file_node(to->file, *item);
        if (one->type != YAML_MAPPING_NODE)
            return yaml_file_error(to->file, one, to->err, "'<<' takes a map or a list of maps");
        rc = yaml_collect(to, one, merge_depth + 1);
    }
    return rc;
}

static int yaml_collect_entry(
        struct yaml_collector *to, yaml_node_t *key, yaml_node_t *value, size_t own_begin)
{
    const char *text = (const char *)key->data.scalar.value;
    for (size_t i = 0; i < to->count; i++) {
        if (strcmp(to->entries[i].key, text) != 0)
            continue;
        if (i < own_begin) // merged, and overridden by the map that merges
            return 0;
        return yaml_file_error(to->file, key, to->err, "duplicate key '%s'; first in line %zu",
                text, to->entries[i].key_node->start_mark.line + 1);
    }
    if (to->count == YAML_FILE_ENTRIES_MAX)
        return yaml_file_error(
                to->file, key, to->err, "more than %d keys in one map", YAML_FILE_ENTRIES_MAX);
    vector_push(to->entries, to->count, (struct yaml_entry){text, key, value});
    return 0;
}

static int yaml_collect(struct yaml_collector *to, yaml_node_t *map, int merge_depth)
{
    if (merge_depth > YAML_FILE_MERGE_DEPTH_MAX || to->steps > YAML_FILE_MERGE_STEPS_MAX)
        return yaml_file_error(to->file, map, to->err, "merge keys nested too deep");
    size_t own_begin = to->count;
    int rc = 0;
    // Own entries first, so that they win over merged ones wherever '<<' stands.
    for (int merging = 0; merging <= 1; merging++) {
        for (yaml_node_pair_t *pair = map->data.mapping.pairs.start;
                pair < map->data.mapping.pairs.top && !rc; pair++) {
            yaml_node_t *key = yaml_file_node(to->file, pair->key);
            yaml_node_t *value = yaml_file_node(to->file, pair->value);
            char buf[80];
            to->steps++;
            if (key->type != YAML_SCALAR_NODE || yaml_node_is_null(key) ||
                    strlen((const char *)key->data.scalar.value) != key->data.scalar.length)
                return yaml_file_error(to->file, key, to->err, "a key must be a word, not %s",
                        yaml_node_words(key, buf, sizeof buf));
            bool is_merge = key->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
                    strcmp((const char *)key->data.scalar.value, "<<") == 0;
            if (merging && is_merge)
                rc = yaml_collect_merge(to, value, merge_depth);
            else if (!merging && !is_merge)
                rc = yaml_collect_entry(to, key, value, own_begin);
        }
    }
    return rc;
}

int yaml_file_entries(struct yaml_file *file, yaml_node_t *map, struct yaml_entry **ret_entries,
        size_t *ret_count, struct error *err)
{
    struct yaml_collector collector = {.file = file, .err = err};
    int rc = yaml_collect(&collector, map, 0);
    if (rc) {
        free(collector.entries);
        return rc;
    }
    *ret_entries = collector.entries;
    *ret_count = collector.count;
    return 0;
}

static yaml_node_t *yaml_file_step(
        struct yaml_file *file, yaml_node_t *node, const char *word, yaml_node_t **ret_key)
{
    yaml_node_t *found = NULL;
    *ret_key = NULL;
    if (node->type == YAML_SEQUENCE_NODE) {
        yaml_node_item_t *item = node->data.sequence.items.start + atoi(word);
        return item < node->data.sequence.items.top ? yaml_file_node(file, *item) : NULL;
    }
    struct yaml_entry *entries;
    size_t count;
    if (node->type != YAML_MAPPING_NODE || yaml_file_entries(file, node, &entries, &count, NULL))
        return NULL;
    for (size_t i = 0; i < count && !found; i++) {
        if (strcmp(entries[i].key, word) == 0) {
            found = entries[i].value;
            *ret_key = entries[i].key_node;
        }
    }
    free(entries);
    return found;
}

yaml_node_t *yaml_file_find(struct yaml_file *file, const char *path, bool want_key)
{
    yaml_node_t *node = yaml_file_root(file), *key = NULL;
    char *words = xstrdup(path), *save = NULL;
    for (char *word = strtok_r(words, ".", &save); word; word = strtok_r(NULL, ".", &save)) {
        yaml_node_t *next_key, *next = yaml_file_step(file, node, word, &next_key);
        if (!next)
            break;
        node = next;
        key = next_key;
    }
    free(words);
    return want_key && key ? key : node;
}
