// SPDX-License-Identifier: Apache-2.0
// Who is who: processes and threads that records name, with command line, life time and row. A pid
// that was given to another process is another row. Reads /proc when a process is first named and
// when it calls exec, which is the only chance with short-lived ones. One thread.
#ifndef UPGATE_TRACER_RECORD_TASKS_H
#define UPGATE_TRACER_RECORD_TASKS_H

#include <stdbool.h>
#include <stdint.h>

#include "bpf/events.h"
#include "tracer/record/writer.h"

enum {
    TASKS_MAX = 65536, // processes or threads remembered at one time; beyond it strangers are not
                       // named, targets are
};

enum task_kind { TASK_OTHER, TASK_TARGET, TASK_KERNEL, TASK_IDLE };

struct python; // of python.h: one a target process that runs Python

struct task_process {
    struct task_process *next;
    uint32_t id; // row; 0: no record named it yet
    uint32_t tgid, ppid;
    uint64_t start_ns;   // CLOCK_BOOTTIME; 0: not known
    uint32_t generation; // of the address space: exec counts it up
    char comm[UG_COMM_LEN + 1];
    int64_t named_ns; // when it had this name
    char *cmdline;
    enum task_kind kind;
    bool dirty, ended, has_exit, snapshot;
    bool has_left; // it was a target, and is another recorder's, although the kernel side still
                   // tells of it (tasks_leave)
    int64_t started_ns, ended_ns;
    int32_t exit_code;
    int64_t checked_ns; // when it was last compared with /proc
    struct python *python;
    int64_t python_next_ns; // when to look for an interpreter again; INT64_MAX: never
    uint32_t python_tries;
    uint32_t rank_generation; // of the address space whose environment was looked through for a
                              // rank; counted from 1
    int64_t ask_next_ns; // when its command line and environment, which did not come in time, are
                         // asked for again; 0: they did
    uint32_t asked_late; // how often in a row that was so
};

// A process that its launcher made a rank of a job.
struct task_rank {
    uint32_t tgid;
    uint64_t start_ns;
    int32_t rank, ranks;
};

// What a look at a sleeping thread found, for the stay off the CPU that goes on.
struct task_look {
    int64_t begin_ns, end_ns; // of the Python walk; 0: none
    uint32_t python_stack;
    bool gil;                         // the walk was made for a wait for the GIL
    int64_t at_ns;                    // when owner was found
    uint32_t owner, lock_kind, flags; // of what it waits for
    uint64_t blocker;
};

struct task_thread {
    struct task_thread *next;
    struct task_process *process;
    uint32_t id; // row
    uint32_t tid;
    char comm[UG_COMM_LEN + 1];
    int64_t named_ns; // when it had this name
    bool dirty, ended;
    int64_t started_ns, ended_ns;
    struct task_look look;
    uint64_t walked_switch_count; // the stay off the CPU that was walked last
    uint64_t sleep_switch_count;  // and the one that was seen last, since sleep_since_ns
    int64_t sleep_since_ns;
};

struct tasks;

struct tasks *tasks_new(struct writer *writer, int64_t recording_id);
void tasks_free(struct tasks *tasks,
        void (*process_gone)(void *context, struct task_process *process), void *context);

// The thread a record names as it was at a time (0: now); NULL when it names nobody (tid 0 without
// a name) or too many are known. The newest name is kept: records are read late, and tell of a
// waker, of who got the CPU a second ago, of an owner now.
struct task_thread *tasks_thread(struct tasks *tasks, const struct ug_task *task, int64_t at_ns);
// The same, as a row's id: 0 = nobody. idle: tid 0 is the idle task even without a name.
uint32_t tasks_thread_id(struct tasks *tasks, const struct ug_task *task, int64_t at_ns, bool idle);
// known and alive, or NULL
struct task_thread *tasks_thread_by_tid(struct tasks *tasks, uint32_t tid);
void tasks_make_target(struct tasks *tasks, struct task_process *process); // not one that has left
// It and what descends from it are strangers from here on, and no ranks, whatever records say;
// until tasks_target.
void tasks_leave(struct tasks *tasks, uint32_t tgid);
bool tasks_is_target(struct tasks *tasks, uint32_t tgid);  // and lives
bool tasks_was_target(struct tasks *tasks, uint32_t tgid); // or ended less than 5 s ago
// birth, exec, death, name
void tasks_event(struct tasks *tasks, const struct ug_task_event *event);
// Of a living process, where nobody tells of exec: its name and command line may be others now.
void tasks_read_again(struct task_process *process);
// A process asked for before any record of it. NULL: there is none.
struct task_process *tasks_target(struct tasks *tasks, uint32_t tgid);

// Write what changed; forget those that ended 5 s ago. Calls process_gone before a process is
// freed.
void tasks_flush(struct tasks *tasks, int64_t now_ns, bool all,
        void (*process_gone)(void *context, struct task_process *process), void *context);
// Command lines and environments that did not come in time are asked for less and less often: by
// the next flush once more, for it is the last.
void tasks_ask_again(struct tasks *tasks);
uint32_t tasks_targets_alive(struct tasks *tasks, int64_t now_ns); // asks /proc about each
void tasks_each_target(struct tasks *tasks,
        void (*each)(void *context, struct task_process *process), void *context);
// The ranks among the processes of the target so far, in the order in which they were seen. They
// belong to tasks.
const struct task_rank *tasks_ranks(const struct tasks *tasks, size_t *ret_count);
uint64_t tasks_dropped(const struct tasks *tasks);
uint32_t tasks_target_threads(const struct tasks *tasks); // rows of threads of the target so far

#endif
