# SPDX-License-Identifier: Apache-2.0
"""A DistributedDataParallel program as users write them, which knows nothing of upgate; one rank can be made late in its input.

    torchrun --standalone --nproc-per-node 2 ci/stalls/ddp.py --late-rank 1 --late-ms 4     in prepare_features(), in each step
    … --late-rank 1 --disk FILE --disk-mib 4       it reads so much of a file that is not in the page cache
    … --late-rank 1 --late-kernels 20 --device cuda    its GPU has more to do
    … --buffer-mib 64                              each step maps and unmaps a buffer, as allocators do
"""
import argparse
import mmap
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def prepare_features(batch, seconds):
    """Pure Python, as feature code is."""
    total, until = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        total += sum(i * 0.5 for i in range(50))
    return batch


def read_shard(path, step, size):
    """The next piece of a file, from the disk."""
    with open(path, "rb", buffering=0) as file:
        length = os.fstat(file.fileno()).st_size
        offset = step * size % (length - size + 1)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        file.seek(offset)
        return len(file.read(size))


def stage(size):
    """A buffer that is mapped, touched here and there, and given back."""
    with mmap.mmap(-1, size) as buffer:
        for at in range(0, size, size // 8):
            buffer[at] = 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--late-rank", type=int, default=-1)
    parser.add_argument("--late-ms", type=float, default=0)
    parser.add_argument("--disk")
    parser.add_argument("--disk-mib", type=float, default=4)
    parser.add_argument("--late-kernels", type=int, default=0, help="that its GPU runs more in each step")
    parser.add_argument("--table-gib", type=float, default=0, help="of host memory, which makes reading smaps long")
    parser.add_argument("--buffer-mib", type=int, default=0)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    rank = dist.get_rank()
    if args.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    table = torch.ones(int(args.table_gib * (1 << 28)))
    torch.manual_seed(1)
    layers = []
    for _ in range(4):
        layers += [torch.nn.Linear(args.width, args.width), torch.nn.ReLU()]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(args.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    late = rank == args.late_rank
    noise = torch.ones(1 << 26, device=args.device) if late and args.late_kernels else None
    for step in range(args.steps):
        batch = prepare_features(torch.randn(args.batch, args.width), args.late_ms / 1e3 if late else 0)
        if late and args.disk:
            read_shard(args.disk, step, int(args.disk_mib * (1 << 20)))
        if args.buffer_mib:
            stage(args.buffer_mib << 20)
        for _ in range(args.late_kernels if late else 0):
            torch.sin(noise, out=noise)
        loss = model(batch.to(args.device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print("rank %d step %d loss %.4f" % (rank, step, loss.item()), flush=True)
    del table
    dist.destroy_process_group()
    if args.device == "cpu":
        # gloo's threads outlive their group where DistributedDataParallel had it (torch 2.13), and one that lets go of a Python object
        # while the interpreter ends aborts it: https://github.com/pytorch/pytorch/issues/190489.
        os._exit(0)


main()
