#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is installed, cheaply: manual pages and completions of three shells say what --help says, by the tools that read them where
those are there; and an installed tree with its libraries bundled, as the tarball has it, runs where only glibc's files are, from a
folder with blanks; commands of the recipes in docs/PACKAGES.md are such as the program takes; and what is built on a cluster is installed alone, as
printed there. ci/packages --test does the rest: real packages, clean roots, upgrades, removal."""
import contextlib
import glob
import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("UPGATE_BUILD") or os.path.join(SOURCE, "build/release")
UPGATE = os.path.join(BUILD, "upgate")
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(SOURCE, "ci/packages.d"))
import roots  # noqa: E402

SHELL_SECONDS = 60
failures, passed_over = [], []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAIL " + what)
    return condition


def run(*command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, universal_newlines=True,
                          timeout=120, **options)


def tables():
    """{verb: the long options of its --help}"""
    text = run(UPGATE, "--help").stdout
    verbs = re.findall(r"^  ([a-z]+) +\S", text.split("Verbs:")[1].split("Exit codes:")[0], re.M)
    return {verb: set(re.findall(r"^  (?:-\w, |    )(--[a-z-]+)", run(UPGATE, verb, "--help").stdout, re.M)) for verb in verbs}


# --- the commit ---------------------------------------------------------------------------------------------

def commit_of(source, folder):
    """What a build of `source` would say."""
    output = os.path.join(folder, "commit.h")
    done = run("cmake", "-DSOURCE=" + source, "-DOUTPUT=" + output, "-P", os.path.join(SOURCE, "cmake/commit.cmake"))
    check(done.returncode == 0 and done.stderr == "", "commit.cmake: " + done.stderr)
    with open(output, encoding="utf-8") as file:
        return re.search(r'COMMIT "(.*?)"', file.read()).group(1)


def test_version(folder):
    told = run(UPGATE, "--version").stdout
    check(re.match(r"upgate \d+\.\d+\.\d+ \(([0-9a-f]{12}(-dirty)?|commit unknown)\)\n$", told), "--version: %r" % told)
    archive = os.path.join(folder, "archive")
    os.makedirs(archive + "/cmake")
    with open(os.path.join(SOURCE, "cmake/commit.txt"), encoding="utf-8") as file:
        written = file.read()
    for text, want in ((written, "" if "$" in written else written[:12]), ("0123456789abcdef0123 2026-11-26\n", "0123456789ab"), ("", "")):
        with open(archive + "/cmake/commit.txt", "w", encoding="utf-8") as file:
            file.write(text)
        have = commit_of(archive, folder)
        check(have == want, "commit.txt with %r: %r" % (text, have))
    git = shutil.which("git")
    if git is None:
        passed_over.append("no git")
        return
    checkout = os.path.join(folder, "checkout")
    shutil.copytree(archive, checkout)
    settings = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=m", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "c"]):
        run(git, "-C", checkout, *(settings + words))
    head = run(git, "-C", checkout, "rev-parse", "HEAD").stdout[:12]
    check(commit_of(checkout, folder) == head, "a checkout's commit is not %s" % head)
    open(checkout + "/beside", "w", encoding="utf-8").close()
    check(commit_of(checkout, folder) == head, "a file that git does not know makes it dirty")
    with open(checkout + "/cmake/commit.txt", "a", encoding="utf-8") as file:
        file.write("changed\n")
    check(commit_of(checkout, folder) == head + "-dirty", "a changed file does not make it dirty")
    shutil.copytree(archive, checkout + "/unpacked")
    check(commit_of(checkout + "/unpacked", folder) == "", "the commit of the tree around it is taken for its own")


# --- manual pages -------------------------------------------------------------------------------------------

def test_man(verbs):
    pages = os.path.join(BUILD, "man/man1")
    names = {"upgate.1"} | {"upgate-%s.1" % verb for verb in verbs}
    check(set(os.listdir(pages)) == names, "pages: %s" % sorted(set(os.listdir(pages)) ^ names))
    for verb, options in verbs.items():
        with open(os.path.join(pages, "upgate-%s.1" % verb), encoding="ascii") as file:
            text = file.read()
        have = set(re.findall(r"--[a-z-]+", "\n".join(re.findall(r"^\.TP\n(\\fB.*)", text.replace("\\-", "-"), re.M))))
        check(have == options, "upgate-%s.1 and --help differ in %s" % (verb, sorted(have ^ options)))
    paths = [os.path.join(pages, name) for name in sorted(names)]
    if shutil.which("mandoc"):
        done = run("mandoc", "-Tlint", "-Wwarning", *paths)
        check(done.returncode == 0 and done.stdout == "", "mandoc: " + done.stdout + done.stderr)
    else:
        passed_over.append("no mandoc")
    if shutil.which("man") and shutil.which("groff"):
        done = run("man", "--warnings", "-E", "UTF-8", "-l", *paths, env=dict(os.environ, LC_ALL="C.UTF-8", MANWIDTH="80", MANPAGER="cat"))
        check(done.returncode == 0 and done.stderr == "", "man: " + done.stderr)


# --- completions --------------------------------------------------------------------------------------------

class Terminal:
    """An interactive shell that is typed into."""

    def __init__(self, *command):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="dumb", LC_ALL="C.UTF-8", PATH=BUILD + ":" + os.environ["PATH"])
            os.execvp(command[0], command)

    def wait(self, *patterns):
        """What is shown until all patterns are; fails when they do not come."""
        text, end = "", time.monotonic() + SHELL_SECONDS
        while not all(re.search(pattern, text) for pattern in patterns):
            if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
                return None
            try:
                text += os.read(self.fd, 65536).decode("utf-8", "replace")
            except OSError:
                return None
        return text

    def type(self, text):
        os.write(self.fd, text.encode())

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def test_typed(shell, command, setup, verbs):
    """A person at the shell: Tab shows verbs, options, choices."""
    if shutil.which(shell) is None:
        passed_over.append("no " + shell)
        return
    terminal = Terminal(*command)
    terminal.type(setup + "; echo re''ady\n")
    if not check(terminal.wait("ready") is not None, shell + " does not get ready"):
        terminal.close()
        return
    for line, wanted in (("upgate ", verbs), ("upgate record --th", ["--threshold"]), ("upgate record --gpu ", ["kernels", "nodes", "off"]),
                         ("upgate ab --format=", ["table", "json"])):
        terminal.type("\x15" + line + "\t\t")
        check(terminal.wait(*[re.escape(word) for word in wanted]) is not None, "%s: '%s' does not bring %s" % (shell, line, sorted(wanted)))
    terminal.close()


def test_fish(verbs):
    if shutil.which("fish") is None:
        passed_over.append("no fish")
        return
    lines = ["upgate "] + ["upgate %s --" % verb for verb in verbs] + ["upgate record --gpu ", "upgate record -- --"]
    script = "source $argv[1]; for line in $argv[2..-1]; echo '#'; complete -C $line; end"
    with tempfile.TemporaryDirectory() as home:
        done = run("fish", "--no-config", "-c", script, os.path.join(BUILD, "upgate.fish"), *lines, env=dict(os.environ, HOME=home))
    check(done.returncode == 0 and done.stderr == "", "fish: " + done.stderr)
    offered = [{line.split("\t")[0] for line in part.split("\n") if line} for part in done.stdout.split("#\n")[1:]]
    if not check(len(offered) == len(lines), "fish answers %d of %d lines" % (len(offered), len(lines))):
        return
    check(set(verbs) | {"help"} == offered[0], "fish: verbs: %s" % sorted(offered[0]))
    for verb, have in zip(verbs, offered[1:]):
        check(have == verbs[verb], "fish: %s: %s" % (verb, sorted(have ^ verbs[verb])))
    check({"kernels", "nodes", "off"} == offered[-2], "fish: --gpu: %s" % sorted(offered[-2]))
    check("--gpu" not in offered[-1], "fish: options of upgate behind --")


def test_completions(verbs):
    """The files hold each verb's options; program.py asks bash's function for each."""
    with open(os.path.join(BUILD, "upgate.zsh"), encoding="utf-8") as file:
        parts = dict(re.findall(r"^    (\w+)\)\n        options=\((.*?)^        \)", file.read(), re.M | re.S))
    check(set(parts) == set(verbs), "zsh: verbs %s" % sorted(set(parts) ^ set(verbs)))
    for verb, options in verbs.items():
        have = set(re.findall(r"^ +(?:'[^']*'\{-\w\+?,|')(--[a-z-]+)", parts.get(verb, ""), re.M))
        check(have == options, "zsh: %s: %s" % (verb, sorted(have ^ options)))
    bash = os.path.join(BUILD, "upgate.bash")
    test_typed("bash", ["bash", "--norc", "--noprofile", "-i"], "bind 'set bell-style none'; . '%s'" % bash, set(verbs))
    zsh = os.path.join(BUILD, "upgate.zsh")
    test_typed("zsh", ["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -D -u; . '%s'" % zsh, set(verbs))
    test_fish(verbs)
    done = run(UPGATE, "--print-completion", "tcsh")
    check(done.returncode == 2 and "bash, zsh, fish" in done.stderr, "a shell that is not known: " + done.stderr)


# --- recipes ------------------------------------------------------------------------------------------------

def test_recipes(verbs):
    """Each `upgate` of the batch scripts is a verb with options that it has; the scripts are such that bash reads them."""
    with open(os.path.join(SOURCE, "docs/PACKAGES.md"), encoding="utf-8") as file:
        scripts = re.findall(r"^```sbatch\n(.*?)^```", file.read(), re.M | re.S)
    check(len(scripts) == 2, "%d batch scripts" % len(scripts))
    for script in scripts:
        done = subprocess.run(["bash", "-n"], input=script, stderr=subprocess.PIPE, universal_newlines=True)
        check(done.returncode == 0, "bash: " + done.stderr)
        commands = [shlex.split(line, comments=True) for line in script.split("\n") if re.match(r"(srun .*)?upgate ", line)]
        check(commands, "no command in " + script)
        for words in commands:
            words = words[words.index("upgate") + 1:]
            end = words.index("--") if "--" in words else len(words)
            done = run(UPGATE, *(words[:end] + ["--help"]))
            check(words[0] in verbs and done.returncode == 0, "upgate %s: %s" % (" ".join(words), done.stderr))


# --- what is built on a cluster -----------------------------------------------------------------------------

def test_mpi(folder):
    """The second of the printed commands installs upgate-mpi-reduce, and nothing that a package brings."""
    with open(os.path.join(SOURCE, "docs/PACKAGES.md"), encoding="utf-8") as file:
        printed = re.findall(r"^sudo (cmake --install build/release --component .*)$", file.read(), re.M)
    if not check(len(printed) == 1, "%d commands that install a component" % len(printed)):
        return
    if not os.path.exists(os.path.join(BUILD, "upgate-mpi-reduce")):
        passed_over.append("no MPI")
        return
    prefix = os.path.join(folder, "mpi")
    words = [{"build/release": BUILD, "/usr/local": prefix}.get(word, word) for word in printed[0].split()]
    done = run(*words)
    have = sorted(os.path.relpath(os.path.join(at, name), prefix) for at, _, names in os.walk(prefix) for name in names)
    check(done.returncode == 0 and have == ["bin/upgate-mpi-reduce", "share/man/man1/upgate-mpi-reduce.1"], "%s: %s%s" % (printed[0], have, done.stderr))
    done = run(prefix + "/bin/upgate-mpi-reduce", "--version")
    check(done.stdout == run(UPGATE, "--version").stdout, "upgate-mpi-reduce --version: %s%s" % (done.stdout, done.stderr))


# --- a tree of its own --------------------------------------------------------------------------------------

def test_tree(folder):
    """Where only glibc is: the program starts, finds what belongs to it, and reads its bundled libraries, not others of their names."""
    if shutil.which("patchelf") is None:
        passed_over.append("no patchelf: the tree was not tried")
        return
    root = roots.empty(os.path.join(folder, "root"))
    tree = os.path.join(root, "two words")
    done = run("cmake", "--install", BUILD, "--prefix", tree)
    check(done.returncode == 0, "cmake --install: " + done.stderr)
    for path in ("bin/upgate", "lib/upgate/libupgate_inject.so", "share/man/man1/upgate-ab.1", "share/zsh/site-functions/_upgate",
                 "share/bash-completion/completions/upgate", "share/fish/vendor_completions.d/upgate.fish", "share/doc/upgate/LICENSE",
                 "include/upgate/contracts/upgate_step.h"):
        check(os.path.exists(os.path.join(tree, path)), "not installed: " + path)
    for path in glob.glob(tree + "/bin/upgate-mpi-reduce"):
        os.unlink(path) # in no package
    done = run("cmake", "-DTREE=" + tree, "-P", os.path.join(SOURCE, "cmake/packages/bundle.cmake"))
    check(done.returncode == 0, "bundle.cmake: " + done.stderr)
    bundled = glob.glob(tree + "/lib/upgate/bundled/*.so*")
    check(len(bundled) > 5 and os.listdir(tree + "/lib/upgate/bundled/licences"), "bundled: %s" % bundled)
    os.makedirs(root + "/other")
    for path in bundled:
        open(os.path.join(root, "other", os.path.basename(path)), "w", encoding="utf-8").close()
    try:
        done = roots.enter(root, "/two words/bin/upgate", "--version", env={"LD_LIBRARY_PATH": "/other"})
    except subprocess.TimeoutExpired as trouble:
        check(False, str(trouble))
        return
    if "unshare" in done.stderr or "mount" in done.stderr:
        passed_over.append("no root of one's own here: " + done.stderr.strip().split("\n")[-1])
        return
    check(done.stdout == run(UPGATE, "--version").stdout, "--version there: %s%s" % (done.stdout, done.stderr))
    done = roots.enter(root, "/two words/bin/upgate", "doctor")
    check(done.returncode in (0, 4) and "/two words/lib/upgate" in done.stdout, "doctor there: %s%s" % (done.stdout, done.stderr))
    done = roots.enter(root, "/two words/lib/upgate/reference_models/native/dlrm", "--size", "small", "--steps", "5")
    check(done.returncode == 0 and '"steps": 5' in done.stdout, "a workload there: %s%s" % (done.stdout, done.stderr))


def main():
    verbs = tables()
    if not {"ab", "record"} <= set(verbs):
        print("skipped: a build without the verbs ab and record, of which the lines typed here are")
        return 77
    with tempfile.TemporaryDirectory(prefix="upgate-packages-") as folder:
        test_version(folder)
        test_man(verbs)
        test_completions(verbs)
        test_recipes(verbs)
        test_mpi(folder)
        test_tree(folder)
    print("%d verbs, %d failed%s" % (len(verbs), len(failures), "; " + "; ".join(passed_over) if passed_over else ""))
    if failures:
        return 1
    if any("tried" in why or "root" in why for why in passed_over):
        print("skipped: " + "; ".join(passed_over))
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
