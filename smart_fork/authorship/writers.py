"""Which session and exchange wrote each line, by the edits themselves: content, file, and time before the commit.

Pure. Where the evidence is not enough a line is nobody's: the nearest guess is never the answer.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from indexer.outcome import Authored
from indexer.shapes import dataclass
from indexer.transcripts.authored import LEAST, SIZE, hashed, plain
from indexer.unchecked import seconds_in
from smart_fork.authorship.blame import AROUND, Line
from smart_fork.repository.git import FOLDER

#: Clocks differ: an edit may be so much later than the commit that has it, in seconds.
SLACK = 60
#: A shorter line is evidence only beside another one of the same commit and session.
ALONE = 20
#: The part of a commit's lines around a line that its session has to have written.
PART = 0.5
#: So many of them have to be of a session whose edit was of a file in another folder.
MOVED = 3


@dataclass(frozen=True, slots=True)
class Writer:
    """A session, by its row in the index, and the edit in which it wrote a line."""

    session: int
    edit: Authored


def writers(
    lines: Sequence[Line], edits: Mapping[int, Sequence[Authored]], key: bytes, tops: Collection[str],
    named: Mapping[str, Collection[int]] | None = None, *, sure: bool = False,
) -> list[Writer | None]:  # fmt: skip
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


def _exchanges(several: Iterable[tuple[str, float, Writer]]) -> set[tuple[int, int]]:
    return {(writer.session, writer.edit.exchange) for *_, writer in several}


def _named_one(
    line: Line, edits: Mapping[int, Sequence[Authored]], named: Mapping[str, Collection[int]], tops: Collection[str]
) -> Writer | None:
    """The session that the commit names, if it names one, with its last edit of the file before the commit."""
    rows = set(named.get(line.commit, ()))
    if len(rows) != 1:
        return None
    (row,) = rows
    several = [(relative(edit.file, tops), seconds(edit.moment), Writer(row, edit)) for edit in edits.get(row, ())]
    able = [writer for exact, writer in _able(line, several, rows) if exact]
    return max(able, key=lambda one: one.edit.moment, default=None)


def _by_line(
    edits: Mapping[int, Sequence[Authored]], wanted: set[bytes], tops: Collection[str]
) -> Mapping[bytes, Sequence[tuple[str, float, Writer]]]:
    """The edits that have each of these lines, with the file relative to the repository, and when they were made."""
    found: defaultdict[bytes, list[tuple[str, float, Writer]]] = defaultdict(list)
    for session, several in edits.items():
        for edit in several:
            blob = edit.lines
            if has := wanted & {blob[at : at + SIZE] for at in range(0, len(blob), SIZE)}:
                one = (relative(edit.file, tops), seconds(edit.moment), Writer(session, edit))
                for digest in has:
                    found[digest].append(one)
    return found


def _able(line: Line, wrote: Iterable[tuple[str, float, Writer]], named: Collection[int]) -> list[tuple[bool, Writer]]:
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
    lines: Sequence[Line], able: Sequence[Sequence[tuple[bool, Writer]]], bare: Sequence[bytes], at: int
) -> Writer | None:
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
    lines: Sequence[Line], chosen: Sequence[Writer | None], tells: Sequence[bool]
) -> list[Writer | None]:
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
