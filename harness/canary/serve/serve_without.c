// SPDX-License-Identifier: Apache-2.0
// In the place of serve.c where the machine that built upgate had no libmicrohttpd.
#include <errno.h>

#include "harness/canary/serve/serve.h"

int canary_serve(const struct serve_options *options, struct error *err)
{
    (void)options;
    return error_set(err, -ENOTSUP,
            "this upgate was built without libmicrohttpd: it cannot serve; install libmicrohttpd-dev and build again");
}
