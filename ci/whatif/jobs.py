#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What if, held against jobs whose answer is known: each is simulated with something that slows it down, and written as a store of its ranks as a
recorder and NCCL's plugin would have; then it is simulated again, with other noise, without that. `upgate stalls` of the first has to say what the
second one takes.

    python3 ci/whatif/jobs.py [--seeds 3] [--steps 200]       a table, in Markdown; exit 1 above 1 % in the median or 4 % at p90
    python3 ci/whatif/jobs.py --heavy [--steps 1000]          with noise that has a long tail; no limit
    python3 ci/whatif/jobs.py --size 1024 [--steps 200]       time and memory of `upgate stalls` over so many ranks"""
import argparse
import json
import os
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
UPGATE = os.path.join(os.environ.get("UPGATE_BUILD") or os.path.join(ROOT, "build/release"), "upgate")
BEGIN_NS, MS, THRESHOLD_MS = 5 * 10**12, 10**6, 1
KERNEL = ["futex_do_wait", "futex_wait", "do_futex", "do_syscall_64", "entry_SYSCALL_64_after_hwframe"]
USER = ["__futex_abstimed_wait_common", "pthread_cond_wait", "c10d::Work::wait", "c10d::Reducer::finalize_backward"]
TARGET_MEDIAN, TARGET_P90 = 1.0, 4.0  # per cent


class Sim:
    """What happened to each rank. Times are ms."""
    heavy = False  # noise of 8 %, and each fiftieth piece of work takes twice as long in the mean

    def __init__(self, ranks, seed):
        self.ranks, self.rng = ranks, random.Random(seed)
        self.waits, self.nccl, self.busy, self.steps, self.numbers = [], [], [], [], {}

    def draw(self, ms, spread=0.03):
        if not self.heavy:
            return ms * max(0.5, self.rng.gauss(1, spread))
        return ms * (max(0.5, self.rng.gauss(1, 0.08)) + (self.rng.expovariate(1) if self.rng.random() < 0.02 else 0))

    def work(self, rank, begin, ms):
        self.busy.append((rank, begin, begin + ms))
        return begin + ms

    def meet(self, communicator, members, came, ms, host=False):
        """A collective: members come when they do; the end."""
        end = max(came[rank] for rank in members) + ms
        number = self.numbers[communicator] = self.numbers.get(communicator, -1) + 1
        for rank in members:
            if not host:
                self.nccl.append((rank, communicator, len(members), None, number, "AllReduce", came[rank], end))
            elif end - came[rank] >= THRESHOLD_MS:
                self.waits.append((rank, came[rank], end))
        return end

    def send(self, communicator, sender, receiver, sent, came, ms):
        end = max(sent, came) + ms
        number = self.numbers[communicator] = self.numbers.get(communicator, -1) + 1
        self.nccl.append((sender, communicator, self.ranks, receiver, number, "Send", sent, end))
        self.nccl.append((receiver, communicator, self.ranks, sender, number, "Recv", came, end))
        return end

    def step_ms(self):
        """As a user would measure it: of rank 0, but for the first."""
        own = sorted(step for step in self.steps if step[0] == 0)
        return (own[-1][3] - own[1][2]) / (len(own) - 1)


def data_parallel(sim, steps, host, late=None, slow=1.0, transfer=2.0, base=30.0):
    """Computes, then reduces. late(step): ms more of rank 1; slow: so many times what the others take."""
    now = 5.0
    for step in range(steps):
        came = {}
        for rank in range(sim.ranks):
            ms = sim.draw(base) * (slow if rank == 1 else 1) + (late(step) if late and rank == 1 else 0)
            came[rank] = now + ms if host else sim.work(rank, now, ms)
        end = sim.meet(1, range(sim.ranks), came, sim.draw(transfer, 0.1) if transfer else 0, host)
        sim.steps += [(rank, step, now, end) for rank in range(sim.ranks)]
        now = end


def overlapped(sim, steps, slow=1.0, transfer=4.0, base=30.0):
    """Four buckets are reduced while the rest of the backward pass runs; the optimizer waits for the last one."""
    now = 5.0
    for step in range(steps):
        at = {rank: sim.work(rank, now, sim.draw(base / 3) * (slow if rank == 1 else 1)) for rank in range(sim.ranks)}
        free = now
        for _ in range(4):
            for rank in range(sim.ranks):
                at[rank] = sim.work(rank, at[rank], sim.draw(base / 6) * (slow if rank == 1 else 1))
            free = sim.meet(1, range(sim.ranks), {rank: max(at[rank], free) for rank in at}, sim.draw(transfer, 0.1) if transfer else 0)
        ends = {rank: sim.work(rank, max(at[rank], free), 1.0) for rank in at}
        sim.steps += [(rank, step, now, ends[rank]) for rank in at]
        now = max(ends.values())


def tensor(sim, steps, slow=1.0, transfer=0.3, width=2):
    """Groups of `width` ranks reduce after each of 8 layers, and all that hold the same part at the end of the step."""
    at, replicas = {rank: 5.0 for rank in range(sim.ranks)}, sim.ranks // width
    for step in range(steps):
        begin = dict(at)
        for _ in range(8):
            came = {rank: sim.work(rank, at[rank], sim.draw(4.0) * (slow if rank == 1 else 1)) for rank in at}
            for replica in range(replicas):
                group = range(replica * width, (replica + 1) * width)
                end = sim.meet(100 + replica, group, came, sim.draw(transfer, 0.1) if transfer else 0)
                at.update({rank: end for rank in group})
        for part in range(width):
            group = range(part, sim.ranks, width)
            end = sim.meet(200 + part, group, at, sim.draw(2.0, 0.1) if transfer else 0)
            at.update({rank: end for rank in group})
        sim.steps += [(rank, step, begin[rank], at[rank]) for rank in at]


def order(stage, stages, batches):
    """1F1B: (is it a forward pass, which batch)."""
    warm, ahead, back, ops = min(stages - 1 - stage, batches), 0, 0, []
    while back < batches:
        forward = ahead < batches and ahead - back <= warm
        ops.append((forward, ahead if forward else back))
        ahead, back = ahead + forward, back + (not forward)
    return ops


def pipeline(sim, steps, work, slow=1.0, link=0.2, batches=8):
    """work[stage]: ms of a forward pass, a backward one takes twice as long; rank = replica * stages + stage; rank 1 is slow."""
    stages, at = len(work), {rank: 5.0 for rank in range(sim.ranks)}
    for step in range(steps):
        begin = dict(at)
        for replica in range(sim.ranks // stages):
            left = [order(stage, stages, batches) for stage in range(stages)]
            sent = {}
            while any(left):
                for stage in range(stages):
                    rank = replica * stages + stage
                    while left[stage]:
                        forward, batch = left[stage][0]
                        source, target = (stage - 1, stage + 1) if forward else (stage + 1, stage - 1)
                        if 0 <= source < stages:
                            if (forward, batch, source) not in sent:
                                break
                            at[rank] = sim.send(10 + replica, replica * stages + source, rank, sent[(forward, batch, source)], at[rank], sim.draw(link, 0.1) if link else 0)
                        left[stage].pop(0)
                        at[rank] = sim.work(rank, at[rank], sim.draw(work[stage] * (1 if forward else 2)) * (slow if rank == 1 else 1))
                        if 0 <= target < stages:
                            sent[(forward, batch, stage)] = at[rank]
        for stage in range(stages):
            group = range(stage, sim.ranks, stages)
            end = sim.meet(300 + stage, group, at, sim.draw(2.0, 0.1) if link else 0)
            at.update({rank: end for rank in group})
        sim.steps += [(rank, step, begin[rank], at[rank]) for rank in at]


def ns(ms):
    return BEGIN_NS + round(ms * MS)


def store(sim, path):
    """As a recorder leaves it; begins and ends are within the window."""
    with open(os.path.join(ROOT, "contracts/schema.sql"), encoding="utf-8") as file:
        schema = file.read()
    end = max(step[3] for step in sim.steps) + 5
    db = sqlite3.connect(path)
    db.executescript(schema)
    db.execute("INSERT INTO run VALUES (1, 'u', 'record', 'done', '0', 0, 1, 7, '{}', NULL, '[]', '{}', 'k', NULL, NULL)")
    target = {"ranks": [{"pid": 2000 + rank, "start_ns": 1, "rank": rank, "ranks": sim.ranks} for rank in range(sim.ranks)]}
    db.execute("INSERT INTO recording VALUES (1, NULL, ?, ?, ?, 199, 1, ?, '[]')", (BEGIN_NS, ns(end), THRESHOLD_MS * MS, json.dumps(target)))
    ranks = range(sim.ranks)
    db.executemany("INSERT INTO process VALUES (?, 1, ?, 1, 1, 'python3', 'python3 train.py', 'target', NULL, NULL, NULL)", [(rank + 1, 2000 + rank) for rank in ranks])
    db.executemany("INSERT INTO thread VALUES (?, ?, ?, 'python3', NULL, NULL)", [(rank + 1, rank + 1, 2000 + rank) for rank in ranks])
    db.executemany("INSERT INTO thread_total VALUES (?, 1000, 900, 1000000, ?)", [(rank + 1, round(end * MS * 0.8)) for rank in ranks])
    db.executemany("INSERT INTO frame VALUES (?, ?, ?, NULL, NULL, 0)", [(i + 1, name, "[kernel]" if name in KERNEL else "lib.so") for i, name in enumerate(KERNEL + USER)])
    db.execute("INSERT INTO stack VALUES (1, 'kernel', 5, '[1,2,3,4,5]'), (2, 'user', 4, '[6,7,8,9]')")
    db.executemany("INSERT INTO gap (thread_id, out_ns, waking_ns, in_ns, state, flags, kernel_stack, user_stack) VALUES (?, ?, ?, ?, 1, 0, 1, 2)",
                   [(rank + 1, ns(begin), ns(until), ns(until) + 10000) for rank, begin, until in sorted(sim.waits, key=lambda wait: wait[2])])
    db.executemany("INSERT INTO recorded_step VALUES (1, ?, ?, ?, ?)", [(rank, step, ns(begin), ns(until) - ns(begin)) for rank, step, begin, until in sim.steps])
    db.executemany("INSERT INTO nccl_op (process_id, enqueued_ns, kernel_start_ns, kernel_end_ns, communicator, rank, ranks, peer, sequence, function, count, bytes, "
                   "channels, plugin_version) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 4, 1, 5)",
                   [(rank + 1, ns(begin), ns(begin), ns(until), communicator, rank, size, peer, number, function)
                    for rank, communicator, size, peer, number, function, begin, until in sim.nccl])
    if sim.nccl:
        db.executemany("INSERT INTO gpu_stream (id, process_id, device, context, stream) VALUES (?, ?, 0, 1, 7)", [(rank + 1, rank + 1) for rank in ranks])
        db.executemany("INSERT INTO gpu_work (id, kind, stream_id) VALUES (?, 0, ?)", [(rank + 1, rank + 1) for rank in ranks])
        db.executemany("INSERT INTO gpu_op (start_ns, dur_ns, work_id, correlation) VALUES (?, ?, ?, 1)",
                       [(ns(begin), ns(until) - ns(begin), rank + 1) for rank, begin, until in sorted(sim.busy, key=lambda busy: busy[1])])
    db.commit()
    db.close()


def ask(path):
    done = subprocess.run([UPGATE, "stalls", path, "--format", "json"], check=False, capture_output=True, text=True)
    if done.returncode not in (0, 3):  # 3: no stall can be told, as the host's side is not in most of these stores
        sys.exit("upgate stalls: %s" % done.stderr)
    return json.loads(done.stdout)["what_if"]


def every(step):
    return 60.0 if step % 10 == 3 else 0.0


HEAVY, EVEN, LIGHT = [3.0, 3.0, 3.0, 5.0], [3.5] * 4, [3.0] * 4
CASES = [  # what, ranks, the question, the job with what slows it down, the job without
    ("data parallel, waits on the host: one late by 8 ms", 2, "without_stragglers_ns", lambda s, n: data_parallel(s, n, True, late=lambda _: 8.0), lambda s, n: data_parallel(s, n, True)),
    ("the same", 4, "without_stragglers_ns", lambda s, n: data_parallel(s, n, True, late=lambda _: 8.0), lambda s, n: data_parallel(s, n, True)),
    ("the same, with a transfer of 0.4 ms: below the threshold", 4, "without_stragglers_ns", lambda s, n: data_parallel(s, n, True, late=lambda _: 8.0, transfer=0.4), lambda s, n: data_parallel(s, n, True, transfer=0.4)),
    ("late by 60 ms in each tenth step", 4, "without_stragglers_ns", lambda s, n: data_parallel(s, n, True, late=every), lambda s, n: data_parallel(s, n, True)),
    ("a slow link", 4, "instant_ns", lambda s, n: data_parallel(s, n, True, transfer=20.0), lambda s, n: data_parallel(s, n, True, transfer=0)),
    ("data parallel, NCCL: one GPU takes 15 % longer", 8, "without_stragglers_ns", lambda s, n: data_parallel(s, n, False, slow=1.15), lambda s, n: data_parallel(s, n, False)),
    ("communication beside the backward pass: one GPU takes 20 % longer", 4, "without_stragglers_ns", lambda s, n: overlapped(s, n, slow=1.2), lambda s, n: overlapped(s, n)),
    ("communication beside the backward pass, a slow link", 4, "instant_ns", lambda s, n: overlapped(s, n, transfer=12.0), lambda s, n: overlapped(s, n, transfer=0)),
    ("2 tensor x 4 data parallel: one GPU takes 10 % longer", 8, "without_stragglers_ns", lambda s, n: tensor(s, n, slow=1.1), lambda s, n: tensor(s, n)),
    ("2 tensor x 4 data parallel, slow links", 8, "instant_ns", lambda s, n: tensor(s, n, transfer=2.0), lambda s, n: tensor(s, n, transfer=0)),
    ("pipeline of 4 stages x 2, 1F1B: the last stage takes 67 % longer", 8, "balanced_ns", lambda s, n: pipeline(s, n, HEAVY), lambda s, n: pipeline(s, n, EVEN)),
    ("pipeline of 4 stages x 2, 1F1B: one GPU takes 20 % longer", 8, "without_stragglers_ns", lambda s, n: pipeline(s, n, LIGHT, slow=1.2), lambda s, n: pipeline(s, n, LIGHT)),
    ("pipeline of 4 stages x 2, 1F1B, slow links", 8, "instant_ns", lambda s, n: pipeline(s, n, LIGHT, link=1.0), lambda s, n: pipeline(s, n, LIGHT, link=0)),
]


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def table(seeds, steps):
    errors, silent = [], 0
    print("| job | ranks | question | a step took | answer | without it takes | off by |\n|---|--:|---|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory(prefix="upgate-whatif-") as scratch:
        for number, (what, ranks, question, with_it, without) in enumerate(CASES):
            rows = []
            for seed in range(seeds):
                sim, truth = Sim(ranks, 1000 * number + seed), Sim(ranks, 1000 * number + 500 + seed)
                with_it(sim, steps)
                without(truth, steps)
                path = os.path.join(scratch, "%d-%d.db" % (number, seed))
                store(sim, path)
                answer = (ask(path) or {}).get(question)
                silent += answer is None
                rows.append((sim.step_ms(), answer and answer / MS, truth.step_ms()))
                os.unlink(path)
            off = [100 * (answer / truth - 1) for _, answer, truth in rows if answer]
            errors += map(abs, off)
            took, answer, truth = rows[0]
            print("| %s | %d | %s | %.2f ms | %s | %.2f ms | %s |" % (what, ranks, question[:-3].replace("_", " "), took, "%.2f ms" % answer if answer else "none", truth,
                                                               ", ".join("%+.2f %%" % value for value in off) or "-"))
    median, high = quantile(errors, 0.5), quantile(errors, 0.9)
    print("\n%d answers, off by %.2f %% in the median, %.2f %% at p90, %.2f %% at most; none in %d" % (len(errors), median, high, max(errors), silent))
    return int(silent > 0 or (not Sim.heavy and (median > TARGET_MEDIAN or high > TARGET_P90)))


def size(ranks, steps):
    sim = Sim(ranks, 7)
    data_parallel(sim, steps, True, late=lambda _: 8.0)
    with tempfile.TemporaryDirectory(prefix="upgate-whatif-") as scratch:
        path = os.path.join(scratch, "run.db")
        store(sim, path)
        begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        answer = ask(path)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        print("%d ranks x %d steps, %d waits, %.0f MB: %.2f s, %.2f s of CPU, %.0f MB of memory: %s" % (
            ranks, steps, len(sim.waits), os.path.getsize(path) / 1e6, time.monotonic() - begun,
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, after.ru_maxrss / 1024, answer))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--size", type=int)
    parser.add_argument("--heavy", action="store_true")
    args = parser.parse_args()
    Sim.heavy = args.heavy
    return size(args.size, args.steps) if args.size else table(args.seeds, args.steps)


if __name__ == "__main__":
    sys.exit(main())
