# SPDX-License-Identifier: Apache-2.0
"""docs/KERNELS.md, made by `ci/kernels --write` of what was measured: the table, what each kernel lacks and why, what was
wrong, and the fixed part, what each release of Linux adds."""
import os
import time

INTRODUCTION = """<!-- Made by `ci/kernels --write docs/KERNELS.md`; edit ci/kernels.d/page.py. -->
# On which kernels it works

`upgate ab` needs Linux 5.3 (`pidfd_open`); `gate`, `diff` and `report` ask nothing of the kernel. `upgate record`, `upgate stalls` and the traced launches of
`upgate ab` load BPF programs: **Linux 5.15 or newer** with BTF, or a distribution's kernel that has what 5.15 has. `upgate doctor` loads
and attaches the programs to find out, and says what is missing here; where they cannot be loaded, `upgate record` says why and ends with 4, and `upgate ab` compares without its traced launches.

## Measured

`%(command)s` boots Debian's kernels one after the other in qemu (2 emulated CPUs, no KVM) with the built upgate. In each it
asks `upgate doctor`, records a command, records %(forks)d or more births and deaths, runs the plants %(plants)s and the same victims with
nobody who stalls them (`ci/plants`, %(window)g s each; no period is judged, an emulated machine does not keep one), compares a command with itself by
`upgate ab`, and reads the kernel's log for complaints. Written on %(date)s; the guests took %(minutes)d minutes on %(cpus)d CPUs.

"""

COLUMNS = """
*ab* is the verdict of a command against itself in 10 pairs. *sources* are those of `upgate doctor` that could be loaded and attached, *lacks* the others. *plants*: cause and culprit are named, as
`reference_models/plants/answers.json` wants it; *not stalled*: the plant did not hold its victim up there, as the victim measured, which says nothing of upgate. *innocent*: no process is
named; threads of the kernel that were, which do hold up a victim on an emulated machine, stand below. *works*: all of it as it must be, and nothing in the kernel's log.
*refused*: `upgate record` and doctor name what the kernel lacks, exit code 4, and no store is left.
"""

STEPS = """
## What each release adds

| Linux | adds | before it |
|---|---|---|
| 5.11 to 5.13 | task storage, then also in tracepoints; atomic operations of BPF | nothing can be recorded |
| 5.14 | `task_struct.__state` | nothing can be recorded |
| 5.15 | `bpf_task_pt_regs`; `struct rt_mutex_base` | nothing can be recorded |
| 5.16 | `mm_vmscan_throttled` | that reclaim waits on purpose is told from stacks |
| 5.17 | `bpf_loop` | user stacks are walked by frame pointers alone, so that most libraries' end early, and Python's are read from outside, later: no verifier goes step by step through the loops that walk them; the end of a series of page migrations, TCP retransmissions or contended cgroup statistics, up to 100 ms of it, is not told |
| 5.18 | `sched_switch` tells the state of who leaves | the state is read beside it, and may be a later one |
| 5.19 | `contention_begin`, `contention_end` | who holds a lock of the kernel is told from wakers and samples only |
| 6.2 | `bpf_task_from_pid` | holders of futexes are not named, holders of kernel locks have no stack, who freezes a cgroup is told from wakers |
| 6.10 | `cgroup_rstat_lock_contended` | fights for the lock of cgroup statistics are told from samples |
| 6.16 | `task_struct.blocker` | a lock that was waited for before recording began is guessed |

The first three are looked up in the kernel's BTF before anything is loaded (`bpf/capture_kernel.c`); every other source is switched off where
its tracepoint is missing or the kernel refuses the program, and said in the report.

## Switches that are not told

A virtual machine with Linux 6.18 told neither BPF nor ftrace of switches away from the threads of its process 1, nor of wake-ups in their context: of 50,000 sleeps of 20 ms, 15 to
45 had no end (`tests/root/record_live.py every_sleep` fails there without what follows). So the end of a wait is also looked for at the thread's next switch-out and at its
end: the scheduler's own account (`task_struct.sched_info`) tells when it came back, and since when it could run where no waker was seen. Such a wait has the flag
`UG_GAP_NO_IN`. Without CONFIG_SCHED_INFO or CONFIG_FAIR_GROUP_SCHED there is no such account, and such a wait is lost.

## PREEMPT_RT

Mutexes and semaphores are made of `rt_mutex` there. Who holds a mutex, and which writer holds `mmap_lock`, is read all the same; readers of a
semaphore are counted and not known, so a reader that holds up a writer is named by whom it wakes and by samples. Threads of the
target are kept in a map made beforehand (8,192 threads, 27 MB): the allocator's locks sleep on PREEMPT_RT, and may not be taken in a
tracepoint. For the same reason a kernel whose BPF ring buffer takes a lock that sleeps (before 6.12, or a stable release with its "bpf: Use raw_spinlock_t
in ringbuf", which Debian's 6.1.176 has) is refused. There are no huge pages, and so no source for their collapse.
"""


def details(results, missing_of):
    """Why a source is missing, once for each reason, with the kernels."""
    reasons = {}
    for result in results:
        for source, why in missing_of(result["told"]).items():
            reasons.setdefault((source, why), []).append(result["name"])
    if not reasons:
        return ""
    lines = ["", "| source | why it is missing, in doctor's words | on |", "|---|---|---|"]
    lines += ["| %s | %s | %s |" % (source, why, ", ".join(names)) for (source, why), names in reasons.items()]
    return "\n".join(lines) + "\n"


def refusals(results, one):
    lines = []
    for result in results:
        record = one(result["told"], "record")
        if record and record["status"] == 4:
            lines += ["", "On %s `upgate record` says:" % result["name"], "", "```", record["errors"], "```"]
    return "\n".join(lines) + "\n" if lines else ""


def threads(results):
    """Threads of the kernel that innocent runs named."""
    lines = ["* %s, %s: %s" % (result["name"], entry["plant"], "; ".join(entry["threads"]))
             for result in results for entry in result["told"] if entry["what"] == "innocent" and entry.get("threads")]
    return "\nThreads of the kernel that innocent runs named:\n\n%s\n" % "\n".join(lines) if lines else ""


def wrongs(results):
    lines = ["* %s: %s" % (result["name"], text) for result in results for text in result["wrong"]]
    return "\nWrong:\n\n%s\n" % "\n".join(lines) if lines else ""


def page(results, head, row, options, helpers):
    one, missing_of, forks = helpers
    seconds = sum(result["told"][-1]["at_s"] for result in results if result["told"])
    words = ["ci/kernels"] + options.names + ["--write docs/KERNELS.md"]
    table = ["| %s |" % " | ".join(head), "|%s" % ("---|" * len(head))]
    table += ["| %s |" % " | ".join(row(result)) for result in results]
    return (INTRODUCTION % {"command": " ".join(words), "forks": forks, "plants": ", ".join(options.plants.split(",")),
                            "window": options.window, "date": time.strftime("%Y-%m-%d", time.gmtime()),
                            "minutes": round(seconds / 60) or 1, "cpus": os.cpu_count()}
            + "\n".join(table) + "\n" + COLUMNS + details(results, missing_of) + threads(results) + wrongs(results) + refusals(results, one) + STEPS)
