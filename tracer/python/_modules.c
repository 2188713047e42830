// SPDX-License-Identifier: Apache-2.0
// Which module of a model runs: "layers.3.attn", as named_modules() of the outermost module would name it; the outermost
// one by its class. Hooks are at the type slot behind `module(...)`: tp_call of torch.nn.Module and of every class
// derived from it, whose attribute __call__ stays what it was. Global hooks of torch cost a slow path of 2 us in Python
// for every module and are guarded on by torch.compile; this costs 0.2 us, and a compiler that looks sees nothing: what
// it has compiled into one graph runs as the module that was compiled.
//
// Runs with the GIL. Holds weak references to modules, and nothing else of the user's.

#include "_trace.h"

#define STACK_MAX 256 // nested calls of modules that are told apart
#define WALK_DEPTH_MAX 64
#define PATH_BYTES_MAX 1024
#define FRUITLESS_MAX 8 // walks of a model that did not find the module that was called
#define TYPE_CALL_SLOT 16 // of PyTypeObject, in pointers: the same from 3.2 on; checked before use

struct entry {
    PyObject *module; // borrowed: the weak reference takes the entry out; NULL: free
    PyObject *root;   // address of the outermost module it was seen under
    PyObject *weak;
    uint32_t path; // string id
    uint32_t walk; // the last one that saw it
    uint32_t fruitless; // of a root: walks that did not find the module that was called
};

static struct {
    struct entry *slots; // open addressing, power of two, at most half full
    size_t size, used;
    uint32_t walk;
} table;

static PyTypeObject *module_type; // torch.nn.Module, held while the hooks are in
static ternaryfunc original;      // what every such class had in the slot
static bool attached;             // to the rest of torch, too
static bool unusable;             // the slot is not where it should be, or torch is none that we know

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

// ---- the table ----

static size_t place_of(PyObject *module)
{
    return (size_t)(((uintptr_t)module >> 4) * 0x9e3779b97f4a7c15ull >> 20) & (table.size - 1);
}

static struct entry *table_find(PyObject *module, PyObject *root)
{
    if (table.size == 0) {
        return NULL;
    }
    for (size_t i = place_of(module); table.slots[i].module != NULL; i = (i + 1) & (table.size - 1)) {
        if (table.slots[i].module == module && table.slots[i].root == root) {
            return &table.slots[i];
        }
    }
    return NULL;
}

static bool table_grow(void)
{
    struct entry *old = table.slots, *wider;
    size_t old_size = table.size, size = old_size == 0 ? 1024 : 2 * old_size;

    if (2 * (table.used + 1) <= old_size) {
        return true;
    }
    wider = calloc(size, sizeof(*wider));
    if (wider == NULL) {
        return false;
    }
    table.slots = wider;
    table.size = size;
    for (size_t i = 0; i < old_size; i++) {
        size_t j = old[i].module == NULL ? 0 : place_of(old[i].module);

        if (old[i].module == NULL) {
            continue;
        }
        while (wider[j].module != NULL) {
            j = (j + 1) & (size - 1);
        }
        wider[j] = old[i];
    }
    free(old);
    return true;
}

// Takes slot i out and closes the gap. Returns the weak reference, which the caller drops when it is done with the table.
static PyObject *table_take(size_t i)
{
    PyObject *weak = table.slots[i].weak;
    size_t mask = table.size - 1, gap = i;

    for (size_t j = (i + 1) & mask; table.slots[j].module != NULL; j = (j + 1) & mask) {
        size_t home = place_of(table.slots[j].module);

        if (((j - home) & mask) >= ((j - gap) & mask)) {
            table.slots[gap] = table.slots[j];
            gap = j;
        }
    }
    memset(&table.slots[gap], 0, sizeof(table.slots[gap]));
    table.used--;
    return weak;
}

static void table_clear(void)
{
    struct entry *slots = table.slots;
    size_t size = table.size;

    memset(&table, 0, sizeof(table));
    for (size_t i = 0; i < size; i++) {
        Py_XDECREF(slots[i].weak);
    }
    free(slots);
}

// Callback of a weak reference: `self` is the address of the module that is no more.
static PyObject *forget(PyObject *self, PyObject *weak)
{
    PyObject *gone = (PyObject *)PyLong_AsVoidPtr(self);
    bool was_root = table_find(gone, gone) != NULL;

    (void)weak;
    for (size_t i = 0; i < table.size;) {
        struct entry *entry = &table.slots[i];

        if (!was_root && entry->module == NULL) {
            i = i + 1;
        } else if (entry->module != NULL && (entry->module == gone || (was_root && entry->root == gone))) {
            Py_XDECREF(table_take(i)); // freeing a weak reference runs nobody's code
        } else {
            i = i + 1;
        }
    }
    PyErr_Clear();
    Py_RETURN_NONE;
}

static PyMethodDef forget_method = {"forget", forget, METH_O, NULL};

static bool table_add(PyObject *module, PyObject *root, uint32_t path)
{
    PyObject *address = PyLong_FromVoidPtr(module), *callback = NULL, *weak = NULL;
    size_t i;

    if (address != NULL) {
        callback = PyCFunction_NewEx(&forget_method, address, NULL);
    }
    if (callback != NULL) {
        weak = PyWeakref_NewRef(module, callback);
    }
    Py_XDECREF(callback);
    Py_XDECREF(address);
    // What was just made may have run a collection, and that a weak reference's callback: look at the table only now.
    if (weak == NULL || table_find(module, root) != NULL || !table_grow()) {
        Py_XDECREF(weak);
        return false;
    }
    for (i = place_of(module); table.slots[i].module != NULL; i = (i + 1) & (table.size - 1)) {
    }
    table.slots[i] = (struct entry){module, root, weak, path, table.walk, 0};
    table.used++;
    return true;
}

// ---- paths ----

// The name of the object's class, as a text to be freed with Py_DECREF; NULL with an exception.
static PyObject *class_name(PyObject *object)
{
    PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
    PyObject *bytes = name == NULL || !PyUnicode_Check(name)
                          ? NULL
                          : PyUnicode_AsEncodedString(name, "utf-8", "replace");

    Py_XDECREF(name);
    return bytes;
}

// Does the model go on below this child under the same name? Of torch.compile, FSDP, activation checkpointing; and
// "module" of the classes whose only child it is.
static bool is_wrapped(PyObject *parent, const char *key)
{
    static const char *const keys[] = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"};
    static const char *const classes[] = {"DistributedDataParallel", "DataParallel", "FullyShardedDataParallel",
                                          "DeepSpeedEngine", "Float16Module", "AveragedModel"};
    bool found = false;

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (strcmp(key, keys[i]) == 0) {
            return true;
        }
    }
    if (strcmp(key, "module") == 0) {
        PyObject *name = class_name(parent);

        for (size_t i = 0; name != NULL && i < sizeof(classes) / sizeof(classes[0]); i++) {
            found |= strcmp(PyBytes_AsString(name), classes[i]) == 0;
        }
        Py_XDECREF(name);
        PyErr_Clear();
    }
    return found;
}

struct walk {
    PyObject *root;
    PyObject *wanted;
    uint32_t root_path; // 0: not known yet
    unsigned depth;
    bool found;
    char path[PATH_BYTES_MAX]; // of the module that is looked at, "" = the root
};

static PyObject *children_of(PyObject *module)
{
    static PyObject *name;
    PyObject *children;

    if (name == NULL) {
        name = PyUnicode_InternFromString("_modules");
    }
    children = name == NULL ? NULL : PyObject_GenericGetAttr(module, name);
    PyErr_Clear(); // a module whose __init__ has not run
    if (children != NULL && !PyDict_Check(children)) {
        Py_DECREF(children); // of TorchScript: what is inside is not called from Python
        children = NULL;
    }
    return children;
}

// A child's path goes behind its parent's; `length` is where that ends.
static bool append_key(struct walk *walk, size_t length, PyObject *parent, PyObject *key)
{
    PyObject *bytes = PyUnicode_Check(key) ? PyUnicode_AsEncodedString(key, "utf-8", "replace") : NULL;

    if (bytes == NULL) {
        PyErr_Clear();
        return false;
    }
    if (!is_wrapped(parent, PyBytes_AsString(bytes))) {
        snprintf(walk->path + length, sizeof(walk->path) - length, "%s%s", length > 0 ? "." : "",
                 PyBytes_AsString(bytes));
    }
    Py_DECREF(bytes);
    return true;
}

static uint32_t path_id(struct walk *walk, PyObject *module)
{
    PyObject *name;
    uint32_t id = 0;

    if (walk->path[0] != '\0') {
        return trace_string(walk->path);
    }
    name = class_name(module);
    if (name != NULL && PyBytes_AsString(name)[0] != '<') { // "<lambda>": made by a compiler out of others
        id = trace_string(PyBytes_AsString(name));
    }
    Py_XDECREF(name);
    PyErr_Clear();
    return id;
}

// The root behind its wrappers: DistributedDataParallel(DLRM) is a DLRM. A new reference.
static PyObject *unwrapped(PyObject *module)
{
    Py_INCREF(module);
    for (int i = 0; i < 8; i++) {
        PyObject *children = children_of(module), *key, *child = NULL, *bytes = NULL;
        Py_ssize_t at = 0;
        bool inside = false;

        if (children != NULL && PyDict_Size(children) == 1 && PyDict_Next(children, &at, &key, &child) &&
            PyUnicode_Check(key) && child != Py_None) {
            bytes = PyUnicode_AsEncodedString(key, "utf-8", "replace");
        }
        if (bytes != NULL && is_wrapped(module, PyBytes_AsString(bytes))) {
            Py_INCREF(child);
            Py_DECREF(module);
            module = child;
            inside = true;
        }
        Py_XDECREF(bytes);
        Py_XDECREF(children);
        PyErr_Clear();
        if (!inside) {
            break;
        }
    }
    return module;
}

static void walk_module(struct walk *walk, PyObject *module)
{
    struct entry *entry = table_find(module, walk->root);
    size_t length = strlen(walk->path);
    PyObject *children, *key, *child;
    Py_ssize_t at = 0;

    if (walk->depth >= WALK_DEPTH_MAX || (entry != NULL && entry->walk == table.walk)) {
        return; // shared with an earlier path: the first one counts
    }
    walk->found |= module == walk->wanted;
    if (entry != NULL) {
        entry->walk = table.walk;
    } else if (!table_add(module, walk->root, walk->path[0] == '\0' ? walk->root_path : path_id(walk, module))) {
        PyErr_Clear();
        return;
    }
    children = children_of(module);
    walk->depth++;
    while (children != NULL && PyDict_Next(children, &at, &key, &child)) {
        if (!PyType_IsSubtype(Py_TYPE(child), module_type)) {
            continue; // None
        }
        Py_INCREF(child);
        Py_INCREF(key);
        if (append_key(walk, length, module, key)) {
            walk_module(walk, child);
        }
        walk->path[length] = '\0';
        Py_DECREF(key);
        Py_DECREF(child);
    }
    walk->depth--;
    Py_XDECREF(children);
}

// Names the whole model; and, if it does not hold `module`, that one by its class behind its caller's path.
static uint32_t name_model(PyObject *module, PyObject *root, uint32_t caller)
{
    struct walk walk = {.root = root, .wanted = module};
    PyObject *inner = unwrapped(root);
    struct entry *entry = table_find(root, root);

    if (entry == NULL || entry->fruitless < FRUITLESS_MAX) {
        table.walk++;
        walk.root_path = path_id(&walk, inner);
        walk_module(&walk, root);
        entry = walk.found ? NULL : table_find(root, root);
        if (entry != NULL) {
            entry->fruitless++;
        }
        modules_poll(true);
    }
    Py_DECREF(inner);
    entry = table_find(module, root);
    if (entry != NULL) {
        return entry->path;
    }
    table_add(module, root, caller); // made while the model runs, such as an activation: part of its caller
    PyErr_Clear();
    return caller;
}

// ---- the call ----

static PyObject *call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    uint32_t depth = thread.depth, epoch = trace_epoch, path, outer;
    PyObject *result, *root;
    struct entry *entry;
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
    entry = table_find(self, root);
    path = entry != NULL ? entry->path : name_model(self, root, outer);
    serial = ++thread.serial;
    thread.stack[depth].module = self;
    thread.stack[depth].path = path;
    thread.stack[depth].serial = serial;
    thread.depth = depth + 1;
    if (PyTuple_Size(args) > 0) {
        backward_expect(PyTuple_GetItem(args, 0), outer);
    }
    trace_mark(UG_MARK_MODULE, path, 0, ug_impl_now_ns(), 0);

    result = original(self, args, kwargs);

    if (thread.depth != depth + 1 || thread.stack[depth].serial != serial) {
        depth = outer = 0; // coroutines that switch stacks: begin anew, nothing on the stack can be trusted
    }
    thread.depth = depth;
    if (!trace_on() || trace_epoch != epoch) {
        return result;
    }
    if (outer == 0 && backward_current() != 0) { // a forward computed again inside the backward pass
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
    return thread.epoch != trace_epoch || thread.depth == 0 ? 0 : thread.stack[thread.depth - 1].path;
}

// ---- putting it in and out ----

static ternaryfunc *call_slot(PyTypeObject *type)
{
    return (ternaryfunc *)((void **)type + TYPE_CALL_SLOT);
}

// The limited API reads slots and does not write them; the place is the same in every CPython it holds for. Its
// neighbours must be where we think they are, too.
static bool slot_is_known(PyTypeObject *type)
{
    void **slots = (void **)type;

    return PyType_GetSlot(type, Py_tp_call) != NULL &&
           slots[TYPE_CALL_SLOT] == PyType_GetSlot(type, Py_tp_call) &&
           slots[TYPE_CALL_SLOT - 1] == PyType_GetSlot(type, Py_tp_hash) &&
           slots[TYPE_CALL_SLOT + 1] == PyType_GetSlot(type, Py_tp_str) &&
           slots[TYPE_CALL_SLOT + 2] == PyType_GetSlot(type, Py_tp_getattro);
}

// Every class at and below `type` has `to` where it had `from`.
static void set_slots(PyTypeObject *type, ternaryfunc from, ternaryfunc to, unsigned depth)
{
    PyObject *below;

    if (*call_slot(type) == from) {
        *call_slot(type) = to;
    }
    below = depth >= WALK_DEPTH_MAX
                ? NULL
                : PyObject_CallMethod((PyObject *)&PyType_Type, "__subclasses__", "O", type);
    for (Py_ssize_t i = 0; below != NULL && PyList_Check(below) && i < PyList_Size(below); i++) {
        PyObject *next = PyList_GetItem(below, i);

        if (PyType_Check(next) && (PyType_GetFlags((PyTypeObject *)next) & Py_TPFLAGS_HEAPTYPE)) {
            set_slots((PyTypeObject *)next, from, to, depth + 1);
        }
    }
    Py_XDECREF(below);
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
    PyObject *nn = file == NULL ? NULL : trace_module("torch.nn"); // all of it there: the file is complete
    PyObject *type = nn == NULL ? NULL : PyObject_GetAttrString(nn, "Module");

    PyErr_Clear();
    if (type != NULL && (!PyType_Check(type) || !(PyType_GetFlags((PyTypeObject *)type) & Py_TPFLAGS_HEAPTYPE))) {
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
        trace_text_mark(UG_MARK_PHASE_BEGIN, "upgate: no paths of modules: this interpreter's types are not known");
        trace_text_mark(UG_MARK_PHASE_END, "upgate: no paths of modules: this interpreter's types are not known");
        Py_DECREF(type);
        return;
    }
    original = *call_slot(type) == call ? original : *call_slot(type);
    module_type = type;
    set_slots(type, original, call, 0);
}

void modules_poll(bool thorough)
{
    static uint64_t next_ns;
    PyObject *type, *value, *traceback;
    uint64_t begin_ns;

    // 500 classes take 50 us: for a hundredth of the time. Until a look, a new class's calls are those of its caller.
    if (module_type != NULL && thorough && *call_slot(module_type) == call && ug_impl_now_ns() < next_ns) {
        return;
    }
    if (unusable || (module_type != NULL && !thorough && *call_slot(module_type) == call)) {
        return;
    }
    begin_ns = ug_impl_now_ns();
    PyErr_Fetch(&type, &value, &traceback);
    if (module_type == NULL) {
        attach();
    } else {
        set_slots(module_type, original, call, 0);
    }
    if (module_type != NULL && !attached) { // torch may be half imported
        attached = tell_python("attach");
    }
    next_ns = ug_impl_now_ns() + 100 * (ug_impl_now_ns() - begin_ns);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

void modules_start(void)
{
    modules_poll(true);
}

// Calls that are under way end in call(), which lives on: this library is never unloaded, and `original` stays.
void modules_stop(void)
{
    if (module_type != NULL) {
        set_slots(module_type, call, original, 0);
        tell_python("detach");
        Py_DECREF(module_type);
        module_type = NULL;
        attached = false;
    }
    table_clear();
    PyErr_Clear();
}
