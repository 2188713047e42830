// SPDX-License-Identifier: Apache-2.0
// Holds memory that named functions touched, as many MiB of each as the environment says ($MAPPED,
// $ARENA, $FILE of $PLANT_FILE, $BACK, $AGAIN), and works for a while. For tests/root/touched.py.
// With a number: prints the ns of a page fault, the least of so many rounds, for
// ci/bench/fault_cost.py.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, BLOCK = 40000 };

// A part of who calls it, so that what is named does not depend on the walk over the stack.
__attribute__((always_inline)) static inline void touch(volatile char *memory, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += PAGE)
        memory[at] = 1;
}

static size_t mib(const char *name)
{
    const char *text = getenv(name);
    return text ? (size_t)atoi(text) << 20 : 0;
}

static char *map(size_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        exit(1);
    return memory;
}

__attribute__((noinline)) static void keeps_mapped(size_t bytes)
{
    if (bytes)
        touch(map(bytes), bytes);
}

__attribute__((noinline)) static void keeps_in_arena(size_t bytes)
{
    for (size_t at = 0; at < bytes; at += BLOCK) {
        char *block = malloc(BLOCK); // below the size from which it is mapped on its own
        if (block)
            touch(block, BLOCK);
    }
}

__attribute__((noinline)) static void keeps_file(size_t bytes)
{
    volatile char sum = 0;
    int fd = bytes ? open(getenv("PLANT_FILE"), O_RDONLY) : -1;
    char *file = bytes ? mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0) : NULL;
    if (file == MAP_FAILED)
        exit(1);
    for (size_t at = 0; at < bytes; at += PAGE)
        sum += file[at];
}

__attribute__((noinline)) static void gives_back(size_t bytes)
{
    char *memory = bytes ? map(bytes) : NULL;
    if (memory)
        touch(memory, bytes);
    if (memory)
        munmap(memory, bytes);
}

static char *again_memory;
__attribute__((noinline)) static void gives_up(size_t bytes)
{
    touch(again_memory, bytes);
    madvise(again_memory, bytes, MADV_DONTNEED);
}
__attribute__((noinline)) static void takes_again(size_t bytes)
{
    touch(again_memory, bytes);
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void works(double seconds)
{
    double end = cpu_seconds() + seconds;
    while (cpu_seconds() < end)
        ;
}

static int measures(int rounds)
{
    const size_t bytes = 64 << 20;
    double least = 1e9;
    while (rounds-- > 0) {
        char *memory = map(bytes);
        madvise(memory, bytes, MADV_NOHUGEPAGE);
        double begin = cpu_seconds();
        touch(memory, bytes);
        double seconds = cpu_seconds() - begin;
        least = seconds < least ? seconds : least;
        munmap(memory, bytes);
    }
    return printf("%.1f\n", least / (double)(bytes / PAGE) * 1e9) < 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return measures(atoi(argv[1]));
    works(0.03);     // its stacks ask for the code,
    usleep(1000000); // which the recorder knows by then; a busy machine may hold it up for half a
                     // second
    gives_back(mib("BACK"));
    if (mib("AGAIN")) {
        again_memory = map(mib("AGAIN"));
        gives_up(mib("AGAIN"));
    }
    keeps_mapped(mib("MAPPED"));
    keeps_in_arena(mib("ARENA"));
    keeps_file(mib("FILE"));
    if (again_memory)
        takes_again(mib("AGAIN"));
    works(0.25);
    return 0;
}
