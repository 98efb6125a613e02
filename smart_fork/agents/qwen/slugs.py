"""The names of the folders in which Qwen Code keeps its sessions: one for each working directory."""

from __future__ import annotations

import os
import re
from pathlib import Path

_OTHER = re.compile(r"[^a-zA-Z0-9]")


def slug(path: str) -> str:
    """The folder name that Qwen Code gives a working directory. Lossy: never decode it.

    It counts UTF-16 units, so a character beyond the first plane is two of them.
    """
    resolved = os.path.realpath(path) if Path(path).is_absolute() else path
    return _OTHER.sub(lambda found: "-" * (1 + (found[0] > "\uffff")), resolved)
