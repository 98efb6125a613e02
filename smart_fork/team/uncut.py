"""Copies of sessions out of which nothing can be cut: they are written again without what was withdrawn.

Only records that a server has withdrawn go, and with them the agent's own bookkeeping.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import orjson

from indexer.files import replace_file
from smart_fork.agents import READERS
from smart_fork.agents.codec import Record
from smart_fork.agents.facets import find_cutter, forms_of, title_of
from smart_fork.agents.forms import Becomes
from smart_fork.cuts.model import Transcript
from smart_fork.errors import ForkRefused, NotFound
from smart_fork.excise import erasure, propagation
from smart_fork.excise.strings import texts
from smart_fork.excise.traces import words_in
from smart_fork.excise.writers import nobody_writing
from smart_fork.forking.occupation import process_in
from smart_fork.forking.world import world_of
from smart_fork.sharing.canonical import decode
from smart_fork.team.local import place_of
from smart_fork.team.pulled import Written, key_of


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


def settle(one: Written, keys: Mapping[str, bytes | None], *, is_crossed: bool, remove: bool) -> bool:
    """Take records out of a copy, and out of what was made of it here. Whether the copy is gone.

    Raises:
        ForkRefused: an agent has it open, or it tells another agent's session, and is not to be removed.
    """
    if is_crossed and not remove:
        raise ForkRefused(
            f"Copies for {title_of(one.agent)} are not cut. smart-fork team sync --remove removes this copy."
        )
    whole = Transcript(one.agent, one.path, READERS[one.agent].id_of(one.path), ())
    for other in propagation.copies(whole):
        _rewrite(one, other, keys, remove=False)
    return _rewrite(one, one.path, keys, remove=remove)


def _rewrite(one: Written, path: Path, keys: Mapping[str, bytes | None], *, remove: bool) -> bool:
    session = READERS[one.agent].read(path).session
    if session is None:
        raise NotFound(f"No conversation in {path}")
    forms, place = forms_of(one.agent), place_of(one.root)
    before = [forms.outgoing(record, place) for record in forms.records_of(session)]
    left = list(_left(one, before, keys))
    if left == before and not remove:
        return False
    said = {turn.id for turn in session.turns if turn.role in ("user", "assistant")}
    gone = remove or not any(said.intersection(forms.ids(record)) for record in left)
    if number := process_in(session.session_id, world_of(one.agent)):
        raise ForkRefused(f"The session is running: {session.session_id} (process {number})", "End it first.")
    with nobody_writing(Transcript(one.agent, path, session.session_id, ())):
        if gone:
            propagation.remove(one.agent, session.session_id)
            path.unlink()
        else:
            becomes = Becomes(session.session_id, place, session.parent_id or "")
            replace_file(path, (orjson.dumps(record) + b"\n" for record in forms.anew(left, becomes)))
    if not gone:
        propagation.refresh(one.agent, [path])
    words = _words(before) - (set() if gone else _words(left))
    erasure.erase(one.agent, [session.session_id], words)
    return gone


def _left(one: Written, records: Iterable[Record], keys: Mapping[str, bytes | None]) -> Iterator[Record]:
    forms = forms_of(one.agent)
    for record in records:
        key = key_of(record)
        if key not in keys:
            yield record
        elif (new := keys[key]) is not None and (arrived := forms.arrived(decode(new), others=False)) is not None:
            yield arrived


def _words(records: Iterable[Record]) -> set[str]:
    return set(words_in("\n".join(text for record in records for text in texts(record))))
