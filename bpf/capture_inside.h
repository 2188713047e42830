// SPDX-License-Identifier: Apache-2.0
// What the files of this room share and nobody else sees. One thread.
#ifndef UPGATE_BPF_CAPTURE_INSIDE_H
#define UPGATE_BPF_CAPTURE_INSIDE_H

#include "bpf/capture.h"
#include "common/budget.h"

struct bpf_link;
struct descendant;
struct btf;
struct capture_bpf;
struct mapping_rings;
struct ring_buffer;

enum {
    CAPTURE_MISSING_MAX = 64,
    CAPTURE_PROGRAMS_MAX = 64,
    CAPTURE_PROCESSES = 256,
    CAPTURE_KEPT_MAX = 8192, // threads of the target on PREEMPT_RT: 27 MB
};

// The order of the table in capture_sources.c.
enum source_id {
    SOURCE_SCHED,
    SOURCE_TASKS,
    SOURCE_LOOK,
    SOURCE_LOCKS,
    SOURCE_OWNERS,
    SOURCE_SAMPLES,
    SOURCE_FAULTS,
    SOURCE_STACKS,
    SOURCE_CONTEXT,
    SOURCE_MAPPINGS,
    SOURCE_FACTS, // the first of facts
    SOURCE_SIGNALS = SOURCE_FACTS,
    SOURCE_RECLAIM,
    SOURCE_COMPACTION,
    SOURCE_MIGRATION,
    SOURCE_WRITEBACK,
    SOURCE_INTERRUPTS,
    SOURCE_OOM,
    SOURCE_NUMA,
    SOURCE_FREEZER,
    SOURCE_NETWORK,
    SOURCE_RSTAT,
    SOURCE_JOURNAL,
    SOURCE_COUNT
};

struct source {
    const char *name;
    const char *gives;
    const char *lost;        // what the user does without: the end of the sentence
    const char *programs[8]; // by name
};
extern const struct source sources[SOURCE_COUNT];

// The source that a program belongs to; SOURCE_COUNT: none.
enum source_id source_of_program(const char *program);

struct code_range {
    uint64_t begin, end;
};

struct capture {
    struct capture_bpf *skeleton;
    capture_callback callback;
    capture_mapping_callback on_mapping;
    void *context;
    struct ring_buffer *rings;
    int64_t poll_end_ns; // a writer that is faster than the callback must not keep capture_poll for
                         // ever
    int poll_count;
    struct bpf_link *links[CAPTURE_PROGRAMS_MAX]; // tracepoints
    size_t link_count;
    struct bpf_link **ticks; // one a CPU and event
    size_t tick_count;
    char *cpus; // that are online, as the kernel lists them
    int64_t cpus_read_ns;
    bool cpus_changed; // that it is in the list
    struct bpf_link *iterator;
    struct mapping_rings *mappings; // NULL: not wanted, or not to be had
    int64_t threshold_ns;
    uint32_t sample_hz;
    size_t ring_bytes;
    uint32_t processes_max;
    uint32_t miss_switch_in;
    bool faults, no_children, no_loop, prompt, detached;
    bool births_missed; // that it is in the list
    bool samples_faults;
    char *cgroup;
    pid_t watcher;
    int64_t cgroup_read_ns;      // when its processes were read last
    struct budget cgroup_budget; // each time the threads of all the machine are gone through twice
    struct code_range *tracing;  // functions of tracepoints, in order
    size_t tracing_count;
    _Alignas(8) char copy[4096]; // a record without them; the largest has 1,416 bytes
    bool lost[SOURCE_COUNT];
    char *missing[CAPTURE_MISSING_MAX];
    size_t missing_count;
};

// Source `id` or a part of it is off: "NAME: WHY; LOST" into the list.
#define CAPTURE_NO_OWNERS "this kernel does not let tracing programs ask for a task by its id"
void capture_lack(struct capture *capture, enum source_id id, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
// A whole sentence into the list, of something for which no source is off.
void capture_say(struct capture *capture, const char *sentence);
void capture_forget_missing(struct capture *capture);

// capture_load.c
int capture_permitted(struct error *err);
// of the machine, with their parents; the caller frees
size_t capture_read_processes(struct descendant **ret_processes);

// what libbpf warns of in this thread is kept from here on, and not printed
void capture_listen(void);
const char *capture_last_words(void); // the last line of it, for an error

int capture_load(struct capture *capture, struct error *err);
int capture_attach(struct capture *capture, struct error *err);
// Says once that CPUs came or went since the first call: who comes later has no ticks and tells of
// no mappings.
#define CAPTURE_CPUS "/sys/devices/system/cpu/online"
void capture_watch_cpus(struct capture *capture, const char *path);
void capture_unload(struct capture *capture);
void capture_drop_links(struct capture *capture);
int capture_map(struct capture *capture, const char *name); // its descriptor
void capture_set_mode(struct capture *capture, uint32_t mode);

// capture_kernel.c
// -ENOTSUP: it lacks what the programs need, or running them could hang it; the sentence says what.
int capture_fits(const struct btf *btf, struct error *err);
bool capture_is_realtime(const struct btf *btf);

// capture_frames.c
void capture_add_tracing(struct capture *capture, uint64_t begin, uint64_t end);
void capture_sort_tracing(struct capture *capture);
// The record without the frames of the tracepoint; it may be the capture's copy.
const struct ug_head *capture_strip(struct capture *capture, const struct ug_head *head);

// capture_mappings.c
void capture_mappings_open(struct capture *capture);
// hand out all that happened before
void capture_mappings_read(struct capture *capture, uint64_t before_ns);
void capture_mappings_close(struct capture *capture);

// capture_settings.c
void capture_set_settings(struct capture *capture, const struct btf *btf);

// capture_target.c: the process, and with `children` those that descend from it, become wanted.
int capture_want(struct capture *capture, pid_t pid, bool children, struct error *err);
// The processes in the cgroup and below it. New ones come to the target.
int capture_want_cgroup(struct capture *capture, struct error *err);
// Run the iterator so that the wanted become targets, and are wanted no more. -errno: none of them
// has.
int capture_mark(struct capture *capture);
void capture_unwant(struct capture *capture); // all that are wanted: they become no targets

enum {
    ITERATE_MARK,
    ITERATE_MARK_AGAIN, // who has no storage now is lost
    ITERATE_LOOK,
    ITERATE_WAITING,
    ITERATE_UNFINISHED,
    ITERATE_TOTALS
}; // enum iterator_mode of common.bpf.h
// Each record of the iterator's file to `each`. Count or -errno.
int capture_iterate(struct capture *capture, uint32_t mode,
        void (*each)(void *context, const void *record), void *context);

#endif
