#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles one file of kernels/ by one NVRTC, in a process of its own: two versions of the library do not go into one.

    nvrtc.py libnvrtc.so kernels/x.cu OUT.cubin NAMES [OPTION...]

NAMES: a file with a line for each instance of a template that is wanted, as C++ says it. The compiler's log on stdout.
Exit 0: made; 1: the compiler rejects the source; 2: the library cannot be used."""
import ctypes
import glob
import os
import sys

# What NVRTC lacks of C and C++; kernels/nvrtc.h says what of it the kernels need.
EMPTY = ("errno.h", "limits.h", "math.h", "stdarg.h", "stddef.h", "stdint.h", "stdlib.h", "type_traits")


def strings(texts):
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))


def text_of(nvrtc, program, what):
    size = ctypes.c_size_t()
    getattr(nvrtc, "nvrtcGet%sSize" % what)(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, "nvrtcGet" + what)(program, buffer)
    return buffer.raw


def main():
    library, source, out, names_file, *options = sys.argv[1:]
    try:
        for builtins in glob.glob(os.path.join(os.path.dirname(library), "libnvrtc-builtins.so*")):
            ctypes.CDLL(builtins, ctypes.RTLD_GLOBAL)  # NVRTC asks for it by name alone
        nvrtc = ctypes.CDLL(library)
    except OSError as error:
        print(error)
        return 2
    with open(names_file, encoding="utf-8") as file:
        names = file.read().splitlines()
    with open(source, encoding="utf-8") as file:
        text = file.read()
    text = text.replace("static __global__", "       __global__")  # the driver is asked for them by name
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), source.encode(), len(EMPTY), strings([""] * len(EMPTY)), strings(EMPTY))
    for name in names:
        nvrtc.nvrtcAddNameExpression(program, name.encode())
    code = nvrtc.nvrtcCompileProgram(program, len(options), strings(options))
    print(text_of(nvrtc, program, "ProgramLog").rstrip(b"\0").decode(errors="replace"))
    if code:
        return 1
    with open(out, "wb") as file:
        file.write(text_of(nvrtc, program, "CUBIN"))
    return 0


sys.exit(main())
