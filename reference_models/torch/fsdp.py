# SPDX-License-Identifier: Apache-2.0
"""fsdp: the transformer trained on several ranks, with parameters, gradients and optimizer sharded.

By the framework's fully_shard() where the version has it (2.6 on), block by block. Where not, by hand: each block's
parameters are one flat tensor of which a rank keeps its part; an all-gather makes them whole before the
block computes, a reduce-scatter of their gradients leaves each rank its part (gloo before 2.x has none: an
all-reduce, and the part is cut out), and the optimizer sees nothing else. What was gathered stays until the backward pass is over. The result line says which: "sharding".
Without --mode train there is nothing to shard.
"""
import sys

import cli  # before torch: it sets the thread counts
import ranks


def by_hand(model):
    """Shards the blocks of a transformer, and what is outside of them, in place; returns the parameters that a rank keeps."""
    import torch
    from torch import distributed, nn

    count, rank = distributed.get_world_size(), distributed.get_rank()

    def scatter(gradient):
        part = torch.empty(gradient.numel() // count, dtype=gradient.dtype, device=gradient.device)
        if distributed.get_backend() == "nccl":
            distributed._reduce_scatter_base(part, gradient)
            return part
        gradient = gradient.clone()
        distributed.all_reduce(gradient)
        return gradient.view(count, -1)[rank].clone()

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(_, part):
            parts = [torch.empty_like(part) for _ in range(count)]
            distributed.all_gather(parts, part.detach())
            return torch.cat(parts)

        @staticmethod
        def backward(_, gradient):
            return scatter(gradient.contiguous()) / count

    class Sharded:
        """One unit: its parameters become plain tensors, views of what was gathered."""

        def __init__(self, unit, skip):
            self.places = [(module, name, value.shape) for module in unit.modules() if module not in skip
                           for name, value in module.named_parameters(recurse=False)]
            whole = torch.cat([getattr(module, name).detach().reshape(-1) for module, name, _ in self.places])
            whole = torch.nn.functional.pad(whole, (0, -len(whole) % count))
            self.part = nn.Parameter(whole.view(count, -1)[rank].clone())
            for module, name, _ in self.places:
                delattr(module, name)
            unit.register_forward_pre_hook(self.gather)

        def gather(self, *_):
            whole, at = Gather.apply(self.part), 0
            for module, name, shape in self.places:
                setattr(module, name, whole[at:at + shape.numel()].view(shape))
                at += shape.numel()

    inside = {module for block in model.blocks for module in block.modules()}
    units = [Sharded(block, ()) for block in model.blocks] + [Sharded(model, inside)]
    return [unit.part for unit in units]


def make(args, rank):
    import torch
    import transformer

    try:
        from torch.distributed.fsdp import fully_shard
    except (ImportError, ValueError):  # 1.13 under Python 3.11 has a dataclass that this Python refuses
        fully_shard = None

    def shard(model):
        if fully_shard:
            for block in model.blocks:
                fully_shard(block)
            fully_shard(model)
            kept.extend(model.parameters())
        else:
            kept.extend(by_hand(model))
        return model

    kept = []
    if args.mode == "train":
        args.extra = {"sharding": "fully_shard" if fully_shard else "by hand"}
    work = transformer.Work(args, rank, shard if args.mode == "train" else None, (lambda: kept) if args.mode == "train" else None)
    whole = torch.zeros(0)  # a rank has only its part: nothing to agree on
    return work, lambda: [whole] if args.mode == "train" else work.model.parameters()


def main():
    args = cli.arguments("fsdp")
    if args.mode == "train" and (args.variant not in ("eager", "amp-bf16") or args.plant.slow):
        args.fail("a sharded model is run eagerly or under amp-bf16, without --plant slow")
    if not ranks.started():
        ranks.launch(args, __file__)
    return ranks.run(args, lambda rank: make(args, rank))


if __name__ == "__main__":
    sys.exit(main())
