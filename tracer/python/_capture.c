// SPDX-License-Identifier: Apache-2.0
// upgate._core, captures of CUDA graphs: which optimizers have made their step, or which models
// were called, in what a thread captures. Each replay of the graph does that (_find.c).
#include "_capture.h"

#include <string.h>

static __thread struct {
    bool is_on;
    PyObject *type; // held; NULL: nothing yet
    bool is_call, is_forward;
    unsigned depth; // optimizers that are under way: some call others
    unsigned count;
    const void *keys[CYCLE_KEYS_MAX];
    uint32_t times[CYCLE_KEYS_MAX]; // that each has ended
} now;

bool capture_is_on(void)
{
    return now.is_on;
}

static void add(const void *key, PyObject *type, bool is_call, uint32_t times)
{
    if (now.count > 0 && now.is_call && !is_call) {
        now.count = 0; // what trains has steps of its optimizer
    }
    for (unsigned i = 0; i < now.count; i++) {
        if (now.keys[i] == key) {
            now.times[i] += times;
            return;
        }
    }
    if (now.count == CYCLE_KEYS_MAX || (now.count > 0 && now.is_call != is_call)) {
        return;
    }
    now.times[now.count] = times;
    now.keys[now.count++] = key;
    now.is_call = is_call;
    Py_INCREF(type);
    Py_XDECREF(now.type);
    now.type = type;
}

void capture_optimizer_begins(void)
{
    now.depth++;
}

void capture_optimizer_ends(PyObject *optimizer)
{
    now.depth -= now.depth > 0 ? 1 : 0;
    if (now.depth == 0) {
        add(optimizer, (PyObject *)Py_TYPE(optimizer), false, 1);
    }
}

void capture_call(PyObject *model)
{
    add(model, (PyObject *)Py_TYPE(model), true, 1);
}

void capture_forward(void)
{
    now.is_forward = true;
}

void capture_replay(const struct capture *capture)
{
    now.is_forward = now.is_forward || capture->count == 0;
    for (unsigned i = 0; i < capture->count; i++) {
        add(capture->keys[i], capture->type, capture->is_call, capture->times);
    }
}

static void clear(void)
{
    PyObject *type = now.type;

    memset(&now, 0, sizeof(now));
    Py_XDECREF(type);
}

void capture_begins(bool is_looked_at)
{
    clear();
    now.is_on = is_looked_at;
}

PyObject *capture_ends(void)
{
    PyObject *keys, *times, *result = NULL;
    uint32_t least = now.count > 0 ? UINT32_MAX : 1;

    now.is_on = false;
    if (now.count == 0 && !now.is_forward) {
        Py_RETURN_NONE;
    }
    for (unsigned i = 0; i < now.count; i++) {
        least = now.times[i] < least ? now.times[i] : least;
    }
    keys = PyBytes_FromStringAndSize(
            (const char *)now.keys, (Py_ssize_t)(now.count * sizeof(now.keys[0])));
    times = PyLong_FromUnsignedLong(least);
    if (keys != NULL && times != NULL) {
        result = PyTuple_Pack(4, now.type != NULL ? now.type : Py_None,
                now.is_call ? Py_True : Py_False, times, keys);
    }
    Py_XDECREF(keys);
    Py_XDECREF(times);
    clear();
    return result;
}

int capture_read(PyObject *held, struct capture *ret_capture)
{
    PyObject *keys;
    char *bytes;
    Py_ssize_t length;
    size_t count;

    if (!PyArg_ParseTuple(held, "OpIS", &ret_capture->type, &ret_capture->is_call,
                &ret_capture->times, &keys) ||
            PyBytes_AsStringAndSize(keys, &bytes, &length) < 0) {
        return -1;
    }
    count = (size_t)length / sizeof(ret_capture->keys[0]);
    ret_capture->count = count < CYCLE_KEYS_MAX ? (unsigned)count : CYCLE_KEYS_MAX;
    memcpy(ret_capture->keys, bytes, ret_capture->count * sizeof(ret_capture->keys[0]));
    return 0;
}

void capture_forget(void)
{
    memset(&now, 0, sizeof(now)); // without a reference less: this is no place for objects
}
