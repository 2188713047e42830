# SPDX-License-Identifier: Apache-2.0
"""As much of torch as finding steps looks at, for tests that need an interpreter and no numbers: it is imported in
milliseconds, and by every CPython."""

_gradients = [True]


def is_grad_enabled():
    return _gradients[-1]


class no_grad:
    def __enter__(self):
        _gradients.append(False)

    def __exit__(self, *exc_info):
        _gradients.pop()


from torch import autograd, cuda, nn, optim  # noqa: E402,F401
