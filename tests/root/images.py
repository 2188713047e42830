#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sides that are container images, run by podman on images made here of this machine's own files, without a network: an
upgrade that is found, what becomes of a container that is killed, and images that lack what a side needs. docker and apptainer
are programs here that write down their arguments. Needs root, podman, conmon and crun. With UPGATE_TEST_ENGINE=docker what asks a real
engine asks Docker, whose daemon must run: `dockerd --iptables=false --ip6tables=false --bridge=none` needs no network."""
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

if os.geteuid() == 0 and "UPGATE_TEST_NAMESPACE" not in os.environ and shutil.which("unshare"):
    # Mounts of our own: crun 1.8 refuses machines with both versions of cgroups, and sees version 2 alone in here.
    os.execvpe("unshare", ["unshare", "--mount", sys.executable] + sys.argv, dict(os.environ, UPGATE_TEST_NAMESPACE="1"))

SOURCE = os.environ["UPGATE_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "e2e"))
sys.dont_write_bytecode = True

import ab_rig
from ab_rig import BUILD, SH, Skip, check_code, check_says

GUEST = os.path.join(BUILD, "tests", "root", "image_guest")
SLOWER = "import stack\nfor i in range(%s):\n    stack.train_one(i)\n"
STACK = """
def work(n):
    x = 0
    for i in range(n):
        x += i * i
    return x

def train_one(i):
    return work(%d)
"""
ENGINE = os.environ.get("UPGATE_TEST_ENGINE", "podman")
LIBRARIES = ("encodings", "collections", "importlib", "re", "json", "ctypes", "concurrent", "urllib", "email", "logging", "asyncio")


class Engine:
    """podman with storage of its own, or Docker with its daemon's, and the images."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="upgate-test-images-", dir="/var/tmp")  # overlay cannot lie on overlay, nor vfs in memory
        self.env = {"CONTAINERS_STORAGE_CONF": self.write("storage.conf", '[storage]\ndriver = "%s"\ngraphroot = "%s/root"\nrunroot = "%s/run"\n'
                                                          % ("overlay", self.dir, self.dir)),
                    "CONTAINERS_CONF": self.write("containers.conf", '[engine]\ntmp_dir = "%s/tmp"\nlock_type = "file"\nevents_logger = "none"\n'
                                                  % self.dir)}
        os.environ.update(self.env)
        self.images = []
        self.python_image()
        self.guest_image()

    def write(self, name, text):
        with open(os.path.join(self.dir, name), "w") as file:
            file.write(text)
        return file.name

    def run(self, *words, **options):
        done = subprocess.run((ENGINE,) + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, **options)
        if done.returncode:
            raise Skip("%s does not work here: %s" % (ENGINE, done.stderr.decode(errors="replace").strip()[-300:]))
        return done.stdout.decode()

    def root(self, name):
        root = os.path.join(self.dir, name)
        for directory in ("proc", "sys", "dev", "tmp", "run", "etc", "usr/bin"):
            os.makedirs(os.path.join(root, directory))
        return root

    @staticmethod
    def copy(root, path):
        os.makedirs(root + os.path.dirname(path), exist_ok=True)
        if os.path.exists(path) and not os.path.exists(root + path):
            shutil.copyfile(path, root + path)
            shutil.copymode(path, root + path)

    def copy_program(self, root, path):
        self.copy(root, path)
        for word in subprocess.run(["ldd", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout.decode().split():
            if word.startswith("/"):
                self.copy(root, word)

    def load(self, name, root, *changes):
        words = [word for change in changes for word in ("--change", change)]
        self.images.append("localhost/" + name)
        tar = subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE)
        try:
            self.run("import", *words, "-", "localhost/" + name, stdin=tar.stdout)
        finally:
            tar.stdout.close()
            tar.wait()

    def python_image(self):
        """This machine's Python and shell; stack:2 has a framework that does half as much again."""
        python = sorted(glob.glob("/usr/bin/python3.[0-9]*[0-9]"))
        if not python:
            raise Skip("no /usr/bin/python3.N to make an image of")
        root, library = self.root("python"), "/usr/lib/" + os.path.basename(python[-1])
        for program in (python[-1], SH) + tuple(glob.glob(library + "/lib-dynload/_ctypes.*.so")):
            self.copy_program(root, os.path.realpath(program))
        os.makedirs(root + "/bin", exist_ok=True)
        if not os.path.exists(root + SH):
            os.symlink(os.path.realpath(SH), root + SH)
        os.symlink(os.path.basename(python[-1]), root + "/usr/bin/python3")
        for path in glob.glob(library + "/*.py") + glob.glob(library + "/lib-dynload/*.so"):
            self.copy(root, path)
        for name in LIBRARIES:
            if os.path.isdir(os.path.join(library, name)):
                shutil.copytree(os.path.join(library, name), os.path.join(root + library, name), ignore=shutil.ignore_patterns("__pycache__"))
        for version, work in (("1", 20000), ("2", 30000)):
            with open(root + library + "/stack.py", "w") as file:
                file.write(STACK % work)
            self.load("stack:" + version, root, "ENV STACK_VERSION=" + version, "ENV PATH=/usr/bin:/bin")
        self.load("stack:user", root, "USER 1234", "ENV PATH=/usr/bin:/bin")
        shutil.rmtree(root)

    def guest_image(self):
        """A static program and nothing else; and one whose loader the image has not."""
        root = self.root("guest")
        self.copy(root, GUEST)
        os.rename(root + GUEST, root + "/guest")
        self.copy(root, os.path.realpath(SH))
        os.rename(root + os.path.realpath(SH), root + "/shell")
        self.load("guest:1", root)
        os.makedirs(root + "/lib64")
        with open(root + "/lib64/libc.so.6", "w") as file:  # what is read of it is this sentence
            file.write("GNU C Library stable release version 2.20, by others." + "." * 64)
        self.load("guest:old", root)
        shutil.rmtree(root + "/lib64")
        os.makedirs(root + "/lib")
        with open(root + "/lib/ld-musl-x86_64.so.1", "w"):
            pass
        self.load("guest:musl", root)
        shutil.rmtree(root)

    def containers(self):
        return self.run("ps", "--all", "--quiet").split()

    def close(self):
        ends = [["rm", "--all", "--force", "--time", "0"], ["system", "reset", "--force"]] if ENGINE == "podman" else [["rmi", "--force", *self.images]]
        for words in ends:
            subprocess.run([ENGINE] + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        shutil.rmtree(self.dir, ignore_errors=True)


engine = None


def image(name, **more):
    return dict({"image": "localhost/" + name, "engine": ENGINE}, **more)


def trains(case, **more):
    """A program of the user's, without a step call, mounted into both images."""
    case.write("train.py", SLOWER % 60)
    return dict({"command": ["{python}", case.path("train.py")], "step": "stack.py:train_one"}, **more)


GATE = {"metrics": {"step_time": {"margin": "10%"}, "cpu_time": {"observe": True}}, "calibrate": "auto"}


# Whether it can be run is asked, not how fast it is; without a control nothing passes.
LOOSE = {"metrics": {"step_time": {"margin": "100%"}, "cpu_time": {"observe": True}}, "calibrate": "require"}


def check_no_containers():
    deadline = time.monotonic() + 60
    while engine.containers():
        assert time.monotonic() < deadline, "containers are left: " + engine.run("ps", "--all")
        time.sleep(0.1)


# --- what must be found ---------------------------------------------------------------------------

def test_upgrade_of_an_image_is_found(case):
    """The program is the same file on both sides; the framework in the candidate's image does half as much again."""
    mounts = [case.dir + ":" + case.dir + ":ro"]
    case.plan(trains(case), image("stack:1", mounts=mounts, env={"SIDE": "a"}), image("stack:2", mounts=mounts, env={"SIDE": "b"}),
              gate=GATE, traced_launches=1)
    done = case.run()
    check_code(done, 1)
    ratio, = case.rows("SELECT ratio FROM cell WHERE metric = 'step_time'")[0]
    assert ratio > 1.1, str(done)  # three pairs of steps of 0.7 ms: on a busy machine more than the half that was planted was seen
    for side, name in enumerate(("stack:1", "stack:2")):
        ident = "sha256:" + engine.run("image", "inspect", "--format", "{{.Id}}", "localhost/" + name).strip().replace("sha256:", "")
        # Docker knows a digest of what was pulled or pushed alone; the id is what tells the others.
        digest = engine.run("image", "inspect", "--format", "{{.Digest}}", "localhost/" + name).strip() if ENGINE == "podman" else None
        told = json.loads(case.value("SELECT fingerprint FROM side WHERE id = ?", side))["image"]
        assert told["id"] == ident and told["digest"] == digest and told["engine"].startswith(ENGINE + " "), told
        check_says(done, "is image localhost/%s" % name)
        notes = " ".join(text for text, in case.rows("SELECT text FROM note"))
        assert (digest or ident) in notes, notes
    # Steps of both, each launch has them all; what the processes were is read from the container's own, not from podman.
    assert case.rows("SELECT DISTINCT steps FROM launch") == [(60,)]
    exe = {json.loads(text)["process"]["exe"]["path"] for text, in case.rows("SELECT fingerprint FROM side")}
    assert all(path.startswith("/usr/bin/python3") for path in exe), exe
    # Only the program is measured: podman, conmon and the rest hold some 100 MiB.
    peak = case.value("SELECT max(peak_memory_bytes) FROM launch WHERE peak_memory_bytes IS NOT NULL")
    assert peak < 60 << 20, peak
    check_no_containers()
    differs = case.run("env", "diff", case.db_path)
    check_code(differs, 0)
    check_says(differs, "image")
    if "launches are not traced" in done.err:
        raise Skip("the rest of it: " + done.err[done.err.index("launches are not traced"):].splitlines()[0])
    # The recorder was attached before the program began, and to nobody else: Python's frames, and no thread of podman's.
    frames = case.rows("SELECT comm, count(*) FROM v_sample WHERE python_stack IS NOT NULL GROUP BY comm")
    threads = {name for name, in case.rows("SELECT DISTINCT comm FROM v_sample")}
    assert len(frames) == 1 and frames[0][0].startswith("python3") and frames[0][1] > 20, (frames, threads)
    check_code(case.run("stalls", case.db_path), 0)
    diff = case.run("diff", case.db_path)
    check_code(diff, 0)
    check_says(diff, "work")


def test_one_side_is_bare(case):
    """An interpreter of this machine against an image of it: same program, both measured."""
    mounts = [case.dir]
    case.write("stack.py", STACK % 20000)
    case.plan(trains(case), {"python": sys.executable}, image("stack:1", mounts=mounts),
              gate=LOOSE)
    done = case.run()
    check_code(done, 0, 1, 3)
    assert case.pairs() == 3, str(done)


def test_slices_without_steps(case):
    """Programs that are frozen at any moment: the engines of both sides share locks, and must go on meanwhile."""
    case.plan({"command": ["/bin/sh", "-c", ab_rig.WORK]}, image("stack:1"), image("stack:2"), looks=[4])
    done = case.run(timeout=60)
    check_code(done, 0, 3)
    assert case.pairs() == 4 and case.value("SELECT max(active_ns) FROM launch") < 5e9, str(done)
    check_no_containers()


def test_environment_directory_and_words(case):
    """What the plan says goes in, what upgate's own environment has does not."""
    script = "import os, sys\nopen(%r, 'a').write(repr([os.environ.get(n) for n in ('STACK_VERSION', 'OF_PLAN', 'OF_HOST', 'HOME')] + [os.getcwd()] " \
             "+ sys.argv[1:]) + '\\n')\n" % case.path("said")
    case.write("say.py", script)
    case.write("said", "")
    case.plan({"command": ["{python}", "say.py", "{seed}", "a b", "$HOME"], "steps_from": "off"},
              image("stack:1", mounts=["."], env={"OF_PLAN": "a;b"}), image("stack:2", mounts=["."], workdir=case.dir), seed=11)
    done = case.run(env={"OF_HOST": "yes"})
    check_code(done, 0, 3)
    with open(case.path("said")) as file:
        said = {line.strip() for line in file}
    lines = [eval(line) for line in said]
    assert {line[0] for line in lines} == {"1", "2"} and all(line[2] is None and line[3] for line in lines), lines
    assert all(line[4] == case.dir and line[6:] == ["a b", "$HOME"] and line[5].isdigit() for line in lines), lines
    assert {line[1] for line in lines if line[0] == "1"} == {"a;b"}, lines


def test_same_image_of_another_user(case):
    """Against itself an image is no regression; its processes are another user's, and open the step file all the same."""
    mounts = [case.dir]
    case.plan(trains(case), image("stack:user", mounts=mounts), image("stack:user", mounts=mounts), gate=LOOSE)
    check_code(case.run(), 0, 3)
    assert case.rows("SELECT DISTINCT steps FROM launch") == [(60,)]
    assert not case.rows("SELECT 1 FROM cell WHERE verdict = 'fail'")
    assert "user 1234" in checks(case, "stack:user")[1]["image-user"]["found"]


def test_image_without_a_c_library(case):
    """Steps of a static program are counted; what needs glibc is left out, and said."""
    case.plan({"command": ["/guest", "steps", "40"]}, image("guest:1"), image("guest:1"),
              gate=LOOSE)
    done = case.run()
    check_code(done, 0, 3)
    assert case.rows("SELECT DISTINCT steps FROM launch") == [(40,)], str(done)
    check_says(done, "has no glibc")


def test_steps_of_a_native_function(case):
    """A static program in an image that makes no step calls: its steps are the calls of a function."""
    case.plan({"command": ["/guest", "calls", "40"], "step": "symbol:guest_work"}, image("guest:1"), image("guest:1"), gate=LOOSE)
    done = case.run()
    check_code(done, 0, 3)
    check_says(done, "steps: calls of guest_work")
    assert case.rows("SELECT DISTINCT steps FROM launch") == [(40,)], str(done)


# --- what it lacks, and what goes wrong -----------------------------------------------------------

def test_images_that_cannot_be_sides(case):
    program = {"command": ["{python}", "-c", "pass"]}
    for side, workload, parts in (
            ("guest:1", program, ("'python3' in image 'localhost/guest:1'", "No such file", "`python`")),
            ("guest:1", {"command": ["/shell", "-c", "true"]}, ("has '/shell', but not the loader",)),
            ("stack:1", {"command": ["/usr/lib"]}, ("'/usr/lib' in image", "Permission denied")),
            ("nowhere:1", program, ("failed to get image 'localhost/nowhere:1'",))):
        case.plan(workload, image("stack:1"), image(side))
        done = case.run()
        check_code(done, 4)
        check_says(done, *parts)
        if os.path.exists(case.db_path):
            os.unlink(case.db_path)
    check_no_containers()
    for more, parts in (({"mounts": ["nothing"]}, ("the mount 'nothing'", "No such file")),
                        ({"workdir": "/not/there"}, ("workdir '/not/there' in image", "No such file")),
                        ({"engine_args": ["--no-such-flag"]}, ("exit code 125", "no-such-flag"))):
        case.plan(program, image("stack:1"), image("stack:2", **more))
        done = case.run()
        check_code(done, 4)
        check_says(done, *parts)
        os.unlink(case.db_path)
    check_no_containers()


def test_no_engine(case):
    os.makedirs(case.path("empty"))
    case.plan({"command": ["true"]}, {"image": "localhost/stack:1"}, {"image": "localhost/stack:1"})
    done = case.run(env={"PATH": case.path("empty")})
    check_code(done, 4)
    check_says(done, "no container engine", "no 'podman' in PATH", "install podman")


def memory_group(limit):
    """A memory cgroup with a limit, of whichever version has the controller; its cgroup.procs."""
    where = tempfile.mkdtemp(prefix="upgate-test-memory-", dir="/run")
    if subprocess.run(["mount", "-t", "cgroup", "-o", "memory", "none", where], stderr=subprocess.PIPE).returncode == 0:
        group, name, root = where + "/upgate-test-%d" % os.getpid(), "memory.limit_in_bytes", where
    else:
        own = [line.rstrip("\n").split("::")[1] for line in open("/proc/self/cgroup") if line.startswith("0::")]
        parent = "/sys/fs/cgroup" + (os.path.dirname(own[0]) if own else "")
        group, name, root = os.path.join(parent, "upgate-test-%d" % os.getpid()), "memory.max", None
    try:
        os.makedirs(group)
        with open(os.path.join(group, name), "w") as file:
            file.write(str(limit))
    except OSError as why:
        raise Skip("no memory cgroup can be made: %s" % why)
    return group, root


def test_container_killed_for_memory(case):
    group, mounted = memory_group(256 << 20)
    try:
        if mounted and ENGINE != "podman":
            raise Skip("the memory cgroup is of version 1: what a daemon has started is in the daemon's")
        case.plan({"command": ["/guest", "eat"]}, image("guest:1"), image("guest:1"))
        done = case.run(command=[SH, "-c", 'echo $$ >"%s/cgroup.procs"; exec "$@"' % group, SH])
        check_code(done, 1, 3, 4)
        check_says(done, "was killed for want of memory")
        assert case.value("SELECT count(*) FROM launch WHERE state = 'oom'") > 0, str(done)
        check_no_containers()
    finally:
        for _ in range(300):
            try:
                os.rmdir(group)
                break
            except OSError:
                time.sleep(0.1)
        if mounted:
            subprocess.run(["umount", mounted])
            os.rmdir(mounted)


def long_run(case, **more):
    case.write("long.py", "import time\ntime.sleep(60)\n")
    more.setdefault("mounts", [case.dir])
    case.plan({"command": ["{python}", case.path("long.py")], "steps_from": "off"}, image("stack:1", **more), image("stack:2", **more),
              timeout="50s")
    process = case.start("ab", case.plan_path, "-o", case.db_path)
    wait_for_programs(process, case.path("long.py").encode(), 2)
    return process


def wait_for_programs(process, word, count):
    """So many processes with this last word are there."""
    deadline = time.monotonic() + 60
    while sum(read(path).rstrip(b"\0").endswith(word) for path in glob.glob("/proc/[0-9]*/cmdline")) < count:
        assert time.monotonic() < deadline and process.poll() is None, "the containers did not come"
        time.sleep(0.05)


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def guardians_of(case):
    return [int(path.split("/")[2]) for path in glob.glob("/proc/[0-9]*/comm") if read(path) == b"ug-guardian\n" and
            case.mark.encode() in read(os.path.dirname(path) + "/environ")]


def neighbour(case):
    """Another upgate, which looks for what dead ones have left: what is being removed is not its business."""
    case.finish(case.start("doctor"), clean=False)


def test_killed_upgate_leaves_no_container(case):
    process = long_run(case)
    assert len(engine.containers()) == 2
    process.kill()
    process.wait()
    neighbour(case)
    case.finish(process)
    check_no_containers()


def test_killed_with_its_guardian(case):
    process = long_run(case)
    guardians = guardians_of(case)
    for pid in guardians + [process.pid]:
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=30)
    neighbour(case)
    assert guardians
    check_no_containers()
    for path in glob.glob("/dev/shm/upgate-%d-*" % process.pid):  # what a guardian would have done
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def test_interrupted(case):
    process = long_run(case)
    process.send_signal(signal.SIGINT)
    check_code(case.finish(process), 3)
    check_no_containers()


def test_container_ended_by_somebody_else(case):
    case.plan({"command": ["/guest", "sleep", "6"]}, image("guest:1"), image("guest:1"), interleave="slices")
    process = case.start("ab", case.plan_path, "-o", case.db_path)
    wait_for_programs(process, b"/guest\0sleep\0006", 1)  # and podman takes a second or two on a busy machine
    engine.run("kill", engine.containers()[0])
    done = case.finish(process)
    check_code(done, 0, 1, 3)
    assert case.rows("SELECT reason FROM pair WHERE state = 'failed'") in ([("side 'old' was ended by signal 9 (Killed)",)],
                                                                            [("side 'new' was ended by signal 9 (Killed)",)]), str(done)
    assert case.pairs() == 3, str(done)
    check_no_containers()


def test_left_containers_are_removed_by_the_next_run(case):
    engine.run("create", "--label", ab_rig.image_label(), "--name", "upgate-1-1-launch-0", "localhost/guest:1", "/guest")
    engine.run("create", "--label", "upgate=elsewhere.1.0", "--name", "upgate-1-2-launch-0", "localhost/guest:1", "/guest")
    engine.run("create", "--name", "upgate-1-1-not-ours", "localhost/guest:1", "/guest")
    holds = ["/dev/shm/upgate-1-1-launch-0.hold", "/dev/shm/upgate-%d-%s-launch-0.hold" % (os.getpid(), read("/proc/self/stat").split()[21].decode())]
    for hold in holds:
        os.mkdir(hold)
    case.plan({"command": ["/guest", "steps", "3"]}, image("guest:1"), image("guest:1"))
    case.run()
    assert [os.path.exists(hold) for hold in holds] == [False, True]  # the second is a living process's
    os.rmdir(holds[1])
    left = engine.run("ps", "--all", "--format", "{{.Names}}").split()
    engine.run("rm", "upgate-1-1-not-ours", "upgate-1-2-launch-0")
    assert sorted(left) == ["upgate-1-1-not-ours", "upgate-1-2-launch-0"], left


# --- other engines, by what they are told ---------------------------------------------------------

FAKE = """#!/bin/sh
printf '%%s\\n' "$@" >>%s
case $1 in
version) echo 27.0.1 ;;
--version) echo apptainer version 1.3.6 ;;
image) printf 'sha256:1234\\n["registry/train@sha256:abcd"]\\nroot\\n' ;;
*) echo "the daemon says no" >&2; exit 125 ;;
esac
"""


def fake(case, name):
    case.write(name, FAKE % case.path("words"), 0o755)
    case.write("words", "")
    return {"PATH": case.dir + ":" + os.environ["PATH"]}


def test_image_is_pulled_once_before_all(case):
    """An image that is not there is pulled, before anything is started; and its digest is told."""
    env = fake(case, "docker")
    text = (FAKE % case.path("words")).replace("image) ", "pull) touch %s ;;\nimage) [ -e %s ] || exit 1; "
                                                % (case.path("pulled"), case.path("pulled")))
    case.write("docker", text, 0o755)
    side = {"image": "registry/train:torch2.1", "engine": "docker"}
    case.plan({"command": ["{python}", "-c", "pass"]}, side, side)
    done = case.run(env=env)
    check_code(done, 4)
    check_says(done, "pulling 'registry/train:torch2.1' with docker", "(sha256:abcd)")
    with open(case.path("words")) as file:
        words = file.read().split("\n")
    assert words.count("pull") == 1 and words.index("pull") < words.index("run"), words


def test_words_for_docker(case):
    env = fake(case, "docker")
    side = dict(image("x"), image="registry/train:torch2.1", engine="docker", mounts=[".:/data:ro"], engine_args=["--security-opt=seccomp=unconfined"])
    case.plan({"command": ["{python}", "-c", "pass"]}, side, side)
    done = case.run(env=env)
    check_code(done, 4)
    check_says(done, "registry/train:torch2.1 (sha256:abcd), run by docker 27.0.1", "exit code 125: the daemon says no")
    with open(case.path("words")) as file:
        words = file.read().split("\n")
    for word in ("--rm", "--pull=never", "--network=host", "--ipc=host", "--security-opt=seccomp=unconfined", case.dir + ":/data:ro",
                 "/.upgate/start", "sha256:1234", os.path.join(BUILD, "harness/image/upgate-inside") + ":/.upgate/start:ro"):
        assert word in words, (word, words)
    assert words.index("--security-opt=seccomp=unconfined") < words.index("sha256:1234") and "--cgroups=disabled" not in words


def test_words_for_apptainer(case):
    env = fake(case, "apptainer")
    case.write("train.sif", "an image")
    side = {"image": case.path("train.sif"), "mounts": ["."]}
    case.plan({"command": ["{python}", "-c", "pass"]}, side, side)
    done = case.run(env=env)
    check_code(done, 4)
    check_says(done, "run by apptainer 1.3.6", "the daemon says no")
    with open(case.path("words")) as file:
        words = file.read().split("\n")
    at = words.index(case.path("train.sif"))
    assert words[at + 1:at + 3] == ["/.upgate/start", "/.upgate/socket"] and "--cleanenv" in words and "--bind" in words, words


def test_daemon_that_does_not_answer(case):
    case.write("docker", "#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n", 0o755)
    case.plan({"command": ["true"]}, image("stack:1", engine="docker"), image("stack:1"))
    done = case.run(env={"PATH": case.dir + ":" + os.environ["PATH"]})
    check_code(done, 4)
    check_says(done, "does not answer: Cannot connect to the Docker daemon")


CLIENT = """#!%s
import json, socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect(%r)
    line.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
    code, out, err = json.loads(line.makefile().readline())
sys.stdout.write(out), sys.stderr.write(err)
sys.exit(code)
"""


def daemon(case):
    """A `docker` whose containers are started by somebody else, as its daemon does: no descendants of upgate, in no cgroup of it,
    and they live on when the client is killed. What runs them is podman."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(case.path("socket"))
    server.listen(16)

    def answer(line):
        with line, line.makefile() as reader:
            words = json.loads(reader.readline())
            if words[0] == "version":
                reply = [0, "27.0.1\n", ""]
            else:
                if words[0] == "run":
                    words[1:1] = ["--cgroups=disabled"]
                done = subprocess.run(["podman"] + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                reply = [done.returncode, done.stdout.decode(), done.stderr.decode()]
            try:
                line.sendall(json.dumps(reply).encode() + b"\n")
            except OSError:
                pass  # the client was killed

    def serve():
        while True:
            try:
                line, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(line,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    case.undo.append(lambda: (server.shutdown(socket.SHUT_RDWR), server.close()))
    case.write("docker", CLIENT % (sys.executable, case.path("socket")), 0o755)
    case.env["PATH"] = case.dir + ":" + os.environ["PATH"]
    return {"engine": "docker", "mounts": [case.dir]}


def test_containers_of_a_daemon(case):
    more = daemon(case)
    case.plan(trains(case), image("stack:1", **more), image("stack:2", **more), gate=GATE)
    done = case.run()
    check_code(done, 1)
    assert case.rows("SELECT DISTINCT steps FROM launch") == [(60,)], str(done)
    for text, in case.rows("SELECT fingerprint FROM side"):
        assert "/upgate-" in json.loads(text)["process"]["cgroup"]["path"], text[:4000]
    check_no_containers()


def test_containers_of_a_daemon_do_not_outlive_upgate(case):
    more = daemon(case)
    process = long_run(case, **more)
    assert len(engine.containers()) == 2
    process.kill()
    case.finish(process)
    check_no_containers()


# --- doctor and env -------------------------------------------------------------------------------

def checks(case, name):
    done = case.run("doctor", "--image", "localhost/" + name, "--json")
    document = json.loads(done.out)
    return done.code, {check["id"]: check for check in document["checks"]}


def test_doctor(case):
    code, found = checks(case, "stack:1")
    assert code == 0 and all(found[name]["status"] == "ok" for name in ("image", "image-shm", "image-libc", "image-cgroup", "image-python")), found
    assert "CPython" in found["image-python"]["found"], found
    code, found = checks(case, "guest:1")
    assert code == 0 and found["image-libc"]["status"] == found["image-python"]["status"] == "limited", found
    assert "--" in found["image-python"]["remedy"] or "python" in found["image-python"]["remedy"], found
    _, found = checks(case, "guest:old")
    assert found["image-libc"]["found"] == "glibc 2.20" and found["image-libc"]["status"] == "limited", found
    assert "libupgate_inject.so is not loaded, it needs glibc 2." in found["image-libc"]["lost"], found
    _, found = checks(case, "guest:musl")
    assert "musl" in found["image-libc"]["found"] and found["image-libc"]["status"] == "limited", found
    code, found = checks(case, "nowhere:1")
    assert code == 4 and found["image"]["status"] == "missing", found
    check_code(case.run("doctor", "--image", "--rm"), 2)
    check_no_containers()


def test_env_of_images(case):
    done = case.run("env", "show", "-a", "image:localhost/stack:1", "-b", "image:localhost/stack:2", "--format", "json")
    check_code(done, 0)
    assert '"engine": "%s ' % ENGINE in done.out and '"implementation": "CPython"' in done.out, str(done)
    assert "/usr/bin/python3" in done.out, str(done)
    check_no_containers()
    case.plan({"command": ["/guest", "steps", "3"]}, image("guest:1"), image("guest:1"))
    done = case.run("env", "show", case.plan_path)  # never what podman is made of
    check_code(done, 2)
    check_says(done, "side 'old' is an image without `python`")


def test_resume(case):
    """A run goes on in the same images, and in no others that have their name meanwhile."""
    engine.run("tag", "localhost/stack:1", "localhost/stack:moves")
    mounts = [case.dir]
    case.plan(trains(case), image("stack:moves", mounts=mounts), image("stack:1", mounts=mounts), gate=LOOSE, looks=[4])
    process = case.start("ab", case.plan_path, "-o", case.db_path)
    deadline = time.monotonic() + 60
    while not os.path.exists(case.db_path) or len(case.rows("SELECT 1 FROM sqlite_master WHERE name = 'pair'")) == 0 or not case.pairs():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.1)
    process.kill()
    case.finish(process)
    check_no_containers()
    engine.run("tag", "localhost/stack:2", "localhost/stack:moves")
    done = case.resume()
    check_code(done, 4)
    check_says(done, "image 'localhost/stack:moves' of side 'old' is sha256:", "this run has begun with sha256:")
    engine.run("tag", "localhost/stack:1", "localhost/stack:moves")
    check_code(case.resume(), 0, 3)
    assert case.pairs() == 4


if __name__ == "__main__":
    missing = [name for name in (("podman", "conmon", "crun") if ENGINE == "podman" else (ENGINE,)) + ("unshare", "ldd") if not shutil.which(name)]
    if os.geteuid() != 0 or missing:
        print("skipped: needs root" if not missing else "skipped: no " + ", ".join(missing))
        sys.exit(77)
    if not os.path.exists(os.path.join(BUILD, "harness/image/upgate-inside")):
        print("skipped: this build has no upgate-inside (no static C library)")
        sys.exit(77)
    if not os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        subprocess.run(["umount", "-R", "/sys/fs/cgroup"])
        if subprocess.run(["mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"]).returncode:
            print("skipped: no cgroup version 2 can be mounted")
            sys.exit(77)
    try:
        engine = Engine()
        engine.run("run", "--rm", "--network=host", *["--cgroups=disabled"] * (ENGINE == "podman"), "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024",
                   "localhost/guest:1", "/guest")
    except Skip as why:
        print("skipped: %s" % why)
        sys.exit(77)
    try:
        # What stands in for another engine runs podman.
        stands_in = (test_image_is_pulled_once_before_all, test_words_for_docker, test_words_for_apptainer, test_daemon_that_does_not_answer,
                     test_containers_of_a_daemon, test_containers_of_a_daemon_do_not_outlive_upgate)
        ab_rig.main({name: value for name, value in globals().items() if ENGINE == "podman" or value not in stands_in}, certificates=False)
    finally:
        engine.close()
