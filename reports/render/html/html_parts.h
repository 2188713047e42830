// SPDX-License-Identifier: Apache-2.0
// The parts of the HTML report's data document (html/page/DATA.md, upgate.report/1): each makes
// members of it. Internal to this room. What came from outside (names of kernels, functions,
// threads) is made valid UTF-8 and cut to a length that is told. One owner thread. json_t * are new
// references; a part that has nothing to say returns JSON null or an empty array.
#ifndef UPGATE_REPORTS_HTML_PARTS_H
#define UPGATE_REPORTS_HTML_PARTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "reports/analyse/diff/diff.h"
#include "reports/render/stalls/stalls_view.h"
#include "reports/render/text/json_text.h"
#include "reports/render/verdict/report.h"
#include "tracer/store/store.h"

enum {
    HTML_BYTES_MAX = 5000000,   // of the whole file: what mails and viewers of CI artifacts take
    HTML_EVENTS_MAX = 200000,   // of all timelines together: what the page draws smoothly
    HTML_NAME_BYTES_MAX = 300,  // of a name among thousands; templates of kernels reach 64 KB
    HTML_TEXT_BYTES_MAX = 2000, // of a sentence
    HTML_LIST_MAX = 400,        // of other lists: differences, ledger rows, parity checks
};

// html_values.c. Text of the store as a JSON string: valid UTF-8, at most `bytes` of it, then its
// length. NULL gives null.
json_t *html_text(const char *text, size_t bytes);
json_t *html_take(char *text); // the same of a sentence; frees the text

// Names, each once, in the order in which they came.
struct html_names;
struct html_names *html_names_new(void);
void html_names_free(struct html_names *names);                      // NULL ok
uint32_t html_names_add(struct html_names *names, const char *text); // NULL is "[unknown]"
// Texts with the same key are one name, shown as the first of them.
uint32_t html_names_add_as(struct html_names *names, const char *key, const char *text);
uint32_t html_names_count(const struct html_names *names);
json_t *html_names_json(const struct html_names *names);

// html_facts.c: what was run and what its rows say. report NULL: not judged (a recording).
json_t *html_run(struct store *store, const struct report *report);
json_t *html_fingerprint(struct store *store);
void html_judgement(json_t *document,
        const struct report *report); // verdict, findings, parity, trust, calibration, notes

// html_cells.c: the cells of one workload with each pair's ratio, of at most points_max pairs each.
json_t *html_cells(struct store *store, const struct report *report, const char *workload,
        size_t points_max, struct error *err);

// html_steps.c: every step of the pairs it was judged by, both sides, in about bytes_max. JSON null
// when none was recorded.
int html_steps(struct store *store, const char *workload, size_t bytes_max, json_t **ret_steps,
        struct error *err);

// html_diff.c: struct diff_workload, everything but the trees. bytes_max: of the table's rows,
// about.
json_t *html_diff(const struct diff_workload *workload, size_t bytes_max);

// Launches that were traced, of one workload. side -1: a recording of `upgate record`.
struct html_launch {
    int64_t launch_id, recording_id;
    int side;
};

// html_stalls.c: what held up each recording of the workload (NULL: of `upgate record`, then only
// recording `id`).
json_t *html_stalls(struct store *store, const struct stalls_recordings *recordings,
        const char *workload, int64_t id, struct error *err);

// html_timeline.c: one aligned couple of blocks, old above new. JSON null when there is nothing to
// draw.
struct html_couple {
    int64_t launches[2],
            recordings[2]; // 0: none; a recording without a launch is one of `upgate record`
    int32_t couple;        // -1: none, then the workload's typical window
    const struct diff_workload *workload; // whose contributions are marked; NULL
    size_t events, bytes;                 // what it may have at most
};
int html_timeline(struct store *store, const struct html_couple *couple, json_t **ret_timeline,
        struct error *err);

// html_flame.c: the time on and off the CPU of the launches, both sides in one tree, each with at
// most nodes_max frames.
int html_flames(struct store *store, const struct html_launch *launches, size_t count,
        size_t nodes_max, json_t **ret_flames, struct error *err);

// html_how.c: how every number was made.
json_t *html_how(const char *path, bool judged);

#endif
