#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate report RUN.db -o report.html` on stores of all kinds: the data document is read back out of the page and compared
with the store and with `upgate diff --format json`; hostile names, limits, refusals; one real `upgate ab` with a traced pair.
UPGATE_GOLDEN_UPDATE=1 rewrites tests/golden/fail_html.json."""
import html.parser
import json
import math
import os
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile

import ab_rig
import browser
import diff_store

UPGATE, SOURCE = ab_rig.UPGATE, ab_rig.SOURCE
BYTES_MAX, EVENTS_MAX = 5_000_000, 200_000


class Page(html.parser.HTMLParser):
    """What a browser would make of it: the data document, and everything it would load."""

    def __init__(self, text):
        super().__init__()
        self.data, self.loads, self.inside, self.title = None, [], None, ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.inside = tag if tag != "script" or attrs.get("id") != "data" else "data"
        loaded = attrs.get("src") or (attrs.get("href") if tag in ("link", "base") else None) or attrs.get("data")
        if loaded and not loaded.startswith("data:"):
            self.loads.append((tag, loaded))
        if tag in ("iframe", "object", "embed", "form"):
            self.loads.append((tag, str(attrs)))

    def handle_data(self, text):
        if self.inside == "data":
            assert self.data is None, "two data documents"
            self.data = text
        elif self.inside == "title":
            self.title += text
        elif self.inside == "style":
            assert not re.search(r"url\(\s*['\"]?(?!data:|#)|@import", text), "the style loads something"

    def handle_endtag(self, tag):
        self.inside = None


def report(case, name="run.db", code=0, out="report.html"):
    done = case.run("report", case.path(name), "-o", case.path(out), clean=False)
    assert done.code == code, done
    return done


def read(case, out="report.html"):
    with open(case.path(out), "rb") as file:
        raw = file.read()
    text = raw.decode()  # strict: valid UTF-8
    assert len(raw) < BYTES_MAX, len(raw)
    page = Page(text)
    assert page.loads == [], page.loads
    assert "\u2028" not in page.data and "<" not in page.data
    document = json.loads(page.data)
    assert document["schema"] == "upgate.report/1", document["schema"]
    return document, page


def make(case, *scripts, name="run.db"):
    path = case.path(name)
    db = sqlite3.connect(path)
    for part in ("contracts/schema.sql", *("tests/golden/%s.sql" % script for script in scripts)):
        with open(os.path.join(SOURCE, part), encoding="utf-8") as file:
            db.executescript(file.read())
    db.close()
    return path


def change(path, *statements):
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(*statement) if isinstance(statement, tuple) else db.execute(statement)
    db.commit()
    db.close()


def events(timeline):
    return sum(len(lane["start"]) for side in timeline["sides"] if side for lane in side["lanes"])


def check_timeline(timeline):
    """Columns of one length, indexes inside, events inside of the window and in order."""
    names, classes, notes = timeline["names"], timeline["classes"], timeline.get("notes") or []
    assert len(timeline["name_class"]) == len(names) == len(timeline["name_contribution"])
    assert all(0 <= index < len(classes) for index in timeline["name_class"])
    for side in filter(None, timeline["sides"]):
        for lane in side["lanes"]:
            at = 0
            for column in ("dur", "name", "depth", "note"):
                assert column not in lane or len(lane[column]) == len(lane["start"]), (lane["title"], column)
            for index, delta in enumerate(lane["start"]):
                at += delta
                assert delta >= 0 and 0 <= at and at + lane["dur"][index] <= side["span_ns"], (lane["title"], index)
            assert all(0 <= index < len(names) for index in lane["name"])
            assert all(-1 <= index < len(notes) for index in lane.get("note", []))
    last = (-1, -1)
    for pair in timeline["aligned"]:
        assert pair[0] > last[0] and pair[1] > last[1], timeline["aligned"]
        last = pair


def check_flame(flame):
    size = len(flame["parent"])
    assert flame["parent"][0] == -1 and all(0 <= up < index for index, up in enumerate(flame["parent"]) if index)
    assert len(flame["name"]) == len(flame["kind"]) == size and max(flame["name"]) < len(flame["names"])
    for side in ("a", "b"):
        assert flame[side] is None or (len(flame[side]) == size and min(flame[side]) >= 0)
    assert sum(flame["a"] or [0]) + sum(flame["b"] or [0]) > 0


def check_diff(case, document, name="run.db"):
    """The numbers of the page are those of `upgate diff`."""
    done = case.run("diff", case.path(name), "--format", "json", clean=False)
    assert done.code == 0, done
    want = {item["workload"]: item for item in json.loads(done.out)["workloads"]}
    for workload in document["workloads"]:
        diff, other = workload["diff"], want[workload["name"]]
        assert diff["unexplained"] == other["unexplained"], (diff["unexplained"], other["unexplained"])
        for key in ("step_a_ns", "step_b_ns", "delta_ns", "residual_ns"):
            assert diff[key] == other[key], key
        if diff["unexplained"]:
            continue
        assert len(diff["contributions"]) == min(200, len(other["contributions"]))
        for mine, theirs in zip(diff["contributions"], other["contributions"]):
            for key in ("rank", "kind", "title", "delta_ns", "named"):
                assert mine[key] == theirs[key], (key, mine, theirs)
            assert (mine["ci_ns"] or [None, None]) == theirs["ci_ns"], (mine, theirs)  # none: one traced pair
        total = sum(item["delta_ns"] for item in other["contributions"]) + diff["residual_ns"]
        assert abs(total - diff["delta_ns"]) <= len(other["contributions"]) + 1, (total, diff["delta_ns"])
        for side, step in (("a_ns", "step_a_ns"), ("b_ns", "step_b_ns")):
            parts = sum(part[side] for part in diff["parts"])
            assert abs(parts - diff[step]) <= 0.01 * diff[step], (parts, diff[step])  # the residual may be 1 %
    return want


def test_gpu_store(case):
    answer = diff_store.write("kernel_slower", case.path("run.db"), host=True)
    report(case)
    document, page = read(case)
    workload = document["workloads"][0]
    check_diff(case, document)
    first = workload["diff"]["contributions"][0]
    assert re.search(answer.name, first["name_a"]) and first["kind"] in answer.kinds, first
    db = sqlite3.connect(case.path("run.db"))
    points = {(row[0], round(row[1], 6)) for row in
              db.execute("SELECT pair, ratio FROM v_pair WHERE metric = 'step_time' AND phase = 'main' AND state = 'valid'")}
    cell = next(cell for cell in workload["cells"] if cell["metric"] == "step_time")
    assert {(point[0], round(point[1], 6)) for point in cell["points"]} == points and points
    timeline = workload["timeline"]
    check_timeline(timeline)
    for flame in workload["flames"]:
        check_flame(flame)
    assert {flame["id"] for flame in workload["flames"]} == {"cpu", "off_cpu"}
    # Every GPU operation of the couple's windows is drawn, and the slower kernel is marked as the first contribution's.
    streams = [lane for side in timeline["sides"] for lane in side["lanes"] if lane["kind"] == "stream"]
    assert timeline["left_out"] == 0 and len(streams) >= 2
    marked = [name for name, rank in zip(timeline["names"], timeline["name_contribution"]) if rank == 1]
    assert any(re.search(answer.name, name) for name in marked), marked
    titles = {side["lanes"][0]["kind"] for side in timeline["sides"]}
    assert titles == {"phase"} and len(timeline["aligned"]) > 4
    assert {item["id"] for item in document["how"]} >= {"verdict", "cells", "pairs", "waterfall", "decomposition", "contributions",
                                                          "timeline", "table", "flames", "fingerprint", "stragglers", "first", "parity", "trust", "steps"}
    assert document["fingerprint"] and document["fingerprint"][0]["name"] and len(workload["stalls"]) == 8  # four launches a side
    assert "old" in page.title and "fail" in page.title
    # The same store gives the same file, byte for byte.
    report(case, out="again.html")
    with open(case.path("report.html"), "rb") as one, open(case.path("again.html"), "rb") as two:
        assert one.read() == two.read()


def test_two_ranks(case):
    diff_store.write("straggler", case.path("run.db"), host=True)
    report(case)
    document, _ = read(case)
    check_diff(case, document)
    timeline = document["workloads"][0]["timeline"]
    check_timeline(timeline)
    titles = [lane["title"] for lane in timeline["sides"][1]["lanes"]]
    assert any("rank 0" in title for title in titles) and any("rank 1" in title for title in titles), titles
    assert document["workloads"][0]["diff"]["stragglers"], "nobody came last"
    collectives = document["workloads"][0]["diff"]["collectives"]
    assert collectives["answer"].startswith("NCCL 2.20.5 -> 2.25.1: ") and collectives["kinds"][0]["name"] == "AllReduce f32", collectives
    assert document["workloads"][0]["diff"]["late"].startswith("Rank 1 arrives last at "), document["workloads"][0]["diff"]["late"]


def typical(rows, couples):
    """(traced pair, couple or None) whose steps are nearest to the medians of both sides; rows: pair, couple, side, ns a step."""
    medians = [statistics.median(ns for _, _, of, ns in rows if of == side) for side in (0, 1)]
    far = {}
    for pair, couple, side, ns in rows:
        distance = abs(math.log(ns / medians[side]))
        key = (pair, couple if couples else None)
        sides = far.setdefault(key, [math.inf, math.inf])
        sides[side] = min(sides[side], distance)
    return min(far, key=lambda key: sum(far[key])), medians


def test_typical_steps(case):
    """The timeline shows the couple nearest to the medians, of whichever pair; without turns the step nearest to it."""
    diff_store.write("kernel_slower", case.path("run.db"), pairs=4, traced=3, couples=6, seed=3)
    db = sqlite3.connect(case.path("run.db"))
    # The first pair is untypical: all of its steps take longer. A step of the others is no outlier.
    db.execute("UPDATE step SET dur_ns = dur_ns * 6 / 5 WHERE launch_id IN (SELECT l.id FROM launch l JOIN pair p ON p.id = l.pair_id AND "
               "p.phase = 'traced' AND p.idx = 0)")
    db.commit()
    # A block lasts from its first step's begin to its last one's end; the first block is cold.
    rows = db.execute("SELECT p.idx, b.couple, b.side, 1.0 * (max(s.begin_ns + s.dur_ns) - min(s.begin_ns)) / count(*) FROM pair p JOIN block b "
                      "ON b.pair_id = p.id AND b.couple > 0 JOIN launch l ON l.pair_id = p.id AND l.side = b.side JOIN step s ON "
                      "s.launch_id = l.id AND s.idx BETWEEN b.first_step AND b.first_step + b.steps - 1 WHERE p.phase = 'traced' "
                      "GROUP BY p.idx, b.couple, b.side").fetchall()
    db.close()
    (pair, couple), _ = typical(rows, True)
    report(case)
    title = read(case)[0]["workloads"][0]["timeline"]["title"]
    assert f"traced pair {pair}, couple {couple} of their blocks; the one nearest to the medians of the traced steps: " in title, (title, pair, couple)
    db = sqlite3.connect(case.path("run.db"))
    db.execute("DELETE FROM block")
    db.commit()
    db.close()
    report(case)
    title = read(case)[0]["workloads"][0]["timeline"]["title"]
    assert "couple" not in title and "traced pair 0" not in title, title
    shown, median = re.search(r"traced steps: (.*), medians (.*)$", title).groups()
    for one, other in zip(shown.split(" and "), median.split(" and ")):
        assert abs(float(one.split()[0]) / float(other.split()[0]) - 1) < 0.05, title


def test_first_step(case):
    diff_store.write("cold_start", case.path("run.db"), pairs=4, couples=4)
    report(case)
    document, _ = read(case)
    part, = document["workloads"][0]["diff"]["first_step"]["contributions"]
    assert part["label"] == "cuLibraryLoadData" and len(part["launches_ns"]["b"]) == 4, part


def test_without_traces(case):
    make(case, "base", "calibrated", "fail")
    report(case)
    document, page = read(case)
    assert document["verdict"]["word"] == "fail" and page.title.startswith("upgate: fail"), page.title
    verdict = json.loads(case.run("report", case.path("run.db"), "--format", "json", clean=False).out)
    cells = [(workload["name"], cell["metric"], cell["verdict"]) for workload in document["workloads"] for cell in workload["cells"]]
    assert sorted(cells) == sorted((cell["workload"], cell["metric"], cell["verdict"]) for cell in verdict["cells"])
    ranks = {"fail": 0, "inconclusive": 1, "pass": 2, "unchecked": 3, None: 4}
    order = [ranks[workload["verdict"]] for workload in document["workloads"]]
    assert order == sorted(order), order
    for workload in document["workloads"]:
        assert workload["diff"]["unexplained"], workload["name"]
        assert workload.get("timeline") is None and not workload.get("flames") and not workload["stalls"]
    golden = os.path.join(SOURCE, "tests/golden/fail_html.json")
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("UPGATE_GOLDEN_UPDATE") == "1":
        with open(golden, "w", encoding="utf-8") as file:
            file.write(text)
    with open(golden, encoding="utf-8") as file:
        assert file.read() == text, "differs from %s; UPGATE_GOLDEN_UPDATE=1 rewrites it" % golden


def times(launch):
    """The slowest step of each column of a launch of the strip: (number of the step, ns)."""
    numbers = launch["numbers"]
    for column, most in enumerate(launch["most"]):
        place = column * launch["width"] + (launch["at"][column] if launch["width"] > 1 else 0)
        base = [item for item in numbers if item[0] <= place][-1]
        yield base[1] + place - base[0], most * launch["unit_ns"]


def test_all_steps(case):
    """Every step of the pairs that were judged is in the page, with blocks, warm-up and what stands out."""
    path = make(case, "base", "calibrated", "slow")
    # Of two ranks the slower one counts; a void pair and one of another phase are not shown.
    change(path, "INSERT INTO step (launch_id, rank, idx, begin_ns, dur_ns) SELECT launch_id, 1, idx, begin_ns, dur_ns / 2 FROM step",
           "UPDATE step SET dur_ns = 7770000 WHERE rank = 1 AND idx = 100 AND launch_id = (SELECT min(launch_id) FROM step)",
           "UPDATE pair SET state = 'void' WHERE idx = 8", "UPDATE pair SET phase = 'confirm' WHERE idx = 9")
    report(case)
    document, _ = read(case)
    workload = next(workload for workload in document["workloads"] if workload["name"] == "dlrm-train")
    steps, db = workload["steps"], sqlite3.connect(path)
    want = {}
    for pair, side, idx, ns in db.execute("SELECT pair, side, step, max(dur_ns) FROM v_step WHERE workload = 'dlrm-train' AND phase = 'main' AND launch IN "
                                          "(SELECT l.id FROM launch l JOIN pair p ON p.id = l.pair_id AND p.state = 'valid') GROUP BY 1, 2, 3"):
        want[pair, side, idx] = ns
    got = {(launch["pair"], launch["side"], idx): ns for launch in steps["launches"] for idx, ns in times(launch)}
    assert len(want) == 8 * 2 * 200 and got.keys() == want.keys(), (len(got), len(want))
    assert all(abs(got[key] / want[key] - 1) < 1e-3 for key in want)
    assert got[0, "a", 100] == 7770000, got[0, "a", 100]
    a, b = steps["sides"]
    assert (a["launches"], a["steps"], a["marked"], a["slow_ns"], a["slowest_ns"]) == (8, 1600, 1, 7770000, 7770000), a
    assert (b["steps"], b["marked"], b["slow"], b["slow_ns"]) == (1600, 6, 6, 250000000), b
    assert all(launch["from"] == 5 and launch["blocks"] == [[0, 1, 1], [1, 20, 9], [181, 19, 1]] for launch in steps["launches"])
    assert all(workload["steps"] is None for workload in document["workloads"] if workload["name"] != "dlrm-train")
    cells = {cell["metric"]: cell for cell in workload["cells"]}
    assert cells["slow_steps"]["unit"] == "ratio" and cells["slow_steps"]["reason"].endswith("250 ms each, every 250th"), cells["slow_steps"]
    assert [cell["metric"] for cell in workload["cells"]][:4] == ["mean_step_time", "slow_steps", "throughput", "step_time"]


def test_steps_are_reduced(case):
    """28 pairs of 400 steps of 4 workloads: a few hundred KB, and the slowest of every stretch is still there; a launch of 100,000 steps too."""
    path = make(case, "base", "calibrated", "fail")
    change(path, "DELETE FROM ledger", "DELETE FROM launch", "DELETE FROM pair",
           "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 27) INSERT INTO pair (workload_id, idx, phase, seed, first_side, interleave, steps, "
           "state, started_ns, ended_ns) SELECT w.id, i, 'main', i, 0, 'steps', 400, 'valid', 0, 1 FROM workload w, n",
           "INSERT INTO launch (pair_id, side, state, started_ns, ended_ns, steps, ranks, covariates) SELECT p.id, s.id, 'ok', 0, 1, 400, 1, '{}' FROM pair p, side s",
           "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 399) INSERT INTO step (launch_id, rank, idx, begin_ns, dur_ns) "
           "SELECT l.id, 0, i, 0, CASE WHEN (l.id * 400 + i) % 250 = 249 THEN 250000000 ELSE 1000000 + (i * 7919 + l.id * 31) % 60000 END FROM launch l, n")
    report(case)
    document, _ = read(case)
    size = len(json.dumps([workload["steps"] for workload in document["workloads"]], separators=(",", ":")))
    assert 100_000 < size < 300_000, size
    db, slow = sqlite3.connect(path), set()
    for workload in document["workloads"]:
        assert len(workload["steps"]["launches"]) == 56 and workload["steps"]["left_out"] == 0
        for launch in workload["steps"]["launches"]:
            columns = math.ceil(launch["steps"] / launch["width"])
            assert launch["width"] > 1 and all(len(launch[key]) == columns for key in ("least", "middle", "most", "at")), launch["width"]
            slow |= {(workload["name"], launch["pair"], launch["side"], idx) for idx, ns in times(launch) if ns == 250000000}
    want = set(db.execute("SELECT workload, pair, side, step FROM v_step WHERE dur_ns = 250000000"))
    assert slow == want and len(want) == 359, (len(slow), len(want))
    change(path, "DELETE FROM step WHERE idx > 0 OR launch_id NOT IN (SELECT id FROM launch WHERE pair_id = 1)",
           "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 99999) INSERT INTO step (launch_id, rank, idx, begin_ns, dur_ns) "
           "SELECT l.id, 0, i, 0, CASE WHEN i = 77777 THEN 250000000 ELSE 1000000 + i * 7919 % 60000 END FROM launch l, n WHERE l.pair_id = 1")
    report(case)
    document, _ = read(case)
    steps = next(workload["steps"] for workload in document["workloads"] if workload["steps"])
    assert len(json.dumps(steps, separators=(",", ":"))) < 100_000
    for launch in steps["launches"]:
        assert launch["steps"] == 100_000 and (77777, 250000000) in times(launch) and launch["marked"] == 1, launch["marked"]


def test_hostile_names(case):
    make(case, "base", "escape")
    report(case)
    document, page = read(case)
    assert any(workload["name"] == "<script>alert(1)</script>|x" for workload in document["workloads"])
    assert document["verdict"]["reason"].startswith("<script>alert(1)</script>")
    assert "<script>" not in page.title
    outputs = [finding["output"] for finding in document["findings"] if finding.get("output")]
    assert any("::error::injected\n</details><b>" in output for output in outputs) and not any("\x1b" in output for output in outputs), outputs
    # Names of kernels and threads.
    diff_store.write("kernel_slower", case.path("gpu.db"), host=True)
    long_name = "k" * 65536
    change(case.path("gpu.db"),
           ("UPDATE gpu_kernel SET name = ? WHERE name LIKE '%softmax_warp_forward%'", ("</script><!--<script>\u2028\u2029\"'&\n" + long_name,)),
           "UPDATE gpu_kernel SET name = CAST(x'ff3cfe' AS TEXT) || name WHERE name LIKE '%GeluFunctor%'",
           ("UPDATE thread SET comm = ?", ("</script><b>\u202e",)), "UPDATE frame SET name = '<img src=x onerror=alert(1)>' WHERE id = 3",
           "UPDATE workload SET name = '--></script><svg onload=alert(1)>'")
    report(case, "gpu.db")
    document, _ = read(case)
    names = document["workloads"][0]["timeline"]["names"]
    cut = [name for name in names if name.startswith("</script><!--<script>\u2028\u2029")]
    assert len(cut) == 1 and len(cut[0]) < 400, cut
    assert re.search(r"\(65\d\d\d bytes\)$", cut[0]), cut[0][-40:]
    assert any("\ufffd<" in name for name in names), "what is no UTF-8 is shown as such"


def test_recording(case):
    """`upgate record` judges nothing: stalls, flame graphs and a timeline of the one side there is."""
    diff_store.write("host_stall", case.path("run.db"), host=True)
    change(case.path("run.db"), "UPDATE run SET kind = 'record'", "DELETE FROM verdict", "UPDATE recording SET launch_id = NULL",
           "DELETE FROM recording WHERE id > 2")
    report(case)
    document, _ = read(case)
    assert document["verdict"]["word"] is None and len(document["workloads"]) == 2
    for workload in document["workloads"]:
        assert not workload.get("cells") and not workload.get("diff") and workload["stalls"][0]["items"]
        check_timeline(workload["timeline"])
        assert workload["timeline"]["sides"][1] is None
        for flame in workload["flames"]:
            check_flame(flame)
            assert flame["b"] is None
    report(case, code=4, out="report.json")  # a verdict is what the other forms are made of


def test_limits(case):
    """220,000 operations more in a couple of blocks: the page draws 200,000 events at most, says so, and keeps its size."""
    diff_store.write("kernel_slower", case.path("run.db"), traced=1, couples=2)
    db = sqlite3.connect(case.path("run.db"))
    works = dict(db.execute("SELECT l.side, min(w.id) FROM gpu_work w JOIN gpu_stream s ON s.id = w.stream_id JOIN process p ON p.id = s.process_id "
                            "JOIN recording r ON r.id = p.recording_id JOIN launch l ON l.id = r.launch_id WHERE w.kernel_id NOTNULL GROUP BY 1").fetchall())
    for side, begin, length in db.execute("SELECT b.side, b.begin_ns, b.active_ns FROM block b JOIN pair p ON p.id = b.pair_id "
                                    "WHERE p.phase = 'traced' AND b.couple > 0").fetchall():
        db.execute("WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 109999) "
                   "INSERT INTO gpu_op (start_ns, dur_ns, work_id, correlation, call_ns, call_dur_ns) "
                   "SELECT ? + i * ? / 110000, ? / 300000, ?, 0, NULL, NULL FROM n", (begin, length, length, works[side]))
    db.commit()
    db.close()
    report(case)
    document, _ = read(case)
    timeline = document["workloads"][0]["timeline"]
    check_timeline(timeline)
    assert 1000 < events(timeline) <= EVENTS_MAX, events(timeline)
    assert timeline["left_out"] > 20_000, timeline["left_out"]
    assert any(re.match(r"\d+ short events", note) for note in timeline["notes"])


def test_refusals(case):
    """A sentence, the right code, and no half-written file."""
    make(case, "base")
    make(case, name="empty.db")
    make(case, "base", "calibrated", "pass", name="judged.db")
    with open(case.path("judged.db"), "rb") as file:
        whole = file.read()
    with open(case.path("cut.db"), "wb") as file:
        file.write(whole[:len(whole) // 2])
    with open(case.path("text.db"), "w") as file:
        file.write("no store at all\n" * 100)
    for name, code, words in (("run.db", 4, "has no verdict yet"), ("empty.db", 4, "no run was recorded"), ("text.db", 2, "not a store")):
        done = report(case, name, code)
        assert words in done.err, done
    done = case.run("report", case.path("cut.db"), "-o", case.path("report.html"), clean=False)
    assert done.code in (2, 4) and done.err, done
    done = case.run("report", case.path("judged.db"), "-o", case.path("none/report.html"), clean=False)
    assert done.code == 4 and "No such file" in done.err, done
    assert not [name for name in os.listdir(case.dir) if name.startswith("report.html")], os.listdir(case.dir)
    done = case.run("report", case.path("judged.db"), "-o", case.path("report.html"), "--dry-run", clean=False)
    assert done.code == 0 and not os.path.exists(case.path("report.html")), done


def test_real_run(case):
    """`upgate ab` of a native model with one traced pair, as root: everything a CPU run has is in the page."""
    case.plan({"model": "dlrm", "steps": 60, "size": "small"}, traced_launches=1)
    done = case.run(timeout=120)
    assert done.code in (0, 1, 3), done
    for line in done.err.splitlines():
        if "launches are not traced" in line:
            raise ab_rig.Skip(line)
    report(case, case.db_path)
    document, _ = read(case)
    check_diff(case, document, case.db_path)
    workload = document["workloads"][0]
    assert all(list(times(launch)) for launch in workload["steps"]["launches"]) and workload["steps"]["sides"][0]["steps"] > 60, workload["steps"]["sides"]
    assert workload["stalls"] and {entry["side"] for entry in workload["stalls"]} == {"a", "b"}
    if not workload["diff"]["unexplained"]:
        check_timeline(workload["timeline"])
        assert [flame for flame in workload["flames"] if flame["id"] == "cpu"]
        for flame in workload["flames"]:
            check_flame(flame)


def test_chromium(case):
    """Every kind of report opens, draws its parts, says nothing on the console and asks for nothing."""
    program = browser.find()
    if not program:
        raise ab_rig.Skip("no chromium")
    diff_store.write("kernel_replaced", case.path("gpu.db"), host=True)
    make(case, "base", "calibrated", "fail", name="judged.db")
    make(case, "base", "escape", name="escape.db")
    make(case, "base", "calibrated", "slow", name="slow.db")
    diff_store.write("host_stall", case.path("record.db"), host=True)
    change(case.path("record.db"), "UPDATE run SET kind = 'record'", "DELETE FROM verdict", "UPDATE recording SET launch_id = NULL",
           "DELETE FROM recording WHERE id > 1")
    parts = {"gpu": ("#w0-cells svg.pairs", "#w0-waterfall", "#w0-contributions", "#w0-timeline canvas", "#w0-table table", "#w0-flame0", "#w0-flame1"),
             "judged": ("#w0-cells svg.pairs", ".unexplained"), "escape": ("h1",), "slow": (".cause-steps", "#w0-steps table.claims", "#w0-steps svg.strip circle.slow"), "record": ("#w0-timeline canvas", "#w0-flame0")}
    with browser.Browser(program) as page:
        page.size(1280, 900)
        for name, selectors in parts.items():
            report(case, name + ".db", out=name + ".html")
            page.open(case.path(name + ".html"))
            page.eval("UP.ensureIn(document.body)")
            page.eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
            missing = [selector for selector in selectors if not page.eval("document.querySelector(%r) !== null" % selector)]
            assert not missing, (name, missing)
            assert not page.errors, (name, page.errors[:3])
            assert all(url.startswith(("file:", "data:")) for url in page.requests), page.requests
            assert page.eval("document.querySelectorAll('body script:not([type]) ~ b, img[src=x], svg[onload]').length") == 0, name


def built_with_the_page():
    with tempfile.TemporaryDirectory(prefix="upgate-html-") as directory:
        path = os.path.join(directory, "run.db")
        diff_store.write("aa", path, traced=0)
        done = subprocess.run([UPGATE, "report", path, "-o", path + ".html"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return "built without the page" not in done.stderr


if __name__ == "__main__":
    if not built_with_the_page():
        print("skipped: this upgate was built without the page of the HTML report")
        sys.exit(77)
    ab_rig.main(globals(), certificates=False)
