// SPDX-License-Identifier: Apache-2.0
// Life and clock of the recorder: attach, then rounds of a few milliseconds (read the rings and the
// spools, look at sleeping Python threads, resolve symbols, once a second read counters and
// commit), then detach and write the end.
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "common/clock.h"
#include "common/descriptors.h"
#include "common/log.h"
#include "common/proc.h"
#include "common/strings.h"
#include "common/target/file.h"
#include "tracer/record/children.h"
#include "tracer/record/privileges.h"
#include "tracer/record/recorder.h"
#include "tracer/record/task_proc.h"

enum {
    RECORDER_THRESHOLD_NS = 1000000,
    RECORDER_PROCESSES_MIN = 256,  // 64 ranks with two workers each, and what disturbs them
    RECORDER_PROCESSES_MAX = 2048, // 12 MB of kernel memory
    RECORDER_PROCESSES_MORE = 2,   // times those that are there
    // no divisor of the timer tick, so that it does not walk in step with it
    RECORDER_SAMPLE_HZ = 199,
    RECORDER_ROUND_MS = 20,        // 4 MiB of ring hold 50 ms of the worst flood
    RECORDER_BUSY_RECORDS = 2000,  // a round with more is followed by the next at once
    RECORDER_RESOLVE_NS = 4000000, // symbols of a round
    RECORDER_SECOND_NS = 1000000000,
    RECORDER_SEARCH_NS = 100000000, // for new interpreters
    // a look at all threads takes one part of so many: of very many not every second
    RECORDER_LOOK_SHARE = 200,
    RECORDER_GPU_SENTENCES = 8,
    // looking for children takes one part of so many, and so does telling of ranks
    RECORDER_CHILDREN_SHARE = 100,
    RECORDER_ALIVE_SHARE = 400, // of thousands of processes of which one ends in every round
    RECORDER_DRAIN_ROUNDS = 1000,
    // before detaching: a target that never pauses fills the rings for ever
    RECORDER_DRAIN_NS = 500000000,
};

// --- start ---------------------------------------------------------------------------------------

static char *recorder_target_json(const struct recorder_opts *opts)
{
    json_t *pids = json_array(),
           *command = opts->command ? json_loads(opts->command, 0, NULL) : json_array();
    for (size_t i = 0; i < opts->pid_count; i++)
        json_array_append_new(pids, json_integer(opts->pids[i]));
    json_t *target = json_pack("{so so so}", "pids", pids, "cgroup",
            opts->cgroup ? json_string(opts->cgroup) : json_null(), "command",
            command ? command : json_array());
    if (target && opts->rank)
        json_object_set_new(target, "rank", json_loads(opts->rank, 0, NULL));
    char *text = target ? json_dumps(target, JSON_COMPACT) : NULL;
    json_decref(target);
    return text ? text : xstrdup("{}");
}

// Why nobody is told of connections; NULL: they are, or nobody asks: of two ranks the waits tell.
static const char *recorder_connections_missing(const struct recorder *recorder)
{
    size_t count = 0;
    const struct task_rank *ranks = tasks_ranks(recorder->tasks, &count);
    bool many = false;
    for (size_t i = 0; i < count; i++) // what a rank started is in the list, too
        many |= ranks[i].ranks > 2;
    return recorder->sockets && many ? sockets_missing(recorder->sockets) : NULL;
}

static char *recorder_silent_sentence(const char *path)
{
    if (strncmp(path, "/proc/", strlen("/proc/")) == 0)
        return xasprintf(
                "names: '%s' could not be read in time, as somebody held the lock of that process's memory map: names of its "
                "functions, its command line or its rank may be missing",
                path);
    return xasprintf(
            "names: '%s' could not be read in time: functions of the files on its file system have no names",
            path);
}

// Sentences about what this machine did not allow.
static char *recorder_missing_json(const struct recorder *recorder)
{
    json_t *list = json_array();
    size_t count = 0;
    const char *const *missing =
            recorder->capture ? capture_missing(recorder->capture, &count) : NULL;
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_string(missing[i]));
    if (recorder->host_missing)
        json_array_append_new(list, json_string(recorder->host_missing));
    char *gpu[RECORDER_GPU_SENTENCES];
    size_t gpu_count =
            recorder->gpu ? gpu_side_missing(recorder->gpu, gpu, RECORDER_GPU_SENTENCES) : 0;
    for (size_t i = 0; i < gpu_count; i++) {
        json_array_append_new(list, json_string(gpu[i]));
        free(gpu[i]);
    }
    const char *why = NULL;
    if (recorder->capture && !symbols_kernel_available(recorder->symbols, &why))
        json_array_append_new(list, json_string(why ? why : "kernel symbols cannot be read"));
    const char *refused = recorder->python ? python_refused(recorder->python) : NULL;
    if (refused) {
        char *text = xasprintf("python: %s", refused);
        json_array_append_new(list, json_string(text));
        free(text);
    }
    if (recorder->capture && recorder->alive_max > recorder->processes_max) {
        char *text = xasprintf(
                "names: up to %u processes of the target lived at one time, and functions are named in %u of them at a time: "
                "stacks of the others may have no names",
                recorder->alive_max, recorder->processes_max);
        json_array_append_new(list, json_string(text));
        free(text);
    }
    const char *connections = recorder_connections_missing(recorder);
    if (connections)
        json_array_append_new(list, json_string(connections));
    char *silent = target_file_silent();
    if (silent) {
        string_make_plain(silent, strlen(silent));
        char *text = recorder_silent_sentence(silent);
        json_array_append_new(list, json_string(text));
        free(text);
        free(silent);
    }
    char *text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    return text ? text : xstrdup("[]");
}

static int recorder_insert(struct recorder *recorder, const struct recorder_opts *opts,
        uint32_t sample_hz, struct error *err)
{
    char *target = recorder_target_json(opts);
    int rc = store_insert(recorder->store, &recorder->recording_id, err,
            "INSERT INTO recording (launch_id, begin_ns, threshold_ns, sample_hz, python, target, "
            "missing) VALUES (?, ?, ?, ?, ?, ?, '[]')",
            "Iiiiis", opts->launch_id, recorder->begin_ns, recorder->threshold_ns,
            (int64_t)sample_hz, (int64_t)!opts->no_python, target);
    free(target);
    return rc;
}

int recorder_check_pids(const pid_t *pids, size_t count, struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        if (pids[i] == getpid())
            return error_set(err, -EINVAL, "process %d is this upgate itself", (int)pids[i]);
        pid_t tgid = pids[i] > 0 ? proc_tgid(pids[i]) : -ESRCH;
        if (tgid > 0 && tgid != pids[i])
            return error_set(err, -EINVAL, "%d is a thread of process %d: name that", (int)pids[i],
                    (int)tgid);
        if (tgid == -ESRCH)
            return error_set(err, -EINVAL, "there is no process %d", (int)pids[i]);
        if (tgid < 0)
            return error_set(
                    err, tgid, "failed to look at process %d: %s", (int)pids[i], strerror(-tgid));
    }
    return 0;
}

static int recorder_check_target(
        struct recorder *recorder, const struct recorder_opts *opts, struct error *err)
{
    struct stat info;
    if (!opts->pid_count && !opts->cgroup)
        return error_set(err, -EINVAL, "nothing to record: name a process or a cgroup");
    if (opts->cgroup && (stat(opts->cgroup, &info) < 0 || !S_ISDIR(info.st_mode)))
        return error_set(err, -EINVAL, "no cgroup '%s': it is not a directory", opts->cgroup);
    int rc = recorder_check_pids(opts->pids, opts->pid_count, err);
    for (size_t i = 0; i < opts->pid_count && rc == 0; i++)
        if (!tasks_target(recorder->tasks, (uint32_t)opts->pids[i])) // it has just ended
            rc = error_set(err, -EINVAL, "there is no process %d", (int)opts->pids[i]);
    return rc;
}

// Without the host side there may be enough to record.
static bool recorder_goes_on(struct recorder *recorder, const struct recorder_opts *opts, int rc)
{
    bool forbidden =
            rc == -EPERM || rc == -EACCES || rc == -ENOTSUP || rc == -EOPNOTSUPP || rc == -ENOSYS;
    // whom a cgroup holds is told by the kernel side
    if (!forbidden || !recorder->gpu || opts->cgroup)
        return false;
    if (!opts->no_children)
        children_search(recorder->tasks);
    return gpu_side_search(recorder->gpu, clock_monotonic_ns()) || opts->host_optional;
}

// Of how many processes names and unwind tables are kept. The kernel's part of that cannot grow
// once the programs are loaded.
static uint32_t recorder_choose_processes(const struct recorder_opts *opts)
{
    const struct capture_opts target = {.pids = opts->pids,
            .pid_count = opts->pid_count,
            .cgroup = opts->cgroup,
            .no_children = opts->no_children};
    size_t wanted = RECORDER_PROCESSES_MORE * capture_count_targets(&target);
    wanted = wanted > opts->processes_max ? wanted : opts->processes_max;
    wanted = wanted > RECORDER_PROCESSES_MIN ? wanted : RECORDER_PROCESSES_MIN;
    return wanted < RECORDER_PROCESSES_MAX ? (uint32_t)wanted : RECORDER_PROCESSES_MAX;
}

static int recorder_attach(struct recorder *recorder, const struct recorder_opts *opts,
        uint32_t sample_hz, struct error *err)
{
    struct capture_opts capture = {.pids = opts->pids,
            .pid_count = opts->pid_count,
            .cgroup = opts->cgroup,
            .watcher = opts->live ? getppid() : 0,
            .no_children = opts->no_children,
            .threshold_ns = recorder->threshold_ns,
            .sample_hz = sample_hz,
            .faults = opts->faults,
            .processes_max = recorder->processes_max,
            .on_mapping = recorder_on_mapping,
            .prompt = opts->prompt};
    uint64_t seen, lost;
    struct error host = {0};
    int rc = capture_open(&capture, recorder_on_event, recorder, &recorder->capture, &host);
    if (rc && !recorder_goes_on(recorder, opts, rc))
        return error_set(err, rc, "%s", host.text);
    if (rc) {
        recorder->host_missing = xasprintf(
                "host: only the GPU side is recorded, not who waits for whom: %s", host.text);
        python_free(recorder->python); // its walks are asked for by the kernel side
        recorder->python = NULL;
    }
    if (recorder->capture && capture_mappings(recorder->capture, &seen, &lost))
        symbols_follow(recorder->symbols);
    if (recorder->python)
        python_attach(recorder->python, recorder->capture);
    if (recorder->capture)
        recorder->unwinder = unwinder_new(
                recorder->capture, recorder->symbols, recorder->processes_max, opts->prompt);
    char *missing = recorder_missing_json(recorder);
    recorder->begin_ns = clock_monotonic_ns(); // attaching took 0.3 s, or seconds on a busy machine
    rc = store_exec(recorder->store, err,
            "UPDATE recording SET begin_ns = ?, missing = ? WHERE id = ?", "isi",
            recorder->begin_ns, missing, recorder->recording_id);
    free(missing);
    return rc;
}

// While it may enter network namespaces: of those in which the target is by now, as its threads'
// records in the rings tell.
static void recorder_find_connections(struct recorder *recorder)
{
    if (recorder->capture)
        capture_poll(recorder->capture, 0);
    recorder->sockets = sockets_new(recorder->writer, recorder->tasks);
}

static void recorder_forget(struct recorder *recorder) // nothing was recorded
{
    if (recorder->writer)
        writer_abandon(recorder->writer);
    struct error err = {0};
    if (recorder->recording_id &&
            (store_exec(recorder->store, &err, "DELETE FROM counter WHERE recording_id = ?", "i",
                     recorder->recording_id) ||
                    store_exec(recorder->store, &err, "DELETE FROM recording WHERE id = ?", "i",
                            recorder->recording_id)))
        log_debug("an empty recording stays in the store: %s", err.text);
}

static int recorder_start_gpu(
        struct recorder *recorder, const struct recorder_opts *opts, struct error *err)
{
    struct gpu_side_opts gpu = {
            .kinds = opts->gpu_kinds, .launch_id = opts->launch_id, .library = opts->gpu_library};
    // an empty table's highest number is an error to those who ask, and none to us
    struct error own = {0};
    int rc = 0;
    if (opts->gpu_kinds)
        rc = gpu_side_new(recorder->store, recorder->recording_id, recorder->writer,
                recorder->tasks, &gpu, &recorder->gpu, &own);
    if (rc == 0 && opts->max_bytes)
        rc = retention_new(recorder->store, recorder->recording_id, opts->max_bytes,
                &recorder->retention, &own);
    return rc ? error_set(err, rc, "%s", own.text) : 0;
}

// What is asked for by rowid only needs no index, which is a fourth of what a gap costs to write;
// and nobody reads it after a loss of power.
static int recorder_make_scratch(struct recorder *recorder, struct error *err)
{
    int rc = store_exec(recorder->store, err, "DROP INDEX gap_thread", "");
    sqlite3_exec(store_db(recorder->store), "PRAGMA synchronous = OFF", NULL, NULL, NULL);
    return rc;
}

// Who waits for the target's file systems needs no more than the recorder once it has attached.
static void recorder_files_prepare(void)
{
    struct error err;
    privileges_drop(&err);
}

// Of its job; -1: not told.
static int32_t recorder_own_rank(const struct recorder_opts *opts)
{
    json_t *who = opts->rank ? json_loads(opts->rank, 0, NULL) : NULL,
           *number = json_object_get(who, "rank");
    int32_t rank = json_is_integer(number) ? (int32_t)json_integer_value(number) : -1;
    json_decref(who);
    return rank;
}

// BPF programs have the machine's clock, and so does all that a recorder stores.
static int recorder_check_clock(struct error *err)
{
    return clock_machine_code() == 0
            ? 0
            : error_set(err, -ENOTSUP,
                      "failed to compare the clock with the machine's: /proc/self/timens_offsets does not tell of this process's own time namespace; "
                      "start upgate outside of it, or by `unshare --fork`");
}

int recorder_start(struct store *store, const struct recorder_opts *opts,
        struct recorder **ret_recorder, struct error *err)
{
    struct recorder *recorder = xcalloc(1, sizeof *recorder);
    uint32_t sample_hz = opts->sample_hz == UINT32_MAX ? 0
            : opts->sample_hz                          ? opts->sample_hz
                                                       : RECORDER_SAMPLE_HZ;
    target_file_start(recorder_files_prepare);
    descriptors_raise(); // up to 5 for each CPU, one for each file that gives names
    recorder->store = store;
    recorder->threshold_ns = opts->threshold_ns ? opts->threshold_ns : RECORDER_THRESHOLD_NS;
    recorder->begin_ns = clock_monotonic_ns();
    recorder->processes_max = recorder_choose_processes(opts);
    recorder->launch_id = opts->launch_id ? *opts->launch_id : 0;
    recorder->cgroup = opts->cgroup ? xstrdup(opts->cgroup) : NULL;
    recorder->no_children = opts->no_children;
    recorder->live = opts->live;
    recorder->alive = true;
    int rc = recorder_check_clock(err);
    if (rc == 0)
        rc = writer_new(store, &recorder->writer, err);
    if (rc == 0 && opts->scratch)
        rc = recorder_make_scratch(recorder, err);
    if (rc == 0)
        rc = symbols_new(&(struct symbols_opts){.processes_max = recorder->processes_max},
                &recorder->symbols, err);
    if (rc == 0)
        rc = recorder_insert(recorder, opts, sample_hz, err);
    if (rc == 0) {
        recorder->tasks = tasks_new(recorder->writer, recorder->recording_id);
        recorder->stacks = stacks_new(recorder->writer, recorder->symbols, opts->prompt);
        recorder->files = files_new();
        recorder->counters = counters_new(recorder->writer, recorder->recording_id,
                opts->pid_count ? opts->pids[0] : 0, opts->cgroup, recorder_own_rank(opts));
        if (!opts->no_python)
            recorder->python = python_new(recorder->tasks, recorder->stacks, recorder->threshold_ns,
                    recorder->processes_max, opts->prompt);
        rc = recorder_start_gpu(recorder, opts, err);
    }
    if (rc == 0)
        rc = recorder_check_target(recorder, opts, err);
    if (rc == 0) // a walk over all directories of cgroups: before attaching, so that no ring fills
                 // meanwhile
        counters_read_cgroups(recorder->counters, clock_monotonic_ns());
    if (rc == 0)
        // so that the row of the recording can be changed outside of it
        rc = writer_commit(recorder->writer, true, err);
    if (rc == 0)
        rc = recorder_attach(recorder, opts, sample_hz, err);
    if (rc) {
        recorder_forget(recorder);
        recorder_free(recorder);
        return rc;
    }
    recorder_find_connections(recorder);
    *ret_recorder = recorder;
    return 0;
}

// --- rounds --------------------------------------------------------------------------------------

static void recorder_put_drops(struct recorder *recorder, int64_t now_ns)
{
    static const char *const names[UG_COUNTER_COUNT] = {[UG_COUNTER_GAP] = "gap",
            [UG_COUNTER_SAMPLE] = "sample",
            [UG_COUNTER_LOCK] = "lock",
            [UG_COUNTER_TASK] = "task",
            [UG_COUNTER_FACT] = "fact",
            [UG_COUNTER_STATE] = "state",
            [UG_COUNTER_FAULT] = "page_fault"};
    struct ug_counts counts[UG_COUNTER_COUNT];
    if (!recorder->capture)
        return;
    capture_counts(recorder->capture, counts);
    for (int i = 0; i < UG_COUNTER_COUNT; i++)
        counters_put(recorder->counters, now_ns, "drops", names[i], (int64_t)counts[i].dropped);
}

static void recorder_look(struct recorder *recorder)
{
    int64_t begin_ns = clock_monotonic_ns();
    bool python = recorder->python && python_look_begin(recorder->python, begin_ns);
    if (!python && begin_ns < recorder->look_next_ns)
        return;
    capture_look(recorder->capture);
    if (python)
        python_look_end(recorder->python);
    int64_t cost_ns = clock_monotonic_ns() - begin_ns;
    recorder->look_next_ns = begin_ns +
            (cost_ns * RECORDER_LOOK_SHARE > RECORDER_SECOND_NS ? cost_ns * RECORDER_LOOK_SHARE
                                                                : RECORDER_SECOND_NS);
}

static void recorder_check_alive(struct recorder *recorder, int64_t now_ns)
{
    struct stat info;
    // in a cgroup many may come and go: once a second is enough
    bool asked = recorder->ask_alive && !recorder->cgroup;
    if (now_ns < (asked ? recorder->asked_next_ns : recorder->alive_next_ns))
        return;
    recorder->ask_alive = false;
    recorder->alive_next_ns = now_ns + RECORDER_SECOND_NS;
    // of a cgroup, too: ends those that are gone
    uint32_t alive = tasks_targets_alive(recorder->tasks, now_ns);
    recorder->alive_max = alive > recorder->alive_max ? alive : recorder->alive_max;
    recorder->alive = recorder->cgroup ? stat(recorder->cgroup, &info) == 0 : alive > 0;
    int64_t cost_ns = clock_monotonic_ns() - now_ns;
    recorder->asked_next_ns = now_ns + RECORDER_ALIVE_SHARE * cost_ns;
    if (recorder->asked_next_ns > recorder->alive_next_ns)
        recorder->asked_next_ns = recorder->alive_next_ns;
}

// Who of the target is which rank of a job, into the JSON of recording.target: it is known only
// once the processes run.
static int recorder_write_ranks(struct recorder *recorder, struct error *err)
{
    size_t count = 0;
    const struct task_rank *ranks = tasks_ranks(recorder->tasks, &count);
    if (count == recorder->ranks_written)
        return 0;
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list,
                json_pack("{sI sI si si}", "pid", (json_int_t)ranks[i].tgid, "start_ns",
                        (json_int_t)ranks[i].start_ns, "rank", (int)ranks[i].rank, "ranks",
                        (int)ranks[i].ranks));
    char *text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    int rc = text
            ? store_exec(recorder->store, err,
                      "UPDATE recording SET target = json_set(target, '$.ranks', json(?)) WHERE id = ?",
                      "si", text, recorder->recording_id)
            : error_set(err, -ENOMEM, "out of memory");
    free(text);
    if (rc == 0)
        recorder->ranks_written = count;
    return rc;
}

static int recorder_write_joined(struct recorder *recorder, struct error *err)
{
    char *text = recorder->joined ? json_dumps(recorder->joined, JSON_COMPACT) : NULL;
    int rc = text
            ? store_exec(recorder->store, err,
                      "UPDATE recording SET target = json_set(target, '$.joined', json(?)) WHERE id = ?",
                      "si", text, recorder->recording_id)
            : 0;
    free(text);
    return rc;
}

// Its place in `joined`, or how many there are.
static size_t recorder_find_joined(const struct recorder *recorder, int32_t rank)
{
    size_t i = 0;
    while (i < json_array_size(recorder->joined) &&
            json_integer_value(json_object_get(json_array_get(recorder->joined, i), "rank")) !=
                    rank)
        i++;
    return i;
}

int recorder_join(struct recorder *recorder, pid_t pid, int32_t rank, struct error *err)
{
    int64_t begin_ns = clock_monotonic_ns();
    if (recorder_find_joined(recorder, rank) < json_array_size(recorder->joined))
        return error_set(err, -EEXIST, "rank %d has joined already", (int)rank);
    struct task_stat stat;
    int rc = writer_begin(recorder->writer);
    if (rc)
        return error_set(err, rc, "the recording has failed");
    if (pid <= 0 || !task_stat_read((uint32_t)pid, &stat))
        return error_set(err, -ESRCH, "there is no process %d", (int)pid);
    rc = recorder->capture ? capture_add_target(recorder->capture, pid, err) : 0;
    if (rc) // before anything is known of it here: whom this recorder refuses has another one, and
            // would be a rank of both
        return rc;
    if (!tasks_target(recorder->tasks, (uint32_t)pid))
        return error_set(err, -ESRCH, "process %d has ended", (int)pid);
    counters_add_rank(recorder->counters, rank, counters_cpu_stat(pid), begin_ns);
    recorder->ask_alive = true;
    if (!recorder->joined)
        recorder->joined = json_array();
    json_array_append_new(recorder->joined,
            json_pack("{si si sI}", "rank", (int)rank, "pid", (int)pid, "begin_ns",
                    (json_int_t)begin_ns));
    rc = recorder_write_joined(recorder, err);
    if (rc)
        writer_fail(recorder->writer);
    return rc;
}

void recorder_leave(struct recorder *recorder, int32_t rank)
{
    struct error err = {0};
    size_t i = recorder_find_joined(recorder, rank);
    if (i == json_array_size(recorder->joined) || writer_begin(recorder->writer))
        return;
    uint32_t pid = (uint32_t)json_integer_value(
            json_object_get(json_array_get(recorder->joined, i), "pid"));
    json_array_remove(recorder->joined, i);
    counters_remove_rank(recorder->counters, rank);
    unwinder_forget(recorder->unwinder, pid);
    if (recorder->python)
        python_forget(recorder->python, pid);
    tasks_leave(recorder->tasks, pid);
    recorder->ask_alive = true; // nothing waits for its end
    int rc = recorder_write_joined(recorder, &err);
    if (rc == 0 && recorder->ranks_written) {
        recorder->ranks_written = SIZE_MAX; // as many may be others
        rc = recorder_write_ranks(recorder, &err);
    }
    if (rc)
        writer_fail(recorder->writer);
}

// For who reads meanwhile: the waits that go on take the place of those of a second ago (last: they
// go). Of thousands of threads less often: 2 % of a core.
static void recorder_put_waiting(struct recorder *recorder, bool last)
{
    enum { SHARE = 50 };
    int64_t begin_ns = clock_monotonic_ns(), cost_ns;
    if (!recorder->live || !recorder->capture || (!last && begin_ns < recorder->waiting_next_ns) ||
            writer_begin(recorder->writer))
        return;
    struct error err = {0};
    int rc = store_exec(recorder->store, &err, "DELETE FROM gap WHERE rowid > ? AND flags & ?",
            "ii", recorder->waiting_row, (int64_t)UG_GAP_UNFINISHED);
    if (rc == 0)
        rc = store_get_int(recorder->store, &recorder->waiting_row, &err,
                "SELECT coalesce(max(rowid), 0) FROM gap", "");
    if (rc)
        writer_fail(recorder->writer);
    else if (!last)
        capture_waiting(recorder->capture);
    cost_ns = clock_monotonic_ns() - begin_ns;
    recorder->waiting_next_ns = begin_ns + SHARE * cost_ns;
}

static int recorder_second(struct recorder *recorder, int64_t now_ns, struct error *err)
{
    if (now_ns >= recorder->counters_next_ns) {
        recorder->counters_next_ns = now_ns + RECORDER_SECOND_NS;
        counters_read(recorder->counters, now_ns, false);
        recorder_put_drops(recorder, now_ns);
    }
    if (now_ns < recorder->commit_next_ns)
        return 0;
    recorder->commit_next_ns = now_ns + RECORDER_SECOND_NS;
    tasks_flush(recorder->tasks, now_ns, false, python_process_gone, recorder->python);
    stacks_tell_waiting(recorder->stacks);
    if (recorder->python)
        python_settle(recorder->python, false);
    recorder_put_waiting(recorder, false);
    int rc = 0;
    // not at the end only: a recorder may be killed
    if (now_ns >= recorder->ranks_next_ns && writer_begin(recorder->writer) == 0) {
        rc = recorder_write_ranks(recorder, err);
        recorder->ranks_next_ns =
                now_ns + RECORDER_CHILDREN_SHARE * (clock_monotonic_ns() - now_ns);
    }
    if (rc == 0 && recorder->retention && writer_begin(recorder->writer) == 0)
        rc = retention_step(recorder->retention, err);
    return rc ? rc : writer_commit(recorder->writer, false, err);
}

// The rings; where there are none the round is as long all the same.
static int recorder_read_rings(struct recorder *recorder, int wait_ms)
{
    if (recorder->capture)
        return capture_poll(recorder->capture, wait_ms);
    poll(NULL, 0, wait_ms);
    return 0;
}

static int recorder_read_spools(struct recorder *recorder, int64_t now_ns, struct error *err)
{
    if (!recorder->gpu)
        return 0;
    if (!recorder->capture && !recorder->no_children && now_ns >= recorder->children_next_ns) {
        children_search(recorder->tasks);
        // 1 % of a core, and not more often than rounds are
        int64_t cost_ns = clock_monotonic_ns() - now_ns;
        recorder->children_next_ns = now_ns + RECORDER_CHILDREN_SHARE * cost_ns;
    }
    gpu_side_search(recorder->gpu, now_ns);
    return gpu_side_poll(recorder->gpu, now_ns, err);
}

// 1: there was much, and there may be more. -errno: the end.
static int recorder_round(struct recorder *recorder, int wait_ms, struct error *err)
{
    int records = recorder_read_rings(recorder, wait_ms);
    if (records < 0)
        return error_set(
                err, records, "failed to read the rings of the capture: %s", strerror(-records));
    int64_t now_ns = clock_monotonic_ns();
    if (recorder->python && now_ns >= recorder->search_next_ns) {
        recorder->search_next_ns = now_ns + RECORDER_SEARCH_NS;
        python_search(recorder->python, now_ns);
    }
    while (recorder->missed_count) // not in a callback: its threads are told by one
        capture_add_target(
                recorder->capture, (pid_t)recorder->missed[--recorder->missed_count], NULL);
    if (recorder->capture)
        recorder_look(recorder);
    if (records < RECORDER_BUSY_RECORDS)
        stacks_resolve(recorder->stacks, RECORDER_RESOLVE_NS);
    recorder_check_alive(recorder, now_ns);
    sockets_round(recorder->sockets, now_ns);
    int rc = recorder_read_spools(recorder, now_ns, err);
    if (rc == 0)
        rc = recorder_second(recorder, now_ns, err);
    if (rc == 0 && writer_failed(recorder->writer, err))
        rc = err ? err->code : -EIO;
    return rc ? rc : records >= RECORDER_BUSY_RECORDS;
}

static int recorder_wait_ms(const struct recorder *recorder, int64_t now_ns, int64_t end_ns)
{
    int64_t wait_ns = RECORDER_ROUND_MS * (int64_t)1000000;
    if (recorder->python) {
        int64_t look_ns = python_next_look_ns(recorder->python, now_ns) - now_ns;
        wait_ns = look_ns < wait_ns ? look_ns : wait_ns;
    }
    if (end_ns - now_ns < wait_ns)
        wait_ns = end_ns - now_ns;
    return wait_ns <= 0 ? 0 : (int)((wait_ns + 999999) / 1000000);
}

int recorder_poll(struct recorder *recorder, int wait_ms, bool *ret_alive, struct error *err)
{
    int64_t now_ns = clock_monotonic_ns(), end_ns = now_ns + wait_ms * (int64_t)1000000;
    int rc = 0;
    do {
        rc = recorder_round(
                recorder, rc == 1 ? 0 : recorder_wait_ms(recorder, now_ns, end_ns), err);
        now_ns = clock_monotonic_ns();
    } while (rc >= 0 && recorder->alive && now_ns < end_ns);
    *ret_alive = recorder->alive;
    return rc < 0 ? rc : 0;
}

// --- end -----------------------------------------------------------------------------------------

static int recorder_write_end(struct recorder *recorder, struct error *err)
{
    char *missing = recorder_missing_json(recorder);
    bool python = recorder->python && python_found(recorder->python);
    int rc = store_begin(recorder->store, err);
    if (rc == 0)
        rc = recorder_ledger(recorder, err);
    if (rc == 0)
        rc = store_exec(recorder->store, err,
                "UPDATE recording SET end_ns = ?, python = ?, missing = ? WHERE id = ?", "iisi",
                recorder->end_ns, (int64_t)python, missing, recorder->recording_id);
    recorder->ranks_written = 0; // what was written may have been rolled back
    if (rc == 0)
        rc = recorder_write_ranks(recorder, err);
    if (rc == 0)
        rc = recorder_write_joined(recorder, err);
    if (rc == 0)
        rc = store_commit(recorder->store, err);
    if (rc)
        store_rollback(recorder->store);
    free(missing);
    return rc;
}

static void recorder_detach(struct recorder *recorder)
{
    int64_t drain_end_ns = clock_monotonic_ns() + RECORDER_DRAIN_NS;
    while (capture_poll(recorder->capture, 0) > 0 && clock_monotonic_ns() < drain_end_ns)
        ;
    recorder_put_waiting(recorder, true);
    // who holds what those wait for that never came back
    int looked = capture_look(recorder->capture);
    recorder->look_rc = looked < 0 ? looked : 0;
    int told = capture_totals(recorder->capture);
    recorder->totals_rc = told < 0 ? told : 0;
    recorder->end_ns = clock_monotonic_ns();
    recorder->waits_rc = capture_detach(recorder->capture);
    for (int round = 0; round < RECORDER_DRAIN_ROUNDS && capture_poll(recorder->capture, 0) > 0;
            round++)
        ;
    stacks_finish(recorder->stacks);
    if (recorder->python)
        python_settle(recorder->python, true);
}

int recorder_stop(struct recorder *recorder, int64_t *ret_recording_id, struct error *err)
{
    if (recorder->stopped)
        return 0;
    recorder->stopped = true;
    struct error gpu = {0}, end = {0};
    recorder->end_ns = clock_monotonic_ns();
    if (recorder->capture)
        recorder_detach(recorder);
    // Behind it: the libraries may need a second to hand over, in which no ring must fill.
    int gpu_rc = recorder->gpu ? gpu_side_stop(recorder->gpu, &gpu) : 0;
    int64_t now_ns = clock_monotonic_ns();
    counters_read(recorder->counters, now_ns, true);
    sockets_end(recorder->sockets, now_ns);
    counters_read_cgroups(recorder->counters, now_ns);
    recorder_put_drops(recorder, now_ns);
    tasks_ask_again(recorder->tasks);
    tasks_flush(recorder->tasks, now_ns, false, python_process_gone, recorder->python);
    int rc = writer_commit(recorder->writer, true, err),
        end_rc = recorder_write_end(recorder, &end);
    if (rc == 0 && gpu_rc)
        rc = error_set(err, gpu_rc, "%s", gpu.text);
    if (rc == 0 && end_rc)
        rc = error_set(err, end_rc, "%s", end.text);
    if (ret_recording_id)
        *ret_recording_id = recorder->recording_id;
    return rc;
}

void recorder_free(struct recorder *recorder)
{
    if (!recorder)
        return;
    if (recorder->writer)
        writer_abandon(recorder->writer); // what recorder_stop did not write is not wanted
    gpu_side_free(recorder->gpu);         // before the tasks it names
    tasks_free(recorder->tasks, python_process_gone, recorder->python);
    python_free(recorder->python);
    unwinder_free(recorder->unwinder);
    capture_close(recorder->capture); // behind those who tell it of processes
    stacks_free(recorder->stacks);
    files_free(recorder->files);
    sockets_free(recorder->sockets);
    counters_free(recorder->counters);
    retention_free(recorder->retention);
    symbols_free(recorder->symbols);
    writer_free(recorder->writer);
    json_decref(recorder->joined);
    free(recorder->cgroup);
    free(recorder->host_missing);
    free(recorder);
}

void recorder_step(
        struct recorder *recorder, int64_t rank, int64_t idx, int64_t begin_ns, int64_t dur_ns)
{
    struct row row = writer_row(recorder->writer, WRITER_STEP);
    row_int(&row, recorder->recording_id);
    row_int(&row, rank);
    row_int(&row, idx);
    row_int(&row, begin_ns);
    row_int(&row, dur_ns);
    writer_put(recorder->writer, &row);
}

void recorder_totals(const struct recorder *recorder, struct recorder_totals *ret_totals)
{
    struct ug_counts counts[UG_COUNTER_COUNT] = {0};
    if (recorder->capture)
        capture_counts(recorder->capture, counts);
    *ret_totals = (struct recorder_totals){.gaps = writer_rows(recorder->writer, WRITER_GAP),
            .samples = writer_rows(recorder->writer, WRITER_SAMPLE),
            .locks = writer_rows(recorder->writer, WRITER_LOCK),
            .facts = writer_rows(recorder->writer, WRITER_FACT),
            .dropped = writer_lost_all(recorder->writer) + tasks_dropped(recorder->tasks),
            .threads = tasks_target_threads(recorder->tasks),
            .pythons = recorder->python ? python_found(recorder->python) : 0,
            .host = recorder->capture != NULL};
    if (recorder->gpu)
        gpu_side_totals(recorder->gpu, &ret_totals->gpu);
    ret_totals->dropped += ret_totals->gpu.dropped;
    for (int i = 0; i < UG_COUNTER_COUNT; i++)
        ret_totals->dropped += counts[i].dropped;
}
