#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every model and every path of the PyTorch workloads, under every interpreter here that has torch: the same losses and outputs as the
eager run, as far as the path's precision goes; what a version lacks is skipped with its reason; the planted faults of the paths are told.

One interpreter a version (torch_drive.py forks the launches), so that the import is paid once. Exits 77 when no interpreter has torch.
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import torch_models  # noqa: E402  which interpreters there are, and the recorder of models of several ranks

MODELS = torch_models.MODELS
COMMON = ["--size", "small", "--steps", "10", "--seed", "3", "--device", "cpu"]
EXACT, LOW = 2e-4, {"amp-bf16": 0.05, "amp-fp16": 0.05, "fx-int8": 0.5}
TRAINED = ("dlrm", "dlrm-cached", "transformer", "hstu", "vision")
SERVED = TRAINED + ("transformer-decode",)
# (model, mode, variant): each path at least once, where it is cheap.
PATHS = [("dlrm", "train", "torchscript"), ("transformer", "train", "torchscript"), ("hstu", "infer", "torchscript"),
         ("vision", "infer", "torchscript"), ("dlrm", "infer", "fx-int8"), ("vision", "infer", "fx-int8"), ("hstu", "infer", "fx-int8"),
         ("vision", "train", "amp-bf16"), ("transformer", "train", "amp-bf16"), ("transformer-decode", "infer", "amp-bf16"),
         ("hstu", "infer", "amp-fp16"), ("dlrm", "infer", "export"), ("vision", "infer", "export"), ("dlrm-cached", "infer", "torchscript"),
         ("dlrm-cached", "infer", "fx-int8"),
         ("dlrm", "train", "torchrec"), ("dlrm", "infer", "torchrec")]  # tests/e2e/torch_torchrec.py has where it is there
SKIPS = [("dlrm", "train", "cuda-graphs", "CUDA graphs need a CUDA device"), ("vision", "train", "export", "export is of inference"),
         ("vision", "train", "compile-reduce-overhead", "on the CPU|has no torch.compile"),
         ("transformer-decode", "infer", "torchscript", "not a path here"), ("vision", "train", "aotinductor-native", "is of inference"),
         ("dlrm-cached", "infer", "aotinductor-native", "has no packages of AOTInductor|serves dlrm, hstu, transformer, vision|C++ compiler"),
         ("dlrm-cached", "train", "torchrec", "is a path of dlrm and dlrm-sharded"),
         ("ddp", "train", "torchscript", "a graph taken of DistributedDataParallel")]
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAIL " + what, flush=True)


def case(name, model, mode, *words):
    return {"name": name, "model": model, "words": COMMON + ["--mode", mode] + list(words)}


def cases():
    made = [case("%s train" % model, model, "train") for model in TRAINED] + [case("%s infer" % model, model, "infer") for model in SERVED]
    made += [case("%s float64" % model, model, "train", "--dtype", "float64", "--variant", "torchscript") for model in ("hstu", "vision")]
    made += [case("dlrm float64", "dlrm", "train", "--dtype", "float64")]
    made += [case("%s %s %s" % path, path[0], path[1], "--variant", path[2]) for path in PATHS]
    made += [case("skip %s %s %s" % skip[:3], skip[0], skip[1], "--variant", skip[2]) for skip in SKIPS]
    made += [case("recompile", "transformer", "train", "--variant", "compile", "--plant", "recompile:6"),
             case("flopcounter", "transformer", "train", "--variant", "compile", "--plant", "flopcounter"),
             case("deadlock", "hstu", "train", "--variant", "torchscript", "--watchdog", "1", "--plant", "jitdeadlock"),
             case("skew", "vision", "infer", "--variant", "torchscript", "--plant", "serveskew"),
             case("skew cached", "dlrm-cached", "infer", "--variant", "torchscript", "--plant", "serveskew"),
             case("math", "transformer", "train", "--plant", "mathattention"),
             case("cache whole", "dlrm-cached", "train", "--cache", "4000"), case("cache small", "dlrm-cached", "train", "--cache", "4"),
             case("cache negative", "dlrm-cached", "train", "--cache", "-5"),
             case("cache evicts", "dlrm-cached", "train", "--dtype", "float64", "--cache", "300")]
    return made


def drive(python, directory):
    path = os.path.join(directory, "cases.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(cases(), file)
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONNOUSERSITE="1", TORCHINDUCTOR_COMPILE_THREADS="1",
                       TORCHINDUCTOR_CACHE_DIR=os.path.join(directory, os.path.basename(os.path.dirname(os.path.dirname(python)))))
    return subprocess.Popen([python, os.path.join(HERE, "torch_drive.py"), MODELS, path], stdout=subprocess.PIPE, text=True, env=environment)


def off(run, eager):
    """How far the losses and outputs of a run are off those of another, in units of the largest."""
    worst = 0.0
    for mine, other in ((run["losses"], eager["losses"]), (sum(run["outputs"], []), sum(eager["outputs"], []))):
        check(len(mine) == len(other), "%s: as many values as %s" % (run["name"], eager["name"]))
        scale = max(map(abs, other), default=1.0)
        worst = max([worst] + [abs(a - b) / scale if math.isfinite(a) else math.inf for a, b in zip(mine, other)])
    return worst


def check_version(version, runs):
    for model in TRAINED:
        run = runs["%s train" % model]
        check(run["status"] == 0 and len(run["losses"]) == 10 and all(map(math.isfinite, run["losses"])),
              "%s: %s trains: %s" % (version, model, run["stderr"][-800:]))
        check({"data", "forward", "backward", "optimizer"} <= set(run["phases"]), "%s: %s: phases %s" % (version, model, run["phases"]))
    for model in SERVED:
        run = runs["%s infer" % model]
        check(run["status"] == 0 and len(run["outputs"]) == 8, "%s: %s answers: %s" % (version, model, run["stderr"][-800:]))
    check({"prefill", "decode"} <= set(runs["transformer-decode infer"]["phases"]), version + ": phases of a decoder")
    for model in ("hstu", "vision"):
        error = off(runs["%s float64" % model], runs["%s train" % model])
        check(0 < error < 1e-4, "%s: %s in float64 is off float32 by %g, whatever the variant" % (version, model, error))
    for model, mode, variant in PATHS:
        run, eager = runs["%s %s %s" % (model, mode, variant)], runs["%s %s" % (model, mode)]
        if run["status"] == 77:
            check(run["stderr"].startswith("skipped: torch %s" % ".".join(version.split(".")[:2])) or "autocast of torch" in run["stderr"]
                  or "compiler" in run["stderr"], "%s: %s: %s" % (version, run["name"], run["stderr"]))
            continue
        check(run["status"] == 0, "%s: %s: %s\n%s" % (version, run["name"], run["status"], run["stderr"][-1500:]))
        if run["status"] == 0:
            error = off(run, eager)
            check(error < LOW.get(variant, EXACT), "%s: %s is off eager by %g" % (version, run["name"], error))
            check(variant not in LOW or error > 0, "%s: %s is the eager run" % (version, run["name"]))
            if mode == "infer":
                check("serve_error_ppb" in run["notes"], "%s: %s: serving graph against training graph" % (version, run["name"]))


def check_skips_and_plants(version, runs):
    for model, mode, variant, reason in SKIPS:
        run = runs["skip %s %s %s" % (model, mode, variant)]
        check(run["status"] == 77 and run["stderr"].count("\n") == 1 and any(part in run["stderr"] for part in reason.split("|")),
              "%s: %s %s: %s, %r" % (version, model, variant, run["status"], run["stderr"]))
    hang = runs["deadlock"]
    check(hang["status"] == 1 and "Timeout" in hang["stderr"] and "variants.py" in hang["stderr"] and hang["seconds"] < 200,
          "%s: the watchdog ends a hang, and shows where: %s" % (version, hang["stderr"]))
    for skew in (runs["skew"], runs["skew cached"]):
        check(skew["status"] == 1 and "scores of the serving graph" in skew["stderr"], "%s: another serving graph is told (%s): %s" % (
            version, skew["name"], skew["stderr"]))
    check(off(runs["math"], runs["transformer train"]) < EXACT, version + ": attention in separate operators computes the same")
    whole, small, evicts = runs["cache whole"], runs["cache small"], runs["cache evicts"]
    check(whole["losses"] == runs["dlrm-cached train"]["losses"], version + ": the size of a cache changes no bit")
    check(evicts["status"] == 0 and whole["notes"]["cache_misses"] == whole["notes"]["new_ids"] == evicts["notes"]["new_ids"] <
          evicts["notes"]["cache_misses"], "%s: a smaller cache evicts: %s, %s" % (version, whole["notes"], evicts["notes"]))
    check(small["status"] == 2 and "--cache" in small["stderr"], "%s: a cache that is too small: %s" % (version, small["stderr"]))
    negative = runs["cache negative"]
    check(negative["status"] == 2 and "argument --cache: -5 is out of range" in negative["stderr"] and negative["stderr"].count("\n") == 1,
          "%s: a cache of no rows: %s" % (version, negative["stderr"]))
    again, counted = runs["recompile"], runs["flopcounter"]
    if again["status"] != 77:
        check(again["status"] == 0 and off(again, runs["transformer train"]) < EXACT, "%s: compiled, and compiled again: %s" % (version, again["stderr"][-500:]))
        check((again["notes"]["compiled_graphs"], again["notes"]["recompiles"]) == (2, 1) and again["notes"]["compile_time_ns"] > 1e6,
              "%s: a cache thrown away once is one recompile: %s" % (version, again["notes"]))
        check(counted["status"] == 0 and counted["notes"]["compiled_graphs"] == 0, "%s: under a dispatch mode nothing is compiled: %s, %s" % (
            version, counted["notes"], counted["stderr"][-500:]))


def native_run(name, model, *words):
    """What a native model of the build records, as a run of PyTorch's is told, and what it says."""
    import native_models
    records = native_models.recorded(model, "--steps", "10", "--seed", "3", *words)
    outputs = [(bytes.fromhex(r["hex"]), r["count"]) for r in native_models.of(records, "bytes", name="output")]
    said = [r for r in records if "model" in r]
    return {"name": "native " + name, "losses": [r["value"] for r in native_models.of(records, "loss")],
            "outputs": [list(struct.unpack("<%d%s" % (count, "f" if len(raw) == 4 * count else "d"), raw)) for raw, count in outputs],
            "said": said[0] if said else {}}


# The case of PyTorch, the model, the options of the native one, how far they may be apart.
NATIVE = (("dlrm-cached train", "dlrm-cached", (), EXACT), ("dlrm-cached infer", "dlrm-cached", ("--mode", "infer"), EXACT),
          ("cache whole", "dlrm-cached", ("--cache", "4000"), EXACT),
          ("cache evicts", "dlrm-cached", ("--dtype", "float64", "--cache", "300"), 1e-12),
          ("vision train", "vision", (), EXACT), ("vision infer", "vision", ("--mode", "infer"), EXACT),
          ("vision float64", "vision", ("--dtype", "float64"), 1e-11),  # batch norm passes on what rounding there was
          # Of one rank its losses are those of dlrm, whose requests are others.
          ("dlrm train", "dlrm-sharded", ("--ranks", "1"), EXACT),
          ("dlrm float64", "dlrm-sharded", ("--ranks", "1", "--dtype", "float64"), 1e-11))


def check_native(results):
    """dlrm-cached, dlrm-sharded and vision in C have the same inputs and start values: the same losses and answers but for the order of sums;
    dlrm-cached fetches the same rows."""
    if not os.path.exists(os.path.join(os.environ.get("UPGATE_BUILD", ""), "tests", "e2e", "step_host")):
        print("the native dlrm-cached, dlrm-sharded and vision are not compared: UPGATE_BUILD has no tests/e2e/step_host")
        return
    for name, model, words, limit in NATIVE:
        native = native_run(name, model, *words)
        for version, runs in results.items():
            run = runs.get(name, {"losses": [], "outputs": [], "notes": {}, "name": name})
            check(len(native["outputs"]) == 4 and len(run["outputs"]) >= 4, "%s: %s: outputs of native and torch" % (version, name))
            error = off(native, dict(run, outputs=run["outputs"][:4]))
            check(error < limit, "%s: %s: native and torch are %g apart" % (version, name, error))
            if model != "dlrm-cached":
                continue
            counts = [{key: told.get(key) for key in ("cache_hits", "cache_misses", "new_ids")} for told in (native["said"], run["notes"])]
            check(counts[0] == counts[1] and counts[0]["new_ids"], "%s: %s: native and torch count %s" % (version, name, counts))


def check_native_ranks(model, ranks, line, *more):
    """The native twin has the losses of rank 0, whose line is PyTorch's, where there is a text that both read: else each has another of its own.
    Of dlrm-sharded both place the tables alike."""
    first, last = line["loss_first"], line["loss_last"]
    program = os.path.join(os.environ.get("UPGATE_BUILD", ""), "reference_models", "native", model)
    if not os.path.exists(program):
        print("native %s is not compared: '%s' is missing" % (model, program), flush=True)
        return
    words = COMMON[:COMMON.index("--device")] + ["--ranks", str(ranks), *more]
    done = subprocess.run([program] + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100)
    check(done.returncode == 0, "native %s: %s" % (model, done.stderr))
    if "generated text" in done.stderr:
        print("native %s is not compared: %s" % (model, done.stderr.strip()), flush=True)
    elif done.returncode == 0:
        got = json.loads(done.stdout)
        worst = max(abs(got["loss_first"] / first - 1), abs(got["loss_last"] / last - 1))
        what = " ".join(["native %s, %d ranks" % (model, ranks), *more])
        print("%s: losses off PyTorch's by %.1g" % (what, worst), flush=True)
        check(worst < 2e-5, "%s: losses %s and %s, PyTorch's %s and %s" % (what, got["loss_first"], got["loss_last"], first, last))
        placed = {kind: got["%s_pieces" % kind] for kind in ("table", "row", "column") if got.get("%s_pieces" % kind)}
        check(placed == line.get("pieces", {}), "%s: pieces %s, PyTorch's %s" % (what, placed, line.get("pieces")))


def check_ranks(pythons):
    """fsdp computes what ddp does, in both versions, and natively; dlrm-sharded the same wherever its tables are, and natively."""
    with tempfile.TemporaryDirectory() as scratch:
        shim = os.path.join(scratch, "shim")
        os.mkdir(shim)
        with open(os.path.join(shim, "upgate.py"), "w", encoding="utf-8") as file:
            file.write(torch_models.RECORDER)
        words = COMMON + ["--ranks", "2"]
        new = pythons[0][0]
        runs = {"ddp": torch_models.Run(new, shim, "ddp", words), "fsdp": torch_models.Run(new, shim, "fsdp", words),
                "fsdp old": torch_models.Run(pythons[-1][0], shim, "fsdp", words)}
        for budget in ("80000", "36800", "31000", "1000"):
            runs["sharded " + budget] = torch_models.Run(pythons[-1][0], shim, "dlrm-sharded", words + ["--budget", budget])
        for run in runs.values():
            run.wait()
        too_small = runs.pop("sharded 1000")
        check(too_small.status != 0 and "the tables take" in too_small.stderr, "a budget that is too small: " + too_small.stderr[-600:])
        for name, run in runs.items():
            if not run.good(2):
                return
        for name in ("fsdp", "fsdp old"):
            worst = max(abs(a - b) for a, b in zip(runs["ddp"].losses(), runs[name].losses()))
            check(worst < 1e-5, "%s: losses off ddp's by %g" % (name, worst))
        lines = {name: json.loads(run.stdout.splitlines()[-1]) for name, run in runs.items()}
        for name in ("ddp", "fsdp"):
            check_native_ranks(name, 2, lines[name])
        for budget in ("80000", "36800", "31000"):
            check_native_ranks("dlrm-sharded", 2, lines["sharded " + budget], "--budget", budget)
        pieces = [lines["sharded " + budget]["pieces"] for budget in ("80000", "36800", "31000")]
        check([sorted(kinds) for kinds in pieces] == [["table"], ["row", "table"], ["column", "row", "table"]], "placements: %s" % pieces)
        for budget in ("36800", "31000"):
            worst = max(abs(a - b) for a, b in zip(runs["sharded 80000"].losses(), runs["sharded " + budget].losses()))
            check(worst < 2e-6, "dlrm-sharded, budget %s: losses off by %g" % (budget, worst))


def main():
    with tempfile.TemporaryDirectory() as scratch:
        shim = os.path.join(scratch, "shim")
        os.mkdir(shim)
        pythons = torch_models.interpreters(shim)
        if not pythons:
            print("skipped: no interpreter here has torch; ci/setup --envs makes two")
            return 77
        started, results = [(version, drive(python, scratch)) for python, version in pythons], {}
        for version, process in started:
            lines = [json.loads(line) for line in process.stdout if line.startswith("{")]
            results[version] = {run["name"]: run for run in lines if "name" in run}
            print("torch %s: %d launches, %.0f s" % (version, len(results[version]), sum(r["seconds"] for r in results[version].values())), flush=True)
            check(process.wait() == 0 and len(results[version]) == len(cases()), "torch %s: the driver ended with %s" % (version, process.returncode))
            if len(results[version]) == len(cases()):
                check_version(version, results[version])
                check_skips_and_plants(version, results[version])
        versions = list(results)
        alone = results[versions[0]].get("transformer train") if versions else None
        if alone and len(alone["losses"]) == 10:
            line = {"loss_first": alone["losses"][0], "loss_last": alone["losses"][-1]}
            check_native_ranks("ddp", 1, line)  # of one rank it is the transformer
        for model in TRAINED:
            for version in versions[1:]:
                one, other = results[versions[0]].get("%s train" % model), results[version].get("%s train" % model)
                check(one and other and off(one, other) < EXACT, "%s: torch %s and %s have the same losses" % (model, versions[0], version))
        check_native(results)
        check_ranks(sorted(pythons, key=lambda one: -int(one[1].split(".")[0])))
    print("%d failures" % len(failures) if failures else "all good")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
