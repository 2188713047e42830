// SPDX-License-Identifier: Apache-2.0
// A judged run as people and machines read it: table, JSON, JUnit, Markdown, GitHub. Reads the
// store only; writes the stream or file it is given. Judges nothing: what it shows was derived by
// the gate. Every function that needs a verdict returns -ENODATA for a store without one (exit 4):
// nothing that was not judged is shown as if it were.
#ifndef UPGATE_REPORTS_RENDER_H
#define UPGATE_REPORTS_RENDER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "common/error.h"
#include "common/options.h"
#include "tracer/store/store.h"

enum { RENDER_WIDTH_DEFAULT = 100 };

// How text is laid out; {0} is valid: 100 columns, ASCII, no colour.
struct render_opts {
    int width; // columns; 0 = RENDER_WIDTH_DEFAULT
    bool color;
    bool utf8;
    bool inconclusive_skip; // JUnit: an inconclusive case is <skipped>, not <failure>
    int64_t launch;         // .pftrace: of table launch; 0: the candidate's first that was traced
};

// What the stream behind fd can show: width, colour (a terminal, no NO_COLOR, TERM not dumb, and
// !no_color), UTF-8 by the locale's environment variables.
void render_opts_detect(struct render_opts *opts, int fd, bool no_color);

// upgate.verdict/1, a new reference; NULL with *err set.
json_t *render_verdict_json(struct store *store, struct error *err);

// Verdict, cells, parity, trust, calibration, crashed launches, notes, what to do next.
int render_verdict_table(
        struct store *store, const struct render_opts *opts, FILE *stream, struct error *err);

// What `upgate ab`, `upgate gate` and `upgate report` print at their end on stdout: the table,
// or with --format json the document. -EIO, -ENOSPC, -EPIPE when stdout did not take it.
int render_stdout(struct store *store, const struct options_common *common, struct error *err);

// Is the ending of this file one that can be written? -EINVAL names those that can. For callers
// that want to know before a long run.
int render_file_check(const char *path, struct error *err);

// Could the store be reported to this file (NULL: stdout)? -ENODATA: it has no verdict, and this
// form needs one; or no trace, of which .pftrace is made (launch: as in render_opts). err is not
// NULL.
int render_check(struct store *store, const char *path, int64_t launch, struct error *err);

// Write .html, .json, .xml (JUnit), .md or .pftrace (Perfetto), by the ending. The file appears
// whole or not at all. .html is also made of a store of `upgate record`, which has no verdict.
int render_file(
        struct store *store, const char *path, const struct render_opts *opts, struct error *err);

// The one of these endings (NULL behind the last) that the name of the file has; NULL: none of
// them.
const char *render_ending(const char *path, const char *const *endings);

// A document as text with a newline at its end; takes the reference. NULL with *err set. The caller
// frees.
char *render_json_dump(json_t *document, int digits, struct error *err);

// Text on stdout. what: "the difference". -EIO, -ENOSPC, -EPIPE when stdout did not take it.
int render_print(const char *text, const char *what, struct error *err);

// A file that is written piece by piece and appears whole or not at all: until it is closed as
// whole, what was there stays.
struct render_stream;
ERROR_CHECKED int render_stream_open(
        const char *path, struct render_stream **ret, struct error *err);
FILE *render_stream_file(const struct render_stream *stream);
// whole: it takes its place, if all of it could be written; else nothing is left of it, and 0 is
// returned. The stream is gone.
int render_stream_close(struct render_stream *stream, bool whole, struct error *err);
// Any text as such a file.
ERROR_CHECKED int render_write(const char *path, const char *text, struct error *err);
ERROR_CHECKED int render_write_bytes(
        const char *path, const void *bytes, size_t len, struct error *err);

// GitHub Actions: annotations to `stream`, Markdown to $GITHUB_STEP_SUMMARY, verdict and ratios to
// $GITHUB_OUTPUT (each where the variable is set), all within GitHub's limits.
int render_github(struct store *store, FILE *stream, struct error *err);

#endif
