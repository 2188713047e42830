// SPDX-License-Identifier: Apache-2.0
// The reader's side of the spool. Header and states of segments are mapped (atomics, futex); the
// segments are read with pread, 256 KiB at a time: what was checked cannot change any more, 64 MiB
// a process do not count as memory of the recorder, and the copy costs 20 ns an event.
#include "tracer/gpu/spool_reader.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/proc.h"
#include "common/strings.h"
#include "common/target/file.h"

enum {
    SPOOL_SEGMENT_BYTES_MIN = 4 << 10,
    SPOOL_SEGMENT_BYTES_MAX = 4 << 20, // we copy a segment
    SPOOL_SEGMENTS_MAX = 65536,
    SPOOL_DATA_BYTES_MAX = 256 << 20, // of all segments. A file with holes takes no memory of who
                                      // makes it, and time of who reads it
    SPOOL_RECORD_BYTES_MAX = 8192,
};
_Static_assert(SPOOL_SEGMENT_BYTES_MAX < 1 << UG_SPOOL_READ_BITS, "fits");
_Static_assert(UG_SPOOL_SEGMENT_COUNT *UG_SPOOL_SEGMENT_BYTES <= SPOOL_DATA_BYTES_MAX, "fits");

struct reader_segment {
    uint32_t offset;   // taken so far, of the take `sequence`
    uint64_t sequence; // 0: none
};

struct spool_reader {
    int fd;
    uint64_t inode;
    struct ug_spool_header *header; // header and states of segments
    struct ug_spool_segment *segments;
    size_t map_bytes;
    uint32_t segment_bytes, segment_count;
    uint64_t data_offset;
    uint32_t generation; // asked last
    uint64_t ahead_ns;   // of our clock; below 0 as unsigned numbers have it
    struct reader_segment *taken;
    uint32_t *order; // segments with something to read, by sequence
    unsigned char *copy;
    unsigned char *peek_copy; // a drain may be in the middle of `copy`
    struct spool_damage damage;
};

const uint16_t spool_record_bytes_min[UG_REC_TYPE_COUNT] = {
        [UG_REC_STRING] = sizeof(struct ug_rec_string),
        [UG_REC_CLOCK] = sizeof(struct ug_rec_clock),
        [UG_REC_DEVICE] = sizeof(struct ug_rec_device),
        [UG_REC_STREAM] = sizeof(struct ug_rec_stream),
        [UG_REC_THREAD] = sizeof(struct ug_rec_thread),
        [UG_REC_KERNEL] = sizeof(struct ug_rec_kernel),
        [UG_REC_COPY] = sizeof(struct ug_rec_copy),
        [UG_REC_GRAPH] = sizeof(struct ug_rec_graph),
        [UG_REC_CALL] = sizeof(struct ug_rec_call),
        [UG_REC_SYNC] = sizeof(struct ug_rec_sync),
        [UG_REC_MEMORY] = sizeof(struct ug_rec_memory),
        [UG_REC_RANGE] = sizeof(struct ug_rec_range),
        [UG_REC_OVERHEAD] = sizeof(struct ug_rec_overhead),
        [UG_REC_NCCL] = sizeof(struct ug_rec_nccl),
        [UG_REC_MARK] = sizeof(struct ug_rec_mark),
        [UG_REC_GC] = sizeof(struct ug_rec_gc),
        [UG_REC_LAUNCH_STACK] = sizeof(struct ug_rec_launch_stack),
        [UG_REC_GRAPH_NODE] = sizeof(struct ug_rec_graph_node),
};

// --- find ----------------------------------------------------------------------------------------

// The pid of a process in its own pid namespace. 0: gone.
static uint32_t reader_own_pid(pid_t pid)
{
    char dir[64];
    snprintf(dir, sizeof dir, "/proc/%d", (int)pid);
    return (uint32_t)proc_inner_pid(dir);
}

// Of the process itself, or inherited by fork?
static bool reader_is_of(int fd, uint32_t own_pid)
{
    struct ug_spool_header header;
    return pread(fd, &header, sizeof header, 0) == (ssize_t)sizeof header && header.pid == own_pid;
}

int spool_reader_find(pid_t pid, int *ret_fd)
{
    static const char want[] = "/memfd:" UG_SPOOL_NAME; // " (deleted)" follows
    char path[320], target[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    if (!dir)
        return errno == ENOENT ? -ESRCH : -errno;
    uint32_t own_pid = reader_own_pid(pid);
    int rc = -ENOENT;
    for (struct dirent *entry; rc == -ENOENT && (entry = readdir(dir));) {
        ssize_t len = readlinkat(dirfd(dir), entry->d_name, target, sizeof target);
        if (len < (ssize_t)sizeof want - 1 || memcmp(target, want, sizeof want - 1) != 0)
            continue;
        char *link = xasprintf("%s/%s", path, entry->d_name);
        int fd = target_file_open_memory(link);
        free(link);
        if (fd < 0) {
            rc = errno == ENOENT || errno == EINVAL ? rc : -errno;
        } else if (reader_is_of(fd, own_pid)) {
            *ret_fd = fd;
            rc = 0;
        } else {
            close(fd);
        }
    }
    closedir(dir);
    return rc;
}

// --- open ----------------------------------------------------------------------------------------

static int reader_check(int fd, const struct ug_spool_header *header, struct error *err)
{
    struct stat info;
    if (fstat(fd, &info) < 0)
        return error_set(err, -errno, "failed to look at the spool: %s", strerror(errno));
    if (header->magic != UG_SPOOL_MAGIC)
        return error_set(err, -EPROTO,
                "not a spool of upgate: the process has a file of that name with other contents");
    if (header->version != UG_SPOOL_VERSION || header->header_bytes != sizeof *header)
        return error_set(err, -EPROTO,
                "the process has libupgate_inject.so of another upgate (spool version %u, ours is %u): start it "
                "again with this one's",
                header->version, UG_SPOOL_VERSION);
    uint64_t states_end = UG_SPOOL_HEADER_BYTES +
            (uint64_t)header->segment_count * sizeof(struct ug_spool_segment);
    uint64_t data_bytes = (uint64_t)header->segment_count * header->segment_bytes;
    if (header->segment_bytes < SPOOL_SEGMENT_BYTES_MIN ||
            header->segment_bytes > SPOOL_SEGMENT_BYTES_MAX || header->segment_count == 0 ||
            header->segment_count > SPOOL_SEGMENTS_MAX || data_bytes > SPOOL_DATA_BYTES_MAX ||
            header->data_offset < states_end || header->data_offset > (uint64_t)info.st_size ||
            data_bytes > (uint64_t)info.st_size - header->data_offset)
        return error_set(err, -EPROTO, "the spool of the process is damaged: its sizes do not fit");
    // Shrunk under our mapping it would end us with SIGBUS.
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (!(seals & F_SEAL_SHRINK) && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0))
        return error_set(
                err, -EPROTO, "the spool of the process could be made shorter while it is read");
    return fstat(fd, &info) == 0 && header->data_offset + data_bytes <= (uint64_t)info.st_size
            ? 0
            : error_set(err, -EPROTO, "the spool of the process changes its size");
}

int spool_reader_open(int fd, struct spool_reader **ret_reader, struct error *err)
{
    struct ug_spool_header header;
    struct stat info;
    if (pread(fd, &header, sizeof header, 0) != (ssize_t)sizeof header || fstat(fd, &info) < 0)
        return error_set(err, -EPROTO, "the spool of the process is shorter than its header");
    int rc = reader_check(fd, &header, err);
    if (rc)
        return rc;
    struct spool_reader *reader = xcalloc(1, sizeof *reader);
    reader->map_bytes =
            UG_SPOOL_HEADER_BYTES + header.segment_count * sizeof(struct ug_spool_segment);
    reader->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    void *map = reader->fd < 0
            ? MAP_FAILED
            : mmap(NULL, reader->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, reader->fd, 0);
    if (map == MAP_FAILED) {
        rc = error_set(err, -errno, "failed to map the spool: %s", strerror(errno));
        spool_reader_close(reader);
        return rc;
    }
    reader->inode = info.st_ino;
    reader->header = map;
    reader->segments = (struct ug_spool_segment *)((char *)map + UG_SPOOL_HEADER_BYTES);
    reader->segment_bytes = header.segment_bytes; // checked above; the mapped ones may change
    reader->segment_count = header.segment_count;
    reader->data_offset = header.data_offset;
    reader->generation = header.generation;
    reader->taken = xcalloc(header.segment_count, sizeof *reader->taken);
    reader->order = xcalloc(header.segment_count, sizeof *reader->order);
    reader->copy = xcalloc(1, header.segment_bytes);
    reader->peek_copy = xcalloc(1, header.segment_bytes);
    *ret_reader = reader;
    return 0;
}

void spool_reader_close(struct spool_reader *reader)
{
    if (!reader)
        return;
    if (reader->header)
        munmap(reader->header, reader->map_bytes);
    if (reader->fd >= 0)
        close(reader->fd);
    free(reader->taken);
    free(reader->order);
    free(reader->copy);
    free(reader->peek_copy);
    free(reader);
}

void spool_reader_set_clock(struct spool_reader *reader, int64_t ahead_ns)
{
    reader->ahead_ns = (uint64_t)ahead_ns;
}

uint64_t spool_reader_inode(const struct spool_reader *reader)
{
    return reader->inode;
}

// --- control -------------------------------------------------------------------------------------

void spool_reader_header(const struct spool_reader *reader, struct ug_spool_header *ret_header)
{
    memcpy(ret_header, reader->header, sizeof *ret_header);
    ret_header->reason[sizeof ret_header->reason - 1] = 0;
    ret_header->cupti_path[sizeof ret_header->cupti_path - 1] = 0;
    string_make_utf8(ret_header->reason, strlen(ret_header->reason));
    string_make_utf8(ret_header->cupti_path, strlen(ret_header->cupti_path));
}

void spool_reader_ask(
        struct spool_reader *reader, enum ug_spool_state state, uint32_t kinds, int64_t now_ns)
{
    struct ug_spool_header *header = reader->header;
    __atomic_store_n(&header->want_kinds, kinds, __ATOMIC_RELAXED);
    spool_reader_heartbeat(reader, now_ns);
    __atomic_store_n(&header->want_state, (uint32_t)state, __ATOMIC_RELAXED);
    reader->generation = __atomic_add_fetch(&header->generation, 1, __ATOMIC_RELEASE);
    // shared: another process waits
    syscall(SYS_futex, &header->generation, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool spool_reader_done(const struct spool_reader *reader)
{
    return __atomic_load_n(&reader->header->done_generation, __ATOMIC_ACQUIRE) ==
            reader->generation;
}

bool spool_reader_taken(const struct spool_reader *reader)
{
    return __atomic_load_n(&reader->header->generation, __ATOMIC_ACQUIRE) != reader->generation;
}

void spool_reader_heartbeat(struct spool_reader *reader, int64_t now_ns)
{
    __atomic_store_n(
            &reader->header->heartbeat_ns, (uint64_t)now_ns + reader->ahead_ns, __ATOMIC_RELAXED);
}

void spool_reader_damage(const struct spool_reader *reader, struct spool_damage *ret_damage)
{
    *ret_damage = reader->damage;
}

// --- read ----------------------------------------------------------------------------------------

// What can be read of a segment: [offset, *ret_end) of the take with *ret_sequence. The state is
// loaded first: once it is FULL nothing is added any more.
static bool reader_window(
        struct spool_reader *reader, uint32_t at, bool *ret_full, uint32_t *ret_end)
{
    struct ug_spool_segment *segment = &reader->segments[at];
    struct reader_segment *taken = &reader->taken[at];
    uint32_t state = __atomic_load_n(&segment->state, __ATOMIC_ACQUIRE);
    if (state != UG_SEGMENT_WRITING && state != UG_SEGMENT_FULL)
        return false;
    uint64_t sequence = __atomic_load_n(&segment->sequence, __ATOMIC_ACQUIRE);
    uint32_t committed = __atomic_load_n(&segment->committed, __ATOMIC_ACQUIRE);
    if (sequence != taken->sequence)
        *taken = (struct reader_segment){.sequence = sequence};
    if (committed > reader->segment_bytes) { // cannot be
        reader->damage.records++;
        committed = 0;
    }
    *ret_full = state == UG_SEGMENT_FULL;
    *ret_end = committed & ~7u;
    return *ret_full || *ret_end > taken->offset;
}

// The library takes a segment from a reader that it believes to be gone, and it may be another
// take's by now: then it is left alone.
static void reader_release(struct spool_reader *reader, uint32_t at)
{
    struct ug_spool_segment *segment = &reader->segments[at];
    uint32_t state = UG_SEGMENT_FULL;
    if (__atomic_load_n(&segment->sequence, __ATOMIC_ACQUIRE) != reader->taken[at].sequence)
        return;
    // committed first: a writer that takes the segment again is WRITING for a moment before it
    // clears it.
    __atomic_store_n(&segment->committed, 0, __ATOMIC_RELAXED);
    reader->taken[at].offset = 0;
    __atomic_compare_exchange_n(&segment->state, &state, (uint32_t)UG_SEGMENT_FREE, false,
            __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

// Copies [offset, end) to `copy`; what the file does not give is lost.
static uint32_t reader_copy(
        struct spool_reader *reader, uint32_t at, uint32_t end, unsigned char *copy)
{
    uint32_t offset = reader->taken[at].offset, have = 0;
    off_t base = (off_t)(reader->data_offset + (uint64_t)at * reader->segment_bytes);
    while (offset + have < end) {
        ssize_t got = pread(reader->fd, copy + have, end - offset - have, base + offset + have);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            break;
        have += got > 0 ? (uint32_t)got : 0;
    }
    return have & ~7u;
}

// 0 says that there is no such time.
static void reader_move(uint64_t *ns, uint64_t ahead_ns)
{
    *ns -= *ns ? ahead_ns : 0;
}

// The CLOCK_MONOTONIC times of a record, of the process's clock, to ours. CUPTI's own are left: the
// fit of the two clocks brings them along.
static void reader_to_our_clock(struct ug_rec_head *head, uint64_t ahead_ns)
{
    struct ug_rec_clock *clock = (void *)head;
    struct ug_rec_nccl *nccl = (void *)head;
    struct ug_rec_gc *gc = (void *)head;
    switch (head->type) {
    case UG_REC_CLOCK:
        reader_move(&clock->before_ns, ahead_ns);
        reader_move(&clock->after_ns, ahead_ns);
        break;
    case UG_REC_NCCL:
        reader_move(&nccl->enqueued_ns, ahead_ns);
        reader_move(&nccl->ended_ns, ahead_ns);
        reader_move(&nccl->kernel_start_ns, ahead_ns);
        reader_move(&nccl->kernel_end_ns, ahead_ns);
        break;
    case UG_REC_MARK:
        reader_move(&((struct ug_rec_mark *)head)->at_ns, ahead_ns);
        break;
    case UG_REC_GC:
        reader_move(&gc->start_ns, ahead_ns);
        reader_move(&gc->end_ns, ahead_ns);
        break;
    case UG_REC_GRAPH_NODE:
        reader_move(&((struct ug_rec_graph_node *)head)->at_ns, ahead_ns);
        break;
    }
}

// Calls fn for each record that can be one, times by our clock. Returns where the first that cannot
// begins.
static uint32_t reader_walk(unsigned char *copy, uint32_t bytes, uint64_t ahead_ns,
        spool_reader_fn fn, void *context, bool definitions, struct spool_damage *damage)
{
    uint32_t at = 0;
    while (at + sizeof(struct ug_rec_head) <= bytes) {
        struct ug_rec_head *head = (void *)(copy + at);
        // A length that cannot be leaves no way to find the next record.
        if (head->bytes < sizeof *head || head->bytes % 8 || head->bytes > bytes - at ||
                head->bytes > SPOOL_RECORD_BYTES_MAX)
            break;
        bool known = head->type > 0 && head->type < UG_REC_TYPE_COUNT &&
                head->bytes >= spool_record_bytes_min[head->type];
        if (known && ahead_ns)
            reader_to_our_clock(head, ahead_ns);
        if (!known)
            damage->records++;
        else if (!definitions || head->type == UG_REC_STRING ||
                (head->type >= UG_REC_DEVICE && head->type <= UG_REC_THREAD))
            fn(context, head);
        at += head->bytes;
    }
    return at;
}

static int reader_by_sequence(const void *a, const void *b, void *context)
{
    const struct spool_reader *reader = context;
    uint64_t left = reader->taken[*(const uint32_t *)a].sequence,
             right = reader->taken[*(const uint32_t *)b].sequence;
    return left < right ? -1 : left > right;
}

// Segments with something to read. A thread may fill one and take another, also one that was looked
// at already, while we look: what was taken after the first look waits for the next drain, so that
// of each thread nothing is passed over.
static uint32_t reader_order(struct spool_reader *reader)
{
    uint64_t newest = 0;
    for (uint32_t at = 0; at < reader->segment_count; at++) {
        uint64_t sequence = __atomic_load_n(&reader->segments[at].sequence, __ATOMIC_ACQUIRE);
        newest = sequence > newest ? sequence : newest;
    }
    uint32_t count = 0, end = 0;
    bool full = false;
    for (uint32_t at = 0; at < reader->segment_count; at++)
        if (reader_window(reader, at, &full, &end) && reader->taken[at].sequence <= newest)
            reader->order[count++] = at;
    qsort_r(reader->order, count, sizeof *reader->order, reader_by_sequence, reader);
    return count;
}

uint64_t spool_reader_drain(
        struct spool_reader *reader, uint64_t bytes_max, spool_reader_fn fn, void *context)
{
    uint64_t bytes = 0;
    uint32_t count = reader_order(reader);
    for (uint32_t i = 0; i < count && bytes < bytes_max; i++) {
        uint32_t at = reader->order[i], end = 0;
        bool full = false;
        if (!reader_window(reader, at, &full, &end))
            continue;
        uint32_t offset = reader->taken[at].offset, want = end > offset ? end - offset : 0;
        uint32_t have = want ? reader_copy(reader, at, end, reader->copy) : 0;
        uint32_t read = reader_walk(
                reader->copy, have, reader->ahead_ns, fn, context, false, &reader->damage);
        if (read < want) {
            reader->damage.records++;
            reader->damage.bytes += want - read;
        }
        reader->taken[at].offset = offset + want;
        bytes += want;
        if (full)
            reader_release(reader, at);
    }
    return bytes;
}

uint64_t spool_reader_peek(
        struct spool_reader *reader, uint64_t bytes_max, spool_reader_fn fn, void *context)
{
    struct spool_damage ignored = {0}; // the drain will count them
    uint64_t bytes = 0;
    for (uint32_t at = 0; at < reader->segment_count && bytes < bytes_max; at++) {
        uint32_t end = 0;
        bool full = false;
        if (!reader_window(reader, at, &full, &end) || end <= reader->taken[at].offset)
            continue;
        bytes += end - reader->taken[at].offset;
        reader_walk(reader->peek_copy, reader_copy(reader, at, end, reader->peek_copy),
                reader->ahead_ns, fn, context, true, &ignored);
    }
    return bytes;
}

void spool_reader_skip(struct spool_reader *reader)
{
    for (uint32_t at = 0; at < reader->segment_count; at++) {
        uint32_t end = 0;
        bool full = false;
        if (!reader_window(reader, at, &full, &end))
            continue;
        reader->taken[at].offset = end > reader->taken[at].offset ? end : reader->taken[at].offset;
        if (full)
            reader_release(reader, at);
    }
}

void spool_reader_let_go(const struct spool_reader *reader)
{
    for (uint32_t at = 0; at < reader->segment_count; at++) {
        const struct reader_segment *taken = &reader->taken[at];
        if (taken->offset)
            __atomic_store_n(&reader->segments[at].read,
                    taken->sequence << UG_SPOOL_READ_BITS | taken->offset, __ATOMIC_RELEASE);
    }
}
