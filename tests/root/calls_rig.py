# SPDX-License-Identifier: Apache-2.0
"""The subject of calls.py and ab_calls.py, compiled: a program of C++, stripped and static ones, and a library."""
import atexit
import os
import shutil
import subprocess
import tempfile

SUBJECT = os.path.join(os.environ["UPGATE_SOURCE"], "tests", "root", "calls_subject.cc")
COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")


def build():
    """A folder with all of it, removed at the end."""
    folder = tempfile.mkdtemp(prefix="upgate-calls-")
    atexit.register(shutil.rmtree, folder, True)
    os.chmod(folder, 0o755)
    for name, words in (("subject", ["-pthread", "-ldl"]), ("libserve.so.1.2", ["-shared", "-fPIC", "-DLIBRARY", "-s"])):
        subprocess.run([COMPILER, "-O2", "-o", os.path.join(folder, name), SUBJECT] + words, check=True)
    subprocess.run(["strip", "-o", os.path.join(folder, "stripped"), os.path.join(folder, "subject")], check=True)
    return folder
