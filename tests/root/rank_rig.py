# SPDX-License-Identifier: Apache-2.0
"""What the tests of ranks and of their merge share: jobs under launchers, shards, merged stores."""
import glob
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time

BUILD, SOURCE = os.environ["UPGATE_BUILD"], os.environ["UPGATE_SOURCE"]
UPGATE = os.path.join(BUILD, "upgate")
MPI_REDUCE = os.path.join(BUILD, "upgate-mpi-reduce")
MPI_SETTINGS = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none"} # containers may forbid what Open MPI would do instead
PYTHON = os.path.join(SOURCE, "envs", "candidate", "bin", "python")
JOB = os.path.join(SOURCE, "tests", "root", "rank_job.py")
# Lengths; every other column *_ns is a time. process.start_ns is no time of a record, but says which process it is.
LENGTHS = {"dur_ns", "threshold_ns", "short_gap_ns", "run_ns", "call_ns", "call_dur_ns", "clock_residual_ns", "clock_residual_max_ns", "gpu_ns",
           "started_wall_ns", "ended_wall_ns", "clock_error_ns"}
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "OMPI_", "PMI_", "PMIX_", "SLURM_", "TORCHELASTIC_", "MASTER_", "PET_")
WORK = "i=0; while [ $i -lt %d ]; do sleep 0.1; i=$((i+1)); done"
# As long as the test wants, however busy the machine is; two minutes where the test has failed.
UNTIL = "i=0; while [ ! -e '%s' ] && [ $i -lt 1200 ]; do sleep 0.1; i=$((i+1)); done"


class Skip(Exception):
    """Of a case: what it needs and is not there."""


def main(names, why):
    """The cases among `names`, or those that the command line asks for, each in a folder of its own. why: nothing can be tried, or None."""
    if why:
        print("skipped: " + why)
        return 77
    cases = {name[5:]: one for name, one in names.items() if name.startswith("case_")}
    tried = 0
    for name in sys.argv[1:] or cases:
        with tempfile.TemporaryDirectory(prefix="upgate-rank-", dir=BUILD) as folder:
            try:
                cases[name](folder)
                tried += 1
                print("ok  " + name, flush=True)
            except Skip as lack:
                print("skipped  %s: %s" % (name, lack), flush=True)
    return 0 if tried else 77


def environment(**more):
    """Ours, without what an outer launcher said."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    return dict(own, OMP_NUM_THREADS="1", **{name: str(value) for name, value in more.items()})


def run(*words, env=None, timeout=120):
    return subprocess.run(list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env or environment(), timeout=timeout)


def rank(folder, *command, env=None, options=(), **popen):
    return subprocess.Popen([UPGATE, "rank", "-o", folder, *options, "--", *command], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, **popen)


def shards(folder):
    return sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names
                  if not name.endswith("-journal"))


def await_shard(path, deadline_s=60):
    """Until its recorder has committed what it saw of the worker for the first time."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        if os.path.exists(path) and rows(path, "SELECT count(*) FROM gap")[0][0]:
            return
        time.sleep(0.1)
    raise AssertionError("no shard '%s' after %d s" % (path, deadline_s))


def rows(path, sql, *values):
    """[[0]] where it is no store yet."""
    try:
        base = sqlite3.connect("file:%s?mode=rw" % path, uri=True, timeout=10)
        found = base.execute(sql, values).fetchall()
        base.close()
        return found
    except sqlite3.Error:
        return [[0]]


def change(path, *statements):
    base = sqlite3.connect(path, timeout=10)
    for statement in statements:
        base.execute(*statement) if isinstance(statement, tuple) else base.execute(statement)
    base.commit()
    base.close()


def move(path, by_ns, error_ns, host):
    """The shard as another node would have written it, whose clock and boot are others."""
    base = sqlite3.connect(path)
    for table, in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        for _, column, *_ in base.execute("PRAGMA table_info(%s)" % table).fetchall():
            if column.endswith("_ns") and column not in LENGTHS and (table, column) != ("process", "start_ns"):
                base.execute("UPDATE %s SET %s = %s + ? WHERE %s IS NOT NULL" % (table, column, column, column), (by_ns,))
    base.execute("UPDATE recording SET target = json_set(target, '$.rank.host', ?1, '$.rank.boot', ?1, '$.rank.wall_minus_monotonic_ns', "
                 "json_extract(target, '$.rank.wall_minus_monotonic_ns') - ?2, '$.rank.wall_minus_monotonic_end_ns', "
                 "json_extract(target, '$.rank.wall_minus_monotonic_end_ns') - ?2)", (host, by_ns))
    base.commit()
    base.close()
    errors(path, error_ns)


def errors(path, error_ns):
    change(path, ("UPDATE recording SET target = json_set(target, '$.rank.clock_error_ns', ?1, '$.rank.clock_error_end_ns', ?1)", (error_ns,)))


def recorders(folder, born=True):
    """Processes that record into it, but for who waits to become a worker. born: nor who has just been forked to be one, and is in our session."""
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as file:
                words = file.read().split(b"\0")
            if b"rank" in words and folder.encode() in words and not (born and os.getsid(pid) == os.getsid(0)) and \
                    os.readlink("/proc/%d/exe" % pid) == UPGATE:
                found.append(pid)
        except OSError:
            pass
    return found


def lives(pid):
    try:
        return os.readlink("/proc/%d/exe" % pid) == UPGATE
    except OSError:
        return False


def await_end(folder, deadline_s=60):
    """Of recorders whose workers have ended; also of one whose worker was killed while it was being born."""
    end = time.monotonic() + deadline_s
    while left := recorders(folder, born=False):
        while left:
            assert time.monotonic() < end, "recorders of '%s' do not end" % folder
            time.sleep(0.05)
            left = [pid for pid in left if lives(pid)] # a look at all of /proc costs 20 ms


def merge(folder, store, *options):
    """Exit code, the document (None: none was printed), what stderr said."""
    if os.path.exists(store):
        os.unlink(store)
    done = run(UPGATE, "merge", folder, "-o", store, "--format", "json", *options)
    assert not glob.glob(glob.escape(store) + ".*"), "a half merged store is left"
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def part(folder, parts):
    """The same of one node's shards, into a directory of parts."""
    done = run(UPGATE, "merge", folder, "--part", "-o", parts, "--format", "json")
    assert not [name for name in shards(parts) if name.endswith(".partial")], "a half made part is left"
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def reduced(*words):
    """The same of `upgate merge --reduced`."""
    done = run(UPGATE, "merge", "--reduced", "--format", "json", *words)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def mpi_lacks():
    """Why upgate-mpi-reduce cannot run here, or None."""
    if not os.access(MPI_REDUCE, os.X_OK):
        return "no upgate-mpi-reduce: it is built where an MPI for C is (package libopenmpi-dev)"
    return None if shutil.which("mpirun") else "no mpirun (package openmpi-bin)"


def mpi_reduce(*programs):
    """Exit code, stdout, what stderr said. Of each program how many processes, and its words: each may see another directory. One process is started
    as it is: MPI is then of one."""
    if [count for count, *_ in programs] == [1]:
        words = [MPI_REDUCE, *programs[0][1:], ":"]
    else:
        words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
        for count, *own in programs:
            words += ["-n", str(count), MPI_REDUCE, *own, ":"]
    done = run(*words[:-1], env=environment(**MPI_SETTINGS))
    return done.returncode, done.stdout, done.stderr


def query(folder, *options):
    """Exit code, the document (None: none was printed), what stderr said."""
    done = run(UPGATE, "query", folder, "--format", "json", *options)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def late(store):
    """Who is named by `upgate stalls`: (rank, host, what, share), and the document."""
    done = run(UPGATE, "stalls", store, "--all", "--format", "json")
    assert done.returncode in (0, 3), done.stderr
    document = json.loads(done.stdout)
    return [(one["culprit"]["rank"], one["culprit"]["host"], one["culprit"]["what"], one["share"]) for one in document["stalls"]
            if one["cause"] == "straggler"], document


class Slurm:
    """A controller and two nodes on this machine, in a folder; none of it outlives us. gpus: that each node says it has. They are device files, which
    takes the right to make some (PermissionError)."""

    def __init__(self, folder, nodes=2, gpus=0):
        self.folder, self.processes = folder, []
        ports = [self.port() for _ in range(nodes + 1)]
        lines = ["ClusterName=upgate", "SlurmctldHost=%s(127.0.0.1)" % socket.gethostname(), "SlurmUser=root", "SlurmdUser=root",
                 "AuthType=auth/none", "CredType=cred/none", "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none",
                 "SelectType=select/cons_tres", "SlurmctldPort=%d" % ports[0], "StateSaveLocation=%s/state" % folder,
                 "SlurmdSpoolDir=%s/spool.%%n" % folder, "SlurmctldPidFile=%s/controller.pid" % folder, "SlurmdPidFile=%s/%%n.pid" % folder,
                 "SlurmctldLogFile=%s/controller.log" % folder, "SlurmdLogFile=%s/%%n.log" % folder, "ReturnToService=2", "KillWait=2",
                 "JobAcctGatherType=jobacct_gather/none"]
        if gpus:
            for i in range(gpus):
                os.mknod(os.path.join(folder, "gpu%d" % i), stat.S_IFCHR | 0o600, os.makedev(1, 3))
            with open(os.path.join(folder, "gres.conf"), "w", encoding="utf-8") as file:
                file.write("Name=gpu File=%s/gpu[0-%d]\n" % (folder, gpus - 1))
            lines.append("GresTypes=gpu")
        lines += ["NodeName=n%d NodeAddr=127.0.0.1 NodeHostname=%s Port=%d CPUs=2 State=UNKNOWN%s" % (
            i, socket.gethostname(), ports[i + 1], " Gres=gpu:%d" % gpus if gpus else "") for i in range(nodes)]
        lines.append("PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:4 State=UP")
        self.conf = os.path.join(folder, "slurm.conf")
        os.makedirs(os.path.join(folder, "state"))
        with open(self.conf, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        self.env = environment(SLURM_CONF=self.conf)
        try:
            self.start(self.tool("slurmctld"), "-D")
            for i in range(nodes):
                os.makedirs(os.path.join(folder, "spool.n%d" % i))
                self.start(self.tool("slurmd"), "-D", "-N", "n%d" % i)
            self.ready(nodes)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def tool(name):
        return shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")

    @staticmethod
    def lacks():
        missing = [name for name in ("slurmctld", "slurmd", "srun") if not Slurm.tool(name)]
        return "no %s (package slurm-wlm)" % missing[0] if missing else None

    @staticmethod
    def port():
        """One that is free, and that the kernel gives to nobody who asks for any: between here and its use others do."""
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            first, last = map(int, file.read().split())
        numbers = list(range(10000, first)) + list(range(last + 1, 65536)) or list(range(first, last + 1))
        while True:
            with socket.socket() as one:
                try:
                    one.bind(("127.0.0.1", random.choice(numbers)))
                    return one.getsockname()[1]
                except OSError: # it is taken
                    pass

    def start(self, *words):
        self.processes.append(subprocess.Popen(list(words), env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                               start_new_session=True))

    def ready(self, nodes):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if run("sinfo", "-h", "-t", "idle", "-o", "%D", env=self.env).stdout.strip() == str(nodes):
                return
            time.sleep(0.2)
        raise AssertionError("Slurm's nodes are not ready after 60 s")

    def close(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
