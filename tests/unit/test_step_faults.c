// SPDX-License-Identifier: Apache-2.0
// Step protocol: what may go wrong. Whatever it is, the workload runs on: no file, a foreign one,
// no slot and no memory left, fork, exec, and a harness killed while it holds us.
#include "tests/unit/test_step_rig.h"

#include <fcntl.h>
#include <sys/mount.h>

static void five_steps(void *arg)
{
    (void)arg;
    for (int i = 0; i < 5; i++) {
        ug_step_begin();
        ug_step_tensor("t", UG_DTYPE_INT32, &i, 1);
        ug_step_end(1);
    }
}

// Runs five steps in a child with this UPGATE_STEPS; returns what it printed on stderr.
static const char *said_with(const char *path)
{
    static char text[1000];
    int fd[2], status;
    ssize_t length = 0, got;
    pid_t pid;

    if (pipe(fd) != 0) {
        exit(1);
    }
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        dup2(fd[1], STDERR_FILENO);
        close(fd[0]);
        close(fd[1]);
        if (path == NULL) {
            unsetenv("UPGATE_STEPS");
        } else {
            setenv("UPGATE_STEPS", path, 1);
        }
        five_steps(NULL);
        five_steps(NULL);
        _exit(ug_step_active() ? 3 : 0);
    }
    close(fd[1]);
    while ((got = read(fd[0], text + length, sizeof(text) - 1 - (size_t)length)) > 0) {
        length += got;
    }
    text[length] = '\0';
    close(fd[0]);
    waitpid(pid, &status, 0);
    CHECK_INT(status, 0);
    return text;
}

static void check_one_line(const char *text, const char *part)
{
    CHECK_CONTAINS(text, "upgate: steps are off: '");
    CHECK_CONTAINS(text, part);
    CHECK(strchr(text, '\n') != NULL && strchr(text, '\n')[1] == '\0');
}

TEST(without_a_harness_every_call_is_silent)
{
    CHECK_STR(said_with(NULL), "");
    CHECK_STR(said_with(""), "");
}

// One recording after the other is made of a process.
TEST(a_process_goes_over_to_another_file)
{
    struct rig first = rig_make(&(struct reader_opts){.slot_count = 2, .open = true});
    struct reader_slot slot;

    ug_step_begin();
    CHECK(!ug_impl_reopen()); // not within a step
    ug_step_end(1);
    CHECK(ug_impl_reopen());
    CHECK_INT(reader_slot(first.reader, 0, &slot), 0);
    CHECK_INT(slot.state, UG_SLOT_CLOSED);
    unsetenv("UPGATE_STEPS");
    ug_step_begin(); // nobody wants to know of it
    ug_step_end(1);
    CHECK(!ug_step_active());
    rig_drain(&first, 0);
    CHECK_INT(first.log_count, 1);
    rig_free(&first);

    struct rig second = rig_make(&(struct reader_opts){.slot_count = 2, .open = true});
    ug_step_begin();
    ug_step_end(1);
    CHECK_INT(reader_slot_count(second.reader), 0); // it has been told that there is none
    CHECK(ug_impl_reopen());
    ug_step_begin();
    ug_step_end(1);
    CHECK_INT(reader_slot(second.reader, 0, &slot), 0);
    CHECK_INT(slot.state, UG_SLOT_RUNNING);
    CHECK_INT(slot.steps, 1); // counted from the begin
    rig_drain(&second, 0);
    CHECK_INT(second.log_count, 1);
    CHECK_INT(second.log[0].step, 0);
    rig_free(&second);
}

TEST(bad_files_turn_the_steps_off)
{
    struct rig rig = rig_make(NULL);
    char foreign[100];
    int fd;

    check_one_line(said_with("/proc/none/steps"), "No such file");
    check_one_line(said_with("/proc/self/exe"), "Text file busy");
    check_one_line(said_with("/dev"), "Is a directory");
    check_one_line(said_with("/dev/null"), "not a step file");
    snprintf(foreign, sizeof(foreign), "%s-foreign", rig.path);
    fd = open(foreign, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK_INT(write(fd, "hello", 5), 5);
    check_one_line(said_with(foreign), "not a step file");
    CHECK_INT(ftruncate(fd, 8192), 0);
    check_one_line(said_with(foreign), "not a step file");
    close(fd);
    unlink(foreign);

    fd = open(rig.path, O_RDWR); // drops the lock of this process, which this test does not need
    CHECK_INT(pwrite(fd, &(uint32_t){99}, 4, offsetof(struct ug_step_header, version)), 4);
    check_one_line(said_with(rig.path), "another version");
    CHECK_INT(pwrite(fd, &(uint32_t){UG_STEP_VERSION}, 4, offsetof(struct ug_step_header, version)),
            4);
    CHECK_INT(pwrite(fd, &(uint64_t){3}, 8, offsetof(struct ug_step_header, stride_bytes)), 8);
    check_one_line(said_with(rig.path), "damaged");
    close(fd);
    CHECK_INT(reader_slot_count(rig.reader), 0);
    rig_free(&rig);
}

TEST(no_slot_left_is_counted)
{
    struct rig rig = rig_make(&(struct reader_opts){.slot_count = 1, .open = true});

    CHECK_INT(rig_join(rig_fork(five_steps, NULL)), 0);
    check_one_line(said_with(rig.path), "no slot left");
    CHECK_INT(reader_refused_count(rig.reader), 1);
    CHECK_INT(reader_slot_count(rig.reader), 1);
    rig_free(&rig);
}

static void fork_within(void *arg)
{
    pid_t child;
    int status;

    (void)arg;
    five_steps(NULL);
    ug_step_begin();
    ug_step_phase_begin("parent's");
    child = fork();
    if (child == 0) {
        ug_step_loss(-1); // the parent's step is not the child's
        ug_step_end(-1);
        five_steps(NULL);
        exit(0);
    }
    waitpid(child, &status, 0);
    ug_step_end(6);
    five_steps(NULL);
    exit(status);
}

TEST(fork_gives_the_child_a_slot_of_its_own)
{
    struct rig rig = rig_make(&(struct reader_opts){.open = true});
    struct reader_slot slot;

    CHECK_INT(rig_join(rig_fork(fork_within, NULL)), 0);
    CHECK_INT(reader_slot_count(rig.reader), 2);
    CHECK_INT(reader_slot(rig.reader, 0, &slot), 0);
    CHECK_INT(slot.steps, 11);
    CHECK_INT(reader_slot(rig.reader, 1, &slot), 0);
    CHECK_INT(slot.steps, 5);
    rig_drain(&rig, 0);
    CHECK_INT(rig_count(&rig, UG_RECORD_STEP), 11);
    CHECK_DBL(rig_find(&rig, UG_RECORD_STEP, 5)->value, 6, 0);
    CHECK_INT(rig_count(&rig, UG_RECORD_PHASE), 1);
    CHECK_INT(rig_count(&rig, UG_RECORD_LOSS), 0);
    rig_free(&rig);
}

// The second life of this program, after exec.
__attribute__((constructor)) static void after_exec(void)
{
    if (getenv("TEST_STEP_EXEC") != NULL) {
        five_steps(NULL);
        exit(0);
    }
}

static void exec_within(void *arg)
{
    (void)arg;
    five_steps(NULL);
    setenv("TEST_STEP_EXEC", "1", 1);
    execl("/proc/self/exe", "test_step_faults", (char *)NULL);
    _exit(9);
}

TEST(exec_goes_on_in_the_same_slot)
{
    struct rig rig = rig_make(&(struct reader_opts){.open = true});
    struct reader_slot slot;

    CHECK_INT(rig_join(rig_fork(exec_within, NULL)), 0);
    CHECK_INT(reader_slot_count(rig.reader), 1);
    CHECK_INT(reader_slot(rig.reader, 0, &slot), 0);
    CHECK_INT(slot.steps, 10);
    CHECK_INT(slot.state, UG_SLOT_CLOSED);
    rig_drain(&rig, 0);
    CHECK_INT(rig.log_count, 10);
    CHECK_INT(rig.log[9].step, 9);
    rig_free(&rig);
}

static void second_copy(void *arg)
{
    if (freopen("/dev/null", "w", stderr) == NULL) { // it says so, in the one line tested above
        _exit(2);
    }
    five_steps(NULL);
    memset(&ug_step_state_v2, 0, sizeof(ug_step_state_v2)); // as a library with its own state would
    five_steps(arg);
    _exit(ug_step_active());
}

TEST(second_copy_in_a_process_stays_off)
{
    struct rig rig = rig_make(&(struct reader_opts){.open = true});
    struct reader_slot slot;

    CHECK_INT(rig_join(rig_fork(second_copy, NULL)), 0);
    CHECK_INT(reader_slot_count(rig.reader), 1);
    CHECK_INT(reader_slot(rig.reader, 0, &slot), 0);
    CHECK_INT(slot.steps, 5);
    rig_free(&rig);
}

static void harness_that_holds(void *arg)
{
    struct error err = {0};
    struct reader *reader;

    if (reader_create(&reader, arg, NULL, &err) != 0) {
        _exit(1);
    }
    for (;;) {
        pause();
    }
}

TEST(killed_harness_lets_a_held_side_go)
{
    char path[64];
    pid_t harness, workload;
    int64_t killed_ns;

    rig_path(path, sizeof(path));
    unlink(path);
    harness = rig_fork(harness_that_holds, path);
    setenv("UPGATE_STEPS", path, 1);
    for (int i = 0; i < 1000; i++) {
        uint64_t magic = 0;
        int fd = open(path, O_RDONLY);

        if (fd >= 0 && read(fd, &magic, sizeof(magic)) == 8 && magic == UG_STEP_MAGIC) {
            close(fd);
            break;
        }
        if (fd >= 0) {
            close(fd);
        }
        usleep(10000);
    }
    workload = rig_fork(five_steps, NULL);
    usleep(1500000); // longer than the check for a living harness
    CHECK_INT(waitpid(workload, NULL, WNOHANG), 0);
    CHECK_INT(reader_sweep("/dev/shm", path + strlen("/dev/shm/")), 0); // alive: not swept
    CHECK_INT(reader_sweep("/proc/none", ""), 0);
    killed_ns = clock_monotonic_ns();
    kill(harness, SIGKILL);
    rig_join(harness);
    CHECK_INT(rig_join(workload), 0);
    CHECK(clock_monotonic_ns() - killed_ns < 60 * RIG_SECOND_NS);
    CHECK_INT(access(path, F_OK), 0);
    CHECK_INT(reader_sweep("/dev/shm", path + strlen("/dev/shm/")), 1);
    CHECK_INT(access(path, F_OK), -1);
}

// /dev/shm is everybody's: a name in it may be a FIFO that nobody ever writes to, a link, another's
// file.
TEST(sweep_touches_regular_files_of_ours_only)
{
    const uint64_t magic = UG_STEP_MAGIC;
    char dir[] = "/tmp/upgate-test-sweep-XXXXXX", path[64], target[64];
    CHECK(mkdtemp(dir) != NULL);
    snprintf(target, sizeof(target), "%s/target", dir);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"target", "x-ours", "x-theirs"};
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        CHECK_INT(write(fd, &magic, sizeof(magic)), sizeof(magic));
        close(fd);
    }
    snprintf(target, sizeof(target), "%s/x-half-made", dir);
    // its maker was killed before it wrote anything
    int half = open(target, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    CHECK_INT(ftruncate(half, 1 << 20), 0);
    snprintf(target, sizeof(target), "%s/x-foreign", dir);
    CHECK(write(open(target, O_WRONLY | O_CREAT | O_CLOEXEC, 0666), "something", 9) == 9);
    snprintf(target, sizeof(target), "%s/x-empty", dir);
    CHECK(open(target, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) >= 0); // perhaps it is being made
    snprintf(target, sizeof(target), "%s/target", dir);
    bool other = geteuid() == 0 && chown(path, 65534, 65534) == 0;
    snprintf(path, sizeof(path), "%s/x-link", dir);
    CHECK_INT(symlink(target, path), 0);
    snprintf(path, sizeof(path), "%s/x-fifo", dir);
    CHECK_INT(mkfifo(path, 0666), 0);
    alarm(100);
    CHECK_INT(reader_sweep(dir, "x-"), other ? 2 : 3);
    CHECK_INT(reader_sweep(dir, "x-"), 0);
    alarm(0);
    CHECK_INT(access(target, F_OK), 0);
    CHECK_INT(access(path, F_OK), 0);
    snprintf(path, sizeof(path), "rm -r %s", dir);
    CHECK_INT(system(path), 0);
}

TEST(reader_that_goes_lets_a_held_side_go)
{
    struct rig rig = rig_make(NULL);
    pid_t pid = rig_fork(five_steps, NULL);

    CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(60)), 0);
    rig_free(&rig);
    CHECK_INT(rig_join(pid), 0);
}

TEST(reader_refuses_bad_input)
{
    struct rig rig = rig_make(NULL);
    struct reader *reader = NULL;
    struct reader_slot slot;
    struct error err = {0};
    char missing[100];

    snprintf(missing, sizeof(missing), "%s-missing/steps", rig.path);
    CHECK_INT(reader_create(&reader, rig.path, NULL, &err), -EEXIST);
    CHECK_CONTAINS(err.text, rig.path);
    CHECK_INT(reader_create(&reader, missing, NULL, &err), -ENOENT);
    CHECK_INT(reader_create(&reader, "/dev/shm/upgate-test-never",
                      &(struct reader_opts){.slot_count = 1025}, &err),
            -EINVAL);
    CHECK_INT(reader_create(&reader, "/dev/shm/upgate-test-never",
                      &(struct reader_opts){.ring_bytes = 1ull << 40}, &err),
            -EINVAL);
    CHECK_INT(access("/dev/shm/upgate-test-never", F_OK), -1);
    CHECK(reader == NULL);
    CHECK_INT(access(rig.path, F_OK), 0);
    CHECK_INT(reader_slot(rig.reader, 0, &slot), -ENOENT);
    CHECK_INT(reader_slot(rig.reader, 9999, &slot), -ENOENT);
    CHECK_INT(reader_drain(rig.reader, 0, rig_log, NULL, &rig, &err), -ENOENT);
    rig_free(&rig);
    reader_free(NULL);
}

TEST(a_thousand_slots_cost_little)
{
    struct rig rig = rig_make(&(struct reader_opts){.slot_count = 1024, .open = true});
    struct stat status;

    CHECK_INT(rig_join(rig_fork(five_steps, NULL)), 0);
    CHECK_INT(stat(rig.path, &status), 0);
    CHECK(status.st_size > (1ll << 30));
    CHECK(status.st_blocks * 512 < (8 << 20)); // header and slots, 4 MiB of records, 1 MiB of bytes
    rig_free(&rig);
}

static void scribble(void *arg)
{
    struct ug_step_state *s = &ug_step_state_v2;

    five_steps(NULL);
    if (*(int *)arg == 0) {
        ((struct ug_step_bytes *)(void *)s->bytes)->payload_bytes = UINT64_MAX - 3;
    } else {
        s->slot->head += 1000000;
    }
}

static void ignore_bytes(void *arg, uint32_t slot_idx, const struct reader_bytes *bytes)
{
    (void)slot_idx;
    *(uint64_t *)arg += bytes->payload_bytes;
}

TEST(damaged_rings_are_refused)
{
    for (int which = 0; which < 2; which++) {
        struct rig rig = rig_make(&(struct reader_opts){.open = true});
        struct error err = {0};
        uint64_t sum = 0;

        CHECK_INT(rig_join(rig_fork(scribble, &which)), 0);
        if (which == 0) {
            CHECK_INT(reader_drain(rig.reader, 0, NULL, ignore_bytes, &sum, &err), -EPROTO);
            CHECK_INT(reader_drain(rig.reader, 0, NULL, ignore_bytes, &sum, &err), 0);
            CHECK_INT(sum, 0);
        } else {
            CHECK_INT(reader_drain(rig.reader, 0, rig_log, NULL, &rig, &err), -EPROTO);
        }
        CHECK_CONTAINS(err.text, "damaged");
        rig_free(&rig);
    }
}

static void big_tensors(void *arg)
{
    char *values = calloc(1, 1 << 20);

    (void)arg;
    for (int i = 0; i < 6; i++) {
        ug_step_begin();
        ug_step_tensor("big", UG_DTYPE_INT8, values, 700000);
        ug_step_end(1);
    }
    free(values);
}

// A full /dev/shm must cost records, never a SIGBUS.
TEST(full_memory_drops_and_counts)
{
    struct reader_opts opts = {.slot_count = 4, .ring_records = 1024, .open = true};
    char directory[] = "/tmp/upgate-test-XXXXXX", path[64];
    struct reader_counters counters;
    struct error err = {0};
    struct reader *reader;

    if (mkdtemp(directory) == NULL || mount("none", directory, "tmpfs", 0, "size=2300k") != 0) {
        rmdir(directory);
        runner_skip("needs the right to mount a tmpfs");
    }
    snprintf(path, sizeof(path), "%s/steps", directory);
    setenv("UPGATE_STEPS", path, 1);
    CHECK_INT(reader_create(&reader, path, &opts, &err), 0);
    CHECK_INT(rig_join(rig_fork(big_tensors, NULL)), 0);
    CHECK_INT(reader_counters(reader, 0, &counters), 0);
    CHECK_INT(counters.records_kept, 6);
    CHECK(counters.bytes_kept >= 1 && counters.bytes_dropped >= 1);
    CHECK_INT(counters.bytes_kept + counters.bytes_dropped, 6);
    reader_free(reader);
    opts.ring_records = 65536;
    CHECK_INT(reader_create(&reader, path, &opts, &err), 0);
    check_one_line(said_with(path), "no memory left");
    CHECK_INT(reader_refused_count(reader), 1);
    CHECK_INT(reader_slot_count(reader), 0);
    reader_free(reader);
    CHECK_INT(umount(directory), 0);
    CHECK_INT(rmdir(directory), 0);
}

static void reads_for_a_while(void *arg)
{
    struct reader *reader = NULL;
    const struct reader_opts opts = {
            .slot_count = 2, .ring_records = 16, .ring_bytes = 1, .keep = true, .open = true};

    if (reader_create(&reader, arg, &opts, NULL) != 0) {
        exit(1);
    }
    reader_free(reader);
}

static void sweeps_nothing(void *arg)
{
    exit(reader_sweep("/dev/shm", (char *)arg + strlen("/dev/shm/")) == 0 ? 0 : 1);
}

TEST(sweep_leaves_a_file_between_two_readers)
{
    char path[64];
    int fd;

    rig_path(path, sizeof(path));
    unlink(path);
    fd = reader_reserve(path);
    CHECK(fd >= 0);
    CHECK_INT(reader_reserve(path), -EEXIST);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(rig_join(rig_fork(reads_for_a_while, path)), 0);
        CHECK_INT(rig_join(rig_fork(sweeps_nothing, path)), 0);
        CHECK_INT(access(path, F_OK), 0);
    }
    close(fd);
    CHECK_INT(reader_sweep("/dev/shm", path + strlen("/dev/shm/")), 1);
}
