#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""upgate-load against a server of the test that answers wrongly in every way: each request ends in exactly one outcome, of
the kind that was played; an idle connection that is closed is no failure; the rate and the curve are held; bad usage."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(SOURCE, "ci", "canary"))
import stage  # noqa: E402

failures = []


def check(what, good, detail=""):
    print("%-4s %s%s" % ("ok" if good else "FAIL", what, "" if good else ": %s" % (detail,)), flush=True)
    if not good:
        failures.append(what)


def answer(body, status="200 OK", headers=""):
    return ("HTTP/1.1 %s\r\nContent-Length: %d\r\nx-upgate-side: mine\r\n%s\r\n%s" % (status, len(body), headers, body)).encode()


def right(number):
    return answer('{"id":%d,"scores":[0.5]}' % number)


def chunked(number):
    body = '{"id":%d,"scores":[0.5]}' % number
    return ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nx-upgate-side: mine\r\n\r\n5\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n"
            % (body[:5], len(body) - 5, body[5:])).encode()


class Played:
    """Answers request N with play(N): bytes, and whether the connection ends behind them. Counts what it reads."""

    def __init__(self, play):
        self.play, self.requests, self.connections = play, 0, 0
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _address = self.listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        data = b""
        with client:
            while True:
                match = re.search(rb"\r\n\r\n", data)
                length = re.search(rb"Content-Length: (\d+)", data)
                if match and (not length or len(data) >= match.end() + int(length.group(1))):
                    end = match.end() + (int(length.group(1)) if length else 0)
                    number = re.search(rb'"id":(\d+)', data)
                    data = data[end:]
                    self.requests += 1
                    back, close = self.play(int(number.group(1)) if number else 0)
                    try:
                        client.sendall(back)
                    except OSError:
                        return
                    if close:
                        return
                    continue
                try:
                    more = client.recv(65536)
                except OSError:
                    return
                if not more:
                    return
                data += more

    def close(self):
        self.listening.close()


def send(play, *options, requests=200, rate=500):
    """(account, server, exit status)"""
    server = Played(play)
    if "--timeout" not in options:
        options = ("--timeout", "60s") + options  # the server is of Python, and the machine may be busy
    run = subprocess.run([stage.LOAD, "--requests", str(requests), "--rate", str(rate), "--kind", "dlrm", "--features", "14..28", "--quiet"]
                         + list(options) + ["http://127.0.0.1:%d/score" % server.port], capture_output=True, text=True, timeout=120)
    server.close()
    try:
        return json.loads(run.stdout), server, run.returncode
    except ValueError:
        raise RuntimeError("upgate-load: exit %d: %s" % (run.returncode, run.stderr)) from None


def expect(what, account, **want):
    got = {key: account["wrong_kinds"][key] if key in account["wrong_kinds"] else account[key] for key in want}
    sums = account["sent"] == sum(account[key] for key in ("ok", "http_error", "timed_out", "lost", "truncated", "wrong"))
    check(what, got == want and sums and account["balanced"], (got, want, account))


def every(n, special, normal=right):
    """Request 0, n, 2n… gets special(number), the others a right answer."""
    return lambda number: special(number) if number % n == 0 else (normal(number), False)


def outcomes():
    account, server, code = send(lambda number: (right(number), False))
    expect("all right", account, ok=200, failed=0, retried=0, extra=0)
    check("exit 0", code == 0 and server.requests == 200)
    account, _server, code = send(lambda number: (chunked(number), False))
    expect("chunks", account, ok=200, failed=0)
    account, server, _code = send(lambda number: (answer('{"id":%d,"scores":[1]}' % number, headers="Connection: close\r\n"), True))
    expect("a connection for each request", account, ok=200, failed=0, connections_opened=200)
    account, _server, code = send(every(10, lambda number: (answer("{}", "503 Busy"), False)))
    expect("503", account, ok=180, http_error=20, failed=20)
    check("exit 1, the status is named", code == 1 and account["http_errors"] == {"503": 20}, account["http_errors"])
    account, _server, _code = send(every(10, lambda number: (right(number)[:-5], True)))
    expect("cut in the body", account, ok=180, truncated=20)
    account, _server, _code = send(every(10, lambda number: (chunked(number)[:-5], True)))
    expect("cut before the last chunk", account, ok=180, truncated=20)
    account, _server, _code = send(every(10, lambda number: (b"HTTP/1.1 200", True)))
    expect("cut in the status", account, ok=180, truncated=20)
    account, _server, _code = send(every(10, lambda number: (answer('{"id":%d,"scores":[null]}' % number), False)))
    expect("not finite", account, ok=180, not_finite=20)
    account, _server, _code = send(every(10, lambda number: (answer("<html>"), False)))
    expect("not JSON", account, ok=180, malformed=20)
    account, _server, _code = send(every(10, lambda number: (b"SSH-2.0\r\n", True)))
    expect("not HTTP", account, ok=180, malformed=20)
    account, _server, _code = send(every(10, lambda number: (right(number + 1000), False)))
    expect("swapped", account, ok=180, swapped=20)
    # One connection: the request before has been answered by then.
    account, _server, _code = send(every(10, lambda number: (right(number - 1 if number else 1000), False)), "--connections", "1")
    expect("answered twice, by another's answer", account, ok=180, doubled=19, swapped=1)
    account, _server, _code = send(every(10, lambda number: (right(number) + right(number), False)))
    expect("answered twice, on one connection", account, ok=200, extra=20, failed=20)
    wrong = every(10, lambda number: (answer('{"id":%d,"scores":[0.6]}' % number), False))
    account, _server, _code = send(wrong, "--reference", "mine", "--pool", "1", "--connections", "1")
    # One connection: request 0 is answered first. It is the reference, and it is wrong: the others differ from it, but for the 19 like it.
    expect("scores are compared", account, ok=20, scores=180, compared=199)


def endings():
    account, _server, _code = send(every(10, lambda number: (time.sleep(12), (b"", True))[1]), "--timeout", "4s")
    expect("no answer in time", account, ok=180, timed_out=20)
    account, server, _code = send(lambda number: (b"", True))
    # None of these connections had carried an answer: nothing may be sent again.
    expect("closed without an answer, new connections", account, ok=0, lost=200, retried=0)
    check("nothing was sent twice", server.requests == 200, server.requests)
    state = {"closed": set()}

    def close_once(number):
        if number % 10 == 9 and number not in state["closed"]:
            state["closed"].add(number)
            return b"", True
        return right(number), False
    account, server, _code = send(close_once, "--connections", "1", rate=100)
    expect("closed before the first byte, a used connection: sent again once", account, ok=200, failed=0, retried=20)
    check("as often as it says", server.requests == 220, server.requests)
    account, server, _code = send(lambda number: (right(number), True), rate=100)
    expect("closed after each answer without a word", account, ok=200, failed=0)
    check("none was computed twice", server.requests == 200, server.requests)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        run = subprocess.run([stage.LOAD, "--requests", "50", "--rate", "500", "--kind", "dlrm", "--features", "14", "--quiet",
                              "http://127.0.0.1:%d" % nobody.getsockname()[1]], capture_output=True, text=True, timeout=60)
        account = json.loads(run.stdout)
        expect("nobody listens", account, lost=50, failed=50, retried=0)
        check("nobody listens: exit 1", run.returncode == 1)


def times(folder):
    account, _server, _code = send(lambda number: (right(number), False), "--duration", "4s", requests=10**6, rate=500)
    check("a rate is held", abs(account["sent"] - 2000) < 5 * 2000**0.5, account["sent"])
    curve = os.path.join(folder, "curve")
    with open(curve, "w", encoding="ascii") as file:
        file.write("# a ramp\n0 0\n2,1000\n3 1000\n")
    log = os.path.join(folder, "log.csv")
    account, _server, _code = send(lambda number: (right(number), False), "--curve", curve, "--arrivals", "even", "--scale", "0.2", "--log", log,
                                   requests=10**6)
    check("a curve is followed", account["sent"] in (399, 400) and account["failed"] == 0, account)
    with open(log, encoding="ascii") as file:
        lines = file.read().splitlines()
    due = [int(line.split(",")[1]) for line in lines[1:]]
    # The rate grows by 100 a second each second: 50 t^2 by then. The first is due at 0.14 s, so 50 * 1.14^2.
    early = sum(1 for at in due if at < min(due) + 1e9)
    check("the log has each request, by its time", len(due) == account["sent"] and 64 <= early <= 66, (len(due), early))
    # One connection and answers of 50 ms at 40/s: twice of what it can do. The wait counts, from when a request was due.
    account, _server, _code = send(lambda number: (time.sleep(0.05), (right(number), False))[1], "--connections", "1", "--timeout", "20s",
                                   "--arrivals", "even", requests=80, rate=40)
    check("latency counts from when a request was due", account["latency_ms"]["max"] > 1500, account["latency_ms"])
    server = Played(lambda number: (right(number), False))
    load = stage.Load(folder, server.port, "--rate", "200", "--duration", "10min", "--kind", "dlrm", "--features", "14")
    stage.until(lambda: server.requests > 100, 60)
    answered = server.requests
    load.signal(signal.SIGTERM)
    account = load.account(60)
    server.close()
    check("SIGTERM ends it with an account", account["failed"] == 0 and 100 < answered <= account["sent"] < 60 * 200 and account["balanced"], account)


def usage(folder):
    bad = os.path.join(folder, "bad-curve")
    with open(bad, "w", encoding="ascii") as file:
        file.write("0 1\n1 x\n")
    some = ["--kind", "dlrm", "--features", "14", "http://127.0.0.1:1"]
    for words, part in (([], "URL is missing"), (["ftp://x"], "http://"), (["http://127.0.0.1:99999"], "port"), (["--rat", "x"], "--rate"),
                        (["--rate", "0"] + some, "--rate"), (["--rate", "x"] + some, "--rate"), (["--wrong"] + some, "unknown option"),
                        (["--features", "9..3"] + some[:2] + some[4:], "--features"), (["--curve", bad] + some, ":2:"),
                        (["--timeout", "0s"] + some, "--timeout"), (["--long", "200%"] + some, "--long"), (some + ["http://x"], "more than one")):
        run = subprocess.run([stage.LOAD] + words, capture_output=True, text=True, timeout=60)
        check("exit 2: %s" % " ".join(words[:2]), run.returncode == 2 and part in run.stderr, run.stderr)
    run = subprocess.run([stage.LOAD, "http://127.0.0.1:1"], capture_output=True, text=True, timeout=60)
    check("exit 4: /health cannot be asked", run.returncode == 4 and "--features" in run.stderr, run.stderr)
    run = subprocess.run([stage.LOAD, "--requests", "1", "--output", "/nonexistent/x"] + some, capture_output=True, text=True, timeout=60)
    check("exit 4: the account cannot be written", run.returncode == 4 and "/nonexistent/x" in run.stderr, run.stderr)


def main():
    if not os.path.exists(stage.LOAD):
        print("skipped: upgate-load is not built")
        return stage.EXIT_SKIP
    with tempfile.TemporaryDirectory(prefix="upgate-") as folder:
        outcomes()
        endings()
        times(folder)
        usage(folder)
    print("%d failed" % len(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
