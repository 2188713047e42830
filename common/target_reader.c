// SPDX-License-Identifier: Apache-2.0
// Both ends of the socket. The process is a fork of one that may have threads: it makes system calls and nothing else.
#include "common/target_reader.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
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
#include <unistd.h>

#include "common/clock.h"
#include "common/descriptors.h"
#include "common/proc.h"
#include "common/strings.h"

enum {
    READER_WAIT_MS = 1000,
    READER_SILENCE = 20, // a device that did not answer is not asked again for so many times as long: 5 % of our time at most
    READER_DEVICES = 16,
    READER_LOST_MAX = 8, // processes that wait for good; with so many, nothing is asked any more
    READER_FD = 3,
};

struct reader_head {
    ssize_t result;
    int code;
};

union reader_control { // room for one descriptor, aligned
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static struct {
    pthread_mutex_t lock;
    pid_t owner, pid; // owner: a fork of ours has to have its own
    int fd;
    void (*prepare)(void);
    pid_t lost[READER_LOST_MAX];
    struct {
        dev_t device;
        int64_t until_ns;
    } silent[READER_DEVICES];
    size_t silent_next;
    char *silent_path; // of the last one
} reader = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

// --- a message, with or without a descriptor --------------------------------------------------------

static bool reader_send(int socket, struct iovec *parts, size_t count, int fd)
{
    union reader_control control = {0};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    if (fd >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control.bytes;
        control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
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
    struct msghdr message = {
        .msg_iov = parts, .msg_iovlen = count, .msg_control = &control, .msg_controllen = sizeof control.bytes};
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

// --- the process -------------------------------------------------------------------------------------

static _Noreturn void reader_run(target_serve *serve, int socket)
{
    struct target_question question;
    struct iovec in = {&question, sizeof question};
    int fd = -1, next = -1;
    while (reader_receive(socket, &in, 1, &next) == (ssize_t)sizeof question) {
        struct target_answer answer = {.result = -1, .code = EINVAL, .fd = -1};
        if (fd >= 0)
            close(fd);
        fd = next;
        serve(&question, fd, &answer);
        struct reader_head head = {answer.result, answer.code};
        size_t bytes = answer.bytes && answer.result > 0 ? (size_t)answer.result : 0;
        struct iovec out[] = {{&head, sizeof head}, {(void *)(uintptr_t)answer.bytes, bytes}};
        bool sent = reader_send(socket, out, bytes ? 2 : 1, answer.fd);
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

// The one that waits keeps its answer to itself. What cannot be killed now ends when its file system answers.
static void reader_abandon(void)
{
    kill(reader.pid, SIGKILL);
    for (size_t i = 0; i < READER_LOST_MAX; i++)
        if (!reader.lost[i]) {
            reader.lost[i] = reader.pid;
            break;
        }
    reader_forget();
}

static size_t reader_buried(void) // how many places are free
{
    size_t free = 0;
    for (size_t i = 0; i < READER_LOST_MAX; i++) {
        if (reader.lost[i] && waitpid(reader.lost[i], NULL, WNOHANG | __WCLONE) != 0)
            reader.lost[i] = 0;
        free += !reader.lost[i];
    }
    return free;
}

// Not every container has an init that buries orphans. One that still waits for its file system is left.
static void reader_bury(void)
{
    if (reader.owner != getpid())
        return;
    if (reader.fd >= 0)
        reader_abandon();
    for (int i = 0; i < 20 && reader_buried() < READER_LOST_MAX; i++)
        clock_sleep_until_ns(clock_monotonic_ns() + 1000000);
}

static void reader_fork(target_serve *serve)
{
    static bool buries;
    int ends[2];
    if (!reader_buried() || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return;
    // No signal at its end: whoever waits for any child of ours is not told of this one.
    pid_t pid = (pid_t)syscall(SYS_clone, 0, 0, 0, 0, 0);
    if (pid == 0) {
        dup2(ends[1], READER_FD);
        descriptors_close_from(READER_FD + 1);
        prctl(PR_SET_NAME, "upgate-files");
        for (int sig = 1; sig < NSIG; sig++)
            signal(sig, SIG_DFL);
        for (int sig = SIGHUP; sig <= SIGTERM; sig++) // a terminal's are for those who asked
            if (sig != SIGKILL && sig != SIGSEGV && sig != SIGABRT)
                signal(sig, SIG_IGN);
        if (reader.prepare)
            reader.prepare();
        reader_run(serve, READER_FD);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return;
    }
    reader.pid = pid;
    reader.fd = ends[0];
    buries = buries || atexit(reader_bury) == 0;
}

static bool reader_is_there(target_serve *serve)
{
    if (reader.owner != getpid()) {
        reader_forget();
        memset(reader.lost, 0, sizeof reader.lost);
        reader.owner = getpid();
    }
    if (reader.fd < 0)
        reader_fork(serve);
    return reader.fd >= 0;
}

void target_reader_start(target_serve *serve, void (*prepare)(void))
{
    pthread_mutex_lock(&reader.lock);
    reader.prepare = prepare;
    reader_is_there(serve);
    pthread_mutex_unlock(&reader.lock);
}

// --- asking ------------------------------------------------------------------------------------------

static bool reader_device_is_silent(dev_t device)
{
    int64_t now_ns = clock_monotonic_ns();
    for (size_t i = 0; i < READER_DEVICES; i++)
        if (reader.silent[i].until_ns > now_ns && reader.silent[i].device == device)
            return true;
    return false;
}

static void reader_was_silent(const struct target_question *question, int fd)
{
    char link[64], path[TARGET_PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = question->what == TARGET_READ ? readlink(link, path, sizeof path - 1) : -1;
    path[len > 0 ? len : 0] = '\0';
    free(reader.silent_path);
    reader.silent_path = xstrdup(question->what == TARGET_READ ? path : question->path);
    size_t at = reader.silent_next++ % READER_DEVICES;
    reader.silent[at].device = question->device;
    reader.silent[at].until_ns = clock_monotonic_ns() + READER_SILENCE * READER_WAIT_MS * INT64_C(1000000);
}

// True: there is an answer. One that has not had its turn on the CPU has not been kept waiting by a file system.
static bool reader_wait(void)
{
    struct proc_stat stat;
    for (;;) {
        struct pollfd one = {.fd = reader.fd, .events = POLLIN};
        int64_t until_ns = clock_monotonic_ns() + READER_WAIT_MS * INT64_C(1000000), left_ns;
        int ready = 0;
        while (ready <= 0 && (left_ns = until_ns - clock_monotonic_ns()) > 0)
            ready = poll(&one, 1, (int)(left_ns / 1000000) + 1);
        if (ready > 0)
            return true;
        if (proc_stat_of(reader.pid, &stat) || stat.state != 'R')
            return poll(&one, 1, 0) > 0; // it came while we looked
    }
}

char *target_reader_silent(void)
{
    pthread_mutex_lock(&reader.lock);
    char *path = reader.silent_path ? xstrdup(reader.silent_path) : NULL;
    pthread_mutex_unlock(&reader.lock);
    return path;
}

ssize_t target_reader_ask(target_serve *serve, const struct target_question *question, int fd, int *ret_fd, void *ret_bytes)
{
    struct reader_head head = {-1, EAGAIN};
    struct iovec out = {(void *)(uintptr_t)question, sizeof *question};
    struct iovec in[] = {{&head, sizeof head}, {ret_bytes, question->what == TARGET_READ ? question->len : 0}};
    int passed = -1;
    pthread_mutex_lock(&reader.lock);
    bool asked = reader_device_is_silent(question->device);
    for (int i = 0; !asked && i < 2 && reader_is_there(serve); i++) { // once more where somebody has killed it
        bool sent = reader_send(reader.fd, &out, 1, fd), answered = sent && reader_wait();
        bool whole = answered && reader_receive(reader.fd, in, in[1].iov_len ? 2 : 1, &passed) >= (ssize_t)sizeof head;
        if (sent && !answered)
            reader_was_silent(question, fd);
        if (!whole)
            reader_abandon();
        asked = whole || (sent && !answered);
    }
    pthread_mutex_unlock(&reader.lock);
    if (ret_fd)
        *ret_fd = passed;
    else if (passed >= 0)
        close(passed);
    errno = head.code;
    return head.result;
}
