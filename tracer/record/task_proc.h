// SPDX-License-Identifier: Apache-2.0
// What /proc tells of one process.
#ifndef UPGATE_TRACER_RECORD_TASK_PROC_H
#define UPGATE_TRACER_RECORD_TASK_PROC_H

#include <stdbool.h>
#include <stdint.h>

#include "bpf/events.h"

enum {
    TASK_PF_KTHREAD = 0x00200000,   // of flags
    TASK_CMDLINE_MAX = 2048,        // bytes kept of a command line
    TASK_ENVIRONMENT_MAX = 1 << 18, // bytes looked through for a rank, or a variable
};

struct task_stat {
    char state;
    uint32_t ppid, flags, threads;
    uint64_t start_ns;
    char comm[UG_COMM_LEN + 1];
};

bool task_stat_read(uint32_t tgid, struct task_stat *ret); // false: gone
// These three wait for the process's mmap lock a tenth of a second at most: then *ret_later says
// that there may be an answer 2 s later. Arguments joined by blanks; NULL: gone, or a kernel
// thread; caller frees.
char *task_cmdline_read(uint32_t tgid, bool *ret_later);
// The value of a variable in its environment at exec; NULL: unset, or it cannot be read; caller
// frees.
char *task_variable_read(uint32_t tgid, const char *name);
// Which rank of a job its launcher made it, by its environment at exec (common/launcher.h). false:
// none says so, or the environment cannot be read.
bool task_rank_read(uint32_t tgid, int32_t *ret_rank, int32_t *ret_ranks, bool *ret_later);
void task_comm_set(char *comm, const char *from); // comm: UG_COMM_LEN + 1 bytes; made valid UTF-8

#endif
