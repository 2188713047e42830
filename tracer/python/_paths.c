// SPDX-License-Identifier: Apache-2.0
// Paths of modules: the string id of "layers.3.attn" for a module under an outermost one, in a
// table that is asked for every call. Filled by a walk over the whole model when an unknown module
// is called; wrappers of torch.compile, FSDP and DistributedDataParallel are left out.
//
// Runs with the GIL. Holds weak references to modules, and nothing else of the user's.

#include "_trace.h"

#define WALK_DEPTH_MAX 64
#define PATH_BYTES_MAX 1024
#define FRUITLESS_MAX 8 // walks of a model that did not find the module that was called

struct entry {
    PyObject *module; // borrowed: the weak reference takes the entry out; NULL: free
    PyObject *root;   // address of the outermost module it was seen under
    PyObject *weak;
    uint32_t path;      // string id
    uint32_t walk;      // the last one that saw it
    uint32_t fruitless; // of a root: walks that did not find the module that was called
};

static struct {
    struct entry *slots; // open addressing, power of two, at most half full
    size_t size, used;
    uint32_t walk;
} table;

static PyTypeObject *module_type; // torch.nn.Module, borrowed from _modules.c

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
    for (size_t i = place_of(module); table.slots[i].module != NULL;
            i = (i + 1) & (table.size - 1)) {
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

// Takes slot i out and closes the gap. Returns the weak reference, which the caller drops when it
// is done with the table.
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

void paths_reset(PyTypeObject *type)
{
    struct entry *slots = table.slots;
    size_t size = table.size;

    module_type = type;
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
        } else if (entry->module != NULL &&
                (entry->module == gone || (was_root && entry->root == gone))) {
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
    // What was just made may have run a collection, and that a weak reference's callback: look at
    // the table only now.
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

// Does the model go on below this child under the same name? Of torch.compile, FSDP, activation
// checkpointing; and "module" of the classes whose only child it is.
static bool is_wrapped(PyObject *parent, const char *key)
{
    static const char *const keys[] = {
            "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"};
    static const char *const classes[] = {"DistributedDataParallel", "DataParallel",
            "FullyShardedDataParallel", "DeepSpeedEngine", "Float16Module", "AveragedModel"};
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
    PyObject *bytes =
            PyUnicode_Check(key) ? PyUnicode_AsEncodedString(key, "utf-8", "replace") : NULL;

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
    if (name != NULL &&
            PyBytes_AsString(name)[0] != '<') { // "<lambda>": made by a compiler out of others
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

        if (children != NULL && PyDict_Size(children) == 1 &&
                PyDict_Next(children, &at, &key, &child) && PyUnicode_Check(key) &&
                child != Py_None) {
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
    } else if (!table_add(module, walk->root,
                       walk->path[0] == '\0' ? walk->root_path : path_id(walk, module))) {
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

bool paths_find(PyObject *module, PyObject *root, uint32_t *ret_path)
{
    const struct entry *entry = table_find(module, root);

    *ret_path = entry == NULL ? 0 : entry->path;
    return entry != NULL;
}

uint32_t paths_walk(PyObject *module, PyObject *root, uint32_t caller)
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
    }
    Py_DECREF(inner);
    entry = table_find(module, root);
    if (entry != NULL) {
        return entry->path;
    }
    table_add(module, root,
            caller); // made while the model runs, such as an activation: part of its caller
    PyErr_Clear();
    return caller;
}
