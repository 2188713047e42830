// SPDX-License-Identifier: Apache-2.0
// The planted faults. Which request is hit is a function of its number alone, so that a test can
// count. One thread holds answers back; it runs where a plant of that kind is set.
#include "reference_models/serve/plants.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "common/units.h"

#define PLANTS_S INT64_C(1000000000)

enum plants_kind {
    PLANTS_ERRORS,
    PLANTS_SLOW,
    PLANTS_NAN,
    PLANTS_WRONG,
    PLANTS_CUT,
    PLANTS_SHARES, // above: values are shares
    PLANTS_HOLD = PLANTS_SHARES,
    PLANTS_HOLD_LONG,
    PLANTS_LATE,
    PLANTS_LEAK,
    PLANTS_CRASH,
    PLANTS_HANG,
    PLANTS_WARM,
    PLANTS_COUNT
};
static const char *const plants_names[PLANTS_COUNT] = {"errors", "slow", "nan", "wrong",
        "stream-cut", "hold", "hold-long", "late", "leak", "crash-after", "hang-after", "warm"};

struct plants {
    double share[PLANTS_SHARES]; // 0: not planted
    int64_t hold_ns, hold_long_ns, late_ns, warm_ns;
    uint64_t leak_bytes, crash_after, hang_after; // UINT64_MAX: never
    _Atomic uint64_t arrived;
    // Answers held back, sorted by due_ns.
    pthread_t thread;
    bool has_thread, stop;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct score_request *late;
};

static volatile sig_atomic_t plants_signalled;

static void plants_on_signal(int number)
{
    plants_signalled = number;
}

static int plants_set(
        struct plants *plants, enum plants_kind kind, const char *value, struct error *err)
{
    static const double share_default[PLANTS_SHARES] = {
            [PLANTS_NAN] = 1, [PLANTS_WRONG] = 1, [PLANTS_CUT] = 1};
    if (kind < PLANTS_SHARES) {
        if (!value && share_default[kind] > 0) {
            plants->share[kind] = share_default[kind];
            return 0;
        }
        return value ? unit_parse_fraction(value, &plants->share[kind], err) : -EINVAL;
    }
    if (kind == PLANTS_LEAK) {
        plants->leak_bytes = 64 << 10;
        return value ? unit_parse_bytes(value, &plants->leak_bytes, err) : 0;
    }
    if (!value)
        return -EINVAL;
    switch (kind) {
    case PLANTS_HOLD:
        return unit_parse_duration(value, &plants->hold_ns, err);
    case PLANTS_HOLD_LONG:
        return unit_parse_duration(value, &plants->hold_long_ns, err);
    case PLANTS_LATE:
        return unit_parse_duration(value, &plants->late_ns, err);
    case PLANTS_WARM:
        return unit_parse_duration(value, &plants->warm_ns, err);
    case PLANTS_CRASH:
        return unit_parse_uint(value, 0, UINT64_MAX - 1, &plants->crash_after, err);
    default:
        return unit_parse_uint(value, 0, UINT64_MAX - 1, &plants->hang_after, err);
    }
}

static int plants_read(struct plants *plants, char *text, struct error *err)
{
    char *rest = NULL;
    for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(word, ':');
        if (value)
            *value++ = '\0';
        size_t kind = 0;
        while (kind < PLANTS_COUNT && strcmp(word, plants_names[kind]) != 0)
            kind++;
        if (kind == PLANTS_COUNT)
            return error_set(
                    err, -EINVAL, "PLANT_SERVE: '%s' is unknown; known:\n%s", word, PLANTS_HELP);
        struct error why = {0};
        int rc = plants_set(plants, (enum plants_kind)kind, value, &why);
        if (rc)
            return error_set(err, rc, "PLANT_SERVE: %s: %s", word,
                    why.text[0] ? why.text : "it needs a value");
    }
    return 0;
}

static void *plants_hold(void *arg)
{
    struct plants *plants = arg;
    pthread_mutex_lock(&plants->lock);
    while (!plants->stop) {
        struct score_request *request = plants->late;
        if (!request) {
            pthread_cond_wait(&plants->changed, &plants->lock);
            continue;
        }
        if (clock_monotonic_ns() < request->due_ns) {
            struct timespec until = {
                    .tv_sec = request->due_ns / PLANTS_S, .tv_nsec = request->due_ns % PLANTS_S};
            pthread_cond_timedwait(&plants->changed, &plants->lock, &until);
            continue;
        }
        plants->late = request->next;
        pthread_mutex_unlock(&plants->lock);
        request->done(request);
        pthread_mutex_lock(&plants->lock);
    }
    pthread_mutex_unlock(&plants->lock);
    return NULL;
}

int plants_new(const char *text, struct plants **ret_plants, struct error *err)
{
    struct plants *plants = xcalloc(1, sizeof *plants);
    plants->crash_after = plants->hang_after = UINT64_MAX;
    pthread_mutex_init(&plants->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&plants->changed, &attr);
    pthread_condattr_destroy(&attr);
    char *copy = xstrdup(text ? text : "");
    int rc = plants_read(plants, copy, err);
    free(copy);
    if (!rc && plants->late_ns > 0)
        sigaction(SIGUSR1,
                &(struct sigaction){.sa_handler = plants_on_signal, .sa_flags = SA_RESTART}, NULL);
    if (!rc &&
            (plants->share[PLANTS_SLOW] > 0 || plants->hold_ns > 0 || plants->hold_long_ns > 0 ||
                    plants->late_ns > 0)) {
        rc = -pthread_create(&plants->thread, NULL, plants_hold, plants);
        plants->has_thread = rc == 0;
        if (rc)
            error_set(err, rc, "failed to start a thread: %s", strerror(-rc));
    }
    if (rc)
        plants_free(plants);
    else
        *ret_plants = plants;
    return rc;
}

void plants_free(struct plants *plants)
{
    if (!plants)
        return;
    if (plants->has_thread) {
        pthread_mutex_lock(&plants->lock);
        plants->stop = true;
        pthread_cond_signal(&plants->changed);
        pthread_mutex_unlock(&plants->lock);
        pthread_join(plants->thread, NULL);
    }
    pthread_cond_destroy(&plants->changed);
    pthread_mutex_destroy(&plants->lock);
    free(plants);
}

void plants_warm_up(struct plants *plants)
{
    if (plants->warm_ns > 0)
        clock_sleep_until_ns(clock_monotonic_ns() + plants->warm_ns);
}

// The requests hit are spread evenly: n * share grows by one at each.
static bool plants_hits(const struct plants *plants, enum plants_kind kind, uint64_t number)
{
    double share = plants->share[kind];
    return floor((double)(number + 1) * share) > floor((double)number * share);
}

bool plants_arrived(struct plants *plants, struct score_request *request)
{
    request->number = atomic_fetch_add(&plants->arrived, 1);
    if (request->number >= plants->crash_after)
        abort();
    if (plants->leak_bytes) {
        char *lost = malloc(plants->leak_bytes);
        if (!lost) // as the kernel ends what has more than it may
            abort();
        for (uint64_t i = 0; i < plants->leak_bytes; i += 4096)
            ((volatile char *)lost)[i] = 1;
    }
    if (!plants_hits(plants, PLANTS_ERRORS, request->number))
        return true;
    request->status = 500;
    snprintf(request->text, sizeof request->text, "planted error");
    return false;
}

void plants_scored(struct plants *plants, struct score_request *request, size_t long_count)
{
    if (plants_hits(plants, PLANTS_NAN, request->number))
        request->score = NAN;
    if (plants_hits(plants, PLANTS_WRONG, request->number))
        request->score += 0.1;
    int64_t now = clock_monotonic_ns();
    double longer = plants->share[PLANTS_SLOW];
    if (longer > 0)
        request->due_ns = now + (int64_t)(longer * (double)(now - request->arrived_ns));
    int64_t least = plants->hold_ns;
    if (plants_signalled && plants->late_ns > least)
        least = plants->late_ns;
    if (request->count >= long_count && plants->hold_long_ns > least)
        least = plants->hold_long_ns;
    if (least > 0 && request->due_ns < request->arrived_ns + least)
        request->due_ns = request->arrived_ns + least;
}

void plants_finish(struct plants *plants, struct score_request *request)
{
    if (!plants->has_thread || request->due_ns <= clock_monotonic_ns()) {
        request->done(request);
        return;
    }
    pthread_mutex_lock(&plants->lock);
    struct score_request **at = &plants->late;
    while (*at && (*at)->due_ns <= request->due_ns)
        at = &(*at)->next;
    request->next = *at;
    *at = request;
    pthread_cond_signal(&plants->changed);
    pthread_mutex_unlock(&plants->lock);
}

void plants_worker(struct plants *plants)
{
    while (atomic_load(&plants->arrived) > plants->hang_after)
        pause();
}

bool plants_cuts(const struct plants *plants, const struct score_request *request)
{
    return plants_hits(plants, PLANTS_CUT, request->number);
}
