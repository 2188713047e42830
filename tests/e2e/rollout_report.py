#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reports of a rollout: upgate.rollout/1 and Markdown against golden files, the status, damaged stores, a store that is being
written, and the HTML page in headless Chromium at the width of a desk and of a phone. Stores of rollout_store.py. The page is skipped
without Chromium. UPGATE_GOLDEN_UPDATE=1 rewrites the golden files: read the diff before you commit it."""
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile

import browser
import rollout_store

BUILD = os.environ.get("UPGATE_BUILD", "build/release")
SOURCE = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RENDER = os.path.join(BUILD, "tests/e2e/rollout_render")
failures = []


def check(what, good, seen=None):
    if not good:
        failures.append("%s%s" % (what, "" if seen is None else ": " + str(seen)[:400]))
        print("not ok  " + failures[-1])


def render(store, out):
    return subprocess.run([RENDER, store, out], capture_output=True, text=True, errors="replace", timeout=120, check=False)


def golden(folder, name):
    path = os.path.join(SOURCE, "tests/golden", name)
    out = os.path.join(folder, name)
    done = render(os.path.join(folder, "rolled_back.db"), out)
    check("%s is written" % name, done.returncode == 0, done.stderr)
    with open(out, encoding="utf-8") as file:
        got = file.read()
    if os.environ.get("UPGATE_GOLDEN_UPDATE") == "1":
        shutil.copyfile(out, path)
    with open(path, encoding="utf-8") as file:
        want = file.read()
    at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    check("%s is as it was" % name, got == want, "got %r, expected %r" % (got[max(0, at - 60):at + 60], want[max(0, at - 60):at + 60]))
    return got


def documents(folder):
    document = json.loads(golden(folder, "rollout_rolled_back.json"))
    # The contract of INTERFACES: these members and no other.
    check("members", sorted(document) == sorted("schema name state stage percent since reason arms evidence decisions".split()), sorted(document))
    check("schema", document["schema"] == "upgate.rollout/1" and document["state"] == "rolled_back" and document["percent"] == 0)
    for arm in ("baseline", "candidate"):
        check("arm " + arm, sorted(document["arms"][arm]) == ["errors", "p50_ms", "p99_ms", "requests"], document["arms"][arm])
    check("cells", all(sorted(cell) == sorted("metric stage value bound threshold verdict requests".split()) for cell in document["evidence"]))
    check("verdicts", {cell["verdict"] for cell in document["evidence"]} <= {"pass", "fail", "undecided"})
    check("decisions", all(sorted(one) == sorted("at from to rule reason who".split()) for one in document["decisions"]) and len(document["decisions"]) == 6)
    check("times are ns", all(isinstance(one["at"], int) and one["at"] > 10 ** 18 for one in document["decisions"]))
    with sqlite3.connect(os.path.join(folder, "rolled_back.db")) as db:
        counts = dict(db.execute("SELECT arm, sum(requests) FROM rollout_second WHERE stage > 0 GROUP BY arm").fetchall())
        both = db.execute("SELECT sum(requests) FROM rollout_second WHERE stage = 0").fetchone()[0]
    check("requests of the A/A stage are the baseline's, both arms of it", document["arms"]["baseline"]["requests"] == counts[0] + both and
          document["arms"]["candidate"]["requests"] == counts[1], document["arms"])
    text = golden(folder, "rollout_rolled_back.md")
    check("Markdown says the outcome first", text.startswith("## Rollout `ranker-2.6`: rolled back"), text[:80])
    check("Markdown explains", "json_dumps" in text and "CPU time more" in text, text[:2000])
    check("no markup of a stored text", "<b>" not in text)


def status(folder):
    for kind, first in (("promoted", "PROMOTED  stage 100% (4 of 4), 100 % to the candidate"), ("rolled_back", "ROLLED BACK  stage 25% (3 of 4), 0 % to the candidate"),
                        ("running", "RUNNING  stage 1% (2 of 4), 1 % to the candidate"), ("waiting", "WAITING  0 % to the candidate")):
        done = render(os.path.join(folder, kind + ".db"), "-")
        check("status of %s" % kind, done.returncode == 0 and done.stdout.startswith(first), done.stdout[:200] + done.stderr)
        check("no line of %s is wider than a terminal" % kind, max(map(len, done.stdout.splitlines())) <= 130, max(done.stdout.splitlines(), key=len))
        if kind == "running":
            check("a controller that is gone", "The controller has not written for" in done.stdout, done.stdout)
            check("an arm that is down", "The candidate is down" in done.stdout)
            check("what is missing", "more requests, if the arms are equal" in done.stdout)
        elif kind != "waiting":
            check("no warning about a controller of %s, which has ended" % kind, "has not written" not in done.stdout)
    ended = shutil.copy(os.path.join(folder, "running.db"), os.path.join(folder, "ended.db"))
    with sqlite3.connect(ended) as db:
        db.execute("UPDATE rollout SET pid = NULL, reason = ''")
    said = render(ended, "-").stdout
    check("a controller that ended in order has no number", "No controller is at work for" in said and "pid" not in said, said)
    check("nothing to say is not said", "why " not in said, said)
    done = render(os.path.join(folder, "rolled_back.db"), os.path.join(folder, "x.pdf"))
    check("an unknown ending is usage", done.returncode == 2 and ".html" in done.stderr, done.stderr)


# column -> values that no controller writes; all must be refused in words, or be harmless
REFUSED = (("rollout", "percent", "130"), ("rollout", "plan", "'['"), ("rollout", "plan", "'[]'"), ("rollout", "stage", "-7"),
           ("rollout_second", "requests", "-1"), ("rollout_second", "errors", "99999999"), ("rollout_second", "bins", "x'ff'"), ("rollout_second", "at_s", "-5"),
           ("rollout_second", "at_s", "9223372036854775807"), ("rollout_stage", "percent", "-1"), ("rollout_decision", "state_to", "'flying'"),
           ("rollout_decision", "percent_to", "101"), ("rollout_recording", "arm", "7"), ("rollout_cell", "at_s", "-1"),
           ("rollout_stage", "begin_s", "9223372036854775807"), ("rollout", "heartbeat_ns", "-9223372036854775808"),
           # by the store itself
           ("rollout_recording", "begin_ns", "9223372036854775807"), ("rollout_decision", "at_ns", "9223372036854775807"),
           ("rollout", "heartbeat_ns", "9223372036854775807"), ("rollout", "since_ns", "9223372036854775807"))
HARMLESS = (("rollout", "name", "'<script>alert(1)</script>' || char(27) || '[31m'"), ("rollout", "reason", "'a' || char(0x202e) || cast(x'ff' as text)"),
            ("rollout_cell", "value", "9e999"), ("rollout_cell", "high", "-9e999"), ("rollout_cell", "value", "1e308"), ("rollout_cell", "evidence", "-1e300"),
            ("rollout_source", "lost", "9223372036854775807"), ("rollout_decision", "evidence", "'{'"), ("rollout_decision", "effect_ns", "1"),
            ("rollout_recording", "path", "'/nonexistent'"), ("rollout_recording", "problem", "'no permission'"),
            ("rollout_stage", "begin_s", "-9223372036854775808"), ("rollout_shadow", "baseline", "printf('%.*c', 100000, 'x')"))


def damaged(folder):
    whole, copy = os.path.join(folder, "rolled_back.db"), os.path.join(folder, "damaged.db")
    for table, column, value in REFUSED + HARMLESS:
        shutil.copyfile(whole, copy)
        with sqlite3.connect(copy) as db:
            db.execute("PRAGMA ignore_check_constraints = ON")
            where = "" if table == "rollout" else " WHERE rowid = (SELECT min(rowid) FROM %s)" % table
            if table in ("rollout_second", "rollout_cell"):
                where = " WHERE at_s = (SELECT max(at_s) FROM %s) %s" % (table, "AND arm = 0" if table == "rollout_second" else "AND metric = 'error_rate'")
            count = db.execute("UPDATE %s SET %s = %s%s" % (table, column, value, where)).rowcount
            check("%s.%s is there" % (table, column), count >= 1)
        what = "%s.%s = %s" % (table, column, value)
        for out in ("-", os.path.join(folder, "d.html"), os.path.join(folder, "d.md"), os.path.join(folder, "d.json")):
            done = render(copy, out)
            if (table, column, value) in REFUSED:
                check("%s is refused in words" % what, done.returncode == 4 and "rolled_back" not in done.stdout and copy in done.stderr, (done.returncode, done.stderr))
            else:
                check("%s does no harm (%s)" % (what, out), done.returncode == 0, (done.returncode, done.stderr))
                check("%s: no escape sequence" % what, "\x1b" not in done.stdout)
    draw = random.Random(7)
    with open(whole, "rb") as file:
        sound = file.read()
    for i in range(int(os.environ.get("UPGATE_ROLLOUT_DAMAGES", "40"))):
        data = bytearray(sound)
        for _ in range(draw.choice((1, 4, 64))):
            at = draw.randrange(100, len(data))
            data[at] = draw.randrange(256)
        with open(copy, "wb") as file:
            file.write(data[:draw.choice((len(data), len(data), len(data) - 4096, len(data) // 2))])
        done = render(copy, ("-", os.path.join(folder, "d.html"), os.path.join(folder, "d.md"))[i % 3])
        check("random damage %d ends in words" % i, done.returncode in (0, 2, 4) and (done.returncode == 0 or done.stderr), (done.returncode, done.stderr[-300:]))
    empty = os.path.join(folder, "empty.db")
    with sqlite3.connect(empty) as db, open(os.path.join(SOURCE, "contracts/schema.sql"), encoding="utf-8") as file:
        db.executescript(file.read())
    done = render(empty, "-")
    check("a store without a rollout is usage", done.returncode == 2 and "no rollout" in done.stderr, done.stderr)


def recordings(folder):
    """`upgate diff` of the two recordings that the rollout has."""
    upgate, paths = os.path.join(BUILD, "upgate"), [os.path.join(folder, "rolled_back.db.%s.db" % arm) for arm in ("baseline", "candidate")]
    if not os.path.exists(upgate):
        print("skipped: upgate diff, which is not in the build")
        return

    def diff(*arguments):
        return subprocess.run([upgate, "diff", *arguments], capture_output=True, text=True, timeout=120, check=False)
    done = diff(*paths, "--requests", "9000,3000")
    check("upgate diff of two recordings", done.returncode == 0 and re.search(r"function +json_dumps .* \+\d+ us", done.stdout) and "A request of the candidate takes" in done.stdout, done.stdout + done.stderr)
    check("what is not told is not shown", "embedding_bag" not in done.stdout, done.stdout)
    check("--all shows it", "embedding_bag" in diff(*paths, "--requests", "9000,3000", "--all").stdout)
    document = json.loads(diff(*paths, "--format", "json").stdout)
    check("upgate.diff/1", document["schema"] == "upgate.diff/1" and document["workloads"][0]["unit"] == "second" and document["workloads"][0]["step_a_ns"] is None, document)
    check("without requests it says so", any("is not known" in note for note in document["workloads"][0]["notes"]))
    swapped = diff(paths[1], paths[0], "--requests", "3000,9000").stdout
    check("the other way round it is less", "CPU time less" in swapped, swapped)
    for what, arguments in (("one number", (*paths, "--requests", "9")), ("words", (*paths, "--requests", "a,b")), ("none of a run", (paths[0], "--requests", "1,2")),
                            ("a workload", (*paths, "--workload", "x")), ("no store", (paths[0], os.path.join(SOURCE, "README.md"))), ("no recording", (paths[0], os.path.join(folder, "promoted.db"))),
                            ("three", (*paths, paths[0]))):
        done = diff(*arguments)
        check("upgate diff, %s: usage" % what, done.returncode == 2 and done.stderr and not done.stdout, (done.returncode, done.stderr))


def living(folder):
    """While a controller writes, a reader sees the state before."""
    path = os.path.join(folder, "running.db")
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE rollout SET state = 'aborted'")
    done = render(path, "-")
    check("an open transaction does not show", done.returncode == 0 and done.stdout.startswith("RUNNING"), done.stdout[:100] + done.stderr)
    db.execute("COMMIT")
    done = render(path, "-")
    check("a finished one does", done.stdout.startswith("ABORTED"), done.stdout[:100])
    db.close()


def text(page, selector):
    return page.eval("(document.querySelector(%r) || {textContent: ''}).textContent" % selector)


def count(page, selector):
    return page.eval("document.querySelectorAll(%r).length" % selector)


def quiet(page, what):
    check(what + ": no console errors", not page.errors, page.errors[:3])
    check(what + ": nothing fetched but itself", all(url.startswith(("file:", "data:")) for url in page.requests), page.requests)
    check(what + ": nothing wider than the screen", page.eval("document.documentElement.scrollWidth <= innerWidth"), page.eval("document.documentElement.scrollWidth"))
    check(what + ": no part failed", count(page, ".broken") == 0, text(page, ".broken"))


def page_of(folder, kind):
    out = os.path.join(folder, kind + ".html")
    done = render(os.path.join(folder, kind + ".db"), out)
    check("page of %s" % kind, done.returncode == 0, done.stderr)
    return out


def desk(page, path):
    page.size(1280, 900)
    page.open(path)
    quiet(page, "desk")
    check("the outcome is the heading", text(page, "h1").startswith("↩Rolled back"), text(page, "h1"))
    check("one sentence, and why", "gets 0 % of the traffic" in text(page, ".reason") and "needed 5.7" in text(page, ".reason"), text(page, ".reason"))
    check("what it rests on, what failed first", text(page, ".basis li").startswith("p99 latency in stage 25%: 13.3 ms against the baseline's 12.2 ms"), text(page, ".basis"))
    check("the cause in plain words", "CPU time more" in text(page, ".cause-main") and "json_dumps" in text(page, ".cause-list"), text(page, ".cause"))
    check("share and decisions are on the first screen", page.eval("document.querySelector('#share svg').getBoundingClientRect().bottom") <= 900,
          page.eval("document.querySelector('#share svg').getBoundingClientRect().bottom"))
    check("a dot a decision", count(page, "#share svg .decision") == 6 and count(page, "#share svg .decision.down") == 1 and count(page, "#share svg .decision.up") == 2)
    check("both arms' errors and latencies", count(page, "#errors svg .line") == 2 and count(page, "#latency svg .line") == 4)
    check("a part a metric", count(page, "#evidence article") == 3, count(page, "#evidence article"))
    check("bounds, value and what is allowed", all(count(page, "#evidence article:first-child svg " + mark) >= 1 for mark in (".between", ".line.b", ".limit")))
    check("decisions as a table", count(page, "#decisions tbody tr") == 6 and "87.0" in text(page, "#decisions tr.down-row"), text(page, "#decisions tr.down-row"))
    check("a stored text is text", count(page, "#decisions tbody b") == 0 and "<b>now</b>" in text(page, "#decisions"))
    check("losses of sources", "17" in text(page, "#sources tbody tr"), text(page, "#sources"))
    check("stages", count(page, "#stages tbody tr") == 4 and "not begun" in text(page, "#stages"))
    check("what differs, with intervals", count(page, "#why tbody tr") >= 2 and "99 % interval" in text(page, "#why"), text(page, "#why"))
    check("answers that differ", count(page, "#answers tbody tr") == 3 and "NaN" in text(page, "#answers"))
    names = page.eval("Array.from(document.querySelectorAll('svg')).map(node => node.getAttribute('aria-label') || '')")
    check("every chart has a name", len(names) >= 8 and all(len(name) > 20 for name in names), names)
    page.mouse("mouseMoved", *page.place("#errors svg")[:2])
    page.wait("!document.querySelector('#tooltip').hidden", "a point tells what it is")
    check("the tooltip tells both arms", "baseline: " in text(page, "#tooltip"), text(page, "#tooltip"))
    page.click("#share svg .decision.down")
    page.wait("Math.abs(document.querySelector('#d5').getBoundingClientRect().top - 60) < 500", "a decision's dot leads to its row")
    page.eval("document.querySelector('#theme').click()")
    check("dark", page.eval("document.documentElement.dataset.theme") == "dark")
    quiet(page, "desk, at the end")
    check("on paper", len(page.pdf(path + ".pdf")) > 20000)
    quiet(page, "paper")


def phone(page, path):
    page.size(390, 844)
    page.open(path)
    quiet(page, "phone")
    check("the outcome is on the first screen of a phone", page.eval("document.querySelector('.reason').getBoundingClientRect().bottom") <= 844)
    check("tables are cards", page.eval("getComputedStyle(document.querySelector('#decisions tbody tr')).display") == "block")


def hostile(page, folder, path):
    with open(path, encoding="utf-8") as file:
        html = file.read()
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL).group(1)
    for what, document in (("no document", "{"), ("another version", '{"schema": "upgate.rollout_page/2"}')):
        with open(os.path.join(folder, "h.html"), "w", encoding="utf-8") as file:
            file.write(html.replace(data, document))
        page.open(os.path.join(folder, "h.html"))
        check(what + ": says so", "damaged or of another version" in text(page, ".broken"), text(page, "main"))
    bad = json.loads(data)
    for key, value in list(bad.items()):
        if key in ("schema",):
            continue
        for other in (None, [], {}, "x", [None, 3, "x"]):
            with open(os.path.join(folder, "h.html"), "w", encoding="utf-8") as file:
                file.write(html.replace(data, json.dumps(dict(bad, **{key: other})).replace("<", "\\u003c")))
            page.open(os.path.join(folder, "h.html"))
            check("%s = %r: the page stands" % (key, other), count(page, "h1") == 1 and count(page, "#how") == 1, page.errors[:2])


def pages(folder):
    program = browser.find()
    if not program:
        print("skipped: the page, no Chromium here")
        return
    done = render(os.path.join(folder, "waiting.db"), os.path.join(folder, "try.html"))
    if "built without the page" in done.stderr:
        print("skipped: the page, " + done.stderr.strip())
        return
    with browser.Browser(program) as page:
        desk(page, page_of(folder, "rolled_back"))
        phone(page, page_of(folder, "rolled_back"))
        for kind, word in (("promoted", "Promoted"), ("running", "Aborted"), ("waiting", "Waiting")):  # living() aborted it
            page.size(1280, 900)
            page.open(page_of(folder, kind))
            quiet(page, kind)
            check(kind + " says so", word in text(page, "h1"), text(page, "h1"))
        hostile(page, folder, os.path.join(folder, "rolled_back.html"))


def main():
    with open(os.path.join(SOURCE, "contracts/schema.sql"), encoding="utf-8") as file:
        if "CREATE TABLE rollout " not in file.read():
            print("skipped: this schema has no rollouts")
            return 77
    with tempfile.TemporaryDirectory(prefix="upgate-rollout-") as folder:
        for kind in ("promoted", "rolled_back", "running", "waiting"):
            getattr(rollout_store, kind)(os.path.join(folder, kind + ".db"))
        documents(folder)
        status(folder)
        damaged(folder)
        recordings(folder)
        living(folder)
        pages(folder)
    print("%d failures" % len(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
