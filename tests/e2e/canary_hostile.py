#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sources of evidence that are broken or lie: files that are cut, swapped for something else or full of rubbish, sockets whose place is
taken, clocks that go backwards, a Prometheus that answers anything at all. Each is told in words, and none makes evidence: a
rollout on it ends without a pass."""
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time

from canary_rig import Drive, Liar, evidence, free_port, run, say, sums, until, vector, without_curl

UPGATE = os.path.join(os.environ.get("UPGATE_BUILD", "build/release"), "upgate")
TRAFFIC = dict(socket="/nonexistent", backend="ranker", baseline="old", candidate="new")  # is not opened
HOOKS = dict(set=["/bin/true"])


def log_line(number, server="old", at=None):
    return json.dumps({"upgate": 1, "pid": 7, "front": "in", "seq": number, "back": "ranker", "server": server, "status": 200,
                       "end_us": int((at or time.time()) * 1e6), "us": "1500", "ms": "1", "term": "--", "bytes": "9", "wrong": ""}) + "\n"


def tells(drive, words, number=0, seconds=60):
    assert until(lambda: drive.good("poll", 50) == {} and words in drive.state(number)["problem"], seconds, 0), (words, drive.state(number))


def in_folder(case):
    def call():
        folder = tempfile.mkdtemp(prefix="upgate-hostile-")
        try:
            case(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    call.__name__ = case.__name__
    return call


@in_folder
def a_file_becomes_something_else(folder):
    path = os.path.join(folder, "haproxy.log")
    number = 0

    def write(count, mode="a"):
        nonlocal number
        with open(path, mode, encoding="utf-8") as file:
            for _ in range(count):
                file.write(log_line(number))
                number += 1

    def looks():
        """At the file's length, which it does every 200 ms: before it is as long again."""
        for _ in range(3):
            drive.good("poll", 300)

    def goes_on(kept):
        """Whatever it was, a file with lines is read again."""
        write(5, "w")
        assert until(lambda: drive.good("poll", 50) == {} and drive.state()["kept"] == kept, 60, 0), (kept, drive.state())
        assert drive.state()["problem"] == "", drive.state()

    write(3)
    with Drive(TRAFFIC, [{"file": path}]) as drive:
        drive.good("sources")  # what stood there is passed over
        write(5)
        assert until(lambda: drive.good("poll", 50) == {} and drive.state()["kept"] == 5, 60, 0), drive.state()
        for make in (lambda: os.mkfifo(path), lambda: os.mkdir(path), lambda: os.symlink(os.path.join(folder, "no", "where"), path)):
            os.unlink(path)
            drive.good("poll", 100)  # nobody has the name: what comes into the old file would still be read
            make()
            drive.good("poll", 600)
            assert drive.state()["kept"] == 5 and drive.state()["dropped"] == 0, drive.state()
            os.rmdir(path) if os.path.isdir(path) else os.unlink(path)
            write(0)
        goes_on(10)
        os.truncate(path, 0)
        looks()
        goes_on(15)
        os.truncate(path, 30)  # cut in the middle of a line: the rest of it is one of its own
        looks()
        goes_on(20)
        os.rename(path, path + ".1")
        goes_on(25)
    os.unlink(path)
    for make, words in ((lambda: os.mkfifo(path), "not a regular file"), (lambda: os.mkdir(path), "not a regular file"),
                        (lambda: os.symlink("haproxy.log", path), "symbolic links")):
        make()
        with Drive(TRAFFIC, [{"file": path}]) as drive:
            drive.good("sources")  # it may still come
            tells(drive, words)
            assert drive.ask("take") == []
        os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)


@in_folder
def rubbish_in_a_file(folder):
    path, old, new = (os.path.join(folder, name) for name in ("haproxy.log", "old.jsonl", "new.jsonl"))
    rubbish = [b"\0" * 5000, b"x" * (1 << 20), b'{"upgate":1,' * 100000, b"\xff\xfe\x80" * 100, b"{" * 70000, log_line(1).encode()[:-1].replace(b"old", b"o\0d"),
               b'{"t": 1e400}', b'{"t": NaN, "status": 200}', b'{"t": Infinity}', b'{"t": -1}', b'{"t": 1e-400, "ms": 1e400}']
    for name in (path, old, new):
        open(name, "w").close()
    with Drive(TRAFFIC, [{"file": path}]) as drive, Drive(HOOKS, [{"baseline": old, "candidate": new}]) as rows:
        drive.good("sources")
        rows.good("sources")
        for name in (path, new):
            with open(name, "ab") as file:
                for line in rubbish:
                    file.write(line + b"\n")
        tells(drive, "not understood")
        tells(rows, "not understood")
        for one in (drive, rows):
            state = one.state()
            # A line without any bytes of a server's name is another server's; all others are counted.
            assert state["kept"] == 0 and len(rubbish) - 1 <= state["dropped"] <= len(rubbish), state
            assert all(32 <= ord(c) for c in state["problem"]), state
            assert one.ask("take") == []
        with open(path, "ab") as file:
            file.write(log_line(2).encode())
        with open(new, "ab") as file:
            file.write(b'{"t": %.6f, "status": 200, "ms": 1}\n' % time.time())
        assert sums(evidence(drive, 1))[0]["requests"] == 1
        assert sums(evidence(rows, 1))[1]["requests"] == 1


@in_folder
def times_that_go_backwards(folder):
    """Stamps that fall make no second twice, and none in the future; those far behind are late, and counted as that."""
    old, new = os.path.join(folder, "old.jsonl"), os.path.join(folder, "new.jsonl")
    with Drive(HOOKS, [{"baseline": old, "candidate": new}]) as drive:
        drive.good("sources")
        taken, count = [], 0
        began = time.time()
        while time.time() - began < 6:
            with open(old, "a", encoding="utf-8") as file:
                for back in (0, 0.5, 1, 0.25):
                    file.write('{"t": %.6f, "status": 200, "ms": 1}\n' % (time.time() - back))
                    count += 1
            drive.good("poll", 100)
            taken.extend(drive.ask("take"))
        assert until(lambda: drive.good("poll", 100) == {} and (taken.extend(drive.ask("take")) or
                                                                sums(taken)[0]["requests"] + drive.state()["late"] == count), 60, 0), (count, sums(taken), drive.state())
        at = [second["at"] for second in taken]
        assert at == sorted(set(at)) and at[-1] <= time.time(), at
        assert drive.state()["dropped"] == 0, drive.state()
        # An hour behind, once: late. An hour ahead, once: damaged.
        before = drive.state()
        with open(old, "a", encoding="utf-8") as file:
            file.write('{"t": %.6f, "status": 500, "ms": 1}\n{"t": %.6f, "status": 500, "ms": 1}\n' % (time.time() - 3600, time.time() + 3600))
        assert until(lambda: drive.good("poll", 50) == {} and drive.state()["seen"] == before["seen"] + 2, 60, 0), drive.state()
        state = drive.state()
        assert (state["late"], state["dropped"]) == (before["late"] + 1, before["dropped"] + 1), (before, state)


@in_folder
def a_place_that_is_taken(folder):
    path = os.path.join(folder, "log.sock")
    alive = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    alive.bind(path)
    with Drive(TRAFFIC, [{"listen": "unix:" + path}]) as drive:
        drive.bad(path + "|in use", "sources")
    alive.close()
    os.unlink(path)
    for make, remove in ((lambda: open(path, "w").close(), os.unlink), (lambda: os.mkdir(path), os.rmdir),
                         (lambda: os.symlink("/etc/hostname", path), os.unlink)):
        make()
        with Drive(TRAFFIC, [{"listen": "unix:" + path}]) as drive:
            drive.bad(path + "|in use", "sources")
        assert os.path.lexists(path)  # not ours to remove
        remove(path)
    with Drive(TRAFFIC, [{"listen": "unix:" + os.path.join(folder, "no", "log.sock")}]) as drive:
        drive.bad("No such file", "sources")
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)  # of somebody else's server
    stream.bind(path)
    stream.listen(1)
    with Drive(TRAFFIC, [{"listen": "unix:" + path}]) as drive:
        drive.bad("in use", "sources")
    stream.close()
    # Taken from us while we run: nothing comes any more, and nothing is made up.
    os.unlink(path)
    with Drive(TRAFFIC, [{"listen": "unix:" + path}]) as drive:
        drive.good("sources")
        os.unlink(path)
        drive.good("poll", 300)
        assert drive.ask("take") == [] and not drive.state()["ever"]


@in_folder
def rubbish_in_datagrams(folder):
    port, path = free_port(socket.SOCK_DGRAM), os.path.join(folder, "log.sock")
    with Drive(TRAFFIC, [{"listen": "127.0.0.1:%d" % port}, {"listen": "unix:" + path}]) as drive:
        drive.good("sources")
        udp, unix = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        rubbish = [b"\0" * 100, b"x" * 60000, b"<134>", b"\xff" * 1000, b"{}", b'{"upgate":1}']
        for number, (sender, to) in enumerate(((udp, ("127.0.0.1", port)), (unix, path))):
            for line in [b""] + rubbish:
                sender.sendto(line, to)
                drive.good("poll", 5)
            tells(drive, "not understood", number)
            state = drive.state(number)
            assert (state["kept"], state["dropped"]) == (0, len(rubbish)), state
            sender.sendto(log_line(1, "new").encode(), to)
            assert until(lambda: drive.good("poll", 50) == {} and drive.state(number)["kept"] == 1, 60, 0), drive.state(number)
        assert drive.ask("totals")["requests"] == [0, 2]


def drip(query, handler):
    """A byte a tenth of a second, of an answer that would take an hour."""
    handler.send_response(200)
    handler.send_header("Content-Length", "36000")
    handler.end_headers()
    for _ in range(36000):
        handler.wfile.write(b" ")
        time.sleep(0.1)


def flood(query, handler):
    """A gigabyte."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(1 << 30))
    handler.end_headers()
    for _ in range(1 << 14):
        handler.wfile.write(b" " * (1 << 16))


def endless(query, handler):
    """The same without saying so."""
    handler.send_response(200)
    handler.end_headers()
    for _ in range(1 << 14):
        handler.wfile.write(b" " * (1 << 16))


def queries(url, step_ms=200):
    return dict(url=url, step_ms=step_ms, **{arm: dict(requests="requests_%s" % arm, errors="errors_%s" % arm) for arm in ("baseline", "candidate")})


def prometheus_says_anything():
    other = Liar(lambda query, handler: say(handler, vector(1)))
    cases = [
        (lambda q, h: say(h, {"status": "error", "errorType": "internal", "error": "no\x1b[2J disk"}), "answers 200: no"),
        (lambda q, h: say(h, {"status": "error", "error": "try later"}, 503), "503: try later"),
        (lambda q, h: say(h, b"", 302, Location=other.url + "/api/v1/query"), "answers 302"),
        (lambda q, h: say(h, b"", 307, Location=other.url + "/api/v1/query"), "answers 307"),
        (lambda q, h: say(h, b"", 204), "not Prometheus's"),
        (lambda q, h: say(h, b"", 200), "not Prometheus's"),
        (lambda q, h: say(h, b"<html>"), "not Prometheus's"),
        (lambda q, h: say(h, b"[" * 100000), "not Prometheus's"),
        (lambda q, h: say(h, json.dumps(vector(5)).encode()[:-3]), "not Prometheus's"),
        (lambda q, h: say(h, json.dumps(vector(5)).encode(), Content_Length="100000"), "ailed"),
        (lambda q, h: say(h, {"status": "success"}), "no resultType"),
        (lambda q, h: say(h, {"status": "success", "data": {"resultType": "vector", "result": "many"}}), "no result"),
        (lambda q, h: say(h, {"status": "success", "data": {"resultType": "matrix", "result": []}}), "matrix"),
        (lambda q, h: say(h, vector("NaN")), "no count"),
        (lambda q, h: say(h, vector("+Inf")), "no count"),
        (lambda q, h: say(h, vector("-Inf")), "no count"),
        (lambda q, h: say(h, vector("12 monkeys")), "no count"),
        (lambda q, h: say(h, vector("-5")), "no count"),
        (lambda q, h: say(h, vector(7, "NaN")), "no count"),
        (lambda q, h: say(h, {"status": "success", "data": {"resultType": "vector", "result": [{"metric": [], "value": 5}, 7, None]}}), "no count"),
        (lambda q, h: say(h, vector()), "no series"),
        (drip, "imed out"), (flood, "more than"), (endless, "more than")]
    for number, (answer, words) in enumerate(cases):
        liar = Liar(answer)
        with Drive(HOOKS, [queries(liar.url)]) as drive:
            drive.good("sources")
            began = time.monotonic()
            tells(drive, words, seconds=30)
            state = drive.state()
            assert state["kept"] == 0 and drive.ask("take") == [] and drive.ask("totals")["requests"] == [0, 0], (number, state)
            assert all(32 <= ord(c) for c in state["problem"]), state
            # So much is read, and no more, whoever else needs this machine.
            with open("/proc/%d/status" % drive.process.pid, encoding="ascii") as file:
                peak = [int(line.split()[1]) for line in file if line.startswith("VmHWM")][0]
            assert peak < 600 * 1024, (words, peak)  # kB, of a gigabyte; what ASan holds back included
            assert time.monotonic() - began < 60
    assert other.asked == 0, "a redirect was followed"


def what_cannot_be_counted_is_no_evidence():
    """Requests grow, and one of the queries does not tell: errors that nobody can count are not none."""
    values = {"requests": 1000.0}
    errors = {}

    def answer(query, handler):
        values["requests"] += 0.5
        if "requests" in query or "baseline" in query:
            say(handler, vector(int(values["requests"])))
        else:
            errors["say"](handler)
    liar = Liar(answer)
    for bad in (lambda h: say(h, vector("NaN")), lambda h: say(h, vector(3, "NaN")), lambda h: say(h, b"", 500), lambda h: h.connection.close(),
                lambda h: say(h, {"status": "success", "data": {"resultType": "string", "result": [1, "3"]}})):
        errors["say"] = lambda h: say(h, vector(3))
        with Drive(HOOKS, [queries(liar.url, 100)]) as drive:
            drive.good("sources")
            assert until(lambda: drive.good("poll", 100) == {} and drive.ask("totals")["requests"][1] > 0, 60, 0), drive.state()
            errors["say"] = bad
            assert until(lambda: drive.good("poll", 100) == {} and "errors" in drive.state()["problem"], 60, 0), drive.state()
            before = drive.ask("totals")["requests"]
            assert until(lambda: drive.good("poll", 100) == {} and drive.ask("totals")["requests"][0] > before[0] + 3, 60, 0), drive.state()
            assert drive.ask("totals")["requests"][1] == before[1], (before, drive.ask("totals"))
            errors["say"] = lambda h: say(h, vector(3))  # and what grew meanwhile counts when it is known
            assert until(lambda: drive.good("poll", 100) == {} and drive.ask("totals")["requests"][1] > before[1] + 3, 60, 0), drive.state()
            assert drive.state()["problem"] == "", drive.state()
    # A sum of errors that falls: a server began anew, and how many it had is not known.
    count = {"errors": 50}

    def falls(query, handler):
        values["requests"] += 0.5
        body = vector(int(values["requests"]) if "requests" in query else count["errors"])
        if "errors" in query:
            body["data"]["result"][0]["metric"] = {}
        say(handler, body)
    liar = Liar(falls)
    with Drive(HOOKS, [queries(liar.url, 1000)]) as drive:
        drive.good("sources")
        assert until(lambda: drive.good("poll", 100) == {} and drive.ask("totals")["requests"][1] > 0, 60, 0), drive.state()
        before = drive.ask("totals")["requests"]
        count["errors"] = 1
        assert until(lambda: drive.good("poll", 20) == {} and "has fallen" in drive.state()["problem"], 60, 0), drive.state()
        assert drive.state()["dropped"] >= 1 and drive.ask("totals")["requests"][1] <= before[1] + 2, (before, drive.ask("totals"))


@in_folder
def a_rollout_on_lies_never_passes(folder):
    """The whole controller: a Prometheus whose counts of requests grow and whose errors are NaN, or a series that does not exist;
    one that stands still."""
    values = {"requests": 1000}

    def nan(query, handler):
        values["requests"] += 500
        say(handler, vector(values["requests"] if "requests" in query else "NaN"))

    def misspelled(query, handler):
        values["requests"] += 500
        say(handler, vector(values["requests"]) if "requests" in query else vector())

    def still(query, handler):
        say(handler, vector(1000, at=1700000000))  # stale, in a fresh answer
    for name, answer in (("nan", nan), ("misspelled", misspelled), ("still", still)):
        liar = Liar(answer)
        plan = os.path.join(folder, name + ".yaml")
        with open(os.path.join(folder, "weight"), "w", encoding="ascii") as file:
            file.write("0")
        with open(os.path.join(folder, "set.sh"), "w", encoding="ascii") as file:
            file.write('echo "$1" > %s/weight\n' % folder)
        with open(plan, "w", encoding="utf-8") as file:
            file.write("name: %s\nstore: %s/%s.db\ntraffic: {hooks: {set: [sh, %s/set.sh, \"{percent}\"], get: [cat, %s/weight]}}\n"
                       % (name, folder, name, folder, folder) +
                       "sources: [{prometheus: {url: \"%s\", step: 1s, baseline: {requests: requests_a, errors: errors_a}, "
                       "candidate: {requests: requests_b, errors: errors_b}}}]\n" % liar.url +
                       "stages: [{percent: 10, soak: 1s, warm_up: 0s}, {percent: 100, soak: 1s, warm_up: 0s}]\nstale: 3s\n"
                       "gate: {metrics: {error_rate: {margin: 300%}}}\n")
        done = subprocess.run([UPGATE, "canary", "run", plan, "--wait", "2s"], capture_output=True, text=True, timeout=120)
        assert done.returncode == 3, (name, done.returncode, done.stdout, done.stderr)
        assert "100" not in open(os.path.join(folder, "weight"), encoding="ascii").read(), name


if __name__ == "__main__":
    run([a_file_becomes_something_else, rubbish_in_a_file, times_that_go_backwards, a_place_that_is_taken, rubbish_in_datagrams] +
        ([] if without_curl() else [prometheus_says_anything, what_cannot_be_counted_is_no_evidence, a_rollout_on_lies_never_passes]))
