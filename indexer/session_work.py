"""A session's outcome, edited files, met errors and unfinished work, derived from its turns without I/O."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum, StrEnum
from functools import lru_cache
from itertools import chain, islice
from operator import attrgetter
from typing import NamedTuple

from indexer.handover_action_lines import calls_of, is_broken_off, results_of
from indexer.lazy_compilation import dataclass, late
from indexer.masking import mask
from indexer.transcripts.commands import WorkCommands, only_looks
from indexer.transcripts.line_hashes import key_in_use, split_hashes, text_hashes
from indexer.transcripts.model import Exchange, Proof, Session, ToolCall, ToolResult, Turn
from indexer.transcripts.texts import FAILED, says_something

#: Maximum number of files, of which the last edited ones are kept, and of directories, of which the first ones are.
MAX_FILES = 1000
#: Number of calls after an error among which its end is looked for, and number of actions that are stored as its
#: causes.
MAX_STEPS, MAX_CAUSES = 60, 3
_RUN_PREFIX = "run "


class Outcome(StrEnum):
    """The outcome of a session's work, such as COMMITTED or FAILED, ordered from the best to fork to the worst."""

    COMMITTED = "committed"
    TESTS_PASSED = "tests_passed"
    UNKNOWN = "unknown"
    FAILED = "failed"
    ABANDONED = "abandoned"

    @classmethod
    def _missing_(cls, value: object) -> Outcome:  # noqa: ARG003 - as `Enum` calls it
        return cls.UNKNOWN

    @classmethod
    def of(cls, session: Session) -> Outcome:
        """Return the last outcome that a commit or a test run proved. In a fork, only its own turns count.

        Passing tests do not replace a commit. A session that ends in the middle of work is abandoned, unless all its
        edits are committed.
        """
        outcome, saved = Outcome.UNKNOWN, False
        done = _edits_done(session)
        for turn in session.turns[session.own :] or session.turns:
            for result in results_of(turn):
                if result.proof is Proof.COMMITTED:
                    outcome, saved = Outcome.COMMITTED, True
                elif result.proof is Proof.FAILED:
                    outcome = Outcome.FAILED
                elif result.proof is Proof.TESTS_PASSED and outcome is not Outcome.COMMITTED:
                    outcome = Outcome.TESTS_PASSED
                saved = saved and not done.get(result.tool_use_id)
        settled = outcome is Outcome.COMMITTED and saved
        return Outcome.ABANDONED if _is_unfinished(session) and not settled else outcome


@dataclass(frozen=True, slots=True)
class Edits:
    """The `files` that a session edited, as absolute paths, and `until`, the time of its last edit or commit."""

    files: tuple[str, ...] = ()
    until: str = ""

    def masked_again(self) -> Edits:
        """Return these edits, perhaps stored by an older version, without paths in which this one finds a secret."""
        return replace(self, files=tuple(file for file in self.files if mask(file) == file))


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """The files that a session read or edited, as absolute paths, and `until`, the time of its last activity.

    `edits` counts the edits of each file, most edited first; 0 for a file that was only read.
    """

    edits: Mapping[str, int]
    until: str


@dataclass(frozen=True, slots=True)
class Authored:
    """The lines that one call added to a file, as joined hashes, and the call's time and place in the session."""

    exchange: int
    turn: int
    moment: str
    file: str
    lines: bytes


class Fate(IntEnum):
    """The fate of an error that a command printed.

    MET: no later run of the command was without it. ENDED: a later run was. HARMLESS: the command still succeeded.
    """

    MET = 0
    ENDED = 1
    HARMLESS = 2


@dataclass(frozen=True, slots=True)
class MetError:
    """An error that a session met: the hash of its `line`, and its `fate`.

    `exchange` and `turn` are where the error ended, or else where it was printed last. `by` are the joined hashes of
    the actions that ended the error; empty if nothing was changed before it was gone.
    """

    line: bytes
    exchange: int
    turn: int
    fate: Fate
    by: bytes = b""


class _Step(NamedTuple):
    """A tool call with its result, and the numbers of the result's exchange (a prompt with its answer) and turn."""

    exchange: int
    turn: int
    call: ToolCall
    result: ToolResult

    @property
    def failed(self) -> bool:
        return self.result.is_error or self.result.proof is Proof.FAILED

    @property
    def settled(self) -> bool:
        """Return True if this result shows that an earlier error is gone: the call succeeded, or met another error."""
        if self.failed:
            return bool(self.result.errors)
        return self.result.proof is not Proof.NOTHING or not WorkCommands.hide_the_end(self.call.action)

    @property
    def commands(self) -> WorkCommands:
        return _commands(self.call.action)

    @property
    def changes(self) -> bool:
        return bool(self.call.edits) or self.commands.change()


def edits_of(session: Session, resolved_cwd: str) -> Edits:
    """Return the files that a session edited, without paths that contain secrets or several lines."""
    done = _edits_done(session)
    files: dict[str, None] = {}
    until = ""
    for turn in session.turns:
        for result in results_of(turn):
            paths = done.get(result.tool_use_id, ())
            if paths or (files and result.proof is Proof.COMMITTED):
                until = max(until, turn.timestamp)
            for path in paths:
                if file := _absolute(path, session.cwd, resolved_cwd):
                    files.pop(file, None)
                    files[file] = None
    return Edits(tuple(files)[-MAX_FILES:], until or session.last_activity) if files else Edits()


def worked_in(session: Session) -> dict[str, set[int]]:
    """Return the directories outside the session's first one in which it worked, with the numbers of the exchanges.

    A session worked where it edited a file, ran a command that changes something, or was at the first or last message
    of an exchange (a prompt with its answer). For a command, this may be the path of a file that it changes.
    """
    failed = {one.tool_use_id: one.proof for turn in session.turns for one in turn.tool_results if one.is_error}
    ended = {one.tool_use_id for turn in session.turns for one in turn.tool_results}
    found: defaultdict[str, set[int]] = defaultdict(set)
    for exchange in session.exchanges():
        said = [turn for turn in exchange.turns if turn.text]
        for turn in (*said[:1], *said[-1:]):
            found[turn.cwd].add(exchange.index)
        for call, cwd in ((call, turn.cwd) for turn in exchange.turns for call in turn.tool_calls if call.id in ended):
            places = call.places if failed.get(call.id, Proof.FAILED) is Proof.FAILED else ()
            files = (_absolute(path, cwd or session.cwd, "") for path in call.edits if call.id not in failed)
            for place in (*places, *map(os.path.dirname, files)):
                found[place].add(exchange.index)
    found.pop("", None)
    return dict(islice(found.items(), MAX_FILES))


def authored_by(session: Session, resolved_cwd: str) -> tuple[Authored, ...]:
    """Return the lines that a session successfully added to files, except files whose path `edits_of` would drop."""
    calls = {call.id: (call, turn.timestamp) for turn in session.turns for call in turn.tool_calls if call.lines}
    if not calls:
        return ()
    found = []
    for exchange in session.exchanges():
        for number, turn in enumerate(exchange.turns, exchange.start):
            done = [calls.pop(one.tool_use_id, None) for one in turn.tool_results if not one.is_error]
            for call, made in filter(None, done):
                for path, lines in zip(call.edits, call.lines, strict=True):
                    if lines and (file := _absolute(path, session.cwd, resolved_cwd)):
                        # Not every agent says when a result came.
                        found.append(Authored(exchange.index, number, turn.timestamp or made, file, lines))
    return tuple(found)


def errors_of(session: Session) -> tuple[MetError, ...]:
    """Return the errors that a session's commands met, each with the actions that may have ended it."""
    if not any(result.errors for turn in session.turns for result in turn.tool_results):
        return ()
    calls = {call.id: call for turn in session.turns for call in turn.tool_calls if call.action and not call.ours}
    steps = [
        _Step(exchange.index, number, call, result)
        for exchange in session.exchanges()
        for number, turn in enumerate(exchange.turns, exchange.start)
        for result in turn.tool_results
        if (call := calls.pop(result.tool_use_id, None))
    ]
    last, harmless = dict[bytes, int](), dict[bytes, int]()
    for number, step in enumerate(steps):
        found = split_hashes(step.result.errors)
        if found and not step.failed and len(step.commands) == 1:  # of several the last may hide that another failed
            harmless |= dict.fromkeys(found, number)
        elif found and step.commands and step.failed:
            last |= dict.fromkeys(found, number)
    said = ((line, steps[number]) for line, number in harmless.items())
    return (
        *(MetError(line, one.exchange, one.turn, Fate.HARMLESS) for line, one in said),
        *(_ended(line, number, steps) for line, number in last.items() if line not in harmless),
    )


def _ended(line: bytes, number: int, steps: Sequence[_Step]) -> MetError:
    met, following = steps[number], steps[number + 1 : number + 1 + MAX_STEPS]
    for place, step in enumerate(following):
        if step.commands and met.commands.are_again(step.commands) and step.settled:
            did = [one.call.action for one in following[:place] if not one.failed and one.changes]
            more = WorkCommands(words for words in step.commands if words not in met.commands)
            otherwise = len(more) == len(step.commands) and met.commands.are_alike(step.commands)
            if otherwise or (more.change() and not step.failed):
                did.append(step.call.action)
            by = list(dict.fromkeys(did))[-MAX_CAUSES:]
            return MetError(line, step.exchange, step.turn, Fate.ENDED, by=b"".join(text_hashes(by, key_in_use())))
    return MetError(line, met.exchange, met.turn, Fate.MET)


@lru_cache(maxsize=1024)
def _commands(action: str) -> WorkCommands:
    """Return the commands in the action line of a call that do work; none if the call runs no command."""
    return WorkCommands.of(action.removeprefix(_RUN_PREFIX)) if action.startswith(_RUN_PREFIX) else WorkCommands()


def edited_paths(session: Session) -> tuple[str, ...]:
    """Return the paths of successfully edited files, as the calls name them, without those that may not be stored."""
    return tuple(filter(_may_be_stored, dict.fromkeys(chain.from_iterable(_edits_done(session).values()))))


def known_files(
    session: Session, resolved_cwd: str, end: int | None = None, kept: Collection[int] | None = None
) -> KnownFiles:
    """Return the files that a session successfully read or edited up to the turn `end`, only in the turns `kept`."""
    turns = session.turns if end is None else session.turns[: end + 1]
    if kept is not None:
        turns = tuple(turn for number, turn in enumerate(turns) if number in kept)
    found: Counter[str] = Counter()
    for which, weight in (("edits", 1), ("reads", 0)):
        for path in chain.from_iterable(_done(turns, attrgetter(which)).values()):
            if file := _absolute(path, session.cwd, resolved_cwd):
                found[file] += weight
    until = session.last_activity if end is None else max((turn.timestamp for turn in turns), default="")
    return KnownFiles(dict(found.most_common()), until)


def _is_unfinished(session: Session) -> bool:
    """Return True if a session ends unfinished, or its last message hands over another agent's unfinished session."""
    spoken = next((turn for turn in reversed(session.turns) if turn.speaks), None)
    return session.unfinished or (spoken is not None and is_broken_off(spoken))


def _edits_done(session: Session) -> dict[str, tuple[str, ...]]:
    """Return the files that each successful call edited, by the call's id."""
    return _done(session.turns, attrgetter("edits"))


def _done(turns: Sequence[Turn], files_of: Callable[[ToolCall], tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return what `files_of` returns for each successful call, by the call's id. Calls without files are missing."""
    asked = {call.id: files for turn in turns for call in calls_of(turn) if (files := files_of(call))}
    ended = {result.tool_use_id for turn in turns for result in results_of(turn) if not result.is_error}
    return {call: files for call, files in asked.items() if call in ended}


@lru_cache(maxsize=1024)
def _may_be_stored(path: str) -> bool:
    """Return True if a path may be stored: printable, on one line, without a secret."""
    return path.isprintable() and mask(path) == path


@lru_cache(maxsize=1024)  # files are edited again and again
def _absolute(path: str, cwd: str, resolved_cwd: str) -> str:
    """Return `path`, relative to `cwd`, as an absolute path in `resolved_cwd`; empty if it may not be stored."""
    if not _may_be_stored(path.removeprefix(f"{cwd.rstrip('/')}/")):  # a directory's own name may have several lines
        return ""
    path = os.path.normpath(os.path.join(cwd, path))  # noqa: PTH118 - text
    if resolved_cwd and (path == cwd or path.startswith(cwd.rstrip("/") + "/")):
        path = resolved_cwd + path[len(cwd.rstrip("/")) :]
    return path if path.startswith("/") else ""


#: Beginnings of the action lines of calls that only look at something.
_LOOKING_PREFIXES = ("read ", "search ", "Glob ", "LS ", "WebFetch ", "WebSearch ", "Skill ")
#: The beginning of the note on a command that has ended.
_STATUS_PREFIX = "exit "
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
#: Maximum length of an answer that is only a question, or only says that the agent does not know.
_SHORT_CHARACTERS = 120
#: "I do not know" and the like, in languages that people use with agents.
_NOT_KNOWN = late(
    r"\b(?:do(?:n['\u2019]t| not) know|can(?:['\u2019]t|not) (?:tell|say)|no idea|(?:not |un)sure|"
    r"could(?:n['\u2019]t| not) find|wei(?:\u00df|ss) (?:ich )?(?:es )?(?:leider )?nicht|keine ahnung|nicht sicher|"
    r"sais pas|aucune idée|pas sûre?|no (?:lo )?sé|ni idea|no estoy segur[oa]|não (?:o )?sei|não tenho certeza|"
    r"non (?:lo )?so|non saprei|nessuna idea|weet (?:ik )?(?:het )?niet|geen idee|nie wiem|bilmiyorum|"
    "не знаю|не уверена?)\\b|不知道|不清楚|不确定|不確定|[分わ]かりません|[分わ]からない|知りません|"
    "모르겠|모릅니다|لا أعرف|لا أعلم",
    re.IGNORECASE,
)
#: A number, a path or a name of code. An answer with one of these knows something.
_FACT = late(r"[\d`/\\=<>{}()\[\]#$%@]|\w[._]\w|[a-z][A-Z]|https?:")


def last_answered(session: Session) -> int | None:
    """Return the index of the last exchange (a prompt with its answer) that has an answer or changed something.

    Return `None` if this is the session's very last exchange, so that nothing unanswered follows, and -1 if no exchange
    is answered.
    """
    done = {result.tool_use_id for turn in session.turns for result in results_of(turn) if _was_run(result)}
    exchanges = session.exchanges()
    stopped, again = session.interrupted, None
    for one in reversed(exchanges):
        asked = _asked(one)
        changed = any(call in done for turn in one.turns for call in _changing(turn))
        if changed or not (stopped or asked == again or not _is_answered(one)):
            return one.index if one is not exchanges[-1] else None
        stopped, again = False, asked
    return -1 if exchanges else None


def acts(turn: Turn) -> bool:
    """Return True if one of the turn's calls does more than look at something, for example edits a file."""
    return bool(_changing(turn))


def _changing(turn: Turn) -> list[str]:
    """Return the ids of a turn's calls that do more than look at something."""
    return [call.id for call in calls_of(turn) if call.action and not _only_looks(call.action)]


def _was_run(result: ToolResult) -> bool:
    """Return True if the call of this result was carried out, even if its command failed."""
    return not result.is_error or result.note.startswith(_STATUS_PREFIX)


def _asked(exchange: Exchange) -> list[str]:
    return [" ".join(turn.text.split()) for turn in exchange.turns if turn.prompt]


def _is_answered(exchange: Exchange) -> bool:
    """Return True if the prompt of this exchange is no mere greeting, and the agent answered."""
    spoken = next((turn for turn in reversed(exchange.turns) if turn.speaks), None)
    if spoken is None or spoken.role != "assistant" or spoken.tool_calls or is_broken_off(spoken):
        return False
    if FAILED.match(spoken.text.strip()) or _only_asks_back(exchange, spoken.text) or _does_not_know(spoken.text):
        return False
    return any(says_something(turn.text) for turn in exchange.turns if turn.prompt)


def _only_asks_back(exchange: Exchange, said: str) -> bool:
    """Return True if the agent only asked back: it made no call, and its answer `said` is one short question."""
    asks = said.rstrip().endswith(_QUESTION_MARKS) and len(said) <= _SHORT_CHARACTERS and "\n" not in said.strip()
    return asks and not any(calls_of(turn) for turn in exchange.turns)


def _does_not_know(said: str) -> bool:
    return len(said) <= _SHORT_CHARACTERS and bool(_NOT_KNOWN.search(said)) and not _FACT.search(said)


def _only_looks(action: str) -> bool:
    if action.startswith(_LOOKING_PREFIXES):
        return True
    runs, _, line = action.partition("run ")
    return not runs and only_looks(line)
