// SPDX-License-Identifier: Apache-2.0
// The host's critical path over hand-made traces: a story a case, and a seeded generator of damaged
// ones for what must hold everywhere: the rows of a window sum to its length, to the nanosecond.
// Times are microseconds in the stories.
#include <stdio.h>
#include <stdlib.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/diff/path/host_path.h"
#include "reports/analyse/stalls/parts.h"
#include "reports/analyse/trace/trace_inside.h"
#include "tests/unit/runner.h"

enum { US = 1000, WORLD_TICK_US = 1000 };

struct world {
    struct launch_trace launch;
    struct trace *host;
    struct work work;
    struct cost_tree *tree;
    struct host_path *path;
    struct launch_rank ranks[4];
    struct launch_step steps[512];
    struct launch_phase phases[1024];
    struct launch_call calls[64];
    uint32_t process, thread; // of rank 0
};

static uint32_t world_process(struct world *world, uint32_t parent, enum trace_kind kind,
        const char *comm, const char *cmdline)
{
    struct trace *host = world->host;
    struct trace_process *row = vector_add(host->processes, host->process_count);
    *row = (struct trace_process){.id = (int64_t)host->process_count,
            .comm = comm,
            .cmdline = cmdline,
            .kind = kind,
            .tgid = 100 + (int32_t)host->process_count,
            .parent = parent,
            .leader = TRACE_NONE,
            .python = true,
            .python_read_ns = INT64_MAX,
            .exit_code = -1};
    return (uint32_t)host->process_count - 1;
}

static uint32_t world_thread(struct world *world, uint32_t process, const char *comm)
{
    struct trace *host = world->host;
    bool main = host->processes[process].leader == TRACE_NONE;
    struct trace_thread *row = vector_add(host->threads, host->thread_count);
    *row = (struct trace_thread){.id = (int64_t)host->thread_count,
            .comm = comm,
            .process = process,
            .run_ns = -1,
            .main = main,
            .tid = 1000 + (int32_t)host->thread_count};
    if (main)
        host->processes[process].leader = (uint32_t)host->thread_count - 1;
    return (uint32_t)host->thread_count - 1;
}

// "name@module;name@module", leaf first. NULL: 0.
static uint32_t world_stack(struct world *world, char kind, const char *text)
{
    struct trace *host = world->host;
    if (!text)
        return 0;
    struct trace_stack stack = {.first = (uint32_t)host->stack_frame_count};
    char *copy = xstrdup(text), *rest = copy, *word;
    while ((word = strsep(&rest, ";"))) {
        char *module = strchr(word, '@');
        if (module)
            *module++ = '\0';
        struct trace_frame *frame = vector_add(host->frames, host->frame_count);
        frame->name = arena_copy(host->arena, word);
        frame->module = arena_copy(host->arena, module);
        frame->kind = kind;
        uint32_t *slot = vector_add(host->stack_frames, host->stack_frame_count);
        *slot = (uint32_t)host->frame_count - 1;
        stack.count++;
        stack.marks = marks_join(stack.marks, marks_of_function(kind, frame->name, frame->module));
    }
    free(copy);
    struct trace_stack *row = vector_add(host->stacks, host->stack_count);
    *row = stack;
    return (uint32_t)host->stack_count - 1;
}

static struct trace_sample *world_tick(
        struct world *world, uint32_t thread, int64_t at_us, const char *user, const char *python)
{
    struct trace *host = world->host;
    uint32_t user_stack = world_stack(world, 'u', user),
             python_stack = world_stack(world, 'p', python);
    struct trace_sample *row = vector_add(host->samples, host->sample_count);
    *row = (struct trace_sample){.at = at_us * US,
            .thread = thread,
            .user = user_stack,
            .python = python_stack,
            .why = UG_SAMPLE_TARGET | UG_SAMPLE_USER};
    return row;
}

// Asleep from out to in; waker TRACE_NONE: a timer or nobody.
static struct trace_gap *world_gap(struct world *world, uint32_t thread, int64_t out_us,
        int64_t in_us, const char *kernel, const char *user, const char *python, uint32_t waker)
{
    struct trace *host = world->host;
    uint32_t stacks[] = {world_stack(world, 'k', kernel), world_stack(world, 'u', user),
            world_stack(world, 'p', python)};
    struct trace_gap *row = vector_add(host->gaps, host->gap_count);
    *row = (struct trace_gap){.out = out_us * US,
            .waking = in_us * US,
            .in = in_us * US,
            .thread = thread,
            .state = 1,
            .kernel = stacks[0],
            .user = stacks[1],
            .python = stacks[2],
            .waker = waker,
            .next = TRACE_NONE,
            .before = TRACE_NONE,
            .owner = TRACE_NONE,
            .syscall = -1,
            .cpu_in = -1,
            .next_prio = -1,
            .before_prio = -1};
    if (waker == TRACE_NONE)
        row->flags = UG_GAP_WAKER_IRQ;
    return row;
}

static void world_step(struct world *world, uint32_t rank, int64_t begin_us, int64_t end_us)
{
    size_t at = world->launch.step_count++;
    world->steps[at] = (struct launch_step){begin_us * US, end_us * US, rank, (uint32_t)at};
}

static void world_phase(
        struct world *world, uint32_t rank, int64_t begin_us, int64_t end_us, const char *name)
{
    struct launch_rank *row = &world->ranks[rank];
    if (!row->phase_count)
        row->phase_first = (uint32_t)world->launch.phase_count;
    row->phase_count++;
    world->phases[world->launch.phase_count++] =
            (struct launch_phase){begin_us * US, end_us * US, name, rank, 0};
}

static uint32_t world_rank(struct world *world, int32_t number, uint32_t process, uint32_t thread)
{
    world->ranks[world->launch.rank_count] =
            (struct launch_rank){.rank = number, .process = process, .thread = thread};
    return (uint32_t)world->launch.rank_count++;
}

static void world_open(struct world *world)
{
    *world = (struct world){.launch = {.pair = 0, .has_steps = true}};
    struct arena *arena = arena_new();
    world->host = xcalloc(1, sizeof *world->host);
    *world->host =
            (struct trace){.arena = arena, .threshold_ns = 1000000, .tick_ns = WORLD_TICK_US * US};
    struct trace_window *window = vector_add(world->host->windows, world->host->window_count);
    *window = (struct trace_window){0, INT64_C(1) << 50};
    world->host->window_ns = INT64_C(1) << 50;
    const char **text = vector_add(world->host->texts, world->host->text_count);
    *text = "";
    vector_add(world->host->stacks, world->host->stack_count);
    world->launch.arena = arena;
    world->launch.ranks = world->ranks;
    world->launch.steps = world->steps;
    world->launch.phases = world->phases;
    world->launch.calls = world->calls;
    world->process = world_process(world, TRACE_NONE, TRACE_TARGET, "python",
            "/usr/bin/python3 /home/me/job/train.py --steps 3");
    world->thread = world_thread(world, world->process, "python");
    world_rank(world, 0, world->process, world->thread);
}

static void world_begin(struct world *world)
{
    trace_index(world->host);
    work_init(&world->work, world->host);
    work_find(&world->work);
    world->launch.host = world->host;
    world->launch.host_work = &world->work;
    world->tree = cost_tree_new();
    world->path = host_path_new(&world->launch, world->tree);
}

static void world_close(struct world *world)
{
    host_path_free(world->path);
    cost_tree_free(world->tree);
    work_free(&world->work);
    struct arena *arena = world->host->arena;
    trace_free(world->host);
    arena_free(arena);
}

static uint32_t world_add(struct world *world, int64_t begin_us, int64_t end_us)
{
    struct cost_window row = {.wall_ns = (end_us - begin_us) * US, .steps = 1, .couple = -1};
    uint32_t window = cost_tree_window(world->tree, &row);
    host_path_add(world->path, 0, begin_us * US, end_us * US, COST_HOST_RUN, window);
    return window;
}

static int64_t window_ns(const struct cost_tree *tree, uint32_t window)
{
    int64_t sum = 0;
    for (size_t i = 0; i < tree->row_count; i++)
        if (tree->rows[i].window == window)
            sum += tree->rows[i].ns;
    return sum;
}

// Of all leaves of this name, in us. class: COST_CLASS_COUNT for any.
static int64_t leaf_us(const struct world *world, const char *name, enum cost_class class)
{
    int64_t sum = 0;
    for (size_t i = 0; i < world->tree->node_count; i++) {
        const struct cost_node *node = &world->tree->nodes[i];
        if (node->kind >= COST_KERNEL && !strcmp(node->name, name) &&
                (class == COST_CLASS_COUNT || node->class == class))
            sum += node->ns;
    }
    return sum / US;
}

static const struct cost_node *leaf_node(const struct world *world, const char *name)
{
    for (size_t i = 0; i < world->tree->node_count; i++)
        if (world->tree->nodes[i].kind >= COST_KERNEL && !strcmp(world->tree->nodes[i].name, name))
            return &world->tree->nodes[i];
    return NULL;
}

// "forward > Net.forward > Linear.forward", without the leaf.
static const char *place_text(const struct world *world, uint32_t node, char *buf, size_t size)
{
    const char *names[64];
    int count = 0;
    for (; node && node != COST_NONE && count < 64; node = world->tree->nodes[node].parent)
        names[count++] = world->tree->nodes[node].name;
    size_t len = 0;
    buf[0] = '\0';
    while (count-- > 0 && len < size)
        len += (size_t)snprintf(buf + len, size - len, "%s%s", names[count], count ? " > " : "");
    return buf;
}

static const char *leaf_place(const struct world *world, const char *name, char *buf, size_t size)
{
    const struct cost_node *node = leaf_node(world, name);
    return node ? place_text(world, node->parent, buf, size) : "(no such leaf)";
}

static const char futex_kernel[] =
        "futex_wait_queue@kernel;futex_wait@kernel;do_futex@kernel;__x64_sys_futex@kernel";
static const char sleep_kernel[] =
        "do_nanosleep@kernel;hrtimer_nanosleep@kernel;__x64_sys_clock_nanosleep@kernel";

TEST(ticks_share_a_stretch_half_way)
{
    struct world world;
    world_open(&world);
    world_tick(&world, world.thread, 1000, "alpha@libx.so", NULL);
    world_tick(&world, world.thread, 2000, "beta@libx.so", NULL);
    // whose ticks lie as they lie
    world_tick(&world, world.thread, 4000, "gamma@libx.so", NULL)->cpu = 1;
    world_begin(&world);
    uint32_t window = world_add(&world, 0, 5000);
    CHECK_INT(leaf_us(&world, "alpha", COST_HOST_RUN), 1500);
    CHECK_INT(leaf_us(&world, "beta", COST_HOST_RUN), 1500);
    CHECK_INT(leaf_us(&world, "gamma", COST_HOST_RUN), 2000);
    CHECK_INT(window_ns(world.tree, window), 5000 * US);
    CHECK_STR(leaf_node(&world, "alpha")->module, "libx.so");
    world_close(&world);
}

TEST(a_tick_that_was_due_and_did_not_come_is_a_short_wait)
{
    static const char waits[] = "waits below the recorder's threshold";
    struct world world;
    world_open(&world);
    world_phase(&world, 0, 0, 3000, "forward");
    world_tick(&world, world.thread, 1000, "alpha@libx.so", NULL);
    world_tick(&world, world.thread, 2000, "alpha@libx.so", NULL);
    // one is missing, half of it in the phase
    world_tick(&world, world.thread, 4030, "beta@libx.so", NULL);
    // uneven: nothing is known of what was before
    world_tick(&world, world.thread, 5600, "fsync@libc.so.6", NULL)->kernel = world_stack(&world,
            'k',
            "ext4_sync_file@kernel;__x64_sys_fsync@kernel;do_syscall_64@kernel;entry_SYSCALL_64@kernel");
    world_tick(&world, world.thread, 13600, "beta@libx.so", NULL); // too many for short waits
    world_tick(&world, world.thread, 14600, "beta@libx.so", NULL);
    // a gap that is known explains it
    world_gap(&world, world.thread, 15000, 16000, sleep_kernel, NULL, NULL, TRACE_NONE);
    world_tick(&world, world.thread, 16600, "beta@libx.so", NULL);
    world_begin(&world);
    uint32_t window = world_add(&world, 0, 17000);
    // in the phase, which has no system call
    CHECK_INT(leaf_us(&world, waits, COST_HOST_STALLED), 500);
    CHECK_INT(leaf_us(&world, "waits below the recorder's threshold, in fsync", COST_HOST_STALLED),
            530);
    CHECK_INT(leaf_us(&world, "alpha", COST_HOST_RUN), 2500);
    CHECK_INT(leaf_us(&world, "beta", COST_HOST_RUN) + leaf_us(&world, "fsync", COST_HOST_RUN),
            17000 - 1000 - 1030 - 2500);
    CHECK_INT(window_ns(world.tree, window), 17000 * US);
    world_close(&world);
}

TEST(phases_cut_and_a_phase_without_a_tick_borrows)
{
    struct world world;
    char buf[256];
    world_open(&world);
    for (int64_t step = 0; step < 2; step++) {
        world_step(&world, 0, step * 10000, step * 10000 + 10000);
        world_phase(&world, 0, step * 10000 + 1000, step * 10000 + 4000, "forward");
        world_phase(&world, 0, step * 10000 + 2000, step * 10000 + 3000, "attention");
        world_phase(&world, 0, step * 10000 + 4000, step * 10000 + 9000, "backward");
    }
    world_tick(&world, world.thread, 500, "between@libx.so", NULL);
    world_tick(&world, world.thread, 1500, "linear@libx.so", NULL);
    world_tick(&world, world.thread, 2500, "softmax@libx.so", NULL);
    world_tick(&world, world.thread, 5000, "grad@libx.so", NULL);
    world_begin(&world);
    uint32_t window = world_add(&world, 10000, 20000);
    CHECK_INT(leaf_us(&world, "linear", COST_HOST_RUN), 2000);
    CHECK_INT(leaf_us(&world, "softmax", COST_HOST_RUN), 1000);
    CHECK_INT(leaf_us(&world, "grad", COST_HOST_RUN), 5000);
    CHECK_INT(leaf_us(&world, "between", COST_HOST_RUN), 2000);
    CHECK_STR(leaf_place(&world, "softmax", buf, sizeof buf), "forward > attention");
    CHECK_STR(leaf_place(&world, "between", buf, sizeof buf), "step");
    CHECK_INT(window_ns(world.tree, window), 10000 * US);
    world_close(&world);
}

TEST(a_stack_not_walked_comes_from_the_same_phase_and_leaf)
{
    struct world world;
    char buf[256];
    world_open(&world);
    world_step(&world, 0, 0, 10000);
    world_phase(&world, 0, 0, 5000, "forward");
    world_phase(&world, 0, 5000, 10000, "backward");
    world_tick(&world, world.thread, 1000, "gemm@libmkl.so",
            "Linear.forward@/x/lib/python3.11/site-packages/torch/nn/modules/linear.py");
    world_tick(&world, world.thread, 2000, "relu@libt.so",
            "ReLU.forward@/x/lib/python3.11/site-packages/torch/nn/modules/activation.py");
    world_tick(&world, world.thread, 2500, "gemm@libmkl.so", NULL);
    world_tick(&world, world.thread, 6000, "gemm@libmkl.so", NULL);
    world_tick(&world, world.thread, 7000, "other@libt.so",
            "backward@/x/site-packages/torch/autograd/__init__.py");
    // A late stack is another function's.
    world_tick(&world, world.thread, 9500, "late@libt.so",
            "Adam.step@/x/site-packages/torch/optim/adam.py")
            ->why |= UG_SAMPLE_LATE;
    world_begin(&world);
    world_add(&world, 0, 5000);
    CHECK_INT(leaf_us(&world, "gemm", COST_HOST_RUN), 1500 + 2750);
    CHECK_STR(leaf_place(&world, "gemm", buf, sizeof buf), "forward > Linear.forward");
    CHECK_STR(world.tree->nodes[leaf_node(&world, "gemm")->parent].module,
            "torch/nn/modules/linear.py");
    world_add(&world, 5000, 10000);
    CHECK_STR(leaf_place(&world, "late", buf, sizeof buf), "backward > backward");
    CHECK_INT(leaf_us(&world, "gemm", COST_HOST_RUN), 1500 + 2750 + 1500);
    world_close(&world);
}

static int64_t elsewhere_ticks(const struct world *world, const char *name, const char *module)
{
    for (size_t i = 0; i < world->tree->elsewhere_count; i++)
        if (!strcmp(world->tree->elsewhere[i].name, name) &&
                !strcmp(world->tree->elsewhere[i].module, module))
            return world->tree->elsewhere[i].ticks;
    return 0;
}

TEST(functions_outside_of_the_windows)
{
    static const char before[] =
            "walk@/home/me/job/loop.py;walk@/home/me/job/loop.py;load@/home/me/job/loop.py";
    static const char first[] = "load@/home/me/job/loop.py;on_first@/home/me/job/loop.py";
    for (uint32_t windows = 0; windows < 2; windows++) {
        struct world world;
        struct launch_window window = {
                .begin = 1500 * US, .end = 3500 * US, .steps = 1, .couple = -1};
        world_open(&world);
        uint32_t loader = world_thread(&world, world.process, "loader");
        world_tick(&world, world.thread, 1000, "parse@libx.so", before);
        world_tick(&world, world.thread, 2000, "parse@libx.so", first);
        world_tick(&world, world.thread, 4000, "parse@libx.so", first)->why |= UG_SAMPLE_LATE;
        // taken out of turn
        world_tick(&world, world.thread, 5000, "parse@libx.so", first)->why = UG_SAMPLE_OWNER;
        world_tick(&world, world.thread, 6000, "parse@libx.so", NULL);
        world_tick(&world, loader, 3000, "parse@libx.so", first); // beside the window
        world_tick(&world, loader, 3500, "parse@libx.so", before);
        world.launch.windows = &window;
        world.launch.window_count = world.ranks[0].window_count = windows;
        world_begin(&world);
        // not in the launch's turns
        struct trace_sample *early = vector_add(world.host->outside, world.host->outside_count);
        *early = world.host->samples[world.host->threads[world.thread].sample_first];
        early->at = 500 * US;
        host_path_elsewhere(world.path);
        // without one nobody knows what is outside
        CHECK_INT(world.tree->elsewhere_count, 3 * windows);
        CHECK_INT(elsewhere_ticks(&world, "parse", "libx.so"), 5 * windows);
        CHECK_INT(elsewhere_ticks(&world, "load", "loop.py"), 3 * windows);
        // that it called itself counts once
        CHECK_INT(elsewhere_ticks(&world, "walk", "loop.py"), 3 * windows);
        world_close(&world);
    }
}

TEST(nothing_known_is_idle)
{
    struct world world;
    world_open(&world);
    world_gap(&world, world.thread, 2000, 3000, sleep_kernel, NULL, NULL, TRACE_NONE);
    world_begin(&world);
    uint32_t window = world_add(&world, 0, 10000);
    CHECK_INT(leaf_us(&world, "not sampled", COST_IDLE), 9000);
    CHECK_INT(leaf_us(&world, "sleep", COST_HOST_STALLED), 1000);
    CHECK_INT(window_ns(world.tree, window), 10000 * US);
    host_path_free(world.path);
    world.launch.host = NULL;
    world.launch.host_work = NULL;
    world.path = host_path_new(&world.launch, world.tree);
    window = world_add(&world, 0, 777);
    CHECK_INT(leaf_us(&world, "not recorded", COST_IDLE), 777);
    CHECK_INT(window_ns(world.tree, window), 777 * US);
    world_close(&world);
}

TEST(gaps_that_overlap_or_begin_before_the_window)
{
    struct world world;
    world_open(&world);
    world_gap(&world, world.thread, 1000, 12000, sleep_kernel, NULL, NULL, TRACE_NONE);
    world_gap(&world, world.thread, 5000, 8000, futex_kernel, NULL, NULL, TRACE_NONE);
    world_gap(&world, world.thread, 11000, 13000, futex_kernel, NULL, NULL, TRACE_NONE);
    world_tick(&world, world.thread, 14000, "work@libx.so", NULL);
    world_begin(&world);
    uint32_t window = world_add(&world, 10000, 20000);
    CHECK_INT(leaf_us(&world, "sleep", COST_HOST_STALLED), 2000);
    CHECK_INT(leaf_us(&world, "futex_wait", COST_HOST_STALLED), 1000);
    CHECK_INT(leaf_us(&world, "work", COST_HOST_RUN), 7000);
    CHECK_INT(window_ns(world.tree, window), 10000 * US);
    world_close(&world);
}

TEST(a_wait_for_a_worker_is_what_the_worker_did)
{
    struct world world;
    char buf[256];
    world_open(&world);
    uint32_t engine = world_thread(&world, world.process, "pt_autograd_0"),
             pool = world_thread(&world, world.process, "pool");
    world_step(&world, 0, 0, 20000);
    world_phase(&world, 0, 0, 20000, "backward");
    world_tick(&world, world.thread, 1000, "launch@libt.so",
            "Tensor.backward@/a/site-packages/torch/_tensor.py");
    world_gap(&world, world.thread, 2000, 12000, futex_kernel, "pthread_cond_wait@libc.so.6", NULL,
            engine);
    for (int64_t at = 2500; at < 8000; at += 1000)
        world_tick(&world, engine, at, "gemm_backward@libt.so", NULL);
    world_gap(&world, engine, 8000, 12000, futex_kernel, "pthread_cond_wait@libc.so.6", NULL, pool);
    for (int64_t at = 8500; at < 12000; at += 1000)
        world_tick(&world, pool, at, "memcpy@libc.so.6", NULL);
    world_tick(&world, world.thread, 15000, "launch@libt.so", NULL);
    world_begin(&world);
    uint32_t window = world_add(&world, 0, 20000);
    CHECK_INT(leaf_us(&world, "gemm_backward", COST_HOST_RUN), 6000);
    CHECK_INT(leaf_us(&world, "memcpy", COST_HOST_RUN), 4000);
    CHECK_INT(leaf_us(&world, "launch", COST_HOST_RUN), 10000);
    CHECK_STR(leaf_place(&world, "gemm_backward", buf, sizeof buf), "backward > Tensor.backward");
    CHECK_INT(window_ns(world.tree, window), 20000 * US);
    world_close(&world);
}

TEST(threads_that_wait_for_each_other_end)
{
    struct world world;
    world_open(&world);
    uint32_t other = world_thread(&world, world.process, "other");
    world_gap(&world, world.thread, 0, 10000, futex_kernel, NULL, NULL, other);
    world_gap(&world, other, 0, 10000, futex_kernel, NULL, NULL, world.thread);
    world_begin(&world);
    uint32_t window = world_add(&world, 0, 10000);
    CHECK_INT(leaf_us(&world, "futex_wait", COST_HOST_STALLED), 10000);
    CHECK_INT(window_ns(world.tree, window), 10000 * US);
    world_close(&world);
}

TEST(spinning_belongs_to_the_workers)
{
    struct world world;
    char buf[256];
    world_open(&world);
    uint32_t one = world_thread(&world, world.process, "w1"),
             two = world_thread(&world, world.process, "w2"),
             three = world_thread(&world, world.process, "w3");
    world_tick(&world, world.thread, 1000, "gomp_team_barrier_wait_end@libgomp.so.1",
            "mm@/a/site-packages/torch/functional.py");
    world_tick(&world, one, 1100, "slow_tile@libt.so", NULL);
    world_tick(&world, two, 900, "fast_tile@libt.so", NULL);
    world_tick(&world, three, 1000, "libgomp.so.1+0x1f2e0@libgomp.so.1", NULL);
    world_tick(&world, world.thread, 9000, "__kmp_wait_4@libiomp5.so", NULL);
    world_begin(&world);
    uint32_t window = world_add(&world, 0, 10000);
    CHECK_INT(leaf_us(&world, "slow_tile", COST_HOST_RUN), 2500);
    CHECK_INT(leaf_us(&world, "fast_tile", COST_HOST_RUN), 2500);
    CHECK_INT(leaf_us(&world, "OpenMP barrier", COST_HOST_STALLED), 5000);
    CHECK_STR(leaf_place(&world, "slow_tile", buf, sizeof buf), "step > mm");
    CHECK_INT(window_ns(world.tree, window), 10000 * US);
    world_close(&world);
}

TEST(a_wait_for_another_rank_is_communication)
{
    struct world world;
    world_open(&world);
    uint32_t process = world_process(&world, TRACE_NONE, TRACE_TARGET, "python", "python train.py");
    uint32_t peer = world_thread(&world, process, "python"),
             gloo = world_thread(&world, world.process, "gloo");
    world_rank(&world, 1, process, peer);
    // Its own gloo thread ends the wait, and that one waits for the other process: what that did is
    // its own business.
    world_gap(
            &world, world.thread, 0, 6000, futex_kernel, "pthread_cond_wait@libc.so.6", NULL, gloo);
    world_gap(&world, gloo, 0, 5000,
            "ep_poll@kernel;do_epoll_wait@kernel;__x64_sys_epoll_wait@kernel", NULL, NULL, peer);
    world_tick(&world, gloo, 5500, "reduce@libgloo.so", NULL);
    for (int64_t at = 500; at < 6000; at += 1000)
        world_tick(&world, peer, at, "slow@libx.so", NULL);
    // Nobody says who ended this one: the call does.
    world_gap(&world, world.thread, 7000, 9000, futex_kernel, "pthread_cond_wait@libc.so.6",
            "all_reduce@/a/site-packages/torch/distributed/distributed_c10d.py", TRACE_NONE);
    world_tick(&world, world.thread, 6500, "work@libx.so", NULL);
    world_begin(&world);
    uint32_t window = world_add(&world, 0, 10000);
    CHECK_INT(leaf_us(&world, "wait for rank 1", COST_COMM_EXPOSED), 5000 + 2000);
    CHECK_INT(leaf_node(&world, "wait for rank 1")->kind, COST_COLLECTIVE);
    CHECK(leaf_node(&world, "wait for rank 1")->collective.waits);
    CHECK_INT(leaf_node(&world, "wait for rank 1")->collective.rank, 1);
    CHECK(!leaf_node(&world, "reduce")->collective.waits);
    CHECK_INT(leaf_us(&world, "reduce", COST_HOST_RUN), 1000);
    CHECK_INT(leaf_us(&world, "slow", COST_CLASS_COUNT), 0);
    CHECK_INT(window_ns(world.tree, window), 10000 * US);
    world_close(&world);
}

TEST(packets_that_an_interrupt_brought_are_a_rank_s)
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        struct world world;
        world_open(&world);
        uint32_t loop = world_thread(&world, world.process, "gloo_tcp_loop");
        for (int32_t i = 1; i < ranks; i++) {
            uint32_t process =
                    world_process(&world, TRACE_NONE, TRACE_TARGET, "python", "python train.py");
            world_rank(&world, i, process, world_thread(&world, process, "python"));
        }
        world_gap(&world, world.thread, 1000, 9000, futex_kernel, "pthread_cond_wait@libc.so.6",
                NULL, loop);
        world_gap(&world, loop, 0, 9000,
                "ep_poll@kernel;do_epoll_wait@kernel;__x64_sys_epoll_wait@kernel", NULL, NULL,
                TRACE_NONE);
        world_tick(&world, world.thread, 500, "work@libx.so", NULL);
        world_begin(&world);
        world_add(&world, 0, 10000);
        CHECK_INT(leaf_us(&world, "epoll", COST_HOST_STALLED), ranks == 1 ? 8000 : 0);
        CHECK_INT(leaf_us(&world, "wait for rank 1", COST_COMM_EXPOSED), ranks == 2 ? 8000 : 0);
        CHECK_INT(leaf_us(&world, "wait for a rank", COST_COMM_EXPOSED), ranks == 3 ? 8000 : 0);
        world_close(&world);
    }
}

TEST(a_wait_for_the_loader_is_what_its_worker_did)
{
    struct world world;
    char buf[256];
    static const char next[] =
            "_MultiProcessingDataLoaderIter._try_get_data@/a/site-packages/torch/utils/data/dataloader.py;"
            "train@/home/me/job/train.py;<module>@/home/me/job/train.py";
    world_open(&world);
    uint32_t process =
            world_process(&world, world.process, TRACE_TARGET, "pt_data_worker", "python train.py");
    uint32_t worker = world_thread(&world, process, "pt_data_worker");
    world_gap(&world, world.thread, 0, 8000,
            "do_poll@kernel;do_sys_poll@kernel;__x64_sys_poll@kernel", NULL, next, worker);
    for (int64_t at = 500; at < 5000; at += 1000)
        world_tick(&world, worker, at, "decode@libjpeg.so",
                "Images.__getitem__@/home/me/job/data/images.py;_worker_loop@/a/site-packages/torch/utils/data/_utils/worker.py");
    world_gap(&world, worker, 5000, 8000,
            "folio_wait_bit_common@kernel;filemap_read@kernel;__x64_sys_read@kernel", NULL,
            "Images.__getitem__@/home/me/job/data/images.py", TRACE_NONE)
            ->state = 2;
    world_tick(&world, world.thread, 9000, "work@libx.so", NULL);
    world_gap(&world, world.thread, 10000, 12000, futex_kernel, NULL, next, TRACE_NONE);
    world_begin(&world);
    uint32_t window = world_add(&world, 0, 12000);
    CHECK_INT(leaf_us(&world, "decode", COST_DATA_WAIT), 5000);
    CHECK_STR(leaf_place(&world, "decode", buf, sizeof buf),
            "step > _worker_loop > Images.__getitem__");
    CHECK_STR(world.tree->nodes[leaf_node(&world, "decode")->parent].module, "data/images.py");
    CHECK_INT(leaf_us(&world, "disk_read", COST_DATA_WAIT), 3000);
    CHECK_INT(leaf_us(&world, "data_loader", COST_DATA_WAIT), 2000);
    CHECK_INT(leaf_us(&world, "work", COST_HOST_RUN), 2000);
    CHECK_INT(window_ns(world.tree, window), 12000 * US);
    world_close(&world);
}

// The wait for a CPU behind a file system's commit is the commit's price; behind a sleep it is
// others' doing.
TEST(in_line_for_a_cpu_after_a_file)
{
    static const char fsync_kernel[] =
            "io_schedule@kernel;folio_wait_bit@kernel;folio_wait_writeback@kernel;"
            "file_write_and_wait_range@kernel;ext4_sync_file@kernel;__x64_sys_fsync@kernel";
    struct world world;
    world_open(&world);
    uint32_t rival = world_thread(
            &world, world_process(&world, TRACE_NONE, TRACE_OTHER, "stress", NULL), "stress");
    for (int i = 0; i < 4; i++) { // long enough for a part of its own, and not
        const char *kernel = i < 2 ? fsync_kernel : sleep_kernel;
        struct trace_gap *gap = world_gap(&world, world.thread, 1000 + i * 10000, 5000 + i * 10000,
                kernel, NULL, NULL, TRACE_NONE);
        gap->waking = gap->in - (i % 2 ? 600 : 3900) * US;
        gap->state = i < 2 ? 2 : 1;
        gap->before = rival;
    }
    struct trace_gap *preempted =
            world_gap(&world, world.thread, 42000, 44000, NULL, NULL, NULL, TRACE_NONE);
    preempted->waking = 0;
    preempted->state = 0;
    preempted->flags = UG_GAP_PREEMPTED;
    preempted->next = preempted->before = rival;
    world_tick(&world, world.thread, 500, "work@libx.so", NULL);
    world_begin(&world);
    uint32_t window = world_add(&world, 0, 50000);
    CHECK_INT(leaf_us(&world, "fsync_journal", COST_HOST_STALLED), 8000);
    CHECK_INT(leaf_node(&world, "fsync_journal")->count, 2);
    CHECK_INT(leaf_us(&world, "cpu_contention", COST_HOST_STALLED), 3900 + 600 + 2000);
    CHECK_INT(leaf_us(&world, "sleep", COST_HOST_STALLED), 100 + 3400);
    CHECK_INT(window_ns(world.tree, window), 50000 * US);
    // The second half of a gap alone, as where a phase cuts it.
    uint32_t half = world_add(&world, 3000, 5000);
    CHECK_INT(window_ns(world.tree, half), 2000 * US);
    CHECK_INT(leaf_us(&world, "fsync_journal", COST_HOST_STALLED), 10000);
    world_close(&world);
}

TEST(who_took_the_cpu)
{
    struct world world;
    world_open(&world);
    uint32_t rival = world_thread(
            &world, world_process(&world, TRACE_NONE, TRACE_OTHER, "stress", NULL), "stress");
    for (int i = 0; i < 2; i++) {
        struct trace_gap *gap = world_gap(&world, world.thread, 1000 + i * 10000, 4000 + i * 10000,
                NULL, NULL, NULL, TRACE_NONE);
        gap->waking = 0;
        gap->state = 0;
        gap->flags = UG_GAP_PREEMPTED;
        gap->next = gap->before = rival;
    }
    uint32_t own = world_thread(&world, world.process, "omp");
    struct trace_gap *crowd =
            world_gap(&world, world.thread, 25000, 27000, NULL, NULL, NULL, TRACE_NONE);
    crowd->waking = 0;
    crowd->state = 0;
    crowd->flags = UG_GAP_PREEMPTED;
    crowd->next = crowd->before = own;
    // Awake and not yet on the CPU.
    struct trace_gap *late =
            world_gap(&world, world.thread, 20000, 24000, sleep_kernel, NULL, NULL, TRACE_NONE);
    late->waking = 23500 * US;
    world_tick(&world, world.thread, 500, "work@libx.so", NULL);
    world_begin(&world);
    uint32_t window = world_add(&world, 0, 30000);
    CHECK_INT(leaf_us(&world, "cpu_contention", COST_HOST_STALLED), 6000);
    CHECK_STR(leaf_node(&world, "cpu_contention")->module, "stress");
    CHECK_INT(leaf_us(&world, "oversubscribed", COST_HOST_STALLED), 2000);
    CHECK_STR(leaf_node(&world, "oversubscribed")->module, "omp");
    CHECK_INT(leaf_us(&world, "sleep", COST_HOST_STALLED), 3500);
    CHECK_INT(leaf_us(&world, "run_queue", COST_HOST_STALLED), 500);
    CHECK_INT(window_ns(world.tree, window), 30000 * US);
    world_close(&world);
}

TEST(names_that_both_versions_share)
{
    struct world world;
    char buf[512];
    world_open(&world);
    world_tick(&world, world.thread, 1000, "python3.11+0x50c9f0@python3.11",
            "Linear.forward@/v/lib/python3.11/site-packages/torch/nn/modules/linear.py;"
            "Module._call_impl@/v/lib/python3.11/site-packages/torch/nn/modules/module.py;"
            "Module._wrapped_call_impl@/v/lib/python3.11/site-packages/torch/nn/modules/module.py;"
            "Net.forward@/home/me/job/models/net.py;main@/home/me/job/train.py;<module>@/home/me/job/train.py;"
            "_run_code@<frozen runpy>");
    world_tick(&world, world.thread, 3000, "libt.so+0x12@libt.so",
            "_call_impl@/usr/lib/python3/dist-packages/torch/nn/modules/module.py");
    world_tick(&world, world.thread, 5000, "[anon]@[anon]",
            "load@/usr/lib/python3.11/json/__init__.py;_find_and_load@<frozen importlib._bootstrap>");
    struct trace_sample *fault = world_tick(
            &world, world.thread, 7000, "copy@libc.so.6", "read@/opt/other/place/util.py");
    fault->kernel = world_stack(&world, 'k',
            "clear_page@kernel;handle_mm_fault@kernel;exc_page_fault@kernel;asm_exc_page_fault@kernel");
    struct trace_sample *call = world_tick(&world, world.thread, 9000, "munmap@libc.so.6", NULL);
    call->kernel = world_stack(&world, 'k',
            "unmap_region@kernel;__x64_sys_readv@kernel;do_syscall_64@kernel;entry_SYSCALL_64@kernel");
    world_tick(&world, world.thread, 11000, "python3.11+0x1@python3.11",
            "[gc]@python;main@/home/me/job/train.py");
    // of one CPU every second tick would be missing
    for (size_t i = 0; i < world.host->sample_count; i++)
        world.host->samples[i].cpu = (int16_t)i;
    world_begin(&world);
    world_add(&world, 0, 12000);
    CHECK_STR(leaf_place(&world, "Python interpreter", buf, sizeof buf),
            "step > main > Net.forward > Linear.forward");
    CHECK_STR(world.tree
                      ->nodes[world.tree->nodes[leaf_node(&world, "Python interpreter")->parent]
                                      .parent]
                      .module,
            "models/net.py");
    CHECK_STR(leaf_node(&world, "Python interpreter")->module, "[python]");
    CHECK_STR(leaf_place(&world, "[unknown]", buf, sizeof buf), "step > Module.__call__");
    CHECK_STR(leaf_node(&world, "[unknown]")->module, "libt.so");
    CHECK_INT(leaf_us(&world, "[unknown]", COST_HOST_RUN), 4000);
    CHECK_STR(leaf_place(&world, "page fault", buf, sizeof buf), "step > read");
    CHECK_STR(world.tree->nodes[leaf_node(&world, "page fault")->parent].module, "util.py");
    CHECK_STR(leaf_node(&world, "page fault")->module, "[kernel]");
    CHECK_INT(leaf_us(&world, "readv", COST_HOST_RUN), 2000);
    CHECK_STR(leaf_place(&world, "garbage collection", buf, sizeof buf), "step > [gc]");
    world_close(&world);
}

TEST(functions_without_a_name)
{
    struct world world;
    world_open(&world);
    // Inside of an operator its address says no more; else where it begins, if that is the same on
    // both sides.
    world_tick(&world, world.thread, 1000,
            "libt.so+0x12@libt.so;libt.so+0x99@libt.so;at::_ops::index_add::call(at::Tensor)@libt.so",
            "f@/j/t.py");
    world_tick(&world, world.thread, 3000, "libu.so+0x20@libu.so", "f@/j/t.py");
    world_tick(&world, world.thread, 5000, "libu.so+0x80@libu.so", "f@/j/t.py");
    world_tick(&world, world.thread, 7000, "libv.so+0x20@libv.so", "f@/j/t.py");
    world_tick(&world, world.thread, 9000, "libv.so+0x80@libv.so", "f@/j/t.py");
    for (size_t i = 0; i < world.host->frame_count; i++)
        world.host->frames[i].starts = !strcmp(world.host->frames[i].module, "libu.so") ||
                !strcmp(world.host->frames[i].name, "libt.so+0x12");
    for (size_t i = 0; i < world.host->sample_count; i++)
        world.host->samples[i].cpu = (int16_t)i;
    world_begin(&world);
    world_add(&world, 0, 10000);
    CHECK_STR(leaf_node(&world, "[inside at::_ops::index_add]")->module, "libt.so");
    CHECK_STR(leaf_node(&world, "[function 0x20]")->module, "libu.so");
    CHECK_STR(leaf_node(&world, "[function 0x80]")->module, "libu.so");
    CHECK_STR(leaf_node(&world, "[unknown]")->module, "libv.so");
    CHECK_INT(leaf_us(&world, "[function 0x20]", COST_HOST_RUN),
            leaf_us(&world, "[function 0x80]", COST_HOST_RUN));
    // two functions, of which nothing tells which is which
    CHECK_INT(leaf_us(&world, "[unknown]", COST_HOST_RUN), 4000);
    world_close(&world);
}

TEST(a_class_given)
{
    struct world world;
    char buf[256];
    world_open(&world);
    world_step(&world, 0, 0, 10000);
    world_phase(&world, 0, 0, 10000, "forward");
    world_tick(&world, world.thread, 1000, "launch@libt.so", "Net.forward@/home/me/job/net.py");
    world.calls[world.launch.call_count++] =
            (struct launch_call){4000 * US, 6000 * US, "cudaStreamSynchronize", world.thread, 0};
    world_begin(&world);
    uint32_t window = cost_tree_window(world.tree, &(struct cost_window){.steps = 1});
    host_path_add(world.path, 0, 0, 3000 * US, COST_LAUNCH_BOUND, window);
    CHECK_INT(leaf_us(&world, "launch", COST_LAUNCH_BOUND), 3000);
    CHECK_STR(leaf_place(&world, "launch", buf, sizeof buf), "forward > Net.forward");
    host_path_add(world.path, 0, 3000 * US, 10000 * US, COST_LAUNCH_BOUND, window);
    CHECK_INT(leaf_us(&world, "cudaStreamSynchronize", COST_HOST_STALLED), 2000);
    CHECK_INT(leaf_node(&world, "cudaStreamSynchronize")->kind, COST_SYNC);
    CHECK_INT(window_ns(world.tree, window), 10000 * US);
    CHECK_STR(place_text(&world, host_path_phase(world.path, 0, 1200 * US), buf, sizeof buf),
            "forward");
    world_close(&world);
}

// ---- what holds for every trace ----

static uint64_t dice_state;
static int64_t dice(int64_t below)
{
    dice_state = dice_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)((dice_state >> 33) % (uint64_t)below);
}

static void world_at_random(struct world *world)
{
    static const char *const users[] = {"gemm@libmkl.so", "gomp_barrier_wait@libgomp.so.1",
            "python3.11+0x1@python3.11", NULL, "sched_yield@libc.so.6", "libt.so+0x9@libt.so"};
    static const char *const pythons[] = {NULL,
            "f@/a/site-packages/t/a.py;main@/home/me/job/train.py", "[gc]@python",
            "_try_get_data@/a/site-packages/torch/utils/data/dataloader.py", NULL,
            "all_reduce@/a/site-packages/torch/distributed/distributed_c10d.py"};
    static const char *const kernels[] = {futex_kernel, sleep_kernel, NULL,
            "ep_poll@kernel;do_epoll_wait@kernel",
            "folio_wait_bit_common@kernel;filemap_read@kernel", "down_read@kernel;do_mmap@kernel"};
    static const char *const names[] = {"forward", "backward", "data", "opt"};
    uint32_t child = world_process(world, world->process, TRACE_TARGET, "pt_data_worker", NULL);
    uint32_t peer = world_process(world, TRACE_NONE, TRACE_TARGET, "python", NULL);
    uint32_t stranger = world_process(world, TRACE_NONE, TRACE_OTHER, "noise", NULL);
    uint32_t processes[] = {world->process, world->process, child, peer, stranger};
    for (size_t i = 0; i < sizeof processes / sizeof processes[0]; i++)
        world_thread(world, processes[i], "t");
    world_rank(world, 1, peer, 4);
    int64_t span = 200000, threads = (int64_t)world->host->thread_count;
    for (int64_t at = 0; at < span && world->launch.step_count < 100; at += 3000 + dice(5000))
        world_step(world, 0, at, at + dice(7000)); // some overlap
    for (int i = 0; i < 120; i++) {                // in order of begin, not always nested
        int64_t begin = i * span / 120 + dice(1000);
        world_phase(world, 0, begin, begin + dice(6000), names[dice(4)]);
    }
    for (int64_t i = dice(400); i > 0; i--)
        world_tick(world, (uint32_t)dice(threads), dice(span), users[dice(6)], pythons[dice(6)])
                ->why |= dice(5) ? 0 : UG_SAMPLE_LATE;
    for (int64_t i = dice(150); i > 0; i--) {
        int64_t out = dice(span), in = out + dice(20000);
        struct trace_gap *gap = world_gap(world, (uint32_t)dice(threads), out, in, kernels[dice(6)],
                users[dice(6)], pythons[dice(6)], dice(3) ? (uint32_t)dice(threads) : TRACE_NONE);
        gap->waking = dice(4) ? out * US + dice((in - out) * US + 1) : 0;
        gap->state = (uint32_t)dice(3);
        gap->flags |= dice(4) ? 0 : UG_GAP_PREEMPTED;
        gap->owner = dice(3) ? TRACE_NONE : (uint32_t)dice(threads);
        gap->before = dice(2) ? TRACE_NONE : (uint32_t)dice(threads);
    }
    for (int64_t at = 0; at < span && world->launch.call_count < 20; at += dice(20000))
        world->calls[world->launch.call_count++] = (struct launch_call){
                at * US, (at + dice(9000)) * US, "cudaMemcpy", world->thread, 0};
}

TEST(every_nanosecond_once)
{
    for (uint64_t seed = 1; seed <= 120; seed++) {
        struct world world;
        dice_state = seed;
        world_open(&world);
        world_at_random(&world);
        world_begin(&world);
        int64_t all = 0, from = 0;
        for (int i = 0; i < 60; i++) { // a partition, then any windows
            int64_t begin = i < 40 ? from : dice(INT64_C(230000000)) - 5000000;
            int64_t end = begin + 1 + dice(i % 3 ? 9000000 : 90);
            uint32_t window = cost_tree_window(
                    world.tree, &(struct cost_window){.wall_ns = end - begin, .steps = 1});
            host_path_add(world.path, dice(8) ? 0 : 1, begin, end, COST_HOST_RUN, window);
            int64_t got = window_ns(world.tree, window);
            if (got != end - begin)
                runner_fail(__FILE__, __LINE__, "seed %d, window %d: %lld of %lld ns", (int)seed, i,
                        (long long)got, (long long)(end - begin));
            all += end - begin;
            from = end;
        }
        cost_tree_finish(world.tree);
        CHECK_INT(cost_tree_below_ns(world.tree, 0), all);
        for (size_t i = 0; i < world.tree->row_count; i++)
            if (world.tree->rows[i].ns < 0)
                runner_fail(__FILE__, __LINE__, "seed %d: a row below zero", (int)seed);
        world_close(&world);
    }
}

TEST(the_same_trace_gives_the_same_tree)
{
    struct world worlds[2];
    for (int i = 0; i < 2; i++) {
        dice_state = 42;
        world_open(&worlds[i]);
        world_at_random(&worlds[i]);
        world_begin(&worlds[i]);
        free(xcalloc(1000, 7)); // other addresses
        world_add(&worlds[i], 0, 200000);
    }
    CHECK_INT(worlds[0].tree->node_count, worlds[1].tree->node_count);
    for (size_t i = 0; i < worlds[0].tree->node_count; i++) {
        CHECK_STR(worlds[0].tree->nodes[i].name, worlds[1].tree->nodes[i].name);
        CHECK_INT(worlds[0].tree->nodes[i].ns, worlds[1].tree->nodes[i].ns);
    }
    world_close(&worlds[0]);
    world_close(&worlds[1]);
}

// Below its phase where it makes steps, below the thread's name where it does not; of other
// programs nothing.
TEST(cpu_time_of_all_threads)
{
    struct world world;
    world_open(&world);
    uint32_t worker = world_thread(&world, world.process, "pt_autograd_0");
    uint32_t loader = world_thread(&world,
            world_process(&world, world.process, TRACE_TARGET, "python", NULL), "python3.11");
    uint32_t stranger = world_thread(
            &world, world_process(&world, TRACE_NONE, TRACE_OTHER, "make", NULL), "make");
    world_step(&world, 0, 0, 10000);
    world_phase(&world, 0, 0, 10000, "forward");
    for (int64_t at = 500; at < 3500; at += 1000)
        world_tick(&world, world.thread, at, "gemm@libblas.so", NULL);
    world_tick(&world, world.thread, 12500, "save@libio.so", NULL); // between steps
    for (int64_t at = 600; at < 2600; at += 1000)
        world_tick(&world, worker, at, "spin_wait@libpool.so", NULL);
    world_tick(&world, loader, 700, "decode@libjpeg.so", NULL);
    for (int64_t at = 800; at < 9800; at += 1000)
        world_tick(&world, stranger, at, "compile@cc1", NULL);
    uint32_t starts = world_stack(&world, 'u', "dlopen@ld.so"),
             stack = world_stack(&world, 'p', "load@/home/me/job/loop.py");
    const uint32_t threads[] = {world.thread, loader, stranger};
    for (int i = 0; i < 3; i++) { // what is in no turn: the start-up
        struct trace_sample *early = vector_add(world.host->outside, world.host->outside_count);
        *early = (struct trace_sample){.at = -900 * US,
                .thread = threads[i],
                .user = starts,
                .python = stack,
                .why = UG_SAMPLE_TARGET};
    }
    starts = world_stack(&world, 'u', "python3.11+0x1@python3.11"),
    stack = world_stack(&world, 'p', "[gc]@python;main@/home/me/job/train.py");
    struct trace_sample *collects = vector_add(world.host->outside, world.host->outside_count);
    *collects = (struct trace_sample){.at = -800 * US,
            .thread = world.thread,
            .user = starts,
            .python = stack,
            .why = UG_SAMPLE_TARGET};
    world_begin(&world);
    uint32_t window = cost_tree_window(world.tree, &(struct cost_window){.steps = 1});
    CHECK_INT(host_path_cpu(world.path, window), 10 * WORLD_TICK_US * US);
    CHECK_INT(window_ns(world.tree, window), 10 * WORLD_TICK_US * US);
    CHECK_INT(leaf_us(&world, "dlopen", COST_HOST_RUN), 2 * WORLD_TICK_US);
    char place[256];
    CHECK_STR(leaf_place(&world, "dlopen", place, sizeof place), "outside of steps > load");
    // there as in steps
    CHECK_INT(leaf_us(&world, "garbage collection", COST_HOST_RUN), WORLD_TICK_US);
    CHECK_STR(leaf_place(&world, "garbage collection", place, sizeof place),
            "outside of steps > [gc]");
    CHECK_INT(leaf_us(&world, "gemm", COST_HOST_RUN), 3 * WORLD_TICK_US);
    CHECK_INT(leaf_us(&world, "spin_wait", COST_HOST_RUN), 2 * WORLD_TICK_US);
    CHECK_INT(leaf_us(&world, "decode", COST_HOST_RUN), WORLD_TICK_US);
    CHECK_INT(leaf_us(&world, "save", COST_HOST_RUN), WORLD_TICK_US);
    CHECK_INT(leaf_us(&world, "compile", COST_CLASS_COUNT), 0);
    const struct cost_node *nodes = world.tree->nodes;
    CHECK_STR(nodes[leaf_node(&world, "gemm")->parent].name, "forward");
    CHECK_STR(nodes[leaf_node(&world, "save")->parent].name, "outside of steps");
    CHECK_STR(nodes[leaf_node(&world, "spin_wait")->parent].name, "thread pt_autograd");
    CHECK_STR(nodes[leaf_node(&world, "decode")->parent].name, "thread python");
    world_close(&world);
}
