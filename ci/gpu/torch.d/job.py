# SPDX-License-Identifier: Apache-2.0
"""On the GPU machine, in a folder of ci/gpu/torch: `job.py variants [PATTERN...]` and `job.py plants [NAME...]` on one GPU, `job.py ranks` the models
of two ranks. PATTERN: of "MODEL MODE VARIANT"; eager is always run.

A variant is right when its losses (or outputs) are those of the eager run, as far as its precision goes. Timings of the variants are
taken six at a time and say nothing; those of the plants one after the other: without, with. aotinductor-native, which has no Python to
tell its outputs (off by nan), holds them against the eager ones itself, and fails where they differ.
"""
import json
import os
import re
import subprocess
import sys
import time

TRAIN = ("eager", "compile", "compile-reduce-overhead", "cuda-graphs", "torchscript", "amp-bf16", "amp-fp16")
INFER = ("eager", "compile", "cuda-graphs", "torchscript", "export", "aotinductor", "aotinductor-native", "amp-bf16", "amp-fp16")
MODELS = ("vision", "transformer", "hstu", "dlrm", "dlrm-cached", "transformer-decode")
LARGE = ["--size", "large", "--steps", "24"]
# plant: model, words of both sides
PLANTS = {"notf32": ("transformer", LARGE), "mathattention": ("transformer", LARGE), "singletensor": ("transformer", LARGE),
          "nobenchmark": ("vision", LARGE), "unpin": ("vision", LARGE), "hooks": ("transformer", LARGE),
          "flopcounter": ("transformer", LARGE + ["--variant", "compile"]), "nocompile": ("transformer", LARGE + ["--variant", "compile"]),
          "nofuser": ("transformer", LARGE + ["--variant", "torchscript"])}
BEGIN = time.monotonic()


def say(text):
    print("%5.0f s  %s" % (time.monotonic() - BEGIN, text), flush=True)


def drive(name, cases):
    with open("cases-%s.json" % name, "w") as file:
        json.dump(cases, file)
    out = open("results-%s.jsonl" % name, "w")
    return subprocess.Popen([sys.executable, "torch_drive.py", "reference_models/torch", "cases-%s.json" % name], stdout=out)


def results(name):
    with open("results-%s.jsonl" % name) as file:
        return [json.loads(line) for line in file][1:]


def variants(patterns):
    groups = {}
    for model in MODELS:
        if not os.path.exists("reference_models/torch/%s.py" % model):
            continue
        for mode, names in (("train", TRAIN), ("infer", INFER)):
            if model == "transformer-decode" and mode == "train":
                continue
            for variant in names:
                name = "%s %s %s" % (model, mode, variant)
                package = variant.startswith("aotinductor")
                if (package and not patterns and model not in ("vision", "transformer")) or (
                        variant != "eager" and patterns and not any(re.search(pattern, name) for pattern in patterns)):
                    continue
                words = ["--mode", mode, "--steps", "12", "--seed", "3", "--device", "cuda", "--variant", variant]
                groups.setdefault("%s-%s" % (model, mode), []).append(
                    {"name": name, "model": model, "words": words, "limit_s": 400 if package else 100})
        for mode in ("train", "infer"):
            key = "%s-%s" % (model, mode)
            if patterns and len(groups.get(key, ())) == 1 and model != "transformer-decode":
                del groups[key]
    waiting, running = list(groups.items()), {}
    while waiting or running:
        while waiting and len(running) < 6:
            name, cases = waiting.pop(0)
            running[name] = drive(name, cases)
        for name in [name for name, process in running.items() if process.poll() is not None]:
            del running[name]
            for line in table(results(name)):
                say(line)
        time.sleep(0.2)


def table(runs):
    eager = runs[0] if runs else None
    for run in runs:
        if run["status"] == 77:
            yield "%-44s %s" % (run["name"], run["stderr"].strip().splitlines()[-1])
            continue
        if run["status"] != 0:
            yield "%-44s FAILED %s: %s" % (run["name"], run["status"], " | ".join(run["stderr"].strip().splitlines()[-3:])[-400:])
            continue
        kind = "losses" if run["losses"] else "outputs"
        flat = [[v for o in r["outputs"] for v in o] if kind == "outputs" else r["losses"] for r in (eager, run)]
        scale = max(map(abs, flat[0])) if flat[0] else 0
        off = max((abs(a - b) for a, b in zip(*flat)), default=float("nan")) / (scale or 1)
        notes = {k: v for k, v in run["notes"].items() if k != "serve_error_ppb"}
        yield "%-44s %s off eager by %.1e, %.1f s, step %.2f ms, %s" % (
            run["name"], kind, off, run["seconds"], run["line"]["median_step_ns"] / 1e6, notes)


def plants(names):
    for plant in names or PLANTS:
        model, words = PLANTS[plant]
        case = {"model": model, "words": words + ["--seed", "3", "--device", "cuda"], "limit_s": 100}
        cases = [dict(case, name="without"), dict(case, name=plant, words=case["words"] + ["--plant", plant])]
        drive("plant-" + plant, cases).wait()
        runs = results("plant-" + plant)
        if any(run["status"] != 0 for run in runs):
            say("plant %-14s FAILED: %s" % (plant, [(r["status"], r["stderr"][-300:]) for r in runs if r["status"] != 0]))
            continue
        step = [run["line"]["median_step_ns"] / 1e6 for run in runs]
        say("plant %-14s %s: %.3f ms without, %.3f with: %+.1f %%, notes %s" % (
            plant, model, step[0], step[1], 100 * (step[1] / step[0] - 1), [run["notes"] for run in runs]))


def ranks():
    environment = dict(os.environ, PYTHONPATH=os.path.abspath("shim"))
    for model, words in (("ddp", []), ("fsdp", []), ("dlrm-sharded", []), ("dlrm-sharded", ["--budget", "12M"]),
                         ("dlrm-sharded", ["--mode", "infer"])):
        done = subprocess.run([sys.executable, "reference_models/torch/%s.py" % model, "--steps", "20", "--seed", "3", "--ranks", "2"] + words,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, timeout=60)
        lines = done.stdout.splitlines()
        say("%s %s: %d, %s" % (model, words, done.returncode, next((line for line in lines if line.startswith("{")), lines[-25:])))


if __name__ == "__main__":
    import torch
    say("torch %s, %s" % (torch.__version__, subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, text=True).stdout.strip()))
    if sys.argv[1] == "ranks":
        ranks()
    else:
        {"variants": variants, "plants": plants}[sys.argv[1]](sys.argv[2:])
