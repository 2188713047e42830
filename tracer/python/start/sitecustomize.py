# SPDX-License-Identifier: Apache-2.0
"""First on PYTHONPATH of a workload whose steps upgate finds by itself: waits for the frameworks, whose steps
upgate/_find.py then marks, and runs the sitecustomize module that the interpreter would have found without us.

Every Python process of the workload runs this; without a framework it costs a look-up at each import."""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
# What is looked at once it has been imported; upgate/_find.py has a function for each.
_MODULES = {"torch.optim.optimizer", "torch.nn.modules.module", "torch.autograd", "torch.amp.grad_scaler",
            "torch.cuda.amp.grad_scaler", "torch.cuda.graphs", "jax", "keras.src.optimizers.base_optimizer"}


class _Finder:
    """First of sys.meta_path: lets the others find the module, and looks at it when it has been run."""

    busy = set()

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in _MODULES or name in cls.busy:
            return None
        cls.busy.add(name)
        try:
            spec = None
            for finder in sys.meta_path:
                if finder is not cls and hasattr(finder, "find_spec"):
                    spec = finder.find_spec(name, path, target)
                    if spec is not None:
                        break
            run = getattr(getattr(spec, "loader", None), "exec_module", None)
            if run is not None:
                spec.loader.exec_module = lambda module: _run(run, module)
            return spec
        finally:
            cls.busy.discard(name)


def _run(run, module):
    run(module)
    try:
        from upgate import _find

        _find.found(module)
    except Exception:  # a version that is none of those we know: its steps are not found, and the report says so
        pass


def _run_next():
    """The sitecustomize that we stand before."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


# Children find us by PYTHONPATH; the program's own sys.path is as it would be.
sys.path[:] = [_path for _path in sys.path if os.path.abspath(_path or ".") != _HERE]
if os.environ.get("UPGATE_STEPS_FROM") == "auto" and os.environ.get("UPGATE_STEPS"):
    if os.environ.get("UPGATE_STEP"):
        from upgate import _step_function

        _step_function.start(os.environ["UPGATE_STEP"])
    else:
        sys.meta_path.insert(0, _Finder)
_run_next()
