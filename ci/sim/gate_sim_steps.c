// SPDX-License-Identifier: Apache-2.0
// Launches of 160 steps of 2 ms in turns of 10, as a small training job has them. The blocks are
// those of `upgate ab`: 1, 2, then full ones; steps that fill no block are in none.
#include "ci/sim/gate_sim_steps.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/strings.h"
#include "harness/gate/cell.h"
#include "harness/gate/health.h"
#include "harness/gate/measure/measure.h"
#include "harness/gate/phrase.h"
#include "harness/plan/plan.h"
#include "reports/analyse/random.h"

enum { STEPS_COUNT = 160, STEPS_BLOCK = 10, STEPS_BLOCKS_MAX = 2 + STEPS_COUNT / STEPS_BLOCK };
enum { STEPS_WARM = 5 };
static const double steps_ns = 2e6, steps_gap_ns = 2000, steps_cold = 7;

struct steps_world {
    struct plan *plan;
    struct random_state random;
    double level[PLAN_SIDES]; // of the last launch of each side
    int64_t idx[STEPS_COUNT], begin_ns[PLAN_SIDES][STEPS_COUNT], dur_ns[PLAN_SIDES][STEPS_COUNT];
    double late_ns[STEPS_COUNT], samples[STEPS_COUNT];
    struct block_rows blocks[STEPS_BLOCKS_MAX];
    int block_count;
    bool first_of_block[STEPS_COUNT];
    double course[STEPS_COUNT];
    struct rank_rows ranks[PLAN_SIDES];
};

static struct plan *steps_plan(void)
{
    struct plan *plan = NULL;
    struct error err = {0};
    char path[] = "/tmp/upgate-gate-sim-XXXXXX";
    int fd = mkstemp(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file) {
        fputs("gate_sim: cannot write a plan to /tmp\n", stderr);
        exit(4);
    }
    fputs("baseline: {name: old, python: /usr/bin/python3}\n"
          "candidate: {name: new, python: /usr/bin/python3}\n"
          "workloads: [{name: w, mode: train, steps: 160, command: [x, \"{steps}\"]}]\n"
          "gate: {parity: {rule: off}, confirm: never}\n",
            file);
    fclose(file);
    int rc = plan_load(path, &plan, &err);
    unlink(path);
    if (rc) {
        fprintf(stderr, "gate_sim: %s\n", err.text);
        exit(4);
    }
    return plan;
}

static void steps_open(struct steps_world *world, uint64_t seed)
{
    *world = (struct steps_world){.plan = steps_plan(), .random = {seed}};
    for (int i = 0; i < STEPS_COUNT; i++) {
        world->idx[i] = i;
        world->late_ns[i] = NAN;
        world->samples[i] = 32;
    }
    int size = 1;
    for (int at = 0; at + size <= STEPS_COUNT; at += size, size = at < 3 ? 2 : STEPS_BLOCK) {
        int64_t first = at, steps = size;
        world->blocks[world->block_count] = (struct block_rows){.couple = world->block_count,
                .first_step = {first, first},
                .steps = {steps, steps}};
        world->block_count++;
        world->first_of_block[at] = at >= 3;
    }
    for (int side = 0; side < PLAN_SIDES; side++)
        world->ranks[side] = (struct rank_rows){.count = STEPS_COUNT,
                .idx = world->idx,
                .begin_ns = world->begin_ns[side],
                .dur_ns = world->dur_ns[side],
                .late_ns = world->late_ns,
                .samples = world->samples};
}

// --- a launch ------------------------------------------------------------------------------------

static double steps_exponential(struct random_state *random)
{
    return -log(1 - random_uniform(random));
}

static double steps_t3(struct random_state *random)
{
    double chi = 0, normal = random_normal(random);
    for (int i = 0; i < 3; i++) {
        double one = random_normal(random);
        chi += one * one;
    }
    return normal / sqrt(chi / 3);
}

static double steps_level(struct steps_world *world, const struct steps_machine *machine, int side)
{
    double rho = machine->launch_rho;
    double value = machine->launch_sd * random_normal(&world->random);
    if (machine->launch_t3 > 0)
        value += machine->launch_t3 * steps_t3(&world->random);
    if (machine->launch_skew > 0)
        value += machine->launch_skew * steps_exponential(&world->random);
    world->level[side] = rho * world->level[side] + sqrt(1 - rho * rho) * value;
    return world->level[side];
}

// What holds in a launch is drawn once: a share of the launches has it.
struct steps_drawn {
    bool launch, tail;
};

static struct steps_drawn steps_draw(struct steps_world *world, const struct steps_shape *shape)
{
    return (struct steps_drawn){.launch = random_uniform(&world->random) < shape->launch_share,
            .tail = shape->tail_launches <= 0 ||
                    random_uniform(&world->random) < shape->tail_launches};
}

static double steps_extra(struct steps_world *world, const struct steps_shape *shape,
        struct steps_drawn drawn, int step)
{
    double extra = shape->scale + shape->grow * step / STEPS_COUNT;
    extra += drawn.launch ? shape->launch_scale : 0;
    if (shape->rare_share > 0 && random_uniform(&world->random) < shape->rare_share)
        extra += shape->rare_scale;
    extra += shape->period && step % shape->period == shape->period - 1 ? shape->period_scale : 0;
    extra += step < shape->head_share * STEPS_COUNT ? shape->head_scale : 0;
    extra += drawn.tail && step >= (1 - shape->tail_share) * STEPS_COUNT ? shape->tail_scale : 0;
    return extra + (world->first_of_block[step] ? shape->block_first : 0);
}

static double steps_hit(struct steps_world *world, const struct steps_machine *machine)
{
    if (machine->hit_rate <= 0 || random_uniform(&world->random) >= machine->hit_rate)
        return 0;
    if (machine->pareto > 0)
        return machine->hit * (pow(1 - random_uniform(&world->random), -1 / machine->pareto) - 1);
    return machine->hit * steps_exponential(&world->random);
}

static void steps_launch(struct steps_world *world, const struct steps_scenario *scenario, int side)
{
    const struct steps_machine *machine = &scenario->machine;
    double level = steps_ns * exp(steps_level(world, machine, side)), at = 1e6;
    struct steps_drawn both = steps_draw(world, &scenario->both),
                       own = steps_draw(world, &scenario->candidate);
    for (int i = 0; i < STEPS_COUNT; i++) {
        double one =
                level * exp(world->course[i] + machine->step_sd * random_normal(&world->random));
        double extra = steps_extra(world, &scenario->both, both, i) + steps_hit(world, machine);
        if (side)
            extra += steps_extra(world, &scenario->candidate, own, i);
        one *= 1 + extra;
        if (i < STEPS_WARM) // the first steps of any job
            one += level * steps_cold * pow(0.2, i);
        if (machine->tick_ns > 0)
            one = fmax(1, round(one / machine->tick_ns)) * machine->tick_ns;
        world->begin_ns[side][i] = (int64_t)at;
        world->dur_ns[side][i] = (int64_t)one;
        at += one + steps_gap_ns;
    }
}

static void steps_pair(struct steps_world *world, const struct steps_scenario *scenario, int k,
        struct measure_pair *ret_pair)
{
    const double rho = 0.9;
    double level = random_normal(&world->random);
    for (int i = 0; i < STEPS_COUNT; i++) {
        if (world->first_of_block[i])
            level = rho * level + sqrt(1 - rho * rho) * random_normal(&world->random);
        world->course[i] = scenario->machine.drift_sd * level;
    }
    struct pair_rows rows = {.head = {.id = k + 1,
                                     .idx = k,
                                     .seed = k,
                                     .steps = STEPS_COUNT,
                                     .phase = PAIR_PHASE_MAIN,
                                     .fate = PAIR_FATE_VALID,
                                     .interleave = PLAN_INTERLEAVE_STEPS,
                                     .void_side = -1},
            .blocks = world->blocks,
            .block_count = world->block_count};
    for (int side = 0; side < PLAN_SIDES; side++) {
        double active = 0;
        steps_launch(world, scenario, side);
        for (int i = 0; i < STEPS_COUNT; i++)
            active += (double)world->dur_ns[side][i] + steps_gap_ns;
        for (int i = 0; i < world->block_count; i++) {
            struct block_rows *block = &world->blocks[i];
            block->active_ns[side] = 0;
            for (int64_t s = 0; s < block->steps[side]; s++)
                block->active_ns[side] +=
                        world->dur_ns[side][block->first_step[side] + s] + (int64_t)steps_gap_ns;
        }
        rows.sides[side] = (struct launch_rows){.id = 2 * k + 1 + side,
                .fate = LAUNCH_FATE_OK,
                .active_ns = active,
                .cpu_ns = active,
                .peak_memory_bytes = 1e9 * exp(1e-4 * random_normal(&world->random)),
                .peak_gpu_memory_bytes = NAN,
                .compile_ns = NAN,
                .steps = STEPS_COUNT,
                .ranks = &world->ranks[side],
                .rank_count = 1};
    }
    measure_pair(&rows, ret_pair);
}

// --- a gate --------------------------------------------------------------------------------------

// The question of the run loop, after each look: what is still open? The verdict when nothing is.
static bool steps_judge(struct steps_world *world, struct workload_facts *facts, bool last,
        struct steps_count *count)
{
    struct health health = {0};
    struct findings findings = {0};
    struct cell *cells = NULL;
    bool open = false, fails = false, passes = true;
    health_check(NULL, facts, &world->plan->gate, &world->plan->schedule, last, &health, &findings);
    struct cell_context context = {.facts = facts,
            .health = &health,
            .gate = &world->plan->gate,
            .schedule = &world->plan->schedule,
            .ended = last};
    int cell_count = cells_judge(&context, &cells, &findings);
    for (int i = 0; i < cell_count; i++)
        open = open || (cells[i].gating && cells[i].want_main > facts->main_count);
    if (last || !open) {
        for (int i = 0; i < cell_count; i++) {
            if (!cells[i].gating)
                continue;
            count->cell_gated[cells[i].metric]++;
            count->cell_fail[cells[i].metric] += cells[i].verdict == CELL_FAIL;
            count->cell_pass[cells[i].metric] += cells[i].verdict == CELL_PASS;
            fails = fails || cells[i].verdict == CELL_FAIL;
            passes = passes && cells[i].verdict == CELL_PASS;
        }
        for (int i = 0; i < findings.count; i++) {
            fails = fails || findings.items[i].effect == FINDING_FAIL;
            passes = passes && findings.items[i].effect == FINDING_NOTE;
        }
        count->gates++;
        count->fail += fails;
        count->pass += !fails && passes;
        count->inconclusive += !fails && !passes;
        count->pairs += facts->main_count;
    }
    cells_free(cells, cell_count);
    findings_clear(&findings);
    health_clear(&health);
    return last || !open;
}

static void steps_gate(
        struct steps_world *world, const struct steps_scenario *scenario, struct steps_count *count)
{
    const struct plan_schedule *schedule = &world->plan->schedule;
    int most = (int)schedule->looks[schedule->look_count - 1];
    struct workload_facts facts = {.id = 1,
            .name = xstrdup("w"),
            .mode = PLAN_MODE_TRAIN,
            .interleave = PLAN_INTERLEAVE_STEPS,
            .plan = &world->plan->workloads[0],
            .main = xcalloc((size_t)most, sizeof *facts.main),
            .heads = xcalloc((size_t)most, sizeof *facts.heads),
            .fates = xcalloc((size_t)most, sizeof *facts.fates),
            .has_steps = true};
    memset(world->level, 0, sizeof world->level);
    for (int look = 0; look < schedule->look_count; look++) {
        while (facts.main_count < (int)schedule->looks[look]) {
            int k = facts.main_count;
            steps_pair(world, scenario, k, &facts.main[k]);
            facts.heads[k] = facts.main[k].head;
            facts.fates[k][0] = facts.fates[k][1] = LAUNCH_FATE_OK;
            facts.main_count = facts.head_count = k + 1;
        }
        if (steps_judge(world, &facts, look == schedule->look_count - 1, count))
            break;
    }
    workload_facts_clear(&facts);
}

void steps_gates(
        const struct steps_scenario *scenario, long gates, uint64_t seed, struct steps_count *count)
{
    struct steps_world world;
    steps_open(&world, seed);
    *count = (struct steps_count){0};
    for (long i = 0; i < gates; i++)
        steps_gate(&world, scenario, count);
    plan_free(world.plan);
}

double steps_effect(const struct steps_shape *shape)
{
    double tail = shape->tail_launches > 0 ? shape->tail_launches : 1;
    int firsts = 0;
    for (int at = 3; at + STEPS_BLOCK <= STEPS_COUNT; at += STEPS_BLOCK)
        firsts++;
    return shape->scale + shape->grow / 2 + shape->launch_share * shape->launch_scale +
            shape->rare_share * shape->rare_scale + shape->head_share * shape->head_scale +
            (shape->period ? shape->period_scale * (STEPS_COUNT / shape->period) / STEPS_COUNT
                           : 0) +
            tail * shape->tail_share * shape->tail_scale +
            shape->block_first * firsts / STEPS_COUNT;
}
