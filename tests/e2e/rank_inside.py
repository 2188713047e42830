#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""upgate.rank() from inside a process: who it says it is, in Ray and elsewhere, and what becomes of its steps. With stand-ins for ray and for the
program, so that nothing is recorded; ci/ray runs the real ones."""
import os
import subprocess
import sys
import tempfile

BUILD = os.environ["UPGATE_BUILD"]
UPGATE = os.path.join(BUILD, "upgate")
CLEAN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_", "PMI_", "OMPI_", "UPGATE_STEPS")
failures = []

# A recorder that says what it was asked, and ends when it is told to.
PROGRAM = """#!/bin/sh
echo "$@" >>"$ASKED"
case $ANSWER in fail) echo "upgate: error: no permission" >&2; exit 4;; esac
exec 3<&0
case $ANSWER in gone) ;; *) (test -n "$(head -c 1 <&3)" && echo ended >>"$ASKED") >/dev/null 2>&1 & ;; esac
case $ANSWER in late) echo "upgate: error: not ready" >&2; exit 4;; esac
echo "UPGATE_STEPS=$ASKED.steps"
"""
RAY = """
import sys, types
class Context:
    worker = types.SimpleNamespace(mode=%d)
    get_session_name = staticmethod(lambda: "session_1")
    get_job_id = staticmethod(lambda: "02000000")
sys.modules["ray"] = types.SimpleNamespace(WORKER_MODE=1, is_initialized=lambda: %s, get_runtime_context=Context)
"""
WORKER, DRIVER, NONE = RAY % (1, True), RAY % (0, True), RAY % (1, False)
BEGIN = "import os, upgate, upgate._rank\nupgate._rank._program = lambda: os.environ['PROGRAM']\n"


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAIL " + what, flush=True)


def start(folder, script, **variables):
    """What the program was asked, without the pid; stdout; stderr."""
    asked = os.path.join(folder, "asked")
    if os.path.exists(asked):
        os.unlink(asked)
    env = {name: value for name, value in os.environ.items() if not name.startswith(CLEAN)}
    env.update(variables, ASKED=asked, PROGRAM=os.path.join(folder, "program"), PYTHONPATH=os.path.join(BUILD, "python"), PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run([sys.executable, "-c", BEGIN + script], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    check(done.returncode == 0, "%s: it raised: %s" % (script, done.stderr[-800:]))
    lines = []
    if os.path.exists(asked):
        with open(asked, encoding="utf-8") as file:
            for line in file.read().splitlines():
                words = line.split()
                if "--pid" in words:
                    del words[words.index("--pid"):words.index("--pid") + 2]
                lines.append(" ".join(words))
    return lines, done.stdout, done.stderr


def check_who(folder):
    common = "rank -o d --stdin-ends"
    call, both = "print(upgate.rank('d'%s))", {"RANK": "1", "WORLD_SIZE": "4"}
    outer = {"SLURM_PROCID": "0", "SLURM_NTASKS": "3", "PMI_RANK": "0", "PMI_SIZE": "2"}  # of who started Ray on the node
    for script, variables, asked in (
            (WORKER + call % "", both, "--job session_1.02000000 --rank 1 --ranks 4 --again"),
            (WORKER + call % "", dict(both, **outer), "--job session_1.02000000 --rank 1 --ranks 4 --again"),
            (WORKER + call % ", 'nightly'", both, "--job nightly --rank 1 --ranks 4 --again"),
            (WORKER + call % ", rank=2, world_size=3", dict(both, RAY_JOB_ID="ffffffff"), "--job session_1.02000000 --rank 2 --ranks 3 --again"),
            (DRIVER + call % "", both, ""), (NONE + call % "", both, ""), (call % "", both, ""),
            (call % ", 'nightly'", both, "--job nightly"),
            (call % ", 'nightly', 2, 3", both, "--job nightly --rank 2 --ranks 3")):
        lines, stdout, stderr = start(folder, script, **variables)
        check(lines[:1] == [(common + " " + asked).strip()] and stdout == "True\n" and stderr == "", "%s: %s, %r, %r" % (script[-60:], lines, stdout, stderr))
    for script, variables, why in (
            (WORKER + call % "", outer, "Ray does not say which rank it is: upgate.rank(directory, rank=…, world_size=…)"),
            (WORKER + call % "", dict(RANK="1x", WORLD_SIZE="2"), "Ray does not say which rank it is"),
            (WORKER + call % ", rank=1", {}, "rank= and world_size= go together"),
            (call % ", rank=1, world_size=2", {}, "rank= and world_size= want the name of the run, too")):
        lines, stdout, stderr = start(folder, script, **variables)
        check(lines == [] and stdout == "False\n" and stderr.startswith("upgate: warning: this rank is not recorded: " + why), "%s: %s, %r, %r" % (
            script[-60:], lines, stdout, stderr))


def check_steps(folder):
    """One recording after the other; and none of what is not ours is changed."""
    say = "print(os.environ.get('UPGATE_STEPS', '-')[-11:])\n"
    rank = "assert upgate.rank('d', 'j', 0, 1)\n"
    lines, stdout, stderr = start(folder, rank + say + rank + say + "upgate.rank_end()\n" + say + "upgate.rank_end()\n")
    check(stdout == "asked.steps\nasked.steps\n-\n" and stderr == "", "steps: %r, %r" % (stdout, stderr))
    check([line.split()[0] for line in lines] == ["rank", "ended", "rank", "ended"], "the former recorder ends before the next one begins: %s" % lines)
    _, stdout, stderr = start(folder, rank + say + "upgate.rank_end()\n" + say, UPGATE_STEPS="/nonexistent/own")
    check(stdout == "xistent/own\n" * 2 and stderr == "", "a harness keeps its steps: %r, %r" % (stdout, stderr))
    lines, stdout, _ = start(folder, rank + "if os.fork() == 0:\n    upgate.rank_end()\n    os._exit(0)\nos.wait()\nprint(open(os.environ['ASKED']).read().count('ended'))")
    check(stdout == "0\n", "a child ends the recording of its parent: %r" % stdout)
    _, stdout, stderr = start(folder, "print(upgate.rank('d'))\n" + say + "upgate.rank_end()", ANSWER="fail")
    check(stdout == "False\n-\n" and stderr == "upgate: error: no permission\n", "it is not recorded: %r, %r" % (stdout, stderr))
    lines, stdout, stderr = start(folder, "print(upgate.rank('d', 'j', 0, 1))\n" + say + "upgate.rank_end()\n", ANSWER="late")
    check([line.split()[0] for line in lines] == ["rank", "ended"], "a recorder that was not ready in time has no end: %s" % lines)
    check(stdout == "False\n-\n" and stderr == "upgate: error: not ready\n", "it is not ready: %r, %r" % (stdout, stderr))
    pipe = "import signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
    _, stdout, _ = start(folder, pipe + rank + "upgate.rank_end()\n" + say, ANSWER="gone")
    check(stdout == "-\n", "a recorder that has ended takes the rank with it: %r" % stdout)
    threads = "import threading\nboth = [threading.Thread(target=upgate.rank, args=('d', 'j', rank, 2)) for rank in range(2)]\n"
    lines, stdout, stderr = start(folder, threads + "[one.start() for one in both]\n[one.join() for one in both]\nupgate.rank_end()\n" + say)
    check([line.split()[0] for line in lines] == ["rank", "ended", "rank", "ended"] and stderr == "", "two threads: %s, %r" % (lines, stderr))
    check(stdout == "-\n", "two threads: %r" % stdout)


def check_program(folder):
    """What it asks for is what the program takes."""
    run = os.path.join(folder, "shards", "j")
    os.makedirs(run)
    words = [UPGATE, "rank", "-o", os.path.join(folder, "shards")]
    for name in ("0-0.db", "0-1.db", "1-1.why"):
        with open(os.path.join(run, name), "w", encoding="utf-8"):
            pass
    for more, code, told in (
            (["--job", "j", "--rank", "1", "--ranks", "4", "--again"], 0, "rank 1 of 4 (--rank, run 'j', restart 2)"),
            (["--job", "j", "--rank", "0", "--ranks", "4", "--again"], 0, "rank 0 of 4 (--rank, run 'j', restart 1)"),
            (["--job", "j", "--rank", "0", "--ranks", "4"], 0, "rank 0 of 4 (--rank, run 'j', restart 0)"),
            (["--rank", "0", "--ranks", "4"], 2, "--rank N, --ranks M and --job NAME go together"),
            (["--job", "j", "--rank", "4", "--ranks", "4"], 2, "--rank N, --ranks M and --job NAME go together"),
            (["--job", "j", "--ranks", "4"], 2, "--rank N, --ranks M and --job NAME go together"),
            (["--stdin-ends"], 2, "--stdin-ends is of --pid"),
            (["--again", "--shared"], 2, "--again and --shared exclude each other")):
        done = subprocess.run(words + more + ["--dry-run", "--", "true"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
                              env=dict(os.environ, SLURM_PROCID="0", SLURM_NTASKS="3"))
        check(done.returncode == code and told in done.stderr, "%s: %d, %s" % (more, done.returncode, done.stderr))


def main():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "program"), "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        os.chmod(os.path.join(folder, "program"), 0o755)
        check_who(folder)
        check_steps(folder)
        check_program(folder)
    print("%d failures" % len(failures) if failures else "all good")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
