// SPDX-License-Identifier: Apache-2.0
// See html_lanes.h: lanes are filled; on their way out events are put in the order of time, and the
// short ones are merged where there are too many.
#include "reports/render/html/timeline/html_lanes.h"

#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"

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

void html_lanes_open(
        struct html_lanes *lanes, int side, enum html_lane_kind kind, const char *title)
{
    struct lanes_side *mine = &lanes->sides[side];
    vector_push(
            mine->lanes, mine->lane_count, (struct lane){.kind = kind, .title = xstrdup(title)});
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

uint32_t html_lanes_name(
        struct html_lanes *lanes, const char *class, const char *text, const char *match)
{
    char *key = xasprintf("%s\x01%s", class, text);
    uint32_t known = html_names_count(lanes->names),
             name = html_names_add_as(lanes->names, key, text);
    free(key);
    if (name < known)
        return name;
    lanes->name_class = vector_room(lanes->name_class, name, sizeof *lanes->name_class);
    lanes->name_contribution =
            vector_room(lanes->name_contribution, name, sizeof *lanes->name_contribution);
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
    vector_push(lane->events, lane->count,
            (struct lane_event){begin - mine->begin, end - begin, name, depth, note});
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

// --- out -----------------------------------------------------------------------------------------

static int lane_compare(const void *left, const void *right)
{
    const struct lane_event *a = left, *b = right;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    if (a->depth != b->depth)
        return a->depth < b->depth ? -1 : 1;
    if (a->dur != b->dur)
        return a->dur > b->dur ? -1 : 1;
    return a->name < b->name ? -1 : a->name > b->name;
}

// Neighbours are merged when both are at most this long and so is what lies between them.
static bool lane_joins(const struct lane_event *last, const struct lane_event *next, int64_t limit)
{
    return last->depth == next->depth && last->dur <= limit && next->dur <= limit &&
            next->start - (last->start + last->dur) <= limit;
}

// One behind the last event that is merged with events[first]; at most `most` of them.
static size_t lane_run(const struct lane *lane, size_t first, int64_t limit, size_t most)
{
    size_t last = first + 1;
    while (last < lane->count && last - first < most &&
            lane_joins(&lane->events[last - 1], &lane->events[last], limit))
        last++;
    return last;
}

static size_t lane_count_after(const struct lane *lane, int64_t limit, size_t most)
{
    size_t count = 0;
    for (size_t first = 0; first < lane->count; first = lane_run(lane, first, limit, most))
        count++;
    return count;
}

// One event for events[first] to events[last - 1]: named by the longest of them, and it says how
// many it stands for.
static struct lane_event lane_join(
        struct html_lanes *lanes, const struct lane *lane, size_t first, size_t last)
{
    struct lane_event joined = lane->events[first];
    if (last - first == 1)
        return joined;
    int64_t end = 0, busy = 0, longest = -1;
    for (size_t i = first; i < last; i++) {
        const struct lane_event *event = &lane->events[i];
        end = event->start + event->dur > end ? event->start + event->dur : end;
        busy += event->dur;
        if (event->dur > longest) {
            longest = event->dur;
            joined.name = event->name;
        }
    }
    joined.dur = end - joined.start;
    char *note = xasprintf("%zu short events, %.1f us of %.1f us", last - first, (double)busy / 1e3,
            (double)joined.dur / 1e3);
    joined.note = html_lanes_note(lanes, note);
    free(note);
    return joined;
}

// The lowest limit under which few enough events remain, and then no longer runs than it takes:
// equal events side by side would otherwise become one all at once.
static void lane_reduce(struct html_lanes *lanes, struct lane *lane, size_t budget)
{
    int64_t limit = 64;
    size_t most = 2, count = 0;
    if (lane->count <= budget)
        return;
    while (lane_count_after(lane, limit, SIZE_MAX) > budget && limit < INT64_MAX / 4)
        limit *= 2;
    while (most < lane->count && lane_count_after(lane, limit, most) > budget)
        most *= 2;
    for (size_t first = 0, last; first < lane->count; first = last) {
        last = lane_run(lane, first, limit, most);
        lane->events[count++] = lane_join(lanes, lane, first, last);
    }
    lanes->left_out += lane->count - count;
    lane->count = count;
}

void html_lanes_reduce(struct html_lanes *lanes, size_t budget)
{
    size_t total = html_lanes_count(lanes, 0) + html_lanes_count(lanes, 1);
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < lanes->sides[side].lane_count; i++) {
            struct lane *lane = &lanes->sides[side].lanes[i];
            if (lane->count)
                qsort(lane->events, lane->count, sizeof *lane->events, lane_compare);
            if (total > budget)
                lane_reduce(lanes, lane,
                        (size_t)((double)lane->count * (double)budget / (double)total));
        }
    }
}

static const char *const lane_words[HTML_LANE_KIND_COUNT] = {
        [HTML_LANE_PHASE] = "phase",
        [HTML_LANE_STREAM] = "stream",
        [HTML_LANE_THREAD] = "thread",
        [HTML_LANE_PYTHON] = "python",
        [HTML_LANE_NCCL] = "nccl",
};

static json_t *lane_json(const struct lane *lane)
{
    json_t *item = json_object(), *start = json_array(), *dur = json_array(), *name = json_array(),
           *depth = json_array(), *note = json_array();
    bool deep = false, noted = false;
    int64_t before = 0;
    for (size_t i = 0; i < lane->count; i++) {
        const struct lane_event *event = &lane->events[i];
        json_array_append_new(start, json_integer(event->start - before));
        json_array_append_new(dur, json_integer(event->dur));
        json_array_append_new(name, json_integer(event->name));
        json_array_append_new(depth, json_integer(event->depth));
        json_array_append_new(
                note, json_integer(event->note == LANES_NO_NOTE ? -1 : (json_int_t)event->note));
        deep |= event->depth > 0;
        noted |= event->note != LANES_NO_NOTE;
        before = event->start;
    }
    render_json_set(item, "kind", json_string(lane_words[lane->kind]), "title",
            html_text(lane->title, HTML_NAME_BYTES_MAX), "start", start, "dur", dur, "name", name,
            NULL);
    if (deep)
        json_object_set(item, "depth", depth);
    if (noted)
        json_object_set(item, "note", note);
    json_decref(depth);
    json_decref(note);
    return item;
}

static json_t *lanes_side_json(const struct lanes_side *side)
{
    if (!side->given)
        return json_null();
    json_t *marks = render_json_list(i, side->mark_count, json_integer(side->marks[i])),
           *list = json_array();
    for (int kind = 0; kind < HTML_LANE_KIND_COUNT; kind++)
        for (size_t i = 0; i < side->lane_count; i++)
            if ((int)side->lanes[i].kind == kind && side->lanes[i].count)
                json_array_append_new(list, lane_json(&side->lanes[i]));
    return render_json_set(json_object(), "span_ns", json_integer(side->end - side->begin),
            "mark_ns", marks, "lanes", list, NULL);
}

void html_lanes_write(struct html_lanes *lanes, json_t *timeline)
{
    json_t *classes = json_array(), *contributions = json_array();
    for (uint32_t i = 0; i < html_names_count(lanes->names); i++) {
        json_array_append_new(classes, json_integer(lanes->name_class[i]));
        json_array_append_new(contributions, json_integer(lanes->name_contribution[i]));
    }
    render_json_set(timeline, "names", html_names_json(lanes->names), "classes",
            html_names_json(lanes->classes), "name_class", classes, "name_contribution",
            contributions, "notes", html_names_json(lanes->notes), "sides",
            render_json_pair(lanes_side_json(&lanes->sides[0]), lanes_side_json(&lanes->sides[1])),
            "left_out", json_integer((json_int_t)lanes->left_out), NULL);
}
