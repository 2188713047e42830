// SPDX-License-Identifier: Apache-2.0
// Communicators come and go, and what NCCL is asked to report. While dormant the activation mask is
// 0: NCCL loads one integer an operation. Every version looks at the mask again for each group, so
// recording starts with the next one.
//
// The channels' reports are asked for only when that was so all the time since the communicator was
// made: NCCL counts its works on the host and on the GPU, and a graph that was captured without
// reports is counted by the GPU alone. Then its proxy waits for a number that does not come, and so
// does ncclCommDestroy. UPGATE_NCCL_CHANNELS=0: never ask for them (a captured collective then
// costs no host node); 1: always.
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "contracts/spool.h"
#include "tracer/inject/inject.h"
#include "tracer/inject/nccl/nccl.h"
#include "tracer/inject/nccl/nccl_abi.h"
#include "tracer/inject/nccl/nccl_pool.h"
#include "tracer/inject/spool/spool_writer.h"

enum channels_wish { CHANNELS_WHEN_SAFE, CHANNELS_NEVER, CHANNELS_ALWAYS };

// Communicators that come and go, and masks; never on the path.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum channels_wish wish; // under the lock
static _Atomic pid_t process;   // whose communicators these are

// On the thread of ncclCommInit, where NCCL reads its own: ours may meet a setenv of the
// workload's.
static void read_wish(void)
{
    const char *text = getenv("UPGATE_NCCL_CHANNELS");
    wish = CHANNELS_WHEN_SAFE;
    if (text && !strcmp(text, "0"))
        wish = CHANNELS_NEVER;
    else if (text && !strcmp(text, "1"))
        wish = CHANNELS_ALWAYS;
}

// The mask of all communicators of this libnccl. Under the lock.
static void set_mask(int *mask, uint32_t version, uint32_t kinds)
{
    int events = 0;
    bool has_channels = version >= 3 && (kinds & UG_WANT_NCCL) != 0;
    for (uint32_t i = 0; i < NCCL_COMMS && has_channels && wish == CHANNELS_WHEN_SAFE; i++)
        if (atomic_load(&nccl_comms[i].is_live) && nccl_comms[i].mask == mask &&
                nccl_comms[i].was_without)
            has_channels = false;
    if (wish == CHANNELS_NEVER)
        has_channels = false;
    if (kinds & UG_WANT_NCCL)
        events = NCCL_EVENT_COLL | NCCL_EVENT_P2P | (version < 3 ? NCCL_EVENT_PROXY_OP : 0) |
                (version >= 6 ? NCCL_EVENT_CE_COLL : 0) | (has_channels ? NCCL_EVENT_KERNEL_CH : 0);
    for (uint32_t i = 0; i < NCCL_COMMS; i++) {
        struct nccl_comm *comm = &nccl_comms[i];
        if (!atomic_load(&comm->is_live) || comm->mask != mask)
            continue;
        comm->was_without |= !has_channels;
        atomic_store(&comm->has_channels, has_channels);
    }
    __atomic_store_n(mask, events, __ATOMIC_RELAXED);
}

// NCCL's mask is written from our thread at any time: its library stays loaded from now on. Tells
// its version.
static uint32_t pin_library(const int *mask)
{
    Dl_info info;
    if (!dladdr(mask, &info) || !info.dli_fname)
        return 0;
    void *library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    if (!library)
        return 0; // linked into the program itself
    int version = 0;
    int (*get)(int *) = NULL;
    *(void **)&get = dlsym(library, "ncclGetVersion");
    if (!get || get(&version) != 0 || version < 0)
        version = 0;
    dlclose(library);
    return (uint32_t)version;
}

// What is on, or will be in a moment: the control thread of a process that is traced from its start
// may still be loading CUPTI.
static uint32_t kinds_soon(void)
{
    const struct ug_spool_header *header = spool_header();
    uint32_t kinds = inject_kinds();
    if (kinds || !header ||
            __atomic_load_n(&header->want_state, __ATOMIC_ACQUIRE) != UG_SPOOL_ACTIVE ||
            __atomic_load_n(&header->state, __ATOMIC_ACQUIRE) > UG_SPOOL_ACTIVE)
        return kinds;
    return __atomic_load_n(&header->want_kinds, __ATOMIC_RELAXED);
}

static void start_library(const int *mask)
{
    inject_start();
    uint32_t version = pin_library(mask);
    struct ug_spool_header *header = spool_header();
    if (header && version)
        __atomic_store_n(&header->nccl_version, version, __ATOMIC_RELAXED);
}

void nccl_comm_name(struct nccl_comm *comm, const char *name)
{
    uint32_t unset = 0;
    if (!name || !*name || !atomic_compare_exchange_strong(&comm->name_state, &unset, 1))
        return;
    size_t bytes = strnlen(name, sizeof(comm->name) - 1);
    memcpy(comm->name + 1, name + 1, bytes - 1); // whoever reads sees an empty name or the whole
    __atomic_store_n(comm->name, *name, __ATOMIC_RELEASE);
}

// Memory is mapped at the first communicator of this place and touched when an operation needs it.
static struct nccl_comm *place_for_comm(void)
{
    for (uint32_t i = 0; i < NCCL_COMMS; i++) {
        struct nccl_comm *comm = &nccl_comms[i];
        if (atomic_load(&comm->is_live))
            continue;
        if (!comm->slots)
            comm->slots = nccl_slots_map();
        return comm;
    }
    return NULL;
}

int nccl_comm_open(uint32_t version, void **context, int *mask, const char *name, uint64_t hash,
        int ranks, int rank)
{
    // Without a place or memory: the last, whose operations are dropped and counted.
    *context = &nccl_comms[NCCL_COMMS];
    start_library(mask);
    pthread_mutex_lock(&lock);
    process = getpid();
    read_wish();
    nccl_comms[NCCL_COMMS].version = version;
    atomic_store(&nccl_comms[NCCL_COMMS].is_live, 1);
    struct nccl_comm *comm = place_for_comm();
    if (comm && comm->slots) {
        comm->version = version;
        comm->hash = hash;
        comm->ranks = ranks > 0 ? (uint32_t)ranks : 0;
        comm->rank = rank > 0 ? (uint32_t)rank : 0;
        comm->mask = mask;
        comm->was_without = false;
        memset(comm->name, 0, sizeof(comm->name));
        atomic_store(&comm->name_state, 0);
        nccl_comm_name(comm, name);
        atomic_store(&comm->offset, INT64_MAX);
        atomic_store(&comm->offset_ns, 0);
        atomic_store(&comm->is_live, 1);
        *context = comm;
    }
    set_mask(mask, version, kinds_soon());
    pthread_mutex_unlock(&lock);
    return 0;
}

struct nccl_comm *nccl_comm_of(void *context)
{
    struct nccl_comm *comm = context;
    bool is_ours = comm >= nccl_comms && comm <= nccl_comms + NCCL_COMMS;
    return is_ours && atomic_load(&comm->is_live) ? comm : NULL;
}

int nccl_comm_close(void *context)
{
    struct nccl_comm *comm = nccl_comm_of(context);
    if (!comm || !comm->slots || process != getpid())
        return 0;
    pthread_mutex_lock(&lock);
    comm->mask = NULL;
    atomic_store(&comm->is_live, 0);
    nccl_comm_settle(comm, true);
    pthread_mutex_unlock(&lock);
    return 0;
}

bool nccl_is_own(int pid)
{
    return pid == atomic_load_explicit(&process, memory_order_relaxed);
}

void nccl_kinds_changed(uint32_t kinds)
{
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < NCCL_COMMS; i++) {
        struct nccl_comm *comm = &nccl_comms[i];
        if (!atomic_load(&comm->is_live))
            continue;
        set_mask(comm->mask, comm->version, kinds);
        if (!(kinds & UG_WANT_NCCL))
            nccl_comm_settle(comm, true);
    }
    pthread_mutex_unlock(&lock);
}

void nccl_poll(void)
{
    for (uint32_t i = 0; i < NCCL_COMMS; i++)
        if (atomic_load(&nccl_comms[i].is_live))
            nccl_comm_settle(&nccl_comms[i], false);
}

void nccl_forget(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (uint32_t i = 0; i < NCCL_COMMS; i++)
        atomic_store(&nccl_comms[i].is_live, 0);
}
