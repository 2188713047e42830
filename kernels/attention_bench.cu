// SPDX-License-Identifier: Apache-2.0
// Checks and times attention_forward.cu and attention_backward.cu. The reference is below, in
// float64 from the inputs as the kernels get them; host() holds it to ops_attention of the native
// models, whose own tests hold that against finite differences. Expected on an H200:
// docs/KERNELS-GPU.md.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/attention_bench.cu
#include <atomic>
#include <mutex>
#include <thread>

#include <cuda_fp16.h>

#include "kernels/bench.h"

struct attention_shape {
    enum kernel_scores scores;
    enum kernel_type type;
    bool causal, bias;
    int dim, heads, key_heads, sequences, queries, keys; // the last two of the longest sequence
    bool varied;                                         // lengths from 0 to that
};

// Values on the host are floats: they hold what 16 bits do.
struct attention_case {
    struct attention_shape shape;
    struct kernel_attention attention;
    struct kernel_attention_gradient gradient;
    std::vector<int32_t> query_offsets, key_offsets;
    std::vector<float> q, k, v, dout, bias;
};

// What is compared: of each sequence (one picked at random, in a timed shape) the heads of each
// (one) head of keys; of these every stride-th row from `offset` on.
struct attention_sample {
    bool whole;
    int sequence, key_head, stride, offset;
};

template <typename F> static void in_parallel(size_t count, F work)
{
    std::atomic<size_t> next(0);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); i++)
        threads.emplace_back([&] {
            for (size_t item; (item = next++) < count;)
                work(item);
        });
    for (std::thread &thread : threads)
        thread.join();
}

#define LSE_LIMIT 1e-4 // it is not rounded to 16 bits

static double attention_limit(enum kernel_type type)
{
    // p, ds and the outputs are rounded to 8 or 11 bits
    return type == KERNEL_BFLOAT16 ? 0x1p-7 : 0x1p-10;
}

static void attention_name(
        const struct attention_shape *s, int variant, int together, char *text, size_t size)
{
    char keys[16] = "", suffix[32] = "";
    if (s->keys != s->queries)
        snprintf(keys, sizeof keys, ":%d", s->keys);
    if (variant)
        snprintf(suffix, sizeof suffix, " variant %d", variant);
    if (together)
        snprintf(suffix + strlen(suffix), sizeof suffix - strlen(suffix), " together %d", together);
    snprintf(text, size, "%s %s %dx%s%d%s, %d/%d heads of %d, %s%s%s",
            s->scores == KERNEL_SILU ? "silu" : "softmax", s->causal ? "causal" : "full",
            s->sequences, s->varied ? "0-" : "", s->queries, keys, s->heads, s->key_heads, s->dim,
            kernel_type_name(s->type), s->bias ? ", bias" : "", suffix);
}

// Random values of -scale to scale, rounded to type, on both sides.
static void *attention_draw(struct bench *bench, enum kernel_type type, size_t count, double scale,
        std::vector<float> *ret)
{
    const uint64_t seed = rng_next(&bench->rng);
    const size_t part = 1 << 16;
    std::vector<uint16_t> words(type == KERNEL_FLOAT32 ? 0 : count);
    ret->resize(count);
    in_parallel((count + part - 1) / part, [&](size_t number) {
        std::vector<double> values(std::min(part, count - number * part));
        for (size_t i = 0; i < values.size(); i++)
            values[i] = scale * ((double)(rng_mix(seed + number * part + i) >> 11) * 0x1p-52 - 1);
        bench_round(type, values.data(), values.size());
        for (size_t i = 0; i < values.size(); i++) {
            const float value = (float)values[i];
            (*ret)[number * part + i] = value;
            if (type == KERNEL_FLOAT16) {
                const __half half = __float2half(value);
                memcpy(&words[number * part + i], &half, 2);
            } else if (type == KERNEL_BFLOAT16) {
                uint32_t bits;
                memcpy(&bits, &value, 4);
                words[number * part + i] = (uint16_t)(bits >> 16);
            }
        }
    });
    return type == KERNEL_FLOAT32 ? bench_upload(bench, ret->data(), count * 4)
                                  : bench_upload(bench, words.data(), count * 2);
}

// Lengths 0, 1 and around the sizes of tiles come first where they vary.
static int attention_length(
        struct bench *bench, const struct attention_shape *s, int longest, int number)
{
    static const int edges[] = {0, 1, 63, 64, 65, 127, 128, 129, 191, 193, 256, 300};
    if (!s->varied || number == s->sequences - 1)
        return longest;
    if (longest <= 1024 && number < (int)(sizeof edges / sizeof edges[0]))
        return std::min(edges[number], longest);
    return (int)(rng_next(&bench->rng) % (uint64_t)(longest + 1));
}

static void attention_set(
        struct bench *bench, struct attention_case *t, const struct attention_shape *s)
{
    struct kernel_attention *a = &t->attention;
    const int span = std::max(std::max(s->queries, s->keys), 1);
    std::vector<int32_t> shuffled;
    struct error err;
    size_t scratch = 0;

    t->shape = *s;
    *a = {};
    a->type = s->type;
    a->scores = s->scores;
    a->causal = s->causal;
    a->dim = s->dim;
    a->heads = s->heads;
    a->key_heads = s->key_heads;
    a->sequences = s->sequences;
    a->longest_queries = s->queries;
    a->longest_keys = s->keys;
    a->scale = 1 / sqrtf((float)s->dim);
    a->weight = s->scores == KERNEL_SILU ? 1 / (float)span : 0;
    t->query_offsets.assign(1, 0);
    t->key_offsets.assign(1, 0);
    for (int i = 0; i < s->sequences; i++) {
        const int length = attention_length(bench, s, s->queries, i);
        const bool same = s->keys == s->queries && rng_next(&bench->rng) % 4 != 0;
        t->query_offsets.push_back(t->query_offsets.back() + length);
        t->key_offsets.push_back(t->key_offsets.back() +
                (same ? length : attention_length(bench, s, s->keys, (i * 5 + 3) % s->sequences)));
    }
    a->queries = t->query_offsets.back();
    a->keys = t->key_offsets.back();
    a->longest_queries = std::min(a->longest_queries, a->queries);
    a->longest_keys = std::min(a->longest_keys, a->keys);
    a->query_offsets = (const int32_t *)bench_upload(
            bench, t->query_offsets.data(), t->query_offsets.size() * 4);
    a->key_offsets =
            (const int32_t *)bench_upload(bench, t->key_offsets.data(), t->key_offsets.size() * 4);
    const size_t rows = (size_t)a->queries * (size_t)(s->heads * s->dim),
                 key_rows = (size_t)a->keys * (size_t)(s->key_heads * s->dim);
    a->q = attention_draw(bench, s->type, rows, 3, &t->q); // scores of some -9 to 9
    a->k = attention_draw(bench, s->type, key_rows, 3, &t->k);
    a->v = attention_draw(bench, s->type, key_rows, 1, &t->v);
    a->out = bench_memory(bench, rows * 2);
    a->lse = (float *)bench_memory(bench, (size_t)(a->queries * s->heads) * 4);
    if (s->bias) {
        a->span = span;
        a->bias = (const float *)attention_draw(
                bench, KERNEL_FLOAT32, (size_t)s->heads * (size_t)(2 * span - 1), 2, &t->bias);
    }
    t->gradient.dout = attention_draw(bench, s->type, rows, 1, &t->dout);
    t->gradient.dbias = s->bias
            ? (float *)bench_memory(bench, (size_t)s->heads * (size_t)(2 * span - 1) * 4)
            : NULL;
    t->gradient.dq = bench_memory(bench, rows * 2);
    t->gradient.dk = bench_memory(bench, key_rows * 2);
    t->gradient.dv = bench_memory(bench, key_rows * 2);
    bench_must(kernel_attention_scratch(a, &scratch, &err), &err);
    t->gradient.scratch = bench_memory(bench, scratch);
}

// So that a launch is not held right for what the one before it has left.
static void attention_poison(const struct attention_case *t)
{
    const size_t rows = t->q.size() * 2, key_rows = t->k.size() * 2;
    bench_poison(t->attention.out, rows);
    bench_poison(t->attention.lse, (size_t)(t->attention.queries * t->attention.heads) * 4);
    bench_poison(t->gradient.dq, rows);
    bench_poison(t->gradient.dk, key_rows);
    bench_poison(t->gradient.dv, key_rows);
}

// Pairs of query and key that see each other, of one head.
static double attention_pairs(const struct attention_case *t)
{
    double pairs = 0;
    for (int s = 0; s < t->shape.sequences; s++) {
        const int queries = t->query_offsets[s + 1] - t->query_offsets[s],
                  keys = t->key_offsets[s + 1] - t->key_offsets[s];
        for (int i = 0; i < queries; i++)
            pairs += t->shape.causal ? std::max(0, i + keys - queries + 1) : keys;
    }
    return pairs;
}

// The reference of one query and head: p of each key it sees, what v[j] counts in out; with
// `gradient` ds too, what scale * k[j] counts in dq.
struct attention_row {
    std::vector<double> p, ds;
    double lse;
    int seen;
};

static double dot(const float *a, const float *b, int count)
{
    double sums[4] = {};
    for (int i = 0; i < count; i += 4)
        for (int j = 0; j < 4; j++)
            sums[j] += (double)a[i + j] * (double)b[i + j];
    return sums[0] + sums[1] + (sums[2] + sums[3]);
}

static void attention_row(const struct attention_case *t, int sequence, int head, int query,
        bool gradient, struct attention_row *row)
{
    const struct attention_shape *s = &t->shape;
    const struct kernel_attention *a = &t->attention;
    const int queries = t->query_offsets[sequence + 1] - t->query_offsets[sequence];
    const int keys = t->key_offsets[sequence + 1] - t->key_offsets[sequence],
              shift = keys - queries;
    const int key_head = head / (s->heads / s->key_heads);
    const size_t at =
            ((size_t)(t->query_offsets[sequence] + query) * (size_t)s->heads + (size_t)head) *
            (size_t)s->dim;
    const size_t first =
            ((size_t)t->key_offsets[sequence] * (size_t)s->key_heads + (size_t)key_head) *
            (size_t)s->dim;
    const size_t stride = (size_t)s->key_heads * (size_t)s->dim;
    double high = -INFINITY, sum = 0, delta = 0;

    row->seen = std::max(0, s->causal ? std::min(keys, query + shift + 1) : keys);
    row->p.resize((size_t)row->seen);
    row->ds.assign((size_t)row->seen, 0);
    std::vector<double> slope((size_t)row->seen);
    for (int j = 0; j < row->seen; j++) {
        double x = (double)a->scale * dot(&t->q[at], &t->k[first + (size_t)j * stride], s->dim);
        if (s->bias)
            x += (double)t->bias[(size_t)head * (size_t)(2 * a->span - 1) +
                    (size_t)(a->span - 1 + query + shift - j)];
        if (s->scores == KERNEL_SILU) {
            const double sigmoid = 1 / (1 + exp(-x));
            row->p[j] = (double)a->weight * x * sigmoid;
            slope[j] = (double)a->weight * sigmoid * (1 + x * (1 - sigmoid));
        } else {
            row->p[j] = x;
            high = std::max(high, x);
        }
    }
    if (s->scores == KERNEL_SOFTMAX) {
        for (double &p : row->p)
            sum += p = exp(p - high);
        for (double &p : row->p)
            p /= sum;
    }
    row->lse = row->seen ? high + log(sum) : -INFINITY;
    if (!gradient)
        return;
    for (int j = 0; j < row->seen; j++) {
        row->ds[j] = dot(&t->dout[at], &t->v[first + (size_t)j * stride], s->dim);
        delta += row->ds[j] * row->p[j];
    }
    for (int j = 0; j < row->seen; j++)
        row->ds[j] =
                s->scores == KERNEL_SILU ? row->ds[j] * slope[j] : row->p[j] * (row->ds[j] - delta);
}

// One output in the sample: what it is, each row's place, and values.
struct attention_output {
    const char *name;
    bool keys;                // has rows of keys, not of queries
    std::vector<size_t> rows; // of out's or dk's tensor, in [rows][heads]
    std::vector<double> want;
    std::vector<double> bias; // of dq: the gradient of the bias, of all rows; empty when the sample
                              // is not whole
};
enum { OUT, LSE, DQ, DK, DV, OUTPUTS };
#define ATTENTION_OUTPUTS \
    { \
        {"out", false, {}, {}, {}}, {"lse", false, {}, {}, {}}, {"dq", false, {}, {}, {}}, \
                {"dk", true, {}, {}, {}}, \
        { \
            "dv", true, {}, {}, \
            { \
            } \
        } \
    }

static void add_scaled(double *to, double factor, const float *from, int count)
{
    for (int i = 0; i < count; i++)
        to[i] += factor * (double)from[i];
}

// The reference of one sequence and head of keys, appended to the outputs. Parts of 64 queries go
// to the threads; each has its own dk, dv.
static void attention_reference(const struct attention_case *t, int sequence, int key_head,
        const struct attention_sample *sample, bool gradient, struct attention_output *outputs)
{
    const struct attention_shape *s = &t->shape;
    const int queries = t->query_offsets[sequence + 1] - t->query_offsets[sequence],
              group = s->heads / s->key_heads;
    const int keys = t->key_offsets[sequence + 1] - t->key_offsets[sequence], dim = s->dim;
    const int sampled = (queries - sample->offset + sample->stride - 1) / sample->stride,
              parts = (queries + 63) / 64;
    const int keys_sampled =
            std::max(0, (keys - sample->offset + sample->stride - 1) / sample->stride);
    const size_t stride = (size_t)(s->key_heads * dim);
    const size_t before = outputs[LSE].want.size(),
                 rows = (size_t)std::max(0, sampled) * (size_t)group;
    const size_t key_rows_before = outputs[DK].rows.size(), width = (size_t)dim;
    const size_t first =
            ((size_t)t->key_offsets[sequence] * (size_t)s->key_heads + (size_t)key_head) * width;
    std::mutex lock;

    for (int i = 0; i < OUTPUTS; i++) {
        outputs[i].rows.resize(
                outputs[i].keys ? key_rows_before + (size_t)keys_sampled : before + rows);
        outputs[i].want.resize(outputs[i].rows.size() * (i == LSE ? 1 : width));
    }
    for (int j = 0; j < keys_sampled; j++)
        outputs[DK].rows[key_rows_before + (size_t)j] =
                outputs[DV].rows[key_rows_before + (size_t)j] =
                        (size_t)(t->key_offsets[sequence] + sample->offset + j * sample->stride) *
                        (size_t)s->key_heads +
                (size_t)key_head;
    const bool biased = s->bias && gradient && sample->whole;
    const size_t span = (size_t)(2 * t->attention.span - 1);
    outputs[DQ].bias.resize(biased ? span * (size_t)s->heads : 0);
    in_parallel((size_t)(parts * group), [&](size_t number) {
        const int head = key_head * group + (int)number % group, part = (int)number / group;
        std::vector<double> dbias(biased ? span : 0);
        std::vector<double> dk((size_t)keys_sampled * width), dv((size_t)keys_sampled * width);
        struct attention_row row;
        for (int query = part * 64; query < std::min(queries, part * 64 + 64); query++) {
            const bool wanted =
                    query >= sample->offset && (query - sample->offset) % sample->stride == 0;
            if (!wanted && !gradient)
                continue;
            const size_t tensor_row =
                    (size_t)(t->query_offsets[sequence] + query) * (size_t)s->heads + (size_t)head;
            attention_row(t, sequence, head, query, gradient, &row);
            for (int j = 0; biased && j < row.seen; j++)
                dbias[(size_t)(t->attention.span - 1 + query + keys - queries - j)] += row.ds[j];
            if (wanted) {
                const size_t at = before +
                        (size_t)((query - sample->offset) / sample->stride * group +
                                (int)number % group);
                outputs[OUT].rows[at] = outputs[DQ].rows[at] = tensor_row;
                outputs[LSE].rows[at] = (size_t)head * (size_t)t->attention.queries +
                        (size_t)(t->query_offsets[sequence] + query);
                outputs[LSE].want[at] = row.lse;
                for (int j = 0; j < row.seen; j++) {
                    add_scaled(&outputs[OUT].want[at * width], row.p[j],
                            &t->v[first + (size_t)j * stride], dim);
                    add_scaled(&outputs[DQ].want[at * width],
                            (double)t->attention.scale * row.ds[j],
                            &t->k[first + (size_t)j * stride], dim);
                }
            }
            for (int j = sample->offset, n = 0; gradient && j < row.seen;
                    j += sample->stride, n++) {
                add_scaled(&dk[(size_t)n * width], (double)t->attention.scale * row.ds[j],
                        &t->q[tensor_row * width], dim);
                add_scaled(&dv[(size_t)n * width], row.p[j], &t->dout[tensor_row * width], dim);
            }
        }
        std::lock_guard<std::mutex> guard(lock);
        for (size_t i = 0; i < dbias.size(); i++)
            outputs[DQ].bias[(size_t)head * span + i] += dbias[i];
        for (size_t i = 0; i < dk.size(); i++) {
            outputs[DK].want[key_rows_before * width + i] += dk[i];
            outputs[DV].want[key_rows_before * width + i] += dv[i];
        }
    });
}

// Where an output is wrong: how many rows and columns, and the first value. rows are [row][head],
// lse's [head][row].
static void attention_explain(const struct attention_case *t, const struct attention_output *output,
        const std::vector<double> &got, size_t width, double limit)
{
    double square = 0;
    std::vector<bool> columns(width);
    size_t wrong = 0, wrong_rows = 0, first = SIZE_MAX;
    for (double want : output->want)
        square += std::isfinite(want) ? want * want : 0;
    const double typical = sqrt(square / (double)std::max<size_t>(1, got.size()));
    for (size_t row = 0; row < output->rows.size(); row++) {
        bool any = false;
        for (size_t c = 0; c < width; c++) {
            const double want = output->want[row * width + c], value = got[row * width + c];
            if (value == want || fabs(value - want) <= 8 * limit * (fabs(want) + typical))
                continue;
            any = columns[c] = true;
            first = first == SIZE_MAX ? row * width + c : first;
            wrong++;
        }
        wrong_rows += any;
    }
    if (first == SIZE_MAX)
        return;
    const size_t heads = (size_t)(output->keys ? t->shape.key_heads : t->shape.heads),
                 place = output->rows[first / width];
    const std::vector<int32_t> &offsets = output->keys ? t->key_offsets : t->query_offsets;
    const size_t all = width == 1 ? place % (size_t)t->attention.queries : place / heads;
    const int sequence = (int)(std::upper_bound(offsets.begin(), offsets.end(), (int32_t)all) -
                                 offsets.begin()) -
            1;
    printf("{\"where\": \"%s\", \"values_wrong\": %zu, \"of\": %zu, \"rows_wrong\": %zu, \"columns_wrong\": %zu, \"first\": {\"sequence\": %d, "
           "\"queries\": %d, \"keys\": %d, \"row\": %zu, \"head\": %zu, \"column\": %zu, \"got\": \"%g\", \"want\": \"%g\"}}\n",
            output->name, wrong, got.size(), wrong_rows,
            (size_t)std::count(columns.begin(), columns.end(), true), sequence,
            t->query_offsets[sequence + 1] - t->query_offsets[sequence],
            t->key_offsets[sequence + 1] - t->key_offsets[sequence],
            all - (size_t)offsets[sequence],
            width == 1 ? place / (size_t)t->attention.queries : place % heads, first % width,
            got[first], output->want[first]);
}

static double attention_compare(const struct attention_case *t,
        const struct attention_output *output, enum kernel_type type, const void *device,
        size_t count, size_t width, double limit)
{
    const std::vector<double> all = bench_download(type, device, count);
    std::vector<double> got(output->rows.size() * width), want = output->want, values;
    for (size_t row = 0; row < output->rows.size(); row++)
        std::copy_n(&all[output->rows[row] * width], width, &got[row * width]);
    values = got;
    for (size_t i = 0; i < want.size(); i++) // -infinity: no keys
        if (want[i] == got[i])
            want[i] = values[i] = 0;
    const double error = bench_error(values.data(), want.data(), want.size(), limit);
    if (!(error <= limit))
        attention_explain(t, output, got, width, limit);
    return want.empty() ? INFINITY : error; // nothing was compared
}

static void launch_attention(void *arg, int, cudaStream_t stream)
{
    struct error err;
    bench_must(kernel_attention_forward(&((struct attention_case *)arg)->attention, stream, &err),
            &err);
}

static void launch_attention_backward(void *arg, int, cudaStream_t stream)
{
    struct error err;
    const struct attention_case *t = (const struct attention_case *)arg;
    bench_must(kernel_attention_backward(&t->attention, &t->gradient, stream, &err), &err);
}

// The reference of the sample, in outputs that are empty.
static void attention_references(const struct attention_case *t,
        const struct attention_sample *sample, bool gradient, struct attention_output *outputs)
{
    const struct attention_shape *s = &t->shape;
    for (int sequence = 0; sequence < s->sequences; sequence++)
        for (int key_head = 0; key_head < s->key_heads; key_head++)
            if (sample->whole || (sequence == sample->sequence && key_head == sample->key_head))
                attention_reference(t, sequence, key_head, sample, gradient, outputs);
}

// Compares what was launched before with the reference.
static void attention_errors(struct bench *bench, const struct attention_case *t,
        const struct attention_output *outputs, bool gradient, double *ret_forward,
        double *ret_backward)
{
    const struct attention_shape *s = &t->shape;
    const size_t width = (size_t)s->dim,
                 rows = (size_t)t->attention.queries * (size_t)s->heads * width;
    const size_t key_rows = (size_t)t->attention.keys * (size_t)s->key_heads * width;
    const double limit = attention_limit(s->type);

    BENCH_CHECK(cudaStreamSynchronize(bench->stream));
    *ret_forward =
            attention_compare(t, &outputs[OUT], s->type, t->attention.out, rows, width, limit);
    if (s->scores == KERNEL_SOFTMAX) // one limit is for both: in parts of its own
        *ret_forward = std::max(*ret_forward,
                limit / LSE_LIMIT *
                        attention_compare(t, &outputs[LSE], KERNEL_FLOAT32, t->attention.lse,
                                rows / width, 1, LSE_LIMIT));
    *ret_backward = 0;
    if (!gradient)
        return;
    *ret_backward =
            attention_compare(t, &outputs[DQ], s->type, t->gradient.dq, rows, width, 2 * limit);
    *ret_backward = std::max(*ret_backward,
            attention_compare(
                    t, &outputs[DK], s->type, t->gradient.dk, key_rows, width, 2 * limit));
    *ret_backward = std::max(*ret_backward,
            attention_compare(
                    t, &outputs[DV], s->type, t->gradient.dv, key_rows, width, 2 * limit));
    const std::vector<double> &dbias = outputs[DQ].bias;
    if (dbias.empty() || !t->gradient.dbias)
        return;
    const double error =
            bench_error(bench_download(KERNEL_FLOAT32, t->gradient.dbias, dbias.size()).data(),
                    dbias.data(), dbias.size(), 2 * limit);
    if (!(error <= 2 * limit))
        printf("attention: the gradient of the bias is off by %g\n", error);
    *ret_backward = std::max(*ret_backward, error);
}

// Launches forward and backward; which of them have this variant (backward: only where forward has
// it). Any other refusal is an error.
struct attention_launched {
    bool forward, backward;
};

static struct attention_launched attention_launch(
        const struct bench *bench, const struct attention_case *t)
{
    struct error err;
    int rc = kernel_attention_forward(&t->attention, bench->stream, &err);
    if (t->attention.variant && rc == -ERANGE)
        return {false, false};
    bench_must(rc, &err);
    rc = kernel_attention_backward(&t->attention, &t->gradient, bench->stream, &err);
    if (t->attention.variant && rc == -ERANGE)
        return {true, false};
    bench_must(rc, &err);
    return {true, true};
}

static void attention_case_check(
        struct bench *bench, const struct attention_shape *shape, int variant, int together)
{
    const struct attention_sample all = {true, 0, 0, 1, 0};
    struct attention_case t;
    char name[96];
    double forward, backward;

    attention_set(bench, &t, shape);
    t.attention.variant = variant;
    t.attention.together = together;
    attention_name(shape, variant, together, name, sizeof name);
    const struct attention_launched launched = attention_launch(bench, &t);
    if (launched.forward) {
        struct attention_output outputs[OUTPUTS] = ATTENTION_OUTPUTS;
        attention_references(&t, &all, launched.backward, outputs);
        attention_errors(bench, &t, outputs, launched.backward, &forward, &backward);
        bench_expect(bench, forward, attention_limit(shape->type), "attention_forward", name);
        if (launched.backward)
            bench_expect(
                    bench, backward, 2 * attention_limit(shape->type), "attention_backward", name);
    }
    bench_release(bench);
}

#define VARIANTS 6 // of a dim, the most there are

// One tile first, so that what is wrong there is told alone; then every edge.
static void attention_check(struct bench *bench)
{
    static const struct attention_shape shapes[] = {
            {KERNEL_SOFTMAX, KERNEL_BFLOAT16, false, false, 128, 1, 1, 1, 64, 64, false},
            {KERNEL_SOFTMAX, KERNEL_BFLOAT16, false, false, 128, 1, 1, 1, 128, 128, false},
            {KERNEL_SOFTMAX, KERNEL_BFLOAT16, false, false, 128, 1, 1, 1, 192, 640, false},
            {KERNEL_SOFTMAX, KERNEL_BFLOAT16, true, false, 128, 4, 2, 2, 512, 512, false},
            {KERNEL_SOFTMAX, KERNEL_BFLOAT16, true, false, 128, 3, 1, 14, 700, 700, true},
            {KERNEL_SOFTMAX, KERNEL_BFLOAT16, false, false, 128, 3, 1, 14, 700, 513, true},
    };
    static const struct attention_shape edges = {
            KERNEL_SOFTMAX, KERNEL_BFLOAT16, false, false, 128, 4, 2, 13, 330, 330, true};
    for (const struct attention_shape &shape : shapes)
        if (!bench->quick || shape.queries <= 512)
            attention_case_check(bench, &shape, 0, 0);
    for (int dim = 64; dim <= 256; dim *= 2)
        for (int flags = 0; flags < 16; flags++) {
            struct attention_shape shape = edges;
            shape.dim = dim;
            shape.causal = flags & 1;
            shape.type = flags & 2 ? KERNEL_FLOAT16 : KERNEL_BFLOAT16;
            shape.scores = flags & 4 ? KERNEL_SILU : KERNEL_SOFTMAX;
            shape.bias = flags & 8;
            if ((shape.bias || dim == 256) && shape.scores != KERNEL_SILU)
                continue;
            attention_case_check(bench, &shape, 0, 0);
        }
    for (int together : {1, 3, 7, 1000})
        for (int flags = 0; flags < 4 && !bench->quick; flags++) {
            struct attention_shape shape = edges;
            shape.dim = 128;
            shape.causal = flags & 1;
            shape.scores = flags & 2 ? KERNEL_SILU : KERNEL_SOFTMAX;
            attention_case_check(bench, &shape, 0, together);
        }
    // More pairs than the last that run together (133 of 128 columns, 67 of 256, on 132
    // multiprocessors): both orders of tiles in one launch.
    for (int together : {3, 7})
        for (int dim = 128; dim <= 256 && !bench->quick; dim *= 2) {
            const struct attention_shape shape = {
                    KERNEL_SILU, KERNEL_BFLOAT16, true, false, dim, 4, 4, 40, 330, 330, true};
            attention_case_check(bench, &shape, 0, together);
        }
    for (int variant = 1; variant <= VARIANTS && !bench->quick; variant++)
        for (int dim = 64; dim <= 256; dim *= 2)
            for (int flags = dim == 256 ? 2 : 0; flags < 4; flags++) {
                struct attention_shape shape = edges;
                shape.dim = dim;
                shape.causal = flags & 1;
                shape.scores = flags & 2 ? KERNEL_SILU : KERNEL_SOFTMAX;
                attention_case_check(bench, &shape, variant, 0);
            }
}

struct attention_timed {
    struct attention_shape shape;
    double forward, backward; // targets; 0: none
};

static void attention_time_shape(struct bench *bench, const struct attention_timed *each)
{
    const struct attention_shape *s = &each->shape;
    struct attention_case t;

    attention_set(bench, &t, s);
    const double operations = 4.0 * attention_pairs(&t) * s->heads * s->dim;
    struct attention_sample sample = {false, 0,
            (int)(rng_next(&bench->rng) % (uint64_t)s->key_heads), 61,
            (int)(rng_next(&bench->rng) % 61)};
    do // until it has rows in the sample
        sample.sequence = (int)(rng_next(&bench->rng) % (uint64_t)s->sequences);
    while (t.query_offsets[sample.sequence + 1] - t.query_offsets[sample.sequence] <
                    sample.stride ||
            t.key_offsets[sample.sequence + 1] - t.key_offsets[sample.sequence] < sample.stride);
    struct attention_output outputs[OUTPUTS] = ATTENTION_OUTPUTS;
    attention_references(&t, &sample, true, outputs);
    static const int togethers[] = {1, 2, 3, 4, 6, 8, 16, 1 << 20};
    const int forms =
            1 + (bench->tune ? VARIANTS + (int)(sizeof togethers / sizeof togethers[0]) : 0);
    for (int form = 0; form < forms; form++) {
        const int variant = form <= VARIANTS ? form : 0,
                  together = form <= VARIANTS ? 0 : togethers[form - VARIANTS - 1];
        struct bench_row forward = {
                "attention_forward", "", 0, attention_limit(s->type), 0, each->forward, operations};
        struct bench_row backward = {"attention_backward", "", 0, 2 * attention_limit(s->type), 0,
                each->backward, 2.5 * operations};
        t.attention.variant = variant;
        t.attention.together = together;
        attention_poison(&t);
        const struct attention_launched launched = attention_launch(bench, &t);
        if (!launched.forward)
            continue;
        attention_errors(bench, &t, outputs, launched.backward, &forward.error, &backward.error);
        attention_name(s, variant, together, forward.shape, sizeof forward.shape);
        attention_name(s, variant, together, backward.shape, sizeof backward.shape);
        bench_report(bench, &forward, bench_time_products(bench, launch_attention, &t, 1));
        if (launched.backward)
            bench_report(
                    bench, &backward, bench_time_products(bench, launch_attention_backward, &t, 1));
    }
    bench_release(bench);
}

static void attention_time(struct bench *bench)
{
    const size_t tuned = 5;
    static const struct attention_timed shapes[] = {
            {{KERNEL_SOFTMAX, KERNEL_BFLOAT16, true, false, 128, 64, 8, 1, 8192, 8192, false}, 0.75,
                    0.50},
            {{KERNEL_SOFTMAX, KERNEL_BFLOAT16, false, false, 128, 64, 8, 1, 8192, 8192, false}, 0,
                    0},
            {{KERNEL_SILU, KERNEL_BFLOAT16, true, false, 128, 4, 4, 32, 4096, 4096, false}, 0.67,
                    0.55},
            {{KERNEL_SILU, KERNEL_BFLOAT16, true, false, 256, 4, 4, 16, 4096, 4096, false}, 0.80,
                    0.45},
            {{KERNEL_SOFTMAX, KERNEL_BFLOAT16, true, false, 64, 32, 8, 2, 8192, 8192, false}, 0, 0},
            // of the rest tune takes none
            {{KERNEL_SILU, KERNEL_BFLOAT16, true, true, 128, 4, 4, 32, 4096, 4096, false}, 0, 0},
            {{KERNEL_SOFTMAX, KERNEL_FLOAT16, true, false, 128, 64, 8, 1, 8192, 8192, false}, 0, 0},
            {{KERNEL_SOFTMAX, KERNEL_BFLOAT16, true, false, 128, 32, 8, 16, 4096, 4096, true}, 0,
                    0},
            {{KERNEL_SILU, KERNEL_BFLOAT16, true, false, 64, 4, 4, 32, 4096, 4096, false}, 0, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (!bench->tune || i < tuned)
            attention_time_shape(bench, &shapes[i]);
}

// The reference against ops_attention: causal, one length, softmax.
static int attention_reference_host()
{
    const size_t context = 7, heads = 2, dim = 64;
    struct attention_case t;
    struct error err;
    struct rng rng = rng_stream(14, RNG_USE_INPUT, 0);
    std::vector<double> qkv(context * 3 * heads * dim), out(context * heads * dim),
            prob(heads * context * context);
    std::vector<double> scratch(2 * context * heads * dim), dout(out.size()), dprob(prob.size()),
            dqkv(qkv.size());
    struct attention reference = {
            1, context, heads, dim, qkv.data(), out.data(), prob.data(), scratch.data()};
    struct attention_output outputs[OUTPUTS] = ATTENTION_OUTPUTS;
    const struct attention_sample all = {true, 0, 0, 1, 0};
    std::vector<float> *const inputs[] = {&t.q, &t.k, &t.v};
    struct pool *pool = NULL;
    int failures = 0;

    bench_must(pool_new(1, &pool, &err), &err);
    t.shape = {KERNEL_SOFTMAX, KERNEL_BFLOAT16, true, false, (int)dim, (int)heads, (int)heads, 1,
            (int)context, (int)context, false};
    t.attention = {};
    t.attention.scale = 1 / sqrtf((float)dim);
    t.attention.queries = (int64_t)context;
    t.query_offsets = t.key_offsets = {0, (int32_t)context};
    for (auto *input : inputs)
        input->resize(context * heads * dim);
    for (size_t i = 0; i < context; i++)
        for (size_t part = 0; part < 3; part++)
            for (size_t j = 0; j < heads * dim; j++)
                qkv[(i * 3 + part) * heads * dim + j] = (*inputs[part])[i * heads * dim + j] =
                        (float)(2 * rng_signed(&rng));
    for (double &value : dout) {
        t.dout.push_back((float)rng_signed(&rng));
        value = (double)t.dout.back();
    }
    ops_attention(pool, &reference);
    ops_attention_backward(pool, &reference, dout.data(), dprob.data(), dqkv.data());
    for (size_t head = 0; head < heads; head++)
        attention_reference(&t, 0, (int)head, &all, true, outputs);
    for (int output : {(int)OUT, (int)DQ, (int)DK, (int)DV}) {
        double worst = 0;
        for (size_t row = 0; row < outputs[output].rows.size(); row++)
            for (size_t c = 0; c < dim; c++) {
                const size_t place = outputs[output].rows[row],
                             at = place / heads * 3 * heads * dim + place % heads * dim + c;
                const double want = output == OUT ? out[place * dim + c]
                                                  : dqkv[at + (size_t)(output - DQ) * heads * dim];
                worst = std::max(worst, fabs(outputs[output].want[row * dim + c] - want));
            }
        // the scale is a float here, a double there
        if (!(worst <= 1e-6) || outputs[output].rows.size() != context * heads) {
            printf("attention: the reference's %s is off by %g from ops_attention's, %zu rows\n",
                    outputs[output].name, worst, outputs[output].rows.size());
            failures++;
        }
    }
    pool_free(pool);
    return failures;
}

static int attention_host()
{
    alignas(16) static float memory[64];
    struct kernel_attention good = {}, bad;
    struct error err;
    int failures = attention_reference_host();

    good.type = KERNEL_BFLOAT16;
    good.scores = KERNEL_SOFTMAX;
    good.sequences = good.heads = good.key_heads = good.queries = good.keys = good.longest_queries =
            good.longest_keys = 1;
    good.dim = 64;
    good.scale = 1;
    good.query_offsets = good.key_offsets = (const int32_t *)memory;
    good.q = good.k = good.v = good.out = memory;
    good.lse = memory;
#define REFUSED(field, value, words) \
    bad = good; \
    bad.field = value; \
    failures += bench_refused(kernel_attention_forward(&bad, 0, &err), &err, words)
    REFUSED(type, KERNEL_FLOAT32, "type float32 is not supported");
    REFUSED(dim, 256, "heads of 256 columns");
    REFUSED(dim, 96, "heads of 96 columns");
    REFUSED(sequences, 0, "0 sequences");
    REFUSED(key_heads, 2, "1 heads over 2");
    REFUSED(heads, 65536, "65536 heads over 1 of keys: 1 to 65535");
    REFUSED(keys, -1, "-1 keys");
    REFUSED(longest_keys, 2, "the longest sequence has 1 queries and 2 keys");
    REFUSED(scale, 0, "scale 0");
    REFUSED(together, -1, "-1 pairs together");
    REFUSED(scale, NAN, "the scale must be above 0");
    REFUSED(bias, memory, "of SiLU only");
    REFUSED(key_offsets, NULL, "must not be NULL");
    REFUSED(q, memory + 1, "multiple of 16 bytes");
    REFUSED(lse, NULL, "lse must not be NULL");
#undef REFUSED
    bad = good;
    bad.sequences = 1 << 20;
    bad.queries = bad.longest_queries = 1 << 30;
    failures += bench_refused(
            kernel_attention_forward(&bad, 0, &err), &err, "tiles of queries: at most 1073741824");
    struct kernel_attention_gradient whole = {memory, memory, memory, memory, memory, NULL}, part;
#define REFUSED(of, field, value, words) \
    bad = good; \
    part = whole; \
    of.field = value; \
    failures += bench_refused(kernel_attention_backward(&bad, &part, 0, &err), &err, words)
    REFUSED(bad, dim, 96, "heads of 96 columns");
    REFUSED(bad, lse, NULL, "lse must not be NULL");
    REFUSED(part, dq, memory + 1, "multiple of 16 bytes");
    REFUSED(part, scratch, NULL, "multiple of 16 bytes");
    REFUSED(part, dbias, memory, "dbias without a bias");
    good.scores = KERNEL_SILU;
    REFUSED(bad, bias, (const float *)memory, "a bias of span 0");
#undef REFUSED
    return failures;
}

const struct suite suite_attention = {"attention", attention_host, attention_check, attention_time};
