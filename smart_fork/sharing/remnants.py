"""Shared sessions that still have text that was cut out of a transcript on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from smart_fork.agents import AGENTS
from smart_fork.agents.cuts import snapshots
from smart_fork.agents.cuts.model import Transcript
from smart_fork.agents.readers import READERS
from smart_fork.errors import SmartForkError, advice
from smart_fork.excise import transcript
from smart_fork.excise.soundness import cut_lines
from smart_fork.sharing import pulled
from smart_fork.sharing.outgoing import digests_of
from smart_fork.sharing.remote import url_of
from smart_fork.system import permission


def still_shared(path: Path, tool: str) -> dict[str, str]:
    """Find the shared sessions with a record that was cut out of a transcript, or out of what was made of it.

    Also the transcript, if something was withdrawn that is still in it. Return what to do, by path or address.
    """
    if permission.limited():
        return {}
    shared = [one for one in pulled.all_written() if one.server]
    found = dict(_owing(path.resolve()))
    for cut in _cut_logs(path, tool) if shared else ():
        found |= _holding(cut, shared)
    return found


def _owing(path: Path) -> Iterator[tuple[str, str]]:
    """The log, where it still has something that was withdrawn, or came of one that has."""
    for one in pulled.owing():
        whole = Transcript(one.agent, one.path, READERS[one.agent].id_of(one.path), ())
        if path in {one.path, *(other.path for other in transcript.descent_of(whole).logs)}:
            again = advice("Take it out: smart-fork team sync.", tool="The next team sync takes it out.")
            yield str(one.path), f"Withdrawn text is still in it. {again}"


def _cut_logs(path: Path, tool: str) -> Iterator[Transcript]:
    session = transcript.load_for_cut(tool, path)
    yield session
    for one in transcript.descent_of(session).below:
        if snapshots.logged(one.path):
            with suppress(SmartForkError, OSError):
                yield transcript.load_for_cut(one.agent, one.path)


def _holding(session: Transcript, shared: list[pulled.Written]) -> Iterator[tuple[str, str]]:
    if session.tool not in AGENTS or not AGENTS[session.tool].has("forms"):
        return
    lines, agent = cut_lines(session), session.tool

    @cache
    def gone(root: Path) -> frozenset[str]:
        return digests_of(lines, agent, root)

    @cache
    def staying(root: Path) -> frozenset[str]:
        return digests_of({turn.raw for turn in session.turns}, agent, root)

    for one in shared if lines else ():
        there = gone(one.root).intersection(one.digests)
        if there and there - staying(one.root):  # a record that names another parent since is the same one
            yield from _named(one)


def _named(one: pulled.Written) -> Iterator[tuple[str, str]]:
    for session_id in one.sessions:
        again = advice(
            f"smart-fork team excise cut RANGE {session_id} withdraws it from all users.",
            tool=f"Its owner can withdraw it: team session {session_id}.",
        )
        yield url_of(one.server, one.project, session_id), f"It is still shared. {again}"
    if one.agent == pulled.AS_FILE:
        yield str(one.path), "It is a file of a shared session. Delete it, or withdraw it there."
