#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What must hold of the records that the injected library wrote, whoever made them: the fake of tests/mock or a real CUPTI.

A dump is the output of spool_dump; a truth the lines of JSON that the traced program wrote about itself. Every check gives
a list of sentences, empty when it holds.

usage: expect.py DUMP [TRUTH]     exit 0: all hold, 1: not, 2: wrong usage
"""
import collections
import json
import statistics
import sys

PRODUCERS = {"kernel": "kernel", "graph": "kernel", "copy": "copy", "call": "call", "sync": "sync", "memory": "memory",
             "range": "nvtx", "overhead": "overhead", "nccl": "nccl", "mark": "python", "gc": "python",
             "launch_stack": "python", "string": "other", "clock": "other", "device": "other", "stream": "other",
             "thread": "other", "graph_node": "other"}
COPY_SET, COPY_PEER = 64, 10


def load_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.startswith("{")]


class Dump:
    def __init__(self, lines):
        self.lines = lines
        self.by_type = collections.defaultdict(list)
        for line in lines:
            self.by_type[line["type"]].append(line)
        self.header = self.by_type["header"][-1] if self.by_type["header"] else None

    def of(self, kind):
        return self.by_type[kind]


def few(items):
    items = list(items)
    return ", ".join(str(item) for item in items[:3]) + (f" and {len(items) - 3} more" if len(items) > 3 else "")


# --- of any dump ------------------------------------------------------------------------------------

def check_whole(dump):
    """Nothing damaged, and every id of a string was told."""
    if dump.header is None:
        return ["the dump has no header: its recorder did not come to the end"]
    wrong = []
    if dump.header["damaged"]:
        wrong.append(f"{dump.header['damaged']} damaged records or segments")
    strange = [line for line in dump.lines for value in line.values() if isinstance(value, str) and value.startswith("?")]
    if strange:
        wrong.append(f"{len(strange)} records name a string nobody told: {few(strange)}")
    return wrong


def check_counts(dump, since_start=True):
    """seen = kept + dropped, of every producer; only where this dump began with the process' first record."""
    wrong = []
    kept = collections.Counter()
    for kind, count in dump.of("kept")[-1].items():
        if kind in PRODUCERS:
            kept[PRODUCERS[kind]] += count
    for producer, counts in dump.header["counts"].items():
        if since_start and counts["seen"] != kept[producer] + counts["dropped"]:
            wrong.append(f"{producer}: seen {counts['seen']}, but kept {kept[producer]} + dropped {counts['dropped']}")
    return wrong


def check_times(dump, zero_allowed=False):
    wrong = []
    for kind in ("kernel", "copy", "graph", "call", "sync", "overhead"):
        backwards = [r for r in dump.of(kind) if r["end_gpu"] < r["start_gpu"]]
        if backwards:
            wrong.append(f"{len(backwards)} {kind} records end before they start: {few(backwards)}")
        zero = [r for r in dump.of(kind) if not r["start_gpu"]]
        if zero and not zero_allowed:
            wrong.append(f"{len(zero)} {kind} records without a time: {few(zero)}")
    return wrong


def clock_of(dump):
    """(slope, gpu0, mono0): of the bracketed samples that are not wider than twice the median; slope by Theil and Sen."""
    samples = [(c["gpu_ns"], (c["before_ns"] + c["after_ns"]) / 2, c["after_ns"] - c["before_ns"])
               for c in dump.of("clock")]
    if not samples:
        return None
    width = 2 * statistics.median(s[2] for s in samples) + 1
    samples = [s for s in samples if s[2] <= width]
    gpu0, mono0, _ = samples[0]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(samples) for b in samples[i + 1:]
              if b[0] - a[0] > 50_000_000]
    slope = statistics.median(slopes) if slopes else 1.0
    offset = statistics.median(m - mono0 - (g - gpu0) * slope for g, m, _ in samples)
    return slope, gpu0, mono0 + offset


def to_mono(clock, gpu):
    slope, gpu0, mono0 = clock
    return mono0 + (gpu - gpu0) * slope


def check_clock(dump):
    wrong = [f"a clock sample that is not a bracket: {c}" for c in dump.of("clock") if c["before_ns"] > c["after_ns"]]
    if not dump.of("clock"):
        wrong.append("no clock sample")
    return wrong


def check_launches(dump, share=1.0):
    """Every kernel, copy and graph has the call that launched it, and none starts before its call."""
    calls = {c["correlation"]: c for c in dump.of("call")}
    wrong = []
    for kind in ("kernel", "copy", "graph"):
        found = dump.of(kind)
        orphans = [r for r in found if r["correlation"] not in calls]
        if len(orphans) > len(found) * (1 - share):
            wrong.append(f"{len(orphans)} of {len(found)} {kind} records have no call: {few(orphans)}")
        early = [r for r in found if r["start_gpu"] and r["correlation"] in calls
                 and r["start_gpu"] < calls[r["correlation"]]["start_gpu"]]
        if early:
            wrong.append(f"{len(early)} {kind} records start before the call that launched them: {few(early)}")
    nameless = [c for c in dump.of("call") if not c["name"]]
    if nameless:
        wrong.append(f"{len(nameless)} calls have no name: {few(nameless)}")
    return wrong


def check_streams(dump):
    """On one stream kernels do not overlap by more than CUPTI's own grain."""
    lanes = collections.defaultdict(list)
    for r in dump.of("kernel"):
        if r["start_gpu"]:
            lanes[(r["device"], r["context"], r["stream"])].append(r)
    return [f"stream {lane} has two kernels of one time and correlation" for lane, rs in lanes.items()
            if len({(r["start_gpu"], r["correlation"], r["graph_node"]) for r in rs}) != len(rs)]


# --- against the truth ------------------------------------------------------------------------------

def check_kernels(dump, truth, nodes=False):
    """Each launch that the program made, once, with its own name, shape and place; and nothing else."""
    wrong = []
    told = {t["correlation"]: t for t in truth if t["type"] == "kernel"}
    found = collections.defaultdict(list)
    for r in dump.of("kernel"):
        found[r["correlation"]].append(r)
    missing = [c for c in told if c not in found]
    if missing:
        wrong.append(f"{len(missing)} of {len(told)} launches have no kernel: correlations {few(missing)}")
    for correlation, t in told.items():
        for r in found.get(correlation, []):
            got = (r["name"], [r["grid_x"], r["grid_y"], r["grid_z"]], [r["block_x"], r["block_y"], r["block_z"]],
                   r["context"], r["stream"])
            want = (t["name"], t["grid"], t["block"], t["context"], t["stream"])
            if got != want:
                wrong.append(f"launch {correlation}: recorded {got}, was {want}")
        if len(found.get(correlation, [])) > 1:
            wrong.append(f"launch {correlation} was recorded {len(found[correlation])} times")
    graphs = {t["correlation"]: t for t in truth if t["type"] == "graph"}
    extra = [c for c in found if c not in told and c not in graphs]
    if extra:
        wrong.append(f"{len(extra)} kernels nobody launched: {few(extra)}")
    whole = {r["correlation"]: r for r in dump.of("graph")}
    for correlation, t in graphs.items():
        rs = found.get(correlation, [])
        if nodes and (len(rs) != t["nodes"] or len({r["graph_node"] for r in rs}) != t["nodes"]):
            wrong.append(f"graph launch {correlation}: {len(rs)} kernels of {t['nodes']} nodes")
        if nodes and any(r["graph"] != t["graph"] for r in rs):
            wrong.append(f"graph launch {correlation}: kernels of another graph")
        if not nodes and (rs or whole.get(correlation, {}).get("graph") != t["graph"]):
            wrong.append(f"graph launch {correlation}: {len(rs)} kernels, whole {whole.get(correlation)}")
    return wrong[:10]


def check_callers(dump, truth):
    """The call of a launch is told of the thread that made it, and lies within what the program itself measured."""
    wrong = []
    calls = collections.defaultdict(list)
    for c in dump.of("call"):
        calls[c["correlation"]].append(c)
    clock = clock_of(dump)
    for t in truth:
        if t["type"] not in ("kernel", "copy", "graph", "set"):
            continue
        mine = calls.get(t["correlation"], [])
        if not mine:
            wrong.append(f"no call of {t['type']} {t['correlation']}")
        elif any(c["tid"] != t["tid"] for c in mine):
            wrong.append(f"call {mine} is of thread {t['tid']}")
        if clock and any(to_mono(clock, c["start_gpu"]) < t["before"] - 200_000 or
                         to_mono(clock, c["end_gpu"]) > t["after"] + 200_000 for c in mine):
            wrong.append(f"call of {t['correlation']} is not within {t['before']} .. {t['after']} on the fitted clock: "
                         f"{[(to_mono(clock, c['start_gpu']), to_mono(clock, c['end_gpu'])) for c in mine]}")
    return wrong[:5]


def compare(what, told, found):
    lost, more = told - found, found - told
    return ([f"{what}: {sum(lost.values())} not recorded: {few(lost.items())}"] if lost else []) + \
           ([f"{what}: {sum(more.values())} that never were: {few(more.items())}"] if more else [])


def check_copies(dump, truth):
    told = collections.Counter()
    for t in truth:
        if t["type"] in ("copy", "set", "peer"):
            kind = {"copy": t["kind"], "set": COPY_SET, "peer": COPY_PEER}[t["type"]]
            told[(t["correlation"], kind, t["bytes"], t["context"], t["stream"])] += 1
    found = collections.Counter((r["correlation"], r["kind"], r["size_bytes"], r["context"], r["stream"])
                                for r in dump.of("copy"))
    return compare("copies and sets", told, found)


def check_syncs(dump, truth):
    told = collections.Counter((t["correlation"], t["kind"], t["context"]) for t in truth if t["type"] == "sync")
    found = collections.Counter((r["correlation"], r["kind"], r["context"]) for r in dump.of("sync"))
    return compare("synchronisations", told, found)


def check_memory(dump, truth):
    told, operations = collections.Counter(), {"malloc": 1, "free": 2}
    for t in truth:
        if t["type"] in operations:
            told[(t["correlation"], operations[t["type"]], t["bytes"])] += 1
        elif t["type"] == "pool":
            told[(t["correlation"], 2 + t["kind"] if t["kind"] else 1, t["bytes"] if not t["kind"] else None)] += 1
    found = collections.Counter((r["correlation"], r["operation"], r["size_bytes"] if r["operation"] < 3 else None)
                                for r in dump.of("memory"))
    return compare("memory operations", told, found)


def check_marks(dump, truth):
    what = {1: 3, 2: 1, 4: 2}
    told = collections.Counter((t["id"], what[t["kind"]], t["tid"]) for t in truth if t["type"] == "mark")
    found = collections.Counter((r["id"], r["what"], r["tid"]) for r in dump.of("range"))
    names = {r["name"] for r in dump.of("range") if r["what"] == 1} - {t["name"] for t in truth if t["type"] == "mark"}
    return compare("NVTX marks", told, found) + ([f"marks named {few(names)}"] if names else [])


def check_all(dump, truth=(), nodes=False, share=1.0, since_start=True):
    """Everything that can be said of this dump; share: of the records that must have their call."""
    wrong = check_whole(dump)
    if wrong:
        return wrong
    wrong = check_counts(dump, since_start) + check_times(dump) + check_clock(dump) + check_launches(dump, share) + \
        check_streams(dump)
    if truth:
        wrong += check_kernels(dump, truth, nodes) + check_callers(dump, truth) + check_copies(dump, truth) + \
            check_syncs(dump, truth) + check_memory(dump, truth) + check_marks(dump, truth)
    return wrong


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    dump = Dump(load_lines(sys.argv[1]))
    wrong = check_all(dump, load_lines(sys.argv[2]) if len(sys.argv) == 3 else ())
    for sentence in wrong:
        print(f"FAILED  {sentence}")
    print(f"{len(dump.lines)} records, {len(wrong)} expectations failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
