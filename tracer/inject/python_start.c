// SPDX-License-Identifier: Apache-2.0
// A second thread, because it may wait for the GIL, and for ever once the interpreter ends, while
// the control thread has buffers to empty. It is made at the first change that has somebody to
// tell: a listener, or a Python in the process when UG_WANT_PYTHON or UG_WANT_LAUNCH_STACKS is on.
#include "tracer/inject/python_start.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contracts/spool.h"
#include "tracer/inject/inject.h"

#define PYTHON_KINDS (UG_WANT_PYTHON | UG_WANT_LAUNCH_STACKS)
#define RETRY_NS 500000000ull

static struct {
    _Atomic uint32_t generation; // grows with every change; the thread sleeps on it
    _Atomic uint32_t kinds;
    _Atomic uint32_t resets; // grows when what Python remembers of the spool is void: off, or
                             // another recorder
    _Atomic bool is_stopped, is_running;
    _Atomic(void (*)(uint32_t kinds)) changed;
    uint32_t python_has; // kinds that Python was told last; of the thread
    uint32_t resets_told;
} python;

static char environment_path[PATH_MAX];

void python_environment(void)
{
    const char *own = getenv("UPGATE_PYTHON_PATH");
    snprintf(environment_path, sizeof(environment_path), "%s", own == NULL ? "" : own);
}

struct python_api {
    int (*is_initialized)(void);
    int (*is_finalizing)(void); // NULL before 3.7
    int (*gil_ensure)(void);
    void (*gil_release)(int state);
    int (*run)(const char *text, void *flags);
};

// False: no running interpreter in this process, or not yet.
static bool python_find(struct python_api *api)
{
    api->is_initialized = dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    api->is_finalizing = dlsym(RTLD_DEFAULT, "Py_IsFinalizing");
    if (api->is_finalizing == NULL)
        api->is_finalizing = dlsym(RTLD_DEFAULT, "_Py_IsFinalizing");
    api->gil_ensure = dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    api->gil_release = dlsym(RTLD_DEFAULT, "PyGILState_Release");
    api->run = dlsym(RTLD_DEFAULT, "PyRun_SimpleStringFlags");
    return api->is_initialized && api->gil_ensure && api->gil_release && api->run &&
            api->is_initialized() != 0 && (api->is_finalizing == NULL || api->is_finalizing() == 0);
}

// UPGATE_PYTHON_PATH, else the directory "python" beside this library. False: none that fits into a
// Python string.
static bool package_path(char path[PATH_MAX])
{
    Dl_info info;
    if (environment_path[0] != '\0') {
        snprintf(path, PATH_MAX, "%s", environment_path);
    } else {
        if (dladdr((void *)python_kinds_changed, &info) == 0 || info.dli_fname == NULL ||
                strrchr(info.dli_fname, '/') == NULL)
            return false;
        int bytes = (int)(strrchr(info.dli_fname, '/') - info.dli_fname);
        snprintf(path, PATH_MAX, "%.*s/python", bytes, info.dli_fname);
    }
    return strpbrk(path, "'\\\n") == NULL;
}

// False: not now.
static bool python_say(uint32_t kinds)
{
    static char text[3 * PATH_MAX];
    struct python_api api = {0};
    char path[PATH_MAX];
    if (!python_find(&api) || !package_path(path))
        return false;
    snprintf(text, sizeof(text),
            "try:\n exec(\"with open(DIRECTORY + '/upgate/_inject.py') as f: exec(f.read())\", "
            "{'DIRECTORY': '%s', 'KINDS': %u})\nexcept BaseException:\n pass\n",
            path, kinds);
    inject_debug("python: waiting for the GIL, kinds %#x, package '%s'", kinds, path);
    int state = api.gil_ensure();
    bool is_said = !atomic_load(&python.is_stopped);
    if (is_said) {
        int result = api.run(text, NULL);
        inject_debug("python: told, %d", result);
    }
    api.gil_release(state);
    return is_said;
}

// A short off between two ons is told too: ids of strings that Python keeps have gone with it.
static void python_tell(uint32_t kinds)
{
    uint32_t resets = atomic_load(&python.resets);
    if (resets != python.resets_told && (python.python_has & PYTHON_KINDS) != 0 && python_say(0))
        python.python_has = 0;
    python.resets_told = resets;
    if ((kinds & PYTHON_KINDS) != (python.python_has & PYTHON_KINDS) && python_say(kinds))
        python.python_has = kinds;
}

static void *python_run(void *unused)
{
    uint32_t seen = 0;
    uint32_t told_kinds = 0;
    void (*told)(uint32_t kinds) = NULL;
    (void)unused;
    while (!atomic_load(&python.is_stopped)) {
        uint32_t generation = atomic_load(&python.generation);
        uint32_t kinds = atomic_load(&python.kinds);
        void (*changed)(uint32_t kinds) = atomic_load(&python.changed);
        if (changed != NULL && (changed != told || kinds != told_kinds))
            changed(kinds);
        told = changed;
        told_kinds = kinds;
        python_tell(kinds);
        seen = generation;
        // The interpreter may come to life after CUDA: asked again twice a second until it was
        // told.
        bool is_open = (kinds & PYTHON_KINDS) != (python.python_has & PYTHON_KINDS);
        inject_futex_wait(
                (uint32_t *)&python.generation, seen, is_open ? RETRY_NS : UINT64_MAX, false);
    }
    return NULL;
}

static void thread_wake(void)
{
    bool no = false;
    atomic_fetch_add(&python.generation, 1);
    if (atomic_compare_exchange_strong(&python.is_running, &no, true)) {
        if (inject_thread(python_run, "upgate-python", 8ull << 20) != 0)
            atomic_store(&python.is_running, false);
        return;
    }
    inject_futex_wake((uint32_t *)&python.generation, false);
}

void python_kinds_changed(uint32_t kinds)
{
    struct python_api api = {0};
    atomic_store(&python.kinds, kinds);
    if (kinds == 0)
        atomic_fetch_add(&python.resets, 1);
    bool is_somebody = atomic_load(&python.is_running) || atomic_load(&python.changed) != NULL ||
            ((kinds & PYTHON_KINDS) != 0 && python_find(&api));
    if (is_somebody && !atomic_load(&python.is_stopped))
        thread_wake();
}

void python_restart(void)
{
    atomic_fetch_add(&python.resets, 1);
    if (atomic_load(&python.is_running))
        thread_wake();
}

void python_listen(void (*changed)(uint32_t kinds))
{
    atomic_store(&python.changed, changed);
    if (changed != NULL && atomic_load(&python.kinds) != 0 && !atomic_load(&python.is_stopped))
        thread_wake();
}

void python_stop(void)
{
    atomic_store(&python.is_stopped, true);
}
