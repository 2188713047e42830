# SPDX-License-Identifier: Apache-2.0
"""Does `upgate diff` name what got slower? The part of ci/plants that plants regressions: one side of a reference
workload gets the plant, `upgate ab` runs both, `upgate diff` says where the difference comes from, and plant_judge.py compares that
with reference_models/plants/regressions.json (plant_answers.py). tests/root/regressions.py uses the functions."""
import contextlib
import datetime
import functools
import json
import os
import re
import shlex
import sqlite3
import subprocess
import tempfile
import threading
import time

import parallel
import plant_answers
import plant_judge
from plant_answers import ROOT, answers
from plant_judge import ACCUSED, FAILED, FIRST, GOOD, MISSED, NONE, QUIET, SECTIONS, TOP, WRONG, short

BUILD = os.environ.get("UPGATE_BUILD") or os.path.join(ROOT, "build", "release")
UPGATE = os.path.join(BUILD, "upgate")
MODELS = os.path.join(BUILD, "reference_models")
PYTHON = os.environ.get("UPGATE_PLANTS_PYTHON") or os.path.join(ROOT, "envs", "candidate", "bin", "python")

# Enough for a step time that tells 3 %, in half a minute a plant.
PAIRS, TRACED_PAIRS, VOIDS = 4, 4, 12
ALPHA = "30%"
# What is explained only where the gate has told it from chance needs a gate that is sure: by chance five pairs say the same in 1 of 32.
SURE_PAIRS, SURE_ALPHA = 5, "5%"
STEPS = {("native", "dlrm"): 200, ("native", "transformer"): 150, ("native", "allreduce"): 120,
         ("torch", "dlrm"): 120, ("torch", "transformer"): 80, ("torch", "ddp"): 40, ("torch", "hstu"): 80, ("torch", "vision"): 40}
INFER_FACTOR = 2  # requests are shorter
GPU_CPUS = 3  # of a rank: its own thread, that of the backward pass, the driver's
RUN_S = 900
SKIPPED = "skipped"

# Beside the steps' own. Memory is explained only where it is gated; the others are, so that the store says whether they fail. Margins are the metrics' own (contracts/metrics.h).
METRICS = {"p99": {"latency_p50": "5%", "latency_p99": "5%"}, "cpu_time": {"cpu_time": "2%"}, "memory": {"peak_memory": "1%"},
           "gpu_memory": {"peak_gpu_memory": "1%"},
           "first_step": {"first_step_time": "10%"}}


class Trouble(Exception):
    """upgate could not be run; the text says why."""


class _Gpus:
    """Each run has GPUs of its own; several runs at a time where there are several."""

    def __init__(self):
        self._changed, self._free = threading.Condition(), None

    @contextlib.contextmanager
    def some(self, count):
        with self._changed:
            if self._free is None:
                visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(
                    python_prints("import torch; print(*range(torch.cuda.device_count()))").split())
                self._free = visible.split(",") * int(os.environ.get("UPGATE_PLANTS_A_GPU", "1"))  # runs that share one
            while len(self._free) < count:
                self._changed.wait()
            taken, self._free = self._free[:count], self._free[count:]
        OWN_GPUS.indices = taken
        try:
            yield
        finally:
            OWN_GPUS.indices = []
            with self._changed:
                self._free += taken
                self._changed.notify_all()


GPUS, OWN_GPUS = _Gpus(), threading.local()


# ---- what the machine lacks ------------------------------------------------------------------------

@functools.lru_cache(None)
def python_prints(code):
    return subprocess.run([PYTHON, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()


def python_says(code):
    return python_prints(code) == "True"


def lack(need):
    """'' or the sentence that says what is missing."""
    if need.startswith("cpus:"):
        wanted = int(need[5:])
        return "" if len(os.sched_getaffinity(0)) >= wanted else "needs %d CPUs" % wanted
    if need.startswith("gpus:"):
        return lack("gpu") or ("" if python_says("import torch; print(torch.cuda.device_count() >= %d)" % int(need[5:])) else
                               "needs %d GPUs" % int(need[5:]))
    if need in ("torch", "sdpa", "inductor", "gpu"):
        if not os.access(PYTHON, os.X_OK):
            return "no '%s': ci/setup --envs makes it, or name another in UPGATE_PLANTS_PYTHON" % PYTHON
        code = {"torch": "import torch; print(True)",
                "sdpa": "from torch.nn import functional as f; print(hasattr(f, 'scaled_dot_product_attention'))",
                "inductor": "import shutil, torch; print(hasattr(torch, 'compile') and bool(shutil.which('g++')))",
                "gpu": "import torch; print(torch.cuda.is_available())"}[need]
        return "" if python_says(code) else "%s lacks %s" % (PYTHON, need)
    return ""  # long: a matter of patience


# ---- a run -----------------------------------------------------------------------------------------

def command_of(workload):
    """What both sides start; the plant of a side comes out of its environment."""
    model, args = workload["model"], ["--mode", workload.get("mode", "train"), "--steps", "{steps}", "--seed", "{seed}"]
    for option in ("ranks", "threads", "size"):
        if option in workload:
            args += ["--" + option, str(workload[option])]
    program = [os.path.join(MODELS, "native", model)]
    if workload["program"] == "torch":
        program = [PYTHON, os.path.join(MODELS, "torch", model + ".py")]
    words = " ".join(shlex.quote(word) for word in program + args + workload.get("args", []))
    return ["/bin/sh", "-c", "exec %s ${PLANT:+--plant \"$PLANT\"}" % words]


def gpus_of(answer):
    """How many GPUs a run takes."""
    return max([0] + [int(need.partition(":")[2] or 1) for need in answer["needs"] if need.startswith("gpu")])


def gate_of(answer):
    """(pairs, gate): what is asked of the untraced launches."""
    sections = plant_answers.sections(answer)
    sure = sections != ["step"]
    metrics = {"step_time": "2%"}
    for section in sections:
        metrics.update(METRICS.get(section, {}))
    # No verdict is asked for, and none of a host that nobody has calibrated.
    return SURE_PAIRS if sure else PAIRS, {"alpha": SURE_ALPHA if sure else ALPHA, "parity": {"rule": "off"}, "calibrate": "require", "confirm": "never",
                                           "metrics": {name: {"margin": margin} for name, margin in metrics.items()}}


def env_of(env, plant):
    return {**env, **({"PLANT": plant} if plant else {})}


def plan_of(answer, seed):
    workload = answer["workload"]
    steps = workload.get("steps") or STEPS[workload["program"], workload["model"]]
    if workload.get("mode") == "infer":
        steps *= INFER_FACTOR
    # cpus: of what works beside the steps, too
    busy = max(workload.get("ranks", 1), workload.get("threads", 1), workload.get("cpus", 1))
    if gpus_of(answer):
        busy *= GPU_CPUS
    # One thread has a CPU for itself; the recorder of its traced launches is on another one.
    cpus = ",".join(map(str, parallel.own_cpus()[-busy:]))
    pairs, gate = gate_of(answer)
    run = {"name": "plant", "command": command_of(workload), "steps": steps, "ranks": workload.get("ranks", 1)}
    if "p99" in plant_answers.sections(answer):
        run["mode"] = "infer"  # else a command's steps are no requests
    return {
        "baseline": {"name": "old", "env": env_of(answer.get("baseline_env", {}), answer.get("baseline_plant"))},
        "candidate": {"name": "new", "env": env_of(answer.get("env", {}), answer["plant"])},
        "workloads": [run],
        "schedule": {"looks": [pairs], "seed": seed, "interleave": "auto", "block": "20ms", "timeout": "5min",
                     "traced_launches": TRACED_PAIRS, "voids": VOIDS, "cpus": cpus},
        "gate": gate}


def upgate(words, accepted, directory):
    env = dict(os.environ, UPGATE_STATE_DIR=os.path.join(directory, "state"))
    for name in ("UPGATE_BUILD", "UPGATE_SOURCE", "UPGATE_PLANTS_PYTHON", "UPGATE_PLANTS_A_GPU"):
        env.pop(name, None)  # ours; the program does not know them and says so
    env["CUDA_VISIBLE_DEVICES"] = ",".join(getattr(OWN_GPUS, "indices", []))  # none: a plant of the CPU, also where there are GPUs
    try:
        done = subprocess.run(parallel.pinned([UPGATE, *words]), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=RUN_S, env=env)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Trouble("%s: %s" % (words[0], error)) from None
    if done.returncode not in accepted:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise Trouble("upgate %s: exit %d: %s" % (words[0], done.returncode, last[0]))
    return done.stdout


def difference(answer, seed, store, directory):
    """Both sides are run into the store; the workload of the upgate.diff/1 document."""
    plan = os.path.join(directory, "plan.yaml")
    with open(plan, "w", encoding="utf-8") as file:
        json.dump(plan_of(answer, seed), file)  # YAML reads JSON
    if os.path.exists(store):
        os.unlink(store)
    upgate(["ab", plan, "-q", "-o", store], (0, 1, 3), directory)
    return explained(store, directory)


def explained(store, directory, *options):
    document = json.loads(upgate(["diff", store, "--format", "json", *options], (0,), directory))
    if len(document["workloads"]) != 1:
        raise Trouble("the document has %d workloads" % len(document["workloads"]))
    return document["workloads"][0]


def run(name, seed, keep=None):
    """One run of one plant: a dict. keep: a directory for the store."""
    answer = answers()[name]
    result = {"plant": name, "seed": seed, "verdict": FAILED, "said": "", "strength": answer["strength"]}
    lacking = [text for text in map(lack, answer["needs"]) if text]
    if lacking:
        return dict(result, verdict=SKIPPED, said=lacking[0])
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="upgate-plants-") as directory:
        store = os.path.join(keep or directory, "%s-%d.db" % (name, seed))
        try:
            with GPUS.some(gpus_of(answer)) if gpus_of(answer) else contextlib.nullcontext():
                conclude(result, answer, difference(answer, seed, store, directory))
            result["machine"] = machine_of(store)
        except Trouble as trouble:
            result["said"] = str(trouble)
    result["seconds"] = time.monotonic() - begin
    return result


def conclude(result, answer, workload):
    result["verdict"], result["said"] = plant_judge.judge(answer, workload)
    section = plant_answers.sections(answer)[0]
    result["section"] = section
    step_ns = workload["step_a_ns"]
    if not step_ns or workload.get("unexplained"):
        return
    things = plant_judge.told(section, workload)
    interval = workload["delta_ci_ns"]
    noise = (interval[1] - interval[0]) / 2 / step_ns if interval and None not in interval else None
    result.update(step_ns=step_ns, found=plant_judge.change(section, workload), noise=noise,
                  residual=abs(workload["residual_ns"]) / step_ns, coverage=workload["match_coverage"], traced_ratio=workload["traced_ratio"],
                  kind=things[0]["kind"] if things else None, label=things[0]["label"] if things else None)


def kept(directory):
    """(plant, seed) of the stores that runs left in a directory."""
    known = answers()
    for entry in sorted(os.listdir(directory)):
        found = re.fullmatch(r"(.+)-(\d+)\.db", entry)
        if found and found.group(1) in known:
            yield found.group(1), int(found.group(2))


def again(name, seed, keep, *options):
    """The difference in a store that run() has left, explained and judged again."""
    answer, begin = answers()[name], time.monotonic()
    result = {"plant": name, "seed": seed, "verdict": FAILED, "said": "", "strength": answer["strength"]}
    with tempfile.TemporaryDirectory(prefix="upgate-plants-") as directory:
        try:
            store = os.path.join(keep, "%s-%d.db" % (name, seed))
            conclude(result, answer, explained(store, directory, *options))
            result["machine"] = machine_of(store)
        except Trouble as trouble:
            result["said"] = str(trouble)
    result["seconds"] = time.monotonic() - begin
    return result


# ---- tables ----------------------------------------------------------------------------------------

HEAD = "%-22s %-10s %8s %8s %6s  %s" % ("plant", "answer", "planted", "measured", "time", "said")


def percent(value):
    return "-" if value is None else "%.0f %%" % (100 * value)


def describe(result):
    found = "%+.1f %%" % (100 * result["found"]) if result.get("found") is not None else "-"
    return "%-22s %-10s %8s %8s %5.0fs  %s" % (result["plant"], result["verdict"], percent(result["strength"]), found,
                                              result.get("seconds", 0), result["said"])


def table(names=None):
    """The regressions as a Markdown table."""
    lines = ["| plant | workload | asked | planted | needs | what it does |", "|---|---|---|---|---|---|"]
    for name, answer in answers().items():
        if names and name not in names:
            continue
        workload = answer["workload"]
        lines.append("| %s | %s %s | %s%s | %s | %s | %s |" % (
            name, workload["program"], workload["model"], ", ".join(plant_answers.sections(answer)), ", held out" if answer.get("held_out") else "",
            percent(answer["strength"]), ", ".join(answer["needs"]) or "-", answer["what"]))
    return "\n".join(lines)


def machine_of(store):
    """Where the runs in a store were made, in words."""
    with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % store, uri=True)) as db:
        host = json.loads(db.execute("SELECT host FROM run").fetchone()[0])
        gpu = [row[0] for row in db.execute("SELECT name FROM gpu_device WHERE name NOT NULL ORDER BY id LIMIT 1")]
    return ", ".join(gpu + ["%d CPUs" % host["cpu_count"], host["cpu_model"], "Linux " + host["kernel"]])


PAGE = """# Planted regressions

Does `upgate diff` name what got slower? One side of a reference workload gets a plant of known strength; `upgate ab` runs both sides
(%(pairs)d untraced pairs, of other sections than the first %(sure)d; %(traced)d traced ones), `upgate diff` explains the difference, and its named contributions are compared with
[regressions.json](../reference_models/plants/regressions.json). A contribution that upgate does not tell from noise is no answer, and accuses nobody.

Made by %(command)s, %(date)s, on

%(machines)s

Not all of it is upgate's doing: other load of the machine moves both sides. Ranks that come late are planted in [STRAGGLERS.md](STRAGGLERS.md).

%(summary)s

%(sections)s

Of plants without a number the strength depends on the machine. Both
sides the same (`same-…`, `…-twin`, and `first-step`, whose regression is in no later step): `first` counts the runs in which nothing was named.
%(absent)s"""

# What is measured, and what counts.
SECTION_TEXTS = {
    "step": "`measured` is the median difference of the untraced step times.",
    "slow_steps": "What comes once in so many steps and makes none of the others slower: the part `slow_steps` must name it, and its period. `measured` is what slow "
                  "steps take beyond typical ones, of the mean step. Where a typical step is told to differ by something else, the answer counts as one of the first three.",
    "p99": "One request of inference in fifty takes longer: the part `slow_steps` must name what it did that the others did not. `measured` is what slow requests take "
           "beyond typical ones: of the mean request, or of one where only the 99th percentile tells it.",
    "cpu_time": "CPU time that no step waits for: the part `cpu_time` must name the thread and the function. `measured` is the CPU time of a launch.",
    "memory": "Memory that is kept, loaded twice or wasted: the part `memory` must name the code that touched it first, with its file. `measured` is the peak.",
    "gpu_memory": "What PyTorch's allocator reserves on a GPU: the part `gpu_memory` must say whether tensors hold it, or what is kept around them. `measured` is the peak.",
    "first_step": "What the first step alone does: the part `first_step` must name it. `measured` is the untraced first step."}

ROWS = """| plant | what it does | planted | measured | runs | first | in the first three | named first, last run |
|---|---|---|---|---|---|---|---|
%s"""


def summary(results):
    answered = [r for r in results if r["verdict"] in (FIRST, TOP, WRONG, MISSED)]
    # Where the strength depends on the machine, what was measured.
    strong = [r for r in answered if (r["strength"] or r.get("found") or 0) >= 0.03]
    same = [r for r in results if r["verdict"] in (QUIET, ACCUSED)]
    known = answers()
    plants = {r["plant"] for r in answered}
    assert all(name in known for name in plants)
    lines = ["%d plants, %d runs. Of plants of 3 %% and more: the right contribution first in %d of %d runs (%s), in the "
             "first three in %d (%s)." % (len(plants), len(answered), *share_of(strong, (FIRST,)), *share_of(strong, (FIRST, TOP))[::2])]
    held_out = [r for r in strong if known[r["plant"]].get("held_out")]
    if held_out:
        lines.append("Of those that were held out while it was made: first in %d of %d (%s)." % share_of(held_out, (FIRST,)))
    if same:
        lines.append("Nothing to find (both sides the same, or a regression of the first step alone): nothing was named "
                     "in %d of %d runs." % (sum(r["verdict"] == QUIET for r in same), len(same)))
    residuals = [r["residual"] for r in results if r.get("residual") is not None]
    if residuals:
        lines.append("Largest residual: %.2f %% of a step." % (100 * max(residuals)))
    return " ".join(lines)


def machines(results):
    """A line for each machine, with the number of its runs."""
    where = [r["machine"] for r in results if r.get("machine")]
    return "\n".join("- %s: %d run%s" % (one, where.count(one), "" if where.count(one) == 1 else "s") for one in sorted(set(where)))


def share_of(results, verdicts):
    count = sum(r["verdict"] in verdicts for r in results)
    return count, len(results), percent(count / len(results)) if results else "-"


def row(name, answer, runs):
    found = sorted(r["found"] for r in runs if r.get("found") is not None)
    last = runs[-1]
    return "| %s | %s | %s | %s | %d | %d | %d | %s |" % (
        name, answer["what"], percent(answer["strength"]), "%+.1f %%" % (100 * found[len(found) // 2]) if found else "-", len(runs),
        sum(r["verdict"] in GOOD for r in runs), sum(r["verdict"] in GOOD + (TOP,) for r in runs),
        "%s: `%s`" % (last["kind"], re.sub(r"[|`\s]", " ", short(last["label"]))) if last.get("label") else "-")


def section_of_page(section, rows):
    measured = ROWS % "\n".join(rows) if rows else "Not measured yet: `ci/plants --regressions --all --sections %s`." % section
    return "## %s\n\n%s\n\n%s" % (SECTIONS[section][0], SECTION_TEXTS[section], measured)


def page(results, path, earlier=0):
    """docs/PLANTS.md. path: where it goes; None: stores were judged again, but for so many earlier results."""
    command = ("`ci/plants --regressions --all --keep DIR` and, from those stores, "
               "`ci/plants --regressions --again --keep DIR%s --write docs/PLANTS.md`" % (" --results FILE" if earlier else ""))
    if earlier:
        command += " (FILE: %d runs, whose stores were not kept, as they were judged when they ran)" % earlier
    if path:
        command = "`ci/plants --regressions --all --write %s`" % path
    rows, absent = {section: [] for section in SECTIONS}, {}
    for name, answer in answers().items():
        runs = [r for r in results if r["plant"] == name and r["verdict"] not in (SKIPPED, FAILED, NONE)]
        if answer.get("size", "middle") != "middle" and not any(r["plant"] == name for r in results):
            continue  # asked for by --sizes only
        if not runs:
            others = [r for r in results if r["plant"] == name]
            why = "not run" if not others else others[-1]["verdict"] + ": " + others[-1]["said"]
            absent.setdefault(why, []).append(name)
            continue
        rows[plant_answers.sections(answer)[0]].append(row(name, answer, runs))
    return PAGE % {"pairs": PAIRS, "sure": SURE_PAIRS, "traced": TRACED_PAIRS, "command": command, "machines": machines(results),
                   "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "summary": summary(results),
                   "sections": "\n\n".join(section_of_page(section, rows[section]) for section in SECTIONS),
                   "absent": "\nNot in the tables:\n\n%s\n" % "\n".join("- %s: %s" % (why, ", ".join(names)) for why, names in absent.items())
                   if absent else ""}
