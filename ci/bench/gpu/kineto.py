#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Kineto trace of some steps of a reference workload, so that HTA can be given the same pair as `upgate diff`
(ci/bench/diff_hta.py). The program runs unchanged under torch.profiler: CPU and CUDA, shapes, no stacks. A step ends where
the workload's own ends: what hands out its steps, upgate.steps() or upgate.requests(), is wrapped. One rank.

    python3 ci/bench/gpu/kineto.py OUT.json.gz [--active 20] -- reference_models/torch/transformer.py ARGS…
"""

import argparse
import gzip
import json
import os
import runpy
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
BUILD = os.path.abspath(os.environ.get("UPGATE_BUILD", os.path.join(ROOT, "build/release")))
PACKAGES = [os.path.join(BUILD, "python"), os.path.join(ROOT, "tracer/python")]


class Taken:
    """The trace: of the `active` steps after `wait` that it does not look at and `warmup` that it throws away."""

    def __init__(self, path, wait, warmup, active):
        self.path, self.wait, self.warmup, self.active = path, wait, warmup, active
        self.written = False

    def profile(self):
        # Here and not above: the workload sets the thread counts before it imports torch.
        import torch
        from torch import profiler

        if not torch.autograd.kineto_available():  # it would write another format without a word
            sys.exit("torch %s has no Kineto" % torch.__version__)
        activities = [profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(profiler.ProfilerActivity.CUDA)
        return profiler.profile(
            activities=activities, record_shapes=True, with_stack=False, on_trace_ready=self.write,
            schedule=profiler.schedule(wait=self.wait, warmup=self.warmup, active=self.active, repeat=1))

    def write(self, prof):
        # Under another name first: a run that is ended leaves no half a trace behind.
        part = os.path.join(os.path.dirname(self.path), ".part-" + os.path.basename(self.path))
        prof.export_chrome_trace(part)  # a name that ends with .gz is compressed
        os.rename(part, self.path)
        self.written = True

    def around(self, hand_out):
        """What hands out the steps, with a step of the profiler around each."""

        def steps(*args, **options):
            with self.profile() as prof:
                for step in hand_out(*args, **options):
                    yield step
                    prof.step()
        return steps


def summary(path):
    """What the trace holds, for the eye: steps, kernels, events."""
    with gzip.open(path, "rt") as file:
        events = json.load(file)["traceEvents"]
    names = {e["name"] for e in events if e.get("cat") == "user_annotation"}
    return {"trace": path, "bytes": os.path.getsize(path), "events": len(events),
            "steps": sum(name.startswith("ProfilerStep#") for name in names),
            "operators": sum(e.get("cat") == "cpu_op" for e in events),
            "kernels": sum(e.get("cat") == "kernel" for e in events)}


def main():
    parser = argparse.ArgumentParser(description="a Kineto trace of a reference workload",
                                     usage="kineto.py OUT.json.gz [options] -- PROGRAM.py ARGS…")
    parser.add_argument("out", help="OUT.json.gz")
    parser.add_argument("--wait", type=int, default=40, help="steps before it: compilation and warm-up of the workload")
    parser.add_argument("--warmup", type=int, default=5, help="steps that are traced and thrown away")
    parser.add_argument("--active", type=int, default=20, help="steps in the trace")
    # Not by argparse: what remains (REMAINDER) would take an option before `--` too.
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args, program = parser.parse_args(sys.argv[1:cut]), sys.argv[cut + 1:]
    if not program or not args.out.endswith(".json.gz") or min(args.active, args.warmup) < 1 or args.wait < 0:
        parser.error("wanted: OUT.json.gz [--active N] -- PROGRAM.py ARGS…")
    if not os.path.isfile(program[0]):
        parser.error("'%s' is not there" % program[0])
    if int(os.environ.get("WORLD_SIZE", "1")) != 1:
        parser.error("one rank only")

    # As python itself starts a program: its directory first; upgate's package where the harness has it.
    sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
    sys.path.insert(1, next(p for p in PACKAGES if os.path.exists(os.path.join(p, "upgate/__init__.py"))))
    sys.argv = program
    taken = Taken(os.path.abspath(args.out), args.wait, args.warmup, args.active)
    import upgate

    upgate.steps, upgate.requests = taken.around(upgate.steps), taken.around(upgate.requests)
    code = 0
    try:
        runpy.run_path(program[0], run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
    if code == 0 and not taken.written:
        code = "no trace: the workload ended before step %d" % (args.wait + args.warmup + args.active)
    if code == 0:
        print(json.dumps(summary(taken.path)), flush=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
