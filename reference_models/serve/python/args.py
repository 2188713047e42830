# SPDX-License-Identifier: Apache-2.0
"""The command line of the torch server: the names of upgate-serve (serve_args.c), and --threads and --device. Imports no
framework, so that a wrong argument costs nothing."""
import argparse
import os
import re

UNITS_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def duration(text):
    """Seconds of `20ms`, `1.5s`."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]+)\s*", text)
    if not match or match.group(2) not in UNITS_S:
        raise argparse.ArgumentTypeError("'%s' is not a time such as 20ms or 1.5s" % text)
    return float(match.group(1)) * UNITS_S[match.group(2)]


def share(text):
    """0.02 of `2%`, 0.02 of `0.02`."""
    value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    if not 0 <= value < float("inf"):
        raise ValueError("'%s' is not a share such as 2%%" % text)
    return value


def _count(low, high):
    def parse(text):
        value = int(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError("must be a whole number from %d to %d, not %s" % (low, high, text))
        return value
    return parse


def _name(text):
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,63}", text):
        raise argparse.ArgumentTypeError("has 1 to 63 letters, digits, '-', '_' and '.', not '%s'" % text)
    return text


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, "%s: %s; try `%s --help`\n" % (self.prog, message, self.prog))


def parse(argv, plants_help):
    p = _Parser(prog="serve.py", description="a torch reference model behind HTTP", allow_abbrev=False,
                formatter_class=argparse.RawDescriptionHelpFormatter,
                epilog="PLANT_SERVE=KIND[:VALUE][,KIND...] plants faults:\n" + plants_help)
    p.add_argument("--model", choices=("dlrm", "transformer"), default="dlrm")
    p.add_argument("--size", choices=("small", "demo", "large"), default="small")
    p.add_argument("--seed", type=_count(0, 2**63 - 1), default=1)
    p.add_argument("--name", type=_name, help="in answers (MODEL-SIZE-SEED)")
    p.add_argument("--model-file", help="model, size, seed and name from this file of --models")
    p.add_argument("--models", default=".", help="folder of model files, for --model-file and POST /reload")
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=_count(0, 65535), default=0, help="0: a free one")
    p.add_argument("--side", type=_name, default="torch", help="header x-upgate-side of every answer")
    p.add_argument("--threads", type=_count(1, 1024), default=1, help="of torch")
    p.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    p.add_argument("--max-batch", type=_count(1, 4096), default=32)
    p.add_argument("--max-wait", type=duration, default=0.001, help="of the oldest request of a batch that is not full")
    p.add_argument("--queue", type=_count(1, 1 << 20), default=4096, help="requests that may wait")
    p.add_argument("--stuck", type=duration, default=5.0, help="a request that waits longer: /health is 503")
    p.add_argument("--drain-delay", type=duration, default=2.0, help="after SIGTERM: not ready, but still accepting")
    p.add_argument("--drain-timeout", type=duration, default=30.0, help="then: for what is in flight")
    args = p.parse_args(argv)
    # The numeric libraries look at these once, when they load.
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(args.threads)
    return args
