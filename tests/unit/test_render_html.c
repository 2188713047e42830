// SPDX-License-Identifier: Apache-2.0
// Parts of the HTML report that are pure: names and texts, flame trees, lanes and how they are
// thinned out. What the whole document says is compared with stores by tests/e2e/html_report.py.
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/render/html/flame/html_tree.h"
#include "reports/render/html/html_parts.h"
#include "reports/render/html/html_strip.h"
#include "reports/render/html/timeline/html_lanes.h"
#include "tests/unit/runner.h"

static const char *text_of(const char *text, size_t bytes)
{
    static char copy[1000];
    json_t *value = html_text(text, bytes);
    snprintf(copy, sizeof copy, "%s", json_string_value(value));
    json_decref(value);
    return copy;
}

static json_int_t number(const json_t *object, const char *key, size_t index)
{
    return json_integer_value(json_array_get(json_object_get(object, key), index));
}

static size_t length(const json_t *object, const char *key)
{
    return json_array_size(json_object_get(object, key));
}

TEST(texts_are_cut_at_characters_and_tell_their_length)
{
    CHECK_STR(text_of("short", 5), "short");
    CHECK_STR(text_of("longer", 5), "longe\xe2\x80\xa6 (6 bytes)");
    CHECK_STR(text_of("aa\xe2\x82\xac", 4),
            "aa\xe2\x80\xa6 (5 bytes)"); // not inside of the Euro sign
    CHECK_STR(text_of("a\xff", 10), "a\xef\xbf\xbd");
    CHECK_STR(text_of("\x80\x80\x80\x80", 2),
            "\xe2\x80\xa6 (4 bytes)"); // nothing but pieces of characters
    json_t *none = html_text(NULL, 10), *nan = render_json_whole(NAN),
           *infinite = render_json_real(INFINITY);
    CHECK(json_is_null(none) && json_is_null(nan) && json_is_null(infinite));
    json_decref(none), json_decref(nan), json_decref(infinite);
}

TEST(names_are_one_by_their_key)
{
    struct html_names *names = html_names_new();
    char name[32];
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 5000; i++) {
            snprintf(name, sizeof name, "name %u", i);
            CHECK(html_names_add(names, name) == i);
        }
    CHECK_INT(html_names_count(names), 5000);
    CHECK_INT(html_names_add_as(names, "key", "the first"), 5000);
    CHECK_INT(html_names_add_as(names, "key", "the second"), 5000);
    CHECK_INT(html_names_add(names, NULL), 5001);
    json_t *list = html_names_json(names);
    CHECK_STR(json_string_value(json_array_get(list, 4999)), "name 4999");
    CHECK_STR(json_string_value(json_array_get(list, 5000)), "the first");
    CHECK_STR(json_string_value(json_array_get(list, 5001)), "[unknown]");
    json_decref(list);
    html_names_free(names);
}

// main of 1000 below which 900 is in one child, and 2000 children have what is left.
static struct html_tree *wide_tree(struct html_names *names)
{
    struct html_tree *tree = html_tree_new();
    uint32_t top = html_tree_child(tree, 0, html_names_add(names, "main"), HTML_FRAME_NATIVE);
    char name[32];
    html_tree_add(tree,
            html_tree_child(tree, top, html_names_add(names, "wide"), HTML_FRAME_NATIVE), 0, 900);
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "narrow %d", i);
        html_tree_add(tree,
                html_tree_child(tree, top, html_names_add(names, name), HTML_FRAME_NATIVE), 0,
                0.05);
    }
    html_tree_add(tree,
            html_tree_child(tree, top, html_names_add(names, "wide"), HTML_FRAME_NATIVE), 1, 500);
    return tree;
}

TEST(flame_trees_merge_what_is_narrow_and_keep_the_sum)
{
    struct html_names *names = html_names_new();
    struct html_tree *tree = wide_tree(names);
    json_t *flame = json_object();
    html_tree_write(tree, names, (double[]){1, 5}, (bool[]){true, true}, 0.0005, flame);
    CHECK_INT(length(flame, "parent"), 4); // all, main, wide, (other)
    CHECK_INT(length(flame, "names"), 4);
    CHECK_INT(number(flame, "parent", 0), -1);
    CHECK_INT(number(flame, "parent", 3), 1);
    CHECK_INT(number(flame, "a", 2), 900);
    CHECK_INT(number(flame, "a", 3), 100);
    CHECK_INT(number(flame, "b", 2), 100);
    CHECK_DBL(json_real_value(json_object_get(flame, "left_out")), 100.0 / 1500, 1e-9);
    CHECK_DBL(html_tree_total(tree, 0), 1000, 1e-6);
    // Everything is wide enough; one side alone.
    html_tree_write(tree, names, (double[]){1, 0}, (bool[]){true, false}, 0, flame);
    CHECK_INT(length(flame, "parent"), 2003);
    CHECK(json_is_null(json_object_get(flame, "b")));
    json_decref(flame);
    html_tree_free(tree);
    html_names_free(names);
}

static json_t *lane_of(json_t *timeline, size_t index)
{
    json_t *side = json_array_get(json_object_get(timeline, "sides"), 0);
    return json_array_get(json_object_get(side, "lanes"), index);
}

TEST(lanes_are_cut_to_their_window_and_sorted)
{
    struct html_lanes *lanes = html_lanes_new(NULL);
    json_t *timeline = json_object();
    html_lanes_window(lanes, 0, 1000, 2000);
    html_lanes_open(lanes, 0, HTML_LANE_THREAD, "thread");
    uint32_t run = html_lanes_name(lanes, "host_run", "f", NULL),
             wait = html_lanes_name(lanes, "stall", "f", NULL);
    CHECK(run != wait); // one text, two classes
    html_lanes_event(lanes, 1500, 2500, wait, 0, UINT32_MAX);
    html_lanes_event(lanes, 500, 1100, run, 0, html_lanes_note(lanes, "note"));
    html_lanes_event(lanes, 100, 900, run, 0, UINT32_MAX);
    html_lanes_event(lanes, 2000, 2100, run, 0, UINT32_MAX);
    html_lanes_event(lanes, INT64_MIN, INT64_MAX, run, 1, UINT32_MAX);
    html_lanes_open(lanes, 0, HTML_LANE_PHASE, "phases");
    html_lanes_event(lanes, 1000, 2000, run, 0, UINT32_MAX);
    html_lanes_reduce(lanes, 100);
    html_lanes_write(lanes, timeline);
    json_t *thread = lane_of(timeline, 1); // phases stand above threads
    CHECK_STR(json_string_value(json_object_get(thread, "title")), "thread");
    CHECK_INT(length(thread, "start"), 3);
    CHECK_INT(number(thread, "start", 0), 0);
    CHECK_INT(number(thread, "dur", 0), 100);
    CHECK_INT(number(thread, "dur", 1), 1000);
    CHECK_INT(number(thread, "depth", 1), 1);
    CHECK_INT(number(thread, "start", 2), 500);
    CHECK_INT(number(thread, "note", 2), -1);
    CHECK(json_is_null(json_array_get(json_object_get(timeline, "sides"), 1)));
    json_decref(timeline);
    html_lanes_free(lanes);
}

static void check_thinned(size_t count, int64_t spacing, size_t budget)
{
    struct html_lanes *lanes = html_lanes_new(NULL);
    json_t *timeline = json_object();
    html_lanes_window(lanes, 0, 0, (int64_t)count * spacing);
    html_lanes_open(lanes, 0, HTML_LANE_STREAM, "stream");
    uint32_t name = html_lanes_name(lanes, "gpu_compute", "k", NULL);
    for (size_t i = 0; i < count; i++)
        html_lanes_event(lanes, (int64_t)i * spacing,
                (int64_t)i * spacing + 1 + (int64_t)(i * 7919 % 50), name, 0, UINT32_MAX);
    html_lanes_reduce(lanes, budget);
    size_t left = html_lanes_count(lanes, 0);
    CHECK(left <= budget);
    CHECK(left > budget / 3); // no more than it takes
    html_lanes_write(lanes, timeline);
    CHECK_INT(json_integer_value(json_object_get(timeline, "left_out")), count - left);
    json_decref(timeline);
    html_lanes_free(lanes);
}

TEST(lanes_are_thinned_out_to_their_budget)
{
    check_thinned(10000, 60, 1000);
    check_thinned(10000, 51, 9999);
    check_thinned(10000, 1000000, 500); // far from each other
    check_thinned(3, 60, 1);
}

// `count` steps of 1 ms and a little, the first five of 3 ms; blocks of 20 after a first step
// alone.
static struct html_strip strip_of(int count)
{
    struct html_strip strip = {.count = count, .blocks = true};
    strip.ns = xcalloc((size_t)count, sizeof *strip.ns);
    strip.idx = xcalloc((size_t)count, sizeof *strip.idx);
    strip.first = xcalloc((size_t)count, sizeof *strip.first);
    for (int i = 0; i < count; i++) {
        strip.ns[i] = i < 5 ? 3e6 : 1e6 + i * 7919 % 4000;
        strip.idx[i] = i;
        strip.first[i] = i == 0 || i % 20 == 1;
    }
    return strip;
}

static json_t *strip_json(struct html_strip *strip, size_t numbers_max)
{
    json_t *item = json_object();
    html_strip_look(strip);
    html_strip_write(strip, numbers_max, item);
    return item;
}

static json_int_t strip_at(const json_t *item, const char *key, size_t index, size_t inner)
{
    const json_t *entry = json_array_get(json_object_get(item, key), index);
    return json_integer_value(json_array_get(entry, inner));
}

TEST(a_strip_has_every_step_when_there_is_room)
{
    struct html_strip strip = strip_of(400);
    strip.ns[2] = 9e9; // in the warm-up: drawn, not marked
    strip.ns[249] = 2.5e8;
    strip.ns[250] = 1.9e6; // less than twice the median
    strip.idx[399] = 410;  // records were lost
    json_t *item = strip_json(&strip, 400);
    CHECK_INT(json_integer_value(json_object_get(item, "width")), 1);
    CHECK_INT(json_integer_value(json_object_get(item, "unit_ns")), 1000);
    CHECK_INT(json_integer_value(json_object_get(item, "from")), 5);
    CHECK_INT(json_integer_value(json_object_get(item, "steady")), 5);
    CHECK_INT(json_integer_value(json_object_get(item, "marked")), 1);
    CHECK_INT(length(item, "most"), 400);
    CHECK_INT(number(item, "most", 2), 9000000);
    CHECK_INT(number(item, "most", 249), 250000);
    CHECK_INT(length(item, "numbers"), 2);
    CHECK_INT(strip_at(item, "numbers", 1, 0), 399);
    CHECK_INT(strip_at(item, "numbers", 1, 1), 410);
    CHECK_INT(length(item, "blocks"), 3); // 1, 19 times 20, 19 steps
    CHECK_INT(strip_at(item, "blocks", 1, 1), 20);
    CHECK_INT(strip_at(item, "blocks", 1, 2), 19);
    CHECK_INT(strip_at(item, "blocks", 2, 0), 381);
    CHECK(json_object_get(item, "least") == NULL);
    json_decref(item);
    html_strip_clear(&strip);
}

TEST(a_strip_that_is_reduced_keeps_every_slowest_step)
{
    struct html_strip strip = strip_of(4001);
    strip.ns[777] = 5e7;
    strip.ns[4000] = 6e7; // a column of its own
    json_t *item = strip_json(&strip, 400);
    CHECK_INT(json_integer_value(json_object_get(item, "width")), 41);
    CHECK_INT(length(item, "most"), 98);
    CHECK_INT(length(item, "most") + length(item, "least") + length(item, "middle") +
                    length(item, "at"),
            392);
    CHECK_INT(number(item, "most", 18), 50000); // 738 to 778
    CHECK_INT(number(item, "at", 18), 39);
    CHECK(number(item, "middle", 18) < 1004 && number(item, "least", 18) >= 1000);
    CHECK_INT(number(item, "most", 97), 60000);
    CHECK_INT(number(item, "least", 97), 1000); // of 3,977 to 4,000
    json_decref(item);
    html_strip_clear(&strip);
}

TEST(a_strip_of_one_step_or_none_is_written)
{
    struct html_strip one = strip_of(1), none = {0};
    json_t *item = strip_json(&one, 16), *empty = strip_json(&none, 16);
    CHECK_INT(number(item, "most", 0), 3000);
    CHECK(json_is_null(json_object_get(item, "steady")) &&
            json_is_null(json_object_get(item, "median_ns")));
    CHECK_INT(length(empty, "most"), 0);
    json_decref(item);
    json_decref(empty);
    html_strip_clear(&one);
}
