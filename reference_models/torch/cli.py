# SPDX-License-Identifier: Apache-2.0
"""Command line of the PyTorch reference workloads, without torch.

Reads the command line; writes the thread counts into the environment, where the numeric libraries
look once, when they load: import it before torch. A bad argument costs no import of a framework.
"""
import argparse
import os
import sys

import plants

VARIANTS = ("eager", "compile", "compile-reduce-overhead", "compile-max-autotune", "cuda-graphs", "torchscript", "export",
            "aotinductor", "aotinductor-native", "fx-int8", "amp-bf16", "amp-fp16", "torchrec")
SEVERAL = ("ddp", "fsdp", "dlrm-sharded")
ROWS_MAX = 1 << 30  # of a cache, as the native twin has it
NAMES_OF_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def _threads_of(argv):
    """--threads ahead of the real parser, which reports what is wrong with it."""
    for i, word in enumerate(argv):
        value = word[len("--threads="):] if word.startswith("--threads=") else None
        if word == "--threads" and i + 1 < len(argv):
            value = argv[i + 1]
        if value is not None and value.isdigit() and int(value) > 0:
            return value
    return "1"


# OpenBLAS with threads of its own reads its variable at load; torch.set_num_threads() does not
# reach it.
for _name in NAMES_OF_THREADS:
    os.environ[_name] = _threads_of(sys.argv[1:])


def _count(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1, not %s" % text)
    return value


def _rate(text):
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError("must be a rate per second, 0 or more, not %s" % text)
    return value


def _plant(text):
    try:
        return plants.Plants(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError("'%s': %s; known: %s"
                                         % (text, error, " ".join(plants.HELP.split())))


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        """One line, as the native workloads do it; argparse would print the usage too."""
        sys.stderr.write("%s: %s; try `%s --help`\n" % (self.prog, message, self.prog))
        sys.exit(2)


def size(text):
    """A number of bytes, such as 64K or 40M."""
    value = plants.bytes_of(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1 byte, not %s" % text)
    return value


def rows(text):
    """A number of rows; 0: as many as the size has."""
    value = int(text)
    if not 0 <= value <= ROWS_MAX:
        raise argparse.ArgumentTypeError("%s is out of range; accepted: 0 to %d" % (text, ROWS_MAX))
    return value


def arguments(name, argv=None, options=()):
    """The command line of every reference workload, with options of its own. A bad argument ends with status 2."""
    p = _Parser(prog=name, description="upgate reference workload on PyTorch", allow_abbrev=False)
    p.add_argument("--mode", choices=("train", "infer"), default="train")
    p.add_argument("--steps", type=_count, default=100, help="steps, or requests with --mode infer")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--ranks", type=_count, default=2 if name in SEVERAL else 1)
    p.add_argument("--rate", type=_rate, default=0.0, help="requests per second; 0: closed loop")
    p.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    p.add_argument("--threads", type=_count, default=1)
    p.add_argument("--size", choices=("small", "demo", "large"), default="demo")
    p.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto",
                   help="auto: cuda where torch sees a device")
    p.add_argument("--variant", choices=VARIANTS, default="eager",
                   help="the path by which PyTorch runs the model; float64 is always eager. One that is not there: "
                   "'skipped: REASON', status 77")
    p.add_argument("--watchdog", type=_count, default=60, metavar="SECONDS",
                   help="torchscript: a first call that takes longer is a hang (default 60)")
    p.add_argument("--plant", type=_plant, default=plants.Plants(),
                   help=plants.HELP.replace("%", "%%"))
    for option, settings in options:
        p.add_argument(option, **settings)
    args = p.parse_args(argv)
    if args.mode == "train" and args.rate > 0:
        p.error("--rate is for --mode infer; training steps do not arrive")
    if args.variant == "aotinductor-native" and args.plant.beyond(("serveskew",)):
        p.error("argument --plant: of --variant aotinductor-native only serveskew; the steps are a C++ program's")
    if args.variant == "torchrec" and args.plant.of_tables():
        p.error("argument --plant: not of --variant torchrec: %s; its tables have no gradients and no operator of torch"
                % ", ".join(args.plant.of_tables()))
    if name not in SEVERAL and args.ranks != 1:
        p.error("argument --ranks: %s has one rank; %s take more" % (name, ", ".join(SEVERAL)))
    args.name, args.fail = name, p.error
    return args
