// SPDX-License-Identifier: Apache-2.0
// How fast launches get into the store, in one run on one core: (1) the whole way, records of a
// spool in, rows of gpu_op with their launch out; (2) the rows alone through the batch; (3)
// prepared inserts of the same rows; (4) `sqlite3 .import` of the same rows as CSV. Event: a kernel
// with the call that launched it. Prints events/s, ratios, bytes an event (the file, indexes
// included) and peak memory; exits 1 below a limit. With --lag 455000 --gap-ns 2200 CUPTI hands
// kernels over a second after their calls at the highest launch rate of an H200: the memory this
// takes. store_load [--events N] [--dir DIR] [--only spool] [--lag LAUNCHES] [--gap-ns NS]
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "contracts/spool.h"
#include "tracer/gpu/batch.h"
#include "tracer/gpu/gpu.h"

enum {
    LOAD_EVENTS = 10000000,
    LOAD_KERNELS = 453, // of a step, each with a shape of its own: an eager PyTorch step
    LOAD_GAP_NS = 8830, // between launches
    LOAD_SEGMENTS = 64,
    LOAD_COMMIT_EVENTS = 2000000, // about a second
};
#define LOAD_OFFSET 1763764000000000000ull
#define LOAD_BEGIN 86400000000000ull

// lag: kernels come so many launches after their calls
static uint64_t load_gap_ns = LOAD_GAP_NS, load_lag;

static const double load_events_min = 2e6, load_prepared_min = 3, load_import_min = 7,
                    load_bytes_max = 64;
static const double load_memory_max = 128e6;

static uint32_t load_row(void *context, pid_t pid)
{
    (void)context, (void)pid;
    return 1;
}

static uint32_t load_thread(void *context, pid_t pid, uint32_t tid)
{
    (void)context, (void)pid, (void)tid;
    return 11;
}

static const struct gpu_callbacks load_callbacks = {.process = load_row, .thread = load_thread};

static void load_die(const char *what)
{
    fprintf(stderr, "store_load: %s\n", what);
    exit(2);
}

static struct store *load_store(const char *path)
{
    struct store *store = NULL;
    struct error err = {0};
    unlink(path);
    if (store_open(path, STORE_CREATE, &store, &err))
        load_die(err.text);
    if (sqlite3_exec(store_db(store),
                "INSERT INTO recording VALUES (1, NULL, 0, NULL, 1000000, 0, 0, '{}', '[]');"
                "INSERT INTO process VALUES (1, 1, 100, 0, 1, 'python', 'python train.py', 'target', NULL, NULL, NULL);"
                "INSERT INTO thread VALUES (11, 1, 1, 'python', NULL, NULL)",
                NULL, NULL, NULL) != SQLITE_OK)
        load_die(sqlite3_errmsg(store_db(store)));
    return store;
}

// --- the spool -----------------------------------------------------------------------------------

struct load_spool {
    int fd;
    struct ug_spool_header *header;
    struct ug_spool_segment *segments;
    unsigned char *data;
    uint64_t sequence;
    int at;
};

static void spool_make(struct load_spool *spool)
{
    size_t data_offset =
            (UG_SPOOL_HEADER_BYTES + LOAD_SEGMENTS * sizeof(struct ug_spool_segment) + 4095) /
            4096 * 4096;
    size_t bytes = data_offset + (size_t)LOAD_SEGMENTS * UG_SPOOL_SEGMENT_BYTES;
    spool->fd = memfd_create(UG_SPOOL_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (spool->fd < 0 || ftruncate(spool->fd, (off_t)bytes) < 0 ||
            fcntl(spool->fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
        load_die("no memfd");
    spool->header = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, spool->fd, 0);
    if (spool->header == MAP_FAILED)
        load_die("cannot map");
    spool->segments = (struct ug_spool_segment *)((char *)spool->header + UG_SPOOL_HEADER_BYTES);
    spool->data = (unsigned char *)spool->header + data_offset;
    *spool->header = (struct ug_spool_header){.magic = UG_SPOOL_MAGIC,
            .version = UG_SPOOL_VERSION,
            .header_bytes = sizeof(struct ug_spool_header),
            .pid = (uint32_t)getpid(),
            .segment_bytes = UG_SPOOL_SEGMENT_BYTES,
            .segment_count = LOAD_SEGMENTS,
            .data_offset = data_offset,
            .file_bytes = bytes,
            .have_kinds = UG_WANT_DEFAULT};
    spool->at = -1;
}

static void *spool_room(struct load_spool *spool, uint16_t type, uint16_t bytes)
{
    if (spool->at < 0 || spool->segments[spool->at].committed + bytes > UG_SPOOL_SEGMENT_BYTES) {
        if (spool->at >= 0)
            __atomic_store_n(
                    &spool->segments[spool->at].state, (uint32_t)UG_SEGMENT_FULL, __ATOMIC_RELEASE);
        for (spool->at = 0; spool->segments[spool->at].state != UG_SEGMENT_FREE;)
            if (++spool->at == LOAD_SEGMENTS)
                load_die("the reader left no segment");
        spool->segments[spool->at].committed = 0;
        spool->segments[spool->at].state = UG_SEGMENT_WRITING;
        spool->segments[spool->at].sequence = ++spool->sequence;
    }
    struct ug_spool_segment *segment = &spool->segments[spool->at];
    struct ug_rec_head *head =
            (void *)(spool->data + (size_t)spool->at * UG_SPOOL_SEGMENT_BYTES + segment->committed);
    memset(head, 0, bytes);
    *head = (struct ug_rec_head){.type = type, .bytes = bytes, .tid = 1};
    segment->committed += bytes;
    return head;
}

static void spool_string(struct load_spool *spool, uint32_t id, const char *text)
{
    uint32_t len = (uint32_t)strlen(text);
    struct ug_rec_string *record =
            spool_room(spool, UG_REC_STRING, (uint16_t)((sizeof *record + len + 8) / 8 * 8));
    record->id = id;
    record->text_bytes = len;
    memcpy(record + 1, text, len);
}

static void spool_clock(struct load_spool *spool, uint64_t at_ns)
{
    struct ug_rec_clock *clock = spool_room(spool, UG_REC_CLOCK, sizeof *clock);
    clock->before_ns = at_ns - 100;
    clock->after_ns = at_ns + 100;
    clock->gpu_ns = at_ns + LOAD_OFFSET;
}

// Times of event i: launched every 8.8 us, run on the GPU 3 to 20 us later, in turns that are not
// quite in order.
struct load_times {
    uint64_t call_ns, call_dur_ns, start_ns, dur_ns;
};

static struct load_times load_times(uint64_t i)
{
    uint64_t noise = (i * 0x9e3779b97f4a7c15ull) >> 40;
    uint64_t call = LOAD_BEGIN + i * load_gap_ns;
    return (struct load_times){.call_ns = call,
            .call_dur_ns = 2500 + noise % 1000,
            .start_ns = call + 3000 + noise % 17000,
            .dur_ns = 1500 + (i % LOAD_KERNELS) * 37 + noise % 200};
}

static void spool_call(struct load_spool *spool, uint64_t i)
{
    struct load_times times = load_times(i);
    struct ug_rec_call *call = spool_room(spool, UG_REC_CALL, sizeof *call);
    call->start_gpu = LOAD_OFFSET + times.call_ns;
    call->end_gpu = call->start_gpu + times.call_dur_ns;
    call->correlation = (uint32_t)i * 3 + 1; // other calls have ids, too
    call->name = 1;
}

static void spool_kernel(struct load_spool *spool, uint64_t i)
{
    struct load_times times = load_times(i);
    uint32_t which = (uint32_t)(i % LOAD_KERNELS);
    struct ug_rec_kernel *kernel = spool_room(spool, UG_REC_KERNEL, sizeof *kernel);
    kernel->start_gpu = LOAD_OFFSET + times.start_ns;
    kernel->end_gpu = kernel->start_gpu + times.dur_ns;
    kernel->correlation = (uint32_t)i * 3 + 1;
    kernel->name = 2 + which % 40;
    kernel->context = 1;
    kernel->stream = 7 + which % 3;
    kernel->grid[0] = 1 + which;
    kernel->grid[1] = kernel->grid[2] = kernel->block[1] = kernel->block[2] = 1;
    kernel->block[0] = 256;
    kernel->registers = 40;
    kernel->channel = UINT32_MAX;
}

// --- arms ----------------------------------------------------------------------------------------

static double seconds_cpu(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

struct load_time {
    double wall, cpu;
};

static void file_sync(const char *path) // what an arm left to be written is not the next one's
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

// Making the records is not counted: the workload does that.
static struct load_time load_spool_arm(const char *path, uint64_t events)
{
    struct store *store = load_store(path);
    struct gpu_recorder *gpu = NULL;
    struct load_spool spool = {0};
    struct error err = {0};
    spool_make(&spool);
    if (gpu_recorder_new(store, 1, &load_callbacks, NULL, &gpu, &err) ||
            gpu_recorder_attach_fd(gpu, 100, spool.fd, &err))
        load_die(err.text);
    spool_string(&spool, 1, "cudaLaunchKernel");
    for (uint32_t i = 0; i < 40; i++) {
        char name[64];
        snprintf(name, sizeof name, "_Z%dgemm_%dPKfS0_Pfi", i < 10 ? 6 : 7, (int)i);
        spool_string(&spool, 2 + i, name);
    }
    spool_clock(&spool, LOAD_BEGIN - 1000000);
    struct load_time time = {0};
    uint64_t round = (uint64_t)LOAD_SEGMENTS * UG_SPOOL_SEGMENT_BYTES / 2 /
            (sizeof(struct ug_rec_kernel) + sizeof(struct ug_rec_call));
    for (uint64_t i = 0; i < events + load_lag;) {
        uint64_t until = i + round < events + load_lag ? i + round : events + load_lag;
        for (; i < until; i++) {
            if (i < events)
                spool_call(&spool, i);
            if (i >= load_lag)
                spool_kernel(&spool, i - load_lag);
        }
        spool_clock(&spool, load_times(i).call_ns + 100000);
        int64_t begin = clock_monotonic_ns();
        double cpu = seconds_cpu();
        if (gpu_recorder_poll(gpu, (int64_t)load_times(i).call_ns + 200000, &err))
            load_die(err.text);
        time.wall += (double)(clock_monotonic_ns() - begin) / 1e9;
        time.cpu += seconds_cpu() - cpu;
    }
    int64_t begin = clock_monotonic_ns();
    double cpu = seconds_cpu();
    spool.header->state = UG_SPOOL_ENDED;
    if (gpu_recorder_stop(gpu, 0, &err))
        load_die(err.text);
    time.wall += (double)(clock_monotonic_ns() - begin) / 1e9;
    time.cpu += seconds_cpu() - cpu;
    int64_t rows = 0, joined = 0;
    store_get_int(store, &rows, NULL, "SELECT count(*) FROM gpu_op", "");
    store_get_int(store, &joined, NULL, "SELECT count(call_ns) FROM gpu_op", "");
    if (rows != (int64_t)events || joined != rows)
        load_die("events are missing, or without their call");
    gpu_recorder_free(gpu);
    store_close(store);
    close(spool.fd);
    file_sync(path);
    return time;
}

static void load_values(uint64_t i, int64_t row[6])
{
    struct load_times times = load_times(i);
    row[0] = (int64_t)times.start_ns;
    row[1] = (int64_t)times.dur_ns;
    row[2] = 1 + (int64_t)(i % LOAD_KERNELS);
    row[3] = (int64_t)(times.start_ns - times.call_ns);
    row[4] = (int64_t)times.call_dur_ns;
    row[5] = (int64_t)(uint32_t)(i * 3 + 1);
}

static struct load_time load_batch_arm(const char *path, uint64_t events)
{
    struct store *store = load_store(path);
    struct batch *batch = NULL;
    struct error err = {0};
    if (batch_new(store, &load_callbacks, &batch, &err))
        load_die(err.text);
    sqlite3_exec(store_db(store),
            "PRAGMA foreign_keys = OFF; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -16384",
            NULL, NULL, NULL);
    int64_t begin = clock_monotonic_ns();
    double cpu = seconds_cpu();
    for (uint64_t i = 0; i < events; i++) {
        load_values(i, batch_row(batch, BATCH_OP));
        if (i % LOAD_COMMIT_EVENTS == LOAD_COMMIT_EVENTS - 1 && batch_commit(batch, &err))
            load_die(err.text);
    }
    if (batch_commit(batch, &err))
        load_die(err.text);
    struct load_time time = {(double)(clock_monotonic_ns() - begin) / 1e9, seconds_cpu() - cpu};
    batch_free(batch);
    store_close(store);
    file_sync(path);
    return time;
}

static struct load_time load_prepared_arm(const char *path, uint64_t events)
{
    struct store *store = load_store(path);
    sqlite3 *db = store_db(store);
    sqlite3_stmt *insert = NULL;
    sqlite3_exec(db,
            "PRAGMA foreign_keys = OFF; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -16384",
            NULL, NULL, NULL);
    sqlite3_prepare_v2(db,
            "INSERT INTO gpu_op (start_ns, dur_ns, work_id, call_ns, call_dur_ns, correlation) VALUES (?, ?, ?, ?, ?, ?)",
            -1, &insert, NULL);
    int64_t begin = clock_monotonic_ns();
    double cpu = seconds_cpu();
    sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    for (uint64_t i = 0; i < events; i++) {
        int64_t row[6];
        load_values(i, row);
        for (int column = 0; column < 6; column++)
            sqlite3_bind_int64(insert, column + 1, row[column]);
        if (sqlite3_step(insert) != SQLITE_DONE)
            load_die(sqlite3_errmsg(db));
        sqlite3_reset(insert);
        if (i % LOAD_COMMIT_EVENTS == LOAD_COMMIT_EVENTS - 1)
            sqlite3_exec(db, "COMMIT; BEGIN", NULL, NULL, NULL);
    }
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    struct load_time time = {(double)(clock_monotonic_ns() - begin) / 1e9, seconds_cpu() - cpu};
    sqlite3_finalize(insert);
    store_close(store);
    file_sync(path);
    return time;
}

// wall < 0: there is no sqlite3.
static struct load_time load_import_arm(const char *path, const char *csv, uint64_t events)
{
    store_close(load_store(path));
    FILE *file = fopen(csv, "w");
    if (!file)
        load_die("cannot write the CSV file");
    for (uint64_t i = 0; i < events; i++) {
        int64_t row[6];
        load_values(i, row);
        for (int column = 0; column < 6; column++)
            fprintf(file, "%" PRId64 "%c", row[column], column < 5 ? ',' : '\n');
    }
    fclose(file);
    char *import = xasprintf(".import %s gpu_op", csv);
    int64_t begin = clock_monotonic_ns();
    pid_t pid = fork();
    if (pid == 0) {
        execlp("sqlite3", "sqlite3", "-csv", path, import, NULL);
        _exit(127);
    }
    int status = 0;
    struct rusage usage = {0};
    wait4(pid, &status, 0, &usage);
    struct load_time time = {(double)(clock_monotonic_ns() - begin) / 1e9,
            (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                    (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6};
    free(import);
    unlink(csv);
    if (status)
        time.wall = -1;
    return time;
}

// --- report --------------------------------------------------------------------------------------

static double load_print(const char *name, struct load_time time, uint64_t events)
{
    double rate = (double)events / time.cpu;
    printf("%-44s %8.2f s CPU %8.2f s wall %8.2f M events/s of a core\n", name, time.cpu, time.wall,
            rate / 1e6);
    fflush(stdout);
    return rate;
}

static int load_judge(const char *what, double got, double limit, bool at_most)
{
    bool ok = at_most ? got <= limit : got >= limit;
    printf("%-44s %10.2f (%s %g)%s\n", what, got, at_most ? "at most" : "at least", limit,
            ok ? "" : "  MISSED");
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    uint64_t events = LOAD_EVENTS;
    const char *dir = "/var/tmp", *only = "";
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--events") == 0)
            events = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--dir") == 0)
            dir = argv[i + 1];
        else if (strcmp(argv[i], "--only") == 0)
            only = argv[i + 1];
        else if (strcmp(argv[i], "--lag") == 0)
            load_lag = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--gap-ns") == 0)
            load_gap_ns = strtoull(argv[i + 1], NULL, 10);
        else
            load_die(
                    "usage: store_load [--events N] [--dir DIR] [--only spool] [--lag LAUNCHES] [--gap-ns NS]");
    }
    if (events == 0)
        load_die("no events");
    char *path = xasprintf("%s/store_load-%d.db", dir, (int)getpid()),
         *csv = xasprintf("%s.csv", path);
    // the slow arms: their rate does not depend on the number
    uint64_t few = events / 5 ? events / 5 : events;
    double spool = load_print(
            "spool to store: clock, join, order, rows", load_spool_arm(path, events), events);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    // that is the workload's
    double memory = (double)usage.ru_maxrss * 1024 - (double)LOAD_SEGMENTS * UG_SPOOL_SEGMENT_BYTES;
    struct stat info = {0};
    stat(path, &info);
    if (strcmp(only, "spool") == 0) { // for a profiler
        printf("peak memory %.1f MB\n", memory / 1e6);
        unlink(path);
        return 0;
    }
    double rows = load_print("rows alone, by batches", load_batch_arm(path, events), events);
    double prepared = load_print("prepared inserts", load_prepared_arm(path, few), few);
    struct load_time time = load_import_arm(path, csv, few);
    double import = time.wall < 0 ? 0 : load_print("sqlite3 .import of CSV", time, few);
    unlink(path);
    int missed = load_judge(
            "M events/s of a core, the whole way", spool / 1e6, load_events_min / 1e6, false);
    missed += load_judge(
            "rows, ratio to prepared inserts", rows / prepared, load_prepared_min, false);
    if (import > 0)
        missed +=
                load_judge("rows, ratio to sqlite3 .import", rows / import, load_import_min, false);
    else
        printf("no sqlite3 here: its arm was left out\n");
    missed += load_judge(
            "bytes an event", (double)info.st_size / (double)events, load_bytes_max, true);
    missed += load_judge("peak memory, MB", memory / 1e6, load_memory_max / 1e6, true);
    free(path);
    free(csv);
    return missed ? 1 : 0;
}
