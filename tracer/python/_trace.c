// SPDX-License-Identifier: Apache-2.0
// upgate._core, tracing: finds the library that CUDA loaded into this process
// (contracts/inject_api.h) and writes marks of steps and phases, names of threads and garbage
// collections to its spool. start and stop come from a thread of that library, with the GIL.
// Dormant, a marker costs one load more; a collection nothing.
//
// Nothing here raises, and nothing is said on the user's stderr.

#include "_trace.h"

#include <dlfcn.h>
#include <link.h>

uint32_t trace_kinds, trace_epoch;

static const struct ug_inject_api
        *api; // found once, never goes away: the library is never unloaded
static unsigned failures;
static bool fork_is_watched;

// Steps of a process without UPGATE_STEPS: the same rules, one thread's steps, nested ones ignored.
static struct {
    uintptr_t owner;
    uint64_t next;
    uint32_t nested;
} own_steps;

static __thread struct {
    uint64_t gc_begin_ns;
    uint32_t named_epoch;
} thread;

// ---- the library ----

static int is_library(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    const char *slash = strrchr(info->dlpi_name, '/');

    (void)bytes;
    if (slash == NULL || strcmp(slash + 1, UG_INJECT_LIBRARY) != 0) {
        return 0;
    }
    snprintf(arg, PATH_MAX, "%s", info->dlpi_name);
    return 1;
}

const struct ug_inject_api *trace_api(void)
{
    char path[PATH_MAX];
    ug_inject_api_fn get = NULL;
    void *library = NULL;

    if (api != NULL) {
        return api;
    }
    if (dl_iterate_phdr(is_library, path) != 0) {
        library = dlopen(path, RTLD_NOLOAD | RTLD_LAZY | RTLD_LOCAL);
    }
    if (library != NULL) {
        *(void **)&get = dlsym(library, UG_INJECT_API_SYMBOL);
    }
    api = get == NULL ? NULL : get(UG_INJECT_API_VERSION);
    if (api == NULL && library != NULL) {
        dlclose(library);
    }
    return api;
}

uint32_t trace_string(const char *text)
{
    return api == NULL || text == NULL ? 0 : api->string(text, strlen(text));
}

void trace_failed(const char *what)
{
    char text[128];

    if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
        PyErr_SetInterrupt(); // Ctrl-C while a hook in Python ran is the program's: once more, a
                              // moment later
    }
    PyErr_Clear();
    if (++failures != TRACE_FAILURES_MAX) {
        return;
    }
    snprintf(text, sizeof(text), "upgate: tracing of Python ended: failed to %s %u times", what,
            failures);
    trace_text_mark(UG_MARK_PHASE_BEGIN, text);
    trace_text_mark(UG_MARK_PHASE_END, text);
    __atomic_store_n(&trace_kinds, 0, __ATOMIC_RELAXED);
}

PyObject *trace_module(const char *name)
{
    PyObject *all = PySys_GetObject(
            "modules"); // PyImport_GetModuleDict() is fatal in an interpreter that ends

    return all == NULL || !PyDict_Check(all) ? NULL : PyDict_GetItemString(all, name);
}

// ---- marks ----

// The name that the program gave the thread, once a thread. Without threading.current_thread(),
// which would make an object for a thread that Python does not know.
static void name_thread(void)
{
    struct ug_rec_thread record = {{UG_REC_THREAD, sizeof(record), 0}, 0, 0};
    PyObject *threading = trace_module("threading"), *active = NULL, *ident = NULL, *name = NULL;
    PyObject *object = NULL, *bytes = NULL;

    thread.named_epoch = trace_epoch;
    if (threading != NULL) {
        active = PyObject_GetAttrString(threading, "_active");
        ident = PyLong_FromUnsignedLong((unsigned long)pthread_self());
    }
    if (active != NULL && ident != NULL && PyDict_Check(active)) {
        object = PyDict_GetItem(active, ident);
    }
    if (object != NULL) {
        name = PyObject_GetAttrString(object, "_name");
    }
    if (name != NULL && PyUnicode_Check(name)) {
        bytes = PyUnicode_AsEncodedString(name, "utf-8", "replace");
    }
    if (bytes != NULL) {
        record.name = trace_string(PyBytes_AsString(bytes));
        api->put(UG_PRODUCER_OTHER, &record);
    }
    PyErr_Clear();
    Py_XDECREF(bytes);
    Py_XDECREF(name);
    Py_XDECREF(ident);
    Py_XDECREF(active);
}

void trace_thread(void)
{
    PyObject *type, *value, *traceback;

    if (thread.named_epoch == trace_epoch) {
        return;
    }
    PyErr_Fetch(&type, &value, &traceback);
    name_thread();
    PyErr_Restore(type, value, traceback);
}

void trace_mark(enum ug_mark_kind kind, uint32_t name, uint64_t value, uint64_t at_ns, uint32_t tid)
{
    struct ug_rec_mark record = {
            .head = {UG_REC_MARK, sizeof(record), tid},
            .at_ns = at_ns,
            .value = value,
            .name = name,
            .kind = kind,
    };

    if (api != NULL) {
        api->put(UG_PRODUCER_PYTHON, &record);
    }
}

void trace_text_mark(enum ug_mark_kind kind, const char *name)
{
    trace_mark(kind, trace_string(name), 0, ug_impl_now_ns(), 0);
}

// ---- steps ----

static bool attached(void)
{
    return __atomic_load_n(&ug_step_state_v2.status, __ATOMIC_ACQUIRE) == UG_IMPL_ATTACHED;
}

static bool step_is_mine(void)
{
    const struct ug_step_state *s = &ug_step_state_v2;

    return __atomic_load_n(&s->owner, __ATOMIC_RELAXED) == ug_impl_self() && s->in_step &&
            s->nested == 0;
}

void trace_step_begin(uint64_t at_ns)
{
    uint64_t step;

    if (attached()) {
        if (!step_is_mine()) {
            return;
        }
        step = ug_step_state_v2.step;
    } else if (own_steps.owner == 0) {
        own_steps.owner = ug_impl_self();
        own_steps.nested = 0;
        step = own_steps.next++;
    } else {
        own_steps.nested += own_steps.owner == ug_impl_self() ? 1 : 0;
        return;
    }
    trace_thread();
    modules_poll();
    trace_mark(UG_MARK_STEP_BEGIN, 0, step, at_ns, 0);
}

void trace_item(uint64_t begin_ns)
{
    uint32_t name = trace_string("data");

    trace_step_begin(begin_ns);
    trace_mark(UG_MARK_PHASE_BEGIN, name, 0, begin_ns, 0);
    trace_mark(UG_MARK_PHASE_END, name, 0, ug_impl_now_ns(), 0);
}

bool trace_step_closes(uint64_t *ret_step)
{
    if (attached()) {
        *ret_step = ug_step_state_v2.step;
        return step_is_mine();
    }
    if (own_steps.owner != ug_impl_self()) {
        return false;
    }
    if (own_steps.nested > 0) {
        own_steps.nested--;
        return false;
    }
    own_steps.owner = 0;
    *ret_step = own_steps.next - 1;
    return true;
}

void trace_step_end(uint64_t step)
{
    trace_mark(UG_MARK_STEP_END, 0, step, ug_impl_now_ns(), 0);
}

// ---- garbage collections ----

static PyObject *name_generation, *name_collected;

static uint32_t number_of(PyObject *info, PyObject *name)
{
    PyObject *value = PyDict_Check(info) ? PyDict_GetItem(info, name) : NULL;

    return value != NULL && PyLong_Check(value) ? (uint32_t)PyLong_AsUnsignedLongMask(value) : 0;
}

// In gc.callbacks: (phase, info), "start" then "stop", on the thread that collects.
static PyObject *collected(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    struct ug_rec_gc record = {.head = {UG_REC_GC, sizeof(record), 0}};
    bool begins;

    (void)self;
    if (!trace_on() || count != 2 || !PyUnicode_Check(args[0])) {
        Py_RETURN_NONE;
    }
    begins = PyUnicode_CompareWithASCIIString(args[0], "start") == 0;
    if (begins) {
        thread.gc_begin_ns = ug_impl_now_ns();
    } else if (thread.gc_begin_ns != 0) {
        record.start_ns = thread.gc_begin_ns;
        record.end_ns = ug_impl_now_ns();
        record.generation = number_of(args[1], name_generation);
        record.collected = number_of(args[1], name_collected);
        thread.gc_begin_ns = 0;
        api->put(UG_PRODUCER_PYTHON, &record);
        modules_poll(); // whoever makes classes and models makes garbage
    }
    Py_RETURN_NONE;
}

static PyObject *collected_object;

static void watch_collections(bool on)
{
    PyObject *gc = PyImport_ImportModule("gc");
    PyObject *list = gc == NULL ? NULL : PyObject_GetAttrString(gc, "callbacks");

    if (list != NULL && PyList_Check(list)) {
        for (Py_ssize_t i = PyList_Size(list) - 1; i >= 0; i--) {
            if (PyList_GetItem(list, i) == collected_object) {
                PyList_SetSlice(list, i, i + 1, NULL);
            }
        }
        if (on) {
            PyList_Append(list, collected_object);
        }
    }
    if (PyErr_Occurred()) {
        trace_failed("watch collections");
    }
    Py_XDECREF(list);
    Py_XDECREF(gc);
}

// ---- for upgate/_trace.py ----

// The spool is the parent's. The hooks stay in, for they lie in memory that the child shares: one
// load each.
static void after_fork(void)
{
    __atomic_store_n(&trace_kinds, 0, __ATOMIC_RELAXED);
}

static void stop(void)
{
    __atomic_store_n(&trace_kinds, 0, __ATOMIC_RELAXED);
    watch_collections(false);
    launch_stack_stop();
    modules_stop();
    backward_stop();
}

static PyObject *trace_start(PyObject *module, PyObject *value)
{
    uint32_t kinds = (uint32_t)PyLong_AsUnsignedLongMask(value);

    (void)module;
    if (PyErr_Occurred()) {
        return NULL;
    }
    kinds &= UG_WANT_PYTHON | UG_WANT_LAUNCH_STACKS;
    stop();
    if (kinds == 0 || trace_api() == NULL) {
        Py_RETURN_FALSE;
    }
    if (!fork_is_watched) {
        fork_is_watched = pthread_atfork(NULL, NULL, after_fork) == 0;
    }
    failures = 0;
    trace_epoch++;
    memset(&own_steps, 0, sizeof(own_steps));
    __atomic_store_n(&trace_kinds, kinds, __ATOMIC_RELAXED);
    if (kinds & UG_WANT_PYTHON) {
        watch_collections(true);
        backward_start();
        modules_start();
    }
    if (kinds & UG_WANT_LAUNCH_STACKS) {
        launch_stack_start();
    }
    Py_RETURN_TRUE;
}

static PyObject *trace_stop(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    stop();
    Py_RETURN_NONE;
}

// For hooks in Python: (text) from here on this thread runs that, (None) what it ran before.
static PyObject *trace_run(PyObject *module, PyObject *text)
{
    PyObject *bytes;

    (void)module;
    if (!trace_on()) {
        Py_RETURN_NONE;
    }
    if (text == Py_None) {
        trace_mark(UG_MARK_MODULE, modules_current(), 0, ug_impl_now_ns(), 0);
        Py_RETURN_NONE;
    }
    bytes = PyUnicode_AsEncodedString(text, "utf-8", "replace");
    if (bytes == NULL) {
        trace_failed("name an optimizer");
        Py_RETURN_NONE;
    }
    trace_text_mark(UG_MARK_MODULE, PyBytes_AsString(bytes));
    Py_DECREF(bytes);
    Py_RETURN_NONE;
}

static PyObject *trace_poll(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    if (trace_on()) {
        modules_poll();
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
        {"trace_start", trace_start, METH_O,
                "trace_start(kinds): True if there is something to write to."},
        {"trace_stop", trace_stop, METH_NOARGS, "trace_stop(): every hook is gone."},
        {"trace_run", trace_run, METH_O,
                "trace_run(text or None): what this thread runs from here on."},
        {"trace_backward", backward_attach, METH_VARARGS,
                "trace_backward(Tensor, tensor, engine, task): note backward passes."},
        {"trace_poll", trace_poll, METH_NOARGS,
                "trace_poll(): looks for torch and for new classes of modules."},
        {NULL, NULL, 0, NULL},
};

static PyMethodDef collected_method = {"collected", (PyCFunction)(void (*)(void))collected,
        METH_FASTCALL, "Of upgate: times garbage collections."};

int trace_add_functions(PyObject *module)
{
    name_generation = PyUnicode_InternFromString("generation");
    name_collected = PyUnicode_InternFromString("collected");
    collected_object = PyCFunction_NewEx(&collected_method, NULL, NULL);
    if (name_generation == NULL || name_collected == NULL || collected_object == NULL) {
        return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
