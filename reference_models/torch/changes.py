# SPDX-License-Identifier: Apache-2.0
"""Planted changes of a training program: what people add to a loop, spread over kernels, launches, waits and Python.

The words are parsed by plants.py. Each is a function whose name says what it is, called by the loop itself, as a program would. `now` is
the step: model, work, batch, scores, and seen, a dict that stays.
"""
import types

import torch
from torch import nn
from torch.nn import functional


# ---- in the forward pass: a term of the loss, or None ----------------------------------------------

def make_mask(now):
    """A causal mask, made on the host and copied in every step."""
    now.seen["mask"] = torch.full((256, 256), -1e9).triu(1).to(now.scores.device)


def masked_mean(now):
    """Of the positive scores: how many they are, the host has to know."""
    return 1e-3 * now.scores[now.scores >= 0].mean()


def measure_confidence(now):
    """A metric for the log, in every step."""
    best = torch.softmax(now.scores.detach().float(), dim=-1).topk(5, dim=-1).values
    now.seen.update(top1=best[..., 0].mean().item(), top5=best.sum(dim=-1).mean().item())


def distill(now):
    """Towards what the model itself says without gradients."""
    with torch.no_grad():
        taught = now.work.forward(now.batch)[1]
    return 0.1 * functional.mse_loss(now.scores, taught)


def weight_penalty(now):
    """L2 as a term of the loss, in place of the optimizer's."""
    return 1e-6 * sum(value.square().sum() for value in now.model.parameters())


def drop_output(module, inputs, output):
    return functional.dropout(output, 0.1)


def augment_images(images):
    """Mirrored by chance, brightness drawn, noise added."""
    mirrored = torch.rand(images.shape[0], 1, 1, 1, device=images.device) < 0.5
    images = torch.where(mirrored, images.flip(3), images)
    return images * (0.8 + 0.4 * torch.rand_like(images[:, :1, :1, :1])) + 0.01 * torch.randn_like(images)


# ---- around the optimizer ------------------------------------------------------------------------

def log_gradient_norms(now):
    """Of each parameter, as loggers of experiments write them."""
    for name, value in now.model.named_parameters():
        if value.grad is not None:
            now.seen[name] = value.grad.norm().item()


def check_finite(now):
    for name, value in now.model.named_parameters():
        if value.grad is not None and not torch.isfinite(value.grad).all():
            raise FloatingPointError("the gradient of %s is not finite" % name)


def add_gradient_noise(now):
    for value in now.model.parameters():
        if value.grad is not None:
            value.grad.add_(torch.randn_like(value.grad), alpha=1e-9)


def decay_weights(now):
    """By hand, one parameter after the other."""
    with torch.no_grad():
        for value in now.model.parameters():
            value.sub_(value, alpha=1e-9)


def log_histograms(now):
    for name, value in now.model.named_parameters():
        now.seen[name] = torch.histc(value.detach().float(), bins=64).cpu()


def snapshot_state(now):
    """What a failed step would go back to."""
    now.seen["state"] = {name: value.clone() for name, value in now.model.state_dict().items()}


def update_average(now):
    """The weights' moving average, kept beside them."""
    if "average" not in now.seen:
        now.seen["average"] = [value.detach().clone() for value in now.model.parameters()]
    with torch.no_grad():
        for old, value in zip(now.seen["average"], now.model.parameters()):
            old.mul_(0.999).add_(value, alpha=0.001)


LOSSES = {"causalmask": make_mask, "mask": masked_mean, "confidence": measure_confidence, "teacher": distill, "penalty": weight_penalty}
GRADIENTS = {"finite": check_finite, "gradnoise": add_gradient_noise, "gradnorms": log_gradient_norms, "decay": decay_weights}
UPDATED = {"average": update_average, "histograms": log_histograms, "snapshot": snapshot_state}


class Changes:
    """Of one training: what its loop calls after the forward pass, before the optimizer, and after it."""

    def __init__(self, args, work):
        flags = args.plant.flags
        self.now = types.SimpleNamespace(model=work.model, work=work, batch=None, scores=None, seen={})
        self.losses, self.gradients, self.updated = ([call for flag, call in rows.items() if flag in flags]
                                                     for rows in (LOSSES, GRADIENTS, UPDATED))
        if "dropout" in flags:
            for modules in work.model.modules():
                if isinstance(modules, nn.ModuleList):
                    for module in modules:
                        module.register_forward_hook(drop_output)
