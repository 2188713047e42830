// SPDX-License-Identifier: Apache-2.0
// The host's part of a Perfetto trace: each thread's stays off the CPU with what the stall analysis
// found to be their cause, and each sample as a slice of the function it hit, as long as nothing
// else is known. Unlike the analysis it keeps what lies outside the launch's own turns: a person
// looks at the whole launch.
#include <errno.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/stalls/parts.h"
#include "reports/analyse/stalls/stalls.h"
#include "reports/render/perfetto/pftrace_parts.h"

enum { HOST_STACK_FRAMES = 16 };

struct host_stack {       // numbers of its texts
    uint64_t leaf, whole; // 0: none
    bool made;
};

struct host {
    struct pftrace *trace;
    struct work work;
    struct host_stack *stacks; // as those of the trace's events
    uint64_t key_kernel, key_python, key_user;
};

// Leaf first: "leaf < caller < caller".
static void host_stack_texts(struct host *host, uint32_t stack)
{
    const struct trace *events = host->trace->events;
    const struct trace_stack *of = &events->stacks[stack];
    struct pf *pf = host->trace->pf;
    struct strbuf whole = {0};
    const char *inside = trace_inside(events, stack, 0);
    for (uint32_t i = 0; i < of->count && i < HOST_STACK_FRAMES; i++) {
        const char *name = events->frames[events->stack_frames[of->first + i]].name;
        char *leaf = !i && inside ? xasprintf("%s (inside %s)", name, inside) : NULL;
        if (leaf)
            name = leaf;
        if (!i)
            host->stacks[stack].leaf = pf_text(pf, PF_TEXT_NAME, name);
        strbuf_add(&whole, "%s%s", i ? " < " : "", name);
        free(leaf);
    }
    if (whole.len)
        host->stacks[stack].whole = pf_text(pf, PF_TEXT_VALUE, whole.text);
    strbuf_free(&whole);
}

static struct host_stack host_stack(struct host *host, sqlite3_stmt *stmt, int column)
{
    uint32_t at = trace_stack_of(host->trace->events, sqlite3_column_int64(stmt, column));
    if (at && !host->stacks[at].made) {
        host->stacks[at].made = true;
        host_stack_texts(host, at);
    }
    return host->stacks[at];
}

// The stall analysis' answer for a stay off the CPU: the part that most of it belongs to.
static const char *host_cause(const struct host *host, uint32_t thread, int64_t begin, int64_t end)
{
    const struct part *best = NULL;
    int64_t best_ns = 0;
    uint32_t last = 0;
    if (thread == TRACE_NONE || !host->work.part_first)
        return NULL;
    for (uint32_t i = parts_range(&host->work, thread, begin, end, &last); i < last; i++) {
        const struct part *part = &host->work.parts[i];
        int64_t ns = parts_overlap(part->begin, part->end, begin, end);
        if (ns > best_ns) {
            best = part;
            best_ns = ns;
        }
    }
    return best && best->cause < CAUSE_COUNT ? causes_row(best->cause)->title : NULL;
}

static int host_gaps(struct host *host, struct error *err)
{
    struct pftrace *trace = host->trace;
    sqlite3_stmt *stmt = store_query(trace->store, err,
            "SELECT g.thread_id, g.out_ns, g.in_ns, g.waking_ns IS NULL, g.kernel_stack, "
            "g.user_stack, g.python_stack FROM process p JOIN thread t ON t.process_id = p.id JOIN gap g ON "
            "g.thread_id = t.id WHERE p.recording_id = ? ORDER BY g.thread_id, g.out_ns",
            "i", trace->recording);
    int rc = stmt ? 1 : -EIO;
    int64_t last = 0;
    struct pftrace_thread *thread = NULL;
    uint32_t index = TRACE_NONE;
    while (rc == 1 && !pf_failed(trace->pf) && (rc = store_step(trace->store, stmt, err)) == 1) {
        int64_t id = sqlite3_column_int64(stmt, 0);
        if (!thread || id != last) {
            thread = pftrace_thread(trace, id);
            index = thread ? (uint32_t)(thread - trace->threads) : TRACE_NONE;
            last = id;
        }
        struct pf_slice slice = {
                .begin = sqlite3_column_int64(stmt, 1), .end = sqlite3_column_int64(stmt, 2)};
        if (!thread || slice.end < slice.begin)
            continue;
        const char *cause = host_cause(host, index, slice.begin, slice.end);
        slice.name = pf_text(trace->pf, PF_TEXT_NAME,
                cause                                 ? cause
                        : sqlite3_column_int(stmt, 3) ? "waits for a CPU"
                                                      : "waits");
        const uint64_t keys[3] = {host->key_kernel, host->key_user, host->key_python};
        for (int i = 0, at = 0; i < 3; i++) {
            uint64_t whole = host_stack(host, stmt, 4 + i).whole;
            if (whole)
                slice.notes[at++] = (struct pf_note){keys[i], whole};
        }
        pf_lane_add(trace->pf, pftrace_row(trace, thread, PFTRACE_WAITS), &slice);
    }
    return rc == 1 ? 0 : rc;
}

static void host_sample(
        struct host *host, struct pftrace_thread *thread, struct pf_slice *slice, int64_t next)
{
    if (!thread)
        return;
    slice->end = slice->begin + host->trace->events->tick_ns;
    if (next >= slice->begin && next < slice->end)
        slice->end = next;
    pf_lane_add(host->trace->pf, pftrace_row(host->trace, thread, PFTRACE_SAMPLES), slice);
}

static int host_samples(struct host *host, struct error *err)
{
    struct pftrace *trace = host->trace;
    sqlite3_stmt *stmt = store_query(trace->store, err,
            "SELECT thread_id, at_ns, kernel_stack, user_stack, python_stack FROM sample WHERE "
            "thread_id IN (SELECT t.id FROM process p JOIN thread t ON t.process_id = p.id WHERE "
            "p.recording_id = ?) ORDER BY thread_id, at_ns",
            "i", trace->recording);
    int rc = stmt ? 1 : -EIO;
    struct pftrace_thread *thread = NULL; // of the sample that waits for its end
    struct pf_slice slice = {0};
    while (rc == 1 && !pf_failed(trace->pf) && (rc = store_step(trace->store, stmt, err)) == 1) {
        struct pftrace_thread *next = pftrace_thread(trace, sqlite3_column_int64(stmt, 0));
        int64_t at = sqlite3_column_int64(stmt, 1);
        host_sample(host, thread, &slice, next == thread ? at : INT64_MAX);
        thread = next;
        slice = (struct pf_slice){.begin = at};
        const uint64_t keys[3] = {host->key_kernel, host->key_user, host->key_python};
        for (int i = 0, k = 0; i < 3; i++) {
            struct host_stack stack = host_stack(host, stmt, 2 + i);
            if (stack.whole)
                slice.notes[k++] = (struct pf_note){keys[i], stack.whole};
            if (!slice.name)
                slice.name = stack.leaf;
        }
        if (!slice.name)
            slice.name = pf_text(trace->pf, PF_TEXT_NAME, "(running)");
    }
    if (rc >= 0)
        host_sample(host, thread, &slice, INT64_MAX);
    return rc == 1 ? 0 : rc;
}

static int host_gc(struct pftrace *trace, struct error *err)
{
    sqlite3_stmt *stmt = store_query(trace->store, err,
            "SELECT g.thread_id, g.start_ns, g.dur_ns, g.generation FROM process p JOIN "
            "python_gc g ON g.process_id = p.id WHERE p.recording_id = ? ORDER BY g.start_ns",
            "i", trace->recording);
    int rc = stmt ? 1 : -EIO;
    while (rc == 1 && (rc = store_step(trace->store, stmt, err)) == 1) {
        struct pftrace_thread *thread = pftrace_thread(trace, sqlite3_column_int64(stmt, 0));
        int64_t begin = sqlite3_column_int64(stmt, 1), dur = sqlite3_column_int64(stmt, 2);
        if (!thread || dur < 0)
            continue;
        char *name = xasprintf("garbage collection, generation %d", sqlite3_column_int(stmt, 3));
        struct pf_slice slice = {
                .begin = begin, .end = begin + dur, .name = pf_text(trace->pf, PF_TEXT_NAME, name)};
        pf_lane_add(trace->pf, pftrace_row(trace, thread, PFTRACE_GC), &slice);
        free(name);
    }
    return rc;
}

int pftrace_host(struct pftrace *trace, struct error *err)
{
    struct host host = {
            .trace = trace, .stacks = xcalloc(trace->events->stack_count + 1, sizeof *host.stacks)};
    host.key_kernel = pf_text(trace->pf, PF_TEXT_KEY, "kernel stack");
    host.key_user = pf_text(trace->pf, PF_TEXT_KEY, "stack");
    host.key_python = pf_text(trace->pf, PF_TEXT_KEY, "Python");
    work_init(&host.work, trace->events);
    work_find(&host.work);
    int rc = host_gaps(&host, err);
    if (!rc)
        rc = host_samples(&host, err);
    if (!rc)
        rc = host_gc(trace, err);
    work_free(&host.work);
    free(host.stacks);
    return rc;
}
