// SPDX-License-Identifier: Apache-2.0
// The fingerprint of a side without a run: start its interpreter (or program) for a moment, wait
// until what it uses is loaded, read the live process, end it.
#ifndef UPGATE_HARNESS_RUN_PROBE_H
#define UPGATE_HARNESS_RUN_PROBE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

struct probe_spec {
    const char *side;  // its name, for messages
    char *const *argv; // NULL-terminated; argv[0] is looked up in PATH
    // Called in the child before the program is executed: sets environment and directory. 0 or
    // -errno.
    int (*prepare)(void *arg);
    void *prepare_arg;
    bool interpreter;   // argv ends in a Python interpreter: the probe program is appended to it
    bool gentle;        // argv starts a container: its engine gets time to remove it
    int64_t timeout_ns; // until it must have answered, or loaded its libraries; 0 = two minutes
};

// The frameworks are imported by the probe if the interpreter has them. *ret_document is a
// fingerprint
// ("upgate.fingerprint/1"). -ENOENT, -EACCES, ...: it could not be started; -ECHILD: it ended
// before it could be read, with the end of what it wrote; -ETIME: it did not answer; -EMSGSIZE: it
// wrote and wrote. Nothing that it started is left, whatever it did to hide; what it writes is not
// kept.
int fingerprint_probe(const struct probe_spec *spec, json_t **ret_document, struct error *err);

#endif
