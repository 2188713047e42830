// SPDX-License-Identifier: Apache-2.0
// The writer's side of the spool: every record arrives whole and once or is counted, with many
// threads and a reader that drains meanwhile; full rings, threads that end, forks; ids of texts by
// content and by address.
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/unit/test_spool_marks.h"
#include "tracer/inject/spool/spool_writer.h"

TEST(every_record_arrives_whole_and_once_or_is_counted)
{
    struct seen seen = {0};
    struct writer writers[THREADS] = {0};
    pthread_t reader;
    CHECK_INT(spool_create(), 0);
    struct spool_rig *rig = spool_rig_open(see_mark, &seen);
    pthread_create(&reader, NULL, read_all, rig);
    for (int i = 0; i < THREADS; i++) {
        writers[i].index = (uint64_t)i;
        pthread_create(&writers[i].thread, NULL, write_many, &writers[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(writers[i].thread, NULL);
    __atomic_store_n(&stop_reading, true, __ATOMIC_RELEASE);
    pthread_join(reader, NULL);
    const struct ug_spool_counts *counts = &rig->header->counts[UG_PRODUCER_PYTHON];
    uint64_t kept = 0;
    for (int i = 0; i < THREADS; i++) {
        CHECK_INT(seen.count[i], writers[i].kept);
        kept += writers[i].kept;
    }
    CHECK_INT(seen.wrong + rig->broken, 0);
    CHECK_INT(counts->seen, THREADS * RECORDS);
    CHECK_INT(counts->seen - counts->dropped, kept);
    CHECK(kept > RECORDS);
    CHECK_INT(rig->header->threads, THREADS);
    CHECK_INT(spool_rig_count(rig, UG_SEGMENT_FREE), UG_SPOOL_SEGMENT_COUNT); // all threads ended
}

TEST(the_segments_that_were_read_are_used_again)
{
    CHECK_INT(spool_create(), 0);
    struct seen seen = {0};
    struct spool_rig *rig = spool_rig_open(see_mark, &seen);
    for (uint64_t i = 0; i < 100000; i++) { // 12 segments
        write_mark(0, i);
        if (i % 1000 == 0)
            spool_rig_drain(rig);
    }
    spool_rig_drain(rig);
    CHECK_INT(seen.count[0], 100000);
    uint32_t used = 0;
    for (uint32_t i = 0; i < UG_SPOOL_SEGMENT_COUNT; i++)
        used += rig->segments[i].sequence != 0;
    CHECK(used <= 3);
}

// A thread that decodes: room for many records at once.
static void *ask_for_room(void *ret_room)
{
    return spool_room(64, ret_room);
}

TEST(a_full_ring_drops_and_counts_and_takes_again)
{
    CHECK_INT(spool_create(), 0);
    struct seen seen = {0};
    struct spool_rig *rig = spool_rig_open(see_mark, &seen);
    rig->hold = true;
    const uint64_t room = (uint64_t)(UG_SPOOL_SEGMENT_COUNT - SPOOL_DECODER_SEGMENTS) *
            (UG_SPOOL_SEGMENT_BYTES / sizeof(struct ug_rec_mark));
    uint64_t kept = 0;
    for (uint64_t i = 0; i < room + 1000; i++)
        kept += write_mark(1, i);
    CHECK_INT(kept, room);
    CHECK_INT(rig->header->counts[UG_PRODUCER_PYTHON].dropped, 1000);
    CHECK_INT(
            spool_rig_count(rig, UG_SEGMENT_FULL), UG_SPOOL_SEGMENT_COUNT - SPOOL_DECODER_SEGMENTS);
    pthread_t decoder;
    size_t decoder_room = 0;
    void *at = NULL;
    CHECK_INT(pthread_create(&decoder, NULL, ask_for_room, &decoder_room), 0);
    CHECK_INT(pthread_join(decoder, &at), 0);
    CHECK(at && decoder_room == UG_SPOOL_SEGMENT_BYTES);
    spool_rig_drain(rig);
    CHECK_INT(seen.count[1], room);
    // One segment is enough to go on, wherever it is.
    __atomic_store_n(&rig->segments[100].state, UG_SEGMENT_FREE, __ATOMIC_RELEASE);
    int tries = 0;
    while (!write_mark(1, 0) && tries < 100)
        tries++;
    CHECK(tries < 8);
    CHECK_INT(rig->segments[100].state, UG_SEGMENT_WRITING);
    CHECK_INT(rig->segments[100].tid, syscall(SYS_gettid));
}

static void *write_one(void *user)
{
    write_mark(*(uint64_t *)user, 7);
    return NULL;
}

TEST(a_thread_that_ends_hands_its_segment_over)
{
    CHECK_INT(spool_create(), 0);
    struct seen seen = {0};
    struct spool_rig *rig = spool_rig_open(see_mark, &seen);
    uint64_t index = 2;
    for (int i = 0; i < 600; i++) { // more threads than segments
        pthread_t thread;
        CHECK_INT(pthread_create(&thread, NULL, write_one, &index), 0);
        pthread_join(thread, NULL);
        if (i % 50 == 0) {
            CHECK(spool_rig_count(rig, UG_SEGMENT_FULL) > 0);
            CHECK_INT(spool_rig_count(rig, UG_SEGMENT_WRITING), 0);
            spool_rig_drain(rig);
        }
    }
    spool_rig_drain(rig);
    CHECK_INT(seen.count[2], 600);
    CHECK_INT(rig->header->threads, 600);
}

TEST(a_flush_gives_a_half_full_segment_to_the_reader)
{
    CHECK_INT(spool_create(), 0);
    struct seen seen = {0};
    struct spool_rig *rig = spool_rig_open(see_mark, &seen);
    write_mark(0, 1);
    CHECK_INT(spool_rig_count(rig, UG_SEGMENT_WRITING), 1);
    spool_rig_drain(rig);
    CHECK_INT(seen.count[0], 1); // read before it is full
    write_mark(0, 2);
    spool_flush_thread();
    spool_flush_thread();
    CHECK_INT(spool_rig_count(rig, UG_SEGMENT_FULL), 1);
    spool_rig_drain(rig);
    CHECK_INT(seen.count[0], 2);
    CHECK_INT(spool_rig_count(rig, UG_SEGMENT_FREE), UG_SPOOL_SEGMENT_COUNT);
}

TEST(what_is_reserved_and_not_published_is_not_seen)
{
    CHECK_INT(spool_create(), 0);
    struct spool_rig *rig = spool_rig_open(NULL, NULL);
    CHECK(spool_reserve(UG_PRODUCER_NCCL, 64) != NULL);
    spool_rig_drain(rig);
    CHECK_INT(rig->records, 0);
    CHECK(spool_reserve(UG_PRODUCER_NCCL, 12) == NULL); // not a multiple of 8
    CHECK(spool_reserve(UG_PRODUCER_NCCL, 8200) == NULL);
    CHECK_INT(rig->header->counts[UG_PRODUCER_NCCL].seen, 3);
    CHECK_INT(rig->header->counts[UG_PRODUCER_NCCL].dropped, 2);
    spool_count(UG_PRODUCER_NCCL);
    CHECK_INT(rig->header->counts[UG_PRODUCER_NCCL].seen, 4);
}

TEST(a_child_has_no_spool_and_leaves_the_parents_alone)
{
    CHECK_INT(spool_create(), 0);
    CHECK_INT(spool_create(), -EEXIST);
    struct seen seen = {0};
    struct spool_rig *rig = spool_rig_open(see_mark, &seen);
    write_mark(0, 1);
    pid_t child = fork();
    if (child == 0) {
        int fd;
        spool_forget();
        bool good = !spool_header() && !spool_reserve(UG_PRODUCER_CALL, 64) &&
                !spool_string("child", 5) && !spool_static_string("child") &&
                spool_rig_fds(&fd) == 0 && spool_tid() == (uint32_t)getpid();
        spool_count(UG_PRODUCER_CALL);
        spool_publish(64);
        spool_flush_thread();
        spool_forget();
        _exit(good ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK_INT(status, 0);
    CHECK(write_mark(0, 2));
    spool_rig_drain(rig);
    CHECK_INT(seen.count[0], 2);
    CHECK_INT(rig->header->counts[UG_PRODUCER_CALL].seen, 0);
    CHECK_INT(rig->header->pid, getpid());
}

// A daemon closes all from 3 on and opens its own: the number of the spool's descriptor is that
// one's then.
TEST(a_child_that_has_closed_all_keeps_its_own_descriptor)
{
    CHECK_INT(spool_create(), 0);
    int fd = -1;
    CHECK_INT(spool_rig_fds(&fd), 1);
    pid_t child = fork();
    if (child == 0) {
        int own[2];
        bool good = pipe(own) == 0 && dup2(own[1], fd) == fd;
        spool_forget();
        _exit(good && fcntl(fd, F_GETFD) >= 0 && write(fd, "x", 1) == 1 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK_INT(status, 0);
}

TEST(a_dormant_spool_has_no_memory)
{
    CHECK_INT(spool_create(), 0);
    int fd = -1;
    struct stat stat = {0};
    CHECK_INT(spool_rig_fds(&fd), 1);
    CHECK_INT(fstat(fd, &stat), 0);
    CHECK_INT(stat.st_size, spool_header()->file_bytes);
    CHECK(stat.st_blocks * 512 <= sysconf(_SC_PAGESIZE)); // the header's
    CHECK_INT(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    CHECK(ftruncate(fd, 0) < 0); // sealed: no reader can be made to fault
    spool_prepare(4);
    CHECK_INT(fstat(fd, &stat), 0);
    CHECK(stat.st_blocks * 512 >= 4 * (long)UG_SPOOL_SEGMENT_BYTES);
    CHECK(stat.st_blocks * 512 < 5 * (long)UG_SPOOL_SEGMENT_BYTES);
}

TEST(a_limit_on_file_sizes_is_an_error_and_no_signal)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 1 << 20;
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK_INT(spool_create(), -EFBIG);
    CHECK(spool_header() == NULL && !spool_reserve(UG_PRODUCER_CALL, 64));
}

// --- strings -------------------------------------------------------------------------------------

struct texts {
    int count;
    uint32_t ids[64];
    char text[64][4100];
};

static void see_text(struct spool_rig *rig, const struct ug_rec_head *head)
{
    struct texts *texts = rig->user;
    const struct ug_rec_string *record = (const void *)head;
    if (head->type != UG_REC_STRING || texts->count == 64)
        return;
    const char *text = (const char *)(record + 1);
    CHECK(strlen(text) == record->text_bytes); // an end is always there
    CHECK(sizeof *record + record->text_bytes < head->bytes);
    texts->ids[texts->count] = record->id;
    memcpy(texts->text[texts->count++], text, record->text_bytes + 1);
}

static struct texts texts;

TEST(texts_have_ids_by_content)
{
    CHECK_INT(spool_create(), 0);
    struct spool_rig *rig = spool_rig_open(see_text, &texts);
    uint32_t one = spool_string("layers.3.attn", 13), two = spool_string("layers.3.attnX", 13);
    CHECK_INT(one, 1);
    CHECK_INT(two, one);
    CHECK_INT(spool_string("layers.3.att", 12), 2);
    CHECK_INT(spool_string("", 0), 0);
    CHECK_INT(spool_string(NULL, 3), 0);
    spool_rig_drain(rig);
    CHECK_INT(texts.count, 2);
    CHECK_STR(texts.text[0], "layers.3.attn");
    CHECK_STR(texts.text[1], "layers.3.att");
    spool_restart_strings();
    CHECK_INT(spool_string("layers.3.att", 12), 2);
    CHECK_INT(spool_string("layers.3.att", 12), 2);
    spool_rig_drain(rig);
    CHECK_INT(texts.count, 3);
    CHECK_INT(texts.ids[2], 2);
}

TEST(long_texts_are_cut_between_characters)
{
    CHECK_INT(spool_create(), 0);
    struct spool_rig *rig = spool_rig_open(see_text, &texts);
    char text[5000];
    memset(text, 'a', sizeof text);
    memcpy(text + 3998, "\xe2\x82\xac", 3); // a euro across the limit
    uint32_t id = spool_string(text, sizeof text);
    CHECK(id > 0);
    text[4999] = 0;
    CHECK_INT(spool_static_string(text), id);
    spool_rig_drain(rig);
    CHECK_INT(texts.count, 1);
    CHECK_INT(strlen(texts.text[0]), 3998);
}

TEST(texts_have_ids_by_address_until_those_are_forgotten)
{
    CHECK_INT(spool_create(), 0);
    struct spool_rig *rig = spool_rig_open(see_text, &texts);
    static char name[] = "kernel_a";
    uint32_t a = spool_static_string(name);
    CHECK_INT(spool_string("kernel_a", 8), a);
    name[7] = 'b'; // a module was unloaded and another lies there
    CHECK_INT(spool_static_string(name), a);
    spool_forget_addresses();
    uint32_t b = spool_static_string(name);
    CHECK(b != a && b > 0);
    spool_restart_strings();
    CHECK_INT(spool_static_string(name), b);
    CHECK_INT(spool_static_string(NULL), 0);
    spool_rig_drain(rig);
    CHECK_INT(texts.count, 3);
    CHECK_STR(texts.text[2], "kernel_b");
}

TEST(a_full_table_gives_no_id_and_counts_it)
{
    CHECK_INT(spool_create(), 0);
    struct spool_rig *rig = spool_rig_open(NULL, NULL);
    char text[32];
    uint32_t given = 0, last = 0;
    for (int i = 0; i < 70000; i++) {
        int length = snprintf(text, sizeof text, "range %d", i);
        uint32_t id = spool_string(text, (size_t)length);
        given += id != 0;
        last = id ? id : last;
        if (i % 4096 == 0)
            spool_rig_drain(rig);
    }
    const int room = 3 << 14; // of 65,536
    CHECK_INT(given, room);
    CHECK_INT(last, room);
    CHECK_INT(rig->header->counts[UG_PRODUCER_OTHER].dropped, 70000 - room);
    CHECK_INT(spool_static_string("a kernel"), room + 1); // has a part of its own
    CHECK_INT(spool_string("a kernel", 8), room + 1);
    CHECK_INT(spool_string("range 5", 7), 6); // known ones work on
}

TEST(a_text_that_found_no_room_is_written_later)
{
    CHECK_INT(spool_create(), 0);
    struct spool_rig *rig = spool_rig_open(see_text, &texts);
    while (write_mark(0, 0))
        ;
    CHECK_INT(spool_string("late", 4), 0);
    spool_rig_drain(rig);
    uint32_t id = 0;
    for (int i = 0; !id && i < 8; i++)
        id = spool_string("late", 4);
    CHECK(id > 0);
    spool_rig_drain(rig);
    CHECK_INT(texts.count, 1);
    CHECK_STR(texts.text[0], "late");
}

static uint32_t id_of[THREADS][500];

static void *name_things(void *user)
{
    uint32_t *ids = user;
    char text[32];
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < 500; i++) {
            int length = snprintf(text, sizeof text, "thing %d", i);
            ids[i] = spool_string(text, (size_t)length);
        }
    return NULL;
}

TEST(all_threads_get_the_same_ids)
{
    CHECK_INT(spool_create(), 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, name_things, id_of[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    int wrong = 0;
    for (int t = 0; t < THREADS; t++)
        for (int i = 0; i < 500; i++)
            wrong += !id_of[t][i] || id_of[t][i] != id_of[0][i] ||
                    (i && id_of[t][i] == id_of[t][i - 1]);
    CHECK_INT(wrong, 0);
}
