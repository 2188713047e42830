// SPDX-License-Identifier: Apache-2.0
// NVIDIA facts. /proc/driver/nvidia needs nothing installed; NVML adds clocks, power limit, MIG and
// ECC. NVML is declared here by hand because its header is not on machines without a toolkit; only
// calls whose signature has been the same since NVML 5 are made. No context is created and nothing
// is set.
#include "harness/fingerprint/gpu.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "harness/fingerprint/read.h"

enum {
    NVML_SUCCESS = 0,
    NVML_OTHER_DRIVER = 18, // NVML_ERROR_LIB_RM_VERSION_MISMATCH
    NVML_TEXT = 96,
    GPU_COUNT_MAX = 64,
    NVML_CLOCK_GRAPHICS = 0,
    NVML_CLOCK_MEMORY = 2
};

typedef void *nvml_device;

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml {
    void *handle;
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver_version)(char *, unsigned);
    int (*cuda_version)(int *);
    int (*count)(unsigned *);
    int (*by_index)(unsigned, nvml_device *);
    int (*name)(nvml_device, char *, unsigned);
    int (*uuid)(nvml_device, char *, unsigned);
    int (*vbios)(nvml_device, char *, unsigned);
    int (*memory)(nvml_device, struct nvml_memory *);
    int (*persistence)(nvml_device, unsigned *);
    int (*compute_mode)(nvml_device, unsigned *);
    int (*power_limit)(nvml_device, unsigned *);
    int (*clock_max)(nvml_device, unsigned, unsigned *);
    int (*clock_application)(nvml_device, unsigned, unsigned *);
    int (*ecc)(nvml_device, unsigned *, unsigned *);
    int (*mig)(nvml_device, unsigned *, unsigned *);
    int (*pcie_generation)(nvml_device, unsigned *);
    int (*pcie_width)(nvml_device, unsigned *);
};

static void *symbol(struct nvml *nvml, const char *newer, const char *older)
{
    void *found = dlsym(nvml->handle, newer);
    return found || !older ? found : dlsym(nvml->handle, older);
}

// 0, what nvmlInit() says, or -1 without a library that can be used.
static int nvml_open(struct nvml *nvml, const char *path)
{
    *nvml = (struct nvml){.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
    if (!nvml->handle)
        return -1;
    const struct {
        void *to;
        const char *newer, *older;
    } wanted[] = {
            {&nvml->init, "nvmlInit_v2", "nvmlInit"},
            {&nvml->shutdown, "nvmlShutdown", NULL},
            {&nvml->driver_version, "nvmlSystemGetDriverVersion", NULL},
            {&nvml->cuda_version, "nvmlSystemGetCudaDriverVersion_v2",
                    "nvmlSystemGetCudaDriverVersion"},
            {&nvml->count, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"},
            {&nvml->by_index, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"},
            {&nvml->name, "nvmlDeviceGetName", NULL},
            {&nvml->uuid, "nvmlDeviceGetUUID", NULL},
            {&nvml->vbios, "nvmlDeviceGetVbiosVersion", NULL},
            {&nvml->memory, "nvmlDeviceGetMemoryInfo", NULL},
            {&nvml->persistence, "nvmlDeviceGetPersistenceMode", NULL},
            {&nvml->compute_mode, "nvmlDeviceGetComputeMode", NULL},
            {&nvml->power_limit, "nvmlDeviceGetPowerManagementLimit", NULL},
            {&nvml->clock_max, "nvmlDeviceGetMaxClockInfo", NULL},
            {&nvml->clock_application, "nvmlDeviceGetApplicationsClock", NULL},
            {&nvml->ecc, "nvmlDeviceGetEccMode", NULL},
            {&nvml->mig, "nvmlDeviceGetMigMode", NULL},
            {&nvml->pcie_generation, "nvmlDeviceGetMaxPcieLinkGeneration", NULL},
            {&nvml->pcie_width, "nvmlDeviceGetMaxPcieLinkWidth", NULL},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *found = symbol(nvml, wanted[i].newer, wanted[i].older);
        memcpy(wanted[i].to, &found,
                sizeof(found)); // C has no cast from object to function pointer
    }
    return nvml->init && nvml->count && nvml->by_index ? nvml->init() : -1;
}

static void nvml_close(struct nvml *nvml)
{
    if (nvml->handle && nvml->shutdown)
        nvml->shutdown();
    if (nvml->handle)
        dlclose(nvml->handle);
}

static void put_text(
        json_t *gpu, const char *key, int (*get)(nvml_device, char *, unsigned), nvml_device device)
{
    char text[NVML_TEXT] = "";
    int failed = !get || get(device, text, sizeof(text)) != NVML_SUCCESS;
    json_object_set_new(gpu, key, json_text(failed ? NULL : text));
}

static void put_number(
        json_t *gpu, const char *key, int (*get)(nvml_device, unsigned *), nvml_device device)
{
    unsigned value;
    int failed = !get || get(device, &value) != NVML_SUCCESS;
    json_object_set_new(gpu, key, failed ? json_null() : json_integer(value));
}

static void put_clock(json_t *gpu, const char *key, int (*get)(nvml_device, unsigned, unsigned *),
        nvml_device device, unsigned which)
{
    unsigned value;
    int failed = !get || get(device, which, &value) != NVML_SUCCESS;
    json_object_set_new(gpu, key, failed ? json_null() : json_integer(value));
}

static void put_mode(json_t *gpu, const char *key, int (*get)(nvml_device, unsigned *, unsigned *),
        nvml_device device)
{
    unsigned now, pending;
    int failed = !get || get(device, &now, &pending) != NVML_SUCCESS;
    json_object_set_new(gpu, key, failed ? json_null() : json_boolean(now));
}

static json_t *describe(const struct nvml *nvml, nvml_device device)
{
    json_t *gpu = json_object();
    struct nvml_memory memory;
    put_text(gpu, "name", nvml->name, device);
    put_text(gpu, "uuid", nvml->uuid, device);
    put_text(gpu, "vbios", nvml->vbios, device);
    json_object_set_new(gpu, "memory_bytes",
            nvml->memory && nvml->memory(device, &memory) == NVML_SUCCESS
                    ? json_integer((json_int_t)memory.total)
                    : json_null());
    put_number(gpu, "persistence_mode", nvml->persistence, device);
    put_number(gpu, "compute_mode", nvml->compute_mode, device);
    put_number(gpu, "power_limit_mw", nvml->power_limit, device);
    put_clock(gpu, "clock_max_mhz", nvml->clock_max, device, NVML_CLOCK_GRAPHICS);
    put_clock(gpu, "memory_clock_max_mhz", nvml->clock_max, device, NVML_CLOCK_MEMORY);
    put_clock(gpu, "application_clock_mhz", nvml->clock_application, device, NVML_CLOCK_GRAPHICS);
    put_clock(gpu, "application_memory_clock_mhz", nvml->clock_application, device,
            NVML_CLOCK_MEMORY);
    put_mode(gpu, "ecc", nvml->ecc, device);
    put_mode(gpu, "mig", nvml->mig, device);
    put_number(gpu, "pcie_generation_max", nvml->pcie_generation, device);
    put_number(gpu, "pcie_width_max", nvml->pcie_width, device);
    return gpu;
}

static void collect_nvml(const struct nvml *nvml, json_t *driver, json_t *devices)
{
    char version[NVML_TEXT] = "";
    int cuda = 0;
    unsigned count = 0;
    if (nvml->driver_version && nvml->driver_version(version, sizeof(version)) == NVML_SUCCESS)
        json_object_set_new(driver, "driver", json_text(version));
    if (nvml->cuda_version && nvml->cuda_version(&cuda) == NVML_SUCCESS)
        json_object_set_new(driver, "cuda_driver",
                json_text_take(xasprintf("%d.%d", cuda / 1000, cuda % 1000 / 10)));
    if (nvml->count(&count) != NVML_SUCCESS)
        return;
    for (unsigned i = 0; i < count && i < GPU_COUNT_MAX; i++) {
        nvml_device device;
        if (nvml->by_index(i, &device) == NVML_SUCCESS)
            json_array_append_new(devices, describe(nvml, device));
    }
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue ..." or "... Open Kernel Module
// for x86_64  550.54.15 ...": the first word of digits and dots on the first line.
static char *driver_version(const char *text)
{
    for (const char *word = text; *word && *word != '\n'; word += strspn(word, " \t")) {
        size_t length = strcspn(word, " \t\n"), digits = strspn(word, "0123456789.");
        if (length == digits && memchr(word, '.', length))
            return xasprintf("%.*s", (int)length, word);
        word += length;
    }
    return NULL;
}

static void collect_proc(const char *root, json_t *driver)
{
    char *text = read_text("%s/proc/driver/nvidia/version", root);
    if (text) {
        json_object_set_new(driver, "driver", json_text_take(driver_version(text)));
        json_object_set_new(
                driver, "open_kernel_module", json_boolean(strstr(text, "Open Kernel Module")));
    }
    free(text);
}

// Model and UUID of each card, for machines with a driver but without NVML.
static void collect_proc_gpus(const char *root, json_t *devices)
{
    char *path = xasprintf("%s/proc/driver/nvidia/gpus", root);
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char *text = read_text("%s/%s/information", path, entries[i]->d_name);
        if (text && entries[i]->d_name[0] != '.') {
            json_t *gpu = json_object();
            static const char *const rows[][2] = {
                    {"Model:", "name"}, {"GPU UUID:", "uuid"}, {"Video BIOS:", "vbios"}};
            for (size_t row = 0; row < 3; row++) {
                const char *at = strstr(text, rows[row][0]);
                at = at ? at + strlen(rows[row][0]) : NULL;
                at = at ? at + strspn(at, " \t") : NULL;
                json_object_set_new(gpu, rows[row][1],
                        at ? json_text_take(xasprintf("%.*s", (int)strcspn(at, "\n"), at))
                           : json_null());
            }
            json_array_append_new(devices, gpu);
        }
        free(text);
        free(entries[i]);
    }
    free(entries);
    free(path);
}

json_t *gpu_collect(const char *root, const char *nvml_path, json_t *missing)
{
    json_t *driver = json_object(), *devices = json_array();
    struct nvml nvml;
    collect_proc(root, driver);
    const char *path = nvml_path ? nvml_path : "libnvidia-ml.so.1";
    int failed = nvml_open(&nvml, path);
    if (failed == NVML_SUCCESS)
        collect_nvml(&nvml, driver, devices);
    else if (json_object_size(driver))
        missing_add(missing, "host.gpu.devices",
                "NVML (%s) cannot be used%s: clocks and power limits are not known", path,
                failed == NVML_OTHER_DRIVER ? ", " GPU_OTHER_DRIVER : "");
    nvml_close(&nvml);
    if (!json_array_size(devices))
        collect_proc_gpus(root, devices);
    if (!json_object_size(driver)) {
        json_decref(driver);
        json_decref(devices);
        return json_null();
    }
    json_object_set_new(driver, "devices", devices);
    return driver;
}
