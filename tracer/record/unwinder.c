// SPDX-License-Identifier: Apache-2.0
// Unwind tables of processes. A table is of a part of an executable segment, 4 MiB counted from the
// begin of the segment, and serves all processes that map the file.
#include "tracer/record/unwinder.h"

#include <stdlib.h>
#include <string.h>

#include "common/budget.h"
#include "common/containers/map.h"
#include "common/containers/search.h"
#include "common/proc.h"
#include "common/strings.h"
#include "tracer/unwind/unwind_table.h"

enum {
    UNWINDER_TABLES_MAX = 2048,
    UNWINDER_SHARE_DIVISOR = 50, // 2 % of a core: the worst target has new code all the time
    UNWINDER_PROMPT_DIVISOR = 5,
    UNWINDER_BURST_NS = 500000000, // all that PyTorch's stacks lead into takes 100 ms
    UNWINDER_CALL_NS = 10000000,   // records wait meanwhile
    UNWINDER_PAGE = 4096,
};
static const uint64_t unwinder_span_max = UINT64_C(1) << 30;

struct unwinder_table {
    uint64_t file; // 0: free
    uint32_t part;
    uint32_t slab, slabs; // 0 slabs: there is nothing
    uint64_t used;
};

struct unwinder_process {
    uint32_t tgid;
    uint64_t start_ns, used;
    uint32_t generation, epoch;
    bool changed;
    struct ug_unwind_process map;
};

struct unwinder {
    struct capture *capture;
    struct symbols *symbols;
    struct unwind_rules rules;
    uint32_t rules_loaded;
    struct unwinder_table tables[UNWINDER_TABLES_MAX];
    struct map by_code; // tables
    bool taken[UG_UNWIND_SLABS];
    uint32_t processes_max;
    struct unwinder_process **processes; // NULL: free
    struct map by_tgid;                  // processes
    uint64_t used;
    struct budget budget;
    struct unwinder_counts counts;
};

struct unwinder *unwinder_new(
        struct capture *capture, struct symbols *symbols, uint32_t processes_max, bool prompt)
{
    if (!capture_unwinds(capture))
        return NULL;
    struct unwinder *unwinder = xcalloc(1, sizeof *unwinder);
    unwinder->capture = capture;
    unwinder->symbols = symbols;
    unwinder->processes_max = processes_max;
    unwinder->processes = xcalloc(processes_max, sizeof(struct unwinder_process *));
    unwinder->budget =
            (struct budget){.divisor = prompt ? UNWINDER_PROMPT_DIVISOR : UNWINDER_SHARE_DIVISOR,
                    .burst_ns = UNWINDER_BURST_NS};
    unwind_rules_init(&unwinder->rules);
    return unwinder;
}

void unwinder_free(struct unwinder *unwinder)
{
    if (!unwinder)
        return;
    for (size_t i = 0; i < unwinder->processes_max; i++)
        free(unwinder->processes[i]);
    free(unwinder->processes);
    map_free(&unwinder->by_tgid);
    map_free(&unwinder->by_code);
    unwind_rules_free(&unwinder->rules);
    free(unwinder);
}

// --- processes -----------------------------------------------------------------------------------

static struct unwinder_process *unwinder_find(const struct unwinder *unwinder, uint32_t tgid)
{
    uint32_t i = map_get(&unwinder->by_tgid, tgid);
    return i == MAP_NONE ? NULL : unwinder->processes[i];
}

static void unwinder_drop(struct unwinder *unwinder, struct unwinder_process *process)
{
    uint32_t i = map_get(&unwinder->by_tgid, process->tgid);
    capture_unwind_process(unwinder->capture, (pid_t)process->tgid, NULL);
    map_remove(&unwinder->by_tgid, process->tgid, i);
    free(process);
    unwinder->processes[i] = NULL;
}

void unwinder_forget(struct unwinder *unwinder, uint32_t tgid)
{
    struct unwinder_process *process = unwinder ? unwinder_find(unwinder, tgid) : NULL;
    if (process)
        unwinder_drop(unwinder, process);
}

static struct unwinder_process *unwinder_add(
        struct unwinder *unwinder, const struct task_process *task, uint32_t epoch)
{
    uint32_t i = 0, oldest = 0;
    for (; i < unwinder->processes_max && unwinder->processes[i]; i++)
        if (unwinder->processes[i]->used < unwinder->processes[oldest]->used)
            oldest = i;
    if (i == unwinder->processes_max) {
        i = oldest;
        unwinder_drop(unwinder, unwinder->processes[i]);
    }
    struct unwinder_process *process = xcalloc(1, sizeof *process);
    process->tgid = task->tgid;
    process->start_ns = task->start_ns;
    process->generation = task->generation;
    process->epoch = epoch;
    unwinder->processes[i] = process;
    map_add(&unwinder->by_tgid, process->tgid, i);
    return process;
}

static void unwinder_tell(struct unwinder *unwinder, struct unwinder_process *process)
{
    process->changed = false;
    capture_unwind_process(unwinder->capture, (pid_t)process->tgid, &process->map);
}

// The first span that ends behind the address.
static uint32_t process_at(const struct ug_unwind_process *map, uint64_t address)
{
    return (uint32_t)search_first(
            i, map->count, map->spans[i].begin + map->spans[i].bytes > address);
}

static bool process_has(const struct ug_unwind_process *map, uint64_t address)
{
    uint32_t at = process_at(map, address);
    return at < map->count && map->spans[at].begin <= address;
}

// In the place of what it overlaps.
static void process_add(struct unwinder_process *process, const struct ug_unwind_span *span)
{
    struct ug_unwind_process *map = &process->map;
    uint32_t first = process_at(map, span->begin), last = first;
    while (last < map->count && map->spans[last].begin < span->begin + span->bytes)
        last++;
    process->changed = true;
    if (first == last && map->count == UG_UNWIND_SPANS) {
        map->full = 1;
        return;
    }
    memmove(&map->spans[first + 1], &map->spans[last], (map->count - last) * sizeof *span);
    map->spans[first] = *span;
    map->count -= last - first;
    map->count++;
}

// --- tables --------------------------------------------------------------------------------------

static uint64_t table_key(uint64_t file, uint32_t part)
{
    return hash_mix(file, part);
}

static void unwinder_evict(struct unwinder *unwinder, struct unwinder_table *table)
{
    for (uint32_t i = 0; i < unwinder->processes_max; i++) {
        struct ug_unwind_process *map =
                unwinder->processes[i] ? &unwinder->processes[i]->map : NULL;
        uint32_t kept = 0;
        for (uint32_t j = 0; map && j < map->count; j++)
            if (!table->slabs || map->spans[j].table != table->slab)
                map->spans[kept++] = map->spans[j];
        if (!map || kept == map->count)
            continue;
        map->count = kept;
        map->full = 0;
        unwinder_tell(unwinder, unwinder->processes[i]); // before its slabs are another's
    }
    map_remove(&unwinder->by_code, table_key(table->file, table->part),
            (uint32_t)(table - unwinder->tables));
    memset(&unwinder->taken[table->slab], 0, table->slabs);
    *table = (struct unwinder_table){0};
    unwinder->counts.evicted++;
}

// The one that was asked for longest ago, of those with slabs or of all; NULL: none.
static struct unwinder_table *unwinder_oldest(struct unwinder *unwinder, bool with_slabs)
{
    struct unwinder_table *oldest = NULL;
    for (size_t i = 0; i < UNWINDER_TABLES_MAX; i++) {
        struct unwinder_table *one = &unwinder->tables[i];
        if (one->file && (one->slabs || !with_slabs) && (!oldest || one->used < oldest->used))
            oldest = one;
    }
    return oldest;
}

static struct unwinder_table *unwinder_free_table(struct unwinder *unwinder)
{
    for (size_t i = 0; i < UNWINDER_TABLES_MAX; i++)
        if (!unwinder->tables[i].file)
            return &unwinder->tables[i];
    struct unwinder_table *oldest = unwinder_oldest(unwinder, false);
    unwinder_evict(unwinder, oldest);
    return oldest;
}

// So many slabs in a row.
static bool unwinder_free_slabs(struct unwinder *unwinder, uint32_t count, uint32_t *ret)
{
    do {
        for (uint32_t i = 0, run = 0; i < UG_UNWIND_SLABS; i++) {
            run = unwinder->taken[i] ? 0 : run + 1;
            if (run == count) {
                *ret = i + 1 - count;
                return true;
            }
        }
        struct unwinder_table *oldest = unwinder_oldest(unwinder, true);
        if (!oldest)
            return false;
        unwinder_evict(unwinder, oldest);
    } while (true);
}

static bool unwinder_load(
        struct unwinder *unwinder, const struct unwind_table *built, uint32_t slab)
{
    for (; unwinder->rules_loaded < unwinder->rules.count; unwinder->rules_loaded++)
        if (capture_unwind_rule(unwinder->capture, unwinder->rules_loaded,
                    &unwinder->rules.all[unwinder->rules_loaded]))
            return false;
    for (uint32_t i = 0; i < built->slabs; i++)
        if (capture_unwind_slab(
                    unwinder->capture, slab + i, built->words + (size_t)i * UG_UNWIND_SLAB_WORDS))
            return false;
    return true;
}

static void unwinder_build(struct unwinder *unwinder, const struct symbols_code *code,
        uint64_t begin, struct unwinder_table *table)
{
    struct eh_file file;
    struct unwind_table built = {0};
    uint32_t slab;
    if (eh_file_open(code->fd, &file) == 0 &&
            unwind_table_build(&file, begin, code->segment_end, &unwinder->rules, &built) == 0 &&
            unwinder_free_slabs(unwinder, built.slabs, &slab) &&
            unwinder_load(unwinder, &built, slab)) {
        table->slab = slab;
        table->slabs = built.slabs;
        memset(&unwinder->taken[slab], 1, built.slabs);
        unwinder->counts.words += built.count;
    }
    unwinder->counts.tables += table->slabs > 0;
    unwinder->counts.without += table->slabs == 0;
    unwind_table_free(&built);
    eh_file_close(&file);
}

// The table of a part of a segment that begins at `begin`.
static const struct unwinder_table *unwinder_table(
        struct unwinder *unwinder, const struct symbols_code *code, uint32_t part, uint64_t begin)
{
    struct unwinder_table *table = NULL;
    uint64_t file = code->file << 4 | code->segment, key = table_key(file, part);
    size_t at;
    for (uint32_t i = map_first(&unwinder->by_code, key, &at); i != MAP_NONE && !table;
            i = map_next(&unwinder->by_code, key, &at))
        if (unwinder->tables[i].file == file && unwinder->tables[i].part == part)
            table = &unwinder->tables[i];
    if (!table) {
        table = unwinder_free_table(unwinder);
        *table = (struct unwinder_table){.part = part};
        unwinder_build(unwinder, code, begin, table);
        table->file = file; // now, so that room for it is not made by it
        map_add(&unwinder->by_code, key, (uint32_t)(table - unwinder->tables));
    }
    table->used = ++unwinder->used;
    return table;
}

// --- stacks --------------------------------------------------------------------------------------

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static struct ug_unwind_span span_without(const struct symbols_code *code, uint64_t address)
{
    uint64_t begin = code->begin, end = code->end;
    if (end - begin > unwinder_span_max) {
        uint64_t near = address & ~(unwinder_span_max - 1);
        begin = near > begin ? near : begin;
        end = least(end, near + unwinder_span_max);
    }
    return (struct ug_unwind_span){
            .begin = begin, .bytes = (uint32_t)(end - begin), .table = UG_UNWIND_NO_TABLE};
}

// False: there is no code.
static bool unwinder_add_code(struct unwinder *unwinder, const struct task_process *task,
        struct unwinder_process *process, uint64_t at_ns, uint64_t address)
{
    struct symbols_code code;
    if (!symbols_process_code(unwinder->symbols, (pid_t)task->tgid, task->start_ns / PROC_TICK_NS,
                at_ns, address, &code))
        return false;
    struct ug_unwind_span span = span_without(&code, address);
    if (code.file) {
        uint64_t base = code.segment_begin & ~(uint64_t)(UNWINDER_PAGE - 1),
                 ahead = code.begin - code.address;
        uint64_t at = address - ahead, part = (at - base) / UG_UNWIND_TABLE_BYTES;
        uint64_t begin = base + part * UG_UNWIND_TABLE_BYTES; // in the file
        uint64_t first = code.begin > begin + ahead ? code.begin : begin + ahead;
        uint64_t end = least(code.end, begin + ahead + UG_UNWIND_TABLE_BYTES);
        const struct unwinder_table *table = unwinder_table(unwinder, &code, (uint32_t)part, begin);
        span = (struct ug_unwind_span){.begin = first,
                .bytes = (uint32_t)(end - first),
                .table = table->slabs ? table->slab : UG_UNWIND_NO_TABLE,
                .skip = (uint32_t)(first - ahead - begin)};
    }
    process_add(process, &span);
    return true;
}

// Returns how many are to be kept.
static size_t unwinder_missed(struct unwinder *unwinder, const struct task_process *task,
        struct unwinder_process *process, uint64_t at_ns, const __u64 *addresses, size_t count)
{
    process->used = ++unwinder->used;
    for (size_t i = 0; i < count && !process->map.full; i++) {
        uint64_t address = addresses[i] - (i > 0);
        if (process_has(&process->map, address))
            continue;
        if (!unwinder_add_code(unwinder, task, process, at_ns, address))
            return i ? i : count;
        if (budget_took_ns(&unwinder->budget) >= UNWINDER_CALL_NS)
            break;
    }
    return count;
}

size_t unwinder_saw(struct unwinder *unwinder, const struct task_process *process, uint64_t at_ns,
        const __u64 *addresses, size_t count, bool missed)
{
    if (!unwinder || !count)
        return count;
    struct unwinder_process *mine = unwinder_find(unwinder, process->tgid);
    if (!mine && !missed)
        return count;
    uint64_t start = process->start_ns / PROC_TICK_NS;
    uint32_t epoch = symbols_process_epoch(unwinder->symbols, (pid_t)process->tgid, start, at_ns);
    if (mine &&
            (mine->generation != process->generation || mine->start_ns != process->start_ns ||
                    epoch > mine->epoch)) {
        unwinder_drop(unwinder, mine);
        mine = NULL;
    }
    if (!missed)
        return count;
    if (!budget_affords(&unwinder->budget)) {
        unwinder->counts.late++;
        return count;
    }
    budget_begin(&unwinder->budget);
    if (!mine)
        mine = unwinder_add(unwinder, process, epoch);
    count = unwinder_missed(unwinder, process, mine, at_ns, addresses, count);
    if (mine->changed)
        unwinder_tell(unwinder, mine);
    budget_end(&unwinder->budget);
    return count;
}

void unwinder_counts(const struct unwinder *unwinder, struct unwinder_counts *ret)
{
    *ret = unwinder->counts;
    ret->rules = unwinder->rules.count;
}
