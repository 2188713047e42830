// SPDX-License-Identifier: Apache-2.0
// In place of calls.c where the build has no BPF programs (libbpf or clang were missing).
#include <errno.h>

#include "tracer/calls/calls.h"

int native_calls_start(
        const struct native_calls_opts *opts, struct native_calls **ret_calls, struct error *err)
{
    (void)ret_calls;
    return error_set(err, -ENOTSUP,
            "'%s': this upgate was built without BPF programs (it needs libbpf and clang), and cannot see calls of "
            "native functions",
            opts->symbol);
}

bool native_calls_left(const struct native_calls *calls)
{
    (void)calls;
    return false;
}

void native_calls_stop(struct native_calls *calls)
{
    (void)calls;
}

const char *native_calls_found(const struct native_calls *calls, const char **ret_why)
{
    (void)calls;
    *ret_why = "not built";
    return NULL;
}

void native_calls_free(struct native_calls *calls)
{
    (void)calls;
}
