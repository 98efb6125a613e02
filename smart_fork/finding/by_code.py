"""The sessions that wrote code, as results of a search: by their share of the lines, or by the words beside that."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from indexer.masking import mask
from indexer.store.base import Placement, SessionRow, Store
from smart_fork.errors import SmartForkError
from smart_fork.finding.answer import AskedCode, Cause, Causes, WroteLines
from smart_fork.finding.authorship import (
    Code,
    Line,
    blamed,
    file_history,
    history,
    lines_of,
    name_of,
    names_lines,
    parsed,
    range_of,
    touched_by,
)
from smart_fork.finding.evidence import admitted
from smart_fork.finding.query import Candidate, Candidates, Query
from smart_fork.finding.results import UNTRUSTED
from smart_fork.finding.sessions import Writer, Wrote, sessions_of, writers_of
from smart_fork.finding.upkeep import unread_notice
from smart_fork.repository.git import Repository, opened, paths
from smart_fork.system.processes import Processes
from smart_fork.text.snippets import quoted

log = logging.getLogger(__name__)

#: Of more files that are changed none is in play: they do not tell sessions apart.
MOST_CHANGED = 64
#: For longer nobody waits to learn which files are changed.
CHANGED_SECONDS = 0.5
#: New files are not looked for: that walks every folder.
_CHANGED = ("diff-index", "--name-only", "-z", "--no-renames", "--no-ext-diff", "--ignore-submodules=all", "HEAD", "--")
#: The characters that are repeated of what was asked in an exchange.
ASKED_CHARACTERS = 300


def by_code(
    store: Store, query: Query, code: Code, processes: Processes, by_words: Candidates | None
) -> tuple[Candidates, AskedCode]:
    """The sessions that wrote the code that a request names. With `by_words` the score is what their words are worth.

    Raises:
        Usage, NotFound: the request names no code of this repository.
        ProgramMissing, ProgramFailed: git is not installed, or the repository is not believed.
    """
    there = opened(query.directory, processes)
    lines = lines_of(there, query.directory, code)
    scope = store.scope(query.scope.project, query.agents, automated=True)
    writers = writers_of(lines, store, scope, there)
    wrote = sessions_of(lines, writers)
    rows, _ = admitted(store.sessions(one.session for one in wrote).values(), query)
    scores = None if by_words is None else {hit.session.row: hit.score for hit in by_words.hits}
    hits = [_candidate(store, rows[one.session], one, scores) for one in wrote if one.session in rows]
    hits.sort(key=lambda one: -one.score)
    of = sum(line.asked for line in lines)
    known = sum(
        line.asked and one is not None and one.session in rows for line, one in zip(lines, writers, strict=True)
    )
    return Candidates(tuple(hits[: query.limit]), "lines"), AskedCode(of, of - known)


def all_in_scope(store: Store, query: Query) -> Candidates:
    """The sessions with a tag, newest first, where nothing else is asked."""
    rows, dropped = admitted(store.sessions(query.scope.sessions or ()).values(), query)
    here = sorted((row for row in rows.values() if row.part in query.scope.parts), key=lambda row: row.until)
    hits = [
        Candidate(row, 1.0, place, text, (), None, (row,), None)
        for row in reversed(here)
        for place, text, _ in (beginning_of(store, row, 0),)
    ]
    return Candidates(tuple(hits[: query.limit]), "recent", dropped=dropped)


def with_files(query: Query, code: Code, processes: Processes) -> Query:
    """The query with the files that the caller gives, or else those that are changed in the working tree."""
    project = query.scope.project
    given = [*code.files, *(parsed(one)[0] for one in code.lines)]
    if isinstance(code.changes, str):
        given += [one.name for one in touched_by(code.changes.encode("utf-8", "replace"))]
    if given or project is None or not project.git:
        return replace(query, in_play=tuple(dict.fromkeys(given)), given=True)
    try:
        done = opened(query.directory, processes).git(*_CHANGED, seconds=CHANGED_SECONDS)
    except (SmartForkError, OSError) as error:  # the answer is good without
        log.info("what is changed is not known: %s", error)
        return query
    changed = paths(done) if done.ok else []
    return replace(query, in_play=tuple(changed)) if len(changed) <= MOST_CHANGED else query


def _candidate(store: Store, row: SessionRow, wrote: Wrote, scores: Mapping[int, float] | None) -> Candidate:
    place, text, asked = beginning_of(store, row, wrote.exchange)
    share = wrote.lines / wrote.of
    told = WroteLines(round(share, 4), wrote.lines, wrote.of, wrote.exchange + 1, asked, wrote.commits)
    score = share if scores is None else scores.get(row.row, 0.0)
    family = tuple(store.family(row.root_id)) if row.root_id else (row,)
    return Candidate(row, score, place, text, (), None, family, None, wrote=told)


def beginning_of(store: Store, row: SessionRow, exchange: int) -> tuple[Placement | None, str, str]:
    """The first passage of an exchange, what the person says in it, and the same masked and cut."""
    place = next((one for one in store.placements_of(row.row) if one.exchange == exchange), None)
    if place is None:
        return None, "", ""
    text, voices = store.texts([place.chunk]).get(place.chunk, ""), store.voices(place)
    text = text[: voices[0][0] if voices else None]
    return place, text, quoted(mask(text.removeprefix("User: ")), ASKED_CHARACTERS)


# Why lines and files are as they are: their changes, and the prompts that caused them.


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
    there = opened(folder, processes)
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
