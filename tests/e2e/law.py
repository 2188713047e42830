#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The dependency law of docs/ARCHITECTURE.md, held by the source itself: a room includes only what
stands below it. CMake's targets enforce it for what is linked; this test for what is included, headers
without code too. Reads every #include "…" of the tree."""
import os
import re
import sys

ROOT = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Room -> rooms it may include besides itself.
COMMON = {"common", "contracts"}
DIFF = COMMON | {"reports/analyse", "reports/analyse/trace", "reports/analyse/stalls", "tracer/store", "bpf"}
LAW = {
    "common": {"contracts"},  # exit codes only, see below
    "contracts": set(),
    "tracer/store": COMMON,
    "tracer/python": {"contracts"},
    "tracer/inject": {"contracts"},
    "tracer/symbols": COMMON,
    "tracer/unwind": COMMON | {"tracer/symbols", "bpf"},
    "tracer/pystack": COMMON,
    "tracer/gpu": COMMON | {"tracer/store", "tracer/symbols"},
    "bpf": COMMON,
    "tracer/record": COMMON | {"bpf", "tracer/gpu", "tracer/symbols", "tracer/unwind", "tracer/pystack", "tracer/store", "harness/steps"},
    "harness/steps": COMMON,
    "tracer/calls": COMMON | {"bpf", "tracer/symbols", "harness/steps"},
    "reports/analyse": COMMON,
    "reports/analyse/replay": COMMON,
    "reports/analyse/trace": COMMON | {"reports/analyse", "tracer/store", "bpf"},
    "reports/analyse/trace/launch": COMMON | {"reports/analyse", "reports/analyse/trace", "tracer/store", "bpf"},
    "reports/analyse/stalls": COMMON | {"reports/analyse", "reports/analyse/trace", "reports/analyse/trace/launch", "reports/analyse/replay", "tracer/store", "bpf"},
    "reports/analyse/reduce": COMMON | {"reports/analyse/trace", "reports/analyse/stalls", "tracer/store"},
    "reports/analyse/canary": COMMON | {"reports/analyse"},
    # Its stages one after the other; diff_input.h is given to all of them, thresholds.h has the numbers of all, and diff.c calls them.
    "reports/analyse/diff": DIFF | {"harness/fingerprint", "reports/analyse/trace/launch", "reports/analyse/diff/path", "reports/analyse/diff/align",
                                    "reports/analyse/diff/estimate", "reports/analyse/diff/explain", "reports/analyse/diff/memory"},
    "reports/analyse/diff/path": DIFF | {"reports/analyse/diff", "reports/analyse/trace/launch"},
    "reports/analyse/diff/align": DIFF | {"reports/analyse/diff", "reports/analyse/diff/path"},
    "reports/analyse/diff/estimate": DIFF | {"reports/analyse/diff"},
    "reports/analyse/diff/contribute": DIFF | {"reports/analyse/diff", "reports/analyse/diff/path", "reports/analyse/diff/estimate"},
    "reports/analyse/diff/explain": DIFF | {"reports/analyse/diff", "reports/analyse/trace/launch", "reports/analyse/diff/path",
                                            "reports/analyse/diff/estimate", "reports/analyse/diff/contribute"},
    "reports/analyse/diff/memory": DIFF | {"reports/analyse/diff", "reports/analyse/diff/path", "reports/analyse/diff/estimate"},
    "reports/analyse/diff/recordings": DIFF | {"reports/analyse/diff"},
    "harness/plan": COMMON,
    "harness/image": COMMON | {"harness/plan"},
    "harness/fingerprint": COMMON,
    "harness/doctor": COMMON | {"reports/render", "reports/render/text", "harness/contain", "harness/run", "harness/image", "harness/gate", "harness/plan", "harness/fingerprint", "tracer/store",
                                "bpf"},
    "harness/gate": COMMON | {"tracer/store", "reports/analyse", "reports/render/text", "harness/plan"},
    "reports/render/text": COMMON | {"reports/analyse"},
    "reports/render/causes": COMMON | {"reports/analyse/stalls"},
    "reports/render/verdict": COMMON | {"reports/render", "reports/render/text", "tracer/store"},
    "reports/render/diff": COMMON | {"reports/render", "reports/render/text", "reports/render/causes", "reports/analyse/stalls", "reports/analyse/diff",
                                     "reports/analyse/diff/recordings"},
    "reports/render/stalls": COMMON | {"reports/render", "reports/render/text", "reports/render/causes", "tracer/store", "reports/analyse/stalls"},
    "reports/render/perfetto": COMMON | {"reports/render", "reports/render/text", "tracer/store", "reports/analyse/trace", "reports/analyse/stalls"},
    "reports/render/page": COMMON,
    "reports/render/html": COMMON | {"reports/render", "reports/render/page", "reports/render/text", "reports/render/verdict", "reports/render/diff",
                                     "reports/render/stalls", "tracer/store", "reports/analyse", "reports/analyse/stalls", "reports/analyse/diff",
                                     "harness/fingerprint"},
    "reports/render/rollout": COMMON | {"reports/render", "reports/render/text", "reports/render/diff", "reports/render/page", "tracer/store",
                                        "reports/analyse", "reports/analyse/canary", "reports/analyse/diff", "reports/analyse/diff/recordings"},
    "reports/render": COMMON | {"reports/render/text", "reports/render/verdict", "reports/render/diff", "reports/render/html", "reports/render/perfetto",
                                "tracer/store", "reports/analyse", "reports/analyse/diff"},
    "harness/canary/shadow": COMMON | {"harness/canary", "harness/canary/http", "reports/analyse", "reports/analyse/canary", "tracer/store"},
    "harness/contain": COMMON | {"tracer/store"},
    "harness/run": COMMON | {"harness/contain", "tracer/store", "harness/steps", "harness/plan", "harness/image", "harness/gate",
                             "harness/fingerprint", "reports/render/verdict", "tracer/record", "tracer/calls"},
    "harness/record": COMMON | {"tracer/record", "tracer/calls", "tracer/store", "harness/steps", "harness/contain", "reports/render/text"},
    "harness/rank": COMMON | {"harness/record", "harness/contain", "harness/run", "tracer/record", "tracer/store", "reports/analyse/reduce"},
    "harness/live": COMMON | {"harness/record", "tracer/store", "reports/analyse/trace", "reports/analyse/stalls", "reports/render", "reports/render/stalls",
                              "reports/render/text"},
    "harness/export": COMMON | {"tracer/store"},
    "harness/canary/http": COMMON,
    "harness/canary/traffic": COMMON | {"harness/canary", "harness/canary/http", "reports/analyse/canary"},
    "harness/canary/sources": COMMON | {"harness/steps", "harness/canary", "harness/canary/http", "reports/analyse/canary"},
    "harness/canary": COMMON | {"tracer/store", "reports/analyse", "reports/analyse/canary", "harness/plan", "harness/gate", "harness/fingerprint",
                                "harness/canary/traffic", "harness/canary/sources", "harness/canary/shadow", "harness/canary/http"},
    "harness/canary/serve": COMMON | {"tracer/store"},
    "harness/verbs": None,  # the top: may include everything
    "harness/mpi": None,  # another program, beside it
    "reference_models/native": COMMON,
    "reference_models/native/ops": COMMON | {"reference_models/native"},
    "reference_models/native/models": COMMON | {"reference_models/native", "reference_models/native/ops"},
    "reference_models/native/ranks": COMMON | {"reference_models/native", "reference_models/native/ops"},
    "reference_models/native/programs": COMMON | {"reference_models/native", "reference_models/native/ops", "reference_models/native/ranks"},
    "reference_models/cuda": COMMON | {"reference_models/native", "reference_models/native/models", "reference_models/native/ranks", "kernels"},
    "reference_models/plants": COMMON,
    "reference_models/serve": COMMON | {"reference_models/native"},
    "reference_models/load": COMMON,
    "kernels": COMMON | {"reference_models/native", "reference_models/native/ops"},
    "ci/bench": None,
    "ci/sim": None,
    "ci/whatif": None,
    "tests": None,
}


def room_of(path):
    for depth in (4, 3, 2, 1):
        room = "/".join(path.split("/")[:depth])
        if room in LAW:
            return room
    return None


def main():
    seen, broken = 0, []
    for room, allowed in LAW.items():
        for folder, _, names in os.walk(os.path.join(ROOT, room)):
            if room_of(os.path.relpath(folder, ROOT)) != room:
                continue  # a room within a room has a law of its own
            for name in sorted(names):
                if not name.endswith((".c", ".h", ".inc", ".cu", ".cuh")) or allowed is None:
                    continue
                path = os.path.join(folder, name)
                for number, line in enumerate(open(path, encoding="utf-8"), 1):
                    match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
                    target = room_of(match.group(1)) if match else None
                    if not target:
                        continue
                    seen += 1
                    ok = target == room or target in allowed
                    if room == "common" and target == "contracts":
                        ok = match.group(1) == "contracts/exit_code.h"
                    if not ok:
                        broken.append("%s:%d: %s includes %s" % (os.path.relpath(path, ROOT), number, room,
                                                                   match.group(1)))
    print("%d includes across rooms and within, %d break the law" % (seen, len(broken)))
    print("\n".join(broken))
    return 1 if broken or seen < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
