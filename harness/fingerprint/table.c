// SPDX-License-Identifier: Apache-2.0
// Prints fingerprints and differences as text. Only layout lives here: what matters is decided by
// rules.c.
#include "harness/fingerprint/table.h"

#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "common/units.h"
#include "harness/fingerprint/read.h"

enum {
    WIDTH_DEFAULT = 100,
    WIDTH_MIN = 72,
    RANK_WIDTH = 4,
    WHAT_WIDTH = 26,
    CELL_LINES_MAX = 4,
    LISTED_SUSPICION_MIN = 20, // below, differences are summed up unless all are asked for
    NAMES_SHOWN = 8,
    VALUE_WIDTH_MIN = 20, // beside a long name
    KEY_WIDTH = 36,
};

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

// A fingerprint may come from a store that somebody has edited: anything may be missing.
static const char *text_or(const json_t *object, const char *key, const char *otherwise)
{
    const char *text = text_of(object, key);
    return text ? text : otherwise;
}

static char *plain(const char *text)
{
    char *copy = xstrdup(text);
    string_make_plain(copy, strlen(copy));
    for (char *at = copy; (at = strchr(at, '\n'));)
        *at = ' ';
    return copy;
}

// A copy whose keys and texts stay on their line: variables, paths and versions are whatever a side
// has made them.
static json_t *plain_copy(const json_t *value)
{
    const char *key;
    json_t *copy, *item;
    size_t index;
    if (json_is_object(value)) {
        copy = json_object();
        json_object_foreach((json_t *)value, key, item)
        {
            char *name = plain(key);
            json_object_set_new(copy, name, plain_copy(item));
            free(name);
        }
    } else if (json_is_array(value)) {
        copy = json_array();
        json_array_foreach((json_t *)value, index, item)
                json_array_append_new(copy, plain_copy(item));
    } else if (json_is_string(value)) {
        char *text = plain(json_string_value(value));
        copy = json_string(text);
        free(text);
    } else {
        copy = json_copy((json_t *)value);
    }
    return copy;
}

// Columns a UTF-8 text takes, one a character.
static size_t columns_of(const char *text, size_t bytes)
{
    size_t columns = 0;
    for (size_t i = 0; i < bytes && text[i]; i++)
        columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    return columns;
}

static size_t bytes_of_columns(const char *text, size_t columns)
{
    size_t bytes = 0;
    for (; text[bytes]; bytes++)
        if (((unsigned char)text[bytes] & 0xc0) != 0x80 && columns-- == 0)
            break;
    return bytes;
}

// Cut the next line of at most `width` columns from *rest, at a blank where there is one. Returns
// its length in bytes; *rest moves behind it.
static const char *next_line(const char **rest, size_t width, size_t *ret_bytes)
{
    const char *line = *rest;
    size_t bytes = bytes_of_columns(line, width);
    if (line[bytes]) {
        size_t blank = bytes;
        while (blank > bytes / 2 && line[blank] != ' ')
            blank--;
        if (line[blank] == ' ' && blank > bytes / 2)
            bytes = blank;
    }
    *ret_bytes = bytes;
    *rest = line + bytes + strspn(line + bytes, " ");
    return line;
}

static void print_padded(FILE *file, const char *text, size_t bytes, size_t width)
{
    size_t columns = columns_of(text, bytes);
    fprintf(file, "%.*s%*s", (int)bytes, text, columns < width ? (int)(width - columns) : 0, "");
}

static void print_cells(FILE *file, const char *const cells[3], const size_t widths[3])
{
    const char *rest[3] = {cells[0], cells[1], cells[2]};
    for (int line = 0; line < CELL_LINES_MAX && (*rest[0] || *rest[1] || *rest[2]); line++) {
        if (line)
            fprintf(file, "%*s", RANK_WIDTH, "");
        for (int cell = 0; cell < 3; cell++) {
            size_t bytes;
            bool last = line == CELL_LINES_MAX - 1;
            const char *text = next_line(&rest[cell], widths[cell] - 2 - last, &bytes);
            bool cut = last && *rest[cell];
            char *shown = xasprintf("%.*s%s", (int)bytes, text, cut ? "…" : "");
            bool more = (cell < 1 && *rest[1]) || (cell < 2 && *rest[2]);
            print_padded(file, shown, strlen(shown), more ? widths[cell] : 0);
            free(shown);
        }
        fputc('\n', file);
    }
}

static void print_wrapped(
        FILE *file, const char *text, size_t indent, size_t width, const struct table_opts *opts)
{
    while (*text) {
        size_t bytes;
        const char *line = next_line(&text, width - indent, &bytes);
        fprintf(file, "%*s%s%.*s%s\n", (int)indent, "", opts->color ? "\033[2m" : "", (int)bytes,
                line, opts->color ? "\033[0m" : "");
    }
}

// What to show for a side: its value, or why there is none.
static const char *cell_of(const json_t *difference, const char *side, const char *reason_key)
{
    static const char absent_mark[] = "not in this version";
    const char *value = text_of(difference, side), *reason = text_of(difference, reason_key);
    if (value)
        return *value ? value : "(empty)";
    if (!strcmp(text_of(difference, "state"), "changed")) // lists of which only the other has more
        return "nothing more";
    if (!reason && !strncmp(text_of(difference, "path"), "components.", 11))
        return "none loaded by itself"; // it may be linked into the framework
    if (!reason)
        return "none";
    return strncmp(reason, absent_mark, strlen(absent_mark)) ? reason : absent_mark;
}

struct group {
    const char *prefix, *title;
    size_t one_sided_a, one_sided_b, changed;
    struct strbuf names;
    size_t named;
};

static void group_add(struct group *group, const json_t *difference)
{
    const char *state = text_of(difference, "state"), *path = text_of(difference, "path");
    group->changed += !strcmp(state, "changed");
    group->one_sided_a += !strcmp(state, "removed");
    group->one_sided_b += !strcmp(state, "added");
    const char *name = path + strlen(group->prefix);
    if (!strcmp(group->prefix, "libraries.") && strchr(name, '.'))
        name = strchr(name, '.') + 1; // behind the role
    if (group->named++ < NAMES_SHOWN)
        strbuf_add(&group->names, "%s%s", group->names.len ? ", " : "", name);
}

static void print_groups(
        FILE *file, struct group *groups, size_t count, const struct table_opts *opts, size_t width)
{
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        struct group *group = &groups[i];
        if (!group->named)
            continue;
        if (!any)
            fprintf(file, "\nrarely matter or follow from the above (--all lists them)\n");
        any = true;
        fprintf(file,
                "    %-22s %zu changed, %zu only in the baseline, %zu only in the candidate\n",
                group->title, group->changed, group->one_sided_a, group->one_sided_b);
        char *names = xasprintf("%s%s", group->names.text, group->named > NAMES_SHOWN ? ", …" : "");
        print_wrapped(file, names, 8, width, opts);
        free(names);
        strbuf_free(&group->names);
    }
}

void fingerprint_print_diff(FILE *file, const json_t *differences, size_t noise_count,
        const char *name_a, const char *name_b, const struct table_opts *opts)
{
    json_t *copy = plain_copy(differences);
    differences = copy;
    size_t width = opts->width ? opts->width : WIDTH_DEFAULT;
    width = width < WIDTH_MIN ? WIDTH_MIN : width;
    size_t value_width = (width - RANK_WIDTH - WHAT_WIDTH) / 2;
    const size_t widths[3] = {
            WHAT_WIDTH, value_width, width - RANK_WIDTH - WHAT_WIDTH - value_width};
    struct group groups[] = {
            {.prefix = "python.packages.", .title = "packages"},
            {.prefix = "libraries.extension.", .title = "extension modules"},
            {.prefix = "libraries.", .title = "libraries"},
            {.prefix = "python.", .title = "settings of Python"},
            {.prefix = "", .title = "other settings"},
    };
    size_t count = sizeof(groups) / sizeof(groups[0]), index;
    char *head_a = xasprintf("baseline: %s", name_a), *head_b = xasprintf("candidate: %s", name_b);
    if (json_array_size(differences)) {
        fprintf(file, "%s%*s", opts->color ? "\033[1m" : "", RANK_WIDTH, "");
        print_cells(file, (const char *const[]){"what differs", head_a, head_b}, widths);
        fputs(opts->color ? "\033[0m" : "", file);
    }
    json_t *difference;
    json_array_foreach((json_t *)differences, index, difference)
    {
        const char *path = text_of(difference, "path");
        json_int_t suspicion = json_integer_value(json_object_get(difference, "suspicion"));
        if (!opts->all && suspicion < LISTED_SUSPICION_MIN) {
            size_t i = 0;
            while (i + 1 < count && strncmp(path, groups[i].prefix, strlen(groups[i].prefix)))
                i++;
            group_add(&groups[i], difference);
            continue;
        }
        fprintf(file, "%*zu  ", RANK_WIDTH - 2, index + 1);
        print_cells(file,
                (const char *const[]){text_of(difference, "what"),
                        cell_of(difference, "a", "reason_a"), cell_of(difference, "b", "reason_b")},
                widths);
        print_wrapped(file, text_of(difference, "why"), RANK_WIDTH + 2, width, opts);
    }
    print_groups(file, groups, count, opts, width);
    size_t total = json_array_size(differences);
    fprintf(file, "%s%zu difference%s, most suspicious first", total ? "\n" : "", total,
            total == 1 ? "" : "s");
    if (noise_count)
        fprintf(file, "; %zu without meaning left out (ids, paths, addresses)", noise_count);
    fputc('\n', file);
    free(head_a);
    free(head_b);
    json_decref(copy);
}

// --- one fingerprint
// ------------------------------------------------------------------------------

static void print_row(FILE *file, const char *key, const char *value, size_t width)
{
    const char *rest = value;
    size_t name = columns_of(key, strlen(key)), indent = name > KEY_WIDTH ? name : KEY_WIDTH;
    fprintf(file, "    %-*s ", KEY_WIDTH, key);
    do {
        size_t bytes,
                room = width > indent + 5 + VALUE_WIDTH_MIN ? width - indent - 5 : VALUE_WIDTH_MIN;
        const char *line = next_line(&rest, room, &bytes);
        fprintf(file, "%.*s\n", (int)bytes, line);
        indent = KEY_WIDTH; // of the lines below it
        if (*rest)
            fprintf(file, "    %-*s ", KEY_WIDTH, "");
    } while (*rest);
}

static char *scalar_text(const char *key, const json_t *value)
{
    size_t length = strlen(key);
    if (json_is_integer(value) && length > 6 && !strcmp(key + length - 6, "_bytes")) {
        char buffer[32];
        return xstrdup(
                unit_format_bytes(buffer, sizeof(buffer), (double)json_integer_value(value)));
    }
    if (json_is_string(value))
        return xstrdup(*json_string_value(value) ? json_string_value(value) : "(empty)");
    if (json_is_boolean(value))
        return xstrdup(json_is_true(value) ? "yes" : "no");
    if (json_is_null(value))
        return xstrdup("-");
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
    char *copy = xstrdup(text ? text : "-");
    free(text);
    return copy;
}

// All leaves below an object, as "a.b  value".
static void print_leaves(
        FILE *file, const char *prefix, const json_t *object, size_t width, bool all)
{
    static const char *const elsewhere[] = {
            "libraries", "packages", "collect_ns", "schema", "missing"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        bool skip = json_is_null(value) && !all;
        for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++)
            skip |= !strcmp(key, elsewhere[i]);
        if (skip)
            continue;
        char *path = xasprintf("%s%s%s", prefix, *prefix ? "." : "", key);
        if (json_is_object(value) && json_object_get(value, "soft") &&
                json_object_get(value, "hard")) {
            char *soft = scalar_text(key, json_object_get(value, "soft"));
            char *hard = scalar_text(key, json_object_get(value, "hard"));
            char *limit =
                    strcmp(soft, hard) ? xasprintf("%s, at most %s", soft, hard) : xstrdup(soft);
            print_row(file, path, limit, width);
            free(limit);
            free(hard);
            free(soft);
        } else if (json_is_object(value)) {
            print_leaves(file, path, value, width, all);
        } else if (json_is_array(value) && json_is_object(json_array_get(value, 0))) {
            for (size_t i = 0; i < json_array_size(value); i++) {
                char *item = xasprintf("%s.%zu", path, i);
                print_leaves(file, item, json_array_get(value, i), width, all);
                free(item);
            }
        } else {
            char *text = scalar_text(key, value);
            print_row(file, path, text, width);
            free(text);
        }
        free(path);
    }
}

static void print_title(FILE *file, const char *title, const struct table_opts *opts)
{
    fprintf(file, "\n%s%s%s\n", opts->color ? "\033[1m" : "", title, opts->color ? "\033[0m" : "");
}

static void print_libraries(FILE *file, const json_t *libraries, const struct table_opts *opts)
{
    size_t index, hidden = 0;
    json_t *library;
    char *title = xasprintf("libraries (%zu loaded)", json_array_size(libraries));
    print_title(file, title, opts);
    free(title);
    json_array_foreach((json_t *)libraries, index, library)
    {
        const char *role = text_or(library, "role", "other"),
                   *version = text_of(library, "version");
        const char *id = text_of(library, "build_id"), *problem = text_of(library, "problem");
        if (!opts->all && (!strcmp(role, "other") || !strcmp(role, "extension"))) {
            hidden++;
            continue;
        }
        fprintf(file, "    %-14s %-22s %-18s %-14.12s %s%s%s\n", role, text_or(library, "key", "-"),
                version ? version : "-", id ? id : "-", text_or(library, "path", "-"),
                problem ? "  " : "", problem ? problem : "");
    }
    if (hidden)
        fprintf(file, "    and %zu without a known role (--all lists them)\n", hidden);
}

static void print_packages(
        FILE *file, const json_t *packages, size_t width, const struct table_opts *opts)
{
    struct strbuf line = {0};
    const char *name;
    json_t *version;
    char *title = xasprintf("packages (%zu)", json_object_size(packages));
    print_title(file, title, opts);
    free(title);
    json_object_foreach((json_t *)packages, name, version)
    {
        const char *text = json_string_value(version);
        if (opts->all)
            fprintf(file, "    %-36s %s\n", name, text ? text : "-");
        else
            strbuf_add(&line, "%s%s %s", line.len ? ", " : "", name, text ? text : "-");
    }
    const char *rest = line.text ? line.text : "";
    while (*rest) {
        size_t bytes;
        const char *part = next_line(&rest, width - 4, &bytes);
        fprintf(file, "    %.*s\n", (int)bytes, part);
    }
    strbuf_free(&line);
}

void fingerprint_print(
        FILE *file, const json_t *document, const char *name, const struct table_opts *opts)
{
    size_t width = opts->width ? opts->width : WIDTH_DEFAULT;
    width = width < WIDTH_MIN ? WIDTH_MIN : width;
    json_t *copy = plain_copy(document);
    document = copy;
    const json_t *process = json_object_get(document, "process");
    const json_t *python = json_object_get(document, "python");
    fprintf(file, "%s%s%s\n", opts->color ? "\033[1m" : "", name, opts->color ? "\033[0m" : "");
    static const char *const parts[][2] = {{"image", "image"}, {"components", "components"},
            {"process", "process"}, {"python", "interpreter and frameworks"}, {"host", "machine"}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const json_t *part = json_object_get(document, parts[i][0]);
        if (!json_is_object(part))
            continue;
        print_title(file, parts[i][1], opts);
        print_leaves(file, "", part, width, opts->all);
    }
    if (json_is_array(json_object_get(process, "libraries")))
        print_libraries(file, json_object_get(process, "libraries"), opts);
    if (json_is_object(json_object_get(python, "packages")))
        print_packages(file, json_object_get(python, "packages"), width, opts);
    const json_t *missing = json_object_get(document, "missing");
    if (json_object_size(missing)) {
        print_title(file, "not known", opts);
        print_leaves(file, "", missing, width, opts->all);
    }
    json_decref(copy);
}
