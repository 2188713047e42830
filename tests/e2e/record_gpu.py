#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate record` and the traced launches of `upgate ab` with the GPU side, against the fake CUDA of tests/mock: the rows of
the store are held against what the player says that it did. Where the host side may not be recorded, the GPU side is.
Waits for conditions, with a deadline."""
import collections
import concurrent.futures
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
import traceback

SOURCE, BUILD = os.environ["UPGATE_SOURCE"], os.environ["UPGATE_BUILD"]
sys.path[:0] = [os.path.join(SOURCE, "tests", "root"), os.path.join(SOURCE, "tests", "e2e")]
sys.dont_write_bytecode = True

from record_live import NOBODY, UPGATE, Case, Skip, alive, check

MOCK = os.path.join(BUILD, "tests", "mock")
PLAYER = os.path.join(MOCK, "player")
LIBRARY = os.path.join(BUILD, "libupgate_inject.so")
FAKE = {"PLAYER_CUPTI": os.path.join(MOCK, "cupti-13.0", "libcupti.so.13")}
HEARTBEAT_AT, STATE_AT, KINDS_AT = 64, 96, 104  # struct ug_spool_header
DORMANT, ACTIVE = 0, 1
STALE_S = 10  # UG_SPOOL_STALE_NS
WAIT_S = 60


class Player:
    """The player, or an upgate that has started one, as a process with lines in and lines out."""

    def __init__(self, case, *command, env=None, **more):
        # The player ends beside threads of a library that never ends: its leaks are not asked for.
        leaks = {"ASAN_OPTIONS": "detect_leaks=0"}
        if "--" in command:
            own = command.index("--") + 1
            command, leaks = (*command[:own], "env", "ASAN_OPTIONS=detect_leaks=0", *command[own:]), {}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **FAKE, **leaks, **(env or {})}, **more)
        case.processes.append(self.process)
        self.lines = []
        self.ready = self.wait_for("ready")
        self.pid = self.ready["pid"]

    def wait_for(self, kind):
        for line in self.process.stdout:
            if line.startswith("{") and '"type"' in line:
                self.lines.append(json.loads(line))
                if self.lines[-1]["type"] == kind:
                    return self.lines[-1]
        raise AssertionError("no line '%s': %s" % (kind, self.process.stderr.read()))

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def go_recorded(self, case):
        """Not before the recorder has found it: 20 ms on a quiet machine."""
        case.wait_until("recorder", lambda: spool_word(self.pid, HEARTBEAT_AT))
        self.go()

    def played(self):
        return self.wait_for("played")

    def truth(self, kind):
        return [line for line in self.lines if line["type"] == kind]

    def close(self):
        """Lets it end. What it said since, and how it ended."""
        try:
            out, err = self.process.communicate("\n", timeout=WAIT_S)
        except BrokenPipeError:
            out, err = self.process.communicate(timeout=WAIT_S)
        assert "Sanitizer" not in err, err
        return self.process.returncode, out, err


def prepared_env(case):
    done = subprocess.run([UPGATE, "record", "--print-env"], capture_output=True, text=True, check=True)
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def spool_word(pid, at):
    """A word of the header of a process's spool, or None."""
    folder = "/proc/%d/fd" % pid
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        try:
            if "memfd:upgate-spool" in os.readlink(path):
                with open(path, "rb") as file:
                    file.seek(at)
                    return struct.unpack("<I", file.read(4))[0]
        except OSError:
            pass
    return None


def record_some(case, pid):
    """A recording that ends once some hundred kernels are stored: how long that takes is the machine's affair."""
    recorder = case.record("--pid", str(pid))
    case.wait_for_rows(recorder, "SELECT count(*) > 400 FROM gpu_op")
    recorder.send_signal(signal.SIGINT)
    return case.finish(recorder)


def check_kernels(case, player):
    """Every launch that the player made is there, once, with its thread, its shape, and behind its call."""
    truth = player.truth("kernel")
    rows = case.rows("SELECT correlation, call_tid, call_start_ns, start_ns, end_ns, grid_x, block_x, pid, call_name, stream "
                     "FROM v_gpu_op WHERE kind = 'kernel' AND graph IS NULL")
    assert len(rows) == len(truth), (len(rows), len(truth))
    by_correlation = {row[0]: row for row in rows}
    assert len(by_correlation) == len(rows)
    early = 0
    for line in truth:
        correlation, tid, call, start, end, grid, block, pid, name, stream = by_correlation[line["correlation"]]
        assert (tid, grid, block, pid) == (line["tid"], line["grid"][0], line["block"][0], player.pid), (line, tid, grid, pid)
        assert name == ("cuLaunchKernel" if line["driver"] else "cudaLaunchKernel") or name.startswith(
            ("cudaLaunchKernel", "cuLaunchKernel")), name
        assert stream == line["stream"] and end >= start, line
        early += call < line["before"] - 1000000 or call > line["after"] + 1000000 or start < call
    assert early <= len(truth) // 100, "%d of %d calls or kernels at a wrong time" % (early, len(truth))
    names = collections.Counter(line["name"] for line in truth)
    stored = case.rows("SELECT s.text, count(*) FROM gpu_op o JOIN gpu_work w ON w.id = o.work_id AND w.kind = 0 "
                       "JOIN gpu_kernel k ON k.id = w.kernel_id JOIN string s ON s.id = k.name_id WHERE w.graph IS NULL GROUP BY 1")
    assert dict(stored) == dict(names), (stored, names)


def check_ledger(case):
    rows = case.rows("SELECT producer, kind, seen, kept, dropped FROM ledger WHERE producer NOT LIKE 'bpf.%'")
    assert rows and all(row[4] == 0 for row in rows), rows
    assert case.rows("PRAGMA foreign_key_check") == []


def test_command(case):
    player = Player(case, UPGATE, "record", "-o", case.db, "--gpu", "kernels", "--", PLAYER, "mixed", "n=300", "threads=2")
    player.go_recorded(case)
    player.played()
    code, out, err = player.close()
    assert code == 0, err
    assert "GPU side of 1 process:" in out and "CUPTI 13.0" in out and "clocks joined within" in out, out
    check_kernels(case, player)
    copies = case.value("SELECT count(*) FROM v_gpu_op WHERE kind = 'copy'")
    assert copies == len(player.truth("copy")) + len(player.truth("peer")), copies
    # Two marks a pair.
    assert case.value("SELECT count(*) FROM v_nvtx_range WHERE name = 'step' AND dur_ns > 0") == len(player.truth("mark")) // 2
    assert case.rows("SELECT state, cupti_version / 10000 FROM gpu_process") == [("traced", 13)]
    assert case.value("SELECT clock_residual_ns FROM gpu_process") < 1000000
    check_ledger(case)


def test_short_programs(case):
    """Each is recorded, or counted among those that ended too soon."""
    script = "for i in $(seq 20); do echo | %s launches n=2 >/dev/null; done" % PLAYER
    done = case.run("--", "sh", "-c", script, env={**os.environ, **FAKE, "ASAN_OPTIONS": "detect_leaks=0"})
    if "host side" in done.err:
        raise Skip("without the host side nobody tells who came and went")
    check(done, 0)
    missing = " ".join(json.loads(case.value("SELECT missing FROM recording")))
    told = re.search(r"gpu: (\d+) process(es)? with CUDA ended before anybody", missing)
    read = case.value("SELECT count(*) FROM gpu_process")
    assert read + (int(told.group(1)) if told else 0) == 20, (read, missing)


def maps_are_told(pid):
    """Has the recorder opened the rings in which the kernel tells of mappings?"""
    folder = "/proc/%d/fd" % pid
    try:
        return any(os.readlink(os.path.join(folder, name)) == "anon_inode:[perf_event]" for name in os.listdir(folder))
    except OSError:
        return False  # one was closed meanwhile


def test_ended_unread(case):
    """Born, traced by nobody and gone while the recorder stood still: it says so."""
    if os.geteuid():
        raise Skip("only root is told of mappings")
    job = subprocess.Popen(["sh", "-c", "read line; echo | %s launches n=2 >/dev/null; echo gone; read line" % PLAYER], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True, env={**os.environ, **FAKE, "ASAN_OPTIONS": "detect_leaks=0", **prepared_env(case)})
    recorder = case.record("--pid", str(job.pid), "--duration", "60s")
    case.wait_until("recorder", lambda: recorder.poll() is not None or maps_are_told(recorder.pid))
    if recorder.poll() is not None:
        raise Skip("no BPF here")
    time.sleep(0.5)  # its first rounds
    os.kill(recorder.pid, signal.SIGSTOP)
    job.stdin.write("\n")
    job.stdin.flush()
    assert job.stdout.readline() == "gone\n"
    os.kill(recorder.pid, signal.SIGCONT)
    job.communicate("\n", timeout=WAIT_S)
    done = case.finish(recorder)
    check(done, 0)
    missing = case.value("SELECT missing FROM recording")
    assert "gpu: 1 process with CUDA ended before anybody had looked" in missing, missing
    assert case.value("SELECT count(*) FROM gpu_process") == 0


def test_old_cupti(case):
    player = Player(case, UPGATE, "record", "-o", case.db, "--gpu", "kernels", "--", PLAYER, "mixed", "n=200",
                    env={"PLAYER_CUPTI": os.path.join(MOCK, "cupti-12.4", "libcupti.so.12")})
    player.go_recorded(case)
    player.played()
    code, out, err = player.close()
    assert code == 0 and "CUPTI of API version 22" in out, (code, out, err)
    check_kernels(case, player)
    check_ledger(case)


def test_as_json(case):
    player = Player(case, UPGATE, "record", "-o", case.db, "--gpu", "kernels", "--format", "json", "--", PLAYER, "launches",
                    "n=50")
    player.go_recorded(case)
    player.played()
    code, out, err = player.close()
    assert code == 0, err
    document = json.loads(out[out.index("{\n"):])
    assert document["gpu"]["kernels"] == 50 and document["gpu"]["processes"] == 1, document
    assert document["gpu"]["process"][0]["state"] == "traced", document


def test_off(case):
    player = Player(case, UPGATE, "record", "-o", case.db, "--gpu", "off", "--", PLAYER, "launches", "n=50")
    assert player.ready["injected"] != 1, player.ready
    player.go()
    player.played()
    code, out, err = player.close()
    assert code in (0, 4), err  # 4: no host side either
    assert "GPU side" not in out, out
    if code == 0:
        assert case.value("SELECT count(*) FROM v_gpu_op") == 0


def test_options(case):
    """What a command is told to record; the rest of the environment is its own."""
    for options, kinds in (([], "0xfd"), (["--gpu", "nodes"], "0xff"), (["--no-modules"], "0x7d"),
                           (["--gpu", "nodes", "--launch-stacks"], "0x1ff"), (["--gpu", "off"], "")):
        done = case.run(*options, "--", "/bin/sh", "-c", "echo $UPGATE_TRACE,$CUDA_INJECTION64_PATH,$NCCL_PROFILER_PLUGIN")
        if done.code == 4 and not done.out:
            raise Skip("no permission for the host side, and no GPU")
        assert done.out.split("\n")[0].split(",") == [kinds, LIBRARY if kinds else "", LIBRARY if kinds else ""], done
        os.unlink(case.db)
    done = case.run("--", "/bin/sh", "-c", "echo $NCCL_PROFILER_PLUGIN", env={**os.environ, "NCCL_PROFILER_PLUGIN": "/own.so"})
    assert done.out.startswith("/own.so\n") and "/own.so" in done.err, done
    done = subprocess.run([UPGATE, "record", "-o", case.path("none.db"), "--gpu", "off", "--launch-stacks", "--", "true"],
                          capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 2 and "--launch-stacks" in done.stderr, done


def test_prepared_process(case):
    """Dormant until somebody asks, twice, and dormant again afterwards. It never stops."""
    player = Player(case, PLAYER, "endless", env=prepared_env(case))
    player.go()
    case.wait_until("spool", lambda: spool_word(player.pid, STATE_AT) is not None)
    for _ in range(2):
        assert spool_word(player.pid, STATE_AT) == DORMANT and spool_word(player.pid, KINDS_AT) == 0
        check(record_some(case, player.pid), 0, "GPU side of 1 process:")
        case.wait_until("dormant", lambda: spool_word(player.pid, STATE_AT) == DORMANT)
        kernels, names, calls = case.rows("SELECT count(*), count(DISTINCT name), count(call_name) FROM v_gpu_op "
                                          "WHERE kind = 'kernel'")[0]
        assert kernels > 100 and names == 4 and calls > kernels * 0.9, (kernels, names, calls)
        assert case.rows("SELECT DISTINCT call_tid IS NULL, pid FROM v_gpu_op WHERE call_name IS NOT NULL") == [(0, player.pid)]
        os.unlink(case.db)
    assert alive(player.process)
    assert player.close()[0] == 0


def test_other_namespace(case):
    """Threads are named as we see them, whatever they see themselves."""
    if os.geteuid():
        raise Skip("only root can make a pid namespace")
    player = Player(case, "unshare", "--pid", "--fork", PLAYER, "endless", "threads=3", env=prepared_env(case))
    assert player.pid == 1, player.ready
    parent = player.process.pid
    with open("/proc/%d/task/%d/children" % (parent, parent)) as file:
        pid = int(file.read())
    player.go()
    check(record_some(case, pid), 0, "GPU side of 1 process:")
    tids = {row[0] for row in case.rows("SELECT DISTINCT call_tid FROM v_gpu_op WHERE call_name IS NOT NULL")}
    assert len(tids) == 3 and tids <= {int(tid) for tid in os.listdir("/proc/%d/task" % pid)}, tids
    assert case.rows("SELECT DISTINCT pid FROM v_gpu_op") == [(pid,)]
    assert player.close()[0] == 0


def test_unprepared_process(case):
    player = Player(case, PLAYER, "endless")
    done = case.run("--pid", str(player.pid), "--duration", "500ms")
    if done.code == 4:
        raise Skip("no permission for the host side, and nothing else to record")
    check(done, 0, "was not prepared", "CUDA_INJECTION64_PATH=" + LIBRARY, "--print-env")


def test_other_profiler_in_a_process(case):
    player = Player(case, PLAYER, "endless", env={"CUDA_INJECTION64_PATH": "/opt/none/libother.so"})
    done = case.run("--pid", str(player.pid), "--duration", "300ms")
    if done.code == 4:
        raise Skip("no permission for the host side, and nothing else to record")
    check(done, 0, "another profiler", "/opt/none/libother.so")


def test_another_profiler(case):
    player = Player(case, UPGATE, "record", "-o", case.db, "--", PLAYER, "launches", "n=10",
                    env={"CUDA_INJECTION64_PATH": "/opt/none/libother.so"})
    player.go()
    player.played()
    code, out, err = player.close()
    assert code in (0, 4) and "another profiler's" in err and "GPU side of" not in out, (code, out, err)


def test_recorder_is_killed(case):
    """The player goes on, and is dormant once nobody's heart beats; another recorder may have it before that."""
    player = Player(case, PLAYER, "endless", env=prepared_env(case))
    player.go()
    recorder = case.record("--pid", str(player.pid))
    case.wait_until("active", lambda: spool_word(player.pid, STATE_AT) == ACTIVE)
    case.wait_for_rows(recorder, "SELECT count(*) FROM gpu_op")
    recorder.send_signal(signal.SIGKILL)
    recorder.wait()
    begin = time.monotonic()
    assert case.value("SELECT count(*) FROM v_gpu_op") > 0  # what was committed is readable
    case.wait_until("dormant", lambda: spool_word(player.pid, STATE_AT) == DORMANT)
    assert time.monotonic() - begin > STALE_S / 2, "it did not wait for the next beat"
    assert alive(player.process)
    assert player.close()[0] == 0


def test_another_recorder_takes_over(case):
    """From one that died a moment ago: with all names, and without what that one had read already."""
    player = Player(case, PLAYER, "endless", env=prepared_env(case))
    player.go()
    first = case.record("--pid", str(player.pid))
    case.wait_for_rows(first, "SELECT count(*) FROM gpu_op")
    first.send_signal(signal.SIGKILL)
    first.wait()
    os.unlink(case.db)
    for leftover in (case.db + "-journal", case.db + "-wal"):
        if os.path.exists(leftover):
            os.unlink(leftover)
    check(record_some(case, player.pid), 0, "GPU side of 1 process:")
    names = {row[0] for row in case.rows("SELECT DISTINCT name FROM v_gpu_op WHERE kind = 'kernel'")}
    assert len(names) == 4 and "[unknown]" not in names, names
    assert case.value("SELECT min(start_ns) FROM v_gpu_op") > case.value("SELECT begin_ns FROM recording") - STALE_S * 1000000000
    case.wait_until("dormant", lambda: spool_word(player.pid, STATE_AT) == DORMANT)
    assert alive(player.process) and player.close()[0] == 0


def test_player_is_killed(case):
    """What was written before is in the store, and nothing waits for the dead."""
    player = Player(case, PLAYER, "endless", env=prepared_env(case))
    player.go()
    recorder = case.record("--pid", str(player.pid))
    case.wait_for_rows(recorder, "SELECT count(*) > 400 FROM gpu_op")
    player.process.kill()
    done = case.finish(recorder)
    check(done, 0, "the target ended", "GPU side of 1 process:")
    assert case.value("SELECT count(*) FROM v_gpu_op WHERE kind = 'kernel'") > 100
    assert case.rows("PRAGMA foreign_key_check") == []


def test_full_disk(case):
    player = Player(case, PLAYER, "endless", env=prepared_env(case))
    player.go()
    case.tmpfs("size=1m")
    done = case.run("--pid", str(player.pid), "--duration", "%ds" % WAIT_S)
    check(done, 4, "the disk is full", "is readable")
    assert case.value("PRAGMA integrity_check") == "ok"
    case.wait_until("dormant", lambda: spool_word(player.pid, STATE_AT) == DORMANT)
    assert alive(player.process) and player.close()[0] == 0


def test_max_size(case):
    """The newest is kept, what went is told."""
    player = Player(case, PLAYER, "endless", "threads=2", env=prepared_env(case))
    player.go()
    done = case.run("--pid", str(player.pid), "--duration", "3s", "--max-size", "8M")
    check(done, 0, "GPU side of 1 process:")
    assert os.path.getsize(case.db) < 12 << 20
    done = subprocess.run([UPGATE, "record", "-o", case.path("small.db"), "--max-size", "1M", "--pid", str(player.pid)],
                          capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 2 and "--max-size" in done.stderr, done


def test_without_permission(case):
    """No BPF: the host side is named as missing, the GPU side is recorded."""
    if os.geteuid():
        raise Skip("only root can become somebody else")
    where = os.path.join(case.dir, "open")
    os.mkdir(where, 0o777)
    os.chmod(where, 0o777)
    # Not by this process: what another case forks meanwhile would hold the copies open for writing, and they would not start.
    subprocess.run(["cp", UPGATE, LIBRARY, PLAYER, os.path.join(MOCK, "libcuda.so.1"), FAKE["PLAYER_CUPTI"], where], check=True)
    case.db = os.path.join(where, "run.db")
    own = lambda path: os.path.join(where, os.path.basename(path))
    try:
        # A child of the command: nobody tells of its birth but /proc.
        player = Player(case, own(UPGATE), "record", "-o", case.db, "--gpu", "kernels", "--", "/bin/sh", "-c",
                        own(PLAYER) + " launches n=100; exit 5",
                        env={"LD_LIBRARY_PATH": where, "PLAYER_CUPTI": own(FAKE["PLAYER_CUPTI"])}, user=NOBODY, group=NOBODY,
                        extra_groups=[])
    except PermissionError:
        raise Skip("another user cannot run a program in " + where) from None
    player.go_recorded(case)
    player.played()
    code, out, err = player.close()
    assert code == 0 and "GPU side of 1 process: 100 kernels" in out and "only the GPU side is recorded" in err, (code, out, err)
    check_kernels(case, player)
    assert "host: only the GPU side" in case.value("SELECT missing FROM recording")
    processes = case.rows("SELECT comm, kind FROM process ORDER BY comm")
    assert processes == [("player", "target"), ("sh", "target")], processes
    assert "ended with exit code 5" in err, err


def test_both_sides_of_ab(case):
    import ab_rig
    rig = ab_rig.Case("gpu")
    try:
        # A line to begin, a line to end; no GPU work before the first line. A traced one lives until the recorder has found it.
        command = ["/bin/sh", "-c", "t=0.3; [ -z \"$UPGATE_TRACE\" ] || t=3; (echo; sleep $t; echo) | %s launches n=$N; exit 0" % PLAYER]
        rig.plan({"command": command}, baseline={"env": dict(FAKE, N="200")}, candidate={"env": dict(FAKE, N="300")},
                 traced_launches=1)
        done = rig.run()
        if "launches are not traced" in done.err:
            raise Skip([line for line in done.err.splitlines() if "not traced" in line][0])
        counts = rig.rows("SELECT l.side, count(*), count(DISTINCT o.name), count(o.call_tid) FROM v_gpu_op o JOIN launch l "
                          "ON l.id = o.launch WHERE o.kind = 'kernel' GROUP BY 1 ORDER BY 1")
        assert counts == [(0, 200, 4, 200), (1, 300, 4, 300)], "%s\n%s" % (counts, done)
        assert rig.value("SELECT count(*) FROM string WHERE text = '_Z4reluPf'") == 1
        assert rig.rows("PRAGMA foreign_key_check") == []
        assert rig.rows("SELECT text FROM note WHERE text LIKE '%a traced launch took % times as long as an untraced one%'")
        assert not rig.rows("SELECT text FROM note WHERE text LIKE '%not whole%'")
    finally:
        rig.close()


def run(name, test):
    """The verdict in words, and whether it failed."""
    case, begin = Case(), time.monotonic()
    try:
        test(case)
        return "ok   %s (%.1f s)" % (name, time.monotonic() - begin), False
    except Skip as reason:
        return "skip %s: %s" % (name, reason), False
    except Exception as error:  # one case's failure is no other's
        return "FAIL %s: %s: %s\n%s" % (name, type(error).__name__, error, traceback.format_exc()), True
    finally:
        case.close()


def main():
    for path in (UPGATE, PLAYER, LIBRARY):
        if not os.path.exists(path):
            print("not built: " + path)
            return 77
    failed, wanted = 0, sys.argv[1:]
    tests = [(name, test) for name, test in sorted(globals().items(), key=lambda item: "killed" not in item[0])
             if name.startswith("test_") and (not wanted or name[5:] in wanted)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:  # they mostly wait, the longest for 10 s
        for text, bad in pool.map(lambda item: run(*item), tests):
            print(text, flush=True)
            failed += bad
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
