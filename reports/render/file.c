// SPDX-License-Identifier: Apache-2.0
// Reports as files and on stdout: the ending picks the form. A file is written beside its place
// under a temporary name, synced and renamed: it appears whole or not at all.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"
#include "reports/render/diff/diff_view.h"
#include "reports/render/html/html.h"
#include "reports/render/perfetto/pftrace.h"
#include "reports/render/render.h"
#include "reports/render/text/markdown_text.h"
#include "reports/render/text/screen.h"
#include "reports/render/verdict/forms.h"

enum file_form {
    FILE_FORM_JSON,
    FILE_FORM_XML,
    FILE_FORM_MD,
    FILE_FORM_HTML,
    FILE_FORM_PFTRACE,
    FILE_FORM_COUNT
};

static const char *const file_endings[FILE_FORM_COUNT] = {[FILE_FORM_JSON] = ".json",
        [FILE_FORM_XML] = ".xml",
        [FILE_FORM_MD] = ".md",
        [FILE_FORM_HTML] = ".html",
        [FILE_FORM_PFTRACE] = ".pftrace"};

static const char *file_ending(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strrchr(slash ? slash : path, '.');
}

const char *render_ending(const char *path, const char *const *endings)
{
    const char *ending = file_ending(path);
    for (; ending && *endings; endings++)
        if (strcmp(ending, *endings) == 0)
            return *endings;
    return NULL;
}

static int file_form(const char *path, enum file_form *ret_form, struct error *err)
{
    const char *ending = file_ending(path);
    for (int i = 0; ending && i < FILE_FORM_COUNT; i++) {
        if (strcmp(ending, file_endings[i]) == 0) {
            *ret_form = (enum file_form)i;
            return 0;
        }
    }
    return error_set(err, -EINVAL,
            "failed to report to '%s': %s%s%s; the ending picks the form: .html (the whole report), .md (Markdown), .json "
            "(verdict), .xml (JUnit) or .pftrace (a launch for Perfetto)",
            path, ending ? "unknown ending '" : "the name has no ending", ending ? ending : "",
            ending ? "'" : "");
}

int render_file_check(const char *path, struct error *err)
{
    enum file_form form;
    return file_form(path, &form, err);
}

// What a file made by open() would get: the umask can only be read by setting it.
static mode_t file_mode(void)
{
    mode_t mask = umask(022);
    umask(mask);
    return 0666 & ~mask;
}

int render_write(const char *path, const char *text, struct error *err)
{
    return render_write_bytes(path, text, strlen(text), err);
}

struct render_stream {
    char *path, *temporary;
    FILE *file;
};

static int file_failed(const char *path, int rc, struct error *err)
{
    return error_set(err, rc == -EINVAL ? -EIO : rc,
            "failed to write '%s': %s; nothing was left there", path, strerror(-rc));
}

static void file_free(struct render_stream *stream)
{
    free(stream->path);
    free(stream->temporary);
    free(stream);
}

int render_stream_open(const char *path, struct render_stream **ret, struct error *err)
{
    struct stat info;
    // A device or a pipe (/dev/stdout.md by a link, a FIFO) cannot be replaced; that is no place
    // for a report.
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return error_set(err, S_ISDIR(info.st_mode) ? -EISDIR : -EINVAL,
                "failed to write '%s': it is not a regular file", path);
    struct render_stream *stream = xcalloc(1, sizeof *stream);
    *stream = (struct render_stream){
            .path = xstrdup(path), .temporary = xasprintf("%s.XXXXXX", path)};
    int fd = mkostemp(stream->temporary, O_CLOEXEC);
    if (fd < 0 || !(stream->file = fdopen(fd, "w"))) {
        int rc = error_set(err, -errno, "failed to write '%s': %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
            unlink(stream->temporary);
        }
        file_free(stream);
        return rc;
    }
    *ret = stream;
    return 0;
}

FILE *render_stream_file(const struct render_stream *stream)
{
    return stream->file;
}

// 0: what was written is on the disk.
static int file_sync(FILE *file)
{
    bool failed = ferror(file);
    errno = 0;
    if (fflush(file) != 0 || failed) // what could not be written is tried again, and says why
        return errno ? -errno : -EIO;
    int fd = fileno(file);
    if (fsync(fd) < 0 && errno != EINVAL && errno != EROFS)
        return -errno;
    return fchmod(fd, file_mode()) < 0 ? -errno : 0;
}

int render_stream_close(struct render_stream *stream, bool whole, struct error *err)
{
    int rc = whole ? file_sync(stream->file) : 0;
    if (fclose(stream->file) != 0 && whole && rc == 0)
        rc = -errno;
    if (whole && rc == 0 && rename(stream->temporary, stream->path) < 0)
        rc = -errno;
    if (!whole || rc)
        unlink(stream->temporary);
    if (rc)
        file_failed(stream->path, rc, err);
    file_free(stream);
    return rc;
}

int render_write_bytes(const char *path, const void *bytes, size_t len, struct error *err)
{
    struct render_stream *stream = NULL;
    int rc = render_stream_open(path, &stream, err);
    if (rc)
        return rc;
    errno = 0;
    if (fwrite(bytes, 1, len, stream->file) < len)
        rc = file_failed(path, errno ? -errno : -EIO, err);
    int close_rc = render_stream_close(stream, rc == 0, err);
    return rc ? rc : close_rc;
}

char *render_json_dump(json_t *document, int digits, struct error *err)
{
    char *json = json_dumps(document, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));
    json_decref(document);
    if (!json) {
        error_set(err, -EIO,
                "failed to make the JSON document: no memory, or a text that is not UTF-8");
        return NULL;
    }
    char *text = xasprintf("%s\n", json);
    free(json);
    return text;
}

static char *file_json(struct store *store, struct error *err)
{
    json_t *document = render_verdict_json(store, err);
    return document ? render_json_dump(document, 15, err) : NULL;
}

static char *file_junit(struct store *store, const struct render_opts *opts, struct error *err)
{
    struct report *report = NULL;
    if (report_load(store, &report, err))
        return NULL;
    char *text = junit_make(report, opts->inconclusive_skip);
    report_free(report);
    return text;
}

// The section of the difference, "" where there is nothing to compare. The verdict is not lost with
// a difference that cannot be read: the section says why.
static char *file_markdown_diff(struct store *store)
{
    struct diff *diff = NULL;
    struct error err = {0};
    int rc = diff_analyse(store, &(struct diff_opts){0}, &diff, &err);
    if (rc == 0) {
        char *section = diff_view_markdown(diff);
        diff_free(diff);
        return section;
    }
    struct strbuf out = {0};
    if (rc != -ENODATA)
        markdown_put(&out, "### Where the difference comes from\n\nNot known: ", err.text, "\n");
    return strbuf_take(&out);
}

// The verdict has the room that the difference leaves: the document as a whole has the limit.
static char *file_markdown(struct store *store, struct error *err)
{
    struct report *report = NULL;
    if (report_load(store, &report, err))
        return NULL;
    char *section = file_markdown_diff(store);
    size_t taken = strlen(section) + 1;
    bool fits = taken + FORMS_MARKDOWN_BYTES_MIN <= FORMS_MARKDOWN_BYTES_MAX;
    char *verdict = markdown_make(
            report, fits ? FORMS_MARKDOWN_BYTES_MAX - taken : FORMS_MARKDOWN_BYTES_MIN);
    char *text = xasprintf("%s%s%s", verdict, *section ? "\n" : "", section);
    free(verdict);
    free(section);
    report_free(report);
    return text;
}

int render_file(
        struct store *store, const char *path, const struct render_opts *opts, struct error *err)
{
    struct error local = {0};
    enum file_form form;
    char *text = NULL;
    int rc = file_form(path, &form, err);
    if (rc)
        return rc;
    if (form == FILE_FORM_PFTRACE)
        return pftrace_write(store, opts->launch, path, err);
    if (form == FILE_FORM_HTML)
        rc = html_make(store, &text, &local);
    else if (form == FILE_FORM_MD)
        text = file_markdown(store, &local);
    else
        text = form == FILE_FORM_JSON ? file_json(store, &local) : file_junit(store, opts, &local);
    if (!text)
        return error_set(err, rc ? rc : local.code, "%s", local.text);
    rc = store_failed(store, err);
    rc = rc ? rc : render_write(path, text, err);
    free(text);
    return rc;
}

int render_check(struct store *store, const char *path, int64_t launch, struct error *err)
{
    enum file_form form = FILE_FORM_JSON;
    int64_t recording = 0;
    int rc = path ? file_form(path, &form, err) : 0;
    if (rc == 0 && form == FILE_FORM_PFTRACE)
        return pftrace_check(store, launch, err);
    if (rc == 0 && form == FILE_FORM_HTML)
        store_get_int(store, &recording, NULL, "SELECT kind = 'record' FROM run", "");
    if (rc || recording)
        return rc;
    json_t *document = render_verdict_json(store, err);
    json_decref(document);
    return document ? 0 : err->code;
}

void render_opts_detect(struct render_opts *opts, int fd, bool no_color)
{
    const char *refuse = getenv("NO_COLOR"), *terminal = getenv("TERM");
    bool dumb = !terminal || !*terminal || strcmp(terminal, "dumb") == 0;
    opts->width = screen_fd_width(fd, RENDER_WIDTH_DEFAULT);
    opts->color = isatty(fd) && !dumb && !no_color && !(refuse && *refuse);
    opts->utf8 = screen_locale_utf8();
}

int render_print(const char *text, const char *what, struct error *err)
{
    errno = 0;
    if (fputs(text, stdout) != EOF && fflush(stdout) == 0)
        return 0;
    int code = errno ? errno : EIO;
    return error_set(err, -code, "failed to print %s: %s", what, strerror(code));
}

int render_stdout(struct store *store, const struct options_common *common, struct error *err)
{
    if (strcmp(common->format, "json") != 0) {
        struct render_opts opts = {0};
        render_opts_detect(&opts, STDOUT_FILENO, common->no_color);
        return render_verdict_table(store, &opts, stdout, err);
    }
    struct error local = {0};
    char *text = file_json(store, &local);
    if (!text)
        return error_set(err, local.code, "%s", local.text);
    int rc = store_failed(store, err);
    rc = rc ? rc : render_print(text, "the verdict", err);
    free(text);
    return rc;
}
