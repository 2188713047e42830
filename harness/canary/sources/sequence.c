// SPDX-License-Identifier: Apache-2.0
// Counting what never came.
#include "harness/canary/sources/sequence.h"

// a number so far below the highest was not overtaken: the process began anew
enum { SEQUENCE_BACK = 65536 };
#define SEQUENCE_FORWARD 4294967296u // nor is a gap of so many lines a loss
#define SEQUENCE_SETTLE_NS 1000000000LL

static uint64_t sequence_stream_lost(const struct sequence_stream *stream)
{
    uint64_t expected = stream->highest - stream->first + 1;
    return expected > stream->count ? expected - stream->count : 0;
}

static uint64_t sequence_lost_now(const struct sequence *sequence)
{
    uint64_t lost = sequence->ended;
    for (int i = 0; i < sequence->stream_count; i++)
        lost += sequence_stream_lost(&sequence->streams[i]);
    return lost;
}

static struct sequence_stream *sequence_room(struct sequence *sequence)
{
    if (sequence->stream_count < SEQUENCE_STREAMS_MAX)
        return &sequence->streams[sequence->stream_count++];
    struct sequence_stream *oldest = &sequence->streams[0];
    for (int i = 1; i < sequence->stream_count; i++)
        if (sequence->streams[i].last_ns < oldest->last_ns)
            oldest = &sequence->streams[i];
    sequence->ended += sequence_stream_lost(oldest);
    return oldest;
}

void sequence_add(struct sequence *sequence, uint64_t key, uint64_t number, int64_t now_ns)
{
    struct sequence_stream *stream = NULL;
    for (int i = 0; !stream && i < sequence->stream_count; i++)
        if (sequence->streams[i].key == key)
            stream = &sequence->streams[i];
    if (stream &&
            (number + SEQUENCE_BACK < stream->highest ||
                    number > stream->highest + SEQUENCE_FORWARD)) {
        sequence->ended += sequence_stream_lost(stream);
        *stream = (struct sequence_stream){
                .key = key, .first = number, .highest = number, .count = 1, .last_ns = now_ns};
        return;
    }
    if (!stream) {
        stream = sequence_room(sequence);
        *stream = (struct sequence_stream){.key = key, .first = number, .highest = number};
    }
    if (number < stream->first)
        stream->first = number;
    if (number > stream->highest)
        stream->highest = number;
    stream->count++;
    stream->last_ns = now_ns;
}

uint64_t sequence_lost(struct sequence *sequence, int64_t now_ns)
{
    uint64_t lost = sequence_lost_now(sequence);
    if (lost < sequence->lost_at_least || !sequence->since_ns)
        sequence->lost_at_least = lost;
    if (!sequence->since_ns)
        sequence->since_ns = now_ns;
    if (now_ns - sequence->since_ns >= SEQUENCE_SETTLE_NS) {
        if (sequence->lost_at_least > sequence->lost)
            sequence->lost = sequence->lost_at_least;
        sequence->lost_at_least = lost;
        sequence->since_ns = now_ns;
    }
    return sequence->lost;
}
