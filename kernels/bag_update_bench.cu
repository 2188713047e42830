// SPDX-License-Identifier: Apache-2.0
// Checks and times bag_update.cu. The reference adds the gradients of a row in float64 and takes
// the optimizers' steps with ops_sgd and ops_adam of the native models; Adagrad, by rows and of
// each element, is written here: its two lines.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/bag_update_bench.cu
#include "kernels/bag_bench.h"

#include <unordered_map>

#define UPDATE_LIMIT 4e-6 // float32: a sum of up to some thousand gradients, a root, a quotient
#define UPDATE_SAMPLE 2000

struct update_case {
    struct bag_case *cases;
    struct kernel_update update;
    float *dout;
    std::vector<double> dout_host;
    void *scratch;
    size_t scratch_bytes;
};

// The rows that are compared, in float64, and where their lookups are.
struct update_rows {
    std::unordered_map<int64_t, size_t> index; // key -> place
    std::vector<int64_t> keys;
    std::vector<double> weight, m, v; // [place][dim]; row-wise Adagrad's state in m[place * dim],
                                      // that of each element in v
};

static const char *const optimizer_names[] = {"sgd", "adagrad", "adam", "adagrad_each"};

static void launch_update(void *arg, int set, cudaStream_t stream)
{
    struct error err;
    struct update_case *t = (struct update_case *)arg;
    bench_must(kernel_bag_update(&t->cases[set].bags, &t->update, t->dout, t->scratch,
                       t->scratch_bytes, stream, &err),
            &err);
}

static void update_set(struct bench *bench, struct update_case *t, struct bag_case *cases, int sets,
        enum kernel_optimizer optimizer)
{
    const struct bag_shape *shape = &cases[0].shape;
    const size_t rows = (size_t)(shape->tables * shape->rows), dim = (size_t)shape->dim;
    const size_t states[] = {0, rows, 2 * rows * dim, rows * dim}, state = states[optimizer];
    struct error err;

    t->cases = cases;
    // Adam divides by |gradient| + epsilon at first: with a small one a sum of thousands that
    // cancels to near 0 has no known sign.
    t->update = {optimizer, 0.05f, 1, 0.9f, 0.99f, 1, NULL};
    t->update.state = (float *)bench_memory(bench, state * sizeof(float));
    BENCH_CHECK(cudaMemset(t->update.state, 0, state * sizeof(float)));
    t->dout = (float *)bench_draw(bench, KERNEL_FLOAT32,
            (size_t)(shape->bags * shape->tables) * dim, 1, false, &t->dout_host);
    t->scratch_bytes = 0;
    for (int i = 0; i < sets; i++) {
        size_t bytes = 0;
        bench_must(kernel_bag_update_scratch(&cases[i].bags, &bytes, &err), &err);
        t->scratch_bytes = std::max(t->scratch_bytes, bytes);
    }
    t->scratch = bench_memory(bench, t->scratch_bytes);
}

static void rows_add(struct update_rows *rows, const struct bag_case *t, int64_t key)
{
    if (!rows->index.emplace(key, rows->keys.size()).second)
        return;
    rows->keys.push_back(key);
    for (int64_t d = 0; d < t->shape.dim; d++)
        rows->weight.push_back(bag_value(t, key / t->shape.rows, key % t->shape.rows, d));
    rows->m.resize(rows->weight.size());
    rows->v.resize(rows->weight.size());
}

// One step of the reference on the chosen rows.
static void rows_step(struct bench *bench, struct update_rows *rows, const struct update_case *t,
        const struct bag_case *bags)
{
    const size_t dim = (size_t)bags->shape.dim, tables = (size_t)bags->shape.tables;
    std::vector<double> grad(rows->weight.size());
    std::vector<bool> named(rows->keys.size());

    for (int64_t number = 0; number < bags->shape.tables * bags->shape.bags; number++) {
        const int64_t table = number / bags->shape.bags;
        const double *from =
                &t->dout_host[((size_t)(number % bags->shape.bags) * tables + (size_t)table) * dim];
        for (int64_t i = bags->offsets[(size_t)number]; i < bags->offsets[(size_t)number + 1];
                i++) {
            const auto found = rows->index.find(table * bags->shape.rows + bags->ids[(size_t)i]);
            if (found == rows->index.end())
                continue;
            const double scale = bag_scale(bags, number, i);
            named[found->second] = true;
            for (size_t d = 0; d < dim; d++)
                grad[found->second * dim + d] += scale * from[d];
        }
    }
    const struct adam adam = {t->update.rate, t->update.beta1, t->update.beta2, t->update.epsilon,
            (uint64_t)t->update.step};
    for (size_t r = 0; r < rows->keys.size(); r++) {
        double *weight = &rows->weight[r * dim], *m = &rows->m[r * dim], rate = t->update.rate,
               square = 0;
        if (!named[r])
            continue; // Adam moves m and v of named rows only
        if (t->update.optimizer == KERNEL_ADAM) {
            ops_adam(bench->pool, dim, &adam, &grad[r * dim], weight, m, &rows->v[r * dim]);
            continue;
        }
        for (size_t d = 0; d < dim && t->update.optimizer == KERNEL_ADAGRAD_EACH; d++) {
            const double one = grad[r * dim + d], all = rows->v[r * dim + d] += one * one;
            weight[d] -= rate * one / (sqrt(all) + (double)t->update.epsilon);
        }
        if (t->update.optimizer == KERNEL_ADAGRAD_EACH)
            continue;
        for (size_t d = 0; d < dim; d++)
            square += grad[r * dim + d] * grad[r * dim + d];
        if (t->update.optimizer == KERNEL_ADAGRAD) {
            *m += square / (double)dim;
            rate /= sqrt(*m) + (double)t->update.epsilon;
        }
        ops_sgd(bench->pool, dim, rate, &grad[r * dim], weight);
    }
}

// Reads the chosen rows (and Adagrad's state, Adam's m and v) back and compares.
static double rows_error(const struct update_rows *rows, const struct update_case *t)
{
    const struct bag_case *bags = &t->cases[0];
    const size_t dim = (size_t)bags->shape.dim, count = rows->keys.size(),
                 all = (size_t)(bags->shape.tables * bags->shape.rows);
    std::vector<double> weight, m, v, want_state;
    double worst;
    auto read = [&](const float *from, size_t values, std::vector<double> *to) {
        const std::vector<double> got = bench_download(KERNEL_FLOAT32, from, values);
        to->insert(to->end(), got.begin(), got.end());
    };
    for (size_t r = 0; r < count; r++) {
        const int64_t key = rows->keys[r], table = key / bags->shape.rows;
        read((const float *)bags->bags.rows[table] + (size_t)(key % bags->shape.rows) * dim, dim,
                &weight);
        if (t->update.optimizer == KERNEL_ADAGRAD) {
            read(t->update.state + key, 1, &m);
            want_state.push_back(rows->m[r * dim]);
        } else if (t->update.optimizer == KERNEL_ADAM) {
            read(t->update.state + (size_t)key * dim, dim, &m);
            read(t->update.state + (all + (size_t)key) * dim, dim, &v);
        } else if (t->update.optimizer == KERNEL_ADAGRAD_EACH) {
            read(t->update.state + (size_t)key * dim, dim, &v);
        }
    }
    worst = bench_error(weight.data(), rows->weight.data(), weight.size(), UPDATE_LIMIT);
    if (t->update.optimizer == KERNEL_ADAGRAD)
        worst = std::max(worst, bench_error(m.data(), want_state.data(), count, UPDATE_LIMIT));
    if (t->update.optimizer == KERNEL_ADAM)
        worst = std::max({worst, bench_error(m.data(), rows->m.data(), m.size(), UPDATE_LIMIT),
                bench_error(v.data(), rows->v.data(), v.size(), UPDATE_LIMIT)});
    if (t->update.optimizer == KERNEL_ADAGRAD_EACH)
        worst = std::max(worst, bench_error(v.data(), rows->v.data(), v.size(), UPDATE_LIMIT));
    return worst;
}

// Two steps; all rows when there are few, else a sample of those that are named, the most named
// among them.
static double update_error(struct bench *bench, struct update_case *t)
{
    const struct bag_case *bags = &t->cases[0];
    const int64_t all = bags->shape.tables * bags->shape.rows;
    struct update_rows rows;

    if (all <= 2 * UPDATE_SAMPLE) {
        for (int64_t key = 0; key < all; key++)
            rows_add(&rows, bags, key);
    } else {
        std::vector<int64_t> keys;
        for (int64_t table = 0; table < bags->shape.tables; table++)
            for (int64_t i = bags->offsets[(size_t)(table * bags->shape.bags)];
                    i < bags->offsets[(size_t)((table + 1) * bags->shape.bags)]; i++)
                keys.push_back(table * bags->shape.rows + bags->ids[(size_t)i]);
        for (int i = 0; i < UPDATE_SAMPLE; i++) // hot rows are drawn first of all
            rows_add(&rows, bags, keys[(size_t)rng_below(&bench->rng, keys.size())]);
    }
    for (t->update.step = 1; t->update.step <= 2; t->update.step++) {
        bench_poison(t->scratch, t->scratch_bytes);
        launch_update(t, 0, bench->stream);
        BENCH_CHECK(cudaStreamSynchronize(bench->stream));
        rows_step(bench, &rows, t, bags);
    }
    return rows_error(&rows, t);
}

static void update_name(
        const struct bag_shape *shape, enum kernel_optimizer optimizer, char *text, size_t size)
{
    bag_name(shape, optimizer_names[optimizer], text, size);
}

static void update_check(struct bench *bench)
{
    static const int64_t dims[] = {4, 12, 32, 36, 64, 100, 128, 192, 256, 512};
    // all lookups one row; rows of hundreds; rows of a few
    static const int64_t rows[] = {1, 37, 1009};
    for (int64_t dim : dims)
        for (int64_t row_count : rows)
            for (int pooling = KERNEL_SUM; pooling <= KERNEL_WEIGHTED; pooling++)
                for (int optimizer = KERNEL_SGD; optimizer <= KERNEL_ADAGRAD_EACH; optimizer++) {
                    const struct bag_shape shape = {row_count == 37 ? 1 : 3, row_count, dim,
                            bench->quick ? 29 : 701, bench->quick ? 8 : 11, KERNEL_FLOAT32,
                            (enum kernel_pooling)pooling, row_count == 1009, true};
                    struct bag_case bags;
                    struct update_case t;
                    char name[96];
                    if (bench->quick && dim != 12 && dim != 128 && dim != 512)
                        continue;
                    bag_set(bench, &bags, &shape, NULL);
                    update_set(bench, &t, &bags, 1, (enum kernel_optimizer)optimizer);
                    update_name(&shape, t.update.optimizer, name, sizeof name);
                    bench_expect(bench, update_error(bench, &t), UPDATE_LIMIT, "bag_update", name);
                    bench_release(bench);
                }
}

static void update_time(struct bench *bench)
{
    static const struct {
        enum kernel_optimizer optimizer;
        bool power;
        double target;
    } each[] = {{KERNEL_ADAGRAD, false, 0.55}, {KERNEL_SGD, false, 0.55},
            {KERNEL_ADAM, false, 0.55}, {KERNEL_ADAGRAD_EACH, false, 0.55},
            {KERNEL_ADAGRAD, true, 0}};
    for (const auto &kind : each) {
        const struct bag_shape shape = {
                1, 20000000, 128, 65536, 32, KERNEL_FLOAT32, KERNEL_SUM, kind.power, false};
        struct bag_case cases[2];
        struct update_case t;
        struct bench_row line = {"bag_update", "", 0, UPDATE_LIMIT, 0, kind.target};
        bag_set(bench, &cases[0], &shape, NULL);
        bag_set(bench, &cases[1], &shape, &cases[0]);
        update_set(bench, &t, cases, 2, kind.optimizer);
        line.error = update_error(bench, &t);
        const double row = 4.0 * (double)shape.dim,
                     unique = (bag_unique(&cases[0]) + bag_unique(&cases[1])) / 2;
        const double states[] = {0, 8, 4 * row, 2 * row}, state = states[kind.optimizer];
        line.bytes = unique * (2 * row + state) + row * (double)(shape.tables * shape.bags) +
                8 * (double)cases[0].ids.size() + 8 * (double)cases[0].offsets.size();
        update_name(&shape, kind.optimizer, line.shape, sizeof line.shape);
        bench_report(bench, &line, bench_time(bench, launch_update, &t, 2));
        bench_release(bench);
    }
}

static int update_host()
{
    alignas(256) static float memory[64];
    struct kernel_bags good = {}, bad;
    struct kernel_update update = {KERNEL_ADAGRAD, 0.1f, 1e-6f, 0.9f, 0.99f, 1, memory};
    struct error err;
    int failures = 0;
    auto run = [&](const struct kernel_bags *bags, const float *dout) {
        return kernel_bag_update(bags, &update, dout, memory, sizeof memory, 0, &err);
    };
    good.type = KERNEL_FLOAT32;
    good.tables = 1;
    good.bags = 1;
    good.dim = 4;
    good.ids_count = 1;
    good.rows[0] = memory;
    good.row_counts[0] = 4;
    good.ids = good.offsets = (const int64_t *)memory;
    bad = good;
    bad.type = KERNEL_BFLOAT16;
    bad.dim = 8;
    failures += bench_refused(run(&bad, memory), &err, "bfloat16 tables are not supported");
    bad = good;
    bad.tables = 3;
    for (int t = 0; t < 3; t++) {
        bad.rows[t] = memory;
        bad.row_counts[t] = INT32_MAX;
    }
    failures += bench_refused(run(&bad, memory), &err, "6442450941 rows in all tables");
    failures += bench_refused(run(&good, NULL), &err, "dout is NULL");
    update.state = NULL;
    failures += bench_refused(run(&good, memory), &err, "state is NULL");
    update.state = memory;
    update.epsilon = 0;
    failures += bench_refused(run(&good, memory), &err, "epsilon is 0");
    update = {KERNEL_ADAGRAD_EACH, 0.1f, 0, 0, 0, 0, memory};
    failures += bench_refused(run(&good, memory), &err, "epsilon is 0");
    update.epsilon = 1e-10f;
    update.state = NULL;
    failures += bench_refused(run(&good, memory), &err, "state is NULL");
    update = {KERNEL_ADAM, 0.1f, 1e-6f, 1.0f, 0.99f, 1, memory};
    failures += bench_refused(run(&good, memory), &err, "beta1 1");
    return failures;
}

const struct suite suite_bag_update = {"bag_update", update_host, update_check, update_time};
