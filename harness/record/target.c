// SPDX-License-Identifier: Apache-2.0
// From what a user names to the directory of a cgroup. Every hierarchy is asked, the unified one
// first: containers may live in either.
#include "harness/record/target.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "common/units.h"

enum {
    TARGET_MOUNTS_MAX = 32,
    TARGET_DEPTH_MAX = 10,
    TARGET_ID_MIN = 6, // digits: fewer fit by accident
    TARGET_PIDS_MAX = 4096,
};

struct target_search {
    const char *id;
    char *found;
    bool several;
};

// Mount points of cgroup hierarchies. The caller frees each.
static size_t target_mounts(char *mounts[TARGET_MOUNTS_MAX])
{
    size_t count = 0;
    char *text = string_read_file("/proc/self/mounts", 1 << 20, NULL);
    for (int unified = 1; unified >= 0; unified--) {
        for (char *line = text; line && *line && count < TARGET_MOUNTS_MAX;
                line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
            char where[512], kind[64];
            if (sscanf(line, "%*s %511s %63s", where, kind) == 2 &&
                    strcmp(kind, unified ? "cgroup2" : "cgroup") == 0)
                mounts[count++] = xstrdup(where);
        }
    }
    free(text);
    return count;
}

static bool target_is_directory(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static int target_cgroup(const char *name, char **ret_directory, struct error *err)
{
    char *mounts[TARGET_MOUNTS_MAX], *found = NULL;
    size_t count = target_mounts(mounts);
    for (size_t i = 0; i < count; i++) {
        char *below = xasprintf("%s/%s", mounts[i], name + (*name == '/'));
        bool is_mounted = strncmp(name, mounts[i], strlen(mounts[i])) == 0;
        if (!found && is_mounted && target_is_directory(name))
            found = xstrdup(name);
        else if (!found && target_is_directory(below))
            found = xstrdup(below);
        free(below);
        free(mounts[i]);
    }
    if (!found)
        return error_set(err, -EINVAL, "no cgroup '%s'%s", name,
                count ? " below any cgroup mount" : ": no cgroup hierarchy is mounted");
    *ret_directory = found;
    return 0;
}

static void target_search(struct target_search *search, const char *directory, int depth)
{
    DIR *dir = depth < TARGET_DEPTH_MAX ? opendir(directory) : NULL;
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        if (strstr(entry->d_name, "conmon")) // CRI-O and Podman: the container's monitor has its id
                                             // in its name, too
            continue;
        char *path = xasprintf("%s/%s", directory, entry->d_name);
        if (!strstr(entry->d_name, search->id)) {
            target_search(search, path, depth + 1);
        } else if (!search->found) { // what is below belongs to it
            search->found = path;
            path = NULL;
        } else {
            search->several = true;
        }
        free(path);
    }
    if (dir)
        closedir(dir);
}

static int target_container(const char *id, char **ret_directory, struct error *err)
{
    struct target_search search = {.id = id};
    if (strlen(id) < TARGET_ID_MIN || strchr(id, '/'))
        return error_set(err, -EINVAL, "'%s' is no container id: give at least %d characters of it",
                id, TARGET_ID_MIN);
    char *mounts[TARGET_MOUNTS_MAX];
    size_t count = target_mounts(mounts);
    for (size_t i = 0; i < count; i++) {
        if (!search.found)
            target_search(&search, mounts[i], 0);
        free(mounts[i]);
    }
    if (search.several) {
        free(search.found);
        return error_set(err, -EINVAL, "'%s' fits several containers: give more of the id", id);
    }
    if (!search.found)
        return error_set(err, -EINVAL,
                "no cgroup belongs to a container '%s'; is it running on this host?", id);
    *ret_directory = search.found;
    return 0;
}

static int target_pids(const char *text, struct target *target, struct error *err)
{
    char *copy = xstrdup(text), *rest = copy, *word;
    int rc = 0;
    while (rc == 0 && (word = strsep(&rest, ","))) {
        uint64_t pid = 0;
        if (unit_parse_uint(word, 1, INT32_MAX, &pid, NULL))
            rc = error_set(err, -EINVAL, "option '--pid': '%s' is no process id", word);
        else if (target->pid_count == TARGET_PIDS_MAX)
            rc = error_set(err, -EINVAL, "option '--pid': more than %d processes", TARGET_PIDS_MAX);
        else
            vector_push(target->pids, target->pid_count, (pid_t)pid);
    }
    free(copy);
    return rc;
}

int target_find(const char *pids, const char *cgroup, const char *container, struct target *ret,
        struct error *err)
{
    *ret = (struct target){0};
    int rc = pids    ? target_pids(pids, ret, err)
            : cgroup ? target_cgroup(cgroup, &ret->cgroup, err)
                     : 0;
    if (rc == 0 && container)
        rc = target_container(container, &ret->cgroup, err);
    if (rc)
        target_free(ret);
    return rc;
}

void target_free(struct target *target)
{
    free(target->pids);
    free(target->cgroup);
    *target = (struct target){0};
}
