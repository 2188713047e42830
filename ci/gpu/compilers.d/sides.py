# SPDX-License-Identifier: Apache-2.0
"""The compilers that ci/gpu/compilers compares, and what each makes of a file of kernels/: cached by compiler, architecture, options
and source."""
import glob
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
NOP = 0x918  # the low 12 bits of an instruction of 128 bits that only fills up
WHEELS = ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-cccl")


class Trouble(Exception):
    """Cannot go on; the text is for a person."""


class Rejected(Trouble):
    """A compiler does not take a source."""


class NotFor(Trouble):
    """A source has instructions that the architecture lacks."""


def digest(*parts):
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part if isinstance(part, bytes) else str(part).encode())
        whole.update(b"\0")
    return whole.hexdigest()


def read(path):
    with open(path, "rb") as file:
        return file.read()


def fetch(version, out):
    """The directory of the wheels of CUDA's `version` (12.4, say), fetched from PyPI when it is not there."""
    place = os.path.join(out, "wheels", version)
    if os.path.isdir(place):
        return place
    suffix = "-cu%s" % version.split(".")[0] if int(version.split(".")[0]) < 13 else ""
    platforms = [word for name in ("manylinux2014", "manylinux_2_17", "manylinux_2_27") for word in ("--platform", name + "_x86_64")]
    with tempfile.TemporaryDirectory() as down:
        for name in WHEELS:
            wanted = "%s%s==%s.*" % (name, suffix, version)
            print("ci/gpu/compilers: fetching %s" % wanted, file=sys.stderr, flush=True)
            done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *platforms, "-d",
                                   down, wanted], capture_output=True, text=True, check=False)
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR") or "No module" in line] or [done.stderr.strip()[-300:]]
                raise Trouble("CUDA %s: no wheel %s to be had: %s" % (version, wanted, lines[-1]))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with tempfile.TemporaryDirectory(dir=os.path.dirname(place)) as made:
            for wheel in glob.glob(os.path.join(down, "*.whl")):
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(made, [name for name in archive.namelist() if "/include/" in name or
                                              re.search(r"/libnvrtc(-builtins)?\.so\.[0-9.]+$", name)])
            os.chmod(made, 0o755)
            shutil.copytree(made, place)
    return place


class Side:
    """`nvcc` (the installed one), `nvcc=PATH`, a version of CUDA (NVRTC of PyPI's wheels) or the directory of a toolkit that has
    NVRTC; further options of the compiler after commas; NAME: before it all gives it another name."""

    def __init__(self, text, out):
        named = re.fullmatch(r"([\w.+-]+):(.*)", text)
        self.name, (self.what, *self.options) = (named.group(1) if named else text), (named.group(2) if named else text).split(",")
        self.out, self.nvcc, self.library = out, None, None
        self.includes = []
        if self.what == "nvcc" or self.what.startswith("nvcc="):
            self.nvcc = self.what[5:] or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
            try:
                told = subprocess.run([self.nvcc, "--version"], capture_output=True, check=True).stdout
            except (OSError, subprocess.CalledProcessError) as error:
                raise Trouble("%s: no nvcc: %s" % (text, error)) from None
            self.version = "nvcc " + re.search(rb"V([0-9.]+)", told).group(1).decode()
            self.identity = digest(told)
        else:
            place = fetch(self.what, out) if re.fullmatch(r"\d+\.\d+", self.what) else self.what
            found = [path for path in sorted(glob.glob(os.path.join(place, "**", "libnvrtc.so.*"), recursive=True)) if ".alt." not in path]
            headers = sorted(glob.glob(os.path.join(place, "**", "cuda_fp16.h"), recursive=True))
            if not found or not headers:
                raise Trouble("%s: no %s in %s" % (text, "libnvrtc.so" if not found else "cuda_fp16.h", place))
            self.library = found[0]
            targets = sorted(glob.glob(os.path.join(place, "**", "nv", "target"), recursive=True))
            self.includes = [os.path.dirname(headers[0])] + [os.path.dirname(os.path.dirname(path)) for path in targets[:1]]
            content = read(self.library)
            told = re.search(rb"cuda_?(\d+\.\d+)\.r|Cuda compilation tools, release (\d+\.\d+), V([0-9.]+)", content)
            self.version = "NVRTC " + next((part.decode() for part in reversed(told.groups()) if part), self.what) if told else "NVRTC " + self.what
            self.identity = digest(content)
        if not named and self.what == "nvcc":
            self.name = "nvcc-" + ".".join(self.version.split()[1].split(".")[:2])


def headers():
    """The text of everything that a kernel's file may include of this tree."""
    return b"".join(read(path) for path in sorted(glob.glob(os.path.join(ROOT, "kernels", "*.h")) + glob.glob(os.path.join(ROOT, "kernels", "*.cuh"))))


def enclosing(source, line):
    """The function in which a line lies: the last one that began before it."""
    name = ""
    with open(source, encoding="utf-8") as file:
        text = file.read().splitlines()[:line]
    for at, words in enumerate(text):
        if "__global__" in words or "__device__" in words:
            found = re.search(r"(\w+)\(", re.sub(r"__\w+__(\([^()]*\))?", "", " ".join(text[at:at + 3])))
            name = found.group(1) if found else name
    return name


def rejection(side, source, arch, log):
    for words in log.splitlines():
        found = re.match(r"(\S+?)\((\d+)\): (?:catastrophic )?error: (.*)", words)
        if found:
            path, line, why = found.group(1), int(found.group(2)), found.group(3)
            place = path if os.path.isabs(path) else os.path.join(ROOT, path)
            inside = enclosing(place, line) if os.path.exists(place) else ""
            return Rejected("%s (%s) rejects %s:%d%s for %s: %s" % (side.name, side.version, os.path.relpath(place, ROOT), line,
                                                                 " in %s" % inside if inside else "", arch, why))
    words = next((line for line in log.splitlines() if "error" in line or "fatal" in line), log.strip().splitlines()[-1] if log.strip() else "")
    lacks = re.search(r"error\s*: (.* (?:requires|not supported on) \.target .*)", words)
    if lacks:
        return NotFor("%s: left out: %s: %s" % (arch, os.path.basename(source), lacks.group(1)))
    return Rejected("%s (%s) rejects %s for %s: %s" % (side.name, side.version, os.path.relpath(source, ROOT), arch, words))


def sections(cubin):
    """Name and content of each section of an ELF file of 64 bits."""
    at, = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3a)
    heads = [struct.unpack_from("<IIQQQQ", cubin, at + i * size) for i in range(count)]
    strings = heads[names][4]
    for name, kind, _, _, offset, length in heads:
        begin = strings + name
        yield cubin[begin:cubin.index(b"\0", begin)].decode(), b"" if kind == 8 else cubin[offset:offset + length]


def measure(cubin, log):
    """{mangled name: what the compiler made of it}, by the log of ptxas -v and the code."""
    kernels, now = {}, None
    for line in log.splitlines():
        found = re.search(r"Compiling entry function '(\S+)' for", line)
        if found:
            now = kernels.setdefault(found.group(1), {"registers": 0, "spill": 0, "local": 0, "shared": 0, "instructions": 0, "warnings": []})
        found = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if found and now is not None:
            now["local"], now["spill"] = int(found.group(1)), int(found.group(2)) + int(found.group(3))
        found = re.search(r"Used (\d+) registers", line)
        if found and now is not None:
            now["registers"] = int(found.group(1))
            shared = re.search(r"(\d+) bytes smem", line)
            now["shared"], now = int(shared.group(1)) if shared else 0, None
    for line in log.splitlines():
        found = re.search(r"Potential Performance Loss: (.*?)(?: due to (.*?))? in (?:the )?function '?(\S+?)'?$", line)
        if found and found.group(3) in kernels:
            kernels[found.group(3)]["warnings"].append(found.group(1) + (": " + found.group(2) if found.group(2) else ""))
    for name, code in sections(cubin):
        if name.startswith(".text.") and name[6:] in kernels:
            count = len(code) // 16
            while count and struct.unpack_from("<Q", code, (count - 1) * 16)[0] & 0xfff == NOP:
                count -= 1
            kernels[name[6:]].update(instructions=count, code=digest(code)[:16])
    return kernels


def demangled(names):
    try:
        shown = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        raise Trouble("no c++filt: install binutils") from None
    return dict(zip(names, shown.splitlines()))


def expression(shown):
    """`void f<A, 1>(int)` as C++ names the function: f<A, 1>."""
    depth = 0
    for at, char in enumerate(shown):
        depth += (char == "<") - (char == ">")
        if char == "(" and depth == 0:
            shown = shown[:at]
            break
    return re.sub(r"^void ", "", shown)


def compile_file(side, source, arch, names):
    """The cubin's path and what is in it. names: the instances of templates that NVRTC is to make; nvcc sees them itself."""
    options = side.options + (["-gencode=arch=compute_%s,code=%s" % (arch[3:], arch)] if side.nvcc else ["-arch=" + arch])
    key = digest(side.identity, *options, arch, read(source), headers(), *([] if side.nvcc else names), read(os.path.join(HERE, "nvrtc.py")))
    place = os.path.join(side.out, "cache", key[:32])
    cubin, log, lacks = (os.path.join(place, name) for name in ("cubin", "log", "lacks"))
    if os.path.exists(lacks):
        raise NotFor(read(lacks).decode())
    if not os.path.exists(log):
        os.makedirs(place, exist_ok=True)
        made = "%s.%d" % (cubin, os.getpid())
        if side.nvcc:
            command = [side.nvcc, "-O3", "-std=c++17", "-I" + ROOT, "-cubin", "-Xptxas", "-v", *options, "-o", made, source]
        else:
            with open(os.path.join(place, "names"), "w", encoding="utf-8") as file:
                file.write("\n".join(names))
            command = [sys.executable, os.path.join(HERE, "nvrtc.py"), side.library, os.path.relpath(source, ROOT), made,
                       os.path.join(place, "names"), "-std=c++17", "-default-device", "--pre-include=kernels/nvrtc.h", "--diag-suppress=177",
                       "--ptxas-options=-v", "-I.", *("-I" + path for path in side.includes), *options]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode == 2 and side.library:
            raise Trouble("%s: %s" % (side.name, done.stdout.strip()))
        if done.returncode:
            error = rejection(side, source, arch, done.stdout)
            if isinstance(error, NotFor):
                with open(lacks, "w", encoding="utf-8") as file:
                    file.write(str(error))
            raise error
        os.rename(made, cubin)
        with open(log + ".new", "w", encoding="utf-8") as file:
            file.write(done.stdout)
        os.rename(log + ".new", log)
    with open(log, encoding="utf-8") as file:
        return cubin, measure(read(cubin), file.read())


def kernel_files():
    """The files with kernels of the suite: not those that only check and time."""
    files = [path for path in sorted(glob.glob(os.path.join(ROOT, "kernels", "*.cu"))) if not path.endswith("bench.cu")]
    return [path for path in files if b"__global__ void" in read(path)]


def names_of(base, source, arch):
    """{mangled: expression} of this tree's kernels in a file, by the base's nvcc; those of CUB and Thrust are the toolkit's."""
    found = demangled(list(compile_file(base, source, arch, [])[1]))
    return {name: expression(shown) for name, shown in found.items() if not re.search(r"\b(cub|thrust)::", shown)}


def dump(path, what):
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(what, file)
    os.rename(path + ".new", path)
