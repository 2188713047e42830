// SPDX-License-Identifier: Apache-2.0
// Switches tracing of a process on and off by its spool and reads it, without a store: for
// ci/bench/gpu and ci/gpu/trace, where the cost of the library alone is asked for, or whether
// anything comes out at all. Frees segments as the recorder would, checks that records are whole
// and counts them. One thread.
//     spool_switch status PID
//     spool_switch drain PID KINDS [SECONDS]    until the time is over, SIGTERM, the end of its
//                                               stdin or of the process
// One line of JSON once it is on ("on_ms"), one at the end.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "contracts/spool.h"

enum { KINDS_TIMEOUT_MS = 15000, NAP_US = 1000, SEGMENTS_MAX = 65536 };

static const char *const type_names[UG_REC_TYPE_COUNT] = {"none", "string", "clock", "device",
        "stream", "thread", "kernel", "copy", "graph", "call", "sync", "memory", "range",
        "overhead", "nccl", "mark", "gc", "launch_stack"};
static const char *const producer_names[UG_PRODUCER_COUNT] = {
        "kernel", "copy", "call", "sync", "memory", "nvtx", "overhead", "nccl", "python", "other"};

struct tally {
    uint64_t types[UG_REC_TYPE_COUNT], bytes, broken, zero_time, backwards;
    uint64_t first_gpu, last_gpu;
};

static struct ug_spool_header *header;
static struct ug_spool_segment *segments;
static uint8_t *data;
static uint32_t offsets[SEGMENTS_MAX];
static uint64_t sequences[SEGMENTS_MAX]; // of the take that offsets belong to: a segment taken
                                         // again starts at 0
static volatile sig_atomic_t stop;

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// The spool of a process, mapped; false: it has none.
static bool spool_open(int pid)
{
    char folder[64], path[400], target[256];
    struct dirent *entry;
    DIR *dir;

    snprintf(folder, sizeof folder, "/proc/%d/fd", pid);
    dir = opendir(folder);
    while (dir && !header && (entry = readdir(dir))) {
        struct stat status;
        ssize_t length;
        int fd;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        length = readlink(path, target, sizeof target - 1);
        target[length < 0 ? 0 : length] = 0;
        if (!strstr(target, "memfd:" UG_SPOOL_NAME) || (fd = open(path, O_RDWR | O_CLOEXEC)) < 0)
            continue;
        if (fstat(fd, &status) == 0 && (size_t)status.st_size > UG_SPOOL_HEADER_BYTES) {
            void *memory =
                    mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (memory != MAP_FAILED && *(uint64_t *)memory == UG_SPOOL_MAGIC)
                header = memory;
        }
        close(fd);
    }
    if (dir)
        closedir(dir);
    if (!header)
        return false;
    segments = (struct ug_spool_segment *)((uint8_t *)header + UG_SPOOL_HEADER_BYTES);
    data = (uint8_t *)header + header->data_offset;
    return header->segment_count <= SEGMENTS_MAX;
}

static void ask(uint32_t state, uint32_t kinds)
{
    header->heartbeat_ns = now_ns();
    header->want_state = state;
    header->want_kinds = kinds;
    atomic_fetch_add_explicit((_Atomic uint32_t *)&header->generation, 1, memory_order_release);
    syscall(SYS_futex, &header->generation, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

// A record's share of what the run must hold.
static void look(struct tally *tally, const struct ug_rec_head *head)
{
    uint64_t start = 0, end = 0;

    tally->types[head->type]++;
    tally->bytes += head->bytes;
    if (head->type == UG_REC_KERNEL) {
        start = ((const struct ug_rec_kernel *)head)->start_gpu;
        end = ((const struct ug_rec_kernel *)head)->end_gpu;
    } else if (head->type == UG_REC_COPY) {
        start = ((const struct ug_rec_copy *)head)->start_gpu;
        end = ((const struct ug_rec_copy *)head)->end_gpu;
    } else {
        return;
    }
    tally->zero_time += start == 0 || end == 0;
    tally->backwards += end < start;
    if (start && (!tally->first_gpu || start < tally->first_gpu))
        tally->first_gpu = start;
    if (end > tally->last_gpu)
        tally->last_gpu = end;
}

// What is readable now; the number of records. Segments that were read to their end are given back.
static uint64_t drain(struct tally *tally)
{
    uint64_t records = 0;

    for (uint32_t i = 0; i < header->segment_count; i++) {
        struct ug_spool_segment *segment = &segments[i];
        uint32_t state =
                atomic_load_explicit((_Atomic uint32_t *)&segment->state, memory_order_acquire);
        uint32_t committed;
        if (state == UG_SEGMENT_FREE)
            continue;
        if (sequences[i] !=
                atomic_load_explicit(
                        (_Atomic uint64_t *)&segment->sequence, memory_order_acquire)) {
            sequences[i] = segment->sequence;
            offsets[i] = 0;
        }
        committed =
                atomic_load_explicit((_Atomic uint32_t *)&segment->committed, memory_order_acquire);
        while (offsets[i] + sizeof(struct ug_rec_head) <= committed) {
            const struct ug_rec_head *head =
                    (void *)(data + (size_t)i * header->segment_bytes + offsets[i]);
            if (head->type == 0 || head->type >= UG_REC_TYPE_COUNT || head->bytes < sizeof *head ||
                    head->bytes % 8 || offsets[i] + head->bytes > committed) {
                tally->broken++;
                offsets[i] = committed;
                break;
            }
            look(tally, head);
            offsets[i] += head->bytes;
            records++;
        }
        if (state == UG_SEGMENT_FULL) {
            offsets[i] = 0;
            atomic_store_explicit((_Atomic uint32_t *)&segment->committed, 0, memory_order_relaxed);
            atomic_store_explicit(
                    (_Atomic uint32_t *)&segment->state, UG_SEGMENT_FREE, memory_order_release);
        }
    }
    return records;
}

// What lies in the spool already belongs to an earlier reader.
static void skip_old(void)
{
    for (uint32_t i = 0; i < header->segment_count; i++) {
        uint32_t state =
                atomic_load_explicit((_Atomic uint32_t *)&segments[i].state, memory_order_acquire);
        sequences[i] = segments[i].sequence;
        offsets[i] = atomic_load_explicit(
                (_Atomic uint32_t *)&segments[i].committed, memory_order_acquire);
        if (state == UG_SEGMENT_FULL) {
            segments[i].committed = 0;
            atomic_store_explicit(
                    (_Atomic uint32_t *)&segments[i].state, UG_SEGMENT_FREE, memory_order_release);
        }
    }
}

static void print_header(const char *before)
{
    uint64_t seen = 0, dropped = 0;

    printf("%s\"state\": %u, \"have_kinds\": %u, \"cupti\": %u, \"driver\": %u, \"nccl\": %u, \"per_thread_buffers\": %d, \"threads\": %u, ",
            before, header->state, header->have_kinds, header->cupti_version,
            header->driver_version, header->nccl_version, (int)header->per_thread_buffers,
            header->threads);
    printf("\"cupti_dropped\": %lu, \"requested\": %lu, \"completed\": %lu, \"discarded\": %lu, \"unknown\": %lu, \"reason\": \"%.160s\", "
           "\"cupti_path\": \"%.256s\", \"seen\": {",
            header->cupti_dropped, header->cupti_buffers_requested, header->cupti_buffers_completed,
            header->cupti_buffers_discarded, header->unknown_records, header->reason,
            header->cupti_path);
    for (int i = 0; i < UG_PRODUCER_COUNT; i++) {
        printf("%s\"%s\": %lu", i ? ", " : "", producer_names[i], header->counts[i].seen);
        seen += header->counts[i].seen;
        dropped += header->counts[i].dropped;
    }
    printf("}, \"seen_total\": %lu, \"dropped\": %lu", seen, dropped);
}

// Waits until the library has acted on what was asked, draining meanwhile. Milliseconds, or -1.
static double wait_done(struct tally *tally, int pid)
{
    uint64_t begin = now_ns();

    while (now_ns() - begin < KINDS_TIMEOUT_MS * 1000000ull) {
        if (atomic_load((_Atomic uint32_t *)&header->done_generation) == header->generation)
            return (double)(now_ns() - begin) / 1e6;
        if (kill(pid, 0) && errno == ESRCH)
            break;
        drain(tally);
        usleep(NAP_US);
    }
    return -1;
}

static int run(int pid, uint32_t kinds, double seconds)
{
    static struct tally tally;
    uint64_t end_ns = seconds > 0 ? now_ns() + (uint64_t)(seconds * 1e9) : UINT64_MAX, records = 0,
             turns = 0;
    double on_ms, off_ms;

    skip_old();
    ask(UG_SPOOL_ACTIVE, kinds);
    on_ms = wait_done(&tally, pid);
    print_header("{");
    printf(", \"on_ms\": %.2f}\n", on_ms);
    fflush(stdout);
    while (!stop && now_ns() < end_ns && header->state != UG_SPOOL_ENDED) {
        struct pollfd input = {.fd = 0, .events = POLLIN};
        char byte;
        header->heartbeat_ns = now_ns();
        records += drain(&tally);
        if (seconds <= 0 && poll(&input, 1, 0) > 0 && read(0, &byte, 1) == 0)
            break;
        if (++turns % 1000 == 0 && kill(pid, 0) && errno == ESRCH)
            break;
        usleep(NAP_US);
    }
    ask(UG_SPOOL_DORMANT, 0);
    off_ms = wait_done(&tally, pid);
    for (int i = 0; i < 20 && drain(&tally) > 0; i++)
        usleep(NAP_US);
    print_header("{");
    printf(", \"off_ms\": %.2f, \"bytes\": %lu, \"broken\": %lu, \"zero_time\": %lu, \"backwards\": %lu, \"span_ms\": %.3f, \"records\": {",
            off_ms, tally.bytes, tally.broken, tally.zero_time, tally.backwards,
            (double)(tally.last_gpu - tally.first_gpu) / 1e6);
    for (int i = 1; i < UG_REC_TYPE_COUNT; i++)
        printf("%s\"%s\": %lu", i > 1 ? ", " : "", type_names[i], tally.types[i]);
    printf("}}\n");
    return tally.broken ? 1 : 0;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_signal};
    int pid = argc > 2 ? atoi(argv[2]) : 0;

    if (pid <= 0 ||
            (strcmp(argv[1], "status") != 0 && (strcmp(argv[1], "drain") != 0 || argc < 4))) {
        fprintf(stderr, "usage: spool_switch status PID | drain PID KINDS [SECONDS]\n");
        return 2;
    }
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    for (int i = 0; i < 200 && !spool_open(pid); i++)
        usleep(10000);
    if (!header) {
        printf("{\"error\": \"process %d has no spool\"}\n", pid);
        return 1;
    }
    if (strcmp(argv[1], "status") == 0) {
        print_header("{");
        printf(", \"want_state\": %u, \"generation\": %u, \"done_generation\": %u}\n",
                header->want_state, header->generation, header->done_generation);
        return 0;
    }
    return run(pid, (uint32_t)strtoul(argv[3], NULL, 0), argc > 4 ? atof(argv[4]) : 0);
}
