// SPDX-License-Identifier: Apache-2.0
// What the tracing half of the extension shares: _trace.c (the way to the library, marks, steps,
// GC), _modules.c (hooks of modules), _paths.c, _backward.c and _launch_stack.c. All of it runs
// with the GIL held, which is the only lock.
#ifndef UPGATE_TRACER_PYTHON_TRACE_H
#define UPGATE_TRACER_PYTHON_TRACE_H

#include "_core.h"

#include "contracts/inject_api.h"

#define TRACE_FAILURES_MAX 10

// dlopen() and dlsym() of glibc 2.34 and later are new symbols: by their old version, which every
// interpreter that can load an extension has in its process, one binary also runs in older images.
#if defined(__x86_64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver dlclose, dlclose@GLIBC_2.2.5");
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.17");
__asm__(".symver dlclose, dlclose@GLIBC_2.17");
__asm__(".symver dlsym, dlsym@GLIBC_2.17");
#endif

extern uint32_t trace_kinds; // enum ug_spool_want that is on for us; 0: dormant
extern uint32_t trace_epoch; // grows with each start: what was remembered before is not valid

static inline bool trace_on(void)
{
    return (__atomic_load_n(&trace_kinds, __ATOMIC_RELAXED) & UG_WANT_PYTHON) != 0;
}

// --- _trace.c ---
const struct ug_inject_api *trace_api(void); // NULL: no library
uint32_t trace_string(const char *text);     // id, 0: none
// Module, step, phase or the backward pass of one; tid 0: the calling thread.
void trace_mark(
        enum ug_mark_kind kind, uint32_t name, uint64_t value, uint64_t at_ns, uint32_t tid);
void trace_text_mark(enum ug_mark_kind kind, const char *name);
// Tells the name of the calling thread, once. Keeps the exception that is set.
void trace_thread(void);
// Takes the exception that is set, if any. The tenth failure ends tracing in this process.
void trace_failed(const char *what);
// sys.modules[name], borrowed; NULL: not imported.
PyObject *trace_module(const char *name);
int trace_add_functions(PyObject *module); // 0, or -1 with an exception

// Markers of the step protocol, for _core.c. Call them only when trace_on().
void trace_step_begin(uint64_t at_ns);
bool trace_step_closes(
        uint64_t *ret_step); // before ug_step_end: does it end the step that is open?
void trace_step_end(uint64_t step);
void trace_item(uint64_t begin_ns); // the step that began then has its data now

// --- _modules.c ---
void modules_start(void);
void modules_stop(void);
// Has torch come, has somebody put the hooks away, are there new classes? Cheap: looks rarely.
void modules_poll(void);
uint32_t modules_current(void); // path that the calling thread is in, 0: none
// The type slot behind `object(...)`: its place, and whether that is what we think it is.
ternaryfunc *call_slot(PyTypeObject *type);
bool slot_is_known(PyTypeObject *type);
// Every class at and below `type` has `to` where it had `from`.
void set_slots(PyTypeObject *type, ternaryfunc from, ternaryfunc to);

// --- _paths.c ---
void paths_reset(PyTypeObject *type); // forgets all; modules are of this type. NULL: there are none
bool paths_find(PyObject *module, PyObject *root, uint32_t *ret_path);
// Names the whole model; and, if it does not hold `module`, that one as part of its caller. The
// path of `module`, 0: none.
uint32_t paths_walk(PyObject *module, PyObject *root, uint32_t caller);

// --- _backward.c ---
void backward_start(void);
void backward_stop(void);
PyObject *backward_attach(PyObject *module, PyObject *args); // for _trace.py
// At the outermost module's begin: is this a moment to note backward passes?
void backward_look(void);
// `value` went out of, or into, what runs as `path`. Leaves no exception.
void backward_expect(PyObject *value, uint32_t path);
uint32_t backward_current(void); // of the calling thread, 0: not in a backward pass

// --- _launch_stack.c ---
void launch_stack_start(void);
void launch_stack_stop(void);

#endif
