// SPDX-License-Identifier: Apache-2.0
// Functions in the order of their addresses become rows; equal neighbours are one row.
#include "tracer/unwind/unwind_table.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "tracer/unwind/cfi.h"

enum {
    TABLE_ROWS_MAX = 1 << 18, // 1 MB; the densest 4 MiB of PyTorch have 90,000
    TABLE_PADDING_MAX = 16,   // between functions: nothing is called there
    TABLE_FUNCTIONS_MAX = 1 << 17,
};

struct table_row {
    uint32_t offset, rule;
};

struct table_build {
    struct unwind_rules *rules;
    uint64_t begin, end, gap; // gap: where the last function ended
    struct table_row *rows;
    size_t count;
    uint32_t rule, at_begin; // that holds now, and at the begin
};

void unwind_rules_init(struct unwind_rules *rules)
{
    *rules = (struct unwind_rules){0};
    vector_push(rules->all, rules->count, (struct ug_unwind_rule){.cfa = UG_UNWIND_NONE});
}

void unwind_rules_free(struct unwind_rules *rules)
{
    free(rules->all);
    map_free(&rules->numbers);
    *rules = (struct unwind_rules){0};
}

static uint32_t rules_number(struct unwind_rules *rules, struct ug_unwind_rule rule)
{
    uint64_t key;
    if (rule.cfa == UG_UNWIND_NONE)
        return 0;
    memcpy(&key, &rule, sizeof key);
    uint32_t known = map_get(&rules->numbers, key);
    if (known != MAP_NONE)
        return known;
    if (rules->count == UG_UNWIND_RULES) {
        rules->dropped++;
        return 0;
    }
    vector_push(rules->all, rules->count, rule);
    *map_put(&rules->numbers, key) = rules->count - 1;
    return rules->count - 1;
}

static void build_row(struct table_build *build, uint64_t address, uint32_t rule)
{
    if (address >= build->end || rule == build->rule)
        return;
    if (address <= build->begin) {
        build->rule = build->at_begin = rule;
        return;
    }
    struct table_row *last = build->count ? &build->rows[build->count - 1] : NULL;
    uint32_t offset = (uint32_t)(address - build->begin);
    // the latter: the entry's address is a lie
    if (build->count == TABLE_ROWS_MAX || (last && offset < last->offset))
        return;
    build->rule = rule;
    if (last && offset == last->offset)
        last->rule = rule;
    else
        vector_push(build->rows, build->count, (struct table_row){offset, rule});
}

static void build_emit(void *context, uint64_t address, struct ug_unwind_rule rule)
{
    struct table_build *build = context;
    if (build->gap && (address < build->gap || address - build->gap > TABLE_PADDING_MAX))
        build_row(build, build->gap, 0);
    build->gap = 0;
    build_row(build, address, rules_number(build->rules, rule));
}

// All functions of the range, into rows.
static void build_functions(
        struct table_build *build, struct eh_file *file, struct unwind_table *table)
{
    struct cfi cfi = {0};
    uint32_t i = eh_file_behind(file, build->begin);
    uint64_t code, frame, begin, end, last = 0;
    for (i -= i > 0;
            table->functions < TABLE_FUNCTIONS_MAX && eh_file_entry(file, i, &code, &frame); i++) {
        if (code >= build->end)
            break;
        if (code < last) // in another's code, or out of order
            continue;
        table->functions++;
        if (cfi_function(&cfi, file, frame, &begin, &end, build_emit, build) && begin == code) {
            build->gap = last = end;
            continue;
        }
        table->damaged++;
        build->gap = 0;
        build_row(build, code, 0);
        last = code + 1;
    }
    if (build->gap)
        build_row(build, build->gap, 0);
}

static void table_put(struct unwind_table *table, uint32_t low, uint32_t rule)
{
    table->words[table->count++] = rule << 16 | low;
}

static void table_fill(struct unwind_table *table, const struct table_build *build)
{
    uint32_t rule = build->at_begin;
    size_t at = 0;
    table->count = UG_UNWIND_HEAD_WORDS;
    for (uint32_t region = 0; region < UG_UNWIND_REGIONS; region++) {
        uint32_t first = region << UG_UNWIND_REGION_BITS,
                 end = first + (1 << UG_UNWIND_REGION_BITS);
        table->words[region] = table->count;
        if (at == build->count || build->rows[at].offset != first)
            table_put(table, 0, rule);
        for (; at < build->count && build->rows[at].offset < end; at++) {
            rule = build->rows[at].rule;
            table_put(table, build->rows[at].offset - first, rule);
        }
    }
    table->words[UG_UNWIND_REGIONS] = table->count;
}

int unwind_table_build(struct eh_file *file, uint64_t begin, uint64_t end,
        struct unwind_rules *rules, struct unwind_table *ret)
{
    struct table_build build = {.rules = rules, .begin = begin, .end = end};
    *ret = (struct unwind_table){0};
    if (begin >= end || file->machine != EM_X86_64)
        return -ENODATA;
    if (end - begin > UG_UNWIND_TABLE_BYTES)
        build.end = begin + UG_UNWIND_TABLE_BYTES;
    file->reads = 0;
    build_functions(&build, file, ret);
    if (build.end - begin < UG_UNWIND_TABLE_BYTES) { // behind it there is no code
        build.end++;
        build_row(&build, build.end - 1, 0);
    }
    if (ret->functions > ret->damaged) {
        size_t words = UG_UNWIND_HEAD_WORDS + UG_UNWIND_REGIONS + build.count;
        ret->slabs = (uint32_t)((words + UG_UNWIND_SLAB_WORDS - 1) / UG_UNWIND_SLAB_WORDS);
        ret->words = xcalloc((size_t)ret->slabs * UG_UNWIND_SLAB_WORDS, sizeof *ret->words);
        table_fill(ret, &build);
    }
    free(build.rows);
    return ret->words ? 0 : -ENODATA;
}

void unwind_table_free(struct unwind_table *table)
{
    free(table->words);
    *table = (struct unwind_table){0};
}
