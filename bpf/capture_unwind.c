// SPDX-License-Identifier: Apache-2.0
// What walks over user stacks need, into the maps of the programs: unwind tables, and where the
// Python of a process is. What is in them is the business of tracer/unwind and tracer/pystack, and
// which process needs what the recorder's.
#include <bpf/bpf.h>
#include <errno.h>

#include "bpf/capture_inside.h"

bool capture_unwinds(const struct capture *capture)
{
    return !capture->lost[SOURCE_STACKS];
}

static int unwind_update(struct capture *capture, const char *map, uint32_t key, const void *value)
{
    return bpf_map_update_elem(capture_map(capture, map), &key, value, BPF_ANY) ? -errno : 0;
}

int capture_unwind_slab(struct capture *capture, uint32_t slab, const uint32_t *words)
{
    return unwind_update(capture, "unwind_slabs", slab, words);
}

int capture_unwind_rule(struct capture *capture, uint32_t number, const struct ug_unwind_rule *rule)
{
    return unwind_update(capture, "unwind_rules", number, rule);
}

static int tell_process(struct capture *capture, const char *map, pid_t tgid, const void *value)
{
    uint32_t key = (uint32_t)tgid;

    if (value)
        return unwind_update(capture, map, key, value);
    return bpf_map_delete_elem(capture_map(capture, map), &key) ? -errno : 0;
}

int capture_unwind_process(
        struct capture *capture, pid_t tgid, const struct ug_unwind_process *process)
{
    return tell_process(capture, "unwind_processes", tgid, process);
}

int capture_python_process(
        struct capture *capture, pid_t tgid, const struct ug_python_process *python)
{
    return tell_process(capture, "python_processes", tgid, python);
}
