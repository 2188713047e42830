// SPDX-License-Identifier: Apache-2.0
// Each kind of what is said of a stall, with its arguments, as people read it.
#include <stdlib.h>
#include <string.h>

#include "reports/analyse/stalls/causes.h"
#include "reports/render/causes/cause_text.h"
#include "reports/render/stalls/stalls_text.h"
#include "reports/render/stalls/stalls_what_if.h"
#include "tests/unit/runner.h"

// Takes the text.
static void check_text(char *text, const char *want)
{
    CHECK_STR(text, want);
    free(text);
}

TEST(doubts_stand_in_one_order)
{
    static const char *const texts[STALL_DOUBT_BITS] = {
            "the lock was held by readers, of which only one is known",
            "who held it was not recorded", "the owner that was recorded is another task",
            "what the holder did was not seen", "the culprit is concluded from the timing",
            "the wait lies across the edge of the recording", "several programs had their share",
            "what the GPU did meanwhile was not recorded", "no samples were taken",
            "what it did meanwhile was not seen", "events were lost while recording"};
    struct stall stall = {.confidence = 0.614};
    CHECK(!stalls_text_doubts(&stall));
    check_text(stalls_text_sure(&stall), "61 %");
    for (int bit = 0; bit < STALL_DOUBT_BITS; bit++) {
        stall.doubts = 1U << bit;
        check_text(stalls_text_doubts(&stall), texts[bit]);
    }
    stall.doubts = STALL_DOUBT_LOST | STALL_DOUBT_NO_OWNER | STALL_DOUBT_NO_SAMPLES;
    check_text(stalls_text_sure(&stall),
            "61 %: who held it was not recorded; no samples were taken; events were lost while recording");
}

TEST(what_was_waited_for)
{
    const struct {
        struct stall_resource resource;
        const char *text;
    } cases[] = {
            {{.kind = STALL_RESOURCE_NAMED, .name = "/data/log"}, "/data/log"},
            {{.kind = STALL_RESOURCE_MMAP_LOCK, .pid = 4121}, "mmap_lock of pid 4121"},
            {{.kind = STALL_RESOURCE_KERNEL_LOCK, .address = 0xabc0}, "kernel lock 0xabc0"},
            {{.kind = STALL_RESOURCE_KERNEL_LOCK}, "a kernel lock"},
            {{.kind = STALL_RESOURCE_MUTEX, .address = 0x7f00}, "mutex 0x7f00"},
            {{.kind = STALL_RESOURCE_MUTEX}, "a mutex"},
            {{.kind = STALL_RESOURCE_GIL}, "GIL"},
            {{.kind = STALL_RESOURCE_CPU, .cpu = 0}, "CPU 0"},
            {{.kind = STALL_RESOURCE_CPU, .cpu = -1}, "CPU"},
            {{.kind = STALL_RESOURCE_CPU_TIME, .name = "browser", .pid = 3000},
                    "CPU time, most of it to browser (pid 3000)"},
            {{.kind = STALL_RESOURCE_CGROUPS, .cgroups = 3045, .directories = 45},
                    "3045 memory cgroups, 45 directories"},
            {{.kind = STALL_RESOURCE_CGROUPS, .cgroups = 1, .directories = 1},
                    "1 memory cgroup, 1 directory"},
            {{.kind = STALL_RESOURCE_CGROUPS, .cgroups = 3045, .directories = -1},
                    "3045 memory cgroups"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_text(stalls_text_resource(&cases[i].resource), cases[i].text);
    CHECK(!stalls_text_resource(&(struct stall_resource){0}));
}

TEST(how_one_hangs_on_the_other)
{
    const struct {
        struct stall_link link;
        const char *text;
    } cases[] = {
            {{.via = VIA_NONE}, "woken by"},
            {{.via = VIA_MMAP_LOCK}, "mmap_lock"},
            {{.via = VIA_KERNEL_LOCK}, "kernel lock"},
            {{.via = VIA_WAKE}, "woken by"},
            {{.via = VIA_PIPE}, "pipe"},
            {{.via = VIA_PIPE, .name = "pipe:[77]"}, "pipe:[77]"},
            {{.via = VIA_SOCKET}, "socket"},
            {{.via = VIA_FUTEX}, "woken by futex"},
            {{.via = VIA_MUTEX}, "mutex"},
            {{.via = VIA_GIL}, "GIL"},
            {{.via = VIA_CPU, .cpu = 3}, "CPU 3"},
            {{.via = VIA_CPU, .cpu = -1}, "CPU"},
            {{.via = VIA_SIGNAL}, "signal"},
            {{.via = VIA_FREEZER}, "cgroup freezer"},
            {{.via = VIA_PTRACE}, "ptrace"},
            {{.via = VIA_CHILD}, "waits for child"},
            {{.via = VIA_FILE, .name = "/log"}, "/log"},
            {{.via = VIA_FILE}, "file"},
            {{.via = VIA_MEMORY}, "memory"},
            {{.via = VIA_CAUSE, .name = "smaps_read"}, "smaps_read"},
            {{.via = VIA_COLLECTIVE}, "collective"},
            {{.via = VIA_MESSAGE}, "message"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_text(stalls_text_via(&cases[i].link), cases[i].text);
}

TEST(what_the_gpu_did_meanwhile)
{
    struct stall stall = {.meanwhile = STALL_MEANWHILE_NO_GPU};
    CHECK(!stalls_text_meanwhile(&stall));
    stall.meanwhile = STALL_MEANWHILE_IDLE;
    CHECK_STR(stalls_text_meanwhile(&stall),
            "only the time counts in which that has nothing to do for it");
    stall.meanwhile = STALL_MEANWHILE_PARTLY;
    CHECK_STR(stalls_text_meanwhile(&stall),
            "what it does meanwhile was recorded of some of the time only");
    stall.meanwhile = STALL_MEANWHILE_UNKNOWN;
    CHECK_STR(stalls_text_meanwhile(&stall), "what it does meanwhile was not recorded");
}

// The knob of each cause.
TEST(advice_names_the_knob)
{
    static const char *const cases[][2] = {{"smaps_read", "memory_info()"},
            {"fork_large", "posix_spawn"}, {"compaction", "transparent_hugepage/defrag"},
            {"khugepaged", "scan_sleep_millisecs"}, {"madvise_storm", "dirty_decay_ms"},
            {"cpu_quota", "cpu.max"}, {"cpu_contention", "OMP_NUM_THREADS"}, {"rt_hog", "chrt"},
            {"python_gc", "gc.freeze()"}, {"data_loader", "num_workers"},
            {"disk_read", "read ahead"}, {"gpu_sync", "another process"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stall stall = {.cause = cases[i][0]};
        char *text = stalls_text_advice(&stall), *full = stalls_text_advice_full(&stall);
        CHECK_CONTAINS(text, cases[i][1]);
        CHECK_STR(full, text);
        free(text);
        free(full);
    }
    struct stall unheard_of = {.cause = "new_one"};
    CHECK(!stalls_text_advice(&unheard_of) && !stalls_text_advice_full(&unheard_of));
}

TEST(advice_names_whom_it_is_about)
{
    struct stall stall = {.cause = "ptrace"};
    check_text(stalls_text_advice(&stall),
            "end whoever does it, or let it not stop the target (py-spy --nonblocking, a lower rate)");
    stall.culprit = (struct stall_task){.known = true,
            .pid = 4200,
            .tid = 4201,
            .comm = "sampler",
            .process_comm = "py-spy",
            .cmdline = "/usr/bin/py-spy record --pid 1000"};
    check_text(stalls_text_advice(&stall),
            "end py-spy (pid 4200), or let it not stop the target (py-spy --nonblocking, a lower rate)");
    check_text(stalls_text_advice_full(&stall),
            "end `/usr/bin/py-spy record --pid 1000` (pid 4200), or let it not stop the target (py-spy --nonblocking, a lower rate)");
    stall.culprit.cmdline = NULL; // gone before it could be read
    check_text(stalls_text_advice(&stall),
            "end `py-spy` (pid 4200), or let it not stop the target (py-spy --nonblocking, a lower rate)");
    stall.culprit_own = true;
    stall.cause = "pthread_mutex";
    check_text(stalls_text_advice(&stall),
            "shorten what thread 4201 (sampler) of the program itself does while it holds the mutex");
    stall = (struct stall){.cause = "cpu_contention"};
    char *text = stalls_text_advice(&stall);
    CHECK_CONTAINS(text, "keep the neighbours off these CPUs");
    free(text);
    stall = (struct stall){.cause = "smaps_read", .has_period = true, .period_ns = 299600000};
    text = stalls_text_advice(&stall);
    CHECK_CONTAINS(text, "ask far less often (now every 300 ms)");
    free(text);
}

// ---- what is not known ----

TEST(what_was_not_seen)
{
    const struct {
        struct stall_missing missing;
        const char *text;
    } cases[] = {
            {{.kind = STALL_MISSING_SOURCE, .text = "no tracefs: softirqs are not seen"},
                    "no tracefs: softirqs are not seen"},
            {{.kind = STALL_MISSING_RANKS, .count = 1, .of = 4, .ranks = {2}},
                    "rank 2 of 4 was not recorded: whether the others wait for it cannot be told"},
            {{.kind = STALL_MISSING_RANKS, .count = 2, .of = 4, .ranks = {2, 3}},
                    "ranks 2, 3 of 4 were not recorded: whether the others wait for them cannot be told"},
            {{.kind = STALL_MISSING_RANKS,
                     .count = 11,
                     .of = 12,
                     .ranks = {0, 1, 2, 3, 4, 5, 6, 8}},
                    "ranks 0, 1, 2, 3, 4, 5, 6, 8 and 3 more of 12 were not recorded: whether the others wait for them cannot "
                    "be told"},
            {{.kind = STALL_MISSING_CLOCKS, .count = 1, .of = 2},
                    "the clocks of 1 of 2 nodes were not synchronised: their ranks are compared with those of their own node "
                    "only; chrony, ntpd or PTP on all nodes makes them comparable"},
            {{.kind = STALL_MISSING_GPUS, .count = 1},
                    "records of what the GPUs did were lost: waits for them are told as if none of it was recorded"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_text(stalls_text_missing(&cases[i].missing), cases[i].text);
}

TEST(what_was_lost)
{
    check_text(stalls_text_breach(&(struct stall_breach){
                       .producer = "recorder", .kind = "end", .unended = true}),
            "recorder end: the recording was not ended in order");
    check_text(stalls_text_breach(&(struct stall_breach){
                       .producer = "bpf.gap", .kind = "records", .count = 5000}),
            "bpf.gap records: 5,000 dropped");
    check_text(
            stalls_text_breach(&(struct stall_breach){
                    .producer = "bpf", .kind = "gaps", .count = 12, .detail = "the ring was full"}),
            "bpf gaps: 12 dropped, the ring was full");
}

TEST(why_a_what_if_is_not_known)
{
    struct stall_what_if what_if = {.why_not = STALL_WHY_NOT_APART};
    check_text(stalls_what_if_head(&what_if),
            "What if: not known: the waits of its ranks do not end together, as with sends and receives, groups of some ranks, "
            "or nodes with different clocks");
    what_if.why_not = STALL_WHY_NOT_CONTRADICTION;
    what_if.contradiction = "operation 3 depends on itself";
    check_text(stalls_what_if_head(&what_if),
            "What if: not known: the recorded operations of its ranks contradict each other (operation 3 depends on itself)");
    what_if = (struct stall_what_if){
            .why_not = STALL_WHY_NOT_OFF, .measured_ns = 1000, .replayed_ns = 1123};
    check_text(stalls_what_if_head(&what_if),
            "What if: not known: the replay takes 12.3 % more than the job did, so what its ranks waited for is not known well "
            "enough");
    what_if.replayed_ns = 900;
    check_text(stalls_what_if_head(&what_if),
            "What if: not known: the replay takes 10.0 % less than the job did, so what its ranks waited for is not known well "
            "enough");
}

// ---- late ranks ----

static const struct late_case {
    struct stall_deed deed;
    const char *what, *advice;
} late_cases[] = {
        {{.kind = STALL_DEED_UNSEEN}, NULL,
                "look at what rank 1 does between its collectives that the other ranks do not"},
        {{.kind = STALL_DEED_CAUSE, .cause = "python_gc", .function = "collect (ddp.py)"},
                "python's garbage collector runs, in collect (ddp.py)",
                "on rank 1: gc.freeze() after start-up, gc.disable() in the training loop with gc.collect() at a chosen step on "
                "all ranks alike, or a higher gc.set_threshold()"},
        {{.kind = STALL_DEED_CAUSE, .cause = "tlb_shootdown"},
                "TLB flushes interrupt the other CPUs",
                "on rank 1: keep whoever does it from changing mappings in a loop (mprotect, munmap, mremap): keep buffers, "
                "change larger pieces at once, or use huge pages"},
        {{.kind = STALL_DEED_COMPUTES, .function = "augment (data.py)"},
                "computing in augment (data.py)",
                "look at augment (data.py), which takes rank 1 longer than the other ranks: spread its input evenly, or take it "
                "out of the step"},
        {{.kind = STALL_DEED_WAITS, .function = "fetch (data.py)"}, "waiting in fetch (data.py)",
                "look at fetch (data.py), which takes rank 1 longer than the other ranks: spread its input evenly, or take it "
                "out of the step"},
        {{.kind = STALL_DEED_SLEEPS, .function = "nap (data.py)"}, "sleeping in nap (data.py)",
                "look at nap (data.py), which takes rank 1 longer than the other ranks: spread its input evenly, or take it out "
                "of the step"},
        {{.kind = STALL_DEED_KERNEL, .function = "sin elementwise"},
                "sin elementwise, which takes its GPU longer",
                "compare the GPU of rank 1 with the others': clocks and throttling (nvidia-smi -q -d CLOCK,PERFORMANCE), who "
                "else uses it, and whether its input is larger"},
        {{.kind = STALL_DEED_KERNELS, .more_share = 0.199},
                "all kernels, which take its GPU 20 % longer (a slower clock?)",
                "compare the GPU of rank 1 with the others': clocks and throttling (nvidia-smi -q -d CLOCK,PERFORMANCE), who "
                "else uses it, and whether its input is larger"},
        {{.kind = STALL_DEED_MESSAGES}, "its messages come late, by the network or its connection",
                "look at the link of rank 1 and at who else uses it: outside of collectives it does no more than the other ranks"},
        {{.kind = STALL_DEED_SENDS, .peer_rank = 0, .bits_per_s = 12.34e6, .retransmits = 120},
                "its messages to rank 0 come late, by the network or its connection",
                "look at the link of rank 1 and at who else uses it: while messages from rank 1 to rank 0 were under way they "
                "came at 12.3 Mbit/s; 120 segments were sent again"},
        {{.kind = STALL_DEED_RECEIVES, .peer_rank = -1, .peer_pid = 4121, .bits_per_s = 2e6},
                "messages from process 4121 to it come late, by the network or its connection",
                "look at the link of rank 1 and at who else uses it: while messages from process 4121 to rank 1 were under way "
                "they came at 2.0 Mbit/s"},
};

TEST(what_a_late_rank_did_and_what_to_do)
{
    for (size_t i = 0; i < sizeof late_cases / sizeof *late_cases; i++) {
        const struct late_case *one = &late_cases[i];
        char *what = cause_text_deed(&one->deed);
        if (one->what)
            CHECK_STR(what, one->what);
        else
            CHECK(!what);
        free(what);
        struct stall stall = {
                .cause = "straggler", .is_straggler = true, .rank = 1, .deed = one->deed};
        check_text(stalls_text_advice(&stall), one->advice);
        check_text(stalls_text_advice_full(&stall), one->advice);
    }
}

TEST(every_cause_has_something_to_do)
{
    size_t count = 0;
    const struct stall_cause *causes = stall_causes(&count);
    CHECK_INT(count, CAUSE_COUNT);
    for (size_t i = 0; i < count; i++) {
        char *advice = cause_text_advice(causes[i].id, "WHO");
        CHECK(advice && *advice && !strchr(advice, '%')); // one culprit, nothing else to put in
        const char *who = strstr(advice, "WHO");
        CHECK(!who || !strstr(who + 1, "WHO"));
        free(advice);
    }
    CHECK(!cause_text_advice("no such cause", "WHO"));
    check_text(cause_text_advice("memory_high", "WHO"),
            "raise memory.high of the cgroup, or use less memory");
    check_text(cause_text_advice("straggler", "WHO"),
            "look at what WHO does more than the other ranks, and take it out of the step or spread it over all");
}

TEST(a_late_rank_without_a_number_and_an_agent)
{
    struct stall stall = {.cause = "straggler",
            .is_straggler = true,
            .rank = -1,
            .culprit = {.known = true, .pid = 4122},
            .deed = {.kind = STALL_DEED_CAUSE, .cause = "ptrace"},
            .late_by = {.known = true, .pid = 4200, .cmdline = "py-spy record --pid 4122"}};
    check_text(stalls_text_advice(&stall),
            "on process 4122: end `py-spy record --pid 4122` (pid 4200), or let it not stop the target (py-spy --nonblocking, "
            "a lower rate)");
    stall.deed = (struct stall_deed){.kind = STALL_DEED_COMPUTES, .function = "attend (pipe.py)"};
    stall.stages = true;
    check_text(stalls_text_advice(&stall),
            "look at attend (pipe.py), which takes process 4122 longer than the other ranks: divide stages and input evenly, "
            "or take it out of the step");
}
