# SPDX-License-Identifier: Apache-2.0
"""What kill_case.py sees from outside: processes by a mark in their environment, their groups and step files, and
which BPF programs the kernel has loaded. Reads /proc, /dev/shm, the cgroups and bpf(2); changes nothing. Not a
program of its own."""
import contextlib
import ctypes
import os
import struct

MARK = "KILL_MARK"


def stat_of(pid):
    """(name, state, parent, start in ticks), or None when it has ended."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            name, rest = file.read().split("(", 1)[1].rsplit(")", 1)
    except (OSError, IndexError):
        return None
    fields = rest.split()
    return name, fields[0], int(fields[1]), int(fields[19])


def marked(mark):
    """{pid: (name, state, parent, start, environment)} of all that carry the mark and live."""
    found, text = {}, ("%s=%s" % (MARK, mark)).encode()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            with open("/proc/%d/environ" % pid, "rb") as file:
                environment = file.read().split(b"\0")
        except OSError:
            continue
        if text in environment:
            stat = stat_of(pid)
            if stat and stat[1] not in "ZX":
                found[pid] = stat + (environment,)
    return found


def upgate_of(processes):
    """The one that was started: no other of the mark is its parent."""
    mains = [pid for pid, (name, _, parent, _, _) in processes.items() if name == "upgate" and parent not in processes]
    return mains[0] if mains else None


def targets_of(processes, kind):
    main = upgate_of(processes)
    guardians = [pid for pid, stat in processes.items() if stat[0] == "ug-guardian"]
    if kind == "upgate":
        return [main] if main else []
    if kind == "guardian":
        return guardians[:1]
    if kind == "both":
        return [main] + guardians if main and guardians else []
    return [pid for pid, stat in processes.items() if stat[0] == "ug-keeper" or
            any(word.startswith(b"UPGATE_STEPS=") for word in stat[4])]


def key_of(pid):
    """What names of its groups and step files begin with: the pid as the process itself sees it, and its start."""
    try:
        with open("/proc/%d/status" % pid) as file:
            inner = next(line.split()[-1] for line in file if line.startswith("NSpid:"))
        return "upgate-%s-%d" % (inner, stat_of(pid)[3])
    except (OSError, StopIteration, TypeError):
        return None


def cgroups(keys):
    found = []
    for line in open("/proc/mounts"):
        _, where, kind, options = line.split()[:4]
        if kind == "cgroup2" or kind == "cgroup" and "freezer" in options.split(","):
            for path, names, _ in os.walk(where):
                found += [os.path.join(path, name) for name in names if name.startswith(keys)]
                names[:] = [name for name in names if not name.startswith(keys)]
    return found


def step_files(keys):
    return ["/dev/shm/" + name for name in os.listdir("/dev/shm") if name.startswith(keys)]


def programs_of(pid):
    """Ids of the BPF programs that a process holds, itself or by a link."""
    ids = set()
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/%d/fdinfo" % pid):
            with contextlib.suppress(OSError), open("/proc/%d/fdinfo/%s" % (pid, name)) as file:
                ids |= {int(line.split()[1]) for line in file if line.startswith("prog_id:")}
    return ids


def programs_loaded():
    """Ids of all BPF programs of this kernel: bpf(BPF_PROG_GET_NEXT_ID), as bpftool does it."""
    syscall_number = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
    libc, ids, last = ctypes.CDLL(None, use_errno=True), set(), 0
    while True:
        attr = ctypes.create_string_buffer(struct.pack("IIII", last, 0, 0, 0), 16)
        if libc.syscall(syscall_number, 11, attr, 16) < 0:
            return ids
        last = struct.unpack("IIII", attr.raw)[1]
        ids.add(last)
