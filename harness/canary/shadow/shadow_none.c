// SPDX-License-Identifier: Apache-2.0
// A build without libcurl: a plan with a shadow stage is refused in words, all others work.
#include "harness/canary/shadow/shadow.h"

#include <errno.h>

int shadow_open(const struct shadow_opts *opts, struct shadow **ret_shadow, struct error *err)
{
    (void)opts;
    (void)ret_shadow;
    return error_set(err, -ENOSYS, "this upgate was built without libcurl: no shadow stage");
}

void shadow_close(struct shadow *shadow)
{
    (void)shadow;
}

void shadow_traffic(struct shadow *shadow, uint64_t requests)
{
    (void)shadow;
    (void)requests;
}

int shadow_poll(struct shadow *shadow, int timeout_ms, struct error *err)
{
    (void)timeout_ms;
    return shadow_open(NULL, &shadow, err);
}

bool shadow_take(
        struct shadow *shadow, int64_t *ret_at_s, struct canary_second ret_arms[CANARY_ARMS])
{
    (void)shadow;
    (void)ret_at_s;
    (void)ret_arms;
    return false;
}

bool shadow_example(struct shadow *shadow, struct shadow_example *ret_example)
{
    (void)shadow;
    (void)ret_example;
    return false;
}

void shadow_example_clear(struct shadow_example *example)
{
    (void)example;
}

void shadow_look(const struct shadow *shadow, struct shadow_state *ret_state)
{
    (void)shadow;
    *ret_state = (struct shadow_state){0};
}
