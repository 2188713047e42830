# SPDX-License-Identifier: Apache-2.0
"""What the JAX reference workloads share: the command line, start values as the PyTorch twins have them, the loops.

Writes steps, phases, losses and outputs through `upgate`, and one JSON line to stdout. A model is compiled in its first step, for the batches
of a model all have one shape; the time of that is the note compile_time_ns. torch is not imported.
"""
import argparse
import functools
import json
import math
import os
import sys
import time

# Behind the directory of the program: that of torch has a common.py, too.
sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "torch"))
from draw import Draw  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
import upgate  # noqa: E402

RECORDED_OUTPUTS = 8  # steps or requests whose output goes to the parity gate


def arguments(name, sizes):
    """The command line of every one. A bad argument ends with status 2."""
    parser = argparse.ArgumentParser(prog=name, description="upgate reference workload on JAX", allow_abbrev=False)
    parser.add_argument("--mode", choices=("train", "infer"), default="train")
    parser.add_argument("--steps", type=int, default=100, help="steps, or requests with --mode infer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.0, help="requests per second; 0: closed loop")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--size", choices=sorted(sizes), default="demo")
    args = parser.parse_args()
    if args.steps < 1:
        parser.error("argument --steps: must be at least 1")
    if not 0 <= args.rate < float("inf"):
        parser.error("argument --rate: must be a rate per second, 0 or more")
    if args.mode == "train" and args.rate > 0:
        parser.error("--rate is for --mode infer; training steps do not arrive")
    if args.dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    args.name, args.fail = name, parser.error
    args.device = "cpu" if jax.default_backend() == "cpu" else "cuda"
    return args


def initial(shapes, args):
    """Values of parameters by name, shapes: name -> shape. Matrices uniform in +-1/sqrt(fan in), drawn in float64 and rounded once; biases 0,
    gains 1."""
    values = {}
    for name, shape in shapes.items():
        if len(shape) < 2:
            values[name] = jnp.full(shape, 1.0 if name.endswith("weight") else 0.0, args.dtype)
            continue
        bound = shape[-1] ** -0.5
        drawn = Draw(args.seed, "weight/" + name).uniform(shape[0] * shape[1]) * (2 * bound) - bound
        values[name] = jnp.array(drawn.reshape(shape), args.dtype)
    return values


def linear(values, name, x):
    return x @ values[name + ".weight"].T + values[name + ".bias"]


def _compiled(jitted, *arguments):
    begin = time.perf_counter_ns()
    compiled = jitted.lower(*arguments).compile()
    upgate.note("compile_time_ns", time.perf_counter_ns() - begin)
    return compiled


def _train(args, model):
    state, losses, step = model.start(), [], None
    for i in upgate.steps(range(args.steps), samples=model.samples):
        with upgate.phase("data"):
            batch, count = model.batch(i), jnp.asarray(i + 1.0, args.dtype)
        if step is None:  # what becomes of the state takes its place: it is not copied
            step = _compiled(jax.jit(model.advance, donate_argnums=0), state, count, batch)
        with upgate.phase("compute"):
            state, loss, output = step(state, count, batch)
            losses.append(float(loss))
        if i < RECORDED_OUTPUTS:
            upgate.record(loss=losses[-1], output=numpy.asarray(output))
        else:
            upgate.record(loss=losses[-1])
    return losses


def _requests(args, samples):
    if args.rate > 0:
        return upgate.requests(args.steps, rate=args.rate, seed=args.seed, samples=samples)
    return upgate.steps(range(args.steps), samples=samples)


def _infer(args, model):
    state, answer = model.start(), None
    for i, _ in enumerate(_requests(args, model.samples)):
        with upgate.phase("data"):
            batch = model.batch(i)
        if answer is None:
            answer = functools.partial(_compiled(jax.jit(model.answer), state, batch), state)
        with upgate.phase("compute"):
            output = numpy.asarray(answer(batch))  # a client gets its answer in the memory of the host
        if i < RECORDED_OUTPUTS:
            upgate.record(output=output)
    return [None]


def _finite(value):
    """JSON has no NaN and no infinity."""
    return value if value is not None and math.isfinite(value) else None


def run(args, model):
    """Train or answer, and print one JSON line. Returns the exit status.

    model has: samples (of a step), start() -> state, batch(i), and two pure functions: advance(state, count, batch) -> (state, loss, output), where
    count is 1 in the first step, and answer(state, batch) -> output."""
    losses = (_train if args.mode == "train" else _infer)(args, model)
    print(json.dumps({"model": args.name, "mode": args.mode, "framework": "jax " + jax.__version__, "dtype": args.dtype, "size": args.size,
                      "seed": args.seed, "steps": args.steps, "samples": model.samples * args.steps,
                      "loss_first": _finite(losses[0]), "loss_last": _finite(losses[-1])}), flush=True)
    return 0
