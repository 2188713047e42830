#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate canary serve` against those who mean no good: malformed, oversized and slow requests, wrong tokens, 10,000 connections. It
stays up, answers who has the token in the meantime, lets nobody else in, and gives back what they took."""
import contextlib
import json
import os
import random
import resource
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import canary_serve_rig as rig
from canary_serve_rig import PAYLOAD, TOKEN, Server, Store, check

GET = b"GET /v1/gate/ranker HTTP/1.1\r\nHost: x\r\n"
AUTH = b"Authorization: Bearer " + TOKEN.encode() + b"\r\n"
DEADLINE_S = 10  # peers.c: for a first request, and for one that has begun
MANY = 10000


def fine(server, what, most_s=5.0):
    """Who has the token is answered, and soon: long before the others' deadline."""
    began = time.monotonic()
    try:
        status, _, text = server.ask("GET", "/v1/gate/ranker", headers=rig.bearer(), timeout=15)
    except OSError as error:
        check(False, "%s: no answer: %s" % (what, error))
        return
    took = time.monotonic() - began
    check(status == 200 and '"gate/1"' in text, "%s: %d" % (what, status))
    check(took < most_s, "%s: an answer took %.2f s" % (what, took))
    check(server.process.poll() is None, "%s: the server is gone" % what)


def nobody(answer, what):
    check(b"gate/1" not in answer and b" 200 " not in answer.split(b"\r\n")[0], "%s is let in: %r" % (what, answer[:120]))


def status_of(answer):
    first = answer.split(b"\r\n")[0].split(b" ")
    return int(first[1]) if len(first) > 1 and first[1].isdigit() else None


def test_malformed(server):
    draw = random.Random(7)
    requests = [b"\r\n\r\n", b"\x00" * 100, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET  /v1/gate/ranker  HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
                GET + b"\r\n", GET + b"Authorization:\r\n\r\n", GET + b"Authorization: Bearer\r\n\r\n", GET + b"Authorization: Bearer \x00\r\n\r\n",
                GET + b"Authorization: Basic " + b"A" * 3000 + b"\r\n\r\n", b"GET /v1/gate/ranker\r\n\r\n", b"HEAD /v1/gate/ranker HTTP/1.0\r\n\r\n",
                b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                b"GET /healthz/../v1/gate/ranker HTTP/1.1\r\nHost: x\r\n\r\n", b"GET http://x/healthz HTTP/1.1\r\nHost: x\r\n\r\n",
                b"GET /v1/gate/ranker?/healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /healthz%3f/../v1/gate/ranker HTTP/1.1\r\nHost: x\r\n\r\n",
                b"GET /healthz\x00/v1/gate/ranker HTTP/1.1\r\nHost: x\r\n\r\n", GET.replace(b"\r\n", b"\n") + b"\n",
                GET + b"X: a\r\n Authorization: Bearer " + TOKEN[:-1].encode() + b"\r\n\r\n", GET + b": no name\r\n\r\n", GET + b"no colon\r\n\r\n",
                b"POST /v1/flagger/ranker/rollback HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
                b"POST /v1/flagger/ranker/rollback HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
                b"POST /v1/flagger/ranker/rollback HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                b"POST /v1/flagger/ranker/rollback HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n"]
    requests += [bytes(draw.randrange(256) for _ in range(draw.randrange(1, 400))) + b"\r\n\r\n" for _ in range(200)]
    for _ in range(200):  # a good request with one byte turned around: the token is not to survive in it
        data = bytearray(GET + b"Authorization: Bearer " + b"x" * 32 + b"\r\n\r\n")
        data[draw.randrange(len(data))] = draw.randrange(256)
        requests.append(bytes(data))
    for data in requests:
        answer = server.raw(data, 3, shut=True)
        # The path of health needs no token: nothing is told there.
        if b"/healthz" not in data.split(b"\n")[0]:
            nobody(answer, repr(data[:80]))
        check(b"gate/1" not in answer, "%r" % data[:80])
    fine(server, "after what was malformed")


def test_smuggling(server):
    """Two ways to say how long a body is: whoever stands before us may have taken the other one."""
    inner = GET + AUTH + b"\r\n"
    head = b"POST /v1/flagger/ranker/event HTTP/1.1\r\nHost: x\r\n" + AUTH
    answer = server.raw(head + b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (len(inner) + 5) + inner, 3)
    check(status_of(answer) == 400 and answer.count(b"HTTP/1.1") == 1, "two lengths: %r" % answer[:200])
    answer = server.raw(b"GET /no/such HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(inner) + inner, 3)
    nobody(answer, "a request in the body of one without the token")
    fine(server, "after smuggling")


def test_oversized(server):
    long_path = b"GET /v1/gate/" + b"a" * 5000 + b" HTTP/1.1\r\nHost: x\r\n" + AUTH + b"\r\n"
    check(status_of(server.raw(long_path, 3)) in (400, 414), "a long path: %s" % status_of(server.raw(long_path, 3)))
    check(status_of(server.raw(b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n", 3)) in (414, 431, None), "a longer path")
    check(status_of(server.raw(GET + AUTH + b"X: " + b"a" * 60000 + b"\r\n\r\n", 3)) in (413, 431, None), "a long header")
    check(status_of(server.raw(GET + AUTH + b"".join(b"X%d: y\r\n" % i for i in range(65)) + b"\r\n", 3)) == 431, "65 headers more")
    check(status_of(server.raw(GET + AUTH + b"".join(b"X%d: y\r\n" % i for i in range(40)) + b"Connection: close\r\n\r\n", 3)) == 200, "40 headers more")
    post = b"POST /v1/flagger/ranker/event HTTP/1.1\r\nHost: x\r\n"
    check(status_of(server.raw(post + AUTH + b"Content-Length: 65537\r\n\r\n" + b"a" * 65537, 3)) == 413, "a large body")
    check(status_of(server.raw(post + b"Content-Length: 65537\r\n\r\n", 3)) == 401, "a large body without the token")
    body = json.dumps(PAYLOAD).encode()
    whole = body + b" " * (65536 - len(body))
    check(status_of(server.raw(post + AUTH + b"Connection: close\r\nContent-Length: 65536\r\n\r\n" + whole, 3)) == 200, "the largest body")
    chunks = b"".join(b"1000\r\n" + b"a" * 4096 + b"\r\n" for _ in range(40))
    check(status_of(server.raw(post + AUTH + b"Transfer-Encoding: chunked\r\n\r\n" + chunks, 3)) != 200, "chunks without end")
    deep = b"[" * 60000
    check(status_of(server.raw(post + AUTH + b"Connection: close\r\nContent-Length: 60000\r\n\r\n" + deep, 3)) == 400, "deep JSON")
    check(status_of(server.raw(GET + AUTH + b"Connection: close\r\nContent-Length: 10\r\n\r\n0123456789", 3)) == 200, "a GET with a body")
    fine(server, "after what was oversized")


def trickle(server, head, byte, what):
    """A socket that sends a byte now and then; when the server cuts it off, in seconds."""
    began = time.monotonic()
    client = socket.create_connection(("127.0.0.1", server.port))
    client.setblocking(False)
    client.send(head)
    return {"socket": client, "byte": byte, "what": what, "began": began, "ended": None}


def test_slow(server, tls):
    """A byte every third of a second, in each part of a request: silence has no time-out that helps here. tls: another server, with TLS."""
    before = server.ask("GET", "/metrics", headers=rig.bearer())[2]
    post = b"POST /v1/flagger/ranker/event HTTP/1.1\r\nHost: x\r\n"
    slow = [trickle(server, b"", b"", "silence"), trickle(server, b"G", b"E", "a method"), trickle(server, GET, b"a", "a header"),
            trickle(server, GET + AUTH + b"X: ", b"a", "a header after the token"),
            trickle(server, post + AUTH + b"Content-Length: 60000\r\n\r\n", b"a", "a body"),
            trickle(server, post + b"Content-Length: 60000\r\n\r\n", b"a", "a body without the token"),
            trickle(server, post + AUTH + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n", "chunks")]
    here = len(slow)
    if tls:
        slow += [trickle(tls, b"", b"", "silence before TLS"), trickle(tls, b"\x16\x03\x01\x3f\xff\x01\x00\x3f\xfb", b"\x03", "a handshake")]
    asked = 0
    while any(one["ended"] is None for one in slow) and time.monotonic() - slow[0]["began"] < 30:
        for one in slow:
            if one["ended"] is not None:
                continue
            try:
                if one["byte"]:
                    one["socket"].send(one["byte"])
                if one["socket"].recv(4096) == b"":
                    one["ended"] = time.monotonic() - one["began"]
            except BlockingIOError:
                pass
            except ConnectionError:
                one["ended"] = time.monotonic() - one["began"]
        if asked % 5 == 0:
            fine(server, "while others are slow")
        asked += 1
        time.sleep(0.33)
    for one in slow:
        check(one["ended"] is not None and DEADLINE_S - 1 < one["ended"] < DEADLINE_S + 10, "%s ends after %s s" % (one["what"], one["ended"]))
        one["socket"].close()

    def cut(text):
        return int(text.split("\nupgate_serve_cut_off_total ")[1].split("\n")[0])
    now = server.ask("GET", "/metrics", headers=rig.bearer())[2]
    # Of the malformed requests before some are ended by their deadline, too.
    check(cut(now) - cut(before) >= here, "cut off are %d, not %d" % (cut(now) - cut(before), here))


def test_reader(server):
    """Asks for thousands of answers and takes none."""
    before = server.rss_kb()
    request = GET.replace(b"/v1/gate/ranker", b"/metrics") + AUTH + b"\r\n"
    clients = []
    for _ in range(20):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.setblocking(False)
        for _ in range(200):
            try:
                client.send(request * 50)
            except (BlockingIOError, ConnectionError):
                break
        clients.append(client)
    for _ in range(5):
        fine(server, "while others do not read")
        time.sleep(0.2)
    check(server.rss_kb() - before < 30000, "who does not read costs %d kB" % (server.rss_kb() - before))
    for client in clients:
        client.close()


def test_tokens(server):
    began, count = time.monotonic(), 3000
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(GET + b"Authorization: Bearer " + b"y" * 32 + b"\r\n\r\n")
        check(client.recv(65536).startswith(b"HTTP/1.1 401"), "a wrong token")
        client.settimeout(DEADLINE_S / 2)
        check(client.recv(65536) == b"", "a wrong token keeps its connection")
    for number in range(count):
        answer = server.raw(GET + b"Authorization: Bearer " + b"%032d" % number + b"\r\n\r\n", 5)
        if not answer.startswith(b"HTTP/1.1 401"):
            check(False, "guess %d: %r" % (number, answer[:60]))
            break
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        got = b""
        while not got.endswith(b"ok\n"):
            got += client.recv(65536)
        check(client.recv(65536) == b"", "a stranger keeps a connection")
    fine(server, "after %d guesses in %.1f s" % (count, time.monotonic() - began))
    check(TOKEN not in server.read_log() and "%032d" % 7 not in server.log, "tokens are in the log")


def test_connections(server, many):
    """Half of them say nothing, half have had an answer and wait; from twenty addresses, for one has a limit of its own."""
    before_kb, before_files = server.rss_kb(), server.descriptors()
    poll, open_now = selectors.DefaultSelector(), []
    began = time.monotonic()
    asked = answered = 0

    def turn(seconds):
        nonlocal asked, answered
        for key, mask in poll.select(seconds):
            if mask & selectors.EVENT_WRITE:
                key.fileobj.send(GET + AUTH + b"\r\n")
                poll.modify(key.fileobj, selectors.EVENT_READ)
                asked += 1
            elif key.fileobj.recv(65536).startswith(b"HTTP/1.1 200"):
                answered += 1
                poll.unregister(key.fileobj)
    for number in range(many):
        client = socket.socket()
        client.bind(("127.0.1.%d" % (number % 20 + 1), 0))
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", server.port))
        open_now.append(client)
        if number % 2 == 0:
            poll.register(client, selectors.EVENT_WRITE)
        if number % 250 == 249:
            time.sleep(0.01)
            turn(0)  # soon: those that have said nothing by their deadline are cut off
    while (asked < many // 2 or answered < many // 2) and time.monotonic() - began < 60:
        turn(0.5)
    took = time.monotonic() - began
    held = server.descriptors() - before_files
    check(answered == many // 2, "%d of %d are answered" % (answered, many // 2))
    times = []
    for _ in range(200):
        at = time.monotonic()
        fine(server, "with %d connections" % many)
        times.append(time.monotonic() - at)
    check(held > many // 2, "only %d connections are open" % held)
    grown = server.rss_kb() - before_kb
    check(grown < 400000, "%d connections cost %d kB" % (held, grown))
    times.sort()
    print("%d connections within %.1f s, %d open, %d kB: an answer on a new one takes %.2f ms (median), %.2f ms (p99)"
          % (many, took, held, grown, times[100] * 1e3, times[197] * 1e3))
    # Those that had an answer may wait for 75 s.
    check(server.until(lambda: server.descriptors() - before_files <= many // 2 + 10, 40), "who says nothing keeps its connection: %d" % (server.descriptors() - before_files))
    for client in open_now:
        client.close()
    check(server.until(lambda: server.descriptors() <= before_files + 2), "%d descriptors are left" % (server.descriptors() - before_files))
    fine(server, "after %d connections" % many)


def test_limits(path, token):
    with Server(path, "name=ranker", token, "per-address=5", "connections=20") as server:
        idle = [socket.create_connection(("127.0.0.1", server.port), source_address=("127.0.2.1", 0)) for _ in range(5)]
        time.sleep(0.5)
        check(server.raw(GET + AUTH + b"\r\n", 3, address="127.0.2.1") == b"", "a sixth connection of one address")
        fine(server, "another address")
        for number in range(15):
            idle.append(socket.create_connection(("127.0.0.1", server.port), source_address=("127.0.2.%d" % (number // 5 + 2), 0)))
        time.sleep(0.3)
        fine(server, "when all connections are taken", 4)  # those that have been silent longest make room
        fine(server, "after that")
        for client in idle:
            client.close()


def certificate(folder):
    if not shutil.which("openssl"):
        print("skipped: slow handshakes: no openssl")
        return []
    cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert,
                    "-days", "2", "-subj", "/CN=127.0.0.1"], check=True, stderr=subprocess.DEVNULL)
    return ["cert=" + cert, "key=" + key]


def main():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = MANY + 500
    if hard != resource.RLIM_INFINITY and hard < want:
        print("skipped: %d connections: the limit of open files is %d" % (MANY, hard))
    elif soft < want:
        resource.setrlimit(resource.RLIMIT_NOFILE, (want, hard))
    many = min(MANY, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500)
    with tempfile.TemporaryDirectory(prefix="upgate-hostile-") as folder:
        path = os.path.join(folder, "ranker.db")
        store = Store(path)
        store.state("rolled_back", "so that a rollback hook would say yes")
        token = "token=" + rig.token_file(folder)
        with Server(path, "name=ranker", token) as server:
            test_malformed(server)
            test_smuggling(server)
            test_oversized(server)
            test_reader(server)
            test_tokens(server)
            pem = certificate(folder)
            with Server(path, "name=ranker", token, *pem) if pem else contextlib.nullcontext() as tls:
                test_slow(server, tls)
            test_connections(server, many)
            check(server.stop() == 0, "ends with %s" % server.code)
            check("error" not in server.log, server.log)
        test_limits(path, token)
        store.close()
    return rig.finish("canary serve: hostile clients")


if __name__ == "__main__":
    sys.exit(main())
