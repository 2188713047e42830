#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`upgate diff` on stores that were made with a known difference (diff_store.py): each plant is named first and with its size, equal
sides name nothing, renamed kernels lose nothing but their names; bad input ends in the right exit code and a sentence, and
leaves no half-written file."""
import concurrent.futures
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import diff_store  # noqa: E402
import diff_store_model  # noqa: E402

UPGATE = os.path.abspath(os.path.join(os.environ.get("UPGATE_BUILD", "build/release"), "upgate"))
SOURCE = os.environ.get("UPGATE_SOURCE", os.getcwd())
WORK = tempfile.mkdtemp(prefix="upgate-diff-")
ENV = {k: v for k, v in os.environ.items() if not k.startswith("UPGATE_")}

# What the host did is not to be seen without its side.
NEEDS_HOST = {"host_stall", "recompile", "data_wait", "python_overhead", "memory_alloc", "straggler"}
# NCCL's kernels are known by their names.
NEEDS_NAMES = {"allreduce_slower", "allreduce_beside", "straggler", "hidden_kernel"}


def run(*args, code=0):
    result = subprocess.run([UPGATE, "diff", *args], capture_output=True, text=True, errors="replace", env=ENV, cwd=WORK,
                            timeout=120)
    assert result.returncode == code, (args, result.returncode, result.stdout[-2000:], result.stderr[-2000:])
    assert "Sanitizer" not in result.stderr, result.stderr
    return result


def path(name):
    return os.path.join(WORK, name)


def document(store, *args):
    workload, = json.loads(run(store, "--format", "json", *args).stdout)["workloads"]
    return workload


def same_size(found, answer, step):
    """Of several contributions that make one plant, all count."""
    return abs(found - answer.delta_ns) <= max(0.2 * abs(answer.delta_ns), 0.005 * step)


def check_sums(workload):
    step, delta = workload["step_a_ns"], workload["delta_ns"]
    total = sum(c["delta_ns"] for c in workload["contributions"])
    assert abs(total + workload["residual_ns"] - delta) <= 2 + len(workload["contributions"]), (total, delta)
    assert abs(workload["residual_ns"]) <= 0.01 * step, workload["residual_ns"]
    parts = workload["decomposition"].values()
    assert abs(sum(a for a, _ in parts) - step) <= 0.01 * step, workload["decomposition"]
    assert [c["rank"] for c in workload["contributions"]] == list(range(1, len(workload["contributions"]) + 1))


def check_plant(name, host, names):
    store = f"{name}-{names}.db"
    answer = diff_store.write(name, path(store), host=host, names=names, pairs=5, couples=6)
    workload = document(store)
    os.remove(path(store))
    check_sums(workload)
    named = [c for c in workload["contributions"] if c["named"]]
    late = workload["late"] or ""  # who comes late is said first, and only of who does
    assert bool(late) == (name == "straggler"), (name, late, workload["stragglers"])
    assert not late or re.match(r"Rank 1 arrives last at .* collectives, by .*: function slow_on_this_rank, ", late), late
    told = [(one["side"], one["rank"]) for one in workload["stragglers"] if one["told"]]
    assert told == ([("b", 1)] if name == "straggler" else []), (name, workload["stragglers"])
    if answer.silent:
        assert not named, (name, named[:3])
        return
    assert named, (name, workload["contributions"][:3])
    top = named[0]
    kinds = set(answer.kinds)
    if names == "scrambled":  # another name is another kernel
        kinds |= {"kernel_replaced"} if "kernel_slower" in kinds else set()
        kinds |= {"kernel_added"} if "kernel_replaced" in kinds else set()
    text = " ".join(str(top[key]) for key in ("name_a", "name_b", "label"))
    assert top["kind"] in kinds, (name, host, names, top)
    assert re.search(answer.name, text) and answer.where in top["where"], (name, host, names, top)
    assert top["ci_ns"][0] <= top["delta_ns"] <= top["ci_ns"][1], top
    assert top["delta_ns"] * answer.delta_ns > 0, top
    alike = sum(c["delta_ns"] for c in named)
    # Without their graph the kernels' noise is wide: what they gain is not named.
    assert name == "graph_lost" or same_size(alike, answer, workload["step_a_ns"]), (name, alike, answer.delta_ns)
    for one in named:
        assert not answer.never or not re.search(answer.never, str(one["label"])), (name, one)
        assert one["evidence"], one
    check_beside(name, top)
    check_collectives(name, workload)
    for kind, pattern in answer.more:
        assert any(c["kind"] == kind and re.search(pattern, f"{c['name_a']} {c['name_b']}") for c in named) or \
            names == "scrambled", (name, kind, pattern)


def check_beside(name, top):
    """A kernel that is slower by what runs beside it: said so, with what that is, and its library is the suspect."""
    assert bool(top.get("beside_cause")) == (name == "allreduce_beside"), (name, top)
    if name != "allreduce_beside":
        return
    assert top["beside_cause"] == "AllReduce f32 / Ring Simple", top
    shares = {one["name"]: (one["share_a"], one["share_b"]) for one in top["beside"] if one["collective"]}
    assert set(shares) == {"AllReduce f32 / Ring LL128", "AllReduce f32 / Ring Simple"}, shares
    assert shares["AllReduce f32 / Ring Simple"][0] == 0 < 0.5 < shares["AllReduce f32 / Ring Simple"][1] < 1, shares
    assert any(text.startswith("beside it on the same device: a: AllReduce f32 / Ring LL128 ") for text in top["evidence"]), top
    assert any(text.startswith("others ran beside 7") and "the kernel is the same" in text for text in top["evidence"]), top
    assert any("NCCL" in text and text.endswith(": the collective beside it") for text in top["suspects"]), top


def check_collectives(name, workload):
    """All of both sides, summed up: how they were done, how long they took, and how much of it nothing hid."""
    if "allreduce" not in name:
        return
    assert (workload["collectives"]["nccl_a"], workload["collectives"]["nccl_b"]) == ("2.20.5", "2.25.1"), workload["collectives"]
    kind, = workload["collectives"]["kinds"]
    assert (kind["name"], kind["size"], kind["how_a"]) == ("AllReduce f32", "1 to 16 MiB", "Ring LL128"), kind
    assert kind["how_b"] == ("Tree Simple" if name == "allreduce_slower" else "Ring Simple"), kind
    assert kind["count_a"] == kind["count_b"] == diff_store_model.LAYERS, kind
    assert 0.9 < kind["busy_a_ns"] / (diff_store_model.LAYERS * 260e3) < 1.3, kind
    low, high = (2.2, 2.8) if name == "allreduce_slower" else (1.05, 1.3)
    assert low < kind["busy_b_ns"] / kind["busy_a_ns"] < high, kind
    for side, index in (("a", 0), ("b", 1)):
        exposed = workload["decomposition"]["comm_exposed"][index]
        assert abs(kind[f"exposed_{side}_ns"] - exposed) <= 2, (kind, exposed)


def check_all(plants):
    """On two CPUs: most of the time goes into making the stores."""
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        for done in [pool.submit(check_plant, *plant) for plant in plants]:
            done.result()


def test_plants():
    check_all([(name, name in NEEDS_HOST, "plain") for name in diff_store.PLANTS])


def test_plants_scrambled():
    names = ("aa", "kernel_slower", "kernel_replaced", "kernel_split", "memory_alloc", "clock_drop")
    assert not NEEDS_NAMES & set(names)
    check_all([(name, True, "scrambled") for name in names])


def test_equal_sides_stay_silent():
    for seed in (2, 3):
        diff_store.write("aa", path("aa.db"), seed=seed, host=True)
        assert not [c for c in document("aa.db")["contributions"] if c["named"]], seed
    assert "Nothing stands out" in run("aa.db").stdout


def test_few_launches():
    """Two traced launches a side tell less than four, and say so; one tells nothing."""
    named, few, notes = {}, {}, {}
    for traced in (1, 2, 4):
        diff_store.write("kernel_slower", path("few.db"), seed=4, noise="kernels-2", strength=0.012, traced=traced)
        workload = document("few.db")
        check_sums(workload)
        softmax, = [c for c in workload["contributions"] if "softmax_warp_backward" in c["label"]]
        named[traced], notes[traced] = softmax["named"], workload["notes"]
        few[traced] = any(text == f"too few traced launches to tell: {traced} of each side" for text in softmax["evidence"])
    assert named == {1: False, 2: False, 4: True} and few == {1: True, 2: True, 4: False}, (named, few)
    assert any("too few traced launches to tell, 2 of each side; traced_launches: 4" in note for note in notes[2]), notes[2]
    assert any("nothing is told from it; traced_launches: 4" in note for note in notes[1]), notes[1]


def test_noise_of_launches():
    """Equal sides whose launches differ from each other name nothing. How often: ci/bench/diff_plants.py --noise all."""
    for noise in diff_store.KINDS:
        for traced in (2, 4):
            diff_store.write("aa_host", path("aa.db"), seed=4, host=True, noise=noise, traced=traced, couples=6)
            assert not [c for c in document("aa.db")["contributions"] if c["named"]], (noise, traced)


def test_first_step():
    """A library that is loaded in the first step: told with the launches' values, and in no contribution of the steps."""
    for host in (False, True):
        diff_store.write("cold_start", path("first.db"), host=host, pairs=5, couples=6)
        workload = document("first.db")
        check_sums(workload)
        first = workload["first_step"]
        part, = first["contributions"]
        assert part["kind"] == "cold_start" and "cuLibraryLoadData" in part["label"] and part["where"] == "forward", part
        assert part["launches_ns"]["a"] == [0] * 4 and all(55e6 < ns < 65e6 for ns in part["launches_ns"]["b"]), part
        assert abs(part["delta_ns"] - (first["b_ns"] - first["a_ns"])) < 2e6 and part["ci_ns"] == [None, None], (part, first)
        grown = {phase["name"] for phase in first["phases"] if phase["b_ns"] - phase["a_ns"] > 1e6}
        assert grown == {"forward"}, first["phases"]
        table = run("first.db").stdout
        assert "Slower first use: cuLibraryLoadData" in table.split("what the step was spent on")[0], table
        assert "(a 0, 0, 0, 0; b " in table, table
    # Nothing of the first step is in the traces of one side.
    change("unseen.db", "first.db", "DELETE FROM step WHERE idx = 0 AND launch_id IN (SELECT l.id FROM launch l JOIN pair p ON "
           "p.id = l.pair_id WHERE p.phase = 'traced' AND l.side = 0)")
    unseen = document("unseen.db")
    assert not unseen["first_step"]["contributions"] and any("not in the traces" in note for note in unseen["notes"]), unseen["notes"]
    # What all steps spend more on is explained there alone.
    diff_store.write("kernel_slower", path("all.db"), pairs=5, couples=6)
    assert document("all.db")["first_step"]["contributions"] == []


def fails(store, metric, ratio=1.4):
    """The gate's word on a metric, as it would stand in the store beside a median step that is as before; what `upgate diff` makes of it."""
    db = sqlite3.connect(path(store))
    db.execute("UPDATE cell SET verdict = 'pass' WHERE metric = 'step_time'")
    db.execute("INSERT INTO cell (workload, metric, unit, direction, gating, median_a, median_b, ratio, ci_lower, ci_upper, margin, alpha, pairs, "
               "look, verdict, improved, reason) VALUES ('train', ?, 'ns', 'lower', 1, 1e9, ?, ?, ?, ?, 0.02, 0.01, 10, 1, 'fail', 0, '')",
               (metric, 1e9 * ratio, ratio, ratio - 0.1, ratio + 0.1))
    db.commit()
    db.close()
    return document(store)[metric]


def test_slow_steps():
    """A checkpoint in each 12th step of the candidate: told as what its slow blocks have that the others have not, launch by launch."""
    save = diff_store_model.Op("host", "save_state", 40 * diff_store_model.MS, None, "optimizer", python=("save_checkpoint",), steps=tuple(range(10, 60, 12)))
    diff_store.PLANTS["rare_save"] = (lambda step: step + [save], (), "", "", diff_store_model.model, 1, {"silent": True})
    try:
        diff_store.write("rare_save", path("slow.db"), host=True, pairs=5, couples=14)
    finally:
        del diff_store.PLANTS["rare_save"]
    slow = fails("slow.db", "slow_steps")
    assert slow["metric"] == "slow_steps" and slow["failed"] and not slow["tail"] and slow["why_not"] is None, slow
    assert slow["slow"]["a"] == 0 < slow["slow"]["b"] <= 4 * 4, slow
    assert slow["contributions"] and "save_checkpoint" in slow["where"], slow
    # 40 ms in each 12th step, of which the device hides what it had in its queue.
    assert 0.5 * 40e6 / 12 < slow["b_ns"] - slow["a_ns"] < 1.5 * 40e6 / 12, slow
    top = slow["contributions"][0]
    assert top["share"] > 0.7 and top["ci_ns"] == [None, None], top
    assert len(top["launches_ns"]["b"]) == 4 and min(top["launches_ns"]["b"]) > max(top["launches_ns"]["a"]), top
    table = run("slow.db").stdout
    assert table.startswith("train: slow steps take ") and "save_checkpoint" in table.split("train: step")[0], table
    diff_store.write("aa", path("even.db"), host=True, pairs=5, couples=8)
    even = fails("even.db", "slow_steps")
    assert not even["contributions"] and even["why_not"].startswith("the traced launches had no slow steps: none of "), even


def members(value):
    """All names of a document but those of the decomposition, which are the classes."""
    if isinstance(value, list):
        return set().union(*map(members, value))
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(members(item) for name, item in value.items() if name != "decomposition"))


def test_document_is_described():
    """docs/SCHEMA.md has every member: scripts rely on them."""
    text = open(os.path.join(SOURCE, "docs/SCHEMA.md")).read()
    described = set(re.findall(r"\w+", text.split("upgate.diff/1     {", 1)[1].split("```", 1)[0]))
    found = set()
    for plant in ("allreduce_beside", "straggler", "cold_start"):
        diff_store.write(plant, path("members.db"), host=True, pairs=5, couples=6)
        found |= members(document("members.db"))
    fails("members.db", "slow_steps")
    fails("members.db", "cpu_time", 3)
    found |= members(document("members.db"))
    assert {"beside_cause", "collectives", "why_ns", "launches_ns", "phases", "slow_steps", "unseen_ns", "cpu_time", "places"} <= found, found
    assert found <= described, found - described


MIB = 1 << 20


def memory_store(name, held, ratio=1.2, interval=(1.19, 1.21), verdict="fail", launches=None):
    """Peak memory of 300 MiB and `ratio` of it; held: [side](launch number) -> {(kind, name): bytes} of the traced launches."""
    diff_store.write("aa", path(name), pairs=5, couples=6)
    db = sqlite3.connect(path(name))
    db.execute("INSERT INTO cell (workload, metric, unit, direction, gating, median_a, median_b, ratio, ci_lower, ci_upper, margin, alpha, pairs, "
               "look, verdict, improved, reason) VALUES ('train', 'peak_memory', 'bytes', 'lower', 1, ?, ?, ?, ?, ?, 0.01, 0.01, 10, 1, ?, 0, '')",
               (300 * MIB, 300 * MIB * ratio, ratio, *interval, verdict))
    traced = db.execute("SELECT l.id, l.side, p.idx FROM launch l JOIN pair p ON p.id = l.pair_id WHERE p.phase = 'traced' ORDER BY l.id").fetchall()
    assert len(traced) >= 4, traced
    for launch, side, number in traced[:launches]:
        for (kind, file), size in held[side](number).items():
            db.execute("INSERT INTO launch_memory VALUES (?, ?, ?, ?, 0)", (launch, kind, file, size))
    db.commit()
    db.close()
    return document(name).get("memory")


def memory_held(side):
    """What differs: 30 MiB of a library, 40 MiB of anonymous memory, -10 MiB of a file; names, noise and 1 MiB of the stack do not count."""
    def of(number):
        return {("file", ("libtorch_cpu.so.1.13.0", "libtorch_cpu.so")[side]): (40 + 30 * side) * MIB, ("anonymous", ""): (50 + 40 * side) * MIB,
                ("file", ("libgomp.so.1.0.0", "libgomp-a34b3233.so.1")[side]): 7 * MIB, ("file", ("libc-2.31.so", "libc.so.6")[side]): 6 * MIB,
                ("file", "libc10.so"): 5 * MIB, ("file", ("_C.cpython-310-x86_64-linux-gnu.so", "_C.abi3.so")[side]): 4 * MIB,
                ("file", ("python3.10", "python3.13")[side]): 3 * MIB, ("heap", ""): (100 + 30 * (number % 2) + 10 * side) * MIB,
                ("stack", ""): (1 + side) * MIB, **({} if side else {("file", "libgdal.so.32"): 10 * MIB})}
    return of


def test_memory_that_failed_has_its_parts():
    """Largest first, losses and gains apart; a library is the same whatever its version; what launches of one side differ by is not told."""
    memory = memory_store("memory.db", [memory_held(0), memory_held(1)])
    told = [(p["kind"], p["name"], round(p["delta_bytes"] / MIB)) for p in memory["parts"] if p["told"]]
    assert told == [("anonymous", "", 40), ("file", "libtorch_cpu.so", 30), ("file", "libgdal.so", -10)], told
    names = {p["name"]: (p["name_a"], p["name_b"]) for p in memory["parts"] if p["kind"] == "file"}
    assert names["libc.so"] == ("libc-2.31.so", "libc.so.6") and names["libc10.so"] == ("libc10.so",) * 2 and names["libgdal.so"][1] is None, names
    assert set(names) == {"libtorch_cpu.so", "libgomp.so", "libc.so", "libc10.so", "_C.so", "python", "libgdal.so"}, names
    assert (memory["more_bytes"], memory["less_bytes"]) == (70 * MIB, -10 * MIB) and memory["failed"]
    for side in "ab":
        assert abs(memory["held_bytes"][side] - sum(p[side + "_bytes"] for p in memory["parts"])) < 10, memory
    text = " ".join(run("memory.db").stdout.split())
    assert text.startswith("train: peak memory 300 MiB -> 360 MiB (+20.0 %, +60.0 MiB): anonymous memory +40.0 MiB, libtorch_cpu.so"), text[:400]
    assert "libgdal.so -10.0 MiB" in text
    run("memory.db", "-o", "memory.md")
    assert re.search(r"^- \+30.0 MiB libtorch\\?_cpu.so: 40.0 MiB", open(path("memory.md")).read(), re.M), open(path("memory.md")).read()
    described = open(os.path.join(SOURCE, "docs/SCHEMA.md")).read().split("upgate.diff/1     {", 1)[1].split("```", 1)[0]
    assert members(memory) <= set(re.findall(r"\w+", described)), members(memory)


def test_memory_of_the_gpu_that_failed():
    """What tensors hold apart from what the allocator keeps around them; in every form, and described."""
    diff_store.write("aa", path("gpu.db"), pairs=5, couples=6)
    db = sqlite3.connect(path("gpu.db"))
    db.execute("INSERT INTO cell (workload, metric, unit, direction, gating, median_a, median_b, ratio, ci_lower, ci_upper, margin, alpha, pairs, "
               "look, verdict, improved, reason) VALUES ('train', 'peak_gpu_memory', 'bytes', 'lower', 1, ?, ?, 1.25, 1.24, 1.26, 0.05, 0.01, 10, 1, 'fail', 0, '')",
               (400 * MIB, 500 * MIB))
    for launch, side in db.execute("SELECT l.id, l.side FROM launch l JOIN pair p ON p.id = l.pair_id WHERE p.phase = 'traced'").fetchall():
        db.execute("UPDATE launch SET peak_gpu_memory_bytes = ? WHERE id = ?", ((500 if side else 400) * MIB, launch))
        for name, size in (("peak_gpu_memory_bytes", 500 if side else 400), ("peak_gpu_tensor_bytes", 383 if side else 380)):
            db.execute("INSERT INTO launch_value VALUES (?, 0, ?, ?)", (launch, name, size * MIB))
    db.commit()
    db.close()
    memory = document("gpu.db")["gpu_memory"]
    assert [(p["kind"], p["told"], round(p["delta_bytes"] / MIB)) for p in memory["parts"]] == [("reserve", True, 97), ("tensors", False, 3)], memory
    text = " ".join(run("gpu.db").stdout.split())
    assert text.startswith("train: peak GPU memory 400 MiB -> 500 MiB (+25.0 %, +100 MiB): the allocator's reserve beyond tensors +97.0 MiB"), text[:400]
    run("gpu.db", "-o", "gpu.md")
    assert "peak GPU memory 400 MiB" in open(path("gpu.md")).read()
    described = open(os.path.join(SOURCE, "docs/SCHEMA.md")).read().split("upgate.diff/1     {", 1)[1].split("```", 1)[0]
    assert members(memory) | {"gpu_memory"} <= set(re.findall(r"\w+", described)), members(memory)


def test_memory_that_is_not_news_is_not_told():
    held = [memory_held(0), memory_held(1)]
    assert memory_store("memory_pass.db", held, 1.002, (0.999, 1.005), "pass") is None  # whatever the traced launches held
    assert memory_store("memory_within.db", held, 1.005, (1.003, 1.007), "pass") is None
    assert memory_store("memory_open.db", held, 1.03, (0.99, 1.07), "inconclusive") is None
    assert memory_store("memory_none.db", held, launches=0) is None  # not looked
    assert memory_store("memory_one_side.db", [held[0], lambda number: {}]) is None
    assert "peak memory" not in run("memory_none.db").stdout
    less = memory_store("memory_less.db", held[::-1], 0.8, (0.79, 0.81), "pass")
    assert not less["failed"] and [p["name"] for p in less["parts"] if p["told"]] == ["libgdal.so", "", "libtorch_cpu.so"], less
    same = memory_store("memory_same.db", [memory_held(0), memory_held(0)])  # it was freed by then
    assert not any(p["told"] for p in same["parts"]) and "freed by then" in run("memory_same.db").stdout.replace("\n", " ")


def test_same_store_same_answer():
    diff_store.write("two_changes", path("same.db"), host=True)
    before = open(path("same.db"), "rb").read()
    first, second = run("same.db", "--format", "json").stdout, run("same.db", "--format", "json").stdout
    assert first == second
    assert open(path("same.db"), "rb").read() == before  # read only
    os.chmod(path("same.db"), 0o444)
    assert run("same.db", "--format", "json").stdout == first


def test_forms():
    diff_store.write("two_changes", path("forms.db"))
    table = run("forms.db").stdout
    for part in ("train: step", "what the step was spent on", "evidence", "residual", "made of", "where"):
        assert part in table, (part, table)
    assert "the rest" in table and "the rest" not in run("forms.db", "--all").stdout
    run("forms.db", "-o", "out.json")
    assert json.load(open(path("out.json")))["schema"] == "upgate.diff/1"
    run("forms.db", "-o", "out.md")
    assert open(path("out.md")).read().startswith("### Where the difference comes from")
    run("forms.db", "-o", "out.txt")
    assert open(path("out.txt")).read().startswith("train: step")
    assert document("forms.db", "--workload", "train")["workload"] == "train"
    blind = document("forms.db", "--ignore-names")
    assert [c for c in blind["contributions"] if c["named"]]


def test_few_long_steps():
    """Two blocks of the candidate take five times as long: the median does not move, and the mean is explained."""
    diff_store.write("aa", path("aa.db"))
    change("tail.db", "aa.db", "UPDATE block SET active_ns = active_ns * 5 WHERE couple IN (3, 5) AND side = 1 AND pair_id IN "
           "(SELECT id FROM pair WHERE phase = 'main')")
    workload = document("tail.db")
    assert any("the mean is what is explained" in note for note in workload["notes"]), workload["notes"]
    assert 0.2 < workload["delta_ns"] / workload["step_a_ns"] < 2, workload["delta_ns"]
    check_sums(workload)


def test_commands_without_steps():
    diff_store.write("kernel_slower", path("good.db"))
    change("command.db", "good.db", "DELETE FROM step", "DELETE FROM cell", "UPDATE pair SET interleave = 'slices'",
           "INSERT INTO cell (workload, metric, unit, direction, gating, median_a, median_b, ratio, ci_lower, ci_upper, alpha, pairs, "
           "verdict, improved, reason) VALUES ('train', 'total_time', 'ns', 'lower', 1, 2e8, 2.1e8, 1.05, 1.04, 1.06, 0.01, 10, "
           "'fail', 0, '')")
    workload = document("command.db")
    assert workload["unit"] == "launch" and workload["delta_ns"] == 10000000, workload
    check_sums(workload)
    top = workload["contributions"][0]
    assert top["named"] and "softmax" in top["label"] and top["count_a"] > 10, top


def change(name, base, *statements, values=()):
    shutil.copy(path(base), path(name))
    db = sqlite3.connect(path(name))
    for statement in statements:
        db.execute(statement, values if "?" in statement else ())
    db.commit()
    db.close()
    return name


def refused(name, code, *parts, args=()):
    """The right exit code, a sentence, and no file."""
    result = run(name, "-o", "refused.json", *args, code=code)
    assert all(part in result.stderr for part in parts), (name, result.stderr)
    assert result.stderr.count("\n") <= 2, result.stderr
    if code == 2:
        assert not os.path.exists(path("refused.json")), name
    elif os.path.exists(path("refused.json")):
        workload, = json.load(open(path("refused.json")))["workloads"]
        assert workload["unexplained"] and workload["contributions"] == [] and workload["residual_ns"] is None and workload["slower_ns"] is None, workload
        os.remove(path("refused.json"))


def test_bad_input():
    diff_store.write("kernel_slower", path("good.db"), host=True)
    data = open(path("good.db"), "rb").read()
    open(path("empty.db"), "wb").close()
    open(path("text.db"), "w").write("no database\n" * 100)
    sqlite3.connect(path("foreign.db")).execute("CREATE TABLE t (a)").connection.commit()
    refused("missing.db", 2, "missing.db")
    refused("empty.db", 2, "empty.db")
    refused("text.db", 2, "not a store")
    refused("foreign.db", 2, "not a store of upgate")
    for cut in (100, 5000, len(data) // 3):
        open(path("cut.db"), "wb").write(data[:cut])
        refused("cut.db", 4, "cut.db", "the store is damaged")
    refused("good.db", 2, "no workload 'nosuch'", "'train'", args=("--workload", "nosuch"))
    refused(change("one.db", "good.db", "UPDATE launch SET side = 0"), 2, "baseline only")
    refused(change("record.db", "good.db", "UPDATE run SET kind = 'record'"), 2, "upgate stalls")
    refused(change("none.db", "good.db", "UPDATE pair SET phase = 'confirm' WHERE phase = 'traced'"), 4, "traced_launches")
    refused(change("unrecorded.db", "good.db", "UPDATE recording SET launch_id = NULL"), 4, "nothing is explained")
    refused(change("void.db", "good.db", "DELETE FROM step WHERE launch_id IN (SELECT l.id FROM launch l JOIN pair p ON "
                   "p.id = l.pair_id WHERE p.phase = 'traced')", "DELETE FROM block WHERE pair_id IN (SELECT id FROM pair "
                   "WHERE phase = 'traced')", "DELETE FROM gpu_op", "DELETE FROM sample", "DELETE FROM gap"), 4, "nothing is explained")
    # Samples of one side alone: no function of the other one is known, and none is new.
    half = ("DELETE FROM sample WHERE thread_id IN (SELECT t.id FROM thread t JOIN process p ON p.id = t.process_id JOIN recording r ON "
            "r.id = p.recording_id JOIN launch l ON l.id = r.launch_id WHERE l.side = 1%s)")
    refused(change("half.db", "good.db", half % ""), 4, "one side has no samples")
    few = document(change("few.db", "good.db", half % " AND l.id = (SELECT max(launch_id) FROM recording)"))
    assert few["contributions"] and sum("no samples of the candidate were recorded" in note for note in few["notes"]) == 1, few["notes"]
    assert few["traced_pairs"] == document("good.db")["traced_pairs"] - 1, few["traced_pairs"]
    # However much was lost of the traced launches, what weakens the answer as a whole is said.
    doubted = change("doubted.db", "good.db", "UPDATE side SET fingerprint = NULL", "WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i "
                     "WHERE n < 20) INSERT INTO ledger (launch_id, producer, kind, dropped, breach) SELECT l.id, 'gpu.rank ' || n, 'records', 1, 0 "
                     "FROM i, launch l JOIN pair p ON p.id = l.pair_id WHERE p.phase = 'traced'")
    notes = document(doubted)["notes"]
    assert sum("gpu.rank" in note for note in notes) <= 24 and any("not listed" in note for note in notes), notes
    assert any(note.startswith("No suspects: the fingerprint") for note in notes), notes
    # What cannot be read takes the explanation away, never the verdict.
    damaged = change("damaged.db", "good.db", "PRAGMA foreign_keys = 0", "DROP TABLE gpu_work")
    refused(damaged, 4, "gpu_work")
    subprocess.run([UPGATE, "report", path("damaged.db"), "-o", path("damaged.md")], check=True)
    text = open(path("damaged.md")).read()
    assert "step_time" in text and "Not known: " in text and "gpu_work" in text, text
    run("good.db", "-o", "out.pdf", code=2)
    run("good.db", "-o", "nowhere/out.json", code=4)
    run(code=2)


def test_hostile_names():
    diff_store.write("kernel_slower", path("hostile.db"))
    long = "void evil<" + "x, " * 21000 + "y>(float*)"
    html = "<script>alert('1')</script>\n\"\x1b[31m |`*"
    db = sqlite3.connect(path("hostile.db"))
    names = [row[0] for row in db.execute("SELECT DISTINCT name FROM gpu_kernel ORDER BY name")]
    db.execute("UPDATE gpu_kernel SET name = ? WHERE name = ?", (long, names[0]))
    db.execute("UPDATE gpu_kernel SET name = ? WHERE name = ?", (html, names[1]))
    db.execute("UPDATE gpu_kernel SET name = CAST(x'fffe80c328' AS TEXT) WHERE name = ?", (names[2],))
    db.execute("UPDATE gpu_op SET dur_ns = dur_ns + 40000 WHERE work_id IN (SELECT w.id FROM gpu_work w JOIN gpu_kernel k ON "
               "k.id = w.kernel_id JOIN gpu_stream s ON s.id = w.stream_id JOIN process p ON p.id = s.process_id JOIN recording r "
               "ON r.id = p.recording_id JOIN launch l ON l.id = r.launch_id WHERE l.side = 1 AND k.name IN (?, ?))", (long, html))
    db.commit()
    db.close()
    workload = document("hostile.db", "--all")
    check_sums(workload)
    table = run("hostile.db", "--all").stdout
    assert "\x1b" not in table and all(len(line) < 400 for line in table.split("\n")), max(table.split("\n"), key=len)[:300]
    run("hostile.db", "-o", "hostile.md")
    assert "<script>" not in open(path("hostile.md"), encoding="utf-8").read()


def main():
    tests = [value for name, value in sorted(globals().items()) if name.startswith("test_")]
    failed = 0
    for test in tests:
        try:
            test()
            print("ok  ", test.__name__, flush=True)
        except Exception as error:  # noqa: BLE001 each test speaks for itself
            failed += 1
            print("FAIL", test.__name__, repr(error)[:3000], flush=True)
    shutil.rmtree(WORK, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
