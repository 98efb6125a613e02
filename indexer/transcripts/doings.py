"""What the calls of a session did, whichever agent made them: files, symbols, command lines and how they ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from sys import intern
from types import MappingProxyType
from typing import Any, ClassVar

from indexer.masking import NOTHING, Masked, mask
from indexer.transcripts.actions import (
    describe,
    describe_raw,
    edited_by,
    error_note,
    lines_by,
    read_by,
    status_and_body,
    succeeded,
    writes,
)  # fmt: skip
from indexer.transcripts.authored import key_in_use
from indexer.transcripts.commands import command_of
from indexer.transcripts.deeds import Deeds, commits_made, pushed_to
from indexer.transcripts.error_lines import hashed, telling
from indexer.transcripts.items import GivenBack, UsedTool
from indexer.transcripts.model import Proof, ToolCall, ToolResult
from indexer.transcripts.ours import is_ours, runs_ours
from indexer.transcripts.symbols import Symbols

#: So many of a session's last commits are enough to recognize its repository by.
_MOST_COMMITS = 16


class Doings:
    """Calls and results as they are read. `facts` are those of an earlier reading; what is kept here leaves them.

    `runs` is the tool that runs command lines, `None` if several do. `not_run` are beginnings of results of calls that
    were not carried out. `opens_a_session` tells if the line of an action names a log: its reader reads more of our
    answer.
    """

    #: `True` if names are noted of all calls, also of those without an action.
    thorough: ClassVar[bool] = False

    def __init__(
        self, facts: dict[str, Any], *, runs: str | None, not_run: tuple[str, ...],
        opens_a_session: Callable[[str], bool], tools: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self._runs, self._opens, self._tools, self._not_run = runs, opens_a_session, tools, not_run
        self.symbols, self.wrote = Symbols(facts.pop("symbols", ())), Symbols(facts.pop("wrote", ()))
        self.ours: set[str] = set(facts.pop("ours", ()))
        self.deeds = Deeds(facts.pop("deeds", None), not_run=not_run)
        self.commits: list[str] = facts.pop("commits", [])
        self.remote: str = facts.pop("pushed_to", "")

    def kept(self) -> dict[str, Any]:
        """Return the facts from which a later reading continues."""
        known = {"symbols": list(self.symbols), "ours": sorted(self.ours), "wrote": list(self.wrote)}
        return known | {"deeds": self.deeds.kept(), "commits": self.commits, "pushed_to": self.remote}

    def calls(self, made: Iterable[UsedTool]) -> tuple[ToolCall, ...]:
        """Note these calls."""
        return tuple(map(self.call, made))

    def described(self, name: str, given: object) -> Masked:
        """Return the action line of a call. A text that a tool is given is known if it is a patch."""
        if isinstance(given, str):
            return describe_raw(name, given) if edited_by(name, given) else NOTHING
        return describe(name, given) if given and isinstance(given, dict) else NOTHING

    def call(self, made: UsedTool, *, ours: bool = False) -> ToolCall:
        """Note a call; `ours` if it asks smart-fork, whatever its tool is called."""
        identity, name, arguments = intern(made.id), intern(made.name), made.given
        known_as = self._tools.get(name, name)
        given = arguments if isinstance(arguments, dict | str) else {}
        edits, reads = edited_by(known_as, given), read_by(known_as, given)
        action = NOTHING if ours else self.described(known_as, given)
        ours = ours or is_ours(name) or runs_ours(arguments)
        if ours or self._opens(action):
            self.ours.add(identity)
        elif action or self.thorough:
            self.symbols.add_all(arguments)
            if writes(edits, given):
                self.wrote.add_all(arguments)
        if not ours and self._runs in (name, None):
            self.begin(made)
        return ToolCall(identity, name, action, ours, edits, reads, lines_by(known_as, given) if edits else ())

    def begin(self, made: UsedTool) -> None:
        """Note the command line of a call."""
        if isinstance(made.given, dict):
            self.deeds.begin(made.id, command_of(made.given))

    def end(self, back: GivenBack) -> Proof:
        """Return what the result of a call proves."""
        return self.deeds.end(back.id, back.output, said=not back.failed)

    def results(self, given_back: Iterable[GivenBack]) -> tuple[ToolResult, ...]:
        """Note these results."""
        return tuple(map(self.result, given_back))

    def result(self, back: GivenBack) -> ToolResult:
        """Note the result of a call."""
        identity, note, proof, errors = intern(back.id), NOTHING, Proof.NOTHING, b""
        if identity not in self.ours:
            self.symbols.add(back.output)
            note = error_note(back.output) if back.failed else NOTHING
            tried = back.id in self.deeds
            proof = self.end(back)
            errors = self._errors(back, proof, tried=tried)
            if proof == Proof.COMMITTED:
                self.commits = [*self.commits, *commits_made(back.output)][-_MOST_COMMITS:]
            self.remote = mask(pushed_to(back.output)) or self.remote
        return ToolResult(identity, back.failed, note, proof, errors)

    def _errors(self, back: GivenBack, proof: Proof, *, tried: bool) -> bytes:
        """The hashes of what went wrong. `tried` is a test or a commit: what it prints when all is well is no error."""
        key = key_in_use()
        if not key or not (tried or back.failed or proof is Proof.FAILED):
            return b""
        if back.failed and succeeded(back.output, said=False, not_run=self._not_run) is None:
            return b""
        return b"".join(hashed(telling(status_and_body(back.output)[1]), key))
