// SPDX-License-Identifier: Apache-2.0
// Is a mangled name of Rust fit to be demangled? Pure.
#ifndef UPGATE_TRACER_SYMBOLS_RUST_NAME_H
#define UPGATE_TRACER_SYMBOLS_RUST_NAME_H

#include <stdbool.h>

// `name` begins with "_R" (mangling v0). False: it does not follow the grammar, nests deeper than
// 256, or binds more than 256 lifetimes. libiberty walks over as many as a name claims, up to 2^64,
// and where it prints none of them (the path of an impl, the instantiating crate) nothing ends it.
bool rust_name_sane(const char *name);

#endif
