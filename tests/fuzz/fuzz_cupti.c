// SPDX-License-Identifier: Apache-2.0
// A buffer of CUPTI through the decoder of every version, and what it leaves in the spool. The
// input: version, kinds, then records: kind and how many of its bytes follow. Texts are those of
// `texts`: CUPTI's pointers are no input.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "contracts/spool.h"
#include "tests/fuzz/fuzz.h"
#include "tracer/inject/decode/decode.h"
#include "tracer/inject/decode/decode_inside.h"
#include "tracer/inject/decode/layout.h"
#include "tracer/inject/spool/spool_writer.h"

enum { RECORDS_MAX = 64, PAGE = 4096 };

static const char *texts[8];

// A text that ends where nothing is mapped, and one that begins there: CUPTI has handed out names
// of modules that were gone.
static void prepare(void)
{
    if (texts[0])
        return;
    char *pages = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fuzz_require(pages != MAP_FAILED && spool_create() == 0 && munmap(pages + 2 * PAGE, PAGE) == 0,
            "a spool");
    memset(pages, 'x', 2 * PAGE);
    memcpy(pages + PAGE, "layer\0", 6);
    const char *all[] = {"_Z6kernelPf", "step", "", pages + 2 * PAGE - 5, pages + 2 * PAGE, pages,
            (const char *)8, NULL};
    memcpy(texts, all, sizeof texts);
}

static void put_text(uint8_t *record, size_t bytes, int16_t offset, uint8_t pick)
{
    if (offset >= 0 && (size_t)offset + sizeof(char *) <= bytes)
        memcpy(record + offset, &texts[pick % 8], sizeof(char *));
}

static size_t put_record(
        struct fuzz_input *input, const struct cupti_layout *layout, uint8_t *record, size_t room)
{
    uint32_t kind = (uint32_t)fuzz_take(input, 1);
    uint8_t pick = (uint8_t)fuzz_take(input, 1);
    size_t given = fuzz_take(input, 1), bytes = kind < LAYOUT_KIND_COUNT ? layout->bytes[kind] : 0;
    bytes = bytes ? bytes : 8 + given % 64 * 8; // of no kind that the table has
    if (bytes > room)
        bytes = room;
    memset(record, 0, bytes);
    fuzz_take_bytes(input, record, given < bytes ? given : bytes);
    memcpy(record, &kind, sizeof kind < bytes ? sizeof kind : bytes);
    if (kind == KIND_KERNEL || kind == KIND_CONCURRENT_KERNEL)
        put_text(record, bytes, layout->kernel.name, pick);
    else if (kind == KIND_DEVICE)
        put_text(record, bytes, layout->device.name, pick);
    else if (kind == KIND_NAME)
        put_text(record, bytes, layout->name.name, pick);
    else if (kind == KIND_MARKER) {
        put_text(record, bytes, layout->marker.name, pick);
        put_text(record, bytes, layout->marker.domain, pick / 8);
    }
    return bytes;
}

// As a recorder does: every record can be one, and the segments come back.
static void drain(void)
{
    struct ug_spool_header *header = spool_header();
    struct ug_spool_segment *segments = (void *)((char *)header + UG_SPOOL_HEADER_BYTES);
    spool_flush_thread();
    for (uint32_t i = 0; i < header->segment_count; i++) {
        const uint8_t *data =
                (uint8_t *)header + header->data_offset + (size_t)i * header->segment_bytes;
        fuzz_require(segments[i].committed <= header->segment_bytes, "what is committed fits");
        for (uint32_t at = 0; at < segments[i].committed;) {
            const struct ug_rec_head *head = (const void *)(data + at);
            fuzz_require(head->bytes >= sizeof *head && head->bytes % 8 == 0 &&
                            head->bytes <= segments[i].committed - at && head->type &&
                            head->type < UG_REC_TYPE_COUNT,
                    "a record in the spool is one");
            at += head->bytes;
        }
        segments[i].committed = 0;
        segments[i].state = UG_SEGMENT_FREE;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    prepare();
    struct fuzz_input input = {data, size};
    size_t version = fuzz_take(&input, 1) % (layout_table_count + 1);
    uint32_t kinds = (uint32_t)fuzz_take(&input, 2);
    const struct cupti_layout *layout =
            version < layout_table_count ? &layout_table[version] : cupti_layout_11_8();
    uint8_t *buffer = malloc(RECORDS_MAX * 1024), *exact;
    fuzz_require(buffer != NULL, "memory");
    size_t used = 0;
    for (int i = 0; i < RECORDS_MAX && input.size; i++)
        used += put_record(&input, layout, buffer + used, RECORDS_MAX * 1024 - used);
    used -= kinds & 1 && used ? 1 + kinds % 7 % used : 0; // cut off
    exact = malloc(used ? used : 1);
    memcpy(exact, buffer, used);
    struct decode_counts counts = {0};
    decode_buffer(
            layout, exact, used, kinds & 2 ? ~(uint32_t)UG_WANT_NOTHING_KEPT : kinds >> 2, &counts);
    fuzz_require(
            counts.zero_time <= counts.records + used && counts.unknown <= counts.records + used,
            "counts");
    free(exact);
    free(buffer);
    drain();
    return 0;
}
