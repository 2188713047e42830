// SPDX-License-Identifier: Apache-2.0
// All sources of a rollout: read in turn, into one timeline. One thread.
#include "harness/canary/sources/sources.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/strings.h"
#include "harness/canary/sources/sources_internal.h"

enum { SOURCES_MAX = 64 };
#define SOURCES_GATHER_NS \
    20000000LL // what comes within that is told at once: who asks has more to do than to read
#define SOURCES_QUIET_NS \
    100000000LL // a socket is asked so often, too, though nothing has come: its seconds go on being
                // finished

struct sources {
    struct source all[SOURCES_MAX];
    int count;
    struct timeline timeline;
};

void source_problem(struct source *source, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(source->state.problem, sizeof source->state.problem, fmt, args);
    va_end(args);
}

void source_request(struct source *source, enum timeline_arm arm, int64_t stamp_ns, int64_t now_ns,
        struct timeline_request *request)
{
    request->end_ns = now_ns;
    if (stamp_ns >= 0 && !source_clock_place(&source->clock, stamp_ns, now_ns, &request->end_ns)) {
        source->state.dropped++;
        return;
    }
    if (!timeline_add(source->timeline, arm, request)) {
        source->state.late++;
        return;
    }
    source->state.kept++;
    source->state.last_ns = now_ns;
}

static bool sources_counts_requests(const struct rollout_source *plan)
{
    return plan->kind != ROLLOUT_PROMETHEUS || plan->queries[CANARY_BASELINE].requests ||
            plan->queries[CANARY_CANDIDATE].requests;
}

static int sources_check(const struct rollout *rollout, struct error *err)
{
    int first = -1;
    if (rollout->source_count < 1 || rollout->source_count > SOURCES_MAX)
        return error_set(err, -EINVAL, "a rollout has 1 to %d sources, not %d", SOURCES_MAX,
                rollout->source_count);
    for (int i = 0; i < rollout->source_count; i++) {
        const struct rollout_source *plan = &rollout->sources[i];
        if (!sources_counts_requests(plan))
            continue;
        if (first >= 0 && rollout->sources[first].kind != plan->kind)
            return error_set(err, -EINVAL,
                    "the sources %s and %s would both count the same requests; leave one out, or ask "
                    "prometheus for 'wrong' only",
                    rollout_source_kind_name(rollout->sources[first].kind),
                    rollout_source_kind_name(plan->kind));
        first = i;
    }
    return first >= 0
            ? 0
            : error_set(err, -EINVAL,
                      "no source counts requests; give the source prometheus a query 'requests', "
                      "or add another source");
}

int sources_open(const struct rollout *rollout, struct sources **ret_sources, struct error *err)
{
    static const struct source_ops *const ops[ROLLOUT_SOURCE_KINDS] = {
            [ROLLOUT_HAPROXY_LOG] = &source_log_ops,
            [ROLLOUT_PROMETHEUS] = &source_prometheus_ops,
            [ROLLOUT_JSONL] = &source_jsonl_ops,
            [ROLLOUT_STEPS] = &source_steps_ops,
    };
    int64_t now_ns = clock_monotonic_ns(), wall_ns = clock_wall_ns();
    int rc = sources_check(rollout, err);
    if (rc)
        return rc;
    struct sources *sources = xcalloc(1, sizeof *sources);
    timeline_begin(&sources->timeline, now_ns, wall_ns);
    for (int i = 0; rc == 0 && i < rollout->source_count; i++) {
        struct source *source = &sources->all[sources->count++];
        *source = (struct source){
                .ops = ops[rollout->sources[i].kind],
                .rollout = rollout,
                .plan = &rollout->sources[i],
                .timeline = &sources->timeline,
                .complete_ns = now_ns,
                .fd = -1,
        };
        source_clock_begin(&source->clock, wall_ns - now_ns, now_ns);
        rc = source->ops->open(source, err);
    }
    if (rc) {
        sources_close(sources);
        return rc;
    }
    *ret_sources = sources;
    return 0;
}

void sources_close(struct sources *sources)
{
    if (!sources)
        return;
    for (int i = 0; i < sources->count; i++)
        sources->all[i].ops->close(&sources->all[i]);
    free(sources);
}

// Who is due, and until when nobody is. Descriptors of those that are not due yet are left alone:
// so one wake-up takes many.
static int sources_wait(
        const struct sources *sources, int64_t until_ns, struct pollfd fds[SOURCES_MAX])
{
    int64_t now_ns = clock_monotonic_ns();
    for (int i = 0; i < sources->count; i++) {
        const struct source *source = &sources->all[i];
        int64_t due_ns = source->ops->due_ns(source);
        bool waits = source->fd >= 0 && due_ns <= now_ns;
        fds[i] = (struct pollfd){.fd = waits ? source->fd : -1, .events = POLLIN};
        if (waits)
            due_ns = source->complete_ns + SOURCES_QUIET_NS;
        if (due_ns < until_ns)
            until_ns = due_ns;
    }
    int64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    struct timespec left = {.tv_sec = left_ns / 1000000000, .tv_nsec = left_ns % 1000000000};
    return ppoll(fds, (nfds_t)sources->count, &left, NULL) < 0 ? -errno : 0;
}

static bool sources_read(struct sources *sources, const struct pollfd *fds)
{
    bool came = false;
    int64_t now_ns = clock_monotonic_ns();
    timeline_tick(&sources->timeline, now_ns, clock_wall_ns());
    for (int i = 0; i < sources->count; i++) {
        struct source *source = &sources->all[i];
        bool quiet = source->fd >= 0 && !fds[i].revents &&
                now_ns - source->complete_ns < SOURCES_QUIET_NS;
        if (!quiet && source->ops->due_ns(source) <= now_ns)
            came |= source->ops->read(source, now_ns);
    }
    return came;
}

int sources_poll(struct sources *sources, int timeout_ms, struct error *err)
{
    struct pollfd fds[SOURCES_MAX];
    int64_t began_ns = clock_monotonic_ns(), until_ns = began_ns + (int64_t)timeout_ms * 1000000;
    do {
        int rc = sources_wait(sources, until_ns, fds);
        if (rc == -EINTR)
            return 0;
        if (rc)
            return error_set(err, rc, "failed to wait for the sources: %s", strerror(-rc));
        if (sources_read(sources, fds) && until_ns > began_ns + SOURCES_GATHER_NS)
            until_ns = began_ns + SOURCES_GATHER_NS;
    } while (clock_monotonic_ns() < until_ns);
    return 0;
}

static bool sources_second_arm_is_baseline2(const struct sources *sources, bool aa)
{
    return aa && sources->all[0].rollout->traffic.baseline2;
}

bool sources_take(struct sources *sources, bool aa, int64_t *ret_at_s,
        struct canary_second ret_arms[CANARY_ARMS])
{
    int64_t complete_ns = INT64_MAX;
    for (int i = 0; i < sources->count; i++)
        if (sources->all[i].complete_ns < complete_ns)
            complete_ns = sources->all[i].complete_ns;
    return timeline_take(&sources->timeline, complete_ns - SOURCE_FINISH_NS,
            sources_second_arm_is_baseline2(sources, aa), ret_at_s, ret_arms);
}

void sources_totals(
        const struct sources *sources, bool aa, struct sources_total ret_arms[CANARY_ARMS])
{
    enum timeline_arm second =
            sources_second_arm_is_baseline2(sources, aa) ? TIMELINE_BASELINE2 : TIMELINE_CANDIDATE;
    for (int i = 0; i < CANARY_ARMS; i++) {
        const struct timeline_total *total =
                &sources->timeline.totals[i == CANARY_BASELINE ? TIMELINE_BASELINE : second];
        ret_arms[i] = (struct sources_total){
                total->requests, total->errors, total->refused, total->given_up};
    }
}

void sources_state(const struct sources *sources, int index, struct source_state *ret_state)
{
    *ret_state = sources->all[index].state;
    if (index == 0)
        ret_state->late += sources->timeline.discarded;
}
