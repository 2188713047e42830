# SPDX-License-Identifier: Apache-2.0
"""Boots an arm64 kernel in qemu-system-aarch64 with an initramfs of busybox, Python, upgate, the plants and some of the
tests, and gives back what guest.py tells in there. The tests lie where they were built, so that the paths compiled into
them hold. Reads the unpacked packages and the build; writes the archive and the console's text."""
import glob
import json
import os
import re
import shutil
import subprocess

import emulated

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FOLDERS = ("proc", "sys", "dev", "tmp", "run", "root", "etc", "var/tmp", "usr/bin", "usr/sbin", "usr/lib")
MARK = "@@ "  # before each line of guest.py on the console
INIT = """#!/bin/sh
export PATH=/usr/bin:/usr/sbin HOME=/root
%spython3 -B %s/ci/arm64.d/guest.py
sync
poweroff -f
"""


class Tree:
    """The guest's files below a folder; those of the root of packages at their place, those of the build at theirs."""

    def __init__(self, folder, root):
        self.folder, self.root = folder, root
        shutil.rmtree(folder, ignore_errors=True)
        for name in FOLDERS:
            os.makedirs(os.path.join(folder, name))
        for name in ("bin", "lib", "sbin"):
            os.symlink("usr/" + name, os.path.join(folder, name))

    def put(self, source, path=None, strip=False):
        target = os.path.join(self.folder, (path or source).lstrip("/"))
        if os.path.exists(target):
            return
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(os.path.realpath(source), target)
        with open(source, "rb") as file:
            is_elf = file.read(4) == b"\x7fELF"
        if is_elf and strip: # a third of the size; the symbols stay
            subprocess.run(["aarch64-linux-gnu-strip", "--strip-debug", target], check=True)
        if is_elf:
            self.libraries(source)

    def libraries(self, path):
        told = subprocess.run(["aarch64-linux-gnu-readelf", "-d", path], stdout=subprocess.PIPE, text=True, check=True).stdout
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", told) + ["ld-linux-aarch64.so.1"]:
            for folder in ("usr/lib/aarch64-linux-gnu", "usr/lib"):
                found = os.path.join(self.root, folder, name)
                if os.path.exists(found):
                    self.put(found, os.path.join("/", folder, name))

    def link(self, path, target):
        os.makedirs(os.path.dirname(os.path.join(self.folder, path)), exist_ok=True)
        if not os.path.lexists(os.path.join(self.folder, path)):
            os.symlink(target, os.path.join(self.folder, path))

    def write(self, path, text, mode=0o644):
        with open(os.path.join(self.folder, path), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(os.path.join(self.folder, path), mode)

    def python(self):
        version = os.path.basename(os.path.realpath(os.path.join(self.root, "usr/bin/python3")))
        self.put(os.path.join(self.root, "usr/bin", version), "/usr/bin/" + version)
        self.link("usr/bin/python3", version)
        for path in emulated.python_files(os.path.join(self.root, "usr/lib", version)):
            self.put(path, path[len(self.root):])

    def busybox(self, emulator):
        self.put(os.path.join(self.root, "usr/bin/busybox"), "/usr/bin/busybox")
        listed = subprocess.run(emulator + [os.path.join(self.root, "usr/bin/busybox"), "--list"], stdout=subprocess.PIPE,
                                text=True, check=True)
        for name in listed.stdout.split():
            self.link("usr/bin/" + name, "busybox")


def fill(folder, root, build, emulator, work):
    """The tree of a guest. `work` is what guest.py does there; its tests bring their programs with them."""
    tree = Tree(folder, root)
    tree.busybox(emulator)
    tree.python()
    for name in ("upgate", "libupgate_inject.so", "libupgate_inject_nop.so", "reference_models/plants/plant", "tests/root/pystack_probe"):
        tree.put(os.path.join(build, name), strip=True)
    for name in ("ci/plants", "ci/arm64.d/guest.py", "reference_models/plants/answers.json", *glob.glob("ci/*.py", root_dir=ROOT),
                 *glob.glob("tests/mock/*.py", root_dir=ROOT)):
        tree.put(os.path.join(ROOT, name))
    for pattern in ("tests/mock/*", "tests/mock/cupti-*/*.so*", "tests/unit/test_*", "tracer/symbols/*symbols_fixture_*",
                    "harness/fingerprint/*.so", "tracer/inject/*.so"):
        for path in glob.glob(os.path.join(build, pattern)):
            wanted = "/unit/" not in path or any(path == test["command"][0] for test in work["tests"])
            if wanted and os.path.isfile(path) and not path.endswith((".cmake", ".a", ".py")):
                tree.put(path, strip=True)
    tree.write("init", INIT % (emulated.MOUNTS, ROOT), 0o755)
    tree.write("etc/passwd", "root:x:0:0::/root:/bin/sh\n")
    tree.write("guest.json", json.dumps(dict(work, root=ROOT, build=build)))
    return tree


def run(kernel, archive, log, seconds, cpus=2, memory="3G"):
    """Lines that guest.py told, as objects; the last is {'what': 'end'} when it came to its end."""
    image = glob.glob(os.path.join(kernel, "boot", "vmlinuz-*"))[0]
    # max has pointer authentication and tagged addresses, as Grace has; the cheap cipher, or the emulator spends its time there.
    command = ["qemu-system-aarch64", "-M", "virt,gic-version=3", "-cpu", "max,pauth-impdef=on", "-smp", str(cpus), "-m", memory,
               "-kernel", image, "-initrd", archive, "-append", "console=ttyAMA0 quiet loglevel=1 panic=-1", "-nographic",
               "-no-reboot", "-nic", "none", "-monitor", "none", "-serial", "file:" + log]
    open(log, "w", encoding="utf-8").close()
    status = 0
    try:
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                timeout=seconds).returncode
    except subprocess.TimeoutExpired:
        status = "no end within %d s" % seconds
    told = []
    with open(log, encoding="utf-8", errors="replace") as file:
        for line in file:
            if MARK in line:
                try:
                    told.append(json.loads(line[line.index(MARK) + len(MARK):]))
                except ValueError: # cut off by the end of the guest, or by a word of the kernel's
                    told.append({"what": "garbled", "line": line.strip()[:200]})
    return status, told
