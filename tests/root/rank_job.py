# SPDX-License-Identifier: Apache-2.0
"""The job of tests/root/rank.py: ranks over gloo, which reduce a tensor a step. SECONDS of steps, in which rank LATE computes longer; with
`crash` it does not in its first start, and dies there in its last step. Who it is it takes from what torchrun, mpirun or srun says."""
import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

WAIT_S, STEP_S, LATE_S = 0.015, 0.002, 0.022


def told(*names):
    return next(int(os.environ[name]) for name in names if os.environ.get(name))


def prepare_features(seconds):
    until, total = time.perf_counter() + seconds, 0.0
    while time.perf_counter() < until:
        for number in range(50):
            total += number * 0.5
    return total


def main():
    late, seconds, meeting, mode = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4]
    torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    rank = told("RANK") if torchrun else told("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
    ranks = told("WORLD_SIZE") if torchrun else told("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
    torch.set_num_threads(1)
    # By a file of each start: under torchrun's store a second start may meet the first one's addresses.
    method = "file://%s.%s" % (meeting, os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=60))
    dist.barrier()
    crashes = mode == "crash" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    gradient, until, go_on = torch.ones(1 << 12), time.monotonic() + seconds, True
    while go_on:
        time.sleep(WAIT_S) # for a device: ranks that compute all the time would be late by what the machine's neighbours do
        prepare_features(LATE_S if rank == late and not crashes else STEP_S)
        if crashes and rank == late and time.monotonic() > until - 0.5:
            os._exit(9)
        goes = torch.tensor([1.0 if time.monotonic() < until else 0.0])
        dist.all_reduce(gradient)
        dist.all_reduce(goes, op=dist.ReduceOp.MIN)
        go_on = goes.item() > 0
    if crashes and rank == late: # the other one's time was over half a second earlier
        os._exit(9)
    dist.destroy_process_group()


main()
os._exit(0) # gloo's threads may still let go of Python objects: an interpreter that ends meanwhile crashes
