// SPDX-License-Identifier: Apache-2.0
// Ranks by time, a line a rank, a cell a part of the time: the darker, the longer the others waited
// for that rank, or the longer it worked. Shades are fifths of the largest share. Texts of the
// store are cleaned on their way.
#include "reports/render/stalls/stalls_heat.h"

#include <stdlib.h>
#include <string.h>

#include "reports/render/stalls/stalls_text.h"
#include "reports/render/text/json_text.h"
#include "reports/render/text/markdown_text.h"

enum {
    HEAT_SHADES = 5,
    HEAT_GAP = 2,
    HEAT_MEAN = 9,      // columns of the number behind a line
    HEAT_LABEL_MIN = 8, // what a name is cut to at least
    HEAT_CELL = 2,      // columns of a cell where there is room
};
// from here on times have tenths of minutes, and a part may be as short
static const double heat_minute_ns = 60e9;

static const char *const heat_shades[2][HEAT_SHADES] = {
        {".", "-", "+", "*", "#"},
        {"\xc2\xb7", "\xe2\x96\x91", "\xe2\x96\x92", "\xe2\x96\x93", "\xe2\x96\x88"}, // ·░▒▓█
};

static double heat_most(const struct stall_heat *heat)
{
    return heat->worst.shares[heat->worst_block];
}

// Where a part begins, behind the begin of all: "0", "3.33 s".
static char *heat_time(const struct stall_heat *heat, size_t block, char *buf)
{
    double at = (double)(heat->end_ns - heat->begin_ns) * (double)block / (double)heat->blocks;
    if (!block)
        return strcpy(buf, "0");
    return at < heat_minute_ns ? numbers_ns(at, buf) : numbers_print(buf, "%.0f s", at / 1e9);
}

static bool heat_alike(const char *host, const char *other)
{
    return host && other ? strcmp(host, other) == 0 : host == other;
}

// "rank 1", "pid 4122"; with its host where there are several, and its GPU where it has one: "rank
// 1 on node-7, GPU-1a2b3c4d".
static char *heat_name(const struct stall_heat *heat, const struct stall_heat_row *row)
{
    bool hosts = !heat_alike(row->host, heat->worst.host);
    for (size_t i = 0; i < heat->row_count && !hosts; i++)
        hosts = !heat_alike(row->host, heat->rows[i].host);
    bool known = row->rank >= 0, told = hosts && row->host;
    char *gpu = stalls_text_gpu(&row->gpu, false);
    char *name =
            xasprintf("%s %d%s%s%s%s", known ? "rank" : "pid", (int)(known ? row->rank : row->pid),
                    told ? " on " : "", told ? row->host : "", gpu ? ", " : "", gpu ? gpu : "");
    free(gpu);
    return name;
}

char *stalls_heat_label(const struct stall_heat *heat, const struct stall_heat_row *row)
{
    char *name = heat_name(heat, row);
    if (row->of < 2)
        return name;
    char *label = xasprintf("%s, %s of %zu", name, row->worst ? "worst" : "median", row->of);
    free(name);
    return label;
}

char *stalls_heat_head(const struct stall_heat *heat)
{
    if (!heat->blocks)
        return NULL;
    char *name = heat_name(heat, &heat->worst);
    struct strbuf out = {0};
    strbuf_add(&out,
            "Ranks by time: %s, over %s in %zu parts; most %s%s: %s of the part from %s to %s",
            heat->by_work ? "how much longer each rank worked than the one in the middle"
                          : "how long the others waited for each rank",
            heat_time(heat, heat->blocks, NUMBERS_BUFFER), heat->blocks,
            heat->by_work ? "" : "for ", name, stalls_text_share(heat_most(heat), NUMBERS_BUFFER),
            heat_time(heat, heat->worst_block, NUMBERS_BUFFER),
            heat_time(heat, heat->worst_block + 1, NUMBERS_BUFFER));
    if (heat->row_count < heat->ranks)
        strbuf_add(&out, "; of %s ranks the median and the worst one of each group are shown",
                numbers_count((int64_t)heat->ranks, NUMBERS_BUFFER));
    if (heat->unknown)
        strbuf_add(&out, "; of %s more it is not known",
                numbers_count((int64_t)heat->unknown, NUMBERS_BUFFER));
    free(name);
    return strbuf_take(&out);
}

static void heat_cells(struct strbuf *out, const struct stall_heat *heat,
        const struct stall_heat_row *row, int width, bool utf8)
{
    double most = heat_most(heat);
    for (size_t i = 0; i < heat->blocks; i++) {
        int shade = most > 0 ? (int)(row->shares[i] / most * HEAT_SHADES) : 0;
        screen_repeat(out, heat_shades[utf8][shade < HEAT_SHADES ? shade : HEAT_SHADES - 1], width);
    }
}

// ". below 4.3 %, - from 4.3 %, + from 8.5 %, …"
static char *heat_legend(const struct stall_heat *heat, bool utf8)
{
    struct strbuf out = {0};
    for (int i = 0; i < HEAT_SHADES; i++)
        strbuf_add(&out, "%s%s %s %s", i ? ", " : "", heat_shades[utf8][i], i ? "from" : "below",
                stalls_text_share(heat_most(heat) * (i ? i : 1) / HEAT_SHADES, NUMBERS_BUFFER));
    strbuf_add(&out, " of a part");
    return strbuf_take(&out);
}

// ---- terminal ----

static void heat_axis(struct table *table, const struct stall_heat *heat, int label, int width)
{
    struct strbuf line = {0};
    const char *end = heat_time(heat, heat->blocks, NUMBERS_BUFFER);
    screen_repeat(&line, " ", label + HEAT_GAP);
    screen_pad(&line, "0", width - screen_columns(end), false);
    strbuf_add(&line, "%s", end);
    screen_pad(&line, "in all", HEAT_MEAN, true);
    screen_style(&table->out, SCREEN_STYLE_DIM, table->color, line.text);
    strbuf_add(&table->out, "\n");
    strbuf_free(&line);
}

static void heat_line(struct table *table, const struct stall_heat *heat,
        const struct stall_heat_row *row, const char *name, int label, int cell)
{
    char *fit = screen_fit(name, label, table->utf8);
    screen_pad(&table->out, fit, label + HEAT_GAP, false);
    heat_cells(&table->out, heat, row, cell, table->utf8);
    screen_pad(&table->out, stalls_text_share(row->mean, NUMBERS_BUFFER), HEAT_MEAN, true);
    strbuf_add(&table->out, "\n");
    free(fit);
}

static void heat_map(struct table *table, const struct stall_heat *heat)
{
    int blocks = (int)heat->blocks, room = table->width - HEAT_GAP - HEAT_MEAN, label = 0;
    char **names = xcalloc(heat->row_count, sizeof *names);
    for (size_t i = 0; i < heat->row_count; i++) {
        char *name = stalls_heat_label(heat, &heat->rows[i]);
        names[i] = screen_clean(name, table->utf8);
        free(name);
        int columns = screen_columns(names[i]);
        label = columns > label ? columns : label;
    }
    int cell = label + HEAT_CELL * blocks <= room ? HEAT_CELL : 1;
    label = label + cell * blocks > room ? room - cell * blocks : label;
    heat_axis(table, heat, label, cell * blocks);
    for (size_t i = 0; i < heat->row_count; i++) {
        heat_line(table, heat, &heat->rows[i], names[i], label, cell);
        free(names[i]);
    }
    free(names);
    char *legend = heat_legend(heat, table->utf8);
    screen_wrap(&table->out, legend, table->width, 0, 0);
    free(legend);
}

void stalls_heat_table(struct table *table, const struct stall_heat *heat)
{
    char *head = stalls_heat_head(heat);
    if (!head)
        return;
    strbuf_add(&table->out, "\n");
    table_paragraph(table, SCREEN_STYLE_PLAIN, head);
    if (table->width >= HEAT_LABEL_MIN + HEAT_GAP + (int)heat->blocks + HEAT_MEAN)
        heat_map(table, heat);
    free(head);
}

// ---- Markdown ----

static size_t heat_worst_block(const struct stall_heat *heat, const struct stall_heat_row *row)
{
    size_t worst = 0;
    for (size_t i = 1; i < heat->blocks; i++)
        worst = row->shares[i] > row->shares[worst] ? i : worst;
    return worst;
}

static void heat_markdown_row(
        struct strbuf *out, const struct stall_heat *heat, const struct stall_heat_row *row)
{
    size_t worst = heat_worst_block(heat, row);
    char *label = stalls_heat_label(heat, row);
    markdown_put(out, "| ", label, " | `");
    heat_cells(out, heat, row, 1, true);
    strbuf_add(out, "` | %s | %s | %s |\n", stalls_text_share(row->mean, NUMBERS_BUFFER),
            stalls_text_share(row->shares[worst], NUMBERS_BUFFER),
            row->shares[worst] > 0 ? heat_time(heat, worst, NUMBERS_BUFFER) : "-");
    free(label);
}

void stalls_heat_markdown(struct strbuf *out, const struct stall_heat *heat)
{
    char *head = stalls_heat_head(heat);
    if (!head)
        return;
    markdown_put(out, "\n", head,
            "\n\n| rank | over time | in all | most | in the part from |\n|---|---|--:|--:|--:|\n");
    for (size_t i = 0; i < heat->row_count; i++)
        heat_markdown_row(out, heat, &heat->rows[i]);
    char *legend = heat_legend(heat, true);
    markdown_put(out, "\n", legend, "\n");
    free(legend);
    free(head);
}

// ---- JSON ----

json_t *stalls_gpu_json(const struct stall_gpu *gpu)
{
    if (!gpu->known)
        return NULL;
    return render_json_set(json_object(), "uuid",
            *gpu->uuid ? render_json_text(gpu->uuid) : json_null(), "name",
            *gpu->name ? render_json_text(gpu->name) : json_null(), "device",
            json_integer(gpu->device), NULL);
}

static json_t *heat_json_rank(const struct stall_heat_row *row)
{
    json_t *item = render_json_set(json_object(), "rank", render_json_count(row->rank), "pid",
            json_integer(row->pid), "host", render_json_text(row->host), NULL);
    if (row->gpu.known)
        json_object_set_new(item, "gpu", stalls_gpu_json(&row->gpu));
    return item;
}

json_t *stalls_heat_json(const struct stall_heat *heat)
{
    if (!heat->blocks)
        return json_null();
    json_t *item = json_object(), *ranks = json_array(), *values = json_array(),
           *worst = heat_json_rank(&heat->worst);
    for (size_t i = 0; i < heat->row_count; i++) {
        const struct stall_heat_row *row = &heat->rows[i];
        json_array_append_new(ranks,
                render_json_set(heat_json_rank(row), "of", json_integer((json_int_t)row->of),
                        "which",
                        row->of < 2 ? json_null() : json_string(row->worst ? "worst" : "median"),
                        NULL));
        json_array_append_new(values, render_json_list(k, heat->blocks, json_real(row->shares[k])));
    }
    render_json_set(worst, "block", json_integer((json_int_t)heat->worst_block), "share",
            json_real(heat_most(heat)), NULL);
    return render_json_set(item, "by", json_string(heat->by_work ? "work" : "waits"), "begin_ns",
            json_integer(heat->begin_ns), "end_ns", json_integer(heat->end_ns), "blocks",
            json_integer((json_int_t)heat->blocks), "ranks", ranks, "values", values, "worst",
            worst, "compared", json_integer((json_int_t)heat->ranks), "unknown",
            json_integer((json_int_t)heat->unknown), NULL);
}
