// SPDX-License-Identifier: Apache-2.0
// Requests of servers: told by any thread while another one has a step open; a file that outlives
// its reader, and one that is not there yet when the server begins.
#include "tests/unit/test_step_rig.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { THREADS = 3, REQUESTS = 20000, STEPS = 20000 };

// Who gives up waiting for the ring has waited so long at least: its naps never end early.
#define GIVEN_UP_NS (UG_IMPL_PUT_NAPS * 50000ull)

// In memory that the case and its children share.
static uint64_t *shared_number(void)
{
    uint64_t *number =
            mmap(NULL, sizeof *number, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(number != MAP_FAILED);
    return number;
}

// The longest of all calls since they were begun.
static void note_longest(uint64_t *longest_ns, uint64_t begin_ns)
{
    uint64_t took_ns = ug_impl_now_ns() - begin_ns,
             most_ns = __atomic_load_n(longest_ns, __ATOMIC_RELAXED);

    while (took_ns > most_ns &&
            !__atomic_compare_exchange_n(
                    longest_ns, &most_ns, took_ns, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

struct teller {
    uint64_t thread, *longest_ns;
};

static void *tell_requests(void *arg)
{
    const struct teller *teller = arg;

    for (uint64_t i = 0; i < REQUESTS; i++) {
        uint64_t begin_ns = ug_impl_now_ns();

        ug_request_done(1000 * i + teller->thread, 200 + (uint32_t)teller->thread, i % 2 == 1);
        note_longest(teller->longest_ns, begin_ns);
    }
    return NULL;
}

static void serve(void *arg)
{
    pthread_t threads[THREADS];
    struct teller tellers[THREADS];

    ug_step_begin(); // calls while a process claims its slot are passed over
    ug_step_end(0);
    for (uint64_t i = 0; i < THREADS; i++) {
        tellers[i] = (struct teller){i, arg};
        pthread_create(&threads[i], NULL, tell_requests, &tellers[i]);
    }
    for (uint32_t i = 1; i < STEPS; i++) {
        uint64_t begin_ns = ug_impl_now_ns();

        ug_step_begin();
        ug_step_end(i);
        note_longest(arg, begin_ns);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

TEST(requests_of_many_threads_and_steps_of_another_are_whole)
{
    struct rig rig = rig_make(&(struct reader_opts){.open = true, .ring_records = 131072});
    struct reader_counters counters;
    uint64_t next[THREADS] = {0}, steps = 0, bad = 0, *longest_ns = shared_number();

    CHECK_INT(rig_join(rig_fork(serve, longest_ns)), 0);
    rig_drain(&rig, 0);
    CHECK_INT(reader_counters(rig.reader, 0, &counters), 0);
    // Only behind a thread that was kept from its CPU for longer than it is waited for; behind one
    // that never lets go all are.
    CHECK(counters.records_dropped == 0 || *longest_ns >= GIVEN_UP_NS);
    CHECK(counters.records_dropped < (STEPS + THREADS * REQUESTS) / 2);
    CHECK_INT(counters.misplaced, 0);
    for (uint64_t i = 0; i < rig.log_count; i++) {
        const struct ug_step_record *record = &rig.log[i];
        uint64_t thread = (uint64_t)record->value - 200;

        uint64_t request = record->begin_ns / 1000;

        if (record->kind == UG_RECORD_STEP) {
            bad += record->value < (double)steps || record->value >= STEPS ||
                    record->name[0] != '\0';
            steps = (uint64_t)record->value + 1;
            continue;
        }
        if (record->kind != UG_RECORD_REQUEST || thread >= THREADS) {
            bad++;
            continue;
        }
        bad += record->begin_ns % 1000 != thread || request < next[thread] || request >= REQUESTS ||
                record->end_ns < record->begin_ns ||
                strcmp(record->name, request % 2 == 1 ? "wrong" : "") != 0;
        next[thread] = request + 1;
    }
    CHECK_INT(bad, 0);
    CHECK_INT(rig.log_count + counters.records_dropped, STEPS + THREADS * REQUESTS);
    munmap(longest_ns, sizeof *longest_ns);
    rig_free(&rig);
}

TEST(requests_that_find_no_room_are_counted)
{
    struct rig rig = rig_make(&(struct reader_opts){.open = true, .ring_records = 64});
    struct reader_counters counters;
    uint64_t *longest_ns = shared_number();

    CHECK_INT(rig_join(rig_fork(serve, longest_ns)), 0);
    CHECK_INT(reader_counters(rig.reader, 0, &counters), 0);
    CHECK_INT(counters.records_kept, 64);
    CHECK_INT(counters.records_dropped, STEPS + THREADS * REQUESTS - 64);
    munmap(longest_ns, sizeof *longest_ns);
    rig_free(&rig);
}

static void *let_go(void *arg)
{
    uint64_t *let_go_ns = arg;

    usleep(30000);
    __atomic_store_n(&ug_step_state_v2.putting, 0, __ATOMIC_RELEASE);
    *let_go_ns = ug_impl_now_ns();
    return NULL;
}

// Who puts a record loses its CPU for longer than all yields take; then for good.
static void serve_behind(void *arg)
{
    struct ug_step_state *s = &ug_step_state_v2;
    pthread_t thread;
    uint64_t waiting_ns, let_go_ns = 0, *held_ns = arg;

    ug_request_done(1, 200, false);
    s->putting = 9;
    pthread_create(&thread, NULL, let_go, &let_go_ns);
    waiting_ns = ug_impl_now_ns();
    ug_request_done(2, 200, false);
    pthread_join(thread, NULL);
    *held_ns = let_go_ns > waiting_ns ? let_go_ns - waiting_ns : 0;
    s->putting = 9;
    int64_t begin_ns = clock_monotonic_ns();
    ug_request_done(3, 200, false);
    int64_t first_ns = clock_monotonic_ns() - begin_ns;
    for (int i = 0; i < 99; i++)
        ug_request_done(3, 200, false);
    int64_t more_ns = clock_monotonic_ns() - begin_ns - first_ns;
    // who comes behind the first one does not wait to the end, too
    if (s->putting != 11 || more_ns > 50 * first_ns)
        abort();
    s->putting = ug_impl_put_token(); // a signal handler, in the middle of a record
    ug_request_done(4, 200, false);
    ug_impl_put_end(s);
    ug_request_done(5, 200, false);
}

TEST(who_lost_its_cpu_is_waited_for)
{
    struct rig rig = rig_make(&(struct reader_opts){.open = true, .ring_records = 64});
    struct reader_counters counters;
    uint64_t *held_ns = shared_number();

    CHECK_INT(rig_join(rig_fork(serve_behind, held_ns)), 0);
    CHECK_INT(reader_counters(rig.reader, 0, &counters), 0);
    // One more where the thread that lets go got no CPU for as long as it is waited for: it was
    // looked for last before the last nap.
    CHECK(counters.records_dropped == 101 ||
            (counters.records_dropped == 102 && *held_ns >= GIVEN_UP_NS - 50000));
    rig_drain(&rig, 0);
    CHECK_INT(rig.log_count, 104 - counters.records_dropped);
    munmap(held_ns, sizeof *held_ns);
    rig_free(&rig);
}

struct demand { // pipes
    int asked[2], told[2];
};

// One request each time a byte comes; when it is done, the byte goes back.
static void serve_on_demand(void *arg)
{
    const struct demand *demand = arg;
    char byte;

    close(demand->asked[1]);
    close(demand->told[0]);
    while (read(demand->asked[0], &byte, 1) == 1) {
        ug_request_done(1, 200, false);
        if (write(demand->told[1], &byte, 1) != 1) {
            exit(1);
        }
    }
}

static void one_request(const struct demand *demand)
{
    char byte;

    CHECK_INT(write(demand->asked[1], "x", 1), 1);
    CHECK_INT(read(demand->told[0], &byte, 1), 1);
}

static struct reader *take_file(const char *path, int expected)
{
    struct reader *reader = NULL;
    struct error err = {0};

    CHECK_INT(reader_create(&reader, path, &(struct reader_opts){.open = true, .keep = true}, &err),
            expected);
    CHECK(expected == 0 || strstr(err.text, path) != NULL);
    return reader;
}

static uint64_t drained(struct rig *rig)
{
    rig->log_count = 0;
    if (reader_slot_count(rig->reader) > 0) {
        rig_drain(rig, 0);
    }
    return rig->log_count;
}

// Requests until one is seen: the file is looked for once a second.
static bool request_seen(struct rig *rig, const struct demand *demand)
{
    int64_t deadline_ns = rig_deadline(60);

    do {
        one_request(demand);
        if (drained(rig) > 0) {
            return true;
        }
        clock_sleep_until_ns(clock_monotonic_ns() + 50000000);
    } while (clock_monotonic_ns() < deadline_ns);
    return false;
}

TEST(a_kept_file_is_taken_over_and_one_that_comes_late_is_found)
{
    struct rig rig = {.log = calloc(RIG_LOG_MAX, sizeof(struct ug_step_record)),
            .log_slot = calloc(RIG_LOG_MAX, sizeof(uint32_t))};
    struct demand demand;
    pid_t pid;

    rig_path(rig.path, sizeof(rig.path));
    unlink(rig.path);
    setenv("UPGATE_STEPS", rig.path, 1);
    CHECK_INT(pipe(demand.asked) | pipe(demand.told), 0);
    pid = rig_fork(serve_on_demand, &demand);
    close(demand.asked[0]);
    close(demand.told[1]);
    one_request(&demand); // it looks for the file, in vain
    rig.reader = take_file(rig.path, 0);
    CHECK(request_seen(&rig, &demand));
    reader_free(rig.reader);
    CHECK_INT(access(rig.path, F_OK), 0);
    // The same process goes on into the same slot; what it told meanwhile is still there.
    for (int i = 0; i < 3; i++) {
        one_request(&demand);
    }
    rig.reader = take_file(rig.path, 0);
    CHECK_INT(reader_slot_count(rig.reader), 1);
    CHECK_INT(drained(&rig), 3);
    one_request(&demand);
    CHECK_INT(drained(&rig), 1);
    close(demand.asked[1]);
    CHECK_INT(rig_join(pid), 0);
    close(demand.told[0]);
    reader_free(rig.reader);
    unlink(rig.path);
    free(rig.log);
    free(rig.log_slot);
}

static void take_busy_file(void *arg)
{
    take_file(arg, -EBUSY);
}

TEST(a_file_of_somebody_else_is_left_alone)
{
    char path[64];
    struct reader *reader;
    struct stat status;

    rig_path(path, sizeof(path));
    unlink(path);
    reader = take_file(path, 0);
    CHECK_INT(rig_join(rig_fork(take_busy_file, path)), 0);
    reader_free(reader);
    CHECK_INT(truncate(path, 100000), 0);
    take_file(path, -EBADMSG);
    CHECK_INT(stat(path, &status), 0);
    CHECK_INT(status.st_size, 100000);
    unlink(path);
    CHECK_INT(mkfifo(path, 0600), 0);
    take_file(path, -EBADMSG);
    unlink(path);
    CHECK_INT(symlink("/dev/null", path), 0);
    take_file(path, -EBADMSG);
    unlink(path);
    FILE *file = fopen(path, "w");
    fprintf(file, "a letter to my mother\n");
    fclose(file);
    take_file(path, -EBADMSG);
    unlink(path);
}
