// SPDX-License-Identifier: Apache-2.0
// The one reader of /proc/PID. Everything is read in one read(2): the kernel makes such a text for
// every one anew.
#include "common/proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "common/target/file.h"

enum { PROC_STAT_BYTES = 2048, PROC_STATUS_BYTES = 8192, PROC_STAT_FIELDS = 41 };

static int proc_text(const char *dir, const char *name, char *ret, size_t size)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, ret, size - 1);
    int code = got < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    if (code || !got)
        return code == ENOENT || !got ? -ESRCH : -code;
    ret[got] = '\0';
    return 0;
}

int proc_stat_read(const char *dir, struct proc_stat *ret)
{
    char text[PROC_STAT_BYTES];
    int code = proc_text(dir, "stat", text, sizeof text);
    if (code)
        return code;
    // the name between them may hold anything
    char *name = strchr(text, '('), *at = strrchr(text, ')');
    if (!name || !at || at < name || at[1] != ' ' || !at[2])
        return -EBADMSG;
    *ret = (struct proc_stat){.state = at[2]};
    *at = '\0';
    snprintf(ret->comm, sizeof ret->comm, "%s", name + 1);
    uint64_t field[PROC_STAT_FIELDS + 1] = {0}; // numbered as in proc(5)
    int count = 3;
    for (at += 3; *at == ' ' && count < PROC_STAT_FIELDS; at += strcspn(at, " \n"))
        field[++count] = strtoull(++at, NULL, 10);
    if (count < 22)
        return -EBADMSG;
    ret->parent = (pid_t)field[4];
    ret->flags = (uint32_t)field[9];
    ret->nice = (int64_t)field[19];
    ret->threads = (uint32_t)field[20];
    ret->start_ticks = field[22] - (uint64_t)(clock_boottime_ahead_ns() / PROC_TICK_NS);
    ret->code_begin = field[26];
    ret->code_end = field[27];
    ret->stack_begin = field[28];
    ret->realtime_priority = (uint32_t)field[40];
    ret->policy = (uint32_t)field[41];
    return 0;
}

bool proc_same_start(uint64_t start_ticks, uint64_t as_told)
{
    return start_ticks - as_told + 1 <= 2; // a pid is not given anew within two ticks
}

int proc_stat_of(pid_t pid, struct proc_stat *ret)
{
    char dir[32];
    snprintf(dir, sizeof dir, "/proc/%d", (int)pid);
    return proc_stat_read(dir, ret);
}

bool proc_stat_ended(const struct proc_stat *stat)
{
    return stat->state == 'Z' || stat->state == 'X';
}

// Behind "KEY:" and blanks, to the end of all; NULL: there is no such line.
static const char *proc_status_find(const char *text, const char *key)
{
    size_t len = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        if (strncmp(line, key, len) == 0 && line[len] == ':')
            return line + len + 1 + strspn(line + len + 1, " \t");
    return NULL;
}

int proc_status_read(const char *dir, const char *key, char *ret, size_t size)
{
    char text[PROC_STATUS_BYTES];
    int code = proc_text(dir, "status", text, sizeof text);
    const char *value = code ? NULL : proc_status_find(text, key);
    if (!value)
        return code ? code : -EBADMSG;
    snprintf(ret, size, "%.*s", (int)strcspn(value, "\n"), value);
    return 0;
}

int proc_status_numbers(const char *dir, const char *const *keys, int count, int64_t *ret)
{
    char text[PROC_STATUS_BYTES];
    int code = proc_text(dir, "status", text, sizeof text);
    for (int i = 0; i < count && !code; i++) {
        const char *value = proc_status_find(text, keys[i]);
        // strtoll() would go on to the next line for a number.
        ret[i] = value && strspn(value, "-0123456789") ? strtoll(value, NULL, 10) : -1;
    }
    return code;
}

pid_t proc_tgid(pid_t tid)
{
    const char *key = "Tgid";
    char dir[64];
    int64_t tgid = -1;
    snprintf(dir, sizeof dir, "/proc/%d", (int)tid);
    int code = proc_status_numbers(dir, &key, 1, &tgid);
    return code ? code : tgid > 0 ? (pid_t)tgid : -ESRCH;
}

int64_t proc_status_number(const char *dir, const char *key)
{
    int64_t value = -1;
    return proc_status_numbers(dir, &key, 1, &value) ? -1 : value;
}

char *proc_variable_of(const char *text, size_t len, const char *name)
{
    size_t name_len = strlen(name);
    for (size_t at = 0; at < len; at += strlen(text + at) + 1)
        if (strncmp(text + at, name, name_len) == 0 && text[at + name_len] == '=')
            return xstrdup(text + at + name_len + 1);
    return NULL;
}

char *proc_variable(const char *dir, const char *name)
{
    char *path = xasprintf("%s/environ", dir);
    size_t len = 0;
    char *text = string_read_file(path, 1 << 20, &len),
         *found = text ? proc_variable_of(text, len, name) : NULL;
    free(path);
    free(text);
    return found;
}

int proc_pids(const char *dir, pid_t *ret_outer, pid_t *ret_inner)
{
    char pids[512]; // at most 32 namespaces deep
    int code = proc_status_read(dir, "NSpid", pids, sizeof pids), depth = 0;
    if (code == -EBADMSG) // a kernel before 4.1, or without namespaces
        code = proc_status_read(dir, "Pid", pids, sizeof pids);
    if (code)
        return 0;
    for (char *at = pids, *end;; at = end, depth++) {
        long pid = strtol(at, &end, 10);
        if (end == at)
            return depth;
        *ret_inner = (pid_t)pid;
        if (!depth)
            *ret_outer = (pid_t)pid;
    }
}

pid_t proc_inner_pid(const char *dir)
{
    pid_t outer, inner;
    return proc_pids(dir, &outer, &inner) ? inner : 0;
}

static uint64_t proc_pid_namespace(const char *name)
{
    struct stat status;
    char path[300];
    snprintf(path, sizeof path, "/proc/%s/ns/pid", name);
    return stat(path, &status) ? 0 : status.st_ino;
}

// The entry of a directory of processes or threads whose innermost number this is; namespace 0:
// any.
static pid_t proc_find_inner(const char *dir_path, pid_t inner, uint64_t pid_namespace)
{
    DIR *dir = opendir(dir_path);
    struct dirent *entry;
    pid_t found = -1;
    while (dir && found < 0 && (entry = readdir(dir))) {
        char path[300 + sizeof entry->d_name];
        snprintf(path, sizeof path, "%s/%s", dir_path, entry->d_name);
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
                (!pid_namespace || proc_pid_namespace(entry->d_name) == pid_namespace) &&
                proc_inner_pid(path) == inner)
            found = (pid_t)strtol(entry->d_name, NULL, 10);
    }
    if (dir)
        closedir(dir);
    return found;
}

pid_t proc_outer_pid(pid_t inner, uint64_t pid_namespace)
{
    if (!pid_namespace || pid_namespace == proc_pid_namespace("self"))
        return inner;
    return proc_find_inner("/proc", inner, pid_namespace);
}

pid_t proc_outer_tid(pid_t outer_pid, pid_t inner_tid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)outer_pid);
    return proc_find_inner(path, inner_tid, 0);
}

bool proc_mapping_parse(char *line, struct proc_mapping *ret)
{
    struct proc_mapping one = {0};
    unsigned major_id, minor_id;
    int path_at = 0;
    int fields = sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %x:%x %" SCNu64 " %n",
            &one.begin, &one.end, one.permissions, &one.offset, &major_id, &minor_id, &one.inode,
            &path_at);
    if (fields < 7 || !path_at)
        return false;
    one.device = makedev(major_id, minor_id);
    one.path = line + path_at;
    one.path[strcspn(one.path, "\n")] = '\0';
    *ret = one;
    return true;
}

static int proc_lines_open(const char *dir, const char *name, struct proc_maps *ret)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    *ret = (struct proc_maps){.file = fopen(path, "re")};
    return ret->file ? 0 : -errno;
}

int proc_maps_open(const char *dir, struct proc_maps *ret)
{
    return proc_lines_open(dir, "maps", ret);
}

int proc_maps_ask(const char *dir, struct proc_maps *ret)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/maps", dir);
    *ret = (struct proc_maps){.file = target_file_stream(path)};
    return ret->file ? 0 : -errno;
}

bool proc_maps_next(struct proc_maps *maps, struct proc_mapping *ret)
{
    while (getline(&maps->line, &maps->room, maps->file) > 0)
        if (proc_mapping_parse(maps->line, ret))
            return true;
    return false;
}

int proc_maps_close(struct proc_maps *maps)
{
    int code = maps->file && ferror(maps->file) ? -EIO : 0;
    if (maps->file)
        fclose(maps->file);
    free(maps->line);
    *maps = (struct proc_maps){0};
    return code;
}

int proc_smaps_open(const char *dir, struct proc_smaps *ret)
{
    *ret = (struct proc_smaps){0};
    return proc_lines_open(dir, "smaps", &ret->lines);
}

// "Rss:      132 kB"
static void proc_usage_line(const char *line, const char *key, int64_t *ret_bytes)
{
    size_t len = strlen(key);
    if (strncmp(line, key, len) != 0)
        return;
    uint64_t kib = strtoull(line + len, NULL, 10);
    *ret_bytes = kib < INT64_MAX / 1024 ? (int64_t)kib * 1024 : 0;
}

bool proc_smaps_next(struct proc_smaps *smaps, struct proc_usage *ret)
{
    struct proc_maps *lines = &smaps->lines;
    *ret = (struct proc_usage){0};
    if (!smaps->ahead && !proc_maps_next(lines, &ret->mapping))
        return false;
    char *header = lines->line;
    size_t room = lines->room;
    lines->line = smaps->header;
    lines->room = smaps->room;
    smaps->header = header;
    smaps->room = room;
    proc_mapping_parse(header, &ret->mapping); // it was one when it was read
    smaps->ahead = false;
    while (!smaps->ahead && getline(&lines->line, &lines->room, lines->file) > 0) {
        struct proc_mapping next;
        smaps->ahead = proc_mapping_parse(lines->line, &next);
        proc_usage_line(lines->line, "Rss:", &ret->resident_bytes);
        proc_usage_line(lines->line, "Anonymous:", &ret->anonymous_bytes);
    }
    return true;
}

int proc_smaps_close(struct proc_smaps *smaps)
{
    free(smaps->header);
    int code = proc_maps_close(&smaps->lines);
    *smaps = (struct proc_smaps){0};
    return code;
}
