// SPDX-License-Identifier: Apache-2.0
// Checks of what recording the host side needs (`upgate record`, the traced launches of `upgate
// ab`): capabilities, BTF, kernel symbols, reading another process, lockdown, and every source of
// facts by loading and attaching it with an empty target for a moment. Reads files; leaves nothing
// behind.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/strings.h"
#include "harness/doctor/check.h"
#ifdef UPGATE_HAVE_CAPTURE
#include "bpf/capture.h"
#endif

enum {
    CAPTURE_CAP_SYS_PTRACE = 19,
    CAPTURE_CAP_SYS_ADMIN = 21,
    CAPTURE_CAP_PERFMON = 38,
    CAPTURE_CAP_BPF = 39,
    CAPTURE_SOURCES_MAX = 32,
};

static unsigned long long capture_capabilities(const struct doctor *doctor)
{
    char *status = doctor_read(doctor, "/proc/self/status");
    const char *at = status ? strstr(status, "CapEff:") : NULL;
    unsigned long long capabilities = at ? strtoull(at + strlen("CapEff:"), NULL, 16) : 0;
    free(status);
    return capabilities;
}

static bool capture_has(unsigned long long capabilities, int capability)
{
    return capabilities >> capability & 1;
}

#ifdef UPGATE_HAVE_CAPTURE
// The sources as they are here: tried once, for several checks. Not below another root.
static void capture_try(struct doctor *doctor)
{
    if (doctor->sources || doctor->root[0])
        return;
    doctor->sources = xcalloc(CAPTURE_SOURCES_MAX, sizeof *doctor->sources);
    doctor->source_count = capture_sources(doctor->sources, CAPTURE_SOURCES_MAX);
}

// "failed to load: the reason; what to do": the two halves. The first source stands for all when
// none works.
static const char *capture_advice(const char *why, int *ret_reason)
{
    const char *end = strstr(why, "; ");
    *ret_reason = end ? (int)(end - why) : (int)strlen(why);
    return end ? end + 2 : "one of the kernels that docs/KERNELS.md lists";
}

// Why nothing can be loaded; NULL: it can, or was not tried.
static const char *capture_trouble(struct doctor *doctor)
{
    capture_try(doctor);
    for (size_t i = 0; i < doctor->source_count; i++)
        if (doctor->sources[i].works)
            return NULL;
    return doctor->source_count ? doctor->sources[0].why : NULL;
}
#else
static const char *capture_trouble(struct doctor *doctor)
{
    (void)doctor;
    return NULL;
}

static const char *capture_advice(const char *why, int *ret_reason)
{
    *ret_reason = 0;
    return why;
}
#endif

static const char capture_grant[] =
        "run as root, or for a group whose members may look into every process: "
        "f=\"$(command -v upgate)\"; sudo groupadd -f upgate; sudo chgrp upgate \"$f\"; "
        "sudo chmod 0750 \"$f\"; sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_syslog+ep \"$f\" (with those that other lines ask "
        "for: setcap replaces)";
// Root of a container: a file has no right that the container has not.
static const char capture_container[] =
        "give the container these rights (docker, podman: --cap-add BPF --cap-add PERFMON --cap-add SYS_PTRACE --cap-add SYSLOG, and where "
        "its seccomp profile refuses bpf() and perf_event_open() all the same, one that allows them), or run outside of it";

static bool capture_is_root(const struct doctor *doctor)
{
    char *status = doctor_read(doctor, "/proc/self/status");
    const char *at = status ? strstr(status, "\nUid:") : NULL;
    unsigned real, effective;
    bool root =
            at && sscanf(at + strlen("\nUid:"), "%u %u", &real, &effective) == 2 && effective == 0;
    free(status);
    return root;
}

// Permission and BTF can be had on a kernel that refuses the programs all the same: "BPF yes" only
// when they were loaded.
void check_tracing(struct doctor *doctor)
{
    char *paranoid = doctor_read(doctor, "/proc/sys/kernel/perf_event_paranoid");
    char *btf = xasprintf("%s/sys/kernel/btf/vmlinux", doctor->root);
    unsigned long long capabilities = capture_capabilities(doctor);
    bool admin = capture_has(capabilities, CAPTURE_CAP_SYS_ADMIN);
    bool perf = admin || capture_has(capabilities, CAPTURE_CAP_PERFMON);
    bool bpf = admin || capture_has(capabilities, CAPTURE_CAP_BPF);
    bool has_btf = access(btf, R_OK) == 0;
    const char *trouble = perf && bpf && has_btf ? capture_trouble(doctor) : NULL;
    bool all = perf && bpf && has_btf && !trouble;
    int reason = 0;
    const char *advice = trouble ? capture_advice(trouble, &reason) : NULL;
    struct doctor_finding *finding = doctor_add(doctor, "tracing",
            all ? DOCTOR_STATUS_OK : DOCTOR_STATUS_LIMITED,
            "BPF %s, perf %s (perf_event_paranoid %s), BTF %s%s%.*s",
            bpf && !trouble ? "yes" : "no", perf ? "yes" : "no", paranoid ? paranoid : "not known",
            has_btf ? "yes" : "no", trouble ? ": " : "", reason, trouble ? trouble : "");
    if (!all)
        doctor_lose(finding,
                "`upgate record` and `upgate stalls`: who held the program up cannot be told; "
                "`upgate ab` still compares",
                trouble            ? advice
                        : !has_btf ? "a kernel with CONFIG_DEBUG_INFO_BTF (/sys/kernel/btf/vmlinux)"
                        : capture_is_root(doctor) ? capture_container
                                                  : capture_grant);
    doctor_fact(finding, "perf", json_boolean(perf));
    doctor_fact(finding, "bpf", json_boolean(bpf && !trouble));
    doctor_fact(finding, "btf", json_boolean(has_btf));
    free(paranoid);
    free(btf);
}

// Are the addresses that this process sees in kallsyms real ones?
void check_kernel_symbols(struct doctor *doctor)
{
    char *path = xasprintf("%s/proc/kallsyms", doctor->root);
    char *head = string_read_file(path, 4096, NULL); // whole it is some 5 MB
    char *restrict_text = doctor_read(doctor, "/proc/sys/kernel/kptr_restrict");
    bool named = head && strtoull(head, NULL, 16) != 0;
    // The first symbols of x86 are per-CPU ones at address 0: one line that is not is enough.
    for (const char *line = head; line && !named; line = strchr(line, '\n')) {
        line += *line == '\n';
        named = strtoull(line, NULL, 16) != 0;
    }
    struct doctor_finding *finding =
            doctor_add(doctor, "kernel-symbols", named ? DOCTOR_STATUS_OK : DOCTOR_STATUS_LIMITED,
                    !head           ? "no /proc/kallsyms"
                            : named ? "kernel functions can be named (kptr_restrict %s)"
                                    : "kernel addresses are hidden (kptr_restrict %s)",
                    restrict_text ? restrict_text : "not known");
    if (!named)
        doctor_lose(finding,
                "stacks of the kernel have no names, and most causes of stalls are told by them",
                !head ? "a kernel with CONFIG_KALLSYMS"
                      : "run as root or with CAP_SYSLOG (in a container: --cap-add SYSLOG), with sysctl kernel.kptr_restrict=1 or 0");
    doctor_fact(finding, "named", json_boolean(named));
    free(restrict_text);
    free(head);
    free(path);
}

// Python frames are read out of the process with process_vm_readv.
void check_python_stacks(struct doctor *doctor)
{
    char *text = doctor_read(doctor, "/proc/sys/kernel/yama/ptrace_scope");
    int scope = text ? atoi(text) : 0;
    bool capable = capture_has(capture_capabilities(doctor), CAPTURE_CAP_SYS_PTRACE);
    bool all = scope < 3 && capable, none = scope >= 3 || (scope == 2 && !capable),
         own = scope == 0;
    struct doctor_finding *finding =
            doctor_add(doctor, "python-stacks", all ? DOCTOR_STATUS_OK : DOCTOR_STATUS_LIMITED,
                    "memory of %s can be read (ptrace_scope %s%s)",
                    all            ? "any process"
                            : none ? "no other process"
                            : own  ? "own processes only"
                                   : "own children only",
                    text ? text : "none", capable ? "" : ", no CAP_SYS_PTRACE");
    if (!all)
        doctor_lose(finding,
                none ? "Python frames of every program: the line that waited is not shown"
                        : own
                        ? "Python frames and command lines of other users' programs; without "
                          "them a stall shows kernel and native frames only"
                        : "Python frames of programs that upgate has not started itself; without "
                          "them a stall shows kernel and native frames only",
                scope >= 3 ? "boot without kernel.yama.ptrace_scope=3, which cannot be taken back"
                           : "run as root or with CAP_SYS_PTRACE; in a container: --cap-add "
                             "SYS_PTRACE");
    doctor_fact(finding, "ptrace_scope", text ? json_integer(scope) : json_null());
    doctor_fact(finding, "any", json_boolean(all));
    free(text);
}

void check_lockdown(struct doctor *doctor)
{
    char *text = doctor_read(doctor, "/sys/kernel/security/lockdown");
    bool hides = text && strstr(text, "[confidentiality]");
    struct doctor_finding *finding = doctor_add(doctor, "lockdown",
            hides ? DOCTOR_STATUS_LIMITED : DOCTOR_STATUS_OK, "kernel lockdown: %s",
            hides                                         ? "confidentiality"
                    : text && strstr(text, "[integrity]") ? "integrity, which lets BPF read"
                    : text                                ? "none"
                                                          : "none, or securityfs is not mounted");
    if (hides)
        doctor_lose(finding, "BPF may not read the kernel's memory: nothing can be recorded",
                "boot with lockdown=integrity, or without secure boot's lockdown");
    free(text);
}

#ifdef UPGATE_HAVE_CAPTURE
// Names of findings live as long as the program.
static const char *capture_id(size_t i, const char *name)
{
    static char ids[CAPTURE_SOURCES_MAX][40];
    snprintf(ids[i], sizeof ids[i], "capture-%s", name);
    for (char *c = ids[i]; *c; c++)
        if (*c == ' ' || *c == '_' || *c == '/')
            *c = '-';
    return ids[i];
}

static const char *capture_remedy(const char *why)
{
    static const char *const remedies[][2] = {
            {"kptr_restrict", "sysctl kernel.kptr_restrict=1, and run as root or with CAP_SYSLOG"},
            {"perf_event_open", "run as root or with CAP_PERFMON"},
            {"CAP_SYS_ADMIN", "run as root or with CAP_SYS_ADMIN"},
            {"not loaded",
                    "load it, as a file system that needs it does; without one nothing is lost"},
            {"refused",
                    "run as root; a kernel that refuses it then was built or locked down without it"},
    };
    for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++)
        if (strstr(why, remedies[i][0]))
            return remedies[i][1];
    return "a kernel that has it; those of current distributions do";
}

// why: "the reason; what is lost by it"
static void capture_add_missing(
        struct doctor *doctor, const struct capture_source *source, size_t i)
{
    const char *lost = strrchr(source->why, ';');
    int reason = lost ? (int)(lost - source->why) : (int)strlen(source->why);
    struct doctor_finding *finding = doctor_add(doctor, capture_id(i, source->name),
            DOCTOR_STATUS_LIMITED, "%.*s", reason, source->why);
    char *text = xasprintf("%s%s%s", source->gives, lost ? ":" : "", lost ? lost + 1 : "");
    doctor_lose(finding, text, capture_remedy(source->why));
    free(text);
}

void check_capture(struct doctor *doctor)
{
    capture_try(doctor);
    const struct capture_source *sources = doctor->sources;
    const char *trouble = capture_trouble(doctor);
    size_t count = doctor->source_count, works = 0;
    struct strbuf text = {0};
    json_t *facts = json_object();
    for (size_t i = 0; i < count; i++) {
        works += sources[i].works;
        if (sources[i].works)
            strbuf_add(&text, "%s%s", text.len ? ", " : "", sources[i].name);
        json_object_set_new(facts, sources[i].name, json_boolean(sources[i].works));
    }
    int reason = 0;
    const char *advice = trouble ? capture_advice(trouble, &reason) : "see the sources below";
    if (trouble)
        strbuf_add(&text, "%.*s", reason, trouble);
    unsigned long long capabilities = capture_capabilities(doctor);
    bool allowed = capture_has(capabilities, CAPTURE_CAP_SYS_ADMIN) ||
            (capture_has(capabilities, CAPTURE_CAP_PERFMON) &&
                    capture_has(capabilities, CAPTURE_CAP_BPF));
    if (trouble && !allowed && capture_is_root(doctor))
        advice = capture_container;
    bool all = works == count;
    struct doctor_finding *finding = doctor_add(doctor, "capture",
            all             ? DOCTOR_STATUS_OK
                    : works ? DOCTOR_STATUS_LIMITED
                            : DOCTOR_STATUS_MISSING,
            "%zu of %zu sources work: %s", works, count, text.text);
    doctor_fact(finding, "sources", facts);
    if (!all)
        doctor_lose(finding,
                works ? "some causes of stalls; each source that is missing says which"
                      : "`upgate record` and `upgate stalls`: nothing can be recorded here",
                advice);
    strbuf_free(&text);
    for (size_t i = 0; works && i < count; i++)
        if (!sources[i].works)
            capture_add_missing(doctor, &sources[i], i);
}
#else
void check_capture(struct doctor *doctor)
{
    struct doctor_finding *finding = doctor_add(
            doctor, "capture", DOCTOR_STATUS_MISSING, "this build of upgate has no BPF programs");
    doctor_lose(finding, "`upgate record` and the traced launches of `upgate ab`",
            "build again with libbpf-dev, clang and bpftool (ci/setup installs them); the configure "
            "summary says 'capture: ON'");
    doctor_fact(finding, "sources", json_object());
}
#endif
