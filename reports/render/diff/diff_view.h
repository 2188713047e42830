// SPDX-License-Identifier: Apache-2.0
// Where the difference comes from, as people and machines read it: terminal table, section of the
// Markdown report, document upgate.diff/1. Shows what reports/analyse/diff found and judges
// nothing. Writes streams and buffers only.
#ifndef UPGATE_REPORTS_DIFF_VIEW_H
#define UPGATE_REPORTS_DIFF_VIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "common/error.h"
#include "reports/analyse/diff/diff.h"
#include "reports/render/render.h"

struct diff_view {
    const struct diff *diff;
    const char *path; // of the store, for what to do next; NULL: not told
    bool all;         // what is not named too
    bool brief;       // the headline and the three largest of a workload: the end of `upgate ab`
};

int diff_view_table(const struct diff_view *view, const struct render_opts *opts, FILE *stream,
        struct error *err);
json_t *diff_view_json(const struct diff *diff); // upgate.diff/1, a new reference
// Members of its lists, which the HTML page has as well.
json_t *diff_view_json_contribution(const struct diff_contribution *contribution);
json_t *diff_view_json_first(const struct diff_workload *workload);
json_t *diff_view_json_slow(const struct diff_workload *workload);
json_t *diff_view_json_cpu(const struct diff_workload *workload);
json_t *diff_view_json_collectives(const struct diff_workload *workload);
json_t *diff_view_json_memory(const struct diff_memory *memory);
json_t *diff_view_json_straggler(const struct diff_straggler *straggler);
// "### Where the difference comes from" and what follows; "" when nothing was traced. The caller
// frees.
char *diff_view_markdown(const struct diff *diff);
// has any workload contributions, or parts of its memory?
bool diff_view_explained(const struct diff *diff);

// Sentences, the same in every form; the caller frees. Texts of the store are not cleaned here.
// "dlrm-train: step 12.1 ms -> 15.2 ms (+25.3 %, 24.1 to 26.6 %)"
char *diff_text_headline(const struct diff_workload *workload);
// Both with the word between them, a unit they share once: "+1.1", " to ", "+1.3 ms".
char *diff_text_join(const char *from, const char *word, const char *to);
char *diff_text_interval(const struct diff_contribution *contribution); // "+1.1 to +1.3 ms"
// "41 %", into a buffer of NUMBERS_SIZE, which is returned
char *diff_text_share(double share, char *buf);
// "Together 3.1 ms slower, 19 % of a step": what is named of one sign
char *diff_text_list_sum(const struct diff_workload *workload, bool slower);
char *diff_text_title(
        const struct diff_contribution *contribution); // "Kernel slower: softmax_warp_forward"
// "15 ms -> 740 ms (+48.2 %)"; NULL: not measured
char *diff_text_first(const struct diff_workload *workload);
// "+310 ms Function added: regress_compute, in data (a 0, 0; b 312 ms, 308 ms)": with the launches'
// values
char *diff_text_launch_part(const struct diff_launch_part *part, bool launches);
// "dlrm-train: slow steps take 0 -> 5.2 ms of the mean step (+5.2 ms): Function added: save +4.9
// ms"; without parts why; NULL: no cell asks, or one that passes, and there are none
char *diff_text_slow(const struct diff_workload *workload);
// "In the traced launches, candidate: 12 slow steps of 240, …; baseline: …. Most of it is in
// checkpoint. …", where there is the above
char *diff_text_slow_answer(const struct diff_workload *workload);
// "+4.9 ms Function added: save, in checkpoint (a 0, 0; b 4.8 ms, 5 ms), 94 % of it"
char *diff_text_slow_part(const struct diff_launch_part *part);
// It failed, and the typical step did not: then it is what is told first.
bool diff_text_slow_first(const struct diff_workload *workload);
// "dlrm-train: CPU time of a launch 5.2 s -> 7.9 s (+52.0 %): Function slower: do_spin +2.5 s";
// without parts why; NULL: it is not asked for
char *diff_text_cpu(const struct diff_workload *workload);
// "By thread, and by phase of those that make steps: thread python 0 -> 2.5 s."; NULL: none differs
// by as much as matters
char *diff_text_cpu_answer(const struct diff_workload *workload);
// "NCCL 2.28.3 -> 2.28.9: 12.3 -> 12.2 ms a step, 704 -> 631 us of it exposed; the same algorithms
// and protocols"; NULL: no collectives
char *diff_text_collectives(const struct diff_workload *workload);
// "AllReduce f32, 1 to 16 MiB: RING SIMPLE -> RING LL; 13 a step; 6.16 -> 5.84 ms, 704 -> 631 us of
// it exposed"
char *diff_text_collective(
        const struct diff_workload *workload, const struct diff_collective *collective);
// "dlrm-train: peak memory 292 MiB -> 344 MiB (+17.8 %, +52 MiB): anonymous memory +61.6 MiB, heap
// +30.4 MiB"; NULL: it does not differ, or nobody looked its memory, or its gpu_memory
char *diff_text_memory(const struct diff_workload *workload, const struct diff_memory *memory);
// "Together +114 MiB, all else -61.9 MiB. Where they were stopped last, the traced launches held
// …", where there is the above
char *diff_text_memory_answer(const struct diff_memory *memory);
// "+21.8 MiB libtorch_cpu.so: 43.7 MiB -> 65.4 MiB (libtorch_cpu.so.1.13.0 -> libtorch_cpu.so)"
char *diff_text_memory_part(const struct diff_memory_part *part);
const char *diff_text_memory_name(const struct diff_memory_part *part); // "libtorch_cpu.so", "heap"
// "By the code that touched it first: +64.0 MiB in keep (train.py), most by fill of libplant.so;
// all else +1.2 MiB. …"; NULL: nobody watched
char *diff_text_memory_touched(const struct diff_memory *memory);
// "+64.0 MiB first touched in keep (train.py), most by fill of libplant.so: 8.00 MiB -> 72.0 MiB,
// before the first step"
char *diff_text_touch(const struct diff_memory *memory, const struct diff_touch *touch);
// "fill", "loading of libplant.so"; NULL: there is none
char *diff_text_touch_function(const struct diff_touch *touch);
// "keep (train.py), most by fill of libplant.so"
char *diff_text_touch_name(const struct diff_touch *touch);
// It failed, and nothing of the time did: then it is what is told first.
bool diff_text_memory_first(const struct diff_memory *memory);
char *diff_text_answer(const struct diff_workload
                *workload); // what the difference is made of; who comes late first

#endif
