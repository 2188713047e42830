# SPDX-License-Identifier: Apache-2.0
"""Seeded values of the reference workloads, the same bits whatever the version and the framework. Needs numpy only."""
import numpy

MASK64 = (1 << 64) - 1


def _mix(z):
    """The finaliser of splitmix64, on Python integers."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return z ^ (z >> 31)


def mix_all(z):
    """The same on an array of numpy.uint64."""
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return z ^ (z >> numpy.uint64(31))


class Draw:
    """Counter-based random values from a seed and the name of a stream. Neither torch's nor numpy's
    generator: those may change between versions. Only exact operations (integers, one conversion, a
    multiplication by a power of two), so that no vector library can change a bit."""

    def __init__(self, seed, stream):
        state = _mix((seed + 0x9E3779B97F4A7C15) & MASK64)
        for byte in stream.encode():
            state = _mix(((state ^ byte) + 0x9E3779B97F4A7C15) & MASK64)
        self._state, self._drawn = state, 0

    def bits(self, count):
        counter = numpy.arange(self._drawn + 1, self._drawn + count + 1, dtype=numpy.uint64)
        self._drawn += count
        return mix_all(counter * numpy.uint64(0x9E3779B97F4A7C15) + numpy.uint64(self._state))

    def uniform(self, count):
        """float64 in [0, 1), 53 bits."""
        return (self.bits(count) >> numpy.uint64(11)).astype(numpy.float64) * 2.0 ** -53

    def integers(self, count, bound):
        """int64 in [0, bound), bound below 2^32."""
        high = self.bits(count) >> numpy.uint64(32)
        return (high * numpy.uint64(bound) >> numpy.uint64(32)).astype(numpy.int64)
