#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which code touched the memory first that one side has more of: a planted program, traced by real BPF programs, told by `upgate diff`. What
a side gave back before must not be named. A Python program, and both sides the same: root.ab_traced."""
import json
import os
import sys

SOURCE = os.environ["UPGATE_SOURCE"]
sys.path[:0] = [os.path.join(SOURCE, "tests", "e2e"), os.path.join(SOURCE, "tests", "root")]
sys.dont_write_bytecode = True

import ab_rig
import needs
from ab_rig import Skip, check_code

MIB = 1 << 20
SUBJECT = os.path.join(os.environ["UPGATE_BUILD"], "tests", "root", "touched_subject")
GATE = {"metrics": {"peak_memory": {"margin": "5%"}, "total_time": {"observe": True}, "cpu_time": {"observe": True}}, "calibrate": "auto"}

def touched(case, command, candidate, baseline=None):
    """The memory of the comparison: candidate and baseline are environments."""
    names = sorted(candidate)
    case.plan({"command": command}, traced_launches=1, gate=GATE, baseline={"env": dict({name: "0" for name in names}, **(baseline or {}))},
              candidate={"env": candidate})
    done = case.run()
    check_code(done, 1)
    for line in done.err.splitlines():
        if "launches are not traced" in line:
            raise Skip(line)
    diff = case.run("diff", case.db_path, "--format", "json")
    check_code(diff, 0, 4)
    memory = json.loads(diff.out)["workloads"][0]["memory"]
    if not memory["touched"]:
        missing = case.rows("SELECT missing FROM recording")
        assert any("page faults" in text for text, in missing), missing
        raise Skip("page faults cannot be sampled here: %s" % missing)
    text = case.run("diff", case.db_path)
    return memory, " ".join(text.out.split())


def check_told(memory, text, want):
    """want: {name of the function: MiB}: these are told, and nothing else."""
    told = {touch["caller"] or touch["function"]: touch["delta_bytes"] / MIB for touch in memory["touched"] if touch["told"]}
    assert set(told) == set(want), "%s\n%s" % (told, text)
    for name, size in want.items():
        assert abs(told[name] - size) < 0.15 * size + 1, "%s: %s\n%s" % (name, told, text)
        assert name in text, text
    for side in "ab":
        assert memory["seen_bytes"][side] <= memory["held_bytes"][side] * 1.001, memory
    assert memory["seen_bytes"]["b"] > 0.8 * memory["held_bytes"]["b"], memory


def test_native_functions(case):
    """An mmap, the heap, a file, and what was given back and touched again; not what was given back."""
    if not os.access(SUBJECT, os.X_OK):
        raise Skip("no program at " + SUBJECT)
    library = case.write("data.bin", "x" * (16 * MIB))
    memory, text = touched(case, [SUBJECT], {"MAPPED": "32", "ARENA": "16", "FILE": "16", "AGAIN": "16", "BACK": "24", "PLANT_FILE": library})
    check_told(memory, text, {"keeps_mapped": 32, "keeps_in_arena": 16, "keeps_file": 16, "takes_again": 16})


if __name__ == "__main__":
    why = needs.lacks()
    if why:
        print("skipped: " + why)
        sys.exit(77)
    ab_rig.main(globals(), certificates=False) # peak_memory alone is judged, which needs none
