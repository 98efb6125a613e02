"""NumPy, imported so that it computes with one thread, unless the environment sets the number of threads.

smart-fork's arrays are small. On a busy processor, several threads that wait for each other take ten times as long. The
variable is only set while NumPy is loaded, so that programs started by smart-fork do not inherit it.
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
