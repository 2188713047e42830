// SPDX-License-Identifier: Apache-2.0
// Bodies of requests and the check of their answers. Request N uses feature list N modulo the pool,
// so that every list meets both sides.
#include "reference_models/load/bodies.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BODIES_DENSE 13
#define BODIES_SCORES_MAX 64

struct bodies {
    struct bodies_opts opts;
    char **features; // "[0.5,…]"
    size_t *len;     // of each
    double **scores; // of the reference side; NULL: not known yet
    size_t *score_count;
    uint8_t *answered; // a bit for each id
    size_t answered_bytes;
};

// splitmix64
static uint64_t bodies_draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void bodies_draw_features(
        const struct bodies_opts *opts, uint64_t *state, bool is_long, struct strbuf *out)
{
    size_t half = (opts->least + opts->most + 1) / 2; // from here on a request counts as long
    size_t shorts = half > opts->least ? half - opts->least : 1;
    size_t count = is_long ? opts->most : opts->least + bodies_draw(state) % shorts;
    for (size_t i = 0; i < count; i++) {
        strbuf_add(out, "%c", i ? ',' : '[');
        if (opts->kind == BODIES_TRANSFORMER)
            strbuf_add(out, "%d", 32 + (int)(bodies_draw(state) % 95));
        else if (i < BODIES_DENSE)
            strbuf_add(out, "%.3f", (double)(bodies_draw(state) % 2001) / 1000 - 1);
        else
            strbuf_add(out, "%d", (int)(bodies_draw(state) % 100000));
    }
    strbuf_add(out, "]");
}

struct bodies *bodies_new(const struct bodies_opts *opts)
{
    struct bodies *bodies = xcalloc(1, sizeof *bodies);
    bodies->opts = *opts;
    bodies->features = xcalloc(opts->pool, sizeof *bodies->features);
    bodies->len = xcalloc(opts->pool, sizeof *bodies->len);
    bodies->scores = xcalloc(opts->pool, sizeof *bodies->scores);
    bodies->score_count = xcalloc(opts->pool, sizeof *bodies->score_count);
    uint64_t state = opts->seed;
    size_t longs = (size_t)((double)opts->pool * opts->long_share);
    for (size_t i = 0; i < opts->pool; i++) {
        struct strbuf text = {0};
        // Which ones is by chance: of two servers that get every other request one would have all
        // of every twentieth.
        bool is_long = bodies_draw(&state) % (opts->pool - i) < longs;
        longs -= is_long;
        bodies_draw_features(opts, &state, is_long, &text);
        bodies->len[i] = text.len;
        bodies->features[i] = strbuf_take(&text);
    }
    return bodies;
}

void bodies_free(struct bodies *bodies)
{
    if (!bodies)
        return;
    for (size_t i = 0; i < bodies->opts.pool; i++) {
        free(bodies->features[i]);
        free(bodies->scores[i]);
    }
    free(bodies->features);
    free(bodies->len);
    free(bodies->scores);
    free(bodies->score_count);
    free(bodies->answered);
    free(bodies);
}

void bodies_add(const struct bodies *bodies, uint64_t id, struct strbuf *out)
{
    size_t idx = id % bodies->opts.pool;
    strbuf_add(out, "{\"id\":%" PRIu64 ",\"features\":", id);
    strbuf_add_bytes(out, bodies->features[idx], bodies->len[idx]);
    strbuf_add_bytes(out, "}", 1);
}

size_t bodies_size(const struct bodies *bodies, uint64_t id)
{
    size_t digits = 1;
    for (uint64_t rest = id / 10; rest; rest /= 10)
        digits++;
    return strlen("{\"id\":,\"features\":}") + digits + bodies->len[id % bodies->opts.pool];
}

// Was it answered before? Marks it.
static bool bodies_mark(struct bodies *bodies, uint64_t id)
{
    size_t byte = id / 8;
    if (byte >= bodies->answered_bytes) {
        size_t more = 2 * byte + 4096;
        bodies->answered = xrealloc(bodies->answered, more);
        memset(bodies->answered + bodies->answered_bytes, 0, more - bodies->answered_bytes);
        bodies->answered_bytes = more;
    }
    uint8_t bit = (uint8_t)(1u << id % 8);
    bool before = bodies->answered[byte] & bit;
    bodies->answered[byte] |= bit;
    return before;
}

static bool bodies_was_answered(const struct bodies *bodies, uint64_t id)
{
    return id / 8 < bodies->answered_bytes && bodies->answered[id / 8] & 1u << id % 8;
}

static enum wrong bodies_compare(struct bodies *bodies, uint64_t id, const char *side,
        const double *scores, size_t count, bool *ret_compared)
{
    size_t idx = id % bodies->opts.pool;
    if (!bodies->opts.reference)
        return WRONG_NONE;
    if (!bodies->scores[idx]) {
        if (strcmp(side, bodies->opts.reference) != 0)
            return WRONG_NONE;
        bodies->scores[idx] = xcalloc(count, sizeof *scores);
        memcpy(bodies->scores[idx], scores, count * sizeof *scores);
        bodies->score_count[idx] = count;
        return WRONG_NONE;
    }
    *ret_compared = true;
    if (count != bodies->score_count[idx])
        return WRONG_SCORES;
    for (size_t i = 0; i < count; i++) {
        double want = bodies->scores[idx][i];
        if (!(fabs(scores[i] - want) <= bodies->opts.tolerance * fmax(fabs(want), 1e-3)))
            return WRONG_SCORES;
    }
    return WRONG_NONE;
}

static enum wrong bodies_check_scores(struct bodies *bodies, uint64_t id, const char *side,
        const json_t *list, bool *ret_compared)
{
    double scores[BODIES_SCORES_MAX];
    size_t count = json_array_size(list);
    if (count == 0 || count > BODIES_SCORES_MAX)
        return WRONG_MALFORMED;
    for (size_t i = 0; i < count; i++) {
        const json_t *score = json_array_get(list, i);
        if (!json_is_number(score))
            return json_is_null(score) ? WRONG_NOT_FINITE : WRONG_MALFORMED;
        scores[i] = json_number_value(score);
    }
    return bodies_compare(bodies, id, side, scores, count, ret_compared);
}

enum wrong bodies_check(struct bodies *bodies, uint64_t id, const char *side, const char *answer,
        size_t size, bool *ret_compared)
{
    json_error_t where;
    *ret_compared = false;
    json_t *root = json_loadb(answer ? answer : "", size, 0, &where);
    const json_t *name = json_object_get(root, "id");
    enum wrong wrong = WRONG_MALFORMED;
    if (json_is_integer(name)) {
        uint64_t got = (uint64_t)json_integer_value(name);
        if (got != id)
            wrong = bodies_was_answered(bodies, got) ? WRONG_DOUBLED : WRONG_SWAPPED;
        else if (bodies_mark(bodies, id))
            wrong = WRONG_DOUBLED;
        else
            wrong = bodies_check_scores(
                    bodies, id, side, json_object_get(root, "scores"), ret_compared);
    }
    json_decref(root);
    return wrong;
}
