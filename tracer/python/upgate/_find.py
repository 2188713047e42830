# SPDX-License-Identifier: Apache-2.0
"""Finds the steps of a program that makes no step calls, and marks them: training by the optimizer, inference by
the outermost module. What a step is, is decided in C (_find.c); here are the hooks, for torch of 1.13 and later.

found() is called by start/sitecustomize.py with each framework's module when it has been imported. Nothing here
imports a framework."""

import functools
import sys

from upgate import _core

_core.find_start()


def _compiling():
    compiler = getattr(sys.modules["torch"], "compiler", None)  # since 2.1
    return compiler is not None and compiler.is_compiling()


def _optimizer(module):
    """torch.optim.optimizer. Where torch has hooks of all optimizers these are used, for torch.compile knows them."""
    optimizer = module.Optimizer
    before = getattr(module, "register_optimizer_step_pre_hook", None)
    after = getattr(module, "register_optimizer_step_post_hook", None)
    hooked = before is not None and after is not None
    if hooked:
        before(_optimizer_begins)
        after(_optimizer_ends)
    # What every optimizer calls when it is made, and when it comes out of a pickle.
    name = "_patch_step_function" if hasattr(optimizer, "_patch_step_function") else "_hook_for_profile"
    patch = getattr(optimizer, name)

    @functools.wraps(patch)
    def made(self):
        patch(self)
        if not hooked:
            _wrap_step(type(self))
        _core.find_trains()

    setattr(optimizer, name, made)


# torch.compile reads these two when it compiles a step of an optimizer, and must find nothing in them.
def _optimizer_begins(optimizer, args, kwargs):
    if not _compiling():
        _core.find_optimizer_begins(optimizer)


def _optimizer_ends(optimizer, args, kwargs):
    if not _compiling():
        _core.find_optimizer_ends(optimizer)




def _wrap_step(cls):
    """step() of a class of optimizers, before torch 2.0."""
    step = cls.step
    if getattr(step, "upgate", False):
        return

    @functools.wraps(step)
    def wrapper(*args, **kwargs):
        _core.find_optimizer_begins(args[0])
        result = step(*args, **kwargs)
        _core.find_optimizer_ends(args[0])
        return result

    wrapper.upgate = wrapper.hooked = True
    cls.step = wrapper


def _grad_scaler(module):
    """A step that the scaler skips for Inf is a step of the program all the same."""
    scaler = module.GradScaler
    step = scaler.__dict__.get("step")
    if step is None:
        return

    @functools.wraps(step)
    def wrapper(self, optimizer, *args, **kwargs):
        _core.find_scaler_begins(optimizer)
        try:
            return step(self, optimizer, *args, **kwargs)
        finally:
            _core.find_scaler_ends(optimizer)

    scaler.step = wrapper


def _autograd(module):
    backward = module.backward

    @functools.wraps(backward)
    def wrapper(*args, **kwargs):
        _core.find_backward(True)
        try:
            return backward(*args, **kwargs)
        finally:
            _core.find_backward(False)

    module.backward = wrapper


def _module(module):
    """torch.nn.modules.module. Classes that are made later come through __init_subclass__."""
    base = module.Module
    if not _core.find_modules(base):
        return

    def __init_subclass__(cls, **kwargs):
        super(base, cls).__init_subclass__(**kwargs)
        _core.find_modules(cls)

    base.__init_subclass__ = classmethod(__init_subclass__)


_FOUND = {
    "torch.optim.optimizer": _optimizer,
    "torch.amp.grad_scaler": _grad_scaler,
    "torch.cuda.amp.grad_scaler": _grad_scaler,
    "torch.autograd": _autograd,
    "torch.nn.modules.module": _module,
}


def found(module):
    """A framework's module has been imported."""
    function = _FOUND.get(module.__name__)
    if function is not None:
        function(module)
