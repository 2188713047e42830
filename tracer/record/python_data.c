// SPDX-License-Identifier: Apache-2.0
// Where an interpreter keeps its static data. The bounds come from the file's program headers: in /proc/PID/maps a
// bss may have grown together with whatever was mapped behind it.
#include "tracer/record/python_data.h"

#include <elf.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/proc.h"
#include "common/target_file.h"

enum { PYTHON_DATA_SEGMENTS_MAX = 64 };

// base: where the begin of the file is mapped.
static void python_data_add(struct python_data *data, int fd, uint64_t base)
{
    Elf64_Ehdr head;
    Elf64_Phdr segments[PYTHON_DATA_SEGMENTS_MAX];
    bool ok = fd >= 0 && pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head &&
              memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && head.e_ident[EI_CLASS] == ELFCLASS64 &&
              head.e_phentsize == sizeof *segments && head.e_phnum <= PYTHON_DATA_SEGMENTS_MAX;
    ssize_t size = ok ? (ssize_t)(head.e_phnum * sizeof *segments) : 0;
    ok = ok && pread(fd, segments, (size_t)size, (off_t)head.e_phoff) == size;
    if (fd >= 0)
        close(fd);
    uint64_t bias = 0;
    bool first = true;
    for (int i = 0; ok && i < head.e_phnum && data->count < PYTHON_DATA_MAX; i++) {
        if (segments[i].p_type != PT_LOAD)
            continue;
        if (first && head.e_type == ET_DYN)
            bias = base - (segments[i].p_vaddr - segments[i].p_offset);
        first = false;
        if (!(segments[i].p_flags & PF_W))
            continue;
        data->ranges[data->count].begin = bias + segments[i].p_vaddr;
        data->ranges[data->count++].end = bias + segments[i].p_vaddr + segments[i].p_memsz;
    }
}

void python_data_find(uint32_t tgid, struct python_data *ret)
{
    char dir[64];
    struct proc_maps maps;
    struct proc_mapping one;
    *ret = (struct python_data){0};
    snprintf(dir, sizeof dir, "/proc/%u", tgid);
    if (proc_maps_open(dir, &maps))
        return;
    while (proc_maps_next(&maps, &one)) {
        const char *base = one.offset ? NULL : strrchr(one.path, '/');
        if (base && (strncmp(base + 1, "python", 6) == 0 || strncmp(base + 1, "libpython", 9) == 0))
            python_data_add(ret, target_file_open_mapped("/proc", (pid_t)tgid, one.begin, one.end, one.path), one.begin);
    }
    proc_maps_close(&maps);
}

bool python_data_holds(const struct python_data *data, uint64_t address)
{
    for (size_t i = 0; i < data->count; i++)
        if (address >= data->ranges[i].begin && address < data->ranges[i].end)
            return true;
    return false;
}
