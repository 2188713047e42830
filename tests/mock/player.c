// SPDX-License-Identifier: Apache-2.0
// A CUDA program without a GPU: loads the tracer's library as CUDA does (cuInit of the fake
// libcuda.so.1 reads CUDA_INJECTION64_PATH), waits for a line on stdin, plays a story through the
// fake, and tells what it did as lines of JSON: the truth that tests/mock/expect.py holds the
// records against.
//
// usage: player STORY [threads=N] [n=N] [streams=N] [contexts=N] [context=before|after]
//               [exit=middle|_exit|return]
// context: made before the line comes, as in a process that is switched on while it runs, or after.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "contracts/inject_api.h"
#include "tests/mock/fake.h"
#include "tests/mock/manners.h"

#define TRUTH_MAX 40000
#define THREADS_MAX 512

struct truth {
    struct fake_op op;
    char name[40]; // as it was then
    uint32_t tid, correlation;
    int64_t before_ns, after_ns;
};

static struct options {
    int threads, n, streams, contexts;
    const char *exit, *context;
} options = {1, 1000, 2, 1, "return", "before"};

static struct truth *truths;
static atomic_uint truth_count;
static atomic_ulong ops, ns_max, ns_sum;
static atomic_bool is_told = true, is_over;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void nap(int64_t ns)
{
    struct timespec time = {ns / 1000000000, ns % 1000000000};
    nanosleep(&time, NULL);
}

static uint32_t play(struct fake_op op)
{
    int64_t before = now_ns();
    uint32_t correlation = fake_op(&op);
    int64_t after = now_ns();
    unsigned long spent = (unsigned long)(after - before), most = atomic_load(&ns_max);
    while (spent > most && !atomic_compare_exchange_weak(&ns_max, &most, spent))
        ;
    atomic_fetch_add(&ns_sum, spent);
    atomic_fetch_add(&ops, 1);
    if (!is_told)
        return correlation;
    unsigned at = atomic_fetch_add(&truth_count, 1);
    if (at < TRUTH_MAX) {
        truths[at] = (struct truth){.op = op,
                .tid = (uint32_t)syscall(SYS_gettid),
                .correlation = correlation,
                .before_ns = before,
                .after_ns = after};
        snprintf(truths[at].name, sizeof(truths[at].name), "%s", op.name ? op.name : "");
    }
    return correlation;
}

static const char *const kernel_names[] = {
        "_Z4gemmPKfS0_Pfiii", "_Z7softmaxPfi", "_Z4reluPf", "ncclDevKernel_AllReduce"};

static struct fake_op launch_of(int thread, int i)
{
    return (struct fake_op){
            .what = FAKE_LAUNCH,
            .name = kernel_names[i % 4],
            .device = 0,
            .context = 1 + (uint32_t)(i % options.contexts),
            .stream = 7 + (uint32_t)((i + thread) % options.streams),
            .grid = {(uint32_t)i + 1, 2, 3},
            .block = {128, 1, 1},
    };
}

static void play_begin(void)
{
    for (int i = 0; i < options.contexts; i++)
        play((struct fake_op){.what = FAKE_CONTEXT, .context = 1 + (uint32_t)i});
    for (int i = 0; i < options.streams; i++)
        play((struct fake_op){.what = FAKE_STREAM, .context = 1, .stream = 7 + (uint32_t)i});
}

// A bit of everything, for every record of the contract.
static void *mixed(void *arg)
{
    int thread = (int)(intptr_t)arg;
    for (int i = 0; i < options.n; i++) {
        struct fake_op op = launch_of(thread, i);
        uint64_t id = (uint64_t)thread * 100000 + (uint64_t)i + 1;
        if (i % 10 == 0)
            play((struct fake_op){
                    .what = FAKE_MARK, .kind = 2, .id = id, .name = "step", .domain = "player"});
        play(op);
        if (i % 5 == 1)
            play((struct fake_op){.what = FAKE_COPY,
                    .kind = 1,
                    .context = op.context,
                    .stream = op.stream,
                    .bytes = 4096 + id});
        if (i % 20 == 2)
            play((struct fake_op){
                    .what = FAKE_SET, .context = op.context, .stream = op.stream, .bytes = 512});
        if (i % 20 == 3)
            play((struct fake_op){
                    .what = FAKE_PEER, .context = op.context, .stream = op.stream, .bytes = 8192});
        if (i % 10 == 4)
            play((struct fake_op){.what = FAKE_SYNC,
                    .kind = 1 + (uint32_t)(i / 10 % 4),
                    .context = op.context,
                    .stream = op.stream,
                    .id = id});
        if (i % 20 == 5)
            play((struct fake_op){.what = FAKE_MALLOC,
                    .context = op.context,
                    .bytes = 1 << 20,
                    .address = 0x7f0000000000 + id});
        if (i % 20 == 6)
            play((struct fake_op){.what = FAKE_FREE,
                    .context = op.context,
                    .bytes = 1 << 20,
                    .address = 0x7f0000000000 + id});
        if (i % 40 == 7)
            play((struct fake_op){.what = FAKE_POOL,
                    .kind = (uint32_t)(i / 40 % 4),
                    .context = op.context,
                    .bytes = 2048,
                    .address = 0x7e0000000000 + id,
                    .id = 0x555500});
        if (i % 3 == 0)
            play((struct fake_op){.what = FAKE_QUERY, .context = op.context});
        if (i % 7 == 0) {
            op.what = FAKE_LAUNCH_DRIVER;
            play(op);
        }
        if (i % 50 == 8)
            play((struct fake_op){.what = FAKE_GRAPH,
                    .name = "_Z4nodev",
                    .context = op.context,
                    .stream = op.stream,
                    .graph = 3,
                    .nodes = 20,
                    .grid = {1, 1, 1},
                    .block = {32, 1, 1}});
        if (i % 10 == 9)
            play((struct fake_op){.what = FAKE_MARK,
                    .kind = 4,
                    .id = id - 9,
                    .name = "step",
                    .domain = "player"});
    }
    return NULL;
}

static void *launches(void *arg)
{
    for (int i = 0; i < options.n; i++)
        play(launch_of((int)(intptr_t)arg, i));
    return NULL;
}

static void *endless(void *arg)
{
    for (int i = 0; !atomic_load(&is_over); i++) {
        play(launch_of((int)(intptr_t)arg, i % 1000));
        if (i % 4 == 3)
            nap(1000000); // 4,000 launches a second and thread
    }
    return NULL;
}

// A pool of threads larger than the spool has segments: each launches now and then.
static void *seldom(void *arg)
{
    for (int i = 0; i < options.n; i++) {
        play(launch_of((int)(intptr_t)arg, i));
        nap(100000000);
    }
    return NULL;
}

static void on_threads(void *(*story)(void *))
{
    pthread_t threads[THREADS_MAX];
    for (int i = 0; i < options.threads; i++)
        if (pthread_create(&threads[i], NULL, story, (void *)(intptr_t)i))
            abort();
    for (int i = 0; i < options.threads; i++)
        pthread_join(threads[i], NULL);
}

// A name's memory is used again for another name after its module went.
static void modules(void)
{
    char *name = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (name == MAP_FAILED)
        abort();
    for (int round = 0; round < 10; round++) {
        snprintf(name, 64, "_Z%dmodule_kernel%dv", 14, round);
        for (int i = 0; i < options.n / 10; i++) {
            struct fake_op op = launch_of(0, i);
            op.name = name;
            play(op);
        }
        play((struct fake_op){.what = FAKE_UNLOAD, .context = 1});
    }
}

// A name's memory is gone before its kernel's record is given out.
static void gone(void)
{
    for (int round = 0; round < 5; round++) {
        char *name = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (name == MAP_FAILED)
            abort();
        strcpy(name, "_Z4gonev");
        struct fake_op op = launch_of(0, round);
        op.name = name;
        is_told = round == 0; // the truth would read it too
        play(op);
        munmap(name, 4096);
    }
    is_told = true;
    launches(NULL);
}

static void graphs(void)
{
    for (uint32_t graph = 3; graph < 6; graph++) {
        struct fake_op op = {.what = FAKE_GRAPH_MAKE,
                .name = "_Z4nodev",
                .context = 1,
                .stream = 7,
                .graph = graph,
                .nodes = 5 * graph,
                .grid = {1, 1, 1},
                .block = {32, 1, 1}};
        play(op);
        op.what = FAKE_GRAPH;
        for (int i = 0; i < options.n / 100; i++)
            play(op);
    }
}

static void forks(char **argv)
{
    (void)argv;
    launches(NULL);
    for (int i = 0; i < 5; i++) {
        fflush(NULL);
        // The last without handlers of fork, as sandboxes make their children.
        pid_t child = i < 4 ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0 && i == 4)
            exit(45);
        if (child == 0 && i == 0)
            exit(41); // with everything that runs at exit
        if (child == 0 && i == 1)
            _exit(42);
        if (child == 0 && i == 2) { // what CUDA forbids, and programs do
            launches(NULL);
            exit(44);
        }
        if (child == 0) {
            execl("/bin/sh", "sh", "-c", "exit 43", (char *)NULL);
            _exit(1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        printf("{\"type\":\"child\",\"status\":%d,\"signal\":%d}\n",
                WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        launches(NULL);
    }
}

static void closes(void)
{
    launches(NULL);
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *handle = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    for (int i = 0; handle && i < 3; i++) // this one's, CUDA's, and one too many
        dlclose(handle);
    nap(20000000);
    launches(NULL);
}

// What the Python extension does: asks the library for its functions, listens to launches, writes
// records of its own.
static const struct ug_inject_api *api;
static atomic_ulong heard, heard_wrong, put_failed;
static _Thread_local uint32_t launch_expected;

static void on_launch(uint32_t correlation)
{
    struct {
        struct ug_rec_launch_stack stack;
        uint32_t frames[2];
    } record = {.stack = {{UG_REC_LAUNCH_STACK, sizeof(record), 0}, correlation, 2}};
    record.frames[0] = api->string("leaf (model.py:7)", 17);
    record.frames[1] = api->string("root (main.py:1)", 16);
    atomic_fetch_add(&heard, 1);
    if (correlation != api->correlation() || (launch_expected && correlation < launch_expected))
        atomic_fetch_add(&heard_wrong, 1);
    launch_expected = correlation;
    if (api->put(UG_PRODUCER_PYTHON, &record))
        atomic_fetch_add(&put_failed, 1);
}

static void hooks(void)
{
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *handle = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    ug_inject_api_fn ask = handle ? (ug_inject_api_fn)dlsym(handle, UG_INJECT_API_SYMBOL) : NULL;
    api = ask ? ask(UG_INJECT_API_VERSION) : NULL;
    if (!api || ask(UG_INJECT_API_VERSION + 1) || api->bytes < sizeof(*api))
        abort();
    api->on_launch(on_launch);
    launches(NULL);
    api->on_launch(NULL);
    printf("{\"type\":\"hooks\",\"heard\":%lu,\"wrong\":%lu,\"put_failed\":%lu,\"correlation_"
           "outside\":%u}\n",
            atomic_load(&heard), atomic_load(&heard_wrong), atomic_load(&put_failed),
            api->correlation());
}

// What the NVTX of two libraries does at its first call: one before anything is recorded, one
// after.
static const void *nvtx_table_a(uint32_t id)
{
    static const uint32_t table = 1;
    return id ? &table : NULL;
}

static const void *nvtx_table_b(uint32_t id)
{
    return nvtx_table_a(id);
}

static void nvtx_announce(const void *(*table)(uint32_t id))
{
    void *handle = dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_NOW | RTLD_NOLOAD);
    int (*initialize)(const void *(*)(uint32_t)) = NULL;
    if (handle)
        *(void **)&initialize = dlsym(handle, "InitializeInjectionNvtx2");
    if (!initialize || initialize(table) != 1)
        abort();
}

static void nvtx(void)
{
    nvtx_announce(nvtx_table_b);
    launches(NULL);
}

// Another tool in the process, of those that use the activity API without being a subscriber.
static struct {
    int (*register_callbacks)(void (*)(uint8_t **, size_t *, size_t *),
            void (*)(void *, uint32_t, uint8_t *, size_t, size_t));
    int (*enable)(uint32_t kind);
    int (*flush)(uint32_t flag);
    uint8_t *own[256];
    atomic_uint own_count, own_back, foreign_back;
} rival;

static void rival_requested(uint8_t **buffer, size_t *size, size_t *records_max)
{
    unsigned at = atomic_fetch_add(&rival.own_count, 1);
    *size = 1 << 16;
    *buffer = at < 256 ? calloc(1, *size) : NULL;
    *records_max = 0;
    if (at < 256)
        rival.own[at] = *buffer;
}

static void rival_completed(
        void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size, (void)valid;
    for (unsigned i = 0; i < atomic_load(&rival.own_count) && i < 256; i++)
        if (rival.own[i] == buffer) {
            atomic_fetch_add(&rival.own_back, 1);
            return;
        }
    atomic_fetch_add(&rival.foreign_back, 1);
}

static void rival_start(void)
{
    if (rival.register_callbacks(rival_requested, rival_completed) || rival.enable(10))
        abort();
    launches(NULL);
}

static void rival_load(void)
{
    void *cupti = dlopen(getenv("PLAYER_CUPTI"), RTLD_NOW | RTLD_NOLOAD);
    if (!cupti)
        abort();
    *(void **)&rival.register_callbacks = dlsym(cupti, "cuptiActivityRegisterCallbacks");
    *(void **)&rival.enable = dlsym(cupti, "cuptiActivityEnable");
    *(void **)&rival.flush = dlsym(cupti, "cuptiActivityFlushAll");
}

// Ours are on between the two times the rival takes the buffers over.
static void rivals(void)
{
    rival.flush(0); // what is the rival's comes to us
    launches(NULL);
    rival.flush(0);
    unsigned own = atomic_load(&rival.own_count), back = atomic_load(&rival.own_back);
    launches(NULL);
    rival_start(); // what is ours goes to the rival
    rival.flush(0);
    printf("{\"type\":\"rival\",\"own\":%u,\"back\":%u,\"foreign_back\":%u}\n", own, back,
            atomic_load(&rival.foreign_back));
}

static void tell_truths(void)
{
    static const char *const names[] = {"kernel", "kernel", "copy", "peer", "set", "graph", "sync",
            "malloc", "free", "pool", "mark", "query", "context", "stream", "unload", "graph_make",
            "capture"};
    unsigned count = atomic_load(&truth_count);
    for (unsigned i = 0; i < count && i < TRUTH_MAX; i++) {
        const struct truth *truth = &truths[i];
        const struct fake_op *op = &truth->op;
        printf("{\"type\":\"%s\",\"name\":\"%s\",\"tid\":%u,\"correlation\":%u,\"before\":%lld,"
               "\"after\":%lld,"
               "\"kind\":%u,\"context\":%u,\"stream\":%u,\"graph\":%u,\"nodes\":%u,\"grid\":[%u,%u,"
               "%u],"
               "\"block\":[%u,%u,%u],\"bytes\":%llu,\"address\":%llu,\"id\":%llu,\"driver\":%d}\n",
                names[op->what], truth->name, truth->tid, truth->correlation,
                (long long)truth->before_ns, (long long)truth->after_ns, op->kind, op->context,
                op->stream, op->graph, op->nodes, op->grid[0], op->grid[1], op->grid[2],
                op->block[0], op->block[1], op->block[2], (unsigned long long)op->bytes,
                (unsigned long long)op->address, (unsigned long long)op->id,
                op->what == FAKE_LAUNCH_DRIVER);
    }
}

static void parse(int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value)
            continue;
        size_t len = (size_t)(value++ - argv[i]);
        if (!strncmp(argv[i], "threads", len))
            options.threads = atoi(value) < THREADS_MAX ? atoi(value) : THREADS_MAX;
        else if (!strncmp(argv[i], "n", len))
            options.n = atoi(value);
        else if (!strncmp(argv[i], "streams", len))
            options.streams = atoi(value);
        else if (len == 8 && !strncmp(argv[i], "contexts", len))
            options.contexts = atoi(value);
        else if (!strncmp(argv[i], "exit", len))
            options.exit = value;
        else if (!strncmp(argv[i], "context", len))
            options.context = value;
    }
}

static bool wait_for_line(void)
{
    char line[64];
    return fgets(line, sizeof(line), stdin) != NULL;
}

static void *until_line(void *arg)
{
    (void)arg;
    wait_for_line();
    if (!strcmp(options.exit, "middle"))
        exit(7); // while the others launch
    atomic_store(&is_over, true);
    return NULL;
}

static void play_story(const char *story, char **argv)
{
    if (!strcmp(options.context, "after"))
        play_begin();
    if (!strcmp(story, "mixed"))
        on_threads(mixed);
    else if (!strcmp(story, "launches"))
        on_threads(launches);
    else if (!strcmp(story, "graphs"))
        graphs();
    else if (!strcmp(story, "gone"))
        gone();
    else if (!strcmp(story, "modules"))
        modules();
    else if (!strcmp(story, "forks"))
        forks(argv);
    else if (!strcmp(story, "closes"))
        closes();
    else if (!strcmp(story, "rivals"))
        rivals();
    else if (!strcmp(story, "nvtx"))
        nvtx();
    else if (!strcmp(story, "hooks"))
        hooks();
    else if (!strcmp(story, "flood")) {
        is_told = false;
        on_threads(launches);
    } else if (!strcmp(story, "crowd")) {
        on_threads(seldom);
    } else if (!strcmp(story, "endless")) {
        pthread_t watcher;
        is_told = false;
        if (pthread_create(&watcher, NULL, until_line, NULL))
            abort();
        on_threads(endless);
        pthread_join(watcher, NULL);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    parse(argc, argv);
    truths = calloc(TRUTH_MAX, sizeof(*truths));
    if (!truths)
        return 2;
    if (getenv("PLAYER_CUPTI") &&
            !dlopen(getenv("PLAYER_CUPTI"), RTLD_NOW | RTLD_GLOBAL)) // as a framework maps its own
        fprintf(stderr, "player: %s\n", dlerror());
    manners_watch();
    cuInit(0);
    if (!strcmp(options.context, "before"))
        play_begin();
    if (!strcmp(argv[1], "nvtx"))
        nvtx_announce(nvtx_table_a);
    if (!strcmp(argv[1], "rivals")) {
        rival_load();
        rival_start();
    }
    printf("{\"type\":\"ready\",\"pid\":%d,\"injected\":%d}\n", (int)getpid(),
            fake_cuda_injected());
    fflush(stdout);
    if (!wait_for_line())
        return 3;
    int64_t began = now_ns();
    play_story(argv[1], argv);
    int64_t ended = now_ns();
    tell_truths();
    printf("{\"type\":\"played\",\"ops\":%lu,\"ns_max\":%lu,\"ns_mean\":%lu,\"wall_ns\":%lld,"
           "\"truths_lost\":%d}\n",
            atomic_load(&ops), atomic_load(&ns_max), atomic_load(&ns_sum) / (atomic_load(&ops) + 1),
            (long long)(ended - began), atomic_load(&truth_count) > TRUTH_MAX);
    fflush(stdout);
    wait_for_line(); // the recorder has switched off, or not
    fake_report(stdout);
    manners_report(stdout);
    fflush(stdout);
    if (!strcmp(options.exit, "_exit"))
        _exit(0);
    return 0;
}
