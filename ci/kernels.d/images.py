# SPDX-License-Identifier: Apache-2.0
"""What ci/kernels boots: kernels of Debian's archive, fetched by apt-get into a folder of their own (the system's
sources, lists and packages are not touched), and an initramfs with busybox, Python, upgate, the plants and the
libraries of all of them. Reads the archive, the build and the system's Python; writes the cache."""
import glob
import gzip
import lzma
import os
import re
import shutil
import subprocess
import time

import emulated

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
SUITES = ("bullseye", "bookworm", "bookworm-backports", "trixie", "trixie-backports")
LISTS_AGE_S = 7 * 86400
# A package of one kernel: 6.1.0-56-cloud-amd64, 6.12.117+deb12-rt-amd64. Meta-packages have one number less.
PACKAGE = re.compile(r"^linux-image-((\d+\.\d+)\.[\w.+-]*?)-(cloud|rt)-amd64$")
PARTS = re.compile(r"(linux-(?:binary|modules)-\S+) \(= ([^)]+)\)")
# What a virtual machine's disk takes; those that are built in are passed over. 5.10's ext4 asks for crc32c by name.
MODULES = ("virtio_pci", "virtio_blk", "crc32c_generic", "ext4")
FOLDERS = ("proc", "sys", "dev", "tmp", "run", "root", "etc", "var/tmp", "usr/bin", "usr/lib", "usr/lib64", "upgate")
# The first program of the guest: modules, file systems, then the checks, whatever becomes of them the end.
INIT = """#!/bin/sh
PATH=/usr/bin
%swhile read module; do insmod /modules/$module; done </modules/order
mount -t ext4 /dev/vda /var/tmp
HOME=/root UPGATE_BUILD=/upgate/build PYTHONDONTWRITEBYTECODE=1 python3 /upgate/ci/kernels.d/guest.py "$(cat /proc/cmdline)"
sync
poweroff -f
""" % emulated.MOUNTS


class NotToBeHad(Exception):
    """A kernel that cannot be fetched; the text says why."""


def output(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    if done.returncode != 0:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
        raise NotToBeHad("%s: %s" % (command[0], words[0]))
    return done.stdout.decode("utf-8", "replace")


def newer(version, other):
    return subprocess.run(["dpkg", "--compare-versions", version, "gt", other]).returncode == 0


def own_mirror():
    """Debian's archive as this machine's own sources name it; None: they name none."""
    done = subprocess.run(["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)", "Origin: Debian"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True)
    sites = [line.split() for line in done.stdout.splitlines()]
    return next((site for site, release in sites if release in SUITES), None)


class Archive:
    """Debian's archive through an apt-get with a configuration of its own."""

    def __init__(self, cache, mirror):
        self.folder = os.path.join(cache, "apt")
        self.debs = os.path.join(cache, "debs")
        for name in ("lists/partial", "archives/partial", "sources"):
            os.makedirs(os.path.join(self.folder, name), exist_ok=True)
        os.makedirs(self.debs, exist_ok=True)
        with open(os.path.join(self.folder, "sources.list"), "w", encoding="ascii") as file:
            file.writelines("deb [arch=amd64 signed-by=%s] %s %s main\n" % (KEYS, mirror, suite) for suite in SUITES)
        open(os.path.join(self.folder, "status"), "a", encoding="ascii").close()
        config = {"Dir::State": "", "Dir::State::lists": "lists", "Dir::State::status": "status", "Dir::Cache": "",
                  "Dir::Etc::sourcelist": "sources.list", "Dir::Etc::sourceparts": "sources"}
        lines = ['%s "%s";\n' % (key, os.path.join(self.folder, name)) for key, name in config.items()]
        lines += ['Acquire::Languages "none";\n', 'APT::Sandbox::User "root";\n', 'APT::Architecture "amd64";\n']
        path = os.path.join(self.folder, "apt.conf")
        with open(path, "w", encoding="ascii") as file:
            file.writelines(lines)
        self.environment = dict(os.environ, APT_CONFIG=path, LC_ALL="C")

    def refresh(self):
        """The lists of packages, when those that are there are old. Suites that are gone are passed over by apt-get."""
        stamp = os.path.join(self.folder, "stamp")
        if os.path.exists(stamp) and time.time() - os.path.getmtime(stamp) < LISTS_AGE_S:
            return
        output(["apt-get", "-qq", "update"], env=self.environment)
        open(stamp, "w", encoding="ascii").close()

    def kernels(self):
        """{'6.1': (package, version), '6.1-rt': ...}: the newest of each in the archive."""
        self.refresh()
        listed = output(["apt-cache", "search", "--names-only", "^linux-image-.*-amd64$"], env=self.environment)
        packages = [line.split()[0] for line in listed.splitlines() if PACKAGE.match(line.split()[0])]
        found = {}
        for line in output(["apt-cache", "madison"] + packages, env=self.environment).splitlines():
            package, version = [field.strip() for field in line.split("|")][:2]
            match = PACKAGE.match(package)
            name = match[2] + ("-rt" if match[3] == "rt" else "")
            if name not in found or newer(version, found[name][1]):
                found[name] = (package, version)
        return found

    def fetch(self, package, version):
        """The paths of the .deb, in the cache, and of those that newer packages have split off."""
        debs = [self.fetch_one(package, version)]
        depends = output(["dpkg-deb", "-f", debs[0], "Depends"])
        return debs + [self.fetch_one(*part) for part in PARTS.findall(depends)]

    def fetch_one(self, package, version):
        path = os.path.join(self.debs, "%s_%s_amd64.deb" % (package, version.replace(":", "%3a")))
        if not os.path.exists(path):
            output(["apt-get", "-qq", "download", "%s=%s" % (package, version)], env=self.environment, cwd=self.debs)
        if not os.path.exists(path):
            raise NotToBeHad("apt-get did not bring %s" % os.path.basename(path))
        return path


def module_bytes(path):
    with open(path, "rb") as file:
        data = file.read()
    return lzma.decompress(data) if path.endswith(".xz") else gzip.decompress(data) if path.endswith(".gz") else data


def modules(folder):
    """[(name, bytes)] of MODULES and what they depend on, in the order in which they are loaded."""
    paths, order = {}, {}
    for directory, _, names in os.walk(folder):
        for name in names:
            if re.search(r"\.ko(\.[gx]z)?$", name):
                paths[name.split(".ko")[0].replace("-", "_")] = os.path.join(directory, name)

    def add(name):
        if name in paths and name not in order:
            data = module_bytes(paths[name])
            depends = re.search(rb"\0depends=([^\0]*)\0", data)
            for other in depends[1].decode("ascii").split(",") if depends else ():
                add(other.replace("-", "_"))
            order[name] = data
    for name in MODULES:
        add(name)
    return order


def unpack(debs, folder):
    """vmlinuz and the modules that a guest needs, of the .debs of a kernel, into `folder`: once."""
    if os.path.exists(os.path.join(folder, "vmlinuz")):
        return
    shutil.rmtree(folder, ignore_errors=True)
    whole = folder + ".whole"
    shutil.rmtree(whole, ignore_errors=True)
    os.makedirs(whole)
    os.makedirs(os.path.join(folder, "modules"))
    try:
        for deb in debs:
            output(["dpkg-deb", "-x", deb, whole])
        images = [os.path.join(directory, name) for directory, _, names in os.walk(whole) for name in names
                  if name.startswith("vmlinuz")]
        if not images:
            raise NotToBeHad("no vmlinuz in %s" % ", ".join(os.path.basename(deb) for deb in debs))
        needed = modules(whole)
        for name, data in needed.items():
            with open(os.path.join(folder, "modules", name + ".ko"), "wb") as file:
                file.write(data)
        with open(os.path.join(folder, "modules", "order"), "w", encoding="ascii") as file:
            file.writelines("%s.ko\n" % name for name in needed)
        shutil.copy(images[0], os.path.join(folder, "vmlinuz"))
    finally:
        shutil.rmtree(whole)


class Tree:
    """The guest's files, gathered in a folder."""

    def __init__(self, folder):
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        for name in FOLDERS:
            os.makedirs(os.path.join(folder, name))
        for name in ("bin", "lib", "lib64"):
            os.symlink("usr/" + name, os.path.join(folder, name))
        self.have = set()

    def put(self, source, path):
        target = os.path.join(self.folder, path.lstrip("/"))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(os.path.realpath(source), target)

    def write(self, path, data, mode=0o644):
        target = os.path.join(self.folder, path.lstrip("/"))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(data)
        os.chmod(target, mode)

    def libraries(self, path):
        """The shared libraries of a program, where its loader looks for them."""
        listed = subprocess.run(["ldd", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode()
        for library in re.findall(r"(?:=> |^\s*)(/\S+) \(", listed, re.M):
            if library not in self.have:
                self.have.add(library)
                self.put(library, library)

    def program(self, path, target):
        self.put(path, target)
        self.libraries(path)

    def python(self):
        """The system's interpreter with its library."""
        interpreter = os.path.realpath("/usr/bin/python3")
        version = os.path.basename(interpreter)
        self.program(interpreter, "/usr/bin/python3")
        for path in emulated.python_files("/usr/lib/" + version):
            self.put(path, path)
            if path.endswith(".so"):
                self.libraries(path)


def guest_tree(folder, build):
    """Everything but the modules of a kernel."""
    tree = Tree(folder)
    busybox = shutil.which("busybox") or "/bin/busybox"
    tree.put(busybox, "/usr/bin/busybox")
    for name in output([busybox, "--list"]).split():
        path = os.path.join(folder, "usr/bin", name)
        if name != "busybox" and not os.path.lexists(path):
            os.symlink("busybox", path)
    tree.python()
    tree.program(os.path.join(build, "upgate"), "/upgate/build/upgate")
    plant = "reference_models/plants/plant"
    tree.program(os.path.join(build, plant), "/upgate/build/" + plant)
    tree.put(os.path.join(ROOT, "reference_models/plants/answers.json"), "/upgate/reference_models/plants/answers.json")
    for name in ["plants", "kernels.d/guest.py", *glob.glob("*.py", root_dir=os.path.join(ROOT, "ci"))]:
        tree.put(os.path.join(ROOT, "ci", name), "/upgate/ci/" + name)
    tree.write("/init", INIT.encode(), 0o755)
    tree.write("/etc/passwd", b"root:x:0:0::/root:/bin/sh\n")
    return tree


def initramfs(tree, kernel, path):
    """The archive of the tree and of an unpacked kernel's modules."""
    shutil.copytree(os.path.join(kernel, "modules"), os.path.join(tree.folder, "modules"))
    try:
        emulated.pack(tree.folder, path)
    except subprocess.CalledProcessError as trouble:
        raise NotToBeHad("failed to write %s: %s" % (path, trouble)) from None
