#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs over gloo under torchrun, unchanged and attached to: two ranks that reduce, and a pipeline of four stages. The late one is named with what it does,
computing, waiting for a disk, or held up by an agent that reads its smaps; of clean runs nobody is. A machine that is busy
with other things makes ranks late as well: each case has three tries, and what a try must not do is name the wrong rank. Skipped
without root, capture or a PyTorch with gloo."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import needs  # noqa: E402

BUILD, SOURCE = os.environ["UPGATE_BUILD"], os.environ["UPGATE_SOURCE"]
UPGATE = os.path.join(BUILD, "upgate")
PYTHON = os.path.join(SOURCE, "envs", "candidate", "bin", "python")
SECONDS, TRIES, START_S = 5, 3, 240
AGENT = """
import sys, time
while True:
    open('/proc/%s/smaps_rollup' % sys.argv[1]).read()
    time.sleep(0.05)
"""


def skipped():
    return needs.lacks(symbols=True, gib=4) or (None if os.path.exists(PYTHON) else "no Python environment at envs/candidate")


class Job:
    def __init__(self, folder, job="ranks_job", ranks=2, disk=True):
        self.folder, self.mode_path = folder, os.path.join(folder, job)
        disk = self.shards() if disk else "-"
        self.disk = disk != "-"
        self.mode("clean")
        script = os.path.join(SOURCE, "tests", "root", job + ".py")
        self.process = subprocess.Popen([PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), script,
                                         self.mode_path, disk], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                        start_new_session=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
        self.ranks = [self.await_rank(rank) for rank in range(ranks)]

    def shards(self):
        """A file that can be read past the page cache, or "-"."""
        path = os.path.join(self.folder, "shards")
        try:
            with open(path, "wb") as file:
                for _ in range(16):
                    file.write(os.urandom(4 << 20))
                os.fsync(file.fileno())
            os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
        except OSError:
            return "-"
        return path

    def mode(self, mode):
        with open(self.mode_path + ".new", "w", encoding="utf-8") as file:
            file.write(mode)
        os.replace(self.mode_path + ".new", self.mode_path)

    def await_rank(self, rank):
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.process.stderr.read()[-2000:]
            try:
                with open("%s.rank%d" % (self.mode_path, rank), encoding="utf-8") as file:
                    return int(file.read())
            except (OSError, ValueError):
                time.sleep(0.05)
        raise AssertionError("the job did not start in %d s" % START_S)

    def record(self, mode):
        self.mode(mode)
        store = os.path.join(self.folder, mode + ".db")
        if os.path.exists(store):
            os.unlink(store)
        done = subprocess.run([UPGATE, "record", "--pid", str(self.process.pid), "--duration", "%ds" % SECONDS, "-o", store],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        assert done.returncode == 0, done.stdout
        done = subprocess.run([UPGATE, "stalls", store, "--all", "--format", "json"], stdout=subprocess.PIPE, text=True, timeout=120)
        assert done.returncode == 0
        return json.loads(done.stdout)

    def end(self):
        self.mode("end")
        try:
            code = self.process.wait(timeout=60)
            assert code == 0, self.process.stderr.read()[-2000:]
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)


def late_of(document):
    late = [s for s in document["stalls"] if s["cause"] == "straggler"]
    for stall in late:
        print("    rank %s: %s; %d times, %.1f ms each, %.1f %%" % (stall["culprit"]["rank"], stall["culprit"]["what"], stall["count"],
                                                                stall["late_ns"] / 1e6, 100 * stall["share"]))
    return late


def check_ours(document):
    for stall in document["stalls"]:
        for task in (stall["victim"], stall["culprit"]):
            assert not task or not task["comm"].startswith("upgate"), stall


def case(job, mode, holds):
    """The first try whose answer holds."""
    for attempt in range(1, TRIES + 1):
        document = job.record(mode)
        print("%s, try %d: %s" % (mode, attempt, document["answer"]), flush=True)
        check_ours(document)
        late = late_of(document)
        if holds(late):
            return
    raise AssertionError("%s: not one of %d recordings said so" % (mode, TRIES))


def of_rank(late, rank):
    """The rank, when it is the only one."""
    assert all(stall["culprit"]["rank"] == rank for stall in late), "the wrong rank is named"
    return late[0] if late else None


def is_python(late):
    stall = of_rank(late, 1)
    return stall and stall["culprit"]["what"] == "computing in prepare_features (ranks_job.py)" and stall["victim"] is None


def is_disk(late):
    stall = of_rank(late, 1)
    return stall and stall["culprit"]["what"] == "reads wait for the disk, in read_shard (ranks_job.py)"


def is_agent(late):
    stall = of_rank(late, 1)
    return stall and "smaps" in stall["culprit"]["what"] and [link["to"]["pid"] for link in stall["chain"]] == [is_agent.rank, is_agent.pid]


def is_stage(late):
    stall = of_rank(late, 2)
    return stall and stall["culprit"]["what"] == "computing in attend (ranks_pipeline_job.py)"


def main():
    why = skipped()
    if why:
        print("skipped: " + why)
        return 77
    with tempfile.TemporaryDirectory(prefix="upgate-ranks-", dir=BUILD) as folder:
        job = Job(folder)
        agent = None
        try:
            case(job, "clean", lambda late: not late)
            case(job, "python", is_python)
            if job.disk:
                case(job, "disk", is_disk)
            agent = subprocess.Popen([sys.executable, "-c", AGENT, str(job.ranks[1])])
            is_agent.rank, is_agent.pid = job.ranks[1], agent.pid
            case(job, "agent", is_agent)
        finally:
            if agent:
                agent.kill()
                agent.wait()
            job.end()
    with tempfile.TemporaryDirectory(prefix="upgate-ranks-", dir=BUILD) as folder:
        job = Job(folder, "ranks_pipeline_job", ranks=4, disk=False)
        try:
            case(job, "clean", lambda late: not late)
            case(job, "attend", is_stage)
        finally:
            job.end()
    return 0


sys.exit(main())
