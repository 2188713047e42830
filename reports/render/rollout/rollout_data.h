// SPDX-License-Identifier: Apache-2.0
// What a rollout's store holds, checked and summed up. Internal to this room. Memory belongs to the
// view; a number that is not known is NAN or -1, a text NULL.
#ifndef UPGATE_REPORTS_ROLLOUT_DATA_H
#define UPGATE_REPORTS_ROLLOUT_DATA_H

#include <jansson.h>
#include <stdint.h>

#include "reports/analyse/canary/second.h"
#include "reports/render/rollout/rollout_view.h"
#include "tracer/store/store.h"

enum {
    ROLLOUT_BUCKETS_MAX = 360, // of the charts: three pixels each on a desk's screen
    ROLLOUT_POINTS_MAX = 400,  // of one metric in one stage
};

enum rollout_state {
    ROLLOUT_WAITING,
    ROLLOUT_RUNNING,
    ROLLOUT_PAUSED,
    ROLLOUT_PROMOTED,
    ROLLOUT_ROLLED_BACK,
    ROLLOUT_ABORTED,
    ROLLOUT_FAILED,
    ROLLOUT_STATES
};
enum rollout_verdict { ROLLOUT_UNDECIDED, ROLLOUT_PASS, ROLLOUT_FAIL, ROLLOUT_VERDICTS };

struct rollout_arm { // requests of one arm over a stage, a bucket or the rollout
    struct canary_second sum;
    double p50_s, p99_s; // NAN: no answer
};

struct rollout_view_stage {
    int64_t number, begin_s, judged_from_s, end_s; // -1: not yet
    char *name, *result;                           // result NULL: not ended
    double percent;
    bool aa, shadow;
    int64_t soak_ns, requests; // of the plan; -1
    struct rollout_arm arms[CANARY_ARMS];
};

struct rollout_bucket {
    struct rollout_arm arms[CANARY_ARMS];
};

struct rollout_point {
    int64_t at_s, requests, missing; // -1: not known
    double value, low, high, threshold, evidence, needed, dispersion;
    enum rollout_verdict verdict;
};
struct rollout_series { // of one metric in one stage, in order of time; the last is the present
    char *metric;
    int64_t stage;
    struct rollout_point *points;
    size_t count;
};

struct rollout_decision {
    int64_t at_ns, stage_from, stage_to; // stage -1: none
    int64_t effect_ns; // when the traffic was read back as decided; -1: not, or there was nothing
                       // to move
    char *state_from, *state_to, *rule, *reason, *who, *evidence; // evidence NULL, or JSON
    double percent_from, percent_to;
};

struct rollout_view_source {
    char *kind, *problem; // problem NULL or "": none
    int64_t seen, kept, dropped, lost, late, last_ns;
};

struct rollout_recording_row {
    // wall clock; requests: that the arm answered meanwhile, -1: not known
    int64_t arm, begin_ns, end_ns, requests;
    char *path, *problem;
};

struct rollout_why {              // what the recordings of a breach say
    struct recordings_diff *diff; // NULL: they cannot be compared
    char *text;                   // the answer, or why there is none; "" where nothing was recorded
};

struct rollout_example {
    int64_t at_ns;
    bool equal;
    double distance;
    char *request, *baseline, *candidate;
};

struct rollout_view {
    struct store *store; // while it is read
    char *path, *name, *reason;
    json_t *plan; // an object
    enum rollout_state state;
    int64_t stage; // -1: not begun
    double percent;
    int64_t since_ns, stage_since_ns, heartbeat_ns, pid, read_ns; // read_ns: when it was read
    int up[CANARY_ARMS];                                          // 1, 0; -1: not known
    struct rollout_view_stage *stages;
    size_t stage_count;
    int64_t from_s, width_s; // of buckets
    struct rollout_bucket *buckets;
    size_t bucket_count;
    struct rollout_arm arms[CANARY_ARMS]; // of users, over the rollout
    struct rollout_series *series;
    size_t series_count;
    struct rollout_decision *decisions;
    size_t decision_count;
    int64_t decisions_left; // older ones than are shown
    struct rollout_view_source *sources;
    size_t source_count;
    struct rollout_recording_row *recordings;
    size_t recording_count;
    struct rollout_example *examples;
    size_t example_count;
    int64_t examples_left;
    char **texts; // every string above
    size_t text_count;
};

// rollout_why.c; opens the recordings
void rollout_why_make(const struct rollout_view *view, struct rollout_why *ret_why);
void rollout_why_clear(struct rollout_why *why);
char *rollout_markdown(const struct rollout_view *view); // the caller frees
char *rollout_page(const struct rollout_view *view, struct error *err);

// Stage by its number; NULL: none.
const struct rollout_view_stage *rollout_view_stage(
        const struct rollout_view *view, int64_t number);
// rollout_series.c: buckets, arms
int rollout_load_seconds(struct rollout_view *view, struct error *err);
int rollout_load_cells(struct rollout_view *view, struct error *err); // series
char *rollout_keep(struct rollout_view *view, char *text);
int rollout_refuse(const struct rollout_view *view, struct error *err, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
double rollout_column_double(sqlite3_stmt *stmt, int column); // NAN: NULL or not finite

#endif
