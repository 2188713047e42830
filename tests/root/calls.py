#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate record --step symbol:NAME`: calls of a native function as steps, of a command and of a process that runs, whatever the program
does with its stack; what it does is not changed by that. `--trigger` and the comparison of ranks work with them. What
matches nothing is said with what is near. Skipped without root, capture or a compiler of C++."""
import glob
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import calls_rig  # noqa: E402
import needs  # noqa: E402

UPGATE = os.path.join(os.environ["UPGATE_BUILD"], "upgate")
WAIT_S = 60
# A recording stops nothing: the breakpoint at the function stands some 20 ms after the exec, that where it returns as long after the first
# call; a busy machine may hold up the recorder for half a second. So the program waits, and its first call is long.
COUNT, STEP_US, PAUSE = 30, 2000, {"PAUSE_MS": "1500", "FIRST_MS": "1200"}


def record(folder, *words, **env):
    store = os.path.join(folder, "run.db")
    for path in glob.glob(store + "*"):
        os.unlink(path)
    done = subprocess.run([UPGATE, "record", "-o", store, "--gpu", "off", "--sample-hz", "0"] + list(words), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=WAIT_S, env=dict(os.environ, **PAUSE, **env))
    return done, store


def rows(store, sql):
    db = sqlite3.connect(store)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def check_record(folder, how, step, says, ranks=1, program="subject", steps=COUNT, **env):
    done, store = record(folder, "--step", step, "--", os.path.join(folder, program), how, str(COUNT), str(STEP_US), **env)
    assert done.returncode == 0 and "done %d" % COUNT in done.stdout, "the program was disturbed: " + done.stdout
    assert says in done.stdout, done.stdout
    found = rows(store, "SELECT rank, count(*), min(idx), max(idx), min(dur_ns) FROM recorded_step GROUP BY rank ORDER BY rank")
    assert [row[:4] for row in found] == [(rank, steps, 0, steps - 1) for rank in range(ranks)], (how, found, done.stdout)
    assert all(row[4] >= STEP_US * 900 for row in found), found
    assert says in [text for text, in rows(store, "SELECT text FROM note")][-1]


def test_what_programs_do_with_their_stack(folder):
    library = os.path.join(folder, "libserve.so.1.2")
    for how, step, name in (("serve", "symbol:serve::Server::handle", "serve::Server::handle in subject"),
                            ("walk", "symbol:subject:serve::walk", "serve::walk in subject"),  # it calls itself: the outermost counts
                            ("refuse", "symbol:serve::refuse", "serve::refuse in subject"),  # an exception
                            ("tail", "symbol:serve::tail", "serve::tail in subject"),  # its last call is a jump
                            ("load", "symbol:process_batch", "process_batch in libserve.so.1.2"),
                            ("load", "symbol:libserve.so.1:process_batch", "process_batch in libserve.so.1.2")):
        check_record(folder, how, step, "steps: calls of %s, %d in 1 process" % (name, COUNT), LIBRARY=library)


def test_two_threads(folder):
    """Of calls at one time the first counts; one that begins when no other is open, counts, whoever makes it."""
    done, store = record(folder, "--step", "symbol:serve::Server::handle", "--", os.path.join(folder, "subject"), "threads", str(COUNT), str(STEP_US))
    assert "done %d" % COUNT in done.stdout, done.stdout
    found = rows(store, "SELECT begin_ns, begin_ns + dur_ns FROM recorded_step ORDER BY idx")
    # One call that is kept waiting for the CPU may outlast several of the other thread, which are no steps then.
    assert COUNT // 2 <= len(found) <= 2 * COUNT and all(a[1] <= b[0] for a, b in zip(found, found[1:])), (found, done.stdout)


def test_a_call_that_is_left_by_longjmp(folder):
    """It ends where the next one begins: the last one, which none follows, is no step."""
    check_record(folder, "jump", "symbol:serve::jump", "steps: calls of serve::jump in subject", steps=COUNT - 1)


def test_workers_are_ranks(folder):
    check_record(folder, "workers", "symbol:serve::Server::handle",
                 "steps: calls of serve::Server::handle in subject, %d in 2 processes" % (2 * COUNT), ranks=2)


def test_more_processes_than_have_room(folder):
    """They run on. A recording has stopped nobody, and sends nobody SIGCONT."""
    done, _ = record(folder, "--step", "symbol:serve::Server::handle", "--", os.path.join(folder, "subject"), "many", "2", "1000")
    assert done.returncode == 0 and "done 2" in done.stdout, "the program was disturbed: " + done.stdout
    assert "found no room beside" in done.stdout, done.stdout


def test_a_rank(folder):
    """Under `upgate rank`, whose worker becomes the program by itself."""
    shards = os.path.join(folder, "shards")
    done = subprocess.run([UPGATE, "rank", "-o", shards, "--job", "job", "--gpu", "off", "--step", "symbol:serve::Server::handle", "--",
                           os.path.join(folder, "subject"), "serve", str(COUNT), str(STEP_US)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=WAIT_S, env=dict(os.environ, RANK="0", WORLD_SIZE="1", **PAUSE))
    assert done.returncode == 0 and "done %d" % COUNT in done.stdout, done.stdout
    merged = subprocess.run([UPGATE, "merge", shards, "-o", os.path.join(folder, "merged.db")], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, timeout=WAIT_S)  # it waits for the recorder
    assert merged.returncode == 0 and ", %d steps" % COUNT in merged.stdout, merged.stdout


def test_what_is_not_there(folder):
    for program, how, step, says in (
            ("subject", "serve", "symbol:serve::Server::hande", "near: serve::Server::handle, serve::Server::handles"),
            ("subject", "serve", "symbol:libnone.so:handle", "no file 'libnone.so' among the"),
            ("subject", "twice", "symbol:twice", "'twice' is 2 functions: _ZL5twice"),
            ("stripped", "serve", "symbol:serve::Server::handle", "no function 'serve::Server::handle'"),
            ("subject", "tail", "symbol:serve::Server::handle", "calls of serve::Server::handle in subject: none came")):
        done, store = record(folder, "--step", step, "--", os.path.join(folder, program), how, str(COUNT), "100")
        assert done.returncode == 0 and "done %d" % COUNT in done.stdout, done.stdout
        assert "no steps by '%s': " % step in done.stdout and says in done.stdout, done.stdout
        assert rows(store, "SELECT count(*) FROM recorded_step") == [(0,)]


def test_one_of_two_by_its_mangled_name(folder):
    check_record(folder, "twice", "symbol:_ZL5twicel", "steps: calls of twice in subject, %d" % COUNT)


def test_a_name_of_libc_too(folder):
    """"step" is a function of libc, and that of the program is meant."""
    check_record(folder, "step", "symbol:step", "steps: calls of step in subject, %d" % COUNT)


def cpu_s():
    """Of all that we have started and that has ended; what others take of the machine is not in it."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def test_a_loop_that_runs_without_calls(folder):
    """A breakpoint behind the return would be met 16,384 times a call: it goes back to it; where that is of the loop, too, there is none."""
    for how, says in (("own", "steps: calls of poll_step in subject"), ("shared", "runs more than 8 times as often without it")):
        begin_s = cpu_s()
        done, store = record(folder, "--step", "symbol:poll_step", "--", os.path.join(folder, "subject"), how, "400", "1500")
        assert done.returncode == 0 and "done 400" in done.stdout, done.stdout
        assert cpu_s() - begin_s < 12, "%d polls took %.0f s of CPU time" % (400 * 16384, cpu_s() - begin_s)
        assert os.uname().machine != "x86_64" or says in done.stdout, done.stdout
        if how == "own":
            assert rows(store, "SELECT count(*) FROM recorded_step")[0][0] > 200, done.stdout


def test_bad_input(folder):
    own = str(os.getpid())
    for words, says in ((("--step", "symbol:", "--", "true"), "is no symbol:NAME"), (("--step", "symbol::f", "--", "true"), "is no symbol:NAME"),
                        (("--step", "symbol:a:b:c", "--", "true"), "is no symbol:NAME"),
                        (("--step", "symbol:f(int)", "--", "true"), "without its parameters"),
                        (("--step", "a.py:f", "--pid", own), "of a command"), (("--step", "symbol:f", "--cgroup", "/sys/fs/cgroup"), "of a cgroup"),
                        (("--step", "symbol:f", "--steps-from", "off", "--", "true"), "not with --steps-from")):
        done, store = record(folder, *words)
        assert done.returncode == 2 and says in done.stdout, (words, done.stdout)
        assert not os.path.exists(store)


def test_a_trigger_of_a_program_that_runs(folder):
    """A step 200 times as long as the others is kept; without one nothing is: a busy machine makes one of 10 ms last for half a second."""
    for slow in (True, False):
        target = subprocess.Popen([os.path.join(folder, "subject"), "serve", "100000", "10000"], stdout=subprocess.DEVNULL,
                                  env=dict(os.environ, SLEEPS="1", SLOW_EVERY="150" if slow else "0"))
        kept = os.path.join(folder, "slow" if slow else "even")
        try:
            time.sleep(0.3)
            watch = subprocess.Popen([UPGATE, "record", "--trigger", "step_time > 70x median", "--after", "100ms", "--duration", "60s" if slow else "7s",
                                      "--gpu", "off", "--step", "symbol:serve::Server::handle", "--pid", str(target.pid), "-o", kept + ".db"],
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            while slow and watch.poll() is None and not glob.glob(kept + "-*.db"):  # a look takes seconds on a busy machine
                time.sleep(0.1)
            if slow:
                watch.send_signal(signal.SIGINT)
            said, _ = watch.communicate(timeout=WAIT_S)
        finally:
            target.kill()
            target.wait()
        found = glob.glob(kept + "-*.db")
        assert watch.returncode == 0 and bool(found) == slow, (slow, watch.returncode, said)
        if slow:
            assert "times the median" in said, said
            assert rows(found[0], "SELECT count(*) FROM recorded_step")[0][0] > 50


def main():
    why = needs.lacks() or (None if os.geteuid() == 0 else "not root") or (None if calls_rig.COMPILER else "no compiler of C++")
    if why:
        print("skipped:", why)
        sys.exit(77)
    folder = calls_rig.build()
    tests = [(name, call) for name, call in globals().items() if name.startswith("test_") and all(word in name for word in sys.argv[1:])]
    for name, call in tests:
        begin = time.monotonic()
        call(folder)
        print("%-50s %5.1f s  ok" % (name, time.monotonic() - begin), flush=True)


if __name__ == "__main__":
    main()
