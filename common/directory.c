// SPDX-License-Identifier: Apache-2.0
// mkdir -p of what stands before the last slash; what lies beside the own program.
#include "common/directory.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"

int directory_make_above(const char *path, mode_t mode, struct error *err)
{
    char *copy = xstrdup(path);
    int rc = 0;
    for (char *at = *copy ? strchr(copy + 1, '/') : NULL; at && rc == 0; at = strchr(at + 1, '/')) {
        *at = 0;
        if (mkdir(copy, mode) < 0 && errno != EEXIST)
            rc = error_set(err, -errno, "failed to make directory '%s': %s", copy, strerror(errno));
        *at = '/';
    }
    free(copy);
    return rc;
}

char *directory_of_part(const char *name)
{
    char exe[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (len < 0)
        return NULL;
    exe[len] = 0;
    const char *dir = dirname(exe);
    char *installed = xasprintf("%s/../lib/upgate/%s", dir, name);
    if (access(installed, R_OK) == 0)
        return installed;
    free(installed);
    return xasprintf("%s/%s", dir, name);
}
