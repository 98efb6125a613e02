"""What a conversation is, whichever agent wrote it: frozen values, no I/O.

A *session* is one conversation in one file. A *turn* is one record of it. An *exchange* is one thing the person asked
and everything the agent did until the next.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

Agent = Literal["claude", "codex"]
Role = Literal["user", "assistant", "tool", "system"]
#: Who started a session: a person, a script (``claude -p``, an SDK, ``codex exec``), or another session.
Origin = Literal["person", "automated", "subagent"]

PREVIEW_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One action of the agent. `action` is one line ("edit src/a.py", "run pytest -q"), empty if it says nothing."""

    id: str
    name: str
    action: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came back from a call. `note` is an exit status or the first line of an error, never the output itself."""

    tool_use_id: str
    is_error: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One record of a session (E-001).

    `text` is what was said, without injected boilerplate. `prompt` is true for a person's own words. `token_est` is
    about characters / 4 (E-004). `loaded` is how many tokens the agent says it had in its context after this turn, 0
    where it says nothing. Records of one message of the model share `group`. `raw` is the verbatim line without its
    newline, only where the reader was asked to keep it.
    """

    id: str
    parent_id: str | None
    role: Role
    timestamp: str
    text: str = ""
    token_est: int = 0
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    prompt: bool = False
    group: str = ""
    raw: bytes = b""
    loaded: int = 0

    @property
    def preview(self) -> str:
        """About 120 characters on one line, cut between characters (E-003)."""
        parts = [self.text]
        parts += [f"[tool_use: {call.name}]" for call in self.tool_calls]
        parts += [f"[tool_result] {result.note}" for result in self.tool_results]
        return shorten(" ".join(parts), PREVIEW_CHARACTERS)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A prompt and everything until the next; the first may lack a prompt. `start` indexes ``Session.turns``."""

    index: int
    start: int
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class BrokenLine:
    """A line that could not be decoded: kept out, counted and reported. `number` counts from 1."""

    path: Path
    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation: its active chain of turns, oldest first, and what its records say about it.

    `root_id` names the family: sessions that share a beginning share it. `parent_id` is the session it was forked from,
    where that is recorded. `symbols` are names of code that its tools were given or gave back.
    Times are ISO 8601 in UTC with ``Z``, or empty.
    """

    agent: Agent
    session_id: str
    source_path: Path
    turns: tuple[Turn, ...]
    cwd: str = ""
    git_branch: str = ""
    title: str = ""
    version: str = ""
    started: str = ""
    last_activity: str = ""
    origin: Origin = "person"
    parent_id: str | None = None
    root_id: str = ""
    compactions: int = 0
    symbols: tuple[str, ...] = ()

    def exchanges(self) -> tuple[Exchange, ...]:
        """The turns grouped by what the person asked; turns before the first prompt form an exchange of their own."""
        starts = [i for i, turn in enumerate(self.turns) if turn.prompt]
        if self.turns and (not starts or starts[0] != 0):
            starts.insert(0, 0)
        ends = [*starts[1:], len(self.turns)]
        return tuple(
            Exchange(index, start, self.turns[start:end])
            for index, (start, end) in enumerate(zip(starts, ends, strict=True))
        )

    @property
    def token_estimate(self) -> int:
        """About how many tokens resuming it loads (since the last compaction)."""
        return self.loads()[-1] if self.turns else 0

    def loads(self) -> tuple[int, ...]:
        """For each turn, about how many tokens going on after it loads: as last recorded, and what came since."""
        total = 0
        return tuple(total := turn.loaded or total + turn.token_est for turn in self.turns)

    def branch_points(self) -> tuple[int, ...]:
        """The turns after which the session can go on differently (B-074).

        Nothing waits for a tool's answer there, and the agent has said its last word on what it was asked.
        """
        points = []
        waiting: set[str] = set()
        # A record that says and does nothing, such as what a command of the agent's own leaves, parts nothing.
        spoken = [
            i for i, t in enumerate(self.turns) if t.role != "system" and (t.text or t.tool_calls or t.tool_results)
        ]
        following = dict(pairwise(spoken))
        for index, turn in enumerate(self.turns):
            if turn.prompt:  # what was interrupted and gone on from is not waited for any more
                waiting.clear()
            waiting.update(call.id for call in turn.tool_calls)
            waiting.difference_update(result.tool_use_id for result in turn.tool_results)
            finished = turn.role == "assistant" and bool(turn.text) and not turn.tool_calls and not waiting
            if finished and (index not in following or self.turns[following[index]].prompt):
                points.append(index)
        return tuple(points)

    def ends(self) -> tuple[int | None, ...]:
        """For each turn, the branch point that ends what it belongs to; `None` where that is the session's own end."""
        last_prompt = max((i for i, turn in enumerate(self.turns) if turn.prompt), default=0)
        points = [point for point in self.branch_points() if point < last_prompt]
        return tuple(
            points[i] if (i := bisect_left(points, turn)) < len(points) else None for turn in range(len(self.turns))
        )

    @property
    def messages(self) -> tuple[tuple[int, Turn], ...]:
        """What a reader sees, as ``show`` and ``--at`` number it: (index into `turns`, turn) of each spoken turn."""
        return tuple((i, t) for i, t in enumerate(self.turns) if t.text and t.role in ("user", "assistant"))


def shorten(text: str, limit: int) -> str:
    """`text` on one line, white space collapsed, at most `limit` characters with an ellipsis at a cut."""
    line = " ".join(text[: limit * 8].split())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."


def estimate_tokens(text: str, calls: int = 0) -> int:
    """About four characters a token, and eight tokens more for each tool call (E-004)."""
    return -(-len(text) // 4) + 8 * calls
