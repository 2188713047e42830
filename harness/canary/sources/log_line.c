// SPDX-License-Identifier: Apache-2.0
// A line of HAProxy's log into its parts. No memory, no state, nothing is written to the line.
#include "harness/canary/sources/log_line.h"

#include <string.h>

enum {
    LOG_DATE_LEN = 26,         // "[06/Feb/2009:12:14:14.655]"
    LOG_TOOK_MAX_MS = 86400000 // a day: what takes longer is no time of a request
};

static const char log_json_begin[] = "{\"upgate\":";

enum log_end log_end_of(const char state[2], int status)
{
    bool data = state[1] == 'D';
    switch (state[0]) {
    case 'C':
    case 'c': // who is told of an error need not read on: the answer had begun, and was the
              // server's
        if (status >= 500 && (data || state[1] == 'L'))
            return LOG_END_ERROR;
        return state[1] == 'R' ? LOG_END_BEFORE : LOG_END_CLIENT;
    case 'L': // redirects, statistics, a cache: no server was asked
        return LOG_END_BEFORE;
    case 'P': // a request that was denied; PC, PH and PD are failures behind the proxy or of it
        if (state[1] == 'R' || state[1] == 'T')
            return LOG_END_BEFORE;
        return data ? LOG_END_TRUNCATED : LOG_END_ERROR;
    case 'D': // ended because its server went down, because another came up, by a person
    case 'U':
    case 'K':
        return data || state[1] == 'L' ? LOG_END_TRUNCATED : LOG_END_ERROR;
    case 'S':
    case 's':
    case 'R':
    case 'I':
        return data ? LOG_END_TRUNCATED : LOG_END_ERROR;
    default:
        return status >= 500 || status < 100 ? LOG_END_ERROR : LOG_END_OK;
    }
}

static bool log_state_valid(const char *state)
{
    return strchr("-CSPLRIDUKcs", state[0]) && state[0] && strchr("-RQCHDLT", state[1]) && state[1];
}

static void log_set_end(struct log_line *line, const char *state)
{
    line->end = log_end_of(state, line->status);
    line->refused = (state[0] == 'S' || state[0] == 's') && state[1] == 'C';
    // A connection that is reset in that time is told as one that ended while data flowed, without
    // a status.
    line->given_up = line->end == LOG_END_CLIENT && (strchr("QCH", state[1]) || line->status < 100);
    line->rejected = line->given_up ||
            (line->end <= LOG_END_CLIENT && line->status >= 400 && line->status < 500);
    if (line->server.len && line->server.at[0] == '<') // <NOSRV>, <STATS>, <lua…>
        line->end = LOG_END_BEFORE;
}

static bool log_set_took(struct log_line *line, int64_t value, int64_t unit_ns)
{
    line->took_ns =
            value >= 0 && value <= LOG_TOOK_MAX_MS * (1000000 / unit_ns) ? value * unit_ns : -1;
    return value >= -1;
}

// One member. False: its value is none that HAProxy writes there.
static bool log_json_member(
        struct log_line *line, const struct json_member *member, struct text *state, int64_t *ms)
{
    int64_t number = -1;
    bool is_number = text_integer(member->value, &number);
    bool is_text = member->kind == JSON_FLAT_STRING;
    bool absent = member->kind == JSON_FLAT_NULL ||
            (is_text && (member->value.len == 0 || text_is(member->value, "-")));
    struct text key = member->key;
    if (text_is(key, "front") || text_is(key, "back") || text_is(key, "server") ||
            text_is(key, "term")) {
        *(text_is(key, "front")                  ? &line->front
                        : text_is(key, "back")   ? &line->back
                        : text_is(key, "server") ? &line->server
                                                 : state) = member->value;
        return is_text;
    }
    if (text_is(key, "status")) {
        line->status = is_number && number >= 100 && number <= 999 ? (int)number : -1;
        return is_number;
    }
    if (text_is(key, "end_us")) {
        line->end_ns = is_number && number > 0 && number < INT64_MAX / 1000 ? number * 1000 : -1;
        return is_number || absent;
    }
    if (text_is(key, "us")) {
        log_set_took(line, is_number ? number : -1, 1000);
        return absent || is_number;
    }
    if (text_is(key, "ms")) {
        *ms = is_number ? number : -1;
        return absent || is_number;
    }
    if (text_is(key, "pid") || text_is(key, "seq")) {
        *(text_is(key, "pid") ? &line->pid : &line->sequence) = (uint64_t)number;
        line->numbered |= text_is(key, "seq");
        return is_number && number >= 0;
    }
    if (text_is(key, "wrong"))
        line->wrong = !absent && member->kind != JSON_FLAT_FALSE && !text_is(member->value, "0") &&
                !text_is(member->value, "false");
    return true; // members that came later, or that somebody added
}

static bool log_json(const char *at, size_t len, struct log_line *line)
{
    struct json_flat json;
    struct json_member member;
    struct text state = {0};
    int64_t ms = -1;
    while (len && strchr("\r\n \t", at[len - 1]))
        len--;
    json_flat_begin(&json, at, len);
    while (json_flat_next(&json, &member))
        if (!log_json_member(line, &member, &state, &ms))
            return false;
    if (json.bad || !line->back.len || !line->server.len || state.len < 2 ||
            !log_state_valid(state.at))
        return false;
    // The microseconds are a difference of wall clock times: after a clock that was set they say
    // more than the milliseconds.
    if ((line->took_ns < 0 || (ms >= 0 && line->took_ns / 1000000 > ms + 1)) &&
            !log_set_took(line, ms, 1000000))
        return false;
    log_set_end(line, state.at);
    return true;
}

static bool log_two(const char *at, int low, int high, int *ret)
{
    *ret = (at[0] - '0') * 10 + at[1] - '0';
    return at[0] >= '0' && at[0] <= '9' && at[1] >= '0' && at[1] <= '9' && *ret >= low &&
            *ret <= high;
}

// Days since 1970 of a day of the Gregorian calendar; month from 1.
static int64_t log_days(int64_t year, int month, int day)
{
    year -= month <= 2;
    int64_t era = year / 400, of_era = year % 400;
    int64_t of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

// "[06/Feb/2009:12:14:14.655]", LOG_DATE_LEN bytes.
static bool log_date(const char *at, int64_t *ret_ns)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    static const char shape[] = "[  /   /    :  :  :  .   ]";
    int day, century, year, hour, minute, second, tens, month = 0;
    for (int i = 0; i < LOG_DATE_LEN; i++)
        if (shape[i] != ' ' && at[i] != shape[i])
            return false;
    while (month < 12 && memcmp(at + 4, months + 3 * month, 3) != 0)
        month++;
    if (month == 12 || !log_two(at + 1, 1, 31, &day) || !log_two(at + 8, 19, 21, &century) ||
            !log_two(at + 10, 0, 99, &year) || !log_two(at + 13, 0, 23, &hour) ||
            !log_two(at + 16, 0, 59, &minute) || !log_two(at + 19, 0, 60, &second) ||
            !log_two(at + 22, 0, 99, &tens) || at[24] < '0' || at[24] > '9')
        return false;
    int64_t seconds = log_days(century * 100 + year, month + 1, day) * 86400 + hour * 3600 +
            minute * 60 + second;
    *ret_ns = seconds * 1000000000 + (int64_t)(tens * 10 + at[24] - '0') * 1000000;
    return true;
}

// The next word, up to a space. False: none is left.
static bool log_word(const char **at, const char *end, struct text *ret)
{
    while (*at < end && **at == ' ')
        ++*at;
    const char *from = *at, *space = memchr(from, ' ', (size_t)(end - from));
    *at = space ? space : end;
    *ret = (struct text){from, (size_t)(*at - from)};
    return ret->len > 0;
}

// "10/0/30/69/109": the last of five is the time from the request's first byte to the answer's
// last.
static bool log_timers(struct text timers, int64_t *ret_ms)
{
    const char *at = timers.at, *end = timers.at + timers.len;
    for (int i = 0; i < 5; i++) {
        const char *slash = at <= end ? memchr(at, '/', (size_t)(end - at)) : NULL;
        const char *stop = slash ? slash : end;
        if (at > end || !text_integer((struct text){at, (size_t)(stop - at)}, ret_ms) ||
                (i == 4) != !slash)
            return false;
        at = stop + 1;
    }
    return true;
}

// Behind the date: "http-in static/srv1 10/0/30/69/109 200 2750 - - ---- …".
static enum log_kind log_text(
        const char *at, const char *end, int64_t begin_ns, struct log_line *line)
{
    struct text names, timers, status, bytes, cookie, state;
    int64_t number, ms;
    if (!log_word(&at, end, &line->front) || !log_word(&at, end, &names))
        return LOG_UNKNOWN;
    if (line->front.at[line->front.len - 1] == ':' && memchr(line->front.at, '/', line->front.len))
        return LOG_NOTICE; // "https-in/1: SSL handshake failure"
    const char *slash = memchr(names.at, '/', names.len);
    if (!slash || !log_word(&at, end, &timers) || !log_timers(timers, &ms) ||
            !log_word(&at, end, &status) || !text_integer(status, &number) ||
            !log_word(&at, end, &bytes) || !log_word(&at, end, &cookie) ||
            !log_word(&at, end, &cookie) || !log_word(&at, end, &state) || state.len != 4 ||
            !log_state_valid(state.at))
        return LOG_UNKNOWN;
    if (line->front.at[line->front.len - 1] == '~') // TLS
        line->front.len--;
    line->back = (struct text){names.at, (size_t)(slash - names.at)};
    line->server = (struct text){slash + 1, names.len - line->back.len - 1};
    line->status = number >= 100 && number <= 999 ? (int)number : -1;
    if (!line->back.len || !line->server.len || !log_set_took(line, ms, 1000000))
        return LOG_UNKNOWN;
    line->end_is_local = true;
    line->end_ns = line->took_ns >= 0 ? begin_ns + line->took_ns : -1;
    log_set_end(line, state.at);
    return LOG_REQUEST;
}

static bool log_notice(const char *line, size_t len)
{
    static const char *const words[] = {
            " is UP",
            " is DOWN",
            " has no server available",
            " is going DOWN",
            " started.",
            " stopped (",
            "Health check for ",
            "Connect from ",
            "SSL handshake failure",
            "Stopping ",
            "Pausing ",
            " leaving forced ",
            " changed its ",
            " enters ",
            " is stopping",
            " is back",
            "Resuming ",
            " resumed",
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (memmem(line, len, words[i], strlen(words[i])))
            return true;
    return false;
}

// Whichever begins first is what HAProxy wrote: clients' bytes (the request) stand behind it.
void log_line_parse(const char *line, size_t len, struct log_line *ret)
{
    *ret = (struct log_line){.kind = LOG_UNKNOWN, .status = -1, .end_ns = -1, .took_ns = -1};
    for (const char *at = line, *end = line + len; at < end; at++) {
        int64_t begin_ns;
        size_t left = (size_t)(end - at);
        if (*at == '{' && left > sizeof log_json_begin &&
                memcmp(at, log_json_begin, sizeof log_json_begin - 1) == 0) {
            if (log_json(at, left, ret))
                ret->kind = LOG_REQUEST;
            return;
        }
        if (*at == '[' && left > LOG_DATE_LEN && log_date(at, &begin_ns)) {
            ret->kind = log_text(at + LOG_DATE_LEN, end, begin_ns, ret);
            return;
        }
    }
    if (log_notice(line, len))
        ret->kind = LOG_NOTICE;
}
