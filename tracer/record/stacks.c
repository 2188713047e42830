// SPDX-License-Identifier: Apache-2.0
// Stacks by content.
#include "tracer/record/stacks.h"

#include <stdlib.h>
#include <string.h>

#include "common/budget.h"
#include "common/clock.h"
#include "common/containers/hash.h"
#include "common/containers/map.h"
#include "common/containers/vector.h"
#include "common/proc.h"
#include "common/strings.h"

enum {
    // What is remembered of each kind: 3 MB. A trainer whose workers come and go fills that in
    // minutes; then all is forgotten,
    // and what comes again gets another row: a larger store, not a wrong one. Contents are told
    // apart by 64 bits: of a
    // million two are taken for one with probability 3e-8.
    STACKS_MAX = 1 << 17,         // stacks, frames, addresses of a process
    STACKS_PENDING_MAX = 1 << 17, // words that wait for their symbols: 1 MB
    STACKS_DEPTH_MAX = 320,
    // What symbols may cost: 1 % of a core, and more at the begin, where all is new: PyTorch's
    // first 13 s took 0.25 s of
    // CPU here. A target that does its worst has stacks that are all new, some 20 us each.
    STACKS_SHARE_DIVISOR = 100,
    STACKS_PROMPT_DIVISOR = 5, // 20 %: of a traced launch each stack is wanted
    STACKS_BURST_NS = 500000000,
    STACKS_END_NS = 500000000, // the recording is over: what waits then gets this long
};

enum stacks_seed { SEED_KERNEL = 1, SEED_USER, SEED_PYTHON, SEED_FRAME, SEED_ADDRESS };

// What waits: these words, then `count` addresses.
struct stacks_pending {
    uint32_t id, tgid;
    uint64_t process_key, start, at_ns;
    uint32_t count, told; // told: its row says that it waits
};
enum { STACKS_PENDING_WORDS = sizeof(struct stacks_pending) / sizeof(uint64_t) };

struct stacks {
    struct writer *writer;
    struct symbols *symbols;
    struct map stacks, frames, addresses; // to rows
    uint64_t *pending;
    size_t pending_len, pending_at, pending_capacity;
    struct budget budget; // of symbols
    uint64_t stored, dropped;
};

struct stacks *stacks_new(struct writer *writer, struct symbols *symbols, bool prompt)
{
    struct stacks *stacks = xcalloc(1, sizeof *stacks);
    stacks->writer = writer;
    stacks->symbols = symbols;
    stacks->budget =
            (struct budget){.divisor = prompt ? STACKS_PROMPT_DIVISOR : STACKS_SHARE_DIVISOR,
                    .burst_ns = STACKS_BURST_NS};
    return stacks;
}

void stacks_free(struct stacks *stacks)
{
    if (!stacks)
        return;
    map_free(&stacks->stacks);
    map_free(&stacks->frames);
    map_free(&stacks->addresses);
    free(stacks->pending);
    free(stacks);
}

static void stacks_remember(struct map *map, uint64_t key, uint32_t id)
{
    if (map->count >= STACKS_MAX)
        map_clear(map);
    *map_put(map, key) = id;
}

// 0: not there.
static uint32_t stacks_known(const struct map *map, uint64_t key)
{
    uint32_t id = map_get(map, key);
    return id == MAP_NONE ? 0 : id;
}

static uint64_t stacks_hash_text(uint64_t hash, const char *text)
{
    return text ? hash_bytes(hash, text, strlen(text)) : hash * 31 + 1;
}

static uint32_t stacks_frame(struct stacks *stacks, const char *name, const char *module,
        const char *build_id, int64_t line, int64_t offset)
{
    uint64_t numbers[2] = {(uint64_t)line, (uint64_t)offset};
    uint64_t key = stacks_hash_text(SEED_FRAME, name);
    key = stacks_hash_text(stacks_hash_text(key, module), build_id);
    key = hash_bytes(key, numbers, sizeof numbers);
    uint32_t id = stacks_known(&stacks->frames, key);
    if (id)
        return id;
    id = writer_next_id(stacks->writer, WRITER_FRAME);
    stacks_remember(&stacks->frames, key, id);
    struct row row = writer_row(stacks->writer, WRITER_FRAME);
    row_int(&row, id);
    row_text(&row, name);
    row_text(&row, module);
    row_text(&row, build_id);
    row_id(&row, line);
    if (offset < 0)
        row_null(&row);
    else
        row_int(&row, offset);
    writer_put(stacks->writer, &row);
    return id;
}

static void stacks_store(
        struct stacks *stacks, uint32_t id, const char *kind, const uint32_t *frames, size_t count)
{
    char text[STACKS_DEPTH_MAX * 11 + 3];
    size_t len = 0;
    text[len++] = '[';
    for (size_t i = 0; i < count; i++) { // by hand: snprintf would be half of the cost of a stack
        char digits[10];
        int digit = 0;
        uint32_t rest = frames[i];
        do
            digits[digit++] = (char)('0' + rest % 10);
        while (rest /= 10);
        if (i)
            text[len++] = ',';
        while (digit)
            text[len++] = digits[--digit];
    }
    text[len++] = ']';
    text[len] = 0;
    struct row row = writer_row(stacks->writer, WRITER_STACK);
    row_int(&row, id);
    row_text(&row, kind);
    row_int(&row, (int64_t)count);
    row_text(&row, text);
    writer_put(stacks->writer, &row);
}

// A number for a content that was not seen before.
static uint32_t stacks_new_id(struct stacks *stacks, uint64_t key)
{
    uint32_t id = writer_next_id(stacks->writer, WRITER_STACK);
    stacks_remember(&stacks->stacks, key, id);
    stacks->stored++;
    return id;
}

static uint32_t stacks_symbol(struct stacks *stacks, const struct symbol *symbol)
{
    return stacks_frame(
            stacks, symbol->name, symbol->module, symbol->build_id, 0, (int64_t)symbol->offset);
}

// The address of a frame that is not the leaf is where it returns to, which may belong to the next
// function.
static uint64_t stacks_call_site(uint64_t address, size_t depth)
{
    return address - (depth > 0);
}

static uint32_t stacks_kernel_frame(struct stacks *stacks, uint64_t address)
{
    uint64_t key = hash_bytes(SEED_ADDRESS, &address, sizeof address);
    uint32_t id = stacks_known(&stacks->addresses, key);
    if (id)
        return id;
    struct symbol symbol = {0};
    symbols_kernel(stacks->symbols, address, &symbol);
    id = stacks_symbol(stacks, &symbol);
    stacks_remember(&stacks->addresses, key, id);
    return id;
}

uint32_t stacks_kernel(struct stacks *stacks, const __u64 *addresses, size_t count)
{
    uint32_t frames[STACKS_DEPTH_MAX];
    if (!count || count > STACKS_DEPTH_MAX)
        return 0;
    uint64_t key = hash_bytes(SEED_KERNEL, addresses, count * sizeof *addresses);
    uint32_t id = stacks_known(&stacks->stacks, key);
    if (id)
        return id;
    id = stacks_new_id(stacks, key);
    for (size_t i = 0; i < count; i++)
        frames[i] = stacks_kernel_frame(stacks, stacks_call_site(addresses[i], i));
    stacks_store(stacks, id, "kernel", frames, count);
    return id;
}

// Room for `count` addresses among those that wait. False: none, and none can be paid for.
static bool stacks_has_room(struct stacks *stacks, size_t count)
{
    while (stacks->pending_len + STACKS_PENDING_WORDS + count > STACKS_PENDING_MAX) {
        size_t before = stacks->pending_len - stacks->pending_at;
        size_t left = stacks_resolve(stacks, STACKS_END_NS);
        if (left && left == before)
            return false;
        memmove(stacks->pending, stacks->pending + stacks->pending_at,
                left * sizeof *stacks->pending);
        stacks->pending_at = 0;
        stacks->pending_len = left;
    }
    return true;
}

// Keeps the addresses until there is time for their symbols; there is room.
static void stacks_defer(
        struct stacks *stacks, const struct stacks_pending *head, const __u64 *addresses)
{
    size_t words = STACKS_PENDING_WORDS + head->count;
    stacks->pending = vector_reserve(stacks->pending, &stacks->pending_capacity,
            stacks->pending_len + words, sizeof *stacks->pending);
    memcpy(stacks->pending + stacks->pending_len, head, sizeof *head);
    memcpy(stacks->pending + stacks->pending_len + STACKS_PENDING_WORDS, addresses,
            head->count * sizeof *addresses);
    stacks->pending_len += words;
}

// Symbols of the process are held from its first stack on.
static void stacks_know(struct stacks *stacks, struct task_process *process, uint64_t start)
{
    struct symbols_birth birth = {.start = start};
    if (process->started_ns) { // we have seen it
        birth.parent = (pid_t)process->ppid;
        birth.at_ns = (uint64_t)process->started_ns;
    }
    process->snapshot = true;
    budget_begin(&stacks->budget);
    symbols_process_snapshot(stacks->symbols, (pid_t)process->tgid, &birth, NULL);
    budget_end(&stacks->budget);
}

uint32_t stacks_user(struct stacks *stacks, struct task_process *process, uint64_t at_ns,
        const __u64 *addresses, size_t count)
{
    if (!count || count > STACKS_DEPTH_MAX)
        return 0;
    uint64_t start = process->start_ns / PROC_TICK_NS;
    if (!process->snapshot && budget_affords(&stacks->budget))
        stacks_know(stacks, process, start);
    // A process is its row, the number of programs it has run (rows of processes are never
    // renumbered), and the number of times that code took the place of other code.
    uint32_t epoch = symbols_process_epoch(stacks->symbols, (pid_t)process->tgid, start, at_ns);
    uint64_t process_key =
            hash_bytes((uint64_t)process->id << 32 | process->generation, &epoch, sizeof epoch);
    uint64_t key = hash_bytes(SEED_USER + process_key, addresses, count * sizeof *addresses);
    uint32_t id = stacks_known(&stacks->stacks, key);
    if (id)
        return id;
    if (!stacks_has_room(stacks, count)) {
        stacks->dropped++;
        return 0;
    }
    id = stacks_new_id(stacks, key);
    struct stacks_pending head = {.id = id,
            .tgid = process->tgid,
            .process_key = process_key,
            .start = start,
            .at_ns = at_ns,
            .count = (uint32_t)count};
    stacks_defer(stacks, &head, addresses);
    return id;
}

static uint32_t stacks_user_frame(
        struct stacks *stacks, const struct stacks_pending *head, uint64_t address)
{
    uint64_t key = hash_bytes(SEED_ADDRESS + head->process_key, &address, sizeof address);
    uint32_t id = stacks_known(&stacks->addresses, key);
    if (id)
        return id;
    struct symbol symbol = {0};
    symbols_process_lookup_at(
            stacks->symbols, (pid_t)head->tgid, head->start, head->at_ns, address, &symbol);
    id = stacks_symbol(stacks, &symbol);
    stacks_remember(&stacks->addresses, key, id);
    return id;
}

static void stacks_store_unresolved(struct stacks *stacks, uint32_t id)
{
    static const struct symbol unresolved = {.name = "[not resolved]", .module = "[not resolved]"};
    uint32_t frame = stacks_symbol(stacks, &unresolved);
    stacks_store(stacks, id, "user", &frame, 1);
}

// The stack that waits longest. known: with its names.
static void stacks_take(struct stacks *stacks, bool known)
{
    struct stacks_pending head;
    uint32_t frames[STACKS_DEPTH_MAX];
    memcpy(&head, stacks->pending + stacks->pending_at, sizeof head);
    const uint64_t *addresses = stacks->pending + stacks->pending_at + STACKS_PENDING_WORDS;
    for (size_t i = 0; known && i < head.count; i++)
        frames[i] = stacks_user_frame(stacks, &head, stacks_call_site(addresses[i], i));
    if (known)
        stacks_store(stacks, head.id, "user", frames, head.count);
    else if (!head.told)
        stacks_store_unresolved(stacks, head.id);
    stacks->pending_at += STACKS_PENDING_WORDS + head.count;
    if (stacks->pending_at == stacks->pending_len)
        stacks->pending_at = stacks->pending_len = 0;
}

size_t stacks_resolve(struct stacks *stacks, int64_t wait_ns)
{
    int64_t end_ns = clock_monotonic_ns() + wait_ns;
    while (stacks->pending_len && budget_affords(&stacks->budget)) {
        budget_begin(&stacks->budget);
        stacks_take(stacks, true);
        budget_end(&stacks->budget);
        if (clock_monotonic_ns() >= end_ns)
            break;
    }
    return stacks->pending_len - stacks->pending_at;
}

void stacks_tell_waiting(struct stacks *stacks)
{
    struct stacks_pending head;
    budget_begin(&stacks->budget); // done in any case, but there are fewer names for it
    for (size_t at = stacks->pending_at; at < stacks->pending_len;
            at += STACKS_PENDING_WORDS + head.count) {
        memcpy(&head, stacks->pending + at, sizeof head);
        if (head.told)
            continue;
        stacks_store_unresolved(stacks, head.id);
        head.told = true;
        memcpy(stacks->pending + at, &head, sizeof head);
    }
    budget_end(&stacks->budget);
}

void stacks_finish(struct stacks *stacks)
{
    int64_t end_ns = clock_monotonic_ns() + STACKS_END_NS;
    while (stacks->pending_len)
        stacks_take(stacks, clock_monotonic_ns() < end_ns);
}

// Rows of the frames, the leaf's included; how many.
static size_t stacks_python_frames(struct stacks *stacks, const char *leaf,
        const struct pystack_frame *frames, size_t count, uint32_t ids[PYSTACK_FRAMES_MAX])
{
    size_t depth = 0;
    if (leaf)
        ids[depth++] = stacks_frame(stacks, leaf, "python", NULL, 0, -1);
    for (size_t i = 0; i < count && depth < PYSTACK_FRAMES_MAX; i++)
        ids[depth++] =
                stacks_frame(stacks, frames[i].function, frames[i].file, NULL, frames[i].line, -1);
    return depth;
}

uint32_t stacks_python(
        struct stacks *stacks, const char *leaf, const struct pystack_frame *frames, size_t count)
{
    uint32_t ids[PYSTACK_FRAMES_MAX];
    size_t depth = stacks_python_frames(stacks, leaf, frames, count, ids);
    if (!depth)
        return 0;
    uint64_t key = hash_bytes(SEED_PYTHON, ids, depth * sizeof *ids);
    uint32_t id = stacks_known(&stacks->stacks, key);
    if (id)
        return id;
    id = stacks_new_id(stacks, key);
    stacks_store(stacks, id, "python", ids, depth);
    return id;
}

uint32_t stacks_python_known(const struct stacks *stacks, uint64_t key)
{
    return stacks_known(&stacks->stacks, key);
}

uint32_t stacks_python_reserve(struct stacks *stacks, uint64_t key)
{
    return stacks_new_id(stacks, key);
}

void stacks_python_store(struct stacks *stacks, uint32_t id, const char *leaf,
        const struct pystack_frame *frames, size_t count)
{
    uint32_t ids[PYSTACK_FRAMES_MAX];
    stacks_store(stacks, id, "python", ids,
            stacks_python_frames(stacks, count ? leaf : NULL, frames, count, ids));
}

uint64_t stacks_seen(const struct stacks *stacks)
{
    return stacks->stored + stacks->dropped;
}

uint64_t stacks_dropped(const struct stacks *stacks)
{
    return stacks->dropped;
}
