# SPDX-License-Identifier: Apache-2.0
"""The job of tests/root/ranks.py: two ranks over gloo, which reduce a tensor a step. A file says what rank 1 does besides, so
that one job, whose start takes longest, serves several recordings; all ranks end when it says `end`."""
import mmap
import os
import sys
import time

import torch
import torch.distributed as dist

LATE_S, CHUNK = 0.02, 8 << 20


def prepare_features(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        sum(i * 0.5 for i in range(50))


def read_shard(file, buffer, step):
    """Past the page cache, so that the disk has to be waited for."""
    until = time.perf_counter() + LATE_S
    while time.perf_counter() < until:
        os.preadv(file, [buffer], step * CHUNK % (os.fstat(file).st_size - CHUNK + 1) // mmap.PAGESIZE * mmap.PAGESIZE)
        step += 1


def stage(size):
    """A buffer that is mapped, touched and given back, as allocators do."""
    with mmap.mmap(-1, size) as buffer:
        buffer[0] = 1


def main():
    mode_path, disk_path = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, step, mode = dist.get_rank(), 0, ""
    table = torch.ones(1 << 28)  # 1 GiB, whose pages a reader of smaps walks
    disk = os.open(disk_path, os.O_RDONLY | os.O_DIRECT) if disk_path != "-" else None
    buffer, gradient = mmap.mmap(-1, CHUNK), torch.ones(1 << 12)
    while mode != "end":
        with open(mode_path, encoding="utf-8") as file:
            mode = file.read().strip() or mode
        prepare_features(LATE_S if rank == 1 and mode == "python" else 0.004)
        if rank == 1 and mode == "disk":
            read_shard(disk, buffer, step)
        if mode == "agent":
            stage(1 << 20)
        ends = torch.tensor([1.0 if mode == "end" else 0.0])
        dist.all_reduce(gradient)
        dist.all_reduce(ends, op=dist.ReduceOp.MAX)  # all of them in the same step
        mode = "end" if ends.item() > 0 else mode
        step += 1
        if step == 5:
            with open("%s.rank%d" % (mode_path, rank), "w", encoding="utf-8") as file:
                file.write(str(os.getpid()))
    del table
    dist.destroy_process_group()


main()
os._exit(0) # gloo's threads may still let go of Python objects: an interpreter that ends meanwhile crashes
