// SPDX-License-Identifier: Apache-2.0
// The command line of upgate-load.
#ifndef UPGATE_LOAD_LOAD_ARGS_H
#define UPGATE_LOAD_LOAD_ARGS_H

#include <netinet/in.h>

#include "reference_models/load/bodies.h"
#include "reference_models/load/schedule.h"

struct load_url {
    const char *text;
    struct sockaddr_in address;
    char *host, *path; // "127.0.0.1:8000", "/score"
};

struct load_args {
    struct load_url url;
    struct schedule schedule;
    struct bodies_opts bodies;
    uint64_t requests, connections, seed;
    int64_t timeout_ns;
    bool get, even, progress, quiet;
    const char *output, *log; // NULL: stdout; none
};

// Parses, resolves the host, asks /health where the features are not given. On --help or an error
// prints and returns false with the exit code in *ret_exit.
bool load_args_begin(int argc, char **argv, struct load_args *ret_args, int *ret_exit);
void load_args_free(struct load_args *args);

// http://HOST[:PORT][/PATH]; without a path it is `path`. -EINVAL, -EHOSTUNREACH.
int load_url_parse(const char *text, const char *path, struct load_url *ret_url, struct error *err);
void load_url_free(struct load_url *url);

// GET /health of the server: what its model takes. -EPROTO: it does not say.
int load_ask_health(const struct load_url *url, struct bodies_opts *bodies, struct error *err);

#endif
