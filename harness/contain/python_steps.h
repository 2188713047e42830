// SPDX-License-Identifier: Apache-2.0
// The environment in which Python programs find our package, and in which those that make no step
// calls have their steps found (tracer/python/start).
#ifndef UPGATE_HARNESS_CONTAIN_PYTHON_STEPS_H
#define UPGATE_HARNESS_CONTAIN_PYTHON_STEPS_H

// Where `import upgate` is found: beside the running program (build tree or installed). The caller
// frees; NULL with errno where the own program cannot be found.
char *python_steps_dir(void);

// In a child before exec: python_dir leads PYTHONPATH, and steps are found by a call of `step`
// ("FILE.py:FUNCTION"), NULL: by what repeats. The variables of an outer upgate are gone in any
// case.
void python_steps_set(const char *python_dir, const char *step);
void python_steps_unset(void);

#endif
