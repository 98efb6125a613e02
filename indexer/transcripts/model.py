"""A conversation of any agent: frozen values, no I/O.

A *session* is one conversation in one file. A *turn* is one record of it. An *exchange* is one thing the person asked
and everything the agent did until the next.
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

#: The name of an agent, as it is stored, asked for and shown: which there are is known to `smart_fork.agents`.
AgentName = str
#: So many prompts before an answer may be joined to one.
_MOST_PROMPTS = 50
Role = Literal["user", "assistant", "tool", "system"]
#: Who started a session: a person, a script (``claude -p``, an SDK, ``codex exec``), or another session.
Origin = Literal["person", "automated", "subagent"]
#: What a directory was taken from that no log states; empty where one does.
Inferred = Literal["", "environment_context", "commands", "folder", "commit"]


class Proof(StrEnum):
    """Evidence from a call's answer about the work; most calls have none. `FAILED` is a test run or a commit."""

    NOTHING = ""
    COMMITTED = "committed"
    TESTS_PASSED = "tests_passed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One action of the agent. `action` is one line ("edit src/a.py", "run pytest -q"), empty if it says nothing.

    `ours` is whether it asks smart-fork something, `edits` and `reads` are the files that it sets out to edit and to
    read, as it names them. `lines` are the hashes of the lines that it adds to each of `edits`, where they are noted.
    `places` are other directories than the session's first in which its commands do more than look.
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
    """Result of a call. `note` is an exit status or the first line of an error, never the output itself.

    `errors` are the joined hashes of the lines that tell what went wrong, where they are noted: of what failed, and of
    tests and commits that went well, which print such lines all the same. `words` are what a person answers in it to
    the agent's question, or says when refusing the call. `commit` is the subject of the last commit that it made.
    """

    tool_use_id: str
    is_error: bool = False
    note: Masked = NOTHING
    proof: Proof = Proof.NOTHING
    errors: bytes = b""
    words: Masked = NOTHING
    commit: Masked = NOTHING


class RecordSize(NamedTuple):
    """The characters of a record that the model is sent, in full and with its results shortened.

    `sums_up` marks what a compaction has left.
    """

    characters: int = 0
    short: int = 0
    sums_up: bool = False


class Cache(NamedTuple):
    """Lifetime of the model's cache in seconds, as the log says, and the time of the last request that used it.

    Without `seconds` the log does not say it.
    """

    seconds: int = 0
    used: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One record of a session.

    `text` is what was said, without injected boilerplate. `prompt` is true for a person's own words. `token_est` is
    about characters / 4. `loaded` is how many tokens the agent says it had in its context after this turn, 0
    where it says nothing. `cached_for` is how many seconds the cache lives that its request wrote or read, 0 where the
    log does not say it. `summary` is what a compaction has left: nobody says it. Records of one message of the model
    share `group`. `raw` is the verbatim line without its newline, only where the reader was asked to keep it. `cwd` is
    where the agent stood, if not where it first did.
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

    #: The groups of what Codex writes twice: as the model's input, and as an event for the screen.
    ITEM: ClassVar = "item"
    EVENT: ClassVar = "event"

    @property
    def message(self) -> str:
        """The message of the model that it is a record of; empty where its log does not say it."""
        return "" if self.group in (self.ITEM, self.EVENT) else self.group

    @property
    def speaks(self) -> bool:
        """Return True if it has text or calls. Traces of the agent's own commands have none."""
        return self.role != "system" and bool(self.text or self.tool_calls or self.tool_results)

    @property
    def answer(self) -> Masked:
        """The person's words in its results. They begin no exchange: a copy cannot separate them from the call that
        they answer.
        """
        return joined("\n", [result.words for result in self.tool_results if result.words])

    @property
    def spoken(self) -> tuple[Turn, ...]:
        """The turn itself, if the person or the agent speaks in it, and then a person's answer as a turn of theirs."""
        own = (self,) if self.text and self.role in ("user", "assistant") else ()
        return (*own, replace(self, role="user", text=answer)) if (answer := self.answer) else own

    @property
    def sums_up(self) -> bool:
        """`True` if it is what a compaction has left: no other system turn loads tokens."""
        return self.role == "system" and self.loaded > 0


def turn_of(identity: str, parent: str | None, role: Role, moment: str, text: str = "", **more: Any) -> Turn:
    """Return a turn whose tokens are estimated. `more` are other fields of it."""
    return Turn(identity, parent, role, moment, text, estimate_tokens(text, len(more.get("tool_calls", ()))), **more)


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


ResumedReason = Literal["", "compaction", "gap", "elsewhere"]


class Resumed(NamedTuple):
    """The part that the agent's own program loads to resume or fork a session: the turns from `start` on.

    Without a `reason` it loads all of them. After a compaction it loads the summary, the turn at `start`, and what
    follows, and of the turns before it those that the compaction `kept` as they are. At a gap, where a record was never
    written, it loads only what follows. Of a session that went on in two folders it loads what both logs have, and the
    end of its own log, which begins at `start`.
    """

    start: int = 0
    reason: ResumedReason = ""
    kept: tuple[int, ...] = ()


@dataclass(frozen=True)
class Session:
    """One conversation: its active chain of turns, oldest first, and what its records say about it.

    `root_id` names the family: sessions that share a beginning share it. `parent_id` is the session it was forked from,
    where that is recorded. `symbols` are names of code that its tools were given or gave back. `copied` says that its
    file lies elsewhere than where the session was begun: another file of the same session is the original. `named` is
    whether a person has given it its title, as far as that can be told: Codex makes its own from the first prompt.
    `also_called` are its other names, former ones too, a line each: it is found by them, and not shown with them.
    `headline` is as in `headline_of`.
    `circular` says that records name each other as parents, so that their order is that of the file. `interrupted` is
    whether the person has stopped the agent in what it did last. `inferred_from` is what `cwd` was taken from where the
    log does not state it; `head` the commit that it was begun at, where that matters: without a `cwd`, or with one that
    the agent's commands tell. `begun_at` is that commit wherever the log records it, `remote` the repository's URL, and
    `commits` are the last ones that it made, as git shortens their names.
    `own` is the first turn that a fork has not from the session that it was forked from, as far as its log tells.
    `unread` counts the bytes at its log's end that a look at a very large one has not read.
    `resumed` are the turns that the agent's own program loads.
    `sizes` are those of its records, with the numbers of their turns, where it was read to be measured (see `bounded`),
    and its agent's records can be.
    `models` are those that have answered, in the order in which they first did. `wrote` are those of the `symbols` that
    are in its edits and commands.
    `received` says that a repository keeps it, as somebody else wrote it, `guest` that it was not begun in the project
    that is asked about: its title is of what it did there.
    Times are ISO 8601 in UTC with ``Z``, or empty.
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
        """The turns grouped by what the person asked; turns before the first prompt form an exchange of their own."""
        starts = [i for i, turn in enumerate(self.turns) if turn.prompt or i == 0]
        parts = pairwise((*starts, len(self.turns)))
        return tuple(Exchange(index, start, self.turns[start:end]) for index, (start, end) in enumerate(parts))

    def turns_in(self, exchanges: Collection[int]) -> tuple[Turn, ...]:
        """Return the turns of the exchanges with these numbers."""
        return tuple(turn for one in self.exchanges() if one.index in exchanges for turn in one.turns)

    @property
    def token_estimate(self) -> int:
        """About how many tokens a fork of all of it loads, since its last compaction; a gap is bridged."""
        return self.loads()[-1] if self.resumed.start < len(self.turns) else self.instructions

    @cached_property
    def instructions(self) -> int:
        """About how many tokens the agent's own instructions and tools take, without which no session begins.

        They are its first count, beyond what had been said by then; 0 where it has counted nothing.
        """
        said = 0
        for turn in self.turns:
            said += turn.token_est
            if turn.loaded:
                return max(0, turn.loaded - said)
        return 0

    def loads(self) -> tuple[int, ...]:
        """For each turn, about how many tokens a copy up to it loads: as last counted, and what came since.

        An agent that resumes after a gap counts only what follows: a copy has what stands before it as well.
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
        """Return how many turns a compaction has forgotten for a fork of all turns, or for a copy up to `end`.

        Copies bridge gaps.
        """
        if end is None and self.resumed.kept:
            return self.resumed.start - len(self.resumed.kept)
        return max((start for start in self._compactions() if end is None or start <= end), default=0)

    def _compactions(self) -> list[int]:
        """The turns that what compactions have left begins with: their summaries."""
        last = {self.resumed.start} if self.resumed.reason == "compaction" else set()
        return sorted(last.union(i for i, turn in enumerate(self.turns) if turn.sums_up))

    @property
    def beginnings(self) -> tuple[str, ...]:
        """The ids of the turns with which a fork of it may begin: an agent copies what it loads, and may join the
        prompts before an answer to one. A number is any session's, and so is the id of what an agent itself says first:
        it may be made of its text, which many sessions share.
        """
        found = [self.root_id]
        for start in sorted({0, self.resumed.start, *self._compactions()}):
            run = [turn for turn in self.turns[start : start + _MOST_PROMPTS] if turn.role != "system" or turn.sums_up]
            found += [turn.id for turn in (*run[:1], *takewhile(lambda turn: turn.role != "assistant", run))]
        return tuple(dict.fromkeys(one for one in found if one and not one.isdigit()))

    def cache(self, end: int | None = None) -> Cache:
        """Return what the log says of the cache of the whole session, or of its turns up to `end`.

        A request is sent when the turn before its answer is there: the answer itself may take minutes. Of one with
        a gap nobody knows whether requests after it began as those of a fork do.
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
        """Return True if it ends unfinished: with an unanswered prompt or error, a call, or an interruption."""
        spoken = next((turn for turn in reversed(self.turns) if turn.speaks), None)
        done = spoken is not None and spoken.role == "assistant" and bool(spoken.text) and not spoken.tool_calls
        return self.interrupted or not done

    def branch_points(self) -> tuple[int, ...]:
        """The turns after which the session can go on differently.

        Nothing waits for a tool's answer there, and the agent has said its last word on what it was asked.
        """
        following = dict(pairwise(i for i, turn in enumerate(self.turns) if turn.speaks))
        return tuple(
            index
            for index in self.pairs()
            if (turn := self.turns[index]).role == "assistant" and turn.text and not turn.tool_calls
            and (index not in following or self.turns[following[index]].prompt)
        )  # fmt: skip

    def pairs(self) -> tuple[int, ...]:
        """The turns that complete a pair: an answer, or the result of a call, where no call waits for its result.

        Only the turns before it decide that, so a copy that ends there ends with the same pair.
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
        """For each turn, the branch point that ends what it belongs to; `None` where that is the session's own end.

        Before a compaction it is the last pair: a later end has forgotten the turn.
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
        """The turns that a reader sees, as ``show`` and ``--at`` number them: (index into `turns`, turn) of each spoken
        turn.
        """
        return tuple((i, one) for i, turn in enumerate(self.turns) for one in turn.spoken)


def estimate_tokens(text: str, calls: int = 0) -> int:
    """About four characters a token, and eight tokens more for each tool call."""
    return -(-len(text) // 4) + 8 * calls


class UsedTool(NamedTuple):
    """A call: its id, the name of its tool, and what the tool was given."""

    id: str
    name: str
    given: Mapping[str, Any] | str | Any


class GivenBack(NamedTuple):
    """The result of a call, a shell's exit status first; of an edit, its changes as a unified diff."""

    id: str
    output: str
    failed: bool = False
    patch: str = ""


class Item(NamedTuple):
    """The text of a record, the calls that it makes, the results in it, its thoughts, and its number of images.

    An encrypted thought is an empty text.
    """

    text: str = ""
    calls: tuple[UsedTool, ...] = ()
    results: tuple[GivenBack, ...] = ()
    thoughts: tuple[str, ...] = ()
    images: int = 0
