// SPDX-License-Identifier: Apache-2.0
// What tracing the GPU side needs (`upgate record`, the traced launches of `upgate ab`): the
// injected library, a driver, a libcupti, and nobody else who holds CUPTI. Opens libcupti in a
// process of its own to ask its version; leaves nothing behind.
#include <dlfcn.h>
#include <glob.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/strings.h"
#include "harness/contain/inject.h"
#include "harness/doctor/check.h"

// 11.8, the first version that is known, is API 18
enum { GPU_TRACING_ASK_S = 10, GPU_TRACING_CUPTI_MIN = 18 };

// Where a machine has one besides what a Python environment or container brings. The newest is the
// last.
static const char *const gpu_tracing_places[] = {"/usr/lib/*-linux-gnu/libcupti.so*",
        "/usr/local/cuda*/lib64/libcupti.so*", "/usr/local/cuda*/extras/CUPTI/lib64/libcupti.so*",
        "/opt/cuda*/extras/CUPTI/lib64/libcupti.so*"};

static char *gpu_tracing_find_cupti(const struct doctor *doctor)
{
    char *found = NULL;
    for (size_t i = 0; i < sizeof gpu_tracing_places / sizeof *gpu_tracing_places && !found; i++) {
        glob_t list;
        char *pattern = xasprintf("%s%s", doctor->root, gpu_tracing_places[i]);
        if (glob(pattern, 0, NULL, &list) == 0) {
            found = realpath(list.gl_pathv[list.gl_pathc - 1], NULL);
            globfree(&list);
        }
        free(pattern);
    }
    return found;
}

// In a child: a library of another machine's may do anything when it is opened. 0: not told.
static uint32_t gpu_tracing_cupti_version(const char *path)
{
    int fds[2];
    uint32_t version = 0;
    if (pipe(fds) < 0)
        return 0;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(GPU_TRACING_ASK_S);
        void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
        uint32_t (*ask)(uint32_t *) = NULL;
        *(void **)&ask = library ? dlsym(library, "cuptiGetVersion") : NULL;
        bool told = ask && ask(&version) == 0 &&
                write(fds[1], &version, sizeof version) == sizeof version;
        _exit(told ? 0 : 1);
    }
    close(fds[1]);
    if (pid < 0 || read(fds[0], &version, sizeof version) != sizeof version)
        version = 0;
    close(fds[0]);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return version;
}

// "CUPTI 13.0 at PATH", or what is known of it.
static char *gpu_tracing_cupti_text(const char *path, uint32_t version)
{
    if (!path)
        return xstrdup("no libcupti outside of Python environments");
    if (version >= 100000)
        return xasprintf("CUPTI %u.%u at %s", version / 10000, version % 10000 / 100, path);
    return version ? xasprintf("CUPTI of API version %u at %s", version, path)
                   : xasprintf("a libcupti at %s", path);
}

// Other profilers' variables in our own environment, which commands inherit. NULL: none.
static const char *gpu_tracing_foreign(const char **ret_value)
{
    static const char *const names[] = {
            INJECT_CUDA_VARIABLE, INJECT_NVTX_VARIABLE, INJECT_NCCL_VARIABLE};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *ret_value = getenv(names[i]);
        if (inject_is_foreign(*ret_value))
            return names[i];
    }
    return NULL;
}

static void gpu_tracing_facts(struct doctor_finding *finding, const struct inject *inject,
        const char *cupti, uint32_t version, const char *foreign)
{
    doctor_fact(finding, "library", inject->library ? json_string(inject->library) : NULL);
    doctor_fact(finding, "cupti", cupti ? json_string(cupti) : NULL);
    doctor_fact(finding, "cupti_version", version ? json_integer(version) : NULL);
    doctor_fact(finding, "other_profiler", foreign ? json_string(foreign) : NULL);
}

void check_gpu_tracing(struct doctor *doctor)
{
    struct error err = {0};
    struct inject inject = {0};
    const char *value = NULL, *foreign = gpu_tracing_foreign(&value);
    char *driver = doctor_read(doctor, "/proc/driver/nvidia/version");
    char *params = doctor_read(doctor, "/proc/driver/nvidia/params");
    char *cupti = gpu_tracing_find_cupti(doctor);
    uint32_t version = cupti ? gpu_tracing_cupti_version(cupti) : 0;
    bool library = inject_find(&inject, &err) == 0,
         old = version && version < GPU_TRACING_CUPTI_MIN;
    bool admin = params && strstr(params, "RmProfilingAdminOnly: 1");
    char *text = gpu_tracing_cupti_text(cupti, version);
    bool all = library && driver && cupti && !old && !foreign;
    struct doctor_finding *finding = doctor_add(doctor, "gpu-tracing",
            all                           ? DOCTOR_STATUS_OK
                    : !library || !driver ? DOCTOR_STATUS_MISSING
                                          : DOCTOR_STATUS_LIMITED,
            "%s; %s; %s%s%s%s%s%s", library ? inject.library : err.text,
            driver ? "NVIDIA driver" : "no NVIDIA driver", text, foreign ? "; " : "",
            foreign ? foreign : "", foreign ? "=" : "", foreign ? value : "",
            admin ? "; hardware counters for administrators only, which kernel traces do not need"
                  : "");
    const char *lost =
            "kernels, copies, calls and collectives of a recording; host stalls are recorded all the same";
    if (!library)
        doctor_lose(finding, lost,
                "install upgate whole, or name the library: export UPGATE_INJECT=PATH");
    else if (!driver)
        doctor_lose(finding, lost,
                "install the NVIDIA driver; in a container, pass the GPU in (docker: --gpus all)");
    else if (foreign)
        doctor_lose(finding,
                "what this variable is for belongs to another profiler, and is left to it: its part of a recording "
                "of a command started here is missing",
                "unset it for the recording");
    else if (old)
        doctor_lose(finding, lost,
                "CUPTI 11.8 or later, which comes with the CUDA toolkit or the Python package nvidia-cuda-cupti");
    else if (!cupti)
        doctor_lose(finding,
                "the GPU side of programs that bring no libcupti; PyTorch and JAX bring one",
                "install the CUDA toolkit, or the Python package nvidia-cuda-cupti-cu12 or nvidia-cuda-cupti");
    gpu_tracing_facts(finding, &inject, cupti, version, foreign);
    doctor_fact(finding, "counters_admin_only", params ? json_boolean(admin) : NULL);
    inject_free(&inject);
    free(text);
    free(cupti);
    free(params);
    free(driver);
}
