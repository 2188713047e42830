// SPDX-License-Identifier: Apache-2.0
#include "tracer/pystack/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>

#define ADDRESS_MIN 65536ull // below it nothing is ever mapped (vm.mmap_min_addr)
// User space of x86-64 with five levels of page tables; arm64's has 52 bits at most.
#define ADDRESS_MAX (1ull << 56)
#define BATCH_MAX 256 // spans of one system call (the kernel takes 1024)

int memory_init(struct memory *memory, memory_fn fn, void *ctx)
{
    *memory = (struct memory){.fn = fn, .ctx = ctx};
    memory->pages = malloc(sizeof(*memory->pages) * MEMORY_PAGES);
    return memory->pages ? 0 : -ENOMEM;
}

void memory_clear(struct memory *memory)
{
    free(memory->pages);
    memory->pages = NULL;
}

void memory_refresh(struct memory *memory)
{
    memory->page_count = 0;
}

static bool address_is_possible(uint64_t address, size_t len)
{
    return address >= ADDRESS_MIN && address < ADDRESS_MAX && len <= ADDRESS_MAX - address;
}

static int errno_to_code(int number)
{
    if (number == EPERM || number == EACCES)
        return -EPERM;
    return number == ESRCH ? -ESRCH : -EFAULT;
}

// One call reads all spans up to the first that cannot be read; that one is left out and the rest
// asked for again, so a bad pointer among 20 costs one more call.
int memory_read_process(void *ctx, struct memory_span *spans, size_t count)
{
    pid_t pid = *(const pid_t *)ctx;
    struct iovec local[BATCH_MAX], remote[BATCH_MAX];
    for (size_t i = 0; i < count; i++)
        spans[i].ok = false;
    for (size_t first = 0; first < count;) {
        size_t n = 0;
        for (; n < BATCH_MAX && first + n < count; n++) {
            local[n] = (struct iovec){spans[first + n].buf, spans[first + n].len};
            remote[n] = (struct iovec){
                    (void *)(uintptr_t)spans[first + n].address, spans[first + n].len};
        }
        ssize_t got = process_vm_readv(pid, local, n, remote, n, 0);
        if (got < 0) {
            int code = errno_to_code(errno);
            if (code != -EFAULT)
                return code;
            got = 0;
        }
        size_t left = (size_t)got, done = 0;
        while (done < n && left >= spans[first + done].len) {
            left -= spans[first + done].len;
            spans[first + done++].ok = true;
        }
        first += done == n ? n : done + 1;
    }
    return 0;
}

int memory_read_now(struct memory *memory, struct memory_span *spans, size_t count)
{
    size_t good = 0;
    for (size_t i = 0; i < count; i++) {
        spans[i].ok = false;
        good += address_is_possible(spans[i].address, spans[i].len) && spans[i].len > 0;
    }
    if (good == count) {
        memory->reads++;
        return count ? memory->fn(memory->ctx, spans, count) : 0;
    }
    for (size_t i = 0; i < count; i++) { // rare: somebody's pointer was garbage
        if (!address_is_possible(spans[i].address, spans[i].len) || spans[i].len == 0)
            continue;
        memory->reads++;
        int code = memory->fn(memory->ctx, &spans[i], 1);
        if (code < 0)
            return code;
    }
    return 0;
}

static int read_straight(struct memory *memory, uint64_t address, void *buf, size_t len)
{
    struct memory_span span = {.address = address, .buf = buf, .len = len};
    int code = memory_read_now(memory, &span, 1);
    if (code < 0)
        return code;
    return span.ok ? 0 : -EFAULT;
}

// The page at `address` of this walk, read if it was not: its index; MEMORY_PAGES when there is no
// room.
static int page_at(struct memory *memory, uint64_t address, size_t *ret)
{
    for (size_t i = memory->page_count; i-- > 0;)
        if (memory->pages_at[i] == address) {
            *ret = i;
            return 0;
        }
    *ret = MEMORY_PAGES;
    if (memory->page_count == MEMORY_PAGES)
        return 0;
    size_t i = memory->page_count;
    int code = read_straight(memory, address, memory->pages[i], MEMORY_PAGE);
    if (code < 0 && code != -EFAULT)
        return code;
    memory->pages_at[i] = address;
    memory->pages_ok[i] = code == 0;
    memory->page_count++;
    *ret = i;
    return 0;
}

int memory_read(struct memory *memory, uint64_t address, void *buf, size_t len)
{
    if (len == 0)
        return 0;
    if (!address_is_possible(address, len))
        return -EFAULT;
    if (len > 2 * MEMORY_PAGE)
        return read_straight(memory, address, buf, len);
    for (size_t done = 0; done < len;) {
        uint64_t at = address + done, page = at & ~(uint64_t)(MEMORY_PAGE - 1);
        size_t offset = (size_t)(at - page), part = MEMORY_PAGE - offset, i;
        if (part > len - done)
            part = len - done;
        int code = page_at(memory, page, &i);
        if (code < 0)
            return code;
        if (i == MEMORY_PAGES)
            code = read_straight(memory, at, (uint8_t *)buf + done, part);
        else if (!memory->pages_ok[i])
            code = -EFAULT;
        else
            memcpy((uint8_t *)buf + done, memory->pages[i] + offset, part);
        if (code < 0)
            return code;
        done += part;
    }
    return 0;
}

int memory_u64(struct memory *memory, uint64_t address, uint64_t *ret)
{
    return memory_read(memory, address, ret, sizeof(*ret));
}
