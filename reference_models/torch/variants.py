# SPDX-License-Identifier: Apache-2.0
"""The paths by which PyTorch runs a model, as --variant names them: what each needs, and what it makes of one.

Reads the model and one batch; returns what is called in its place. A path that this version, device or
model does not have is no failure: the process says "skipped: REASON" and ends with status 77, which
`upgate ab` reports. In float64 every path is eager: that run is the yardstick of the others, and rounds nothing.
"""
import faulthandler
import importlib
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
import time
import warnings

import torch
import upgate

SKIPPED_STATUS = 77
SERVING = ("export", "aotinductor", "aotinductor-native", "fx-int8")  # of inference only
COMPILE_MODES = {"compile": "default", "compile-reduce-overhead": "reduce-overhead", "compile-max-autotune": "max-autotune"}
ENGINES = ("x86", "fbgemm", "onednn", "qnnpack")  # of quantised operators, the first one there
SCRIPT_CALLS = 16   # a profiling executor has optimised by then
# What the serving graph's scores may be off those of the training graph, in units of their rms.
# A GPU computes products in TF32, and which kernel does depends on the graph. Those of Triton, among which max-autotune chooses, cut the operands'
# last bits off where cuBLAS and cuDNN round: each layer's values are a little less, and that adds up over the layers, not as a random error.
SERVE_ERROR_CUT = 0.03
TUNES = ("TORCHINDUCTOR_MAX_AUTOTUNE", "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM")  # variables of a side: its other graphs choose so, too
SERVE_ERROR, SERVE_ERROR_CUDA, SERVE_ERROR_LOW = 1e-4, 3e-3, {"amp-bf16": 0.05, "amp-fp16": 0.05, "fx-int8": 0.25}
FIRST_SCALE = 1024.0  # of gradients in float16; torch begins with 65536, and leaves out steps until it has come down


def outside_of_graphs(args, module):
    """A part of a model that the compiler is not to see: it has no sparse gradients."""
    if args.variant in COMPILE_MODES and hasattr(torch, "compile"):
        from torch import _dynamo
        module.forward = _dynamo.disable(module.forward)


def skip(reason):
    sys.stderr.write("skipped: %s\n" % reason)
    sys.stderr.flush()
    os._exit(SKIPPED_STATUS)  # nothing has begun; a rank that waits for others would not end


def version():
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def _name():
    return "torch %d.%d" % version()


def _lack_of_compiler(what):
    if not (shutil.which("g++") or shutil.which("clang++") or os.environ.get("CXX")):
        return "%s needs a C++ compiler, and there is none" % what
    return ""


def _lack_of_triton(what):
    """What makes kernels for a GPU, and, in C, what launches them."""
    if importlib.util.find_spec("triton") is None:
        return "%s on CUDA needs triton, and there is none" % what
    if not (shutil.which("gcc") or shutil.which("clang") or os.environ.get("CC")):
        return "%s on CUDA needs a C compiler, with which triton makes its launchers, and there is none" % what
    return ""


def _lack_of_toolkit(what):
    """A package for a GPU is a C++ program over the toolkit's headers, which no wheel of torch has."""
    try:
        from torch.utils import cpp_extension
    except ImportError as error:
        return "%s on CUDA needs torch.utils.cpp_extension: %s" % (what, error)
    if not cpp_extension.CUDA_HOME:
        return "%s on CUDA needs the headers of a CUDA toolkit: CUDA_HOME is not set, and there is no nvcc" % what
    return ""


def _lack_of_compile(args):
    if not hasattr(torch, "compile"):
        return "%s has no torch.compile" % _name()
    if args.variant == "compile-reduce-overhead" and args.device == "cpu":
        return "reduce-overhead is CUDA graphs, and this run is on the CPU"
    return _lack_of_compiler("torch.compile on the CPU") if args.device == "cpu" else _lack_of_triton("torch.compile")


def _lack_of_amp(args):
    if args.variant == "amp-fp16" and args.device == "cpu" and version() < (2, 3):
        return "autocast of %s has no float16 on the CPU" % _name()
    return ""


def lack(args, work_lacks):
    """'' or the sentence that says why this variant is not run. work_lacks: of the model, variant -> reason."""
    variant = args.variant
    if variant in SERVING and args.mode != "infer":
        return "%s is of inference: mode infer" % variant
    if variant in COMPILE_MODES:
        reason = _lack_of_compile(args)
    elif variant in ("amp-bf16", "amp-fp16"):
        reason = _lack_of_amp(args)
    elif variant == "cuda-graphs":
        reason = "" if args.device == "cuda" else "CUDA graphs need a CUDA device"
    elif variant == "export":
        reason = "" if hasattr(torch, "export") else "%s has no torch.export" % _name()
    elif variant in ("aotinductor", "aotinductor-native"):
        reason = _lack_of_packages() or _lack_of_compiler("AOTInductor")
        if args.device == "cuda" and not reason:
            reason = _lack_of_triton("AOTInductor") or _lack_of_toolkit("AOTInductor")
        if variant == "aotinductor-native" and not reason:
            import aoti_native
            reason = aoti_native.lack(args.name)
    elif variant == "torchrec":
        import torchrec_tables
        reason = torchrec_tables.lack(args, version())
    elif variant == "fx-int8":
        reason = "int8 of fx runs on CPUs" if args.device != "cpu" else _lack_of_int8()
    else:
        reason = ""
    return reason or work_lacks.get((variant, args.mode), "") or work_lacks.get(variant, "")


def _lack_of_dynamic(args, dynamic):
    """Before 2.6 export wants to be told by which rule lengths change from batch to batch, and ids in bags follow none."""
    if args.variant not in ("export", "aotinductor", "aotinductor-native") or not dynamic or hasattr(getattr(torch.export, "Dim", None), "AUTO"):
        return ""
    return "%s's bags differ from batch to batch, and export of %s finds no changing lengths by itself (Dim.AUTO)" % (args.name, _name())


def _lack_of_packages():
    inductor = hasattr(torch, "compile") and importlib.import_module("torch._inductor")
    return "" if hasattr(inductor, "aoti_compile_and_package") else "%s has no packages of AOTInductor" % _name()


def _lack_of_int8():
    try:
        from torch.ao.quantization import quantize_fx  # noqa: F401
    except ImportError:
        return "%s has no torch.ao.quantization.quantize_fx" % _name()
    return "" if set(ENGINES) & set(torch.backends.quantized.supported_engines) else "no engine for int8 in this build"


# ---- compiled graphs, and how long they took ------------------------------------------------------

class Compiles:
    """Counts what torch.compile does in this process. A graph is one that the compiler was handed: those of the first
    step are the model's, each later one is a recompile (another shape, a guard that failed, a cache thrown away)."""

    def __init__(self):
        self._first, self._began_ns, self._depth, self.total_ns, self.timed = None, 0, 0, 0, False
        self._frames = 0
        try:
            from torch._dynamo import callback
            callback.on_compile_start(self._start)
            callback.on_compile_end(self._end)
            self.timed = True
        except (ImportError, AttributeError):
            pass  # before 2.4: the time is part of the first step, and not told

    def _start(self, *_):
        if self._depth == 0:
            self._began_ns = time.perf_counter_ns()
        self._depth += 1

    def _end(self, *_):
        self._depth -= 1
        if self._depth == 0:
            self.total_ns += time.perf_counter_ns() - self._began_ns

    @staticmethod
    def graphs():
        from torch._dynamo.utils import counters
        return counters["stats"]["unique_graphs"]

    def after_step(self):
        if self._first is None:
            self._first = self.graphs()

    def note(self):
        graphs = self.graphs()
        upgate.note("compiled_graphs", graphs)
        upgate.note("recompiles", graphs - (self._first or 0))
        if self.timed:
            upgate.note("compile_time_ns", self.total_ns)


# ---- each path -------------------------------------------------------------------------------------

class _Watchdog:
    """The profiling executor of TorchScript has hung for people in the calls in which it optimises: those of the first steps
    may take so long, then every thread's stack is printed and the process ends. A harness that waits for the
    timeout of a launch would not know where it hung."""

    def __init__(self, call, seconds, plant):
        self._call, self._seconds, self._left = call, seconds, SCRIPT_CALLS
        self._deadlock = threading.Lock() if "jitdeadlock" in plant.flags else None

    def __call__(self, *batch):
        if not self._left:
            return self._call(*batch)
        self._left -= 1
        faulthandler.dump_traceback_later(self._seconds, exit=True)
        if self._deadlock:  # planted: the second call waits for a lock that the first one kept
            self._deadlock.acquire()
        try:
            return self._call(*batch)
        finally:
            faulthandler.cancel_dump_traceback_later()


def _torchscript(args, model, example):
    if "noscript" in args.plant.flags:
        return model
    if "nofuser" in args.plant.flags:
        torch._C._jit_set_texpr_fuser_enabled(False)
        if hasattr(torch._C, "_jit_set_nvfuser_enabled"):
            torch._C._jit_set_nvfuser_enabled(False)
    traced = torch.jit.trace(model, tuple(example), check_trace=False)
    if args.mode == "infer":
        traced = torch.jit.freeze(traced)
    return _Watchdog(traced, args.watchdog, args.plant)


class _Graph:
    """One CUDA graph of a request: inputs are copied into those that it was captured with."""

    def __init__(self, model, example):
        self._inputs = [value.clone() for value in example]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(*self._inputs)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._output = model(*self._inputs)

    def __call__(self, *batch):
        for kept, value in zip(self._inputs, batch):
            kept.copy_(value)
        self._graph.replay()
        return self._output


def _cuda_graphs(args, model, example):
    if args.mode == "infer":
        with torch.no_grad():
            return _Graph(model, example)
    return torch.cuda.make_graphed_callables(model, tuple(example))


def _exported(model, example, dynamic):
    shapes = {"dynamic_shapes": dynamic(torch.export.Dim)} if dynamic else {}  # export of 2.1 has no such word
    with torch.no_grad():
        return torch.export.export(model, tuple(example), **shapes)


def _package(model, example, dynamic, path):
    from torch import _inductor
    return _inductor.aoti_compile_and_package(_exported(model, example, dynamic), package_path=path)


def _aotinductor(model, example, dynamic):
    from torch import _inductor
    directory = tempfile.mkdtemp(prefix="upgate_aoti_")
    try:
        return _inductor.aoti_load_package(_package(model, example, dynamic, os.path.join(directory, "model.pt2")))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _aotinductor_native(args, model, example, dynamic, scores):
    """Its program holds the scores, serves the requests and says how long what took."""
    from torch.utils import _pytree

    import aoti_native
    # A package reads its inputs by the strides of the example, and the program has them contiguous: the transformer's are part of a longer row.
    example = _pytree.tree_map(lambda value: value.contiguous(), example)
    try:
        native = aoti_native.Native(args, serve_limit(args))
    except OSError as error:
        skip("aotinductor-native cannot use its directory: %s" % error)
    native.compile(lambda path: _package(model, example, dynamic, path), scores)
    return native


def _quantised(model, examples):
    """Every outermost sequence of layers, or where a model has none every linear layer, in int8. Embeddings stay."""
    from torch import nn
    from torch.ao.quantization import get_default_qconfig_mapping, quantize_fx

    engine = next(one for one in ENGINES if one in torch.backends.quantized.supported_engines)
    torch.backends.quantized.engine = engine

    def find(module, kind):
        found = []
        for name, child in module.named_children():
            found += [(module, name, child)] if isinstance(child, kind) else find(child, kind)
        return found

    places, inputs = find(model, nn.Sequential) or find(model, nn.Linear), {}
    hooks = [child.register_forward_pre_hook(lambda module, values: inputs.setdefault(module, values))
             for _, _, child in places]
    with torch.no_grad():
        model(*examples[0])
        for hook in hooks:
            hook.remove()
        mapping = get_default_qconfig_mapping(engine)
        for parent, name, child in places:
            setattr(parent, name, quantize_fx.prepare_fx(child.eval(), mapping, inputs[child]))
        for example in examples:
            model(*example)
        for parent, name, _ in places:
            setattr(parent, name, quantize_fx.convert_fx(getattr(parent, name)))
    return model


def _autocast(args, model):
    dtype = torch.bfloat16 if args.variant == "amp-bf16" else torch.float16

    def call(*batch):
        with torch.autocast(args.device, dtype=dtype):
            return model(*batch)
    return call


def _make(args, model, examples, dynamic):
    variant = args.variant
    if variant in COMPILE_MODES:
        if "nocompile" in args.plant.flags:
            return model
        return torch.compile(model, mode=COMPILE_MODES[variant])
    if variant == "torchscript":
        return _torchscript(args, model, examples[0])
    if variant == "cuda-graphs":
        return _cuda_graphs(args, model, examples[0])
    if variant == "export":
        return _exported(model, examples[0], dynamic).module()
    if variant == "aotinductor":
        return _aotinductor(model, examples[0], dynamic)
    if variant == "fx-int8":
        return _quantised(model, examples)
    if variant == "torchrec":
        import torchrec_tables
        return torchrec_tables.fuse(args, model)
    return _autocast(args, model)


# ---- from training to serving ----------------------------------------------------------------------

def serve_limit(args):
    if args.variant in COMPILE_MODES and "bf16" in args.plant.flags:
        return SERVE_ERROR_LOW["amp-bf16"]  # planted around the whole request
    tunes = args.variant in (*COMPILE_MODES, "aotinductor", "aotinductor-native") and any(os.environ.get(name) == "1" for name in TUNES)
    if args.device == "cuda" and (tunes or args.variant == "compile-max-autotune"):
        return SERVE_ERROR_CUT
    return SERVE_ERROR_LOW.get(args.variant, SERVE_ERROR_CUDA if args.device == "cuda" else SERVE_ERROR)


def _check_serving(args, served, scores):
    """The serving graph gives the scores of the training graph; else nothing that it serves is worth measuring."""
    served = served.float()
    if "serveskew" in args.plant.flags:
        served = served * 1.5
    scale = scores.double().pow(2).mean().sqrt().item() or 1.0
    error = (served.double() - scores.double()).pow(2).mean().sqrt().item() / scale
    limit = serve_limit(args)
    upgate.note("serve_error_ppb", int(min(error, 1e6) * 1e9) if error == error else 1 << 60)
    if not error <= limit:
        sys.stderr.write("%s: the scores of the serving graph (%s) are %.2g of their rms off those of the training graph; at "
                         "most %g\n" % (args.name, args.variant, error, limit))
        sys.exit(1)


class _CheckedOnce:
    """A graph that is compiled in its first call, which is the first request's: its answer is held against the model's before anybody has it. No
    other call would do: what it compiles for, lengths and inference mode with it, is what a first request has."""

    def __init__(self, args, call, model):
        self._args, self._call, self._model = args, call, model

    def __call__(self, *batch):
        served = self._call(*batch)
        if self._model is not None:
            model, self._model = self._model, None
            _check_serving(self._args, served, model(*batch))
        return served


def check(args, work_lacks=None):
    """Ends the process where this variant is not run, before a model is made. work_lacks: as in lack()."""
    if args.device == "auto":
        args.device = "cuda" if torch.cuda.is_available() else "cpu"
    reason = "" if args.dtype == "float64" else lack(args, work_lacks or {})
    if reason:
        skip(reason)


def prepare(args, model, examples, dynamic=None, lacks=None):
    """What is called in place of the model. examples: batches as the model takes them, the first of them for what is traced;
    dynamic: for export, what of them changes from batch to batch, as a function of torch.export.Dim."""
    args.compiles, args.scaler, args.native = None, None, None
    if args.variant == "eager" or args.dtype == "float64":
        return model
    reason = lack(args, lacks or {}) or _lack_of_dynamic(args, dynamic)
    if reason:
        skip(reason)
    scores = None
    if args.mode == "infer" and args.variant not in COMPILE_MODES:
        with torch.enable_grad():  # as in training
            scores = model(*examples[0]).detach()
    begin = time.perf_counter_ns()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecation, by the hundred
        if args.variant in COMPILE_MODES:
            args.compiles = Compiles()
        if args.variant == "aotinductor-native":
            args.native = _aotinductor_native(args, model, examples[0], dynamic, scores)
            return args.native
        call = _make(args, model, examples, dynamic)
    if args.variant == "amp-fp16" and args.device == "cuda" and args.mode == "train":
        args.scaler = torch.cuda.amp.GradScaler(init_scale=FIRST_SCALE)
    if args.variant not in COMPILE_MODES:
        if args.variant not in ("amp-bf16", "amp-fp16"):
            upgate.note("compile_time_ns", time.perf_counter_ns() - begin)
        if scores is not None:
            with torch.no_grad():
                served = call(*examples[0])
            _check_serving(args, served, scores)
    elif args.mode == "infer":
        call = _CheckedOnce(args, call, model)
    if "flopcounter" in args.plant.flags:
        return _under_dispatch_mode(call)
    return call


def _under_dispatch_mode(call):
    """Planted: a counter of operations that somebody left on. What was compiled runs operator by operator again."""
    from torch.utils.flop_counter import FlopCounterMode

    def counted(*batch):
        with FlopCounterMode(display=False):
            return call(*batch)
    return counted
