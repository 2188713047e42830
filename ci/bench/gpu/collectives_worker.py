# SPDX-License-Identifier: Apache-2.0
"""Collectives of known sizes over all GPUs, a process each, for the part nccl of checks.py: three all-reduces of 1, 16 and 256
MiB, an all-gather, a broadcast, and a message from rank 0 to rank 1. Prints the version of NCCL as a line of JSON. Needs torch.

    python3 collectives_worker.py [RANKS]
"""

import json
import os
import socket
import subprocess
import sys

MIB = 1 << 20
SIZES, REPEATS = (1 * MIB, 16 * MIB, 256 * MIB), 3


def rank_main():
    import torch
    from torch import distributed

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl")
    for size in SIZES:
        tensor = torch.full((size // 4,), float(rank + 1), device="cuda")
        for _ in range(REPEATS):
            distributed.all_reduce(tensor)
        torch.cuda.synchronize()
    part = torch.zeros(MIB // 4, device="cuda")
    distributed.all_gather([torch.empty_like(part) for _ in range(distributed.get_world_size())], part)
    distributed.broadcast(part, 0)
    if rank == 0:
        distributed.send(part, 1)
    elif rank == 1:
        distributed.recv(part, 0)
    torch.cuda.synchronize()
    if rank == 0:
        print(json.dumps({"nccl": torch.cuda.nccl.version()}), flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


def main():
    if "RANK" in os.environ:
        return rank_main()
    ranks = int((sys.argv[1:] or ["2"])[0])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = dict(os.environ, WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    workers = [subprocess.Popen([sys.executable, os.path.abspath(__file__)], env=dict(common, RANK=str(rank), LOCAL_RANK=str(rank)))
               for rank in range(ranks)]
    sys.exit(max(worker.wait() != 0 for worker in workers))


if __name__ == "__main__":
    main()
