// SPDX-License-Identifier: Apache-2.0
// Step protocol: the gate. Who is held where, for how long, and what a turn of the other side must
// not count: held time, and the open loop's clock.
#include "tests/unit/test_step_rig.h"

#include <pthread.h>
#include <sys/mman.h>

struct work {
    uint32_t steps;
    int rank;
    pthread_barrier_t *barrier; // crossed in every step, as ranks do in a collective
    double rate_per_s;
};

static void run_steps(void *arg)
{
    const struct work *work = arg;

    if (work->rank >= 0) {
        char text[16];

        snprintf(text, sizeof(text), "%d", work->rank);
        setenv("RANK", text, 1);
    }
    for (uint32_t i = 0; i < work->steps; i++) {
        ug_step_begin();
        if (work->barrier != NULL) {
            pthread_barrier_wait(work->barrier);
        }
        ug_step_end(1);
    }
}

static struct reader_slot slot_of(const struct rig *rig, uint32_t slot_idx)
{
    struct reader_slot slot = {0};

    CHECK_INT(reader_slot(rig->reader, slot_idx, &slot), 0);
    return slot;
}

TEST(a_block_is_what_was_granted)
{
    struct rig rig = rig_make(NULL);
    struct work work = {.steps = 6, .rank = -1};
    pid_t pid = rig_fork(run_steps, &work);

    CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(60)), 0);
    CHECK_INT(slot_of(&rig, 0).steps, 0);
    CHECK_INT(slot_of(&rig, 0).pid, pid);
    CHECK(reader_slot_alive(rig.reader, 0) && slot_of(&rig, 0).held && !slot_of(&rig, 0).has_rank);
    for (uint32_t block = 1; block <= 3; block++) {
        int64_t before_ns = clock_monotonic_ns();

        reader_grant(rig.reader, 2);
        if (block == 3) {
            break;
        }
        CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(60)), 0);
        CHECK_INT(slot_of(&rig, 0).steps, 2 * block);
        CHECK_INT(slot_of(&rig, 0).hold_count, 1 + block);
        CHECK((int64_t)slot_of(&rig, 0).hold_begin_ns > before_ns);
        CHECK_INT(slot_of(&rig, 0).hold_tid, slot_of(&rig, 0).pid);
    }
    CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(60)), -ESRCH);
    CHECK_INT(rig_join(pid), 0);
    rig_drain(&rig, 0);
    CHECK_INT(rig_count(&rig, UG_RECORD_STEP), 6);
    CHECK_INT(rig_count(&rig, UG_RECORD_HOLD), 3);
    for (uint64_t i = 0; i < 3; i++) {
        const struct ug_step_record *hold = rig_find(&rig, UG_RECORD_HOLD, i);
        const struct ug_step_record *next = rig_find(&rig, UG_RECORD_STEP, 2 * i);

        CHECK_INT(hold->step, 2 * i);
        CHECK(hold->begin_ns < hold->end_ns && hold->end_ns <= next->begin_ns);
        CHECK(i == 0 || hold->begin_ns >= rig_find(&rig, UG_RECORD_STEP, 2 * i - 1)->end_ns);
    }
    rig_free(&rig);
}

TEST(wait_times_out_and_wants_all_slots)
{
    struct rig rig = rig_make(NULL);
    struct work work = {.steps = 1, .rank = -1};
    int64_t begin_ns = clock_monotonic_ns();
    pid_t pid;

    CHECK_INT(reader_wait_held(rig.reader, 1, begin_ns + RIG_SECOND_NS / 5), -ETIMEDOUT);
    CHECK(clock_monotonic_ns() - begin_ns >= RIG_SECOND_NS / 5);
    pid = rig_fork(run_steps, &work);
    rig_wait_claimed(&rig, 1);
    CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(60)), 0);
    CHECK_INT(
            reader_wait_held(rig.reader, 2, clock_monotonic_ns() + RIG_SECOND_NS / 5), -ETIMEDOUT);
    reader_open_gate(rig.reader);
    CHECK_INT(rig_join(pid), 0);
    rig_free(&rig);
}

static pthread_barrier_t *shared_barrier(unsigned count)
{
    pthread_barrier_t *barrier =
            mmap(NULL, sizeof(*barrier), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attr;

    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(barrier, &attr, count);
    return barrier;
}

TEST(ranks_are_held_at_the_same_step)
{
    struct rig rig = rig_make(NULL);
    pthread_barrier_t *barrier = shared_barrier(2);
    struct work work[2] = {{.steps = 4000, .rank = 1, .barrier = barrier},
            {.steps = 4000, .rank = 0, .barrier = barrier}};
    pid_t pid[2];

    for (int i = 0; i < 2; i++) {
        pid[i] = rig_fork(run_steps, &work[i]);
        rig_wait_claimed(&rig, (uint32_t)i + 1);
    }
    CHECK(slot_of(&rig, 0).has_rank && slot_of(&rig, 1).has_rank);
    CHECK_INT(slot_of(&rig, 0).rank, 1);
    CHECK_INT(slot_of(&rig, 1).rank, 0);
    for (int turn = 0; turn < 20; turn++) {
        CHECK_INT(reader_wait_held(rig.reader, 2, rig_deadline(60)), 0);
        CHECK_INT(slot_of(&rig, 0).steps, 3 * turn);
        CHECK_INT(slot_of(&rig, 1).steps, 3 * turn);
        reader_grant(rig.reader, 3);
    }
    reader_open_gate(rig.reader);
    CHECK_INT(rig_join(pid[0]), 0);
    CHECK_INT(rig_join(pid[1]), 0);
    rig_free(&rig);
}

static void run_as_rank(void *arg)
{
    static const char *const names[] = {
            "RANK", "LOCAL_RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    char *const *variables = arg;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unsetenv(names[i]);
    }
    for (; *variables != NULL; variables++) {
        putenv(*variables);
    }
    ug_step_begin();
    ug_step_end(1);
}

/* As common/launcher.c has it: mpirun in a pod of a PyTorchJob, and ranks that a program which
 * mpirun has started, one a node, has spawned. */
TEST(the_innermost_launcher_says_the_rank)
{
    static char pod[] = "RANK=1", rank[] = "RANK=6", local[] = "LOCAL_RANK=2",
                no_local[] = "LOCAL_RANK=x";
    static char mpi[] = "OMPI_COMM_WORLD_RANK=3", pmi[] = "PMI_RANK=4", slurm[] = "SLURM_PROCID=5";
    const struct {
        char *variables[4];
        uint32_t rank;
    } cases[] = {{{pod, mpi, slurm}, 3}, {{pod, pmi, slurm}, 4}, {{pod, no_local, mpi}, 3},
            {{rank, local, mpi}, 6}, {{rank, slurm}, 6}, {{local, mpi}, 3}, {{slurm}, 5}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rig rig = rig_make(&(struct reader_opts){.slot_count = 2, .open = true});
        pid_t pid = rig_fork(run_as_rank, (void *)cases[i].variables);

        CHECK_INT(rig_join(pid), 0);
        CHECK(slot_of(&rig, 0).has_rank);
        CHECK_INT(slot_of(&rig, 0).rank, cases[i].rank);
        rig_free(&rig);
    }
}

TEST(killed_workload_ends_the_wait)
{
    struct rig rig = rig_make(NULL);
    struct work work = {.steps = 10, .rank = -1};
    pid_t pid = rig_fork(run_steps, &work);
    int64_t begin_ns;

    CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(60)), 0);
    kill(pid, SIGKILL); // and stays a zombie
    reader_grant(rig.reader, 5);
    begin_ns = clock_monotonic_ns();
    CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(300)), -ESRCH);
    CHECK(clock_monotonic_ns() - begin_ns < 60 * RIG_SECOND_NS);
    CHECK(!reader_slot_alive(rig.reader, 0));
    CHECK_INT(slot_of(&rig, 0).state != UG_SLOT_CLOSED, true);
    rig_join(pid);
    rig_free(&rig);
}

static void count_call(void *arg)
{
    (*(int *)arg)++;
}

static void run_with_sync(void *arg)
{
    int calls = 0;

    (void)arg;
    ug_step_set_sync(count_call, &calls);
    for (int i = 0; i < 6; i++) {
        ug_step_begin();
        ug_step_end(1);
        ug_step_note("sync_calls", calls);
    }
}

TEST(device_is_waited_for_at_the_end_of_a_block)
{
    struct rig rig = rig_make(NULL);
    pid_t pid = rig_fork(run_with_sync, NULL);
    static const double expected[] = {0, 0, 1, 1, 2, 2};

    CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(60)), 0);
    reader_grant(rig.reader, 3);
    CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(60)), 0);
    reader_grant(rig.reader, 2);
    CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(60)), 0);
    reader_open_gate(rig.reader);
    CHECK_INT(rig_join(pid), 0);
    rig_drain(&rig, 0);
    for (uint64_t i = 0; i < 6; i++) {
        CHECK_DBL(rig_find(&rig, UG_RECORD_NOTE, i)->value, expected[i], 0);
    }
    rig_free(&rig);
}

static void report(uint32_t bits, void *arg)
{
    (void)arg;
    ug_step_begin(); // a report that calls back must not upset the steps
    ug_step_end(1);
    if (bits & UG_REQUEST_FINGERPRINT) {
        ug_step_text(UG_BYTES_FINGERPRINT, "fingerprint", "{\"a\": 1}", 8);
    }
}

static void run_with_report(void *arg)
{
    ug_step_set_report(report, NULL);
    run_steps(arg);
}

static void check_fingerprint(void *arg, uint32_t slot_idx, const struct reader_bytes *bytes)
{
    (*(int *)arg)++;
    CHECK_INT(slot_idx, 0);
    CHECK_INT(bytes->kind, UG_BYTES_FINGERPRINT);
    CHECK_INT(bytes->payload_bytes, 8);
    CHECK_STR(bytes->name, "fingerprint");
    CHECK(memcmp(bytes->payload, "{\"a\": 1}", 8) == 0);
}

TEST(report_comes_at_the_next_hold)
{
    struct rig rig = rig_make(NULL);
    struct work work = {.steps = 4, .rank = -1};
    struct error err = {0};
    int reports = 0;
    pid_t pid;

    reader_request(rig.reader, UG_REQUEST_FINGERPRINT);
    pid = rig_fork(run_with_report, &work);
    CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(60)), 0);
    CHECK_INT(reader_drain(rig.reader, 0, NULL, check_fingerprint, &reports, &err), 0);
    CHECK_INT(reports, 1);
    reader_grant(rig.reader, 2);
    CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(60)), 0);
    CHECK_INT(reader_drain(rig.reader, 0, NULL, check_fingerprint, &reports, &err), 0);
    CHECK_INT(reports, 1);
    reader_open_gate(rig.reader);
    CHECK_INT(rig_join(pid), 0);
    rig_drain(&rig, 0);
    CHECK_INT(rig_count(&rig, UG_RECORD_STEP), 4);
    rig_free(&rig);
}

static void run_requests(void *arg)
{
    const struct work *work = arg;

    ug_request_schedule(work->rate_per_s, 7);
    for (uint32_t i = 0; i < work->steps; i++) {
        ug_request_begin();
        ug_step_end(1);
    }
}

TEST(schedule_stands_still_while_held)
{
    struct rig rig = rig_make(NULL);
    struct work work = {.steps = 20, .rate_per_s = 500};
    pid_t pid = rig_fork(run_requests, &work);
    const int64_t held_ns = RIG_SECOND_NS / 2;
    const struct ug_step_record *last, *next, *hold;
    struct ug_step_state drawn = {0};
    uint64_t gap_ns = 0;

    CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(60)), 0);
    reader_grant(rig.reader, 10);
    CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(60)), 0);
    nanosleep(&(struct timespec){0, held_ns}, NULL);
    reader_grant(rig.reader, 10);
    CHECK_INT(rig_join(pid), 0);
    rig_drain(&rig, 0);
    CHECK_INT(rig_count(&rig, UG_RECORD_STEP), 20);
    last = rig_find(&rig, UG_RECORD_STEP, 9);
    next = rig_find(&rig, UG_RECORD_STEP, 10);
    hold = rig_find(&rig, UG_RECORD_HOLD, 1);
    CHECK((int64_t)(hold->end_ns - hold->begin_ns) >= held_ns);
    // By as long as it was held, to the nanosecond: how late a request begins is a matter of the
    // machine.
    ug_impl_schedule(&drawn, work.rate_per_s, 7);
    for (int i = 0; i <= 10; i++) {
        gap_ns = (uint64_t)(ug_impl_exponential(drawn.rng) * drawn.gap_ns);
    }
    CHECK_INT(next->sched_ns - last->sched_ns, gap_ns + (hold->end_ns - hold->begin_ns));
    for (uint64_t i = 0; i < 20; i++) {
        const struct ug_step_record *request = rig_find(&rig, UG_RECORD_STEP, i);

        CHECK(request->sched_ns > 0 && request->begin_ns >= request->sched_ns);
    }
    rig_free(&rig);
}

TEST(late_requests_are_not_forgiven)
{
    // An open loop: a server that takes longer than the gaps falls behind the schedule more and
    // more.
    struct rig rig = rig_make(&(struct reader_opts){.open = true});
    struct work work = {.steps = 2000, .rate_per_s = 1e7};
    const struct ug_step_record *last;

    CHECK_INT(rig_join(rig_fork(run_requests, &work)), 0);
    rig_drain(&rig, 0);
    last = rig_find(&rig, UG_RECORD_STEP, 1999);
    CHECK(last->sched_ns - rig_find(&rig, UG_RECORD_STEP, 0)->sched_ns < 300000);
    CHECK(last->end_ns > last->begin_ns && last->begin_ns >= last->sched_ns);
    rig_free(&rig);
}

TEST(closed_loop_counts_from_the_begin)
{
    struct rig rig = rig_make(&(struct reader_opts){.open = true});
    struct work work = {.steps = 3, .rate_per_s = 0};

    CHECK_INT(rig_join(rig_fork(run_requests, &work)), 0);
    rig_drain(&rig, 0);
    for (uint64_t i = 0; i < 3; i++) {
        CHECK_INT(rig_find(&rig, UG_RECORD_STEP, i)->sched_ns,
                rig_find(&rig, UG_RECORD_STEP, i)->begin_ns);
    }
    rig_free(&rig);
}

TEST(gaps_are_exponential)
{
    struct ug_step_state s = {0};
    double sum = 0, squares = 0;
    int above_one = 0;
    enum { DRAWS = 200000 };

    ug_impl_schedule(&s, 1, 3);
    for (int i = 0; i < DRAWS; i++) {
        double gap = ug_impl_exponential(s.rng);

        sum += gap;
        squares += gap * gap;
        above_one += gap > 1;
    }
    CHECK_DBL(sum / DRAWS, 1, 0.01); // 4.5 standard errors
    CHECK_DBL(squares / DRAWS, 2, 0.045);
    CHECK_DBL((double)above_one / DRAWS, exp(-1), 0.005);
}
