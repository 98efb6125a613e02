"""Repositories as `git` makes them, copied from one that it has made: a copy takes a seventh of a processor's time."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []
INIT = ("init", "-q", "-b", "main")


@cache
def _made(text: str, commands: tuple[tuple[str, ...], ...], _settings: frozenset[tuple[str, str]]) -> Path:
    _FOLDERS.append(tempfile.TemporaryDirectory(prefix="smart-fork-test-"))
    folder = Path(_FOLDERS[-1].name)
    if text:
        (folder / "README.md").write_text(text)
    for words in commands:
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    for sample in folder.glob(".git/hooks/*.sample"):
        sample.unlink()
    return folder


def make_repository(folder: Path, *commands: tuple[str, ...], readme: str = "") -> None:
    """Fill a folder with what these commands of git make in an empty one, or one with that ``README.md``.

    The same commands make the same commits, of the same second.
    """
    settings = frozenset((name, value) for name, value in os.environ.items() if name.startswith("GIT_"))
    shutil.copytree(_made(readme, commands, settings), folder, symlinks=True, dirs_exist_ok=True)
