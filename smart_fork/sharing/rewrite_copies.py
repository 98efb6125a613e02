"""Takes what was withdrawn out of a log, with the names that were made of it, and all else of ours that has it.

What was handed over of a session on this machine is known by its times: they are those of the records that it tells.

Copies of sessions out of which nothing can be cut are written again. Only records that a server has withdrawn go, and
with them the agent's own bookkeeping.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from indexer.files import replace_file
from indexer.transcripts.model import AgentName, Session
from indexer.transcripts.state import utc
from smart_fork.agents import AGENTS
from smart_fork.agents.codec import Record
from smart_fork.agents.cuts import snapshots, titles
from smart_fork.agents.cuts.model import Transcript, TranscriptTurn, searchable_texts
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.record_conversion import HomePlace, TargetSession
from smart_fork.errors import ForkRefused, NotFound, SmartForkError
from smart_fork.excise import erasure, transcript, writing
from smart_fork.excise.cut_plan import CutPlan, map_texts
from smart_fork.excise.text_search import telling_words, words_and_runs
from smart_fork.finding import session_notes
from smart_fork.forking.occupation import Occupation
from smart_fork.sharing.canonical import decode, encode
from smart_fork.sharing.received_logs import ReceivedLog, key_of, time_of

#: A line, and when it was said.
TimedLine = tuple[str, bytes]
#: What a cut does to a log, with more turns that go as well, and the lines that it rewrites.
Planner = Callable[[Transcript, Collection[str]], tuple[CutPlan, dict[int, bytes]]]
#: The shortest beginning of a text that is taken for a name made of it.
_NAME = 8
_MASK, _MASKED = re.compile(r"\[REDACTED:[a-z0-9-]{1,40}\]"), "[REDACTED]"


@dataclass(frozen=True, slots=True)
class Loss:
    """The content that a session loses: times at which nothing stays, all times, words, and keys of records.

    Some records only change: `masked` has the lines with a mask of what takes their place, by their times. `known` are
    the times of all records of the session.
    """

    only: frozenset[str]
    times: frozenset[str]
    words: frozenset[str]
    keys: frozenset[str]
    masked: Mapping[str, Sequence[str]]
    known: frozenset[str]

    @classmethod
    def of(
        cls, before: Sequence[TimedLine], after: Sequence[TimedLine], keys: Iterable[str], only: Collection[str],
        *, anew: Iterable[TimedLine], known: Iterable[str],
    ) -> Loss:  # fmt: skip
        """Compute the loss between two versions of these lines. `only` are times at which everything goes; `anew` are
        replacement lines.

        `known` are times of records of the session, whether they go or not.
        """
        was, now = ({utc(time) for time, _ in record_lines} - {""} for record_lines in (before, after))
        words = words_and_runs(line for _, line in before) - words_and_runs(line for _, line in after)
        masks: dict[str, list[str]] = {}
        for time, record in anew:
            masks.setdefault(time, []).extend(_with_masks(record))
        only = ({*only} | was) - now - masks.keys()
        return cls(
            frozenset(only), frozenset(was | only), frozenset(words), frozenset(keys), masks, frozenset(known) | was
        )

    def planned(self, session: Transcript, more: Collection[str]) -> tuple[CutPlan, dict[int, bytes]]:
        """Plan to take it out of a session that was told of it. What was said there since stays."""
        times = _first_times(session)
        there = sorted(self.known.intersection(times.values()))
        places = (bisect_right(there, time) for time in self.masked)  # what came back is told below its call
        said = {there[place - 1] for place in places if place}
        told = [turn for turn in session.own if self.masked and times.get(turn.id) in self.known]
        changed = {turn.id for turn in told if times[turn.id] in said or telling_words([turn.raw], self.words)}
        edits = CutPlan.masking(session, (), changed).edits if changed else {}
        turns = enumerate(session.turns)
        gone = {turn.id for at, turn in turns if self._has(turn, times.get(turn.id, ""), edits.get(at))}
        made = CutPlan.masking(session, {*gone, *transcript.matching(session, self.keys), *more}, changed)
        return made, dict(made.edits)

    def _has(self, turn: TranscriptTurn, time: str, masked_line: bytes | None) -> bool:
        line = masked_line or turn.raw
        is_unsure = time in self.masked and turn.role != "system" and not (masked_line and self.words)
        if is_unsure and not _has_all(line, self.masked[time]):
            return True
        return time in self.only or (time in self.times and bool(telling_words([line], self.words)))

    def forget_snapshots(self, session_id: str) -> None:
        """Delete the snapshots of a session that have it."""
        for kept in snapshots.snapshots(session_id):
            records = filter(None, map(record_in, snapshots.lines(kept)))
            if telling_words(snapshots.lines(kept), self.words) or not self.only.isdisjoint(map(time_of, records)):
                kept.path.unlink(missing_ok=True)


def _first_times(session: Transcript) -> dict[str, str]:
    """The time of each turn, but of those that have one which was before: what was told comes first."""
    found: dict[str, str] = {}
    last, before = "", set[str]()
    for turn in session.own:
        if (time := utc(turn.timestamp)) != last:
            before.add(last)
            last = time
        if time not in before:
            found[turn.id] = time
    return found


def cut(agent: AgentName, planned_of: Planner, words: frozenset[str], path: Path, *, remove: bool = False) -> bool:
    """Cut a log without a snapshot, and take what goes out of the index and all else of ours. Whether it is gone.

    Raises:
        ForkRefused: an agent has it open.
    """
    session = transcript.load_with_tool(agent, path)
    planned, edits = (CutPlan.of(session, ()), {}) if remove else planned_of(session, ())
    words |= _gone(planned, edits)
    if named := _named_after(planned, edits, words):
        planned, edits = planned_of(session, named)
    edits |= _unnamed(planned, words)
    beside = renamed_beside(planned, words)
    if not (planned.gone or edits or beside or remove):
        writing.refresh(agent, [path])  # whoever was killed may have come no further than the log
        return False
    empty = remove or not any(turn.role in ("user", "assistant") and turn.key for turn in planned.survivors)
    turns = [(at, turn.raw) for at, turn in enumerate(session.turns) if turn.id not in planned.gone]
    left = None if empty else [_text(edits.get(at, raw) for at, raw in turns)]
    said = [_text(turn.raw for turn in session.turns)]
    _write_again(session, said, left, beside, lambda: writing.write_lines(session, planned.positions, edits))
    return empty


def _write_again(
    session: Transcript,
    said: Iterable[str],
    left: Sequence[str] | None,
    beside: Mapping[Path, bytes],
    write: Callable[[], object],
) -> None:
    """Write a log that has `said` this so that only that is `left`; where nothing is, it goes with all that is ours.

    Raises:
        ForkRefused: an agent has it open.
    """
    agent, path = session.tool, session.source_path
    ids = {session.session_id, READERS[agent].id_of(path)}
    with Occupation(agent, session.session_id, path).kept_out():
        erasure.erase(agent, sorted(ids), said, left or ())
        for name in ids:
            snapshots.forget(name)
        if left is None:
            for name in ids:
                transcript.remove_own_files(agent, name)
                session_notes.forget(agent, name)
            beside = dict.fromkeys(AGENTS.cutter_of(agent).files_of(path), b"")
            AGENTS.files_of(agent).remove(path)
        else:
            write()
        for file, new in beside.items():
            writing.write_or_delete(file, new)
    if left is not None:
        writing.refresh(agent, [path])


def renamed_beside(planned: CutPlan, words: Collection[str]) -> dict[Path, bytes]:
    """The new content of files beside a log that have what goes, or a name of the session with these words."""
    session = planned.session
    read = READERS[session.tool].read(session.source_path).session
    name = read.title if read is not None else ""
    marks = titles.mark_of_title(name) if telling_words([name.encode()], words) else ()
    return writing.changed_beside(planned, {*transcript.keys_of(planned.removed), *marks})


def _named_after(planned: CutPlan, edits: Mapping[int, bytes], words: Collection[str]) -> set[str]:
    """Lines that are no message, such as titles, and have these words or call it what somebody said in what goes."""
    said = [" ".join(text.split()) for turn in planned.removed for text in _texts(turn.raw)]
    found = set()
    for at, turn in enumerate(planned.session.turns):
        if turn.id not in planned.gone and is_bookkeeping(turn) and "needed" not in turn.meta:
            line = edits.get(at, turn.raw)
            names = [" ".join(text.split()).strip("….") for text in _texts(line)] if not turn.key else ()
            quotes = any(len(name) >= _NAME and one.startswith(name) for name in names for one in said)
            if quotes or telling_words([line], words):
                found.add(turn.id)
    return found


def _unnamed(planned: CutPlan, words: Collection[str]) -> dict[int, bytes]:
    """Lines that are needed, without the names in them that have these words."""
    return {
        at: orjson.dumps(map_texts(record, lambda text: "" if telling_words([text.encode()], words) else text))
        for at, turn in enumerate(planned.session.turns)
        if is_bookkeeping(turn)
        and "needed" in turn.meta
        and telling_words([turn.raw], words)
        and (record := record_in(turn.raw))
    }


def is_bookkeeping(turn: TranscriptTurn) -> bool:
    """Return whether a line is no message: it may name the session."""
    return turn.role == "system" and not turn.inherited


def _gone(planned: CutPlan, edits: Mapping[int, bytes]) -> set[str]:
    """Words of what goes that no message says any more."""
    turns = list(enumerate(planned.session.turns))
    stays = (edits.get(at, turn.raw) for at, turn in turns if turn.id not in planned.gone and not is_bookkeeping(turn))
    return words_and_runs(turn.raw for at, turn in turns if turn.id in planned.gone or at in edits) - words_and_runs(
        stays
    )


def _plain(text: str) -> str:
    """A text with single blanks and masks without kinds: a secret may be of one kind here, and of another there."""
    return " ".join(_MASK.sub(_MASKED, text).split())


def _with_masks(record: bytes) -> list[str]:
    """The lines with a mask in the texts of a record; its longest text where none has one."""
    found = (inner for text in _texts(record) for inner in (_texts(text.encode()) or [text]))
    masks = [plain for text in found for line in text.splitlines() if _MASKED in (plain := _plain(line))]
    return masks or sorted(filter(None, map(_plain, _texts(record))), key=len)[-1:]


def _has_all(line: bytes, wanted: Iterable[str]) -> bool:
    """Return True if a line of a log has all these texts, each in a place of its own: then the secrets they mask are
    masked.
    """
    said = _plain(_text([line]))
    for one in sorted(wanted, key=len, reverse=True):
        before, found, after = said.partition(one)
        if not found:
            return False
        said = f"{before} {after}"
    return True


def record_in(line: bytes) -> Record | None:
    """Return the record on a line; `None` where it is none that can be shared."""
    try:
        record = orjson.loads(line)
        return record if isinstance(record, dict) and encode(record) else None
    except (ValueError, SmartForkError):
        return None


def _text(record_lines: Iterable[bytes]) -> str:
    return "\n".join(text for line in record_lines for text in _texts(line))


def _texts(line: bytes) -> list[str]:
    record = record_in(line)
    return list(searchable_texts(record)) if record else []


#: What a record is known by in a log -> the record that takes its place, or nothing.
EditsByKey = Mapping[str, bytes | None]


def is_rewritten(agent: str) -> bool:
    """Return whether the server's withdrawals are not cut out of copies of that agent's sessions."""
    found = AGENTS.find_cutter(agent)
    return found is None or not found.withdraws


def refuse_uncuttable(agent: str, session_id: str) -> None:
    """Refuse to cut something out of a shared session of such an agent.

    Raises:
        ForkRefused: it is of one.
    """
    if is_rewritten(agent):
        raise ForkRefused(
            f"Messages of shared sessions of {AGENTS.title_of(agent)} cannot be withdrawn: {session_id}",
            f"To withdraw all of it: smart-fork team delete {session_id} --everywhere.",
        )


def record_lines(one: ReceivedLog, keys: EditsByKey) -> tuple[list[TimedLine], list[TimedLine]]:
    """The records of a copy, and what stays of them, each with its time.

    Raises:
        NotFound: there is no conversation in it.
    """
    before = _records(one, one.path)
    was, left = ([(time_of(record), orjson.dumps(record)) for record in some] for some in (
        before, list(_left(one, before, keys))
    ))  # fmt: skip
    return was, left


def rewrite(one: ReceivedLog, keys: EditsByKey, path: Path, *, remove: bool = False) -> bool:
    """Take records out of a copy, or of what was made of it here. Whether the log is gone.

    Raises:
        NotFound: there is no conversation in it.
        ForkRefused: an agent has it open.
    """
    session, before = _session(one, path), _records(one, path)
    forms, place = AGENTS.forms_of(one.agent), HomePlace.of(one.root)
    left = list(_left(one, before, keys))
    if left == before and not remove:
        writing.refresh(one.agent, [path])  # whoever was killed may have come no further than the log
        return False
    said = {turn.id for turn in session.turns if turn.role in ("user", "assistant")}
    gone = remove or not any(said.intersection(forms.ids(record)) for record in left)
    whole = transcript.load_with_tool(one.agent, path)
    words = words_and_runs(map(orjson.dumps, before)) - words_and_runs(map(orjson.dumps, left))
    becomes = TargetSession(session.session_id, place, session.parent_id or "")

    def write() -> None:
        replace_file(path, (orjson.dumps(record) + b"\n" for record in forms.anew(left, becomes)))

    beside = {} if gone else renamed_beside(CutPlan.of(whole, ()), words)
    _write_again(whole, _said(before), None if gone else _said(left), beside, write)
    return gone


def _session(one: ReceivedLog, path: Path) -> Session:
    session = READERS[one.agent].read(path).session
    if session is None:
        raise NotFound(f"No conversation in {path}")
    return session


def _records(one: ReceivedLog, path: Path) -> list[Record]:
    forms, place = AGENTS.forms_of(one.agent), HomePlace.of(one.root)
    return [forms.outgoing(record, place) for record in forms.records_of(_session(one, path))]


def _left(one: ReceivedLog, records: Iterable[Record], keys: EditsByKey) -> Iterator[Record]:
    forms = AGENTS.forms_of(one.agent)
    for record in records:
        key = key_of(record)
        if key not in keys:
            yield record
        elif (new := keys[key]) is not None and (arrived := forms.arrived(decode(new), others=False)) is not None:
            yield arrived


def _said(records: Iterable[Record]) -> list[str]:
    return [text for record in records for text in searchable_texts(record)]
