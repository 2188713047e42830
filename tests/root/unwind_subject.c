// SPDX-License-Identifier: Apache-2.0
// Deep stacks without frame pointers, for unwind.py: unwind_subject MODE SECONDS. It is compiled
// with -fomit-frame-pointer. Each stack has main, DEPTH times descends, and at its leaf spins_here
// (a sample) or naps_here (a switch-out).
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { DEPTH = 40 };
#define KEPT static __attribute__((noinline, noclone))

static volatile unsigned long sink;
static int (*leaf)(void);

static double now_s(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

KEPT int spins_here(void)
{
    for (unsigned i = 0; i < 3000000; i++)
        sink += i;
    return 1;
}

KEPT int naps_here(void)
{
    struct timespec pause = {.tv_nsec = 3000000};
    return nanosleep(&pause, NULL) + 1;
}

KEPT int both_here(void)
{
    int a = spins_here();
    return a + naps_here();
}

// No call is the last thing in its function: else the compiler would make it a jump.
KEPT int descends(int depth)
{
    volatile char room[96];
    room[depth % 96] = (char)depth;
    int below = depth ? descends(depth - 1) : leaf();
    return below + room[depth % 96];
}

KEPT void *thread_main(void *unused)
{
    for (;;)
        sink += (unsigned long)descends(DEPTH - 1);
    return unused;
}

KEPT void on_signal(int number)
{
    sink += (unsigned long)(both_here() + number);
}

KEPT int raises_here(void)
{
    return raise(SIGUSR1) + 1;
}

// call *%rdi in a frame, with a frame pointer; `plain`: without.
static int (*jit_code(int plain))(int (*)(void))
{
    static const unsigned char framed[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
    static const unsigned char bare[] = {0x50, 0xff, 0xd7, 0x59, 0xc3};
    void *page = mmap(
            NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        exit(3);
    memcpy(page, plain ? bare : framed, plain ? sizeof bare : sizeof framed);
    return (int (*)(int (*)(void)))page;
}

static int (*jitted)(int (*)(void));

// Assembly as libraries of mathematics have it: a frame that its .eh_frame does not tell of,
// registers saved in it, rbp of other use.
int assembly_spins(void);
__asm__(".text\n.type assembly_spins, @function\nassembly_spins:\n.cfi_startproc\n"
        "sub $0x80, %rsp\nmov %rbx, (%rsp)\nmov %rbp, 8(%rsp)\nmov $12345, %rbp\nmov $3000000, %rbx\n"
        "1: dec %rbx\njnz 1b\n"
        "mov (%rsp), %rbx\nmov 8(%rsp), %rbp\nadd $0x80, %rsp\nmov $1, %eax\nret\n.cfi_endproc\n"
        ".size assembly_spins, .-assembly_spins\n");

KEPT int assembly_here(void)
{
    int a = assembly_spins();
    return a + both_here();
}

KEPT int leaf_by_jit(void)
{
    return jitted(both_here) + 1;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 2 ? argv[1] : "";
    double end_s = now_s(CLOCK_MONOTONIC) + (argc > 2 ? atof(argv[2]) : 0);
    pthread_t thread;
    leaf = both_here;
    if (!strcmp(mode, "thread") && pthread_create(&thread, NULL, thread_main, NULL))
        return 3;
    if (!strcmp(mode, "signal")) {
        signal(SIGUSR1, on_signal);
        leaf = raises_here;
    }
    if (!strcmp(mode, "assembly"))
        leaf = assembly_here;
    if (!strcmp(mode, "jit") || !strcmp(mode, "bare")) {
        jitted = jit_code(!strcmp(mode, "bare"));
        leaf = leaf_by_jit;
    }
    while (now_s(CLOCK_MONOTONIC) < end_s) {
        if (!strcmp(mode, "thread")) {
            sleep(1);
            continue;
        }
        sink += (unsigned long)descends(DEPTH - 1);
    }
    return 0;
}
