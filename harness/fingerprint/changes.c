// SPDX-License-Identifier: Apache-2.0
// Has a side become another one between two parts of a run, or is it another one on another node?
// Of what fingerprint_diff() finds only what is certain: two launches are not read at quite the
// same moment, and what one of them had not loaded yet is no change.
#include <fnmatch.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "harness/fingerprint/fingerprint.h"

enum { CHANGES_SHOWN = 5 };

// Which differences count; the first pattern that matches. Packages are those that are installed,
// so one that came or went counts too. Components that are made of several libraries grow while a
// program loads them: those libraries stand in lines of their own. What is of the program that was
// read says nothing of another one of the same side.
static const struct {
    const char *pattern;
    bool counts, one_sided, of_program;
} changes_paths[] = {
        {"*upgate*", false, false, false}, // ours: what we put into the process
        {"components.torch", true, false, false},
        {"components.jax", true, false, false},
        {"components.tensorflow", true, false, false},
        {"components.numpy", true, false, false},
        {"components.interpreter", true, false, true},
        {"python.packages.*", true, true, false},
        {"process.exe.*", true, false, true},
        {"libraries.*", true, false, true},
        {"host.gpu.driver", true, false, false},
        {"host.gpu.devices.*.name", true, false, false},
        {"host.gpu.devices.*.uuid", true, false, false},
};

static const json_t *changes_packages(const json_t *document)
{
    return json_object_get(json_object_get(document, "python"), "packages");
}

// "A + B", copies of one library: is each of the one also of the other?
static bool changes_within(const char *few, const char *many)
{
    for (size_t len; *few; few += len + (few[len] ? 3 : 0)) {
        const char *end = strstr(few, " + ");
        bool found = false;
        len = end ? (size_t)(end - few) : strlen(few);
        for (const char *at = strstr(many, " + "), *one = many; one && !found;
                one = at ? at + 3 : NULL, at = one ? strstr(one, " + ") : NULL)
            found = (at ? (size_t)(at - one) : strlen(one)) == len && strncmp(one, few, len) == 0;
        if (!found)
            return false;
    }
    return true;
}

// "1.2.13, build 0123456789ab" of a program's or library's two readings: the same thing, read more
// or less of it?
static bool changes_is_reading(const char *path, const char *before, const char *now)
{
    bool library = strncmp(path, "libraries.", 10) == 0,
         program = strncmp(path, "process.exe.", 12) == 0;
    size_t name = strcspn(before, ",");
    if (program && (strcspn(now, ",") != name || strncmp(before, now, name) != 0))
        return true; // another program: a shell that had not become the workload yet
    return (library || program) &&
            (strstr(before, "not readable") || strstr(now, "not readable") || strstr(before, now) ||
                    strstr(now, before) || changes_within(before, now) ||
                    changes_within(now, before));
}

static bool changes_counts(const json_t *difference, bool packages_known, bool same_program)
{
    const char *path = json_string_value(json_object_get(difference, "path"));
    const char *before = json_string_value(json_object_get(difference, "a")),
               *now = json_string_value(json_object_get(difference, "b"));
    for (size_t i = 0; path && i < sizeof changes_paths / sizeof *changes_paths; i++) {
        if (fnmatch(changes_paths[i].pattern, path, 0))
            continue;
        if (!changes_paths[i].counts || (!same_program && changes_paths[i].of_program))
            return false;
        if (before && now)
            return !changes_is_reading(path, before, now);
        return changes_paths[i].one_sided && packages_known && same_program;
    }
    return false;
}

// words: those in front of what `before` has.
static char *changes_text(
        const json_t *before, const json_t *now, bool same_program, const char *words)
{
    json_t *differences = NULL, *one;
    struct strbuf text = {0};
    size_t index, count = 0;
    bool packages_known =
            json_object_size(changes_packages(before)) && json_object_size(changes_packages(now));
    if (fingerprint_diff(before, now, &differences, NULL, NULL))
        return NULL; // of another version: nothing is known
    json_array_foreach(differences, index, one)
    {
        if (!changes_counts(one, packages_known, same_program) || count++ >= CHANGES_SHOWN)
            continue;
        const char *what = json_string_value(json_object_get(one, "what")),
                   *was = json_string_value(json_object_get(one, "a"));
        const char *is = json_string_value(json_object_get(one, "b"));
        strbuf_add(&text, "%s%.80s is %.100s, %s %.100s", text.len ? "; " : "", what,
                is ? is : "not there", words, was ? was : "not there");
    }
    if (count > CHANGES_SHOWN)
        strbuf_add(&text, "; and %zu more", count - CHANGES_SHOWN);
    json_decref(differences);
    return text.len ? strbuf_take(&text) : NULL;
}

char *fingerprint_changes(const json_t *before, const json_t *now, bool same_program)
{
    return changes_text(before, now, same_program, "was");
}

static const char *changes_image(const json_t *document)
{
    return json_string_value(json_object_get(json_object_get(document, "image"), "id"));
}

static json_t *changes_without_host(const json_t *document)
{
    json_t *copy = json_copy((json_t *)document);
    json_object_del(copy, "host");
    return copy;
}

char *fingerprint_apart(const json_t *first, const json_t *other, bool same_program)
{
    const char *image = changes_image(first), *image_there = changes_image(other);
    json_t *here = changes_without_host(first), *there = changes_without_host(other);
    char *text = changes_text(here, there, same_program, "on node 0");
    json_decref(here);
    json_decref(there);
    if (!image || !image_there || strcmp(image, image_there) == 0)
        return text;
    char *all = xasprintf("its image is %.80s, on node 0 %.80s%s%s", image_there, image,
            text ? "; " : "", text ? text : "");
    free(text);
    return all;
}
