// SPDX-License-Identifier: Apache-2.0
// Walks two JSON answers side by side: what must be equal is compared at once, numbers are gathered
// by field and compared together, so that one that is near 0 is not judged by itself.
#include "harness/canary/shadow/shadow_parity.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/parity.h"

enum { PARITY_DEPTH_MAX = 64, PARITY_FIELDS_MAX = 1000 };

struct parity_field { // numbers of one path
    char *path;
    double *a, *b;
    size_t count;
};

struct parity_walk {
    const struct shadow_rule *rule;
    struct parity_field *fields;
    size_t field_count;
    char *what, *path; // the first difference
};

static void walk_differ(struct parity_walk *walk, const char *path, char *what)
{
    if (walk->what) {
        free(what);
        return;
    }
    walk->what = what;
    walk->path = xstrdup(path);
}

static bool walk_listed(const char *const *list, const char *word)
{
    for (; list && *list; list++)
        if (strcmp(*list, word) == 0)
            return true;
    return false;
}

static void walk_number(struct parity_walk *walk, const char *path, double a, double b)
{
    struct parity_field *field = NULL;
    for (size_t i = walk->field_count; i-- > 0 && !field;) // nearly always the last one
        if (strcmp(walk->fields[i].path, path) == 0)
            field = &walk->fields[i];
    if (!field && walk->field_count == PARITY_FIELDS_MAX) {
        walk_differ(walk, path,
                xasprintf("more than %d fields with numbers: not compared", PARITY_FIELDS_MAX));
        return;
    }
    if (!field) {
        vector_push(walk->fields, walk->field_count, (struct parity_field){.path = xstrdup(path)});
        field = &walk->fields[walk->field_count - 1];
    }
    field->a = vector_room(field->a, field->count, sizeof *field->a);
    field->b = vector_room(field->b, field->count, sizeof *field->b);
    field->a[field->count] = a;
    field->b[field->count++] = b;
}

static void walk_value(
        struct parity_walk *walk, const json_t *a, const json_t *b, const char *path, int depth);

static void walk_object(
        struct parity_walk *walk, const json_t *a, const json_t *b, const char *path, int depth)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)a, key, value)
    {
        char *below = xasprintf("%s.%s", path, key);
        const json_t *other = json_object_get(b, key);
        if (walk_listed(walk->rule->ignore, key) || walk_listed(walk->rule->paths, below)) {
            free(below);
            continue;
        }
        if (other)
            walk_value(walk, value, other, below, depth + 1);
        else
            walk_differ(walk, below, xasprintf("%.100s is missing", below));
        free(below);
    }
    json_object_foreach((json_t *)b, key, value)
    {
        char *below = xasprintf("%s.%s", path, key);
        if (!json_object_get(a, key) && !walk_listed(walk->rule->ignore, key) &&
                !walk_listed(walk->rule->paths, below))
            walk_differ(walk, below, xasprintf("%.100s is new", below));
        free(below);
    }
}

static void walk_array(
        struct parity_walk *walk, const json_t *a, const json_t *b, const char *path, int depth)
{
    if (json_array_size(a) != json_array_size(b)) {
        walk_differ(walk, path,
                xasprintf("%.100s has %zu elements and %zu", *path ? path : "the answer",
                        json_array_size(a), json_array_size(b)));
        return;
    }
    char *below = xasprintf("%s[]", path);
    for (size_t i = 0; i < json_array_size(a); i++)
        walk_value(walk, json_array_get(a, i), json_array_get(b, i), below, depth + 1);
    free(below);
}

static void walk_value(
        struct parity_walk *walk, const json_t *a, const json_t *b, const char *path, int depth)
{
    const char *name = *path ? path : "the answer";
    if (walk->what || walk_listed(walk->rule->paths, path))
        return;
    if (depth > PARITY_DEPTH_MAX)
        walk_differ(walk, path, xasprintf("deeper than %d levels: not compared", PARITY_DEPTH_MAX));
    else if (json_is_integer(a) && json_is_integer(b) &&
            json_integer_value(a) != json_integer_value(b))
        // Identifiers, classes, counts: one beside another is not nearly right.
        walk_differ(walk, path,
                xasprintf("%.100s is %lld and %lld", name, (long long)json_integer_value(a),
                        (long long)json_integer_value(b)));
    else if (json_is_integer(a) && json_is_integer(b))
        return;
    else if (json_is_number(a) && json_is_number(b))
        walk_number(walk, path, json_number_value(a), json_number_value(b));
    else if (json_typeof(a) != json_typeof(b))
        walk_differ(walk, path, xasprintf("%.100s is of another type", name));
    else if (json_is_object(a))
        walk_object(walk, a, b, path, depth);
    else if (json_is_array(a))
        walk_array(walk, a, b, path, depth);
    else if (!json_equal(a, b))
        walk_differ(walk, path, xasprintf("%.100s is another text", name));
}

// The largest distance of all fields; the field that exceeds the limit most is the difference.
static double walk_distance(struct parity_walk *walk)
{
    double worst = NAN;
    const struct parity_field *at = NULL;
    for (size_t i = 0; i < walk->field_count; i++) {
        const struct parity_field *field = &walk->fields[i];
        struct parity_error error = parity_distance(
                field->a, field->b, field->count, parity_rms(field->a, field->count));
        double distance = fmax(error.all, error.chunk);
        if (!(distance <= worst))
            worst = distance, at = field;
    }
    if (at && !(worst <= walk->rule->limit))
        walk_differ(
                walk, at->path, xasprintf("%.100s differs by %.2g of its rms", at->path, worst));
    return worst;
}

// Python, Go and C libraries write these words; JSON has none of them. Outside of strings only.
static bool parity_has_nan(const struct shadow_answer *answer)
{
    bool text = false;
    for (size_t i = 0; i < answer->size; i++) {
        char c = answer->body[i];
        if (text && c == '\\')
            i++;
        else if (c == '"')
            text = !text;
        else if (!text && answer->size - i >= 3 &&
                (strncasecmp(answer->body + i, "nan", 3) == 0 ||
                        strncasecmp(answer->body + i, "inf", 3) == 0) &&
                (i == 0 || !isalnum((unsigned char)answer->body[i - 1])))
            return true;
    }
    return false;
}

static bool parity_meant_json(const struct shadow_answer *answer)
{
    size_t at = 0;
    while (at < answer->size && isspace((unsigned char)answer->body[at]))
        at++;
    return at < answer->size && (answer->body[at] == '{' || answer->body[at] == '[');
}

static json_t *parity_load(const struct shadow_answer *answer)
{
    return parity_meant_json(answer) ? json_loadb(answer->body, answer->size, 0, NULL) : NULL;
}

static void parity_json(const json_t *a, const json_t *b, const struct shadow_rule *rule,
        struct shadow_compared *ret)
{
    struct parity_walk walk = {.rule = rule};
    walk_value(&walk, a, b, "", 0);
    ret->distance = walk.what ? NAN : walk_distance(&walk);
    ret->what = walk.what;
    ret->path = walk.path;
    for (size_t i = 0; i < walk.field_count; i++) {
        free(walk.fields[i].path);
        free(walk.fields[i].a);
        free(walk.fields[i].b);
    }
    free(walk.fields);
}

void shadow_compare(const struct shadow_answer *baseline, const struct shadow_answer *candidate,
        const struct shadow_rule *rule, struct shadow_compared *ret)
{
    *ret = (struct shadow_compared){.distance = NAN};
    json_t *a = parity_load(baseline), *b = parity_load(candidate);
    // Only of what was to be JSON: a page of text may speak of infinity.
    ret->nan[0] = !a && parity_meant_json(baseline) && parity_has_nan(baseline);
    ret->nan[1] = !b && parity_meant_json(candidate) && parity_has_nan(candidate);
    if (baseline->status != candidate->status)
        ret->what = xasprintf("status %ld and %ld", baseline->status, candidate->status);
    else if (ret->nan[0] || ret->nan[1])
        ret->what = xasprintf("NaN or Infinity in the answer of %s",
                !ret->nan[1]          ? "the baseline"
                        : ret->nan[0] ? "both"
                                      : "the candidate");
    else if (a && b)
        parity_json(a, b, rule, ret);
    else if (a || b)
        ret->what = xasprintf("the answer of the %s is no JSON", a ? "candidate" : "baseline");
    else if (baseline->size != candidate->size ||
            memcmp(baseline->body, candidate->body, baseline->size) != 0)
        ret->what = xasprintf("%zu bytes and %zu, which differ", baseline->size, candidate->size);
    ret->equal = !ret->what;
    json_decref(a);
    json_decref(b);
}

void shadow_compared_clear(struct shadow_compared *compared)
{
    free(compared->what);
    free(compared->path);
    *compared = (struct shadow_compared){.distance = NAN};
}
