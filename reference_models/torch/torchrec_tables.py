# SPDX-License-Identifier: Apache-2.0
"""The variant torchrec: the tables of the dlrm as recommender teams run them, an EmbeddingBagCollection of torchrec.

All tables are looked up by one kernel of fbgemm: in training that of FusedEmbeddingBagCollection, whose backward pass has the optimizer inside, so
that tables have no gradients; in inference that of torchrec.quant, with weights left in float32. What is computed is the eager model's but for
the order of sums: the same start values, sums of bags, Adagrad of each element. The networks stay torch's.
torchrec and fbgemm_gpu are imported by lack() and fuse(), and by nothing else.
"""
import contextlib
import importlib.util
import logging
import warnings
from importlib import metadata

import torch
from torch import nn

# module -> distributions that have it
LIBRARIES = {"torchrec": ("torchrec",), "fbgemm_gpu": ("fbgemm-gpu-cpu", "fbgemm-gpu")}
FIRST_TORCH = (2, 5)  # that of both libraries' 1.0; each minor version of torch has had one of theirs since


@contextlib.contextmanager
def _quiet():
    """Deprecations, and what fbgemm logs of libraries for other devices."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _import():
    with _quiet():
        import torchrec.modules.fused_embedding_modules
        import torchrec.quant.embedding_modules
    return torchrec


def _installed(names):
    """'NAME VERSION' of the first distribution that is there, or ''."""
    for name in names:
        try:
            return "%s %s" % (name, metadata.version(name))
        except metadata.PackageNotFoundError:
            pass
    return ""


def _fits(installed, wanted):
    """Releases are told by their version; nightlies, whose version is a date, and builds without metadata are believed."""
    release = installed.split(" ")[-1]
    return release.split(".")[0] not in ("0", "1") or release.split(".")[:2] == wanted.split(".")


def lack(args, version):
    """'' or why the variant is not run. version: of torch, (major, minor)."""
    name = "torch %d.%d" % version
    if args.name != "dlrm":
        return "torchrec is a path of dlrm, which has embedding tables on one device"
    if args.device != "cpu":
        return "torchrec runs by fbgemm's kernels for the CPU here: --device cpu"
    if version < FIRST_TORCH:
        return "%s has no torchrec 1.x: it begins with torch %d.%d" % ((name,) + FIRST_TORCH)
    wanted = "1.%d" % (version[1] - FIRST_TORCH[1]) if version[0] == 2 else ""
    fix = "install torchrec==%s.* and fbgemm-gpu-cpu==%s.*" % (wanted, wanted) if wanted else "install torchrec and fbgemm-gpu-cpu of its release"
    missing = [module for module in LIBRARIES if importlib.util.find_spec(module) is None]
    if missing:
        return "%s is without %s here; %s" % (name, " and ".join(missing), fix)
    installed = [_installed(names) for names in LIBRARIES.values()]
    others = [one for one in installed if wanted and not _fits(one, wanted)]
    if others:
        return "%s does not go with %s; %s" % (name, " and ".join(others), fix)
    try:
        _import()
    except Exception as error:  # a library of C++ raises what it likes
        why = " ".join(str(error).split()) or type(error).__name__
        return "%s: torchrec cannot be imported: %s; %s, and what they require" % (name, why, fix)
    return ""


class Collection(nn.Module):
    """All tables of a dlrm. Called with what features() makes, or with (ids, offsets) of each table."""

    def __init__(self, model):
        super().__init__()
        torchrec, cpu = _import(), torch.device("cpu")
        tables = {str(number): table.weight.detach() for number, table in enumerate(model.tables)}
        configs = [torchrec.EmbeddingBagConfig(name=name, feature_names=[name], num_embeddings=weight.shape[0], embedding_dim=weight.shape[1],
                                               pooling=torchrec.PoolingType.SUM) for name, weight in tables.items()]
        self._keys, self._keyed = list(tables), torchrec.KeyedJaggedTensor
        if model.training:
            self.bags = torchrec.modules.fused_embedding_modules.FusedEmbeddingBagCollection(configs, torch.optim.Adagrad, dict(model.ADAGRAD),
                                                                                             device=cpu)
            for name, weight in tables.items():
                self.bags.embedding_bags[name].weight.detach().copy_(weight)
        else:  # the kernel of training is not there in inference mode; this one takes the bytes of a row and, of quantised ones, their scale
            self.bags = torchrec.quant.embedding_modules.EmbeddingBagCollection(
                configs, False, cpu, table_name_to_quantized_weights={name: (weight.view(torch.uint8), None) for name, weight in tables.items()})

    def features(self, sparse):
        """As the loader of such a team hands a batch over: the ids of all tables in one tensor, and the lengths of their bags."""
        ends = [torch.cat([offsets[1:], offsets.new_tensor([ids.numel()])]) for ids, offsets in sparse]
        lengths = torch.cat([end - offsets for end, (_, offsets) in zip(ends, sparse)])
        return self._keyed(keys=self._keys, values=torch.cat([ids for ids, _ in sparse]), lengths=lengths)

    def forward(self, features):
        """One vector [batch, dim] a table."""
        if not isinstance(features, self._keyed):
            features = self.features(features)
        vectors = self.bags(features)
        return list(torch.split(vectors.values(), vectors.length_per_key(), dim=1))


def fuse(model):
    """Moves the tables of a dlrm into a collection, which has their optimizer too. Returns the model."""
    with _quiet():
        model.collection = Collection(model).train(model.training)
    model.tables = nn.ModuleList()
    return model
