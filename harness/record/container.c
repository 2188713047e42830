// SPDX-License-Identifier: Apache-2.0
// From what a user names to the directory of a cgroup. Every hierarchy is asked, the unified one first: containers
// may live in either.
#include "harness/record/container.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/strings.h"
#include "common/units.h"
#include "common/vector.h"

enum {
    CONTAINER_MOUNTS_MAX = 32,
    CONTAINER_DEPTH_MAX = 10,
    CONTAINER_ID_MIN = 6, // digits: fewer fit by accident
};

struct container_search {
    const char *id;
    char *found;
    bool several;
};

// Mount points of cgroup hierarchies. The caller frees each.
static size_t container_mounts(char *mounts[CONTAINER_MOUNTS_MAX])
{
    size_t count = 0;
    char *text = string_read_file("/proc/self/mounts", 1 << 20, NULL);
    for (int unified = 1; unified >= 0; unified--) {
        for (char *line = text; line && *line && count < CONTAINER_MOUNTS_MAX;
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

static bool container_is_directory(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

int container_cgroup(const char *name, char **ret_directory, struct error *err)
{
    char *mounts[CONTAINER_MOUNTS_MAX], *found = NULL;
    size_t count = container_mounts(mounts);
    for (size_t i = 0; i < count; i++) {
        char *below = xasprintf("%s/%s", mounts[i], name + (*name == '/'));
        bool is_mounted = strncmp(name, mounts[i], strlen(mounts[i])) == 0;
        if (!found && is_mounted && container_is_directory(name))
            found = xstrdup(name);
        else if (!found && container_is_directory(below))
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

static void container_search(struct container_search *search, const char *directory, int depth)
{
    DIR *dir = depth < CONTAINER_DEPTH_MAX ? opendir(directory) : NULL;
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        if (strstr(entry->d_name, "conmon")) // CRI-O and Podman: the container's monitor has its id in its name, too
            continue;
        char *path = xasprintf("%s/%s", directory, entry->d_name);
        if (!strstr(entry->d_name, search->id)) {
            container_search(search, path, depth + 1);
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

int container_find(const char *id, char **ret_directory, struct error *err)
{
    struct container_search search = {.id = id};
    if (strlen(id) < CONTAINER_ID_MIN || strchr(id, '/'))
        return error_set(err, -EINVAL, "'%s' is no container id: give at least %d characters of it", id,
                         CONTAINER_ID_MIN);
    char *mounts[CONTAINER_MOUNTS_MAX];
    size_t count = container_mounts(mounts);
    for (size_t i = 0; i < count; i++) {
        if (!search.found)
            container_search(&search, mounts[i], 0);
        free(mounts[i]);
    }
    if (search.several) {
        free(search.found);
        return error_set(err, -EINVAL, "'%s' fits several containers: give more of the id", id);
    }
    if (!search.found)
        return error_set(err, -EINVAL, "no cgroup belongs to a container '%s'; is it running on this host?", id);
    *ret_directory = search.found;
    return 0;
}

int container_pids(const char *text, pid_t **ret_pids, size_t *ret_count, struct error *err)
{
    char *copy = xstrdup(text), *rest = copy, *word;
    pid_t *pids = NULL;
    size_t count = 0;
    int rc = 0;
    while (rc == 0 && (word = strsep(&rest, ","))) {
        uint64_t pid = 0;
        if (unit_parse_uint(word, 1, INT32_MAX, &pid, NULL))
            rc = error_set(err, -EINVAL, "option '--pid': '%s' is no process id", word);
        else if (count == CONTAINER_PIDS_MAX)
            rc = error_set(err, -EINVAL, "option '--pid': more than %d processes", CONTAINER_PIDS_MAX);
        if (rc)
            break;
        vector_push(pids, count, (pid_t)pid);
    }
    free(copy);
    if (rc) {
        free(pids);
        return rc;
    }
    *ret_pids = pids;
    *ret_count = count;
    return 0;
}
