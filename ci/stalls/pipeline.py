# SPDX-License-Identifier: Apache-2.0
"""A pipeline as users write it with torch.distributed.pipelining (one forward, one backward), which knows nothing of upgate; one stage
can be made late.

    torchrun --standalone --nproc-per-node 4 ci/stalls/pipeline.py --late-rank 2 --late-ms 1      in route_tokens(), in each forward pass
    … --late-rank 2 --late-kernels 20 --device cuda    its GPU has more to do
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

MICROBATCHES, ROWS, LAYERS = 8, 64, 4


def route_tokens(seconds):
    """Pure Python, as code beside the model is."""
    total, until = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        total += sum(i * 0.5 for i in range(50))
    return total


class Stage(torch.nn.Module):
    def __init__(self, width, late_s, late_kernels, device):
        super().__init__()
        layers = []
        for _ in range(LAYERS):
            layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
        self.layers, self.late_s, self.late_kernels = torch.nn.Sequential(*layers), late_s, late_kernels
        self.noise = torch.ones(1 << 26, device=device) if late_kernels else None

    def forward(self, batch):
        if self.late_s:
            route_tokens(self.late_s)
        for _ in range(self.late_kernels):
            torch.sin(self.noise, out=self.noise)
        return self.layers(batch)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--late-rank", type=int, default=-1)
    parser.add_argument("--late-ms", type=float, default=0, help="of each forward pass")
    parser.add_argument("--late-kernels", type=int, default=0, help="of each forward pass")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    args = parser.parse_args()

    torch.set_num_threads(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device(args.device, int(os.environ["LOCAL_RANK"])) if args.device == "cuda" else torch.device("cpu")
    if args.device == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo", device_id=device if args.device == "cuda" else None)
    torch.manual_seed(1)
    late = rank == args.late_rank
    module = Stage(args.width, args.late_ms / 1e3 if late else 0, args.late_kernels if late else 0, device).to(device)
    stage = PipelineStage(module, rank, ranks, device)
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=torch.nn.functional.mse_loss)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    batch = torch.randn(MICROBATCHES * ROWS, args.width, device=device)
    for step in range(args.steps):
        losses = []
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(batch)
        elif rank == ranks - 1:
            schedule.step(target=batch, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        if rank == ranks - 1 and step % 50 == 0:
            print("step %d loss %.4f" % (step, torch.stack(losses).mean().item()), flush=True)
    dist.destroy_process_group()


main()
