// SPDX-License-Identifier: Apache-2.0
// The machine: which CPUs the sides run on, what identifies it for calibration certificates, and
// the covariates of a launch (load, pressure, steal, frequency, throttling, foreign CPU use).
#ifndef UPGATE_HARNESS_CONTAIN_HOST_H
#define UPGATE_HARNESS_CONTAIN_HOST_H

#include <jansson.h>
#include <sched.h>
#include <stdint.h>

#include "common/error.h"

// Which CPUs both sides are pinned to: `list` ("0-3,8"), or NULL for a choice: all that we may use,
// less the last one for the harness when there are at least four. *ret_text ("0-2"): caller frees.
int host_choose_cpus(const char *list, cpu_set_t *ret_cpus, char **ret_text, struct error *err);

json_t *host_describe(const char *cpus); // id, kernel, cpu model, cpu count, memory; new reference
char *host_key(const json_t *host);      // what a calibration is looked up by; caller frees
// For its key: what identifies the GPUs of `gpu` (fingerprint_host()'s; JSON null: none, and then
// nothing is set), and the word by which the environment says which of them are seen
// (CUDA_VISIBLE_DEVICES; a slice of one, too); NULL: all.
void host_set_gpu(json_t *host, const json_t *gpu, const char *visible);
// Which parts of that differ: "kernel 6.8.1, was 6.1.0; ..."; NULL: none. What one of them does not
// tell is left out, and so are the name and the CPUs, which the same machine may change. Caller
// frees.
char *host_changes(const json_t *before, const json_t *now);

// A reading of the machine's counters; two of them bracket a launch.
struct host_reading {
    int64_t at_ns;
    int64_t boot_minus_mono_ns; // grows by the length of a suspend
    double load1;
    int64_t steal_ns, busy_ns;                    // all CPUs
    int64_t psi_cpu_ns, psi_io_ns, psi_memory_ns; // "some" totals; -1 = no PSI
    int64_t throttle_count; // thermal throttle events, all CPUs; -1 = not told
    int64_t freq_khz;       // mean of the CPUs; -1 = not told
    int64_t oom_kills;      // -1 = not told
};
void host_read(struct host_reading *ret_reading);
int64_t host_steal_ns(void);  // taken by the hypervisor so far, of all CPUs, in ticks of 10 ms; 0 =
                              // nothing, or not told
int64_t host_oom_kills(void); // of the machine so far; -1 = not told
// What changed between two readings, as stored in launch.covariates. own_cpu_ns: used by our
// launches.
json_t *host_covariates(
        const struct host_reading *before, const struct host_reading *after, int64_t own_cpu_ns);

int64_t host_memory_available_bytes(void); // MemAvailable; -1 = not told

// Real-time priority for the harness, so that a busy workload on the same CPU does not delay a turn
// by a scheduler slice (measured: 2.9 ms without, 0.1 ms with). 0, or -errno when not permitted.
int host_raise_priority(void);
// Where the caller's thread runs beside a launch that is pinned to these CPUs. Nothing is changed
// without the priority above: then the scheduler finds us a CPU that is free. join: on the CPU of a
// launch that has one alone, which rests when we have something to do; there a turn costs 84 us of
// CPU, from another CPU 133 us of it (a VM, load 8): stopping and waking need no interrupt of
// another CPU. leave: off them, where there are others.
void host_join_cpus(const cpu_set_t *used);
void host_leave_cpus(const cpu_set_t *used);
// Those that this file lists are taken away from them ("2-5,8", as the kernel has it); none that it
// does not have.
void host_take_cpus(const char *path, cpu_set_t *cpus);

#endif
