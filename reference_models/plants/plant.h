// SPDX-License-Identifier: Apache-2.0
// What every plant is made of. A plant is a stall with a known cause: a director process
// (plant_main.c) starts a victim, mostly a culprit, and innocent busy neighbours, each a process of
// its own with a speaking name; all of them share a few counters. What a plant makes outside its
// processes (cgroups, files, mounts, settings) is written beside those first, and a janitor process
// undoes it when the director ends, however it ends. Families (memory.c, pages.c, scheduler.c,
// groups.c, storage.c, waits.c, python.c) hold the plants; a plant is a function that starts its
// processes.
#ifndef UPGATE_PLANTS_PLANT_H
#define UPGATE_PLANTS_PLANT_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"

#define PLANT_MS INT64_C(1000000)
// What a healthy step of the victim is late on a quiet machine stays far below it.
#define PLANT_STALL_NS (5 * PLANT_MS)
#define PLANT_DUE_NS (400 * PLANT_MS)
#define PLANT_CLEAN_MAX 64
#define PLANT_CHILDREN_MAX 64

enum plant_clean_kind {
    PLANT_CLEAN_RMDIR,
    PLANT_CLEAN_UNLINK,
    PLANT_CLEAN_UMOUNT,
    PLANT_CLEAN_WRITE
};

struct plant_clean {
    enum plant_clean_kind kind;
    char path[224];
    char text[24]; // what to write, for PLANT_CLEAN_WRITE
};

// Shared by all processes of a plant, mapped by the Python ones too: python/stage.py knows the
// offsets of the members with numbers.
struct plant_share {
    _Atomic uint32_t stop;        // 0: the plant is over, everybody leaves
    _Atomic uint32_t ready;       // 4: the victim takes its steps
    _Atomic uint64_t steps;       // 8: that the victim has taken
    _Atomic uint64_t stalls;      // 16: steps that were late by PLANT_STALL_NS or more
    _Atomic uint64_t total_ns;    // 24: by which those were late together
    _Atomic uint64_t max_ns;      // 32
    _Atomic uint64_t acts;        // 40: what the culprit did
    _Atomic uint32_t culprit_pid; // 48: told by the victim when it is its child or thread
    _Atomic uint32_t unused;
    _Atomic uint64_t queued_ns; // 56: that the victim was ready and did not run
    _Atomic uint32_t clean_count;
    struct plant_clean clean[PLANT_CLEAN_MAX];
    pthread_mutex_t mutex; // for the plants about locks; process-shared
    sem_t asked, answered;
};

struct plant {
    struct plant_share *share;
    int share_fd;   // a memfd, inherited
    int janitor_fd; // open in the director alone: its closing starts the janitor
    bool innocent;
    size_t size_bytes; // of the victim's memory, where that matters
    const char *dir;   // for files
    const char *python;
    int cpu_victim, cpu_other;
    bool cpu_counts; // waiting for the CPU is what the plant is about, not other load
    pid_t director, victim_pid;
    pid_t children[PLANT_CHILDREN_MAX];
    int child_count;
    pid_t culprits[PLANT_CHILDREN_MAX];
    int culprit_count;
    char culprit_comm[16];
    char temp_dir[160];
};

typedef void (*plant_fn)(struct plant *plant, void *arg);

struct plant_kind {
    const char *name;
    // Starts the processes. -ENOTSUP: this machine cannot; the sentence says why.
    int (*start)(struct plant *plant, struct error *err);
};
// One array a family, ended by a NULL name.
extern const struct plant_kind plants_memory[], plants_pages[], plants_scheduler[], plants_groups[],
        plants_storage[], plants_waits[], plants_python[];

// plant_process.c: processes, threads and time.
// The victim; returns when it is ready (plant_steps, or ready set by Python). To be started first.
int plant_victim(struct plant *plant, const char *comm, plant_fn fn, void *arg, struct error *err);
// A process that causes the stall; its pid and comm are told. Nothing in an innocent run.
int plant_culprit(struct plant *plant, const char *comm, plant_fn fn, void *arg, struct error *err);
// A process that is neither. ret_pid may be NULL.
int plant_helper(struct plant *plant, const char *comm, plant_fn fn, void *arg, pid_t *ret_pid,
        struct error *err);
int plant_neighbours(struct plant *plant, struct error *err);
// A victim whose own thread is the culprit: none of it in an innocent run.
struct plant_sibling {
    const char *comm;
    int64_t period_ns;
    plant_fn act;       // every period_ns, on the other CPU, once the victim takes its steps
    plant_fn operation; // of the victim's step
    bool memory;        // the victim has plant->size_bytes
};
int plant_victim_sibling(
        struct plant *plant, const struct plant_sibling *sibling, struct error *err);
// The victim stalls itself: operation in every step, act every 400 ms, but not in an innocent run.
struct plant_self {
    plant_fn operation;
    plant_fn act;
    bool memory;
};
int plant_victim_self(struct plant *plant, const struct plant_self *self, struct error *err);
void plant_self_steps(struct plant *plant, const struct plant_self *self); // in a victim of its own
// A detached thread of the calling process with that name, on that CPU (-1: any). Dies with it.
void plant_thread(struct plant *plant, const char *comm, int cpu, plant_fn fn, void *arg);
// The calling process or one of its threads is the culprit: told before plant_steps begins, and
// only in a run with a culprit.
void plant_blame_self(struct plant *plant);
int64_t plant_now_ns(void);
void plant_sleep_ns(int64_t ns);
void plant_burn_ns(int64_t ns); // CPU time of the caller, not wall time
void plant_pin(int cpu);
bool plant_stopped(const struct plant *plant);
// True once in PLANT_DUE_NS: how often who is asked in every step answers late. Begins in false.
// One thread of a process may ask.
bool plant_due(void);
// Calls fn every period_ns by an absolute clock until the plant stops, and counts the
// calls as acts of the culprit.
void plant_every(struct plant *plant, int64_t period_ns, plant_fn fn, void *arg);

// plant_victim.c: the step of a victim: 6 ms of work, the operation, 1 ms of sleep; how late each
// step was is added to the share. Returns when the plant stops. operation may be NULL.
void plant_steps(struct plant *plant, plant_fn operation, void *arg);
// Adds a step that was late by so much.
void plant_count(struct plant *plant, int64_t late_ns);
// 64 KiB mapped, touched and unmapped: the operation of a victim that shall meet its mmap_lock.
void plant_step_map(struct plant *plant, void *arg);
// Memory in 4 KiB pages, untouched; NULL when there is none.
char *plant_map(size_t bytes);
// Memory in 4 KiB pages, all of them touched; dies in words when there is none.
char *plant_memory(size_t bytes);
void plant_touch(char *memory, size_t bytes);

// plant_system.c: what is made outside the processes, and undone by the janitor.
int plant_clean_up(struct plant *plant, enum plant_clean_kind kind, const char *path,
        const char *text, struct error *err);
void plant_clean_all(struct plant_share *share);
int plant_temp(struct plant *plant, struct error *err); // plant->temp_dir, made once
// An empty file in it; path must hold 224 bytes.
int plant_file(struct plant *plant, const char *name, char *path, struct error *err);
int plant_write(const char *path, const char *text); // 0 or -errno
// Writes a setting of the system and puts the old value back at the end.
int plant_setting(struct plant *plant, const char *path, const char *text, struct error *err);
// A cgroup for the plant where `controller` is ("" : a v2 group for its own files, as
// cgroup.freeze). path must hold 224 bytes; *ret_v2 says which files it has.
int plant_cgroup(
        struct plant *plant, const char *controller, char *path, bool *ret_v2, struct error *err);
int plant_cgroup_write(const char *group, const char *file, const char *text, struct error *err);
int plant_cgroup_enter(const char *group, pid_t pid, struct error *err);
int plant_need_cpus(struct error *err);

// python.c: replaces the calling process by `python3 script args…` of the directory beside the
// program.
void plant_python(struct plant *plant, const char *script, const char *arg);
// Can that interpreter run this statement? -ENOTSUP with what it said otherwise.
int plant_python_can(struct plant *plant, const char *statement, struct error *err);

#endif
