// SPDX-License-Identifier: Apache-2.0
// The ranks of a job in one recording, and who of them came last to what. Ranks are told by their
// launcher's environment, by a traced launch's own list, by NCCL, or, where none of these says so,
// by waiting in collectives at the same time. Arrivals are NCCL's where it told them, else the
// begins of the waits in a collective (gloo, MPI). Of ranks on several nodes nobody is said to be
// later than another by less than twice what their clocks are known within, nor at all where that
// is not known. ranks_find needs the trace only; late_ranks_find also the parts. One owner thread.
#ifndef UPGATE_STALLS_RANKS_H
#define UPGATE_STALLS_RANKS_H

#include "reports/analyse/stalls/parts.h"

enum {
    RANKS_MAX = 4096, // of one recording
    LATE_BLOCKS = 24, // the parts of the time of work whose spread is the noise that a late rank
                      // must exceed
};

struct rank_row {
    uint32_t process, thread; // thread: its main one
    int32_t rank;             // -1: not known
    size_t wait_first, wait_count;
    size_t short_first, short_count;
    int64_t message_ns; // of its waits on the host, in sends and receives
    // by_work:
    bool told; // what it does in communications is
    size_t held_first, held_count;
    double held_times; // as some of those were lost, what is known stands for so many times as much
};

// A rank waited in a communication for another one to come.
struct rank_late {
    int64_t begin, end;
    uint32_t waiter, last; // rows
};

struct ranks {
    const struct trace *trace;
    struct rank_row *rows; // by rank
    size_t row_count;
    int32_t size;               // of the job; -1: not known
    struct trace_window *waits; // in collectives on the host, a row's side by side, by begin
    struct rank_late *lates;    // by begin
    uint32_t *shorts;           // of trace.shorts, a row's side by side, in their order
    uint32_t *short_rows; // of each of trace.shorts; TRACE_NONE: it is of no main thread of a rank
    size_t wait_count, late_count;
    int64_t first_end; // when all had come to the first collective; 0: there was none
    int64_t last_end;  // the end of the last one, as far as it is known
    bool nccl;         // arrivals are NCCL's
    // Ranks send to each other, or are in groups of some: who is waited for need not be who is
    // late, and their work is compared.
    bool by_work;
    bool messages;             // by_work as they send to each other, like the stages of a pipeline
    struct trace_window *held; // by_work: in communications with nothing else to do, a row's side
                               // by side, by begin, without overlaps
    size_t held_count;
};

void ranks_find(const struct trace *trace, struct ranks *ret_ranks);
void ranks_free(struct ranks *ranks);
static inline uint32_t ranks_node_of(const struct ranks *ranks, size_t row)
{
    return ranks->trace->processes[ranks->rows[row].process].node;
}
// Are the clocks of all of them known against each other?
bool ranks_clocks_known(const struct ranks *ranks);
// of each process; TRACE_NONE: it is no rank. The caller frees
uint32_t *ranks_row_of(const struct ranks *ranks);
// Waits for other ranks are told as stragglers or as nobody's fault: they go from work's parts.
void ranks_take_waits(const struct ranks *ranks, struct work *work);
// Is this stay off the CPU a wait in a collective, a send or a receive?
bool ranks_waits(const struct trace *trace, const struct trace_gap *gap);
// Is this moment on the CPU one in such a call?
bool ranks_communicates(const struct trace *trace, const struct trace_sample *sample);

// A rank that the others wait for more than chance explains.
struct late_rank {
    uint32_t row;
    struct trace_window *spans; // in which somebody waited for it, without overlaps, by begin
    size_t span_count;
    int64_t total_ns;  // of spans; by_work these are the ends of waits, as long together as it
                       // worked longer
    int64_t excess_ns; // beyond what a rank of the others was waited for in the mean; by_work:
                       // worked in the middle
    int64_t ranks_ns;  // of all that waited, together
    double errors;     // excess over its standard error, which the blocks of the window showed
    uint32_t waiter;   // row that waited most
    // What it did beyond the others: a cause of its own, else a function, else a kernel.
    // CAUSE_COUNT: none of the causes.
    enum cause cause;
    uint32_t culprit, culprit_stack; // of the cause: a thread, or TRACE_NONE; 0
    const char *function;            // "prepare_features (ddp.py)"; NULL: not seen
    bool kernels;                    // it is one of the GPU; function NULL: all of them are
    double kernels_share;            // all of them took so much longer
    bool waiting;                    // off the CPU there
    bool sleeping;                   // by a sleep
    bool messages; // it does no more than the other one, or its connections tell: what comes late
                   // is what it sends
    bool by_connections; // they tell; these follow
    bool receives;       // what is sent to it comes late, by whomever
    uint32_t peer;       // row at the other end of the worst connection
    double bits_per_s;   // on that one, while something was under way
    double retransmits;  // segments of it
    bool unfounded; // it does no more than the others, of which there are several: who comes late
                    // is not known
    int64_t deed_ns;
    uint32_t python, user; // stacks in which it was seen there; 0
};

struct late_ranks {
    struct late_rank *list; // worst first
    size_t count;
    // [rows * LATE_BLOCKS]: of each part of the time the share for which somebody waited for the
    // row; by_work: for which it worked longer than the one in the middle, if somebody waits for
    // it. NAN: not known. NULL: nobody costs enough to be looked at, or it is not known who.
    double *shares;
};

// What a late rank must exceed: standard errors, and a share of the time looked at (late_ranks.c
// says why).
extern const double late_rank_errors, late_rank_share;
// Of a rank by how much more it is waited for than the others, block by block: how many standard
// errors the mean of that is, 0 where it is none.
double late_errors(const double *more, int blocks, double *ret_sum);

// In [begin, end). Work's parts are final and sorted.
void late_ranks_find(const struct ranks *ranks, const struct work *work, int64_t begin, int64_t end,
        struct late_ranks *ret_late);
void late_ranks_free(struct late_ranks *stragglers);
// late_describe.c: as it is told, strings in the trace's arena.
void late_describe(const struct ranks *ranks, const struct work *work,
        const struct late_rank *straggler, struct stall *ret_stall);
struct stall_gpu late_gpu(const struct ranks *ranks, uint32_t row);
// late_heat.c: the shares as they are told, in the arena of the trace. host: of a recording of one
// machine; NULL: not known.
void late_heat(const struct ranks *ranks, const struct late_ranks *stragglers, int64_t begin,
        int64_t end, const char *host, struct stall_heat *ret_heat);
// Which ranks of the job were not recorded; count 0: none is known to miss.
struct stall_missing ranks_missing(const struct ranks *ranks);
// late_network.c: of more than two ranks, the one whose messages come late, as the connections
// between them tell. errors_min, share_min: as of any late rank. False: none, or there is no
// telling.
bool late_network(const struct ranks *ranks, int64_t begin, int64_t end, double errors_min,
        double share_min, struct late_rank *ret);
// late_why.c: fills cause and what follows it.
void late_why(const struct ranks *ranks, const struct work *work, int64_t begin, int64_t end,
        struct late_rank *straggler);

#endif
