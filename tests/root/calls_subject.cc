// SPDX-License-Identifier: Apache-2.0
/*
 * A server of C++ whose calls are to be steps: `calls_subject HOW COUNT STEP_US`. Compiled by tests/root/calls.py and
 * ab_calls.py, also as a library (-DLIBRARY). A step takes its time by the CPU time of its thread: what others take of the
 * machine is not its own. Prints "done COUNT" when all calls did what they should.
 */
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTLINE __attribute__((noinline, noclone))

static double now_us()
{
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

// $SLOWER_PCT longer on one side.
static OUTLINE void spin(int us)
{
    static const char *slower = getenv("SLOWER_PCT"), *sleeps = getenv("SLEEPS"), *first = getenv("FIRST_MS"), *every = getenv("SLOW_EVERY");
    static int count;
    if (first && !__atomic_fetch_add(&count, 1, __ATOMIC_RELAXED))
        usleep((useconds_t)atoi(first) * 1000);
    else if (every && atoi(every) && __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED) % atoi(every) == atoi(every) - 1)
        us *= 200;
    us = (int)(us * (1 + 0.01 * (slower ? atoi(slower) : 0)));
    if (sleeps) // what a busy machine disturbs least
        usleep((useconds_t)us);
    for (double end = now_us() + us; !sleeps && now_us() < end;)
        ;
}

// A recording stops nothing: its breakpoint wants time.
static inline void rest()
{
    const char *pause = getenv("PAUSE_MS");
    if (pause)
        usleep((useconds_t)atoi(pause) * 1000);
}

#ifdef LIBRARY

extern "C" OUTLINE int process_batch(int us)
{
    spin(us);
    return us + 1;
}

#else

static volatile int sink;

// Two of one name, and names that are like another.
static OUTLINE void twice(int us) { spin(us); }
static OUTLINE void twice(long us) { spin((int)us); }

// A function of libc has this name, too.
static OUTLINE void step(int us) { spin(us); }

namespace serve {

struct Server {
    int served = 0;
    OUTLINE void handle(int us);
    OUTLINE void handles(int us);
};

OUTLINE void Server::handle(int us)
{
    spin(us);
    served++;
}

OUTLINE void Server::handles(int us) { spin(us + sink); }

OUTLINE int walk(int depth, int us)
{
    if (depth == 0) {
        spin(us);
        return 1;
    }
    return walk(depth - 1, us) + 1;
}

OUTLINE void refuse(int idx, int us)
{
    spin(us);
    if (idx % 3 == 2)
        throw idx;
    sink = idx;
}

static jmp_buf out;
OUTLINE void jump(int idx, int us)
{
    spin(us);
    if (idx % 3 == 2)
        longjmp(out, 1);
    sink = idx;
}

OUTLINE int last(int us)
{
    spin(us);
    return us + sink;
}
OUTLINE int tail(int us) { return last(us); } // a jump, not a call

OUTLINE void tiny() { sink = sink + 1; }

} // namespace serve

static int refused(int count, int us)
{
    int caught = 0;
    for (int i = 0; i < count; i++) {
        try {
            serve::refuse(i, us);
        } catch (int) {
            caught++;
        }
    }
    return caught == count / 3;
}

static int jumped(int count, int us)
{
    static volatile int i, left;
    for (i = left = 0; i < count; i++) {
        if (setjmp(serve::out))
            left++;
        else
            serve::jump(i, us);
    }
    return left == count / 3;
}

static int batches(const char *library, int count, int us)
{
    void *handle = dlopen(library, RTLD_NOW);
    int (*process_batch)(int) = handle ? (int (*)(int))dlsym(handle, "process_batch") : NULL;
    int good = 0;
    rest();
    for (int i = 0; process_batch && i < count; i++)
        good += process_batch(us) == us + 1;
    return good == count;
}

static void *serving(void *arg)
{
    serve::Server server;
    const int *n = (const int *)arg;
    for (int i = 0; i < n[0]; i++)
        server.handle(n[1]);
    return NULL;
}

static int workers(int count, int us)
{
    int n[2] = {count, us}, status, good = 0;
    for (int i = 0; i < 2; i++)
        if (fork() == 0) {
            serving(n);
            _exit(0);
        }
    while (wait(&status) > 0)
        good += status == 0;
    return good == 2;
}

static volatile sig_atomic_t continued;

static void on_continue(int)
{
    continued = 1;
}

// More than have room for their steps.
static int many(int count, int us)
{
    int n[2] = {count, us}, status, good = 0, started = 0;
    for (; started < 70; started++)
        if (fork() == 0) {
            signal(SIGCONT, on_continue);
            serving(n);
            usleep(300000); // by now it has been told whether there is room
            _exit(continued);
        }
    while (wait(&status) > 0)
        good += status == 0;
    return good == started;
}

// One has a share of the work, the other waits for it to end.
static int uneven(int count, int us)
{
    int n[2] = {count, us}, pipes[2], status = 1;
    char byte;
    if (pipe(pipes))
        return 0;
    if (fork() == 0) {
        close(pipes[0]);
        serving(n);
        _exit(0);
    }
    close(pipes[1]);
    n[0] = 1;
    serving(n);
    return read(pipes[0], &byte, 1) == 0 && wait(&status) > 0 && status == 0;
}

// A loop that runs on without calls, 16,384 times a call. What the call returns to is its own in the first one, and of the loop in the second.
#if defined(__x86_64__)
#define POLL(name, behind)                                                                           \
    asm(".globl " name "\n.type " name ",@function\n" name ": push %rbx\n push %r12\n sub $8,%rsp\n"  \
        " mov %rdi,%rbx\n mov %esi,%r12d\n1: test $0x3fff,%ebx\n jne 2f\n mov %r12d,%edi\n"          \
        " call poll_step\n" behind "2: sub $1,%rbx\n jne 1b\n"                                       \
        " add $8,%rsp\n pop %r12\n pop %rbx\n ret\n.size " name ",.-" name "\n")
extern "C" {
OUTLINE void poll_step(int us) { spin(us); }
void poll_own(long polls, int us);
void poll_shared(long polls, int us);
}
POLL("poll_own", " xor %eax,%eax\n");
POLL("poll_shared", "");
#else
extern "C" OUTLINE void poll_step(int us) { spin(us); }
static void poll_own(long polls, int us)
{
    for (long i = 0; i < polls; i++)
        if (i % 16384 == 0)
            poll_step(us);
}
#define poll_shared poll_own
#endif

static int threads(int count, int us)
{
    pthread_t other;
    int n[2] = {count, us};
    pthread_create(&other, NULL, serving, n);
    serving(n);
    return pthread_join(other, NULL) == 0;
}

int main(int argc, char **argv)
{
    const char *how = argv[1], *library = getenv("LIBRARY");
    int count = atoi(argv[2]), us = atoi(argv[3]), good = 1;
    int n[2] = {count, us};
    (void)argc;
    rest();
    if (!strcmp(how, "serve"))
        serving(n);
    else if (!strcmp(how, "walk"))
        for (int i = 0; i < count; i++)
            good = serve::walk(3, us) == 4 && good;
    else if (!strcmp(how, "refuse"))
        good = refused(count, us);
    else if (!strcmp(how, "jump"))
        good = jumped(count, us);
    else if (!strcmp(how, "tail"))
        for (int i = 0; i < count; i++)
            sink = serve::tail(us) > 0 ? 0 : 1;
    else if (!strcmp(how, "load"))
        good = batches(library, count, us);
    else if (!strcmp(how, "workers"))
        good = workers(count, us);
    else if (!strcmp(how, "many"))
        good = many(count, us);
    else if (!strcmp(how, "uneven"))
        good = uneven(count, us);
    else if (!strcmp(how, "own"))
        poll_own(count * 16384L, us);
    else if (!strcmp(how, "shared"))
        poll_shared(count * 16384L, us);
    else if (!strcmp(how, "threads"))
        good = threads(count, us);
    else if (!strcmp(how, "tiny"))
        for (int i = 0; i < count; i++)
            serve::tiny();
    else if (!strcmp(how, "twice"))
        for (int i = 0; i < count; i++)
            twice(us), twice((long)us);
    else if (!strcmp(how, "step"))
        for (int i = 0; i < count; i++)
            step(us);
    else if (!strcmp(how, "die")) {
        serve::Server server;
        for (int i = 0; i < count; i++) {
            server.handle(us);
            if (i == count / 2)
                raise(SIGSEGV);
        }
    } else
        return 2;
    if (good)
        printf("done %d\n", count);
    return good ? 0 : 1;
}

#endif
