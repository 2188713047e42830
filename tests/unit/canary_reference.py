#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the constants that test_canary_{counts,mean}.c compare with: by scipy's binomial probabilities, numerical integration and
root finding, not by the formulas under test. Run it in a throw-away environment:
    python3 -m venv /tmp/v && /tmp/v/bin/pip install scipy && /tmp/v/bin/python tests/unit/canary_reference.py
"""
import math

from scipy import integrate, optimize, stats

BETS = [0.020000, 0.028284, 0.040000, 0.056569, 0.080000, 0.113137, 0.160000, 0.226274,
        0.320000, 0.452548, 0.640000, 0.905097, 1.280000, 1.810193, 2.560000, 3.620387]
WEIGHTS = [0.018810, 0.022807, 0.028070, 0.035087, 0.044501, 0.057017, 0.072982, 0.091227,
           0.107326, 0.114034, 0.107326, 0.091227, 0.072982, 0.057017, 0.044501, 0.035086]
RATE_BETS = [0.1, 0.2, 0.35, 0.5, 0.7, 0.85]


def part(share, ratio):
    return share * ratio / (1 - share + share * ratio)


def evidence(seconds, sign, null=1.0):
    """ln of the mixture of likelihood ratios; seconds: (events of the candidate, of both, share)."""
    total = 0
    for bet, weight in zip(BETS, WEIGHTS):
        product = 1
        for k, n, share in seconds:
            product *= stats.binom.pmf(k, n, part(share, null * math.exp(sign * bet))) / stats.binom.pmf(k, n, part(share, null))
        total += weight * product
    return math.log(total)


def bound(second, sign, start, end, alpha=0.01):
    def refuted(log_ratio):
        return evidence([second], -sign, math.exp(log_ratio)) - math.log(1 / alpha)
    return math.exp(optimize.brentq(refuted, math.log(start), math.log(end), xtol=1e-13))


def rate_bound(events, requests, alpha):
    def refuted(p):
        e = 0.75 * stats.binom.pmf(events, requests, 0) / stats.binom.pmf(events, requests, p)
        e += sum(0.25 / 6 * stats.binom.pmf(events, requests, p * r) / stats.binom.pmf(events, requests, p) for r in RATE_BETS)
        return math.log(e) - math.log(1 / alpha)
    return optimize.brentq(refuted, events / requests + 1e-6, events / requests + 0.02, xtol=1e-14)


def mean_evidence(differences, prior):
    """Half a normal of variance 1/prior over the bets on a positive difference."""
    excess, variance = sum(differences), sum(d * d for d in differences)
    scale = 1 / math.sqrt(prior)
    value = integrate.quad(lambda x: 2 * stats.norm.pdf(x, scale=scale) * math.exp(x * excess - x * x * variance / 2), 0, 12 * scale,
                           epsabs=0, epsrel=1e-12, limit=500)[0]
    return math.log(value)


print("worse 40 of 100 at 25 %", repr(evidence([(40, 100, 0.25)], 1)))
print("better 40 of 100 at 25 %", repr(evidence([(40, 100, 0.25)], -1)))
print("two shares", repr(evidence([(6, 50, 0.05), (40, 100, 0.25)], 1)))
print("bounds 40 of 100 at 25 %", repr(bound((40, 100, 0.25), -1, 0.2, 1.9)), repr(bound((40, 100, 0.25), 1, 2.1, 50)))
print("ratio 40 of 100 at 25 %", repr((40 / 60) / (1 / 3)))
print("rate 0 of 1000", repr(rate_bound(0, 1000, 0.01)), "3 of 2000", repr(rate_bound(3, 2000, 0.01)))
# Ten seconds of 100 requests of each arm: weight 50, means of the candidate 2 % above.
MEANS = [(0.0200 + 0.0001 * (i % 3), 0.0204 + 0.00013 * (i % 4)) for i in range(10)]
print("mean", repr(mean_evidence([50 * (c - b) for b, c in MEANS], 1000 * 1e-6)))
