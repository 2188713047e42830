#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traffic of a canary by hooks: commands without a shell and webhooks, with retries and deadlines; read back; what hangs is killed with
its children; what lies, floods or fails is told."""
import http.server
import json
import os
import shutil
import sys
import tempfile
import threading
import time

import canary_rig as rig
from canary_rig import Drive, until


def script(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\n" + text)
    os.chmod(path, 0o755)
    return path


def alive(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def commands(folder):
    store = os.path.join(folder, "percent")
    set_hook = script(folder, "set", 'printf "%%s" "$1" > %s; echo "$2" > %s.raw\n' % (store, store))
    get_hook = script(folder, "get", "cat %s 2>/dev/null || echo 0\n" % store)
    drain_hook = script(folder, "drain", 'echo "$1" > %s.drained\n' % store)
    with Drive(dict(set=[set_hook, "{percent}", "a{percent}b; touch %s.shell" % store], get=[get_hook], drain=[drain_hook, "{arm}"])) as drive:
        drive.good("traffic")
        assert drive.good("get")["percent"] == 0
        assert drive.good("set", 12.5)["percent"] == 12.5
        with open(store + ".raw", encoding="utf-8") as file:
            assert file.read() == "a12.5b; touch %s.shell\n" % store
        assert not os.path.exists(store + ".shell")  # no shell has seen it
        assert drive.good("set", 0)["percent"] == 0
        assert drive.good("drain", "candidate", 5)["left"] == 0
        with open(store + ".drained", encoding="utf-8") as file:
            assert file.read() == "candidate\n"
        look = drive.good("look")
        assert look["candidate"]["up"] and look["baseline"]["up"]
        drive.bad("second baseline", "aa", 5)
    with Drive(dict(set=[set_hook, "{percent}"])) as drive:  # without get it is believed
        drive.good("traffic")
        assert drive.good("set", 5)["percent"] == 5
        assert drive.good("get")["percent"] == 5


def what_is_read_back_must_be_what_was_set(folder):
    get_hook = script(folder, "says", "cat %s/says.txt\n" % folder)

    def says(text):
        with open(os.path.join(folder, "says.txt"), "w", encoding="utf-8") as file:
            file.write(text)
    says("0")
    with Drive(dict(set=["/bin/true"], get=[get_hook], retries=0)) as drive:
        drive.good("traffic")
        for wanted, said in ((5, "5"), (5, " 5.0 %\n"), (5.4, "5"), (100, "100"), (0, "0"), (1, "1.17")):
            says(said)
            assert drive.good("set", wanted)["percent"] == float(said.strip(" %\n")), said
        for wanted, said in ((5, "6"), (100, "99.9"), (0, "0.1"), (0.3, "0"), (99.8, "100"), (25, "0")):
            says(said)
            assert drive.bad("tells", "set", wanted) == -71, said
        for said in ("", "nan", "-1", "101", "5 6", "five", "\x1b[31m5", "5" * 100, "5\n6", "\0" * 100):
            says(said)
            assert drive.bad("0 to 100", "get") == -71, said


def what_fails_is_tried_again(folder):
    count = os.path.join(folder, "count")
    flaky = script(folder, "flaky", 'echo x >> %s; [ $(wc -l < %s) -ge 3 ] || { echo "not yet: \033[1m$$" >&2; exit 7; }\n' % (count, count))
    with Drive(dict(set=[flaky], retries=3)) as drive:
        drive.good("traffic")
        drive.good("set", 5)
    os.unlink(count)
    with Drive(dict(set=[flaky], retries=1)) as drive:
        drive.good("traffic")
        drive.bad("exit status 7|not yet: ?[1m", "set", 5)
    with Drive(dict(set=[folder + "/nothing"], retries=300, timeout_ms=60000)) as drive:
        drive.good("traffic")
        began = time.monotonic()
        assert drive.bad("No such file", "set", 5) == -2
        assert time.monotonic() - began < 20  # trying again would not help
    with Drive(dict(set=[script(folder, "signal", "kill -SEGV $$\n")], retries=0)) as drive:
        drive.good("traffic")
        drive.bad("signal 11", "set", 5)
    with Drive({}) as drive:
        drive.bad("'set' or a url", "traffic")


def what_hangs_is_killed_with_its_children(folder):
    pids = os.path.join(folder, "pids")
    hang = script(folder, "hang", "trap '' TERM INT; sleep 60 & echo $$ $! > %s; wait; sleep 60\n" % pids)
    with Drive(dict(set=[hang], timeout_ms=5000)) as drive:  # by then it has begun, and says which
        drive.good("traffic")
        began = time.monotonic()
        assert drive.bad("did not end in time", "set", 5) == -110
        assert 4.9 < time.monotonic() - began < 40
        with open(pids, encoding="utf-8") as file:
            started = [int(word) for word in file.read().split()]
        assert len(started) == 2 and until(lambda: not any(alive(pid) for pid in started), 20), started
        children = "/proc/%d/task/%d/children" % (drive.process.pid, drive.process.pid)
        if os.path.exists(children):
            with open(children, encoding="utf-8") as file:
                assert file.read() == ""  # reaped
    # A daemon that keeps the pipes open holds nobody up.
    daemon = script(folder, "daemon", "setsid sleep 30 & echo 5\n")
    with Drive(dict(set=["/bin/true"], get=[daemon], timeout_ms=60000)) as drive:
        began = time.monotonic()
        drive.good("traffic")
        assert drive.good("set", 5)["percent"] == 5
        assert time.monotonic() - began < 20
    flood = script(folder, "flood", "exec yes\n")
    with Drive(dict(set=["/bin/true"], get=[flood], timeout_ms=700)) as drive:
        drive.bad("did not end in time", "traffic")
        with open("/proc/%d/statm" % drive.process.pid, encoding="utf-8") as file:
            assert int(file.read().split()[1]) < 20000  # pages: what is too much is not kept
    # The drain's deadline is its own, not the plan's.
    with Drive(dict(set=["/bin/true"], drain=["/bin/sleep", "30"], timeout_ms=20000)) as drive:
        drive.good("traffic")
        began = time.monotonic()
        assert drive.bad("did not end in time", "drain", "candidate", 0.4) == -110
        assert time.monotonic() - began < 15


def a_hook_ends_with_the_controller(folder):
    pids = os.path.join(folder, "orphan")
    hang = script(folder, "orphaned", "echo $$ > %s; exec sleep 60\n" % pids)
    drive = Drive(dict(set=[hang]))
    drive.good("traffic")
    drive.process.stdin.write("set 5\n")
    drive.process.stdin.flush()
    assert until(lambda: os.path.exists(pids) and os.path.getsize(pids))
    drive.process.kill()
    drive.process.wait()
    with open(pids, encoding="utf-8") as file:
        pid = int(file.read())
    assert until(lambda: not alive(pid), 30)  # of 60 s


class Webhook:
    """behave(request) -> (status, body), or None: no answer at all."""

    def __init__(self, behave):
        outer = self
        self.requests = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append((self.headers["Content-Type"], json.loads(body)))
                answer = behave(json.loads(body))
                if answer is None:
                    time.sleep(30)
                    return
                self.send_response(answer[0])
                self.send_header("Content-Length", str(len(answer[1])))
                if answer[0] == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(answer[1])

            def log_message(self, *_):
                pass

        class Many(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass
        self.http = Many(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d/hook" % self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()


def webhooks(_):
    state = {"percent": 0, "fail": 0}

    def behave(request):
        if state["fail"]:
            state["fail"] -= 1
            return 503, b"busy \x1b[31m"
        if request["verb"] == "set":
            state["percent"] = request["percent"]
        if request["verb"] == "drain":
            return 200, b'{"in_flight": 3}'
        return 200, json.dumps({"percent": state["percent"]}).encode()
    hook = Webhook(behave)
    with Drive(dict(hook_url=hook.url, retries=2)) as drive:
        if drive.ask("traffic").get("error") == -38:
            drive.bad("built without libcurl", "traffic")
            print("   built without libcurl: told")
            return
        assert drive.good("set", 7)["percent"] == 7
        assert drive.good("drain", "candidate", 5)["left"] == 3
        assert hook.requests[-1] == ("application/json", {"rollout": "driven", "verb": "drain", "arm": "candidate"}), hook.requests[-1]
        assert hook.requests[1][1] == {"rollout": "driven", "verb": "set", "percent": 7.0}, hook.requests[1]
        state["fail"] = 2
        assert drive.good("set", 9)["percent"] == 9
        state["fail"] = 3
        drive.bad("503: busy ?[31m", "set", 11)
        state["fail"] = 0
        hook.http.shutdown()
        hook.http.server_close()
        drive.bad("hook 'set'", "set", 0)
    for answer, words, code in ((None, "timed out", -110), ((200, b"x" * 200000), "more than 65536", -90), ((302, b""), "302", -5),
                                ((200, b"[]"), "percent", -71), ((200, b'{"percent": "5"}'), "percent", -71),
                                ((200, b'{"percent": 500}'), "percent", -71), ((404, b"<html>"), "404", -5)):
        hook = Webhook(lambda request, answer=answer: answer)
        with Drive(dict(hook_url=hook.url, retries=0, timeout_ms=20000 if answer else 500)) as drive:
            began = time.monotonic()
            assert drive.bad(words, "traffic") == code, answer
            assert answer or time.monotonic() - began < 20  # of 30 s
        hook.http.shutdown()
        hook.http.server_close()
    with Drive(dict(hook_url="file:///etc/passwd", retries=0)) as drive:
        drive.bad("file", "traffic")


def main():
    folder = tempfile.mkdtemp(prefix="upgate-hooks-")
    cases = [commands, what_is_read_back_must_be_what_was_set, what_fails_is_tried_again, what_hangs_is_killed_with_its_children,
             a_hook_ends_with_the_controller, webhooks]

    def bind(case):
        def run():
            case(folder)
        run.__name__ = case.__name__
        return run
    try:
        rig.run([bind(case) for case in cases])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
