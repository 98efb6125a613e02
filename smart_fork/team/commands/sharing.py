"""The commands that push sessions to the server, copy them here, and withdraw (remove) shared messages."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexer.lazy_compilation import dataclass
from indexer.project import resolve
from smart_fork.agents import AGENTS
from smart_fork.agents.request_fields import said, takes
from smart_fork.cli.command import CommandApp
from smart_fork.cli.options import YesOption, with_signature
from smart_fork.cli.output import out, plain, printed_as_json, say, wants_json
from smart_fork.cli.start_agents import resume_log
from smart_fork.display_text import quoted
from smart_fork.errors import Usage
from smart_fork.team import PullOptions, PushRequest, SharedDescription
from smart_fork.team.commands import team_group
from smart_fork.team.commands.team_group import app

if TYPE_CHECKING:
    from smart_fork.agents.agent import Agent
    from smart_fork.sharing.withdrawal import AppliedWithdrawals
    from smart_fork.team.project import TeamProject
    from smart_fork.team.shared_session_copies import BranchVerb
    from smart_fork.team.sharing_result import SharingResult
    from smart_fork.team.withdraw import WithdrawalResult


def takes_platforms(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `platforms` of a command by one flag for each agent, such as ``--codex``."""
    agents = [agent for agent in AGENTS if agent.has("converter")]
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
    from smart_fork.team.commands import pushing

    named = sessions or []
    asked = replace(request, reference=named[0] if named else None, platforms=tuple(platforms))
    if all_of_project and named:
        raise Usage("--all takes no session", "Name sessions, or give --all.")
    with place.current() as where:
        if all_of_project or len(named) > 1:
            wanted = pushing.SeveralPushes(where, asked, named, every=all_of_project)
            wanted.show() if dry_run else wanted.push(yes=yes)
        else:
            pushing.push_one(where, asked, yes=yes, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class BranchPart:
    """The options of a new branch or fork: how many messages it gets, and on which machines it is created."""

    at: str | None = said(help="Number of messages to take, as in `team show`, or `head`.")
    local: bool = said(bool, default=False, help="Only on this machine, until the first push.")
    pull: bool = said(bool, default=True, help="Only on the server.", flags=("--no-pull",))


@dataclass(frozen=True, slots=True)
class CopyOptions(PullOptions):
    """Options of the commands that write a shared session on this machine."""

    resume: bool = said(bool, default=False, help="Resume it here immediately.")
    yes: bool = said(bool, default=False, help="Do not ask for confirmation.", flags=("--yes", "-y"))


@app.command("pull")
@takes(order="into platform resume alias no_track force yes")
def pull(
    *,
    session: team_group.SessionArgument,
    copy: CopyOptions,
    no_track: Annotated[bool, "Do not track the copy."] = False,
    force: team_group.ForceOption = False,
    place: team_group.TeamPlace,
) -> None:
    """Copy one of your shared sessions to this machine."""
    from smart_fork.team.pull import pull as take_over

    with _opened(place, copy) as where:
        done = take_over(where, session, replace(copy, track=not no_track, force=force))
    _finish(done, copy)


_ORDER = "at title tags summary private public alias local no_pull platform resume into force yes"


@app.command("branch")
@takes(order=_ORDER)
def branch(
    *,
    session: team_group.CurrentArgument = None,
    part: BranchPart,
    described: SharedDescription,
    copy: CopyOptions,
    place: team_group.TeamPlace,
) -> None:
    """Branch one of your own shared sessions."""
    _branch("branch", session, part, described, copy, place, ask=part.local)


@app.command("fork")
@takes(order=_ORDER)
def fork(
    *,
    session: team_group.SessionArgument,
    part: BranchPart,
    described: SharedDescription,
    copy: CopyOptions,
    force: team_group.ForceOption = False,
    place: team_group.TeamPlace,
) -> None:
    """Fork a teammate's public session."""
    _branch("fork", session, part, described, replace(copy, force=force), place)


def _branch(  # noqa: PLR0917 - the parts of a command
    verb: BranchVerb, session: str | None, part: BranchPart, described: SharedDescription, copy: CopyOptions,
    place: team_group.TeamPlace, *, ask: bool = False,
) -> None:  # fmt: skip
    from smart_fork.team.shared_session_copies import TeamBranchRequest, branch

    at = team_group.message_count(part.at)
    asked = TeamBranchRequest(description=described.checked(), at=at, local=part.local, pull=part.pull)
    with _opened(place, copy, ask=ask) as where:
        done = branch(where, verb, session, asked, copy)
    _finish(done, copy)


@contextmanager
def _opened(place: team_group.TeamPlace, copy: CopyOptions, *, ask: bool = False) -> Iterator[TeamProject]:
    """Yield the project for a command that writes a log. Ask the user about a directory outside the project."""
    into = copy.into
    with place.current(ask=ask) as where:
        there = into is None or resolve(into).is_relative_to(where.place.root)
        if not there:
            team_group.confirm(f"{into} is not in {where.place.root}. Write it for that directory?", yes=copy.yes)
        yield where


def _finish(done: SharingResult, copy: CopyOptions) -> None:
    resumed = copy.resume and done.files
    if not (resumed and wants_json()):
        team_group.print_shared(done)
    if resumed:
        resume_log(done.files[0], done.agent, done.as_json())


excise = CommandApp(help="Withdraw messages of a shared session, everywhere.", no_args_is_help=True)
app.add_typer(excise, name="excise")


@app.command("privacy")
@takes(without=("title", "tags", "summary"), order="public private")
def privacy(
    *,
    session: team_group.SessionArgument,
    described: SharedDescription,
    yes: YesOption = False,
    place: team_group.TeamPlace,
) -> None:
    """Make a shared session public or private."""
    from smart_fork.team.wire import SessionChange

    wanted = described.visibility
    if wanted is None:
        raise Usage("Say --public or --private")
    if wanted == "public":
        team_group.confirm("All members of the project will be able to read it. Continue?", yes=yes)
    with place.current() as where:
        info = where.client.change(where.key, where.session_id_of(session), SessionChange(visibility=wanted))
    if not printed_as_json({"session_id": info.id, "visibility": info.visibility}):
        out.print(plain(f"{info.id} is {info.visibility}."))


@app.command("delete")
def delete(
    *,
    session: team_group.SessionArgument,
    everywhere: Annotated[bool, "Also from all forks and all machines."] = False,
    yes: YesOption = False,
    place: team_group.TeamPlace,
) -> None:
    """Delete a shared session."""
    from smart_fork.team.withdraw import delete as take_away

    what = "Withdraw it from all users, for good?" if everywhere else "Hide it?"
    with place.current() as where:
        team_group.confirm(what, yes=yes)
        done = take_away(where, session, everywhere=everywhere)
    if done is not None:
        _print_done(done, "delete")
    elif not printed_as_json({"verb": "delete", "session_id": session, "everywhere": False}):
        out.print(plain("It is hidden. Forks by others stay; --everywhere withdraws them too."))


@excise.command("cut")
def cut(
    *,
    meant: Annotated[
        list[str],
        typer.Argument(metavar="[RANGE] ID", help="Messages as numbered by `team show` (5-7,9), then the session."),
    ],
    secrets: Annotated[bool, "Mask secrets instead, in all messages or in the given ones."] = False,
    yes: YesOption = False,
    force: team_group.ForceOption = False,
    place: team_group.TeamPlace,
) -> None:
    """Withdraw messages from a shared session and all its copies."""
    from smart_fork.team.withdraw import WithdrawalRequest, plan_withdrawal, repeated_withdrawal, send_withdrawal

    if len(meant) > 2 or (len(meant) == 1 and not secrets):
        raise Usage("Give messages and a session", "smart-fork team excise cut 5-7,9 ID")
    asked = WithdrawalRequest(meant[-1], meant[0] if len(meant) == 2 else "", secrets, force)
    with place.current() as where:
        if (before := repeated_withdrawal(where, asked)) is not None:
            say("It was already withdrawn: the first answer was lost. Nothing more changed.")
            _print_done(before, "excise", cut=0, masked={})
            return
        made = plan_withdrawal(where, asked)
        if not wants_json():
            edited = len(made.edits) - made.cut
            say(f"{made.info.title or 'untitled'}: this removes {made.cut} records and masks {edited}")
        team_group.confirm("Withdraw this from all users, for good?", yes=yes)
        done = send_withdrawal(where, made)
    _print_done(done, "excise", cut=made.cut, masked=dict(made.masked))


@app.command("sync")
def sync(*, remove: Annotated[bool, "Remove affected copies."] = False, place: team_group.TeamPlace) -> None:
    """Apply withdrawals to this machine now."""
    from smart_fork.team.withdraw import apply_withdrawals

    with place.opened() as where:
        taken = apply_withdrawals(where.client, at_once=True, remove=remove)
    if printed_as_json(_taken(taken)):
        return
    if not (taken.changed or taken.removed or taken.put_off):
        out.print(plain("No withdrawal affects this machine."))
    _say(taken)


@app.command("audit")
def audit(
    *,
    session: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Session. Default: everything you may see.")
    ] = None,
    since: Annotated[str | None, "Earliest day or time: 2026-03-01."] = None,
    mine: Annotated[bool, "Only your own actions."] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Number of lines.")] = 50,
    place: team_group.TeamPlace,
) -> None:
    """Show who pushed, pulled, forked and withdrew what."""
    with place.current() as where:
        asked = {"session": where.session_id_of(session)} if session is not None else {}
        asked |= ({"since": _time(since)} if since is not None else {}) | ({"mine": "1"} if mine else {})
        page = where.client.audit(**asked)
        lines = page.lines
        while len(lines) < limit and page.next_page is not None:
            page = where.client.audit(**asked, page=page.next_page)
            lines += page.lines
    lines = lines[:limit]
    if printed_as_json([line.model_dump(mode="json") for line in lines]):
        return
    if not lines:
        say("No entries, or you may not see them.")
    for line in lines:
        what = " ".join(filter(None, (line.verb, line.session_id, line.project)))
        out.print(plain(f"{line.at:%Y-%m-%d %H:%M}  {line.actor:<16} {what}"))


def _print_done(done: WithdrawalResult, verb: str, **more: Any) -> None:
    about = {"session_id": done.info.id, "revision": done.info.revision, "record_count": done.info.record_count}
    if printed_as_json({"verb": verb, **about, "descendants": done.descendants, **more, **_taken(done.here)}):
        return
    out.print(plain(f"Withdrawn. Sessions made from it also changed: {done.descendants}."))
    say("Manual copies keep it. Server backups keep it until they expire.")
    say("Your own log still has it: smart-fork excise cut removes it there.")
    _say(done.here)


def _taken(taken: AppliedWithdrawals) -> dict[str, Any]:
    put_off = {str(path): why for path, why in (taken.put_off or {}).items()}
    return {"changed": list(map(str, taken.changed)), "removed": list(map(str, taken.removed)), "put_off": put_off}


def _say(taken: AppliedWithdrawals) -> None:
    for path in taken.changed:
        out.print(plain(f"  cut      {path}"))
    for path in taken.removed:
        out.print(plain(f"  removed  {path}"))
    for path, why in (taken.put_off or {}).items():
        out.print(plain(f"  put off  {path}: {why}"))


def _time(text: str) -> str:
    try:
        return datetime.fromisoformat(text).astimezone(UTC).isoformat()
    except ValueError:
        raise Usage(f"Not a time: {quoted(text)}", "Such as 2026-03-01, or 2026-03-01T12:00") from None
