// SPDX-License-Identifier: Apache-2.0
// libcupti.so without a GPU: the functions the tracer's library finds with dlsym, with the ABI of
// the version chosen when this was compiled (FAKE_VERSION, the row of cupti_records.h; FAKE_API,
// what cuptiGetVersion says). What a version does not have is not exported. Any thread.
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/mock/fake_buffers.h"
#include "tests/mock/fake_play.h"

#define FAKE_EXPORT __attribute__((visibility("default")))

enum { // as CUptiResult
    OK = 0,
    INVALID_PARAMETER = 1,
    INVALID_OPERATION = 7,
    NOT_COMPATIBLE = 14,
    NOT_INITIALIZED = 15,
    INVALID_KIND = 21,
    MULTIPLE_SUBSCRIBERS = 39
};

enum { // as CUpti_ActivityAttribute
    ATTR_ZEROED = 5,
    ATTR_PER_THREAD = 9,
    ATTR_COUNT = 11
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of subscribing
static int subscription;                                 // its address is the handle
static int is_subscribed;
static uint64_t attributes[ATTR_COUNT];

const struct cupti_record_layout *fake_layout(enum cupti_record record)
{
    return &cupti_versions[FAKE_VERSION].records[record];
}

static long number(const char *name, long other)
{
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 0) : other;
}

// What the destructors of NVIDIA's static objects do, in the order of all handlers of the process.
static atomic_bool is_gone, is_starting;

static void gone(void)
{
    atomic_store(&is_gone, true);
    if (atomic_load(&is_starting))
        abort(); // a thread works with what goes away now
}

__attribute__((constructor)) static void load(void)
{
    static const struct fake_hooks hooks = {play_op, play_report};
    const char *deliver = getenv("FAKE_CUPTI_DELIVER"), *ppm = getenv("FAKE_CUPTI_PPM");
    fake_behaviour = (struct fake_behaviour){
            .worker = deliver && strcmp(deliver, "worker") == 0,
            .shuffle = (int)number("FAKE_CUPTI_SHUFFLE", 0),
            .zero = (int)number("FAKE_CUPTI_ZERO", 0),
            .unknown = (int)number("FAKE_CUPTI_UNKNOWN", 0),
            .drop = (int)number("FAKE_CUPTI_DROP", 0),
            .held = (int)number("FAKE_CUPTI_HELD", 0),
            .hoard = (int)number("FAKE_CUPTI_HOARD", 0),
            .per_thread = (int)number("FAKE_CUPTI_PER_THREAD", FAKE_API >= 130000),
            .ppm = ppm ? strtod(ppm, NULL) : 0,
            .offset_ns = number("FAKE_CUPTI_OFFSET_NS", 1000000000),
            .fail = getenv("FAKE_CUPTI_FAIL"),
    };
    fake_buffers_per_thread(fake_behaviour.per_thread);
    attributes[ATTR_PER_THREAD] = (uint64_t)fake_behaviour.per_thread;
    fake_cuda_hook(&hooks);
    atexit(gone);
}

int cuptiGetVersion(uint32_t *version);
FAKE_EXPORT int cuptiGetVersion(uint32_t *version)
{
    *version = FAKE_API;
    return OK;
}

int cuptiSubscribe(void **ret_handle, cupti_callback_fn callback, void *user);
FAKE_EXPORT int cuptiSubscribe(void **ret_handle, cupti_callback_fn callback, void *user)
{
    if (!ret_handle)
        return INVALID_PARAMETER;
    // NVIDIA's takes its time with contexts that are open
    long slow_ms = number("FAKE_CUPTI_SLOW_MS", 0);
    atomic_store(&is_starting, true);
    nanosleep(&(struct timespec){slow_ms / 1000, slow_ms % 1000 * 1000000}, NULL);
    atomic_store(&is_starting, false);
    pthread_mutex_lock(&lock);
    int err = is_subscribed || fake_behaviour.held ? MULTIPLE_SUBSCRIBERS : OK;
    if (!err) {
        is_subscribed = 1;
        *ret_handle = &subscription;
        play_subscribe(callback, user);
    }
    pthread_mutex_unlock(&lock);
    return err;
}

int cuptiUnsubscribe(void *handle);
FAKE_EXPORT int cuptiUnsubscribe(void *handle)
{
    if (handle != &subscription)
        return INVALID_PARAMETER;
    pthread_mutex_lock(&lock);
    is_subscribed = 0;
    play_unsubscribe();
    pthread_mutex_unlock(&lock);
    return OK;
}

static int check_handle(const void *handle)
{
    if (handle == &subscription && is_subscribed)
        return OK;
    fake_wrong("a call with a handle that is not subscribed");
    return INVALID_PARAMETER;
}

int cuptiEnableCallback(uint32_t enable, void *handle, uint32_t domain, uint32_t cbid);
FAKE_EXPORT int cuptiEnableCallback(uint32_t enable, void *handle, uint32_t domain, uint32_t cbid)
{
    if (domain == 0 || domain >= CUPTI_DOMAIN_COUNT || cbid >= CUPTI_CBID_COUNT)
        return INVALID_PARAMETER;
    int err = check_handle(handle);
    if (!err)
        play_callback(domain, cbid, enable != 0);
    return err;
}

int cuptiEnableDomain(uint32_t enable, void *handle, uint32_t domain);
FAKE_EXPORT int cuptiEnableDomain(uint32_t enable, void *handle, uint32_t domain)
{
    if (domain == 0 || domain >= CUPTI_DOMAIN_COUNT)
        return INVALID_PARAMETER;
    int err = check_handle(handle);
    for (uint32_t cbid = 0; !err && cbid < CUPTI_CBID_COUNT; cbid++)
        play_callback(domain, cbid, enable != 0);
    return err;
}

int cuptiEnableAllDomains(uint32_t enable, void *handle);
FAKE_EXPORT int cuptiEnableAllDomains(uint32_t enable, void *handle)
{
    int err = OK;
    for (uint32_t domain = 1; !err && domain < CUPTI_DOMAIN_COUNT; domain++)
        err = cuptiEnableDomain(enable, handle, domain);
    return err;
}

int cuptiGetCallbackName(uint32_t domain, uint32_t cbid, const char **name);
FAKE_EXPORT int cuptiGetCallbackName(uint32_t domain, uint32_t cbid, const char **name)
{
    *name = play_call_name(domain, cbid);
    return *name ? OK : INVALID_PARAMETER;
}

int cuptiActivityRegisterCallbacks(fake_requested_fn requested, fake_completed_fn completed);
FAKE_EXPORT int cuptiActivityRegisterCallbacks(
        fake_requested_fn requested, fake_completed_fn completed)
{
    return fake_buffers_register(requested, completed);
}

static int is_failing(uint32_t kind)
{
    const char *at = fake_behaviour.fail;
    while (at && *at) {
        char *end;
        if (strtoul(at, &end, 10) == kind)
            return 1;
        at = *end ? end + 1 : end;
    }
    return 0;
}

// A record of each device, as CUPTI gives when the kind is switched on.
static void give_devices(void)
{
    static const char *const names[] = {"Fake H200 0", "Fake H200 1"};
    const struct cupti_record_layout *layout = fake_layout(CUPTI_RECORD_DEVICE);
    for (uint32_t i = 0; i < 2; i++) {
        _Alignas(8) uint8_t record[256] = {0};
        const struct {
            enum cupti_field field;
            uint64_t value;
        } values[] = {
                {FIELD_kind, 8},
                {FIELD_id, i},
                {FIELD_numMultiprocessors, 132},
                {FIELD_computeCapabilityMajor, 9},
                {FIELD_maxWarpsPerMultiprocessor, 64},
                {FIELD_numThreadsPerWarp, 32},
                {FIELD_maxRegistersPerMultiprocessor, 65536},
                {FIELD_maxSharedMemoryPerMultiprocessor, 233472},
                {FIELD_globalMemorySize, (uint64_t)141 << 30},
                {FIELD_name, (uint64_t)(uintptr_t)names[i]},
        };
        for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++)
            memcpy(record + layout->fields[values[v].field].at, &values[v].value,
                    layout->fields[values[v].field].size);
        memset(record + layout->fields[FIELD_uuid].at, 0xa0 + (int)i, 16);
        fake_buffers_append(record, layout->bytes, 1);
    }
}

int cuptiActivityEnable(uint32_t kind);
FAKE_EXPORT int cuptiActivityEnable(uint32_t kind)
{
    int is_known = 0;
    for (int i = 0; i < CUPTI_RECORD_COUNT; i++)
        is_known |= fake_layout((enum cupti_record)i)->kind == kind;
    if (!is_known && kind != 3 && kind != 13 && kind != 39)
        return INVALID_KIND;
    if (is_failing(kind))
        return NOT_COMPATIBLE;
    play_kind(kind == 3 ? 10 : kind, 1);
    if (kind == 8 && fake_buffers_registered())
        give_devices();
    return OK;
}

int cuptiActivityDisable(uint32_t kind);
FAKE_EXPORT int cuptiActivityDisable(uint32_t kind)
{
    play_kind(kind == 3 ? 10 : kind, 0);
    return OK;
}

#if FAKE_API >= 26
int cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t enable);
FAKE_EXPORT int cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t enable)
{
    play_call(CUPTI_DOMAIN_RUNTIME, cbid, enable);
    return OK;
}

int cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t enable);
FAKE_EXPORT int cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t enable)
{
    play_call(CUPTI_DOMAIN_DRIVER, cbid, enable);
    return OK;
}
#endif

static size_t attribute_size(uint32_t attribute)
{
    return attribute == ATTR_ZEROED || attribute == ATTR_PER_THREAD || attribute == 8
            ? 1
            : sizeof(size_t);
}

int cuptiActivityGetAttribute(uint32_t attribute, size_t *size, void *value);
FAKE_EXPORT int cuptiActivityGetAttribute(uint32_t attribute, size_t *size, void *value)
{
    if (attribute >= ATTR_COUNT || (FAKE_API < 22 && attribute >= ATTR_PER_THREAD) || !size ||
            !value)
        return INVALID_PARAMETER;
    if (*size < attribute_size(attribute))
        return 10; // CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT
    *size = attribute_size(attribute);
    memcpy(value, &attributes[attribute], *size);
    return OK;
}

int cuptiActivitySetAttribute(uint32_t attribute, size_t *size, void *value);
FAKE_EXPORT int cuptiActivitySetAttribute(uint32_t attribute, size_t *size, void *value)
{
    if (attribute >= ATTR_COUNT || (FAKE_API < 22 && attribute >= ATTR_PER_THREAD) || !size ||
            !value)
        return INVALID_PARAMETER;
    if (*size < attribute_size(attribute))
        return 10;
    if (attribute == ATTR_PER_THREAD && fake_buffers_registered() &&
            attributes[attribute] != *(const uint8_t *)value)
        fake_wrong("per-thread buffers changed in the middle");
    attributes[attribute] = 0;
    memcpy(&attributes[attribute], value, attribute_size(attribute));
    fake_buffers_per_thread(attributes[ATTR_PER_THREAD] != 0);
    fake_buffers_zeroed(attributes[ATTR_ZEROED] != 0);
    return OK;
}

int cuptiActivityFlushAll(uint32_t flag);
FAKE_EXPORT int cuptiActivityFlushAll(uint32_t flag)
{
    (void)flag;
    if (atomic_load(&is_gone))
        abort(); // NVIDIA's crashes, or waits for a lock that is not there any more
    if (!fake_buffers_registered())
        return INVALID_OPERATION;
    fake_buffers_flush();
    return OK;
}

int cuptiActivityFlushPeriod(uint32_t milliseconds);
FAKE_EXPORT int cuptiActivityFlushPeriod(uint32_t milliseconds)
{
    (void)milliseconds;
    return OK;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped);
FAKE_EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped)
{
    (void)context;
    (void)stream;
    *dropped = fake_buffers_dropped();
    return OK;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record);
FAKE_EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record)
{
    return fake_buffers_next(buffer, valid, record);
}

int cuptiGetTimestamp(uint64_t *timestamp);
FAKE_EXPORT int cuptiGetTimestamp(uint64_t *timestamp)
{
    *timestamp = play_now_gpu();
    return OK;
}

int cuptiGetResultString(int result, const char **text);
FAKE_EXPORT int cuptiGetResultString(int result, const char **text)
{
    switch (result) {
    case OK:
        *text = "CUPTI_SUCCESS";
        break;
    case NOT_COMPATIBLE:
        *text = "CUPTI_ERROR_NOT_COMPATIBLE";
        break;
    case INVALID_KIND:
        *text = "CUPTI_ERROR_INVALID_KIND";
        break;
    case MULTIPLE_SUBSCRIBERS:
        *text = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
        break;
    default:
        *text = "CUPTI_ERROR_UNKNOWN";
        break;
    }
    return OK;
}

int cuptiGetContextId(void *context, uint32_t *id);
FAKE_EXPORT int cuptiGetContextId(void *context, uint32_t *id)
{
    *id = (uint32_t)((uintptr_t)context / 0x1000);
    return OK;
}

int cuptiGetDeviceId(void *context, uint32_t *device);
FAKE_EXPORT int cuptiGetDeviceId(void *context, uint32_t *device)
{
    (void)context;
    *device = 0;
    return OK;
}

int cuptiGetStreamIdEx(void *context, void *stream, uint8_t per_thread, uint32_t *id);
FAKE_EXPORT int cuptiGetStreamIdEx(void *context, void *stream, uint8_t per_thread, uint32_t *id)
{
    (void)context;
    (void)per_thread;
    *id = (uint32_t)((uintptr_t)stream / 0x10);
    return OK;
}

int cuptiActivityEnableAndDump(uint32_t kind);
FAKE_EXPORT int cuptiActivityEnableAndDump(uint32_t kind)
{
    int err = cuptiActivityEnable(kind);
    if (!err && fake_buffers_registered())
        play_dump(kind);
    return err;
}

int cuptiGetGraphNodeId(void *node, uint64_t *id);
FAKE_EXPORT int cuptiGetGraphNodeId(void *node, uint64_t *id)
{
    *id = (uint64_t)(uintptr_t)node;
    return node ? OK : INVALID_PARAMETER;
}

// NVTX loads this from the library that its environment names: here it is called by the one under
// test.
int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t id));
FAKE_EXPORT int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t id))
{
    play_nvtx();
    return export_table(1) != NULL;
}

int cuptiSetThreadIdType(uint32_t type);
FAKE_EXPORT int cuptiSetThreadIdType(uint32_t type)
{
    return type < 2 ? OK : INVALID_PARAMETER;
}

// Unhooks all of it: nothing that was set holds any longer, and the next subscriber begins anew.
int cuptiFinalize(void);
FAKE_EXPORT int cuptiFinalize(void)
{
    if (!play_is_at_exit())
        fake_wrong("cuptiFinalize outside of an exit callback");
    pthread_mutex_lock(&lock);
    is_subscribed = 0;
    play_reset();
    fake_buffers_reset();
    memset(attributes, 0, sizeof(attributes));
    attributes[ATTR_PER_THREAD] = (uint64_t)fake_behaviour.per_thread;
    fake_buffers_per_thread(fake_behaviour.per_thread);
    fake_buffers_zeroed(0);
    pthread_mutex_unlock(&lock);
    return OK;
}
