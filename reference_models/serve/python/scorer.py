# SPDX-License-Identifier: Apache-2.0
"""The inference of the torch reference models for requests: numbers in, one score each. Reads model files; runs on torch 1.13
and on 2.x. The same request format as the native models, so that either can stand behind the same load."""
import argparse
import contextlib
import json
import os
import re
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
ROOM = os.path.dirname(os.path.dirname(HERE))  # reference_models, in the source, in a build, installed
MODEL_FILE_MAX = 64 << 10


def _find_upgate():
    """`import upgate` must work: the built extension, or a stand-in that does what it does without a harness: nothing."""
    for path in (os.path.join(os.path.dirname(ROOM), "python"), os.path.join(os.environ.get("UPGATE_BUILD", ""), "python")):
        if os.path.isdir(os.path.join(path, "upgate")):
            sys.path.append(path)
    try:
        import upgate
        found = hasattr(upgate, "request_done")  # a folder without the extension is a package, too
    except ImportError:
        found = False
    if not found:
        module = types.ModuleType("upgate")
        module.step = lambda samples=None: contextlib.nullcontext()
        module.request_done = lambda arrived_ns, status, wrong=False: None
        sys.modules["upgate"] = module


sys.path.insert(0, os.path.join(ROOM, "torch"))
_find_upgate()

import common  # noqa: E402
import dlrm  # noqa: E402
import plants  # noqa: E402
import torch  # noqa: E402
import transformer  # noqa: E402
import upgate  # noqa: E402

WARM_BATCHES = 20


class Refused(ValueError):
    """The model does not take these numbers."""


class _Dlrm:
    def __init__(self, args):
        size = dlrm.SIZES[args.size]
        self._bags = list(size["tables"].items())  # rows, ids of a request
        self.least, self.most = dlrm.DENSE_FEATURES + 1, dlrm.DENSE_FEATURES + sum(bag for _, bag in self._bags)
        self.model = common.prepare(args, dlrm.Dlrm(size))
        self._args = args

    def check(self, values):
        for i, value in enumerate(values):
            if i < dlrm.DENSE_FEATURES:
                if not abs(value) <= 1e6:
                    raise Refused("features[%d] is %g; the first 13 are numbers from -1e6 to 1e6" % (i, value))
            elif not 0 <= value <= 2**53:
                raise Refused("features[%d] is %g; ids are whole numbers from 0 to 2^53" % (i, value))

    def __call__(self, batch):
        """Slot i of the bags, table by table, gets id i, and begins again where fewer ids have come."""
        to = self._args.device
        dense = torch.tensor([values[:dlrm.DENSE_FEATURES] for values in batch], dtype=self._args.torch_dtype).to(to)
        sparse, slot = [], 0
        for rows, bag in self._bags:
            ids = []
            for values in batch:
                count = len(values) - dlrm.DENSE_FEATURES
                ids += [int(values[dlrm.DENSE_FEATURES + (slot + i) % count]) % rows for i in range(bag)]
            slot += bag
            sparse.append((torch.tensor(ids).to(to), torch.arange(0, len(ids), bag).to(to)))
        return torch.sigmoid(self.model(dense, sparse)).tolist()


class _Transformer:
    def __init__(self, args):
        size = transformer.SIZES[args.size]
        self.least, self.most = 2, size["context"] + 1
        self.model = common.prepare(args, transformer.Transformer(size, transformer.HAS_SDPA))
        self._args = args

    def check(self, values):
        for i, value in enumerate(values):
            if not 0 <= value <= 255:
                raise Refused("features[%d] is %g; a byte is a number from 0 to 255" % (i, value))

    def __call__(self, batch):
        """Log-probability of the last byte after the others. Attention is causal: what fills a row changes nothing."""
        length = max(len(values) for values in batch) - 1
        tokens = torch.tensor([[int(v) for v in values[:-1]] + [0] * (length + 1 - len(values)) for values in batch])
        logits = self.model(tokens.to(self._args.device))
        last = logits[torch.arange(len(batch)), torch.tensor([len(values) - 2 for values in batch])]
        chosen = torch.tensor([int(values[-1]) for values in batch]).to(last.device)
        return torch.log_softmax(last.double(), 1).gather(1, chosen[:, None])[:, 0].tolist()


class Scorer:
    """One model, warm. Built in any thread; called by one at a time."""

    def __init__(self, choice, args):
        device = args.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cuda" and not torch.cuda.is_available():
            raise Refused("--device: this torch (%s) sees no CUDA device" % torch.__version__)
        torch.set_num_threads(args.threads)
        options = argparse.Namespace(mode="infer", size=choice["size"], seed=choice["seed"], device=device,
                                     torch_dtype=torch.float32, plant=plants.Plants())
        self.name, self.kind = choice["name"], choice["model"]
        self._model = {"dlrm": _Dlrm, "transformer": _Transformer}[choice["model"]](options)
        self.least, self.most = self._model.least, self._model.most
        zeros = [[0.0] * self.most] * args.max_batch
        with torch.inference_mode():
            for _ in range(WARM_BATCHES):
                self._model(zeros)

    def check(self, values):
        """Refused says why the model does not take these numbers."""
        if not self.least <= len(values) <= self.most:
            raise Refused("'features' has %d numbers; the model takes %d to %d" % (len(values), self.least, self.most))
        self._model.check(values)

    def __call__(self, batch):
        """(score, name of the model), or Refused, for each list of numbers. A batch is a step of the step protocol."""
        results, taken = [None] * len(batch), []
        for i, values in enumerate(batch):
            try:
                self.check(values)
                taken.append(i)
            except Refused as problem:
                results[i] = problem
        if taken:
            with upgate.step(samples=len(taken)), torch.inference_mode():
                scores = self._model([batch[i] for i in taken])
            for i, score in zip(taken, scores):
                results[i] = (score, self.name)
        return results


def choice_of(model, size, seed, name):
    """What is served. Refused names the word that is wrong."""
    if model not in ("dlrm", "transformer"):
        raise Refused("model '%s' is unknown; known: dlrm, transformer" % model)
    if size not in ("small", "demo", "large"):
        raise Refused("size '%s' is unknown; known: small, demo, large" % size)
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise Refused("the seed is not a whole number from 0 on")
    name = "%s-%s-%d" % (model, size, seed) if name is None else name
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_.-]{1,63}", name):
        raise Refused("the name of a model has 1 to 63 letters, digits, '-', '_' and '.'")
    return {"model": model, "size": size, "seed": seed, "name": name}


def choice_in_file(models, path):
    """A model file: JSON {"model", "size", "seed", "name"}; all but "model" may be left out. Stays below `models`."""
    if path.startswith("/") or ".." in path.split("/"):
        raise Refused("'%s' leads out of the folder of models" % path)
    full = os.path.join(models, path)
    if not os.path.isfile(full) or os.path.islink(full) or os.path.getsize(full) >= MODEL_FILE_MAX:
        raise Refused("'%s' is not a readable file below %d bytes" % (path, MODEL_FILE_MAX))
    try:
        with open(full, encoding="utf-8") as file:
            words = json.load(file)
    except (OSError, ValueError, RecursionError) as problem:
        raise Refused("%s: %s" % (path, problem)) from None
    if not isinstance(words, dict) or "model" not in words or set(words) - {"model", "size", "seed", "name"}:
        raise Refused("%s: a model file has model, size, seed and name" % path)
    return choice_of(words["model"], words.get("size", "small"), words.get("seed", 1), words.get("name"))
