// SPDX-License-Identifier: Apache-2.0
// Stores by their names, which tell their times.
#include "harness/live/kept.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/containers/vector.h"
#include "common/log.h"
#include "common/strings.h"

// "-20261126-031207.db"
static bool kept_is_stamp(const char *text)
{
    static const char form[] = "-00000000-000000.db";
    if (strlen(text) != sizeof form - 1)
        return false;
    for (size_t i = 0; i < sizeof form - 1; i++)
        if (form[i] == '0' ? text[i] < '0' || text[i] > '9' : text[i] != form[i])
            return false;
    return true;
}

static int kept_by_name(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

void kept_find(struct kept *kept, const char *name)
{
    const char *stem = string_base_name(name);
    int folder_len = (int)(stem - name);
    size_t len = strlen(stem);
    len -= len > 3 && strcmp(stem + len - 3, ".db") == 0 ? 3 : 0;
    char *folder = string_folder(name);
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    struct stat info;
    while (dir && (entry = readdir(dir)))
        if (strncmp(entry->d_name, stem, len) == 0 && kept_is_stamp(entry->d_name + len) &&
                fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                S_ISREG(info.st_mode) && info.st_uid == geteuid())
            vector_push(
                    kept->paths, kept->count, xasprintf("%.*s%s", folder_len, name, entry->d_name));
    if (dir)
        closedir(dir);
    if (kept->count)
        qsort(kept->paths, kept->count, sizeof *kept->paths, kept_by_name);
    free(folder);
}

void kept_add(struct kept *kept, char *path, size_t most)
{
    vector_push(kept->paths, kept->count, path);
    while (kept->count > most) {
        log_info("'%s' goes: %zu are kept (--keep)", kept->paths[0], most);
        unlink(kept->paths[0]);
        free(kept->paths[0]);
        memmove(kept->paths, kept->paths + 1, --kept->count * sizeof *kept->paths);
    }
}

void kept_free(struct kept *kept)
{
    for (size_t i = 0; i < kept->count; i++)
        free(kept->paths[i]);
    free(kept->paths);
    *kept = (struct kept){0};
}
