# SPDX-License-Identifier: Apache-2.0
"""Finds the steps of a program that makes no step calls, and marks them: training by the optimizer, inference by
the outermost module, with jax by what the program jits. What a step is, is decided in C (_find.c); here are the
hooks, for torch of 1.13 and later, Keras 3 on torch, and jax.

found() is called by start/sitecustomize.py with each framework's module when it has been imported. Nothing here
imports a framework."""

import functools
import sys
import types

from upgate import _core

_core.find_start()


def _never():
    return False


_compiling = None  # of torch, once it is there


def _find_compiling():
    global _compiling
    compiler = getattr(sys.modules["torch"], "compiler", None)  # since 2.1
    _compiling = getattr(compiler, "is_compiling", _never)


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
        if hooked and _compiling is None:
            _find_compiling()
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


def _graphs(module):
    """torch.cuda.graphs. A graph in which a step of an optimizer was captured makes it at each replay; so does one of a model's call."""
    graph = module.CUDAGraph
    begin, end, replay = graph.capture_begin, graph.capture_end, graph.replay

    @functools.wraps(begin)
    def capture_begin(self, *args, **kwargs):
        result = begin(self, *args, **kwargs)
        _core.find_capture_begins()
        return result

    @functools.wraps(end)
    def capture_end(self, *args, **kwargs):
        self._upgate_captured = _core.find_capture_ends()
        return end(self, *args, **kwargs)

    @functools.wraps(replay)
    def replays(self, *args, **kwargs):
        captured = getattr(self, "_upgate_captured", None)
        if captured is None or not _core.find_graph_begins(captured):
            return replay(self, *args, **kwargs)
        result = replay(self, *args, **kwargs)
        _core.find_graph_ends(captured)
        return result

    graph.capture_begin, graph.capture_end, graph.replay = capture_begin, capture_end, replays


def _keras(module):
    """keras.src.optimizers.base_optimizer, where Keras computes with torch and makes its own steps."""
    base = module.BaseOptimizer
    init, apply = base.__init__, base.apply

    @functools.wraps(init)
    def made(self, *args, **kwargs):
        init(self, *args, **kwargs)
        if module.backend.backend() == "torch":
            _core.find_trains()

    @functools.wraps(apply)
    def wrapper(self, *args, **kwargs):
        if module.backend.backend() != "torch":
            return apply(self, *args, **kwargs)
        _core.find_optimizer_begins(self)
        result = apply(self, *args, **kwargs)
        _core.find_optimizer_ends(self)
        return result

    base.__init__, base.apply = made, wrapper


class _Jitted:
    """A jitted function, whose outermost calls are parts of steps. What is asked of it, it has from the real one."""

    def __init__(self, function):
        self._upgate_function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args, **kwargs):
        if not _core.find_jit_begins(self):
            return self._upgate_function(*args, **kwargs)
        result = None
        try:
            result = self._upgate_function(*args, **kwargs)
            return result
        finally:
            _core.find_jit_ends(self, result)

    def __get__(self, instance, owner=None):
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name):
        if name == "_upgate_function":  # before __init__: a copy is being made
            raise AttributeError(name)
        return getattr(self._upgate_function, name)


def _jax(module):
    """What a program calls jax.jit; what jax jits for itself is none of its steps."""
    for name in ("jit", "pmap"):
        setattr(module, name, _jit_of(getattr(module, name)))


def _jit_of(jit):
    @functools.wraps(jit)
    def wrapper(*args, **kwargs):
        made = jit(*args, **kwargs)
        if hasattr(made, "lower"):
            return _Jitted(made)
        return lambda function: _Jitted(made(function))  # a decorator with options

    return wrapper


_FOUND = {
    "torch.optim.optimizer": _optimizer,
    "torch.amp.grad_scaler": _grad_scaler,
    "torch.cuda.amp.grad_scaler": _grad_scaler,
    "torch.autograd": _autograd,
    "torch.nn.modules.module": _module,
    "torch.cuda.graphs": _graphs,
    "keras.src.optimizers.base_optimizer": _keras,
    "jax": _jax,
}


def found(module):
    """A framework's module has been imported."""
    function = _FOUND.get(module.__name__)
    if function is not None:
        function(module)
