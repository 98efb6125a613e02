"""The data classes of a session: turns, tool calls, results and more, for any agent. They are frozen, and do no I/O.

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

from indexer.lazy import dataclass
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
    """The evidence that a call's result gives about the work: a commit, passed tests, or a failure.

    Most results give none. `FAILED` is a failed test run or commit.
    """

    NOTHING = ""
    COMMITTED = "committed"
    TESTS_PASSED = "tests_passed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call.

    `action` describes it in one line ("edit src/a.py", "run pytest -q"), and is empty if that would tell nothing.
    `ours` is True for a question to smart-fork. `edits` and `reads` are the files to edit and to read, as the call
    names them. `lines` are the hashes of the lines that it adds to each of `edits`, if lines are hashed (see
    `noting`). `places` are directories outside the session's first one in which its commands do more than look.
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

    `note` is an exit status or the first line of an error. `errors` are the joined hashes of its error lines, if lines
    are hashed (see `noting`). They come from failed calls, and from successful tests and commits, which print such
    lines as well. `words` are a person's answer to the agent's question, or a person's reason to refuse the call.
    `commit` is the subject of the last commit that the call made.
    """

    tool_use_id: str
    is_error: bool = False
    note: Masked = NOTHING
    proof: Proof = Proof.NOTHING
    errors: bytes = b""
    words: Masked = NOTHING
    commit: Masked = NOTHING


class RecordSize(NamedTuple):
    """Number of characters of a record that the model receives, in full and with shortened results.

    `sums_up` marks the summary of a compaction (the agent's own shortening of its context).
    """

    characters: int = 0
    short: int = 0
    sums_up: bool = False


class Cache(NamedTuple):
    """Lifetime of a session's cache at the model's provider, in `seconds`, and the time when the cache was last used.

    Both come from the log. `seconds` is 0 if the log does not say it.
    """

    seconds: int = 0
    used: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One record of a session: a message, tool calls or tool results.

    `text` is the message without injected text. `prompt` is True for a person's own words. `token_est` is the number
    of characters divided by 4. `loaded` is the agent's own count of tokens in its context after this turn; 0 if
    unknown. `cached_for` is the lifetime of the provider's cache in seconds; 0 if unknown. `summary` is the text of a
    compaction (the agent's own shortening of its context). All records of one message of the model have the same
    `group`. `raw` is the verbatim line without its newline, if the reader was asked to keep it. `cwd` is the agent's
    directory, if it is not the session's first one.
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
        """Return the id of the model's message to which this record belongs. A message may have several records.

        Return an empty text if the id is unknown.
        """
        return "" if self.group in (self.ITEM, self.EVENT) else self.group

    @property
    def speaks(self) -> bool:
        """Return True if the turn has text or calls. Traces of the agent's own commands have neither."""
        return self.role != "system" and bool(self.text or self.tool_calls or self.tool_results)

    @property
    def answer(self) -> Masked:
        """Return a person's words in the tool results of this turn: answers, and reasons to refuse a call.

        Such words start no exchange (a prompt with its answer), since a copy must keep them with their call.
        """
        return joined("\n", [result.words for result in self.tool_results if result.words])

    @property
    def spoken(self) -> tuple[Turn, ...]:
        """Return what a person or the agent says in this turn, as turns.

        These are the turn itself if it has a message, and another turn for a person's answer in its tool results.
        """
        own = (self,) if self.text and self.role in ("user", "assistant") else ()
        return (*own, replace(self, role="user", text=answer)) if (answer := self.answer) else own

    @property
    def sums_up(self) -> bool:
        """Return True if the turn is the summary of a compaction (the agent's own shortening of its context).

        Only such a system turn has a count of tokens.
        """
        return self.role == "system" and self.loaded > 0


def turn_of(identity: str, parent: str | None, role: Role, moment: str, text: str = "", **more: Any) -> Turn:
    """Return a turn with an estimated number of tokens. `more` are further fields of `Turn`."""
    return Turn(identity, parent, role, moment, text, estimate_tokens(text, len(more.get("tool_calls", ()))), **more)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A prompt and all turns until the next prompt.

    `index` is its number in the session. The first exchange may lack a prompt. `start` is an index into
    ``Session.turns``.
    """

    index: int
    start: int
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class BrokenLine:
    """A line of a log that could not be decoded. It is left out, counted and reported. `number` counts from 1."""

    path: Path
    number: int
    reason: str


ResumedReason = Literal["", "compaction", "gap", "elsewhere"]


class Resumed(NamedTuple):
    """The turns that the agent's own program loads when it resumes or forks a session: those from `start` on.

    Without a `reason`, it loads all turns. After a compaction (the agent's shortening of its context), it loads the
    summary at `start`, the turns after it, and the earlier turns that the compaction `kept`. At a gap, where a record
    was never written, it loads only the turns after the gap. Of a session that continued in two folders, it loads the
    common turns and the end of its own log, from `start` on.
    """

    start: int = 0
    reason: ResumedReason = ""
    kept: tuple[int, ...] = ()


@dataclass(frozen=True)
class Session:
    """One conversation: its active chain of turns, oldest first, and the facts in its records.

    `root_id` names the family: sessions with a common beginning share it. `parent_id` is the session from which this
    one was forked, if recorded. `symbols` are names of code in the inputs and outputs of its tools, and `wrote` those
    in its edits and commands. `copied` marks a log that is a copy of the original log. `named` is True if a person gave
    the title, as far as the log tells. `also_called` are other names, one a line: they are searched, but not shown.
    `headline` is as in `headline_of`. `circular` marks records that name each other as parents, so that they are in the
    file's order. `interrupted` is True if a person stopped the last work of the agent. `inferred_from` says how `cwd`
    was found if no record states it. `head` is the commit at which the session began, if `cwd` is missing or inferred;
    `begun_at` is that commit in any case. `remote` is the URL of the repository. `commits` are the last commits that
    the session made, with shortened names. `own` is the index of the first turn of a fork that its parent does not
    have. `unread` is the number of bytes at the end of a very large log that were not read. `resumed` are the turns
    that the agent's own program loads. `sizes` are the sizes of the records, with the numbers of their turns, if the
    session was read to be measured (see `bounded`). `models` are the models that answered, in order. `received` marks a
    session that another person wrote and a repository keeps. `guest` marks a session that began outside the project of
    the search: its title describes its work in that project. Times are ISO 8601 in UTC with ``Z``, or empty.
    """

    agent: AgentName
    session_id: str
    source_path: Path
    turns: tuple[Turn, ...]
    cwd: str = ""
    git_branch: Masked = NOTHING
    title: Masked = NOTHING
    also_called: Masked = NOTHING
    headline: Masked = NOTHING
    version: str = ""
    started: str = ""
    last_activity: str = ""
    origin: Origin = "person"
    parent_id: str | None = None
    root_id: str = ""
    compactions: int = 0
    symbols: tuple[str, ...] = ()
    wrote: tuple[str, ...] = ()
    copied: bool = False
    named: bool = False
    circular: bool = False
    interrupted: bool = False
    inferred_from: Inferred = ""
    head: str = ""
    begun_at: str = ""
    remote: str = ""
    commits: tuple[str, ...] = ()
    models: tuple[Masked, ...] = ()
    own: int = 0
    unread: int = 0
    resumed: Resumed = Resumed()
    sizes: tuple[tuple[int, RecordSize], ...] = field(default=(), compare=False, repr=False)
    received: bool = False
    guest: bool = False

    def exchanges(self) -> tuple[Exchange, ...]:
        """Return the turns grouped into exchanges: a prompt and all turns until the next prompt.

        Turns before the first prompt form an exchange of their own.
        """
        starts = [i for i, turn in enumerate(self.turns) if turn.prompt or i == 0]
        parts = pairwise((*starts, len(self.turns)))
        return tuple(Exchange(index, start, self.turns[start:end]) for index, (start, end) in enumerate(parts))

    def turns_in(self, exchanges: Collection[int]) -> tuple[Turn, ...]:
        """Return the turns of the exchanges (prompts with their answers) with these numbers."""
        return tuple(turn for one in self.exchanges() if one.index in exchanges for turn in one.turns)

    @property
    def token_estimate(self) -> int:
        """Return about how many tokens a fork of the whole session loads: those since its last compaction (the agent's
        shortening of its context).

        The fork also has the turns before a gap in the log (a record that was never written).
        """
        return self.loads()[-1] if self.resumed.start < len(self.turns) else self.instructions

    @cached_property
    def instructions(self) -> int:
        """Return about how many tokens the agent's system prompt and tools take in each session.

        This is the agent's first count, minus the messages so far; 0 if the agent has counted nothing.
        """
        said = 0
        for turn in self.turns:
            said += turn.token_est
            if turn.loaded:
                return max(0, turn.loaded - said)
        return 0

    def loads(self) -> tuple[int, ...]:
        """Return for each turn about how many tokens a copy up to this turn loads.

        This is the agent's last count, plus an estimate for the turns since. If a record of the log was never written,
        the agent resumes after this gap, and counts only the turns after it. A copy also has the turns before the gap.
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
        """Return how many turns a compaction (the agent's shortening of its context) drops from a fork of all turns.

        With `end`, return this for a copy up to the turn `end`. Turns before a gap in the log are not dropped.
        """
        if end is None and self.resumed.kept:
            return self.resumed.start - len(self.resumed.kept)
        return max((start for start in self._compactions() if end is None or start <= end), default=0)

    def _compactions(self) -> list[int]:
        """Return the indexes of the turns that are summaries of compactions (an agent's shortening of its context)."""
        last = {self.resumed.start} if self.resumed.reason == "compaction" else set()
        return sorted(last.union(i for i, turn in enumerate(self.turns) if turn.sums_up))

    @property
    def beginnings(self) -> tuple[str, ...]:
        """Return the ids of the turns with which a fork of this session may begin. They show to which family a fork
        belongs.

        A family is a session with its forks. An agent copies to a fork what it loads, and may join the prompts before
        an answer to one. Ids that are numbers are left out, since any session has them. The id of an agent's own first
        message is left out, too, since it may be made of a text that many sessions share.
        """
        found = [self.root_id]
        for start in sorted({0, self.resumed.start, *self._compactions()}):
            run = [turn for turn in self.turns[start : start + _MAX_PROMPTS] if turn.role != "system" or turn.sums_up]
            found += [turn.id for turn in (*run[:1], *takewhile(lambda turn: turn.role != "assistant", run))]
        return tuple(dict.fromkeys(one for one in found if one and not one.isdigit()))

    def cache(self, end: int | None = None) -> Cache:
        """Return what the log says about the provider's cache of the whole session, or of its turns up to `end`.

        The time of the cache's last use is the time of the turn before the last answer, when the request was sent; the
        answer may take minutes. For a session with a gap in its log, the cache is unknown: later requests may begin
        with other turns than the requests of a fork.
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
        """Return the indexes of the turns after which the session can be forked.

        At these turns no call waits for its result, and the agent has finished its answer to the prompt.
        """
        following = dict(pairwise(i for i, turn in enumerate(self.turns) if turn.speaks))
        return tuple(
            index
            for index in self.pairs()
            if (turn := self.turns[index]).role == "assistant" and turn.text and not turn.tool_calls
            and (index not in following or self.turns[following[index]].prompt)
        )  # fmt: skip

    def pairs(self) -> tuple[int, ...]:
        """Return the indexes of turns that complete a pair: an answer, or a call's result while no other call waits.

        Whether a turn does depends on earlier turns alone, so a copy that ends at the turn ends with a complete pair
        as well.
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

        For the session's last exchange, this is `None`: a fork there has the whole session. Before a compaction (the
        agent's shortening of its context), it is the last complete pair (see `pairs`), because later turns no longer
        have the turn in their context.
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
    """The result of a tool call as the log has it, with the whole output.

    An output of a shell begins with the exit status. `patch` is the changes of an edit as a unified diff.
    """

    id: str
    output: str
    failed: bool = False
    patch: str = ""


class Item(NamedTuple):
    """The content of a log's record: text, calls, results, thoughts, and the number of images.

    An encrypted thought is an empty text.
    """

    text: str = ""
    calls: tuple[UsedTool, ...] = ()
    results: tuple[GivenBack, ...] = ()
    thoughts: tuple[str, ...] = ()
    images: int = 0
