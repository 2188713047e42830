// SPDX-License-Identifier: Apache-2.0
// Composes the fingerprint of a side from what the process showed and what its interpreter said,
// and derives its components: one line for "the BLAS", whether it is a file of its own, a copy
// inside the framework, or two of them. Components are what people compare; libraries are the
// evidence.
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "harness/fingerprint/fingerprint.h"
#include "harness/fingerprint/library.h"
#include "harness/fingerprint/read.h"

enum { PARTS_MAX = 16 };

// One implementation behind a component: "OpenBLAS", "0.3.31", "numpy's own". All owned.
struct part {
    char *name, *version, *where;
};
struct parts {
    struct part part[PARTS_MAX];
    size_t count;
};

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static void parts_add(struct parts *parts, const char *name, const char *version, const char *where)
{
    for (size_t i = 0; i < parts->count; i++) {
        struct part *known = &parts->part[i];
        if (strcmp(known->name, name) || !same_text(known->where, where))
            continue;
        if (same_text(known->version, version) || !version)
            return;
        if (!known->version) { // several files of one product; some do not carry the version
            known->version = xstrdup(version);
            return;
        }
    }
    if (parts->count < PARTS_MAX)
        parts->part[parts->count++] = (struct part){
                xstrdup(name), version ? xstrdup(version) : NULL, where ? xstrdup(where) : NULL};
}

static void parts_clear(struct parts *parts)
{
    for (size_t i = 0; i < parts->count; i++) {
        free(parts->part[i].name);
        free(parts->part[i].version);
        free(parts->part[i].where);
    }
    *parts = (struct parts){0};
}

static char *parts_text(const struct parts *parts)
{
    struct strbuf text = {0};
    for (size_t i = 0; i < parts->count; i++) {
        const struct part *part = &parts->part[i];
        strbuf_add(&text, "%s%s", i ? ", " : "", part->name);
        if (part->version)
            strbuf_add(&text, " %s", part->version);
        if (part->where)
            strbuf_add(&text, " (%s)", part->where);
    }
    return parts->count ? strbuf_take(&text) : NULL;
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

// Walk objects by a dotted path; NULL when it leads nowhere. Keys with dots are not reachable.
static const json_t *value_at(const json_t *object, const char *path)
{
    while (object && *path) {
        size_t length = strcspn(path, ".");
        char *key = xasprintf("%.*s", (int)length, path);
        object = json_object_get(object, key);
        free(key);
        path += length + (path[length] == '.');
    }
    return object;
}

static const char *text_at(const json_t *object, const char *path)
{
    return json_string_value(value_at(object, path));
}

// A wheel that brings its own copy of a library serves itself with it, nobody else.
static const char *owner_of(const char *path)
{
    static const char *const owners[][2] = {
            {"/numpy.libs/", "numpy's own"},
            {"/scipy.libs/", "scipy's own"},
            {"/torch/lib/", "torch's own"},
            {"/torch.libs/", "torch's own"},
            {"/scikit_learn.libs/", "scikit-learn's own"},
            {"/opencv_python", "opencv's own"},
    };
    for (size_t i = 0; i < sizeof(owners) / sizeof(owners[0]); i++)
        if (strstr(path, owners[i][0]))
            return owners[i][1];
    return NULL;
}

// Does it lie among the packages of another environment, from where LD_LIBRARY_PATH or an RPATH has
// taken it?
static bool is_foreign(const json_t *python, const char *path)
{
    const json_t *list = value_at(python, "interpreter.foreign_libraries");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (same_text(json_string_value(json_array_get(list, i)), path))
            return true;
    return false;
}

// Version of a library that a Python package brought: file names of CUDA wheels only hold "12".
// What another environment or the wheel of torch brings is of none of these packages, whatever they
// hold besides.
static const char *package_version(const json_t *python, const char *path, const char *pattern)
{
    const json_t *packages = json_object_get(python, "packages");
    if (!pattern || (!strstr(path, "/site-packages/") && !strstr(path, "/dist-packages/")))
        return NULL;
    if (is_foreign(python, path) ||
            (strstr(path, "/torch/lib/") && !strncmp(pattern, "nvidia-", 7)))
        return NULL;
    const char *name;
    json_t *version;
    json_object_foreach((json_t *)packages, name,
            version) if (!fnmatch(pattern, name, 0)) return json_string_value(version);
    return NULL;
}

// Of a copy whose file tells nothing, or that is linked into torch. 8907 is 8.9.7, and 91002
// is 9.10.2.
static void add_cudnn_of_torch(struct parts *parts, json_int_t number)
{
    bool has_nine = number >= 90000;
    char *version = has_nine ? xasprintf("%d.%d.%d", (int)(number / 10000),
                                       (int)(number / 100 % 100), (int)(number % 100))
                             : xasprintf("%d.%d.%d", (int)(number / 1000), (int)(number / 100 % 10),
                                       (int)(number % 100));
    for (size_t i = 0; i < parts->count; i++)
        if (!parts->part[i].version)
            parts->part[i].version = xstrdup(version);
    if (!parts->count)
        parts_add(parts, "cuDNN", version, "inside torch");
    free(version);
}

// What the framework says about parts that are linked into it, or more exactly than a file name
// does.
static void add_framework_words(struct parts *parts, enum library_role role, const json_t *torch)
{
    const char *mkl = text_at(torch, "build.mkl"), *onednn = text_at(torch, "build.onednn");
    if (role == LIBRARY_ROLE_BLAS && mkl) {
        bool mapped = false;
        for (size_t i = 0; i < parts->count; i++)
            if (!strcmp(parts->part[i].name, "MKL")) {
                mapped = true;
                free(parts->part[i].version);
                parts->part[i].version = xstrdup(mkl);
            }
        if (!mapped)
            parts_add(parts, "MKL", mkl, "inside torch");
    }
    if (role == LIBRARY_ROLE_ONEDNN && onednn) {
        parts_add(parts, "oneDNN", NULL, parts->count ? NULL : "inside torch");
        free(parts->part[0].version);
        parts->part[0].version = xstrdup(onednn);
    }
    const char *nccl = text_at(torch, "cuda.nccl_version");
    if (role == LIBRARY_ROLE_NCCL && nccl && !parts->count)
        parts_add(parts, "NCCL", nccl, "inside torch");
    json_int_t cudnn = json_integer_value(value_at(torch, "cuda.cudnn_version"));
    if (role == LIBRARY_ROLE_CUDNN && cudnn > 0)
        add_cudnn_of_torch(parts, cudnn);
    const char *cuda = text_at(torch, "cuda_version");
    if (role == LIBRARY_ROLE_CUDA_RUNTIME && cuda && !parts->count)
        parts_add(parts, "CUDA runtime", cuda, "torch was built with it");
}

// The framework's own copy first: it is the one that runs the model.
static void order_parts(struct parts *parts)
{
    for (size_t i = 1; i < parts->count; i++)
        for (size_t j = i; j > 0; j--) {
            const char *where = parts->part[j].where, *before = parts->part[j - 1].where;
            bool earlier = where && strstr(where, "torch") && (!before || !strstr(before, "torch"));
            if (!earlier && (!before || strstr(before, "torch") || where))
                break;
            struct part swap = parts->part[j];
            parts->part[j] = parts->part[j - 1];
            parts->part[j - 1] = swap;
        }
}

static json_t *component_of_role(
        enum library_role role, const json_t *libraries, const json_t *python)
{
    struct parts parts = {0};
    size_t index;
    json_t *library;
    json_array_foreach((json_t *)libraries, index, library)
    {
        const struct library_kind *kind = library_kind_of(text_of(library, "path"));
        if (kind->role != role)
            continue;
        if (role != LIBRARY_ROLE_CUDA_DRIVER ||
                !strcmp(kind->name, "CUDA driver")) // not its helpers
            parts_add(&parts, kind->name, text_of(library, "version"),
                    is_foreign(python, text_of(library, "path"))
                            ? "of another environment"
                            : owner_of(text_of(library, "path")));
    }
    add_framework_words(&parts, role, json_object_get(python, "torch"));
    order_parts(&parts);
    if (role == LIBRARY_ROLE_ALLOCATOR && !parts.count)
        parts_add(&parts, "malloc of the C library", NULL, NULL);
    char *text = parts_text(&parts);
    parts_clear(&parts);
    return json_text_take(text);
}

static json_t *components_of(const json_t *process, const json_t *python)
{
    json_t *components = json_object();
    static const char *const frameworks[] = {"torch", "jax", "tensorflow", "numpy"};
    for (size_t i = 0; i < sizeof(frameworks) / sizeof(frameworks[0]); i++)
        json_object_set_new(components, frameworks[i],
                json_text(text_of(json_object_get(python, frameworks[i]), "version")));
    const char *name = text_at(python, "interpreter.implementation");
    const char *version = text_at(python, "interpreter.version");
    json_object_set_new(components, "interpreter",
            json_text_take(name && version ? xasprintf("%s %s", name, version) : NULL));
    const json_t *libraries = json_object_get(process, "libraries");
    for (int role = 0; role < LIBRARY_ROLE_COUNT; role++)
        if (library_role_has_component(role) && libraries)
            json_object_set_new(components, library_role_name(role),
                    component_of_role(role, libraries, python));
    return components;
}

static void improve_versions(json_t *process, const json_t *python)
{
    size_t index;
    json_t *library;
    json_array_foreach(json_object_get(process, "libraries"), index, library)
    {
        const char *path = text_of(library, "path"), *source = text_of(library, "version_source");
        const char *version = package_version(python, path, library_kind_of(path)->package);
        if (!version || (source && !strcmp(source, "contents")))
            continue;
        json_object_set_new(library, "version", json_text(version));
        json_object_set_new(library, "version_source", json_text("package"));
    }
}

// A program may set OMP_NUM_THREADS after it started, before it imports the framework. /proc shows
// the environment of the start; collect() reports what was changed since.
static void apply_environment_changes(json_t *process, json_t *python)
{
    json_t *changes = json_object_get(python, "environment_changes");
    json_t *environment = json_object_get(process, "environment");
    json_t *names = json_array(), *value;
    const char *name;
    json_object_foreach(changes, name, value)
    {
        const char *text = json_string_value(value);
        char *shown = fingerprint_environment_value(name, text ? text : "");
        if (shown && json_is_object(environment)) {
            size_t at = 0; // sorted: an interpreter tells them in another order each time
            while (at < json_array_size(names) &&
                    strcmp(json_string_value(json_array_get(names, at)), name) < 0)
                at++;
            json_array_insert_new(names, at, json_text(name));
            if (text)
                json_object_set_new(environment, name, json_text(shown));
            else
                json_object_del(environment, name);
        }
        free(shown);
    }
    if (process)
        json_object_set(process, "environment_set_by_program", names);
    json_decref(names);
    json_object_del(python, "environment_changes");
}

json_t *fingerprint_merge(const json_t *process_document, const json_t *python)
{
    json_t *process = json_deep_copy(json_object_get(process_document, "process"));
    json_t *words = json_is_object(python) ? json_deep_copy(python) : NULL;
    json_t *missing = json_object(), *reason;
    const char *path;
    json_object_foreach(json_object_get(process_document, "missing"), path, reason)
            json_object_set(missing, path, reason);
    json_object_foreach(json_object_get(words, "missing"), path, reason)
    {
        char *full = xasprintf("python.%s", path);
        json_object_set(missing, full, reason);
        free(full);
    }
    json_object_del(words, "missing");
    improve_versions(process, words);
    apply_environment_changes(process, words);
    json_t *document = json_object();
    json_t *taken = json_object_get(process_document, "taken_wall_ns");
    json_t *read = json_object_get(process_document, "read_ns");
    json_t *host = json_object_get(process_document, "host");
    json_object_set_new(document, "schema", json_string(FINGERPRINT_SCHEMA));
    json_object_set(document, "taken_wall_ns", taken ? taken : json_null());
    json_object_set(document, "read_ns", read ? read : json_null());
    json_object_set_new(document, "components", components_of(process, words));
    json_object_set_new(document, "process", process ? process : json_null());
    json_object_set_new(document, "python", words ? words : json_null());
    json_object_set(document, "host", host ? host : json_null());
    json_object_set_new(document, "missing", missing);
    return document;
}
