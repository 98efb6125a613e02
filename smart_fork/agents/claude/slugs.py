"""The names of the folders in which Claude Code keeps its sessions: one for each working directory."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

_SLUG_CHARACTERS = 200


def slug(path: str) -> str:
    """The folder name that Claude Code gives a working directory. Lossy: never decode it."""
    resolved = unicodedata.normalize("NFC", os.path.realpath(path) if Path(path).is_absolute() else path)
    units = resolved.encode("utf-16-be", "surrogatepass")
    pairs = [units[i] << 8 | units[i + 1] for i in range(0, len(units), 2)]
    name = "".join(chr(u) if u < 128 and chr(u).isalnum() else "-" for u in pairs)
    if len(name) <= _SLUG_CHARACTERS:
        return name
    number = 0
    for unit in pairs:
        number = (number * 31 + unit) & 0xFFFFFFFF
    signed = number - (1 << 32) if number & 0x80000000 else number
    return f"{name[:_SLUG_CHARACTERS]}-{_base36(abs(signed))}"


def _base36(number: int) -> str:
    digits = ""
    while True:
        number, rest = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[rest] + digits
        if not number:
            return digits


def unslugged(name: str) -> str:
    """A slug taken back to a path, where that folder exists: the last resort for a log without any ``cwd``."""
    guess = name.replace("-", "/")
    return guess if guess.startswith("/") and Path(guess).is_dir() else ""
