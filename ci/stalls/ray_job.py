# SPDX-License-Identifier: Apache-2.0
"""Training inside Ray, as users write it, with upgate's package: each rank says who it is, and marks its steps.

    python3 ci/stalls/ray_job.py actors --ranks 3 --late-rank 1 --shards DIR    actors in a placement group, torch.distributed over gloo
    … actors --die-rank 2                 that actor is lost in the middle, Ray makes it anew, and all train once more
    … tasks --jobs 2                      ranks are tasks: Ray's workers are had by one training after the other
    … train                               the same loop under TorchTrainer, which says by itself who is which rank
    … --address HOST:PORT                 another job of a Ray that runs already
"""
import argparse
import json
import os
import sys
import time

import ray
import torch
import torch.distributed as dist

import upgate


def prepare_features(batch, seconds):
    """Pure Python, as feature code is."""
    total, until = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        total += sum(i * 0.5 for i in range(50))
    return batch


def loop(steps, late_s, die_at=-1):
    """The training itself; what starts it does not matter."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        with upgate.step(samples=32):
            batch = prepare_features(torch.randn(32, 64), late_s)
            if step == die_at:
                os._exit(1)
            model(batch).square().mean().backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()


def train(args, rank, port_file, run=None, die_at=-1):
    """One rank of one training."""
    recorded = upgate.rank(args.shards, run, rank=rank, world_size=args.ranks)
    dist.init_process_group("gloo", init_method="file://" + port_file, rank=rank, world_size=args.ranks)
    try:
        loop(args.steps, args.late_ms / 1e3 if rank == args.late_rank else 0, die_at)
    finally:
        dist.destroy_process_group()
        upgate.rank_end()
    return recorded, os.getpid(), ray.get_runtime_context().get_job_id()


class Trainer:
    """A rank that stays."""

    def __init__(self, args, rank):
        self.args, self.rank = args, rank

    def train(self, *more):
        return train(self.args, self.rank, *more)

    def ready(self):
        return self.rank


def await_actor(actor):
    """Until Ray has made it anew."""
    while True:
        try:
            return ray.get(actor.ready.remote())
        except ray.exceptions.ActorUnavailableError:
            time.sleep(0.2)


def meeting(args, number):
    return os.path.join(args.shards, ".meeting-%d-%d" % (os.getpid(), number))


def run_actors(args):
    group = ray.util.placement_group([{"CPU": 1}] * args.ranks, strategy="PACK")
    ray.get(group.ready())
    place = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(placement_group=group)
    kind = ray.remote(num_cpus=1, max_restarts=1, scheduling_strategy=place)(Trainer)
    actors = [kind.remote(args, rank) for rank in range(args.ranks)]
    if args.die_rank >= 0:
        first = [actor.train.remote(meeting(args, 0), None, args.steps // 2 if rank == args.die_rank else -1) for rank, actor in enumerate(actors)]
        for one in first:
            try:
                ray.get(one)
            except (ray.exceptions.RayError, RuntimeError) as error: # its peers' connections are closed
                print("training ended: %s" % type(error).__name__, file=sys.stderr)
        for actor in actors:
            await_actor(actor)
    return [ray.get([actor.train.remote(meeting(args, 1)) for actor in actors])]


def run_tasks(args):
    task = ray.remote(num_cpus=1, max_retries=0)(train)
    return [ray.get([task.remote(args, rank, meeting(args, job), "job-%d" % job) for rank in range(args.ranks)]) for job in range(args.jobs)]


def train_loop(config):
    args = config["args"]
    rank = int(os.environ["RANK"])
    recorded = upgate.rank(args.shards)
    loop(args.steps, args.late_ms / 1e3 if rank == args.late_rank else 0)
    upgate.rank_end()
    if not recorded:
        raise RuntimeError("rank %d is not recorded" % rank)


def run_train(args):
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    TorchTrainer(train_loop, train_loop_config={"args": args}, torch_config=TorchConfig(backend="gloo"),
                 scaling_config=ScalingConfig(num_workers=args.ranks), run_config=RunConfig(storage_path=args.temp)).fit()
    return []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["actors", "tasks", "train"])
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--late-rank", type=int, default=-1)
    parser.add_argument("--late-ms", type=float, default=20)
    parser.add_argument("--die-rank", type=int, default=-1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--shards", required=True)
    parser.add_argument("--temp", default="/tmp/ray")
    parser.add_argument("--address")
    args = parser.parse_args()
    if args.address:
        ray.init(address=args.address, log_to_driver=False)
    else:
        ray.init(num_cpus=4, include_dashboard=False, _temp_dir=args.temp, object_store_memory=100 << 20)
    os.makedirs(args.shards, exist_ok=True)
    begin = time.monotonic()
    done = {"actors": run_actors, "tasks": run_tasks, "train": run_train}[args.kind](args)
    print(json.dumps({"seconds": time.monotonic() - begin, "trainings": done}))
    ray.shutdown()


if __name__ == "__main__":
    main()
