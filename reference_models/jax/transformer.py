# SPDX-License-Identifier: Apache-2.0
"""transformer: the decoder of reference_models/torch in JAX: same text, same windows, same start values, AdamW; one jitted step.

A command of a plan, in an interpreter with jax and numpy:
    command: ["{python}", reference_models/jax/transformer.py, --steps, "{steps}", --seed, "{seed}", --dtype, "{dtype}"]
Its first loss is that of the PyTorch twin to rounding. The time of the first step in the compiler is the note compile_time_ns.
"""
import os
import sys

import common  # before draw: it says where that is
import jax
import jax.numpy as jnp
import numpy
from common import linear
from draw import Draw

TEXT_DIR, VOCABULARY = "/usr/share/common-licenses", 256
SIZES = {"small": dict(layers=1, dim=32, heads=2, context=32, batch=4), "demo": dict(layers=2, dim=128, heads=4, context=64, batch=4)}
RATE, DECAY, BETA1, BETA2, EPSILON = 1e-3, 1e-2, 0.9, 0.999, 1e-8  # AdamW, as torch has it


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


def norm(values, name, x):
    centred = x - x.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return centred * scale * values[name + ".weight"] + values[name + ".bias"]


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


class Transformer:
    """State: parameters by name; in training also both moments of AdamW."""

    def __init__(self, args):
        size = SIZES[args.size]
        self.samples, self._args, self._size = size["batch"], args, size
        self._text, self._window = licence_text(), numpy.arange(size["context"] + 1)
        draw = Draw(args.seed, "transformer/%s/0" % args.mode)
        self._starts = draw.integers(args.steps * size["batch"], len(self._text) - size["context"]).reshape(args.steps, -1)

    def start(self):
        values = common.initial(shapes(self._size), self._args)
        if self._args.mode == "infer":
            return (values,)
        return values, jax.tree.map(jnp.zeros_like, values), jax.tree.map(jnp.zeros_like, values)

    def batch(self, i):
        return jnp.asarray(self._text[self._starts[i][:, None] + self._window])

    def _loss(self, values, tokens):
        logits = logits_of(values, tokens[:, :-1], self._size)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1)
        return -chosen.mean(), logits[:, -1]

    def advance(self, state, count, tokens):
        values, first, second = state
        (loss, output), gradients = jax.value_and_grad(self._loss, has_aux=True)(values, tokens)
        scale1, scale2 = 1 - BETA1 ** count, 1 - BETA2 ** count
        first = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, first, gradients)
        second = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, second, gradients)
        values = jax.tree.map(lambda p, m, v: p * (1 - RATE * DECAY) - RATE / scale1 * m / (jnp.sqrt(v / scale2) + EPSILON), values, first, second)
        return (values, first, second), loss, output

    def answer(self, state, tokens):
        return logits_of(state[0], tokens[:, :-1], self._size)[:, -1]


def main():
    args = common.arguments("transformer", SIZES)
    return common.run(args, Transformer(args))


if __name__ == "__main__":
    sys.exit(main())
