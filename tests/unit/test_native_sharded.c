// SPDX-License-Identifier: Apache-2.0
// The recommender of several ranks: all-to-all brings each rank its own; wherever the tables are
// the losses and answers are the same, and repeats change no bit; a rank that dies ends all. That
// it is PyTorch's model is tests/e2e/torch_variants.py.
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reference_models/native/models/dlrm_sharded_data.h"
#include "reference_models/native/ops/alltoall.h"
#include "reference_models/native/ranks/share.h"
#include "reference_models/native/workload.h"
#include "runner.h"

enum {
    STEPS = 4,
    RANKS_MAX = 3,
    SEED = 3,
    SAMPLES = 32,
    ASKED = 4 * SAMPLES,
    KINDS = 3,
    ROUNDS = 300,
    PAGE = 4096
};

// --- all-to-all ----------------------------------------------------------------------------------

struct mail {
    struct ranks_barrier barrier;
    atomic_uint wrong, read;
};

struct mails {
    struct mail *shared;
    char *memory;
};

static void mails_meet(void *arg)
{
    const struct mails *mails = arg;
    ranks_barrier_wait(&mails->shared->barrier, RANKS_MAX);
}

static struct alltoall mails_alltoall(struct mails *mails, uint32_t rank)
{
    return (struct alltoall){.rank = rank,
            .ranks = RANKS_MAX,
            .part_bytes = {RANKS_MAX * 8, RANKS_MAX * 8},
            .memory = mails->memory,
            .meet = mails_meet,
            .arg = mails};
}

// Parts in turn, with one meeting each, as the model has them: nobody may see what is written for
// the next round.
static int mails_rank(uint32_t rank, void *arg)
{
    struct mails *mails = arg;
    struct alltoall alltoall = mails_alltoall(mails, rank);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        int part = (int)(round % 2);
        for (uint32_t to = 0; to < RANKS_MAX; to++)
            ((uint64_t *)alltoall_part(&alltoall, to, part))[rank] = round * 100 + rank * 10 + to;
        alltoall_meet(&alltoall);
        const uint64_t *got = alltoall_part(&alltoall, rank, part);
        for (uint32_t from = 0; from < RANKS_MAX; from++) {
            mails->shared->wrong += got[from] != round * 100 + from * 10 + rank;
            mails->shared->read++;
        }
    }
    return 0;
}

TEST(all_to_all_brings_each_rank_its_own)
{
    struct mails mails = {.shared = NULL};
    struct alltoall alltoall = mails_alltoall(&mails, 0);
    void *memory;
    int status = -1;
    CHECK_INT(ranks_share(PAGE + alltoall_bytes(&alltoall), &memory, NULL), 0);
    mails = (struct mails){.shared = memory, .memory = (char *)memory + PAGE};
    alarm(200);
    CHECK_INT(ranks_run(RANKS_MAX, mails_rank, &mails, &status, NULL), 0);
    CHECK_INT(status, 0);
    CHECK_INT(mails.shared->wrong, 0);
    CHECK_INT(mails.shared->read, ROUNDS * RANKS_MAX * RANKS_MAX);
    ranks_unshare(memory, PAGE + alltoall_bytes(&alltoall));
}

TEST(boxes_do_not_overlap)
{
    struct alltoall alltoall = {.ranks = 2, .part_bytes = {1, 65, 0}, .memory = NULL};
    CHECK_INT(alltoall_begin(&alltoall, 1), 64);
    CHECK_INT(alltoall_begin(&alltoall, 2), 192);
    CHECK_INT(alltoall_begin(&alltoall, ALLTOALL_PARTS), 192);
    CHECK_INT(alltoall_bytes(&alltoall), 384);
}

// --- the model -----------------------------------------------------------------------------------

struct results {
    double loss[RANKS_MAX][STEPS], answer[RANKS_MAX][ASKED]; // answers of the last step
    uint64_t bits[RANKS_MAX];                                // of the networks, at the end
    uint64_t pieces[RANKS_MAX][KINDS];                       // whole, by rows, by columns
};

struct shared {
    struct ranks_barrier barrier;
    struct results results;
};

struct running {
    struct model_opts opts;
    struct share_plan plan;
    struct alltoall alltoall;
    double extra;    // share of the work that is repeated
    int64_t dies_at; // the last rank, in this step; -1: nobody dies
    struct shared *shared;
    char *memory;
    size_t share_bytes; // boxes lie behind
};

static void running_meet(void *arg)
{
    const struct running *running = arg;
    ranks_barrier_wait(&running->shared->barrier, running->plan.ranks);
}

static void running_step(struct running *running, struct model *model, uint32_t rank, uint64_t step)
{
    const struct model_ops *ops = &dlrm_sharded_ops_f64;
    ops->load(model, step);
    ops->forward(model);
    if (!running->opts.train)
        return;
    running->shared->results.loss[rank][step] = ops->loss(model);
    ops->backward(model);
    ops->update(model);
}

static void running_tell(struct running *running, const struct model *model, uint32_t rank)
{
    const struct model_ops *ops = &dlrm_sharded_ops_f64;
    struct results *results = &running->shared->results;
    struct model_note notes[MODEL_NOTES_MAX];
    size_t count;
    const struct model_param *params = ops->params(model, &count);
    for (size_t i = 0; i < count; i++)
        results->bits[rank] = workload_checksum(
                results->bits[rank], params[i].value, params[i].count * sizeof(double));
    const double *logits = ops->logits(model, &count);
    memcpy(results->answer[rank], logits, count * sizeof *logits);
    ops->notes(model, notes);
    for (size_t kind = 0; kind < KINDS; kind++)
        results->pieces[rank][kind] = notes[kind].value;
}

static int running_rank(uint32_t rank, void *arg)
{
    struct running *running = arg;
    const struct model_ops *ops = &dlrm_sharded_ops_f64;
    struct share *share = running->opts.train
            ? share_new(&running->plan, rank, running->memory, &running->shared->barrier)
            : NULL;
    struct model_ranks ranks = {.rank = rank};
    struct alltoall alltoall = running->alltoall;
    struct model_opts opts = running->opts;
    struct model *model = NULL;
    if (share)
        ranks = *share_model(share);
    alltoall.rank = rank;
    alltoall.memory = running->memory + running->share_bytes;
    alltoall.meet = running_meet;
    alltoall.arg = running;
    ranks.alltoall = &alltoall;
    opts.ranks = &ranks;
    if (pool_new(1, &opts.pool, NULL) || ops->create(&opts, &model, NULL))
        return 1;
    pool_set_extra(opts.pool, running->extra);
    if (share)
        share_begin(share, opts.pool);
    for (int64_t step = 0; step < STEPS; step++) {
        if (step == running->dies_at && rank + 1 == running->plan.ranks)
            _exit(7);
        running_step(running, model, rank, (uint64_t)step);
    }
    running_tell(running, model, rank);
    ops->destroy(model);
    share_free(share);
    pool_free(opts.pool);
    return 0;
}

static struct running running_of(uint32_t ranks, uint64_t budget, bool train)
{
    struct running running = {.opts = {.seed = SEED,
                                      .size = MODEL_SIZE_SMALL,
                                      .train = train,
                                      .budget_bytes = budget},
            .plan = {.ops = &reduce_ops_f64, .ranks = ranks},
            .alltoall = {.ranks = ranks},
            .dies_at = -1};
    CHECK_INT(dlrm_sharded_ops_f64.boxes(&running.opts, &running.alltoall, NULL), 0);
    running.plan.units = dlrm_sharded_ops_f64.units(&running.opts, running.plan.first);
    running.share_bytes = train ? share_bytes(&running.plan) : 0;
    return running;
}

// The wait status of the first rank that failed.
static int run(struct running running, struct results *ret)
{
    size_t head = (sizeof(struct shared) + PAGE - 1) / PAGE * PAGE,
           bytes = head + running.share_bytes + alltoall_bytes(&running.alltoall);
    void *memory;
    int status = -1;
    alarm(200); // a parent or a rank that waits for ever fails here
    CHECK_INT(ranks_share(bytes, &memory, NULL), 0);
    running.shared = memory;
    running.memory = (char *)memory + head;
    CHECK_INT(ranks_run(running.plan.ranks, running_rank, &running, &status, NULL), 0);
    *ret = running.shared->results;
    ranks_unshare(memory, bytes);
    return status;
}

struct placed {
    uint32_t ranks;
    uint64_t budget, pieces[KINDS];
};

static void check_placed(const struct placed *placed, const struct results *whole, bool train)
{
    struct results got;
    CHECK_INT(run(running_of(placed->ranks, placed->budget, train), &got), 0);
    for (uint32_t rank = 0; rank < placed->ranks; rank++) {
        for (size_t kind = 0; kind < KINDS; kind++)
            CHECK_INT(got.pieces[rank][kind], placed->pieces[kind]);
        for (size_t step = 0; train && step < STEPS; step++)
            CHECK_DBL(got.loss[rank][step], whole->loss[rank][step], 1e-11);
        for (size_t i = 0; i < (train ? SAMPLES : ASKED); i++)
            CHECK_DBL(got.answer[rank][i], whole->answer[rank][i], 1e-10);
        CHECK(!train || got.bits[rank] == got.bits[0]);
    }
}

TEST(it_is_the_same_wherever_the_tables_are)
{
    static const struct placed placed[] = {{2, 36800, {2, 2, 0}}, {2, 31000, {1, 2, 2}},
            {3, 36800, {2, 3, 0}}, {3, 22000, {1, 3, 2}}};
    for (int train = 0; train < 2; train++) {
        struct results one, whole[RANKS_MAX + 1];
        CHECK_INT(run(running_of(1, 0, train), &one), 0);
        for (uint32_t ranks = 2; ranks <= RANKS_MAX; ranks++) {
            CHECK_INT(run(running_of(ranks, 80000, train), &whole[ranks]), 0);
            CHECK_INT(whole[ranks].pieces[0][0], 3);
            // rank 0 reads the same, however many there are,
            CHECK_DBL(whole[ranks].loss[0][0], one.loss[0][0], 0);
            for (uint32_t rank = 1; rank < ranks; rank++)
                // and the others something else
                CHECK(whole[ranks].answer[rank][0] != whole[ranks].answer[0][0]);
            if (train)
                // it learns of theirs
                CHECK(whole[ranks].loss[0][0] > 0 &&
                        whole[ranks].loss[0][STEPS - 1] != one.loss[0][STEPS - 1]);
            else
                CHECK(memcmp(whole[ranks].answer[0], one.answer[0], sizeof one.answer[0]) == 0);
        }
        for (size_t i = 0; i < sizeof placed / sizeof *placed; i++)
            check_placed(&placed[i], &whole[placed[i].ranks], train);
    }
}

TEST(repeats_change_no_bit)
{
    struct running plain = running_of(2, 31000, true), slow = plain;
    struct results got[2];
    slow.extra = 0.5;
    CHECK_INT(run(plain, &got[0]), 0);
    CHECK_INT(run(slow, &got[1]), 0);
    CHECK(memcmp(&got[0], &got[1], sizeof got[0]) == 0);
}

TEST(a_dead_rank_ends_the_training)
{
    struct running running = running_of(3, 22000, true);
    struct results results;
    running.dies_at = 2;
    int status = run(running, &results);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    CHECK_INT(waitpid(-1, NULL, WNOHANG), -1); // nobody left behind
    CHECK(results.loss[0][0] > 0 && results.loss[2][2] == 0);
}

TEST(what_cannot_be_is_refused)
{
    const struct model_ops *ops = &dlrm_sharded_ops_f32;
    struct model_opts opts = {.size = MODEL_SIZE_SMALL, .train = true, .budget_bytes = 1000};
    struct alltoall alltoall = {.ranks = 2};
    struct model *model = NULL;
    struct error err = {0};
    CHECK_INT(ops->boxes(&opts, &alltoall, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "--budget: the tables take 58880 bytes");
    CHECK(ops->boxes(&opts, &alltoall, NULL) != 0);
    CHECK_INT(alltoall.part_bytes[0], 0); // untouched
    CHECK_INT(ops->create(&opts, &model, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "needs the boxes of its ranks");
    CHECK(model == NULL);
}

// --- its inputs ----------------------------------------------------------------------------------

TEST(the_pool_comes_again)
{
    const struct dlrm_sharded_shape *shape = &dlrm_sharded_shapes[MODEL_SIZE_SMALL];
    struct dlrm_sharded_stream stream;
    struct arena arena = {0};
    struct dlrm_sharded_batch batch[2];
    CHECK_INT(dlrm_sharded_stream_init(&stream, shape, SEED, true, 1, NULL), 0);
    CHECK_INT(stream.pool, shape->pool);
    for (int i = 0; i < 2; i++)
        batch[i] = dlrm_sharded_batch_new(&arena, shape, stream.samples);
    dlrm_sharded_draw(&stream, 2, &batch[0]);
    for (uint64_t step = 0; step <= shape->pool + 2; step++) {
        dlrm_sharded_draw(&stream, step, &batch[1]);
        bool same =
                memcmp(batch[0].dense, batch[1].dense, SAMPLES * DLRM_DENSE * sizeof(double)) == 0;
        CHECK(same == (step % shape->pool == 2));
        for (size_t t = 0; t < shape->tables; t++) {
            const uint32_t *offset = batch[1].offset[t];
            CHECK(offset[SAMPLES] <= dlrm_sharded_lookups_max(shape, t, SAMPLES));
            for (size_t b = 0; b < SAMPLES; b++)
                CHECK(offset[b + 1] > offset[b] &&
                        offset[b + 1] - offset[b] < 2 * shape->table[t].bag);
            for (uint32_t i = 0; i < offset[SAMPLES]; i++)
                CHECK(batch[1].ids[t][i] < shape->table[t].rows);
        }
        for (size_t b = 0; b < SAMPLES; b++)
            CHECK(batch[1].label[b] == 0 || batch[1].label[b] == 1);
    }
    dlrm_sharded_stream_free(&stream);
    arena_free(&arena);
}
