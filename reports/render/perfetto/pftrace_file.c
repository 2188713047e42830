// SPDX-License-Identifier: Apache-2.0
// The protobuf of a Perfetto trace, by hand: a packet is a length and fields, a field is a number,
// a type and its bytes. A packet is built in memory and goes through stdio; names are written once
// and then told by number.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/intern.h"
#include "common/containers/varint.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/render/perfetto/pftrace_file.h"
#include "reports/render/render.h"

// perfetto/trace/trace_packet.proto and track_event.proto
enum {
    TRACE_PACKET = 1,
    PACKET_TIMESTAMP = 8,
    PACKET_SEQUENCE = 10,
    PACKET_EVENT = 11,
    PACKET_INTERNED = 12,
    PACKET_FLAGS = 13,
    PACKET_TRACK = 60,
    EVENT_NOTE = 4,
    EVENT_TYPE = 9,
    EVENT_NAME = 10,
    EVENT_TRACK = 11,
    EVENT_FLOW = 47,
    TYPE_BEGIN = 1,
    TYPE_END = 2,
    TYPE_INSTANT = 3,
    INTERNED_NAMES = 2,
    INTERNED_KEYS = 3,
    INTERNED_VALUES = 29,
    INTERNED_NUMBER = 1,
    INTERNED_TEXT = 2,
    NOTE_KEY = 1,
    NOTE_VALUE = 17,
    TRACK_UUID = 1,
    TRACK_NAME = 2,
    TRACK_PROCESS = 3,
    TRACK_THREAD = 4,
    TRACK_PARENT = 5,
    TRACK_MERGE = 15,
    MERGE_NONE = 2, // tracks of one name stay apart
    PROCESS_PID = 1,
    PROCESS_NAME = 6,
    THREAD_PID = 1,
    THREAD_TID = 2,
    THREAD_NAME = 5,
    FLAG_CLEARED = 1,
    FLAG_NEEDS = 2,
};
// each event looks at all of them; what a damaged store has beyond becomes an instant
enum { LANE_TRACKS_MAX = 512 };
enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, PF_BUFFER_BYTES = 1 << 20 };

struct pf_bytes {
    uint8_t *data;
    size_t len, capacity;
};

struct pf {
    struct render_stream *stream;
    FILE *file;
    char *buffer;
    struct intern *texts[PF_TEXT_COUNT];
    struct pf_bytes packet, message, inner;
    uint64_t tracks, events;
    bool first, failed;
};

static void bytes_room(struct pf_bytes *bytes, size_t more)
{
    bytes->data = vector_reserve(bytes->data, &bytes->capacity, bytes->len + more, 1);
}

static void bytes_varint(struct pf_bytes *bytes, uint64_t value)
{
    bytes_room(bytes, VARINT_SIZE_MAX);
    bytes->len += varint_put(bytes->data + bytes->len, value);
}

static void field_number(struct pf_bytes *bytes, unsigned field, uint64_t value)
{
    bytes_varint(bytes, field << 3 | WIRE_VARINT);
    bytes_varint(bytes, value);
}

static void field_fixed(struct pf_bytes *bytes, unsigned field, uint64_t value)
{
    bytes_varint(bytes, field << 3 | WIRE_FIXED64);
    bytes_room(bytes, 8);
    for (int i = 0; i < 8; i++, value >>= 8)
        bytes->data[bytes->len++] = (uint8_t)value;
}

static void field_bytes(struct pf_bytes *bytes, unsigned field, const void *data, size_t len)
{
    bytes_varint(bytes, field << 3 | WIRE_BYTES);
    bytes_varint(bytes, len);
    bytes_room(bytes, len);
    if (len)
        memcpy(bytes->data + bytes->len, data, len);
    bytes->len += len;
}

static void field_text(struct pf_bytes *bytes, unsigned field, const char *text)
{
    size_t len = strlen(text), from;
    field_bytes(bytes, field, text, len);
    from = bytes->len - len;
    // a reader refuses the whole packet for one wrong byte
    string_make_utf8((char *)bytes->data + from, len);
}

static void field_message(struct pf_bytes *bytes, unsigned field, const struct pf_bytes *message)
{
    field_bytes(bytes, field, message->data, message->len);
}

static void pf_packet_begin(struct pf *pf)
{
    pf->packet.len = pf->message.len = pf->inner.len = 0;
    field_number(&pf->packet, PACKET_SEQUENCE, 1);
    field_number(&pf->packet, PACKET_FLAGS, pf->first ? FLAG_CLEARED | FLAG_NEEDS : FLAG_NEEDS);
    pf->first = false;
}

static void pf_packet_end(struct pf *pf)
{
    struct pf_bytes *head = &pf->inner;
    head->len = 0;
    bytes_varint(head, TRACE_PACKET << 3 | WIRE_BYTES);
    bytes_varint(head, pf->packet.len);
    if (!pf->failed &&
            (fwrite(head->data, 1, head->len, pf->file) != head->len ||
                    fwrite(pf->packet.data, 1, pf->packet.len, pf->file) != pf->packet.len))
        pf->failed = true;
}

int pf_open(const char *path, struct pf **ret_pf, struct error *err)
{
    struct render_stream *stream = NULL;
    int rc = render_stream_open(path, &stream, err);
    if (rc)
        return rc;
    struct pf *pf = xcalloc(1, sizeof *pf);
    *pf = (struct pf){.stream = stream,
            .file = render_stream_file(stream),
            .buffer = xcalloc(1, PF_BUFFER_BYTES),
            .first = true};
    setvbuf(pf->file, pf->buffer, _IOFBF, PF_BUFFER_BYTES);
    for (int i = 0; i < PF_TEXT_COUNT; i++)
        pf->texts[i] = intern_new();
    *ret_pf = pf;
    return 0;
}

int pf_close(struct pf *pf, bool keep, struct error *err)
{
    int rc = render_stream_close(pf->stream, keep, err); // before its buffer goes
    for (int i = 0; i < PF_TEXT_COUNT; i++)
        intern_free(pf->texts[i]);
    free(pf->packet.data);
    free(pf->message.data);
    free(pf->inner.data);
    free(pf->buffer);
    free(pf);
    return rc;
}

bool pf_failed(const struct pf *pf)
{
    return pf->failed;
}

uint64_t pf_events(const struct pf *pf)
{
    return pf->events;
}

uint64_t pf_text(struct pf *pf, enum pf_text kind, const char *text)
{
    static const unsigned fields[PF_TEXT_COUNT] = {INTERNED_NAMES, INTERNED_KEYS, INTERNED_VALUES};
    // 0: none
    uint32_t known = intern_count(pf->texts[kind]), number = intern_text(pf->texts[kind], text) + 1;
    if (number <= known)
        return number;
    pf_packet_begin(pf);
    field_number(&pf->inner, INTERNED_NUMBER, number);
    field_text(&pf->inner, INTERNED_TEXT, text);
    field_message(&pf->message, fields[kind], &pf->inner);
    field_message(&pf->packet, PACKET_INTERNED, &pf->message);
    pf_packet_end(pf);
    return number;
}

static void pf_track_begin(struct pf *pf, uint64_t parent)
{
    pf_packet_begin(pf);
    field_number(&pf->message, TRACK_UUID, ++pf->tracks);
    if (parent)
        field_number(&pf->message, TRACK_PARENT, parent);
}

static uint64_t pf_track_end(struct pf *pf)
{
    field_message(&pf->packet, PACKET_TRACK, &pf->message);
    pf_packet_end(pf);
    return pf->tracks;
}

uint64_t pf_process(struct pf *pf, int32_t pid, const char *name)
{
    pf_track_begin(pf, 0);
    field_number(&pf->inner, PROCESS_PID, (uint64_t)(int64_t)pid);
    field_text(&pf->inner, PROCESS_NAME, name);
    field_message(&pf->message, TRACK_PROCESS, &pf->inner);
    return pf_track_end(pf);
}

uint64_t pf_thread(struct pf *pf, int32_t pid, int32_t tid, const char *name)
{
    pf_track_begin(pf, 0);
    field_number(&pf->inner, THREAD_PID, (uint64_t)(int64_t)pid);
    field_number(&pf->inner, THREAD_TID, (uint64_t)(int64_t)tid);
    field_text(&pf->inner, THREAD_NAME, name);
    field_message(&pf->message, TRACK_THREAD, &pf->inner);
    return pf_track_end(pf);
}

static uint64_t pf_track(struct pf *pf, uint64_t parent, const char *name)
{
    pf_track_begin(pf, parent);
    field_text(&pf->message, TRACK_NAME, name);
    field_number(&pf->message, TRACK_MERGE, MERGE_NONE);
    return pf_track_end(pf);
}

static void pf_event(
        struct pf *pf, uint64_t track, int type, int64_t at, const struct pf_slice *slice)
{
    pf_packet_begin(pf);
    field_number(&pf->packet, PACKET_TIMESTAMP, at > 0 ? (uint64_t)at : 0);
    field_number(&pf->message, EVENT_TYPE, (uint64_t)type);
    field_number(&pf->message, EVENT_TRACK, track);
    if (type != TYPE_END) {
        field_number(&pf->message, EVENT_NAME, slice->name);
        for (size_t i = 0; i < sizeof slice->notes / sizeof *slice->notes && slice->notes[i].key;
                i++) {
            pf->inner.len = 0;
            field_number(&pf->inner, NOTE_KEY, slice->notes[i].key);
            field_number(&pf->inner, NOTE_VALUE, slice->notes[i].value);
            field_message(&pf->message, EVENT_NOTE, &pf->inner);
        }
        if (slice->flow)
            field_fixed(&pf->message, EVENT_FLOW, slice->flow);
    }
    field_message(&pf->packet, PACKET_EVENT, &pf->message);
    pf_packet_end(pf);
}

void pf_lane_init(struct pf_lane *lane, uint64_t parent, uint64_t first, const char *name)
{
    *lane = (struct pf_lane){.parent = parent, .first = first, .name = xstrdup(name)};
}

void pf_lane_free(struct pf_lane *lane)
{
    free(lane->name);
    free(lane->tracks);
    free(lane->ends);
    *lane = (struct pf_lane){0};
}

// The first track on which nothing runs any more; a new one when all are busy; lane->count: it
// cannot have one.
static size_t pf_lane_free_track(struct pf *pf, struct pf_lane *lane, int64_t begin)
{
    for (size_t i = 0; i < lane->count; i++)
        if (lane->ends[i] <= begin)
            return i;
    if (lane->count == LANE_TRACKS_MAX)
        return lane->count;
    lane->tracks = vector_room(lane->tracks, lane->count, sizeof *lane->tracks);
    lane->ends = vector_room(lane->ends, lane->count, sizeof *lane->ends);
    if (lane->count == 0 && lane->first) {
        lane->tracks[0] = lane->first;
    } else if (lane->count == 0) {
        lane->tracks[0] = pf_track(pf, lane->parent, lane->name);
    } else {
        char *name = xasprintf("%s (overlapping %zu)", lane->name, lane->count);
        lane->tracks[lane->count] = pf_track(pf, lane->parent, name);
        free(name);
    }
    return lane->count++;
}

void pf_lane_add(struct pf *pf, struct pf_lane *lane, const struct pf_slice *slice)
{
    bool instant = slice->end < slice->begin;
    size_t at = pf_lane_free_track(pf, lane, slice->begin);
    if (at == LANE_TRACKS_MAX) {
        instant = true;
        at--;
    } else {
        lane->ends[at] = instant ? slice->begin : slice->end;
    }
    pf_event(pf, lane->tracks[at], instant ? TYPE_INSTANT : TYPE_BEGIN, slice->begin, slice);
    if (!instant)
        pf_event(pf, lane->tracks[at], TYPE_END, slice->end, slice);
    pf->events++;
}
