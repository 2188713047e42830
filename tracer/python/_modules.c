// SPDX-License-Identifier: Apache-2.0
// Which module of a model runs: "layers.3.attn", as named_modules() of the outermost module would
// name it; the outermost one by its class. Hooks are at the type slot behind `module(...)`: tp_call
// of torch.nn.Module and of every class derived from it, whose attribute __call__ stays what it
// was. Global hooks of torch cost a slow path of 2 us in Python for every module and are guarded on
// by torch.compile; this costs 0.2 us, and a compiler that looks sees nothing: what it has compiled
// into one graph runs as the module that was compiled.
//
// Runs with the GIL. The paths come from _paths.c.

#include "_trace.h"

#define STACK_MAX 256 // nested calls of modules that are told apart
#define CLASS_DEPTH_MAX 64
#define LOOK_NS_MAX 50000000u // between two looks for new classes
#define TYPE_CALL_SLOT 16 // of PyTypeObject, in pointers: the same from 3.2 on; checked before use

static PyTypeObject *module_type; // torch.nn.Module, held while the hooks are in
static ternaryfunc original;      // what every such class had in the slot
static bool attached;             // to the rest of torch, too
static bool unusable; // the slot is not where it should be, or torch is none that we know

static __thread struct {
    uint32_t epoch;
    uint32_t depth;
    struct {
        PyObject *module; // kept alive by whoever calls it
        uint64_t serial;
        uint32_t path;
    } stack[STACK_MAX];
    uint64_t serial;
} thread;

// ---- the call ----

static PyObject *call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    uint32_t depth = thread.depth, epoch = trace_epoch, path, outer;
    PyObject *result, *root;
    uint64_t serial;

    if (!trace_on() || depth >= STACK_MAX) {
        return original(self, args, kwargs);
    }
    if (thread.epoch != epoch || depth == 0) {
        thread.epoch = epoch;
        depth = 0;
        trace_thread();
        backward_look();
    }
    root = depth == 0 ? self : thread.stack[0].module;
    outer = depth == 0 ? 0 : thread.stack[depth - 1].path;
    if (!paths_find(self, root, &path)) {
        path = paths_walk(self, root, outer);
        modules_poll();
    }
    serial = ++thread.serial;
    thread.stack[depth].module = self;
    thread.stack[depth].path = path;
    thread.stack[depth].serial = serial;
    thread.depth = depth + 1;
    if (PyTuple_Size(args) > 0 || kwargs != NULL) {
        backward_expect(PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : kwargs, outer);
    }
    trace_mark(UG_MARK_MODULE, path, 0, ug_impl_now_ns(), 0);

    result = original(self, args, kwargs);

    // Coroutines that switch stacks: begin anew, nothing on ours can be trusted.
    if (thread.depth != depth + 1 || thread.stack[depth].serial != serial) {
        depth = outer = 0;
    }
    thread.depth = depth;
    if (!trace_on() || trace_epoch != epoch) {
        return result;
    }
    // The first: a forward that is computed again inside the backward pass.
    if (outer == 0 && backward_current() != 0) {
        trace_mark(UG_MARK_BACKWARD, backward_current(), 0, ug_impl_now_ns(), 0);
    } else {
        trace_mark(UG_MARK_MODULE, outer, 0, ug_impl_now_ns(), 0);
    }
    if (result != NULL) {
        backward_expect(result, path);
    }
    return result;
}

uint32_t modules_current(void)
{
    return thread.epoch != trace_epoch || thread.depth == 0 ? 0
                                                            : thread.stack[thread.depth - 1].path;
}

// ---- putting it in and out ----

ternaryfunc *call_slot(PyTypeObject *type)
{
    return (ternaryfunc *)((void **)type + TYPE_CALL_SLOT);
}

// The limited API reads slots and does not write them; the place is the same in every CPython it
// holds for. Its neighbours must be where we think they are, too.
bool slot_is_known(PyTypeObject *type)
{
    void **slots = (void **)type;

    return PyType_GetSlot(type, Py_tp_call) != NULL &&
            slots[TYPE_CALL_SLOT] == PyType_GetSlot(type, Py_tp_call) &&
            slots[TYPE_CALL_SLOT - 1] == PyType_GetSlot(type, Py_tp_hash) &&
            slots[TYPE_CALL_SLOT + 1] == PyType_GetSlot(type, Py_tp_str) &&
            slots[TYPE_CALL_SLOT + 2] == PyType_GetSlot(type, Py_tp_getattro);
}

static void set_slots_below(PyTypeObject *type, ternaryfunc from, ternaryfunc to, unsigned depth)
{
    PyObject *below;

    if (*call_slot(type) == from) {
        *call_slot(type) = to;
    }
    below = depth >= CLASS_DEPTH_MAX
            ? NULL
            : PyObject_CallMethod((PyObject *)&PyType_Type, "__subclasses__", "O", type);
    for (Py_ssize_t i = 0; below != NULL && PyList_Check(below) && i < PyList_Size(below); i++) {
        PyObject *next = PyList_GetItem(below, i);

        if (PyType_Check(next) && (PyType_GetFlags((PyTypeObject *)next) & Py_TPFLAGS_HEAPTYPE)) {
            set_slots_below((PyTypeObject *)next, from, to, depth + 1);
        }
    }
    Py_XDECREF(below);
}

void set_slots(PyTypeObject *type, ternaryfunc from, ternaryfunc to)
{
    set_slots_below(type, from, to, 0);
}

static bool tell_python(const char *function)
{
    PyObject *module = trace_module("upgate._trace");
    PyObject *result = module == NULL ? NULL : PyObject_CallMethod(module, function, NULL);
    bool done = result == Py_True;

    Py_XDECREF(result);
    if (PyErr_Occurred()) {
        trace_failed("attach to torch");
    }
    return done;
}

// torch.nn.Module, once its file has been run; NULL before.
static PyTypeObject *find_module_type(void)
{
    PyObject *file = trace_module("torch.nn.modules.module");
    PyObject *nn = file == NULL ? NULL : trace_module("torch.nn"); // which has it when it is whole
    PyObject *type = nn == NULL ? NULL : PyObject_GetAttrString(nn, "Module");

    PyErr_Clear();
    if (type != NULL &&
            (!PyType_Check(type) ||
                    !(PyType_GetFlags((PyTypeObject *)type) & Py_TPFLAGS_HEAPTYPE))) {
        Py_DECREF(type);
        type = NULL;
    }
    return (PyTypeObject *)type;
}

static void attach(void)
{
    PyTypeObject *type = find_module_type();

    if (type == NULL) {
        return;
    }
    if (!slot_is_known(type)) {
        unusable = true;
        trace_text_mark(UG_MARK_PHASE_BEGIN,
                "upgate: no paths of modules: this interpreter's types are not known");
        trace_text_mark(UG_MARK_PHASE_END,
                "upgate: no paths of modules: this interpreter's types are not known");
        Py_DECREF(type);
        return;
    }
    original = *call_slot(type) == call ? original : *call_slot(type);
    module_type = type;
    paths_reset(type);
    set_slots(type, original, call);
}

void modules_poll(void)
{
    static uint64_t next_ns;
    PyObject *type, *value, *traceback;
    uint64_t begin_ns;

    // 500 classes take 50 us: for a hundredth of the time. Until a look, a new class's calls are
    // those of its caller.
    if (module_type != NULL && *call_slot(module_type) == call && ug_impl_now_ns() < next_ns) {
        return;
    }
    if (unusable) {
        return;
    }
    begin_ns = ug_impl_now_ns();
    PyErr_Fetch(&type, &value, &traceback);
    if (module_type == NULL) {
        attach();
    } else {
        set_slots(module_type, original, call);
    }
    if (module_type != NULL && !attached) { // torch may be half imported
        attached = tell_python("attach");
    }
    next_ns = ug_impl_now_ns();
    next_ns += 100 * (next_ns - begin_ns) < LOOK_NS_MAX ? 100 * (next_ns - begin_ns) : LOOK_NS_MAX;
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

void modules_start(void)
{
    modules_poll();
}

// Calls that are under way end in call(), which lives on: this library is never unloaded, and
// `original` stays.
void modules_stop(void)
{
    if (module_type != NULL) {
        set_slots(module_type, call, original);
        tell_python("detach");
        Py_DECREF(module_type);
        module_type = NULL;
        attached = false;
    }
    paths_reset(NULL);
    PyErr_Clear();
}
