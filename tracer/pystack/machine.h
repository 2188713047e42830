// SPDX-License-Identifier: Apache-2.0
// What differs between the machines whose Pythons are read. CPython's own structures do not, as far
// as they are read here
// (`make_layout.py --check` of both machines); the C library's do.
#ifndef UPGATE_TRACER_PYSTACK_MACHINE_H
#define UPGATE_TRACER_PYSTACK_MACHINE_H

#include <elf.h>

// Where a thread's control block (what pthread_self() returns) holds its tid, in glibc and in musl:
// {720, 48} on x86-64, {208, 32} on arm64 (measured: glibc 2.36, musl 1.2.3). At the place of the
// other library stands what is no tid: x86-64's glibc has 4 random bytes of its pointer guard
// there, arm64's has zeros.
#if defined(__x86_64__)
#define MACHINE_ELF EM_X86_64
#define MACHINE_TID_GLIBC 720
#define MACHINE_TID_MUSL 48
#elif defined(__aarch64__)
#define MACHINE_ELF EM_AARCH64
#define MACHINE_TID_GLIBC 208
#define MACHINE_TID_MUSL 32
#else // every Python is refused, in words
#define MACHINE_ELF EM_NONE
#define MACHINE_TID_GLIBC 0
#define MACHINE_TID_MUSL 0
#endif

#endif
