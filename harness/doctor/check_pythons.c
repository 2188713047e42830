// SPDX-License-Identifier: Apache-2.0
// Which Python interpreters there are, with the PyTorch or JAX that each would import. By file
// names only: nothing is run and nothing imported, so that it takes milliseconds and has no effect.
#include <ctype.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"
#include "harness/doctor/check.h"

enum { PYTHONS_MAX = 64, PYTHONS_SHOWN = 12, PYTHON_MINOR_MIN = 8 };

struct python {
    char *path, *prefix; // as a side of a plan would name it; its environment
    int minor;           // 3.x; -1 = not known
    char *torch, *jax;   // versions; NULL = none
};

struct pythons {
    struct python items[PYTHONS_MAX];
    int count;
};

// "…/torch-2.13.0+cpu.dist-info" -> "2.13.0+cpu"; NULL: not in this directory. The caller frees.
static char *python_package(const char *directory, const char *name)
{
    static const char *const endings[] = {".dist-info", ".egg-info"};
    char *version = NULL;
    for (size_t i = 0; i < sizeof endings / sizeof *endings && !version; i++) {
        char *pattern = xasprintf("%s/%s-[0-9]*%s", directory, name, endings[i]);
        glob_t found;
        if (glob(pattern, 0, NULL, &found) == 0) {
            const char *at = found.gl_pathv[0] + strlen(directory) + 1 + strlen(name) + 1;
            version = xasprintf("%.*s", (int)(strlen(at) - strlen(endings[i])), at);
            version[strcspn(version, "-")] = 0; // an egg-info may go on with "-py3.11"
            globfree(&found);
        }
        free(pattern);
    }
    return version;
}

static void python_look_in(struct python *python, const char *directory)
{
    if (!python->torch)
        python->torch = python_package(directory, "torch");
    if (!python->jax)
        python->jax = python_package(directory, "jax");
}

// A venv made with --system-site-packages sees the packages of the system, too.
static bool python_sees_system(const char *prefix)
{
    char *path = xasprintf("%s/pyvenv.cfg", prefix), *text = string_read_file(path, 65536, NULL);
    bool sees = strcmp(prefix, "/usr") == 0;
    const char *at = text ? strstr(text, "include-system-site-packages") : NULL;
    if (at)
        sees = strncasecmp(at + strcspn(at, "=\n") + strspn(at + strcspn(at, "=\n"), "= "), "true",
                       4) == 0;
    free(path);
    free(text);
    return sees;
}

static void python_find_packages(struct python *python)
{
    if (python->minor < 0)
        return;
    char *own = xasprintf("%s/lib/python3.%d/site-packages", python->prefix, python->minor);
    char *own64 = xasprintf("%s/lib64/python3.%d/site-packages", python->prefix, python->minor);
    python_look_in(python, own);
    python_look_in(python, own64);
    if (python_sees_system(python->prefix)) {
        char *local = xasprintf("/usr/local/lib/python3.%d/dist-packages", python->minor);
        python_look_in(python, local);
        python_look_in(python, "/usr/lib/python3/dist-packages");
        free(local);
    }
    free(own);
    free(own64);
}

// The minor version in "python3.11"; -1 without.
static int python_minor_of(const char *name)
{
    const char *at = strstr(name, "python3.");
    return at && isdigit((unsigned char)at[8]) ? atoi(at + 8) : -1;
}

static int python_minor(const char *path, const char *prefix)
{
    char real[PATH_MAX];
    int minor = realpath(path, real) ? python_minor_of(strrchr(real, '/')) : -1;
    if (minor >= 0)
        return minor;
    char *pattern = xasprintf("%s/lib/python3.*", prefix);
    glob_t found;
    if (glob(pattern, 0, NULL, &found) == 0) {
        minor = found.gl_pathc == 1 ? python_minor_of(strrchr(found.gl_pathv[0], '/')) : -1;
        globfree(&found);
    }
    free(pattern);
    return minor;
}

static bool python_is_two(const char *path)
{
    char real[PATH_MAX];
    return realpath(path, real) && strncmp(strrchr(real, '/'), "/python2", 8) == 0;
}

// One interpreter per environment and version; the first name it is found by stays.
static void pythons_add(struct pythons *pythons, const char *path)
{
    const char *name = strrchr(path, '/');
    if (!name || pythons->count == PYTHONS_MAX || access(path, X_OK) < 0 || strstr(path, "/shims/"))
        return;
    const char *version = name + 1 + strlen("python");
    if (strncmp(name + 1, "python", 6) != 0 || version[strspn(version, "0123456789.")] ||
            strncmp(version, "2", 1) == 0)
        return; // python3-config, python3.11-dbg, python2
    char *bin = xasprintf("%.*s", (int)(name - path), path), real[PATH_MAX];
    bool resolved = realpath(bin, real) != NULL;
    free(bin);
    if (!resolved)
        return;
    char *slash = strrchr(real, '/');
    *slash = 0;
    int minor = python_minor(path, *real ? real : "/usr");
    if (minor < 0 && python_is_two(path))
        return;
    for (int i = 0; i < pythons->count; i++)
        if (pythons->items[i].minor == minor && strcmp(pythons->items[i].prefix, real) == 0)
            return;
    struct python *python = &pythons->items[pythons->count++];
    *python = (struct python){.path = xstrdup(path), .prefix = xstrdup(real), .minor = minor};
    python_find_packages(python);
}

static void pythons_glob(struct pythons *pythons, const char *pattern)
{
    glob_t found;
    if (glob(pattern, GLOB_TILDE, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        pythons_add(pythons, found.gl_pathv[i]);
    globfree(&found);
}

static void pythons_find(struct pythons *pythons)
{
    static const char *const places[] = {"envs/*/bin/python", ".venv/bin/python", "venv/bin/python",
            "~/.pyenv/versions/*/bin/python", "~/*conda*/bin/python", "~/*conda*/envs/*/bin/python",
            "~/*forge*/bin/python", "~/*forge*/envs/*/bin/python", "~/micromamba/envs/*/bin/python",
            "/opt/*conda*/bin/python", "/opt/*conda*/envs/*/bin/python", "/opt/*forge*/bin/python",
            "/opt/*forge*/envs/*/bin/python", "/opt/venv/bin/python"};
    static const char *const active[] = {"VIRTUAL_ENV", "CONDA_PREFIX"};
    for (size_t i = 0; i < sizeof active / sizeof *active; i++) {
        char *path = getenv(active[i]) ? xasprintf("%s/bin/python", getenv(active[i])) : NULL;
        if (path)
            pythons_add(pythons, path);
        free(path);
    }
    char *directories = xstrdup(getenv("PATH") ? getenv("PATH") : ""), *rest = NULL;
    for (char *at = strtok_r(directories, ":", &rest); at; at = strtok_r(NULL, ":", &rest)) {
        char *plain = xasprintf("%s/python3", at), *versioned = xasprintf("%s/python3.*", at);
        pythons_add(pythons, plain);
        pythons_glob(pythons, versioned);
        free(plain);
        free(versioned);
    }
    free(directories);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        pythons_glob(pythons, places[i]);
}

static json_t *python_fact(const struct python *python)
{
    json_t *fact = json_object();
    char *version = python->minor < 0 ? NULL : xasprintf("3.%d", python->minor);
    json_object_set_new(fact, "path", json_string(python->path));
    json_object_set_new(fact, "version", version ? json_string(version) : json_null());
    json_object_set_new(fact, "torch", python->torch ? json_string(python->torch) : json_null());
    json_object_set_new(fact, "jax", python->jax ? json_string(python->jax) : json_null());
    free(version);
    return fact;
}

static void python_text(struct strbuf *text, const struct python *python)
{
    strbuf_add(text, "%s%s: ", text->len ? "\n" : "", python->path);
    if (python->minor >= 0)
        strbuf_add(text, "3.%d", python->minor);
    else
        strbuf_add(text, "version not known");
    if (python->torch)
        strbuf_add(text, ", torch %s", python->torch);
    if (python->jax)
        strbuf_add(text, ", jax %s", python->jax);
}

static bool python_usable(const struct python *python)
{
    return python->minor < 0 || python->minor >= PYTHON_MINOR_MIN;
}

static void pythons_clear(struct pythons *pythons)
{
    for (int i = 0; i < pythons->count; i++) {
        free(pythons->items[i].path);
        free(pythons->items[i].prefix);
        free(pythons->items[i].torch);
        free(pythons->items[i].jax);
    }
}

// Those with a framework first: they are what a plan names. Too old ones are counted only.
static void pythons_text(struct strbuf *text, const struct pythons *pythons)
{
    int shown = 0, old = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < pythons->count; i++) {
            const struct python *python = &pythons->items[i];
            if ((python->torch || python->jax) != (pass == 0))
                continue;
            old += !python_usable(python);
            if (python_usable(python) && shown++ < PYTHONS_SHOWN)
                python_text(text, python);
        }
    }
    if (shown > PYTHONS_SHOWN)
        strbuf_add(text, "\nand %d more", shown - PYTHONS_SHOWN);
    if (old)
        strbuf_add(text, "%s%d older than 3.%d", text->len ? "\n" : "", old, PYTHON_MINOR_MIN);
}

void check_pythons(struct doctor *doctor)
{
    struct pythons pythons = {0};
    struct strbuf text = {0};
    json_t *facts = json_array();
    int frameworks = 0, usable = 0;
    pythons_find(&pythons);
    pythons_text(&text, &pythons);
    for (int i = 0; i < pythons.count; i++) {
        const struct python *python = &pythons.items[i];
        json_array_append_new(facts, python_fact(python));
        usable += python_usable(python);
        frameworks += python_usable(python) && (python->torch || python->jax);
    }
    struct doctor_finding *finding = doctor_add(doctor, "python",
            !usable               ? DOCTOR_STATUS_MISSING
                    : !frameworks ? DOCTOR_STATUS_LIMITED
                                  : DOCTOR_STATUS_OK,
            "%s", text.len ? text.text : "no interpreter found");
    if (!usable)
        doctor_lose(
                finding, "workloads in Python; native ones work", "install python3 (3.8 or later)");
    else if (!frameworks)
        doctor_lose(finding,
                "no interpreter found has PyTorch or JAX: the PyTorch workloads cannot run",
                "ci/setup --envs, or: python3 -m venv envs/mine && envs/mine/bin/pip install torch");
    doctor_fact(finding, "interpreters", facts);
    pythons_clear(&pythons);
    strbuf_free(&text);
}
