// SPDX-License-Identifier: Apache-2.0
// Stacks by content.
#include "tracer/record/stacks.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/strings.h"
#include "tracer/record/idmap.h"

enum {
    STACKS_MAX = 1 << 18,    // distinct stacks of a recording: 6 MB here
    STACKS_FRAMES_MAX = 1 << 18,
    STACKS_ADDRESSES_MAX = 1 << 18, // distinct (process, address): 6 MB; beyond it each is looked up again
    STACKS_PENDING_MAX = 1 << 17,   // words that wait for their symbols: 1 MB
    STACKS_DEPTH_MAX = 320,
    STACKS_TICK_NS = 10000000,      // symbols.h: start is in clock ticks
};

enum stacks_seed { SEED_KERNEL = 1, SEED_USER, SEED_PYTHON, SEED_FRAME, SEED_ADDRESS };

// What waits: these words, then `count` addresses.
struct stacks_pending {
    uint32_t id, tgid;
    uint64_t process_key, start;
    uint64_t count;
};
enum { STACKS_PENDING_WORDS = sizeof(struct stacks_pending) / sizeof(uint64_t) };

struct stacks {
    struct writer *writer;
    struct symbols *symbols;
    struct idmap stacks, frames, addresses;
    uint64_t *pending;
    size_t pending_len, pending_at, pending_capacity;
    uint64_t dropped, frames_dropped;
};

struct stacks *stacks_new(struct writer *writer, struct symbols *symbols)
{
    struct stacks *stacks = xcalloc(1, sizeof *stacks);
    stacks->writer = writer;
    stacks->symbols = symbols;
    idmap_init(&stacks->stacks, STACKS_MAX);
    idmap_init(&stacks->frames, STACKS_FRAMES_MAX);
    idmap_init(&stacks->addresses, STACKS_ADDRESSES_MAX);
    return stacks;
}

void stacks_free(struct stacks *stacks)
{
    if (!stacks)
        return;
    idmap_free(&stacks->stacks);
    idmap_free(&stacks->frames);
    idmap_free(&stacks->addresses);
    free(stacks->pending);
    free(stacks);
}

static uint64_t stacks_hash_text(uint64_t hash, const char *text)
{
    return text ? idmap_hash(hash, text, strlen(text)) : hash * 31 + 1;
}

static uint32_t stacks_frame(struct stacks *stacks, const char *name, const char *module, const char *build_id,
                             int64_t line, int64_t offset)
{
    uint64_t numbers[2] = {(uint64_t)line, (uint64_t)offset};
    uint64_t key = stacks_hash_text(SEED_FRAME, name);
    key = stacks_hash_text(stacks_hash_text(key, module), build_id);
    key = idmap_hash(key, numbers, sizeof numbers);
    uint32_t id = idmap_get(&stacks->frames, key);
    if (id)
        return id;
    id = writer_next_id(stacks->writer, WRITER_FRAME);
    if (!idmap_put(&stacks->frames, key, id))
        stacks->frames_dropped++; // stored again and again from here on: larger, not wrong
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

static void stacks_store(struct stacks *stacks, uint32_t id, const char *kind, const uint32_t *frames, size_t count)
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

// A number for a content that was not seen before; 0: no room.
static uint32_t stacks_new_id(struct stacks *stacks, uint64_t key)
{
    uint32_t id = writer_next_id(stacks->writer, WRITER_STACK);
    if (idmap_put(&stacks->stacks, key, id))
        return id;
    stacks->dropped++;
    return 0;
}

static uint32_t stacks_symbol(struct stacks *stacks, const struct symbol *symbol)
{
    return stacks_frame(stacks, symbol->name, symbol->module, symbol->build_id, 0, (int64_t)symbol->offset);
}

// The address of a frame that is not the leaf is where it returns to, which may belong to the next function.
static uint64_t stacks_call_site(uint64_t address, size_t depth)
{
    return address - (depth > 0);
}

static uint32_t stacks_kernel_frame(struct stacks *stacks, uint64_t address)
{
    uint64_t key = idmap_hash(SEED_ADDRESS, &address, sizeof address);
    uint32_t id = idmap_get(&stacks->addresses, key);
    if (id)
        return id;
    struct symbol symbol = {0};
    symbols_kernel(stacks->symbols, address, &symbol);
    id = stacks_symbol(stacks, &symbol);
    idmap_put(&stacks->addresses, key, id);
    return id;
}

uint32_t stacks_kernel(struct stacks *stacks, const __u64 *addresses, size_t count)
{
    uint32_t frames[STACKS_DEPTH_MAX];
    if (!count || count > STACKS_DEPTH_MAX)
        return 0;
    uint64_t key = idmap_hash(SEED_KERNEL, addresses, count * sizeof *addresses);
    uint32_t id = idmap_get(&stacks->stacks, key);
    if (id || !(id = stacks_new_id(stacks, key)))
        return id;
    for (size_t i = 0; i < count; i++)
        frames[i] = stacks_kernel_frame(stacks, stacks_call_site(addresses[i], i));
    stacks_store(stacks, id, "kernel", frames, count);
    return id;
}

// Keeps the addresses until there is time for their symbols. False: no room.
static bool stacks_defer(struct stacks *stacks, const struct stacks_pending *head, const __u64 *addresses)
{
    size_t words = STACKS_PENDING_WORDS + head->count;
    if (stacks->pending_at == stacks->pending_len)
        stacks->pending_at = stacks->pending_len = 0;
    if (stacks->pending_len + words > STACKS_PENDING_MAX)
        return false;
    if (stacks->pending_len + words > stacks->pending_capacity) {
        stacks->pending_capacity = stacks->pending_capacity ? stacks->pending_capacity * 2 : 4096;
        stacks->pending = xrealloc(stacks->pending, stacks->pending_capacity * sizeof *stacks->pending);
    }
    memcpy(stacks->pending + stacks->pending_len, head, sizeof *head);
    memcpy(stacks->pending + stacks->pending_len + STACKS_PENDING_WORDS, addresses,
           head->count * sizeof *addresses);
    stacks->pending_len += words;
    return true;
}

uint32_t stacks_user(struct stacks *stacks, struct task_process *process, const __u64 *addresses, size_t count)
{
    if (!count || count > STACKS_DEPTH_MAX)
        return 0;
    // A process is its pid and the number of programs it has run; rows of processes are never renumbered.
    uint64_t process_key = (uint64_t)process->id << 32 | process->generation;
    uint64_t key = idmap_hash(SEED_USER + process_key, addresses, count * sizeof *addresses);
    uint32_t id = idmap_get(&stacks->stacks, key);
    if (id || !(id = stacks_new_id(stacks, key)))
        return id;
    if (!process->snapshot) {
        process->snapshot = true;
        symbols_process_snapshot(stacks->symbols, (pid_t)process->tgid, NULL);
    }
    struct stacks_pending head = {.id = id,
                                  .tgid = process->tgid,
                                  .process_key = process_key,
                                  .start = process->start_ns / STACKS_TICK_NS,
                                  .count = count};
    while (!stacks_defer(stacks, &head, addresses))
        stacks_resolve(stacks, INT64_MAX); // 1 MB of new stacks within a tick
    return id;
}

static uint32_t stacks_user_frame(struct stacks *stacks, const struct stacks_pending *head, uint64_t address)
{
    uint64_t key = idmap_hash(SEED_ADDRESS + head->process_key, &address, sizeof address);
    uint32_t id = idmap_get(&stacks->addresses, key);
    if (id)
        return id;
    struct symbol symbol = {0};
    symbols_process_lookup_at(stacks->symbols, (pid_t)head->tgid, head->start, address, &symbol);
    id = stacks_symbol(stacks, &symbol);
    idmap_put(&stacks->addresses, key, id);
    return id;
}

size_t stacks_resolve(struct stacks *stacks, int64_t budget_ns)
{
    int64_t end_ns = budget_ns == INT64_MAX ? INT64_MAX : clock_monotonic_ns() + budget_ns;
    while (stacks->pending_at < stacks->pending_len) {
        struct stacks_pending head;
        uint32_t frames[STACKS_DEPTH_MAX];
        memcpy(&head, stacks->pending + stacks->pending_at, sizeof head);
        const uint64_t *addresses = stacks->pending + stacks->pending_at + STACKS_PENDING_WORDS;
        for (size_t i = 0; i < head.count; i++)
            frames[i] = stacks_user_frame(stacks, &head, stacks_call_site(addresses[i], i));
        stacks_store(stacks, head.id, "user", frames, head.count);
        stacks->pending_at += STACKS_PENDING_WORDS + head.count;
        if (clock_monotonic_ns() >= end_ns)
            break;
    }
    if (stacks->pending_at == stacks->pending_len)
        stacks->pending_at = stacks->pending_len = 0;
    return stacks->pending_len - stacks->pending_at;
}

uint32_t stacks_python(struct stacks *stacks, const char *leaf, const struct pystack_frame *frames, size_t count)
{
    uint32_t ids[PYSTACK_FRAMES_MAX + 1];
    size_t depth = 0;
    if (leaf)
        ids[depth++] = stacks_frame(stacks, leaf, "python", NULL, 0, -1);
    for (size_t i = 0; i < count && depth < PYSTACK_FRAMES_MAX; i++)
        ids[depth++] = stacks_frame(stacks, frames[i].function, frames[i].file, NULL, frames[i].line, -1);
    if (!depth)
        return 0;
    uint64_t key = idmap_hash(SEED_PYTHON, ids, depth * sizeof *ids);
    uint32_t id = idmap_get(&stacks->stacks, key);
    if (id || !(id = stacks_new_id(stacks, key)))
        return id;
    stacks_store(stacks, id, "python", ids, depth);
    return id;
}

uint64_t stacks_seen(const struct stacks *stacks)
{
    return stacks->stacks.count + stacks->dropped;
}

uint64_t stacks_dropped(const struct stacks *stacks)
{
    return stacks->dropped;
}
