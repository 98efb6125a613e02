"""Why lines and files are as they are: their changes, and the prompts that caused them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from indexer.masking import mask
from indexer.store.base import Store
from smart_fork.authorship.blame import Line, blamed, file_history, history, name_of, names_lines, range_of
from smart_fork.authorship.sessions import Writer, sessions_of, writers_of
from smart_fork.repository.git import Repository
from smart_fork.repository.git import opened as repository_at
from smart_fork.retrieval.answer import Cause, Causes
from smart_fork.retrieval.by_code import ASKED_CHARACTERS, beginning_of
from smart_fork.retrieval.covered import unread_notice
from smart_fork.retrieval.evidence import admitted
from smart_fork.retrieval.found import Query
from smart_fork.retrieval.results import UNTRUSTED
from smart_fork.system.processes import Processes
from smart_fork.text.snippets import quoted


class Changed(NamedTuple):
    """The lines of `where` as they were changed, newest first, of which `limit` changes are told; `older` are more."""

    where: str
    limit: int
    there: Repository
    lines: Sequence[Line]
    older: int


def changed(where: str, folder: Path, limit: int, processes: Processes) -> Changed:
    """The newest changes of the lines in ``PATH:FIRST-LAST``, or of a whole file.

    Raises:
        Usage, NotFound: there are no such lines, or there is no such file, in the repository.
        ProgramMissing, ProgramFailed: git is not installed, or the repository is not believed.
    """
    there = repository_at(folder, processes)
    if names_lines(where):
        lines = blamed(there, range_of(there, folder, where))
        made = [*(one for one in lines if not one.commit), *history(there, [one for one in lines if one.asked])]
        return Changed(where, limit, there, made, 0)
    return Changed(where, limit, there, *file_history(there, name_of(there, folder, where), limit))


def causes_of(changes: Changed, store: Store, query: Query, new: int) -> Causes:
    """The prompts that caused changes, of the sessions that are asked; `new` logs of them were never read."""
    limit = changes.limit
    found = zip(changes.lines, writers_of(changes.lines, store, query.scope, changes.there), strict=True)
    by_commit = [[*several] for _, several in groupby(found, key=lambda one: one[0].commit)]
    causes = [_cause(store, query, several) for several in by_commit if any(line.asked for line, _ in several)]
    unread = unread_notice(new, store.counts(query.scope).sessions, scored=False)
    more = changes.older + max(0, len(causes) - limit)
    return Causes(changes.where, UNTRUSTED, min(len(causes), limit), tuple(causes[:limit]), more, unread)


def _cause(store: Store, query: Query, made: list[tuple[Line, Writer | None]]) -> Cause:
    lines, writers = zip(*made, strict=True)
    date = datetime.fromtimestamp(lines[0].committed, UTC).isoformat().replace("+00:00", "Z") if lines[0].commit else ""
    cause = Cause(lines[0].commit, date, quoted(mask(lines[0].subject), ASKED_CHARACTERS))
    wrote = next(iter(sessions_of(lines, writers)), None)
    rows, _ = admitted(store.sessions([wrote.session] if wrote else ()).values(), query)
    if wrote is None or wrote.session not in rows:
        return cause
    row = rows[wrote.session]
    place, _, asked = beginning_of(store, row, wrote.exchange)
    ends = place.ends if place else None
    return replace(
        cause, session_id=row.session_id, agent_type=row.agent, exchange=wrote.exchange + 1, ends_at_message=ends,
        asked=asked, lines=wrote.lines, of=wrote.of,
    )  # fmt: skip
