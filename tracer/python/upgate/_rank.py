# SPDX-License-Identifier: Apache-2.0
"""A rank recorded from inside: where a launcher says who a worker is only after it has started (Ray Train), so that no wrapper can know."""
import os
import shutil
import subprocess
import sys

_TIMEOUT_S = 60


def _program():
    """Beside this package, in the build tree or installed, else on the path."""
    here = os.path.dirname(os.path.abspath(__file__))
    for path in (os.path.join(here, "..", "..", "upgate"), os.path.join(here, "..", "..", "..", "..", "bin", "upgate")):
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return os.path.normpath(path)
    return shutil.which("upgate")


def rank(directory, run=None):
    """Record this process from here to its end, as `upgate rank -o directory` would; who it is says os.environ (RANK, WORLD_SIZE, ...).

    True: it is being recorded. Otherwise a sentence on stderr says why not, and nothing else is different. Never raises.
    """
    try:
        program = _program()
        if not program:
            raise OSError("there is no program 'upgate' on the path")
        words = [program, "rank", "-o", os.fspath(directory), "--pid", str(os.getpid())]
        words += ["--job", run] if run else []
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=_TIMEOUT_S)
        return done.returncode == 0
    except Exception as error:  # whatever it is, the rank has its own work to do
        print("upgate: warning: this rank is not recorded: %s" % error, file=sys.stderr)
        return False
