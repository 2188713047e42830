// SPDX-License-Identifier: Apache-2.0
// Off-CPU time as folded stacks: what flame graph tools read. A line for each thread name and
// stack: Python or user frames from the outermost in, then the kernel's, then the microseconds.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/stalls/stalls.h"
#include "reports/analyse/trace/trace.h"

struct folded_row {
    uint32_t thread, kernel, user; // the user's side: Python when it is known
    int64_t ns;
};

static int folded_compare(const void *left, const void *right)
{
    const struct folded_row *a = left, *b = right;
    int order = trace_order(a->thread, b->thread);
    order = order ?: trace_order(a->user, b->user);
    return order ?: trace_order(a->kernel, b->kernel);
}

// ';' separates frames and a blank the number: neither may stand in a name.
static void folded_name(FILE *stream, const char *name)
{
    for (; *name; name++)
        fputc(*name == ';' ? ':' : (unsigned char)*name < ' ' ? '?' : *name, stream);
}

static void folded_stack(FILE *stream, const struct trace *trace, uint32_t stack)
{
    const struct trace_stack *row = &trace->stacks[stack];
    for (uint32_t i = row->count; i > 0; i--) {
        const char *inside = trace_inside(trace, stack, i - 1);
        fputc(';', stream);
        folded_name(stream, trace->frames[trace->stack_frames[row->first + i - 1]].name);
        if (inside) {
            fputs(" (inside ", stream);
            folded_name(stream, inside);
            fputc(')', stream);
        }
    }
}

int stalls_folded(struct store *store, int64_t recording_id, void *stream, struct error *err)
{
    FILE *file = stream;
    struct arena *arena = arena_new();
    struct trace *trace = NULL;
    int rc = trace_load(store, recording_id, arena, &trace, err);
    if (rc) {
        arena_free(arena);
        return rc;
    }
    struct folded_row *rows = xcalloc(trace->gap_count + 1, sizeof *rows);
    for (size_t i = 0; i < trace->gap_count; i++) {
        const struct trace_gap *gap = &trace->gaps[i];
        rows[i] = (struct folded_row){gap->thread, gap->kernel,
                gap->python ? gap->python : gap->user, gap->in - gap->out};
    }
    qsort(rows, trace->gap_count, sizeof *rows, folded_compare);
    for (size_t i = 0; i < trace->gap_count;) {
        int64_t ns = 0;
        size_t first = i;
        for (; i < trace->gap_count && !folded_compare(&rows[first], &rows[i]); i++)
            ns += rows[i].ns;
        folded_name(file, trace->threads[rows[first].thread].comm);
        folded_stack(file, trace, rows[first].user);
        folded_stack(file, trace, rows[first].kernel);
        fprintf(file, " %lld\n", (long long)(ns / 1000));
    }
    free(rows);
    trace_free(trace);
    arena_free(arena);
    if (fflush(file) || ferror(file))
        return error_set(err, -EIO, "failed to write the folded stacks: %s", strerror(errno));
    return 0;
}
