// SPDX-License-Identifier: Apache-2.0
// Where the library of the GPU side lies, and the environment that loads it. Reads the own
// program's place and the environment; writes the environment of a child only.
#include "harness/contain/inject.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/environment.h"
#include "common/strings.h"
#include "contracts/inject_api.h"
#include "contracts/step_range.h"

// The first that can be read, or NULL; the caller frees.
static char *inject_first(const char *dir)
{
    static const char *const places[] = {"../lib/upgate/", "", "tracer/inject/"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char *path = xasprintf("%s/%s" UG_INJECT_LIBRARY, dir, places[i]);
        char *real = realpath(path, NULL);
        free(path);
        if (real)
            return real;
    }
    return NULL;
}

static int inject_own_dir(char exe[PATH_MAX], const char **ret_dir, struct error *err)
{
    ssize_t len = readlink("/proc/self/exe", exe, PATH_MAX - 1);
    if (len < 0)
        return error_set(err, -errno, "failed to find the own program: %s", strerror(errno));
    exe[len] = 0;
    *ret_dir = dirname(exe);
    return 0;
}

int inject_find(struct inject *ret_inject, struct error *err)
{
    char exe[PATH_MAX];
    const char *dir = NULL, *named = environment_get(ENVIRONMENT_INJECT);
    int rc = inject_own_dir(exe, &dir, err);
    if (rc)
        return rc;
    char *library = named ? realpath(named, NULL) : inject_first(dir);
    if (!library && named)
        return error_set(err, -ENOENT, "%s='%s': %s", environment_name(ENVIRONMENT_INJECT), named,
                strerror(errno));
    if (!library)
        return error_set(err, -ENOENT, "no " UG_INJECT_LIBRARY " beside the program in '%s'", dir);
    char *installed = xasprintf("%s/../lib/upgate/python", dir), *real = realpath(installed, NULL);
    ret_inject->library = library;
    ret_inject->python_dir = real ? real : xasprintf("%s/python", dir);
    free(installed);
    return 0;
}

void inject_free(struct inject *inject)
{
    free(inject->library);
    free(inject->python_dir);
    *inject = (struct inject){0};
}

bool inject_has_gpu(void)
{
    static const char *const places[] = {
            "/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"};
    bool found = false;
    for (size_t i = 0; i < sizeof places / sizeof *places && !found; i++)
        found = access(places[i], F_OK) == 0;
    return found;
}

bool inject_is_foreign(const char *value)
{
    return value && *value && strcmp(string_base_name(value), UG_INJECT_LIBRARY) != 0;
}

void inject_variables(const struct inject *inject, uint32_t kinds, char kinds_text[16],
        struct inject_variable ret_variables[INJECT_VARIABLES])
{
    int count = 0;
    snprintf(kinds_text, 16, "0x%x", kinds);
    ret_variables[count++] = (struct inject_variable){INJECT_CUDA_VARIABLE, inject->library, true};
    ret_variables[count++] = (struct inject_variable){INJECT_NVTX_VARIABLE, inject->library, false};
    ret_variables[count++] = (struct inject_variable){INJECT_NCCL_VARIABLE, inject->library, false};
    ret_variables[count++] = (struct inject_variable){
            environment_name(ENVIRONMENT_PYTHON_PATH), inject->python_dir, true};
    if (kinds)
        ret_variables[count++] =
                (struct inject_variable){environment_name(ENVIRONMENT_TRACE), kinds_text, true};
    ret_variables[count] = (struct inject_variable){0};
}

void inject_set(const struct inject *inject, uint32_t kinds)
{
    struct inject_variable variables[INJECT_VARIABLES];
    char text[16];
    if (inject_is_foreign(getenv(INJECT_CUDA_VARIABLE)))
        return;
    inject_variables(inject, kinds, text, variables);
    for (const struct inject_variable *at = variables; at->name; at++)
        setenv(at->name, at->value, at->always);
}

static const char *inject_steps_variable(const char *step)
{
    return strcmp(step, UG_GRAPH_RULE) == 0 ? INJECT_CUDA_VARIABLE : INJECT_NVTX_VARIABLE;
}

const char *inject_steps_rival(
        const char *step, const char *(*get)(void *arg, const char *name), void *arg)
{
    const char *name = inject_steps_variable(step);
    return inject_is_foreign(get(arg, name)) ? name : NULL;
}

void inject_set_steps(const struct inject *inject, const char *step, const char *steps_path)
{
    unsetenv(environment_name(ENVIRONMENT_STEPS_INJECT));
    if (!inject)
        return;
    setenv(inject_steps_variable(step), inject->library, 1);
    if (!inject_is_foreign(getenv(INJECT_CUDA_VARIABLE))) // by it the device is waited for, too
        setenv(INJECT_CUDA_VARIABLE, inject->library, 1);
    setenv(environment_name(ENVIRONMENT_STEP), step, 1);
    setenv(environment_name(ENVIRONMENT_STEPS_INJECT), steps_path, 1);
}
