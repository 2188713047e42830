#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program `upgate` around its verbs: help of each, pages in docs/ that are not stale, completion in
bash, one table of environment variables, and a stdout that nobody reads is never a success."""
import contextlib
import glob
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile

BUILD, SOURCE = os.environ["UPGATE_BUILD"], os.environ["UPGATE_SOURCE"]
UPGATE = os.path.join(BUILD, "upgate")
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAIL " + what)


def run(*arguments, **options):
    return subprocess.run([UPGATE] + list(arguments), stdout=options.pop("stdout", subprocess.PIPE),
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=60, **options)


def verbs():
    text = run("--help").stdout
    return re.findall(r"^  ([a-z]+) +\S", text.split("Verbs:")[1].split("Exit codes:")[0], re.M)


def test_help(names):
    check(run("--version").stdout.startswith("upgate "), "--version")
    for verb in names:
        done = run(verb, "--help")
        check(done.returncode == 0 and done.stderr == "", "%s --help: %s" % (verb, done.stderr))
        check(done.stdout == run("help", verb).stdout, "help %s differs from %s --help" % (verb, verb))
        parts = [part for part in ("Usage:", "Common options:", "Examples:", "Exit codes:")
                 if part not in done.stdout]
        check(not parts, "%s --help lacks %s" % (verb, parts))
        check(all(len(line) <= 100 for line in done.stdout.split("\n")), "%s --help is wider than 100" % verb)
        examples = done.stdout.split("Examples:")[1].split("Exit codes:")[0]
        count = len(re.findall(r"^  \S", examples, re.M))
        check(3 <= count <= 6, "%s --help has %d examples, not 3 to 6" % (verb, count))
        for option in ("--format", "--output", "--quiet", "--verbose", "--no-color", "--dry-run"):
            check(option in done.stdout, "%s --help lacks %s" % (verb, option))
        # Every verb takes it, those that draw something explain it.
        check(("--seed" in done.stdout) == (verb in ("ab", "node")), "--seed in %s --help" % verb)
        wrong = run(verb, "--no-such-thing-at-all")
        check(wrong.returncode == 2 and wrong.stdout == "",
              "%s: an unknown option ends in %d" % (verb, wrong.returncode))
        check("try `upgate %s --help`" % verb in wrong.stderr, "%s: no hint in %r" % (verb, wrong.stderr))


def test_no_such_verb(names):
    for word, says in (("bisect", "unknown verb 'bisect'; try `upgate --help`"), ("dcotor", "did you mean 'doctor'?"), ("--vresion", "'--version'?")):
        done = run(word)
        check(done.returncode == 2 and done.stdout == "" and says in done.stderr, "%s: %d %s" % (word, done.returncode, done.stderr))
    for path in glob.glob(os.path.join(SOURCE, "harness/verbs/cmd_*.c")):  # one that this build lacks is no slip of the user's
        verb = os.path.basename(path)[len("cmd_"):-len(".c")]
        done = run(verb, "--help")
        check((verb in names) == (done.returncode == 0), "%s: %d" % (verb, done.returncode))
        check(verb in names or "'%s' is not in this build" % verb in done.stderr, done.stderr)


def test_docs(names):
    with tempfile.TemporaryDirectory(prefix="upgate-docs-") as fresh:
        done = run("--print-docs", fresh)
        check(done.returncode == 0, "--print-docs: " + done.stderr)
        for path in sorted(os.listdir(fresh)):
            with open(os.path.join(fresh, path)) as file:
                want = file.read()
            stored = os.path.join(SOURCE, "docs", path)
            have = open(stored).read() if os.path.exists(stored) else None
            check(have == want, "docs/%s is stale: cmake --build %s --target docs" % (path, BUILD))
        check(run("--print-docs", fresh + "/no/such").returncode == 4, "--print-docs into nowhere succeeds")
    for page in glob.glob(os.path.join(SOURCE, "docs", "upgate-*.md")):
        verb = os.path.basename(page)[len("upgate-"):-len(".md")]
        check(os.path.exists(os.path.join(SOURCE, "harness/verbs/cmd_%s.c" % verb)), "%s is of no verb" % page)


def complete(line, words, index):
    """What bash offers for the word at `index`."""
    script = ('source "$1"; COMP_WORDS=("${@:3}"); COMP_CWORD=$2; COMPREPLY=(); _upgate; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, line, os.path.join(BUILD, "upgate.bash"), str(index)] + words,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    check(done.stderr == "", "completion: " + done.stderr)
    return done.stdout.split()


def test_completion(names):
    if not shutil.which("bash"):
        return
    check(set(names) <= set(complete("", ["upgate", ""], 1)), "verbs are not completed")
    check(set(names) <= set(complete("", ["upgate", "help", ""], 2)), "verbs are not completed after help")
    for verb in names:
        check("--output" in complete("", ["upgate", verb, "--o"], 2), "%s --o" % verb)
        check(complete("", ["upgate", verb, "--format", "j"], 3) == ["json"], "%s --format j" % verb)
        check(complete("", ["upgate", verb, "--format", "="], 3) == ["table", "json"], "%s --format=" % verb)
        check(complete("", ["upgate", verb, "--format", "=", "t"], 4) == ["table"], "%s --format=t" % verb)
        check(complete("", ["upgate", verb, "plan"], 2) == [], "%s: files are left to bash" % verb)


def test_environment_table():
    """Every UPGATE_* name that code mentions is in the table, and none is there that no code mentions."""
    table = os.path.join(SOURCE, "common/environment.c")
    with open(table) as file:
        known = set(re.findall(r'"(UPGATE_[A-Z_]+)"', file.read()))
    used = {}
    for room in ("common", "contracts", "harness", "tracer", "reports", "reference_models", "kernels", "tests"):
        for path in glob.glob(os.path.join(SOURCE, room, "**", "*.*"), recursive=True):
            if path == table or not path.endswith((".c", ".h", ".cu", ".py", ".sh")):
                continue
            with open(path, errors="replace") as file:
                text = file.read()
            for name in re.findall(r'["\'$](UPGATE_[A-Z_]+)["\':/]', text):
                used.setdefault(name, path)
            for name in re.findall(r"ENVIRONMENT_([A-Z_]+)\)", text):
                used.setdefault("UPGATE_" + name, path)
    check("UPGATE_STEPS" in used, "the search for variables finds nothing")
    ours = {name for name, path in used.items() if "/tests/" not in path}
    for name in sorted(ours - known):
        check(False, "%s of %s is not in common/environment.c" % (name, used[name]))
    for name in sorted(known - set(used)):
        check(False, "nobody reads %s" % name)
    wrong = run("--version", env=dict(os.environ, UPGATE_STATE_DRI="x")).stderr
    check("'UPGATE_STATE_DRI'; did you mean 'UPGATE_STATE_DIR'?" in wrong, "no warning: %r" % wrong)
    quiet = run("--version", env=dict(os.environ, UPGATE_LOG="error", UPGATE_STATE_DRI="x")).stderr
    check(quiet == "", "UPGATE_LOG=error does not silence: %r" % quiet)


def test_lost_output():
    with open("/dev/full", "w") as full:
        done = run("--help", stdout=full)
        check(done.returncode == 4 and "No space left" in done.stderr,
              "/dev/full: %d %s" % (done.returncode, done.stderr))
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = run("--help", stdout=write_end)
    os.close(write_end)
    check(done.returncode == 4 and "Broken pipe" in done.stderr, "closed pipe: %d %s" % (done.returncode, done.stderr))
    done = subprocess.run(["sh", "-c", 'exec "$0" --version >&-', UPGATE], stderr=subprocess.PIPE,
                          universal_newlines=True)
    check(done.returncode == 4, "closed stdout: %d" % done.returncode)


def test_file_size_limit():
    """SIGXFSZ would be a death without a word."""
    with tempfile.TemporaryFile() as file:
        done = run("--help", stdout=file, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))
    check(done.returncode == 4 and "File too large" in done.stderr, "limit: %d %r" % (done.returncode, done.stderr))


def test_leftovers(names):
    """The step file of a killed `upgate record` or `ab` is memory of the machine: any verb gives it back."""
    path = "/dev/shm/upgate-1-1-test-%d-record" % os.getpid()
    for verb in names:
        with open(path, "wb") as file:
            file.write(b"UPGSTEPS" + bytes(4096))
        try:
            run(verb, "--no-such-thing-at-all")
            check(not os.path.exists(path), "%s leaves %s" % (verb, path))
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


names = verbs()
if not names:
    print("skipped: this build has no verb")
    sys.exit(77)
test_help(names)
test_no_such_verb(names)
test_docs(names)
test_completion(names)
test_environment_table()
test_lost_output()
test_file_size_limit()
test_leftovers(names)
print("verbs: %s; %d failed" % (" ".join(names), len(failures)))
sys.exit(1 if failures else 0)
