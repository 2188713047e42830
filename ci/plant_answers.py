# SPDX-License-Identifier: Apache-2.0
"""What is planted, and what must be said of it: reference_models/plants/regressions.json, spelt out. Pure.

An entry there may stand for several plants: `sizes` (NAME-small, NAME-large; the entry itself is the middle one), `twin` (NAME-twin: the same on both
sides, of which nothing may be said), `gpu` (gpu-… of torch-…, on a device). What these hold replaces what the entry says. `of` names other
entries, which are planted together: each must be found.

`section` is the part of upgate.diff/1 that is asked, step where it is not said. Of it `kinds`, `name` and `where` decide (plant_judge.py). `held_out`:
not run with --all, so that nobody looks at it while upgate is made better; --held-out runs these alone."""
import json
import os

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ANSWERS = os.path.join(ROOT, "reference_models", "plants", "regressions.json")
SIZES = ("small", "middle", "large")
INNOCENT = {"kinds": [], "name": "", "where": "", "strength": None, "innocent": True}


def _on_gpu(base, changes):
    changes = dict(changes)
    workload = dict(base["workload"], **changes.pop("workload", {}))
    workload["args"] = workload.get("args", []) + ["--device", "cuda"]
    # No period: a window has several steps there.
    return {**base, "workload": workload, "needs": base["needs"] + ["gpu"], "period": None, **changes}


def _spelt(name, answer):
    base = {key: value for key, value in answer.items() if key not in ("sizes", "twin", "gpu")}
    yield name, base
    for size, changes in answer.get("sizes", {}).items():
        yield "%s-%s" % (name, size), {**base, "size": size, **changes}
    if answer.get("twin"):
        yield name + "-twin", {**base, **INNOCENT, "what": "on both sides: " + base["what"], "baseline_plant": base["plant"],
                               "baseline_env": base.get("env", {})}
    if "gpu" in answer:
        yield "gpu" + name[len("torch"):], _on_gpu(base, answer["gpu"])


def _together(answer, known):
    """All that `of` names, on the workload of the first one."""
    parts = [known[name] for name in answer["of"]]
    made = {"workload": parts[0]["workload"], "plant": ",".join(part["plant"] for part in parts), "needs": list(parts[0]["needs"]),
            "kinds": [], "name": "", "where": "", "strength": None, "asks": [dict(part, together=True) for part in parts]}
    for part in parts[1:]:
        made["needs"] += [need for need in part["needs"] if need not in made["needs"]]
    before = [part["baseline_plant"] for part in parts if part.get("baseline_plant")]
    if before:
        made["baseline_plant"] = ",".join(before)
    return {**made, **answer}


def answers():
    """{name: answer} of all plants."""
    with open(ANSWERS, encoding="utf-8") as file:
        written = json.load(file)["plants"]
    known = {}
    for name, answer in written.items():
        known.update(_spelt(name, answer) if "of" not in answer else [(name, _together(answer, known))])
    return known


def asks(answer):
    """What must be found; nothing: there is nothing to find."""
    return answer.get("asks") or ([answer] if answer["kinds"] else [])


def sections(answer):
    """Those that are asked, in the order of the entry, each once."""
    return list(dict.fromkeys(one.get("section", "step") for one in answer.get("asks") or [answer]))


def chosen(known, sizes=("middle",), of_sections=(), held_out=False, long=True):
    """Names of what --all runs."""
    return [name for name, answer in known.items()
            if answer.get("size", "middle") in sizes and bool(answer.get("held_out")) == held_out and
            (long or "long" not in answer["needs"]) and (not of_sections or set(of_sections) & set(sections(answer)))]


def sized(known, names, sizes):
    """The plants of these names in these sizes, as far as there are any."""
    wanted = [name if size == "middle" else "%s-%s" % (name, size) for name in names for size in sizes]
    return [name for name in wanted if name in known]
