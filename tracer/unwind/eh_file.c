// SPDX-License-Identifier: Apache-2.0
// Unwind information of an ELF file, read in blocks that are kept for a while.
#include "tracer/unwind/eh_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/elf.h"
#include "common/strings.h"
#include "common/target/file.h"

enum {
    EH_ENTRIES_MAX = 4 << 20,
    // .eh_frame_hdr as linkers write it: version 1, .eh_frame by 4 bytes from here, 4 bytes of count, the table by
    // 4 bytes from the begin of the section.
    EH_HEAD_BYTES = 12,
    EH_PCREL_SDATA4 = 0x1b,
    EH_UDATA4 = 0x03,
    EH_DATAREL_SDATA4 = 0x3b,
};

struct eh_entry {
    int32_t code, frame;
};

static bool eh_file_offset(const struct eh_file *file, uint64_t address, uint64_t *ret)
{
    for (uint32_t i = 0; i < file->load_count; i++) {
        const struct eh_load *load = &file->loads[i];
        if (address >= load->address && address - load->address < load->bytes) {
            *ret = load->offset + (address - load->address);
            return true;
        }
    }
    return false;
}

static int eh_file_headers(struct eh_file *file, uint64_t *ret_head)
{
    struct elf_file elf;
    Elf64_Phdr header;
    if (elf_file_open(file->fd, &elf) || elf.header.e_machine != EM_X86_64)
        return -ENOEXEC;
    *ret_head = 0;
    for (uint32_t i = 0; !elf_segment(&elf, i, &header); i++) {
        if (header.p_type == PT_GNU_EH_FRAME)
            *ret_head = header.p_vaddr;
        if (header.p_type == PT_LOAD && file->load_count < EH_LOADS_MAX && header.p_offset <= INT64_MAX / 2 &&
            header.p_filesz <= INT64_MAX / 2)
            file->loads[file->load_count++] = (struct eh_load){header.p_vaddr, header.p_filesz, header.p_offset};
    }
    return 0;
}

int eh_file_open(int fd, struct eh_file *ret)
{
    struct {
        uint8_t version, frame, count, table;
        int32_t frame_at;
        uint32_t entries;
    } head;
    _Static_assert(sizeof head == EH_HEAD_BYTES, "head of .eh_frame_hdr");
    uint64_t offset;
    *ret = (struct eh_file){.fd = fd};
    int rc = eh_file_headers(ret, &ret->head_address);
    if (rc)
        return rc;
    if (!ret->head_address || !eh_file_offset(ret, ret->head_address, &offset) ||
        elf_read(fd, &head, sizeof head, offset) || head.version != 1 || head.frame != EH_PCREL_SDATA4 ||
        head.count != EH_UDATA4 || head.table != EH_DATAREL_SDATA4 || head.entries > EH_ENTRIES_MAX)
        return -ENODATA;
    ret->table_offset = offset + sizeof head;
    ret->count = head.entries;
    ret->blocks = xcalloc(EH_BLOCKS, sizeof *ret->blocks);
    return 0;
}

void eh_file_close(struct eh_file *file)
{
    free(file->blocks);
    *file = (struct eh_file){.fd = -1};
}

// The bytes at an offset, if so many are there; at most EH_RECORD_MAX.
static const uint8_t *eh_file_bytes(struct eh_file *file, uint64_t offset, size_t bytes)
{
    struct eh_block *block = &file->blocks[offset / EH_BLOCK_BYTES % EH_BLOCKS];
    uint64_t within = offset % EH_BLOCK_BYTES;
    if (offset > INT64_MAX / 2)
        return NULL;
    if (!block->bytes || block->offset != offset - within) {
        if (file->reads++ >= EH_READS_MAX)
            return NULL;
        ssize_t got = target_file_read(file->fd, block->at, sizeof block->at, offset - within);
        block->offset = offset - within;
        block->bytes = got > 0 ? (size_t)got : 0;
    }
    return within < block->bytes && bytes <= block->bytes - within ? block->at + within : NULL;
}

bool eh_file_entry(struct eh_file *file, uint32_t i, uint64_t *ret_code, uint64_t *ret_frame)
{
    struct eh_entry entry;
    const uint8_t *bytes =
        i < file->count ? eh_file_bytes(file, file->table_offset + i * sizeof entry, sizeof entry) : NULL;
    if (!bytes)
        return false;
    memcpy(&entry, bytes, sizeof entry);
    *ret_code = file->head_address + (uint64_t)(int64_t)entry.code;
    *ret_frame = file->head_address + (uint64_t)(int64_t)entry.frame;
    return true;
}

static bool eh_file_is_behind(const struct eh_file *file, size_t i, uint64_t address, bool *ret_damaged)
{
    struct eh_entry entry;
    *ret_damaged = elf_read(file->fd, &entry, sizeof entry, file->table_offset + i * sizeof entry) != 0;
    return *ret_damaged || file->head_address + (uint64_t)(int64_t)entry.code > address;
}

uint32_t eh_file_behind(struct eh_file *file, uint64_t address)
{
    bool damaged = false;
    size_t at = search_first(i, file->count, damaged || eh_file_is_behind(file, i, address, &damaged));
    return damaged ? file->count : (uint32_t)at;
}

const uint8_t *eh_file_record(struct eh_file *file, uint64_t address, size_t *ret_bytes)
{
    uint64_t offset;
    uint32_t length;
    if (!eh_file_offset(file, address, &offset))
        return NULL;
    const uint8_t *bytes = eh_file_bytes(file, offset, sizeof length);
    if (!bytes)
        return NULL;
    memcpy(&length, bytes, sizeof length);
    if (!length || length > EH_RECORD_MAX - sizeof length)
        return NULL;
    bytes = eh_file_bytes(file, offset, sizeof length + length);
    *ret_bytes = length;
    return bytes ? bytes + sizeof length : NULL;
}
