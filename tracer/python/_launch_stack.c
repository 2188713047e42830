// SPDX-License-Identifier: Apache-2.0
// The Python stack of every launch, on demand: the library calls us inside the driver's callback,
// on the thread that launches, with the launch's correlation id (contracts/inject_api.h).
//
// torch launches without the GIL, so it is taken here: dear, and only for threads that Python
// knows. The collector is held off meanwhile, so that nobody's finalizer runs inside the driver.
// What the limited API has not is looked up at run time.

#include "_trace.h"

#include <dlfcn.h>

#define DEPTH_MAX 64
#define TEXT_BYTES_MAX 512
#define CACHE 8192u // frames that are remembered, a power of two

// A code object is told by its address and its line: the name is checked by holding the code.
struct cached {
    PyObject *code;
    long line;
    uint32_t id;
};

static struct cached cache[CACHE];
static PyObject *name_back, *name_code, *name_line;
static int (*gc_enable)(void), (*gc_disable)(void), (*is_finalizing)(void), (*has_gil)(void);

// "function (file:line)", whose id is asked for once.
static uint32_t frame_id(PyObject *code, long line)
{
    struct cached *slot = &cache[(((uintptr_t)code >> 4) * 31 + (unsigned long)line) & (CACHE - 1)];
    PyObject *name, *file, *text = NULL, *bytes = NULL;
    uint32_t id = 0;

    if (slot->code == code && slot->line == line) {
        return slot->id;
    }
    name = PyObject_GetAttrString(code, "co_qualname"); // from 3.11 on
    if (name == NULL) {
        PyErr_Clear();
        name = PyObject_GetAttrString(code, "co_name");
    }
    file = PyObject_GetAttrString(code, "co_filename");
    if (name != NULL && file != NULL) {
        text = PyUnicode_FromFormat("%.200S (%.300S:%ld)", name, file, line);
    }
    bytes = text == NULL ? NULL : PyUnicode_AsEncodedString(text, "utf-8", "replace");
    if (bytes != NULL) {
        id = trace_string(PyBytes_AsString(bytes));
    }
    if (id != 0) {
        Py_INCREF(code);
        Py_XDECREF(slot->code);
        *slot = (struct cached){code, line, id};
    }
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    Py_XDECREF(file);
    Py_XDECREF(name);
    return id;
}

static uint32_t walk(uint32_t *frames)
{
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    uint32_t depth = 0;

    Py_XINCREF(frame);
    while (frame != NULL && frame != Py_None && depth < DEPTH_MAX) {
        PyObject *code = PyObject_GetAttr(frame, name_code),
                 *line = PyObject_GetAttr(frame, name_line);
        PyObject *back = PyObject_GetAttr(frame, name_back);

        if (code != NULL && line != NULL) {
            frames[depth++] = frame_id(code, PyLong_Check(line) ? PyLong_AsLong(line) : 0);
        }
        Py_XDECREF(line);
        Py_XDECREF(code);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    return depth;
}

static void put_stack(uint32_t correlation)
{
    struct {
        struct ug_rec_launch_stack record;
        uint32_t frames[DEPTH_MAX];
    } stack;
    size_t bytes;

    memset(&stack, 0, sizeof(stack));
    stack.record.depth = walk(stack.frames);
    if (stack.record.depth == 0) {
        return;
    }
    bytes = sizeof(stack.record) + (stack.record.depth + 1) / 2 * 8;
    stack.record.head.type = UG_REC_LAUNCH_STACK;
    stack.record.head.bytes = (uint16_t)bytes;
    stack.record.correlation = correlation;
    trace_api()->put(UG_PRODUCER_PYTHON, &stack);
}

static void launched(uint32_t correlation)
{
    PyObject *type, *value, *traceback;
    PyGILState_STATE state = PyGILState_UNLOCKED;
    bool held, on;

    on = (__atomic_load_n(&trace_kinds, __ATOMIC_RELAXED) & UG_WANT_LAUNCH_STACKS) != 0;
    if (!on || PyGILState_GetThisThreadState() == NULL ||
            (is_finalizing != NULL && is_finalizing())) {
        return;
    }
    held = has_gil != NULL && has_gil();
    if (!held) {
        state = PyGILState_Ensure();
    }
    PyErr_Fetch(&type, &value, &traceback);
    on = gc_disable != NULL && gc_disable() != 0;
    put_stack(correlation);
    if (on) {
        gc_enable();
    }
    if (PyErr_Occurred()) {
        trace_failed("walk the stack of a launch");
    }
    PyErr_Restore(type, value, traceback);
    if (!held) {
        PyGILState_Release(state);
    }
}

static bool has_hook(const struct ug_inject_api *api)
{
    size_t needed = offsetof(struct ug_inject_api, on_launch) + sizeof(api->on_launch);

    return api != NULL && api->bytes >= needed && api->on_launch != NULL;
}

void launch_stack_start(void)
{
    name_back = PyUnicode_InternFromString("f_back");
    name_code = PyUnicode_InternFromString("f_code");
    name_line = PyUnicode_InternFromString("f_lineno");
    *(void **)&gc_disable = dlsym(RTLD_DEFAULT, "PyGC_Disable");
    *(void **)&gc_enable = dlsym(RTLD_DEFAULT, "PyGC_Enable");
    *(void **)&has_gil = dlsym(RTLD_DEFAULT, "PyGILState_Check");
    *(void **)&is_finalizing = dlsym(RTLD_DEFAULT, "Py_IsFinalizing");
    if (is_finalizing == NULL) {
        *(void **)&is_finalizing = dlsym(RTLD_DEFAULT, "_Py_IsFinalizing");
    }
    PyErr_Clear();
    if (name_line != NULL && has_hook(trace_api())) {
        trace_api()->on_launch(launched);
    }
}

void launch_stack_stop(void)
{
    if (has_hook(trace_api())) {
        trace_api()->on_launch(NULL);
    }
    for (size_t i = 0; i < CACHE; i++) {
        Py_CLEAR(cache[i].code);
    }
}
