// SPDX-License-Identifier: Apache-2.0
// The reader's side of the spool of one process (contracts/spool.h). Trusts nothing that the
// process wrote: whole records are copied out first and checked then, lengths and types that cannot
// be are counted and skipped. A writer that was killed at any moment leaves readable what it had
// published. Never waits.
#ifndef UPGATE_TRACER_GPU_SPOOL_READER_H
#define UPGATE_TRACER_GPU_SPOOL_READER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "contracts/spool.h"

struct spool_reader;

// Smallest size of each type; those with a tail are checked by whoever reads the tail. 0: no such
// type.
extern const uint16_t spool_record_bytes_min[UG_REC_TYPE_COUNT];

// The spool among the open files of a process: the one whose header.pid is the process as it sees
// itself (a forked child has its parent's open, too). The caller closes *ret_fd. -ENOENT: none;
// -EACCES, -ESRCH.
int spool_reader_find(pid_t pid, int *ret_fd);

// Checks and maps. -EPROTO in words: another version, sizes that do not fit, not sealed against
// shrinking. fd stays the caller's. The inode tells one spool from another.
int spool_reader_open(int fd, struct spool_reader **ret_reader, struct error *err);
// By how much the CLOCK_MONOTONIC of the process is ahead of ours (common/clock.h): of what it
// wrote all such times are handed out as ours, and what it is told is told in its own. 0 at first.
void spool_reader_set_clock(struct spool_reader *reader, int64_t ahead_ns);
void spool_reader_close(struct spool_reader *reader); // NULL ok
uint64_t spool_reader_inode(const struct spool_reader *reader);

// A copy of the header, texts ended.
void spool_reader_header(const struct spool_reader *reader, struct ug_spool_header *ret_header);
// What lies in the spool now is an earlier recorder's: later drains begin behind it.
void spool_reader_skip(struct spool_reader *reader);
void spool_reader_ask(
        struct spool_reader *reader, enum ug_spool_state state, uint32_t kinds, int64_t now_ns);
// the library acted on what was asked last
bool spool_reader_done(const struct spool_reader *reader);
bool spool_reader_taken(const struct spool_reader *reader); // another recorder has asked since
void spool_reader_heartbeat(struct spool_reader *reader, int64_t now_ns);

typedef void (*spool_reader_fn)(void *context, const struct ug_rec_head *record);
// Everything published and not yet taken, thread by thread in order; at most `bytes_max`, then the
// rest comes next time. Returns the bytes taken. Each record has at least the size of its type.
uint64_t spool_reader_drain(
        struct spool_reader *reader, uint64_t bytes_max, spool_reader_fn fn, void *context);
// Records that define something (strings, devices, streams, threads) which a drain has still to
// take: a thread may use an id whose text another has just published in a segment that the drain
// has passed. No segment more once `bytes_max` were read. Returns the bytes read.
uint64_t spool_reader_peek(
        struct spool_reader *reader, uint64_t bytes_max, spool_reader_fn fn, void *context);

// Tells the library what was read of segments that are being written, so that it can give their
// memory back: a thread may hold its one for as long as it lives. For a reader that has finished
// with a process.
void spool_reader_let_go(const struct spool_reader *reader);

struct spool_damage {
    uint64_t records; // of a type or length that cannot be
    uint64_t bytes;   // not readable because of them
};
void spool_reader_damage(const struct spool_reader *reader, struct spool_damage *ret_damage);

#endif
