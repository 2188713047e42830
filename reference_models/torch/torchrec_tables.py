# SPDX-License-Identifier: Apache-2.0
"""The variant torchrec: the tables of the dlrm as recommender teams run them, an EmbeddingBagCollection of torchrec.

All tables are looked up by one kernel of fbgemm: in training that of FusedEmbeddingBagCollection, whose backward pass has the optimizer inside, so
that tables have no gradients; in inference that of torchrec.quant, with weights left in float32. What is computed is the eager model's but for
the order of sums: the same start values, sums of bags, Adagrad of each element. The networks stay torch's. Tables of several ranks are placed by
torchrec's planner and exchanged by its DistributedModelParallel.
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
MODELS = ("dlrm", "dlrm-sharded")
KINDS = {"table_wise": "table", "column_wise": "column"}  # of sharding, and what dlrm-sharded calls a piece
COLUMNS_LEAST = 4  # of a piece, as placement.py has it
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
        import torchrec.distributed.planner
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
    if args.name not in MODELS:
        return "torchrec is a path of %s" % " and ".join(MODELS)
    if args.name == "dlrm-sharded" and args.mode != "train":
        return "torchrec of dlrm-sharded is of training: its kernel for the CPU is not there in inference mode"
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


def _trained(args, model, torchrec, configs, weights):
    fused = torchrec.modules.fused_embedding_modules
    bags = fused.FusedEmbeddingBagCollection(configs, torch.optim.Adagrad, dict(model.ADAGRAD), device=torch.device("cpu"))
    for name, weight in weights.items():
        bags.embedding_bags[name].weight.detach().copy_(weight)
    return bags


def _served(args, model, torchrec, configs, weights):
    """The kernel of training is not there in inference mode. This one takes the bytes of rows and, where they are quantised, their scale."""
    return torchrec.quant.embedding_modules.EmbeddingBagCollection(
        configs, False, torch.device("cpu"),
        table_name_to_quantized_weights={name: (weight.view(torch.uint8), None) for name, weight in weights.items()})


def _sharded(args, model, torchrec, configs, weights):
    """Whole or cut by columns: row-wise sharding is not there on a CPU, and of a table on all ranks the optimizer is not inside."""
    from torch import distributed
    from torchrec.distributed import planner
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
    from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

    whole, sharders = torchrec.EmbeddingBagCollection(configs, device=torch.device("meta")), [EmbeddingBagCollectionSharder()]
    apply_optimizer_in_backward(torch.optim.Adagrad, whole.parameters(), dict(model.ADAGRAD))
    limits = {"ddr_cap": args.budget} if args.budget else {}
    topology = planner.Topology(world_size=args.ranks, local_world_size=args.ranks, compute_device="cpu", **limits)
    kinds = {name: planner.ParameterConstraints(sharding_types=list(KINDS), min_partition=COLUMNS_LEAST) for name in weights}
    plans = planner.EmbeddingShardingPlanner(topology=topology, batch_size=args.batch, constraints=kinds,
                                             storage_reservation=FixedPercentageStorageReservation(0.0))
    try:
        plan = plans.collective_plan(whole, sharders, distributed.group.WORLD)
    except planner.types.PlannerError as why:
        args.fail("argument --budget: torchrec's planner: %s" % str(why).strip().split("\n")[0].rstrip(". "))
    bags = torchrec.distributed.DistributedModelParallel(whole, device=torch.device("cpu"), plan=plan, sharders=sharders,
                                                         init_data_parallel=False, init_parameters=False)
    for name, value in bags.state_dict().items():
        for shard in value.local_shards():
            (row, column), (rows, columns) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
            shard.tensor.detach().copy_(weights[name.split(".")[-2]][row:row + rows, column:column + columns])
    return bags


class Collection(nn.Module):
    """All tables of a dlrm. Called with what features() makes, or with (ids, offsets) of each table."""

    def __init__(self, args, model, make):
        super().__init__()
        torchrec = _import()
        weights = {str(number): table.weight.detach() for number, table in enumerate(model.tables)}
        configs = [torchrec.EmbeddingBagConfig(name=name, feature_names=[name], num_embeddings=weight.shape[0], embedding_dim=weight.shape[1],
                                               pooling=torchrec.PoolingType.SUM) for name, weight in weights.items()]
        self._keys, self._keyed = list(weights), torchrec.KeyedJaggedTensor
        self.bags = make(args, model, torchrec, configs, weights)

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
        if hasattr(vectors, "wait"):  # from other ranks
            vectors = vectors.wait()
        vectors = vectors.to_dict()
        return [vectors[key] for key in self._keys]

    def pieces(self):
        """How many shards are whole tables and how many are columns of one, as dlrm-sharded tells it."""
        pieces = {}
        for parameters in self.bags.plan.plan.values():
            for sharding in parameters.values():
                kind = KINDS[sharding.sharding_type]
                pieces[kind] = pieces.get(kind, 0) + len(sharding.sharding_spec.shards)
        return dict(sorted(pieces.items()))


def fuse(args, model):
    """Moves the tables of a dlrm, or of the networks of dlrm-sharded, into a collection, which has their optimizer too. Returns the model."""
    owner = getattr(model, "networks", model)
    make = _sharded if args.name == "dlrm-sharded" else _trained if args.mode == "train" else _served
    with _quiet():
        model.collection = Collection(args, owner, make).train(model.training)
    owner.tables = nn.ModuleList()
    return model
