#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps found in programs that make no step call, under step_host: how many, by which rule, which phases; and programs
that the rules do not fit, which must say so. Styles of real torch (the environments of the demo, where they are), and
each CPython from 3.8 on with a torch of a few lines. Needs UPGATE_BUILD; an argument picks cases by name."""

import glob
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
N = 20  # iterations of every style

# ---- styles: run in forks of one process that has imported torch ----


def small_model():
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))


def loss_of(model):
    import torch

    return model(torch.ones(4, 8)).square().mean()


def style_plain():
    import torch

    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    for _ in range(N):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        schedule.step()


def style_accumulation():
    import torch

    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(4 * N):
        loss_of(model).backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def style_scaler():
    """Every fifth step is skipped for Inf, as a gradient scaler does it."""
    import torch

    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"):
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    else:
        scaler = torch.cuda.amp.GradScaler(enabled=False)  # 1.13 has none for the CPU
    skipped = 0
    for i in range(N):
        optimizer.zero_grad()
        loss = scaler.scale(loss_of(model)) * (float("inf") if i % 5 == 4 and scaler.is_enabled() else 1.0)
        loss.backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
    assert not scaler.is_enabled() or skipped == N // 5, skipped


def style_gan():
    import torch

    generator, critic = small_model(), torch.nn.Linear(1, 1)
    of_generator = torch.optim.Adam(generator.parameters())
    of_critic = torch.optim.Adam(critic.parameters())
    for _ in range(N):
        with torch.no_grad():
            drawn = generator(torch.ones(4, 8))
        of_critic.zero_grad()
        critic(drawn).mean().backward()
        of_critic.step()
        of_generator.zero_grad()
        critic(generator(torch.ones(4, 8))).mean().backward()
        of_generator.step()


def style_closure():
    import torch

    model = small_model()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss

    for _ in range(N):
        optimizer.step(closure)


def style_evaluation():
    """A look at the shapes before the optimizer is made, and an evaluation between epochs."""
    import torch

    model = small_model()
    model(torch.ones(1, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(N - 1):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        if i % 5 == 4:
            model.eval()
            with torch.no_grad():
                for _ in range(7):
                    model(torch.ones(4, 8))
            model.train()


def style_loaders():
    """Workers of a data loader call modules too, and make no steps."""
    import torch

    class Data(torch.utils.data.Dataset):
        def __init__(self):
            self.transform = torch.nn.Linear(8, 8)

        def __len__(self):
            return 4 * N

        def __getitem__(self, i):
            with torch.no_grad():
                return self.transform(torch.ones(8))

    model = small_model().eval()
    for batch in torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2):
        with torch.no_grad():
            model(batch)


def style_inference():
    import torch

    model = small_model().eval()
    with torch.no_grad():
        for _ in range(N):
            model(torch.ones(4, 8))


def style_script():
    import torch

    model = torch.jit.trace(small_model().eval(), torch.ones(4, 8), check_trace=False)
    model = torch.jit.freeze(model)
    with torch.no_grad():
        for _ in range(N):
            model(torch.ones(4, 8))


def style_no_optimizer():
    """Gradients, and a descent by hand: no rule holds."""
    model = small_model()
    for _ in range(N):
        loss_of(model).backward()


def style_own_calls():
    import torch
    import upgate

    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in upgate.steps(range(N)):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()


def style_exceptions():
    """An optimizer that fails now and then, and goes on."""
    import torch

    class Fails(torch.optim.SGD):
        times = 0

        def step(self, closure=None):
            self.times += 1
            if self.times % 4 == 0:
                raise RuntimeError("out of memory, as it were")
            return super().step(closure)

    model = small_model()
    optimizer = Fails(model.parameters(), lr=0.1)
    done = 0
    while done < N:
        optimizer.zero_grad()
        loss_of(model).backward()
        try:
            optimizer.step()
            done += 1
        except RuntimeError:
            pass


def run_styles(names):
    import torch  # noqa: F401, once for all

    try:
        import torch._dynamo  # noqa: F401, of which the first optimizer of a process imports 1 s since 2.x
    except ImportError:
        pass
    for name in names:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            import upgate

            globals()["style_" + name]()
            upgate.note("style_" + name, 1)
            sys.exit(0)  # not _exit: the slot says that it has ended
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"kind": "style", "name": name, "status": status}), file=sys.stderr, flush=True)


# ---- the harness's side ----


def launch(python, *arguments, block=7, **env):
    build = os.environ["UPGATE_BUILD"]
    env = dict(os.environ, UPGATE_STEPS_FROM="auto", **env)
    env["PYTHONPATH"] = os.pathsep.join([os.path.join(build, "python", "start"), os.path.join(build, "python")] +
                                        ([env["MORE_PATH"]] if "MORE_PATH" in env else []))
    command = [os.path.join(build, "tests/e2e/step_host"), str(block), "0", python] + list(arguments)
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                          timeout=280)
    lines = [json.loads(line) for out in (done.stdout, done.stderr) for line in out.splitlines()
             if line.startswith("{")]
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stdout[-3000:] + done.stderr[-3000:]
    return lines


def text(lines, slot, name):
    found = [bytes.fromhex(line["hex"]).decode() for line in lines
             if line["kind"] == "bytes" and line["slot"] == slot and line["name"] == name]
    return found[-1] if found else None


def steps(lines, slot=0):
    return [line for line in lines if line["kind"] == "step" and line["slot"] == slot]


def phases(lines, slot=0):
    return {line["name"] for line in lines if line["kind"] == "phase" and line["slot"] == slot}


WANT = {  # style: rule, what is said, steps
    "plain": ("optimizer", "Optimizer.step of AdamW", N),
    "accumulation": ("optimizer", "Optimizer.step of SGD", N),
    "scaler": ("optimizer", "Optimizer.step of SGD", N),
    "gan": ("optimizer", "Optimizer.step of Adam", N),
    "closure": ("optimizer", "Optimizer.step of LBFGS", N),
    "evaluation": ("optimizer", "Optimizer.step of SGD", N),
    "loaders": ("module", "the call of Sequential", N),
    "inference": ("module", "the call of Sequential", N),
    "script": ("module", None, N),
    "no_optimizer": ("!calls of a model, then gradients without an optimizer of torch", None, 1),
    "own_calls": (None, None, N),
    "exceptions": ("optimizer", "Optimizer.step of Fails", N),
}


def check_styles(python):
    lines = launch(python, os.path.abspath(__file__), "--styles", *WANT)
    slots = {line["name"][6:]: line["slot"] for line in lines if line["kind"] == "note"
             and line["name"].startswith("style_")}
    for style, (rule, said, count) in WANT.items():
        status = [line["status"] for line in lines if line["kind"] == "style" and line["name"] == style]
        assert status == [0], "%s ended with %s" % (style, status)
        slot = slots[style[:17]]
        got = (text(lines, slot, "steps_from"), text(lines, slot, "steps_found"), len(steps(lines, slot)))
        assert got[0] == rule and got[2] <= count and got[2] >= count - (style == "no_optimizer"), \
            "%s: wanted %s, got %s" % (style, (rule, said, count), got)
        assert said is None or got[1] == said, "%s: wanted %s, got %s" % (style, (rule, said, count), got)
        indices = [step["step"] for step in steps(lines, slot)]
        assert indices == list(range(len(indices))), "%s: steps %s" % (style, indices)
        if style in ("plain", "accumulation", "scaler"):
            want = {"data", "forward", "backward", "optimizer"}
            assert phases(lines, slot) == want, "%s: phases %s" % (style, phases(lines, slot))
    misplaced = [line for line in lines if line["kind"] == "counters" and line["misplaced"]]
    assert not misplaced, misplaced


PLAIN = """
import torch
class Model(torch.nn.Module):
    def forward(self):
        return self.inner() if hasattr(self, "inner") else 1
model = Model()
model.inner = Model()
optimizer = torch.optim.SGD()
for i in range(20):
    model()
    torch.autograd.backward([])
    optimizer.step()
"""


def check_interpreter(python):
    """The hooks and the extension, in this CPython; a sitecustomize of the machine is still run, and nothing is left."""
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "sitecustomize.py"), "w") as file:
            file.write("import builtins\nbuiltins.of_the_machine = __file__\n")
        lines = launch(python, "-c", PLAIN + "import sys, sitecustomize\n"
                       "assert not [path for path in sys.path if path.endswith('start')], sys.path\n"
                       "assert of_the_machine == sitecustomize.__file__\n",
                       MORE_PATH=os.pathsep.join([directory, os.path.join(HERE, "fake_torch")]))
    assert len(steps(lines)) == 20 and text(lines, 0, "steps_from") == "optimizer", lines
    assert phases(lines) == {"data", "forward", "backward", "optimizer"}, phases(lines)


EVALUATED = """
import time, torch
class Model(torch.nn.Module):
    def forward(self):
        return 1
model, optimizer = Model(), torch.optim.SGD()
graph = torch.cuda.graphs.CUDAGraph()
graph.capture_begin()
model()
torch.autograd.backward([])
graph.capture_end()
for i in range(20):
    if i == 10:
        with torch.no_grad():
            model.eval()()
            time.sleep(3)
        model.train()
    graph.replay()
    optimizer.step()
"""


def check_evaluated(python):
    """An evaluation is no part of the step, also where forward and backward are replayed and the optimizer is called."""
    lines = launch(python, "-c", EVALUATED, MORE_PATH=os.path.join(HERE, "fake_torch"))
    took_ns = [step["end_ns"] - step["begin_ns"] for step in steps(lines)]
    assert len(took_ns) == 20 and took_ns[10] < 2900000000, took_ns
    assert text(lines, 0, "steps_from") == "optimizer" and phases(lines) == {"data", "graph", "optimizer"}, (text(lines, 0, "steps_from"), phases(lines))


NAMED = """
import os, sys
def helper(x):
    return x + 1
def outer():
    base = 1
    def train_one(x, scale=2, *, more=0):
        "A closure with defaults, which calls itself and may fail."
        if x == 3:
            raise ValueError(x)
        return base + helper(x) * scale + more + (train_one(0) if x == 5 else 0)
    return train_one
class Trainer:
    def fit(self, x):
        return helper(x)
train_one = outer()
got = []
for i in range(20):
    try:
        got.append(train_one(i, more=1))
    except ValueError:
        got.append(None)
    Trainer().fit(i)
want = [None if i == 3 else 1 + (i + 1) * 2 + 1 + (3 if i == 5 else 0) for i in range(20)]
assert got == want, got
# Where it is never called, each call is looked at to the end (below 3.12).
assert sys.getprofile() is None or os.environ['UPGATE_STEP'] in ('trainer.py:nothing', 'other.py:train_one')
"""


def check_named(python):
    """A step is a call of the function that is named, whatever it is and however it ends."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "trainer.py")
        with open(path, "w") as file:
            file.write(NAMED)
        for name, count in (("trainer.py:train_one", 20), ("trainer.py:Trainer.fit", 20), (path + ":helper", 40),
                            ("trainer.py:nothing", 0), ("other.py:train_one", 0)):
            lines = launch(python, path, UPGATE_STEP=name, MORE_PATH=os.path.join(HERE, "fake_torch"))
            got = (len(steps(lines)), text(lines, 0, "steps_from"), text(lines, 0, "steps_found"))
            want = (count, "function", name) if count else (0, None, None)
            assert got == want, "%s: wanted %s, got %s" % (name, want, got)


def interpreters():
    found = {}
    for path in sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3"))) + [sys.executable]:
        try:
            version = subprocess.run([path, "-c", "import sys; print(*sys.version_info[:2])"], stdout=subprocess.PIPE,
                                     check=True).stdout.split()
        except (OSError, subprocess.SubprocessError):
            continue
        if (int(version[0]), int(version[1])) >= (3, 8):
            found[tuple(version)] = path
    return [found[version] for version in sorted(found, key=lambda version: int(version[1]))]


def main():
    cases = [("interpreter " + path, check_interpreter, path) for path in interpreters()]
    cases += [("interpreter, a named function " + path, check_named, path) for path in interpreters()]
    cases += [("interpreter, an evaluation before a graph", check_evaluated, sys.executable)]
    for side in ("baseline", "candidate"):
        path = os.path.join(HERE, "../../envs", side, "bin/python")
        if os.path.exists(path):
            cases.append(("styles of torch, %s" % side, check_styles, os.path.abspath(path)))
        else:
            print("no envs/%s: run ci/setup" % side)
    failed = 0
    for name, check, python in cases:
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        try:
            check(python)
            verdict = "ok"
        except (AssertionError, subprocess.SubprocessError) as error:
            verdict, failed = "FAILED\n%s" % error, failed + 1
        print("%-64s %s" % (name, verdict), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--styles"]:
        run_styles(sys.argv[2:])
    else:
        main()
