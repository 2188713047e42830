# SPDX-License-Identifier: Apache-2.0
"""What a user does with a package, done in a clean root: installed, asked for its version, looked around with, recorded
with, its records read, upgraded, removed; and what is left then. Each is a row of the table."""
import glob
import json
import os
import shutil
import subprocess
import tarfile
import venv
import zipfile

import roots

MODELS = "lib/upgate/reference_models/native"
# A program of the wheel's user: the step calls of the installed package, and one slow step.
PROGRAM = """import time, upgate
for number in upgate.steps(range(50)):
    time.sleep(0.05 if number == 20 else 0.001)
print(upgate.__file__)
"""
PLAN = """baseline: {{name: O1, models: {prefix}/{models}-O1}}
candidate: {{name: O3, models: {prefix}/{models}}}
workloads: [{{name: dlrm, model: dlrm, mode: train, steps: 40}}]
schedule: {{looks: [10], seed: 7, traced_launches: 0, timeout: 1min}}
"""


def last(done):
    return " ".join((done.stderr.strip() or done.stdout.strip()).split("\n")[-1:])


def files(root):
    """Everything in a root but what belongs to the kernel."""
    done = subprocess.run(["find", root, "-xdev", "-not", "-path", root + "/proc*", "-not", "-path", root + "/sys*", "-not", "-path",
                           root + "/dev*"], stdout=subprocess.PIPE, text=True, check=True)
    return {line[len(root):] for line in done.stdout.splitlines()}


class Trial:
    """Rows about one package in one root; `program` as it is called there."""

    def __init__(self, table, name, root, program):
        self.table, self.name, self.root, self.program = table, name, root, program

    def row(self, what, holds, text=""):
        return self.table.row("%s: %s" % (self.name, what), holds, text)

    def run(self, *words, **options):
        return roots.enter(self.root, self.program, *words, **options)

    def version(self, want):
        done = self.run("--version")
        self.row("--version", done.returncode == 0 and done.stdout.strip() == want, done.stdout.strip() or last(done))

    def doctor(self):
        done = self.run("doctor", "--json")
        try:
            told = json.loads(done.stdout)
            states = [check["status"] for check in told["checks"]]
            self.row("doctor", done.returncode in (0, 4), "%d checks, %d ok" % (len(states), states.count("ok")))
            return {check["id"]: check for check in told["checks"]}
        except (ValueError, KeyError):
            self.row("doctor", False, last(done))
            return {}

    def record(self, checks, command, want="recorded "):
        """Record a command, and read the store back in three ways. Where this machine's kernel takes no BPF programs, that is said."""
        tracing = checks.get("capture", {})
        if tracing.get("status") == "missing":
            self.table.skipped(self.name + ": record", tracing.get("found", "doctor has no check 'capture'"))
            return
        done = self.run("record", "-o", "/tmp/run.db", "--", *command)
        text = done.stderr + done.stdout
        told = [line for line in text.splitlines() if line.startswith("recorded ")]
        if not self.row("record", done.returncode == 0 and bool(told) and want in text, told[0] if told else last(done)):
            return
        done = self.run("stalls", "/tmp/run.db", "--format", "json")
        self.row("stalls", done.returncode == 0 and '"schema"' in done.stdout, "%d bytes of JSON" % len(done.stdout))
        done = self.run("report", "/tmp/run.db", "-o", "/tmp/run.html")
        path = self.root + "/tmp/run.html"
        size = os.path.getsize(path) if os.path.exists(path) else 0
        self.row("report", done.returncode == 0 and size > 100000, "%d bytes of HTML" % size if size else last(done))

    def judge(self, prefix):
        """An A/B of the native workloads: whatever comes out of ten short pairs, it is a verdict, and can be shown."""
        with open(self.root + "/tmp/plan.yaml", "w", encoding="utf-8") as file:
            file.write(PLAN.format(prefix=prefix, models=MODELS))
        done = self.run("ab", "/tmp/plan.yaml", "-o", "/tmp/ab.db", "-q", env={"UPGATE_STATE_DIR": "/tmp/state"})
        shown = self.run("report", "/tmp/ab.db", "-o", "/tmp/ab.json")
        path = self.root + "/tmp/ab.json"
        told = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                told = json.load(file)
        self.row("ab, report", done.returncode in (0, 1, 3) and shown.returncode == 0 and told.get("schema") == "upgate.verdict/1",
                 "verdict %s" % told.get("verdict", last(done)))


def injected(trial, prefix):
    """The library of the GPU side is found from the program's place."""
    done = trial.run("record", "--print-env")
    path = "%s/lib/upgate/libupgate_inject.so" % prefix
    trial.row("injected library", done.returncode == 0 and path in done.stdout and os.path.exists(trial.root + path), path)


# --- the .deb -----------------------------------------------------------------------------------------------

def deb(table, folder, base, package, newer, want):
    root = roots.copy(base, os.path.join(folder, "deb"))
    trial = Trial(table, "deb", root, "upgate")
    for path, name in ((package, "upgate.deb"), (newer, "newer.deb")):
        shutil.copy(path, os.path.join(root, "tmp", name))
    before = files(root)
    done = roots.enter(root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", "/tmp/upgate.deb")
    if not trial.row("apt-get install", done.returncode == 0, last(done)):
        return
    trial.version(want)
    done = roots.enter(root, "setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "--", "upgate", "doctor")
    trial.row("an unprivileged user", done.returncode in (0, 4) and "upgate ab" in done.stdout, done.stdout.split("\n")[0])
    checks = trial.doctor()
    injected(trial, "/usr")
    trial.record(checks, ["/usr/lib/upgate/reference_models/native/dlrm", "--steps", "200"])
    trial.judge("/usr")
    done = roots.enter(root, "bash", "-c", ". /usr/share/bash-completion/completions/upgate && COMP_WORDS=(upgate rec) COMP_CWORD=1 "
                       "&& _upgate && zcat /usr/share/man/man1/upgate-record.1.gz | head -n 3 && echo ${COMPREPLY[0]}")
    trial.row("man page, completion", done.returncode == 0 and ".TH" in done.stdout and done.stdout.strip().endswith("\nrecord"), "")
    done = roots.enter(root, "dpkg", "-V", "upgate")
    trial.row("dpkg -V", done.returncode == 0 and done.stdout == "", done.stdout)
    done = roots.enter(root, "apt-get", "install", "-y", "-qq", "/tmp/newer.deb")
    told = roots.enter(root, "dpkg-query", "-W", "upgate")
    trial.row("upgrade", done.returncode == 0 and told.stdout.strip().endswith("-2"), told.stdout.strip().replace("\t", " "))
    compiled = root + "/usr/lib/upgate/python/upgate/__pycache__" # as root's Python leaves it
    os.makedirs(compiled)
    open(compiled + "/_find.cpython-311.pyc", "w", encoding="utf-8").close()
    done = roots.enter(root, "apt-get", "purge", "-y", "-qq", "upgate")
    left = sorted(path for path in files(root) - before if "upgate" in path and not path.startswith("/tmp/"))
    trial.row("purge leaves nothing", done.returncode == 0 and not left, ", ".join(left[:3]))


# --- the tarball --------------------------------------------------------------------------------------------

def tarball(table, folder, package, want):
    root = roots.empty(os.path.join(folder, "glibc"))
    with tarfile.open(package) as file:
        file.extractall(os.path.join(root, "opt", "two words"))
    inside = os.path.relpath(glob.glob(root + "/opt/two words/*")[0], root)
    trial = Trial(table, "tarball", root, "/%s/bin/upgate" % inside)
    trial.version(want)
    # What an environment module would put there: files of those names that are no libraries.
    for path in glob.glob("%s/%s/lib/upgate/bundled/*.so*" % (root, inside)):
        os.makedirs(root + "/other", exist_ok=True)
        open(os.path.join(root, "other", os.path.basename(path)), "w", encoding="utf-8").close()
    done = trial.run("--version", env={"LD_LIBRARY_PATH": "/other"})
    trial.row("others in LD_LIBRARY_PATH", done.returncode == 0, last(done))
    checks = trial.doctor()
    injected(trial, "/" + inside)
    trial.record(checks, ["/%s/%s/dlrm" % (inside, MODELS), "--steps", "200"])
    trial.judge("/" + inside)


# --- the wheel ----------------------------------------------------------------------------------------------

def audit(table, folder, package):
    """What auditwheel, of PyPI, makes of the tag; without network it is not asked."""
    tools = os.path.join(folder, "auditwheel")
    python = os.path.join(tools, "bin", "python")
    if not os.path.exists(python):
        venv.create(tools, with_pip=True)
    done = subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "auditwheel"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        table.skipped("wheel: auditwheel", "not to be had: " + done.stdout.strip().split("\n")[-1])
        return
    done = subprocess.run([python, "-m", "auditwheel", "show", package], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    tag = os.path.basename(package).rsplit("-", 1)[1][:-len(".whl")]
    told = " ".join(done.stdout.split())
    table.row("wheel: auditwheel", done.returncode == 0 and 'platform tag: "%s"' % tag in told, told)


def pip(table, folder, base, package, want):
    root = roots.copy(base, os.path.join(folder, "wheel"))
    done = roots.enter(root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", "python3-venv")
    place = "/opt/two words/venv"
    trial = Trial(table, "wheel", root, place + "/bin/upgate")
    audit(table, folder, package)
    name = os.path.basename(package)
    shutil.copy(package, os.path.join(root, "tmp", name))
    python = place + "/bin/python"
    roots.enter(root, "python3", "-m", "venv", place, check=True)
    before = files(root)
    done = roots.enter(root, python, "-m", "pip", "install", "-q", "--no-index", "/tmp/" + name)
    if not trial.row("pip install", done.returncode == 0, name if done.returncode == 0 else last(done)):
        return
    trial.version(want)
    done = roots.enter(root, "setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "--", python, "-c",
                       "import upgate; print(sum(upgate.steps([1, 2])), upgate.__file__)")
    trial.row("import upgate", done.returncode == 0 and done.stdout.startswith("3 " + place), done.stdout.strip() or last(done))
    checks = trial.doctor()
    injected(trial, place)
    with open(root + "/tmp/program.py", "w", encoding="utf-8") as file:
        file.write(PROGRAM)
    trial.record(checks, [python, "/tmp/program.py"], want=" 50 steps")
    trial.judge(place)
    done = roots.enter(root, python, "-m", "pip", "uninstall", "-q", "-y", "upgate")
    left = sorted(path for path in files(root) - before if path.startswith(place) and "upgate" in path)
    trial.row("pip uninstall leaves nothing", done.returncode == 0 and not left, ", ".join(left[:3]))


# --- arm64 --------------------------------------------------------------------------------------------------

def arm64(table, root, built, made):
    """Under an emulator, where there are arm64's glibc and the package: the program finds its libraries."""
    with tarfile.open(made["tarball"]) as file:
        file.extractall(os.path.join(root, "two words"))
    told = built.version(glob.glob(root + "/two words/*/bin/upgate")[0], root)
    table.row("tarball: --version", told == built.told, told)
    if "wheel" in made:
        audit(table, os.path.dirname(root), made["wheel"])
        with zipfile.ZipFile(made["wheel"]) as file:
            file.extractall(os.path.join(root, "wheel"))
        program = glob.glob(root + "/wheel/*.data/data/bin/upgate")[0]
        os.chmod(program, 0o755) # as pip does
        told = built.version(program, root)
        table.row("wheel: --version", told == built.told, told)


# --- the image ----------------------------------------------------------------------------------------------

def image(table, folder, base, recipe, context, want):
    """The recipe makes an image, on a base that no registry was asked for; its root is then used like the others."""
    tool = shutil.which("podman")
    if tool is None:
        table.skipped("image", "no podman here: apt-get install --no-install-recommends podman crun")
        return
    # vfs: needs nothing of the kernel; chroot: nor of the machine's cgroups. What RUN fetches comes as this machine's does.
    podman = [tool, "--storage-driver", "vfs", "--root", os.path.join(folder, "podman"), "--runroot", os.path.join(folder, "podman.run")]
    name, own = "localhost/upgate-packages-base", "localhost/upgate-packages"
    tar = subprocess.Popen(["tar", "-C", base, "-c", "."], stdout=subprocess.PIPE)
    subprocess.run(podman + ["import", "-q", "-", name], stdin=tar.stdout, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    tar.wait()
    try:
        done = subprocess.run(podman + ["build", "--isolation", "chroot", "--network", "host", "--build-arg", "BASE=" + name, "-f", recipe, "-t", own,
                                        context], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
        if not table.row("image: podman build", done.returncode == 0, "" if done.returncode == 0 else done.stdout[-300:]):
            return
        root = subprocess.run(podman + ["image", "mount", own], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        trial = Trial(table, "image", root, "upgate")
        trial.version(want)
        checks = trial.doctor()
        trial.record(checks, ["/usr/lib/upgate/reference_models/native/dlrm", "--steps", "200"])
        subprocess.run(podman + ["image", "unmount", "-f", own], stdout=subprocess.DEVNULL, check=False)
    finally:
        subprocess.run(podman + ["rmi", "-f", own, name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(os.path.join(folder, "podman"), ignore_errors=True)
