// SPDX-License-Identifier: Apache-2.0
// A spool in which a traced process writes what it likes, through the GPU side of the recorder into
// the store. The input is a list of acts: records, bytes that are none, words of header and
// segments, and time that passes. No clock but the input's: the same input is the same run.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "contracts/spool.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_store.h"
#include "tracer/gpu/gpu.h"
#include "tracer/gpu/spool_reader.h"

enum { SEGMENTS = 4, SEGMENT_BYTES = 4096, ACTS_MAX = 200, TAIL_MAX = 32 };
static const uint64_t clock_ns = 2500000000; // where times of records are counted from

static int64_t now_ns;
// what the recorder gets for clock_monotonic_ns (ld --wrap)
int64_t __wrap_clock_monotonic_ns(void);
int64_t __wrap_clock_monotonic_ns(void)
{
    return now_ns;
}

struct spool {
    int fd;
    size_t bytes;
    struct ug_spool_header *header;
    struct ug_spool_segment *segments;
    uint8_t *data;
};

static void spool_make(struct spool *spool)
{
    size_t data_offset = UG_SPOOL_HEADER_BYTES + SEGMENTS * sizeof(struct ug_spool_segment);
    data_offset = (data_offset + 4095) / 4096 * 4096;
    spool->bytes = data_offset + (size_t)SEGMENTS * SEGMENT_BYTES;
    spool->fd = memfd_create(UG_SPOOL_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    fuzz_require(spool->fd >= 0 && ftruncate(spool->fd, (off_t)spool->bytes) == 0, "a spool");
    spool->header = mmap(NULL, spool->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, spool->fd, 0);
    fuzz_require(spool->header != MAP_FAILED, "a spool");
    spool->segments = (void *)((char *)spool->header + UG_SPOOL_HEADER_BYTES);
    spool->data = (uint8_t *)spool->header + data_offset;
    *spool->header = (struct ug_spool_header){.magic = UG_SPOOL_MAGIC,
            .version = UG_SPOOL_VERSION,
            .header_bytes = sizeof(struct ug_spool_header),
            .segment_bytes = SEGMENT_BYTES,
            .segment_count = SEGMENTS,
            .data_offset = data_offset,
            .file_bytes = spool->bytes,
            .pid = 1,
            .state = UG_SPOOL_DORMANT,
            .have_kinds = UG_WANT_DEFAULT};
}

static void put(struct spool *spool, unsigned at, const void *bytes, size_t size)
{
    struct ug_spool_segment *segment = &spool->segments[at];
    if (segment->state == UG_SEGMENT_FREE) {
        segment->sequence++;
        segment->committed = 0;
    }
    if (segment->committed > SEGMENT_BYTES || size > SEGMENT_BYTES - segment->committed)
        return;
    memcpy(spool->data + (size_t)at * SEGMENT_BYTES + segment->committed, bytes, size);
    segment->committed += (uint32_t)size;
    segment->state = UG_SEGMENT_WRITING;
}

// Words behind the head, each with a byte that says what it is: mostly ids and times, which a real
// one has.
static void put_record(struct spool *spool, unsigned at, struct fuzz_input *input)
{
    _Alignas(8) uint8_t record[256 + 8 * TAIL_MAX] = {0};
    uint16_t type = (uint16_t)(1 + fuzz_take(input, 1) % (UG_REC_TYPE_COUNT - 1));
    uint16_t bytes = (uint16_t)((spool_record_bytes_min[type] + 7) & ~7), words;
    if (type == UG_REC_STRING || type == UG_REC_LAUNCH_STACK)
        bytes = (uint16_t)(bytes + 8 * (fuzz_take(input, 1) % TAIL_MAX));
    words = (uint16_t)(bytes / 8);
    struct ug_rec_head head = {
            .type = type, .bytes = bytes, .tid = (uint32_t)fuzz_take(input, 1) % 4};
    memcpy(record, &head, sizeof head);
    for (uint16_t i = 1; i < words; i++) {
        uint8_t what = (uint8_t)fuzz_take(input, 1);
        uint64_t word = what < 64 ? (uint64_t)(what & 7) << 32 | what >> 3
                : what < 128      ? clock_ns + ((uint64_t)(what & 63) << 20)
                : what < 192      ? fuzz_take(input, 4)
                                  : fuzz_take(input, 8);
        memcpy(record + 8 * i, &word, sizeof word);
    }
    put(spool, at, record, bytes);
}

static void put_word(struct spool *spool, unsigned at, uint8_t what, struct fuzz_input *input)
{
    uint64_t word = what & 1 ? fuzz_take(input, 8) : fuzz_take(input, 1);
    uint8_t *to = what & 0x80 ? (uint8_t *)spool->header + 8 * (what % (sizeof *spool->header / 8))
                              : (uint8_t *)&spool->segments[at] + 8 * (what % 4);
    memcpy(to, &word, sizeof word);
}

static uint32_t row_of_process(void *context, pid_t pid)
{
    (void)context;
    return pid == 1;
}

static uint32_t row_of_thread(void *context, pid_t pid, uint32_t tid)
{
    (void)context, (void)pid;
    return tid == 1 || tid == 2 ? tid : 0;
}

static int begin(void *context)
{
    struct error err = {0};
    struct store *store = context;
    return sqlite3_get_autocommit(store_db(store)) ? store_begin(store, &err) : 0;
}

static void failed(void *context)
{
    fuzz_require(0, sqlite3_errmsg(store_db(context))); // nothing of a spool makes a statement fail
}

static struct store *open_store(void)
{
    struct store *store = fuzz_store_open();
    // As the recorder's writer has it: rows name others that come with a later batch.
    fuzz_require(sqlite3_exec(store_db(store), "PRAGMA foreign_keys = OFF", NULL, NULL, NULL) ==
                    SQLITE_OK,
            "a pragma");
    return store;
}

static void run(struct spool *spool, struct gpu_recorder *gpu, struct fuzz_input *input)
{
    struct error err = {0};
    uint8_t raw[255];
    bool attached = false;
    for (int i = 0; i < ACTS_MAX && input->size; i++) {
        uint8_t verb = (uint8_t)fuzz_take(input, 1);
        unsigned at = verb / 8 % SEGMENTS;
        switch (verb % 8) {
        case 0:
        case 1:
        case 2:
        case 3:
            put_record(spool, at, input);
            break;
        case 4: {
            size_t len = fuzz_take(input, 1);
            put(spool, at, raw, fuzz_take_bytes(input, raw, len));
            break;
        }
        case 5:
            put_word(spool, at, (uint8_t)fuzz_take(input, 1), input);
            break;
        case 6:
            spool->segments[at].state = verb & 0x80 ? UG_SEGMENT_FULL : verb % 4;
            break;
        default:
            if (!attached)
                attached = fuzz_check(gpu_recorder_attach_fd(gpu, 1, spool->fd, &err), &err) == 0;
            now_ns += (int64_t)fuzz_take(input, 1) << 24;
            fuzz_check(gpu_recorder_poll(gpu, now_ns, &err), &err);
        }
    }
    if (!attached)
        fuzz_check(gpu_recorder_attach_fd(gpu, 1, spool->fd, &err), &err);
    fuzz_check(gpu_recorder_poll(gpu, now_ns, &err), &err);
    gpu_recorder_gone(gpu, 1);
    fuzz_check(gpu_recorder_stop(gpu, 0, &err), &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct store *store;
    if (!store)
        store = open_store();
    const struct gpu_callbacks callbacks = {store, row_of_process, row_of_thread, begin, failed};
    struct fuzz_input input = {data, size};
    struct gpu_recorder *gpu = NULL;
    struct spool spool;
    struct error err = {0};
    now_ns = (int64_t)clock_ns;
    spool_make(&spool);
    fuzz_require(gpu_recorder_new(store, 1, &callbacks, &(struct gpu_opts){0}, &gpu, &err) == 0,
            err.text);
    run(&spool, gpu, &input);
    store_rollback(store);
    gpu_recorder_free(gpu); // outside a transaction it can let go of its buffers
    munmap(spool.header, spool.bytes);
    close(spool.fd);
    return 0;
}
