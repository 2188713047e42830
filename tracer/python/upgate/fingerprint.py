# SPDX-License-Identifier: Apache-2.0
"""What an interpreter can say about itself: the Python part of a side's fingerprint.

collect() runs inside the workload's own process and returns a dict that json.dumps() takes. It reads
what is already loaded and never imports a framework, starts a device context or changes a setting: the
observed process must go on as if nobody had looked. Every item is read alone; one that fails is None and
its reason stands under "missing". Run as a program (`python fingerprint.py [--import torch …]`) it is the
probe of `upgate env`: it imports the named modules where they are installed, prints one marked line of
JSON and holds still until its stdin ends, so that the live process can be read from outside.

Plain Python 3.8 and the standard library only. Nothing here compares or ranks; harness/fingerprint does.
"""

import json
import os
import re
import sys
import time

SCHEMA = "upgate.python_fingerprint/1"
PROBE_MARK = "UPGATE-FINGERPRINT "
PROBE_HOLD_SECONDS = 30  # a probe whose reader vanished ends by itself
FRAMEWORKS = ("torch", "jax", "tensorflow", "numpy")
REASON_CHARACTERS_MAX = 200
_SECRET = re.compile(rb"TOKEN(?!IZERS_)|SECRET|PASS|KEY|CRED|AUTH|COOKIE", re.IGNORECASE)
PACKAGES_MAX = 5000


class _Absent(Exception):
    """The item does not exist in this version; the text says so."""


class _Items:
    """Collects values by dotted path. An item that raises becomes None, with the reason kept."""

    def __init__(self):
        self.root = {}
        self.missing = {}

    def put(self, path, value):
        node = self.root
        keys = path.split(".")
        for key in keys[:-1]:
            node = node.setdefault(key, {})
        node[keys[-1]] = value

    def read(self, path, function):
        try:
            value = _plain(function())
        except BaseException as error:  # a framework may raise anything, SystemExit included
            if isinstance(error, KeyboardInterrupt):
                raise
            self.missing[path] = _reason(error)
            value = None
        self.put(path, value)
        return value

    def read_all(self, prefix, table):
        for name, function in table:
            self.read(prefix + "." + name if prefix else name, function)


def _reason(error):
    if isinstance(error, (AttributeError, _Absent)):
        text = "not in this version: %s" % error
    else:
        text = "%s: %s" % (type(error).__name__, error)
    return " ".join(text.split())[:REASON_CHARACTERS_MAX]


def _plain(value):
    """The value as JSON has it: bool, int, float, str, list, dict or None; anything else as text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value == value and value not in (float("inf"), -float("inf")) else str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    # Enums print as "<_LinalgBackend.Default: 0>" or "_LinalgBackend.Default"; the name is what counts.
    match = re.match(r"<?_\w+\.(\w+)(?:: -?\w+>)?$", str(value))
    return match.group(1) if match else str(value)


def _loaded(name):
    module = sys.modules.get(name)
    if module is None:
        raise _Absent("module %s is not loaded" % name)
    return module


# --- the interpreter ---------------------------------------------------------------------------------


def _gil_enabled():
    function = getattr(sys, "_is_gil_enabled", None)
    return True if function is None else bool(function())


def _jit_enabled():
    jit = getattr(sys, "_jit", None)
    return False if jit is None else bool(jit.is_enabled())


def _collect_interpreter(items):
    import gc
    import platform
    import sysconfig

    variable = sysconfig.get_config_var
    items.read_all(
        "interpreter",
        (
            ("implementation", platform.python_implementation),
            ("version", platform.python_version),
            ("compiler", platform.python_compiler),
            ("build", lambda: " ".join(platform.python_build())),
            ("executable", lambda: sys.executable),
            ("prefix", lambda: sys.prefix),
            ("base_prefix", lambda: sys.base_prefix),
            ("free_threaded", lambda: bool(variable("Py_GIL_DISABLED"))),
            ("gil_enabled", _gil_enabled),
            ("jit_enabled", _jit_enabled),
            ("debug", lambda: hasattr(sys, "gettotalrefcount")),
            ("pgo", lambda: "--enable-optimizations" in (variable("CONFIG_ARGS") or "")),
            ("lto", lambda: "--with-lto" in (variable("CONFIG_ARGS") or "")),
            ("optimisation", lambda: _last_optimisation(variable("PY_CFLAGS"))),
            ("shared_library", lambda: bool(variable("Py_ENABLE_SHARED"))),
            ("cflags", lambda: variable("CONFIGURE_CFLAGS") or variable("CFLAGS")),
            ("flags", lambda: {name: getattr(sys.flags, name) for name in
                               ("debug", "optimize", "dev_mode", "utf8_mode", "no_site", "isolated")}),
            ("malloc", lambda: os.environ.get("PYTHONMALLOC", "default")),
            ("options", lambda: " ".join(sorted(name if value is True else "%s=%s" % (name, value)
                                                for name, value in sys._xoptions.items())) or "none"),
            ("tracemalloc", _tracemalloc),
            ("start_method", _start_method),
            ("switch_interval_seconds", sys.getswitchinterval),
        ),
    )
    items.read_all(
        "gc",
        (
            ("enabled", gc.isenabled),
            ("threshold", gc.get_threshold),
            ("frozen", lambda: gc.get_freeze_count() > 0),
        ),
    )
    items.read("environment_changes", _environment_changes)
    items.read("interpreter.profiled", _profiled)
    items.read("interpreter.site_modules", _site_modules)
    items.read("interpreter.foreign_libraries", _foreign_libraries)
    items.read("nccl_files", _nccl_files)


def _profiled():
    """Does every call, line or return run a hook? Not upgate's own, by which it finds a step that the user has named."""
    if any(not str(getattr(hook, "__module__", "")).startswith("upgate.") for hook in (sys.getprofile(), sys.gettrace())
           if hook is not None):
        return True
    monitoring = getattr(sys, "monitoring", None)  # since 3.12, where cProfile and coverage set no hook
    return monitoring is not None and any(monitoring.get_tool(tool) not in (None, "upgate") and monitoring.get_events(tool) != 0
                                          for tool in range(6))


def _site_modules():
    """Code that the environment runs before every program, with the sum of its text: "sitecustomize 1c291ca3"."""
    found = []
    for name in ("sitecustomize", "usercustomize"):
        module = sys.modules.get(name)
        path = getattr(module, "__file__", None)
        if path and not hasattr(module, "_run_next"):  # which is upgate's own
            import zlib

            with open(path, "rb") as stream:
                found.append("%s %08x" % (name, zlib.crc32(stream.read())))
    return ", ".join(found) or "none"


def _tracemalloc():
    import _tracemalloc

    return _tracemalloc.is_tracing()


def _start_method():
    """How workers of data loaders begin, where the program has not said it itself; nothing is fixed by asking."""
    processes = sys.modules.get("multiprocessing")
    if processes is None:
        return None
    return processes.get_start_method(allow_none=True) or processes.get_all_start_methods()[0]


def _nccl_files():
    """NCCL's settings that are in no variable: /etc/nccl.conf of the machine or image, and the user's."""
    settings = []
    for path in ("/etc/nccl.conf", os.path.expanduser("~/.nccl.conf")):
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as stream:
                settings += [line.strip() for line in stream.read(4096).splitlines() if "=" in line and line.strip()[0] != "#"]
    return " ".join(settings) or "none"


def _same_file(left, right):
    try:
        return os.path.samefile(left, right)
    except OSError:
        return False


def _foreign_libraries():
    """Loaded libraries that lie among the packages of another environment: found first by LD_LIBRARY_PATH or an RPATH."""
    mapped = set()
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as stream:
        for line in stream:
            match = re.search(r" (/.*?/(?:site|dist)-packages/)(.*\.so.*)", line)
            if match and not line.endswith(" (deleted)\n"):  # replaced meanwhile: another file has its name
                mapped.add(match.groups())
    return sorted(root + rest for root, rest in mapped
                  if not any(_same_file(os.path.join(directory, rest), root + rest) for directory in sys.path))


def _environment_changes():
    """Variables that the program set, changed (text) or removed (None) since it started. The receiver
    keeps those on its list only; what is plainly a secret does not even leave the process."""
    with open("/proc/self/environ", "rb") as stream:
        entries = stream.read().split(b"\0")
    start = dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)
    now = dict(os.environb)
    changes = {}
    for name in set(start) | set(now):
        if start.get(name) != now.get(name) and not _SECRET.search(name):
            value = now.get(name)
            changes[name.decode("utf-8", "replace")] = (None if value is None
                                                        else value.decode("utf-8", "replace"))
    return changes


def _last_optimisation(flags):
    levels = re.findall(r"(?:^|\s)(-O\w*)", flags or "")
    return levels[-1] if levels else None


# --- packages ----------------------------------------------------------------------------------------


def _read_line(*parts):
    with open(os.path.join(*parts), encoding="utf-8", errors="replace") as stream:
        return stream.readline().strip()


def _git_commit(directory):
    """The commit that is checked out in a source tree, by the files of git; None: it is in no repository, or not told."""
    while not os.path.exists(os.path.join(directory, ".git")):
        if os.path.dirname(directory) == directory:
            return None
        directory = os.path.dirname(directory)
    try:
        git = os.path.join(directory, ".git")
        if os.path.isfile(git):  # of a worktree: "gitdir: PATH"
            git = os.path.join(directory, _read_line(git).partition(": ")[2])
        head = _read_line(git, "HEAD")
        if not head.startswith("ref: "):
            return head
        name = head[len("ref: "):]
        shared = git
        if os.path.exists(os.path.join(git, "commondir")):
            shared = os.path.join(git, _read_line(git, "commondir"))
        if os.path.exists(os.path.join(shared, name)):
            return _read_line(shared, name)
        with open(os.path.join(shared, "packed-refs"), encoding="utf-8", errors="replace") as stream:
            return next((line.split()[0] for line in stream if line.split()[1:] == [name]), None)
    except OSError:
        return None


def _source_tree(distribution, direct):
    """Where an editable package lies; None: its files were copied when it was installed."""
    url = direct.get("url") or ""
    if (direct.get("dir_info") or {}).get("editable") and url.startswith("file://"):
        from urllib.parse import unquote

        return unquote(url[len("file://"):])
    # Of `setup.py develop` and older pips: the metadata lies in the tree itself.
    metadata = str(getattr(distribution, "_path", ""))
    tree = os.path.dirname(metadata)
    return tree if metadata.endswith(".egg-info") and os.path.exists(os.path.join(tree, "setup.py")) else None


def _package_version(distribution):
    """The version, with the commit behind it where pip noted one, or a source tree has one: same number, other code."""
    version = distribution.version
    direct = json.loads(distribution.read_text("direct_url.json") or "{}")
    commit = (direct.get("vcs_info") or {}).get("commit_id")
    if commit:
        return "%s (commit %s)" % (version, commit[:12])
    tree = _source_tree(distribution, direct)
    if tree is None:
        return version
    commit = _git_commit(tree)
    return "%s (editable%s)" % (version, ", commit %s" % commit[:12] if commit else "")


def _collect_packages():
    from importlib import metadata

    packages = {}
    for distribution in metadata.distributions():
        try:
            name = distribution.metadata["Name"]
            if not name:
                continue
            name = re.sub(r"[-_.]+", "-", name).lower()
            if name not in packages and len(packages) < PACKAGES_MAX:  # the first on sys.path wins
                packages[name] = _package_version(distribution)
        except Exception:  # one broken dist-info must not hide the others
            continue
    return dict(sorted(packages.items()))


# --- torch -------------------------------------------------------------------------------------------

# torch.nn.attention.SDPBackend, in the numbers torch._C gives them.
_SDP_BACKENDS = {0: "math", 1: "flash", 2: "mem_efficient", 3: "cudnn", 4: "override"}


def _torch_attention(torch):
    """The backends scaled_dot_product_attention may choose from, most preferred first, as one text."""
    functional = sys.modules.get("torch.nn.functional")
    if not hasattr(functional, "scaled_dot_product_attention"):
        return "no scaled_dot_product_attention: composed of matmul and softmax"
    cuda = torch.backends.cuda
    enabled = []
    for name, getter in (("flash", "flash_sdp_enabled"), ("mem_efficient", "mem_efficient_sdp_enabled"),
                         ("math", "math_sdp_enabled"), ("cudnn", "cudnn_sdp_enabled")):
        if hasattr(cuda, getter) and getattr(cuda, getter)():
            enabled.append(name)
    order = getattr(torch._C, "_get_sdp_priority_order", None)
    if order is not None:
        ranked = [_SDP_BACKENDS.get(int(number), str(number)) for number in order()]
        enabled.sort(key=lambda name: ranked.index(name) if name in ranked else len(ranked))
    return ", ".join(enabled) if enabled else "none enabled"


def _torch_fp32(torch):
    """(reader of one precision, name of the API). The legacy getters of 2.9 and later warn once, or
    raise when a program mixed both APIs; the new one does neither, so it is asked wherever it exists."""
    getter = getattr(torch._C, "_get_fp32_precision_getter", None)
    if getter is not None:
        return getter, "fp32_precision"

    def legacy(backend, operation):
        if backend == "cuda" and operation == "matmul":
            return "tf32" if torch._C._get_cublas_allow_tf32() else "none"
        if backend == "cuda" and operation in ("conv", "rnn"):
            return "tf32" if torch._C._get_cudnn_allow_tf32() else "none"
        raise _Absent("no reduced fp32 precision for %s" % backend)

    return legacy, "allow_tf32"


def _reduced(getter, backend, operation):
    """"ieee" and "none" both mean full fp32: one word for both, so that a renamed default is no change."""
    value = getter(backend, operation)
    return "full" if value in ("none", "ieee") else value


def _first(value):
    """From 2.9 the reduction getters return (allowed, allowed with split-K)."""
    return value[0] if isinstance(value, tuple) else value


def _torch_capability(torch, config_text):
    function = getattr(getattr(torch.backends, "cpu", None), "get_cpu_capability", None)
    if function is not None:
        return function()
    match = re.search(r"CPU capability usage: (.+)", config_text)
    if match is None:
        raise _Absent("neither get_cpu_capability nor a line in the build summary")
    return match.group(1).strip()


def _torch_default_device(torch):
    if not hasattr(torch, "get_default_device"):
        raise _Absent("no get_default_device")
    # set_default_device() loads this module; as long as nobody has, the answer is known without a load.
    return torch.get_default_device() if "torch.utils._device" in sys.modules else "cpu"


def _torch_autocast(torch, device):
    if hasattr(torch, "get_autocast_dtype"):
        return torch.get_autocast_dtype(device)
    return torch.get_autocast_gpu_dtype() if device == "cuda" else torch.get_autocast_cpu_dtype()


def parse_torch_config(text):
    """torch.__config__.show() as a dict; a line that is not there is not in the dict."""
    found = {}
    for key, pattern in (
        ("compiler", r"^\s*- ((?:GCC|clang|Clang|MSVC)[^\n]*)"),
        ("mkl", r"Math Kernel Library Version ([\w.]+)"),
        ("mkl_build", r"Math Kernel Library Version [^\n]*Build (\d+)"),
        ("onednn", r"MKL-DNN v([\w.]+)"),
        ("openmp", r"- OpenMP (\d+[^\n]*)"),
        ("cpu_capability", r"CPU capability usage: ([^\n]+)"),
        ("cuda_runtime", r"CUDA Runtime ([\w.]+)"),
        ("cudnn", r"CuDNN ([\w.]+)"),
        ("magma", r"Magma ([\w.]+)"),
        ("nnpack", r"- (NNPACK is enabled)"),
    ):
        match = re.search(pattern, text, re.MULTILINE)
        if match:
            found[key] = match.group(1).strip()
    arch = re.search(r"NVCC architecture flags: ([^\n]+)", text)
    if arch:
        found["cuda_arch"] = " ".join(sorted(set(re.findall(r"sm_\w+|compute_\w+", arch.group(1)))))
    settings = re.search(r"Build settings: (.*)", text, re.DOTALL)
    if settings:
        pairs = dict(re.findall(r"([A-Z][A-Z0-9_]+)=(.*?)(?=, [A-Z][A-Z0-9_]+=|,?\s*$)", settings.group(1),
                                re.DOTALL))
        for key, name in (("BLAS_INFO", "blas"), ("LAPACK_INFO", "lapack"), ("BUILD_TYPE", "build_type"),
                          ("CXX_COMPILER", "cxx_compiler"), ("CXX_FLAGS", "cxx_flags"),
                          ("TORCH_VERSION", "version"), ("COMMIT_SHA", "commit")):
            if key in pairs:
                found[name] = " ".join(pairs[key].split())
        found["optimisation"] = _last_optimisation(pairs.get("CXX_FLAGS"))
        # CMake takes 1, ON and TRUE for the same; so does this comparison.
        same = {"1": "ON", "TRUE": "ON", "YES": "ON", "0": "OFF", "FALSE": "OFF", "NO": "OFF"}
        found["options"] = {key: same.get(value.strip().upper(), value.strip())
                            for key, value in sorted(pairs.items())
                            if key.startswith(("USE_", "PERF_WITH_"))}
    return found


def _collect_torch_gpu(torch, items):
    """Versions are safe to ask. Device facts only if the program has started CUDA already: asking first
    would create its driver state here, and break a later fork()."""
    built = torch.version.cuda or getattr(torch.version, "hip", None)
    items.read("torch.cuda.built", lambda: bool(built))
    if not built:
        return
    items.read_all(
        "torch.cuda",
        (
            ("cudnn_version", lambda: torch.backends.cudnn.version()),
            ("nccl_version", lambda: ".".join(str(part) for part in torch.cuda.nccl.version())),
            ("architectures", lambda: torch._C._cuda_getArchFlags()),
            ("initialised", lambda: torch.cuda.is_initialized()),
        ),
    )
    if not items.root["torch"]["cuda"]["initialised"]:
        return
    items.read_all(
        "torch.cuda",
        (
            ("devices", lambda: [torch.cuda.get_device_name(index)
                                 for index in range(torch.cuda.device_count())]),
            ("capabilities", lambda: ["%d.%d" % torch.cuda.get_device_capability(index)
                                      for index in range(torch.cuda.device_count())]),
            ("preferred_blas", lambda: torch.backends.cuda.preferred_blas_library()),
            ("preferred_linalg", lambda: torch.backends.cuda.preferred_linalg_library()),
            ("allocator", lambda: torch.cuda.get_allocator_backend()),
        ),
    )


_DYNAMO_KEYS = ("suppress_errors", "disable", "recompile_limit", "cache_size_limit",
                "accumulated_recompile_limit", "dynamic_shapes", "assume_static_by_default",
                "automatic_dynamic_shapes", "capture_scalar_outputs", "optimize_ddp", "verify_correctness")
_INDUCTOR_KEYS = ("max_autotune", "max_autotune_gemm", "max_autotune_gemm_backends",
                  "coordinate_descent_tuning", "epilogue_fusion", "freezing", "cpp_wrapper", "compile_threads",
                  "fx_graph_cache", "fx_graph_remote_cache", "force_disable_caches", "fallback_random",
                  "emulate_precision_casts", "aggressive_fusion", "triton.cudagraphs",
                  "triton.cudagraph_trees", "triton.autotune_cublasLt", "cpp.threads", "cpp.simdlen",
                  "cpp.enable_kernel_profile", "cpp.dynamic_threads")


def _collect_torch_compile(torch, items):
    items.read("torch.compile.available", lambda: hasattr(torch, "compile"))
    for name, module, keys in (("dynamo", "torch._dynamo.config", _DYNAMO_KEYS),
                               ("inductor", "torch._inductor.config", _INDUCTOR_KEYS)):
        config = sys.modules.get(module)
        if config is None:
            items.put("torch.compile." + name, "not loaded")
            continue
        values = {}
        for key in keys:
            try:
                value = config
                for part in key.split("."):
                    value = getattr(value, part)
                values[key.replace(".", "_")] = _plain(value)
            except Exception:  # options come and go with versions; one that is not there is no finding
                continue
        items.put("torch.compile." + name, values)
    items.read("torch.compile.cache_dir_set", lambda: "TORCHINDUCTOR_CACHE_DIR" in os.environ)
    items.read("torch.compile.disabled_by_environment",
               lambda: os.environ.get("TORCHDYNAMO_DISABLE", "0") not in ("", "0")
               or os.environ.get("TORCH_COMPILE_DISABLE", "0") not in ("", "0"))


def _collect_torch(torch, items):
    config = torch.__config__.show()
    backends = torch.backends
    getter, interface = _torch_fp32(torch)
    items.read_all(
        "torch",
        (
            ("version", lambda: str(torch.__version__)),
            ("git", lambda: torch.version.git_version),
            ("cuda_version", lambda: torch.version.cuda),
            ("hip_version", lambda: getattr(torch.version, "hip", None)),
            ("debug", lambda: torch.version.debug),
            ("cxx11_abi", lambda: torch.compiled_with_cxx11_abi()),
            ("build", lambda: parse_torch_config(config)),
            ("cpu_capability", lambda: _torch_capability(torch, config)),
            ("attention", lambda: _torch_attention(torch)),
            ("attention_reduced_precision_math",
             lambda: backends.cuda.fp16_bf16_reduction_math_sdp_allowed()),
            ("mha_fastpath", lambda: backends.mha.get_fastpath_enabled()),
            ("threads", torch.get_num_threads),
            ("interop_threads", torch.get_num_interop_threads),
            ("parallel_backend", lambda: re.search(r"ATen parallel backend: (.+)",
                                                   torch.__config__.parallel_info()).group(1)),
            ("default_dtype", torch.get_default_dtype),
            ("default_device", lambda: _torch_default_device(torch)),
            ("autocast_dtype_cpu", lambda: _torch_autocast(torch, "cpu")),
            ("autocast_dtype_cuda", lambda: _torch_autocast(torch, "cuda")),
            ("autocast_cache", lambda: torch.is_autocast_cache_enabled()),
            ("anomaly_detection", lambda: torch.is_anomaly_enabled()),
        ),
    )
    items.read_all(
        "torch.fp32",
        (
            ("interface", lambda: interface),
            ("matmul_precision", lambda: torch.get_float32_matmul_precision()),
            ("cuda_matmul", lambda: _reduced(getter, "cuda", "matmul")),
            ("cuda_conv", lambda: _reduced(getter, "cuda", "conv")),
            ("cuda_rnn", lambda: _reduced(getter, "cuda", "rnn")),
            ("onednn_matmul", lambda: _reduced(getter, "mkldnn", "matmul")),
            ("onednn_conv", lambda: _reduced(getter, "mkldnn", "conv")),
            ("fp16_reduced_reduction",
             lambda: _first(torch._C._get_cublas_allow_fp16_reduced_precision_reduction())),
            ("bf16_reduced_reduction",
             lambda: _first(torch._C._get_cublas_allow_bf16_reduced_precision_reduction())),
            ("fp16_accumulation", lambda: torch._C._get_cublas_allow_fp16_accumulation()),
        ),
    )
    items.read_all(
        "torch.deterministic",
        (
            ("algorithms", torch.are_deterministic_algorithms_enabled),
            ("warn_only", lambda: torch.is_deterministic_algorithms_warn_only_enabled()),
            ("fill_uninitialized_memory",
             lambda: torch.utils.deterministic.fill_uninitialized_memory),
            ("cudnn", lambda: torch._C._get_cudnn_deterministic()),
            ("onednn", lambda: torch._C._get_mkldnn_deterministic()),
        ),
    )
    items.read_all(
        "torch.backend",
        (
            ("cudnn_enabled", lambda: torch._C._get_cudnn_enabled()),
            ("cudnn_benchmark", lambda: torch._C._get_cudnn_benchmark()),
            ("cudnn_benchmark_limit", lambda: backends.cudnn.benchmark_limit),
            ("onednn_enabled", lambda: torch._C._get_mkldnn_enabled()),
            ("onednn_available", lambda: backends.mkldnn.is_available()),
            ("mkl_available", lambda: backends.mkl.is_available()),
            ("openmp_available", lambda: backends.openmp.is_available()),
            ("nnpack_enabled", lambda: torch._C._get_nnpack_enabled()),
            ("quantized_engine", lambda: backends.quantized.engine),
            ("opt_einsum", lambda: backends.opt_einsum.enabled and backends.opt_einsum.strategy or "off"),
        ),
    )
    _collect_torch_gpu(torch, items)
    _collect_torch_compile(torch, items)


# --- jax, tensorflow, numpy --------------------------------------------------------------------------


_JAX_KEYS = ("jax_default_matmul_precision", "jax_enable_x64", "jax_disable_jit", "jax_platforms",
             "jax_default_prng_impl", "jax_threefry_partitionable", "jax_debug_nans",
             "jax_enable_compilation_cache", "jax_default_dtype_bits", "jax_numpy_dtype_promotion",
             "jax_optimization_level", "jax_exec_time_optimization_effort")


def _collect_jax(jax, items):
    items.read("jax.version", lambda: jax.__version__)
    items.read("jax.jaxlib_version", lambda: _loaded("jaxlib").version.__version__)
    for key in _JAX_KEYS:
        if hasattr(jax.config, key):
            items.read("jax." + key[len("jax_"):], lambda key=key: getattr(jax.config, key))
    items.read("jax.compilation_cache_set",
               lambda: bool(getattr(jax.config, "jax_compilation_cache_dir", None)))
    # Only a look at what is there: asking for devices would start the backends and take GPU memory.
    items.read("jax.backends", lambda: sorted(_loaded("jax._src.xla_bridge")._backends) or "not started")


def _collect_tensorflow(tensorflow, items):
    items.read_all(
        "tensorflow",
        (
            ("version", lambda: tensorflow.__version__),
            ("compiler", lambda: tensorflow.version.COMPILER_VERSION),
            ("build", lambda: dict(tensorflow.sysconfig.get_build_info())),
            ("threads", lambda: tensorflow.config.threading.get_intra_op_parallelism_threads()),
            ("interop_threads", lambda: tensorflow.config.threading.get_inter_op_parallelism_threads()),
            ("tf32", lambda: tensorflow.config.experimental.tensor_float_32_execution_enabled()),
            ("jit", lambda: tensorflow.config.optimizer.get_jit()),
            ("eager", lambda: tensorflow.executing_eagerly()),
            ("onednn", lambda: os.environ.get("TF_ENABLE_ONEDNN_OPTS", "default")),
        ),
    )


def _numpy_blas(numpy):
    config = numpy.__config__
    try:
        blas = config.show(mode="dicts")["Build Dependencies"]["blas"]
        return "%s %s" % (blas.get("name"), blas.get("version"))
    except TypeError:  # before 1.25: show() prints and takes no argument
        info = getattr(config, "blas_opt_info", None) or getattr(config, "blas_info", None) or {}
        return ", ".join(info.get("libraries", [])) or "not said by this version"


def _numpy_simd(numpy):
    core = sys.modules.get("numpy._core._multiarray_umath") or _loaded("numpy.core._multiarray_umath")
    return " ".join(sorted(name for name, present in core.__cpu_features__.items() if present))


def _collect_numpy(numpy, items):
    items.read("numpy.version", lambda: numpy.__version__)
    items.read("numpy.blas", lambda: _numpy_blas(numpy))
    items.read("numpy.simd", lambda: _numpy_simd(numpy))


# --- the whole ---------------------------------------------------------------------------------------


def collect():
    """The Python part of the fingerprint, as a dict for json.dumps(). Never raises, imports no framework."""
    import warnings

    items = _Items()
    spent = {}
    not_loaded = []
    frameworks = (("torch", _collect_torch), ("jax", _collect_jax), ("tensorflow", _collect_tensorflow),
                  ("numpy", _collect_numpy))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a deprecated getter must not write into the workload's stderr
        parts = [("interpreter", lambda: _collect_interpreter(items)),
                 ("packages", lambda: items.put("packages", _collect_packages()))]
        for name, function in frameworks:
            module = sys.modules.get(name)
            if module is None or not hasattr(module, "__version__"):  # the latter: half imported
                items.put(name, None)
                not_loaded.append(name)
            else:
                parts.append((name, lambda function=function, module=module: function(module, items)))
        for name, function in parts:
            begin = time.perf_counter()
            try:
                function()
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                items.missing[name] = _reason(error)
            spent[name] = int((time.perf_counter() - begin) * 1e9)
    result = {"schema": SCHEMA, "not_loaded": not_loaded}
    result.update(items.root)
    result["missing"] = items.missing
    result["collect_ns"] = spent
    return result


def _namespace():
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return None


def probe(arguments):
    """The program of `upgate env`: import what is installed, say what there is, hold still. See the head."""
    import importlib
    import importlib.util
    import select

    # What the imports print must not end up between the lines of our answer.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    names = [arguments[index + 1] for index, word in enumerate(arguments[:-1]) if word == "--import"]
    failed = {}
    for name in names:
        try:
            if importlib.util.find_spec(name) is not None:
                importlib.import_module(name)
        except BaseException as error:
            failed[name] = _reason(error)
    result = collect()
    for name, reason in failed.items():
        result["missing"]["import " + name] = reason
    document = {"pid": os.getpid(), "pid_namespace": _namespace(), "failed_imports": failed,
                "python": result}
    answer.write(PROBE_MARK + json.dumps(document) + "\n")
    answer.flush()
    # Under a container prefix stdin may be closed from the start: then hold for the whole time instead.
    end = time.monotonic() + PROBE_HOLD_SECONDS
    while time.monotonic() < end:
        ready, _, _ = select.select([0], [], [], max(0.0, end - time.monotonic()))
        if ready:
            if os.read(0, 64):
                return 0
            time.sleep(max(0.0, min(5.0, end - time.monotonic())))
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(probe(sys.argv[1:]))
