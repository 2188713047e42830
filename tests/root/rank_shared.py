#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate rank --shared`: one recorder for the ranks of a node and job, whichever of them ends, is killed, gives up or comes late, and whoever
else takes its name; what it stored, merged, reduced and queried. Real recordings; skipped where nothing can be recorded."""
import glob
import json
import os
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import needs  # noqa: E402
import rank_rig as rig  # noqa: E402


def shared(folder, number, of, length, job="job", until=None, **popen):
    """One of the ranks that share a recorder. until: a file, which it waits for."""
    return rig.rank(folder, "sh", "-c", rig.WORK % length + ("; " + rig.UNTIL % until if until else ""), options=("--shared",), **popen,
                    env=rig.environment(TORCHELASTIC_RUN_ID=job, TORCHELASTIC_RESTART_COUNT=0, RANK=number, WORLD_SIZE=of))


def target_of(path):
    return json.loads(rig.rows(path, "SELECT target FROM recording")[0][0])


def await_joined(path, ranks):
    """Until its recorder has stored that these joined, and no others."""
    deadline = time.monotonic() + 60
    while True:
        found = rig.rows(path, "SELECT target FROM recording")[0][0] # 0: it writes just now
        joined = json.loads(found).get("joined") if found else None
        if joined is not None and {one["rank"] for one in joined} == set(ranks):
            return
        assert time.monotonic() < deadline, (found, ranks)
        time.sleep(0.1)


def let_go(path):
    with open(path, "w", encoding="utf-8"):
        pass


def case_one_recorder(folder):
    """One recorder for all ranks of a node and job, also behind the end of the rank that started it; another job has its own."""
    path, store = os.path.join(folder, "job", "0-0.db"), os.path.join(folder, "run.db")
    go = os.path.join(folder, "go")
    workers = [shared(folder, 0, 4, 300)]
    rig.await_shard(path)
    workers += [shared(folder, 1, 4, 15, until=go), shared(folder, 2, 4, 15, until=go)]
    other = shared(folder, 0, 1, 15, job="other", until=go)
    rig.await_shard(os.path.join(folder, "other", "0-0.db"))
    await_joined(path, {1, 2})
    assert len({os.getsid(pid) for pid in rig.recorders(folder)}) == 2, rig.recorders(folder)
    workers[0].kill()
    workers[0].communicate()
    time.sleep(0.5)
    workers.append(shared(folder, 3, 4, 15, until=go))
    await_joined(path, {1, 2, 3})
    let_go(go)
    for one in [*workers[1:], other]: # their warnings would stand in the output of the job
        assert one.communicate(timeout=60) == ("", "") and one.returncode == 0
    rig.await_end(folder)
    os.unlink(go)
    assert rig.shards(folder) == ["job/0-0.db", "other/0-0.db"], rig.shards(folder)
    target = target_of(path)
    assert {one["rank"]: one["pid"] for one in target["joined"]} == {i: workers[i].pid for i in (1, 2, 3)}, target
    assert "alone" not in target["rank"] and rig.rows(path, "SELECT state FROM run") == [("done",)], target
    for one in workers:
        assert rig.rows(path, "SELECT count(*) FROM gap g JOIN thread t ON t.id = g.thread_id JOIN process p ON p.id = t.process_id "
                        "WHERE p.tgid = ? AND p.kind = 'target'", one.pid)[0][0], "nothing is there of a rank"
    assert rig.rows(path, "SELECT count(*) FROM process WHERE tgid = ? AND kind = 'target'", other.pid) == [(0,)], "another job's"
    code, document, stderr = rig.merge(os.path.join(folder, "job"), store)
    assert code == 0 and document["ranks"] == 4 and document["missing"] == [], (code, document, stderr)
    merged = {one["pid"]: one["rank"] for one in target_of(store)["ranks"]}
    assert all(merged.get(one.pid) == i for i, one in enumerate(workers)), merged
    code, document, stderr = rig.reduced(os.path.join(folder, "job"))
    assert code == 0 and document["ranks"] == 4 and document["missing"] == [], (code, document, stderr)
    code, document, stderr = rig.query(os.path.join(folder, "job"), "--map", "SELECT tgid FROM process WHERE kind = 'target'")
    assert code == 0 and {one.pid for one in workers} <= {row["tgid"] for row in document["rows"]}, (code, document, stderr)
    assert {row["rank"] for row in document["rows"]} == {None}, document


def case_recorder_killed(folder):
    """By SIGKILL: nobody notices, what was committed is there, and who comes later starts another one."""
    path = os.path.join(folder, "job", "0-0.db")
    workers = [shared(folder, 0, 3, 300)]
    rig.await_shard(path)
    workers.append(shared(folder, 1, 3, 300))
    await_joined(path, {1})
    name = name_of_meeting(folder)
    for pid in rig.recorders(folder):
        os.kill(pid, signal.SIGKILL)
    await_no_meeting(name)
    time.sleep(0.3)
    assert [one.poll() for one in workers] == [None, None], "a worker has ended with the recorder"
    workers.append(shared(folder, 2, 3, 25))
    assert workers[2].communicate(timeout=60) == ("", "") and workers[2].returncode == 0
    for one in workers[:2]:
        one.kill()
        one.communicate()
    rig.await_end(folder)
    assert rig.shards(folder) == ["job/0-0.db", "job/0-2.db"], rig.shards(folder)
    assert rig.rows(path, "PRAGMA integrity_check") == [("ok",)]
    assert [(one["rank"], one["pid"]) for one in target_of(path)["joined"]] == [(1, workers[1].pid)], target_of(path)
    assert "joined" not in target_of(os.path.join(folder, "job", "0-2.db"))
    code, document, stderr = rig.merge(folder, os.path.join(folder, "run.db"))
    assert code in (0, 3) and document["ranks"] == 3 and not [one for one in document["missing"] if "no shard" in one["why"]], (code, document, stderr)


def names_of_meetings(sockets=None):
    """Of these sockets, or of all: other tests have recorders, too."""
    with open("/proc/net/unix", encoding="utf-8") as file:
        lines = [line.split() for line in file if "@upgate-rank-" in line]
    return {words[-1][1:] for words in lines if sockets is None or words[6] in sockets}


def name_of_meeting(folder):
    """At which others meet the recorder of this folder."""
    sockets = set()
    for pid in rig.recorders(folder):
        for path in glob.glob("/proc/%d/fd/*" % pid):
            try:
                target = os.readlink(path)
            except OSError: # closed meanwhile
                continue
            if target.startswith("socket:["):
                sockets.add(target[8:-1])
    name, = names_of_meetings(sockets)
    return name


def await_no_meeting(name):
    """A process that ends has no program any more before its sockets are closed."""
    deadline = time.monotonic() + 60
    while name in names_of_meetings():
        assert time.monotonic() < deadline, "the name has outlived its recorder"
        time.sleep(0.05)


def case_name_is_taken(folder):
    """By another user, who would learn nothing and record nothing: the rank has a recorder of its own, and its shard says why."""
    go = os.path.join(folder, "go")
    first = shared(folder, 0, 2, 15, until=go)
    rig.await_shard(os.path.join(folder, "job", "0-0.db"))
    name = name_of_meeting(folder)
    let_go(go)
    first.communicate(timeout=60)
    rig.await_end(folder)
    await_no_meeting(name)
    taker = subprocess.Popen([sys.executable, "-c", "import os, socket, sys, time\nos.setuid(65534)\nat = socket.socket(socket.AF_UNIX, "
                              "socket.SOCK_SEQPACKET)\nat.bind('\\0' + sys.argv[1])\nat.listen(5)\nprint('there', flush=True)\ntime.sleep(60)", name],
                             stdout=subprocess.PIPE, text=True)
    try:
        assert taker.stdout.readline() == "there\n"
        second = shared(folder, 1, 2, 15)
        assert second.communicate(timeout=60) == ("", "") and second.returncode == 0
    finally:
        taker.kill()
        taker.communicate()
    rig.await_end(folder)
    assert target_of(os.path.join(folder, "job", "0-1.db"))["rank"]["alone"] == "the node's recorder is another user's"


def case_gives_up(folder):
    """A rank that ends, or has waited for too long, as the recorder takes it: it is not there, and comes again."""
    path, go = os.path.join(folder, "job", "0-0.db"), os.path.join(folder, "go")
    first = shared(folder, 0, 2, 15, until=go)
    rig.await_shard(path)
    name = name_of_meeting(folder)
    subprocess.run([sys.executable, "-c", "import socket, struct, sys\nat = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
                    "at.connect('\\0' + sys.argv[1])\nat.send(struct.pack('i', 1))\nassert at.recv(4096)", name], check=True, timeout=60)
    await_joined(path, set())
    second = shared(folder, 1, 2, 15)
    assert second.communicate(timeout=60) == ("", "") and second.returncode == 0
    let_go(go)
    assert first.communicate(timeout=60) == ("", "") and first.returncode == 0
    rig.await_end(folder)
    os.unlink(go)
    assert rig.shards(folder) == ["job/0-0.db"], rig.shards(folder)
    assert [(one["rank"], one["pid"]) for one in target_of(path)["joined"]] == [(1, second.pid)], target_of(path)
    code, document, stderr = rig.merge(folder, os.path.join(folder, "run.db"))
    assert code == 0 and document["ranks"] == 2 and document["missing"] == [], (code, document, stderr)


def cpu_groups(count):
    """Directories of cgroups of our own whose cpu.stat is read, or nothing where none can be made."""
    mounts = [line.split() for line in open("/proc/self/mounts")]
    own = [one[1] for one in mounts if one[2] == "cgroup" and "cpu" in one[3].split(",")] + [one[1] for one in mounts if one[2] == "cgroup2"]
    groups = ["%s/upgate-rank-%d-%d" % (own[0], os.getpid(), i) for i in range(count)] if own else []
    try:
        for group in groups:
            os.mkdir(group)
            assert os.path.exists(os.path.join(group, "cpu.stat"))
    except (OSError, AssertionError):
        remove_groups(groups)
        return []
    return groups


def remove_groups(groups):
    for group in groups:
        for _ in range(100):
            try:
                os.rmdir(group)
                break
            except FileNotFoundError:
                break
            except OSError: # the last process is just leaving
                time.sleep(0.05)


def case_cgroups(folder):
    """Ranks in cgroups of their own: each has the numbers of its own, which a merge leaves it."""
    def enter(group):
        with open(os.path.join(group, "cgroup.procs"), "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))

    path, store, groups = os.path.join(folder, "job", "0-0.db"), os.path.join(folder, "run.db"), cpu_groups(2)
    go = os.path.join(folder, "go")
    try:
        first = shared(folder, 0, 2, 15, until=go, preexec_fn=lambda: enter(groups[0]))
    except (subprocess.SubprocessError, IndexError):
        remove_groups(groups)
        raise rig.Skip("no cgroup can be made, or entered, here") from None
    try:
        rig.await_shard(path)
        second = shared(folder, 1, 2, 25, preexec_fn=lambda: enter(groups[1]))
        assert second.communicate(timeout=60) == ("", "") and second.returncode == 0
        let_go(go)
        assert first.communicate(timeout=60) == ("", "") and first.returncode == 0
        rig.await_end(folder)
    finally:
        remove_groups(groups)
    told = "SELECT DISTINCT substr(name, instr(name, ' rank ')) FROM counter WHERE source = 'cpu.stat' AND name LIKE '% rank %' ORDER BY 1"
    assert rig.rows(path, told) == [(" rank 0",), (" rank 1",)], rig.rows(path, "SELECT DISTINCT source, name FROM counter")
    code, document, stderr = rig.merge(folder, store)
    assert code == 0 and document["ranks"] == 2 and document["missing"] == [], (code, document, stderr)
    assert rig.rows(store, told) == [(" rank 0",), (" rank 1",)], rig.rows(store, "SELECT DISTINCT source, name FROM counter")


sys.exit(rig.main(globals(), needs.lacks()))
