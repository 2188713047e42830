# SPDX-License-Identifier: Apache-2.0
"""Dynamic batching on the event loop: requests in, in the order of arrival; batches to `compute`, as soon as one is full or
its oldest request has waited long enough. One batch at a time, in a thread: the framework holds no lock of Python's while
it computes, and HTTP goes on."""
import asyncio
import collections
import concurrent.futures
import time


class Full(Exception):
    """Too many requests wait."""


Waiting = collections.namedtuple("Waiting", "item future since_s")


class Batcher:
    def __init__(self, compute, batch_max, wait_s, queue_max, before=None):
        """compute(items) -> results, one for each, in a thread. before(): awaited before each batch."""
        self._compute, self._batch_max, self._wait_s, self._queue_max = compute, batch_max, wait_s, queue_max
        self._before = before
        self._queue = collections.deque()
        self._changed = asyncio.Event()
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "compute")
        self._task = None
        self.busy_since_s = None  # a batch is being computed
        self.batches = self.scored = 0

    def start(self):
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self):
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._thread.shutdown(wait=False)

    def waits_s(self):
        """For how long the oldest waits, in the queue or for its batch to be done; 0: none waits."""
        since = [time.monotonic()] + [one.since_s for one in list(self._queue)[:1]]
        if self.busy_since_s is not None:
            since.append(self.busy_since_s)
        return time.monotonic() - min(since)

    async def put(self, item):
        """Its result. Full when it cannot wait here."""
        if len(self._queue) >= self._queue_max:
            raise Full
        future = asyncio.get_running_loop().create_future()
        self._queue.append(Waiting(item, future, time.monotonic()))
        if len(self._queue) in (1, self._batch_max):
            self._changed.set()
        return await future

    async def _next(self):
        while not self._queue:
            self._changed.clear()
            await self._changed.wait()
        while len(self._queue) < self._batch_max:
            left = self._queue[0].since_s + self._wait_s - time.monotonic()
            if left <= 0:
                break
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except asyncio.TimeoutError:
                break
        return [self._queue.popleft() for _ in range(min(len(self._queue), self._batch_max))]

    async def _run(self):
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._next()
            self.busy_since_s = time.monotonic()
            if self._before:
                await self._before()
            try:
                results = await loop.run_in_executor(self._thread, self._compute, [one.item for one in batch])
            except Exception as problem:  # the requests of this batch fail; the next one has its own chance
                results = [problem] * len(batch)
            self.busy_since_s = None
            self.batches += 1
            self.scored += len(batch)
            for one, result in zip(batch, results):
                if one.future.done():
                    continue
                if isinstance(result, Exception):
                    one.future.set_exception(result)
                else:
                    one.future.set_result(result)
