// SPDX-License-Identifier: Apache-2.0
// What a gap was spent on. The stall analysis' parts name the cause of lost time; a wait for
// another thread of the target is given to what that one did meanwhile (workers, the autograd
// engine, a data loader's processes), at most 8 deep and each thread once; a wait for another
// rank's process is communication, whatever that rank did. What is left is named after the wait
// itself. Reads trace and parts, writes rows of the cost tree through host_path.c.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/path/host_path_index.h"

static const char *host_comm(const struct host_path *path, uint32_t thread)
{
    if (thread == TRACE_NONE || thread >= path->host->thread_count)
        return NULL;
    const struct trace_process *process =
            &path->host->processes[path->host->threads[thread].process];
    return process->kind == TRACE_IDLE ? NULL : path->host->threads[thread].comm;
}

static uint32_t host_rank_of(const struct host_path *path, uint32_t thread)
{
    return thread == TRACE_NONE || thread >= path->host->thread_count
            ? HOST_NONE
            : path->rank_of[path->host->threads[thread].process];
}

static bool host_is_other_rank(const struct host_walk *walk, uint32_t thread)
{
    uint32_t rank = host_rank_of(walk->path, thread);
    return rank != HOST_NONE && rank != walk->rank;
}

static bool host_was_visited(const struct host_walk *walk, uint32_t thread)
{
    for (int i = 0; i <= walk->depth; i++)
        if (walk->visited[i] == thread)
            return true;
    return false;
}

// TRACE_NONE: which rank is not known; of two it is the other one.
static uint32_t host_rank_leaf(struct host_walk *walk, uint32_t thread)
{
    const struct launch_trace *trace = walk->path->trace;
    char name[48] = "wait for a rank";
    uint32_t rank = host_rank_of(walk->path, thread);
    if (rank == HOST_NONE && trace->rank_count == 2)
        rank = !walk->rank;
    if (rank != HOST_NONE)
        snprintf(name, sizeof name, "wait for rank %d", trace->ranks[rank].rank);
    uint32_t leaf = host_leaf_named(walk->path, COST_COLLECTIVE, name, NULL);
    walk->path->leaves[leaf].collective = (struct cost_collective){
            .waits = true, .rank = rank != HOST_NONE ? trace->ranks[rank].rank : -1};
    return leaf;
}

static void host_give_rank(struct host_walk *walk, uint32_t python, uint32_t thread, int64_t ns)
{
    host_walk_give(walk, python, host_rank_leaf(walk, thread), COST_COMM_EXPOSED, ns, 1);
}

static void host_give_stall(
        struct host_walk *walk, uint32_t python, const char *name, uint32_t culprit, int64_t ns)
{
    uint32_t leaf = host_leaf_named(walk->path, COST_STALL, name, host_comm(walk->path, culprit));
    host_walk_give(walk, python, leaf, walk->data ? COST_DATA_WAIT : COST_HOST_STALLED, ns, 1);
}

// Other programs that take the CPU are no property of a version; more threads of one's own than
// CPUs are.
static const char *host_contention(const struct trace *host, uint32_t culprit)
{
    return culprit != TRACE_NONE && trace_is_target(host, culprit) ? "oversubscribed"
                                                                   : "cpu_contention";
}

// ---- waits without a cause ----

static struct marks host_wait_marks(const struct trace *host, const struct trace_gap *gap)
{
    return gap->kernel && host->stacks[gap->kernel].count
            ? trace_marks(host, gap->kernel)
            : marks_of_syscall(host->machine, gap->syscall);
}

// Words of kinds of waits. NULL: none of them.
static const char *host_wait_word(struct marks marks, const char *target)
{
    static const struct {
        enum mark mark;
        const char *word;
        // clang-format off
    } rows[] = {
        {MARK_SLEEP, "sleep"},         {MARK_FUTEX, "futex_wait"},   {MARK_EPOLL, "epoll"},
        {MARK_POLL, "poll"},           {MARK_CHILD, "child"},        {MARK_PIPE_READ, "pipe"},
        {MARK_PIPE_WRITE, "pipe"},     {MARK_ACCEPT, "accept"},      {MARK_SIGWAIT, "signal"},
        {MARK_SOCKET_RECV, "socket"},  {MARK_SOCKET_SEND, "socket"}, {MARK_STOP, "stopped"},
        {MARK_FREEZE, "frozen"},       {MARK_FILE_READ, "read"},     {MARK_FAULT, "page fault"},
        {MARK_GPU_DRIVER, "gpu_driver"},
    };
    // clang-format on
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (marks_has(marks, rows[i].mark))
            return rows[i].word;
    return !strncmp(target, "pipe:", 5) ? "pipe" : !strncmp(target, "socket:", 7) ? "socket" : NULL;
}

// What a wait is called when nobody is known to work for it meanwhile.
static uint32_t host_wait_leaf(struct host_walk *walk, const struct host_off *off, bool collective,
        enum cost_class *ret_class)
{
    struct host_path *path = walk->path;
    const struct trace *host = path->host;
    const struct trace_gap *gap = &host->gaps[off->gap];
    if (collective) {
        *ret_class = COST_COMM_EXPOSED;
        return host_rank_leaf(walk, TRACE_NONE);
    }
    *ret_class = walk->data ? COST_DATA_WAIT : COST_HOST_STALLED;
    if (walk->data)
        return host_leaf_named(path, COST_STALL, "data_loader", NULL);
    if (path->leaves[off->leaf].flags & HOST_LEAF_SPIN ||
            marks_has(trace_marks(host, gap->user), MARK_OMP))
        return host_leaf_named(path, COST_STALL, "OpenMP barrier", NULL);
    const char *word = host_wait_word(host_wait_marks(host, gap), host->texts[gap->target]);
    if (word)
        return host_leaf_named(path, COST_STALL, word, NULL);
    // By the system call, else by the function that waits.
    uint32_t leaf = host_leaf_of_stacks(path, gap->kernel, gap->kernel ? 0 : gap->user);
    const char *name = path->leaves[leaf].name;
    return host_leaf_named(path, COST_STALL, gap->kernel || gap->user ? name : "off the CPU", NULL);
}

// ---- following ----

// Who ended the wait, or holds what it waits for; TRACE_NONE: nobody, or an interrupt.
static uint32_t host_awaited(const struct trace *host, const struct trace_gap *gap)
{
    if (classify_real_waker(host, gap) && trace_is_target(host, gap->waker))
        return gap->waker;
    return gap->owner != gap->thread && trace_is_target(host, gap->owner) ? gap->owner : TRACE_NONE;
}

// [begin, end) to what `to` did then; to the wait itself if that is not known.
static void host_follow(struct host_walk *walk, uint32_t to, uint32_t python, uint32_t leaf,
        enum cost_class class, int64_t begin, int64_t end)
{
    struct host_path *path = walk->path;
    if (to != TRACE_NONE && host_is_other_rank(walk, to)) {
        host_give_rank(walk, walk->depth ? walk->wait_python : python, to, end - begin);
        return;
    }
    bool can = to != TRACE_NONE && walk->depth < HOST_DEPTH_MAX &&
            trace_is_target(path->host, to) && !host_was_visited(walk, to);
    if (!can) {
        bool says_more = class == COST_COMM_EXPOSED ||
                (class == COST_HOST_STALLED && walk->wait_class != COST_COMM_EXPOSED &&
                        !host_was_visited(walk, to));
        if (walk->depth && !says_more) {
            leaf = walk->wait_leaf;
            class = walk->wait_class;
        }
        if (walk->depth && (!says_more || class == COST_COMM_EXPOSED))
            python = walk->wait_python;
        host_walk_give(walk, python, leaf, class, end - begin, 1);
        return;
    }
    struct host_walk next = *walk;
    next.visited[++next.depth] = to;
    if (!walk->depth) {
        next.wait_python = python;
        next.wait_leaf = leaf;
        next.wait_class = class;
    }
    next.data = walk->data || class == COST_DATA_WAIT;
    host_walk_thread(&next, to, begin, end);
}

// Does the thread wait for its next batch here? For a loader's process or thread, or for a queue
// where data are fetched.
static bool host_waits_for_data(
        const struct host_walk *walk, const struct trace_gap *gap, uint32_t python, uint32_t to)
{
    const struct trace *host = walk->path->host;
    if (walk->data)
        return true;
    struct marks marks = trace_marks(host, python);
    if (marks_has(marks, MARK_WORKER_LOOP))
        return false;
    if (marks_has(marks, MARK_LOADER))
        return true;
    bool data_phase = walk->path->chains[walk->chain].data;
    if (to != TRACE_NONE && trace_is_target(host, to)) {
        bool loader = !strncmp(host->threads[to].comm, "pt_data", 7);
        return loader ||
                (data_phase && host->threads[to].process != host->threads[gap->thread].process) ||
                (data_phase && marks_has(marks, MARK_QUEUE_GET));
    }
    return data_phase && marks_has(marks, MARK_QUEUE_GET);
}

// A thread that does the step thread's networking (gloo's loop, a store's client) and waits for
// packets. Those come in interrupts that name nobody, but among several ranks they are a rank's.
static bool host_waits_for_peer(const struct host_walk *walk, const struct trace_gap *gap)
{
    const struct trace *host = walk->path->host;
    struct marks marks = host_wait_marks(host, gap);
    bool network = marks_has(marks, MARK_EPOLL) || marks_has(marks, MARK_POLL) ||
            marks_has(marks, MARK_SOCKET_RECV) || marks_has(marks, MARK_SOCKET_SEND);
    return network && walk->depth > 0 && walk->path->trace->rank_count > 1 &&
            !host->threads[gap->thread].main;
}

// ---- parts ----

static bool host_part_other_rank(
        const struct host_walk *walk, const struct part *part, uint32_t *ret_thread)
{
    const struct work *work = walk->path->trace->host_work;
    for (int i = 0; i < part->hop_count && part->hop_first + (uint32_t)i < work->hop_count; i++) {
        *ret_thread = work->hops[part->hop_first + (uint32_t)i].to;
        if (host_is_other_rank(walk, *ret_thread))
            return true;
    }
    *ret_thread = part->waits_for;
    return host_is_other_rank(walk, part->waits_for);
}

// [begin, end) of a part, of a cause that is known.
void host_walk_part(struct host_walk *walk, const struct part *part, uint32_t python, int64_t begin,
        int64_t end)
{
    struct host_path *path = walk->path;
    uint32_t other;
    uint32_t at = walk->depth && !python ? walk->wait_python : python;
    if (part->split == SPLIT_BLOCKED && part->via != VIA_CPU &&
            host_part_other_rank(walk, part, &other)) {
        host_give_rank(walk, at, other, end - begin);
        return;
    }
    if (part->cause == CAUSE_GPU_SYNC) {
        host_walk_give(walk, at, host_leaf_named(path, COST_SYNC, "gpu_sync", NULL),
                COST_HOST_STALLED, end - begin, 1);
        return;
    }
    const char *name = part->cause < CAUSE_COUNT ? causes_row(part->cause)->id : "unknown";
    if (part->cause == CAUSE_CPU_CONTENTION)
        name = host_contention(path->host, part->culprit);
    host_give_stall(walk, at, name, part->culprit, end - begin);
}

// Causes that only say that somebody else was waited for: what he did is the better answer.
static bool host_goes_on(enum cause cause)
{
    return cause == CAUSE_DATA_LOADER || cause == CAUSE_FUTEX_WAIT || cause == CAUSE_NETWORK_PEER ||
            cause == CAUSE_UNKNOWN;
}

// Ready to run and not running, without a part: short, or below what the stall analysis looks at.
static void host_walk_ready(
        struct host_walk *walk, const struct trace_gap *gap, uint32_t python, int64_t ns)
{
    const struct trace *host = walk->path->host;
    bool preempted = gap->flags & UG_GAP_PREEMPTED || !gap->waking;
    uint32_t rival = preempted && gap->next != TRACE_NONE ? gap->next : gap->before;
    if (rival != TRACE_NONE && (rival == gap->thread || !parts_blamable(host, rival)))
        rival = TRACE_NONE;
    host_give_stall(walk, python,
            preempted || rival != TRACE_NONE ? host_contention(host, rival) : "run_queue", rival,
            ns);
}

// A thread that asks a file system for something lets go of the CPU each time, and on a busy
// machine stands in line for it each time: 4.4 of 4.5 ms of an fsync at load 6. That is what the
// call costs there, in untraced steps as well; other programs alone would not have taken it. The
// part of the call, NULL: the gap was another kind of wait.
static const struct part *host_file_wait(const struct host_path *path, const struct host_off *off)
{
    const struct trace_gap *gap = &path->host->gaps[off->gap];
    const struct part *part;
    if (!gap->waking ||
            !host_walk_next_part(path, gap->thread, false, gap->out, gap->waking, &part))
        return NULL;
    bool file = part->cause == CAUSE_FSYNC_JOURNAL || part->cause == CAUSE_DISK_READ ||
            part->cause == CAUSE_MAJOR_FAULT || part->cause == CAUSE_DIRTY_THROTTLE ||
            part->cause == CAUSE_FUSE_HANG;
    return file && part->split == SPLIT_BLOCKED && part->gap == off->gap ? part : NULL;
}

static void host_give_file(
        struct host_walk *walk, uint32_t python, const struct part *file, int64_t ns)
{
    const char *name = causes_row(file->cause)->id;
    uint32_t leaf =
            host_leaf_named(walk->path, COST_STALL, name, host_comm(walk->path, file->culprit));
    host_walk_give(walk, python, leaf, walk->data ? COST_DATA_WAIT : COST_HOST_STALLED, ns, 0);
}

static void host_walk_wait(struct host_walk *walk, const struct host_off *off,
        const struct part *part, int64_t begin, int64_t end)
{
    struct host_path *path = walk->path;
    const struct trace_gap *gap = &path->host->gaps[off->gap];
    uint32_t python = off->python ? off->python : walk->depth ? walk->wait_python : 0, other;
    uint32_t to =
            part && part->waits_for != TRACE_NONE ? part->waits_for : host_awaited(path->host, gap);
    if (part && host_part_other_rank(walk, part, &other)) {
        host_give_rank(walk, python, other, end - begin);
        return;
    }
    bool outer = walk->data;
    walk->data = (part && part->cause == CAUSE_DATA_LOADER && !walk->depth) ||
            host_waits_for_data(walk, gap, off->python, to);
    bool collective = path->trace->rank_count > 1 && !walk->data &&
            host_is_collective(path, gap->user, off->python);
    collective |= to == TRACE_NONE && !walk->data && host_waits_for_peer(walk, gap);
    enum cost_class class;
    uint32_t leaf = host_wait_leaf(walk, off, collective, &class);
    if (part && part->cause == CAUSE_NETWORK_PEER && class == COST_HOST_STALLED)
        leaf = host_leaf_named(path, COST_STALL, "network_peer", host_comm(path, part->culprit));
    bool sleeps = marks_has(host_wait_marks(path->host, gap), MARK_SLEEP);
    if (sleeps) { // of its own will, also where somebody waits for the sleeper
        host_give_stall(walk, python, "sleep", TRACE_NONE, end - begin);
    } else {
        host_follow(walk, to, python, leaf, class, begin, end);
    }
    walk->data = outer;
}

// A piece of a gap in which no part says more.
static void host_walk_plain(
        struct host_walk *walk, const struct host_off *off, int64_t begin, int64_t end)
{
    const struct trace_gap *gap = &walk->path->host->gaps[off->gap];
    uint32_t python = off->python ? off->python : walk->depth ? walk->wait_python : 0;
    bool runnable = !gap->waking && (gap->flags & UG_GAP_PREEMPTED || !gap->state) &&
            !(gap->flags & UG_GAP_NO_OUT && gap->state);
    // from then on it waits for a CPU
    int64_t ready = runnable ? gap->out : gap->waking ? gap->waking : gap->in;
    if (begin < ready)
        host_walk_wait(walk, off, NULL, begin, ready < end ? ready : end);
    if (ready >= end)
        return;
    const struct part *file = host_file_wait(walk->path, off);
    int64_t ns = end - (ready > begin ? ready : begin);
    if (file)
        host_give_file(walk, python, file, ns);
    else
        host_walk_ready(walk, gap, python, ns);
}

void host_walk_off(struct host_walk *walk, uint32_t thread, const struct host_off *off,
        int64_t begin, int64_t end)
{
    const struct part *part;
    uint32_t python = off->python ? off->python : walk->depth ? walk->wait_python : 0;
    while (begin < end && host_walk_next_part(walk->path, thread, false, begin, end, &part)) {
        if (part->begin > begin)
            host_walk_plain(walk, off, begin, part->begin);
        int64_t from = part->begin > begin ? part->begin : begin,
                to = part->end < end ? part->end : end;
        bool outer = walk->data,
             in_line = part->cause == CAUSE_CPU_CONTENTION && part->split == SPLIT_RUN_QUEUE;
        const struct part *file = in_line ? host_file_wait(walk->path, off) : NULL;
        if (file) {
            host_give_file(walk, python, file, to - from);
        } else if (host_goes_on(part->cause) && part->split == SPLIT_BLOCKED) {
            host_walk_wait(walk, off, part, from, to);
        } else {
            walk->data |= part->split == SPLIT_BLOCKED &&
                    host_waits_for_data(
                            walk, &walk->path->host->gaps[off->gap], off->python, part->waits_for);
            host_walk_part(walk, part, python, from, to);
        }
        walk->data = outer;
        begin = to;
    }
    if (begin < end)
        host_walk_plain(walk, off, begin, end);
}

// What a wait that left no gap was for: the system call of the nearest ticks of this phase, if
// there is one among them.
static uint32_t host_leaf_short(struct host_walk *walk, const struct host_thread *row, int64_t at)
{
    struct host_path *path = walk->path;
    uint32_t near[HOST_NEAREST];
    size_t count = host_ticks_near(row, walk->chain, at, near), i = 0;
    while (i < count && !(path->leaves[row->ticks[near[i]].leaf].flags & HOST_LEAF_CALL))
        i++;
    char *name = xasprintf("waits below the recorder's threshold%s%s", i < count ? ", in " : "",
            i < count ? path->leaves[row->ticks[near[i]].leaf].name : "");
    uint32_t leaf = host_leaf_named(path, COST_STALL, name, NULL);
    free(name);
    return leaf;
}

void host_walk_short(
        struct host_walk *walk, const struct host_thread *thread, int64_t begin, int64_t end)
{
    host_walk_give(walk, host_python_near(thread, walk->chain, begin),
            host_leaf_short(walk, thread, begin), walk->data ? COST_DATA_WAIT : COST_HOST_STALLED,
            end - begin, 0);
}
