// SPDX-License-Identifier: Apache-2.0
// The capture as its users see it: open, poll, look, totals, counters, detach. The rings and the
// iterator's file hand their records to one callback. Loading is in capture_load.c, who is a target
// in capture_target.c.
#include "bpf/capture.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bpf/capture_inside.h"
#include "common/clock.h"
#include "common/strings.h"

enum {
    RING_BYTES = 4 << 20, // 0.1 s of 40,000 gaps/s with stacks, 1 KB each
    RING_BYTES_MIN = 4096,
    ITERATOR_BYTES = 64 << 10, // twice what the kernel hands out in one read
    CPUS_PERIOD_MS = 1000,
    CGROUP_PERIOD_MS = 1000,
    CGROUP_SHARE_DIVISOR = 100, // of a CPU: of very many threads not every second
    CGROUP_BURST_NS = 5000000,
    POLL_MS = 200,     // longest stay in one poll beyond what it waits
    POLL_STRIDE = 256, // records between two looks at the clock
};

// When the stack of a user was taken that this record has; 0: it has none.
static uint64_t user_stack_ns(const struct ug_head *head)
{
    if (head->kind == UG_EVENT_SAMPLE)
        return ((const struct ug_sample *)head)->at_ns;
    if (head->kind == UG_EVENT_FAULT)
        return ((const struct ug_fault *)head)->at_ns;
    return head->kind == UG_EVENT_GAP ? ((const struct ug_gap *)head)->out_ns : 0;
}

static int on_record(void *context, void *data, size_t size)
{
    struct capture *capture = context;
    const struct ug_head *head = data;

    if (size >= sizeof(*head) && head->size <= size) {
        capture_mappings_read(capture, user_stack_ns(head));
        capture->callback(capture->context, capture_strip(capture, head));
    }
    if (++capture->poll_count % POLL_STRIDE == 0 && !capture->detached &&
            clock_monotonic_ns() > capture->poll_end_ns)
        return -ETIME; // the record is taken; libbpf comes back with this
    return 0;
}

static int open_rings(struct capture *capture, struct error *err)
{
    // The rare ones first: they have their turn also when the flood does not end.
    capture->rings = ring_buffer__new(capture_map(capture, "ring_rare"), on_record, capture, NULL);
    if (!capture->rings ||
            ring_buffer__add(
                    capture->rings, capture_map(capture, "ring_flood"), on_record, capture))
        return error_set(err, -errno, "failed to map the ring buffers: %s", strerror(errno));
    return 0;
}

static int want_targets(struct capture *capture, const struct capture_opts *opts, struct error *err)
{
    int status = 0;

    for (size_t i = 0; i < opts->pid_count && !status; i++)
        status = capture_want(capture, opts->pids[i], !opts->no_children, err);
    if (!status && capture->cgroup) {
        capture->cgroup_read_ns = clock_monotonic_ns();
        status = capture_want_cgroup(capture, err);
    }
    if (status || (!opts->pid_count && !capture->cgroup))
        return status;
    status = capture_mark(capture);
    return status >= 0 ? 0
                       : error_set(err, status, "failed to list the threads of the target: %s",
                                 strerror(-status));
}

int capture_open(const struct capture_opts *opts, capture_callback callback, void *context,
        struct capture **ret_capture, struct error *err)
{
    size_t ring_bytes = opts->ring_bytes ? opts->ring_bytes : RING_BYTES;
    struct capture *capture;
    int status;

    if (ring_bytes < RING_BYTES_MIN || ring_bytes & (ring_bytes - 1) || ring_bytes > 1 << 30)
        return error_set(err, -EINVAL, "ring of %zu bytes: not a power of two from 4096 to 1 GiB",
                ring_bytes);
    status = capture_permitted(err);
    if (status)
        return status;
    capture = xcalloc(1, sizeof(*capture));
    capture->callback = callback;
    capture->context = context;
    capture->on_mapping = opts->on_mapping;
    capture->threshold_ns = opts->threshold_ns;
    capture->sample_hz = opts->sample_hz;
    capture->faults = opts->faults;
    capture->ring_bytes = ring_bytes;
    capture->no_children = opts->no_children;
    capture->processes_max = opts->processes_max ? opts->processes_max : CAPTURE_PROCESSES;
    capture->miss_switch_in = opts->miss_switch_in;
    capture->no_loop = opts->no_loop;
    capture->prompt = opts->prompt;
    capture->cgroup = opts->cgroup ? xstrdup(opts->cgroup) : NULL;
    capture->watcher = opts->watcher;
    capture->cgroup_budget =
            (struct budget){.divisor = CGROUP_SHARE_DIVISOR, .burst_ns = CGROUP_BURST_NS};
    status = capture_load(capture, err);
    if (!status)
        status = open_rings(capture, err);
    if (!status)
        status = capture_attach(capture, err);
    if (!status)
        status = want_targets(capture, opts, err);
    if (status) {
        capture_close(capture);
        return status;
    }
    *ret_capture = capture;
    return 0;
}

int capture_poll(struct capture *capture, int wait_ms)
{
    int64_t now = clock_monotonic_ns();
    int status;

    if (capture->cgroup && !capture->detached &&
            now - capture->cgroup_read_ns > CGROUP_PERIOD_MS * INT64_C(1000000) &&
            budget_affords(&capture->cgroup_budget)) {
        capture->cgroup_read_ns = now;
        budget_begin(&capture->cgroup_budget);
        // A part of it may be gone or unreadable: the rest counts, and no id stays wanted, for it
        // may come again for another process.
        capture_want_cgroup(capture, NULL);
        capture_mark(capture);
        budget_end(&capture->cgroup_budget);
    }
    if (!capture->detached && now - capture->cpus_read_ns > CPUS_PERIOD_MS * INT64_C(1000000)) {
        capture->cpus_read_ns = now;
        capture_watch_cpus(capture, CAPTURE_CPUS);
    }
    capture->poll_count = 0;
    capture->poll_end_ns = now + (wait_ms + POLL_MS) * INT64_C(1000000);
    capture_mappings_read(capture, UINT64_MAX);
    status = ring_buffer__poll(capture->rings, wait_ms);
    if (status >= 0) // records come without a wake-up: those that the wait did not tell of
        status = ring_buffer__consume(capture->rings);
    if (status < 0 && status != -EINTR && status != -ETIME)
        return status;
    return capture->poll_count;
}

int capture_add_target(struct capture *capture, pid_t tgid, struct error *err)
{
    int status = capture_want(capture, tgid, !capture->no_children, err);

    if (status) { // some may be wanted by now, and would become targets with the next process that
                  // does
        capture_unwant(capture);
        return status;
    }
    status = capture_mark(capture);
    return status >= 0 ? 0
                       : error_set(err, status, "failed to list the threads of %d: %s", tgid,
                                 strerror(-status));
}

int capture_iterate(struct capture *capture, uint32_t mode,
        void (*each)(void *context, const void *record), void *context)
{
    char *buffer;
    size_t used = 0;
    int count = 0, fd;
    ssize_t got;

    capture_set_mode(capture, mode);
    fd = bpf_iter_create(bpf_link__fd(capture->iterator));
    if (fd < 0)
        return -errno;
    buffer = xcalloc(1, ITERATOR_BYTES);
    for (;;) {
        size_t at = 0;

        got = read(fd, buffer + used, ITERATOR_BYTES - used);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
        while (used - at >= sizeof(struct ug_head)) {
            size_t size = ((const struct ug_head *)(buffer + at))->size;

            if (used - at < size)
                break;
            each(context, buffer + at);
            at += size;
            count++;
        }
        memmove(buffer, buffer + at, used - at);
        used -= at;
    }
    got = got < 0 ? -errno : 0;
    close(fd);
    free(buffer);
    return got ? (int)got : count;
}

static void deliver(void *context, const void *record)
{
    struct capture *capture = context;

    capture->callback(capture->context, capture_strip(capture, record));
}

int capture_look(struct capture *capture)
{
    return capture_iterate(capture, ITERATE_LOOK, deliver, capture);
}

int capture_waiting(struct capture *capture)
{
    return capture_iterate(capture, ITERATE_WAITING, deliver, capture);
}

int capture_totals(struct capture *capture)
{
    return capture_iterate(capture, ITERATE_TOTALS, deliver, capture);
}

bool capture_samples_faults(const struct capture *capture)
{
    return capture->samples_faults;
}

void capture_counts(struct capture *capture, struct ug_counts ret_counts[UG_COUNTER_COUNT])
{
    int cpus = libbpf_num_possible_cpus(), map = capture_map(capture, "counters");
    struct ug_counts *each = xcalloc((size_t)cpus, sizeof(*each));

    memset(ret_counts, 0, UG_COUNTER_COUNT * sizeof(*ret_counts));
    for (uint32_t counter = 0; counter < UG_COUNTER_COUNT; counter++) {
        if (bpf_map_lookup_elem(map, &counter, each))
            continue;
        for (int cpu = 0; cpu < cpus; cpu++) {
            ret_counts[counter].seen += each[cpu].seen;
            ret_counts[counter].kept += each[cpu].kept;
            ret_counts[counter].dropped += each[cpu].dropped;
            ret_counts[counter].truncated += each[cpu].truncated;
        }
    }
    free(each);
}

const char *const *capture_missing(const struct capture *capture, size_t *ret_count)
{
    *ret_count = capture->missing_count;
    return (const char *const *)capture->missing;
}

int capture_detach(struct capture *capture)
{
    int status;

    if (capture->detached)
        return 0;
    capture->detached = true;
    capture_watch_cpus(capture, CAPTURE_CPUS);
    capture_mappings_read(capture, UINT64_MAX);
    status = capture_iterate(capture, ITERATE_UNFINISHED, deliver, capture);
    capture_drop_links(capture);
    return status < 0 ? status : 0;
}

void capture_close(struct capture *capture)
{
    if (!capture)
        return;
    capture_unload(capture);
    capture_mappings_close(capture);
    ring_buffer__free(capture->rings);
    capture_forget_missing(capture);
    free(capture->cgroup);
    free(capture->cpus);
    free(capture->tracing);
    free(capture);
}
