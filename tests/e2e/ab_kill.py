#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate ab` ended from outside at any moment: kill -9 at random moments and while a side is frozen, SIGINT,
SIGTERM, a killed guardian. The store stays readable with whole pairs only, nothing stays alive or frozen, and
--resume comes to the verdict with the earlier pairs byte by byte."""
import contextlib
import os
import random
import signal
import subprocess
import time

import ab_rig
from ab_rig import CLEAN_S, SH, WORK, Skip, cgroup_parents, check_code, check_judged, check_says, processes, \
    wait_for_process
from ab_store import check_kept, earlier, wait_for_pairs

SEED, KILLS = 20240607, 15
MODEL = {"model": "dlrm", "steps": 30, "size": "small"}
SLOW = {"command": [SH, "-c", "sleep 0.3; " + WORK]}
SLOWER = {"command": [SH, "-c", "sleep 1; " + WORK]}  # a run of few pairs that is still there when its first one has been seen


def has_run(case):
    return os.path.exists(case.db_path) and case.rows("SELECT 1 FROM sqlite_master WHERE name = 'run'") and \
        case.rows("SELECT 1 FROM run")


def go_on(case, **options):
    return case.start("ab", "--resume", case.db_path, **options) if has_run(case) else \
        case.start("ab", case.plan_path, "-o", case.db_path, **options)


def kill_at_random(case, workload, longest_s, **schedule):
    """Kills and resumes, again and again, and then lets it come to its end."""
    dice = random.Random(SEED)
    case.plan(workload, looks=[40], **schedule)
    case.plan(workload, looks=[9], **schedule)
    stored = 0
    for _ in range(KILLS):
        before = earlier(case) if has_run(case) else None
        process = go_on(case)
        # The square: as many in the first moments, where everything is made, as in the pairs.
        time.sleep(longest_s * dice.random() ** 2)
        process.kill()
        case.finish(process)
        if before:
            check_kept(case, before)
        stored = case.pairs() if has_run(case) else 0
    before = earlier(case) if has_run(case) else None
    done = case.finish(go_on(case))
    check_judged(case, done)
    if before:
        check_kept(case, before)
    indices = [idx for idx, in case.rows("SELECT idx FROM pair WHERE phase = 'main' ORDER BY id")]
    assert indices == list(range(len(indices))), indices
    return stored


def test_kill_at_random_in_turns_of_steps(case):
    kill_at_random(case, MODEL, 0.5)


def test_kill_at_random_in_slices(case):
    kill_at_random(case, {"command": [SH, "-c", WORK + "; sleep 0.05 & wait"]}, 0.4)


def frozen(pid):
    """Groups of a run that are frozen now."""
    found = []
    for parent in cgroup_parents():
        names = os.listdir(parent) if os.path.isdir(parent) else []
        base = [name for name in names if name.startswith("upgate-%d-" % pid)]
        for name in base:
            for launch in os.listdir(os.path.join(parent, name)):
                for file, word in (("cgroup.events", "frozen 1"), ("freezer.state", "FROZEN")):
                    try:
                        with open(os.path.join(parent, name, launch, file)) as state:
                            found += [launch] if word in state.read() else []
                    except OSError:
                        pass
    return found


def models_that_wait(case, launches):
    """Models of which all launches but the first ones wait while the file 'wait' is there: a run cannot be over before it is interrupted."""
    os.mkdir(case.path("launched"))
    case.write("wait", "")
    os.mkdir(case.path("waiting"))
    case.write("waiting/dlrm", """#!/bin/sh
count() { echo $#; }
: >"%s/$$"
while [ -e "%s" ] && [ "$(count "%s"/*)" -gt %d ]; do sleep 0.05; done
exec "%s/dlrm" "$@"
""" % (case.path("launched"), case.path("wait"), case.path("launched"), launches, ab_rig.NATIVE), 0o755)
    return {"models": case.path("waiting")}


def stopped(case):
    return [text for text in processes(case.mark) if text.endswith(" T")]


def kill_while_frozen(case, is_frozen, **options):
    case.plan(SLOWER, interleave="slices", block="50ms")
    process = case.start("ab", case.plan_path, "-o", case.db_path, **options)
    deadline = time.monotonic() + 60
    while not is_frozen(process):
        assert time.monotonic() < deadline and process.poll() is None, "no side was ever frozen"
    process.kill()
    case.finish(process)


def test_kill_while_a_side_is_frozen(case):
    if not any(os.access(parent, os.W_OK) for parent in cgroup_parents()):
        raise Skip("no cgroup can be made here")
    kill_while_frozen(case, lambda process: frozen(process.pid))
    check_judged(case, case.resume())


def test_kill_while_a_side_is_stopped_by_signals(case):
    without = without_cgroups()
    kill_while_frozen(case, lambda process: stopped(case), command=without)
    done = case.resume(command=without)
    check_judged(case, done)
    assert case.rows("SELECT DISTINCT json_extract(covariates, '$.freezer') FROM launch") == [("signals",)]


def test_kill_while_children_without_the_mark_are_stopped(case):
    """They cleared their environment, and there is no cgroup: their keeper knows them by descent."""
    name = "rig-%s" % case.mark[-8:]
    case.plan({"command": ["bash", "-c", "env -i bash -c 'exec -a %s sleep 1000' & sleep 2; %s" % (name, WORK)]},
              interleave="slices", block="50ms")
    process = case.start("ab", case.plan_path, "-o", case.db_path, command=without_cgroups())
    deadline = time.monotonic() + 60

    def children(*words):
        return subprocess.run(["pgrep", *words, "-f", "^" + name], stdout=subprocess.PIPE).stdout.split()
    while not children("-r", "T"):
        assert time.monotonic() < deadline and process.poll() is None, "none was ever stopped"
    process.kill()
    case.finish(process)
    deadline = time.monotonic() + CLEAN_S
    while children() and time.monotonic() < deadline:
        time.sleep(0.02)
    left = children()
    for pid in left:
        os.kill(int(pid), signal.SIGKILL)
    assert not left, "%d live on" % len(left)


def test_kill_while_a_side_is_frozen_by_the_first_freezer(case):
    """Cgroup v1: a frozen process cannot even be killed before it is thawed."""
    hide = with_the_first_freezer()
    kill_while_frozen(case, lambda process: frozen(process.pid), command=hide)
    done = case.resume(command=hide)
    check_judged(case, done)
    means = case.rows("SELECT DISTINCT json_extract(covariates, '$.freezer') FROM launch")
    if means != [("cgroup v1 freezer",)]:
        raise Skip("no cgroup v1 freezer here: %s" % means)


def test_kill_with_its_guardian_while_frozen_by_the_first_freezer(case):
    """The keepers are left: what they keep must neither live nor stay frozen until somebody starts upgate again."""
    hide = with_the_first_freezer()
    case.plan(SLOW, interleave="slices", block="50ms")
    process = case.start("ab", case.plan_path, "-o", case.db_path, command=hide)
    deadline = time.monotonic() + 60
    while not frozen(process.pid):
        assert time.monotonic() < deadline and process.poll() is None, "no side was ever frozen"
    guardians = [text for text in processes(case.mark) if "(ug-guardian)" in text]
    for pid in [process.pid] + [int(text.split()[0]) for text in guardians]:
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + CLEAN_S
    while processes(case.mark) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not processes(case.mark), processes(case.mark)
    check_judged(case, case.resume(command=hide))


def test_upgate_is_stopped_for_a_while(case):
    """Ctrl-Z and fg: the run goes on."""
    case.plan(MODEL, looks=[4])
    process = case.start("ab", case.plan_path, "-o", case.db_path)
    wait_for_pairs(case, 1)
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    process.send_signal(signal.SIGCONT)
    check_judged(case, case.finish(process))


def without_cgroups():
    """Words before a command that hide the cgroups from it: turns are then made by signals."""
    return hiding("cgroup,cgroup2")


def with_the_first_freezer():
    with open("/proc/mounts") as mounts:
        words = [line.split() for line in mounts]
    if not any(word[2] == "cgroup" and "freezer" in word[3].split(",") for word in words):
        raise Skip("no cgroup v1 freezer here")
    return hiding("cgroup2")


def hiding(kinds):
    hide = ["unshare", "-m", SH, "-c", "umount -a -t %s 2>/dev/null; exec \"$@\"" % kinds, "sh"]
    if os.geteuid() != 0 or subprocess.run(hide + ["true"], stderr=subprocess.DEVNULL).returncode:
        raise Skip("cgroups can be hidden by root only")
    return hide


def end_by(case, number, workload, **schedule):
    case.plan(workload, looks=[100], **schedule)
    process = case.start("ab", case.plan_path, "-o", case.db_path, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    wait_for_pairs(case, 1)
    time.sleep(0.1)
    started = time.monotonic()
    process.send_signal(number)
    done = case.finish(process)
    assert time.monotonic() - started < CLEAN_S, "took %.1f s to end" % (time.monotonic() - started)
    check_code(done, 3)
    check_says(done, "interrupted", "--resume")
    assert case.value("SELECT state FROM run") == "interrupted"
    assert case.value("SELECT writer_pid FROM run") is None
    check_code(case.run("gate", case.db_path), 3)
    return done


def test_signals_that_end_a_run(case):
    for number, workload, interleave in ((signal.SIGINT, MODEL, "steps"), (signal.SIGTERM, SLOW, "slices"),
                                         (signal.SIGHUP, SLOW, "launches")):
        end_by(case, number, workload, interleave=interleave)
        os.unlink(case.db_path)


def test_a_signal_for_all_processes(case):
    """As Slurm sends it: the side, here the last one of its pair, is gone before upgate looks. That is an interruption, and no failure of the side."""
    os.mkdir(case.path("launched"))
    waits = "[ $(ls '{0}' | wc -l) -ne 3 ] || sleep 60; : >'{0}'/$$; ".format(case.path("launched"))
    case.plan({"command": [SH, "-c", waits + WORK], "steps_from": "off"}, looks=[100], interleave="launches", timeout="100s")
    process = case.start("ab", case.plan_path, "-o", case.db_path)
    wait_for_process(case, process, "sleep")
    process.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + CLEAN_S
    while sides := [text for text in processes(case.mark) if "(sh)" in text or "(sleep)" in text]:
        assert time.monotonic() < deadline, sides
        for text in sides:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(text.split()[0]), signal.SIGINT)
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    done = case.finish(process)
    check_code(done, 3)
    check_says(done, "interrupted", "--resume")
    assert case.value("SELECT state FROM run") == "interrupted" and case.pairs("failed") == 0, str(done)


def test_a_hang_up_that_nohup_ignores(case):
    """The terminal goes, and the run goes on."""
    case.plan(MODEL, looks=[6])
    process = case.start("ab", case.plan_path, "-o", case.db_path, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    wait_for_pairs(case, 1)
    process.send_signal(signal.SIGHUP)
    check_judged(case, case.finish(process))


def test_interrupted_run_goes_on(case):
    models = models_that_wait(case, 2)
    case.plan(MODEL, models, models, looks=[6])
    process = case.start("ab", case.plan_path, "-o", case.db_path)
    wait_for_pairs(case, 1)
    process.send_signal(signal.SIGINT)
    check_code(case.finish(process), 3)
    before = earlier(case)
    os.unlink(case.path("wait"))
    check_judged(case, case.resume())
    check_kept(case, before)


def interrupt_after(case, process, pairs):
    wait_for_pairs(case, pairs)
    process.send_signal(signal.SIGINT)
    check_code(case.finish(process), 3)


def test_a_side_that_is_upgraded_meanwhile(case):
    """Pairs of another stack are not put beside those that are there."""
    def install(version):
        case.write("site/thing-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: %s\n" % version)

    os.makedirs(case.path("site", "thing-1.dist-info"))
    install("1.0")
    case.write("work.py", "import upgate\nfor _ in upgate.steps(range(20), samples=1):\n    sum(range(3000))\n")
    case.plan({"command": ["{python}", case.path("work.py")], "steps": 20}, {"python": "python3"},
              {"python": "python3", "env": {"SIDE": "b", "PYTHONPATH": case.path("site")}}, looks=[30])
    interrupt_after(case, case.start("ab", case.plan_path, "-o", case.db_path), 1)
    assert case.value("SELECT json_extract(fingerprint, '$.python.packages.thing') FROM side WHERE id = 1") == "1.0"
    before = earlier(case)
    install("2.0")
    done = case.resume()
    check_code(done, 4)
    check_says(done, "side 'new' is not what this run has begun with: package thing is 2.0, was 1.0", "start a new run")
    assert earlier(case) == before and case.value("SELECT state FROM run") == "interrupted"
    install("1.0")
    interrupt_after(case, go_on(case), len(before["pair"]) + 1)
    check_kept(case, before)


def test_a_side_that_is_not_there_for_a_while(case):
    """Said each time, and no failure of that side: once it is back the run goes on."""
    os.symlink(SH, case.path("shell"))
    case.plan({"command": ["{python}", "-c", "sleep 1; " + WORK], "steps_from": "off"}, {"python": SH},
              {"python": case.path("shell")}, looks=[4], interleave="launches")
    interrupt_after(case, case.start("ab", case.plan_path, "-o", case.db_path), 1)
    before = earlier(case)
    os.rename(case.path("shell"), case.path("gone"))
    for _ in range(2):
        done = case.resume()
        check_code(done, 4)
        check_says(done, "side 'new'", case.path("shell"), "No such file")
        assert earlier(case)["pair"] == before["pair"]
    assert case.value("SELECT count(*) FROM note WHERE text LIKE 'a pair was not made: %No such file%'") == 2
    os.rename(case.path("gone"), case.path("shell"))
    check_judged(case, case.resume())
    check_kept(case, before)


def test_a_baseline_that_is_not_there_for_a_while_in_its_control(case):
    """The second control launch takes it away: control pairs are made of it, and none that was not made is a failed one."""
    os.symlink(SH, case.path("shell"))
    os.mkdir(case.path("launched"))
    takes = ": >'{0}'/$$; [ $(ls '{0}' | wc -l) -ne 8 ] || mv '{1}' '{2}'; ".format(case.path("launched"), case.path("shell"), case.path("gone"))
    case.plan({"command": ["{python}", "-c", takes + "; ".join([WORK] * 3)], "steps_from": "off"}, {"python": case.path("shell")}, {"python": SH},
              interleave="slices", gate={"calibrate": "auto"})
    env = {"UPGATE_STATE_DIR": case.path("none")}  # no certificate of this machine
    done = case.run(env=env)
    check_code(done, 4)
    check_says(done, "side 'old'", case.path("shell"), "No such file")
    assert case.pairs() == 3 and case.value("SELECT count(*) FROM pair WHERE phase = 'control'") == 1, str(done)
    assert case.value("SELECT count(*) FROM note WHERE text LIKE 'a pair was not made: %No such file%'") == 1
    before = earlier(case)
    os.rename(case.path("gone"), case.path("shell"))
    done = case.resume(env=env)
    check_code(done, 0, 3)
    assert case.value("SELECT state FROM run") == "done" and case.value("SELECT count(*) FROM pair WHERE state = 'failed'") == 0, str(done)
    assert case.value("SELECT count(*) FROM pair WHERE phase = 'control' AND state = 'valid'") >= 3, str(done)
    check_kept(case, before)


def test_interrupted_before_the_first_pair(case):
    """No data never ends in 0."""
    case.plan({"command": [SH, "-c", "sleep 60; true"]})
    process = case.start("ab", case.plan_path, "-o", case.db_path)
    wait_for_process(case, process, "sleep")
    process.send_signal(signal.SIGINT)
    check_code(case.finish(process), 3)
    assert case.pairs() == 0


def test_interrupted_while_a_side_hangs_at_its_start(case):
    case.plan({"command": ["{python}", "-c", "import time; time.sleep(100)"]}, {"python": "python3"},
              {"python": "python3"}, interleave="steps")
    process = case.start("ab", case.plan_path, "-o", case.db_path)
    wait_for_process(case, process, "python3")
    process.terminate()
    check_code(case.finish(process), 3)


def test_interrupted_in_its_control(case):
    """Control pairs are pairs: what is there stays, and --resume makes the rest."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        case.plan(MODEL, looks=[12], gate={"calibrate": "auto"})
        env = {"UPGATE_STATE_DIR": case.path("none-%d" % number)}
        process = case.start("ab", case.plan_path, "-o", case.db_path, env=env)
        wait_for_pairs(case, 2, "control")
        started = time.monotonic()
        process.send_signal(number)
        done = case.finish(process)
        assert time.monotonic() - started < CLEAN_S
        check_code(done, 3 if number == signal.SIGTERM else -9)
        assert case.value("SELECT count(*) FROM control") == 0, "certified before its control was over"
        done = case.resume(env=env)
        check_code(done, 0, 3)
        assert case.value("SELECT count(*) FROM pair WHERE phase = 'control' AND state = 'valid'") >= 12, done
        assert case.value("SELECT count(*) FROM control WHERE metric = 'cpu_time' AND held_pairs >= 12") == 1, done
        os.unlink(case.db_path)


def test_the_guardian_is_killed(case):
    """A new one takes its place; without upgate, that one cleans up."""
    case.plan(SLOWER, looks=[4])
    process = case.start("ab", case.plan_path, "-o", case.db_path)
    wait_for_pairs(case, 1)
    killed = 0
    for text in processes(case.mark):
        if "(ug-guardian)" in text:
            os.kill(int(text.split()[0]), signal.SIGKILL)
            killed += 1
    assert killed == 1
    wait_for_pairs(case, 3)
    process.kill()
    case.finish(process)
    check_judged(case, case.resume())


def test_what_a_dead_upgate_left_is_swept(case):
    """Upgate, its guardian and its keepers killed together: the next run ends and removes what they left."""
    case.plan({"command": [SH, "-c", "sleep 60; true"]}, interleave="slices")
    process = case.start("ab", case.plan_path, "-o", case.db_path)
    wait_for_process(case, process, "sleep")
    for text in sorted(processes(case.mark), key=lambda text: "guardian" not in text):
        if "(upgate" in text or "(ug-" in text:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(text.split()[0]), signal.SIGKILL)
    process.communicate()
    first = case.pids.pop()
    case.plan({"command": [SH, "-c", WORK]})
    os.unlink(case.db_path)
    check_judged(case, case.run(clean=False))
    case.pids.append(first)
    case.check_clean()


if __name__ == "__main__":
    ab_rig.main(globals())
