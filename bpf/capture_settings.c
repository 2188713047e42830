// SPDX-License-Identifier: Apache-2.0
// What the programs must know of the running kernel before they are loaded, as settings: how many
// arguments its tracepoints have, where each CPU keeps preempt_count, which code spins for locks,
// how long a jiffy is. Programs whose tracepoints it lacks are switched off. Reads the kernel's BTF
// and /proc/kallsyms.
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bpf/capture_inside.h"
#include "bpf/python.h"
#include "bpf/unwind.h"

#include "bpf/capture.skel.h"

// Arguments of a tracepoint without the first, which is libbpf's business; -1: the kernel lacks it.
static int tracepoint_arguments(const struct btf *btf, const char *tracepoint)
{
    char name[128];
    const struct btf_type *type;
    int id;

    snprintf(name, sizeof(name), "btf_trace_%s", tracepoint);
    id = btf__find_by_name_kind(btf, name, BTF_KIND_TYPEDEF);
    type = id > 0 ? btf__type_by_id(btf, id) : NULL;
    type = type ? btf__type_by_id(btf, type->type) : NULL; // pointer
    type = type && btf_is_ptr(type) ? btf__type_by_id(btf, type->type) : NULL;
    return type && btf_is_func_proto(type) ? btf_vlen(type) - 1 : -1;
}

// The module that may have a tracepoint, where the kernel itself has not; NULL: none.
static const char *module_of(const char *tracepoint)
{
    return strncmp(tracepoint, "jbd2_", 5) ? NULL : "jbd2";
}

// Why a tracepoint of a module cannot be used; NULL: it can. libbpf looks for it among the BTF that
// the kernel has loaded, which takes CAP_SYS_ADMIN.
static const char *module_trouble(const struct btf *btf, const char *module, const char *tracepoint)
{
    struct btf *own = btf__load_module_btf(module, (struct btf *)btf);
    bool has = own && tracepoint_arguments(own, tracepoint) >= 0;
    uint32_t id;

    btf__free(own);
    if (!has)
        return "it is not loaded";
    return bpf_btf_get_next_id(0, &id) ? "its tracepoints take CAP_SYS_ADMIN" : NULL;
}

static void switch_off_missing(struct capture *capture, const struct btf *btf)
{
    struct bpf_program *program;

    bpf_object__for_each_program(program, capture->skeleton->obj)
    {
        const char *section = bpf_program__section_name(program);
        const char *name = bpf_program__name(program), *module, *trouble;

        if (strncmp(section, "tp_btf/", 7) || tracepoint_arguments(btf, section + 7) >= 0)
            continue;
        module = module_of(section + 7);
        trouble = module ? module_trouble(btf, module, section + 7) : NULL;
        if (module && !trouble)
            continue;
        bpf_program__set_autoload(program, false);
        if (module)
            capture_lack(capture, source_of_program(name), "no tracepoints of the module %s: %s",
                    module, trouble);
        else
            capture_lack(capture, source_of_program(name), "no tracepoint %s on this kernel",
                    section + 7);
    }
    if (btf__find_by_name_kind(btf, "bpf_task_from_pid", BTF_KIND_FUNC) <= 0)
        capture_lack(capture, SOURCE_OWNERS, "no bpf_task_from_pid before Linux 6.2");
}

#if defined(__aarch64__)
// A field of the running task: nothing has to be found but the field.
static void find_preempt_count(struct capture *capture, const struct btf *btf)
{
    if (btf__find_by_name_kind(btf, "thread_info", BTF_KIND_STRUCT) <= 0) {
        capture_lack(
                capture, SOURCE_CONTEXT, "this kernel's BTF does not tell where preempt_count is");
        return;
    }
    capture->skeleton->rodata->have_preempt_count = true;
}
#else
// Where a variable lies in the memory of each CPU; -1: not known.
static int64_t percpu_offset(const struct btf *btf, const char *variable)
{
    int id = btf__find_by_name_kind(btf, ".data..percpu", BTF_KIND_DATASEC);
    const struct btf_type *section = id > 0 ? btf__type_by_id(btf, id) : NULL;
    const struct btf_var_secinfo *info = section ? btf_var_secinfos(section) : NULL;

    for (int i = 0; section && i < btf_vlen(section); i++) {
        const struct btf_type *type = btf__type_by_id(btf, info[i].type);

        if (type && !strcmp(btf__name_by_offset(btf, type->name_off), variable))
            return info[i].offset;
    }
    return -1;
}

// Linux 6.2 to 6.14 keep it in struct pcpu_hot.
static int64_t hot_member_offset(const struct btf *btf, const char *member)
{
    int id = btf__find_by_name_kind(btf, "pcpu_hot", BTF_KIND_STRUCT);
    int64_t hot = percpu_offset(btf, "pcpu_hot");
    const struct btf_type *type = id > 0 ? btf__type_by_id(btf, id) : NULL;

    if (hot < 0 || !type)
        return -1;
    for (int depth = 0; depth < 4 && type;
            depth++) { // the fields lie in an anonymous union and struct
        const struct btf_member *members = btf_members(type);
        const struct btf_type *inner = NULL;

        for (int i = 0; i < btf_vlen(type); i++) {
            if (!strcmp(btf__name_by_offset(btf, members[i].name_off), member))
                return hot + btf_member_bit_offset(type, i) / 8;
            if (!members[i].name_off && !inner)
                inner = btf__type_by_id(btf, members[i].type);
        }
        type = inner && btf_is_composite(inner) ? inner : NULL;
    }
    return -1;
}

static void find_preempt_count(struct capture *capture, const struct btf *btf)
{
    int64_t queue = percpu_offset(btf, "runqueues"), count = percpu_offset(btf, "__preempt_count");

    if (count < 0)
        count = hot_member_offset(btf, "preempt_count");
    if (queue < 0 || count < 0) {
        capture_lack(
                capture, SOURCE_CONTEXT, "this kernel's BTF does not tell where preempt_count is");
        return;
    }
    capture->skeleton->rodata->have_preempt_count = true;
    capture->skeleton->rodata->preempt_count_delta = count - queue;
}
#endif

static const char *const spinners[4] = {
        "rwsem_spin_on_owner", "osq_lock", "mutex_spin_on_owner", "rwsem_optimistic_spin"};

// A symbol and where the next one begins: its code, if it is one that we want.
static void take_symbol(struct capture *capture, const char *name, uint64_t begin, uint64_t end)
{
    if (!strncmp(name, "__bpf_trace_", 12) || !strncmp(name, "__traceiter_", 12))
        capture_add_tracing(capture, begin, end);
    for (int i = 0; i < 4; i++)
        if (!strcmp(name, spinners[i])) {
            capture->skeleton->rodata->spin_begin[i] = begin;
            capture->skeleton->rodata->spin_end[i] = end;
        }
}

// Code ranges out of /proc/kallsyms: of what spins for a sleeping lock, and of the tracepoints.
static void find_code(struct capture *capture)
{
    FILE *file = fopen("/proc/kallsyms", "re");
    char line[512], name[256] = "";
    uint64_t begin = 0;

    capture->tracing_count = 0;
    while (file && fgets(line, sizeof(line), file)) {
        // 200,000 lines on a distribution's kernel: those that cannot be it are passed over quickly
        bool wanted = strstr(line, "spin") || strstr(line, " osq_lock") ||
                strstr(line, " __bpf_trace_") || strstr(line, " __traceiter_");
        uint64_t address;

        if (!begin && !wanted)
            continue;
        address = strtoull(line, NULL, 16);
        if (begin && address > begin) {
            take_symbol(capture, name, begin, address);
            begin = 0;
        }
        if (wanted && address && !begin && sscanf(line, "%*x %*c %255s", name) == 1)
            begin = address;
    }
    if (file)
        fclose(file);
    capture_sort_tracing(capture);
    if (!capture->tracing_count)
        capture_say(capture,
                "spinning: /proc/kallsyms hides the addresses (kernel.kptr_restrict); "
                "spinning for sleeping locks is not recognised");
}

static bool has_helper(const struct btf *btf, const char *name)
{
    int id = btf__find_by_name_kind(btf, "bpf_func_id", BTF_KIND_ENUM);
    const struct btf_type *type = id > 0 ? btf__type_by_id(btf, id) : NULL;

    for (int i = 0; type && i < btf_vlen(type); i++)
        if (!strcmp(btf__name_by_offset(btf, btf_enum(type)[i].name_off), name))
            return true;
    return false;
}

static void set_unwind(struct capture *capture)
{
#if defined(__x86_64__)
    if (!capture->skeleton->rodata->have_loop) { // its verifier would go through each loop: a
                                                 // million instructions, and refused
        capture_lack(capture, SOURCE_STACKS,
                "this kernel lacks bpf_loop (Linux 5.17), by which user stacks are walked");
        return;
    }
    capture->skeleton->rodata->have_unwind = true;
    bpf_map__set_max_entries(capture->skeleton->maps.unwind_slabs, UG_UNWIND_SLABS);
    bpf_map__set_max_entries(capture->skeleton->maps.unwind_processes, capture->processes_max);
    capture->skeleton->rodata->have_python = true;
    bpf_map__set_max_entries(capture->skeleton->maps.python_processes, capture->processes_max);
#else
    capture_lack(capture, SOURCE_STACKS,
            "unwind tables are made for x86-64 only; compilers for arm64 keep frame pointers");
#endif
}

void capture_set_settings(struct capture *capture, const struct btf *btf)
{
    struct capture_bpf__rodata *settings = capture->skeleton->rodata;
    struct timespec tick = {0};
    size_t rare = capture->ring_bytes / 4 < 65536 ? 65536 : capture->ring_bytes / 4;

    settings->threshold_ns = (uint64_t)capture->threshold_ns;
    settings->self_tgid = (uint32_t)getpid();
    settings->follow_children = !capture->no_children;
    settings->skip_own_children = capture->cgroup != NULL;
    settings->miss_switch_in = capture->miss_switch_in;
    settings->sample_period_ns = capture->sample_hz ? 1000000000 / capture->sample_hz : 0;
    settings->wake_bytes = capture->prompt ? 0 : (uint32_t)(capture->ring_bytes / 2);
    settings->wake_pause_ns = capture->prompt ? 200000 : 1000000;
    settings->wake_rare_bytes = (uint32_t)(rare / 2);
    settings->switch_arguments = (uint32_t)tracepoint_arguments(btf, "sched_switch");
    settings->migrate_arguments = (uint32_t)tracepoint_arguments(btf, "mm_migrate_pages");
    settings->dirty_arguments = (uint32_t)tracepoint_arguments(btf, "balance_dirty_pages");
    settings->victim_arguments = (uint32_t)tracepoint_arguments(btf, "mark_victim");
    if (!clock_getres(CLOCK_MONOTONIC_COARSE, &tick) && tick.tv_nsec) // a jiffy
        settings->tick_ns = (uint64_t)tick.tv_nsec;
    settings->keep_threads = capture_is_realtime(btf);
    settings->have_loop = !capture->no_loop && has_helper(btf, "BPF_FUNC_loop");
    if (capture->no_loop) { // nor has such a kernel the kfuncs
        settings->ask_owners = false;
        capture_lack(capture, SOURCE_OWNERS, CAPTURE_NO_OWNERS);
    }
    if (settings->keep_threads)
        bpf_map__set_max_entries(capture->skeleton->maps.threads_kept, CAPTURE_KEPT_MAX);
    bpf_map__set_max_entries(capture->skeleton->maps.ring_flood, (uint32_t)capture->ring_bytes);
    bpf_map__set_max_entries(capture->skeleton->maps.ring_rare, (uint32_t)rare);
    set_unwind(capture);
    find_code(capture);
    if (!capture->sample_hz)
        bpf_program__set_autoload(capture->skeleton->progs.sample_tick, false);
    if (!capture->faults)
        bpf_program__set_autoload(capture->skeleton->progs.fault_tick, false);
    find_preempt_count(capture, btf);
    switch_off_missing(capture, btf);
}
