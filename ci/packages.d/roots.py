# SPDX-License-Identifier: Apache-2.0
"""Clean roots to install into: Debian's minimal one, made once by debootstrap and copied for each trial, and one with the files of
glibc and nothing else, not even a shell. Commands run there by chroot in a mount namespace of their own, so that nothing
stays mounted; with the machine's /proc, /sys and /dev, because recording looks at the real kernel."""
import glob
import os
import shutil
import subprocess

COMMAND_SECONDS = 600
# In a mount namespace: ROOT COMMAND…
ENTER = """root=$1; shift
for name in proc sys dev; do mkdir -p "$root/$name"; mount --rbind "/$name" "$root/$name"; done
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
exec chroot "$root" "$@" """


class Failed(Exception):
    """What could not be had, in words."""


def enter(root, *command, user=None, env=None, check=False, seconds=COMMAND_SECONDS):
    """The command in the root, finished; stdout and stderr as text."""
    # A user without rights may do the same in a user namespace, where it is root.
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    words = list(command)
    if user:
        words = ["setpriv", "--reuid", user, "--regid", "nogroup", "--clear-groups", "--"] + words
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8",
                   "DEBIAN_FRONTEND": "noninteractive"}
    environment.update(env or {})
    done = subprocess.run(["unshare", "--mount"] + rights + ["sh", "-ec", ENTER, "sh", root] + words, env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=seconds)
    if check and done.returncode:
        raise Failed("%s ended with %d: %s" % (" ".join(command[:3]), done.returncode, (done.stderr or done.stdout).strip()[-300:]))
    return done


def release():
    with open("/etc/os-release", encoding="utf-8") as file:
        told = dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line)
    return told.get("VERSION_CODENAME", "").strip('"')


def mirror(suite):
    """The archive that this machine's own sources name."""
    done = subprocess.run(["apt-get", "indextargets", "--format", "$(SITE) $(CODENAME) $(RELEASE)", "Created-By: Packages"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for line in done.stdout.splitlines():
        words = line.split()
        if suite in words[1:]:
            return words[0]
    raise Failed("no source of apt's here has the release '%s'" % suite)


def debian(folder):
    """A minimal Debian, or Ubuntu, of this machine's release, kept below `folder`. Asks the network when it is not there yet."""
    root = os.path.join(folder, "debian")
    if os.path.exists(os.path.join(root, ".made")):
        return root
    if os.geteuid() != 0:
        raise Failed("debootstrap needs root")
    if shutil.which("debootstrap") is None:
        raise Failed("no debootstrap here: apt-get install --no-install-recommends debootstrap")
    suite = release()
    shutil.rmtree(root, ignore_errors=True)
    done = subprocess.run(["debootstrap", "--variant=minbase", suite, root, mirror(suite)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL, timeout=1800)
    if done.returncode:
        raise Failed("debootstrap failed: " + " ".join(done.stdout.splitlines()[-3:]))
    open(os.path.join(root, ".made"), "w", encoding="utf-8").close()
    return root


def copy(root, to):
    """A copy for one trial, in which apt-get reaches what this machine reaches."""
    shutil.rmtree(to, ignore_errors=True)
    subprocess.run(["cp", "-a", "--reflink=auto", root, to], check=True)
    for name in ("/etc/resolv.conf", "/etc/hosts"):
        if os.path.exists(name):
            shutil.copy(name, to + name)
    enter(to, "apt-get", "-qq", "update", check=True)
    return to


def empty(to):
    """The files of glibc that a program needs to start, at their places; nothing else."""
    shutil.rmtree(to, ignore_errors=True)
    for name in ("proc", "sys", "dev", "tmp"):
        os.makedirs(os.path.join(to, name))
    loaders = glob.glob("/lib64/ld-linux-*.so.*") or glob.glob("/lib/ld-linux-*.so.*")
    libraries = [path for name in ("c", "m", "dl", "rt", "pthread", "resolv")
                 for path in glob.glob("/lib/*-linux-gnu/lib%s.so.[0-9]*" % name)]
    for path in loaders + libraries:
        os.makedirs(to + os.path.dirname(path), exist_ok=True)
        shutil.copy(path, to + path)
    return to
