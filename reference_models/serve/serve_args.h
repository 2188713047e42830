// SPDX-License-Identifier: Apache-2.0
// The command line of upgate-serve. reference_models/serve/python/args.py has the same names.
#ifndef UPGATE_SERVE_SERVE_ARGS_H
#define UPGATE_SERVE_SERVE_ARGS_H

#include "reference_models/serve/server.h"

struct serve_args {
    struct model_choice choice;
    struct batcher_opts batch;
    struct server_opts server;
    uint64_t workers;
    int64_t drain_delay_ns, drain_timeout_ns;
};

// Parses; on --help or a wrong argument prints and returns false with the exit code in *ret_exit.
// Strings point into argv.
bool serve_args_begin(int argc, char **argv, struct serve_args *ret_args, int *ret_exit);

#endif
