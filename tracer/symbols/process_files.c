// SPDX-License-Identifier: Apache-2.0
// The ELF files of what processes have mapped.
#include <errno.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tracer/symbols/proc.h"
#include "tracer/symbols/processes.h"

enum { PROCESSES_VDSO_BYTES_MAX = 1 << 20 };

// The vdso is in no file, but this process has the same one: a copy in a memory file reads like
// any.
static bool processes_adopt_vdso(struct processes *processes, struct mapping *mapping)
{
    const void *vdso = (const void *)(uintptr_t)getauxval(AT_SYSINFO_EHDR);
    uint64_t bytes = mapping->end - mapping->start;
    int fd = vdso && bytes <= PROCESSES_VDSO_BYTES_MAX ? memfd_create("upgate-vdso", MFD_CLOEXEC)
                                                       : -1;
    if (fd < 0)
        return false;
    // write() instead of a copy: it stops at memory that is not there.
    if (write(fd, vdso, bytes) <= 0) {
        close(fd);
        return false;
    }
    mapping->offset = 0;
    return elf_files_adopt(processes->files, fd, "[vdso]", &mapping->file);
}

// Another mapping of any process may hold the vdso already: each copy would be a new file.
static bool processes_share_vdso(struct processes *processes, struct mapping *mapping)
{
    for (uint32_t i = 0; i < processes->files->files_max; i++) {
        const struct symbol_file *one = &processes->files->slots[i];
        if (one->generation && one->path && one->path[0] == '[') {
            mapping->file = (struct file_ref){i, one->generation};
            mapping->offset = 0;
            return true;
        }
    }
    return processes_adopt_vdso(processes, mapping);
}

static bool processes_adopt_file(
        struct processes *processes, const struct symbol_process *process, struct mapping *mapping)
{
    int fd = proc_open_mapping(
            processes->proc, process->tgid, process->ended, process->parent, mapping);
    return fd >= 0 && elf_files_adopt(processes->files, fd, mapping->path, &mapping->file);
}

struct symbol_file *processes_file(
        struct processes *processes, struct symbol_process *process, struct mapping *mapping)
{
    struct symbol_file *file = elf_files_get(processes->files, mapping->file);
    if (!file && !mapping->unopenable) {
        bool good = false;
        errno = 0;
        if (mapping->kind == MAPPING_VDSO) {
            good = processes_share_vdso(processes, mapping);
        } else {
            good = elf_files_known_as(
                           processes->files, mapping->build_id, mapping->path, &mapping->file) ||
                    (!mapping->build_id &&
                            elf_files_known_by(processes->files, mapping->device, mapping->inode,
                                    &mapping->file)) ||
                    processes_adopt_file(processes, process, mapping);
        }
        // a file system that does not answer may do so later
        mapping->unopenable = !good && errno != EAGAIN;
        processes->stats->files_refused += mapping->unopenable;
        file = good ? elf_files_get(processes->files, mapping->file) : NULL;
    }
    return file && !file->refused ? file : NULL;
}
