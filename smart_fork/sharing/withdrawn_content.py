"""Finds and cuts out withdrawn content (its owner took it back) in every log that has it.

A handed-over copy (written for another agent) has other records than its source. Its turns are recognized by their
times, which are those of the source's records. An agent's bookkeeping, such as a title, goes too if it quotes them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from indexer.transcripts.model import AgentName
from indexer.transcripts.reader_state import utc
from smart_fork.agents import AGENTS
from smart_fork.agents.decoders import Record
from smart_fork.agents.excision import snapshots, titles
from smart_fork.agents.excision.transcript import Transcript, TranscriptTurn, searchable_texts
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import SmartForkError
from smart_fork.excise import erasure, lookup, writing
from smart_fork.excise.cut_plan import CutPlan, map_texts
from smart_fork.excise.cut_words import telling_words, words_and_runs
from smart_fork.finding import session_notes
from smart_fork.forking.session_use import SessionUse
from smart_fork.sharing import log_register
from smart_fork.sharing.canonical import encode

#: A line of a log, after its time.
TimedLine = tuple[str, bytes]
#: Plans a cut of a log, given further turns to cut. Returns the plan and the rewritten lines by position.
Planner = Callable[[Transcript, Collection[str]], tuple[CutPlan, dict[int, bytes]]]
#: The shortest title that counts as a quotation of a text's beginning.
_NAME = 8
_MASK, _MASKED = re.compile(r"\[REDACTED:[a-z0-9-]{1,40}\]"), "[REDACTED]"


@dataclass(frozen=True, slots=True)
class Loss:
    """The content that a session loses to a withdrawal, to find it in handed-over copies (written for other agents).

    Such a copy keeps the times of the records, so a time identifies a record. All records at a time in `only` are lost;
    at the other `times`, only content with the lost `words`. `keys` are the keys of lost records. `masked` has the
    masked lines of changed records, by time. `known` are the times of all records of the session.
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
        *, replacements: Iterable[TimedLine], known: Iterable[str],
    ) -> Loss:  # fmt: skip
        """Compute the lost content from a session's lines `before` and `after` the withdrawal, each with its time.

        `replacements` are the new lines of changed records. For the other arguments see the fields of the class.
        """
        was, now = ({utc(time) for time, _ in record_lines} - {""} for record_lines in (before, after))
        words = words_and_runs(line for _, line in before) - words_and_runs(line for _, line in after)
        masks: dict[str, list[str]] = {}
        for time, record in replacements:
            masks.setdefault(time, []).extend(_with_masks(record))
        only = ({*only} | was) - now - masks.keys()
        return cls(
            frozenset(only), frozenset(was | only), frozenset(words), frozenset(keys), masks, frozenset(known) | was
        )

    def planned(self, session: Transcript, more: Collection[str]) -> tuple[CutPlan, dict[int, bytes]]:
        """Plan how to cut the lost content, and the turns with an id in `more`, out of a handed-over copy.

        Return the plan and the rewritten lines, by position. Turns that were added to the copy later stay in it.
        """
        times = _first_times(session)
        there = sorted(self.known.intersection(times.values()))
        places = (bisect_right(there, time) for time in self.masked)  # what came back is told below its call
        said = {there[place - 1] for place in places if place}
        told = [turn for turn in session.own if self.masked and times.get(turn.id) in self.known]
        changed = {turn.id for turn in told if times[turn.id] in said or telling_words([turn.raw], self.words)}
        edits = CutPlan.masking(session, (), changed).edits if changed else {}
        turns = enumerate(session.turns)
        gone = {turn.id for at, turn in turns if self._has(turn, times.get(turn.id, ""), edits.get(at))}
        made = CutPlan.masking(session, {*gone, *lookup.matching_turns(session, self.keys), *more}, changed)
        return made, dict(made.edits)

    def _has(self, turn: TranscriptTurn, time: str, masked_line: bytes | None) -> bool:
        line = masked_line or turn.raw
        is_unsure = time in self.masked and turn.role != "system" and not (masked_line and self.words)
        if is_unsure and not _has_all(line, self.masked[time]):
            return True
        return time in self.only or (time in self.times and bool(telling_words([line], self.words)))

    def forget_snapshots(self, session_id: str) -> None:
        """Delete the session's snapshots (its log's contents before cuts) that contain lost content."""
        for kept in snapshots.snapshots(session_id):
            times = map(log_register.record_time, filter(None, map(record_in, snapshots.lines(kept))))
            if telling_words(snapshots.lines(kept), self.words) or not self.only.isdisjoint(times):
                kept.path.unlink(missing_ok=True)


def _first_times(session: Transcript) -> dict[str, str]:
    """Return the time of each turn of a handed-over copy, by turn id.

    A turn is left out if its time occurred earlier with other times in between: such a time identifies no record.
    """
    found: dict[str, str] = {}
    last, before = "", set[str]()
    for turn in session.own:
        if (time := utc(turn.timestamp)) != last:
            before.add(last)
            last = time
        if time not in before:
            found[turn.id] = time
    return found


def cut_log(agent: AgentName, planned_of: Planner, words: frozenset[str], path: Path, *, remove: bool = False) -> bool:
    """Cut withdrawn content out of a log as `planned_of` plans, and out of smart-fork's own files, without undo.

    `words` are the words that only withdrawn content has: titles with them, and files beside the log, are changed too.
    With `remove`, delete the log. Return True if the log is deleted, also because no message remains.
    """
    session = lookup.load_with_tool(agent, path)
    planned, edits = (CutPlan.of(session, ()), {}) if remove else planned_of(session, ())
    words |= _gone(planned, edits)
    if named := _named_after(planned, edits, words):
        planned, edits = planned_of(session, named)
    edits |= _unnamed(planned, words)
    beside = changed_files_beside(planned, words)
    if not (planned.gone or edits or beside or remove):
        writing.refresh(agent, [path])  # whoever was killed may have come no further than the log
        return False
    empty = remove or not any(turn.role in ("user", "assistant") and turn.key for turn in planned.survivors)
    turns = [(at, turn.raw) for at, turn in enumerate(session.turns) if turn.id not in planned.gone]
    left = None if empty else [_text(edits.get(at, raw) for at, raw in turns)]
    said = [_text(turn.raw for turn in session.turns)]
    erase_and_write(session, said, left, beside, lambda: writing.write_lines(session, planned.positions, edits))
    return empty


def erase_and_write(
    session: Transcript,
    said: Iterable[str],
    left: Sequence[str] | None,
    beside: Mapping[Path, bytes],
    write: Callable[[], object],
) -> None:
    """Erase the text that a log loses from smart-fork's own files, then call `write` to write the log.

    `said` are the log's texts before the loss, and `left` those after it. If `left` is `None`, the log is deleted with
    all of smart-fork's files about it. `beside` maps other files of the session to their new contents. Raise
    `ForkRefused` if an agent has the log open.
    """
    agent, path = session.tool, session.source_path
    ids = {session.session_id, READERS[agent].id_of(path)}
    with SessionUse(agent, session.session_id, path).kept_out():
        erasure.erase(agent, sorted(ids), said, left or ())
        for name in ids:
            snapshots.forget(name)
        if left is None:
            for name in ids:
                lookup.remove_own_files(agent, name)
                session_notes.forget(agent, name)
            beside = dict.fromkeys(AGENTS.cutter_of(agent).files_of(path), b"")
            AGENTS.files_of(agent).remove(path)
        else:
            write()
        for file, new in beside.items():
            writing.write_or_delete(file, new)
    if left is not None:
        writing.refresh(agent, [path])


def changed_files_beside(planned: CutPlan, words: Collection[str]) -> dict[Path, bytes]:
    """Return by path new contents of the files beside a log, without removed turns and titles with lost `words`."""
    session = planned.session
    read = READERS[session.tool].read(session.source_path).session
    name = read.title if read is not None else ""
    marks = titles.mark_of_title(name) if telling_words([name.encode()], words) else ()
    return writing.changed_beside(planned, {*lookup.keys_of(planned.removed), *marks})


def _named_after(planned: CutPlan, edits: Mapping[int, bytes], words: Collection[str]) -> set[str]:
    """Return the ids of bookkeeping lines, such as titles, that quote removed content or contain one of the `words`."""
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
    """Return new lines for bookkeeping that the agent needs, by position. Texts with one of the `words` are emptied."""
    return {
        at: orjson.dumps(map_texts(record, lambda text: "" if telling_words([text.encode()], words) else text))
        for at, turn in enumerate(planned.session.turns)
        if is_bookkeeping(turn)
        and "needed" in turn.meta
        and telling_words([turn.raw], words)
        and (record := record_in(turn.raw))
    }


def is_bookkeeping(turn: TranscriptTurn) -> bool:
    """Return True if a turn is not a message but a record of the agent's own, such as a title."""
    return turn.role == "system" and not turn.inherited


def _gone(planned: CutPlan, edits: Mapping[int, bytes]) -> set[str]:
    """Return the words of the removed or edited lines of a planned cut that no remaining message contains."""
    turns = list(enumerate(planned.session.turns))
    stays = (edits.get(at, turn.raw) for at, turn in turns if turn.id not in planned.gone and not is_bookkeeping(turn))
    return words_and_runs(turn.raw for at, turn in turns if turn.id in planned.gone or at in edits) - words_and_runs(
        stays
    )


def _plain(text: str) -> str:
    """Normalize a text to compare it: single spaces, and masks of secrets without the kind.

    Two logs may mask one secret as different kinds.
    """
    return " ".join(_MASK.sub(_MASKED, text).split())


def _with_masks(record: bytes) -> list[str]:
    """Return the lines in a record's texts that have a masked secret; without such lines, the longest text."""
    found = (inner for text in _texts(record) for inner in (_texts(text.encode()) or [text]))
    masks = [plain for text in found for line in text.splitlines() if _MASKED in (plain := _plain(line))]
    return masks or sorted(filter(None, map(_plain, _texts(record))), key=len)[-1:]


def _has_all(line: bytes, wanted: Iterable[str]) -> bool:
    """Return True if `line` has all `wanted` masked texts, each at its own place: nothing in it is left to mask."""
    said = _plain(_text([line]))
    for one in sorted(wanted, key=len, reverse=True):
        before, found, after = said.partition(one)
        if not found:
            return False
        said = f"{before} {after}"
    return True


def record_in(line: bytes) -> Record | None:
    """Return the record on a line; `None` if the line is no record that can be shared."""
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
