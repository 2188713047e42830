#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the PyTorch workloads skip or refuse on a GPU, with a torch that is a few names: paths whose compilers, headers or version a side lacks are
skipped with the reason, not ended by a traceback of the framework; more ranks than GPUs are refused, before they look for each other; a compiled graph whose
scores are not its model's is refused. tests/e2e/torch_variants.py has what a CPU and a real torch can show."""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(HERE))
MODELS = os.path.join(SOURCE, "reference_models", "torch")
LIMIT_S = 60
failures = []

TORCH = '''
import sys, types
__version__ = "2.6.0"
def module(name, **names):
    made = sys.modules[name] = types.ModuleType(name)
    vars(made).update(names)
    return made
compile = lambda model: model
_inductor = module("torch._inductor", aoti_compile_and_package=lambda *_, **__: None)
utils = module("torch.utils")
utils.cpp_extension = module("torch.utils.cpp_extension", CUDA_HOME=None)
export = module("torch.export", Dim=types.SimpleNamespace(AUTO="auto"))
module("upgate")
'''

# Each thing that is missing by itself, then none: of torch.compile and of packages, on a GPU and on a CPU.
COMPILERS = '''
import os, sys, types
import variants
torch = variants.torch
tools, site = sys.argv[1:]
def lack(variant, device):
    return variants.lack(types.SimpleNamespace(variant=variant, device=device, mode="infer", name="hstu"), {})
def tool(name):
    with open(os.path.join(tools, name), "w") as file:
        file.write("#!/bin/sh\\n")
    os.chmod(file.name, 0o755)
assert lack("compile", "cpu") == "torch.compile on the CPU needs a C++ compiler, and there is none", lack("compile", "cpu")
for device in ("cpu", "cuda"):
    assert lack("aotinductor", device) == "AOTInductor needs a C++ compiler, and there is none", lack("aotinductor", device)
tool("g++")
assert lack("compile", "cpu") == lack("aotinductor", "cpu") == ""
for variant, what in (("compile", "torch.compile"), ("compile-reduce-overhead", "torch.compile"), ("aotinductor", "AOTInductor")):
    assert lack(variant, "cuda") == what + " on CUDA needs triton, and there is none", lack(variant, "cuda")
open(os.path.join(site, "triton.py"), "w").close()
variants.importlib.invalidate_caches()
for variant in ("compile", "aotinductor"):
    assert "needs a C compiler, with which triton" in lack(variant, "cuda"), lack(variant, "cuda")
tool("gcc")
assert lack("compile", "cuda") == "", lack("compile", "cuda")
assert "the headers of a CUDA toolkit: CUDA_HOME is not set" in lack("aotinductor", "cuda"), lack("aotinductor", "cuda")
torch.utils.cpp_extension.CUDA_HOME = "/usr/local/cuda"
assert lack("aotinductor", "cuda") == "", lack("aotinductor", "cuda")
print("compilers are asked for")
'''

# Lengths that change from batch to batch; and export as 2.1 has it, which takes no dynamic_shapes.
EXPORT = '''
import contextlib, types
import variants
torch = variants.torch
torch.no_grad = contextlib.nullcontext
asked = []
torch.export.export = lambda model, example: asked.append((model, example))
variants._exported("model", ["example"], None)
assert asked == [("model", ("example",))], asked
args = types.SimpleNamespace(name="dlrm", variant="export", mode="infer", device="cpu", dtype="float32")
changes = lambda dim: dim.AUTO
assert variants._lack_of_dynamic(args, changes) == variants._lack_of_dynamic(args, None) == ""
torch.export.Dim, torch.__version__ = object(), "2.4.1"
assert variants._lack_of_dynamic(args, None) == ""
def skip(reason):
    raise SystemExit("skipped: " + reason)
variants.skip = skip
try:
    variants.prepare(args, lambda batch: batch, [("example",)], changes)
except SystemExit as end:
    assert str(end) == "skipped: dlrm's bags differ from batch to batch, and export of torch 2.4 finds no changing lengths by itself (Dim.AUTO)", end
    print("export is skipped")
'''

# A compiled graph is held against its model in the first request, and only there; in training it is not. Scores are numbers.
COMPILED = '''
import contextlib, os, types
for name in ("TORCHINDUCTOR_MAX_AUTOTUNE", "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM"):
    os.environ.pop(name, None)
import variants
class Score(float):
    def float(self):
        return self
    double = mean = item = float
    def pow(self, power):
        return Score(float(self) ** power)
    def sqrt(self):
        return Score(float(self) ** 0.5)
    def __sub__(self, other):
        return Score(float(self) - float(other))
    def __mul__(self, other):
        return Score(float(self) * float(other))
torch, notes, eager, skew = variants.torch, [], [], 1.0
torch.no_grad, torch.compile = contextlib.nullcontext, lambda model, mode: lambda x: x * skew
variants.upgate.note, variants.lack = lambda *note: notes.append(note), lambda *_: ""
def model(x):
    eager.append(x)
    return x
def prepared(mode, *plants, variant="compile", device="cpu"):
    del notes[:], eager[:]
    return variants.prepare(types.SimpleNamespace(name="hstu", variant=variant, mode=mode, device=device, dtype="float32",
                                                  plant=types.SimpleNamespace(flags=set(plants))), model, [(Score(2),)])
def refused(call):
    try:
        return call(Score(3)) and False
    except SystemExit as end:
        return end.code == 1 and notes[0][1] > 1e5
call = prepared("infer")
assert not eager and not notes, "nothing is compiled yet"
assert call(Score(3)) == 3 and eager == [3] and notes == [("serve_error_ppb", 0)], (eager, notes)
skew = 1.5
assert call(Score(3)) == 4.5 and eager == [3], "it is asked once"
assert refused(prepared("infer"))
skew = 1 + 2e-4
assert refused(prepared("infer"))
assert prepared("train")(Score(3)) == 3 * skew and not eager and not notes
skew = 1 + 5e-5
assert prepared("infer")(Score(3)) == 3 * skew and 4.9e4 < notes[0][1] < 5.1e4, notes
assert refused(prepared("infer", "serveskew"))
skew = 1.01
assert prepared("infer", "bf16")(Score(3)) == 3 * skew, "that is what a plant of bfloat16 is"
skew = 1.012
assert prepared("infer", variant="compile-max-autotune", device="cuda")(Score(3)) == 3 * skew, "products in TF32 that are cut, layer by layer"
assert refused(prepared("infer", device="cuda")) and refused(prepared("infer", variant="compile-reduce-overhead", device="cuda"))
assert refused(prepared("infer", variant="compile-max-autotune"))
os.environ["TORCHINDUCTOR_MAX_AUTOTUNE_GEMM"] = "1"
assert prepared("infer", device="cuda")(Score(3)) == 3 * skew and refused(prepared("infer"))
skew = 1.05
assert refused(prepared("infer", variant="compile-max-autotune", device="cuda"))
print("compiled graphs are held against their models")
'''

# One of two ranks, as torchrun starts it. argv: how many GPUs torch sees.
RANKS = '''
import os, sys, types
import cli, ranks, torch
gpus = int(sys.argv[3])
torch.module("common", open_device=lambda args: setattr(args, "device", sys.argv[4]))
torch.cuda = types.SimpleNamespace(device_count=lambda: gpus, set_device=lambda gpu: print("GPU", gpu))
def meet(backend):
    raise SystemExit("met by " + backend)
torch.distributed = torch.module("torch.distributed", init_process_group=meet)
os.environ.update(RANK="1", LOCAL_RANK="1", WORLD_SIZE="2")
ranks.run(cli.arguments("ddp", ["--ranks", "2"]), None)
'''


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAIL " + what, flush=True)


def run(text, *words):
    """Status, lines of stdout, stderr. The arguments of the program: an empty directory that is all of PATH, that of the torch, words."""
    with tempfile.TemporaryDirectory() as directory:
        tools, site = os.path.join(directory, "bin"), os.path.join(directory, "site")
        os.makedirs(os.path.join(site, "torch"))
        os.mkdir(tools)
        with open(os.path.join(site, "torch", "__init__.py"), "w", encoding="utf-8") as file:
            file.write(TORCH)
        environment = dict(os.environ, PYTHONPATH=MODELS + os.pathsep + site, PYTHONDONTWRITEBYTECODE="1", PYTHONNOUSERSITE="1", PATH=tools)
        for name in ("CC", "CXX", "CUDA_HOME", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            environment.pop(name, None)
        # -S: this interpreter may have a triton of its own.
        done = subprocess.run([sys.executable, "-S", "-c", text, tools, site, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, timeout=LIMIT_S)
        return done.returncode, done.stdout.splitlines(), done.stderr


def main():
    for text, said in ((COMPILERS, "compilers are asked for"), (EXPORT, "export is skipped"),
                       (COMPILED, "compiled graphs are held against their models")):
        status, out, err = run(text)
        check(status == 0 and out == [said], "%s: %s, %s, %s" % (said, status, out, err[-1500:]))
    for gpus, device, wanted in (("1", "cuda", (2, [], "argument --ranks: 2 ranks need a GPU each, and torch sees 1; --device cpu needs none;")),
                                 ("2", "cuda", (1, ["GPU 1"], "met by nccl")), ("1", "cpu", (1, [], "met by gloo"))):
        status, out, err = run(RANKS, gpus, device)
        check((status, out) == wanted[:2] and wanted[2] in err and err.count("\n") == 1, "two ranks, %s GPUs, on %s: %s, %s, %s" % (
            gpus, device, status, out, err[-1500:]))
    print("%d failures" % len(failures) if failures else "all good")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
