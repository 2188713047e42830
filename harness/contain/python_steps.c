// SPDX-License-Identifier: Apache-2.0
// Environment variables of Python programs whose steps are found. Writes the environment of a child
// only.
#include "harness/contain/python_steps.h"

#include <stdlib.h>

#include "common/directory.h"
#include "common/environment.h"
#include "common/strings.h"

char *python_steps_dir(void)
{
    return directory_of_part("python");
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
