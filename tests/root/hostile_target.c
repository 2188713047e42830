// SPDX-License-Identifier: Apache-2.0
// Targets that do their worst to who records them, one a mode; each prints "ready" and goes on
// until it is killed.
//   stacks MAPPINGS PROCESSES   return addresses that are no code, in processes with that many
//                               mappings
//   threads                     threads that live for a moment, as fast as they can be made
//   exec NAME...                processes that run the next of these programs (copies of this one)
//                               every 20 ms
//   map FILE                    maps FILE for execution, and sleeps in its pages
//   sockets COUNT               that many connections to itself, each read from in turn
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    DEPTH = 120, // frames of a stack
    THREADS = 2,
    NAP_NS = 16000000, // longer than the threshold of the recorder: a record each
    EXEC_NS = 20000000,
    PAGE = 4096,
};

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void ready(void)
{
    puts("ready");
    fflush(stdout);
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

// Sleeps with the frame pointer at `frame`: who walks the stack finds what stands there.
static void nap(const void *frame, int64_t ns)
{
    struct timespec length = {ns / 1000000000, ns % 1000000000};
#if defined(__x86_64__)
    long number = SYS_nanosleep;
    __asm__ volatile(
            "lea -128(%%rsp), %%rsp\n push %%rbp\n mov %1, %%rbp\n syscall\n pop %%rbp\n lea 128(%%rsp), %%rsp"
            : "+a"(number)
            : "r"(frame), "D"(&length), "S"(NULL)
            : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long number __asm__("x8") = SYS_nanosleep;
    register void *first __asm__("x0") = &length;
    register void *second __asm__("x1") = NULL;
    __asm__ volatile("stp x29, x30, [sp, #-16]!\n mov x29, %3\n svc 0\n ldp x29, x30, [sp], #16"
                     : "+r"(first)
                     : "r"(second), "r"(number), "r"(frame)
                     : "memory");
#else
    (void)frame;
    nanosleep(&length, NULL);
#endif
}

// A chain of frames that returns to random places: below, between and in what is mapped.
static void nap_anywhere(uint64_t *state, uint64_t base, uint64_t bytes)
{
    uint64_t frames[DEPTH][2];
    for (int i = 0; i < DEPTH; i++) {
        frames[i][0] = i + 1 < DEPTH ? (uint64_t)(uintptr_t)frames[i + 1] : 0;
        frames[i][1] =
                i & 1 ? base + random_next(state) % bytes : random_next(state) & 0x7fffffffffff;
    }
    nap(frames, NAP_NS);
}

static uint64_t map_base, map_bytes;

static void *stacks_thread(void *argument)
{
    uint64_t state =
            88172645463325252u ^ ((uint64_t)(uintptr_t)argument << 32) ^ (uint64_t)getpid();
    for (;;)
        nap_anywhere(&state, map_base, map_bytes);
    return NULL;
}

// Neighbours that may not be merged: every other page can be executed.
static void map_many(long count)
{
    map_bytes = (uint64_t)count * PAGE;
    char *base =
            mmap(NULL, map_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        die("mmap");
    for (long i = 0; i < count; i += 2)
        if (mprotect(base + i * PAGE, PAGE, PROT_READ | PROT_EXEC))
            die("mprotect");
    map_base = (uint64_t)(uintptr_t)base;
}

static void fork_many(long processes)
{
    for (long i = 1; i < processes; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            return;
        }
    }
}

static void stacks(long mappings, long processes)
{
    pthread_t thread;
    ready();
    fork_many(processes);
    map_many(mappings);
    for (intptr_t i = 1; i < THREADS; i++)
        if (pthread_create(&thread, NULL, stacks_thread, (void *)i))
            die("pthread_create");
    stacks_thread(NULL);
}

static void *short_thread(void *argument)
{
    return argument;
}

static void threads(void)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 65536);
    ready();
    for (;;) {
        pthread_t thread;
        for (int i = 0; i < 100; i++)
            pthread_create(&thread, &attributes, short_thread, NULL);
        nap(NULL, 10000000); // 100 in 10 ms: 10,000 a second
    }
}

static void exec_next(char **names)
{
    int count = 0;
    while (names[count])
        count++;
    nap(NULL, EXEC_NS);
    static char mode[] = "exec-on";
    char *next[64] = {names[0], mode}; // the first goes to the end
    for (int i = 1; i < count && i < 60; i++)
        next[i + 1] = names[i];
    next[count + 1] = names[0];
    execv(names[0], next);
    die(names[0]);
}

static void map_file(const char *path)
{
    int fd = open(path, O_RDONLY);
    off_t bytes = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    bytes = bytes == 0 ? 16 * PAGE : bytes; // a device has no end
    char *base = bytes > 0 ? mmap(NULL, (size_t)bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0)
                           : MAP_FAILED;
    if (base == MAP_FAILED)
        die(path);
    close(fd);
    map_base = (uint64_t)(uintptr_t)base;
    map_bytes = (uint64_t)bytes;
}

static void sockets(int count)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof address;
    struct rlimit limit = {1 << 17, 1 << 17};
    struct timeval nap_time = {0, NAP_NS / 1000};
    setrlimit(RLIMIT_NOFILE, &limit);
    int listener = socket(AF_INET, SOCK_STREAM, 0), *fds = calloc((size_t)count, sizeof *fds);
    if (bind(listener, (struct sockaddr *)&address, len) || listen(listener, 128) ||
            getsockname(listener, (struct sockaddr *)&address, &len))
        die("listen");
    for (int i = 0; i < count; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fds[i], (struct sockaddr *)&address, len) || accept(listener, NULL, NULL) < 0)
            die("connect");
        setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &nap_time, sizeof nap_time);
    }
    ready();
    char byte;
    for (;;)
        for (int i = 0; i < count; i++)
            (void)!recv(fds[i], &byte, 1, 0);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "stacks") && argc == 4)
        stacks(atol(argv[2]), atol(argv[3]));
    if (!strcmp(mode, "threads"))
        threads();
    if (!strcmp(mode, "exec") && argc > 3) {
        ready();
        fork_many(8);
    }
    if (!strncmp(mode, "exec", 4) && argc > 3)
        exec_next(argv + 2);
    if (!strcmp(mode, "map") && argc == 3) {
        map_file(argv[2]);
        ready();
        stacks_thread(NULL);
    }
    if (!strcmp(mode, "sockets") && argc == 3)
        sockets(atoi(argv[2]));
    fprintf(stderr,
            "usage: hostile_target stacks MAPPINGS PROCESSES | threads | exec NAME... | map FILE | sockets COUNT\n");
    return 2;
}
