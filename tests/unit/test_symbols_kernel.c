// SPDX-License-Identifier: Apache-2.0
// Kernel addresses from kallsyms files that the cases write, and from this machine's own.
#include "tests/unit/runner.h"
#include "tests/unit/symbols_world.h"

#include <stdio.h>
#include <stdlib.h>

static struct symbols *kernel_of(const char *text)
{
    const char *path = world_path("kallsyms");
    world_write(path, "%s", text);
    return world_symbols((struct symbols_opts){.kallsyms_path = path});
}

static struct symbol look(struct symbols *symbols, uint64_t ip)
{
    struct symbol symbol;
    symbols_kernel(symbols, ip, &symbol);
    return symbol;
}

static const char *const sample = "ffffffff81000000 T _text\n"
                                  "ffffffff81000000 T _stext\n"
                                  "ffffffff81000100 t rwsem_wake.isra.0\n"
                                  "ffffffff81000200 T do_futex\n"
                                  "ffffffff81000300 t wake_up_q.part.0.cold\n"
                                  "ffffffff81000400 W weak_function\n"
                                  "ffffffff81000480 D some_data\n"
                                  "ffffffff81000490 r some_constant\n"
                                  "ffffffff81000500 T last_function\n"
                                  "ffffffff81008000 T _etext\n"
                                  "ffffffff82000000 B some_bss\n"
                                  "ffffffffc0900000 t nv_late\t[nvidia_uvm]\n"
                                  "ffffffffc0900200 t nv_later\t[nvidia_uvm]\n"
                                  "ffffffffc0400000 t nvidia_ioctl\t[nvidia]\n"
                                  "ffffffffc0400100 t nvidia_poll\t[nvidia]\n";

TEST(functions_and_modules)
{
    struct symbols *symbols = kernel_of(sample);
    const char *why = "untouched";
    CHECK(symbols_kernel_available(symbols, &why));
    CHECK_STR(why, "untouched");
    struct symbol symbol = look(symbols, 0xffffffff81000210);
    CHECK(symbol.known);
    CHECK_STR(symbol.name, "do_futex");
    CHECK_STR(symbol.module, "kernel");
    CHECK_INT(symbol.offset, 0x10);
    CHECK(!symbol.build_id);
    symbol = look(symbols, 0xffffffffc0400008);
    CHECK_STR(symbol.name, "nvidia_ioctl"); // not in the order of the file
    CHECK_STR(symbol.module, "[nvidia]");
    CHECK_STR(look(symbols, 0xffffffffc0900208).module, "[nvidia_uvm]");
    symbols_free(symbols);
}

TEST(suffixes_are_stripped)
{
    struct symbols *symbols = kernel_of(sample);
    CHECK_STR(look(symbols, 0xffffffff81000100).name, "rwsem_wake");
    CHECK_STR(look(symbols, 0xffffffff810003ff).name, "wake_up_q");
    symbols_free(symbols);
}

TEST(first_alias_as_the_kernel_prints_it)
{
    struct symbols *symbols = kernel_of(sample);
    CHECK_STR(look(symbols, 0xffffffff81000001).name, "_text");
    symbols_free(symbols);
}

TEST(data_is_no_text)
{
    struct symbols *symbols = kernel_of(sample);
    CHECK_STR(look(symbols, 0xffffffff81000484).name, "weak_function");
    symbols_free(symbols);
}

TEST(outside_is_unknown)
{
    static const uint64_t outside[] = {0, 0x401000,
            0xffffffff80ffffff, // before the first
            0xffffffff81008001, // behind the end of text
            0xffffffff82000010, // data
            0xffffffffc0480000, // far behind a module
            0xffffffffffffffff};
    struct symbols *symbols = kernel_of(sample);
    struct symbols_stats stats;
    for (size_t i = 0; i < sizeof(outside) / sizeof(*outside); i++) {
        struct symbol symbol = look(symbols, outside[i]);
        CHECK(!symbol.known);
        CHECK_STR(symbol.name, "kernel");
    }
    symbols_stats(symbols, &stats);
    CHECK_INT(stats.lookups, 7);
    CHECK_INT(stats.unknown, 7);
    symbols_free(symbols);
}

TEST(hidden_addresses_are_said)
{
    const char *why = NULL;
    struct symbols *symbols = kernel_of("0000000000000000 T _text\n0000000000000000 t do_futex\n"
                                        "0000000000000000 t nvidia_ioctl\t[nvidia]\n");
    CHECK(!symbols_kernel_available(symbols, &why));
    CHECK_CONTAINS(why, "kptr_restrict");
    CHECK_CONTAINS(why, "CAP_SYSLOG");
    struct symbol symbol = look(symbols, 0xffffffff81000210);
    CHECK(!symbol.known);
    CHECK_STR(symbol.name, "kernel");
    symbols_free(symbols);
}

TEST(missing_empty_and_damaged_files_are_said)
{
    static const char *const texts[] = {"", "\n\n", "x", "ffffffff81000000", "ffffffff81000000 ",
            "ffffffff81000000 T", "ffffffff81000000 T ", "ffffffff81000000 D only_data\n",
            "zzz T name\n"};
    const char *why = NULL;
    struct symbols *symbols =
            world_symbols((struct symbols_opts){.kallsyms_path = world_path("none")});
    CHECK(!symbols_kernel_available(symbols, &why));
    CHECK_CONTAINS(why, "failed to open");
    symbols_free(symbols);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        symbols = kernel_of(texts[i]);
        why = NULL;
        CHECK(!symbols_kernel_available(symbols, &why));
        CHECK_CONTAINS(why, "no text symbols");
        symbols_free(symbols);
    }
}

TEST(many_symbols_cost_little)
{
    enum { LINES = 250000 }; // a distribution kernel with all its modules
    const char *path = world_path("kallsyms");
    FILE *file = fopen(path, "we");
    CHECK(file);
    for (int i = 0; file && i < LINES; i++)
        fprintf(file, "%llx t a_function_of_usual_length_%d%s\n",
                0xffffffff81000000ull + (unsigned long long)i * 64, i,
                i < LINES / 2   ? ""
                        : i % 2 ? "\t[nvidia]"
                                : "\t[ib_core]");
    if (file)
        fclose(file);
    struct symbols *symbols = world_symbols((struct symbols_opts){.kallsyms_path = path});
    struct symbols_stats stats;
    CHECK_STR(look(symbols, 0xffffffff81000000ull + 249999ull * 64 + 3).name,
            "a_function_of_usual_length_249999");
    symbols_stats(symbols, &stats);
    CHECK(stats.bytes_kernel < 16 << 20);
    CHECK_INT(stats.symbols_dropped, 0);
    symbols_free(symbols);
}

TEST(this_kernel)
{
    const char *why = NULL;
    struct symbols *symbols = world_symbols((struct symbols_opts){0});
    bool available = symbols_kernel_available(symbols, &why);
    CHECK(available || (why && *why)); // one or the other, never silence
    struct symbols_stats stats;
    symbols_stats(symbols, &stats);
    CHECK(stats.bytes_kernel < 16 << 20);
    FILE *file = available ? fopen("/proc/kallsyms", "re") : NULL;
    char line[1024], name[512];
    unsigned long long address = 0;
    while (file && fgets(line, sizeof(line), file)) {
        char type;
        if (sscanf(line, "%llx %c %511s", &address, &type, name) == 3 &&
                !strcmp(name, "schedule") && type == 'T') {
            CHECK_STR(look(symbols, address + 1).name, "schedule");
            break;
        }
    }
    if (file)
        fclose(file);
    symbols_free(symbols);
}
