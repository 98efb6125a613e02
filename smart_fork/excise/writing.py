"""Writes a cut into its session, and into everything that was made of it: copies, branches, forks of forks.

A file is always the old one or the new one.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path

from indexer.failures import what_failed
from indexer.files import DISK, Disk, replace_file
from indexer.lazy import dataclass
from smart_fork.agents import AGENTS
from smart_fork.agents.cuts import snapshots
from smart_fork.agents.cuts.model import Transcript, TranscriptTurn
from smart_fork.errors import SmartForkError, Usage, advice
from smart_fork.excise.answer import Followed, NotFollowed
from smart_fork.excise.cut_plan import CutPlan
from smart_fork.excise.transcript import derived_from, keys_of, load_copy, matching
from smart_fork.forking.family import Descent
from smart_fork.forking.occupation import Occupation

NOTHING = Descent()


@dataclass(frozen=True, slots=True)
class CutChange:
    """Values that all files of one cut share. `keys` name the removed records, `masked` those that lose their secrets.

    `follows` says whether what lies beside a log goes with it.
    """

    keys: frozenset[str]
    masked: frozenset[str]
    command: str
    id: str
    now: datetime
    disk: Disk = DISK
    follows: bool = True


def change_of(planned: CutPlan, command: str, disk: Disk, now: datetime, *, follows: bool) -> CutChange:
    """The change that a plan for a session is."""
    keys, masks = frozenset(keys_of(planned.removed)), frozenset(_masked(planned))
    return CutChange(keys, masks, command, uuid.uuid4().hex, now, disk, follows)


def write(
    planned: CutPlan, change: CutChange, command: str = "", descent: Descent = NOTHING
) -> tuple[str | None, list[Followed]]:
    """Cut one transcript, and take away what lies beside it and goes. Its `descent` is noted.

    Return the snapshot of before, and the files beside it that went.

    Raises:
        ForkRefused: it is running, or has changed.
        OSError: nothing was written.
    """
    session, disk, agent = planned.session, change.disk, AGENTS.cutter_of(planned.session.tool)
    target = written_path(session)
    gone = planned.positions
    with Occupation(session.tool, session.session_id, session.source_path).kept_out():
        snapshot = snapshots.take(
            target, session.session_id, change.now, disk=disk, files=AGENTS.cutter_of(session.tool)
        )
        note = partial(snapshots.note, session, snapshot=snapshot, target=target, now=change.now, change=change.id)
        try:
            note(
                command or change.command, size_after=written_size(session, gone, planned.edits),
                removed_ids=[turn.id for turn in planned.removed],
                seed_ids=[turn.id for turn in planned.removed if turn.id in planned.seeds],
                orphaned=sorted(planned.orphaned),
                keys=sorted(keys_of(planned.removed)), masked=_masked(planned),
                below=sorted({one.session_id for one in descent.descendants if not one.handed_over}),
                above=sorted(descent.ancestors),
                unclear=sorted({one.session_id for one in descent.unclear if not one.handed_over}),
            )  # fmt: skip
            changed = changed_beside(planned, change.keys | change.masked) if change.follows else {}
            beside = [_noted(session, path, change, len(new)) for path, new in changed.items()]
            agent.forget(session)
            write_lines(session, gone, planned.edits, disk=disk)
        except BaseException:
            with suppress(OSError):
                now = AGENTS.cutter_of(session.tool).stamp(target)
                note(snapshots.FAILED, size_after=now.size if now else 0)
            raise
        for path, new in changed.items():
            write_or_delete(path, new)
    with suppress(OSError):
        snapshots.prune(change.now)
    return snapshot.id if snapshot else None, beside


def cut_copies(
    session: Transcript, change: CutChange, copies: Iterable[Path]
) -> tuple[list[Followed], list[NotFollowed]]:
    """Make the same cut in copies and branches of a session; those that have nothing of it are in neither list."""
    done = [one for copy in copies for one in _followed(session, change, copy)]
    left = [one for one in done if isinstance(one, NotFollowed)]
    return [one for one in done if isinstance(one, Followed)], left


def finish_cut(session: Transcript, change_id: str) -> tuple[list[Followed], list[NotFollowed]]:
    """Finish a cut of a session where it was ended in the middle; nothing where it was not made, or was undone."""
    made = next((one for one in snapshots.cuts(written_path(session)) if one.change == change_id), None)
    if made is None or _is_as_before(session, made):
        return [], []
    AGENTS.cutter_of(session.tool).finish(session.source_path)
    keys, masks = frozenset(made.keys), frozenset(made.masked)
    change = CutChange(keys, masks, made.command, made.change, datetime.now(UTC))
    together = [one for one in snapshots.logged() if one.change == change_id]
    for one in together:
        if one.beside and not one.size_after:
            write_or_delete(Path(one.source_path), b"")
    for log in (Path(one.source_path) for one in together if not one.beside):
        for path, new in AGENTS.cutter_of(session.tool).revised(log, keys | masks).items():
            write_or_delete(path, new)
    return cut_copies(session, change, derived_from(session, keys | masks).copies)


def _followed(session: Transcript, change: CutChange, copy: Path) -> Sequence[Followed | NotFollowed]:
    other = load_copy(session, copy)
    if other is None:
        return [NotFollowed(str(copy), "cannot be read")]
    same = matching(other, change.keys)
    planned = CutPlan.masking(other, same, None) if change.masked else CutPlan.of(other, same)
    if not planned.changes:
        return ()
    again = advice("the next `smart-fork index run` cuts it", tool="the next index run cuts it")
    if who := Occupation(other.tool, other.session_id, other.source_path).writer:
        return [NotFollowed(str(copy), f"it is running: {who}. End it: {again}.")]
    try:
        snapshot, beside = write(planned, change, f"{change.command} (followed {session.session_id})")
    except (SmartForkError, OSError) as error:
        return [NotFollowed(str(copy), f"{what_failed(error).rstrip('.')}: {again}.")]
    return [Followed(other.session_id, str(copy), len(planned.removed), snapshot), *beside]


def changed_beside(planned: CutPlan, keys: Collection[str]) -> dict[Path, bytes]:
    """Return the new content of each file beside a transcript that changes; of a file that goes, nothing."""
    session = planned.session
    revised = AGENTS.cutter_of(session.tool).revised(session.source_path, keys)
    return {**dict.fromkeys(planned.beside, b""), **revised}


def write_or_delete(path: Path, new: bytes) -> None:
    """Give a file beside a log its new content; delete it if that is empty."""
    if new:
        replace_file(path, [new], like_before=True)
    else:
        path.unlink(missing_ok=True)


def _noted(session: Transcript, path: Path, change: CutChange, size: int) -> Followed:
    """Keep a file beside a log before it is changed or deleted, and note that."""
    snapshot = snapshots.take(path, session.session_id, change.now, disk=change.disk)
    command = f"{change.command} (beside {session.session_id})"
    snapshots.note(session, command, snapshot, path, change.now, size_after=size, change=change.id, beside="yes")
    return Followed(session.session_id, str(path), 0, snapshot.id if snapshot else None)


def _masked(planned: CutPlan) -> list[str]:
    """The keys of the lines that stay without their secrets; of those without one their ids."""
    turns = planned.session.turns
    own = [turns[at].key or turns[at].id for at in sorted(planned.edits)] if planned.masked else []
    return [*own, *sorted(planned.apart)]


def _is_as_before(session: Transcript, made: snapshots.Noted) -> bool:
    """Return True if a file still begins with the content of before the cut: the cut was noted but not made."""
    kept = next((one for one in snapshots.snapshots(made.session_id) if one.id == made.snapshot), None)
    return kept is not None and AGENTS.cutter_of(session.tool).begins_with(session.source_path, snapshots.content(kept))


def write_lines(session: Transcript, gone: Collection[int], edits: Mapping[int, bytes], *, disk: Disk = DISK) -> Path:
    """The session without the turns at these positions, and with `edits` in place of those.

    Raises:
        As `write`.
    """
    if not session.source_path.name:
        raise Usage("The session has no source path")
    if session.tool == Transcript.UNKNOWN:
        raise Usage("The agent of this transcript is not known")
    target = written_path(session)
    lines = _padded(session, gone, edits) if session.padded else _lines(session, gone, edits)
    lines = chain(AGENTS.cutter_of(session.tool).of_others(session), lines)
    AGENTS.cutter_of(session.tool).replace(target, lines, session.stamp, disk)
    return target


def written_size(session: Transcript, gone: Collection[int], edits: Mapping[int, bytes]) -> int:
    """Return the size of the file that `write_lines` writes."""
    if session.padded and session.stamp:
        return session.stamp.size
    own = (at for at, turn in enumerate(session.turns) if at not in gone and turn.is_line)
    size = sum(1 + (len(edits[at]) if at in edits else _length(session.turns[at])) for at in own)
    return size + sum(map(len, AGENTS.cutter_of(session.tool).of_others(session)))


def _length(turn: TranscriptTurn) -> int:
    return turn.place.end - turn.place.start if turn.place else len(turn.raw)


def written_path(session: Transcript) -> Path:
    """The file that is really written: a link's target, a database's side-car."""
    return AGENTS.cutter_of(session.tool).written(session.source_path.resolve())


def _lines(session: Transcript, gone: Collection[int], edits: Mapping[int, bytes]) -> Iterator[bytes]:
    staying = [(at, turn) for at, turn in enumerate(session.turns) if at not in gone and turn.is_line]
    for (position, _), raw in zip(staying, TranscriptTurn.raws(turn for _, turn in staying), strict=True):
        yield edits.get(position, raw)
        yield b"\n"


def _padded(session: Transcript, gone: Collection[int], edits: Mapping[int, bytes]) -> Iterator[bytes]:
    """Every byte that stays keeps its place: Codex's own database and the headers of forks name places in this file."""
    turns = [(at, turn) for at, turn in enumerate(session.turns) if not turn.inherited]
    own = [(at, turn, turn.place) for at, turn in turns if turn.place]
    end = 0
    lines = TranscriptTurn.raws(turn for _, turn, _ in own)
    for (position, turn, (_, start, after)), raw in zip(own, lines, strict=True):
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
