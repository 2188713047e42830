# SPDX-License-Identifier: Apache-2.0
"""Forty regressions that no rule of the gate was tuned on, for ci/plants --verdicts --held-out: the mean step is 3 to 10 %
slower, made in each of the ways in which real jobs get slower for a part of their steps or launches; and the same forty on both
sides, which must not fail. Drawn by seed."""
import math
import random

import verdict_stores as stores

COUNT, EFFECT = 40, (0.03, 0.10)
WORSE, EQUAL = "held out", "held out, both sides"  # in the place of a row of the table


def rare(rng):
    return {"kind": "rare", "share": rng.choice((0.002, 0.005, 0.01, 0.03))}


def every(rng):
    n = rng.choice((7, 25, 40, 64, 90))
    return {"kind": "every", "n": n, "offset": rng.randrange(n)}


def mixture(rng):
    return {"kind": "scale", "launches": rng.uniform(0.15, 0.6)}


def warm_up(rng):
    return {"kind": "head", "share": rng.uniform(0.1, 0.8), "decays": rng.random() < 0.5}


def late(rng):
    return {"kind": "tail", "share": rng.uniform(0.08, 0.5), "launches": rng.choice((1.0, 1.0, 0.5))}


def leak(rng):
    return {"kind": "grow"} if rng.random() < 0.6 else {"kind": "grow", "stairs": rng.randrange(2, 6)}


def burst(rng):
    return {"kind": "burst", "count": rng.randrange(1, 5), "length": rng.randrange(3, 30), "launches": rng.choice((1.0, 0.6))}


def huge(rng):
    return {"kind": "huge", "count": rng.choice((1, 1, 2))}


def bimodal(rng):
    return {"kind": "bimodal", "share": rng.uniform(0.1, 0.6)}


def rank(rng):
    return {"kind": "bimodal", "share": rng.uniform(0.1, 1.0), "rank": 1}


def block_every(rng):
    return {"kind": "block_every", "n": rng.randrange(2, 7)}


def block_first(_):
    return {"kind": "block_first"}


def late_and_rare(rng):
    return [late(rng), rare(rng)]


def combination(rng):
    return [kind(rng) for kind in rng.sample((rare, every, mixture, warm_up, late, leak, burst, huge, bimodal), 2)]


KINDS = (rare, mixture, warm_up, leak, burst, huge, bimodal, rank, block_every, block_first, late, every, late_and_rare, combination)


def job_of(rng, kind):
    return {"steps": rng.choice((200, 300, 400, 600)), "step_ns": round(math.exp(rng.uniform(math.log(5e5), math.log(1e7)))),
            "host": rng.choice(("idle", "idle", "busy")), "ranks": 2 if kind is rank else 1}


def draw(seed):
    """{name: case} as those of verdicts.json."""
    cases = {}
    for i in range(COUNT):
        rng = random.Random("held-out %d %d" % (seed, i))
        kind = KINDS[i % len(KINDS)]
        options, effect = job_of(rng, kind), rng.uniform(*EFFECT)
        job = stores.Job(**options)
        parts = kind(rng)
        parts = parts if isinstance(parts, list) else [parts]
        for part in parts:
            part["strength"] = round(effect / len(parts) / stores.mean_weight(job, part), 4)
        words = ["%s x%.2f" % (part["kind"], 1 + part["strength"]) +
                 (" in %.0f %% of the launches" % (100 * part["launches"]) if part.get("launches", 1) < 1 else "") for part in parts]
        what = "%s, %d steps of %.1f ms, %s" % (", ".join(words), job.steps, job.step_ns / 1e6, job.host)
        name = "h%d.%02d-%s" % (seed, i, kind.__name__.replace("_", "-"))
        cases[name] = {"row": WORSE, "how": "W", "job": options, "candidate": parts, "expect": "no pass",
                       "what": "mean +%.1f %%, %s" % (100 * effect, what)}
        cases[name + "-both"] = {"row": EQUAL, "how": "W", "job": options, "both": parts, "expect": "no fail", "what": "both sides: " + what}
    return cases
