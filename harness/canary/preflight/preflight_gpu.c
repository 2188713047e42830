// SPDX-License-Identifier: Apache-2.0
// GPU health before a rollout: what nvidia-smi says (throttling, ECC, free memory), errors in the
// kernel's log (Xid), and whether the servers' cgroups may still open the devices: a reload of
// systemd takes that away from containers, and the next process to start fails. Nothing is looked
// at where there is no GPU.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/child.h"
#include "common/clock.h"
#include "common/strings.h"
#include "common/units.h"
#include "harness/canary/preflight/preflight_internal.h"

enum {
    GPU_LINE = 512,
    GPU_SMI_INVALID = 2, // its exit code for a field that it does not know
    GPU_KMSG_RECORDS = 100000
};
#define GPU_SMI_TIMEOUT_NS 30000000000 // a hung driver hangs nvidia-smi
#define GPU_XID_AGE_NS 3600000000000   // an error of the last hour is of the machine as it is now

// --- nvidia-smi ----------------------------------------------------------------------------------

static bool gpu_has(const char *program)
{
    char *path = child_find_program(program);
    free(path);
    return path != NULL;
}

// A field as nvidia-smi writes it. Its manual: "[Not Supported]" (or "[N/A]") where the GPU or the
// mode, such as MIG, has none of it,
// "[Insufficient Permissions]", "[GPU requires reset]", "ERR!", "[Unknown Error]", "[GPU is lost]"
// where it is broken.
enum gpu_field { GPU_TOLD, GPU_ABSENT, GPU_REFUSED, GPU_BROKEN, GPU_STRANGE };

static enum gpu_field gpu_field_of(const char *text, bool number)
{
    static const struct {
        const char *words;
        enum gpu_field is;
    } known[] = {{"Not Supported", GPU_ABSENT}, {"N/A", GPU_ABSENT}, {"Not Applicable", GPU_ABSENT},
            {"Not Found", GPU_ABSENT}, {"Permission", GPU_REFUSED}, {"ERR!", GPU_BROKEN},
            {"Unknown Error", GPU_BROKEN}, {"Unknown error", GPU_BROKEN}, {"reset", GPU_BROKEN},
            {"Reset", GPU_BROKEN}, {"lost", GPU_BROKEN}};
    if (number ? *text && strspn(text, "0123456789") == strlen(text)
               : strcmp(text, "Active") == 0 || strcmp(text, "Not Active") == 0)
        return GPU_TOLD;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(text, known[i].words))
            return known[i].is;
    return GPU_STRANGE;
}

// The next one, without blanks around it. NULL: the line has no more.
static char *gpu_word(char **line)
{
    char *word = strsep(line, ",");
    while (word && *word == ' ')
        word++;
    for (size_t len = word ? strlen(word) : 0; len && strchr(" \t\r", word[len - 1]);)
        word[--len] = 0;
    return word;
}

enum { GPU_ECC, GPU_HARDWARE, GPU_THERMAL, GPU_FIELDS };
static const char *const gpu_names[GPU_FIELDS] = {
        "memory errors", "slowdown by hardware", "slowdown by temperature"};

static int gpu_judge_field(
        const char *index, int which, const char *text, int *absent, struct preflight *ret)
{
    switch (gpu_field_of(text, which == GPU_ECC)) {
    case GPU_BROKEN:
        return preflight_fail(ret, EXIT_CODE_OPERATIONAL,
                "GPU %s answers '%.40s' for %s: it needs a reset, or is gone", index, text,
                gpu_names[which]);
    case GPU_REFUSED:
        preflight_note(ret, "GPU %s does not tell its %s: '%.40s'", index, gpu_names[which], text);
        return 0;
    case GPU_STRANGE:
        preflight_note(
                ret, "GPU %s: '%.40s' for %s is not understood", index, text, gpu_names[which]);
        return 0;
    case GPU_ABSENT:
        ++*absent;
        return 0;
    default:
        break;
    }
    if (which == GPU_ECC && strspn(text, "0") != strlen(text))
        return preflight_fail(ret, EXIT_CODE_OPERATIONAL,
                "GPU %s has had %.20s uncorrected memory errors since its driver was loaded", index,
                text);
    if (which != GPU_ECC && strcmp(text, "Active") == 0)
        return preflight_fail(ret, EXIT_CODE_OPERATIONAL,
                "GPU %s is slowed down now (%s): it would be the candidate's or the "
                "baseline's fault by chance",
                index, which == GPU_HARDWARE ? "hardware" : "temperature");
    return 0;
}

// A GPU a line: "0, 0, Not Active, Not Active". What is none of that is a message: "Unable to
// determine the device handle …".
static int gpu_judge_line(char *line, struct preflight *ret)
{
    char *rest = line, *whole = xstrdup(line), *index = gpu_word(&rest), *fields[GPU_FIELDS];
    int code = 0, absent = 0, count = 0;
    while (count < GPU_FIELDS && (fields[count] = gpu_word(&rest)))
        count++;
    if (count < GPU_FIELDS || rest || gpu_field_of(index, true) != GPU_TOLD)
        code = preflight_fail(ret, EXIT_CODE_OPERATIONAL, "nvidia-smi says: %.200s", whole);
    for (int i = 0; i < GPU_FIELDS && !code; i++)
        code = gpu_judge_field(index, i, fields[i], &absent, ret);
    if (!code && absent == GPU_FIELDS)
        preflight_note(
                ret, "GPU %s tells neither memory errors nor whether it is slowed down", index);
    free(whole);
    return code;
}

// What it writes to the first query that it knows (the last is followed by NULL), the caller's.
// NULL: it failed, and `ret` says how.
static char *gpu_ask(const char *smi, const char *const *queries, struct preflight *ret)
{
    struct error err = {0};
    for (; *queries; queries++) {
        char *const argv[] = {
                (char *)smi, (char *)*queries, (char *)"--format=csv,noheader,nounits", NULL};
        struct child_end end;
        if (child_run(argv,
                    &(struct child_opts){.deadline_ns = clock_monotonic_ns() + GPU_SMI_TIMEOUT_NS},
                    &end, &err))
            break;
        if (end.code == 0)
            return end.output;
        // It writes most of its complaints to stdout.
        string_make_plain(end.output, strlen(end.output));
        const char *says = end.output[0] ? end.output : end.said;
        error_set(&err, -EIO, "it ended with %d%s%.*s", end.code, says[0] ? ": " : "",
                (int)strcspn(says, "\n"), says);
        free(end.output);
        if (end.code != GPU_SMI_INVALID)
            break;
    }
    preflight_fail(ret, EXIT_CODE_OPERATIONAL,
            "nvidia-smi fails or does not answer: is the driver healthy? %s", err.text);
    return NULL;
}

// One that lacks the memory is named; what does not tell its memory is a failure, for the plan asks
// for it.
int preflight_gpu_memory(const char *smi, double bytes, struct preflight *ret)
{
    static const char *const queries[] = {"--query-gpu=index,memory.free", NULL};
    if (!gpu_has(smi))
        return preflight_fail(ret, EXIT_CODE_OPERATIONAL,
                "the plan wants free GPU memory, and '%.100s' is not there to tell it", smi);
    char *text = gpu_ask(smi, queries, ret), *save = NULL, have[32], want[32];
    if (!text)
        return EXIT_CODE_OPERATIONAL;
    int code = 0, gpus = 0;
    for (char *line = strtok_r(text, "\r\n", &save); line;
            line = strtok_r(NULL, "\r\n", &save), gpus++) {
        string_make_plain(line, strlen(line));
        char *rest = line, *index = gpu_word(&rest), *free_mib = rest ? gpu_word(&rest) : NULL;
        if (!free_mib || gpu_field_of(index, true) != GPU_TOLD ||
                gpu_field_of(free_mib, true) != GPU_TOLD) {
            code = preflight_fail(ret, EXIT_CODE_OPERATIONAL,
                    "GPU %.40s does not tell its free memory: '%.80s'", index,
                    free_mib ? free_mib : "");
            continue;
        }
        double available = strtod(free_mib, NULL) * (1 << 20);
        if (available < bytes)
            code = preflight_fail(ret, EXIT_CODE_OPERATIONAL,
                    "%s of memory are free on GPU %s, and the plan wants %s for two warm stacks",
                    unit_format_bytes(have, sizeof have, available), index,
                    unit_format_bytes(want, sizeof want, bytes));
    }
    free(text);
    return gpus ? code
                : preflight_fail(ret, EXIT_CODE_OPERATIONAL,
                          "the plan wants free GPU memory, and nvidia-smi lists no GPU");
}

int preflight_gpu(const char *smi, struct preflight *ret)
{
    // Drivers until 2023 know the former, and call the latter "not a valid field" with exit code 2;
    // later ones may drop the former.
    static const char *const queries[] = {
            "--query-gpu=index,ecc.errors.uncorrected.volatile.total,clocks_throttle_reasons.hw_slowdown,clocks_throttle_reasons.sw_thermal_slowdown",
            "--query-gpu=index,ecc.errors.uncorrected.volatile.total,clocks_event_reasons.hw_slowdown,clocks_event_reasons.sw_thermal_slowdown",
            NULL};
    if (!gpu_has(smi))
        return 0;
    char *text = gpu_ask(smi, queries, ret), *save = NULL;
    if (!text)
        return EXIT_CODE_OPERATIONAL;
    int code = 0, gpus = 0;
    for (char *line = strtok_r(text, "\r\n", &save); line; line = strtok_r(NULL, "\r\n", &save)) {
        string_make_plain(line, strlen(line));
        int one = line[strspn(line, " \t\r")] ? gpu_judge_line(line, ret) : 0;
        code = one ? one : code;
        gpus++;
    }
    if (!gpus)
        preflight_note(ret, "nvidia-smi lists no GPU");
    free(text);
    // Xid: the driver's errors, in the kernel's log. A record:
    // "priority,sequence,microseconds,flags;text".
    int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    char record[8192];
    ssize_t got;
    for (int i = 0; fd >= 0 && i < GPU_KMSG_RECORDS &&
            ((got = read(fd, record, sizeof record - 1)) > 0 || errno == EPIPE);
            i++) {
        if (got <= 0) // overwritten while it was read: the next one
            continue;
        record[got] = 0;
        const char *xid = strstr(record, "NVRM: Xid");
        const char *comma = strchr(record, ',');
        comma = comma ? strchr(comma + 1, ',') : NULL;
        int64_t at = comma ? strtoll(comma + 1, NULL, 10) * 1000 : 0;
        if (xid && clock_monotonic_ns() - at < GPU_XID_AGE_NS)
            code = preflight_fail(
                    ret, EXIT_CODE_OPERATIONAL, "a GPU error within the last hour: %.160s", xid);
    }
    if (fd >= 0)
        close(fd);
    return code;
}

// --- device access -------------------------------------------------------------------------------

// The directory of the process's cgroup, or of the plan's; NULL: not found. The caller frees.
static char *gpu_cgroup(const char *root, uint64_t pid, const char *cgroup)
{
    if (cgroup)
        return strncmp(cgroup, "/sys/", 5) == 0 ? xasprintf("%s%s", root, cgroup)
                                                : xasprintf("%s/sys/fs/cgroup%s", root, cgroup);
    char *path = xasprintf("%s/proc/%llu/cgroup", root, (unsigned long long)pid),
         *text = string_read_file(path, 1 << 16, NULL);
    char *found = NULL, *save = NULL;
    free(path);
    for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line && !found;
            line = strtok_r(NULL, "\n", &save)) {
        char *controllers = strchr(line, ':'),
             *where = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!where)
            continue;
        *where++ = 0;
        controllers++;
        bool devices = strcmp(controllers, "devices") == 0, unified = !*controllers;
        char *v1 = xasprintf("%s/sys/fs/cgroup/devices%s", root, where);
        if (devices && access(v1, F_OK) == 0)
            found = xstrdup(v1);
        else if (unified)
            found = xasprintf("%s/sys/fs/cgroup%s", root, where);
        free(v1);
        char *procs = found ? xasprintf("%s/cgroup.procs", found) : NULL;
        if (procs && access(procs, F_OK) != 0) { // the unified hierarchy beside a v1 one
            free(found);
            found = NULL;
        }
        free(procs);
    }
    free(text);
    return found;
}

// In a process of its own, for the cgroup is that of a process: 0 opened or nothing to open, 1
// refused, 2 could not be tried.
static int gpu_try(const char *root, const char *cgroup, char *ret_device, size_t size)
{
    int report[2], status = 0;
    if (pipe2(report, O_CLOEXEC) < 0)
        return 2;
    pid_t pid = fork();
    if (pid == 0) {
        char *procs = xasprintf("%s/cgroup.procs", cgroup), *folder = xasprintf("%s/dev", root);
        int fd = open(procs, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, "0", 1) != 1)
            _exit(2);
        DIR *devices = opendir(folder);
        for (struct dirent *entry; devices && (entry = readdir(devices));) {
            if (strncmp(entry->d_name, "nvidia", 6) != 0 || entry->d_type == DT_DIR)
                continue;
            char *path = xasprintf("%s/%s", folder, entry->d_name);
            int device = open(path, O_RDWR | O_CLOEXEC);
            if (device < 0 && errno == EPERM) { // EACCES would be the file's mode, ENODEV a driver
                                                // that is not there
                (void)!write(report[1], path, strlen(path));
                _exit(1);
            }
        }
        _exit(0);
    }
    close(report[1]);
    ssize_t got = pid > 0 ? read(report[0], ret_device, size - 1) : 0;
    ret_device[got > 0 ? got : 0] = 0;
    close(report[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return 2;
    return WEXITSTATUS(status);
}

static bool gpu_any_device(const char *root)
{
    char *folder = xasprintf("%s/dev", root);
    DIR *devices = opendir(folder);
    bool any = false;
    for (struct dirent *entry; devices && !any && (entry = readdir(devices));)
        any = strncmp(entry->d_name, "nvidia", 6) == 0 && entry->d_type != DT_DIR;
    if (devices)
        closedir(devices);
    free(folder);
    return any;
}

int preflight_devices(
        const char *root, uint64_t pid, const char *cgroup, const char *arm, struct preflight *ret)
{
    char device[GPU_LINE];
    if (!gpu_any_device(root))
        return 0;
    char *path = gpu_cgroup(root, pid, cgroup);
    int answer = path ? gpu_try(root, path, device, sizeof device) : 2, code = 0;
    if (answer == 1)
        code = preflight_fail(ret, EXIT_CODE_OPERATIONAL,
                "the %s's cgroup may not open %s any more (a reload of systemd does that to "
                "containers): its next process would find no GPU",
                arm, device);
    else if (answer != 0)
        preflight_note(ret, "whether the %s's cgroup may open the GPUs could not be tried%s", arm,
                geteuid() ? " (needs root)" : "");
    free(path);
    return code;
}
