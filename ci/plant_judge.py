# SPDX-License-Identifier: Apache-2.0
"""Is what `upgate diff` says of a planted regression right? Reads a workload of upgate.diff/1 and an answer (plant_answers.py). Pure.

A contribution answers when its kind is one of the answer's, and name and place match the answer's patterns, in the section that is asked: of
rare slow steps what slow_steps tells, of CPU time what cpu_time tells. Only what is named counts: contributions that upgate itself does not
tell from noise are no answers and accuse nobody."""
import itertools
import re

import plant_answers

FIRST, TOP, WRONG, MISSED, QUIET, ACCUSED = "first", "top three", "wrong", "missed", "quiet", "accused"
NONE, FAILED = "no effect", "failed"
GOOD = (FIRST, QUIET)
ORDER = (FAILED, WRONG, MISSED, NONE, TOP, FIRST)  # of several that are asked, the worst one counts

EFFECT_LEAST = 0.01  # of the step: below, a plant whose strength depends on the machine had none
TOP_MORE = 2  # places behind the first ones that still are among the first: with one answer, the first three

# section -> what it is of, for the page, and the member of the document that has it
SECTIONS = {"step": ("Each step", None), "slow_steps": ("Rare slow steps", "slow_steps"), "p99": ("The slowest requests", "slow_steps"),
            "cpu_time": ("CPU time", "cpu_time"), "memory": ("Peak memory", "memory"), "gpu_memory": ("Peak GPU memory", "gpu_memory"),
            "first_step": ("The first step", "first_step")}
OF_BYTES = ("memory", "gpu_memory")


# ---- what is told --------------------------------------------------------------------------------

def _touched(touch):
    """A piece of code that touched memory first, as a contribution. Its file is its place."""
    places = (touch.get(key) or "" for key in ("caller_file", "outside", "outside_file", "module"))
    return {"kind": "touched", "label": touch.get("caller") or touch.get("function") or "", "name_a": None, "name_b": touch.get("function"),
            "where": " ".join(filter(None, places)), "delta_ns": touch["delta_bytes"], "evidence": []}


def _part(part):
    """A part of the GPU's memory, as a contribution: tensors, reserve, direct, allocator."""
    return {"kind": part["kind"], "label": part["kind"], "name_a": part["name_a"], "name_b": part["name_b"], "where": part["name"] or "",
            "delta_ns": part["delta_bytes"], "evidence": []}


def told(section, workload):
    """The contributions that a section names, largest first."""
    member = SECTIONS[section][1]
    if member is None:
        return [one for one in workload["contributions"] if one["named"]]
    if member == "memory":
        return [_touched(touch) for touch in (workload.get(member) or {}).get("touched", []) if touch["told"]]
    if member == "gpu_memory":
        return [_part(part) for part in (workload.get(member) or {}).get("parts", []) if part["told"]]
    return (workload.get(member) or {}).get("contributions", [])


def change(section, workload):
    """The difference that the section is about, as a share: of the step, of slow steps in the mean step or in a typical request, of what
    the baseline takes or holds. None: the document does not have it."""
    part = workload.get(SECTIONS[section][1])
    if section == "step":
        return workload["delta_ns"] / workload["step_a_ns"] if workload["step_a_ns"] else None
    if not part:
        return None
    a, b = (part["peak_bytes"][side] for side in "ab") if section in OF_BYTES else (part["a_ns"], part["b_ns"])
    of = workload["step_a_ns"] if section in ("slow_steps", "p99") else a
    return (b - a) / of if of and a is not None and b is not None else None


def why_not(section, workload):
    part = workload.get(SECTIONS[section][1]) if section != "step" else {}
    if part is None:
        return "the document has no %s" % SECTIONS[section][1]
    return part.get("why_not") or "nothing was named"


def short(label, most=48):
    return label if len(label) <= most else label[:most - 1] + "…"


def _line(section, workload, one):
    if section in OF_BYTES:
        return "%s (%+.1f MiB)" % (short(one["label"]), one["delta_ns"] / (1 << 20))
    of = workload["step_a_ns"] or 0
    return "%s %s%s" % (one["kind"], short(one["label"]), " (%+.1f %%)" % (100 * one["delta_ns"] / of) if of else "")


# ---- is it the answer ----------------------------------------------------------------------------

def _names(one, spread):
    """What it is called. A kernel that is slower by what runs beside it is an answer where that is what was planted. spread: also the names
    of its parts and of its place. What is rare is told in a few samples, and two regressions may lie in one place."""
    names = [one.get(key) or "" for key in ("name_a", "name_b", "label", "beside_cause")]
    if spread:
        names += [part["label"] or "" for part in one.get("parts", []) if (part["delta_ns"] or 0) > 0] + [one.get("where") or ""]
    return names


def _matches(ask, one):
    places = [one.get("where") or ""] + one.get("evidence", [])
    names = _names(one, ask.get("together") or ask.get("section", "step") != "step")
    return one["kind"] in ask["kinds"] and any(re.search(ask["name"], name) for name in names) and \
        any(re.search(ask["where"], place) for place in places)


def answered_by(ask, one):
    """`either` of an answer: other ways to say it, each with what is another one there."""
    ways = [{**ask, **other} for other in ask["either"]] if "either" in ask else [ask]
    return one["delta_ns"] > 0 and any(_matches(way, one) for way in ways)


def _no_effect(workload, things):
    """Of a plant whose strength depends on the machine: the step had none that could be told. The other sections are there or not: without one there is no telling."""
    interval = workload["delta_ci_ns"]
    noise = interval and None not in interval and interval[0] <= 0 <= interval[1] and not things
    return noise or abs(workload["delta_ns"]) < EFFECT_LEAST * workload["step_a_ns"]


def _lost(section, asks, workload, things):
    """(verdict, said): not all that was asked is told."""
    lines = [_line(section, workload, one) for one in things[:3]]
    if section == "step" and any(ask.get("maybe") for ask in asks) and _no_effect(workload, things):
        return NONE, "%+.1f %% of the step" % (100 * (change("step", workload) or 0))
    if things and not any(answered_by(ask, things[0]) for ask in asks):
        return WRONG, "; ".join(lines)
    if things:
        return MISSED, "only " + "; ".join(lines)
    hidden = section == "step" and any(answered_by(ask, one) for ask in asks for one in workload["contributions"][:3])
    return MISSED, why_not(section, workload) + (", the answer's interval has 0 in it" if hidden else "")


def _places(asks, things):
    """Of each ask the first contribution that answers it, one of its own: two share one only where it has parts. None: not all are told."""
    best = None
    for order in itertools.permutations(asks):
        taken = []
        for ask in order:
            taken.append(next((place for place, one in enumerate(things)
                               if answered_by(ask, one) and (place not in taken or one.get("parts"))), None))
        if None not in taken and (best is None or max(taken) < max(best)):
            best = taken
    return best


def _of_section(section, asks, workload):
    """(verdict, said): each of what is asked must be among the first, and so many of them as there are answers."""
    things = told(section, workload)
    places = _places(asks, things)
    if places is None:
        return _lost(section, asks, workload, things)
    last = max(places)
    lines = "; ".join(_line(section, workload, one) for one in things[:last + 1])
    if last < len(asks):
        return FIRST, lines
    return (TOP if last < len(asks) + TOP_MORE else WRONG), "%d. of %s" % (last + 1, lines)


def _besides(section, ask, workload):
    """What is wrong beside the answer, or ''."""
    part = workload.get(SECTIONS[section][1]) or {}
    if ask.get("period") and part.get("period", {}).get("b") != ask["period"]:
        return "the period is %s, not %d" % (part.get("period", {}).get("b"), ask["period"])
    more = [one["kind"] for one in part.get("parts", []) if one["told"] and one["delta_bytes"] > 0]
    if ask.get("parts") and not set(more) & set(ask["parts"]):
        return "the memory is said to be of %s" % (", ".join(more) or "nothing")
    return ""


def _accused(workload, asks):
    """What is named of the steps, though nothing of a typical one is slower. What was planted may be: a mean step has it, too."""
    patterns = [pattern for ask in asks for pattern in (ask["name"], ask.get("beside")) if pattern]
    for one in told("step", workload):
        texts = _names(one, True)
        if one["delta_ns"] > 0 and not any(re.search(pattern, text) for pattern in patterns for text in texts):
            return "of the step: " + _line("step", workload, one)
    return ""


def _innocent(answer, workload):
    """(verdict, said) where there is nothing to find: in the steps, or, of what both sides have, anywhere."""
    for section in SECTIONS if answer.get("innocent") else ("step",):
        things = told(section, workload)
        if things:
            return ACCUSED, "%s: %s" % (section, ", ".join(_line(section, workload, one) for one in things[:3]))
    cold = workload.get("first_step") or {}
    if answer.get("first_step") and not (cold.get("b_ns") or 0) > 2 * (cold.get("a_ns") or 0):
        return WRONG, "the first step was not seen to take longer"
    return QUIET, ""


def judge(answer, workload):
    """(verdict, what is to be said about it)"""
    if workload.get("unexplained"):
        return FAILED, workload["unexplained"]
    asks, said, worst = plant_answers.asks(answer), [], FIRST
    if not asks:
        return _innocent(answer, workload)
    for section in plant_answers.sections(answer):
        here = [ask for ask in asks if ask.get("section", "step") == section]
        verdict, text = _of_section(section, here, workload)
        wrong = next(filter(None, (_besides(section, ask, workload) for ask in here)), "")
        if wrong and verdict in (FIRST, TOP):
            verdict, text = WRONG, "%s; %s" % (wrong, text)
        worst = min(worst, verdict, key=ORDER.index)
        said.append(text)
    if "step" not in plant_answers.sections(answer) and worst == FIRST:
        accused = _accused(workload, asks)
        worst = TOP if accused else FIRST
        said += [accused] if accused else []
    return worst, "; ".join(said)
