// SPDX-License-Identifier: Apache-2.0
// Sentences about stalls, the same in the table and in Markdown. Internal to this room and to who
// tells of a straggler. Pure; the caller frees what is returned. Texts of the store are not cleaned
// here.
#ifndef UPGATE_REPORTS_STALLS_TEXT_H
#define UPGATE_REPORTS_STALLS_TEXT_H

#include "common/strings.h"
#include "reports/render/stalls/stalls_view.h"
#include "reports/render/text/numbers.h"

enum stalls_name_form {
    STALLS_NAME_SHORT,   // "trainer.py"
    STALLS_NAME_PROGRAM, // "python3 agent.py"
};

// What a person calls the process: its script, its module, or its program.
char *stalls_text_name(const struct stall_task *task, enum stalls_name_form form);
// "trainer.py (pid 4121)", "kernel thread kcompactd0 (pid 51)", "nobody seen"
char *stalls_text_task(const struct stall_task *task, enum stalls_name_form form);
// "Python stacks: they were not walked", of a Python program; NULL else.
const char *stalls_text_blind(const struct stalls_recording *recording);
// "thread 4127 "pt_data_worker" of trainer.py (pid 4121)"
char *stalls_text_thread(const struct stall_task *task);
// The same within its process: "thread 4127 "pt_data_worker"".
char *stalls_text_own(const struct stall_task *task);

// Into a buffer of NUMBERS_SIZE, which is returned.
char *stalls_text_share(double fraction, char *buf);        // 0.142 -> "14.2 %"
char *stalls_text_confidence(double confidence, char *buf); // "98 %"

// Part of the window in which the cause held up one thread at least.
double stalls_text_fraction(const struct stalls *stalls, const struct stall *stall);

// "trainer.py (pid 4121) lost 14.2 % of 30 s: python3 agent.py (pid 4188) reads its smaps_rollup
// every 300 ms and holds its mmap_lock meanwhile"
char *stalls_text_answer(const struct stalls_shown *shown);
// The same for any of its causes, without the part before the colon.
char *stalls_text_blame(const struct stall *stall);

// "GPU-1a2b3c4d", as much of its UUID as tells it from others, or "GPU 0"; model: "GPU-1a2b3c4d
// NVIDIA H100". NULL: it has none
char *stalls_text_gpu(const struct stall_gpu *gpu, bool model);
// "rank 1 of 2 (ddp.py, pid 4188)", of a straggler; with a GPU "(ddp.py, pid 4188, GPU-1a2b3c4d
// NVIDIA H100)"
char *stalls_text_rank(const struct stall *stall);
// "computing in prepare_features (ddp.py), some 4 ms more than the others each time": what it did
// meanwhile
char *stalls_text_what(const struct stall *stall);
// "Start-up, 26 s before the first step, and exit, 1.2 s behind the last": the head of what lies
// outside of the work.
char *stalls_text_outside(const struct stalls *stalls);

// The list of causes, the same in the terminal and in Markdown.
enum stalls_column {
    STALLS_COLUMN_RANK,
    STALLS_COLUMN_CAUSE,
    STALLS_COLUMN_LOST,
    STALLS_COLUMN_SHARE,
    STALLS_COLUMN_COUNT,
    STALLS_COLUMN_LONGEST,
    STALLS_COLUMN_PERIOD,
    STALLS_COLUMN_CULPRIT,
    STALLS_COLUMN_SURE,
    STALLS_COLUMNS
};
extern const char *const stalls_heads[STALLS_COLUMNS];
bool stalls_column_is_right(int column); // of numbers
// Stall i of the list; title: by its title, else by its identifier. Shares are of window_ns.
void stalls_text_row(
        const struct stall *stall, size_t i, int64_t window_ns, bool title, char **ret_row);

// "4.26 s, 98 times in 2 threads, the longest 137 ms; 4.2 s blocked, 60 ms waiting for a CPU"
char *stalls_text_lost(const struct stall *stall);
// "dlrm-train, candidate (torch 2.x), pair 3", or "recording 2"
char *stalls_text_recording(const struct stalls_recording *recording);
// "30 s of trainer.py (pid 4121), 12 threads; waits of 1 ms and longer, 199 samples a second"
char *stalls_text_watched(const struct stalls_shown *shown);
// One frame: "libfoo.so+0x1234 (inside at::_ops::index_add)" of a function without a name.
char *stalls_text_frame(const struct stall_stack *stack, size_t i);
// Frames of interest, leaf first, at most `max`: the kernel's way in and out of the scheduler is
// left out. "a < b < c < 12 more"; "" for no frames.
char *stalls_text_stack(const struct stall_stack *stack, size_t max, bool utf8);
// Is this function the first frame that it shows?
bool stalls_text_begins(const struct stall_stack *stack, const char *function);
// "main thread 4121 "python3" -> python3 agent.py (pid 4188), mmap_lock": one link
char *stalls_text_link(const struct stall *stall, const struct stall_link *link, bool utf8);
// "61 of 200 steps"; NULL when there were no steps.
char *stalls_text_steps(const struct stall *stall);
int64_t stalls_text_dropped(const struct stalls *stalls); // events that were lost, of all kinds
const char *stalls_text_breach_detail(const struct stall_breach *breach); // NULL: none
char *stalls_text_breach(
        const struct stall_breach *breach); // "bpf gaps: 12 dropped, the ring was full"

// ---- stalls_reasons.c: what reports/analyse/stalls/reasons.h enumerates ----

// "who held it was not recorded; no samples were taken"; NULL: there is none
char *stalls_text_doubts(const struct stall *stall);
// "98 %", "61 %: who held it was not recorded"
char *stalls_text_sure(const struct stall *stall);
// A clause about the GPU that is waited for; NULL: of any other cause.
const char *stalls_text_meanwhile(const struct stall *stall);
char *stalls_text_resource(const struct stall_resource *resource); // NULL: nothing is known
char *stalls_text_via(const struct stall_link *link);              // "pipe:[123]", "CPU 1"
char *stalls_text_missing(const struct stall_missing *missing);
// What to do, with the culprit's name; full: with its whole command line, for who reads nothing
// else. NULL: the cause has none.
char *stalls_text_advice(const struct stall *stall);
char *stalls_text_advice_full(const struct stall *stall);

#endif
