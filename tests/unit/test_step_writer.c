// SPDX-License-Identifier: Apache-2.0
// Step protocol: steps said on behalf of a process that does not speak it, and its gate.
#include "tests/unit/test_step_rig.h"

#include <sys/eventfd.h>

#include "harness/steps/writer.h"

static char said[2][64];

static void keep_text(void *arg, uint32_t slot_idx, const struct reader_bytes *bytes)
{
    int *count = arg;
    (void)slot_idx;
    if (*count < 2) {
        snprintf(said[(*count)++], sizeof(said[0]), "%s=%.*s", bytes->name,
                (int)bytes->payload_bytes, (const char *)bytes->payload);
    }
}

TEST(steps_of_another_process)
{
    struct rig rig = rig_make(&(struct reader_opts){.slot_count = 2, .open = true});
    struct step_writer *writer = NULL, *second = NULL, *third = NULL;
    struct error err = {0};
    struct reader_slot slot;
    int texts = 0;

    CHECK_INT(step_writer_claim(rig.reader, getppid(), &writer, &err), 0);
    CHECK_INT(reader_slot_count(rig.reader), 1);
    CHECK_INT(reader_slot(rig.reader, 0, &slot), 0);
    CHECK_INT(slot.pid, getppid());
    CHECK(reader_slot_alive(rig.reader, 0));
    step_writer_text(writer, "steps_from", "symbol");
    for (uint32_t i = 0; i < 3; i++) {
        step_writer_step(writer, i, 1000 * i, 1000 * i + 500);
    }
    step_writer_counts(writer, 7, 2, 40);
    rig_drain(&rig, 0);
    CHECK_INT(rig.log_count, 3);
    CHECK_INT(rig.log[2].step, 2);
    CHECK_INT(rig.log[2].end_ns, 2500);
    CHECK_INT(reader_drain(rig.reader, 0, NULL, keep_text, &texts, &err), 0);
    CHECK_INT(texts, 1);
    CHECK(strcmp(said[0], "steps_from=symbol") == 0);
    struct reader_counters counters;
    CHECK_INT(reader_counters(rig.reader, 0, &counters), 0);
    CHECK_INT(counters.misplaced, 7);
    CHECK_INT(counters.records_dropped, 2);
    // The lock that says that we live has not been dropped: another process still sees it.
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(rig.path, O_RDWR | O_CLOEXEC);
        _exit(fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? 0 : 1);
    }
    CHECK_INT(rig_join(pid), 0);
    CHECK_INT(step_writer_claim(rig.reader, getpid(), &second, &err), 0);
    CHECK_INT(step_writer_claim(rig.reader, 1, &third, &err), -ENOSPC);
    CHECK_INT(reader_refused_count(rig.reader), 1);
    step_writer_close(second);
    CHECK(!reader_slot_alive(rig.reader, 1));
    step_writer_free(writer);
    step_writer_free(second);
    step_writer_free(NULL);
    rig_free(&rig);
}

TEST(its_gate)
{
    struct rig rig = rig_make(&(struct reader_opts){.slot_count = 2});
    struct step_writer *writer = NULL;
    struct error err = {0};
    struct reader_slot slot;
    eventfd_t told = 0;
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

    reader_tell(rig.reader, fd);
    CHECK_INT(step_writer_claim(rig.reader, getpid(), &writer, &err), 0);
    CHECK_INT(reader_granted(rig.reader), 0);
    step_writer_hold(writer, 0, 123, 5);
    CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(60)), 0);
    CHECK_INT(reader_slot(rig.reader, 0, &slot), 0);
    CHECK(slot.held && slot.hold_begin_ns == 123 && slot.hold_tid == 5);
    CHECK(eventfd_read(fd, &told) != 0); // nothing was granted
    reader_grant(rig.reader, 2);
    CHECK_INT(eventfd_read(fd, &told), 0);
    CHECK_INT(reader_granted(rig.reader), 2);
    CHECK_INT(reader_wait_held(rig.reader, 1, clock_monotonic_ns()), -ETIMEDOUT);
    step_writer_go(writer);
    step_writer_step(writer, 0, 200, 300);
    step_writer_step(writer, 1, 400, 500);
    step_writer_hold(writer, 2, 500, 5);
    CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(60)), 0);
    reader_grant(rig.reader, 1);
    CHECK_INT(reader_granted(rig.reader), 3);
    reader_tell(rig.reader, -1);
    eventfd_read(fd, &told);
    reader_open_gate(rig.reader);
    CHECK_INT(reader_granted(rig.reader), UG_STEP_RUN_FREE);
    CHECK(eventfd_read(fd, &told) != 0);
    step_writer_free(writer);
    close(fd);
    rig_free(&rig);
}
