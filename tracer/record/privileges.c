// SPDX-License-Identifier: Apache-2.0
// The capabilities that a recorder keeps, each with what it is for (docs/SECURITY.md has the
// table).
#include "tracer/record/privileges.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { // younger than the headers of some systems
    PRIVILEGE_PERFMON = 38,
    PRIVILEGE_BPF = 39,
    PRIVILEGE_CHECKPOINT_RESTORE = 40,
};

static const int privileges_kept[] = {
        CAP_DAC_OVERRIDE, // the store's journal in a directory of another user; a spool of another
                          // user
        CAP_DAC_READ_SEARCH,              // libraries of another user
        CAP_SYS_PTRACE,                   // maps, descriptors and memory of a target
        CAP_SYSLOG,                       // addresses in /proc/kallsyms
        PRIVILEGE_PERFMON, PRIVILEGE_BPF, // maps of the programs that are attached
        PRIVILEGE_CHECKPOINT_RESTORE,     // /proc/PID/map_files
};

int privileges_drop(struct error *err)
{
    // pid 0: the calling thread
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};
    uint32_t keep[2] = {0};
    for (size_t i = 0; i < sizeof privileges_kept / sizeof *privileges_kept; i++)
        keep[privileges_kept[i] / 32] |= 1u << privileges_kept[i] % 32;
    int failed = syscall(SYS_capget, &head, data) < 0;
    for (int i = 0; i < 2; i++) {
        data[i].effective &= keep[i];
        data[i].permitted &= keep[i];
        data[i].inheritable = 0;
    }
    failed = failed || syscall(SYS_capset, &head, data) < 0;
    // it starts nobody; nobody whom it starts gains any
    failed = failed || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0;
    return failed ? error_set(err, -errno, "failed to give up privileges: %s", strerror(errno)) : 0;
}
