// SPDX-License-Identifier: Apache-2.0
// What could have done it: a difference of the sides' fingerprints, and what ties it to a
// contribution. Sentences are reports/render/diff's. Texts live as long as struct diff.
#ifndef UPGATE_DIFF_SUSPECT_H
#define UPGATE_DIFF_SUSPECT_H

// What ties a difference of the sides' fingerprints to a contribution. With `of` where it says so.
enum diff_suspect_why {
    DIFF_SUSPECT_KIND,        // the kind of the contribution says it
    DIFF_SUSPECT_HOLDS,       // of: the library that holds it
    DIFF_SUSPECT_BELONGS,     // libc10, to torch
    DIFF_SUSPECT_FUNCTION_OF, // it is one of `of`
    DIFF_SUSPECT_KERNEL_OF,
    DIFF_SUSPECT_SETTING_OF,
    DIFF_SUSPECT_PRODUCT, // of matrices
    DIFF_SUSPECT_TRITON,
    DIFF_SUSPECT_INTERPRETER,
    DIFF_SUSPECT_ALLOCATOR,
    DIFF_SUSPECT_PRODUCT_PRECISION,
    DIFF_SUSPECT_CONVOLUTION_PRECISION,
    DIFF_SUSPECT_PRODUCTS_OF,     // of: the library that they come from
    DIFF_SUSPECT_CONVOLUTIONS_OF, // the same
    DIFF_SUSPECT_ATTENTION,       // its backend
    DIFF_SUSPECT_ATTENTION_SOFTMAX,
    DIFF_SUSPECT_ATTENTION_PRODUCTS,
    DIFF_SUSPECT_COMPILED, // code has other kernels
    DIFF_SUSPECT_GPU_CLOCK,
    DIFF_SUSPECT_VECTOR_UNITS,
    DIFF_SUSPECT_PRODUCT_THREADS,
    DIFF_SUSPECT_THREADS,
    DIFF_SUSPECT_CPUS,
    DIFF_SUSPECT_ALLOCATOR_SETTINGS,
    DIFF_SUSPECT_HUGE_PAGES,
    DIFF_SUSPECT_NUMA,
    DIFF_SUSPECT_COMPILE_SETTINGS,
    DIFF_SUSPECT_LAUNCHES,  // the interpreter does them
    DIFF_SUSPECT_OPERATORS, // go through torch
    DIFF_SUSPECT_BLOCKING,  // launches wait for the device
    DIFF_SUSPECT_COLLECTOR,
    DIFF_SUSPECT_CGROUP,
    DIFF_SUSPECT_LOADER, // is torch's
    DIFF_SUSPECT_LAZY_LOADING,
    DIFF_SUSPECT_BESIDE, // it is about the collective beside it
    DIFF_SUSPECT_WHYS
};

struct diff_suspect {
    const char *what;     // "torch"
    const char *value[2]; // "1.13.1", "2.13.0"; NULL: none
    enum diff_suspect_why why;
    const char *of;
};

#endif
