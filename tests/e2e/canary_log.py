#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HAProxy's log as evidence, with a real HAProxy: lines of every kind counted to the right arm, in both formats; by UDP, at a Unix socket,
in a file that is rotated; lost lines known; what the reading costs."""
import json
import os
import socket
import struct
import threading
import time

import canary_rig as rig
from canary_rig import Drive, Load, evidence, fetch, stage, sums, until


def the_documents_log_format():
    with open(os.path.join(rig.SOURCE, "docs/CANARY.md"), encoding="utf-8") as file:
        assert "log-format '%s'\n" % rig.LOG_FORMAT in file.read(), "docs/CANARY.md has another log-format than the tests"


def log_lines_reach_their_arms(text=False):
    port = rig.free_port(socket.SOCK_DGRAM)
    with stage(log="127.0.0.1:%d" % port, text=text) as (proxy, servers, _), \
            Drive(proxy.traffic(), [{"listen": "127.0.0.1:%d" % port}]) as drive:
        drive.good("sources")
        drive.good("traffic")
        drive.good("set", 50)
        for path, count in (("/", 56), ("/error", 10), ("/wrong", 4), ("/verbose", 2), ("/right", 4), ("/cut", 4)):
            for _ in range(count):
                try:
                    fetch(proxy.port, path)
                except Exception:
                    assert path == "/cut"
        total = sums(evidence(drive, 80))
        state = drive.state()
        assert total[0]["requests"] + total[1]["requests"] == 80, (total, state)
        assert total[0]["requests"] == servers[0].requests and total[1]["requests"] == servers[1].requests, total
        assert sum(arm["errors"] for arm in total) == 14, total
        assert sum(arm["truncated"] for arm in total) == 4, total
        assert sum(arm["wrong"] for arm in total) == (0 if text else 6), total
        assert sum(arm["timed"] for arm in total) == 66, total
        assert (state["kept"], state["lost"], state["late"], state["dropped"]) == (80, 0, 0, 0), state
        # The client goes away: its end, not the server's.
        with socket.socket() as client:
            client.connect(("127.0.0.1", proxy.port))
            client.sendall(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
            assert until(lambda: sum(server.requests for server in servers) == 81)
        for server in servers:
            server.release.set()
        total = sums(evidence(drive, 1))
        assert total[0]["requests"] + total[1]["requests"] == 1 and total[0]["errors"] + total[1]["errors"] == 0, total
        # No connection to the server, at once in the totals.
        drive.good("set", 100)
        proxy.say("disable health ranker/new")  # which would take it away before it is asked
        servers[1].close()
        refused = sum(fetch(proxy.port)[0] == 503 for _ in range(3))
        assert until(lambda: drive.good("poll", 50) == {} and drive.ask("totals")["refused"][1] >= 1, 60), drive.ask("totals")
        assert refused >= 1
        proxy.say("enable health ranker/new")
        assert until(lambda: any(line.startswith("ranker,new,") and ",DOWN" in line for line in proxy.say("show stat").split("\n")), 60), proxy.say("show stat")
        fetch(proxy.port)
        drive.good("poll", 100)
        notices = drive.state()
        assert notices["dropped"] == 0, notices  # "Server ranker/new is DOWN" is no damaged line


def text_log_lines_reach_their_arms():
    """Their date is local time; ours is that of the proxy, as a rule."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Asia/Kolkata"
    try:
        log_lines_reach_their_arms(True)
        port = rig.free_port(socket.SOCK_DGRAM)
        with stage(log="127.0.0.1:%d" % port, text=True) as (proxy, _, _folder):
            os.environ["TZ"] = "America/New_York"  # ours is another one: seen as a clock that differs
            with Drive(proxy.traffic(), [{"listen": "127.0.0.1:%d" % port}]) as drive:
                drive.good("sources")
                for _ in range(50):
                    fetch(proxy.port)
                    drive.good("poll", 10)
                assert sums(evidence(drive, 43))[0]["requests"] == 43
                state = drive.state()
                assert (state["dropped"], state["late"], state["kept"]) == (7, 0, 43), state
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before


def every_request_is_counted_once():
    """Under load, while weights move and the proxy is reloaded: evidence, servers and clients agree to the last request."""
    port = rig.free_port(socket.SOCK_DGRAM)
    with stage(log="127.0.0.1:%d" % port, threads=2) as (proxy, servers, _), \
            Drive(proxy.traffic(), [{"listen": "127.0.0.1:%d" % port}]) as drive:
        drive.good("sources")
        drive.good("traffic")
        load = Load(proxy.port, clients=6)
        taken = []
        for percent in (5, 25, 50, 0, 75, 100):
            drive.good("set", percent)
            if percent == 50:
                proxy.reload()
                drive.good("set", percent)
            for _ in range(10):
                drive.good("poll", 100)
                taken.extend(drive.ask("take"))
        counts = load.stop()
        clients = {name: counts.get((200, name), 0) for name in ("old", "new")}
        want = sum(server.requests for server in servers) - sum(sums(taken)[arm]["requests"] for arm in range(2))
        taken.extend(evidence(drive, want))
        drive.good("poll", 2500)
        total, state = sums(taken), drive.state()
        assert [arm["requests"] for arm in total] == [server.requests for server in servers] == [clients["old"], clients["new"]], \
            (total, [server.requests for server in servers], counts)
        assert set(key[0] for key in counts) == {200} and not any(arm["errors"] for arm in total), (counts, total)
        assert (state["lost"], state["late"], state["dropped"]) == (0, 0, 0), state
        assert [second["at"] for second in taken] == sorted({second["at"] for second in taken})
        print("   %d requests" % sum(clients.values()))


def what_clients_give_up():
    """With `option abortonclose` HAProxy tells it when it happens: no error, and no answer either. Without, it waits for the server."""
    for aborts in (True, False):
        port = rig.free_port(socket.SOCK_DGRAM)
        with stage(log="127.0.0.1:%d" % port, aborts=aborts) as (proxy, servers, _), Drive(proxy.traffic(), [{"listen": "127.0.0.1:%d" % port}]) as drive:
            drive.good("sources")
            for reset in (False, True, False):  # by which HAProxy tells it in two ways
                with socket.create_connection(("127.0.0.1", proxy.port)) as client:
                    client.sendall(b"GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
                    assert until(lambda: servers[0].requests > 0), "nobody is asked"
                    servers[0].requests = 0
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", reset, 0))
            if not aborts:
                servers[0].release.set()
            seconds = evidence(drive, 3)
            assert sums(seconds)[0]["errors"] == 0, seconds
            assert sum(second["arms"][0]["rejected"] for second in seconds) == (3 if aborts else 0), seconds


def latency_has_microseconds():
    port = rig.free_port(socket.SOCK_DGRAM)
    with stage(log="127.0.0.1:%d" % port) as (proxy, servers, _), \
            Drive(proxy.traffic(), [{"listen": "127.0.0.1:%d" % port}]) as drive:
        drive.good("sources")
        drive.good("traffic")
        for _ in range(30):
            fetch(proxy.port)
        # The least of the seconds: of the others a loaded machine has its share.
        fast = min(second["arms"][0]["p50"] for second in evidence(drive, 30) if second["arms"][0]["requests"])
        servers[0].delay = 0.5  # more than a busy machine adds to most of those before
        for _ in range(5):
            fetch(proxy.port)
        slow = min(second["arms"][0]["p50"] for second in evidence(drive, 5) if second["arms"][0]["requests"])
        assert 0.00005 < fast < 0.4, fast
        assert fast * 1e3 != round(fast * 1e3), fast
        assert 0.48 < slow < 5, slow  # bins are 2 % wide


def told(drive, kept, lost):
    """Until the first source has kept so many and missed so many."""
    return until(lambda: drive.good("poll", 100) == {} and (drive.state()["kept"], drive.state()["lost"]) == (kept, lost), 60, 0)


def lost_lines_are_counted():
    port = rig.free_port(socket.SOCK_DGRAM)
    relay = rig.Relay(port, lambda number: number % 10 == 5)
    with stage(log="127.0.0.1:%d" % relay.port, checks=False) as (proxy, _, _folder), \
            Drive(proxy.traffic(), [{"listen": "127.0.0.1:%d" % port}]) as drive:
        drive.good("sources")
        for _ in range(100):
            fetch(proxy.port)
        assert told(drive, 100 - 10, 10) and relay.lost == 10, drive.state()
        proxy.reload()  # a new process counts anew: no loss
        for _ in range(20):
            fetch(proxy.port)
        assert told(drive, 120 - 12, 12) and relay.lost == 12, drive.state()


def kernel_drops_are_counted():
    port = rig.free_port(socket.SOCK_DGRAM)
    with stage() as (proxy, _, _folder), Drive(proxy.traffic(), [{"listen": "127.0.0.1:%d" % port}]) as drive:
        drive.good("sources")
        line = (b"<134>Nov 23 00:50:22 haproxy[1]: 127.0.0.1:1 [23/Nov/2026:00:50:22.000] in ranker/old 0/0/0/1/1 200 9 - - ---- "
                b'1/1/0/0/0 0/0 "GET /%s HTTP/1.1"\n' % (b"x" * 4000))
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sent = 0
        while sent < 40000:  # nobody reads: more than the largest buffer holds
            sender.sendto(line, ("127.0.0.1", port))
            sent += 1
        assert until(lambda: drive.good("poll", 50) == {} and drive.state()["seen"] > 0)

        def all_are_known():  # how many were dropped comes with the next one that was not
            nonlocal sent
            sender.sendto(line, ("127.0.0.1", port))
            sent += 1
            drive.good("poll", 50)
            state = drive.state()
            return state["lost"] > 1000 and state["seen"] + state["lost"] == sent
        assert until(all_are_known, 60, 0), (sent, drive.state())


def a_unix_socket_and_a_file():
    with stage() as (proxy, _, folder):
        path, log = os.path.join(folder, "log.sock"), os.path.join(folder, "haproxy.log")
        stale = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        stale.bind(path)
        stale.close()  # what a killed controller leaves
        with Drive(proxy.traffic(), [{"listen": "unix:" + path}, {"file": log}]) as drive:
            drive.good("sources")
            drive.good("poll", 10)
            assert "No such file" in drive.state(1)["problem"]
            proxy.log = path
            proxy.reload()
            for _ in range(30):
                fetch(proxy.port)
                drive.good("poll", 5)  # ten datagrams fit into the kernel's default queue
            assert sums(evidence(drive, 30))[0]["requests"] == 30
            if int(open("/proc/sys/net/unix/max_dgram_qlen", encoding="ascii").read()) < 64:
                for _ in range(100):  # nobody reads: the proxy drops them, and the numbers tell
                    fetch(proxy.port)
                drive.good("poll", 100)
                fetch(proxy.port)
                assert until(lambda: drive.good("poll", 100) == {} and drive.state()["kept"] + drive.state()["lost"] == 131, 60, 0), drive.state()
                state = drive.state()
                assert state["lost"] > 50, state
                assert "max_dgram_qlen" in state["problem"], state
                drive.ask("take")
            line = ('{"upgate":1,"pid":7,"front":"in","seq":%d,"back":"ranker","server":"new","status":200,"end_us":%d,"us":"1500","ms":"1",'
                    '"term":"--","bytes":"9","wrong":""}\n')
            with open(log, "w", encoding="utf-8") as file:
                for number in range(20):
                    file.write("Nov 23 00:00:00 host haproxy[7]: " + line % (number, time.time() * 1e6))
                file.write((line % (20, time.time() * 1e6))[:40])
                file.flush()
                assert until(lambda: drive.good("poll", 100) == {} and drive.state(1)["seen"] == 20, 60, 0), drive.state(1)
                os.rename(log, log + ".1")  # rotated in the middle of a line
                with open(log, "w", encoding="utf-8") as fresh:
                    file.write((line % (20, time.time() * 1e6))[40:])
                    file.flush()
                    assert until(lambda: drive.good("poll", 100) == {} and drive.state(1)["seen"] == 21, 60, 0), drive.state(1)
                    fresh.write(line % (22, time.time() * 1e6))
                    fresh.flush()
                    assert until(lambda: drive.good("poll", 100) == {} and drive.state(1)["seen"] == 22, 60, 0), drive.state(1)
                    fresh.truncate(0)
                    fresh.seek(0)
                    for _ in range(5):  # a look at least, before it is as long again
                        drive.good("poll", 300)
                    fresh.write(line % (23, time.time() * 1e6))
                    fresh.flush()
                    total = sums(evidence(drive, 23, arms=[1]))
            assert total[1]["requests"] == 23, total
            state = drive.state(1)
            assert state["dropped"] == 0 and state["lost"] == 1 and state["problem"] == "", state
        assert not os.path.exists(path)


def json_lines():
    with stage() as (proxy, _, folder):
        paths = [os.path.join(folder, name) for name in ("old.jsonl", "new.jsonl")]
        with open(paths[0], "w", encoding="utf-8") as file:
            file.write('{"t": 1, "status": 500}\n' * 50 + '{"t": 1, "sta')  # from before: passed over, with the half line
        with Drive(proxy.traffic(), [{"baseline": paths[0], "candidate": paths[1]}]) as drive:
            drive.good("sources")
            drive.good("poll", 100)
            assert "No such file" in drive.state()["problem"], drive.state()
            now = time.time()
            good = ['"status": 200, "ms": 4.1', '"status": 200, "ms": 4.1, "wrong": true', '"ms": 7, "status": 503',
                    '"status": 200, "truncated": true', '"status": 0', '"status": null', '"ms": null, "status": 404, "more": {"a": [1, "}"]}']
            bad = ['{"t": "%f", "status": 200}' % now, "{}", "[]", '{"t": NaN}', '{"t": 1e400}', '{"t": -5}', '{"t": %f, "ms": -1}' % now,
                   '{"t": %f, "wrong": 1}' % now, '{"t": %f' % now, "x" * 100000, '{"t": %f} {}' % now, "\0\0\0", '{"status": 200}',
                   '{"t": %f, "status": 200}' % (now + 3600)]  # a stamp in the future, alone
            with open(paths[0], "a", encoding="utf-8") as old, open(paths[1], "w", encoding="utf-8") as new:
                old.write('tus": 500}\n')
                for line in good:
                    old.write('{"t": %.6f, %s}\r\n' % (now, line))
                for line in bad:
                    new.write(line + "\n")
                new.write('{"t": %.6f, "status": 200, "ms": 0.25}\n' % now)
            seconds = evidence(drive, 1, arms=[1])
            total, state = sums(seconds), drive.state()
            assert sum(second["arms"][0]["rejected"] for second in seconds) == 1, seconds
            assert total[0] == {"requests": 7, "errors": 4, "truncated": 1, "wrong": 1, "timed": 2}, total
            assert total[1] == {"requests": 1, "errors": 0, "truncated": 0, "wrong": 0, "timed": 1}, total
            assert (state["dropped"], state["kept"], state["late"], state["problem"]) == (len(bad), 8, 0, ""), state


def wrong_sources():
    with stage() as (proxy, _, folder):
        port = rig.free_port(socket.SOCK_DGRAM)
        for sources, words in (([{"listen": "nonsense"}], "HOST:PORT"), ([{"listen": "127.0.0.1:99999"}], "127.0.0.1:99999"),
                               ([], "1 to"), ([{"listen": "unix:" + folder + "/" + "x" * 200}], "107"),
                               ([{"listen": "192.0.2.1:5514"}], "192.0.2.1"),
                               ([{"listen": "127.0.0.1:%d" % port}, {"listen": "127.0.0.1:%d" % port}], "in use"),
                               ([{"listen": "127.0.0.1:%d" % port}, {"url": "http://127.0.0.1:9", "baseline": {"requests": "x"}}], "same requests"),
                               ([{"url": "ftp://127.0.0.1", "baseline": {"requests": "x"}}], "http://"),
                               ([{"url": "http://127.0.0.1:9", "baseline": {"errors": "x"}}], "no source counts")):
            with Drive(proxy.traffic(), sources) as drive:
                drive.bad(words, "sources")
        with Drive(dict(set=["/bin/true"]), [{"listen": "127.0.0.1:%d" % port}]) as drive:
            drive.bad("names of the servers", "sources")


def reading_costs_little():
    """2,000 lines a second as HAProxy sends them, for 5 s: CPU time of the whole driving process."""
    port = rig.free_port(socket.SOCK_DGRAM)
    with stage() as (proxy, _, _folder), Drive(proxy.traffic(), [{"listen": "127.0.0.1:%d" % port}]) as drive:
        drive.good("sources")
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        rate, seconds, done = 2000, 5, threading.Event()

        def send():
            began = time.monotonic()
            for number in range(rate * seconds):
                line = {"upgate": 1, "pid": 7, "front": "in", "seq": number, "back": "ranker", "server": "old", "status": 200,
                        "end_us": int(time.time() * 1e6), "us": "1500", "ms": "1", "term": "--", "bytes": "131", "wrong": ""}
                sender.sendto(b"<134>Nov 23 00:50:22 haproxy[7]: " + json.dumps(line).encode() + b"\n", ("127.0.0.1", port))
                if number % 4 == 0:
                    time.sleep(max(0, began + number / rate - time.monotonic()))
            done.set()
        before = drive.ask("state")["cpu"]
        threading.Thread(target=send, daemon=True).start()
        began = time.monotonic()
        while not done.is_set():
            drive.good("poll", 500)
            drive.ask("take")
        drive.good("poll", 100)
        took = time.monotonic() - began
        share = (drive.ask("state")["cpu"] - before) / took
        state = drive.state()
        assert state["kept"] == rate * seconds and state["lost"] == 0, state
        print("   %.0f lines/s cost %.2f %% of a core" % (rate * seconds / took, 100 * share))
        # 1 % is the aim, measured alone; a machine under load (caches, other hyper-thread) may take twice as long, and the sanitizers
        # five times.
        with open(rig.DRIVE, "rb") as file:
            assert share < (0.1 if b"__asan" in file.read() else 0.02), share


if __name__ == "__main__":
    rig.need("haproxy")
    rig.run([the_documents_log_format, log_lines_reach_their_arms, text_log_lines_reach_their_arms, every_request_is_counted_once,
             what_clients_give_up, latency_has_microseconds, lost_lines_are_counted, kernel_drops_are_counted, a_unix_socket_and_a_file, json_lines, wrong_sources,
             reading_costs_little])
