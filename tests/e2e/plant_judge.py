#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The judge of ci/plants --regressions, without a run: documents of upgate.diff/1 that are right and such that are wrong in one thing each, of
every section; and the answers it reads: each can be started, each pattern is one, and what one entry stands for is what it says."""
import os
import re
import sys

ROOT = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(ROOT, "ci"), os.path.join(ROOT, "reference_models", "torch")]
import plant_answers  # noqa: E402
import plant_judge as judge  # noqa: E402
import plant_regressions as regressions  # noqa: E402
import plants  # noqa: E402

KEYS = {"what", "workload", "plant", "kinds", "name", "where", "strength", "needs"}
MIB = 1 << 20


# ---- documents -----------------------------------------------------------------------------------

def contribution(kind, label, where="", named=True, delta_ns=500, **more):
    return {"kind": kind, "label": label, "name_a": None, "name_b": label, "where": where, "named": named, "delta_ns": delta_ns, "evidence": [], **more}


def document(*steps, interval=(100, 1100), **sections):
    return {"unexplained": None, "contributions": list(steps), "step_a_ns": 10000, "delta_ns": 600, "delta_ci_ns": interval, "residual_ns": 0,
            "match_coverage": 1.0, "traced_ratio": {"a": 1.0, "b": 1.0}, "first_step": {"a_ns": 1000, "b_ns": 1000, "contributions": []}, **sections}


def slow(*parts, period=20, metric="slow_steps", why_not=None):
    return {"slow_steps": {"metric": metric, "a_ns": 0, "b_ns": 1500, "period": {"a": None, "b": period}, "why_not": why_not, "contributions": list(parts)}}


def cpu(*parts):
    return {"cpu_time": {"a_ns": 1000, "b_ns": 1500, "why_not": None, "contributions": list(parts)}}


def first(*parts):
    return {"first_step": {"a_ns": 1000, "b_ns": 9000, "contributions": list(parts)}}


def touch(caller, file, delta_bytes=60 * MIB, told=True, function=None, outside=None, outside_file=None):
    return {"caller": caller, "caller_file": file, "outside": outside, "outside_file": outside_file, "function": function, "module": None,
            "delta_bytes": delta_bytes, "told": told}


def memory(*touched, kind="anonymous"):
    return {"memory": {"peak_bytes": {"a": 300 * MIB, "b": 360 * MIB}, "touched": list(touched),
                       "parts": [{"kind": kind, "delta_bytes": 60 * MIB, "told": True}, {"kind": "file", "delta_bytes": MIB, "told": False}]}}


def gpu_memory(*kinds, delta_bytes=60 * MIB):
    return {"gpu_memory": {"peak_bytes": {"a": 300 * MIB, "b": 360 * MIB}, "touched": [],
                           "parts": [{"kind": kind, "name": "", "name_a": "", "name_b": "", "delta_bytes": delta_bytes, "told": True} for kind in kinds]}}


def said(answer, *args, **more):
    return judge.judge(answer, document(*args, **more))[0]


# ---- each section --------------------------------------------------------------------------------

def test_step():
    """What is right, in the wrong place, not told from noise, and an accusation."""
    answer = {"kinds": ["cpu_function_added"], "name": "fill", "where": "forward"}
    right, other = contribution("cpu_function_added", "plant_fill", "forward > x"), contribution("host_stall", "somebody", "backward", delta_ns=900)
    assert said(answer, right) == judge.FIRST
    assert said(answer, other, right) == judge.TOP
    assert said(answer, other, other, other, right) == judge.WRONG
    assert said(answer, other) == judge.WRONG
    assert said(answer, dict(right, where="backward")) == judge.WRONG
    assert said(answer, dict(right, delta_ns=-500)) == judge.WRONG
    assert said(answer, dict(right, named=False)) == judge.MISSED
    assert said(answer, contribution("cpu_function_added", "sgemm", "forward > fill")) == judge.WRONG, "a place is no name"
    maybe, noise = dict(answer, maybe=True), (-100, 1300)
    assert said(maybe) == said(answer, interval=noise) == judge.MISSED
    assert said(maybe, interval=noise) == judge.NONE
    assert said(maybe, other, interval=noise) == judge.WRONG
    assert said(maybe, interval=[None, None]) == judge.MISSED, "no interval is no noise"
    beside = dict(answer, kinds=["kernel_slower"], name="AllReduce", where="")
    slower = contribution("kernel_slower", "gemm", "backward")
    assert said(beside, slower) == judge.WRONG, "nothing says that it is the all-reduce"
    assert said(beside, dict(slower, beside_cause="AllReduce f32 / RING LL")) == judge.FIRST
    assert said(dict(answer, kinds=[]), dict(right, named=False)) == judge.QUIET
    assert said(dict(answer, kinds=[]), right) == judge.ACCUSED
    assert judge.judge(answer, dict(document(right), unexplained="no traces"))[0] == judge.FAILED


def test_either():
    """Several ways to say it, and each with its own place."""
    answer = {"kinds": ["cpu_function_slower"], "name": "", "where": "", "either": [{"name": "softmax"}, {"name": "gemm", "where": "attend"}]}
    assert said(answer, contribution("cpu_function_slower", "vec_softmax", "backward")) == judge.FIRST
    assert said(answer, contribution("cpu_function_slower", "sgemm", "forward > Block.attend")) == judge.FIRST
    assert said(answer, contribution("cpu_function_slower", "sgemm", "forward > Linear.forward")) == judge.WRONG


def test_slow_steps():
    answer = {"section": "slow_steps", "kinds": ["code_added", "cpu_function_added"], "name": "save_checkpoint", "where": "", "period": 20}
    right, other = contribution("code_added", "save_checkpoint", "_train"), contribution("cpu_function_added", "gemm", "forward", delta_ns=900)
    assert said(answer, **slow(right)) == judge.FIRST
    assert said(answer, **slow(contribution("cpu_function_added", "mz_crc32", "Rare.save_checkpoint > save"))) == judge.FIRST, "the place has its name"
    assert said(answer, **slow(other, right)) == judge.TOP
    assert said(answer, **slow(other)) == judge.WRONG
    assert said(answer, **slow(dict(right, kind="host_stall"))) == judge.WRONG
    assert said(answer, **slow(dict(right, delta_ns=-500))) == judge.WRONG
    assert said(answer, **slow(right, period=25)) == judge.WRONG
    assert said(answer, **slow(right, period=None)) == judge.WRONG
    assert said(answer, **slow(why_not="no part of them is larger")) == judge.MISSED
    assert said(answer) == judge.MISSED, "the document has no slow steps"
    assert said(answer, right) == judge.MISSED, "it is told of all steps only"
    assert said(answer, right, **slow(right)) == judge.FIRST, "the mean step has it, too"
    assert said(answer, other, **slow(right)) == judge.TOP, "something of a typical step is accused"
    assert said(answer, dict(other, delta_ns=-900), **slow(right)) == judge.FIRST, "what got faster accuses nobody"
    assert said(dict(answer, beside="gemm"), other, **slow(right)) == judge.FIRST


def test_p99():
    answer = {"section": "p99", "kinds": ["host_stall"], "name": "look_up", "where": "forward"}
    right = contribution("host_stall", "A mutex is held by another thread", "forward > Rare.forward > _Index.look_up")
    for metric in ("latency_p99", "slow_steps"):
        assert said(answer, **slow(right, metric=metric, period=None)) == judge.FIRST
    assert said(answer, **slow(dict(right, where="data > look_up"))) == judge.WRONG
    assert said(answer, **slow(dict(right, where="forward > wait"))) == judge.WRONG
    padded = plant_answers.answers()["torch-pad"]
    for name, verdict in (("mkl_blas_avx512_sgemm_kernel_0_b0", judge.FIRST), ("unrelated_fn", judge.WRONG)):
        of = contribution("cpu_function_added", name, "forward > Sequential.forward")
        assert said(padded, **slow(of, metric="latency_p99", period=None)) == verdict, name


def test_cpu_time():
    answer = {"section": "cpu_time", "kinds": ["cpu_function_added"], "name": "compress_log|deflate", "where": "thread log-compressor"}
    right = contribution("cpu_function_added", "deflate_slow", "thread log-compressor > _Worker.run")
    assert said(answer, **cpu(right)) == judge.FIRST
    assert said(answer, **cpu(dict(right, where="thread python"))) == judge.WRONG, "of another thread"
    assert said(answer, **cpu(contribution("cpu_function_added", "memcpy", "thread log-compressor"))) == judge.WRONG, "another function"
    assert said(answer, **slow(right)) == judge.MISSED, "told in another section"
    assert said(dict(answer, maybe=True)) == judge.MISSED, "without the section nothing is known"


def test_gpu_memory():
    answer = {"section": "gpu_memory", "kinds": ["reserve"], "name": "^reserve$", "where": ""}
    assert said(answer, **gpu_memory("reserve")) == judge.FIRST
    assert said(answer, **gpu_memory("tensors", "reserve")) == judge.TOP
    assert said(answer, **gpu_memory("tensors")) == judge.WRONG
    assert said(answer, **gpu_memory("reserve", delta_bytes=-60 * MIB)) == judge.WRONG
    assert said(answer, **gpu_memory()) == judge.MISSED
    assert judge.change("gpu_memory", document(**gpu_memory("tensors"))) == 0.2


def test_memory():
    answer = {"section": "memory", "parts": ["anonymous", "heap"], "kinds": ["touched"], "name": "remember_features", "where": r"kept\.py"}
    right, other = touch("Kept.remember_features", "kept.py"), touch("import of sympy", None, 90 * MIB)
    assert said(answer, **memory(right)) == judge.FIRST
    assert said(answer, **memory(touch("ones", "numpy/_core/numeric.py", outside="Kept.remember_features", outside_file="kept.py"))) == judge.FIRST, "its caller"
    assert said(answer, **memory(other, right)) == judge.TOP
    assert said(answer, **memory(other)) == judge.WRONG
    assert said(answer, **memory(dict(right, caller_file="cache.py"))) == judge.WRONG, "another file"
    assert said(answer, **memory(dict(right, delta_bytes=-60 * MIB))) == judge.WRONG
    assert said(answer, **memory(dict(right, told=False))) == judge.MISSED
    assert said(answer, **memory(right, kind="file")) == judge.WRONG, "of another kind of memory"
    assert said(answer) == judge.MISSED


def test_first_step():
    answer = {"section": "first_step", "kinds": ["cold_start", "code_added"], "name": "load_plugins", "where": ""}
    right = contribution("code_added", "load_plugins", "forward")
    assert said(answer, **first(right)) == judge.FIRST
    assert said(answer, **first(contribution("code_added", "warm_up", "forward"))) == judge.WRONG
    assert said(answer, right, **first()) == judge.MISSED
    cold = {"kinds": [], "name": "", "where": "", "first_step": True}
    assert said(cold, **first(right)) == judge.QUIET and said(cold) == judge.WRONG, "that it took longer must be seen"


def test_twins_are_quiet():
    """Of what both sides have nothing may be said, in no section; of old plants without a difference, of no step."""
    twin, same = dict(plant_answers.INNOCENT, section="slow_steps"), {"kinds": [], "name": "", "where": ""}
    part = contribution("code_added", "save_checkpoint")
    loud = [slow(part), cpu(part), first(part), memory(touch("load_table", "kept.py"))]
    assert said(twin) == judge.QUIET and said(twin, part) == judge.ACCUSED
    assert said(twin, dict(part, named=False), **slow(why_not="no slow steps")) == judge.QUIET
    for section in loud:
        assert said(twin, **section) == judge.ACCUSED, section
    assert said(same, **loud[0]) == judge.QUIET


def test_several():
    """Each must be among the first ones; the worst of them counts."""
    linear = {"kinds": ["cpu_function_slower"], "name": "gemm", "where": "forward", "together": True}
    gelu = dict(linear, name="gelu")
    both = {"asks": [linear, gelu], "kinds": []}
    one, two = contribution("cpu_function_slower", "sgemm", "forward"), contribution("cpu_function_slower", "gelu_kernel", "forward")
    other = contribution("host_stall", "somebody", "backward")
    assert said(both, one, two) == said(both, two, one) == judge.FIRST
    assert said(both, one, other, two) == judge.TOP
    assert said(both, one) == judge.MISSED
    assert said(both, other, one) == judge.WRONG
    spread = contribution("cpu_function_slower", "Sequential.forward: sgemm and more", "forward",
                          parts=[{"label": "sgemm", "delta_ns": 300}, {"label": "gelu_kernel", "delta_ns": 200}])
    assert said(both, spread) == judge.FIRST, "one place that has both"
    alike = {"asks": [linear, dict(linear)], "kinds": []}
    assert said(alike, one) == judge.MISSED and said(alike, one, dict(one, label="sgemm_2")) == judge.FIRST, "each has one of its own"
    wide = {"asks": [dict(linear, name="gemm|gelu"), gelu], "kinds": []}
    assert said(wide, two, one) == judge.FIRST, "whichever takes which"
    assert said(dict(both, asks=[dict(linear, together=False), dict(gelu, together=False)]), spread) == judge.MISSED
    save = {"section": "slow_steps", "kinds": ["code_added"], "name": "save_checkpoint", "where": ""}
    far = {"asks": [save, linear], "kinds": []}
    part = contribution("code_added", "save_checkpoint")
    assert said(far, one, **slow(part)) == judge.FIRST
    assert said(far, one) == judge.MISSED and said(far, **slow(part)) == judge.MISSED
    assert said(far, other, **slow(part)) == judge.WRONG


def test_change():
    """What the page calls measured is of the section."""
    found = [judge.change(section, document(**part)) for section, part in
             (("step", {}), ("slow_steps", slow()), ("cpu_time", cpu()), ("memory", memory()), ("first_step", first()))]
    assert [round(value, 9) for value in found] == [0.06, 0.15, 0.5, 0.2, 8.0], found
    assert judge.change("cpu_time", document()) is None and judge.change("memory", document()) is None


# ---- the answers ---------------------------------------------------------------------------------

def test_answers():
    with open(os.path.join(ROOT, "reports", "analyse", "diff", "explain", "kinds.c"), encoding="utf-8") as file:
        known = set(re.findall(r'\] = "([a-z_]+)"', file.read()))
    assert "kernel_slower" in known, known
    for name, answer in plant_answers.answers().items():
        assert KEYS <= set(answer), "%s lacks %s" % (name, KEYS - set(answer))
        workload = answer["workload"]
        assert workload.get("steps") or (workload["program"], workload["model"]) in regressions.STEPS, name
        for ask in plant_answers.asks(answer):
            section = ask.get("section", "step")
            assert section in judge.SECTIONS, "%s: no such section: %s" % (name, section)
            assert section == "step" or ask["name"], "%s: any name would do" % name
            for way in [ask] + ask.get("either", []):
                kinds = set(way.get("kinds", [])) - {"memory": {"touched"}, "gpu_memory": {"tensors", "reserve"}}.get(section, set())
                assert kinds <= known, "%s: no such kind: %s" % (name, kinds - known)
                for pattern in ("name", "where", "beside"):
                    re.compile(way.get(pattern) or "")
            assert not ask.get("either") or all(way.get("name") for way in ask["either"]), name
        for words in (answer["plant"], answer.get("baseline_plant")):
            if workload["program"] == "torch" and words:
                plants.Plants(words)


def test_what_an_entry_stands_for():
    known = plant_answers.answers()
    save, small, twin, gpu = (known[name] for name in ("torch-save", "torch-save-small", "torch-save-twin", "gpu-save"))
    assert small["plant"] != save["plant"] and small["strength"] < save["strength"] and small["name"] == save["name"]
    assert twin["baseline_plant"] == twin["plant"] == save["plant"] and not plant_answers.asks(twin) and plant_answers.sections(twin) == ["slow_steps"]
    assert gpu["workload"]["args"] == ["--device", "cuda"] and "gpu" in gpu["needs"] and not gpu["period"] and gpu["name"] == save["name"]
    assert "--device" not in save["workload"].get("args", []) and save["needs"] == ["torch"]
    both = known["torch-save-and-gelu"]
    assert both["plant"] == "save:20:300%,op:gelu:5%" and plant_answers.sections(both) == ["slow_steps", "step"] and both["workload"] == save["workload"]
    everything, held_out = plant_answers.chosen(known), plant_answers.chosen(known, held_out=True)
    assert not set(everything) & set(held_out) and {"torch-save", "gemm", "torch-save-twin"} <= set(everything) and "torch-upload" in held_out
    assert "torch-save-small" not in everything and "torch-save-small" in plant_answers.chosen(known, ["small"])
    assert set(plant_answers.chosen(known, of_sections=["memory"])) < set(everything)
    assert plant_answers.sized(known, ["torch-save", "gemm"], ["middle", "large"]) == ["torch-save", "torch-save-large", "gemm"]
    assert not any("long" in known[name]["needs"] for name in plant_answers.chosen(known, long=False))


def test_plan():
    """What a section needs is gated, on more pairs; a plant of the steps alone is run as ever."""
    known = plant_answers.answers()
    plan = regressions.plan_of(known["torch-cache"], 3)
    assert set(plan["gate"]["metrics"]) == {"step_time", "peak_memory"} and plan["schedule"]["looks"] == [regressions.SURE_PAIRS], plan
    assert 2.0 ** -regressions.SURE_PAIRS <= float(regressions.SURE_ALPHA.rstrip("%")) / 100, "so many pairs can decide at that alpha"
    plan = regressions.plan_of(known["torch-pad"], 3)
    assert plan["workloads"][0]["mode"] == "infer" and plan["workloads"][0]["steps"] >= 662 and "latency_p99" in plan["gate"]["metrics"], plan
    plan = regressions.plan_of(known["gemm"], 3)
    assert set(plan["gate"]["metrics"]) == {"step_time"} and plan["schedule"]["looks"] == [regressions.PAIRS] and "mode" not in plan["workloads"][0], plan
    sides = regressions.plan_of(known["torch-omp-active"], 3)
    assert sides["baseline"]["env"]["OMP_WAIT_POLICY"] == "PASSIVE" and sides["candidate"]["env"]["OMP_WAIT_POLICY"] == "ACTIVE", sides
    sides = regressions.plan_of(known["torch-table"], 3)
    assert (sides["baseline"]["env"]["PLANT"], sides["candidate"]["env"]["PLANT"]) == ("table:64M:1", "table:64M:2"), sides
    assert regressions.plan_of(known["same-dlrm"], 3)["candidate"]["env"] == {}


def test_page():
    """A section without runs says what would measure it; rows stand where they belong; what was held out is told apart."""
    results = []
    for name, built in (("torch-save", document(**slow(contribution("code_added", "save_checkpoint")))),
                        ("torch-upload", document(**slow(contribution("host_stall", "waits", "upload_metrics"), period=30))), ("torch-table", document())):
        answer = plant_answers.answers()[name]
        results.append({"plant": name, "seed": 1, "strength": answer["strength"], "seconds": 1.0})
        regressions.conclude(results[-1], answer, built)
    text = regressions.page(results, "PAGE")
    parts = {part.split("\n", 1)[0]: part for part in text.split("\n## ")[1:]}
    assert set(parts) == {title for title, _ in judge.SECTIONS.values()}, set(parts)
    assert "| torch-save | " in parts["Rare slow steps"] and "| torch-table | " in parts["Peak memory"], parts
    assert "Not measured yet: `ci/plants --regressions --all --sections cpu_time`." in parts["CPU time"], parts["CPU time"]
    assert "held out while it was made: first in 1 of 1" in text and [r["verdict"] for r in results] == [judge.FIRST, judge.FIRST, judge.MISSED], results
    assert results[2]["found"] is None and regressions.describe(results[2])


def main():
    failed = 0
    for name, test in sorted(globals().items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
            print("ok  ", name, flush=True)
        except Exception as error:  # noqa: BLE001 each test speaks for itself
            failed += 1
            print("FAIL", name, repr(error)[:3000], flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
