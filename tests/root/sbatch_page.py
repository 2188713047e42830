#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The batch scripts of docs/PACKAGES.md as they stand there, submitted to a Slurm of this machine. The A/B is sent the signal that Slurm sends before the
time is over, by scancel, which reaches upgate and its sides alike: it ends as inconclusive with the pair that it has, the report is written, the job's
exit code is the verdict's, and --resume goes on from there. The recording holds what torchrun started. Slurm's GPUs are device files that nobody
opens; plan, train.py and torchrun are small ones of this test. Without Slurm, root or capture it is skipped."""
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import needs  # noqa: E402
import rank_rig as rig  # noqa: E402

PAGE = os.path.join(rig.SOURCE, "docs", "PACKAGES.md")
LIMIT_S, GPUS = 60, 8
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL")
# The launches of the first pair end; the next one waits, so that the signal meets it, until the run is gone on with.
PLAN = """baseline: {name: old, env: {SIDE: "a"}}
candidate: {name: new, env: {SIDE: "b"}}
workloads:
  - name: job
    steps_from: "off"
    command: [sh, -c, '[ -e %(folder)s/go ] || [ $(ls %(folder)s/done | wc -l) -lt 2 ] || sleep 60; : > %(folder)s/done/$$; sleep 0.1']
schedule: {looks: [3], interleave: launches, traced_launches: 0, timeout: 100s, voids: 50}
gate: {alpha: 20%%, calibrate: require, parity: {rule: "off"}}
"""
TRAIN = """import time
for _ in range(30):
    time.sleep(0.01)
"""
TORCHRUN = """#!/bin/sh
[ "$1 $2" = "--standalone --nproc-per-node" ] || exit 2
for _ in $(seq "$3"); do %s "$4" & done
wait
"""


def lacks():
    missing = [name for name in ("sbatch", "scontrol", "scancel") if not rig.Slurm.tool(name)]
    return needs.lacks(gib=2) or ("Slurm's daemons need root" if os.geteuid() else None) or rig.Slurm.lacks() or \
        ("no %s (package slurm-client)" % missing[0] if missing else None)


def scripts():
    """That of the A/B, that of the recording."""
    with open(PAGE, encoding="utf-8") as file:
        found = re.findall(r"^```sbatch\n(.*?)^```", file.read(), re.M | re.S)
    assert len(found) == 2 and "upgate ab " in found[0] and "upgate record " in found[1], found
    return found


class Cluster:
    """Slurm, and a directory in which the words of the scripts mean something."""

    def __init__(self, folder):
        self.folder, self.work, self.bin = folder, os.path.join(folder, "work"), os.path.join(folder, "bin")
        for path in (self.work, self.bin, os.path.join(folder, "done"), os.path.join(folder, "slurm")):
            os.makedirs(path)
        os.symlink(rig.UPGATE, os.path.join(self.bin, "upgate"))
        self.write("work/plan.yaml", PLAN % {"folder": folder})
        self.write("work/train.py", TRAIN)
        self.write("bin/torchrun", TORCHRUN % shlex.quote(sys.executable))
        self.slurm = rig.Slurm(os.path.join(folder, "slurm"), gpus=GPUS)
        self.env = dict(self.slurm.env, PATH=self.bin + ":" + os.environ["PATH"], XDG_STATE_HOME=os.path.join(folder, "state"))

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def run(self, *words):
        return subprocess.run(list(words), cwd=self.work, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=LIMIT_S)

    def submit(self, name, script):
        """The job's number."""
        done = self.run("sbatch", "--parsable", self.write(name, script))
        assert done.returncode == 0 and done.stdout.strip().isdigit(), (script, done)
        return done.stdout.strip()

    def state(self, job):
        """(state, exit code)"""
        told = self.run("scontrol", "show", "job", job).stdout
        return re.search(r"\bJobState=(\w+)", told).group(1), int(re.search(r"\bExitCode=(\d+):", told).group(1))

    def said(self, job):
        path = os.path.join(self.work, "slurm-%s.out" % job)
        if not os.path.exists(path):
            return "nothing"
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()[-4000:]

    def await_end(self, job):
        end = time.monotonic() + LIMIT_S
        while (told := self.state(job))[0] not in ENDED:
            assert time.monotonic() < end, "job %s is %s after %d s: %s" % (job, told[0], LIMIT_S, self.said(job))
            time.sleep(0.2)
        return told

    def await_pair(self, job, store):
        end = time.monotonic() + LIMIT_S
        while not rig.rows(store, "SELECT count(*) FROM pair")[0][0]:
            assert self.state(job)[0] not in ENDED and time.monotonic() < end, self.said(job)
            time.sleep(0.2)


def check_ab(cluster, job):
    store = os.path.join(cluster.work, "run-%s.db" % job)
    cluster.await_pair(job, store)
    done = cluster.run("scancel", "--signal=INT", job)
    assert done.returncode == 0, done
    told = cluster.await_end(job)
    assert told == ("FAILED", 3), (told, cluster.said(job))
    assert "interrupted" in cluster.said(job), cluster.said(job)
    assert os.path.getsize(os.path.join(cluster.work, "run-%s.html" % job)) > 10000
    before = rig.rows(store, "SELECT id, state, started_ns FROM pair")
    assert len(before) == 1 and before[0][1] != "failed", (before, cluster.said(job)) # that both sides got the signal, too, is no finding
    cluster.write("go", "")
    done = cluster.run("srun", "-N", "1", "-n", "1", "--gpus-per-node=1", "--cpu-bind=none", "upgate", "ab", "--resume", store)
    assert done.returncode in (0, 1, 3), done # of launches as short as these nothing is certain
    after = rig.rows(store, "SELECT id, state, started_ns FROM pair")
    assert after[:1] == before and sum(state == "valid" for _, state, _ in after) >= 3, after
    assert rig.rows(store, "SELECT state FROM run") == [("done",)], done


def check_record(cluster, job):
    told = cluster.await_end(job)
    assert told == ("COMPLETED", 0), (told, cluster.said(job))
    store = os.path.join(cluster.work, "slow-%s.db" % job)
    count = rig.rows(store, "SELECT count(*) FROM process WHERE kind = 'target'")[0][0]
    assert count > GPUS, (count, cluster.said(job)) # torchrun and what it started


def main():
    why = lacks()
    if why:
        print("skipped: " + why)
        return 77
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1)) # so that Slurm is ended
    judged, recorded = scripts()
    with tempfile.TemporaryDirectory(prefix="upgate-sbatch-", dir=rig.BUILD) as folder:
        try:
            cluster = Cluster(folder)
        except PermissionError as trouble:
            print("skipped: Slurm can be given no GPUs here: %s" % trouble)
            return 77
        try:
            jobs = [cluster.submit("ab.sh", judged), cluster.submit("record.sh", recorded)]
            check_ab(cluster, jobs[0])
            check_record(cluster, jobs[1])
        finally:
            cluster.slurm.close()
    return 0


sys.exit(main())
