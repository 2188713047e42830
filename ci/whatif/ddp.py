#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What if, held against a real job: ci/stalls/ddp.py (DistributedDataParallel over gloo) is recorded with a late rank and without it, in turns. What
`upgate stalls` says of the first, without its late rank, is what the second has to take a step. Needs root, and PyTorch in envs/candidate.

    python3 ci/whatif/ddp.py [--ranks 2] [--late-ms 20] [--steps 300] [--turns 3]

Prints a line a turn, and the median. A machine that is busy with other things makes both jobs slower, and not alike."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
UPGATE = os.path.join(os.environ.get("UPGATE_BUILD") or os.path.join(ROOT, "build/release"), "upgate")
PYTHON = os.path.join(ROOT, "envs/candidate/bin/python")


def recorded(scratch, name, args, *late):
    """The stalls of the job, as a document."""
    shards, store = os.path.join(scratch, name), os.path.join(scratch, name + ".db")
    job = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(args.ranks), "--no-python", UPGATE, "rank", "-o", shards, "--job",
           name, "--", PYTHON, os.path.join(ROOT, "ci/stalls/ddp.py"), "--steps", str(args.steps), "--width", str(args.width), *late]
    for _ in range(2):  # gloo's pairs now and then abort the job where one rank is gone before the other
        if not subprocess.run(job, capture_output=True, check=False).returncode:
            break
        shards += "-again"
        job[job.index("-o") + 1] = shards
    for command in ([UPGATE, "merge", shards, "-o", store],):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit("%s: exit code %d\n%s" % (" ".join(command), done.returncode, done.stderr[-2000:]))
    done = subprocess.run([UPGATE, "stalls", store, "--format", "json"], capture_output=True, text=True, check=False)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--late-ms", type=float, default=20)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--width", type=int, default=512, help="of the model's layers")
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    errors = []
    with tempfile.TemporaryDirectory(prefix="upgate-whatif-") as scratch:
        for turn in range(args.turns):
            late = recorded(scratch, "late%d" % turn, args, "--late-rank", "1", "--late-ms", str(args.late_ms))["what_if"]
            clean = recorded(scratch, "clean%d" % turn, args)["what_if"]
            if not late or not late["known"] or late["without_stragglers_ns"] is None or not clean or not clean["measured_ns"]:
                print("turn %d: no answer: %s; without the late rank: %s" % (turn + 1, late, clean))
                continue
            off = late["without_stragglers_ns"] / clean["measured_ns"] - 1
            errors.append(100 * abs(off))
            print("turn %d: a step took %.2f ms, replayed %.2f ms; without the lateness of rank 1 it would take %.2f ms; the job without it takes %.2f ms: off by %+.1f %%" % (
                turn + 1, late["measured_ns"] / 1e6, late["replayed_ns"] / 1e6, late["without_stragglers_ns"] / 1e6, clean["measured_ns"] / 1e6, 100 * off), flush=True)
    if errors:
        print("%d ranks, %g ms: off by %.1f %% in the median" % (args.ranks, args.late_ms, statistics.median(errors)))
    return int(len(errors) < args.turns)


if __name__ == "__main__":
    sys.exit(main())
