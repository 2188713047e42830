// SPDX-License-Identifier: Apache-2.0
// What is given to the stages of diff_analyse for one workload, and the notes that all of them may
// add to. Internal to this room (and its unit tests). One owner thread.
#ifndef UPGATE_DIFF_INPUT_H
#define UPGATE_DIFF_INPUT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "common/containers/arena.h"
#include "common/strings.h"
#include "reports/analyse/diff/diff.h"

enum { DIFF_NOTES_MAX = 40 };

struct diff_input { // nobody changes it
    struct store *store;
    struct arena *arena; // of the answer: what is reported lives there
    const struct diff_opts *opts;
    const char *workload; // its name
    int64_t workload_id;
    const json_t *differences; // of the sides' fingerprints; NULL: not known
};

struct diff_pair { // of traced launches
    int64_t launch[2];
};

struct diff_notes { // what weakens the answer
    struct arena *arena;
    struct diff_note all[DIFF_NOTES_MAX];
    size_t count;
};

// notes.c. Each is noted once; of more than DIFF_NOTES_MAX the first ones. Copies its texts, made
// valid UTF-8.
void diff_note(struct diff_notes *notes, struct diff_note note);
// What was put together, in the arena; frees it. "": nothing.
const char *diff_text(struct arena *arena, struct strbuf *text);

#endif
