// SPDX-License-Identifier: Apache-2.0
// What the files of the answers share: the prepared verdicts, and how an answer is filled in.
#ifndef UPGATE_HARNESS_CANARY_SERVE_ANSWERS_PARTS_H
#define UPGATE_HARNESS_CANARY_SERVE_ANSWERS_PARTS_H

#include "harness/canary/serve/answers.h"
#include "harness/canary/serve/series.h"
#include "harness/canary/serve/target.h"

struct answers_entry { // a verdict that can be asked for
    const char *stage; // its name; NULL: the whole rollout, or nothing known
    char number[24];
    struct verdict verdict;
    const char *json, *text; // bodies of Argo's and of Flagger's answer
    size_t json_len, text_len;
};

// entries: nothing known, the whole rollout, then one a stage
enum { ANSWERS_BLIND, ANSWERS_WHOLE, ANSWERS_STAGES };

struct answers {
    struct arena *arena;
    const char *name;
    enum snapshot_kind kind;
    int64_t made_ns;
    bool wants_more; // the controller wants more traffic on the candidate
    struct answers_entry *entries;
    int entry_count;
    struct series_list series, series_blind;
    const char *metrics, *metrics_blind; // both as text
};

#define ANSWER_JSON "application/json"
#define ANSWER_TEXT "text/plain; charset=utf-8"

bool answers_old(const struct answers *answers, const struct call *call);
void answer_prepared(
        struct answer *ret, int status, const struct answers *answers, int entry, bool json);
// takes the body
void answer_owned(struct answer *ret, int status, const char *type, char *body, size_t len);
void answer_text(struct answer *ret, int status, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

// false: ret is a 405
bool answer_method_is(const struct call *call, bool get, bool post, struct answer *ret);

// The entry that `stage` asks for; NULL: the whole rollout. -1: there is no such stage, and ret
// says so (404).
int answers_entry_of(const struct answers *answers, const struct call *call, const char *stage,
        struct answer *ret);

void answers_make_json(const struct snapshot *snapshot, const struct snapshot_stage *stage,
        struct answers_entry *entry, struct arena *arena);
void answers_flagger(const struct answers *answers, const struct call *call,
        const struct target *target, struct answer *ret);
void answers_query(const struct answers *answers, const struct call *call,
        const struct target *target, struct answer *ret);

#endif
