"""``[team]`` in ``<SMART_FORK_HOME>/config.toml``: what a person has settled once of what leaves this machine."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from smart_fork import config
from smart_fork.errors import Usage
from smart_fork.text.snippets import quoted

_EXAMPLE = 'Such as: [team] never = ["~/private"], redact = ["ACME-[0-9]{6}"], allow = ["test-token-1"].'


def settings() -> config.TeamSection:
    """What is written there.

    Raises:
        Usage: The file is no TOML, has a name that is not known, or a value that is none.
    """
    found = config.team()
    for pattern in found.redact:
        _check(pattern)
    return replace(found, never=tuple(str(Path(one).expanduser().resolve()) for one in found.never))


def _check(pattern: str) -> None:
    try:
        empty = re.compile(pattern).fullmatch("")
    except re.error as error:
        raise Usage(f"[team] redact: {quoted(pattern)} is not a pattern: {error}", _EXAMPLE) from error
    if empty:
        raise Usage(f"[team] redact: {quoted(pattern)} matches the empty text", _EXAMPLE)
