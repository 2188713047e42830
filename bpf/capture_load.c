// SPDX-License-Identifier: Apache-2.0
// Loading and attaching. A program whose tracepoint this kernel lacks, or which its verifier
// refuses, is switched off and named; only the scheduler's programs and the iterator are a must.
// libbpf's words are kept for the error instead of being printed.
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bpf/capture_inside.h"
#include "common/strings.h"

#include "bpf/capture.skel.h"
#include "common/proc.h"

enum {
    CAP_SYS_ADMIN_BIT = 21,
    CAP_PERFMON_BIT = 38,
    CAP_BPF_BIT = 39,
    LOG_BYTES = 4096,
    CPUS_BYTES = 4096
};

// The inode of the pid namespace that the kernel starts with is part of its interface:
// PROC_PID_INIT_INO.
#define FIRST_PID_SPACE "pid:[4026531836]"

// What libbpf warned of last, and the program that the kernel refused. It has one print function
// for all, which it calls in the thread that asked.
static _Thread_local char libbpf_log[LOG_BYTES];
static _Thread_local char refused_program[64], refused_why[160];

// Of the pages of a verifier: the last line before its statistics.
static void keep_verdict(char *log)
{
    char *end = strstr(log, "\nprocessed "), *begin;

    if (!end)
        return;
    *end = 0;
    begin = strrchr(log, '\n');
    snprintf(refused_why, sizeof(refused_why), "%s", begin ? begin + 1 : log);
}

static int keep_log(enum libbpf_print_level level, const char *fmt, va_list args)
{
    size_t used = strlen(libbpf_log);
    char *line;

    if (level != LIBBPF_WARN || vasprintf(&line, fmt, args) < 0)
        return 0;
    if (strstr(line, "failed to load") || strstr(line, "failed to find kernel BTF"))
        sscanf(line, "libbpf: prog '%63[^']'", refused_program);
    if (strstr(line, "BEGIN PROG LOAD LOG"))
        keep_verdict(line);
    else
        snprintf(libbpf_log + used, sizeof(libbpf_log) - used, "%s", line);
    free(line);
    return 0;
}

void capture_listen(void)
{
    libbpf_set_print(keep_log);
    libbpf_log[0] = refused_program[0] = refused_why[0] = 0;
}

const char *capture_last_words(void)
{
    size_t length = strlen(libbpf_log);
    char *line;

    while (length && libbpf_log[length - 1] == '\n')
        libbpf_log[--length] = 0;
    line = strrchr(libbpf_log, '\n');
    line = line ? line + 1 : libbpf_log;
    return !strncmp(line, "libbpf: ", 8) ? line + 8 : line;
}

static uint64_t effective_capabilities(void)
{
    char text[32];

    return proc_status_read("/proc/self", "CapEff", text, sizeof(text)) ? 0
                                                                        : strtoull(text, NULL, 16);
}

int capture_permitted(struct error *err)
{
    uint64_t caps = effective_capabilities();
    char space[64] = "";
    bool admin = caps >> CAP_SYS_ADMIN_BIT & 1;

    if (!admin && !(caps >> CAP_BPF_BIT & 1))
        return error_set(err, -EPERM,
                "failed to load the BPF programs: not permitted, this process "
                "has not CAP_BPF; run as root, or give the program the capabilities: "
                "setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_sys_resource+ep upgate");
    if (!admin && !(caps >> CAP_PERFMON_BIT & 1))
        return error_set(err, -EPERM,
                "failed to load the BPF programs: not permitted, this process "
                "has CAP_BPF but not CAP_PERFMON; run as root, or add it: "
                "setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_sys_resource+ep upgate");
    if (readlink("/proc/self/ns/pid", space, sizeof(space)) > 0 && strcmp(space, FIRST_PID_SPACE))
        return error_set(err, -ENOTSUP,
                "failed to record: upgate runs in a pid namespace of its own, and the "
                "kernel tells the host's process ids; run it on the host, or in a "
                "container with the host's (docker run --pid=host --privileged)");
    if (access("/sys/kernel/btf/vmlinux", R_OK))
        return error_set(err, -ENOTSUP,
                "failed to load the BPF programs: no '/sys/kernel/btf/vmlinux'; "
                "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y, as distributions since 2021 are");
    return 0;
}

// What earlier tries have taught.
struct lesson {
    struct {
        char program[64];
        char why[160];
        int status;
    } refused[CAPTURE_PROGRAMS_MAX];
    size_t count;
    bool no_owners; // the kfuncs that ask a task by its id were the reason, perhaps
    bool no_unwind; // or the walks over user stacks
};

static void heed(struct capture *capture, const struct lesson *lesson)
{
    for (size_t i = 0; i < lesson->count; i++) {
        const char *name = lesson->refused[i].program;
        struct bpf_program *program =
                bpf_object__find_program_by_name(capture->skeleton->obj, name);

        bpf_program__set_autoload(program, false);
        capture_lack(capture, source_of_program(name), "the kernel refused the program %s: %s (%s)",
                name, strerror(-lesson->refused[i].status), lesson->refused[i].why);
    }
    if (lesson->no_owners) {
        capture->skeleton->rodata->ask_owners = false;
        capture_lack(capture, SOURCE_OWNERS, CAPTURE_NO_OWNERS);
    }
    if (lesson->no_unwind) {
        capture->skeleton->rodata->have_unwind = false;
        capture->skeleton->rodata->have_python = false;
        capture_lack(capture, SOURCE_STACKS, "the kernel refused what walks user stacks");
    }
}

static bool is_must(const char *program)
{
    enum source_id id = source_of_program(program);

    return id == SOURCE_SCHED || id == SOURCE_LOOK || id == SOURCE_COUNT;
}

static bool unwinds(const char *program)
{
    enum source_id id = source_of_program(program);

    return id == SOURCE_SCHED || id == SOURCE_SAMPLES || id == SOURCE_FAULTS;
}

// One try, without the programs that were refused before.
static int load_rest(struct capture *capture, const struct btf *btf, const struct lesson *lesson,
        struct error *err)
{
    int status;

    libbpf_log[0] = refused_program[0] = refused_why[0] = 0;
    capture_forget_missing(capture);
    // Named, the BTF of the kernel is all that libbpf looks at for types that this one lacks (those
    // of PREEMPT_RT). Else it goes through those of the modules (jbd2's for the journal's), which
    // takes CAP_SYS_ADMIN.
    bool admin = effective_capabilities() >> CAP_SYS_ADMIN_BIT & 1;
    LIBBPF_OPTS(bpf_object_open_opts, options,
            .btf_custom_path = admin ? NULL : "/sys/kernel/btf/vmlinux");
    capture->skeleton = capture_bpf__open_opts(&options);
    if (!capture->skeleton)
        return error_set(err, -errno, "failed to open the BPF programs: %s", capture_last_words());
    capture_set_settings(capture, btf);
    heed(capture, lesson);
    status = capture_bpf__load(capture->skeleton);
    if (status == -EPERM)
        error_set(err, status,
                "failed to load the BPF programs: the kernel does not permit it; in a container it "
                "takes the capabilities of the host (--privileged), and a locked-down kernel "
                "(/sys/kernel/security/lockdown) permits it to nobody");
    else if (status)
        error_set(err, status, "failed to load the BPF programs: %s%s%s (%s)", refused_program,
                refused_program[0] ? ": " : "", strerror(-status),
                refused_why[0] ? refused_why : capture_last_words());
    return status;
}

// After a try that failed with `status`: is there something to leave out?
static bool learn(struct lesson *lesson, int status)
{
    if (status == -EPERM || !refused_program[0] || lesson->count == CAPTURE_PROGRAMS_MAX)
        return false;
    // One of the two may be the reason, or both.
    if (!lesson->no_unwind && !lesson->no_owners && unwinds(refused_program)) {
        lesson->no_unwind = true;
        return true;
    }
    if (is_must(refused_program)) {
        if (lesson->no_owners && lesson->no_unwind)
            return false;
        lesson->no_unwind = lesson->no_owners;
        lesson->no_owners = true;
        return true;
    }
    snprintf(lesson->refused[lesson->count].program, sizeof(lesson->refused[0].program), "%s",
            refused_program);
    snprintf(lesson->refused[lesson->count].why, sizeof(lesson->refused[0].why), "%s", refused_why);
    lesson->refused[lesson->count++].status = status;
    return true;
}

// What the kernel or libbpf calls an invalid argument is none of the user's.
static int operational(int status, struct error *err)
{
    if (status != -EINVAL && status != -ESRCH)
        return status;
    if (err)
        err->code = -ENOTSUP;
    return -ENOTSUP;
}

// The kernel takes an object as a whole: what it refuses is switched off, and the rest tried again.
int capture_load(struct capture *capture, struct error *err)
{
    struct lesson lesson = {0};
    struct btf *btf;
    int status;

    libbpf_set_print(keep_log);
    btf = btf__load_vmlinux_btf();
    if (!btf)
        return error_set(
                err, -ENOTSUP, "failed to read '/sys/kernel/btf/vmlinux': %s", strerror(errno));
    status = capture_fits(btf, err);
    while (!status && (status = load_rest(capture, btf, &lesson, err)) && learn(&lesson, status)) {
        capture_bpf__destroy(capture->skeleton);
        capture->skeleton = NULL;
        status = 0;
    }
    btf__free(btf);
    return operational(status, err);
}

static int open_event(uint64_t config, uint64_t period, int cpu)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
            .size = sizeof(attr),
            .config = config,
            .sample_period = period};

    return (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

// A program at one of perf's events on every CPU; one that is offline is passed over.
static void attach_event(
        struct capture *capture, struct bpf_program *program, uint64_t config, uint64_t period)
{
    long cpus = sysconf(_SC_NPROCESSORS_CONF);
    int failed = 0;

    if (!bpf_program__autoload(program))
        return;
    capture->ticks = xrealloc(
            capture->ticks, (capture->tick_count + (size_t)cpus) * sizeof(*capture->ticks));
    for (long cpu = 0; cpu < cpus; cpu++) {
        int fd = open_event(config, period, (int)cpu);
        struct bpf_link *link = fd < 0 ? NULL : bpf_program__attach_perf_event(program, fd);

        if (link) {
            capture->ticks[capture->tick_count++] = link;
            continue;
        }
        if (errno != ENODEV && errno != ENXIO)
            failed = errno;
        if (fd >= 0)
            close(fd);
    }
    if (failed)
        capture_lack(capture, source_of_program(bpf_program__name(program)),
                "perf_event_open: %s%s", strerror(failed),
                failed == EACCES || failed == EPERM
                        ? " (kernel.perf_event_paranoid, or no CAP_PERFMON)"
                        : "");
}

void capture_watch_cpus(struct capture *capture, const char *path)
{
    char *now = string_read_file(path, CPUS_BYTES, NULL);

    if (now && !capture->cpus) {
        capture->cpus = now;
        return;
    }
    if (now && strcmp(now, capture->cpus) && !capture->cpus_changed) {
        capture->cpus_changed = true;
        capture_say(capture,
                "samples: CPUs of this machine came or went while it recorded; on one that came nothing is sampled, and code that "
                "was mapped there may have no name");
    }
    free(now);
}

static bool is_of_event(const struct capture *capture, const struct bpf_program *program)
{
    return program == capture->skeleton->progs.sample_tick ||
            program == capture->skeleton->progs.fault_tick;
}

int capture_attach(struct capture *capture, struct error *err)
{
    struct bpf_program *program;

    capture_watch_cpus(capture, CAPTURE_CPUS);
    capture_mappings_open(capture); // before the first stack
    bpf_object__for_each_program(program, capture->skeleton->obj)
    {
        const char *name = bpf_program__name(program);
        struct bpf_link *link;

        if (!bpf_program__autoload(program) || is_of_event(capture, program))
            continue;
        libbpf_log[0] = 0;
        link = bpf_program__attach(program);
        if (!link && is_must(name))
            return operational(
                    error_set(err, -errno, "failed to attach the BPF program %s: %s (%s)", name,
                            strerror(errno), capture_last_words()),
                    err);
        if (!link)
            capture_lack(capture, source_of_program(name), "the kernel refused to attach %s: %s",
                    name, strerror(errno));
        else if (program == capture->skeleton->progs.each_task)
            capture->iterator = link;
        else
            capture->links[capture->link_count++] = link;
    }
    if (capture->sample_hz)
        attach_event(capture, capture->skeleton->progs.sample_tick, PERF_COUNT_SW_CPU_CLOCK,
                1000000000 / capture->sample_hz);
    size_t ticks = capture->tick_count;
    attach_event(capture, capture->skeleton->progs.fault_tick, PERF_COUNT_SW_PAGE_FAULTS, 1);
    capture->samples_faults = capture->tick_count > ticks;
    return 0;
}

void capture_drop_links(struct capture *capture)
{
    for (size_t i = 0; i < capture->link_count; i++)
        bpf_link__destroy(capture->links[i]);
    for (size_t i = 0; i < capture->tick_count; i++)
        bpf_link__destroy(capture->ticks[i]);
    capture->link_count = capture->tick_count = 0;
}

void capture_unload(struct capture *capture)
{
    capture_drop_links(capture);
    bpf_link__destroy(capture->iterator);
    capture->iterator = NULL;
    free(capture->ticks);
    capture->ticks = NULL;
    capture_bpf__destroy(capture->skeleton);
    capture->skeleton = NULL;
}

int capture_map(struct capture *capture, const char *name)
{
    return bpf_object__find_map_fd_by_name(capture->skeleton->obj, name);
}

void capture_set_mode(struct capture *capture, uint32_t mode)
{
    capture->skeleton->bss->iterator_mode = mode;
}
