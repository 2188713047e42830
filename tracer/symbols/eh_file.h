// SPDX-License-Identifier: Apache-2.0
// Where an ELF file keeps its unwind information: .eh_frame, and the sorted table of its entries in
// .eh_frame_hdr, both found by program headers alone. Read with plain reads: a file that shrinks
// meanwhile gives short reads, never SIGBUS. Every size and address of the file is doubted: it
// belongs to the traced process. Who reads much of it reads it in blocks, which take 1 MB; to find
// one function (eh_file_function) takes a dozen small reads and no memory.
#ifndef UPGATE_TRACER_SYMBOLS_EH_FILE_H
#define UPGATE_TRACER_SYMBOLS_EH_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    EH_LOADS_MAX = 16,
    EH_BLOCK_BYTES = 16384,
    EH_RECORD_MAX = 16384, // the largest of OpenBLAS has 6,000 bytes
    EH_BLOCKS = 32,        // 1 MB: linkers put what templates make in another order than their code
    EH_READS_MAX = 8192,   // for one table; libtorch_cpu.so's worst takes 1,000
};

struct eh_load {
    uint64_t address, bytes, offset;
};

struct eh_block { // of the file, by its offset
    uint64_t offset;
    size_t bytes;                               // 0: empty
    uint8_t at[EH_BLOCK_BYTES + EH_RECORD_MAX]; // what begins in a block lies in it
};

struct eh_file {      // eh_file_open, and eh_file_close also when that failed
    int fd;           // the caller's
    uint16_t machine; // EM_X86_64 or EM_AARCH64
    struct eh_load loads[EH_LOADS_MAX];
    uint32_t load_count, reads;
    uint64_t head_address, table_offset; // of .eh_frame_hdr, and of its table
    uint32_t count;                      // entries
    struct eh_block *blocks;             // NULL until something is read in blocks
};

// 0; -ENOEXEC: no ELF file of x86-64 or arm64; -ENODATA: it has no table that is understood.
int eh_file_open(int fd, struct eh_file *ret);
void eh_file_close(struct eh_file *file); // not fd
// Where the code of entry i begins, and where its description is.
bool eh_file_entry(struct eh_file *file, uint32_t i, uint64_t *ret_code, uint64_t *ret_frame);
// The first entry whose code begins behind the address.
uint32_t eh_file_behind(struct eh_file *file, uint64_t address);
// All bytes of the record at that address without its length, valid until the next call; NULL: not
// there, or too large.
const uint8_t *eh_file_record(struct eh_file *file, uint64_t address, size_t *ret_bytes);
// The function whose code covers an address, by the entry before it and the length that its
// description gives: [*ret_begin, *ret_end). False: no function is known there. What compilers move
// out of a function (NAME.cold) is one of its own.
bool eh_file_function(
        const struct eh_file *file, uint64_t address, uint64_t *ret_begin, uint64_t *ret_end);

#endif
