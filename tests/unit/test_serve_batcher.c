// SPDX-License-Identifier: Apache-2.0
// The batcher between one HTTP thread and several workers, planted faults, and the JSON of
// requests.
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/strings.h"
#include "reference_models/serve/batcher.h"
#include "reference_models/serve/plants.h"
#include "tests/unit/runner.h"

#define MS INT64_C(1000000)

static struct batcher *batcher_of(size_t batch_max, int64_t wait_ns, size_t queue_max)
{
    return batcher_new(&(struct batcher_opts){batch_max, wait_ns, queue_max});
}

TEST(a_full_batch_does_not_wait)
{
    struct batcher *batcher = batcher_of(4, 3600 * 1000 * MS, 100);
    struct score_request requests[9] = {0}, *batch[4];
    for (int i = 0; i < 9; i++)
        CHECK_INT(batcher_push(batcher, &requests[i]), 0);
    for (int round = 0; round < 2; round++) {
        CHECK_INT(batcher_take(batcher, batch), 4);
        for (int i = 0; i < 4; i++)
            CHECK(batch[i] == &requests[round * 4 + i]); // in the order of arrival
    }
    CHECK_INT(batcher_oldest_ns(batcher), requests[8].arrived_ns);
    batcher_close(batcher); // what waits is handed out, however few
    CHECK_INT(batcher_take(batcher, batch), 1);
    CHECK_INT(batcher_take(batcher, batch), 0);
    CHECK_INT(batcher_push(batcher, &requests[0]), -ESHUTDOWN);
    CHECK_INT(batcher_oldest_ns(batcher), 0);
    batcher_free(batcher);
}

TEST(a_batch_that_is_not_full_waits_as_long_as_said)
{
    struct batcher *batcher = batcher_of(4, 30 * MS, 100);
    struct score_request request = {0}, *batch[4];
    int64_t begin = clock_monotonic_ns();
    CHECK_INT(batcher_push(batcher, &request), 0);
    CHECK_INT(batcher_take(batcher, batch), 1);
    CHECK(clock_monotonic_ns() - begin >= 30 * MS);
    batcher_free(batcher);
}

TEST(what_does_not_fit_is_refused)
{
    struct batcher *batcher = batcher_of(4, 0, 2);
    struct score_request requests[3] = {0}, *batch[4];
    CHECK_INT(batcher_push(batcher, &requests[0]), 0);
    CHECK_INT(batcher_push(batcher, &requests[1]), 0);
    CHECK_INT(batcher_push(batcher, &requests[2]), -EAGAIN);
    CHECK_INT(batcher_take(batcher, batch), 2);
    CHECK_INT(batcher_push(batcher, &requests[2]), 0);
    batcher_free(batcher);
}

enum { STORM = 200000, TAKERS = 3, BATCH = 16 };
static _Atomic int storm_taken, storm_batches, storm_largest;
static _Atomic unsigned char storm_seen[STORM];

static void *storm_take(void *arg)
{
    struct score_request *batch[BATCH];
    size_t count;
    while ((count = batcher_take(arg, batch)) > 0) {
        for (size_t i = 0; i < count; i++)
            storm_seen[batch[i]->number]++;
        storm_taken += (int)count;
        storm_batches++;
        if ((int)count > storm_largest)
            storm_largest = (int)count;
    }
    return NULL;
}

TEST(no_request_is_lost_or_taken_twice)
{
    struct batcher *batcher = batcher_of(BATCH, MS / 10, STORM);
    struct score_request *requests = calloc(STORM, sizeof *requests);
    pthread_t takers[TAKERS];
    for (int i = 0; i < TAKERS; i++)
        CHECK_INT(pthread_create(&takers[i], NULL, storm_take, batcher), 0);
    for (int i = 0; i < STORM; i++) {
        requests[i].number = (uint64_t)i;
        CHECK_INT(batcher_push(batcher, &requests[i]), 0);
    }
    batcher_close(batcher);
    for (int i = 0; i < TAKERS; i++)
        pthread_join(takers[i], NULL);
    CHECK_INT(storm_taken, STORM);
    int once = 0;
    for (int i = 0; i < STORM; i++)
        once += storm_seen[i] == 1;
    CHECK_INT(once, STORM);
    CHECK(storm_largest > 1 && storm_largest <= BATCH);
    batcher_free(batcher);
    free(requests);
}

// --- plants ---

static int hits(const char *text, int requests, int *ret_errors, int *ret_cut)
{
    struct plants *plants = NULL;
    struct error err = {0};
    CHECK_INT(plants_new(text, &plants, &err), 0);
    int nan_count = 0;
    *ret_errors = *ret_cut = 0;
    for (int i = 0; i < requests; i++) {
        struct score_request request = {.score = 0.5};
        *ret_errors += !plants_arrived(plants, &request);
        plants_scored(plants, &request, 100);
        nan_count += !isfinite(request.score);
        *ret_cut += plants_cuts(plants, &request);
        CHECK_INT(request.due_ns, 0);
    }
    plants_free(plants);
    return nan_count;
}

TEST(a_plant_hits_its_share_and_nothing_else)
{
    int errors, cut;
    CHECK_INT(hits("errors:0.5%,nan:10%", 10000, &errors, &cut), 1000);
    CHECK_INT(errors, 50);
    CHECK_INT(cut, 0);
    CHECK_INT(hits(NULL, 1000, &errors, &cut), 0);
    CHECK_INT(errors + cut, 0);
    CHECK_INT(hits("stream-cut", 100, &errors, &cut), 0);
    CHECK_INT(cut, 100);
}

TEST(unknown_plants_are_refused)
{
    static const char *const bad[] = {
            "eror:1%", "errors", "errors:x", "hold:5", "crash-after:-1", "leak:1parsec"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct plants *plants = NULL;
        struct error err = {0};
        CHECK(plants_new(bad[i], &plants, &err) < 0);
        CHECK_CONTAINS(err.text, "PLANT_SERVE");
        CHECK(!plants);
    }
}

static pthread_mutex_t finished_lock = PTHREAD_MUTEX_INITIALIZER;
static struct score_request *finished[3];
static int64_t finished_ns[3];
static int finished_count;

static void on_done(struct score_request *request)
{
    pthread_mutex_lock(&finished_lock);
    finished_ns[finished_count] = clock_monotonic_ns();
    finished[finished_count++] = request;
    pthread_mutex_unlock(&finished_lock);
}

static int done_count(void)
{
    pthread_mutex_lock(&finished_lock);
    int count = finished_count;
    pthread_mutex_unlock(&finished_lock);
    return count;
}

// Answers that are held back come in the order in which they are due, none before its time.
TEST(slow_answers_are_held_back)
{
    struct plants *plants = NULL;
    CHECK_INT(plants_new("slow:100%,hold-long:100ms", &plants, NULL), 0);
    struct score_request requests[3] = {0};
    static const size_t counts[3] = {100, 10, 10};
    static const int64_t ages[3] = {40 * MS, 20 * MS, 0}, held[3] = {100 * MS, 0, 0}; // long
    for (int i = 0; i < 3; i++) {
        int64_t before = clock_monotonic_ns();
        CHECK(plants_arrived(plants, &requests[i]));
        requests[i].arrived_ns = before - ages[i];
        requests[i].count = counts[i];
        requests[i].done = on_done;
        plants_scored(plants, &requests[i], 50);
        // that it took until now
        int64_t after = clock_monotonic_ns(), least = ages[i],
                most = after - requests[i].arrived_ns;
        int64_t until = requests[i].arrived_ns + held[i];
        CHECK(requests[i].due_ns >= (before + least > until ? before + least : until) &&
                requests[i].due_ns <= (after + most > until ? after + most : until));
    }
    int64_t due = clock_monotonic_ns() + 1500 * MS; // none is due before all are there
    for (int i = 0; i < 3; i++)
        requests[i].due_ns = due + (int64_t)(2 - i) * 20 * MS;
    for (int i = 0; i < 3; i++)
        plants_finish(plants, &requests[i]);
    while (done_count() < 3)
        clock_sleep_until_ns(clock_monotonic_ns() + MS);
    for (int i = 0; i < 3; i++) {
        CHECK(finished[i] == &requests[2 - i]);
        CHECK(finished_ns[i] >= finished[i]->due_ns);
    }
    plants_free(plants);
}

// --- requests ---

static int parse(const char *text, struct score_request *request, struct error *err)
{
    *request = (struct score_request){0};
    return request_parse(request, text, strlen(text), err);
}

TEST(requests_are_read_and_answered)
{
    struct score_request request;
    struct error err = {0};
    CHECK_INT(parse("{\"id\":\"a\\\"b\",\"features\":[1,2.5,-3],\"later\":{}}", &request, &err), 0);
    CHECK_INT(request.count, 3);
    CHECK_DBL(request.values[1], 2.5, 0);
    request.status = 200;
    request.score = 0.25;
    strcpy(request.model, "m");
    char *answer = request_answer(&request);
    CHECK_STR(answer, "{\"id\":\"a\\\"b\",\"scores\":[0.25],\"model\":\"m\"}");
    free(answer);
    CHECK(!request_wrong(&request));
    request.score = NAN;
    CHECK(request_wrong(&request));
    answer = request_answer(&request);
    CHECK_STR(answer, "{\"id\":\"a\\\"b\",\"scores\":[null],\"model\":\"m\"}");
    free(answer);
    request.status = 400;
    strcpy(request.text, "a \"quoted\"\nword");
    answer = request_answer(&request);
    CHECK_STR(answer, "{\"id\":\"a\\\"b\",\"error\":\"a \\\"quoted\\\"\\nword\"}");
    free(answer);
    request_clear(&request);
}

TEST(bad_requests_are_refused_in_words)
{
    static const char *const bad[][2] = {
            {"", "not JSON"},
            {"[", "not JSON"},
            {"[]", "'id' is missing"},
            {"{\"id\":1}", "'features' is missing"},
            {"{\"id\":1.5,\"features\":[1]}", "'id' is missing, or neither"},
            {"{\"id\":true,\"features\":[1]}", "'id' is missing, or neither"},
            {"{\"id\":1,\"id\":2,\"features\":[1]}", "not JSON"},
            {"{\"id\":1,\"features\":[]}", "'features' is missing"},
            {"{\"id\":1,\"features\":{\"0\":1}}", "'features' is missing"},
            {"{\"id\":1,\"features\":[1,\"2\"]}", "features[1] is not a number"},
            {"{\"id\":1,\"features\":[NaN]}", "not JSON"},
            {"{\"id\":1,\"features\":[1e999]}", "not JSON"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct score_request request;
        struct error err = {0};
        CHECK_INT(parse(bad[i][0], &request, &err), -EINVAL);
        CHECK_CONTAINS(err.text, bad[i][1]);
        request_clear(&request);
    }
    struct strbuf text = {0};
    strbuf_add(&text, "{\"features\":[1],\"id\":\"%0*d\"}", 200, 1);
    struct score_request request;
    CHECK_INT(parse(text.text, &request, NULL), -EINVAL);
    text.len = 0;
    for (int i = 0; i < 60000; i++)
        strbuf_add(&text, "[");
    CHECK_INT(parse(text.text, &request, NULL), -EINVAL); // no stack overflow
    strbuf_free(&text);
}
