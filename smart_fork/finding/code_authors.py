"""Finds the sessions that wrote lines of code, and the prompts behind the code.

A line of code is assigned to a session by comparing the line with the edits in the session's log. Sessions that a
commit message names come first. As search results, these sessions are ordered by their share of the lines, or by the
words of the question.
"""

from __future__ import annotations

import json
import logging
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from indexer.json_values import seconds_in
from indexer.lazy_compilation import dataclass, late
from indexer.masking import mask
from indexer.session_work import Authored
from indexer.store.base import Scope, SessionRow
from indexer.store.sqlite import Store
from indexer.transcripts.line_hashes import MIN_LINE_BYTES, comparable_lines, line_hashes, split_hashes
from smart_fork.display_text import quoted
from smart_fork.finding.answer import AskedCode, Cause
from smart_fork.finding.candidates import Candidate, Candidates
from smart_fork.finding.code_lines import NEAR_LINES, CodeLine, lines_of
from smart_fork.finding.evidence import ASKED_CHARACTERS, admitted, beginning_of
from smart_fork.finding.git import Repository
from smart_fork.finding.hit import WroteLines
from smart_fork.finding.project_places import relative, tops
from smart_fork.finding.query import Code, Query
from smart_fork.system.processes import Processes

log = logging.getLogger(__name__)


def by_code(
    store: Store, query: Query, code: Code, processes: Processes, by_words: Candidates | None
) -> tuple[Candidates, AskedCode]:
    """Return the sessions that wrote the code in a question, by their share of it, and the number of the code's lines.

    If the question has words too, sessions get the scores of `by_words` (the results for the words) instead, or 0.
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


# The changes of lines and files, and the prompts behind them.


def causes_of(there: Repository, lines: Sequence[CodeLine], store: Store, query: Query) -> list[Cause]:
    """Return the cause of each change in `lines`: its commit and, if known, the session that made it."""
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


# The sessions in the index that wrote lines of code, largest share first; and the sessions that commits name.

#: The branch, local or remote, on which Entire keeps the sessions that its trailers refer to.
CHECKPOINTS = "entire/checkpoints/v1"
#: A checkpoint has a folder for each of its sessions. Only the first ones are read.
MAX_SESSIONS = 8
#: A trailer: an agent's name, and the id of its session alone or at the end of a link.
_SESSION = late(rb"^[A-Z][A-Za-z]{1,30}-Session:[ \t]*(?:\S*/)?([A-Za-z0-9][\w-]{7,79})[ \t]*\r?$")
_CHECKPOINT = late(rb"^Entire-Checkpoint:[ \t]*([0-9a-f]{2})([0-9a-f]{10})[ \t]*\r?$")


def sessions_named(there: Repository, commits: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Map each commit to the ids of the sessions that its message names. Commits without such a name are missing.

    A message names a session in a trailer, such as ``Agent-Session: ID``, or through a checkpoint of the program
    Entire, which stores sessions in a git branch.
    """
    found: dict[str, list[str]] = {}
    checkpoints: dict[str, list[str]] = {}
    for commit, raw in objects(there, commits).items():
        for line in raw.partition(b"\n\n")[2].split(b"\n"):
            if named := _SESSION.match(line):
                found.setdefault(commit, []).append(named[1].decode())
            elif named := _CHECKPOINT.match(line):
                checkpoints.setdefault(f"{named[1].decode()}/{named[2].decode()}", []).append(commit)
    for checkpoint, ids in _sessions_of_checkpoints(there, checkpoints).items():
        for commit in checkpoints[checkpoint]:
            found.setdefault(commit, []).extend(ids)
    return {commit: tuple(dict.fromkeys(ids)) for commit, ids in found.items()}


def _sessions_of_checkpoints(there: Repository, folders: Collection[str]) -> Mapping[str, list[str]]:
    if not folders:
        return {}
    patterns = (f"refs/heads/{CHECKPOINTS}", f"refs/remotes/*/{CHECKPOINTS}")
    ref = there.git(
        "for-each-ref", "--sort=-committerdate", "--count=1", "--format=%(objectname)", "--", *patterns
    ).text
    found: dict[str, list[str]] = {}
    places = ("", *(f"{number}/" for number in range(MAX_SESSIONS)))
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
    """Return the contents of git objects by name. Names that git does not know are missing."""
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
    """A session's share of the code that a question is about: it wrote `lines` of the code's `of` lines.

    `exchange` is the number of the prompt after which most of them were written. `commits` contain them.
    """

    session: int
    lines: int
    of: int
    exchange: int
    commits: tuple[str, ...]


def writers_of(
    lines: Sequence[CodeLine], store: Store, scope: Scope, there: Repository, *,
    named: Mapping[str, Collection[int]] | None = None, sure: bool = False,
) -> list[LineWriter | None]:  # fmt: skip
    """Return for each line the session in `scope` that wrote it, or `None`.

    `named` maps commits to the sessions that their messages name; without it, the messages are read. With `sure`, a
    line that sessions wrote after more than one prompt has no writer.
    """
    edits = _without_copied_edits(store.authored({line.name.rpartition("/")[2] for line in lines}, scope), store)
    if named is None:
        named = named_in({line.commit for line in lines} - {""}, store, scope, there) if edits else {}
    return writers(lines, edits, bytes.fromhex(store.meta("key")), tops(there), named, sure=sure)


def named_in(commits: Collection[str], store: Store, scope: Scope, there: Repository) -> dict[str, Collection[int]]:
    """Return the sessions in scope that each commit's message names, as row numbers of the index."""
    found: dict[str, Collection[int]] = {}
    for commit, ids in sessions_named(there, commits).items():
        rows = [row for one in ids for row in store.find_sessions(one) if row.session_id == one]
        found[commit] = tuple(row.row for row in rows if row.part in scope.parts)
    return found


def _without_copied_edits(edits: dict[int, list[Authored]], store: Store) -> dict[int, list[Authored]]:
    """Return `edits` (by session row) without those that a fork's log copied from another session.

    Of several sessions with the same edit, a named parent keeps it; without one, the session that ended first.
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
    """Return the share of each session that wrote asked lines, largest first. Empty lines do not count.

    `found` has the writer of each line.
    """
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


#: An edit may be this many seconds later than the commit that contains it, because clocks differ.
SKEW = 60
#: A shorter line is evidence only beside another line of its commit and session.
LONE_LENGTH = 20
#: A line's session must have written this share of the commit's lines around it.
MIN_PART = 0.5
#: The number of lines that must match if the session edited a file in another folder.
MIN_MOVED_LINES = 3


@dataclass(frozen=True, slots=True)
class LineWriter:
    """The session (a row number of the index) and its edit that wrote a line of code."""

    session: int
    edit: Authored


def writers(
    lines: Sequence[CodeLine], edits: Mapping[int, Sequence[Authored]], key: bytes, tops: Collection[str],
    named: Mapping[str, Collection[int]] | None = None, *, sure: bool = False,
) -> list[LineWriter | None]:  # fmt: skip
    """Return for each line of code the session and edit that wrote it, or `None`.

    `edits` maps sessions (row numbers) to their edits. `tops` are the repository's directories, the innermost first.
    With `sure`, a line that sessions wrote after more than one prompt has no writer.

    `named` maps commits to the sessions that they name. Only these wrote lines of such a commit. A single named session
    wrote all the commit's lines in the files that it edited.
    """
    named = named or {}
    bare = [comparable_lines(line.text.replace("\n", " "))[0] for line in lines]
    hashes = [next(iter(line_hashes([one], key)), b"") for one in bare]
    wrote = _edits_by_line_hash(edits, set(hashes), tops)
    if sure:
        exchanges = {one: {(by.session, by.edit.exchange) for *_, by in several} for one, several in wrote.items()}
        wrote = {one: several for one, several in wrote.items() if len(exchanges[one]) == 1}
    able = [
        _possible_origins(line, wrote.get(digest, ()), named.get(line.commit, ()))
        for line, digest in zip(lines, hashes, strict=True)
    ]
    chosen = [_likeliest_writer(lines, able, bare, at) if one else None for at, one in enumerate(able)]
    result = _with_short_lines(lines, chosen, [len(text) >= MIN_LINE_BYTES for text in bare])
    return [one or _only_named_writer(line, edits, named, tops) for line, one in zip(lines, result, strict=True)]


def _only_named_writer(
    line: CodeLine, edits: Mapping[int, Sequence[Authored]], named: Mapping[str, Collection[int]], tops: Collection[str]
) -> LineWriter | None:
    """Return the session that the line's commit names, with its last edit of the file before the commit.

    Return `None` if the commit names no session or several, or if the session did not edit the file.
    """
    rows = set(named.get(line.commit, ()))
    if len(rows) != 1:
        return None
    (row,) = rows
    several = [(relative(edit.file, tops), seconds(edit.moment), LineWriter(row, edit)) for edit in edits.get(row, ())]
    able = [writer for exact, writer in _possible_origins(line, several, rows) if exact]
    return max(able, key=lambda one: one.edit.moment, default=None)


def _edits_by_line_hash(
    edits: Mapping[int, Sequence[Authored]], wanted: set[bytes], tops: Collection[str]
) -> Mapping[bytes, Sequence[tuple[str, float, LineWriter]]]:
    found: defaultdict[bytes, list[tuple[str, float, LineWriter]]] = defaultdict(list)
    for session, several in edits.items():
        for edit in several:
            blob = edit.lines
            if has := wanted.intersection(split_hashes(blob)):
                one = (relative(edit.file, tops), seconds(edit.moment), LineWriter(session, edit))
                for digest in has:
                    found[digest].append(one)
    return found


def _possible_origins(
    line: CodeLine, wrote: Iterable[tuple[str, float, LineWriter]], named: Collection[int]
) -> list[tuple[bool, LineWriter]]:
    """Return (True if it changed the line's own file, edit) for the edits in `wrote` before the line's commit.

    If the commit's message names sessions (`named`), only their edits are returned.
    """
    if line.by_bot and not named:
        return []
    here = f"/{line.name}"
    return [
        (name == line.name or (name[:1] == "/" and name.endswith(here)), writer)
        for name, moment, writer in wrote
        if moment <= line.committed + SKEW and (not named or writer.session in named)
    ]


def _likeliest_writer(
    lines: Sequence[CodeLine], able: Sequence[Sequence[tuple[bool, LineWriter]]], bare: Sequence[bytes], at: int
) -> LineWriter | None:
    """Return the writer of the line at index `at`: the session that wrote most of the nearby lines of the same commit.

    `able` has the possible edits of each line, `bare` each line's text as it is compared with edits.
    """
    commit = lines[at].commit
    places = range(max(0, at - NEAR_LINES), min(len(lines), at + NEAR_LINES + 1))
    around = [one for one in places if lines[one].commit == commit]
    least = max(
        1 if len(bare[at]) >= LONE_LENGTH else 2, MIN_PART * sum(len(bare[one]) >= MIN_LINE_BYTES for one in around)
    )
    wrote = Counter(pair for one in around for pair in {(exact, writer.session) for exact, writer in able[one]})
    for exact in (True, False):
        most = least if exact else max(MIN_MOVED_LINES, least)
        enough = [writer for same, writer in able[at] if same is exact and wrote[exact, writer.session] >= most]
        if enough:
            return max(enough, key=lambda one: (wrote[exact, one.session], one.edit.moment, -one.session))
    return None


def _with_short_lines(
    lines: Sequence[CodeLine], chosen: Sequence[LineWriter | None], tells: Sequence[bool]
) -> list[LineWriter | None]:
    """Return the writer of each line, also of short lines, which are not compared with edits.

    A short line belongs to the session that wrote the nearest long lines above and below it, if they have one writer
    and are of the same commit.
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


def seconds(moment: str) -> float:
    """Return a log's timestamp as seconds since 1970; infinity if it is not a timestamp."""
    found = seconds_in(moment)
    return float("inf") if found is None else found
