// SPDX-License-Identifier: Apache-2.0
// The file of the step protocol and its gate, on the harness's side. Writes the header, granted and
// request of the slots; reads what the processes publish. The rings are in reader_rings.c.

#include "harness/steps/reader.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/proc.h"
#include "harness/steps/reader_internal.h"

#define SLOT_COUNT_DEFAULT 64
#define RING_RECORDS_DEFAULT 65536
#define RING_RECORDS_MAX (1u << 24)
#define RING_BYTES_DEFAULT (8u << 20)
#define RING_BYTES_MAX (1ull << 32)
// A killed process raises no event, so a wait looks for one this often.
#define ALIVE_CHECK_NS 100000000

static uint64_t power_of_two(uint64_t value)
{
    uint64_t power = 2;

    while (power < value) {
        power *= 2;
    }
    return power;
}

static uint64_t align(uint64_t value)
{
    return (value + UG_STEP_ALIGN_BYTES - 1) & ~(uint64_t)(UG_STEP_ALIGN_BYTES - 1);
}

static int plan_header(
        struct ug_step_header *ret_header, const struct reader_opts *opts, struct error *err)
{
    uint32_t slot_count = opts->slot_count != 0 ? opts->slot_count : SLOT_COUNT_DEFAULT;
    uint64_t records = opts->ring_records != 0 ? opts->ring_records : RING_RECORDS_DEFAULT;
    uint64_t bytes = opts->ring_bytes != 0 ? opts->ring_bytes : RING_BYTES_DEFAULT;
    const void *image;

    if (slot_count > UG_STEP_SLOTS_MAX) {
        return error_set(err, -EINVAL, "failed to make a step file of %u slots: at most %u",
                slot_count, UG_STEP_SLOTS_MAX);
    }
    if (records > RING_RECORDS_MAX || bytes > RING_BYTES_MAX) {
        return error_set(err, -EINVAL,
                "failed to make step rings of %llu records and %llu bytes: at most %u and %llu",
                (unsigned long long)records, (unsigned long long)bytes, RING_RECORDS_MAX,
                RING_BYTES_MAX);
    }
    bytes = bytes < UG_STEP_ALIGN_BYTES ? UG_STEP_ALIGN_BYTES : bytes;
    *ret_header = (struct ug_step_header){
            .version = UG_STEP_VERSION,
            .slot_count = slot_count,
            .slot_bytes = sizeof(struct ug_step_slot),
            .record_bytes = sizeof(struct ug_step_record),
            .slots_offset = UG_STEP_HEADER_BYTES,
            .ring_records = power_of_two(records),
            .ring_bytes = power_of_two(bytes),
            .harness_pid = (uint32_t)getpid(),
            .control_ppm = opts->control_ppm,
    };
    ret_header->rings_offset =
            align(UG_STEP_HEADER_BYTES + slot_count * sizeof(struct ug_step_slot));
    ret_header->stride_bytes = ug_step_ring_span(ret_header->ring_records) + ret_header->ring_bytes;
    ret_header->file_bytes = ret_header->rings_offset + slot_count * ret_header->stride_bytes;
    image = (const void *)getauxval(AT_RANDOM);
    if (image != NULL) {
        memcpy(&ret_header->harness_image, image, sizeof(ret_header->harness_image));
    }
    return 0;
}

static int take_lock(const struct reader *reader)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};

    return fcntl(reader->fd, F_SETLK, &lock) == 0 ? 0
            : errno == EAGAIN || errno == EACCES  ? -EBUSY
                                                  : -errno;
}

// Gives the file its size, and takes memory for what all slots share.
static int size_file(const struct reader *reader, const struct ug_step_header *plan)
{
    if (ftruncate(reader->fd, (off_t)plan->file_bytes) != 0) {
        return -errno;
    }
    return -posix_fallocate(reader->fd, 0, (off_t)plan->rings_offset);
}

// Maps what all slots share.
static int map_file(struct reader *reader, const struct ug_step_header *plan)
{
    void *map = mmap(NULL, plan->rings_offset, PROT_READ | PROT_WRITE, MAP_SHARED, reader->fd, 0);

    if (map == MAP_FAILED) {
        return -errno;
    }
    reader->map_bytes = plan->rings_offset;
    reader->header = map;
    reader->plan = *plan;
    reader->slots = (struct ug_step_slot *)((char *)map + plan->slots_offset);
    return 0;
}

static int make_file(struct reader *reader, const struct ug_step_header *plan, bool open_gate)
{
    int rc = size_file(reader, plan);

    rc = rc < 0 ? rc : map_file(reader, plan);
    if (rc < 0) {
        return rc;
    }
    *reader->header = *plan;
    for (uint32_t i = 0; i < plan->slot_count; i++) {
        reader->slots[i].granted = open_gate ? UG_STEP_RUN_FREE : 0;
    }
    __atomic_store_n(&reader->header->magic, UG_STEP_MAGIC, __ATOMIC_RELEASE);
    return 0;
}

// Takes over the file that another reader left, locked by us: its slots and what stands in them.
// One that was not finished is made.
static int take_over_file(struct reader *reader, const struct ug_step_header *plan, bool open_gate)
{
    struct ug_step_header found = {0};
    struct stat status;
    int rc;

    if (fstat(reader->fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid() ||
            pread(reader->fd, &found, sizeof(found), 0) < 0) {
        return -EBADMSG;
    }
    if (status.st_size == 0 || ((uint64_t)status.st_size == plan->file_bytes && found.magic == 0)) {
        return make_file(reader, plan, open_gate);
    }
    // A reader's own fields, and those of the processes, differ.
    if (found.magic != UG_STEP_MAGIC || (uint64_t)status.st_size != plan->file_bytes ||
            memcmp(&found.version, &plan->version,
                    offsetof(struct ug_step_header, harness_image) -
                            offsetof(struct ug_step_header, version)) != 0) {
        return -EBADMSG;
    }
    rc = map_file(reader, plan);
    if (rc < 0) {
        return rc;
    }
    reader->header->harness_image = plan->harness_image;
    reader->header->harness_pid = plan->harness_pid;
    reader->header->control_ppm = plan->control_ppm;
    if (open_gate) {
        reader_open_gate(reader);
    }
    return 0;
}

static int open_file(struct reader *reader, const char *path, const struct ug_step_header *plan,
        const struct reader_opts *opts)
{
    int rc;

    reader->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (reader->fd >= 0) {
        reader->path = strdup(path);
        if (reader->path == NULL) {
            unlink(path);
            return -ENOMEM;
        }
        rc = take_lock(reader);
        return rc < 0 ? rc : make_file(reader, plan, opts->open);
    }
    if (errno != EEXIST || !opts->keep) {
        return -errno;
    }
    // Anybody may make names in /dev/shm: neither a FIFO to wait at nor a link to somebody's file.
    reader->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (reader->fd < 0) {
        return errno == ELOOP ? -EBADMSG : -errno;
    }
    rc = take_lock(reader);
    return rc < 0 ? rc : take_over_file(reader, plan, opts->open);
}

int reader_create(struct reader **ret_reader, const char *path, const struct reader_opts *opts,
        struct error *err)
{
    static const struct reader_opts defaults;
    struct ug_step_header plan;
    struct reader *reader;
    struct stat status;
    int rc;

    opts = opts != NULL ? opts : &defaults;
    rc = plan_header(&plan, opts, err);
    if (rc < 0) {
        return rc;
    }
    reader = calloc(1, sizeof(*reader));
    if (reader == NULL) {
        return error_set(err, -ENOMEM, "failed to make a step reader: out of memory");
    }
    reader->rings = calloc(plan.slot_count, sizeof(*reader->rings));
    reader->outside = calloc(plan.slot_count, sizeof(*reader->outside));
    reader->fd = reader->told_fd = -1;
    if (stat("/proc/self/ns/pid", &status) == 0) {
        reader->pid_namespace = status.st_ino;
    }
    rc = reader->rings == NULL || reader->outside == NULL ? -ENOMEM
                                                          : open_file(reader, path, &plan, opts);
    if (rc < 0) {
        rc = error_set(err, rc, "failed to create step file '%s': %s", path,
                rc == -EBUSY ? "another process reads it"
                        : rc == -EBADMSG
                        ? "what is there is no step file of this user and this upgate"
                        : strerror(-rc));
        reader_free(reader);
        return rc;
    }
    if (opts->keep) {
        free(reader->path);
        reader->path = NULL;
    }
    *ret_reader = reader;
    return 0;
}

void reader_free(struct reader *reader)
{
    if (reader == NULL) {
        return;
    }
    if (reader->path != NULL) {
        unlink(reader->path);
    }
    if (reader->header != NULL) {
        if (!reader_truncated(reader)) {
            reader_open_gate(reader);
        }
        for (uint32_t i = 0; i < reader->plan.slot_count; i++) {
            reader_rings_unmap(reader, i);
        }
        munmap(reader->header, reader->map_bytes);
    }
    if (reader->fd >= 0) {
        close(reader->fd);
    }
    free(reader->rings);
    free(reader->outside);
    free(reader->path);
    free(reader);
}

int reader_reserve(const char *path)
{
    // beside a reader's
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 1};
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), rc;

    if (fd < 0) {
        return -errno;
    }
    if (fcntl(fd, F_SETLK, &lock) != 0) {
        rc = -errno;
        close(fd);
        unlink(path);
        return rc;
    }
    return fd;
}

bool reader_truncated(const struct reader *reader)
{
    struct stat status;

    return fstat(reader->fd, &status) != 0 || (uint64_t)status.st_size < reader->plan.file_bytes;
}

// A step file, or one whose maker was killed before it was one: it has its size, which it gets
// behind its lock, and no magic yet.
static bool is_step_file(int fd, const struct stat *status)
{
    struct ug_step_header found = {0};

    return pread(fd, &found, sizeof(found), 0) >= (ssize_t)sizeof(found.magic) &&
            (found.magic == UG_STEP_MAGIC ||
                    (found.magic == 0 && status->st_size > (off_t)sizeof(found) &&
                            (found.version == 0 || found.version == UG_STEP_VERSION)));
}

int reader_sweep(const char *directory, const char *name_prefix)
{
    DIR *dir = opendir(directory);
    struct dirent *entry;
    int removed = 0;

    if (dir == NULL) {
        return 0;
    }
    while ((entry = readdir(dir)) != NULL) {
        // a reader, or who has reserved it
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 2};
        struct stat status;
        int fd;

        if (strncmp(entry->d_name, name_prefix, strlen(name_prefix)) != 0) {
            continue;
        }
        // Anybody may make names here: neither a FIFO to wait at nor a file of somebody else.
        fd = openat(
                dirfd(dir), entry->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
        if (fd < 0) {
            continue;
        }
        if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
                is_step_file(fd, &status) && fcntl(fd, F_GETLK, &lock) == 0 &&
                lock.l_type == F_UNLCK && unlinkat(dirfd(dir), entry->d_name, 0) == 0) {
            removed++;
        }
        close(fd);
    }
    closedir(dir);
    return removed;
}

static bool claimed(const struct ug_step_slot *slot)
{
    return __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) != UG_SLOT_FREE;
}

uint32_t reader_slot_count(const struct reader *reader)
{
    // Asked some ten times a turn, with the slots' lines in another CPU's cache: they are looked at
    // again when a claim was counted, which happens after the slot has its state.
    uint32_t claims = __atomic_load_n(&reader->header->claims_count, __ATOMIC_ACQUIRE);
    struct reader_seen *seen = (struct reader_seen *)&reader->seen; // no reader is made const

    if (seen->count != 0 && seen->claims == claims) {
        return seen->count;
    }
    *seen = (struct reader_seen){.claims = claims};
    for (uint32_t i = 0; i < reader->plan.slot_count; i++) {
        if (claimed(&reader->slots[i])) {
            seen->count = i + 1;
        }
    }
    return seen->count;
}

uint32_t reader_refused_count(const struct reader *reader)
{
    return __atomic_load_n(&reader->header->refused_count, __ATOMIC_RELAXED);
}

void reader_looks(const struct reader *reader, struct ug_step_looks *ret_looks)
{
    const struct ug_step_looks *looks =
            (const void *)((const char *)reader->header + UG_STEP_LOOKS_OFFSET);

    memset(ret_looks, 0, sizeof(*ret_looks));
    if (reader_truncated(reader)) {
        return;
    }
    ret_looks->processes = __atomic_load_n(&looks->processes, __ATOMIC_ACQUIRE);
    ret_looks->seen = __atomic_load_n(&looks->seen, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < UG_STEP_NEAR_MAX; i++) {
        struct ug_step_near *near = &ret_looks->near[i];

        near->state = __atomic_load_n(&looks->near[i].state, __ATOMIC_ACQUIRE);
        if (near->state != UG_NEAR_NAME && near->state != UG_NEAR_WHY) {
            near->state = UG_NEAR_FREE;
            continue;
        }
        near->distance = looks->near[i].distance;
        memcpy(near->text, looks->near[i].text, sizeof(near->text) - 1); // the last byte stays NUL
    }
}

// Since when the process lives tells it from another one with its number.
static bool same_start(
        const struct reader *reader, const struct ug_step_slot *slot, uint64_t start_ticks)
{
    const struct reader_clock *clock = reader_slot_clock(reader, slot);
    uint64_t ahead = (uint64_t)(clock->ahead.boottime_ns / PROC_TICK_NS);

    return clock->code != 0 || // nobody knows
            proc_same_start(start_ticks, slot->start_ticks - ahead);
}

// The process of a slot has not ended and is no zombie. One that cannot be seen from here is taken
// for alive.
static bool slot_alive(const struct reader *reader, const struct ug_step_slot *slot)
{
    struct proc_stat stat;
    pid_t pid;
    int code;

    if (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == UG_SLOT_CLOSED) {
        return false;
    }
    pid = reader_slot_pid(reader, slot);
    if (pid < 0) {
        return true;
    }
    code = proc_stat_of(pid, &stat);
    if (code) {
        return code != -ESRCH && code != -EBADMSG; // what may not be read is alive
    }
    return same_start(reader, slot, stat.start_ticks) && !proc_stat_ended(&stat);
}

// Stands at the gate and was not granted more since. The state alone would be stale between a grant
// and the wake-up of the process.
static bool slot_held(const struct ug_step_slot *slot)
{
    uint32_t granted = slot->granted;

    return __atomic_load_n(&slot->state, __ATOMIC_SEQ_CST) == UG_SLOT_HELD &&
            granted != UG_STEP_RUN_FREE &&
            (int32_t)(__atomic_load_n(&slot->steps, __ATOMIC_SEQ_CST) - granted) >= 0;
}

int reader_slot(const struct reader *reader, uint32_t slot_idx, struct reader_slot *ret_slot)
{
    const struct ug_step_slot *slot;
    const struct reader_clock *clock;

    if (slot_idx >= reader->plan.slot_count || !claimed(&reader->slots[slot_idx])) {
        return -ENOENT;
    }
    slot = &reader->slots[slot_idx];
    clock = reader_slot_clock(reader, slot);
    *ret_slot = (struct reader_slot){
            .pid = reader_slot_pid(reader, slot) < 0 ? slot->pid
                                                     : (uint32_t)reader_slot_pid(reader, slot),
            .rank = slot->rank,
            .ranks = __atomic_load_n(&slot->ranks, __ATOMIC_ACQUIRE),
            .has_rank = slot->rank_source == UG_RANK_ENVIRONMENT,
            .held = slot_held(slot),
            .state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE),
            .steps = __atomic_load_n(&slot->steps, __ATOMIC_ACQUIRE),
            .hold_count = __atomic_load_n(&slot->hold_count, __ATOMIC_RELAXED),
            .control_wait_ns = __atomic_load_n(&slot->control_wait_ns, __ATOMIC_RELAXED),
            .control_cpu_ns = __atomic_load_n(&slot->control_cpu_ns, __ATOMIC_RELAXED),
            .hold_begin_ns =
                    reader_our_time(clock, __atomic_load_n(&slot->hold_begin_ns, __ATOMIC_RELAXED)),
            .hold_tid = (uint32_t)reader_slot_tid(reader, slot),
            .claim_ns = reader_our_time(clock, slot->claim_ns),
            .clock_code = clock->code,
            .clock_ahead_ns = clock->ahead.monotonic_ns,
    };
    return 0;
}

bool reader_slot_alive(const struct reader *reader, uint32_t slot_idx)
{
    return slot_idx < reader->plan.slot_count && claimed(&reader->slots[slot_idx]) &&
            slot_alive(reader, &reader->slots[slot_idx]);
}

// 0 = what is waited for is true, 1 = not yet, -ESRCH = never. Looks into /proc only when told to.
static int wait_done(const struct reader *reader, uint32_t slots, bool look_alive)
{
    uint32_t count = reader_slot_count(reader), running = 0, held = 0, alive = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct ug_step_slot *slot = &reader->slots[i];
        uint32_t state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);

        if (state == UG_SLOT_FREE || state == UG_SLOT_CLOSED) {
            continue;
        }
        if (look_alive && !slot_alive(reader, slot)) {
            continue;
        }
        alive++;
        if (slot_held(slot)) {
            held++;
        } else {
            running++;
        }
    }
    if (count >= slots && held > 0 && running == 0) {
        return 0;
    }
    return count > 0 && alive == 0 ? -ESRCH : 1;
}

int reader_wait_held(struct reader *reader, uint32_t slots, int64_t deadline_ns)
{
    struct ug_step_header *header = reader->header;
    int64_t look_ns = clock_monotonic_ns() + ALIVE_CHECK_NS;
    bool look_alive = false;
    int rc = 1;

    __atomic_store_n(&header->waiting, 1, __ATOMIC_SEQ_CST);
    for (;;) {
        uint32_t event = __atomic_load_n(&header->event, __ATOMIC_SEQ_CST);
        int64_t now_ns, wait_ns;
        struct timespec wait;

        rc = wait_done(reader, slots, look_alive);
        if (rc <= 0) {
            break;
        }
        now_ns = clock_monotonic_ns();
        if (now_ns >= deadline_ns) {
            rc = -ETIMEDOUT;
            break;
        }
        look_alive = now_ns >= look_ns;
        if (look_alive) {
            look_ns = now_ns + ALIVE_CHECK_NS;
            continue;
        }
        wait_ns = (look_ns < deadline_ns ? look_ns : deadline_ns) - now_ns;
        wait = (struct timespec){wait_ns / 1000000000, wait_ns % 1000000000};
        if (syscall(SYS_futex, &header->event, FUTEX_WAIT, event, &wait, NULL, 0) != 0 &&
                errno == EINTR) {
            rc = -EINTR;
            break;
        }
    }
    __atomic_store_n(&header->waiting, 0, __ATOMIC_SEQ_CST);
    return rc;
}

static void set_granted(struct reader *reader, uint32_t granted)
{
    uint32_t count = reader_slot_count(reader);

    for (uint32_t i = 0; i < reader->plan.slot_count; i++) {
        __atomic_store_n(&reader->slots[i].granted, granted, __ATOMIC_SEQ_CST);
    }
    for (uint32_t i = 0; i < count; i++) {
        syscall(SYS_futex, &reader->slots[i].granted, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
    if (reader->told_fd >= 0) {
        eventfd_write(reader->told_fd, 1);
    }
}

// Steps done by the foremost slot.
static uint32_t steps_max(const struct reader *reader)
{
    uint32_t count = reader_slot_count(reader);
    uint32_t most = __atomic_load_n(&reader->slots[0].steps, __ATOMIC_SEQ_CST);

    for (uint32_t i = 1; i < count; i++) {
        uint32_t steps = __atomic_load_n(&reader->slots[i].steps, __ATOMIC_SEQ_CST);

        if (claimed(&reader->slots[i]) && (int32_t)(steps - most) > 0) {
            most = steps;
        }
    }
    return most;
}

static uint32_t skip_run_free(uint32_t granted)
{
    return granted == UG_STEP_RUN_FREE ? granted + 1 : granted;
}

void reader_grant(struct reader *reader, uint32_t steps)
{
    uint32_t from = reader->slots[0].granted, done = steps_max(reader);

    if (from == UG_STEP_RUN_FREE || (int32_t)(done - from) > 0) {
        from = done;
    }
    set_granted(reader, skip_run_free(from + steps));
}

void reader_open_gate(struct reader *reader)
{
    set_granted(reader, UG_STEP_RUN_FREE);
}

void reader_tell(struct reader *reader, int fd)
{
    reader->told_fd = fd;
}

uint32_t reader_granted(const struct reader *reader)
{
    return __atomic_load_n(&reader->slots[0].granted, __ATOMIC_SEQ_CST);
}

void reader_request(struct reader *reader, uint32_t bits)
{
    for (uint32_t i = 0; i < reader->plan.slot_count; i++)
        __atomic_fetch_or(&reader->slots[i].request, bits, __ATOMIC_ACQ_REL);
}
