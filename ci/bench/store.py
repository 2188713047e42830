#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Size of the store of a run of 40 launches with 500 steps each: with turns at step borders (blocks are stored
too) and with parity on (outputs and losses are). Exit 1 above 4 MB.

    python3 ci/bench/store.py [--pairs N] [--steps N]
"""

import argparse
import os

import rig

LIMIT_MB = 4


def main():
    parser = argparse.ArgumentParser(description="size of the store")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=500)
    args = parser.parse_args()
    rig.need_build()
    with rig.scratch() as scratch:
        rig.calibrate(scratch)
        # A block so long that 8 couples of them want more than the steps there are: otherwise pairs get
        # shorter as soon as the spread is known, and the launches do not have the steps they should.
        document = rig.plan([{"name": "w", "model": "dlrm", "size": "small", "steps": args.steps}],
                            schedule={"looks": [args.pairs], "interleave": "steps", "block": "60ms", "voids": 100})
        result = rig.run(scratch, "store", document)
        size = sum(os.path.getsize(result.store + suffix) for suffix in ("", "-wal", "-journal")
                   if os.path.exists(result.store + suffix))
        launches, steps = rig.query(result.store, "SELECT count(*), sum(steps) FROM launch")[0]
        parts = rig.query(result.store, "SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC LIMIT 4")
    # Voided pairs and the float64 anchor are launches too: what is judged is the size of 40 x 500.
    wanted = 2 * args.pairs * args.steps
    rows = [
        rig.row("store of %d launches, %d steps" % (launches, steps), size / 1e6, None, " MB"),
        rig.row("the same brought to %d launches of %d steps" % (2 * args.pairs, args.steps),
                size / 1e6 * max(1, wanted / steps), LIMIT_MB, " MB"),
        rig.row("    a step, all included", size / steps, None, " bytes"),
    ] + [rig.row("    %s" % name, part / 1e6, None, " MB") for name, part in parts]
    rig.finish("Size of the store", rows)


if __name__ == "__main__":
    main()
