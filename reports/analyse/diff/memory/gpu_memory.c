// SPDX-License-Identifier: Apache-2.0
// Who allocated the GPU memory that was held at its peak, of the traced launches: calls of CUDA as
// the library in the workload saw them, replayed. Each belongs to the module of the model that its
// thread was in, outside of all to the call itself: both are known of every call, so that launches
// compare. Where the thread was sampled, or slept, within the call, its stack says which function
// it was; that is by chance, and only names. Reads tables gpu_memory, gpu_call, sample and gap,
// each once for all launches, as none has an index that would find the rows of one, and python_mark
// by its index.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/hash.h"
#include "common/containers/map.h"
#include "common/containers/search.h"
#include "common/containers/sort.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "contracts/spool.h"
#include "reports/analyse/diff/memory/memory.h"
#include "reports/analyse/names/names.h"
#include "reports/analyse/trace/trace.h"

enum {
    GPU_LAUNCHES_MAX = 64,
    // allocations and releases of a launch; of one that has more nothing is told
    GPU_EVENTS_MAX = 1 << 22,
    GPU_LIVE_MAX = 1 << 14, // at the peak, the largest; a caching allocator has hundreds
    GPU_NAME_MAX = 256
};
enum { GPU_ALLOCATES = 1 }; // gpu_memory.operation

struct gpu_alloc {
    int64_t at_ns, process, correlation;
    double bytes;
    uint64_t born, released;          // numbers of events; released 0: it is held
    int64_t thread, begin_ns, end_ns; // of its call; thread 0: not known
    int64_t user, python;             // stacks; 0: none
    const char *call;                 // NULL: not known
    size_t launch;                    // of gpu_job
};
struct gpu_replay { // of one process
    struct gpu_alloc *allocs;
    size_t count;
    struct map last; // by device and address, its last allocation
    double held, peak;
    uint64_t event, peak_event;
};
struct gpu_live { // of a launch, at the peak of the process with the most; the largest
    struct gpu_alloc *allocs;
    size_t count, events;
    double peak;
};
struct gpu_job {
    const struct diff_input *input;
    struct diff_gpu_launch *launches;
    size_t launch_count;
    struct gpu_alloc *allocs; // live at the peak, of all launches
    size_t alloc_count;
    struct diff_touch_given *given;
    size_t given_count;
};

// --- what was held -------------------------------------------------------------------------------

static void gpu_release(struct gpu_replay *replay, uint64_t key)
{
    uint32_t at = map_get(&replay->last, key);
    if (at == MAP_NONE || replay->allocs[at].released)
        return; // allocated before anybody looked
    replay->allocs[at].released = replay->event;
    replay->held -= replay->allocs[at].bytes;
}

static void gpu_event(
        struct gpu_replay *replay, bool allocates, uint64_t key, struct gpu_alloc alloc)
{
    replay->event++;
    gpu_release(replay, key); // also of an address that is given again: its release was lost
    if (!allocates)
        return;
    alloc.born = replay->event;
    *map_put(&replay->last, key) = (uint32_t)replay->count;
    vector_push(replay->allocs, replay->count, alloc);
    replay->held += alloc.bytes;
    if (replay->held > replay->peak) {
        replay->peak = replay->held;
        replay->peak_event = replay->event;
    }
}

// The process is over: what it held at its peak, if no other one held more. Empty again.
static void gpu_process_end(struct gpu_replay *replay, struct gpu_live *live)
{
    if (replay->peak > live->peak) {
        live->peak = replay->peak;
        live->count = 0;
        free(live->allocs);
        live->allocs = NULL;
        for (size_t i = 0; i < replay->count; i++) {
            const struct gpu_alloc *alloc = &replay->allocs[i];
            if (alloc->born <= replay->peak_event &&
                    (!alloc->released || alloc->released > replay->peak_event))
                vector_push(live->allocs, live->count, *alloc);
        }
        sort_in_place(live->allocs, live->count, x, y, x->bytes > y->bytes);
        if (live->count > GPU_LIVE_MAX) {
            live->count = GPU_LIVE_MAX;
            live->allocs = xrealloc(live->allocs, GPU_LIVE_MAX * sizeof *live->allocs);
        }
    }
    map_free(&replay->last);
    free(replay->allocs);
    *replay = (struct gpu_replay){0};
}

// job->launch_count: none of them
static size_t gpu_launch_of(const struct gpu_job *job, int64_t id)
{
    size_t i = 0;
    while (i < job->launch_count && job->launches[i].id != id)
        i++;
    return i;
}

static int gpu_load(struct gpu_job *job, struct gpu_live *lives, struct error *err)
{
    struct store *store = job->input->store;
    // Memory of the device and its arrays; a release may not say of what kind it was.
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT m.process_id, m.operation, m.device, m.address, m.bytes, m.at_ns, m.correlation, c.launch_id "
            "FROM gpu_memory m CROSS JOIN process q ON q.id = m.process_id CROSS JOIN recording c ON c.id = q.recording_id "
            "WHERE c.launch_id IN (SELECT l.id FROM pair p JOIN launch l ON l.pair_id = p.id WHERE p.workload_id = ? AND "
            "p.phase = 'traced' AND p.state = 'valid') AND "
            "((m.operation = 1 AND m.kind IN (3, 4) AND m.bytes > 0) OR m.operation = 2) "
            "ORDER BY m.process_id, m.at_ns, m.rowid",
            "i", job->input->workload_id);
    struct gpu_replay replay = {0};
    struct gpu_live *live = NULL;
    int64_t process = 0;
    size_t launch = job->launch_count;
    int rc;
    while ((rc = store_step(store, stmt, err)) > 0) {
        struct gpu_alloc alloc = {.process = sqlite3_column_int64(stmt, 0),
                .bytes = sqlite3_column_double(stmt, 4),
                .at_ns = sqlite3_column_int64(stmt, 5),
                .correlation = sqlite3_column_int64(stmt, 6)};
        if (alloc.process != process) {
            if (live)
                gpu_process_end(&replay, live);
            process = alloc.process;
            launch = gpu_launch_of(job, sqlite3_column_int64(stmt, 7));
            live = launch < job->launch_count ? &lives[launch] : NULL;
        }
        if (!live || live->events == GPU_EVENTS_MAX)
            continue;
        live->events++;
        alloc.launch = launch;
        uint64_t key = hash_mix(hash_mix(0, (uint64_t)sqlite3_column_int64(stmt, 2)),
                (uint64_t)sqlite3_column_int64(stmt, 3));
        gpu_event(&replay, sqlite3_column_int64(stmt, 1) == GPU_ALLOCATES, key, alloc);
    }
    if (live)
        gpu_process_end(&replay, live);
    return rc;
}

// What was live in each launch, into one list.
static void gpu_gather(struct gpu_job *job, const struct gpu_live *lives)
{
    for (size_t i = 0; i < job->launch_count; i++) {
        // the latter: the end is not known
        if (!lives[i].count || lives[i].events == GPU_EVENTS_MAX)
            continue;
        job->launches[i].held = lives[i].peak;
        for (size_t k = 0; k < lives[i].count; k++)
            vector_push(job->allocs, job->alloc_count, lives[i].allocs[k]);
    }
}

// --- who allocated it ----------------------------------------------------------------------------

// "cuMemAlloc_v2" -> "cuMemAlloc", "cudaMalloc_v3020" -> "cudaMalloc"
static const char *gpu_call_name(struct arena *arena, const char *name)
{
    size_t len = strlen(name), at = len;
    while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9')
        at--;
    if (at > 2 && at < len && name[at - 1] == 'v' && name[at - 2] == '_')
        len = at - 2;
    return arena_print(arena, "%.*s", (int)len, name);
}

struct gpu_callers {
    struct gpu_job *job;
    struct map of_call; // by hashes of process and correlation
};

static void gpu_take_call(void *arg, const struct trace_call *call)
{
    struct gpu_callers *callers = arg;
    struct gpu_job *job = callers->job;
    uint32_t at = map_get(&callers->of_call,
            hash_mix(hash_mix(0, (uint64_t)call->process_id), (uint64_t)call->correlation));
    if (at == MAP_NONE || job->allocs[at].process != call->process_id ||
            job->allocs[at].correlation != call->correlation)
        return;
    struct gpu_alloc *alloc = &job->allocs[at];
    alloc->begin_ns = call->begin;
    alloc->end_ns = call->begin + call->ns;
    alloc->thread = call->thread_id;
    alloc->call = call->name ? gpu_call_name(job->input->arena, call->name) : NULL;
}

static int gpu_calls(struct gpu_job *job, struct error *err)
{
    struct gpu_callers callers = {.job = job};
    for (size_t i = 0; i < job->alloc_count; i++)
        *map_put(&callers.of_call,
                hash_mix(hash_mix(0, (uint64_t)job->allocs[i].process),
                        (uint64_t)job->allocs[i].correlation)) = (uint32_t)i;
    int rc = trace_calls_read(job->input->store, 0, gpu_take_call, &callers, err);
    map_free(&callers.of_call);
    return rc;
}

// Calls of a thread lie one behind the other: what was seen of it within one is of that call.
static int gpu_stacks(struct gpu_job *job, struct error *err)
{
    struct store *store = job->input->store;
    struct gpu_alloc *allocs = job->allocs;
    size_t count = job->alloc_count;
    sort_in_place(allocs, count, x, y,
            x->thread != y->thread ? x->thread < y->thread : x->begin_ns < y->begin_ns);
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT thread_id, at_ns, user_stack, python_stack FROM sample "
            "WHERE coalesce(user_stack, python_stack) IS NOT NULL UNION ALL "
            "SELECT thread_id, out_ns, user_stack, python_stack FROM gap "
            "WHERE coalesce(user_stack, python_stack) IS NOT NULL",
            "");
    int rc;
    while ((rc = store_step(store, stmt, err)) > 0) {
        int64_t thread = sqlite3_column_int64(stmt, 0), at_ns = sqlite3_column_int64(stmt, 1);
        size_t next = search_first(i, count,
                allocs[i].thread > thread ||
                        (allocs[i].thread == thread && allocs[i].begin_ns > at_ns));
        struct gpu_alloc *alloc = next ? &allocs[next - 1] : NULL;
        if (!alloc || alloc->thread != thread || at_ns > alloc->end_ns || alloc->user ||
                alloc->python)
            continue;
        alloc->user = sqlite3_column_int64(stmt, 2);
        alloc->python = sqlite3_column_int64(stmt, 3);
    }
    return rc;
}

// "backward of layers.*.attn"; "cuMemAlloc outside of modules" of a thread that was in one before;
// "cuMemAlloc".
static int gpu_caller(
        struct gpu_job *job, const struct gpu_alloc *alloc, const char **ret, struct error *err)
{
    char place[GPU_NAME_MAX];
    struct store *store = job->input->store;
    struct arena *arena = job->input->arena;
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT m.kind, n.text FROM python_mark m LEFT JOIN string n ON n.id = m.name_id WHERE m.thread_id = ? "
            "AND m.kind IN (1, 2) AND m.at_ns <= ? ORDER BY m.at_ns DESC LIMIT 1",
            "ii", alloc->thread, alloc->begin_ns);
    int rc = stmt ? store_step(store, stmt, err) : err->code;
    *ret = alloc->call;
    if (rc > 0) {
        const char *module = (const char *)sqlite3_column_text(stmt, 1);
        bool backward = sqlite3_column_int64(stmt, 0) == UG_MARK_BACKWARD;
        names_place(module ? module : "", place, sizeof place);
        *ret = *place ? arena_print(arena, "%s%s", backward ? "backward of " : "", place)
                      : arena_print(arena, "%s outside of modules", alloc->call);
        sqlite3_reset(stmt);
    }
    return rc < 0 ? rc : 0;
}

static int gpu_name(struct gpu_job *job, struct error *err)
{
    int rc = 0;
    sort_in_place(job->allocs, job->alloc_count, x, y,
            x->launch != y->launch           ? x->launch < y->launch
                    : x->thread != y->thread ? x->thread < y->thread
                                             : x->begin_ns < y->begin_ns);
    for (size_t i = 0; i < job->alloc_count && rc == 0; i++) {
        const struct gpu_alloc *alloc = &job->allocs[i];
        const struct diff_gpu_launch *launch = &job->launches[alloc->launch];
        struct diff_touch touch = {0};
        if (!alloc->call)
            continue;
        rc = gpu_caller(job, alloc, &touch.caller, err);
        if (rc == 0 && (alloc->user || alloc->python))
            rc = diff_touched_code(
                    job->input, alloc->user, alloc->python, &touch.function, &touch.module, err);
        vector_push(job->given, job->given_count,
                (struct diff_touch_given){alloc->launch, touch, alloc->bytes,
                        alloc->begin_ns < launch->step_ns && launch->step_ns != INT64_MAX});
    }
    return rc;
}

static int gpu_held(struct gpu_job *job, struct error *err)
{
    struct gpu_live *lives = xcalloc(job->launch_count + 1, sizeof *lives);
    int rc = gpu_load(job, lives, err);
    if (rc == 0)
        gpu_gather(job, lives);
    for (size_t i = 0; i < job->launch_count; i++)
        free(lives[i].allocs);
    free(lives);
    if (rc || !job->alloc_count)
        return rc;
    rc = gpu_calls(job, err);
    rc = rc ? rc : gpu_stacks(job, err);
    return rc ? rc : gpu_name(job, err);
}

// --- the launches --------------------------------------------------------------------------------

static int gpu_launches(struct gpu_job *job, struct error *err)
{
    struct store *store = job->input->store;
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT l.id, l.side, l.peak_gpu_memory_bytes, (SELECT t.value FROM launch_value r JOIN launch_value t "
            "ON t.launch_id = r.launch_id AND t.rank = r.rank AND t.name = 'peak_gpu_tensor_bytes' "
            "WHERE r.launch_id = l.id AND r.name = 'peak_gpu_memory_bytes' ORDER BY r.value DESC, r.rank LIMIT 1), "
            "l.started_ns + (SELECT min(s.begin_ns) FROM step s WHERE s.launch_id = l.id) FROM pair p JOIN launch l "
            "ON l.pair_id = p.id WHERE p.workload_id = ? AND p.phase = 'traced' AND p.state = 'valid' AND "
            "l.peak_gpu_memory_bytes > 0 ORDER BY l.id LIMIT ?",
            "ii", job->input->workload_id, (int64_t)GPU_LAUNCHES_MAX);
    int rc;
    while ((rc = store_step(store, stmt, err)) > 0) {
        double reserved = sqlite3_column_double(stmt, 2), tensors = store_double(stmt, 3);
        bool steps = sqlite3_column_type(stmt, 4) != SQLITE_NULL;
        struct diff_gpu_launch launch = {.id = sqlite3_column_int64(stmt, 0),
                .side = sqlite3_column_int(stmt, 1) == 1,
                .step_ns = steps ? sqlite3_column_int64(stmt, 4) : INT64_MAX,
                .reserved = reserved,
                .tensors = tensors >= 0 ? fmin(tensors, reserved) : NAN,
                .held = NAN};
        vector_push(job->launches, job->launch_count, launch);
    }
    return rc;
}

int diff_gpu_memory(const struct diff_input *input, struct diff_memory *memory, double least,
        struct diff_gpu_launch **ret_launches, size_t *ret_count, struct error *err)
{
    struct gpu_job job = {.input = input};
    int sides[GPU_LAUNCHES_MAX] = {0}, rc = gpu_launches(&job, err);
    bool told = true;
    if (rc == 0 && job.launch_count)
        rc = gpu_held(&job, err);
    for (size_t i = 0; i < job.launch_count && rc == 0; i++) {
        sides[i] = job.launches[i].side;
        told &= !isnan(job.launches[i].held);
    }
    if (rc == 0 && told)
        diff_touched_given(
                input, memory, sides, job.launch_count, job.given, job.given_count, least);
    free(job.given);
    free(job.allocs);
    *ret_launches = job.launches;
    *ret_count = job.launch_count;
    return rc;
}
