// SPDX-License-Identifier: Apache-2.0
// Who allocated the GPU memory that was held at its peak, of the traced launches: calls of CUDA as the library in the workload saw
// them, replayed. Each belongs to the module of the model that its thread was in, outside of all to the call itself: both are known
// of every call, so that launches compare. Where the thread was sampled, or slept, within the call, its stack says which function it
// was; that is by chance, and only names. Reads tables gpu_memory, gpu_call, python_mark, sample, gap.
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
#include "reports/analyse/diff/diff_job.h"
#include "reports/analyse/names/names.h"

enum {
    GPU_LAUNCHES_MAX = 64,
    GPU_EVENTS_MAX = 1 << 22, // allocations and releases of a launch; of one that has more nothing is told
    GPU_LIVE_MAX = 1 << 14,   // at the peak, the largest; a caching allocator has hundreds
    GPU_NAME_MAX = 256
};
enum { GPU_ALLOCATES = 1 }; // gpu_memory.operation

struct gpu_alloc {
    int64_t at_ns, process, correlation;
    double bytes;
    uint64_t born, released; // numbers of events; released 0: it is held
    int64_t thread, begin_ns, end_ns; // of its call; thread 0: not known
    int64_t user, python;             // stacks; 0: none
    const char *call;                 // NULL: not known
};
struct gpu_replay { // of one process
    struct gpu_alloc *allocs;
    size_t count;
    struct map last; // by device and address, its last allocation
    double held, peak;
    uint64_t event, peak_event;
};
struct gpu_live { // at the peak of the process with the most
    struct gpu_alloc *allocs;
    size_t count;
    double peak;
};
struct gpu_job {
    struct diff_job *job;
    struct diff_gpu_launch *launches;
    size_t launch_count;
    struct diff_touch_given *given;
    size_t given_count;
};

// --- what was held --------------------------------------------------------------------------------

static void gpu_release(struct gpu_replay *replay, uint64_t key)
{
    uint32_t at = map_get(&replay->last, key);
    if (at == MAP_NONE || replay->allocs[at].released)
        return; // allocated before anybody looked
    replay->allocs[at].released = replay->event;
    replay->held -= replay->allocs[at].bytes;
}

static void gpu_event(struct gpu_replay *replay, bool allocates, uint64_t key, struct gpu_alloc alloc)
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
            if (alloc->born <= replay->peak_event && (!alloc->released || alloc->released > replay->peak_event))
                vector_push(live->allocs, live->count, *alloc);
        }
    }
    map_free(&replay->last);
    free(replay->allocs);
    *replay = (struct gpu_replay){0};
}

static int gpu_load(struct gpu_job *job, int64_t launch_id, struct gpu_live *live, struct error *err)
{
    struct store *store = job->job->store;
    // Memory of the device and its arrays; a release may not say of what kind it was.
    sqlite3_stmt *stmt = store_query(store, err,
                                     "SELECT m.process_id, m.operation, m.device, m.address, m.bytes, m.at_ns, m.correlation FROM gpu_memory m "
                                     "CROSS JOIN process q ON q.id = m.process_id CROSS JOIN recording c ON c.id = q.recording_id "
                                     "WHERE c.launch_id = ? AND ((m.operation = 1 AND m.kind IN (3, 4) AND m.bytes > 0) OR m.operation = 2) "
                                     "ORDER BY m.process_id, m.at_ns, m.rowid LIMIT ?",
                                     "ii", launch_id, (int64_t)GPU_EVENTS_MAX);
    struct gpu_replay replay = {0};
    int64_t process = 0;
    size_t events = 0;
    int rc = stmt ? 0 : err->code;
    while (stmt && (rc = store_step(store, stmt, err)) > 0) {
        struct gpu_alloc alloc = {.process = sqlite3_column_int64(stmt, 0),
                                  .bytes = sqlite3_column_double(stmt, 4),
                                  .at_ns = sqlite3_column_int64(stmt, 5),
                                  .correlation = sqlite3_column_int64(stmt, 6)};
        if (alloc.process != process)
            gpu_process_end(&replay, live);
        process = alloc.process;
        uint64_t key = hash_mix(hash_mix(0, (uint64_t)sqlite3_column_int64(stmt, 2)), (uint64_t)sqlite3_column_int64(stmt, 3));
        gpu_event(&replay, sqlite3_column_int64(stmt, 1) == GPU_ALLOCATES, key, alloc);
        events++;
    }
    gpu_process_end(&replay, live);
    if (events == GPU_EVENTS_MAX)
        live->count = 0; // the end is not known
    return rc;
}

// --- who allocated it -----------------------------------------------------------------------------

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

static int gpu_calls(struct gpu_job *job, struct gpu_live *live, struct error *err)
{
    struct store *store = job->job->store;
    sqlite3_stmt *stmt = store_query(store, err,
                                     "SELECT c.correlation, c.start_ns, c.dur_ns, c.thread_id, s.text FROM gpu_call c JOIN string s "
                                     "ON s.id = c.name_id WHERE c.process_id = ?",
                                     "i", live->allocs[0].process);
    struct map of_correlation = {0};
    int rc = stmt ? 0 : err->code;
    for (size_t i = 0; i < live->count; i++)
        *map_put(&of_correlation, (uint64_t)live->allocs[i].correlation) = (uint32_t)i;
    while (stmt && (rc = store_step(store, stmt, err)) > 0) {
        uint32_t at = map_get(&of_correlation, (uint64_t)sqlite3_column_int64(stmt, 0));
        if (at == MAP_NONE)
            continue;
        struct gpu_alloc *alloc = &live->allocs[at];
        alloc->begin_ns = sqlite3_column_int64(stmt, 1);
        alloc->end_ns = alloc->begin_ns + sqlite3_column_int64(stmt, 2);
        alloc->thread = sqlite3_column_int64(stmt, 3); // NULL: 0
        alloc->call = gpu_call_name(job->job->arena, store_text(store, stmt, 4));
    }
    map_free(&of_correlation);
    return rc;
}

// Calls of a thread lie one behind the other: what was seen of it within one is of that call.
static int gpu_stacks(struct gpu_job *job, struct gpu_live *live, struct error *err)
{
    struct store *store = job->job->store;
    sort_in_place(live->allocs, live->count, x, y, x->thread != y->thread ? x->thread < y->thread : x->begin_ns < y->begin_ns);
    sqlite3_stmt *stmt = store_query(store, err,
                                     "SELECT s.thread_id, s.at_ns, s.user_stack, s.python_stack FROM sample s CROSS JOIN thread t "
                                     "ON t.id = s.thread_id WHERE t.process_id = ? AND coalesce(s.user_stack, s.python_stack) IS NOT NULL UNION ALL "
                                     "SELECT g.thread_id, g.out_ns, g.user_stack, g.python_stack FROM gap g CROSS JOIN thread t "
                                     "ON t.id = g.thread_id WHERE t.process_id = ? AND coalesce(g.user_stack, g.python_stack) IS NOT NULL",
                                     "ii", live->allocs[0].process, live->allocs[0].process);
    int rc = stmt ? 0 : err->code;
    while (stmt && (rc = store_step(store, stmt, err)) > 0) {
        int64_t thread = sqlite3_column_int64(stmt, 0), at_ns = sqlite3_column_int64(stmt, 1);
        size_t next = search_first(i, live->count,
                                   live->allocs[i].thread > thread || (live->allocs[i].thread == thread && live->allocs[i].begin_ns > at_ns));
        struct gpu_alloc *alloc = next ? &live->allocs[next - 1] : NULL;
        if (!alloc || alloc->thread != thread || at_ns > alloc->end_ns || alloc->user || alloc->python)
            continue;
        alloc->user = sqlite3_column_int64(stmt, 2);
        alloc->python = sqlite3_column_int64(stmt, 3);
    }
    return rc;
}

// "backward of layers.*.attn"; "cuMemAlloc outside of modules" of a thread that was in one before; "cuMemAlloc".
static int gpu_caller(struct gpu_job *job, const struct gpu_alloc *alloc, const char **ret, struct error *err)
{
    char place[GPU_NAME_MAX];
    struct store *store = job->job->store;
    struct arena *arena = job->job->arena;
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
        *ret = *place ? arena_print(arena, "%s%s", backward ? "backward of " : "", place) : arena_print(arena, "%s outside of modules", alloc->call);
        sqlite3_reset(stmt);
    }
    return rc < 0 ? rc : 0;
}

static int gpu_name(struct gpu_job *job, size_t launch, const struct gpu_live *live, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; i < live->count && rc == 0; i++) {
        const struct gpu_alloc *alloc = &live->allocs[i];
        struct diff_touch touch = {0};
        if (!alloc->call)
            continue;
        rc = gpu_caller(job, alloc, &touch.caller, err);
        if (rc == 0 && (alloc->user || alloc->python))
            rc = diff_touched_code(job->job, alloc->user, alloc->python, &touch.function, &touch.module, err);
        vector_push(job->given, job->given_count,
                    (struct diff_touch_given){launch, touch, alloc->bytes,
                                              alloc->begin_ns < job->launches[launch].step_ns && job->launches[launch].step_ns != INT64_MAX});
    }
    return rc;
}

static int gpu_launch(struct gpu_job *job, size_t launch, struct error *err)
{
    struct gpu_live live = {0};
    int rc = gpu_load(job, job->launches[launch].id, &live, err);
    if (rc == 0 && live.count) {
        job->launches[launch].held = live.peak;
        sort_in_place(live.allocs, live.count, x, y, x->bytes > y->bytes);
        live.count = live.count < GPU_LIVE_MAX ? live.count : GPU_LIVE_MAX;
        rc = gpu_calls(job, &live, err);
        rc = rc ? rc : gpu_stacks(job, &live, err);
        rc = rc ? rc : gpu_name(job, launch, &live, err);
    }
    free(live.allocs);
    return rc;
}

// --- the launches ---------------------------------------------------------------------------------

static int gpu_launches(struct gpu_job *job, struct error *err)
{
    struct store *store = job->job->store;
    sqlite3_stmt *stmt = store_query(store, err,
                                     "SELECT l.id, l.side, l.peak_gpu_memory_bytes, (SELECT t.value FROM launch_value r JOIN launch_value t "
                                     "ON t.launch_id = r.launch_id AND t.rank = r.rank AND t.name = 'peak_gpu_tensor_bytes' "
                                     "WHERE r.launch_id = l.id AND r.name = 'peak_gpu_memory_bytes' ORDER BY r.value DESC, r.rank LIMIT 1), "
                                     "l.started_ns + (SELECT min(s.begin_ns) FROM step s WHERE s.launch_id = l.id) FROM pair p JOIN launch l "
                                     "ON l.pair_id = p.id WHERE p.workload_id = ? AND p.phase = 'traced' AND p.state = 'valid' AND "
                                     "l.peak_gpu_memory_bytes > 0 ORDER BY l.id LIMIT ?",
                                     "ii", job->job->workload_id, (int64_t)GPU_LAUNCHES_MAX);
    int rc = stmt ? 0 : err->code;
    while (stmt && (rc = store_step(store, stmt, err)) > 0) {
        double reserved = sqlite3_column_double(stmt, 2), tensors = diff_column(stmt, 3);
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

int diff_gpu_memory(struct diff_job *diff, struct diff_memory *memory, double least, struct diff_gpu_launch **ret_launches, size_t *ret_count,
                    struct error *err)
{
    struct gpu_job job = {.job = diff};
    int sides[GPU_LAUNCHES_MAX] = {0}, rc = gpu_launches(&job, err);
    bool told = true;
    for (size_t i = 0; i < job.launch_count && rc == 0; i++) {
        rc = gpu_launch(&job, i, err);
        sides[i] = job.launches[i].side;
        told &= !isnan(job.launches[i].held);
    }
    if (rc == 0 && told)
        diff_touched_given(diff, memory, sides, job.launch_count, job.given, job.given_count, least);
    free(job.given);
    *ret_launches = job.launches;
    *ret_count = job.launch_count;
    return rc;
}
