"""``[team]`` in ``<SMART_FORK_HOME>/config.toml``: what a person has settled once of what leaves this machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from smart_fork import config
from smart_fork.errors import Usage
from smart_fork.text.snippets import quoted

_EXAMPLE = 'Such as: [team] never = ["~/private"], redact = ["ACME-[0-9]{6}"], allow = ["test-token-1"].'


@dataclass(frozen=True, slots=True)
class Sharing:
    """What never leaves, what is masked beside secrets, and what looks like a secret and is none.

    `never` are directories: no session that was in or below one is shared. `redact` are patterns, `allow` are texts.
    `auto_fork` lets a tool fork what teammates have shared without asking.
    """

    never: tuple[Path, ...] = ()
    redact: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    auto_fork: bool = False


def settings() -> Sharing:
    """What is written there.

    Raises:
        Usage: The file is no TOML, has a name that is not known, or a value that is none.
    """
    found = config.team()
    for pattern in found.redact:
        _check(pattern)
    never = tuple(Path(one).expanduser().resolve() for one in found.never)
    return Sharing(never, found.redact, found.allow, found.auto_fork)


def _check(pattern: str) -> None:
    try:
        empty = re.compile(pattern).fullmatch("")
    except re.error as error:
        raise Usage(f"[team] redact: {quoted(pattern)} is not a pattern: {error}", _EXAMPLE) from error
    if empty:
        raise Usage(f"[team] redact: {quoted(pattern)} matches the empty text", _EXAMPLE)
