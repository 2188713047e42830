#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the constants that test_{distribution,signed_rank,power,binomial,trend,parity}.c compare with.

They come from scipy and from plain enumeration, not from the code under test. Run it in a throw-away environment:
    python3 -m venv /tmp/v && /tmp/v/bin/pip install scipy && /tmp/v/bin/python tests/unit/reference_values.py
Reads nothing, writes to stdout; no part of the build.
"""
import itertools
from fractions import Fraction

import numpy as np
from scipy import stats


def signed_rank_pmf(n):
    """Exact, with integers: the coefficients of prod (1 + x^k)."""
    coefficients = [1]
    for k in range(1, n + 1):
        new = [0] * (len(coefficients) + k)
        for t, c in enumerate(coefficients):
            new[t] += c
            new[t + k] += c
        coefficients = new
    return coefficients


def critical(n, alpha):
    total, q = Fraction(0), -1
    for t, c in enumerate(signed_rank_pmf(n)):
        total += Fraction(c, 2**n)
        if total > Fraction(alpha):
            return q
        q = t
    return q


def interval(d, alpha):
    walsh = sorted((x + y) / 2 for x, y in itertools.combinations_with_replacement(d, 2))
    q, m = critical(len(d), alpha), len(walsh)
    return np.median(walsh), walsh[q], walsh[m - 1 - q]


def show(name, *values):
    print(name, " ".join(repr(float(v)) for v in values))


# A fixed sample with one outlier, the same in test_signed_rank.c.
SAMPLE = [0.011, -0.004, 0.023, 0.017, 0.002, 0.031, 0.008, -0.012, 0.019, 0.26]

for p in (1e-12, 0.0025, 0.01, 0.3, 0.975):
    show(f"normal_quantile({p})", stats.norm.ppf(p))
for p, df in ((0.0025, 9), (0.01, 5), (0.9, 27), (0.975, 1), (0.999, 200)):
    show(f"t_quantile({p}, {df})", stats.t.ppf(p, df))
for a, b, x in ((2, 3, 0.4), (0.5, 0.5, 0.01), (661, 2, 0.99), (30, 1, 0.97), (1000, 1000, 0.5)):
    show(f"beta_cdf({a}, {b}, {x})", stats.beta.cdf(x, a, b))
for n, alpha in ((10, "0.0025"), (14, "0.0025"), (20, "0.0025"), (28, "0.0025"), (7, "0.01"), (10, "0.01"), (60, "0.0025"), (6, "0.01")):
    print(f"critical({n}, {alpha})", critical(n, Fraction(alpha)))
for n, t in ((10, 8), (28, 100), (60, 600)):
    show(f"signed_rank_cdf({n}, {t})", sum(map(Fraction, (Fraction(c, 2**n) for c in signed_rank_pmf(n)[: t + 1]))))
for alpha in ("0.0025", "0.01", "0.05"):
    show(f"interval(SAMPLE, {alpha})", *interval(SAMPLE, Fraction(alpha)))
lo, hi = interval(SAMPLE, Fraction("0.01"))[1:]
for name, shift in (("just below lower", lo - 1e-6), ("just above lower", lo + 1e-6)):
    p = stats.wilcoxon(np.array(SAMPLE) - shift, alternative="greater", method="exact").pvalue
    show(f"scipy wilcoxon p, theta {name}", p)
mean = np.mean(SAMPLE)
show("mean, t bounds .0025", mean, *stats.t.interval(0.995, 9, loc=mean, scale=stats.sem(SAMPLE)))
for sd, n, power in ((0.003, 6, 0.8), (0.005, 12, 0.9), (0.02, 24, 0.8), (0.03, 40, 0.9)):
    show(f"mde_log({sd}, {n}, .01, {power})", (stats.t.ppf(0.99, n - 1) + stats.t.ppf(power, n - 1)) * sd / np.sqrt(n))
for x, n in ((0, 59), (0, 299), (0, 300), (1, 100), (3, 200), (7, 10)):
    show(f"clopper_pearson_95({x}, {n})", stats.binomtest(x, n).proportion_ci(0.90, "exact").low, stats.binomtest(x, n).proportion_ci(0.90, "exact").high)
show("binomial_tail(7, 7, .5)", stats.binom.sf(6, 7, 0.5))
show("binomial_tail(30, 100, .2)", stats.binom.sf(29, 100, 0.2))
for p, over in ((0.9, 1), (0.9, 10), (0.95, 1), (0.97, 1), (0.99, 1), (0.99, 10), (0.99, 50), (0.999, 1)):
    n = over + 1
    while stats.binom.cdf(over, n, 1 - p) > 0.01:
        n += 1
    print(f"requests_min({p}, {over})", n)
series = [1.0, 1.2, 0.9, 1.4, 1.3, 1.7, 1.5, 1.8, 5.0, 2.0, 1.9, 2.2]
slope, _, lo, hi = stats.theilslopes(series, alpha=0.95)
show("theilslopes(.95)", slope, lo, hi)
half = np.array([0x3C00, 0xC000, 0x7BFF, 0x0001, 0x0400, 0x3555, 0x8000, 0x7C00], dtype=np.uint16).view(np.float16)
show("f16", *half.astype(np.float64))
