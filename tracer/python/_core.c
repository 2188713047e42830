// SPDX-License-Identifier: Apache-2.0
// upgate._core: the markers of the step protocol for Python. Writes to the shared memory through
// contracts/upgate_step.h and, while this process is traced, to the spool (_trace.c); reads
// nothing. Built against the limited API of CPython 3.8.
//
// All markers run with the GIL held; it is released only to wait at the gate or for an arrival. A
// marker raises TypeError for wrong arguments, what a signal handler raised while it waited, and
// nothing else.

#include "_core.h"

#include "_find.h"
#include "_trace.h"

// ---- hooks: called by the step protocol, GIL held ----

static PyObject *cuda_of_torch(void)
{
    PyObject *modules = PyImport_GetModuleDict(); // never import torch: only ask if it is there
    PyObject *torch = modules == NULL ? NULL : PyDict_GetItemString(modules, "torch");
    PyObject *cuda, *initialized;
    int is_initialized;

    if (torch == NULL) {
        return NULL;
    }
    cuda = PyObject_GetAttrString(torch, "cuda");
    initialized = cuda == NULL ? NULL : PyObject_CallMethod(cuda, "is_initialized", NULL);
    is_initialized = initialized == NULL ? 0 : PyObject_IsTrue(initialized);
    Py_XDECREF(initialized);
    if (is_initialized != 1) {
        Py_XDECREF(cuda);
        return NULL;
    }
    return cuda;
}

static PyObject *awaited; // borrowed

void core_awaits(PyObject *result)
{
    awaited = result;
}

// A wait in the middle of a capture of a graph would end the capture. torch before 1.10 has no
// graphs.
static bool is_capturing(PyObject *cuda)
{
    PyObject *answer = PyObject_CallMethod(cuda, "is_current_stream_capturing", NULL);
    bool result = answer == Py_True;

    Py_XDECREF(answer);
    PyErr_Clear();
    return result;
}

// The block ends when the device has done its work, not when the last kernel was queued.
static void sync_device(void *arg)
{
    PyObject *cuda = cuda_of_torch(), *result = NULL, *jax;

    (void)arg;
    jax = awaited == NULL ? NULL : PyDict_GetItemString(PyImport_GetModuleDict(), "jax");
    if (jax != NULL) {
        Py_XDECREF(PyObject_CallMethod(jax, "block_until_ready", "(O)", awaited));
    }
    if (cuda != NULL && !is_capturing(cuda)) {
        result = PyObject_CallMethod(cuda, "synchronize", NULL);
    }
    Py_XDECREF(result);
    Py_XDECREF(cuda);
    if (PyErr_Occurred()) {
        values_swallow("wait for the device");
    }
}

static void report_fingerprint(void)
{
    PyObject *module = PyImport_ImportModule("upgate.fingerprint"), *json = NULL;
    PyObject *facts = NULL, *text = NULL, *bytes = NULL;
    Py_ssize_t length;
    char *data;

    if (module != NULL) {
        facts = PyObject_CallMethod(module, "collect", NULL);
    }
    if (facts != NULL) {
        json = PyImport_ImportModule("json");
    }
    if (json != NULL) {
        text = PyObject_CallMethod(json, "dumps", "O", facts);
    }
    if (text != NULL) {
        bytes = PyUnicode_AsUTF8String(text);
    }
    if (bytes != NULL && PyBytes_AsStringAndSize(bytes, &data, &length) == 0) {
        ug_step_text(UG_BYTES_FINGERPRINT, "python", data, (uint64_t)length);
    }
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    Py_XDECREF(json);
    Py_XDECREF(facts);
    Py_XDECREF(module);
}

#define NOTE_RESERVED "peak_gpu_memory_bytes"
#define NOTE_TENSORS "peak_gpu_tensor_bytes"
// a longer name would be cut
UG_STEP_ASSERT(
        sizeof NOTE_RESERVED <= UG_STEP_NAME_BYTES && sizeof NOTE_TENSORS <= UG_STEP_NAME_BYTES);

static void note_gpu_memory(PyObject *cuda, const char *function, const char *note)
{
    PyObject *peak = PyObject_CallMethod(cuda, function, NULL);

    if (peak != NULL) {
        double value = PyFloat_AsDouble(peak);

        if (!PyErr_Occurred()) {
            ug_step_note(note, value);
        }
        Py_DECREF(peak);
    }
}

static void report_gpu_memory(void)
{
    PyObject *cuda = cuda_of_torch();

    if (cuda == NULL) {
        return;
    }
    note_gpu_memory(cuda, "max_memory_reserved", NOTE_RESERVED);
    if (!PyErr_Occurred()) {
        note_gpu_memory(cuda, "max_memory_allocated", NOTE_TENSORS);
    }
    Py_DECREF(cuda);
}

static void report(uint32_t bits, void *arg)
{
    (void)arg;
    if (bits & UG_REQUEST_FINGERPRINT) {
        report_fingerprint();
        if (PyErr_Occurred() && !values_swallow("take the fingerprint")) {
            return;
        }
    }
    if (bits & UG_REQUEST_GPU_MEMORY) {
        report_gpu_memory();
        if (PyErr_Occurred()) {
            values_swallow("read the GPU memory");
        }
    }
}

// ---- begin and end ----

static int wait_at_gate(struct ug_step_state *s)
{
    bool open = false;

    if (!ug_impl_hold_begin(s)) {
        return 0;
    }
    while (!open) {
        if (PyErr_Occurred() || PyErr_CheckSignals() < 0) {
            ug_impl_abandon(s);
            return -1;
        }
        Py_BEGIN_ALLOW_THREADS open = ug_impl_hold_wait(s);
        Py_END_ALLOW_THREADS
    }
    ug_impl_hold_end(s);
    return 0;
}

static int wait_for_arrival(struct ug_step_state *s)
{
    uint64_t arrival_ns = ug_impl_next_arrival(s);
    bool arrived = arrival_ns == 0;

    while (!arrived) {
        Py_BEGIN_ALLOW_THREADS arrived = ug_impl_await(arrival_ns);
        Py_END_ALLOW_THREADS if (!arrived && PyErr_CheckSignals() < 0)
        {
            ug_impl_abandon(s);
            return -1;
        }
    }
    s->begin_ns = ug_impl_now_ns();
    s->sched_ns = arrival_ns != 0 ? arrival_ns : s->begin_ns;
    return 0;
}

// -1: a signal handler raised, and no step was begun. 0: begun, or ignored and counted (no harness,
// inside another step, another thread's step is open); either way an end belongs to it.
static int begin(bool request, bool mark)
{
    struct ug_step_state *s = ug_impl_enter();

    if (s != NULL && ug_impl_gate_closed(s, s->step) && wait_at_gate(s) < 0) {
        return -1;
    }
    if (s != NULL && request && wait_for_arrival(s) < 0) {
        return -1;
    }
    if (s != NULL && !request) {
        s->sched_ns = 0;
        s->begin_ns = ug_impl_now_ns();
    }
    if (mark && trace_on()) {
        trace_step_begin(s != NULL ? s->begin_ns : ug_impl_now_ns());
    }
    return 0;
}

// -1: a signal handler raised while we waited for the device; the step has ended all the same.
static int end(double samples)
{
    uint64_t step;
    bool closes = trace_on() && trace_step_closes(&step);

    ug_step_end(samples);
    if (closes) {
        trace_step_end(step);
    }
    return PyErr_Occurred() ? -1 : 0;
}

int core_begin(void)
{
    return begin(false, true);
}

int core_end(double samples)
{
    return end(samples);
}

static int as_samples(PyObject *value, double *ret_samples)
{
    double samples = value == NULL || value == Py_None ? 1 : PyFloat_AsDouble(value);

    if (samples == -1 && PyErr_Occurred()) {
        PyErr_SetString(PyExc_TypeError, "upgate: samples must be a number");
        return -1;
    }
    *ret_samples = samples;
    return 0;
}

static void free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type); // instances of heap types hold their type
}

// ---- with step(samples): ----

struct step {
    PyObject_HEAD double samples;
    bool begun;
};

static PyTypeObject *step_type; // of the module, never freed

// A call's one argument, by place or by name; -1 with TypeError set for any other. Calls without
// tuple and dictionary (METH_FASTCALL) halve what a step costs: 390 to 230 ns a marker with
// CPython 3.11.
static int one_argument(PyObject *const *args, Py_ssize_t count, PyObject *names,
        const char *function, const char *name, PyObject **ret_value)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);

    if (count + named > 1) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most 1 argument (%zd given)", function,
                count + named);
        return -1;
    }
    if (named == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), name) != 0) {
        PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", function,
                PyTuple_GetItem(names, 0));
        return -1;
    }
    *ret_value = count + named == 1 ? args[0] : NULL;
    return 0;
}

static PyObject *step(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *samples;
    struct step *self;

    (void)module;
    if (one_argument(args, count, names, "step", "samples", &samples) < 0) {
        return NULL;
    }
    self = (struct step *)PyType_GenericAlloc(step_type, 0);
    if (self != NULL && as_samples(samples, &self->samples) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *step_enter(PyObject *object, PyObject *ignored)
{
    struct step *self = (struct step *)object;

    (void)ignored;
    find_gives_way();
    if (begin(false, true) < 0) {
        return NULL;
    }
    self->begun = true;
    Py_INCREF(object);
    return object;
}

// Returns None, so that an exception of the body goes on.
static PyObject *step_exit(PyObject *object, PyObject *const *ignored, Py_ssize_t count)
{
    struct step *self = (struct step *)object;

    (void)ignored;
    (void)count;
    if (self->begun) {
        self->begun = false;
        if (end(self->samples) < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

static PyMethodDef step_methods[] = {
        {"__enter__", step_enter, METH_NOARGS, NULL},
        {"__exit__", (PyCFunction)(void (*)(void))step_exit, METH_FASTCALL, NULL},
        {NULL, NULL, 0, NULL},
};

static PyType_Slot step_slots[] = {
        {Py_tp_dealloc, free_object},
        {Py_tp_methods, step_methods},
        {0, NULL},
};

static PyType_Spec step_spec = {
        "upgate._core._Step", sizeof(struct step), 0, Py_TPFLAGS_DEFAULT, step_slots};

// ---- with phase(name): ----

struct phase {
    PyObject_HEAD PyObject *name; // UTF-8, as bytes
};

static PyTypeObject *phase_type; // of the module, never freed

static PyObject *phase(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *name;
    struct phase *self;

    (void)module;
    if (one_argument(args, count, names, "phase", "name", &name) < 0) {
        return NULL;
    }
    if (name == NULL || !PyUnicode_Check(name)) {
        PyErr_SetString(PyExc_TypeError, "upgate: the name of a phase must be a str");
        return NULL;
    }
    self = (struct phase *)PyType_GenericAlloc(phase_type, 0);
    if (self != NULL) {
        self->name = PyUnicode_AsEncodedString(name, "utf-8", "replace"); // lone surrogates too
        if (self->name == NULL) {
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

static void phase_free(PyObject *object)
{
    Py_XDECREF(((struct phase *)object)->name);
    free_object(object);
}

static PyObject *phase_enter(PyObject *object, PyObject *ignored)
{
    PyObject *name =
            ((struct phase *)object)->name; // NULL: made by calling the type of another phase

    (void)ignored;
    ug_step_phase_begin(name == NULL ? "?" : PyBytes_AsString(name));
    if (trace_on()) {
        trace_text_mark(UG_MARK_PHASE_BEGIN, name == NULL ? "?" : PyBytes_AsString(name));
    }
    Py_INCREF(object);
    return object;
}

static PyObject *phase_exit(PyObject *object, PyObject *const *ignored, Py_ssize_t count)
{
    PyObject *name = ((struct phase *)object)->name;

    (void)ignored;
    (void)count;
    ug_step_phase_end();
    if (trace_on()) {
        trace_text_mark(UG_MARK_PHASE_END, name == NULL ? "?" : PyBytes_AsString(name));
    }
    Py_RETURN_NONE;
}

static PyMethodDef phase_methods[] = {
        {"__enter__", phase_enter, METH_NOARGS, NULL},
        {"__exit__", (PyCFunction)(void (*)(void))phase_exit, METH_FASTCALL, NULL},
        {NULL, NULL, 0, NULL},
};

static PyType_Slot phase_slots[] = {
        {Py_tp_dealloc, phase_free},
        {Py_tp_methods, phase_methods},
        {0, NULL},
};

static PyType_Spec phase_spec = {
        "upgate._core._Phase", sizeof(struct phase), 0, Py_TPFLAGS_DEFAULT, phase_slots};

// ---- the iterator behind steps() and requests() ----

struct loop {
    PyObject_HEAD PyObject *source; // NULL: requests
    double samples;
    Py_ssize_t next, total; // of requests
    bool begun;
};

static PyObject *loop_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"source", "samples", NULL};
    PyObject *source = NULL, *samples = NULL;
    struct loop *self;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:StepIterator", names, &source, &samples)) {
        return NULL;
    }
    self = (struct loop *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    if (as_samples(samples, &self->samples) == 0) {
        self->source = PyObject_GetIter(source);
    }
    if (self->source == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *request_loop_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"n", "rate", "seed", "samples", NULL};
    PyObject *samples = NULL;
    unsigned long long seed = 0;
    double rate = 0;
    Py_ssize_t total;
    struct loop *self;

    if (!PyArg_ParseTupleAndKeywords(
                args, kwargs, "n|dKO:RequestIterator", names, &total, &rate, &seed, &samples)) {
        return NULL;
    }
    self = (struct loop *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    if (as_samples(samples, &self->samples) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    self->total = total;
    ug_request_schedule(rate, seed);
    return (PyObject *)self;
}

static int loop_end(struct loop *self)
{
    if (!self->begun) {
        return 0;
    }
    self->begun = false;
    return end(self->samples);
}

// The source had nothing more, or failed: the step that was to hold its item never was.
static void loop_cancel(struct loop *self)
{
    struct ug_step_state *s = ug_impl_inside();

    self->begun = false;
    if (s != NULL && !ug_impl_leave_nested(s)) {
        ug_impl_abandon(s);
    }
}

static PyObject *loop_next(PyObject *object)
{
    struct loop *self = (struct loop *)object;
    uint64_t begin_ns;
    PyObject *item;

    find_gives_way();
    if (loop_end(self) < 0) {
        return NULL;
    }
    if (self->source == NULL) {
        if (self->next >= self->total || begin(true, true) < 0) {
            return NULL;
        }
        self->begun = true;
        return PyLong_FromSsize_t(self->next++);
    }
    if (begin(false, false) < 0) {
        return NULL;
    }
    self->begun = true;
    begin_ns = trace_on() ? ug_impl_now_ns() : 0;
    ug_step_phase_begin("data");
    item = PyIter_Next(self->source);
    if (item == NULL) {
        loop_cancel(self);
        return NULL;
    }
    ug_step_phase_end();
    if (begin_ns != 0 && trace_on()) { // not before: without an item there was no step
        trace_item(begin_ns);
    }
    return item;
}

static int loop_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object)); // held since 3.8
    Py_VISIT(((struct loop *)object)->source);
    return 0;
}

static int loop_clear(PyObject *object)
{
    Py_CLEAR(((struct loop *)object)->source);
    return 0;
}

// `break` leaves the loop and frees us: the step that was open ends here.
static void loop_free(PyObject *object)
{
    PyObject *type, *value, *traceback;

    PyObject_GC_UnTrack(object);
    PyErr_Fetch(&type, &value, &traceback);
    if (loop_end((struct loop *)object) < 0) {
        PyErr_WriteUnraisable(object);
    }
    PyErr_Restore(type, value, traceback);
    loop_clear(object);
    free_object(object);
}

static PyType_Slot step_iterator_slots[] = {
        {Py_tp_doc,
                "StepIterator(source, samples=1): each item and what is done with it is a step."},
        {Py_tp_new, loop_new},
        {Py_tp_dealloc, loop_free},
        {Py_tp_traverse, loop_traverse},
        {Py_tp_clear, loop_clear},
        {Py_tp_iter, PyObject_SelfIter},
        {Py_tp_iternext, loop_next},
        {0, NULL},
};

static PyType_Spec step_iterator_spec = {"upgate._core.StepIterator", sizeof(struct loop), 0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, step_iterator_slots};

static PyType_Slot request_iterator_slots[] = {
        {Py_tp_doc, "RequestIterator(n, rate=0, seed=0, samples=1): requests as they arrive."},
        {Py_tp_new, request_loop_new},
        {Py_tp_dealloc, loop_free},
        {Py_tp_traverse, loop_traverse},
        {Py_tp_clear, loop_clear},
        {Py_tp_iter, PyObject_SelfIter},
        {Py_tp_iternext, loop_next},
        {0, NULL},
};

static PyType_Spec request_iterator_spec = {"upgate._core.RequestIterator", sizeof(struct loop), 0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, request_iterator_slots};

// ---- the module ----

static PyObject *active(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    return PyBool_FromLong(ug_step_active());
}

static PyObject *reopen(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    return PyBool_FromLong(
            ug_impl_reopen()); // no other thread marks anything while we have the GIL
}

static PyObject *note(PyObject *module, PyObject *args)
{
    PyObject *text, *name;
    double value;

    (void)module;
    if (!PyArg_ParseTuple(args, "Ud:note", &text, &value)) {
        return NULL;
    }
    name = PyUnicode_AsEncodedString(text, "utf-8", "replace");
    if (name == NULL) {
        return NULL;
    }
    ug_step_note(PyBytes_AsString(name), value);
    Py_DECREF(name);
    Py_RETURN_NONE;
}

static PyObject *request_done(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"arrived_ns", "status", "wrong", NULL};
    unsigned long long arrived_ns;
    unsigned status;
    int wrong = 0;

    (void)module;
    if (!PyArg_ParseTupleAndKeywords(
                args, kwargs, "KI|p:request_done", names, &arrived_ns, &status, &wrong)) {
        return NULL;
    }
    ug_request_done(arrived_ns, status, wrong);
    Py_RETURN_NONE;
}

static PyMethodDef core_methods[] = {
        {"step", (PyCFunction)(void (*)(void))step, METH_FASTCALL | METH_KEYWORDS,
                "step(samples=1): the body of `with` is one step of the workload."},
        {"phase", (PyCFunction)(void (*)(void))phase, METH_FASTCALL | METH_KEYWORDS,
                "phase(name): a named part of the step, nested up to 8."},
        {"active", active, METH_NOARGS, "active(): under a harness?"},
        {"reopen", reopen, METH_NOARGS,
                "reopen(): the next marker reads UPGATE_STEPS again. False: a step is open, and nothing has changed."},
        {"note", note, METH_VARARGS, "note(name, value): one number about the launch."},
        {"request_done", (PyCFunction)(void (*)(void))request_done, METH_VARARGS | METH_KEYWORDS,
                "request_done(arrived_ns, status, wrong=False): one request of a server is answered, for `upgate\n"
                "canary`. arrived_ns: time.monotonic_ns(); status as HTTP has it, 0 = not answered or cut off."},
        {"record", (PyCFunction)(void (*)(void))values_record, METH_VARARGS | METH_KEYWORDS,
                "record(loss=None, output=None, **tensors): what the step computed, for the parity gate. Values\n"
                "drawn at random take a name that starts with 'sampled': their distribution is compared."},
        {NULL, NULL, 0, NULL},
};

static struct PyModuleDef core_module = {
        PyModuleDef_HEAD_INIT,
        .m_name = "upgate._core",
        .m_doc = "Markers of upgate's step protocol.",
        .m_size = -1,
        .m_methods = core_methods,
};

static int add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);

    if (type == NULL || PyModule_AddObject(module, name, type) < 0) {
        Py_XDECREF(type);
        return -1;
    }
    return 0;
}

// The one symbol of this library.
__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&core_module);

    if (module == NULL) {
        return NULL;
    }
    step_type = (PyTypeObject *)PyType_FromSpec(&step_spec);
    phase_type = (PyTypeObject *)PyType_FromSpec(&phase_spec);
    if (step_type == NULL || phase_type == NULL ||
            add_type(module, "StepIterator", &step_iterator_spec) < 0 ||
            add_type(module, "RequestIterator", &request_iterator_spec) < 0 ||
            trace_add_functions(module) < 0 || find_add_functions(module) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    ug_step_set_sync(sync_device, NULL);
    ug_step_set_report(report, NULL);
    return module;
}
