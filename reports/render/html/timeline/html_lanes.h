// SPDX-License-Identifier: Apache-2.0
// Lanes of a timeline: rows of events with a begin, a length and a name. Both sides of a timeline
// share names, notes and classes; when there are more events than a page can draw, the short ones
// that stand next to each other become one. Internal to this room. Pure memory, one owner thread.
#ifndef UPGATE_REPORTS_HTML_LANES_H
#define UPGATE_REPORTS_HTML_LANES_H

#include <jansson.h>
#include <stdint.h>

#include "reports/render/html/html_parts.h"

enum html_lane_kind { // from the top
    HTML_LANE_PHASE,
    HTML_LANE_STREAM,
    HTML_LANE_THREAD,
    HTML_LANE_PYTHON,
    HTML_LANE_NCCL,
    HTML_LANE_KIND_COUNT
};

struct html_lanes;
// Contributions whose names are looked for among the events' names; NULL: none.
struct html_lanes *html_lanes_new(const struct diff_workload *workload);
void html_lanes_free(struct html_lanes *lanes); // NULL ok
// The window of a side: events are cut to it, times count from its begin.
void html_lanes_window(struct html_lanes *lanes, int side, int64_t begin, int64_t end);
// Later events of this side go here. title is copied.
void html_lanes_open(
        struct html_lanes *lanes, int side, enum html_lane_kind kind, const char *title);
// A name of a class ("gpu_compute", "stall", ...); match: the whole name by which a contribution is
// found, NULL: text.
uint32_t html_lanes_name(
        struct html_lanes *lanes, const char *class, const char *text, const char *match);
uint32_t html_lanes_note(struct html_lanes *lanes, const char *text); // NULL: none
// An event of the lane that was opened last; those outside of the window are dropped. note: of
// html_lanes_note.
void html_lanes_event(struct html_lanes *lanes, int64_t begin, int64_t end, uint32_t name,
        uint32_t depth, uint32_t note);
void html_lanes_mark(struct html_lanes *lanes, int side, int64_t at); // border of a step
size_t html_lanes_count(const struct html_lanes *lanes, int side);    // events
// At most `budget` events remain, of all lanes alike.
void html_lanes_reduce(struct html_lanes *lanes, size_t budget);
// Members names, classes, name_class, name_contribution, notes, sides, left_out.
void html_lanes_write(struct html_lanes *lanes, json_t *timeline);

#endif
