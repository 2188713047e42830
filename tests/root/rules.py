#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate record --step nvtx:NAME` and `--step graph`, and `upgate rank`: ranges of the real NVTX and replays of graphs of the fake CUDA are
the steps of the store, beside the GPU side. Skipped without root, capture or NVTX's headers; what is a step: tests/e2e/rules.py."""
import glob
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import needs  # noqa: E402

BUILD = os.environ["UPGATE_BUILD"]
UPGATE = os.path.join(BUILD, "upgate")
SUBJECT = os.path.join(BUILD, "tests", "mock", "rules_subject")
CUPTI = {"UPGATE_CUPTI": os.path.join(BUILD, "tests", "mock", "cupti-13.0", "libcupti.so.13")}
WAIT_S = 60
COUNT, STEP_US = 20, 500


def record(folder, *words, **env):
    store = os.path.join(folder, "run.db")
    for path in glob.glob(store + "*"):
        os.unlink(path)
    done = subprocess.run([UPGATE, "record", "-o", store, "--sample-hz", "0"] + list(words), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=WAIT_S, env=dict(os.environ, **CUPTI, **env))
    return done, store


def rows(store, sql):
    db = sqlite3.connect(store)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def check_record(folder, how, step, says, steps=COUNT, **env):
    done, store = record(folder, "--gpu", "off", "--step", step, "--", SUBJECT, how, str(COUNT), str(STEP_US), **env)
    assert done.returncode == 0 and "done %d" % COUNT in done.stdout, "the program was disturbed: " + done.stdout
    assert says in done.stdout, done.stdout
    found = rows(store, "SELECT rank, count(*), min(idx), max(idx), min(dur_ns) FROM recorded_step GROUP BY rank ORDER BY rank")
    assert [row[:4] for row in found] == [(0, steps, 0, steps - 1)], (how, found, done.stdout)
    assert found[0][4] >= STEP_US * 990, found
    assert any(says in text for text, in rows(store, "SELECT text FROM note")), done.stdout
    return done, store


def test_ranges(folder):
    check_record(folder, "registered", "nvtx:ba*@train", "steps: range 'ba*' of domain 'train', %d in 1 process" % COUNT)


def test_ranges_beside_the_gpu_side(folder):
    """All of them are recorded, as libcupti does where they are not the steps."""
    done, store = record(folder, "--step", "nvtx:step", "--", SUBJECT, "capture", str(COUNT), str(STEP_US))
    assert "steps: range 'step', %d in 1 process" % COUNT in done.stdout, done.stdout
    assert rows(store, "SELECT name, domain, count(*) FROM v_nvtx_range WHERE dur_ns > 0 GROUP BY 1, 2 ORDER BY 1") == [
        ("data", None, COUNT), ("forward", None, COUNT), ("step", None, 2 * COUNT)], done.stdout
    assert rows(store, "SELECT name, count(*) FROM v_nvtx_range WHERE dur_ns IS NULL GROUP BY 1") == [("mark", COUNT)], done.stdout
    assert rows(store, "SELECT count(*) FROM recorded_step s JOIN v_nvtx_range r ON r.name = 'step' AND abs(r.start_ns - s.begin_ns) < 200000")[0][0] > 0


def test_a_rank(folder):
    """Under `upgate rank`, whose worker becomes the program by itself."""
    shards = os.path.join(folder, "shards")
    done = subprocess.run([UPGATE, "rank", "-o", shards, "--job", "job", "--gpu", "off", "--step", "nvtx:step", "--", SUBJECT, "push", str(COUNT),
                           str(STEP_US)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WAIT_S,
                          env=dict(os.environ, RANK="0", WORLD_SIZE="1"))
    assert done.returncode == 0 and "done %d" % COUNT in done.stdout, done.stdout
    merged = subprocess.run([UPGATE, "merge", shards, "-o", os.path.join(folder, "merged.db")], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, timeout=WAIT_S)  # it waits for the recorder
    assert merged.returncode == 0 and ", %d steps" % COUNT in merged.stdout, merged.stdout


def test_replays_of_graphs(folder):
    """Beside the GPU side, which sees the same calls."""
    done, store = record(folder, "--step", "graph", "--", SUBJECT, "graph", str(COUNT), str(STEP_US))
    assert done.returncode == 0 and "done %d" % COUNT in done.stdout, "the program was disturbed: " + done.stdout
    assert "steps: replays of a CUDA graph, %d in 1 process" % COUNT in done.stdout, done.stdout
    assert rows(store, "SELECT count(*) FROM recorded_step") == [(COUNT,)], done.stdout
    assert rows(store, "SELECT kind, call_name, count(*) FROM v_gpu_op GROUP BY 1, 2") == [("graph", "cuGraphLaunch", COUNT)], done.stdout


def test_what_is_not_there(folder):
    done, store = record(folder, "--gpu", "off", "--step", "nvtx:stepp", "--", SUBJECT, "push", str(COUNT), "100")
    says = "no steps by 'nvtx:stepp': no range 'stepp' among the 3 that were seen; near: step, data, forward"
    assert done.returncode == 0 and "done %d" % COUNT in done.stdout and says in done.stdout, done.stdout
    assert rows(store, "SELECT count(*) FROM recorded_step") == [(0,)]


def test_bad_input(folder):
    own = str(os.getpid())
    for words, says in ((("--step", "nvtx:", "--", "true"), "no name"), (("--step", "nvtx:*", "--", "true"), "no name"),
                        (("--step", "nvtx:a@", "--", "true"), "no domain"), (("--step", "nvtx:" + 200 * "a", "--", "true"), "more than 127 bytes"),
                        (("--step", "graph:3", "--", "true"), "graphs have no names"), (("--step", "nccl", "--", "true"), "name a range"),
                        (("--step", "nvtx:step", "--pid", own), "of a command"), (("--step", "nvtx:step", "--cgroup", "/sys/fs/cgroup"), "of a cgroup"),
                        (("--step", "nvtx:step", "--steps-from", "off", "--", "true"), "not with --steps-from")):
        done, store = record(folder, *words)
        assert done.returncode == 2 and says in done.stdout, (words, done.stdout)
        assert not os.path.exists(store)
    for step, name in (("nvtx:step", "NVTX_INJECTION64_PATH"), ("graph", "CUDA_INJECTION64_PATH")):
        done, store = record(folder, "--step", step, "--", "true", **{name: "/opt/other.so"})
        assert done.returncode == 2 and "%s is set to '/opt/other.so', another tool's" % name in done.stdout, done.stdout


def main():
    tests = [(name, call) for name, call in globals().items() if name.startswith("test_")]
    tests = [test for test in tests if not sys.argv[1:] or any(word in test[0] for word in sys.argv[1:])]
    failed = 0
    for name, call in tests:
        folder, begin = tempfile.mkdtemp(prefix="upgate-rules-"), time.monotonic()
        try:
            call(folder)
            verdict = "ok"
        except (AssertionError, sqlite3.Error, subprocess.SubprocessError) as error:
            failed, verdict = failed + 1, "FAILED\n%s" % error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print("%-40s %5.1f s  %s" % (name, time.monotonic() - begin, verdict), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    why = needs.lacks() or (None if os.geteuid() == 0 else "not root")
    if not why and subprocess.run([SUBJECT, "push", "1", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 77:
        why = "NVTX's headers were not there when this was built"
    if why:
        print("skipped:", why)
        sys.exit(77)
    sys.exit(main())
