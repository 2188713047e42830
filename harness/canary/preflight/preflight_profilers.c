// SPDX-License-Identifier: Apache-2.0
// Who watches the servers already: a debugger or strace (ptrace), a profiler that CUDA loaded or
// that was put in front of the program, DCGM. One arm under a profiler is slower for it, and would
// be judged for it. CUPTI has room for one profiler in a process (until CUDA 13.3): the GPU side of
// a recording is missing where somebody else has it.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/proc.h"
#include "common/strings.h"
#include "contracts/inject_api.h"
#include "harness/canary/preflight/preflight_internal.h"

// What process `dir` was started with for CUDA to load, where that is not ours; the caller's.
static char *profilers_injected(const char *dir)
{
    char *value = proc_variable(dir, "CUDA_INJECTION64_PATH"), *found = NULL;
    if (value && *value && !strstr(value, UG_INJECT_LIBRARY))
        found = xasprintf("CUDA_INJECTION64_PATH=%.200s", value);
    free(value);
    return found;
}

// A library of Nsight Systems, Nsight Compute or Compute Sanitizer, which put theirs in front of a
// program.
static char *profilers_mapped(const char *dir)
{
    static const char *const known[] = {
            "libToolsInjection", "libTreeLauncherTarget", "libcuda-injection", "libsanitizer-"};
    struct proc_maps maps;
    struct proc_mapping mapping;
    char *found = NULL;
    if (proc_maps_open(dir, &maps))
        return NULL;
    while (!found && proc_maps_next(&maps, &mapping)) {
        const char *slash = strrchr(mapping.path, '/');
        for (size_t i = 0; slash && !found && i < sizeof known / sizeof *known; i++)
            if (strncmp(slash + 1, known[i], strlen(known[i])) == 0)
                found = xstrdup(slash + 1);
    }
    proc_maps_close(&maps);
    return found;
}

// Who watches a process, in words, the caller's; NULL: nobody that is seen. ret_gpu: it holds
// CUPTI, or may.
static char *profilers_of(const char *root, uint64_t pid, bool *ret_gpu)
{
    char *dir = xasprintf("%s/proc/%llu", root, (unsigned long long)pid), *watcher = NULL;
    int64_t tracer = proc_status_number(dir, "TracerPid");
    struct proc_stat stat = {0};
    *ret_gpu = false;
    if (tracer > 0) {
        char *other = xasprintf("%s/proc/%lld", root, (long long)tracer);
        if (proc_stat_read(other, &stat))
            stat.comm[0] = 0;
        string_make_plain(stat.comm, strlen(stat.comm));
        watcher = xasprintf("is traced by process %lld (%s) with ptrace", (long long)tracer,
                stat.comm[0] ? stat.comm : "unknown");
        free(other);
    } else {
        char *library = profilers_injected(dir);
        library = library ? library : profilers_mapped(dir);
        *ret_gpu = library != NULL;
        if (library) {
            string_make_plain(library, strlen(library));
            watcher = xasprintf("runs under another profiler (%s)", library);
        }
        free(library);
    }
    free(dir);
    return watcher;
}

// DCGM's daemon, by the name that the kernel has of it. Its counters are the GPU's, and other tools
// for counters cannot have them.
static void profilers_note_dcgm(const char *root, struct preflight *ret)
{
    char *path = xasprintf("%s/proc", root);
    DIR *processes = opendir(path);
    for (struct dirent *entry; processes && (entry = readdir(processes));) {
        if (strspn(entry->d_name, "0123456789") != strlen(entry->d_name))
            continue;
        char *dir = xasprintf("%s/%s", path, entry->d_name);
        struct proc_stat stat;
        if (proc_stat_read(dir, &stat) == 0 &&
                (strcmp(stat.comm, "nv-hostengine") == 0 ||
                        strcmp(stat.comm, "dcgm-exporter") == 0))
            preflight_note(ret,
                    "DCGM runs (%s, process %s): it measures both arms; where its GPU counters are on, `dcgmi profile --pause` "
                    "frees them for other profilers",
                    stat.comm, entry->d_name);
        free(dir);
    }
    if (processes)
        closedir(processes);
    free(path);
}

int preflight_profilers(
        const char *root, const uint64_t pids[CANARY_ARMS], bool record, struct preflight *ret)
{
    static const char *const arms[CANARY_ARMS] = {"baseline", "candidate"};
    char *watchers[CANARY_ARMS] = {0};
    bool gpu[CANARY_ARMS] = {0}, both = true;
    int code = 0;
    for (int arm = 0; arm < CANARY_ARMS; arm++) {
        watchers[arm] = pids[arm] ? profilers_of(root, pids[arm], &gpu[arm]) : NULL;
        both = both && pids[arm];
    }
    for (int arm = 0; arm < CANARY_ARMS; arm++) {
        if (!watchers[arm])
            continue;
        if (both && !watchers[!arm])
            code = preflight_fail(ret, EXIT_CODE_OPERATIONAL,
                    "the %s %s, and the %s is not: the difference would be the profiler's",
                    arms[arm], watchers[arm], arms[!arm]);
        else
            preflight_note(
                    ret, "the %s %s: it is slower than it is without", arms[arm], watchers[arm]);
        if (record && gpu[arm])
            preflight_note(ret,
                    "a recording of the %s will have no GPU side: CUPTI serves one profiler of a process",
                    arms[arm]);
    }
    profilers_note_dcgm(root, ret);
    free(watchers[CANARY_BASELINE]);
    free(watchers[CANARY_CANDIDATE]);
    return code;
}
