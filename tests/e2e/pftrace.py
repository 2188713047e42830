#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate report run.db -o x.pftrace`: the trace is read back by a decoder of its own and must hold what the store holds: every
kernel, call, wait, sample and step once, nothing overlapping on one track, names whole. Synthetic stores with planted trouble:
kernels that overlap on one stream, names of 64 KB and of bytes that are no text, rows that are impossible."""
import collections
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import diff_store  # noqa: E402

UPGATE = os.path.join(os.environ.get("UPGATE_BUILD", "build/release"), "upgate")
failures = []


def check(condition, text):
    if not condition:
        failures.append(text)
        print("FAIL", text)


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """Fields of a message: number -> list of values."""
    found, at = collections.defaultdict(list), 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 1:
            value, at = int.from_bytes(data[at:at + 8], "little"), at + 8
        else:
            assert key & 7 == 2, "wire type %d" % (key & 7)
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            assert len(value) == size, "a message ends early"
        found[key >> 3].append(value)
    return found


class Trace:
    def __init__(self, path):
        self.names, self.values, self.tracks, self.kinds = {}, {}, {}, {}
        self.slices = collections.defaultdict(list)  # track -> (begin, end, name, flows)
        self.instants = collections.defaultdict(list)
        begun, first = {}, True
        for packet in fields(open(path, "rb").read())[1]:
            packet = fields(packet)
            assert packet[10] == [1] and packet[13][0] & 1 == first
            first = False
            for interned in map(fields, packet[12]):
                for field, table in ((2, self.names), (29, self.values)):
                    for text in map(fields, interned[field]):
                        table[text[1][0]] = text[2][0].decode("utf-8")
            for track in map(fields, packet[60]):
                uuid = track[1][0]
                assert uuid not in self.tracks and (not track[5] or track[5][0] in self.tracks)
                self.kinds[uuid] = "process" if track[3] else "thread" if track[4] else "track"
                name = track[2][0] if track[2] else fields(track[3][0])[6][0] if track[3] else fields(track[4][0])[5][0]
                self.tracks[uuid] = name.decode("utf-8")
            for event in map(fields, packet[11]):
                kind, uuid, at = event[9][0], event[11][0], packet[8][0]
                assert uuid in self.tracks
                if kind == 1:
                    assert uuid not in begun, "two at once on '%s'" % self.tracks[uuid]
                    begun[uuid] = (at, self.names[event[10][0]], event[47])
                elif kind == 2:
                    begin, name, flows = begun.pop(uuid)
                    assert begin <= at
                    self.slices[uuid].append((begin, at, name, flows))
                else:
                    self.instants[uuid].append((at, self.names[event[10][0]]))
        assert not begun
        for uuid, slices in self.slices.items():
            slices.sort(key=lambda slice: slice[:2])
            for one, other in zip(slices, slices[1:]):
                assert one[1] <= other[0], "overlap on '%s'" % self.tracks[uuid]

    def count(self, wanted):
        return sum(len(slices) for uuid, slices in self.slices.items() if wanted(self.tracks[uuid], self.kinds[uuid]))


def report(db, path, *more):
    return subprocess.run([UPGATE, "report", db, "-o", path, *more], capture_output=True, text=True)


def one(db, sql, *values):
    with sqlite3.connect(db) as connection:
        return connection.execute(sql, values).fetchone()[0]


def counts(db, launch, trace, what):
    recording = one(db, "SELECT id FROM recording WHERE launch_id = ?", launch)
    ops = one(db, "SELECT count(*) FROM gpu_op o JOIN gpu_work w ON w.id = o.work_id JOIN gpu_stream s ON s.id = w.stream_id "
                  "JOIN process p ON p.id = s.process_id WHERE p.recording_id = ? AND o.dur_ns >= 0", recording)
    check(trace.count(lambda name, kind: name.startswith("GPU ")) == ops, "%s: every operation of the GPU once" % what)
    for table, column, wanted in (("gap", "thread_id", lambda name, kind: kind == "thread"),
                                  ("sample", "thread_id", lambda name, kind: name == "samples")):
        rows = one(db, "SELECT count(*) FROM %s g JOIN thread t ON t.id = g.%s JOIN process p ON p.id = t.process_id "
                       "WHERE p.recording_id = ?" % (table, column), recording)
        check(trace.count(wanted) == rows, "%s: every %s once" % (what, table))
    steps = one(db, "SELECT count(*) FROM step WHERE launch_id = ?", launch)
    check(trace.count(lambda name, kind: name.endswith(": steps")) == steps and steps > 0, "%s: every step once" % what)
    phases = one(db, "SELECT count(*) FROM phase_span WHERE launch_id = ?", launch)
    check(trace.count(lambda name, kind: ": phases" in name) == phases and phases > 0, "%s: every phase once" % what)
    return ops


def plain(folder):
    db, path = os.path.join(folder, "plain.db"), os.path.join(folder, "plain.pftrace")
    diff_store.write("kernel_slower", db, seed=3, host=True)
    done = report(db, path)
    check(done.returncode == 0, "writes: " + done.stderr)
    launch = one(db, "SELECT l.id FROM recording r JOIN launch l ON l.id = r.launch_id ORDER BY l.side DESC, l.id LIMIT 1")
    trace = Trace(path)
    ops = counts(db, launch, trace, "plain")
    calls = one(db, "SELECT count(*) FROM (SELECT DISTINCT w.thread_id, o.start_ns - o.call_ns, o.call_dur_ns, w.call_name_id FROM gpu_op o "
                    "JOIN gpu_work w ON w.id = o.work_id JOIN gpu_stream s ON s.id = w.stream_id JOIN process p ON p.id = s.process_id "
                    "JOIN recording r ON r.id = p.recording_id WHERE r.launch_id = ? AND o.call_ns IS NOT NULL AND w.thread_id IS NOT NULL)",
                launch)
    calls += one(db, "SELECT count(*) FROM gpu_call c JOIN process p ON p.id = c.process_id JOIN recording r ON r.id = p.recording_id "
                     "WHERE r.launch_id = ? AND c.thread_id IS NOT NULL", launch)
    check(trace.count(lambda name, kind: name.startswith("CUDA calls")) == calls and calls > 0, "every call once")
    arrows = collections.Counter(flow for slices in trace.slices.values() for slice in slices for flow in slice[3])
    check(len(arrows) > ops / 2 and min(arrows.values()) == 2, "an arrow has two ends")
    other = one(db, "SELECT min(l.id) FROM recording r JOIN launch l ON l.id = r.launch_id WHERE l.side = 0")
    done = report(db, path, "--launch", str(other))
    check(done.returncode == 0, "--launch: " + done.stderr)
    counts(db, other, Trace(path), "--launch")
    done = report(db, path, "--launch", "4711")
    check(done.returncode == 2 and "those that were: " in done.stderr and "%d (" % other in done.stderr, "unknown launch: " + done.stderr)
    again = os.path.join(folder, "again.pftrace")
    report(db, again, "--launch", str(other))
    check(open(again, "rb").read() == open(path, "rb").read(), "the same store gives the same bytes")
    done = report(db, os.path.join(folder, "dry.pftrace"), "--dry-run")
    check(done.returncode == 0 and not os.path.exists(os.path.join(folder, "dry.pftrace")), "--dry-run writes nothing")
    done = report(db, os.path.join(folder, "none", "x.pftrace"))
    check(done.returncode == 4 and "No such file" in done.stderr, "no such folder: " + done.stderr)


def trouble(folder):
    db, path = os.path.join(folder, "trouble.db"), os.path.join(folder, "trouble.pftrace")
    diff_store.write("kernel_slower", db, seed=4, host=True)
    launch = one(db, "SELECT l.id FROM recording r JOIN launch l ON l.id = r.launch_id ORDER BY l.side DESC, l.id LIMIT 1")
    huge = "<script>alert('x')</script>\n\"" + "k" * 65536
    with sqlite3.connect(db) as connection:
        work = connection.execute("SELECT w.id, w.kernel_id FROM gpu_work w JOIN gpu_stream s ON s.id = w.stream_id JOIN process p ON "
                                  "p.id = s.process_id JOIN recording r ON r.id = p.recording_id WHERE r.launch_id = ? AND w.kind = 0",
                                  (launch,)).fetchone()
        at = connection.execute("SELECT max(start_ns) FROM gpu_op").fetchone()[0]
        for start, dur in ((at, 1000), (at + 100, 200), (at + 150, 2000), (at - 5000000, 9000000), (at, 0), (at, 0),
                           (2**61 - 1, 2**61 - 1), (at, -5)):
            connection.execute("INSERT INTO gpu_op VALUES (?, ?, ?, NULL, NULL, 0)", (start, dur, work[0]))
        connection.execute("UPDATE gpu_kernel SET name = ? WHERE id = ?", (huge, work[1]))
        connection.execute("UPDATE thread SET comm = CAST(x'70ff80c3' AS TEXT)")
        connection.execute("UPDATE gap SET in_ns = out_ns - 1 WHERE id = (SELECT min(id) FROM gap)")
    done = report(db, path)
    check(done.returncode == 0, "trouble: " + done.stderr)
    trace = Trace(path)
    names = {slice[2] for slices in trace.slices.values() for slice in slices}
    check(huge in names, "a name of 64 KB is whole")
    check(any("(overlapping" in name for name in trace.tracks.values()), "what overlaps has a track of its own")
    ops = one(db, "SELECT count(*) FROM gpu_op o JOIN gpu_work w ON w.id = o.work_id JOIN gpu_stream s ON s.id = w.stream_id JOIN process p "
                  "ON p.id = s.process_id JOIN recording r ON r.id = p.recording_id WHERE r.launch_id = ? AND o.dur_ns >= 0", launch)
    check(trace.count(lambda name, kind: name.startswith("GPU ")) == ops, "overlaps: none is dropped")
    os.remove(path)
    with sqlite3.connect(db) as connection:
        connection.execute("INSERT INTO gpu_op VALUES (?, 1000, ?, NULL, NULL, 0)", (2**63 - 5, work[0]))
    done = report(db, path)
    check(done.returncode == 4 and "is damaged: the start_ns of a row is out of range" in done.stderr and not os.path.exists(path),
          "a time beyond every clock: " + done.stderr)


def nothing(folder):
    db, path = os.path.join(folder, "none.db"), os.path.join(folder, "none.pftrace")
    diff_store.write("kernel_slower", db, seed=5)
    with sqlite3.connect(db) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("DELETE FROM recording")
    for more in ((), ("--dry-run",)):
        done = report(db, path, *more)
        check(done.returncode == 4 and "holds no trace" in done.stderr and not os.path.exists(path), "no trace: " + done.stderr)
    done = report(__file__, path)
    check(done.returncode in (2, 4) and not os.path.exists(path), "no store: " + done.stderr)


def many(folder):
    """300,000 more kernels: memory must not grow with them as the file does."""
    db, path = os.path.join(folder, "many.db"), os.path.join(folder, "many.pftrace")
    diff_store.write("kernel_slower", db, seed=6)
    with sqlite3.connect(db) as connection:
        work = connection.execute("SELECT w.id FROM gpu_work w JOIN gpu_stream s ON s.id = w.stream_id JOIN process p ON p.id = s.process_id "
                                  "JOIN recording r ON r.id = p.recording_id JOIN launch l ON l.id = r.launch_id WHERE l.side = 1 "
                                  "ORDER BY l.id, w.id LIMIT 1").fetchone()[0]
        at = connection.execute("SELECT max(start_ns) FROM gpu_op").fetchone()[0]
        connection.executemany("INSERT INTO gpu_op VALUES (?, 900, ?, 500, 100, 0)",
                               ((at + 1000 * i, work) for i in range(300000)))
    done = report(db, path)
    check(done.returncode == 0, "many: " + done.stderr)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    size = os.path.getsize(path)
    print("300,000 kernels: %.1f MB file, %.0f MB memory" % (size / 1e6, peak / 1e3))
    check(size > 300000 * 40 and peak < 300000, "memory: %d KB" % peak)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for case in (plain, trouble, nothing, many):
            case(folder)
            print("done", case.__name__)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
