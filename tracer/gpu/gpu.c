// SPDX-License-Identifier: Apache-2.0
// Life of the GPU side of a recording: finds spools, switches them on, empties them in turns,
// writes what is old enough, switches them off.
#include "tracer/gpu/gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "tracer/gpu/inside.h"

enum {
    GPU_HEARTBEAT_NS = 250000000,
    GPU_COMMIT_NS = 1000000000,
    GPU_STOP_NAP_NS = 5000000,
    GPU_CACHE_KIB = 16384, // of SQLite's pages while loading
};

// --- start and end -------------------------------------------------------------------------------

int gpu_recorder_new(struct store *store, int64_t recording_id,
        const struct gpu_callbacks *callbacks, const struct gpu_opts *opts,
        struct gpu_recorder **ret_gpu, struct error *err)
{
    struct gpu_recorder *gpu = xcalloc(1, sizeof *gpu);
    gpu->store = store;
    gpu->recording_id = recording_id;
    gpu->callbacks = *callbacks;
    gpu->kinds = opts && opts->kinds ? opts->kinds : (uint32_t)UG_WANT_DEFAULT;
    gpu->has_launch = opts && opts->launch_id;
    gpu->launch_id = gpu->has_launch ? *opts->launch_id : 0;
    gpu->call_slots_left = CALLS_SLOTS_MAX;
    gpu->raw_left = GPU_RAW_ALL_MAX;
    int rc = batch_new(store, &gpu->callbacks, &gpu->batch, err);
    if (rc == 0)
        rc = gpu_names_new(gpu, err);
    if (rc) {
        gpu_recorder_free(gpu);
        return rc;
    }
    gpu->held = xcalloc(GPU_HELD_MAX, sizeof *gpu->held);
    gpu_ops_new(gpu);
    if (!callbacks->begin) // as the recorder's writer has it: rows name others that come with a
                           // later batch
        sqlite3_exec(store_db(store), "PRAGMA foreign_keys = OFF; PRAGMA synchronous = NORMAL",
                NULL, NULL, NULL);
    *ret_gpu = gpu;
    return 0;
}

// Lets go of the spool; what was counted stays for the ledger.
static void process_close(struct gpu_process *process)
{
    process->closed = true;
    spool_reader_close(process->reader);
    process->reader = NULL;
    process->gpu->raw_left += process->raw_capacity;
    process->raw_capacity = 0;
    free(process->raw);
    process->raw = NULL;
    free(process->strings);
    process->strings = NULL;
    process->string_capacity = 0;
}

static void process_free(struct gpu_process *process)
{
    process_close(process);
    calls_free(process->calls);
    map_free(&process->thread_ids);
    map_free(&process->stream_ids);
    free(process->threads);
    free(process->streams);
    free(process);
}

void gpu_recorder_free(struct gpu_recorder *gpu)
{
    if (!gpu)
        return;
    for (uint32_t i = 0; i < gpu->process_count; i++) {
        if (gpu->processes[i]->reader && !gpu->stopped &&
                !spool_reader_taken(gpu->processes[i]->reader))
            spool_reader_ask(gpu->processes[i]->reader, UG_SPOOL_DORMANT, 0, clock_monotonic_ns());
        process_free(gpu->processes[i]);
    }
    gpu_ops_free(gpu);
    gpu_names_free(gpu);
    free(gpu->held);
    batch_free(gpu->batch);
    sqlite3_exec(store_db(gpu->store), "PRAGMA cache_size = -2000", NULL, NULL, NULL);
    if (!gpu->callbacks.begin)
        sqlite3_exec(store_db(gpu->store), "PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL",
                NULL, NULL, NULL);
    free(gpu);
}

// --- attach --------------------------------------------------------------------------------------

static struct gpu_process *process_of(const struct gpu_recorder *gpu, pid_t pid)
{
    for (uint32_t i = gpu->process_count; i-- > 0;)
        if (gpu->processes[i]->pid == pid &&
                (!gpu->processes[i]->closed || gpu->processes[i]->taken))
            return gpu->processes[i]; // not taken back: two recorders would take turns
    return NULL;
}

static bool is_attached(const struct gpu_recorder *gpu, pid_t pid)
{
    return process_of(gpu, pid) != NULL;
}

// Not before there is something to load: it is a quarter of the memory that a recorder may have.
static void recorder_grow_cache(struct gpu_recorder *gpu)
{
    char *sql = xasprintf("PRAGMA cache_size = -%d", GPU_CACHE_KIB);
    sqlite3_exec(store_db(gpu->store), sql, NULL, NULL, NULL);
    free(sql);
}

// What was counted and written before belongs to an earlier recorder; if none ever asked, the
// library began by itself for us.
static void process_begin(struct gpu_process *process)
{
    spool_reader_header(process->reader, &process->header);
    const struct ug_spool_header *header = &process->header;
    if (header->generation == 0)
        return;
    gpu_names_peek(process); // names stay valid
    spool_reader_skip(process->reader);
    spool_reader_header(process->reader, &process->header);
    memcpy(process->before, header->counts, sizeof process->before);
    process->before_cupti_dropped = header->cupti_dropped;
    process->before_discarded = header->cupti_buffers_discarded;
    process->before_unknown = header->unknown_records;
}

static bool is_known_spool(const struct gpu_recorder *gpu, pid_t pid, int fd)
{
    struct stat info;
    const struct gpu_process *known = process_of(gpu, pid);
    return known && fstat(fd, &info) == 0 && known->inode == info.st_ino;
}

static int recorder_attach(
        struct gpu_recorder *gpu, pid_t pid, int fd, int64_t ahead_ns, struct error *err)
{
    struct gpu_process *known = process_of(gpu, pid);
    if (gpu->process_count == GPU_PROCESSES_MAX)
        return error_set(err, -EPROTO, "more than %d processes with a GPU", (int)GPU_PROCESSES_MAX);
    uint32_t row = gpu->callbacks.process(gpu->callbacks.context, pid);
    if (!row)
        return -ENOENT;
    struct spool_reader *reader = NULL;
    int rc = spool_reader_open(fd, &reader, err);
    if (rc)
        return rc;
    if (known)
        known->gone = true; // exec: another program with a spool of its own
    struct gpu_process *process = xcalloc(1, sizeof *process);
    process->gpu = gpu;
    process->index = gpu->process_count;
    process->row = row;
    process->pid = pid;
    process->reader = reader;
    process->ahead_ns = ahead_ns;
    spool_reader_set_clock(reader, ahead_ns);
    process->inode = spool_reader_inode(reader);
    process->peek_bytes_left = GPU_PEEK_BYTES;
    process->calls = calls_new(&gpu->call_slots_left, gpu_call_given_up, process);
    if (!gpu->process_count)
        recorder_grow_cache(gpu);
    gpu->processes[gpu->process_count++] = process;
    gpu->now_ns = clock_monotonic_ns();
    process_begin(process);
    spool_reader_ask(reader, UG_SPOOL_ACTIVE, gpu->kinds, gpu->now_ns);
    gpu_process_row(process);
    return 0;
}

int gpu_recorder_attach_fd(struct gpu_recorder *gpu, pid_t pid, int fd, struct error *err)
{
    return is_known_spool(gpu, pid, fd) ? 0 : recorder_attach(gpu, pid, fd, 0, err);
}

// Of a process in a time namespace. Without it all that it says would lie beside what the kernel
// tells of it, and it would take us for gone.
static int process_find_clock(pid_t pid, int64_t *ret_ahead_ns, struct error *err)
{
    char dir[32];
    struct time_offsets ahead;
    uint64_t inode;
    snprintf(dir, sizeof dir, "/proc/%d", (int)pid);
    int rc = clock_compare(dir, &inode, &ahead);
    if (rc == -ESRCH)
        return -ENOENT;
    if (rc == -EACCES)
        return error_set(err, rc, "process %d may not be looked into: %s", (int)pid, strerror(-rc));
    if (rc)
        return error_set(err, -EPROTO,
                "process %d is in a time namespace whose clock cannot be compared with the machine's",
                (int)pid);
    *ret_ahead_ns = ahead.monotonic_ns;
    return 0;
}

int gpu_recorder_attach(struct gpu_recorder *gpu, pid_t pid, struct error *err)
{
    int64_t ahead_ns = 0;
    int fd = -1, rc = spool_reader_find(pid, &fd);
    if (rc == -EACCES || rc == -EPERM)
        return error_set(
                err, -EACCES, "process %d may not be looked into: %s", (int)pid, strerror(-rc));
    if (rc)
        return is_attached(gpu, pid) ? 0 : -ENOENT;
    bool known = is_known_spool(gpu, pid, fd);
    rc = known ? 0 : process_find_clock(pid, &ahead_ns, err);
    if (rc == 0 && !known)
        rc = recorder_attach(gpu, pid, fd, ahead_ns, err);
    close(fd);
    return rc;
}

void gpu_recorder_gone(struct gpu_recorder *gpu, pid_t pid)
{
    for (uint32_t i = 0; i < gpu->process_count; i++)
        if (gpu->processes[i]->pid == pid)
            gpu->processes[i]->gone = true;
}

// --- rounds --------------------------------------------------------------------------------------

static void process_look(struct gpu_process *process)
{
    uint32_t state = process->header.state;
    spool_reader_header(process->reader, &process->header);
    process->taken |= spool_reader_taken(process->reader);
    // ENDED: what was on until then; a short process ends between two looks.
    bool was_on =
            process->header.state == UG_SPOOL_ACTIVE || process->header.state == UG_SPOOL_ENDED;
    process->kinds |= was_on ? process->header.have_kinds : 0;
    process->ever_active |= process->header.state == UG_SPOOL_ACTIVE;
    if (process->header.state != state)
        gpu_process_row(process);
}

// Reads what is there; all: until nothing comes, within reason.
static uint64_t process_drain(struct gpu_process *process, bool all)
{
    if (process->taken) // two readers would each get a part
        return 0;
    uint64_t bytes = 0, more;
    // The size is the process's word, which may fill the spool as fast as it is read.
    uint64_t file_bytes = process->header.file_bytes < GPU_FILE_BYTES_MAX
            ? process->header.file_bytes
            : GPU_FILE_BYTES_MAX;
    uint64_t bytes_max = all ? 8 * file_bytes : GPU_BATCH_BYTES;
    process->peeks = 0;
    process->peek_bytes_left = GPU_PEEK_BYTES;
    do {
        more = spool_reader_drain(process->reader, GPU_BATCH_BYTES, gpu_record, process);
        bytes += more;
    } while (more && bytes < bytes_max);
    return bytes;
}

static void process_finish(struct gpu_process *process)
{
    process_look(process);
    process_drain(process, true);
    process_look(process);
    spool_reader_damage(process->reader, &process->damage);
    gpu_write_all(process->gpu); // ops name it by number, and its texts go
    uint64_t alone = process->counters.launches_alone;
    calls_flush(process->calls);
    // It ended, or did not answer, before CUPTI had handed over what it held. What was given up
    // earlier ran nothing, as in the capture of a graph.
    if (process->header.state == UG_SPOOL_ACTIVE && !process->taken)
        process->counters.launches_cut = process->counters.launches_alone - alone;
    if (!process->gone && !process->taken)
        spool_reader_let_go(process->reader);
    process_close(process);
}

// The library takes a recorder that has not beaten for UG_SPOOL_STALE_NS for gone. One that was
// only stopped, or waited for its disk, wants the rest all the same. done: it had acted on what was
// asked last when we looked.
static void process_recall(struct gpu_process *process, bool done)
{
    if (!done || !process->ever_active || process->header.state != UG_SPOOL_DORMANT)
        return;
    process->counters.lapses++;
    spool_reader_ask(process->reader, UG_SPOOL_ACTIVE, process->gpu->kinds, process->gpu->now_ns);
}

static void process_round(struct gpu_process *process)
{
    bool done = spool_reader_done(process->reader); // first: the answer comes after the state
    process_look(process);
    if (process->gone || process->taken) {
        process_finish(process);
        return;
    }
    process_recall(process, done);
    process_drain(process, false);
    spool_reader_damage(process->reader, &process->damage);
    if (process->raw_count && process->gpu->now_ns - process->raw_since_ns > 2 * GPU_DELAY_NS) {
        process->counters.without_clock += process->raw_count; // no sample came for so long
        gpu_ops_clocked(process, true);
    }
    calls_age(process->calls, process->gpu->now_ns);
}

int gpu_recorder_poll(struct gpu_recorder *gpu, int64_t now_ns, struct error *err)
{
    gpu->now_ns = now_ns;
    bool beat = now_ns >= gpu->heartbeat_next_ns;
    if (beat)
        gpu->heartbeat_next_ns = now_ns + GPU_HEARTBEAT_NS;
    for (uint32_t i = 0; i < gpu->process_count; i++) {
        if (gpu->processes[i]->closed)
            continue;
        if (beat)
            spool_reader_heartbeat(gpu->processes[i]->reader, now_ns);
        process_round(gpu->processes[i]);
    }
    if (gpu->op_min_ns < now_ns - GPU_DELAY_NS - GPU_EMIT_NS)
        gpu_ops_write(gpu, now_ns - GPU_DELAY_NS);
    gpu_held_write(gpu, false);
    if (gpu->callbacks.begin || now_ns < gpu->commit_next_ns)
        return batch_flush(gpu->batch, err);
    gpu->commit_next_ns = now_ns + GPU_COMMIT_NS;
    return batch_commit(gpu->batch, err);
}

// Ask all, then wait for all.
static void recorder_switch_off(struct gpu_recorder *gpu, int wait_ms)
{
    for (uint32_t i = 0; i < gpu->process_count; i++)
        if (!gpu->processes[i]->closed && !gpu->processes[i]->gone &&
                !spool_reader_taken(gpu->processes[i]->reader))
            spool_reader_ask(gpu->processes[i]->reader, UG_SPOOL_DORMANT, 0, clock_monotonic_ns());
    int64_t end_ns = clock_monotonic_ns() + wait_ms * (int64_t)1000000;
    for (bool waits = true; waits;) {
        waits = false;
        gpu->now_ns = clock_monotonic_ns();
        for (uint32_t i = 0; i < gpu->process_count; i++) {
            struct gpu_process *process = gpu->processes[i];
            if (process->closed)
                continue;
            process_look(process); // what it hands over needs room
            process_drain(process, false);
            waits |= !process->gone && !process->taken && !spool_reader_done(process->reader) &&
                    process->header.state == UG_SPOOL_ACTIVE;
        }
        waits &= clock_monotonic_ns() < end_ns;
        if (waits)
            clock_sleep_until_ns(clock_monotonic_ns() + GPU_STOP_NAP_NS);
    }
}

int gpu_recorder_stop(struct gpu_recorder *gpu, int wait_ms, struct error *err)
{
    if (gpu->stopped)
        return 0;
    recorder_switch_off(gpu, wait_ms);
    gpu->stopped = true;
    for (uint32_t i = 0; i < gpu->process_count; i++)
        if (!gpu->processes[i]->closed)
            process_finish(gpu->processes[i]);
    gpu_ranges_end(gpu);
    int rc = batch_flush(gpu->batch, err);
    gpu_ledger(gpu);
    return rc ? rc : batch_commit(gpu->batch, err);
}

void gpu_recorder_totals(const struct gpu_recorder *gpu, struct gpu_totals *ret_totals)
{
    *ret_totals = (struct gpu_totals){.kernels = gpu->rows_kernels,
            .copies = gpu->rows_copies,
            .graphs = gpu->rows_graphs,
            .calls = batch_rows(gpu->batch, BATCH_CALL),
            .marks = batch_rows(gpu->batch, BATCH_MARK),
            .collectives = gpu->rows_nccl,
            .others = gpu->rows_others + gpu->rows_stacks,
            .dropped = batch_lost(gpu->batch) + batch_odd(gpu->batch),
            .processes = gpu->process_count};
    for (uint32_t i = 0; i < gpu->process_count; i++) {
        const struct gpu_process *process = gpu->processes[i];
        ret_totals->taken = process->taken ? process->pid : ret_totals->taken;
        ret_totals->dropped += gpu_process_dropped(process);
        ret_totals->active += !process->closed && process->header.state == UG_SPOOL_ACTIVE;
        if (process->header.state != UG_SPOOL_REFUSED)
            continue;
        ret_totals->refused++;
        memcpy(ret_totals->refused_reason, process->header.reason,
                sizeof ret_totals->refused_reason);
    }
}
