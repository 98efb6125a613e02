"""The version of smart-fork that runs, and the one that is installed. An upgrade changes only the installed version."""

from __future__ import annotations

import json
import os
from functools import cache
from importlib.metadata import Distribution, distribution, version
from typing import NamedTuple

_NAME = "smart-fork"


class Release(NamedTuple):
    """An installed version of smart-fork. `stamp` changes if the same version is installed again."""

    version: str
    stamp: tuple[int, ...] = ()

    @classmethod
    def installed(cls) -> Release | None:
        """Read the version of smart-fork that is installed now; `None` if there is none, or an incomplete one."""
        try:
            found = distribution(_NAME)
            origin = json.loads(found.read_text("direct_url.json") or "{}")
            # The files of an editable installation change during development.
            return cls(found.version, () if origin.get("dir_info", {}).get("editable") else _stamp(found))
        except Exception:  # noqa: BLE001 - half of an installation fails in many ways; it is looked at again
            return None


@cache
def own_version() -> str:
    """Return the version of smart-fork that this process runs. It is read once: an upgrade changes the files."""
    return version(_NAME)


def _stamp(found: Distribution) -> tuple[int, ...]:
    metadata = next((file for file in found.files or () if file.name == "METADATA"), None)
    if metadata is None:
        return ()
    there = os.stat(str(found.locate_file(metadata)))  # noqa: PTH116 - it need not be a path of the file system
    return there.st_mtime_ns, there.st_ino, there.st_size
