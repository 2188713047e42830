// SPDX-License-Identifier: Apache-2.0
// Unwind tables of processes. A table is of a part of an executable segment, 4 MiB counted from the begin of the segment,
// and serves all processes that map the file.
#include "tracer/record/unwinder.h"

#include <stdlib.h>
#include <string.h>

#include "common/budget.h"
#include "common/containers/search.h"
#include "common/strings.h"
#include "tracer/unwind/unwind_table.h"

enum {
    UNWINDER_TABLES_MAX = 2048,
    UNWINDER_SHARE_DIVISOR = 50, // 2 % of a core: the worst target has new code all the time
    UNWINDER_PROMPT_DIVISOR = 5,
    UNWINDER_BURST_NS = 500000000, // all that PyTorch's stacks lead into takes 100 ms
    UNWINDER_CALL_NS = 10000000,   // records wait meanwhile
    UNWINDER_TICK_NS = 10000000,   // symbols.h: start is in clock ticks
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
    bool taken[UG_UNWIND_SLABS];
    uint32_t tgids[UG_UNWIND_PROCESSES]; // 0: free
    struct unwinder_process *processes[UG_UNWIND_PROCESSES];
    uint64_t used;
    struct budget budget;
    struct unwinder_counts counts;
};

struct unwinder *unwinder_new(struct capture *capture, struct symbols *symbols, bool prompt)
{
    if (!capture_unwinds(capture))
        return NULL;
    struct unwinder *unwinder = xcalloc(1, sizeof *unwinder);
    unwinder->capture = capture;
    unwinder->symbols = symbols;
    unwinder->budget = (struct budget){.divisor = prompt ? UNWINDER_PROMPT_DIVISOR : UNWINDER_SHARE_DIVISOR,
                                       .burst_ns = UNWINDER_BURST_NS};
    unwind_rules_init(&unwinder->rules);
    return unwinder;
}

void unwinder_free(struct unwinder *unwinder)
{
    if (!unwinder)
        return;
    for (size_t i = 0; i < UG_UNWIND_PROCESSES; i++)
        free(unwinder->processes[i]);
    unwind_rules_free(&unwinder->rules);
    free(unwinder);
}

// --- processes ------------------------------------------------------------------------------------

static int unwinder_find(const struct unwinder *unwinder, uint32_t tgid)
{
    for (int i = 0; i < UG_UNWIND_PROCESSES; i++)
        if (unwinder->tgids[i] == tgid)
            return i;
    return -1;
}

static void unwinder_drop(struct unwinder *unwinder, int i)
{
    capture_unwind_process(unwinder->capture, (pid_t)unwinder->tgids[i], NULL);
    free(unwinder->processes[i]);
    unwinder->processes[i] = NULL;
    unwinder->tgids[i] = 0;
}

void unwinder_forget(struct unwinder *unwinder, uint32_t tgid)
{
    int i = unwinder ? unwinder_find(unwinder, tgid) : -1;
    if (i >= 0)
        unwinder_drop(unwinder, i);
}

static struct unwinder_process *unwinder_add(struct unwinder *unwinder, const struct task_process *process, uint32_t epoch)
{
    int i = unwinder_find(unwinder, 0);
    if (i < 0) {
        i = 0;
        for (int j = 1; j < UG_UNWIND_PROCESSES; j++)
            if (unwinder->processes[j]->used < unwinder->processes[i]->used)
                i = j;
        unwinder_drop(unwinder, i);
    }
    unwinder->tgids[i] = process->tgid;
    unwinder->processes[i] = xcalloc(1, sizeof *unwinder->processes[i]);
    unwinder->processes[i]->start_ns = process->start_ns;
    unwinder->processes[i]->generation = process->generation;
    unwinder->processes[i]->epoch = epoch;
    return unwinder->processes[i];
}

static void unwinder_tell(struct unwinder *unwinder, int i)
{
    unwinder->processes[i]->changed = false;
    capture_unwind_process(unwinder->capture, (pid_t)unwinder->tgids[i], &unwinder->processes[i]->map);
}

// The first span that ends behind the address.
static uint32_t process_at(const struct ug_unwind_process *map, uint64_t address)
{
    return (uint32_t)search_first(i, map->count, map->spans[i].begin + map->spans[i].bytes > address);
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

// --- tables ---------------------------------------------------------------------------------------

static void unwinder_evict(struct unwinder *unwinder, struct unwinder_table *table)
{
    for (int i = 0; i < UG_UNWIND_PROCESSES; i++) {
        struct ug_unwind_process *map = unwinder->tgids[i] ? &unwinder->processes[i]->map : NULL;
        uint32_t kept = 0;
        for (uint32_t j = 0; map && j < map->count; j++)
            if (!table->slabs || map->spans[j].table != table->slab)
                map->spans[kept++] = map->spans[j];
        if (!map || kept == map->count)
            continue;
        map->count = kept;
        map->full = 0;
        unwinder_tell(unwinder, i); // before its slabs are another's
    }
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

static bool unwinder_load(struct unwinder *unwinder, const struct unwind_table *built, uint32_t slab)
{
    for (; unwinder->rules_loaded < unwinder->rules.count; unwinder->rules_loaded++)
        if (capture_unwind_rule(unwinder->capture, unwinder->rules_loaded, &unwinder->rules.all[unwinder->rules_loaded]))
            return false;
    for (uint32_t i = 0; i < built->slabs; i++)
        if (capture_unwind_slab(unwinder->capture, slab + i, built->words + (size_t)i * UG_UNWIND_SLAB_WORDS))
            return false;
    return true;
}

static void unwinder_build(struct unwinder *unwinder, const struct symbols_code *code, uint64_t begin,
                           struct unwinder_table *table)
{
    struct eh_file file;
    struct unwind_table built = {0};
    uint32_t slab;
    if (eh_file_open(code->fd, &file) == 0 &&
        unwind_table_build(&file, begin, code->segment_end, &unwinder->rules, &built) == 0 &&
        unwinder_free_slabs(unwinder, built.slabs, &slab) && unwinder_load(unwinder, &built, slab)) {
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
static const struct unwinder_table *unwinder_table(struct unwinder *unwinder, const struct symbols_code *code,
                                                   uint32_t part, uint64_t begin)
{
    struct unwinder_table *table = NULL;
    uint64_t file = code->file << 4 | code->segment;
    for (size_t i = 0; i < UNWINDER_TABLES_MAX && !table; i++)
        if (unwinder->tables[i].file == file && unwinder->tables[i].part == part)
            table = &unwinder->tables[i];
    if (!table) {
        table = unwinder_free_table(unwinder);
        *table = (struct unwinder_table){.part = part};
        unwinder_build(unwinder, code, begin, table);
        table->file = file; // now, so that room for it is not made by it
    }
    table->used = ++unwinder->used;
    return table;
}

// --- stacks ---------------------------------------------------------------------------------------

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
    return (struct ug_unwind_span){.begin = begin, .bytes = (uint32_t)(end - begin), .table = UG_UNWIND_NO_TABLE};
}

// False: there is no code.
static bool unwinder_add_code(struct unwinder *unwinder, const struct task_process *task, struct unwinder_process *process,
                              uint64_t at_ns, uint64_t address)
{
    struct symbols_code code;
    if (!symbols_process_code(unwinder->symbols, (pid_t)task->tgid, task->start_ns / UNWINDER_TICK_NS, at_ns, address, &code))
        return false;
    struct ug_unwind_span span = span_without(&code, address);
    if (code.file) {
        uint64_t base = code.segment_begin & ~(uint64_t)(UNWINDER_PAGE - 1), ahead = code.begin - code.address;
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
static size_t unwinder_missed(struct unwinder *unwinder, const struct task_process *task, struct unwinder_process *process,
                            uint64_t at_ns, const __u64 *addresses, size_t count)
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

size_t unwinder_saw(struct unwinder *unwinder, const struct task_process *process, uint64_t at_ns, const __u64 *addresses,
                  size_t count, bool missed)
{
    if (!unwinder || !count)
        return count;
    int i = unwinder_find(unwinder, process->tgid);
    if (i < 0 && !missed)
        return count;
    uint64_t start = process->start_ns / UNWINDER_TICK_NS;
    uint32_t epoch = symbols_process_epoch(unwinder->symbols, (pid_t)process->tgid, start, at_ns);
    if (i >= 0 && (unwinder->processes[i]->generation != process->generation ||
                   unwinder->processes[i]->start_ns != process->start_ns || epoch > unwinder->processes[i]->epoch)) {
        unwinder_drop(unwinder, i);
        i = -1;
    }
    if (!missed)
        return count;
    if (!budget_affords(&unwinder->budget)) {
        unwinder->counts.late++;
        return count;
    }
    budget_begin(&unwinder->budget);
    struct unwinder_process *mine = i >= 0 ? unwinder->processes[i] : unwinder_add(unwinder, process, epoch);
    count = unwinder_missed(unwinder, process, mine, at_ns, addresses, count);
    if (mine->changed)
        unwinder_tell(unwinder, unwinder_find(unwinder, process->tgid));
    budget_end(&unwinder->budget);
    return count;
}

void unwinder_counts(const struct unwinder *unwinder, struct unwinder_counts *ret)
{
    *ret = unwinder->counts;
    ret->rules = unwinder->rules.count;
}
