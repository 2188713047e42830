// SPDX-License-Identifier: Apache-2.0
// The writer's side of the spool: makes the memfd, gives each thread a segment of its own and
// publishes its records. Runs on every thread of the workload that launches, on CUPTI's and on the
// library's own. A thread's state is 32 bytes of static TLS, because the library is loaded late and
// the surplus for such libraries is 1,664 bytes for all of them. Not for signal handlers: a record
// that one thread has begun would be overwritten.
#include "tracer/inject/spool/spool_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tracer/inject/spool/strings.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum {
    RECORD_BYTES_MAX = 8192,
    PAGE_BYTES = 4096, // the smallest of any kernel; arm64 has up to 64 KiB
    // States looked at for a record while all segments are taken: a drop must cost less than a
    // record.
    FULL_PROBES = 64,
    // Given back at once: not all, so that a thread that writes late finds room.
    HELD_MAX = 16,
    // Until a thread's word that it counts is seen by the one that asks: a store leaves a CPU's
    // buffer within microseconds. (membarrier(2) would make sure of it, and is a call that some
    // sandboxes end a process for.)
    SHUT_SETTLE_NS = 1000000,
    SHUT_NAP_NS = 50000,
    PAUSE_NS = 100000000,
};

enum shut { SHUT_FOR_GOOD = 1, SHUT_FOR_NOW = 2 }; // bits: the process exits; memory goes back

static const uint64_t data_offset =
        UG_SPOOL_HEADER_BYTES + UG_SPOOL_SEGMENT_COUNT * sizeof(struct ug_spool_segment);
static const uint64_t file_bytes = UG_SPOOL_HEADER_BYTES +
        UG_SPOOL_SEGMENT_COUNT * sizeof(struct ug_spool_segment) +
        (uint64_t)UG_SPOOL_SEGMENT_COUNT * UG_SPOOL_SEGMENT_BYTES;
_Static_assert(
        (UG_SPOOL_SEGMENT_COUNT * sizeof(struct ug_spool_segment)) % PAGE_BYTES == 0, "pages");

static struct {
    struct ug_spool_header *header; // NULL: no spool
    struct ug_spool_segment *segments;
    unsigned char *data;
    uint64_t sequence;
    uint32_t touched; // segments below were used before, so they have memory: taken first
    uint32_t full;    // the last who looked at all found none FREE
    uint32_t rotor;   // where the next look begins while full
    uint32_t shut;    // enum shut: nobody may begin to count
    uint32_t inside;  // threads that count without saying so in a segment
    int fd;
    struct stat file; // of fd
    pthread_key_t key;
    int has_key;
} spool = {.fd = -1};

static __thread struct {
    struct ug_spool_segment *segment; // NULL: none
    unsigned char *data;              // of the segment
    uint32_t used;
    uint32_t tid;
    uint8_t known;  // counted, and the key's destructor will run
    uint8_t keeps;  // decodes CUPTI's buffers: what all others launched goes through its segment
    uint8_t inside; // depth of spool_enter()
} own __attribute__((tls_model("initial-exec")));

// --- creation
// -------------------------------------------------------------------------------------

static void thread_ends(void *unused)
{
    (void)unused;
    own.known = 0; // a destructor that comes later may write again
    spool_flush_thread();
}

static int open_memfd(void)
{
    struct rlimit limit;
    // Growing a file beyond the limit is a signal that kills, not an error.
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < file_bytes)
        return -EFBIG;
    int fd = (int)syscall(
            SYS_memfd_create, UG_SPOOL_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) // before Linux 6.3
        fd = (int)syscall(SYS_memfd_create, UG_SPOOL_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    // Sealed: neither side can make the other's next access a SIGBUS.
    if (ftruncate(fd, (off_t)file_bytes) < 0 ||
            fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
        int err = -errno;
        close(fd);
        return err;
    }
    return fd;
}

static void fill_header(struct ug_spool_header *header)
{
    header->version = UG_SPOOL_VERSION;
    header->header_bytes = sizeof *header;
    header->segment_bytes = UG_SPOOL_SEGMENT_BYTES;
    header->segment_count = UG_SPOOL_SEGMENT_COUNT;
    header->data_offset = data_offset;
    header->file_bytes = file_bytes;
    header->pid = (uint32_t)getpid();
    header->per_thread_buffers = UINT32_MAX;
    // Last: a recorder that finds the file now must not take a header that is half there.
    __atomic_store_n(&header->magic, UG_SPOOL_MAGIC, __ATOMIC_RELEASE);
}

int spool_create(void)
{
    if (spool_header())
        return -EEXIST;
    int err = strings_create();
    if (err)
        return err;
    if (!spool.has_key) {
        err = -pthread_key_create(&spool.key, thread_ends);
        if (err)
            return err;
        spool.has_key = 1;
    }
    int fd = open_memfd();
    if (fd < 0)
        return fd;
    unsigned char *map =
            mmap(NULL, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (map == MAP_FAILED) {
        err = -errno;
        close(fd);
        return err;
    }
    madvise(map, file_bytes, MADV_DONTDUMP); // 64 MiB that no core dump is read for
    spool.fd = fd;
    if (fstat(fd, &spool.file))
        spool.file = (struct stat){0};
    spool.segments = (struct ug_spool_segment *)(map + UG_SPOOL_HEADER_BYTES);
    spool.data = map + data_offset;
    spool.sequence = 0;
    spool.touched = spool.full = spool.rotor = spool.shut = spool.inside = 0;
    fill_header((struct ug_spool_header *)map);
    __atomic_store_n(&spool.header, (struct ug_spool_header *)map, __ATOMIC_RELEASE);
    return 0;
}

struct ug_spool_header *spool_header(void)
{
    return __atomic_load_n(&spool.header, __ATOMIC_ACQUIRE);
}

void spool_forget(void)
{
    struct ug_spool_header *header = spool_header();
    own.segment = NULL;
    own.tid = own.known = own.inside = 0;
    if (!header)
        return;
    __atomic_store_n(&spool.header, NULL, __ATOMIC_RELEASE);
    munmap(header, file_bytes);
    // Or a recorder would find the parent's spool in the child too. After closefrom(3) the number
    // is somebody else's.
    struct stat status;
    if (fstat(spool.fd, &status) == 0 && status.st_ino == spool.file.st_ino &&
            status.st_dev == spool.file.st_dev)
        close(spool.fd);
    spool.fd = -1;
    strings_forget();
}

void spool_prepare(uint32_t segments)
{
    if (!spool_header())
        return;
    if (segments > UG_SPOOL_SEGMENT_COUNT)
        segments = UG_SPOOL_SEGMENT_COUNT;
    size_t bytes = (size_t)segments * UG_SPOOL_SEGMENT_BYTES;
    // with pages of 64 KiB the table shares their first
    size_t before = (uintptr_t)spool.data % (size_t)sysconf(_SC_PAGESIZE);
    if (!bytes || madvise(spool.data - before, before + bytes, MADV_POPULATE_WRITE) == 0)
        return;
    for (size_t at = 0; at < bytes; at += PAGE_BYTES) // before Linux 5.14; a writer may be there
        __atomic_fetch_or(spool.data + at, 0, __ATOMIC_RELAXED);
}

// --- segments
// -------------------------------------------------------------------------------------

static bool take(uint32_t index)
{
    struct ug_spool_segment *segment = &spool.segments[index];
    uint32_t state = UG_SEGMENT_FREE;
    if (__atomic_load_n(&segment->state, __ATOMIC_RELAXED) != UG_SEGMENT_FREE ||
            !__atomic_compare_exchange_n(&segment->state, &state, UG_SEGMENT_WRITING, false,
                    __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return false;
    own.segment = segment;
    own.data = spool.data + (size_t)index * UG_SPOOL_SEGMENT_BYTES;
    own.used = 0;
    __atomic_store_n(&segment->committed, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&segment->tid, own.tid, __ATOMIC_RELAXED);
    // A reader that sees the new sequence sees committed of this take, not of the last.
    __atomic_store_n(&segment->sequence, __atomic_add_fetch(&spool.sequence, 1, __ATOMIC_RELAXED),
            __ATOMIC_RELEASE);
    return true;
}

// The lowest first: as long as the reader keeps up the same few segments go round, which have
// memory and lie in the cache. A first use costs 64 page faults, 20 ns for each kernel record in
// it.
static bool take_any(void)
{
    // The last ones are for threads that decode, which must not find all taken by those that call.
    uint32_t count = UG_SPOOL_SEGMENT_COUNT - (own.keeps ? 0 : SPOOL_DECODER_SEGMENTS);
    if (__atomic_load_n(&spool.full, __ATOMIC_RELAXED)) {
        uint32_t from = __atomic_fetch_add(&spool.rotor, FULL_PROBES, __ATOMIC_RELAXED);
        for (uint32_t i = UG_SPOOL_SEGMENT_COUNT - SPOOL_DECODER_SEGMENTS; i < count; i++)
            if (take(i))
                return true;
        for (uint32_t i = 0; i < FULL_PROBES; i++) {
            if (take((from + i) % count)) {
                __atomic_store_n(&spool.full, 0, __ATOMIC_RELAXED);
                return true;
            }
        }
        return false;
    }
    uint32_t touched = __atomic_load_n(&spool.touched, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < touched && i < count; i++)
        if (take(i))
            return true;
    while (touched < count) {
        if (__atomic_compare_exchange_n(&spool.touched, &touched, touched + 1, false,
                    __ATOMIC_RELAXED, __ATOMIC_RELAXED) &&
                take(touched))
            return true;
    }
    __atomic_store_n(&spool.full, 1, __ATOMIC_RELAXED);
    return false;
}

static bool next_segment(struct ug_spool_header *header)
{
    spool_flush_thread();
    spool_tid();
    if (!own.known) {
        own.known = 1;
        pthread_setspecific(spool.key, &spool);
        __atomic_fetch_add(&header->threads, 1, __ATOMIC_RELAXED);
    }
    return take_any();
}

void spool_flush_thread(void)
{
    if (!own.segment)
        return;
    if (spool_header()) {
        // of a thread that ended within a record
        __atomic_store_n(&own.segment->busy, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&own.segment->state, UG_SEGMENT_FULL, __ATOMIC_RELEASE);
    }
    own.segment = NULL;
}

uint32_t spool_tid(void)
{
    if (!own.tid)
        own.tid = (uint32_t)syscall(SYS_gettid);
    return own.tid;
}

// --- who counts
// --------------------------------------------------------------------------------------

// exit_group(2) ends threads anywhere, also between counting a record and publishing it. So who
// counts says so before it looks at `shut`, and who shuts waits for those that have said so. On the
// way of a launch that is a store into a line that is written anyway; those without a segment, and
// those who decode a buffer, say it to a counter of all.
bool spool_enter(void)
{
    if (own.inside++)
        return true;
    __atomic_fetch_add(&spool.inside, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&spool.shut, __ATOMIC_SEQ_CST))
        return true;
    spool_leave();
    return false;
}

void spool_leave(void)
{
    if (!--own.inside)
        __atomic_fetch_sub(&spool.inside, 1, __ATOMIC_RELEASE);
}

static void say_busy(uint32_t busy)
{
    __atomic_store_n(&own.segment->busy, busy, __ATOMIC_RELEASE);
}

static bool begin_record(void)
{
    say_busy(1);
    __atomic_signal_fence(__ATOMIC_SEQ_CST); // the other half is the settling of shut_until_quiet()
    if (!__atomic_load_n(&spool.shut, __ATOMIC_RELAXED) || own.inside)
        return true;
    say_busy(0);
    return false;
}

static bool is_anybody_busy(void)
{
    uint32_t others = __atomic_load_n(&spool.inside, __ATOMIC_ACQUIRE) - (own.inside > 0);
    for (uint32_t i = 0; i < UG_SPOOL_SEGMENT_COUNT && !others; i++)
        if (&spool.segments[i] != own.segment)
            others = __atomic_load_n(&spool.segments[i].busy, __ATOMIC_ACQUIRE);
    return others > 0;
}

static void nap(long ns)
{
    struct timespec length = {.tv_nsec = ns};
    nanosleep(&length, NULL);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// False: somebody still counts.
static bool shut_until_quiet(enum shut why, uint64_t end_ns)
{
    __atomic_fetch_or(&spool.shut, (uint32_t)why, __ATOMIC_SEQ_CST);
    nap(SHUT_SETTLE_NS);
    while (is_anybody_busy()) {
        if (now_ns() >= end_ns)
            return false;
        nap(SHUT_NAP_NS);
    }
    return true;
}

bool spool_close(uint64_t end_ns)
{
    return !spool_header() || shut_until_quiet(SHUT_FOR_GOOD, end_ns);
}

// --- memory
// ---------------------------------------------------------------------------------------

static bool hold(uint32_t index, bool abandoned)
{
    uint32_t state = UG_SEGMENT_FREE, *at = &spool.segments[index].state;
    if (__atomic_compare_exchange_n(
                at, &state, UG_SEGMENT_HELD, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return true;
    return abandoned && state == UG_SEGMENT_FULL &&
            __atomic_compare_exchange_n(
                    at, &state, UG_SEGMENT_HELD, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

// Whole pages alone. By the mapping, not by the descriptor, which the process may have closed.
static void punch(size_t from, size_t to)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)spool.data + from + page - 1) / page * page,
              end = ((uintptr_t)spool.data + to) / page * page;
    if (begin < end)
        // fails where memory is locked: then it is meant to stay
        madvise((void *)begin, end - begin, MADV_REMOVE);
}

// All that lie beside each other at once: pages of 64 KiB reach into neighbours.
static void empty(uint32_t first, uint32_t count)
{
    punch((size_t)first * UG_SPOOL_SEGMENT_BYTES, (size_t)(first + count) * UG_SPOOL_SEGMENT_BYTES);
    for (uint32_t i = first; i < first + count; i++) {
        __atomic_store_n(&spool.segments[i].committed, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&spool.segments[i].state, UG_SEGMENT_FREE, __ATOMIC_RELEASE);
    }
}

// How much of what is published in a segment nobody reads any more. `read` may come late, of an
// earlier take.
static uint32_t bytes_let_go(const struct ug_spool_segment *segment, uint32_t committed)
{
    uint64_t read = __atomic_load_n(&segment->read, __ATOMIC_ACQUIRE);
    uint32_t bytes = (uint32_t)read & ((1u << UG_SPOOL_READ_BITS) - 1);
    if (read >> UG_SPOOL_READ_BITS != __atomic_load_n(&segment->sequence, __ATOMIC_RELAXED))
        return 0;
    return bytes < committed ? bytes : committed;
}

// Of segments that threads hold: what was read, and what was prepared and not yet written. They
// would write into it at any moment, or take another: so they are kept out meanwhile. Nothing is
// recorded now, and so nothing that is wanted is turned away.
static void empty_rests(bool abandoned)
{
    bool is_quiet = shut_until_quiet(SHUT_FOR_NOW, now_ns() + PAUSE_NS);
    for (uint32_t i = 0; is_quiet && i < UG_SPOOL_SEGMENT_COUNT; i++) {
        const struct ug_spool_segment *segment = &spool.segments[i];
        size_t at = (size_t)i * UG_SPOOL_SEGMENT_BYTES;
        if (__atomic_load_n(&segment->state, __ATOMIC_ACQUIRE) != UG_SEGMENT_WRITING)
            continue;
        uint32_t committed = __atomic_load_n(&segment->committed, __ATOMIC_ACQUIRE);
        punch(at, at + bytes_let_go(segment, committed));
        punch(at + (abandoned ? 0 : committed), at + UG_SPOOL_SEGMENT_BYTES);
    }
    __atomic_fetch_and(&spool.shut, ~(uint32_t)SHUT_FOR_NOW, __ATOMIC_RELEASE);
}

void spool_give_back(bool abandoned)
{
    if (!spool_header())
        return;
    for (uint32_t first = 0, count; first < UG_SPOOL_SEGMENT_COUNT; first += count ? count : 1) {
        for (count = 0; count < HELD_MAX && first + count < UG_SPOOL_SEGMENT_COUNT; count++)
            if (!hold(first + count, abandoned))
                break;
        if (count)
            empty(first, count);
    }
    empty_rests(abandoned);
}

// --- records
// --------------------------------------------------------------------------------------

static void *room_for(size_t bytes, size_t *ret_bytes)
{
    struct ug_spool_header *header = spool_header();
    if (!header || bytes > RECORD_BYTES_MAX || bytes % 8)
        return NULL;
    if ((!own.segment || own.used + bytes > UG_SPOOL_SEGMENT_BYTES) && !next_segment(header))
        return NULL;
    *ret_bytes = UG_SPOOL_SEGMENT_BYTES - own.used;
    return own.data + own.used;
}

void *spool_room(size_t bytes, size_t *ret_bytes)
{
    own.keeps = 1;
    return room_for(bytes, ret_bytes);
}

void *spool_reserve(enum ug_spool_producer producer, size_t bytes)
{
    bool fits = own.segment && own.used + bytes <= UG_SPOOL_SEGMENT_BYTES;
    size_t room;
    if (!(fits ? begin_record() : spool_enter()))
        return NULL;
    void *at = room_for(bytes, &room);
    spool_count_many(producer, 1, at ? 0 : 1);
    if (own.segment)
        say_busy(at != NULL);
    if (!fits)
        spool_leave();
    return at;
}

void spool_drop(enum ug_spool_producer producer)
{
    if (!spool_enter())
        return;
    spool_count_many(producer, 1, 1);
    spool_leave();
}

void spool_publish(size_t bytes)
{
    if (!own.segment)
        return;
    own.used += (uint32_t)bytes;
    __atomic_store_n(&own.segment->committed, own.used, __ATOMIC_RELEASE);
    say_busy(0);
    // Others found none: with more threads than segments some would be left out until those of the
    // others are full, and the kernels of all would be lost if the thread that decodes is among
    // them. That one keeps its segment: handed on after each buffer, 4,000 of 6,000 were lost.
    if (!own.keeps && __atomic_load_n(&spool.full, __ATOMIC_RELAXED))
        spool_flush_thread();
}

void spool_count(enum ug_spool_producer producer)
{
    spool_count_many(producer, 1, 0);
}

void spool_count_many(enum ug_spool_producer producer, uint64_t seen, uint64_t dropped)
{
    struct ug_spool_header *header = spool_header();
    if (!header)
        return;
    if (seen)
        __atomic_fetch_add(&header->counts[producer].seen, seen, __ATOMIC_RELAXED);
    if (dropped)
        __atomic_fetch_add(&header->counts[producer].dropped, dropped, __ATOMIC_RELAXED);
}
