# SPDX-License-Identifier: Apache-2.0
"""transformer-decode: the transformer as it is served: a prompt is read once (prefill), then one byte after the other is decoded,
with the keys and values of all earlier ones kept (KV cache).

A request is a batch of prompts of half a context, answered with DECODED bytes. The bytes that are decoded come from the text
and not from the model: two versions that round differently would else part ways at the first near tie. The answer is the
logits of the last byte; before the first request they are compared with those of the training graph, which has no cache. Inference only.
"""
import sys

import cli  # before torch: it sets the thread counts
import common
import torch
import transformer
import upgate
import variants
from torch import nn
from torch.nn import functional

DECODED = 8


class Decoder(nn.Module):
    """The layers of a transformer, with a cache. forward(tokens [batch, n], at, mask): logits of the last token; caches[layer]:
    keys and values [2, batch, heads, context, head]."""

    def __init__(self, model, size, batch):
        super().__init__()
        self.model, self.context = model, size["context"]
        weight = model.token.weight
        shape = (2, batch, size["heads"], size["context"], size["dim"] // size["heads"])
        self.caches = [torch.zeros(shape, dtype=weight.dtype, device=weight.device) for _ in model.blocks]

    def attend(self, block, cache, x, at):
        batch, length, dim = x.shape
        q, k, v = (part.view(batch, length, block.heads, dim // block.heads).transpose(1, 2)
                   for part in block.qkv(x).split(dim, dim=2))
        cache[0][:, :, at:at + length], cache[1][:, :, at:at + length] = k, v
        k, v = cache[0][:, :, :at + length], cache[1][:, :, :at + length]
        if block.fused:  # the prompt is read from the beginning; one token sees all before it
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        else:
            y = transformer.explicit_attention(q, k, v, block.mask[at:at + length, :at + length])
        return block.out(y.transpose(1, 2).reshape(batch, length, dim))

    def forward(self, tokens, at):
        model, length = self.model, tokens.shape[1]
        x = model.token(tokens) + model.position.weight[at:at + length]
        for block, cache in zip(model.blocks, self.caches):
            x = x + self.attend(block, cache, block.attention_norm(x), at)
            x = x + block.mlp(block.mlp_norm(x))
        return model.head(model.final_norm(x[:, -1]))


class Work(transformer.Work):
    def __init__(self, args):
        if args.mode != "infer":
            args.fail("argument --mode: transformer-decode answers requests: infer")
        chosen, args.variant = args.variant, "eager"  # of what the cache is made for, below
        super().__init__(args)
        args.variant = chosen
        size = transformer.SIZES[args.size]
        self._prompt, self.samples = size["context"] // 2, size["batch"] * DECODED
        self._decoder = Decoder(self.model, size, size["batch"])
        self._call = self._under(args)
        self._check()

    def _under(self, args):
        if args.variant in ("eager", "amp-bf16", "amp-fp16") or args.dtype == "float64":
            return common.variant(args, self._decoder, [(self.batch(0)[0][:, :1], 0)])
        variants.skip("%s of a decoder with a cache that grows is not a path here; eager and amp are" % args.variant)

    def _check(self):
        """Both graphs give the same logits, for the last byte that is decoded."""
        tokens = self.batch(0)[0][:, :self._prompt + DECODED]
        with torch.no_grad():
            scores, served = self.model(tokens)[:, -1].double(), self.answer((tokens,)).double()
        error = ((served - scores).pow(2).mean() / scores.pow(2).mean()).sqrt().item()
        upgate.note("serve_error_ppb", int(min(error, 1e6) * 1e9))
        if not error <= variants.serve_limit(self._args):
            sys.stderr.write("transformer-decode: the logits with the cache are %.2g of their rms off those without\n" % error)
            sys.exit(1)

    def answer(self, batch):
        tokens, prompt = batch[0], self._prompt
        with upgate.phase("prefill"):
            logits = self._call(tokens[:, :prompt], 0)
        with upgate.phase("decode"):
            for at in range(prompt, prompt + DECODED):
                logits = self._call(tokens[:, at:at + 1], at)
        return logits

    def visible(self, output):
        return output.contiguous()


def main():
    return common.main("transformer-decode", Work)


if __name__ == "__main__":
    sys.exit(main())
