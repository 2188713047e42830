// SPDX-License-Identifier: Apache-2.0
// Engines of containers: a table of their words, and what is asked of them. Starts the engines' own
// programs, reads what they print, and writes nothing but through them.
#include "harness/image/image.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/child.h"
#include "common/clock.h"
#include "common/containers/vector.h"
#include "common/descriptors.h"
#include "common/log.h"
#include "common/strings.h"
#include "harness/image/hold.h"

#define IMAGE_LABEL "upgate"
enum {
    IMAGE_ASK_S = 60,
    IMAGE_PULL_S = 3 * 3600,
    IMAGE_WORDS = 16,
    // what podman 4 sets for itself, and cannot go beyond without rights
    IMAGE_FILES_MAX = 1048576,
    IMAGE_PROCESSES_MAX = 32768,
    IMAGE_ELF_BYTES_MAX = 64 << 20
};

struct image_engine {
    const char *name;
    const char *version[IMAGE_WORDS]; // prints its version; then, on a line of its own, its runtime
    // and the image: id, digests as JSON, user, a line each; empty: images are files
    const char *inspect[IMAGE_WORDS];
    // as a bare process has it: network and shared memory of the machine
    const char *run[IMAGE_WORDS];
    const char *same_cgroup; // word by which a container stays in our cgroup; of crun
    // words before a value; NULL: it has no such
    const char *mount, *name_word, *label_word, *entrypoint, *env;
    const char *gpus;
    bool limits; // it sets limits of its own: ours are passed
};

#define IMAGE_FACTS "{{.Id}}\n{{json .RepoDigests}}\n{{.Config.User}}"
static const struct image_engine image_engines[] = {
        [PLAN_ENGINE_PODMAN] = {.name = "podman",
                .version = {"info", "--format", "{{.Version.Version}}\n{{.Host.OCIRuntime.Name}}"},
                .inspect = {"image", "inspect", "--format", IMAGE_FACTS},
                .run = {"run", "--rm", "--pull=never", "--log-driver=none", "--network=host",
                        "--ipc=host", "--security-opt=label=disable"},
                .same_cgroup = "--cgroups=disabled",
                .mount = "--volume",
                .name_word = "--name",
                .label_word = "--label",
                .entrypoint = "--entrypoint",
                .env = "--env",
                .gpus = "--device=nvidia.com/gpu=all",
                .limits = true},
        [PLAN_ENGINE_DOCKER] = {.name = "docker",
                .version = {"version", "--format", "{{.Server.Version}}"},
                .inspect = {"image", "inspect", "--format", IMAGE_FACTS},
                .run = {"run", "--rm", "--pull=never", "--log-driver=none", "--network=host",
                        "--ipc=host", "--security-opt=label=disable"},
                .mount = "--volume",
                .name_word = "--name",
                .label_word = "--label",
                .entrypoint = "--entrypoint",
                .env = "--env",
                .gpus = "--gpus=all",
                .limits = true},
        [PLAN_ENGINE_APPTAINER] = {.name = "apptainer",
                .version = {"--version"},
                .run = {"exec", "--cleanenv", "--no-home"},
                .mount = "--bind",
                .env = "--env",
                .gpus = "--nv"}};

const char *image_engine_name(const struct image *image)
{
    return image->engine->name;
}

// --- asking an engine ----------------------------------------------------------------------------

// Runs the engine with these words and one more (NULL: none). *ret_said: its complaint, where it
// did not end with 0.
static int image_ask(const char *program, const char *const *words, const char *last,
        int64_t seconds, const volatile sig_atomic_t *stop, char **ret_output, struct error *err)
{
    char *argv[IMAGE_WORDS + 3] = {(char *)program};
    int count = 1;
    for (; words[count - 1]; count++)
        argv[count] = (char *)words[count - 1];
    argv[count] = (char *)last;
    struct child_opts opts = {
            .deadline_ns = clock_monotonic_ns() + seconds * 1000000000LL, .stop = stop};
    struct child_end end = {0};
    int rc = child_run(argv, &opts, &end, err);
    if (rc)
        return rc;
    if (end.code != 0)
        rc = error_set(err, -EIO, "%s", *end.said ? end.said : "it gave no reason");
    if (rc == 0 && ret_output)
        *ret_output = end.output;
    else
        free(end.output);
    return rc;
}

// Line `idx` of a text, without its end; NULL when there are fewer. The caller frees.
static char *image_line(const char *text, int idx)
{
    for (; text && idx > 0; idx--) {
        text = strchr(text, '\n');
        text += text != NULL;
    }
    return text ? xasprintf("%.*s", (int)strcspn(text, "\n"), text) : NULL;
}

// Does this engine work here? Fills program and version.
static int image_try_engine(struct image *image, enum plan_engine engine,
        const volatile sig_atomic_t *stop, struct error *err)
{
    const struct image_engine *found = &image_engines[engine];
    char *output = NULL;
    char *program = child_find_program(found->name);
    if (!program)
        return error_set(err, -ENOENT, "there is no '%s' in PATH", found->name);
    int rc = image_ask(program, found->version, NULL, IMAGE_ASK_S, stop, &output, err);
    if (rc) {
        error_prefix(err, "'%s' does not answer", program);
        free(program);
        return rc;
    }
    char *runtime = image_line(output, 1), *version = image_line(output, 0);
    image->engine = found;
    image->program = program;
    const char *number = strrchr(version, ' '); // "apptainer version 1.1.5"
    image->version = xstrdup(number ? number + 1 : version);
    image->joins_cgroup =
            !found->inspect[0] || (found->same_cgroup && runtime && strcmp(runtime, "crun") == 0);
    free(version);
    free(runtime);
    free(output);
    return 0;
}

// Id, digest and user of an image that is there. -EIO: it is not.
static int image_inspect(struct image *image, const volatile sig_atomic_t *stop, struct error *err)
{
    char *output = NULL;
    int rc = image_ask(
            image->program, image->engine->inspect, image->name, IMAGE_ASK_S, stop, &output, err);
    if (rc)
        return rc;
    char *id = image_line(output, 0), *digests = image_line(output, 1);
    if (!id || !*id || !digests) {
        free(id);
        free(digests);
        free(output);
        return error_set(
                err, -EPROTO, "'%s' said nothing about it that is understood", image->program);
    }
    image->id = strncmp(id, "sha256:", 7) == 0 ? xstrdup(id) : xasprintf("sha256:%s", id);
    image->user = image_line(output, 2);
    json_t *list = json_loads(digests, JSON_DECODE_ANY, NULL);
    const char *first = json_string_value(json_array_get(list, 0)),
               *at = first ? strchr(first, '@') : NULL;
    image->digest = at ? xstrdup(at + 1) : NULL;
    json_decref(list);
    free(id);
    free(digests);
    free(output);
    return 0;
}

// --- opening -------------------------------------------------------------------------------------

// An image that is a file, as apptainer has them. The digest is of the file.
static int image_open_file(
        struct image *image, const volatile sig_atomic_t *stop, struct error *err)
{
    static const char *const words[] = {"--", NULL};
    struct stat info;
    char *output = NULL;
    if (stat(image->name, &info))
        return error_set(err, -errno,
                "%s; apptainer runs files: make one with `apptainer pull FILE.sif docker://%s`",
                strerror(errno), image->name);
    image->id = realpath(image->name, NULL);
    image->user = xstrdup("");
    if (S_ISREG(info.st_mode) &&
            image_ask("sha256sum", words, image->id, IMAGE_ASK_S * 10, stop, &output, NULL) == 0)
        image->digest = xasprintf("sha256:%.64s", output);
    free(output);
    return 0;
}

static int image_pull(struct image *image, const volatile sig_atomic_t *stop, struct error *err)
{
    static const char *const words[] = {"pull", NULL};
    log_info("pulling '%s' with %s", image->name, image->engine->name);
    int rc = image_ask(image->program, words, image->name, IMAGE_PULL_S, stop, NULL, err);
    return rc ? rc : image_inspect(image, stop, err);
}

// The engine that the side names, else the first that has the image, else the first that works.
static int image_choose(struct image *image, const struct plan_side *side,
        const volatile sig_atomic_t *stop, struct error *err)
{
    static const enum plan_engine order[] = {
            PLAN_ENGINE_PODMAN, PLAN_ENGINE_DOCKER, PLAN_ENGINE_APPTAINER};
    struct stat info;
    bool file = strchr(side->image, '/') && stat(side->image, &info) == 0;
    enum plan_engine only = side->engine != PLAN_ENGINE_AUTO ? side->engine
            : file                                           ? PLAN_ENGINE_APPTAINER
                                                             : PLAN_ENGINE_AUTO;
    struct image first = {0};
    struct strbuf why = {0};
    for (size_t i = 0; i < sizeof order / sizeof *order && !image->id; i++) {
        struct image one = {.name = image->name};
        struct error local = {0};
        if (only != PLAN_ENGINE_AUTO ? only != order[i] : order[i] == PLAN_ENGINE_APPTAINER)
            continue;
        if (image_try_engine(&one, order[i], stop, &local)) {
            strbuf_add(&why, "%s%s", why.len ? "; " : "", local.text);
        } else if (!one.engine->inspect[0] || image_inspect(&one, stop, NULL) == 0) {
            free(first.program);
            free(first.version);
            first = (struct image){0};
            *image = one;
            break;
        } else if (!first.engine) {
            first = one;
        } else {
            free(one.program);
            free(one.version);
        }
    }
    if (!image->engine && first.engine)
        *image = first;
    int rc = image->engine
            ? 0
            : error_set(err, -ENOENT,
                      "no container engine can run it: %s; install podman (Debian: apt-get install podman "
                      "crun), or start the side by a `prefix` of your own",
                      why.text ? why.text : "none was found");
    strbuf_free(&why);
    return rc;
}

// "data", "/data", "/data:/mnt", "/data:/mnt:ro" with an absolute source that is there.
static int image_add_mount(struct image *image, const char *text, size_t *count, struct error *err)
{
    size_t len = strcspn(text, ":");
    char *source = xasprintf("%.*s", (int)len, text), *real = realpath(source, NULL);
    const char *target = text[len] ? text + len + 1 : NULL;
    size_t target_len = target ? strcspn(target, ":") : 0;
    const char *mode = target && target[target_len] ? target + target_len + 1 : NULL;
    int rc = 0;
    if (!real)
        rc = error_set(err, -errno, "the mount '%s': '%s': %s", text, source, strerror(errno));
    else if (strpbrk(real, ":,"))
        rc = error_set(err, -EINVAL,
                "the mount '%s': engines take no path with a colon or comma; mount the directory above it",
                text);
    else if ((target && target[0] != '/') ||
            (mode && strcmp(mode, "ro") != 0 && strcmp(mode, "rw") != 0))
        rc = error_set(err, -EINVAL,
                "the mount '%s' is none: SOURCE, SOURCE:/TARGET or SOURCE:/TARGET:ro", text);
    else
        vector_push(image->mounts, *count,
                target ? xasprintf("%s:%s", real, target) : xasprintf("%s:%s", real, real));
    free(source);
    free(real);
    return rc;
}

static char *image_find_start(void)
{
    static const char *const places[] = {"../lib/upgate/", "harness/image/"};
    char exe[PATH_MAX], *found = NULL;
    ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[len > 0 ? len : 0] = 0;
    const char *dir = dirname(exe);
    for (size_t i = 0; i < sizeof places / sizeof *places && !found; i++) {
        char *path = xasprintf("%s/%supgate-inside", dir, places[i]);
        found = realpath(path, NULL);
        free(path);
    }
    return found;
}

int image_open(const struct plan_side *side, const volatile sig_atomic_t *stop,
        struct image *ret_image, struct error *err)
{
    struct image image = {.name = xstrdup(side->image)};
    size_t count = 0;
    int rc = 0;
    if (!(image.start = image_find_start()))
        rc = error_set(err, -ENOENT,
                "this build has no upgate-inside, which containers are started with: it needs a static "
                "C library (libc6-dev has it)");
    char *start = image.start;
    if (rc == 0)
        rc = image_choose(&image, side, stop, err);
    image.start = start;
    if (rc == 0 && !image.engine->inspect[0])
        rc = image_open_file(&image, stop, err);
    else if (rc == 0 && !image.id)
        rc = image_pull(&image, stop, err);
    for (char **text = side->mounts; rc == 0 && text && *text; text++)
        rc = image_add_mount(&image, *text, &count, err);
    if (rc == 0 && count)
        vector_push(image.mounts, count, NULL);
    if (rc) {
        error_prefix(err, "failed to get image '%s'", side->image);
        for (size_t i = 0; i < count; i++)
            free(image.mounts[i]);
        free(image.mounts);
        image.mounts = NULL;
        image_clear(&image);
        return rc;
    }
    *ret_image = image;
    return 0;
}

void image_clear(struct image *image)
{
    char *texts[] = {image->program, image->version, image->name, image->id, image->digest,
            image->user, image->start};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
    image_argv_free(image->mounts);
    *image = (struct image){0};
}

char *image_describe(const struct image *image)
{
    const char *digest = image->digest ? image->digest : image->id;
    return xasprintf("image %s (%s), run by %s %s", image->name, digest, image->engine->name,
            image->version);
}

json_t *image_to_json(const struct image *image)
{
    json_t *json = json_object();
    json_object_set_new(json, "name", json_string(image->name));
    json_object_set_new(json, "digest", image->digest ? json_string(image->digest) : json_null());
    json_object_set_new(json, "id", json_string(image->id));
    char *engine = xasprintf("%s %s", image->engine->name, image->version);
    json_object_set_new(json, "engine", json_string(engine));
    free(engine);
    return json;
}

// --- a container of it ---------------------------------------------------------------------------

struct image_words {
    char **word;
    size_t count;
};

static void image_word(struct image_words *words, const char *text)
{
    vector_push(words->word, words->count, xstrdup(text));
}

static void image_pair(struct image_words *words, const char *word, const char *value)
{
    if (word) {
        image_word(words, word);
        image_word(words, value);
    }
}

// Engines give a container limits of their own choice; a bare process has those that we were given.
// At most `max`.
static void image_limit(
        struct image_words *words, const char *name, struct rlimit limit, rlim_t max)
{
    char *value = xasprintf("%s=%llu:%llu", name,
            (unsigned long long)(limit.rlim_cur < max ? limit.rlim_cur : max),
            (unsigned long long)(limit.rlim_max < max ? limit.rlim_max : max));
    image_pair(words, "--ulimit", value);
    free(value);
}

// Where the upgate that made a container can be looked for: on this machine, in this namespace of
// processes, as this user. An engine may have containers of others, whose upgate cannot be seen
// from here and lives all the same. The caller frees.
static char *image_label(void)
{
    // a container may have no name of its own
    static const char *const names[] = {"/etc/machine-id", "/proc/sys/kernel/random/boot_id"};
    char *machine = NULL;
    struct stat space = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names && !machine; i++) {
        char *text = string_read_file(names[i], 64, NULL);
        size_t len = text ? strspn(text, "0123456789abcdefABCDEF-") : 0;
        machine = len ? xasprintf("%.*s", (int)len, text) : NULL;
        free(text);
    }
    stat("/proc/self/ns/pid", &space);
    char *label = xasprintf(IMAGE_LABEL "=%s.%llu.%u", machine ? machine : "",
            (unsigned long long)space.st_ino, (unsigned)geteuid());
    free(machine);
    return label;
}

char **image_argv(const struct image *image, const struct image_run *run)
{
    const struct image_engine *engine = image->engine;
    struct image_words words = {0};
    image_word(&words, image->program);
    for (const char *const *word = engine->run; *word; word++)
        image_word(&words, *word);
    if (engine->same_cgroup && image->joins_cgroup)
        image_word(&words, engine->same_cgroup);
    if (engine->limits) {
        struct rlimit limit;
        if (descriptors_limit(&limit) == 0)
            image_limit(&words, "nofile", limit, IMAGE_FILES_MAX);
        if (getrlimit(RLIMIT_NPROC, &limit) == 0)
            image_limit(&words, "nproc", limit, IMAGE_PROCESSES_MAX);
    }
    if (run->container)
        image_pair(&words, engine->name_word, run->container);
    char *label = image_label();
    image_pair(&words, engine->label_word, label);
    free(label);
    if (run->gpus)
        image_word(&words, engine->gpus);
    if (run->socket) {
        char *socket = xasprintf("%s:" INSIDE_SOCKET, run->socket),
             *start = xasprintf("%s:" INSIDE_PROGRAM ":ro", image->start);
        image_pair(&words, engine->mount, socket);
        image_pair(&words, engine->mount, start);
        free(socket);
        free(start);
    }
    for (char *const *mount = run->own_mounts; mount && *mount; mount++)
        image_pair(&words, engine->mount, *mount);
    for (char *const *mount = image->mounts; mount && *mount; mount++)
        image_pair(&words, engine->mount, *mount);
    for (int i = 0; !run->socket && i < run->env_count; i++) {
        char *value = xasprintf("%s=%s", run->env[i].name, run->env[i].value);
        image_pair(&words, engine->env, value);
        free(value);
    }
    if (!run->socket && engine->entrypoint)
        image_word(&words, "--interactive");
    for (char *const *word = run->args; word && *word; word++)
        image_word(&words, *word);
    const char *program = run->socket ? INSIDE_PROGRAM : run->words[0];
    image_pair(&words, engine->entrypoint, program);
    image_word(&words, image->id);
    if (!engine->entrypoint)
        image_word(&words, program);
    if (run->socket)
        image_word(&words, INSIDE_SOCKET);
    for (char *const *word = run->socket ? NULL : run->words + 1; word && *word; word++)
        image_word(&words, *word);
    vector_push(words.word, words.count, NULL);
    return words.word;
}

void image_argv_free(char **argv)
{
    for (char **word = argv; word && *word; word++)
        free(*word);
    free(argv);
}

// Is `path` at or below `dir`?
static bool image_below(const char *path, const char *dir, size_t dir_len)
{
    return strncmp(path, dir, dir_len) == 0 &&
            (path[dir_len] == 0 || path[dir_len] == '/' || dir_len == 1);
}

char *image_workdir(const struct image *image)
{
    char dir[PATH_MAX];
    if (!getcwd(dir, sizeof dir))
        return xstrdup("");
    for (char *const *mount = image->mounts; mount && *mount; mount++) {
        size_t len = strcspn(*mount, ":");
        const char *target = *mount + len + 1;
        if (strncmp(target, *mount, len) == 0 && (!target[len] || target[len] == ':') &&
                image_below(dir, *mount, len))
            return xstrdup(dir);
    }
    return xstrdup("");
}

void image_remove(const struct image *image, const char *container)
{
    static const char *const words[] = {"rm", "--force", NULL};
    if (image->engine->name_word)
        image_ask(image->program, words, container, IMAGE_ASK_S, NULL, NULL, NULL);
}

void image_sweep(const struct image *image)
{
    image_hold_sweep();
    char *label = image_label(), *filter = xasprintf("label=%s", label), *output = NULL;
    const char *const list[] = {"ps", "--all", "--filter", filter, "--format", "{{.Names}}", NULL};
    bool listed = image->engine->name_word &&
            image_ask(image->program, list, NULL, IMAGE_ASK_S, NULL, &output, NULL) == 0;
    free(filter);
    free(label);
    if (!listed)
        return;
    char *name;
    for (int i = 0; (name = image_line(output, i)) && *name; i++, free(name))
        if (!image_owner_lives(name))
            image_remove(image, name);
    free(name);
    free(output);
}

int image_glibc_needed(const char *library)
{
    static const char mark[] = "GLIBC_";
    size_t len = 0;
    char *bytes = string_read_file(library, IMAGE_ELF_BYTES_MAX, &len);
    int newest = 0;
    for (char *at = bytes;
            at && (at = memmem(at, len - (size_t)(at - bytes), mark, sizeof mark - 1)); at++) {
        int major, minor;
        if (sscanf(at + sizeof mark - 1, "%d.%d", &major, &minor) == 2 &&
                major * 1000 + minor > newest && minor < 1000)
            newest = major * 1000 + minor;
    }
    free(bytes);
    return newest;
}
