// SPDX-License-Identifier: Apache-2.0
// What /proc tells of one process.
#include "tracer/record/task_proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/launcher.h"
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

bool task_rank_read(uint32_t tgid, int32_t *ret_rank, int32_t *ret_ranks)
{
    char path[64];
    size_t len = 0;
    snprintf(path, sizeof path, "/proc/%u/environ", tgid);
    char *text = target_file_text(path, TASK_ENVIRONMENT_MAX, &len);
    struct launcher_rank found;
    bool told = text && launcher_find_block(text, len, &found);
    if (told) {
        *ret_rank = found.rank;
        *ret_ranks = found.ranks;
    }
    free(text);
    return told;
}

char *task_variable_read(uint32_t tgid, const char *name)
{
    char path[64];
    size_t len = 0;
    snprintf(path, sizeof path, "/proc/%u/environ", tgid);
    char *text = target_file_text(path, TASK_ENVIRONMENT_MAX, &len), *found = text ? proc_variable_of(text, len, name) : NULL;
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
