// SPDX-License-Identifier: Apache-2.0
// Unwind tables: what they say against elfutils' own interpreter of call frame information, at
// every border of every row of libraries of this machine; against damaged files; and the limits.
// UPGATE_UNWIND_LIBRARY in the environment names one more library, and UPGATE_UNWIND_TIMES prints
// what each costs.
#include "tests/unit/runner.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/strings.h"
#include "tracer/symbols/elf_reader.h"
#include "tracer/unwind/unwind_table.h"

#ifdef UPGATE_HAVE_LIBDW
#include <dwarf.h>
#include <elfutils/libdw.h>
#endif

static void need_x86(void)
{
#ifndef __x86_64__
    runner_skip("tables are of x86-64 only");
#endif
}

static char library_path[4096];

static int find_library(struct dl_phdr_info *info, size_t size, void *name)
{
    (void)size;
    if (strstr(info->dlpi_name, name))
        snprintf(library_path, sizeof library_path, "%s", info->dlpi_name);
    return 0;
}

static const char *library(const char *name)
{
    library_path[0] = 0;
    dl_iterate_phdr(find_library, (void *)name);
    if (!library_path[0])
        runner_skip("the library is not there");
    return library_path;
}

typedef void (*each_table)(uint64_t begin, uint64_t end, const struct unwind_table *table,
        const struct unwind_rules *rules, void *context);

// All tables of a file. Returns their words.
static size_t tables_of(
        int fd, struct unwind_rules *rules, each_table each, void *context, size_t *ret_functions)
{
    struct elf_image image;
    struct eh_file file;
    size_t words = 0;
    *ret_functions = 0;
    if (eh_file_open(fd, &file) == 0 && elf_image_read(fd, &image) == 0) {
        for (uint32_t i = 0; i < image.segment_count; i++) {
            uint64_t end = image.segments[i].address + image.segments[i].bytes;
            for (uint64_t at = image.segments[i].address;
                    at < end && at - image.segments[i].address < UINT32_MAX;
                    at += UG_UNWIND_TABLE_BYTES) {
                struct unwind_table table;
                if (unwind_table_build(&file, at, end, rules, &table))
                    continue;
                words += table.count;
                *ret_functions += table.functions - table.damaged;
                if (each)
                    each(at, end, &table, rules, context);
                unwind_table_free(&table);
            }
        }
    }
    eh_file_close(&file);
    return words;
}

#ifdef UPGATE_HAVE_LIBDW
struct compared {
    Dwarf_CFI *cfi;
    size_t asked, wrong, none, other; // none: we know nothing; other: of them those that elfutils'
                                      // answer is simple for
};

static bool is_register(const Dwarf_Op *ops, size_t count, unsigned reg, int64_t *ret_at)
{
    if (count == 1 && ops[0].atom == DW_OP_breg0 + reg) {
        *ret_at = (int64_t)ops[0].number;
        return true;
    }
    if (count == 1 && ops[0].atom == DW_OP_bregx && ops[0].number == reg) {
        *ret_at = (int64_t)ops[0].number2;
        return true;
    }
    return false;
}

// The rule that elfutils' answers at an address amount to.
static struct ug_unwind_rule rule_of(Dwarf_Frame *frame, bool *ret_simple)
{
    Dwarf_Op *ops, memory[3];
    size_t count;
    struct ug_unwind_rule rule = {0};
    int64_t at;
    *ret_simple = dwarf_frame_register(frame, 16, memory, &ops, &count) == 0;
    if (*ret_simple && count == 0 && ops == memory)
        return (struct ug_unwind_rule){.cfa = UG_UNWIND_END};
    // else in a register: vfork
    *ret_simple = count == 2 && ops[1].atom == DW_OP_plus_uconst && (int64_t)ops[1].number == -8;
    if (!*ret_simple)
        return rule;
    if (dwarf_frame_cfa(frame, &ops, &count)) {
        *ret_simple = false;
        return rule;
    }
    if (is_register(ops, count, 7, &at) || is_register(ops, count, 6, &at)) {
        rule.cfa = is_register(ops, count, 7, &at) ? UG_UNWIND_RSP : UG_UNWIND_RBP;
        rule.cfa_at = (int32_t)at;
    } else {
        *ret_simple = false;
        return rule;
    }
    if (dwarf_frame_register(frame, 6, memory, &ops, &count)) {
        *ret_simple = false;
    } else if (count == 1 && ops[0].atom == DW_OP_call_frame_cfa) {
        rule.rbp = UG_UNWIND_RBP_FROM_CFA;
    } else if (count == 2 && ops[0].atom == DW_OP_call_frame_cfa &&
            ops[1].atom == DW_OP_plus_uconst) {
        rule.rbp = UG_UNWIND_RBP_FROM_CFA;
        rule.rbp_at = (int16_t)ops[1].number;
    } else if (count) {
        *ret_simple = false;
    }
    return rule;
}

static void compare_at(struct compared *compared, uint64_t address, struct ug_unwind_rule ours)
{
    Dwarf_Frame *frame;
    bool simple;
    if (dwarf_cfi_addrframe(compared->cfi, address, &frame)) {
        compared->asked++;
        compared->none++;
        return; // a gap: padding holds what was before it
    }
    struct ug_unwind_rule theirs = rule_of(frame, &simple);
    free(frame);
    compared->asked++;
    if (ours.cfa == UG_UNWIND_NONE) {
        compared->none++;
        if (simple && theirs.cfa != UG_UNWIND_NONE && compared->other++ < 5)
            printf("%#llx: nothing, elfutils: cfa %u %d rbp %u %d\n", (unsigned long long)address,
                    theirs.cfa, theirs.cfa_at, theirs.rbp, theirs.rbp_at);
    } else if (simple && memcmp(&ours, &theirs, sizeof ours)) {
        if (compared->wrong++ < 5)
            printf("%#llx: cfa %u %d rbp %u %d, elfutils: cfa %u %d rbp %u %d\n",
                    (unsigned long long)address, ours.cfa, ours.cfa_at, ours.rbp, ours.rbp_at,
                    theirs.cfa, theirs.cfa_at, theirs.rbp, theirs.rbp_at);
    } else if (!simple && ours.cfa != UG_UNWIND_PLT && ours.cfa != UG_UNWIND_RBP_AT &&
            ours.cfa != UG_UNWIND_SIGNAL && ours.rbp != UG_UNWIND_RBP_FROM_RBP) {
        compared->wrong++;
    }
}

// The rule at begin + offset, as the BPF side finds it.
static struct ug_unwind_rule rule_at(
        const struct unwind_table *table, const struct unwind_rules *rules, uint32_t offset)
{
    uint32_t region = offset >> UG_UNWIND_REGION_BITS, low = table->words[region],
             high = table->words[region + 1];
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if ((table->words[middle] & 0xffff) <= (offset & 0xffff))
            low = middle;
        else
            high = middle;
    }
    return rules->all[table->words[low] >> 16];
}

static void compare_table(uint64_t begin, uint64_t end, const struct unwind_table *table,
        const struct unwind_rules *rules, void *context)
{
    for (uint32_t region = 0; region < UG_UNWIND_REGIONS; region++)
        for (uint32_t i = table->words[region]; i < table->words[region + 1]; i++) {
            uint32_t offset = (region << UG_UNWIND_REGION_BITS) + (table->words[i] & 0xffff);
            if (begin + offset < end)
                compare_at(context, begin + offset, rule_at(table, rules, offset));
            if (offset && begin + offset <= end)
                compare_at(context, begin + offset - 1, rule_at(table, rules, offset - 1));
        }
}

static void compare_library(const char *path)
{
    struct compared compared = {0};
    struct unwind_rules rules;
    size_t functions;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && elf_version(EV_CURRENT) != EV_NONE);
    Elf *elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
    compared.cfi = dwarf_getcfi_elf(elf);
    CHECK(compared.cfi);
    unwind_rules_init(&rules);
    size_t words = tables_of(fd, &rules, compare_table, &compared, &functions);
    printf("%s: %zu functions, %zu words, %u rules; %zu asked, %zu not known of which %zu could be\n",
            path, functions, words, rules.count, compared.asked, compared.none, compared.other);
    CHECK(functions > 50 && compared.asked > 1000);
    CHECK_INT(compared.wrong, 0);
    CHECK_INT(compared.other, 0);
    CHECK_INT(rules.dropped, 0);
    unwind_rules_free(&rules);
    dwarf_cfi_end(compared.cfi);
    elf_end(elf);
    close(fd);
}

TEST(libc_as_elfutils_reads_it)
{
    need_x86();
    compare_library(library("libc.so"));
}

TEST(own_program_as_elfutils_reads_it)
{
    need_x86();
    compare_library("/proc/self/exe");
}

TEST(python_as_elfutils_reads_it)
{
    need_x86();
    if (access("/usr/bin/python3", R_OK))
        runner_skip("no /usr/bin/python3");
    compare_library("/usr/bin/python3");
}

TEST(another_library_as_elfutils_reads_it)
{
    need_x86();
    if (!getenv("UPGATE_UNWIND_LIBRARY"))
        runner_skip("no UPGATE_UNWIND_LIBRARY");
    compare_library(getenv("UPGATE_UNWIND_LIBRARY"));
}
#endif

static double cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

TEST(cost)
{
    need_x86();
    const char *path = getenv("UPGATE_UNWIND_LIBRARY");
    int fd = open(path ? path : library("libc.so"), O_RDONLY | O_CLOEXEC);
    struct unwind_rules rules;
    size_t functions;
    CHECK(fd >= 0);
    unwind_rules_init(&rules);
    double begin_ms = cpu_ms();
    size_t words = tables_of(fd, &rules, NULL, NULL, &functions);
    if (getenv("UPGATE_UNWIND_TIMES"))
        printf("%zu functions, %zu words, %u rules: %.1f ms\n", functions, words, rules.count,
                cpu_ms() - begin_ms);
    CHECK(functions > 100);
    unwind_rules_free(&rules);
    close(fd);
}

// The outermost functions, and signal frames, which elfutils' answers above do not tell apart.
TEST(ends_and_signal_frames_are_there)
{
    need_x86();
    struct unwind_rules rules;
    size_t functions, ends = 0, signals = 0;
    int fd = open(library("libc.so"), O_RDONLY | O_CLOEXEC);
    unwind_rules_init(&rules);
    tables_of(fd, &rules, NULL, NULL, &functions);
    for (uint32_t i = 0; i < rules.count; i++) {
        ends += rules.all[i].cfa == UG_UNWIND_END;
        signals += rules.all[i].cfa == UG_UNWIND_SIGNAL;
    }
    CHECK_INT(ends, 1);
    CHECK_INT(signals, 1);
    unwind_rules_free(&rules);
    close(fd);
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

// A table that keeps its own law: every search in it ends within it.
static void check_table(uint64_t begin, uint64_t end, const struct unwind_table *table,
        const struct unwind_rules *rules, void *context)
{
    (void)begin, (void)end, (void)context;
    CHECK(table->count <= table->slabs * UG_UNWIND_SLAB_WORDS &&
            table->words[0] == UG_UNWIND_HEAD_WORDS);
    CHECK_INT(table->words[UG_UNWIND_REGIONS], table->count);
    for (uint32_t region = 0; region < UG_UNWIND_REGIONS; region++) {
        uint32_t first = table->words[region], next = table->words[region + 1];
        if (first >= next || next > table->count || table->words[first] & 0xffff)
            runner_fail(__FILE__, __LINE__, "region %u is damaged", region);
        for (uint32_t i = first; i < next; i++)
            if (table->words[i] >> 16 >= rules->count ||
                    (i > first && (table->words[i] & 0xffff) <= (table->words[i - 1] & 0xffff)))
                runner_fail(
                        __FILE__, __LINE__, "row %u of region %u is damaged", i - first, region);
    }
}

static void use_file(const void *bytes, size_t size)
{
    struct unwind_rules rules;
    size_t functions;
    int fd = memfd_create("damaged", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    unwind_rules_init(&rules);
    tables_of(fd, &rules, check_table, NULL, &functions);
    CHECK(rules.count <= UG_UNWIND_RULES);
    unwind_rules_free(&rules);
    close(fd);
}

TEST(damaged_files_are_safe)
{
    need_x86();
    size_t size, bytes;
    struct eh_file file;
    char *whole = string_read_file(library("libc.so"), 16 << 20, &size);
    int fd = open(library_path, O_RDONLY | O_CLOEXEC);
    CHECK(whole && eh_file_open(fd, &file) == 0);
    uint64_t code, frame;
    CHECK(eh_file_entry(&file, 0, &code, &frame) && eh_file_record(&file, frame, &bytes));
    uint64_t begin = file.table_offset - 12, length = 12 + 8 * (uint64_t)file.count + 3 * 65536;
    eh_file_close(&file);
    close(fd);
    length = length < size - begin ? length : size - begin;
    uint32_t state = 1;
    for (int round = 0; round < 60; round++) {
        char *copy = malloc(size);
        memcpy(copy, whole, size);
        // of .eh_frame_hdr and .eh_frame behind it, or of the head
        for (int i = 0; i < 1 << round % 12; i++) {
            uint64_t at =
                    round % 3 ? begin + next_random(&state) % length : next_random(&state) % 1024;
            copy[at] = (char)(round % 2 ? next_random(&state) : 0xffu << round % 8);
        }
        use_file(copy, round % 5 ? size : begin + next_random(&state) % length); // cut short, too
        free(copy);
    }
    free(whole);
}

TEST(what_is_no_elf_file_has_none)
{
    struct eh_file file;
    int fd = memfd_create("text", MFD_CLOEXEC);
    CHECK(write(fd, "#!/bin/sh\n", 10) == 10);
    CHECK_INT(eh_file_open(fd, &file), -ENOEXEC);
    eh_file_close(&file);
    close(fd);
}
