// SPDX-License-Identifier: Apache-2.0
#include "tracer/inject/cupti/leave.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

#include "tracer/inject/cupti/calls.h"
#include "tracer/inject/cupti/nvtx.h"
#include "tracer/inject/inject.h"

#define GRACE_NS 500000000ull
#define RUNNING_NS 2000000000ull

enum leave_state { LEAVE_NONE, LEAVE_DUE, LEAVE_RUNNING, LEAVE_DONE };

static _Atomic uint32_t state; // enum leave_state
static uint64_t any_call_ns;   // from then on at the end of any call

void leave_begin(const struct cupti *cupti, void *subscriber)
{
    any_call_ns = inject_now_ns() + GRACE_NS;
    cupti->enable_domain(1, subscriber, CUPTI_DOMAIN_DRIVER);
    cupti->enable_domain(1, subscriber, CUPTI_DOMAIN_RUNTIME);
    atomic_store(&state, LEAVE_DUE);
}

int leave_cancel(const struct cupti *cupti, void *subscriber)
{
    uint64_t end_ns = inject_now_ns() + RUNNING_NS;
    uint32_t due = LEAVE_DUE;
    while (atomic_load(&state) == LEAVE_RUNNING) {
        if (inject_now_ns() > end_ns)
            return -ETIMEDOUT;
        inject_futex_wait((uint32_t *)&state, LEAVE_RUNNING, 1000000, false);
    }
    if (!atomic_compare_exchange_strong(&state, &due, LEAVE_NONE))
        return 0;
    cupti->enable_domain(0, subscriber, CUPTI_DOMAIN_DRIVER);
    cupti->enable_domain(0, subscriber, CUPTI_DOMAIN_RUNTIME);
    return 1;
}

// Best of all is a call that has waited for the GPU: nothing is in flight, and no graph is being
// captured, which what CUPTI frees could spoil. A program that does not wait within the grace is
// left at any call.
void leave_here(const struct cupti *cupti, uint32_t domain, uint32_t cbid,
        const struct cupti_callback_data *call)
{
    uint32_t due = LEAVE_DUE;
    if (call->site != CUPTI_SITE_EXIT ||
            atomic_load_explicit(&state, memory_order_acquire) != LEAVE_DUE || inject_exiting())
        return;
    const int *returned = call->function_return;
    bool is_calm = calls_is_wait(domain, cbid) && returned != NULL && *returned == 0;
    if ((!is_calm && inject_now_ns() < any_call_ns) ||
            !atomic_compare_exchange_strong(&state, &due, LEAVE_RUNNING))
        return;
    uint64_t began_ns = inject_now_ns();
    int result = cupti->finalize();
    inject_debug("cuptiFinalize: %d, %llu us", result,
            (unsigned long long)(inject_now_ns() - began_ns) / 1000);
    nvtx_forget();
    atomic_store(&state, LEAVE_DONE);
}
