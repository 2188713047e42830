#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate ab --step symbol:NAME`: a program of C++ that marks no steps is cut at the calls of a function, both sides take turns at them, and are
judged by them; a candidate whose calls take 30 % longer is found, an equal one is not. Where the cuts are not sure the
whole is judged, and the reason said. Skipped without root, capture or a compiler of C++."""
import os
import signal
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["UPGATE_SOURCE"], "tests", "e2e"))
import ab_rig  # noqa: E402
import calls_rig  # noqa: E402
import needs  # noqa: E402
from ab_rig import check_code, check_judged, check_says  # noqa: E402

HANDLE = "symbol:serve::Server::handle"
STEPS = "SELECT DISTINCT steps FROM launch"
SLEEPS = {"SLEEPS": "1"}
STEP_TIME = {"metrics": {"step_time": {"margin": "5%"}}}
WHOLE = {"metrics": {"total_time": {"margin": "100%"}, "cpu_time": {"margin": "100%"}}}
FOLDER = ""


def program(case, how, step, count=40, us=1500, baseline=None, candidate=None, gate=None, subject="subject", **keys):
    library = {"LIBRARY": os.path.join(FOLDER, "libserve.so.1.2")}
    case.plan({"command": [os.path.join(FOLDER, subject), how, str(count), str(us)], "step": step},
              *[{"env": dict(library, **(env or {}))} for env in (baseline, candidate)], gate=gate, **keys)


def interleave(case):
    return case.value("SELECT interleave FROM workload")


def check_steps(case, says, steps):
    done = case.run()
    check_judged(case, done)
    check_says(done, says)
    assert interleave(case) == "steps" and case.rows(STEPS) == [(steps,)], str(done)


def check_whole(case, *says):
    done = case.run()
    check_judged(case, done)
    check_says(done, "judged on total time", *says)
    assert interleave(case) == "slices" and case.value("SELECT gating FROM cell WHERE metric = 'total_time'") == 1


def check_step_time(case, done, fails, least, most):
    """Of three pairs, maybe on a busy machine: the ratio may lie between these."""
    lower, upper, verdict = case.rows("SELECT ci_lower, ci_upper, verdict FROM cell WHERE metric = 'step_time'")[0]
    assert (verdict == "fail") == fails and (lower is None or lower < most) and (upper is None or upper > least), str(done)


def test_a_method_of_equal_sides(case):
    """Every call is a step, the first one too; each side stands where the function has returned."""
    program(case, "serve", HANDLE, us=3000, baseline=SLEEPS, candidate=SLEEPS, gate={"metrics": {"step_time": {"margin": "25%"}}})
    done = case.run()
    check_code(done, 0, 3)
    check_says(done, "steps: calls of serve::Server::handle in subject, 40 a launch")
    assert interleave(case) == "steps" and case.rows(STEPS) == [(40,)], str(done)
    check_step_time(case, done, False, 0.85, 1.15)
    # The blocks of a side follow on each other without a hole: 1, 2, then the same many.
    blocks = case.rows("SELECT first_step, steps FROM block WHERE pair_id = 1 AND side = 0 ORDER BY couple")
    assert all(a[0] + a[1] == b[0] for a, b in zip(blocks, blocks[1:])) and len(blocks) >= 4, blocks


def test_a_slower_candidate_is_found(case):
    program(case, "serve", HANDLE, us=8000, baseline=SLEEPS, candidate=dict(SLEEPS, SLOWER_PCT="30"), gate=STEP_TIME)
    done = case.run()
    check_code(done, 1)
    check_step_time(case, done, True, 1.15, 1.45)


def test_a_control_is_longer_by_what_was_asked_for(case):
    """In the kernel, busy; 2 ms of a step of 8 ms: a margin that a busy machine's steps keep, as without a decision there is no control. Who would
    come back later would certify what it cannot find."""
    program(case, "serve", HANDLE, count=20, us=8000, baseline=SLEEPS, candidate=SLEEPS, gate={"metrics": {"step_time": {"margin": "25%"}}})
    done = case.run("ab", "--aa", case.plan_path, "-o", case.db_path)
    check_code(done, 0, 3)
    found = case.rows("SELECT json_extract(l.covariates, '$.control_wait_ns'), (SELECT sum(dur_ns) FROM step s WHERE s.launch_id = l.id) "
                      "FROM launch l JOIN pair p ON p.id = l.pair_id WHERE p.phase = 'control' AND l.side = 1")
    assert len(found) >= 3 and all(0.24 < wait / (whole - wait) < 0.275 for wait, whole in found), (done.code, found)


def test_a_library_that_is_loaded_later(case):
    """Stripped, and known by its name without a version. The first call is seen."""
    program(case, "load", "symbol:libserve.so:process_batch")
    check_steps(case, "steps: calls of process_batch in libserve.so.1.2, 40 a launch", 40)


def test_calls_that_end_by_an_exception(case):
    """The program catches what it threw, with the breakpoint under it; such a call ends where the next one begins."""
    program(case, "refuse", "symbol:serve::refuse")
    check_steps(case, "steps: calls of serve::refuse in subject, 40 a launch", 40)


def test_sides_that_are_stopped_by_signals(case):
    """Without cgroups the harness lets a side go by SIGCONT itself, which is nobody else's then."""
    program(case, "serve", HANDLE)
    done = case.run("ab", case.plan_path, "-o", case.db_path,
                    command=["unshare", "-m", "sh", "-c", 'umount -l -R /sys/fs/cgroup; exec "$@"', "sh"])
    check_judged(case, done)
    check_says(done, "sides are stopped by signals", "steps: calls of serve::Server::handle in subject, 40 a launch")
    assert interleave(case) == "steps" and case.rows(STEPS) == [(40,)], str(done)


def test_workers(case):
    """Each is a rank, held at the same step."""
    program(case, "workers", HANDLE)
    done = case.run()
    check_judged(case, done)
    check_says(done, "steps: calls of serve::Server::handle in subject, 40 a rank, 2 ranks")
    held = case.rows("SELECT max(last) - min(last) FROM (SELECT launch_id, rank, max(idx) AS last FROM step "
                     "GROUP BY launch_id, rank)")
    assert held == [(0,)], held


def test_a_name_that_matches_nothing(case):
    program(case, "serve", "symbol:serve::Server::hande", gate=WHOLE)
    check_whole(case, "no function 'serve::Server::hande'", "near: serve::Server::handle")


def test_a_function_of_one_side_only(case):
    sh = case.write("start.sh", "#!/bin/sh\nexec %s/$WHICH serve 40 1500\n" % FOLDER, 0o755)
    case.plan({"command": [sh], "step": HANDLE}, {"env": {"WHICH": "subject"}}, {"env": {"WHICH": "stripped"}}, gate=WHOLE)
    check_whole(case, "no function 'serve::Server::handle'", "on side 'new'")


def test_several_functions_of_one_name(case):
    program(case, "twice", "symbol:twice", count=10, gate=WHOLE)
    check_whole(case, "'twice' is 2 functions: ", "_ZL5twicei in subject", "_ZL5twicel in subject")


def test_a_function_that_is_called_too_often(case):
    """As long as the others take: a program of 3 ms is judged by who else was on the CPU."""
    program(case, "tiny", "symbol:serve::tiny", count=100000000, us=0, gate=WHOLE)
    check_whole(case, "is called more than 25000 times a second")


def test_workers_that_share_what_there_is_to_do(case):
    """One of them makes a call and no more: nobody waits for it until the timeout."""
    program(case, "uneven", HANDLE, gate=WHOLE, timeout="60s")
    check_whole(case, "makes no calls of 'serve::Server::handle' while process")


def test_a_call_that_never_comes_back_for_a_second(case):
    program(case, "serve", HANDLE, count=1, us=50000, gate=WHOLE)
    check_whole(case, "calls of serve::Server::handle in subject comes 1 time only")


def test_a_rank_that_dies(case):
    program(case, "die", HANDLE)
    done = case.run()
    check_code(done, 1, 3, 4)
    assert case.pairs() == 0 and case.pairs("failed") > 0, str(done)
    check_says(done, "was ended by signal 11")


def states(case):
    return [text.rsplit(") ", 1)[1] for text in ab_rig.processes(case.mark) if "(subject)" in text]


def test_killed_while_it_holds(case):
    """kill -9 at any moment: what stands still is ended, and nothing is left."""
    program(case, "serve", HANDLE, count=2000)
    process = case.start("ab", case.plan_path, "-o", case.db_path)
    deadline = time.monotonic() + 30
    while "T" not in states(case):
        assert time.monotonic() < deadline and process.poll() is None, "no side was held"
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    case.finish(process)  # check_clean


def test_somebody_lets_it_go(case):
    """SIGCONT from elsewhere: the cuts are wrong from then on, and are not judged by."""
    program(case, "serve", HANDLE, count=100, gate=WHOLE)
    over = threading.Event()

    def meddle():
        while not over.is_set():
            for text in os.listdir("/proc"):
                try:
                    if text.isdigit() and os.readlink("/proc/%s/exe" % text) == os.path.join(FOLDER, "subject"):
                        os.kill(int(text), signal.SIGCONT)
                except OSError:
                    pass
            time.sleep(0.005)

    thread = threading.Thread(target=meddle)
    thread.start()
    try:
        done = case.run()
    finally:
        over.set()
        thread.join()
    check_code(done, 0, 3)
    check_says(done, "was let go at its gate by somebody else")
    if interleave(case) == "slices":
        check_says(done, "judged on total time")
    else:  # the first pairs were not hit (the machine is busy): they are not judged by either
        assert done.code == 3 and case.value("SELECT count(*) FROM cell WHERE verdict IN ('pass', 'fail')") == 0, str(done)


if __name__ == "__main__":
    why = needs.lacks() or (None if os.geteuid() == 0 else "not root") or (None if calls_rig.COMPILER else "no compiler of C++")
    if why:
        print("skipped:", why)
        sys.exit(77)
    FOLDER = calls_rig.build()
    ab_rig.main(globals(), certificates=False)
