// SPDX-License-Identifier: Apache-2.0
// From a spool written by hand into a store, read back through the views: times, joins, modules,
// steps, ledger.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "tests/unit/gpu_world.h"
#include "tests/unit/runner.h"
#include "tests/unit/test_time_rig.h"
#include "tracer/gpu/batch.h"
#include "tracer/store/ranges.h"
#include "tracer/symbols/demangle.h"

#define GPU_OFFSET 1700000000000000000ull // CUPTI's clock follows the wall clock
#define T(ns) (5000000000ull + (ns))      // CLOCK_MONOTONIC of the story
#define G(ns) (T(ns) + GPU_OFFSET)

static char test_path[64];
static struct spool_world spool;

static struct store *store;
static struct gpu_recorder *gpu;
static struct gpu_totals totals; // of the last stop

static void begin(void)
{
    snprintf(test_path, sizeof test_path, "/tmp/upgate-gpu-%d.db", (int)getpid());
    store = gpu_world_store(test_path);
    spool_world_new(&spool);
    CHECK_INT(gpu_recorder_new(store, 1, &gpu_world_callbacks, NULL, &gpu, NULL), 0);
    CHECK_INT(gpu_recorder_attach_fd(gpu, 100, spool.fd, NULL), 0);
    spool.header->done_generation = spool.header->generation;
    spool.header->state = UG_SPOOL_ACTIVE;
}

static void stop(void)
{
    struct error err = {0};
    spool.header->state = UG_SPOOL_ENDED;
    CHECK_INT(gpu_recorder_stop(gpu, 0, &err), 0);
    gpu_recorder_totals(gpu, &totals);
    gpu_recorder_free(gpu);
}

static void end(void)
{
    store_close(store);
    spool_world_free(&spool);
    unlink(test_path);
}

static int64_t number(const char *sql)
{
    int64_t value = -999;
    struct error err = {0};
    int rc = store_get_int(store, &value, &err, sql, "");
    if (rc && rc != -ENOENT)
        runner_fail(__FILE__, __LINE__, "%s: %s", sql, err.text);
    return value;
}

static void check_text(const char *sql, const char *want)
{
    char *text = store_get_text(store, sql, "");
    CHECK_STR(text, want);
    free(text);
}

static void mark(
        uint32_t tid, uint64_t at_ns, enum ug_mark_kind kind, uint32_t name, uint64_t value)
{
    struct ug_rec_mark record = {.head = {UG_REC_MARK, sizeof record, tid},
            .at_ns = at_ns,
            .value = value,
            .name = name,
            .kind = kind};
    spool_world_put(&spool, 1, &record);
}

TEST(launches_joined_and_clocked)
{
    begin();
    uint32_t launch = spool_world_string(&spool, 0, "cudaLaunchKernel");
    uint32_t name = spool_world_string(&spool, 0, "_Z4gemmPKfS0_Pf");
    spool_world_device(&spool, 1);
    for (int i = 0; i < 5; i++)
        spool_world_clock(&spool, T(i * 300000000ull), G(i * 300000000ull));
    // The kernel of the second launch comes before its call, and both before the first.
    struct ug_rec_kernel kernel = spool_world_kernel(name, 2, G(2000000), G(2500000));
    spool_world_put(&spool, 2, &kernel);
    struct ug_rec_call call = spool_world_call(launch, 1, 1, G(990000), G(995000));
    spool_world_put(&spool, 1, &call);
    call = spool_world_call(launch, 2, 2, G(1500000), G(1507000));
    spool_world_put(&spool, 1, &call);
    kernel = spool_world_kernel(name, 1, G(1000000), G(1400000));
    spool_world_put(&spool, 2, &kernel);
    stop();

    CHECK_INT(number("SELECT count(*) FROM v_gpu_op"), 2);
    CHECK_INT(number("SELECT count(*) FROM gpu_kernel"), 1); // one shape
    // in the order of start
    CHECK_INT(number("SELECT start_ns FROM v_gpu_op WHERE op = 1"), T(1000000));
    CHECK_INT(number("SELECT dur_ns FROM v_gpu_op WHERE op = 1"), 400000);
    CHECK_INT(number("SELECT call_start_ns FROM v_gpu_op WHERE correlation = 1"), T(990000));
    CHECK_INT(number("SELECT call_dur_ns FROM v_gpu_op WHERE correlation = 2"), 7000);
    CHECK_INT(number("SELECT call_tid FROM v_gpu_op WHERE correlation = 2"), 2);
    check_text("SELECT call_name FROM v_gpu_op WHERE op = 2", "cudaLaunchKernel");
    char readable[SYMBOL_NAME_MAX];
    symbol_name_readable("_Z4gemmPKfS0_Pf", strlen("_Z4gemmPKfS0_Pf"), readable);
    check_text("SELECT name FROM v_gpu_op WHERE op = 1", readable);
    CHECK_INT(number("SELECT stream FROM v_gpu_op WHERE op = 1"), 7);
    CHECK_INT(number("SELECT occupancy * 100 FROM v_gpu_op WHERE op = 1"), 100);
    CHECK_INT(number("SELECT count(*) FROM gpu_call"), 0); // both launched something
    CHECK_INT(number("SELECT sum(dropped) FROM ledger"), 0);
    CHECK_INT(number("SELECT sum(breach) FROM ledger"), 0);
    CHECK_INT(number("SELECT kept FROM ledger WHERE producer = 'gpu.kernel'"), 2);
    check_text("SELECT state FROM gpu_process", "traced");
    check_text("SELECT name FROM gpu_device", "NVIDIA H200");
    end();
}

// CUPTI tells of each GPU of the machine, and of one without a known context its properties are
// told alone: all with context 0.
TEST(devices_without_a_context)
{
    begin();
    struct ug_rec_device device = {.head = WORLD_HEAD(UG_REC_DEVICE, device)};
    for (int again = 0; again < 2; again++)
        for (uint32_t i = 0; i < 3; i++) {
            device.device = i;
            device.sm_count = 100 + i;
            spool_world_put(&spool, 0, &device);
        }
    spool_world_clock(&spool, T(0), G(0));
    stop();
    CHECK_INT(number("SELECT count(*) FROM gpu_device"), 3);
    CHECK_INT(number("SELECT count(*) FROM gpu_device WHERE multiprocessors = 100 + device"), 3);
    end();
}

TEST(module_and_step_of_a_launch)
{
    begin();
    uint32_t launch = spool_world_string(&spool, 0, "cudaLaunchKernel"),
             kernel_name = spool_world_string(&spool, 0, "k");
    uint32_t first = spool_world_string(&spool, 0, "layers.0.mlp"),
             second = spool_world_string(&spool, 0, "layers.1.mlp");
    spool_world_clock(&spool, T(0), G(0));
    mark(1, T(100), UG_MARK_STEP_BEGIN, 0, 41);
    mark(1, T(200), UG_MARK_MODULE, first, 0);
    mark(1, T(400), UG_MARK_MODULE, 0, 0);
    mark(2, T(500), UG_MARK_BACKWARD, second, 0);
    mark(1, T(900), UG_MARK_STEP_END, 0, 41);
    const uint64_t at[4] = {250, 450, 600, 950};
    const uint32_t tid[4] = {1, 1, 2, 1};
    for (uint32_t i = 0; i < 4; i++) {
        struct ug_rec_call call = spool_world_call(launch, tid[i], i + 1, G(at[i]), G(at[i] + 10));
        struct ug_rec_kernel kernel =
                spool_world_kernel(kernel_name, i + 1, G(2000 + i * 100), G(2050 + i * 100));
        spool_world_put(&spool, 1, &call);
        spool_world_put(&spool, 1, &kernel);
    }
    spool_world_clock(&spool, T(1000000), G(1000000));
    stop();
    check_text("SELECT group_concat(coalesce(module, '-')) FROM v_gpu_op",
            "layers.0.mlp,-,layers.1.mlp,-");
    check_text("SELECT group_concat(coalesce(python_step, '-')) FROM v_gpu_op", "41,41,41,-");
    end();
}

TEST(module_of_a_captured_kernel)
{
    begin();
    uint32_t launch = spool_world_string(&spool, 0, "cudaGraphLaunch"),
             name = spool_world_string(&spool, 0, "k");
    uint32_t module = spool_world_string(&spool, 0, "layers.3.attn");
    spool_world_clock(&spool, T(0), G(0));
    mark(1, T(100), UG_MARK_MODULE, module, 0);
    mark(1, T(300), UG_MARK_MODULE, 0, 0);
    // captured, cloned, and cloned again
    const uint64_t nodes[3][3] = {{200, 51, 0}, {400, 71, 51}, {500, 81, 71}};
    for (int i = 0; i < 3; i++) {
        struct ug_rec_graph_node node = {.head = {UG_REC_GRAPH_NODE, sizeof node, 1},
                .at_ns = T(nodes[i][0]),
                .node = nodes[i][1],
                .original = nodes[i][2]};
        spool_world_put(&spool, 1, &node);
    }
    struct ug_rec_call call = spool_world_call(launch, 1, 9, G(1000), G(1100));
    struct ug_rec_kernel kernel = spool_world_kernel(name, 9, G(2000), G(2100));
    kernel.graph = 4;
    kernel.graph_node = 81;
    spool_world_put(&spool, 1, &call);
    spool_world_put(&spool, 1, &kernel);
    spool_world_clock(&spool, T(1000000), G(1000000));
    stop();
    check_text("SELECT module FROM v_gpu_op", "layers.3.attn");
    end();
}

TEST(graph_nodes_copies_calls_and_syncs)
{
    begin();
    uint32_t launch = spool_world_string(&spool, 0, "cudaGraphLaunch"),
             name = spool_world_string(&spool, 0, "node");
    uint32_t copy_name = spool_world_string(&spool, 0, "cudaMemcpyAsync"),
             wait = spool_world_string(&spool, 0, "cudaStreamSynchronize");
    spool_world_device(&spool, 1);
    struct ug_rec_call call = spool_world_call(launch, 1, 10, G(0), G(5000));
    spool_world_put(&spool, 1, &call);
    for (uint32_t i = 0; i < 20; i++) {
        struct ug_rec_kernel kernel =
                spool_world_kernel(name, 10, G(10000 + i * 1000), G(10900 + i * 1000));
        kernel.graph = 3;
        kernel.graph_node = 0x300000001ull + i % 4;
        spool_world_put(&spool, 1, &kernel);
    }
    call = spool_world_call(copy_name, 1, 11, G(40000), G(41000));
    spool_world_put(&spool, 1, &call);
    struct ug_rec_copy copy = {.head = {UG_REC_COPY, sizeof copy, 0},
            .start_gpu = G(42000),
            .end_gpu = G(43000),
            .size_bytes = 4096,
            .correlation = 11,
            .context = 1,
            .stream = 7,
            .kind = UG_COPY_HTOD,
            .source = 1,
            .target = 3,
            .peer_device = UINT32_MAX};
    spool_world_put(&spool, 1, &copy);
    call = spool_world_call(wait, 1, 12, G(44000), G(60000));
    spool_world_put(&spool, 1, &call);
    struct ug_rec_sync sync = {.head = {UG_REC_SYNC, sizeof sync, 0},
            .start_gpu = G(45000),
            .end_gpu = G(59000),
            .correlation = 12,
            .context = 1,
            .stream = 7,
            .kind = 3};
    spool_world_put(&spool, 1, &sync);
    spool_world_clock(&spool, T(0), G(0));
    spool_world_clock(&spool, T(1000000), G(1000000));
    stop();
    CHECK_INT(
            number("SELECT count(*) FROM v_gpu_op WHERE graph = 3 AND call_name = 'cudaGraphLaunch' AND call_start_ns IS NOT NULL"),
            20);
    CHECK_INT(number("SELECT count(DISTINCT graph_node) FROM v_gpu_op WHERE graph = 3"), 4);
    CHECK_INT(number("SELECT count(*) FROM gpu_work"), 5); // 4 nodes and the copy
    check_text(
            "SELECT kind || ' ' || direction || ' ' || bytes FROM v_gpu_op WHERE correlation = 11",
            "copy HtoD 4096");
    CHECK_INT(number("SELECT memory FROM gpu_work WHERE kind = 17"), 0x13);
    check_text("SELECT name || ' ' || dur_ns || ' ' || tid FROM v_gpu_call",
            "cudaStreamSynchronize 16000 1");
    CHECK_INT(number("SELECT thread_id FROM gpu_sync"), 11);
    CHECK_INT(number("SELECT dur_ns FROM gpu_sync"), 14000);
    CHECK_INT(number("SELECT count(*) FROM ledger WHERE breach = 1"), 0);
    end();
}

TEST(other_records)
{
    begin();
    uint32_t push = spool_world_string(&spool, 0, "forward"),
             inner = spool_world_string(&spool, 0, "attention");
    uint32_t function = spool_world_string(&spool, 0, "AllReduce"),
             ring = spool_world_string(&spool, 0, "RING");
    spool_world_clock(&spool, T(0), G(0));
    const struct {
        uint64_t at, id;
        uint32_t name, what;
    } ranges[] = {{100, 0, push, 1}, {200, 0, inner, 1}, {250, 9, inner, 1}, {300, 0, 0, 2},
            {400, 0, 0, 2}, {500, 9, 0, 2}, {600, 0, push, 3}, {700, 0, push, 1}, {800, 77, 0, 2}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        struct ug_rec_range range = {.head = {UG_REC_RANGE, sizeof range, 1},
                .at_gpu = G(ranges[i].at),
                .id = ranges[i].id,
                .name = ranges[i].name,
                .what = ranges[i].what};
        spool_world_put(&spool, 1, &range);
    }
    struct ug_rec_nccl nccl = {.head = {UG_REC_NCCL, sizeof nccl, 1},
            .enqueued_ns = T(100),
            .ended_ns = T(900),
            .communicator = 0xfedcba9876543210ull,
            .sequence = 5,
            .count = 1024,
            .ranks = 2,
            .peer = UINT32_MAX,
            .function = function,
            .algorithm = ring,
            .channels = 16,
            .element_bytes = 4,
            .plugin_version = 4};
    spool_world_put(&spool, 1, &nccl);
    struct ug_rec_gc gc = {.head = {UG_REC_GC, sizeof gc, 1},
            .start_ns = T(10),
            .end_ns = T(30),
            .generation = 2,
            .collected = 7};
    spool_world_put(&spool, 1, &gc);
    struct ug_rec_memory memory = {.head = {UG_REC_MEMORY, sizeof memory, 1},
            .at_gpu = G(50),
            .address = 0x7f0000000000,
            .size_bytes = 512,
            .operation = 1,
            .kind = 3};
    spool_world_put(&spool, 1, &memory);
    struct ug_rec_overhead overhead = {.head = {UG_REC_OVERHEAD, sizeof overhead, 1},
            .start_gpu = G(60),
            .end_gpu = G(90),
            .kind = 1};
    spool_world_put(&spool, 1, &overhead);
    struct {
        struct ug_rec_launch_stack stack;
        uint32_t frames[2];
    } stack = {
            .stack = {.head = {UG_REC_LAUNCH_STACK, sizeof stack, 1}, .correlation = 3, .depth = 2},
            .frames = {push, inner}};
    spool_world_put(&spool, 1, &stack);
    spool_world_clock(&spool, T(1000000), G(1000000));
    stop();
    check_text(
            "SELECT group_concat(name || ':' || coalesce(dur_ns, '-')) FROM (SELECT * FROM v_nvtx_range ORDER BY start_ns)",
            "forward:300,attention:100,attention:250,forward:-,forward:-");
    check_text("SELECT function || algorithm || bytes || ' ' || channels FROM v_nccl_op",
            "AllReduceRING4096 16");
    CHECK_INT(
            number("SELECT count(*) FROM nccl_op WHERE peer IS NULL AND protocol IS NULL AND kernel_start_ns IS NULL"),
            1);
    CHECK_INT(number("SELECT dur_ns * 100 + collected FROM python_gc"), 2007);
    CHECK_INT(number("SELECT bytes FROM gpu_memory WHERE at_ns = 5000000050"), 512);
    CHECK_INT(number("SELECT dur_ns FROM gpu_overhead"), 30);
    check_text(
            "SELECT s.text FROM launch_stack l, json_each(l.frames) j JOIN string s ON s.id = j.value WHERE j.key = 0",
            "forward");
    CHECK_INT(number("SELECT dropped FROM ledger WHERE producer = 'gpu.nvtx' AND kind = 'ranges'"),
            1);
    end();
}

TEST(what_is_lost_is_told)
{
    begin();
    uint32_t name = spool_world_string(&spool, 0, "k"),
             launch = spool_world_string(&spool, 0, "cudaLaunchKernel");
    spool_world_clock(&spool, T(0), G(0));
    // its call never came
    struct ug_rec_kernel kernel = spool_world_kernel(name, 1, G(1000), G(2000));
    spool_world_put(&spool, 1, &kernel);
    kernel = spool_world_kernel(name, 2, 0, 0); // no times
    spool_world_put(&spool, 1, &kernel);
    kernel = spool_world_kernel(999, 3, G(50000), G(60000)); // no name, and before its call
    spool_world_put(&spool, 1, &kernel);
    struct ug_rec_call call = spool_world_call(launch, 1, 3, G(90000), G(91000));
    spool_world_put(&spool, 1, &call);
    spool.header->counts[UG_PRODUCER_KERNEL].seen += 5;
    spool.header->counts[UG_PRODUCER_KERNEL].dropped += 5;
    spool.header->counts[UG_PRODUCER_COPY].seen += 4; // and not in the spool
    spool.header->cupti_dropped = 3;
    spool.header->cupti_buffers_discarded = 1;
    spool.header->unknown_records = 2;
    spool_world_clock(&spool, T(1000000), G(1000000));
    stop();
    CHECK_INT(number("SELECT dropped FROM ledger WHERE producer = 'gpu.kernel' AND breach = 1"), 5);
    CHECK_INT(number("SELECT seen FROM ledger WHERE producer = 'gpu.kernel'"), 8);
    CHECK_INT(number("SELECT dropped FROM ledger WHERE producer = 'gpu.copy' AND breach = 1"), 4);
    // no room, vanished, CUPTI's own, of no known kind, without times
    CHECK_INT(totals.dropped, 5 + 4 + 3 + 2 + 1);
    CHECK_INT(
            number("SELECT dropped FROM ledger WHERE producer = 'gpu.cupti' AND kind = 'records' AND breach = 1"),
            3);
    CHECK_INT(
            number("SELECT dropped FROM ledger WHERE producer = 'gpu.cupti' AND kind = 'buffers'"),
            1);
    CHECK_INT(
            number("SELECT dropped FROM ledger WHERE producer = 'gpu.cupti' AND kind = 'unknown'"),
            2);
    CHECK_INT(number("SELECT dropped FROM ledger WHERE producer = 'gpu.cupti' AND kind = 'times'"),
            1);
    CHECK_INT(
            number("SELECT dropped FROM ledger WHERE producer = 'gpu.join' AND kind = 'correlations'"),
            1);
    CHECK_INT(
            number("SELECT dropped FROM ledger WHERE producer = 'gpu.join' AND kind = 'order' AND breach = 1"),
            1);
    char *detail = store_get_text(
            store, "SELECT detail FROM ledger WHERE producer = 'gpu.join' AND kind = 'order'", "");
    CHECK_CONTAINS(detail, "by 40000 ns at most");
    free(detail);
    check_text("SELECT name FROM v_gpu_op WHERE correlation = 3", "[unknown]");
    CHECK_INT(number("SELECT dropped FROM ledger WHERE producer = 'gpu.spool' AND kind = 'names'"),
            1);
    end();
}

TEST(many_in_order_while_it_runs)
{
    begin();
    uint32_t launch = spool_world_string(&spool, 0, "cudaLaunchKernel"),
             name = spool_world_string(&spool, 0, "k");
    uint64_t count = 0, seed = 7;
    struct error err = {0};
    for (uint32_t round = 0; round < 40; round++) {
        uint64_t base = round * 100000000ull;
        for (uint32_t i = 0; i < 2000; i++, count++) {
            uint64_t at = base + i * 40000;
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            uint64_t start = at + 1000 + (seed >> 33) % 30000; // not in the order of their launches
            struct ug_rec_call call =
                    spool_world_call(launch, 1, (uint32_t)count + 1, G(at), G(at + 500));
            struct ug_rec_kernel kernel =
                    spool_world_kernel(name, (uint32_t)count + 1, G(start), G(start + 100));
            spool_world_put(&spool, 1, i % 2 ? (void *)&call : (void *)&kernel);
            spool_world_put(&spool, 2, i % 2 ? (void *)&kernel : (void *)&call);
        }
        spool_world_clock(&spool, T(base + 100000000), G(base + 100000000));
        CHECK_INT(gpu_recorder_poll(gpu, (int64_t)T(base + 100000000), &err), 0);
    }
    CHECK(number("SELECT count(*) FROM gpu_op") > 15000); // written while it runs, not at the end
    stop();
    CHECK_INT(number("SELECT count(*) FROM gpu_op"), (long long)count);
    CHECK_INT(number("SELECT count(*) FROM gpu_op WHERE call_ns IS NULL OR call_ns < 1000"), 0);
    CHECK_INT(
            number("SELECT count(*) FROM gpu_op a JOIN gpu_op b ON b.rowid = a.rowid + 1 WHERE b.start_ns < a.start_ns"),
            0);
    CHECK_INT(number("SELECT count(*) FROM gpu_work"), 1);
    CHECK_INT(number("SELECT sum(dropped) FROM ledger"), 0);
    CHECK_INT(number("SELECT count(*) FROM pragma_database_list"), 1); // what was attached is gone
    check_text("PRAGMA integrity_check", "ok");
    end();
}

// 150,000 kernels no two of which are alike, their calls later than all of them: no launch loses
// its call for want of room.
TEST(kernels_that_never_repeat)
{
    begin();
    enum { COUNT = 150000, ROUND = 15000 };
    uint32_t launch = spool_world_string(&spool, 0, "cuLaunchKernel"),
             name = spool_world_string(&spool, 0, "k");
    struct error err = {0};
    sqlite3_exec(store_db(store), "PRAGMA synchronous = OFF", NULL, NULL, NULL);
    for (uint32_t i = 0; i < 2 * COUNT; i++) {
        uint64_t at = i % COUNT * 10000ull;
        struct ug_rec_call call = spool_world_call(launch, 1, i % COUNT + 1, G(at), G(at + 500));
        struct ug_rec_kernel kernel = spool_world_kernel(name, i + 1, G(at + 1000), G(at + 2000));
        kernel.grid[0] = i + 1;
        spool_world_put(&spool, 1, i < COUNT ? (void *)&kernel : (void *)&call);
        if (i % ROUND != ROUND - 1)
            continue;
        spool_world_clock(&spool, T(at + 100000 + i), G(at + 100000 + i));
        CHECK_INT(gpu_recorder_poll(gpu, (int64_t)T(COUNT * 10000ull), &err), 0);
    }
    stop();
    CHECK_INT(number("SELECT count(*) FROM gpu_op WHERE call_ns = 1000"), COUNT);
    CHECK_INT(number("SELECT count(*) FROM gpu_work"), COUNT);
    CHECK_INT(
            number("SELECT count(*) FROM v_gpu_op WHERE grid_x = correlation AND call_name = 'cuLaunchKernel'"),
            COUNT);
    CHECK_INT(number("SELECT sum(dropped) FROM ledger"), 0);
    end();
}

// Records written by us and copied by SQLite (image.c) are those that SQLite would have written.
TEST(rows_by_image_are_those_by_insert)
{
    static const int64_t values[] = {0, 1, 2, -1, 127, 128, -128, -129, 255, 32767, 32768, -32768,
            -32769, 8388607, 8388608, -8388609, 2147483647, 2147483648, -2147483649,
            140737488355327, 140737488355328, -140737488355329, RANGE_NS_END - 1, -RANGE_NS_END,
            BATCH_NULL};
    enum { COUNT = sizeof values / sizeof *values, ROWS = 50000 };
    snprintf(test_path, sizeof test_path, "/tmp/upgate-gpu-%d.db", (int)getpid());
    store = gpu_world_store(test_path);
    sqlite3_exec(store_db(store),
            "PRAGMA foreign_keys = OFF; CREATE TABLE want AS SELECT * FROM gpu_op", NULL, NULL,
            NULL);
    struct batch *batch = NULL;
    CHECK_INT(batch_new(store, &gpu_world_callbacks, &batch, NULL), 0);
    for (int i = 0; i < ROWS; i++) {
        int64_t row[6];
        for (int column = 0; column < 6; column++) {
            row[column] = values[(i / (column + 1) + column * 5) % COUNT];
            if (row[column] == BATCH_NULL && column != 3 && column != 4)
                row[column] = i;
        }
        memcpy(batch_row(batch, BATCH_OP), row, sizeof row);
        if (i == 0)
            CHECK_INT(store_begin(store, NULL), 0);
        CHECK_INT(store_exec(store, NULL, "INSERT INTO want VALUES (?, ?, ?, ?, ?, ?)", "iiiIIi",
                          row[0], row[1], row[2], row[3] == BATCH_NULL ? NULL : &row[3],
                          row[4] == BATCH_NULL ? NULL : &row[4], row[5]),
                0);
    }
    CHECK_INT(batch_commit(batch, NULL), 0);
    batch_free(batch);
    CHECK_INT(number("SELECT count(*) FROM gpu_op"), ROWS);
    CHECK_INT(
            number("SELECT count(*) FROM gpu_op a JOIN want b ON a.rowid = b.rowid WHERE a.start_ns IS b.start_ns AND a.dur_ns IS "
                   "b.dur_ns AND a.work_id IS b.work_id AND a.call_ns IS b.call_ns AND a.call_dur_ns IS b.call_dur_ns AND "
                   "a.correlation IS b.correlation"),
            ROWS);
    check_text("PRAGMA integrity_check", "ok");
    store_close(store);
    unlink(test_path);
}

// A process that writes what it likes into its spool makes no store that nobody can read.
TEST(times_that_no_clock_gives)
{
    begin();
    uint32_t name = spool_world_string(&spool, 1, "k");
    static const uint64_t times[] = {T(5), (uint64_t)RANGE_NS_END - 1, (uint64_t)RANGE_NS_END,
            INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX};
    enum { COUNT = sizeof times / sizeof *times, KEPT = 2 };
    for (int i = 0; i < COUNT; i++) {
        mark(1, times[i], UG_MARK_STEP_BEGIN, name, 1);
        struct ug_rec_gc gc = {
                .head = {UG_REC_GC, sizeof gc, 1}, .start_ns = times[i], .end_ns = times[i]};
        struct ug_rec_nccl nccl = {
                .head = {UG_REC_NCCL, sizeof nccl, 1}, .enqueued_ns = 5, .ended_ns = times[i]};
        struct ug_rec_graph_node node = {.head = {UG_REC_GRAPH_NODE, sizeof node, 1},
                .node = (uint64_t)i + 1,
                .at_ns = times[i]};
        spool_world_put(&spool, 1, &gc);
        spool_world_put(&spool, 1, &nccl);
        spool_world_put(&spool, 1, &node);
    }
    stop();
    CHECK_INT(number("SELECT count(*) FROM python_mark"), KEPT);
    CHECK_INT(number("SELECT count(*) FROM python_gc"), KEPT);
    CHECK_INT(number("SELECT count(*) FROM nccl_op"), KEPT);
    CHECK_INT(number("SELECT count(*) FROM gpu_graph_node"), KEPT);
    CHECK_INT(
            number("SELECT dropped FROM ledger WHERE producer = 'gpu' AND kind = 'times' AND breach"),
            4 * (COUNT - KEPT));
    CHECK_INT(number("SELECT max(at_ns) AS at_ns FROM python_mark"), RANGE_NS_END - 1);
    end();
}

// What a process in another time namespace does: a mark, and a kernel, by its own clock.
static void write_by_own_clock(int ready_fd)
{
    uint64_t now_ns = (uint64_t)clock_monotonic_ns();
    uint32_t name = spool_world_string(&spool, 1, "k");
    struct ug_rec_mark mark = {
            .head = {UG_REC_MARK, sizeof mark, 1}, .at_ns = now_ns, .kind = UG_MARK_STEP_BEGIN};
    struct ug_rec_kernel kernel =
            spool_world_kernel(name, 1, now_ns + GPU_OFFSET, now_ns + GPU_OFFSET + 1000);
    spool.header->pid = (uint32_t)getpid();
    spool_world_put(&spool, 1, &mark);
    spool_world_clock(&spool, now_ns, now_ns + GPU_OFFSET);
    spool_world_put(&spool, 1, &kernel);
    if (write(ready_fd, "x", 1) == 1)
        for (;;)
            pause();
    _exit(1);
}

TEST(a_process_in_a_time_namespace)
{
    const int64_t ahead_ns = 7200123456789;
    int ends[2];
    char byte;
    snprintf(test_path, sizeof test_path, "/tmp/upgate-gpu-%d.db", (int)getpid());
    store = gpu_world_store(test_path);
    spool_world_new(&spool);
    CHECK_INT(gpu_recorder_new(store, 1, &gpu_world_callbacks, NULL, &gpu, NULL), 0);
    time_rig_enter(ahead_ns, 0);
    CHECK_INT(pipe(ends), 0);
    int64_t begin_ns = clock_monotonic_ns();
    pid_t pid = fork();
    if (pid == 0)
        write_by_own_clock(ends[1]);
    CHECK_INT(read(ends[0], &byte, 1), 1);
    CHECK_INT(gpu_recorder_attach(gpu, pid, NULL), 0);
    CHECK_INT(gpu_recorder_attach(gpu, pid, NULL), 0); // the same again
    CHECK_INT(spool.header->generation, 1);
    CHECK((int64_t)spool.header->heartbeat_ns >= begin_ns + ahead_ns);
    CHECK_INT(gpu_recorder_poll(gpu, begin_ns, NULL), 0);
    CHECK_INT(spool.header->heartbeat_ns, begin_ns + ahead_ns);
    int64_t end_ns = clock_monotonic_ns();
    kill(pid, SIGKILL);
    CHECK_INT(waitpid(pid, NULL, 0), pid);
    stop();
    int64_t at_ns = number("SELECT at_ns FROM python_mark");
    CHECK(begin_ns <= at_ns && at_ns <= end_ns);
    CHECK_INT(number("SELECT start_ns FROM v_gpu_op"), at_ns);
    CHECK_INT(
            number("SELECT count(*) FROM ledger WHERE producer = 'gpu.clock' AND kind = 'time namespace' AND breach = 0 "
                   "AND detail LIKE '%off by +7200.123456789 s%'"),
            1);
    end();
}

TEST(an_earlier_recorders_records_are_not_ours)
{
    snprintf(test_path, sizeof test_path, "/tmp/upgate-gpu-%d.db", (int)getpid());
    store = gpu_world_store(test_path);
    spool_world_new(&spool);
    uint32_t name = spool_world_string(&spool, 1, "k");
    struct ug_rec_kernel kernel = spool_world_kernel(name, 1, G(1000), G(2000));
    spool_world_put(&spool, 1, &kernel);
    spool.header->generation = 4; // asked before
    CHECK_INT(gpu_recorder_new(store, 1, &gpu_world_callbacks, NULL, &gpu, NULL), 0);
    CHECK_INT(gpu_recorder_attach_fd(gpu, 100, spool.fd, NULL), 0);
    CHECK_INT(gpu_recorder_attach_fd(gpu, 100, spool.fd, NULL), 0); // the same again
    CHECK_INT(spool.header->generation, 5);
    CHECK_INT(spool.header->want_state, UG_SPOOL_ACTIVE);
    spool.header->state = UG_SPOOL_ACTIVE;
    spool_world_clock(&spool, T(0), G(0));
    // the name was written for the earlier one
    kernel = spool_world_kernel(name, 2, G(3000), G(4000));
    spool_world_put(&spool, 1, &kernel);
    stop();
    CHECK_INT(spool.header->want_state, UG_SPOOL_DORMANT);
    check_text("SELECT group_concat(correlation || name) FROM v_gpu_op", "2k");
    CHECK_INT(number("SELECT seen FROM ledger WHERE producer = 'gpu.kernel'"), 1);
    end();
}

// Two recorders of one process at one time: each would get a part, and the first to end would
// switch it off for both.
TEST(another_recorder_takes_it_over)
{
    begin();
    spool_world_clock(&spool, T(0), G(0));
    uint32_t name = spool_world_string(&spool, 1, "k");
    struct ug_rec_kernel kernel = spool_world_kernel(name, 1, G(1000), G(2000));
    spool_world_put(&spool, 1, &kernel);
    CHECK_INT(gpu_recorder_poll(gpu, (int64_t)T(10000), NULL), 0);
    spool.header->generation++; // the other one asks, and reads from here on
    kernel = spool_world_kernel(name, 2, G(3000), G(4000));
    spool_world_put(&spool, 1, &kernel);
    CHECK_INT(gpu_recorder_poll(gpu, (int64_t)T(20000), NULL), 0);
    CHECK_INT(gpu_recorder_attach_fd(gpu, 100, spool.fd, NULL), 0); // nor is it taken back
    CHECK_INT(spool.header->generation, 2);
    stop();
    CHECK_INT(totals.taken, 100);
    CHECK_INT(spool.header->want_state, UG_SPOOL_ACTIVE);
    CHECK_INT(spool.segments[spool.at[1]].state, UG_SEGMENT_WRITING);
    check_text("SELECT group_concat(correlation) FROM v_gpu_op", "1");
    CHECK_INT(
            number("SELECT count(*) FROM ledger WHERE producer = 'gpu.spool' AND kind = 'taken' AND breach = 1"),
            1);
    end();
}

// A recorder that was stopped for ten seconds: the process has become dormant, and nobody else has
// asked.
TEST(a_process_that_took_us_for_gone_is_asked_again)
{
    begin();
    spool_world_clock(&spool, T(0), G(0));
    uint32_t name = spool_world_string(&spool, 1, "k");
    struct ug_rec_kernel kernel = spool_world_kernel(name, 1, G(1000), G(2000));
    spool_world_put(&spool, 1, &kernel);
    CHECK_INT(gpu_recorder_poll(gpu, (int64_t)T(10000), NULL), 0);
    CHECK_INT(spool.header->generation, 1);
    spool.header->state = UG_SPOOL_DORMANT;
    CHECK_INT(gpu_recorder_poll(gpu, (int64_t)T(20000), NULL), 0);
    CHECK_INT(spool.header->generation, 2);
    CHECK_INT(spool.header->want_state, UG_SPOOL_ACTIVE);
    CHECK_INT(spool.header->want_kinds, UG_WANT_DEFAULT);
    CHECK_INT(gpu_recorder_poll(gpu, (int64_t)T(30000), NULL), 0); // it has not answered yet
    CHECK_INT(spool.header->generation, 2);
    spool.header->state = UG_SPOOL_ACTIVE;
    spool.header->done_generation = 2;
    kernel = spool_world_kernel(name, 2, G(3000), G(4000));
    spool_world_put(&spool, 1, &kernel);
    spool_world_clock(&spool, T(40000), G(40000));
    CHECK_INT(gpu_recorder_poll(gpu, (int64_t)T(50000), NULL), 0);
    CHECK_INT(spool.header->generation, 2);
    stop();
    check_text("SELECT group_concat(correlation) FROM v_gpu_op", "1,2");
    CHECK_INT(
            number("SELECT dropped FROM ledger WHERE producer = 'gpu.spool' AND kind = 'away' AND breach = 1"),
            1);
    end();
}

TEST(a_process_that_ends_before_the_second_look_was_traced)
{
    begin();
    uint32_t name = spool_world_string(&spool, 0, "k");
    spool_world_clock(&spool, T(0), G(0));
    struct ug_rec_kernel kernel = spool_world_kernel(name, 1, G(2000), G(3000));
    spool_world_put(&spool, 1, &kernel);
    stop();
    CHECK_INT(totals.kernels, 1);
    CHECK_INT(number("SELECT kinds FROM gpu_process WHERE state = 'traced'"), UG_WANT_DEFAULT);
    end();
}

// What CUPTI held is gone with the process.
TEST(a_killed_process_loses_its_last_launches)
{
    begin();
    uint32_t name = spool_world_string(&spool, 0, "k"),
             launch = spool_world_string(&spool, 0, "cudaLaunchKernel");
    spool_world_clock(&spool, T(0), G(0));
    for (uint32_t i = 1; i <= 3; i++) {
        struct ug_rec_call call = spool_world_call(launch, 1, i, G(i * 1000), G(i * 1000 + 100));
        spool_world_put(&spool, 1, &call);
    }
    struct ug_rec_kernel kernel = spool_world_kernel(name, 1, G(2000), G(3000));
    spool_world_put(&spool, 1, &kernel);
    gpu_recorder_gone(gpu, 100);
    CHECK_INT(gpu_recorder_poll(gpu, (int64_t)T(20000), NULL), 0);
    stop();
    CHECK_INT(totals.dropped, 2);
    CHECK_INT(
            number("SELECT dropped FROM ledger WHERE producer = 'gpu.cupti' AND kind = 'end' AND breach = 0"),
            2);
    end();
}

// A server that captured its graphs at its start, and is killed a day later, has lost nothing of
// them.
TEST(launches_that_ran_nothing_are_not_lost_in_a_kill)
{
    const uint64_t later = 50000000000;
    begin();
    uint32_t launch = spool_world_string(&spool, 0, "cuLaunchKernel"),
             host = spool_world_string(&spool, 0, "cuLaunchHostFunc");
    spool_world_clock(&spool, T(0), G(0));
    struct ug_rec_call call = spool_world_call(launch, 1, 1, G(1000), G(1100)); // captured
    spool_world_put(&spool, 1, &call);
    for (uint64_t ns = 0; ns <= later; ns += 5000000000)
        CHECK_INT(gpu_recorder_poll(gpu, (int64_t)T(ns), NULL), 0);
    call = spool_world_call(launch, 1, 2, G(later), G(later + 100)); // CUPTI held what it ran
    spool_world_put(&spool, 1, &call);
    call = spool_world_call(launch, 1, 3, G(later + 200), G(later + 300));
    call.result = 2; // out of memory
    spool_world_put(&spool, 1, &call);
    call = spool_world_call(host, 1, 4, G(later + 400), G(later + 500));
    spool_world_put(&spool, 1, &call);
    gpu_recorder_gone(gpu, 100);
    CHECK_INT(gpu_recorder_poll(gpu, (int64_t)T(later + 20000), NULL), 0);
    stop();
    CHECK_INT(number("SELECT count(*) FROM gpu_call"), 4);
    CHECK_INT(totals.dropped, 1);
    CHECK_INT(
            number("SELECT dropped FROM ledger WHERE producer = 'gpu.cupti' AND kind = 'end' AND breach = 0"),
            1);
    end();
}
