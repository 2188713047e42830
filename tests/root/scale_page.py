#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/SCALE.md as they stand there, in its order: each ends with the code that it ought to, `upgate rank` has left a shard of
every rank, `upgate node` has run its pairs on every node. Other than on the page are the names of hosts and shared directories, the
numbers of ranks, nodes and steps (INSTEAD), and the programs, which are small. Two nodes are two slurmd, or processes, of this machine. What the
commands print is theirs, and not compared, but for --dry-run. A command whose launcher is missing is left out and says so; without any launcher, root or
capture the test is skipped.

    tests/root/scale_page.py [torchrun] [mpirun] [srun]     only those launchers
"""
import glob
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import needs  # noqa: E402
import rank_rig as rig  # noqa: E402

PAGE = os.path.join(rig.SOURCE, "docs", "SCALE.md")
ENVIRONMENT = os.path.dirname(rig.PYTHON)
COUNT, LIMIT_S = 2, 300 # ranks of each launcher, and nodes
INSTEAD = (("/shared", "%(shared)s"), ("node0:29400", "localhost:%(port)d"), ("-np 4", "-np 2"), ("--nnodes 4", "--nnodes 2"),
           ("--nproc-per-node 8", "--nproc-per-node 2"), ("--steps 300", "--steps 60"),
           (" --map-by ppr:1:node --bind-to none", ""), (" --map-by ppr:1:node", "")) # to mpirun this machine is one node
# What an allocation or a file of hosts says elsewhere.
LAUNCHERS = {"torchrun": None, "srun": "-N 2 -n 2", "mpirun": "--allow-run-as-root --oversubscribe --bind-to none"}
PROGRAM = """#!/usr/bin/env python3
import time
until = time.monotonic() + 1.5
while time.monotonic() < until:
    time.sleep(0.01)
    sum(range(20000))
"""
PLAN = """baseline: {name: old, env: {STEP_US: "2000"}}
candidate: {name: new, env: {STEP_US: "2000"}}
workloads:
  - {name: job, steps: 60, steps_from: calls, command: [sh, -c, 'exec %s {steps} $STEP_US {node_rank} {nodes} {port}']}
schedule: {looks: [7], block_steps: 8, traced_launches: 0, timeout: 60s}
gate: {metrics: {step_time: {margin: 20%%}, mean_step_time: {observe: true}, slow_steps: {observe: true}, warm_up_time: {observe: true}},
       calibrate: require, parity: {rule: off}}
"""
# Sides for the plan of the page, which has none.
SIDES = """baseline: {name: old, python: %(python)s, env: {SIDE: "a"}}
candidate: {name: new, python: %(python)s, env: {SIDE: "b"}}
"""


def lacks(launcher):
    if launcher == "torchrun":
        return None if os.path.exists(os.path.join(ENVIRONMENT, "torchrun")) else "no torchrun at envs/candidate"
    if launcher == "srun":
        return rig.Slurm.lacks()
    return None if shutil.which(launcher) else "no %s (package openmpi-bin)" % launcher


class Command:
    def __init__(self, text):
        self.text, self.printed = text, []

    def words(self):
        """Without the variables that stand in front of it."""
        words = shlex.split(self.text, comments=True)
        while re.match(r"\w+=", words[0]):
            del words[0]
        return words

    def launchers(self):
        return [word for word in self.words() if word in LAUNCHERS]

    def is_whole(self):
        """The page goes on in the next line behind a backslash, and within quotes."""
        try:
            shlex.split(self.text, comments=True)
        except ValueError:
            return False
        return not self.text.endswith("\\")


def commands(text):
    """Of a block: lines behind a prompt, with what is printed below each; or all of them, where all call us or a launcher."""
    lines, found = text.splitlines(), []
    if not any(line.startswith("$ ") for line in lines):
        ours = all(line.split() and line.split()[0] in (*LAUNCHERS, "upgate") for line in lines)
        return [Command(line) for line in lines] if ours else []
    for line in lines:
        if found and not found[-1].is_whole():
            found[-1].text += "\n" + line
        elif line.startswith("$ "):
            found.append(Command(line[2:]))
        elif found:
            found[-1].printed.append(line)
    return found


def read_page():
    """(Commands of each block that has some, the plans)."""
    with open(PAGE, encoding="utf-8") as file:
        fenced = [part.partition("\n") for part in file.read().split("```")[1::2]]
    blocks = [commands(text) for language, _, text in fenced if not language]
    return [block for block in blocks if block], [text for language, _, text in fenced if language == "yaml"]


class Place:
    """A directory in which the page's words mean something: programs by their names, and what its commands leave to each other."""

    def __init__(self, folder, launchers):
        self.folder, self.work, self.launchers, self.slurm, self.number = folder, os.path.join(folder, "work"), launchers, None, 0
        self.bin = os.path.join(folder, "bin")
        os.makedirs(self.work)
        os.makedirs(self.bin)
        os.symlink(rig.UPGATE, os.path.join(self.bin, "upgate"))
        os.symlink(rig.MPI_REDUCE, os.path.join(self.bin, "upgate-mpi-reduce"))
        os.symlink(os.path.join(rig.SOURCE, "ci"), os.path.join(self.work, "ci"))
        for name, options in LAUNCHERS.items():
            if options and not lacks(name):
                self.write(os.path.join(self.bin, name), '#!/bin/sh\nexec %s %s "$@"\n' % (shlex.quote(rig.Slurm.tool(name)), options))
        if not os.path.exists(rig.PYTHON):
            self.write(os.path.join(self.bin, "python"), '#!/bin/sh\nexec %s "$@"\n' % shlex.quote(sys.executable))
        for name in ("train.py", "solver"):
            self.write(os.path.join(self.work, name), PROGRAM)
        self.write(os.path.join(self.work, "plan.yaml"), PLAN % os.path.join(rig.BUILD, "tests", "root", "node_job"))

    @staticmethod
    def write(path, text):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def environment(self):
        path = ":".join([self.bin, ENVIRONMENT, os.environ["PATH"]])
        slurm = {"SLURM_CONF": self.slurm.conf} if self.slurm else {}
        return rig.environment(PATH=path, XDG_STATE_HOME=os.path.join(self.folder, "state"), **rig.MPI_SETTINGS, **slurm)

    def here(self):
        """How the page's words are said for the next command."""
        self.number += 1
        return {"shared": os.path.join(self.folder, "shared%d" % self.number), "port": rig.Slurm.port()}

    def left_out(self, command):
        """Why, or None."""
        for launcher in command.launchers():
            why = "not asked for" if launcher not in self.launchers else lacks(launcher)
            if why:
                return why
        return rig.mpi_lacks() if "upgate-mpi-reduce" in command.words() else None

    def run(self, text, copies):
        """[(exit code, stdout, stderr)] of so many at the same time."""
        running = [subprocess.Popen(["bash", "-c", text], cwd=self.work, env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True, start_new_session=True) for _ in range(copies)]
        end = time.monotonic() + LIMIT_S
        try:
            outputs = [one.communicate(timeout=max(0.1, end - time.monotonic())) for one in running]
        finally:
            for one in running:
                if one.poll() is None:
                    os.killpg(one.pid, signal.SIGKILL)
                    one.communicate()
        return [(one.returncode, *out) for one, out in zip(running, outputs)]

    def close(self):
        if self.slurm:
            self.slurm.close()


def said(text, here):
    for of_page, ours in INSTEAD:
        text = text.replace(of_page, ours % here)
    return text


def check_rank(place, text):
    """A shard of each rank, or, of all that each torchrun behind it started (--nproc-per-node 2)."""
    named = re.search(r" -o (\S+)", text).group(1)
    rig.await_end(named)
    folder = os.path.join(place.work, named)
    code, document, stderr = rig.merge(folder, os.path.join(place.folder, "check.db"))
    ranks = 2 * COUNT if re.search(r"upgate rank .*-- torchrun", text) else COUNT
    assert code == 0 and document["ranks"] == ranks and not document["missing"], (text, code, document, stderr)


def check_node(place, text):
    """Pairs of both nodes."""
    stores = glob.glob(os.path.join(place.work, re.search(r" -o (\S+)", text).group(1), "*", "run.db"))
    assert len(stores) == 1, (text, stores)
    with sqlite3.connect("file:%s?mode=ro" % stores[0], uri=True) as base:
        pairs = base.execute("SELECT count(*) FROM pair WHERE phase = 'main' AND state = 'valid'").fetchone()[0]
        ranks = base.execute("SELECT DISTINCT l.ranks FROM launch l JOIN pair p ON p.id = l.pair_id WHERE p.phase = 'main' AND p.state = 'valid'").fetchall()
    assert pairs == 7 and ranks == [(COUNT,)], (text, pairs, ranks)
    assert os.path.exists(os.path.join(os.path.dirname(stores[0]), "node-1.db")), os.listdir(os.path.dirname(stores[0]))


def codes_of(words):
    """Nodes have no control, so that equal sides do not pass: 3, of which torchrun makes 1. Where a busy machine's events were lost, stalls says 3."""
    if "node" in words:
        return (0, 1) if words[0] == "torchrun" else (0, 3)
    return (0, 3) if words[:2] == ["upgate", "stalls"] else (0,)


def run_command(place, command, in_transcript):
    here = place.here()
    text, words = said(command.text, here), command.words()
    copies = COUNT if words[0] == "torchrun" and "--nnodes" in words else 1 # it is started on each node
    if "srun" in words and not place.slurm:
        os.makedirs(os.path.join(place.folder, "slurm"))
        place.slurm = rig.Slurm(os.path.join(place.folder, "slurm"), COUNT)
    begun = time.monotonic()
    for code, out, err in place.run(text, copies):
        assert code in codes_of(words), (text, code, out[-2000:], err[-4000:])
    if text.endswith("echo $?"):
        assert out.split()[-1] == command.printed[-1], (text, out, err)
    elif "--dry-run" in words:
        assert (out + err).splitlines() == [said(line, here) for line in command.printed], (text, out, err)
    elif "rank" in words and not in_transcript: # there a merge is the next command, at once
        check_rank(place, text)
    elif "node" in words:
        check_node(place, text)
    print("ok  %s, %.1f s" % (command.text.splitlines()[0], time.monotonic() - begun), flush=True)


def run_block(place, block):
    """A transcript's commands need those before them, and its shards are what the first one of the page made, whatever became of them since."""
    shards, kept = os.path.join(place.work, "shards"), os.path.join(place.folder, "kept")
    reads = any(re.search(r"\b(merge|query|mpi-reduce) shards\b", command.text) for command in block)
    makes, in_transcript = any("rank -o shards" in command.text for command in block), any(command.printed for command in block)
    if reads and not makes:
        if not os.path.isdir(kept):
            print("  left out: %s: there are no shards" % block[0].text.splitlines()[0])
            return
        shutil.rmtree(shards)
        shutil.copytree(kept, shards)
    for command in block:
        why = place.left_out(command)
        if why:
            print("  left out: %s: %s" % (command.text.splitlines()[0], why))
            if in_transcript:
                return
            continue
        run_command(place, command, in_transcript)
    if makes:
        rig.await_end("shards")
        shutil.copytree(shards, kept)


def check_plan(place, text):
    """A plan of the page is one."""
    path = os.path.join(place.work, "page.yaml")
    place.write(path, SIDES % {"python": sys.executable} + text)
    done = rig.run(rig.UPGATE, "node", path, "-o", os.path.join(place.folder, "none"), "--dry-run",
                   env=rig.environment(RANK=0, WORLD_SIZE=4, MASTER_ADDR="127.0.0.1"))
    assert done.returncode == 0 and "would be node 0 of 4" in done.stderr, done


def main():
    asked = sys.argv[1:] or list(LAUNCHERS)
    assert set(asked) <= set(LAUNCHERS), asked
    reasons = [lacks(launcher) for launcher in asked]
    why = needs.lacks(gib=2) or ("cgroups need root" if os.geteuid() != 0 else None) or (", ".join(reasons) if all(reasons) else None)
    if why:
        print("skipped: " + why)
        return 77
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1)) # so that Slurm is ended
    blocks, plans = read_page()
    on_page = {launcher for block in blocks for command in block for launcher in command.launchers()}
    assert on_page == set(LAUNCHERS) and plans, (on_page, plans)
    with tempfile.TemporaryDirectory(prefix="upgate-page-", dir=rig.BUILD) as folder:
        place = Place(folder, asked)
        try:
            for text in plans:
                check_plan(place, text)
            for block in blocks:
                run_block(place, block)
        finally:
            place.close()
    return 0


sys.exit(main())
