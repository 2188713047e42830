# SPDX-License-Identifier: Apache-2.0
"""The other job of tests/root/ranks.py: a pipeline of stages over gloo, which send what they have to the next one and receive what comes
back. Their work mostly waits, as for a device, so that two CPUs carry them all. A file says whether stage 2 computes besides; what the first
stage reads there goes along with each message, so that all end after the same step."""
import os
import sys
import time

import torch
import torch.distributed as dist

BATCHES, WIDTH, STAGE_S, LATE_S = 4, 1 << 12, 0.006, 0.012
MODES = ["clean", "attend", "end"]


def attend(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        sum(i * 0.5 for i in range(50))


def forward(late):
    time.sleep(STAGE_S)
    if late:
        attend(LATE_S)


def backward():
    time.sleep(STAGE_S)


def pipeline_step(message, rank, ranks):
    """All batches ahead, then all of them back."""
    for _ in range(BATCHES):
        if rank > 0:
            dist.recv(message, rank - 1)
        forward(rank == 2 and MODES[int(message[0])] == "attend")
        if rank < ranks - 1:
            dist.send(message, rank + 1)
    for _ in range(BATCHES):
        if rank < ranks - 1:
            dist.recv(message, rank + 1)
        backward()
        if rank > 0:
            dist.send(message, rank - 1)


def main():
    mode_path = sys.argv[1]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks, step = dist.get_rank(), dist.get_world_size(), 0
    message = torch.zeros(WIDTH)
    while MODES[int(message[0])] != "end":
        if rank == 0:
            with open(mode_path, encoding="utf-8") as file:
                mode = file.read().strip()
            message[0] = MODES.index(mode) if mode else message[0]
        pipeline_step(message, rank, ranks)
        step += 1
        if step == 5:
            with open("%s.rank%d" % (mode_path, rank), "w", encoding="utf-8") as file:
                file.write(str(os.getpid()))
    dist.destroy_process_group()


main()
os._exit(0) # gloo's threads may still let go of Python objects: an interpreter that ends meanwhile crashes
