#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training program as users have them, of one process or under torchrun (gloo or NCCL), for ci/bench/found/judge.py.
It knows nothing of upgate, unless CALLS=1 asks for step calls. WORK: units of a step, of which some 2 ms are 100 on a CPU; with --device cuda
they are kernels that are launched. BUCKETS and UNUSED=1: of DistributedDataParallel."""

import argparse
import os
import time

import torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    device = arguments.device
    model = torch.nn.Sequential(*[layer for _ in range(arguments.layers)
                                  for layer in (torch.nn.Linear(arguments.width, arguments.width), torch.nn.ReLU())])
    if "RANK" in os.environ:
        rank = int(os.environ["LOCAL_RANK"])
        device = "cuda:%d" % rank if device == "cuda" else device
        if device != "cpu":
            torch.cuda.set_device(rank)
        torch.distributed.init_process_group("nccl" if device != "cpu" else "gloo")
        model = torch.nn.parallel.DistributedDataParallel(model.to(device), bucket_cap_mb=float(os.environ.get("BUCKETS", "25")),
                                                          find_unused_parameters=os.environ.get("UNUSED") == "1")
    optimizer = torch.optim.AdamW(model.to(device).parameters())
    work = torch.randn(48, 48, device=device)
    repeats = int(os.environ.get("WORK", "1000"))

    def batches():
        for _ in range(arguments.steps):
            for _ in range(repeats):  # what a user's own code takes in each step
                torch.mm(work, work)
            yield torch.randn(64, arguments.width).to(device)

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
        # A thread of gloo that lets go of a Python object while the interpreter ends aborts it: one in four jobs of torch 2.13, without
        # upgate as well, and none of 16 behind a sleep of 0.3 s; that thread may stand still for as long on a busy machine. os._exit() would
        # take from upgate the word that this process has ended well.
        time.sleep(1.5)


if __name__ == "__main__":
    main()
