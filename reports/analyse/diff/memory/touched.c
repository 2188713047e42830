// SPDX-License-Identifier: Apache-2.0
// By which code memory was touched first, of a workload whose peak_memory differs: the page faults
// that the traced launches were sampled at, of pages that were resident where the launch stood
// still last. A page that was given back and touched again is its last fault's; memory that was
// given back is nobody's. Huge pages and the neighbours that a file's page brings come without
// faults of their own, so bytes are not counted by faults: what lies between two of them is
// divided. Reads the store.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/events.h"
#include "common/containers/hash.h"
#include "common/containers/intern.h"
#include "common/containers/map.h"
#include "common/containers/search.h"
#include "common/containers/sort.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/diff/memory/memory.h"
#include "reports/analyse/diff/path/host_path_index.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/names/names.h"
#include "reports/analyse/names/wordlists.h"
#include "reports/analyse/trace/trace.h"

enum {
    // of a launch: half an hour of a CPU that always faults, two minutes of 16
    TOUCHED_FAULTS_MAX = 1 << 18,
    TOUCHED_RANGES_MAX = 1 << 16,
    TOUCHED_GROUPS_MAX = 1 << 14,
    TOUCHED_LAUNCHES_MAX = 64,
    TOUCHED_NAME_MAX = 64,
    TOUCHED_LATER_MAX = 256, // neighbours on each side that are asked whether they came later
};

#define TOUCHED_NONE UINT32_MAX

struct touched_range {
    uint64_t begin, end;
    double bytes;
    int64_t pid, at_ns;
    const char *kind, *name; // of table launch_range; interned by text
};
struct touched_fault {
    uint64_t address;
    int64_t pid, at_ns, user, python;
    uint32_t range, group, level;
    bool start;
};
struct touched_place { // of a native function within a group
    uint32_t group;
    const char *function, *module;
    bool loads; // as of a touch
    double bytes[2];
    size_t times[2]; // faults, or what was given
};
struct touched_group {
    struct diff_touch touch;
    double *bytes; // of each launch
};
struct touched_launch {
    int64_t id, step_ns; // step_ns: when its first step began; INT64_MAX: it has none
    int side;
};
struct touched_job {
    const struct diff_input *input;
    struct diff_memory *memory;
    struct touched_launch *launches;
    size_t launch_count;
    struct touched_range *ranges; // of the launch that is looked at, by process and address
    size_t range_count;
    struct touched_fault *faults; // likewise, those of resident pages
    size_t fault_count;
    struct touched_group *groups;
    size_t group_count;
    struct touched_place *places;
    size_t place_count;
    struct map group_of, place_of; // by hashes of their texts
    bool partly;                   // only what was sampled by chance has a function
};

// --- what a stack is called ----------------------------------------------------------------------

// What copies, allocates and starts for others: who called it is the answer.
static bool touched_serves(const struct trace_name *frame)
{
    static const char *const modules[] = {"libc.so", "libc-", "ld-linux", "ld-2", "ld-musl",
            "libstdc++", "libjemalloc", "libtcmalloc", "libmimalloc", "libpthread", "[vdso]",
            "[kernel]", NULL};
    static const char *const names[] = {"operator new", "malloc", "calloc", "realloc", "_start",
            "__libc_start", "memcpy", "memmove", "memset", "__mem", NULL};
    return words_begin(frame->module, modules) || words_begin(frame->name, names) ||
            frame->name[0] == '[' || names_is_nameless(frame->name);
}

// What stands between a program and its GPU's memory.
static bool touched_drives(const struct trace_name *frame)
{
    static const char *const modules[] = {
            "libcuda.so", "libcudart", "libcupti", "libnvidia", "libupgate", "libc10_cuda", NULL};
    return words_begin(frame->module, modules);
}

// "in_arena.<locals>.<listcomp>" -> "in_arena", as newer versions of Python inline it. False:
// nothing is left.
static bool touched_python_name(char *name)
{
    static const char *const inner[] = {"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", NULL};
    for (size_t i = 0; inner[i]; i++) {
        char *at = strstr(name, inner[i]);
        if (!at)
            continue;
        *at = 0;
        size_t len = strlen(name), end = strlen(".<locals>.");
        name[len >= end && strcmp(name + len - end, ".<locals>.") == 0 ? len - end : len] = 0;
    }
    return *name != 0;
}

// "torch" of "torch/optim/adam.py"; a file outside of packages is one of its own.
static size_t touched_package(const char *file)
{
    return strcspn(file, "/");
}

// "import of torch" of ".../site-packages/torch/optim/adam.py", "import of mine" of
// "/srv/mine/__init__.py" and of "/srv/mine.py"
static const char *touched_imported(struct arena *arena, const char *path)
{
    char *file = host_python_module(NULL, path);
    const char *module = file,
               *folder = strcmp(file, "__init__.py") == 0 ? strrchr(path, '/') : NULL;
    if (folder) { // a package outside of those that are installed: its folder has its name
        while (folder > path && folder[-1] != '/')
            folder--;
        module = folder;
    }
    const char *name = host_path_import(arena, module, true);
    free(file);
    return name ? name : "import of modules";
}

// Of the modules that are imported by an import the outermost one that is installed, not the
// program's own, which imports it: "import of torch". NULL: nothing is imported.
static const char *touched_import(struct touched_job *job, const struct trace_names *python)
{
    bool importing = false;
    const char *own = NULL;
    for (size_t i = python->count; i--;) {
        const struct trace_name *frame = &python->functions[i];
        bool machinery = strncmp(frame->module, "<frozen importlib", 17) == 0;
        if (!importing || machinery || strcmp(frame->name, "<module>") != 0) {
            importing |= machinery;
            continue;
        }
        bool installed =
                strstr(frame->module, "-packages/") || strstr(frame->module, "/lib/python");
        if (installed)
            return touched_imported(job->input->arena, frame->module);
        own = own ? own : frame->module;
    }
    if (own)
        return touched_imported(job->input->arena, own);
    return importing ? "import of modules" : NULL;
}

static void touched_name_python(
        struct touched_job *job, const struct trace_names *python, struct diff_touch *touch)
{
    struct arena *arena = job->input->arena;
    touch->caller = touched_import(job, python);
    for (size_t i = 0;
            i < python->count && !touch->outside && !(touch->caller && !touch->caller_file); i++) {
        const struct trace_name *frame = &python->functions[i];
        char *file = host_python_module(NULL, frame->module), *name = xstrdup(frame->name);
        bool says = touched_python_name(name) && name[0] != '[' && !host_is_dropped(name, file) &&
                !host_is_plumbing(name, file);
        if (says && !touch->caller) {
            touch->caller = arena_copy(arena, name);
            touch->caller_file = arena_copy(arena, file);
        } else if (says && strcmp(name, "<module>") != 0 &&
                (touched_package(file) != touched_package(touch->caller_file) ||
                        strncmp(file, touch->caller_file, touched_package(file)) != 0)) {
            touch->outside = arena_copy(arena, name);
            touch->outside_file = arena_copy(arena, file);
        }
        free(name);
        free(file);
    }
}

// range: NULL: of a GPU's memory.
static void touched_name_native(struct touched_job *job, const struct trace_names *user,
        const struct touched_range *range, struct diff_touch *touch)
{
    char name[TOUCHED_NAME_MAX + 1];
    struct arena *arena = job->input->arena;
    const char *file = range ? range->name : "";
    if (user->count && *file && strncmp(user->functions[0].module, "ld-", 3) == 0) {
        touch->function = diff_memory_key(arena, file);
        touch->loads = true;
        return;
    }
    for (size_t i = 0; i < user->count && !touch->function; i++) {
        const struct trace_name *frame = &user->functions[i];
        bool python = names_is_interpreter(frame->name, frame->module);
        if (!python && (touched_serves(frame) || (!range && touched_drives(frame))))
            continue;
        if (python && touch->caller)
            return; // the Python function itself made an object
        names_short(frame->name, name, sizeof name, TOUCHED_NAME_MAX);
        touch->function = python ? "Python interpreter" : arena_copy(arena, name);
        touch->module = python ? NULL : diff_memory_key(arena, frame->module);
    }
    if (touch->function || touch->caller || !user->count || !range)
        return;
    names_short(user->functions[0].name, name, sizeof name, TOUCHED_NAME_MAX);
    touch->function = arena_copy(arena, name);
    touch->module = diff_memory_key(arena, user->functions[0].module);
}

static int touched_stack(
        struct touched_job *job, int64_t id, struct trace_names *ret, struct error *err)
{
    int rc = trace_read_stack(job->input->store, id, job->input->arena, ret, err);
    for (size_t i = 0; i < ret->count; i++)
        ret->functions[i].module = ret->functions[i].module ? ret->functions[i].module : "";
    return rc;
}

// --- groups --------------------------------------------------------------------------------------

static uint64_t touched_hash(uint64_t hash, const char *text)
{
    return hash_bytes(hash, text ? text : "", text ? strlen(text) : 0);
}

static uint64_t touched_native(uint64_t key, const struct diff_touch *touch)
{
    return hash_mix(touched_hash(touched_hash(key, touch->function), touch->module), touch->loads);
}

// What is the same on both sides: the Python function, whatever native function of a version works
// for it; without one the native function.
static uint32_t touched_group(struct touched_job *job, const struct diff_touch *touch)
{
    uint64_t key = touched_hash(1, touch->caller);
    key = touched_hash(touched_hash(key, touch->caller_file), touch->outside);
    if (!touch->caller)
        key = touched_native(key, touch);
    uint32_t *slot = map_put(&job->group_of, key);
    if (*slot != MAP_NONE)
        return *slot;
    if (job->group_count == TOUCHED_GROUPS_MAX)
        return TOUCHED_NONE;
    *slot = (uint32_t)job->group_count;
    struct touched_group group = {
            .touch = *touch, .bytes = xcalloc(job->launch_count, sizeof *group.bytes)};
    group.touch.function = group.touch.module = NULL;
    group.touch.loads = false;
    vector_push(job->groups, job->group_count, group);
    return *slot;
}

static uint32_t touched_place(
        struct touched_job *job, uint32_t group, const struct diff_touch *touch)
{
    uint64_t key = touched_native(hash_mix(2, group), touch);
    uint32_t *slot = map_put(&job->place_of, key);
    if (*slot != MAP_NONE)
        return *slot;
    *slot = (uint32_t)job->place_count;
    vector_push(job->places, job->place_count,
            (struct touched_place){.group = group,
                    .function = touch->function,
                    .module = touch->module,
                    .loads = touch->loads});
    return *slot;
}

// fault->group becomes a place's number.
static int touched_name(struct touched_job *job, struct error *err)
{
    struct map known = {0};
    struct trace_names *user = xcalloc(1, sizeof *user), *python = xcalloc(1, sizeof *python);
    int rc = 0;
    for (size_t i = 0; i < job->fault_count && rc == 0; i++) {
        struct touched_fault *fault = &job->faults[i];
        const struct touched_range *range = &job->ranges[fault->range];
        uint64_t key =
                hash_mix(hash_mix(hash_mix(0, (uint64_t)fault->user), (uint64_t)fault->python),
                        (uint64_t)(uintptr_t)range->kind);
        key = hash_mix(key, (uint64_t)(uintptr_t)range->name);
        uint32_t *slot = map_put(&known, key);
        if (*slot == MAP_NONE) {
            struct diff_touch touch = {0};
            rc = touched_stack(job, fault->user, user, err);
            rc = rc ? rc : touched_stack(job, fault->python, python, err);
            touched_name_python(job, python, &touch);
            touched_name_native(job, user, range, &touch);
            uint32_t group =
                    touch.caller || touch.function ? touched_group(job, &touch) : TOUCHED_NONE;
            *slot = group == TOUCHED_NONE ? MAP_NONE - 1 : touched_place(job, group, &touch);
        }
        fault->group = *slot == MAP_NONE - 1 ? TOUCHED_NONE : *slot;
    }
    map_free(&known);
    free(python);
    free(user);
    return rc;
}

// --- out of the store ----------------------------------------------------------------------------

static int touched_load_launches(struct touched_job *job, struct error *err)
{
    struct store *store = job->input->store;
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT l.id, l.side, l.started_ns + (SELECT min(s.begin_ns) FROM step s WHERE s.launch_id = l.id) FROM pair p "
            "JOIN launch l ON l.pair_id = p.id WHERE p.workload_id = ? AND p.phase = 'traced' AND p.state = 'valid' AND "
            "EXISTS (SELECT 1 FROM launch_range r WHERE r.launch_id = l.id) AND EXISTS (SELECT 1 FROM ledger g WHERE "
            // of a small one none may be sampled
            "g.launch_id = l.id AND g.producer = 'bpf.page_fault') ORDER BY l.id LIMIT ?",
            "ii", job->input->workload_id, (int64_t)TOUCHED_LAUNCHES_MAX);
    int rc;
    while ((rc = store_step(store, stmt, err)) > 0) {
        bool steps = sqlite3_column_type(stmt, 2) != SQLITE_NULL;
        vector_push(job->launches, job->launch_count,
                (struct touched_launch){sqlite3_column_int64(stmt, 0),
                        steps ? sqlite3_column_int64(stmt, 2) : INT64_MAX,
                        sqlite3_column_int(stmt, 1) == 1});
    }
    return rc;
}

static int touched_load_ranges(
        struct touched_job *job, int64_t launch_id, struct intern *files, struct error *err)
{
    struct store *store = job->input->store;
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT tgid, begin_address, end_address, resident_bytes, kind, name, at_ns FROM launch_range "
            "WHERE launch_id = ? ORDER BY tgid, begin_address LIMIT ?",
            "ii", launch_id, (int64_t)TOUCHED_RANGES_MAX);
    int rc;
    job->range_count = 0;
    while ((rc = store_step(store, stmt, err)) > 0) {
        struct touched_range range = {.pid = sqlite3_column_int64(stmt, 0),
                .begin = (uint64_t)sqlite3_column_int64(stmt, 1),
                .end = (uint64_t)sqlite3_column_int64(stmt, 2),
                .bytes = sqlite3_column_double(stmt, 3),
                .at_ns = sqlite3_column_int64(stmt, 6)};
        const struct touched_range *before =
                job->range_count ? &job->ranges[job->range_count - 1] : NULL;
        if (range.end <= range.begin || range.end > INT64_MAX || !(range.bytes > 0) ||
                (before && before->pid == range.pid && range.begin < before->end))
            continue; // none of ours
        range.kind = intern_get(files, intern_text(files, store_text(store, stmt, 4)));
        range.name = intern_get(files, intern_text(files, store_text(store, stmt, 5)));
        vector_push(job->ranges, job->range_count, range);
    }
    return rc;
}

// The range that holds an address, or TOUCHED_NONE.
static uint32_t touched_range_of(const struct touched_job *job, int64_t pid, uint64_t address)
{
    const struct touched_range *ranges = job->ranges;
    size_t at = search_first(k, job->range_count,
            ranges[k].pid > pid || (ranges[k].pid == pid && ranges[k].end > address));
    return at < job->range_count && ranges[at].pid == pid && ranges[at].begin <= address
            ? (uint32_t)at
            : TOUCHED_NONE;
}

static int touched_load_faults(
        struct touched_job *job, const struct touched_launch *launch, struct error *err)
{
    struct store *store = job->input->store;
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT q.tgid, f.address, f.at_ns, f.user_stack, f.python_stack, f.level FROM page_fault f CROSS JOIN thread t ON "
            "t.id = f.thread_id CROSS JOIN process q ON q.id = t.process_id CROSS JOIN recording c ON c.id = q.recording_id "
            // the last ones hold what was resident
            "WHERE c.launch_id = ? ORDER BY f.at_ns DESC LIMIT ?",
            "ii", launch->id, (int64_t)TOUCHED_FAULTS_MAX);
    int rc;
    job->fault_count = 0;
    while ((rc = store_step(store, stmt, err)) > 0) {
        struct touched_fault fault = {.pid = sqlite3_column_int64(stmt, 0),
                .address = (uint64_t)sqlite3_column_int64(stmt, 1) & ~UINT64_C(4095),
                .at_ns = sqlite3_column_int64(stmt, 2),
                .user = sqlite3_column_int64(stmt, 3),
                .python = sqlite3_column_int64(stmt, 4),
                .level = (uint32_t)sqlite3_column_int64(stmt, 5)};
        fault.level = fault.level < UG_FAULT_LEVEL_MAX ? fault.level : UG_FAULT_LEVEL_MAX;
        fault.range = touched_range_of(job, fault.pid, fault.address);
        fault.start = fault.at_ns < launch->step_ns && launch->step_ns != INT64_MAX;
        if (fault.range != TOUCHED_NONE && fault.at_ns <= job->ranges[fault.range].at_ns)
            vector_push(job->faults, job->fault_count, fault);
    }
    return rc;
}

// By process and address, of a page its last one.
static void touched_sort(struct touched_job *job)
{
    size_t kept = 0;
    sort_in_place(job->faults, job->fault_count, x, y,
            x->pid != y->pid                   ? x->pid < y->pid
                    : x->address != y->address ? x->address < y->address
                                               : x->at_ns < y->at_ns);
    for (size_t i = 0; i < job->fault_count; i++) {
        struct touched_fault *before = kept ? &job->faults[kept - 1] : NULL;
        if (before && before->pid == job->faults[i].pid &&
                before->address == job->faults[i].address)
            kept--;
        job->faults[kept++] = job->faults[i];
    }
    job->fault_count = kept;
}

// Came `later` with a sample that has not the page of `fault`, near it? Then the page may have been
// touched again, unseen. Two distances of its sample: nearer than that one who touches a stretch of
// memory leaves a fault.
static bool touched_hides(
        const struct touched_fault *later, const struct touched_fault *fault, bool *ret_near)
{
    uint64_t away = later->address > fault->address ? later->address - fault->address
                                                    : fault->address - later->address;
    *ret_near = later->pid == fault->pid &&
            away <= (UINT64_C(2) << UG_FAULT_LEVEL_MAX << UG_FAULT_PAGE_BITS);
    return *ret_near && later->at_ns > fault->at_ns &&
            away <= (UINT64_C(2) << later->level << UG_FAULT_PAGE_BITS) &&
            !ug_fault_is_of(fault->address, later->level);
}

static void touched_drop_hidden(struct touched_job *job)
{
    bool *hidden = xcalloc(job->fault_count + 1, sizeof *hidden), near;
    size_t kept = 0;
    for (size_t i = 0; i < job->fault_count; i++) {
        const struct touched_fault *fault = &job->faults[i];
        near = true;
        for (size_t j = i; j-- && near && !hidden[i] && i - j <= TOUCHED_LATER_MAX;)
            hidden[i] = touched_hides(&job->faults[j], fault, &near);
        near = true;
        for (size_t j = i + 1;
                j < job->fault_count && near && !hidden[i] && j - i <= TOUCHED_LATER_MAX; j++)
            hidden[i] = touched_hides(&job->faults[j], fault, &near);
    }
    for (size_t i = 0; i < job->fault_count; i++)
        if (!hidden[i])
            job->faults[kept++] = job->faults[i];
    job->fault_count = kept;
    free(hidden);
}

// --- whose the bytes are -------------------------------------------------------------------------

static void touched_give(
        struct touched_job *job, size_t launch, const struct touched_fault *fault, double bytes)
{
    if (fault->group == TOUCHED_NONE)
        return;
    struct touched_place *place = &job->places[fault->group];
    struct touched_group *group = &job->groups[place->group];
    int side = job->launches[launch].side;
    place->bytes[side] += bytes;
    place->times[side]++;
    group->bytes[launch] += bytes;
    group->touch.start_bytes[side] += fault->start ? bytes : 0;
    job->memory->seen[side] += bytes;
}

// A range without a fault of its own: that of the nearest one of the same file or kind, if it is
// near.
static const struct touched_fault *touched_near(
        const struct touched_job *job, const struct touched_range *range, size_t next)
{
    const struct touched_fault *found = NULL;
    uint64_t nearest = strcmp(range->kind, "file") == 0 ? touched_reach_file : touched_reach;
    // the one before, and the one behind
    for (size_t i = next ? next - 1 : 0; i <= next && i < job->fault_count; i++) {
        const struct touched_fault *fault = &job->faults[i];
        uint64_t away = fault->address < range->begin ? range->begin - fault->address
                                                      : fault->address - range->end;
        const struct touched_range *of = &job->ranges[fault->range];
        if (fault->pid != range->pid || of->kind != range->kind || of->name != range->name ||
                away > nearest)
            continue;
        nearest = away;
        found = fault;
    }
    return found;
}

static void touched_divide(struct touched_job *job, size_t launch)
{
    size_t at = 0;
    for (size_t i = 0; i < job->range_count; i++) {
        const struct touched_range *range = &job->ranges[i];
        double share = range->bytes / (double)(range->end - range->begin);
        uint64_t from = range->begin;
        while (at < job->fault_count &&
                (job->faults[at].range < i ||
                        (job->faults[at].range == i && share < touched_dense_min)))
            at++;
        if (share < touched_dense_min)
            continue; // where in it the bytes lie is not known
        size_t first = at;
        for (; at < job->fault_count && job->faults[at].range == i; at++) {
            bool last = at + 1 == job->fault_count || job->faults[at + 1].range != i;
            uint64_t to = last ? range->end
                               : job->faults[at].address +
                            (job->faults[at + 1].address - job->faults[at].address) / 2;
            touched_give(job, launch, &job->faults[at], (double)(to - from) * share);
            from = to;
        }
        const struct touched_fault *near = at == first ? touched_near(job, range, at) : NULL;
        if (near)
            touched_give(job, launch, near, range->bytes);
    }
    for (size_t i = 0; i < job->fault_count; i++)
        if (job->faults[i].group != TOUCHED_NONE)
            job->groups[job->places[job->faults[i].group].group]
                    .touch.samples[job->launches[launch].side]++;
}

// --- what differs --------------------------------------------------------------------------------

// What code that both sides run has more may come of what is new: memory that is kept is memory
// that the next one who asks does not find free. So code of one side alone comes before what has up
// to twice as much: of a cache that grows by 1 MB a step it has 102 to 124 MiB, the backward pass,
// which then touched new pages, 129 to 153 (plants torch-cache and torch-graph).
static double touched_weight(const struct diff_touch *touch)
{
    bool alone = touch->samples[0] == 0 || touch->samples[1] == 0;
    return (touch->b_bytes - touch->a_bytes) * (alone ? 2 : 1);
}

static int touched_compare(const void *left, const void *right)
{
    const struct diff_touch *a = left, *b = right;
    int order = diff_memory_order(a->told, touched_weight(a), b->told, touched_weight(b));
    if (order)
        return order;
    order = strcmp(a->caller ? a->caller : "", b->caller ? b->caller : "");
    return order ? order : strcmp(a->function ? a->function : "", b->function ? b->function : "");
}

static void touched_judge(
        struct touched_job *job, struct touched_group *group, const size_t *launches, double least)
{
    struct diff_touch *touch = &group->touch;
    double low[2] = {INFINITY, INFINITY}, high[2] = {0, 0}, sum[2] = {0, 0}, squares[2] = {0, 0},
           variance = 0;
    for (size_t i = 0; i < job->launch_count; i++) {
        int side = job->launches[i].side;
        low[side] = fmin(low[side], group->bytes[i]);
        high[side] = fmax(high[side], group->bytes[i]);
        sum[side] += group->bytes[i];
        squares[side] += group->bytes[i] * group->bytes[i];
    }
    for (int side = 0; side < 2; side++) {
        double count = (double)launches[side];
        variance += count > 1
                ? fmax(squares[side] - sum[side] * sum[side] / count, 0) / (count - 1) / count
                : INFINITY;
    }
    touch->a_bytes = sum[0] / (double)launches[0];
    touch->b_bytes = sum[1] / (double)launches[1];
    for (int side = 0; side < 2; side++)
        touch->start_bytes[side] /= (double)launches[side];
    double delta = touch->b_bytes - touch->a_bytes,
           apart = fmax(low[1] - high[0], low[0] - high[1]);
    bool many = launches[0] >= touched_launches_min && launches[1] >= touched_launches_min;
    touch->told = fabs(delta) >= least &&
            (apart >= touched_apart_min * fabs(delta) ||
                    (many && fabs(delta) >= touched_errors_min * sqrt(variance)));
    struct diff_memory *memory = job->memory;
    memory->touch_told_count += touch->told;
    *(delta > 0 ? &memory->touch_more_bytes : &memory->touch_less_bytes) += touch->told ? delta : 0;
}

// Of those whose function is known, do more than half of all have this one? By chance so many of
// them are seen once in 32 times.
static bool touched_usual(size_t times, size_t known)
{
    // 5 of 5, 9 of 10, 61 of 100
    return (double)(2 * times) - (double)known >= 2.1 * sqrt((double)known);
}

// The native function that has more than half of it, on the side that has more.
static void touched_functions(struct touched_job *job, const size_t *launches)
{
    double *most = xcalloc(job->group_count + 1, sizeof *most);
    size_t(*known)[2] = xcalloc(job->group_count + 1, sizeof *known);
    for (size_t i = 0; i < job->place_count; i++)
        for (int side = 0; side < 2; side++)
            known[job->places[i].group][side] +=
                    job->places[i].function ? job->places[i].times[side] : 0;
    for (size_t i = 0; i < job->place_count; i++) {
        const struct touched_place *place = &job->places[i];
        struct diff_touch *touch = &job->groups[place->group].touch;
        int side = touch->b_bytes > touch->a_bytes;
        double bytes = place->bytes[side];
        bool half = bytes > (double)launches[side] * (side ? touch->b_bytes : touch->a_bytes) / 2;
        if (job->partly && place->function)
            half |= touched_usual(place->times[side], known[place->group][side]);
        if (bytes <= most[place->group] || (touch->caller && !half) ||
                (job->partly && !place->function))
            continue;
        most[place->group] = bytes;
        touch->function = place->function;
        touch->module = place->module;
        touch->loads = place->loads;
    }
    free(known);
    free(most);
}

static void touched_tell(struct touched_job *job, double least)
{
    struct diff_memory *memory = job->memory;
    size_t launches[2] = {0, 0};
    for (size_t i = 0; i < job->launch_count; i++)
        launches[job->launches[i].side]++;
    for (int side = 0; side < 2; side++)
        memory->seen[side] /= launches[side] ? (double)launches[side] : 1;
    if (!launches[0] || !launches[1])
        return;
    for (size_t i = 0; i < job->group_count; i++)
        touched_judge(job, &job->groups[i], launches, least);
    touched_functions(job, launches);
    memory->touches = arena_alloc(job->input->arena, job->group_count, sizeof *memory->touches);
    for (size_t i = 0; i < job->group_count; i++)
        memory->touches[i] = job->groups[i].touch;
    memory->touch_count = job->group_count;
    if (memory->touch_count)
        qsort(memory->touches, memory->touch_count, sizeof *memory->touches, touched_compare);
}

static void touched_free(struct touched_job *job)
{
    for (size_t i = 0; i < job->group_count; i++)
        free(job->groups[i].bytes);
    map_free(&job->group_of);
    map_free(&job->place_of);
    free(job->launches);
    free(job->ranges);
    free(job->faults);
    free(job->groups);
    free(job->places);
}

int diff_touched(
        const struct diff_input *input, struct diff_memory *memory, double least, struct error *err)
{
    struct touched_job job = {.input = input, .memory = memory};
    struct intern *files = intern_new();
    int rc = touched_load_launches(&job, err);
    for (size_t i = 0; i < job.launch_count && rc == 0; i++) {
        rc = touched_load_ranges(&job, job.launches[i].id, files, err);
        if (rc == 0)
            rc = touched_load_faults(&job, &job.launches[i], err);
        touched_sort(&job);
        touched_drop_hidden(&job);
        if (rc == 0)
            rc = touched_name(&job, err);
        if (rc == 0)
            touched_divide(&job, i);
    }
    if (rc == 0)
        touched_tell(&job, least);
    touched_free(&job);
    intern_free(files);
    return rc;
}

void diff_touched_given(const struct diff_input *input, struct diff_memory *memory,
        const int *sides, size_t launch_count, const struct diff_touch_given *given, size_t count,
        double least)
{
    struct touched_job job = {.input = input, .memory = memory, .partly = true};
    for (size_t i = 0; i < launch_count; i++)
        vector_push(job.launches, job.launch_count,
                (struct touched_launch){.step_ns = INT64_MAX, .side = sides[i]});
    for (size_t i = 0; i < count; i++) {
        struct touched_fault fault = {
                .start = given[i].start, .group = touched_group(&job, &given[i].touch)};
        if (fault.group == TOUCHED_NONE)
            continue;
        job.groups[fault.group].touch.samples[sides[given[i].launch]]++;
        fault.group = touched_place(&job, fault.group, &given[i].touch);
        touched_give(&job, given[i].launch, &fault, given[i].bytes);
    }
    touched_tell(&job, least);
    touched_free(&job);
}

int diff_touched_code(const struct diff_input *input, int64_t user_stack, int64_t python_stack,
        const char **ret_function, const char **ret_module, struct error *err)
{
    struct touched_job job = {.input = input};
    struct trace_names *user = xcalloc(1, sizeof *user), *python = xcalloc(1, sizeof *python);
    struct diff_touch touch = {0};
    int rc = touched_stack(&job, user_stack, user, err);
    rc = rc ? rc : touched_stack(&job, python_stack, python, err);
    touched_name_python(&job, python, &touch);
    touched_name_native(&job, user, NULL, &touch);
    *ret_function = touch.caller ? touch.caller : touch.function;
    *ret_module = touch.caller ? touch.caller_file : touch.module;
    free(python);
    free(user);
    return rc;
}
