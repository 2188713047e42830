#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What goes between processes of the target, also over a network namespace of one of them, and whether it is under way: on a slow link
(tc tbf, where this kernel has it) it is, on the loopback it is not, and neither is what is not read. Skipped without root, capture, ip or
unshare."""
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import connections_job as work  # noqa: E402
import needs  # noqa: E402

BUILD, SOURCE = os.environ["UPGATE_BUILD"], os.environ["UPGATE_SOURCE"]
UPGATE = os.path.join(BUILD, "upgate")
SECONDS, START_S, LINK = 6, 60, "upgate-conn"


def skipped():
    for tool in ("ip", "unshare", "nsenter"):
        if not shutil.which(tool):
            return "no program '%s'" % tool
    return needs.lacks()


class Job:
    def __init__(self, folder):
        self.folder = folder
        script = os.path.join(SOURCE, "tests", "root", "connections_job.py")
        ranks = dict(os.environ, RANK="0", WORLD_SIZE="4")  # of more than two it is said where connections cannot be told
        self.process = subprocess.Popen([sys.executable, "-B", script, "launch", folder], start_new_session=True, env=ranks)
        try:
            self.pids = json.loads(self.read("pids"))
            self.connect()
            self.read("ready")
        except BaseException:
            self.end()
            raise

    def read(self, name):
        deadline = time.monotonic() + START_S
        path = os.path.join(self.folder, name)
        while time.monotonic() < deadline:
            assert self.process.poll() is None, "the job ended"
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    return file.read()
            time.sleep(0.05)
        raise AssertionError("no '%s' in %d s" % (name, START_S))

    def connect(self):
        """The sender's namespace to ours, as soon as it has one of its own."""
        pid, own = str(self.pids["sender"]), os.readlink("/proc/self/ns/net")
        deadline = time.monotonic() + START_S
        while os.readlink("/proc/%s/ns/net" % pid) == own:
            assert time.monotonic() < deadline, "no network namespace"
            time.sleep(0.05)
        inside = ["nsenter", "-t", pid, "-n", "ip"]
        for command in (["ip", "link", "add", LINK, "type", "veth", "peer", "name", "eth0", "netns", pid],
                        ["ip", "address", "add", work.OUTSIDE + "/30", "dev", LINK], ["ip", "link", "set", LINK, "up"],
                        [*inside, "link", "set", "lo", "up"], [*inside, "link", "set", "eth0", "up"],
                        [*inside, "address", "add", work.INSIDE + "/30", "dev", "eth0"]):
            subprocess.run(command, check=True)

    def slow_down(self):
        """False: this machine cannot."""
        done = subprocess.run(["nsenter", "-t", str(self.pids["sender"]), "-n", "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "20mbit",
                               "burst", "8kb", "latency", "2s"], stderr=subprocess.PIPE, text=True) if shutil.which("tc") else None
        return done is not None and done.returncode == 0

    def record(self):
        path = os.path.join(self.folder, "run.db")
        done = subprocess.run([UPGATE, "record", "--pid", str(self.process.pid), "--duration", "%ds" % SECONDS, "-o", path],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        assert done.returncode == 0, done.stdout
        return sqlite3.connect(path)

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        subprocess.run(["ip", "link", "delete", LINK], stderr=subprocess.DEVNULL, check=False)


def went(store, job, sender, receiver):
    """Bytes, rows, looks, and the share of these at which something was under way."""
    row = store.execute("SELECT coalesce(sum(bytes), 0), count(*), coalesce(sum(looks), 0), coalesce(1.0 * sum(underway) / sum(looks), 0) FROM v_connection "
                        "WHERE sender_pid = ? AND receiver_pid = ?", (job.pids[sender], job.pids[receiver])).fetchone()
    print("%s to %s: %d bytes, %d rows, %d looks, under way at %.1f %%" % (sender, receiver, *row[:3], 100 * row[3]), flush=True)
    return row


def check(job, fast=None):
    """The share of looks at which something was under way to the middle. fast: that of the link before it was slowed down."""
    store = job.record()
    missing = json.loads(store.execute("SELECT missing FROM recording").fetchone()[0])
    assert not [sentence for sentence in missing if sentence.startswith("connections")], missing
    bytes_in, rows, looks, under_way = went(store, job, "sender", "middle")
    # A message each 50 ms and a row each second; on a busy machine there are fewer, and fewer looks.
    assert bytes_in > 10 * work.BYTES and rows >= SECONDS / 2 and looks >= 4 * SECONDS, "the link between two namespaces was not followed"
    assert fast is None or under_way > max(0.1, 2 * fast), "27 ms of each message are under way"
    assert fast is not None or under_way < 0.1, "nothing holds it up"
    share = under_way
    ends = store.execute("SELECT DISTINCT sender, receiver FROM v_connection WHERE sender_pid = ?", (job.pids["sender"],)).fetchall()
    assert len(ends) == 1 and ends[0][0].startswith(work.INSIDE + ":") and ends[0][1] == "%s:%d" % (work.OUTSIDE, work.PORT), ends
    bytes_out, rows, looks, under_way = went(store, job, "middle", "reader")
    assert bytes_out > 10 * work.BYTES and looks >= 4 * SECONDS and under_way < 0.1, "the loopback holds nothing up"
    # Its buffer is full since before: nothing comes, and what is left is no slow link, so that there is no row. unit.sockets has one who reads slowly.
    assert went(store, job, "middle", "idler")[1] == 0, "who does not read is no slow link"
    pids = {pid for pid, in store.execute("SELECT sender_pid FROM v_connection UNION SELECT receiver_pid FROM v_connection")}
    assert pids <= set(job.pids.values()), "connections of others"
    store.close()
    os.unlink(os.path.join(job.folder, "run.db"))
    return share


def main():
    why = skipped()
    if why:
        print("skipped: " + why)
        return 77
    with tempfile.TemporaryDirectory(prefix="upgate-connections-", dir=BUILD) as folder:
        job = Job(folder)
        try:
            fast = check(job)
            if job.slow_down():
                check(job, fast)
            else:
                print("no tc tbf here: no slow link")
        finally:
            job.end()
    return 0


sys.exit(main())
