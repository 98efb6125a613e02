"""The pushes of ``team push``: of one session, and of several after a common preview."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import typer

from indexer.errors import joined
from indexer.json_values import json_of
from smart_fork.cli.output import out, plain, print_json, say, wants_json
from smart_fork.errors import Usage
from smart_fork.team import PushRequest
from smart_fork.team.commands import team_group
from smart_fork.team.project import TeamProject
from smart_fork.team.push import NotPushed, Planned, preview_each, project_logs, push_each, send
from smart_fork.team.push_plan import PUBLISH_QUESTION, Plan, plan
from smart_fork.team.sharing_result import SharingResult


def push_one(where: TeamProject, asked: PushRequest, *, yes: bool, dry_run: bool) -> None:
    """Push one session after a preview and a question, or with `yes` without a question. `dry_run` only previews it."""
    made = plan(where, asked)
    if dry_run:
        _print_plan(where, made)
        return
    shown = made.preview(where)
    questions = () if yes else shown.questions()
    for line in shown.lines() if questions else ():
        say(line)
    _confirm(questions)
    team_group.print_shared(send(where, made))


class SeveralPushes:
    """A push of several sessions: of those in `named`, or with `every` of all sessions of the project."""

    def __init__(self, where: TeamProject, asked: PushRequest, named: list[str], *, every: bool) -> None:
        for option, text in (("--title", asked.title), ("--summary", asked.summary)):
            if text is not None:
                raise Usage(f"{option} is for one session", f"Push it alone: smart-fork team push ID {option} …")
        self._where, self._every = where, every
        self._sessions = project_logs(where, asked.platforms) if every else tuple(named)
        self._asked = replace(asked, platforms=()) if every else asked

    def show(self) -> None:
        """Print the preview of all sessions. Exit with 1 if one of the sessions cannot be sent."""
        planned, refused = self._look()
        if wants_json():
            shown = [{"session": one.session, **one.preview.as_json()} for one in planned]
            print_json({"verb": "push", "dry_run": True, "count": len(shown), "sessions": shown} | _refused(refused))
        else:
            for line in self._lines(planned, refused):
                out.print(plain(line))
        _exit(refused)

    def push(self, *, yes: bool) -> None:
        """Ask the user once, then send all sessions. With `yes`, do not ask. Exit with 1 if a session was not sent."""
        sessions: Iterable[str | Planned] = self._sessions
        refused: list[NotPushed] = []
        if not yes:
            planned, refused = self._look()
            for line in self._lines(planned, refused):
                say(line)
            _confirm(_questions(planned))
            sessions = planned
        done: list[SharingResult] = []
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
        found = list(preview_each(self._where, self._asked, self._sessions, every=self._every))
        return [one for one in found if isinstance(one, Planned)], [one for one in found if isinstance(one, NotPushed)]

    def _lines(self, planned: list[Planned], refused: list[NotPushed]) -> Iterable[str]:
        yield f"{_sessions(len(planned))} to {self._where.key} on {self._where.server}"
        for one in planned:
            yield f"  {one.preview.line()}"
        yield from _why(refused)


def _questions(planned: list[Planned]) -> Iterable[str]:
    if planned:
        yield f"Send {'it' if len(planned) == 1 else f'these {len(planned)}'}?"
    if any(PUBLISH_QUESTION in one.preview.questions() for one in planned):
        yield f"Some were private before. {PUBLISH_QUESTION.partition('. ')[2]}"


def _sessions(number: int) -> str:
    return f"{number} session{'s' * (number != 1)}"


def _why(refused: list[NotPushed]) -> Iterable[str]:
    """Yield a line for each session that was not pushed, with the reason and the user's next step.

    Skipped sessions had nothing to send. Each reason for skipping gets one line with the number of sessions.
    """
    for one in refused:
        if not one.skipped:
            yield joined(f"Not sent: {one.session}: {one.error}", one.hint)
    nothing = {"nothing_to_push": "It has no answer and no tool result yet."}
    skipped = Counter(nothing.get(one.code, one.error) for one in refused if one.skipped)
    for reason, number in skipped.items():
        yield f"Skipped: {_sessions(number)}: {reason}"


def _refused(refused: list[NotPushed]) -> dict[str, Any]:
    return {
        "failed": json_of(tuple(one for one in refused if not one.skipped)),
        "skipped": json_of(tuple(one for one in refused if one.skipped)),
    }


def _exit(refused: list[NotPushed]) -> None:
    if any(not one.skipped for one in refused):
        raise typer.Exit(1)


def _confirm(questions: Iterable[str]) -> None:
    try:
        for question in questions:
            team_group.confirm(question)
    except typer.Abort:
        say("Nothing was sent.")
        raise


def _print_plan(where: TeamProject, made: Plan) -> None:
    shown = made.preview(where)
    if wants_json():
        session_id = made.alias.session_id if made.alias else None
        about = {"verb": "push", "dry_run": True, "session_id": session_id, "alias": made.name or None}
        print_json(about | shown.as_json())
        return
    for line in shown.lines():
        out.print(plain(line))
