#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes `upgate canary serve` with its token, over one kept connection; its linter reads /metrics; and the same
query gives the same answer from both, by GET and by POST. Its own configuration, port and folder; it ends with the test."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse

import canary_serve_rig as rig
from canary_rig import free_port
from canary_serve_players import fetch
from canary_serve_rig import Server, Store, check

CONFIG = """
global: {scrape_interval: 3s, scrape_timeout: 3s}
scrape_configs:
  - job_name: upgate
    authorization: {credentials_file: %s}
    static_configs: [{targets: ["127.0.0.1:%d"]}]
  - job_name: stranger
    static_configs: [{targets: ["127.0.0.1:%d"]}]
"""


def query(base, text, method="GET", headers=None):
    form = urllib.parse.urlencode({"query": text, "time": "%.3f" % time.time()})
    if method == "GET":
        return fetch("GET", base + "/api/v1/query?" + form, headers)
    return fetch("POST", base + "/api/v1/query", dict(headers or {}, **{"Content-Type": "application/x-www-form-urlencoded"}), form.encode())


def samples(answer):
    """{labels of ours: value}, of either server."""
    document = json.loads(answer[1])
    check(document["status"] == "success" and document["data"]["resultType"] == "vector", "an answer: %s" % answer[1][:200])
    found = {}
    for one in document["data"]["result"]:
        check(isinstance(one["value"][0], (int, float)) and isinstance(one["value"][1], str), "a sample: %s" % one)
        labels = tuple(sorted((key, value) for key, value in one["metric"].items() if key not in ("job", "instance")))
        found[labels] = one["value"][1]
    return found


def test(folder, prometheus):
    store = Store(os.path.join(folder, "ranker.db"))
    store.seconds(9000, 500, 4)
    store.db.execute("INSERT INTO rollout_source VALUES (0, 'haproxy_log', 10, 9, 1, 0, 0, 5, NULL)")
    token = rig.token_file(folder)
    with Server(store.path, "name=ranker", "token=" + token) as server:
        text = server.ask("GET", "/metrics", headers=rig.bearer())[2]
        if shutil.which("promtool"):
            lint = subprocess.run(["promtool", "check", "metrics"], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            check(lint.returncode == 0, "promtool: " + lint.stdout)
        config, port = os.path.join(folder, "prometheus.yml"), free_port()
        with open(config, "w") as file:
            file.write(CONFIG % (token, server.port, server.port))
        log = open(os.path.join(folder, "log"), "w+")
        process = subprocess.Popen([prometheus, "--config.file=" + config, "--storage.tsdb.path=" + os.path.join(folder, "data"),
                                    "--web.listen-address=127.0.0.1:%d" % port, "--log.level=warn"], stdout=log, stderr=log)
        base, ours = "http://127.0.0.1:%d" % port, "http://127.0.0.1:%d" % server.port

        def ask(text):
            try:
                return samples(query(base, text))
            except (OSError, ValueError):
                return {}
        try:
            check(server.until(lambda: list(ask('up{job="upgate"}').values()) == ["1"], 60), "Prometheus does not scrape: %s" % ask("up"))
            check(server.until(lambda: list(ask('up{job="stranger"}').values()) == ["0"]), "a scrape without the token: %s" % ask('up{job="stranger"}'))
            for name in ("gate_verdict", 'gate_verdict{stage="all"}', 'gate_ratio{metric="latency_p99"}', "canary_requests_total",
                         'canary_weight{arm!="baseline"}', "canary_state", "canary_source_seen_total", "vector(1)"):
                theirs = ask(name)
                for method in ("GET", "POST"):
                    got = samples(query(ours, name, method, rig.bearer()))
                    check(got == theirs and got, "%s by %s: %s, Prometheus says %s" % (name, method, got, theirs))
            for name in ("gate_verdict{", "no such", "vector("):
                status, answer = query(ours, name, headers=rig.bearer())
                there = query(base, name)
                check(status == there[0] == 400 and json.loads(answer)["errorType"] == json.loads(there[1])["errorType"], "%s: %d %s" % (name, status, answer))
            store.state("rolled_back", "p99")
            store.db.execute("INSERT INTO rollout_decision (at_ns, state_from, state_to, percent_to, rule, reason, who)"
                             " VALUES (1, 'running', 'rolled_back', 0, 'evidence', 'p99', 'controller')")
            check(server.until(lambda: list(ask('gate_verdict{stage="all"}').values()) == ["2"], 60), "the fail does not arrive")
            check(list(ask('rollback_total{reason="evidence"}').values()) == ["1"], "rollback_total: %s" % ask("rollback_total"))
            scrapes = float(list(ask('sum(count_over_time(up{job="upgate"}[1m]))').values())[0])
            check(list(ask('sum(changes(up{job="upgate"}[1m]))').values()) == ["0"], "a scrape has failed in between")
            print("%d scrapes" % scrapes)
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            log.seek(0)
            check("error" not in log.read().lower(), "Prometheus' log")
            log.close()
    store.close()


def main():
    prometheus = shutil.which("prometheus")
    if not prometheus:
        print("skipped: no prometheus on this machine; ci/setup installs it")
        return 77
    with tempfile.TemporaryDirectory(prefix="upgate-prometheus-") as folder:
        test(folder, prometheus)
    return rig.finish("canary serve: Prometheus")


if __name__ == "__main__":
    sys.exit(main())
