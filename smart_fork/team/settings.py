"""``[team]`` in ``<SMART_FORK_HOME>/config.toml``: what a person has settled once of what leaves this machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smart_fork.config import section
from smart_fork.errors import Usage
from smart_fork.snippets import quoted

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
    given = section("team")
    if not given:
        return Sharing()
    from pydantic import ValidationError  # a tenth of a second, for whoever has settled something

    from smart_fork.team.written import SharingSection

    try:
        found = SharingSection.model_validate(given)
    except ValidationError as error:
        raise Usage(_said(error.errors(include_url=False)[0], list(SharingSection.model_fields)), _EXAMPLE) from None
    for pattern in found.redact:
        _check(pattern)
    never = tuple(Path(one).expanduser().resolve() for one in found.never)
    return Sharing(never, found.redact, found.allow, found.auto_fork)


def _check(pattern: str) -> None:
    try:
        empty = re.compile(pattern).fullmatch("")
    except re.error as error:
        raise Usage(f"[team] redact: {quoted(pattern)} is no pattern: {error}", _EXAMPLE) from error
    if empty:
        raise Usage(f"[team] redact: {quoted(pattern)} matches nothing at all", _EXAMPLE)


def _said(error: Any, names: list[str]) -> str:
    """What is wrong in a sentence of ours."""
    field = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"[team] has no {quoted(field)}; it may have {', '.join(names)}"
    return f"[team] {quoted(field)} cannot be {quoted(repr(error['input']))}: {error['msg'].lower()}"
