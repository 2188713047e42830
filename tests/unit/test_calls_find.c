// SPDX-License-Identifier: Apache-2.0
// A function by its name, in a file: exact, demangled, by the library; none, several, and what is
// near.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/runner.h"
#include "tests/unit/symbols_world.h"
#include "tracer/calls/find.h"

static int look(struct find *find, const char *file, uint64_t inode)
{
    uint64_t loader = 0;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    int rc = find_in_file(find, fd, file, 1, inode, &loader);
    close(fd);
    return rc;
}

static void check_why(const struct find *find, const char *part)
{
    char *why = find_why_not(find);
    CHECK(why && strstr(why, part));
    free(why);
}

TEST(forms)
{
    struct find find;
    find_parse("symbol:process_batch", &find);
    CHECK(!find.library && strcmp(find.name, "process_batch") == 0);
    find_free(&find);
    find_parse("symbol:a::b::c", &find);
    CHECK(!find.library && strcmp(find.name, "a::b::c") == 0);
    find_free(&find);
    find_parse("symbol:/opt/lib/libserve.so:a::b", &find);
    CHECK(find.library && strcmp(find.library, "libserve.so") == 0 &&
            strcmp(find.name, "a::b") == 0);
    find_free(&find);
}

TEST(one_place)
{
    static const char *const names[] = {"fixture_exported", "fixture_hidden", "fixture_clone",
            SYMBOLS_DEMANGLE ? "fixture::plane<float>::lift" : "fixture_address",
            "_ZN7fixture5planeIfE4liftEi"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[100];
        struct find find;
        snprintf(text, sizeof text, "symbol:%s", names[i]);
        find_parse(text, &find);
        CHECK_INT(look(&find, SYMBOLS_WHOLE, 1), 0);
        CHECK_INT(find.place_count, 1);
        CHECK(find.place_count == 1 && find.places[0].offset &&
                strcmp(find.places[0].module, "libsymbols_fixture_whole.so") == 0);
        CHECK(find_why_not(&find) == NULL);
        find_free(&find);
    }
}

TEST(the_same_file_again_is_the_same_place_and_another_is_not)
{
    struct find find;
    find_parse("symbol:fixture_exported", &find);
    look(&find, SYMBOLS_WHOLE, 1);
    look(&find, SYMBOLS_WHOLE, 1);
    CHECK_INT(find.place_count, 1);
    look(&find, SYMBOLS_STRIPPED, 2);
    CHECK_INT(find.place_count, 2);
    check_why(&find,
            "'fixture_exported' is 2 functions: fixture_exported in libsymbols_fixture_whole.so, fixture_exported in libsymbols_fixture_stripped.so");
    find_free(&find);
}

TEST(a_library_by_its_name)
{
    static const struct {
        const char *text;
        size_t places;
    } cases[] = {{"symbol:libsymbols_fixture_whole:fixture_exported", 1},
            {"symbol:libsymbols_fixture_whole.so:fixture_exported", 1},
            {"symbol:/x/libsymbols_fixture_whole.so:fixture_exported", 1},
            {"symbol:libsymbols_fixture_who:fixture_exported", 0},
            {"symbol:libother.so:fixture_exported", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct find find;
        find_parse(cases[i].text, &find);
        look(&find, SYMBOLS_WHOLE, 1);
        CHECK_INT(find.place_count, cases[i].places);
        if (!cases[i].places)
            check_why(&find, "no file 'lib");
        find_free(&find);
    }
}

TEST(none_and_what_is_near)
{
    struct find find;
    find_parse("symbol:fixture_hiden", &find);
    look(&find, SYMBOLS_WHOLE, 1);
    check_why(&find, "no function 'fixture_hiden' in the 1 file that were mapped");
    check_why(&find, "near: fixture_hidden");
    find_free(&find);
    find_parse("symbol:fixture_hidden", &find); // local, and its table of symbols is gone
    look(&find, SYMBOLS_STRIPPED, 1);
    CHECK_INT(find.place_count, 0);
    find_free(&find);
}

TEST(what_is_no_elf_file)
{
    struct find find;
    find_parse("symbol:f", &find);
    CHECK(look(&find, "/proc/self/status", 1) < 0);
    CHECK_INT(find.file_count, 0);
    find_free(&find);
}
