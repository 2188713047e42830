// SPDX-License-Identifier: Apache-2.0
// Readable names and the string pool.
#include "tests/unit/runner.h"
#include "tests/unit/symbols_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tracer/symbols/demangle.h"
#include "tracer/symbols/names.h"

static const char *readable(const char *name)
{
    static char text[SYMBOL_NAME_MAX];
    size_t len = symbol_name_readable(name, strlen(name), text);
    CHECK_INT(len, strlen(text));
    return text;
}

TEST(suffixes_of_compilers_are_stripped)
{
    CHECK_STR(readable("rwsem_wake.isra.0"), "rwsem_wake");
    CHECK_STR(readable("f.constprop.0.isra.12.cold"), "f");
    CHECK_STR(readable("f.part.0.cold.3"), "f");
    CHECK_STR(readable("f.llvm.1234567890"), "f");
    CHECK_STR(readable("f.lto_priv.0"), "f");
    CHECK_STR(readable("memcpy@@GLIBC_2.14"), "memcpy");
    CHECK_STR(readable("realpath@GLIBC_2.2.5"), "realpath");
}

TEST(other_dots_stay)
{
    CHECK_STR(readable("f.1"), "f.1"); // a static of a function, not a clone
    CHECK_STR(readable("f.12.34"), "f.12.34");
    CHECK_STR(readable("net.core"), "net.core");
    CHECK_STR(readable(".cold"), ".cold");
    CHECK_STR(readable("."), ".");
    CHECK_STR(readable("@"), "@");
    CHECK_STR(readable(""), "");
}

TEST(cxx_is_demangled_without_parameters)
{
    if (!SYMBOLS_DEMANGLE)
        runner_skip("built without libiberty");
    CHECK_STR(readable("_ZN2at6native10add_kernelERNS_18TensorIteratorBaseERKN3c106ScalarE"),
            "at::native::add_kernel");
    CHECK_STR(readable("_ZN7fixture5planeIfE4liftEi"), "fixture::plane<float>::lift");
    CHECK_STR(readable("_Z3fooIiET_S0_"), "foo<int>");
    CHECK_STR(readable("_ZN2at6native3addEv.cold"), "at::native::add");
}

// Names of the compiler's own tests: each way to write a path, a type, a constant.
TEST(rust_is_demangled)
{
    if (!SYMBOLS_DEMANGLE)
        runner_skip("built without libiberty");
    CHECK_STR(readable("_RNvC6_123foo3bar"), "123foo::bar");
    CHECK_STR(readable("_RNvCs15kBYyAo9fc_7mycrate7example"), "mycrate::example");
    CHECK_STR(readable("_RNvMsr_NtCs3ssYzQotkvD_3std4pathNtB5_7PathBuf3newCs15kBYyAo9fc_7mycrate"),
            "<std::path::PathBuf>::new");
    CHECK_STR(readable("_RNCNCNgCs6DXkGYLi8lr_2cc5spawn00B5_"),
            "cc::spawn::{closure#0}::{closure#0}");
    CHECK_STR(
            readable(
                    "_RINbNbCskIICzLVDPPb_5alloc5alloc8box_freeDINbNiB4_5boxed5FnBoxuEp6OutputuEL_ECs1iopQbuBiw2_3std"),
            "alloc::alloc::box_free::<dyn alloc::boxed::FnBox<(), Output = ()>>");
    CHECK_STR(
            readable(
                    "_RNCINkXs25_NgCsbmNqQUJIY6D_4core5sliceINyB9_4IterhENuNgNoBb_4iter8iterator8Iterator9rpositionNCNgNpB9_6memchr7"
                    "memrchrs_0E0Bb_"),
            "<core::slice::Iter<u8> as core::iter::iterator::Iterator>::rposition::<core::slice::memchr::memrchr::{closure#1}>::"
            "{closure#0}");
    CHECK_STR(readable("_RMC0INtC8arrayvec8ArrayVechKj7b_E"), "<arrayvec::ArrayVec<u8, 123>>");
    CHECK_STR(readable("_RINvC3foo3barFG_RL0_hEuE"), "foo::bar::<for<'a> fn(&'a u8)>");
    CHECK_STR(readable("_RINvC3foo3barTsjAhj3_RQmPOxEKb1_E.llvm.123"),
            "foo::bar::<(i16, usize, [u8; 3], &&mut u32, *const *mut i64), true>");
}

// A name of 20 characters that claims 10^18 lifetimes where none is printed would take libiberty
// until the end of time.
TEST(rust_names_that_claim_too_much_stay)
{
    static const char *const names[] = {"_RMFGzzzzzzzzzz_EuC3fooh", "_RMC3fooFGzzzzzzzzzz_Eu",
            "_RNvMC3fooFGzzzzzzzzz_EuC3bar", "_RNvXC3fooDGzzzzzzzz_EL_C3bar3baz",
            "_RNvC3foo3barMC3fooFGzzzzzzzzzz_Eu", // the instantiating crate
            "_RNvC3foo3barIC3fooFG3Z_EuFG3Z_EuE", // two that bind 256 lifetimes together: 1 too
                                                  // many
            "_R", "_RN", "_RNv", "_RC9foo", "_RC99999999999999999999foo", "_RNvC3foo3barX",
            "_RIC3foo", "_RINvC3foo3barKjzz_E", "_RB_"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK_STR(readable(names[i]), names[i]);
    char deep[4000] = "_RINvC3foo3bar";
    memset(deep + strlen(deep), 'S', 3000);
    CHECK_INT(strlen(readable(deep)), SYMBOL_NAME_MAX - 1);
}

TEST(what_is_not_mangled_stays)
{
    CHECK_STR(readable("_Z"), "_Z");
    CHECK_STR(readable("_Z!x"), "_Z!x");
    CHECK_STR(readable("_ZN99999999999foo"), "_ZN99999999999foo");
    CHECK_STR(readable("PyEval_EvalFrameDefault"), "PyEval_EvalFrameDefault");
    CHECK_STR(readable("_PyEval_EvalFrameDefault"), "_PyEval_EvalFrameDefault");
}

TEST(long_names_are_cut_and_say_so)
{
    char name[4 * SYMBOL_NAME_MAX];
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    const char *text = readable(name);
    CHECK_INT(strlen(text), SYMBOL_NAME_MAX - 1);
    CHECK_STR(text + strlen(text) - 4, "x...");
}

// Each level prints the one before it twice: 30 of them are gigabytes.
TEST(exploding_names_end)
{
    char name[512] = "_Z1fI1aIiiE";
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t len = strlen(name);
    for (int i = 1; i < 31; i++)
        len += (size_t)snprintf(
                name + len, sizeof(name) - len, "S0_IS%c_S%c_E", digits[i], digits[i]);
    snprintf(name + len, sizeof(name) - len, "Evv");
    const char *text = readable(name);
    CHECK(strlen(text) < SYMBOL_NAME_MAX);
    if (SYMBOLS_DEMANGLE) {
        CHECK_CONTAINS(text, "f<a<int, int>, a<a<int, int>, a<int, int> >");
        CHECK_STR(text + strlen(text) - 3, "...");
    }
    strcpy(name, "_Z");
    memset(name + 2, 'P', 400); // deep recursion
    strcpy(name + 402, "i");
    CHECK(strlen(readable(name)) < SYMBOL_NAME_MAX);
}

TEST(one_text_is_stored_once)
{
    struct names names = {.bytes_max = 1 << 20};
    const char *first = names_intern(&names, "alpha", 5);
    CHECK_STR(first, "alpha");
    CHECK(names_intern(&names, "alphabet", 5) == first);
    CHECK(names_intern(&names, "alph", 4) != first);
    CHECK_STR(names_intern(&names, "a\377b", 3), "a?b"); // valid UTF-8 only
    CHECK(names_intern(&names, "a\377b", 3) == names_intern(&names, "a\376b", 3));
    CHECK_STR(names_intern(&names, "", 0), "");
    char text[32];
    for (int i = 0; i < 5000; i++) { // the table grows; nothing moves
        snprintf(text, sizeof(text), "name %d", i);
        names_intern(&names, text, strlen(text));
    }
    CHECK(names_intern(&names, "alpha", 5) == first);
    CHECK_INT(names.count, 5004);
    CHECK_INT(names.dropped, 0);
    names_free(&names);
}

TEST(full_pool_refuses_and_counts)
{
    struct names names = {.bytes_max = 128 << 10};
    const char *first = names_intern(&names, "alpha", 5);
    char text[600];
    memset(text, 'y', sizeof(text));
    for (int i = 0; i < 1000; i++) {
        snprintf(text, 8, "%07d", i);
        text[7] = 'y';
        names_intern(&names, text, sizeof(text));
    }
    CHECK(names.dropped > 0);
    CHECK(names.bytes <= 128 << 10);
    CHECK(names_intern(&names, "alpha", 5) == first);
    names_free(&names);
}
