// SPDX-License-Identifier: Apache-2.0
// Unwind information of an ELF file, read in blocks that are kept for a while, or an entry at a
// time.
#include "tracer/symbols/eh_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/elf.h"
#include "common/strings.h"
#include "common/target/file.h"
#include "tracer/symbols/eh_record.h"

enum {
    EH_ENTRIES_MAX = 4 << 20,
    EH_NEAR_ENTRIES = 64, // read at once: half a kilobyte
    EH_BEGIN_BYTES = 64,  // of a record: all that says which code it is of, and how that is written
    // .eh_frame_hdr as linkers write it: version 1, .eh_frame by 4 bytes from here, 4 bytes of
    // count, the table by 4 bytes from the begin of the section.
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
    if (elf_file_open(file->fd, &elf) ||
            (elf.header.e_machine != EM_X86_64 && elf.header.e_machine != EM_AARCH64))
        return -ENOEXEC;
    file->machine = elf.header.e_machine;
    *ret_head = 0;
    for (uint32_t i = 0; !elf_segment(&elf, i, &header); i++) {
        if (header.p_type == PT_GNU_EH_FRAME)
            *ret_head = header.p_vaddr;
        if (header.p_type == PT_LOAD && file->load_count < EH_LOADS_MAX &&
                header.p_offset <= INT64_MAX / 2 && header.p_filesz <= INT64_MAX / 2)
            file->loads[file->load_count++] =
                    (struct eh_load){header.p_vaddr, header.p_filesz, header.p_offset};
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
            elf_read(fd, &head, sizeof head, offset) || head.version != 1 ||
            head.frame != EH_PCREL_SDATA4 || head.count != EH_UDATA4 ||
            head.table != EH_DATAREL_SDATA4 || head.entries > EH_ENTRIES_MAX)
        return -ENODATA;
    ret->table_offset = offset + sizeof head;
    ret->count = head.entries;
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
    uint64_t within = offset % EH_BLOCK_BYTES;
    if (offset > INT64_MAX / 2)
        return NULL;
    if (!file->blocks)
        file->blocks = xcalloc(EH_BLOCKS, sizeof *file->blocks);
    struct eh_block *block = &file->blocks[offset / EH_BLOCK_BYTES % EH_BLOCKS];
    if (!block->bytes || block->offset != offset - within) {
        if (file->reads++ >= EH_READS_MAX)
            return NULL;
        ssize_t got = target_file_read(file->fd, block->at, sizeof block->at, offset - within);
        block->offset = offset - within;
        block->bytes = got > 0 ? (size_t)got : 0;
    }
    return within < block->bytes && bytes <= block->bytes - within ? block->at + within : NULL;
}

static uint64_t eh_entry_address(const struct eh_file *file, int32_t offset)
{
    return file->head_address + (uint64_t)(int64_t)offset;
}

bool eh_file_entry(struct eh_file *file, uint32_t i, uint64_t *ret_code, uint64_t *ret_frame)
{
    struct eh_entry entry;
    const uint8_t *bytes = i < file->count
            ? eh_file_bytes(file, file->table_offset + i * sizeof entry, sizeof entry)
            : NULL;
    if (!bytes)
        return false;
    memcpy(&entry, bytes, sizeof entry);
    *ret_code = eh_entry_address(file, entry.code);
    *ret_frame = eh_entry_address(file, entry.frame);
    return true;
}

static bool eh_file_is_behind(
        const struct eh_file *file, size_t i, uint64_t address, bool *ret_damaged)
{
    struct eh_entry entry;
    *ret_damaged =
            elf_read(file->fd, &entry, sizeof entry, file->table_offset + i * sizeof entry) != 0;
    return *ret_damaged || eh_entry_address(file, entry.code) > address;
}

uint32_t eh_file_behind(struct eh_file *file, uint64_t address)
{
    bool damaged = false;
    size_t at =
            search_first(i, file->count, damaged || eh_file_is_behind(file, i, address, &damaged));
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

// Where the description is of the last entry whose code does not begin behind the address.
static bool eh_file_before(const struct eh_file *file, uint64_t address, uint64_t *ret_frame)
{
    struct eh_entry near[EH_NEAR_ENTRIES];
    uint32_t first = 0, end = file->count, at = 0;
    bool damaged = false;
    while (end - first > EH_NEAR_ENTRIES && !damaged) {
        uint32_t middle = first + (end - first) / 2;
        if (eh_file_is_behind(file, middle, address, &damaged))
            end = middle;
        else
            first = middle;
    }
    if (damaged || first == end ||
            elf_read(file->fd, near, (end - first) * sizeof *near,
                    file->table_offset + first * sizeof *near))
        return false;
    while (at < end - first && eh_entry_address(file, near[at].code) <= address)
        at++;
    if (at)
        *ret_frame = eh_entry_address(file, near[at - 1].frame);
    return at > 0;
}

// The first bytes of a record, without its length.
static struct eh_bytes eh_file_begin(
        const struct eh_file *file, uint64_t address, uint8_t bytes[EH_BEGIN_BYTES])
{
    uint64_t offset;
    uint32_t length;
    if (!eh_file_offset(file, address, &offset) || offset > INT64_MAX / 2 ||
            elf_read(file->fd, &length, sizeof length, offset) || !length || length > EH_RECORD_MAX)
        return (struct eh_bytes){.bad = true};
    size_t size = length < EH_BEGIN_BYTES ? length : EH_BEGIN_BYTES;
    if (elf_read(file->fd, bytes, size, offset + sizeof length))
        return (struct eh_bytes){.bad = true};
    return (struct eh_bytes){bytes, bytes + size, false};
}

bool eh_file_function(
        const struct eh_file *file, uint64_t address, uint64_t *ret_begin, uint64_t *ret_end)
{
    uint8_t cie_bytes[EH_BEGIN_BYTES], fde_bytes[EH_BEGIN_BYTES];
    struct eh_cie cie;
    uint64_t frame = 0, begin, end;
    if (!eh_file_before(file, address, &frame))
        return false;
    struct eh_bytes fde = eh_file_begin(file, frame, fde_bytes);
    uint64_t cie_address = eh_fde_cie(&fde, frame);
    if (!cie_address)
        return false;
    struct eh_bytes bytes = eh_file_begin(file, cie_address, cie_bytes);
    if (!eh_cie_read(&bytes, &cie) || !eh_fde_read(&fde, frame, &cie, &begin, &end) ||
            address < begin || address >= end)
        return false;
    *ret_begin = begin;
    *ret_end = end;
    return true;
}
