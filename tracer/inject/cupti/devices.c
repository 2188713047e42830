// SPDX-License-Identifier: Apache-2.0
#include "tracer/inject/cupti/devices.h"

#include <stdatomic.h>
#include <string.h>

#include "tracer/inject/cupti/cupti_load.h"
#include "tracer/inject/spool/spool_writer.h"

// A context of a device, packed so that it is written in one store: 0 is none.
#define CONTEXTS_MAX 64u
#define PACK(device, context) (1ull << 63 | (uint64_t)(device) << 32 | (context))

static struct {
    _Atomic uint64_t contexts[CONTEXTS_MAX];
    _Atomic uint32_t context_count;
    uint64_t written; // bit of contexts[]; control thread
    bool is_search_due;
    uint64_t bare; // bit of a device without a known context: written for its properties alone
} devices;

static void context_add(const struct cupti *cupti, void *context)
{
    uint32_t id = 0, device = 0;
    if (context == NULL || cupti->context_id == NULL || cupti->device_id == NULL ||
            cupti->context_id(context, &id) != CUPTI_OK ||
            cupti->device_id(context, &device) != CUPTI_OK)
        return;
    uint64_t packed = PACK(device & 0x7fffffffu, id);
    uint32_t count = atomic_load(&devices.context_count);
    for (uint32_t i = 0; i < count && i < CONTEXTS_MAX; i++) {
        if (atomic_load(&devices.contexts[i]) == packed)
            return;
    }
    uint32_t at = atomic_fetch_add(&devices.context_count, 1);
    if (at < CONTEXTS_MAX)
        atomic_store(&devices.contexts[at], packed);
}

void devices_context_created(const struct cupti *cupti, void *context)
{
    context_add(cupti, context);
}

bool devices_context_seen(void)
{
    return atomic_load(&devices.context_count) > 0;
}

void devices_restart(bool are_contexts_open)
{
    devices.written = 0;
    devices.bare = 0;
    devices.is_search_due = are_contexts_open;
}

static bool is_device_known(uint32_t device)
{
    for (uint32_t i = 0; i < CONTEXTS_MAX; i++) {
        uint64_t packed = atomic_load(&devices.contexts[i]);
        if (packed != 0 && ((uint32_t)(packed >> 32) & 0x7fffffffu) == device)
            return true;
    }
    return false;
}

// Retaining a context that is active takes a reference and makes nothing.
static void primary_add(const struct cupti *cupti, const struct cuda *cuda, int ordinal)
{
    int device = 0, is_active = 0;
    unsigned flags = 0;
    void *context = NULL;
    if (cuda->primary_state == NULL || cuda->primary_retain == NULL ||
            cuda->primary_release == NULL || cuda->device_get == NULL ||
            cuda->device_get(&device, ordinal) != 0 ||
            cuda->primary_state(device, &flags, &is_active) != 0 || !is_active ||
            cuda->primary_retain(&context, device) != 0)
        return;
    context_add(cupti, context);
    cuda->primary_release(device);
}

// Contexts made before we were on: of these the runtime's, one a device, can be found. The other
// devices are told for their properties, with context 0.
static void contexts_search(const struct cupti *cupti, const struct cuda *cuda)
{
    int count = 0;
    if (cuda->device_count == NULL || cuda->device_count(&count) != 0)
        return; // not initialised yet: asked again
    devices.is_search_due = false;
    for (int i = 0; i < count && i < 64; i++) {
        primary_add(cupti, cuda, i);
        if (!is_device_known((uint32_t)i))
            devices.bare |= 1ull << i;
    }
}

static uint32_t attribute(const struct cuda *cuda, int device, enum cuda_attribute what)
{
    int value = 0;
    if (cuda->device_attribute == NULL || cuda->device_attribute(&value, what, device) != 0)
        return 0;
    return (uint32_t)value;
}

// False: no room in the spool, to be tried again.
static bool device_write(const struct cuda *cuda, uint32_t ordinal, uint32_t context)
{
    char name[256] = "";
    size_t memory_bytes = 0;
    int device = 0;
    struct ug_rec_device filled = {
            .head = {.type = UG_REC_DEVICE, .bytes = sizeof(filled)},
            .device = ordinal,
            .context = context,
    };
    if (cuda->device_get != NULL && cuda->device_get(&device, (int)ordinal) == 0) {
        if (cuda->device_name != NULL)
            cuda->device_name(name, sizeof(name), device);
        if (cuda->device_memory != NULL && cuda->device_memory(&memory_bytes, device) == 0)
            filled.memory_bytes = memory_bytes;
        if (cuda->device_uuid != NULL)
            cuda->device_uuid(filled.uuid, device);
        filled.cc_major = attribute(cuda, device, CUDA_ATTR_CC_MAJOR);
        filled.cc_minor = attribute(cuda, device, CUDA_ATTR_CC_MINOR);
        filled.sm_count = attribute(cuda, device, CUDA_ATTR_MULTIPROCESSORS);
        filled.max_threads_sm = attribute(cuda, device, CUDA_ATTR_MAX_THREADS_SM);
        filled.registers_sm = attribute(cuda, device, CUDA_ATTR_REGISTERS_SM);
        filled.shared_sm_bytes = attribute(cuda, device, CUDA_ATTR_SHARED_SM);
    }
    name[sizeof(name) - 1] = '\0';
    if (name[0] != '\0')
        filled.name = spool_string(name, strlen(name));
    struct ug_rec_device *record = spool_reserve(UG_PRODUCER_OTHER, sizeof(*record));
    if (record == NULL)
        return false;
    *record = filled;
    spool_publish(sizeof(*record));
    return true;
}

void devices_write(const struct cupti *cupti)
{
    struct cuda cuda = {0};
    uint32_t count = atomic_load(&devices.context_count);
    if (count > CONTEXTS_MAX)
        count = CONTEXTS_MAX;
    uint64_t all = count == 64 ? UINT64_MAX : (1ull << count) - 1;
    if ((devices.written == all && !devices.is_search_due && devices.bare == 0) ||
            cuda_load(&cuda) != 0)
        return;
    if (devices.is_search_due)
        contexts_search(cupti, &cuda);
    for (uint32_t i = 0; i < CONTEXTS_MAX; i++) {
        uint64_t packed = atomic_load(&devices.contexts[i]);
        if (packed == 0 || (devices.written & 1ull << i) != 0)
            continue;
        if (device_write(&cuda, (uint32_t)(packed >> 32) & 0x7fffffffu, (uint32_t)packed))
            devices.written |= 1ull << i;
    }
    for (uint32_t i = 0; i < 64 && devices.bare != 0; i++) {
        if ((devices.bare & 1ull << i) != 0 && device_write(&cuda, i, 0))
            devices.bare &= ~(1ull << i);
    }
}
