// SPDX-License-Identifier: Apache-2.0
// Directory and files of a plan's commands, for --resume: libraries and programs stand in the
// fingerprint of a side, a script that an interpreter reads does not. Reads files; writes nothing.
#include "harness/run/inputs.h"

#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"

enum { INPUTS_FILE_BYTES = 16 << 20, INPUTS_SHOWN = 3 };

static bool inputs_is_script(const char *path, const char *text)
{
    static const char *const endings[] = {".py", ".sh", ".bash", ".pl", ".rb", ".js", ".lua", ".jl",
            ".R", ".yaml", ".yml", ".toml", ".ini", ".cfg"};
    const char *name = strrchr(path, '/'), *ending = strrchr(name ? name : path, '.');
    for (size_t i = 0; ending && i < sizeof endings / sizeof *endings; i++)
        if (strcmp(ending, endings[i]) == 0)
            return true;
    return strncmp(text, "#!", 2) == 0;
}

static void inputs_add_file(json_t *files, const char *path)
{
    struct stat info;
    size_t len = 0;
    if (stat(path, &info) < 0 || !S_ISREG(info.st_mode) || info.st_size > INPUTS_FILE_BYTES)
        return;
    char *text = string_read_file(path, INPUTS_FILE_BYTES, &len);
    if (text && inputs_is_script(path, text)) {
        uint64_t hash = 0xcbf29ce484222325u; // FNV-1a: told apart is all that is asked
        for (size_t i = 0; i < len; i++)
            hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
        char *value = xasprintf("%zu bytes, %016" PRIx64, len, hash);
        json_object_set_new(files, path, json_string(value));
        free(value);
    }
    free(text);
}

// Where a path in a container lies on this machine; NULL: in the image, which has an id, or in no
// mount. The caller frees.
static char *inputs_mounted(const struct plan_side *side, const char *path)
{
    char *found = NULL;
    size_t longest = 0;
    for (char **mount = side->mounts; mount && *mount; mount++) {
        size_t len = strcspn(*mount, ":");
        char *source = xasprintf("%.*s", (int)len, *mount), *real = realpath(source, NULL);
        const char *named = (*mount)[len] ? *mount + len + 1 : NULL, *target = named ? named : real;
        size_t target_len = named ? strcspn(named, ":") : real ? strlen(real) : 0;
        while (target_len > 1 && target[target_len - 1] == '/')
            target_len--;
        bool below = real && strncmp(path, target, target_len) == 0 &&
                (!path[target_len] || path[target_len] == '/' || target_len == 1);
        if (below && target_len > longest) {
            const char *rest = path + target_len + (path[target_len] == '/');
            free(found);
            found = xasprintf("%s%s%s", real, *rest ? "/" : "", rest);
            longest = target_len;
        }
        free(source);
        free(real);
    }
    return found;
}

// A relative path is one of the side's workdir, which is one of ours; of an image, ours where it is
// mounted.
static void inputs_add_words(
        json_t *files, const struct plan_side *side, const char *dir, char **words)
{
    for (; words && *words; words++) {
        const char *option = **words == '-' ? strchr(*words, '=') : NULL,
                   *word = option ? option + 1 : *words;
        char *there = side->workdir && word[0] != '/' ? xasprintf("%s/%s", side->workdir, word)
                                                      : xstrdup(word);
        char *path = side->image && there[0] != '/' ? xasprintf("%s/%s", dir, there)
                                                    : plan_side_directory(side, there);
        char *file = side->image ? inputs_mounted(side, path) : xstrdup(path);
        if (file)
            inputs_add_file(files, file);
        free(file);
        free(path);
        free(there);
    }
}

// Does what a container finds depend on the directory that upgate is started in?
static bool inputs_image_matters(const struct plan_side *side, const char *dir)
{
    bool matters = false;
    for (char **mount = side->mounts; mount && *mount; mount++)
        matters |= (*mount)[0] != '/';
    char *here = side->workdir ? NULL : inputs_mounted(side, dir);
    matters |= here != NULL;
    free(here);
    return matters;
}

json_t *inputs_describe(const struct plan *plan)
{
    char dir[PATH_MAX];
    bool matters = false;
    json_t *files = json_object(), *inputs = json_object();
    if (!getcwd(dir, sizeof dir))
        dir[0] = 0;
    for (int i = 0; i < PLAN_SIDES; i++) {
        const struct plan_side *side = &plan->sides[i];
        matters = matters || (side->image && inputs_image_matters(side, dir));
        inputs_add_words(files, side, dir, side->prefix);
        for (int k = 0; k < plan->workload_count; k++) {
            inputs_add_words(files, side, dir, plan->workloads[k].command);
            matters = matters ||
                    (!side->image && plan->workloads[k].command &&
                            !(side->workdir && side->workdir[0] == '/'));
        }
    }
    if (matters && dir[0])
        json_object_set_new(inputs, "directory", json_string(dir));
    json_object_set_new(inputs, "files", files);
    return inputs;
}

bool inputs_drop_changed(json_t *before, const json_t *now)
{
    json_t *files = json_object_get(before, "files"), *others = json_object_get(now, "files"),
           *value;
    const char *path;
    void *next;
    bool dropped = false;
    json_object_foreach_safe(files, next, path, value)
    {
        if (json_equal(value, json_object_get(others, path)))
            continue;
        json_object_del(files, path);
        dropped = true;
    }
    return dropped;
}

char *inputs_changes(const json_t *before, const json_t *now)
{
    const char *was = json_string_value(json_object_get(before, "directory")),
               *is = json_string_value(json_object_get(now, "directory"));
    if (was && is && strcmp(was, is) != 0)
        return xasprintf("it was started in the directory '%s', and this is '%s'", was, is);
    struct strbuf text = {0};
    int count = 0;
    const char *path;
    json_t *value;
    json_object_foreach(json_object_get(before, "files"), path, value)
    {
        const json_t *other = json_object_get(json_object_get(now, "files"), path);
        if (json_equal(value, other) || count++ >= INPUTS_SHOWN)
            continue;
        strbuf_add(&text, "%s'%s' %s", text.len ? "; " : "", path,
                other ? "was changed" : "is not there any more");
    }
    if (count > INPUTS_SHOWN)
        strbuf_add(&text, "; and %d more", count - INPUTS_SHOWN);
    return text.len ? strbuf_take(&text) : NULL;
}
