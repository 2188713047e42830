// SPDX-License-Identifier: Apache-2.0
// Step protocol: what a process marks is what the harness reads. Records in order, none torn and
// none lost without a count, under a racing reader; tensors across the end of the ring; names,
// phases, threads.
#include "tests/unit/test_step_rig.h"

#include <pthread.h>

static void three_steps(void *arg)
{
    (void)arg;
    ug_step_note("before_the_first_step", 7);
    for (int i = 0; i < 3; i++) {
        ug_step_begin();
        ug_step_phase_begin("forward");
        ug_step_phase_begin("attention");
        ug_step_phase_end();
        ug_step_phase_end();
        ug_step_loss(0.5 * i);
        ug_step_phase_begin("left_open");
        ug_step_end(10 + i);
    }
}

TEST(records_arrive_in_order)
{
    struct rig rig = rig_make(&(struct reader_opts){.open = true});
    struct reader_slot slot;

    CHECK_INT(rig_join(rig_fork(three_steps, NULL)), 0);
    CHECK_INT(reader_slot_count(rig.reader), 1);
    CHECK_INT(reader_slot(rig.reader, 0, &slot), 0);
    CHECK_INT(slot.steps, 3);
    CHECK_INT(slot.state, UG_SLOT_CLOSED);
    CHECK(!reader_slot_alive(rig.reader, 0));
    rig_drain(&rig, 0);
    CHECK_INT(rig.log_count, 1 + 3 * 5);
    CHECK_STR(rig_find(&rig, UG_RECORD_NOTE, 0)->name,
            "before_the_first_ste"
            "p");
    for (uint64_t i = 0; i < 3; i++) {
        const struct ug_step_record *step = rig_find(&rig, UG_RECORD_STEP, i);
        const struct ug_step_record *inner = rig_find(&rig, UG_RECORD_PHASE, 3 * i);
        const struct ug_step_record *outer = rig_find(&rig, UG_RECORD_PHASE, 3 * i + 1);
        const struct ug_step_record *open = rig_find(&rig, UG_RECORD_PHASE, 3 * i + 2);

        CHECK_INT(step->step, i);
        CHECK_DBL(step->value, 10.0 + (double)i, 0);
        CHECK_INT(step->sched_ns, 0);
        CHECK(step->begin_ns < step->end_ns);
        CHECK_DBL(rig_find(&rig, UG_RECORD_LOSS, i)->value, 0.5 * (double)i, 0);
        CHECK_INT(rig_find(&rig, UG_RECORD_LOSS, i)->step, i);
        CHECK_STR(inner->name, "attention");
        CHECK_DBL(inner->value, 1, 0);
        CHECK_STR(outer->name, "forward");
        CHECK_DBL(outer->value, 0, 0);
        CHECK(step->begin_ns <= outer->begin_ns && outer->begin_ns <= inner->begin_ns);
        CHECK(inner->end_ns <= outer->end_ns && outer->end_ns <= step->end_ns);
        CHECK_STR(open->name, "left_open");
        CHECK_INT(open->end_ns, step->end_ns);
    }
    rig_free(&rig);
}

// Every field of a record follows from its index, so that a torn one shows.
static void many_steps(void *arg)
{
    uint32_t count = *(uint32_t *)arg;

    for (uint32_t i = 0; i < count; i++) {
        char name[UG_STEP_NAME_BYTES];

        ug_step_begin();
        memset(name, 'a' + (int)(i % 26), sizeof(name));
        name[1 + i % 22] = '\0';
        ug_step_phase_begin(name);
        ug_step_phase_end();
        ug_step_end((double)i * 3);
    }
}

static void check_untorn(const struct rig *rig)
{
    uint64_t torn = 0, last_ns = 0;

    for (uint64_t i = 0; i < rig->log_count; i++) {
        const struct ug_step_record *record = &rig->log[i];
        uint32_t step = record->step;

        torn += record->end_ns < record->begin_ns || record->end_ns < last_ns;
        last_ns = record->end_ns;
        if (record->kind == UG_RECORD_STEP) {
            torn += record->value != (double)step * 3 || record->name[0] != '\0';
        } else {
            torn += record->kind != UG_RECORD_PHASE || strlen(record->name) != 1 + step % 22 ||
                    record->name[0] != (char)('a' + step % 26) ||
                    record->name[step % 22] != record->name[0];
        }
    }
    CHECK_INT(torn, 0);
}

static uint64_t race(uint64_t ring_records, uint32_t steps)
{
    struct rig rig = rig_make(&(struct reader_opts){.open = true, .ring_records = ring_records});
    struct reader_counters counters;
    pid_t pid = rig_fork(many_steps, &steps);

    rig_wait_claimed(&rig, 1);
    while (waitpid(pid, NULL, WNOHANG) == 0) {
        for (int i = 0; i < 2000; i++) { // as fast as can be, to meet a record half written
            if (reader_drain(rig.reader, 0, rig_log, NULL, &rig, NULL) != 0) {
                break;
            }
        }
    }
    rig_drain(&rig, 0);
    CHECK_INT(reader_counters(rig.reader, 0, &counters), 0);
    CHECK_INT(counters.records_kept, rig.log_count);
    CHECK_INT(counters.records_kept + counters.records_dropped, 2 * (uint64_t)steps);
    check_untorn(&rig);
    rig_free(&rig);
    return counters.records_dropped;
}

TEST(racing_reader_loses_nothing)
{
    CHECK_INT(race(65536, 30000), 0);
}

TEST(racing_reader_on_a_small_ring_counts_what_it_loses)
{
    race(16, 50000);
}

TEST(full_ring_drops_and_counts)
{
    struct rig rig = rig_make(&(struct reader_opts){.open = true, .ring_records = 64});
    struct reader_counters counters;
    uint32_t steps = 500;

    CHECK_INT(rig_join(rig_fork(many_steps, &steps)), 0);
    rig_drain(&rig, 0);
    CHECK_INT(rig.log_count, 64);
    CHECK_INT(rig_find(&rig, UG_RECORD_STEP, 0)->step, 0);
    CHECK_INT(reader_counters(rig.reader, 0, &counters), 0);
    CHECK_INT(counters.records_kept, 64);
    CHECK_INT(counters.records_dropped, 2 * 500 - 64);
    rig_free(&rig);
}

enum { TENSORS = 3000 };

static void many_tensors(void *arg)
{
    static float values[5000];

    (void)arg;
    for (uint32_t i = 0; i < TENSORS; i++) {
        char name[32];
        uint32_t count = i * 37 % 5000;

        for (uint32_t k = 0; k < count; k++) {
            values[k] = (float)(i + k);
        }
        snprintf(name, sizeof(name), "tensor.%.*s.%u", (int)(i % 9), "xxxxxxxxx", i);
        ug_step_begin();
        ug_step_tensor(name, UG_DTYPE_FLOAT32, values, count);
        ug_step_end(1);
    }
}

struct tensor_log {
    uint64_t kept, wrong;
};

static void log_tensor(void *arg, uint32_t slot_idx, const struct reader_bytes *bytes)
{
    struct tensor_log *log = arg;
    const float *values = bytes->payload;
    char name[32];

    log->kept++;
    snprintf(
            name, sizeof(name), "tensor.%.*s.%u", (int)(bytes->step % 9), "xxxxxxxxx", bytes->step);
    log->wrong += slot_idx != 0 || bytes->kind != UG_BYTES_TENSOR ||
            strcmp(name, bytes->name) != 0 || bytes->dtype != UG_DTYPE_FLOAT32 ||
            bytes->count != bytes->step * 37 % 5000 || bytes->payload_bytes != 4 * bytes->count;
    for (uint64_t k = 0; k < bytes->count; k++) {
        log->wrong += values[k] != (float)(bytes->step + k);
    }
}

TEST(tensors_wrap_and_stay_whole)
{
    struct rig rig = rig_make(&(struct reader_opts){.open = true, .ring_bytes = 65536});
    struct reader_counters counters;
    struct tensor_log log = {0};
    struct error err = {0};
    pid_t pid = rig_fork(many_tensors, NULL);

    rig_wait_claimed(&rig, 1);
    while (waitpid(pid, NULL, WNOHANG) == 0) {
        CHECK_INT(reader_drain(rig.reader, 0, NULL, log_tensor, &log, &err), 0);
    }
    CHECK_INT(reader_drain(rig.reader, 0, NULL, log_tensor, &log, &err), 0);
    CHECK_INT(reader_counters(rig.reader, 0, &counters), 0);
    CHECK_INT(counters.bytes_kept, log.kept);
    CHECK_INT(counters.bytes_kept + counters.bytes_dropped, TENSORS);
    CHECK(log.kept > 10);
    CHECK_INT(log.wrong, 0);
    rig_free(&rig);
}

static void count_bytes(void *arg, uint32_t slot_idx, const struct reader_bytes *bytes)
{
    (void)slot_idx;
    (void)bytes;
    (*(int *)arg)++;
}

static void one_tensor(void *arg)
{
    static double values[32768]; // 256 KiB

    ug_step_begin();
    ug_step_tensor("output", UG_DTYPE_FLOAT64, values, *(uint64_t *)arg);
    ug_step_end(1);
}

TEST(a_ring_of_bytes_that_fills_is_seen)
{
    struct rig rig = rig_make(&(struct reader_opts){.open = true, .ring_bytes = 1 << 20});
    uint64_t count = 1000;
    struct error err = {0};
    int tensors = 0;

    CHECK(!reader_is_filling(rig.reader));
    CHECK_INT(rig_join(rig_fork(one_tensor, &count)), 0);
    CHECK(!reader_is_filling(rig.reader));
    count = 32768; // a quarter, and what stands before it
    CHECK_INT(rig_join(rig_fork(one_tensor, &count)), 0);
    CHECK(reader_is_filling(rig.reader));
    CHECK_INT(reader_drain(rig.reader, 1, NULL, count_bytes, &tensors, &err), 0);
    CHECK_INT(tensors, 1);
    CHECK(!reader_is_filling(rig.reader));
    rig_free(&rig);
}

static void odd_calls(void *arg)
{
    static const char big[100000];
    char name[400];

    (void)arg;
    memset(name, 'n', sizeof(name));
    name[399] = '\0';
    ug_step_begin();
    ug_step_tensor(name, UG_DTYPE_INT8, big, 8); // name cut: truncated 1
    ug_step_tensor("too big", UG_DTYPE_INT8, big, sizeof(big));
    ug_step_tensor("overflow", UG_DTYPE_FLOAT64, big, UINT64_MAX / 4);
    ug_step_tensor(NULL, UG_DTYPE_FLOAT64, NULL, 0);
    for (int i = 0; i < 10; i++) {
        ug_step_phase_begin(i == 0 ? "a phase of a name too long" : "deep"); // 1 cut, 2 too deep
    }
    for (int i = 0; i < 10; i++) {
        ug_step_phase_end();
    }
    ug_step_phase_end(); // misplaced 1
    ug_step_begin();     // misplaced 2, nested
    ug_step_end(99);     // ends the nested one
    ug_step_end(1);
    ug_step_end(2);            // misplaced 3
    ug_step_loss(1);           // misplaced 4
    ug_step_phase_begin(NULL); // misplaced 5
}

TEST(odd_calls_are_counted)
{
    struct rig rig = rig_make(&(struct reader_opts){.open = true, .ring_bytes = 65536});
    struct reader_counters counters;

    CHECK_INT(rig_join(rig_fork(odd_calls, NULL)), 0);
    rig_drain(&rig, 0);
    CHECK_INT(rig_count(&rig, UG_RECORD_STEP), 1);
    CHECK_DBL(rig_find(&rig, UG_RECORD_STEP, 0)->value, 1, 0);
    CHECK_INT(rig_count(&rig, UG_RECORD_PHASE), UG_STEP_PHASE_DEPTH_MAX);
    CHECK_STR(rig_find(&rig, UG_RECORD_PHASE, 7)->name, "a phase of a name too l");
    CHECK_INT(reader_counters(rig.reader, 0, &counters), 0);
    CHECK_INT(counters.bytes_kept, 2);
    CHECK_INT(counters.bytes_dropped, 2);
    CHECK_INT(counters.truncated, 4);
    CHECK_INT(counters.misplaced, 5);
    rig_free(&rig);
}

static void *foreign_thread(void *arg)
{
    (void)arg;
    for (int i = 0; i < 100; i++) {
        ug_step_begin();
        ug_step_loss(-1);
        ug_step_end(-1);
    }
    return NULL;
}

static void two_threads(void *arg)
{
    pthread_t thread;

    (void)arg;
    ug_step_begin();
    pthread_create(&thread, NULL, foreign_thread, NULL);
    pthread_join(thread, NULL);
    ug_step_loss(1);
    ug_step_end(1);
}

TEST(steps_of_another_thread_do_not_mix_in)
{
    struct rig rig = rig_make(&(struct reader_opts){.open = true});
    struct reader_counters counters;

    CHECK_INT(rig_join(rig_fork(two_threads, NULL)), 0);
    rig_drain(&rig, 0);
    CHECK_INT(rig.log_count, 2);
    CHECK_DBL(rig_find(&rig, UG_RECORD_LOSS, 0)->value, 1, 0);
    CHECK_INT(reader_counters(rig.reader, 0, &counters), 0);
    CHECK_INT(counters.misplaced, 300);
    rig_free(&rig);
}

static void *many_steps_thread(void *arg)
{
    many_steps(arg);
    return NULL;
}

static void racing_threads(void *arg)
{
    uint32_t *steps = arg;
    pthread_t threads[3];

    for (int i = 0; i < 3; i++) {
        pthread_create(&threads[i], NULL, many_steps_thread, steps);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
}

TEST(racing_threads_leave_whole_records)
{
    struct rig rig = rig_make(&(struct reader_opts){.open = true});
    uint32_t steps = 5000;
    uint64_t backwards = 0;

    CHECK_INT(rig_join(rig_fork(racing_threads, &steps)), 0);
    rig_drain(&rig, 0);
    CHECK(rig_count(&rig, UG_RECORD_STEP) > 0);
    CHECK_INT(2 * rig_count(&rig, UG_RECORD_STEP), rig.log_count);
    for (uint64_t i = 1; i < rig.log_count; i++) {
        backwards +=
                rig.log[i].step < rig.log[i - 1].step || rig.log[i].end_ns < rig.log[i - 1].end_ns;
    }
    CHECK_INT(backwards, 0);
    rig_free(&rig);
}

enum { CONTROL_STEPS = 40, CONTROL_WORK_NS = 1000000 };

static void working_steps(void *arg)
{
    (void)arg;
    for (int i = 0; i < CONTROL_STEPS; i++) {
        ug_step_begin();
        uint64_t until_ns = ug_impl_now_ns() + CONTROL_WORK_NS;
        while (ug_impl_now_ns() < until_ns) {
        }
        ug_step_end(1);
    }
}

// Shortest of steps that work for 1 ms each, held longer by a share.
static uint64_t shortest_step_ns(uint32_t control_ppm)
{
    struct rig rig = rig_make(&(struct reader_opts){.open = true, .control_ppm = control_ppm});
    uint64_t shortest = UINT64_MAX;

    CHECK_INT(rig_join(rig_fork(working_steps, NULL)), 0);
    rig_drain(&rig, 0);
    CHECK_INT(rig.log_count, CONTROL_STEPS);
    for (uint64_t i = 0; i < rig.log_count; i++) {
        uint64_t ns = rig.log[i].end_ns - rig.log[i].begin_ns;

        shortest = ns < shortest ? ns : shortest;
    }
    rig_free(&rig);
    return shortest;
}

TEST(a_control_makes_every_step_longer)
{
    CHECK(shortest_step_ns(0) < CONTROL_WORK_NS * 3 / 2); // or the next line would say nothing
    CHECK(shortest_step_ns(500000) >= CONTROL_WORK_NS * 3 / 2);
    CHECK(shortest_step_ns(2000000) >= CONTROL_WORK_NS * 3);
}
