#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate report` and the CI files as a CI system uses them: forms, exit codes, limits, escaping, and the
GitHub action's and the GitLab job's scripts from end to end on stores made by tests/golden/*.sql."""
import errno
import json
import os
import pty
import re
import resource
import shutil
import sqlite3
import stat
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

SOURCE = os.environ.get("UPGATE_SOURCE", os.getcwd())
UPGATE = os.path.abspath(os.path.join(os.environ.get("UPGATE_BUILD", "build/release"), "upgate"))
ENV = {k: v for k, v in os.environ.items()
       if not k.startswith(("UPGATE_", "GITHUB_", "GATE_")) and k not in ("NO_COLOR", "LC_ALL", "LC_CTYPE")}
ENV["LANG"] = "C.UTF-8"
WORK = tempfile.mkdtemp(prefix="upgate-report-")


def store(name, *scripts, sql=""):
    """A store in WORK made of the schema and golden scripts."""
    path = os.path.join(WORK, name)
    if os.path.exists(path):
        os.remove(path)
    db = sqlite3.connect(path)
    for part in ("contracts/schema.sql", *(f"tests/golden/{s}.sql" for s in scripts)):
        with open(os.path.join(SOURCE, part), encoding="utf-8") as file:
            db.executescript(file.read())
    db.executescript(sql)
    db.close()
    return path


def run(*args, env=None, stdout=subprocess.PIPE, **kwargs):
    return subprocess.run([UPGATE, "report", *args], stdout=stdout, stderr=subprocess.PIPE, text=True,
                          env={**ENV, **(env or {})}, cwd=WORK, timeout=60, **kwargs)


def read(path):
    with open(os.path.join(WORK, path), encoding="utf-8") as file:
        return file.read()


def check_junit(path):
    """Well-formed, valid, and its counts are those of its cases."""
    if shutil.which("xmllint"):
        schema = os.path.join(SOURCE, "tests/golden/junit.xsd")
        result = subprocess.run(["xmllint", "--noout", "--schema", schema, path], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
    root = ElementTree.parse(path).getroot()
    for element in [root, *root]:
        cases = list(element.iter("testcase"))
        assert int(element.get("tests")) == len(cases), element.attrib
        for kind in ("failure", "error", "skipped"):
            count = sum(case.find(kind) is not None for case in cases)
            key = {"failure": "failures", "error": "errors", "skipped": "skipped"}[kind]
            assert int(element.get(key)) == count, (element.attrib, kind, count)
    names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert len(names) == len(set(names)), "two cases of one name"
    return root


def test_forms():
    for name in ("pass", "fail", "inconclusive", "crash", "parity", "escape", "many"):
        path = store("run.db", "base", *([] if name in ("escape", "inconclusive") else ["calibrated"]), name)
        db = sqlite3.connect(path)
        db.text_factory = lambda raw: raw.decode(errors="replace")
        cells = db.execute("SELECT workload, metric FROM cell").fetchall()
        db.close()
        for ending in ("json", "xml", "md"):
            result = run("run.db", "-o", f"out.{ending}")
            assert result.returncode == 0 and result.stdout == "", result
        document = json.loads(read("out.json"))
        assert document["schema"] == "upgate.verdict/1" and len(document["cells"]) == len(cells), document
        root = check_junit(os.path.join(WORK, "out.xml"))
        cases = {case.get("name"): case for case in root.iter("testcase")}
        if name != "escape":  # there XML normalises what a name cannot hold
            assert {f"{w}.{m}" for w, m in cells} <= set(cases), "a cell has no case"
        green = all(case.find("failure") is None and case.find("error") is None for case in cases.values())
        assert green == (document["verdict"] == "pass"), (name, document["verdict"])
        assert run("run.db", "--format", "json").stdout == read("out.json")
        assert len(os.listdir(WORK)) == 4, os.listdir(WORK)  # no temporary file stays


def test_junit_mapping():
    store("run.db", "base", "calibrated", "fail")
    assert run("run.db", "-o", "out.xml").returncode == 0
    cases = {case.get("name"): case for case in check_junit(os.path.join(WORK, "out.xml")).iter("testcase")}
    failure = cases["dlrm-train.step_time"].find("failure")
    assert failure.get("type") == "regression", failure.attrib
    assert failure.get("message").startswith("ratio 1.0514 [1.0462, 1.0563]"), failure.attrib
    properties = {p.get("name"): p.get("value") for p in cases["dlrm-train.step_time"].iter("property")}
    assert properties["ratio"] == "1.0514" and properties["n_pairs"] == "10", properties
    assert properties["ci"] == "[1.0462, 1.0563]" and properties["run_id"].startswith("3f2a91c0"), properties
    assert cases["dlrm-infer.latency_p99"].find("failure").get("type") == "inconclusive"
    assert cases["ddp-train.step_time"].find("failure") is None
    assert cases["dlrm-train.first_step_time"].find("skipped") is not None  # observed
    assert run("run.db", "-o", "out.xml", "--inconclusive=skip").returncode == 0
    cases = {case.get("name"): case for case in check_junit(os.path.join(WORK, "out.xml")).iter("testcase")}
    assert cases["dlrm-infer.latency_p99"].find("skipped") is not None
    assert cases["dlrm-train.step_time"].find("failure") is not None
    store("run.db", "base", "inconclusive")
    assert run("run.db", "-o", "out.xml", "--inconclusive=skip").returncode == 0
    cases = {case.get("name"): case for case in check_junit(os.path.join(WORK, "out.xml")).iter("testcase")}
    assert cases["dlrm-train.latency_p99"].find("error").get("type") == "infra"  # nothing was measured


def test_refusals():
    store("judged.db", "base", "calibrated", "pass")
    store("empty.db")
    store("unjudged.db", "base")
    with open(os.path.join(WORK, "text.db"), "w") as file:
        file.write("no store at all\n" * 100)
    with open(os.path.join(WORK, "zero.db"), "w"):
        pass
    store("newer.db", "base", sql="PRAGMA user_version = 99;")
    for args, code, words in (
            (["judged.db", "-o", "report.pdf"], 2, ".html (the whole report), .md (Markdown), .json (verdict), .xml (JUnit) or .pftrace"),
            (["judged.db", "-o", "report"], 2, "has no ending"),
            (["judged.db", "-o", "none/report.md"], 4, "No such file"),
            (["empty.db"], 4, "no run was recorded"),
            (["empty.db", "-o", "x.json"], 4, "no run was recorded"),
            (["empty.db", "--github"], 4, "no run was recorded"),
            (["unjudged.db"], 4, "has no verdict yet"),
            (["text.db"], 2, "not a store"),
            (["zero.db"], 2, "empty"),
            (["absent.db"], 2, "No such file"),
            (["newer.db"], 2, "use a newer upgate"),
            (["judged.db", "--inconclusive=maybe"], 2, "inconclusive"),
            (["judged.db", "--githb"], 2, "github"),
            ([], 2, "report"),
            (["judged.db", "other.db"], 2, "other.db")):
        result = run(*args)
        assert result.returncode == code, (args, result)
        assert words in result.stderr and result.stdout == "", (args, result)
    assert not [name for name in os.listdir(WORK) if name.startswith(("x.", "report."))]


def test_lost_output():
    store("run.db", "base", "calibrated", "fail")
    with open("/dev/full", "w") as full:
        for args in (["run.db"], ["run.db", "--format", "json"], ["run.db", "--github"]):
            assert run(*args, stdout=full).returncode == 4, args
    ends = os.pipe()
    os.close(ends[0])
    assert run("run.db", stdout=ends[1]).returncode == 4
    os.close(ends[1])
    assert run("run.db", "--github", env={"GITHUB_STEP_SUMMARY": "/dev/full"}).returncode == 4
    assert run("run.db", "--github", env={"GITHUB_OUTPUT": "/proc/none/out"}).returncode == 4


def test_full_disk():
    """A file system of one page: the report does not fit, nothing is left, what was there stays."""
    store("run.db", "base", "calibrated", "many")
    script = ("mount -t tmpfs -o size=4k none small && echo old >small/r.md && "
              f"'{UPGATE}' report run.db -o small/r.md; echo $?; ls small; cat small/r.md")
    os.makedirs(os.path.join(WORK, "small"), exist_ok=True)
    result = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, cwd=WORK, env=ENV)
    os.rmdir(os.path.join(WORK, "small"))
    if "Operation not permitted" in result.stderr or "unshare" in result.stderr:
        return "needs mount namespaces"
    assert result.stdout == "4\nr.md\nold\n" and "No space left" in result.stderr, result
    return None


def test_file_size_limit():
    """ulimit -f: an error in words, and nothing is left."""
    db = store("limit.db", "base", "calibrated", "fail")
    before = sorted(os.listdir(os.path.dirname(db)))
    for form in ("html", "json"):
        done = run(db, "-o", db + "." + form, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512)))
        assert done.returncode == 4 and "File too large" in done.stderr, (done.returncode, done.stderr)
        assert sorted(os.listdir(os.path.dirname(db))) == before, os.listdir(os.path.dirname(db))


def test_read_only():
    """A store that only can be read is enough, and a new report has the mode that the umask gives."""
    path = store("run.db", "base", "calibrated", "pass")
    os.chmod(path, 0o444)
    result = run("run.db", "-o", "out.json", preexec_fn=lambda: os.umask(0o027))
    assert result.returncode == 0, result
    assert stat.S_IMODE(os.stat(os.path.join(WORK, "out.json")).st_mode) == 0o640
    with open(path, "rb") as file:
        before = file.read()
    assert run("run.db").returncode == 0 and open(path, "rb").read() == before


def terminal(args, columns, env):
    """What the program draws on a terminal of that width."""
    import fcntl
    import termios
    ready = os.pipe()
    pid, master = pty.fork()
    if pid == 0:
        os.read(ready[0], 1)
        os.chdir(WORK)
        os.execve(UPGATE, [UPGATE, "report", *args], {**ENV, "TERM": "xterm", **env})
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    os.write(ready[1], b"x")
    text = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError as error:
            assert error.errno == errno.EIO
            break
        if not chunk:
            break
        text += chunk
    os.waitpid(pid, 0)
    for fd in (*ready, master):
        os.close(fd)
    return text.decode().replace("\r", "")


def test_terminal():
    store("run.db", "base", "calibrated", "fail")
    plain = run("run.db").stdout
    assert "\033" not in plain and plain.splitlines()[1].startswith("  FAIL  "), plain
    assert max(map(len, plain.splitlines())) <= 100
    assert "\033[" in terminal(["run.db"], 120, {})
    for args, env in ((["run.db", "--no-color"], {}), (["run.db"], {"NO_COLOR": "1"}), (["run.db"], {"TERM": "dumb"})):
        assert "\033" not in terminal(args, 120, env), (args, env)
    for columns in (60, 80, 100, 140):
        shown = terminal(["run.db", "--no-color"], columns, {})
        body = shown[:shown.index("\nnext ")]  # commands stay whole, to be copied
        assert max(map(len, body.splitlines())) <= columns, columns
        assert re.sub(r"\s+", "", "dlrm-trainthroughput") in re.sub(r"\s+", "", shown)
    ascii_only = run("run.db", env={"LANG": "C"}).stdout
    assert ascii_only.isascii() and ascii_only.startswith("====")


def annotations(text):
    lines = text.splitlines()
    assert all(re.match(r"::(error|warning|notice) [^\r\n]*::", line) for line in lines), text
    return lines, {kind: sum(line.startswith(f"::{kind} ") for line in lines) for kind in ("error", "warning", "notice")}


def test_github():
    env = {"GITHUB_STEP_SUMMARY": os.path.join(WORK, "summary"), "GITHUB_OUTPUT": os.path.join(WORK, "outputs")}
    for name, expected in (("pass", "notice"), ("fail", "error"), ("inconclusive", "error")):
        store("run.db", "base", *([] if name == "inconclusive" else ["calibrated"]), name)
        for path in env.values():
            open(path, "w").close()
        result = run("run.db", "--github", env=env)
        lines, _ = annotations(result.stdout)
        assert result.returncode == 0 and lines[0].startswith(f"::{expected} "), result
        outputs = dict(line.split("=", 1) for line in read("outputs").splitlines())
        assert outputs["verdict"] == name and outputs["run"].startswith("3f2a91c0"), outputs
        assert read("summary").startswith("## ")
        if name == "fail":
            assert outputs["ratio_dlrm-train_step_time"] == "1.0514", outputs
            assert "title=upgate FAIL%3A dlrm-train step_time::ratio 1.0514" in lines[1], lines
            assert "5.1 %25 worse" in lines[0] and "file=ci/plans/demo.yaml," in lines[0], lines
    assert run("run.db", "--github").returncode == 0  # outside of GitHub: annotations only


def test_github_escaping():
    """Names and texts cannot end a command, add an output, or open a tag."""
    env = {"GITHUB_STEP_SUMMARY": os.path.join(WORK, "summary"), "GITHUB_OUTPUT": os.path.join(WORK, "outputs")}
    store("run.db", "base", "escape")
    for path in env.values():
        if os.path.exists(path):
            os.remove(path)
    result = run("run.db", "--github", env=env)
    lines, _ = annotations(result.stdout)
    for line in lines:
        head = line[2:].split("::")[0]
        for item in head.split(" ", 1)[1].split(","):
            assert re.fullmatch(r"(file|title)=[^:,]*", item), line
    outputs = read("outputs").splitlines()
    assert [line for line in outputs if line.startswith("verdict=")] == ["verdict=fail"], outputs
    assert all(re.match(r"[A-Za-z_][A-Za-z0-9_-]*=", line) for line in outputs), outputs
    summary = read("summary")
    assert "<script" not in summary and not re.search(r"@(team|someone)", summary), summary
    rows = [line for line in summary.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} <= {8, 11}, rows


def test_github_limits():
    """At most 10 annotations of a kind, worst first, one of them the summary; the step summary below its limit."""
    env = {"GITHUB_STEP_SUMMARY": os.path.join(WORK, "summary")}
    more = """INSERT INTO cell (workload, metric, unit, direction, gating, ratio, ci_lower, ci_upper, alpha, pairs, margin,
              verdict, improved, reason)
              WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 19999)
              SELECT 'w' || i, 'step_time', 'ns', 'lower', 1, 1.03 + i * 1e-6, 1.02, 1.04 + i * 1e-6, 0.01, 9, 0.01,
                     'fail', 0, 'slower by a text that fills the summary with its words' FROM n;
              INSERT INTO note (at_ns, level, text) WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n
              WHERE i < 30) SELECT i, 'warning', 'warning ' || i FROM n;"""
    store("run.db", "base", "calibrated", "fail", sql=more)
    with open(env["GITHUB_STEP_SUMMARY"], "w") as file:
        file.write("x" * 200000)  # of an earlier command of the same step
    result = run("run.db", "--github", env=env)
    lines, counts = annotations(result.stdout)
    assert counts == {"error": 10, "warning": 10, "notice": 0}, counts
    assert "9 of 20003 findings are annotated" in lines[0] and "dlrm-train throughput" in lines[2] and "w19999" in lines[3], lines[:4]
    size = os.path.getsize(env["GITHUB_STEP_SUMMARY"])
    assert 900000 < size <= 1000000, size
    shown = read("summary").count("| ❌ FAIL | ")
    omitted = int(re.search(r"\n(\d+) more rows did not fit here", read("summary")).group(1))
    assert shown + omitted == 20003, (shown, omitted)  # 20,000 and two of fail.sql, and its inconclusive one
    with open(env["GITHUB_STEP_SUMMARY"], "w") as file:
        file.write("x" * 990000)
    result = run("run.db", "--github", env=env)
    assert result.returncode == 4 and "step of its own" in result.stderr, result


def fake_program(database, code, page=True):
    """A program whose `ab` leaves a given store and exit code; every other verb is the real one. page: it can make report.html,
    whatever this build can."""
    path = os.path.join(WORK, "fake-upgate")
    copy = f"cp '{database}' \"$4\"" if database else ":"
    made = 'echo page >"$4"; exit 0' if page else "echo no page >&2; exit 4"
    with open(path, "w") as file:
        file.write(f"#!/bin/sh\nif [ \"$1\" = ab ]; then\n  echo \"$@\" >'{WORK}/arguments'\n  {copy}\n"
                   f"  exit {code}\nfi\ncase \"$4\" in *.html) {made} ;; esac\nexec '{UPGATE}' \"$@\"\n")
    os.chmod(path, 0o755)
    return path


def action(program, **inputs):
    env = {**ENV, "GITHUB_OUTPUT": os.path.join(WORK, "outputs"), "GITHUB_STEP_SUMMARY": os.path.join(WORK, "summary"),
           "GATE_PLAN": "plan.yaml", "GATE_OUTPUT": os.path.join(WORK, "results"), "GATE_PROGRAM": program,
           "GATE_INCONCLUSIVE": "fail", "GATE_FAIL_ON": "inconclusive", "GATE_ARGS": "", **inputs}
    for name in ("outputs", "summary"):
        open(os.path.join(WORK, name), "w").close()
    result = subprocess.run([os.path.join(SOURCE, "ci/github/gate.sh")], capture_output=True, text=True, env=env,
                            cwd=WORK, timeout=60)
    assert result.returncode == 0, result
    return result, dict(line.split("=", 1) for line in read("outputs").splitlines())


def test_action_script():
    databases = {name: store(f"{name}.db", "base", *scripts, name)
                 for name, scripts in (("pass", ["calibrated"]), ("fail", ["calibrated"]), ("inconclusive", []))}
    results = os.path.join(WORK, "results")
    for name, code, fail_on, status in (
            ("pass", 0, "inconclusive", 0), ("fail", 1, "inconclusive", 1), ("inconclusive", 3, "inconclusive", 3),
            ("fail", 1, "fail", 1), ("inconclusive", 3, "fail", 0), ("fail", 1, "never", 0),
            ("inconclusive", 3, "never", 0)):
        shutil.rmtree(results, ignore_errors=True)
        result, outputs = action(fake_program(databases[name], code), GATE_FAIL_ON=fail_on)
        assert outputs["status"] == str(status) and outputs["exit-code"] == str(code), (name, fail_on, outputs)
        assert outputs["verdict"] == name, outputs
        assert sorted(os.listdir(results)) == ["junit.xml", "report.html", "report.json", "report.md", "run.db"], os.listdir(results)
        assert read("summary").startswith("## ") and "::" in result.stdout
        check_junit(os.path.join(results, "junit.xml"))
    # The page is no evidence of its own: without it the verdict stands.
    shutil.rmtree(results)
    result, outputs = action(fake_program(databases["fail"], 1, page=False))
    assert outputs["status"] == "1" and "::warning title=upgate::no report.html" in result.stdout, (outputs, result)
    assert sorted(os.listdir(results)) == ["junit.xml", "report.json", "report.md", "run.db"], os.listdir(results)


def test_action_fails_closed():
    shutil.rmtree(os.path.join(WORK, "results"), ignore_errors=True)
    judged = store("pass.db", "base", "calibrated", "pass")
    unjudged = store("unjudged.db", "base")
    for database, code, fail_on, status in ((None, 0, "never", 4), (None, 4, "never", 4), (None, 2, "never", 2),
                                            (None, 137, "never", 4), (unjudged, 0, "never", 4), (judged, 4, "never", 4)):
        result, outputs = action(fake_program(database, code), GATE_FAIL_ON=fail_on)
        assert outputs["status"] == str(status), (database, code, outputs)
        if code:
            assert "::error title=upgate::no verdict" in result.stdout and "verdict" not in outputs, result
        shutil.rmtree(os.path.join(WORK, "results"), ignore_errors=True)
    program = fake_program(judged, 0)
    for bad in ({"GATE_PLAN": ""}, {"GATE_FAIL_ON": "nothing"}, {"GATE_INCONCLUSIVE": "pass"},
                {"GATE_PROGRAM": "/nonexistent/upgate"}, {"GATE_OUTPUT": "/proc/none/out"}):
        result, outputs = action(program, **bad)
        assert outputs["status"] == "2" and "::error title=upgate::" in result.stdout, (bad, result)


def test_action_details():
    """Blanks and metacharacters in a plan's name stay one word; an earlier attempt's results do not."""
    judged = store("pass.db", "base", "calibrated", "pass")
    results = os.path.join(WORK, "results")
    os.makedirs(results, exist_ok=True)
    for name in ("report.md", "report.html", "junit.xml", "run.db"):
        with open(os.path.join(results, name), "w") as file:
            file.write("old")
    action(fake_program(judged, 0), GATE_PLAN="a plan; touch owned $(touch owned).yaml", GATE_ARGS="--seed 11 *")
    assert read("arguments") == f"ab a plan; touch owned $(touch owned).yaml -o {results}/run.db --seed 11 *\n"
    assert not os.path.exists(os.path.join(WORK, "owned"))
    assert read("results/previous.db") == "old" and read("results/report.md") != "old"
    # A block of YAML has lines: an option on the second one is one, too.
    action(fake_program(judged, 0), GATE_ARGS="--seed 11\n--steps 50\n")
    assert read("arguments") == f"ab plan.yaml -o {results}/run.db --seed 11 --steps 50\n"
    # Without a verdict the old report is gone, too: it must not be uploaded as the new one.
    action(fake_program(None, 4))
    assert not [name for name in ("report.md", "report.html") if os.path.exists(os.path.join(results, name))]
    # A cancelled job: the signal reaches the program, and its own exit code counts.
    slow = os.path.join(WORK, "slow-upgate")
    with open(slow, "w") as file:
        file.write("#!/bin/bash\ntrap 'echo ended; exit 4' TERM\necho started\nfor i in {1..200}; do sleep 0.05; done\n")
    os.chmod(slow, 0o755)
    env = {**ENV, "GATE_PLAN": "p", "GATE_OUTPUT": results, "GATE_PROGRAM": slow,
           "GITHUB_OUTPUT": os.path.join(WORK, "outputs")}
    open(os.path.join(WORK, "outputs"), "w").close()
    process = subprocess.Popen([os.path.join(SOURCE, "ci/github/gate.sh")], stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout.readline() == "started\n"
    process.terminate()
    assert process.stdout.readline() == "ended\n" and process.wait(20) == 0
    assert "status=4" in read("outputs"), read("outputs")


def test_schema_document():
    """docs/SCHEMA.md names every column of every stable view, and its queries work."""
    path = store("run.db", "base", "calibrated", "fail")
    text = read(os.path.join(SOURCE, "docs/SCHEMA.md"))
    sections = {part.split(":")[0].split()[0]: part for part in text.split("\n## ")[1:]}
    db = sqlite3.connect(path)
    views = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'view'")]
    for view in views:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({view})")]
        missing = [c for c in columns if f"`{c}`" not in sections.get(view, "")]
        assert columns and not missing, f"{view} in docs/SCHEMA.md lacks {missing}"
        assert f"FROM {view} " in sections[view] or f'FROM {view}"' in sections[view], f"no example for {view}"
    queries = re.findall(r'^sqlite3 (?:-box )?run\.db "(.*)"$', text, re.M)
    assert len(queries) >= len(views), queries
    for query in queries:
        db.execute(query).fetchall()
    db.close()


def load_yaml(path):
    import yaml
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return yaml.safe_load(file)


def test_action_file():
    try:
        document = load_yaml("ci/github/action.yml")
    except ImportError:
        return "needs PyYAML (python3-yaml)"
    steps = document["runs"]["steps"]
    assert document["runs"]["using"] == "composite" and document["inputs"]["plan"]["required"] is True
    assert document["inputs"]["fail-on"]["default"] == "inconclusive", "the default must let nothing but a pass through"
    for step in steps:  # in composite actions each run needs its shell
        assert ("run" in step) == ("shell" in step) and ("run" in step) != ("uses" in step), step
    used = set(re.findall(r"inputs\.([a-z-]+)", json.dumps(steps)))
    assert used == set(document["inputs"]), used ^ set(document["inputs"])
    given = set(re.findall(r"GATE_[A-Z_]+", read(os.path.join(SOURCE, "ci/github/gate.sh"))))
    assert given == set(steps[0]["env"]), given ^ set(steps[0]["env"])
    for output in document["outputs"].values():
        name = re.search(r"steps\.run\.outputs\.([a-z-]+)", output["value"]).group(1)
        assert name in ("verdict", "reason", "run", "exit-code"), name
    assert not any("${{" in step.get("run", "") for step in steps), "an input would be part of a command"
    assert steps[-1]["if"] == "always()" and "exit" in steps[-1]["run"]
    for status, code in (("0", 0), ("3", 3), ("", 4), (None, 4)):
        env = {**ENV, **({} if status is None else {"GATE_STATUS": status})}
        assert subprocess.run(["bash", "-c", steps[-1]["run"]], env=env).returncode == code, status
    return None


def test_gitlab_file():
    try:
        job = load_yaml("ci/gitlab/upgate.gitlab-ci.yml")[".upgate"]
    except ImportError:
        return "needs PyYAML (python3-yaml)"
    assert job["artifacts"]["when"] == "always" and job["artifacts"]["reports"]["junit"] == "upgate-out/junit.xml"
    judged = {"pass": 0, "fail": 1, "inconclusive": 3}
    for name, code in judged.items():
        database = store(f"{name}.db", "base", *([] if name == "inconclusive" else ["calibrated"]), name)
        env = {**ENV, **job["variables"], "GATE_PLAN": "a plan.yaml", "GATE_PROGRAM": fake_program(database, code)}
        result = subprocess.run(["sh", "-c", "\n".join(job["script"])], env=env, cwd=WORK, capture_output=True, text=True)
        assert result.returncode == code, result
        assert read("arguments").startswith("ab a plan.yaml -o upgate-out/run.db"), read("arguments")
        check_junit(os.path.join(WORK, "upgate-out/junit.xml"))
        assert os.path.exists(os.path.join(WORK, "upgate-out/report.html")) and "upgate-out/" in job["artifacts"]["paths"]
    open(os.path.join(WORK, "stepA"), "w").close()  # a range is no pattern of files
    env["GATE_ARGS"] = "--step step*\n--steps 50"
    subprocess.run(["sh", "-c", "\n".join(job["script"])], env=env, cwd=WORK, capture_output=True, text=True)
    assert read("arguments").endswith(" --step step* --steps 50\n"), read("arguments")
    env["GATE_PROGRAM"] = fake_program(database, 3, page=False)
    result = subprocess.run(["sh", "-c", "\n".join(job["script"])], env=env, cwd=WORK, capture_output=True, text=True)
    assert result.returncode == 3 and "no report.html" in result.stderr, result
    assert not os.path.exists(os.path.join(WORK, "upgate-out/report.html"))  # the one of the run before
    env["GATE_PROGRAM"] = fake_program(None, 0)  # says pass and leaves nothing
    shutil.rmtree(os.path.join(WORK, "upgate-out"))
    assert subprocess.run(["sh", "-c", "\n".join(job["script"])], env=env, cwd=WORK, capture_output=True).returncode == 4
    return None


def main():
    if not os.access(UPGATE, os.X_OK):
        print(f"skipped: no program at {UPGATE}")
        return 77
    try:
        for name, test in [(n, t) for n, t in globals().items() if n.startswith("test_")]:
            for left in os.listdir(WORK):
                path = os.path.join(WORK, left)
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
            reason = test()
            print(f"skip {name}: {reason}" if reason else f"ok   {name}", flush=True)
    finally:
        shutil.rmtree(WORK)
    return 0


if __name__ == "__main__":
    sys.exit(main())
