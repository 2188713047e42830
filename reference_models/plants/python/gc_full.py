# SPDX-License-Identifier: Apache-2.0
"""Victim: two million objects, and a full collection every 50 steps or so, as long as that takes."""
import gc

import stage

OBJECTS = 2000000
STEPS_BETWEEN = 60


def collect(step):
    if stage.guilty and step % STEPS_BETWEEN == STEPS_BETWEEN - 1:
        gc.collect()
        stage.add(stage.ACTS, 1)


stage.name("pl-victim")
gc.disable()  # only the collections that are counted
heap = [[index] for index in range(OBJECTS)]
stage.steps(collect)
