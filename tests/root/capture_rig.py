# SPDX-License-Identifier: Apache-2.0
"""What the tests of the capture share: subjects, a capture in its own process, waiting with a deadline, skipping.
Times are never judged alone: a loaded machine makes every wait longer, none shorter."""
import json
import os
import queue
import subprocess
import sys
import threading
import time

BUILD = os.environ["UPGATE_BUILD"]
DUMP = os.path.join(BUILD, "tests/root/capture_dump")
SUBJECT = os.path.join(BUILD, "tests/root/capture_subject")
DEADLINE_S = 60
MS = 1_000_000
# enum ug_gap_flag, ug_lock_kind, ug_task_what, ug_sample_why
PREEMPTED, UNFINISHED, NO_OUT, WAKER_IRQ = 1 << 2, 1 << 5, 1 << 6, 1 << 7
OWNER_READER, OWNER_FUTEX, SHORT, NO_IN = 1 << 12, 1 << 13, 1 << 20, 1 << 21
LOCK_MMAP = 2
SEEN, FORK, EXEC, EXIT, RENAME = 1, 2, 3, 4, 5
SAMPLE_TARGET, SAMPLE_OWNER, SAMPLE_NEIGHBOUR = 1, 2, 4


class Failed(Exception):
    pass


def check(condition, *words):
    if not condition:
        raise Failed(" ".join(str(word) for word in words))


def need_capture():
    """Exit 77 with the reason when this machine does not let BPF programs in."""
    words = json.loads(subprocess.run([DUMP, "-d", "0"], stdin=subprocess.DEVNULL, capture_output=True,
                                      text=True, timeout=60, check=False).stdout.splitlines()[0])
    if words["kind"] == "error":
        print(f"skipped: {words['text']}")
        sys.exit(77)


class Lines:
    """A child process, its lines read by a thread, so that nobody waits for ever."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.queue = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.queue.put(line)
        self.queue.put(None)

    def line(self, deadline_s=DEADLINE_S):
        try:
            return self.queue.get(timeout=max(deadline_s, 0.001))
        except queue.Empty:
            return None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class Subject(Lines):
    """capture_subject in one of its modes; .pid, and .id of the thread that it told of."""

    def __init__(self, mode, *arguments):
        super().__init__([SUBJECT, mode, *map(str, arguments)])
        self.pid, self.id = self.process.pid, None
        wanted = {"ready", "id"} if mode in ("pipe", "mutex") else {"ready"}
        while wanted:
            line = self.line(60)
            check(line, "the subject", mode, "did not begin")
            word, number = line.split()
            wanted.discard(word)
            if word == "id":
                self.id = int(number)

    def ask(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        line = self.line()
        check(line and line.startswith("id "), "the subject did not answer", what)
        return int(line.split()[1])

    def end(self):
        self.process.stdin.close()


class Capture(Lines):
    """capture_dump of process ids. Its records come as dictionaries."""

    def __init__(self, *pids, options=()):
        super().__init__([DUMP, "-d", "240000", *options, *map(str, pids)])
        self.records = []
        self.wait(lambda record: record["kind"] in ("ready", "error"), "the capture to begin")
        if self.records[-1]["kind"] == "error":
            raise Failed(self.records[-1]["text"])

    def have(self, wanted, words):
        """One that came already, or comes: the rings are not in order with each other."""
        came = [record for record in self.records if wanted(record)]
        return came[0] if came else self.wait(wanted, words)

    def wait(self, wanted, words, deadline_s=DEADLINE_S):
        """The first record from now on that is wanted."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            line = self.line(end - time.monotonic())
            if line is None:
                break
            self.records.append(json.loads(line))
            if wanted(self.records[-1]):
                return self.records[-1]
        kinds = {}
        for record in self.records:
            kinds[record["kind"]] = kinds.get(record["kind"], 0) + 1
        raise Failed(f"waited for {words} in vain; there were {kinds}, the last: {self.records[-3:]}")

    def stop(self):
        """Let it detach; all records, and the counters by name."""
        self.process.stdin.close()
        self.wait(lambda record: record["kind"] == "count" and record["of"] == "state", "the end")
        return self.records, {record["of"]: record for record in self.records if record["kind"] == "count"}


def length(record):
    return record["in_ns"] - record["out_ns"] if record["kind"] == "gap" else record["end_ns"] - record["begin_ns"]


def is_gap(record, tid, function=None):
    return record["kind"] == "gap" and tid in (None, record["task"]["tid"]) and \
        (function is None or any(function in frame for frame in record["kernel"]))


def main(*tests):
    """Each test by its name; all are run, the first failure decides."""
    need_capture()
    status = 0
    for test in tests:
        begin = time.monotonic()
        try:
            test()
            print(f"ok {test.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)
        except Failed as failed:
            status = 1
            print(f"FAILED {test.__name__}: {failed}", flush=True)
    sys.exit(status)
