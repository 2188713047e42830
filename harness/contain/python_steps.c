// SPDX-License-Identifier: Apache-2.0
// Environment variables of Python programs whose steps are found. Writes the environment of a child only.
#include "harness/contain/python_steps.h"

#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/environment.h"
#include "common/strings.h"

char *python_steps_dir(void)
{
    char exe[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (len < 0)
        return NULL;
    exe[len] = 0;
    const char *dir = dirname(exe);
    char *installed = xasprintf("%s/../lib/upgate/python", dir);
    if (access(installed, R_OK) == 0)
        return installed;
    free(installed);
    return xasprintf("%s/python", dir);
}

void python_steps_unset(void)
{
    unsetenv(environment_name(ENVIRONMENT_STEPS_FROM));
    unsetenv(environment_name(ENVIRONMENT_STEP));
}

void python_steps_set(const char *python_dir, const char *step)
{
    char *start = xasprintf("%s/start", python_dir);
    python_steps_unset();
    environment_put_first("PYTHONPATH", python_dir);
    environment_put_first("PYTHONPATH", start);
    setenv(environment_name(ENVIRONMENT_STEPS_FROM), "auto", 1);
    if (step)
        setenv(environment_name(ENVIRONMENT_STEP), step, 1);
    free(start);
}
