"""NumPy, imported so that it computes with one thread, unless the environment sets the number of threads.

The arrays here are small. Threads that wait for each other take ten times as long on a busy processor. NumPy reads the
environment variable when it is loaded, and programs that we start must not inherit the variable.
"""

from __future__ import annotations

import os

_THREADS = "OPENBLAS_NUM_THREADS"
_unset = _THREADS not in os.environ
os.environ.setdefault(_THREADS, "1")
try:
    import numpy as np
finally:
    if _unset:
        del os.environ[_THREADS]

__all__ = ["np"]
