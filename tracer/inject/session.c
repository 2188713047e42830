// SPDX-License-Identifier: Apache-2.0
// Order matters to CUPTI: subscriber, attributes, buffer callbacks, kinds; and back: kinds, flush,
// and then cuptiFinalize in an exit callback of the workload's (its documentation calls that the
// safe place), because without it a process that was traced once stays 10 to 20 % slower (PyTorch
// PR 146604). No lock of ours is ever held across a call of CUPTI's.
#include "tracer/inject/session.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tracer/inject/cupti/activities.h"
#include "tracer/inject/cupti/buffers.h"
#include "tracer/inject/cupti/calls.h"
#include "tracer/inject/cupti/clock.h"
#include "tracer/inject/cupti/cupti_load.h"
#include "tracer/inject/cupti/devices.h"
#include "tracer/inject/cupti/leave.h"
#include "tracer/inject/cupti/nvtx.h"
#include "tracer/inject/inject.h"
#include "tracer/inject/nccl/nccl.h"
#include "tracer/inject/reason.h"
#include "tracer/inject/spool/spool_writer.h"
#include "tracer/inject/steps/steps.h"
#include "tracer/inject/tuning.h"

#define CLOCK_NS 100000000ull
#define DROPS_NS 1000000000ull
#define SEGMENTS_AHEAD 16

static struct {
    struct cupti cupti;
    // is_attached: CUPTI works for us. is_ready: the CUDA of the process is up, the driver may be
    // asked.
    // is_exit_registered: once, for each time costs memory.
    bool is_loaded, is_subscribed, is_on, is_attached, is_ready, is_exit_registered;
    _Atomic bool is_watching; // steps are seen by callbacks, whatever is recorded
    void *subscriber;
    uint32_t quirks;
    _Atomic uint32_t sessions;
    uint32_t asked, kinds; // what the recorder wants, what CUPTI gave
    const struct cupti_layout *layout;
    uint64_t flush_due_ns, clock_due_ns, drops_due_ns;
    _Atomic int fatal; // an error after which CUPTI has left by itself; 0: none
} session;

// Python and NCCL alone need no CUPTI.
#define CUPTI_WANTS \
    (UG_WANT_KERNELS | UG_WANT_GRAPH_NODES | UG_WANT_SYNC | UG_WANT_MEMORY | UG_WANT_NVTX | \
            UG_WANT_OVERHEAD | UG_WANT_LAUNCH_STACKS)

static void header_publish(uint32_t state)
{
    struct ug_spool_header *header = spool_header();
    if (header == NULL)
        return;
    memcpy(header->reason, reason_text(), sizeof(header->reason));
    __atomic_store_n(&header->have_kinds, session.is_on ? session.kinds : 0, __ATOMIC_RELAXED);
    __atomic_store_n(&header->state, state, __ATOMIC_RELEASE);
    inject_kinds_set(session.is_on ? session.kinds : 0);
}

// --- callbacks of CUPTI, on the workload's threads -----------------------------------------------

// The driver's callback carries the correlation of the kernel.
static void on_launch(const struct cupti_callback_data *data)
{
    if (data->site == CUPTI_SITE_ENTER) {
        inject_correlation = data->correlation_id;
        inject_launched(data->correlation_id);
    } else {
        inject_correlation = 0;
    }
}

// One a node, at capture and at instantiation, not at replay.
static void on_graph_node(const struct cupti_graph_data *graph, bool is_clone)
{
    uint64_t node = 0, original = 0;
    if ((inject_kinds() & UG_WANT_NOTHING_KEPT) != 0) {
        spool_count(UG_PRODUCER_OTHER);
        return;
    }
    if (graph == NULL || session.cupti.graph_node_id(graph->node, &node) != CUPTI_OK)
        return;
    if (is_clone && session.cupti.graph_node_id(graph->original_node, &original) != CUPTI_OK)
        return;
    struct ug_rec_graph_node *record = spool_reserve(UG_PRODUCER_OTHER, sizeof(*record));
    if (record == NULL)
        return;
    record->head = (struct ug_rec_head){UG_REC_GRAPH_NODE, sizeof(*record), spool_tid()};
    record->at_ns = inject_now_ns();
    record->node = node;
    record->original = original;
    spool_publish(sizeof(*record));
}

static void on_resource(uint32_t cbid, const struct cupti_resource_data *resource)
{
    switch (cbid) {
    case CUPTI_RESOURCE_CONTEXT_CREATED:
        devices_context_created(&session.cupti, resource->context);
        inject_wake();
        break;
    case CUPTI_RESOURCE_MODULE_UNLOAD_STARTING:
        spool_forget_addresses();
        break;
    case CUPTI_RESOURCE_GRAPHNODE_CREATED:
    case CUPTI_RESOURCE_GRAPHNODE_CLONED:
        if (inject_kinds() != 0)
            on_graph_node(resource->descriptor, cbid == CUPTI_RESOURCE_GRAPHNODE_CLONED);
        break;
    default:
        break;
    }
}

static void on_callback(void *user, uint32_t domain, uint32_t cbid, const void *data)
{
    (void)user;
    if (!inject_alive())
        return;
    if (domain == CUPTI_DOMAIN_DRIVER || domain == CUPTI_DOMAIN_RUNTIME) {
        const struct cupti_callback_data *call = data;
        if (domain == CUPTI_DOMAIN_DRIVER) {
            if ((inject_kinds() & UG_WANT_LAUNCH_STACKS) != 0 && calls_is_launch(cbid))
                on_launch(call);
            calls_callback(&session.cupti, cbid, call);
            if (session.is_watching)
                graphs_callback(cbid, call);
        }
        leave_here(&session.cupti, domain, cbid, call);
        return;
    }
    if (domain == CUPTI_DOMAIN_RESOURCE)
        on_resource(cbid, data);
    if (domain == CUPTI_DOMAIN_STATE && cbid == CUPTI_STATE_FATAL_ERROR) {
        atomic_store(&session.fatal, ((const struct cupti_state_data *)data)->result);
        inject_wake();
    }
}

// --- on ------------------------------------------------------------------------------------------

// 11.8 calls itself 18, as 12.0 and 12.1 do, but its kernel record is shorter: its symbols' version
// tells.
static const struct cupti_layout *layout_find(uint32_t version, const char *path, int *ret_exact)
{
    const char *base = strrchr(path, '/') == NULL ? path : strrchr(path, '/') + 1;
    if (version == 18 &&
            (dlvsym(session.cupti.library, "cuptiGetVersion", "libcupti.so.11.8") != NULL ||
                    strncmp(base, "libcupti.so.11", 14) == 0)) {
        *ret_exact = 1;
        return cupti_layout_11_8();
    }
    return cupti_layout_find(version, ret_exact);
}

static int load(void)
{
    struct ug_spool_header *header = spool_header();
    char why[UG_SPOOL_REASON_BYTES] = "";
    uint32_t version = 0;
    int is_exact = 1;
    if (session.is_loaded)
        return 0;
    int err = cupti_load(
            &session.cupti, header->cupti_path, sizeof(header->cupti_path), why, sizeof(why));
    if (err != 0) {
        reason_add(why);
        return err;
    }
    inject_register_exit(); // an exit from here on waits for us before its destructors run
    session.cupti.get_version(&version);
    session.layout = layout_find(version, header->cupti_path, &is_exact);
    session.quirks = cupti_quirks(version);
    header->cupti_version = version;
    inject_debug("libcupti '%s', API %u, quirks %#x", header->cupti_path, version, session.quirks);
    if (session.layout == NULL) {
        reason_add("this libcupti is older than 11.8");
        return -ENOTSUP;
    }
    if (!is_exact && session.cupti.next_record != NULL)
        decode_use_next_record(session.cupti.next_record);
    session.is_loaded = true;
    return 0;
}

static int subscribe(void)
{
    int result = session.cupti.subscribe(&session.subscriber, on_callback, NULL);
    inject_debug("cuptiSubscribe: %d", result);
    if (result == CUPTI_MULTIPLE_SUBSCRIBERS || result == CUPTI_OLD_PROFILER_API) {
        reason_cupti(&session.cupti, "another profiler uses CUPTI in this process", result);
        return -EBUSY;
    }
    if (result != CUPTI_OK) {
        reason_cupti(&session.cupti, "cuptiSubscribe failed", result);
        return -EIO;
    }
    session.is_subscribed = true;
    session.cupti.enable_callback(
            1, session.subscriber, CUPTI_DOMAIN_RESOURCE, CUPTI_RESOURCE_CONTEXT_CREATED);
    session.cupti.enable_callback(
            1, session.subscriber, CUPTI_DOMAIN_RESOURCE, CUPTI_RESOURCE_MODULE_UNLOAD_STARTING);
    session.cupti.enable_callback(
            1, session.subscriber, CUPTI_DOMAIN_STATE, CUPTI_STATE_FATAL_ERROR);
    return 0;
}

// Which module a node belongs to is known at its capture alone.
static void graph_nodes_subscribe(uint32_t kinds)
{
    uint32_t both = UG_WANT_GRAPH_NODES | UG_WANT_PYTHON;
    bool on = (kinds & both) == both && session.cupti.graph_node_id != NULL;
    session.cupti.enable_callback(
            on, session.subscriber, CUPTI_DOMAIN_RESOURCE, CUPTI_RESOURCE_GRAPHNODE_CREATED);
    session.cupti.enable_callback(
            on, session.subscriber, CUPTI_DOMAIN_RESOURCE, CUPTI_RESOURCE_GRAPHNODE_CLONED);
}

static void kinds_disable(void)
{
    if (!session.is_attached)
        return;
    activities_disable(&session.cupti, session.quirks);
    calls_disable(&session.cupti, session.subscriber);
    graph_nodes_subscribe(0);
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

// The calls before the kernels, and off after them, so that no kernel lacks its call. Returns the
// kinds CUPTI took.
static uint32_t all_enable(uint32_t kinds, bool is_early)
{
    int result = calls_enable(&session.cupti, session.subscriber, kinds);
    if (result != CUPTI_OK)
        reason_cupti(&session.cupti, "some calls refused", result);
    kinds = activities_enable(&session.cupti, kinds, is_early);
    // else steps/ranges.c writes them
    if ((kinds & UG_WANT_NVTX) != 0 && steps_rule() != STEPS_NVTX)
        nvtx_forward(&session.cupti);
    graph_nodes_subscribe(kinds);
    if (session.is_watching)
        graphs_enable(&session.cupti, session.subscriber); // some are of both
    return kinds;
}

static void watch_end(void)
{
    session.is_watching = false;
    steps_watch(false);
}

static void refuse(void)
{
    if (session.is_subscribed)
        session.cupti.unsubscribe(session.subscriber);
    watch_end();
    session.is_subscribed = false;
    session.is_on = false;
    session.is_attached = false;
    header_publish(UG_SPOOL_REFUSED);
}

static int attach(void)
{
    if (load() != 0)
        return -ENOENT;
    int left = session.is_watching ? 0 : leave_cancel(&session.cupti, session.subscriber);
    if (left == 1)
        return 0; // a stop that no call of the workload's has finished is taken back
    if (left < 0) {
        session.is_subscribed = false; // the subscriber goes with it: not to be touched any more
        reason_add("CUPTI is still leaving after the session before");
        return left;
    }
    int err = buffers_create();
    if (err != 0) {
        reason_add("no memory for buffers");
        return err;
    }
    if (!session.is_watching) {
        session.is_subscribed = false;
        err = subscribe();
    }
    if (err != 0)
        return err;
    atomic_store(&session.fatal, 0);
    activities_attributes(&session.cupti, session.quirks);
    buffers_decode_with(session.layout);
    int result = session.cupti.register_callbacks(buffers_requested, buffers_completed);
    if (result != CUPTI_OK) {
        reason_cupti(&session.cupti, "cuptiActivityRegisterCallbacks failed", result);
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
    // Before the first record can be completed: the callbacks read it.
    __atomic_store_n(&spool_header()->have_kinds, kinds, __ATOMIC_RELAXED);
    kinds = all_enable(kinds, is_early);
    devices_restart(!is_early);
    if (!is_early)
        clock_sample(&session.cupti);
    return kinds;
}

void session_watch_steps(void)
{
    if (steps_rule() == STEPS_NONE)
        return;
    if (steps_rule() == STEPS_GRAPH)
        steps_look();
    reason_clear();
    if (load() != 0 || subscribe() != 0) {
        if (steps_rule() == STEPS_GRAPH)
            steps_why(reason_text());
        return;
    }
    session.is_watching = true;
    graphs_enable(&session.cupti, session.subscriber);
    steps_watch(true);
}

void session_start(uint32_t kinds, bool is_early)
{
    uint64_t began_ns = inject_now_ns();
    if (spool_header() == NULL)
        return;
    spool_restart_strings();
    if (session.is_on && session.asked == kinds) {
        devices_restart(true);
        return; // a new recorder, the same wishes
    }
    if (session.is_on)
        kinds_disable();
    reason_clear();
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
    // After what a libcupti that came this late has registered for the exit: ours has to flush
    // before.
    if (session.is_attached && session.is_ready && !session.is_exit_registered) {
        session.is_exit_registered = true;
        inject_register_exit();
    }
    session.is_on = true;
    header_publish(UG_SPOOL_ACTIVE);
    inject_debug("active, kinds %#x of %#x, %llu us", session.kinds, kinds,
            (unsigned long long)(inject_now_ns() - began_ns) / 1000);
    nccl_kinds_changed(session.kinds);
}

// --- while it is on ------------------------------------------------------------------------------

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

uint64_t session_timestamp(void)
{
    uint64_t now = 0;
    return session.cupti.get_timestamp != NULL && session.cupti.get_timestamp(&now) == CUPTI_OK
            ? now
            : 0;
}

bool session_is_on(void)
{
    return session.is_on;
}

// CUPTI is left alone until the CUDA of the process is up, for cuInit may still be running on
// another thread, and its clock settles only then: at the first context, or the first record.
static bool is_ready(void)
{
    if (session.is_ready)
        return true;
    session.is_ready = devices_context_seen() ||
            __atomic_load_n(&spool_header()->cupti_buffers_requested, __ATOMIC_RELAXED) > 0;
    if (session.is_ready) {
        inject_debug("CUDA is up, contexts seen: %d", devices_context_seen());
        inject_register_exit();
    }
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
        session.flush_due_ns = now_ns + tuning()->flush_ns;
    }
}

// CUPTI has met an error that it cannot survive, and has finalized itself: it is not called any
// more.
static void abandon(void)
{
    nccl_kinds_changed(0);
    nvtx_forget();
    reason_clear();
    reason_cupti(&session.cupti, "CUPTI gave up", atomic_load(&session.fatal));
    session.is_subscribed = false;
    refuse();
}

void session_tick(uint64_t now_ns)
{
    if (!session.is_on)
        return;
    if (session.is_attached && atomic_load(&session.fatal) != 0) {
        abandon();
        return;
    }
    if (session.is_attached)
        cupti_tick(now_ns);
    if (now_ns >= session.drops_due_ns) {
        if (session.is_attached && session.is_ready)
            drops_ask();
        nccl_poll();
        session.drops_due_ns = now_ns + DROPS_NS;
    }
}

// --- off -----------------------------------------------------------------------------------------

void session_finish(void)
{
    if (!session.is_on)
        return;
    nccl_kinds_changed(0);
    if (session.is_attached && is_ready()) {
        clock_sample(&session.cupti);
        devices_write(&session.cupti);
        int result = session.cupti.flush_all(CUPTI_FLUSH_FORCED);
        inject_debug("forced flush: %d", result);
        drops_ask();
    }
    spool_flush_thread();
}

static void detach(void)
{
    bool can_leave = session.cupti.finalize != NULL && session.cupti.enable_domain != NULL;
    if (!session.is_attached)
        return;
    session.is_attached = false;
    watch_end();
    if (session.is_subscribed && can_leave) {
        leave_begin(&session.cupti, session.subscriber);
    } else if (session.is_subscribed) {
        session.cupti.unsubscribe(session.subscriber);
        session.is_subscribed = false;
    }
}

void session_stop(void)
{
    uint64_t began_ns = inject_now_ns();
    if (!session.is_on)
        return;
    reason_clear();
    kinds_disable();
    nvtx_forward(NULL);
    session_finish();
    session.is_on = false;
    header_publish(UG_SPOOL_DORMANT);
    inject_debug("dormant, %llu us", (unsigned long long)(inject_now_ns() - began_ns) / 1000);
    detach();
    buffers_release();
}
