# SPDX-License-Identifier: Apache-2.0
"""Tracing of Python in a process whose GPU work is traced: paths of modules, steps, phases, garbage collections.

Started by the library that CUDA loaded (tracer/inject), from a thread of its own; the work is in C (_trace.c and
its neighbours). Here are only hooks that torch wants in Python: those of optimizers, which torch.compile may read.
Never imports torch, says nothing, raises nothing.
"""

import sys

from upgate import _core

_handles = []
_torch = None  # once it is there


class _Finder:
    """In sys.meta_path until torch has come: asked at each import, it finds nothing and looks whether it has."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if not name.startswith("torch"):
            _core.trace_poll()
        return None


def _unwatch():
    # A new list: an import that is under way, maybe the one that asks us now, goes on through the one it began
    # with, and would pass over the finder that moves up into our place.
    if _Finder in sys.meta_path:
        sys.meta_path = [finder for finder in sys.meta_path if finder is not _Finder]


def start(kinds):
    """kinds: enum ug_spool_want. What was on before is stopped. 0: stop."""
    stop()
    try:
        if _core.trace_start(kinds) and not _handles and "torch.nn" not in sys.modules:
            sys.meta_path.insert(0, _Finder)
    except Exception:
        stop()


def stop():
    _unwatch()
    _core.trace_stop()


def attach():
    """torch has come, perhaps not all of it. Called from C until it returns True, and again after detach()."""
    global _torch
    optimizer = sys.modules.get("torch.optim.optimizer")
    if optimizer is None or getattr(sys.modules["torch"].__spec__, "_initializing", False):
        return False
    _unwatch()
    _torch = sys.modules["torch"]
    if not hasattr(getattr(_torch, "compiler", None), "is_compiling"):
        return True  # before 2.1, or nearly
    _attach_backward()
    before = getattr(optimizer, "register_optimizer_step_pre_hook", None)
    after = getattr(optimizer, "register_optimizer_step_post_hook", None)
    if before and after and not _handles:
        _handles.append(before(_optimizer_begins))
        _handles.append(after(_optimizer_ends))
    return True


def _attach_backward():
    tensor = _torch.empty(0, device="cpu")
    if type(tensor) is _torch.Tensor:  # else somebody's mode is on: this process goes without
        task = getattr(_torch._C, "_current_graph_task_id", None)
        _core.trace_backward(_torch.Tensor, tensor, _torch.autograd.Variable._execution_engine, task)


def detach():
    while _handles:
        _handles.pop().remove()


# torch.compile reads these two when it compiles a step of an optimizer, and must find nothing in them.
def _optimizer_begins(optimizer, args, kwargs):
    if _torch.compiler.is_compiling():
        return
    _core.trace_run("optimizer:" + type(optimizer).__name__)


def _optimizer_ends(optimizer, args, kwargs):
    if _torch.compiler.is_compiling():
        return
    _core.trace_run(None)
