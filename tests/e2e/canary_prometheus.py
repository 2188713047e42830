#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus as the source of evidence, scraping a small exporter of ours: counters of both arms become seconds; a query that
gives nothing, a server that is down, a counter that begins anew, a sum that falls, Prometheus itself gone and back; then
ours, one that hangs and one whose clock is set back; canary_hostile.py has those that lie."""
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import canary_rig as rig
from canary_rig import Drive, Liar, say, sums, until, vector


class Exporter:
    """Counters of both arms; `down`: every scrape fails."""

    def __init__(self):
        self.lock, self.down = threading.RLock(), False  # held where several changes are to be seen together
        self.values = {}
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                with outer.lock:
                    lines = ["%s %s" % item for item in outer.values.items()]
                self.send_response(500 if outer.down else 200)
                self.end_headers()
                self.wfile.write(("\n".join(lines) + "\n").encode())

            def log_message(self, *_):
                pass
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()
        for arm in ("baseline", "candidate"):
            self.count(arm, 1000)

    def count(self, arm, requests, errors=0, slow=0):
        """All at once: one scrape sees them together. Of the answered ones, `slow` took 0.1 to 0.5 s, the others less."""
        with self.lock:
            values = self.values

            def more(name, number):
                values[name] = values.get(name, 0) + number
            label = 'arm="%s"' % arm
            more("requests_total{%s}" % label, requests)
            if errors:
                more("errors_total{%s}" % label, errors)
            for le, number in (("0.1", requests - errors - slow), ("0.5", requests - errors), ("+Inf", requests - errors)):
                more('latency_seconds_bucket{%s,le="%s"}' % (label, le), number)

    def forget(self, arm):
        with self.lock:
            for name in [name for name in self.values if 'arm="%s"' % arm in name]:
                del self.values[name]


class Prometheus:
    def __init__(self, folder, exporter):
        self.folder, self.port = folder, rig.free_port()
        self.url = "http://127.0.0.1:%d" % self.port
        with open(os.path.join(folder, "prometheus.yml"), "w", encoding="utf-8") as file:
            file.write("global: {scrape_interval: 2s, scrape_timeout: 2s}\nscrape_configs:\n"
                       "  - {job_name: arms, static_configs: [{targets: ['127.0.0.1:%d']}]}\n" % exporter.port)
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [rig.need("prometheus"), "--config.file=%s/prometheus.yml" % self.folder, "--storage.tsdb.path=%s/data" % self.folder,
             "--web.listen-address=127.0.0.1:%d" % self.port, "--log.level=error"], cwd=self.folder, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)

        def ready():
            assert self.process.poll() is None, "Prometheus does not start"
            try:
                return rig.fetch(self.port, "/-/ready")[0] == 200
            except OSError:
                return False
        assert until(ready, 30, 0.1), "Prometheus is not ready"

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)

    def says(self, query):
        status, body = rig.fetch(self.port, "/api/v1/query?query=" + query)
        return status == 200 and json.loads(body)["data"]["result"]


def queries(arm, errors='errors_total{arm="%s"} or vector(0)', requests='requests_total{arm="%s"}'):
    # That as many are rejected as fail is a query of its own all the same.
    return dict(requests=requests % arm, errors=errors % arm, rejected=errors % arm,
                latency_buckets='sum by (le) (latency_seconds_bucket{arm="%s"})' % arm)


def source(url, step_ms=1000, **more):
    return dict(url=url, step_ms=step_ms, baseline=queries("baseline"), candidate=queries("candidate"), **more)


def gather(drive, wanted, taken, seconds=60):
    """Polls until `wanted` holds for the sums of all seconds taken so far."""
    def step():
        drive.good("poll", 200)
        taken.extend(drive.ask("take"))
        return wanted(sums(taken))
    until(step, seconds, 0)
    return sums(taken)


def first_look(drive):
    """The counters are known now: what grows from here on counts."""
    drive.good("sources")
    assert until(lambda: drive.good("poll", 300) == {} and drive.state()["seen"] >= 12, 60, 0), drive.state()
    assert drive.state()["kept"] == 0 and drive.state()["problem"] == "", drive.state()


def counters_become_seconds(exporter, prometheus):
    with Drive(dict(set=["/bin/true"]), [source(prometheus.url)]) as drive:
        first_look(drive)
        taken, sent = [], 0
        for _ in range(6):
            exporter.count("baseline", 100, errors=2, slow=10)
            exporter.count("candidate", 50, errors=1, slow=40)
            sent += 1
            gather(drive, lambda total: False, taken, 1)
        total = gather(drive, lambda total: total[1]["requests"] >= 50 * sent, taken)
        assert [arm["requests"] for arm in total] == [100 * sent, 50 * sent], total
        assert [arm["errors"] for arm in total] == [2 * sent, sent], total
        assert [sum(second["arms"][arm]["rejected"] for second in taken) for arm in (0, 1)] == [2 * sent, sent], taken
        assert abs(total[0]["timed"] - 98 * sent) <= 4 and abs(total[1]["timed"] - 49 * sent) <= 4, total
        at = [second["at"] for second in taken]
        assert at == sorted(set(at)) and abs(at[-1] - time.time()) < 60, at
        for second in taken:
            for arm in second["arms"]:
                assert arm["errors"] <= arm["requests"], second
        big = max(taken, key=lambda second: second["arms"][1]["requests"])["arms"]
        assert big[0]["p50"] < 0.1 < big[1]["p50"] < 0.5, big
        state = drive.state()
        assert state["problem"] == "" and state["late"] == 0 and state["ago"] < 30, state


def a_counter_begins_anew(exporter, prometheus):
    with Drive(dict(set=["/bin/true"]), [source(prometheus.url)]) as drive:
        first_look(drive)
        taken = []
        exporter.count("baseline", 10)
        exporter.count("candidate", 10)
        gather(drive, lambda total: total[1]["requests"] >= 10, taken)
        with exporter.lock:
            exporter.forget("candidate")  # its process began anew, and has answered 7
            exporter.count("candidate", 7, errors=3)
        exporter.count("baseline", 10)
        total = gather(drive, lambda total: total[1]["requests"] >= 17 and total[0]["requests"] >= 20, taken)
        assert [arm["requests"] for arm in total] == [20, 17], total
        assert total[1]["errors"] in (0, 3), total  # its errors may be a new series, or the old one anew
    summed = source(prometheus.url)
    summed["candidate"]["requests"] = 'sum(requests_total{arm="candidate"})'
    with Drive(dict(set=["/bin/true"]), [summed]) as drive:
        first_look(drive)
        with exporter.lock:
            exporter.forget("candidate")
            exporter.count("candidate", 3)
        assert until(lambda: drive.good("poll", 100) == {} and "has fallen" in drive.state()["problem"], 60, 0), drive.state()
        taken = []
        exporter.count("candidate", 5)
        total = gather(drive, lambda total: total[1]["requests"] >= 5, taken)
        assert total[1]["requests"] == 5, total


def down_and_empty(exporter, prometheus):
    with Drive(dict(set=["/bin/true"]), [source(prometheus.url)]) as drive:
        first_look(drive)
        exporter.down = True
        assert until(lambda: drive.good("poll", 100) == {} and "no series" in drive.state()["problem"], 60, 0), drive.state()
        assert drive.ask("take") == []
        exporter.count("baseline", 40)
        exporter.count("candidate", 40)
        exporter.down = False
        taken = []
        total = gather(drive, lambda total: total[1]["requests"] >= 40 and total[0]["requests"] >= 40, taken)
        assert [arm["requests"] for arm in total] == [40, 40], total  # what was counted meanwhile is there
        assert drive.state()["problem"] == "", drive.state()
    for query, words in (("nothing_total", "no series"), ("requests_total[1m]", "instant"), ("sum(", "parse error"), ("1/0", "no count")):
        empty = source(prometheus.url)
        empty["candidate"] = dict(requests=query)
        with Drive(dict(set=["/bin/true"]), [empty]) as drive:
            drive.good("sources")
            assert until(lambda: drive.good("poll", 50) == {} and words in drive.state()["problem"], 60, 0), (query, drive.state())
            assert "candidate" in drive.state()["problem"]
    misspelled = source(prometheus.url)  # its requests are there, and grow
    misspelled["candidate"] = queries("candidate", errors='error_total{arm="%s"}')
    with Drive(dict(set=["/bin/true"]), [misspelled]) as drive:
        drive.good("sources")
        assert until(lambda: drive.good("poll", 50) == {} and "or vector(0)" in drive.state()["problem"], 60, 0), drive.state()
        exporter.count("candidate", 40)
        exporter.count("baseline", 40)
        total = gather(drive, lambda total: total[0]["requests"] >= 40, [])
        assert [arm["requests"] for arm in total] == [40, 0], total


def prometheus_goes_and_comes_back(exporter, prometheus):
    with Drive(dict(set=["/bin/true"]), [source(prometheus.url)]) as drive:
        first_look(drive)
        taken = []
        prometheus.stop()
        assert until(lambda: drive.good("poll", 100) == {} and "ailed to connect" in drive.state()["problem"], 60, 0), drive.state()
        exporter.count("baseline", 30)
        exporter.count("candidate", 30)
        prometheus.start()
        total = gather(drive, lambda total: total[1]["requests"] >= 30 and total[0]["requests"] >= 30, taken)
        assert [arm["requests"] for arm in total] == [30, 30], total
        assert drive.state()["problem"] == "", drive.state()


def wrong_answers_beside_another_source(exporter, prometheus, folder):
    """Requests by JSON lines, what clients found to be wrong by Prometheus."""
    paths = [os.path.join(folder, name) for name in ("one.jsonl", "two.jsonl")]
    with exporter.lock:
        exporter.values['wrong_total{arm="candidate"}'] = 7
    only_wrong = dict(url=prometheus.url, step_ms=1000, candidate=dict(wrong='wrong_total{arm="candidate"}'))
    with Drive(dict(set=["/bin/true"]), [dict(baseline=paths[0], candidate=paths[1]), only_wrong]) as drive:
        drive.good("sources")
        assert until(lambda: prometheus.says('wrong_total'), 20)
        assert until(lambda: drive.good("poll", 100) == {} and drive.state(1)["seen"] >= 2, 60, 0), drive.state(1)
        with exporter.lock:
            exporter.values['wrong_total{arm="candidate"}'] = 9
        taken = []
        with open(paths[0], "a", encoding="utf-8") as old, open(paths[1], "a", encoding="utf-8") as new:
            for number in range(80):
                for file, every in ((old, 1), (new, 20)):  # the candidate has a request every two seconds
                    if number % every == 0:
                        file.write('{"t": %.6f, "status": 200, "ms": 4.1}\n' % time.time())
                        file.flush()
                drive.good("poll", 100)
                taken.extend(drive.ask("take"))
        total = gather(drive, lambda total: total[1]["requests"] == 4 and total[0]["requests"] == 80, taken)
        assert [arm["requests"] for arm in total] == [80, 4] and [arm["wrong"] for arm in total] == [0, 2], total


def a_query_that_never_gave_a_series_is_no_evidence(exporter, prometheus, folder):
    """Misspelled, beside another source: its requests are not told as if none of their answers was wrong."""
    paths = [os.path.join(folder, name) for name in ("three.jsonl", "four.jsonl")]
    misspelled = dict(url=prometheus.url, step_ms=1000, candidate=dict(wrong='worng_total{arm="candidate"}'))
    with Drive(dict(set=["/bin/true"]), [dict(baseline=paths[0], candidate=paths[1]), misspelled]) as drive:
        drive.good("sources")
        assert until(lambda: drive.good("poll", 100) == {} and "has given no series yet" in drive.state(1)["problem"], 60, 0), drive.state(1)
        drive.ask("take")
        for path in paths:
            with open(path, "a", encoding="utf-8") as file:
                file.write('{"t": %.6f, "status": 200, "ms": 4.1}\n' % time.time())
        assert until(lambda: drive.good("poll", 100) == {} and drive.ask("totals")["requests"] == [1, 1], 60, 0), drive.ask("totals")
        end = time.time() + 5  # a second is finished after two
        while time.time() < end:
            drive.good("poll", 100)
            assert drive.ask("take") == [], "requests of which nobody counts the wrong answers are evidence"
        with exporter.lock:
            exporter.values['worng_total{arm="candidate"}'] = 0
        total = gather(drive, lambda total: total[0]["requests"] == 1 and total[1]["requests"] == 1, [])
        assert [arm["requests"] for arm in total] == [1, 1] and drive.state(1)["problem"] == "", (total, drive.state(1))


def one_that_hangs_and_one_that_is_set_back(folder):
    # One that hangs holds up nothing: another source goes on.
    liar = Liar(lambda query, handler: time.sleep(250))  # longer than the test may take
    path = os.path.join(folder, "old.jsonl")
    only_wrong = dict(url=liar.url, step_ms=200, baseline=dict(wrong="x"), candidate=dict(wrong="x"))
    with Drive(dict(set=["/bin/true"]), [only_wrong, dict(baseline=path, candidate=path + "2")]) as drive:
        drive.good("sources")
        with open(path, "w", encoding="utf-8") as file:
            file.write('{"t": %.3f, "status": 200, "ms": 4.1}\nnonsense\n' % time.time())
        assert until(lambda: drive.good("poll", 100) == {} and drive.ask("totals")["requests"] == [1, 0], 60, 0), drive.ask("totals")
        assert drive.state(1)["dropped"] == 1, drive.state(1)
        total = gather(drive, lambda total: total[0]["requests"] == 1, [], 40)
        assert total[0]["requests"] == 1, "one that hangs holds up finished seconds"
        assert not liar.done, "it did not hang"
    # The clock of Prometheus is set back: what it tells then is older, and no reset.
    clock = {"ahead": 0.0, "value": 1000}
    liar = Liar(lambda query, handler: say(handler, vector(clock["value"], at=time.time() + clock["ahead"])))
    with open(os.path.join(folder, "token"), "w", encoding="utf-8") as file:
        file.write("secret-7\n")
    with Drive(dict(set=["/bin/true"]), [source(liar.url + "/", 100, token_file=folder + "/token")]) as drive:
        drive.good("sources")
        assert until(lambda: drive.good("poll", 50) == {} and drive.state()["seen"] >= 12, 60, 0), drive.state()
        clock.update(ahead=-5.0, value=900)
        assert until(lambda: drive.good("poll", 50) == {} and "set back" in drive.state()["problem"], 60, 0), drive.state()
        clock.update(ahead=0.0, value=1005)
        assert until(lambda: drive.good("poll", 50) == {} and drive.ask("totals")["requests"] == [5, 5], 60, 0), drive.ask("totals")
        assert liar.tokens == {"Bearer secret-7"}, liar.tokens
        os.remove(folder + "/token")  # for a moment there is none
        assert until(lambda: drive.good("poll", 50) == {} and "No such file" in drive.state()["problem"], 60, 0), drive.state()
        with open(os.path.join(folder, "token"), "w", encoding="utf-8") as file:
            file.write("secret-8\n")
        assert until(lambda: drive.good("poll", 50) == {} and len(liar.tokens) == 2, 60, 0), liar.tokens
        assert liar.tokens == {"Bearer secret-7", "Bearer secret-8"}, liar.tokens
    with open(os.path.join(folder, "bad"), "w", encoding="utf-8") as file:
        file.write("two\r\nlines: 1\n")
    for token, words in (("bad", "holds no token"), ("none", "No such file")):
        with Drive(dict(set=["/bin/true"]), [source(liar.url, 100, token_file=folder + "/" + token)]) as drive:
            drive.bad(words, "sources")


def main():
    if rig.without_curl():
        return
    rig.need("prometheus")
    folder = tempfile.mkdtemp(prefix="upgate-prometheus-")
    exporter = Exporter()
    prometheus = Prometheus(folder, exporter)
    assert until(lambda: len(prometheus.says("requests_total") or []) == 2, 20, 0.1), "nothing is scraped"

    def bind(case, *more):
        def run():
            case(*more)
        run.__name__ = case.__name__
        return run
    try:
        rig.run([bind(case, exporter, prometheus) for case in (counters_become_seconds, a_counter_begins_anew, down_and_empty,
                                                               prometheus_goes_and_comes_back)] +
                [bind(case, exporter, prometheus, folder) for case in (wrong_answers_beside_another_source,
                                                                       a_query_that_never_gave_a_series_is_no_evidence)] +
                [bind(one_that_hangs_and_one_that_is_set_back, folder)])
    finally:
        prometheus.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
