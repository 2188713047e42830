// SPDX-License-Identifier: Apache-2.0
// A program with two ranks in one process that reduces over a fake NCCL: starts CUDA, loads the
// plugin that NCCL_PROFILER_PLUGIN names, waits for a line, plays, and says as lines of JSON what
// it did. Ends at the next line, with one operation in flight.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/mock/fake_nccl.h"

enum { ROUNDS = 20 };

int cuInit(unsigned flags);

static const struct fake_call calls[] = {
        {"AllReduce", "ncclFloat32", "TREE", "LL128", 262144, 0, 4, 4, 8, false},
        {"AllReduce", "ncclFloat32", "RING", "LL128", 4194304, 0, 8, 8, 16, false},
        {"AllReduce", "ncclFloat32", "RING", "SIMPLE", 67108864, 0, 24, 24, 17, false},
};

static unsigned long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec;
}

static void line_wait(void)
{
    char line[16];
    if (!fgets(line, sizeof(line), stdin))
        return;
}

static void play(struct fake_comm *comms)
{
    struct fake_task tasks[2];
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++) {
            unsigned long long begin_ns = now_ns();
            for (int rank = 0; rank < 2; rank++)
                fake_enqueue(&comms[rank], &calls[c], &tasks[rank]);
            for (int rank = 0; rank < 2; rank++)
                fake_run(&tasks[rank], calls[c].channels);
            printf("{\"type\": \"reduce\", \"begin\": %llu, \"end\": %llu, \"bytes\": %zu, "
                   "\"algorithm\": \"%s\", "
                   "\"protocol\": \"%s\", \"channels\": %d}\n",
                    begin_ns, now_ns(), calls[c].count * 4, calls[c].algorithm, calls[c].protocol,
                    calls[c].channels);
        }
    }
    fake_enqueue(&comms[0], &calls[0], &tasks[0]); // never ends
}

int main(void)
{
    struct fake_comm comms[2];
    const char *path = getenv("NCCL_PROFILER_PLUGIN");
    cuInit(0);
    void *plugin = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *symbol = plugin ? dlsym(plugin, "ncclProfiler_v5") : NULL;
    if (!symbol) {
        fprintf(stderr, "no plugin in NCCL_PROFILER_PLUGIN '%s'\n", path ? path : "");
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    fake_load(5, symbol);
    for (int rank = 0; rank < 2; rank++)
        fake_comm_init(&comms[rank], 0x8000000000000007u, "default_pg", 2, rank);
    printf("{\"type\": \"ready\", \"pid\": %d}\n", (int)getpid());
    line_wait();
    play(comms);
    printf("{\"type\": \"played\"}\n");
    line_wait();
    return 0;
}
