# SPDX-License-Identifier: Apache-2.0
"""What a simulated launch does: the ops of a step of a transformer in training, and plants, which change them. Each plant
has its answer."""
import dataclasses

US, MS = 1000, 1000 * 1000
LATENCY_NS, BETWEEN_NS, SYNC_NS = 3 * US, 800, 4 * US  # call to kernel, kernel to kernel of a full queue, wake-up of a sync
MAIN, SIDE, COMM = 7, 13, 20  # streams
HTOD, DTOH, DTOD, SET = 17, 18, 24, 80  # gpu_work.kind
PINNED, PAGEABLE = 2, 1  # CUpti_ActivityMemoryKind; 3 is the device's
LAYERS, BLOCK_STEPS = 4, 4


@dataclasses.dataclass
class Op:
    """What the host does next. kind: kernel, copy, set, collective, graph (a launch of `nodes`), sync (waits for `stream`, or
    for the device), wait (the stream waits for stream `other`), host (runs), off (is off the CPU), call (a call without work)."""
    kind: str
    name: str
    dur: int = 0  # on the device, of host and off on the host
    module: str = None
    phase: str = "forward"
    cost: int = 7 * US  # of the host; the last part of it is the call
    stream: int = MAIN
    other: int = 0
    grid: tuple = (128, 1, 1)
    block: tuple = (256, 1, 1)
    registers: int = 64
    shared: int = 0
    bytes: int = 0
    copy: int = HTOD
    memory: int = PINNED * 16 + 3
    function: str = "AllReduce"
    algorithm: str = "Ring"
    protocol: str = "LL128"
    python: tuple = ()
    stall: str = None  # of off: "smaps", "data"
    nodes: tuple = ()
    gemm: bool = False
    steps: tuple = None  # only in these steps of a launch; None: in all

    def but(self, **changes):
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass
class Answer:
    """What a diff must say. kinds: any of these words; name: pattern of name_a, name_b or label; delta_ns: of a step, without
    noise and tracing. silent: nothing may be named. never: a pattern that may not be named. more: further contributions."""
    plant: str
    kinds: tuple
    name: str
    where: str = ""
    delta_ns: float = 0.0
    step_ns: tuple = (0.0, 0.0)
    silent: bool = False
    never: str = ""
    more: tuple = ()
    whole: bool = False  # it changes where all kernels are: it cannot be stronger or weaker


# --- the model: a transformer in training ---------------------------------------------------------------------------------

GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_{0}_128x128_16x4_tn_align4>(Params)"
ELEMENTWISE = ("void at::native::vectorized_elementwise_kernel<4, at::native::{0}, at::detail::Array<char*, 2> >"
               "(int, at::native::{0}, at::detail::Array<char*, 2>)")


def gemm(tag, dur, module, phase, grid):
    return Op("kernel", GEMM.format(tag), dur, module, phase, grid=(grid, 8, 1), registers=230, shared=65536, gemm=True,
              python=("Linear.forward",) if phase == "forward" else ())


def pointwise(tag, dur, module, phase, grid=512):
    return Op("kernel", ELEMENTWISE.format(tag), dur, module, phase, grid=(grid, 1, 1), block=(128, 1, 1), registers=24)


def model(kernels=1.0, cost=7 * US, ranks=1):
    """The ops of one step."""
    step = [Op("host", "next batch", 15 * US, None, "data", python=("DataLoader.__next__",)),
            Op("copy", "", 18 * US, None, "data", bytes=1 << 20, copy=HTOD)]
    for layer in range(LAYERS):
        attn, mlp = f"layers.{layer}.attn", f"layers.{layer}.mlp"
        step += [Op("kernel", "void layer_norm_kernel<float>(int, float const*, float*)", 14 * US, attn, grid=(64, 1, 1)),
                 gemm("qkv", 90 * US, attn, "forward", 96),
                 Op("kernel", "void softmax_warp_forward<float, float, float, 10, false>(float*, float const*, int)", 26 * US, attn, grid=(2048, 1, 1)),
                 pointwise("MulFunctor<float>", 9 * US, attn, "forward"),
                 gemm("proj", 40 * US, attn, "forward", 32),
                 pointwise("AddFunctor<float>", 8 * US, attn, "forward"),
                 gemm("up", 110 * US, mlp, "forward", 128),
                 pointwise("GeluFunctor<float>", 13 * US, mlp, "forward", 1024),
                 gemm("down", 105 * US, mlp, "forward", 32),
                 pointwise("AddFunctor<float>", 8 * US, mlp, "forward")]
    step += [Op("kernel", "void nll_loss_forward_reduce_cuda_kernel_2d<float>(float*, float const*, long)", 12 * US, "loss", grid=(1, 1, 1))]
    for layer in reversed(range(LAYERS)):
        attn, mlp = f"layers.{layer}.attn", f"layers.{layer}.mlp"
        step += [gemm("down_dgrad", 105 * US, mlp, "backward", 128), gemm("down_wgrad", 108 * US, mlp, "backward", 64),
                 pointwise("GeluBackwardFunctor<float>", 16 * US, mlp, "backward", 1024),
                 gemm("up_dgrad", 110 * US, mlp, "backward", 32), gemm("up_wgrad", 112 * US, mlp, "backward", 64),
                 gemm("proj_dgrad", 40 * US, attn, "backward", 32),
                 Op("kernel", "void softmax_warp_backward<float, float, float, 10, false>(float*, float const*, int)", 34 * US, attn, "backward", grid=(2048, 1, 1)),
                 gemm("qkv_dgrad", 88 * US, attn, "backward", 32), gemm("qkv_wgrad", 91 * US, attn, "backward", 48)]
        if ranks > 1:
            step += [Op("wait", "cudaStreamWaitEvent", stream=COMM, other=MAIN, phase="backward", cost=2 * US),
                     Op("collective", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 260 * US,
                        None, "backward", stream=COMM, bytes=4 << 20, grid=(16, 1, 1), block=(512, 1, 1))]
    if ranks > 1:
        step += [Op("wait", "cudaStreamWaitEvent", stream=MAIN, other=COMM, phase="optimizer", cost=2 * US)]
    step += [Op("kernel", "void multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float, 4> >(TensorListMetadata<4>)",
                60 * US, "optimizer", "optimizer", grid=(320, 1, 1), block=(512, 1, 1)),
             Op("set", "", 5 * US, "optimizer", "optimizer", bytes=8 << 20)]
    for i, op in enumerate(step):
        if op.kind != "host":
            step[i] = op.but(dur=int(op.dur * (kernels if op.kind in ("kernel", "copy", "set") else 1.0)),
                             cost=op.cost if op.kind == "wait" else cost)
    return step


def model_bound_by_launches():
    return model(kernels=0.12, cost=18 * US)


def model_balanced():
    """The host is hardly ahead of the device: a wait in the step is seen."""
    return model(kernels=0.33, cost=15 * US)


def model_of_two_ranks():
    return model(ranks=2)


def model_with_side_stream():
    """Augmentation of the next batch on a stream of its own, hidden behind the step."""
    step = model()
    for k in range(3):
        step.insert(6 + 8 * k, Op("kernel", "void augment_batch_kernel<float>(float*, int)", 200 * US, "augment", "forward",
                                  stream=SIDE, grid=(8, 1, 1)))
    return step


def model_of_a_graph():
    """Forward and backward are one graph."""
    step = model()
    inside = [op for op in step if op.phase in ("forward", "backward") and op.kind == "kernel"]
    rest = [op for op in step if op not in inside]
    graph = Op("graph", "step graph", 0, None, "forward", cost=25 * US, nodes=tuple(inside))
    at = next(i for i, op in enumerate(rest) if op.phase == "optimizer")
    return rest[:at] + [graph] + rest[at:]


# --- plants: op list -> op list -------------------------------------------------------------------------------------------

def each(step, test, change):
    """Every op that fits, replaced by what change(op) gives: an op or several."""
    result = []
    for op in step:
        if op.kind == "graph":
            op = op.but(nodes=tuple(each(op.nodes, test, change)))
        new = change(op) if test(op) else op
        result += list(new) if isinstance(new, (list, tuple)) else [new]
    return result


def named(part, module=""):
    return lambda op: part in op.name and module in (op.module or "")


def scaled(factor):
    return lambda op: op.but(dur=int(op.dur * factor))


def before(step, test, *new):
    at = next(i for i, op in enumerate(step) if test(op))
    return step[:at] + list(new) + step[at:]


SPLIT = ("void gelu_tanh_part_kernel<float>(float*)", "void gelu_cube_part_kernel<float>(float*)", "void gelu_mul_part_kernel<float>(float*)")
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, 1> >(int, at::native::FillFunctor<float>, at::detail::Array<char*, 1>)"
TF32 = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_ffma_{0}"


def fuse(step):
    """Softmax, mul and add of attention's forward are one kernel, that is slower than the three were."""
    result = []
    for op in step:
        if op.phase == "forward" and "softmax_warp_forward" in op.name:
            op = op.but(name="void fmha_softmax_scale_fused_kernel<float, 128>(Params)", dur=95 * US, grid=(1024, 1, 1), registers=168)
        elif op.phase == "forward" and op.module and "attn" in op.module and "Functor" in op.name:
            continue
        result.append(op)
    return result


FUSED_NORM = "triton_per_fused_add_native_layer_norm_{0}"


def compiled(step):
    """As torch.compile leaves it: nobody says which module a kernel is of, every addition with the layer norm behind it is one kernel,
    and what is generated has names of its own. The products are the same ones."""
    result = []
    for i, op in enumerate(step):
        if op.kind == "kernel" and op.phase in ("forward", "backward"):
            op = op.but(module="Transformer")
        if "layer_norm_kernel" in op.name:
            result.pop()
            op = op.but(name=FUSED_NORM.format(len(result) // 10), dur=7 * US, grid=(128, 1, 1), block=(32, 1, 1), registers=72)
        elif "GeluFunctor" in op.name:
            op = op.but(name="triton_poi_fused_gelu_view_2")
        elif "GeluBackwardFunctor" in op.name:
            op = op.but(name="triton_poi_fused_gelu_gelu_backward_view_4")
        result.append(op)
    return result


def model_of_modules():
    """The model itself has kernels beside its layers': its place is on both sides, though only compiled it holds them all."""
    step = before(model(), named("layer_norm"), pointwise("AddFunctor<float>", 8 * US, "Transformer", "forward"))
    return before(step, named("multi_tensor_apply"), pointwise("MulFunctor<float>", 9 * US, "Transformer", "backward"))


def model_compiled():
    return compiled(model_of_modules())


def straggle(step, rank):
    if rank != 1:
        return step
    return before(step, named("softmax_warp_backward", "layers.2"),
                  Op("sync", "cudaStreamSynchronize", phase="backward", module="layers.2.attn"),
                  Op("host", "slow_on_this_rank", 700 * US, "layers.2.attn", "backward", python=("hook.slow_on_this_rank",)))


def other_protocol(step):
    """The all-reduces take longer and more of the device: what runs beside them is slower, what runs alone is not. The last one has
    nothing beside it, and takes as long as before."""
    last = [i for i, op in enumerate(step) if op.kind == "collective"][-1]
    slower = scaled(1.7)
    return [op.but(dur=int(op.dur * (1 if i == last else 1.2)), protocol="Simple",
                   name="ncclDevKernel_AllReduce_Sum_f32_RING_SIMPLE(ncclDevKernelArgsStorage<4096ul>)") if op.kind == "collective" else
            slower(op) if named("down_wgrad")(op) and op.module != f"layers.{LAYERS - 1}.mlp" else op for i, op in enumerate(step)]


def workspace(step, products):
    """A library sets a few bytes before some of its products: which ones, its version decides."""
    return each(step, lambda op: op.gemm and op.phase == "backward" and any(part in op.name for part in products),
                lambda op: [Op("set", "", 1 * US, op.module, op.phase, bytes=4), op])


def model_with_workspace():
    return workspace(model(), ("down_dgrad", "down_wgrad", "up_dgrad"))


def without_tf32(step):
    """All products by other kernels, six times as long: new names are most of this side's time. Sets stand before others of them."""
    step = [op for op in step if op.kind != "set" or op.bytes > 4]
    step = workspace(step, ("down_wgrad", "up_wgrad"))
    return each(step, lambda op: op.gemm, lambda op: op.but(
        name=f"void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_{'nt' if 'wgrad' in op.name else 'nn'}_align1>(Params)",
        dur=op.dur * 6, grid=(op.grid[0] // 2, 1, 4), registers=202, shared=49152))


ITEM = (Op("copy", "", 2 * US, "loss", "forward", copy=DTOH, bytes=4, memory=3 * 16 + PAGEABLE),
        Op("sync", "cudaStreamSynchronize", module="loss", phase="forward"))

RECOMPUTE = ("_unpack_hook", "recompute_fn")


def of_blocks(step):
    return [op.but(python=("Seq.forward", *op.python)) if op.phase == "forward" and op.kind == "kernel" else op for op in step]


def checkpointed(step):
    """Activation checkpointing: before the backward pass of a layer its forward pass runs again, called by a hook of autograd's."""
    result, done = [], set()
    for op in step:
        layer = ".".join((op.module or "").split(".")[:2])
        if op.phase == "backward" and layer not in done:
            done.add(layer)
            result.append(Op("host", "restore_rng_state", 15 * US, op.module, "backward", python=RECOMPUTE))
            result += [o.but(phase="backward", python=(*RECOMPUTE, *o.python)) for o in step
                       if o.phase == "forward" and o.kind == "kernel" and (o.module or "").startswith(layer)]
        result.append(op)
    return result


def clipped(step):
    """clip_grad_norm_ with error_if_nonfinite: norms, a wait for the result, a product."""
    clip = "clip_grad_norm_"

    def kernel(name, dur, *python):
        return Op("kernel", name, dur, "optimizer", "optimizer", cost=22 * US, python=(clip, *python), grid=(320, 1, 1), block=(512, 1, 1))

    return before(step, named("multi_tensor_apply"),
                  Op("host", "group_tensors_by_device", 60 * US, "optimizer", "optimizer", python=(clip, "_get_total_norm")),
                  kernel("void multi_tensor_apply_kernel<TensorListMetadata<1>, LpNormFunctor<float, 2, float, 1, 0> >(TensorListMetadata<1>)", 14 * US, "_get_total_norm"),
                  kernel("void lpnorm_cleanup<float, float>(float*)", 3 * US, "_get_total_norm"),
                  kernel("void CatArrayBatchedCopy<OpaqueType<4u>, unsigned int, 1, 64, 64>(OpaqueType<4u>*)", 3 * US, "_get_total_norm"),
                  kernel("void reduce_kernel<512, 1, ReduceOp<float, NormTwoOps<float>, unsigned int, float, 4> >(ReduceOp)", 5 * US, "_get_total_norm"),
                  Op("copy", "", 2 * US, "optimizer", "optimizer", copy=DTOH, bytes=1, memory=3 * 16 + PAGEABLE, python=(clip,)),
                  Op("sync", "cudaStreamSynchronize", module="optimizer", phase="optimizer", python=(clip,)),
                  kernel("void vectorized_elementwise_kernel<4, ReciprocalFunctor<float>, Array<char*, 2> >(int)", 2 * US),
                  kernel("void vectorized_elementwise_kernel<4, ClampFunctor<float>, Array<char*, 2> >(int)", 2 * US),
                  *[kernel("void multi_tensor_apply_kernel<TensorListMetadata<1>, BinaryOpScalarFunctor<float, 1, 1, 0> >(TensorListMetadata<1>)", 9 * US,
                           "_foreach_mul_") for _ in range(2)])


def masked(step):
    """z[y >= 0]: how many there are, the host waits to know; then a gather. No Python function of its own."""
    def kernel(name, dur):
        return Op("kernel", name, dur, "loss", "forward", cost=20 * US, grid=(64, 1, 1), block=(128, 1, 1))

    return before(step, named("nll_loss"),
                  kernel("void vectorized_elementwise_kernel<4, CompareScalarFunctor<float>, Array<char*, 2> >(int)", 3 * US),
                  kernel("void cub::DeviceReduceSingleTileKernel<Policy600, bool*, int*, int>(bool*, int*)", 4 * US),
                  Op("copy", "", 2 * US, "loss", "forward", copy=DTOH, bytes=4, memory=3 * 16 + PAGEABLE),
                  Op("sync", "cudaStreamSynchronize", module="loss", phase="forward"),
                  kernel("void cub::DeviceSelectSweepKernel<SelectIf, int>(int*)", 5 * US),
                  kernel("void index_elementwise_kernel<128, 4, gpu_index_kernel<OpaqueType<4> > >(long)", 6 * US))


PLANTS = {}


def plant(name, kinds, pattern, where="", base=model, ranks=1, **answer):
    def register(change):
        PLANTS[name] = (change, kinds, pattern, where, base, ranks, answer)
        return change
    return register


plant("aa", (), "", silent=True)(lambda step: step)
plant("aa_host", (), "", base=model_balanced, silent=True)(lambda step: step)  # neither the host nor the device is far ahead
plant("kernel_slower", ("kernel_slower",), r"softmax_warp_backward", "backward")(
    lambda step: each(step, named("softmax_warp_backward"), scaled(2.2)))
plant("kernel_slower_one_layer", ("kernel_slower",), r"_up_128|gemm_up", "layers.2")(
    lambda step: each(step, lambda op: named("gemm_up_128", "layers.2")(op) and op.phase == "forward", scaled(2.5)))
plant("kernel_faster", ("kernel_slower",), r"softmax_warp_backward", "backward")(
    lambda step: each(step, named("softmax_warp_backward"), scaled(0.3)))
plant("kernel_replaced", ("kernel_replaced",), r"gemm_qkv_128|nvjet_qkv", "forward")(
    lambda step: each(step, named("gemm_qkv_128"), lambda op: op.but(name="nvjet_qkv_tst_192x128_64x5_2x1_v_bz_TNT", dur=int(op.dur * 1.9),
                                                                     block=(384, 1, 1), registers=168)))
plant("kernel_fused", ("kernel_replaced",), r"fmha_softmax_scale_fused|softmax_warp_forward", "attn")(fuse)
plant("compiled", ("kernel_replaced",), r"add_native_layer_norm.*", "forward", base=model_of_modules, whole=True,
      never=r"gemm|softmax|[gG]elu|^Add |^vectorized")(compiled)
plant("compiled_lost", ("kernel_replaced",), r"add_native_layer_norm.*", "forward", base=model_compiled, whole=True,
      never=r"gemm|softmax|[gG]elu|^Add |^vectorized")(
    lambda step: model_of_modules())
plant("kernel_split", ("kernel_replaced",), r"gelu_(tanh|cube|mul)_part|GeluFunctor", "mlp")(
    lambda step: each(step, named("GeluFunctor"), lambda op: [op.but(name=name, dur=14 * US) for name in SPLIT]))
plant("fill_added", ("kernel_added",), r"FillFunctor", "optimizer")(
    lambda step: before(step, named("multi_tensor_apply"), *[pointwise("x", 25 * US, "optimizer", "optimizer").but(name=FILL) for _ in range(6)]))
plant("kernel_removed", ("kernel_removed",), r"multi_tensor_apply", "optimizer")(
    lambda step: each(step, named("multi_tensor_apply"), lambda op: []))
plant("copy_added", ("memcpy",), r"DtoD|copy", "forward")(
    lambda step: each(step, lambda op: named("gemm_qkv_128")(op), lambda op: [
        Op("copy", "", 30 * US, op.module, "forward", copy=DTOD, bytes=16 << 20, memory=3 * 16 + 3), op]))
plant("sync_added", ("sync_added",), r"cudaDeviceSynchronize", "", base=model_bound_by_launches)(
    lambda step: each(step, lambda op: named("gemm_up_128")(op) and op.phase == "forward", lambda op: [
        op, Op("sync", "cudaDeviceSynchronize", module=op.module, phase="forward")]))
plant("sync_drains_queue", ("sync_added",), r"cudaDeviceSynchronize", "", base=model_balanced, never=r"launches of")(
    lambda step: each(step, named("nll_loss"), lambda op: [op, Op("sync", "cudaDeviceSynchronize", module=op.module, phase=op.phase)]))
plant("copies_bound_by_launches", ("kernel_added", "memcpy"), r"direct_copy|DtoD", "forward", base=model_bound_by_launches,
      never=r"launches of")(
    lambda step: before(step, named("nll_loss"), *[new for _ in range(4) for new in (
        pointwise("direct_copy_kernel_cuda<float>", 2 * US, "loss", "forward", 4),
        Op("copy", "", 1 * US, "loss", "forward", copy=DTOD, bytes=1 << 18, memory=3 * 16 + 3, cost=18 * US))]))
plant("item_added", ("sync_added", "memcpy"), r"cudaStreamSynchronize|DtoH", "", base=model_balanced, never=r"launches of backward")(
    lambda step: each(step, lambda op: named("nll_loss")(op) or named("softmax_warp_backward")(op), lambda op: [
        op, *[new.but(module=op.module, phase=op.phase) for new in ITEM]]))
plant("host_slower", ("launch_gap", "python_overhead", "cpu_function_slower"), "", "", base=model_bound_by_launches)(
    lambda step: [op.but(cost=int(op.cost * 1.25)) for op in step])
plant("python_overhead", ("python_overhead", "launch_gap", "cpu_function_added", "cpu_function_slower"), "", "", base=model_bound_by_launches)(
    lambda step: each(step, lambda op: op.kind == "kernel" and op.phase == "forward", lambda op: [
        Op("host", "hook", 4 * US, op.module, op.phase, python=("hooks.check_finite",)), op]))
plant("data_wait", ("data_wait",), "", "data")(
    lambda step: [Op("off", "data", 1500 * US, None, "data", stall="data"), Op("sync", "cudaStreamSynchronize", phase="data")] + step[1:])
plant("host_stall", ("host_stall",), r"smaps", "", base=model_bound_by_launches)(
    lambda step: before(step, named("gemm_up_128", "layers.1"), Op("off", "mmap", 500 * US, "layers.1.mlp", "forward", stall="smaps")))
plant("memory_alloc", ("memory_alloc", "sync_added"), r"cudaMalloc|cudaFree", "", base=model_bound_by_launches)(
    lambda step: each(step, lambda op: named("gemm_up_128")(op) and op.phase == "forward", lambda op: [
        Op("call", "cudaFree", 35 * US, op.module, "forward"), Op("call", "cudaMalloc", 45 * US, op.module, "forward"), op]))
plant("pinned_lost", ("memcpy",), r"HtoD", "data")(
    lambda step: each(step, lambda op: op.kind == "copy", lambda op: [
        op.but(dur=190 * US, memory=PAGEABLE * 16 + 3), Op("sync", "cudaStreamSynchronize", phase="data")]))
plant("allreduce_slower", ("comm_exposed",), r"AllReduce|nccl", "", base=model_of_two_ranks, ranks=2)(
    lambda step: each(step, lambda op: op.kind == "collective", lambda op: op.but(
        dur=int(op.dur * 2.6), protocol="Simple", name="ncclDevKernel_AllReduce_Sum_f32_TREE_SIMPLE(ncclDevKernelArgsStorage<4096ul>)",
        algorithm="Tree")))
plant("allreduce_beside", ("kernel_slower",), r"down_wgrad", "backward", base=model_of_two_ranks, ranks=2)(other_protocol)
plant("straggler", ("comm_exposed", "cpu_function_added", "launch_gap", "python_overhead", "sync_added"), "", "", base=model_of_two_ranks, ranks=2)(straggle)
plant("tf32_off", ("kernel_replaced", "kernel_slower"), r"gemm", "")(
    lambda step: each(step, lambda op: op.gemm, lambda op: op.but(
        name=TF32.format(op.name.split("gemm_")[1].split("_128x")[0]), dur=int(op.dur * 1.45), registers=122, shared=36864)))
plant("tf32_off_by_far", ("kernel_replaced",), r"gemm", "", base=model_with_workspace, never=r"^set|^memset")(without_tf32)
plant("hidden_kernel", (), "", base=model_with_side_stream, silent=True, never=r"augment_batch")(
    lambda step: each(step, named("augment_batch"), scaled(2.0)))
plant("clock_drop", ("clock_throttle", "kernel_slower"), "", "")(
    lambda step: each(step, lambda op: op.kind in ("kernel", "set"), scaled(1.1)))
plant("graph_kernel_slower", ("kernel_slower",), r"softmax_warp_backward", "", base=model_of_a_graph)(
    lambda step: each(step, named("softmax_warp_backward"), scaled(2.2)))
plant("graph_lost", ("launch_gap", "python_overhead", "cpu_function_added"), "", "", base=model_of_a_graph)(
    lambda step: [new for op in step for new in ([node.but(cost=60 * US) for node in op.nodes] if op.kind == "graph" else [op])])
plant("cold_start", ("cold_start", "memory_alloc", "compile"), "", silent=True)(
    lambda step: [Op("call", "cuLibraryLoadData", 60 * MS, None, "forward", steps=(0,))] + step)
plant("recompile", ("compile",), "", "compile")(
    lambda step: [step[0], Op("sync", "cudaStreamSynchronize", phase="data"),
                  Op("host", "compile_fx", 900 * US, None, "compile", python=("torch._inductor.compile_fx",))] + step[1:])
plant("two_changes", ("kernel_slower",), r"softmax_warp_backward", "backward", more=(("kernel_added", r"FillFunctor"),))(
    lambda step: PLANTS["fill_added"][0](PLANTS["kernel_slower"][0](step)))
plant("recomputed", ("code_repeated",), r"forward", "backward", base=lambda: of_blocks(model_balanced()))(checkpointed)
plant("recomputed_bound_by_launches", ("code_repeated",), r"forward", "backward", base=lambda: of_blocks(model_bound_by_launches()))(checkpointed)
plant("gradients_clipped", ("code_added",), r"clip_grad_norm_|multi_tensor_apply", "optimizer", base=model_balanced)(clipped)
plant("clip_removed", ("code_removed",), r"clip_grad_norm_|multi_tensor_apply", "optimizer", base=lambda: clipped(model_balanced()))(
    lambda step: model_balanced())
plant("mask_added", ("code_added",), r"cudaStreamSynchronize|index_elementwise|DeviceSelect", "forward", base=model_balanced)(masked)
