// SPDX-License-Identifier: Apache-2.0
// The fingerprint of a side: everything that may differ between two stacks and move performance,
// read from the live process (/proc/PID), its loaded shared objects, the interpreter's own words
// (tracer/python/upgate/fingerprint.py) and the machine. Documents are jansson objects; every
// function that returns one returns a new reference. What could not be read is null, and "missing"
// says why.
#ifndef UPGATE_FINGERPRINT_FINGERPRINT_H
#define UPGATE_FINGERPRINT_FINGERPRINT_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "common/error.h"

#define FINGERPRINT_SCHEMA "upgate.fingerprint/1"
#define FINGERPRINT_DIFF_SCHEMA "upgate.env_diff/1"

// Read process `pid` and the machine it runs on: {"process": {...}, "host": {...}, "missing":
// {...}}. The process may be stopped or frozen; it is not touched. -ESRCH: gone, or replaced while
// being read; -EACCES: not ours to read. Takes some milliseconds per hundred loaded objects.
int fingerprint_process(pid_t pid, json_t **ret_process, struct error *err);

// The machine alone: the "host" part of the above. Never fails: unknown facts are null.
json_t *fingerprint_host(void);

// Compose the document "upgate.fingerprint/1" from fingerprint_process() and the object that
// collect() of upgate.fingerprint made (NULL or JSON null for a process without Python), and name
// its components (BLAS, oneDNN, OpenMP, CUDA, ...), whichever file or statically linked copy they
// come from. Neither argument is changed or kept. `process` may be NULL: then only the Python part
// is known.
json_t *fingerprint_merge(const json_t *process, const json_t *python);

// What differs between two fingerprints, most suspicious first: an array of
// {rank, path, what, a, b, state: changed|added|removed, suspicion: 1..100, why}. Differences that
// say nothing (pids, addresses, install paths) are left out and counted in *ret_noise_count (may be
// NULL). -EINVAL: one of them is not a fingerprint of a version this program knows.
int fingerprint_diff(const json_t *a, const json_t *b, json_t **ret_differences,
        size_t *ret_noise_count, struct error *err);

// Is a side another one than before, by fingerprints of two of its launches: packages, builds of
// libraries, interpreter, program, driver, GPUs? Only what fingerprint_diff() shows, and of that
// what cannot come from the moment of the reading. "torch is 2.1.0, was 2.0.1; ..."; NULL: no, or
// one of them is not a fingerprint of a version this program knows. `same_program`: both launches
// were of one workload; else what is of a program (its libraries, its interpreter) is left out. The
// caller frees it.
char *fingerprint_changes(const json_t *before, const json_t *now, bool same_program);

// The same of one side on two nodes, which are different machines: without what is of the host, and
// with the id of the side's image: "torch is 2.0.1, on node 0 2.1.0; ...". first: of node 0.
char *fingerprint_apart(const json_t *first, const json_t *other, bool same_program);

// Hide what looks like a secret: the value to store for an environment variable, or NULL if it is
// not on the list of variables worth storing at all. The caller frees it.
char *fingerprint_environment_value(const char *name, const char *value);

#endif
