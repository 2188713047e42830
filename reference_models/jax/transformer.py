# SPDX-License-Identifier: Apache-2.0
"""transformer: the decoder of reference_models/torch in JAX: same text, same windows, same start values, AdamW; one jitted step.

A command of a plan, in an interpreter with jax and numpy:
    command: ["{python}", reference_models/jax/transformer.py, --steps, "{steps}", --seed, "{seed}", --dtype, "{dtype}"]
Its first loss is that of the PyTorch twin to rounding; torch is not imported. The time of the first step in the compiler is the note compile_time_ns.
"""
import argparse
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "torch"))
from draw import Draw  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402
import upgate  # noqa: E402

TEXT_DIR, VOCABULARY = "/usr/share/common-licenses", 256
SIZES = {"small": dict(layers=1, dim=32, heads=2, context=32, batch=4), "demo": dict(layers=2, dim=128, heads=4, context=64, batch=4)}
RATE, DECAY, BETA1, BETA2, EPSILON = 1e-3, 1e-2, 0.9, 0.999, 1e-8  # AdamW, as torch has it
RECORDED_OUTPUTS = 8


def licence_text():
    paths = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "LICENSE")]
    if os.path.isdir(TEXT_DIR):
        found = [os.path.join(TEXT_DIR, name) for name in sorted(os.listdir(TEXT_DIR))]
        paths = [path for path in found if os.path.isfile(path) and not os.path.islink(path)] or paths
    text = b""
    for path in paths:
        with open(path, "rb") as file:
            text += file.read()
    return numpy.frombuffer(text, dtype=numpy.uint8).astype(numpy.int32)


def shapes(size):
    """Names and shapes of the parameters, as the PyTorch twin has them: they name the streams of start values."""
    dim, found = size["dim"], {"token.weight": (VOCABULARY, size["dim"]), "position.weight": (size["context"], size["dim"])}
    for block in range(size["layers"]):
        for name, outputs, inputs in (("qkv", 3 * dim, dim), ("out", dim, dim), ("mlp.0", 4 * dim, dim), ("mlp.2", dim, 4 * dim)):
            found["blocks.%d.%s.weight" % (block, name)] = (outputs, inputs)
            found["blocks.%d.%s.bias" % (block, name)] = (outputs,)
        for name in ("attention_norm", "mlp_norm"):
            found["blocks.%d.%s.weight" % (block, name)] = found["blocks.%d.%s.bias" % (block, name)] = (dim,)
    found["final_norm.weight"] = found["final_norm.bias"] = (dim,)
    found["head.weight"] = (VOCABULARY, dim)
    return found


def initial(size, seed, dtype):
    values = {}
    for name, shape in shapes(size).items():
        if len(shape) < 2:
            values[name] = jnp.full(shape, 1.0 if name.endswith("weight") else 0.0, dtype)
            continue
        bound = shape[-1] ** -0.5
        drawn = Draw(seed, "weight/" + name).uniform(shape[0] * shape[1]) * (2 * bound) - bound
        values[name] = jnp.asarray(drawn.reshape(shape), dtype)
    return values


def norm(values, name, x):
    centred = x - x.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return centred * scale * values[name + ".weight"] + values[name + ".bias"]


def linear(values, name, x):
    return x @ values[name + ".weight"].T + values[name + ".bias"]


def attend(values, name, x, heads):
    batch, length, dim = x.shape
    q, k, v = (part.reshape(batch, length, heads, dim // heads).transpose(0, 2, 1, 3)
               for part in jnp.split(linear(values, name + ".qkv", x), 3, axis=2))
    scores = q @ k.transpose(0, 1, 3, 2) * (dim // heads) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
    y = jax.nn.softmax(scores, axis=-1) @ v
    return linear(values, name + ".out", y.transpose(0, 2, 1, 3).reshape(batch, length, dim))


def logits_of(values, tokens, size):
    x = values["token.weight"][tokens] + values["position.weight"][:tokens.shape[1]]
    for block in range(size["layers"]):
        name = "blocks.%d" % block
        x = x + attend(values, name, norm(values, name + ".attention_norm", x), size["heads"])
        hidden = jax.nn.gelu(linear(values, name + ".mlp.0", norm(values, name + ".mlp_norm", x)), approximate=False)
        x = x + linear(values, name + ".mlp.2", hidden)
    return norm(values, "final_norm", x) @ values["head.weight"].T


def make_step(size):
    def loss_of(values, tokens):
        logits = logits_of(values, tokens[:, :-1], size)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1)
        return -chosen.mean(), logits[:, -1]

    def step(values, first, second, count, tokens):
        (loss, output), gradients = jax.value_and_grad(loss_of, has_aux=True)(values, tokens)
        scale1, scale2 = 1 - BETA1 ** count, 1 - BETA2 ** count
        first = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, first, gradients)
        second = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, second, gradients)
        values = jax.tree.map(lambda p, m, v: p * (1 - RATE * DECAY) - RATE / scale1 * m / (jnp.sqrt(v / scale2) + EPSILON), values, first, second)
        return values, first, second, loss, output

    return jax.jit(step)


def main():
    parser = argparse.ArgumentParser(prog="transformer", description="upgate reference workload on JAX", allow_abbrev=False)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--size", choices=sorted(SIZES), default="demo")
    args = parser.parse_args()
    if args.steps < 1:
        parser.error("argument --steps: must be at least 1")
    if args.dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    size, dtype = SIZES[args.size], jnp.dtype(args.dtype)
    text, window = licence_text(), numpy.arange(size["context"] + 1)
    starts = Draw(args.seed, "transformer/train/0").integers(args.steps * size["batch"], len(text) - size["context"]).reshape(args.steps, -1)
    values = initial(size, args.seed, dtype)
    first, second = jax.tree.map(jnp.zeros_like, values), jax.tree.map(jnp.zeros_like, values)
    step, losses = make_step(size), []
    for i in upgate.steps(range(args.steps), samples=size["batch"]):
        with upgate.phase("data"):
            tokens = jnp.asarray(text[starts[i][:, None] + window])
        if i == 0:
            begin = time.perf_counter_ns()
            step = step.lower(values, first, second, jnp.asarray(1.0, dtype), tokens).compile()
            upgate.note("compile_time_ns", time.perf_counter_ns() - begin)
        with upgate.phase("compute"):
            values, first, second, loss, output = step(values, first, second, jnp.asarray(i + 1.0, dtype), tokens)
            losses.append(float(loss))
        if i < RECORDED_OUTPUTS:
            upgate.record(loss=losses[-1], output=numpy.asarray(output))
        else:
            upgate.record(loss=losses[-1])
    print(json.dumps({"model": "transformer", "framework": "jax " + jax.__version__, "dtype": args.dtype, "size": args.size, "seed": args.seed,
                      "steps": args.steps, "loss_first": losses[0], "loss_last": losses[-1]}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
