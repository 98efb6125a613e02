"""The sessions of the index that wrote lines of code, the one that wrote most first; and those that commits name."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from indexer.outcome import Authored
from indexer.patterns import late
from indexer.shapes import dataclass
from indexer.store.base import Scope, Store
from smart_fork.authorship.blame import Line
from smart_fork.authorship.writers import Writer, writers
from smart_fork.repository.drift import tops
from smart_fork.repository.git import Repository

#: The branch on which Entire keeps the sessions that its trailers mean, here and at remotes.
CHECKPOINTS = "entire/checkpoints/v1"
#: A checkpoint has a folder for each of its sessions: of more, the first are looked at.
MOST_SESSIONS = 8
#: An agent's name before the id of its session, which stands by itself or at the end of a link.
_SESSION = late(rb"^[A-Z][A-Za-z]{1,30}-Session:[ \t]*(?:\S*/)?([A-Za-z0-9][\w-]{7,79})[ \t]*\r?$")
_CHECKPOINT = late(rb"^Entire-Checkpoint:[ \t]*([0-9a-f]{2})([0-9a-f]{10})[ \t]*\r?$")


def sessions_named(there: Repository, commits: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The ids of the sessions that the message of each of these commits names, without commits that name none.

    Raises:
        ProgramMissing, ProgramFailed: as `Repository.git`.
    """
    found: dict[str, list[str]] = {}
    checkpoints: dict[str, list[str]] = {}
    for commit, raw in _objects(there, commits).items():
        for line in raw.partition(b"\n\n")[2].split(b"\n"):
            if named := _SESSION.match(line):
                found.setdefault(commit, []).append(named[1].decode())
            elif named := _CHECKPOINT.match(line):
                checkpoints.setdefault(f"{named[1].decode()}/{named[2].decode()}", []).append(commit)
    for checkpoint, ids in _of_checkpoints(there, checkpoints).items():
        for commit in checkpoints[checkpoint]:
            found.setdefault(commit, []).extend(ids)
    return {commit: tuple(dict.fromkeys(ids)) for commit, ids in found.items()}


def _of_checkpoints(there: Repository, folders: Collection[str]) -> Mapping[str, list[str]]:
    """The sessions of each of these folders of the branch."""
    if not folders:
        return {}
    patterns = (f"refs/heads/{CHECKPOINTS}", f"refs/remotes/*/{CHECKPOINTS}")
    ref = there.git(
        "for-each-ref", "--sort=-committerdate", "--count=1", "--format=%(objectname)", "--", *patterns
    ).text
    found: dict[str, list[str]] = {}
    places = ("", *(f"{number}/" for number in range(MOST_SESSIONS)))
    names = {f"{ref}:{folder}/{place}metadata.json": folder for folder in folders for place in places}
    for name, raw in _objects(there, names).items() if ref else ():
        try:
            told: Any = json.loads(raw)
        except ValueError:
            continue
        if isinstance(told, dict) and isinstance(id_ := told.get("session_id"), str):
            found.setdefault(names[name], []).append(id_)
    return found


def _objects(there: Repository, names: Iterable[str]) -> dict[str, bytes]:
    """The contents of objects by these names, without those that are not there."""
    asked = list(names)
    said = there.git("cat-file", "--batch", given=b"".join(f"{name}\n".encode() for name in asked)).stdout
    found, place = {}, 0
    for name in asked:
        head, _, _ = said[place:].partition(b"\n")
        place += len(head) + 1
        if (size := head.rpartition(b" ")[2]).isdigit():
            found[name] = said[place : place + int(size)]
            place += int(size) + 1
    return found


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
