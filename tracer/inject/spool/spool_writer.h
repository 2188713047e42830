// SPDX-License-Identifier: Apache-2.0
// The writer's side of the spool (contracts/spool.h), in the workload. Any thread, also in CUPTI's
// callbacks and in handlers at fork: no lock, no allocation, no file call but the first use of a
// segment's memory. One spool a process.
#ifndef UPGATE_TRACER_INJECT_SPOOL_SPOOL_WRITER_H
#define UPGATE_TRACER_INJECT_SPOOL_SPOOL_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "contracts/spool.h"

// Of the segments, those that only threads take which ask for room for many records (spool_room):
// what all others launched goes through the segments of the threads that decode CUPTI's buffers.
enum { SPOOL_DECODER_SEGMENTS = 8 };

// Makes the memfd and maps it; once, before any thread writes. 0 or -errno: then there is no spool
// and nothing is traced.
int spool_create(void);
struct ug_spool_header *spool_header(void); // NULL before spool_create, and in a forked child
// In a child after fork: the spool belongs to the parent. Drops every reference; async-signal-safe.
void spool_forget(void);

// Room for a record of `bytes` (multiple of 8, at most 8,192), to be filled and published by the
// same thread before it asks for more. NULL: no segment is free; counted as dropped. Counts it as
// seen.
void *spool_reserve(enum ug_spool_producer producer, size_t bytes);
void spool_publish(size_t bytes);
// One that cannot be written: seen + 1, dropped + 1.
void spool_drop(enum ug_spool_producer producer);
// seen + 1 and nothing else (UG_WANT_NOTHING_KEPT).
void spool_count(enum ug_spool_producer producer);

// Many records at once: room for at least `bytes` and up to *ret_bytes, all that is left of the
// segment, published by one spool_publish. Counts nothing: the caller does, once for all, and all
// between spool_enter() and spool_leave(), which nest. spool_enter: false at the end of the process
// (then no spool_leave).
bool spool_enter(void);
void spool_leave(void);
void *spool_room(size_t bytes, size_t *ret_bytes);
void spool_count_many(enum ug_spool_producer producer, uint64_t seen, uint64_t dropped);
// Takes the memory of the first segments now, off the launch path (16: 4 MiB). Calls the system:
// for the control thread.
void spool_prepare(uint32_t segments);
// Gives the memory of all FREE segments back to the system, and of others what is not yet written
// and what their reader has let go of; with `abandoned` all, and the records in FULL ones are lost.
// For the control thread, while nothing is recorded: who would count meanwhile is turned away.
void spool_give_back(bool abandoned);
// The process exits: from here on no record is counted or written. Waits until end_ns
// (CLOCK_MONOTONIC) at most for threads that have counted one and not yet written it; false: one
// still has.
bool spool_close(uint64_t end_ns);

// The id of a text; a UG_REC_STRING is written at its first use. 0: dropped. By content.
uint32_t spool_string(const char *text, size_t text_bytes);
// The same for a text that stays where it is and as it is (kernel names of CUPTI): remembers the
// address.
uint32_t spool_static_string(const char *text);
// Addresses remembered so far are not valid any more: a module was unloaded.
void spool_forget_addresses(void);
// All strings are written again at their next use: a new recorder listens.
void spool_restart_strings(void);

// The calling thread's segment is given to the reader now, half full as it is.
void spool_flush_thread(void);
uint32_t spool_tid(void); // of the calling thread, remembered

#endif
