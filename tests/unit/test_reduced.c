// SPDX-License-Identifier: Apache-2.0
// Reduced ranks: the same bytes by any tree, sizes of realistic and of hostile windows, files that
// are cut, changed or made up.
#include "reports/analyse/reduce/reduced.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/containers/vector.h"
#include "reports/analyse/random.h"
#include "tests/unit/runner.h"

enum { RANKS = 24, A_NODE = 4, WINDOWS = 3, COLLECTIVES = 30, GISTS = 30 };

// --- gists ---------------------------------------------------------------------------------------

static uint64_t length(struct random_state *random, double middle, double wide)
{
    return (uint64_t)(middle * exp(wide * random_normal(random)));
}

// Five steps of 200 ms of a transformer: 24 layers, forward and backward, kernels of few shapes
// that vary by 3 %.
static void put_realistic(struct gist *gist, struct random_state *random)
{
    static const struct {
        enum gist_spread what;
        double us[4]; // shapes
        int times;
    } kernels[] = {{GIST_KERNEL_MATRIX, {310, 620, 1240, 95}, 72},
            {GIST_KERNEL_ATTENTION, {540, 1100, 540, 1100}, 24},
            {GIST_KERNEL_POINTWISE, {12, 35, 70, 5}, 120},
            {GIST_KERNEL_REDUCTION, {28, 60, 28, 60}, 48},
            {GIST_KERNEL_COLLECTIVE, {900, 1800, 900, 1800}, 12}, {GIST_COPY, {4, 9, 4, 9}, 10}};
    static const char *const phases[] = {"data", "forward", "backward", "optimizer"};
    for (int step = 0; step < 5; step++) {
        gist_put(gist, GIST_STEP, length(random, 200e6, 0.01));
        for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
            for (int k = 0; k < kernels[i].times; k++)
                gist_put(gist, kernels[i].what, length(random, kernels[i].us[k % 4] * 1e3, 0.03));
        for (int i = 0; i < 12; i++)
            gist_put(gist, GIST_WAIT_RANKS, length(random, 2e6, 0.5));
        for (int i = 0; i < 4; i++)
            gist_put(gist, GIST_WAIT_OTHER, length(random, 1.5e6, 0.5));
        for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
            gist_put_phase(gist, phases[i], length(random, 40e6, 0.1));
    }
}

static void put_hostile(struct gist *gist, struct random_state *random)
{
    char name[40];
    gist_put(gist, (enum gist_spread)(random_next(random) % GIST_SPREAD_COUNT),
            random_next(random) >> (random_next(random) % 64));
    snprintf(name, sizeof name, "%.*s%d", (int)(random_next(random) % 20),
            "a phase whose name is long", (int)(random_next(random) % 9));
    gist_put_phase(gist, name, random_next(random));
}

static void check_same_gist(const struct gist *a, const struct gist *b)
{
    uint8_t bytes_a[GIST_BYTES_MAX] = {0}, bytes_b[GIST_BYTES_MAX] = {0};
    CHECK_INT(gist_encode(a, bytes_a), gist_encode(b, bytes_b));
    CHECK(memcmp(bytes_a, bytes_b, sizeof bytes_a) == 0);
}

TEST(gists_added_by_any_tree_are_the_same)
{
    static struct gist gists[GISTS], all;
    struct random_state random = {3};
    for (int round = 0; round < 60; round++) {
        size_t left = GISTS;
        memset(gists, 0, sizeof gists);
        all = (struct gist){0};
        for (size_t i = 0; i < GISTS; i++) {
            for (int k = 0; k < 20; k++)
                put_hostile(&gists[i], &random);
            gist_add(&all, &gists[i]);
        }
        while (left > 1) {
            size_t to = random_next(&random) % left, from = random_next(&random) % (left - 1);
            from += from >= to;
            gist_add(&gists[to], &gists[from]);
            gists[from] = gists[--left];
        }
        check_same_gist(&gists[0], &all);
    }
}

TEST(the_time_of_phases_is_kept_whatever_their_names)
{
    struct gist gist = {0};
    char name[8];
    for (int i = 19; i >= 0; i--) { // the first ones by name come last
        snprintf(name, sizeof name, "p%02d", i);
        for (int k = 0; k < 3; k++)
            gist_put_phase(&gist, name, (uint64_t)(100 + i));
    }
    CHECK_INT(gist.phase_count, GIST_PHASES_MAX);
    uint64_t rest = 0;
    for (int i = GIST_PHASES_MAX; i < 20; i++)
        rest += 3 * (uint64_t)(100 + i);
    for (int i = 0; i < GIST_PHASES_MAX; i++) {
        snprintf(name, sizeof name, "p%02d", i);
        CHECK_STR(gist.phases[i].name, name);
        CHECK_INT(gist.phases[i].count, 3);
        CHECK_INT(gist.phases[i].ns, 3 * (100 + i));
    }
    CHECK_INT(gist.others.count, 3 * (20 - GIST_PHASES_MAX));
    CHECK_INT(gist.others.ns, rest);
    struct gist named = {0};
    gist_put_phase(&named, "", 1);
    gist_put_phase(&named, "twelve bytes and more", 2);
    CHECK_STR(named.phases[0].name, "?");
    CHECK_STR(named.phases[1].name, "twelve bytes");
}

TEST(a_realistic_window_has_600_bytes_and_keeps_its_quantiles)
{
    struct random_state random = {5};
    uint8_t bytes[GIST_BYTES_MAX];
    static struct gist gist, back;
    gist = (struct gist){0};
    put_realistic(&gist, &random);
    size_t size = gist_encode(&gist, bytes);
    CHECK(size <= 600);
    CHECK(size > 100); // it holds something
    CHECK(gist_decode(bytes, size, &back));
    check_same_gist(&gist, &back);
    CHECK_DBL(spread_error(&gist.spreads[GIST_STEP]), 1.0 / 128, 0);
    for (size_t i = 0; i < GIST_SPREAD_COUNT; i++)
        if (gist.spreads[i].bin_count)
            CHECK(spread_error(&gist.spreads[i]) <= 0.25);
    CHECK_DBL(spread_quantile(&gist.spreads[GIST_STEP], 0.5), 200e6, 8e6);
}

TEST(no_window_has_more_than_1000_bytes)
{
    struct random_state random = {9};
    uint8_t bytes[GIST_BYTES_MAX];
    static struct gist sum, same;
    size_t most = 0;
    sum = (struct gist){0};
    for (int i = 0; i < 5000; i++)
        put_hostile(&sum, &random);
    for (int i = 0; i < 70; i++) { // all counts and sums grow until they are full
        size_t size = gist_encode(&sum, bytes);
        most = size > most ? size : most;
        same = sum;
        gist_add(&sum, &same);
    }
    CHECK(most <= 1000);
    CHECK(most > 600); // it was hostile
    CHECK(spread_count(&sum.spreads[GIST_STEP]) == UINT64_MAX);
}

TEST(kernels_are_told_by_their_names)
{
    CHECK_INT(gist_kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL"), GIST_KERNEL_COLLECTIVE);
    CHECK_INT(gist_kernel("void flash_fwd_kernel<cutlass::gemm>"), GIST_KERNEL_ATTENTION);
    CHECK_INT(gist_kernel("sm80_xmma_fprop_implicit_gemm_f16"), GIST_KERNEL_CONVOLUTION);
    CHECK_INT(gist_kernel("ampere_sgemm_128x64_tn"), GIST_KERNEL_MATRIX);
    CHECK_INT(gist_kernel("void at::native::reduce_kernel<512, 1>"), GIST_KERNEL_REDUCTION);
    CHECK_INT(gist_kernel("vectorized_elementwise_kernel"), GIST_KERNEL_POINTWISE);
    CHECK_INT(gist_kernel("mine"), GIST_KERNEL_OTHER);
    CHECK_STR(gist_name(GIST_COPY), "copy");
}

// --- ranks ---------------------------------------------------------------------------------------

static int64_t arrival(int rank, int number) // of a collective; at some two come at the same time
{
    struct random_state random = {(uint64_t)(rank * 1000 + number)};
    return 1000000000LL * (number + 1) + (int64_t)(random_next(&random) % 8) * 1000;
}

// As it is made of a shard.
static void rank_make(int rank, struct reduced *ret)
{
    struct random_state random = {(uint64_t)rank + 100};
    static struct gist gist;
    uint8_t bytes[GIST_BYTES_MAX];
    *ret = (struct reduced){.run = xstrdup("job"), .restart = 1, .ranks = RANKS, .window_steps = 5};
    char boot[16];
    // the order of nodes is not that of ranks
    snprintf(boot, sizeof boot, "boot-%d", 9 - rank / A_NODE);
    struct reduced_node node = {.boot = xstrdup(boot),
            .host = xasprintf("host-%d", rank % 2),
            .wall_minus_monotonic_ns = 5000 + rank,
            .error_ns = 100 + rank};
    vector_push(ret->nodes, ret->node_count, node);
    vector_push(ret->members, ret->member_count,
            ((struct reduced_rank){.rank = rank,
                    .flags = REDUCED_ENDED | REDUCED_NCCL,
                    .dropped = (uint64_t)rank}));
    if (rank % 3) { // the others have none
        struct reduced_rank *member = &ret->members[0];
        member->flags |= REDUCED_GPU;
        memset(member->gpu, 0xa0 + rank, sizeof member->gpu);
        snprintf(member->model, sizeof member->model, "%s", rank % 3 > 1 ? "H100 80GB HBM3" : "");
    }
    for (uint64_t window = 0; window < WINDOWS; window++) {
        gist = (struct gist){0};
        for (int k = 0; k < 30; k++)
            put_hostile(&gist, &random);
        size_t size = gist_encode(&gist, bytes);
        reduced_put_gist(ret, rank, window * 2, bytes, size);
    }
    for (int i = 0; i < COLLECTIVES; i++)
        vector_push(ret->meetings, ret->meeting_count,
                ((struct reduced_meeting){.communicator = i % 2 ? (uint64_t)7 : UINT64_MAX - 7,
                        .number = (uint64_t)i,
                        .count = 1,
                        .last = rank,
                        .last_ns = arrival(rank, i)}));
    reduced_sort_meetings(ret);
}

// random NULL: one rank after the other
static void job_make(struct reduced *ret, struct random_state *random)
{
    struct reduced ranks[RANKS];
    struct error err = {0};
    for (int i = 0; i < RANKS; i++)
        rank_make(i, &ranks[i]);
    for (size_t left = RANKS; left > 1; left--) {
        size_t to = random ? random_next(random) % left : 0,
               from = random ? random_next(random) % (left - 1) : RANKS - left;
        if (!random) { // in their order
            CHECK_INT(reduced_add(&ranks[0], &ranks[from + 1], &err), 0);
            reduced_free(&ranks[from + 1]);
            continue;
        }
        from += from >= to;
        CHECK_INT(reduced_add(&ranks[to], &ranks[from], &err), 0);
        reduced_free(&ranks[from]);
        ranks[from] = ranks[left - 1];
        ranks[left - 1] = (struct reduced){0};
    }
    *ret = ranks[0];
}

TEST(ranks_added_by_any_tree_are_the_same_file)
{
    struct error err = {0};
    struct random_state random = {21};
    struct reduced job;
    struct strbuf file = {0};
    job_make(&job, NULL);
    CHECK_INT(reduced_encode(&job, &file, &err), 0);
    CHECK_INT(job.node_count, RANKS / A_NODE);
    CHECK_INT(job.member_count, RANKS);
    CHECK_INT(job.gist_count, RANKS * WINDOWS);
    CHECK_INT(job.meeting_count, COLLECTIVES * RANKS / A_NODE);
    for (int round = 0; round < 30; round++) {
        struct reduced other;
        struct strbuf bytes = {0};
        job_make(&other, &random);
        CHECK_INT(reduced_encode(&other, &bytes, &err), 0);
        CHECK_INT(bytes.len, file.len);
        CHECK(bytes.len == file.len && memcmp(bytes.text, file.text, file.len) == 0);
        strbuf_free(&bytes);
        reduced_free(&other);
    }
    strbuf_free(&file);
    reduced_free(&job);
}

TEST(who_came_last_is_exact)
{
    struct reduced job;
    job_make(&job, NULL);
    for (size_t i = 0; i < job.meeting_count; i++) {
        const struct reduced_meeting *one = &job.meetings[i];
        int64_t last_ns = 0, sum_ns = 0;
        int last = -1;
        for (int rank = 0; rank < RANKS; rank++) {
            int64_t at = arrival(rank, (int)one->number);
            if (job.members[rank].node != one->node)
                continue;
            sum_ns += at;
            if (at >= last_ns) { // of two at once the higher one
                last_ns = at;
                last = rank;
            }
        }
        CHECK_INT(one->count, A_NODE);
        CHECK_INT(one->last, last);
        CHECK_INT(one->last_ns, last_ns);
        CHECK_INT(one->waits_ns, A_NODE * last_ns - sum_ns);
        CHECK(!one->repeats);
    }
    for (size_t i = 0; i < job.node_count; i++) { // of four ranks each
        CHECK_INT(job.nodes[i].wall_minus_monotonic_ns,
                5000 + (RANKS / A_NODE - 1 - (int)i) * A_NODE);
        // Of the last rank, as much as the clock was set until that one began.
        CHECK_INT(job.nodes[i].error_ns,
                100 + (RANKS / A_NODE - 1 - (int)i) * A_NODE + 2 * (A_NODE - 1));
        CHECK_STR(job.nodes[i].host, "host-0");
    }
    reduced_free(&job);
}

// Whichever is added to which: the clock of the node is not known better than that it was set, or
// not known at all.
TEST(a_clock_that_was_set_is_not_known_better)
{
    static const struct {
        int64_t walls[2], errors[2], wall, error;
    } cases[] = {{{5000, 5000}, {100, 300}, 5000, 300},
            {{5000, 900005000}, {100, 300}, 5000, 900000300},
            {{900005000, 5000}, {100, 300}, 5000, 900000100}, {{5000, 5001}, {100, -1}, 5000, -1},
            {{-REDUCED_NS_END + 1, REDUCED_NS_END - 1}, {0, 0}, -REDUCED_NS_END + 1, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int first = 0; first < 2; first++) {
            struct reduced ranks[2];
            struct error err = {0};
            for (int k = 0; k < 2; k++) {
                rank_make(k, &ranks[k]); // of one node
                ranks[k].nodes[0].wall_minus_monotonic_ns = cases[i].walls[k];
                ranks[k].nodes[0].error_ns = cases[i].errors[k];
            }
            CHECK_INT(reduced_add(&ranks[first], &ranks[!first], &err), 0);
            CHECK_INT(ranks[first].nodes[0].wall_minus_monotonic_ns, cases[i].wall);
            CHECK_INT(ranks[first].nodes[0].error_ns, cases[i].error);
            reduced_free(&ranks[0]);
            reduced_free(&ranks[1]);
        }
}

TEST(a_number_that_repeats_is_marked)
{
    struct reduced rank = {0};
    for (int i = 0; i < 3; i++)
        vector_push(rank.meetings, rank.meeting_count,
                ((struct reduced_meeting){.communicator = 7,
                        .number = (uint64_t)(i / 2),
                        .count = 1,
                        .last_ns = 100 - i}));
    reduced_sort_meetings(&rank);
    CHECK_INT(rank.meeting_count, 2);
    CHECK(rank.meetings[0].repeats && rank.meetings[0].count == 1);
    CHECK(!rank.meetings[1].repeats);
    reduced_free(&rank);
}

TEST(what_is_no_part_of_the_job_is_refused)
{
    struct reduced a, b;
    struct error err = {0};
    struct strbuf before = {0}, after = {0};
    rank_make(3, &a);
    rank_make(3, &b);
    CHECK_INT(reduced_encode(&a, &before, &err), 0);
    CHECK_INT(reduced_add(&a, &b, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "rank 3 of run 'job' is there twice");
    b.members[0].rank = b.gists[0].rank = b.gists[1].rank = b.gists[2].rank = 4;
    b.window_steps = 6;
    CHECK_INT(reduced_add(&a, &b, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "--window");
    b.window_steps = 5;
    b.restart = 2;
    CHECK_INT(reduced_add(&a, &b, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "cannot become one");
    CHECK_INT(reduced_encode(&a, &after, &err), 0);
    CHECK(before.len == after.len && memcmp(before.text, after.text, after.len) == 0);
    b.restart = 1;
    CHECK_INT(reduced_add(&a, &b, &err), 0);
    CHECK_INT(a.member_count, 2);
    CHECK_INT(reduced_add(&a, &(struct reduced){0}, &err), 0); // nothing
    CHECK_INT(a.member_count, 2);
    strbuf_free(&before);
    strbuf_free(&after);
    reduced_free(&a);
    reduced_free(&b);
}

// --- files ---------------------------------------------------------------------------------------

// Puts the checksum right.
static void seal(uint8_t *bytes, size_t size)
{
    uint64_t sum = reduced_checksum(bytes, size - 8);
    for (size_t i = 0; i < 8; i++)
        bytes[size - 8 + i] = (uint8_t)(sum >> (8 * i));
}

static int decode(const void *bytes, size_t size, struct reduced *ret, struct error *err)
{
    uint8_t *exact = xcalloc(size + 1, 1); // nothing behind it may be read
    memcpy(exact, bytes, size);
    *err = (struct error){0};
    exact = xrealloc(exact, size ? size : 1);
    int rc = reduced_decode(exact, size, "x.reduced", ret, err);
    free(exact);
    return rc;
}

TEST(a_file_comes_back_as_it_was)
{
    struct reduced job, back;
    struct strbuf file = {0}, again = {0};
    struct error err;
    job_make(&job, NULL);
    CHECK_INT(reduced_encode(&job, &file, &err), 0);
    CHECK_INT(decode(file.text, file.len, &back, &err), 0);
    CHECK_STR(back.run, "job");
    CHECK_INT(back.restart, 1);
    CHECK_INT(back.ranks, RANKS);
    CHECK_INT(back.members[5].dropped, 5);
    CHECK_INT(back.meeting_count, job.meeting_count);
    CHECK_INT(reduced_encode(&back, &again, &err), 0);
    CHECK(again.len == file.len && memcmp(again.text, file.text, file.len) == 0);
    strbuf_free(&file);
    strbuf_free(&again);
    reduced_free(&job);
    reduced_free(&back);
}

TEST(a_file_that_is_cut_or_changed_is_refused_in_words)
{
    struct reduced rank, back;
    struct strbuf file = {0};
    struct error err;
    rank_make(2, &rank);
    CHECK_INT(reduced_encode(&rank, &file, &err), 0);
    for (size_t cut = 0; cut < file.len; cut++) {
        int rc = decode(file.text, cut, &back, &err);
        CHECK_INT(rc, cut < 4 ? -EINVAL : -EBADMSG);
        CHECK_CONTAINS(err.text, "'x.reduced' is");
        CHECK(!back.run && !back.gists);
    }
    for (size_t at = 0; at < file.len; at++) {
        file.text[at] ^= 0x10;
        CHECK(decode(file.text, file.len, &back, &err) < 0);
        file.text[at] ^= 0x10;
    }
    file.text[4] = REDUCED_VERSION + 1;
    seal((uint8_t *)file.text, file.len);
    CHECK_INT(decode(file.text, file.len, &back, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "take a newer upgate");
    strbuf_free(&file);
    reduced_free(&rank);
}

// Whoever made it up gave it the right checksum: it is refused, or is a file like another.
static void check_sealed(uint8_t *bytes, size_t size, size_t *accepted)
{
    struct reduced back, sum = {0};
    struct strbuf again = {0};
    struct error err;
    seal(bytes, size);
    if (decode(bytes, size, &back, &err)) {
        CHECK(err.text[0]);
        return;
    }
    ++*accepted;
    CHECK_INT(reduced_encode(&back, &again, &err), 0);
    CHECK(again.len == size && memcmp(again.text, bytes, size) == 0);
    CHECK_INT(reduced_add(&sum, &back, &err), 0);
    reduced_free(&sum);
    reduced_free(&back);
    strbuf_free(&again);
}

TEST(a_file_that_somebody_made_up_does_no_harm)
{
    struct reduced job;
    struct strbuf file = {0};
    struct random_state random = {31};
    size_t accepted = 0;
    struct reduced a, b;
    struct error err = {0};
    rank_make(1, &a);
    rank_make(9, &b);
    job = a;
    CHECK_INT(reduced_add(&job, &b, &err), 0);
    reduced_free(&b);
    CHECK_INT(reduced_encode(&job, &file, &err), 0);
    uint8_t *bytes = xcalloc(file.len, 1);
    for (size_t at = 4; at < file.len - 8; at++) // each byte: another bit, all bits
        for (int how = 0; how < 2; how++) {
            memcpy(bytes, file.text, file.len);
            bytes[at] = (uint8_t)(how ? 0xffu : bytes[at] ^ (1u << (random_next(&random) % 8)));
            check_sealed(bytes, file.len, &accepted);
        }
    CHECK(accepted > 100);                             // the lengths of things are nobody's secret
    for (size_t at = 4; at + 24 < file.len; at += 3) { // huge numbers: 9 bytes that say 2^63
        memcpy(bytes, file.text, file.len);
        memset(bytes + at, 0x80, 8);
        bytes[at] = 0x81;
        bytes[at + 8] = 0x7f;
        check_sealed(bytes, file.len, &accepted);
    }
    for (size_t cut = 12; cut < file.len; cut += 7) { // cut, and sealed again
        memcpy(bytes, file.text, file.len);
        check_sealed(bytes, cut, &accepted);
    }
    free(bytes);
    strbuf_free(&file);
    reduced_free(&job);
}

// Bodies behind magic and version, piece by piece; each escape stands apart from letters that would
// be digits of it.
#define HEAD \
    "\x03" \
    "job" \
    "\x00\x02\x05"
#define NODES \
    "\x01" \
    "\x01" \
    "b" \
    "\x01" \
    "h" \
    "\x00\x01"
#define MEMBERS \
    "\x02" \
    "\x00\x00\x03\x00" \
    "\x00\x00\x03\x00"
#define MEMBER \
    "\x01" \
    "\x00\x00\x03\x00"
#define UUID "0123456789abcdef"
#define PHASES \
    "\x01\x01" \
    "p" \
    "\x01\x0a"
#define GIST "\x01\x00\x00\x01\x64\x05\xf4\x03" PHASES
#define GISTS \
    "\x01" \
    "\x00\x00\x0d" GIST
#define WORD "\x07\x00\x00\x00\x00\x00\x00\x00"
#define MEETINGS \
    "\x01" WORD "\x00\x00\x04\x01\xd0\x0f\x1e" \
    "\x00"
#define LAST_NUMBER "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
#define TWO_TO_62 "\x80\x80\x80\x80\x80\x80\x80\x80\x40"
#define BODY(bytes, words) \
    { \
        bytes, sizeof(bytes) - 1, words \
    }

TEST(what_cannot_be_is_refused_in_words)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *words; // "": it is a file
        // clang-format off
    } bodies[] = {
        BODY(HEAD NODES MEMBERS GISTS MEETINGS, ""),
        BODY("\x03" "job" "\x00\x81\x80\x40\x05" NODES MEMBERS GISTS MEETINGS, "how many ranks the job has is 1048577"),
        BODY("\x03" "job" "\x00\x00\x05" NODES MEMBERS GISTS MEETINGS, "no ranks"),
        BODY(HEAD "\x7f" NODES MEMBERS GISTS MEETINGS, "it counts 127 nodes"),
        BODY(HEAD "\x02" "\x01" "b" "\x01" "h" "\x00\x01" "\x01" "b" "\x01" "h" "\x00\x01" MEMBERS GISTS MEETINGS, "node 1 is there twice"),
        BODY(HEAD "\x01" "\x01" "b" "\x01" "h" TWO_TO_62 "\x01" MEMBERS GISTS MEETINGS, "the clock of node 0"),
        BODY(HEAD NODES "\x7f" "\x00\x00\x03\x00" GISTS MEETINGS, "it counts 127 ranks"),
        BODY(HEAD NODES "\x03" "\x00\x00\x03\x00" "\x00\x00\x03\x00" GISTS MEETINGS, "it counts 3 ranks of a job of 2"),
        BODY(HEAD NODES "\x01" "\x02\x00\x03\x00" GISTS MEETINGS, "a rank behind 0 is not below 2"),
        BODY(HEAD NODES "\x02" "\x01\x00\x03\x00" "\x00\x00\x03\x00" GISTS MEETINGS, "a rank behind 2 is not below 2"),
        BODY(HEAD NODES "\x01" "\x00\x01\x03\x00" GISTS MEETINGS, "the node of a rank is 1"),
        BODY(HEAD NODES "\x01" "\x00\x00\x20\x00" GISTS MEETINGS, "what is told of a rank is 32"),
        BODY(HEAD NODES "\x01" "\x00\x00\x10\x00" UUID "\x19" "a model that has 25 bytes" GISTS MEETINGS, "the name of a GPU has 25 bytes"),
        BODY(HEAD NODES "\x01" "\x00\x00\x10\x00" UUID "\x02" "a\x00" GISTS MEETINGS, "the name of a GPU has a zero in it"),
        BODY(HEAD NODES "\x01" "\x00\x00\x10\x00" UUID "\x00" GISTS "\x00", ""),
        BODY(HEAD NODES MEMBERS "\x7f" "\x00\x00\x0d" GIST MEETINGS, "it counts 127 windows"),
        BODY(HEAD NODES MEMBERS "\x01" "\x02\x00\x0d" GIST MEETINGS, "the rank of a window behind 0 is not below 2"),
        BODY(HEAD NODES MEMBER "\x01" "\x01\x00\x0d" GIST MEETINGS, "a window of rank 1, which is not among its ranks"),
        BODY(HEAD NODES MEMBERS "\x01" "\x00\x00\xd0\x0f" GIST MEETINGS, "the size of a window is 2000"),
        BODY(HEAD NODES MEMBERS "\x02" "\x00\x00\x0d" GIST "\x00" LAST_NUMBER "\x0d" GIST MEETINGS, "windows of rank 0 are out of order"),
        BODY(HEAD NODES MEMBERS "\x02" "\x00" LAST_NUMBER "\x0d" GIST "\x00\x00\x0d" GIST MEETINGS, "windows of rank 0 are out of order"),
        // Sketches: an index, a level, a count of bins, a count, sums below and beyond what their
        // bins can have.
        BODY(HEAD NODES MEMBERS "\x01" "\x00\x00\x0e" "\x01\x00\x00\x01\xc0\x1d\x05\xf4\x03" PHASES MEETINGS, "window 0 of rank 0"),
        BODY(HEAD NODES MEMBERS "\x01" "\x00\x07\x0d" "\x01\x00\x0d\x01\x64\x05\xf4\x03" PHASES MEETINGS, "window 7 of rank 0"),
        BODY(HEAD NODES MEMBERS "\x01" "\x01\x00\x0d" "\x01\x00\x00\x7f\x64\x05\xf4\x03" PHASES MEETINGS, "window 0 of rank 1"),
        BODY(HEAD NODES MEMBERS "\x01" "\x00\x00\x0d" "\x01\x00\x00\x01\x64\x00\xf4\x03" PHASES MEETINGS, "window 0 of rank 0"),
        BODY(HEAD NODES MEMBERS "\x01" "\x00\x00\x0d" "\x01\x00\x00\x01\x64\x05\xf3\x03" PHASES MEETINGS, "window 0 of rank 0"),
        BODY(HEAD NODES MEMBERS "\x01" "\x00\x00\x0d" "\x01\x00\x00\x01\x64\x05\xfa\x03" PHASES MEETINGS, "window 0 of rank 0"),
        BODY(HEAD NODES MEMBERS "\x01" "\x00\x00\x15" "\x01\x00\x00\x01\x64\x05" LAST_NUMBER PHASES MEETINGS, "window 0 of rank 0"),
        BODY(HEAD NODES MEMBERS GISTS "\x7f" WORD "\x00\x00\x04\x01\xd0\x0f\x1e" "\x00", "it counts 127 collectives"),
        BODY(HEAD NODES MEMBERS GISTS "\x01" WORD "\x00\x01\x04\x01\xd0\x0f\x1e" "\x00", "the node of a collective is 1"),
        BODY(HEAD NODES MEMBERS GISTS "\x01" WORD "\x00\x00\x04\x02\xd0\x0f\x1e" "\x00", "who came last to a collective is 2"),
        BODY(HEAD NODES MEMBER GISTS "\x01" WORD "\x00\x00\x02\x01\xd0\x0f" "\x00", "rank 1 came last to a collective on node 0, and is not there"),
        BODY(HEAD NODES MEMBERS GISTS "\x01" WORD "\x00\x00\x00\x01\xd0\x0f" "\x00", "0 ranks came to a collective on a node that has 2"),
        BODY(HEAD NODES MEMBERS GISTS "\x01" WORD "\x00\x00\x06\x01\xd0\x0f\x1e" "\x00", "3 ranks came to a collective on a node that has 2"),
        BODY(HEAD NODES MEMBERS GISTS "\x01" WORD "\x00\x00\x04\x01\xd0\x0f" TWO_TO_62 "\x00", "the sum of the waits in a collective"),
        BODY(HEAD NODES MEMBERS GISTS "\x01" WORD "\x00\x00\x04\x01" TWO_TO_62 "\x1e" "\x00", "none that a clock shows"),
        BODY(HEAD NODES MEMBERS GISTS "\x02" WORD "\x00\x00\x04\x01\xd0\x0f\x1e" "\x00\x00\x04\x01\x00\x1e" "\x00",
             "collective 0 is there twice on a node"),
        BODY(HEAD NODES MEMBERS GISTS "\x01" WORD "\x00\x00\x04\x01\xd0\x0f\x1e" "\x01" WORD "\x00\x00\x04\x01\xd0\x0f\x1e" "\x00",
             "a communicator is there twice"),
        BODY(HEAD NODES MEMBERS GISTS MEETINGS "\x00", "something follows its end"),
        BODY(HEAD NODES MEMBERS GISTS, "it ends too early")};
    // clang-format on
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct reduced back;
        struct error err;
        size_t size = 5 + bodies[i].size + 8;
        uint8_t *file = xcalloc(size, 1);
        memcpy(file, "UGRD", 4);
        file[4] = REDUCED_VERSION;
        memcpy(file + 5, bodies[i].bytes, bodies[i].size);
        seal(file, size);
        int rc = decode(file, size, &back, &err);
        CHECK_INT(rc, *bodies[i].words ? -EBADMSG : 0);
        if (*bodies[i].words) {
            CHECK_CONTAINS(err.text, "'x.reduced' is damaged before byte");
            CHECK_CONTAINS(err.text, bodies[i].words);
            CHECK(!back.run && !back.nodes && !back.gists && !back.meetings);
        }
        reduced_free(&back);
        free(file);
    }
}

// Of an upgate that knew of no GPUs.
TEST(a_file_of_version_1_is_read)
{
    static const char old[] = "UGRD\x01" HEAD NODES MEMBERS GISTS MEETINGS "checksum";
    static const char gpu[] = "UGRD\x01" HEAD NODES "\x01"
                              "\x00\x00\x10\x00" UUID "\x00" GISTS "\x00"
                              "checksum";
    uint8_t file[sizeof gpu + sizeof old];
    struct reduced back;
    struct error err;
    struct strbuf again = {0};
    memcpy(file, old, sizeof old - 1);
    seal(file, sizeof old - 1);
    CHECK_INT(decode(file, sizeof old - 1, &back, &err), 0);
    CHECK_INT(back.member_count, 2);
    CHECK_INT(reduced_encode(&back, &again, &err), 0);
    CHECK_INT(again.len, sizeof old - 1);
    CHECK_INT(again.text[4], REDUCED_VERSION); // as it is written now
    CHECK(memcmp(again.text + 5, old + 5, sizeof old - 1 - 5 - 8) == 0);
    strbuf_free(&again);
    reduced_free(&back);
    memcpy(file, gpu, sizeof gpu - 1);
    seal(file, sizeof gpu - 1);
    CHECK_INT(decode(file, sizeof gpu - 1, &back, &err), -EBADMSG);
    CHECK_CONTAINS(err.text, "what is told of a rank is 16");
}

TEST(waits_that_do_not_fit_are_refused_and_nothing_is_changed)
{
    struct reduced a, b;
    struct error err = {0};
    struct strbuf before = {0}, after = {0};
    rank_make(0, &a);
    rank_make(1, &b);
    a.meetings[0].waits_ns = REDUCED_WAITS_NS_END - 1;
    b.meetings[0].last_ns = a.meetings[0].last_ns + 10;
    CHECK_INT(reduced_encode(&a, &before, &err), 0);
    CHECK_INT(reduced_add(&a, &b, &err), -EBADMSG);
    CHECK_CONTAINS(err.text, "than a clock can show");
    CHECK_INT(reduced_encode(&a, &after, &err), 0);
    CHECK(before.len == after.len && memcmp(before.text, after.text, after.len) == 0);
    CHECK_INT(reduced_add(&b, &a, &err), -EBADMSG); // the other way round, too
    a.meetings[0].waits_ns -= 10;                   // it just fits
    CHECK_INT(reduced_add(&a, &b, &err), 0);
    CHECK(a.meetings[0].waits_ns == REDUCED_WAITS_NS_END - 1);
    strbuf_free(&before);
    strbuf_free(&after);
    reduced_free(&a);
    reduced_free(&b);
}

TEST(a_file_is_written_as_it_is_encoded)
{
    struct reduced job;
    struct strbuf bytes = {0};
    struct error err = {0};
    char *text = NULL;
    size_t size = 0, written = 0, counted = 0;
    job_make(&job, NULL);
    CHECK_INT(reduced_encode(&job, &bytes, &err), 0);
    FILE *file = open_memstream(&text, &size);
    CHECK(file != NULL);
    CHECK_INT(reduced_encode_file(&job, file, &written, &err), 0);
    CHECK_INT(fclose(file), 0);
    CHECK_INT(size, bytes.len);
    CHECK(size == bytes.len && memcmp(text, bytes.text, size) == 0);
    CHECK_INT(reduced_encode_file(&job, NULL, &counted, &err), 0);
    CHECK_INT(written, bytes.len);
    CHECK_INT(counted, bytes.len);
    free(text);
    strbuf_free(&bytes);
    reduced_free(&job);
}

TEST(a_file_that_could_not_be_read_again_is_not_made)
{
    // nothing is read of them
    struct reduced_gist gists[3] = {
            {.size = REDUCED_BYTES_MAX / 2}, {.size = REDUCED_BYTES_MAX / 2}, {.size = 1}};
    const struct reduced large = {
            .run = (char[]){"job"}, .ranks = 1, .window_steps = 5, .gists = gists, .gist_count = 3};
    struct strbuf file = {0};
    struct error err = {0};
    CHECK_INT(reduced_encode(&large, &file, &err), -E2BIG);
    CHECK_CONTAINS(err.text, "take a larger --window");
    CHECK_INT(file.len, 0);
    size_t counted = 7;
    CHECK_INT(reduced_encode_file(&large, NULL, &counted, &err), -E2BIG);
    CHECK_INT(counted, 7);
    strbuf_free(&file);
}

TEST(a_file_that_is_none_is_told)
{
    struct reduced back;
    struct error err = {0};
    CHECK_INT(reduced_read("/no/such/file", &back, &err), -EINVAL);
    CHECK_INT(reduced_read("/dev/null", &back, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "no regular file");
    CHECK_INT(reduced_read("/proc/self/exe", &back, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "no file of reduced ranks");
}
