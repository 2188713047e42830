// SPDX-License-Identifier: Apache-2.0
// What the CPU time of a launch is made of, in words: the same in the table, in Markdown and on the page. Pure; the caller frees what
// is returned. Names of the store are not cleaned here.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/render/diff/diff_view.h"
#include "reports/render/text/numbers.h"

enum { CPU_TEXT_MAX = 3 };

static const double cpu_place_min = 0.05; // of the difference; less is not worth its words

char *diff_text_cpu(const struct diff_workload *workload)
{
    const struct diff_once *cpu = &workload->cpu;
    if (!cpu->pairs && !cpu->why_not)
        return NULL;
    struct strbuf text = {0};
    strbuf_add(&text, "%s: CPU time of a launch %s -> %s (%+.1f %%)", workload->name, numbers_ns(workload->cpu_a_ns, NUMBERS_BUFFER),
               numbers_ns(workload->cpu_b_ns, NUMBERS_BUFFER), 100 * (workload->cpu_b_ns / workload->cpu_a_ns - 1));
    if (!cpu->part_count)
        strbuf_add(&text, ", not explained: %s", cpu->why_not ? cpu->why_not : "it is not known");
    for (size_t i = 0; i < cpu->part_count && i < CPU_TEXT_MAX; i++) {
        char *title = diff_text_title(&cpu->parts[i].contribution);
        strbuf_add(&text, "%s%s %s", i ? "; " : ": ", title, diff_text_delta(cpu->parts[i].contribution.delta_ns, NUMBERS_BUFFER));
        free(title);
    }
    if (cpu->part_count > CPU_TEXT_MAX)
        strbuf_add(&text, "; and %zu more", cpu->part_count - CPU_TEXT_MAX);
    return strbuf_take(&text);
}

// "By thread, and by phase of those that make steps: thread python 0 -> 2.5 s; backward 1.2 -> 1.5 s."
char *diff_text_cpu_answer(const struct diff_workload *workload)
{
    const struct diff_once *cpu = &workload->cpu;
    double least = cpu_place_min * fabs(workload->cpu_b_ns - workload->cpu_a_ns);
    struct strbuf text = {0};
    for (size_t i = 0; i < cpu->phase_count; i++) {
        const struct diff_once_place *place = &cpu->phases[i];
        if (!(fabs(place->b_ns - place->a_ns) >= least))
            continue;
        char *times = diff_text_join(place->a_ns < 0.5 ? "0" : numbers_ns(place->a_ns, NUMBERS_BUFFER), " -> ",
                                     place->b_ns < 0.5 ? "0" : numbers_ns(place->b_ns, NUMBERS_BUFFER));
        strbuf_add(&text, "%s%s %s", text.len ? "; " : "By thread, and by phase of those that make steps: ", place->name, times);
        free(times);
    }
    if (text.len)
        strbuf_add(&text, ".");
    return text.len ? strbuf_take(&text) : NULL;
}
