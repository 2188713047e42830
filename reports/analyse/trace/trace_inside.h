// SPDX-License-Identifier: Apache-2.0
// Between the files that load a recording (trace_*.c). One owner thread.
#ifndef UPGATE_TRACE_INSIDE_H
#define UPGATE_TRACE_INSIDE_H

#include "reports/analyse/trace/trace.h"

// After communications. of_ranks: trace.busy and trace.kernels as well as trace.gpus.
int trace_load_busy(struct trace *trace, struct store *store, bool of_ranks, struct error *err);
// before the processes
int trace_load_nodes(struct trace *trace, struct store *store, struct error *err);
uint32_t trace_node_at(const struct trace *trace, int64_t process_id);
uint32_t trace_thread_at(const struct trace_ids *threads, sqlite3_stmt *stmt, int column);
enum { TRACE_STACK_ID_MAX = 1 << 26 }; // ids are given in order: more than that is damage
// The stack's id, until trace_load_stacks puts its index there; 0: none.
uint32_t trace_stack_at(sqlite3_stmt *stmt, int column);
// Rows of a recording that goes on stand in the order they were written, which is that of time but
// for what came late to its ring: the row before the first one that may be needed. 0: all are.
int64_t trace_row_before(struct store *store, const char *table, const char *time, int64_t from_ns);
// gaps, samples
int trace_load_big(struct trace *trace, struct store *store, const struct trace_ids *threads,
        struct error *err);
// Those that gaps, samples, locks and facts have, with their frames.
int trace_load_stacks(struct trace *trace, struct store *store, struct error *err);
void trace_index(struct trace *trace); // sorts gaps, samples, locks; who works

#endif
