#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The JAX twin of the transformer: a command of a plan that knows nothing of PyTorch. Its losses are those of the PyTorch workload,
its loss falls, float64 is float64. Exits 77 when no interpreter here has jax: ci/setup --jax makes one.
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import torch_models  # noqa: E402  the recorder, and which interpreters have torch

SOURCE = torch_models.SOURCE
PYTHON = os.environ.get("UPGATE_JAX_PYTHON", os.path.join(SOURCE, "envs", "jax", "bin", "python"))
failures = 0


def check(what, ok, detail=""):
    global failures
    print("%s %s%s" % ("ok  " if ok else "FAIL", what, "" if ok else ": %s" % (detail,)))
    failures += not ok


def run(python, program, words, directory):
    env = dict(os.environ, PYTHONPATH=directory, PYTHONDONTWRITEBYTECODE="1", JAX_PLATFORMS="cpu", RECORD_DIR=directory)
    done = subprocess.run([python, os.path.join(SOURCE, "reference_models", program)] + words, env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=300)
    check("%s ends well" % program, done.returncode == 0, done.stderr[-1500:])
    return json.loads(done.stdout) if done.returncode == 0 else None


def main():
    probe = subprocess.run([PYTHON, "-c", "import jax"], stderr=subprocess.DEVNULL) if os.access(PYTHON, os.X_OK) else None
    if probe is None or probe.returncode:
        print("skipped: no '%s' with jax; ci/setup --jax makes it" % PYTHON)
        return 77
    with tempfile.TemporaryDirectory() as directory:
        recorder = torch_models.RECORDER.replace("output.detach().cpu().numpy()", "output")
        with open(os.path.join(directory, "upgate.py"), "w", encoding="utf-8") as file:
            file.write(recorder)
        words = ["--steps", "12", "--seed", "3", "--size", "small"]
        single = run(PYTHON, "jax/transformer.py", words, directory)
        double = run(PYTHON, "jax/transformer.py", words + ["--dtype", "float64"], directory)
        if single and double:
            pythons = torch_models.interpreters(directory)
            twin = run(pythons[0][0], "torch/transformer.py", words + ["--device", "cpu"], directory) if pythons else None
            if twin:
                check("the first loss is that of the PyTorch twin", abs(single["loss_first"] - twin["loss_first"]) < 5e-6, (single, twin))
                check("12 steps of AdamW come to the same loss", abs(single["loss_last"] - twin["loss_last"]) < 2e-5, (single, twin))
            check("the loss falls", single["loss_last"] < 0.95 * single["loss_first"], single)
            check("float64 is close to float32, and not the same", 0 < abs(single["loss_last"] - double["loss_last"]) < 1e-4, (single, double))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
