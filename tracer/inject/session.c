// SPDX-License-Identifier: Apache-2.0
// Order matters to CUPTI: subscriber, attributes, buffer callbacks, kinds; and back: kinds, flush, and then cuptiFinalize in an
// exit callback of the workload's (its documentation calls that the safe place), because without it a process that was
// traced once stays 10 to 20 % slower (PyTorch PR 146604). No lock of ours is ever held across a call of CUPTI's.
#include "tracer/inject/session.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tracer/inject/buffers.h"
#include "tracer/inject/calls.h"
#include "tracer/inject/clock.h"
#include "tracer/inject/cupti_load.h"
#include "tracer/inject/devices.h"
#include "tracer/inject/inject.h"
#include "tracer/inject/nccl.h"
#include "tracer/inject/nvtx.h"
#include "tracer/inject/spool_writer.h"

#define FLUSH_NS 200000000ull
#define CLOCK_NS 100000000ull
#define DROPS_NS 1000000000ull
// The pool of device buffers: 8 x 3.2 MB taken with the context hold 800,000 activities in flight, so that CUPTI need not
// allocate in the workload's thread; at most 128 (410 MB), where CUPTI's own limit is 250.
#define DEVICE_BUFFERS_AHEAD 8u
#define DEVICE_BUFFERS_MAX 128u
#define SEGMENTS_AHEAD 16

enum finalize_state { FINALIZE_NONE, FINALIZE_DUE, FINALIZE_RUNNING, FINALIZE_DONE };

static struct {
    struct cupti cupti;
    // is_attached: CUPTI works for us. is_ready: the CUDA of the process is up, the driver may be asked.
    bool is_loaded, is_subscribed, is_on, is_attached, is_selective, is_ready;
    void *subscriber;
    uint32_t quirks, sessions;
    uint32_t asked, kinds; // what the recorder wants, what CUPTI gave
    uint32_t enabled; // bit of kind_table
    const struct cupti_layout *layout;
    uint64_t flush_due_ns, clock_due_ns, drops_due_ns;
    _Atomic int finalize; // enum finalize_state
    char reason[UG_SPOOL_REASON_BYTES];
} session;

// Kinds of CUPTI for a bit of ours. A kind that this version does not have is no error when it is optional.
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
// Python and NCCL alone need no CUPTI.
#define CUPTI_WANTS                                                                                \
    (UG_WANT_KERNELS | UG_WANT_GRAPH_NODES | UG_WANT_SYNC | UG_WANT_MEMORY | UG_WANT_NVTX |        \
     UG_WANT_OVERHEAD | UG_WANT_LAUNCH_STACKS)

static void reason_add(const char *text)
{
    size_t used = strlen(session.reason);
    snprintf(session.reason + used, sizeof(session.reason) - used, "%s%s", used > 0 ? "; " : "",
             text);
}

static void reason_cupti(const char *what, int result)
{
    char text[UG_SPOOL_REASON_BYTES];
    const char *name = NULL;
    if (session.cupti.get_result_string == NULL ||
        session.cupti.get_result_string(result, &name) != CUPTI_OK || name == NULL)
        name = "unknown error";
    snprintf(text, sizeof(text), "%s: %s (%d)", what, name, result);
    reason_add(text);
}

static void header_publish(uint32_t state)
{
    struct ug_spool_header *header = spool_header();
    if (header == NULL)
        return;
    memcpy(header->reason, session.reason, sizeof(header->reason));
    __atomic_store_n(&header->have_kinds, session.is_on ? session.kinds : 0, __ATOMIC_RELAXED);
    __atomic_store_n(&header->state, state, __ATOMIC_RELEASE);
    inject_kinds_set(session.is_on ? session.kinds : 0);
}

// --- callbacks of CUPTI, on the workload's threads ---------------------------------------------------

// The end of a call of the workload's, while we are to leave: the place where cuptiFinalize is safe.
static void finalize_here(void)
{
    int due = FINALIZE_DUE;
    if (!atomic_compare_exchange_strong(&session.finalize, &due, FINALIZE_RUNNING))
        return;
    session.cupti.finalize();
    nvtx_forget();
    atomic_store(&session.finalize, FINALIZE_DONE);
    inject_wake();
}

static void on_launch(const struct cupti_callback_data *data)
{
    if (data->site == CUPTI_SITE_ENTER) {
        inject_correlation = data->correlation_id;
        inject_launched(data->correlation_id);
    } else {
        inject_correlation = 0;
    }
}

static void on_callback(void *user, uint32_t domain, uint32_t cbid, const void *data)
{
    (void)user;
    if (!inject_alive())
        return;
    if (domain == CUPTI_DOMAIN_DRIVER || domain == CUPTI_DOMAIN_RUNTIME) {
        const struct cupti_callback_data *call = data;
        if (domain == CUPTI_DOMAIN_DRIVER && (inject_kinds() & UG_WANT_LAUNCH_STACKS) != 0 &&
            calls_is_launch(cbid))
            on_launch(call);
        if (call->site == CUPTI_SITE_EXIT &&
            atomic_load_explicit(&session.finalize, memory_order_relaxed) == FINALIZE_DUE)
            finalize_here();
        return;
    }
    if (domain == CUPTI_DOMAIN_RESOURCE) {
        const struct cupti_resource_data *resource = data;
        if (cbid == CUPTI_RESOURCE_CONTEXT_CREATED) {
            devices_context_created(&session.cupti, resource->context);
            inject_wake();
        } else if (cbid == CUPTI_RESOURCE_MODULE_UNLOAD_STARTING) {
            spool_forget_addresses();
        }
    }
}

// --- on ------------------------------------------------------------------------------------------------

// 11.8 calls itself 18, as 12.0 and 12.1 do, but its kernel record is shorter: its symbols' version tells.
static const struct cupti_layout *layout_find(uint32_t version, const char *path, int *ret_exact)
{
    const char *base = strrchr(path, '/') == NULL ? path : strrchr(path, '/') + 1;
    if (version == 18 && (dlvsym(session.cupti.library, "cuptiGetVersion", "libcupti.so.11.8") != NULL ||
                          strncmp(base, "libcupti.so.11", 14) == 0)) {
        *ret_exact = 1;
        return cupti_layout_11_8();
    }
    return cupti_layout_find(version, ret_exact);
}

static int load(void)
{
    struct ug_spool_header *header = spool_header();
    uint32_t version = 0;
    int is_exact = 1;
    if (session.is_loaded)
        return 0;
    int err = cupti_load(&session.cupti, header->cupti_path, sizeof(header->cupti_path),
                         session.reason, sizeof(session.reason));
    if (err != 0)
        return err;
    session.cupti.get_version(&version);
    session.layout = layout_find(version, header->cupti_path, &is_exact);
    session.quirks = cupti_quirks(version);
    header->cupti_version = version;
    if (session.layout == NULL) {
        reason_add("this libcupti is older than 11.8");
        return -ENOTSUP;
    }
    if (!is_exact && session.cupti.next_record != NULL)
        decode_use_next_record(session.cupti.next_record);
    session.is_selective = (session.quirks & QUIRK_NO_SELECTION) == 0 &&
                           session.cupti.enable_driver_api != NULL;
    session.is_loaded = true;
    return 0;
}

static int subscribe(void)
{
    int result = session.cupti.subscribe(&session.subscriber, on_callback, NULL);
    if (result == CUPTI_MULTIPLE_SUBSCRIBERS || result == CUPTI_OLD_PROFILER_API) {
        reason_cupti("another profiler uses CUPTI in this process", result);
        return -EBUSY;
    }
    if (result != CUPTI_OK) {
        reason_cupti("cuptiSubscribe failed", result);
        return -EIO;
    }
    session.is_subscribed = true;
    session.cupti.enable_callback(1, session.subscriber, CUPTI_DOMAIN_RESOURCE,
                                  CUPTI_RESOURCE_CONTEXT_CREATED);
    session.cupti.enable_callback(1, session.subscriber, CUPTI_DOMAIN_RESOURCE,
                                  CUPTI_RESOURCE_MODULE_UNLOAD_STARTING);
    return 0;
}

static bool attribute_set(uint32_t attribute, size_t bytes, void *value)
{
    return session.cupti.set_attribute(attribute, &bytes, value) == CUPTI_OK;
}

// What CUPTI refuses here costs time or memory, not truth: no error.
static void attributes_set(void)
{
    size_t ahead = DEVICE_BUFFERS_AHEAD, most = DEVICE_BUFFERS_MAX;
    uint8_t yes = 1;
    uint32_t per_thread = UINT32_MAX;
    attribute_set(CUPTI_ATTR_DEVICE_BUFFER_POOL_LIMIT, sizeof(most), &most);
    attribute_set(CUPTI_ATTR_DEVICE_BUFFER_PRE_ALLOCATE, sizeof(ahead), &ahead);
    attribute_set(CUPTI_ATTR_ZEROED_OUT_BUFFER, sizeof(yes), &yes);
    // Said in words, because the default changed with 13.0: two sides of a comparison may not differ in this.
    if ((session.quirks & QUIRK_NO_PER_THREAD) == 0)
        per_thread = attribute_set(CUPTI_ATTR_PER_THREAD_BUFFER, sizeof(yes), &yes) ? 1 : 0;
    spool_header()->per_thread_buffers = per_thread;
    if (session.cupti.thread_id_type != NULL)
        session.cupti.thread_id_type(1);
}

// One kind; those that are there already are told too, unless we are inside cuInit.
static int kind_enable(uint32_t kind, bool is_early)
{
    if (kind == CUPTI_KIND_STREAM && session.cupti.enable_and_dump != NULL && !is_early)
        return session.cupti.enable_and_dump(kind);
    return session.cupti.enable(kind);
}

static bool is_graph_whole(uint32_t kinds)
{
    return (kinds & (UG_WANT_KERNELS | UG_WANT_GRAPH_NODES)) == UG_WANT_KERNELS;
}

// Bits of `kinds` that CUPTI took.
static uint32_t kinds_enable(uint32_t kinds, bool is_early)
{
    uint32_t refused = 0;
    char what[64];
    session.enabled = 0;
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if ((kinds & kind_table[i].want) == 0)
            continue;
        int result = kind_enable(kind_table[i].kind, is_early);
        if (result == CUPTI_OK)
            session.enabled |= 1u << i;
        if (result == CUPTI_OK || kind_table[i].is_optional)
            continue;
        refused |= kind_table[i].want;
        snprintf(what, sizeof(what), "activity kind %u refused", kind_table[i].kind);
        reason_cupti(what, result);
    }
    if (is_graph_whole(kinds)) {
        int result = session.cupti.enable(CUPTI_KIND_GRAPH_TRACE);
        if (result != CUPTI_OK)
            reason_cupti("graph launches as a whole refused", result);
    }
    return kinds & ~refused;
}

static void kinds_disable(void)
{
    if (!session.is_attached)
        return;
    calls_disable(&session.cupti, session.is_selective);
    for (size_t i = 0; i < KIND_COUNT; i++) {
        bool is_deadly = kind_table[i].kind == CUPTI_KIND_CONCURRENT_KERNEL &&
                         (session.quirks & QUIRK_NO_DISABLE) != 0;
        if ((session.enabled & 1u << i) != 0 && !is_deadly)
            session.cupti.disable(kind_table[i].kind);
    }
    if (is_graph_whole(session.kinds))
        session.cupti.disable(CUPTI_KIND_GRAPH_TRACE);
    if ((session.kinds & UG_WANT_LAUNCH_STACKS) != 0)
        calls_subscribe_launches(&session.cupti, session.subscriber, false);
}

static void quirks_say(void)
{
    for (uint32_t bit = 1; bit <= QUIRK_SYNC_MISSING; bit <<= 1) {
        if ((session.quirks & bit) == 0 || (bit == QUIRK_ONE_SESSION && session.sessions < 2))
            continue;
        const char *words = cupti_quirk_words(bit);
        if (words[0] != '\0')
            reason_add(words);
    }
}

// Calls, callbacks and NVTX of the kinds, after these.
static void extras_enable(uint32_t kinds)
{
    int result = calls_enable(&session.cupti, session.is_selective);
    if (result != CUPTI_OK)
        reason_cupti("some calls refused", result);
    if ((kinds & UG_WANT_LAUNCH_STACKS) != 0)
        calls_subscribe_launches(&session.cupti, session.subscriber, true);
    if ((kinds & UG_WANT_NVTX) != 0)
        nvtx_forward(&session.cupti);
}

static void refuse(void)
{
    if (session.is_subscribed)
        session.cupti.unsubscribe(session.subscriber);
    session.is_subscribed = false;
    session.is_on = false;
    session.is_attached = false;
    header_publish(UG_SPOOL_REFUSED);
}

// A stop that nobody's call has finished yet is taken back: the subscriber is still ours. True: it was.
static bool finalize_cancel(void)
{
    int due = FINALIZE_DUE;
    if (!atomic_compare_exchange_strong(&session.finalize, &due, FINALIZE_NONE))
        return false;
    session.cupti.enable_domain(0, session.subscriber, CUPTI_DOMAIN_DRIVER);
    session.cupti.enable_domain(0, session.subscriber, CUPTI_DOMAIN_RUNTIME);
    return true;
}

static int attach(void)
{
    if (load() != 0)
        return -ENOENT;
    while (atomic_load(&session.finalize) == FINALIZE_RUNNING)
        inject_futex_wait((uint32_t *)&session.finalize, FINALIZE_RUNNING, 1000000, false);
    if (finalize_cancel())
        return 0;
    session.is_subscribed = false;
    int err = buffers_create();
    if (err != 0) {
        reason_add("no memory for buffers");
        return err;
    }
    err = subscribe();
    if (err != 0)
        return err;
    atomic_store(&session.finalize, FINALIZE_NONE);
    attributes_set();
    buffers_decode_with(session.layout, calls_name);
    int result = session.cupti.register_callbacks(buffers_requested, buffers_completed);
    if (result != CUPTI_OK) {
        reason_cupti("cuptiActivityRegisterCallbacks failed", result);
        return -EIO;
    }
    return 0;
}

// Everything of CUPTI for these kinds; returns those it took.
static uint32_t cupti_start(uint32_t kinds, bool is_early)
{
    spool_prepare(SEGMENTS_AHEAD);
    buffers_refresh();
    session.sessions++;
    if ((session.quirks & QUIRK_NO_NVTX) != 0)
        kinds &= ~(uint32_t)UG_WANT_NVTX;
    quirks_say();
    calls_names(&session.cupti, kinds);
    // Before the first record can be completed: the callbacks read it.
    __atomic_store_n(&spool_header()->have_kinds, kinds, __ATOMIC_RELAXED);
    kinds = kinds_enable(kinds, is_early);
    extras_enable(kinds);
    devices_restart(!is_early);
    if (!is_early)
        clock_sample(&session.cupti);
    return kinds;
}

void session_start(uint32_t kinds, bool is_early)
{
    if (spool_header() == NULL)
        return;
    spool_restart_strings();
    if (session.is_on && session.asked == kinds) {
        devices_restart(true);
        return; // a new recorder, the same wishes
    }
    if (session.is_on)
        kinds_disable();
    session.reason[0] = '\0';
    if ((kinds & CUPTI_WANTS) != 0 && !session.is_attached) {
        if (attach() != 0) {
            refuse();
            return;
        }
        session.is_attached = true;
    }
    session.asked = kinds;
    session.is_ready = !is_early || devices_context_seen();
    session.flush_due_ns = session.clock_due_ns = session.drops_due_ns = 0;
    session.kinds = session.is_attached ? cupti_start(kinds, is_early) : kinds;
    session.is_on = true;
    header_publish(UG_SPOOL_ACTIVE);
    nccl_kinds_changed(session.kinds);
}

// --- while it is on --------------------------------------------------------------------------------------

static void drops_ask(void)
{
    size_t count = 0;
    if (session.cupti.dropped != NULL && session.cupti.dropped(NULL, 0, &count) == CUPTI_OK)
        __atomic_fetch_add(&spool_header()->cupti_dropped, count, __ATOMIC_RELAXED);
}

static void driver_version_ask(void)
{
    struct cuda cuda = {0};
    int version = 0;
    if (spool_header()->driver_version == 0 && cuda_load(&cuda) == 0 &&
        cuda.driver_version != NULL && cuda.driver_version(&version) == 0)
        spool_header()->driver_version = (uint32_t)version;
}

bool session_is_on(void)
{
    return session.is_on;
}

// CUPTI is left alone until the CUDA of the process is up, for cuInit may still be running on another thread, and its
// clock settles only then: at the first context, or the first record.
static bool is_ready(void)
{
    if (session.is_ready)
        return true;
    session.is_ready = devices_context_seen() ||
                       __atomic_load_n(&spool_header()->cupti_buffers_requested, __ATOMIC_RELAXED) > 0;
    if (session.is_ready)
        inject_register_exit();
    return session.is_ready;
}

static void cupti_tick(uint64_t now_ns)
{
    buffers_refresh();
    if (!is_ready())
        return;
    if (now_ns >= session.clock_due_ns) {
        clock_sample(&session.cupti);
        driver_version_ask();
        session.clock_due_ns = now_ns + CLOCK_NS;
    }
    devices_write(&session.cupti);
    if (now_ns >= session.flush_due_ns) {
        session.cupti.flush_all(0);
        session.flush_due_ns = now_ns + FLUSH_NS;
    }
}

void session_tick(uint64_t now_ns)
{
    if (!session.is_on)
        return;
    if (session.is_attached)
        cupti_tick(now_ns);
    if (now_ns >= session.drops_due_ns) {
        if (session.is_attached && session.is_ready)
            drops_ask();
        nccl_poll();
        session.drops_due_ns = now_ns + DROPS_NS;
    }
}

// --- off -------------------------------------------------------------------------------------------------

void session_finish(void)
{
    if (!session.is_on)
        return;
    nccl_kinds_changed(0);
    if (session.is_attached && is_ready()) {
        clock_sample(&session.cupti);
        devices_write(&session.cupti);
        session.cupti.flush_all(CUPTI_FLUSH_FORCED);
        drops_ask();
    }
    spool_flush_thread();
}

// CUPTI leaves: at the end of the workload's next call. An idle process costs nothing, so whenever that comes is soon
// enough.
static void detach(void)
{
    if (!session.is_attached)
        return;
    session.is_attached = false;
    if (session.cupti.finalize == NULL || session.cupti.enable_domain == NULL) {
        session.cupti.unsubscribe(session.subscriber);
        session.is_subscribed = false;
        return;
    }
    session.cupti.enable_domain(1, session.subscriber, CUPTI_DOMAIN_DRIVER);
    session.cupti.enable_domain(1, session.subscriber, CUPTI_DOMAIN_RUNTIME);
    // Last: from then on CUPTI may be gone at any moment.
    atomic_store(&session.finalize, FINALIZE_DUE);
}

void session_stop(void)
{
    if (!session.is_on)
        return;
    session.reason[0] = '\0';
    kinds_disable();
    nvtx_forward(NULL);
    session_finish();
    session.is_on = false;
    header_publish(UG_SPOOL_DORMANT);
    detach();
}
