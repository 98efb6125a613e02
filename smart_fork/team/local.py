"""A session of this machine beside what is shared of it: its records without what says whose they are."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from indexer.failures import what_failed
from indexer.project import project_of
from indexer.transcripts.model import AgentName, Session
from smart_fork import sessions
from smart_fork.agents import OWN, READERS
from smart_fork.agents.facets import forms_of, title_of
from smart_fork.agents.forms import HomePlace
from smart_fork.errors import ForkRefused, NotFound, SmartForkError
from smart_fork.forking.bringing_back import refuse_borrowed
from smart_fork.retrieval.recent import recent_sessions
from smart_fork.sharing.canonical import digest_of, encode
from smart_fork.team.outgoing import last_pair
from smart_fork.team.tracking import Alias
from smart_fork.whereabouts import belongs, directory_of, unplaced


@dataclass(frozen=True, slots=True)
class Local:
    """A log up to its last complete pair, and its records."""

    session: Session
    records: tuple[bytes, ...]

    @property
    def agent(self) -> AgentName:
        """Whose it is."""
        return self.session.agent

    def digest(self, count: int) -> str:
        """The digest of the first `count` records; empty where there are fewer."""
        if count > len(self.records):
            return ""
        return digest_of(self.records[:count])

    def begins_with(self, count: int, digest: str) -> bool:
        """Whether its first records are those of that digest."""
        return bool(digest) and self.digest(count) == digest


def place_of(root: Path) -> HomePlace:
    """What stands for the root and the home in records that are shared."""
    return HomePlace(str(root).rstrip("/"), str(Path.home()).rstrip("/"))


def local(session: Session, root: Path) -> Local:
    """Read a session up to its last complete pair; `root` is its project's.

    Raises:
        ForkRefused: nothing of it is complete, or its log is rewritten just now.
        Unshareable: a record says what JSON cannot say.
        Usage: sessions of that agent are not shared.
    """
    forms, place = forms_of(session.agent), place_of(root)
    records = forms.records_of(session, last_pair(session))
    return Local(session, tuple(encode(forms.outgoing(record, place)) for record in records))


def ahead(one: Alias, root: Path) -> int | None:
    """Count the records that are not pushed: below 0 if what was pushed has changed, `None` without a log."""
    if one.file is None:
        return None
    try:
        here = local(read_log(one.file, one.platform, root), root)
    except SmartForkError:
        return None
    return len(here.records) - one.local_count if here.begins_with(one.local_count, one.local_digest) else -1


def read_log(path: Path, agent: AgentName, root: Path) -> Session:
    """The session in a log that a tracking file names, which anybody could have written.

    Raises:
        NotFound: it is gone, or no log of this project.
    """
    reader = READERS[agent]
    if reader.log_at(str(path)) is None:
        raise NotFound(f"No session of {title_of(agent)} there: {path}")
    try:
        session = reader.read(path).session
    except OSError as error:
        raise NotFound(f"The log cannot be read: {what_failed(error)}") from error
    if session is None:
        raise NotFound(f"No conversation in {path}")
    _check_within(session, root)
    return session


def found(reference: str, root: Path) -> Session:
    """A session of this project by its id.

    Raises:
        NotFound: there is none.
        ForkRefused: it is another project's.
    """
    located = sessions.locate(reference)
    refuse_borrowed(located)
    session = sessions.read(located)
    _check_within(session, root)
    return session


def newest(agent: AgentName, root: Path) -> Session:
    """The newest session that an agent had in a project.

    Raises:
        SmartForkError: there is none.
    """
    there = recent_sessions([OWN[agent]], project_of(root), 1, automated=True).sessions
    for one in there:
        return sessions.read(sessions.Located(one.agent, one.session_id, one.source_path))
    raise SmartForkError(
        f"No {title_of(agent)} session found for current directory",
        "`smart-fork list --all-projects` lists all sessions.",
    )


def _check_within(session: Session, root: Path) -> None:
    if belongs(session, project_of(root)):
        return
    if why := unplaced(session.cwd):
        raise ForkRefused(
            f"That session belongs to no project: {why}",
            f"Push a copy that works here: smart-fork branch {session.session_id} --cwd {shlex.quote(str(root))}",
        )
    raise ForkRefused(
        f"That session belongs to another project. It worked in {directory_of(session.cwd)}",
        "Push it from there, or name --project.",
    )
