# SPDX-License-Identifier: Apache-2.0
"""What the PyTorch reference workloads share: seeded values, the model on its device, the loops.

Runs unchanged on torch 1.13 and on 2.x, CPU or CUDA. Writes steps, losses, phases and outputs
through `upgate`, and one JSON line to stdout. Not a benchmark by itself: the harness measures, the
numbers in the JSON line are for a person.
"""
import json
import math
import os
import sys
import time

START_NS = time.monotonic_ns()

import cli  # noqa: E402,F401  before torch: it sets the thread counts
import regress  # noqa: E402
import torch  # noqa: E402
import upgate  # noqa: E402
import variants  # noqa: E402
from changes import Changes  # noqa: E402
from draw import Draw, mix_all  # noqa: E402,F401  models take them from here

IMPORT_NS = time.monotonic_ns() - START_NS
RECORDED_OUTPUTS = 8  # steps or requests whose output goes to the parity gate


def initialise(model, seed, dtype):
    """Matrices uniform in +-1/sqrt(fan in), drawn in fp64 and rounded once; biases 0, gains 1."""
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.dim() < 2:
                value.fill_(1.0 if name.endswith("weight") else 0.0)
                continue
            bound = value[0].numel() ** -0.5
            drawn = Draw(seed, "weight/" + name).uniform(value.numel()) * (2 * bound) - bound
            value.copy_(torch.from_numpy(drawn).to(dtype).view(value.shape))


# ---- the model and the loops ---------------------------------------------------------------------

def open_device(args):
    """Fills args.device and args.torch_dtype, sets the threads of torch."""
    if args.device == "cuda" and not torch.cuda.is_available():
        args.fail("argument --device: this torch (%s) sees no CUDA device" % torch.__version__)
    if args.device == "auto":
        args.device = "cuda" if torch.cuda.is_available() else "cpu"
    args.extra = {}  # of the result line
    args.torch_dtype = getattr(torch, args.dtype)
    torch.set_num_threads(args.threads)
    regress.switch(args.plant)


def prepare(args, model):
    """The model on its device with the values of the seed, in the mode asked for."""
    model.to(args.torch_dtype)
    initialise(model, args.seed, args.torch_dtype)
    if args.plant.lowp:  # 8 bits of mantissa instead of 24, without a word
        with torch.no_grad():
            for value in model.parameters():
                value.copy_(value.to(torch.bfloat16))
    model.to(args.device)
    return model.train(args.mode == "train")


def variant(args, model, examples, dynamic=None, lacks=None):
    """What is called in place of the model, as --variant says; see variants.prepare()."""
    return variants.prepare(args, model, examples, dynamic, lacks)


def pins(args):
    """Are the batches in memory that a GPU can fetch from by itself?"""
    return args.device == "cuda" and "unpin" not in args.plant.flags


def to_device(args, tensors):
    return [value.to(args.device, non_blocking=True) for value in tensors]


def quiet_sparse():
    if hasattr(torch.sparse, "check_sparse_tensor_invariants"):
        # The default; said aloud, torch warns no more.
        torch.sparse.check_sparse_tensor_invariants.disable()


def update(args, *optimizers):
    """A step of each, and gradients made ready for the next one."""
    for optimizer in optimizers:
        if args.scaler:
            args.scaler.step(optimizer)
        else:
            optimizer.step()
        optimizer.zero_grad(set_to_none="zerograd" not in args.plant.flags)
    if args.scaler:
        args.scaler.update()


class _Drag:
    """The slow plant around one step: keeps the time that decides how much is repeated."""

    CALIBRATION_STEPS = 12
    CALIBRATION_UNITS = 50

    def __init__(self, args, work, times):
        self._plant, self._work, self._times, self._steps = args.plant, work, times, 0
        self._cuda = args.device == "cuda"
        # CPU time of this thread where that is all the work: then a busy neighbour changes nothing.
        alone = not self._cuda and args.threads == 1 and args.ranks == 1
        self._clock = time.thread_time_ns if alone else time.perf_counter_ns
        self._extra_ns = self._begin_ns = 0

    def begin(self):
        self._begin_ns = self._clock() if self._plant.slow else 0

    def repeat(self, batch):
        """In the forward phase."""
        if self._plant.slow:
            self._extra_ns = self._plant.drag(lambda: self._work.unit(batch), self._clock)

    def end(self, batch):
        if not self._plant.slow:
            return
        self._steps += 1
        if not self._cuda:
            self._plant.step_took(self._clock() - self._begin_ns - self._extra_ns)
        elif self._steps == self.CALIBRATION_STEPS:
            for _ in range(2):  # the first round loads kernels
                torch.cuda.synchronize()
                begin = time.perf_counter_ns()
                for _ in range(self.CALIBRATION_UNITS):
                    self._work.unit(batch)
                torch.cuda.synchronize()
                unit_ns = (time.perf_counter_ns() - begin) / self.CALIBRATION_UNITS
            self._plant.fix_units(sorted(self._times)[self._steps // 2], unit_ns)


def _poison(model):
    with torch.no_grad():
        next(model.parameters()).mul_(float("nan"))


def _forward_of(args, call):
    """What computes, as the plants want it."""
    if "graphbreak" in args.plant.flags and args.compiles:
        import torch._dynamo as dynamo

        compute = call

        def call(batch):
            dynamo.graph_break()
            return compute(batch)
    if "bf16" not in args.plant.flags:
        return call

    def lower(batch):
        with torch.autocast(args.device, dtype=torch.bfloat16):
            return call(batch)
    return lower


def _train(args, work, drag, times):
    plant, losses, changes = args.plant, [], Changes(args, work)
    extra, forward = regress.Regress(args, work), _forward_of(args, work.forward)
    for i in upgate.steps(range(args.steps), samples=work.samples):
        wall = time.perf_counter_ns()
        drag.begin()
        extra.begin()
        with upgate.phase("data"):
            batch = work.batch(i)
            extra.data()
        plant.strike(i, args.steps, lambda: _poison(work.model), upgate.phase)
        with upgate.phase("forward"):
            loss, output = forward(batch)
            drag.repeat(batch)
            extra.forward(loss, output)
            changes.now.batch, changes.now.scores = batch, output
            for change in changes.losses:
                term = change(changes.now)
                loss = loss if term is None else loss + term
        with upgate.phase("backward"):
            (args.scaler.scale(loss) if args.scaler else loss).backward()
        with upgate.phase("optimizer"):
            for change in changes.gradients:
                change(changes.now)
            if "clip" in plant.flags:
                torch.nn.utils.clip_grad_norm_(work.model.parameters(), 1.0)
            work.update()
            for change in changes.updated:
                change(changes.now)
        losses.append(loss.item())
        if i < RECORDED_OUTPUTS:
            upgate.record(loss=losses[-1], output=work.visible(output.detach()))
        else:
            upgate.record(loss=losses[-1])
        extra.end()
        times.append(time.perf_counter_ns() - wall)
        if args.compiles:
            args.compiles.after_step()
        drag.end(batch)
    return losses


def _requests(args, samples):
    if args.rate > 0:
        return upgate.requests(args.steps, rate=args.rate, seed=args.seed, samples=samples)
    return upgate.steps(range(args.steps), samples=samples)


def _infer(args, work, drag, times):
    plant, extra, compute = args.plant, regress.Regress(args, work), _forward_of(args, work.answer)
    with torch.inference_mode():
        for i, _ in enumerate(_requests(args, work.samples)):
            wall = time.perf_counter_ns()
            drag.begin()
            extra.begin()
            with upgate.phase("data"):
                batch = work.batch(i)
                extra.data()
            plant.strike(i, args.steps, lambda: _poison(work.model), upgate.phase)
            with upgate.phase("forward"):
                output = compute(extra.request(batch))
                drag.repeat(batch)
                extra.forward(None)
                answer = work.visible(output).cpu()  # a client gets its answer in host memory
            if i < RECORDED_OUTPUTS:
                upgate.record(output=answer)
            extra.end()
            times.append(time.perf_counter_ns() - wall)
            if args.compiles:
                args.compiles.after_step()
            drag.end(batch)


def _finite(value):
    """JSON has no NaN and no infinity."""
    return value if value is not None and math.isfinite(value) else None


def _line(args, work, losses, setup_ns):
    """The JSON line of a run but for how long its steps took."""
    return {"model": args.name, "mode": args.mode, "framework": "torch " + torch.__version__,
            "device": args.device, "dtype": args.dtype, "variant": args.variant, "size": args.size, "ranks": args.ranks,
            "threads": args.threads, "seed": args.seed, "steps": args.steps,
            "samples": work.samples * args.steps,
            "loss_first": _finite(losses[0]), "loss_last": _finite(losses[-1]),
            "import_ns": IMPORT_NS, "setup_ns": setup_ns}


def run(args, work):
    """Run the workload and print one JSON line from rank 0. Returns the exit status.

    work has: model, samples (of a step), batch(i), forward(batch) -> (loss, output), update(),
    answer(batch) -> output, visible(output) -> contiguous tensor for parity, unit(batch): a small
    share of the forward pass. Where its inputs repeat it has period, the number of batches. With the variant aotinductor-native
    the process becomes another program, and this does not return."""
    if args.plant.nostep:
        return 0
    times, setup_ns = [], time.monotonic_ns() - START_NS - IMPORT_NS
    if args.native:
        args.native.serve(work, _line(args, work, [None], setup_ns))
    loop = _train if args.mode == "train" else _infer
    losses = loop(args, work, _Drag(args, work, times), times) or [None]
    if args.compiles:
        args.compiles.note()
    if hasattr(work, "note"):
        work.note()
    if int(os.environ.get("RANK", "0")) == 0:
        print(json.dumps(dict(_line(args, work, losses, setup_ns), first_step_ns=times[0],
                              median_step_ns=sorted(times)[len(times) // 2], **args.extra)), flush=True)
    return 0


def main(name, work, options=()):
    """The whole program of a model of one rank: work(args) makes what run() runs. options: as cli.arguments() has them."""
    args = cli.arguments(name, options=options)
    open_device(args)
    return run(args, work(args))
