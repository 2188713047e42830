// SPDX-License-Identifier: Apache-2.0
// A step file into which a side writes what it likes: reader, samples, rows of the store. The input
// is a list of acts: records into a slot's ring, byte records into the other, words into header and
// slots, and what the harness does.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/clock.h"
#include "harness/run/samples.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_store.h"

enum { SLOTS = 4, RING_RECORDS = 16, ACTS_MAX = 200, PAYLOAD_MAX = 512 };

struct side {
    uint8_t *file;
    struct ug_step_header *header;
    struct ug_step_slot *slots;
    struct reader *reader;
};

// Numbers of every size: the first byte says how many bits.
static uint64_t number(struct fuzz_input *input)
{
    uint8_t shift = (uint8_t)fuzz_take(input, 1);
    return shift & 0x80    ? fuzz_take(input, 8) >> shift % 64
            : shift & 0x40 ? (uint64_t)1 << shift % 64
                           : shift;
}

static uint8_t *ring_of(const struct side *side, unsigned slot)
{
    return side->file + side->header->rings_offset + slot * side->header->stride_bytes;
}

static void put_record(
        const struct side *side, unsigned slot, uint8_t what, struct fuzz_input *input)
{
    struct ug_step_record record = {.kind = what % 7, .step = (uint32_t)number(input)};
    record.begin_ns = number(input);
    record.end_ns = what & 8 ? record.begin_ns + number(input) : number(input);
    record.sched_ns = what & 16 ? number(input) : 0;
    uint64_t bits = fuzz_take(input, 8);
    memcpy(&record.value, &bits, sizeof bits);
    fuzz_take_bytes(input, record.name, fuzz_take(input, 1) % (sizeof record.name + 1));
    struct ug_step_record *ring = (void *)ring_of(side, slot);
    memcpy(&ring[side->slots[slot].head++ % RING_RECORDS], &record, sizeof record);
}

static void put_bytes(
        const struct side *side, unsigned slot, uint8_t what, struct fuzz_input *input)
{
    struct {
        struct ug_step_bytes head;
        uint8_t rest[PAYLOAD_MAX];
    } all = {.head = {.kind = what % 5, .step = what / 8}};
    all.head.dtype = (uint32_t)fuzz_take(input, 1);
    all.head.name_bytes = (uint32_t)(what & 8 ? number(input) : fuzz_take(input, 1) % 16);
    all.head.count = number(input);
    all.head.payload_bytes = what & 16 ? number(input) : fuzz_take(input, 1);
    size_t size = (sizeof all.head + ((all.head.name_bytes + 7u) & ~7u) +
            ((all.head.payload_bytes + 7) & ~(uint64_t)7));
    size = size < sizeof all ? size : sizeof all;
    fuzz_take_bytes(input, all.rest,
            size - sizeof all.head < input->size ? size - sizeof all.head : input->size);
    uint8_t *ring = ring_of(side, slot) + ug_step_ring_span(RING_RECORDS);
    for (size_t i = 0; i < size; i++)
        ring[side->slots[slot].byte_head++ % side->header->ring_bytes] = ((uint8_t *)&all)[i];
}

static void act(struct side *side, struct samples *samples, struct fuzz_input *input)
{
    uint8_t verb = (uint8_t)fuzz_take(input, 1), what = (uint8_t)fuzz_take(input, 1);
    unsigned slot = verb / 8 % SLOTS;
    struct reader_slot seen;
    switch (verb % 8) {
    case 0:
    case 1:
    case 2:
        put_record(side, slot, what, input);
        break;
    case 3:
    case 4:
        put_bytes(side, slot, what, input);
        break;
    case 5: { // a word of the slot, or of the header that all share
        uint64_t word = number(input);
        uint8_t *at = what & 0x80 ? (uint8_t *)&side->header->event + what % 2 * 8
                                  : (uint8_t *)&side->slots[slot] + what % 32 * 8;
        memcpy(at, &word, sizeof word);
        break;
    }
    case 6:
        side->slots[slot].state = what % 4;
        __atomic_add_fetch(&side->header->claims_count, 1, __ATOMIC_RELEASE);
        break;
    default:
        samples_drain(samples, side->reader);
        reader_grant(side->reader, what);
        reader_slot(side->reader, slot, &seen);
        reader_slot_alive(side->reader, slot);
        reader_wait_held(side->reader, slot, clock_monotonic_ns());
    }
}

// What was not told is not in the store, and nothing in the ledger can be below 0.
static void check_rows(struct store *store)
{
    int64_t bad = 0;
    struct error err = {0};
    fuzz_require(
            store_get_int(store, &bad, &err,
                    "SELECT (SELECT count(*) FROM ledger WHERE launch_id = 1 AND (seen < 0 OR kept < 0 OR dropped < 0)) "
                    "+ (SELECT count(*) FROM step WHERE launch_id = 1 AND dur_ns < 0)",
                    "") == 0,
            err.text);
    fuzz_require(bad == 0, "no count and no length of a step is negative");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct store *store;
    if (!store)
        store = fuzz_store_open();
    struct fuzz_input input = {data, size};
    struct samples samples = {.traced = fuzz_take(&input, 1) & 1};
    struct side side = {0};
    struct error err = {0};
    const struct reader_opts opts = {
            .slot_count = SLOTS, .ring_records = RING_RECORDS, .ring_bytes = 1, .open = true};
    const char *path = fuzz_path("steps");
    fuzz_require(reader_create(&side.reader, path, &opts, &err) == 0, err.text);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    size_t bytes = (size_t)lseek(fd, 0, SEEK_END);
    side.file = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    fuzz_require(side.file != MAP_FAILED, "a step file");
    side.header = (void *)side.file;
    side.slots = (void *)(side.file + side.header->slots_offset);
    const struct ug_step_header plan = *side.header;
    for (unsigned slot = 0; slot < SLOTS; slot++)
        side.slots[slot].state = UG_SLOT_RUNNING;
    for (int i = 0; i < ACTS_MAX && input.size; i++) {
        act(&side, &samples, &input);
        fuzz_require(memcmp(&plan, side.header, offsetof(struct ug_step_header, event)) == 0,
                "the target writes behind");
    }
    samples_drain(&samples, side.reader);
    const struct launch launch = {.reader = side.reader, .started_ns = 1000};
    fuzz_require(store_begin(store, &err) == 0, err.text);
    fuzz_check(samples_store(&samples, &launch, 1, store, &err), &err);
    check_rows(store);
    store_rollback(store);
    samples_steps(&launch);
    samples_note_max(&samples, "lr");
    samples_free(&samples);
    munmap(side.file, bytes);
    reader_free(side.reader);
    return 0;
}
