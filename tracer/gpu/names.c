// SPDX-License-Identifier: Apache-2.0
// Ids of the workload become rows of the store: texts, threads, devices, streams.
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "tracer/gpu/inside.h"

int gpu_names_new(struct gpu_recorder *gpu, struct error *err)
{
    gpu->target_ids = intern_new();
    gpu->work_ids = intern_new();
    gpu->kernel_ids = intern_new();
    static const struct {
        const char *sql;
        size_t at;
    } last[] = {{"SELECT max(id) FROM gpu_work", offsetof(struct gpu_recorder, work_last)},
            {"SELECT max(id) FROM gpu_kernel", offsetof(struct gpu_recorder, kernel_last)},
            {"SELECT max(id) FROM gpu_stream", offsetof(struct gpu_recorder, stream_last)}};
    for (size_t i = 0; i < sizeof last / sizeof *last; i++) {
        int rc = store_get_int(
                gpu->store, (int64_t *)((char *)gpu + last[i].at), err, last[i].sql, "");
        if (rc && rc != -ENOENT) // none yet
            return rc;
    }
    return 0;
}

uint32_t gpu_number(
        struct intern *intern, const uint64_t *key, size_t words, uint32_t max, bool *ret_new)
{
    uint32_t number = intern_find(intern, key, words * sizeof *key);
    *ret_new = number == INTERN_NONE && intern_count(intern) < max;
    return *ret_new ? intern_number(intern, key, words * sizeof *key) : number;
}

void gpu_names_free(struct gpu_recorder *gpu)
{
    intern_free(gpu->target_ids);
    intern_free(gpu->work_ids);
    intern_free(gpu->kernel_ids);
    for (int i = 0; i < GPU_GENERATIONS; i++)
        free(gpu->targets[i]);
    free(gpu->works);
    free(gpu->kernels);
}

// --- texts ---------------------------------------------------------------------------------------

int64_t gpu_text_row(struct gpu_recorder *gpu, const char *text)
{
    int64_t row = 0;
    if (store_get_int(gpu->store, &row, NULL, "SELECT id FROM string WHERE text = ?", "s", text) ==
            0)
        return row;
    if (!batch_begin(gpu->batch))
        return 0;
    if (store_insert(gpu->store, &row, NULL, "INSERT INTO string (text) VALUES (?)", "s", text)) {
        batch_fail(gpu->batch);
        return 0;
    }
    return row;
}

static uint32_t text_flags(const char *text)
{
    if (strstr(text, "GraphLaunch"))
        return CALL_LAUNCHES | CALL_GRAPH;
    if (strstr(text, "LaunchHostFunc")) // of the host: the GPU runs nothing
        return 0;
    return strstr(text, "Launch") || strstr(text, "Memcpy") || strstr(text, "Memset")
            ? CALL_LAUNCHES
            : 0;
}

static void define_string(struct gpu_process *process, const struct ug_rec_string *record)
{
    uint32_t len = record->text_bytes;
    if (len > record->head.bytes - sizeof *record || record->id == 0 ||
            record->id >= GPU_STRINGS_MAX) {
        process->counters.no_room++;
        return;
    }
    process->strings = vector_reserve_zero(process->strings, &process->string_capacity,
            (size_t)record->id + 1, sizeof *process->strings);
    struct gpu_string *string = &process->strings[record->id];
    if (string->row)
        return;
    char *text = xcalloc(1, len + 1u);
    memcpy(text, record + 1, len);
    string_make_utf8(text, len);
    string->flags = text_flags(text);
    string->row = (uint32_t)gpu_text_row(process->gpu, text);
    free(text);
}

static void define_string_only(void *process, const struct ug_rec_head *record)
{
    if (record->type == UG_REC_STRING)
        define_string(process, (const struct ug_rec_string *)record);
}

static void names_peek(struct gpu_process *process, spool_reader_fn fn)
{
    uint64_t read = spool_reader_peek(process->reader, process->peek_bytes_left, fn, process);
    process->peek_bytes_left -= read < process->peek_bytes_left ? read : process->peek_bytes_left;
}

// Texts first: the others name some.
void gpu_names_peek(struct gpu_process *process)
{
    if (process->peeks >= GPU_PEEKS_MAX || process->peeking || !process->reader)
        return;
    process->peeks++;
    process->peeking = true;
    names_peek(process, define_string_only);
    names_peek(process, gpu_define);
    process->peeking = false;
}

const struct gpu_string *gpu_string(struct gpu_process *process, uint32_t id)
{
    static const struct gpu_string none = {0};
    if (id < process->string_capacity && process->strings[id].row)
        return &process->strings[id];
    if (id == 0)
        return &none;
    gpu_names_peek(process);
    return id < process->string_capacity ? &process->strings[id] : &none;
}

uint32_t gpu_string_row(struct gpu_process *process, uint32_t id)
{
    uint32_t row = gpu_string(process, id)->row;
    if (row || !id)
        return row;
    process->counters.unknown_strings++;
    if (!process->gpu->unknown_string)
        process->gpu->unknown_string = gpu_text_row(process->gpu, "[unknown]");
    return (uint32_t)process->gpu->unknown_string;
}

// --- threads, devices, streams -------------------------------------------------------------------

uint32_t gpu_thread_row(struct gpu_process *process, uint32_t tid)
{
    if (!tid)
        return 0;
    uint32_t *number = map_put(&process->thread_ids, tid);
    if (*number == MAP_NONE && process->thread_count == GPU_THREADS_MAX) {
        process->counters.no_room++;
        return 0;
    }
    if (*number == MAP_NONE) {
        *number = process->thread_count;
        vector_push(process->threads, process->thread_count,
                process->gpu->callbacks.thread(process->gpu->callbacks.context, process->pid, tid));
    }
    return process->threads[*number];
}

static void define_device(struct gpu_process *process, const struct ug_rec_device *record)
{
    // several are told with context 0: those without a context that is known
    for (uint32_t i = 0; i < process->device_count; i++)
        if (process->devices[i].context == record->context &&
                process->devices[i].device == record->device && process->devices[i].known)
            return;
    if (process->device_count == GPU_CONTEXTS_MAX) {
        process->counters.no_room++;
        return;
    }
    struct gpu_device *device = &process->devices[process->device_count++];
    *device = (struct gpu_device){
            .known = true, .context = record->context, .device = record->device, .record = *record};
    const uint8_t *u = record->uuid;
    char uuid[48], capability[32];
    snprintf(uuid, sizeof uuid,
            "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
            u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
            u[15]);
    snprintf(capability, sizeof capability, "%u.%u", record->cc_major, record->cc_minor);
    int64_t name_id = gpu_string_row(process, record->name);
    if (!batch_begin(process->gpu->batch))
        return;
    int rc = store_exec(process->gpu->store, NULL,
            "INSERT OR IGNORE INTO gpu_device (process_id, device, name, uuid, compute_capability, "
            "multiprocessors, max_threads_multiprocessor, registers_multiprocessor, "
            "shared_multiprocessor_bytes, memory_bytes) VALUES (?, ?, (SELECT text FROM string WHERE id = ?), "
            "?, ?, ?, ?, ?, ?, ?)",
            "iiissiiiii", (int64_t)process->row, (int64_t)record->device, name_id, uuid, capability,
            (int64_t)record->sm_count, (int64_t)record->max_threads_sm,
            (int64_t)record->registers_sm, (int64_t)record->shared_sm_bytes,
            (int64_t)record->memory_bytes);
    if (rc)
        batch_fail(process->gpu->batch);
}

uint32_t gpu_context_device(const struct gpu_process *process, uint32_t context)
{
    for (uint32_t i = 0; i < process->device_count; i++)
        if (process->devices[i].context == context)
            return process->devices[i].device;
    return UINT32_MAX;
}

static struct gpu_stream *stream_of(struct gpu_process *process, uint32_t context, uint32_t stream)
{
    uint32_t *number = map_put(&process->stream_ids, (uint64_t)context << 32 | stream);
    if (*number == MAP_NONE && process->stream_count == GPU_STREAMS_MAX) {
        process->counters.no_room++;
        return &process->streams[0]; // there are thousands: something is badly wrong
    }
    if (*number == MAP_NONE) {
        *number = process->stream_count;
        vector_push(process->streams, process->stream_count,
                (struct gpu_stream){.context = context, .stream = stream});
    }
    return &process->streams[*number];
}

static void stream_describe(struct gpu_process *process, const struct gpu_stream *stream)
{
    if (!batch_begin(process->gpu->batch))
        return;
    int64_t priority = stream->priority;
    if (store_exec(process->gpu->store, NULL,
                "UPDATE gpu_stream SET name = coalesce((SELECT text FROM string WHERE id = ?), name), "
                "priority = coalesce(?, priority) WHERE id = ?",
                "iIi", (int64_t)stream->name, stream->described ? &priority : NULL,
                (int64_t)stream->row))
        batch_fail(process->gpu->batch);
}

static void define_stream(struct gpu_process *process, const struct ug_rec_stream *record)
{
    uint32_t name = record->name ? gpu_string_row(process, record->name) : 0;
    struct gpu_stream *stream = stream_of(process, record->context, record->stream);
    bool same = (!name || name == stream->name) && (record->flags & 8 || stream->described);
    stream->name = name ? name : stream->name;
    if (!(record->flags & 8)) { // 8: tells the name only
        stream->priority = record->priority;
        stream->described = true;
    }
    if (stream->row && !same)
        stream_describe(process, stream);
}

uint32_t gpu_stream_row(
        struct gpu_process *process, uint32_t device, uint32_t context, uint32_t number)
{
    struct gpu_stream *stream = stream_of(process, context, number);
    if (stream->row || !batch_begin(process->gpu->batch))
        return stream->row;
    stream->row = (uint32_t)++process->gpu->stream_last;
    if (store_exec(process->gpu->store, NULL,
                "INSERT INTO gpu_stream (id, process_id, device, context, stream) VALUES (?, ?, ?, ?, ?)",
                "iiiii", (int64_t)stream->row, (int64_t)process->row, (int64_t)device,
                (int64_t)context, (int64_t)number))
        batch_fail(process->gpu->batch);
    if (stream->name || stream->described)
        stream_describe(process, stream);
    return stream->row;
}

void gpu_define(void *context, const struct ug_rec_head *record)
{
    struct gpu_process *process = context;
    if (record->type == UG_REC_STRING)
        define_string(process, (const struct ug_rec_string *)record);
    else if (record->type == UG_REC_DEVICE)
        define_device(process, (const struct ug_rec_device *)record);
    else if (record->type == UG_REC_STREAM)
        define_stream(process, (const struct ug_rec_stream *)record);
}
