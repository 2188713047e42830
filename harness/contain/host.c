// SPDX-License-Identifier: Apache-2.0
// The machine, from /proc and /sys. Everything here is optional: what cannot be read is -1 or null.
#include "harness/contain/host.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"

static int host_parse_cpus(const char *list, cpu_set_t *cpus, struct error *err)
{
    CPU_ZERO(cpus);
    const char *at = list;
    while (*at) {
        char *end;
        long first = strtol(at, &end, 10), last = first;
        if (end == at)
            break;
        if (*end == '-') {
            at = end + 1;
            last = strtol(at, &end, 10);
            if (end == at)
                break;
        }
        if (first < 0 || last < first || last >= CPU_SETSIZE)
            break;
        for (long cpu = first; cpu <= last; cpu++)
            CPU_SET(cpu, cpus);
        at = *end == ',' && end[1] ? end + 1 : end;
        if (*at == 0)
            return 0;
        if (*end != ',')
            break;
    }
    return error_set(err, -EINVAL, "'%s' is not a list of CPUs; accepted: 0-3 or 0,2,4-7", list);
}

static char *host_format_cpus(const cpu_set_t *cpus)
{
    struct strbuf buf = {0};
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, cpus))
            continue;
        int last = cpu;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cpus))
            last++;
        strbuf_add(&buf, last > cpu ? "%s%d-%d" : "%s%d", buf.len ? "," : "", cpu, last);
        cpu = last;
    }
    return strbuf_take(&buf);
}

int host_choose_cpus(const char *list, cpu_set_t *ret_cpus, char **ret_text, struct error *err)
{
    cpu_set_t allowed, chosen;
    if (sched_getaffinity(0, sizeof allowed, &allowed) < 0)
        return error_set(err, -errno, "failed to read the CPU affinity: %s", strerror(errno));
    if (list) {
        int rc = host_parse_cpus(list, &chosen, err);
        if (rc)
            return rc;
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &chosen) && !CPU_ISSET(cpu, &allowed))
                return error_set(err, -EINVAL, "CPU %d of '%s' is not available here", cpu, list);
    } else {
        chosen = allowed;
        if (CPU_COUNT(&chosen) >= 4) {
            int last = CPU_SETSIZE - 1;
            while (!CPU_ISSET(last, &chosen))
                last--;
            CPU_CLR(last, &chosen);
        }
    }
    *ret_cpus = chosen;
    *ret_text = host_format_cpus(&chosen);
    return 0;
}

static char *host_line(const char *path, const char *prefix)
{
    char *text = string_read_file(path, 1 << 20, NULL);
    char *at = text ? strstr(text, prefix) : NULL;
    char *value = NULL;
    if (at) {
        at += strlen(prefix);
        at += strspn(at, " \t:");
        value = xasprintf("%.*s", (int)strcspn(at, "\n"), at);
    }
    free(text);
    return value;
}

// arm64 has no name there, only numbers: "0x41 0xd4f" is ARM's Neoverse V2.
static char *host_cpu_model(void)
{
    char *name = host_line("/proc/cpuinfo", "model name");
    if (name)
        return name;
    char *maker = host_line("/proc/cpuinfo", "CPU implementer"),
         *part = host_line("/proc/cpuinfo", "CPU part");
    if (maker && part)
        name = xasprintf("%s %s", maker, part);
    free(maker);
    free(part);
    return name;
}

static json_t *host_string(char *text)
{
    json_t *value = text ? json_string(text) : json_null();
    free(text);
    return value ? value : json_null();
}

json_t *host_describe(const char *cpus)
{
    struct utsname uts;
    uname(&uts);
    json_t *host = json_object();
    json_object_set_new(host, "machine_id", host_string(host_line("/etc/machine-id", "")));
    json_object_set_new(host, "hostname", json_string(uts.nodename));
    json_object_set_new(host, "kernel", json_string(uts.release));
    json_object_set_new(host, "architecture", json_string(uts.machine));
    json_object_set_new(host, "cpu_model", host_string(host_cpu_model()));
    json_object_set_new(host, "cpu_count", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    json_object_set_new(host, "cpus_used", json_string(cpus));
    json_object_set_new(host, "memory_bytes",
            json_integer((json_int_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE)));
    return host;
}

// The name and the kernel are part of it: another kernel schedules differently. Without words: a
// container, or a job step, that is started anew may have another name and other CPUs of the same
// machine.
static const struct {
    const char *key, *words;
} host_parts[] = {{"machine_id", "machine"}, {"hostname", NULL}, {"kernel", "kernel"},
        {"cpu_model", "CPU"}, {"cpus_used", NULL}};
enum { HOST_PARTS = sizeof host_parts / sizeof *host_parts };

char *host_changes(const json_t *before, const json_t *now)
{
    struct strbuf text = {0};
    for (int i = 0; i < HOST_PARTS; i++) {
        const char *was = json_string_value(json_object_get(before, host_parts[i].key));
        const char *is = json_string_value(json_object_get(now, host_parts[i].key));
        if (host_parts[i].words && was && is && strcmp(was, is) != 0)
            strbuf_add(&text, "%s%s %.100s, was %.100s", text.len ? "; " : "", host_parts[i].words,
                    is, was);
    }
    return text.len ? strbuf_take(&text) : NULL;
}

void host_set_gpu(json_t *host, const json_t *gpu, const char *visible)
{
    const char *driver = json_string_value(json_object_get(gpu, "driver"));
    struct strbuf text = {0};
    size_t index;
    json_t *device;
    if (!json_is_object(gpu))
        return;
    strbuf_add(&text, "driver %s", driver ? driver : "unknown");
    json_array_foreach(json_object_get(gpu, "devices"), index, device)
    {
        const char *name = json_string_value(json_object_get(device, "name")),
                   *uuid = json_string_value(json_object_get(device, "uuid"));
        strbuf_add(&text, ", %s %s%s", name ? name : "GPU", uuid ? uuid : "",
                json_is_true(json_object_get(device, "mig")) ? " in slices" : "");
    }
    if (visible)
        strbuf_add(&text, ", visible: %s", visible);
    string_make_utf8(text.text, text.len);
    json_object_set_new(host, "gpu", host_string(strbuf_take(&text)));
}

char *host_key(const json_t *host)
{
    struct strbuf key = {0};
    for (int i = 0; i < HOST_PARTS; i++) {
        const char *part = json_string_value(json_object_get(host, host_parts[i].key));
        strbuf_add(&key, "%s%s", i ? "|" : "", part ? part : "");
    }
    json_int_t nodes = json_integer_value(json_object_get(host, "nodes"));
    if (nodes > 1) // what one node shows says nothing about several
        strbuf_add(&key, "|%lld nodes", (long long)nodes);
    const char *gpu = json_string_value(json_object_get(host, "gpu"));
    if (gpu) // nor what one GPU, or a slice of it, shows about another; another driver launches and
             // waits differently
        strbuf_add(&key, "|%s", gpu);
    return strbuf_take(&key);
}

// The beginning of a file, with one read: the kernel makes most of these files anew for every read.
static char *host_head(const char *path)
{
    char text[512];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    return got > 0 ? xasprintf("%.*s", (int)got, text) : NULL;
}

static void host_read_stat(struct host_reading *reading)
{
    char *text = host_head("/proc/stat"); // the first line; that of 256 CPUs has a hundred KiB
    long long t[8] = {0};
    if (text &&
            sscanf(text, "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &t[0], &t[1], &t[2], &t[3],
                    &t[4], &t[5], &t[6], &t[7]) == 8) {
        int64_t tick_ns = 1000000000 / sysconf(_SC_CLK_TCK);
        reading->busy_ns = (t[0] + t[1] + t[2] + t[5] + t[6]) * tick_ns;
        reading->steal_ns = t[7] * tick_ns;
    }
    free(text);
}

int64_t host_steal_ns(void)
{
    struct host_reading reading = {0};
    host_read_stat(&reading);
    return reading.steal_ns;
}

static int64_t host_psi(const char *path)
{
    char *text = host_head(path);
    char *at = text ? strstr(text, "total=") : NULL;
    int64_t ns = at ? strtoll(at + strlen("total="), NULL, 10) * 1000 : -1;
    free(text);
    return ns;
}

// Files of one kind, one a CPU. Which there are does not change while we run: they are looked for
// once.
struct host_files {
    const char *pattern;
    bool known;
    glob_t found;
};

static struct host_files host_throttle = {
        .pattern = "/sys/devices/system/cpu/cpu*/thermal_throttle/core_throttle_count"};
static struct host_files host_freq = {
        .pattern = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq"};

// Sum (or mean) over the files; -1 when there is none.
static int64_t host_sum(struct host_files *files, bool mean)
{
    int64_t sum = 0;
    size_t count = 0;
    if (!files->known && glob(files->pattern, 0, NULL, &files->found))
        files->found = (glob_t){0};
    files->known = true;
    for (size_t i = 0; i < files->found.gl_pathc; i++) {
        char *text = host_head(files->found.gl_pathv[i]);
        sum += text ? strtoll(text, NULL, 10) : 0;
        count += text != NULL;
        free(text);
    }
    return !count ? -1 : mean ? sum / (int64_t)count : sum;
}

int64_t host_oom_kills(void)
{
    char *kills = host_line("/proc/vmstat", "oom_kill ");
    int64_t count = kills ? strtoll(kills, NULL, 10) : -1;
    free(kills);
    return count;
}

void host_read(struct host_reading *ret_reading)
{
    *ret_reading = (struct host_reading){.at_ns = clock_monotonic_ns()};
    ret_reading->boot_minus_mono_ns = clock_boottime_ns() - clock_monotonic_ns();
    double load[1];
    ret_reading->load1 = getloadavg(load, 1) == 1 ? load[0] : NAN;
    host_read_stat(ret_reading);
    ret_reading->psi_cpu_ns = host_psi("/proc/pressure/cpu");
    ret_reading->psi_io_ns = host_psi("/proc/pressure/io");
    ret_reading->psi_memory_ns = host_psi("/proc/pressure/memory");
    ret_reading->throttle_count = host_sum(&host_throttle, false);
    ret_reading->freq_khz = host_sum(&host_freq, true);
    ret_reading->oom_kills = host_oom_kills();
}

static void host_set_delta(json_t *object, const char *name, int64_t before, int64_t after)
{
    json_object_set_new(
            object, name, before < 0 || after < 0 ? json_null() : json_integer(after - before));
}

json_t *host_covariates(
        const struct host_reading *before, const struct host_reading *after, int64_t own_cpu_ns)
{
    json_t *object = json_object();
    json_object_set_new(object, "window_ns", json_integer(after->at_ns - before->at_ns));
    json_object_set_new(
            object, "load1", isnan(after->load1) ? json_null() : json_real(after->load1));
    host_set_delta(object, "steal_ns", before->steal_ns, after->steal_ns);
    host_set_delta(object, "psi_cpu_ns", before->psi_cpu_ns, after->psi_cpu_ns);
    host_set_delta(object, "psi_io_ns", before->psi_io_ns, after->psi_io_ns);
    host_set_delta(object, "psi_memory_ns", before->psi_memory_ns, after->psi_memory_ns);
    host_set_delta(object, "throttle_events", before->throttle_count, after->throttle_count);
    host_set_delta(object, "suspended_ns", 0,
            llabs(after->boot_minus_mono_ns - before->boot_minus_mono_ns));
    host_set_delta(object, "oom_kills", before->oom_kills, after->oom_kills);
    json_object_set_new(
            object, "freq_khz", after->freq_khz < 0 ? json_null() : json_integer(after->freq_khz));
    // /proc/stat counts in ticks of 10 ms: a small negative rest is rounding, not time travel.
    int64_t foreign = after->busy_ns - before->busy_ns - own_cpu_ns;
    json_object_set_new(object, "foreign_cpu_ns",
            own_cpu_ns < 0 ? json_null() : json_integer(foreign > 0 ? foreign : 0));
    return object;
}

int64_t host_memory_available_bytes(void)
{
    char *text = host_line("/proc/meminfo", "MemAvailable");
    int64_t bytes = text ? strtoll(text, NULL, 10) * 1024 : -1;
    free(text);
    return bytes;
}

static cpu_set_t host_allowed; // when the priority was raised; empty = it was not

int host_raise_priority(void)
{
    struct sched_param param = {.sched_priority = 1};
    // The children of a launch must not inherit it.
    if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param) < 0)
        return -errno;
    if (sched_getaffinity(0, sizeof host_allowed, &host_allowed) < 0)
        CPU_ZERO(&host_allowed);
    return 0;
}

void host_join_cpus(const cpu_set_t *used)
{
    if (CPU_COUNT(used) != 1)
        host_leave_cpus(used);
    else if (CPU_COUNT(&host_allowed))
        sched_setaffinity(0, sizeof *used, used);
}

void host_leave_cpus(const cpu_set_t *used)
{
    cpu_set_t free_cpus = host_allowed;
    if (!CPU_COUNT(&host_allowed))
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, used))
            CPU_CLR(cpu, &free_cpus);
    sched_setaffinity(0, sizeof free_cpus, CPU_COUNT(&free_cpus) ? &free_cpus : &host_allowed);
}

void host_take_cpus(const char *path, cpu_set_t *cpus)
{
    cpu_set_t listed;
    char *text = string_read_file(path, 65536, NULL);
    if (text)
        text[strcspn(text, "\n")] = 0;
    bool some = text && *text && host_parse_cpus(text, &listed, NULL) == 0;
    for (int cpu = 0; some && cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &listed))
            CPU_CLR(cpu, cpus);
    free(text);
}
