"""Copies that were written for another agent, whose records are others: what is withdrawn is taken out of these by what
they say.

What is left of the shared session is told once more as that agent would be told; where a message of the copy is not in
that any more, it goes, and where it says something else, that takes its place. What was said in the copy since stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from hashlib import sha256
from operator import methodcaller

import orjson

from indexer.unchecked import dict_in, json_in
from smart_fork.agents import READERS
from smart_fork.agents.facets import forms_of
from smart_fork.cuts.model import Transcript
from smart_fork.errors import NotFound, Unshareable
from smart_fork.excise.plan import Plan, plan
from smart_fork.excise.ranges import chosen, numbered
from smart_fork.excise.strings import mapped
from smart_fork.sharing.canonical import decode
from smart_fork.team.client import Client
from smart_fork.team.download import download
from smart_fork.team.local import Local, place_of
from smart_fork.team.materialise import arrived, crossing
from smart_fork.team.pulled import Said, Written, key_of
from smart_fork.team.withdrawn import Planner

Change = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class _Message:
    """A message of the copy that came with it: who said what, and the turns that it is."""

    said: tuple[str, str]
    turns: frozenset[str]


def keys_of(made: Local) -> tuple[str, ...]:
    """What the records of a copy are known by that was just written."""
    return tuple(dict.fromkeys(key_of(decode(record)) for record in made.records))


def left_of(client: Client, one: Written) -> list[Said] | None:
    """What a copy says of what is left of its session, which has these records now; nothing where that is not told
    any more.
    """
    if not one.crossed_from:
        return []
    try:
        taken = download(client, client.session(one.project, one.sessions[0]))
        records = taken.records[: len(one.crossed_from)]
        if [sha256(record).hexdigest() for record in records] != list(one.crossed_from):
            return None
        with (
            arrived(records, taken.info.agent, taken.info.id, one.root, others=True) as read,
            crossing(one.agent, read.session, taken.info.id, one.root) as (session, _),
        ):
            return [(turn.role, turn.text) for _, turn in session.messages]
    except Unshareable:
        return []  # what is left is no conversation
    except NotFound:
        return None


def planner(one: Written) -> Planner:
    """The turns of a copy that go, and the lines that are rewritten, by what it says of what is left."""
    left = one.left() or []

    def planned(session: Transcript, more: Collection[str]) -> tuple[Plan, dict[int, bytes]]:
        gone, new = _compared(one, session, left)
        said_anew = {session.turns[at].id for at in _rewritten(session, new, {})}
        made = plan(session, {*gone, *more, *(turn for turn in new if turn not in said_anew)})
        lines = {**made.edits, **_rewritten(session, new, made.edits)}
        lines = {at: line for at, line in lines.items() if session.turns[at].id not in made.gone}
        _keep_keys(one, lines.values())
        return made, lines

    return planned


def _compared(one: Written, session: Transcript, left: Sequence[Said]) -> tuple[set[str], dict[str, Change]]:
    """The turns of messages that are not left, and what changes the others that say something else."""
    there = list(_messages(one, session))
    gone: set[str] = set()
    new: dict[str, Change] = {}
    matcher = SequenceMatcher(None, [message.said for message in there], list(left), autojunk=False)
    for _, low, high, first, last in (block for block in matcher.get_opcodes() if block[0] != "equal"):
        became = _became(there[low:high], left[first:last])
        for number, message in enumerate(there[low:high]):
            if number in became:
                new |= dict.fromkeys(message.turns, methodcaller("replace", message.said[1], became[number]))
            else:
                gone |= message.turns
    return gone, new


def _became(before: Sequence[_Message], left: Sequence[Said]) -> dict[int, str]:
    """Which of these messages say something else now: each that is left was the one that is most like it, in order."""
    found: dict[int, str] = {}
    free = 0
    for behind, (role, text) in enumerate(left, 1 - len(left)):
        last = len(before) + behind  # each of those that follow needs one as well
        likes = {
            number: SequenceMatcher(None, before[number].said[1], text, autojunk=False).quick_ratio()
            for number in range(free, min(last, len(before)))
            if before[number].said[0] == role
        }
        if likes:
            number = max(likes, key=lambda one: likes[one])
            found[number], free = text, number + 1
    return found


def _keep_keys(one: Written, lines: Iterable[bytes]) -> None:
    """Keep what the rewritten lines are known by, before they are written."""
    forms, place = forms_of(one.agent), place_of(one.root)
    keys = {key_of(forms.outgoing(record, place)) for line in lines if (record := dict_in(json_in(line)))}
    replace(one, crossed=one.crossed | keys).save()


def _messages(one: Written, session: Transcript) -> Iterator[_Message]:
    read = READERS[one.agent].read(session.source_path).session
    forms, place, whole = forms_of(one.agent), place_of(one.root), numbered(session)
    records = [(turn.id, dict_in(json_in(turn.raw))) for turn in session.turns if not turn.inherited]
    ours = {name for name, record in records if record and key_of(forms.outgoing(record, place)) in one.crossed}
    for number, turn in read.messages if read else ():
        turns = frozenset(chosen(whole, ids=tuple(chosen(whole, str(number)))))  # with what only says it again
        if turns & ours:
            yield _Message((turn.role, turn.text), turns)


def _rewritten(session: Transcript, new: Mapping[str, Change], lines: Mapping[int, bytes]) -> dict[int, bytes]:
    """The lines that say something else, where some are `lines` already."""
    found = {}
    for position, turn in enumerate(session.turns):
        change, record = new.get(turn.id), dict_in(json_in(lines.get(position, turn.raw)))
        if change is not None and record and (after := mapped(record, change)) != record:
            found[position] = orjson.dumps(after)
    return found
