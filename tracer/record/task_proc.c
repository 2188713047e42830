// SPDX-License-Identifier: Apache-2.0
// What /proc tells of one process.
#include "tracer/record/task_proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/proc.h"
#include "common/strings.h"
#include "common/target/file.h"

void task_comm_set(char *comm, const char *from)
{
    snprintf(comm, UG_COMM_LEN + 1, "%.*s", UG_COMM_LEN, from);
    string_make_utf8(comm, strlen(comm));
}

bool task_stat_read(uint32_t tgid, struct task_stat *ret)
{
    struct proc_stat stat;
    if (proc_stat_of((pid_t)tgid, &stat))
        return false;
    *ret = (struct task_stat){.state = stat.state,
                              .ppid = (uint32_t)stat.parent,
                              .flags = stat.flags,
                              .threads = stat.threads,
                              .start_ns = stat.start_ticks * TASK_TICK_NS};
    task_comm_set(ret->comm, stat.comm);
    return true;
}

uint32_t task_tgid_read(uint32_t tid)
{
    char dir[64];
    snprintf(dir, sizeof dir, "/proc/%u", tid);
    int64_t tgid = proc_status_number(dir, "Tgid");
    return tgid > 0 ? (uint32_t)tgid : 0;
}

// A number of the environment, whose texts stand one behind the other, each ended by 0; -1: not there, or none.
static int32_t task_environment_number(const char *text, size_t len, const char *name)
{
    size_t name_len = strlen(name);
    for (const char *at = text, *end = text + len; at < end; at += strnlen(at, (size_t)(end - at)) + 1) {
        if ((size_t)(end - at) <= name_len || strncmp(at, name, name_len) != 0 || at[name_len] != '=')
            continue;
        const char *digits = at + name_len + 1;
        size_t count = strspn(digits, "0123456789"); // the text is followed by a 0
        return count > 0 && count < 9 && digits[count] == 0 ? (int32_t)strtol(digits, NULL, 10) : -1;
    }
    return -1;
}

bool task_rank_read(uint32_t tgid, int32_t *ret_rank, int32_t *ret_ranks)
{
    static const char *const names[][2] = {{"RANK", "WORLD_SIZE"},
                                           {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"},
                                           {"SLURM_PROCID", "SLURM_NTASKS"}};
    char path[64];
    size_t len = 0;
    snprintf(path, sizeof path, "/proc/%u/environ", tgid);
    char *text = target_file_text(path, TASK_ENVIRONMENT_MAX, &len);
    bool found = false;
    for (size_t i = 0; text && i < sizeof names / sizeof names[0] && !found; i++) {
        int32_t rank = task_environment_number(text, len, names[i][0]),
                ranks = task_environment_number(text, len, names[i][1]);
        found = rank >= 0 && rank < ranks;
        if (found) {
            *ret_rank = rank;
            *ret_ranks = ranks;
        }
    }
    free(text);
    return found;
}

char *task_cmdline_read(uint32_t tgid)
{
    char path[64];
    size_t len = 0;
    snprintf(path, sizeof path, "/proc/%u/cmdline", tgid);
    char *text = target_file_text(path, TASK_CMDLINE_MAX, &len);
    while (text && len && text[len - 1] == 0)
        len--;
    if (!text || !len) {
        free(text);
        return NULL;
    }
    for (size_t i = 0; i < len; i++)
        if (text[i] == 0)
            text[i] = ' ';
    text[len] = 0;
    string_make_utf8(text, len);
    return text;
}
