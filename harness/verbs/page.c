// SPDX-License-Identifier: Apache-2.0
// Writing one page: a full disk shows itself when the file is closed.
#include "harness/verbs/page.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int page_write(char *path, void (*print)(const void *context, FILE *file), const void *context,
        struct error *err)
{
    FILE *file = fopen(path, "we");
    bool failed = !file;
    if (file) {
        print(context, file);
        failed = ferror(file);
        failed |= fclose(file) != 0;
    }
    int rc = failed ? error_set(err, -EIO, "failed to write '%s': %s", path, strerror(errno)) : 0;
    free(path);
    return rc;
}
