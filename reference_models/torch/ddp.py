# SPDX-License-Identifier: Apache-2.0
"""ddp: the transformer trained on several ranks of one machine with DistributedDataParallel.

Each rank reads its own part of the text; gradients are averaged. With --mode infer each rank answers
requests of its own, without communication.
"""
import sys

import cli  # before torch: it sets the thread counts
import ranks

# Before each forward pass DistributedDataParallel says, in Python, that gradients will come; a graph that was taken of it once does not.
LACKS = dict.fromkeys((("torchscript", "train"), ("cuda-graphs", "train")),
                      "a graph taken of DistributedDataParallel reduces gradients in its first step at most")


def make(args, rank):
    from torch.nn.parallel import DistributedDataParallel

    import transformer

    def distribute(model):
        # Planted: many small messages in place of one large one.
        options = {"bucket_cap_mb": 0.01} if "buckets" in args.plant.flags else {}
        return DistributedDataParallel(model, **options)

    work = transformer.Work(args, rank, distribute if args.mode == "train" else None)
    return work, work.model.parameters


def main():
    args = cli.arguments("ddp")
    if not ranks.started():
        ranks.launch(args, __file__, LACKS)
    return ranks.run(args, lambda rank: make(args, rank))


if __name__ == "__main__":
    sys.exit(main())
