"""In which directory the commands of a session ran, where its log does not say where it was begun."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from indexer.transcripts.actions import KEEPS_ITS_PLACE, SHELLS
from indexer.transcripts.commands import command_of
from indexer.transcripts.state import is_path

#: A shell that stays from one call to the next may be anywhere.
_SHELLS = SHELLS - {KEEPS_ITS_PLACE} | {"local_shell_call"}
#: The directory that a command goes to before all else, as a plain word: nothing is expanded.
_CD = re.compile(
    r"""\s*cd\s+(?:--\s+)?(?:"(?P<a>/[^"$`\\\n]*)"|'(?P<b>/[^'\n]*)'|(?P<c>/[^\s;&|"'$`\\*?~()<>\[\]{}]*))\s*(?:&&|;|\n|$)"""
)
#: Different directories remembered; with more the commands of a session agree on none.
_MOST = 20


class Directories:
    """Counts the shell commands of a session, and where they ran. `packed` is what can be kept of it as JSON."""

    def __init__(self, packed: Mapping[str, Any] | None = None) -> None:
        self.packed: dict[str, Any] = dict(packed or {"commands": 0, "ran_in": {}})

    def note(self, tool: str, arguments: object) -> None:
        """One call of a tool."""
        if tool not in _SHELLS or not isinstance(arguments, dict):
            return
        self.packed["commands"] += 1
        where, ran_in = _directory(arguments), self.packed["ran_in"]
        if where and (where in ran_in or len(ran_in) < _MOST):
            ran_in[where] = ran_in.get(where, 0) + 1

    def agreed(self) -> str:
        """The directory in or below which all ran that name one, if those are most of all; else empty."""
        ran_in: Mapping[str, int] = self.packed["ran_in"]
        if not ran_in or 2 * sum(ran_in.values()) <= self.packed["commands"]:
            return ""
        top = min(ran_in, key=lambda path: (path.count("/"), path))
        return top if all(path == top or path.startswith(f"{top}/") for path in ran_in) and top != "/" else ""


def _directory(arguments: dict[str, Any]) -> str:
    """Where a command runs, as an absolute path without ``..``; empty where the call does not say so."""
    goes_to = _CD.match(command_of(arguments)[:2000])
    given = next(filter(None, goes_to.groups()), "") if goes_to else arguments.get("workdir") or arguments.get("cwd")
    return os.path.normpath(given) if is_path(given) and given.startswith("/") else ""
