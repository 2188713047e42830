# SPDX-License-Identifier: Apache-2.0
"""What the tests of `upgate canary serve` share: a rollout's store, written as the controller writes it, the server on a free port,
and HTTP by hand. Run the tests, not this file."""
import base64
import contextlib
import glob
import http.client
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import time

BUILD = os.environ["UPGATE_BUILD"]
SOURCE = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HOST = os.path.join(BUILD, "tests/e2e/serve_host")
TOKEN = "a-token-for-the-tests-0123456789"
PAYLOAD = {"name": "ranker", "namespace": "prod", "phase": "Progressing", "checksum": "5f8b"}
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAIL " + what, flush=True)


def finish(what):
    print("%s: %d failed" % (what, len(failures)))
    return 1 if failures else 0


# The rollout's tables of schema 6, for a tree whose schema.sql has none yet.
TABLES = """
CREATE TABLE IF NOT EXISTS rollout (id INTEGER PRIMARY KEY CHECK (id = 1), name TEXT NOT NULL, plan TEXT NOT NULL, state TEXT NOT NULL,
    stage INTEGER, percent REAL, since_ns INTEGER NOT NULL, stage_since_ns INTEGER, reason TEXT NOT NULL, heartbeat_ns INTEGER NOT NULL,
    pid INTEGER, up_baseline INTEGER, up_candidate INTEGER) STRICT;
CREATE TABLE IF NOT EXISTS rollout_stage (number INTEGER PRIMARY KEY, name TEXT NOT NULL, percent REAL NOT NULL, begin_s INTEGER,
    judged_from_s INTEGER, end_s INTEGER, result TEXT) STRICT;
CREATE TABLE IF NOT EXISTS rollout_second (at_s INTEGER, arm INTEGER, stage INTEGER NOT NULL, requests INTEGER NOT NULL,
    errors INTEGER NOT NULL, truncated INTEGER NOT NULL, wrong INTEGER NOT NULL, bins BLOB NOT NULL, rejected INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (at_s, arm)) STRICT,
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rollout_cell (at_s INTEGER, stage INTEGER, metric TEXT, value REAL, low REAL, high REAL, threshold REAL,
    evidence REAL, needed REAL, dispersion REAL, requests INTEGER, missing INTEGER, verdict TEXT NOT NULL,
    PRIMARY KEY (stage, metric, at_s)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rollout_decision (id INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, state_from TEXT NOT NULL,
    state_to TEXT NOT NULL, stage_from INTEGER, stage_to INTEGER, percent_from REAL, percent_to REAL, rule TEXT NOT NULL,
    reason TEXT NOT NULL, who TEXT NOT NULL, evidence TEXT, effect_ns INTEGER) STRICT;
CREATE TABLE IF NOT EXISTS rollout_source (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, seen INTEGER, kept INTEGER, dropped INTEGER,
    lost INTEGER, late INTEGER, last_ns INTEGER, problem TEXT) STRICT;
"""


class Store:
    """A rollout of three stages (aa, 5 %, 25 %) in its second; written as another process does."""

    def __init__(self, path, name="ranker"):
        self.path, self.at_s = path, 1000
        with open(os.path.join(SOURCE, "contracts/schema.sql")) as file:
            schema = file.read()
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.executescript(schema + TABLES)
        self.db.execute("INSERT INTO rollout VALUES (1, ?, ?, 'running', 1, 5.0, 1, 1, 'stage 5% began', ?, 4711, 1, 1)",
                        (name, json.dumps({"gate": {"alpha": 0.01}, "stages": [{"aa": True}, {}, {}]}), time.time_ns()))
        self.db.executescript("INSERT INTO rollout_stage (number, name, percent, begin_s, judged_from_s, end_s, result) VALUES"
                              " (0, 'aa', 5, 900, 905, 950, 'passed'), (1, '5%', 5, 950, 955, NULL, NULL),"
                              " (2, '25%', 25, NULL, NULL, NULL, NULL)")
        self.cell("undecided")

    def cell(self, verdict, stage=1):
        self.at_s += 5
        self.db.execute("INSERT INTO rollout_cell VALUES (?, ?, 'latency_p99', 1.031, 1.024, 1.039, 1.1, 0.5, 5.3, 1, 700, 1200, ?)",
                        (self.at_s, stage, verdict))

    def seconds(self, baseline, candidate, errors=0):
        self.at_s += 1
        self.db.execute("INSERT INTO rollout_second VALUES (?, 0, 1, ?, 0, 0, 0, x'', 0), (?, 1, 1, ?, ?, 0, 0, x'', 0)",
                        (self.at_s, baseline, self.at_s, candidate, errors))

    def state(self, state, reason="because", **columns):
        columns.update(state=state, reason=reason, heartbeat_ns=columns.get("heartbeat_ns", time.time_ns()))
        self.db.execute("UPDATE rollout SET " + ", ".join(name + " = ?" for name in columns), tuple(columns.values()))

    def alive(self):
        self.db.execute("UPDATE rollout SET heartbeat_ns = ?", (time.time_ns(),))

    def decide(self, percent_to):
        self.db.execute("INSERT INTO rollout_decision (at_ns, state_from, state_to, percent_to, rule, reason, who)"
                        " VALUES (?, 'running', 'running', ?, 'soak', 'stage passed', 'controller')", (time.time_ns(), percent_to))

    def stage(self, number, result):
        self.db.execute("UPDATE rollout_stage SET result = ?, end_s = 1 WHERE number = ?", (result, number))

    def close(self):
        self.db.close()


class Server:
    """`serve_host` with some words; use it with `with`. `log` is what it has said, `code` its exit status after the end."""

    def __init__(self, store, *words, listen="127.0.0.1:0", wait=True):
        self.process = subprocess.Popen([HOST, store, "listen=" + listen] + list(words), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.log, self.code, self.port = "", None, None
        os.set_blocking(self.process.stderr.fileno(), False)
        until = time.monotonic() + 60
        while wait and self.port is None and time.monotonic() < until and self.process.poll() is None:
            self.read_log()
            match = re.search(r" on https?://\S*:(\d+)", self.log)
            self.port = int(match.group(1)) if match else None
            time.sleep(0.01)
        if wait and self.port is None:
            self.stop()
            raise RuntimeError("the server does not start: " + self.log)

    def read_log(self):
        data = self.process.stderr.read()
        self.log += data.decode(errors="replace") if data else ""
        return self.log

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.code = self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            check(False, "the server does not end")
        self.read_log()
        return self.code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self.process.stderr.close()

    def ask(self, method, path, body=None, headers=None, timeout=10, context=None):
        """(status, headers, text) of one request on a connection of its own."""
        kind = http.client.HTTPSConnection if context else http.client.HTTPConnection
        connection = kind("127.0.0.1", self.port, timeout=timeout, **({"context": context} if context else {}))
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read().decode()
        finally:
            connection.close()

    def gate(self, query="", name="ranker", **options):
        return json.loads(self.ask("GET", "/v1/gate/%s%s" % (name, query), **options)[2])

    def until(self, condition, seconds=60):
        """Waits for the server to see what was written: it looks once a second."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if condition():
                return True
            time.sleep(0.05)
        return False

    def raw(self, data, timeout=5, shut=False, address=None):
        """What comes back for these bytes until the server closes, or for `timeout` seconds."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout, source_address=(address, 0) if address else None) as client:
            got = b""
            try:
                client.sendall(data)
                if shut:
                    client.shutdown(socket.SHUT_WR)
                while True:
                    more = client.recv(65536)
                    if not more:
                        break
                    got += more
            except (TimeoutError, socket.timeout, ConnectionError):
                pass
            return got

    def rss_kb(self):
        with open("/proc/%d/status" % self.process.pid) as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))

    def cpu_ns(self):
        """What it has computed so far, whoever else has the CPUs: its CLOCK_PROCESS_CPUTIME_ID, as clock_getcpuclockid() names it."""
        return time.clock_gettime_ns((~self.process.pid << 3) | 2)

    def sleeps(self):
        """No thread of it runs, or would if it had a CPU."""
        for path in glob.glob("/proc/%d/task/*/stat" % self.process.pid):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                with open(path) as file:
                    if file.read().rpartition(") ")[2][0] != "S":
                        return False
        return True

    def descriptors(self):
        return len(os.listdir("/proc/%d/fd" % self.process.pid))


def bearer(token=TOKEN):
    return {"Authorization": "Bearer " + token}


def basic(token=TOKEN):
    return {"Authorization": "Basic " + base64.b64encode(("upgate:" + token).encode()).decode()}


def token_file(folder):
    path = os.path.join(folder, "token")
    with open(path, "w") as file:
        file.write(TOKEN + "\n")
    return path
