// SPDX-License-Identifier: Apache-2.0
// An HTTP answer of the server: its headers, its body, the count of answers by status.
#ifndef UPGATE_SERVE_ANSWER_H
#define UPGATE_SERVE_ANSWER_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

#define ANSWER_CODES_MAX 600

enum { ANSWER_WRONG = 1, ANSWER_CUT = 2 };

struct answer_counts {
    uint64_t of[ANSWER_CODES_MAX]; // by status
};

struct answer {
    int status;
    const char *side;
    char *body; // JSON; answer_queue() frees it
    bool close; // the connection ends with this answer
    bool wrong; // a score is not finite: said in a header, which proxies can log
    bool cut;   // planted: the connection ends in the middle of the body
};

enum MHD_Result answer_queue(
        struct MHD_Connection *connection, struct answer *answer, struct answer_counts *counts);
char *answer_counts_json(const struct answer_counts *counts); // {"200": 12}; the caller frees it

#endif
