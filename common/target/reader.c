// SPDX-License-Identifier: Apache-2.0
// Both ends of the socket. The process is a fork of one that may have threads: it makes system
// calls and nothing else.
//
// Whoever waits for a file system for good is left to wait, and another takes its place. Forked
// from us by then, that one would have all that we have taken since, and keep it when we have given
// it back. So a process that was forked at the start forks those that come later.
#include "common/target/reader.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/containers/hash.h"
#include "common/descriptors.h"
#include "common/proc.h"
#include "common/strings.h"

enum {
    READER_WAIT_MS = 1000,
    // when it is seen to that the process waits, and not for the CPU
    READER_LOOK_MS = 2,
    READER_LOOK_MAX_MS = 64,
    READER_RUNNABLE_MS = 10000, // for the CPU
    READER_SHARE = 20,          // of all time one part may be spent waiting,
    READER_SHARE_MS = 2000,     // so much of it at once
    READER_HURRY_MS = 20, // and where it is spent already, what is on a local disk has so long
    READER_SILENCE = 20,  // times as long as it had for its answer a device is not asked again, nor
                          // as long as our process waits for it
    READER_LOCK_MS = 100, // within so long maps are to be had, unless somebody holds the lock
    READER_BURIAL_MS = 20,  // one that was killed and waits for nothing has ended by then
    READER_SILENT_MAX = 16, // with so many processes that wait for good, nothing is asked any more
    READER_FD = 0, // and nothing else: whoever reads our stderr to its end is not to wait for one
                   // that waits
};

struct reader_head {
    ssize_t result;
    int code;
};

union reader_control { // room for one descriptor, aligned
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
};

struct reader_silent {
    uint64_t key;     // of the device, or of the file where that is not known; 0: of none
    int64_t until_ns; // CLOCK_MONOTONIC
    pid_t pid;        // killed, and waiting yet; 0: it has ended
};

static struct {
    pthread_mutex_t lock;
    pid_t owner, pid; // owner: a fork of ours has to have its own
    int fd;
    void (*prepare)(void), (*prepared)(void); // to be called in it; called
    pid_t forker;                             // forks it, if forker_fd is open
    int forker_fd;                            // -1: there is none
    void (*forker_prepared)(void);            // what was called in that
    struct reader_silent silent[READER_SILENT_MAX];
    char *silent_path;             // of the last one
    int64_t share_ns, share_at_ns; // what may be waited, as of then
} reader = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .forker_fd = -1};

// of its CPU time; 0: there is none (that is the wall clock's)
static _Atomic clockid_t reader_clock;
static _Atomic int64_t reader_spent_ns; // by those before it

static int64_t reader_cpu_ns(void)
{
    struct timespec now;
    clockid_t id = reader_clock;
    return id && clock_gettime(id, &now) == 0 ? now.tv_sec * INT64_C(1000000000) + now.tv_nsec : 0;
}

int64_t target_reader_cpu_ns(void)
{
    return reader_spent_ns + reader_cpu_ns();
}

// --- a message, with or without a descriptor -----------------------------------------------------

static bool reader_send(int socket, struct iovec *parts, size_t count, int fd)
{
    union reader_control control = {0};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    if (fd >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control.bytes;
        control.head = (struct cmsghdr){
                .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent > 0;
}

static ssize_t reader_receive(int socket, struct iovec *parts, size_t count, int *ret_fd)
{
    union reader_control control = {0};
    struct msghdr message = {.msg_iov = parts,
            .msg_iovlen = count,
            .msg_control = &control,
            .msg_controllen = sizeof control.bytes};
    ssize_t got;
    do
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    struct cmsghdr *head = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    *ret_fd = -1;
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
        memcpy(ret_fd, CMSG_DATA(head), sizeof *ret_fd);
    return got;
}

// --- the process ---------------------------------------------------------------------------------

static _Noreturn void reader_run(target_serve *serve)
{
    struct target_question question;
    struct iovec in = {&question, sizeof question};
    int fd = -1, next = -1;
    while (reader_receive(READER_FD, &in, 1, &next) == (ssize_t)sizeof question) {
        struct target_answer answer = {.result = -1, .code = EINVAL, .fd = -1};
        if (fd >= 0)
            close(fd);
        fd = next;
        question.len = question.len < TARGET_READ_MAX ? question.len : TARGET_READ_MAX;
        serve(&question, fd, &answer);
        struct reader_head head = {answer.result, answer.code};
        size_t bytes = answer.bytes && answer.result > 0 ? (size_t)answer.result : 0;
        struct iovec out[] = {{&head, sizeof head}, {(void *)(uintptr_t)answer.bytes, bytes}};
        bool sent = reader_send(READER_FD, out, bytes ? 2 : 1, answer.fd);
        if (answer.fd >= 0)
            close(answer.fd);
        if (!sent)
            break;
    }
    _exit(0);
}

static void reader_forget(void)
{
    if (reader.fd >= 0)
        close(reader.fd);
    reader.fd = -1;
}

static size_t reader_bury(void) // how many places there are for more that wait
{
    size_t free = 0;
    for (size_t i = 0; i < READER_SILENT_MAX; i++) {
        struct reader_silent *one = &reader.silent[i];
        if (one->pid && waitpid(one->pid, NULL, WNOHANG | __WCLONE) != 0)
            one->pid = 0;
        free += !one->pid;
    }
    return free;
}

// The one that waits keeps its answer to itself. What cannot be killed now ends when its file
// system answers.
static void reader_abandon(uint64_t key, int64_t wait_ms)
{
    struct reader_silent *place = NULL;
    reader_bury();
    for (size_t i = 0; i < READER_SILENT_MAX; i++)
        if (!reader.silent[i].pid && (!place || reader.silent[i].until_ns < place->until_ns))
            place = &reader.silent[i];
    reader_spent_ns += reader_cpu_ns();
    reader_clock = 0;
    kill(reader.pid, SIGKILL);
    if (place)
        *place = (struct reader_silent){key,
                key ? clock_monotonic_ns() + READER_SILENCE * wait_ms * 1000000 : 0, reader.pid};
    reader_forget();
}

// It is killed rather than asked to end: it may have been stopped.
static void reader_end_forker(void)
{
    if (reader.forker_fd < 0)
        return;
    close(reader.forker_fd);
    reader.forker_fd = -1;
    kill(reader.forker, SIGKILL);
    for (int i = 0; i < READER_BURIAL_MS && waitpid(reader.forker, NULL, WNOHANG | __WCLONE) == 0;
            i++)
        clock_sleep_until_ns(clock_monotonic_ns() + 1000000);
}

// Not every container has an init that buries orphans. One that still waits for its file system is
// left.
static void reader_end(void)
{
    if (reader.owner != getpid())
        return;
    if (reader.fd >= 0)
        reader_abandon(0, 0);
    reader_end_forker();
    for (int i = 0; i < READER_BURIAL_MS && reader_bury() < READER_SILENT_MAX; i++)
        clock_sleep_until_ns(clock_monotonic_ns() + 1000000);
}

// A fork with nothing open but `socket`. No signal at its end: whoever waits for any child of ours
// is not told of this one.
static pid_t reader_clone(unsigned long flags, int socket, const char *name)
{
    pid_t pid = (pid_t)syscall(SYS_clone, flags, 0L, 0L, 0L, 0L);
    if (pid == 0) {
        dup2(socket, READER_FD);
        descriptors_close_from(READER_FD + 1);
        prctl(PR_SET_NAME, name);
    }
    return pid;
}

// The forker: a reader for each message, on the socket that comes with it. What it forks is a child
// of who forked it, as it is itself.
static _Noreturn void reader_run_forker(target_serve *serve)
{
    char byte;
    struct iovec in = {&byte, 1};
    int socket = -1;
    while (reader_receive(READER_FD, &in, 1, &socket) == 1) {
        pid_t pid = socket < 0 ? -1 : reader_clone(CLONE_PARENT, socket, "upgate-files");
        if (pid == 0)
            reader_run(serve);
        if (socket >= 0)
            close(socket);
        struct iovec out = {&pid, sizeof pid};
        if (!reader_send(READER_FD, &out, 1, -1))
            break;
    }
    _exit(0);
}

static void reader_start_forker(target_serve *serve)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return;
    pid_t pid = reader_clone(0, ends[1], "upgate-forker");
    if (pid == 0) {
        if (reader.prepare)
            reader.prepare();
        reader_run_forker(serve);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return;
    }
    reader.forker = pid;
    reader.forker_fd = ends[0];
    reader.forker_prepared = reader.prepare;
}

// True: there is an answer. One that has not had its turn on the CPU has not been kept waiting by a
// file system.
static bool reader_wait(pid_t pid, int socket, int64_t most_ms)
{
    struct pollfd one = {.fd = socket, .events = POLLIN};
    struct proc_stat stat;
    int64_t waited_ms = 0, runnable_ms = 0;
    for (int look_ms = READER_LOOK_MS; waited_ms < most_ms && runnable_ms < READER_RUNNABLE_MS;) {
        int64_t begin_ns = clock_monotonic_ns();
        if (poll(&one, 1, look_ms) > 0)
            return true;
        int64_t ns = clock_monotonic_ns() - begin_ns;
        bool runnable = proc_stat_of(pid, &stat) == 0 && stat.state == 'R';
        *(runnable ? &runnable_ms : &waited_ms) += ns / 1000000;
        reader.share_ns -= runnable ? 0 : ns;
        look_ms = look_ms < READER_LOOK_MAX_MS ? 2 * look_ms : look_ms;
    }
    return poll(&one, 1, 0) > 0; // it came while we looked
}

// -1: there is no forker, it does not answer, or it cannot fork.
static pid_t reader_fork_small(int socket)
{
    char byte = 0;
    pid_t pid = -1;
    int none = -1;
    struct iovec out = {&byte, 1}, in = {&pid, sizeof pid};
    if (reader.forker_fd < 0)
        return -1;
    if (reader_send(reader.forker_fd, &out, 1, socket) &&
            reader_wait(reader.forker, reader.forker_fd, READER_WAIT_MS) &&
            reader_receive(reader.forker_fd, &in, 1, &none) == (ssize_t)sizeof pid)
        return pid > 0 ? pid : -1;
    reader_end_forker(); // somebody has killed or stopped it
    return -1;
}

static bool reader_fork_by(target_serve *serve, bool forker)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return false;
    pid_t pid = forker ? reader_fork_small(ends[1]) : reader_clone(0, ends[1], "upgate-files");
    if (pid == 0) {
        if (reader.prepare)
            reader.prepare();
        reader_run(serve);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return false;
    }
    reader.pid = pid;
    reader.fd = ends[0];
    reader.prepared = forker ? reader.forker_prepared : reader.prepare;
    clockid_t id;
    reader_clock = clock_getcpuclockid(pid, &id) == 0 ? id : 0;
    return true;
}

static void reader_fork(target_serve *serve)
{
    static bool ends_with_us;
    // On another socket then: a forker that died may have forked one that answers, too, and that we
    // were not told of.
    if (reader_bury() && (reader_fork_by(serve, true) || reader_fork_by(serve, false)))
        ends_with_us = ends_with_us || atexit(reader_end) == 0;
}

// A fork of ours starts with none: those it knows of are ours.
static void reader_own(void)
{
    if (reader.owner == getpid())
        return;
    reader_forget();
    if (reader.forker_fd >= 0)
        close(reader.forker_fd);
    reader.forker_fd = -1;
    memset(reader.silent, 0, sizeof reader.silent);
    reader.share_at_ns = 0;
    reader.owner = getpid();
}

static bool reader_is_there(target_serve *serve)
{
    reader_own();
    if (reader.fd < 0)
        reader_fork(serve);
    return reader.fd >= 0;
}

void target_reader_start(target_serve *serve, void (*prepare)(void))
{
    pthread_mutex_lock(&reader.lock);
    reader_own();
    reader.prepare = prepare;
    if (reader.prepared != prepare && reader.fd >= 0)
        reader_abandon(0, 0); // it may do more than the next one is to be able to
    if (reader.forker_prepared != prepare)
        reader_end_forker();
    if (reader.forker_fd < 0)
        reader_start_forker(serve);
    free(reader.silent_path);
    reader.silent_path = NULL;
    reader_is_there(serve);
    pthread_mutex_unlock(&reader.lock);
}

// --- asking --------------------------------------------------------------------------------------

static uint64_t reader_key(const struct target_question *question)
{
    uint64_t seed = question->device ? question->device : (uint64_t)question->pid;
    return hash_bytes(seed, question->path, question->device ? 0 : strlen(question->path)) | 1;
}

// Of what one process has mapped of the device.
static uint64_t reader_mapped_key(const struct target_question *question)
{
    return hash_mix(reader_key(question), (uint64_t)question->pid) | 1;
}

static bool reader_is_silent(uint64_t key)
{
    int64_t now_ns = clock_monotonic_ns();
    reader_bury();
    for (size_t i = 0; i < READER_SILENT_MAX; i++)
        if (reader.silent[i].key == key &&
                (reader.silent[i].pid || reader.silent[i].until_ns > now_ns))
            return true;
    return false;
}

static void reader_was_silent(const struct target_question *question, int fd)
{
    char link[64], path[TARGET_PATH_MAX];
    if (question->what == TARGET_CONVERSE || question->quiet) // the former is of no file
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = *question->path ? -1 : readlink(link, path, sizeof path - 1);
    path[len > 0 ? len : 0] = '\0';
    free(reader.silent_path);
    reader.silent_path = xstrdup(*question->path ? question->path : path);
}

static int64_t reader_share_ms(void)
{
    int64_t now_ns = clock_monotonic_ns(), most_ns = READER_SHARE_MS * INT64_C(1000000);
    reader.share_ns = reader.share_at_ns
            ? reader.share_ns + (now_ns - reader.share_at_ns) / READER_SHARE
            : most_ns;
    if (reader.share_ns > most_ns)
        reader.share_ns = most_ns;
    reader.share_at_ns = now_ns;
    return reader.share_ns / 1000000;
}

char *target_reader_silent(void)
{
    pthread_mutex_lock(&reader.lock);
    char *path = reader.silent_path ? xstrdup(reader.silent_path) : NULL;
    pthread_mutex_unlock(&reader.lock);
    return path;
}

static bool reader_converse(target_serve *serve, const struct target_question *question, int fd,
        struct reader_head *head, int *ret_passed, void *ret_bytes);

// Nobody opened what a process has mapped: a matter of the file system's, or does somebody hold the
// mmap lock of the process? Its maps tell. Then it is the mappings of this process that are not
// asked for again, and not all files of the device, which may be the machine's only one.
static void reader_ask_whose_fault(target_serve *serve, const struct target_question *question)
{
    char byte;
    int none = -1;
    struct reader_head head;
    struct target_question maps = {
            .what = TARGET_TEXT, .len = sizeof byte, .wait_ms = READER_LOCK_MS};
    snprintf(maps.path, sizeof maps.path, "%s/%d/maps", question->proc, (int)question->pid);
    if (reader_converse(serve, &maps, -1, &head, &none, &byte))
        return;
    uint64_t key = reader_key(question);
    for (size_t i = 0; i < READER_SILENT_MAX; i++)
        if (reader.silent[i].key == key) {
            reader.silent[i].key = reader_mapped_key(question);
            reader.silent[i].until_ns =
                    clock_monotonic_ns() + READER_SILENCE * READER_LOCK_MS * INT64_C(1000000);
        }
}

static bool reader_converse(target_serve *serve, const struct target_question *question, int fd,
        struct reader_head *head, int *ret_passed, void *ret_bytes)
{
    struct iovec out = {(void *)(uintptr_t)question, sizeof *question};
    struct iovec in[] = {{head, sizeof *head}, {ret_bytes, question->len}};
    uint64_t key = reader_key(question);
    int64_t most_ms = reader_share_ms(),
            wait_ms = question->wait_ms ? question->wait_ms : READER_WAIT_MS;
    bool remote = question->what == TARGET_READ || question->what == TARGET_STATUS ||
            question->what == TARGET_CONVERSE;
    bool silent = most_ms <= 0 && remote, mapped = question->what == TARGET_OPEN_MAPPED;
    most_ms = most_ms < READER_HURRY_MS ? READER_HURRY_MS : most_ms < wait_ms ? most_ms : wait_ms;
    if (reader_is_silent(key) || (mapped && reader_is_silent(reader_mapped_key(question))))
        return false;
    // once more where somebody has killed it
    for (int i = 0; !silent && i < 2 && reader_is_there(serve); i++) {
        bool sent = reader_send(reader.fd, &out, 1, fd);
        silent = sent && !reader_wait(reader.pid, reader.fd, most_ms);
        if (sent && !silent &&
                reader_receive(reader.fd, in, question->len ? 2 : 1, ret_passed) >=
                        (ssize_t)sizeof *head)
            return true;
        reader_abandon(silent ? key : 0, wait_ms);
    }
    reader_was_silent(question, fd);
    if (mapped && silent)
        reader_ask_whose_fault(serve, question);
    return false;
}

ssize_t target_reader_ask(target_serve *serve, const struct target_question *question, int fd,
        int *ret_fd, void *ret_bytes)
{
    struct reader_head head = {-1, EAGAIN};
    int passed = -1;
    pthread_mutex_lock(&reader.lock);
    if (!reader_converse(serve, question, fd, &head, &passed, ret_bytes))
        head = (struct reader_head){-1, EAGAIN};
    pthread_mutex_unlock(&reader.lock);
    if (ret_fd && head.result >= 0 && passed < 0)
        head = (struct reader_head){-1, EMFILE}; // of ours
    if (ret_fd)
        *ret_fd = passed;
    else if (passed >= 0)
        close(passed);
    errno = head.code;
    return head.result;
}
