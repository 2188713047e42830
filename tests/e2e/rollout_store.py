# SPDX-License-Identifier: Apache-2.0
"""Stores of rollouts for the tests of their reports: traffic is drawn second by second, evidence computed from it as the controller
would (beta-binomial e-process, see docs/CANARY.md), decisions follow. The same seed gives the same store. As a program:
rollout_store.py KIND STORE.db with KIND of promoted, rolled_back, running, waiting."""
import json
import math
import random
import sys

from diff_store_writer import Writer

BEGIN = 1795262400  # 2026-11-21 12:00 UTC
SECOND = 10 ** 9
STEP = math.log(1.02)
NEEDED = math.log(3 / 0.01)  # alpha 1 %, shared by three metrics
STAGES = ({"name": "aa", "percent": 5, "soak_ns": 30 * SECOND, "aa": True}, {"name": "1%", "percent": 1, "soak_ns": 40 * SECOND, "requests": 60},
          {"name": "25%", "percent": 25, "soak_ns": 60 * SECOND}, {"name": "100%", "percent": 100, "soak_ns": 60 * SECOND})
NAME = "ranker-2.6"


def bin_of(seconds):
    return max(0, min(1151, int(math.log(max(seconds, 1e-6) / 1e-6) / STEP)))


def packed(bins):
    """Pairs (bins skipped, count) as LEB128."""
    out, last = bytearray(), -1
    for index in sorted(bins):
        for value in (index - last - 1, bins[index]):
            while value >= 0x80:
                out.append(value & 0x7f | 0x80)
                value >>= 7
            out.append(value)
        last = index
    return bytes(out)


def log_beta(a, b):
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def e_value(k, total, share, prior=10):
    """Log of the e-process on counts: k of `total` events are the candidate's, which has `share` of the requests."""
    if not 0 < share < 1:
        return 0.0
    a, b = prior * share, prior * (1 - share)
    return log_beta(a + k, b + total - k) - log_beta(a, b) - k * math.log(share) - (total - k) * math.log(1 - share)


class Rollout:
    def __init__(self, path, seed=7, rate=900, errors=(0.002, 0.002), slower=1.0):
        self.writer, self.db = Writer(path), None
        self.db = self.writer.db
        self.random, self.rate, self.errors, self.slower = random.Random(seed), rate, errors, slower
        self.now, self.percent, self.state, self.stage = BEGIN, 0.0, "waiting", None
        self.totals, self.requests = {}, [0, 0]
        self.limit = 0.0124  # frozen p99 of the baseline

    def decide(self, state, stage, percent, rule, reason, who="controller", effect_ms=38, evidence="[]"):
        at = self.now * SECOND + 120_000_000
        self.db.execute("INSERT INTO rollout_decision (at_ns, state_from, state_to, stage_from, stage_to, percent_from, percent_to, rule, reason, who, evidence, effect_ns)"
                        " VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", (at, self.state, state, self.stage, stage, self.percent, percent, rule, reason, who, evidence,
                                                             at + effect_ms * 1_000_000 if effect_ms is not None else None))
        self.state, self.stage, self.percent = state, stage, percent

    def arm(self, count, errors, slower):
        draw, bins, failed = self.random, {}, 0
        for _ in range(count):
            if draw.random() < errors:
                failed += 1
                continue
            index = bin_of(0.004 * slower * draw.lognormvariate(0, 0.48))
            bins[index] = bins.get(index, 0) + 1
        return failed, bins

    def second(self, stage, share, wrong=0):
        """One second of traffic: `share` of it the candidate's (of an A/A stage: the second baseline's)."""
        aa = STAGES[stage].get("aa") if stage is not None else False
        rate = self.rate * (1 + 0.15 * math.sin(self.now / 40))
        total = max(0, round(self.random.gauss(rate, math.sqrt(rate))))
        candidate = sum(self.random.random() < share for _ in range(total))
        for arm, count in ((0, total - candidate), (1, candidate)):
            if not count:
                continue
            worse = arm == 1 and not aa
            failed, bins = self.arm(count, self.errors[1 if worse else 0], self.slower if worse else 1.0)
            self.db.execute("INSERT INTO rollout_second VALUES (?,?,?,?,?,?,?,?,0)", (self.now, arm, stage or 0, count, failed, 0, wrong if arm else 0, packed(bins)))
            sums = self.totals.setdefault(stage, [[0, 0, 0, 0.0], [0, 0, 0, 0.0]])[arm]
            sums[0] += count
            sums[1] += failed
            sums[2] += sum(n for index, n in bins.items() if index > bin_of(self.limit))
            self.requests[arm] += count
        self.now += 1

    def cells(self, stage, every=5, final=None):
        if self.now % every and not final:
            return {}
        (n0, e0, x0, _), (n1, e1, x1, _) = self.totals[stage]
        share, found = n1 / max(1, n0 + n1), {}
        for metric, k, other, threshold in (("error_rate", e1, e0, 1.5), ("latency_p99", x1, x0, 1.1)):
            ratio = (k / n1) / (other / n0) if n1 and other else None
            if metric == "latency_p99" and ratio is not None:
                ratio = ratio ** 0.18  # what a share of exceedances is as a ratio of latencies, about
            wide = 2.2 / math.sqrt(max(k, 1)) + 0.8 / math.sqrt(max(other, 1))
            wide *= 0.18 if metric == "latency_p99" else 1
            low, high = (ratio * math.exp(-wide), ratio * math.exp(wide)) if ratio else (None, None)
            against = e_value(k, k + other, share)
            verdict = "undecided"
            if ratio and against >= NEEDED and ratio > threshold:
                verdict = "fail"
            elif high and high < threshold:
                verdict = "pass"
            found[metric] = (verdict, ratio, against)
            self.db.execute("INSERT OR REPLACE INTO rollout_cell VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)", (self.now, stage, metric, ratio, low, high, threshold, against, NEEDED, 1.3, n1,
                                                                                           None if verdict != "undecided" else max(500, round(n1 * 1.4)), verdict))
        self.db.execute("INSERT OR REPLACE INTO rollout_cell VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)", (self.now, stage, "wrong_answers", 0, None, 0, 0, None, None, 1, n1, None, "pass"))
        return found

    def run_stage(self, stage, seconds, share=None, stop_on_fail=True):
        begin = self.now
        for _ in range(seconds):
            self.second(stage, STAGES[stage]["percent"] / 100 if share is None else share)
            if any(cell[0] == "fail" for cell in self.cells(stage).values()) and stop_on_fail:
                return begin, False
        self.cells(stage, final=True)
        return begin, True

    def stages(self, rows):
        """rows: [(begin, end, result)] of the first stages."""
        for number, stage in enumerate(STAGES):
            begin, end, result = rows[number] if number < len(rows) else (None, None, None)
            self.db.execute("INSERT INTO rollout_stage VALUES (?,?,?,?,?,?,?,0)", (number, stage["name"], stage["percent"], begin, begin + 5 if begin else None, end, result))

    def finish(self, reason, lost=0, problem=None, up=(1, 1), since=None):
        plan = {"name": NAME, "store": NAME + ".rollout.db", "stages": [dict(stage) for stage in STAGES]}
        self.db.execute("INSERT INTO rollout VALUES (1,?,?,?,?,?,?,?,?,?,?,?,?)", (NAME, json.dumps(plan), self.state, self.stage, self.percent, (since or self.now) * SECOND,
                                                                               self.now * SECOND, reason, self.now * SECOND, 4711, *up))
        seen = sum(self.requests) + lost
        self.db.execute("INSERT INTO rollout_source VALUES (0,'haproxy_log',?,?,0,?,1,?,?)", (seen, sum(self.requests), lost, self.now * SECOND, problem))
        self.db.commit()


def recording(path, seed, share, hot, begin_ns=5 * SECOND, seconds=10, hz=199):
    """A recording of a server with 6 functions that has `share` of the traffic; `hot` adds to one of them."""
    writer, draw = Writer(path), random.Random(seed)
    writer.add("recording", id=1, launch_id=None, begin_ns=begin_ns, end_ns=begin_ns + seconds * SECOND, threshold_ns=1_000_000, sample_hz=hz, python=1,
               target='{"pids": [77], "cgroup": null, "command": []}', missing="[]")
    writer.add("process", id=1, recording_id=1, tgid=77, start_ns=1, ppid=1, comm="server", cmdline="python serve.py", kind="target")
    writer.add("thread", id=1, process_id=1, tid=77, comm="server")
    writer.add("thread_total", thread_id=1, switches=100, short_gaps=90, short_gap_ns=10 ** 9, run_ns=5 * SECOND)
    functions = (("mkl_blas_sgemm", "libmkl_rt.so", "score (ranker.py)", 30), ("at::native::embedding_bag", "libtorch_cpu.so", "embed (ranker.py)", 14),
                 ("_PyEval_EvalFrameDefault", "python3.11", "handle (serve.py)", 9), ("json_dumps", "libjson.so", "answer (serve.py)", 6 + hot), ("tcp_sendmsg", "[kernel]", "answer (serve.py)", 4),
                 ("copy_user_generic", "[kernel]", "handle (serve.py)", 2))
    for second in range(seconds):
        for name, module, python, a_second in functions:
            count = max(0, round(draw.gauss(a_second * share, math.sqrt(a_second * share))))
            kernel = writer.stack("kernel", (name, module)) if module == "[kernel]" else None
            user = None if kernel else writer.stack("user", (name, module), ("main", "python3.11"))
            walked = writer.stack("python", (python.split(" ")[0], python.split("(")[1][:-1], 12))
            for _ in range(count):
                writer.add("sample", thread_id=1, at_ns=begin_ns + second * SECOND + draw.randrange(SECOND), cpu=0, why=1 | (0 if kernel else 16), kernel_stack=kernel,
                           user_stack=user, python_stack=walked)
    writer.db.commit()


def promoted(path):
    rollout = Rollout(path, seed=11)
    rollout.decide("running", 0, 0.0, "preflight", "preflight passed; stage aa begins", who="operator@build", effect_ms=41)
    rows = []
    for number in range(4):
        rows.append((rollout.run_stage(number, (45, 60, 90, 70)[number], stop_on_fail=False)[0], rollout.now, "passed"))
        if number < 3:
            rollout.decide("running", number + 1, float(STAGES[number + 1]["percent"]), "soak", "stage %s passed: every bound lies below its margin" % STAGES[number]["name"])
    rollout.decide("promoted", 3, 100.0, "soak", "stage 100% passed: held for 60 s without a tripwire", effect_ms=None)
    rollout.stages(rows)
    rollout.finish("Every stage passed: error rate, p99 latency and wrong answers stayed within their margins.")


def rolled_back(path, why=True):
    rollout = Rollout(path, seed=5, errors=(0.002, 0.0045), slower=1.1)
    rollout.decide("running", 0, 0.0, "preflight", "preflight passed; stage aa begins", who="operator@build", effect_ms=41)
    rows = [(rollout.run_stage(0, 45, stop_on_fail=False)[0], rollout.now, "passed")]
    rollout.decide("running", 1, 1.0, "soak", "stage aa passed: both baselines are equal, dispersion 1.3")
    rows.append((rollout.run_stage(1, 60, stop_on_fail=False)[0], rollout.now, "passed"))
    rollout.decide("paused", 1, 1.0, "person", "look at the new error first <b>now</b>", who="anna@desk", effect_ms=None)
    for _ in range(12):
        rollout.second(1, 0.01)
    rollout.decide("running", 1, 1.0, "person", "resumed", who="anna@desk", effect_ms=None)
    rollout.decide("running", 2, 25.0, "soak", "stage 1% passed: every bound lies below its margin")
    begin, passed = rollout.run_stage(2, 400)
    assert not passed
    cells = rollout.cells(2, final=True)
    metric = max(cells, key=lambda name: cells[name][2])
    verdict, ratio, against = cells[metric]
    title, allowed = ("error rate", 50) if metric == "error_rate" else ("p99 latency", 10)
    reason = "%s of the candidate is %.0f %% above the baseline's (allowed %d %%): log e-value %.1f, needed %.1f, after %d requests." % (
        title, 100 * (ratio - 1), allowed, against, NEEDED, rollout.totals[2][1][0])
    breach = rollout.now
    rollout.decide("rolled_back", 2, 0.0, "evidence", reason, effect_ms=87, evidence=json.dumps([{"metric": metric, "value": round(ratio, 3), "evidence": round(against, 2)}]))
    rows.append((begin, rollout.now, "failed"))
    for _ in range(20):
        rollout.second(2, 0.0)
    rollout.stages(rows)
    if why:
        for arm, name in enumerate(("baseline", "candidate")):
            other = "%s.%s.db" % (path, name)
            recording(other, 21 + arm, (1, 1 / 3)[arm], (0, 24)[arm])
            rollout.db.execute("INSERT INTO rollout_recording VALUES (?,?,?,?,?)", (arm, other, (breach - 11) * SECOND, (breach - 1) * SECOND, None))
    for i in range(3):
        rollout.db.execute("INSERT INTO rollout_shadow (at_ns, request, equal, distance, baseline, candidate) VALUES (?,?,0,?,?,?)",
                           (BEGIN * SECOND, 'POST /score {"id": %d}: .scores differs by 0.3 of its rms' % i, None if i == 2 else 0.31 - 0.1 * i, '200 {"id": %d, "scores": [0.25, 0.5]}' % i,
                            '200 {"id": %d, "scores": [NaN, 0.5]}' % i if i == 2 else '200 {"id": %d, "scores": [0.33, 0.5]}' % i))
    rollout.finish(reason[0].upper() + reason[1:], lost=17, problem="17 lines lost: gaps in the sequence number", since=breach)


def running(path):
    rollout = Rollout(path, seed=3)
    rollout.decide("running", 0, 0.0, "preflight", "preflight passed; stage aa begins", who="operator@build", effect_ms=41)
    rows = [(rollout.run_stage(0, 45, stop_on_fail=False)[0], rollout.now, "passed")]
    rollout.decide("running", 1, 1.0, "soak", "stage aa passed: both baselines are equal, dispersion 1.3")
    rows.append((rollout.run_stage(1, 20, stop_on_fail=False)[0], None, None))
    rollout.stages(rows)
    rollout.finish("Stage 1% soaks; no verdict on the error rate yet.", up=(1, 0))


def waiting(path):
    rollout = Rollout(path, seed=1)
    rollout.stages([])
    rollout.finish("Outside the window: moves begin on Monday at 09:00.", up=(None, None))


def main():
    kind, path = sys.argv[1:3]
    {"promoted": promoted, "rolled_back": rolled_back, "running": running, "waiting": waiting}[kind](path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
