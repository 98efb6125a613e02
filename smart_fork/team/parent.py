"""What of a session is shared already that is not tracked: agents copy those that they fork, or go on from them."""

from __future__ import annotations

from collections.abc import Mapping

from indexer.transcripts.model import Session
from smart_fork.agents import READERS
from smart_fork.agents.facets import forms_of
from smart_fork.errors import SmartForkError
from smart_fork.team.local import Local, read_log
from smart_fork.team.outgoing import Since
from smart_fork.team.project import Project
from smart_fork.team.tracking import Alias


def parent_of(project: Project, aliases: Mapping[str, Alias], here: Local) -> tuple[Alias, Since] | None:
    """The tracked session that this one goes on from, and how much of it is that one's.

    Its records tell it, or where the agent has written them again, whose fork it says that it is, and what was said.
    """
    known = sorted(aliases.values(), key=lambda one: -one.local_count)
    for one in known:
        if one.platform == here.agent and one.local_count and here.begins_with(one.local_count, one.local_digest):
            return one, Since(one.local_count, one.local_digest)
    above = here.session.parent_id
    for one in known:
        if one.platform == here.agent and one.file and above == READERS[one.platform].id_of(one.file):
            count = _said_again(project, one, here.session)
            return (one, Since(count, here.digest(count))) if count else None
    return None


def _said_again(project: Project, one: Alias, fork: Session) -> int:
    """How many records of the fork say what is shared of its parent; none where it says something else."""
    if one.file is None:
        return 0
    try:
        parent = read_log(one.file, one.platform, project.place.root)
    except SmartForkError:
        return 0
    answers = (end for end in parent.pairs() if parent.turns[end].text)
    ends = (end for end in answers if _count(parent, end) == one.local_count)
    if (end := next(ends, None)) is None:
        return 0
    shared = [turn.text for number, turn in parent.messages if number <= end]
    said = fork.messages[: len(shared)]
    if [turn.text for _, turn in said] != shared or said[-1][0] not in fork.pairs():
        return 0
    return _count(fork, said[-1][0])


def _count(session: Session, end: int) -> int:
    return sum(1 for _ in forms_of(session.agent).records_of(session, end))
