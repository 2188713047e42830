# SPDX-License-Identifier: Apache-2.0
"""The other architecture: a root of Debian's arm64 packages to build against (the one of ci/arm64), and
how its programs run here, under qemu-user."""
import glob
import os
import shutil
import sys

import roots

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(ROOT, "ci", "arm64.d"))
import sysroot  # noqa: E402

TOOLS = {"aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu", "qemu-aarch64-static": "qemu-user-static"}


def root(folder):
    """Downloads and unpacks, unless that is done."""
    path = os.path.join(folder, "sysroot")
    try:
        sysroot.unpack(sysroot.download(os.path.join(folder, "apt"), sysroot.PACKAGES), path)
    except sysroot.Failed as trouble:
        raise roots.Failed(str(trouble)) from trouble
    return path


def settings(path):
    """What cmake is told."""
    return ["-DCMAKE_TOOLCHAIN_FILE=" + os.path.join(ROOT, "cmake", "arm64.cmake"), "-DUPGATE_ARM64_ROOT=" + path,
            "-DUPGATE_PYTHON_INCLUDE=" + (glob.glob(path + "/usr/include/python3.*") + [""])[0]]


def emulator(path):
    return ["qemu-aarch64-static", "-L", path]


def empty(path, to):
    """The files of arm64's glibc, and nothing else."""
    shutil.rmtree(to, ignore_errors=True)
    for name in ("ld-linux-aarch64", "libc", "libm", "libdl", "librt", "libpthread", "libresolv"):
        for library in glob.glob("%s/usr/lib/aarch64-linux-gnu/%s.so.[0-9]*" % (path, name)):
            place = "/lib" if name.startswith("ld-") else "/lib/aarch64-linux-gnu"
            os.makedirs(to + place, exist_ok=True)
            shutil.copy(library, to + place)
    return to
