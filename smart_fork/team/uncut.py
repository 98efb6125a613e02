"""Copies of sessions out of which nothing can be cut: they are written again without what was withdrawn.

Only records that a server has withdrawn go, and with them the agent's own bookkeeping.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import orjson

from indexer.files import replace_file
from indexer.transcripts.model import Session
from smart_fork.agents import READERS
from smart_fork.agents.codec import Record
from smart_fork.agents.facets import cutter, find_cutter, forms_of, title_of
from smart_fork.agents.forms import Becomes
from smart_fork.errors import ForkRefused, NotFound
from smart_fork.excise import erasure, propagation
from smart_fork.excise.following import bring
from smart_fork.excise.line_words import said_in
from smart_fork.excise.loader import load_with_tool
from smart_fork.excise.plan import plan
from smart_fork.excise.strings import texts
from smart_fork.excise.traces import words_in
from smart_fork.excise.writers import nobody_writing
from smart_fork.forking.occupation import process_in
from smart_fork.forking.world import world_of
from smart_fork.sharing.canonical import decode
from smart_fork.team.materialise import place_of
from smart_fork.team.pulled import Written, key_of, time_of
from smart_fork.team.withdrawn import Line, renamed_beside

#: What a record is known by in a log -> the record that takes its place, or nothing.
Keys = Mapping[str, bytes | None]


def is_uncut(agent: str) -> bool:
    """Return whether the server's withdrawals are not cut out of copies of that agent's sessions."""
    found = find_cutter(agent)
    return found is None or not found.withdraws


def refuse(agent: str, session_id: str) -> None:
    """Refuse to cut something out of a shared session of such an agent.

    Raises:
        ForkRefused: it is of one.
    """
    if is_uncut(agent):
        raise ForkRefused(
            f"Messages of shared sessions of {title_of(agent)} cannot be withdrawn: {session_id}",
            f"To withdraw all of it: smart-fork team delete {session_id} --everywhere.",
        )


def lines(one: Written, keys: Keys) -> tuple[list[Line], list[Line]]:
    """The records of a copy, and what stays of them, each with its time.

    Raises:
        NotFound: there is no conversation in it.
    """
    before = _records(one, one.path)
    was, left = ([(time_of(record), orjson.dumps(record)) for record in some] for some in (
        before, list(_left(one, before, keys))
    ))  # fmt: skip
    return was, left


def rewrite(one: Written, keys: Keys, path: Path, *, remove: bool = False) -> bool:
    """Take records out of a copy, or of what was made of it here. Whether the log is gone.

    Raises:
        NotFound: there is no conversation in it.
        ForkRefused: an agent has it open.
    """
    session, before = _session(one, path), _records(one, path)
    forms, place = forms_of(one.agent), place_of(one.root)
    left = list(_left(one, before, keys))
    if left == before and not remove:
        propagation.refresh(one.agent, [path])  # whoever was killed may have come no further than the log
        return False
    said = {turn.id for turn in session.turns if turn.role in ("user", "assistant")}
    gone = remove or not any(said.intersection(forms.ids(record)) for record in left)
    if number := process_in(session.session_id, world_of(one.agent)):
        raise ForkRefused(f"The session is running: {session.session_id} (process {number})", "End it first.")
    whole = load_with_tool(one.agent, path)
    words = said_in(map(orjson.dumps, before)) - said_in(map(orjson.dumps, left))
    beside = dict.fromkeys(cutter(one.agent).files_of(path), b"") if gone else renamed_beside(plan(whole, ()), words)
    with nobody_writing(whole):
        if gone:
            propagation.remove(one.agent, session.session_id)
            path.unlink()
        else:
            becomes = Becomes(session.session_id, place, session.parent_id or "")
            replace_file(path, (orjson.dumps(record) + b"\n" for record in forms.anew(left, becomes)))
        for file, new in beside.items():
            bring(file, new)
    if not gone:
        propagation.refresh(one.agent, [path])
    erasure.erase(one.agent, [session.session_id], _words(before) - (set() if gone else _words(left)))
    return gone


def _session(one: Written, path: Path) -> Session:
    session = READERS[one.agent].read(path).session
    if session is None:
        raise NotFound(f"No conversation in {path}")
    return session


def _records(one: Written, path: Path) -> list[Record]:
    forms, place = forms_of(one.agent), place_of(one.root)
    return [forms.outgoing(record, place) for record in forms.records_of(_session(one, path))]


def _left(one: Written, records: Iterable[Record], keys: Keys) -> Iterator[Record]:
    forms = forms_of(one.agent)
    for record in records:
        key = key_of(record)
        if key not in keys:
            yield record
        elif (new := keys[key]) is not None and (arrived := forms.arrived(decode(new), others=False)) is not None:
            yield arrived


def _words(records: Iterable[Record]) -> set[str]:
    return set(words_in("\n".join(text for record in records for text in texts(record))))
