# SPDX-License-Identifier: Apache-2.0
"""Victim: two million objects, and a full collection every 400 ms."""
import gc

import stage

OBJECTS = 2000000


def collect():
    if stage.guilty and stage.due():
        gc.collect()
        stage.add(stage.ACTS, 1)


stage.name("pl-victim")
gc.disable()  # only the collections that are counted
heap = [[index] for index in range(OBJECTS)]
stage.steps(collect)
