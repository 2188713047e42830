// SPDX-License-Identifier: Apache-2.0
// One line of HAProxy's log: as `option httplog` (or httpslog) writes it, or as the JSON below;
// behind any syslog header (RFC 3164, RFC 5424, none, or what a syslog daemon puts before lines of
// a file). Pure; foreign bytes.
//
// The JSON log-format, for HAProxy 2.0 and newer. It is wanted where it can be had: it numbers the
// lines, so that lost ones are counted; it has the time in microseconds and the end of the request
// by the proxy's own clock; and it tells answers that the server itself knows to be wrong (response
// header x-upgate-wrong: 1). In the frontend, or in `defaults` of mode http:
//
//   http-request  set-var(txn.upgate_begin) date(0,us)
//   http-response set-var(txn.upgate_wrong) int(1) if { res.fhdr(x-upgate-wrong) -m found } !{
//       res.fhdr(x-upgate-wrong) 0 }
//   log-format
//       '{"upgate":1,"pid":%pid,"front":"%f","seq":%lc,"back":"%b","server":"%s","status":%ST,"end_us":%[date(0,us)],"us":"%[date(0,us),sub(txn.upgate_begin)]","ms":"%Ta","term":"%ts","bytes":"%B","wrong":"%[var(txn.upgate_wrong),json(utf8s)]"}'
//
// one line. The header's own words are not logged: a server that says much could have its lines cut
// off. What may be missing or may have a sign ("+12" under `option logasap`) stands in quotes, so
// that every line is JSON. "seq" counts the lines of this frontend in this process, so `log` must
// not leave out levels or samples, and `option dontlog-normal` must be off.
#ifndef UPGATE_HARNESS_CANARY_SOURCES_LOG_LINE_H
#define UPGATE_HARNESS_CANARY_SOURCES_LOG_LINE_H

#include "harness/canary/sources/json_flat.h"

enum log_kind {
    LOG_REQUEST, // everything below is set
    LOG_NOTICE,  // of HAProxy, but of no request: "Server be/new is DOWN", a failed TLS handshake
    LOG_UNKNOWN  // not understood
};

// How a request ended, by HAProxy's termination state. What the client ended is no error of the
// server, and the time until then is a lower bound of what it would have taken; but for a client
// that left while it was told of an error (5xx).
enum log_end {
    LOG_END_OK,
    LOG_END_CLIENT,    // the client went away, or was too slow
    LOG_END_ERROR,     // 5xx, or not answered
    LOG_END_TRUNCATED, // cut off while data flowed
    LOG_END_BEFORE     // before a server was chosen, or answered by the proxy itself
};

struct log_line {
    enum log_kind kind;
    struct text front, back, server; // into the line; server "<NOSRV>": none
    int status;                      // -1: none
    int64_t end_ns;                  // since 1970 by the proxy's clock; -1: not told
    bool end_is_local;               // end_ns is of the proxy's local time, not of UTC
    int64_t took_ns;                 // -1: not told
    enum log_end end;
    bool refused;  // no connection to the server
    bool given_up; // by the client, before an answer began
    bool rejected; // answered 4xx, or given up
    bool wrong;    // the server said so: x-upgate-wrong. JSON only
    bool numbered;
    uint64_t pid, sequence; // where `numbered`
};

void log_line_parse(const char *line, size_t len, struct log_line *ret);

// Termination state and status as HAProxy tells them ("SD", 200; status -1: none).
enum log_end log_end_of(const char state[2], int status);

#endif
