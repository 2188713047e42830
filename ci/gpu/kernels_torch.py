#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own operators on the shapes of upgate_kernels, for the table of ci/gpu/kernels. Reads the lines of JSON that
`upgate_kernels time` wrote, builds the same problem from each line's kernel and shape, and writes a line with PyTorch's median
time. Launches in a row between two events, like kernels/bench.cu. What PyTorch has no operator for is left out.
Usage: ci/gpu/kernels_torch.py LINES"""
import json
import math
import re
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
L2_BYTES = torch.cuda.get_device_properties(0).L2_cache_size


def median_ns(calls):
    """Median time of a call; `calls` are taken in turn, as many as keep their data out of the L2."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def sample(count):
        begin.record()
        for i in range(count):
            calls[i % len(calls)]()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e6 / count

    sample(2 * len(calls))
    count = min(1000, int(4e6 / sample(2 * len(calls))) + 1)
    count = -(-count // len(calls)) * len(calls)
    return sorted(sample(count) for _ in range(15))[7]


def sets_for(byte_count):
    return min(64, max(1, math.ceil(4 * L2_BYTES / byte_count)))


def norm(kernel, shape):
    kind, rows, n, dtype = re.fullmatch(r"(\w+) (\d+)x(\d+) (\w+)", shape).groups()
    rows, n, dtype = int(rows), int(n), TYPES[dtype]
    gain = torch.rand(n, device="cuda", dtype=dtype).requires_grad_()
    bias = torch.rand(n, device="cuda", dtype=dtype).requires_grad_()
    calls = []
    for _ in range(sets_for(2 * rows * n * dtype.itemsize)):
        x = torch.randn(rows, n, device="cuda", dtype=dtype)
        if kernel == "norm_forward":
            def call(x=x):
                with torch.no_grad():
                    return F.rms_norm(x, (n,), gain, 1e-5) if kind == "rms" else F.layer_norm(x, (n,), gain, bias, 1e-5)
        else:
            x.requires_grad_()
            y = F.rms_norm(x, (n,), gain, 1e-5) if kind == "rms" else F.layer_norm(x, (n,), gain, bias, 1e-5)
            wanted = (x, gain) if kind == "rms" else (x, gain, bias)
            call = lambda y=y, wanted=wanted, dy=torch.randn_like(y): torch.autograd.grad(y, wanted, dy, retain_graph=True)
        calls.append(call)
    return calls


def power_ids(count, rows):
    """Ranks of a power law of exponent 1.05 (continuous inverse), spread over the ids."""
    u = torch.rand(count, device="cuda", dtype=torch.float64)
    rank = ((1 + u * ((rows + 1) ** -0.05 - 1)) ** -20).floor().long() - 1
    return rank.clamp_(0, rows - 1) * 7919 % rows


BAGS = r"(?:(sgd|adagrad|adam|adagrad_each) )?(\d+) tables (\d+)x(\d+), (\d+) bags of (0-)?(\d+), (\w+) (\w+) (\w+)"


def bags(shape):
    optimizer, tables, rows, dim, count, varied, length, dtype, pooling, law = re.fullmatch(BAGS, shape).groups()
    tables, rows, dim, count, length = int(tables), int(rows), int(dim), int(count), int(length)
    mode = "mean" if pooling == "mean" else "sum"
    weights = [torch.rand(rows, dim, device="cuda", dtype=TYPES[dtype]) for _ in range(tables)]
    sets = []
    for _ in range(2):
        each = []
        for _ in range(tables):
            lengths = torch.randint(0, length + 1, (count,), device="cuda") if varied else torch.full((count,), length, device="cuda")
            total = int(lengths.sum())
            ids = power_ids(total, rows) if law == "power" else torch.randint(rows, (total,), device="cuda")
            scale = torch.rand(total, device="cuda", dtype=TYPES[dtype]) if pooling == "weighted" else None
            each.append((ids, lengths.cumsum(0) - lengths, scale))
        sets.append(each)
    return optimizer, weights, sets, mode


def bag_forward(_, shape):
    _, weights, sets, mode = bags(shape)

    def run(each):
        for weight, (ids, offsets, scale) in zip(weights, each):
            F.embedding_bag(ids, weight, offsets, mode=mode, per_sample_weights=scale)

    return [lambda each=each: run(each) for each in sets]


def bag_update(_, shape):
    """Backward to a sparse gradient and the optimizer's step. Adagrad is always the one of each element: PyTorch has none of rows."""
    optimizer, weights, sets, mode = bags(shape)
    weight = weights[0].requires_grad_()
    make = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "adagrad_each": torch.optim.Adagrad, "adam": torch.optim.SparseAdam}[optimizer]
    stepper = make([weight], lr=0.05)
    graphs = [F.embedding_bag(ids, weight, offsets, mode=mode, sparse=True) for (ids, offsets, _), in sets]
    dout = torch.randn_like(graphs[0])

    def run(out):
        weight.grad, = torch.autograd.grad(out, weight, dout, retain_graph=True)
        stepper.step()

    return [lambda out=out: run(out) for out in graphs]


def adam(_, shape):
    param = torch.rand(int(shape.split()[0]), device="cuda").requires_grad_()
    param.grad = torch.randn_like(param)
    stepper = torch.optim.Adam([param], lr=0.01, fused=True)
    return [stepper.step]


def cross_entropy(_, shape):
    """The loss and the gradient of the logits."""
    rows, n, dtype = re.fullmatch(r"(\d+)x(\d+) (\w+)", shape).groups()
    logits = torch.randn(int(rows), int(n), device="cuda", dtype=TYPES[dtype]).requires_grad_()
    target = torch.randint(int(n), (int(rows),), device="cuda")
    return [lambda: torch.autograd.grad(F.cross_entropy(logits, target), logits)]


def interaction(kernel, shape):
    """As DLRM does it: bmm, the lower triangle by index, cat."""
    rows, vectors, dim, dtype = re.fullmatch(r"(\d+)x(\d+)x(\d+) (\w+)", shape).groups()
    x = torch.randn(int(rows), int(vectors), int(dim), device="cuda", dtype=TYPES[dtype]).requires_grad_()
    low, high = torch.tril_indices(int(vectors), int(vectors), -1, device="cuda")

    def forward():
        return torch.cat((x[:, 0], torch.bmm(x, x.transpose(1, 2))[:, low, high]), dim=1)

    if kernel == "interaction_forward":
        def call():
            with torch.no_grad():
                forward()
        return [call]
    out = forward()
    dout = torch.randn_like(out)
    return [lambda: torch.autograd.grad(out, x, dout, retain_graph=True)]


def mlp(kernel, shape):
    """A layer; input: the product, the way back through the activation, and the sum over the rows."""
    kind, rows, inputs, outputs, dtype = re.fullmatch(r"(\w+) (\d+)x(\d+)x(\d+) (\w+)", shape).groups()
    x, dz = (torch.randn(int(rows), int(n), device="cuda", dtype=TYPES[dtype]) for n in (inputs, outputs))
    weight = torch.randn(int(outputs), int(inputs), device="cuda", dtype=TYPES[dtype]) / math.sqrt(int(inputs))
    bias = torch.randn(int(outputs), device="cuda", dtype=TYPES[dtype])
    if kernel == "mlp_forward":
        return [lambda: F.relu(F.linear(x, weight, bias)) if kind == "relu" else F.gelu(F.linear(x, weight, bias), approximate="tanh")]
    if kernel == "mlp_weight":
        return [lambda: dz.t() @ x]

    def call():
        below = dz @ weight
        below = torch.ops.aten.threshold_backward(below, x, 0) if kind == "relu" else torch.ops.aten.gelu_backward(below, x, approximate="tanh")
        return below, below.sum(0)
    return [call]


def gemm(_, shape):
    rows, inputs, outputs, dtype = re.fullmatch(r"(\d+)x(\d+)x(\d+) (\w+)", shape).groups()
    torch.backends.cuda.matmul.allow_tf32 = True
    x = torch.randn(int(rows), int(inputs), device="cuda", dtype=TYPES[dtype])
    weight = torch.randn(int(outputs), int(inputs), device="cuda", dtype=TYPES[dtype]) / math.sqrt(int(inputs))
    return [lambda: F.linear(x, weight)]


def attention(kernel, shape):
    """scaled_dot_product_attention, with the backend that PyTorch picks, and with cuDNN's. It has no SiLU and no packed sequences."""
    found = re.fullmatch(r"softmax (causal|full) (\d+)x(\d+), (\d+)/(\d+) heads of (\d+), (\w+)", shape)
    if not found:
        raise RuntimeError("no operator for it")
    mask, dtype = found.group(1), TYPES[found.group(7)]
    sequences, length, heads, key_heads, dim = (int(found.group(i)) for i in range(2, 7))
    q = torch.randn(sequences, heads, length, dim, device="cuda", dtype=dtype).requires_grad_()
    k, v = (torch.randn(sequences, key_heads, length, dim, device="cuda", dtype=dtype).requires_grad_() for _ in range(2))

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=mask == "causal", enable_gqa=heads != key_heads)

    if kernel == "attention_forward":
        def call():
            with torch.no_grad():
                forward()
        return [call]
    out = forward()
    dout = torch.randn_like(out)
    return [lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)]


PROBLEMS = {"attention_forward": attention, "attention_backward": attention, "norm_forward": norm, "norm_backward": norm, "bag_forward": bag_forward, "bag_update": bag_update,
            "adam": adam, "cross_entropy": cross_entropy, "interaction_forward": interaction, "interaction_backward": interaction,
            "mlp_forward": mlp, "mlp_input": mlp, "mlp_weight": mlp, "gemm": gemm}


def measure(by, line, backends):
    result = {by: line["kernel"], "shape": line["shape"]}
    try:
        with sdpa_kernel(backends):
            result["ns"] = median_ns(PROBLEMS[line["kernel"]](line["kernel"], line["shape"]))
    except RuntimeError as error:  # no memory, or an operator that this version lacks
        result["why_not"] = str(error).splitlines()[0]
    print(json.dumps(result), flush=True)
    torch.cuda.empty_cache()


def main():
    every = [backend for name, backend in SDPBackend.__members__.items() if name not in ("ERROR", "OVERRIDEABLE")]
    for text in open(sys.argv[1], encoding="utf-8"):
        line = json.loads(text) if text.startswith("{") else {}
        if line.get("kernel") not in PROBLEMS:
            continue
        measure("torch", line, every)
        if line["kernel"].startswith("attention") and line["shape"].startswith("softmax"):
            measure("cudnn", line, [SDPBackend.CUDNN_ATTENTION])


main()
