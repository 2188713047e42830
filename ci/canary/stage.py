# SPDX-License-Identifier: Apache-2.0
"""What the canary's demo, tests and benchmarks stand on: reference servers, an HAProxy with a configuration of its own, and the
load generator, as processes of ours on free ports of this machine, all ended at the end. Reads the build directory
($UPGATE_BUILD, else build/release); writes into the folder it is given."""
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("UPGATE_BUILD") or os.path.join(ROOT, "build", "release"))
UPGATE = os.path.join(BUILD, "upgate")
SERVE = os.path.join(BUILD, "reference_models", "serve", "upgate-serve")
SERVE_PY = os.path.join(BUILD, "reference_models", "serve", "python", "serve.py")
LOAD = os.path.join(BUILD, "reference_models", "load", "upgate-load")
START_S = 120  # a torch that is imported for the first time reads gigabytes
EXIT_SKIP = 77

# The JSON log-format of docs/CANARY.md.
LOG_FORMAT = (
    '{"upgate":1,"pid":%pid,"front":"%f","seq":%lc,"back":"%b","server":"%s","status":%ST,"end_us":%[date(0,us)],'
    '"us":"%[date(0,us),sub(txn.upgate_begin)]","ms":"%Ta","term":"%ts","bytes":"%B",'
    '"wrong":"%[var(txn.upgate_wrong),json(utf8s)]"}')

CONFIG = """\
# Both stacks are warm; who gets the requests is a matter of weights, set through the admin socket.
global
    stats socket {socket} mode 600 level admin
    log {log} len 4096 local0
    maxconn 4000
    nbthread 1

defaults
    mode http
    log global
    timeout connect 2s
    timeout client 75s
    timeout server 60s
    timeout http-keep-alive 75s
    option http-keep-alive

frontend ranker-in
    bind 127.0.0.1:{port}
    http-request set-var(txn.upgate_begin) date(0,us)
    http-response set-var(txn.upgate_wrong) int(1) if {{ res.fhdr(x-upgate-wrong) -m found }} !{{ res.fhdr(x-upgate-wrong) 0 }}
    log-format '{log_format}'
    default_backend ranker

backend ranker
    balance roundrobin
    option httpchk GET /ready
    default-server check inter 500ms fall 3 rise 1
    # A connection that cannot be made, and an idle one that the server has just closed, are tried again elsewhere.
    retries 3
    option redispatch
    retry-on conn-failure empty-response
{servers}
"""


def missing():
    """Why nothing can be run here; None: it can."""
    for path in (SERVE, LOAD):
        if not os.path.exists(path):
            return "'%s' is not built" % os.path.relpath(path, ROOT)
    if not shutil.which("haproxy"):
        return "haproxy is not installed; ci/setup installs it"
    return None


HELD = []  # sockets of free_port: bound for as long as this process lives


def free_port(kind=socket.SOCK_STREAM):
    """A port for a server that cannot be told to take any. It stays bound here, where nobody listens, so that the kernel gives it
    to nobody else; a server's SO_REUSEADDR, which all of them set, may listen on it. A datagram's is below those that the kernel
    gives away: two sockets on one port would share what comes."""
    if kind == socket.SOCK_DGRAM:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            first = int(file.read().split()[0])
        for _ in range(1000):
            with contextlib.suppress(OSError), socket.socket(socket.AF_INET, kind) as probe:
                probe.bind(("127.0.0.1", random.randrange(max(1024, first // 2), max(1025, first))))
                return probe.getsockname()[1]
        raise OSError("no free port for datagrams below %d, where net.ipv4.ip_local_port_range begins" % first)
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    HELD.append(held)
    return held.getsockname()[1]


def until(what, seconds=30, step=0.02):
    """What `what` gives, as soon as it is something: a loaded machine may take its time."""
    end = time.monotonic() + seconds
    while not (got := what()) and time.monotonic() < end:
        time.sleep(step)
    return got


def get(port, path, data=None, timeout=10):
    """(status, headers, JSON or None) of one request."""
    request = urllib.request.Request("http://127.0.0.1:%d%s" % (port, path), data=data)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            status, headers, body = answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as problem:
        with problem:
            status, headers, body = problem.code, problem.headers, problem.read()
    try:
        return status, headers, json.loads(body)
    except ValueError:
        return status, headers, None


def score(port, name, features, timeout=10):
    return get(port, "/score", json.dumps({"id": name, "features": features}).encode(), timeout)


class Process:
    """A child of ours with its stdout and stderr in files of `folder`."""

    def __init__(self, folder, name, argv, env=None):
        self.name, self.out, self.err = name, os.path.join(folder, name + ".out"), os.path.join(folder, name + ".err")
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.popen = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                                          env=dict(os.environ, **(env or {})))
        self.pid = self.popen.pid

    def lines(self):
        with open(self.out, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()

    def complaint(self):
        with open(self.err, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-5:]).strip()

    def alive(self):
        return self.popen.poll() is None

    def signal(self, number):
        if self.alive():
            self.popen.send_signal(number)

    def wait(self, timeout=60):
        return self.popen.wait(timeout)

    def stop(self, timeout=60):
        """SIGTERM, and SIGKILL when that is not enough. The exit status."""
        self.signal(signal.SIGTERM)
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        return self.popen.wait()


class Server(Process):
    """A reference server: native, or torch under `python`. Listens when made; `ready()` waits until it is warm."""

    def __init__(self, folder, side, *options, python=None, plant=None, port=0, steps=None):
        argv = ([python, SERVE_PY] if python else [SERVE]) + ["--side", side, "--port", str(port)] + list(options)
        super().__init__(folder, side, argv, {"PLANT_SERVE": plant or "", "UPGATE_STEPS": steps or ""})
        self.side = side
        self.port = int(self._line("listening")["listening"].rsplit(":", 1)[1])

    def _line(self, key):
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            for line in self.lines():
                with contextlib.suppress(ValueError):
                    words = json.loads(line)
                    if key in words:
                        return words
            if not self.alive():
                break
            time.sleep(0.02)
        raise RuntimeError("server '%s' did not say '%s': %s" % (self.name, key, self.complaint()))

    def ready(self):
        self._line("ready")
        return self

    def stats(self):
        return get(self.port, "/stats")[2]


class Proxy(Process):
    """HAProxy before the servers, with weights 256 and 0: all to the first. Its log goes to a port, or to the path of a socket."""

    def __init__(self, folder, servers, log):
        self.folder, self.port = folder, free_port()
        log = "127.0.0.1:%d" % log if isinstance(log, int) else log
        self.listen = "unix:" + log if log.startswith("/") else log  # as the rollout plan has it
        self.socket = os.path.join(folder, "admin.sock")
        if len(self.socket) > 100:  # of about 108 that a Unix socket's address has
            raise RuntimeError("the path '%s' is too long for a socket" % self.socket)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)
        config = os.path.join(folder, "haproxy.cfg")
        lines = ["    server %s 127.0.0.1:%d weight %d" % (name, port, 0 if i else 256)
                 for i, (name, port) in enumerate(servers)]
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(socket=self.socket, log=log, port=self.port, log_format=LOG_FORMAT,
                                     servers="\n".join(lines)))
        super().__init__(folder, "haproxy", ["haproxy", "-db", "-f", config])
        end = time.monotonic() + START_S
        while not os.path.exists(self.socket) or not self.up(servers[0][0]):
            if not self.alive() or time.monotonic() > end:
                raise RuntimeError("haproxy did not start: %s" % self.complaint())
            time.sleep(0.02)

    def command(self, text):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(10)
            sock.connect(self.socket)
            sock.sendall(text.encode() + b"\n")
            answer = b""
            while True:
                more = sock.recv(65536)
                if not more:
                    return answer.decode().strip()
                answer += more

    def weights(self, **weight_of):
        """weights(old=192, new=64)"""
        for name, weight in weight_of.items():
            answer = self.command("set weight ranker/%s %d" % (name, weight))
            if answer:
                raise RuntimeError("haproxy: %s" % answer)

    def up(self, server):
        try:
            stat = self.command("show stat")
        except OSError:
            return False
        names = stat.splitlines()[0].lstrip("# ").split(",")
        for line in stat.splitlines()[1:]:
            row = dict(zip(names, line.split(",")))
            if row.get("pxname") == "ranker" and row.get("svname") == server:
                return row["status"].startswith("UP")
        return False


class Load(Process):
    """upgate-load on the proxy or on a server; `account()` waits for its end."""

    def __init__(self, folder, port, *options, name="load"):
        self.path = os.path.join(folder, name + ".json")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        super().__init__(folder, name, [LOAD, "--output", self.path] + list(options) + ["http://127.0.0.1:%d/score" % port])

    def account(self, timeout=600):
        code = self.wait(timeout)
        if code not in (0, 1):
            raise RuntimeError("upgate-load ended with %d: %s" % (code, self.complaint()))
        with open(self.path, encoding="utf-8") as file:
            return json.load(file)

    def finish(self):
        """No more requests; the account of what was sent."""
        self.signal(signal.SIGINT)
        return self.account()


@contextlib.contextmanager
def stage():
    """Processes are appended to the list that this gives; the last comes down first, whatever happens."""
    processes = []

    def interrupted(_number, _frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupted)
    try:
        yield processes
    finally:
        signal.signal(signal.SIGTERM, before)
        for process in reversed(processes):
            process.kill()


def tell(account, file=sys.stdout):
    """The client's account in a few lines."""
    print("%d requests in %.0f s: %d ok, %d failed (http %d, timed out %d, lost %d, truncated %d, wrong %d, doubled %d)" % (
        account["sent"], account["seconds"], account["ok"], account["failed"], account["http_error"], account["timed_out"],
        account["lost"], account["truncated"], account["wrong"], account["extra"] + account["wrong_kinds"]["doubled"]), file=file)
    for side in account["sides"]:
        latency = side["latency_ms"]
        print("  %-10s %8d ok, p50 %.1f ms, p99 %.1f ms" % (side["side"] or "(none)", side["ok"], latency["p50"] or 0,
                                                          latency["p99"] or 0), file=file)
