# SPDX-License-Identifier: Apache-2.0
import functools


class Optimizer:
    def __init__(self):
        self._hook_for_profile()

    def _hook_for_profile(self):
        step = type(self).step
        if getattr(step, "hooked", False):
            return

        @functools.wraps(step)
        def wrapper(*args):
            return step(*args)

        wrapper.hooked = True
        type(self).step = wrapper


class SGD(Optimizer):
    def step(self):
        pass
