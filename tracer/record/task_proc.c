// SPDX-License-Identifier: Apache-2.0
// What /proc tells of one process.
#include "tracer/record/task_proc.h"

#include <errno.h>
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
            .start_ns = stat.start_ticks * PROC_TICK_NS};
    task_comm_set(ret->comm, stat.comm);
    return true;
}

// At most max bytes of a file that waits for the process's mmap lock, and a NUL behind them. NULL:
// it cannot be read, or, *ret_later, not now.
static char *task_text(
        uint32_t tgid, const char *name, size_t max, size_t *ret_len, bool *ret_later)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/%s", tgid, name);
    FILE *file = target_file_stream(path);
    *ret_later = !file && errno == EAGAIN;
    if (!file)
        return NULL;
    char *text = xrealloc(NULL, max + 1);
    *ret_len = fread(text, 1, max, file);
    text[*ret_len] = '\0';
    *ret_later = ferror(file);
    fclose(file);
    if (*ret_later) {
        free(text);
        return NULL;
    }
    return text;
}

bool task_rank_read(uint32_t tgid, int32_t *ret_rank, int32_t *ret_ranks, bool *ret_later)
{
    size_t len = 0;
    char *text = task_text(tgid, "environ", TASK_ENVIRONMENT_MAX, &len, ret_later);
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
    size_t len = 0;
    bool later;
    char *text = task_text(tgid, "environ", TASK_ENVIRONMENT_MAX, &len, &later),
         *found = text ? proc_variable_of(text, len, name) : NULL;
    free(text);
    return found;
}

char *task_cmdline_read(uint32_t tgid, bool *ret_later)
{
    size_t len = 0;
    char *text = task_text(tgid, "cmdline", TASK_CMDLINE_MAX, &len, ret_later);
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
