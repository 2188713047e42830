/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The programs of the capture as one object: themes are in their headers. capture_load.c sets the
 * settings of common.bpf.h, switches off what the kernel lacks, loads and attaches.
 */
#include "bpf/common.bpf.h"
#include "bpf/facts.bpf.h"
#include "bpf/facts_memory.bpf.h"
#include "bpf/faults.bpf.h"
#include "bpf/locks.bpf.h"
#include "bpf/python.bpf.h"
#include "bpf/samples.bpf.h"
#include "bpf/sched.bpf.h"
#include "bpf/state.bpf.h"
#include "bpf/tasks.bpf.h"
#include "bpf/unwind.bpf.h"

const char bpf_license[] SEC("license") = "Dual BSD/GPL";
