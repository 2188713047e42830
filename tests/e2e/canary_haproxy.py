#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traffic of a canary with a real HAProxy and two servers under load: weights set and read back, drain, reload and restart in the middle,
a socket that is gone, slow or hostile, somebody else's weights, algorithms and levels that cannot work."""
import os
import socket
import threading
import time

import canary_rig as rig
from canary_rig import Drive, Load, fetch, stage, until


def close(got, want, tolerance):
    assert abs(got - want) <= tolerance, (got, want)


def weights_are_set_and_read_back():
    with stage() as (proxy, servers, _), Drive(proxy.traffic()) as drive:
        drive.good("traffic")
        close(drive.good("get")["percent"], 0, 0)
        load = Load(proxy.port)
        for percent, weight in ((1, 3), (5, 13), (25, 64), (50, 128), (0.01, 1), (99.99, 255), (100, 256), (0, 0)):
            got = drive.good("set", percent)["percent"]
            close(got, 100 * weight / 256, 1e-9)
            state = proxy.say("get weight ranker/new") + proxy.say("get weight ranker/old")
            assert "%d (" % weight in state and "%d (" % (256 - weight) in state, state
            close(drive.good("get")["percent"], got, 1e-9)
            look = drive.good("look")
            assert look["baseline"]["up"] and look["candidate"]["up"], look
        counts = load.stop()
        assert set(key[0] for key in counts) == {200}, counts
        drive.good("set", 25)
        load = Load(proxy.port)  # all of it under one weight, and counted when it has ended
        until(lambda: load.total() > 800)
        counts = load.stop()
        assert set(key[0] for key in counts) == {200}, counts
        close(counts.get((200, "new"), 0) / sum(counts.values()), 0.25, 0.06)
        look = drive.good("look")
        assert look["candidate"]["requests"] == servers[1].requests, (look, servers[1].requests)
        assert look["candidate"]["in_flight"] == 0, look
        drive.bad("0 to 100", "set", 101)
        drive.bad("0 to 100", "set", -1)


def tcp_socket():
    with stage() as (proxy, _, _folder), Drive(proxy.traffic(socket="127.0.0.1:%d" % proxy.tcp)) as drive:
        drive.good("traffic")
        close(drive.good("set", 50)["percent"], 50, 0)


def second_baseline():
    with stage(("old", "new", "old2")) as (proxy, servers, _), Drive(proxy.traffic(baseline2="old2")) as drive:
        drive.good("traffic")
        close(drive.good("aa", 50)["percent"], 50, 0)
        close(drive.good("get")["percent"], 0, 0)  # of the candidate
        for _ in range(40):
            fetch(proxy.port)
        assert servers[1].requests == 0 and servers[2].requests == 20, [server.requests for server in servers]
        close(drive.good("set", 50)["percent"], 50, 0)
        for _ in range(40):
            fetch(proxy.port)
        assert servers[1].requests == 20 and servers[2].requests == 20
    with stage() as (proxy, _, _folder), Drive(proxy.traffic()) as drive:
        drive.good("traffic")
        drive.bad("second baseline", "aa", 50)


def drain_waits_for_a_long_request():
    with stage() as (proxy, servers, _), Drive(proxy.traffic()) as drive:
        drive.good("traffic")
        drive.good("set", 100)
        answers = []
        client = threading.Thread(target=lambda: answers.append(fetch(proxy.port, "/hang")))
        client.start()
        assert until(lambda: drive.good("look")["candidate"]["in_flight"] == 1)
        drive.good("set", 0)
        began = time.monotonic()
        assert drive.good("drain", "candidate", 0.5)["left"] == 1  # it lasts longer than the drain: told, and no error
        assert 0.4 < time.monotonic() - began < 10
        assert not answers  # and it was not cut off
        assert fetch(proxy.port)[1] == "old"
        threading.Timer(0.3, servers[1].release.set).start()
        began = time.monotonic()
        assert drive.good("drain", "candidate", 60)["left"] == 0
        assert time.monotonic() - began < 30
        client.join()
        assert answers == [(200, "new")], answers
        assert "DRAIN" in proxy.say("show stat ranker 4 -1")
        close(drive.good("set", 50)["percent"], 50, 0)  # and ready again, when it is to get requests
        assert {fetch(proxy.port)[1] for _ in range(4)} == {"old", "new"}


def back_at_once():
    """From the decision to the last new request on the candidate."""
    with stage() as (proxy, servers, _), Drive(proxy.traffic()) as drive:
        drive.good("traffic")
        load = Load(proxy.port, clients=6, pause=0.001)
        took, said = [], []
        for _ in range(10):
            drive.good("set", 50)
            before = servers[1].requests
            assert until(lambda: servers[1].requests > before + 5)
            began = time.monotonic()
            drive.good("set", 0)
            took.append(time.monotonic() - began)
            began = time.monotonic()
            proxy.say("show info")
            said.append(time.monotonic() - began)  # what one question takes, on this machine in this moment
            assert until(lambda: drive.good("look")["candidate"]["in_flight"] == 0)  # what was on its way
            late = servers[1].requests
            time.sleep(0.2)
            assert servers[1].requests == late, "requests after the weight was 0"
        counts = load.stop()
        assert set(key[0] for key in counts) == {200}, counts
        took.sort(), said.sort()
        print("   weight 0 set and read back in %.1f ms (median), %.1f ms (worst of 10)" % (took[5] * 1e3, took[-1] * 1e3))
        assert took[5] < 0.2 + 10 * said[5], (took, said)  # the whole way back may take 200 ms


def reload_in_the_middle():
    with stage() as (proxy, _, _folder), Drive(proxy.traffic()) as drive:
        drive.good("traffic")
        load = Load(proxy.port)
        drive.good("set", 25)
        drive.good("look")
        proxy.reload()
        assert drive.bad("100|192|reloaded", "look") == -71  # EPROTO
        close(drive.good("get")["percent"], 0, 0)  # as the configuration has it
        close(drive.good("set", 25)["percent"], 25, 0)  # set again
        drive.good("look")
        before = load.total()
        assert until(lambda: load.total() > before + 100)
        counts = load.stop()
        assert set(key[0] for key in counts) == {200}, counts


def restart_and_socket_gone():
    with stage() as (proxy, _, _folder), Drive(proxy.traffic(timeout_ms=10000, retries=3)) as drive:
        drive.good("traffic")
        drive.good("set", 25)
        proxy.stop()
        began = time.monotonic()
        assert drive.bad("is HAProxy running", "set", 0) == -2
        assert drive.bad("is HAProxy running", "look") == -2
        drive.bad("is HAProxy running", "traffic")
        assert time.monotonic() - began < 25  # three retries of each, and not all of its 10 s
    with stage() as (proxy, _, _folder), Drive(proxy.traffic(timeout_ms=60000, retries=1000)) as drive:
        drive.good("traffic")
        drive.good("set", 25)
        proxy.stop()
        starter = threading.Timer(0.2, proxy.start)
        starter.start()
        close(drive.good("set", 50)["percent"], 50, 0)  # one of the retries finds it
        starter.join()


def weights_of_somebody_else():
    with stage() as (proxy, servers, _), Drive(proxy.traffic()) as drive:
        drive.good("traffic")
        drive.good("set", 5)
        proxy.say("set weight ranker/new 200")
        assert drive.bad("200", "look") == -71
        drive.good("set", 5)
        drive.good("look")
        proxy.say("set server ranker/new state maint")
        drive.bad("0", "look")
        drive.bad("maintenance", "set", 25)
        close(drive.good("set", 0)["percent"], 0, 0)  # the way back is open


def a_third_server_is_refused_by_name():
    with stage(("old", "new", "other"), weights=(100, 0, 7)) as (proxy, servers, _), Drive(proxy.traffic()) as drive:
        drive.bad("'other'|weight 7", "traffic")
        proxy.say("set weight ranker/other 0")
        drive.good("traffic")
        drive.good("set", 50)
        proxy.say("set weight ranker/other 7")
        drive.bad("'other'", "look")
        drive.bad("'other'", "set", 75)  # no move up
        close(drive.good("set", 0)["percent"], 0, 0)  # but always back
        close(drive.good("get")["percent"], 0, 0)


def a_backup_server_is_no_third_one():
    spare = "    server spare 127.0.0.1:%d backup" % rig.free_port()
    with stage(extra_servers=spare) as (proxy, _, _folder), Drive(proxy.traffic()) as drive:
        drive.good("traffic")
        close(drive.good("set", 25)["percent"], 25, 0)
        drive.good("look")
        close(drive.good("set", 0)["percent"], 0, 0)


def what_cannot_work_is_told_at_the_begin():
    with stage(balance="static-rr") as (proxy, _, _folder), Drive(proxy.traffic()) as drive:
        drive.bad("static-rr|roundrobin", "traffic")
    with stage(balance="first") as (proxy, _, _folder), Drive(proxy.traffic()) as drive:
        drive.bad("balance first", "traffic")
    with stage(sticky=True) as (proxy, _, _folder), Drive(proxy.traffic()) as drive:
        drive.bad("cookie 'SRV'|take the `cookie` out", "traffic")
    with stage() as (proxy, _, _folder), Drive(proxy.traffic()) as drive:  # or comes with a reload: no move up, but a way back
        drive.good("traffic")
        drive.good("set", 25)
        proxy.lines["sticky"] = True
        proxy.reload()
        assert until(lambda: "cookie 'SRV'" in drive.ask("look").get("text", "")), drive.ask("look")
        drive.bad("cookie 'SRV'", "set", 50)
        close(drive.good("set", 0)["percent"], 0, 0)
    with stage(balance="source") as (proxy, _, _folder), Drive(proxy.traffic()) as drive:
        drive.good("traffic")  # with `hash-type consistent` it would work, and this cannot be seen
        assert drive.bad("hash-type consistent", "set", 25) == -95
        close(drive.good("get")["percent"], 0, 0)
        assert fetch(proxy.port)[1] == "old"
        assert drive.ask("set", 100)["error"]  # and never a backend without weights
        assert fetch(proxy.port) == (200, "old")
    for level in ("operator", "user"):
        with stage(level=level) as (proxy, _, _folder), Drive(proxy.traffic()) as drive:
            assert drive.bad("level %s|level admin" % level, "traffic") == -13
    with stage() as (proxy, _, _folder):
        for wrong, words in (({"backend": "nope"}, "no backend 'nope'"), ({"candidate": "nope"}, "no server 'nope'|old, new"),
                             ({"candidate": "old"}, "two arms"), ({"socket": "/nonexistent/s"}, "/nonexistent/s"),
                             ({"socket": "x" * 200}, "107"), ({"socket": "127.0.0.1:1"}, "refused")):
            with Drive(proxy.traffic(retries=0, **wrong)) as drive:
                drive.bad(words, "traffic")


def health_is_seen():
    with stage() as (proxy, servers, _), Drive(proxy.traffic()) as drive:
        drive.good("traffic")
        drive.good("set", 5)
        servers[1].close()
        assert until(lambda: not drive.good("look")["candidate"]["up"]), "a dead server is up"
        assert drive.good("look")["baseline"]["up"]


class Impostor:
    """Listens where HAProxy should."""

    def __init__(self, path, behave):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(path)
        self.socket.listen(8)
        self.behave, self.alive = behave, True
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while self.alive:
            try:
                client, _ = self.socket.accept()
                threading.Thread(target=self.one, args=(client,), daemon=True).start()
            except OSError:
                return

    def one(self, client):
        try:
            self.behave(client)
        except OSError:
            pass
        client.close()

    def close(self):
        self.alive = False
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def hostile_sockets():
    def drip(client):
        while True:
            client.sendall(b"a")
            time.sleep(0.01)

    def flood(client):
        while True:
            client.sendall(b"x" * 65536)

    def junk(client):
        client.recv(100)
        client.sendall(bytes(range(256)))

    def half(client):  # plausible, then nonsense
        line = client.recv(100)
        client.sendall(b"admin\n\n" if b"level" in line else b"1\n# be_id be_name srv_name srv_uweight srv_admin_state\n4 ranker\n\n")

    def liar(client):  # takes everything and changes nothing
        line = client.recv(100).decode()
        if "level" in line:
            client.sendall(b"admin\n\n")
        elif "stat " in line:
            client.sendall(b"# pxname,svname,scur,qcur,stot,status,algo\nranker,old,0,0,0,UP,\nranker,new,0,0,0,UP,\n\n")
        elif "servers state" in line:
            client.sendall(b"1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight\n"
                           b"4 ranker 1 old 127.0.0.1 2 0 100\n4 ranker 2 new 127.0.0.1 2 0 0\n\n")
        else:
            client.sendall(b"\n")

    with stage() as (proxy, _, folder):
        for number, (behave, words) in enumerate(((lambda client: time.sleep(60), "timed out"), (drip, "timed out"), (flood, "4 MiB"),
                                                  (junk, "not HAProxy"), (lambda client: None, "failed to ask HAProxy"), (half, "no servers"))):
            path = os.path.join(folder, "impostor%d" % number)
            impostor = Impostor(path, behave)
            began = time.monotonic()
            hangs = words == "timed out"  # the others have time to say what they say
            with Drive(proxy.traffic(socket=path, timeout_ms=400 if hangs else 30000, retries=1)) as drive:
                drive.bad(words, "traffic")
            assert not hangs or time.monotonic() - began < 20, number
            impostor.close()
        path = os.path.join(folder, "liar")
        impostor = Impostor(path, liar)
        with Drive(proxy.traffic(socket=path)) as drive:
            drive.good("traffic")
            assert drive.bad("were set to 192|are 100 and 0", "set", 25) == -71
        impostor.close()


if __name__ == "__main__":
    rig.need("haproxy")
    rig.run([weights_are_set_and_read_back, tcp_socket, second_baseline, drain_waits_for_a_long_request, back_at_once, reload_in_the_middle,
             restart_and_socket_gone, weights_of_somebody_else, a_third_server_is_refused_by_name,
             a_backup_server_is_no_third_one, what_cannot_work_is_told_at_the_begin, health_is_seen, hostile_sockets])
