// SPDX-License-Identifier: Apache-2.0
// What every process of the machine maps as code, and when it becomes another program, from perf's
// records: one ring a CPU, read before the first record of the other rings whose stack may lie in
// what was mapped.
//
// Of the whole machine, because events of single threads would take a descriptor for each thread
// and CPU; the kernel makes the records of all processes anyway once anybody wants those of one.
// There is no tracepoint for mmap(2) before it returns that does not lie in the way of all system
// calls.
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "bpf/capture_inside.h"
#include "common/clock.h"
#include "common/strings.h"

enum {
    PAGES_MAX = 128, // of a ring: 512 KiB, 3,200 records, what perf_event_mlock_kb allows a user;
                     // PyTorch maps 300 libraries in a second
    PAGES_MIN = 4,
    PAGES_ALL_MAX = 2048,  // of all rings
    NS_PER_RECORD = 10000, // beyond 100,000 a second they are thrown away, and said to be lost: 2 %
                           // of a CPU
    RECORDS_BURST = 20000,
    RECORD_BYTES_MAX = 65536,
};

struct mapping_ring {
    int fd;
    struct perf_event_mmap_page *page;
    char *data;
};

struct mapping_rings {
    struct mapping_ring *rings;
    size_t count, bytes; // bytes: of the data of one, a power of two
    uint64_t read_ns;    // what happened before this has been handed out
    uint64_t allowance, allowed_ns;
    uint64_t seen, lost;
    char copy[RECORD_BYTES_MAX]; // of a record that lies across the end of its ring
};

// Behind each record, by sample_id_all.
struct record_end {
    uint32_t pid, tid;
    uint64_t at_ns;
};

struct mmap_record { // PERF_RECORD_MMAP2
    struct perf_event_header head;
    uint32_t pid, tid;
    uint64_t start, bytes, offset;
    union {
        struct {
            uint32_t major, minor;
            uint64_t inode, generation;
        } file;
        struct {
            uint8_t bytes, padding[3], id[20];
        } build;
    };
    uint32_t protection, flags;
    char path[];
};
_Static_assert(sizeof(struct mmap_record) == 72, "struct mmap_record as perf_event.h describes it");

struct name_record { // PERF_RECORD_COMM
    struct perf_event_header head;
    uint32_t pid, tid;
};

struct lost_record { // PERF_RECORD_LOST
    struct perf_event_header head;
    uint64_t id, lost;
};

static int open_ring_event(int cpu, bool build_id)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
            .size = sizeof(attr),
            .config = PERF_COUNT_SW_DUMMY,
            .sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME,
            .sample_id_all = 1,
            .mmap = 1, // code; data would be mmap_data
            .mmap2 = 1,
            .comm = 1,
            .comm_exec = 1,
            .build_id = build_id,
            .use_clockid = 1,
            .clockid = CLOCK_MONOTONIC,
            .watermark = 1, // nobody is woken: the rings are read with the others
            .wakeup_watermark = UINT32_MAX};

    return (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

static int open_ring(struct mapping_rings *rings, int cpu)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int fd = open_ring_event(cpu, true), status;
    void *memory;

    if (fd < 0 && errno == EINVAL) // before Linux 5.12
        fd = open_ring_event(cpu, false);
    if (fd < 0)
        return -errno;
    memory = mmap(NULL, page + rings->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        status = -errno;
        close(fd);
        return status;
    }
    rings->rings[rings->count++] = (struct mapping_ring){fd, memory, (char *)memory + page};
    return 0;
}

void capture_mappings_open(struct capture *capture)
{
    long cpus = sysconf(_SC_NPROCESSORS_CONF);
    size_t pages = PAGES_MAX;
    struct mapping_rings *rings;
    int failed = 0;

    if (!capture->on_mapping)
        return;
    while (pages > PAGES_MIN && pages * (size_t)cpus > PAGES_ALL_MAX)
        pages /= 2;
    rings = xcalloc(1, sizeof(*rings));
    rings->rings = xcalloc((size_t)cpus, sizeof(*rings->rings));
    rings->bytes = pages * (size_t)sysconf(_SC_PAGESIZE);
    rings->allowance = RECORDS_BURST;
    capture->mappings = rings;
    for (long cpu = 0; cpu < cpus && !failed; cpu++) {
        int status = open_ring(rings, (int)cpu);

        if (status && status != -ENODEV && status != -ENXIO) // those are offline
            failed = -status;
    }
    if (!failed)
        return;
    capture_lack(capture, SOURCE_MAPPINGS, "perf_event_open: %s%s", strerror(failed),
            failed == EPERM || failed == EACCES
                    ? " (no CAP_PERFMON, or kernel.perf_event_mlock_kb is used up)"
                    : "");
    capture_mappings_close(capture); // of one CPU alone they would be worse than none
}

void capture_mappings_close(struct capture *capture)
{
    struct mapping_rings *rings = capture->mappings;

    for (size_t i = 0; rings && i < rings->count; i++) {
        munmap(rings->rings[i].page, (size_t)sysconf(_SC_PAGESIZE) + rings->bytes);
        close(rings->rings[i].fd);
    }
    if (rings)
        free(rings->rings);
    free(rings);
    capture->mappings = NULL;
}

static void tell_lost(struct capture *capture, uint64_t count, uint64_t at_ns)
{
    struct mapping_event event = {.what = MAPPING_EVENT_LOST, .at_ns = at_ns, .path = ""};

    capture->mappings->seen += count;
    capture->mappings->lost += count;
    capture->on_mapping(capture->context, &event);
}

static void tell_mapping(
        struct capture *capture, const struct mmap_record *record, size_t size, uint64_t at_ns)
{
    static const char digits[] = "0123456789abcdef";
    struct mapping_event event = {.what = MAPPING_EVENT_ADDED,
            .tgid = (pid_t)record->pid,
            .at_ns = at_ns,
            .start = record->start,
            .end = record->start + record->bytes,
            .offset = record->offset,
            .path = record->path};

    if (size <= sizeof(*record) || !memchr(record->path, 0, size - sizeof(*record)) ||
            event.end <= event.start)
        return;
    if (!(record->head.misc & PERF_RECORD_MISC_MMAP_BUILD_ID)) {
        event.device = makedev(record->file.major, record->file.minor);
        event.inode = record->file.inode;
    } else if (record->build.bytes <= sizeof(record->build.id)) {
        // by hand: snprintf would be most of the cost
        for (unsigned i = 0; i < record->build.bytes; i++) {
            event.build_id[2 * i] = digits[record->build.id[i] >> 4];
            event.build_id[2 * i + 1] = digits[record->build.id[i] & 15];
        }
    }
    capture->mappings->seen++;
    capture->on_mapping(capture->context, &event);
}

static void tell(struct capture *capture, const struct perf_event_header *head)
{
    const struct record_end *end = (const struct record_end *)((const char *)head + head->size) - 1;
    struct mapping_event event = {.what = MAPPING_EVENT_EXEC, .path = ""};

    if (head->type == PERF_RECORD_LOST && head->size >= sizeof(struct lost_record))
        tell_lost(
                capture, ((const struct lost_record *)head)->lost, (uint64_t)clock_monotonic_ns());
    else if (head->type == PERF_RECORD_MMAP2 &&
            head->size >= sizeof(struct mmap_record) + sizeof(*end))
        tell_mapping(
                capture, (const struct mmap_record *)head, head->size - sizeof(*end), end->at_ns);
    else if (head->type == PERF_RECORD_COMM && head->misc & PERF_RECORD_MISC_COMM_EXEC &&
            head->size >= sizeof(struct name_record) + sizeof(*end)) {
        event.tgid = (pid_t)((const struct name_record *)head)->pid;
        event.at_ns = end->at_ns;
        capture->mappings->seen++;
        capture->on_mapping(capture->context, &event);
    }
}

static const struct perf_event_header *record_at(
        struct mapping_rings *rings, const struct mapping_ring *ring, uint64_t at, uint64_t end)
{
    size_t from = at & (rings->bytes - 1), rest = rings->bytes - from;
    // records are of 8 bytes each
    const struct perf_event_header *head = (const void *)(ring->data + from);

    if (head->size < sizeof(*head) || head->size > end - at)
        return NULL;
    if (head->size <= rest)
        return head;
    memcpy(rings->copy, ring->data + from, rest);
    memcpy(rings->copy + rest, ring->data, head->size - rest);
    return (const void *)rings->copy;
}

static void read_ring(struct capture *capture, const struct mapping_ring *ring)
{
    struct mapping_rings *rings = capture->mappings;
    uint64_t end = __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE),
             at = ring->page->data_tail;

    if (at == end) // mostly; the kernel writes its end into the same cache line
        return;
    while (at < end && rings->allowance) {
        const struct perf_event_header *head = record_at(rings, ring, at, end);

        if (!head)
            break;
        tell(capture, head);
        at += head->size;
        rings->allowance--;
    }
    if (at < end) // somebody maps and maps: what that was is read from /proc, rarely
        tell_lost(capture, (end - at) / sizeof(struct mmap_record), rings->read_ns);
    __atomic_store_n(&ring->page->data_tail, end, __ATOMIC_RELEASE);
}

void capture_mappings_read(struct capture *capture, uint64_t before_ns)
{
    struct mapping_rings *rings = capture->mappings;
    uint64_t now, earned;

    if (!rings || before_ns < rings->read_ns)
        return;
    now = (uint64_t)clock_monotonic_ns();
    earned = (now - rings->allowed_ns) / NS_PER_RECORD;
    rings->allowance =
            earned > RECORDS_BURST - rings->allowance ? RECORDS_BURST : rings->allowance + earned;
    rings->allowed_ns += earned * NS_PER_RECORD; // a flood has it read more often than that
    rings->read_ns = now;
    for (size_t i = 0; i < rings->count; i++)
        read_ring(capture, &rings->rings[i]);
}

bool capture_mappings(const struct capture *capture, uint64_t *ret_seen, uint64_t *ret_lost)
{
    *ret_seen = capture->mappings ? capture->mappings->seen : 0;
    *ret_lost = capture->mappings ? capture->mappings->lost : 0;
    return capture->mappings != NULL;
}
