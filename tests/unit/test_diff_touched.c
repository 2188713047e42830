// SPDX-License-Identifier: Apache-2.0
// Who touched the memory first, from rows that are written by hand: two launches a side, their
// resident ranges and page faults.
#include <stdlib.h>
#include <string.h>

#include "bpf/events.h"
#include "common/strings.h"
#include "tests/unit/traced_world.h"

enum { READ_NS = 900 };
static const int64_t base = 0x7f0000000000;

static struct diff_memory memory;

static void begin(void)
{
    traced_begin();
    memory = (struct diff_memory){.held = {100 * MIB, 200 * MIB}};
}

// "name@module;name@module", leaf first. Its number.
static int stack(const char *kind, const char *text)
{
    static int frames, stacks;
    char *copy = xstrdup(text), *at = copy, *word;
    struct strbuf ids = {0};
    int depth = 0;
    while ((word = strsep(&at, ";"))) {
        char *module = strchr(word, '@');
        *module++ = 0;
        sql("INSERT INTO frame (id, name, module) VALUES (%d, '%s', '%s')", ++frames, word, module);
        strbuf_add(&ids, "%s%d", depth++ ? "," : "", frames);
    }
    sql("INSERT INTO stack VALUES (%d, '%s', %d, '[%s]')", ++stacks, kind, depth, ids.text);
    strbuf_free(&ids);
    free(copy);
    return stacks;
}

static void range_of(int launch, const char *kind, const char *name, int64_t at, int64_t bytes)
{
    sql("INSERT INTO launch_range VALUES (%d, 77, %lld, %lld, %lld, '%s', '%s', %d)", launch,
            (long long)(base + at), (long long)(base + at + bytes), (long long)bytes, kind, name,
            READ_NS);
}

static void watched(int launch) // its page faults were sampled
{
    sql("INSERT INTO ledger (launch_id, producer, kind, dropped, breach) SELECT %d, 'bpf.page_fault', 'records', 0, 0 WHERE NOT EXISTS "
        "(SELECT 1 FROM ledger WHERE launch_id = %d)",
            launch, launch);
}

static void fault_of(int launch, int64_t at, int at_ns, int user, int python, int level)
{
    watched(launch);
    sql("INSERT INTO page_fault VALUES (%d, %d, %lld, %d, nullif(%d, 0), nullif(%d, 0))", launch,
            at_ns, (long long)(base + at), level, user, python);
}
static void fault(int launch, int64_t at, int at_ns, int user, int python)
{
    fault_of(launch, at, at_ns, user, python, 0);
}

// Every side has this: the program itself.
static void ground(int user)
{
    for (int launch = 1; launch <= 4; launch++) {
        range_of(launch, "file", "python3", -64 * MIB, MIB);
        fault(launch, -64 * MIB, 1, user, 0);
    }
}

static void touched(void)
{
    struct error err = {0};
    int rc = diff_touched(&input, &memory, 10 * MIB, &err);
    if (rc)
        printf("%s\n", err.text);
    CHECK_INT(rc, 0);
}

static double delta_mib(size_t idx)
{
    return (memory.touches[idx].b_bytes - memory.touches[idx].a_bytes) / MIB;
}

// Two arrays that lie side by side in one range, of huge pages: four faults for 64 MiB, and two
// for 32.
TEST(what_lies_between_faults_is_divided)
{
    begin();
    int first = stack("user", "fills@plant;main@plant"),
        second = stack("user", "other@plant;main@plant");
    ground(first);
    for (int launch = 2; launch <= 4; launch += 2) {
        range_of(launch, "anonymous", "", 0, 96 * MIB);
        for (int i = 0; i < 4; i++)
            fault(launch, i * 20 * MIB, 600 + i, first, 0);
        fault(launch, 68 * MIB, 700, second, 0);
        fault(launch, 84 * MIB, 701, second, 0);
    }
    touched();
    CHECK_INT(memory.touch_told_count, 2);
    CHECK_STR(memory.touches[0].function, "fills");
    CHECK_STR(memory.touches[0].module, "plant");
    CHECK_DBL(delta_mib(0), 64, 1e-9);
    CHECK_DBL(delta_mib(1), 32, 1e-9);
    CHECK_INT(memory.touches[0].samples[1], 2 * 5);
    CHECK_DBL(memory.touches[0].start_bytes[0] / MIB, 1, 1e-9); // the ground, before the first step
    CHECK_DBL(memory.seen[1] / MIB, 97, 1e-9);
    end();
}

TEST(given_back_or_touched_again_or_later)
{
    begin();
    int back = stack("user", "gives_back@plant"), again = stack("user", "again@plant"),
        late = stack("user", "late@plant");
    ground(again);
    for (int launch = 2; launch <= 4; launch += 2) {
        range_of(launch, "anonymous", "", 0, 32 * MIB);
        for (int i = 0; i < 32; i++) {
            fault(launch, i * MIB, 650, again, 0); // whatever the order of the rows
            fault(launch, i * MIB, 550, back, 0);
            fault(launch, i * MIB, READ_NS + 1, late, 0);
            fault(launch, (64 + i) * MIB, 560, back, 0); // not resident
        }
    }
    touched();
    CHECK_INT(memory.touch_count, 1);
    CHECK_STR(memory.touches[0].function, "again");
    CHECK_DBL(delta_mib(0), 32, 1e-9);
    end();
}

// 32 MiB were touched, given back, and touched again by another function when fewer pages were
// sampled.
TEST(a_smaller_sample_hides_what_was_before)
{
    begin();
    int back = stack("user", "gives_back@plant"), again = stack("user", "again@plant");
    ground(again);
    for (int launch = 2; launch <= 4; launch += 2) {
        range_of(launch, "anonymous", "", 0, 32 * MIB);
        range_of(launch, "anonymous", "", 64 * MIB, 32 * MIB); // and this is still of the first one
        for (int64_t at = 0; at < 32 * MIB; at += 4096) {
            if (ug_fault_is_of((uint64_t)(base + at), 4))
                fault_of(launch, at, 550, back, 0, 4);
            if (ug_fault_is_of((uint64_t)(base + at), 8))
                fault_of(launch, at, 650, again, 0, 8);
            if (ug_fault_is_of((uint64_t)(base + 64 * MIB + at), 4))
                fault_of(launch, 64 * MIB + at, 551, back, 0, 4);
        }
    }
    touched();
    CHECK_INT(memory.touch_told_count, 2);
    for (int i = 0; i < 2; i++)
        CHECK_DBL(delta_mib(i), 32, 1e-9);
    end();
}

// The sample of a level is of all lower ones, has its share of the pages, and a huge page's first
// one up to level 9.
TEST(samples_of_pages)
{
    enum { PAGES = 1 << 20 };
    size_t count[UG_FAULT_LEVEL_MAX + 1] = {0};
    for (uint64_t page = 0; page < PAGES; page++)
        for (uint32_t level = 0; level <= UG_FAULT_LEVEL_MAX; level++) {
            uint32_t of = ug_fault_is_of((uint64_t)base + (page << 12) + 17, level);
            count[level] += of;
            CHECK(!of || !level || ug_fault_is_of((uint64_t)base + (page << 12), level - 1));
            CHECK(of || page % 512 || level > UG_FAULT_HUGE_BITS);
        }
    CHECK_INT(count[0], PAGES);
    for (int level = 1; level < 7; level++) {
        double want = (PAGES >> level) + (double)PAGES / 512;
        CHECK(count[level] > 0.9 * want && count[level] < 1.1 * want);
    }
    CHECK(count[UG_FAULT_LEVEL_MAX] > (PAGES >> 12) / 2 &&
            count[UG_FAULT_LEVEL_MAX] < (PAGES >> 12) * 4);
}

TEST(neighbours_of_a_file_and_what_is_too_far)
{
    begin();
    int reads = stack("user", "reads@plant");
    ground(reads);
    for (int launch = 2; launch <= 4; launch += 2) {
        range_of(launch, "file", "data.bin", 0, 16 * MIB);
        fault(launch, 0, 600, reads, 0);
        range_of(launch, "file", "data.bin", 66 * MIB, MIB);      // 66 MiB from the fault: too far
        range_of(launch, "file", "other.bin", 16 * MIB, MIB / 2); // another file
        range_of(launch, "file", "data.bin", -2 * MIB, MIB);
    }
    touched();
    CHECK_INT(memory.touch_told_count, 1);
    CHECK_DBL(delta_mib(0), 17, 1e-9);
    CHECK_DBL(memory.seen[1] / MIB, 18, 1e-9);
    end();
}

// Names: the Python function whatever library worked for it, and who called into its package; an
// import as one; a library.
TEST(names)
{
    static const struct {
        const char *user, *python, *kind, *file, *caller, *caller_file, *outside, *function;
    } rows[] = {
            {"__memset_avx2@libc.so.6;at::native::fill@libtorch_cpu.so;_PyEval_EvalFrame@python3",
                    "Adam.step@/e/site-packages/torch/optim/adam.py;Module._call_impl@/e/site-packages/torch/nn/modules/module.py;train@/srv/train.py;"
                    "<module>@/srv/train.py",
                    "anonymous", "", "Adam.step", "torch/optim/adam.py", "train", "fill"},
            {"_int_malloc@libc.so.6;PyBytes_FromString@python3.11;_PyEval_EvalFrame@python3.11",
                    "in_arena.<locals>.<listcomp>@/srv/train.py;in_arena@/srv/train.py;<module>@/srv/train.py",
                    "heap", "", "in_arena", "train.py", NULL, NULL},
            {"read@libc.so.6;_PyEval_EvalFrame@python3.11",
                    "get_data@<frozen importlib._bootstrap_external>;<module>@/e/site-packages/torch/nn/__init__.py;exec@<frozen importlib._bootstrap>;"
                    "<module>@/e/site-packages/torch/__init__.py;exec@<frozen importlib._bootstrap>;<module>@/srv/common.py;exec@<frozen importlib._bootstrap>;<module>@/srv/train.py",
                    "heap", "", "import of torch", NULL, NULL, NULL},
            {"read@libc.so.6;_PyEval_EvalFrame@python3.11",
                    "<module>@/srv/mine/__init__.py;exec@<frozen importlib._bootstrap>;<module>@/srv/train.py",
                    "heap", "", "import of mine", NULL, NULL, NULL},
            {"_dl_relocate_object@ld-linux-x86-64.so.2;dlopen@libc.so.6", NULL, "file",
                    "libtorch_cpu.so.1.13.0", NULL, NULL, NULL, "libtorch_cpu.so"},
            {"mem_efficient@libtorch_cpu.so;main@plant", NULL, "heap", "", NULL, NULL, NULL,
                    "mem_efficient"},
            {"_int_malloc@libc.so.6", NULL, "heap", "", NULL, NULL, NULL, "_int_malloc"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin();
        int user = stack("user", rows[i].user),
            python = rows[i].python ? stack("python", rows[i].python) : 0;
        for (int launch = 1; launch <= 4; launch++) {
            range_of(launch, rows[i].kind, rows[i].file, 0, launch % 2 ? MIB : 32 * MIB);
            fault(launch, 4096, 600, user, python);
        }
        touched();
        CHECK_INT(memory.touch_told_count, 1);
        const struct diff_touch *touch = &memory.touches[0];
        CHECK_STR(touch->caller ? touch->caller : "-", rows[i].caller ? rows[i].caller : "-");
        CHECK_STR(touch->caller_file ? touch->caller_file : "-",
                rows[i].caller_file ? rows[i].caller_file : "-");
        CHECK_STR(touch->outside ? touch->outside : "-", rows[i].outside ? rows[i].outside : "-");
        CHECK_STR(
                touch->function ? touch->function : "-", rows[i].function ? rows[i].function : "-");
        CHECK_INT(touch->loads, strcmp(rows[i].kind, "file") == 0);
        end();
    }
}

// 0 and 30 MiB on one side, 30 and 30 on the other: launches of one side differ by that. And 5 MiB
// are less than is asked for.
TEST(noise_is_not_told)
{
    begin();
    int noise = stack("user", "noise@plant"), little = stack("user", "little@plant");
    for (int launch = 1; launch <= 4; launch++) {
        range_of(launch, "anonymous", "", 0, launch == 1 ? 4096 : 30 * MIB);
        fault(launch, 0, 600, noise, 0);
        range_of(launch, "anonymous", "", 64 * MIB, launch % 2 ? 4096 : 5 * MIB);
        fault(launch, 64 * MIB, 600, little, 0);
    }
    touched();
    CHECK_INT(memory.touch_count, 2);
    CHECK_INT(memory.touch_told_count, 0);
    CHECK_DBL(memory.touch_more_bytes, 0, 0);
    end();
}

TEST(one_side_was_not_watched)
{
    begin();
    int user = stack("user", "fills@plant");
    for (int launch = 2; launch <= 4; launch += 2) {
        range_of(launch, "anonymous", "", 0, 30 * MIB);
        fault(launch, 0, 600, user, 0);
    }
    range_of(1, "anonymous", "", 0, MIB); // its page faults could not be sampled
    touched();
    CHECK_INT(memory.touch_count, 0);
    watched(1); // they were, of so small a program none
    touched();
    CHECK_INT(memory.touch_told_count, 1);
    CHECK_STR(memory.touches[0].function, "fills");
    end();
}

// What no recorder wrote: ranges that end before they begin or lie over each other, sizes and
// addresses of all kinds, stacks that are not there.
TEST(damage)
{
    static const char *const numbers[] = {
            "-9223372036854775808", "-1", "0", "1", "4096", "9223372036854775807"};
    enum { NUMBERS = sizeof numbers / sizeof *numbers };
    begin();
    for (int i = 0; i < NUMBERS * NUMBERS * NUMBERS; i++) {
        int launch = 1 + i % 4;
        sql("INSERT OR IGNORE INTO launch_range VALUES (%d, 77, %s, %s, %s, 'file', 'x', %d)",
                launch, numbers[i % NUMBERS], numbers[i / NUMBERS % NUMBERS],
                numbers[i / NUMBERS / NUMBERS], READ_NS);
        sql("INSERT INTO page_fault VALUES (%d, %d, %s, 0, 9999, %d)", launch, i,
                numbers[i % NUMBERS], i);
    }
    int empty = stack("user", "@;@"),
        odd = stack("python", "<listcomp>@x.py;<genexpr>@/;<module>@<frozen<sp>importlib");
    for (int launch = 1; launch <= 4; launch++) {
        range_of(launch, "stack", "", 0, 40 * MIB);
        fault(launch, 0, 5, empty, odd);
        fault(launch, 8192, 6, empty, empty);
        fault(launch, 16384, 6, 0, odd);
    }
    touched();
    for (size_t i = 0; i < memory.touch_count; i++)
        CHECK(memory.touches[i].a_bytes >= 0 && memory.touches[i].b_bytes >= 0);
    end();
}
