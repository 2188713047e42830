# SPDX-License-Identifier: Apache-2.0
"""An arm64 Debian in a folder, for the cross compiler to link against and for qemu to run in: packages of the release
that this machine runs, from the archives that its own sources name, by an apt-get that has lists, a cache and an (empty)
database of its own. Nothing of this machine's system changes, no foreign architecture is added to it. What is there is
kept: a second call asks no network and unpacks nothing."""
import os
import shutil
import subprocess

# What the build wants, what runs the Python of the tests, what the guest starts with, and its kernel (6.1 in Debian 12).
PACKAGES = ["libc6-dev", "libsqlite3-dev", "libyaml-dev", "libjansson-dev", "libelf-dev", "libdw-dev", "libiberty-dev",
            "liblzma-dev", "libbpf-dev", "libcurl4-openssl-dev", "libmicrohttpd-dev", "python3-dev", "busybox-static"]
KERNEL = "linux-image-cloud-arm64"
APT_SECONDS = 900


class Failed(Exception):
    """What could not be had, in words."""


def apt(folder, *words, **options):
    """What apt-get for arm64 prints; all that it writes lies below `folder`."""
    settings = {"APT::Architecture": "arm64", "APT::Architectures": "arm64", "APT::Install-Recommends": "false",
                "Dir::State": folder + "/state", "Dir::State::status": folder + "/state/status", "Dir::Cache": folder + "/cache",
                "Acquire::Languages": "none", "APT::Sandbox::User": "root", "Debug::NoLocking": "true"}
    settings.update({name.replace("_", "::"): value for name, value in options.items()})
    for path in ("state/lists/partial", "cache/archives/partial", "none/archives/partial"):
        os.makedirs(os.path.join(folder, path), exist_ok=True)
    open(settings["Dir::State::status"], "a", encoding="utf-8").close()
    command = ["apt-get", "-q", "-y"] + [word for setting in settings.items() for word in ("-o", "%s=%s" % setting)]
    done = subprocess.run(command + list(words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          stdin=subprocess.DEVNULL, timeout=APT_SECONDS)
    if done.returncode:
        raise Failed("apt-get %s failed: %s" % (words[0], " ".join(done.stdout.split("\n")[-4:]).strip()))
    return done.stdout


def wanted(folder, package):
    """Names of the .deb files that make up `package`, its dependencies first or last: as apt-get has them."""
    listed = apt(folder, "install", "--print-uris", *package, Dir_Cache=folder + "/none") # an empty cache: it prints them all
    return [line.split()[1] for line in listed.split("\n") if line.startswith("'")]


def download(folder, packages):
    """Paths of the .deb files of the packages and of all that they depend on."""
    archives = os.path.join(folder, "cache", "archives")
    for fresh in (False, True): # lists of yesterday may name what the archive has no more
        try:
            if fresh:
                apt(folder, "update")
            names = wanted(folder, packages)
            if any(not os.path.exists(os.path.join(archives, name)) for name in names):
                apt(folder, "install", "--download-only", *packages)
            missing = [name for name in names if not os.path.exists(os.path.join(archives, name))]
            if names and not missing:
                return [os.path.join(archives, name) for name in names]
            raise Failed("apt-get did not download %s" % (", ".join(missing) or "anything"))
        except Failed:
            if fresh:
                raise
    return []


def unpack(debs, root):
    """The files of the packages below `root`, as dpkg would lay them out; no script of theirs runs."""
    done = os.path.join(root, ".packages")
    names = "\n".join(sorted(os.path.basename(deb) for deb in debs))
    if os.path.exists(done):
        with open(done, encoding="utf-8") as file:
            if file.read() == names:
                return False
    shutil.rmtree(root, ignore_errors=True)
    for name in ("bin", "sbin", "lib"): # merged, as every Debian since 12 has them
        os.makedirs(os.path.join(root, "usr", name))
        os.symlink("usr/" + name, os.path.join(root, name))
    for deb in debs:
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as tar:
            subprocess.run(["tar", "-x", "--no-same-owner", "--keep-directory-symlink", "-C", root], stdin=tar.stdout, check=True)
        if tar.returncode:
            raise Failed("%s is damaged: delete it and try again" % deb)
    relative_links(root)
    with open(done, "w", encoding="utf-8") as file:
        file.write(names)
    return True


def relative_links(root):
    """Links to absolute paths lead out of `root` for whoever does not change its root: a linker, qemu."""
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            if os.path.islink(path) and os.readlink(path).startswith("/"):
                target = os.path.relpath(root + os.readlink(path), os.path.realpath(folder))
                os.unlink(path)
                os.symlink(target, path)


def make(folder):
    """(folder of the root, folder of the kernel's package, names of the packages' files)."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Failed("no apt-get here: the arm64 packages come from Debian's archive")
    debs = download(os.path.join(folder, "apt"), PACKAGES + [KERNEL])
    needed = set(wanted(os.path.join(folder, "apt"), PACKAGES))
    root, kernel = os.path.join(folder, "sysroot"), os.path.join(folder, "kernel")
    unpack([deb for deb in debs if os.path.basename(deb) in needed], root)
    unpack([deb for deb in debs if os.path.basename(deb).startswith("linux-image-") and "-image-cloud" not in deb], kernel)
    return root, kernel


def summary(folder):
    """What is unpacked, in words."""
    with open(os.path.join(folder, "sysroot", ".packages"), encoding="utf-8") as file:
        count = len(file.read().split("\n"))
    with open(os.path.join(folder, "kernel", ".packages"), encoding="utf-8") as file:
        return "%d packages, %s" % (count, file.read().replace("_arm64.deb", "").replace("_", " "))
