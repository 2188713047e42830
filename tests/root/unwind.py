#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stacks of code without frame pointers are whole, from the leaf to where the thread began: at samples and at switch-outs,
through signal handlers and code of no file; and a file whose tables are damaged costs nothing but its names. Needs root and
a kernel that permits the capture."""
import collections
import json
import os
import shutil
import struct
import sys

import record_live
from record_live import check, check_whole

SUBJECT = os.path.join(record_live.BUILD, "tests", "root", "unwind_subject")
DEPTH = 40
SECONDS = "3"
AT_LEAST = 20  # stacks; of a machine that is ten times slower there are fewer, but not none


def stacks(case, table, at):
    """Of the target's records in the order of time: the names of each user stack, leaf first."""
    rows = case.rows("SELECT t.%s, s.frames FROM %s t JOIN stack s ON s.id = t.user_stack %s ORDER BY 1" %
                     (at, table, "WHERE t.why & 1" if table == "sample" else ""))
    names = dict(case.rows("SELECT id, name FROM frame"))
    return [[names[frame] for frame in json.loads(frames)] for _, frames in rows]


def of_leaf(found, leaf):
    """Those of the leaf, without the first fifth: tables are loaded when a stack asks for them."""
    mine = [stack for stack in found if leaf in stack[:4]]
    assert len(mine) >= AT_LEAST, (leaf, len(mine), len(found))
    return mine[len(mine) // 5:]


def is_whole(stack, ends, through=()):
    return stack.count("descends") == DEPTH and ends in stack[-4:] and all(name in stack for name in through)


def check_stacks(case, ends="_start", through=()):
    for table, at, leaf in (("sample", "at_ns", "spins_here"), ("gap", "out_ns", "naps_here")):
        mine = of_leaf(stacks(case, table, at), leaf)
        whole = sum(is_whole(stack, ends, through) for stack in mine)
        assert whole >= 0.9 * len(mine), (table, whole, len(mine), next(s for s in mine if not is_whole(s, ends, through)))


def record(case, *command):
    done = case.run("--", *command)
    check(done, 0)
    check_whole(case)
    return done


def test_deep(case):
    record(case, SUBJECT, "deep", SECONDS)
    check_stacks(case, through=["both_here", "main"])
    missing = case.value("SELECT missing FROM recording")
    assert not any(text.startswith("stacks:") for text in json.loads(missing)), missing
    seen, kept = case.rows("SELECT seen, kept FROM ledger WHERE producer = 'unwind'")[0]
    assert 0 < kept <= seen, (seen, kept)


def test_thread(case):
    """Its stack ends where clone() began it."""
    record(case, SUBJECT, "thread", SECONDS)
    found = collections.Counter(stack[-1] for stack in of_leaf(stacks(case, "gap", "out_ns"), "naps_here"))
    end, count = found.most_common(1)[0]
    assert "clone" in end and count >= 0.9 * sum(found.values()), found
    check_stacks(case, ends=end, through=["thread_main"])


def test_signal_handler(case):
    record(case, SUBJECT, "signal", SECONDS)
    check_stacks(case, through=["on_signal", "raise", "raises_here", "main"])


def test_jit_with_frame_pointers(case):
    record(case, SUBJECT, "jit", SECONDS)
    check_stacks(case, through=["leaf_by_jit", "main"])


def test_jit_without(case):
    """Who called it is found on the stack."""
    record(case, SUBJECT, "bare", SECONDS)
    check_stacks(case, through=["leaf_by_jit", "main"])


def test_assembly(case):
    """Its own .eh_frame says that it has no frame."""
    record(case, SUBJECT, "assembly", "8")
    mine = of_leaf(stacks(case, "sample", "at_ns"), "assembly_spins")
    whole = sum(is_whole(stack, "_start", ["assembly_here", "main"]) for stack in mine)
    assert whole >= 0.9 * len(mine), (whole, len(mine), next(stack for stack in mine if "main" not in stack))


def damaged(case, name, change):
    """A copy of the subject whose .eh_frame_hdr was changed."""
    path = case.path(name)
    shutil.copy(SUBJECT, path)
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        headers, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
        for i in range(count):
            kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, headers + i * size)
            if kind == 0x6474e550:  # PT_GNU_EH_FRAME
                change(data, offset, length)
        file.seek(0)
        file.write(data)
    return path


def test_damaged_tables(case):
    """Of a library of its own, no stack gets through; the recording is whole, and others' tables are of use."""
    def lies(data, offset, length):
        for i in range(offset + 12, offset + length, 8):
            struct.pack_into("<i", data, i + 4, 0x7ffffff0)  # each description lies outside of the file
    record(case, damaged(case, "lies", lies), "deep", SECONDS)
    leaves = of_leaf(stacks(case, "gap", "out_ns"), "naps_here")
    assert all("naps_here" in stack for stack in leaves)


def test_cut_short_tables(case):
    def count(data, offset, _):
        struct.pack_into("<I", data, offset + 8, 0xffffffff)  # more entries than any file has
    record(case, damaged(case, "count", count), "deep", SECONDS)
    of_leaf(stacks(case, "gap", "out_ns"), "naps_here")


def test_exec_again(case):
    """The same process as another program: nothing of the old one's tables is of use."""
    record(case, "sh", "-c", "%s deep 1; exec %s deep 2" % (SUBJECT, SUBJECT))
    check_stacks(case, through=["both_here", "main"])


if __name__ == "__main__":
    sys.exit(record_live.main(globals()))
