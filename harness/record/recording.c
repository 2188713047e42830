// SPDX-License-Identifier: Apache-2.0
// `upgate record` from begin to end. One thread.
#include "harness/record/recording.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/signals.h"
#include "common/strings.h"
#include "harness/contain/host.h"
#include "harness/contain/inject.h"
#include "harness/contain/process.h"
#include "harness/contain/python_steps.h"
#include "harness/record/command.h"
#include "harness/steps/reader.h"
#include "harness/steps/unseen.h"
#include "reports/render/text/screen.h"
#include "tracer/calls/calls.h"
#include "tracer/record/privileges.h"
#include "tracer/store/ranges.h"
#include "tracer/store/store.h"

enum {
    RECORDING_ROUND_MS = 100,
    RECORDING_JOIN_MS = 20, // where somebody may wait to join
    RECORDING_PROGRESS_NS = 500000000,
    RECORDING_NICE = -10,
    RECORDING_SLOTS = 64, // processes of a started program that may make step calls
    // Of each of them: 1 MiB of records, read ten times a second or more often, and room for texts;
    // nobody here reads tensors. A program's own libraries want /dev/shm, too, and a container's
    // has 64 MiB.
    RECORDING_RECORDS = 16384,
    RECORDING_BYTES = 256 << 10,
    RECORDING_LARGE_BYTES = 128 << 10,
    RECORDING_TEXT_MAX = 200, // as harness/run/samples.c
};

struct recording {
    const struct recording_opts *opts;
    struct store *store;
    struct recorder *recorder;
    struct command command;
    struct reader *steps; // NULL: none
    char *steps_path;
    uint64_t steps_dropped;     // before us, in a file of steps that was taken over
    struct native_calls *calls; // NULL: steps are not calls of a native function
    struct inject inject;       // library NULL: there is none
    struct inject marks; // by which steps are marked in the command; library NULL: they are not
    char *found, *unfit; // what these are, and why a process has given up
    bool injects;        // the command gets it
    bool progress;
    int64_t begin_ns, progress_ns;
    struct recording_result *result;
};

static volatile sig_atomic_t recording_signal;

static void recording_on_signal(int number)
{
    recording_signal = number;
}

static void recording_catch_signals(const struct recording_opts *opts)
{
    recording_signal = 0;
    signal(SIGXFSZ, SIG_IGN); // a file at the limit of its size is an error in words
    if (!opts->worker)
        signals_catch_end(recording_on_signal);
}

// --- the run's row -------------------------------------------------------------------------------

static int recording_store_run(struct recording *recording, struct error *err)
{
    char *uuid = string_read_file("/proc/sys/kernel/random/uuid", 36, NULL);
    json_t *host = host_describe("");
    char *host_text = json_dumps(host, JSON_COMPACT), *key = host_key(host);
    int rc = store_exec(recording->store, err,
            "INSERT INTO run (id, uuid, kind, state, upgate_version, started_wall_ns, seed, plan, "
            "command_line, host, host_key, writer_pid, writer_start) "
            "VALUES (1, ?, 'record', 'running', ?, ?, 0, '{}', ?, ?, ?, ?, ?)",
            "ssisssii", uuid ? uuid : "", UPGATE_VERSION, clock_wall_ns(),
            recording->opts->command_line, host_text ? host_text : "{}", key, (int64_t)getpid(),
            process_start_ticks(getpid()));
    json_decref(host);
    free(host_text);
    free(key);
    free(uuid);
    return rc;
}

static int recording_store_end(struct recording *recording, const char *state, struct error *err)
{
    return store_exec(recording->store, err,
            "UPDATE run SET state = ?, ended_wall_ns = ?, writer_pid = NULL, writer_start = NULL",
            "si", state, clock_wall_ns());
}

static int recording_check_path(const char *path, struct error *err)
{
    struct stat info;
    if (stat(path, &info) == 0 && info.st_size > 0)
        return error_set(err, -EINVAL, "'%s' exists already; name another file with -o", path);
    return 0;
}

static int recording_open_store(struct recording *recording, struct error *err)
{
    const char *path = recording->opts->path;
    int rc = recording_check_path(path, err);
    if (rc == 0)
        rc = store_open(path, STORE_CREATE, &recording->store, err);
    return rc ? rc : recording_store_run(recording, err);
}

// --- steps of a started program ------------------------------------------------------------------

static char *recording_steps_name(void)
{
    return xasprintf(
            "/dev/shm/upgate-%d-%lld-record", getpid(), (long long)process_start_ticks(getpid()));
}

char *recording_steps_reserve(int *ret_fd)
{
    char *path = recording_steps_name();
    *ret_fd = reader_reserve(path);
    if (*ret_fd >= 0)
        return path;
    free(path);
    return NULL;
}

// So far, since each process claimed its slot.
static uint64_t recording_dropped_steps(const struct recording *recording)
{
    struct reader_counters counters;
    uint64_t dropped = 0;
    uint32_t slots = recording->steps ? reader_slot_count(recording->steps) : 0;
    for (uint32_t slot = 0; slot < slots; slot++)
        if (reader_counters(recording->steps, slot, &counters) == 0)
            dropped += counters.records_dropped;
    return dropped;
}

// A program that makes no step calls costs nothing; one that cannot have the file is recorded all
// the same.
static void recording_open_steps(struct recording *recording)
{
    struct reader_opts opts = {.slot_count = recording->opts->step_slots
                    ? recording->opts->step_slots
                    : RECORDING_SLOTS,
            .ring_records = RECORDING_RECORDS,
            .ring_bytes = RECORDING_BYTES,
            .keep = recording->opts->steps_path != NULL,
            .open = true};
    recording->steps_path =
            opts.keep ? xstrdup(recording->opts->steps_path) : recording_steps_name();
    if (reader_create(&recording->steps, recording->steps_path, &opts, NULL)) {
        if (opts.keep && !recording->opts->command)
            log_warn("the file of steps '%s' is damaged: no more steps are recorded",
                    recording->steps_path);
        free(recording->steps_path);
        recording->steps_path = NULL;
    }
    recording->steps_dropped = recording_dropped_steps(recording);
}

// Who is recorded, by pid; none: a cgroup.
static const pid_t *recording_pids(const struct recording *recording, size_t *ret_count)
{
    const struct recording_opts *opts = recording->opts;
    *ret_count = opts->worker || opts->command ? 1 : opts->pid_count;
    return opts->worker ? &opts->worker : opts->command ? &recording->command.pid : opts->pids;
}

// Calls of a native function: of a command from before its exec, else from now on.
static int recording_see_calls(struct recording *recording, struct error *err)
{
    const struct recording_opts *opts = recording->opts;
    if (!opts->symbol)
        return 0;
    if (!recording->steps)
        return error_set(err, -ENOSPC, "no file for steps can be made in /dev/shm");
    struct native_calls_opts calls = {.symbol = opts->symbol,
            .steps = recording->steps,
            .running = !opts->command,
            .no_children = opts->no_children};
    calls.pids = recording_pids(recording, &calls.pid_count);
    return native_calls_start(&calls, &recording->calls, err);
}

// What our library says of the steps that it marks.
static void recording_on_text(void *context, uint32_t slot, const struct reader_bytes *bytes)
{
    struct recording *recording = context;
    const char *text = bytes->payload;
    bool unfit = strcmp(bytes->name, "steps_from") == 0;
    (void)slot;
    if (bytes->kind != UG_BYTES_TEXT || bytes->payload_bytes > RECORDING_TEXT_MAX ||
            (!unfit && strcmp(bytes->name, "steps_found") != 0) ||
            (unfit && (!bytes->payload_bytes || *text != '!')))
        return;
    char **to = unfit ? &recording->unfit : &recording->found;
    free(*to);
    *to = xasprintf("%.*s", (int)bytes->payload_bytes - unfit, text + unfit);
    string_make_plain(*to, strlen(*to));
}

static const char *recording_get(void *unused, const char *name)
{
    (void)unused;
    return getenv(name);
}

static int recording_find_marks(struct recording *recording, struct error *err)
{
    const char *step = recording->opts->injected;
    const char *rival = step ? inject_steps_rival(step, recording_get, NULL) : NULL;
    if (rival)
        return error_set(err, -EINVAL,
                "'%s' cannot be seen: %s is set to '%s', another tool's; unset it", step, rival,
                getenv(rival));
    return step ? inject_find(&recording->marks, err) : 0;
}

// What was found is said and stored, or why nothing was.
static int recording_say_calls(struct recording *recording, struct error *err)
{
    const char *why = NULL,
               *found = recording->calls ? native_calls_found(recording->calls, &why) : NULL;
    const char *step = recording->calls ? recording->opts->symbol : recording->opts->injected;
    uint32_t ranks = recording->steps ? reader_slot_count(recording->steps) : 0;
    char *unseen = NULL;
    if (!step)
        return 0;
    if (!recording->calls) {
        found = recording->found;
        unseen = !found && !recording->unfit && recording->steps
                ? unseen_why(recording->steps, step)
                : NULL;
        why = recording->unfit ? recording->unfit
                : unseen       ? unseen
                : found        ? NULL
                               : "their file was cut short";
    }
    unsigned long long steps = recording->result->steps;
    char *text = why && steps
            ? xasprintf("steps by '%s' were given up after %llu: %s", step, steps, why)
            : why ? xasprintf("no steps by '%s': %s", step, why)
                  : xasprintf("steps: %s, %llu in %u process%s", found, steps, ranks,
                            ranks == 1 ? "" : "es");
    if (why)
        log_warn("%s", text);
    else
        log_info("%s", text);
    int rc = store_note(recording->store, err, why ? "warning" : "info", "%s", text);
    free(text);
    free(unseen);
    return rc;
}

static void recording_on_step(void *context, uint32_t slot, const struct ug_step_record *record)
{
    struct recording *recording = context;
    struct reader_slot info = {0};
    if (record->kind != UG_RECORD_STEP || record->end_ns < record->begin_ns ||
            record->end_ns >= (uint64_t)RANGE_NS_END)
        return;
    if (recording->opts->steps_path && !recording->opts->command &&
            record->begin_ns < (uint64_t)recording->begin_ns)
        return; // of the time before us
    int64_t rank =
            reader_slot(recording->steps, slot, &info) == 0 ? (int64_t)info.rank : (int64_t)slot;
    if (recording->opts->worker && !recording->opts->command &&
            info.pid == (uint32_t)recording->opts->worker)
        rank = recording->opts->worker_rank;
    recorder_step(recording->recorder, rank, record->step, (int64_t)record->begin_ns,
            (int64_t)(record->end_ns - record->begin_ns));
    recording->result->steps++;
}

static void recording_drain_steps(struct recording *recording)
{
    uint32_t slots = recording->steps ? reader_slot_count(recording->steps) : 0;
    if (slots && reader_truncated(recording->steps)) { // reading on would end us
        reader_free(recording->steps);
        recording->steps = NULL;
        return;
    }
    for (uint32_t slot = 0; slot < slots; slot++)
        reader_drain(recording->steps, slot, recording_on_step,
                recording->opts->injected ? recording_on_text : NULL, recording, NULL);
}

static int recording_add_missing(
        struct recording *recording, const char *sentence, struct error *err)
{
    return store_exec(recording->store, err,
            "UPDATE recording SET missing = json_insert(missing, '$[#]', ?) WHERE id = ?", "si",
            sentence, recording->result->recording_id);
}

// Processes that made step calls which are not here, whoever named the steps: with what else is
// missing, which a merge hands on.
static int recording_tell_refused(struct recording *recording, struct error *err)
{
    uint32_t refused = recording->steps ? reader_refused_count(recording->steps) : 0;
    if (!refused)
        return 0;
    uint32_t kept = reader_slot_count(recording->steps);
    char *text = xasprintf(
            "steps: %u process%s found no room beside %u other%s, or marked steps by two copies of the protocol: such steps are not here",
            refused, refused == 1 ? "" : "es", kept, kept == 1 ? "" : "s");
    int rc = store_ledger(recording->store, NULL, "steps", "processes", (int64_t)kept + refused,
            kept, refused, 1, NULL, err);
    if (rc == 0)
        rc = recording_add_missing(recording, text, err);
    free(text);
    return rc;
}

// Of processes in time namespaces of their own: whose times were brought to our clock, and whose
// could not be.
static int recording_tell_clocks(struct recording *recording, struct error *err)
{
    uint32_t slots = recording->steps ? reader_slot_count(recording->steps) : 0, moved = 0,
             unplaced = 0;
    uint64_t records = 0;
    struct reader_slot info, first = {0}, lost = {0};
    for (uint32_t slot = 0; slot < slots; slot++) {
        struct reader_counters counters;
        if (reader_slot(recording->steps, slot, &info) ||
                reader_counters(recording->steps, slot, &counters))
            continue;
        if (info.clock_ahead_ns && !moved++)
            first = info;
        if (counters.records_unplaced && !unplaced++)
            lost = info;
        records += counters.records_unplaced;
    }
    int rc = 0;
    if (moved)
        rc = store_note(recording->store, err, "info",
                "steps: process %u is in a time namespace, whose clock is off by %+.9f s%s: times were brought to the machine's clock",
                first.pid, (double)first.clock_ahead_ns / 1e9,
                moved > 1 ? "; others are likewise" : "");
    if (rc || !unplaced)
        return rc;
    char *text = xasprintf(
            "steps: process %u%s marked steps by the clock of a time namespace that cannot be compared with the machine's: they are not here",
            lost.pid, unplaced > 1 ? " and others" : "");
    rc = store_ledger(recording->store, NULL, "steps", "clocks", (int64_t)records, 0,
            (int64_t)records, 1, NULL, err);
    if (rc == 0)
        rc = recording_add_missing(recording, text, err);
    free(text);
    return rc;
}

static int recording_count_dropped_steps(struct recording *recording, struct error *err)
{
    uint64_t dropped = recording_dropped_steps(recording);
    recording->result->steps_dropped =
            dropped > recording->steps_dropped ? dropped - recording->steps_dropped : 0;
    if (!recording->result->steps && !recording->result->steps_dropped)
        return 0;
    return store_ledger(recording->store, NULL, "steps", "records",
            (int64_t)(recording->result->steps + recording->result->steps_dropped),
            (int64_t)recording->result->steps, (int64_t)recording->result->steps_dropped, 0, NULL,
            err);
}

// --- the GPU side --------------------------------------------------------------------------------

// The library for a command, unless the user has a profiler of his own. Without it the host side is
// recorded all the same.
static void recording_find_library(struct recording *recording)
{
    const struct recording_opts *opts = recording->opts;
    struct error err = {0};
    const char *cuda = getenv(INJECT_CUDA_VARIABLE), *nccl = getenv(INJECT_NCCL_VARIABLE);
    if (!opts->gpu_kinds)
        return;
    if (inject_find(&recording->inject, &err)) {
        if (opts->gpu_named)
            log_warn("continuing without the GPU side of commands: %s", err.text);
        return;
    }
    if (!opts->command)
        return;
    recording->injects = !inject_is_foreign(cuda);
    if (!recording->injects)
        log_warn(
                "continuing without the GPU side: %s is set to '%s', another profiler's; unset it to record with upgate",
                INJECT_CUDA_VARIABLE, cuda);
    else if (inject_is_foreign(nccl))
        log_warn("continuing without NCCL operations: %s is set to '%s'", INJECT_NCCL_VARIABLE,
                nccl);
}

static void recording_read_gpu(struct recording *recording)
{
    json_t *list = json_array(), *process;
    struct store *store = recording->store;
    sqlite3_stmt *stmt = store_query(store, NULL,
            "SELECT json_object('pid', p.tgid, 'state', g.state, 'kinds', g.kinds, 'reason', g.reason, 'cupti_version', g.cupti_version, "
            "'cupti_path', g.cupti_path, 'driver_version', g.driver_version, 'nccl_version', g.nccl_version, "
            "'clock_samples', g.clock_samples, 'clock_residual_ns', g.clock_residual_ns, 'clock_residual_max_ns', "
            "g.clock_residual_max_ns) FROM gpu_process g JOIN process p ON p.id = g.process_id WHERE p.recording_id = ? "
            "ORDER BY g.process_id",
            "i", recording->result->recording_id);
    while (stmt && store_step(store, stmt, NULL) == 1) {
        process = json_loads((const char *)sqlite3_column_text(stmt, 0), 0, NULL);
        if (process)
            json_array_append_new(list, process);
    }
    recording->result->gpu = list;
}

// --- start ---------------------------------------------------------------------------------------

static int recording_attach(struct recording *recording, struct error *err)
{
    const struct recording_opts *opts = recording->opts;
    json_t *words = json_array();
    for (size_t i = 0; i < opts->command_count; i++) {
        json_t *word = json_string(opts->command[i]); // NULL when it is not UTF-8
        json_array_append_new(words, word ? word : json_null());
    }
    char *command = opts->command ? json_dumps(words, JSON_COMPACT) : NULL;
    json_decref(words);
    struct recorder_opts recorder = {.cgroup = opts->cgroup,
            .threshold_ns = opts->threshold_ns,
            .sample_hz = opts->sample_hz,
            .no_python = opts->no_python,
            .no_children = opts->no_children,
            .processes_max = opts->processes_max,
            .gpu_kinds = opts->gpu_kinds,
            .gpu_library = recording->inject.library,
            .host_optional = recording->injects && (opts->gpu_named || inject_has_gpu()),
            .max_bytes = opts->max_bytes,
            .live = opts->live,
            .scratch = opts->scratch,
            .command = command,
            .rank = opts->rank};
    recorder.pids = recording_pids(recording, &recorder.pid_count);
    int rc = recorder_start(recording->store, &recorder, &recording->recorder, err);
    free(command);
    struct recorder_totals totals = {.host = true};
    if (rc == 0)
        recorder_totals(recording->recorder, &totals);
    if (!totals.host)
        log_warn("no permission to record the host side: only the GPU side is recorded");
    return rc;
}

// The command is another process by now, and keeps what it was started with. So does the thread
// that sees calls: a breakpoint takes CAP_SYS_ADMIN (perf_uprobe_event_init), and places where a
// function returns to are learnt to the end.
static void recording_drop_privileges(void)
{
    struct error err = {0};
    if (privileges_drop(&err))
        log_warn("%s, continuing with all of them", err.text);
}

static int recording_start(struct recording *recording, struct error *err)
{
    const struct recording_opts *opts = recording->opts;
    // Large tables by themselves: they grow without a copy, and what was freed is gone. By itself
    // glibc takes what is as large as what was freed before, up to 32 MB, from a heap that does not
    // shrink: 7 MB more of 46.
    mallopt(M_MMAP_THRESHOLD, RECORDING_LARGE_BYTES);
    mallopt(M_TRIM_THRESHOLD, RECORDING_LARGE_BYTES);
    int rc = recording_open_store(recording, err);
    if (rc == 0)
        recording_find_library(recording);
    if (rc == 0)
        rc = recording_find_marks(recording, err);
    if (rc == 0 && !opts->no_steps &&
            (opts->command || opts->worker || opts->symbol || opts->steps_path))
        recording_open_steps(recording);
    // whose steps are named has no others
    const char *steps_path = opts->symbol ? NULL : recording->steps_path;
    if (rc == 0 && opts->injected && !steps_path)
        rc = error_set(err, -ENOSPC, "no file for steps can be made in /dev/shm");
    bool finds = opts->command && opts->finds_steps && steps_path && !opts->injected;
    char *python_dir = rc == 0 && finds ? python_steps_dir() : NULL;
    if (rc == 0 && opts->command && !opts->worker) {
        struct command_find find = {python_dir, opts->injected ? opts->injected : opts->step,
                opts->injected ? &recording->marks : NULL};
        rc = command_start(opts->command, steps_path, python_dir || opts->injected ? &find : NULL,
                recording->injects ? &recording->inject : NULL, opts->gpu_kinds,
                &recording->command, err);
    }
    // On a busy machine looks at sleeping threads must not come late, nor rings overflow. The
    // command has been forked before and keeps its own priority. Where it is not allowed, things
    // are as they are.
    setpriority(PRIO_PROCESS, 0, RECORDING_NICE);
    if (rc == 0)
        rc = recording_attach(recording, err);
    if (rc == 0)
        rc = recording_see_calls(recording, err);
    // who wanted to end it does not want the command to begin
    if (rc == 0 && opts->command && recording_signal)
        rc = error_set(
                err, -ECANCELED, "ended by a signal before '%s' was started", opts->command[0]);
    if (rc == 0)
        recording_drop_privileges();
    if (rc == 0 && opts->worker)
        opts->release(opts->context,
                &(struct recording_release){steps_path, python_dir != NULL, recording->injects});
    else if (rc == 0 && opts->command)
        rc = command_release(&recording->command, opts->command[0], err);
    free(python_dir);
    recording->begin_ns = clock_monotonic_ns();
    return rc;
}

// --- rounds --------------------------------------------------------------------------------------

static void recording_show(struct recording *recording, int64_t now_ns)
{
    struct recorder_totals totals;
    if (!recording->progress || now_ns < recording->progress_ns)
        return;
    recording->progress_ns = now_ns + RECORDING_PROGRESS_NS;
    recorder_totals(recording->recorder, &totals);
    char *gpu = totals.gpu.processes
            ? xasprintf("%llu kernels, ", (unsigned long long)totals.gpu.kernels)
            : xstrdup("");
    char *line = xasprintf(
            "recording %lld s: %s%llu gaps of %u thread%s, %llu samples, %llu lost; Ctrl-C ends it",
            (long long)((now_ns - recording->begin_ns) / 1000000000), gpu,
            (unsigned long long)totals.gaps, totals.threads, totals.threads == 1 ? "" : "s",
            (unsigned long long)totals.samples, (unsigned long long)totals.dropped);
    char *fit = screen_fit(line, screen_fd_width(STDERR_FILENO, 80) - 1, screen_locale_utf8());
    fprintf(stderr, "\r\033[K%s", fit);
    fflush(stderr);
    free(fit);
    free(line);
    free(gpu);
}

static void recording_clear_line(void)
{
    fputs("\r\033[K", stderr);
    fflush(stderr);
}

static int recording_loop(struct recording *recording, struct error *err)
{
    const struct recording_opts *opts = recording->opts;
    int64_t end_ns = opts->duration_ns ? recording->begin_ns + opts->duration_ns : INT64_MAX;
    struct recording_result *result = recording->result;
    const int round_ms = opts->on_round ? RECORDING_JOIN_MS : RECORDING_ROUND_MS;
    bool alive = true;
    int rc = 0;
    for (;;) {
        int64_t now_ns = clock_monotonic_ns();
        recording_show(recording, now_ns);
        if (recording_signal || now_ns >= end_ns || !alive || rc ||
                (opts->is_over && opts->is_over(opts->context)))
            break;
        int64_t wait_ms = (end_ns - now_ns) / 1000000 + 1;
        rc = recorder_poll(
                recording->recorder, wait_ms < round_ms ? (int)wait_ms : round_ms, &alive, err);
        recording_drain_steps(recording);
        if (opts->on_round && alive && rc == 0)
            opts->on_round(opts->context, recording->recorder, false);
        if (opts->command && command_ended(&recording->command) && opts->no_children)
            alive = false;
    }
    if (opts->on_round)
        opts->on_round(opts->context, recording->recorder, true);
    result->signal = recording_signal;
    result->ending = recording_signal ? RECORDING_SIGNAL
            : alive                   ? RECORDING_TIME
                                      : RECORDING_TARGET;
    result->length_ns = clock_monotonic_ns() - recording->begin_ns;
    return rc;
}

static char *recording_missing(struct recording *recording)
{
    struct strbuf out = {0};
    char *text = store_get_text(recording->store, "SELECT missing FROM recording WHERE id = ?", "i",
            recording->result->recording_id);
    json_t *list = text ? json_loads(text, 0, NULL) : NULL, *sentence;
    size_t i;
    json_array_foreach(list, i, sentence) strbuf_add(&out, "%s\n", json_string_value(sentence));
    json_decref(list);
    free(text);
    return strbuf_take(&out);
}

static int recording_finish(struct recording *recording, int rc, struct error *err)
{
    struct recording_result *result = recording->result;
    struct error end = {0};
    native_calls_stop(recording->calls);
    recording_drain_steps(recording);
    recorder_totals(recording->recorder, &result->totals);
    int end_rc = recorder_stop(recording->recorder, &result->recording_id, &end);
    int steps_rc = recording_count_dropped_steps(recording, end_rc ? NULL : &end);
    if (steps_rc == 0)
        steps_rc = recording_tell_refused(recording, end_rc ? NULL : &end);
    if (steps_rc == 0)
        steps_rc = recording_tell_clocks(recording, end_rc ? NULL : &end);
    if (steps_rc == 0)
        steps_rc = recording_say_calls(recording, end_rc ? NULL : &end);
    end_rc = end_rc ? end_rc : steps_rc;
    recorder_totals(recording->recorder, &result->totals);
    // On a full disk too: these few bytes may find room.
    int state_rc = recording_store_end(
            recording, rc || end_rc ? "interrupted" : "done", end_rc ? NULL : &end);
    end_rc = end_rc ? end_rc : state_rc;
    result->missing = recording_missing(recording);
    recording_read_gpu(recording);
    int read_rc = store_failed(recording->store, end_rc ? NULL : &end);
    end_rc = end_rc ? end_rc : read_rc;
    if (rc == 0 && end_rc == 0 && !result->totals.host && !result->totals.gpu.processes)
        end_rc = error_set(&end, -EPERM,
                "nothing was recorded: no permission for the host side, and no process with CUDA "
                "was prepared");
    if (rc == 0 && end_rc)
        rc = error_set(err, end_rc, "%s", end.text);
    if (recording->opts->command)
        result->command_ended = command_ended(&recording->command);
    result->command_status = recording->command.status;
    return rc;
}

int recording_check(const struct recording_opts *opts, struct error *err)
{
    int rc = opts->path ? recording_check_path(opts->path, err) : 0;
    return rc ? rc : recorder_check_pids(opts->pids, opts->pid_count, err);
}

int recording_run(
        const struct recording_opts *opts, struct recording_result *ret_result, struct error *err)
{
    struct recording recording = {
            .opts = opts, .result = ret_result, .command = {.release_fd = -1, .failure_fd = -1}};
    *ret_result = (struct recording_result){0};
    recording.progress = opts->progress && isatty(STDERR_FILENO);
    recording_catch_signals(opts);
    if (recording.progress)
        log_set_hook(recording_clear_line);
    int rc = recording_start(&recording, err);
    bool started = rc == 0;
    if (started)
        rc = recording_loop(&recording, err);
    if (recording.recorder && started)
        rc = recording_finish(&recording, rc, err);
    if (recording.progress) {
        recording_clear_line();
        log_set_hook(NULL);
    }
    recorder_free(recording.recorder);
    store_close(recording.store);
    if (recording.store && !started) // made by us, and nothing is in it
        unlink(opts->path);
    command_close(&recording.command);
    native_calls_free(recording.calls);
    reader_free(recording.steps);
    free(recording.steps_path);
    inject_free(&recording.inject);
    inject_free(&recording.marks);
    free(recording.found);
    free(recording.unfit);
    return rc;
}
