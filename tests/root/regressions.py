#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three regressions that are planted in the candidate (ci/plant_regressions.py has them all): a new function, a lock that
another thread holds, and none at all. upgate must name the first two and accuse nobody in the third. Small runs: the plants are
strong."""
import contextlib
import os
import subprocess
import sys

ROOT = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "ci"))
import plant_regressions as regressions  # noqa: E402

QUICK = ("compute-50", "lock", "same-transformer")
# Beyond what a busy machine adds.
STRONG = (("compute-50", "compute:100%", 1.0), ("lock", "lock:50%", 0.5))


def check_answers():
    """The native plants can be started; e2e.plant_judge looks through the answers, and at the judge."""
    for name, answer in regressions.answers().items():
        workload = answer["workload"]
        if workload["program"] == "native" and answer["plant"]:
            program = os.path.join(regressions.MODELS, "native", workload["model"])
            words = ["--steps", "1", "--size", "small", "--plant", answer["plant"]]
            done = subprocess.run([program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            assert done.returncode == 0, "%s: %s" % (name, done.stderr)


def main():
    check_answers()
    if os.geteuid() != 0:
        print("skipped: recording needs root; the answers are fine")
        return 77
    with contextlib.suppress(PermissionError):  # before other programs: what those take is the noise that a plant is not told from
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    answers = regressions.answers()
    for name, plant, strength in STRONG:
        answers[name].update(plant=plant, strength=strength)
    regressions.answers = lambda: answers
    regressions.STEPS = {key: max(20, steps // 3) for key, steps in regressions.STEPS.items()}
    failed, noisy = [], []
    for name in QUICK:
        result = regressions.run(name, 1)
        print(regressions.describe(result), flush=True)
        # Not told from noise that was measured to be as large: of this machine in this moment, not of upgate.
        if result["verdict"] == regressions.MISSED and (result.get("noise") or 0) > result["strength"] / 2:
            print("%s: the interval is %.0f %% wide to each side" % (name, 100 * result["noise"]))
            noisy.append(name)
        elif result["verdict"] not in regressions.GOOD + (regressions.TOP, regressions.SKIPPED):
            failed.append(name)
    print("failed: " + ", ".join(failed) if failed else "ok")
    if not failed and len(noisy) == len(STRONG):
        print("skipped: the machine is too busy to tell a step from one of twice its time")
        return 77
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
