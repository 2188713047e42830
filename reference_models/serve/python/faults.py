# SPDX-License-Identifier: Apache-2.0
"""Faults on purpose, PLANT_SERVE=KIND[:VALUE][,KIND…]: the same words and the same meaning as in plants.c. The server
proper does not know them; it calls the methods here at the points where a fault would show."""
import asyncio
import math
import os
import signal
import time

from args import duration, share

HELP = """errors:P%      of the answers are 500
slow:P%        every answer takes P % longer
hold:TIME      every answer takes so long at least
hold-long:TIME likewise, those to requests with many features
late:TIME      likewise, from a SIGUSR1 on
nan[:P%]       scores are not numbers (100 %)
wrong[:P%]     scores are off by 0.1 (100 %)
stream-cut[:P%] of the answers end in the middle (100 %)
leak[:BYTES]   so much more memory with each request (64K)
crash-after:N  the process aborts at request N
hang-after:N   from request N on nothing is answered
warm:TIME      the warm-up takes so long
"""
SHARES = {"errors": None, "slow": None, "nan": 1.0, "wrong": 1.0, "stream-cut": 1.0}
KNOWN = list(SHARES) + ["hold", "hold-long", "late", "leak", "crash-after", "hang-after", "warm"]


def _bytes(text):
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    return int(text[:-1] if scale > 1 else text) * scale


class Faults:
    def __init__(self, text):
        """ValueError says which word is wrong."""
        self._share = dict.fromkeys(SHARES, 0.0)
        self._hold_s = self._hold_long_s = self._warm_s = 0.0
        self._leak_bytes, self._leaked = 0, []
        self._crash_after = self._hang_after = math.inf
        self._arrived = 0
        for word in filter(None, (text or "").split(",")):
            kind, _, value = word.partition(":")
            if kind not in KNOWN:
                raise ValueError("'%s' is unknown; known:\n%s" % (kind, HELP))
            try:
                self._set(kind, value)
            except Exception as problem:  # each parser has its own kind of complaint
                raise ValueError("%s: %s" % (kind, problem if value else "it needs a value")) from None

    def _set(self, kind, value):
        if kind in SHARES:
            self._share[kind] = SHARES[kind] if not value and SHARES[kind] else share(value)
        elif kind == "leak":
            self._leak_bytes = _bytes(value or "64K")
        elif kind == "hold":
            self._hold_s = duration(value)
        elif kind == "hold-long":
            self._hold_long_s = duration(value)
        elif kind == "late":
            late_s = duration(value)
            signal.signal(signal.SIGUSR1, lambda *_: setattr(self, "_hold_s", max(self._hold_s, late_s)))
        elif kind == "warm":
            self._warm_s = duration(value)
        elif kind == "crash-after":
            self._crash_after = int(value)
        else:
            self._hang_after = int(value)

    def _hits(self, kind, number):
        return math.floor((number + 1) * self._share[kind]) > math.floor(number * self._share[kind])

    def warm_up(self):
        time.sleep(self._warm_s)

    def arrived(self):
        """The number of the request, and the planted error as text or None."""
        number, self._arrived = self._arrived, self._arrived + 1
        if number >= self._crash_after:
            os.abort()
        if self._leak_bytes:
            self._leaked.append(bytearray(self._leak_bytes))
        return number, "planted error" if self._hits("errors", number) else None

    async def worker(self):
        if self._arrived > self._hang_after:
            await asyncio.Event().wait()

    def scored(self, number, score):
        if self._hits("nan", number):
            return math.nan
        return score + 0.1 if self._hits("wrong", number) else score

    async def hold(self, since_s, is_long):
        """Until the answer of a request that came at `since_s` (time.monotonic()) is due."""
        now = time.monotonic()
        due = max(now + self._share["slow"] * (now - since_s), since_s + max(self._hold_s, self._hold_long_s if is_long else 0))
        if due > now:
            await asyncio.sleep(due - now)

    def cuts(self, number):
        return self._hits("stream-cut", number)


