#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workloads that misbehave: daemons, sessions of their own, children that kill their parent or leave the
cgroup, floods of output, bytes that are no text, a step file that is closed, cut short or written over.
upgate survives each with words and a bounded memory, and nothing of them stays."""
import json
import os
import signal
import subprocess
import time

import ab_rig
from ab_rig import SH, WORK, Skip, cgroup_parents, check_code, check_judged, check_says
from ab_kill import without_cgroups

PYTHON = {"python": "python3"}
STEPS = """
import os, random, sys, time
import upgate
side, rank = os.environ['SIDE'], 0
def rude(step): pass
def steps(count, work=3000):
    for i in upgate.steps(range(count), samples=1):
        sum(range(work))
        if side == 'b': rude(i)
"""


def python(case, text, steps=20, ranks=1, **keys):
    """A Python workload with step calls."""
    case.write("work.py", STEPS + text)
    case.plan(dict({"command": ["{python}", case.path("work.py")], "steps": steps, "ranks": ranks}),
              PYTHON, PYTHON, **keys)


def test_double_forked_daemon(case):
    daemon = "(setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 0.2; done' >/dev/null 2>&1 &) & "
    for interleave in ("slices", "launches"):
        case.plan({"command": [SH, "-c", daemon + WORK]}, interleave=interleave)
        check_judged(case, case.run())
        os.unlink(case.db_path)


def test_double_forked_daemon_without_cgroups(case):
    daemon = "(setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 0.2; done' >/dev/null 2>&1 &) & "
    case.plan({"command": [SH, "-c", daemon + WORK]}, interleave="slices")
    check_judged(case, case.run(command=without_cgroups()))


def test_daemon_that_clears_its_environment(case):
    """Known by its cgroup, or as an orphan that came to upgate."""
    name = "rig-%s" % case.mark[-8:]
    case.plan({"command": ["bash", "-c", "(env -i setsid bash -c 'exec -a %s sleep 40' >/dev/null 2>&1 &) & " % name
                           + WORK]}, interleave="slices")
    for options in ({}, {"command": without_cgroups()}):
        check_judged(case, case.run(**options))
        left = subprocess.run(["pgrep", "-f", name], stdout=subprocess.PIPE).stdout.split()
        for pid in left:
            os.kill(int(pid), signal.SIGKILL)
        assert not left, "%d daemons live on (%s)" % (len(left), options)
        os.unlink(case.db_path)


def test_child_that_left_the_cgroup(case):
    parents = [parent for parent in cgroup_parents() if os.access(parent + "/cgroup.procs", os.W_OK)]
    if not parents:
        raise Skip("no cgroup can be written here")
    leave = "".join("echo 0 > %s/cgroup.procs; " % parent for parent in parents)
    case.plan({"command": [SH, "-c", "sh -c '%s exec sleep 50' & " % leave + WORK]}, interleave="slices")
    check_judged(case, case.run())


def test_own_session_and_deaf_to_signals(case):
    case.plan({"command": ["setsid", "-w", SH, "-c", "trap '' TERM INT HUP QUIT; sleep 30"]}, timeout="400ms")
    done = case.run()
    check_code(done, 3)
    check_says(done, "reached the timeout")


def test_child_that_kills_the_root(case):
    case.plan({"command": [SH, "-c", "[ $SIDE = a ] || { sh -c 'kill -9 $PPID; sleep 30' & wait; }; sleep 0.05"]})
    done = case.run()
    check_code(done, 1)
    check_says(done, "side 'new' was ended by signal 9")


def test_workload_that_kills_its_parent(case):
    """That is its keeper, and the launch dies with it."""
    case.plan({"command": [SH, "-c", "[ $SIDE = a ] || kill -9 $PPID; sleep 0.2"]}, interleave="slices")
    done = case.run()
    check_code(done, 1, 3)
    check_says(done, "side 'new' was ended by signal 9")


def test_workload_that_stops_its_parent(case):
    """Nobody waits for ever for a keeper that cannot say how the launch ended."""
    case.plan({"command": [SH, "-c", "[ $SIDE = a ] || kill -STOP $PPID; " + WORK]}, interleave="slices")
    check_judged(case, case.run())


def test_workload_that_kills_upgate(case):
    """The guardian and the keeper clean up."""
    case.plan({"command": [SH, "-c", "[ $SIDE = a ] && kill -9 $UPGATE; sleep 30"]}, interleave="slices")
    done = case.run(command=[SH, "-c", "UPGATE=$$ exec \"$@\"", "sh"])
    check_code(done, -signal.SIGKILL)
    assert case.pairs() == 0


FOREIGN = "while :; do : >%s; sleep 0.02; done"


def test_children_that_are_not_of_a_launch(case):
    """`job & exec upgate ab`: the user's own background job is a child of upgate, and none of its business."""
    case.plan({"command": [SH, "-c", WORK]}, interleave="slices")
    for options in ({}, {"command": without_cgroups()}):
        beat = case.path("beat")
        words = ["env", "-u", case.mark.split("=")[0], "bash", "-c",
                 "(%s) >/dev/null 2>&1 & %s exec \"$@\"" % (FOREIGN % beat, case.mark), "sh"]
        process = case.start("ab", case.plan_path, "-o", case.db_path, **dict(options, command=words +
                                                                              options.get("command", [])))
        done = case.finish(process)
        check_judged(case, done)
        left = subprocess.run(["pgrep", "-f", beat], stdout=subprocess.PIPE).stdout.split()
        for pid in left:
            os.kill(int(pid), signal.SIGKILL)
        assert left, "upgate ended a child that it had before"
        os.unlink(case.db_path)


def test_orphans_of_a_container(case):
    """As its process 1 upgate inherits every orphan of the container, also of `docker exec`."""
    words = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.geteuid() != 0 or subprocess.run(words + ["true"], stderr=subprocess.DEVNULL).returncode:
        raise Skip("no namespaces of processes can be made here")
    beat = case.path("beat")
    # A launch is long enough for a process that a busy machine keeps waiting.
    case.plan({"command": [SH, "-c", WORK + "; sleep 1.5"]}, interleave="slices")
    done = case.run(command=words + [SH, "-c", "(setsid sh -c '%s' &); exec \"$@\"" % (FOREIGN % beat), "sh"])
    check_judged(case, done)
    last = case.value("SELECT max(started_ns) FROM launch") + time.time_ns() - time.monotonic_ns()
    beaten = os.stat(beat).st_mtime_ns
    assert beaten > last, "it was ended %.2f s before the last launch" % ((last - beaten) / 1e9)


def test_workload_that_stops_itself(case):
    """SIGSTOP from within: it never ends by itself, and is not thawed by accident for ever."""
    case.plan({"command": [SH, "-c", "kill -STOP $$; exit 1"]}, timeout="500ms", interleave="launches")
    done = case.run()
    check_code(done, 3)
    check_says(done, "reached the timeout")


def test_many_processes(case):
    case.plan({"command": [SH, "-c", "for i in $(seq 150); do sleep 20 & done; " + WORK]}, interleave="slices",
              looks=[3])
    check_judged(case, case.run())


def memory_peak(pid):
    with open("/proc/%d/status" % pid) as file:
        return [int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM")][0]


def test_flood_of_output(case):
    """300 MB on stdout: neither in the memory of upgate nor on the disk, and the end of it is kept."""
    flood = "head -c 300000000 /dev/zero | tr '\\0' x; echo; echo the last words; "
    case.plan({"command": [SH, "-c", flood + "[ $SIDE = a ] || exit 5"]}, interleave="launches", timeout="100s")
    os.makedirs(case.path("tmp"))
    process = case.start("ab", case.plan_path, "-o", case.db_path, env={"TMPDIR": case.path("tmp")})
    peak, blocks = 0, 0
    free = os.statvfs(case.path("tmp")).f_bavail
    while process.poll() is None:
        try:
            peak = max(peak, memory_peak(process.pid))
        except (OSError, IndexError):
            pass  # ended meanwhile
        blocks = max(blocks, free - os.statvfs(case.path("tmp")).f_bavail)
        time.sleep(0.02)
    done = case.finish(process)
    check_code(done, 1)
    check_says(done, "the last words")
    limit = 400 if ab_rig.SANITIZED else 60
    assert peak < limit << 20, "upgate took %d MiB" % (peak >> 20)
    tails = case.rows("SELECT length(stderr_tail), stderr_tail FROM launch")
    assert tails and all(length <= 4096 and "the last words" in tail for length, tail in tails)


def test_output_is_no_text(case):
    """NUL, half characters, escape sequences: a valid store, a valid document, a quiet terminal."""
    case.write("work.py", "import os, sys\nos.write(2, bytes(range(256)) * 20 + b'\\x1b[2J\\x1b]0;x\\x07 ' + "
               "'\u20ac'.encode() * 1500 + b'\\xe2\\x82')\nsys.exit(os.environ['SIDE'] == 'b')\n")
    case.plan({"command": ["{python}", case.path("work.py")]}, PYTHON, PYTHON)
    done = case.run()
    check_code(done, 1)
    assert "\x1b" not in done.out and "\0" not in done.out, "escape sequences reach the terminal"
    tails = case.rows("SELECT stderr_tail FROM launch WHERE state = 'crashed'")
    assert tails and all("\u20ac" in tail[0] and "\0" not in tail[0] for tail in tails)
    for ending in ("json", "xml", "md"):
        check_code(case.run("report", case.db_path, "-o", case.path("report." + ending)), 0)
    json.load(open(case.path("report.json"), encoding="utf-8"))
    subprocess.run(["python3", "-c", "import sys, xml.dom.minidom as m; m.parse(sys.argv[1])", case.path("report.xml")],
                   check=True)


def test_names_that_are_no_text(case):
    """Phases and tensors: a name is cut to its length by bytes, perhaps within a character."""
    python(case, """
for i in upgate.steps(range(20), samples=1):
    with upgate.phase('phase ' + '\u20ac' * 20):
        sum(range(3000))
    upgate.record(**{'\u00e4' * 200: 1.5})
""")
    check_judged(case, case.run())
    for name, in case.rows("SELECT DISTINCT name FROM step_phase UNION SELECT DISTINCT name FROM tensor"):
        name.encode()
    check_code(case.run("report", case.db_path, "-o", case.path("report.json")), 0)
    json.load(open(case.path("report.json"), encoding="utf-8"))


def test_step_file_closed(case):
    """Every descriptor and the name of the file are gone: the mapping does the work."""
    python(case, """
def rude(i):
    if i == 5:
        os.closerange(3, 256)
        os.unlink(os.environ['UPGATE_STEPS'])
steps(20)
""")
    check_judged(case, case.run())
    assert case.pairs() == 3 and case.rows("SELECT DISTINCT steps FROM launch") == [(20,)]


def test_step_file_cut_short(case):
    for size in (0, 100, 70000):
        python(case, """
def rude(i):
    if i == 5: os.truncate(os.environ['UPGATE_STEPS'], %d)
steps(20)
""" % size, timeout="2s")
        done = case.run()
        check_code(done, 1)
        check_says(done, "side 'new' cut the file short that UPGATE_STEPS names")
        os.unlink(case.db_path)


def test_step_file_cut_short_at_the_end(case):
    """Everything went well, and then the records are gone."""
    python(case, """
steps(20)
if side == 'b': os.truncate(os.environ['UPGATE_STEPS'], 0); os._exit(0)
""", timeout="2s")
    done = case.run()
    check_code(done, 1)
    check_says(done, "cut the file short")


SCRIBBLE = """
import mmap
def rude(i):
    if i != 5: return
    dice = random.Random(%d)
    file = os.open(os.environ['UPGATE_STEPS'], os.O_RDWR)
    size = os.fstat(file).st_size
    view = mmap.mmap(file, 1 << 20)
    for _ in range(%d):
        at = dice.randrange(%d, %d)
        view[at] = dice.choice((0, 1, 2, 255, dice.randrange(256)))
steps(20)
"""


def test_step_file_written_over(case):
    """Header, slots, rings: whatever it makes of its own side, upgate ends in words."""
    for seed, (count, low, high) in enumerate(((200, 0, 4096), (3000, 4096, 12288), (60, 4096, 8192),
                                               (5000, 0, 1 << 16), (20000, 1 << 13, 1 << 20), (40, 0, 1 << 13))):
        python(case, SCRIBBLE % (seed, count, low, high), timeout="600ms")
        done = case.run()
        assert done.code in (0, 1, 3), "seed %d: %s" % (seed, done)
        if done.code == 0:  # what was written over did not matter
            assert case.pairs() == 3
        os.unlink(case.db_path)


def test_step_file_full_of_garbage_records(case):
    """A head that claims a full ring of whatever is in it."""
    python(case, """
import mmap
def rude(i):
    if i != 5: return
    file = os.open(os.environ['UPGATE_STEPS'], os.O_RDWR)
    view = mmap.mmap(file, 1 << 22)
    dice = random.Random(1)
    for at in range(1 << 14, 1 << 22, 8):
        view[at:at + 8] = dice.getrandbits(64).to_bytes(8, 'little')
    time.sleep(0.01)
steps(20)
""", timeout="2s")
    done = case.run()
    assert done.code in (1, 3), str(done)


RINGS = """
import mmap, struct
file = os.open(os.environ['UPGATE_STEPS'], os.O_RDWR)
header = mmap.mmap(file, 4096)
rings_at, ring_records, ring_bytes = struct.unpack_from('<3Q', header, 32)
view = mmap.mmap(file, rings_at + ring_records * 64 + ring_bytes)
"""


def test_step_file_full_of_tensors_without_values(case):
    """They take no room of the 16 MiB: their number is bounded all the same (16384 more by digest), and with it what is stored."""
    python(case, RINGS + """
def rude(i):
    if i != 5: return
    one = struct.pack('<IIIIQQ', 1, 3, 1, 0, 1, 0)
    view[rings_at + ring_records * 64:] = one * (ring_bytes // len(one))
    struct.pack_into('<Q', view, 4096 + 80, ring_bytes)
steps(20)
""")
    done = case.run()
    assert done.code in (0, 1, 3), str(done)
    most = case.value("SELECT max(n) FROM (SELECT count(*) AS n FROM tensor GROUP BY launch_id)")
    # One row an index and name: what counts is how many were taken.
    over = case.value("SELECT coalesce(max(dropped), 0) FROM ledger WHERE kind LIKE 'tensors beyond%'")
    assert over >= (8 << 20) // 32 - (16 << 20) // 256 - 16384, (most, over)


def test_a_process_that_names_another(case):
    """The pid in the step file is the side's word: what somebody else is made of must not get into the store."""
    other = subprocess.Popen(["sleep", "100"])
    try:
        python(case, RINGS + """
def rude(i):
    struct.pack_into('<I', view, 4096, %d)
steps(20)
""" % other.pid)
        done = case.run()
        assert done.code in (0, 1, 3), str(done)
        programs = case.rows("SELECT id, json_extract(fingerprint, '$.process.exe.path') FROM side ORDER BY id")
        assert "python" in programs[0][1] and "sleep" not in str(programs[1][1]), programs
    finally:
        other.kill()
        other.wait()


def test_pairs_that_fail_now_and_then(case):
    """Every second launch of the candidate hangs: never two in a row, and each takes its timeout."""
    count = case.path("count")
    # Nothing but the shell itself, before it hangs: the start of a program alone may take 0.3 s on a busy machine.
    hang = "[ $SIDE = a ] || { n=0; [ ! -e %s ] || read n <%s; echo $((n+1)) >%s; [ $((n%%2)) = 0 ] || sleep 60; }; "
    case.plan({"command": [SH, "-c", hang % (count, count, count) + WORK]}, interleave="slices", looks=[40], timeout="1500ms")
    done = case.run()
    check_code(done, 1)
    check_says(done, "given up after 8 failed pairs")
    assert case.pairs("failed") == 8 and case.pairs() == 8, (case.pairs("failed"), case.pairs())
    check_code(case.resume(), 1)
    assert case.pairs("failed") == 8, "--resume went on with it"


def test_a_workload_that_was_skipped_is_not_tried_again(case):
    """By --resume, nor is its capacity looked for once more; another workload of the run is judged."""
    skip = {"command": [SH, "-c", "echo 'skipped: no such device' >&2; exit 77"]}
    case.plan([skip, dict(skip, mode="infer"), {"command": [SH, "-c", WORK]}], interleave="slices", looks=[3])
    check_code(case.run(), 3)
    first = case.rows("SELECT workload_id, phase, state FROM pair WHERE workload_id < 3 ORDER BY id")
    assert [row for row in first if row[1] == "main"] == [(1, "main", "failed"), (2, "main", "failed")], first
    kept = case.pairs()
    done = case.resume()
    check_code(done, 3)
    check_says(done, "skipped: no such device")
    assert case.rows("SELECT workload_id, phase, state FROM pair WHERE workload_id < 3 ORDER BY id") == first, "--resume tried it again"
    assert case.pairs() == kept == 3


def test_a_launch_that_only_ends_so_is_tried_again(case):
    """The status alone says nothing, without the word: two attempts, as of any that ends itself."""
    case.plan({"command": [SH, "-c", "exit 77"]}, interleave="slices")
    check_code(case.run(), 1, 3)
    assert case.pairs("failed") == 2, case.rows("SELECT state, reason FROM pair")


def test_more_steps_than_a_ring_holds(case):
    """Steps of a microsecond in turns of slices: drained in time, or void with words."""
    python(case, """
for i in upgate.steps(range(150000)): pass
""", interleave="slices", looks=[3], voids=1)
    done = case.run()
    assert done.code in (0, 3), str(done)
    lost = case.value("SELECT coalesce(sum(dropped), 0) FROM launch")
    assert lost == 0 or case.pairs("void") > 0, "%d records lost, and no pair void" % lost


def test_outputs_without_end(case):
    """A tensor a step: the values of the first ones are kept; of the others the digests, or they are lost. It is counted."""
    python(case, """
import array
values = array.array("d", range(4096))
for i in upgate.steps(range(800)):
    upgate.record(output=values)
""", looks=[3])
    check_judged(case, case.run())
    kept = case.rows("SELECT sum(length(data) > 0), sum(length(data)) FROM tensor GROUP BY launch_id")
    assert all(10 < count < 800 and size <= 16 << 20 for count, size in kept), kept
    counted = "SELECT count(DISTINCT launch_id) FROM ledger WHERE (kind LIKE 'tensors%' OR kind LIKE 'values of outputs%') AND dropped > 0"
    assert case.value(counted) >= 6
    assert os.path.getsize(case.db_path) < 120 << 20


def test_root_ends_before_its_children(case):
    case.plan({"command": [SH, "-c", WORK + "; sleep 30 & exit 0"]}, interleave="slices")
    check_judged(case, case.run())


if __name__ == "__main__":
    ab_rig.main(globals())
