"""The page of a family (a session and its forks): a time line, each member's own work, and two members compared."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path

from indexer.lazy_compilation import dataclass
from indexer.masking import mask
from indexer.repositories import recorded
from indexer.session_work import Outcome
from indexer.transcripts.model import Exchange, Session
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.references import Reference
from smart_fork.display_text import printable, time_of
from smart_fork.errors import IndexUnavailable, SmartForkError
from smart_fork.finding import session_lookup
from smart_fork.finding.fork_suitability import best_fork
from smart_fork.finding.index_access import opened
from smart_fork.forking.lineage import lineage
from smart_fork.forking.results import Family, Relative
from smart_fork.page.agent_steps import FileDiff, Steps, compared, shorten_paths
from smart_fork.page.conversation_page import SPEAK, asked_in_short
from smart_fork.page.renderer import Shown
from smart_fork.page.session_page import located

#: The number of prompts listed for a session, and of files compared.
MAX_QUESTIONS, MAX_PARTED_FILES = 20, 30


@dataclass(frozen=True, slots=True)
class OwnPart:
    """The part of a session that another session does not have. `more` counts its prompts that `questions` omits."""

    session_id: str
    agent_type: str
    questions: tuple[str, ...]
    more: int
    files: tuple[str, ...]
    outcome: Outcome
    tokens: int


@dataclass(frozen=True, slots=True)
class SessionDifferences:
    """Two sessions compared. Their first `shared` exchanges (a prompt with its answer) are equal.

    `first` and `second` describe the rest of each session, and `answer` compares their last answers. `files` are the
    files edited in that rest: path, changes by the first session, changes by the second.
    """

    shared: int
    first: OwnPart
    second: OwnPart
    answer: FileDiff
    files: tuple[tuple[str, tuple[FileDiff, ...], tuple[FileDiff, ...]], ...]
    more_files: int


@dataclass(frozen=True, slots=True)
class OwnBeginning:
    """The turn numbers where a session begins to differ from another session.

    `asked` is the first turn of the first exchange (a prompt with its answer) that differs. `done` is the first turn
    that differs: a later turn of that exchange if the prompt and the beginning of the answer are equal.
    """

    asked: int
    done: int


def own_beginning(session: Session, other: Session) -> OwnBeginning:
    """Find where `session` begins to differ from `other`.

    Exchanges that only `other` has are no difference. An exchange is equal if `other` has its messages, in this order,
    after the exchanges that are equal already.
    """
    there, place = [[said for _, said in _spoken(exchange)] for exchange in other.exchanges()], 0
    for exchange in session.exchanges():
        spoken = _spoken(exchange)
        said = [words for _, words in spoken]
        same = next((at for at in range(place, len(there)) if _is_within(said, there[at])), None)
        if not said:
            continue
        if same is None or (same > place and len(said) == 1):
            beside = there[place] if place < len(there) else []
            shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(said, beside, strict=False)))
            return OwnBeginning(exchange.start, spoken[shared - 1][0] + 1 if shared else exchange.start)
        place = same + 1
    return OwnBeginning(len(session.turns), len(session.turns))


def differences(first: Session, second: Session) -> SessionDifferences:
    """Compare two sessions that were read with their raw records."""
    one, other = own_beginning(first, second), own_beginning(second, first)
    turns, other_turns = range(one.done, len(first.turns)), range(other.done, len(second.turns))
    edits, other_edits = _edits(first, turns), _edits(second, other_turns)
    paths = sorted({*edits, *other_edits}, key=lambda path: (not (path in edits and path in other_edits), path))
    shown = paths[:MAX_PARTED_FILES]
    prompts = (
        sum(turn.prompt for turn in first.turns[: one.asked]),
        sum(turn.prompt for turn in second.turns[: other.asked]),
    )
    return SessionDifferences(
        shared=max(prompts),
        first=_part(first, turns, edits),
        second=_part(second, other_turns, other_edits),
        answer=compared("the last answer", [(_answer(first, turns), _answer(second, other_turns))]),
        files=tuple((path, tuple(edits.get(path, ())), tuple(other_edits.get(path, ()))) for path in shown),
        more_files=len(paths) - len(shown),
    )


def _spoken(exchange: Exchange) -> list[tuple[int, tuple[str, str]]]:
    """Return the messages of an exchange: for each, its turn number, speaker and text."""
    turns = enumerate(exchange.turns, exchange.start)
    return [(number, (turn.role, turn.text)) for number, turn in turns if turn.text and turn.role in SPEAK]


def _is_within(said: Iterable[tuple[str, str]], there: Iterable[tuple[str, str]]) -> bool:
    rest = iter(there)
    return all(one in rest for one in said)


def _answer(session: Session, turns: range) -> str:
    said = (session.turns[number] for number in reversed(turns))
    return next((turn.text for turn in said if turn.role == "assistant" and turn.text), "")


def _edits(session: Session, turns: range) -> dict[str, list[FileDiff]]:
    """Return a session's changes of files in these turns, by path relative to the session's directory."""
    steps, found = Steps(session, AGENTS[session.agent].codec), dict[str, list[FileDiff]]()
    for number in turns:
        for step in steps.of(number):
            if step.kind != "edit" or step.failed:
                continue
            for diff in step.diffs or (FileDiff(shorten_paths(step.line, session.cwd), "edited"),):
                found.setdefault(diff.path, []).append(diff)
    return found


def _part(session: Session, turns: range, files: Iterable[str]) -> OwnPart:
    asked = [session.turns[number].text for number in turns if session.turns[number].prompt]
    return OwnPart(
        session.session_id, session.agent, tuple(asked_in_short(text) for text in asked[:MAX_QUESTIONS]),
        max(0, len(asked) - MAX_QUESTIONS), tuple(files), Outcome.of(session), session.token_estimate,
    )  # fmt: skip


def family_page(place: Mapping[str, str], asked: Mapping[str, str]) -> Shown:
    """Return the template values for the page of a family: the session at the address `place`, and its relatives.

    They are the time line, each member's own work, the `best` member to fork, and if the query `asked` names two
    members, `a` and `b`, their comparison.
    """
    family = lineage(located(place).reference)
    own = own_works(family.sessions)
    titles = names_of(family.sessions, own)
    parent = next((one.parent for one in family.sessions if one.session_id == family.session_id), None)
    first, second = asked.get("a") or parent or family.session_id, asked.get("b") or family.session_id
    parted, problem = _compared(family, first, second) if asked.get("a") and asked.get("b") else (None, "")
    return {
        "family": family,
        "first": first,
        "second": second,
        "parted": parted,
        "parted_problem": problem,
        "line": timeline(family.sessions),
        "titles": titles,
        "own": own,
        "best": best_of(family.sessions),
    }


def _compared(family: Family, first: str, second: str) -> tuple[SessionDifferences | None, str]:
    """Return (comparison, "") of two members of a family (a session and its forks) by id, or (`None`, the reason)."""
    members = {one.session_id: str(Reference(one.agent_type, one.session_id)) for one in family.sessions}
    if first == second or not {first, second} <= members.keys():
        return None, "Choose two different sessions of this family."
    try:
        one, other = (
            session_lookup.look_into(session_lookup.locate(members[name]), keep_raw=True) for name in (first, second)
        )
    except SmartForkError as error:
        return None, error.message
    return differences(one, other), ""


#: The width of the time line in percent, and the smallest length of a session, so that a short one can be seen.
WIDTH, MIN_LENGTH = 100.0, 1.5
#: The number of times written below the time line.
TICKS = 4


@dataclass(slots=True)
class TimelineRow:
    """One session's row on the time line of a family (a session and its forks). Positions are percent of the width.

    The session's bar reaches from `start` to `end`. Vertical lines join it with its parent above at `above`, and with
    its forks below at `below`. Lines between other sessions cross the row at `passing`.
    """

    start: float
    end: float
    above: float | None = None
    passing: list[float] = field(default_factory=list)
    below: list[float] = field(default_factory=list)

    @property
    def until(self) -> float | None:
        """Return the position of the last fork, if it is after the bar's end, to extend the bar; else `None`."""
        last = max(self.below, default=0.0)
        return last if last > self.end else None


def timeline(sessions: Sequence[Relative]) -> tuple[list[TimelineRow], list[str]]:
    """Return a row for each session of a family (a session and its forks), and the times of `TICKS` ticks.

    The bar of a session with unknown times has the whole width.
    """
    spans = [(_seconds(one.begun or one.started), _seconds(one.last_activity)) for one in sessions]
    known = [moment for span in spans for moment in span if moment is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    scale = (WIDTH - MIN_LENGTH) / (high - low) if high > low else 0.0
    rows = []
    for begun, ended in spans:
        start = ((begun if begun is not None else low) - low) * scale
        end = ((ended if ended is not None else high) - low) * scale + MIN_LENGTH
        rows.append(TimelineRow(round(start, 2), round(max(end, start + MIN_LENGTH), 2)))
    _join(rows, sessions)
    steps = [low + (high - low) * number / (TICKS - 1) for number in range(TICKS)] if high > low else known[:1]
    return rows, [datetime.fromtimestamp(moment, UTC).isoformat() for moment in steps]


def _join(rows: Sequence[TimelineRow], sessions: Sequence[Relative]) -> None:
    """Set the lines from each parent's row down to its forks: `below`, `above`, and `passing` for the rows between."""
    place = {one.session_id: number for number, one in enumerate(sessions)}
    for number, one in enumerate(sessions):
        parent = place.get(one.parent or "")
        if parent is None or parent >= number:
            continue
        at = rows[number].start
        rows[number].above = at
        rows[parent].below.append(at)
        for between in rows[parent + 1 : number]:
            between.passing.append(at)


def _seconds(moment: str | None) -> float | None:
    then = time_of(moment)
    return then.timestamp() if then else None


#: The number of edited files named for a session, and the number and bytes of the logs read for a family.
MAX_FILES = 3
MAX_READ, MAX_BYTES = 60, 100_000_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OwnWork:
    """The work of a session after its fork from its parent: its first prompt, its edited files, and its outcome."""

    question: str
    files: tuple[str, ...]
    outcome: Outcome

    @property
    def named(self) -> tuple[str, ...]:
        """Return the first `MAX_FILES` edited files, which the page names."""
        return self.files[:MAX_FILES]

    @property
    def more(self) -> int:
        return max(0, len(self.files) - MAX_FILES)


def own_works(family: Sequence[Relative]) -> Mapping[str, OwnWork]:
    """Return what each readable member of a family (a session and its forks) did after it was forked, by id."""
    read = dict(_read(family))
    found = {}
    for one in family:
        session, parent = read.get(one.session_id), read.get(one.parent or "")
        if session is not None and (parent is not None or not one.parent):
            found[one.session_id] = own_work(session, parent)
    return found


def own_work(session: Session, parent: Session | None) -> OwnWork:
    """Return the work of a session after its fork from `parent`; without a parent, all its work."""
    begun = own_beginning(session, parent) if parent is not None else OwnBeginning(0, 0)
    turns = session.turns[begun.done :]
    failed = {one.tool_use_id for turn in turns for one in turn.tool_results if one.is_error}
    files = dict.fromkeys(
        printable(mask(shorten_paths(path, session.cwd)))
        for turn in turns
        for call in turn.tool_calls
        if call.id not in failed
        for path in call.edits
    )
    question = next((turn.text for turn in session.turns[begun.asked :] if turn.prompt), "")
    return OwnWork(asked_in_short(question), tuple(files), Outcome.of(session))


def names_of(family: Sequence[Relative], own: Mapping[str, OwnWork]) -> Mapping[str, str]:
    """Return a name for each session of a family (a session and its forks), by id: its title, or its id.

    A fork with its parent's title is named by the first prompt of its `own` work.
    """
    titles = {one.session_id: one.title for one in family}
    names = {}
    for one in family:
        inherited, work = titles.get(one.parent or "", ""), own.get(one.session_id)
        repeats = bool(inherited) and one.title.startswith(inherited)
        names[one.session_id] = (work.question if work and repeats else "") or one.title or one.session_id
    return names


def best_of(family: Iterable[Relative]) -> str:
    """Return the id of the best member of a family (a session and its forks) to fork.

    It has committed work or passed tests, and a search would list it first if all members matched equally. Return "" if
    there is none, or if fewer than two members have a log.
    """
    known = [one for one in family if not one.log_gone]
    if len(known) < 2:
        return ""
    directory = recorded(known[0].working_directory) or Path("/")
    try:
        with opened() as store:
            rows = [row for one in known if (row := store.session(one.agent_type, one.session_id))]
            best = best_fork(rows, store, directory)
    except IndexUnavailable:
        return ""
    return best.session_id if best else ""


def _read(family: Sequence[Relative]) -> Iterable[tuple[str, Session]]:
    left = MAX_BYTES
    for one in family[:MAX_READ]:
        path = Path(one.jsonl_path) if one.jsonl_path else None
        try:
            left -= path.stat().st_size if path else 0
            session = READERS[one.agent_type].read(path).session if path and left >= 0 else None
        except OSError as error:  # the others can be read
            log.info("%s cannot be read: %s", path, error)
            continue
        if session is not None:
            yield one.session_id, session
