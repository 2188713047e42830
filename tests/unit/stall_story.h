// SPDX-License-Identifier: Apache-2.0
// A recording that tells one story, in few lines: processes, gaps, samples and locks written to a
// fresh store as the recorder writes them. Times are milliseconds since the begin of a window of 10
// s. Stacks are texts, leaf first, "a;b;c"; Python frames are "function@file.py:12", native ones
// may be "function|library.so". The file goes at the end.
#ifndef UPGATE_TESTS_STALL_STORY_H
#define UPGATE_TESTS_STALL_STORY_H

#include "bpf/events.h"
#include "reports/analyse/stalls/stalls.h"
#include "tests/unit/runner.h"

enum { STORY_FRAMES_MAX = 512, STORY_WINDOW_MS = 10000 };

struct story {
    struct store *store;
    char dir[64], path[96];
    int64_t recording, main, worker,
            idle_task; // threads: the trainer's main thread, a second one, swapper
    int64_t process;   // the trainer
    int frame_count;
    char *frames[STORY_FRAMES_MAX];
    struct stalls *stalls;
};

// A trainer `python3 train.py` (pid 1000, thread 1001 besides the main one) that works all the
// time: its main thread has samples everywhere.
void story_open(struct story *story);
void story_open_quiet(struct story *story); // the same without samples of work
void story_close(struct story *story);
void story_sql(struct story *story, const char *sql);
int64_t story_ns(double ms); // as the store has it

int64_t story_process(struct story *story, const char *kind, int pid, int ppid, const char *comm,
        const char *cmdline);
int64_t story_leader(struct story *story, int64_t process); // its main thread
int64_t story_thread(struct story *story, int64_t process, int tid, const char *comm);
int64_t story_other(struct story *story, int pid, const char *comm,
        const char *cmdline); // a process of somebody else; its thread
// The launcher made the process such a rank of a job of so many.
void story_rank(struct story *story, int pid, int rank, int ranks);
int64_t story_stack(struct story *story, char kind, const char *frames); // 0 for NULL

struct story_gap {
    int64_t thread;         // 0: main
    double out, waking, in; // waking 0: it stayed runnable
    unsigned state, flags;
    const char *kernel, *user, *python, *waker_stack, *target;
    int64_t waker, next, before, owner;
    int next_prio, before_prio; // 0: 120
    int lock_kind;
    int64_t lock, arg0;
    int syscall; // 0: none
    int cpu;
};
void story_gap(struct story *story, struct story_gap gap);

struct story_samples {
    int64_t thread; // 0: main
    double from, to;
    unsigned why; // 0: UG_SAMPLE_TARGET
    const char *kernel, *user, *python;
    int cpu;
    double every; // 0: a tick, 5.025 ms
};
void story_samples(struct story *story, struct story_samples samples);

struct story_lock {
    int64_t thread;
    double begin, end;
    int kind;
    int64_t owner;
    bool reader;
    const char *kernel, *owner_stack;
};
void story_lock(struct story *story, struct story_lock lock);
void story_fact(struct story *story, int what, double begin, double end, int64_t target,
        int64_t actor, int64_t value0);
void story_counter(
        struct story *story, const char *source, const char *name, double at, int64_t value);
void story_step(struct story *story, int idx, double begin, double length);
void story_total(struct story *story, int64_t thread, double run_ms);

// Analyse (again). Fails the case when that fails.
struct stalls *story_analyse(struct story *story);
const struct stall *story_top(
        struct story *story); // of story_analyse; a stall "(none)" when there is none
const struct stall *story_find(struct story *story, const char *cause); // NULL: not among them
// Nobody is named for more than 1 % of the window.
void story_check_innocent(struct story *story);

// Stacks that many stories need.
#define STORY_SYSCALL ";do_syscall_64;entry_SYSCALL_64_after_hwframe"
#define STORY_MMAP_WAIT \
    "schedule;schedule_preempt_disabled;rwsem_down_write_slowpath;down_write_killable;vm_mmap_" \
    "pgoff" STORY_SYSCALL
#define STORY_FUTEX_WAIT \
    "schedule;futex_do_wait;__futex_wait;futex_wait;do_futex;__x64_sys_futex" STORY_SYSCALL
#define STORY_SMAPS \
    "smaps_account;smaps_pte_range;walk_pgd_range;walk_page_vma;show_smaps_rollup;seq_read_iter;" \
    "vfs_read" STORY_SYSCALL
#define STORY_SMAPS_UNLOCK \
    "wake_up_q;rwsem_wake;up_read;show_smaps_rollup;seq_read_iter;vfs_read" STORY_SYSCALL
#define STORY_TIMER \
    "hrtimer_wakeup;__hrtimer_run_queues;hrtimer_interrupt;sysvec_apic_timer_interrupt;asm_" \
    "sysvec_apic_timer_interrupt"
#define STORY_DISK_DONE \
    "folio_end_read;__read_end_io;bio_endio;blk_update_request;blk_done_softirq;handle_softirqs;" \
    "asm_common_interrupt"
#define STORY_FUTEX_WAKE "wake_up_q;futex_wake;do_futex;__x64_sys_futex" STORY_SYSCALL

#endif
