// SPDX-License-Identifier: Apache-2.0
// A disk that fails: each read of a store that `gate`, `diff`, `stalls` and `report` make fails
// once, and from then on. What comes out is the answer of the sound disk, or an error that says so:
// never an answer that lacks something. And a disk that is full: nothing that was there is lost.
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/hash.h"
#include "common/strings.h"
#include "harness/gate/gate.h"
#include "reports/analyse/diff/diff.h"
#include "reports/render/diff/diff_view.h"
#include "reports/render/render.h"
#include "reports/render/stalls/stalls_view.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/runner.h"
#include "tracer/store/store.h"

#ifdef __SANITIZE_ADDRESS__
// of a reader; beyond, every second, third, ...; each takes three times as long there
enum { FAULTS_TRIED_MAX = 40 };
#else
enum { FAULTS_TRIED_MAX = 120 };
#endif

// --- a VFS that fails when it is told to ---------------------------------------------------------

struct fault_file {
    sqlite3_file base;
    sqlite3_file *real;
};

static sqlite3_vfs fault_vfs, *real_vfs;
static long fault_reads, fault_read_at = -1, fault_writes, fault_write_at = -1;
static bool fault_stays;

static sqlite3_file *real_of(sqlite3_file *file)
{
    return ((struct fault_file *)file)->real;
}

static int fault_close(sqlite3_file *file)
{
    int rc = real_of(file)->pMethods->xClose(real_of(file));
    free(real_of(file));
    return rc;
}

static int fault_read(sqlite3_file *file, void *buf, int bytes, sqlite3_int64 at)
{
    long now = fault_reads++;
    if (fault_read_at >= 0 && (now == fault_read_at || (fault_stays && now > fault_read_at)))
        return SQLITE_IOERR_READ;
    return real_of(file)->pMethods->xRead(real_of(file), buf, bytes, at);
}

static int fault_write(sqlite3_file *file, const void *buf, int bytes, sqlite3_int64 at)
{
    long now = fault_writes++;
    if (fault_write_at >= 0 && now >= fault_write_at)
        return SQLITE_FULL;
    return real_of(file)->pMethods->xWrite(real_of(file), buf, bytes, at);
}

static int fault_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    return real_of(file)->pMethods->xTruncate(real_of(file), size);
}

static int fault_sync(sqlite3_file *file, int flags)
{
    (void)file, (void)flags; // no test pulls the plug
    return SQLITE_OK;
}

static int fault_size(sqlite3_file *file, sqlite3_int64 *ret)
{
    return real_of(file)->pMethods->xFileSize(real_of(file), ret);
}

static int fault_lock(sqlite3_file *file, int lock)
{
    return real_of(file)->pMethods->xLock(real_of(file), lock);
}

static int fault_unlock(sqlite3_file *file, int lock)
{
    return real_of(file)->pMethods->xUnlock(real_of(file), lock);
}

static int fault_check(sqlite3_file *file, int *ret)
{
    return real_of(file)->pMethods->xCheckReservedLock(real_of(file), ret);
}

static int fault_control(sqlite3_file *file, int verb, void *arg)
{
    return real_of(file)->pMethods->xFileControl(real_of(file), verb, arg);
}

static int fault_sector(sqlite3_file *file)
{
    return real_of(file)->pMethods->xSectorSize(real_of(file));
}

static int fault_traits(sqlite3_file *file)
{
    return real_of(file)->pMethods->xDeviceCharacteristics(real_of(file));
}

static int fault_open(
        sqlite3_vfs *vfs, sqlite3_filename name, sqlite3_file *file, int flags, int *ret_flags)
{
    static const sqlite3_io_methods methods = {1, fault_close, fault_read, fault_write,
            fault_truncate, fault_sync, fault_size, fault_lock, fault_unlock, fault_check,
            fault_control, fault_sector, fault_traits, NULL, NULL, NULL, NULL, NULL, NULL};
    (void)vfs;
    struct fault_file *ours = (struct fault_file *)file;
    ours->real = xcalloc(1, (size_t)real_vfs->szOsFile);
    int rc = real_vfs->xOpen(real_vfs, name, ours->real, flags, ret_flags);
    ours->base.pMethods = rc == SQLITE_OK ? &methods : NULL;
    if (rc != SQLITE_OK)
        free(ours->real);
    return rc;
}

static const char *fault_store(void)
{
    if (!real_vfs) {
        real_vfs = sqlite3_vfs_find(NULL);
        fault_vfs = *real_vfs;
        fault_vfs.zName = "fault";
        fault_vfs.szOsFile = sizeof(struct fault_file);
        fault_vfs.xOpen = fault_open;
        sqlite3_vfs_register(&fault_vfs, 1);
    }
    size_t size = 0;
    uint8_t *bytes = fuzz_template(&size);
    fuzz_write(fuzz_path("faults.db"), bytes, size);
    free(bytes);
    fault_reads = fault_writes = 0;
    return fuzz_path("faults.db");
}

// --- what is read: text, or NULL and an error ----------------------------------------------------

static char *read_gate(struct store *store, struct error *err)
{
    enum exit_code verdict = EXIT_CODE_INCONCLUSIVE;
    return gate_judge(store, NULL, &verdict, err) ? NULL : xasprintf("exit %d", (int)verdict);
}

static char *read_diff(struct store *store, struct error *err)
{
    struct diff *diff = NULL;
    if (diff_analyse(store, &(struct diff_opts){0}, &diff, err))
        return NULL;
    char *text = render_json_dump(diff_view_json(diff), 9, err);
    diff_free(diff);
    return text;
}

static char *read_stalls(struct store *store, struct error *err)
{
    struct stalls_recordings recordings = {0};
    struct strbuf out = {0};
    int rc = stalls_recordings_load(store, &recordings, err);
    for (size_t i = 0; i < recordings.count && rc == 0; i++) {
        struct stalls *stalls = NULL;
        rc = stalls_analyse(
                store, &(struct stalls_opts){.recording_id = recordings.items[i].id}, &stalls, err);
        if (rc)
            break;
        const struct stalls_shown shown = {&recordings.items[i], stalls};
        const struct stalls_view view = {&shown, 1, &recordings, "run.db", 50, 0, 50, true};
        char *text = render_json_dump(stalls_view_json(&view), 6, err);
        strbuf_add(&out, "%s", text);
        free(text);
        stalls_free(stalls);
    }
    stalls_recordings_clear(&recordings);
    if (rc == 0)
        return strbuf_take(&out);
    strbuf_free(&out);
    return NULL;
}

static char *read_file(struct store *store, const char *name, struct error *err)
{
    size_t size = 0;
    return render_file(store, fuzz_path(name), &(struct render_opts){0}, err)
            ? NULL
            : (char *)fuzz_read(fuzz_path(name), &size);
}

static char *read_json(struct store *store, struct error *err)
{
    return read_file(store, "out.json", err);
}

static char *read_xml(struct store *store, struct error *err)
{
    return read_file(store, "out.xml", err);
}

static char *read_html(struct store *store, struct error *err)
{
    return read_file(store, "out.html", err);
}

static char *read_markdown(struct store *store, struct error *err)
{
    return read_file(store, "out.md", err);
}

// no text: what tells it from another
static char *read_pftrace(struct store *store, struct error *err)
{
    size_t size = 0;
    if (render_file(store, fuzz_path("out.pftrace"), &(struct render_opts){0}, err))
        return NULL;
    uint8_t *bytes = fuzz_read(fuzz_path("out.pftrace"), &size);
    char *text =
            xasprintf("%zu bytes, %016llx", size, (unsigned long long)hash_bytes(0, bytes, size));
    free(bytes);
    return text;
}

static char *read_table(struct store *store, struct error *err)
{
    char *text = NULL;
    size_t len = 0;
    FILE *stream = open_memstream(&text, &len);
    int rc = render_verdict_table(store, &(struct render_opts){0}, stream, err);
    fclose(stream);
    if (rc)
        free(text);
    return rc ? NULL : text;
}

static char *read_github(struct store *store, struct error *err)
{
    char *text = NULL;
    size_t len = 0;
    unsetenv("GITHUB_STEP_SUMMARY"); // of the CI job that runs this
    unsetenv("GITHUB_OUTPUT");
    FILE *stream = open_memstream(&text, &len);
    int rc = render_github(store, stream, err);
    fclose(stream);
    if (rc)
        free(text);
    return rc ? NULL : text;
}

typedef char *(*reader_fn)(struct store *store, struct error *err);

static char *read_store(const char *path, reader_fn fn, struct error *err)
{
    struct store *store = NULL;
    if (store_open(path, STORE_READ, &store, err))
        return NULL;
    char *text = fn(store, err);
    store_close(store);
    return text;
}

static bool says_of_it(const char *text)
{
    return strstr(text, "input/output error") || strstr(text, "disk I/O error");
}

// Every read, one after the other. How many ended in an error.
static long try_faults(reader_fn fn, const char *sound, long reads, bool stays)
{
    long failed = 0, step = 1 + reads / FAULTS_TRIED_MAX;
    for (long at = 0; at < reads; at += step) {
        struct error err = {0};
        const char *path = fault_store();
        fault_read_at = at;
        fault_stays = stays;
        char *text = read_store(path, fn, &err);
        fault_read_at = -1;
        // the section of a report may be missing, in words
        if (text && strcmp(text, sound) != 0 && !says_of_it(text))
            runner_fail(__FILE__, __LINE__,
                    "read %ld of %ld failed%s: another answer than the sound disk's, and no error",
                    at, reads, stays ? " for good" : "");
        if (!text && !says_of_it(err.text))
            runner_fail(__FILE__, __LINE__, "read %ld of %ld failed%s: '%s' says nothing of it", at,
                    reads, stays ? " for good" : "", err.text);
        failed += !text;
        free(text);
    }
    return failed;
}

static void check_reader(reader_fn fn)
{
    struct error err = {0};
    char *sound = read_store(fault_store(), fn, &err);
    long reads = fault_reads;
    CHECK_STR(err.text, "");
    CHECK(sound && reads > 20);
    if (!sound)
        return;
    CHECK(try_faults(fn, sound, reads, false) > 0);
    CHECK(try_faults(fn, sound, reads, true) > 0);
    free(sound);
}

TEST(gate)
{
    check_reader(read_gate);
}

TEST(diff)
{
    check_reader(read_diff);
}

TEST(stalls)
{
    check_reader(read_stalls);
}

TEST(report_json)
{
    check_reader(read_json);
}

TEST(report_xml)
{
    check_reader(read_xml);
}

TEST(report_html)
{
    check_reader(read_html);
}

TEST(report_markdown)
{
    check_reader(read_markdown);
}

TEST(report_pftrace)
{
    check_reader(read_pftrace);
}

TEST(report_table)
{
    check_reader(read_table);
}

TEST(report_github)
{
    check_reader(read_github);
}

// The verdict that stood before is there, whichever write found no room.
TEST(gate_on_a_full_disk)
{
    struct error err = {0};
    enum exit_code verdict = EXIT_CODE_INCONCLUSIVE;
    struct store *store = NULL;
    CHECK_INT(store_open(fault_store(), STORE_WRITE, &store, &err), 0);
    CHECK_INT(gate_judge(store, NULL, &verdict, &err), 0);
    store_close(store);
    long writes = fault_writes;
    CHECK(writes > 10);
    for (long at = 0; at < writes; at++) {
        char *before = read_store(fault_store(), read_json, &err), *after;
        CHECK_INT(store_open(fault_store(), STORE_WRITE, &store, &err), 0);
        fault_write_at = fault_writes + at;
        CHECK_INT(gate_judge(store, NULL, &verdict, &err), -ENOSPC);
        CHECK_CONTAINS(err.text, "the disk is full");
        store_close(store);
        fault_write_at = -1;
        err = (struct error){0};
        after = read_store(fuzz_path("faults.db"), read_json, &err);
        CHECK_STR(after, before);
        free(before);
        free(after);
    }
}

TEST(a_ledger_that_has_no_room)
{
    struct error err = {0};
    struct store *store = NULL;
    int64_t pages = 0;
    int rc = 0;
    CHECK_INT(store_open(fault_store(), STORE_WRITE, &store, &err), 0);
    CHECK_INT(store_get_int(store, &pages, &err, "PRAGMA page_count", ""), 0);
    char *limit = xasprintf("PRAGMA max_page_count = %lld", (long long)pages);
    CHECK_INT(store_exec(store, &err, limit, ""), 0);
    CHECK_INT(store_begin(store, &err), 0);
    for (int i = 0; i < 100000 && rc == 0; i++)
        rc = store_ledger(store, NULL, "capture", "gaps", 2, 1, 1, 1, "a detail", &err);
    CHECK_INT(rc, -ENOSPC);
    CHECK_CONTAINS(err.text, "the disk is full");
    rc = 0;
    for (int i = 0; i < 100000 && rc == 0; i++)
        rc = store_note(store, &err, "warning", "a note of some length, number %d", i);
    CHECK_INT(rc, -ENOSPC);
    store_close(store);
    free(limit);
}

// What is asked for without an error is an error all the same, where it can be told.
TEST(a_text_that_cannot_be_read_is_not_absent)
{
    struct error err = {0};
    struct store *store = NULL;
    CHECK_INT(store_open(fault_store(), STORE_READ, &store, &err), 0);
    CHECK_INT(store_failed(store, &err), 0);
    fault_read_at = fault_reads;
    fault_stays = true;
    CHECK(store_get_text(store, "SELECT detail FROM ledger ORDER BY detail", "") == NULL);
    fault_read_at = -1;
    CHECK_INT(store_failed(store, &err), -EIO);
    CHECK_CONTAINS(err.text, "input/output error");
    int64_t value = 0;
    CHECK_INT(store_get_int(store, &value, &err, "SELECT count(*) FROM ledger", ""), -EIO);
    store_rollback(store);
    CHECK_INT(store_failed(store, &err), 0);
    CHECK_INT(store_get_int(store, &value, &err, "SELECT count(*) FROM ledger", ""), 0);
    CHECK(store_get_text(store, "SELECT name FROM side WHERE id = 99", "") == NULL);
    CHECK_INT(store_failed(store, &err), 0); // absent is no failure
    store_close(store);
}
