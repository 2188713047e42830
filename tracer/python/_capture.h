// SPDX-License-Identifier: Apache-2.0
// What lies in the CUDA graph that this thread captures: between _find.c (which says what has
// ended) and upgate/_find.py (which keeps it with the graph). With the GIL.
#ifndef UPGATE_TRACER_PYTHON_CAPTURE_H
#define UPGATE_TRACER_PYTHON_CAPTURE_H

#include "_core.h"

#include "contracts/step_cycle.h"

// What a graph has: steps of optimizers, or outermost calls of models. type: the class of the last,
// borrowed from whom it was read.
struct capture {
    PyObject *type;
    int is_call;                      // of models
    unsigned times;                   // that a replay makes all of them at least: as many steps
    unsigned count;                   // 0: a forward pass that wants gradients, and no more
    const void *keys[CYCLE_KEYS_MAX]; // optimizers, or models; compared only: they may be gone
};

bool capture_is_on(void); // this thread captures: nothing that it calls is run now
void capture_optimizer_begins(void);
void capture_optimizer_ends(PyObject *optimizer); // one that another one calls is part of that
void capture_call(PyObject *model);
void capture_forward(void);                         // of a model that trains
void capture_replay(const struct capture *capture); // of a graph within the one that is captured
void capture_begins(bool is_looked_at);
PyObject *capture_ends(void); // for capture_read(); None: nothing of a step; NULL with an exception
int capture_read(PyObject *held, struct capture *ret_capture); // 0, or -1 with an exception
void capture_forget(void); // in a process that was forked: objects are not touched

#endif
