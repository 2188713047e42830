// SPDX-License-Identifier: Apache-2.0
// What the tests of the capture look at: one behaviour a mode, until stdin closes. Prints "ready"
// when it is so.
//   pipe       a thread sleeps 5 ms and writes to a pipe that main reads; prints the writer's
//   thread id mutex      a thread holds a mutex for 20 ms at a time, main wants it; prints the
//   holder's thread id map BYTES  resident memory in small pages, and main maps and unmaps spin
//   main runs threads N  N threads sleep a second at a time idle       main waits for stdin; a line
//   "thread" starts a sleeper, "fork" a child that sleeps, "exec" a child
//              that becomes sleep(1), "thread exec" one whose thread does, "late thread exec" after
//              200 naps, "name" gives main another name; each answers with the id; "nap" starts a
//              thread that sleeps 20 ms, works for 2 and ends: the answer is when it was back
//   storm      two threads play ping-pong over pipes
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, STACK_BYTES = 65536 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int pipes[2][2];

static void sleep_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&time, NULL);
}

static void say(const char *what, long id)
{
    printf("%s %ld\n", what, id);
    fflush(stdout);
}

static void start(void *(*run)(void *))
{
    pthread_attr_t attributes;
    pthread_t thread;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, run, NULL)) {
        perror("pthread_create");
        exit(1);
    }
}

// Ends the process when the test has closed our stdin.
static void *wait_for_end(void *unused)
{
    char byte;

    (void)unused;
    while (read(0, &byte, 1) > 0)
        continue;
    _exit(0);
}

static void *write_slowly(void *unused)
{
    (void)unused;
    prctl(PR_SET_NAME, "writer");
    say("id", syscall(SYS_gettid));
    for (;;) {
        sleep_ms(5);
        if (write(pipes[0][1], "x", 1) != 1)
            return NULL;
    }
}

static void *hold_mutex(void *unused)
{
    (void)unused;
    prctl(PR_SET_NAME, "holder");
    say("id", syscall(SYS_gettid));
    for (;;) {
        pthread_mutex_lock(&mutex);
        sleep_ms(20);
        pthread_mutex_unlock(&mutex);
        sleep_ms(1);
    }
    return NULL;
}

static void *sleep_often(void *unused)
{
    for (;;)
        sleep_ms(20);
    return unused;
}

static void *sleep_long(void *unused)
{
    for (;;)
        sleep_ms(1000);
    return unused;
}

static void *become_sleep(void *unused)
{
    execlp("sleep", "sleep", "0.05", NULL);
    return unused;
}

static void *nap_and_become_sleep(void *unused)
{
    for (int i = 0; i < 200; i++)
        usleep(100);
    execlp("sleep", "sleep", "20", NULL); // it is asked about before it ends
    return unused;
}

static long now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

// Wakes nobody before it ends: it would be switched out for that one.
static void *nap_and_work(void *ret_back)
{
    long back;

    sleep_ms(20);
    back = now_ns();
    while (now_ns() - back < 2000000)
        continue;
    *(long *)ret_back = back;
    return NULL;
}

static void nap(void)
{
    pthread_t thread;
    long back;

    if (pthread_create(&thread, NULL, nap_and_work, &back))
        exit(1);
    pthread_join(thread, NULL);
    say("id", back);
}

static void *tell_and_sleep(void *unused)
{
    say("id", syscall(SYS_gettid));
    return sleep_often(unused);
}

static void *answer(void *unused)
{
    char byte;

    while (read(pipes[0][0], &byte, 1) == 1 && write(pipes[1][1], &byte, 1) == 1)
        continue;
    return unused;
}

static void run_map(size_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    madvise(memory, bytes, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < bytes; i += PAGE)
        memory[i] = 1;
    say("ready", getpid());
    for (;;) {
        void *small =
                mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        munmap(small, 16 * PAGE);
        usleep(200);
    }
}

static void run_idle(void)
{
    char line[64];

    say("ready", getpid());
    while (fgets(line, sizeof(line), stdin)) {
        pid_t child;

        if (!strcmp(line, "thread\n")) {
            start(tell_and_sleep);
            continue;
        }
        if (!strcmp(line, "nap\n")) {
            nap();
            continue;
        }
        if (!strcmp(line, "name\n")) {
            prctl(PR_SET_NAME, "other name");
            say("id", getpid());
            continue;
        }
        child = fork();
        if (child) {
            say("id", child);
            continue;
        }
        prctl(PR_SET_PDEATHSIG, 9);
        if (!strcmp(line, "exec\n"))
            execlp("sleep", "sleep", "0.05", NULL);
        if (!strcmp(line, "thread exec\n"))
            start(become_sleep);
        if (!strcmp(line, "late thread exec\n"))
            start(nap_and_become_sleep);
        sleep_often(NULL);
    }
}

static void run_storm(void)
{
    char byte = 0;

    start(answer);
    say("ready", getpid());
    while (write(pipes[0][1], &byte, 1) == 1 && read(pipes[1][0], &byte, 1) == 1)
        continue;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    long number = argc > 2 ? atol(argv[2]) : 0;
    char byte;

    if (pipe(pipes[0]) || pipe(pipes[1]))
        return 1;
    if (!strcmp(mode, "idle")) {
        run_idle();
        return 0;
    }
    start(wait_for_end);
    if (!strcmp(mode, "pipe")) {
        start(write_slowly);
        say("ready", getpid());
        while (read(pipes[0][0], &byte, 1) == 1)
            continue;
    } else if (!strcmp(mode, "mutex")) {
        start(hold_mutex);
        say("ready", getpid());
        for (;;) {
            pthread_mutex_lock(&mutex);
            pthread_mutex_unlock(&mutex);
            usleep(500);
        }
    } else if (!strcmp(mode, "map")) {
        run_map((size_t)number);
    } else if (!strcmp(mode, "spin")) {
        say("ready", getpid());
        for (volatile unsigned long i = 0;; i++)
            continue;
    } else if (!strcmp(mode, "threads")) {
        for (long i = 0; i < number; i++)
            start(sleep_long);
        say("ready", getpid());
        pause();
    } else if (!strcmp(mode, "storm")) {
        run_storm();
    }
    return 0;
}
