# SPDX-License-Identifier: Apache-2.0
"""Many runs of upgate at a time on one large machine, each on CPUs of its own."""
import math
import os
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed


def cpu_sets(jobs):
    """The CPUs of this process in so many parts of one size; what is left over stays idle. One job: everywhere."""
    if jobs == 1:
        return [None]
    cpus = sorted(os.sched_getaffinity(0))
    each = len(cpus) // jobs
    if not each:
        raise SystemExit("%d jobs at a time need as many CPUs; there are %d" % (jobs, len(cpus)))
    return [cpus[k * each:(k + 1) * each] for k in range(jobs)]


OWN = threading.local()  # .cpus: where the thread's task takes place; None: everywhere


def own_cpus():
    return getattr(OWN, "cpus", None) or sorted(os.sched_getaffinity(0))


def pinned(command):
    """The command on the CPUs of the thread's task."""
    return (["taskset", "-c", ",".join(map(str, own_cpus()))] if getattr(OWN, "cpus", None) else []) + command


def run_all(tasks, jobs=1, minutes=None):
    """tasks: functions without arguments, begun in their order, none after so many minutes. Yields what each returns as it ends."""
    deadline = time.monotonic() + 60 * minutes if minutes else math.inf
    free = queue.SimpleQueue()
    for cpus in cpu_sets(jobs):
        free.put(cpus)

    def one(task):
        if time.monotonic() >= deadline:
            return False, None
        OWN.cpus = free.get()
        try:
            return True, task()
        finally:
            free.put(OWN.cpus)

    with ThreadPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(one, task) for task in tasks]):
            began, result = done.result()
            if began:
                yield result
