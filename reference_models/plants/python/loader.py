# SPDX-License-Identifier: Apache-2.0
"""Victim: takes one batch a step from a worker process, as a data loader; some batches take long to make."""
import multiprocessing
import os
import time

import stage

LATE_S = 0.08


def worker(queue, parent):
    stage.die_with_parent()
    if os.getppid() != parent:
        return
    stage.name("pl-loader")
    stage.pin(stage.cpu_other)
    batch = 0
    while not stage.stopped():
        batch += 1
        if stage.guilty and stage.due():
            end = time.process_time() + LATE_S
            while time.process_time() < end:
                pass
            stage.add(stage.ACTS, 1)
        queue.put(batch)


if __name__ == "__main__":
    stage.name("pl-victim")
    context = multiprocessing.get_context("fork")
    queue = context.Queue(1)  # no stock of batches: a late one is felt
    process = context.Process(target=worker, args=(queue, os.getpid()), daemon=True)
    process.start()
    if stage.guilty:
        stage.blame(process.pid)
    stage.steps(queue.get)
    process.kill()
