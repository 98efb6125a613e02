"""The sessions of the index that wrote lines of code, the one that wrote most of them first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

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
    lines: Sequence[Line], store: Store, scope: Scope, there: Repository, *, trailers: bool = True
) -> list[Writer | None]:
    """Who wrote each line, of the sessions in scope; without `trailers` by the edits alone.

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
    return writers(lines, edits, bytes.fromhex(store.meta("key")), tops(there), named)


def _own(edits: Mapping[int, Sequence[Authored]], store: Store) -> Mapping[int, Sequence[Authored]]:
    """The edits of each session without those that it has from the session that it was forked from."""
    rows = store.sessions(edits)
    parents = {(row.agent, row.session_id): (row.agent, row.parent_id) for row in rows.values()}

    def depth(row: int) -> int:
        above, number = parents[rows[row].agent, rows[row].session_id], 0
        while above in parents and number < len(parents):  # a log may name itself
            above, number = parents[above], number + 1
        return number

    seen: set[Authored] = set()
    found = {}
    for row in sorted(edits, key=depth):
        alike = [replace(edit, exchange=0, turn=0) for edit in edits[row]]
        found[row] = [edit for edit, same in zip(edits[row], alike, strict=True) if same not in seen]
        seen.update(alike)
    return found


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
