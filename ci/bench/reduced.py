#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate merge --reduced` over a large job that is simulated: 1,000 shards of 200 steps as a recorder leaves them (schema, stacks, waits, kernels,
collectives of NCCL, phases), eight ranks a node, of which rank 5 comes 3 ms late to the first collective of each step. One shard is made, and copied
with other arrivals. Measured are the shards reduced at once, the files of 125 nodes added, and both with 8 to 1,024 ranks, the files with 16,384 too
(windows of 25 steps there; they are those of two nodes with other ranks and names). Wall time and memory of whole commands on two CPUs, the files in
memory, the best of --rounds. Exit 1 above 2 s, 64 MB, 1,000 bytes a rank and window or 600 in the median, or when another rank is named, or none.
Takes 600 MB of disk, which it gives back.

    python3 ci/bench/reduced.py [--ranks 1000] [--steps 200] [--kernels 8] [--collectives 2] [--rounds 3] [--growth 8,64,512,1024,16384]
"""
import argparse
import json
import math
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys

import rig

LIMIT_S, LIMIT_MB, LIMIT_WINDOW, LIMIT_MEDIAN = 2, 64, 1000, 600
A_NODE, LATE, LATE_NS, WINDOW, WIDE = 8, 5, 3 * 10**6, 5, 25
SHARDS_MAX, DISK_MAX = 1024, 2 * 10**9
BEGIN_NS, MS, STEP_MS = 5 * 10**12, 10**6, 100
WALL_NS, ERROR_NS = 1_700_000_000 * 10**9, 50_000
KERNEL = ["futex_do_wait", "futex_wait", "do_futex", "do_syscall_64", "entry_SYSCALL_64_after_hwframe"]
USER = ["__futex_abstimed_wait_common", "pthread_cond_wait", "c10d::Work::wait", "main"]
NAMES = ["sm90_xmma_gemm_bf16", "flash_fwd_kernel", "vectorized_elementwise_kernel", "vectorized_layer_norm_kernel",
         "ncclDevKernel_AllReduce_Sum_bf16"]
MICROSECONDS = {1: 310, 2: 540, 3: 35, 4: 60, 6: 9}  # rows of gpu_work; 5 is NCCL's, 6 a copy
CHECKSUM_BEGIN, CHECKSUM_TIMES = 0xCBF29CE484222325, 0x100000001B3
# Between us and upgate: what wait4 tells of a child is at least what its parent held when it was forked.
RUNNER = """
import os, sys, time
os.sched_setaffinity(0, {int(cpu) for cpu in sys.argv[2].split(',')})
begin = time.monotonic()
pid = os.fork()
if not pid:
    os.execv(sys.argv[3], sys.argv[3:])
_, status, used = os.wait4(pid, 0)
with open(sys.argv[1], 'w') as file:
    print(time.monotonic() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, os.waitstatus_to_exitcode(status), file=file)
"""


# --- shards ----------------------------------------------------------------------------------------


def ns(ms):
    return BEGIN_NS + round(ms * MS)


def begin_of(step):
    return 1000 + step * STEP_MS


def fill_gpu(db, steps, kernels, collectives, rng):
    """Kernels of all kinds, in the first 60 ms of a step, then the collectives."""
    db.executemany("INSERT INTO string (id, text) VALUES (?, ?)", list(enumerate(NAMES + ["forward", "backward"], 1)))
    db.executemany("INSERT INTO gpu_kernel (id, name_id, name, grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, static_shared_bytes, "
                   "dynamic_shared_bytes, local_bytes) VALUES (?, ?, ?, 64, 1, 1, 256, 1, 1, 96, 0, 0, 0)",
                   [(i, i, name) for i, name in enumerate(NAMES, 1)])
    db.execute("INSERT INTO gpu_stream (id, process_id, device, context, stream) VALUES (1, 1, 0, 1, 7)")
    db.executemany("INSERT INTO gpu_work (id, kind, stream_id, kernel_id, thread_id) VALUES (?, 0, 1, ?, 1)", [(i, i) for i in range(1, 6)])
    db.execute("INSERT INTO gpu_work (id, kind, stream_id, thread_id, bytes) VALUES (6, 17, 1, 1, 4096)")
    kinds, ops, nccl, marks = sorted(MICROSECONDS), [], [], []
    for step in range(steps):
        at = begin_of(step)
        for k in range(kernels):
            work = kinds[k % len(kinds)]
            ops.append((ns(at + 60 * k / kernels), round(MICROSECONDS[work] * 1000 * rng.lognormvariate(0, 0.03)), work))
        for k in range(collectives):
            came = at + 70 + 20 * k / collectives
            ops.append((ns(came), round(5 * MS * rng.lognormvariate(0, 0.03)), 5))
            nccl.append((ns(came - 1), ns(came), ns(came + 5), step * collectives + k))
        for name, begin, end in ((6, 1, 25), (7, 26, 69)):
            marks += [(ns(at + begin), 5, name), (ns(at + end * rng.lognormvariate(0, 0.003)), 6, name)]
    db.executemany("INSERT INTO gpu_op (start_ns, dur_ns, work_id, call_ns, call_dur_ns, correlation) VALUES (?, ?, ?, 20000, 5000, 1)", ops)
    db.executemany("INSERT INTO nccl_op (process_id, thread_id, enqueued_ns, kernel_start_ns, kernel_end_ns, communicator, rank, ranks, sequence, "
                   "function, datatype, count, bytes, channels, plugin_version) VALUES (1, 1, ?, ?, ?, 77, 0, 2, ?, 'AllReduce', 'ncclBfloat16', "
                   "1048576, 2097152, 16, 5)", nccl)
    db.executemany("INSERT INTO python_mark (process_id, thread_id, at_ns, kind, name_id) VALUES (1, 1, ?, ?, ?)", marks)


def make_template(path, steps, kernels, collectives):
    """A shard of rank 0, as `upgate rank` leaves it."""
    rng = random.Random(7)
    with open(os.path.join(rig.ROOT, "contracts/schema.sql"), encoding="utf-8") as file:
        schema = file.read()
    db = sqlite3.connect(path)
    db.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY;" + schema)
    db.execute("INSERT INTO run VALUES (1, 'u', 'record', 'done', '0', ?, ?, 7, '{}', NULL, '[]', '{}', 'k', NULL, NULL)", (WALL_NS, WALL_NS + 1))
    db.execute("INSERT INTO recording VALUES (1, NULL, ?, ?, 1000000, 0, 1, '{}', '[]')", (BEGIN_NS, ns(begin_of(steps) + 1000)))
    db.execute("INSERT INTO process VALUES (1, 1, 1000, 1, 1, 'python3', 'python3 train.py', 'target', NULL, NULL, NULL)")
    db.execute("INSERT INTO thread VALUES (1, 1, 1000, 'python3', NULL, NULL)")
    db.execute("INSERT INTO thread_total VALUES (1, 5000, 4000, 1000000, ?)", (steps * STEP_MS * MS * 4 // 5,))
    db.executemany("INSERT INTO frame VALUES (?, ?, ?, NULL, NULL, 0)",
                   [(i, name, "[kernel]" if name in KERNEL else "libtorch_cpu.so") for i, name in enumerate(KERNEL + USER, 1)])
    db.execute("INSERT INTO stack VALUES (1, 'kernel', 5, '[1,2,3,4,5]'), (2, 'user', 4, '[6,7,8,9]'), (3, 'user', 3, '[6,7,9]')")
    waits = []
    for step in range(steps):
        at = begin_of(step)
        waits += [(ns(at + 5), ns(at + 5 + rng.lognormvariate(0.5, 0.3)), 3), (ns(at + 68 + rng.random()), ns(at + 95 + rng.random()), 2)]
    db.executemany("INSERT INTO gap (thread_id, out_ns, waking_ns, in_ns, state, flags, cpu_out, cpu_in, kernel_stack, user_stack, syscall_nr) "
                   "VALUES (1, ?1, ?2, ?2 + 10000, 1, 0, 0, 0, 1, ?3, 202)", waits)
    db.executemany("INSERT INTO recorded_step VALUES (1, 0, ?, ?, ?)",
                   [(step, ns(begin_of(step)), round((STEP_MS - 2) * MS * rng.lognormvariate(0, 0.005))) for step in range(steps)])
    fill_gpu(db, steps, kernels, collectives, rng)
    db.commit()
    db.close()


def opened(path):
    db = sqlite3.connect(path)
    db.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF")
    return db


def make_shard(template, path, rank, collectives):
    """The same steps; to collectives it comes when it does."""
    db = opened(shutil.copy(template, path))
    db.execute("UPDATE nccl_op SET rank = ?1, kernel_start_ns = kernel_start_ns + (rowid * 7919 + ?1 * 104729 + rowid * ?1 * 31) % 300007 + "
               "CASE WHEN ?2 AND (rowid - 1) % ?3 = 0 THEN ?4 ELSE 0 END", (rank, rank == LATE, collectives, LATE_NS))
    db.commit()
    db.close()


def set_job(path, rank, ranks):
    node = "node-%05d" % (rank // A_NODE)
    who = {"run": "job", "restart": 0, "rank": rank, "ranks": ranks, "local_rank": rank % A_NODE, "local_ranks": A_NODE, "node": rank // A_NODE,
           "launcher": "Slurm", "host": node, "boot": node, "wall_minus_monotonic_ns": WALL_NS, "clock_error_ns": ERROR_NS, "pid": 1000,
           "wall_minus_monotonic_end_ns": WALL_NS, "clock_error_end_ns": ERROR_NS}
    db = opened(path)
    db.execute("UPDATE recording SET target = ?", (json.dumps({"pids": [1000], "cgroup": None, "command": [], "rank": who}),))
    db.execute("UPDATE nccl_op SET ranks = ?", (ranks,))
    db.commit()
    db.close()


def shard_of(run, rank):
    return os.path.join(run, "0-%d.db" % rank)


# --- reduced files of nodes (docs/SCHEMA.md has their bytes) --------------------------------------


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        self.at += size
        return self.data[self.at - size:self.at]

    def number(self):
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value


def put(out, value):
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def copy_numbers(reader, out, count):
    for _ in range(count):
        put(out, reader.number())


def copy_bytes(reader, out):
    size = reader.number()
    put(out, size)
    out += reader.take(size)


def put_name(reader, out, name):
    reader.take(reader.number())
    put(out, len(name))
    out += name


def moved(data, ranks, name, by):
    """The file of a node as another one's, whose ranks are that much higher, of a job of so many."""
    reader, out = Reader(data[:-8]), bytearray()
    out += reader.take(4)
    copy_numbers(reader, out, 1)  # version
    copy_bytes(reader, out)       # run
    copy_numbers(reader, out, 1)  # restart
    reader.number()
    put(out, ranks)
    copy_numbers(reader, out, 1)  # steps of a window
    if reader.number() != 1:
        raise SystemExit("reduced: the file is not of one node")
    put(out, 1)
    put_name(reader, out, name)
    put_name(reader, out, name)
    copy_numbers(reader, out, 2)  # its clock
    members = reader.number()
    put(out, members)
    for i in range(members):
        put(out, reader.number() + (0 if i else by))
        copy_numbers(reader, out, 3)
    gists = reader.number()
    put(out, gists)
    for i in range(gists):
        put(out, reader.number() + (0 if i else by))
        copy_numbers(reader, out, 1)
        copy_bytes(reader, out)
    while True:
        meetings = reader.number()
        put(out, meetings)
        if not meetings:
            break
        out += reader.take(8)  # communicator
        for _ in range(meetings):
            copy_numbers(reader, out, 2)
            count = reader.number()
            put(out, count)
            put(out, reader.number() + by)
            copy_numbers(reader, out, 2 if count >> 1 > 1 else 1)
    checksum = CHECKSUM_BEGIN
    for byte in out:
        checksum = (checksum ^ byte) * CHECKSUM_TIMES & 0xFFFFFFFFFFFFFFFF
    return bytes(out) + checksum.to_bytes(8, "little")


def make_bases(folder, run, window):
    """The files of node 0, which has the late rank, and of node 1."""
    bases = []
    for node in range(2):
        own = os.path.join(folder, "node-%d-%d" % (node, window), "job")
        os.makedirs(own)
        for rank in range(node * A_NODE, (node + 1) * A_NODE):
            os.link(shard_of(run, rank), shard_of(own, rank))
        path = os.path.join(folder, "base-%d-%d.reduced" % (node, window))
        done = subprocess.run([rig.UPGATE, "merge", "--reduced", own, "--window", str(window), "-o", path], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode != 3:  # the others are missing
            raise SystemExit("reduced: upgate ended with %d: %s" % (done.returncode, done.stderr[-500:]))
        with open(path, "rb") as file:
            bases.append(file.read())
    return bases


def make_files(folder, bases, ranks):
    paths = []
    for node in range(ranks // A_NODE):
        paths.append(os.path.join(folder, "%d.reduced" % node))
        with open(paths[-1], "wb") as file:
            file.write(moved(bases[node > 0], ranks, b"node-%05d" % node, A_NODE * (node - 1) if node else 0))
    return paths


# --- measuring -------------------------------------------------------------------------------------


def once(folder, words):
    """What it printed, and seconds, seconds of CPU, MB."""
    told, said = os.path.join(folder, "told"), os.path.join(folder, "said")
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))
    with open(said, "w", encoding="utf-8") as out:
        subprocess.run([sys.executable, "-I", "-S", "-c", RUNNER, told, cpus, rig.UPGATE, "merge", "--reduced", *words], stdout=out, check=True)
    with open(told, encoding="utf-8") as file:
        seconds, cpu, memory, code = file.read().split()
    if code != "0":
        raise SystemExit("reduced: upgate merge --reduced ended with %s" % code)
    with open(said, encoding="utf-8") as file:
        return file.read(), float(seconds), float(cpu), float(memory)


def measure(folder, ranks, words, rounds):
    """One answer in all rounds; the least time, the most memory."""
    tries = [once(folder, words) for _ in range(rounds)]
    text = tries[0][0]
    size = re.search(r"^bytes: (\d+), ([\d.]+) a rank and step; a window's (\d+) in the median, at most (\d+)$", text, re.M)
    if not size or not text.startswith("%d of %d ranks of run 'job'" % (ranks, ranks)) or any(one[0] != text for one in tries):
        raise SystemExit("reduced: not what was expected:\n%s" % text[:1000])
    return {"ranks": ranks, "seconds": min(one[1] for one in tries), "cpu_seconds": min(one[2] for one in tries), "mb": max(one[3] for one in tries),
            "bytes": int(size[1]), "bytes_a_rank_and_step": float(size[2]), "window_median": int(size[3]), "window_most": int(size[4]),
            "late": [int(rank) for rank in re.findall(r"^late: rank (\d+) on ", text, re.M)]}


def slope(results):
    """Of log time over log ranks, by least squares; None: too few."""
    points = [(math.log(one["ranks"]), math.log(one["seconds"])) for one in results if one["ranks"] >= 512]
    if len(points) < 2:
        return None
    x, y = (sum(point[i] for point in points) / len(points) for i in (0, 1))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def measure_all(folder, args, growth):
    """Of shards by their number, of files of nodes, which are wide but for the first result, by theirs."""
    template, run = os.path.join(folder, "template.db"), os.path.join(folder, "shards", "job")
    sizes, made, of_shards, of_files = sorted({size for size in growth if size <= SHARDS_MAX} | {args.ranks, 2 * A_NODE}), 0, [], []
    make_template(template, args.steps, args.kernels, args.collectives)
    if os.path.getsize(template) * sizes[-1] > DISK_MAX:
        raise SystemExit("reduced: %d shards of %.1f MB would take more than %.1f GB of disk: take fewer --steps or --kernels" % (
            sizes[-1], os.path.getsize(template) / 1e6, DISK_MAX / 1e9))
    os.makedirs(run)
    for ranks in sizes:
        for rank in range(made, ranks):
            make_shard(template, shard_of(run, rank), rank, args.collectives)
        made = ranks
        for rank in range(ranks):
            set_job(shard_of(run, rank), rank, ranks)
        if ranks == args.ranks or ranks in growth:
            of_shards.append(measure(folder, ranks, [os.path.dirname(run)], args.rounds))
    bases = {window: make_bases(folder, run, window) for window in (WINDOW, WIDE)}
    shutil.rmtree(os.path.dirname(run))
    for ranks, window in [(args.ranks, WINDOW)] + [(size, WIDE) for size in growth]:
        parts = os.path.join(folder, "parts")
        os.makedirs(parts)
        of_files.append(measure(folder, ranks, make_files(parts, bases[window], ranks), args.rounds))
        shutil.rmtree(parts)
    return os.path.getsize(template), of_shards, of_files


def judged(what, one):
    return [rig.row(what, one["seconds"], LIMIT_S, " s"),
            rig.row("    of CPU", one["cpu_seconds"], None, " s"),
            rig.row("    memory", one["mb"], LIMIT_MB, " MB"),
            rig.row("    a rank and window, the most", one["window_most"], LIMIT_WINDOW, " bytes"),
            rig.row("    a rank and window, median", one["window_median"], LIMIT_MEDIAN, " bytes"),
            rig.row("    a rank and step", one["bytes_a_rank_and_step"], None, " bytes"),
            rig.row("    the late rank is named, and no other", int(one["late"] == [LATE]), 1, more_is_better=True)]


def grown(what, results):
    rows = []
    for one in results:
        rows += [rig.row("%s, %d ranks" % (what, one["ranks"]), one["seconds"], None, " s"),
                 rig.row("    memory", one["mb"], None, " MB"),
                 rig.row("    the late rank is named, and no other", int(one["late"] == [LATE]), 1, more_is_better=True)]
    steep = slope(results)
    return rows + ([] if steep is None else [rig.row("    log time over log ranks, from 512 on", steep, None)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--kernels", type=int, default=8, help="of a step")
    parser.add_argument("--collectives", type=int, default=2, help="of a step")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--growth", default="8,64,512,1024,16384")
    args = parser.parse_args()
    growth = sorted({int(size) for size in args.growth.split(",") if size})
    if args.ranks > SHARDS_MAX or any(size < A_NODE or size % A_NODE for size in [args.ranks, *growth]):
        parser.error("ranks are multiples of %d, --ranks at most %d" % (A_NODE, SHARDS_MAX))
    if args.kernels < 1 or args.collectives < 1 or args.rounds < 1 or args.steps * args.collectives < 24:
        parser.error("a rank is told from chance by 24 collectives at least")
    if not os.path.exists(rig.UPGATE):  # the workloads that rig.need_build asks for are not needed
        print("%s: '%s' is missing; build first, or set UPGATE_BUILD" % (sys.argv[0], rig.UPGATE), file=sys.stderr)
        sys.exit(2)
    with rig.scratch() as folder:
        shard_bytes, of_shards, of_files = measure_all(folder, args, growth)
    whole = next(one for one in of_shards if one["ranks"] == args.ranks)
    print(json.dumps({"steps": args.steps, "kernels": args.kernels, "collectives": args.collectives, "shard_bytes": shard_bytes, "shards": of_shards,
                      "files": of_files[0], "files_of_wide_windows": of_files[1:], "slope_shards": slope(of_shards),
                      "slope_files": slope(of_files[1:])}))
    rig.finish("Ranks reduced: %d steps of %d kernels and %d collectives" % (args.steps, args.kernels, args.collectives),
               judged("%d shards of %.2f MB" % (args.ranks, shard_bytes / 1e6), whole) +
               judged("%d files of nodes, %d ranks" % (args.ranks // A_NODE, args.ranks), of_files[0]) +
               grown("shards", [one for one in of_shards if one["ranks"] in growth]) + grown("files of nodes", of_files[1:]))


if __name__ == "__main__":
    main()
