// SPDX-License-Identifier: Apache-2.0
// Writing a Perfetto trace (protobuf): tracks, slices, interned names. Field numbers are those of
// perfetto's trace_packet.proto. One owner thread; errors are kept and told at the end.
#ifndef UPGATE_REPORTS_PFTRACE_FILE_H
#define UPGATE_REPORTS_PFTRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct pf;

int pf_open(const char *path, struct pf **ret_pf, struct error *err);
int pf_close(struct pf *pf, bool keep, struct error *err); // frees; keep: the file takes its place
bool pf_failed(const struct pf *pf);                       // writing failed: no use to go on
uint64_t pf_events(const struct pf *pf);                   // slices and instants so far

enum pf_text { PF_TEXT_NAME, PF_TEXT_KEY, PF_TEXT_VALUE, PF_TEXT_COUNT };
// The number of a text, written to the file when it is new. Never 0.
uint64_t pf_text(struct pf *pf, enum pf_text kind, const char *text);

// Tracks; 0 as parent: none. Numbers never 0.
uint64_t pf_process(struct pf *pf, int32_t pid, const char *name);
uint64_t pf_thread(struct pf *pf, int32_t pid, int32_t tid, const char *name);

struct pf_note { // beside a slice: number of a PF_TEXT_KEY and of a PF_TEXT_VALUE
    uint64_t key, value;
};
struct pf_slice {
    int64_t begin, end;      // end < begin: an instant
    uint64_t name;           // PF_TEXT_NAME
    uint64_t flow;           // 0: none; slices with the same one are joined by an arrow
    struct pf_note notes[3]; // key 0: none
};

// A lane: one track, and as many beside it as it takes for no two slices on a track to overlap.
struct pf_lane {
    uint64_t parent;
    char *name;     // of its tracks; NULL: of the first it is that of `first`
    uint64_t first; // a track made before (a thread's); 0: none
    uint64_t *tracks;
    int64_t *ends;
    size_t count;
};
void pf_lane_init(struct pf_lane *lane, uint64_t parent, uint64_t first, const char *name);
void pf_lane_free(struct pf_lane *lane);
void pf_lane_add(struct pf *pf, struct pf_lane *lane, const struct pf_slice *slice);

#endif
