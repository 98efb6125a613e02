"""Writing what stays: the file is always the old one or the new one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import IO, Self

from indexer.disk import DISK, Disk
from smart_fork.agents import AGENTS
from smart_fork.agents.facets import cuttable, cutter, title_of
from smart_fork.cuts.model import UNKNOWN, Place, Tool, Transcript, TranscriptTurn
from smart_fork.errors import Usage


class Writer:
    """Writes the sessions of one agent."""

    tool: Tool = UNKNOWN

    def write(
        self, session: Transcript, turns: Sequence[TranscriptTurn], *, relink: bool = False, disk: Disk = DISK
    ) -> Path:
        """Write these turns of a session in place of it; verbatim, unless `relink`. Gives the file.

        Raises:
            Usage: another agent's session, or no place for it.
            ForkRefused: the file has changed since it was read.
            OSError: nothing was written.
        """
        if session.tool != self.tool:
            raise Usage(f"{type(self).__name__} cannot write {session.tool} sessions")
        ids = {turn.id for turn in turns}
        gone = {position for position, turn in enumerate(session.turns) if turn.id not in ids}
        cut = {session.turns[position].id for position in gone}
        edits = cutter(self.tool).relinked(session.turns, cut) if relink else {}
        return write_lines(session, gone, edits, disk=disk)


def writer_of(tool: Tool) -> type[Writer]:
    """The class that writes the sessions of that agent, named after it."""
    return type(f"{type(AGENTS[tool]).__name__}Writer", (Writer,), {"tool": tool, "__doc__": Writer.__doc__})


def write(session: Transcript, turns: Sequence[TranscriptTurn], *, relink: bool = False) -> Path:
    """Write these turns of a session with the writer of its agent.

    Raises:
        As the writers.
    """
    writer = writer_of(session.tool) if session.tool in cuttable() else Writer
    return writer().write(session, turns, relink=relink)


def write_lines(session: Transcript, gone: Collection[int], edits: Mapping[int, bytes], *, disk: Disk = DISK) -> Path:
    """The session without the turns at these positions, and with `edits` in place of those.

    Raises:
        As `write`.
    """
    if not session.source_path.name:
        raise Usage("The session has no source path")
    if session.tool == UNKNOWN:
        raise Usage("The agent of this transcript is not known")
    target = written_path(session)
    lines = _padded(session, gone, edits) if session.padded else _lines(session, gone, edits)
    lines = chain(cutter(session.tool).of_others(session), lines)
    cutter(session.tool).replace(target, lines, session.stamp, disk)
    return target


def written_size(session: Transcript, gone: Collection[int], edits: Mapping[int, bytes]) -> int:
    """How long the file is when `write_lines` has written it."""
    if session.padded and session.stamp:
        return session.stamp.size
    own = (at for at, turn in enumerate(session.turns) if at not in gone and turn.is_line)
    size = sum(1 + (len(edits[at]) if at in edits else _length(session.turns[at])) for at in own)
    return size + sum(map(len, cutter(session.tool).of_others(session)))


def _length(turn: TranscriptTurn) -> int:
    return len(turn.kept) if isinstance(turn.kept, bytes) else turn.kept.end - turn.kept.start


def written_path(session: Transcript) -> Path:
    """The file that is really written: a link's target, a database's side-car."""
    return cutter(session.tool).written(session.source_path.resolve())


def _lines(session: Transcript, gone: Collection[int], edits: Mapping[int, bytes]) -> Iterator[bytes]:
    with _Source(session.source_path) as source:
        for position, turn in enumerate(session.turns):
            if position not in gone and turn.is_line:
                yield edits[position] if position in edits else source.raw(turn)
                yield b"\n"


def _padded(session: Transcript, gone: Collection[int], edits: Mapping[int, bytes]) -> Iterator[bytes]:
    """Every byte that stays keeps its place: Codex's own database and the headers of forks name places in this file."""
    end = 0
    with _Source(session.source_path) as source:
        for position, turn in enumerate(session.turns):
            if turn.inherited or not isinstance(turn.kept, Place):
                continue
            _, start, after = turn.kept
            yield _blank(start - end)
            size = after - start
            if position in gone:
                yield b" " * size
            elif position in edits:
                if len(edits[position]) > size:
                    owner = title_of(session.tool)
                    raise Usage(
                        f"Turn {turn.id} would become longer than it is: {owner}'s own records do not allow that"
                    )
                yield edits[position].ljust(size)
            else:
                yield source.raw(turn)
            end = after
        if session.stamp and session.stamp.size > end:
            yield _blank(session.stamp.size - end)


def _blank(size: int) -> bytes:
    """The end of a line, and where there is more room, one blank line."""
    return b"\n" * size if size < 2 else b"\n" + b" " * (size - 2) + b"\n"


class _Source:
    """The transcript, opened once if lines are kept there."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if "_file" in vars(self):
            self._file.close()

    @cached_property
    def _file(self) -> IO[bytes]:
        return self._path.open("rb")

    def raw(self, turn: TranscriptTurn) -> bytes:
        if isinstance(turn.kept, bytes):
            return turn.kept
        self._file.seek(turn.kept.start)
        return self._file.read(turn.kept.end - turn.kept.start)
