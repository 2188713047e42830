// SPDX-License-Identifier: Apache-2.0
// Finding libcupti. Two in one process are worse than an old one, so the one that is mapped
// (PyTorch brings one) comes before all but the user's own word. Run when tracing is switched on,
// on the control thread or inside cuInit: files and allocation are allowed here, and nowhere else
// in this library.
#include "tracer/inject/cupti/cupti_load.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANDIDATES_MAX 32

struct candidates {
    char paths[CANDIDATES_MAX][PATH_MAX];
    int count;
    int runtime_major;       // of a mapped libcudart, 0: none
    char roots[8][PATH_MAX]; // ".../nvidia" of wheels that are mapped
    int root_count;
};

static char environment_cupti[PATH_MAX], environment_home[PATH_MAX - 64];

static void environment_keep(char *copy, size_t bytes, const char *name)
{
    const char *value = getenv(name);
    snprintf(copy, bytes, "%s", value == NULL ? "" : value);
}

void cupti_load_environment(void)
{
    environment_keep(environment_cupti, sizeof(environment_cupti), "UPGATE_CUPTI");
    environment_keep(environment_home, sizeof(environment_home), "CUDA_HOME");
}

static void candidate_add(struct candidates *candidates, const char *path)
{
    for (int i = 0; i < candidates->count; i++) {
        if (strcmp(candidates->paths[i], path) == 0)
            return;
    }
    if (candidates->count < CANDIDATES_MAX && strlen(path) < PATH_MAX)
        strcpy(candidates->paths[candidates->count++], path);
}

static void root_add(struct candidates *candidates, const char *path)
{
    const char *at = strstr(path, "/nvidia/");
    if (at == NULL || candidates->root_count == 8)
        return;
    size_t bytes = (size_t)(at - path) + strlen("/nvidia");
    for (int i = 0; i < candidates->root_count; i++) {
        if (strncmp(candidates->roots[i], path, bytes) == 0 && candidates->roots[i][bytes] == '\0')
            return;
    }
    memcpy(candidates->roots[candidates->root_count], path, bytes);
    candidates->roots[candidates->root_count++][bytes] = '\0';
}

static void maps_line(struct candidates *candidates, char *line)
{
    char *path = strchr(line, '/');
    if (path == NULL)
        return;
    path[strcspn(path, "\n")] = '\0';
    const char *base = strrchr(path, '/') + 1;
    if (strncmp(base, "libcupti.so", 11) == 0)
        candidate_add(candidates, path);
    int major = 0;
    if (sscanf(base, "libcudart.so.%d", &major) == 1 && major > candidates->runtime_major)
        candidates->runtime_major = major;
    root_add(candidates, path);
}

// Fills what is mapped. A line of /proc/self/maps is at most a path and 80 bytes.
static void maps_read(struct candidates *candidates)
{
    static char line[PATH_MAX + 128]; // one activation at a time
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == NULL)
        return;
    while (fgets(line, sizeof(line), maps) != NULL)
        maps_line(candidates, line);
    fclose(maps);
}

int cuda_load(struct cuda *ret_cuda)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL)
        library = dlopen("libcuda.so", RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL)
        return -ENOENT;
    struct cuda cuda = {
            .driver_version = dlsym(library, "cuDriverGetVersion"),
            .device_count = dlsym(library, "cuDeviceGetCount"),
            .device_get = dlsym(library, "cuDeviceGet"),
            .device_name = dlsym(library, "cuDeviceGetName"),
            .device_attribute = dlsym(library, "cuDeviceGetAttribute"),
            .device_memory = dlsym(library, "cuDeviceTotalMem_v2"),
            .device_uuid = dlsym(library, "cuDeviceGetUuid"),
            .primary_state = dlsym(library, "cuDevicePrimaryCtxGetState"),
            .primary_retain = dlsym(library, "cuDevicePrimaryCtxRetain"),
            .primary_release = dlsym(library, "cuDevicePrimaryCtxRelease_v2"),
            .context_get = dlsym(library, "cuCtxGetCurrent"),
            .context_push = dlsym(library, "cuCtxPushCurrent_v2"),
            .context_pop = dlsym(library, "cuCtxPopCurrent_v2"),
            .context_wait = dlsym(library, "cuCtxSynchronize"),
    };
    *ret_cuda = cuda;
    return 0;
}

// The major of CUDA whose CUPTI suits: of the runtime in use, else of the driver.
static int major_wanted(const struct candidates *candidates)
{
    struct cuda cuda = {0};
    int version = 0;
    if (candidates->runtime_major > 0)
        return candidates->runtime_major;
    if (cuda_load(&cuda) == 0 && cuda.driver_version != NULL && cuda.driver_version(&version) == 0)
        return version / 1000;
    return 13;
}

static const char *soname(int major)
{
    return major >= 13 ? "libcupti.so.13" : major == 12 ? "libcupti.so.12" : "libcupti.so.11.8";
}

static void wheels_add(struct candidates *candidates, int major)
{
    char path[PATH_MAX + 64];
    for (int i = 0; i < candidates->root_count; i++) {
        snprintf(path, sizeof(path), "%s/%s/lib/%s", candidates->roots[i],
                major >= 13 ? "cu13" : "cuda_cupti", soname(major));
        candidate_add(candidates, path);
    }
}

static void toolkits_add(struct candidates *candidates, int major)
{
    char path[PATH_MAX + 64];
    const char *places[] = {environment_home, "/usr/local/cuda",
            major >= 13 ? "/usr/local/cuda-13" : "/usr/local/cuda-12"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (places[i][0] == '\0')
            continue;
        snprintf(path, sizeof(path), "%s/extras/CUPTI/lib64/%s", places[i], soname(major));
        candidate_add(candidates, path);
        snprintf(path, sizeof(path), "%s/lib64/%s", places[i], soname(major));
        candidate_add(candidates, path);
    }
}

// Mapped twice: the one that belongs to the runtime in use goes first.
static void mapped_order(struct candidates *candidates, int mapped)
{
    static char path[PATH_MAX];
    char suffix[24];
    snprintf(suffix, sizeof(suffix), "libcupti.so.%d", candidates->runtime_major);
    for (int i = 1; i < mapped && candidates->runtime_major > 0; i++) {
        if (strstr(candidates->paths[i], suffix) != NULL) {
            strcpy(path, candidates->paths[0]);
            strcpy(candidates->paths[0], candidates->paths[i]);
            strcpy(candidates->paths[i], path);
            return;
        }
    }
}

// Those of the wanted major first, then the older (a newer driver runs them), then the newer.
static void candidates_fill(struct candidates *candidates)
{
    maps_read(candidates);
    mapped_order(candidates, candidates->count);
    int wanted = major_wanted(candidates);
    int majors[] = {wanted, 13, 12, 11};
    if (wanted <= 12)
        majors[1] = 12, majors[2] = 11, majors[3] = 13;
    for (size_t i = 0; i < sizeof(majors) / sizeof(majors[0]); i++) {
        wheels_add(candidates, majors[i]);
        candidate_add(candidates, soname(majors[i]));
        toolkits_add(candidates, majors[i]);
    }
}

static bool symbols_fill(struct cupti *cupti, void *library)
{
    struct cupti found = {
            .library = library,
            .get_version = dlsym(library, "cuptiGetVersion"),
            .get_result_string = dlsym(library, "cuptiGetResultString"),
            .get_timestamp = dlsym(library, "cuptiGetTimestamp"),
            .subscribe = dlsym(library, "cuptiSubscribe"),
            .unsubscribe = dlsym(library, "cuptiUnsubscribe"),
            .enable_callback = dlsym(library, "cuptiEnableCallback"),
            .enable_domain = dlsym(library, "cuptiEnableDomain"),
            .callback_name = dlsym(library, "cuptiGetCallbackName"),
            .register_callbacks = dlsym(library, "cuptiActivityRegisterCallbacks"),
            .enable = dlsym(library, "cuptiActivityEnable"),
            .enable_and_dump = dlsym(library, "cuptiActivityEnableAndDump"),
            .disable = dlsym(library, "cuptiActivityDisable"),
            .set_attribute = dlsym(library, "cuptiActivitySetAttribute"),
            .flush_all = dlsym(library, "cuptiActivityFlushAll"),
            .dropped = dlsym(library, "cuptiActivityGetNumDroppedRecords"),
            .next_record = dlsym(library, "cuptiActivityGetNextRecord"),
            .thread_id_type = dlsym(library, "cuptiSetThreadIdType"),
            .context_id = dlsym(library, "cuptiGetContextId"),
            .device_id = dlsym(library, "cuptiGetDeviceId"),
            .graph_node_id = dlsym(library, "cuptiGetGraphNodeId"),
            .nvtx_initialize = dlsym(library, "InitializeInjectionNvtx2"),
            .finalize = dlsym(library, "cuptiFinalize"),
    };
    *cupti = found;
    return found.get_version && found.get_timestamp && found.subscribe && found.unsubscribe &&
            found.enable_callback && found.register_callbacks && found.enable && found.disable &&
            found.set_attribute && found.flush_all && found.callback_name;
}

static bool candidate_open(const char *path, struct cupti *cupti)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return false;
    if (symbols_fill(cupti, library))
        return true;
    dlclose(library);
    return false;
}

int cupti_load(
        struct cupti *ret_cupti, char *path, size_t path_bytes, char *reason, size_t reason_bytes)
{
    const char *own = environment_cupti;
    if (own[0] != '\0') {
        if (candidate_open(own, ret_cupti)) {
            snprintf(path, path_bytes, "%s", own);
            return 0;
        }
        snprintf(reason, reason_bytes, "failed to load UPGATE_CUPTI '%.100s'", own);
        return -ENOENT;
    }
    struct candidates *candidates = calloc(1, sizeof(*candidates));
    if (candidates == NULL) {
        snprintf(reason, reason_bytes, "out of memory");
        return -ENOMEM;
    }
    candidates_fill(candidates);
    int err = -ENOENT;
    for (int i = 0; i < candidates->count && err != 0; i++) {
        if (candidate_open(candidates->paths[i], ret_cupti)) {
            snprintf(path, path_bytes, "%s", candidates->paths[i]);
            err = 0;
        }
    }
    free(candidates);
    if (err != 0)
        snprintf(reason, reason_bytes,
                "no libcupti found in the process, beside its CUDA or on the library path; "
                "name one in UPGATE_CUPTI");
    return err;
}

// [from, to): CUPTI_API_VERSION, which counts 18 (11.8) to 28 (12.9 U1) and is 130000 from 13.0 on.
static const struct {
    uint32_t from, to, quirk;
} quirk_table[] = {
        {0, 21, QUIRK_NO_PER_THREAD}, // the attribute came with 12.3
        {130000, 130001,
                QUIRK_NO_DISABLE}, // fixed in 13.0 U1: deadlock when disabling CONCURRENT_KERNEL
        {130000, 130001, QUIRK_SYNC_MISSING}, // fixed in 13.0 U1
        {130000, 130001, QUIRK_NO_NVTX},      // NVTX#125
        {0, 130101, QUIRK_ONE_SESSION},       // fixed in 13.1 U1
};

uint32_t cupti_quirks(uint32_t api_version)
{
    uint32_t quirks = 0;
    for (size_t i = 0; i < sizeof(quirk_table) / sizeof(quirk_table[0]); i++) {
        if (api_version >= quirk_table[i].from && api_version < quirk_table[i].to)
            quirks |= quirk_table[i].quirk;
    }
    return quirks;
}

const char *cupti_quirk_words(uint32_t quirk)
{
    switch (quirk) {
    case QUIRK_NO_NVTX:
        return "no NVTX with CUPTI 13.0.0";
    case QUIRK_ONE_SESSION:
        return "this CUPTI loses graph correlations after the first session";
    case QUIRK_SYNC_MISSING:
        return "this CUPTI lacks device synchronisations";
    default:
        return "";
    }
}
