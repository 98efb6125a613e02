"""``push``: one session, several, or all of a project."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexer.errors import joined
from indexer.values import json_of
from smart_fork.agents import AGENTS
from smart_fork.agents.options import takes
from smart_fork.cli.options import YesOption, with_signature
from smart_fork.cli.output import out, plain, print_json, say, wants_json
from smart_fork.errors import Usage
from smart_fork.team.commands import team_group
from smart_fork.team.commands.team_group import app
from smart_fork.team.requests import PushRequest

if TYPE_CHECKING:
    from smart_fork.agents.agent import Agent
    from smart_fork.team.project import Shared, TeamProject
    from smart_fork.team.push import NotPushed, Planned
    from smart_fork.team.push_plan import Plan


def takes_platforms(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, in place of its parameter `platforms`, a flag for each agent whose sessions are shared."""
    agents = [agent for agent in AGENTS if agent.has("forms")]
    shown: list[Parameter] = []
    for one in inspect.signature(command, eval_str=True).parameters.values():
        shown += map(_flag, agents) if one.name == "platforms" else [one]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        platforms = [agent.name for agent in agents if given.pop(f"of_{agent.name}")]
        command(**given, platforms=platforms)

    with_signature(run, shown)
    return run


def _flag(agent: Agent) -> Parameter:
    option = typer.Option(f"--{agent.name}", help=f"Newest session of {agent.title} in this project.")
    return Parameter(f"of_{agent.name}", Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option])


@app.command("push")
@takes(order="public private title tags summary images yes dry_run force")
@takes_platforms
def push(
    *,
    sessions: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID|PATH]...", help="Session ids, log files or aliases. Default: the current alias."),
    ] = None,
    all_of_project: Annotated[
        bool, typer.Option("--all", help="All sessions of this project that a person started.")
    ] = False,
    platforms: list[str],
    request: PushRequest,
    yes: YesOption = False,
    dry_run: Annotated[bool, "Show what would be sent. Send nothing."] = False,
    place: team_group.TeamPlace,
) -> None:
    """Share sessions, masked and after a preview."""
    named = sessions or []
    asked = replace(request, reference=named[0] if named else None, platforms=tuple(platforms))
    if all_of_project and named:
        raise Usage("--all takes no session", "Name sessions, or give --all.")
    with place.current() as where:
        if all_of_project or len(named) > 1:
            wanted = Several(where, asked, named, every=all_of_project)
            wanted.show() if dry_run else wanted.push(yes=yes)
        else:
            _push_one(where, asked, yes=yes, dry_run=dry_run)


def _push_one(where: TeamProject, asked: PushRequest, *, yes: bool, dry_run: bool) -> None:
    from smart_fork.team.push import send
    from smart_fork.team.push_plan import plan

    made = plan(where, asked)
    if dry_run:
        _print_plan(where, made)
        return
    if not _agreed(where, made, yes=yes):
        _end_unsent()
    team_group.print_shared(send(where, made))


class Several:
    """A push of several sessions."""

    def __init__(self, where: TeamProject, asked: PushRequest, named: list[str], *, every: bool) -> None:
        from smart_fork.team.push import all_here

        for option, text in (("--title", asked.title), ("--summary", asked.summary)):
            if text is not None:
                raise Usage(f"{option} is for one session", f"Push it alone: smart-fork team push ID {option} …")
        self._where, self._every = where, every
        self._sessions = all_here(where, asked.platforms) if every else tuple(named)
        self._asked = replace(asked, platforms=()) if every else asked

    def show(self) -> None:
        """Print what would be sent. Exit with 1 if one cannot be."""
        planned, refused = self._look()
        if wants_json():
            shown = [{"session": one.session, **one.preview.as_json()} for one in planned]
            print_json({"verb": "push", "dry_run": True, "count": len(shown), "sessions": shown} | _refused(refused))
        else:
            for line in self._lines(planned, refused):
                out.print(plain(line))
        _exit(refused)

    def push(self, *, yes: bool) -> None:
        """Send them, after one question. Exit with 1 if one was not sent."""
        from smart_fork.team.push import NotPushed, push_each

        sessions: Iterable[str | Planned] = self._sessions
        refused: list[NotPushed] = []
        if not yes:
            planned, refused = self._look()
            for line in self._lines(planned, refused):
                say(line)
            if not all(team_group.agreed(question, yes=False) for question in _questions(planned)):
                _end_unsent()
            sessions = planned
        done: list[Shared] = []
        for one in push_each(self._where, self._asked, sessions, every=self._every):
            if isinstance(one, NotPushed):
                refused.append(one)
            else:
                done.append(one)
                if not wants_json():
                    team_group.print_shared(one)
        if wants_json():
            print_json({"verb": "push", "count": len(done), "pushes": json_of(tuple(done))} | _refused(refused))
        else:
            for line in _why(refused):
                say(line)
            if not done:
                say("Nothing was sent.")
        _exit(refused)

    def _look(self) -> tuple[list[Planned], list[NotPushed]]:
        from smart_fork.team.push import NotPushed, Planned, look

        found = list(look(self._where, self._asked, self._sessions, every=self._every))
        return [one for one in found if isinstance(one, Planned)], [one for one in found if isinstance(one, NotPushed)]

    def _lines(self, planned: list[Planned], refused: list[NotPushed]) -> Iterable[str]:
        yield f"{_sessions(len(planned))} to {self._where.key} on {self._where.server}"
        for one in planned:
            yield f"  {one.preview.line()}"
        yield from _why(refused)


def _questions(planned: list[Planned]) -> Iterable[str]:
    from smart_fork.team.push_plan import PUBLISH

    if planned:
        yield f"Send {'it' if len(planned) == 1 else f'these {len(planned)}'}?"
    if any(PUBLISH in one.preview.questions() for one in planned):
        yield f"Some were private before. {PUBLISH.partition('. ')[2]}"


def _sessions(number: int) -> str:
    return f"{number} session{'s' * (number != 1)}"


def _why(refused: list[NotPushed]) -> Iterable[str]:
    """Each failure with its next step; of those that were skipped the number, by reason."""
    from collections import Counter

    for one in refused:
        if not one.skipped:
            yield joined(f"Not sent: {one.session}: {one.error}", one.hint)
    skipped = Counter(_reason(one) for one in refused if one.skipped)
    for reason, number in skipped.items():
        yield f"Skipped: {_sessions(number)}: {reason}"


def _reason(one: NotPushed) -> str:
    return one.error if one.code != "nothing_to_push" else "It has no answer and no tool result yet."


def _refused(refused: list[NotPushed]) -> dict[str, Any]:
    return {
        "failed": json_of(tuple(one for one in refused if not one.skipped)),
        "skipped": json_of(tuple(one for one in refused if one.skipped)),
    }


def _exit(refused: list[NotPushed]) -> None:
    if any(not one.skipped for one in refused):
        raise typer.Exit(1)


def _end_unsent() -> None:
    say("Nothing was sent.")
    raise typer.Abort


def _agreed(where: TeamProject, made: Plan, *, yes: bool) -> bool:
    if yes:
        return True
    shown = made.preview(where)
    questions = shown.questions()
    for line in shown.lines() if questions else ():
        say(line)
    return all(team_group.agreed(question, yes=False) for question in questions)


def _print_plan(where: TeamProject, made: Plan) -> None:
    shown = made.preview(where)
    if wants_json():
        session_id = made.alias.session_id if made.alias else None
        about = {"verb": "push", "dry_run": True, "session_id": session_id, "alias": made.name or None}
        print_json(about | shown.as_json())
        return
    for line in shown.lines():
        out.print(plain(line))
