"""A session of the team as one of this machine, for as long as somebody starts something with it.

What was written for a start that fails goes again. Nothing is made on the server: a fork is its owner's when he pushes
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from indexer.transcripts.model import AgentName
from smart_fork import foreign_sessions, sessions
from smart_fork.agents import READERS
from smart_fork.agents.facets import files_of
from smart_fork.agents.references import Resolved
from smart_fork.agents.references import here as of_this_machine
from smart_fork.errors import Ambiguous, NotAuthenticated, NotFound, SmartForkError, Usage
from smart_fork.foreign_sessions import looked_at, refuse_owing
from smart_fork.team import away, login
from smart_fork.team.branch import BranchAsked, BranchVerb, branch
from smart_fork.team.changes import take_over, take_over_of
from smart_fork.team.local import local, read_log
from smart_fork.team.project import Project, opened
from smart_fork.team.pull import TakenAs, free_alias
from smart_fork.team.pulled import find
from smart_fork.team.tracking import Alias


@dataclass(frozen=True, slots=True)
class Taken:
    """A session of this machine that begins as one of the team's.

    `session_id` is that of this machine, `source_id` that of the server. `there` says that it was here before, `named`
    that it was meant by its alias. `warnings` tell what is not in it.
    """

    session_id: str
    agent: AgentName
    path: Path
    alias: str
    source_id: str
    there: bool
    named: bool = False
    warnings: tuple[str, ...] = ()


@contextmanager
def found_or_taken(
    reference: str, *, directory: Path | None = None, keep: bool = True
) -> Iterator[tuple[Resolved, Taken | None]]:
    """What is meant, as a session of this machine: one of it, by its id or a worker's; by an alias; one of the team's.

    One that is not to `keep` is written for as long as somebody looks at it.

    Raises:
        SmartForkError: there is none here, and none of the team's.
    """
    try:
        here = sessions.locate(reference)
    except Ambiguous:  # no team knows better which of them is meant
        raise
    except (NotFound, Usage) as error:
        missing = error
    else:
        if here.path is not None:
            take_over_of(here.path, here.agent)
        yield of_this_machine(reference), None
        return
    with _taken_there(reference, missing, directory, keep=keep) as one:
        yield Resolved(one.session_id, "alias" if one.named else "team"), one


@contextmanager
def _taken_there(reference: str, missing: SmartForkError, directory: Path | None, *, keep: bool) -> Iterator[Taken]:
    """Take a session of the team: by an id, 8 or more characters of one, an alias, or an address.

    Where there is none either, it is what was `missing` here that is told. Where what is begun with it fails, or it is
    not to be kept, what was written for it is taken away again.
    """
    try:
        if not login.is_known():
            raise missing
        with opened(directory=directory) as where:
            one = _by_alias(where, reference) or _there(where, reference)
        refuse_owing(one.session_id)
    except (NotFound, NotAuthenticated, Usage):
        raise missing from None
    passes = looked_at(one.session_id, one.source_id) if not (keep or one.there) else nullcontext()
    try:
        with passes:
            yield one
    except BaseException:
        keep = False
        raise
    finally:
        if not (keep or one.there):
            _take_away(where, one)


def _by_alias(where: Project, reference: str) -> Taken | None:
    """The log that an alias names, which is here also where the server is not.

    One that is the beginning of an id means what has that id, as it is now.
    """
    known = where.tracking.read().named(reference)
    if known is None or known[1].file is None or not _is_as_it_was(where, known[1]):
        return None
    if (_source(known[1]) or "").startswith(known[0]) and not away.is_away(where.server):
        return None
    one = _taken(*known, named=True)
    take_over_of(one.path, one.agent)
    return one


def _there(where: Project, reference: str) -> Taken:
    """A session that the server has, written here unless it is here as it is there."""
    source_id = where.found(reference).session.id
    take_over(where.client)
    return _here_before(where, source_id) or _written(where, source_id)


def _here_before(where: Project, source_id: str) -> Taken | None:
    """One that is tracked and is one's own; or whose log is as it was written, and all that the server has."""
    for name, one in where.tracking.read().aliases.items():
        if _source(one) == source_id and _is_as_it_was(where, one) and (one.session_id or _is_whole(where, one)):
            return _taken(name, one)
    return None


def _is_whole(where: Project, one: Alias) -> bool:
    """Whether a copy has all that the shared session has now."""
    there = where.client.session(where.key, one.parent_id or "").session
    return (there.record_count, there.head_digest) == (one.base_count, one.base_digest)


def _taken(name: str, one: Alias, *, named: bool = False) -> Taken:
    path = one.file or Path()
    session_id = READERS[one.platform].id_of(path)
    return Taken(session_id, one.platform, path, name, _source(one) or "", there=True, named=named)


def _source(one: Alias) -> str | None:
    """The shared session that a log of this machine is, or began as."""
    return one.session_id or one.parent_id


def _is_as_it_was(where: Project, one: Alias) -> bool:
    if one.file is None:
        return False
    try:
        here = local(read_log(one.file, one.platform, where.place.root), where.place.root)
    except SmartForkError:
        return False
    return one.session_id is not None or here.digest(len(here.records)) == one.local_digest


def _written(where: Project, source_id: str) -> Taken:
    info = where.client.session(where.key, source_id, "fork").session
    before = where.tracking.read()
    current, name = before.current, free_alias(before, source_id, new=True)
    verb: BranchVerb = "branch" if where.is_mine(info) else "fork"
    done = branch(where, verb, source_id, BranchAsked(local=True), TakenAs(alias=name))
    where.tracking.change(lambda after: after.model_copy(update={"current": current}) if current else after)
    path = Path(done.files[0])
    lost = [f"Not in it: {', '.join(f'{number} {what}' for what, number in done.lost.items())}"] if done.lost else []
    session_id = READERS[done.agent].id_of(path)
    return Taken(session_id, done.agent, path, name, source_id, there=False, warnings=(*done.warnings, *lost))


def _take_away(where: Project, one: Taken) -> None:
    known = find(one.path, one.agent)
    files_of(one.agent).remove(one.path)
    if known is not None:
        known.forget()
    foreign_sessions.forget(one.session_id)
    where.tracking.change(lambda tracked: tracked.without(one.alias) if one.alias in tracked.aliases else tracked)
