# SPDX-License-Identifier: Apache-2.0
"""Run by libupgate_inject.so in a namespace of its own, with DIRECTORY and KINDS in it (enum ug_spool_want of
contracts/spool.h; 0: stop): gets the package, also in a program that never heard of it, and starts or stops tracing.

Leaves sys.path as it is: the package is loaded from its place and found by its name from then on."""

import sys


def _package():
    package = sys.modules.get("upgate")
    if package is None:
        from importlib.machinery import PathFinder
        from importlib.util import module_from_spec

        spec = PathFinder.find_spec("upgate", [DIRECTORY])  # noqa: F821
        package = module_from_spec(spec)
        sys.modules["upgate"] = package
        try:
            spec.loader.exec_module(package)
        except BaseException:
            del sys.modules["upgate"]
            raise
    return package


if KINDS or "upgate._trace" in sys.modules:  # noqa: F821
    _package()
    import upgate._trace

    upgate._trace.start(KINDS)  # noqa: F821
