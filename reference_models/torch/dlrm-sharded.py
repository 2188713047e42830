# SPDX-License-Identifier: Apache-2.0
"""dlrm-sharded: the dlrm of several ranks: tables placed by a planner, the networks data-parallel.

--budget says how much memory a rank has for tables; placement.py decides what is kept whole, cut by columns or by rows. In a
step each rank sends the ids of its samples to the ranks that hold their tables, gets the vectors back (two all-to-alls, and
one more for the gradients), and gradients of the networks are averaged (DistributedDataParallel). Inference goes the same way.
"""
import sys

import cli  # before torch: it sets the thread counts
import placement
import ranks

BUDGET_MARGIN = 1.25  # of an equal share, without --budget


class Exchange:
    """All-to-all of one rank, differentiable: the way back is the same with the counts exchanged."""

    def __init__(self):
        import torch
        from torch import distributed

        class Function(torch.autograd.Function):
            @staticmethod
            def forward(ctx, values, sent, received):
                ctx.counts = sent, received
                return Exchange.of(values, sent, received)

            @staticmethod
            def backward(ctx, gradient):
                sent, received = ctx.counts
                # Each rank's loss is the mean of its own samples: the mean of all ranks is what counts.
                return Exchange.of(gradient.contiguous(), received, sent) / distributed.get_world_size(), None, None

        self.differentiable = Function.apply

    @staticmethod
    def of(values, sent, received):
        from torch import distributed

        result = values.new_empty(sum(received))
        distributed.all_to_all_single(result, values, received, sent)
        return result


def tables_of(pieces, size, rank, make):
    """The embedding bags of a rank: {index of the piece: bag}. Values are those of the whole table."""
    import torch
    from torch import nn

    bags = {}
    for index, piece in enumerate(pieces):
        if piece.rank == rank:
            whole = make(piece.table)  # [rows, dim] of the unsharded model
            bag = nn.EmbeddingBag(piece.rows, piece.columns, mode="sum", sparse=True, dtype=whole.dtype)
            with torch.no_grad():
                bag.weight.copy_(whole[piece.row:piece.row + piece.rows, piece.column:piece.column + piece.columns])
            bags[index] = bag
    return bags


def make_work(args, rank):
    import torch
    from torch import distributed, nn
    from torch.nn import functional
    from torch.nn.parallel import DistributedDataParallel

    import common
    dlrm = __import__("dlrm")
    size, count = dlrm.SIZES[args.size], distributed.get_world_size()
    rows, dim = list(size["tables"]), size["dim"]
    if args.variant == "torchrec" and args.dtype != "float64":
        args.batch = size["batch"]

        class Planned(nn.Module):
            """The tables are a torchrec collection's once the variant is prepared."""

            def __init__(self):
                super().__init__()
                self.networks, self.bags, self.collection = common.prepare(args, dlrm.Dlrm(size)), nn.ModuleList(), None
                self.networks.bottom, self.networks.top = map(DistributedDataParallel, (self.networks.bottom, self.networks.top))

            def forward(self, dense, sparse):
                return self.networks.interact(dense, self.collection(sparse))

        work = dlrm.Work(args, rank, Planned)
        return work, work.model.collection.pieces()
    budget = args.budget or int(BUDGET_MARGIN * sum(rows) * dim * placement.BYTES_A_VALUE / count)
    try:
        pieces = placement.plan(rows, dim, count, budget)
    except placement.TooSmall as why:
        args.fail("argument --budget: %s" % why)

    class Sharded(nn.Module):
        def __init__(self):
            super().__init__()
            whole = common.prepare(args, dlrm.Dlrm(size))
            bags = tables_of(pieces, size, rank, lambda table: whole.tables[table].weight)
            self.bags = nn.ModuleDict({str(index): bag for index, bag in bags.items()}).to(args.torch_dtype).to(args.device)
            whole.tables = nn.ModuleList()
            if args.mode == "train":
                whole.bottom, whole.top = DistributedDataParallel(whole.bottom), DistributedDataParallel(whole.top)
            self.networks, self.exchange = whole, Exchange()

        def ids_out(self, sparse):
            """What goes to each rank: lengths of the bags, piece by piece, and the ids, in the same order."""
            lengths, ids = [[] for _ in range(count)], [[] for _ in range(count)]
            for piece in pieces:
                values, offsets = sparse[piece.table]
                ends = torch.cat([offsets[1:], offsets.new_tensor([values.numel()])])
                if piece.kind == "row":
                    inside = (values >= piece.row) & (values < piece.row + piece.rows)
                    before = functional.pad(inside.cumsum(0), (1, 0))
                    lengths[piece.rank].append(before[ends] - before[offsets])
                    values = values[inside] - piece.row
                else:
                    lengths[piece.rank].append(ends - offsets)
                ids[piece.rank].append(values)
            empty = sparse[0][0].new_empty(0)
            return [torch.cat(part or [empty]) for part in lengths], [torch.cat(part or [empty]) for part in ids]

        def look_up(self, sparse, batch):
            """Vectors of this rank's samples: one tensor [batch, columns] a piece."""
            mine = [index for index, piece in enumerate(pieces) if piece.rank == rank]
            lengths, ids = self.ids_out(sparse)
            sent = [part.numel() for part in lengths]
            got_lengths = Exchange.of(torch.cat(lengths), sent, [len(mine) * batch] * count).view(count, len(mine), batch)
            totals = [int(part) for part in got_lengths.sum(dim=(1, 2))]
            got_ids = Exchange.of(torch.cat(ids), [part.numel() for part in ids], totals)
            # The ids come rank by rank, in each piece by piece; a bag's table sees all ranks' samples at once.
            runs = got_lengths.sum(dim=2).reshape(-1).tolist()
            chunks, pooled = torch.split(got_ids, runs), []
            for k, index in enumerate(mine):
                values = torch.cat([chunks[source * len(mine) + k] for source in range(count)])
                each = got_lengths[:, k].reshape(-1)
                offsets = each.cumsum(0) - each
                pooled.append(self.bags[str(index)](values, offsets).view(count, -1))
            width = [pieces[index].columns * batch for index in range(len(pieces))]
            out = torch.cat(pooled, dim=1) if pooled else next(self.networks.parameters()).new_empty(count, 0)
            received = [sum(width[i] for i, piece in enumerate(pieces) if piece.rank == source) for source in range(count)]
            back = self.exchange.differentiable(out.reshape(-1), [out.shape[1]] * count, received)
            order = [i for source in range(count) for i, piece in enumerate(pieces) if piece.rank == source]
            parts = dict(zip(order, torch.split(back, [width[i] for i in order])))
            return [parts[i].view(batch, piece.columns) for i, piece in enumerate(pieces)]

        def forward(self, dense, sparse):
            vectors = self.look_up(sparse, dense.shape[0])
            tables = []
            for table in range(len(rows)):
                parts = [(piece, vector) for piece, vector in zip(pieces, vectors) if piece.table == table]
                if parts[0][0].kind == "row":
                    tables.append(torch.stack([vector for _, vector in parts]).sum(dim=0))
                else:
                    tables.append(torch.cat([vector for _, vector in parts], dim=1))
            return self.networks.interact(dense, tables)

    kinds = [piece.kind for piece in pieces]
    return dlrm.Work(args, rank, Sharded), {kind: kinds.count(kind) for kind in sorted(set(kinds))}


def make(args, rank):
    work, pieces = make_work(args, rank)
    args.extra = {"pieces": pieces}
    networks = work.model.networks
    return work, lambda: list(networks.bottom.parameters()) + list(networks.top.parameters())


def main():
    args = cli.arguments("dlrm-sharded", options=[
        ("--budget", dict(type=cli.size, default=0, metavar="BYTES",
                          help="memory of a rank for tables and their optimizer state, such as 40M; default: 1.25 of an equal share"))])
    if args.variant not in ("eager", "amp-bf16", "torchrec"):
        args.fail("argument --variant: the exchange of dlrm-sharded is not traced; eager, amp-bf16 or torchrec")
    if not ranks.started():
        ranks.launch(args, __file__)
    return ranks.run(args, lambda rank: make(args, rank))


if __name__ == "__main__":
    sys.exit(main())
