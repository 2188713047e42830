// SPDX-License-Identifier: Apache-2.0
// The program of tests/e2e/rules.py and ab_rules.py: it makes no step call, but has ranges of NVTX
// (the real one, of NVIDIA's headers) or replays graphs of the fake CUDA. Nothing of upgate is
// linked to it.
//
// usage: rules_subject WAY COUNT US    US: microseconds of CPU time in each of COUNT iterations
//   SLEEPS=1  it sleeps for as long instead;  SLOWER_PCT=N  each takes so much longer;  WAITS=FILE
//       gets a line: how often the device was waited for
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/mock/fake.h"
#ifdef RULES_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

static int count;
static long work_ns;

// CPU time: a busy machine takes nothing of it.
static long cpu_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return at.tv_sec * 1000000000 + at.tv_nsec;
}

static void work(void)
{
    const struct timespec nap = {.tv_nsec = work_ns}; // below a second
    long end = cpu_ns() + work_ns;
    if (getenv("SLEEPS")) {
        nanosleep(&nap, NULL);
        return;
    }
    while (cpu_ns() < end)
        ;
}

// ---- graphs ----

static void replay(uint32_t graph)
{
    fake_op(&(struct fake_op){
            .what = FAKE_GRAPH, .context = 1, .stream = 7, .graph = graph, .nodes = 3});
}

static void cuda_begin(void)
{
    cuInit(0);
    fake_op(&(struct fake_op){.what = FAKE_CONTEXT, .context = 1});
    fake_op(&(struct fake_op){.what = FAKE_STREAM, .context = 1, .stream = 7});
}

static void cuda_end(void)
{
    FILE *file = getenv("WAITS") ? fopen(getenv("WAITS"), "a") : NULL;
    if (!file)
        return;
    fprintf(file, "%u\n", fake_cuda_waits());
    fclose(file);
}

// graph: one; rounds: two in turn; more: one side's program (MORE=1) replays its graph three times
// where the other does once.
static void graphs(const char *way)
{
    int times = getenv("MORE") ? 3 : 1;
    cuda_begin();
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < times; k++) {
            work();
            replay(3);
        }
        if (strcmp(way, "rounds") == 0)
            replay(4);
    }
    cuda_end();
}

// ---- ranges ----

#ifdef RULES_NVTX
static void step_of(void)
{
    nvtxRangePushA("data");
    nvtxRangePop();
    nvtxRangePushA("step");
    nvtxMarkA("mark");
    nvtxRangePushA("forward");
    nvtxRangePushA("step"); // within itself
    work();
    nvtxRangePop();
    nvtxRangePop();
    nvtxRangePop();
}

static void *steps_of(void *unused)
{
    for (int i = 0; i < count; i++)
        step_of();
    return unused;
}

static void *end_range(void *id)
{
    nvtxRangeEnd(*(nvtxRangeId_t *)id);
    return NULL;
}

static void wait_for(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        ;
    if (status != 0)
        exit(9);
}

// Each iteration in one way of marking it.
static void marked(const char *way)
{
    nvtxDomainHandle_t domain = nvtxDomainCreateA("train");
    nvtxStringHandle_t string = nvtxDomainRegisterStringA(domain, "batch");
    nvtxEventAttributes_t attributes = {
            .version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE};
    for (int i = 0; i < count; i++) {
        char name[40];
        nvtxRangeId_t id;
        pthread_t thread;
        snprintf(name, sizeof(name), "iteration %d", i);
        if (strcmp(way, "started") == 0) { // and ended by another thread
            id = nvtxRangeStartA("batch");
            work();
            pthread_create(&thread, NULL, end_range, &id);
            pthread_join(thread, NULL);
        } else if (strcmp(way, "registered") == 0) {
            attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
            attributes.message.registered = string;
            nvtxDomainRangePushEx(domain, &attributes);
            work();
            nvtxDomainRangePop(domain);
        } else if (strcmp(way, "extended") == 0) {
            attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
            attributes.message.ascii = "batch";
            id = nvtxDomainRangeStartEx(domain, &attributes);
            work();
            nvtxDomainRangeEnd(domain, id);
        } else if (strcmp(way, "wide") == 0) {
            nvtxRangePushW(L"Schritt \u00fc");
            work();
            nvtxRangePop();
        } else if (strcmp(way, "numbered") == 0) {
            nvtxRangePushA(name);
            work();
            nvtxRangePop();
        }
    }
}

// A child that was forked within a step: what it ends is none of its own, and its steps are another
// process's.
static void forks(bool is_within)
{
    pid_t pid = 0;
    for (int i = 0; i < count; i++) {
        if (i == 3 && is_within) {
            nvtxRangePushA("step");
            pid = fork();
            if (pid != 0)
                work();
            nvtxRangePop();
            if (pid == 0)
                _exit(0);
            wait_for(pid);
        } else {
            step_of();
        }
    }
}

// Each makes as many steps; or (is_uneven) one of them two of all, and waits for the other's end
// then.
static void workers(bool is_uneven)
{
    pid_t pids[2] = {0};
    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        if (pids[i] != 0)
            continue;
        if (i == 1 && is_uneven) {
            count = 2;
            steps_of(NULL);
            while (kill(pids[0], 0) == 0)
                usleep(1000);
        } else {
            steps_of(NULL);
        }
        exit(0);
    }
    for (int i = 0; i < 2; i++)
        wait_for(pids[i]);
}

static void threads(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, steps_of, NULL);
    steps_of(NULL);
    pthread_join(thread, NULL);
}

// The third iteration is captured: a wait for the device in it would end the capture.
static void captures(void)
{
    cuda_begin();
    for (int i = 0; i < count; i++) {
        unsigned waits = fake_cuda_waits();
        if (i == 2)
            fake_op(&(struct fake_op){.what = FAKE_CAPTURE, .kind = 1, .context = 1, .stream = 7});
        step_of();
        if (i == 2 && fake_cuda_waits() != waits)
            exit(8);
        if (i == 2)
            fake_op(&(struct fake_op){.what = FAKE_CAPTURE, .kind = 2, .context = 1, .stream = 7});
    }
    cuda_end();
}

// What a range costs alone: nothing is done in it.
static void bare(void)
{
    for (int i = 0; i < count; i++) {
        nvtxRangePushA("step");
        nvtxRangePop();
    }
}

static int ranges(const char *way)
{
    if (strcmp(way, "bare") == 0)
        bare();
    else if (strcmp(way, "push") == 0)
        steps_of(NULL);
    else if (strcmp(way, "threads") == 0)
        threads();
    else if (strcmp(way, "workers") == 0)
        workers(false);
    else if (strcmp(way, "uneven") == 0)
        workers(true);
    else if (strcmp(way, "fork_within") == 0)
        forks(true);
    else if (strcmp(way, "capture") == 0)
        captures();
    else if (strcmp(way, "unpopped") == 0)
        for (int i = 0; i < count; i++, work())
            nvtxRangePushA("step");
    else
        marked(way);
    return 0;
}
#else
static int ranges(const char *way)
{
    fprintf(stderr, "%s: no NVTX\n", way);
    return 77;
}
#endif

int main(int argc, char **argv)
{
    long begin;
    if (argc != 4)
        return 2;
    count = atoi(argv[2]);
    work_ns = atol(argv[3]) * 1000 *
            (100 + (getenv("SLOWER_PCT") ? atoi(getenv("SLOWER_PCT")) : 0)) / 100;
    if (strcmp(argv[1], "bare") == 0) { // the library is loaded, and the first step made, before
        count = 1;
        if (ranges("bare") != 0)
            return 77;
        count = atoi(argv[2]);
    }
    begin = cpu_ns();
    if (strcmp(argv[1], "none") == 0)
        for (int i = 0; i < count; i++)
            work();
    else if (strcmp(argv[1], "graph") == 0 || strcmp(argv[1], "rounds") == 0)
        graphs(argv[1]);
    else if (ranges(argv[1]) != 0)
        return 77;
    long took = cpu_ns() - begin;
    fprintf(stderr, "done %d, %.3f s, %.3f us each\n", count, (double)took * 1e-9,
            (double)took * 1e-3 / count);
    return 0;
}
