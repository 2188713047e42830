// SPDX-License-Identifier: Apache-2.0
// What one launch recorded: from the reader's rings into arrays, from the arrays into the store.
#include "harness/run/samples.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "harness/gate/parity/tensor_sketch.h"
#include "tracer/store/ranges.h"

// distinct phase or note names of a launch
enum { SAMPLES_TEXT_MAX = 200, SAMPLES_NAMES_MAX = 1024 };

// The entry of a slot and name in a short list, made when it is new.
static struct samples_named *samples_find(
        struct samples_named *list, size_t count, uint32_t slot, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].slot == slot && strcmp(list[i].name, name) == 0)
            return &list[i];
    return NULL;
}

static void samples_on_span(struct samples *samples, const struct samples_named *phase,
        const struct ug_step_record *record)
{
    if (samples->span_count >= SAMPLES_SPANS_MAX) {
        samples->spans_over++;
        return;
    }
    double depth = record->value; // as the process says
    vector_push(samples->spans, samples->span_count,
            (struct samples_span){.phase = (uint32_t)(phase - samples->phases),
                    .depth = depth >= 0 && depth < UG_STEP_PHASE_DEPTH_MAX ? (int32_t)depth : 0,
                    .begin_ns = (int64_t)record->begin_ns,
                    .end_ns = (int64_t)record->end_ns});
}

static void samples_on_named(
        struct samples *samples, uint32_t slot, const struct ug_step_record *record)
{
    bool phase = record->kind == UG_RECORD_PHASE;
    struct samples_named *list = phase ? samples->phases : samples->notes;
    size_t count = phase ? samples->phase_count : samples->note_count;
    // Four phases a step: most are names that are known, and need no look at their bytes.
    struct samples_named *named = samples_find(list, count, slot, record->name);
    char name[UG_STEP_NAME_BYTES]; // cut to its length by bytes, perhaps within a character
    if (!named) {
        snprintf(name, sizeof name, "%s", record->name);
        string_make_utf8(name, strlen(name));
        named = samples_find(list, count, slot, name);
    }
    // a name per step would be a mistake; the first are kept
    if (!named && count >= SAMPLES_NAMES_MAX) {
        samples->spans_over += phase && samples->traced;
        return;
    }
    if (!named) {
        if (phase)
            named = vector_add(samples->phases, samples->phase_count);
        else
            named = vector_add(samples->notes, samples->note_count);
        named->slot = slot;
        memcpy(named->name, name, sizeof name);
    }
    named->count++;
    // Each is plausible; sums of a process that lies stay at the end of the scale.
    int64_t took_ns = phase ? (int64_t)(record->end_ns - record->begin_ns) : 0;
    named->total_ns =
            named->total_ns + took_ns < RANGE_NS_END ? named->total_ns + took_ns : RANGE_NS_END - 1;
    named->value = record->value;
    if (phase && samples->traced)
        samples_on_span(samples, named, record);
}

// The process is not trusted: times that no clock gives would overflow in what is computed from
// them.
static bool samples_plausible(const struct ug_step_record *record)
{
    const uint64_t max_ns = RANGE_NS_END;
    bool spans = record->kind == UG_RECORD_STEP || record->kind == UG_RECORD_PHASE;
    return record->begin_ns < max_ns && record->sched_ns < max_ns &&
            (!spans || (record->end_ns >= record->begin_ns && record->end_ns < max_ns));
}

// As `upgate canary` sorts them (harness/canary/sources): below 100 there was no answer, what a
// client asked wrongly is no failure.
static void samples_on_request(struct samples *samples, const struct ug_step_record *record)
{
    samples->requests++;
    samples->requests_failed += !(record->value >= 100 && record->value < 500); // NAN too
    samples->requests_wrong += strcmp(record->name, "wrong") == 0;
}

static void samples_on_record(void *arg, uint32_t slot, const struct ug_step_record *record)
{
    struct samples *samples = arg;
    if (!samples_plausible(record)) {
        samples->broken++;
        return;
    }
    switch (record->kind) {
    case UG_RECORD_STEP:
        vector_push(samples->steps, samples->step_count,
                (struct samples_step){slot, record->step, (int64_t)record->begin_ns,
                        (int64_t)record->end_ns, (int64_t)record->sched_ns, record->value});
        break;
    case UG_RECORD_LOSS:
        vector_push(samples->losses, samples->loss_count,
                (struct samples_loss){slot, record->step, record->value});
        break;
    case UG_RECORD_PHASE:
    case UG_RECORD_NOTE:
        samples_on_named(samples, slot, record);
        break;
    case UG_RECORD_REQUEST:
        samples_on_request(samples, record);
        break;
    default:
        break; // holds are measured by the turns themselves
    }
}

// FNV-1a over 8-byte words: told apart is all that is asked; the values themselves are stored too.
static uint64_t samples_digest(const unsigned char *bytes, size_t len)
{
    uint64_t hash = 0xcbf29ce484222325u ^ len;
    for (size_t i = 0; i < len; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, len - i < 8 ? len - i : 8);
        hash = (hash ^ word) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    return hash;
}

static const char *samples_dtype(int dtype)
{
    static const char *const names[] = {[UG_DTYPE_NONE] = "none",
            [UG_DTYPE_FLOAT64] = "f64",
            [UG_DTYPE_FLOAT32] = "f32",
            [UG_DTYPE_FLOAT16] = "f16",
            [UG_DTYPE_BFLOAT16] = "bf16",
            [UG_DTYPE_INT64] = "i64",
            [UG_DTYPE_INT32] = "i32",
            [UG_DTYPE_INT16] = "i16",
            [UG_DTYPE_INT8] = "i8",
            [UG_DTYPE_UINT64] = "u64",
            [UG_DTYPE_UINT32] = "u32",
            [UG_DTYPE_UINT16] = "u16",
            [UG_DTYPE_UINT8] = "u8",
            [UG_DTYPE_BOOL] = "bool",
            [UG_DTYPE_COMPLEX64] = "c64",
            [UG_DTYPE_COMPLEX128] = "c128",
            [UG_DTYPE_FLOAT8_E4M3] = "f8e4m3",
            [UG_DTYPE_FLOAT8_E5M2] = "f8e5m2"};
    return dtype >= 0 && dtype < (int)(sizeof names / sizeof *names) ? names[dtype] : "unknown";
}

// The last word of each process counts, unless one has said that the rule does not hold.
static void samples_on_text(
        struct samples *samples, uint32_t slot, const struct reader_bytes *bytes)
{
    bool rule = strcmp(bytes->name, "steps_from") == 0;
    if ((!rule && strcmp(bytes->name, "steps_found") != 0) ||
            bytes->payload_bytes > SAMPLES_TEXT_MAX)
        return;
    char **text = &samples->found;
    if (rule) {
        size_t i = 0;
        while (i < samples->rule_count && samples->rules[i].slot != slot)
            i++;
        if (i == samples->rule_count)
            vector_push(samples->rules, samples->rule_count, (struct samples_rule){.slot = slot});
        text = &samples->rules[i].text;
    }
    if (rule && *text && **text == '!')
        return;
    free(*text);
    *text = xasprintf("%.*s", (int)bytes->payload_bytes, (const char *)bytes->payload);
    string_make_utf8(*text, strlen(*text));
}

// Its values while there is room; behind that its digest, by which equal sides are known to be
// equal to their end.
static void samples_on_tensor(
        struct samples *samples, uint32_t slot, const struct reader_bytes *bytes)
{
    size_t width = bytes->payload_bytes / bytes->count;
    bool whole = bytes->count <= SAMPLES_TENSOR_VALUES_MAX;
    size_t keep = whole ? bytes->payload_bytes : SAMPLES_TENSOR_VALUES_MAX * width;
    size_t room = SAMPLES_TENSOR_BYTES_MIN + keep + (whole ? 0 : TENSOR_SKETCH_BYTES);
    bool in_room = samples->tensor_bytes + room <= SAMPLES_TENSOR_BYTES_MAX;
    uint64_t name = hash_bytes(slot, bytes->name, strlen(bytes->name));
    // The first of its name: what only comes when the room is full has a few values all the same,
    // by which rounding is known from a defect.
    bool late = !in_room && samples->tensors_late < SAMPLES_TENSOR_LATE_MAX &&
            width <= SAMPLES_TENSOR_WIDTH_MAX && map_get(&samples->tensor_names, name) == MAP_NONE;
    bool fits = in_room || late;
    if (!fits && samples->tensors_digests >= SAMPLES_TENSOR_DIGESTS_MAX) {
        samples->tensors_over++;
        return;
    }
    keep = fits ? keep : 0;
    samples->tensor_bytes += in_room ? room : 0;
    samples->tensors_late += late;
    samples->tensors_digests += !fits;
    struct samples_tensor *tensor = vector_add(samples->tensors, samples->tensor_count);
    *tensor = (struct samples_tensor){.slot = slot,
            .idx = bytes->step,
            .name = xstrdup(bytes->name),
            .dtype = (int)bytes->dtype,
            .count = bytes->count,
            .digest = samples_digest(bytes->payload, bytes->payload_bytes),
            .data = xcalloc(1, keep),
            .data_bytes = keep,
            .sketch = whole || !fits ? NULL
                                     : tensor_sketch(samples_dtype((int)bytes->dtype),
                                               bytes->payload, bytes->payload_bytes, bytes->count)};
    memcpy(tensor->data, bytes->payload, keep);
    string_make_utf8(tensor->name, strlen(tensor->name));
    *map_put(&samples->tensor_names, name) = 0;
}

static void samples_on_bytes(void *arg, uint32_t slot, const struct reader_bytes *bytes)
{
    struct samples *samples = arg;
    if (bytes->kind == UG_BYTES_FINGERPRINT) {
        free(samples->fingerprint);
        samples->fingerprint =
                xasprintf("%.*s", (int)bytes->payload_bytes, (const char *)bytes->payload);
    } else if (bytes->kind == UG_BYTES_TEXT) {
        samples_on_text(samples, slot, bytes);
    } else if (bytes->kind == UG_BYTES_TENSOR && bytes->count) {
        samples_on_tensor(samples, slot, bytes);
    }
}

void samples_drain(struct samples *samples, struct reader *reader)
{
    for (uint32_t slot = 0; slot < reader_slot_count(reader); slot++) {
        int rc = reader_drain(reader, slot, samples_on_record, samples_on_bytes, samples, NULL);
        if (rc && rc != -ENOENT) // a rank that is about to claim it, after one with a higher number
            samples->broken++;
    }
}

// How a slot came by its rank, the better ones first.
enum { RANK_TOLD, RANK_CLAIMED, RANK_NONE };

// Of each slot, and no two the same: those that the launcher says, else the order of the first step
// calls. Processes may say one rank, by a launcher around the job that spoke to its parent, or one
// behind the other: who comes later is counted on, in the order of the ranks. Who was told his
// keeps it beside one that was not, and slots that are no process's, as of one that was killed in
// its claim, take none from anybody. The caller frees.
static int64_t *samples_ranks(const struct launch *launch)
{
    uint32_t count = reader_slot_count(launch->reader);
    int64_t *ranks = xcalloc(UG_STEP_SLOTS_MAX, sizeof *ranks), own[UG_STEP_SLOTS_MAX], span = 0,
            next = 0;
    uint8_t by[UG_STEP_SLOTS_MAX];
    for (uint32_t slot = 0; slot < UG_STEP_SLOTS_MAX; slot++) {
        struct reader_slot info;
        bool claimed = slot < count && reader_slot(launch->reader, slot, &info) == 0;
        by[slot] = !claimed ? RANK_NONE : info.has_rank ? RANK_TOLD : RANK_CLAIMED;
        own[slot] = claimed ? (int64_t)info.rank : -1;
        span = own[slot] >= span ? own[slot] + 1 : span;
    }
    for (uint32_t slot = 0; slot < count; slot++) {
        int64_t same = 0;
        for (uint32_t other = 0; other < count; other++)
            same += own[other] == own[slot] &&
                    (by[other] < by[slot] || (by[other] == by[slot] && other < slot));
        ranks[slot] = own[slot] + same * span;
        next = by[slot] != RANK_NONE && ranks[slot] >= next ? ranks[slot] + 1 : next;
    }
    // a process may take back that it has one
    for (uint32_t slot = 0; slot < UG_STEP_SLOTS_MAX; slot++)
        ranks[slot] = by[slot] == RANK_NONE ? next + (int64_t)slot : ranks[slot];
    return ranks;
}

static int samples_store_ranks(const struct launch *launch, const int64_t *ranks, int64_t launch_id,
        struct store *store, struct error *err)
{
    struct reader_slot info;
    int rc = 0;
    for (uint32_t slot = 0; slot < reader_slot_count(launch->reader) && rc == 0; slot++)
        if (reader_slot(launch->reader, slot, &info) == 0)
            rc = store_exec(store, err,
                    "INSERT OR REPLACE INTO launch_rank (launch_id, rank, pid) VALUES (?, ?, ?)",
                    "iii", launch_id, ranks[slot], (int64_t)info.pid);
    return rc;
}

static int samples_store_spans(const struct samples *samples, const struct launch *launch,
        const int64_t *ranks, int64_t launch_id, struct store *store, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; i < samples->span_count && rc == 0; i++) {
        const struct samples_span *span = &samples->spans[i];
        const struct samples_named *phase = &samples->phases[span->phase];
        rc = store_exec(store, err,
                "INSERT OR REPLACE INTO phase_span (launch_id, rank, begin_ns, depth, dur_ns, name) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                "iiiiis", launch_id, ranks[phase->slot], span->begin_ns - launch->started_ns,
                (int64_t)span->depth, span->end_ns - span->begin_ns, phase->name);
    }
    if (rc == 0 && samples->traced && samples->span_count + samples->spans_over)
        rc = store_ledger(store, &launch_id, "step protocol", "phases",
                (int64_t)(samples->span_count + samples->spans_over), (int64_t)samples->span_count,
                (int64_t)samples->spans_over, 0,
                samples->spans_over ? "phases beyond the first 1048576, or of too many names"
                                    : NULL,
                err);
    return rc;
}

static int samples_store_steps(const struct samples *samples, const struct launch *launch,
        const int64_t *ranks, int64_t launch_id, struct store *store, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; i < samples->step_count && rc == 0; i++) {
        const struct samples_step *step = &samples->steps[i];
        int64_t late = step->begin_ns - step->sched_ns;
        rc = store_exec(store, err,
                "INSERT OR REPLACE INTO step (launch_id, rank, idx, begin_ns, dur_ns, late_ns, "
                "samples) VALUES (?, ?, ?, ?, ?, ?, ?)",
                "iiiiiId", launch_id, ranks[step->slot], (int64_t)step->idx,
                step->begin_ns - launch->started_ns, step->end_ns - step->begin_ns,
                step->sched_ns ? &late : NULL, step->samples);
    }
    for (size_t i = 0; i < samples->loss_count && rc == 0; i++) {
        const struct samples_loss *loss = &samples->losses[i];
        rc = store_exec(store, err,
                "INSERT OR REPLACE INTO loss (launch_id, rank, step, value, bits) "
                "VALUES (?, ?, ?, ?, ?)",
                "iiidb", launch_id, ranks[loss->slot], (int64_t)loss->idx, loss->value,
                &loss->value, sizeof loss->value);
    }
    return rc;
}

static int samples_store_tensors(const struct samples *samples, const int64_t *ranks,
        int64_t launch_id, struct store *store, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; i < samples->tensor_count && rc == 0; i++) {
        const struct samples_tensor *tensor = &samples->tensors[i];
        char digest[17];
        snprintf(digest, sizeof digest, "%016llx", (unsigned long long)tensor->digest);
        rc = store_exec(store, err,
                "INSERT OR REPLACE INTO tensor (launch_id, rank, step, name, dtype, count, digest, "
                "data, sketch) VALUES (?, ?, ?, ?, ?, ?, ?, ?, nullif(?, x''))",
                "iiissisbb", launch_id, ranks[tensor->slot], (int64_t)tensor->idx, tensor->name,
                samples_dtype(tensor->dtype), (int64_t)tensor->count, digest, tensor->data,
                tensor->data_bytes, tensor->sketch,
                tensor->sketch ? (size_t)TENSOR_SKETCH_BYTES : (size_t)0);
    }
    return rc;
}

static int samples_store_named(const struct samples *samples, const int64_t *ranks,
        int64_t launch_id, struct store *store, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; i < samples->phase_count && rc == 0; i++) {
        const struct samples_named *phase = &samples->phases[i];
        rc = store_exec(store, err,
                "INSERT OR REPLACE INTO step_phase (launch_id, rank, name, count, total_ns) "
                "VALUES (?, ?, ?, ?, ?)",
                "iisii", launch_id, ranks[phase->slot], phase->name, phase->count, phase->total_ns);
    }
    for (size_t i = 0; i < samples->note_count && rc == 0; i++) {
        const struct samples_named *note = &samples->notes[i];
        rc = store_exec(store, err,
                "INSERT OR REPLACE INTO launch_value (launch_id, rank, name, value) "
                "VALUES (?, ?, ?, ?)",
                "iisd", launch_id, ranks[note->slot], note->name, note->value);
    }
    return rc;
}

// Counters stand in shared memory: one that was written over must not overflow what is summed
// later.
static uint64_t samples_sane(uint64_t counter)
{
    const uint64_t max = (uint64_t)1 << 40; // a record a nanosecond for a quarter of an hour
    return counter < max ? counter : max;
}

// Of processes in time namespaces of their own: that their times were brought to our clock, or that
// they could not be.
static int samples_store_clocks(const struct launch *launch, int64_t launch_id, uint64_t unplaced,
        struct store *store, struct error *err)
{
    struct reader_slot info;
    int64_t ahead_ns = 0;
    for (uint32_t slot = 0; slot < reader_slot_count(launch->reader) && !ahead_ns; slot++)
        ahead_ns = reader_slot(launch->reader, slot, &info) ? 0 : info.clock_ahead_ns;
    int rc = 0;
    if (ahead_ns) {
        char *text = xasprintf(
                "in a time namespace, whose clock is off by %+.9f s: times were brought to the machine's clock",
                (double)ahead_ns / 1e9);
        rc = store_ledger(
                store, &launch_id, "step protocol", "time namespace", -1, -1, 0, 0, text, err);
        free(text);
    }
    if (rc == 0 && unplaced)
        rc = store_ledger(store, &launch_id, "step protocol", "clocks", -1, -1, (int64_t)unplaced,
                1,
                "records of processes in a time namespace whose clock cannot be compared: left out",
                err);
    return rc;
}

static int samples_store_ledger(const struct samples *samples, const struct launch *launch,
        int64_t launch_id, struct store *store, struct error *err)
{
    struct reader_counters sum = {0}, one;
    for (uint32_t slot = 0; slot < reader_slot_count(launch->reader); slot++) {
        if (reader_counters(launch->reader, slot, &one))
            continue;
        sum.records_kept += samples_sane(one.records_kept);
        sum.records_dropped += samples_sane(one.records_dropped);
        sum.bytes_kept += samples_sane(one.bytes_kept);
        sum.bytes_dropped += samples_sane(one.bytes_dropped);
        sum.truncated += samples_sane(one.truncated);
        sum.misplaced += samples_sane(one.misplaced);
        sum.records_unplaced += samples_sane(one.records_unplaced);
    }
    int rc = store_ledger(store, &launch_id, "step protocol", "records",
            (int64_t)(sum.records_kept + sum.records_dropped), (int64_t)sum.records_kept,
            (int64_t)sum.records_dropped, sum.records_dropped > 0,
            sum.records_dropped ? "the ring was full: step records were lost" : NULL, err);
    if (rc == 0 && sum.bytes_kept + sum.bytes_dropped)
        rc = store_ledger(store, &launch_id, "step protocol", "tensors",
                (int64_t)(sum.bytes_kept + sum.bytes_dropped), (int64_t)sum.bytes_kept,
                (int64_t)sum.bytes_dropped, 0,
                sum.bytes_dropped ? "outputs were lost: parity rests on those kept" : NULL, err);
    // Not a kind of 'tensors': nothing of these excuses an output that a side leaves out
    // (parity_gate.c).
    if (rc == 0 && samples->tensors_digests)
        rc = store_ledger(store, &launch_id, "step protocol", "values of outputs beyond 16 MiB", -1,
                -1, (int64_t)samples->tensors_digests, 0,
                "parity has digests of these outputs only", err);
    if (rc == 0 && samples->tensors_over)
        rc = store_ledger(store, &launch_id, "step protocol", "tensors beyond 16 MiB", -1, -1,
                (int64_t)samples->tensors_over, 0, "parity rests on those of the first steps", err);
    if (rc == 0 && sum.truncated + sum.misplaced)
        rc = store_ledger(store, &launch_id, "step protocol", "misused calls", -1, -1,
                (int64_t)(sum.truncated + sum.misplaced), 0,
                "names cut, phases too deep, or calls nested or outside a step: ignored", err);
    if (rc == 0)
        rc = samples_store_clocks(launch, launch_id, sum.records_unplaced, store, err);
    uint32_t refused = reader_refused_count(launch->reader);
    if (rc == 0 && (refused || samples->broken))
        rc = store_ledger(store, &launch_id, "step protocol", "slots", -1, -1,
                (int64_t)(refused + samples->broken), 1,
                "processes that found no slot, or wrote over their ring", err);
    return rc;
}

// From the start of the launch to the first step call of each rank.
static int samples_store_startup(const struct launch *launch, const int64_t *ranks,
        int64_t launch_id, struct store *store, struct error *err)
{
    struct reader_slot info;
    int rc = 0;
    for (uint32_t slot = 0; slot < reader_slot_count(launch->reader) && rc == 0; slot++) {
        if (reader_slot(launch->reader, slot, &info) ||
                info.claim_ns < (uint64_t)launch->started_ns ||
                info.claim_ns >= (uint64_t)RANGE_NS_END)
            continue;
        rc = store_exec(store, err,
                "INSERT OR REPLACE INTO launch_value (launch_id, rank, name, value) "
                "VALUES (?, ?, 'startup_time_ns', ?)",
                "iid", launch_id, ranks[slot],
                (double)((int64_t)info.claim_ns - launch->started_ns));
    }
    return rc;
}

// Of all its servers together, whichever of them answered: under the lowest rank, so that those of
// other nodes lie beside it.
static int samples_store_requests(const struct samples *samples, const struct launch *launch,
        const int64_t *ranks, int64_t launch_id, struct store *store, struct error *err)
{
    const struct {
        const char *name;
        uint64_t count;
    } values[] = {{"upgate.requests", samples->requests},
            {"upgate.requests_failed", samples->requests_failed},
            {"upgate.requests_wrong", samples->requests_wrong}};
    int64_t rank = INT64_MAX;
    int rc = 0;
    for (uint32_t slot = 0; slot < reader_slot_count(launch->reader); slot++)
        rank = ranks[slot] < rank ? ranks[slot] : rank;
    for (size_t i = 0; i < sizeof values / sizeof *values && samples->requests && rc == 0; i++)
        rc = store_exec(store, err,
                "INSERT OR REPLACE INTO launch_value (launch_id, rank, name, value) VALUES (?, ?, ?, ?)",
                "iisd", launch_id, rank, values[i].name, (double)values[i].count);
    return rc;
}

int samples_store(const struct samples *samples, const struct launch *launch, int64_t launch_id,
        struct store *store, struct error *err)
{
    int64_t *ranks = samples_ranks(launch);
    int rc = samples_store_ranks(launch, ranks, launch_id, store, err);
    if (rc == 0)
        rc = samples_store_steps(samples, launch, ranks, launch_id, store, err);
    if (rc == 0)
        rc = samples_store_spans(samples, launch, ranks, launch_id, store, err);
    if (rc == 0)
        rc = samples_store_tensors(samples, ranks, launch_id, store, err);
    if (rc == 0)
        rc = samples_store_named(samples, ranks, launch_id, store, err);
    if (rc == 0)
        rc = samples_store_startup(launch, ranks, launch_id, store, err);
    if (rc == 0)
        rc = samples_store_requests(samples, launch, ranks, launch_id, store, err);
    if (rc == 0)
        rc = samples_store_ledger(samples, launch, launch_id, store, err);
    free(ranks);
    return rc;
}

void samples_free(struct samples *samples)
{
    for (size_t i = 0; i < samples->tensor_count; i++) {
        free(samples->tensors[i].name);
        free(samples->tensors[i].data);
        free(samples->tensors[i].sketch);
    }
    free(samples->tensors);
    map_free(&samples->tensor_names);
    free(samples->steps);
    free(samples->losses);
    free(samples->phases);
    free(samples->spans);
    free(samples->notes);
    free(samples->fingerprint);
    for (size_t i = 0; i < samples->rule_count; i++)
        free(samples->rules[i].text);
    free(samples->rules);
    free(samples->found);
    *samples = (struct samples){0};
}

int64_t samples_steps(const struct launch *launch)
{
    int64_t least = -1;
    for (uint32_t slot = 0; slot < reader_slot_count(launch->reader); slot++) {
        struct reader_slot info;
        if (reader_slot(launch->reader, slot, &info) == 0 && (least < 0 || info.steps < least))
            least = info.steps;
    }
    return least;
}

uint64_t samples_dropped(const struct launch *launch)
{
    uint64_t dropped = 0;
    struct reader_counters counters;
    for (uint32_t slot = 0; slot < reader_slot_count(launch->reader); slot++)
        if (reader_counters(launch->reader, slot, &counters) == 0)
            dropped += samples_sane(counters.records_dropped);
    return dropped;
}

const char *samples_rule(const struct samples *samples, const char **ret_why)
{
    *ret_why = NULL;
    for (size_t i = 0; i < samples->rule_count && !*ret_why; i++)
        if (samples->rules[i].text[0] == '!')
            *ret_why = samples->rules[i].text + 1;
        else if (strcmp(samples->rules[i].text, samples->rules[0].text) != 0)
            *ret_why = "different rules in its processes";
    return samples->rule_count && !*ret_why ? samples->rules[0].text : NULL;
}

double samples_note_max(const struct samples *samples, const char *name)
{
    double max = NAN;
    for (size_t i = 0; i < samples->note_count; i++)
        if (strcmp(samples->notes[i].name, name) == 0)
            max = fmax(max, samples->notes[i].value);
    return max;
}
