# SPDX-License-Identifier: Apache-2.0
"""A rank recorded from inside: where a launcher says who a worker is only after it has started (Ray), so that no wrapper can know."""
import os
import shutil
import socket
import subprocess
import sys
import threading

try:
    from upgate._core import reopen
except ImportError:
    from upgate._off import reopen

_TIMEOUT_S = 60
_END_S = 20  # until the shard is whole; names of functions are looked up at the end

_STEPS = "UPGATE_STEPS"

_recorder = None  # our pid, our end of the socket by which the recorder of this process is told to end, and its file of steps
_lock = threading.RLock()  # of two threads that call, as actors of Ray may, the second ends what the first began


def _forked():
    global _lock
    _lock = threading.RLock()  # the thread that had it is not here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _program():
    """Beside this package, in the build tree or installed, else on the path."""
    here = os.path.dirname(os.path.abspath(__file__))
    for path in (os.path.join(here, "..", "..", "upgate"), os.path.join(here, "..", "..", "..", "..", "bin", "upgate")):
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return os.path.normpath(path)
    return shutil.which("upgate")


def _ray():
    """Of a worker of Ray, what tells its job from all others, of other clusters too; else None. Its environment does not: there the number of the
    job is often that of no job, and the variables of whatever launcher started Ray are those of the node."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    if context.worker.mode != ray.WORKER_MODE:
        return None
    return "%s.%s" % (context.get_session_name(), context.get_job_id())


def _number(name):
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else None


def _identity(run, rank, world_size):
    """Options that say who this is; none: the launcher's variables do."""
    job = _ray()
    if rank is None and world_size is None and job is not None:
        rank, world_size = _number("RANK"), _number("WORLD_SIZE")
        if rank is None or world_size is None:
            raise ValueError("Ray does not say which rank it is: upgate.rank(directory, rank=…, world_size=…)")
    if rank is None and world_size is None:
        return ["--job", run] if run else []
    if rank is None or world_size is None:
        raise ValueError("rank= and world_size= go together")
    if run is None and job is None:
        raise ValueError("rank= and world_size= want the name of the run, too: upgate.rank(directory, run, rank=…, world_size=…)")
    who = ["--job", run or job, "--rank", str(int(rank)), "--ranks", str(int(world_size))]
    return who if job is None else who + ["--again"]


def rank(directory, run=None, rank=None, world_size=None):
    """Record this process from here to its end, or to rank_end(), as `upgate rank -o directory` would. Who it is: rank of world_size where given, else
    what os.environ says (RANK, WORLD_SIZE, ...). run: the name of the job; in Ray by itself that of its session and job.

    The steps that upgate.step() and upgate.steps() mark from here on are recorded. Of a process that is recorded already, the former recording is ended.
    True: it is being recorded. Otherwise a sentence on stderr says why not, and nothing else is different. Never raises.
    """
    with _lock:
        return _begin(directory, run, rank, world_size)


def _begin(directory, run, rank, world_size):
    global _recorder
    theirs = None
    try:
        rank_end()
        program = _program()
        if not program:
            raise OSError("there is no program 'upgate' on the path")
        words = [program, "rank", "-o", os.fspath(directory), "--pid", str(os.getpid()), "--stdin-ends"] + _identity(run, rank, world_size)
        ours, theirs = socket.socketpair()
        _recorder = (os.getpid(), ours, None)  # from here on: a recorder that is late goes on by itself, and is to have an end
        done = subprocess.run(words, stdin=theirs, stdout=subprocess.PIPE, timeout=_TIMEOUT_S)
        if done.returncode != 0:
            return False
        name, _, path = os.fsdecode(done.stdout).strip().partition("=")
        if name != _STEPS or os.environ.get(_STEPS):  # it has none, or a harness has the steps
            path = None
        elif reopen():
            os.environ[_STEPS] = path
        else:
            print("upgate: warning: steps are not recorded: upgate.rank() was called within one", file=sys.stderr)
        _recorder = (os.getpid(), ours, path)
        return True
    except Exception as error:  # whatever it is, the rank has its own work to do
        print("upgate: warning: this rank is not recorded: %s" % error, file=sys.stderr)
        return False
    finally:
        if theirs is not None:
            theirs.close()


def rank_end():
    """End what rank() began, in a process that goes on: a worker that its next task, or the next job, will have; also a recorder that was not ready in
    time, of which rank() said False. Returns when the shard is whole, or after 20 s. Without a recording nothing is done. Never raises.
    """
    with _lock:
        _end()


def _end():
    global _recorder
    recorder, _recorder = _recorder, None
    if recorder is None:
        return
    pid, end, steps = recorder
    try:
        if pid == os.getpid():  # a child has it by fork, but is recorded with its parent
            if steps and os.environ.get(_STEPS) == steps:
                del os.environ[_STEPS]
                reopen()
            end.settimeout(_END_S)
            end.send(b"e", socket.MSG_NOSIGNAL)  # programs let SIGPIPE end them
            while end.recv(64):  # the recorder has the other end until it is gone
                pass
    except OSError:  # it has ended before
        pass
    finally:
        end.close()
