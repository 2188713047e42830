// SPDX-License-Identifier: Apache-2.0
// The checks of the doctor, and how they report. Internal to this room: others see doctor.h. Every
// check adds at least one finding; what is not ok says what is lost by it and what to do.
#ifndef UPGATE_DOCTOR_CHECK_H
#define UPGATE_DOCTOR_CHECK_H

#include <jansson.h>

#include "harness/doctor/doctor.h"

struct doctor_finding {
    const char *id; // stable: scripts read it
    enum doctor_status status;
    bool required;               // missing: the main job cannot run
    char *found, *lost, *remedy; // lost, remedy NULL when ok
    json_t *facts;               // numbers for scripts; NULL
};

struct doctor {
    const char *root;
    const char *image; // that is looked at; NULL: the machine is
    struct doctor_finding *findings;
    int count;
    struct capture_source *sources; // of the BPF programs, when they have been tried
    size_t source_count;
};

// The finding's texts are printf-made; the pointer is valid until the next one is added.
struct doctor_finding *doctor_add(struct doctor *doctor, const char *id, enum doctor_status status,
        const char *found, ...) __attribute__((format(printf, 4, 5)));
void doctor_lose(struct doctor_finding *finding, const char *lost, const char *remedy);
void doctor_fact(struct doctor_finding *finding, const char *name, json_t *value); // takes value

// A file below the root, without blanks around it; NULL when it cannot be read. The caller frees.
char *doctor_read(const struct doctor *doctor, const char *path);
// What the cgroups of this process allow, as limits_cgroup() has it. New reference.
json_t *check_limits(const struct doctor *doctor);

void check_freezer(struct doctor *doctor);
void check_priority(struct doctor *doctor);
void check_cpus(struct doctor *doctor);
void check_quota(struct doctor *doctor);
void check_load(struct doctor *doctor);
void check_pressure(struct doctor *doctor);
void check_steal(struct doctor *doctor);
void check_frequency(struct doctor *doctor);
void check_clock(struct doctor *doctor);
void check_shared_memory(struct doctor *doctor);
void check_memory(struct doctor *doctor);
void check_disk(struct doctor *doctor);
void check_workloads(struct doctor *doctor);
void check_extension(struct doctor *doctor);
void check_pythons(struct doctor *doctor);
void check_gpu(struct doctor *doctor);
void check_gpu_tracing(struct doctor *doctor);
void check_calibration(struct doctor *doctor);
void check_tracing(struct doctor *doctor);
void check_kernel_symbols(struct doctor *doctor);
void check_python_stacks(struct doctor *doctor);
void check_lockdown(struct doctor *doctor);
void check_capture(struct doctor *doctor);
void check_image(struct doctor *doctor, const char *name);

#endif
