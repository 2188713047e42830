# SPDX-License-Identifier: Apache-2.0
"""Is there memory for tables of this size? Asked before any is taken: beyond what there is the kernel ends this process without a word, or
another one. Needs no framework; the models in JAX ask, too. Those in C: reference_models/native/room.h."""
import contextlib
import os

DRAW_BYTES = 24  # of a value while it is drawn: its counter, the product, a float64


def _number(path):
    with open(path, encoding="ascii") as file:
        return int(file.read())


def _machine(root):
    with open(os.path.join(root, "proc/meminfo"), encoding="ascii") as file:
        return [int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:")]


def _groups(root):
    """Directories of this process's control group (v2) and of those that it is in."""
    with open(os.path.join(root, "proc/self/cgroup"), encoding="utf-8", errors="surrogateescape") as file:
        names = [line.strip()[len("0::"):] for line in file if line.startswith("0::")]
    top = os.path.join(root, "sys/fs/cgroup")
    path = os.path.normpath(top + names[0]) if names else ""
    while path == top or path.startswith(top + os.sep):
        yield path
        path = os.path.dirname(path)


def _left(group):
    """What its limit leaves; pages of files, and names and inodes that the kernel keeps, go when others are wanted."""
    limit, used = _number(os.path.join(group, "memory.max")), _number(os.path.join(group, "memory.current"))
    with open(os.path.join(group, "memory.stat"), encoding="ascii") as file:
        values = dict(line.split() for line in file)
    return limit - used + int(values["active_file"]) + int(values["inactive_file"]) + int(values.get("slab_reclaimable", 0))


def available(root="/"):
    """Bytes that this machine and the limits of its control groups leave. None: nobody tells."""
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        found += _machine(root)
    with contextlib.suppress(OSError, ValueError):
        for group in _groups(root):
            with contextlib.suppress(OSError, ValueError, KeyError):  # "max" is no number
                found.append(_left(group))
    return min(found) if found else None


def check(args, tables, dim, state=0):
    """Ends the process in words where the tables (rows of each, dim columns) do not fit. state: values of the optimizer for each of theirs. Every
    rank makes all of them."""
    value = 8 if args.dtype == "float64" else 4
    made = sum(tables) * dim * value
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    need = ranks * max(made + max(tables) * dim * DRAW_BYTES, made * (1 + (state if args.device == "cpu" and args.mode == "train" else 0)))
    left = available()
    if left is not None and need > left:
        args.fail("argument --size: the tables of %s take %.0f MiB of memory while they are made%s, and %.0f are left here" % (
            args.size, need / 2 ** 20, " in %d ranks" % ranks if ranks > 1 else "", max(left, 0) / 2 ** 20))
