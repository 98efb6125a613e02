"""Writing what stays: the file is always the old one or the new one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from indexer.disk import DISK, Disk
from smart_fork.agents import AGENTS
from smart_fork.agents.cuts.model import UNKNOWN, Place, Tool, Transcript, TranscriptTurn, raws
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
        edits = AGENTS.cutter_of(self.tool).relinked(session.turns, cut) if relink else {}
        return write_lines(session, gone, edits, disk=disk)


def writer_of(tool: Tool) -> type[Writer]:
    """The class that writes the sessions of that agent, named after it."""
    return type(f"{type(AGENTS[tool]).__name__}Writer", (Writer,), {"tool": tool, "__doc__": Writer.__doc__})


def write(session: Transcript, turns: Sequence[TranscriptTurn], *, relink: bool = False) -> Path:
    """Write these turns of a session with the writer of its agent.

    Raises:
        As the writers.
    """
    writer = writer_of(session.tool) if session.tool in AGENTS.cuttable() else Writer
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
    lines = chain(AGENTS.cutter_of(session.tool).of_others(session), lines)
    AGENTS.cutter_of(session.tool).replace(target, lines, session.stamp, disk)
    return target


def written_size(session: Transcript, gone: Collection[int], edits: Mapping[int, bytes]) -> int:
    """How long the file is when `write_lines` has written it."""
    if session.padded and session.stamp:
        return session.stamp.size
    own = (at for at, turn in enumerate(session.turns) if at not in gone and turn.is_line)
    size = sum(1 + (len(edits[at]) if at in edits else _length(session.turns[at])) for at in own)
    return size + sum(map(len, AGENTS.cutter_of(session.tool).of_others(session)))


def _length(turn: TranscriptTurn) -> int:
    return len(turn.kept) if isinstance(turn.kept, bytes) else turn.kept.end - turn.kept.start


def written_path(session: Transcript) -> Path:
    """The file that is really written: a link's target, a database's side-car."""
    return AGENTS.cutter_of(session.tool).written(session.source_path.resolve())


def _lines(session: Transcript, gone: Collection[int], edits: Mapping[int, bytes]) -> Iterator[bytes]:
    staying = [(at, turn) for at, turn in enumerate(session.turns) if at not in gone and turn.is_line]
    for (position, _), raw in zip(staying, raws(turn for _, turn in staying), strict=True):
        yield edits.get(position, raw)
        yield b"\n"


def _padded(session: Transcript, gone: Collection[int], edits: Mapping[int, bytes]) -> Iterator[bytes]:
    """Every byte that stays keeps its place: Codex's own database and the headers of forks name places in this file."""
    turns = [(at, turn) for at, turn in enumerate(session.turns) if not turn.inherited]
    own = [(at, turn, turn.kept) for at, turn in turns if isinstance(turn.kept, Place)]
    end = 0
    for (position, turn, (_, start, after)), raw in zip(own, raws(turn for _, turn, _ in own), strict=True):
        new = edits.get(position, raw)
        if position in gone:
            new = b""
        elif len(new) > len(raw):
            owner = AGENTS.title_of(session.tool)
            raise Usage(f"Turn {turn.id} would become longer than it is: {owner}'s own records do not allow that")
        yield _blank(start - end)
        yield new.ljust(len(raw))
        end = after
    if session.stamp and session.stamp.size > end:
        yield _blank(session.stamp.size - end)


def _blank(size: int) -> bytes:
    """The end of a line, and where there is more room, one blank line."""
    return b"\n" * size if size < 2 else b"\n" + b" " * (size - 2) + b"\n"
