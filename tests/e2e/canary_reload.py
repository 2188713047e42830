#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate canary run` while its HAProxy is reloaded, killed and started again, or begins anew with a socket that may set nothing. The
configuration gives both servers the same weight, so that a proxy that has forgotten its weights gives the candidate half of the traffic."""
import json
import os
import signal
import socket
import sqlite3
import subprocess
import time

import canary_rig as rig
from canary_rig import Load, stage, wait_for

UPGATE = os.path.join(rig.BUILD, "upgate")
TEN_PERCENT = "26 ("  # of 256


class Rollout:
    def __init__(self, proxy, folder, port, soak="20s", timeout="5s"):
        self.proxy, self.folder, self.store = proxy, folder, os.path.join(folder, "r.db")
        self.plan = os.path.join(folder, "rollout.yaml")
        with open(self.plan, "w", encoding="utf-8") as file:
            file.write("name: r\nstore: %s\ntraffic: {haproxy: {socket: %s, backend: ranker, baseline: old, candidate: new, timeout: %s}}\n"
                       "sources: [{haproxy_log: {listen: \"127.0.0.1:%d\"}}]\n"
                       "stages: [{percent: 10, soak: %s, warm_up: 0s}, {percent: 100, soak: 1s, warm_up: 0s}]\n"
                       "gate: {metrics: {wrong_answers: {limit: 0}}, tripwires: {error_rate: 90%%}}\n" % (self.store, proxy.socket, timeout, port, soak))
        self.log = open(os.path.join(folder, "run.log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen([UPGATE, "canary", "run", self.plan], stdout=self.log, stderr=self.log)

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
        self.log.flush()
        self.log.seek(0)
        return self.log.read()

    def end(self):
        code = self.process.wait(120)
        said = self.said()
        self.log.close()
        return code, said

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
        assert wait_for(rollout.at_ten_percent, 60), rollout.said()
        for number, again in enumerate((proxy.reload, lambda: (proxy.stop(), time.sleep(1), proxy.start()))):
            if number:
                reloaded = dict(load.counts)
            again()
            assert wait_for(lambda: len(rollout.events()) > number, 60), (rollout.events(), rollout.said())
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
        rollout = Rollout(proxy, folder, port, soak="100s", timeout="1s")
        load = Load(proxy.port)
        assert wait_for(rollout.at_ten_percent, 60), rollout.said()
        proxy.lines["level"] = "operator"
        proxy.reload()
        assert wait_for(lambda: rollout.rows("SELECT 1 FROM rollout_decision WHERE rule = 'traffic'"), 60), rollout.said()
        proxy.lines["level"] = "admin"
        proxy.reload()
        code, said = rollout.end()
        load.stop()
        assert code == 4, (code, said)
        assert proxy.say("get weight ranker/new").startswith("0 ("), said  # not what the file says: the baseline has it all
        reason, to = rollout.rows("SELECT reason, percent_to FROM rollout_decision WHERE rule = 'traffic'")[0]
        assert "its weights could not be set again" in reason and "level admin" in reason and to == 0, (reason, to)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    rig.need("haproxy")
    rig.run([reloaded_and_killed_in_the_middle, one_that_may_set_nothing_any_more])
