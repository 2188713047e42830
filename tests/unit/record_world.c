// SPDX-License-Identifier: Apache-2.0
// The capture that is none, and what all tests of the recorder begin with. The functions of
// bpf/capture.h take the place of the library's.
#include "tests/unit/record_world.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/strings.h"
#include "tests/unit/runner.h"

// --- the capture ---------------------------------------------------------------------------------

struct capture {
    capture_callback callback;
    void *context;
};

static struct capture fake_opened;
static _Alignas(8) unsigned char fake_queue[8 << 20];
static size_t fake_len;
struct fake_capture fake_capture;

int capture_open(const struct capture_opts *opts, capture_callback callback, void *context,
        struct capture **ret_capture, struct error *err)
{
    fake_capture.processes_max = opts->processes_max;
    fake_capture.faults = opts->faults;
    if (fake_capture.open_error)
        return error_set(err, fake_capture.open_error, "not permitted");
    fake_opened = (struct capture){.callback = callback, .context = context};
    *ret_capture = &fake_opened;
    return 0;
}

size_t capture_count_targets(const struct capture_opts *opts)
{
    (void)opts;
    return fake_capture.targets;
}

int capture_poll(struct capture *capture, int wait_ms)
{
    int count = 0;
    (void)wait_ms;
    for (size_t at = 0; at < fake_len; count++) {
        const struct ug_head *head = (const void *)(fake_queue + at);
        capture->callback(capture->context, head);
        at += head->size;
    }
    fake_len = 0;
    return count;
}

int capture_add_target(struct capture *capture, pid_t tgid, struct error *err)
{
    (void)capture;
    fake_capture.added = tgid;
    return fake_capture.add_error ? error_set(err, fake_capture.add_error, "no room for it") : 0;
}

int capture_waiting(struct capture *capture)
{
    (void)capture;
    return 0;
}

int capture_look(struct capture *capture)
{
    (void)capture;
    return fake_capture.look_error;
}

int capture_totals(struct capture *capture)
{
    (void)capture;
    return fake_capture.totals_error;
}

void capture_counts(struct capture *capture, struct ug_counts ret_counts[UG_COUNTER_COUNT])
{
    (void)capture;
    memcpy(ret_counts, fake_capture.counts, sizeof fake_capture.counts);
}

bool capture_samples_faults(const struct capture *capture)
{
    (void)capture;
    return fake_capture.faults;
}

bool capture_mappings(const struct capture *capture, uint64_t *ret_seen, uint64_t *ret_lost)
{
    (void)capture;
    *ret_seen = 100;
    *ret_lost = 7;
    return true;
}

const char *const *capture_missing(const struct capture *capture, size_t *ret_count)
{
    static const char *const missing[] = {"signals: \"quoted\", not here"};
    (void)capture;
    *ret_count = 1;
    return missing;
}

bool capture_unwinds(const struct capture *capture)
{
    (void)capture;
    return true;
}

int capture_unwind_slab(struct capture *capture, uint32_t slab, const uint32_t *words)
{
    (void)capture, (void)words;
    fake_capture.slabs = slab + 1 > fake_capture.slabs ? slab + 1 : fake_capture.slabs;
    return 0;
}

int capture_unwind_rule(
        struct capture *capture, uint32_t world_number, const struct ug_unwind_rule *rule)
{
    (void)capture, (void)rule;
    fake_capture.rules = world_number + 1;
    return 0;
}

int capture_unwind_process(
        struct capture *capture, pid_t tgid, const struct ug_unwind_process *process)
{
    (void)capture;
    fake_capture.unwound = process ? tgid : 0;
    if (process)
        fake_capture.process = *process;
    return 0;
}

int capture_python_process(
        struct capture *capture, pid_t tgid, const struct ug_python_process *python)
{
    (void)capture, (void)tgid, (void)python;
    return 0;
}

int capture_detach(struct capture *capture)
{
    (void)capture;
    return fake_capture.detach_error;
}

void capture_close(struct capture *capture)
{
    (void)capture;
}

// --- a target and its records --------------------------------------------------------------------

struct record_world world = {.dir = "/tmp/upgate-record-XXXXXX"};

void world_end_target(void)
{
    kill(world.target, SIGKILL);
    waitpid(world.target, NULL, 0);
}

void world_begin_as(bool scratch)
{
    struct error err = {0};
    if (!runner_directory(world.dir) && errno != EINVAL)
        runner_fail(__FILE__, __LINE__, "no directory");
    snprintf(world.path, sizeof world.path, "%s/run.db", world.dir);
    world.target = fork();
    if (world.target == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); // a case that fails leaves nobody behind
        pause();
        _exit(0);
    }
    struct recorder_opts opts = {
            .pids = &world.target, .pid_count = 1, .no_python = true, .scratch = scratch};
    if (store_open(world.path, STORE_CREATE, &world.store, &err) ||
            recorder_start(world.store, &opts, &world.recorder, &err))
        runner_fail(__FILE__, __LINE__, "%s", err.text);
}

void world_begin(void)
{
    world_begin_as(false);
}

pid_t world_reader(void)
{
    static const char name[] = "upgate-files\n";
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    char *text = string_read_file(path, 4096, NULL);
    pid_t found = 0;
    for (char *at = text, *end; at; at = end) { // in the order of their birth: one before it may
                                                // have been killed, and not yet be gone
        pid_t pid = (pid_t)strtol(at, &end, 10);
        if (pid <= 0)
            break;
        snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
        char *comm = string_read_file(path, 64, NULL);
        found = comm && strcmp(comm, name) == 0 ? pid : found;
        free(comm);
    }
    free(text);
    return found;
}

int64_t world_number(const char *sql)
{
    int64_t value = -1;
    store_get_int(world.store, &value, NULL, sql, "");
    return value;
}

void world_check_text(const char *sql, const char *part)
{
    char *text = store_get_text(world.store, sql, "");
    CHECK_CONTAINS(text ? text : "(null)", part);
    free(text);
}

void world_end(void)
{
    struct error err = {0};
    bool alive = false;
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, &err), 0);
    CHECK(alive);
    CHECK_INT(recorder_stop(world.recorder, NULL, &err), 0);
    recorder_free(world.recorder);
    CHECK(world_number("SELECT end_ns FROM recording") > 0);
    CHECK_INT(world_number("SELECT count(*) FROM pragma_foreign_key_check"), 0);
    world_end_target();
}

void world_push(const void *record, size_t size, const __u64 *addresses, size_t count)
{
    struct ug_head head;
    memcpy(&head, record, sizeof head);
    head.size = (__u32)(size + count * sizeof *addresses);
    if (fake_len + head.size > sizeof fake_queue)
        runner_fail(__FILE__, __LINE__, "the queue is full");
    memcpy(fake_queue + fake_len, record, size);
    memcpy(fake_queue + fake_len, &head, sizeof head);
    if (count)
        memcpy(fake_queue + fake_len + size, addresses, count * sizeof *addresses);
    fake_len += head.size;
}

struct ug_gap world_gap(uint32_t tid, uint64_t out_ns)
{
    return (struct ug_gap){.head = {.kind = UG_EVENT_GAP},
            .out_ns = out_ns,
            .waking_ns = out_ns + 2000000,
            .in_ns = out_ns + 3000000,
            .task = {.tid = tid, .tgid = (__u32)world.target, .comm = "worker"},
            .syscall_nr = -1};
}
