# SPDX-License-Identifier: Apache-2.0
"""A wheel of the tarball's tree: program, injected libraries and what they need go where pip puts a wheel's data, below the
environment's own prefix, so that the program finds ../lib/upgate there as anywhere; the Python package once more where
`import upgate` finds it. Packed by the `wheel` tool. The tag says what glibc the files really ask for."""
import os
import re
import shutil
import subprocess

# upgate-load, for benchmarks, alone asks for glibc 2.35, which RHEL 9 does not have. Documents are read elsewhere; C programs take
# their headers from the sources or the other packages (pip would leave an empty folder of them).
LEFT_OUT = ("lib/upgate/reference_models/load", "share/doc", "include")
METADATA = """Metadata-Version: 2.1
Name: upgate
Version: {version}
Summary: Judge an upgrade of a framework or of CUDA, and say why it is slow
License: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.8
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Classifier: Programming Language :: Python :: 3
Description-Content-Type: text/plain

The program `upgate`, for Linux, and the package `upgate` with the step calls:

    import upgate
    for batch in upgate.steps(loader, samples=64):
        with upgate.phase("forward"):
            loss = model(batch)

Without the program around them the calls do nothing. Libraries that the program needs come along, with their licences in
lib/upgate/bundled/licences of the environment. The programs that run in the kernel are dual GPL-2.0-only / BSD-2-Clause.
"""
WHEEL = """Wheel-Version: 1.0
Generator: upgate
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""


def elf_files(tree):
    for folder, _, names in os.walk(tree):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def glibc_needed(tree):
    """The newest version of glibc that a file asks for: (major, minor), and that file."""
    newest, who = (2, 5), None
    for path in elf_files(tree):
        told = subprocess.run(["readelf", "-VW", path], stdout=subprocess.PIPE, text=True, check=True).stdout
        for major, minor in re.findall(r"Name: GLIBC_(\d+)\.(\d+)", told):
            if (int(major), int(minor)) > newest:
                newest, who = (int(major), int(minor)), path
    return newest, who


def make(tree, version, machine, folder, tool):
    """The path of the wheel of `tree`, in `folder`. `tool`: a Python that has the module wheel."""
    work = os.path.join(folder, "wheel")
    shutil.rmtree(work, ignore_errors=True)
    data = os.path.join(work, "upgate-%s.data" % version, "data")
    info = os.path.join(work, "upgate-%s.dist-info" % version)
    shutil.copytree(tree, data, symlinks=True)
    for name in LEFT_OUT:
        shutil.rmtree(os.path.join(data, name), ignore_errors=True)
    shutil.copytree(os.path.join(data, "lib/upgate/python/upgate"), os.path.join(work, "upgate"))
    os.makedirs(info)
    shutil.copy(os.path.join(tree, "share/doc/upgate/LICENSE"), info)
    glibc, _ = glibc_needed(work)
    platform = "manylinux_%d_%d_%s" % (glibc + (machine,))
    for name, text in (("METADATA", METADATA.format(version=version)), ("WHEEL", WHEEL.format(platform=platform))):
        with open(os.path.join(info, name), "w", encoding="utf-8") as file:
            file.write(text)
    subprocess.run([tool, "-m", "wheel", "pack", "--dest-dir", folder, work], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(work)
    return os.path.join(folder, "upgate-%s-py3-none-%s.whl" % (version, platform))
