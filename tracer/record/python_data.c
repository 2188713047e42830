// SPDX-License-Identifier: Apache-2.0
// Where an interpreter keeps its static data. The bounds come from the file's program headers: in
// /proc/PID/maps a bss may have grown together with whatever was mapped behind it.
#include "tracer/record/python_data.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/elf.h"
#include "common/proc.h"
#include "common/target/file.h"

// base: where the begin of the file is mapped.
static void python_data_add(struct python_data *data, int fd, uint64_t base)
{
    struct elf_file file;
    Elf64_Phdr segment;
    uint64_t bias = 0;
    bool first = true, ok = fd >= 0 && !elf_file_open(fd, &file);
    for (uint32_t i = 0; ok && data->count < PYTHON_DATA_MAX && !elf_segment(&file, i, &segment);
            i++) {
        if (segment.p_type != PT_LOAD)
            continue;
        if (first && file.header.e_type == ET_DYN)
            bias = base - (segment.p_vaddr - segment.p_offset);
        first = false;
        if (!(segment.p_flags & PF_W))
            continue;
        data->ranges[data->count].begin = bias + segment.p_vaddr;
        data->ranges[data->count++].end = bias + segment.p_vaddr + segment.p_memsz;
    }
    if (fd >= 0)
        close(fd);
}

int python_data_find(uint32_t tgid, struct python_data *ret)
{
    char dir[64];
    struct proc_maps maps;
    struct proc_mapping one;
    *ret = (struct python_data){0};
    snprintf(dir, sizeof dir, "/proc/%u", tgid);
    int code = proc_maps_ask(dir, &maps);
    if (code)
        return code;
    while (proc_maps_next(&maps, &one)) {
        const char *base = one.offset ? NULL : strrchr(one.path, '/');
        if (base && (strncmp(base + 1, "python", 6) == 0 || strncmp(base + 1, "libpython", 9) == 0))
            python_data_add(ret,
                    target_file_open_mapped(
                            "/proc", (pid_t)tgid, one.begin, one.end, one.path, one.device),
                    one.begin);
    }
    return proc_maps_close(&maps);
}

bool python_data_holds(const struct python_data *data, uint64_t address)
{
    for (size_t i = 0; i < data->count; i++)
        if (address >= data->ranges[i].begin && address < data->ranges[i].end)
            return true;
    return false;
}
