#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stores of A/B runs on GPUs that never were, with one planted difference between the sides and the answer to it.

A step is a list of ops. A small simulation runs it as a GPU does: the host calls in order at a cost each, streams run
first in first out, what waits holds the host up, collectives begin when the last rank has come. So a plant moves the step
time as it would in reality, and a slower kernel that is hidden behind another one moves nothing. The untraced pairs, the
traced ones with their tables, and what the gate would have judged go into a store by contracts/schema.sql.

    python3 tests/e2e/diff_store.py PLANT out.db [--names scrambled] [--seed N] [--pairs N] [--traced N] [--host] [--autograd] [--strength SHARE]
    python3 tests/e2e/diff_store.py --list

From Python: write(plant, path, **options) -> Answer."""
import argparse
import dataclasses
import difflib
import functools
import hashlib
import json
import math
import os
import random
import sqlite3
import sys

SOURCE = os.environ.get("UPGATE_SOURCE", os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
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


def straggle(step, rank):
    if rank != 1:
        return step
    return before(step, named("softmax_warp_backward", "layers.2"),
                  Op("sync", "cudaStreamSynchronize", phase="backward", module="layers.2.attn"),
                  Op("host", "slow_on_this_rank", 700 * US, "layers.2.attn", "backward", python=("hook.slow_on_this_rank",)))


ITEM = (Op("copy", "", 2 * US, "loss", "forward", copy=DTOH, bytes=4, memory=3 * 16 + PAGEABLE),
        Op("sync", "cudaStreamSynchronize", module="loss", phase="forward"))

PLANTS = {}


def plant(name, kinds, pattern, where="", base=model, ranks=1, **answer):
    def register(change):
        PLANTS[name] = (change, kinds, pattern, where, base, ranks, answer)
        return change
    return register


plant("aa", (), "", silent=True)(lambda step: step)
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
plant("item_added", ("sync_added", "memcpy"), r"cudaStreamSynchronize|DtoH", "", base=model_balanced)(
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
plant("straggler", ("comm_exposed", "cpu_function_added", "launch_gap", "python_overhead", "sync_added"), "", "", base=model_of_two_ranks, ranks=2)(straggle)
plant("tf32_off", ("kernel_replaced", "kernel_slower"), r"gemm", "")(
    lambda step: each(step, lambda op: op.gemm, lambda op: op.but(
        name=TF32.format(op.name.split("gemm_")[1].split("_128x")[0]), dur=int(op.dur * 1.45), registers=122, shared=36864)))
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


def scramble(name):
    """What a version that renames everything makes of a name."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    return f"z{digest[:20]}"


# --- the simulation -------------------------------------------------------------------------------------------------------

class Noise:
    """Factors around 1. None of them when there is no generator."""

    def __init__(self, generator):
        self.generator = generator

    def __call__(self, sd):
        return math.exp(self.generator.gauss(0, sd)) if self.generator else 1.0


class Rank:
    """One process with its GPU: a host clock and streams. Collects what a tracer would see."""

    def __init__(self, noise, rank, device_factor, host_factor):
        self.noise, self.rank = noise, rank
        self.device_factor, self.host_factor = device_factor, host_factor
        self.now, self.free = 0, {}
        self.ops, self.calls, self.marks, self.phases, self.steps, self.offs, self.runs, self.nccl = [], [], [], [], [], [], [], []
        self.captured, self.sequence = {}, 0

    def spend(self, ns, op):
        begin = self.now
        self.now += max(1, int(ns))
        self.runs.append((begin, self.now, op))
        return begin

    def call(self, op):
        """The host's way to a call: Python first, then the call itself, four tenths of it. Gives the call's begin."""
        cost = op.cost * self.host_factor * self.noise(0.03)
        self.spend(cost * 0.6, op)
        return self.spend(cost * 0.4, op)

    def start(self, stream, ready):
        free = self.free.get(stream)
        return ready if free is None else max(ready, free + BETWEEN_NS)

    def put(self, op, call, start, dur, name, node=None, graph=False):
        self.free[op.stream] = start + dur
        self.ops.append((start, dur, op, call, self.now - call, name, node, graph))

    def wait_until(self, at, name, op):
        begin = self.spend(2 * US, op)
        if at > self.now:
            self.offs.append((self.now, at + SYNC_NS, "cuda", op))
            self.now = at + SYNC_NS
        self.calls.append((begin, self.now, name, "sync", op.phase))

    def step(self, ops, idx, last):
        """A generator: it yields (start, dur) of a collective when its data is ready here, and is sent the end."""
        begin, phase, phase_begin, module = self.now, None, self.now, None
        self.marks.append((self.now, 3, None, idx))
        for op in ops:
            if op.steps is not None and idx not in op.steps:
                continue
            if op.phase != phase:
                if phase:
                    self.phases.append((phase_begin, self.now, phase))
                phase, phase_begin = op.phase, self.now
            if (op.module, op.phase == "backward") != module:
                module = (op.module, op.phase == "backward")
                self.marks.append((self.now, 2 if module[1] else 1, op.module, 0))
            yield from self.run(op)
        if last:
            self.wait_until(max([self.now, *self.free.values()]), "cudaDeviceSynchronize", Op("sync", "cudaDeviceSynchronize", phase="optimizer"))
        self.phases.append((phase_begin, self.now, phase))
        self.marks += [(self.now, 1, None, 0), (self.now, 4, None, idx)]
        self.steps.append((idx, begin, self.now - begin))

    def run(self, op):
        dur = max(1, int(op.dur * self.noise(0.012)))
        if op.kind == "host":
            self.spend(dur * self.host_factor, op)
        elif op.kind == "off":
            self.offs.append((self.now, self.now + dur, op.stall, op))
            self.now += dur
        elif op.kind == "call":
            begin = self.now
            self.spend(dur, op)
            self.calls.append((begin, self.now, op.name, "call", op.phase))
        elif op.kind == "sync":
            self.wait_until(max([self.now, *self.free.values()]) if "Device" in op.name else self.free.get(op.stream, 0), op.name, op)
        elif op.kind == "wait":
            self.spend(op.cost, op)
            self.free[op.stream] = max(self.free.get(op.stream, 0), self.free.get(op.other, 0))
        elif op.kind == "graph":
            call = self.call(op)
            ready = self.now + LATENCY_NS
            for k, node in enumerate(op.nodes):
                self.captured.setdefault(k, node)
                self.put(node, call, self.start(node.stream, ready), max(1, int(node.dur * self.device_factor * self.noise(0.012))),
                         node.name, k, True)
        else:
            call = self.call(op)
            start = self.start(op.stream, self.now + LATENCY_NS)
            dur = max(1, int(dur * (self.device_factor if op.kind == "kernel" else 1.0)))
            if op.kind == "collective":
                end = yield start, dur
                self.nccl.append((call, start, end, op, self.sequence))
                self.sequence += 1
                dur = end - start
            self.put(op, call, start, dur, op.name)


def run_steps(ranks, steps, last_of):
    """All ranks through the same steps: (idx, ops of each rank). A collective ends on all when the last has come."""
    for idx, ops in steps:
        generators = [rank.step(ops[i], idx, last_of(idx)) for i, rank in enumerate(ranks)]
        asked = [next(g, None) for g in generators]
        while asked[0] is not None:
            end = max(start for start, _ in asked) + max(dur for _, dur in asked)
            asked = [next_of(g, end) for g in generators]
        end = max(rank.now for rank in ranks)
        if last_of(idx):  # arrival at the gate: together
            for rank in ranks:
                rank.now = end


def next_of(generator, value):
    try:
        return generator.send(value)
    except StopIteration:
        return None


class Launch:
    def __init__(self, noise, ranks, traced):
        device, host = noise(0.002), noise(0.004)
        host *= 1.04 if traced else 1.0  # what tracing costs
        self.ranks = [Rank(noise, r, device * noise(0.0005), host) for r in range(ranks)]
        self.blocks = []

    def block(self, ops, begin, first, count, drift):
        for rank in self.ranks:
            rank.now = begin
            rank.free.clear()
            saved = rank.device_factor, rank.host_factor
            rank.device_factor, rank.host_factor = saved[0] * drift, saved[1] * drift
            rank.saved = saved
        run_steps(self.ranks, [(first + i, ops) for i in range(count)], lambda idx: idx == first + count - 1)
        for rank in self.ranks:
            rank.device_factor, rank.host_factor = rank.saved
        end = max(rank.now for rank in self.ranks)
        self.blocks.append((begin, end - begin, first, count))
        return end


def run_pair(sides, generator, couples, ranks, traced, begin):
    """Both launches of a pair in turns. sides: their op lists by rank."""
    noise = Noise(generator)
    launches = [Launch(noise, ranks, traced) for _ in sides]
    now, order = begin, []
    for couple in range(couples):
        first = generator.randrange(2) if generator else couple % 2
        count = 1 if couple == 0 else BLOCK_STEPS
        at = 0 if couple == 0 else 1 + (couple - 1) * BLOCK_STEPS
        drift = noise(0.002)
        order.append(first)
        for side in (first, 1 - first):
            now = launches[side].block(sides[side], now + 60 * US, at, count, drift)
    return launches, order, now


# --- the store ------------------------------------------------------------------------------------------------------------

class Writer:
    def __init__(self, path):
        if os.path.exists(path):
            os.remove(path)
        self.db = sqlite3.connect(path)
        self.db.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF")  # the schema alone would wait for the disk a hundred times
        with open(os.path.join(SOURCE, "contracts/schema.sql"), encoding="utf-8") as file:
            self.db.executescript(file.read())
        self.strings, self.frames, self.stacks, self.next_id = {}, {}, {}, {}

    def add(self, table, **row):
        marks = ",".join("?" * len(row))
        return self.db.execute(f"INSERT INTO {table} ({','.join(row)}) VALUES ({marks})", tuple(row.values())).lastrowid

    def many(self, table, columns, rows):
        self.db.executemany(f"INSERT INTO {table} ({','.join(columns)}) VALUES ({','.join('?' * len(columns))})", rows)

    def string(self, text):
        if text is None:
            return None
        if text not in self.strings:
            self.strings[text] = self.add("string", text=text)
        return self.strings[text]

    def frame(self, name, module, line=None):
        key = (name, module, line)
        if key not in self.frames:
            self.frames[key] = self.add("frame", name=name, module=module, line=line)
        return self.frames[key]

    def stack(self, kind, *frames):
        """Frames leaf first: (name, module) or (name, file, line)."""
        key = (kind, frames)
        if key not in self.stacks:
            ids = [self.frame(*frame) for frame in frames]
            self.stacks[key] = self.add("stack", kind=kind, depth=len(ids), frames=json.dumps(ids))
        return self.stacks[key]


KERNEL = "[kernel]"
SYSCALL = (("do_syscall_64", KERNEL), ("entry_SYSCALL_64_after_hwframe", KERNEL))


def kernel_stack(writer, *names):
    return writer.stack("kernel", *[(name, KERNEL) for name in names], *SYSCALL)


def python_frames(op):
    frames = [(p.split(".")[-1] if p.startswith("torch.") else p, "torch/nn/modules/module.py", 10) for p in reversed(op.python)]
    if op.module:
        frames.append((f"{op.module.split('.')[-1]}.{op.phase}", "model.py", 40))
    return (*frames, (f"{op.phase}_part", "train.py", 60), ("train_step", "train.py", 20), ("<module>", "train.py", 90))


class Recording:
    """The tables of one traced launch."""

    def __init__(self, writer, launch_id, launch, side, options, span):
        self.writer, self.launch, self.side, self.options = writer, launch, side, options
        self.id = writer.add("recording", launch_id=launch_id, begin_ns=span[0], end_ns=span[1], threshold_ns=MS if not options.host else 100 * US,
                             sample_hz=options.hz if options.host else 0, python=1, target=json.dumps({"pids": [], "cgroup": None, "command": []}),
                             missing="[]")
        self.monitor = None
        for rank in launch.ranks:
            self.rank(rank, launch_id, span)
        writer.add("ledger", launch_id=launch_id, producer="gpu", kind="records", seen=sum(len(r.ops) for r in launch.ranks),
                   kept=sum(len(r.ops) for r in launch.ranks), dropped=0, breach=0)

    def task(self, tgid, comm, kind, cmdline=None, ppid=1):
        process = self.writer.add("process", recording_id=self.id, tgid=tgid, start_ns=tgid * 1000, ppid=ppid, comm=comm, cmdline=cmdline, kind=kind)
        return process, self.writer.add("thread", process_id=process, tid=tgid, comm=comm)

    def rank(self, rank, launch_id, span):
        w, pid = self.writer, 1000 + 100 * self.side + rank.rank
        process, main = self.task(pid, "python", "target", f"python train.py --rank {rank.rank}")
        w.add("launch_rank", launch_id=launch_id, rank=rank.rank, pid=pid)
        w.add("gpu_process", process_id=process, state="traced", kinds=255, cupti_version=130000, driver_version=13000,
              clock_slope=1.0, clock_residual_ns=120, clock_residual_max_ns=900, clock_samples=40)
        w.add("gpu_device", process_id=process, device=0, name="NVIDIA H200", uuid=f"GPU-{rank.rank}", compute_capability="9.0", multiprocessors=132)
        rank.autograd = w.add("thread", process_id=process, tid=pid + 50, comm="pt_autograd_0") if self.options.autograd else main
        self.gpu(rank, process, main)
        self.marks(rank, process, main)
        w.many("phase_span", ("launch_id", "rank", "begin_ns", "depth", "dur_ns", "name"),
               [(launch_id, rank.rank, b - span[0], 0, e - b, name) for b, e, name in rank.phases if e > b])
        if self.options.host:
            self.host(rank, process, main, span)

    def gpu(self, rank, process, main):
        w = self.writer
        streams = {s: w.add("gpu_stream", process_id=process, device=0, context=1, stream=s) for s in (MAIN, SIDE, COMM)}
        kernels, works, rows = {}, {}, []
        for correlation, (start, dur, op, call, call_dur, name, node, graph) in enumerate(rank.ops):
            shown = scramble(name) if self.options.names == "scrambled" and self.side == 1 and op.kind in ("kernel", "collective") else name
            kernel = kind = None
            call_name = "cudaLaunchKernel"
            if op.kind in ("kernel", "collective"):
                key = (shown, op.grid, op.block, op.registers, op.shared)
                if key not in kernels:
                    kernels[key] = w.add("gpu_kernel", name_id=w.string(shown), name=shown, grid_x=op.grid[0], grid_y=op.grid[1], grid_z=op.grid[2],
                                         block_x=op.block[0], block_y=op.block[1], block_z=op.block[2], registers=op.registers,
                                         static_shared_bytes=0, dynamic_shared_bytes=op.shared, local_bytes=0, occupancy=0.5)
                kernel, kind = kernels[key], 0
                if op.kind == "collective":
                    call_name = "cuLaunchKernelEx"
                elif graph:
                    call_name = "cudaGraphLaunch"
            else:
                kind = SET if op.kind == "set" else op.copy
                call_name = "cudaMemsetAsync" if op.kind == "set" else "cudaMemcpyAsync"
            number = None if node is None else (1 + self.side) * 100000 + node
            thread = rank.autograd if op.phase == "backward" and not graph else main
            key = (kind, op.stream, kernel, call_name, op.bytes, op.memory, number, thread)
            if key not in works:
                plain = op.kind in ("kernel", "collective")
                works[key] = w.add("gpu_work", kind=kind, stream_id=streams[op.stream], kernel_id=kernel, call_name_id=w.string(call_name),
                                   thread_id=thread, bytes=None if plain else op.bytes, memory=op.memory if op.kind == "copy" else None,
                                   graph=1 if graph else None, graph_node=number)
            rows.append((start, dur, works[key], start - call, call_dur, correlation + 1))
        w.many("gpu_op", ("start_ns", "dur_ns", "work_id", "call_ns", "call_dur_ns", "correlation"), sorted(rows))
        base = len(rows) + 1
        for k, (begin, end, name, what, phase) in enumerate(rank.calls):
            thread = rank.autograd if phase == "backward" else main
            w.add("gpu_call", start_ns=begin, dur_ns=end - begin, process_id=process, thread_id=thread, name_id=w.string(name), correlation=base + k, result=0)
            if what == "sync":
                w.add("gpu_sync", start_ns=begin, dur_ns=end - begin, process_id=process, kind=4 if "Device" in name else 3,
                      stream_id=None if "Device" in name else streams[MAIN], thread_id=thread, correlation=base + k)
        w.many("nccl_op", ("process_id", "thread_id", "enqueued_ns", "ended_ns", "kernel_start_ns", "kernel_end_ns", "communicator", "communicator_name",
                           "rank", "ranks", "sequence", "function", "datatype", "algorithm", "protocol", "count", "bytes", "channels", "warps",
                           "plugin_version"),
               [(process, rank.autograd, call, end, start, end, 77, "world", rank.rank, len(self.launch.ranks), sequence, op.function, "ncclFloat32",
                 op.algorithm, op.protocol, op.bytes // 4, op.bytes, 16, 16, 4) for call, start, end, op, sequence in rank.nccl])

    def marks(self, rank, process, main):
        w = self.writer
        rows = [(process, rank.autograd if kind == 2 else main, at, kind, w.string(name), value) for at, kind, name, value in rank.marks]
        first = min((mark[0] for mark in rank.marks), default=0) - 50 * MS  # captured before the first step
        for k, op in rank.captured.items():
            at = first + k * 10 * US
            rows.append((process, main, at, 2 if op.phase == "backward" else 1, w.string(op.module), 0))
            w.add("gpu_graph_node", process_id=process, node=(1 + self.side) * 100000 + k, thread_id=main, at_ns=at + US)
        w.many("python_mark", ("process_id", "thread_id", "at_ns", "kind", "name_id", "value"), sorted(rows, key=lambda row: row[2]))

    def host(self, rank, process, main, span):
        """Samples where the host runs, gaps where it is off the CPU. It is frozen outside of its turns."""
        w, tick = self.writer, 1000 * MS // self.options.hz
        gaps = [(b, e, what, op) for b, e, what, op in rank.offs if e - b >= (100 * US)]
        turns = sorted((begin, begin + dur) for begin, dur, _, _ in self.launch.blocks)
        for (_, end), (begin, _) in zip([(0, span[0]), *turns], [*turns, (span[1], 0)]):
            if begin - end >= 100 * US:
                gaps.append((end, begin, "turn", None))
        if self.options.autograd:
            gaps = [gap for gap in gaps if not gap[3] or gap[3].phase != "backward"]
            gaps += [(b, e, "autograd", None) for b, e, name in rank.phases if name == "backward" and e - b >= 100 * US]
        at, samples = span[0], []
        runs = rank.runs
        k = 0
        while at < span[1]:
            while k < len(runs) and runs[k][1] <= at:
                k += 1
            if k < len(runs) and runs[k][0] <= at:
                op = runs[k][2]
                user = w.stack("user", ("cudaLaunchKernel", "libcudart.so.12"), ("at::native::launch", "libtorch_cuda.so")) if op.kind not in (
                    "host", "off") else w.stack("user", (op.name, "libtorch_python.so"), ("_PyEval_EvalFrameDefault", "python3.11"))
                other = self.options.autograd and op.phase == "backward"  # no Python there
                samples.append((rank.autograd if other else main, at, 0, 1 | 16, None, user, None if other else w.stack("python", *python_frames(op))))
            at += tick
        w.many("sample", ("thread_id", "at_ns", "cpu", "why", "kernel_stack", "user_stack", "python_stack"), samples)
        for begin, end, what, op in sorted(gaps, key=lambda gap: gap[0]):
            row = {"thread_id": main, "out_ns": begin, "waking_ns": end - US, "in_ns": end, "state": 1, "flags": 0, "cpu_out": 0, "cpu_in": 0}
            if op:
                row["python_stack"] = w.stack("python", *python_frames(op))
            if what == "smaps":
                if self.monitor is None:
                    self.monitor = self.task(9000, "monitor", "other", "python3 monitor.py")[1]
                row.update(state=0x102, flags=1 << 12, lock_kind=2, owner_thread=self.monitor, waker_thread=self.monitor,
                           kernel_stack=kernel_stack(w, "schedule", "schedule_preempt_disabled", "rwsem_down_write_slowpath", "down_write_killable",
                                                     "vm_mmap_pgoff"),
                           waker_stack=kernel_stack(w, "wake_up_q", "rwsem_wake", "up_read", "show_smaps_rollup", "seq_read_iter", "vfs_read"))
                smaps = kernel_stack(w, "smaps_account", "smaps_pte_range", "walk_pgd_range", "walk_page_vma", "show_smaps_rollup", "seq_read_iter", "vfs_read")
                w.many("sample", ("thread_id", "at_ns", "cpu", "why", "kernel_stack"), [(self.monitor, t, 1, 2, smaps) for t in range(begin, end, tick)])
            elif what == "data":
                if not hasattr(rank, "worker"):
                    rank.worker = self.task(1500 + 100 * self.side + rank.rank, "pt_data_worker", "target", "python train.py", 1000 + 100 * self.side)[1]
                row.update(waker_thread=rank.worker, syscall_nr=0, syscall_target="pipe:[5]",
                           kernel_stack=kernel_stack(w, "schedule", "anon_pipe_read", "vfs_read"),
                           waker_stack=kernel_stack(w, "wake_up_q", "anon_pipe_write", "vfs_write"))
            elif what == "autograd":
                row.update(waker_thread=rank.autograd, syscall_nr=202, kernel_stack=kernel_stack(w, "schedule", "futex_do_wait", "__futex_wait", "futex_wait"),
                           waker_stack=kernel_stack(w, "wake_up_q", "futex_wake", "do_futex"))
            elif what == "turn":
                row.update(flags=1 << 16, kernel_stack=kernel_stack(w, "schedule", "do_freezer_trap", "get_signal"))
            else:
                row.update(kernel_stack=kernel_stack(w, "schedule", "do_poll", "do_sys_poll"), user_stack=w.stack("user", ("cuStreamSynchronize", "libcuda.so.1")))
            w.add("gap", **row)


@dataclasses.dataclass
class Options:
    seed: int = 1
    pairs: int = 10
    traced: int = 2
    couples: int = 8
    names: str = "plain"
    host: bool = False
    hz: int = 997
    interleave: str = "steps"
    autograd: bool = False  # the backward pass is called by a thread of its own, as PyTorch does
    strength: float = 0.0  # share of the step that the plant moves it by; 0: as it was planted


def as_strong(a, b, factor):
    """Both sides' ops with `factor` times of what was planted: what was changed lies between the sides, or beyond the new one."""
    changes = difflib.SequenceMatcher(None, [repr(op) for op in a], [repr(op) for op in b], autojunk=False).get_opcodes()
    only_removed = all(word in ("equal", "delete") for word, *_ in changes)
    sides = [], []

    def between(old, new):
        return max(0, int(old + factor * (new - old)))

    for word, a0, a1, b0, b1 in changes:
        old, new = a[a0:a1], b[b0:b1]
        if word == "delete" and only_removed:
            old = [op.but(dur=int(op.dur * factor)) for op in old]
        elif word in ("insert", "replace") and [op.kind for op in old] == [op.kind for op in new]:
            new = [to.but(dur=between(op.dur, to.dur), cost=between(op.cost, to.cost),
                          nodes=tuple(as_strong(op.nodes, to.nodes, factor)[1])) for op, to in zip(old, new)]
        elif new:
            field = "cost" if any(op.kind == "graph" for op in old) else "dur"
            before_ns, after_ns = (sum(getattr(op, field) for op in ops) for ops in (old, new))
            scale = between(before_ns, after_ns) / after_ns if after_ns else 1
            new = [op.but(**{field: int(getattr(op, field) * scale)}) for op in new]
        sides[0].extend(old)
        sides[1].extend(new)
    return sides


@functools.lru_cache(maxsize=None)
def sides_of(name, strength=0.0):
    """strength: share of the step that the plant moves it by; 0: as it was planted. ValueError: this plant cannot be as strong."""
    change, kinds, pattern, where, base, ranks, answer = PLANTS[name]
    plain = base()
    a = [plain] * ranks
    b = [change(plain, r) if name == "straggler" else change(plain) for r in range(ranks)]
    if strength:
        before_ns, after_ns = truth((a, b), ranks)
        sign = 1 if after_ns > before_ns else -1
        low, high = 0.0, 64.0
        for _ in range(14):
            middle = math.sqrt(max(low, 1 / 64) * high)
            new = [list(side) for side in zip(*(as_strong(x, y, middle) for x, y in zip(a, b)))]
            before_ns, after_ns = truth(new, ranks)
            moved = sign * (after_ns / before_ns - 1)
            if abs(moved / strength - 1) < 0.005:
                break
            low, high = (low, middle) if moved > strength else (middle, high)
        if abs(moved / strength - 1) > 0.1:
            raise ValueError(f"{name} cannot move a step by {strength:.0%}")
        a, b = new
    return [a, b], ranks, Answer(name, kinds, pattern, where, **answer)


def truth(sides, ranks):
    """Step time of each side without noise and tracing."""
    launches, _, _ = run_pair(sides, None, 4, ranks, False, MS)
    return tuple(sum(b[1] for b in launch.blocks[1:]) / sum(b[3] for b in launch.blocks[1:]) for launch in launches)


def add_launch(w, pair, side, launch, options, span):
    steps = sum(b[3] for b in launch.blocks)
    active = sum(b[1] for b in launch.blocks)
    launch_id = w.add("launch", pair_id=pair, side=side, state="ok", exit_code=0, started_ns=span[0], ended_ns=span[1], active_ns=active,
                      held_ns=span[1] - span[0] - active, cpu_ns=active, peak_memory_bytes=300 << 20, peak_gpu_memory_bytes=4 << 30, steps=steps,
                      ranks=len(launch.ranks), dropped=0, covariates="{}")
    for rank in launch.ranks:
        w.many("step", ("launch_id", "rank", "idx", "begin_ns", "dur_ns", "samples"),
               [(launch_id, rank.rank, idx, begin - span[0], dur, 32.0) for idx, begin, dur in rank.steps])
    w.add("ledger", launch_id=launch_id, producer="step protocol", kind="records", seen=steps, kept=steps, dropped=0, breach=0)
    warm = launch.blocks[1:]
    step_ns = sum(b[1] for b in warm) / max(1, sum(b[3] for b in warm))
    for metric, value in (("step_time", step_ns), ("throughput", 32e9 / step_ns), ("first_step_time", float(launch.blocks[0][1])), ("total_time", float(active))):
        w.add("launch_metric", launch_id=launch_id, metric=metric, value=value)
    return launch_id, step_ns


def add_first_step(w, firsts):
    """The cell of the first step: observed, never judged."""
    logs = [math.log(b / a) for a, b in zip(*firsts)]
    mean = sum(logs) / len(logs)
    half = 3.2 * math.sqrt(sum((x - mean) ** 2 for x in logs) / max(1, len(logs) - 1) / len(logs))
    medians = [sorted(side)[len(side) // 2] for side in firsts]
    w.add("cell", workload="train", metric="first_step_time", unit="ns", direction="lower", gating=0, median_a=medians[0], median_b=medians[1],
          ratio=math.exp(mean), ci_lower=math.exp(mean - half), ci_upper=math.exp(mean + half), alpha=0.01, pairs=len(logs), look=0, margin=0.1,
          verdict="pass", improved=0, reason="observed")


def add_judgement(w, ratios, options, medians):
    mean = sum(ratios) / len(ratios)
    sd = math.sqrt(sum((r - mean) ** 2 for r in ratios) / max(1, len(ratios) - 1)) or 1e-6
    half = 3.2 * sd / math.sqrt(len(ratios))
    lower, upper = math.exp(mean - half), math.exp(mean + half)
    word = "fail" if lower > 1.02 else "pass" if upper <= 1.02 else "inconclusive"
    reason = f"{abs(math.expm1(mean)) * 100:.1f} % {'slower' if mean > 0 else 'faster'}: ratio {math.exp(mean):.4f} ({lower:.4f} to {upper:.4f}) at {len(ratios)} pairs"
    w.add("cell", workload="train", metric="step_time", unit="ns", direction="lower", gating=1, median_a=medians[0], median_b=medians[1], ratio=math.exp(mean),
          ci_lower=lower, ci_upper=upper, alpha=0.01, pairs=len(ratios), look=0, margin=0.02, mde=half * 2, pair_sd=sd, verdict=word,
          improved=int(upper < 0.98), reason=reason)
    w.add("verdict", id=1, verdict=word, reason=f"train step_time: {reason}", margin_note="margins: step_time 2 %", policy="{}", trust_ok=1, calibrated=1,
          calibration_note="host (steps): 0 false fails in 300 A/A gates", judged_wall_ns=1795263850000000001)


def write(plant_name, path, **options):
    """Writes the store of a plant and gives its answer."""
    options = Options(**options)
    sides, ranks, answer = sides_of(plant_name, options.strength)
    answer = dataclasses.replace(answer)
    answer.step_ns = truth(sides, ranks)
    answer.delta_ns = answer.step_ns[1] - answer.step_ns[0]
    generator = random.Random(f"{plant_name} {options.seed}")
    w = Writer(path)
    fingerprints = [json.dumps({"schema": "upgate.fingerprint/1", "taken_wall_ns": 1, "read_ns": 1, "components": {"torch": v, "nccl": n, "cuda_runtime": c}})
                    for v, n, c in (("2.4.0", "2.20.5", "12.4"), ("2.6.0", "2.25.1", "12.6"))]
    w.add("run", id=1, uuid="5d1f0000-0000-4000-8000-000000000001", kind="aa" if plant_name == "aa" else "ab", state="done", upgate_version="0.1.0",
          started_wall_ns=1795262400000000000, ended_wall_ns=1795263850000000000, seed=options.seed, plan="{}", plan_path="plan.yaml",
          command_line='["upgate","ab","plan.yaml"]', host="{}", host_key="test-host")
    for side, name in enumerate(("old", "new")):
        w.add("side", id=side, name=name, config="{}", fingerprint=fingerprints[side])
    w.add("workload", id=1, name="train", mode="train", interleave=options.interleave)
    now, ratios, per_side, firsts = 1000 * MS, [], ([], []), ([], [])
    for idx in range(options.pairs + options.traced):
        traced = idx >= options.pairs
        begin = now + 500 * MS
        launches, order, end = run_pair(sides, generator, options.couples, ranks, traced, begin + 2 * MS)
        now = end + 10 * MS
        span = begin, now
        pair = w.add("pair", workload_id=1, idx=idx - options.pairs if traced else idx, phase="traced" if traced else "main", seed=100 + idx,
                     first_side=order[0], interleave=options.interleave, steps=1 + (options.couples - 1) * BLOCK_STEPS, state="valid",
                     started_ns=begin, ended_ns=now)
        times = []
        for side, launch in enumerate(launches):
            launch_id, step_ns = add_launch(w, pair, side, launch, options, span)
            times.append(step_ns)
            w.many("block", ("pair_id", "couple", "side", "ran_first", "first_step", "steps", "begin_ns", "active_ns"),
                   [(pair, couple, side, int(order[couple] == side), first, count, at, dur)
                    for couple, (at, dur, first, count) in enumerate(launch.blocks)])
            if traced:
                Recording(w, launch_id, launch, side, options, span)
        if not traced:
            logs = [math.log(b[1] / b[3] / (a[1] / a[3])) for a, b in zip(launches[0].blocks[1:], launches[1].blocks[1:])]
            mean = sum(logs) / len(logs)
            within = math.sqrt(sum((x - mean) ** 2 for x in logs) / max(1, len(logs) - 1) / len(logs))
            w.add("pair_ratio", pair_id=pair, metric="step_time", log_ratio=mean, within_sd=within, couples=len(logs))
            ratios.append(mean)
            for side in (0, 1):
                per_side[side].append(times[side])
                firsts[side].append(launches[side].blocks[0][1])
    if ratios:
        add_judgement(w, ratios, options, [sorted(times)[len(times) // 2] for times in per_side])
        add_first_step(w, firsts)
    w.db.commit()
    w.db.close()
    if not options.host and "host_stall" in answer.kinds:  # the device alone tells that the host was late, not why
        answer.kinds, answer.name = (*answer.kinds, "launch_gap"), ""
    if options.names == "scrambled":
        answer.name = ""  # names of the candidate say nothing any more
        if "kernel_slower" in answer.kinds:
            answer.kinds = (*answer.kinds, "kernel_replaced")
    return answer


def main():
    parser = argparse.ArgumentParser(description="Writes the store of an A/B run with a planted difference; prints the answer as JSON.")
    parser.add_argument("plant", nargs="?", choices=sorted(PLANTS))
    parser.add_argument("out", nargs="?")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--names", choices=("plain", "scrambled"), default="plain")
    parser.add_argument("--host", action="store_true", help="host samples, gaps and stacks, too")
    parser.add_argument("--autograd", action="store_true", help="the backward pass is called by a thread of its own")
    for name in ("seed", "pairs", "traced", "couples"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Options, name))
    parser.add_argument("--strength", type=float, default=0.0, metavar="SHARE", help="of the step, such as 0.03; as planted without it")
    arguments = parser.parse_args()
    if arguments.list or not arguments.out:
        for name in PLANTS:
            sides, ranks, answer = sides_of(name)
            a, b = truth(sides, ranks)
            print(f"{name:24} {a / MS:7.3f} ms {b / MS:7.3f} ms {100 * (b / a - 1):+7.2f} %  {' '.join(answer.kinds) or 'nothing'}")
        return 0
    answer = write(arguments.plant, arguments.out, seed=arguments.seed, pairs=arguments.pairs, traced=arguments.traced, couples=arguments.couples,
                   names=arguments.names, host=arguments.host, autograd=arguments.autograd, strength=arguments.strength)
    print(json.dumps(dataclasses.asdict(answer)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
