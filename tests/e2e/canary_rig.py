# SPDX-License-Identifier: Apache-2.0
"""What the tests of the canary share: canary_drive (the C interface behind lines of JSON), a HAProxy of our own, small servers that
misbehave on request, clients that account for every request. Nothing outlives the test."""
import contextlib
import errno
import http.client
import http.server
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
SOURCE = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SOURCE, "ci", "canary"))
from stage import LOG_FORMAT, free_port, until  # noqa: E402

BUILD = os.environ.get("UPGATE_BUILD", "build/release")
DRIVE = os.path.join(BUILD, "tests/e2e/canary_drive")
PATHS = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"


def need(program):
    path = shutil.which(program, path=PATHS)
    if not path:
        print("skipped: %s is not installed; ci/setup installs it" % program)
        sys.exit(77)
    return path


class Drive:
    def __init__(self, traffic, sources=()):
        plan = json.dumps({"traffic": traffic, "sources": list(sources)})
        self.process = subprocess.Popen([DRIVE, plan], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=dict(os.environ, no_proxy="127.0.0.1"))

    def ask(self, line, *rest):
        self.process.stdin.write(" ".join([line, *map(str, rest)]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "canary_drive died with %s at %s" % (self.process.poll(), line)
        return json.loads(answer)

    def good(self, line, *rest):
        answer = self.ask(line, *rest)
        assert "error" not in answer, (line, rest, answer)
        return answer

    def bad(self, words, line, *rest):
        """It fails, and says these words."""
        answer = self.ask(line, *rest)
        assert "error" in answer, (line, rest, answer)
        for word in words.split("|"):
            assert word in answer["text"], (word, answer)
        return answer["error"]

    def state(self, number=0):
        return self.ask("state")["sources"][number]

    def close(self):
        self.process.stdin.close()
        rc = self.process.wait(30)
        assert rc == 0, "canary_drive ended with %d" % rc

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.process.kill()
            self.process.wait()
        else:
            self.close()


def without_curl():
    """True where upgate was built without libcurl, and says so."""
    source = dict(url="http://127.0.0.1:9", step_ms=1000, baseline=dict(requests="x"), candidate=dict(requests="x"))
    with Drive(dict(set=["/bin/true"]), [source]) as drive:
        if drive.ask("sources").get("error") != -errno.ENOSYS:
            return False
        drive.bad("built without libcurl|libcurl4-openssl-dev", "sources")
        print("built without libcurl: told")
        return True


def sums(seconds):
    total = [dict.fromkeys(("requests", "errors", "truncated", "wrong", "timed"), 0) for _ in range(2)]
    for second in seconds:
        for arm in range(2):
            for key in total[arm]:
                total[arm][key] += second["arms"][arm][key]
    return total


def evidence(drive, kept, aa="", seconds=60, arms=(0, 1)):
    """Finished seconds until `kept` requests of these arms are in them."""
    taken = []

    def enough():
        drive.good("poll", 100)
        taken.extend(drive.ask("take", aa) if aa else drive.ask("take"))
        return sum(sums(taken)[arm]["requests"] for arm in arms) >= kept
    until(enough, seconds, 0)
    return taken


class Server:
    """One server of a backend. `mode` may change at any time: ok, error (500), wrong, verbose (wrong, in many words), right (says so), gone (404), cut (half of what was promised), slow,
    hang (until released)."""

    def __init__(self, name, port=None):
        self.name, self.mode, self.port, self.delay, self.requests = name, "ok", port or free_port(), 0.0, 0
        self.release = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self):
                mode = outer.mode if self.path == "/" else self.path.strip("/")
                outer.requests += 1
                if outer.delay:
                    time.sleep(outer.delay)
                if mode == "hang":
                    outer.release.wait(30)
                body = outer.name.encode()
                self.send_response({"error": 500, "gone": 404}.get(mode, 200))
                self.send_header("Content-Length", str(len(body) + (100 if mode == "cut" else 0)))
                if mode in ("wrong", "right", "verbose"):
                    self.send_header("x-upgate-wrong", {"wrong": "1", "right": "0", "verbose": 'n"' * 1000}[mode])
                self.end_headers()
                self.wfile.write(body)
                if mode == "cut":
                    self.wfile.flush()
                    time.sleep(0.05)
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True

            def log_message(self, *_):
                pass

        class Many(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass

        self.http = Many(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.release.set()
        self.http.shutdown()
        self.http.server_close()


class Relay:
    """Datagrams from a port of its own to another; number N of them, from 1 on, is lost on the way where loses(N)."""

    def __init__(self, to, loses=lambda number: False):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        for option in (socket.SO_RCVBUF, getattr(socket, "SO_RCVBUFFORCE", 33)):  # what the kernel drops while we stand still is not counted here
            with contextlib.suppress(PermissionError):
                self.socket.setsockopt(socket.SOL_SOCKET, option, 8 << 20)
        self.port, self.to, self.loses, self.lost = self.socket.getsockname()[1], to, loses, 0
        threading.Thread(target=self.forward, daemon=True).start()

    def forward(self):
        for number in itertools.count(1):
            line = self.socket.recv(65536)
            if self.loses(number):
                self.lost += 1
            else:
                self.socket.sendto(line, ("127.0.0.1", self.to))


class Liar:
    """A Prometheus that says anything: answer(query, handler) writes what it likes, say() and vector() what a real one would."""

    def __init__(self, answer):
        outer = self
        self.asked, self.done, self.tokens = 0, 0, set()  # done: answers that have ended

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                outer.asked += 1
                outer.tokens.add(self.headers["Authorization"])
                query = self.rfile.read(int(self.headers["Content-Length"])).decode()
                with contextlib.suppress(OSError):
                    answer(query, self)
                outer.done += 1
                self.close_connection = True

            def do_GET(self):  # nobody asks so, but who follows a redirect
                outer.asked += 1
                self.send_error(500)

            def log_message(self, *_):
                pass
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()


def say(handler, body, status=200, **headers):
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())


def vector(*values, at=None):
    return {"status": "success", "data": {"resultType": "vector", "result": [
        {"metric": {"pod": str(number)}, "value": [at or time.time(), str(value)]} for number, value in enumerate(values)]}}


class HAProxy:
    """Its own configuration, ports and socket. `lines`: more of the frontend, the backend, global."""

    def __init__(self, folder, servers, balance="roundrobin", level="admin", weights=(100, 0), log=None, text=False, extra_servers="",
                 frontend="", checks=True, threads=1, sticky=False, aborts=False):
        self.folder, self.port, self.socket = folder, free_port(), os.path.join(folder, "admin.sock")
        self.tcp, self.program, self.config = free_port(), need("haproxy"), os.path.join(folder, "haproxy.cfg")
        self.servers, self.log, self.processes = servers, log, []
        self.lines = dict(balance=balance, level=level, text=text, extra=extra_servers, frontend=frontend, checks=checks, threads=threads, sticky=sticky, aborts=aborts)
        self.weights = dict(zip((server.name for server in servers), weights))
        self.start()

    def write(self):
        lines = self.lines
        servers = "\n".join("    server %s 127.0.0.1:%d weight %d%s%s" % (
            server.name, server.port, self.weights.get(server.name, 0), " check inter 1s fastinter 200ms fall 3 rise 1" if lines["checks"] else "",
            " cookie %s" % server.name if lines["sticky"] else "")
            for server in self.servers)
        logs = "    option httplog\n" if lines["text"] else """    http-request  set-var(txn.upgate_begin) date(0,us)
    http-response set-var(txn.upgate_wrong) int(1) if { res.fhdr(x-upgate-wrong) -m found } !{ res.fhdr(x-upgate-wrong) 0 }
    log-format '%s'\n""" % LOG_FORMAT
        with open(self.config, "w", encoding="utf-8") as file:
            file.write("""global
    maxconn 2000
    nbthread %d
    stats socket %s mode 600 level %s expose-fd listeners
    stats socket ipv4@127.0.0.1:%d level %s
defaults
    mode http
    timeout connect 1s
    timeout client 10s
    timeout server 10s
    retries 0
%sfrontend in
    bind 127.0.0.1:%d
%s%s%s
    default_backend ranker
backend ranker
    balance %s
%s
%s
""" % (lines["threads"], self.socket, lines["level"], self.tcp, lines["level"], "    option abortonclose\n" if lines["aborts"] else "", self.port, "    log %s local0 info\n" % self.log if self.log else "",
       logs if self.log else "", lines["frontend"], lines["balance"], servers,
       lines["extra"] + ("    cookie SRV insert indirect nocache\n" if lines["sticky"] else "")))

    def start(self, *more):
        self.write()
        process = subprocess.Popen([self.program, "-db", "-f", self.config, *more], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.processes.append(process)
        pid = "Pid: %d\n" % process.pid

        def answers():
            assert process.poll() is None, process.stderr.read().decode()
            with contextlib.suppress(OSError):
                return pid in self.say("show info")
        assert until(answers), "HAProxy does not start"

    def reload(self):
        """As a service does it: a new process takes over, the old one ends with its last request."""
        self.start("-sf", str(self.processes[-1].pid))

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stderr.close()
        self.processes = []
        with contextlib.suppress(OSError):
            os.unlink(self.socket)

    def say(self, command):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(self.socket)
            client.sendall(command.encode() + b"\n")
            parts = iter(lambda: client.recv(65536), b"")
            return b"".join(parts).decode()

    def traffic(self, **more):
        names = [server.name for server in self.servers]
        return dict(dict(socket=self.socket, backend="ranker", baseline=names[0], candidate=names[1]), **more)


class Load:
    """Closed-loop clients on kept connections; counts by answering server, status and failure. As all clients do, they ask again when a
    kept connection was closed before the request: a proxy that is reloaded closes idle ones."""

    def __init__(self, port, clients=4, pause=0.002):
        self.port, self.pause, self.going = port, pause, True
        self.lock, self.counts, self.failed = threading.Lock(), {}, []
        self.threads = [threading.Thread(target=self.client, daemon=True) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def one(self, connection, path="/"):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def client(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        while self.going:
            for fresh in (connection.sock is None, True):
                try:
                    key = self.one(connection)
                    break
                except (OSError, http.client.HTTPException) as problem:
                    key = ("failed", type(problem).__name__)
                    connection.close()
                    if fresh or not isinstance(problem, (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)):
                        break
            with self.lock:
                self.counts[key] = self.counts.get(key, 0) + 1
            time.sleep(self.pause * random.uniform(0.5, 1.5))
        connection.close()

    def stop(self):
        self.going = False
        for thread in self.threads:
            thread.join(30)
        return self.counts

    def total(self):
        with self.lock:
            return sum(self.counts.values())


def fetch(port, path="/", timeout=20):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@contextlib.contextmanager
def stage(names=("old", "new"), **options):
    """A folder, servers and a HAProxy before them."""
    folder = tempfile.mkdtemp(prefix="upgate-canary-")
    servers = [Server(name) for name in names]
    proxy = None
    try:
        proxy = HAProxy(folder, servers, **options)
        yield proxy, servers, folder
    finally:
        if proxy:
            proxy.stop()
        for server in servers:
            with contextlib.suppress(Exception):
                server.close()
        shutil.rmtree(folder, ignore_errors=True)


def run(cases):
    """Each case that is named, or all; the first failure ends the test with its traceback."""
    signal.alarm(280)
    names = sys.argv[1:]
    unknown = set(names) - {case.__name__ for case in cases}
    if unknown:
        sys.exit("no case %s; there are %s" % (", ".join(sorted(unknown)), ", ".join(case.__name__ for case in cases)))
    for case in cases:
        if names and case.__name__ not in names:
            continue
        began = time.monotonic()
        case()
        print("ok %-40s %.1f s" % (case.__name__, time.monotonic() - began), flush=True)
