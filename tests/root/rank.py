#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job of two ranks over gloo, each behind `upgate rank`, under torchrun (with an elastic restart), mpirun and srun: the merged shards
name the rank that comes late, on its node, with what it does; of the start before the
restart, in which nobody was late, nobody is named. Shards of two nodes are made of those of
one, whose times are moved to another clock: with clocks that are known the same rank is named, with others nobody. A machine that is
busy with other things makes ranks late as well: each case has three tries. Skipped without root, capture or a PyTorch with gloo; cases
without their launcher say so."""
import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import needs  # noqa: E402
import rank_rig as rig  # noqa: E402

SECONDS, TRIES = 3, 3
WHAT = "computing in prepare_features (rank_job.py)"


def skipped():
    return needs.lacks(symbols=True, gib=2) or (None if os.path.exists(rig.PYTHON) else "no Python environment at envs/candidate")


def wrapped(shards, late, meeting, mode="-", seconds=SECONDS):
    return [rig.UPGATE, "rank", "-o", shards, "--job", "job", "--", rig.PYTHON, rig.JOB, str(late), str(seconds), meeting, mode]


def torchrun(folder, late, *more, mode="-", seconds=SECONDS):
    return rig.run(rig.PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python", *more,
                   *wrapped(folder, late, folder + ".meet", mode, seconds), timeout=240)


def mpirun(folder, late):
    return rig.run("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2", *wrapped(folder, late, folder + ".meet"),
                   timeout=240)


def tries(name, folder, start, holds):
    """The first try whose answer holds. Where it is left: the folder of its shards."""
    for attempt in range(TRIES):
        place = os.path.join(folder, "%s%d" % (name, attempt))
        done = start(place)
        assert done.returncode == 0, (name, done.stderr[-2000:])
        code, document, stderr = rig.merge(place, place + ".db")
        assert code == 0, (code, document, stderr)
        named, stalls = rig.late(place + ".db")
        print("  %s, try %d: %s" % (name, attempt + 1, stalls["answer"]), flush=True)
        for stall in stalls["stalls"]:
            for task in (stall["victim"], stall["culprit"]):
                assert not task or not task["comm"].startswith("upgate"), stall
        assert [(one["rank"], one["node"], one["what"]) for one in document["stragglers"]] == [one[:3] for one in named]
        if holds(place, named):
            return place
    raise AssertionError("%s: not one of %d jobs said so" % (name, TRIES))


def is_rank_1(_, named):
    assert not named or named[0][0] == 1, "the wrong rank is named: %s" % named
    return len(named) == 1 and named[0][2] == WHAT and named[0][1] == os.uname().nodename


def is_late_and_was_not(place, named):
    """In the first start nobody was late, in the second rank 1 is."""
    code, document, _ = rig.merge(place, place + ".first.db", "--restart", "0")
    assert code == 0 and document["restart"] == 0 and document["ranks"] == 2, document
    print("    before the restart: %s" % document["stragglers"])
    return is_rank_1(place, named) and not document["stragglers"] and without_it(place)


def without_it(place):
    """It computes 22 ms of each 37; without that it would be 2 of 17. Of the first start, in which nobody was late, no such thing is said."""
    late, clean = (rig.late(store)[1]["what_if"] for store in (place + ".db", place + ".first.db"))
    print("    what if: %s; of the first start: %s" % (late, clean))
    assert not clean or clean["without_stragglers_ns"] is None, clean
    return bool(late and late["known"]) and 0.35 < late["without_stragglers_ns"] / late["replayed_ns"] < 0.7


def case_torchrun_restarts(folder):
    """Rank 1 dies at the end of the first start: both starts have shards of their own."""
    place = tries("torchrun", folder, lambda place: torchrun(place, 1, "--max-restarts", "1", mode="crash"), is_late_and_was_not)
    names = [os.path.basename(name) for name in rig.shards(place)]
    assert names == ["0-0.db", "0-1.db", "1-0.db", "1-1.db"], names
    status = rig.rows(place + ".first.db", "SELECT exit_code FROM process p, recording r, json_each(r.target, '$.ranks') j WHERE "
                      "p.tgid = j.value ->> 'pid' AND j.value ->> 'rank' = 1 AND p.exit_code = 9 << 8")
    assert status, "how rank 1 ended is not there"


def case_mpirun(folder):
    if not shutil.which("mpirun"):
        print("  left out: no mpirun (package openmpi-bin)")
        return
    two_nodes(folder, tries("mpirun", folder, lambda place: mpirun(place, 1), is_rank_1))


def case_srun(folder):
    why = rig.Slurm.lacks()
    if why:
        print("  left out: " + why)
        return
    os.makedirs(os.path.join(folder, "slurm"))
    slurm = rig.Slurm(os.path.join(folder, "slurm"))
    try:
        srun = ["srun", "-N", "2", "-n", "2"]
        place = tries("srun", folder, lambda place: rig.run(*srun, *wrapped(place, 1, place + ".meet"), env=slurm.env, timeout=240), is_rank_1)
        identity = rig.rows(os.path.join(place, rig.shards(place)[1]), "SELECT json_extract(target, '$.rank.rank'), json_extract(target, "
                            "'$.rank.node'), json_extract(target, '$.rank.launcher') FROM recording")
        assert identity == [(1, 1, "Slurm")], identity
        cancelled(slurm, srun, os.path.join(folder, "cancelled"))
    finally:
        slurm.close()


def cancelled(slurm, srun, place):
    """scancel: the shards are whole, or as they were a second before."""
    job = subprocess.Popen([*srun, rig.UPGATE, "rank", "-o", place, "--job", "c", "--", "sh", "-c", "while :; do sleep 0.1; done"], env=slurm.env,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for number in range(2):
        rig.await_shard(os.path.join(place, "c", "0-%d.db" % number))
    time.sleep(1)
    ids = rig.run("squeue", "-h", "-o", "%i", env=slurm.env).stdout.split()
    assert rig.run("scancel", *ids, env=slurm.env).returncode == 0
    job.wait(timeout=60)
    rig.await_end(place)
    code, document, stderr = rig.merge(place, place + ".db")
    assert code == 0 and not document["missing"], (code, document, stderr)


def two_nodes(folder, place):
    """Rank 1 is late by some 16 ms each time."""
    paths = [os.path.join(place, name) for name in rig.shards(place)]
    store = os.path.join(folder, "nodes.db")
    rig.move(paths[1], 5_000_000_000_000, 50_000, "far")
    rig.errors(paths[0], 50_000)
    code, document, _ = rig.merge(place, store)
    assert code == 0 and document["nodes"] == 2 and 100_000 <= document["clock_residual_ns"] < 200_000, document
    assert [(one["rank"], one["node"], one["what"]) for one in document["stragglers"]] == [(1, "far", WHAT)], document
    assert rig.late(store)[0][0][1] == "far"
    steps = rig.rows(store, "SELECT min(in_ns), max(in_ns) FROM gap")[0]
    assert steps[1] - steps[0] < 60e9, "times of two clocks in one store"
    rig.errors(paths[1], 1_000_000_000) # twice that is more than rank 1 is late, also on a machine that lets it stand still meanwhile
    code, document, _ = rig.merge(place, store)
    assert code == 0 and document["clock_residual_ns"] >= 1_000_000_000 and document["stragglers"] == [], document
    rig.errors(paths[1], None)
    code, document, _ = rig.merge(place, store)
    assert code == 0 and document["clock_residual_ns"] is None and document["stragglers"] == [], document
    missing = rig.late(store)[1]["trust"]["missing"]
    assert any("not synchronised" in sentence for sentence in missing), missing
    rig.change(paths[1], "UPDATE recording SET target = json_set(target, '$.rank.wall_minus_monotonic_ns', json_extract(target, "
               "'$.rank.wall_minus_monotonic_ns') + 3600000000000)")
    code, document, _ = rig.merge(place, store) # an hour off
    assert code == 0 and any(re.search(r"(359|360)\d\.\d s off", note) for note in document["notes"]) and document["stragglers"] == [], document
    window = rig.rows(store, "SELECT end_ns - begin_ns FROM recording")[0][0]
    assert window > SECONDS * 1e9 / 2, window
    table = rig.run(rig.UPGATE, "stalls", store)
    assert table.returncode in (0, 3) and "not synchronised" in table.stdout, table.stdout


signal.signal(signal.SIGTERM, lambda *_: sys.exit(1)) # so that Slurm is ended
sys.exit(rig.main(globals(), skipped()))
