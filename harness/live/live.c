// SPDX-License-Identifier: Apache-2.0
// The screen and its keys.
#include "harness/live/live.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/signals.h"
#include "common/strings.h"
#include "common/units.h"
#include "harness/live/look.h"
#include "harness/live/renew.h"
#include "reports/render/text/screen.h"

#define LIVE_S INT64_C(1000000000)

enum {
    LIVE_ROWS = 24,        // of a terminal that does not tell
    LIVE_START_S = 20,     // for the first look, as look.c gives a recorder to end
    LIVE_WINDOW_MIN_S = 2, // by the keys + and -
    LIVE_WINDOW_MAX_S = 600,
};

struct live {
    const struct live_opts *opts;
    struct look look;
    struct renew renew;
    bool screen; // a terminal, with keys
    bool frozen, quits, changed;
    bool shown, ended; // a look was; the target has, before a recorder could take over
    struct termios before;
    struct render_opts render;
    int64_t window_ns, next_ns;
    size_t selected;
    char *said; // about the last key; NULL: nothing
};

static volatile sig_atomic_t live_signal, live_resized;

static void live_on_signal(int number)
{
    if (number == SIGWINCH)
        live_resized = 1;
    else
        live_signal = number;
}

static void live_catch_signals(void)
{
    struct sigaction action = {.sa_handler = live_on_signal}; // no SA_RESTART: poll() must end
    live_signal = live_resized = 0;
    signals_catch_end(live_on_signal);
    // by default it ends us at once, and the terminal stays as it is
    sigaction(SIGQUIT, &action, NULL);
    sigaction(SIGWINCH, &action, NULL);
    signal(SIGPIPE, SIG_IGN); // a reader that has gone is an error in words
}

static void live_save(struct live *live)
{
    struct error err = {0};
    char *path = NULL;
    int rc = look_save(&live->look, "stalls.db", &path, &err);
    free(live->said);
    live->said = rc ? xstrdup(err.text) : xasprintf("saved: upgate stalls %s", path);
    free(path);
}

// --- what is shown -------------------------------------------------------------------------------

static void live_view(
        const struct live *live, struct stalls_shown *shown, struct stalls_view *view, size_t rows)
{
    *shown = (struct stalls_shown){&live->look.recordings.items[0], live->look.stalls};
    *view = (struct stalls_view){.shown = shown,
            .count = 1,
            .recordings = &live->look.recordings,
            .rows_max = rows,
            .details_from = live->selected,
            .details_max = 1};
}

static char *live_head(const struct live *live)
{
    char clock[16], window[32];
    time_t now = time(NULL);
    struct tm tm;
    strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&now, &tm));
    unit_format_ns(window, sizeof window, (double)live->window_ns);
    return xasprintf("upgate stalls --live, %s, the last %s%s", clock, window,
            live->frozen ? ", FROZEN" : "");
}

static int live_print(struct live *live, struct error *err)
{
    struct stalls_shown shown;
    struct stalls_view view;
    live_view(live, &shown, &view, live->opts->rows_max);
    int rc = 0;
    if (live->opts->json) {
        json_t *document = stalls_view_json(&view);
        char *text = document ? json_dumps(document, JSON_COMPACT) : NULL;
        json_decref(document);
        if (!text || printf("%s\n", text) < 0 || fflush(stdout))
            rc = error_set(err, -EIO, "failed to print the stalls: %s", strerror(errno));
        free(text);
        return rc;
    }
    char *head = live_head(live);
    printf("%s\n", head);
    free(head);
    rc = stalls_view_table(&view, &live->render, stdout, err);
    if (rc == 0 && (printf("\n") < 0 || fflush(stdout)))
        rc = error_set(err, -EIO, "failed to print the stalls: %s", strerror(errno));
    return rc;
}

// The text line by line, as many as there is room for.
static void live_put_lines(struct strbuf *out, const char *text, int rows)
{
    while (*text && rows-- > 0) {
        const char *end = strchrnul(text, '\n');
        strbuf_add(out, "%.*s\033[K\r\n", (int)(end - text), text);
        text = *end ? end + 1 : end;
    }
}

static int live_draw(struct live *live, struct error *err)
{
    static const char keys[] = "q quit  space freeze  up/down cause  +/- window  s save";
    struct winsize size = {0};
    int rows =
            ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row ? size.ws_row : LIVE_ROWS;
    live->render.width = size.ws_col ? size.ws_col : RENDER_WIDTH_DEFAULT;
    struct strbuf out = {0};
    char *text = NULL, *head = live_head(live),
         *fit = screen_fit(head, live->render.width - 1, live->render.utf8);
    size_t len = 0;
    int rc = 0;
    strbuf_add(&out, "\033[H");
    screen_style(&out, SCREEN_STYLE_BOLD, live->render.color, fit);
    strbuf_add(&out, "\033[K\r\n\033[K\r\n");
    if (live->look.stalls) {
        struct stalls_shown shown;
        struct stalls_view view;
        FILE *stream = open_memstream(&text, &len);
        live_view(live, &shown, &view, rows > 30 ? (size_t)rows / 3 : 8);
        rc = stream ? stalls_view_table(&view, &live->render, stream, err)
                    : error_set(err, -ENOMEM, "out of memory");
        if (stream)
            fclose(stream);
    }
    live_put_lines(&out, text ? text : "recording, nothing to show yet\n", rows - 4);
    strbuf_add(&out, "\033[J\033[%d;1H", rows);
    free(fit);
    fit = screen_fit(live->said ? live->said : keys, live->render.width - 1, live->render.utf8);
    screen_style(&out, SCREEN_STYLE_DIM, live->render.color, fit);
    if (rc == 0 && (fwrite(out.text, 1, out.len, stdout) != out.len || fflush(stdout)))
        rc = error_set(err, -EIO, "failed to print the stalls: %s", strerror(errno));
    strbuf_free(&out);
    free(text);
    free(head);
    free(fit);
    return rc;
}

static int live_show(struct live *live, struct error *err)
{
    bool changed = live->changed;
    live->changed = false;
    if (!changed)
        return 0;
    return live->screen ? live_draw(live, err) : live->look.stalls ? live_print(live, err) : 0;
}

// --- the terminal --------------------------------------------------------------------------------

static void live_open_screen(struct live *live)
{
    live->screen = !live->opts->json && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) &&
            tcgetattr(STDIN_FILENO, &live->before) == 0;
    if (!live->screen)
        return;
    struct termios raw = live->before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VSUSP] = _POSIX_VDISABLE; // stopped, it would leave the terminal like this
    raw.c_cc[VQUIT] = _POSIX_VDISABLE; // it would end the recorder, too, at once: a key that quits
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    printf("\033[?1049h\033[?25l"); // a screen of its own, without a cursor
    live->changed = true;
}

static void live_close_screen(struct live *live)
{
    if (!live->screen)
        return;
    printf("\033[?25h\033[?1049l");
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSANOW, &live->before);
    live->screen = false;
}

static void live_set_window(struct live *live, int64_t window_ns)
{
    if (window_ns < LIVE_WINDOW_MIN_S * LIVE_S || window_ns > LIVE_WINDOW_MAX_S * LIVE_S)
        return;
    live->window_ns = window_ns;
    live->next_ns = 0;
    live->frozen = false;
}

static void live_key(struct live *live, const char *key)
{
    size_t last = live->look.stalls && live->look.stalls->count ? live->look.stalls->count - 1 : 0;
    bool up = *key == 'k' || strncmp(key, "\033[A", 3) == 0,
         down = *key == 'j' || strncmp(key, "\033[B", 3) == 0;
    free(live->said);
    live->said = NULL;
    live->changed = true;
    if (*key == 'q' || *key == '\034') // and Ctrl-backslash
        live->quits = true;
    else if (*key == ' ')
        live->frozen = !live->frozen;
    else if (*key == 's')
        live_save(live);
    else if (*key == '+' || *key == '-')
        live_set_window(live, *key == '+' ? live->window_ns * 2 : live->window_ns / 2);
    else if (up && live->selected > 0)
        live->selected--;
    else if (down && live->selected < last)
        live->selected++;
}

// Until something is to be done.
static void live_wait(struct live *live, int64_t until_ns)
{
    int64_t left_ns = until_ns - clock_monotonic_ns();
    int wait_ms = left_ns <= 0 ? 0 : left_ns > LIVE_S / 5 ? 200 : (int)(left_ns / 1000000) + 1;
    struct pollfd keys = {.fd = live->screen ? STDIN_FILENO : -1, .events = POLLIN};
    if (poll(&keys, 1, wait_ms) <= 0)
        return;
    char text[64] = "";
    ssize_t got = read(STDIN_FILENO, text, sizeof text - 1);
    if (got <= 0)
        live->quits = true; // the terminal has gone
    // of an arrow three bytes come
    for (const char *key = text; *key; key += *key == '\033' && strlen(key) >= 3 ? 3 : 1)
        live_key(live, key);
}

// There may be fewer causes than at the look before.
static void live_keep_selected(struct live *live)
{
    size_t count = live->look.stalls ? live->look.stalls->count : 0;
    if (live->selected >= count)
        live->selected = count ? count - 1 : 0;
}

// Where others have the CPUs a recorder takes seconds to start, once more than six: what is to end
// before there is a first look waits for that.
static int64_t live_end_ns(const struct live *live, int64_t began_ns)
{
    int64_t duration_ns = live->opts->duration_ns;
    return duration_ns ? began_ns + duration_ns + (live->shown ? 0 : LIVE_START_S * LIVE_S)
                       : INT64_MAX;
}

static int live_loop(struct live *live, struct error *err)
{
    const struct live_opts *opts = live->opts;
    int64_t began_ns = clock_monotonic_ns(), now_ns = began_ns, end_ns;
    int rc = 0;
    live->next_ns = now_ns + LIVE_S; // the recorder commits once a second
    while (rc == 0 && !live->quits && !live_signal &&
            now_ns < (end_ns = live_end_ns(live, began_ns))) {
        live_wait(live, live->next_ns < end_ns ? live->next_ns : end_ns);
        now_ns = clock_monotonic_ns();
        rc = renew_reap(&live->renew, &live->look, err);
        if (rc != -EAGAIN)
            break;
        rc = 0;
        if (now_ns >= live->next_ns && !live->frozen) {
            bool looked = look_again(&live->look, live->window_ns);
            live->changed |= looked;
            live->shown |= looked;
            int64_t took_ns = clock_monotonic_ns() - now_ns;
            // A look that takes long is repeated less often: a tenth of a CPU at most.
            live->next_ns =
                    now_ns + (10 * took_ns > opts->every_ns ? 10 * took_ns : opts->every_ns);
            if (!live->look.stalls)
                live->next_ns = now_ns + LIVE_S / 4;
        } else if (now_ns >= live->next_ns) {
            live->next_ns = now_ns + opts->every_ns;
        }
        live_keep_selected(live);
        live->changed |= live_resized && live->screen;
        live_resized = 0;
        rc = live_show(live, err);
        if (rc == 0 && !live->frozen)
            rc = renew_when_outgrown(&live->renew, &live->look, err);
    }
    live->ended = rc == RENEW_ENDED;
    return live->ended ? 0 : rc;
}

int live_run(const struct live_opts *opts, struct error *err)
{
    struct live live = {.opts = opts,
            .renew = {.recording = opts->recording, .silent = true},
            .window_ns = opts->window_ns};
    struct look *look = &live.look;
    render_opts_detect(&live.render, STDOUT_FILENO, opts->no_color);
    int rc = renew_start(&live.renew, look, err);
    if (rc == 0) {
        live_catch_signals();
        live_open_screen(&live);
        rc = live_loop(&live, err);
        live_close_screen(&live);
        if (rc == 0 && (look->ended || live.ended))
            log_info("the target has ended");
        if (rc == 0 && look->ended) {
            live.shown |= look_again(look, live.window_ns); // what the recorder wrote at its end
            rc = look->stalls ? live_print(&live, err) : 0;
        }
    }
    struct error end = {0};
    int end_rc = look_stop(look, &end);
    if (rc == 0 && end_rc)
        rc = error_set(err, end_rc, "%s", end.text);
    if (rc == 0 && !live.shown && !live_signal && !live.quits)
        rc = error_set(err, -ENODATA, "nothing was recorded: %s", look->error.text);
    look_free(look);
    renew_free(&live.renew);
    free(live.said);
    return rc;
}
