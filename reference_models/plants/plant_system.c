// SPDX-License-Identifier: Apache-2.0
// What a plant makes outside its processes: files, cgroups, mounts, settings. Each is written into
// the share before it is made, so that the janitor can undo it whatever happens to the director.
// Runs in the director; plant_clean_all in the janitor.
#include "reference_models/plants/plant.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"

// 10 s: a process with 3 GiB that was killed leaves its cgroup only when its memory is gone.
#define CLEAN_TRIES 500

int plant_clean_up(struct plant *plant, enum plant_clean_kind kind, const char *path,
        const char *text, struct error *err)
{
    struct plant_share *share = plant->share;
    uint32_t count = atomic_load(&share->clean_count);
    struct plant_clean *clean = &share->clean[count];
    if (count == PLANT_CLEAN_MAX)
        return error_set(err, -E2BIG, "more than %d things to clean up", PLANT_CLEAN_MAX);
    if (strlen(path) >= sizeof(clean->path) || strlen(text) >= sizeof(clean->text))
        return error_set(err, -ENAMETOOLONG, "'%s' is too long", path);
    clean->kind = kind;
    strcpy(clean->path, path);
    strcpy(clean->text, text);
    atomic_store(&share->clean_count, count + 1);
    return 0;
}

int plant_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rc = write(fd, text, strlen(text)) < 0 ? -errno : 0;
    close(fd);
    return rc;
}

void plant_clean_all(struct plant_share *share)
{
    for (uint32_t i = atomic_load(&share->clean_count); i-- > 0;) {
        struct plant_clean *clean = &share->clean[i];
        int tries = clean->kind == PLANT_CLEAN_RMDIR ? CLEAN_TRIES : 1;
        switch (clean->kind) {
        case PLANT_CLEAN_WRITE:
            plant_write(clean->path, clean->text);
            break;
        case PLANT_CLEAN_UNLINK:
            unlink(clean->path);
            break;
        case PLANT_CLEAN_UMOUNT:
            umount2(clean->path, MNT_DETACH);
            break;
        case PLANT_CLEAN_RMDIR:
            while (rmdir(clean->path) && errno == EBUSY && --tries > 0)
                usleep(20000);
            break;
        }
    }
}

int plant_temp(struct plant *plant, struct error *err)
{
    if (plant->temp_dir[0])
        return 0;
    char path[sizeof(plant->temp_dir)];
    if (snprintf(path, sizeof(path), "%s/upgate-plant-%d", plant->dir, plant->director) >=
            (int)sizeof(path))
        return error_set(err, -ENAMETOOLONG, "'%s' is too long", plant->dir);
    int rc = plant_clean_up(plant, PLANT_CLEAN_RMDIR, path, "", err);
    if (rc)
        return rc;
    if (mkdir(path, 0700))
        return error_set(err, -errno, "failed to make '%s': %s", path, strerror(errno));
    strcpy(plant->temp_dir, path);
    return 0;
}

int plant_file(struct plant *plant, const char *name, char *path, struct error *err)
{
    int rc = plant_temp(plant, err);
    if (rc)
        return rc;
    snprintf(path, 224, "%s/%s", plant->temp_dir, name);
    rc = plant_clean_up(plant, PLANT_CLEAN_UNLINK, path, "", err);
    if (rc)
        return rc;
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set(err, -errno, "failed to make '%s': %s", path, strerror(errno));
    close(fd);
    return 0;
}

int plant_setting(struct plant *plant, const char *path, const char *text, struct error *err)
{
    size_t len;
    char *now = string_read_file(path, 256, &len);
    if (!now)
        return error_set(err, -ENOTSUP, "no '%s': %s", path, strerror(errno));
    // A choice is shown as "always [madvise] never".
    char *begin = strchr(now, '['), *old = begin ? begin + 1 : now;
    old[strcspn(old, "]\n")] = '\0';
    int rc = plant_clean_up(plant, PLANT_CLEAN_WRITE, path, old, err);
    free(now);
    if (rc)
        return rc;
    rc = plant_write(path, text);
    return rc ? error_set(err, -ENOTSUP, "'%s' cannot be written: %s", path, strerror(-rc)) : 0;
}

// Does the comma list have that word? No list has the empty one.
static bool list_has(const char *list, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = list; len && (at = strstr(at, word)); at += len) {
        bool starts = at == list || at[-1] == ',' || at[-1] == ' ';
        if (starts && (at[len] == '\0' || at[len] == ',' || at[len] == ' ' || at[len] == '\n'))
            return true;
    }
    return false;
}

// Our own v1 group of that controller, as in /proc/self/cgroup ("4:memory:/a/b"), or "/".
static void own_group(const char *controller, char *path, size_t size)
{
    char *line = NULL;
    size_t capacity = 0;
    FILE *file = fopen("/proc/self/cgroup", "re");
    snprintf(path, size, "/");
    while (file && getline(&line, &capacity, file) > 0) {
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        if (list_has(list + 1, controller))
            snprintf(path, size, "%s", group);
    }
    free(line);
    if (file)
        fclose(file);
}

// Where the hierarchy with that controller is mounted. v1 wins: there a controller is in one only.
static bool find_hierarchy(const char *controller, char *path, size_t size, bool *ret_v2)
{
    char *line = NULL;
    size_t capacity = 0;
    FILE *file = fopen("/proc/self/mounts", "re");
    bool found = false;
    while (file && getline(&line, &capacity, file) > 0) {
        char mount_point[192], type[32], options[256];
        if (sscanf(line, "%*s %191s %31s %255s", mount_point, type, options) != 3)
            continue;
        bool v1 = strcmp(type, "cgroup") == 0 && controller[0] && list_has(options, controller);
        bool v2 = strcmp(type, "cgroup2") == 0 && !found;
        if (v2 && controller[0]) {
            size_t len;
            char *name = xasprintf("%s/cgroup.controllers", mount_point);
            char *list = string_read_file(name, 1024, &len);
            v2 = list && list_has(list, controller);
            free(list);
            free(name);
        }
        if (v1 || v2) {
            snprintf(path, size, "%s", mount_point);
            *ret_v2 = v2;
            found = true;
        }
    }
    free(line);
    if (file)
        fclose(file);
    return found;
}

// Below our own group a controller may not be given: a group with processes has no children with
// controllers. Only the root may have both.
static int give_controller(
        struct plant *plant, const char *root, const char *controller, struct error *err)
{
    char name[224], text[24];
    size_t len;
    snprintf(name, sizeof(name), "%s/cgroup.subtree_control", root);
    char *list = string_read_file(name, 1024, &len);
    bool given = list && list_has(list, controller);
    free(list);
    if (given)
        return 0;
    snprintf(text, sizeof(text), "-%s", controller);
    int rc = plant_clean_up(plant, PLANT_CLEAN_WRITE, name, text, err);
    if (rc)
        return rc;
    text[0] = '+';
    rc = plant_write(name, text);
    return rc ? error_set(err, -ENOTSUP, "'%s' cannot be written: %s", name, strerror(-rc)) : 0;
}

int plant_cgroup(
        struct plant *plant, const char *controller, char *path, bool *ret_v2, struct error *err)
{
    char root[192], own[192], group[448];
    int rc = 0;
    if (!find_hierarchy(controller, root, sizeof(root), ret_v2))
        return error_set(err, -ENOTSUP, "no cgroup hierarchy with %s",
                controller[0] ? controller : "version 2");
    if (*ret_v2 && controller[0])
        rc = give_controller(plant, root, controller, err);
    if (rc)
        return rc;
    own_group(controller, own, sizeof(own));
    snprintf(group, sizeof(group), "%s%s", root, own);
    if (*ret_v2 || access(group, W_OK))
        snprintf(group, sizeof(group), "%s/", root);
    size_t len = strlen(group);
    snprintf(group + len, sizeof(group) - len, "%supgate-plant-%d",
            group[len - 1] == '/' ? "" : "/", plant->director);
    if (strlen(group) >= 224)
        return error_set(err, -ENAMETOOLONG, "'%s' is too long", group);
    rc = plant_clean_up(plant, PLANT_CLEAN_RMDIR, group, "", err);
    if (rc)
        return rc;
    if (mkdir(group, 0755))
        return error_set(err, -ENOTSUP, "failed to make cgroup '%s': %s", group, strerror(errno));
    strcpy(path, group);
    return 0;
}

int plant_cgroup_write(const char *group, const char *file, const char *text, struct error *err)
{
    char path[320];
    snprintf(path, sizeof(path), "%s/%s", group, file);
    int rc = plant_write(path, text);
    return rc ? error_set(err, -ENOTSUP, "'%s' cannot be written: %s", path, strerror(-rc)) : 0;
}

int plant_cgroup_enter(const char *group, pid_t pid, struct error *err)
{
    char text[32];
    snprintf(text, sizeof(text), "%d", pid);
    return plant_cgroup_write(group, "cgroup.procs", text, err);
}

int plant_need_cpus(struct error *err)
{
    cpu_set_t set;
    sched_getaffinity(0, sizeof(set), &set);
    return CPU_COUNT(&set) >= 2 ? 0 : error_set(err, -ENOTSUP, "two CPUs are needed");
}
