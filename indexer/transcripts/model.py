"""The data classes of a session of any agent: turns, tool calls, results and more. They are frozen, and do no I/O.

A *session* is one conversation in one file. A *turn* is one record of the session. An *exchange* is one prompt and
everything that the agent did until the next prompt.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import field, replace
from enum import StrEnum
from functools import cached_property
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from indexer.lazy_compilation import dataclass
from indexer.masking import NOTHING, Masked, joined

#: The name of an agent, as it is stored and shown. `smart_fork.agents` knows which agents exist.
AgentName = str
#: Maximum number of prompts before an answer that an agent may join to one.
_MAX_PROMPTS = 50
Role = Literal["user", "assistant", "tool", "system"]
#: Who started a session: a person, a script (``claude -p``, an SDK, ``codex exec``), or another session.
Origin = Literal["person", "automated", "subagent"]
#: From what a session's directory was inferred, if no record of the log states it; else empty.
Inferred = Literal["", "environment_context", "commands", "folder", "commit"]


class Proof(StrEnum):
    """The evidence of work in a call's result; most results have none. `FAILED` is a failed test run or commit."""

    NOTHING = ""
    COMMITTED = "committed"
    TESTS_PASSED = "tests_passed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call.

    `action` describes it in one line ("edit src/a.py", "run pytest -q"), and is empty if that would tell nothing.
    `ours` marks a question to smart-fork. `edits` and `reads` are files as the call names them. `lines` has the joined
    hashes of the lines added to each of `edits` (see `line_hashes`). `places` are the paths outside the session's first
    directory where its commands change something.
    """

    id: str
    name: str
    action: Masked = NOTHING
    ours: bool = False
    edits: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    lines: tuple[bytes, ...] = ()
    places: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call, without its output.

    `note` is an exit status or the first line of an error. `errors` are the joined hashes (see `line_hashes`) of its
    error lines, also those of successful tests and commits. `words` are a person's answer, or reason to refuse the
    call. `commit` is the subject of the last commit that the call made.
    """

    tool_use_id: str
    is_error: bool = False
    note: Masked = NOTHING
    proof: Proof = Proof.NOTHING
    errors: bytes = b""
    words: Masked = NOTHING
    commit: Masked = NOTHING


class RecordSize(NamedTuple):
    """The number of characters of a record that the model receives: all, or with results shortened (`short`).

    `sums_up` is True for the summary of a compaction (the agent's shortening of its context).
    """

    characters: int = 0
    short: int = 0
    sums_up: bool = False


class Cache(NamedTuple):
    """Lifetime of a session's cache at the model's provider in `seconds` (0 if unknown), and its last use."""

    seconds: int = 0
    used: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One record of a session: a message, tool calls or tool results.

    `text` is the message without injected text. `prompt` marks a person's own words. `token_est` is the number of
    characters divided by 4. `loaded` is the agent's own count of tokens in its context after this turn, and
    `cached_for` the lifetime of the provider's cache in seconds; both are 0 if unknown. `summary` is the text of a
    compaction (the agent's own shortening of its context). All records of one message of the model have an equal
    `group`. `raw` is the verbatim line, if the reader keeps it. `cwd` is the agent's directory, if it is not the
    session's first one.
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
    cached_for: int = 0
    cwd: str = ""
    summary: Masked = NOTHING

    #: The groups of records that Codex writes twice: as the model's input, and as an event for the screen.
    ITEM: ClassVar = "item"
    EVENT: ClassVar = "event"

    @property
    def message(self) -> str:
        """Return the id of the model's message to which this record belongs; empty if unknown."""
        return "" if self.group in (self.ITEM, self.EVENT) else self.group

    @property
    def speaks(self) -> bool:
        """Return True if the turn has text, calls or results, and is not the system's, such as a trace of a command."""
        return self.role != "system" and bool(self.text or self.tool_calls or self.tool_results)

    @property
    def answer(self) -> Masked:
        """Return a person's words in the tool results of this turn: answers, and reasons to refuse a call."""
        return joined("\n", [result.words for result in self.tool_results if result.words])

    @property
    def spoken(self) -> tuple[Turn, ...]:
        """Return the messages in this turn, each as a turn: its own text, and a person's answer in its tool results."""
        own = (self,) if self.text and self.role in ("user", "assistant") else ()
        return (*own, replace(self, role="user", text=answer)) if (answer := self.answer) else own

    @property
    def sums_up(self) -> bool:
        """Return True for the summary of a compaction, the only kind of system turn with a count of tokens."""
        return self.role == "system" and self.loaded > 0


def turn_of(identity: str, parent: str | None, role: Role, moment: str, text: str = "", **more: Any) -> Turn:
    """Return a turn with an estimated number of tokens. `more` are further fields of `Turn`."""
    return Turn(identity, parent, role, moment, text, estimate_tokens(text, len(more.get("tool_calls", ()))), **more)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A prompt and all turns until the next one. The first exchange of a session may lack a prompt.

    `index` is its number in the session. `start` is an index into ``Session.turns``.
    """

    index: int
    start: int
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class BrokenLine:
    """A line of a log that could not be decoded. It is skipped, counted and reported. `number` counts from 1."""

    path: Path
    number: int
    reason: str


ResumedReason = Literal["", "compaction", "gap", "elsewhere"]


class Resumed(NamedTuple):
    """The turns that the agent's own program loads when it resumes or forks a session: those from `start` on.

    Without a `reason`, it loads all turns. After a compaction (the agent's shortening of its context), it loads the
    summary at `start`, later turns, and the earlier turns that the compaction `kept`. At a gap, where a record was
    never written, it loads only the turns after the gap. Of a session that continued in two folders, it loads the
    common turns and the end of its own log, from `start` on.
    """

    start: int = 0
    reason: ResumedReason = ""
    kept: tuple[int, ...] = ()


@dataclass(frozen=True)
class Session:
    """One conversation: its active chain of turns, oldest first, and the facts in its records.

    Times are ISO 8601 in UTC with ``Z``, or empty.
    """

    agent: AgentName
    session_id: str
    source_path: Path
    turns: tuple[Turn, ...]
    cwd: str = ""
    git_branch: Masked = NOTHING
    title: Masked = NOTHING
    #: Other names, one a line: they are searched, but not shown. `headline` is as in `headline_of`.
    also_called: Masked = NOTHING
    headline: Masked = NOTHING
    version: str = ""
    started: str = ""
    last_activity: str = ""
    origin: Origin = "person"
    #: The session from which this one was forked, if recorded. Sessions with a common beginning share `root_id`.
    parent_id: str | None = None
    root_id: str = ""
    compactions: int = 0
    #: Names of code in the inputs and outputs of its tools, and those in its edits and commands.
    symbols: tuple[str, ...] = ()
    wrote: tuple[str, ...] = ()
    #: The log is a copy of the original log.
    copied: bool = False
    #: A person gave the title, as far as the log tells.
    named: bool = False
    #: Records name each other as parents, so that they are in the file's order.
    circular: bool = False
    #: A person stopped the last work of the agent.
    interrupted: bool = False
    inferred_from: Inferred = ""
    #: The commit at which the session began: `head` only if `cwd` is missing or inferred.
    head: str = ""
    begun_at: str = ""
    #: The URL of the repository, and the last commits that the session made, with shortened names.
    remote: str = ""
    commits: tuple[str, ...] = ()
    #: The models that answered, in order.
    models: tuple[Masked, ...] = ()
    #: The index of the first turn of a fork that its parent does not have.
    own: int = 0
    #: The number of bytes at the end of a very large log that were not read.
    unread: int = 0
    resumed: Resumed = Resumed()
    #: The sizes of the records, with the numbers of their turns, if the session is read to be measured (see `bounded`).
    sizes: tuple[tuple[int, RecordSize], ...] = field(default=(), compare=False, repr=False)
    #: Another person wrote the session, and a repository keeps it.
    received: bool = False
    #: It began outside the project of the search: its title describes its work in that project.
    guest: bool = False

    def exchanges(self) -> tuple[Exchange, ...]:
        """Return the turns grouped into exchanges. Turns before the first prompt form one as well."""
        starts = [i for i, turn in enumerate(self.turns) if turn.prompt or i == 0]
        parts = pairwise((*starts, len(self.turns)))
        return tuple(Exchange(index, start, self.turns[start:end]) for index, (start, end) in enumerate(parts))

    def turns_in(self, exchanges: Collection[int]) -> tuple[Turn, ...]:
        """Return the turns of the exchanges (prompts with their answers) with these numbers."""
        return tuple(turn for one in self.exchanges() if one.index in exchanges for turn in one.turns)

    @property
    def token_estimate(self) -> int:
        """Return about how many tokens a fork of the whole session loads, also turns before a gap in the log."""
        return self.loads()[-1] if self.resumed.start < len(self.turns) else self.instructions

    @cached_property
    def instructions(self) -> int:
        """Return about how many tokens the agent's system prompt and tools take: its first count minus the messages."""
        said = 0
        for turn in self.turns:
            said += turn.token_est
            if turn.loaded:
                return max(0, turn.loaded - said)
        return 0

    def loads(self) -> tuple[int, ...]:
        """Return for each turn about how many tokens a copy up to this turn loads.

        This is the agent's last count, plus an estimate for the turns since. After a gap in the log (a record that was
        never written), the agent counts only later turns, but a copy also has the turns before the gap.
        """
        own, (start, reason, _), total, loads = self.instructions, self.resumed, 0, list[int]()
        before = max((turn.loaded for turn in self.turns[:start]), default=0) if reason == "gap" else 0
        left_out = before - own if next((t.loaded for t in self.turns[start:] if t.loaded), before) < before else 0
        for at, turn in enumerate(self.turns):
            total = own if at == start and reason == "compaction" else total
            if turn.sums_up:  # what is much less has no instructions in it
                total = turn.loaded + (own if 2 * turn.loaded < own else 0)
            else:
                total = turn.loaded + (left_out if at >= start else 0) if turn.loaded else total + turn.token_est
            loads.append(total)
        return tuple(loads)

    def compacted(self, end: int | None = None) -> int:
        """Return how many turns a compaction (the agent's shortening of its context) drops from a fork up to `end`."""
        if end is None and self.resumed.kept:
            return self.resumed.start - len(self.resumed.kept)
        return max((start for start in self._compactions() if end is None or start <= end), default=0)

    def _compactions(self) -> list[int]:
        """Return the indexes of the turns that are summaries of compactions (an agent's shortening of its context)."""
        last = {self.resumed.start} if self.resumed.reason == "compaction" else set()
        return sorted(last.union(i for i, turn in enumerate(self.turns) if turn.sums_up))

    @property
    def beginnings(self) -> tuple[str, ...]:
        """Return the ids of turns with which forks of this session may begin. They show that a session is its fork.

        A fork begins with the turns that the agent loads. Several prompts before an answer may have become one. Ids
        that many sessions share are dropped: numbers, and the id of an agent's own first message.
        """
        found = [self.root_id]
        for start in sorted({0, self.resumed.start, *self._compactions()}):
            run = [turn for turn in self.turns[start : start + _MAX_PROMPTS] if turn.role != "system" or turn.sums_up]
            found += [turn.id for turn in (*run[:1], *takewhile(lambda turn: turn.role != "assistant", run))]
        return tuple(dict.fromkeys(one for one in found if one and not one.isdigit()))

    def cache(self, end: int | None = None) -> Cache:
        """Return how long and since when the provider caches the session, or its turns up to `end`, as the log tells.

        The last use is the time of the turn before the last answer, when the request was sent. If turns are missing in
        the log, the cache is unknown: the provider has cached turns that a fork of this log would not send.
        """
        if self.resumed.reason == "gap" and (end is None or end >= self.resumed.start):
            return Cache()
        turns = self.turns if end is None else self.turns[: end + 1]
        last = next((turn for turn in reversed(turns) if turn.loaded), None)
        if last is None or not last.cached_for:
            return Cache()
        first = next(i for i, turn in enumerate(turns) if turn is last or (last.group and turn.group == last.group))
        return Cache(last.cached_for, (turns[first - 1].timestamp if first else "") or last.timestamp)

    @property
    def unfinished(self) -> bool:
        """Return True if the session ends with an unanswered prompt, an error, a call or an interruption."""
        spoken = next((turn for turn in reversed(self.turns) if turn.speaks), None)
        done = spoken is not None and spoken.role == "assistant" and bool(spoken.text) and not spoken.tool_calls
        return self.interrupted or not done

    def branch_points(self) -> tuple[int, ...]:
        """Return the indexes of the turns after which the session can be forked: final answers, while no call waits."""
        following = dict(pairwise(i for i, turn in enumerate(self.turns) if turn.speaks))
        return tuple(
            index
            for index in self.pairs()
            if (turn := self.turns[index]).role == "assistant" and turn.text and not turn.tool_calls
            and (index not in following or self.turns[following[index]].prompt)
        )  # fmt: skip

    def pairs(self) -> tuple[int, ...]:
        """Return the indexes of turns that complete a pair: an answer, or a call's result while no other call waits.

        A copy of the session that ends at such a turn has only complete pairs.
        """
        points = []
        waiting: set[str] = set()
        for index, turn in enumerate(self.turns):
            if turn.prompt or (index == self.resumed.start and self.resumed.reason in ("gap", "elsewhere")):
                waiting.clear()  # what was interrupted and gone on from, or never written, is not waited for any more
            waiting.update(call.id for call in turn.tool_calls)
            waiting.difference_update(result.tool_use_id for result in turn.tool_results)
            if not waiting and (turn.tool_results or (turn.role == "assistant" and turn.text)):
                points.append(index)
        return tuple(points)

    def ends(self) -> tuple[int | None, ...]:
        """Return for each turn the last turn of its exchange (a prompt with its answer) after which one can fork.

        For the last exchange, this is `None`: a fork there has the whole session. For a turn before a compaction (the
        agent's shortening of its context), it is at most the last complete pair (see `pairs`) before it: later turns no
        longer have the turn in their context.
        """
        last_prompt = max((i for i, turn in enumerate(self.turns) if turn.prompt), default=0)
        points = [point for point in self.branch_points() if point < last_prompt]
        ends = [
            points[i] if (i := bisect_left(points, turn)) < len(points) else None for turn in range(len(self.turns))
        ]
        pairs = self.pairs()
        for before, start in pairwise((0, *self._compactions())):
            last = bisect_left(pairs, start) - 1
            for turn in range(before, pairs[last] + 1 if last >= 0 else before):
                if (end := ends[turn]) is None or end >= start:
                    ends[turn] = pairs[last]
        return tuple(ends)

    @property
    def messages(self) -> tuple[tuple[int, Turn], ...]:
        """Return the turns that a reader sees, as ``show`` and ``--at`` number them: (index in `turns`, turn)."""
        return tuple((i, one) for i, turn in enumerate(self.turns) for one in turn.spoken)


def estimate_tokens(text: str, calls: int = 0) -> int:
    """Return about how many tokens a text and its tool calls have: one for four characters, eight for each call."""
    return -(-len(text) // 4) + 8 * calls


class UsedTool(NamedTuple):
    """A tool call as the log has it: its id, the tool's name, and the tool's input."""

    id: str
    name: str
    given: Mapping[str, Any] | str | Any


class GivenBack(NamedTuple):
    """The result of a tool call as the log has it. The output of a shell begins with the exit status.

    `patch` has the changes of an edit as a unified diff.
    """

    id: str
    output: str
    failed: bool = False
    patch: str = ""


class Item(NamedTuple):
    """The content of a log's record: text, calls, results, thoughts ("" if encrypted), and the number of images."""

    text: str = ""
    calls: tuple[UsedTool, ...] = ()
    results: tuple[GivenBack, ...] = ()
    thoughts: tuple[str, ...] = ()
    images: int = 0
