// SPDX-License-Identifier: Apache-2.0
// What /proc tells of one process.
#include "tracer/record/task_proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

void task_comm_set(char *comm, const char *from)
{
    snprintf(comm, UG_COMM_LEN + 1, "%.*s", UG_COMM_LEN, from);
    string_make_utf8(comm, strlen(comm));
}

bool task_stat_read(uint32_t tgid, struct task_stat *ret)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/stat", tgid);
    char *text = string_read_file(path, 2048, NULL);
    char *begin = text ? strchr(text, '(') : NULL, *end = text ? strrchr(text, ')') : NULL;
    unsigned long long start = 0;
    bool ok = begin && end && end > begin &&
              sscanf(end + 1, " %c %u %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %u %*d %llu",
                     &ret->state, &ret->ppid, &ret->flags, &ret->threads, &start) == 5;
    if (ok) {
        *end = 0;
        task_comm_set(ret->comm, begin + 1);
        ret->start_ns = start * TASK_TICK_NS;
    }
    free(text);
    return ok;
}

uint32_t task_tgid_read(uint32_t tid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/status", tid);
    char *text = string_read_file(path, 4096, NULL);
    const char *at = text ? strstr(text, "\nTgid:") : NULL;
    uint32_t tgid = at ? (uint32_t)strtoul(at + strlen("\nTgid:"), NULL, 10) : 0;
    free(text);
    return tgid;
}

char *task_cmdline_read(uint32_t tgid)
{
    char path[64];
    size_t len = 0;
    snprintf(path, sizeof path, "/proc/%u/cmdline", tgid);
    char *text = string_read_file(path, TASK_CMDLINE_MAX, &len);
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
