#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate canary run` while its HAProxy is reloaded, killed and started again, or begins anew with a socket that may set nothing; and while
lines of its log are lost on the way. The configuration gives both servers the same weight, so that a proxy that has forgotten its weights
gives the candidate half of the traffic."""
import json
import os
import signal
import socket
import sqlite3
import subprocess
import time

import canary_rig as rig
from canary_rig import Load, stage, until

UPGATE = os.path.join(rig.BUILD, "upgate")
TEN_PERCENT = "26 ("  # of 256


class Rollout:
    def __init__(self, proxy, folder, port, soak="20s", timeout="5s", patience="10min", limit=0, options=(), gate=None):
        self.proxy, self.folder, self.store = proxy, folder, os.path.join(folder, "r.db")
        self.plan = os.path.join(folder, "rollout.yaml")
        with open(self.plan, "w", encoding="utf-8") as file:
            file.write("name: r\nstore: %s\ntraffic: {haproxy: {socket: %s, backend: ranker, baseline: old, candidate: new, timeout: %s}}\n"
                       "sources: [{haproxy_log: {listen: \"127.0.0.1:%d\"}}]\n"
                       "stages: [{percent: 10, soak: %s, warm_up: 0s, patience: %s}, {percent: 100, soak: 1s, warm_up: 0s}]\n"
                       "%s\n" % (self.store, proxy.socket, timeout, port, soak, patience,
                                     gate or "gate: {metrics: {wrong_answers: {limit: %d}}, tripwires: {error_rate: 90%%}}" % limit))
        self.log = os.path.join(folder, "run.log")
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([UPGATE, "canary", "run", self.plan, *options], stdout=log, stderr=log)

    def rows(self, sql):
        with sqlite3.connect("file:%s?mode=ro" % self.store, uri=True, timeout=10) as store:
            return store.execute(sql).fetchall()

    def events(self):
        return [row[0] for row in self.rows("SELECT reason FROM rollout_decision WHERE rule = 'proxy' ORDER BY id")]

    def at_ten_percent(self):
        try:
            return TEN_PERCENT in self.proxy.say("get weight ranker/new")
        except OSError:
            return False

    def said(self):
        with open(self.log, encoding="utf-8") as log:
            return log.read()

    def end(self):
        return self.process.wait(120), self.said()

    def report(self):
        path = os.path.join(self.folder, "report.md")
        subprocess.run([UPGATE, "canary", "report", self.plan, "-o", path], check=True, capture_output=True)
        with open(path, encoding="utf-8") as file:
            return file.read()


def reloaded_and_killed_in_the_middle():
    port = rig.free_port(socket.SOCK_DGRAM)
    with stage(weights=(100, 100), log="127.0.0.1:%d" % port) as (proxy, _, folder):
        rollout = Rollout(proxy, folder, port)
        load = Load(proxy.port)
        assert until(rollout.at_ten_percent, 60), rollout.said()
        for number, again in enumerate((proxy.reload, lambda: (proxy.stop(), time.sleep(1), proxy.start()))):
            if number:
                reloaded = dict(load.counts)
            again()
            assert until(lambda: len(rollout.events()) > number, 60), (rollout.events(), rollout.said())
            assert rollout.at_ten_percent(), rollout.said()
        code, said = rollout.end()
        load.stop()
        assert code == 0, (code, said)
        assert set(key[0] for key in reloaded) == {200}, reloaded  # no request failed for the reload
        for event in rollout.events():
            assert "HAProxy was started again (process " in event and "had 50 % of the traffic instead of 10.2 %" in event, event
        assert [row[0] for row in rollout.rows("SELECT rule FROM rollout_decision WHERE rule != 'proxy' ORDER BY id")][-2:] == ["soak", "soak"]
        assert "HAProxy was started again" in rollout.report()
        document = json.loads(subprocess.run([UPGATE, "canary", "status", "--format", "json", rollout.plan], capture_output=True, check=True).stdout)
        assert sum(decision["rule"] == "proxy" for decision in document["decisions"]) == 2, document["decisions"]


def one_that_may_set_nothing_any_more():
    port = rig.free_port(socket.SOCK_DGRAM)
    with stage(weights=(100, 100), log="127.0.0.1:%d" % port) as (proxy, _, folder):
        rollout = Rollout(proxy, folder, port, soak="100s")
        load = Load(proxy.port)
        assert until(rollout.at_ten_percent, 60), rollout.said()
        proxy.lines["level"] = "operator"
        proxy.reload()
        assert until(lambda: "could not be set again" in rollout.said(), 60), rollout.said()
        proxy.lines["level"] = "admin"
        proxy.reload()
        code, said = rollout.end()
        load.stop()
        assert code == 4, (code, said)
        assert proxy.say("get weight ranker/new").startswith("0 ("), said  # not what the file says: the baseline has it all
        reason, to = rollout.rows("SELECT reason, percent_to FROM rollout_decision WHERE rule = 'traffic'")[0]
        assert "its weights could not be set again" in reason and "level admin" in reason and to == 0, (reason, to)


def a_candidate_that_knows_no_path():
    """Or rejects what the old one took: quick answers, and no error by the book. Nothing but a rollout file: the usual metrics."""
    port = rig.free_port(socket.SOCK_DGRAM)
    with stage(weights=(100, 0), log="127.0.0.1:%d" % port) as (proxy, servers, folder):
        servers[1].mode = "gone"
        rollout = Rollout(proxy, folder, port, gate="gate: {alpha: 1%}")
        load = Load(proxy.port)
        code, said = rollout.end()
        load.stop()
        assert code == 1 and "rejected_rate: none on the baseline" in said, (code, said)
        assert proxy.say("get weight ranker/new").startswith("0 ("), said
        assert "Rejected rate" in rollout.report()


def killed_and_the_proxy_is_another_one():
    """Nobody watches the candidate: what refuses a rollout refuses no way back, neither of a run nor of an abort."""
    for words, ends in (("run", 2), ("abort", 0)):
        port = rig.free_port(socket.SOCK_DGRAM)
        with stage(("old", "new", "other"), weights=(100, 0, 0), log="127.0.0.1:%d" % port) as (proxy, _, folder):
            rollout = Rollout(proxy, folder, port, soak="100s")
            load = Load(proxy.port)
            assert until(rollout.at_ten_percent, 60), rollout.said()
            rollout.process.kill()
            rollout.process.wait()
            proxy.say("set weight ranker/other 7")
            done = subprocess.run([UPGATE, "canary", words, rollout.plan], capture_output=True, text=True)
            load.stop()
            assert done.returncode == ends, (done.returncode, done.stderr)
            assert proxy.say("get weight ranker/new").startswith("0 ("), done.stderr
            assert words == "abort" or ("'other'" in done.stderr and "brought to the baseline" in done.stderr), done.stderr


def two_directories():
    """A store of a relative name is another one in another directory. Who asks there for an abort is not told that nothing has begun."""
    port = rig.free_port(socket.SOCK_DGRAM)
    with stage(weights=(100, 0), log="127.0.0.1:%d" % port) as (proxy, _, folder):
        rollout = Rollout(proxy, folder, port, soak="100s")
        load = Load(proxy.port)
        assert until(rollout.at_ten_percent, 60), rollout.said()
        other = os.path.join(folder, "other")
        os.mkdir(other)
        with open(rollout.plan, encoding="utf-8") as plan, open(os.path.join(other, "again.yaml"), "w", encoding="utf-8") as again:
            again.write(plan.read().replace(rollout.store, "r.db").replace("127.0.0.1:%d" % port, "127.0.0.1:%d" % rig.free_port(socket.SOCK_DGRAM)))
        asked = subprocess.run([UPGATE, "canary", "abort", "again.yaml"], cwd=other, capture_output=True, text=True)
        assert asked.returncode == 2 and "'r.db' is not in '%s': the rollout was begun in another directory" % os.path.realpath(other) in asked.stderr, asked.stderr
        second = subprocess.run([UPGATE, "canary", "run", "again.yaml"], cwd=other, capture_output=True, text=True, timeout=60)
        assert second.returncode == 4 and "another controller moves the backend 'ranker'" in second.stderr, (second.returncode, second.stderr)
        assert rollout.at_ten_percent() and rollout.process.poll() is None, rollout.said()
        assert subprocess.run([UPGATE, "canary", "abort", rollout.store], capture_output=True).returncode == 0
        assert rollout.end()[0] == 3
        load.stop()


def lost_log_lines():
    for limit, passes in ((0, False), (100, True)):
        port = rig.free_port(socket.SOCK_DGRAM)
        relay = rig.Relay(port)
        with stage(weights=(100, 0), log="127.0.0.1:%d" % relay.port) as (proxy, _, folder):
            rollout = Rollout(proxy, folder, port, soak="5s", patience="15s", limit=limit, options=("--wait", "0s"))
            load = Load(proxy.port)
            assert until(rollout.at_ten_percent, 60), rollout.said()
            assert until(lambda: rollout.rows("SELECT 1 FROM rollout_second WHERE requests > 0"), 60), rollout.said()
            relay.loses = lambda number: relay.lost < 7
            code, said = rollout.end()
            load.stop()
            lost = rollout.rows("SELECT lost FROM rollout_stage ORDER BY number")[0][0]
            assert relay.lost == 7 and lost == 7, (relay.lost, lost, said)
            assert code == (0 if passes else 3), (code, said)
            words = "wrong_answers would pass, but 7 log lines of this stage were lost, and if each was the candidate's worst it would not"
            assert (words in said) != passes and (words in rollout.report()) != passes, said


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    rig.need("haproxy")
    rig.run([reloaded_and_killed_in_the_middle, one_that_may_set_nothing_any_more, a_candidate_that_knows_no_path, killed_and_the_proxy_is_another_one,
             two_directories, lost_log_lines])
