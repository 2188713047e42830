#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate canary` from outside: traffic through hooks (a script that writes a file), evidence from JSON lines that a generator
writes as the weight says. A good candidate, a bad one, people, kills, a changed plan, hooks that fail; exit codes and documents."""
import fcntl
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

UPGATE = os.path.join(os.environ["UPGATE_BUILD"], "upgate")
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAIL " + what)


class Rig:
    """A directory with a weight, two logs and whoever writes them."""

    def __init__(self, more="", errors=(0.01, 0.01), rate=3000, weight="0", stages=None):
        self.path = tempfile.mkdtemp(prefix="upgate-canary-")
        self.errors, self.rate, self.stop, self.silent = errors, rate, False, False
        self.weights = []
        self.file("weight", weight)
        for name in ("old.jsonl", "new.jsonl"):
            self.file(name, "")
        self.file("set.sh", 'set -e\necho "$2" > "$1.new"\nmv "$1.new" "$1"\n')
        self.plan(more, stages)
        self.thread = threading.Thread(target=self.generate, daemon=True)
        self.thread.start()
        self.started = []

    def file(self, name, text):
        """A new file: a hook at work reads its script as it goes."""
        with open(os.path.join(self.path, name + ".written"), "w") as file:
            file.write(text)
        os.rename(file.name, os.path.join(self.path, name))

    def plan(self, more="", stages=None, expected="3000/s"):
        where = self.path
        stages = stages or "[{percent: 20, soak: 2s, warm_up: 0s}, {percent: 50, soak: 2s, warm_up: 0s}, {percent: 100, soak: 2s, warm_up: 0s}]"
        self.file("rollout.yaml", "name: r\nstore: %s/r.db\n"
                  "traffic: {hooks: {set: [sh, %s/set.sh, %s/weight, \"{percent}\"], get: [cat, %s/weight], retries: 0}}\n"
                  "sources: [{jsonl: {baseline: %s/old.jsonl, candidate: %s/new.jsonl}}]\n"
                  "stages: %s\ngate: {metrics: {error_rate: {margin: 300%%}, wrong_answers: {limit: 0}}}\n"
                  "rollback: {drain: 1s}\nexpected: {rate: %s, error_rate: 1%%}\n%s"
                  % (where, where, where, where, where, where, stages, expected, more))

    def weight(self):
        try:
            with open(os.path.join(self.path, "weight")) as file:
                return float(file.read())
        except (OSError, ValueError):
            return -1.0

    def generate(self):
        draw = random.Random(7)
        files = [open(os.path.join(self.path, name), "a") for name in ("old.jsonl", "new.jsonl")]
        last, owed = time.time(), 0.0
        while not self.stop:
            time.sleep(0.02)
            now, share = time.time(), max(self.weight(), 0)
            if not self.weights or self.weights[-1] != share:
                self.weights.append(share)
            owed += (now - last) * self.rate
            count = int(owed)
            owed -= count
            for i in range(0 if self.silent else count):
                arm = draw.random() * 100 < share
                failed = draw.random() < self.errors[arm]
                files[arm].write('{"t": %.6f, "status": %d, "ms": %.3f}\n'
                                 % (last + (now - last) * i / count, 500 if failed else 200, 4 * draw.lognormvariate(0, 0.3)))
            for file in files:
                file.flush()
            last = now

    def upgate(self, *words, **options):
        return subprocess.run([UPGATE, "canary"] + list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, timeout=options.pop("timeout", 120), **options)

    @property
    def yaml(self):
        return os.path.join(self.path, "rollout.yaml")

    def start(self, *words):
        log = open(os.path.join(self.path, "log"), "a")
        process = subprocess.Popen([UPGATE, "canary", "run", self.yaml] + list(words), stdout=log, stderr=log)
        self.started.append(process)
        return process

    def log(self):
        with open(os.path.join(self.path, "log")) as file:
            return file.read()

    def status(self):
        done = self.upgate("status", self.yaml, "--format", "json")
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def wait(self, what, limit=60):
        end = time.time() + limit
        while time.time() < end:
            if what():
                return True
            time.sleep(0.1)
        return False

    def rows(self, sql):
        with sqlite3.connect("file:%s/r.db?mode=ro" % self.path, uri=True, timeout=10) as db:
            return db.execute(sql).fetchall()

    def end(self):
        self.stop = True
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
        self.thread.join()
        shutil.rmtree(self.path)


def test_good():
    rig = Rig()
    watch = subprocess.Popen([UPGATE, "canary", "status", rig.yaml, "--watch", "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             universal_newlines=True)
    rig.started.append(watch)
    said = watch.stderr.readline()
    done = rig.upgate("run", rig.yaml, "-o", os.path.join(rig.path, "r.html"))
    check(done.returncode == 0, "a good candidate ends in %d: %s" % (done.returncode, done.stderr))
    check(rig.weights == [0, 20, 50, 100], "weights %s" % rig.weights)
    check(done.stdout.startswith("PROMOTED"), "stdout: %r" % done.stdout[:100])
    seen, _ = watch.communicate(timeout=60)
    check(watch.returncode == 0 and "waiting for `upgate canary run`" in said, "a watch that began first: %d %s" % (watch.returncode, said))
    check(seen.rstrip().endswith("}") and '"state": "promoted"' in seen[-20000:], "it ends with: %r" % seen[-200:])
    document = rig.status()
    check(document.get("schema") == "upgate.rollout/1" and document.get("state") == "promoted" and document.get("percent") == 100,
          "status: %s" % {key: document.get(key) for key in ("schema", "state", "percent")})
    check(len(document.get("decisions", [])) == 4, "decisions: %d" % len(document.get("decisions", [])))
    check(os.path.getsize(os.path.join(rig.path, "r.html")) > 1000, "no report")
    for ending, begins in (("md", "#"), ("json", "{")):
        path = os.path.join(rig.path, "r." + ending)
        check(rig.upgate("report", rig.yaml, "-o", path).returncode == 0 and open(path).read().startswith(begins), "report ." + ending)
    check(rig.upgate("report", rig.yaml, "-o", os.path.join(rig.path, "r.pdf")).returncode == 2, "report .pdf")
    for words in (["gate"], ["report"], ["ab", "--resume"]):
        done = subprocess.run([UPGATE] + words + [rig.path + "/r.db"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        check(done.returncode == 2 and "store of a rollout" in done.stderr, "%s of a rollout's store: %d %s" % (words, done.returncode, done.stderr))
    again = rig.upgate("run", rig.yaml)
    check(again.returncode == 0 and rig.weights[-1] == 100, "run again: %d" % again.returncode)
    check(rig.upgate("pause", rig.yaml).returncode == 2, "pause of what has ended")
    rig.end()


def test_bad():
    rig = Rig(errors=(0.01, 0.12))
    done = rig.upgate("run", rig.yaml)
    check(done.returncode == 1, "a bad candidate ends in %d: %s" % (done.returncode, done.stderr))
    check(rig.weight() == 0, "the weight is %s" % rig.weight())
    rule = rig.rows("SELECT rule, effect_ns - at_ns FROM rollout_decision ORDER BY id DESC LIMIT 1")[0]
    check(rule[0] == "evidence" and rule[1] < 10e9, "rule %s" % (rule,))
    check(rig.upgate("run", rig.yaml).returncode == 1, "run again after a rollback")
    check(rig.upgate("run", rig.yaml, "--anew", "--dry-run").returncode == 0, "dry run")
    check(rig.weight() == 0, "a dry run moved the traffic")
    rig.end()


def test_a_locked_store():
    """Somebody holds the store: a way back does not wait for it, and is found in it afterwards."""
    rig = Rig(stages="[{percent: 40, soak: 60s, warm_up: 0s}, {percent: 100, soak: 2s}]")
    process = rig.start()
    check(rig.wait(lambda: rig.weight() == 40), "it did not begin")
    time.sleep(1)
    db = sqlite3.connect(rig.path + "/r.db", timeout=10, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    rig.errors = (0.01, 0.9)
    check(rig.wait(lambda: rig.weight() == 0), "no way back while the store is locked")
    time.sleep(1)
    db.execute("COMMIT")
    db.close()
    check(process.wait(60) == 1, "it ends in %s: %s" % (process.returncode, rig.log()))
    check(rig.rows("SELECT state, percent FROM rollout") == [("rolled_back", 0.0)], "stored: %s" % rig.rows("SELECT state, percent FROM rollout"))
    last = rig.rows("SELECT rule, effect_ns IS NOT NULL FROM rollout_decision ORDER BY id DESC LIMIT 1")
    check(last == [("tripwire-errors", 1)], "decision: %s" % last)
    rig.end()


def test_tripwire():
    rig = Rig(errors=(0.01, 0.6))
    check(rig.start().wait(60) == 1, "60 % errors: " + rig.log())
    check("tripwire-errors" in rig.log(), "rule: " + rig.log())
    took = rig.rows("SELECT (max(at_ns) - min(at_ns)) / 1e9 FROM rollout_decision")[0][0]
    check(took < 20, "the tripwire took %.1f s" % took)
    rig.end()


def test_people():
    rig = Rig(stages="[{percent: 30, soak: 30s, warm_up: 0s}, {percent: 100, soak: 2s}]")
    process = rig.start()
    check(rig.wait(lambda: rig.weight() == 30), "it did not begin: " + rig.log())
    second = rig.upgate("run", rig.yaml)
    check(second.returncode == 4 and "process %d" % process.pid in second.stderr, "a second controller: %d %s" % (second.returncode, second.stderr))
    paused = rig.upgate("pause", rig.yaml, "--reason", "lunch")
    check(paused.returncode == 0 and rig.status().get("state") == "paused", "pause: %s %s" % (paused.stderr, rig.status().get("state")))
    check(rig.weight() == 30 and process.poll() is None, "a pause moved the traffic or ended the controller")
    check("lunch" in rig.status().get("reason", ""), "reason: %s" % rig.status().get("reason"))
    resumed = rig.upgate("resume", rig.yaml)
    check(resumed.returncode == 0 and rig.status().get("state") == "running", "resume: " + resumed.stderr)
    promoted = rig.upgate("promote", rig.yaml)
    check(promoted.returncode == 0 and rig.weight() == 30, "promote skipped the evidence: %s" % rig.weight())
    aborted = rig.upgate("abort", os.path.join(rig.path, "r.db"))
    check(aborted.returncode == 0 and rig.weight() == 0, "abort: " + aborted.stderr)
    check(process.wait(60) == 3, "the controller ends in %s after an abort" % process.returncode)
    rig.end()


def test_abort_that_takes_its_time():
    """The decision is stored before the traffic moves: an abort has been heard by then, and is not done."""
    for words, code, says in (((), 0, "aborted"), (("--heard-within", "1300ms"), 4, "within 1.3 s")):
        rig = Rig(stages="[{percent: 30, soak: 30s, warm_up: 0s}, {percent: 100, soak: 2s}]")
        process = rig.start()
        check(rig.wait(lambda: rig.weight() == 30), "it did not begin: " + rig.log())
        with open(rig.path + "/set.sh") as file:
            hook = file.read()
        # The one that is not awaited stays as it is until all has been looked at.
        rig.file("set.sh", ("while [ ! -e \"$1.go\" ]; do sleep 0.1; done\n" if code else "sleep 1.5\n") + hook)
        aborted = rig.upgate("abort", rig.yaml, *words)
        check(aborted.returncode == code and says in aborted.stderr and rig.weight() == (30 if code else 0),
              "abort %s: %d %s" % (words, aborted.returncode, aborted.stderr))
        rig.file("weight.go", "")
        check(process.wait(60) == 3 and rig.weight() == 0, "the controller ends in %s after an abort" % process.returncode)
        rig.end()


def test_kills():
    rig = Rig(stages="[{percent: 20, soak: 6s, warm_up: 0s}, {percent: 100, soak: 2s, warm_up: 0s}]")
    process = rig.start()
    check(rig.wait(lambda: os.path.exists(rig.path + "/r.db") and rig.weight() == 20 and
                   rig.rows("SELECT count(*) FROM rollout_second WHERE arm = 1 AND requests > 0")[0][0] >= 3), "no evidence: " + rig.log())
    process.kill()
    process.wait()
    begun = rig.rows("SELECT begin_s FROM rollout_stage WHERE number = 0")
    check(rig.weight() == 20, "a killed controller's traffic moved")
    rig.plan(more="freeze: [2020-01-01]\n", stages="[{percent: 20, soak: 6s, warm_up: 0s}, {percent: 100, soak: 2s, warm_up: 0s}]")
    changed = rig.upgate("run", rig.yaml)
    check(changed.returncode == 2 and "freeze" in changed.stderr and rig.weight() == 20, "a changed plan: %d %s" % (changed.returncode, changed.stderr))
    rig.plan(stages="[{percent: 20, soak: 6s, warm_up: 0s}, {percent: 100, soak: 2s, warm_up: 0s}]")
    process = rig.start()
    check(process.wait(90) == 0, "after a kill: " + rig.log())
    check(rig.rows("SELECT begin_s FROM rollout_stage WHERE number = 0") == begun, "the stage began anew")
    check(rig.weights == [0, 20, 100], "weights %s" % rig.weights)
    rig.end()


def test_abort_without_a_controller():
    rig = Rig(stages="[{percent: 40, soak: 60s}, {percent: 100, soak: 2s}]")
    process = rig.start()
    check(rig.wait(lambda: rig.weight() == 40), "it did not begin")
    time.sleep(0.5)
    process.kill()
    process.wait()
    rig.file("rollout.yaml", "this: is no plan\n")
    done = rig.upgate("abort", os.path.join(rig.path, "r.db"), "--reason", "gone")
    check(done.returncode == 0 and rig.weight() == 0, "abort without a controller: %d %s" % (done.returncode, done.stderr))
    check(rig.rows("SELECT state FROM rollout") == [("aborted",)], "state %s" % rig.rows("SELECT state FROM rollout"))
    rig.end()


def test_an_abort_that_brings_nothing_back():
    """Its exit code is the traffic's: 4 where a controller has given up, and once more where none is at work it is brought back."""
    rig = Rig(stages="[{percent: 40, soak: 60s}, {percent: 100, soak: 2s}]")
    process = rig.start()
    check(rig.wait(lambda: rig.weight() == 40 and rig.rows("SELECT state, percent FROM rollout") == [("running", 40)]), "it did not begin")
    process.kill()
    process.wait()
    store = os.path.join(rig.path, "r.db")
    with open(store, "r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # a controller is at work, and gives up
        asked = subprocess.Popen([UPGATE, "canary", "abort", rig.yaml], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
        rig.started.append(asked)
        check(rig.wait(lambda: rig.rows("SELECT count(*) FROM rollout_request") == [(1,)]), "nothing was asked")
        with sqlite3.connect(store, timeout=10) as db:
            db.execute("UPDATE rollout SET state = 'failed', reason = 'the socket is gone'")
        db.close()  # before `held` is: that would drop its locks
        _, said = asked.communicate(timeout=60)
    check(asked.returncode == 4 and "40 %" in said and "the socket is gone" in said, "an abort in vain: %d %s" % (asked.returncode, said))
    check(rig.weight() == 40, "weight %s" % rig.weight())
    done = rig.upgate("abort", rig.yaml)
    check(done.returncode == 0 and rig.weight() == 0, "an abort of what has failed: %d %s" % (done.returncode, done.stderr))
    check(rig.rows("SELECT state, percent FROM rollout") == [("failed", 0)], "row %s" % rig.rows("SELECT state, percent FROM rollout"))
    done = rig.upgate("abort", rig.yaml)
    check(done.returncode == 2 and "has ended: failed" in done.stderr, "an abort after that: %d %s" % (done.returncode, done.stderr))
    rig.end()


def test_signals():
    rig = Rig(stages="[{percent: 30, soak: 60s}, {percent: 100, soak: 2s}]")
    process = rig.start()
    check(rig.wait(lambda: rig.weight() == 30), "it did not begin")
    process.send_signal(signal.SIGTERM)
    check(process.wait(60) == 3 and rig.weight() == 30, "SIGTERM: %s, weight %s" % (process.returncode, rig.weight()))
    process = rig.start()
    # Its own number: the one before has left its state there, and this one hears signals before it writes it.
    check(rig.wait(lambda: rig.rows("SELECT state, pid FROM rollout") == [("running", process.pid)]), "it did not go on")
    # The second has to come within a second of the first, and two of a kind may become one: both are there when it goes on.
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    check(process.wait(60) == 3 and rig.weight() == 0, "two signals: %s, weight %s" % (process.returncode, rig.weight()))
    rig.end()


def test_no_evidence():
    rig = Rig(more="stale: 3s\n", stages="[{percent: 30, soak: 2s}, {percent: 100, soak: 2s}]")
    rig.silent = True
    done = rig.upgate("run", rig.yaml, "--wait", "2s")
    check(done.returncode == 3 and rig.weight() == 0, "no evidence: %d, weight %s" % (done.returncode, rig.weight()))
    check("no evidence for 3 s" in done.stderr, "said: " + done.stderr)
    rig.end()


def test_hooks_that_fail():
    rig = Rig()
    rig.file("set.sh", "exit 1\n")
    done = rig.upgate("run", rig.yaml, timeout=200)
    check(done.returncode == 4 and rig.weight() == 0, "a hook that fails: %d %s" % (done.returncode, done.stderr))
    rig.end()
    rig = Rig()
    rig.file("set.sh", "true\n")  # says that it did, and did not
    done = rig.upgate("run", rig.yaml, timeout=200)
    check(done.returncode == 4 and rig.weight() == 0, "a hook that lies: %d %s" % (done.returncode, done.stderr))
    rig.end()


def test_a_hook_that_fails_once():
    """As the API of a cluster does while it is moved: no reason to end a rollout."""
    rig = Rig(stages="[{percent: 20, soak: 12s, warm_up: 0s}, {percent: 100, soak: 2s, warm_up: 0s}]")
    rig.file("get.sh", 'if [ "$(cat "$1")" = 20 ] && [ ! -e "$1.failed" ]; then touch "$1.failed"; exit 1; fi\ncat "$1"\n')
    with open(rig.yaml) as file:
        plan = file.read()
    rig.file("rollout.yaml", plan.replace("get: [cat, %s/weight]" % rig.path, "get: [sh, %s/get.sh, %s/weight]" % (rig.path, rig.path)))
    rig.file("weight.failed", "")  # not of the first move, which is read back
    process = rig.start()
    check(rig.wait(lambda: rig.weight() == 20 and rig.rows("SELECT state FROM rollout") == [("running",)]), "it did not begin: " + rig.log())
    # What follows the first look, which is made at once: the same thread writes what came two seconds later.
    check(rig.wait(lambda: rig.rows("SELECT 1 FROM rollout_second WHERE arm = 1 AND requests > 0")), "no evidence: " + rig.log())
    os.remove(rig.path + "/weight.failed")
    check(process.wait(100) == 0 and rig.weight() == 100, "a hook that failed once: %s %s" % (process.returncode, rig.log()))
    check(os.path.exists(rig.path + "/weight.failed") and "the hook 'get'" in rig.log(), "it did not fail: " + rig.log())
    rig.end()


def test_preflight():
    rig = Rig(more="preflight: {checks: ['exit 7']}\n")
    done = rig.upgate("run", rig.yaml)
    check(done.returncode == 3 and "ended with 7" in done.stderr and rig.weights == [0], "preflight: %d %s" % (done.returncode, done.stderr))
    rig.end()
    rig = Rig(more="preflight: {gate: /no/such.db}\n")
    done = rig.upgate("run", rig.yaml)
    check(done.returncode == 4 and rig.weights == [0], "preflight without its store: %d %s" % (done.returncode, done.stderr))
    rig.end()


def test_words():
    rig = Rig()
    for verb in ("plan", "run", "status", "pause", "resume", "promote", "abort", "report", "serve"):
        done = rig.upgate(verb, "--help")
        check(done.returncode == 0 and "upgate canary " + verb in done.stdout and done.stderr == "", verb + " --help")
        check(all(len(line) <= 100 for line in done.stdout.split("\n")), verb + " --help is wider than 100")
        check(rig.upgate(verb).returncode == 2, verb + " without a plan")
        check(rig.upgate(verb, rig.path + "/none.yaml").returncode == 2, verb + " of no file")
    check(rig.upgate("rnu", rig.yaml).returncode == 2 and "did you mean 'run'" in rig.upgate("rnu", rig.yaml).stderr, "a slip")
    check(rig.upgate("-q", "run", rig.yaml).returncode == 2, "options before the verb")
    check(rig.upgate("run", "--watch", rig.yaml).returncode == 2, "an option of another verb")
    for verb in ("status", "pause", "abort", "report"):
        done = rig.upgate(verb, rig.yaml)
        check(done.returncode == 2 and "has not begun" in done.stderr, "%s before the begin: %s" % (verb, done.stderr))
    done = rig.upgate("plan", rig.yaml)
    check(done.returncode == 0 and "requests of the candidate" in done.stdout, "plan: " + done.stdout + done.stderr)
    check(json.loads(rig.upgate("plan", rig.yaml, "--format", "json").stdout)["schema"] == "upgate.foresight/1", "plan as JSON")
    rig.file("rollout.yaml", open(rig.yaml).read().replace("soak", "saok", 1))
    done = rig.upgate("run", rig.yaml)
    check(done.returncode == 2 and ":5:24: " in done.stderr and "did you mean 'soak'" in done.stderr, "a slip in the plan: " + done.stderr)
    check(not os.path.exists(rig.path + "/r.db"), "a plan that is refused made a store")
    rig.end()


def main():
    names = sys.argv[1:]
    for name, test in sorted(globals().items()):
        if name.startswith("test_") and (not names or name[5:] in names):
            begin = time.time()
            before = len(failures)
            test()
            print("%s %s, %.1f s" % ("ok  " if len(failures) == before else "FAIL", name[5:], time.time() - begin), flush=True)
    print("%d failures" % len(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
