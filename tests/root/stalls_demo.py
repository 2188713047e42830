#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ci/stalls/demo, small: a new user's two commands on a live trainer and a monitoring agent. The agent must be among
the causes with its command and what it reads; without it nobody may be blamed for reading smaps. What else a
loaded machine does to the trainer is true as well, and not judged. Skipped without root, capture, numpy or memory."""
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import needs  # noqa: E402

BUILD, SOURCE = os.environ["UPGATE_BUILD"], os.environ["UPGATE_SOURCE"]
UPGATE = os.path.join(BUILD, "upgate")
SECONDS, GIB = 6, 1
ATTEMPTS = 3  # 20 looks an attempt; on a machine that starves the agent there may be fewer


def skipped():
    if subprocess.run([python(), "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode:
        return "no numpy for " + python()
    return needs.lacks(symbols=True, gib=3)


def python():
    return "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable


def demo(*options):
    """The document, and what was printed."""
    with tempfile.TemporaryDirectory(prefix="upgate-demo-") as out:
        done = subprocess.run([os.path.join(SOURCE, "ci/stalls/demo"), "--seconds", str(SECONDS), "--table-gib", str(GIB), "-o",
                               out, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=240,
                              env=dict(os.environ, UPGATE=UPGATE, PYTHON=python()))
        assert done.returncode == 0, done.stderr[-2000:]
        left = {"run.db", "stalls.txt", "stalls.json", "stalls.md", "off-cpu.folded", "trainer.json"} - set(os.listdir(out))
        assert not left, "the demo did not leave %s" % left
        with open(os.path.join(out, "stalls.json")) as file:
            return json.load(file), done.stdout


def named(document):
    """The stall that the agent is blamed for, or None."""
    for stall in document["stalls"]:
        if stall["cause"] == "smaps_read" and "agent.py" in ((stall["culprit"] or {}).get("cmdline") or ""):
            return stall
    return None


def main():
    why = skipped()
    if why:
        print("skipped: " + why)
        return 77
    for attempt in range(1, ATTEMPTS + 1):
        document, text = demo()
        stall = named(document)
        print("attempt %d: %s" % (attempt, document["answer"]))
        if stall and stall["count"] >= 3:
            break
    else:
        print("the agent was not named, or for less than three times:\n" + text)
        return 1
    assert "smap" in stall["culprit"]["kernel_function"], stall["culprit"]
    assert "agent.py --pid %d" % document["target"]["pid"] in stall["culprit"]["cmdline"], stall["culprit"]
    assert "memory_full_info" in stall["advice"], stall
    assert "agent.py" in text and "smaps_read" in text, text
    document, text = demo("--no-agent")
    print("without the agent: " + document["answer"])
    assert not [s for s in document["stalls"] if s["cause"] == "smaps_read"], text
    return 0


sys.exit(main())
