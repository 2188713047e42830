// SPDX-License-Identifier: Apache-2.0
// Live progress. Writes stderr only: on a terminal a panel of a few lines that is drawn over
// itself, else one plain line whenever a look, a phase or a workload begins. One thread; keeps no
// pointer of a state.
#include "reports/render/verdict/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/log.h"
#include "common/strings.h"
#include "reports/render/text/numbers.h"
#include "reports/render/text/screen.h"
#include "reports/render/verdict/cell.h"

enum { PROGRESS_CELLS_MAX = 8 };

static struct {
    bool enabled, terminal, utf8;
    int lines;   // drawn and still on the screen
    char *drawn; // what they say, so that the same is not drawn again
    char *begun; // workload, phase and look of the last plain line
} progress;

static void progress_write(const char *text, size_t len)
{
    ssize_t written = write(STDERR_FILENO, text, len); // a lost panel is no reason to end a run
    (void)written;
}

static void progress_clear(void)
{
    if (progress.lines == 0)
        return;
    char *up = xasprintf("\r\033[%dA\033[J", progress.lines);
    progress_write(up, strlen(up));
    free(up);
    progress.lines = 0;
    free(progress.drawn);
    progress.drawn = NULL;
}

// "[2/5] dlrm-train"
static void progress_title(struct strbuf *out, const struct progress_state *state)
{
    char *name = screen_clean(state->workload ? state->workload : "", progress.utf8);
    if (state->workload_count > 0)
        strbuf_add(out, "[%d/%d] ", state->workload_idx + 1, state->workload_count);
    strbuf_add(out, "%s%s%s", name, *name && state->phase ? ": " : "",
            state->phase ? state->phase : "");
    free(name);
}

static void progress_times(struct strbuf *out, const struct progress_state *state)
{
    strbuf_add(out, "%s so far", numbers_duration(state->elapsed_ns, NUMBERS_BUFFER));
    if (state->remaining_ns >= 0)
        strbuf_add(out, ", about %s left", numbers_duration(state->remaining_ns, NUMBERS_BUFFER));
}

static bool progress_decided(const struct progress_cell *cell)
{
    return cell->verdict && *cell->verdict && strcmp(cell->verdict, "-") != 0;
}

// "+5.1 % (+4.6 to +5.6)"
static void progress_numbers(struct strbuf *out, const struct progress_cell *cell)
{
    const struct report_cell as = {.ratio = cell->ratio,
            .ci_lower = cell->ci_lower,
            .ci_upper = cell->ci_upper,
            .margin = NAN};
    strbuf_add(out, "%s", cell_change(&as, NUMBERS_BUFFER));
    if (isfinite(cell->ci_lower) && isfinite(cell->ci_upper))
        strbuf_add(out, " (%s)", cell_interval(&as, NUMBERS_BUFFER));
}

static void progress_line(struct strbuf *panel, struct strbuf *line, int width, int *lines)
{
    char *fit = screen_fit(line->text, width - 1, progress.utf8);
    strbuf_add(panel, "%s\n", fit);
    free(fit);
    strbuf_free(line);
    (*lines)++;
}

static int progress_cells_max(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row == 0)
        return PROGRESS_CELLS_MAX;
    int rows = size.ws_row - 4;
    return rows < 0 ? 0 : rows < PROGRESS_CELLS_MAX ? rows : PROGRESS_CELLS_MAX;
}

static void progress_draw(const struct progress_state *state)
{
    int width = screen_fd_width(STDERR_FILENO, 80), lines = 0, max = progress_cells_max();
    struct strbuf panel = {0}, line = {0};
    progress_title(&line, state);
    if (state->pairs_target > 0)
        strbuf_add(&line, ", pair %d of %d",
                state->pair < state->pairs_target ? state->pair + 1 : state->pairs_target,
                state->pairs_target);
    if (state->look_count > 0)
        strbuf_add(&line, ", look %d of %d", state->look_idx + 1, state->look_count);
    strbuf_add(&line, "; ");
    progress_times(&line, state);
    progress_line(&panel, &line, width, &lines);
    for (int i = 0; i < state->cell_count && i < max; i++) {
        const struct progress_cell *cell = &state->cells[i];
        strbuf_add(&line, "  ");
        screen_pad(&line, cell->metric, 19, false);
        screen_pad(&line, progress_decided(cell) ? cell->verdict : "open", 14, false);
        progress_numbers(&line, cell);
        progress_line(&panel, &line, width, &lines);
    }
    if (state->cell_count > max && max > 0) {
        strbuf_add(&line, "  and %d more", state->cell_count - max);
        progress_line(&panel, &line, width, &lines);
    }
    if (!progress.drawn || strcmp(progress.drawn, panel.text) != 0) {
        char *text = xstrdup(panel.text);
        progress_clear();
        progress_write(text, strlen(text));
        progress.drawn = text;
        progress.lines = lines;
    }
    strbuf_free(&panel);
}

// Elsewhere a line when something begins: logs of a CI system keep every line.
static void progress_say(const struct progress_state *state)
{
    struct strbuf line = {0};
    progress_title(&line, state);
    char *key = xasprintf("%s %d %d", line.text, state->look_idx, state->pairs_target);
    if (progress.begun && (state->pairs_target == 0 || strcmp(progress.begun, key) == 0)) {
        free(key);
        strbuf_free(&line);
        return;
    }
    free(progress.begun);
    progress.begun = key;
    if (state->pairs_target > 0)
        strbuf_add(&line, ", up to pair %d", state->pairs_target);
    if (state->look_count > 0)
        strbuf_add(&line, " (look %d of %d)", state->look_idx + 1, state->look_count);
    int shown = 0;
    for (int i = 0; i < state->cell_count && shown < PROGRESS_CELLS_MAX; i++) {
        const struct progress_cell *cell = &state->cells[i];
        if (!progress_decided(cell) && !isfinite(cell->ratio))
            continue;
        strbuf_add(&line, "%s%s %s ", shown++ ? ", " : "; ", cell->metric,
                progress_decided(cell) ? cell->verdict : "open");
        progress_numbers(&line, cell);
    }
    strbuf_add(&line, "; ");
    progress_times(&line, state);
    log_info("%s", line.text);
    strbuf_free(&line);
}

void progress_start(int workload_count, bool enabled)
{
    (void)workload_count; // each state says it again; the harness knows it before the first one
    const char *terminal = getenv("TERM");
    progress_stop();
    progress.enabled = enabled;
    progress.terminal =
            isatty(STDERR_FILENO) && terminal && *terminal && strcmp(terminal, "dumb") != 0;
    progress.utf8 = screen_locale_utf8();
    if (enabled && progress.terminal)
        log_set_hook(progress_clear);
}

void progress_update(const struct progress_state *state)
{
    if (!progress.enabled)
        return;
    if (progress.terminal)
        progress_draw(state);
    else
        progress_say(state);
}

void progress_stop(void)
{
    if (!progress.enabled)
        return;
    progress_clear();
    log_set_hook(NULL);
    free(progress.begun);
    progress.begun = NULL;
    progress.enabled = false;
}
