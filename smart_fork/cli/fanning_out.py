"""``fork`` of several sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import typer

from smart_fork import sessions
from smart_fork.cli.forking import print_forked
from smart_fork.cli.output import complain, out, plain, print_json, progress_bar
from smart_fork.errors import SmartForkError, Usage
from smart_fork.forking.fan_out import MOST, Source, best_of, fan_out


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which sessions, and what of them: `ids`, or the `top` ones of a search; `at` what answers `intent`."""

    ids: tuple[str, ...]
    prompt: str | None
    at: str | None
    intent: str | None
    top: int | None

    @property
    def looked_for(self) -> str:
        """What is searched."""
        return (self.prompt if self.intent is None else self.intent) or ""


def fork_several(wanted: Wanted, how: dict[str, Any], *, as_json: bool) -> None:
    """Fork them, and say of each what became of it. Exits with 1 if one was not started.

    Raises:
        SmartForkError: none was started.
    """
    _check(wanted)
    with progress_bar(quiet=as_json) as progress:
        sources = _sources(wanted, how["cwd"], progress)
    answer = fan_out(sources, wanted.prompt, **how)
    if as_json:
        print_json(answer)
    else:
        _print(answer["forks"], dry_run=how["dry_run"])
    if any("error" in one for one in answer["forks"]):
        raise typer.Exit(1)


def _check(wanted: Wanted) -> None:
    if wanted.at not in (None, "match"):
        raise Usage("--at takes a message's number only for one session", "Say --at match, or fork them one by one.")
    searching = wanted.at == "match" or wanted.top is not None
    if searching and not wanted.looked_for.strip():
        raise Usage("--top and --at match need an intent", 'Say what to look for: --intent "…", or a prompt.')
    if wanted.intent is not None and not searching:
        raise Usage("--intent is only for --at match and --top", "Say what the forks are to do as their prompt.")


def _sources(wanted: Wanted, project: str | None, progress: Any) -> list[Source]:
    at_match = wanted.at == "match"
    if wanted.top is not None:
        return best_of(_found(wanted.looked_for, project, progress), wanted.top, at_match=at_match)
    located = [sessions.locate(one) for one in wanted.ids]
    if not at_match:
        return [Source(one.session_id) for one in located]
    from smart_fork.forking.matching import message_for
    from smart_fork.retrieval.background import engine

    asked = engine(progress)
    return [Source(one.session_id, message_for(sessions.look_into(one), wanted.looked_for, asked)) for one in located]


def _found(intent: str, project: str | None, progress: Any) -> dict[str, Any]:
    """More than are wanted, since some cannot be forked."""
    from smart_fork.retrieval.background import ask

    more: dict[str, Any] = {"everywhere": False, "min_score": None, "automated": False, "explain": False}
    return ask(intent, agent="both", project=project, limit=3 * MOST, snippets=False, progress=progress, **more)


def _print(forks: list[dict[str, Any]], *, dry_run: bool) -> None:
    for one in forks:
        if "error" in one:
            message = f"{one['session_name']}, a fork of {one['resume_session_id']}: {one['error']}"
            complain(SmartForkError(message, one["hint"]), as_json=False)
        else:
            print_forked(one, dry_run=dry_run)
    started = [one["worker_id"] for one in forks if one.get("worker_id")]
    if started:
        out.print(plain(f"Compare them: smart-fork compare {' '.join(started)}"))
