"""Switches that a person sets in the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

_ON = frozenset({"1", "true", "yes", "on"})
_OFF = frozenset({"0", "false", "no", "off"})


def is_on(name: str, environment: Mapping[str, str] | None = None) -> bool:
    """Whether variable `name` says ``1``, ``true``, ``yes`` or ``on``, in any case; left out it does not."""
    environment = os.environ if environment is None else environment
    return environment.get(name, "").strip().lower() in _ON


def is_off(name: str, environment: Mapping[str, str] | None = None) -> bool:
    """Whether variable `name` says ``0``, ``false``, ``no`` or ``off``, in any case; left out it does not."""
    environment = os.environ if environment is None else environment
    return environment.get(name, "").strip().lower() in _OFF
