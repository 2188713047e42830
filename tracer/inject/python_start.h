// SPDX-License-Identifier: Apache-2.0
// The Python part (tracer/python/upgate/_inject.py), started in a process that never imports
// upgate.
#ifndef UPGATE_TRACER_INJECT_PYTHON_START_H
#define UPGATE_TRACER_INJECT_PYTHON_START_H

#include <stdint.h>

// Keeps UPGATE_PYTHON_PATH as it is now.
void python_environment(void);
// The kinds have changed (enum ug_spool_want, 0: off): tells the listener and Python, from a thread
// of its own, which is made when there is something to tell. Returns at once. Control thread.
void python_kinds_changed(uint32_t kinds);
// Another recorder has come while the kinds stayed on: Python begins anew. Control thread.
void python_restart(void);
// Who wants to hear; told the present kinds at once when some are on. Any thread; NULL: nobody.
void python_listen(void (*changed)(uint32_t kinds));
// The process exits or has forked: Python is not touched any more.
void python_stop(void);

#endif
