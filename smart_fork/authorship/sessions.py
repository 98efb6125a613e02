"""The sessions of the index that wrote lines of code, the one that wrote most of them first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from indexer.outcome import Authored
from indexer.shapes import dataclass
from indexer.store.base import Scope, Store
from smart_fork.authorship.blame import Line
from smart_fork.authorship.trailers import sessions_named
from smart_fork.authorship.writers import Writer, writers
from smart_fork.repository.drift import tops
from smart_fork.repository.git import Repository


@dataclass(frozen=True, slots=True)
class Wrote:
    """A session, how many lines it wrote of how many, in which exchange most of them, and their commits."""

    session: int
    lines: int
    of: int
    exchange: int
    commits: tuple[str, ...]


def writers_of(
    lines: Sequence[Line], store: Store, scope: Scope, there: Repository, *, trailers: bool = True, sure: bool = False
) -> list[Writer | None]:
    """Who wrote each line, of the sessions in scope; without `trailers` by the edits alone, `sure` as `writers`.

    Raises:
        ProgramMissing, ProgramFailed: as `Repository.git`.
    """
    edits = _own(store.authored({line.name.rpartition("/")[2] for line in lines}, scope), store)
    named: dict[str, tuple[int, ...]] = {}
    if trailers and edits:
        commits = {line.commit for line in lines} - {""}
        for commit, ids in sessions_named(there, commits).items():
            rows = [row for one in ids for row in store.find_sessions(one) if row.session_id == one]
            named[commit] = tuple(row.row for row in rows if row.part in scope.parts)
    return writers(lines, edits, bytes.fromhex(store.meta("key")), tops(there), named, sure=sure)


def _own(edits: dict[int, list[Authored]], store: Store) -> dict[int, list[Authored]]:
    """The edits of each session without those that it has from a session that it was forked from.

    Not every log names that session: then the one that ended first had them.
    """
    holders: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for session, several in edits.items():
        for edit in several:
            holders[edit.moment, edit.file].add(session)
    shared = {key: rows for key, rows in holders.items() if len(rows) > 1 and key[0]}
    if not shared:
        return edits
    rows = store.sessions(set().union(*shared.values()))
    parents = {row.parent_id for row in rows.values()}
    order = {row.row: (row.session_id not in parents, row.last_activity) for row in rows.values()}
    first = {key: min(holding, key=order.__getitem__) for key, holding in shared.items()}
    return edits | {
        session: [edit for edit in edits[session] if first.get((edit.moment, edit.file), session) == session]
        for session in order
    }


def sessions_of(lines: Sequence[Line], found: Sequence[Writer | None]) -> list[Wrote]:
    """Each session that wrote some of the lines that were asked about. Empty lines do not count."""
    asked = [(line, writer) for line, writer in zip(lines, found, strict=True) if line.asked]
    asked = [one for one in asked if one[0].text.strip()] or asked
    of_session: defaultdict[int, list[tuple[Line, Writer]]] = defaultdict(list)
    for line, writer in asked:
        if writer is not None:
            of_session[writer.session].append((line, writer))
    wrote = []
    for session, several in of_session.items():
        exchanges = Counter(writer.edit.exchange for _, writer in several)
        most = max(exchanges, key=lambda one: (exchanges[one], one))
        commits = tuple(dict.fromkeys(line.commit for line, _ in several if line.commit))
        wrote.append(Wrote(session, len(several), len(asked), most, commits))
    return sorted(wrote, key=lambda one: (-one.lines, -one.session))
