// SPDX-License-Identifier: Apache-2.0
// upgate-inside: the entry point of a container that is a side. Linked statically: an image may
// have no C library, or musl. A child of it says hello, waits until upgate has attached whatever it
// wants, and becomes the program, with upgate's own file as its output; this process waits for it,
// reports its end, and ends all that descends from it once upgate lets go or dies. So a container
// never outlives its upgate, whatever engine started it.
#include "harness/image/inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { INSIDE_EXIT_UNSTARTED = 127, INSIDE_KILL_ROUNDS = 5000 };

static void inside_die(const char *what)
{
    fprintf(stderr, "upgate-inside: %s: %s\n", what, strerror(errno));
    _exit(INSIDE_EXIT_UNSTARTED);
}

static bool inside_write(int fd, const void *data, size_t len)
{
    for (const char *at = data; len;) {
        ssize_t sent = write(fd, at, len);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        at += sent;
        len -= (size_t)sent;
    }
    return true;
}

static bool inside_read(int fd, void *data, size_t len)
{
    for (char *at = data; len;) {
        ssize_t got = read(fd, at, len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        len -= (size_t)got;
    }
    return true;
}

// --- what the container is -----------------------------------------------------------------------

// glibc says its version in a sentence of the library's own, the same since 2.0.
static void inside_find_glibc(struct inside_hello *hello)
{
    static const char *const places[] = {"/lib64/libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6",
            "/usr/lib64/libc.so.6", "/usr/lib/x86_64-linux-gnu/libc.so.6",
            "/lib/aarch64-linux-gnu/libc.so.6", "/usr/lib/aarch64-linux-gnu/libc.so.6",
            "/lib/libc.so.6", "/usr/lib/libc.so.6"};
    static const char sentence[] = "release version ";
    for (size_t i = 0; i < sizeof places / sizeof *places && !hello->glibc_major; i++) {
        int fd = open(places[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        struct stat info;
        char *text = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0
                ? mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0)
                : MAP_FAILED;
        if (fd >= 0)
            close(fd);
        if (text == MAP_FAILED)
            continue;
        char *at = memmem(text, (size_t)info.st_size, sentence, strlen(sentence));
        char version[16] = "";
        if (at && at + strlen(sentence) + sizeof version < text + info.st_size)
            memcpy(version, at + strlen(sentence), sizeof version - 1);
        if (sscanf(version, "%d.%d", &hello->glibc_major, &hello->glibc_minor) != 2)
            hello->glibc_major = 0;
        munmap(text, (size_t)info.st_size);
    }
}

static bool inside_has(const char *dir_path, const char *begin)
{
    DIR *dir = opendir(dir_path);
    struct dirent *entry;
    bool found = false;
    while (dir && !found && (entry = readdir(dir)))
        found = strncmp(entry->d_name, begin, strlen(begin)) == 0;
    if (dir)
        closedir(dir);
    return found;
}

static int inside_ptrace_error(void)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) ? errno : 0);
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
                                                                           : EIO;
}

static int inside_seccomp(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    int mode = -1;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Seccomp: %d", &mode) == 1)
            break;
    if (file)
        fclose(file);
    return mode;
}

static bool inside_say_hello(int fd, int ptrace_error)
{
    struct inside_hello hello = {.magic = INSIDE_MAGIC,
            .pid = getpid(),
            .uid = getuid(),
            .musl = inside_has("/lib", "ld-musl-"),
            .ptrace_error = ptrace_error,
            .seccomp = inside_seccomp(),
            .shm_bytes = -1,
            .gpu = inside_has("/dev", "nvidiactl") || inside_has("/dev", "dxg")};
    struct statvfs shm;
    if (statvfs("/dev/shm", &shm) == 0)
        hello.shm_bytes = (int64_t)shm.f_blocks * (int64_t)shm.f_frsize;
    inside_find_glibc(&hello);
    size_t bytes = 0;
    for (char **at = environ; *at; at++)
        bytes += strlen(*at) + 1;
    hello.env_bytes = (uint32_t)bytes;
    bool said = bytes <= INSIDE_TEXT_BYTES_MAX && inside_write(fd, &hello, sizeof hello);
    for (char **at = environ; said && *at; at++)
        said = inside_write(fd, *at, strlen(*at) + 1);
    return said;
}

// --- the program ---------------------------------------------------------------------------------

// The head of a start, and the descriptor that comes with it.
static bool inside_read_start(int fd, struct inside_start *start, int *ret_output)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {start, sizeof *start};
    struct msghdr message = {.msg_iov = &part,
            .msg_iovlen = 1,
            .msg_control = &control,
            .msg_controllen = sizeof control};
    ssize_t got;
    do
        got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return false;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
        memcpy(ret_output, CMSG_DATA(head), sizeof *ret_output);
    return inside_read(fd, (char *)start + got, sizeof *start - (size_t)got) &&
            start->magic == INSIDE_MAGIC && start->text_bytes <= INSIDE_TEXT_BYTES_MAX &&
            start->argc > 0 && *ret_output >= 0;
}

// The next `count` texts; NULL where they do not end within the block.
static char **inside_texts(char **at, const char *end, uint32_t count)
{
    char **texts = calloc((size_t)count + 1, sizeof *texts);
    for (uint32_t i = 0; texts && i < count; i++) {
        char *nul = *at < end ? memchr(*at, 0, (size_t)(end - *at)) : NULL;
        if (!nul)
            return NULL;
        texts[i] = *at;
        *at = nul + 1;
    }
    return texts;
}

// As launch.c does it for a bare process: PATH is searched, and nothing is ever handed to a shell.
// Where ENOENT comes for a file that is there, it is its loader or its interpreter that is missing.
static int inside_exec(char **argv, char **env, int *ret_where)
{
    const char *search = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    static char path[8192];
    int failure = ENOENT;
    *ret_where = INSIDE_AT_PROGRAM;
    for (char **at = env; *at; at++)
        if (strncmp(*at, "PATH=", 5) == 0)
            search = *at + 5;
    if (strchr(argv[0], '/')) {
        execve(argv[0], argv, env);
        failure = errno;
        if (failure == ENOENT && access(argv[0], F_OK) == 0)
            *ret_where = INSIDE_AT_LOADER;
        return failure;
    }
    for (const char *dir = search; dir; dir = strchr(dir, ':') ? strchr(dir, ':') + 1 : NULL) {
        int len = (int)strcspn(dir, ":");
        if (snprintf(path, sizeof path, "%.*s/%s", len ? len : 1, len ? dir : ".", argv[0]) >=
                (int)sizeof path)
            continue;
        execve(path, argv, env);
        if (errno == ENOENT && access(path, F_OK) == 0)
            *ret_where = INSIDE_AT_LOADER;
        if (errno != ENOENT && errno != ENOTDIR)
            failure = errno;
    }
    return failure;
}

static void inside_fail(int pipe_fd, int where, int failure) __attribute__((noreturn));
static void inside_fail(int pipe_fd, int where, int failure)
{
    struct inside_event event = {.what = INSIDE_FAILED, .where = where, .error = failure};
    inside_write(pipe_fd, &event, sizeof event);
    _exit(INSIDE_EXIT_UNSTARTED);
}

static void inside_child(int fd, int pipe_fd, pid_t parent, int ptrace_error)
        __attribute__((noreturn));
static void inside_child(int fd, int pipe_fd, pid_t parent, int ptrace_error)
{
    struct inside_start start;
    int output = -1, where = INSIDE_AT_START;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setsid();
    if (getppid() != parent || !inside_say_hello(fd, ptrace_error) ||
            !inside_read_start(fd, &start, &output))
        _exit(INSIDE_EXIT_UNSTARTED); // upgate is gone
    char *text = malloc(start.text_bytes + 1), *at = text;
    if (!text || !inside_read(fd, text, start.text_bytes))
        inside_fail(pipe_fd, INSIDE_AT_START, text ? EPROTO : ENOMEM);
    const char *end = text + start.text_bytes;
    char **dir = inside_texts(&at, end, 1), **argv = inside_texts(&at, end, start.argc);
    char **env = inside_texts(&at, end, start.envc);
    if (!dir || !argv || !env)
        inside_fail(pipe_fd, INSIDE_AT_START, EPROTO);
    cpu_set_t cpus;
    memcpy(&cpus, start.cpus, sizeof cpus);
    // a cpuset of the container's may forbid them: the fingerprint shows it
    sched_setaffinity(0, sizeof cpus, &cpus);
    if (*dir[0] && chdir(dir[0]) < 0)
        inside_fail(pipe_fd, INSIDE_AT_WORKDIR, errno);
    for (char **name = env; *name; name++)
        if (strncmp(*name, "UPGATE_STEPS=", 13) == 0) {
            int steps = open(*name + 13, O_RDWR | O_CLOEXEC);
            if (steps < 0)
                inside_fail(pipe_fd, INSIDE_AT_STEPS, errno);
            close(steps);
        }
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0)
        dup2(null, 0);
    dup2(output, 1);
    dup2(output, 2);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    struct inside_event event = {
            .what = INSIDE_RUNNING, .before_exec_bytes = usage.ru_maxrss * 1024LL};
    inside_write(pipe_fd, &event, sizeof event);
    int failure = inside_exec(argv, env, &where);
    inside_fail(pipe_fd, where, failure);
}

// --- its end -------------------------------------------------------------------------------------

static void inside_on_child(int number)
{
    (void)number; // it ends ppoll()
}

// Takes who has ended; the end of the program is told.
static void inside_reap(int fd, pid_t child, int *status)
{
    struct inside_event event = {.what = INSIDE_ENDED};
    struct rusage usage = {0};
    pid_t pid;
    while ((pid = wait4(-1, &event.status, WNOHANG, &usage)) > 0) {
        if (pid != child)
            continue;
        *status = event.status;
        event.cpu_ns = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000LL +
                (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000LL;
        event.peak_bytes = usage.ru_maxrss * 1024LL;
        inside_write(fd, &event, sizeof event);
    }
}

// Everything that descends from us: we are its subreaper. New forks are met by looking again.
static void inside_kill_all(int fd, pid_t child, int *status)
{
    for (int round = 0; round < INSIDE_KILL_ROUNDS; round++) {
        char list[4096] = "";
        int children = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
        ssize_t got = children >= 0 ? read(children, list, sizeof list - 1) : -1;
        if (children >= 0)
            close(children);
        // a kernel without the lists, or a /proc that is covered
        if (got < 0 && kill(child, SIGKILL) == 0)
            got = 1;
        if (got <= 0)
            return;
        for (char *at = list; *at; at += strcspn(at, " "), at += *at == ' ')
            if (atoi(at) > 1)
                kill((pid_t)atoi(at), SIGKILL);
        inside_reap(fd, child, status);
        usleep(1000);
    }
}

// Until upgate lets go, or dies. Returns how the program ended.
static int inside_watch(int fd, pid_t child)
{
    sigset_t mask, none;
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    int status = 0;
    sigemptyset(&none);
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    signal(SIGCHLD, inside_on_child);
    do
        inside_reap(fd, child, &status);
    while (ppoll(&poller, 1, NULL, &none) <= 0);
    inside_kill_all(fd, child, &status);
    return status;
}

int main(int argc, char **argv)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = argc > 1 ? argv[1] : INSIDE_SOCKET;
    int fds[2], fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (fd < 0 || pipe2(fds, O_CLOEXEC) < 0 ||
            connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        inside_die("failed to reach upgate");
    int ptrace_error = inside_ptrace_error();
    pid_t self = getpid(), child = fork();
    if (child < 0)
        inside_die("failed to start a process");
    if (child == 0) {
        close(fds[0]);
        inside_child(fd, fds[1], self, ptrace_error);
    }
    close(fds[1]);
    // The last event before exec closes the pipe is the one that holds.
    struct inside_event event = {0}, next;
    bool told = false;
    while (inside_read(fds[0], &next, sizeof next)) {
        event = next;
        told = true;
    }
    close(fds[0]);
    if (told)
        inside_write(fd, &event, sizeof event);
    int status = inside_watch(fd, child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
