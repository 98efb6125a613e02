"""A model that could not be loaded, remembered: to try again takes long, and nothing has changed meanwhile."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from indexer import state

_NAME = "missing model"
#: So long it is not tried again, unless the settings change or somebody asks for it (`doctor`, `index run`).
HOLDS_SECONDS = 3600.0
#: What decides where a model comes from, beside its name.
_SETTINGS = ("HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HTTPS_PROXY", "SENTENCE_TRANSFORMERS_HOME")


def remembered(model: str) -> str:
    """Why `model` could not be loaded a while ago, with the settings of now; empty where that is not known."""
    try:
        note = state.fact(_NAME)
    except OSError:
        return ""
    holds = note and note["settings"] == _settings(model) and 0 <= time.time() - note["at"] < HOLDS_SECONDS
    return str(note["why"]) if holds else ""


def remember(model: str, why: str) -> None:
    """`model` could not be loaded. Where nothing can be kept it is tried again each time."""
    with suppress(OSError):
        state.keep(_NAME, {"settings": _settings(model), "why": why, "at": time.time()})


def forget() -> None:
    """Let it be tried again."""
    with suppress(OSError):
        state.keep(_NAME, None)


def _settings(model: str) -> list[str]:
    return [model, *(os.environ.get(name, "") for name in _SETTINGS)]
