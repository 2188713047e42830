// SPDX-License-Identifier: Apache-2.0
// See html_lanes.h: lanes are filled. html_lanes_write.c orders, thins out and writes them.
#include "reports/render/html/timeline/html_lanes_data.h"

#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"

struct html_lanes *html_lanes_new(const struct diff_workload *workload)
{
    struct html_lanes *lanes = xcalloc(1, sizeof *lanes);
    lanes->workload = workload;
    lanes->names = html_names_new();
    lanes->notes = html_names_new();
    lanes->classes = html_names_new();
    return lanes;
}

void html_lanes_free(struct html_lanes *lanes)
{
    if (!lanes)
        return;
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < lanes->sides[side].lane_count; i++) {
            free(lanes->sides[side].lanes[i].title);
            free(lanes->sides[side].lanes[i].events);
        }
        free(lanes->sides[side].lanes);
        free(lanes->sides[side].marks);
    }
    html_names_free(lanes->names);
    html_names_free(lanes->notes);
    html_names_free(lanes->classes);
    free(lanes->name_class);
    free(lanes->name_contribution);
    free(lanes);
}

void html_lanes_window(struct html_lanes *lanes, int side, int64_t begin, int64_t end)
{
    lanes->sides[side].given = true;
    lanes->sides[side].begin = begin;
    lanes->sides[side].end = end;
}

void html_lanes_open(struct html_lanes *lanes, int side, enum html_lane_kind kind,
                     const char *title)
{
    struct lanes_side *mine = &lanes->sides[side];
    vector_push(mine->lanes, mine->lane_count, (struct lane){.kind = kind, .title = xstrdup(title)});
    lanes->open = side;
}

static int lanes_contribution(const struct diff_workload *workload, const char *name)
{
    for (size_t i = 0; workload && i < workload->contribution_count && i < LANES_CONTRIBUTIONS_MAX;
         i++) {
        const struct diff_contribution *contribution = &workload->contributions[i];
        if ((contribution->name_a && strcmp(contribution->name_a, name) == 0) ||
            (contribution->name_b && strcmp(contribution->name_b, name) == 0))
            return contribution->rank;
    }
    return 0;
}

uint32_t html_lanes_name(struct html_lanes *lanes, const char *class, const char *text,
                         const char *match)
{
    char *key = xasprintf("%s\x01%s", class, text);
    uint32_t known = html_names_count(lanes->names),
             name = html_names_add_as(lanes->names, key, text);
    free(key);
    if (name < known)
        return name;
    lanes->name_class = vector_room(lanes->name_class, name, sizeof *lanes->name_class);
    lanes->name_contribution = vector_room(lanes->name_contribution, name, sizeof *lanes->name_contribution);
    lanes->name_class[name] = html_names_add(lanes->classes, class);
    lanes->name_contribution[name] = lanes_contribution(lanes->workload, match ? match : text);
    return name;
}

uint32_t html_lanes_note(struct html_lanes *lanes, const char *text)
{
    return text && *text ? html_names_add(lanes->notes, text) : LANES_NO_NOTE;
}

void html_lanes_event(struct html_lanes *lanes, int64_t begin, int64_t end, uint32_t name,
                      uint32_t depth, uint32_t note)
{
    struct lanes_side *mine = &lanes->sides[lanes->open];
    struct lane *lane = &mine->lanes[mine->lane_count - 1];
    begin = begin < mine->begin ? mine->begin : begin;
    end = end > mine->end ? mine->end : end;
    if (begin > end || begin >= mine->end)
        return;
    vector_push(lane->events, lane->count, (struct lane_event){begin - mine->begin, end - begin, name, depth, note});
}

void html_lanes_mark(struct html_lanes *lanes, int side, int64_t at)
{
    struct lanes_side *mine = &lanes->sides[side];
    if (at < mine->begin || at > mine->end || mine->mark_count == LANES_MARKS_MAX)
        return;
    vector_push(mine->marks, mine->mark_count, at - mine->begin);
}

size_t html_lanes_count(const struct html_lanes *lanes, int side)
{
    size_t count = 0;
    for (size_t i = 0; i < lanes->sides[side].lane_count; i++)
        count += lanes->sides[side].lanes[i].count;
    return count;
}
