#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate node`: nodes that are processes of this machine, each with one rank of a job whose ranks wait for each other in each step
(node_job.c). Four nodes give the verdict of one; a node that comes late, that is missing, that has another plan; a rank that
dies, that hangs, a candidate that always ends; a node that is killed, and node 0. Every end is awaited with a limit: none hangs."""
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

BUILD = os.environ["UPGATE_BUILD"]
UPGATE, JOB = os.path.join(BUILD, "upgate"), os.path.join(BUILD, "tests", "root", "node_job")
APART = "SELECT detail FROM ledger WHERE producer = 'nodes' AND kind = 'sides that are not the same on all nodes' AND breach = 1"
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "OMPI_", "PMI_", "PMIX_", "SLURM_", "TORCHELASTIC_", "MASTER_", "PET_")
QUIET = "slow_steps: {observe: true}, warm_up_time: {observe: true}, mean_step_time: {observe: true}"


def plan(folder, name="plan", slow_pct=0, calibrate="require", margin="5%", steps=120, parity="off", **schedule):
    path = os.path.join(folder, name + ".yaml")
    words = {"looks": "[7]", "block_steps": 8, "handover": "10s", "traced_launches": 0, "timeout": "20s", **schedule}
    with open(path, "w", encoding="utf-8") as file:
        file.write('baseline: {name: old, env: {STEP_US: "2000", FAULT: none}}\n'
                   'candidate: {name: new, env: {STEP_US: "%d", FAULT: "%s.fault"}}\nworkloads:\n'
                   '  - {name: job, steps: %d, steps_from: calls, command: [sh, -c, \'exec %s {steps} $STEP_US {node_rank} {nodes} {port} $FAULT\']}\n'
                   'schedule: {%s}\ngate: {metrics: {step_time: {margin: %s}, %s}, calibrate: %s, parity: {rule: %s}}\n'
                   % (2000 + 20 * slow_pct, path, steps, JOB, ", ".join("%s: %s" % pair for pair in words.items()), margin, QUIET, calibrate, parity))
    return path


def environment(folder, **more):
    own = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    return dict(own, XDG_STATE_HOME=os.path.join(folder, "state"), **{name: str(value) for name, value in more.items()})


def node(folder, yaml, k, count, *options):
    return subprocess.Popen([UPGATE, "node", yaml, "-o", os.path.join(folder, "ab"), "--job", "job", "--format", "json", *options],
                            env=environment(folder, RANK=k, WORLD_SIZE=count, MASTER_ADDR="127.0.0.1"), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def ends(nodes, limit_s):
    """Exit codes and stderr of all, in time."""
    deadline, codes, said = time.monotonic() + limit_s, [], []
    try:
        for one in nodes:
            out, err = one.communicate(timeout=max(0.1, deadline - time.monotonic()))
            codes.append(one.returncode)
            said.append((out, err))
    finally:
        for one in nodes:
            if one.poll() is None:
                one.kill()
                one.communicate()
    return codes, said


def run(folder, yaml, count, limit_s=120, *options):
    codes, said = ends([node(folder, yaml, k, count, *options) for k in range(count)], limit_s)
    assert len(set(codes)) == 1, "nodes do not agree: %s\n%s" % (codes, [err for _, err in said])
    assert all(not out for out, _ in said[1:]), said
    return codes[0], json.loads(said[0][0]) if said[0][0] else None, said


def rows(folder, sql, store="run.db"):
    with sqlite3.connect("file:%s?mode=ro" % os.path.join(folder, "ab", "job", store), uri=True) as base:
        return base.execute(sql).fetchall()


def cell(document, metric="step_time"):
    return [one for one in document["cells"] if one["metric"] == metric][0]


def check_ratio(found, least, most):
    """It may lie between these: on a busy machine, on which steps take several times as long, the interval is as wide as it has to be."""
    lower, upper = found["ci_lower"], found["ci_upper"] # None: there is no end
    assert (lower is None or lower < most) and (upper is None or upper > least), found


def gone(folder):
    """Nothing of it runs any more, and nothing is left in memory."""
    for _ in range(300):
        left = subprocess.run(["pgrep", "-f", folder], stdout=subprocess.PIPE, text=True).stdout.split()
        if not left:
            return
        time.sleep(0.1)
    raise AssertionError("processes are left: %s" % left)


def alone(folder, yaml):
    done = subprocess.run([UPGATE, "ab", yaml, "-o", os.path.join(folder, "one.db"), "--format", "json"], env=environment(folder),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    return done.returncode, json.loads(done.stdout)


def case_same(folder):
    """Four nodes, the same on both sides: no fail; what is stored of it. Without a control, which takes CPU time, no pass."""
    code, document, _ = run(folder, plan(folder), 4)
    main = "phase = 'main' AND p.state = 'valid'"
    assert code == 3 and cell(document)["verdict"] != "fail", document
    check_ratio(cell(document), 0.8, 1.25)
    assert rows(folder, "SELECT count(*) FROM pair p WHERE " + main) == [(7,)]
    joined = "FROM launch l JOIN pair p ON p.id = l.pair_id WHERE " + main
    assert rows(folder, "SELECT DISTINCT l.ranks, l.steps " + joined) == [(4, 120)]
    ranks = "SELECT DISTINCT (SELECT group_concat(rank) FROM (SELECT DISTINCT rank FROM step WHERE launch_id = l.id ORDER BY rank)) "
    assert rows(folder, ranks + joined) == [("0,1,2,3",)]
    # Couples of 1 step and of 8: of each the first one is not counted, but for that of the launch.
    borders = [0] + list(range(2, 9))
    first = [step for step, in rows(folder, "SELECT idx FROM step WHERE rank = 3 AND launch_id = 1 AND idx < 9 ORDER BY idx")]
    assert first == borders, first
    blocks = rows(folder, "SELECT DISTINCT first_step, steps FROM block WHERE couple < 3 ORDER BY 1")
    assert blocks == [(0, 1), (2, 7), (10, 7)], blocks
    # The slower node's block: none is shorter than that of any node.
    shorter = 0
    with sqlite3.connect(os.path.join(folder, "ab", "job", "run.db")) as base:
        for k in (1, 2, 3):
            base.execute("ATTACH ? AS peer", (os.path.join(folder, "ab", "job", "node-%d.db" % k),))
            shorter += base.execute("SELECT count(*) FROM block b JOIN peer.block q USING (pair_id, couple, side) "
                                    "WHERE b.active_ns < q.active_ns").fetchone()[0]
            assert base.execute("SELECT count(*) FROM peer.block").fetchone()[0] >= 7 * 2 * 8
            base.commit()
            base.execute("DETACH peer")
    assert shorter == 0
    assert rows(folder, APART) == [], rows(folder, APART)
    # Nobody was frozen.
    assert rows(folder, "SELECT sum(json_extract(covariates, '$.overlap_ns')) FROM launch") == [(0,)]
    assert os.stat(os.path.join(folder, "ab", "job", "node-3.db")).st_mode & 0o777 == 0o600
    done = subprocess.run([UPGATE, "gate", os.path.join(folder, "ab", "job", "run.db"), "--format", "json"], stdout=subprocess.PIPE,
                          env=environment(folder), text=True)
    assert done.returncode == code and cell(json.loads(done.stdout))["ratio"] == cell(document)["ratio"], done.stdout
    part = subprocess.run([UPGATE, "gate", os.path.join(folder, "ab", "job", "node-1.db")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=environment(folder), text=True)
    assert part.returncode == 3 and "ranks of one node" in part.stdout, (part.returncode, part.stdout)
    more = subprocess.run([UPGATE, "ab", "--resume", os.path.join(folder, "ab", "job", "run.db")], stderr=subprocess.PIPE,
                          env=environment(folder), text=True)
    assert more.returncode == 2 and "on 4 nodes" in more.stderr and "another --job" in more.stderr and "upgate gate" in more.stderr, more.stderr
    again, said = ends([node(folder, plan(folder), 0, 4, "--wait", "1s")], 60)
    assert again == [2] and "started before" in said[0][1], (again, said)


def case_slow(folder):
    """40 % slower: four nodes say what one says. 10 %, on a machine that has nothing else to do: ci/bench/nodes.py. Three tries: where the
    CPUs are taken away for as long as a step, nobody can say anything."""
    for attempt in range(3):
        place = os.path.join(folder, "try%d" % attempt)
        os.mkdir(place)
        yaml = plan(place, slow_pct=40)
        code, document, _ = run(place, yaml, 4)
        one_code, one = alone(place, yaml)
        assert {code, one_code} <= {1, 3}, (code, one_code)
        if code == one_code == 1:
            break
    for said in (document, one):
        assert cell(said)["verdict"] == "fail", cell(said)
        check_ratio(cell(said), 1.2, 1.6)


def faulty(folder, fault, count=2, **more):
    yaml = plan(folder, **more)
    with open(yaml + ".fault", "w", encoding="utf-8") as file:
        file.write(fault)
    return run(folder, yaml, count)


def case_rank_dies(folder):
    """Killed once: that pair is void, with the node in words, and the others stand."""
    code, document, said = faulty(folder, "1 40 die", parity="fp64-anchored")
    voids = rows(folder, "SELECT reason FROM pair WHERE state = 'void'")
    assert len(voids) == 1 and "node 1 of 2: side " in voids[0][0] and "signal 9" in voids[0][0], voids
    assert rows(folder, "SELECT count(*) FROM pair WHERE state = 'valid' AND interleave = 'steps'") == [(7,)]
    assert code != 1 and cell(document)["verdict"] != "fail" and "signal 9" in said[0][1], (code, document)
    assert document["parity"] and all(one["verdict"] == "pass" for one in document["parity"]), document["parity"]


def case_rank_hangs(folder):
    begun = time.monotonic()
    code, _, _ = faulty(folder, "1 40 hang", handover="4s", timeout="100s")
    voids = rows(folder, "SELECT reason FROM pair WHERE state = 'void'")
    assert len(voids) == 1 and "made no step for more than 4" in voids[0][0] and "handover" in voids[0][0], voids
    assert code != 1 and time.monotonic() - begun < 90, code
    gone(folder)


def case_candidate_ends(folder):
    """On node 1, in each launch: the finding that it is on one node, with the node in words. No wait for what will not come."""
    begun = time.monotonic()
    code, document, _ = faulty(folder, "1 20 exit always", timeout="100s")
    assert code == 1 and "the candidate ended itself in both attempts while the baseline works" in document["reason"], document
    assert "node 1 of 2: side 'new' exited with 3" in document["reason"], document
    assert rows(folder, "SELECT count(*) FROM pair WHERE state = 'valid'") == [(0,)] and time.monotonic() - begun < 90
    gone(folder)


def another_build(path):
    """The same program, with another build id, and of another length where it has none."""
    with open(path, "rb+") as file:
        text = file.read()
        at = text.find(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0")
        file.write(b"\0")
        if at >= 0:
            file.seek(at + 16)
            file.write(bytes(byte ^ 0xff for byte in text[at + 16:at + 36]))


def case_side_is_another_on_a_node(folder):
    """The candidate of node 1 is another build: what is measured there is another change, and nothing passes by it."""
    for place in ("a-0", "a-1", "b-0", "b-1"):
        os.mkdir(os.path.join(folder, place))
        shutil.copy(JOB, os.path.join(folder, place, "node_job"))
    another_build(os.path.join(folder, "b-1", "node_job"))
    yaml = plan(folder, steps=40)
    with open(yaml, encoding="utf-8") as file:
        text = file.read()
    with open(yaml, "w", encoding="utf-8") as file:
        file.write(text.replace(JOB, folder + "/$WHICH-{node_rank}/node_job").replace("none}", "none, WHICH: a}").replace('.fault"}', '.fault", WHICH: b}'))
    code, document, said = run(folder, yaml, 2)
    apart = rows(folder, APART)
    assert len(apart) == 1 and apart[0][0].startswith("side 'new' on node 1: ") and ", on node 0 " in apart[0][0], apart
    assert code != 0 and "the run will not pass" in said[0][1], (code, document, said[0][1])


def pairs_done(folder, count, store="run.db", limit_s=60):
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            if rows(folder, "SELECT count(*) FROM pair", store)[0][0] >= count:
                return
        except sqlite3.Error:
            pass
        time.sleep(0.05)
    raise AssertionError("no %d pairs after %d s" % (count, limit_s))


def case_node_killed(folder):
    yaml = plan(folder, handover="3s", looks="[30]", parity="fp64-anchored") # they are not through before it is killed
    nodes = [node(folder, yaml, k, 2) for k in range(2)]
    pairs_done(folder, 2)
    pairs_done(folder, 2, "node-1.db") # each node stores its own when it comes to it
    nodes[1].send_signal(signal.SIGKILL)
    codes, said = ends(nodes, 100)
    assert codes == [3, -9], (codes, said)
    states = [state for state, in rows(folder, "SELECT state FROM pair ORDER BY id")]
    assert states[:2] == ["valid"] * 2 and states[-3:] == ["void"] * 3, states
    assert "node 1 of 2" in rows(folder, "SELECT reason FROM pair ORDER BY id DESC LIMIT 1")[0][0]
    document = json.loads(said[0][0])
    assert document["verdict"] == "inconclusive" and "3 pairs in a row were lost, the last one: node 1 of 2" in document["reason"], document
    assert rows(folder, "PRAGMA integrity_check", "node-1.db") == [("ok",)]
    assert rows(folder, "SELECT count(*) FROM pair", "node-1.db")[0][0] >= 2
    gone(folder)


def case_first_killed(folder):
    yaml = plan(folder, handover="3s", looks="[30]")
    nodes = [node(folder, yaml, k, 2) for k in range(2)]
    pairs_done(folder, 1)
    nodes[0].send_signal(signal.SIGKILL)
    codes, said = ends(nodes, 100)
    assert codes == [-9, 3] and "node 0 of 2 said nothing" in said[1][1], (codes, said)
    gone(folder)
    # As SCALE.md says, what node 0 had stored is judged; there is too little of it. By gate first, which may have a transaction to take back.
    done = subprocess.run([UPGATE, "gate", os.path.join(folder, "ab", "job", "run.db")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=environment(folder), text=True)
    assert done.returncode == 3, (done.returncode, done.stdout, done.stderr)
    assert rows(folder, "SELECT count(*) FROM pair")[0][0] >= 1


def case_start(folder):
    """Late by 3 s; missing; another plan; nobody says which node."""
    yaml = plan(folder, steps=60)
    nodes = [node(folder, yaml, 0, 2)]
    time.sleep(3)
    nodes.append(node(folder, yaml, 1, 2))
    codes, said = ends(nodes, 120)
    assert codes[0] == codes[1] and codes[0] in (0, 3), (codes, said)
    other = os.path.join(folder, "other")
    os.mkdir(other)
    codes, said = ends([node(other, yaml, k, 3, "--wait", "4s") for k in (0, 2)], 60)
    assert codes == [4, 4] and "node 1 of 3 did not come within 4" in said[0][1], (codes, said)
    assert not os.listdir(os.path.join(other, "ab", "job")), "something is left"
    codes, said = ends([node(other, plan(other, "p%d" % k, steps=60 + k), k, 2, "--wait", "5s") for k in (0, 1)], 60)
    assert 2 in codes and "another plan" in said[codes.index(2)][1], (codes, said)
    assert set(codes) <= {2, 4}, codes
    lone = subprocess.run([UPGATE, "node", yaml, "-o", other], env=environment(folder), stderr=subprocess.PIPE, text=True)
    assert lone.returncode == 2 and "no launcher" in lone.stderr, lone.stderr
    again = subprocess.run([UPGATE, "node", yaml, "-o", other, "--dry-run"], stderr=subprocess.PIPE, text=True, env=environment(
        folder, SLURM_PROCID=0, SLURM_NTASKS=2, SLURM_JOB_ID=7, SLURM_STEP_ID=0, SLURM_RESTART_COUNT=1))
    assert again.returncode == 0 and "7.0-requeue1/run.db" in again.stderr, again.stderr # not that of before the requeue
    slices = subprocess.run([UPGATE, "node", plan(other, "slices", interleave="slices"), "-o", other],
                            env=environment(folder, RANK=0, WORLD_SIZE=2), stderr=subprocess.PIPE, text=True)
    assert slices.returncode == 2 and "holds up the others" in slices.stderr, slices.stderr


def main():
    if os.geteuid() != 0:
        print("skipped: cgroups need root")
        return 77
    cases = {name[5:]: one for name, one in globals().items() if name.startswith("case_")}
    for name in sys.argv[1:] or cases:
        with tempfile.TemporaryDirectory(prefix="upgate-node-", dir=BUILD) as folder:
            begun = time.monotonic()
            cases[name](folder)
            print("ok  %s, %.0f s" % (name, time.monotonic() - begun), flush=True)
    return 0


sys.exit(main())
