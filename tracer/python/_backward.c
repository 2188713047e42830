// SPDX-License-Identifier: Apache-2.0
// Which module's backward pass runs: what comes out of a module has a node of the autograd graph,
// and a hook on that node is called, on autograd's thread, before the node runs; from there on,
// until the next such mark, the backward of that module runs. What goes into a module and was not
// marked when it came out of another one belongs to the caller. The hook returns None: gradients
// are what they were. Nodes are asked for their sequence number (of the thread, growing) so that
// none is marked twice: the innermost module counts.
//
// Needs _sequence_nr of torch 2.1. With compiled autograd nothing is marked: it would compile the
// hooks, too.

#include "_trace.h"

#define MARKS 4096u // hooks by path that are kept, a power of two
#define THREADS_MAX 64

static bool usable;
static PyTypeObject *tensor_type; // torch.Tensor; subclasses have their own ideas of what a hook is
static PyObject *engine;          // torch.autograd.Variable._execution_engine
static PyObject *carrier;         // a tensor of our own, with the hooks that a node shall have
static PyObject *graph_task;      // torch._C._current_graph_task_id, -1: none; or None
static uint32_t carried;          // of this path
static PyObject *ended_object;
static PyObject *marks[MARKS]; // {0: callable}, by string id
static uint32_t mark_paths[MARKS];
static bool awaits_end;            // a backward pass will tell us when it is over
static uint32_t pass;              // grows with the end of each
static uint32_t tids[THREADS_MAX]; // that had a mark in this pass
static unsigned tid_count;
static bool is_compiled; // compiled autograd is on
static PyObject *name_grad_fn, *name_sequence, *name_register, *name_hooks, *name_queue;

static __thread struct {
    uint32_t epoch, pass; // of what follows
    uint32_t path;        // whose backward runs
    long long sequence;   // of the newest node that has a hook, plus 1
} thread;

// ---- in the backward pass ----

// At its end, on whichever thread comes last: what ran on all of them has ended.
static PyObject *ended(PyObject *self, PyObject *ignored)
{
    uint64_t now_ns = ug_impl_now_ns();

    (void)self;
    (void)ignored;
    awaits_end = false;
    pass++;
    for (unsigned i = 0; i < tid_count && trace_on(); i++) {
        trace_mark(UG_MARK_BACKWARD, 0, 0, now_ns, tids[i]);
    }
    tid_count = 0;
    Py_RETURN_NONE;
}

static PyMethodDef ended_method = {"ended", ended, METH_NOARGS, NULL};

static void await_end(void)
{
    PyObject *result;

    awaits_end = true; // also when it fails: then the next pass's first mark ends this one
    result = engine == NULL ? NULL
                            : PyObject_CallMethodObjArgs(engine, name_queue, ended_object, NULL);
    if (result == NULL) {
        trace_failed("wait for the end of a backward pass");
    }
    Py_XDECREF(result);
}

// The hook itself. `self`: epoch and path.
static PyObject *reached(PyObject *self, PyObject *gradients)
{
    uint64_t value = PyLong_AsUnsignedLongLong(self);

    (void)gradients;
    if (!trace_on() || value >> 32 != trace_epoch) {
        Py_RETURN_NONE;
    }
    if (!awaits_end) {
        await_end();
    }
    if (thread.pass != pass || thread.epoch != trace_epoch) {
        thread.pass = pass;
        thread.epoch = trace_epoch;
        thread.path = 0;
        if (tid_count < THREADS_MAX) {
            tids[tid_count++] = (uint32_t)syscall(SYS_gettid);
        }
    }
    if (thread.path != (uint32_t)value || value == 0) {
        thread.path = (uint32_t)value;
        trace_mark(UG_MARK_BACKWARD, thread.path, 0, ug_impl_now_ns(), 0);
    }
    Py_RETURN_NONE;
}

static PyMethodDef reached_method = {"reached", reached, METH_O, NULL};

uint32_t backward_current(void)
{
    return thread.epoch == trace_epoch && thread.pass == pass ? thread.path : 0;
}

// ---- in the forward pass ----

// The hooks for this path, borrowed; NULL with an exception.
static PyObject *mark_of(uint32_t path)
{
    unsigned i = path & (MARKS - 1);
    PyObject *value, *hook, *hooks;

    if (marks[i] == NULL || mark_paths[i] != path) {
        value = PyLong_FromUnsignedLongLong((uint64_t)trace_epoch << 32 | path);
        hook = value == NULL ? NULL : PyCFunction_NewEx(&reached_method, value, NULL);
        hooks = hook == NULL ? NULL : Py_BuildValue("{iO}", 0, hook);
        Py_XDECREF(marks[i]);
        marks[i] = hooks;
        mark_paths[i] = path;
        Py_XDECREF(hook);
        Py_XDECREF(value);
    }
    return marks[i];
}

// node.register_prehook() makes objects in Python, 2.5 us; this is the way that
// Tensor.register_hook() ends in, 0.3 us: the node takes the hooks of a tensor, and that may be
// any.
static bool hook_node(PyObject *node, uint32_t path)
{
    PyObject *hooks, *result;

    if (carried != path || path == 0) {
        carried = 0;
        hooks = mark_of(path);
        if (hooks == NULL || PyObject_SetAttr(carrier, name_hooks, hooks) < 0) {
            return false;
        }
        carried = path;
    }
    result = PyObject_CallMethodObjArgs(node, name_register, carrier, NULL);
    Py_XDECREF(result);
    return result != NULL;
}

// The first plain tensor in what a module takes or gives, borrowed; NULL: none.
static PyObject *tensor_in(PyObject *value, int depth)
{
    PyObject *key, *item = NULL, *found;
    Py_ssize_t at = 0;

    if (Py_TYPE(value) == tensor_type) {
        return value;
    }
    if (depth >= 2) {
        return NULL;
    }
    if (PyTuple_Check(value)) {
        for (Py_ssize_t i = 0; i < PyTuple_Size(value) && i < 4; i++) {
            found = tensor_in(PyTuple_GetItem(value, i), depth + 1);
            if (found != NULL) {
                return found;
            }
        }
    } else if (PyList_Check(value)) {
        return PyList_Size(value) > 0 ? tensor_in(PyList_GetItem(value, 0), depth + 1) : NULL;
    } else if (PyDict_Check(value) && PyDict_Next(value, &at, &key, &item)) {
        return tensor_in(item, depth + 1);
    }
    return NULL;
}

void backward_expect(PyObject *value, uint32_t path)
{
    PyObject *tensor = usable && !is_compiled ? tensor_in(value, 0) : NULL;
    PyObject *node, *number = NULL;
    long long sequence;

    if (tensor == NULL) {
        return;
    }
    node = PyObject_GetAttr(tensor, name_grad_fn);
    if (node == Py_None) {
        Py_DECREF(node);
        return;
    }
    number = node == NULL ? NULL : PyObject_CallMethodObjArgs(node, name_sequence, NULL);
    usable = number != NULL; // an older torch has none
    sequence = number == NULL ? -1 : PyLong_AsLongLong(number);
    PyErr_Clear();
    if (sequence >= thread.sequence) {
        thread.sequence = sequence + 1;
        if (!hook_node(node, path)) {
            trace_failed("note a backward pass");
        }
    }
    Py_XDECREF(number);
    Py_XDECREF(node);
}

// A pass that ended in an exception never told us. A forward inside a pass (checkpoints) does not
// end it.
static void end_failed_pass(void)
{
    PyObject *task = graph_task == Py_None ? NULL : PyObject_CallFunctionObjArgs(graph_task, NULL);

    if (task == NULL || PyLong_AsLong(task) == -1) {
        Py_XDECREF(ended(NULL, NULL));
    }
    Py_XDECREF(task);
}

void backward_look(void)
{
    PyObject *module, *on = NULL;

    if (!usable) {
        return;
    }
    if (awaits_end) {
        end_failed_pass();
    }
    is_compiled = false;
    module = trace_module("torch._dynamo.compiled_autograd");
    if (module != NULL) {
        on = PyObject_GetAttrString(module, "compiled_autograd_enabled");
        is_compiled = on != NULL && PyObject_IsTrue(on) == 1;
    }
    Py_XDECREF(on);
    PyErr_Clear();
}

// ---- putting it in and out ----

// (torch.Tensor, an empty tensor of our own, the engine, _current_graph_task_id or None): torch is
// there and has what we need.
PyObject *backward_attach(PyObject *module, PyObject *args)
{
    PyObject *type, *tensor, *with, *task;

    (void)module;
    if (!PyArg_ParseTuple(args, "OOOO:trace_backward", &type, &tensor, &with, &task)) {
        return NULL;
    }
    backward_stop();
    if (trace_on() && PyType_Check(type) && Py_TYPE(tensor) == (PyTypeObject *)type) {
        Py_INCREF(type);
        Py_INCREF(tensor);
        Py_INCREF(with);
        tensor_type = (PyTypeObject *)type;
        carrier = tensor;
        Py_INCREF(task);
        engine = with;
        graph_task = task;
        usable = true;
    }
    Py_RETURN_NONE;
}

void backward_start(void)
{
    if (ended_object == NULL) {
        name_grad_fn = PyUnicode_InternFromString("grad_fn");
        name_sequence = PyUnicode_InternFromString("_sequence_nr");
        name_register = PyUnicode_InternFromString("_register_hook_dict");
        name_hooks = PyUnicode_InternFromString("_backward_hooks");
        name_queue = PyUnicode_InternFromString("queue_callback");
        ended_object = PyCFunction_NewEx(&ended_method, NULL, NULL);
        PyErr_Clear();
    }
}

void backward_stop(void)
{
    PyObject *type = (PyObject *)tensor_type;

    usable = false;
    tensor_type = NULL;
    carried = 0;
    Py_XDECREF(type);
    Py_CLEAR(engine);
    Py_CLEAR(carrier);
    Py_CLEAR(graph_task);
    for (unsigned i = 0; i < MARKS; i++) {
        Py_CLEAR(marks[i]);
    }
    awaits_end = false;
    tid_count = 0;
}
