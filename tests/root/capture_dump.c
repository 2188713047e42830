// SPDX-License-Identifier: Apache-2.0
// Prints what the capture delivers, one JSON object a line, for the tests of this folder:
//   capture_dump [-t threshold_ns] [-z hz] [-r ring_bytes] [-d ms] [-n] [-c cgroup] [-l] [-L] [-S]
//       [-u N] [-o] [-p] PID...
// -n: no children; -l: look at the begin; -L: look every 20 ms; -p: do not poll before the end;
// -o: as on a kernel without bpf_loop; -u N: of N switches to a target one is not seen; -S: the
// table of sources. "ready" is printed when attached. It ends after -d ms or when its stdin closes.
// Kernel functions are named from /proc/kallsyms.
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bpf/capture.h"
#include "common/clock.h"
#include "common/strings.h"

struct symbol {
    unsigned long long address;
    char *name;
};
static struct symbol *symbols;
static size_t symbol_count;

static int by_address(const void *a, const void *b)
{
    const struct symbol *left = a, *right = b;

    return (left->address > right->address) - (left->address < right->address);
}

static void read_symbols(void)
{
    FILE *file = fopen("/proc/kallsyms", "re");
    char line[512], name[256];
    unsigned long long address;
    size_t capacity = 0;

    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "%llx %*c %255s", &address, name) != 2)
            continue;
        if (symbol_count == capacity) {
            capacity = capacity ? 2 * capacity : 65536;
            symbols = xrealloc(symbols, capacity * sizeof(*symbols));
        }
        symbols[symbol_count].address = address;
        symbols[symbol_count++].name = xstrdup(name);
    }
    if (file)
        fclose(file);
    qsort(symbols, symbol_count, sizeof(*symbols), by_address);
}

static const char *symbol_of(uint64_t address)
{
    size_t low = 0, high = symbol_count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (symbols[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? symbols[low - 1].name : "?";
}

static const uint64_t *print_stack(
        const char *name, const uint64_t *frames, unsigned count, bool kernel)
{
    printf(",\"%s\":[", name);
    for (unsigned i = 0; i < count; i++) {
        if (kernel)
            printf("%s\"%s\"", i ? "," : "", symbol_of(frames[i]));
        else
            printf("%s\"0x%llx\"", i ? "," : "", (unsigned long long)frames[i]);
    }
    printf("]");
    return frames + count;
}

static void print_task(const char *name, const struct ug_task *task)
{
    printf(",\"%s\":{\"tid\":%u,\"tgid\":%u,\"comm\":\"%.16s\"}", name, task->tid, task->tgid,
            task->comm);
}

#define U(record, field) printf(",\"" #field "\":%llu", (unsigned long long)(record)->field)

static void print_gap(const struct ug_gap *gap)
{
    const uint64_t *frames = (const void *)(gap + 1);

    printf("{\"kind\":\"gap\"");
    U(gap, out_ns);
    U(gap, waking_ns);
    U(gap, in_ns);
    print_task("task", &gap->task);
    print_task("waker", &gap->waker);
    print_task("next", &gap->next);
    print_task("before", &gap->before);
    print_task("owner", &gap->owner);
    U(gap, lock);
    printf(",\"syscall_nr\":%lld", (long long)gap->syscall_nr);
    U(gap, futex_value);
    U(gap, prev_state);
    U(gap, flags);
    U(gap, lock_kind);
    U(gap, ppid_of_waker);
    U(gap, cpu_out);
    U(gap, next_prio);
    U(gap, before_prio);
    frames = print_stack("kernel", frames, gap->kernel_count, true);
    frames = print_stack("user", frames, gap->user_count, false);
    print_stack("wakers", frames, gap->waker_count, true);
    printf("}\n");
}

static void print_sample(const struct ug_sample *sample)
{
    const uint64_t *frames = (const void *)(sample + 1);

    printf("{\"kind\":\"sample\"");
    U(sample, at_ns);
    print_task("task", &sample->task);
    U(sample, cpu);
    U(sample, why);
    U(sample, prio);
    frames = print_stack("kernel", frames, sample->kernel_count, true);
    print_stack("user", frames, sample->user_count, false);
    printf("}\n");
}

static void print_fault(const struct ug_fault *fault)
{
    const uint64_t *frames = (const void *)(fault + 1);

    printf("{\"kind\":\"page_fault\"");
    U(fault, at_ns);
    print_task("task", &fault->task);
    U(fault, address);
    U(fault, level);
    print_stack("user", frames, fault->user_count, false);
    printf("}\n");
}

static void print_lock(const struct ug_lock *lock)
{
    const uint64_t *frames = (const void *)(lock + 1);

    printf("{\"kind\":\"lock\"");
    U(lock, begin_ns);
    U(lock, end_ns);
    U(lock, lock);
    print_task("task", &lock->task);
    print_task("owner", &lock->owner);
    U(lock, lock_flags);
    U(lock, lock_kind);
    U(lock, owner_flags);
    frames = print_stack("kernel", frames, lock->kernel_count, true);
    print_stack("owners", frames, lock->owner_count, true);
    printf("}\n");
}

static void print_task_event(const struct ug_task_event *event)
{
    printf("{\"kind\":\"task\"");
    U(event, at_ns);
    U(event, start_ns);
    print_task("task", &event->task);
    U(event, what);
    U(event, ppid);
    U(event, target);
    printf(",\"exit_code\":%d,\"old_tid\":%u}\n",
            event->what == UG_TASK_EXIT ? event->exit_code : 0,
            event->what == UG_TASK_EXEC ? event->old_tid : 0);
}

static void print_fact(const struct ug_fact *fact)
{
    printf("{\"kind\":\"fact\"");
    U(fact, begin_ns);
    U(fact, end_ns);
    print_task("task", &fact->task);
    print_task("actor", &fact->actor);
    printf(",\"value\":[%llu,%llu,%llu,%llu]", (unsigned long long)fact->value[0],
            (unsigned long long)fact->value[1], (unsigned long long)fact->value[2],
            (unsigned long long)fact->value[3]);
    U(fact, what);
    U(fact, flags);
    print_stack("kernel", (const void *)(fact + 1), fact->kernel_count, true);
    printf("}\n");
}

static void print_state(const struct ug_state *state)
{
    printf("{\"kind\":\"state\"");
    U(state, at_ns);
    print_task("task", &state->task);
    print_task("owner", &state->owner);
    U(state, blocker);
    U(state, last_switch_ns);
    U(state, switch_count);
    printf(",\"syscall_nr\":%lld", (long long)state->syscall_nr);
    U(state, state);
    U(state, flags);
    U(state, lock_kind);
    U(state, on_cpu);
    print_stack("kernel", (const void *)(state + 1), state->kernel_count, true);
    printf("}\n");
}

static bool at_end; // totals are of those that live

static void print_total(const struct ug_total *total)
{
    printf("{\"kind\":\"%s\"", at_end ? "total" : "last_total");
    U(total, tid);
    U(total, tgid);
    U(total, switches);
    U(total, short_gaps);
    U(total, short_gap_ns);
    U(total, run_ns);
    printf("}\n");
}

static void on_event(void *context, const struct ug_head *event)
{
    const void *record = event;

    (void)context;
    switch (event->kind) {
    case UG_EVENT_GAP:
        print_gap(record);
        break;
    case UG_EVENT_SAMPLE:
        print_sample(record);
        break;
    case UG_EVENT_FAULT:
        print_fault(record);
        break;
    case UG_EVENT_LOCK:
        print_lock(record);
        break;
    case UG_EVENT_TASK:
        print_task_event(record);
        break;
    case UG_EVENT_FACT:
        print_fact(record);
        break;
    case UG_EVENT_STATE:
        print_state(record);
        break;
    case UG_EVENT_TOTAL:
        print_total(record);
        break;
    default:
        printf("{\"kind\":\"unknown\"}\n");
        break;
    }
}

static void print_end(struct capture *capture)
{
    static const char *const names[UG_COUNTER_COUNT] = {
            "gap", "sample", "lock", "task", "fact", "state", "page_fault"};
    struct ug_counts counts[UG_COUNTER_COUNT];
    const char *const *missing;
    size_t count;

    capture_counts(capture, counts);
    for (int i = 0; i < UG_COUNTER_COUNT; i++)
        printf("{\"kind\":\"count\",\"of\":\"%s\",\"seen\":%llu,\"kept\":%llu,\"dropped\":%llu,"
               "\"truncated\":%llu}\n",
                names[i], (unsigned long long)counts[i].seen, (unsigned long long)counts[i].kept,
                (unsigned long long)counts[i].dropped, (unsigned long long)counts[i].truncated);
    missing = capture_missing(capture, &count);
    for (size_t i = 0; i < count; i++)
        printf("{\"kind\":\"missing\",\"text\":\"%s\"}\n", missing[i]);
}

static int print_sources(void)
{
    struct capture_source list[32];
    size_t count = capture_sources(list, 32);

    for (size_t i = 0; i < count; i++)
        printf("{\"kind\":\"source\",\"name\":\"%s\",\"works\":%s,\"why\":\"%s\"}\n", list[i].name,
                list[i].works ? "true" : "false", list[i].why);
    return 0;
}

static bool stdin_closed(void)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    char byte;

    return poll(&input, 1, 0) > 0 && read(0, &byte, 1) <= 0;
}

int main(int argc, char **argv)
{
    struct capture_opts opts = {.threshold_ns = 1000000};
    bool look_once = false, look_often = false, no_poll = false;
    struct capture *capture = NULL;
    struct error err = {0};
    int64_t duration_ns = 1000000000, begin, looked = 0;
    pid_t pids[UG_TARGETS_MAX];
    int letter, status;

    while ((letter = getopt(argc, argv, "t:z:r:d:c:u:fnolLpS")) != -1) {
        switch (letter) {
        case 't':
            opts.threshold_ns = atoll(optarg);
            break;
        case 'z':
            opts.sample_hz = (uint32_t)atoi(optarg);
            break;
        case 'r':
            opts.ring_bytes = (size_t)atoll(optarg);
            break;
        case 'd':
            duration_ns = atoll(optarg) * 1000000;
            break;
        case 'c':
            opts.cgroup = optarg;
            break;
        case 'u':
            opts.miss_switch_in = (uint32_t)atoi(optarg);
            break;
        case 'f':
            opts.faults = true;
            break;
        case 'n':
            opts.no_children = true;
            break;
        case 'o':
            opts.no_loop = true;
            break;
        case 'l':
            look_once = true;
            break;
        case 'L':
            look_often = true;
            break;
        case 'p':
            no_poll = true;
            break;
        case 'S':
            return print_sources();
        default:
            return 2;
        }
    }
    for (; optind < argc && opts.pid_count < UG_TARGETS_MAX; optind++)
        pids[opts.pid_count++] = atoi(argv[optind]);
    opts.pids = pids;
    read_symbols();
    status = capture_open(&opts, on_event, NULL, &capture, &err);
    if (status) {
        printf("{\"kind\":\"error\",\"code\":%d,\"text\":\"%s\"}\n", status, err.text);
        return 1;
    }
    printf("{\"kind\":\"ready\"}\n");
    fflush(stdout);
    begin = clock_monotonic_ns();
    if (look_once)
        capture_look(capture);
    while (clock_monotonic_ns() - begin < duration_ns && !stdin_closed()) {
        if (no_poll)
            usleep(20000);
        else if (capture_poll(capture, look_often ? 10 : 50) < 0)
            break;
        if (look_often && clock_monotonic_ns() - looked > 20000000) {
            looked = clock_monotonic_ns();
            capture_look(capture);
        }
        fflush(stdout);
    }
    at_end = true;
    capture_totals(capture);
    at_end = false;
    if (capture_detach(capture))
        fprintf(stderr, "the waits that go on could not be read\n");
    capture_poll(capture, 0);
    print_end(capture);
    capture_close(capture);
    return 0;
}
