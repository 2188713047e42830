// SPDX-License-Identifier: Apache-2.0
// Where the decoders' records go when the room at hand is used up, and the texts that are new: 1 of
// 1,000 records. Runs where decode.c runs.
#include "tracer/inject/decode/decode_inside.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tracer/inject/spool/spool_writer.h"

// the smallest page of any kernel: a larger one is asked for in parts
enum { PAGE_BYTES = 4096, TEXT_BYTES_MAX = 4001 };

void decode_close(struct batch *batch)
{
    if (batch->at > batch->start)
        spool_publish((size_t)(batch->at - batch->start));
    batch->start = batch->at = batch->end = NULL;
}

bool decode_refill(struct batch *batch, size_t bytes)
{
    size_t room = 0;
    decode_close(batch);
    batch->start = batch->at = spool_room(bytes, &room);
    if (!batch->at)
        return false;
    batch->end = batch->at + room;
    return true;
}

// CUPTI has handed out names of modules that were gone. The kernel says EFAULT for what cannot be
// read, and EINVAL for a `how` that there is not: a cheap call that no sandbox forbids. Only for
// names that are new, so not in 999 of 1,000 records.
static bool readable(struct decoder *decoder, const char *text)
{
    uintptr_t page = (uintptr_t)text / PAGE_BYTES;
    uintptr_t *known = &decoder->pages[page % DECODE_PAGES_KNOWN];
    if (*known == page)
        return true;
    int saved = errno;
    bool good = syscall(SYS_rt_sigprocmask, ~0, (uintptr_t)text & ~(uintptr_t)7, NULL, 8) == 0 ||
            errno != EFAULT;
    errno = saved;
    if (good)
        *known = page;
    return good;
}

// Its bytes, as far as it can be read. 0: none.
static size_t text_length(struct decoder *decoder, const char *text)
{
    size_t bytes = 0;
    while (bytes < TEXT_BYTES_MAX && readable(decoder, text + bytes)) {
        size_t part = PAGE_BYTES - (uintptr_t)(text + bytes) % PAGE_BYTES;
        size_t found = strnlen(text + bytes, part);
        bytes += found;
        if (found < part)
            return bytes;
    }
    return bytes < TEXT_BYTES_MAX ? 0 : bytes;
}

uint32_t decode_static_string(struct decoder *decoder, const char *text)
{
    decode_close(&decoder->batch);
    return text_length(decoder, text) ? spool_static_string(text) : 0;
}

uint32_t decode_passing_string(struct decoder *decoder, const char *text)
{
    if (!text)
        return 0;
    decode_close(&decoder->batch);
    return spool_string(text, text_length(decoder, text));
}
