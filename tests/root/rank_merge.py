#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate merge`, `upgate-mpi-reduce` and `upgate query` of shards that are missing, there twice, of several runs and restarts, cut short, of a newer
version, and of parts. Real recordings; skipped where nothing can be recorded."""
import glob
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import needs  # noqa: E402
import rank_rig as rig  # noqa: E402

BASE = {} # shards of jobs of so many ranks, recorded once


def start(folder, ranks, of=3):
    """Ranks of a job, at the same time."""
    started = [rig.rank(folder, "sh", "-c", rig.WORK % 16, env=rig.environment(TORCHELASTIC_RUN_ID="job", TORCHELASTIC_RESTART_COUNT=0, RANK=i,
                                                                        WORLD_SIZE=of, LOCAL_RANK=i, LOCAL_WORLD_SIZE=of)) for i in ranks]
    for one in started:
        _, stderr = one.communicate(timeout=60)
        assert one.returncode == 0 and stderr == "", stderr
    rig.await_end(folder)


def shards_of_a_job(folder, of=3):
    """The directory of its run."""
    if of not in BASE:
        BASE[of] = tempfile.mkdtemp(prefix="upgate-rank-base-", dir=rig.BUILD)
        start(BASE[of], range(of), of)
    return shutil.copytree(os.path.join(BASE[of], "job"), os.path.join(folder, "job"))


def case_merge_refuses(folder):
    """Several runs; a rank that is there twice; jobs of two sizes; no shards; a store that exists."""
    store, run = os.path.join(folder, "run.db"), shards_of_a_job(folder)
    code, document, stderr = rig.merge(folder, store)
    assert code == 0 and document["ranks"] == 3 and not document["missing"] and document["nodes"] == 1, (code, document, stderr)
    assert document["clock_residual_ns"] == 0 and document["stragglers"] == []
    assert rig.run(rig.UPGATE, "merge", folder, "-o", store).returncode == 2, "what was there is replaced"
    second = shutil.copytree(run, os.path.join(folder, "second"))
    code, document, stderr = rig.merge(folder, store)
    assert code == 2 and document is None and "several runs" in stderr and "'job'" in stderr and "--job" in stderr, stderr
    assert not os.path.exists(store)
    assert rig.merge(folder, store, "--job", "job")[0] == 0 and rig.merge(run, store)[0] == 0
    assert rig.merge(folder, store, "--job", "third")[0] == 2 and rig.merge(folder, store, "--job", "job", "--restart", "4")[0] == 2
    rig.change(os.path.join(second, "0-1.db"), "UPDATE recording SET target = json_set(target, '$.rank.run', 'second')")
    code, _, stderr = rig.merge(second, store)
    assert code == 2 and "is of run 'job'" in stderr and "of run 'second'" in stderr, stderr
    rig.change(os.path.join(second, "0-1.db"), "UPDATE recording SET target = json_set(target, '$.rank.run', 'job', '$.rank.ranks', 4)")
    code, _, stderr = rig.merge(second, store)
    assert code == 2 and "of a job of 3 ranks" in stderr and "one of 4" in stderr, stderr
    shutil.rmtree(second)
    start(folder, [0]) # the same job again, into the same directory: nothing is lost, and it is told
    assert rig.shards(run) == ["0-0.2.db", "0-0.db", "0-1.db", "0-2.db"]
    code, document, stderr = rig.merge(folder, store)
    assert code == 2 and [one["rank"] for one in document["duplicates"]] == [0] and "is there twice" in stderr, (document, stderr)
    assert not os.path.exists(store)
    os.unlink(os.path.join(run, "0-0.2.db"))
    os.rename(os.path.join(run, "0-0.db"), os.path.join(run, "0-7.db")) # renumbered by hand
    code, document, _ = rig.merge(folder, store)
    assert code == 0 and any("of rank 0, whatever its name says" in note for note in document["notes"]), document
    os.makedirs(os.path.join(folder, "empty"))
    assert "no shards" in rig.merge(os.path.join(folder, "empty"), store)[2] and rig.merge(os.path.join(folder, "none"), store)[0] == 2


def case_merge_tells(folder):
    """Missing ranks, shards cut short, of a newer version, no shards at all; restarts."""
    store, run = os.path.join(folder, "run.db"), shards_of_a_job(folder)
    path = os.path.join(run, "0-1.db")
    shutil.copy(path, path + ".kept")

    def damaged(make, words):
        shutil.copy(path + ".kept", path)
        make()
        code, document, stderr = rig.merge(folder, store)
        assert code == 3, (code, stderr)
        assert [one["rank"] for one in document["missing"]] == [1] and words in document["missing"][0]["why"], document["missing"]
        missing = rig.late(store)[1]["trust"]["missing"] # stalls tells it, too
        assert any("rank 1" in sentence for sentence in missing), missing

    damaged(lambda: os.unlink(path), "it has no shard")
    damaged(lambda: os.truncate(path, os.path.getsize(path) // 2), "damaged")
    damaged(lambda: os.truncate(path, 0), "empty")
    damaged(lambda: os.truncate(path, 777), path)
    damaged(lambda: rig.change(path, "PRAGMA user_version = 99"), "use a newer upgate")
    damaged(lambda: rig.change(path, "UPDATE recording SET target = '{}'"), "not made by `upgate rank`")
    damaged(lambda: rig.change(path, "UPDATE recording SET target = json_set(target, '$.rank.rank', 12)"), "does not say which rank")
    damaged(lambda: rig.change(path, "DROP TABLE gap", "CREATE VIEW gap AS SELECT 1"), "no table")
    damaged(lambda: rig.change(path, "UPDATE process SET id = 1 << 40 WHERE id = (SELECT max(id) FROM process)"), "damaged")
    damaged(lambda: rig.change(path, "UPDATE recording SET end_ns = begin_ns + 1000"), "for 0.0 s of")
    damaged(lambda: rig.change(path, "UPDATE sample SET at_ns = 9223372036854775807 WHERE rowid = 1"), "out of")
    damaged(lambda: rig.change(path, "UPDATE process SET started_ns = -9223372036854775808"), "out of its range")

    def end_of_file():
        with open(path, "r+b") as file: # a page of a table in the middle
            file.seek(4096 * (os.path.getsize(path) // 4096 // 2))
            file.write(b"\xff" * 4096 * 6)
    shutil.copy(path + ".kept", path)
    end_of_file()
    code, document, _ = rig.merge(folder, store)
    assert code in (0, 3) and [one["rank"] for one in document["missing"]] in ([], [1]), document
    assert rig.rows(store, "PRAGMA integrity_check") == [("ok",)]

    os.replace(path + ".kept", path)
    for number in range(2): # elastic: of the second start the third node is gone
        again = shutil.copy(os.path.join(run, "0-%d.db" % number), os.path.join(run, "1-%d.db" % number))
        rig.change(again, "UPDATE recording SET target = json_set(target, '$.rank.restart', 1, '$.rank.ranks', 2)")
    code, document, _ = rig.merge(folder, store)
    assert code == 0 and document["restart"] == 1 and document["ranks"] == 2, document
    assert any("of other restarts" in note for note in document["notes"]), document
    code, document, _ = rig.merge(folder, store, "--restart", "0")
    assert document["restart"] == 0 and document["ranks"] == 3, document


def rows_of(store):
    """All that stands in it but for who made it when."""
    base = sqlite3.connect(store)
    tables = [name for name, in base.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name <> 'run'")]
    found = {table: sorted(map(repr, base.execute("SELECT * FROM " + table))) for table in tables}
    base.close()
    return found


def check_same(store, other):
    rows, others = rows_of(store), rows_of(other)
    for table, lines in rows.items():
        assert lines == others[table], (table, len(lines), len(others[table]), [pair for pair in zip(lines, others[table]) if pair[0] != pair[1]][:2])
    assert len(rows["gap"]) > 8 and rows["counter"], {table: len(lines) for table, lines in rows.items()}


def two_nodes_of_four(folder):
    """Directories: of the first node's shards, of the second one's, of all."""
    near, far, flat = (os.path.join(folder, name) for name in ("near", "far", "flat"))
    shards_of_a_job(near, of=4)
    os.makedirs(os.path.join(far, "job"))
    for number in range(4):
        path, other = os.path.join(near, "job", "0-%d.db" % number), os.path.join(far, "job", "0-%d.db" % (number + 4))
        rig.change(path, "UPDATE recording SET target = json_set(target, '$.rank.ranks', 8)")
        rig.errors(path, 50_000)
        shutil.copy(path, other)
        rig.change(other, "UPDATE recording SET target = json_set(target, '$.rank.rank', %d)" % (number + 4))
        rig.move(other, 5_000_000_000_000, 50_000, "far")
    shutil.copytree(near, flat)
    shutil.copytree(far, flat, dirs_exist_ok=True)
    return near, far, flat


def case_merge_tells_why(folder):
    """A rank without a shard: what stands in its place."""
    run = shards_of_a_job(folder)
    os.unlink(os.path.join(run, "0-1.db"))
    with open(os.path.join(run, "0-1.why"), "w", encoding="utf-8") as file:
        file.write("the disk \033[31mis full\n")
    code, document, _ = rig.merge(run, os.path.join(folder, "run.db"))
    assert code == 3 and document["missing"] == [{"rank": 1, "why": "the disk ?[31mis full"}], document
    os.truncate(os.path.join(run, "0-1.why"), 0)
    code, document, _ = rig.merge(run, os.path.join(folder, "empty.db"))
    assert code == 3 and [one["rank"] for one in document["missing"]] == [1] and "the disk may have been full" in document["missing"][0]["why"], document


def case_merge_of_parts(folder):
    """Each node merges its own: the store is that of all shards at once."""
    near, far, flat = two_nodes_of_four(folder)
    parts, mixed = os.path.join(folder, "parts"), shutil.copytree(far, os.path.join(folder, "mixed"))
    code, whole, stderr = rig.merge(flat, flat + ".db")
    assert code == 0 and (whole["ranks"], whole["nodes"], whole["missing"]) == (8, 2, []), (code, whole, stderr)
    for place in (far, near):
        code, document, stderr = rig.part(place, parts)
        assert code == 0 and (document["ranks"], document["nodes"], document["missing"]) == (8, 1, []), (code, document, stderr)
    assert rig.shards(parts) == ["job/0-0.part.db", "job/0-4.part.db"], rig.shards(parts)
    code, document, stderr = rig.merge(parts, parts + ".db")
    assert code == 0 and dict(document, bytes=0) == dict(whole, bytes=0), (code, document, whole, stderr)
    check_same(parts + ".db", flat + ".db")
    shutil.copy(os.path.join(parts, "job", "0-0.part.db"), os.path.join(mixed, "job"))
    code, document, stderr = rig.merge(mixed, mixed + ".db")
    assert code == 0 and not document["missing"], (code, document, stderr)
    check_same(mixed + ".db", flat + ".db")

    # Two of one path: one store, whole, and one refusal.
    same = os.path.join(folder, "same.db")
    both = [subprocess.Popen([rig.UPGATE, "merge", flat, "-o", same], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
    codes = sorted(one.wait(120) for one in both)
    assert codes == [0, 2] and not glob.glob(glob.escape(same) + ".*"), (codes, os.listdir(folder))
    check_same(same, flat + ".db")

    code, _, stderr = rig.part(near, parts)
    assert code == 2 and "exists already" in stderr, (code, stderr)
    code, _, stderr = rig.part(flat, os.path.join(folder, "none"))
    assert code == 2 and "shards of 2 nodes" in stderr and not os.path.exists(os.path.join(folder, "none")), (code, stderr)
    done = rig.run(rig.UPGATE, "merge", near, "--part")
    assert done.returncode == 2 and "no directory for the part" in done.stderr, done
    code, _, stderr = rig.query(parts, "--map", "SELECT count(*) AS n FROM gap")
    assert code == 2 and "several ranks in one" in stderr, (code, stderr)


def case_parts_that_are_wrong(folder):
    """Ranks that a node lacks, a part that is missing, there twice, beside a shard of it, cut short, of several nodes."""
    near, far, flat = two_nodes_of_four(folder)
    store, parts = os.path.join(folder, "run.db"), os.path.join(folder, "parts")
    run = os.path.join(parts, "job")
    os.unlink(os.path.join(far, "job", "0-6.db"))
    os.rename(os.path.join(far, "job", "0-5.db"), os.path.join(folder, "kept.db"))
    with open(os.path.join(far, "job", "0-5.why"), "w", encoding="utf-8") as file:
        file.write("the disk is full\n")
    full, none = {"rank": 5, "why": "the disk is full"}, {"rank": 6, "why": "it has no shard"}
    code, document, stderr = rig.part(far, parts)
    assert code == 3 and document["missing"] == [full], (code, document, stderr) # of rank 6 the node knows nothing
    assert rig.part(near, parts)[0] == 0
    code, document, stderr = rig.merge(parts, store)
    assert code == 3 and document["missing"] == [full, none], (code, document, stderr)
    missing = rig.late(store)[1]["trust"]["missing"]
    assert all(any(words in sentence for sentence in missing) for words in ("rank 5: the disk is full", "rank 6: it has no shard")), missing
    shutil.copy(os.path.join(folder, "kept.db"), os.path.join(run, "0-5.db")) # it is found: nothing is said of it any more
    code, document, stderr = rig.merge(parts, store)
    assert code == 3 and document["missing"] == [none], (code, document, stderr)
    assert not [sentence for sentence in rig.late(store)[1]["trust"]["missing"] if "rank 5" in sentence]

    shutil.copy(os.path.join(near, "job", "0-2.db"), run)
    code, document, _ = rig.merge(parts, store)
    assert code == 2 and [one["rank"] for one in document["duplicates"]] == [2], document
    os.unlink(os.path.join(run, "0-2.db"))
    shutil.copy(os.path.join(run, "0-4.part.db"), os.path.join(run, "0-9.part.db"))
    code, document, _ = rig.merge(parts, store)
    assert code == 2 and [one["rank"] for one in document["duplicates"]] == [4, 7], document
    for name in ("0-9.part.db", "0-5.db"):
        os.unlink(os.path.join(run, name))

    path = os.path.join(run, "0-4.part.db")
    shutil.copy(path, os.path.join(folder, "part.db"))
    for make, words in ((lambda: os.truncate(path, os.path.getsize(path) // 2), "damaged"),
                        (lambda: rig.change(path, "UPDATE recording SET target = json_set(target, '$.merged[1]', 99)"), "does not say which ranks"),
                        (lambda: rig.change(path, "UPDATE recording SET target = json_set(target, '$.merged[1].end_ns', 1)"), "does not say which ranks"),
                        (lambda: rig.change(path, "UPDATE recording SET target = json_set(target, '$.merged[1].rank', 4)"), "does not say which ranks"),
                        (lambda: rig.change(path, ("UPDATE recording SET target = json_set(target, '$.missing', json(?))",
                                                   (json.dumps([full] * 9),))), "does not say which ranks"),
                        (lambda: rig.change(path, "UPDATE recording SET target = json_remove(target, '$.nodes')"), "does not say which ranks")):
        shutil.copy(os.path.join(folder, "part.db"), path)
        make()
        code, document, stderr = rig.merge(parts, store)
        why = {one["rank"]: one["why"] for one in document["missing"]}
        assert code == 3 and sorted(why) == [4, 5, 6, 7] and words in why[4], (code, why, stderr)
    assert rig.merge(flat, path)[0] == 0 # a store of two nodes under the name of a part
    code, document, stderr = rig.merge(parts, store)
    assert code == 3 and "of 2 nodes merged already" in document["missing"][0]["why"], (code, document, stderr)
    os.unlink(path)
    code, document, _ = rig.merge(parts, store)
    assert code == 3 and [one["rank"] for one in document["missing"]] == [4, 5, 6, 7], document


def case_parts_of_other_lengths(folder):
    """Ranks of a node that lost their recorders, one that outlived the others, ranks that never recorded at one time: as of all shards at once."""
    half_s = 500_000_000
    killed = ["DELETE FROM %s WHERE %s > (SELECT begin_ns + %d FROM recording)" % (table, column, half_s)
              for table, column in (("gap", "in_ns"), ("sample", "at_ns"), ("counter", "at_ns"))] + ["UPDATE recording SET end_ns = NULL"]
    early = ["UPDATE recording SET end_ns = begin_ns + %d" % half_s]
    late = ["UPDATE recording SET begin_ns = end_ns + 9000000000, end_ns = end_ns + %d" % (9_000_000_000 + half_s)]
    for name, changes, missing in (("killed", {number: killed for number in (1, 2, 3)}, [1, 2, 3]),
                                   ("outlived", {number: early for number in range(1, 8)}, []),
                                   ("apart", {number: early if number % 4 < 2 else late for number in range(8)}, [])):
        near, far, flat = two_nodes_of_four(os.path.join(folder, name))
        store, parts = flat + ".db", os.path.join(folder, name, "parts")
        for number, statements in changes.items():
            for place in (flat, near if number < 4 else far):
                rig.change(os.path.join(place, "job", "0-%d.db" % number), *statements)
        code, whole, stderr = rig.merge(flat, store)
        assert [one["rank"] for one in whole["missing"]] == missing and code == (3 if missing else 0), (name, code, whole, stderr)
        for place, lacks in ((far, []), (near, missing)):
            code, document, stderr = rig.part(place, parts)
            assert [one["rank"] for one in document["missing"]] == lacks, (name, code, document, stderr)
        code, document, stderr = rig.merge(parts, parts + ".db")
        assert [one["rank"] for one in document["missing"]] == missing and code == (3 if missing else 0), (name, code, document, stderr)
        for sql in ("SELECT begin_ns, end_ns FROM recording", "SELECT count(*) FROM gap"):
            assert rig.rows(parts + ".db", sql) == rig.rows(store, sql), (name, rig.rows(parts + ".db", sql), rig.rows(store, sql))
        if not missing:
            check_same(parts + ".db", store)


def case_part_of_a_job_that_runs(folder):
    """It would stay without what is still recorded; all shards at once may be looked at meanwhile."""
    worker = rig.rank(folder, "sh", "-c", rig.WORK % 1200, env=rig.environment(RANK=0, WORLD_SIZE=1))
    rig.await_shard(os.path.join(folder, "RANK", "0-0.db"))
    parts = os.path.join(folder, "parts")
    code, document, stderr = rig.part(folder, parts)
    assert code == 2 and document is None and "rank 0 is still being recorded" in stderr and not os.path.exists(parts), (code, document, stderr)
    code, document, stderr = rig.merge(folder, os.path.join(folder, "run.db"))
    assert code == 0 and any("still being recorded" in note for note in document["notes"]), (code, document, stderr)
    worker.kill()
    worker.communicate()
    rig.await_end(folder)
    code, document, stderr = rig.part(folder, parts)
    assert code == 0 and not document["notes"], (code, document, stderr)


def limited(bytes_max, *words):
    """Files may have so many bytes, which is a disk that is full."""
    return rig.run(sys.executable, "-c", "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2); "
                   "os.execv(sys.argv[2], sys.argv[2:])", str(bytes_max), *words)


REDUCED_STEPS, REDUCED_LATE, REDUCED_LATE_NS, REDUCED_STEP_NS = 30, 6, 4_000_000, 20_000_000


def put_steps(begin_ns, *places):
    """Into each shard there 30 steps, each with a collective, to which one rank comes late. The second node's clock is that of two_nodes_of_four."""
    for path in (os.path.join(place, "job", name) for place in places for name in os.listdir(os.path.join(place, "job"))):
        number = int(os.path.basename(path)[2:-3])
        from_ns, late_ns = begin_ns + (5_000_000_000_000 if number >= 4 else 0), REDUCED_LATE_NS if number == REDUCED_LATE else 0
        process = rig.rows(path, "SELECT id FROM process WHERE kind = 'target' ORDER BY id")[0][0]
        statements = []
        for index in range(REDUCED_STEPS):
            at = from_ns + index * REDUCED_STEP_NS
            came = at + 5_000_000 + 1_000 * ((7 * index + 3 * number) % 11) + late_ns
            statements += [("INSERT INTO recorded_step (recording_id, rank, idx, begin_ns, dur_ns) VALUES (1, ?, ?, ?, ?)",
                            (number, index, at, REDUCED_STEP_NS - 1_000)),
                           ("INSERT INTO nccl_op (process_id, enqueued_ns, kernel_start_ns, kernel_end_ns, communicator, rank, ranks, sequence, function, count, "
                            "bytes, channels, plugin_version) VALUES (?, ?, ?, ?, 77, ?, 8, ?, 'AllReduce', 1, 4, 1, 5)",
                            (process, came - 1_000, came, at + 10_000_000, number, index))]
        rig.change(path, *statements)


def case_reduced(folder):
    """Shards reduced at once, node by node, and added in another order: the same bytes, and who is late in them. Ranks that are missing or there twice,
    files that are none, places that are taken."""
    near, far, flat = two_nodes_of_four(folder)
    whole, parts = os.path.join(folder, "whole.reduced"), os.path.join(folder, "parts")
    code, document, stderr = rig.reduced(flat)
    assert code == 0 and document["why_not"] == "no steps were recorded" and document["windows"] == 0, (code, document, stderr)
    begin_ns = max(rig.rows(os.path.join(near, "job", "0-%d.db" % number), "SELECT min(out_ns) FROM gap")[0][0] for number in range(4))
    put_steps(begin_ns, near, far, flat)
    code, document, stderr = rig.reduced(flat, "-o", whole)
    assert code == 0 and (document["ranks"], document["nodes"], document["missing"]) == (8, 2, []), (code, document, stderr)
    assert document["bytes"] == os.path.getsize(whole) and document["why_not"] is None, document
    assert (document["windows"], document["collectives"], document["unclear"], document["told"]) == (8 * REDUCED_STEPS // 5, REDUCED_STEPS, 0, REDUCED_STEPS)
    assert sorted(row["rank"] for row in document["rows"]) == list(range(8)) and all(row["steps"] == REDUCED_STEPS for row in document["rows"]), document
    assert all(row["ended"] for row in document["rows"]), document
    late = document["rows"][0]
    assert [row["rank"] for row in document["rows"] if row["late"]] == [REDUCED_LATE] and late["node"] == "far" and late["last"] == REDUCED_STEPS, document
    assert abs(late["late_ns"] / REDUCED_STEPS - REDUCED_LATE_NS) < 20_000, late
    for place in (far, near):
        code, document, stderr = rig.reduced(place, "--part", "-o", parts)
        assert code == 0 and (document["ranks"], document["nodes"], document["missing"]) == (8, 1, []), (code, document, stderr)
    assert rig.shards(parts) == ["job/0-0.reduced", "job/0-4.reduced"], rig.shards(parts)
    files = [os.path.join(parts, "job", name) for name in ("0-0.reduced", "0-4.reduced")]
    with open(whole, "rb") as file:
        expected = file.read()
    for number, order in enumerate((files, files[::-1], [near, files[1]], [whole])):
        path = os.path.join(folder, "again%d.reduced" % number)
        code, document, stderr = rig.reduced(*order, "-o", path)
        with open(path, "rb") as file:
            assert code == 0 and not document["missing"] and file.read() == expected, (order, code, document, stderr)
    for words, code in ((files, 0), ((near, far), 0), ((near, files[1]), 0), ((near,), 3), ((files[1],), 3), ((near, near), 2)):
        assert [rig.reduced(*words, *dry)[0] for dry in ((), ("--dry-run",))] == [code, code], (words, rig.reduced(*words, "--dry-run"))
    assert rig.reduced(near, "--part", "-o", parts + ".3", "--dry-run")[0] == 0 and not os.path.exists(parts + ".3")

    # Two of one path: one file, whole, and one refusal.
    same = os.path.join(folder, "same.reduced")
    both = [subprocess.Popen([rig.UPGATE, "merge", "--reduced", flat, "-o", same], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
    codes = sorted(one.wait(120) for one in both)
    with open(same, "rb") as file:
        assert codes == [0, 2] and file.read() == expected and not glob.glob(glob.escape(same) + ".*"), (codes, os.listdir(folder))

    # A disk that is full: no file, and the ranks all the same.
    full = os.path.join(folder, "full.reduced")
    done = limited(len(expected) // 2, rig.UPGATE, "merge", "--reduced", flat, "--format", "json", "-o", full)
    assert done.returncode == 4 and "failed to write" in done.stderr and not glob.glob(glob.escape(full) + "*"), (done, os.listdir(folder))
    assert len(json.loads(done.stdout)["rows"]) == 8 and json.loads(done.stdout)["bytes"] == len(expected), done

    code, document, _ = rig.reduced(files[0])
    assert code == 3 and [one["rank"] for one in document["missing"]] == [4, 5, 6, 7] and not any(row["late"] for row in document["rows"]), document
    done = rig.run(rig.UPGATE, "merge", "--reduced", files[0])
    assert done.returncode == 3 and "late: none of the ranks that are there\n" in done.stdout and "not ended" not in done.stdout, done
    os.unlink(os.path.join(flat, "job", "0-1.db"))
    rig.change(os.path.join(flat, "job", "0-2.db"), "UPDATE recording SET end_ns = NULL")
    code, document, _ = rig.reduced(flat)
    assert code == 3 and document["missing"] == [{"rank": 1, "why": "it has no shard"}] and len(document["rows"]) == 7, document
    assert [row["rank"] for row in document["rows"] if not row["ended"]] == [2], document
    done = rig.run(rig.UPGATE, "merge", "--reduced", flat)
    assert "recorders of 1 rank (\"not ended\")" in done.stdout and done.stdout.count("  not ended\n") == 1, done
    cut = os.path.join(folder, "cut.reduced")
    shutil.copy(whole, cut)
    os.truncate(cut, os.path.getsize(cut) - 9)
    for words, expected_code, text in (((whole, "-o", whole), 2, "exists already"), ((cut, "-o", whole), 2, "exists already"), ((whole, files[0]), 2, "is there twice"),
                                       ((cut,), 4, "damaged or cut off"), ((os.path.join(near, "job", "0-0.db"),), 2, "no file of reduced ranks"),
                                       ((near, files[1], "--window", "7"), 2, "--window"), ((near, "--part"), 2, "no directory for the part"),
                                       ((whole, "--window", "7"), 2, "with windows of 5 steps"), ((whole, "--job", "other"), 2, "is of run 'job'"),
                                       ((whole, "--restart", "3"), 2, "is of restart 0"), ((parts,), 2, "named one by one: upgate merge --reduced %s/job/*.reduced" % parts),
                                       ((near, "--part", "-o", parts), 2, "exists already"), ((near, far, "--part", "-o", parts), 2, "these are 2: leave --part out"),
                                       ((*files, "--part", "-o", parts), 2, "these are 2: leave --part out"),
                                       ((near, "-o", near + "/no/x.reduced"), 4, "no place for '%s/no/x.reduced': No such file" % near)):
        code, document, stderr = rig.reduced(*words)
        assert code == expected_code and document is None and text in stderr, (words, code, document, stderr)
    assert rig.reduced(whole, "--window", "5", "--job", "job", "--restart", "0")[0] == 0
    done = rig.run(rig.UPGATE, "merge", near, far)
    assert done.returncode == 2 and "unexpected argument" in done.stderr, done
    done = rig.run(rig.UPGATE, "merge", near, "--window", "7")
    assert done.returncode == 2 and "--window is of --reduced" in done.stderr, done


SEVERAL = "for r in %d %d; do RANK=$r WORLD_SIZE=4 sh -c '%s' & done; wait"


def case_several_ranks(folder):
    """One recorder around what starts the ranks of a node: a merge, a part, reduced ranks, SQL and MPI know each of them."""
    run, store, whole, again = (os.path.join(folder, name) for name in ("job", "run.db", "whole.reduced", "again.reduced"))
    started = [rig.rank(folder, "sh", "-c", SEVERAL % (2 * node, 2 * node + 1, rig.WORK % 16), options=("--job", "job"), env=rig.environment(
        SLURM_PROCID=node, SLURM_NTASKS=2, SLURM_JOB_ID=7, SLURM_STEP_ID=0, SLURM_NODEID=node)) for node in range(2)]
    for one in started:
        _, stderr = one.communicate(timeout=60)
        assert one.returncode == 0 and stderr == "", stderr
    rig.await_end(folder)
    paths = [os.path.join(run, "0-%d.db" % node) for node in range(2)]
    for node, path in enumerate(paths):
        begin_ns = rig.rows(path, "SELECT begin_ns FROM recording")[0][0]
        rig.change(path, *(("INSERT INTO recorded_step (recording_id, rank, idx, begin_ns, dur_ns) VALUES (1, ?, ?, ?, 40000000)",
                            (2 * node + rank, index, begin_ns + 100_000_000 * index)) for rank in range(2) for index in range(10)))
    code, document, stderr = rig.merge(folder, store)
    assert code == 0 and (document["ranks"], document["nodes"], document["missing"], document["notes"]) == (4, 1, [], []), (code, document, stderr)
    assert rig.rows(store, "SELECT rank, count(*) FROM recorded_step GROUP BY rank") == [(rank, 10) for rank in range(4)]
    parts = os.path.join(folder, "parts")
    code, document, stderr = rig.part(run, parts)
    assert code == 0 and rig.shards(parts) == ["job/0-0.part.db"] and not document["missing"], (code, document, stderr)
    code, document, stderr = rig.merge(parts, store)
    assert code == 0 and (document["ranks"], document["missing"]) == (4, []), (code, document, stderr)
    code, document, stderr = rig.reduced(run, "-o", whole)
    assert code == 0 and (document["ranks"], document["missing"], document["windows"]) == (4, [], 8), (code, document, stderr)
    assert sorted((row["rank"], row["steps"]) for row in document["rows"]) == [(rank, 10) for rank in range(4)], document
    assert rig.reduced(run, "--dry-run")[0] == 0 and rig.reduced(run, "--part", "-o", parts)[0] == 0
    with open(whole, "rb") as one, open(os.path.join(parts, "job", "0-0.reduced"), "rb") as two:
        expected = one.read()
        assert expected == two.read()
    if rig.mpi_lacks() is None:
        code, stdout, stderr = rig.mpi_reduce((2, run, "-o", again))
        with open(again, "rb") as file:
            assert code == 0 and file.read() == expected, (code, stdout, stderr)
    code, document, _ = rig.query(run, "--map", "SELECT count(*) AS n FROM recorded_step")
    assert code == 0 and [(row["rank"], row["n"]) for row in document["rows"]] == [(None, 20)] * 2, document
    code, document, _ = rig.query(run, "--map", "SELECT rank, count(*) AS n FROM recorded_step GROUP BY rank")
    assert code == 0 and [(row["rank"], row["n"]) for row in document["rows"]] == [(rank, 10) for rank in range(4)], document

    # There twice, in a shard of its own; a recorder that saw none of its ranks; none at all.
    twice = os.path.join(run, "0-1.2.db")
    shutil.copy(os.path.join(shards_of_a_job(os.path.join(folder, "single"), of=4), "0-1.db"), twice)
    for code, _, stderr in (rig.merge(run, store), rig.reduced(run)):
        assert code == 2 and "rank 1 of run 'job' is there twice" in stderr, (code, stderr)
    os.unlink(twice)
    rig.change(paths[1], "UPDATE recording SET target = json_remove(target, '$.ranks')")
    code, document, _ = rig.merge(run, store)
    assert code == 3 and [one["rank"] for one in document["missing"]] == [2, 3], document
    assert any("has none of the ranks that its launcher started" in note for note in document["notes"]), document
    os.unlink(paths[1])
    code, document, _ = rig.merge(run, store)
    assert code == 3 and document["missing"] == [{"rank": rank, "why": "it has no shard"} for rank in (2, 3)] and document["notes"] == [], document


def case_mpi_reduce(folder):
    """Reduced where they lie and added with MPI: the bytes, the words and the exit code are those of a merge of all shards in one directory, however
    many processes there are and whatever each of them sees."""
    why = rig.mpi_lacks()
    if why:
        print("  left out: " + why)
        return
    near, far, flat = two_nodes_of_four(folder)
    begin_ns = max(rig.rows(os.path.join(near, "job", "0-%d.db" % number), "SELECT min(out_ns) FROM gap")[0][0] for number in range(4))
    put_steps(begin_ns, near, far, flat)
    whole, again, none = (os.path.join(folder, name) for name in ("whole.reduced", "again.reduced", "none.reduced"))
    merged = rig.run(rig.UPGATE, "merge", "--reduced", flat, "-o", whole)
    assert merged.returncode == 0, merged
    with open(whole, "rb") as file:
        expected = file.read()

    def check_whole(*programs):
        code, stdout, stderr = rig.mpi_reduce(*programs)
        assert code == 0 and stdout.splitlines() == merged.stdout.splitlines(), (programs, code, stdout, stderr)
        with open(again, "rb") as file:
            assert file.read() == expected, programs
        assert not glob.glob(glob.escape(again) + ".*"), os.listdir(folder)
        os.unlink(again)

    # One directory that all see; each node's disk by two processes, with one that sees both nodes' and one that sees nothing.
    for count in (1, 3):
        check_whole((count, flat, "-o", again))
    check_whole((1, folder + "/nowhere", "-o", again), (2, far), (2, near), (1, flat))

    # The same reasons as of one directory: a rank without a shard, a shard that is damaged.
    worse, other = shutil.copytree(far, os.path.join(folder, "worse")), os.path.join(folder, "other")
    with open(os.path.join(worse, "job", "0-5.db"), "r+b") as file:
        file.truncate(100)
    os.unlink(os.path.join(worse, "job", "0-7.db"))
    shutil.copytree(near, other)
    shutil.copytree(worse, other, dirs_exist_ok=True)
    code, document, _ = rig.reduced(other, "-o", none)
    got, stdout, stderr = rig.mpi_reduce((1, near, "--format", "json", "-o", again), (1, worse))
    assert code == got == 3 and stdout, (code, got, stdout, stderr)
    found = json.loads(stdout)
    assert [one["rank"] for one in found["missing"]] == [one["rank"] for one in document["missing"]] == [5, 7], (found["missing"], document["missing"])
    assert "0-5.db'" in found["missing"][0]["why"] and found["missing"][1]["why"] == "it has no shard", found["missing"]
    assert dict(found, missing=0) == dict(document, missing=0), (found, document)
    with open(none, "rb") as one, open(again, "rb") as two:
        assert one.read() == two.read()
    os.unlink(none)

    # Refused by all, with one message: a rank that two starts recorded, a place that is taken; what only one process cannot do is told of it.
    twice = shutil.copytree(near, os.path.join(folder, "twice"))
    rig.change(os.path.join(twice, "job", "0-2.db"), "UPDATE recording SET target = json_set(target, '$.rank.pid', 7)")
    long = os.path.join(folder, "x" * 300)
    for programs, wanted, text in ((((1, near, "-o", none), (1, twice)), 2, "rank 2 of run 'job' is there twice"),
                                   (((1, flat, "-o", whole),), 2, "exists already"), (((1, folder + "/nowhere", "-o", none),), 2, "No such file or directory"),
                                   (((1, near, "-o", none), (1, long)), 4, "process 1 of 2, on '%s': failed to read directory" % os.uname().nodename),
                                   (((2, near, "--windw", "5"),), 2, "did you mean '--window'? try `upgate-mpi-reduce --help`")):
        code, stdout, stderr = rig.mpi_reduce(*programs)
        assert (code, stdout) == (wanted, "") and text in stderr and stderr.count("upgate: error: ") == 1, (programs, code, stdout, stderr)
        assert not os.path.exists(none), programs
    code, stdout, stderr = rig.mpi_reduce((2, flat, "--dry-run", "-o", none))
    assert (code, stdout) == (0, "") and "would reduce 8 shards" in stderr and not os.path.exists(none), (code, stdout, stderr)
    code, stdout, stderr = rig.mpi_reduce((1, "--help"))
    assert code == 0 and "  upgate-mpi-reduce DIR" in stdout, (code, stdout, stderr)
    assert rig.run(rig.MPI_REDUCE, "--version").stdout == rig.run(rig.UPGATE, "--version").stdout
    done = rig.run(rig.MPI_REDUCE, near, env=rig.environment(SLURM_PROCID=1, SLURM_NTASKS=4)) # each alone: MPI knows nothing of the others
    assert done.returncode == 2 and "Slurm started 4 processes, and this MPI knows of one" in done.stderr and "mpirun -n 1" in done.stderr, done


def case_full_disk_of_the_merge(folder):
    shards_of_a_job(folder)
    bytes_max = os.path.getsize(os.path.join(folder, "job", "0-0.db"))
    done = limited(bytes_max, rig.UPGATE, "merge", folder, "-o", os.path.join(folder, "run.db"))
    assert done.returncode == 4 and "the disk is full" in done.stderr, done
    assert not [name for name in os.listdir(folder) if name.startswith("run.db")], os.listdir(folder)


def case_node_is_stored_once(folder):
    """Each recorder saw the other rank, too: one row a process, and it is a target."""
    store = os.path.join(folder, "run.db")
    shards_of_a_job(folder)
    assert rig.merge(folder, store)[0] == 0
    twice = rig.rows(store, "SELECT tgid, count(*) FROM process WHERE start_ns > 0 GROUP BY tgid, start_ns / 20000000 HAVING count(*) > 1")
    assert twice == [], twice
    base = sqlite3.connect(store)
    pids = base.execute("SELECT json_extract(target, '$.pids[0]'), json_extract(target, '$.pids[1]') FROM recording").fetchone()
    kinds = base.execute("SELECT kind FROM process WHERE tgid IN (?, ?)", pids).fetchall()
    assert kinds == [("target",), ("target",)], kinds
    assert base.execute("PRAGMA foreign_key_check").fetchall() == []
    for table in ("gap", "sample"): # nothing is lost
        sum_of = sum(rig.rows(os.path.join(folder, "job", "0-%d.db" % rank), "SELECT count(*) FROM " + table)[0][0] for rank in range(3))
        assert base.execute("SELECT count(*) FROM " + table).fetchone()[0] == sum_of
    base.close()


def most_memory(*words):
    """Of upgate, in MB."""
    done = subprocess.Popen([rig.UPGATE, *words], stdout=subprocess.DEVNULL, env=rig.environment())
    _, status, usage = os.wait4(done.pid, 0)
    done.returncode = os.waitstatus_to_exitcode(status)
    assert done.returncode == 0, words
    return usage.ru_maxrss / 1000


def case_query(folder):
    """The same answer as SQLite gives shard by shard; of a rank that is missing or damaged nothing; the shards stay as they are."""
    run = shards_of_a_job(folder)
    paths = [os.path.join(run, "0-%d.db" % rank) for rank in range(3)]
    before = [open(path, "rb").read() for path in paths]
    gaps = [rig.rows(path, "SELECT in_ns - out_ns FROM gap") for path in paths]
    code, document, stderr = rig.query(folder, "--map", "SELECT in_ns - out_ns AS ns FROM gap")
    host = os.uname().nodename
    assert code == 0 and stderr == "" and document["columns"] == ["rank", "node", "ns"], (code, document, stderr)
    assert document["rows"] == [{"rank": rank, "node": host, "ns": ns} for rank in range(3) for ns, in gaps[rank]]
    reduce = ["--reduce", "SELECT count(*) AS n, sum(ns) AS sum, avg(ns) AS mean FROM map WHERE rank > 0"]
    wanted = [ns for rank in (1, 2) for ns, in gaps[rank]]
    answers = [rig.query(folder, "--map", "SELECT in_ns - out_ns AS ns FROM gap", *reduce)[1]["rows"] for _ in range(3)]
    assert answers == [[{"n": len(wanted), "sum": sum(wanted), "mean": sum(wanted) / len(wanted)}]] * 3, answers
    many = "WITH RECURSIVE many (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM many WHERE i < 9999) SELECT i, i % 7 AS rank, 'x' || i AS t FROM many"
    code, document, _ = rig.query(folder, "--map", many, "--reduce", "SELECT count(*) AS n, sum(i) AS i, count(DISTINCT t) AS t, max(rank) AS r FROM map")
    assert (code, document["rows"]) == (0, [{"n": 30000, "i": 3 * 49995000, "t": 10000, "r": 6}]), document
    table = rig.run(rig.UPGATE, "query", folder, "--map", "SELECT NULL AS none, 1.5 AS half, x'00ff' AS bytes, 'a\x1b[31m\tb' AS text")
    assert table.stdout.splitlines()[1].split() == ["0", host, "-", "1.5", "(2", "bytes)", "a", "b"], table.stdout
    code, document, _ = rig.query(folder, "--map", "SELECT CAST(x'6100ff62' AS TEXT) AS text LIMIT 1")
    assert (code, document["rows"][0]["text"]) == (0, "a??b"), document
    kept = os.path.join(folder, "kept.txt")
    with open(kept, "w", encoding="utf-8") as file:
        file.write("of before")
    fails = "SELECT CASE WHEN ns = (SELECT max(ns) FROM map) THEN abs(-9223372036854775807 - 1) ELSE ns END AS ns FROM map"
    done = rig.run(rig.UPGATE, "query", folder, "--map", "SELECT in_ns - out_ns AS ns FROM gap", "--reduce", fails, "-o", kept, "--format", "json")
    assert done.returncode == 2 and "integer overflow" in done.stderr and open(kept, encoding="utf-8").read() == "of before", done
    done = rig.run(rig.UPGATE, "query", folder, "--map", "SELECT 1 AS a", "-o", kept)
    assert done.returncode == 0 and done.stdout == "" and open(kept, encoding="utf-8").read().split()[:3] == ["rank", "node", "a"], done
    assert sorted(os.listdir(folder)) == ["job", "kept.txt"], os.listdir(folder)
    done = rig.run(rig.UPGATE, "query", folder, "--map", "SELECT 1 AS a", "-o", os.path.join(folder, "none", "there"))
    assert done.returncode == 4 and done.stderr.startswith("upgate: error: failed to write "), done
    os.unlink(kept)
    for names in (("rowid",), ("oid", "RowID")): # SQLite's own name of what rows are in order by
        code, document, _ = rig.query(folder, "--map", "SELECT " + ", ".join("7 AS " + name for name in names))
        assert (code, document["rows"]) == (0, [{"rank": rank, "node": host, **dict.fromkeys(names, 7)} for rank in range(3)]), document
    blobs = "WITH RECURSIVE many (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM many WHERE i < 400) SELECT randomblob(500000) AS b FROM many"
    most = most_memory("query", folder, "--map", blobs, "--reduce", "SELECT count(*) AS n FROM map")
    assert most < 190, most
    many = "WITH RECURSIVE many (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM many WHERE i < 100000) SELECT i FROM many"
    most = most_memory("query", folder, "--map", many) # a table has to know the widths of all rows
    assert most < 100, most
    for words, sentence in ((["--map", "DELETE FROM gap"], "--map is no SELECT"), (["--map", "ATTACH 'x.db' AS x"], "--map is no SELECT"),
                            (["--map", "SELECT 1; DELETE FROM gap"], "several statements"), (["--map", "SELECT nowhere FROM gap"], "no such column: nowhere"),
                            (["--map", "SELECT 1 AS rowid, 2 AS oid, 3 AS _rowid_"], "give one of them another name"),
                            (["--map", "SELECT abs(-9223372036854775808) AS a"], "no shard of run 'job' can be read: --map fails on '"),
                            (["--map", "SELECT " + ", ".join("1 AS a%d" % i for i in range(2000))], "error: --map: too many columns on map"),
                            (["--map", "SELECT 1 AS a, 2 AS A"], "two columns 'A'"), (["--map", "-- nothing"], "--map is empty"),
                            (["--map", "SELECT 1 AS a", "--reduce", "SELECT b FROM map"], "--reduce: no such column: b"),
                            (["--map", "SELECT 1 AS a", "--reduce", "DROP TABLE map"], "--reduce is no SELECT"), ([], "--map wants a SELECT"),
                            (["--map", "SELECT 1 AS a", "-o", paths[2]], "is one of the shards"),
                            (["--map", "SELECT 1 AS a", "--job", "other"], "no run 'other'")):
        code, document, stderr = rig.query(folder, *words)
        assert (code, document) == (2, None) and sentence in stderr and stderr.count("\n") == 1, (words, code, document, stderr)
    done = rig.run(rig.UPGATE, "query", folder, "--format", "json", "--map", "SELECT 1 AS a", "--reduce",
                   "SELECT CASE rank WHEN 2 THEN abs(-9223372036854775808) END AS a FROM map")
    assert done.returncode == 2 and "integer overflow" in done.stderr and "]\n}" not in done.stdout, done # no document that seems whole
    small = os.path.join(folder, "small")
    os.mkdir(small)
    for sort, sentence in ((" ORDER BY 1", "SQLITE_TMPDIR names another directory"), ("", "failed to put the rows of the shards together")):
        done = rig.run("unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=1m none '%s' && SQLITE_TMPDIR='%s' exec \"$@\"" % (small, small), "sh",
                       rig.UPGATE, "query", run, "--map", blobs + sort)
        assert (done.returncode, done.stdout) == (4, "") and sentence in done.stderr and "full" in done.stderr, (done.returncode, done.stderr)
    os.rmdir(small)
    code, document, _ = rig.query(folder, "--map", b"SELECT 1 AS 'a\xff'")
    assert (code, document["columns"][2:], document["rows"][0]["a\ufffd"]) == (0, ["a\ufffd"], 1), document
    assert [open(path, "rb").read() for path in paths] == before and sorted(os.listdir(run)) == ["0-0.db", "0-1.db", "0-2.db"]

    with open("/proc/self/stat", encoding="utf-8") as file: # as if its recorder still wrote: it does not wait for ever
        start_ticks = file.read().rpartition(")")[2].split()[19]
    rig.change(paths[1], "UPDATE run SET writer_pid = %d, writer_start = %s" % (os.getpid(), start_ticks))
    never = "WITH RECURSIVE many (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM many, run WHERE writer_pid IS NOT NULL) SELECT count(*) AS n FROM many"
    code, document, stderr = rig.query(folder, "--map", never)
    assert code == 3 and [row["rank"] for row in document["rows"]] == [0, 2] and "recorder would not wait longer" in stderr, (code, document, stderr)

    rig.change(paths[0], "CREATE VIEW mine AS SELECT 1 AS a")
    assert rig.query(folder, "--map", "SELECT * FROM mine")[0] == 2
    for path in paths[1:]:
        rig.change(path, "CREATE VIEW mine AS SELECT 1 AS a")
    code, document, stderr = rig.query(folder, "--map", "SELECT a FROM mine")
    assert code == 0 and [row["a"] for row in document["rows"]] == [1, 1, 1], (code, document, stderr)
    rig.change(paths[0], "DROP TABLE launch_rank") # the others are not asked less for that, nor is the SQL wrong
    rig.change(paths[1], "ALTER TABLE launch_rank ADD COLUMN more INTEGER")
    code, document, stderr = rig.query(folder, "--map", "SELECT count(*) AS n FROM (SELECT * FROM launch_rank)")
    assert code == 3 and [row["rank"] for row in document["rows"]] == [1, 2] and "no such table: launch_rank" in stderr, (code, document, stderr)
    code, document, stderr = rig.query(folder, "--map", "SELECT * FROM launch_rank")
    assert code == 3 and [one["rank"] for one in document["missing"]] == [0, 1] and "not as upgate makes it" in stderr, (code, document, stderr)

    os.unlink(paths[1])
    code, document, stderr = rig.query(folder, "--map", "SELECT count(*) AS n FROM gap")
    assert code == 3 and [row["rank"] for row in document["rows"]] == [0, 2] and "rank 1 is missing: it has no shard" in stderr, (code, document, stderr)
    with open(paths[1], "wb") as file: # its first pages are whole: rows come, and then an error
        file.write(before[1])
    rig.change(paths[1], "INSERT INTO gap (thread_id, out_ns, in_ns, state, flags) WITH RECURSIVE many (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM many "
               "WHERE i < 60000) SELECT (SELECT max(id) FROM thread), i, i + 1, 1, 0 FROM many")
    with open(paths[1], "r+b") as file:
        file.seek(-4096 * 40, os.SEEK_END)
        file.write(b"\xff" * 4096 * 40)
    code, document, stderr = rig.query(folder, "--map", "SELECT in_ns - out_ns AS ns FROM gap", "--reduce", "SELECT rank, count(*) AS n FROM map GROUP BY 1")
    assert code == 3 and [row["rank"] for row in document["rows"]] == [0, 2], (code, document, stderr)
    assert document["missing"][0]["rank"] == 1 and "failed to read '%s'" % paths[1] in document["missing"][0]["why"], document["missing"]


try:
    status = rig.main(globals(), needs.lacks())
finally:
    for base in BASE.values():
        shutil.rmtree(base, ignore_errors=True)
sys.exit(status)
