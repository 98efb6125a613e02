"""NumPy with one thread, unless the environment says how many.

What is multiplied here is small: threads that wait for one another take ten times as long where the processor is busy.
The setting is read when NumPy is loaded; programs that we start must not inherit it.
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
