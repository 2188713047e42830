// SPDX-License-Identifier: Apache-2.0
// What _core.c (markers, gate, iterators) and _values.c (losses and tensors) of the extension
// share. First include of both: the limited API must be chosen before Python.h.
#ifndef UPGATE_TRACER_PYTHON_CORE_H
#define UPGATE_TRACER_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03080000
#include <Python.h>

// Part of the stable ABI since 3.10, and the same in 3.8 and 3.9, whose headers hide it from the
// limited API.
#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif

#include "contracts/upgate_step.h"

// record(loss=None, output=None, **tensors)
PyObject *values_record(PyObject *module, PyObject *args, PyObject *kwargs);

// An exception of what we called on the user's behalf is ours to swallow, said once on stderr.
// Returns false for what is not an Exception (KeyboardInterrupt, SystemExit of a signal handler):
// it stays set.
bool values_swallow(const char *what);

#endif
