# SPDX-License-Identifier: Apache-2.0
"""A step is a call of one function, which the user has named (`--step 'trainer.py:train_one'`): from its call to its
return. Loaded by start/sitecustomize.py.

CPython 3.12 and later tell of that function's calls alone (sys.monitoring). Before, every call is looked at until the
first of the function; from then on its code is one that marks the step and calls what was there."""

import gc
import sys
import threading
import types
import warnings

from upgate import _core

_open = None  # the frame whose call is the step; the calls inside it are part of it


class _Named:
    def __init__(self, text):
        self.text = text
        self.file, _, self.function = text.rpartition(":")
        self.name = self.function.rpartition(".")[2]

    def is_code(self, code):
        if code.co_name != self.name:
            return False
        if code.co_filename != self.file and not code.co_filename.endswith("/" + self.file):
            return False
        qualified = getattr(code, "co_qualname", None)  # since 3.11
        return qualified is None or qualified.replace("<locals>.", "").endswith(self.function)


def _begins(frame, text):
    global _open
    if _open is None and _core.find_function_begins(text):
        _open = frame


def _ends(frame):
    global _open
    if _open is frame:
        _open = None
        _core.find_function_ends()


# ---- 3.12 and later ----


def _monitor(named):
    monitoring = sys.monitoring
    events = monitoring.events
    tool = next(tool for tool in (4, 3, 5, 2) if monitoring.get_tool(tool) is None)
    monitoring.use_tool_id(tool, "upgate")

    def on_start(code, offset):
        if not named.is_code(code):
            return monitoring.DISABLE
        monitoring.set_local_events(tool, code, events.PY_START | events.PY_RETURN)
        monitoring.set_events(tool, events.PY_UNWIND)
        _begins(sys._getframe(1), named.text)

    def on_return(code, offset, value):
        _ends(sys._getframe(1))

    def on_unwind(code, offset, error):
        if _open is not None and code is _open.f_code:
            _ends(sys._getframe(1))

    monitoring.register_callback(tool, events.PY_START, on_start)
    monitoring.register_callback(tool, events.PY_RETURN, on_return)
    monitoring.register_callback(tool, events.PY_UNWIND, on_unwind)
    monitoring.set_events(tool, events.PY_START)


# ---- before ----


def _wrap(function, text):
    """`function` keeps its identity, wherever the program has put it; its code becomes the trampoline's."""
    original = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__,
                                  function.__closure__)
    original.__kwdefaults__ = function.__kwdefaults__

    def wrapper(args, kwargs):
        frame = object()
        _begins(frame, text)
        try:
            return original(*args, **kwargs)
        finally:
            _ends(frame)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a text cannot be called; what takes its place can
        module = compile("def call(*args, **kwargs):\n return ''(args, kwargs)\n", function.__code__.co_filename, "exec")
    code = next(const for const in module.co_consts if isinstance(const, types.CodeType))
    function.__code__ = code.replace(co_consts=tuple(wrapper if const == "" else const for const in code.co_consts),
                                     co_name=function.__code__.co_name,
                                     co_freevars=function.__code__.co_freevars)


def _profile(named):
    first = []  # the frame of the first call, and its thread; nothing once it has returned

    def look(frame, event, argument):
        if first:
            if threading.get_ident() != first[1]:
                sys.setprofile(None)
            elif event == "return" and frame is first[0]:
                sys.setprofile(None)
                first[:] = [None, None]
                _ends(frame)
        elif event == "call" and named.is_code(frame.f_code):
            first[:] = [frame, threading.get_ident()]
            threading.setprofile(None)
            for function in gc.get_referrers(frame.f_code):
                if isinstance(function, types.FunctionType) and function.__code__ is frame.f_code:
                    _wrap(function, named.text)
            _begins(frame, named.text)

    threading.setprofile(look)
    sys.setprofile(look)


def start(text):
    _core.find_start()
    named = _Named(text)
    if hasattr(sys, "monitoring"):
        _monitor(named)
    else:
        _profile(named)
