// SPDX-License-Identifier: Apache-2.0
// What lanes are made of: between html_lanes.c, which fills them, and html_lanes_write.c.
#ifndef UPGATE_REPORTS_HTML_LANES_DATA_H
#define UPGATE_REPORTS_HTML_LANES_DATA_H

#include "reports/render/html/timeline/html_lanes.h"

#define LANES_NO_NOTE UINT32_MAX

enum { LANES_CONTRIBUTIONS_MAX = 50, LANES_MARKS_MAX = 10000 };

struct lane_event {
    int64_t start, dur; // from the begin of the window
    uint32_t name, depth, note;
};

struct lane {
    enum html_lane_kind kind;
    char *title;
    struct lane_event *events;
    size_t count;
};

struct lanes_side {
    bool given;
    int64_t begin, end;
    struct lane *lanes;
    size_t lane_count;
    int64_t *marks;
    size_t mark_count;
};

struct html_lanes {
    const struct diff_workload *workload;
    struct html_names *names, *notes, *classes;
    uint32_t *name_class;
    int *name_contribution;
    struct lanes_side sides[2];
    int open;
    size_t left_out;
};

#endif
