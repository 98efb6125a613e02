"""The sessions that wrote code, as results of a search: by their share of the lines, or by the words beside that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from indexer.masking import mask
from indexer.project import resolve
from indexer.store.base import Placement, SessionRow, Store
from smart_fork.authorship.asked import lines_of
from smart_fork.authorship.sessions import Wrote, sessions_of, writers_of
from smart_fork.errors import Usage
from smart_fork.repository.git import opened
from smart_fork.retrieval.answer import AskedCode, WroteLines
from smart_fork.retrieval.evidence import admitted
from smart_fork.retrieval.found import Candidate, Candidates, Query
from smart_fork.retrieval.upkeep import CheckedRequest, Engine
from smart_fork.text.snippets import quoted

#: The characters that are repeated of what was asked in an exchange.
ASKED_CHARACTERS = 300


def by_code(
    store: Store, query: Query, asked: CheckedRequest, engine: Engine, by_words: Candidates | None
) -> tuple[Candidates, AskedCode]:
    """The sessions that wrote the code that a request names. With `by_words` the score is what their words are worth.

    Raises:
        Usage, NotFound: the request names no code of this repository.
        ProgramMissing, ProgramFailed: git is not installed, or the repository is not believed.
    """
    if asked.project is None or asked.outside is not None:
        raise Usage("lines can only be looked up in one repository, with the built-in engine", "Ask in one project.")
    folder = resolve(asked.request.project_path or Path.cwd())
    there = opened(folder, engine.processes)
    lines = lines_of(there, folder, asked.request.code)
    scope = store.scope(asked.project, asked.agents, automated=True)
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
    return Candidates(tuple(hits[: asked.limit]), "lines"), AskedCode(of, of - known)


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
