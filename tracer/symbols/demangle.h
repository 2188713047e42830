// SPDX-License-Identifier: Apache-2.0
// From the name in a symbol table to the name that a person reads. Pure functions.
#ifndef UPGATE_TRACER_SYMBOLS_DEMANGLE_H
#define UPGATE_TRACER_SYMBOLS_DEMANGLE_H

#include <stddef.h>

enum { SYMBOL_NAME_MAX = 512 }; // with NUL; longer names (templates) are cut and end in "..."

// Length of a name without what compilers put behind it: .isra.0, .constprop.0, .part.0, .cold,
// .llvm.123, .lto_priv.0, and the version of a symbol ("@@GLIBC_2.14").
size_t symbol_name_plain(const char *name, size_t len);

// Plain and, for C++ and Rust, demangled without parameters, into ret (always NUL-terminated).
// Returns the length.
size_t symbol_name_readable(const char *name, size_t len, char ret[SYMBOL_NAME_MAX]);

#endif
