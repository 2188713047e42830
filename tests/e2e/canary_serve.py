#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate canary serve` as Argo Rollouts and Flagger use it: their requests, time-outs and limits (canary_serve_players.py) with the
manifests of ci/kubernetes, against the server and a rollout's store that changes; tokens, TLS, and how it starts and ends."""
import json
import os
import shutil
import socket
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import threading
import time

import canary_serve_rig as rig
from canary_serve_players import ArgoMetric, Flagger, fetch
from canary_serve_rig import PAYLOAD, TOKEN, Server, Store, check

ALL = ("confirm-rollout", "pre-rollout", "rollout", "confirm-traffic-increase", "confirm-promotion")


def manifests():
    import yaml
    found = {}
    for name in ("argo.yaml", "flagger.yaml"):
        with open(os.path.join(rig.SOURCE, "ci/kubernetes", name)) as file:
            for one in yaml.safe_load_all(file):
                found[one["metadata"]["name"] if one["kind"] != "Canary" else "Canary"] = one
    return found


def argo(found, server, stage="1", rollout="ranker", **changes):
    metric = dict(found["upgate-gate"]["spec"]["metrics"][0], **changes)
    text = json.dumps(metric).replace("upgate-gate:8080", "127.0.0.1:%d" % server.port)
    return ArgoMetric(json.loads(text), {"rollout": rollout, "stage": stage, "stable-hash": "7d5", "latest-hash": "6c4", "token": TOKEN})


def hook(server, name, query="", rollout="ranker", payload=None):
    status, _, text = server.ask("POST", "/v1/flagger/%s/%s%s" % (rollout, name, query), json.dumps(payload or PAYLOAD),
                                 {"Content-Type": "application/json"})
    return status, text


def test_argo_limits(folder, found):
    """Nothing is measured for long, then the stage passes; a fail ends it at once; without a pass the count ends inconclusive."""
    path = os.path.join(folder, "ranker.rollout.db")
    with Server(path, "token=" + rig.token_file(folder)) as server:
        metric = argo(found, server)
        check([metric.step() for _ in range(3)] == ["Inconclusive"] * 3 and metric.phase == "Running", "no store: %s" % metric.counts)
        store = Store(path)
        check(server.until(lambda: "latency_p99" in server.gate(headers=rig.bearer())["reason"]), "the store is not seen")

        def passes(number):
            store.alive()
            if number == 12:
                store.stage(1, "passed")
                check(server.until(lambda: server.gate("?stage=1", headers=rig.bearer())["verdict"] == "pass"), "the pass is not seen")
        check(metric.run(passes) == "Successful" and metric.counts["Inconclusive"] == 15, "a late pass: %s" % metric.counts)

        metric = argo(found, server, stage="2")
        check(metric.run(lambda _: store.alive()) == "Inconclusive" and metric.counts["Inconclusive"] == 40, "no pass: %s" % metric.counts)
        check(argo(found, server, stage="9").step() == "Error", "a stage that is none is an error, not a verdict")
        check(argo(found, server, rollout="other").step() == "Error", "a rollout that is none")
        check(argo(found, server, successCondition="", failureCondition="").step() == "Successful", "the trap itself is played")
        check(argo(found, server, stage="2", successCondition='result == "pass"', failureCondition="").step() == "Failed", "only success: fails")
        whole = argo(found, server, stage="2", successCondition='result.verdict == "pass"', failureCondition='result.verdict == "fail"')
        whole.web["jsonPath"] = "{$}"
        check(whole.step() == "Inconclusive" and whole.value["schema"] == "gate/1" and whole.value["evidence"]["alpha"] == 0.01, "the whole object")
        # A comparison with what is not known would be an error for Argo: that is why the verdict is a word.
        whole = argo(found, server, stage="2", successCondition="result.evidence.ratio < 1.1", failureCondition="")
        whole.web["jsonPath"] = "{$}"
        check(whole.step() == "Error", "nil is an error: %s" % whole.message)

        store.cell("fail", stage=2)
        check(server.until(lambda: server.gate("?stage=2", headers=rig.bearer())["verdict"] == "fail"), "the fail is not seen")
        metric = argo(found, server, stage="2")
        check(metric.run() == "Failed" and metric.counts["Failed"] == 1, "a fail: %s" % metric.counts)
        check("1.031 [1.024, 1.039]" in server.gate("?stage=2", headers=rig.bearer())["reason"], "the reason")
        check(server.read_log().count(TOKEN) == 0, "the token is in the log")
        store.close()


def test_argo_outage(folder, found):
    """The server is away: Argo's default aborts after 40 s, the template's does not after three minutes."""
    path = os.path.join(folder, "out.db")
    store = Store(path)
    with Server(path, "name=ranker", "token=" + rig.token_file(folder)) as server:
        port = server.port
        default, ours = argo(found, server, consecutiveErrorLimit=4), argo(found, server)
        check(default.step() == "Inconclusive" and ours.step() == "Inconclusive", "before")
    began_s = default.now_s
    check(default.run() == "Error" and default.now_s - began_s <= 50, "Argo's default aborts: %s" % default.counts)
    for _ in range(18):
        ours.step()
    check(ours.phase == "Running" and ours.counts["Error"] == 18, "the template's limit: %s" % ours.counts)
    store.stage(1, "passed")
    store.alive()
    with Server(path, "name=ranker", "token=" + rig.token_file(folder), listen="127.0.0.1:%d" % port):
        check(ours.run() == "Successful", "after the outage: %s %s" % (ours.counts, ours.message))
    store.close()


def test_argo_time_out(found):
    """Somebody who accepts and never answers: an error, within the time-out."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        class Fake:
            port = silent.getsockname()[1]
        metric = argo(found, Fake)
        metric.web["timeoutSeconds"] = 1
        began = time.monotonic()
        check(metric.step() == "Error" and time.monotonic() - began < 9, "time-out: %s" % metric.message)


def test_flagger(folder, found):
    """A Canary with the manifest's hooks: it moves when the controller wants to, waits otherwise, goes back on a fail."""
    path = os.path.join(folder, "flagger.db")
    store = Store(path, "ranker-2.6")
    store.state("running", percent=0.0)
    with Server(path, "name=ranker-2.6", "token=" + rig.token_file(folder)) as server:
        def flagger():
            return Flagger(found["Canary"]["spec"], found["upgate-verdict"], "127.0.0.1:%d" % server.port, TOKEN)

        def verdict():
            return server.gate(name="ranker-2.6", headers=rig.bearer())

        def wants(percent):
            store.alive()
            store.decide(percent)
            return server.until(lambda: server.ask("POST", "/v1/flagger/ranker-2.6/confirm-traffic-increase", json.dumps(PAYLOAD),
                                                   rig.bearer())[0] == 200)
        one = flagger()
        check(one.online(), "vector(1) is not 1")
        for _ in range(10):  # twice the threshold of failed checks
            check(one.advance() == "Progressing" and one.weight == 0, "moves without being wanted to")
        check("about 1200 requests more" in one.events[-1] and one.failed_checks == 0, "the reason of the refusal: %r" % one.events[-1])
        for percent in (1, 5, 25, 50):
            check(wants(percent), "%d %% is not wanted" % percent)
            one.advance()
            check(one.weight == percent, "%d %%, not %d %%" % (one.weight, percent))
            store.state("running", percent=float(percent))  # read back
            check(server.until(lambda: verdict()["percent"] == percent), "not read back")
            one.advance()
            check(one.weight == percent, "increases twice for one decision")
        check(one.phase == "WaitingPromotion", "promotes without a pass: %s" % one.phase)
        store.state("promoted", "all stages passed")
        check(server.until(lambda: verdict()["verdict"] == "pass"), "promoted")
        check(one.advance() == "Promoting", "not promoted: %s %r" % (one.phase, one.events))

        store.state("running", percent=5.0)
        store.decide(5)
        check(server.until(lambda: verdict()["verdict"] == "inconclusive"), "runs again")
        one = flagger()
        one.weight = 5
        for _ in range(10):
            check(one.advance() == "Progressing" and one.failed_checks == 0, "waiting counts as a failed check: %s" % one.events)
        store.state("rolled_back", "latency_p99 1.31 beyond 1.1")
        check(server.until(lambda: verdict()["verdict"] == "fail"), "rolled back")
        check(one.advance() == "Failed" and one.weight == 0, "waits for an increase and does not go back")
        status, text = fetch("POST", "http://upgate:%s@127.0.0.1:%d/v1/flagger/ranker-2.6/confirm-promotion" % (TOKEN, server.port), body=json.dumps(PAYLOAD).encode())
        check(status == 403 and "latency_p99 1.31 beyond 1.1" in text, "a refusal keeps its reason: %d %r" % (status, text))

        # What must never be a rollback, while the rollout is rolled back: somebody else's canary, another path, a wrong token, a GET.
        for url, method, want in (("/v1/flagger/other/rollback", "POST", 404), ("/v1/flagger/ranker-2.6/rollback/", "POST", 404),
                                  ("/", "POST", 404), ("/v1/flagger/ranker-2.6/rollback", "GET", 405), ("/rollback", "POST", 404)):
            status = server.ask(method, url, json.dumps(PAYLOAD) if method == "POST" else None, rig.basic())[0]
            check(status == want, "%s %s: %d" % (method, url, status))
        lost = flagger()
        lost.token, lost.weight = "x" * 32, 5
        check(lost.advance() == "Progressing" and lost.failed_checks == 1, "a wrong token rolls back")
        check(server.read_log().count(TOKEN) == 0, "the token is in the log")
    gone = flagger()
    check(gone.advance() == "Progressing" and gone.weight == 0, "unreachable: neither moves nor goes back")
    store.close()


def test_statuses(folder):
    """No 5xx and no 429 as a refusal, no 2xx but 200, no redirection, in any state."""
    path = os.path.join(folder, "states.db")
    store = Store(path)
    with Server(path, "name=ranker") as server:
        for state, verdict in (("waiting", "inconclusive"), ("running", "inconclusive"), ("paused", "inconclusive"), ("promoted", "pass"),
                               ("rolled_back", "fail"), ("aborted", "fail"), ("failed", "inconclusive")):
            store.state(state, "state %s" % state)
            check(server.until(lambda: server.gate()["state"] == state), "state %s is not seen" % state)
            check(server.gate()["verdict"] == verdict, "%s is %s" % (state, server.gate()["verdict"]))
            for name in ALL + ("rollback", "event", "post-rollout"):
                status, text = hook(server, name)
                passes = name in ("event", "post-rollout") or (verdict == "fail" if name == "rollback" else verdict == "pass")
                check(status == 200 if passes else status in (403, 409, 412), "%s in %s: %d" % (name, state, status))
                check("\n" == text[-1:] and len(text) > 10, "%s in %s: no reason: %r" % (name, state, text))
        store.state("running", "the controller is gone", heartbeat_ns=time.time_ns() - 31 * 10**9)
        check(server.until(lambda: "no sign of life" in server.gate()["reason"]), "a dead controller: %s" % server.gate())
        check(server.gate("?stage=0")["verdict"] == "inconclusive", "a dead controller passes what it passed")
    store.close()


def test_damage(folder):
    """The store is replaced, cut off, overwritten, gone: the server stays, and says nothing but inconclusive in the end."""
    path = os.path.join(folder, "damage.db")
    store = Store(path)
    store.state("promoted", "all stages passed")
    with Server(path, "name=ranker") as server:
        check(server.gate()["verdict"] == "pass", "before")
        store.close()
        other = Store(os.path.join(folder, "other.db"), "ranker")
        other.state("paused", "another file")
        other.close()
        os.replace(os.path.join(folder, "other.db"), path)
        check(server.until(lambda: server.gate()["state"] == "paused"), "another file of the name is not seen")
        with open(path, "r+b") as file:
            file.seek(4096)
            file.write(os.urandom(65536))
        os.utime(path)
        check(server.until(lambda: server.gate()["verdict"] == "inconclusive", 60), "damaged")
        with open(path, "wb") as file:
            file.write(b"no database at all" * 1000)
        check(server.until(lambda: "no store of this rollout" in server.gate()["reason"], 60), "overwritten: %s" % server.gate())
        os.unlink(path)
        store = Store(path)
        check(server.until(lambda: server.gate()["state"] == "running", 60), "a new one: %s" % server.gate())
        store.state("promoted", "done")
        check(server.until(lambda: server.gate()["verdict"] == "pass"), "promoted")
        store.close()
        os.unlink(path)
        check(server.until(lambda: server.gate()["verdict"] == "inconclusive", 60), "gone: %s" % server.gate())
        check(server.ask("GET", "/healthz")[0] == 200, "it lives")


def test_writer_is_not_kept_waiting(folder):
    """A controller commits with a busy time-out of 100 ms, fifty times a second, while answers are asked for. A server that gets no CPU while
    it reads is not what is asked: what it computes during one commit stays below that time-out, and it reads nothing while it sleeps."""
    path = os.path.join(folder, "busy.db")
    store = Store(path)
    store.db.execute("BEGIN")
    store.db.executemany("INSERT INTO rollout_second VALUES (?, ?, 1, 10, 0, 0, 0, zeroblob(1500), 0)", [(i // 2, i % 2) for i in range(2, 40000)])
    store.db.execute("COMMIT")
    store.at_s = 30000
    store.db.execute("PRAGMA busy_timeout = 100")
    with Server(path, "name=ranker") as server:
        def commit():
            before, end, asleep = server.cpu_ns(), time.monotonic() + 60, 0
            while True:
                try:
                    return store.db.execute("COMMIT")
                except sqlite3.OperationalError:  # the reader is at work
                    asleep = asleep + 1 if server.sleeps() else 0  # once: it has just ended
                    if server.cpu_ns() - before > 100e6 or asleep == 3 or time.monotonic() > end:
                        raise
        began, commits = time.monotonic(), 0
        while time.monotonic() - began < 4:
            store.db.execute("BEGIN IMMEDIATE")
            store.seconds(95, 5)
            store.alive()
            commit()  # raises where the reader holds it up
            commits += 1
            check(server.gate()["verdict"] == "inconclusive", "answers")
            time.sleep(0.02)
        want = 10 * 19999 + 5 * commits
        check(server.until(lambda: server.gate("?stage=1")["evidence"]["n_canary"] == want), "counted %s, not %d" % (server.gate("?stage=1")["evidence"], want))
    store.close()


def test_runs_of_ab(folder):
    path = os.path.join(folder, "nightly.db")
    with open(os.path.join(rig.SOURCE, "contracts/schema.sql")) as file:
        schema = file.read()
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript(schema)
    with Server(path) as server:
        check(server.gate(name="nightly")["verdict"] == "inconclusive", "an empty store")
        db.execute("INSERT INTO run (id, uuid, kind, state, upgate_version, started_wall_ns, seed, plan, command_line, host, host_key)"
                   " VALUES (1, 'u-1', 'ab', 'running', '0', 0, 7, '{}', '[]', '{}', 'k')")
        check(server.until(lambda: "still running" in server.gate(name="nightly")["reason"]), "a run that runs")
        db.execute("INSERT INTO verdict VALUES (1, 'pass', 'all cells pass', NULL, '{}', 1, 1, '', 0)")
        db.execute("UPDATE run SET state = 'done'")
        check(server.until(lambda: server.gate(name="nightly")["verdict"] == "pass"), "done")
        got = server.gate(name="nightly")
        check(got["final"] and got["reason"] == "all cells pass" and got["evidence"]["run_id"] == "u-1" and got["stage"] is None, "%s" % got)
        check(hook(server, "confirm-rollout", rollout="nightly")[0] == 200, "confirm-rollout")
        db.execute("UPDATE run SET kind = 'aa'")
        check(server.until(lambda: server.gate(name="nightly")["verdict"] == "inconclusive"), "an A/A run passes")
    db.execute("UPDATE run SET kind = 'record'")
    db.close()
    with Server(path, wait=False) as server:
        check(server.process.wait(timeout=60) == 2 and "recording" in server.read_log(), "a recording: %s" % server.log)


def test_tokens(folder):
    path = os.path.join(folder, "token.db")
    store = Store(path)
    token = "token=" + rig.token_file(folder)
    with Server(path, "name=ranker", token) as server:
        paths = ["/v1/gate/ranker", "/metrics", "/api/v1/query?query=vector(1)", "/", "/no/such"]
        for one in paths:
            for headers in ({}, rig.bearer("x" * 32), rig.bearer(TOKEN + "x"), rig.bearer(TOKEN[:-1]), {"Authorization": TOKEN}, rig.basic("y" * 32)):
                status, got, _ = server.ask("GET", one, headers=headers)
                check(status == 401 and got.get("www-authenticate"), "%s without a token: %d" % (one, status))
            check(server.ask("GET", one, headers=rig.bearer())[0] in (200, 404) and server.ask("GET", one, headers=rig.basic())[0] in (200, 404), one)
        check(server.ask("POST", "/v1/flagger/ranker/rollback", json.dumps(PAYLOAD))[0] == 401, "a hook without a token")
        check(server.ask("GET", "/healthz")[0] == 200, "/healthz is open")
        check(server.ask("GET", "/healthz", headers=rig.bearer("x" * 32))[0] == 200, "/healthz with a wrong token")
        refused = len(paths) * 6 + 1
        check("upgate_serve_tokens_refused_total %d\n" % refused in server.ask("GET", "/metrics", headers=rig.bearer())[2], "refusals are counted")
        check(TOKEN not in server.read_log(), "the token is in the log")
    with Server(path, "name=ranker", token, "open-metrics") as server:
        check(server.ask("GET", "/metrics")[0] == 200 and server.ask("GET", "/v1/gate/ranker")[0] == 401, "open metrics")
    for words, want, what in (([], 2, "without a token"), (["token=" + folder + "/no"], 2, "no such file")):
        with Server(path, "name=ranker", *words, listen=":0", wait=False) as server:
            check(server.process.wait(timeout=60) == want and server.read_log(), "listens everywhere %s: %s" % (what, server.log))
    for words in (["no-token"], [token]):
        with Server(path, "name=ranker", *words, listen="0.0.0.0:0") as server:
            check(server.ask("GET", "/healthz")[0] == 200, "0.0.0.0 with %s" % words)
    store.close()


def test_tls(folder):
    if not shutil.which("openssl"):
        print("skipped: TLS: no openssl")
        return
    cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert,
                    "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, stderr=subprocess.DEVNULL)
    path = os.path.join(folder, "tls.db")
    store = Store(path)
    with Server(path, "name=ranker", "token=" + rig.token_file(folder), "cert=" + cert, "key=" + key) as server:
        context = ssl.create_default_context(cafile=cert)
        status, _, text = server.ask("GET", "/v1/gate/ranker", headers=rig.bearer(), context=context)
        check(status == 200 and json.loads(text)["verdict"] == "inconclusive", "over TLS: %d" % status)
        check(server.ask("GET", "/v1/gate/ranker", context=context)[0] == 401, "TLS is no token")
        check(server.ask("POST", "/v1/flagger/ranker/event", json.dumps(PAYLOAD), rig.bearer(), context=context)[0] == 200, "a POST over TLS")
        check(b"gate/1" not in server.raw(b"GET /v1/gate/ranker HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n" % TOKEN.encode(), 2), "plain text")
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.maximum_version = old.minimum_version = ssl.TLSVersion.TLSv1_1
        try:
            server.ask("GET", "/healthz", context=old)
            check(False, "TLS 1.1 is spoken")
        except (ssl.SSLError, OSError):
            pass
        check(server.ask("GET", "/healthz", context=context)[0] == 200, "lives on")
    for words in (["cert=" + cert], ["cert=" + key, "key=" + cert], ["cert=/no/such", "key=" + key]):
        with Server(path, "name=ranker", *words, wait=False) as server:
            check(server.process.wait(timeout=60) == 2 and server.read_log(), "%s: %s" % (words, server.log))
    store.close()


def taken(client):
    """Whether the server has read all that this connection has sent."""
    ends = ["0100007F:%04X" % at[1] for at in (client.getpeername(), client.getsockname())]
    with open("/proc/net/tcp", encoding="ascii") as file:
        rows = [line.split() for line in file]
    return any(row[1:3] == ends and row[4].endswith(":00000000") for row in rows)


def send_at_the_end(server, client, body):
    """The rest of a request, as soon as the server takes no more connections."""
    try:
        while True:
            socket.create_connection(("127.0.0.1", server.port), timeout=10).close()
            time.sleep(0.02)
    except OSError:
        client.sendall(body)


def test_end(folder):
    """SIGTERM: what is under way is answered, the port is free at once."""
    path = os.path.join(folder, "end.db")
    store = Store(path)
    for number in (15, 2):
        with Server(path, "name=ranker") as server:
            body = json.dumps(PAYLOAD).encode()
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client, socket.create_connection(("127.0.0.1", server.port)):
                client.sendall(b"POST /v1/flagger/ranker/event HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
                check(server.until(lambda: taken(client)), "the head is not read")
                threading.Thread(target=send_at_the_end, args=(server, client, body), daemon=True).start()
                began = time.monotonic()
                check(server.stop(number) == 0, "ends with %s" % server.code)
                check(time.monotonic() - began < 8, "ends after %.1f s" % (time.monotonic() - began))
                check(client.recv(4096).startswith(b"HTTP/1.1 200"), "what was under way got no answer")
            with Server(path, "name=ranker", listen="127.0.0.1:%d" % server.port):
                with Server(path, "name=ranker", listen="127.0.0.1:%d" % server.port, wait=False) as second:
                    check(second.process.wait(timeout=60) == 4 and "in use" in second.read_log(), "a second one: %s" % second.log)
    for words, store_path in ((["listen=nonsense"], path), (["listen=127.0.0.1:99999"], path), (["name=a/b"], path), (["name=other"], path),
                              ([], rig.HOST)):
        with Server(store_path, *words, wait=False) as server:
            check(server.process.wait(timeout=60) == 2 and "upgate: error" in server.read_log(), "%s: %s" % (words, server.log))
    store.close()


def main():
    try:
        found = manifests()
    except ImportError:
        print("skipped: no PyYAML for this python3")
        return 77
    with tempfile.TemporaryDirectory(prefix="upgate-serve-") as folder:
        test_argo_limits(folder, found)
        test_argo_outage(folder, found)
        test_argo_time_out(found)
        test_flagger(folder, found)
        test_statuses(folder)
        test_damage(folder)
        test_writer_is_not_kept_waiting(folder)
        test_runs_of_ab(folder)
        test_tokens(folder)
        test_tls(folder)
        test_end(folder)
    return rig.finish("canary serve: Argo, Flagger, tokens, TLS, damage")


if __name__ == "__main__":
    sys.exit(main())
