# SPDX-License-Identifier: Apache-2.0
"""Runs inside a guest of ci/kernels, started by its /init: asks doctor, records, runs plants and innocent neighbours, forks
a lot beside a recording, and reads the kernel's log. Writes one line of JSON for each to the second serial port; judges
nothing but the plants, which judge themselves (ci/plants)."""
import glob
import json
import os
import sqlite3
import subprocess
import sys
import time

CI = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, CI)
import emulated

FORKS = 200
AB_STORE = "/tmp/ab.db"
COMMAND_S = 600  # a recording of 2 s has taken more than 120, most of them to load its programs
AB_STILL_S = 60
AB_MAX_S = 1800
PLAN = """baseline: {name: a, python: /usr/bin/python3}
candidate: {name: b, python: /usr/bin/python3}
workloads:
  - {name: nap, command: ["{python}", -S, -c, "import time; time.sleep(0.1)"]}
schedule: {looks: [10], traced_launches: 1}
"""


def settings(cmdline):
    """{'plants': 'smaps,fsync'} of upgate.plants=smaps,fsync in the kernel's command line."""
    return dict(word[len("upgate."):].split("=", 1) for word in cmdline.split() if word.startswith("upgate.") and "=" in word)


def lenient(plants):
    """Judges as an emulated machine on a busy host allows: it keeps no period of 300 ms, its victims take fewer steps a
    second, and threads of the kernel (softirqs, the journal) do hold up a victim that nobody stalls. Those are left to the
    reader: the list that is returned gets who was named, of which cause, for how many ms; processes are judged."""
    named, judge, stalled = [], plants.judge_innocent, plants.stalled

    def judge_innocent(document, window_s):
        kernel = [stall for stall in document["stalls"] if (stall["culprit"] or {}).get("kind") == "kernel"]
        named[:] = ["%s: %s, %d ms" % (stall["culprit"]["comm"], stall["cause"], stall["total_ns"] // 1000000) for stall in kernel]
        return judge(dict(document, stalls=[stall for stall in document["stalls"] if stall not in kernel]), window_s)
    plants.PERIODS_LEAST = float("inf")
    plants.START_S = plants.END_S = plants.COMMAND_S = COMMAND_S
    plants.judge_innocent = judge_innocent
    plants.stalled = lambda answer, measured: stalled(
        dict(answer, min_count=answer["min_count"] * plants.ANSWER_WINDOW_S / measured["seconds"]), measured)
    return named


def launches(store):
    """How many are in it; 0: it is not there yet, or being written to."""
    try:
        return sqlite3.connect("file:%s?mode=ro" % store, uri=True).execute("SELECT count(*) FROM launch").fetchone()[0]
    except sqlite3.Error:
        return 0


def threads():
    """[(its CPU time in ticks, a line)] of every thread that is not the kernel's: name, state, and the kernel's functions that it
    waits in."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for path in glob.glob("/proc/%s/task/*" % pid):
            try:
                with open(path + "/stat", encoding="utf-8", errors="replace") as file:
                    name, rest = file.read().split("(", 1)[1].rsplit(")", 1)
                with open(path + "/stack", encoding="ascii") as file:
                    stack = [line.split("] ")[-1].split("+")[0] for line in file]
            except OSError:
                continue
            state, parent, ticks = rest.split()[0], rest.split()[1], sum(map(int, rest.split()[11:13]))
            if "2" not in (pid, parent) and pid != str(os.getpid()):
                line = "%s %s %s %d ticks: %s" % (path[len("/proc/"):], name, state, ticks, " < ".join(stack[:6]))
                found.append((ticks, line))
    return found


class Guest:
    def __init__(self, upgate):
        self.upgate = upgate
        self.begin = time.monotonic()
        self.out = os.open("/dev/ttyS1", os.O_WRONLY | os.O_NOCTTY)

    def tell(self, what, **values):
        line = json.dumps(dict(values, what=what, at_s=round(time.monotonic() - self.begin, 1))) + "\n"
        data = line.encode("utf-8")
        while data:
            data = data[os.write(self.out, data):]

    def run(self, *arguments, timeout_s=COMMAND_S):
        status, out, errors = emulated.run([self.upgate, *arguments], timeout_s)
        return status, out, errors.strip()

    def doctor(self):
        status, text, errors = self.run("doctor", "--format", "json")
        checks = {check["id"]: check for check in json.loads(text)["checks"]} if text.startswith("{") else {}
        words = {name: [check["status"], check["found"], check["lost"], check["remedy"]] for name, check in checks.items()
                 if name in ("tracing", "kernel-symbols") or name.startswith("capture")}
        self.tell("doctor", status=status, errors=errors, words=words)

    def record(self):
        """A short recording: does it work, and if it does not, how does it end?"""
        store = "/tmp/first.db"
        status, _, errors = self.run("record", "-o", store, "--duration", "2s", "--", "/usr/bin/sleep", "1")
        self.tell("record", status=status, errors=errors, store=os.path.exists(store))
        return status == 0

    def stalls(self):
        """Without a recording: an error of its own, and no crash."""
        status, _, errors = self.run("stalls", "/tmp/none.db")
        self.tell("stalls", status=status, errors=errors)

    def forks(self):
        """Many births and deaths beside a recording: all are told, and the kernel does not complain."""
        store = "/tmp/forks.db"
        code = "import os\nfor i in range(%d):\n    pid = os.fork()\n    if not pid: os._exit(0)\n    os.waitpid(pid, 0)" % FORKS
        status, _, errors = self.run("record", "-o", store, "--no-python", "--", sys.executable, "-S", "-c", code)
        ledger = {}
        if status == 0:
            rows = sqlite3.connect(store).execute("SELECT producer, kind, seen, kept, dropped FROM v_ledger")
            ledger = {"%s %s" % row[:2]: row[2:] for row in rows}
        self.tell("forks", status=status, errors=errors, asked=FORKS, ledger=ledger)

    def ab(self):
        """A command against itself, all the way to a verdict. How long that takes is the emulator's and its host's affair (a quarter
        of an hour at a load of 25): it hangs when nobody has used CPU time and no launch was stored for a while. Then, and when it is
        not over after AB_MAX_S, where everybody stands is told."""
        with open("/tmp/plan.yaml", "w", encoding="ascii") as file:
            file.write(PLAN)
        with open("/tmp/ab.json", "wb") as out, open("/tmp/ab.errors", "wb") as errors:
            child = subprocess.Popen([self.upgate, "ab", "/tmp/plan.yaml", "-o", AB_STORE, "--format", "json"],
                                     stdin=subprocess.DEVNULL, stdout=out, stderr=errors)
        begin = since = time.monotonic()
        seen, standing = None, []
        while child.poll() is None and not standing:
            time.sleep(5)
            now, everybody = time.monotonic(), threads()
            state = launches(AB_STORE), sum(ticks for ticks, _ in everybody)
            if state != seen:
                seen, since = state, now
            if now - since > AB_STILL_S or now - begin > AB_MAX_S:
                standing = [line for _, line in everybody]
                child.kill()
        with open("/tmp/ab.json", encoding="utf-8") as out, open("/tmp/ab.errors", encoding="utf-8", errors="replace") as errors:
            text, said = out.read(), errors.read().splitlines()
        verdict = json.loads(text) if text.startswith("{") else {}
        self.tell("ab", status=None if standing else child.returncode, errors=said[-1] if said else "",
                  verdict=verdict.get("verdict"), reason=verdict.get("reason"), launches=launches(AB_STORE),
                  seconds=round(time.monotonic() - begin), standing=standing)

    def log(self):
        alarms, lines = emulated.alarms()
        self.tell("log", alarms=alarms, lines=lines)


def main():
    wanted = settings(sys.argv[1])
    plants = emulated.load_program(os.path.join(CI, "plants"))
    named = lenient(plants)
    guest = Guest(plants.UPGATE)
    guest.tell("kernel", release=os.uname().release, version=os.uname().version, cpus=os.cpu_count())
    guest.doctor()
    if guest.record():
        guest.forks()
        for innocent in (False, True):
            for name in filter(None, wanted["plants"].split(",")):
                named.clear()
                result = plants.run(name, float(wanted["window"]), innocent)
                guest.tell("innocent" if innocent else "plant", threads=list(named), **result)
    else:
        guest.stalls()
    guest.ab()
    guest.log()
    guest.tell("end")


if __name__ == "__main__":
    main()
