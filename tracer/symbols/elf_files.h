// SPDX-License-Identifier: Apache-2.0
// The ELF files that processes have mapped, each once, whoever maps it: found by device, inode,
// modification time and size. Bounded in open files and in memory; the least recently used goes.
#ifndef UPGATE_TRACER_SYMBOLS_ELF_FILES_H
#define UPGATE_TRACER_SYMBOLS_ELF_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "tracer/symbols/debug_file.h"
#include "tracer/symbols/eh_file.h"
#include "tracer/symbols/elf_table.h"
#include "tracer/symbols/names.h"
#include "tracer/symbols/symbols.h"

// A slot may be reused for another file: a reference knows by the generation. {0} is no file.
struct file_ref {
    uint32_t slot, generation;
};

struct symbol_file {
    uint64_t device, inode, bytes;
    int64_t changed_ns;
    uint32_t generation; // 0: the slot is free
    bool refused, loaded;
    int fd; // -1 if refused
    struct elf_image image;
    struct elf_table table;
    struct eh_file *unwind; // where its functions begin and end; NULL: not asked for yet
    uint64_t function_begin, function_end; // the last one of them
    const char *module, *build_id;         // interned; build_id may be NULL
    char *path;
    uint64_t used; // a counter, not a time
};

struct elf_files {
    struct symbol_file *slots;
    uint32_t files_max, generation;
    uint64_t used, bytes_max;
    int64_t swept_ns; // when deleted files that nobody asked for were let go, and `used` then
    uint64_t swept_used;
    const char *proc, *debug_path, *cache_path; // as struct debug_search
    uint32_t debug_silent;                      // the same
    struct names *names;
    struct symbols_stats *stats; // bytes_tables is the budget, shared with perf maps and processes
};

void elf_files_init(struct elf_files *files, uint32_t files_max);
// The file open at fd, known before or not; fd is taken over. `path` is what the process calls it.
// False: not a regular file. A file that is not ELF is remembered as refused.
bool elf_files_adopt(struct elf_files *files, int fd, const char *path, struct file_ref *ret);
// The file with a build-id (interned) that a process calls by that path, if it is known: then it
// need not be opened.
bool elf_files_known_as(const struct elf_files *files, const char *build_id, const char *path,
        struct file_ref *ret);
// One whose descriptor we hold, which is why its inode can be no other's; unchanged since. What
// maps say is what stat says but where they differ (overlayfs of older kernels, btrfs): then it is
// not found.
bool elf_files_known_by(
        const struct elf_files *files, uint64_t device, uint64_t inode, struct file_ref *ret);
// NULL: thrown out in between; adopt it again.
struct symbol_file *elf_files_get(struct elf_files *files, struct file_ref ref);
// Build the symbol table if it is not there. `path` is what the process calls it, in whose root
// debug files are looked for; tgid 0: in none.
void elf_files_load(
        struct elf_files *files, struct symbol_file *file, pid_t tgid, const char *path);
// The function around an address of the file, by its unwind information: where it begins and ends,
// though nobody knows what it is called. False: not known.
bool elf_files_function(
        struct symbol_file *file, uint64_t address, uint64_t *ret_begin, uint64_t *ret_end);
// Drop tables but that of keep, least recently used first, so that so many bytes more fit into the
// budget.
void elf_files_make_room(struct elf_files *files, uint64_t bytes, const struct symbol_file *keep);
uint64_t elf_files_open_count(const struct elf_files *files);
void elf_files_free(struct elf_files *files);

#endif
