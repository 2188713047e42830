// SPDX-License-Identifier: Apache-2.0
// The directory, and what lies in it.
#include "harness/export/export.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"
#include "harness/export/parquet.h"
#include "harness/export/rows.h"
#include "tracer/store/store.h"

// of SQLite between two looks at a signal: some milliseconds
enum { EXPORT_LOOK_INSTRUCTIONS = 100000 };

struct export_place {
    char *dir, *partial;
    int fd; // of partial; -1: not made
};

static int export_failed(const char *path, int rc, struct error *err)
{
    return error_set(
            err, rc == -EINVAL ? -EIO : rc, "failed to make '%s': %s", path, strerror(-rc));
}

// --- the directory -------------------------------------------------------------------------------

static bool export_is_name(const char *name)
{
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

// What is mounted into a container, for one: it cannot be replaced. False, too, where the kernel
// does not tell (before Linux 5.8).
static bool export_is_mount(const char *dir)
{
    struct statx info;
    return statx(AT_FDCWD, dir, 0, 0, &info) == 0 && info.stx_attributes & STATX_ATTR_MOUNT_ROOT;
}

// Of a directory that is there: its own name, not that of a link to it. 0, it is empty.
static int export_check_dir(struct export_place *place, const struct stat *info, struct error *err)
{
    struct stat here;
    if (!S_ISDIR(info->st_mode))
        return error_set(err, -EINVAL,
                "'%s' is not a directory; name one that is empty or not there yet by -o",
                place->dir);
    if (stat(".", &here) == 0 && here.st_dev == info->st_dev && here.st_ino == info->st_ino)
        return error_set(err, -EINVAL,
                "'%s' is the directory that you are in, and will be replaced when all is written; name another by -o",
                place->dir);
    if (export_is_mount(place->dir))
        return error_set(err, -EINVAL,
                "'%s' is a mount point, which cannot be replaced when all is written; name a directory in it that is not there yet by -o",
                place->dir);
    DIR *stream = opendir(place->dir);
    if (!stream)
        return error_set(err, -errno, "failed to read '%s': %s", place->dir, strerror(errno));
    const struct dirent *entry;
    int rc = 0;
    while (rc == 0 && (entry = readdir(stream)))
        if (export_is_name(entry->d_name))
            rc = error_set(err, -EINVAL,
                    "'%s' is not empty; name a directory that is empty or not there yet by -o",
                    place->dir);
    closedir(stream);
    char *real = rc == 0 ? realpath(place->dir, NULL) : NULL;
    if (real) {
        free(place->dir);
        place->dir = real;
    }
    return rc;
}

static int export_find_place(const char *dir, struct export_place *ret, struct error *err)
{
    struct stat info;
    size_t len = strlen(dir);
    int rc = 0;
    while (len > 1 && dir[len - 1] == '/')
        len--;
    *ret = (struct export_place){.dir = xasprintf("%.*s", (int)len, dir), .fd = -1};
    if (!len)
        return error_set(err, -EINVAL, "-o names no directory");
    if (stat(ret->dir, &info) == 0)
        rc = export_check_dir(ret, &info, err);
    else if (errno != ENOENT || lstat(ret->dir, &info) == 0)
        rc = error_set(err, errno == ENOENT || errno == ENOTDIR ? -EINVAL : -errno,
                "failed to look at '%s': %s", ret->dir, strerror(errno));
    ret->partial = xasprintf("%s.partial", ret->dir);
    return rc;
}

// Is it a file of an export? By its name alone.
static bool export_is_ours(const char *name, const struct tables *all)
{
    const char *dot = strrchr(name, '.');
    if (strcmp(name, "tables.json") == 0)
        return true;
    if (!dot || (strcmp(dot, ".csv") != 0 && strcmp(dot, ".parquet") != 0))
        return false;
    char *table = xasprintf("%.*s", (int)(dot - name), name);
    bool ours = tables_find(all, table);
    free(table);
    return ours;
}

// Takes the files out of partial; where one is not ours, none of them.
static int export_empty(
        const struct export_place *place, const struct tables *all, struct error *err)
{
    int fd = openat(place->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    int rc = stream ? 0 : export_failed(place->partial, -errno, err);
    for (int pass = 0; pass < 2 && rc == 0; pass++) {
        rewinddir(stream);
        while (rc == 0 && (entry = readdir(stream))) {
            if (!export_is_name(entry->d_name))
                continue;
            if (!export_is_ours(entry->d_name, all))
                rc = error_set(err, -EEXIST,
                        "'%s' is in the way, and holds more than an export that was killed leaves; remove it",
                        place->partial);
            else if (pass && unlinkat(place->fd, entry->d_name, 0) < 0)
                rc = export_failed(place->partial, -errno, err);
        }
    }
    if (stream)
        closedir(stream);
    else if (fd >= 0)
        close(fd);
    return rc;
}

// What root saw of others is not everybody's (as the store's: tracer/store/store.c).
static mode_t export_mode(mode_t mode)
{
    return geteuid() == 0 ? mode & 0700 : mode;
}

// Makes partial, or takes the one of an export that was killed. It is ours while it is locked, and
// while nobody else may write in it.
static int export_make_partial(
        struct export_place *place, const struct tables *all, struct error *err)
{
    struct stat info, named;
    bool made = mkdir(place->partial, export_mode(0777)) == 0;
    if (!made && errno != EEXIST)
        return export_failed(place->partial, -errno, err);
    place->fd = open(place->partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (place->fd < 0 || fstat(place->fd, &info) < 0)
        return error_set(
                err, -errno, "'%s' is in the way: %s; remove it", place->partial, strerror(errno));
    if (info.st_uid != geteuid())
        return error_set(err, -EPERM, "'%s' is in the way, and is somebody else's; remove it",
                place->partial);
    if (flock(place->fd, LOCK_EX | LOCK_NB) < 0)
        return error_set(err, -EBUSY, "another upgate is exporting to '%s' (%s)", place->dir,
                strerror(errno));
    // it has its own name by now
    if (lstat(place->partial, &named) < 0 || named.st_dev != info.st_dev ||
            named.st_ino != info.st_ino)
        return error_set(err, -EBUSY, "another upgate has just exported to '%s'", place->dir);
    int rc = made ? 0 : export_empty(place, all, err);
    if (rc == 0 && !made && fchmod(place->fd, export_mode(info.st_mode & 0777)) < 0)
        rc = export_failed(place->partial, -errno, err);
    return rc;
}

// Under its own name, with all that is in it.
static int export_finish(const struct export_place *place, struct error *err)
{
    if (syncfs(place->fd) < 0 || rename(place->partial, place->dir) < 0) {
        int rc = -errno;
        if (rc == -ENOTEMPTY || rc == -EEXIST)
            return error_set(err, -EINVAL,
                    "'%s' is not empty any more: somebody else wrote there meanwhile", place->dir);
        return export_failed(place->dir, rc, err);
    }
    return 0;
}

// --- the files -----------------------------------------------------------------------------------

static int export_table(const struct export_opts *opts, const struct export_place *place,
        struct store *store, struct table *table, struct error *err)
{
    char *name = xasprintf("%s.csv", table->name);
    int fd = openat(place->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
            export_mode(0666));
    int rc = fd < 0 ? export_failed(name, -errno, err)
                    : rows_write(store, table, opts->parquet ? ROWS_ESCAPED : ROWS_CSV, fd,
                              opts->stop, err);
    if (fd >= 0 && close(fd) < 0 && rc == 0)
        rc = export_failed(name, -errno, err);
    free(name);
    return rc;
}

static int export_sizes(const struct export_place *place, struct tables *tables, struct error *err)
{
    for (size_t i = 0; i < tables->count; i++) {
        struct stat info;
        char *name = xasprintf("%s.parquet", tables->items[i].name);
        int rc = fstatat(place->fd, name, &info, 0) < 0 ? export_failed(name, -errno, err) : 0;
        free(name);
        if (rc)
            return rc;
        tables->items[i].bytes = info.st_size;
    }
    return 0;
}

static int export_fill(const struct export_opts *opts, const struct export_place *place,
        struct store *store, struct tables *tables, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; i < tables->count && rc == 0; i++)
        rc = export_table(opts, place, store, &tables->items[i], err);
    store_rollback(store); // all is read: whoever writes need not wait for DuckDB
    if (rc == 0 && opts->parquet)
        rc = parquet_make(opts->python, place->partial, place->fd, tables, opts->stop, err);
    if (rc == 0 && opts->parquet)
        rc = export_sizes(place, tables, err);
    return rc;
}

// --- the store -----------------------------------------------------------------------------------

static int export_stop(void *arg)
{
    return *((const struct export_opts *)arg)->stop;
}

// As it is at one moment: of a store that nobody writes, for whoever did would wait for us.
static int export_open(const struct export_opts *opts, struct store **ret, struct error *err)
{
    int rc = store_open(opts->store, STORE_READ, ret, err);
    if (rc)
        return rc;
    rc = store_use_own_views(*ret, err);
    if (rc == 0)
        rc = store_exec(*ret, err, "BEGIN", "");
    if (rc == 0)
        rc = store_check_writer(*ret, err);
    sqlite3_progress_handler(store_db(*ret), EXPORT_LOOK_INSTRUCTIONS, export_stop, (void *)opts);
    return rc;
}

int export_run(const struct export_opts *opts, struct tables *ret, struct error *err)
{
    struct store *store = NULL;
    struct tables all = {0};
    struct export_place place = {.fd = -1};
    int rc = tables_load(opts->wanted, ret, err);
    if (rc == 0)
        rc = tables_load(NULL, &all, err);
    if (rc == 0)
        rc = export_find_place(opts->dir, &place, err);
    if (rc == 0)
        rc = export_open(opts, &store, err);
    if (rc == 0 && opts->parquet)
        rc = parquet_check(opts->python, opts->stop, err);
    bool ours = false;
    if (rc == 0 && !opts->dry_run) {
        rc = export_make_partial(&place, &all, err);
        ours = rc == 0;
    }
    if (rc == 0 && !opts->dry_run)
        rc = export_fill(opts, &place, store, ret, err);
    if (rc == 0 && !opts->dry_run)
        rc = export_finish(&place, err);
    if (rc && *opts->stop)
        rc = error_set(err, -EINTR, "ended by a signal; nothing was left at '%s'", opts->dir);
    if (rc && ours && export_empty(&place, &all, NULL) == 0)
        rmdir(place.partial);
    if (place.fd >= 0)
        close(place.fd);
    store_close(store);
    tables_free(&all);
    free(place.dir);
    free(place.partial);
    return rc;
}
