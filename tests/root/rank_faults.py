#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate rank` in front of workers that are small: the worker is as it would be without, whatever becomes of its recorder. Real recordings; skipped
where nothing can be recorded."""
import os
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import needs  # noqa: E402
import rank_rig as rig  # noqa: E402

# Prints what a worker may notice: its pid, parent, children, session, descriptors, signals, environment.
LOOK = """
import os, signal, sys
print(os.getpid(), os.getppid(), os.getsid(0), sorted(os.listdir('/proc/self/fd')), os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0))
print([(n, str(signal.getsignal(n))) for n in (signal.SIGPIPE, signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGXFSZ, signal.SIGCHLD)])
print(open('/proc/self/oom_score_adj').read().strip(), os.umask(0), os.getcwd())
try:
    os.waitpid(-1, os.WNOHANG)
    print('a child')
except ChildProcessError:
    print('no child')
"""


def case_worker_is_as_without(folder):
    """In the same pid, with its output, its exit code and its signals, and with no child of ours."""
    plain = rig.run(sys.executable, "-c", LOOK).stdout.splitlines()
    with open(os.devnull, encoding="utf-8") as null:
        worker = rig.rank(folder, sys.executable, "-c", LOOK, env=rig.environment(RANK=0, WORLD_SIZE=1), stdin=null)
    stdout, stderr = worker.communicate(timeout=60)
    ours = stdout.splitlines()
    assert int(ours[0].split()[0]) == worker.pid, "the worker is another process"
    assert ours[0].split()[1:] == [str(os.getpid())] + plain[0].split()[2:], (ours[0], plain[0])
    assert ours[1:] == plain[1:] and stderr == "", (ours, plain, stderr)
    signals = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"]
    for restores in (False, True): # Python ignores SIGPIPE and SIGXFSZ, and so do its children unless it restores them
        plain = subprocess.run(signals, stdout=subprocess.PIPE, restore_signals=restores, text=True).stdout
        worker = rig.rank(folder, *signals, env=rig.environment(RANK=0, WORLD_SIZE=1), restore_signals=restores)
        assert worker.communicate(timeout=60)[0] == plain, "signals are others"
    worker = rig.rank(folder, "sh", "-c", "exit 7", env=rig.environment(RANK=0, WORLD_SIZE=1))
    assert worker.communicate(timeout=60) == ("", "") and worker.returncode == 7, worker.returncode
    worker = rig.rank(folder, "/nonexistent/program", env=rig.environment(RANK=0, WORLD_SIZE=1))
    assert "failed to start '/nonexistent/program'" in worker.communicate(timeout=60)[1] and worker.returncode == 4
    rig.await_end(folder)
    path = os.path.join(folder, "RANK", "0-0.db")
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert [row[0] for row in rig.rows(path, "PRAGMA journal_mode")] == ["delete"], "a write-ahead log on a network file system"


def case_first_process_of_a_container(folder):
    """Orphans are its children, and so is the recorder: that is told, to no other worker."""
    words = [rig.UPGATE, "rank", "-o", folder, "--dry-run", "--", "true"]
    env = rig.environment(RANK=0, WORLD_SIZE=1)
    for before, told in ((["unshare", "--pid", "--fork"], True), ([], False)):
        done = rig.run(*before, *words, env=env)
        assert done.returncode == 0 and "would record rank 0 of 1" in done.stderr, done
        assert ("process 1 of its container" in done.stderr) == told, done


def case_output_is_not_held_open(folder):
    """A launcher waits for the end of the worker's output: the recorder, which lives longer, holds none of it."""
    worker = rig.rank(folder, "sh", "-c", "exec >/dev/null 2>&1; " + rig.WORK % 400, env=rig.environment(RANK=0, WORLD_SIZE=1))
    begin = time.monotonic()
    worker.stdout.read(), worker.stderr.read()
    assert worker.poll() is None, "its output ended with it only, after %.1f s" % (time.monotonic() - begin)
    assert rig.recorders(folder)
    worker.kill()
    worker.communicate()
    rig.await_end(folder)


def case_signals_of_the_launcher(folder):
    """What is sent to the process group ends the worker; the recorder writes the end."""
    worker = rig.rank(folder, "sh", "-c", rig.WORK % 200, env=rig.environment(RANK=0, WORLD_SIZE=1), start_new_session=True)
    path = os.path.join(folder, "RANK", "0-0.db")
    rig.await_shard(path)
    for pid in rig.recorders(folder): # scancel signals every process of a step
        os.kill(pid, signal.SIGTERM)
    os.killpg(worker.pid, signal.SIGTERM)
    worker.communicate(timeout=60)
    assert worker.returncode == -signal.SIGTERM
    rig.await_end(folder)
    assert rig.rows(path, "SELECT state FROM run") == [("done",)], (rig.rows(path, "SELECT state FROM run"), rig.shards(folder), rig.recorders(folder))
    assert rig.rows(path, "SELECT exit_code FROM process WHERE tgid = ? AND kind = 'target'", worker.pid) == [(signal.SIGTERM,)]


def case_killed_at_any_moment(folder):
    """The worker, or its recorder, by SIGKILL: the other goes on or ends, and a shard that is there can be read."""
    for number, (after_s, of_recorder) in enumerate([(0.05, True), (0.4, False), (1.2, True), (1.7, False)]):
        place = os.path.join(folder, "k%d" % number)
        worker = rig.rank(place, "sh", "-c", rig.WORK % 200, env=rig.environment(RANK=0, WORLD_SIZE=1))
        time.sleep(after_s)
        for pid in rig.recorders(place) if of_recorder else [worker.pid]:
            os.kill(pid, signal.SIGKILL)
        if of_recorder:
            time.sleep(0.3)
            assert worker.poll() is None, "the worker has ended with its recorder"
            worker.kill()
        worker.communicate(timeout=60)
        rig.await_end(place)
        for name in rig.shards(place):
            if name.endswith(".db") and os.path.getsize(os.path.join(place, name)):
                assert rig.rows(os.path.join(place, name), "PRAGMA integrity_check") == [("ok",)]
        code, document, stderr = rig.merge(place, os.path.join(folder, "k.db"))
        assert code == 0 and document["ranks"] == 1 or code == 2 and "'" in stderr, (code, stderr)


def case_recorder_that_hangs(folder):
    """As on a directory that does not answer: the worker waits for 20 s and runs, and its shard begins when the recorder goes on."""
    for number in range(20):
        place = os.path.join(folder, "h%d" % number)
        go, begin = place + ".go", time.monotonic()
        worker = rig.rank(place, "sh", "-c", "echo runs; " + rig.UNTIL % go, env=rig.environment(RANK=0, WORLD_SIZE=1))
        while not (stopped := rig.recorders(place)) and time.monotonic() < begin + 15:
            pass
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2)
        if stopped and rig.lives(worker.pid): # it waits
            break
        for pid in stopped: # it was ready before it was stopped, and hangs too late
            os.kill(pid, signal.SIGCONT)
        worker.kill()
        worker.communicate()
        rig.await_end(place)
    try:
        assert worker.stdout.readline() == "runs\n" and 15 < time.monotonic() - begin < 60, time.monotonic() - begin
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    path = os.path.join(place, "RANK", "0-0.db")
    rig.await_shard(path)
    with open(go, "w", encoding="utf-8"):
        pass
    _, stderr = worker.communicate(timeout=60)
    assert worker.returncode == 0 and "is not ready after 20 s" in stderr and stderr.count("\n") == 1, stderr
    rig.await_end(place)
    assert rig.rows(path, "SELECT state FROM run") == [("done",)]


def case_from_inside(folder):
    """upgate.rank(): who it is stands in os.environ only, and what the outer launcher says of the process is wrong."""
    script = ("import os, sys, time, upgate\nos.environ.update(RANK=sys.argv[1], WORLD_SIZE='2')\nassert upgate.rank(sys.argv[2], 'ray')\n"
              "try:\n    os.waitpid(-1, os.WNOHANG)\n    print('a child')\nexcept ChildProcessError:\n    pass\n"
              "for i in range(12):\n    time.sleep(0.1)")
    env = rig.environment(SLURM_PROCID=0, SLURM_NTASKS=3, PYTHONPATH=os.path.join(rig.BUILD, "python"))
    for number in range(2):
        done = rig.run(sys.executable, "-c", script, str(number), folder, env=env)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done
    rig.await_end(folder)
    store = os.path.join(folder, "run.db")
    code, document, stderr = rig.merge(folder, store)
    assert code == 0 and document["ranks"] == 2 and not document["missing"], (code, document, stderr)
    ranks = rig.rows(store, "SELECT j.value ->> 'rank', j.value ->> 'ranks' FROM recording r, json_each(r.target, '$.ranks') j WHERE j.value ->> 'pid' "
                     "IN (SELECT value FROM json_each(r.target, '$.pids')) ORDER BY 1")
    assert ranks == [(0, 2), (1, 2)], ranks
    nobody = "import upgate, sys; print(upgate.rank(sys.argv[1])); print('runs')"
    with open(os.path.join(folder, "file"), "w", encoding="utf-8"):
        pass
    done = rig.run(sys.executable, "-c", nobody, os.path.join(folder, "file"), env=dict(env, RANK="0", WORLD_SIZE="2"))
    assert (done.returncode, done.stdout) == (0, "False\nruns\n") and "rank 0 of 2 is not recorded: failed to make directory" in done.stderr, done


def case_from_inside_again(folder):
    """A process that is had by one job after the other, as a worker of Ray is: a shard of each, whole when rank_end() returns, with its steps, by the
    rank that was said, whatever the environment says."""
    script = ("import os, sys, time, upgate, upgate._rank\nupgate._rank._ray = lambda: 'session.01'\n"
              "for number, rank in enumerate((1, 1, 0)):\n    assert upgate.rank(sys.argv[1], rank=rank, world_size=2)\n"
              "    for i in upgate.steps(range(10 + number)):\n        time.sleep(0.02)\n    upgate.rank_end()\n"
              "    print(*sorted(os.listdir(sys.argv[1] + '/session.01')))\n"
              "for i in upgate.steps(range(5)):\n    pass\n")
    env = rig.environment(SLURM_PROCID=0, SLURM_NTASKS=3, PYTHONPATH=os.path.join(rig.BUILD, "python"))
    done = rig.run(sys.executable, "-c", script, folder, env=env)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout == "0-1.db\n0-1.db 1-1.db\n0-1.db 1-0.db 1-1.db\n", done.stdout
    for name, steps, rank in (("0-1", 10, 1), ("1-1", 11, 1), ("1-0", 12, 0)):
        path = os.path.join(folder, "session.01", name + ".db")
        assert rig.rows(path, "SELECT count(*), min(rank), max(rank), min(idx) FROM recorded_step") == [(steps, rank, rank, 0)], name
        assert rig.rows(path, "SELECT state FROM run") == [("done",)]
    assert not rig.recorders(folder), "a recorder is left"


def case_cannot_record(folder):
    """No directory, a full disk: the worker runs, the reason is said once, and stands in the shard's place where it can."""
    with open(os.path.join(folder, "file"), "w", encoding="utf-8") as file:
        file.write("no directory")
    worker = rig.rank(os.path.join(folder, "file"), "sh", "-c", "echo runs; exit 3", env=rig.environment(RANK=1, WORLD_SIZE=4))
    stdout, stderr = worker.communicate(timeout=60)
    assert (worker.returncode, stdout) == (3, "runs\n") and stderr.count("\n") == 1, (stdout, stderr)
    assert "rank 1 of 4 runs without being recorded: failed to make directory" in stderr, stderr
    limited = "ulimit -f 40; exec \"$@\"" # blocks of 512 or 1,024 bytes: the shard does not fit
    done = rig.run("sh", "-c", limited, "sh", rig.UPGATE, "rank", "-o", folder, "--", "sh", "-c", "echo runs; exit 3",
                   env=rig.environment(RANK=1, WORLD_SIZE=4))
    assert (done.returncode, done.stdout) == (3, "runs\n") and "runs without being recorded" in done.stderr, done
    assert done.stderr.count("\n") == 1, done.stderr
    assert rig.shards(os.path.join(folder, "RANK")) == ["0-1.why"], rig.shards(folder)


sys.exit(rig.main(globals(), needs.lacks()))
