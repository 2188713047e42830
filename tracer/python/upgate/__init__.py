# SPDX-License-Identifier: Apache-2.0
"""Markers of upgate's step protocol, for workloads in Python.

    for batch in upgate.steps(loader, samples=n): ...   # fetching the batch and the body are one step
    with upgate.step(samples=n): ...                    # the body is one step
    with upgate.phase("forward"): ...                   # a named part of a step
    upgate.record(loss=loss, output=logits)             # raw values for the parity gate
    for i in upgate.requests(n, rate=50, seed=1): ...   # open loop: request i has arrived
    upgate.note("compile_time_ns", value)               # one number about the launch
    upgate.request_done(arrived_ns, 200)                # a server has answered a request, for `upgate canary`
    upgate.active()                                     # under a harness?
    upgate.rank("/shared/run")                          # record this rank, where no wrapper can know which it is (Ray)
    upgate.rank_end()                                   # end that before the process ends: a worker of Ray that the next task has

Without UPGATE_STEPS in the environment every call is a no-op. The markers never raise, except TypeError
for wrong arguments. Under an interpreter that cannot load the extension (not a CPython of 3.8 or later)
they are no-ops too, and say so once when a harness asked for steps.
"""

try:
    from upgate._core import RequestIterator, StepIterator, active, note, phase, record, request_done, step
except ImportError as _error:
    from upgate._off import RequestIterator, StepIterator, active, note, phase, record, request_done, step, explain

    explain(_error)

from upgate._rank import rank, rank_end

__all__ = ["active", "note", "phase", "rank", "rank_end", "record", "request_done", "requests", "step", "steps"]


class steps:
    """Each item of `iterable`, fetched and worked on, is a step of `samples` items.

    May be iterated again for the next epoch if `iterable` may; len() is that of `iterable`.
    """

    def __init__(self, iterable, samples=None):
        if samples is not None and not isinstance(samples, (int, float)):
            raise TypeError("upgate: samples must be a number")
        if not hasattr(iterable, "__iter__") and not hasattr(iterable, "__getitem__"):
            raise TypeError("upgate: steps() needs something to iterate over")
        self._iterable = iterable
        self._samples = samples

    def __iter__(self):
        return StepIterator(self._iterable, self._samples)

    def __len__(self):
        return len(self._iterable)


class requests:
    """0 to n-1, each when its request has arrived: a Poisson process of `rate` per second, the same for
    the same seed. A rate of 0 is a closed loop. What is done until the next one is the request."""

    def __init__(self, n, rate=0.0, seed=0, samples=1):
        if not isinstance(n, int) or not isinstance(seed, int):
            raise TypeError("upgate: n and seed must be whole numbers")
        if not isinstance(rate, (int, float)) or not isinstance(samples, (int, float)):
            raise TypeError("upgate: rate and samples must be numbers")
        self._arguments = (n, float(rate), seed & 0xFFFFFFFFFFFFFFFF, samples)

    def __iter__(self):
        return RequestIterator(*self._arguments)

    def __len__(self):
        return max(0, self._arguments[0])
