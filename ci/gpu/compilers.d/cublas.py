#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cuBLASLt of another CUDA, as a side's own library: libcublasLt.so.* of PyPI's wheel of that version, whose kernels for other
architectures are zeros, which compress to nothing: a machine without network can be given it (12.6: 491 MB, of which 166 are kernels for
sm_90). The driver takes the kernels that fit the GPU best, and never asks for the others.
Usage: ci/gpu/compilers.d/cublas.py VERSION DIRECTORY [ARCHITECTURE]     12.6 build/gpu/cubins/12.6 [90]"""
import glob
import mmap
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

FATBIN, FATBIN_HEADER, PIECE_HEADER = 0xBA55ED50, 16, 32  # headers: their lengths, at least
ELF_OF_GPU = 2  # a code object; 1 is PTX, which is compiled where no code object fits


def fat_section(file):
    """Where .nv_fatbin begins and ends in a file of ELF64."""
    file.seek(0)
    head = file.read(64)
    if head[:5] != b"\x7fELF\x02":
        raise ValueError("no 64-bit ELF file")
    table, entry, count, names = struct.unpack_from("<Q", head, 40)[0], *struct.unpack_from("<HHH", head, 58)
    file.seek(table)
    sections = [struct.unpack("<IIQQQQIIQQ", file.read(entry)) for _ in range(count)]
    file.seek(sections[names][4])
    words = file.read(sections[names][5])
    for section in sections:
        if words[section[0]:].startswith(b".nv_fatbin\0"):
            return section[4], section[4] + section[5]
    raise ValueError("no section .nv_fatbin")


def entries(data, begin, end):
    """(kind, architecture, begin, end) of each piece of code between two places: a container's header of 16 bytes says how much follows,
    a piece's how long it is itself (4), its code (8) and for what (28)."""
    while begin + FATBIN_HEADER <= end:
        magic, _, header, size = struct.unpack_from("<IHHQ", data, begin)
        if magic != FATBIN:
            begin += 8  # containers begin at multiples of 8
            continue
        at, begin = begin + header, begin + header + size
        if header < FATBIN_HEADER or begin > end:
            raise ValueError("a container of code at byte %d that does not fit" % (at - header))
        while at < begin:
            kind, _, header, size = struct.unpack_from("<HHIQ", data, at)
            if header < PIECE_HEADER:
                raise ValueError("a piece of code at byte %d without a header" % at)
            yield kind, struct.unpack_from("<I", data, at + 28)[0], at + header, at + header + size
            at += header + size


def trim(path, architecture):
    """Writes zeros over all code but that of one architecture. Returns the bytes kept and those that went."""
    kept = gone = 0
    with open(path, "r+b") as file:
        section = fat_section(file)
        with mmap.mmap(file.fileno(), 0) as data:
            for kind, arch, begin, end in entries(data, *section):
                if kind == ELF_OF_GPU and arch == architecture:
                    kept += end - begin
                    continue
                gone += end - begin
                data[begin:end] = bytes(end - begin)
    if not kept:
        raise ValueError("no code for sm_%d" % architecture)
    return kept, gone


def main():
    if len(sys.argv) not in (3, 4) or not re.fullmatch(r"\d+\.\d+", sys.argv[1]):
        print(__doc__.splitlines()[-1], file=sys.stderr)
        return 2
    version, place = sys.argv[1:3]
    major = version.split(".")[0]
    platforms = [word for name in ("manylinux1", "manylinux2014", "manylinux_2_27") for word in ("--platform", name + "_x86_64")]
    wanted = "nvidia-cublas%s==%s.*" % ("-cu" + major if int(major) < 13 else "", version)
    with tempfile.TemporaryDirectory() as down:
        done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *platforms, "-d", down,
                               wanted], capture_output=True, text=True, check=False)
        wheels = glob.glob(os.path.join(down, "*.whl"))
        if done.returncode or not wheels:
            print("cublas.py: no wheel %s to be had: %s" % (wanted, done.stderr.strip()[-300:]), file=sys.stderr)
            return 4
        with zipfile.ZipFile(wheels[0]) as archive:
            member = next(name for name in archive.namelist() if re.search(r"/libcublasLt\.so\.\d+$", name))
            os.makedirs(place, exist_ok=True)
            path = os.path.join(place, os.path.basename(member))
            with archive.open(member) as source, open(path, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 22)
    try:
        kept, gone = trim(path, int((sys.argv[3:] or ["90"])[0]))
    except ValueError as error:
        print("cublas.py: %s: %s" % (path, error), file=sys.stderr)
        os.unlink(path)
        return 4
    print("%s: %.0f MB of code kept, %.0f MB gone" % (path, kept / 1e6, gone / 1e6))
    return 0


if __name__ == "__main__":
    sys.exit(main())
