// SPDX-License-Identifier: Apache-2.0
// A rollout as people and machines read it: terminal status, upgate.rollout/1, Markdown, HTML.
// Reads the rollout's store in one read transaction, writes the stream or file it is given, judges
// nothing. One owner thread; works while the controller runs.
#ifndef UPGATE_REPORTS_ROLLOUT_VIEW_H
#define UPGATE_REPORTS_ROLLOUT_VIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "common/error.h"

struct rollout_view;

// -EINVAL: a store without a rollout. -EBADMSG: values that no controller writes (said which). Else
// as store_open().
int rollout_view_load(const char *store_path, struct rollout_view **ret_view, struct error *err);
void rollout_view_free(struct rollout_view *view); // NULL ok

// What an engineer on call needs, the state and its reason first. ASCII, lines of 100 columns at
// most.
void rollout_view_status(const struct rollout_view *view, FILE *stream, bool colour);

// upgate.rollout/1, a new reference. Times are ns since 1970; what was not measured is null. `arms`
// counts the requests of users: those of the second baseline in an A/A stage are the baseline's,
// mirrored ones are nobody's.
json_t *rollout_view_json(const struct rollout_view *view);

// .html, .md or .json by the ending; the file appears whole or not at all. -EINVAL names the
// endings; -ENOSYS: built without the page. Recordings of a breach are compared for .html and .md:
// seconds of work where they are long.
ERROR_CHECKED int rollout_view_write(
        const struct rollout_view *view, const char *path, struct error *err);

#endif
