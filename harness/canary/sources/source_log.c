// SPDX-License-Identifier: Apache-2.0
// Evidence from HAProxy's log: datagrams or a growing file in, requests of the arms out.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/containers/hash.h"
#include "common/strings.h"
#include "harness/canary/sources/datagrams.h"
#include "harness/canary/sources/log_line.h"
#include "harness/canary/sources/sequence.h"
#include "harness/canary/sources/sources_internal.h"
#include "harness/canary/sources/tail.h"

#define SOURCE_LOG_FILE_NS 50000000LL // between two looks at a file

struct source_log {
    struct datagrams datagrams; // where the plan has `listen`
    struct tail tail;           // where it has `file`
    struct sequence sequence;
    struct text backend, servers[TIMELINE_ARMS];
    int64_t now_ns, read_ns; // of the read under way; of the last one
    int64_t zone_ns, zone_s; // what local time is ahead of UTC, and in which second that was asked
    uint64_t too_long;       // lines, as counted so far
    char unknown[120];       // the last line that was not understood
};

static struct text source_log_text(const char *word)
{
    return (struct text){word, word ? strlen(word) : 0};
}

static int source_log_open(struct source *source, struct error *err)
{
    const struct rollout_traffic *traffic = &source->rollout->traffic;
    if (!traffic->backend || !traffic->servers[CANARY_BASELINE] ||
            !traffic->servers[CANARY_CANDIDATE])
        return error_set(err, -EINVAL,
                "the source haproxy_log needs traffic.haproxy with backend, baseline and candidate: "
                "lines are told apart by the names of the servers");
    struct source_log *log = xcalloc(1, sizeof *log);
    source->own = log;
    log->datagrams.fd = -1;
    log->backend = source_log_text(traffic->backend);
    log->servers[TIMELINE_BASELINE] = source_log_text(traffic->servers[CANARY_BASELINE]);
    log->servers[TIMELINE_CANDIDATE] = source_log_text(traffic->servers[CANARY_CANDIDATE]);
    log->servers[TIMELINE_BASELINE2] = source_log_text(traffic->baseline2);
    if (source->plan->file) {
        tail_begin(&log->tail, source->plan->file);
        return 0;
    }
    int rc = datagrams_open(&log->datagrams, source->plan->listen, err);
    source->fd = log->datagrams.fd;
    return rc;
}

static void source_log_close(struct source *source)
{
    struct source_log *log = source->own;
    if (!log)
        return;
    datagrams_close(&log->datagrams);
    tail_end(&log->tail);
    free(log);
}

static int64_t source_log_due_ns(const struct source *source)
{
    const struct source_log *log = source->own;
    return log->read_ns + (source->plan->file ? SOURCE_LOG_FILE_NS : log->datagrams.gather_ns);
}

static bool source_log_same(struct text a, struct text b)
{
    return a.len == b.len && a.len && memcmp(a.at, b.at, a.len) == 0;
}

// Local time of text lines: the proxy is taken to have our time zone; another one is found as a
// clock that differs.
static int64_t source_log_utc(struct source_log *log, int64_t local_ns)
{
    int64_t now_s = local_ns / 1000000000;
    if (now_s != log->zone_s) {
        time_t moment = (time_t)(now_s - log->zone_ns / 1000000000);
        struct tm local;
        if (localtime_r(&moment, &local))
            log->zone_ns = (int64_t)local.tm_gmtoff * 1000000000;
        log->zone_s = now_s;
    }
    return local_ns - log->zone_ns;
}

static void source_log_request(struct source *source, const struct log_line *line)
{
    struct source_log *log = source->own;
    int arm = 0;
    if (line->end == LOG_END_BEFORE || !source_log_same(line->back, log->backend))
        return;
    while (arm < TIMELINE_ARMS && !source_log_same(line->server, log->servers[arm]))
        arm++;
    if (arm == TIMELINE_ARMS)
        return;
    struct timeline_request request = {
            .error = line->end == LOG_END_ERROR || line->end == LOG_END_TRUNCATED,
            .truncated = line->end == LOG_END_TRUNCATED,
            .refused = line->refused,
            .wrong = line->wrong,
            .rejected = line->rejected,
            .given_up = line->given_up,
            .latency_s = line->took_ns < 0 ? NAN : (double)line->took_ns * 1e-9,
    };
    int64_t end_ns = line->end_ns >= 0 && line->end_is_local ? source_log_utc(log, line->end_ns)
                                                             : line->end_ns;
    source_request(source, (enum timeline_arm)arm, end_ns, log->now_ns, &request);
}

static void source_log_take(void *arg, const char *bytes, size_t len)
{
    struct source *source = arg;
    struct source_log *log = source->own;
    struct log_line line;
    source->state.seen++;
    log_line_parse(bytes, len, &line);
    if (line.kind == LOG_UNKNOWN) {
        source->state.dropped++;
        snprintf(log->unknown, sizeof log->unknown, "%.*s", (int)(len < 100 ? len : 100), bytes);
        string_make_plain(log->unknown, strlen(log->unknown));
    }
    if (line.kind != LOG_REQUEST)
        return;
    if (line.numbered)
        sequence_add(&log->sequence,
                hash_mix(hash_bytes(0, line.front.at, line.front.len), line.pid), line.sequence,
                log->now_ns);
    source_log_request(source, &line);
}

static void source_log_tell(struct source *source)
{
    struct source_log *log = source->own;
    const struct source_state *state = &source->state;
    if (log->tail.problem[0])
        source_problem(source, "%s", log->tail.problem);
    else if (state->dropped && !state->kept)
        source_problem(source,
                "%llu lines were not understood (option httplog or the JSON log-format of docs/CANARY.md is "
                "wanted), the last: %s",
                (unsigned long long)state->dropped, log->unknown);
    else if (state->late > state->kept / 100 && state->late > 10)
        source_problem(source,
                "%llu of %llu lines came more than 2 s after their requests had ended: what brings them holds "
                "them up",
                (unsigned long long)state->late, (unsigned long long)(state->kept + state->late));
    else if (state->lost && log->datagrams.short_queue)
        source_problem(source,
                "%llu lines were lost: the kernel keeps only a few datagrams of a Unix socket; raise "
                "net.unix.max_dgram_qlen to 1024 or use UDP",
                (unsigned long long)state->lost);
    else
        source_problem(source, "%s", "");
}

static bool source_log_read(struct source *source, int64_t now_ns)
{
    struct source_log *log = source->own;
    uint64_t before = source->state.seen, count, too_long;
    bool more;
    log->now_ns = log->read_ns = now_ns;
    if (source->plan->file) {
        more = tail_read(&log->tail, now_ns, source_log_take, source);
        too_long = log->tail.too_long;
    } else {
        more = datagrams_read(&log->datagrams, source_log_take, source, &count);
        too_long = log->datagrams.too_long;
    }
    source->state.dropped += too_long - log->too_long;
    log->too_long = too_long;
    // A line that the kernel drops is a gap in the numbers as well, where there are numbers.
    uint64_t lost = sequence_lost(&log->sequence, now_ns);
    source->state.lost = lost > log->datagrams.lost ? lost : log->datagrams.lost;
    if (!more)
        source->complete_ns = now_ns;
    source_log_tell(source);
    return source->state.seen != before;
}

const struct source_ops source_log_ops = {
        source_log_open, source_log_close, source_log_due_ns, source_log_read};
