#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print layout_table.c: for each interpreter given, compile a small C program against its own headers
(Include/internal among them, as installed) and print what offsetof says.

    tracer/pystack/make_layout.py PYTHON... > tracer/pystack/layout_table.c
    tracer/pystack/make_layout.py --check PYTHON...   # compare with the table that is there: exit 1 when it differs

One interpreter a minor version is enough: CPython keeps these structures within a minor version, and
pystack_open checks that in the process it opens (each thread state points back at its interpreter).
Needs a C compiler and the interpreters' development headers. The table holds on x86-64 and on arm64; another machine's
compiler in CC, and what runs its programs in RUN, check that:

    CC="aarch64-linux-gnu-gcc -static" RUN=qemu-aarch64-static tracer/pystack/make_layout.py --check PYTHON..."""
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

HEAD = """\
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>
#include <frameobject.h>
"""

# (first minor, last minor, the headers)
HEADERS = [
    (8, 8, ["internal/pycore_pystate.h", "internal/pycore_pymem.h", "internal/pycore_gil.h"]),
    (9, 10, ["internal/pycore_runtime.h", "internal/pycore_interp.h", "internal/pycore_gc.h", "internal/pycore_gil.h"]),
    (11, 13, ["internal/pycore_runtime.h", "internal/pycore_interp.h", "internal/pycore_gc.h", "internal/pycore_gil.h",
              "internal/pycore_frame.h", "internal/pycore_code.h"]),
]

# field: list of (first minor, last minor, C expression); a version in none of them has no such field: -1
RUNTIME, INTERP, GC, GIL = "_PyRuntimeState", "PyInterpreterState", "struct _gc_runtime_state", "struct _gil_runtime_state"
THREAD, CODE, FRAME = "PyThreadState", "PyCodeObject", "struct _PyInterpreterFrame"


def at(struct, member):
    return "offsetof(%s, %s)" % (struct, member)


FIELDS = [
    ("runtime_interpreters", [(8, 13, at(RUNTIME, "interpreters.head"))]),
    ("runtime_gil", [(8, 11, at(RUNTIME, "ceval.gil"))]),
    ("runtime_gc", [(8, 8, at(RUNTIME, "gc"))]),
    ("interpreter_next", [(8, 13, at(INTERP, "next"))]),
    ("interpreter_threads", [(8, 10, at(INTERP, "tstate_head")), (11, 13, at(INTERP, "threads.head"))]),
    ("interpreter_gil", [(12, 13, at(INTERP, "ceval.gil"))]),
    ("interpreter_gc", [(9, 13, at(INTERP, "gc"))]),
    ("gil_holder", [(8, 13, at(GIL, "last_holder"))]),
    ("gil_locked", [(8, 13, at(GIL, "locked"))]),
    ("gc_collecting", [(8, 13, at(GC, "collecting"))]),
    ("thread_size", [(8, 13, "sizeof(%s)" % THREAD)]),
    ("thread_prev", [(8, 13, at(THREAD, "prev"))]),
    ("thread_next", [(8, 13, at(THREAD, "next"))]),
    ("thread_interpreter", [(8, 13, at(THREAD, "interp"))]),
    ("thread_frame", [(8, 10, at(THREAD, "frame")), (13, 13, at(THREAD, "current_frame"))]),
    ("thread_cframe", [(11, 12, at(THREAD, "cframe"))]),
    ("thread_id", [(8, 13, at(THREAD, "thread_id"))]),
    ("thread_native", [(11, 13, at(THREAD, "native_thread_id"))]),
    ("cframe_frame", [(11, 12, at("_PyCFrame", "current_frame"))]),
    ("frame_size", [(8, 10, at("struct _frame", "f_lasti") + " + sizeof(int)"), (11, 13, at(FRAME, "localsplus"))]),
    ("frame_back", [(8, 10, at("struct _frame", "f_back")), (11, 13, at(FRAME, "previous"))]),
    ("frame_code", [(8, 10, at("struct _frame", "f_code")), (11, 12, at(FRAME, "f_code")), (13, 13, at(FRAME, "f_executable"))]),
    ("frame_instruction", [(8, 10, at("struct _frame", "f_lasti")), (11, 12, at(FRAME, "prev_instr")), (13, 13, at(FRAME, "instr_ptr"))]),
    ("frame_owner", [(11, 13, at(FRAME, "owner"))]),
    ("code_file", [(8, 13, at(CODE, "co_filename"))]),
    ("code_name", [(8, 13, at(CODE, "co_name"))]),
    ("code_qualname", [(11, 13, at(CODE, "co_qualname"))]),
    ("code_lines", [(8, 9, at(CODE, "co_lnotab")), (10, 13, at(CODE, "co_linetable"))]),
    ("code_first_line", [(8, 13, at(CODE, "co_firstlineno"))]),
    ("code_start", [(8, 10, "sizeof(%s)" % CODE), (11, 13, at(CODE, "co_code_adaptive"))]),
    ("unicode_length", [(8, 13, at("PyASCIIObject", "length"))]),
    # The state is a bit field, which offsetof refuses: it follows the hash in every version.
    ("unicode_state", [(8, 13, at("PyASCIIObject", "hash") + " + sizeof(Py_hash_t)")]),
    ("ascii_size", [(8, 13, "sizeof(PyASCIIObject)")]),
    ("compact_size", [(8, 13, "sizeof(PyCompactUnicodeObject)")]),
    ("bytes_length", [(8, 13, at("PyVarObject", "ob_size"))]),
    ("bytes_data", [(8, 13, at("PyBytesObject", "ob_sval"))]),
]


def chosen(options, minor):
    for first, last, value in options:
        if first <= minor <= last:
            return value
    return None


def program(minor):
    lines = [HEAD] + ['#include "%s"' % header for header in chosen(HEADERS, minor)]
    lines.append("int main(void)\n{")
    for field, options in FIELDS:
        lines.append('    printf("%s %%d\\n", (int)(%s));' % (field, chosen(options, minor) or "-1"))
    return "\n".join(lines + ["    return 0;\n}\n"])


def layout_of(python):
    """(minor, "3.8.18", {field: offset}) of one interpreter."""
    ask = "import sysconfig, platform; print(platform.python_version()); print(sysconfig.get_paths()['include']); " \
          "print(sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
    version, include, free_threaded = subprocess.check_output([python, "-c", ask], text=True).split("\n")[:3]
    minor = int(version.split(".")[1])
    if chosen(HEADERS, minor) is None or free_threaded != "0":
        sys.exit("make_layout: %s is %s%s: not one of 3.8 to 3.13 with a GIL"
                 % (python, version, " free-threaded" if free_threaded != "0" else ""))
    with tempfile.TemporaryDirectory() as folder:
        source, binary = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
        with open(source, "w", encoding="utf-8") as file:
            file.write(program(minor))
        subprocess.check_call(shlex.split(os.environ.get("CC", "cc")) + ["-w", "-I", include, "-I", os.path.join(include, "internal"),
                               "-o", binary, source])
        output = subprocess.check_output(shlex.split(os.environ.get("RUN", "")) + [binary], text=True)
    return minor, version, {line.split()[0]: int(line.split()[1]) for line in output.splitlines()}


def table(layouts):
    lines = ["// SPDX-License-Identifier: Apache-2.0",
             "// Generated by tracer/pystack/make_layout.py; do not edit. The offsets of CPython's structures on",
             "// x86-64 and arm64, as the headers of these interpreters give them:",
             "// %s." % ", ".join(v for _, v, _ in layouts),
             "// clang-format off",
             '#include "tracer/pystack/layout.h"', "", "const struct layout layout_table[] = {"]
    for minor, _, layout in layouts:
        lines += ["    {", "        .minor = %d," % minor]
        lines += ["        .%s = %d," % (field, layout[field]) for field, _ in FIELDS]
        lines.append("    },")
    lines += ["};", "const size_t layout_table_count = sizeof(layout_table) / sizeof(layout_table[0]);", ""]
    return "\n".join(lines)


def differences(layouts):
    """Each way in which the table in the source differs from what these interpreters say."""
    with open(os.path.join(HERE, "layout_table.c"), encoding="utf-8") as file:
        blocks = re.findall(r"\{\s*\.minor = (\d+),(.*?)\n    \}", file.read(), re.S)
    known = {int(minor): {k: int(v) for k, v in re.findall(r"\.(\w+) = (-?\d+)", body)} for minor, body in blocks}
    for minor, version, layout in layouts:
        for field, value in layout.items():
            if known.get(minor, {}).get(field) != value:
                yield "%s: %s is %d, the table has %s" % (version, field, value, known.get(minor, {}).get(field))


def main():
    check, pythons = "--check" in sys.argv, [word for word in sys.argv[1:] if word != "--check"]
    if not pythons or sysconfig.get_platform() not in ("linux-x86_64", "linux-aarch64"):
        sys.exit(__doc__)
    layouts = sorted((layout_of(python) for python in pythons), key=lambda layout: layout[0])
    if check:
        wrong = list(differences(layouts))
        print("\n".join(wrong) or "the table agrees with %s" % ", ".join(version for _, version, _ in layouts))
        sys.exit(1 if wrong else 0)
    sys.stdout.write(table(layouts))


if __name__ == "__main__":
    main()
