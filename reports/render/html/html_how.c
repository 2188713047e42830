// SPDX-License-Identifier: Apache-2.0
// How every number of the HTML report was made: a paragraph a figure, with the table and the
// command that give it again. The ids are those that the page's headings link to
// (html/page/DATA.md).
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/render/html/html_parts.h"

struct how {
    const char *id, *title;
    bool judged;      // only of a run that was judged
    const char *text; // RUN.db stands for the store
};

static const struct how how_texts[] = {
        {"verdict", "Verdict", true,
                "Every gated metric of every workload is a cell. The run fails when a cell, a parity check or a finding fails, is inconclusive when "
                "one could not be decided, and passes only when every gated cell is shown to lie within its margin.\n\n"
                "`upgate gate RUN.db` judges again and prints the same; `upgate report RUN.db --format json` gives all of it; tables verdict, cell, "
                "finding."},
        {"cells", "Metrics", true,
                "A launch gives one number a metric (the median over its steady steps for step_time). A pair is one launch of each side with the same "
                "seed, run in turns of blocks; its ratio is the Hodges-Lehmann estimate over the couples of blocks. The ratio of a cell is the "
                "Hodges-Lehmann estimate over the pairs, its interval the exact one of Wilcoxon's signed-rank test at the level that is shown. "
                "Medians are over launches and for orientation: the ratio is not their quotient.\n\n"
                "`sqlite3 RUN.db \"select * from v_cell\"`; docs/METRICS.md says what each metric is."},
        {"pairs", "Each pair", true,
                "A dot is one pair of launches: candidate over baseline. The line is the estimate over all pairs, the band its interval, the dashed "
                "line the margin. Void pairs (the machine was disturbed) are not drawn.\n\n"
                "`sqlite3 RUN.db \"select * from v_pair where state = 'valid'\"`"},
        {"waterfall", "From the old step to the new one", true,
                "It begins with the baseline's step time and ends with the candidate's, both measured on launches that were not traced. The bars "
                "between are the contributions; what is in none of them is shown as the rest. Times of traced launches are multiplied by untraced "
                "step over traced step, each side by its own ratio, so that the bars add up to the difference that users see.\n\n"
                "`upgate diff RUN.db --format json`: step_a_ns, step_b_ns, contributions, residual_ns."},
        {"decomposition", "What a step is made of", true,
                "Every instant of a step belongs to exactly one class, the first that holds: a kernel computes; communication runs alone; a copy runs "
                "alone; the GPU has nothing because the host has not launched it yet; the host runs (no GPU); the host is stalled; it waits for data; "
                "nothing is known. The classes of a side add up to its step.\n\n"
                "`upgate diff RUN.db --format json`: decomposition. Tables gpu_op, nccl_op, sample, gap, phase_span."},
        {"contributions", "Contributions", true,
                "Both sides' steps are cut into the same kind of places (phase, module, Python function) and leaves (kernel, function, stall, gap), "
                "which are aligned by structure, order and shape first and by name last. The difference of an aligned group is taken on the critical "
                "path, couple by couple of blocks; its interval holds for all contributions together at 99 %. What is not told from noise is not "
                "named. Suspects are differences of the two environments that could have caused it: candidates to check, not proof.\n\n`upgate diff "
                "RUN.db`; `upgate diff RUN.db --format json`: contributions; docs/DIFF.md."},
        {"steps", "Steps", true,
                "Three claims and the warm-up. The typical step is what nearly every step takes: a median "
                "says nothing about rare slow ones. The mean step counts every step after the warm-up. Slow "
                "steps are the share of the time lost beyond the typical step; the warm-up is what the "
                "steps before the steady ones take beyond them. A pass needs all of them.\n\nThe strip "
                "shows every step of the pairs that were judged, of several ranks the slowest one's, launch "
                "after launch. Where steps share a column, it reaches from the fastest to the slowest. "
                "Grey: what comes before the launch's steady part; of a launch that never gets steady its "
                "first 5 steps. Marked is what takes twice the median of its launch or more: a rule of the "
                "drawing, the gate has its own (docs/METRICS.md).\n\nTables step and block; `sqlite3 RUN.db "
                "\"select * from v_step order by dur_ns desc limit 20\"`."},
        {"stragglers", "Stragglers", true,
                "For each collective operation the rank that arrived last, by how much, and what the others "
                "waited for it a step. Some rank always is the last one: shown are those that are it more often "
                "than their share by three standard errors, and whom the others wait for with nothing else to "
                "do.\n\n"
                "`upgate diff RUN.db --format json`: stragglers; table nccl_op."},
        {"first", "The first step", true,
                "What of the first step takes longer (or shorter) in every traced launch of one side than in "
                "every one of the other; each launch has one first step, so there is no interval. Times are "
                "scaled so that the first step takes as long as in launches that were not traced.\n\n"
                "`upgate diff RUN.db --format json`: first_step; docs/DIFF.md."},
        {"timeline", "Timeline", false,
                "Of all traced pairs the couple of blocks whose two step times are nearest to each side's median of the traced steps, the baseline's "
                "above the candidate's: steps and phases as the workload reported them, GPU operations as the driver timed them, of each thread what "
                "it ran and what it waited for. What a thread ran is known from samples: a run of one function reaches from the middle between two "
                "samples to the next, and no further than a tick from its sample. Python functions are read up to a tick after the sample they belong "
                "to. Where there are too many events to draw, the short ones that stand next to each other are one; pointing at it says how "
                "many.\n\nTables phase_span, step, gpu_op, gpu_call, sample, gap; `upgate report RUN.db -o run.pftrace` for a trace viewer."},
        {"table", "Kernels, functions and waits", true,
                "Everything that was aligned, in ns of a step: time on the critical path of both sides, and busy time, which also counts where "
                "something else was to blame. The largest come first; what did not fit is counted below the table.\n\n"
                "`upgate diff RUN.db --format json` has all of it."},
        {"flames", "Flame graphs", false,
                "On the CPU: samples of all threads of the workload inside its own turns, each worth one tick, divided by the steps. A stack reads "
                "from the outermost Python function in; below the innermost one come the native functions it called, then the kernel's. Off the CPU: "
                "waits that held up the work, by their cause; waits of threads with nothing to do are left out. Frames thinner than 0.01 % are one. "
                "Widths add up all threads, so they can be more than the time of a step.\n\n"
                "Tables sample, gap, stack, frame; `upgate stalls RUN.db --folded off-cpu.folded`."},
        {"stalls", "Stalls", false,
                "Each wait of at least the threshold was recorded with its stacks, who woke it and who held the lock; waits are followed from thread "
                "to thread to their end and added up by cause. The share is of the time that was watched.\n\n"
                "`upgate stalls RUN.db`; docs/STALLS.md."},
        {"fingerprint", "What differs between the two environments", true,
                "Read from the live processes: loaded libraries and their versions, packages, the framework's own settings, environment variables, "
                "limits, driver and hardware. The order is how often such a difference moves performance, not a measurement.\n\n"
                "`upgate env diff RUN.db`; docs/FINGERPRINT.md."},
        {"parity", "Numerical parity", true,
                "Outputs of both sides with the same seed, each compared by its rule against the spread that "
                "the baseline has with itself.\n\n"
                "`sqlite3 RUN.db \"select * from parity\"`"},
        {"trust", "What was lost", true,
                "Every producer of data counts what it saw and what it had to drop. A loss that could change "
                "the verdict makes it inconclusive.\n\n"
                "`sqlite3 RUN.db \"select * from v_ledger\"`"},
        {"calibration", "Would it have been seen?", true,
                "Pairs of the baseline against itself, in which one side was held longer by the margin, show that a regression would be seen here, "
                "and equal sides as equal. A cell whose pairs spread more than those, or of another kind, is not covered.\n\nTable control."},
};

static char *how_fill(const char *text, const char *path)
{
    struct strbuf filled = {0};
    for (const char *at; (at = strstr(text, "RUN.db")); text = at + strlen("RUN.db")) {
        strbuf_add_bytes(&filled, text, (size_t)(at - text));
        strbuf_add(&filled, "%s", path);
    }
    strbuf_add(&filled, "%s", text);
    return strbuf_take(&filled);
}

json_t *html_how(const char *path, bool judged)
{
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof how_texts / sizeof *how_texts; i++) {
        const struct how *how = &how_texts[i];
        if (how->judged && !judged)
            continue;
        char *text = how_fill(how->text, string_base_name(path));
        json_array_append_new(list,
                render_json_set(json_object(), "id", json_string(how->id), "title",
                        json_string(how->title), "text", html_text(text, HTML_TEXT_BYTES_MAX),
                        NULL));
        free(text);
    }
    return list;
}
