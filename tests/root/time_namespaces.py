#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs, ranks, recorders and sides of an A/B in time namespaces, whose CLOCK_MONOTONIC and CLOCK_BOOTTIME are 100 ms, hours or less than nothing
ahead of the machine's: all that is stored is on the machine's clock. A program says by the wall clock, which is the same everywhere, when its steps
were: within 1 ms of that they are stored; the sleep that is planted in each is a gap within its step. Skipped where nothing can be recorded, or no
time namespace be made.

    time_namespaces.py --enter NS COMMAND…   what the tests start: the command in a namespace that is ahead by so much"""
import ctypes
import json
import os
import subprocess
import sys
import time

CLONE_NEWTIME = 0x80
MS, S = 1000000, 1000000000
SOON, HOURS, MONTHS = 100 * MS, 5 * 3600 * S + 123456789, 200 * 86400 * S + 7
STEPS, EVERY, SLEEP = 30, 50 * MS, 20 * MS
NEAR = MS # in which a step must lie that was marked at a certain moment


def enter(ahead_ns, command):
    """By a fork, too: before Linux 6.3 exec does not enter the namespace, a child does."""
    unshare(ahead_ns)
    pid = os.fork()
    if pid:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os._exit(code if code >= 0 else 128 - code)
    os.execvp(command[0], command)


def unshare(ahead_ns):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWTIME):
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWTIME): " + os.strerror(ctypes.get_errno()))
    with open("/proc/self/timens_offsets", "w", encoding="ascii") as file:
        # of the boot time by another length, which is no multiple of a tick
        file.write("monotonic %d %d\nboottime %d %d\n" % (*divmod(ahead_ns, S), *divmod(ahead_ns + 3456789, S)))


if sys.argv[1:2] == ["--enter"]:
    enter(int(sys.argv[2]), sys.argv[3:])

sys.dont_write_bytecode = True
import needs  # noqa: E402
import rank_rig as rig  # noqa: E402

JOB = os.path.join(rig.BUILD, "tests", "root", "time_namespaces_job")


def inside(ahead_ns, *command):
    """The command in a time namespace; 0: in ours."""
    return [sys.executable, os.path.abspath(__file__), "--enter", str(ahead_ns), *command] if ahead_ns else list(command)


def lacks():
    tried = subprocess.run(inside(SOON, sys.executable, "-c", "import time; print(time.monotonic_ns())"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True)
    if tried.returncode:
        return "no time namespace can be made here: " + (tried.stderr.strip().splitlines() or ["?"])[-1]
    return needs.lacks()


def before():
    """A time before now, which the kernel allows while it is after the boot."""
    return -min(time.monotonic_ns() // 2, 3600 * S)


def wall_minus_monotonic():
    tries = []
    for _ in range(20):
        first, wall, last = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        tries.append((last - first, wall - (first + last) // 2))
    return min(tries)[1]


def job(go, told):
    """The words of a program that waits with its first step until let_go()."""
    return [JOB, str(STEPS), go, str(EVERY), str(SLEEP), told]


def start(*words, **environment):
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=rig.environment(**environment))


def let_go(go, told, soon_ns=S // 2):
    """Once all of the programs run, which each tells by its file: what it takes to start them and their recorders lies beside no step."""
    deadline = time.monotonic() + 90
    while not all(os.path.exists(path) for path in told):
        assert time.monotonic() < deadline, [path for path in told if not os.path.exists(path)]
        time.sleep(0.02)
    with open(go + ".new", "w", encoding="ascii") as file:
        file.write("%d\n" % (time.time_ns() + soon_ns))
    os.rename(go + ".new", go)


def told_borders(path):
    with open(path, encoding="ascii") as file:
        return [tuple(int(word) for word in line.split()) for line in file]


def steps_of(store, rank=0):
    return rig.rows(store, "SELECT begin_ns, begin_ns + dur_ns FROM recorded_step WHERE rank = ? ORDER BY idx", rank)


def check_steps(steps, told, what):
    """Each where the program was at that moment; by how far off, of all, says what is wrong."""
    assert len(steps) == len(told), (what, len(steps), len(told))
    ahead = wall_minus_monotonic()
    for number, ((begin, end), (before_ns, begun_ns, ends_ns, ended_ns)) in enumerate(zip(steps, told)):
        begin, end = begin + ahead, end + ahead
        assert before_ns - NEAR <= begin <= begun_ns + NEAR and ends_ns - NEAR <= end <= ended_ns + NEAR, \
            "%s: step %d begins %+.6f s and ends %+.6f s from where it did" % (what, number, (begin - before_ns) / S, (end - ends_ns) / S)


def check_gaps(store, steps, what):
    """The sleep of each step is a gap of the host side within it, with the name of who sleeps: of half of them at least, as unwind
    tables are made once a stack has ended for want of one, later on a busy machine."""
    gaps = rig.rows(store, "SELECT g.out_ns, g.in_ns, g.user_stack FROM gap g JOIN thread t ON t.id = g.thread_id WHERE t.comm LIKE 'time_namespaces%'")
    named = {stack for stack, in rig.rows(store, "SELECT s.id FROM stack s, json_each(s.frames) f JOIN frame n ON n.id = f.value "
                                          "WHERE n.name = 'planted_sleep'")}
    with_name = 0
    for begin, end in steps:
        within = [gap for gap in gaps if begin <= gap[0] and gap[1] <= end and gap[1] - gap[0] > SLEEP - 2 * MS]
        assert len(within) == 1, (what, begin, end, gaps[:5])
        with_name += within[0][2] in named
    assert 2 * with_name >= len(steps), (what, "the sleep has no name", with_name, len(steps))


def notes(store):
    return [text for text, in rig.rows(store, "SELECT text FROM note WHERE text LIKE '%time namespace%'")]


def case_record(folder):
    """`upgate record`: the program, the recorder, or both in namespaces, the same or others. All at once."""
    go, recordings = os.path.join(folder, "go"), []
    for number, (recorder, program) in enumerate([(0, SOON), (0, HOURS), (0, MONTHS), (0, before()), (SOON, 0), (HOURS, SOON), (before(), HOURS)]):
        store, told = os.path.join(folder, "%d.db" % number), os.path.join(folder, "%d.txt" % number)
        recordings.append((recorder, program, store, told,
                           start(*inside(recorder, rig.UPGATE, "record", "-o", store, "--", *inside(program, *job(go, told))))))
    let_go(go, [told for *_, told, _ in recordings])
    for recorder, program, store, told, process in recordings:
        what = "recorder %+.9f s, program %+.9f s" % (recorder / S, program / S)
        said = process.communicate(timeout=120)
        assert process.returncode == 0, (what, said)
        steps = steps_of(store)
        check_steps(steps, told_borders(told), what)
        check_gaps(store, steps, what)
        ahead = program or recorder # which the program inherits
        assert [("off by %+.9f s" % (ahead / S) in text) for text in notes(store)] == [True], (what, notes(store))
        begin, end = rig.rows(store, "SELECT begin_ns, end_ns FROM recording")[0]
        assert begin <= steps[0][0] and steps[-1][1] <= end, (what, begin, end, steps)


def case_attached(folder):
    """Of a process that runs already the host side; one without a namespace is told of in no note."""
    go, recordings = os.path.join(folder, "go"), []
    for number, ahead in enumerate((0, HOURS)):
        store, told = os.path.join(folder, "%d.db" % number), os.path.join(folder, "%d.txt" % number)
        program = start(*job(go, told))
        recordings.append((ahead, store, told, program, start(*inside(ahead, rig.UPGATE, "record", "-o", store, "--pid", str(program.pid)))))
    for _, store, *_ in recordings:
        rig.await_shard(store)
    let_go(go, [told for _, _, told, *_ in recordings])
    for ahead, store, told, program, recorder in recordings:
        said = recorder.communicate(timeout=120)
        assert program.wait(60) == 0 and recorder.returncode == 0, said
        ours = wall_minus_monotonic()
        borders = [(begun_ns - ours, ends_ns - ours) for _, begun_ns, ends_ns, _ in told_borders(told)]
        check_gaps(store, [(begin - NEAR, end + NEAR) for begin, end in borders], "attached from %+d ns" % ahead)
        assert notes(store) == [], notes(store)


def case_ranks(folder):
    """`upgate rank`: one rank in a namespace, one outside, each with its recorder or with one of both, whichever of them starts it. Merged, the steps of
    both are at the same times. All jobs at once."""
    go, jobs = os.path.join(folder, "go"), []
    for ahead in (SOON, HOURS):
        for options, first in (((), 0), (("--shared",), 0), (("--shared",), 1)):
            place = os.path.join(folder, "%d-%d-%d" % (ahead, len(options), first))
            os.mkdir(place)
            jobs.append((place, ahead, options, first, {first: start_rank(place, go, ahead, options, first)}))
    for place, ahead, options, first, workers in jobs:
        if options:
            rig.await_shard(os.path.join(place, "shards", "job", "0-%d.db" % first))
        workers[1 - first] = start_rank(place, go, ahead, options, 1 - first)
    let_go(go, [told_of(place, number) for place, *_ in jobs for number in (0, 1)])
    for one in jobs:
        check_ranks(*one)


def told_of(place, number):
    return os.path.join(place, "%d.txt" % number)


def start_rank(place, go, ahead, options, number):
    return start(*inside(ahead if number else 0, rig.UPGATE, "rank", "-o", os.path.join(place, "shards"), *options, "--", *job(go, told_of(place, number))),
                 TORCHELASTIC_RUN_ID="job", TORCHELASTIC_RESTART_COUNT=0, RANK=number, WORLD_SIZE=2)


def check_ranks(place, ahead, options, first, workers):
    shards, store = os.path.join(place, "shards"), os.path.join(place, "run.db")
    what = "rank 1 is %+.9f s ahead, rank %d begins, %s" % (ahead / S, first, options)
    for number, worker in workers.items():
        said = worker.communicate(timeout=90)
        assert worker.returncode == 0 and said == ("", ""), (what, number, said)
    rig.await_end(shards)
    found = rig.shards(shards)
    assert found == (["job/0-%d.db" % first] if options else ["job/0-0.db", "job/0-1.db"]), (what, found)
    # The clock that a shard notes is the one of its times: of one node it is one.
    ours, clocks = wall_minus_monotonic(), []
    for shard in found:
        target = json.loads(rig.rows(os.path.join(shards, shard), "SELECT target FROM recording")[0][0])["rank"]
        clocks += [target["wall_minus_monotonic_ns"], target["wall_minus_monotonic_end_ns"]]
    assert all(abs(clock - ours) < NEAR for clock in clocks), (what, [clock - ours for clock in clocks])
    code, document, stderr = rig.merge(shards, store)
    assert code == 0 and document["ranks"] == 2 and document["nodes"] == 1 and document["missing"] == [], (what, code, document, stderr)
    steps = [steps_of(store, number) for number in (0, 1)]
    for number in (0, 1):
        check_steps(steps[number], told_borders(told_of(place, number)), "%s: rank %d" % (what, number))
    for number in (0, 1):
        assert gaps_within(store, number, steps[number]) == STEPS, (what, number)
    code, document, stderr = rig.reduced(shards)
    assert code == 0 and document["ranks"] == 2 and document["missing"] == [], (what, code, document, stderr)


def gaps_within(store, rank, steps):
    """How many steps of the rank hold the sleep of its own process."""
    target = json.loads(rig.rows(store, "SELECT target FROM recording")[0][0])
    pids = {one["pid"] for one in target["ranks"] if one["rank"] == rank}
    gaps = [gap[1:] for gap in rig.rows(store, "SELECT p.tgid, g.out_ns, g.in_ns FROM gap g JOIN thread t ON t.id = g.thread_id "
                                        "JOIN process p ON p.id = t.process_id WHERE t.comm LIKE 'time_namespaces%'") if gap[0] in pids]
    return sum(any(begin <= out and back <= end and back - out > SLEEP - 2 * MS for out, back in gaps) for begin, end in steps)


def case_ab(folder):
    """`upgate ab`, itself in a namespace or not, of sides in others: held, let go and judged as ever, and each step lies within its launch, that of
    a traced one around its sleep."""
    go = os.path.join(folder, "go")
    let_go(go, [], -S)  # steps follow each other from the start
    for number, (own, baseline, candidate) in enumerate(((0, SOON, HOURS), (HOURS, 0, SOON))):
        store, plan = os.path.join(folder, "%d.db" % number), os.path.join(folder, "%d.yaml" % number)
        command = [JOB, "{steps}", go, "0", str(5 * MS), "/dev/null"]
        sides = {side: {"name": name, **({"prefix": inside(ahead)} if ahead else {})}
                 for side, name, ahead in (("baseline", "old", baseline), ("candidate", "new", candidate))}
        with open(plan, "w", encoding="utf-8") as file:
            json.dump({**sides, "workloads": [{"name": "w", "command": command, "steps": 40}],
                       "schedule": {"looks": [3], "timeout": "20s", "block": "20ms", "voids": 20, "traced_launches": 1},
                       "gate": {"alpha": "20%", "parity": {"rule": "off"}, "metrics": {"step_time": {"margin": "100%"}}, "calibrate": "require"}}, file)
        done = subprocess.run(inside(own, rig.UPGATE, "ab", plan, "-o", store), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=200,
                              cwd=folder, env=dict(rig.environment(), UPGATE_STATE_DIR=os.path.join(folder, "state")))
        assert done.returncode in (0, 3), (done.returncode, done.stdout, done.stderr)
        assert rig.rows(store, "SELECT count(*) FROM pair WHERE state = 'valid'")[0][0] >= 3, done.stdout
        assert rig.rows(store, "SELECT DISTINCT interleave FROM pair WHERE phase = 'main'") == [("steps",)]
        assert rig.rows(store, "SELECT count(*) FROM ledger WHERE kind = 'clocks'") == [(0,)]
        for launch, length in rig.rows(store, "SELECT id, ended_ns - started_ns FROM launch WHERE state = 'ok'"):
            first, last, count = rig.rows(store, "SELECT min(begin_ns), max(begin_ns + dur_ns), count(*) FROM step WHERE launch_id = ?", launch)[0]
            assert count == 40 and 0 <= first and last <= length, (own, baseline, candidate, launch, first, last, length)
        traced = rig.rows(store, "SELECT l.id, r.id, l.started_ns FROM recording r JOIN launch l ON l.id = r.launch_id")
        for launch, recording, started in traced:
            gaps = rig.rows(store, "SELECT g.out_ns, g.in_ns FROM gap g JOIN thread t ON t.id = g.thread_id JOIN process p ON p.id = t.process_id "
                            "WHERE p.recording_id = ? AND p.kind = 'target'", recording)
            begin, end = rig.rows(store, "SELECT begin_ns, end_ns FROM recording WHERE id = ?", recording)[0]
            steps = [(at + started, at + started + length) for at, length in
                     rig.rows(store, "SELECT begin_ns, dur_ns FROM step WHERE launch_id = ? ORDER BY idx", launch)]
            held = [any(first <= out and back <= last for out, back in gaps) for first, last in steps if begin <= first and last <= end]
            assert held and all(held), (own, baseline, candidate, launch, held)
        if not traced:
            print("  no launch was traced: " + done.stderr.strip()[-300:], flush=True)


def case_doctor(folder):
    """Says that it is in one, and by how much."""
    for ahead in (0, HOURS):
        done = rig.run(*inside(ahead, rig.UPGATE, "doctor", "--json"))
        clock, = [check for check in json.loads(done.stdout)["checks"] if check["id"] == "clock"]
        assert ("time namespace" in clock["found"]) == bool(ahead), clock
        assert clock["facts"].get("time_namespace_ahead_ns", 0) == ahead, clock


sys.exit(rig.main(globals(), lacks()))
