#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reference servers as a client sees them: native, and torch under each interpreter here that has torch and aiohttp (or
those named on the command line). Ready only when warm; one API; batches; bad input; drains and ends without a failed request;
models swapped under load; planted faults that are really there."""
import concurrent.futures
import glob
import http.client
import json
import math
import multiprocessing
import os
import resource
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

GOOD = [0.5] * 13 + [1, 2, 3]
failures = []


def check(what, good, detail=""):
    print("%-4s %s%s" % ("ok" if good else "FAIL", what, "" if good else ": %s" % (detail,)), flush=True)
    if not good:
        failures.append(what)


class Kind:
    """native, or torch under an interpreter."""

    def __init__(self, name, python, folder):
        self.name, self.python, self.folder, self.count = name, python, folder, 0

    def start(self, *options, plant=None, ready=True):
        self.count += 1
        server = stage.Server(self.folder, "%s-%d" % (self.name, self.count), *options, python=self.python, plant=plant)
        return server.ready() if ready else server

    def load(self, server, *options):
        self.count += 1
        return stage.Load(self.folder, server.port, "--timeout", "60s", *options, name="load-%d" % self.count)  # a busy machine fails no request

    def check(self, what, good, detail=""):
        check("%s: %s" % (self.name, what), good, detail)


def readiness(kind, up):
    server = kind.start(plant="warm:6s", ready=False)
    up.append(server)
    kind.check("not ready before it is warm", stage.get(server.port, "/ready")[0] == 503)
    kind.check("healthy before it is warm", stage.get(server.port, "/health")[0] == 200)
    kind.check("no score before it is warm", stage.score(server.port, 1, GOOD)[0] == 503)
    server.ready()
    status, headers, body = stage.get(server.port, "/ready")
    kind.check("ready when warm", status == 200 and body["ready"] and headers["x-upgate-side"] == server.side, body)
    return server


def api(kind, server):
    for name in (7, "seven", "ü\"\\"):
        status, headers, body = stage.score(server.port, name, GOOD)
        kind.check("the id %r comes back" % name, status == 200 and body["id"] == name and body["model"] == "dlrm-small-1", body)
        kind.check("a score is a probability", len(body["scores"]) == 1 and 0 < body["scores"][0] < 1, body)
        kind.check("the side is named", headers["x-upgate-side"] == server.side and "x-upgate-wrong" not in headers)
    status, _headers, body = stage.get(server.port, "/health")
    kind.check("health says what the model takes", body["kind"] == "dlrm" and body["features"][0] == 14, body)
    bad = [
        (b"", 400, "not JSON"), (b"{", 400, "not JSON"), (b"[" * 50000, 400, "not JSON"), (b"\xff\xfe", 400, "not JSON"),
        (b'{"features":[1]}', 400, "'id'"), (b'{"id":1}', 400, "'features'"), (b'{"id":1,"features":[]}', 400, "'features'"),
        (b'{"id":1,"features":["1"]}', 400, "not a number"), (b'{"id":1,"features":[NaN]}', 400, "not JSON"),
        (b'{"id":1,"features":[1,2]}', 400, "takes 14 to"),
        (json.dumps({"id": 1, "features": [0] * 13 + [-1]}).encode(), 400, "features[13]"),
        (json.dumps({"id": 1, "features": [1e7] + [0] * 13}).encode(), 400, "features[0]"),
        (json.dumps({"id": "x" * 1000, "features": GOOD}).encode(), 400, "longer"),
        (b" " * (70 << 10), 413, "64 KiB"),
    ]
    for body, want, part in bad:
        status, _headers, words = stage.get(server.port, "/score", body)
        kind.check("refused: %.40r" % body, status == want and words and part in words["error"], (status, words))
    kind.check("unknown path", stage.get(server.port, "/nothing")[0] == 404)
    kind.check("wrong method", stage.get(server.port, "/score")[0] == 405)
    kind.check("still answers", stage.score(server.port, 1, GOOD)[0] == 200)


def batching(kind, up):
    server = kind.start("--max-batch", "16", "--max-wait", "20ms")
    up.append(server)
    lists = [[round(math.sin(i + j), 3) for j in range(13)] + [i, 2 * i] for i in range(96)]
    alone = [stage.score(server.port, i, values)[2]["scores"][0] for i, values in enumerate(lists)]
    before = server.stats()
    # One thread on connections that are there already: what 96 threads send on a busy machine does not come at once.
    clients = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=60) for _ in lists]
    bodies = [json.dumps({"id": i, "features": values}).encode() for i, values in enumerate(lists)]
    for client in clients:
        client.connect()
    for client, body in zip(clients, bodies):
        client.request("POST", "/score", body)
    together = [json.loads(client.getresponse().read()) for client in clients]
    for client in clients:
        client.close()
    after = server.stats()
    batches = after["batches"] - before["batches"]
    kind.check("96 requests at once make batches", 6 <= batches <= 48, batches)
    kind.check("each gets the answer to its own request", [body["id"] for body in together] == list(range(96)))
    worst = max(abs(body["scores"][0] - one) / one for body, one in zip(together, alone))
    kind.check("a batch changes no score", worst < 1e-5, worst)
    kind.check("inputs make a difference", len(set(round(one, 6) for one in alone)) > 90)


def transformer(kind, up):
    server = kind.start("--model", "transformer")
    up.append(server)
    likely = stage.score(server.port, 1, list(b"the t"))
    kind.check("transformer: a log-probability", likely[0] == 200 and likely[2]["scores"][0] < 0, likely)
    kind.check("transformer: not a byte", stage.score(server.port, 1, [1, 256])[0] == 400)
    account = kind.load(server, "--rate", "100", "--requests", "200", "--reference", server.side).account()
    kind.check("transformer: under load", account["ok"] == 200 == account["sent"], account)


def draining(kind):
    server = kind.start("--drain-delay", "5s", plant="hold:3s")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        idle = http.client.HTTPConnection("127.0.0.1", server.port)
        idle.request("GET", "/ready")
        idle.getresponse().read()
        first = pool.submit(stage.score, server.port, "first", GOOD)
        kind.check("draining: a request is in flight", stage.until(lambda: server.stats()["in_flight"] == 2), server.stats())
        server.signal(signal.SIGTERM)
        stage.until(lambda: stage.get(server.port, "/ready")[0] == 503)
        status, _headers, body = stage.get(server.port, "/ready")
        kind.check("draining: not ready", status == 503 and body["why"] == "draining", body)
        second = pool.submit(stage.score, server.port, "second", GOOD)  # a new connection, within the delay
        idle.request("GET", "/health")
        answer = idle.getresponse()
        answer.read()
        kind.check("draining: an answer ends its connection", answer.getheader("Connection") == "close", answer.getheaders())
        kind.check("draining: what was in flight is finished", first.result()[0] == 200)
        kind.check("draining: what came within the delay is finished", second.result()[0] == 200)
    kind.check("draining: ends well", server.wait(20) == 0, server.complaint())
    try:
        socket.create_connection(("127.0.0.1", server.port), 1).close()
        kind.check("drained: nobody is let in", False)
    except OSError:
        kind.check("drained: nobody is let in", True)


def drain_limits(kind):
    server = kind.start("--drain-delay", "100ms", "--drain-timeout", "500ms", "--stuck", "300ms", plant="hang-after:0")
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(stage.score, server.port, i, GOOD, 60) for i in range(2)]
        kind.check("a hung server is not healthy", stage.until(lambda: stage.get(server.port, "/health")[0] == 503))
        stage.until(lambda: server.stats()["in_flight"] == 3)
        kind.check("a hung server is not ready", stage.get(server.port, "/ready")[0] == 503)
        server.signal(signal.SIGTERM)
        time.sleep(0.2)
        for number in (signal.SIGSTOP, signal.SIGCONT) * 4:  # a busy machine: without a CPU for longer than a quiet time lasts
            server.signal(number)
            time.sleep(0.05)
        kind.check("a drain that cannot end ends with 4", server.wait(20) == 4 and "2 requests were not finished" in server.complaint(),
                   server.complaint())
        for one in waiting:
            kind.check("its client sees the connection end", one.exception() is not None)
    server = kind.start("--drain-delay", "60s")
    server.signal(signal.SIGTERM)
    stage.until(lambda: stage.get(server.port, "/ready")[0] == 503)
    server.signal(signal.SIGTERM)
    kind.check("a second signal ends it at once", server.wait(10) == 4, server.complaint())
    server = kind.start(plant="warm:60s", ready=False)
    server.signal(signal.SIGTERM)
    kind.check("SIGTERM before it is warm", server.wait(20) == 0, server.complaint())


def swapping(kind, up):
    folder = kind.folder
    for seed in (1, 2):
        with open(os.path.join(folder, "seed%d.json" % seed), "w", encoding="utf-8") as file:
            json.dump({"model": "dlrm", "seed": seed}, file)
    for name, text in (("broken.json", "{"), ("other.json", '{"model":"gpt"}'), ("more.json", '{"model":"dlrm","x":1}')):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    os.mkdir(os.path.join(folder, "inner"))
    server = kind.start("--models", os.path.join(folder, "inner") + "/..", "--model-file", "seed1.json")
    up.append(server)
    load = kind.load(server, "--rate", "300", "--duration", "10min")
    up.append(load)
    seen = set()
    for seed in (2, 1, 2, 1, 2):
        status, _headers, body = stage.get(server.port, "/reload", json.dumps({"path": "seed%d.json" % seed}).encode())
        kind.check("swapped to seed %d" % seed, status == 200 and body["model"] == "dlrm-small-%d" % seed, (status, body))
        seen.add((body.get("model"), round(stage.score(server.port, 1, GOOD)[2]["scores"][0], 6)))
        time.sleep(0.3)
    kind.check("another model, other scores; the same model, the same scores", len(seen) == 2, seen)
    for path in ("../seed1.json", "/etc/hostname", "none.json", "broken.json", "other.json", "more.json", "inner", ""):
        status, _headers, body = stage.get(server.port, "/reload", json.dumps({"path": path}).encode())
        kind.check("not loaded: '%s'" % path, status == 400 and body["error"], (status, body))
    for body in (b"", b"[]", b'{"path":1}'):
        kind.check("not a reload: %r" % body, stage.get(server.port, "/reload", body)[0] == 400)
    kind.check("the model is still there", stage.score(server.port, 1, GOOD)[2]["model"] == "dlrm-small-2")
    account = load.finish()
    kind.check("no request failed during swaps", account["failed"] == 0 and account["sent"] > 300 and account["balanced"], account)
    kind.check("no connection was dropped by a swap", account["connections_idle_closed"] == 0 and account["retried"] == 0, account)
    slow = kind.start("--models", folder, plant="warm:5s")
    up.append(slow)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        # Whichever comes first; the other one is refused at once.
        swaps = [pool.submit(stage.get, slow.port, "/reload", b'{"path":"seed2.json"}', 60) for _ in range(2)]
        concurrent.futures.wait(swaps, return_when=concurrent.futures.FIRST_COMPLETED)
        kind.check("the old model answers meanwhile", stage.score(slow.port, 1, GOOD)[2]["model"] == "dlrm-small-1")
        codes = sorted(swap.result()[0] for swap in swaps)
        kind.check("one swap at a time, and that one is done", codes == [200, 409], codes)


def resident(pid):
    with open("/proc/%d/statm" % pid, encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def seconds(server, values):
    """Of one request. What holds it for 100 times as long as it took may hold it long on a busy machine."""
    begin = time.monotonic()
    assert stage.score(server.port, 1, values, 120)[0] == 200
    return time.monotonic() - begin


def quickest(server, values, limit_s):
    """Seconds of the first request that takes less than the limit: each may be held up by the machine, all are held by a plant only."""
    end, least = time.monotonic() + 60, seconds(server, values)
    while least >= limit_s and time.monotonic() < end:
        least = min(least, seconds(server, values))
    return least


def plants(kind, up):
    server = kind.start(plant="crash-after:3")
    for i in range(3):
        kind.check("lives until its end, %d" % i, stage.score(server.port, i, GOOD)[0] == 200)
    try:
        stage.score(server.port, 3, GOOD)
    except OSError:
        pass
    kind.check("crash-after:3 crashes", server.wait(20) == -signal.SIGABRT)
    server = kind.start(plant="leak:1M,nan:50%")
    up.append(server)
    before, wrong = resident(server.pid), 0
    for i in range(40):
        _status, headers, body = stage.score(server.port, i, GOOD)
        wrong += body["scores"] == [None] and headers.get("x-upgate-wrong") == "1"
        kind_of = body["scores"] == [None]
        assert kind_of or math.isfinite(body["scores"][0])
    kind.check("leak:1M leaks", resident(server.pid) - before > 30 << 20, resident(server.pid) - before)
    kind.check("nan:50%: null, and said in the header", wrong == 20, wrong)
    server = kind.start("--max-wait", "2ms", plant="hold-long:200ms")
    up.append(server)
    most = stage.get(server.port, "/health")[2]["features"][1]
    short, long = quickest(server, GOOD[:14], 0.1), seconds(server, [0.5] * most)
    kind.check("hold-long: long requests only", short < 0.1 < 0.2 <= long, (short, long))


def rude(kind, up):
    server = kind.start()
    up.append(server)
    held = []
    for i in range(300):  # half a request each, for as long as they like
        sock = socket.create_connection(("127.0.0.1", server.port))
        sock.sendall([b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", b"GET /rea", b""][i % 3])
        held.append(sock)
    for data in (b"\x00" * 1000, b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"x" * 100000 + b" HTTP/1.1\r\n\r\n",
                 b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
                 b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{",
                 b"POST /score HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"):
        sock = socket.create_connection(("127.0.0.1", server.port))
        try:
            sock.sendall(data)
        except OSError:
            pass
        held.append(sock)
    account = kind.load(server, "--rate", "200", "--requests", "400").account()
    kind.check("300 slow clients and garbage beside it: no request failed", account["failed"] == 0 and account["sent"] == 400, account)
    for sock in held:
        sock.close()
    time.sleep(0.2)
    kind.check("it lives", server.alive() and stage.score(server.port, 1, GOOD)[0] == 200)
    stop = threading.Event()

    def leaver():  # asks and goes away before the answer
        while not stop.wait(0.01):
            with socket.create_connection(("127.0.0.1", server.port)) as sock:
                body = json.dumps({"id": 1, "features": GOOD}).encode()
                sock.sendall(b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    thread = threading.Thread(target=leaver)
    thread.start()
    account = kind.load(server, "--rate", "200", "--requests", "300").account()
    stop.set()
    thread.join()
    kind.check("clients that leave harm nobody else", account["failed"] == 0, account)
    kind.check("nothing stays in flight", stage.until(lambda: server.stats()["in_flight"] == 1), server.stats())
    kind.check("it drains after all that", server.stop() == 0, server.complaint())


def usage(kind):
    command = [kind.python, stage.SERVE_PY] if kind.python else [stage.SERVE]
    for words, part in ((["--modl", "dlrm"], ""), (["--size", "tiny"], "tiny"), (["--port", "99999"], "99999"), (["extra"], "extra"),
                        (["--name", "a b"], ""), (["--max-wait", "5"], "5"), (["--model-file", "none.json"], "none.json")):
        run = subprocess.run(command + words, capture_output=True, text=True, timeout=120)
        kind.check("exit 2: %s" % " ".join(words), run.returncode == 2 and part in run.stderr and len(run.stderr) < 600, run.stderr)
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, env=dict(os.environ, PLANT_SERVE="nonsense"))
    kind.check("exit 2: an unknown plant", run.returncode == 2 and "nonsense" in run.stderr, run.stderr)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        run = subprocess.run(command + ["--port", str(taken.getsockname()[1])], capture_output=True, text=True, timeout=120)
        kind.check("exit 4: the port is taken", run.returncode == 4 and "in use" in run.stderr, run.stderr)


def interpreters():
    """One interpreter for each version of torch that can serve."""
    named = sys.argv[1:] or [os.path.join(SOURCE, "envs", side, "bin", "python") for side in ("baseline", "candidate")] + ["/usr/bin/python3"]
    found = {}
    for python in named:
        if not glob.glob(python):
            continue
        run = subprocess.run([python, "-c", "import aiohttp, torch; print(torch.__version__)"], capture_output=True, text=True)
        if run.returncode == 0:
            found.setdefault(run.stdout.strip(), python)
        else:
            print("skip %s: %s" % (python, run.stderr.strip().splitlines()[-1:]))
    return found


def run(name, python):
    with tempfile.TemporaryDirectory(prefix="upgate-") as folder:
        kind = Kind(name, python, folder)
        usage(kind)
        with stage.stage() as up:
            api(kind, readiness(kind, up))
            batching(kind, up)
            transformer(kind, up)
        draining(kind)
        drain_limits(kind)
        for case in (swapping, plants, rude):
            with stage.stage() as up:
                case(kind, up)
    sys.exit(1 if failures else 0)


def main():
    if not os.path.exists(stage.SERVE):
        print("skipped: upgate-serve is not built (libmicrohttpd-dev)")
        return stage.EXIT_SKIP
    kinds = [("native", None)] + [("torch-%s" % version.partition("+")[0], python) for version, python in interpreters().items()]
    runs = [multiprocessing.Process(target=run, args=kind) for kind in kinds]  # at a time: they mostly wait
    for one in runs:
        one.start()
    for one in runs:
        one.join()
    if len(kinds) == 1:
        print("the torch server was not tested: no interpreter has torch and aiohttp (ci/setup --envs)")
    failed = [name for (name, _python), one in zip(kinds, runs) if one.exitcode != 0]
    print("failed: %s" % ", ".join(failed) if failed else "all good")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
