// SPDX-License-Identifier: Apache-2.0
// upgate._core.record: losses and tensors as raw values, for the parity gate. Takes what the user's
// objects offer (torch's data_ptr, numpy's __array__, the buffer protocol, item()) and imports no
// framework.
//
// Outside a step, or without a harness, it looks at nothing: a CUDA tensor is not even waited for.

#include "_core.h"

_Static_assert(
        __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "'<' is taken for the order of this machine");

struct dtype_name {
    const char *name;
    enum ug_dtype dtype;
};

// numpy's and torch's names, and the characters of the struct module.
static const struct dtype_name dtype_names[] = {
        {"float64", UG_DTYPE_FLOAT64},
        {"float32", UG_DTYPE_FLOAT32},
        {"float16", UG_DTYPE_FLOAT16},
        {"bfloat16", UG_DTYPE_BFLOAT16},
        {"int64", UG_DTYPE_INT64},
        {"int32", UG_DTYPE_INT32},
        {"int16", UG_DTYPE_INT16},
        {"int8", UG_DTYPE_INT8},
        {"uint64", UG_DTYPE_UINT64},
        {"uint32", UG_DTYPE_UINT32},
        {"uint16", UG_DTYPE_UINT16},
        {"uint8", UG_DTYPE_UINT8},
        {"bool", UG_DTYPE_BOOL},
        {"complex64", UG_DTYPE_COMPLEX64},
        {"complex128", UG_DTYPE_COMPLEX128},
        {"float8_e4m3fn", UG_DTYPE_FLOAT8_E4M3},
        {"float8_e5m2", UG_DTYPE_FLOAT8_E5M2},
        {"d", UG_DTYPE_FLOAT64},
        {"f", UG_DTYPE_FLOAT32},
        {"e", UG_DTYPE_FLOAT16},
        {"q", UG_DTYPE_INT64},
        {"l", sizeof(long) == 8 ? UG_DTYPE_INT64 : UG_DTYPE_INT32},
        {"i", UG_DTYPE_INT32},
        {"h", UG_DTYPE_INT16},
        {"b", UG_DTYPE_INT8},
        {"Q", UG_DTYPE_UINT64},
        {"L", sizeof(long) == 8 ? UG_DTYPE_UINT64 : UG_DTYPE_UINT32},
        {"I", UG_DTYPE_UINT32},
        {"H", UG_DTYPE_UINT16},
        {"B", UG_DTYPE_UINT8},
        {"c", UG_DTYPE_UINT8},
        {"?", UG_DTYPE_BOOL},
};

bool values_swallow(const char *what)
{
    static bool told;
    PyObject *type, *value, *traceback, *text, *bytes = NULL;

    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return false;
    }
    PyErr_Fetch(&type, &value, &traceback);
    text = told || value == NULL ? NULL : PyObject_Str(value);
    if (text != NULL) {
        bytes = PyUnicode_AsEncodedString(text, "utf-8", "replace");
    }
    if (bytes != NULL) {
        dprintf(STDERR_FILENO, "upgate: failed to %s: %.300s, going on without it\n", what,
                PyBytes_AsString(bytes));
        told = true;
    }
    PyErr_Clear(); // of str()
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return true;
}

// The dtype that an object of numpy, torch or memoryview names; raises when we do not know it.
static enum ug_dtype dtype_of(PyObject *object, const char *attribute)
{
    PyObject *dtype = PyObject_GetAttrString(object, attribute);
    PyObject *text = dtype == NULL ? NULL : PyObject_Str(dtype);
    PyObject *bytes = text == NULL ? NULL : PyUnicode_AsUTF8String(text);
    enum ug_dtype found = UG_DTYPE_NONE;

    if (bytes != NULL) {
        const char *name = PyBytes_AsString(bytes);
        const char *dot = strrchr(name, '.'); // "torch.float32"

        name = dot != NULL ? dot + 1 : name;
        name += strchr("@=<", name[0]) != NULL ? 1 : 0; // byte order of the buffer protocol: ours
        for (size_t i = 0; i < sizeof(dtype_names) / sizeof(dtype_names[0]); i++) {
            if (strcmp(name, dtype_names[i].name) == 0) {
                found = dtype_names[i].dtype;
            }
        }
        if (found == UG_DTYPE_NONE) {
            PyErr_Format(PyExc_ValueError, "dtype '%s' has no place in the step protocol", name);
        }
    }
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    Py_XDECREF(dtype);
    return found;
}

// Replaces *object by the result of its method; a method that old versions lack is left out.
static bool apply(PyObject **object, const char *method, bool required)
{
    PyObject *result;

    if (!required && !PyObject_HasAttrString(*object, method)) {
        return true;
    }
    result = PyObject_CallMethod(*object, method, NULL);
    Py_DECREF(*object);
    *object = result;
    return result != NULL;
}

static bool call_number(PyObject *object, const char *method, uint64_t *ret_number)
{
    PyObject *number = PyObject_CallMethod(object, method, NULL);

    if (number == NULL) {
        return false;
    }
    *ret_number = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    return !PyErr_Occurred();
}

// A tensor of torch, on any device. False: an exception is set.
static bool put_torch(const char *name, PyObject *object)
{
    uint64_t count, item_bytes, address;
    enum ug_dtype dtype;
    bool ok;

    Py_INCREF(object);
    ok = apply(&object, "detach", true) && apply(&object, "cpu", true) &&
            apply(&object, "resolve_conj", false) && apply(&object, "resolve_neg", false) &&
            apply(&object, "contiguous", true) && call_number(object, "numel", &count) &&
            call_number(object, "element_size", &item_bytes) &&
            call_number(object, "data_ptr", &address);
    dtype = ok ? dtype_of(object, "dtype") : UG_DTYPE_NONE;
    ok = ok && dtype != UG_DTYPE_NONE;
    if (ok && (item_bytes != ug_dtype_bytes(dtype) || (address == 0 && count > 0))) {
        PyErr_SetString(PyExc_ValueError, "the tensor has no values of its own");
        ok = false;
    }
    if (ok) {
        ug_step_tensor(name, dtype, (const void *)(uintptr_t)address, count);
    }
    Py_XDECREF(object);
    return ok;
}

// Anything whose tobytes() gives its values in C order: numpy's arrays, memoryview.
static bool put_bytes_of(const char *name, PyObject *object, const char *dtype_attribute)
{
    enum ug_dtype dtype = dtype_of(object, dtype_attribute);
    PyObject *item_bytes = NULL, *bytes = NULL;
    Py_ssize_t length = 0;
    char *data;
    bool ok;

    if (dtype != UG_DTYPE_NONE) {
        item_bytes = PyObject_GetAttrString(object, "itemsize");
    }
    if (item_bytes != NULL) {
        if (PyLong_AsUnsignedLongLong(item_bytes) == ug_dtype_bytes(dtype)) {
            bytes = PyObject_CallMethod(object, "tobytes", NULL);
        } else if (!PyErr_Occurred()) {
            PyErr_SetString(
                    PyExc_ValueError, "the items are of another size than their format says");
        }
    }
    ok = bytes != NULL && PyBytes_AsStringAndSize(bytes, &data, &length) == 0;
    if (ok) {
        ug_step_tensor(name, dtype, data, (uint64_t)length / ug_dtype_bytes(dtype));
    }
    Py_XDECREF(item_bytes);
    Py_XDECREF(bytes);
    return ok;
}

// A Python number or whatever item() makes one. False with TypeError when it is none.
static bool as_number(PyObject *object, double *ret_value)
{
    PyObject *item = NULL;

    if (PyObject_HasAttrString(object, "item")) {
        item = PyObject_CallMethod(object, "item", NULL);
        if (item == NULL) {
            return false;
        }
        object = item;
    }
    *ret_value = PyFloat_AsDouble(object);
    Py_XDECREF(item);
    return !PyErr_Occurred();
}

// False: an exception is set; TypeError without `*ret_ours` means that the argument is of a wrong
// type.
static bool put_tensor(const char *name, PyObject *object, bool *ret_ours)
{
    PyObject *other;
    double value;
    bool ok;

    *ret_ours = true;
    if (PyObject_HasAttrString(object, "data_ptr") && PyObject_HasAttrString(object, "detach")) {
        return put_torch(name, object);
    }
    if (PyObject_HasAttrString(object, "__array__")) { // numpy, jax, tensorflow
        other = PyObject_CallMethod(object, "__array__", NULL);
        ok = other != NULL && put_bytes_of(name, other, "dtype");
        Py_XDECREF(other);
        return ok;
    }
    other = PyMemoryView_FromObject(object);
    if (other != NULL) {
        ok = put_bytes_of(name, other, "format");
        Py_DECREF(other);
        return ok;
    }
    PyErr_Clear();
    *ret_ours = PyObject_HasAttrString(object, "item");
    if (!as_number(object, &value)) {
        return false;
    }
    ug_step_tensor(name, UG_DTYPE_FLOAT64, &value, 1);
    return true;
}

// 0, or -1 with an exception for the caller.
static int record_tensor(struct ug_step_state *s, const char *name, PyObject *object)
{
    bool ours;

    if (object == NULL || object == Py_None || put_tensor(name, object, &ours)) {
        return 0;
    }
    if (!ours && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Format(PyExc_TypeError,
                "upgate: record() cannot take %s: neither number, tensor nor array", name);
        return -1;
    }
    ug_impl_count(&s->slot->byte_dropped_count);
    return values_swallow("record a tensor") ? 0 : -1;
}

static int record_loss(struct ug_step_state *s, PyObject *object)
{
    double loss;
    bool ours;

    if (object == NULL || object == Py_None) {
        return 0;
    }
    ours = PyObject_HasAttrString(object, "item");
    if (as_number(object, &loss)) {
        ug_step_loss(loss);
        return 0;
    }
    if (!ours && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_SetString(PyExc_TypeError, "upgate: loss must be a number or have item()");
        return -1;
    }
    ug_impl_count(&s->slot->dropped_count);
    return values_swallow("record the loss") ? 0 : -1;
}

static int record_named(struct ug_step_state *s, PyObject *kwargs)
{
    PyObject *key, *value;
    Py_ssize_t position = 0;

    while (kwargs != NULL && PyDict_Next(kwargs, &position, &key, &value)) {
        PyObject *name = PyUnicode_AsEncodedString(key, "utf-8", "replace");
        const char *text = name == NULL ? NULL : PyBytes_AsString(name);
        int rc = -1;

        if (text != NULL) {
            rc = strcmp(text, "loss") == 0 ? record_loss(s, value) : record_tensor(s, text, value);
        }
        Py_XDECREF(name);
        if (rc < 0) {
            return -1;
        }
    }
    return 0;
}

PyObject *values_record(PyObject *module, PyObject *args, PyObject *kwargs)
{
    struct ug_step_state *s;
    Py_ssize_t count = PyTuple_Size(args);

    (void)module;
    if (count > 2) {
        PyErr_SetString(PyExc_TypeError, "upgate: record(loss=None, output=None, **tensors)");
        return NULL;
    }
    s = ug_impl_inside();
    if (s == NULL) {
        Py_RETURN_NONE;
    }
    if ((count > 0 && record_loss(s, PyTuple_GetItem(args, 0)) < 0) ||
            (count > 1 && record_tensor(s, "output", PyTuple_GetItem(args, 1)) < 0) ||
            record_named(s, kwargs) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}
