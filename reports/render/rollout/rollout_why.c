// SPDX-License-Identifier: Apache-2.0
// What was recorded of both arms at a breach, compared. Opens both recordings, read-only; what is
// missing or cannot be compared is a sentence: the report never ends because of it.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/strings.h"
#include "reports/analyse/diff/recordings/recordings.h"
#include "reports/render/diff/recordings_view.h"
#include "reports/render/rollout/rollout_words.h"

// Fewer say nothing of "a request": after the rollback the candidate answers only what was still in
// flight.
static const int64_t why_requests_min = 20;

static const struct rollout_recording_row *why_row(const struct rollout_view *view, int arm)
{
    for (size_t i = 0; i < view->recording_count; i++)
        if (view->recordings[i].arm == arm)
            return &view->recordings[i];
    return NULL;
}

// Where it was written, or beside the rollout's store: both may have been moved together. The
// caller frees; NULL: neither.
static char *why_path(const struct rollout_view *view, const char *path)
{
    if (access(path, R_OK) == 0)
        return xstrdup(path);
    char *beside = xasprintf("%.*s%s", (int)(string_base_name(view->path) - view->path), view->path,
            string_base_name(path));
    if (access(beside, R_OK) == 0)
        return beside;
    free(beside);
    return NULL;
}

static char *why_open(const struct rollout_view *view, int arm, struct store **ret_store)
{
    const struct rollout_recording_row *row = why_row(view, arm);
    struct error err = {0};
    if (!row)
        return xasprintf("the %s was not recorded", rollout_arm_word(arm));
    if (row->problem && *row->problem)
        return xasprintf("the %s was not recorded: %s", rollout_arm_word(arm), row->problem);
    char *path = row->path ? why_path(view, row->path) : NULL;
    char *problem = path ? NULL
                         : xasprintf("the recording of the %s is not there (%s)",
                                   rollout_arm_word(arm), row->path ? row->path : "it has no path");
    if (path && store_open(path, STORE_READ, ret_store, &err))
        problem = xasprintf("%s", err.text);
    free(path);
    return problem;
}

static void why_compare(
        const struct rollout_view *view, struct store *const stores[2], struct rollout_why *why)
{
    double requests[CANARY_ARMS];
    bool few = false;
    for (int arm = 0; arm < CANARY_ARMS; arm++) {
        int64_t count = why_row(view, arm)->requests;
        requests[arm] = count < 0 ? NAN : (double)count;
        few = few || (count >= 0 && count < why_requests_min);
    }
    struct error err = {0};
    if (few)
        requests[CANARY_BASELINE] = requests[CANARY_CANDIDATE] = NAN;
    if (recordings_diff(stores, requests, &why->diff, &err)) {
        why->text = xasprintf("The recordings of both arms cannot be compared: %s.", err.text);
        return;
    }
    char *answer = recordings_view_answer(why->diff);
    why->text = few ? xasprintf("%s While it was recorded the candidate answered %" PRId64
                                " requests, the baseline %" PRId64 ": too few on one side to tell "
                                "times of a request.",
                              answer, why_row(view, CANARY_CANDIDATE)->requests,
                              why_row(view, CANARY_BASELINE)->requests)
                    : xstrdup(answer);
    free(answer);
}

void rollout_why_make(const struct rollout_view *view, struct rollout_why *ret_why)
{
    struct store *stores[CANARY_ARMS] = {0};
    char *problems[CANARY_ARMS] = {0};
    *ret_why = (struct rollout_why){0};
    if (view->recording_count == 0) {
        ret_why->text = xstrdup("");
        return;
    }
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        problems[arm] = why_open(view, arm, &stores[arm]);
    if (!problems[0] && !problems[1])
        why_compare(view, stores, ret_why);
    else
        ret_why->text =
                xasprintf("Why is not told by recordings: %s%s%s.", problems[0] ? problems[0] : "",
                        problems[0] && problems[1] ? "; " : "", problems[1] ? problems[1] : "");
    for (int arm = 0; arm < CANARY_ARMS; arm++) {
        free(problems[arm]);
        store_close(stores[arm]);
    }
}

void rollout_why_clear(struct rollout_why *why)
{
    recordings_diff_free(why->diff);
    free(why->text);
    *why = (struct rollout_why){0};
}
