"""A model that could not be loaded, remembered: to try again takes long, and nothing has changed meanwhile."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import orjson

from indexer.files import replace_file
from indexer.paths import private_dir, state_home

#: So long it is not tried again, unless the settings change or somebody asks for it (`doctor`, `index run`).
HOLDS_SECONDS = 3600.0
#: What decides where a model comes from, beside its name.
_SETTINGS = ("HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HTTPS_PROXY", "SENTENCE_TRANSFORMERS_HOME")


def remembered(model: str) -> str:
    """Why `model` could not be loaded a while ago, with the settings of now; empty where that is not known."""
    try:
        note = orjson.loads(_path().read_bytes())
        holds = note["settings"] == _settings(model) and 0 <= time.time() - note["at"] < HOLDS_SECONDS
        return str(note["why"]) if holds else ""
    except (OSError, ValueError, TypeError, KeyError):
        return ""


def remember(model: str, why: str) -> None:
    """`model` could not be loaded. Where nothing can be kept it is tried again each time."""
    with suppress(OSError):
        private_dir(state_home())
        note = {"settings": _settings(model), "why": why, "at": time.time()}
        replace_file(_path(), [orjson.dumps(note)], durable=False)


def forget() -> None:
    """Let it be tried again."""
    with suppress(OSError):
        _path().unlink(missing_ok=True)


def _settings(model: str) -> list[str]:
    return [model, *(os.environ.get(name, "") for name in _SETTINGS)]


def _path() -> Path:
    return state_home() / "model-missing.json"
