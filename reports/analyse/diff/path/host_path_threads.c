// SPDX-License-Identifier: Apache-2.0
// A thread's ticks and gaps, each with the phase it fell into, its leaf and a Python stack. The
// walk of a Python stack is done from outside and fails for a third of the ticks: these take the
// stack of the nearest tick of the same phase and leaf, else of the same phase, on both sides
// alike, so that no side differs only because it walked better. Made for the threads asked.
#include <stdlib.h>
#include <string.h>

#include "common/containers/map.h"
#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/diff/path/host_path_index.h"

// The way of phases at an instant; instants come in their order, so that the stretch is near the
// last one.
static uint32_t host_chain_next(
        const struct host_path *path, uint32_t rank, int64_t at, size_t *stretch)
{
    const struct host_rank *row = &path->ranks[rank];
    if (row->stretches[*stretch].begin > at)
        *stretch = host_stretch_at(path, rank, at);
    while (*stretch + 1 < row->stretch_count && row->stretches[*stretch + 1].begin <= at)
        (*stretch)++;
    return row->stretches[*stretch].chain;
}

static void host_ticks_fill(struct host_path *path, struct host_thread *thread,
        const struct trace_thread *row, uint32_t rank)
{
    const struct trace *host = path->host;
    size_t stretch = 0;
    thread->ticks = xcalloc((size_t)row->sample_count + 1, sizeof *thread->ticks);
    for (uint32_t i = 0; i < row->sample_count; i++) {
        const struct trace_sample *sample = &host->samples[row->sample_first + i];
        if (!host_is_tick(sample))
            continue;
        struct host_tick *tick = &thread->ticks[thread->tick_count++];
        tick->at = sample->at;
        tick->cpu = sample->cpu;
        tick->chain = host_chain_next(path, rank, sample->at, &stretch);
        bool late = sample->why & UG_SAMPLE_LATE;
        tick->leaf = host_leaf_of_sample(path, sample);
        bool collects = path->leaves[tick->leaf].flags & HOST_LEAF_GC;
        tick->python =
                collects || (!late && host_stack_useful(path, sample->python)) ? sample->python : 0;
        thread->python |= tick->python != 0;
    }
}

static void host_offs_fill(struct host_path *path, struct host_thread *thread,
        const struct trace_thread *row, uint32_t rank)
{
    const struct trace *host = path->host;
    thread->offs = xcalloc((size_t)row->gap_count + 1, sizeof *thread->offs);
    int64_t covered = INT64_MIN;
    size_t stretch = 0;
    for (uint32_t i = 0; i < row->gap_count; i++) {
        const struct trace_gap *gap = &host->gaps[row->gap_first + i];
        int64_t begin = gap->out > covered ? gap->out : covered;
        if (gap->in <= begin)
            continue;
        struct host_off *off = &thread->offs[thread->off_count++];
        off->begin = begin;
        off->end = covered = gap->in;
        off->gap = row->gap_first + i;
        off->chain = host_chain_next(path, rank, begin, &stretch);
        off->leaf = host_leaf_of_stacks(path, 0, gap->user);
        off->python = host_stack_useful(path, gap->python) ? gap->python : 0;
        thread->python |= off->python != 0;
    }
}

// A CPU ticks at even distances: of 1,562 between gaps of a quiet thread 1,559 were within 1 % of
// the period. So where one was due and did not hit the thread, it was off the CPU, for less than
// the recorder's threshold: an fsync() of 80 us, say, of which the ticks around it would be given
// the time. More in a row is no short wait (a hypervisor took the CPU), and stays with the ticks.
static void host_shorts_fill(const struct host_path *path, struct host_thread *thread)
{
    enum { SHORT_MAX = 4, UNEVEN = 16 };
    int64_t period = path->host->tick_ns;
    thread->shorts = xcalloc(thread->tick_count + 1, sizeof *thread->shorts);
    size_t off = 0;
    for (size_t i = 0; period && i + 1 < thread->tick_count; i++) {
        const struct host_tick *tick = &thread->ticks[i], *next = tick + 1;
        int64_t distance;
        if (__builtin_sub_overflow(next->at, tick->at, &distance) ||
                distance > (SHORT_MAX + 2) * period)
            continue;
        int64_t periods = (distance + period / 2) / period;
        while (off < thread->off_count && thread->offs[off].end <= tick->at)
            off++;
        bool gap = off < thread->off_count && thread->offs[off].begin < next->at;
        int64_t uneven = distance > periods * period ? distance - periods * period
                                                     : periods * period - distance;
        if (gap || tick->cpu != next->cpu || periods < 2 || periods > SHORT_MAX + 1 ||
                uneven * UNEVEN > period)
            continue;
        thread->shorts[thread->short_count++] =
                (struct trace_window){.begin = tick->at + period / 2, .end = next->at - period / 2};
    }
}

// ---- stacks that were not walked ----

struct host_fill {
    struct host_path *path;
    struct host_thread *thread;
    struct map by_leaf, by_chain; // -> place in `seen`
    struct host_seen {
        int64_t at;
        uint32_t python;
    } * seen;
    size_t seen_count;
    struct host_guess { // of the pass over earlier ones
        int64_t distance;
        uint32_t python;
        bool same_leaf;
    } * guesses;          // of ticks, then of offs
    uint32_t interpreter; // its leaf
    bool back;
};

static uint64_t host_fill_key(uint32_t chain, uint64_t leaf)
{
    return (uint64_t)chain << 40 ^ leaf;
}

static void host_fill_note(
        struct host_fill *fill, uint64_t key, struct map *map, int64_t at, uint32_t python)
{
    uint32_t *place = map_put(map, key);
    if (*place == MAP_NONE) {
        *place = (uint32_t)fill->seen_count;
        vector_push(fill->seen, fill->seen_count, (struct host_seen){at, python});
    }
    fill->seen[*place] = (struct host_seen){at, python};
}

static void host_fill_one(struct host_fill *fill, size_t item, int64_t at, uint32_t chain,
        uint64_t leaf, uint32_t *python)
{
    uint64_t by_leaf = host_fill_key(chain, leaf);
    if (*python) {
        host_fill_note(fill, by_leaf, &fill->by_leaf, at, *python);
        host_fill_note(fill, chain, &fill->by_chain, at, *python);
        return;
    }
    uint32_t place = map_get(&fill->by_leaf, by_leaf);
    bool same_leaf = place != HOST_NONE;
    if (!same_leaf)
        place = map_get(&fill->by_chain, chain);
    struct host_guess guess = {INT64_MAX, 0, false};
    if (place != HOST_NONE) {
        int64_t ago = at - fill->seen[place].at;
        guess = (struct host_guess){ago < 0 ? -ago : ago, fill->seen[place].python, same_leaf};
    }
    struct host_guess *kept = &fill->guesses[item];
    bool better = guess.python &&
            (!kept->python || guess.same_leaf > kept->same_leaf ||
                    (guess.same_leaf == kept->same_leaf && guess.distance < kept->distance));
    if (!fill->back || better)
        *kept = guess;
}

// Both lists in the order of time, or against it.
static void host_fill_pass(struct host_fill *fill)
{
    struct host_thread *thread = fill->thread;
    size_t ticks = thread->tick_count, offs = thread->off_count;
    for (size_t i = 0, k = 0; i < ticks || k < offs;) {
        struct host_tick *tick = i < ticks ? &thread->ticks[fill->back ? ticks - 1 - i : i] : NULL;
        struct host_off *off = k < offs ? &thread->offs[fill->back ? offs - 1 - k : k] : NULL;
        bool take_tick =
                tick && (!off || (fill->back ? tick->at > off->begin : tick->at <= off->begin));
        if (take_tick) {
            if (!(fill->path->leaves[tick->leaf].flags & HOST_LEAF_GC))
                host_fill_one(fill, (size_t)(tick - thread->ticks), tick->at, tick->chain,
                        tick->leaf, &tick->python);
            else if (tick->python) // a tick in the interpreter next to it may well be the
                                   // collector's too
                host_fill_note(fill, host_fill_key(tick->chain, fill->interpreter), &fill->by_leaf,
                        tick->at, tick->python);
            i++;
        } else {
            host_fill_one(fill, ticks + (size_t)(off - thread->offs), off->begin, off->chain,
                    (uint64_t)off->leaf | UINT64_C(1) << 36, &off->python);
            k++;
        }
    }
}

static void host_fill_stacks(struct host_path *path, struct host_thread *thread)
{
    size_t count = thread->tick_count + thread->off_count;
    struct host_fill fill = {.path = path, .thread = thread};
    fill.guesses = xcalloc(count + 1, sizeof *fill.guesses);
    fill.interpreter = host_leaf_named(path, COST_FUNCTION, "Python interpreter", "[python]");
    uint32_t collector = host_leaf_collector(path);
    host_fill_pass(&fill);
    map_clear(&fill.by_leaf);
    map_clear(&fill.by_chain);
    fill.back = true;
    host_fill_pass(&fill);
    for (size_t i = 0; i < count; i++) {
        uint32_t *python = i < thread->tick_count ? &thread->ticks[i].python
                                                  : &thread->offs[i - thread->tick_count].python;
        if (*python || !fill.guesses[i].python)
            continue;
        *python = fill.guesses[i].python;
        if (i < thread->tick_count && marks_has(path->host->stacks[*python].marks, MARK_GC))
            thread->ticks[i].leaf = collector;
    }
    map_free(&fill.by_leaf);
    map_free(&fill.by_chain);
    free(fill.seen);
    free(fill.guesses);
}

static void host_pool(struct host_path *path, struct host_thread *thread)
{
    thread->chain_count = (uint32_t)path->chain_count;
    thread->pool_first = xcalloc((size_t)thread->chain_count + 2, sizeof *thread->pool_first);
    thread->pool = xcalloc(thread->tick_count + 1, sizeof *thread->pool);
    uint32_t *at = xcalloc((size_t)thread->chain_count + 1, sizeof *at);
    for (size_t i = 0; i < thread->tick_count; i++)
        thread->pool_first[thread->ticks[i].chain + 1]++;
    for (uint32_t i = 0; i < thread->chain_count; i++) {
        thread->pool_first[i + 1] += thread->pool_first[i];
        at[i] = thread->pool_first[i];
    }
    for (size_t i = 0; i < thread->tick_count; i++)
        thread->pool[at[thread->ticks[i].chain]++] = (uint32_t)i;
    free(at);
}

struct host_thread *host_thread_get(struct host_path *path, uint32_t index, uint32_t rank)
{
    if (path->threads[index])
        return path->threads[index];
    struct host_thread *thread = xcalloc(1, sizeof *thread);
    path->threads[index] = thread;
    const struct trace_thread *row = &path->host->threads[index];
    host_ticks_fill(path, thread, row, rank);
    host_offs_fill(path, thread, row, rank);
    host_shorts_fill(path, thread);
    if (thread->python)
        host_fill_stacks(path, thread);
    host_pool(path, thread);
    return thread;
}

void host_thread_free(struct host_thread *thread)
{
    if (!thread)
        return;
    free(thread->ticks);
    free(thread->offs);
    free(thread->shorts);
    free(thread->pool);
    free(thread->pool_first);
    free(thread);
}

// ---- asking ----

size_t host_off_from(const struct host_thread *thread, int64_t at)
{
    return search_first(middle, thread->off_count, thread->offs[middle].end > at);
}

size_t host_tick_from(const struct host_thread *thread, int64_t at)
{
    return search_first(middle, thread->tick_count, thread->ticks[middle].at >= at);
}

size_t host_ticks_near(
        const struct host_thread *thread, uint32_t chain, int64_t at, uint32_t ret[HOST_NEAREST])
{
    if (chain >= thread->chain_count)
        return 0;
    uint32_t first = thread->pool_first[chain], last = thread->pool_first[chain + 1];
    uint32_t low = (uint32_t)search_between(
            middle, first, last, thread->ticks[thread->pool[middle]].at >= at);
    uint32_t left = low, right = low; // [first, left) and [right, last) are left to take
    size_t count = 0;
    while (count < HOST_NEAREST && (left > first || right < last)) {
        bool before = left > first &&
                (right == last ||
                        at - thread->ticks[thread->pool[left - 1]].at <=
                                thread->ticks[thread->pool[right]].at - at);
        ret[count++] = before ? thread->pool[--left] : thread->pool[right++];
    }
    return count;
}

uint32_t host_python_near(const struct host_thread *thread, uint32_t chain, int64_t at)
{
    uint32_t near[HOST_NEAREST];
    size_t count = host_ticks_near(thread, chain, at, near);
    for (size_t i = 0; i < count; i++)
        if (thread->ticks[near[i]].python)
            return thread->ticks[near[i]].python;
    size_t off = host_off_from(thread, at);
    if (off < thread->off_count && thread->offs[off].chain == chain && thread->offs[off].python)
        return thread->offs[off].python;
    if (off > 0 && thread->offs[off - 1].chain == chain)
        return thread->offs[off - 1].python;
    return 0;
}

// ---- all threads ----

// "thread pt_autograd" of "pt_autograd_0": numbers and versions are those of a launch.
static uint32_t host_thread_place(struct host_path *path, uint32_t thread)
{
    const char *comm = path->host->threads[thread].comm;
    size_t len = comm ? strlen(comm) : 0;
    while (len > 1 && strchr("0123456789._-:#/ ", comm[len - 1]))
        len--;
    char *name = xasprintf("thread %.*s", len ? (int)len : 1, len ? comm : "?");
    uint32_t node =
            cost_tree_child(path->tree, 0, &(struct cost_key){.kind = COST_PHASE, .name = name});
    free(name);
    return node;
}

static int64_t host_thread_cpu(struct host_path *path, uint32_t index, uint32_t window)
{
    uint32_t rank = path->rank_of[path->host->threads[index].process];
    bool steps = rank != HOST_NONE && path->trace->ranks[rank].thread == index;
    bool known = path->threads[index];
    struct host_thread *thread = host_thread_get(path, index, rank == HOST_NONE ? 0 : rank);
    uint32_t other = steps ? HOST_NONE : host_thread_place(path, index);
    int64_t tick_ns = path->host->tick_ns;
    for (size_t i = 0; i < thread->tick_count; i++) {
        const struct host_tick *tick = &thread->ticks[i];
        bool collects = path->leaves[tick->leaf].flags & HOST_LEAF_GC;
        uint32_t place = !steps ? other
                : collects      ? host_place_collector(path, tick->chain)
                                : host_place(path, tick->chain, tick->python);
        cost_tree_add(path->tree, host_node(path, place, tick->leaf, COST_HOST_RUN), window,
                tick_ns, tick_ns, 1);
    }
    int64_t ns = tick_ns * (int64_t)thread->tick_count;
    if (!known) { // threads of a launch may be thousands, and this is all that they are asked
        host_thread_free(thread);
        path->threads[index] = NULL;
    }
    return ns;
}

// Ticks that are in no turn of the launch: most are its start-up.
static int64_t host_outside_cpu(struct host_path *path, uint32_t window)
{
    const struct trace *host = path->host;
    int64_t tick_ns = host->tick_ns, sum = 0;
    for (size_t i = 0; i < host->outside_count; i++) {
        const struct trace_sample *sample = &host->outside[i];
        if (!trace_is_target(host, sample->thread) || !host_is_tick(sample))
            continue;
        uint32_t rank = path->rank_of[host->threads[sample->thread].process];
        bool steps = rank != HOST_NONE && path->trace->ranks[rank].thread == sample->thread;
        uint32_t leaf = host_leaf_of_sample(path, sample);
        uint32_t python = sample->why & UG_SAMPLE_LATE ? 0 : sample->python;
        bool collects = path->leaves[leaf].flags & HOST_LEAF_GC;
        uint32_t place = !steps ? host_thread_place(path, sample->thread)
                : collects      ? host_place_collector(path, HOST_CHAIN_BETWEEN)
                                : host_place(path, HOST_CHAIN_BETWEEN, python);
        cost_tree_add(path->tree, host_node(path, place, leaf, COST_HOST_RUN), window, tick_ns,
                tick_ns, 1);
        sum += tick_ns;
    }
    return sum;
}

int64_t host_path_cpu(struct host_path *path, uint32_t window)
{
    const struct trace *host = path->host;
    int64_t sum = 0;
    if (!host || host->tick_ns <= 0)
        return 0;
    // Else it counts as a part of the step; here it is what a launch does before its first one and
    // behind its last one, too.
    path->chains[HOST_CHAIN_BETWEEN].node = cost_tree_child(
            path->tree, 0, &(struct cost_key){.kind = COST_PHASE, .name = "outside of steps"});
    for (uint32_t i = 0; i < host->thread_count; i++)
        if (trace_is_target(host, i) && host->threads[i].sample_count)
            sum += host_thread_cpu(path, i, window);
    return sum + host_outside_cpu(path, window);
}
