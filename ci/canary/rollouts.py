# SPDX-License-Identifier: Apache-2.0
"""Rollout plans for the stage (stage.py), `upgate canary` on them, and what their stores say afterwards. Knows only what
users may rely on: the plan, the verbs, the exit codes, the table rollout_decision."""
import contextlib
import json
import os
import sqlite3
import subprocess

from stage import UPGATE, Process

PROMOTED, ROLLED_BACK, PAUSED = 0, 1, 3

PLAN = """\
name: {name}
store: {folder}/{name}.rollout.db
traffic:
  haproxy: {{socket: {socket}, backend: ranker, baseline: old, candidate: new}}
sources:
  - {source}
stages:
{stages}
gate:
  alpha: 1%
  metrics: {{{metrics}}}
  tripwires: {{error_rate: 20%, unreachable: 3}}
rollback: {{drain: 5s}}
"""

# The first stage has the baseline alone: it teaches how much counts and latencies spread here.
STAGES = ("{percent: 50, name: aa, soak: 8s}", "{percent: 10, soak: 6s, requests: 300}", "{percent: 50, soak: 8s}",
          "{percent: 100, soak: 5s}")
METRICS = "error_rate: {margin: 50%}, latency_p50: {margin: 100%}, wrong_answers: {limit: 0}"


def has_verb():
    """Whether this build has `upgate canary`."""
    with contextlib.suppress(OSError):
        return subprocess.run([UPGATE, "canary", "--help"], capture_output=True).returncode == 0
    return False


class Rollout:
    """A plan on disk; run() makes the controller."""

    def __init__(self, folder, name, proxy, stages=STAGES, metrics=METRICS, source=None):
        self.folder, self.name = folder, name
        self.plan, self.store = os.path.join(folder, name + ".yaml"), os.path.join(folder, name + ".rollout.db")
        for path in (self.store, self.store + "-wal", self.store + "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        with open(self.plan, "w", encoding="utf-8") as file:
            file.write(PLAN.format(name=name, folder=folder, socket=proxy.socket, source=source or 'haproxy_log: {listen: "%s"}' % proxy.listen,
                                   stages="\n".join("  - " + stage for stage in stages), metrics=metrics))

    def run(self):
        return Process(self.folder, self.name + "-controller", [UPGATE, "canary", "run", self.plan, "--quiet"])

    def status(self):
        """upgate.rollout/1"""
        run = subprocess.run([UPGATE, "canary", "status", self.plan, "--format", "json"], capture_output=True, check=True)
        return json.loads(run.stdout)

    def report(self, path):
        return subprocess.run([UPGATE, "canary", "report", self.plan, "-o", path, "--quiet"], capture_output=True, text=True)

    def decisions(self):
        """Rows of rollout_decision as dictionaries, in order."""
        with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % self.store, uri=True)) as store:
            store.row_factory = sqlite3.Row
            return [dict(row) for row in store.execute("SELECT * FROM rollout_decision ORDER BY id")]
