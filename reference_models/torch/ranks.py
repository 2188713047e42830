# SPDX-License-Identifier: Apache-2.0
"""Several ranks of one machine: what ddp, fsdp and dlrm-sharded share.

Started plainly a workload replaces itself by torchrun (`python -m torch.distributed.run`), which starts
--ranks copies; so the harness needs no other command line than for the workloads of one rank. NCCL and
a GPU for each rank, or gloo on the CPU.
"""
import os
import shutil
import socket
import sys
import tempfile

LOGS = "UPGATE_DDP_LOGS"  # torchrun makes a folder for logs and leaves it; this one is taken away


def started():
    """Is this process one of the ranks?"""
    return "LOCAL_RANK" in os.environ


def launch(args, program, lacks=None):
    """Become torchrun. lacks: what the model has not, for variants.lack().

    --standalone would do but for 1.13, where it takes port 29400 whatever happens: the two sides of
    a pair are alive at once. The port is held by a socket that is bound and does not listen, and
    stays open over exec: nobody else is given it before torchrun listens there. At every address, as
    torchrun will: a connection of somebody else from another address of this machine may have the
    port too."""
    if args.variant != "eager":
        import variants  # what cannot be run is told by this process: torchrun has a status of its own
        variants.check(args, lacks)
    dual = socket.has_dualstack_ipv6()
    held = socket.socket(socket.AF_INET6 if dual else socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if dual:
        held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    held.bind(("", 0))
    held.set_inheritable(True)
    logs = os.environ[LOGS] = tempfile.mkdtemp(prefix="upgate_ddp_")
    # The monitor interval is 5 s in 1.13 and 0.1 s later: the end of a launch would wait for it.
    # Redirecting nothing is broken in 1.13 under Python 3.11 (it loops over the members of a Flag,
    # which leave out 0 there); a map that names only rank 9 redirects nothing either.
    options = ["--nnodes=1", "--nproc_per_node=%d" % args.ranks, "--master_addr=127.0.0.1",
               "--master_port=%d" % held.getsockname()[1], "--monitor_interval=0.1",
               "--redirects=9:1", "--tee=9:1", "--log_dir=" + logs]
    os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run"] + options
             + [os.path.abspath(program)] + sys.argv[1:])


def _store():
    from torch import distributed

    return distributed.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]),
                                world_size=None, is_master=False, wait_for_workers=False)


def agree(parameters, rank, ranks):
    """Averaged gradients leave every rank with the same weights, to the bit. Told over torchrun's
    store and not by all_gather: gloo's thread would free those tensors whenever it gets to it, and
    torch 2.13 aborts when that is while Python ends (in 3 of 101 launches)."""
    store = _store()
    mine = ",".join(value.detach().double().sum().item().hex() for value in parameters)
    store.set("upgate/weights/%d" % rank, mine)
    return all(store.get("upgate/weights/%d" % other).decode() == mine for other in range(ranks))


def run(args, make):
    """One rank. make(rank) -> the work and the parameters on which all ranks must agree in the end."""
    import common
    import torch
    from torch import distributed

    rank, args.ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    common.open_device(args)
    nccl, here = args.device == "cuda", int(os.environ.get("LOCAL_WORLD_SIZE", args.ranks))
    if nccl and torch.cuda.device_count() < here:  # NCCL takes no GPU twice, and nobody asked for gloo between GPUs
        args.fail("argument --ranks: %d ranks need a GPU each, and torch sees %d; --device cpu needs none" % (
            here, torch.cuda.device_count()))
    if nccl:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # gloo looks for its network by the name of the host, which many containers cannot resolve.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    distributed.init_process_group("nccl" if nccl else "gloo")
    work, shared = make(rank)
    status = common.run(args, work)
    if not agree(shared(), rank, args.ranks):
        sys.stderr.write("%s: rank %d: the ranks hold different weights after training\n" % (args.name, rank))
        status = 1
    distributed.barrier()
    distributed.destroy_process_group()
    if rank == 0 and LOGS in os.environ:
        shutil.rmtree(os.environ[LOGS], ignore_errors=True)
    return status
