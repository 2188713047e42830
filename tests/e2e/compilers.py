#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ci/gpu/compilers: the same compiler twice makes the same code of every kernel; one that has fewer registers is found, and the kernel
that spills is named; a source that a compiler rejects is told by kernel, file and line; what cannot be had, in words. NVRTC too, where
its wheels have been fetched. Needs nvcc."""
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = os.environ.get("UPGATE_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
# 96 values that all live until the last is known; BLOCKS of a multiprocessor: how many registers there are for them.
SOURCE = """
template <int COUNT> static __global__ void __launch_bounds__(256, BLOCKS) spread(float *values)
{
    float all[COUNT], sum = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        sum += all[i] = values[i * 256 + threadIdx.x];
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        values[i * 256 + threadIdx.x] = all[i] * sum;
}
static __global__ void small(float *values)
{
    values[threadIdx.x] += 1;
}
#ifndef __CUDACC_RTC__
void run(float *values)
{
    spread<96><<<1, 256>>>(values);
    small<<<1, 256>>>(values);
}
#endif
"""
wrong = []


def expect(condition, what, shown=""):
    if not condition:
        wrong.append(what)
        print("WRONG: %s\n%s" % (what, shown))


def compilers(place, *words, env=None):
    done = subprocess.run([sys.executable, os.path.join(ROOT, "ci/gpu/compilers"), "--out", place, "--arch", "sm_90a", *words], text=True,
                          env=dict(os.environ, **(env or {})), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


def run_fake(place, row):
    """--run of a pack whose program is a script: what it says is printed and kept, and its verdict is the command's."""
    fake = os.path.join(place, "fake")
    os.makedirs(fake)
    checked = {"suite": "k", "mode": "quick", "side": "12.4", "cases": 3, "failures": 0}
    with open(os.path.join(fake, "upgate_kernels"), "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\necho \"$*\" >&2\ncat <<'END'\n%s\nEND\nprintf '{cut off'\nexit $FAKE_EXIT\n" % "\n".join(
            json.dumps(line) for line in ({"device": "D", "driver": 1}, checked, row)))
    os.chmod(file.name, 0o755)
    with open(os.path.join(fake, "sides.json"), "w", encoding="utf-8") as file:
        json.dump({"program": "nvcc", "sides": {"nvcc": "13", "12.4": "12.4", "12.8": "12.8"}, "own": {"12.4": ["a", "b"], "12.8": ["b"]}}, file)
    with tarfile.open(os.path.join(place, "pack"), "w:gz") as archive:
        for name in os.listdir(fake):
            archive.add(os.path.join(fake, name), name)
    timings = os.path.join(place, "timings.jsonl")
    for status, wanted in (("0", 0), ("1", 1), ("2", 4)):
        code, told = compilers(place, "--run", os.path.join(place, "pack"), "--timings", timings, "--suites", "adam,hash", env={"FAKE_EXIT": status})
        expect(code == wanted, "exit %s of the program" % status, told)
    expect(re.search(r"sides 12.4=\S+/12.4 12.8=\S+/12.8 adam hash\n", told) and "k by 12.4: 3 cases right" in told and
           re.search(r"k +s +101.0 +1.100 \(1.100 to 1.100\) \* +not its own kernel\n", told), "the run's table", told)
    return timings


def main():
    if not os.access(NVCC, os.X_OK) or "sm_90" not in subprocess.run([NVCC, "--list-gpu-code"], capture_output=True, text=True, check=False).stdout:
        print("skipped: no nvcc that knows sm_90")
        return 77
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location("page", os.path.join(ROOT, "ci/gpu/compilers.d/page.py"))
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    with tempfile.TemporaryDirectory() as place:
        planted = os.path.join(place, "planted.cu")
        with open(planted, "w", encoding="utf-8") as file:
            file.write(SOURCE)

        code, told = compilers(place, "--only", "adam", "nvcc", "again:nvcc")
        expect(code == 0 and "2 kernels by again, 2 the same machine code" in told and "no kernel spills more" in told, "adam twice", told)
        expect(re.search(r"adam_vectors +(\d+/0/0/0/\d+) +\1 =", told), "adam_vectors has its figures", told)

        code, told = compilers(place, "--only", planted, "plain:nvcc,-DBLOCKS=1", "few:nvcc,-DBLOCKS=8")
        found = re.search(r"spread<96> of planted.cu, sm_90a: few spills (\d+) bytes, plain 0", told)
        expect(code == 1 and found and int(found.group(1)) >= 4 * 64, "a kernel with fewer registers spills", told)
        expect("small of planted.cu" not in told, "the kernel beside it does not", told)
        page_path = os.path.join(place, "page.md")
        with open(page_path, "w", encoding="utf-8") as file:
            file.write("# Head\n\nbefore\n\n" + page.BEGIN % "compiled" + "\nold\n" + page.END % "compiled" + "\n\nafter\n")
        code, told = compilers(place, "--only", planted, "--write", page_path, "plain:nvcc,-DBLOCKS=1", "few:nvcc,-DBLOCKS=8")
        with open(page_path, encoding="utf-8") as file:
            written = file.read()
        expect("before" in written and "after" in written and "old" not in written and "`spread<96>`" in written and "few spills" in written, "the page has the difference, and keeps what is around", written)

        code, told = compilers(place, "--only", planted, "plain:nvcc,-DBLOCKS=1", "broken:nvcc,-DBLOCKS=none")
        expect(code == 4 and re.search(r"broken \(nvcc \S+\) rejects \S*planted.cu:2 in spread for sm_90a: .*none", told), "a rejected source", told)
        code, told = compilers(place, "--only", "adam", "nvcc", place)
        expect(code == 4 and "no libnvrtc.so in " + place in told, "a directory without NVRTC", told)
        code, told = compilers(place, "--only", "adam", "nvcc", "12.3", env={"PIP_NO_INDEX": "1"})
        expect(code == 4 and "CUDA 12.3: no wheel nvidia-cuda-nvrtc-cu12==12.3.* to be had" in told, "no wheels", told)
        code, told = compilers(place, "--only", "none_such", "nvcc")
        expect(code == 4 and "no kernel's file 'none_such'" in told, "an unknown file", told)

        wheels = os.path.join(ROOT, "out/compilers/wheels")
        for version in sorted(os.listdir(wheels)) if os.path.isdir(wheels) else []:
            code, told = compilers(place, "--only", "hash", "nvcc", "other:" + os.path.join(wheels, version))
            expect(code == 0 and "3 kernels by other" in told and re.search(r"other +NVRTC %s" % re.escape(version), told), "NVRTC " + version, told)
            code, told = compilers(place, "--only", planted, "plain:nvcc,-DBLOCKS=1", "other:%s,-DBLOCKS=8" % os.path.join(wheels, version))
            expect(code == 1 and "other spills" in told, "NVRTC %s spills" % version, told)
            code, told = compilers(place, "--only", planted, "plain:nvcc,-DBLOCKS=1", "other:%s,-DBLOCKS=none" % os.path.join(wheels, version))
            expect(code == 4 and re.search(r"planted.cu:2 in spread for sm_90a: ", told), "NVRTC %s rejects" % version, told)
        if not os.path.isdir(wheels):
            print("NVRTC: left out, no wheels in out/compilers/wheels; ci/gpu/compilers fetches them")

        first, later = [100.0 + i % 3 for i in range(21)], [110.0 + 1.1 * (i % 3) for i in range(21)]
        row = {"kernel": "k", "shape": "s", "ns": 101000.0, "sides": {"program": first, "12.4": later, "12.8": later}, "replaced": ["a"]}
        expect(all(abs(value - 1.1) < 1e-9 for value in page.ratios(row, "12.4")), "a ratio of 1.1 in every pair", page.ratios(row, "12.4"))
        middle, low, high = page.interval([float(i) for i in range(21)])
        expect((middle, low, high) == (10, 5, 15), "the interval of 21 values", (middle, low, high))
        timings = run_fake(place, row)
        code, told = compilers(place, "--timings", timings, "--write", page_path)
        with open(page_path, encoding="utf-8") as file:
            written = file.read()
        expect("**1.100 (1.100 to 1.100)**" in written and "D, driver 1" in written and "few spills" in written, "timings on the page", written)
    return 1 if wrong else 0


sys.exit(main())
