"""onnxruntime, which is told to keep what it does to itself.

Its builds report to their maker whatever is loaded with them, and keep a file in the person's home for it, unless the
environment forbids that while it is loaded. We promise that nothing leaves this machine, so it is forbidden whatever
the environment says. Programs that we start must not inherit that.
"""

from __future__ import annotations

import os

from indexer.arrays import np  # before onnxruntime loads it with as many threads as it likes

_SWITCH = "ORT_DISABLE_TELEMETRY"
_before = os.environ.get(_SWITCH)
os.environ[_SWITCH] = "1"
try:
    import onnxruntime  # noqa: TID251 - the one place
finally:
    if _before is None:
        del os.environ[_SWITCH]
    else:
        os.environ[_SWITCH] = _before

__all__ = ["np", "onnxruntime"]
