"""Whether a transcript is whole, and whether anything of what was cut can still be found (``excise verify``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import NamedTuple

from indexer import state
from smart_fork.agents import AGENTS
from smart_fork.agents.cuts import snapshots
from smart_fork.agents.cuts.model import CutWarning, Transcript, TranscriptTurn
from smart_fork.agents.readers import READERS
from smart_fork.excise.answer import CopyBehind, Soundness
from smart_fork.excise.cut_plan import dangling, unanswered
from smart_fork.excise.remnants import behind, ours
from smart_fork.excise.transcript import descent_of, meant, others
from smart_fork.excise.words import (
    agent_of,
    runs_of,
    secrets_of,
    solid_texts_of,
    still_said,
    traces,
    within,
    words_in,
    words_of,
)
from smart_fork.excise.writing import written_path

#: What knows the shared sessions, which nearly nobody has.
_STILL_SHARED = "smart_fork.sharing.remnants:still_shared"


def check(reference: str | None, tool: str = "auto") -> Soundness:
    """What is broken in a transcript, and where anything of its cuts is still found: in the index, in its copies, or in
    any byte of ours (`remains`).

    What was cut is known from the snapshots that are there. `unknown` is how many cuts have none any more: then nothing
    is `ok`, and `unsearched` are the logs of sessions that were told of it.

    Raises:
        NotFound, Usage: there is no such transcript.
    """
    session = meant(reference, tool)
    loose = [*dangling(session.turns), *orphaned(session), *AGENTS.cutter_of(session.tool).without_header(session)]
    gaps = broken_links(session)
    gone = gone_of(session)
    words = words_found(session, gone.words)
    copies = [*remaining(session, gone), *shared(session)]
    remains = traces(agent_of(session.tool), {session.session_id}, gone.in_bytes)
    held, unknown = still_kept(session)
    return Soundness(
        session_id=session.session_id,
        tool=session.tool,
        path=str(session.source_path),
        ok=not (loose or gaps or words or copies or remains or unknown),
        dangling=tuple(loose),
        broken_links=tuple(gaps),
        unanswered=tuple(sorted(unanswered(session.turns))),
        words_found=tuple(words),
        copies=tuple(copies),
        remains=tuple(remains),
        snapshots=tuple(held),
        unknown=unknown,
        unsearched=tuple(str(one.path) for one in descent_of(session).below if one.told) if unknown else (),
    )


def remaining(session: Transcript, gone: Gone) -> list[CopyBehind]:
    """The files of agents that still have something of the cuts of a session."""
    return behind(session, gone.words | gone.runs, secrets_of(gone.lines))


def shared(session: Transcript) -> list[CopyBehind]:
    """Return the shared sessions that still have cut text. Where nothing is shared, nothing is imported."""
    if not state.rows("SELECT 1 FROM pulled LIMIT 1"):
        return []
    found: list[CopyBehind] = resolve_name(_STILL_SHARED)(session.source_path, session.tool)
    return found


def still_kept(session: Transcript) -> tuple[list[str], int]:
    """The snapshots that have what was cut, and of how many cuts there is none any more."""
    cuts = [one.snapshot for one in cuts_of(session) if one.snapshot]
    there = [one.id for one in snapshots.snapshots(session.session_id)]
    return there if cuts else [], len(set(cuts) - set(there))


def orphaned(session: Transcript) -> list[CutWarning]:
    """The calls that have no result since a cut has taken it. Agents themselves leave calls without one as well."""
    cut = {call for entry in cuts_of(session) for call in entry.orphaned}
    left = cut & unanswered(session.turns)
    return sorted(
        CutWarning(turn.id, f"calls {call.id}, but their result was cut")
        for turn in session.turns
        for call in turn.tool_calls
        if call.id in left
    )


def broken_links(session: Transcript) -> list[CutWarning]:
    """The turns whose parent is not in the file."""
    known = {name for turn in session.turns for name in (turn.id, *turn.aliases)}
    return [
        CutWarning(turn.id, f"its parent {turn.parent_id} is not in the file")
        for turn in session.turns
        if turn.parent_id and turn.parent_id not in known and not turn.id.startswith("line-")
    ]


def words_found(session: Transcript, gone: set[str]) -> list[str]:
    """Those of the words that were cut which are still in the session's index, export or kept copy.

    Raises:
        IndexUnavailable: the index cannot be looked into.
    """
    if not gone or session.tool not in READERS.names:
        return []
    own = ours(session.tool, READERS[session.tool].id_of(session.source_path), gone)
    return sorted(set[str]().union(*(words for _, words in own)))


class Gone(NamedTuple):
    """The lines of all cuts of a session, and what they had that no line which stays has.

    `runs` are runs of words and solid texts, `in_bytes` the words that can be looked for in bytes.
    """

    lines: set[bytes]
    words: set[str]
    runs: set[str]
    in_bytes: set[str]


def gone_of(session: Transcript) -> Gone:
    """Return what the snapshots have of the cuts of a session; they are read once.

    A word that is within a longer one that stays tells nothing.
    """
    found = [_gone_of(session, path) for path in (None, *others(session))]
    return Gone(*(set().union(*some) for some in zip(*found, strict=True)))


def _gone_of(session: Transcript, path: Path | None) -> Gone:
    lines = cut_lines(session, path)
    if not lines:
        return Gone(set(), set(), set(), set())
    words, runs, solid = words_of(lines), runs_of(lines), solid_texts_of(lines)
    in_bytes = words_in(*words)
    left = within(_staying(session, path), words | in_bytes)
    still = still_said(_staying(session, path), runs, solid)
    return Gone(lines, words - left, (runs | solid) - still, set(in_bytes - left))


def cuts_of(session: Transcript) -> list[snapshots.Noted]:
    """The cuts that stand in any file of a session."""
    return [one for path in (written_path(session), *others(session)) for one in snapshots.cuts(path)]


def cut_lines(session: Transcript, path: Path | None = None) -> set[bytes]:
    """The lines of all cuts so far of a session's log, or of its other file at `path`, as the snapshots have them,
    without those that it has.
    """
    made = {entry.snapshot for entry in snapshots.cuts(path or written_path(session))}
    kept = [one for one in snapshots.snapshots(session.session_id) if one.id in made]
    staying = set(map(hash, _staying(session, path))) if kept else set()  # all lines may exceed the memory
    pieces = (
        piece for one in kept for line in snapshots.lines(one) for piece in AGENTS.cutter_of(session.tool).pieces(line)
    )
    return {piece for piece in pieces if piece.strip() and hash(piece) not in staying}


def _staying(session: Transcript, path: Path | None) -> Iterator[bytes]:
    """The lines of a session; with those of a `path` that were taken back, which may stay there."""
    yield from TranscriptTurn.raws(session.turns)
    if path is not None:
        with path.open("rb") as file:
            yield from (line.rstrip(b"\n") for line in file)
