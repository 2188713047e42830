// SPDX-License-Identifier: Apache-2.0
// Compares two fingerprints: walks both documents side by side, matches libraries by their lasting
// name, weighs every difference with the table in rules.c, and sorts. A library behind a component
// that is already named as different is evidence, not another finding, and goes to the end.
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "harness/fingerprint/fingerprint.h"
#include "harness/fingerprint/library.h"
#include "harness/fingerprint/read.h"
#include "harness/fingerprint/rules.h"

enum {
    SUSPICION_IMPLIED = 4,  // behind a component or package that is listed itself
    SUSPICION_NEUTRAL = 14, // a setting that one side does not know, and that is off on the other
    // a package of which one side has the source tree: it is what is worked on
    SUSPICION_EDITABLE = 61,
    BUILD_ID_SHOWN = 12,
    WORDS_CHARACTERS_MAX = 400,
};

struct difference {
    json_t *object;
    int suspicion, order;
    const char *path; // owned by object
};

struct diff {
    const json_t *a, *b;
    struct difference *differences;
    size_t count;
    size_t noise_count;
    json_t *components_changed; // set of role names whose component line differs
    json_t *packages_changed;   // set of packages whose version differs
    bool interpreter_changed;
};

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static bool is_absent(const json_t *value)
{
    return !value || json_is_null(value);
}

// A value as people read it: "yes", "0.005", "700, 10, 10". The caller frees; NULL for absent.
static char *value_text(const json_t *value)
{
    if (is_absent(value))
        return NULL;
    if (json_is_string(value))
        return xstrdup(json_string_value(value));
    if (json_is_boolean(value))
        return xstrdup(json_is_true(value) ? "yes" : "no");
    if (json_is_integer(value))
        return xasprintf("%lld", (long long)json_integer_value(value));
    if (json_is_real(value))
        return xasprintf("%.6g", json_real_value(value));
    struct strbuf text = {0};
    if (json_is_array(value)) {
        size_t index;
        json_t *item;
        json_array_foreach((json_t *)value, index, item)
        {
            char *one = value_text(item);
            strbuf_add(&text, "%s%s", index ? ", " : "", one ? one : "none");
            free(one);
        }
        return strbuf_take(&text);
    }
    strbuf_add(&text, "(%zu entries)", json_object_size(value));
    return strbuf_take(&text);
}

// Addresses differ from run to run and mean nothing. Python prints them ("<function f at
// 0x7f12ab>"); elsewhere such a number is a value: a version of microcode, a threshold among the
// tunables of the C library.
static bool has_addresses(const char *path)
{
    return !strncmp(path, "python.", 7);
}

static void drop_addresses(char *text)
{
    char *to = text;
    for (char *from = text; *from;) {
        if (from[0] == '0' && from[1] == 'x' && isxdigit((unsigned char)from[2]))
            for (from += 2; isxdigit((unsigned char)*from);)
                from++;
        else
            *to++ = *from++;
    }
    *to = '\0';
}

static bool has_word(const char *text, const char *word, size_t length)
{
    for (const char *at = text; at && (at = memmem(at, strlen(at), word, length)); at++)
        if ((at == text || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    return false;
}

// Words of `text` that `other` has not, without warnings and path maps of compilers. NULL if none.
static char *words_only_in(const char *text, const char *other)
{
    static const char *const dull[] = {"-W", "-ffile-prefix-map", "-fdebug-prefix-map",
            "-fdiagnostics", "-I", "-D_FORTIFY_SOURCE"};
    struct strbuf only = {0};
    text = text ? text : "";
    // never an empty word
    for (const char *word = text + strspn(text, " "); *word; word += strspn(word, " ")) {
        size_t length = strcspn(word, " ");
        bool skip = other && has_word(other, word, length);
        for (size_t i = 0; i < sizeof(dull) / sizeof(dull[0]); i++)
            skip |= !strncmp(word, dull[i], strlen(dull[i]));
        if (!skip && only.len + length < WORDS_CHARACTERS_MAX)
            strbuf_add(&only, "%s%.*s", only.len ? " " : "", (int)length, word);
        word += length;
    }
    return only.len ? strbuf_take(&only) : NULL;
}

static char *label_of(const struct diff_rule *rule, const char *path)
{
    const char *last = strrchr(path, '.'), *mark = strstr(rule->what, "%s");
    last = last ? last + 1 : path;
    if (!mark)
        return xstrdup(rule->what);
    // Names of packages and libraries hold dots themselves; what stands behind the pattern's is the
    // name.
    size_t fixed = strcspn(rule->pattern, "*?[");
    if (!strncmp(path, "libraries.", 10))
        last = strchr(path + 10, '.') ? strchr(path + 10, '.') + 1 : path + 10;
    else if (fixed && fixed < strlen(path) && rule->pattern[fixed - 1] == '.')
        last = path + fixed;
    char *label = xasprintf("%.*s%s%s", (int)(mark - rule->what), rule->what, last, mark + 2);
    // Keys read better with blanks; names of variables, options, packages and libraries stay.
    bool is_name = !strncmp(path, "libraries.", 10) || !strncmp(path, "python.packages.", 16) ||
            isupper((unsigned char)*last);
    for (char *at = label; !is_name && *at; at++)
        if (*at == '_')
            *at = ' ';
    return label;
}

// Why a value is missing on one side, if its fingerprint says so.
static void put_reason(json_t *object, const char *key, const json_t *document, const char *path)
{
    const char *reason = text_of(json_object_get(document, "missing"), path);
    if (reason)
        json_object_set_new(object, key, json_text(reason));
}

static bool is_neutral(const char *text)
{
    static const char *const words[] = {
            "no", "none", "off", "OFF", "full", "default", "not loaded", "0"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (!strcmp(text, words[i]))
            return true;
    return false;
}

// File a difference. Takes text_a and text_b (either may be NULL: that side has no such thing).
static void file_difference(
        struct diff *diff, const char *path, char *text_a, char *text_b, bool implied)
{
    int order;
    const struct diff_rule *rule = diff_rule_for(path, &order);
    bool one_sided = !text_a || !text_b;
    int suspicion = one_sided ? rule->one_sided : rule->changed;
    if (implied && suspicion > SUSPICION_IMPLIED)
        suspicion = SUSPICION_IMPLIED;
    if (!one_sided && suspicion > 0 && suspicion < SUSPICION_EDITABLE &&
            !strncmp(path, "python.packages.", 16) &&
            (strstr(text_a, " (editable") || strstr(text_b, " (editable")))
        suspicion = SUSPICION_EDITABLE;
    if (one_sided && suspicion > SUSPICION_NEUTRAL && !strncmp(path, "python.", 7) &&
            is_neutral(text_a ? text_a : text_b))
        suspicion = SUSPICION_NEUTRAL;
    const char *state = !text_a ? "added" : !text_b ? "removed" : "changed";
    if (rule->form == DIFF_FORM_WORDS && !one_sided) {
        char *only_a = words_only_in(text_a, text_b), *only_b = words_only_in(text_b, text_a);
        free(text_a);
        free(text_b);
        text_a = only_a;
        text_b = only_b;
    }
    if (suspicion <= 0 || (!text_a && !text_b)) {
        diff->noise_count++;
        free(text_a);
        free(text_b);
        return;
    }
    json_t *object = json_object();
    json_object_set_new(object, "path", json_text(path));
    json_object_set_new(object, "what", json_text_take(label_of(rule, path)));
    json_object_set_new(object, "a", json_text_take(text_a));
    json_object_set_new(object, "b", json_text_take(text_b));
    json_object_set_new(object, "state", json_string(state));
    json_object_set_new(object, "suspicion", json_integer(suspicion));
    json_object_set_new(
            object, "why", json_text(implied ? "follows from a line above" : rule->why));
    if (one_sided) {
        put_reason(object, "reason_a", diff->a, path);
        put_reason(object, "reason_b", diff->b, path);
    }
    vector_push(diff->differences, diff->count,
            (struct difference){object, suspicion, order, text_of(object, "path")});
}

static void note_change(struct diff *diff, const char *path)
{
    static const char component[] = "components.", package[] = "python.packages.";
    if (!strncmp(path, component, sizeof(component) - 1))
        json_object_set_new(diff->components_changed, path + sizeof(component) - 1, json_true());
    if (!strncmp(path, package, sizeof(package) - 1))
        json_object_set_new(diff->packages_changed, path + sizeof(package) - 1, json_true());
    if (!strcmp(path, "components.interpreter"))
        diff->interpreter_changed = true;
}

static void compare_values(struct diff *diff, const char *path, const json_t *a, const json_t *b)
{
    char *text_a = value_text(a), *text_b = value_text(b);
    bool same = (!text_a && !text_b) || (text_a && text_b && !strcmp(text_a, text_b));
    if (same) {
        free(text_a);
        free(text_b);
        return;
    }
    if (text_a && text_b && has_addresses(path)) {
        char *plain_a = xstrdup(text_a), *plain_b = xstrdup(text_b);
        drop_addresses(plain_a);
        drop_addresses(plain_b);
        bool noise = !strcmp(plain_a, plain_b);
        free(plain_a);
        free(plain_b);
        if (noise) {
            diff->noise_count++;
            free(text_a);
            free(text_b);
            return;
        }
    }
    note_change(diff, path);
    file_difference(diff, path, text_a, text_b, false);
}

static bool is_object_array(const json_t *value)
{
    return json_is_array(value) && json_is_object(json_array_get(value, 0));
}

static bool walk_skips(const char *path)
{
    // Compared by their own rules below, or facts about the reading itself.
    static const char *const skipped[] = {"schema", "taken_wall_ns", "missing", "process.libraries",
            "read_ns", "process.exe", "python.collect_ns", "host.missing"};
    for (size_t i = 0; i < sizeof(skipped) / sizeof(skipped[0]); i++)
        if (!strcmp(path, skipped[i]))
            return true;
    return false;
}

static void walk(struct diff *diff, const char *path, const json_t *a, const json_t *b);

static void walk_member(
        struct diff *diff, const char *path, const char *key, const json_t *a, const json_t *b)
{
    char *inner = xasprintf("%s%s%s", path, *path ? "." : "", key);
    if (!walk_skips(inner))
        walk(diff, inner, a, b);
    free(inner);
}

static void walk_objects(struct diff *diff, const char *path, const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)a, key, value)
            walk_member(diff, path, key, value, json_object_get(b, key));
    json_object_foreach((json_t *)b, key, value) if (!json_object_get(a, key))
            walk_member(diff, path, key, NULL, value);
}

static void walk(struct diff *diff, const char *path, const json_t *a, const json_t *b)
{
    // A framework or interpreter that only one side has is one line among the components already.
    bool whole = !strcmp(path, "python") || !strcmp(path, "python.torch") ||
            !strcmp(path, "python.jax") || !strcmp(path, "python.tensorflow") ||
            !strcmp(path, "python.numpy");
    if (whole && (is_absent(a) || is_absent(b)))
        return;
    bool objects = (json_is_object(a) || is_absent(a)) && (json_is_object(b) || is_absent(b));
    if (objects && (json_is_object(a) || json_is_object(b))) {
        walk_objects(diff, path, a, b);
        return;
    }
    if (!is_object_array(a) && !is_object_array(b)) {
        compare_values(diff, path, a, b);
        return;
    }
    size_t count =
            json_array_size(a) > json_array_size(b) ? json_array_size(a) : json_array_size(b);
    for (size_t i = 0; i < count; i++) {
        char index[24];
        snprintf(index, sizeof(index), "%zu", i);
        walk_member(diff, path, index, json_array_get(a, i), json_array_get(b, i));
    }
}

// --- libraries and the program
// --------------------------------------------------------------------

// "1.2.13, build 0123456789ab" of one loaded object.
static char *build_text(const json_t *library)
{
    const char *version = text_of(library, "version"), *id = text_of(library, "build_id");
    const json_t *size = json_object_get(library, "size_bytes");
    struct strbuf text = {0};
    if (version && *version) // an added nothing allocates, and text.len says that nothing is there
        strbuf_add(&text, "%s", version);
    if (id)
        strbuf_add(&text, "%sbuild %.*s", text.len ? ", " : "", BUILD_ID_SHOWN, id);
    else if (json_is_integer(size))
        strbuf_add(
                &text, "%s%lld bytes", text.len ? ", " : "", (long long)json_integer_value(size));
    return text.len ? strbuf_take(&text) : xstrdup("not readable");
}

// {key: {"role": ..., "build": ...}} of the libraries of one side. Two objects with one key (two
// copies of libgomp) are told together, sorted by path as the fingerprint has them.
static json_t *libraries_by_key(const json_t *document)
{
    json_t *by_key = json_object(), *library;
    size_t index;
    json_array_foreach(
            json_object_get(json_object_get(document, "process"), "libraries"), index, library)
    {
        const char *key = text_of(library, "key"), *role = text_of(library, "role");
        if (!key || !role)
            continue;
        char *build = build_text(library);
        json_t *known = json_object_get(by_key, key);
        if (known && !strstr(text_of(known, "build"), build))
            json_object_set_new(known, "build",
                    json_text_take(xasprintf("%s + %s", text_of(known, "build"), build)));
        else if (!known)
            json_object_set_new(by_key, key, json_pack("{s:s,s:s}", "role", role, "build", build));
        free(build);
    }
    return by_key;
}

static bool library_is_implied(const struct diff *diff, const char *role, const char *key)
{
    if (json_object_get(diff->components_changed, role))
        return true;
    if (!strcmp(role, "framework"))
        return json_object_get(diff->components_changed, "torch") ||
                json_object_get(diff->components_changed, "jax") ||
                json_object_get(diff->components_changed, "tensorflow");
    if (strcmp(role, "extension"))
        return false;
    const char *slash = strchr(key, '/');
    if (!slash)
        return diff->interpreter_changed;
    char *package = xasprintf("%.*s", (int)(slash - key), key);
    bool implied = json_object_get(diff->packages_changed, package) ||
            json_object_get(diff->components_changed, package);
    free(package);
    return implied;
}

static void compare_library(struct diff *diff, const char *key, const json_t *a, const json_t *b)
{
    const char *build_a = text_of(a, "build"), *build_b = text_of(b, "build");
    if (build_a && build_b && !strcmp(build_a, build_b))
        return;
    const char *role = text_of(a ? a : b, "role");
    char *path = xasprintf("libraries.%s.%s", role, key);
    file_difference(diff, path, build_a ? xstrdup(build_a) : NULL,
            build_b ? xstrdup(build_b) : NULL, library_is_implied(diff, role, key));
    free(path);
}

static void compare_libraries(struct diff *diff)
{
    json_t *by_key_a = libraries_by_key(diff->a), *by_key_b = libraries_by_key(diff->b), *library;
    const char *key;
    json_object_foreach(by_key_a, key, library)
            compare_library(diff, key, library, json_object_get(by_key_b, key));
    json_object_foreach(by_key_b, key, library) if (!json_object_get(by_key_a, key))
            compare_library(diff, key, NULL, library);
    json_decref(by_key_a);
    json_decref(by_key_b);
}

static char *program_text(const json_t *exe)
{
    const char *key = text_of(exe, "key"), *compiler = text_of(exe, "compiler");
    if (!key)
        return NULL;
    char *build = build_text(exe);
    char *text =
            xasprintf("%s, %s%s%s", key, build, compiler ? ", " : "", compiler ? compiler : "");
    free(build);
    return text;
}

static void compare_program(struct diff *diff)
{
    const json_t *exe_a = json_object_get(json_object_get(diff->a, "process"), "exe");
    const json_t *exe_b = json_object_get(json_object_get(diff->b, "process"), "exe");
    bool python = !is_absent(json_object_get(diff->a, "python")) &&
            !is_absent(json_object_get(diff->b, "python"));
    char *text_a = program_text(exe_a), *text_b = program_text(exe_b);
    if ((!text_a && !text_b) || (text_a && text_b && !strcmp(text_a, text_b))) {
        free(text_a);
        free(text_b);
        return;
    }
    file_difference(diff, python ? "process.exe.interpreter" : "process.exe.program", text_a,
            text_b, false);
}

// --- the list
// -------------------------------------------------------------------------------------

static int compare_differences(const void *left, const void *right)
{
    const struct difference *a = left, *b = right;
    if (a->suspicion != b->suspicion)
        return b->suspicion - a->suspicion;
    return a->order != b->order ? a->order - b->order : strcmp(a->path, b->path);
}

static int check_schema(const json_t *document, const char *which, struct error *err)
{
    const char *schema = text_of(document, "schema");
    if (schema && !strcmp(schema, FINGERPRINT_SCHEMA))
        return 0;
    return error_set(err, -EINVAL,
            "failed to compare fingerprints: the one of %s is %s%s%s; this upgate reads "
            "%s",
            which, schema ? "'" : "no fingerprint", schema ? schema : "", schema ? "'" : "",
            FINGERPRINT_SCHEMA);
}

int fingerprint_diff(const json_t *a, const json_t *b, json_t **ret_differences,
        size_t *ret_noise_count, struct error *err)
{
    int code = check_schema(a, "the baseline", err);
    code = code ? code : check_schema(b, "the candidate", err);
    if (code)
        return code;
    struct diff diff = {
            .a = a, .b = b, .components_changed = json_object(), .packages_changed = json_object()};
    walk(&diff, "", a, b);
    compare_program(&diff);
    compare_libraries(&diff);
    if (diff.count)
        qsort(diff.differences, diff.count, sizeof(*diff.differences), compare_differences);
    json_t *array = json_array();
    for (size_t i = 0; i < diff.count; i++) {
        json_object_set_new(diff.differences[i].object, "rank", json_integer((json_int_t)i + 1));
        json_array_append_new(array, diff.differences[i].object);
    }
    free(diff.differences);
    json_decref(diff.components_changed);
    json_decref(diff.packages_changed);
    if (ret_noise_count)
        *ret_noise_count = diff.noise_count;
    *ret_differences = array;
    return 0;
}
