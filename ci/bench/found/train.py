#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training program as users have them, of one process or under torchrun (gloo or NCCL), for ci/bench/found/judge.py.
It knows nothing of upgate, unless CALLS=1 asks for step calls. WORK: units of a step, of which some 2 ms are 100."""

import argparse
import os
import time

import torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--buckets", type=float, default=25, help="MB of a bucket of gradients")
    parser.add_argument("--unused", action="store_true", help="look for unused parameters")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = arguments.device
    model = torch.nn.Sequential(*[layer for _ in range(4) for layer in (torch.nn.Linear(256, 256), torch.nn.ReLU())])
    if "RANK" in os.environ:
        rank = int(os.environ["LOCAL_RANK"])
        device = "cuda:%d" % rank if device == "cuda" else device
        torch.distributed.init_process_group("nccl" if device != "cpu" else "gloo")
        model = torch.nn.parallel.DistributedDataParallel(model.to(device), bucket_cap_mb=arguments.buckets,
                                                          find_unused_parameters=arguments.unused)
    optimizer = torch.optim.AdamW(model.to(device).parameters())
    work = torch.randn(48, 48)
    repeats = int(os.environ.get("WORK", "1000"))

    def batches():
        for _ in range(arguments.steps):
            for _ in range(repeats):  # what a user's own code takes in each step
                torch.mm(work, work)
            yield torch.randn(64, 256).to(device)

    data = batches()
    if os.environ.get("CALLS") == "1":
        import upgate

        data = upgate.steps(data)
    begin = time.monotonic()
    for batch in data:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    print("%d steps, %.2f s" % (arguments.steps, time.monotonic() - begin))
    if "RANK" in os.environ:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
