# SPDX-License-Identifier: Apache-2.0
"""Victim: its second thread sits in one long C call, which does not give the interpreter lock away."""
import os
import threading
import time

import stage


def rounds_for(seconds):
    begin = time.monotonic()
    sum(range(1000000))
    return int(1000000 * seconds / (time.monotonic() - begin))


def summer(rounds):
    stage.name("pl-summer")
    stage.pin(stage.cpu_other)
    stage.every(0.3, lambda: sum(range(rounds)))


stage.name("pl-victim")
if stage.guilty:
    stage.blame(os.getpid())
    threading.Thread(target=summer, args=(rounds_for(0.06),), daemon=True).start()
stage.steps()
