# SPDX-License-Identifier: Apache-2.0
"""What ci/kernels and ci/arm64 share: the files of a guest that qemu boots, and what runs in there. A guest has this file too."""
import importlib.machinery
import importlib.util
import os
import re
import subprocess

# Of Python's library: what a guest never imports.
PYTHON_WITHOUT = ("test", "idlelib", "lib2to3", "ensurepip", "dist-packages", "site-packages", "pydoc_data", "turtledemo",
                  "tkinter", "distutils", "unittest", "__pycache__")
MOUNTS = """mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
mount -t cgroup2 cgroup /sys/fs/cgroup
for controller in cpu io memory pids; do echo +$controller >/sys/fs/cgroup/cgroup.subtree_control; done
ip link set lo up
"""
# What a kernel says when something that runs in it is wrong.
ALARM = re.compile(r"BUG:|WARNING:|Oops|Unable to handle kernel|scheduling while atomic|invalid context|general protection|Kernel panic|"
                   r"possible recursive|suspicious RCU|refcount_t|hung_task|blocked for more than")


def python_files(library):
    """The files of Python's library below a folder that a guest may import."""
    for directory, names, files in os.walk(library):
        names[:] = [name for name in names if name not in PYTHON_WITHOUT and not name.startswith("config-")]
        for name in files:
            path = os.path.join(directory, name)
            if os.path.exists(path):  # some are links to what is not installed
                yield path


def pack(folder, path):
    """An initramfs of the folder. Not compressed: an emulator would have to unpack it. CalledProcessError when that fails."""
    with open(path, "wb") as file:
        find = subprocess.Popen(["find", ".", "-print0"], cwd=folder, stdout=subprocess.PIPE)
        subprocess.run(["cpio", "--null", "--create", "--format=newc", "--quiet", "--owner=+0:+0"], cwd=folder, stdin=find.stdout,
                       stdout=file, check=True)
        find.stdout.close()
        if find.wait():
            raise subprocess.CalledProcessError(find.returncode, "find")


def load_program(path):
    """A program without an ending, such as ci/plants, as a module."""
    loader = importlib.machinery.SourceFileLoader(os.path.basename(path), path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def run(command, seconds, **environment):
    """(exit status, stdout, stderr); status None: it did not end, or could not start."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds, stdin=subprocess.DEVNULL,
                              env=dict(os.environ, **environment))
    except subprocess.TimeoutExpired:
        return None, "", "no end within %d s" % seconds
    except OSError as trouble:
        return None, "", str(trouble)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def alarms():
    """(lines of the kernel's log that say something is wrong, how many lines it has)."""
    log = run(["dmesg"], 60)[1].splitlines()
    return [line for line in log if ALARM.search(line)][:20], len(log)
