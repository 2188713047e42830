# SPDX-License-Identifier: Apache-2.0
"""Planted changes of a training program: what people add to a loop, spread over kernels, launches, waits and Python.

The words are parsed by plants.py. Each is a function whose name says what it is, and is called as a program would call it.
"""
import torch
from torch import nn
from torch.nn import functional


# ---- in the forward pass -------------------------------------------------------------------------

def make_mask(length, device):
    """A causal mask, made on the host and copied in every step."""
    return torch.full((length, length), -1e9).triu(1).to(device)


def masked_mean(scores):
    """Of the positive scores: how many they are, the host has to know."""
    return scores[scores >= 0].mean()


def measure_confidence(scores):
    """A metric for the log, in every step."""
    best = torch.softmax(scores.detach().float(), dim=-1).topk(5, dim=-1).values
    return {"top1": best[..., 0].mean().item(), "top5": best.sum(dim=-1).mean().item()}


def teacher_scores(work, batch):
    """What the model itself says without gradients: self-distillation."""
    with torch.no_grad():
        return work.forward(batch)[1]


def weight_penalty(model):
    """L2 as a term of the loss, in place of the optimizer's."""
    return sum(value.square().sum() for value in model.parameters())


def drop_output(module, inputs, output):
    return functional.dropout(output, 0.1)


def augment_images(images):
    """Mirrored by chance, brightness drawn, noise added."""
    mirrored = torch.rand(images.shape[0], 1, 1, 1, device=images.device) < 0.5
    images = torch.where(mirrored, images.flip(3), images)
    return images * (0.8 + 0.4 * torch.rand_like(images[:, :1, :1, :1])) + 0.01 * torch.randn_like(images)


# ---- around the optimizer ------------------------------------------------------------------------

def log_gradient_norms(model, seen):
    """Of each parameter, as loggers of experiments write them."""
    for name, value in model.named_parameters():
        if value.grad is not None:
            seen[name] = value.grad.norm().item()


def check_finite(model):
    for name, value in model.named_parameters():
        if value.grad is not None and not torch.isfinite(value.grad).all():
            raise FloatingPointError("the gradient of %s is not finite" % name)


def add_gradient_noise(model):
    for value in model.parameters():
        if value.grad is not None:
            value.grad.add_(torch.randn_like(value.grad), alpha=1e-9)


def decay_weights(model):
    """By hand, one parameter after the other."""
    with torch.no_grad():
        for value in model.parameters():
            value.sub_(value, alpha=1e-9)


def log_histograms(model, seen):
    for name, value in model.named_parameters():
        seen[name] = torch.histc(value.detach().float(), bins=64).cpu()


def snapshot_state(model):
    """What a failed step would go back to."""
    return {name: value.clone() for name, value in model.state_dict().items()}


class Average:
    """The weights' moving average, kept beside them."""

    def __init__(self, model):
        self._kept = [value.detach().clone() for value in model.parameters()]

    def update_average(self, model):
        with torch.no_grad():
            for kept, value in zip(self._kept, model.parameters()):
                kept.mul_(0.999).add_(value, alpha=0.001)


class Changes:
    """Of one training. loss() ends the forward phase; gradients() comes before the optimizer, updated() after it."""

    def __init__(self, args, work):
        self._flags, self._work, self._model, self._seen = args.plant.flags, work, work.model, {}
        self._device = args.device
        if "average" in self._flags:
            self._average = Average(self._model)
        if "dropout" in self._flags:
            for modules in self._model.modules():
                if isinstance(modules, nn.ModuleList):
                    for module in modules:
                        module.register_forward_hook(drop_output)

    def loss(self, loss, scores, batch):
        flags = self._flags
        if "causalmask" in flags:
            mask = make_mask(256, self._device)
            loss = loss + 0 * mask[0, 0]
        if "mask" in flags:
            loss = loss + 1e-3 * masked_mean(scores)
        if "confidence" in flags:
            self._seen.update(measure_confidence(scores))
        if "teacher" in flags:
            loss = loss + 0.1 * functional.mse_loss(scores, teacher_scores(self._work, batch))
        if "penalty" in flags:
            loss = loss + 1e-6 * weight_penalty(self._model)
        return loss

    def gradients(self):
        flags = self._flags
        if "finite" in flags:
            check_finite(self._model)
        if "gradnoise" in flags:
            add_gradient_noise(self._model)
        if "clip" in flags:
            nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        if "gradnorms" in flags:
            log_gradient_norms(self._model, self._seen)
        if "decay" in flags:
            decay_weights(self._model)

    def updated(self):
        flags = self._flags
        if "average" in flags:
            self._average.update_average(self._model)
        if "histograms" in flags:
            log_histograms(self._model, self._seen)
        if "snapshot" in flags:
            self._seen["state"] = snapshot_state(self._model)
