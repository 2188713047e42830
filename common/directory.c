// SPDX-License-Identifier: Apache-2.0
// mkdir -p of what stands before the last slash.
#include "common/directory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
