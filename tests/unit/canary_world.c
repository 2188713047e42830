// SPDX-License-Identifier: Apache-2.0
// Takes the place of the clock, the traffic and the sources.
#include "tests/unit/canary_world.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/clock.h"
#include "harness/canary/sources/sources.h"
#include "harness/canary/traffic/traffic.h"

struct canary_world *canary_world;

void canary_world_reset(void)
{
    if (!canary_world)
        canary_world = mmap(NULL, sizeof *canary_world, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (canary_world == MAP_FAILED)
        abort();
    *canary_world = (struct canary_world){.now_ns = 1000000000000,
            .wall_offset_ns = 1795428000000000000 - 1000000000000,
            .up = {true, true},
            .rate = 20000};
}

// --- the clock

int64_t clock_monotonic_ns(void)
{
    return canary_world->now_ns;
}

int64_t clock_wall_ns(void)
{
    return canary_world->now_ns + canary_world->wall_offset_ns;
}

int64_t clock_boottime_ns(void)
{
    return canary_world->now_ns;
}

int64_t clock_boottime_ahead_ns(void)
{
    return 0;
}

void clock_sleep_until_ns(int64_t monotonic_ns)
{
    if (canary_world->now_ns < monotonic_ns)
        canary_world->now_ns = monotonic_ns;
}

// --- traffic

struct traffic {
    int nothing;
};

int traffic_open(
        const struct rollout *rollout, bool back, struct traffic **ret_traffic, struct error *err)
{
    (void)rollout;
    if (canary_world->open_fails && !back)
        return error_set(err, -EINVAL, "a third server has weight");
    *ret_traffic = calloc(1, sizeof **ret_traffic);
    return 0;
}

void traffic_close(struct traffic *traffic)
{
    free(traffic);
}

static void world_moment(void)
{
    if (++canary_world->moments == canary_world->kill_at_set)
        kill(getpid(), SIGKILL);
}

static int world_set(double percent, double aa, double *ret, struct error *err)
{
    world_moment();
    if (canary_world->fail_sets) {
        canary_world->fail_sets -= canary_world->fail_sets > 0;
        return error_set(err, -ECONNREFUSED, "the socket is gone");
    }
    canary_world->percent = percent;
    canary_world->aa_percent = aa;
    canary_world->anew = false;
    if (canary_world->set_count < CANARY_WORLD_SETS) {
        canary_world->sets[canary_world->set_count] = percent;
        canary_world->set_ns[canary_world->set_count++] = canary_world->now_ns;
    }
    *ret = aa > 0 ? aa : percent;
    world_moment();
    return 0;
}

int traffic_set(struct traffic *traffic, double percent, double *ret_percent, struct error *err)
{
    (void)traffic;
    return world_set(percent, 0, ret_percent, err);
}

int traffic_set_aa(struct traffic *traffic, double percent, double *ret_percent, struct error *err)
{
    (void)traffic;
    return canary_world->no_baseline2 ? error_set(err, -ENOTSUP, "no second baseline")
                                      : world_set(0, percent, ret_percent, err);
}

int traffic_get(struct traffic *traffic, double *ret_percent, struct error *err)
{
    (void)traffic;
    if (canary_world->get_fails)
        return error_set(err, -ECONNREFUSED, "the socket is gone");
    *ret_percent = canary_world->percent;
    return 0;
}

const char *traffic_began_anew(const struct traffic *traffic)
{
    (void)traffic;
    return canary_world->anew ? "the proxy was started again" : NULL;
}

int64_t traffic_age_ns(const struct traffic *traffic)
{
    (void)traffic;
    return canary_world->now_ns - canary_world->proxy_ns;
}

int traffic_look(
        struct traffic *traffic, struct traffic_arm ret_arms[CANARY_ARMS], struct error *err)
{
    (void)traffic;
    if (canary_world->get_fails)
        return error_set(err, -ECONNREFUSED, "the socket is gone");
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        ret_arms[arm] = (struct traffic_arm){.up = canary_world->up[arm]};
    return 0;
}

int traffic_drain(struct traffic *traffic, enum canary_arm arm, int64_t deadline_ns,
        uint64_t *ret_left, struct error *err)
{
    (void)traffic;
    (void)arm;
    (void)err;
    *ret_left = canary_world->in_flight;
    if (canary_world->in_flight)
        clock_sleep_until_ns(deadline_ns);
    return 0;
}

// --- sources

struct sources {
    struct sources_total totals[CANARY_ARMS];
    int64_t last_ns, counted_ns;
    double carry[CANARY_ARMS];
};

int sources_open(const struct rollout *rollout, struct sources **ret_sources, struct error *err)
{
    (void)rollout;
    (void)err;
    struct sources *sources = calloc(1, sizeof *sources);
    canary_world->next_s = clock_wall_ns() / 1000000000;
    canary_world->opens++;
    sources->counted_ns = canary_world->now_ns;
    *ret_sources = sources;
    return 0;
}

void sources_close(struct sources *sources)
{
    free(sources);
}

static double world_share(int arm)
{
    double second = canary_world->aa_percent > 0 ? canary_world->aa_percent : canary_world->percent;
    return arm == CANARY_CANDIDATE ? second / 100 : 1 - second / 100;
}

int sources_poll(struct sources *sources, int timeout_ms, struct error *err)
{
    (void)err;
    if (++canary_world->polls == canary_world->kill_at_poll)
        kill(getpid(), SIGKILL);
    canary_world->now_ns += (int64_t)timeout_ms * 1000000;
    double span = (double)(canary_world->now_ns - sources->counted_ns) / 1e9;
    sources->counted_ns = canary_world->now_ns;
    for (int arm = 0; arm < CANARY_ARMS && !canary_world->silent; arm++) {
        if (canary_world->mute[arm])
            continue;
        sources->carry[arm] += span * (double)canary_world->rate * world_share(arm);
        uint64_t requests = (uint64_t)sources->carry[arm];
        sources->carry[arm] -= (double)requests;
        sources->totals[arm].requests += requests;
        sources->totals[arm].errors += (uint64_t)((double)requests * canary_world->errors[arm]);
        sources->totals[arm].given_up += (uint64_t)((double)requests * canary_world->given_up[arm]);
    }
    sources->totals[CANARY_CANDIDATE].refused = canary_world->refused;
    if (!canary_world->silent)
        sources->last_ns = canary_world->now_ns;
    if (canary_world->script)
        canary_world->script(canary_world);
    return 0;
}

void sources_totals(
        const struct sources *sources, bool aa, struct sources_total ret_arms[CANARY_ARMS])
{
    (void)aa;
    memcpy(ret_arms, sources->totals, sizeof sources->totals);
}

// What was answered without an error, by how long it took.
static void world_answer(struct canary_second *second, int slower_bins)
{
    enum { USUAL = 400, MISS = 607, SPREAD = 8 };
    uint32_t left = (uint32_t)(second->requests - second->errors),
             spread = canary_world->misses > 0 ? SPREAD : 1;
    second->bins[MISS] = (uint32_t)(left * canary_world->misses);
    left -= second->bins[MISS];
    for (uint32_t i = 0; i < spread; i++)
        second->bins[USUAL + (uint32_t)slower_bins + i] = left / spread + (i < left % spread);
}

bool sources_take(struct sources *sources, bool aa, int64_t *ret_at_s,
        struct canary_second ret_arms[CANARY_ARMS])
{
    (void)sources;
    (void)aa;
    int64_t wall_s = clock_wall_ns() / 1000000000;
    if (canary_world->silent)
        canary_world->next_s = wall_s;
    if (canary_world->next_s + 2 >= wall_s)
        return false;
    *ret_at_s = canary_world->next_s++;
    for (int arm = 0; arm < CANARY_ARMS; arm++) {
        struct canary_second *second = &ret_arms[arm];
        *second = (struct canary_second){0};
        if (canary_world->mute[arm])
            continue;
        second->requests = (uint64_t)((double)canary_world->rate * world_share(arm));
        second->errors = (uint64_t)((double)second->requests * canary_world->errors[arm]);
        second->rejected = (uint64_t)((double)second->requests * canary_world->rejected[arm]);
        second->wrong = arm == CANARY_CANDIDATE && second->requests ? canary_world->wrong : 0;
        world_answer(second, arm == CANARY_CANDIDATE ? canary_world->slower_bins : 0);
    }
    return true;
}

void sources_state(const struct sources *sources, int index, struct source_state *ret_state)
{
    (void)index;
    *ret_state = (struct source_state){.seen = sources->totals[0].requests,
            .kept = sources->totals[0].requests,
            .lost = canary_world->lost,
            .last_ns = sources->last_ns};
    if (canary_world->silent)
        strcpy(ret_state->problem, "nobody writes");
}
