#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What goes wrong around a capture: full rings, kill -9, thousands of threads, targets that end, missing rights."""
import ctypes
import glob
import json
import os
import shutil
import subprocess
import tempfile
import time

from capture_rig import DUMP, EXIT, NO_OUT, SEEN, Capture, Subject, check, is_gap, main

PR_CAPBSET_DROP, CAP_SYS_ADMIN, CAP_BPF = 24, 21, 39


def full_ring():
    """A ring of one page, and nobody reads: what was dropped is counted, and what was kept arrives."""
    with Subject("storm") as subject, Capture(subject.pid, options=["-r", "4096", "-t", "0", "-p"]) as capture:
        begin, end = switches(subject.pid), time.monotonic() + 60
        while switches(subject.pid) < begin + 1000: # a page is full of some tens
            check(time.monotonic() < end, "the subject does not run")
            time.sleep(0.05)
        records, counts = capture.stop()
        for name, count in counts.items():
            check(count["seen"] == count["kept"] + count["dropped"], name, count)
        check(counts["gap"]["dropped"] > 0, "nothing was dropped:", counts["gap"])
        check(counts["gap"]["kept"] == sum(r["kind"] == "gap" for r in records), "kept is what came:", counts["gap"])


def programs():
    """Ids of the BPF links that exist on this machine; None: no bpftool, or it may not tell."""
    tool = shutil.which("bpftool") or shutil.which("bpftool", path="/usr/sbin:/sbin")
    if not tool:
        return None
    links = subprocess.run([tool, "-j", "link"], capture_output=True, text=True, check=False)
    return {link["id"] for link in json.loads(links.stdout)} if not links.returncode and links.stdout else None


def killed():
    with Subject("pipe") as subject:
        with Capture(subject.pid) as capture:
            during = bpf_descriptors()
            check(capture.process.pid in during, "the capture holds no BPF programs:", during)
            attached = programs()
            capture.process.kill()
            capture.process.wait()
        check(capture.process.pid not in bpf_descriptors(), "programs stay")
        end = time.monotonic() + 60
        while attached is not None and programs() >= attached:
            check(time.monotonic() < end, "links stay:", programs())
            time.sleep(0.05)
        before = switches(subject.pid)
        end = time.monotonic() + 60
        while switches(subject.pid) == before:
            check(time.monotonic() < end, "the target does not run on")
            time.sleep(0.02)


def switches(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches"))


def bpf_descriptors():
    """Processes that hold BPF links or programs, by the names of their descriptors."""
    found = set()
    for path in glob.glob("/proc/[0-9]*/fd/*"):
        try:
            if "bpf" in os.readlink(path):
                found.add(int(path.split("/")[2]))
        except OSError:
            pass
    return found


def many_threads():
    with Subject("threads", 3000) as subject, Capture(subject.pid, options=["-l"]) as capture:
        alive = len(os.listdir(f"/proc/{subject.pid}/task"))
        seen = {r["task"]["tid"] for r in capture.records if r["kind"] == "task" and r["what"] == SEEN}
        check(len(seen) == alive, "seen", len(seen), "of", alive)
        capture.wait(lambda r: r["kind"] == "gap" and not r["flags"] & NO_OUT, "gaps of so many")
        records, counts = capture.stop()
        check(sum(r["kind"] == "state" for r in records) == alive, "looked at", counts["state"])
        check(sum(r["kind"] == "total" for r in records) == alive, "totals of", alive)
        check(not counts["state"]["dropped"] and not counts["task"]["dropped"], counts)


def target_ends():
    with Subject("pipe") as subject, Subject("pipe") as other, Capture(subject.pid, other.pid) as capture:
        capture.wait(lambda r: is_gap(r, subject.pid), "a gap")
        subject.process.kill()
        end = capture.have(lambda r: r["kind"] == "task" and r["what"] == EXIT and
                           r["task"]["tid"] == subject.pid, "the end of the target")
        check(end["exit_code"] & 127 == 9, "killed by 9:", end)
        capture.wait(lambda r: is_gap(r, other.pid) and r["out_ns"] > end["at_ns"], "a gap of the one that lives")


def refused(prepare, *words):
    """What the capture says when it may not. Others may not enter every build directory: a copy is run."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        try:
            done = subprocess.run([shutil.copy(DUMP, directory), "-d", "0"], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=60, preexec_fn=prepare, check=False)
        except PermissionError as error:
            print(f"another user cannot run a program in {directory} ({error}): not tested")
            return
    said = json.loads(done.stdout.splitlines()[0])
    check(said["kind"] == "error" and said["code"] == -1, "no -EPERM:", said)
    for word in words:
        check(word in said["text"], word, "is not in:", said["text"])


def not_root():
    refused(lambda: os.setuid(65534), "CAP_BPF", "root")


def without_capability():
    libc = ctypes.CDLL(None, use_errno=True)

    def drop():  # root again by exec, but only with what the bounding set lets it have
        for capability in (CAP_SYS_ADMIN, CAP_BPF):
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)

    refused(drop, "CAP_BPF")


def no_such_process():
    done = subprocess.run([DUMP, "-d", "0", "4194303"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60, check=False)
    said = json.loads(done.stdout.splitlines()[-1])
    check(said["kind"] == "error" and "no such process" in said["text"], said)


main(full_ring, killed, many_threads, target_ends, not_root, without_capability, no_such_process)
