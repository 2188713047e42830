// SPDX-License-Identifier: Apache-2.0
// Small parts of the recorder: what a descriptor is, where an interpreter keeps its data, what
// /proc tells of a process.
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/proc.h"
#include "common/strings.h"
#include "tests/unit/runner.h"
#include "tracer/pystack/pystack.h"
#include "tracer/record/counters.h"
#include "tracer/record/files.h"
#include "tracer/record/python_data.h"
#include "tracer/record/python_frames.h"
#include "tracer/record/stacks.h"
#include "tracer/record/task_proc.h"
#include "tracer/record/tasks.h"
#include "tracer/record/writer.h"
#include "tracer/store/store.h"

// A network of our own where that is permitted: of a table of more than 1 MB, which a busy machine
// has, the rest is not read.
static void leave_the_network(void)
{
    struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int any;
    if (unshare(CLONE_NEWNET) || (any = socket(AF_INET, SOCK_DGRAM, 0)) < 0)
        return;
    CHECK_INT(ioctl(any, SIOCSIFFLAGS, &loopback), 0);
    close(any);
}

// A child with an environment of its own: which rank is it?
static bool rank_of(char *const *environment, int32_t *rank, int32_t *ranks)
{
    char *const words[] = {(char *)"/bin/sleep", (char *)"30", NULL};
    pid_t pid;
    int status;
    struct task_stat stat;
    CHECK_INT(posix_spawn(&pid, words[0], NULL, NULL, words, environment), 0);
    do // until it sleeps: exec lets us go on before its environment is in place
        usleep(2000);
    while (task_stat_read((uint32_t)pid, &stat) &&
            (stat.state != 'S' || strcmp(stat.comm, "sleep")));
    bool later = true, found = task_rank_read((uint32_t)pid, rank, ranks, &later);
    CHECK(!later);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return found;
}

TEST(which_rank_a_launcher_made_it)
{
    int32_t rank = -1, ranks = -1;
    char *const torchrun[] = {(char *)"OLD_RANK=9", (char *)"SLURM_PROCID=0",
            (char *)"SLURM_NTASKS=2", (char *)"RANK=3", (char *)"WORLD_SIZE=8", NULL};
    CHECK(rank_of(torchrun, &rank, &ranks)); // the innermost launcher's
    CHECK_INT(rank, 3);
    CHECK_INT(ranks, 8);
    char *const mpi[] = {(char *)"OMPI_COMM_WORLD_SIZE=2", (char *)"OMPI_COMM_WORLD_RANK=1", NULL};
    CHECK(rank_of(mpi, &rank, &ranks));
    CHECK_INT(rank, 1);
    CHECK_INT(ranks, 2);
    char *const half[] = {(char *)"RANK=3", NULL},
                *const wrong[] = {(char *)"RANK=8", (char *)"WORLD_SIZE=8", NULL},
                *const words[] = {(char *)"RANK=three", (char *)"WORLD_SIZE=8x", NULL},
                *const none[] = {NULL};
    CHECK(!rank_of(half, &rank, &ranks));
    CHECK(!rank_of(wrong, &rank, &ranks));
    CHECK(!rank_of(words, &rank, &ranks));
    CHECK(!rank_of(none, &rank, &ranks));
    bool later = true;
    CHECK(!task_rank_read(0x7ffffff0, &rank, &ranks, &later) && !later); // no such process
}

TEST(a_variable_of_a_process)
{
    char *const words[] = {(char *)"LONGER_NAME=1", (char *)"NAME=a=b", (char *)"EMPTY=", NULL},
                *const line[] = {(char *)"sleep", (char *)"60", NULL};
    pid_t child = -1;
    char *told = NULL, *empty, *none;
    CHECK_INT(posix_spawn(&child, "/bin/sleep", NULL, NULL, line, words), 0);
    // exec lets us go on before its environment is in place
    for (int i = 0; i < 5000 && !(told = task_variable_read((uint32_t)child, "NAME")); i++)
        usleep(1000);
    empty = task_variable_read((uint32_t)child, "EMPTY");
    none = task_variable_read((uint32_t)child, "NAM");
    CHECK_STR(told ? told : "", "a=b");
    CHECK(empty && !*empty && !none);
    kill(child, SIGKILL);
    CHECK_INT(waitpid(child, NULL, 0), child);
    CHECK(!task_variable_read((uint32_t)child, "NAME"));
    free(told);
    free(empty);
}

// Over the loopback. What is returned is the caller's to close.
static void connect_to_self(int *ret_listener, int *ret_near, int *ret_far)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    *ret_listener = socket(AF_INET, SOCK_STREAM, 0);
    *ret_near = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_INT(bind(*ret_listener, (struct sockaddr *)&address, length), 0);
    CHECK_INT(listen(*ret_listener, 1), 0);
    CHECK_INT(getsockname(*ret_listener, (struct sockaddr *)&address, &length), 0);
    CHECK_INT(connect(*ret_near, (struct sockaddr *)&address, length), 0);
    *ret_far = accept(*ret_listener, NULL, NULL);
    CHECK(*ret_far >= 0);
}

// A connection of this process to itself, and to a child that took over the other end.
TEST(the_other_end_of_a_connection)
{
    leave_the_network();
    int listener, near, far;
    connect_to_self(&listener, &near, &far);
    uint32_t own = (uint32_t)getpid();
    int stop[2];
    CHECK_INT(pipe(stop), 0);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(stop[1]);
        close(near);
        _exit(read(stop[0], &byte, 1) != 0);
    }
    close(far);
    struct files *files = files_new();
    CHECK_CONTAINS(files_target(files, own, SYS_recvfrom, (uint64_t)near, 2000000000, 2000000000),
            "127.0.0.1:");
    CHECK_INT(files_peer(files, own, (uint64_t)near), child);
    CHECK_CONTAINS(files_target(files, own, SYS_accept, (uint64_t)listener, 2000000000, 2000000000),
            "socket:[");
    CHECK_INT(files_peer(files, own, (uint64_t)listener), 0);
    CHECK_INT(files_peer(files, own, 100000), 0);
    close(stop[1]);
    CHECK_INT(waitpid(child, NULL, 0), child);
    files_free(files);
    close(listener);
    close(near);
    close(stop[0]);
}

// A rank and the workers that it forked: all have its end of the connection.
static void test_forks_of_the_other_end(bool another_program)
{
    int listener, near, far, told[2];
    pid_t worker = 0;
    connect_to_self(&listener, &near, &far);
    CHECK_INT(pipe(told), 0);
    pid_t rank = fork();
    if (rank == 0) {
        close(near);
        usleep(20000); // starts are told in ticks of 10 ms
        worker = fork();
        if (worker == 0 && another_program)
            execl("/bin/sleep", "sleep", "60", NULL);
        while (worker == 0)
            pause();
        (void)!write(told[1], &worker, sizeof worker);
        for (;;)
            pause();
    }
    close(far);
    CHECK_INT(read(told[0], &worker, sizeof worker), sizeof worker);
    static const char words[] = "sleep\0"
                                "60";
    char path[64];
    bool ready = !another_program;
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)worker);
    for (int i = 0; i < 5000 && !ready; i++) {
        size_t len = 0;
        char *text = string_read_file(path, 255, &len);
        ready = text && len == sizeof words && memcmp(text, words, len) == 0;
        free(text);
        usleep(1000);
    }
    CHECK(ready);
    struct files *files = files_new();
    CHECK_CONTAINS(files_target(files, (uint32_t)getpid(), SYS_recvfrom, (uint64_t)near, 2000000000,
                           2000000000),
            "127.0.0.1:");
    CHECK_INT(
            files_peer(files, (uint32_t)getpid(), (uint64_t)near), another_program ? worker : rank);
    files_free(files);
    kill(worker, SIGKILL);
    kill(rank, SIGKILL);
    CHECK_INT(waitpid(rank, NULL, 0), rank);
    close(listener);
    close(near);
    close(told[0]);
    close(told[1]);
}

TEST(the_other_end_of_a_connection_and_its_forks)
{
    leave_the_network();
    test_forks_of_the_other_end(false);
    test_forks_of_the_other_end(true);
}

// A child had the other end, too, and was taken for its owner. Its number is soon another
// process's.
TEST(the_owner_of_a_connection_ends)
{
    leave_the_network();
    int listener, near, far;
    connect_to_self(&listener, &near, &far);
    uint32_t own = (uint32_t)getpid();
    usleep(20000); // starts are told in ticks of 10 ms
    pid_t child = fork();
    while (child == 0)
        pause();
    struct files *files = files_new();
    CHECK_CONTAINS(files_target(files, own, SYS_recvfrom, (uint64_t)near, 2000000000, 2000000000),
            "127.0.0.1:");
    CHECK_INT(files_peer(files, own, (uint64_t)near), child);
    kill(child, SIGKILL);
    siginfo_t info;
    // a zombie has no descriptors
    CHECK_INT(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    CHECK_CONTAINS(files_target(files, own, SYS_recvfrom, (uint64_t)near, 2500000000, 2500000000),
            "127.0.0.1:");
    CHECK_INT(files_peer(files, own, (uint64_t)near), 0); // all descriptors are read once a second
    CHECK_CONTAINS(files_target(files, own, SYS_recvfrom, (uint64_t)near, 4000000000, 4000000000),
            "127.0.0.1:");
    CHECK_INT(files_peer(files, own, (uint64_t)near), own);
    CHECK_INT(waitpid(child, NULL, 0), child);
    files_free(files);
    close(listener);
    close(near);
    close(far);
}

TEST(descriptors_by_name)
{
    struct files *files = files_new();
    int ends[2], file = open("/proc/self/stat", O_RDONLY);
    uint32_t own = (uint32_t)getpid();
    CHECK_INT(pipe(ends), 0);
    CHECK_CONTAINS(files_target(files, own, SYS_read, (uint64_t)ends[0], 1, 1), "pipe:[");
    CHECK(files_target(files, own, SYS_nanosleep, (uint64_t)file, 1, 1) == NULL);
    CHECK(files_target(files, own, SYS_read, 100000, 1, 1) == NULL);
    CHECK(files_target(files, own, SYS_read, UINT64_MAX, 1, 1) == NULL);
    CHECK(files_target(files, 4100000, SYS_read, 0, 1, 1) == NULL);
    // Behind the others: one of them may take its place, which depends on pids.
    CHECK_CONTAINS(files_target(files, own, SYS_fsync, (uint64_t)file, 1, 1), "/stat");
    // For 20 ms the answer stands; then it is asked for again.
    close(file);
    CHECK_CONTAINS(files_target(files, own, SYS_read, (uint64_t)file, 1000000, 1000000), "/stat");
    CHECK(files_target(files, own, SYS_read, (uint64_t)file, 2000000000, 2000000000) == NULL);
    // Waits of 50 ms come at once: that is asked once.
    int other = open("/proc/self/stat", O_RDONLY);
    CHECK_CONTAINS(
            files_target(files, own, SYS_read, (uint64_t)other, 3000000000, 4000000000), "/stat");
    close(other);
    CHECK_CONTAINS(
            files_target(files, own, SYS_read, (uint64_t)other, 3050000000, 4001000000), "/stat");
    CHECK(files_target(files, own, SYS_read, (uint64_t)other, 3100000000, 4030000000) == NULL);
    files_free(files);
    files_free(NULL);
}

TEST(connections_by_their_other_end)
{
    leave_the_network();
    struct files *files = files_new();
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(server, (struct sockaddr *)&address, sizeof address) || listen(server, 1) ||
            getsockname(server, (struct sockaddr *)&address, &len) ||
            connect(client, (struct sockaddr *)&address, sizeof address))
        runner_skip("no loopback network");
    char peer[64];
    snprintf(peer, sizeof peer, " 127.0.0.1:%d", ntohs(address.sin_port));
    const char *text =
            files_target(files, (uint32_t)getpid(), SYS_recvfrom, (uint64_t)client, 1, 1);
    CHECK_CONTAINS(text, "socket:[");
    CHECK_CONTAINS(text, peer);
    text = files_target(files, (uint32_t)getpid(), SYS_accept4, (uint64_t)server, 1, 1);
    CHECK_CONTAINS(text, "socket:["); // nobody at its other end
    CHECK(strchr(text, ' ') == NULL);
    files_free(files);
}

// 1, but a sanitizer may run a thread of its own.
static int own_threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *task; (task = readdir(tasks));)
        count += task->d_name[0] != '.';
    closedir(tasks);
    return count;
}

TEST(who_a_process_is)
{
    struct task_stat stat;
    CHECK(task_stat_read((uint32_t)getpid(), &stat));
    CHECK_INT(stat.ppid, getppid());
    CHECK_INT(stat.threads, own_threads());
    CHECK_STR(stat.comm, "test_record_par");
    CHECK(stat.start_ns > 0 && !(stat.flags & TASK_PF_KTHREAD));
    CHECK_INT(proc_tgid(getpid()), getpid());
    CHECK_INT(proc_tgid(4100000), -ESRCH);
    CHECK(!task_stat_read(4100000, &stat));
    bool later = true;
    char *cmdline = task_cmdline_read((uint32_t)getpid(), &later);
    CHECK(!later);
    CHECK_CONTAINS(cmdline, "test_record_parts");
    free(cmdline);
    CHECK(task_cmdline_read(4100000, &later) == NULL && !later);
    char comm[UG_COMM_LEN + 1];
    task_comm_set(comm, "\xff\x80 sixteen bytes and more");
    CHECK_STR(comm, "?? sixteen bytes");
}

TEST(who_cannot_be_looked_at_is_not_gone)
{
    struct rlimit given, none;
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &given), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = given.rlim_max}; // what is open stays so
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
    pid_t found = proc_tgid(getpid());
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &given), 0);
    CHECK_INT(found, -EMFILE);
}

static int64_t own_data = 5; // in a writable segment
static int64_t own_bss[4096];

TEST(data_of_an_interpreter)
{
    // A copy of this program by the name of one, which tells its addresses.
    struct python_data data;
    const char *as = getenv("UPGATE_TEST_AS_PYTHON");
    if (as) {
        CHECK_INT(python_data_find((uint32_t)getpid(), &data), 0);
        void *heap = malloc(1 << 20);
        int local = 0;
        CHECK(data.count > 0);
        CHECK(python_data_holds(&data, (uint64_t)(uintptr_t)&own_data));
        CHECK(python_data_holds(&data, (uint64_t)(uintptr_t)&own_bss[4000]));
        CHECK(!python_data_holds(&data, (uint64_t)(uintptr_t)heap));
        CHECK(!python_data_holds(&data, (uint64_t)(uintptr_t)&local));
        CHECK(!python_data_holds(&data, (uint64_t)(uintptr_t)runner_fail));
        free(heap);
        return;
    }
    CHECK_INT(python_data_find((uint32_t)getpid(), &data), 0);
    CHECK_INT(data.count, 0);                                // it is called otherwise
    CHECK_INT(python_data_find(0x7ffffff0, &data), -ENOENT); // no such process
    char dir[] = "/tmp/upgate-parts-XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    char *command =
            xasprintf("cp /proc/%d/exe %s/python3.x && UPGATE_TEST_AS_PYTHON=1 %s/python3.x "
                      "data_of_an_interpreter; code=$?; rm -r %s; exit $code",
                    getpid(), dir, dir, dir);
    CHECK_INT(system(command), 0);
    free(command);
}

// Who reads for us is stopped: so it waits where the mmap lock of a process is held.
TEST(data_of_an_interpreter_whose_memory_map_is_locked)
{
    char path[64];
    struct python_data data;
    CHECK_INT(python_data_find((uint32_t)getpid(), &data), 0);
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    char *children = string_read_file(path, 64, NULL);
    pid_t reader = children ? (pid_t)strtol(children, NULL, 10) : 0;
    free(children);
    CHECK(reader > 0 && kill(reader, SIGSTOP) == 0);
    CHECK_INT(python_data_find((uint32_t)getpid(), &data), -EAGAIN);
    CHECK_INT(data.count, 0);
}

// One process whose memory cannot be read for hours, and another with new stacks all the time.
TEST(stacks_that_wait_for_long_keep_no_room_of_others)
{
    enum { STACKS = 2000, BYTES_MAX = 64 << 10 }; // 2 MB of addresses
    char *const line[] = {
            (char *)"python3", (char *)"-c", (char *)"import time\ntime.sleep(1000)", NULL};
    static char dir[] = "/tmp/upgate-parts-XXXXXX";
    struct error err = {0};
    struct store *store = NULL;
    struct writer *writer = NULL;
    struct pystack *busy = NULL, *idle = NULL;
    pid_t pid = -1;
    int rc = posix_spawnp(&pid, line[0], NULL, NULL, line, environ) == 0 ? -ENOENT : 0;
    for (int i = 0; i < 500 && rc == -ENOENT; i++) { // until it has started
        usleep(10000);
        rc = pystack_open(pid, &idle, &err);
    }
    if (!idle || pystack_open(pid, &busy, &err)) {
        if (pid > 0 && kill(pid, SIGKILL) == 0)
            waitpid(pid, NULL, 0);
        runner_skip("no python3 here whose frames can be read");
    }
    CHECK(runner_directory(dir) != NULL);
    char *path = xasprintf("%s/run.db", dir);
    CHECK_INT(store_open(path, STORE_CREATE, &store, &err), 0);
    CHECK_INT(writer_new(store, &writer, &err), 0);
    struct stacks *stacks = stacks_new(writer, NULL, false); // those of Python need no symbols
    struct python_frames *frames = python_frames_new(stacks);
    __u64 words[UG_PSTACK_MAX] = {0};
    CHECK(python_frames_row(frames, busy, 1, NULL, words, 1) > 0);
    for (uint64_t i = 0; i < STACKS; i++) {
        CHECK(python_frames_row(frames, idle, 2 + i, NULL, words, UG_PSTACK_MAX) > 0);
        python_frames_name(frames, idle, false);
    }
    CHECK(python_frames_wait(frames, busy) && !python_frames_wait(frames, idle) &&
            python_frames_wait(frames, NULL));
    CHECK(python_frames_bytes(frames) < BYTES_MAX);
    python_frames_name(frames, busy, false);
    CHECK(!python_frames_wait(frames, NULL));
    python_frames_free(frames);
    stacks_free(stacks);
    writer_free(writer);
    store_close(store);
    pystack_close(busy);
    pystack_close(idle);
    free(path);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

// As programs in Go do that become another one (gosu). Nobody names it, and it is forgotten while
// it lives, with all that is of it.
TEST(a_stranger_that_calls_exec_as_another_thread)
{
    struct tasks *tasks = tasks_new(NULL, 1); // no row is written
    struct ug_task_event exec = {.head = {.kind = UG_EVENT_TASK},
            .at_ns = 1,
            .task = {.tid = (__u32)getpid(), .tgid = (__u32)getpid(), .comm = "server"},
            .what = UG_TASK_EXEC,
            .ppid = 1,
            .old_tid = 4100000};
    tasks_event(tasks, &exec);
    CHECK(tasks_thread_by_tid(tasks, (uint32_t)getpid()) == NULL);
    for (int64_t second = 0; second < 3; second++) // what was freed would be read in the second
        tasks_flush(tasks, (11 + second) * 1000000000, false, NULL, NULL);
    CHECK(tasks_thread_by_tid(tasks, (uint32_t)getpid()) == NULL);
    tasks_free(tasks, NULL, NULL);
}

// A target that maps "pythonx", unlinks it, and leaves a FIFO by the name that maps tells then.
TEST(an_interpreter_that_became_a_fifo)
{
    struct python_data data;
    char dir[] = "/tmp/upgate-parts-XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    char *path = xasprintf("%s/pythonx", dir), *fifo = xasprintf("%s (deleted)", path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK_INT(ftruncate(fd, 4096), 0);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED);
    close(fd);
    CHECK_INT(unlink(path), 0);
    CHECK_INT(mkfifo(fifo, 0600), 0);
    alarm(100);
    CHECK_INT(python_data_find((uint32_t)getpid(), &data), 0);
    alarm(0);
    CHECK_INT(data.count, 0); // it is no program
    unlink(fifo);
    rmdir(dir);
    free(path);
    free(fifo);
}

static char *cpu_stat_of(const char *dir, const char *name, int throttled)
{
    char *path = xasprintf("%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    CHECK(file && fprintf(file, "nr_periods 100\nnr_throttled %d\n", throttled) > 0 &&
            fclose(file) == 0);
    return path;
}

static void put_file(const char *dir, const char *name, const char *text)
{
    char *path = xasprintf("%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
    free(path);
}

// The quota of a pod or of a slice is counted by its own cgroup, and holds up all below it.
TEST(a_quota_above_the_cgroup_of_the_target)
{
    static char dir[] = "/tmp/upgate-parts-XXXXXX";
    static const char throttled[] =
            "SELECT group_concat(at_ns || ' ' || name || ' ' || value, ', ') FROM (SELECT * FROM counter WHERE source = 'cpu.stat' AND "
            "name LIKE 'nr_throttled%' ORDER BY rowid)";
    struct error err = {0};
    struct store *store = NULL;
    struct writer *writer = NULL;
    int64_t id = 0;
    CHECK(runner_directory(dir) != NULL);
    char *path = xasprintf("%s/run.db", dir), *root = xasprintf("%s/", dir),
         *pod = xasprintf("%s/pod", dir), *box = xasprintf("%s/box", pod);
    CHECK(mkdir(pod, 0700) == 0 && mkdir(box, 0700) == 0);
    free(cpu_stat_of(dir, "cpu.stat", 100));
    free(cpu_stat_of(pod, "cpu.stat", 7));
    put_file(box, "cpu.stat", "usage_usec 5\n"); // the controller of CPUs is not on here
    put_file(dir, "cpu.cfs_quota_us", "-1\n");
    put_file(pod, "cpu.max", "max 100000\n");
    CHECK_INT(store_open(path, STORE_CREATE, &store, &err), 0);
    CHECK_INT(
            store_insert(store, &id, &err,
                    "INSERT INTO recording (begin_ns, threshold_ns, sample_hz, python, target, missing) VALUES "
                    "(1, 1, 0, 0, '{}', '[]')",
                    ""),
            0);
    CHECK_INT(writer_new(store, &writer, &err), 0);
    struct counters *counters = counters_new(writer, id, 0, box, -1);
    counters_read(counters, 10, false); // none has a quota
    put_file(pod, "cpu.max", "50000 100000\n");
    counters_read(counters, 20, false);
    put_file(dir, "cpu.cfs_quota_us", "200000\n");
    counters_read(counters, 30, false);
    // a container's, in a namespace of its own, ends with a slash
    struct counters *own = counters_new(writer, id, 0, root, -1);
    counters_read(own, 40, false);
    CHECK_INT(writer_commit(writer, true, &err), 0);
    char *told = store_get_text(store, throttled, "");
    // its own quota counts once
    CHECK_STR(told, "20 nr_throttled.above 7, 30 nr_throttled.above 107, 40 nr_throttled 100");
    free(told);
    counters_free(own);
    counters_free(counters);
    writer_free(writer);
    store_close(store);
    free(path);
    free(root);
    free(pod);
    free(box);
}

// One cgroup is told once; from the first rank on that has another one each rank has its own, and
// nothing is counted twice.
TEST(each_rank_has_its_cgroup)
{
    static char dir[] = "/tmp/upgate-parts-XXXXXX";
    static const char throttled[] =
            "SELECT group_concat(at_ns || ' ' || name || ' ' || value, ', ') FROM (SELECT * FROM counter WHERE source = 'cpu.stat' AND "
            "name LIKE 'nr_throttled%' ORDER BY rowid)";
    struct error err = {0};
    struct store *store = NULL;
    struct writer *writer = NULL;
    int64_t id = 0;
    CHECK(runner_directory(dir) != NULL);
    char *path = xasprintf("%s/run.db", dir), *other = xasprintf("%s/other", dir);
    free(cpu_stat_of(dir, "cpu.stat", 3));
    CHECK_INT(store_open(path, STORE_CREATE, &store, &err), 0);
    CHECK_INT(
            store_insert(store, &id, &err,
                    "INSERT INTO recording (begin_ns, threshold_ns, sample_hz, python, target, missing) VALUES "
                    "(1, 1, 0, 0, '{}', '[]')",
                    ""),
            0);
    CHECK_INT(writer_new(store, &writer, &err), 0);
    struct counters *counters = counters_new(writer, id, 0, dir, 0);
    counters_add_rank(counters, 1, cpu_stat_of(dir, "cpu.stat", 4), 10);
    counters_read(counters, 20, false);
    counters_add_rank(counters, 2, cpu_stat_of(dir, "other", 7), 30);
    counters_add_rank(counters, 3, NULL, 40); // in none
    counters_add_rank(counters, 4, xstrdup(other), 50);
    counters_remove_rank(counters, 4);
    counters_remove_rank(counters, 9);
    CHECK_INT(writer_commit(writer, true, &err), 0);
    char *told = store_get_text(store, throttled, "");
    CHECK_STR(told,
            "20 nr_throttled 4, 30 nr_throttled 4, 30 nr_throttled rank 0 4, 30 nr_throttled rank 1 4, 30 nr_throttled rank 2 7, "
            "50 nr_throttled rank 4 7");
    free(told);
    int64_t own = 0, left = -1, common = -1;
    for (int i = 0; i < 500 && own <= 0; i++) { // read again after a hundred times what it took
        usleep(10000);
        counters_read(counters, 60 + i, false);
        CHECK_INT(writer_commit(writer, true, &err), 0);
        store_get_int(store, &own, NULL,
                "SELECT count(*) FROM counter WHERE at_ns >= 60 AND name = 'nr_throttled rank 2'",
                "");
    }
    store_get_int(store, &left, NULL,
            "SELECT count(*) FROM counter WHERE at_ns >= 60 AND name = 'nr_throttled rank 4'", "");
    store_get_int(store, &common, NULL,
            "SELECT count(*) FROM counter WHERE at_ns >= 60 AND name = 'nr_throttled'", "");
    counters_read(counters, 1000, true); // at once
    CHECK_INT(writer_commit(writer, true, &err), 0);
    store_get_int(store, &own, NULL,
            "SELECT count(*) FROM counter WHERE at_ns = 1000 AND name = 'nr_throttled rank 2'", "");
    CHECK_INT(own, 1);
    CHECK_INT(left, 0);
    CHECK_INT(common, 0);
    counters_free(counters);
    writer_free(writer);
    store_close(store);
    free(path);
    free(other);
}
