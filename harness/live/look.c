// SPDX-License-Identifier: Apache-2.0
// The recorder's process, and what is read of its store.
#include "harness/live/look.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "reports/analyse/trace/trace.h"
#include "reports/render/stalls/stalls_tally.h"

#define LOOK_S INT64_C(1000000000)
#define LOOK_LEAST_NS (LOOK_S * 9 / 10) // of a window: shares of less say nothing

enum { LOOK_END_S = 20 }; // the recorder may write that long at its end

// --- the recorder's process ----------------------------------------------------------------------

static int look_choose_path(struct look *look, const char *path, struct error *err)
{
    const char *folder = getenv("TMPDIR");
    if (path) {
        look->path = xstrdup(path);
        return 0;
    }
    char *name = xasprintf("%s/upgate-live-XXXXXX", folder && *folder ? folder : "/tmp");
    if (!mkdtemp(name)) { // nobody else lays a journal beside the store in it
        int rc = error_set(err, -errno,
                "failed to create the folder '%s': %s; name another place in TMPDIR, or a file with -o",
                name, strerror(errno));
        free(name);
        return rc;
    }
    look->folder = name;
    look->path = xasprintf("%s/run.db", name);
    return 0;
}

static void look_remove(const struct look *look)
{
    if (!look->folder)
        return;
    char *journal = xasprintf("%s-journal", look->path);
    unlink(look->path);
    unlink(journal);
    rmdir(look->folder);
    free(journal);
}

// Ctrl-backslash goes to both of us: the recorder ends in order when its parent has, or as that
// says. A handler, unlike SIG_IGN, is not inherited by a command.
static void look_on_quit(int number)
{
    (void)number;
}

static _Noreturn void look_record(const struct look *look, const struct recording_opts *opts,
        bool silent, int report_fd, pid_t parent)
{
    struct error err = {0};
    struct recording_result result = {0};
    struct recording_opts recording = *opts;
    recording.path = look->path;
    recording.live = true;
    recording.scratch = look->folder != NULL;
    int null_fd = silent ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;
    for (int fd = 0; fd < 3 && null_fd >= 0; fd++)
        dup2(null_fd, fd);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigaction(SIGQUIT, &(struct sigaction){.sa_handler = look_on_quit}, NULL);
    int rc = getppid() == parent ? recording_run(&recording, &result, &err) : -ECANCELED;
    if (rc == 0)
        err.code = 0;
    if (getppid() != parent) { // nobody lives who would
        look_remove(look);
        if (recording.steps_path)
            unlink(recording.steps_path);
    }
    _exit(write(report_fd, &err, sizeof err) == sizeof err && rc == 0 ? 0 : 1);
}

int look_start(struct look *look, const struct recording_opts *opts, bool silent, struct error *err)
{
    int fds[2], rc = look_choose_path(look, opts->path, err);
    look->report_fd = -1;
    if (rc)
        return rc;
    if (pipe2(fds, O_CLOEXEC))
        return error_set(err, -errno, "failed to make a pipe: %s", strerror(errno));
    pid_t parent = getpid();
    fflush(NULL);
    look->child = fork();
    if (look->child == 0)
        look_record(look, opts, silent, fds[1], parent);
    int failure = errno;
    close(fds[1]);
    look->report_fd = fds[0];
    return look->child < 0
            ? error_set(err, -failure, "failed to start the recorder: %s", strerror(failure))
            : 0;
}

int look_reap(struct look *look, int64_t until_ns, struct error *err)
{
    int status = 0;
    while (waitpid(look->child, &status, WNOHANG) == 0) {
        if (clock_monotonic_ns() >= until_ns)
            return -EAGAIN;
        poll(NULL, 0, 10);
    }
    look->ended = true;
    struct error report = {0};
    if (read(look->report_fd, &report, sizeof report) != sizeof report)
        return error_set(err, -EIO, "the recorder ended by signal %d",
                WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return report.code ? error_set(err, report.code, "%s", report.text) : 0;
}

int look_stop(struct look *look, struct error *err)
{
    if (look->child <= 0 || look->ended)
        return 0;
    kill(look->child, SIGINT);
    int rc = look_reap(look, clock_monotonic_ns() + LOOK_END_S * LOOK_S, err);
    if (rc != -EAGAIN)
        return rc;
    kill(look->child, SIGKILL);
    waitpid(look->child, NULL, 0);
    return error_set(err, -ETIMEDOUT, "the recorder did not end within %d s", LOOK_END_S);
}

// --- a look --------------------------------------------------------------------------------------

static void look_forget(struct look *look)
{
    stalls_free(look->stalls);
    look->stalls = NULL;
    stalls_recordings_clear(&look->recordings);
}

bool look_again(struct look *look, int64_t window_ns)
{
    struct stalls *stalls = NULL;
    struct stalls_recordings recordings = {0};
    struct error *err = &look->error;
    if (!look->tally)
        look->tally = stalls_tally_new();
    if (!look->cache)
        look->cache = trace_cache_new();
    int rc = look->store ? 0 : store_open(look->path, STORE_READ, &look->store, err);
    if (rc == 0)
        rc = stalls_recordings_again(look->store, look->tally, &recordings, err);
    if (rc == 0 && recordings.count == 0)
        rc = error_set(err, -ENOENT, "nothing is recorded yet");
    if (rc == 0)
        rc = stalls_analyse(look->store,
                &(struct stalls_opts){.last_ns = window_ns, .cache = look->cache}, &stalls, err);
    if (rc) {
        store_close(look->store);
        look->store = NULL;
    }
    if (rc == 0 && stalls->window_ns < LOOK_LEAST_NS)
        rc = error_set(err, -ENODATA, "there is less than a second to look at");
    if (rc) {
        stalls_free(stalls);
        stalls_recordings_clear(&recordings);
        return false;
    }
    look_forget(look);
    look->stalls = stalls;
    look->recordings = recordings;
    if (!recordings.items[0].end_ns)
        // it goes on, which is no fault of it
        recordings.items[0].end_ns = recordings.items[0].begin_ns + 1;
    return true;
}

// The index that a scratch store goes without (tracer/record/recorder.c), as the schema has it.
static int look_make_index(sqlite3 *to, struct error *err)
{
    static const char sql[] = "SELECT sql FROM sqlite_master WHERE name = 'gap_thread'";
    sqlite3 *schema = NULL;
    sqlite3_stmt *there = NULL, *wanted = NULL;
    int rc = store_open_schema(&schema, err);
    if (rc)
        return rc;
    bool has = sqlite3_prepare_v2(to, sql, -1, &there, NULL) == SQLITE_OK &&
            sqlite3_step(there) == SQLITE_ROW;
    sqlite3_finalize(there);
    if (!has &&
            (sqlite3_prepare_v2(schema, sql, -1, &wanted, NULL) != SQLITE_OK ||
                    sqlite3_step(wanted) != SQLITE_ROW))
        rc = error_set(err, -EIO, "the schema has no index gap_thread: %s", sqlite3_errmsg(schema));
    else if (!has &&
            sqlite3_exec(to, (const char *)sqlite3_column_text(wanted, 0), NULL, NULL, NULL) !=
                    SQLITE_OK)
        rc = error_set(err, -EIO, "%s", sqlite3_errmsg(to));
    sqlite3_finalize(wanted);
    sqlite3_close(schema);
    return rc;
}

static int look_copy(const struct look *look, const char *path, struct error *err)
{
    // in order
    static const char end[] =
            "UPDATE run SET state = 'done', writer_pid = NULL, writer_start = NULL; UPDATE recording SET end_ns = "
            "(SELECT max(at_ns) FROM counter WHERE recording_id = recording.id) WHERE end_ns IS NULL";
    sqlite3 *from = NULL, *to = NULL;
    // a recording holds what root saw
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set(err, -errno, "%s", strerror(errno));
    close(fd);
    int rc = sqlite3_open_v2(look->path, &from, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK
            ? 0
            : error_set(err, -EIO, "%s", sqlite3_errmsg(from));
    if (rc == 0 && sqlite3_open_v2(path, &to, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
        rc = error_set(err, -EIO, "%s", sqlite3_errmsg(to));
    if (rc == 0)
        sqlite3_busy_timeout(from, 5000);
    sqlite3_backup *backup = rc == 0 ? sqlite3_backup_init(to, "main", from, "main") : NULL;
    int step = SQLITE_DONE;
    if (backup)
        step = sqlite3_backup_step(backup, -1);
    sqlite3_backup_finish(backup);
    if (rc == 0 &&
            (!backup || step != SQLITE_DONE ||
                    sqlite3_exec(to, end, NULL, NULL, NULL) != SQLITE_OK))
        rc = error_set(
                err, -EIO, "%s", step != SQLITE_DONE ? sqlite3_errstr(step) : sqlite3_errmsg(to));
    if (rc == 0)
        rc = look_make_index(to, err);
    sqlite3_close(to);
    sqlite3_close(from);
    if (rc)
        unlink(path);
    return rc;
}

int look_save(const struct look *look, const char *name, char **ret_path, struct error *err)
{
    time_t now = time(NULL);
    struct tm tm;
    char stamp[32];
    struct error why = {0};
    size_t len = strlen(name);
    bool ends = len > 3 && strcmp(name + len - 3, ".db") == 0;
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", localtime_r(&now, &tm));
    char *path = xasprintf("%.*s-%s.db", (int)(ends ? len - 3 : len), name, stamp);
    int rc = look_copy(look, path, &why);
    if (rc == 0) {
        *ret_path = path;
        return 0;
    }
    error_set(err, rc, "failed to save '%s': %s", path, why.text);
    free(path);
    return rc;
}

void look_free(struct look *look)
{
    look_forget(look);
    store_close(look->store);
    trace_cache_free(look->cache);
    stalls_tally_free(look->tally);
    if (look->path)
        look_remove(look);
    if (look->report_fd >= 0)
        close(look->report_fd);
    free(look->path);
    free(look->folder);
}
