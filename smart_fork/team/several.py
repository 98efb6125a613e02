"""Pushing several sessions, or all of a project: one that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from indexer.failures import what_failed
from indexer.project import project_of
from indexer.transcripts.model import AgentName, Session
from indexer.values import Value
from smart_fork.agents import AGENTS, OWN
from smart_fork.agents.facets import files_of
from smart_fork.errors import Conflict, ServerUnavailable, SmartForkError
from smart_fork.retrieval.recent import recent_sessions
from smart_fork.team.outgoing import NothingToPush, NotSent, Since
from smart_fork.team.preview import Preview
from smart_fork.team.project import Project
from smart_fork.team.push import send
from smart_fork.team.push_plan import Plan, PushAsked, plan
from smart_fork.team.shared import Shared

#: More sessions than a project has.
_ALL = 100_000
_CONTINUED = "It continued after the preview."
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class NotPushed(Value):
    """A session that was not sent. `skipped` is whether nothing was to be sent of it, which is no failure."""

    session: str
    error: str
    hint: str
    code: str
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class Planned:
    """A session that would be sent, and how far its log went when it was shown. `reference` is how it was named."""

    reference: str
    session: str
    preview: Preview
    local: Since


def all_here(project: Project, agents: Iterable[AgentName]) -> tuple[str, ...]:
    """The logs of this project that people began, and the tracked ones; of `agents`, or all whose sessions are shared.

    Oldest first, and forks behind their parents: then each is pushed as the branch that it is.
    """
    root, chosen = project.place.root, set(agents)
    names = [one.name for one in AGENTS if one.has("forms") and (not chosen or one.name in chosen)]
    here = recent_sessions([OWN[name] for name in names], project_of(root), _ALL).sessions[::-1]
    known = {one.session_id: one for one in here}
    here.sort(key=lambda one: _depth(one, known))
    tracked = [one for one in project.tracking.read().aliases.values() if one.platform in names and one.file]
    there = (one.file for one in tracked if one.file and files_of(one.platform).has(one.file))
    found = (*(one.source_path for one in here), *there)
    return tuple(dict.fromkeys(map(str, found)))


def look(project: Project, asked: PushAsked, sessions: Iterable[str], *, every: bool) -> Iterator[Planned | NotPushed]:
    """Plan the push of each; nothing is sent. With `every` one of which nothing can be sent is skipped."""

    def planned(reference: str, made: Plan) -> Planned:
        return Planned(reference, made.session.session_id, made.preview(project), made.out.local)

    return _each(project, asked, sessions, planned, every=every)


def push_each(
    project: Project, asked: PushAsked, sessions: Iterable[str | Planned], *, every: bool
) -> Iterator[Shared | NotPushed]:
    """Push one after the other. One that was shown is sent only as it was shown."""
    shown = {one if isinstance(one, str) else one.reference: one for one in sessions}

    def sent(reference: str, made: Plan) -> Shared:
        before = shown[reference]
        if isinstance(before, Planned) and before.local != made.out.local:
            raise Conflict(_CONTINUED, f"smart-fork team push {made.session.session_id} shows it again.")
        return send(project, made)

    return _each(project, asked, shown, sent, every=every)


def _each(
    project: Project, asked: PushAsked, sessions: Iterable[str], do: Callable[[str, Plan], D], *, every: bool
) -> Iterator[D | NotPushed]:
    """Plan each and do that with it; or say why not."""
    away: ServerUnavailable | None = None
    for reference in dict.fromkeys(sessions):
        try:
            if away is not None:  # nobody waits for it once for each session
                raise away
            made = plan(project, replace(asked, reference=reference))
            if every and not _has_news(project, made):
                found: D | NotPushed = NotPushed(
                    made.session.session_id, "Nothing is new.", "", "up_to_date", skipped=True
                )
            else:
                found = do(reference, made)
        except SmartForkError as error:
            away = error if isinstance(error, ServerUnavailable) else None
            skipped = every and isinstance(error, NotSent | NothingToPush)
            found = NotPushed(reference, error.message, error.hint, error.code, skipped)
        except OSError as error:
            found = NotPushed(reference, f"Its log cannot be read: {what_failed(error)}", "", "unreadable")
        yield found


def _has_news(project: Project, made: Plan) -> bool:
    """Whether it changes something that people see: a copy of which nothing was said yet is no session to share."""
    return bool(made.out.records) or (not made.creates and bool(made.preview(project).questions()))


def _depth(one: Session, known: Mapping[str, Session]) -> int:
    """How many of the sessions it was forked from are known."""
    seen = {one.session_id}
    while (parent := known.get(one.parent_id or "")) is not None and parent.session_id not in seen:
        one = parent
        seen.add(one.session_id)
    return len(seen)
