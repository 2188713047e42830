// SPDX-License-Identifier: Apache-2.0
// Checks of what runs on the machine: the workloads and the extension of upgate, GPUs,
// certificates. Opens no Python and no CUDA context; reads files and, where it is
// installed, NVML.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "common/units.h"
#include "harness/contain/host.h"
#include "harness/doctor/check.h"
#include "harness/fingerprint/gpu.h"
#include "harness/gate/certificate/certificate.h"
#include "harness/run/launch.h"

static void check_launch_env_clear(struct launch_env *env)
{
    free(env->python_dir);
    free(env->models_dir);
}

void check_workloads(struct doctor *doctor)
{
    struct launch_env env = {0};
    struct error err = {0};
    if (launch_env_find(&env, &err)) {
        doctor_lose(doctor_add(doctor, "workloads", DOCTOR_STATUS_LIMITED, "%s", err.text),
                "models named in a plan are not found; commands work", "mount /proc");
        return;
    }
    char *native = xasprintf("%s/native/dlrm", env.models_dir);
    char *torch = xasprintf("%s/torch/dlrm.py", env.models_dir);
    bool has_native = access(native, X_OK) == 0, has_torch = access(torch, R_OK) == 0;
    struct doctor_finding *finding = doctor_add(doctor, "workloads",
            has_native && has_torch ? DOCTOR_STATUS_OK : DOCTOR_STATUS_LIMITED,
            "native %s, PyTorch %s in %s", has_native ? "yes" : "no", has_torch ? "yes" : "no",
            env.models_dir);
    if (!has_native || !has_torch)
        doctor_lose(finding, "plans cannot name these models; commands work",
                "build or install upgate whole: cmake --preset release && cmake --build "
                "--preset release");
    doctor_fact(finding, "native", json_boolean(has_native));
    doctor_fact(finding, "torch", json_boolean(has_torch));
    free(native);
    free(torch);
    check_launch_env_clear(&env);
}

void check_extension(struct doctor *doctor)
{
    struct launch_env env = {0};
    struct error err = {0};
    char *path = NULL;
    if (launch_env_find(&env, &err) == 0)
        path = xasprintf("%s/upgate/_core.abi3.so", env.python_dir);
    bool found = path && access(path, R_OK) == 0;
    struct doctor_finding *finding = doctor_add(doctor, "extension",
            found ? DOCTOR_STATUS_OK : DOCTOR_STATUS_MISSING,
            found ? "Python extension %s" : "no Python extension at %s", path ? path : err.text);
    if (!found)
        doctor_lose(finding,
                "`import upgate` fails in Python workloads: their steps are not seen, only total time",
                "install python3-dev and build again; the configure summary says 'Python extension: "
                "ON'");
    doctor_fact(finding, "path", found ? json_string(path) : json_null());
    free(path);
    check_launch_env_clear(&env);
}

void check_gpu(struct doctor *doctor)
{
    json_t *missing = json_object();
    json_t *gpu = gpu_collect(doctor->root, NULL, missing);
    const json_t *devices = json_object_get(gpu, "devices");
    struct doctor_finding *finding;
    if (json_array_size(devices) == 0) {
        finding = doctor_add(doctor, "gpu", DOCTOR_STATUS_MISSING, "%s",
                json_is_null(gpu) ? "no NVIDIA driver" : "an NVIDIA driver, but no GPU");
        doctor_lose(finding,
                "GPU workloads and peak_gpu_memory; workloads on CPUs are not affected",
                "install the NVIDIA driver; in a container, pass the GPU in (docker: --gpus all)");
    } else {
        const char *driver = json_string_value(json_object_get(gpu, "driver"));
        const char *name = json_string_value(json_object_get(json_array_get(devices, 0), "name"));
        const char *why = json_string_value(json_object_get(missing, "host.gpu.devices"));
        bool nvml = json_object_size(missing) == 0, other = why && strstr(why, GPU_OTHER_DRIVER);
        finding = doctor_add(doctor, "gpu",
                nvml            ? DOCTOR_STATUS_OK
                        : other ? DOCTOR_STATUS_MISSING
                                : DOCTOR_STATUS_LIMITED,
                "%zu GPU%s, %s; driver %s%s%s", json_array_size(devices),
                json_array_size(devices) == 1 ? "" : "s", name ? name : "model not known",
                driver ? driver : "not known", other ? "; " : "", other ? GPU_OTHER_DRIVER : "");
        if (other)
            doctor_lose(finding,
                    "no program can use the GPU until they are the same: nvidia-smi says 'Driver/library version mismatch'",
                    "reboot, or end what uses the GPU and load the kernel modules of NVIDIA anew; a container that is older "
                    "than the driver has to be started anew");
        else if (!nvml)
            doctor_lose(finding,
                    "peak_gpu_memory, clocks and power limits are not known without NVML",
                    "install the driver's libnvidia-ml.so.1 (Debian: libnvidia-ml1; "
                    "containers: the 'utility' "
                    "driver capability)");
    }
    doctor_fact(finding, "nvidia", json_incref(gpu));
    json_decref(gpu);
    json_decref(missing);
}

// Kinds of workload and turns, each with its newest certificate.
static void check_list_certificates(
        const struct certificate *all, int count, struct strbuf *text, json_t *facts)
{
    for (int i = 0; i < count; i++) { // newest first
        const struct certificate *one = &all[i];
        bool seen = false;
        for (int k = 0; k < i; k++)
            seen = seen ||
                    (all[k].interleave == one->interleave && strcmp(all[k].kind, one->kind) == 0);
        if (seen)
            continue;
        const char *interleave = plan_interleave_name(one->interleave);
        int days = (int)((clock_wall_ns() - one->made_wall_ns) / 86400000000000);
        char *age = days ? xasprintf("%d day%s ago", days, days == 1 ? "" : "s") : xstrdup("today");
        strbuf_add(text, "%s%s in turns of %s, made %s", text->len ? "; " : "", one->kind,
                interleave, age);
        free(age);
        json_t *fact = json_object();
        json_object_set_new(fact, "kind", json_string(one->kind));
        json_object_set_new(fact, "interleave", json_string(interleave));
        json_object_set_new(fact, "false_fail_upper_bound", json_real(one->upper_bound));
        json_object_set_new(fact, "made_wall_ns", json_integer(one->made_wall_ns));
        json_array_append_new(facts, fact);
    }
}

// May the file be written, or be made with its directories? errno says why not.
static bool check_can_write(const char *path)
{
    char *at = xstrdup(path);
    bool file = true;
    while (access(at, F_OK) < 0 && strcmp(at, "/") != 0 && strcmp(at, ".") != 0) {
        char *slash = strrchr(at, '/');
        if (slash)
            slash[slash == at] = 0;
        else
            strcpy(at, ".");
        file = false;
    }
    bool can = access(at, file ? W_OK : W_OK | X_OK) == 0;
    int saved = errno;
    free(at);
    errno = saved;
    return can;
}

static void check_certificates(struct doctor *doctor, const char *path, const char *key)
{
    struct strbuf text = {0};
    json_t *facts = json_array();
    struct error err = {0};
    struct certificate *all = NULL;
    int count = 0, rc = certificate_load(path, key, &all, &count, &err);
    if (rc == 0)
        check_list_certificates(all, count, &text, facts);
    certificates_free(all, count);
    const char *refused = rc && !check_can_write(path) ? strerror(errno) : NULL;
    struct doctor_finding *finding = doctor_add(doctor, "calibration",
            rc ? DOCTOR_STATUS_LIMITED : DOCTOR_STATUS_OK, "%s%s%s%s%s",
            rc == 0                 ? text.text
                    : rc == -ENOENT ? "this host has no certificate"
                                    : err.text,
            refused ? ", and '" : "", refused ? path : "", refused ? "' cannot be written: " : "",
            refused ? refused : "");
    if (refused)
        doctor_lose(finding,
                "no certificate can be kept: each run that would pass makes a control of its own, which takes longer",
                "export UPGATE_STATE_DIR=DIRECTORY, one that can be written and is there for the next run, too");
    else if (rc)
        doctor_lose(finding,
                "a run that would pass shows first that a regression would be seen, which takes "
                "longer",
                "upgate ab --aa PLAN.yaml");
    doctor_fact(finding, "path", json_string(path));
    doctor_fact(finding, "certificates", facts);
    strbuf_free(&text);
}

void check_calibration(struct doctor *doctor)
{
    cpu_set_t cpus;
    char *list = NULL, *path = certificate_path();
    struct error err = {0};
    if (!path || host_choose_cpus(NULL, &cpus, &list, &err)) {
        doctor_lose(
                doctor_add(doctor, "calibration", DOCTOR_STATUS_LIMITED,
                        "there is no place for certificates: neither UPGATE_STATE_DIR nor HOME is set"),
                "each run that would pass makes a control of its own, which takes longer",
                "export UPGATE_STATE_DIR=DIRECTORY");
    } else {
        json_t *host = host_describe(list), *missing = json_object(),
               *gpu = gpu_collect("", NULL, missing);
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        host_set_gpu(host, gpu, visible ? visible : getenv("NVIDIA_VISIBLE_DEVICES"));
        char *key = host_key(host);
        check_certificates(doctor, path, key);
        free(key);
        json_decref(gpu);
        json_decref(missing);
        json_decref(host);
    }
    free(list);
    free(path);
}
