// SPDX-License-Identifier: Apache-2.0
// Time namespaces, time_namespaces(7): `unshare -T`, some container engines and CRIU make them. In
// one a process has a CLOCK_MONOTONIC and a CLOCK_BOOTTIME of its own, each ahead of the machine's
// by a length that does not change as long as the namespace has processes. The machine's are those
// of the first namespace; BPF programs and perf have them, whoever asks. The wall clock, and the
// clocks of CPU time, are the same everywhere.
#ifndef UPGATE_COMMON_TIME_NAMESPACE_H
#define UPGATE_COMMON_TIME_NAMESPACE_H

#include <stdint.h>

#define TIME_NAMESPACE_FIRST UINT64_C(0xeffffffa) // PROC_TIME_INIT_INO of the kernel

struct time_offsets {
    int64_t monotonic_ns, boottime_ns; // ahead of the machine's; may be below 0
};

// The text of /proc/PID/timens_offsets. 0, or -EBADMSG: it is none of the kernel's; ret is then
// as it was.
int time_offsets_parse(const char *text, struct time_offsets *ret);

// Of a process; dir: "/proc/17", "/proc/self". *ret_inode: of its ns/time, also where the offsets
// are not known; 0: it could not be seen, or, with 0, the kernel has none (before 5.6), and all
// clocks are the machine's. 0, or
// -ESRCH: it has ended;
// -EACCES: it may not be looked into;
// -EXDEV: its children come into another namespace than it is in itself. Of that one the kernel
// tells, of its own it does not;
// -EBADMSG: as above.
int time_offsets_of(const char *dir, uint64_t *ret_inode, struct time_offsets *ret);

#endif
