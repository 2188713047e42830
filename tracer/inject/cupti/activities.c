// SPDX-License-Identifier: Apache-2.0
#include "tracer/inject/cupti/activities.h"

#include <stdio.h>

#include "contracts/spool.h"
#include "tracer/inject/cupti/cupti_load.h"
#include "tracer/inject/inject.h"
#include "tracer/inject/reason.h"
#include "tracer/inject/spool/spool_writer.h"
#include "tracer/inject/tuning.h"

// The pool of device buffers: 8 x 3.2 MB taken with the context hold 800,000 activities in flight,
// so that CUPTI need not allocate in the workload's thread; at most 128 (410 MB), where CUPTI's own
// limit is 250.
#define DEVICE_BUFFERS_AHEAD 8u
#define DEVICE_BUFFERS_MAX 128u

// Kinds of CUPTI for a bit of ours. A kind that this version does not have is no error when it is
// optional.
static const struct {
    uint32_t want, kind;
    bool is_optional;
} kind_table[] = {
        {UG_WANT_KERNELS, CUPTI_KIND_CONCURRENT_KERNEL, false},
        {UG_WANT_KERNELS, CUPTI_KIND_MEMCPY, false},
        {UG_WANT_KERNELS, CUPTI_KIND_MEMCPY2, true},
        {UG_WANT_KERNELS, CUPTI_KIND_MEMSET, false},
        {UG_WANT_KERNELS, CUPTI_KIND_STREAM, true},
        {UG_WANT_SYNC, CUPTI_KIND_SYNCHRONIZATION, false},
        {UG_WANT_MEMORY, CUPTI_KIND_MEMORY2, false},
        {UG_WANT_MEMORY, CUPTI_KIND_MEMORY_POOL, true},
        {UG_WANT_OVERHEAD, CUPTI_KIND_OVERHEAD, false},
        {UG_WANT_NVTX, CUPTI_KIND_MARKER, false},
};
#define KIND_COUNT (sizeof(kind_table) / sizeof(kind_table[0]))

static uint32_t enabled; // bits of kind_table
static bool has_graphs;

static bool attribute_set(const struct cupti *cupti, uint32_t attribute, size_t bytes, void *value)
{
    return cupti->set_attribute(attribute, &bytes, value) == CUPTI_OK;
}

// What CUPTI refuses here costs time or memory, not truth: no error.
void activities_attributes(const struct cupti *cupti, uint32_t quirks)
{
    size_t ahead = DEVICE_BUFFERS_AHEAD, most = DEVICE_BUFFERS_MAX;
    uint8_t yes = 1, wish = tuning()->per_thread;
    uint32_t per_thread = UINT32_MAX;
    if (tuning()->has_device_buffers) {
        attribute_set(cupti, CUPTI_ATTR_DEVICE_BUFFER_POOL_LIMIT, sizeof(most), &most);
        attribute_set(cupti, CUPTI_ATTR_DEVICE_BUFFER_PRE_ALLOCATE, sizeof(ahead), &ahead);
    }
    attribute_set(cupti, CUPTI_ATTR_ZEROED_OUT_BUFFER, sizeof(yes), &yes);
    // Said in words, because the default changed with 13.0: two sides of a comparison may not
    // differ in this.
    if ((quirks & QUIRK_NO_PER_THREAD) == 0)
        per_thread = attribute_set(cupti, CUPTI_ATTR_PER_THREAD_BUFFER, sizeof(wish), &wish)
                ? wish
                : !wish;
    spool_header()->per_thread_buffers = per_thread;
    if (cupti->thread_id_type != NULL)
        cupti->thread_id_type(1);
}

// One kind; those that are there already are told too, unless we are inside cuInit.
static int kind_enable(const struct cupti *cupti, uint32_t kind, bool is_early)
{
    if (kind == CUPTI_KIND_STREAM && cupti->enable_and_dump != NULL && !is_early)
        return cupti->enable_and_dump(kind);
    return cupti->enable(kind);
}

// Bits of `kinds` that CUPTI took.
uint32_t activities_enable(const struct cupti *cupti, uint32_t kinds, bool is_early)
{
    uint32_t refused = 0;
    char what[64];
    enabled = 0;
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if ((kinds & kind_table[i].want) == 0)
            continue;
        int result = kind_enable(cupti, kind_table[i].kind, is_early);
        inject_debug("kind %u: %d", kind_table[i].kind, result);
        if (result == CUPTI_OK)
            enabled |= 1u << i;
        if (result == CUPTI_OK || kind_table[i].is_optional)
            continue;
        refused |= kind_table[i].want;
        snprintf(what, sizeof(what), "activity kind %u refused", kind_table[i].kind);
        reason_cupti(cupti, what, result);
    }
    if ((kinds & (UG_WANT_KERNELS | UG_WANT_GRAPH_NODES)) == UG_WANT_KERNELS) {
        int result = cupti->enable(CUPTI_KIND_GRAPH_TRACE);
        has_graphs = result == CUPTI_OK;
        if (!has_graphs)
            reason_cupti(cupti, "graph launches as a whole refused", result);
    }
    return kinds & ~refused;
}

void activities_disable(const struct cupti *cupti, uint32_t quirks)
{
    for (size_t i = 0; i < KIND_COUNT; i++) {
        bool is_deadly = kind_table[i].kind == CUPTI_KIND_CONCURRENT_KERNEL &&
                (quirks & QUIRK_NO_DISABLE) != 0;
        if ((enabled & 1u << i) != 0 && !is_deadly)
            cupti->disable(kind_table[i].kind);
    }
    if (has_graphs)
        cupti->disable(CUPTI_KIND_GRAPH_TRACE);
    enabled = 0;
    has_graphs = false;
}
