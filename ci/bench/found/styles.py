#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Are the steps of public training styles found, and how many? Each style makes 30 iterations in a process of its own
under step_host, without a step call; its own count stands beside what was found. The libraries are those of PYTHON:

    python3 ci/bench/found/styles.py BUILD PYTHON [STYLE...]

Exit 1: another number was found, where any was."""

import json
import os
import subprocess
import sys
import time

N = 30


def torch_model():
    import torch

    torch.set_num_threads(1)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))


def torch_loader():
    import torch

    data = torch.utils.data.TensorDataset(torch.randn(4 * N, 8), torch.randn(4 * N, 1))
    return torch.utils.data.DataLoader(data, batch_size=4)


def run_plain():
    import torch

    model = torch_model()
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in torch_loader():
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    return N


def run_compiled():
    import torch

    model = torch_model()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in torch_loader():
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(compiled(x), y).backward()
        optimizer.step()
    return N


def run_accumulation():
    import torch

    model = torch_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, (x, y) in enumerate(torch_loader()):
        torch.nn.functional.mse_loss(model(x), y).backward()
        if i % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
    return N // 3


def run_amp():
    """Every fifth step is skipped for Inf."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch_model().to(device)
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler(device, init_scale=4.0)
    for i, (x, y) in enumerate(torch_loader()):
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
        scaler.scale(loss * (float("inf") if i % 5 == 4 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
    return N


def run_gan():
    import torch

    generator, critic = torch_model(), torch.nn.Linear(1, 1)
    of_generator, of_critic = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
    for x, y in torch_loader():
        with torch.no_grad():
            drawn = generator(x)
        of_critic.zero_grad()
        (critic(drawn) - critic(y)).mean().backward()
        of_critic.step()
        of_generator.zero_grad()
        critic(generator(x)).mean().backward()
        of_generator.step()
    return N


def run_graph():
    """A whole step, captured as PyTorch's manual has it."""
    import torch

    if not torch.cuda.is_available():
        return None
    model, x, y = torch_model().cuda(), torch.randn(4, 8, device="cuda"), torch.randn(4, 1, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(11):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    for batch, target in torch_loader():
        x.copy_(batch)
        y.copy_(target)
        graph.replay()
    torch.cuda.synchronize()
    return 11 + N


def run_graph_inference():
    import torch

    if not torch.cuda.is_available():
        return None
    model, x = torch_model().cuda().eval(), torch.randn(4, 8, device="cuda")
    with torch.no_grad():
        for _ in range(3):
            model(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model(x)
        for _ in range(N):
            graph.replay()
    torch.cuda.synchronize()
    return 3 + N


def run_graphed_callables():
    """Forward and backward are replayed, the optimizer runs eagerly. Three calls make it ready, before there is an optimizer."""
    import torch

    if not torch.cuda.is_available():
        return None
    model = torch.cuda.make_graphed_callables(torch_model().cuda(), (torch.randn(4, 8, device="cuda"),))
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in torch_loader():
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
    return 3 + N


def run_reduce_overhead():
    """torch.compile's own CUDA graphs."""
    import torch

    if not torch.cuda.is_available():
        return None
    model = torch_model().cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in torch_loader():
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(compiled(x.cuda()), y.cuda()).backward()
        optimizer.step()
    return N


def run_lightning():
    import lightning
    import torch

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = torch_model()

        def training_step(self, batch, index):
            return torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])

        def validation_step(self, batch, index):
            self.log("loss", torch.nn.functional.mse_loss(self.model(batch[0]), batch[1]))

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, val_check_interval=10)
    trainer.fit(Module(), torch_loader(), torch_loader())
    return trainer.global_step


def run_accelerate():
    import accelerate
    import torch

    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = torch_model()
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), torch_loader())
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
    return N // 2


def run_transformers():
    import tempfile

    import torch
    import transformers

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = torch_model()

        def forward(self, x=None, labels=None):
            out = self.model(x)
            return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}

    data = [{"x": torch.randn(8), "labels": torch.randn(1)} for _ in range(4 * N)]
    with tempfile.TemporaryDirectory() as directory:
        arguments = transformers.TrainingArguments(output_dir=directory, max_steps=N, per_device_train_batch_size=4,
                                                   report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True,
                                                   eval_strategy="steps", eval_steps=10)
        trainer = transformers.Trainer(model=Model(), args=arguments, train_dataset=data, eval_dataset=data[:8])
        trainer.train()
        return trainer.state.global_step


def run_keras():
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import numpy

    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    x, y = numpy.random.randn(4 * N, 8), numpy.random.randn(4 * N, 1)
    model.fit(x, y, batch_size=4, epochs=1, verbose=0, validation_data=(x, y))
    return int(model.optimizer.iterations)


def run_jax():
    import jax
    import jax.numpy as jnp

    @jax.jit
    def init(key):
        return jax.random.normal(key, (64, 64))

    @jax.jit
    def train(weights, x):
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(weights)
        return weights - 0.1 * gradient, loss

    weights, x = init(jax.random.PRNGKey(0)), jnp.ones((32, 64))
    for _ in range(N):
        weights, loss = train(weights, x)
    float(loss)
    return N


def run_script():
    import torch

    model = torch.jit.freeze(torch.jit.script(torch_model().eval()))
    with torch.no_grad():
        for _ in range(N):
            model(torch.ones(4, 8))
    return N


def run_exported():
    import torch

    model = torch.export.export(torch_model().eval(), (torch.ones(4, 8),)).module()
    with torch.no_grad():
        for _ in range(N):
            model(torch.ones(4, 8))
    return N


def run_fastapi():
    import fastapi
    import fastapi.testclient
    import torch

    app, model = fastapi.FastAPI(), torch_model().eval()

    @app.get("/predict")
    def predict(value: float):
        with torch.no_grad():
            return {"y": float(model(torch.full((1, 8), value)))}

    with fastapi.testclient.TestClient(app) as client:
        for i in range(N):
            assert client.get("/predict?value=%d" % i).status_code == 200
    return N


def found(build, python, style):
    build = os.path.abspath(build)
    env = dict(os.environ, UPGATE_STEPS_FROM="auto", TQDM_DISABLE="1", PYTHONPATH="%s/python/start:%s/python" % (build, build))
    command = [build + "/tests/e2e/step_host", "7", "0", python, os.path.abspath(__file__), "--run", style]
    begin = time.monotonic()
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    lines = []
    for line in done.stdout.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    said = {line["name"]: bytes.fromhex(line["hex"]).decode() for line in lines if line.get("kind") == "bytes"}
    made = [line.split()[1] for line in done.stderr.splitlines() if line.startswith("MADE ")]
    steps = [line["step"] for line in lines if line.get("kind") == "step"]
    if made and made[0] == "None":
        return "skipped", 0, "no GPU", time.monotonic() - begin
    return (int(made[0]) if made else "failed: " + done.stderr[-300:], max(steps) + 1 if steps else 0,
            said.get("steps_found", said.get("steps_from", "none")), time.monotonic() - begin)


def main():
    if sys.argv[1:2] == ["--run"]:
        # The count of the steps by the program itself, on stderr: stdout is the harness's.
        stdout = os.dup(1)
        os.dup2(2, 1)
        print("MADE %s" % globals()["run_" + sys.argv[2]](), file=sys.stderr, flush=True)
        os.dup2(stdout, 1)
        return
    styles = sys.argv[3:] or [name[4:] for name in globals() if name.startswith("run_")]
    wrong = 0
    for style in styles:
        made, count, said, seconds = found(sys.argv[1], sys.argv[2], style)
        is_right = made in (count, "skipped") or (count == 0 and said == "none" and isinstance(made, int))
        wrong += not is_right
        print("%-18s made %-7s found %-6s %-48s %5.1f s %s" % (style, made, count, said, seconds, "" if is_right else "WRONG"), flush=True)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
