// SPDX-License-Identifier: Apache-2.0
// See golden.h. UPGATE_TESTS is the absolute path of tests/, given by the build.
#include "tests/unit/golden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "tests/unit/runner.h"

enum { GOLDEN_BYTES_MAX = 4 << 20 };

char *golden_path(const char *name)
{
    return xasprintf("%s/%s", UPGATE_TESTS, name);
}

char *golden_read(const char *name)
{
    char *path = golden_path(name), *text = string_read_file(path, GOLDEN_BYTES_MAX, NULL);
    if (!text)
        runner_fail(__FILE__, __LINE__,
                "no file %s; UPGATE_GOLDEN_UPDATE=1 writes those of tests/golden", path);
    runner_checked();
    free(path);
    return text;
}

void golden_compare(const char *got, const char *name)
{
    const char *update = getenv("UPGATE_GOLDEN_UPDATE");
    char *file_name = xasprintf("golden/%s", name), *path = golden_path(file_name);
    if (update && strcmp(update, "1") == 0) {
        FILE *file = fopen(path, "w");
        CHECK(file != NULL && fputs(got, file) >= 0 && fclose(file) == 0);
    }
    char *want = golden_read(file_name);
    if (want && strcmp(got, want) != 0) {
        size_t at = 0, line = 1;
        for (; got[at] && got[at] == want[at]; at++)
            line += got[at] == '\n';
        while (at > 0 && got[at - 1] != '\n')
            at--;
        runner_fail(__FILE__, __LINE__, "%s:%zu differs\n   got: %.*s\n", name, line,
                (int)strcspn(got + at, "\n"), got + at);
    }
    free(want);
    free(path);
    free(file_name);
}
