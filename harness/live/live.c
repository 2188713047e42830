// SPDX-License-Identifier: Apache-2.0
// The recorder's process, the screen and its keys.
#include "harness/live/live.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/strings.h"
#include "common/units.h"
#include "harness/record/recording.h"
#include "reports/analyse/stalls/stalls.h"
#include "reports/render/stalls/stalls_view.h"
#include "reports/render/text/screen.h"
#include "tracer/store/store.h"

#define LIVE_S INT64_C(1000000000)
#define LIVE_LEAST_NS (LIVE_S * 9 / 10) // of a window: shares of less say nothing

enum {
    LIVE_END_S = 20,       // the recorder may write that long at its end
    LIVE_ROWS = 24,        // of a terminal that does not tell
    LIVE_WINDOW_MIN_S = 2, // by the keys + and -
    LIVE_WINDOW_MAX_S = 600,
};

struct live {
    const struct live_opts *opts;
    char *path;
    bool own; // the store is a file of ours
    pid_t child;
    int report_fd; // how the recorder ended: its struct error
    bool ended;
    bool screen; // a terminal, with keys
    bool frozen, quits, changed;
    struct termios before;
    struct render_opts render;
    int64_t window_ns, next_ns;
    size_t selected;
    char *said; // about the last key; NULL: nothing
    struct store *store;   // kept open: to read its schema is a third of a look. NULL: not yet
    struct stalls *stalls; // the last look; NULL: none yet
    struct stalls_recordings recordings;
    struct error look_error; // of the last look that failed
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
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
    live_signal = live_resized = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, NULL);
    signal(SIGPIPE, SIG_IGN); // a reader that has gone is an error in words
}

// --- the recorder's process -----------------------------------------------------------------------

static int live_choose_path(struct live *live, struct error *err)
{
    const char *folder = getenv("TMPDIR");
    if (live->opts->path) {
        live->path = xstrdup(live->opts->path);
        return 0;
    }
    live->path = xasprintf("%s/upgate-live-XXXXXX", folder && *folder ? folder : "/tmp");
    int fd = mkstemp(live->path);
    if (fd < 0)
        return error_set(err, -errno, "failed to create '%s': %s; name another folder in TMPDIR, or a file with -o", live->path,
                         strerror(errno));
    close(fd);
    live->own = true;
    return 0;
}

static void live_remove(const struct live *live)
{
    if (!live->own)
        return;
    char *journal = xasprintf("%s-journal", live->path);
    unlink(live->path);
    unlink(journal);
    free(journal);
}

// The child. What it warns of is in the store, and no other process writes on the screen.
static _Noreturn void live_record(const struct live *live, int report_fd, pid_t parent)
{
    const struct live_opts *opts = live->opts;
    struct error err = {0};
    struct recording_result result = {0};
    struct recording_opts recording = {.path = live->path,
                                       .pids = opts->pids,
                                       .pid_count = opts->pid_count,
                                       .cgroup = opts->cgroup,
                                       .sample_hz = 0,
                                       .max_bytes = opts->max_bytes,
                                       .live = true,
                                       .command_line = opts->command_line};
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3 && null_fd >= 0; fd++)
        dup2(null_fd, fd);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int rc = getppid() == parent ? recording_run(&recording, &result, &err) : -ECANCELED;
    if (rc == 0)
        err.code = 0;
    live_remove(live); // also when nobody lives who would
    _exit(write(report_fd, &err, sizeof err) == sizeof err && rc == 0 ? 0 : 1);
}

static int live_start(struct live *live, struct error *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC))
        return error_set(err, -errno, "failed to make a pipe: %s", strerror(errno));
    pid_t parent = getpid();
    fflush(NULL);
    live->child = fork();
    if (live->child == 0)
        live_record(live, fds[1], parent);
    int failure = errno;
    close(fds[1]);
    live->report_fd = fds[0];
    return live->child < 0 ? error_set(err, -failure, "failed to start the recorder: %s", strerror(failure)) : 0;
}

// Waits for it, at most until then. How it ended in err.
static int live_reap(struct live *live, int64_t until_ns, struct error *err)
{
    int status = 0;
    while (waitpid(live->child, &status, WNOHANG) == 0) {
        if (clock_monotonic_ns() >= until_ns)
            return -EAGAIN;
        poll(NULL, 0, 10);
    }
    live->ended = true;
    struct error report = {0};
    if (read(live->report_fd, &report, sizeof report) != sizeof report)
        return error_set(err, -EIO, "the recorder ended by signal %d", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return report.code ? error_set(err, report.code, "%s", report.text) : 0;
}

static int live_stop(struct live *live, struct error *err)
{
    if (live->child <= 0 || live->ended)
        return 0;
    kill(live->child, SIGINT);
    int rc = live_reap(live, clock_monotonic_ns() + LIVE_END_S * LIVE_S, err);
    if (rc != -EAGAIN)
        return rc;
    kill(live->child, SIGKILL);
    waitpid(live->child, NULL, 0);
    return error_set(err, -ETIMEDOUT, "the recorder did not end within %d s", LIVE_END_S);
}

// --- a look ---------------------------------------------------------------------------------------

static void live_forget(struct live *live)
{
    stalls_free(live->stalls);
    live->stalls = NULL;
    stalls_recordings_clear(&live->recordings);
}

// What was seen before stays where the store cannot be read: it is not there yet, or is being written.
static void live_look(struct live *live)
{
    struct stalls *stalls = NULL;
    struct stalls_recordings recordings = {0};
    struct error *err = &live->look_error;
    int rc = live->store ? 0 : store_open(live->path, STORE_READ, &live->store, err);
    if (rc == 0)
        rc = stalls_recordings_load(live->store, &recordings, err);
    if (rc == 0 && recordings.count == 0)
        rc = error_set(err, -ENOENT, "nothing is recorded yet");
    if (rc == 0)
        rc = stalls_analyse(live->store, &(struct stalls_opts){.last_ns = live->window_ns}, &stalls, err);
    if (rc) {
        store_close(live->store);
        live->store = NULL;
    }
    if (rc == 0 && stalls->window_ns < LIVE_LEAST_NS)
        rc = error_set(err, -ENODATA, "there is less than a second to look at");
    if (rc) {
        stalls_free(stalls);
        stalls_recordings_clear(&recordings);
        return;
    }
    live_forget(live);
    live->stalls = stalls;
    live->recordings = recordings;
    if (!recordings.items[0].end_ns)
        recordings.items[0].end_ns = recordings.items[0].begin_ns + 1; // it goes on, which is no fault of it
    live->changed = true;
}

// All that the store still has, at one moment.
static int live_copy(const struct live *live, const char *path, struct error *err)
{
    static const char end[] = "UPDATE run SET state = 'done', writer_pid = NULL, writer_start = NULL; UPDATE recording SET end_ns = "
                              "(SELECT max(at_ns) FROM counter WHERE recording_id = recording.id)"; // in order
    sqlite3 *from = NULL, *to = NULL;
    int rc = sqlite3_open_v2(live->path, &from, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK ? 0 : error_set(err, -EIO, "%s", sqlite3_errmsg(from));
    if (rc == 0 && sqlite3_open_v2(path, &to, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) != SQLITE_OK)
        rc = error_set(err, -EIO, "%s", sqlite3_errmsg(to));
    if (rc == 0)
        sqlite3_busy_timeout(from, 5000);
    sqlite3_backup *backup = rc == 0 ? sqlite3_backup_init(to, "main", from, "main") : NULL;
    int step = SQLITE_DONE;
    if (backup)
        step = sqlite3_backup_step(backup, -1);
    sqlite3_backup_finish(backup);
    if (rc == 0 && (!backup || step != SQLITE_DONE || sqlite3_exec(to, end, NULL, NULL, NULL) != SQLITE_OK))
        rc = error_set(err, -EIO, "%s", step != SQLITE_DONE ? sqlite3_errstr(step) : sqlite3_errmsg(to));
    sqlite3_close(to);
    sqlite3_close(from);
    return rc;
}

static void live_save(struct live *live)
{
    time_t now = time(NULL);
    struct tm tm;
    char stamp[32];
    struct error err = {0};
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", localtime_r(&now, &tm));
    char *path = xasprintf("stalls-%s.db", stamp);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600); // a recording holds what root saw
    int rc = fd < 0 ? error_set(&err, -errno, "%s", strerror(errno)) : live_copy(live, path, &err);
    if (fd >= 0 && rc)
        unlink(path);
    if (fd >= 0)
        close(fd);
    free(live->said);
    live->said = rc ? xasprintf("failed to save '%s': %s", path, err.text) : xasprintf("saved: upgate stalls %s", path);
    free(path);
}

// --- what is shown --------------------------------------------------------------------------------

static void live_view(const struct live *live, struct stalls_shown *shown, struct stalls_view *view, size_t rows, size_t details)
{
    *shown = (struct stalls_shown){&live->recordings.items[0], live->stalls};
    *view = (struct stalls_view){.shown = shown,
                                 .count = 1,
                                 .recordings = &live->recordings,
                                 .rows_max = rows,
                                 .details_from = live->selected,
                                 .details_max = details};
}

static char *live_head(const struct live *live)
{
    char clock[16], window[32];
    time_t now = time(NULL);
    struct tm tm;
    strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&now, &tm));
    unit_format_ns(window, sizeof window, (double)live->window_ns);
    return xasprintf("upgate stalls --live, %s, the last %s%s", clock, window, live->frozen ? ", FROZEN" : "");
}

static int live_print(struct live *live, struct error *err)
{
    struct stalls_shown shown;
    struct stalls_view view;
    live_view(live, &shown, &view, live->opts->rows_max, 1);
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
    int rows = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row ? size.ws_row : LIVE_ROWS;
    live->render.width = size.ws_col ? size.ws_col : RENDER_WIDTH_DEFAULT;
    struct strbuf out = {0};
    char *text = NULL, *head = live_head(live), *fit = screen_fit(head, live->render.width - 1, live->render.utf8);
    size_t len = 0;
    int rc = 0;
    strbuf_add(&out, "\033[H");
    screen_style(&out, SCREEN_STYLE_BOLD, live->render.color, fit);
    strbuf_add(&out, "\033[K\r\n\033[K\r\n");
    if (live->stalls) {
        struct stalls_shown shown;
        struct stalls_view view;
        FILE *stream = open_memstream(&text, &len);
        live_view(live, &shown, &view, rows > 30 ? (size_t)rows / 3 : 8, 1);
        rc = stream ? stalls_view_table(&view, &live->render, stream, err) : error_set(err, -ENOMEM, "out of memory");
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
    return live->screen ? live_draw(live, err) : live->stalls ? live_print(live, err) : 0;
}

// --- the terminal ---------------------------------------------------------------------------------

static void live_open_screen(struct live *live)
{
    live->screen = !live->opts->json && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && tcgetattr(STDIN_FILENO, &live->before) == 0;
    if (!live->screen)
        return;
    struct termios raw = live->before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
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
    size_t last = live->stalls && live->stalls->count ? live->stalls->count - 1 : 0;
    bool up = *key == 'k' || strncmp(key, "\033[A", 3) == 0, down = *key == 'j' || strncmp(key, "\033[B", 3) == 0;
    free(live->said);
    live->said = NULL;
    live->changed = true;
    if (*key == 'q')
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
    for (const char *key = text; *key; key += *key == '\033' && strlen(key) >= 3 ? 3 : 1) // of an arrow three bytes come
        live_key(live, key);
}

// There may be fewer causes than at the look before.
static void live_keep_selected(struct live *live)
{
    size_t count = live->stalls ? live->stalls->count : 0;
    if (live->selected >= count)
        live->selected = count ? count - 1 : 0;
}

static int live_loop(struct live *live, struct error *err)
{
    const struct live_opts *opts = live->opts;
    int64_t now_ns = clock_monotonic_ns(), end_ns = opts->duration_ns ? now_ns + opts->duration_ns : INT64_MAX;
    int rc = 0;
    live->next_ns = now_ns + LIVE_S; // the recorder commits once a second
    while (rc == 0 && !live->quits && !live_signal && now_ns < end_ns) {
        live_wait(live, live->next_ns < end_ns ? live->next_ns : end_ns);
        now_ns = clock_monotonic_ns();
        int reaped = live_reap(live, 0, err);
        if (reaped != -EAGAIN)
            return reaped;
        if (now_ns >= live->next_ns && !live->frozen) {
            live_look(live);
            int64_t took_ns = clock_monotonic_ns() - now_ns;
            // A look that takes long is repeated less often: a tenth of a CPU at most.
            live->next_ns = now_ns + (10 * took_ns > opts->every_ns ? 10 * took_ns : opts->every_ns);
            if (!live->stalls)
                live->next_ns = now_ns + LIVE_S / 4;
        } else if (now_ns >= live->next_ns) {
            live->next_ns = now_ns + opts->every_ns;
        }
        live_keep_selected(live);
        live->changed |= live_resized && live->screen;
        live_resized = 0;
        rc = live_show(live, err);
    }
    return rc;
}

int live_run(const struct live_opts *opts, struct error *err)
{
    struct live live = {.opts = opts, .window_ns = opts->window_ns, .report_fd = -1};
    render_opts_detect(&live.render, STDOUT_FILENO, opts->no_color);
    int rc = live_choose_path(&live, err);
    if (rc == 0)
        rc = live_start(&live, err);
    if (rc == 0) {
        live_catch_signals();
        live_open_screen(&live);
        rc = live_loop(&live, err);
        live_close_screen(&live);
        if (rc == 0 && live.ended)
            log_info("the target has ended");
    }
    struct error end = {0};
    int end_rc = live_stop(&live, &end);
    if (rc == 0 && end_rc)
        rc = error_set(err, end_rc, "%s", end.text);
    if (rc == 0 && !live.stalls && !live_signal && !live.quits)
        rc = error_set(err, -ENODATA, "nothing was recorded: %s", live.look_error.text);
    if (live.path)
        live_remove(&live);
    if (live.report_fd >= 0)
        close(live.report_fd);
    live_forget(&live);
    store_close(live.store);
    free(live.said);
    free(live.path);
    return rc;
}
