#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ci/kernels boots kernels for an hour; here only what it concludes: of what a good guest tells nothing is wrong, and each
defect that it is there to find is found. Also which packages of the archive are kernels, and in which order modules load."""
import copy
import importlib.machinery
import importlib.util
import os
import sys
import tempfile

ROOT = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def load():
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("kernels", os.path.join(ROOT, "ci", "kernels"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("kernels", loader))
    loader.exec_module(module)
    return module


def plant(name, innocent, verdict="right", **culprit):
    return {"what": "innocent" if innocent else "plant", "plant": name, "innocent": innocent, "verdict": verdict,
            "reason": "", "culprit": culprit or None}


GOOD = [{"what": "kernel", "release": "6.1.0-50-rt-amd64"},
        {"what": "doctor", "status": 0, "words": {"tracing": ["ok", "BPF yes, perf yes", None, None],
                                                  "capture": ["limited", "18 of 19 sources work: x", "l", "r"],
                                                  "capture-owners": ["limited", "no bpf_task_from_pid", "l", "r"]}},
        {"what": "record", "status": 0, "errors": "", "store": True},
        {"what": "forks", "status": 0, "errors": "", "asked": 500, "ledger": {"bpf.task records": [1004, 1004, 0]}},
        plant("smaps", False, comm="pl-smaps", kind="other"), plant("smaps", True),
        {"what": "ab", "status": 3, "errors": ""}, {"what": "log", "alarms": [], "lines": 300}, {"what": "end"}]

OLD = [{"what": "kernel", "release": "5.10.0-32-cloud-amd64"},
       {"what": "doctor", "status": 0, "words": {"tracing": ["limited", "BPF no, perf yes", "l", "r"],
                                                 "capture": ["missing", "0 of 19 sources work: too old", "l", "r"]}},
       {"what": "record", "status": 4, "errors": "upgate: error: lacks x; boot Linux 5.15 or later", "store": False},
       {"what": "stalls", "status": 2, "errors": ""}, {"what": "ab", "status": 0, "errors": ""},
       {"what": "log", "alarms": [], "lines": 300}, {"what": "end"}]


def changed(told, what, **values):
    copied = copy.deepcopy(told)
    next(entry for entry in copied if entry["what"] == what).update(values)
    return copied


def check_judge(kernels):
    assert kernels.judge(GOOD, "") == [], kernels.judge(GOOD, "")
    assert kernels.judge(OLD, "") == [], kernels.judge(OLD, "")
    words = {"tracing": ["ok", "BPF yes", None, None], "capture": ["missing", "0 of 19", "l", "r"]}
    bad = {
        "no guest": ([], "no end within 900 s"),
        "half a guest": (GOOD[:-1], ""),
        "recording fails": (changed(GOOD, "record", status=4, errors="no"), ""),
        "doctor says no": (changed(GOOD, "doctor", words=OLD[1]["words"]), ""),
        "births lost": (changed(GOOD, "forks", ledger={"bpf.task records": [1004, 1000, 4]}), ""),
        "births not told": (changed(GOOD, "forks", ledger={"bpf.task records": [900, 900, 0]}), ""),
        "no ledger": (changed(GOOD, "forks", ledger={}), ""),
        "a wrong plant": (changed(GOOD, "plant", verdict="wrong"), ""),
        "a plant that did nothing": (changed(GOOD, "plant", verdict="not stalled"), ""),
        "an accusation": (changed(GOOD, "innocent", verdict="wrong", culprit={"comm": "pl-writer", "kind": "other"}), ""),
        "an accusation on a busy machine": (changed(GOOD, "innocent", verdict="not stalled",
                                                    culprit={"comm": "pl-writer", "kind": "other"}), ""),
        "ab fails a side against itself": (changed(GOOD, "ab", status=1), ""),
        "ab does not end": (changed(GOOD, "ab", status=None), ""),
        "ab cannot run": (changed(OLD, "ab", status=4), ""),
        "the log": (changed(GOOD, "log", alarms=["BUG: scheduling while atomic"]), ""),
        "an old kernel with exit 2": (changed(OLD, "record", status=2), ""),
        "an old kernel without a reason": (changed(OLD, "record", errors="Invalid argument"), ""),
        "an old kernel that leaves a store": (changed(OLD, "record", store=True), ""),
        "an old kernel of which doctor says yes": (changed(OLD, "doctor", words=words), ""),
    }
    for name, (told, trouble) in bad.items():
        assert kernels.judge(told, trouble), "nothing found wrong with: " + name
    assert kernels.row({"name": "6.1-rt", "told": GOOD, "wrong": [], "reason": ""})[-1] == "works"
    assert kernels.row({"name": "5.10", "told": OLD, "wrong": [], "reason": ""})[-1] == "refused"
    for name, (told, trouble) in bad.items():
        result = {"name": "6.1", "told": told, "wrong": kernels.judge(told, trouble), "reason": ""}
        assert all(isinstance(cell, str) for cell in kernels.row(result)) and kernels.row(result)[-1] in ("wrong", "not had"), name
    assert kernels.row({"name": "5.4", "told": [], "wrong": [], "reason": "the archive has none"})[-1] == "not had"


def check_guest(kernels):
    """Of an innocent run threads of the kernel are told, and processes judged."""
    import emulated
    import guest
    plants = emulated.load_program(os.path.join(ROOT, "ci", "plants"))
    named = guest.lenient(plants)

    def stall(comm, kind):
        return {"cause": "kernel_mutex", "total_ns": 500000000, "culprit": {"comm": comm, "pid": 9, "kind": kind}}
    journal, writer = stall("jbd2/vda-8", "kernel"), stall("pl-writer", "other")
    assert not plants.judge_innocent({"stalls": [journal]}, 5.0) and named == ["jbd2/vda-8: kernel_mutex, 500 ms"]
    assert "pl-writer" in plants.judge_innocent({"stalls": [journal, writer]}, 5.0)
    answer = {"min_count": 20, "min_total_ms": 1000}
    for stalls, total_ns, right in ((20, 12e9, True), (19, 12e9, False), (20, 11e9, False)):  # in 60 s
        assert plants.stalled(answer, {"stalls": stalls, "total_ns": total_ns, "queued_ns": 0, "seconds": 60.0}) == right
    assert guest.settings("quiet upgate.plants=a,b upgate.window=5 x=y") == {"plants": "a,b", "window": "5"}
    assert emulated.ALARM.search("[  9.1] BUG: scheduling while atomic: python3/7/0x2")
    assert not emulated.ALARM.search("[  0.1] Linux version 6.1.0-50-amd64 (gcc-12 12.2.0) #1 SMP PREEMPT_DYNAMIC")


def check_images(kernels):
    named = kernels.images.PACKAGE.match
    assert named("linux-image-6.12.107+deb13-rt-amd64").group(2, 3) == ("6.12", "rt")
    assert named("linux-image-6.1.0-50-cloud-amd64").group(2, 3) == ("6.1", "cloud")
    for other in ("linux-image-6.1.0-50-amd64", "linux-image-6.1.0-50-rt-amd64-unsigned", "linux-image-rt-amd64"):
        assert not named(other), other
    with tempfile.TemporaryDirectory() as folder:
        for name, depends in (("ext4", b"jbd2,mbcache"), ("jbd2", b""), ("mbcache", b""), ("nfs", b""),
                              ("virtio-blk", b"virtio_ring"), ("virtio_ring", b"")):
            with open(os.path.join(folder, name + ".ko"), "wb") as file:
                file.write(b"\0license=GPL\0depends=" + depends + b"\0name=x\0")
        order = list(kernels.images.modules(folder))
        assert order == ["virtio_ring", "virtio_blk", "jbd2", "mbcache", "ext4"], order


def main():
    kernels = load()
    check_judge(kernels)
    check_guest(kernels)
    check_images(kernels)
    return 0


if __name__ == "__main__":
    sys.exit(main())
