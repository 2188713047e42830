// SPDX-License-Identifier: Apache-2.0
// What is told of a group: the stacks of its best witness, the culprit's function, what was waited
// for, the chain, and why the confidence is below 1. All strings lie in the trace's arena.
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/stalls/group.h"

// The functions that say best what a culprit did, the first that is on its stack.
static const char *const describe_functions[CAUSE_COUNT] = {
        [CAUSE_SMAPS_READ] =
                "show_smaps_rollup show_smap show_numa_map pagemap_read clear_refs_write "
                "smap_gather_stats smaps_pte_range",
        [CAUSE_FORK_LARGE] = "dup_mmap copy_page_range copy_pte_range",
        [CAUSE_MUNMAP_LARGE] =
                "__vm_munmap do_vmi_munmap do_vmi_align_munmap unmap_region unmap_vmas zap_pte_range",
        [CAUSE_PAGE_POPULATE] = "do_mlock __mm_populate populate_vma_page_range pin_user_pages "
                                "pin_user_pages_fast faultin_page",
        [CAUSE_NUMA_BALANCING] = "task_numa_work change_prot_numa do_numa_page",
        [CAUSE_COMPACTION] = "compact_node compact_zone try_to_compact_pages",
        [CAUSE_PAGE_MIGRATION] = "compact_node compact_zone migrate_pages",
        [CAUSE_KHUGEPAGED] =
                "collapse_huge_page hpage_collapse_scan_pmd khugepaged_scan_mm_slot khugepaged",
        [CAUSE_MADVISE_STORM] = "do_madvise madvise_vma_behavior zap_page_range_single",
        [CAUSE_TLB_SHOOTDOWN] =
                "do_mprotect_pkey smp_call_function_many_cond flush_tlb_mm_range change_protection",
        [CAUSE_RWSEM_INODE] = "ext4_buffered_write_iter generic_perform_write ext4_file_write_iter "
                              "do_writepages up_write",
        [CAUSE_SIGSTOP] =
                "__x64_sys_kill __arm64_sys_kill do_tkill kill_pid_info do_send_sig_info prepare_signal",
        [CAUSE_CGROUP_FREEZER] =
                "freezer_write cgroup_freeze_write cgroup_do_freeze unfreeze_cgroup __thaw_task",
        [CAUSE_PTRACE] =
                "__x64_sys_ptrace __arm64_sys_ptrace ptrace_attach ptrace_request ptrace_resume __ptrace_detach",
        [CAUSE_PIPE_WRITE] = "anon_pipe_read pipe_read n_tty_read",
        [CAUSE_ZOMBIE_MEMCG] =
                "mem_cgroup_nr_lru_pages memcg_stat_format memory_stat_show mem_cgroup_iter",
        [CAUSE_RSTAT_LOCK] = "cgroup_rstat_flush css_rstat_flush mem_cgroup_flush_stats",
        [CAUSE_FUSE_HANG] = "fuse_dev_do_write fuse_dev_write",
};

struct stall_task describe_task(const struct trace *trace, uint32_t thread)
{
    static const char *const kinds[] = {"target", "other", "kernel", "idle"};
    if (thread == TRACE_NONE)
        return (struct stall_task){0};
    const struct trace_thread *row = &trace->threads[thread];
    const struct trace_process *process = &trace->processes[row->process];
    return (struct stall_task){true, row->id, process->tgid, row->tid, row->comm, process->comm,
            process->cmdline, kinds[process->kind]};
}

struct stall_stack describe_stack(const struct trace *trace, uint32_t stack)
{
    const struct trace_stack *row = &trace->stacks[stack];
    struct stall_stack ret = {
            .frames = arena_alloc(trace->arena, row->count + 1, sizeof *ret.frames),
            .inside = arena_alloc(trace->arena, row->count + 1, sizeof *ret.inside),
            .count = row->count};
    for (uint32_t i = 0; i < row->count; i++) {
        const struct trace_frame *frame = &trace->frames[trace->stack_frames[row->first + i]];
        const char *file = frame->module ? string_base_name(frame->module) : NULL;
        if (frame->kind == 'p' && file && frame->line)
            ret.frames[i] = arena_print(trace->arena, "%s (%s:%d)", frame->name, file, frame->line);
        else
            ret.frames[i] = frame->name;
        ret.inside[i] = trace_inside(trace, stack, i);
    }
    return ret;
}

static const char *describe_find(const struct trace *trace, uint32_t stack, const char *names)
{
    const struct trace_stack *row = &trace->stacks[stack];
    for (const char *at = names; *at;) {
        size_t len = strcspn(at, " ");
        for (uint32_t i = 0; i < row->count; i++) {
            const char *name = trace->frames[trace->stack_frames[row->first + i]].name;
            if (strlen(name) == len && !memcmp(name, at, len))
                return name;
        }
        at += len + (at[len] == ' ');
    }
    return NULL;
}

static int describe_place(const char *names, const char *found)
{
    const char *at = strstr(names, found);
    return at ? (int)(at - names) : 1 << 20;
}

// The culprit's function and the stack it was found on.
static void describe_function(
        const struct trace *trace, const struct group *group, struct stall *stall)
{
    enum { LOOK_MAX = 5000 };
    const char *names = describe_functions[group->cause];
    uint32_t stack = 0;
    for (size_t i = 0; i < group->part_count && i < LOOK_MAX; i++) {
        uint32_t one = group->parts[i]->culprit_stack;
        if (!one || group->parts[i]->culprit == TRACE_NONE)
            continue;
        stack = stack ? stack : one;
        const char *found = names ? describe_find(trace, one, names) : NULL;
        if (found &&
                (!stall->culprit_function ||
                        describe_place(names, found) <
                                describe_place(names, stall->culprit_function))) {
            stall->culprit_function = found;
            stack = one;
        }
    }
    if (!stack)
        return;
    stall->culprit_kernel = describe_stack(trace, stack);
    static const char *const noise[] = {"schedule", "__schedule", "io_schedule", "schedule_timeout",
            "schedule_preempt_disabled", "__wake_up_common", "__wake_up", "wake_up_q",
            "try_to_wake_up", "wake_up_process"};
    for (size_t i = 0; i < stall->culprit_kernel.count && !stall->culprit_function; i++) {
        bool skip = false;
        for (size_t k = 0; k < sizeof noise / sizeof noise[0]; k++)
            skip |= !strcmp(stall->culprit_kernel.frames[i], noise[k]);
        if (!skip)
            stall->culprit_function = stall->culprit_kernel.frames[i];
    }
}

// The part that shows most: of the worst thread, with a stack and the culprit, the longest.
static const struct part *describe_best(const struct trace *trace, const struct group *group)
{
    const struct part *best = NULL;
    double best_score = -1;
    for (size_t i = 0; i < group->part_count; i++) {
        const struct part *part = group->parts[i];
        double score = (double)(part->end - part->begin);
        bool stack = part->gap != TRACE_NONE ? trace->gaps[part->gap].kernel != 0
                                             : part->sample != TRACE_NONE;
        score *= (part->thread == group->worst_thread ? 8 : 1) * (stack ? 4 : 1) *
                (part->culprit == group->culprit_thread ? 4 : 1) * (part->hop_count > 1 ? 2 : 1);
        if (score > best_score) {
            best_score = score;
            best = part;
        }
    }
    return best;
}

static int describe_cpu(const struct trace *trace, const struct trace_gap *gap)
{
    return gap && gap->cpu_in >= 0 ? trace_cpu_of(trace, gap) : -1;
}

// NULL: the system call was of no file, pipe or socket that is known.
static const char *describe_target(const struct trace *trace, const struct trace_gap *gap)
{
    return gap && *trace->texts[gap->target] ? trace->texts[gap->target] : NULL;
}

static struct stall_link describe_link(
        const struct trace *trace, uint32_t from, uint32_t to, uint8_t via, uint32_t gap_index)
{
    const struct trace_gap *gap = gap_index != TRACE_NONE ? &trace->gaps[gap_index] : NULL;
    bool named = via == VIA_PIPE || via == VIA_SOCKET || via == VIA_FILE;
    return (struct stall_link){.from = describe_task(trace, from),
            .to = describe_task(trace, to),
            .via = (enum stall_via)via,
            .name = named ? describe_target(trace, gap) : NULL,
            .cpu = via == VIA_CPU ? describe_cpu(trace, gap) : -1};
}

// Thousands of dead cgroups: as they were counted last.
static struct stall_resource describe_cgroups(const struct trace *trace)
{
    struct stall_resource ret = {.kind = STALL_RESOURCE_CGROUPS, .cgroups = -1, .directories = -1};
    for (size_t i = 0; i < trace->counter_count; i++) {
        if (strstr(trace->counters[i].name, "num_cgroups"))
            ret.cgroups = trace->counters[i].value;
        else if (strstr(trace->counters[i].name, "directories"))
            ret.directories = trace->counters[i].value;
    }
    return ret.cgroups < 0 ? (struct stall_resource){0} : ret;
}

static struct stall_resource describe_resource(
        const struct trace *trace, const struct group *group, const struct part *part)
{
    const struct trace_gap *gap = part->gap != TRACE_NONE ? &trace->gaps[part->gap] : NULL;
    const char *target = describe_target(trace, gap);
    if (group->cause == CAUSE_ZOMBIE_MEMCG)
        return describe_cgroups(trace);
    if (group->cause == CAUSE_CPU_CONTENTION && group->culprit == TRACE_NONE &&
            group->rival != TRACE_NONE) {
        const struct trace_process *rival = &trace->processes[trace->threads[group->rival].process];
        return (struct stall_resource){
                .kind = STALL_RESOURCE_CPU_TIME, .name = rival->comm, .pid = rival->tgid};
    }
    switch (part->via) {
    case VIA_MMAP_LOCK:
        return (struct stall_resource){.kind = STALL_RESOURCE_MMAP_LOCK,
                .pid = trace->processes[trace->threads[part->thread].process].tgid};
    case VIA_KERNEL_LOCK:
        if (target)
            break;
        return (struct stall_resource){.kind = STALL_RESOURCE_KERNEL_LOCK,
                .address = gap ? (uint64_t)gap->lock_address : 0};
    case VIA_MUTEX:
        return (struct stall_resource){.kind = STALL_RESOURCE_MUTEX,
                .address =
                        !gap ? 0 : (uint64_t)(gap->lock_address ? gap->lock_address : gap->arg0)};
    case VIA_GIL:
        return (struct stall_resource){.kind = STALL_RESOURCE_GIL};
    case VIA_CPU:
        return (struct stall_resource){.kind = STALL_RESOURCE_CPU, .cpu = describe_cpu(trace, gap)};
    default:
        break;
    }
    return target ? (struct stall_resource){.kind = STALL_RESOURCE_NAMED, .name = target}
                  : (struct stall_resource){0};
}

static void describe_chain(const struct work *work, const struct group *group,
        const struct part *part, struct stall *stall)
{
    const struct trace *trace = work->trace;
    uint32_t last = part->thread;
    for (size_t i = 0; i < part->hop_count && stall->chain_count < STALL_CHAIN_MAX; i++) {
        const struct part_hop *hop = &work->hops[part->hop_first + i];
        stall->chain[stall->chain_count++] =
                describe_link(trace, hop->from, hop->to, hop->via, hop->gap);
        last = hop->to;
        if (hop->to == part->culprit)
            return;
    }
    if (part->culprit == TRACE_NONE || part->culprit == last ||
            stall->chain_count == STALL_CHAIN_MAX)
        return;
    struct stall_link *link = &stall->chain[stall->chain_count++];
    *link = describe_link(trace, last, part->culprit, part->hop_count ? VIA_CAUSE : part->via,
            part->hop_count ? TRACE_NONE : part->gap);
    if (part->hop_count)
        link->name = causes_row(group->cause)->id;
}

static enum stall_meanwhile describe_meanwhile(const struct group *group)
{
    return !gpu_waits_is(group->cause)                  ? STALL_MEANWHILE_NO_GPU
            : !(group->notes & STALL_DOUBT_GPU_UNKNOWN) ? STALL_MEANWHILE_IDLE
            : group->notes & NOTE_GPU_KNOWN             ? STALL_MEANWHILE_PARTLY
                                                        : STALL_MEANWHILE_UNKNOWN;
}

static unsigned describe_doubts(const struct trace *trace, const struct group *group)
{
    bool sampled = trace->tick_ns || group->culprit == TRACE_NONE;
    return (group->notes & ~(unsigned)NOTE_GPU_KNOWN) | (sampled ? 0 : STALL_DOUBT_NO_SAMPLES);
}

static bool describe_own(const struct trace *trace, const struct group *group)
{
    return group->culprit != TRACE_NONE && trace->processes[group->culprit].kind == TRACE_TARGET &&
            group->worst_thread != TRACE_NONE &&
            trace->threads[group->worst_thread].process == group->culprit;
}

static void describe_victim(const struct trace *trace, const struct part *part, struct stall *stall)
{
    uint32_t kernel = 0, user = 0, python = 0;
    if (part->gap != TRACE_NONE) {
        kernel = trace->gaps[part->gap].kernel;
        user = trace->gaps[part->gap].user;
        python = trace->gaps[part->gap].python;
    } else if (part->sample != TRACE_NONE) {
        kernel = trace->samples[part->sample].kernel;
        user = trace->samples[part->sample].user;
        python = trace->samples[part->sample].python;
    }
    stall->victim_kernel = describe_stack(trace, kernel);
    stall->victim_user = describe_stack(trace, user);
    stall->victim_python = describe_stack(trace, python);
}

void describe_group(const struct work *work, const struct group *group, struct stall *ret_stall)
{
    const struct trace *trace = work->trace;
    const struct stall_cause *cause = causes_row(group->cause);
    const struct part *best = describe_best(trace, group);
    *ret_stall = (struct stall){
            .cause = cause->id,
            .title = cause->title,
            .total_ns = group->total_ns,
            .max_ns = group->max_ns,
            .count = group->count,
            .first_ns = group->spans[0].begin,
            .last_ns = group->spans[group->span_count - 1].end,
            .has_period = group->has_period,
            .period_ns = group->period_ns,
            .blocked_ns = group->split_ns[SPLIT_BLOCKED],
            .run_queue_ns = group->split_ns[SPLIT_RUN_QUEUE],
            .preempted_ns = group->split_ns[SPLIT_PREEMPTED],
            .on_cpu_ns = group->split_ns[SPLIT_ON_CPU],
            .weight = group->weight,
            .confidence = group->confidence,
            .doubts = describe_doubts(trace, group),
            .meanwhile = describe_meanwhile(group),
            .victim = describe_task(trace, group->worst_thread),
            .victim_threads = group->threads,
            .culprit = describe_task(
                    trace, group->culprit == TRACE_NONE ? TRACE_NONE : group->culprit_thread),
            .culprit_own = describe_own(trace, group),
            .resource = describe_resource(trace, group, best),
            .has_steps = trace->step_count > 0,
            .steps_hit = group->steps_hit,
            .steps_total = trace->step_count,
    };
    describe_victim(trace, best, ret_stall);
    if (ret_stall->culprit.known)
        describe_function(trace, group, ret_stall);
    describe_chain(work, group, best, ret_stall);
}
