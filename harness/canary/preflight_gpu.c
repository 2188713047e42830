// SPDX-License-Identifier: Apache-2.0
// GPU health before a rollout: what nvidia-smi says (throttling, ECC), errors in the kernel's log (Xid), and whether the servers'
// cgroups may still open the devices: a reload of systemd takes that away from containers, and the next process to start fails.
// Nothing is looked at where there is no GPU.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "harness/canary/preflight_internal.h"

enum {
    GPU_LINE = 512,
    GPU_SMI_NS = 30000000, // between two looks at whether it has ended
    GPU_KMSG_RECORDS = 100000
};
#define GPU_SMI_TIMEOUT_NS 30000000000 // a hung driver hangs nvidia-smi
#define GPU_XID_AGE_NS 3600000000000   // an error of the last hour is of the machine as it is now

// --- nvidia-smi ------------------------------------------------------------------------------------------

static bool gpu_has(const char *program)
{
    const char *path = getenv("PATH");
    if (strchr(program, '/'))
        return access(program, X_OK) == 0;
    char *words = xstrdup(path ? path : ""), *save = NULL;
    bool found = false;
    for (char *word = strtok_r(words, ":", &save); word && !found; word = strtok_r(NULL, ":", &save)) {
        char *full = xasprintf("%s/%s", word, program);
        found = access(full, X_OK) == 0;
        free(full);
    }
    free(words);
    return found;
}

// What it writes, or NULL: it failed or did not end in time.
static char *gpu_ask(const char *smi, const char *query)
{
    int pipe_fds[2], status = 0;
    if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return NULL;
    pid_t pid = fork(), done = 0;
    if (pid == 0) {
        dup2(pipe_fds[1], STDOUT_FILENO);
        fcntl(STDOUT_FILENO, F_SETFL, 0);
        execlp(smi, smi, query, "--format=csv,noheader,nounits", (char *)NULL);
        _exit(127);
    }
    close(pipe_fds[1]);
    struct strbuf text = {0};
    int64_t end = clock_monotonic_ns() + GPU_SMI_TIMEOUT_NS;
    for (bool last = false; pid > 0 && !last && text.len < (1 << 16);) {
        last = done != 0;
        if (!last && (done = waitpid(pid, &status, WNOHANG)) == 0 && clock_monotonic_ns() > end) {
            kill(pid, SIGKILL);
            done = waitpid(pid, &status, 0);
        }
        char part[4096];
        ssize_t got;
        while ((got = read(pipe_fds[0], part, sizeof part)) > 0)
            strbuf_add_bytes(&text, part, (size_t)got);
        if (!last && done == 0)
            clock_sleep_until_ns(clock_monotonic_ns() + GPU_SMI_NS);
    }
    close(pipe_fds[0]);
    if (pid > 0 && done == 0) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
    if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return strbuf_take(&text);
    strbuf_free(&text);
    return NULL;
}

static char *gpu_word(char **line)
{
    char *word = strsep(line, ",");
    while (word && *word == ' ')
        word++;
    return word ? word : "";
}

int preflight_gpu(const char *smi, struct preflight *ret)
{
    // One name each since the drivers of 2018; newer ones know clocks_event_reasons as well and keep these.
    static const char query[] = "--query-gpu=index,ecc.errors.uncorrected.volatile.total,clocks_throttle_reasons.hw_slowdown,"
                                "clocks_throttle_reasons.sw_thermal_slowdown";
    if (!gpu_has(smi))
        return 0;
    char *text = gpu_ask(smi, query), *save = NULL;
    if (!text)
        return preflight_fail(ret, EXIT_CODE_OPERATIONAL, "nvidia-smi fails or does not answer: is the driver healthy?");
    int code = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *rest = line, *index = gpu_word(&rest), *ecc = gpu_word(&rest), *hardware = gpu_word(&rest), *thermal = gpu_word(&rest);
        if (strtol(ecc, NULL, 10) > 0) // "[N/A]" where the GPU has none
            code = preflight_fail(ret, EXIT_CODE_OPERATIONAL, "GPU %s has had %s uncorrected memory errors since its driver was loaded",
                                  index, ecc);
        if (strcmp(hardware, "Active") == 0 || strcmp(thermal, "Active") == 0)
            code = preflight_fail(ret, EXIT_CODE_OPERATIONAL, "GPU %s is slowed down now (%s): it would be the candidate's or the "
                                  "baseline's fault by chance", index, strcmp(hardware, "Active") == 0 ? "hardware" : "temperature");
    }
    free(text);
    // Xid: the driver's errors, in the kernel's log. A record: "priority,sequence,microseconds,flags;text".
    int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    char record[8192];
    ssize_t got;
    for (int i = 0; fd >= 0 && i < GPU_KMSG_RECORDS && ((got = read(fd, record, sizeof record - 1)) > 0 || errno == EPIPE); i++) {
        if (got <= 0) // overwritten while it was read: the next one
            continue;
        record[got] = 0;
        const char *xid = strstr(record, "NVRM: Xid");
        const char *comma = strchr(record, ',');
        comma = comma ? strchr(comma + 1, ',') : NULL;
        int64_t at = comma ? strtoll(comma + 1, NULL, 10) * 1000 : 0;
        if (xid && clock_monotonic_ns() - at < GPU_XID_AGE_NS)
            code = preflight_fail(ret, EXIT_CODE_OPERATIONAL, "a GPU error within the last hour: %.160s", xid);
    }
    if (fd >= 0)
        close(fd);
    return code;
}

// --- device access ---------------------------------------------------------------------------------------

// The directory of the process's cgroup, or of the plan's; NULL: not found. The caller frees.
static char *gpu_cgroup(const char *root, uint64_t pid, const char *cgroup)
{
    if (cgroup)
        return strncmp(cgroup, "/sys/", 5) == 0 ? xasprintf("%s%s", root, cgroup) : xasprintf("%s/sys/fs/cgroup%s", root, cgroup);
    char *path = xasprintf("%s/proc/%llu/cgroup", root, (unsigned long long)pid), *text = string_read_file(path, 1 << 16, NULL);
    char *found = NULL, *save = NULL;
    free(path);
    for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line && !found; line = strtok_r(NULL, "\n", &save)) {
        char *controllers = strchr(line, ':'), *where = controllers ? strchr(controllers + 1, ':') : NULL;
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

// In a process of its own, for the cgroup is that of a process: 0 opened or nothing to open, 1 refused, 2 could not be tried.
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
            if (device < 0 && errno == EPERM) { // EACCES would be the file's mode, ENODEV a driver that is not there
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

int preflight_devices(const char *root, uint64_t pid, const char *cgroup, const char *arm, struct preflight *ret)
{
    char device[GPU_LINE];
    if (!gpu_any_device(root))
        return 0;
    char *path = gpu_cgroup(root, pid, cgroup);
    int answer = path ? gpu_try(root, path, device, sizeof device) : 2, code = 0;
    if (answer == 1)
        code = preflight_fail(ret, EXIT_CODE_OPERATIONAL, "the %s's cgroup may not open %s any more (a reload of systemd does that to "
                              "containers): its next process would find no GPU", arm, device);
    else if (answer != 0)
        preflight_note(ret, "whether the %s's cgroup may open the GPUs could not be tried%s", arm, geteuid() ? " (needs root)" : "");
    free(path);
    return code;
}
