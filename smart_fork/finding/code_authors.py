"""The sessions that wrote code, as results of a search: by their share of the lines, or by the words beside that."""

from __future__ import annotations

import json
import logging
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from indexer.lazy import dataclass, late
from indexer.masking import mask
from indexer.outcome import Authored
from indexer.store.base import Scope, SessionRow, Store
from indexer.transcripts.authored import LEAST, SIZE, hashed, plain
from indexer.values import seconds_in
from smart_fork.finding.answer import AskedCode, Cause
from smart_fork.finding.evidence import ASKED_CHARACTERS, admitted, beginning_of
from smart_fork.finding.git_blame import (
    AROUND,
    CodeLine,
    blamed,
    file_history,
    history,
    lines_of,
    name_of,
    names_lines,
    range_of,
)
from smart_fork.finding.query import Candidate, Candidates, Code, Query
from smart_fork.finding.session_view import WroteLines
from smart_fork.repository.git import FOLDER, Repository
from smart_fork.repository.history import tops
from smart_fork.snippets import quoted
from smart_fork.system.processes import Processes

log = logging.getLogger(__name__)


def by_code(
    store: Store, query: Query, code: Code, processes: Processes, by_words: Candidates | None
) -> tuple[Candidates, AskedCode]:
    """The sessions that wrote the code that a request names. With `by_words` the score is what their words are worth.

    Raises:
        Usage, NotFound: the request names no code of this repository.
        ProgramMissing, ProgramFailed: git is not installed, or the repository is not believed.
    """
    there = Repository.open(query.directory, processes)
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


def _candidate(store: Store, row: SessionRow, wrote: SessionShare, scores: Mapping[int, float] | None) -> Candidate:
    place, text, asked = beginning_of(store, row, wrote.exchange)
    share = wrote.lines / wrote.of
    told = WroteLines(round(share, 4), wrote.lines, wrote.of, wrote.exchange + 1, asked, wrote.commits)
    score = share if scores is None else scores.get(row.row, 0.0)
    family = tuple(store.family(row.root_id)) if row.root_id else (row,)
    return Candidate(row, score, place, text, (), None, family, None, wrote=told)


# Why lines and files are as they are: their changes, and the prompts that caused them.


def changed(where: str, folder: Path, limit: int, processes: Processes) -> tuple[Repository, Sequence[CodeLine], int]:
    """Return the repository, the lines of each newest change of `where`, and the number of older changes.

    `where` is ``PATH:FIRST-LAST`` or a whole file.

    Raises:
        Usage, NotFound: there are no such lines, or there is no such file, in the repository.
        ProgramMissing, ProgramFailed: git is not installed, or the repository is not believed.
    """
    there = Repository.open(folder, processes)
    if names_lines(where):
        lines = blamed(there, range_of(there, folder, where))
        made = [*(one for one in lines if not one.commit), *history(there, [one for one in lines if one.asked])]
        return there, made, 0
    return there, *file_history(there, name_of(there, folder, where), limit)


def causes_of(there: Repository, lines: Sequence[CodeLine], store: Store, query: Query) -> list[Cause]:
    """Return the prompt behind each change of these lines, by the sessions in the query's scope."""
    found = zip(lines, writers_of(lines, store, query.scope, there), strict=True)
    by_commit = [[*several] for _, several in groupby(found, key=lambda one: one[0].commit)]
    return [_cause(store, query, several) for several in by_commit if any(line.asked for line, _ in several)]


def _cause(store: Store, query: Query, made: list[tuple[CodeLine, LineWriter | None]]) -> Cause:
    lines, writers = zip(*made, strict=True)
    cause = Cause(lines[0].commit, lines[0].date, quoted(mask(lines[0].subject), ASKED_CHARACTERS))
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


# The sessions of the index that wrote lines of code, the one that wrote most first; and those that commits name.

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
    for commit, raw in objects(there, commits).items():
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
    for name, raw in objects(there, names).items() if ref else ():
        try:
            told: Any = json.loads(raw)
        except ValueError:
            continue
        if isinstance(told, dict) and isinstance(id_ := told.get("session_id"), str):
            found.setdefault(names[name], []).append(id_)
    return found


def objects(there: Repository, names: Iterable[str]) -> dict[str, bytes]:
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
class SessionShare:
    """A session, how many lines it wrote of how many, in which exchange most of them, and their commits."""

    session: int
    lines: int
    of: int
    exchange: int
    commits: tuple[str, ...]


def writers_of(
    lines: Sequence[CodeLine], store: Store, scope: Scope, there: Repository, *,
    named: Mapping[str, Collection[int]] | None = None, sure: bool = False,
) -> list[LineWriter | None]:  # fmt: skip
    """Find the session in scope that wrote each line. `named` are the sessions that the commits name, if they are known
    or are not to count; `sure` as in `writers`.

    Raises:
        ProgramMissing, ProgramFailed: as `Repository.git`.
    """
    edits = _own(store.authored({line.name.rpartition("/")[2] for line in lines}, scope), store)
    if named is None:
        named = named_in({line.commit for line in lines} - {""}, store, scope, there) if edits else {}
    return writers(lines, edits, bytes.fromhex(store.meta("key")), tops(there), named, sure=sure)


def named_in(commits: Collection[str], store: Store, scope: Scope, there: Repository) -> dict[str, Collection[int]]:
    """Return the sessions in scope, by row, that the message of each of these commits names.

    Raises:
        ProgramMissing, ProgramFailed: as `Repository.git`.
    """
    found: dict[str, Collection[int]] = {}
    for commit, ids in sessions_named(there, commits).items():
        rows = [row for one in ids for row in store.find_sessions(one) if row.session_id == one]
        found[commit] = tuple(row.row for row in rows if row.part in scope.parts)
    return found


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


def sessions_of(lines: Sequence[CodeLine], found: Sequence[LineWriter | None]) -> list[SessionShare]:
    """Each session that wrote some of the lines that were asked about. Empty lines do not count."""
    asked = [(line, writer) for line, writer in zip(lines, found, strict=True) if line.asked]
    asked = [one for one in asked if one[0].text.strip()] or asked
    of_session: defaultdict[int, list[tuple[CodeLine, LineWriter]]] = defaultdict(list)
    for line, writer in asked:
        if writer is not None:
            of_session[writer.session].append((line, writer))
    wrote = []
    for session, several in of_session.items():
        exchanges = Counter(writer.edit.exchange for _, writer in several)
        most = max(exchanges, key=lambda one: (exchanges[one], one))
        commits = tuple(dict.fromkeys(line.commit for line, _ in several if line.commit))
        wrote.append(SessionShare(session, len(several), len(asked), most, commits))
    return sorted(wrote, key=lambda one: (-one.lines, -one.session))


#: Clocks differ: an edit may be so much later than the commit that has it, in seconds.
SLACK = 60
#: A shorter line is evidence only beside another one of the same commit and session.
ALONE = 20
#: The part of a commit's lines around a line that its session has to have written.
PART = 0.5
#: So many of them have to be of a session whose edit was of a file in another folder.
MOVED = 3


@dataclass(frozen=True, slots=True)
class LineWriter:
    """A session, by its row in the index, and the edit in which it wrote a line."""

    session: int
    edit: Authored


def writers(
    lines: Sequence[CodeLine], edits: Mapping[int, Sequence[Authored]], key: bytes, tops: Collection[str],
    named: Mapping[str, Collection[int]] | None = None, *, sure: bool = False,
) -> list[LineWriter | None]:  # fmt: skip
    """Who wrote each of these lines. `tops` are the directories of the repository, the innermost first.

    To be `sure`, a line that several exchanges wrote is nobody's.

    `named` are the sessions that commits name: no other one wrote their lines, and a single one wrote all of them in
    the files that it edited.
    """
    named = named or {}
    bare = [plain(line.text.replace("\n", " "))[0] for line in lines]
    hashes = [next(iter(hashed([one], key)), b"") for one in bare]
    wrote = _by_line(edits, set(hashes), tops)
    if sure:
        wrote = {one: several for one, several in wrote.items() if len(_exchanges(several)) == 1}
    able = [
        _able(line, wrote.get(digest, ()), named.get(line.commit, ()))
        for line, digest in zip(lines, hashes, strict=True)
    ]
    chosen = [_chosen(lines, able, bare, at) if one else None for at, one in enumerate(able)]
    result = _with_short_ones(lines, chosen, [len(text) >= LEAST for text in bare])
    return [one or _named_one(line, edits, named, tops) for line, one in zip(lines, result, strict=True)]


def _exchanges(several: Iterable[tuple[str, float, LineWriter]]) -> set[tuple[int, int]]:
    return {(writer.session, writer.edit.exchange) for *_, writer in several}


def _named_one(
    line: CodeLine, edits: Mapping[int, Sequence[Authored]], named: Mapping[str, Collection[int]], tops: Collection[str]
) -> LineWriter | None:
    """The session that the commit names, if it names one, with its last edit of the file before the commit."""
    rows = set(named.get(line.commit, ()))
    if len(rows) != 1:
        return None
    (row,) = rows
    several = [(relative(edit.file, tops), seconds(edit.moment), LineWriter(row, edit)) for edit in edits.get(row, ())]
    able = [writer for exact, writer in _able(line, several, rows) if exact]
    return max(able, key=lambda one: one.edit.moment, default=None)


def _by_line(
    edits: Mapping[int, Sequence[Authored]], wanted: set[bytes], tops: Collection[str]
) -> Mapping[bytes, Sequence[tuple[str, float, LineWriter]]]:
    """The edits that have each of these lines, with the file relative to the repository, and when they were made."""
    found: defaultdict[bytes, list[tuple[str, float, LineWriter]]] = defaultdict(list)
    for session, several in edits.items():
        for edit in several:
            blob = edit.lines
            if has := wanted & {blob[at : at + SIZE] for at in range(0, len(blob), SIZE)}:
                one = (relative(edit.file, tops), seconds(edit.moment), LineWriter(session, edit))
                for digest in has:
                    found[digest].append(one)
    return found


def _able(
    line: CodeLine, wrote: Iterable[tuple[str, float, LineWriter]], named: Collection[int]
) -> list[tuple[bool, LineWriter]]:
    """The edits that can have brought a line into its commit, each with whether it was of that very file."""
    if line.by_bot and not named:
        return []
    here = f"/{line.name}"
    return [
        (name == line.name or (name[:1] == "/" and name.endswith(here)), writer)
        for name, moment, writer in wrote
        if moment <= line.committed + SLACK and (not named or writer.session in named)
    ]


def _chosen(
    lines: Sequence[CodeLine], able: Sequence[Sequence[tuple[bool, LineWriter]]], bare: Sequence[bytes], at: int
) -> LineWriter | None:
    """The edit of the session that wrote most of the commit's lines around this one; of that session the last one."""
    commit = lines[at].commit
    around = [
        one for one in range(max(0, at - AROUND), at + AROUND + 1) if one < len(lines) and lines[one].commit == commit
    ]
    least = max(1 if len(bare[at]) >= ALONE else 2, PART * sum(len(bare[one]) >= LEAST for one in around))
    wrote = Counter(pair for one in around for pair in {(exact, writer.session) for exact, writer in able[one]})
    for exact in (True, False):
        most = least if exact else max(MOVED, least)
        enough = [writer for same, writer in able[at] if same is exact and wrote[exact, writer.session] >= most]
        if enough:
            return max(enough, key=lambda one: (wrote[exact, one.session], one.edit.moment, -one.session))
    return None


def _with_short_ones(
    lines: Sequence[CodeLine], chosen: Sequence[LineWriter | None], tells: Sequence[bool]
) -> list[LineWriter | None]:
    """Give lines that say nothing themselves to the session of the lines around them, if these agree.

    Around are the next lines above and below that say something, in the same commit without another one between.
    """
    result = list(chosen)
    runs: list[list[int]] = []
    for at, line in enumerate(lines):
        before = lines[at - 1]
        if at and (line.commit, line.name, line.number) == (before.commit, before.name, before.number + 1):
            runs[-1].append(at)
        else:
            runs.append([at])
    for run in runs:
        telling = [at for at in run if tells[at]]
        for at in run:
            place = bisect(telling, at)
            near = [chosen[one] for one in telling[max(0, place - 1) : place + 1]]
            sessions = {one.session if one else None for one in near}
            if not tells[at] and not lines[at].by_bot and len(sessions) == 1:
                result[at] = near[0]
    return result


def relative(file: str, tops: Collection[str]) -> str:
    """A file relative to the directory of the repository that it is in; as it is where that is no longer known.

    A worker's worktree may be gone: its files are those of the repository around it.
    """
    top = next((top for top in tops if file.startswith(f"{top.rstrip('/')}/")), None)
    name = file if top is None else file[len(top.rstrip("/")) + 1 :]
    return name.split("/", 2)[-1] if name.startswith(f"{FOLDER}/") else name


def seconds(moment: str) -> float:
    """A time as logs have it, in seconds; infinity for what is none."""
    found = seconds_in(moment)
    return float("inf") if found is None else found
