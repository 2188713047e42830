// SPDX-License-Identifier: Apache-2.0
// The writer's side of the spool when recording is over: memory goes back to the system, and at the
// end of the process what is counted is kept or dropped, whatever its threads do.
#include <sys/wait.h>
#include <time.h>

#include "tests/unit/test_spool_marks.h"

// --- memory --------------------------------------------------------------------------------------

static long long spool_bytes(void)
{
    int fd = -1;
    struct stat stat = {0};
    CHECK_INT(spool_rig_fds(&fd), 1);
    CHECK_INT(fstat(fd, &stat), 0);
    return (long long)stat.st_blocks * 512;
}

static const long long little = UG_SPOOL_HEADER_BYTES +
        UG_SPOOL_SEGMENT_COUNT * sizeof(struct ug_spool_segment) + (128 << 10);

TEST(what_was_read_gives_its_memory_back)
{
    CHECK_INT(spool_create(), 0);
    struct seen seen = {0};
    struct spool_rig *rig = spool_rig_open(see_mark, &seen);
    spool_prepare(16);
    for (uint64_t i = 0; i < 400000; i++) // 49 segments
        write_mark(0, i);
    CHECK(spool_bytes() > 48ll * UG_SPOOL_SEGMENT_BYTES);
    spool_give_back(false); // nobody has read anything yet
    CHECK(spool_bytes() > 48ll * UG_SPOOL_SEGMENT_BYTES);
    spool_flush_thread();
    spool_rig_drain(rig);
    CHECK_INT(seen.count[0], 400000);
    spool_give_back(false);
    CHECK(spool_bytes() < little);
    CHECK_INT(spool_rig_count(rig, UG_SEGMENT_FREE), UG_SPOOL_SEGMENT_COUNT);
    for (uint64_t i = 0; i < 20000; i++)
        CHECK(write_mark(0, i));
    spool_rig_drain(rig);
    CHECK_INT(seen.count[0], 420000);
    CHECK_INT(seen.wrong + rig->broken, 0);
}

TEST(what_nobody_reads_is_given_up_when_it_is_said_to_be)
{
    CHECK_INT(spool_create(), 0);
    struct seen seen = {0};
    struct spool_rig *rig = spool_rig_open(see_mark, &seen);
    for (uint64_t i = 0; i < 100000; i++)
        write_mark(0, i);
    CHECK_INT(spool_rig_count(rig, UG_SEGMENT_FULL), 12);
    spool_give_back(true);
    CHECK(spool_bytes() < little);
    CHECK_INT(spool_rig_count(rig, UG_SEGMENT_FULL), 0);
    // that of the thread, which may write on
    CHECK_INT(spool_rig_count(rig, UG_SEGMENT_WRITING), 1);
    spool_rig_drain(rig);
    CHECK_INT(rig->broken, 1); // a reader that was only stopped is told so
    for (uint64_t i = 0; i < 20000; i++)
        CHECK(write_mark(0, i));
    spool_rig_drain(rig);
    CHECK_INT(seen.count[0], 20000);
    CHECK_INT(seen.wrong + rig->broken, 1);
}

static uint64_t read_of(uint64_t sequence, uint64_t bytes)
{
    return sequence << UG_SPOOL_READ_BITS | bytes;
}

TEST(what_was_let_go_of_a_segment_that_is_written_on_goes_back)
{
    CHECK_INT(spool_create(), 0);
    struct seen seen = {0};
    struct spool_rig *rig = spool_rig_open(see_mark, &seen);
    for (uint64_t i = 0; i < 6000; i++) // of 8,192
        write_mark(0, i);
    spool_rig_drain(rig);
    for (uint64_t i = 0; i < 100; i++)
        write_mark(1, i); // not read
    spool_give_back(false);
    CHECK(spool_bytes() > 6000 * (long long)sizeof(struct ug_rec_mark));
    rig->segments[0].read = read_of(rig->segments[0].sequence, rig->read[0]);
    spool_give_back(false);
    CHECK(spool_bytes() < little);
    for (uint64_t i = 0; i < 3000; i++) // and to the next one
        write_mark(2, i);
    spool_rig_drain(rig);
    CHECK_INT(seen.count[1], 100);
    CHECK_INT(seen.count[2], 3000);
    CHECK_INT(seen.wrong + rig->broken, 0);
}

// A reader is stopped for so long that it is believed to be gone. What it says then is of a take
// that is over.
TEST(what_is_let_go_of_an_earlier_take_takes_nothing_of_the_next)
{
    CHECK_INT(spool_create(), 0);
    struct seen seen = {0};
    struct spool_rig *rig = spool_rig_open(see_mark, &seen);
    for (uint64_t i = 0; i < 6000; i++)
        write_mark(0, i);
    spool_rig_drain(rig);
    uint64_t late = read_of(rig->segments[0].sequence, rig->read[0]);
    spool_flush_thread();
    spool_give_back(true);
    for (uint64_t i = 0; i < 6000; i++)
        write_mark(1, i);
    CHECK_INT(rig->segments[0].state, UG_SEGMENT_WRITING); // the same one
    rig->segments[0].read = late;
    spool_give_back(false);
    spool_rig_drain(rig);
    CHECK_INT(seen.count[1], 6000);
    CHECK_INT(seen.wrong + rig->broken, 0);
}

TEST(no_more_is_let_go_than_is_written)
{
    CHECK_INT(spool_create(), 0);
    struct seen seen = {0};
    struct spool_rig *rig = spool_rig_open(see_mark, &seen);
    struct writer other = {.index = 1};
    write_mark(0, 0);
    CHECK_INT(pthread_create(&other.thread, NULL, write_many, &other), 0);
    pthread_join(other.thread, NULL);
    rig->segments[0].read = read_of(rig->segments[0].sequence, (1 << UG_SPOOL_READ_BITS) - 1);
    spool_give_back(false);
    spool_rig_drain(rig);
    CHECK_INT(seen.count[1], RECORDS);
    CHECK_INT(other.kept, RECORDS);
    CHECK_INT(seen.count[0], 1); // less than a page
    CHECK_INT(seen.wrong + rig->broken, 0);
}

enum { WAITERS = 8 };

static uint32_t waiters_turn, waiters_done;

// Writes a mark in each turn and keeps its segment.
static void *write_in_turns(void *user)
{
    for (uint32_t turn = 1; turn <= 2; turn++) {
        while (__atomic_load_n(&waiters_turn, __ATOMIC_ACQUIRE) < turn)
            usleep(100);
        if (!write_mark((uintptr_t)user % THREADS, turn))
            abort();
        __atomic_fetch_add(&waiters_done, 1, __ATOMIC_ACQ_REL);
    }
    while (__atomic_load_n(&waiters_turn, __ATOMIC_ACQUIRE) < 3)
        usleep(100);
    return NULL;
}

static void take_turn(uint32_t turn)
{
    __atomic_store_n(&waiters_turn, turn, __ATOMIC_RELEASE);
    while (__atomic_load_n(&waiters_done, __ATOMIC_ACQUIRE) < turn * WAITERS)
        usleep(100);
}

TEST(what_was_prepared_for_threads_that_hardly_write_goes_back)
{
    pthread_t threads[WAITERS];
    struct seen seen = {0};
    uint64_t count = 0;
    CHECK_INT(spool_create(), 0);
    struct spool_rig *rig = spool_rig_open(see_mark, &seen);
    spool_prepare(16);
    for (uintptr_t i = 0; i < WAITERS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, write_in_turns, (void *)i), 0);
    take_turn(1);
    CHECK_INT(spool_rig_count(rig, UG_SEGMENT_WRITING), WAITERS);
    CHECK(spool_bytes() > 15ll * UG_SPOOL_SEGMENT_BYTES);
    spool_give_back(false);
    CHECK(spool_bytes() < little + WAITERS * 2 * sysconf(_SC_PAGESIZE));
    take_turn(2); // they write on where they were
    __atomic_store_n(&waiters_turn, 3, __ATOMIC_RELEASE);
    for (int i = 0; i < WAITERS; i++)
        pthread_join(threads[i], NULL);
    spool_rig_drain(rig);
    for (int i = 0; i < THREADS; i++)
        count += seen.count[i];
    CHECK_INT(count, 2 * WAITERS);
    CHECK_INT(seen.wrong + rig->broken, 0);
}

static bool stop_giving;

static void *give_back_all_the_time(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&stop_giving, __ATOMIC_ACQUIRE)) {
        spool_give_back(false);
        usleep(200);
    }
    return NULL;
}

// Never done while records are written, but a thread may be late.
TEST(no_record_is_lost_while_memory_goes_back)
{
    struct seen seen = {0};
    struct writer writers[THREADS] = {0};
    pthread_t reader, giver;
    CHECK_INT(spool_create(), 0);
    struct spool_rig *rig = spool_rig_open(see_mark, &seen);
    pthread_create(&reader, NULL, read_all, rig);
    pthread_create(&giver, NULL, give_back_all_the_time, NULL);
    for (int i = 0; i < THREADS; i++) {
        writers[i].index = (uint64_t)i;
        pthread_create(&writers[i].thread, NULL, write_many, &writers[i]);
    }
    uint64_t kept = 0;
    for (int i = 0; i < THREADS; i++)
        pthread_join(writers[i].thread, NULL);
    __atomic_store_n(&stop_giving, true, __ATOMIC_RELEASE);
    pthread_join(giver, NULL);
    __atomic_store_n(&stop_reading, true, __ATOMIC_RELEASE);
    pthread_join(reader, NULL);
    for (int i = 0; i < THREADS; i++) {
        CHECK_INT(seen.count[i], writers[i].kept);
        kept += writers[i].kept;
    }
    const struct ug_spool_counts *counts = &rig->header->counts[UG_PRODUCER_PYTHON];
    CHECK_INT(seen.wrong + rig->broken, 0);
    CHECK_INT(counts->seen - counts->dropped, kept);
    CHECK_INT(spool_rig_count(rig, UG_SEGMENT_FREE), UG_SPOOL_SEGMENT_COUNT);
}

// --- the end -------------------------------------------------------------------------------------

static uint64_t soon_ns(uint64_t ms)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + ms * 1000000;
}

// All that a program does until it ends: records one by one, many at once, texts, and what finds no
// room.
static void *write_until_killed(void *user)
{
    uint64_t index = (uint64_t)(uintptr_t)user;
    char text[40];
    for (uint64_t i = 0;; i++) {
        write_mark(index, i);
        if (i % 3 == 0) {
            int length = snprintf(text, sizeof text, "text %llu of %llu", (unsigned long long)i,
                    (unsigned long long)index);
            spool_string(text, (size_t)length);
        }
        if (i % 5 == 0)
            spool_drop(UG_PRODUCER_OTHER);
        if (i % 7 || !spool_enter())
            continue;
        size_t room = 0, bytes = 0;
        unsigned char *at = spool_room(sizeof(struct ug_rec_mark), &room);
        for (; at && bytes + sizeof(struct ug_rec_mark) <= room && bytes < 4096;
                bytes += sizeof(struct ug_rec_mark)) {
            uint64_t value = i + bytes;
            struct ug_rec_mark mark = {.head = {UG_REC_MARK, sizeof mark, 1},
                    .at_ns = index,
                    .value = value,
                    .name = (uint32_t)(index * 1000003 + value)};
            memcpy(at + bytes, &mark, sizeof mark);
        }
        if (bytes)
            spool_publish(bytes);
        spool_count_many(UG_PRODUCER_PYTHON, bytes / sizeof(struct ug_rec_mark), 0);
        spool_leave();
    }
    return NULL;
}

struct kinds {
    uint64_t marks, texts;
};

static void see_kind(struct spool_rig *rig, const struct ug_rec_head *head)
{
    struct kinds *kinds = rig->user;
    kinds->marks += head->type == UG_REC_MARK;
    kinds->texts += head->type == UG_REC_STRING;
}

static bool adds_up(const struct ug_spool_counts *counts, uint64_t kept, const char *what)
{
    if (counts->seen == kept + counts->dropped)
        return true;
    fprintf(stderr, "%s: seen %llu, kept %llu + dropped %llu\n", what,
            (unsigned long long)counts->seen, (unsigned long long)kept,
            (unsigned long long)counts->dropped);
    return false;
}

// As the library exits, at some moment, while others go on.
static bool end_in_the_middle(int turn)
{
    struct kinds kinds = {0};
    pthread_t thread;
    if (spool_create())
        return false;
    struct spool_rig *rig = spool_rig_open(see_kind, &kinds);
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&thread, NULL, write_until_killed, (void *)i))
            return false;
    while (!__atomic_load_n(&rig->header->counts[UG_PRODUCER_PYTHON].seen, __ATOMIC_RELAXED))
        usleep(50); // a busy machine has not begun with any of them
    usleep((useconds_t)(turn % 10 * 400));
    if (!spool_close(soon_ns(60000))) {
        fprintf(stderr, "a thread stays in the middle\n");
        return false;
    }
    const struct ug_spool_counts *counts = rig->header->counts, marks = counts[UG_PRODUCER_PYTHON],
                                 others = counts[UG_PRODUCER_OTHER];
    spool_rig_drain(rig);
    usleep(3000);
    bool is_still = !memcmp(&marks, &counts[UG_PRODUCER_PYTHON], sizeof marks) &&
            !memcmp(&others, &counts[UG_PRODUCER_OTHER], sizeof others);
    if (!is_still)
        fprintf(stderr, "counted after the end\n");
    return adds_up(&marks, kinds.marks, "marks") && adds_up(&others, kinds.texts, "others") &&
            is_still && rig->broken == 0;
}

TEST(at_the_end_all_that_is_counted_is_kept_or_dropped)
{
    for (int turn = 0; turn < 60; turn++) {
        pid_t child = fork();
        if (child == 0)
            _exit(end_in_the_middle(turn) ? 0 : 1);
        int status = -1;
        waitpid(child, &status, 0);
        CHECK_INT(status, 0);
    }
}

static uint32_t in_the_middle; // 1: a record is counted, 2: it may be published

static void *stay_in_the_middle(void *unused)
{
    struct ug_rec_mark *mark = spool_reserve(UG_PRODUCER_PYTHON, sizeof *mark);
    if (!mark)
        abort();
    __atomic_store_n(&in_the_middle, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&in_the_middle, __ATOMIC_ACQUIRE) != 2)
        usleep(100);
    *mark = (struct ug_rec_mark){.head = {UG_REC_MARK, sizeof *mark, 1}, .name = 0};
    spool_publish(sizeof *mark);
    return unused;
}

TEST(the_end_waits_for_who_has_counted_and_for_nobody_else)
{
    struct seen seen = {0};
    pthread_t thread;
    CHECK_INT(spool_create(), 0);
    struct spool_rig *rig = spool_rig_open(see_mark, &seen);
    write_mark(1, 0);
    CHECK(spool_reserve(UG_PRODUCER_PYTHON, 64) != NULL); // our own, which nobody will finish
    CHECK_INT(pthread_create(&thread, NULL, stay_in_the_middle, NULL), 0);
    while (!__atomic_load_n(&in_the_middle, __ATOMIC_ACQUIRE))
        usleep(100);
    CHECK(!spool_close(soon_ns(30)));
    CHECK(!write_mark(1, 1) && !spool_enter());
    CHECK_INT(spool_string("late", 4), 0);
    spool_drop(UG_PRODUCER_PYTHON);
    __atomic_store_n(&in_the_middle, 2, __ATOMIC_RELEASE);
    CHECK(spool_close(soon_ns(60000)));
    pthread_join(thread, NULL);
    spool_rig_drain(rig);
    CHECK_INT(seen.count[0], 1);
    CHECK_INT(seen.count[1], 1);
    CHECK_INT(rig->header->counts[UG_PRODUCER_PYTHON].seen, 3);
    CHECK_INT(rig->header->counts[UG_PRODUCER_PYTHON].dropped, 0);
    CHECK_INT(rig->header->counts[UG_PRODUCER_OTHER].seen, 0);
}
