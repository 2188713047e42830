#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A sample is named by what was mapped at its moment: libraries loaded while the program runs, replaced at the same
address, in children that have ended before anybody could look, after exec, and code that was never in a file. Needs
root and a kernel that permits the capture."""
import json
import os
import platform
import shutil
import subprocess
import sys

import record_live
from record_live import Skip, check, check_whole

ONE = os.path.join(record_live.BUILD, "tests", "root", "libmapped_one.so")
TWO = os.path.join(record_live.BUILD, "tests", "root", "libmapped_two.so")

# In front of each program: spin_and_tell(function, s) takes that much CPU time, however busy the machine is, and says when
# it ran, in the time of the samples, and where the function lies.
BEGIN = """
import ctypes, _ctypes, json, os, sys, time
def spin(function, seconds):
    begin, end = time.monotonic_ns(), time.process_time() + seconds
    while time.process_time() < end:
        function(200000)
    return begin, time.monotonic_ns()
def load(path, name):
    library = ctypes.CDLL(path)
    function = getattr(library, name)
    function.argtypes, function.restype = [ctypes.c_ulong], ctypes.c_ulong
    return library, function
def tell(**more):
    print(json.dumps(dict(more, pid=os.getpid())), flush=True)
def spin_and_tell(function, seconds):
    begin, end = spin(function, seconds)
    tell(begin=begin, end=end, at=ctypes.cast(function, ctypes.c_void_p).value)
one_path, two_path, where = sys.argv[1:4]
"""


def record(case, program, *before):
    """The lines that the program wrote, after it was recorded from its start to its end. before: a command that starts it."""
    done = case.run("--", *before, sys.executable, "-c", BEGIN + program, ONE, TWO, case.dir)
    check(done, 0)
    check_whole(case)
    return [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]


def leaves(case, pid, begin=0, end=2**62):
    """How many user-mode samples of a process have which leaf: {(name, module): count}."""
    rows = case.rows("SELECT f.name, f.module, count(*) FROM v_sample s JOIN v_stack f ON f.stack = s.user_stack AND f.depth = 0 "
                     "WHERE s.pid = ? AND s.at_ns BETWEEN ? AND ? AND s.why & 16 GROUP BY 1, 2", pid, begin, end)
    return {(name, module): count for name, module, count in rows}


def check_leaves(found, function, module=None, share=0.8, at_least=5):
    """Nearly all is in the function (the rest is Python around it), and nothing is without a place."""
    total, anon = sum(found.values()), sum(n for (name, _), n in found.items() if name == "[anon]")
    hits = sum(n for (name, where), n in found.items() if name == function and (module is None or where == module))
    assert total >= at_least and not anon and hits >= share * total, (function, found)


def test_loaded_late(case):
    """Libraries come faster than maps are read, and each is in use at once."""
    for i in range(30):
        shutil.copy(ONE, case.path("lib%d.so" % i))
    lines = record(case, """
spin(load(one_path, "one_spins")[1], 0.3)
functions = []
for i in range(30):
    functions.append(load(where + "/lib%d.so" % i, "one_spins")[1])
    spin(functions[-1], 0.006)
for function in functions:
    spin_and_tell(function, 0.05)
""")
    assert len(lines) == 30
    all_found = {}
    for i, line in enumerate(lines):
        found = leaves(case, line["pid"], line["begin"], line["end"])
        for (name, module), count in found.items():
            assert name != "one_spins" or module == "lib%d.so" % i, (i, found)
            all_found[name, name] = all_found.get((name, name), 0) + count
    check_leaves(all_found, "one_spins", at_least=100)


def test_replaced(case):
    """Closed, and another library comes to lie at the same address: the same stack by its addresses."""
    lines = record(case, """
for i in range(4):
    library, function = load((one_path, two_path)[i % 2], ("one_spins", "two_spins")[i % 2])
    spin_and_tell(function, 0.3)
    _ctypes.dlclose(library._handle)
""")
    assert len(lines) == 4
    if len({line["at"] for line in lines}) > 1:
        raise Skip("the loader chose another address: %s" % lines)
    for i, line in enumerate(lines):
        check_leaves(leaves(case, line["pid"], line["begin"], line["end"]), ("one_spins", "two_spins")[i % 2])


def test_children_that_ended(case):
    """Forked, loads, computes, ends: before its first stack is read."""
    lines = record(case, """
library, one = load(one_path, "one_spins")
for i in range(40):
    child = os.fork()
    if not child:
        function = load(two_path, "two_spins")[1] if i % 2 else one
        spin_and_tell(function, 0.03)
        os._exit(0)
    os.waitpid(child, 0)
""")
    assert len(lines) == 40
    for half, function in ((lines[::2], "one_spins"), (lines[1::2], "two_spins")):
        found = {}
        for line in half:
            for leaf, count in leaves(case, line["pid"], line["begin"], line["end"]).items():
                found[leaf] = found.get(leaf, 0) + count
        check_leaves(found, function)


def test_exec_again(case):
    """A process that becomes another program: what it was is named by what it had mapped then."""
    lines = record(case, """
if where == "second":
    spin_and_tell(load(two_path, "two_spins")[1], 0.3)
else:
    spin_and_tell(load(one_path, "one_spins")[1], 0.3)
    os.execv(sys.executable, [sys.executable, "-c", open("/proc/self/cmdline").read().split("\\0")[2], one_path, two_path, "second"])
""")
    assert len(lines) == 2 and lines[0]["pid"] == lines[1]["pid"], lines
    for line, function in zip(lines, ("one_spins", "two_spins")):
        check_leaves(leaves(case, line["pid"], line["begin"], line["end"]), function)


def test_file_is_gone(case):
    """Deleted as soon as it is loaded, and the process ends."""
    shutil.copy(ONE, case.path("libgone.so"))
    line, = record(case, """
library, function = load(where + "/libgone.so", "one_spins")
os.unlink(where + "/libgone.so")
spin_and_tell(function, 0.3)
""")
    check_leaves(leaves(case, line["pid"], line["begin"], line["end"]), "one_spins", "libgone.so")


def test_mounts_of_its_own(case):
    """Nobody outside sees the file under its path, and the children that use it end at once."""
    os.mkdir(case.path("inside"))
    inside = "mount -t tmpfs none %s/inside && cp %s %s/inside/libinside.so && exec \"$@\"" % (case.dir, ONE, case.dir)
    if subprocess.run(["unshare", "-m", "true"]).returncode:
        raise Skip("no mount namespaces")
    lines = record(case, """
for i in range(20):
    child = os.fork()
    if not child:
        spin_and_tell(load(where + "/inside/libinside.so", "one_spins")[1], 0.03)
        os._exit(0)
    os.waitpid(child, 0)
""", "unshare", "-m", "sh", "-c", inside, "sh")
    assert len(lines) == 20 and not os.path.exists(case.path("inside/libinside.so"))
    found = {}
    for line in lines:
        for leaf, count in leaves(case, line["pid"], line["begin"], line["end"]).items():
            found[leaf] = found.get(leaf, 0) + count
    check_leaves(found, "one_spins", "libinside.so")


def test_code_of_no_file(case):
    """A loop in anonymous memory, with and without an entry in the perf map."""
    if platform.machine() != "x86_64":
        raise Skip("the code is x86's")
    lines = record(case, """
import mmap
code = bytes.fromhex("4889f8" "48ffc8" "75fb" "c3")  # mov rax, rdi; dec rax; jnz; ret
for i in range(2):
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    at = ctypes.addressof(ctypes.c_char.from_buffer(page))
    if i:
        open("/tmp/perf-%d.map" % os.getpid(), "w").write("%x 40 jitted_spins\\n" % at)
    spin_and_tell(ctypes.CFUNCTYPE(ctypes.c_ulong, ctypes.c_ulong)(at), 0.3)
os.unlink("/tmp/perf-%d.map" % os.getpid())
""")
    assert len(lines) == 2
    for line, function in zip(lines, ("[jit]", "jitted_spins")):
        check_leaves(leaves(case, line["pid"], line["begin"], line["end"]), function, "[jit]")


if __name__ == "__main__":
    sys.exit(record_live.main(globals()))
