// SPDX-License-Identifier: Apache-2.0
// Where the GPU memory is, from rows that are written by hand: two launches a side, what their
// allocator told, their allocations.
#include <string.h>

#include "tests/unit/traced_world.h"

enum { PINNED = 2, DEVICE = 3 };

static int correlation;

static void cell(double ratio, double lower, double upper, const char *verdict)
{
    sql("INSERT INTO cell (workload, metric, unit, direction, gating, median_a, ratio, ci_lower, ci_upper, alpha, pairs, margin, verdict, improved, "
        "reason) VALUES ('w', 'peak_gpu_memory', 'bytes', 'lower', 1, %d, %f, %f, %f, 0.05, 10, 0.05, '%s', 0, '')",
            100 * MIB, ratio, lower, upper, verdict);
}

static void begin(void)
{
    static const char *const names[] = {"cuMemAlloc_v2", "layers.0.attn", "layers.3.attn"};
    traced_begin();
    for (int i = 0; i < 3; i++)
        sql("INSERT INTO string (id, text) VALUES (%d, '%s')", i + 1, names[i]);
    correlation = 0;
}

static void note(int launch, int rank, const char *name, int mib)
{
    sql("INSERT INTO launch_value VALUES (%d, %d, '%s', %lld)", launch, rank, name,
            (long long)mib * MIB);
}

// tensors: -1: not told
static void allocator(int launch, int reserved, int tensors)
{
    sql("UPDATE launch SET peak_gpu_memory_bytes = %lld WHERE id = %d", (long long)reserved * MIB,
            launch);
    note(launch, 0, "peak_gpu_memory_bytes", reserved);
    if (tensors >= 0)
        note(launch, 0, "peak_gpu_tensor_bytes", tensors);
}

static void event(int process, int operation, int kind, int at_ns, int address, int mib)
{
    sql("INSERT INTO gpu_memory (at_ns, process_id, operation, kind, device, address, bytes, correlation) "
        "VALUES (%d, %d, %d, %d, 0, %d, %lld, %d)",
            at_ns, process, operation, kind, address, (long long)mib * MIB, ++correlation);
}

// By a call of 4 ns. As in a launch: calls of CUDA have a thread.
static void allocate(int launch, int at_ns, int address, int mib)
{
    event(launch, 1, DEVICE, at_ns, address, mib);
    sql("INSERT INTO gpu_call VALUES (%d, 4, %d, %d, 1, %d, 0)", at_ns - 1, launch, launch,
            correlation);
}

static void release(int launch, int at_ns, int address)
{
    event(launch, 2, 0, at_ns, address, 0);
}

// name: of string; 0: outside of modules
static void mark(int launch, int at_ns, int kind, int name)
{
    sql("INSERT INTO python_mark VALUES (%d, %d, %d, %d, nullif(%d, 0), NULL)", launch, launch,
            at_ns, kind, name);
}

static void explain(void)
{
    struct error err = {0};
    int rc = diff_memory(&input, &workload.memory, &workload.gpu_memory, &err);
    if (rc)
        printf("%s\n", err.text);
    CHECK_INT(rc, 0);
}

static double delta_mib(size_t idx)
{
    const struct diff_memory *memory = &workload.gpu_memory;
    return (memory->touches[idx].b_bytes - memory->touches[idx].a_bytes) / MIB;
}

// The candidate reserves 58 MiB more than its tensors need, by 60 MiB from the backward of a layer;
// and 8 MiB come from elsewhere.
static void grown(void)
{
    sql("INSERT INTO frame (id, name, module) VALUES (1, 'remember', '/srv/train.py'), (2, '<module>', '/srv/train.py'), "
        "(3, 'cuMemAlloc_v2', 'libcuda.so.1'), (4, 'raw_alloc', 'libc10_cuda.so'), (5, 'empty_cuda', 'libtorch_cuda.so')");
    sql("INSERT INTO stack VALUES (1, 'python', 2, '[1,2]'), (2, 'user', 3, '[3,4,5]')");
    for (int launch = 1; launch <= 4; launch++) {
        bool b = launch % 2 == 0;
        allocator(launch, b ? 160 : 100, b ? 92 : 90);
        allocate(launch, 50, 1, 40); // given back: in nothing
        release(launch, 60, 1);
        mark(launch, 90, 1, 2);
        for (int i = 0; i < 5; i++)
            allocate(launch, 100 + 10 * i, 1 + i, 20);
        mark(launch, 590, 2, 3);
        for (int i = 0; b && i < 3; i++)
            allocate(launch, 600 + 10 * i, 11 + i, 20);
        mark(launch, 690, 2, 0);
        if (b)
            allocate(launch, 700, 21, 8);
        for (int i = 0; i < 5; i++)
            release(launch, 800 + i, 1 + i);
        allocate(launch, 900, 1, 30); // behind the peak
        event(launch, 1, PINNED, 750, 31, 500);
        // the last one lies in no call
        sql("INSERT INTO sample VALUES (%d, 601, 0, 0, NULL, 2, 1), (%d, 611, 0, 0, NULL, 2, 1), (%d, 701, 0, 0, NULL, 2, NULL), "
            "(%d, 650, 0, 0, NULL, 2, NULL)",
                launch, launch, launch, launch);
    }
}

TEST(reserve_and_who_allocated)
{
    begin();
    grown();
    cell(1.6, 1.55, 1.65, "fail");
    explain();
    const struct diff_memory *memory = &workload.gpu_memory;
    CHECK(memory->gpu && memory->failed && !memory->time_failed);
    CHECK_INT(memory->part_count, 3);
    CHECK_INT(memory->told_count, 2);
    CHECK_STR(diff_memory_word(memory->parts[0].kind), "reserve");
    CHECK_DBL(memory->parts[0].a_bytes / MIB, 10, 1e-9);
    CHECK_DBL(memory->parts[0].b_bytes / MIB, 68, 1e-9);
    CHECK_STR(diff_memory_word(memory->parts[1].kind), "direct");
    CHECK_DBL(memory->parts[1].b_bytes / MIB, 8, 1e-9);
    CHECK_STR(diff_memory_word(memory->parts[2].kind), "tensors");
    CHECK_DBL(memory->held[0] / MIB, 100, 1e-9);
    CHECK_DBL(memory->held[1] / MIB, 168, 1e-9);
    CHECK_DBL(memory->seen[1] / MIB, 168, 1e-9);
    CHECK_INT(memory->touch_count, 3);
    CHECK_INT(memory->touch_told_count, 2);
    const struct diff_touch *first = &memory->touches[0], *second = &memory->touches[1],
                            *third = &memory->touches[2];
    CHECK_STR(first->caller, "backward of layers.*.attn");
    CHECK_STR(first->function, "remember"); // of 40 of 60 MiB
    CHECK_STR(first->module, "train.py");
    CHECK_DBL(delta_mib(0), 60, 1e-9);
    CHECK_INT(first->samples[1], 2 * 3);
    CHECK_DBL(first->start_bytes[1], 0, 0);
    CHECK_STR(second->caller, "cuMemAlloc outside of modules");
    CHECK_STR(second->function, "empty_cuda"); // neither the driver nor the allocator
    CHECK_DBL(delta_mib(1), 8, 1e-9);
    CHECK_STR(third->caller, "layers.*.attn");
    CHECK(!third->told && !third->function);
    CHECK_DBL(third->start_bytes[0] / MIB, 100, 1e-9);
    CHECK(!workload.memory.part_count);
    end();
}

// Of 20 allocations of a launch three were sampled within their call, in `frames` of Python.
static void sampled(const int frames[3])
{
    sql("INSERT INTO frame (id, name, module) VALUES (1, 'remember', '/srv/train.py'), (2, 'forget', '/srv/train.py')");
    sql("INSERT INTO stack VALUES (1, 'python', 1, '[1]'), (2, 'python', 1, '[2]')");
    for (int launch = 1; launch <= 4; launch++) {
        bool b = launch % 2 == 0;
        allocator(launch, b ? 160 : 100, 90);
        mark(launch, 90, 1, 2);
        for (int i = 0; i < (b ? 10 : 4); i++)
            allocate(launch, 100 + 10 * i, 1 + i, 5);
        mark(launch, 390, 2, 3);
        for (int i = 0; b && i < 20; i++)
            allocate(launch, 400 + 10 * i, 101 + i, 1);
        for (int i = 0; b && i < 3; i++)
            sql("INSERT INTO sample VALUES (%d, %d, 0, 0, NULL, NULL, %d)", launch, 401 + 50 * i,
                    frames[i]);
    }
    cell(1.6, 1.55, 1.65, "fail");
}

TEST(few_of_many_seen)
{
    begin();
    sampled((int[]){1, 1, 1}); // 6 of 40
    explain();
    const struct diff_memory *memory = &workload.gpu_memory;
    // 20 MiB of one side alone come before 30 more of both
    CHECK_STR(memory->touches[0].caller, "backward of layers.*.attn");
    CHECK_DBL(delta_mib(0), 20, 1e-9);
    CHECK_STR(memory->touches[0].function, "remember");
    CHECK_DBL(delta_mib(1), 30, 1e-9);
    CHECK(memory->touches[1].told && !memory->touches[1].function);
    end();
    begin();
    sampled((int[]){1, 1, 2}); // 4 of the 6: perhaps by chance
    explain();
    CHECK(workload.gpu_memory.touches[0].told && !workload.gpu_memory.touches[0].function);
    end();
}

TEST(told_when_it_fails_is_open_or_differs)
{
    static const struct {
        double ratio, lower, upper;
        const char *verdict;
        bool told;
    } cells[] = {
            {1.6, 1.55, 1.65, "fail", true},
            {1.03, 0.99, 1.07, "inconclusive", true},
            {1.02, 1.01, 1.03, "pass", true},
            {1.002, 0.999, 1.005, "pass", false},
            {1.0004, 1.0003, 1.0005, "pass", false},
            {0, 0, 0, "inconclusive", false},
            {1, 0.9, 1.1, "inconclusive", false},
    };
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        begin();
        grown();
        cell(cells[i].ratio, cells[i].lower, cells[i].upper, cells[i].verdict);
        explain();
        CHECK_INT(workload.gpu_memory.part_count > 0, cells[i].told);
        end();
    }
    begin(); // there is no such cell
    grown();
    explain();
    CHECK_INT(workload.gpu_memory.part_count, 0);
    end();
}

// An older workload tells what is reserved alone, and one launch has no recorded allocation.
TEST(what_was_not_recorded_is_not_told)
{
    begin();
    cell(1.6, 1.55, 1.65, "fail");
    for (int launch = 1; launch <= 4; launch++) {
        allocator(launch, launch % 2 ? 100 : 160, launch == 1 ? -1 : 90);
        if (launch > 1)
            allocate(launch, 100, 1, launch % 2 ? 100 : 160);
    }
    explain();
    CHECK_INT(workload.gpu_memory.part_count, 1);
    CHECK_STR(diff_memory_word(workload.gpu_memory.parts[0].kind), "allocator");
    CHECK(workload.gpu_memory.parts[0].told);
    CHECK_INT(workload.gpu_memory.touch_count, 0);
    end();
    begin();
    cell(1.6, 1.55, 1.65, "fail");
    for (int launch = 2; launch <= 4; launch += 2)
        allocator(launch, 160, 90); // of one side alone
    explain();
    CHECK_INT(workload.gpu_memory.part_count, 0);
    end();
}

// Of several processes that of the one with the most, of several ranks likewise.
TEST(ranks)
{
    begin();
    cell(1.6, 1.55, 1.65, "fail");
    for (int launch = 1; launch <= 4; launch++) {
        int most = launch % 2 ? 100 : 160;
        sql("INSERT INTO process (id, recording_id, tgid, start_ns, comm, kind) VALUES (%d, %d, 78, 1, 'w', 'target')",
                launch + 10, launch);
        allocator(launch, most, 90);
        note(launch, 1, "peak_gpu_memory_bytes", 50);
        note(launch, 1, "peak_gpu_tensor_bytes", 49);
        event(launch + 10, 1, DEVICE, 10, 1, 50);
        allocate(launch, 20, 1, most);
    }
    explain();
    const struct diff_memory *memory = &workload.gpu_memory;
    CHECK_DBL(memory->held[1] / MIB, 160, 1e-9);
    CHECK_INT(memory->touch_count, 1);
    CHECK_STR(memory->touches[0].caller, "cuMemAlloc"); // no thread of it was in a module
    CHECK_STR(diff_memory_word(memory->parts[0].kind), "reserve");
    CHECK_DBL(memory->parts[0].a_bytes / MIB, 10, 1e-9);
    end();
}

// Correlations are numbers of a process: what one launch calls 1, another one calls 1, too. A
// recording of no launch has some as well.
TEST(calls_are_those_of_their_own_launch)
{
    begin();
    cell(1.6, 1.55, 1.65, "fail");
    sql("INSERT INTO recording (id, begin_ns, threshold_ns, sample_hz, python, target, missing) VALUES (90, 1, 1, 1, 0, '{}', '[]')");
    sql("INSERT INTO process (id, recording_id, tgid, start_ns, comm, kind) VALUES (90, 90, 79, 1, 'w', 'target')");
    event(90, 1, DEVICE, 5, 1, 9000);
    for (int launch = 1; launch <= 4; launch++) {
        bool b = launch % 2 == 0;
        allocator(launch, b ? 160 : 100, 90);
        correlation = 0;
        mark(launch, 10, 1, 2); // layers.0.attn
        allocate(launch, 20, 1, 100);
        mark(launch, 30, 1, 3);
        if (b)
            allocate(launch, 40, 2, 60); // layers.3.attn
        mark(launch, 50, 1, 0);
        // of another process, and behind all modules
        sql("INSERT INTO gpu_call VALUES (100, 4, 90, NULL, 1, 1, 0)");
    }
    explain();
    const struct diff_memory *memory = &workload.gpu_memory;
    CHECK_DBL(memory->held[0] / MIB, 100, 1e-9);
    CHECK_DBL(memory->held[1] / MIB, 160, 1e-9);
    CHECK_INT(memory->touch_count, 1); // both are "layers.*.attn"
    CHECK_STR(memory->touches[0].caller, "layers.*.attn");
    CHECK_DBL(memory->touches[0].a_bytes / MIB, 100, 1e-9);
    CHECK_DBL(memory->touches[0].b_bytes / MIB, 160, 1e-9);
    end();
}

// What no recorder wrote: releases of nothing, an address that is given twice, sizes below 0, more
// tensors than memory, no call.
TEST(damage)
{
    begin();
    cell(1.6, 1.55, 1.65, "fail");
    for (int launch = 1; launch <= 4; launch++) {
        allocator(launch, launch % 2 ? 100 : 160, 1000);
        release(launch, 10, 5);
        allocate(launch, 20, 5, 60);
        allocate(launch, 30, 5, launch % 2 ? 100 : 160); // its release was lost
        event(launch, 1, DEVICE, 40, 6, -500);
        event(launch, 1, DEVICE, 50, 7, 1); // by no call
        release(launch, 60, 7);
        release(launch, 61, 7);
        release(launch, 62, 6);
        sql("INSERT INTO gpu_memory (at_ns, process_id, operation, kind, device, address, bytes, correlation) "
            "VALUES (70, %d, 9, 3, 0, 8, 9223372036854775807, -1)",
                launch);
    }
    explain();
    const struct diff_memory *memory = &workload.gpu_memory;
    CHECK_DBL(memory->held[0] / MIB, 101, 1e-9);
    CHECK_DBL(memory->seen[0] / MIB, 100, 1e-9);
    CHECK_INT(memory->touch_count, 1);
    for (size_t i = 0; i < memory->part_count; i++)
        CHECK(memory->parts[i].a_bytes >= 0 && memory->parts[i].b_bytes >= 0);
    end();
}
