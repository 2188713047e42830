// SPDX-License-Identifier: Apache-2.0
// Looks for what the trigger names, and copies the store when it has happened.
#include "harness/live/watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/signals.h"
#include "common/strings.h"
#include "common/units.h"
#include "harness/live/kept.h"
#include "harness/live/look.h"
#include "harness/live/renew.h"
#include "reports/render/text/json_text.h"

#define WATCH_S INT64_C(1000000000)

enum {
    WATCH_EVERY_S = 2,
    WATCH_WINDOW_S = 10, // that is looked at, at least; what set the trigger off has left it before
                         // the next time
    WATCH_SHARE = 10,    // a look that takes long is repeated less often: a tenth of a CPU
    WATCH_STALL_MAX_S = 600, // two of it are the window, which is read at each look
    WATCH_STEPS_MIN = 20,    // of fewer a median says little
};

struct watch {
    const struct watch_opts *opts;
    struct renew renew; // of each recorder
    char *steps_path;   // of a command: one file of steps for all of them
    int steps_fd;       // which is ours while this is open
    struct look look;
    int64_t window_ns;
    bool told_short;                         // that less is kept than the trigger wants
    int64_t next_ns, due_ns, quiet_until_ns; // due_ns 0: nothing has happened
    char *answer;                            // what has
    struct kept kept;
    size_t incidents;
};

static volatile sig_atomic_t watch_signal;

static void watch_on_signal(int number)
{
    watch_signal = number;
}

// --- the trigger ---------------------------------------------------------------------------------

static const char *watch_word(const char *text, const char *word)
{
    text += strspn(text, " ");
    return strncmp(text, word, strlen(word)) == 0 ? text + strlen(word) : NULL;
}

int trigger_parse(const char *text, struct trigger *ret, struct error *err)
{
    const char *at = watch_word(text, "stall"), *rest = NULL;
    *ret = (struct trigger){.kind = at ? TRIGGER_STALL : TRIGGER_STEP};
    at = at ? at : watch_word(text, "step_time");
    at = at ? watch_word(at, ">") : NULL;
    if (at && ret->kind == TRIGGER_STALL) {
        struct error why = {0};
        at += strspn(at, " ");
        if (unit_parse_duration(at, &ret->stall_ns, &why) || ret->stall_ns < 1000000 ||
                ret->stall_ns > WATCH_STALL_MAX_S * WATCH_S)
            return error_set(
                    err, -EINVAL, "option '--trigger': '%s' is no time from 1 ms to 10 min", at);
        return 0;
    }
    if (at) {
        char *end = NULL;
        ret->times = strtod(at, &end);
        rest = end > at ? watch_word(end, "x") : NULL;
        rest = rest ? watch_word(rest, "median") : NULL;
    }
    if (!rest || rest[strspn(rest, " ")] || !(ret->times > 1 && ret->times <= 1e6))
        return error_set(err, -EINVAL,
                "option '--trigger': '%s' is not known; known are 'stall > 500ms' and 'step_time > 2x median'",
                text);
    return 0;
}

static char *watch_answer(const struct watch *watch)
{
    struct stalls_shown shown = {&watch->look.recordings.items[0], watch->look.stalls};
    const struct stalls_view view = {
            .shown = &shown, .count = 1, .recordings = &watch->look.recordings};
    json_t *document = stalls_view_json(&view);
    const char *answer = json_string_value(json_object_get(document, "answer"));
    char *copy = xstrdup(answer ? answer : "");
    json_decref(document);
    return copy;
}

// A wait is seen as long as the window at most, and who waits all of it is taken for idle: twice
// what is asked for.
static int64_t watch_window_ns(const struct trigger *trigger)
{
    int64_t least_ns = WATCH_WINDOW_S * WATCH_S;
    return 2 * trigger->stall_ns > least_ns ? 2 * trigger->stall_ns : least_ns;
}

// Of a look that took so long. A stall of the length that is asked for is in the window, and does
// not fill it, at one look at least.
static int64_t watch_every_ns(const struct watch *watch, int64_t took_ns)
{
    int64_t every_ns = WATCH_EVERY_S * WATCH_S,
            most_ns = (watch->window_ns - watch->opts->trigger.stall_ns) / 10 * 8;
    every_ns = WATCH_SHARE * took_ns > every_ns ? WATCH_SHARE * took_ns : every_ns;
    return every_ns < most_ns ? every_ns : most_ns;
}

// Once: a store that forgets sooner than the stall is long never shows it.
static void watch_tell_short(struct watch *watch, int64_t now_ns)
{
    char kept[32], wanted[32];
    const int64_t stall_ns = watch->opts->trigger.stall_ns, kept_ns = watch->look.stalls->window_ns;
    if (watch->told_short || kept_ns >= stall_ns ||
            now_ns - watch->renew.begun_ns < watch->window_ns)
        return;
    watch->told_short = true;
    log_warn("the last %s are kept, and a stall of %s cannot be seen in that: give --max-size more",
            unit_format_ns(kept, sizeof kept, (double)kept_ns),
            unit_format_ns(wanted, sizeof wanted, (double)stall_ns));
}

static bool watch_stalled(const struct watch *watch)
{
    const struct stalls *stalls = watch->look.stalls;
    for (size_t i = 0; i < stalls->count; i++)
        if (stalls->stalls[i].max_ns >= watch->opts->trigger.stall_ns)
            return true;
    return false;
}

// The slowest step of the window against the median of all that are kept: "step 812 took 31 ms, 2.4
// times the median". The first one of a program is always slow.
static char *watch_slow_step(const struct watch *watch)
{
    static const char median[] =
            "SELECT dur_ns FROM recorded_step ORDER BY dur_ns LIMIT 1 OFFSET (SELECT count(*) / 2 FROM recorded_step)";
    struct store *store = watch->look.store;
    int64_t count = 0, middle_ns = 0, slow_ns = 0, idx = 0,
            from_ns = clock_monotonic_ns() - watch->window_ns;
    if (store_get_int(store, &count, NULL, "SELECT count(*) FROM recorded_step", "") ||
            count < WATCH_STEPS_MIN || store_get_int(store, &middle_ns, NULL, median, "") ||
            middle_ns <= 0 ||
            store_get_int(store, &slow_ns, NULL,
                    "SELECT coalesce(max(dur_ns), 0) FROM recorded_step WHERE begin_ns + dur_ns >= ? AND idx > 0",
                    "i", from_ns) ||
            (double)slow_ns <= watch->opts->trigger.times * (double)middle_ns ||
            store_get_int(store, &idx, NULL,
                    "SELECT idx FROM recorded_step WHERE begin_ns + dur_ns >= ? AND dur_ns = ? AND idx > 0 LIMIT 1",
                    "ii", from_ns, slow_ns))
        return NULL;
    char number[32];
    return xasprintf("step %lld took %s, %.1f times the median of %lld steps", (long long)idx,
            unit_format_ns(number, sizeof number, (double)slow_ns),
            (double)slow_ns / (double)middle_ns, (long long)count);
}

static void watch_look(struct watch *watch, int64_t now_ns)
{
    if (!look_again(&watch->look, watch->window_ns))
        return;
    watch_tell_short(watch, now_ns);
    if (watch->due_ns || now_ns < watch->quiet_until_ns)
        return;
    char *step = watch->opts->trigger.kind == TRIGGER_STEP ? watch_slow_step(watch) : NULL;
    if (!step && (watch->opts->trigger.kind == TRIGGER_STEP || !watch_stalled(watch)))
        return;
    char *answer = watch_answer(watch);
    watch->answer = step ? xasprintf("%s; %s", step, answer) : xstrdup(answer);
    watch->due_ns = now_ns + watch->opts->after_ns;
    log_info("%s: %s", watch->opts->trigger_text, watch->answer);
    free(answer);
    free(step);
}

// --- incidents -----------------------------------------------------------------------------------

// Who reads them may have gone: the stores are there all the same.
static void watch_tell(const struct watch *watch, const char *path)
{
    char *text = NULL;
    if (watch->opts->json) {
        json_t *line = json_pack("{ss so ss so sI}", "schema", "upgate.incident/1", "path",
                render_json_text(path), "trigger", watch->opts->trigger_text, "answer",
                render_json_text(watch->answer), "at_unix_ns", (json_int_t)clock_wall_ns());
        text = line ? json_dumps(line, JSON_COMPACT) : NULL;
        json_decref(line);
    }
    if (printf("%s\n", text ? text : path) < 0 || fflush(stdout))
        log_warn("failed to print '%s': %s; the watch goes on", path, strerror(errno));
    free(text);
}

// One that cannot be saved ends nothing: there may be room for the next one.
static void watch_save(struct watch *watch)
{
    struct error err = {0};
    char *path = NULL;
    watch->incidents++;
    if (look_save(&watch->look, watch->opts->recording.path, &path, &err)) {
        log_warn("%s; the watch goes on", err.text);
    } else {
        watch_tell(watch, path);
        kept_add(&watch->kept, path, watch->opts->keep);
    }
    free(watch->answer);
    watch->answer = NULL;
    watch->due_ns = 0;
    watch->quiet_until_ns = clock_monotonic_ns() + watch->window_ns;
}

// --- all of it -----------------------------------------------------------------------------------

static int watch_loop(struct watch *watch, struct error *err)
{
    int64_t now_ns = clock_monotonic_ns(),
            end_ns = watch->opts->recording.duration_ns
            ? now_ns + watch->opts->recording.duration_ns
            : INT64_MAX;
    int rc = 0;
    while (rc == 0 && !watch_signal && now_ns < end_ns) {
        poll(NULL, 0, 100);
        now_ns = clock_monotonic_ns();
        rc = renew_reap(&watch->renew, &watch->look, err);
        if (rc != -EAGAIN)
            return rc;
        rc = 0;
        if (now_ns >= watch->next_ns) {
            watch_look(watch, now_ns);
            watch->next_ns = now_ns + watch_every_ns(watch, clock_monotonic_ns() - now_ns);
            rc = watch->due_ns ? 0 : renew_when_outgrown(&watch->renew, &watch->look, err);
        }
        if (rc == 0 && watch->due_ns && now_ns >= watch->due_ns)
            watch_save(watch);
    }
    return rc;
}

// Where the stores shall lie, asked for before the first one is wanted, which may be in weeks.
static int watch_check_folder(const char *name, struct error *err)
{
    char *folder = string_folder(name);
    int rc = access(folder, W_OK | X_OK)
            ? error_set(err, -errno, "failed to write into '%s': %s; name another place with -o",
                      folder, strerror(errno))
            : 0;
    free(folder);
    return rc;
}

int watch_run(const struct watch_opts *opts, struct error *err)
{
    struct watch watch = {.opts = opts, .renew.recording = opts->recording, .look.report_fd = -1};
    watch.window_ns = watch_window_ns(&opts->trigger);
    if (opts->recording.command && !opts->recording.symbol)
        watch.renew.recording.steps_path = watch.steps_path =
                recording_steps_reserve(&watch.steps_fd);
    // of its own: what it holds is kept when something has happened
    watch.renew.recording.path = NULL;
    watch.renew.recording.progress = false;
    watch.renew.recording.duration_ns = 0;
    watch_signal = 0;
    signals_catch_end(watch_on_signal);
    signal(SIGPIPE, SIG_IGN);
    kept_find(&watch.kept, opts->recording.path);
    int rc = watch_check_folder(opts->recording.path, err);
    if (rc == 0)
        rc = renew_start(&watch.renew, &watch.look, err);
    if (rc == 0)
        rc = watch_loop(&watch, err);
    rc = rc == RENEW_ENDED ? 0 : rc;
    struct error end = {0};
    int end_rc = look_stop(&watch.look, &end);
    if (rc == 0 && watch.look.path)
        watch_look(&watch, clock_monotonic_ns());
    if (watch.due_ns) // what happened last is not lost for want of the time behind it, nor with a
                      // recorder that failed
        watch_save(&watch);
    if (rc == 0 && end_rc)
        rc = error_set(err, end_rc, "%s", end.text);
    if (rc == 0)
        log_info("%zu incident%s", watch.incidents, watch.incidents == 1 ? "" : "s");
    look_free(&watch.look);
    if (watch.steps_path) {
        unlink(watch.steps_path);
        close(watch.steps_fd);
    }
    free(watch.steps_path);
    renew_free(&watch.renew);
    kept_free(&watch.kept);
    free(watch.answer);
    return rc;
}
