// SPDX-License-Identifier: Apache-2.0
// The steps of one launch as the HTML report's strip shows them: what is steady, what is typical,
// what stands out, and the times themselves, reduced so that no slow step is lost. Memory only.
#ifndef UPGATE_REPORTS_HTML_STRIP_H
#define UPGATE_REPORTS_HTML_STRIP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Steps that take at least so many times as long as the launch's median step are marked. A rule of
// the drawing, not of the gate: on a logarithmic axis a factor of two is what an eye sees at once.
enum { HTML_STRIP_MARK = 2 };

struct html_strip {
    int count;       // steps that were recorded, in order
    double *ns;      // of the slowest rank, > 0
    int64_t *idx;    // number of each step; rising, gaps where records were lost
    bool *first;     // is it the first of a block?
    bool blocks;     // has the launch blocks of several steps?
    int start;       // filled by html_strip_look(): where the steady part begins,
    bool steady;     // or, when there is none, the end of the fixed warm-up
    double median;   // of the steps from there on; NAN without any
    int marked;      // of those
    double first_ns; // median of those that are first of a block, and of the others; NAN
    double other_ns;
};

void html_strip_look(struct html_strip *strip);
bool html_strip_marks(const struct html_strip *strip, int at);
void html_strip_clear(struct html_strip *strip); // frees the arrays

// Adds the launch's members to `item` (html/page/DATA.md, strip): every step when they are at most
// numbers_max, else columns of equally many steps.
void html_strip_write(const struct html_strip *strip, size_t numbers_max, json_t *item);

#endif
