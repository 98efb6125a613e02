"""The commands that show shared sessions: ``find``, ``list``, ``show``, ``log``, ``diff`` and ``status``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from indexer.json_values import json_of
from smart_fork.agents.request_fields import takes
from smart_fork.cli.output import out, plain, print_json, printed_as_json, say, wants_json
from smart_fork.cli.result_list import print_hits
from smart_fork.finding.request import FindRequest
from smart_fork.team.commands.team_group import CurrentArgument, SessionArgument, TeamPlace, app, message_count

if TYPE_CHECKING:
    from smart_fork.errors import SmartForkError
    from smart_fork.team.project import TeamProject
    from smart_fork.team.shared_session_reader import TeamMessage

#: The states of an alias that are shown in other words.
_STATES = {"missing": "not on this machine", "pending": "not pushed yet", "withdrawn": "no longer on the server"}
#: The next step for states in which a push or a pull is refused.
_NEXT = {
    "diverged": "smart-fork team branch {} turns the local records into a session of their own",
    "changed": "smart-fork team push {} --force shares the local session without a parent",
    "withdrawn": "smart-fork team push {} --force shares the local session without a parent",
}
#: The number of sessions that `list` shows by default.
_LISTED = 20


@app.command("find")
@takes(only=("intent", "limit", "min_score", "also", "server", "project"), order="intent limit min_score also")
def find(*, asked: FindRequest, place: TeamPlace) -> None:
    """Search only the team's sessions."""
    find_shared(asked, place)


def find_shared(request: FindRequest, place: TeamPlace) -> None:
    """Search the team's sessions and print the results. Exit with 3 if there are no results."""
    from smart_fork.team.facade import find_in_team

    found = find_in_team(request, server=place.server, project=place.project)
    if not printed_as_json(found):
        print_hits(found.results)
        if not found.results:
            say(f"Nothing found in {found.team.sessions} sessions of {found.team.project} on {found.team.server}.")
    if not found.results:
        raise typer.Exit(3)


@app.command("list")
def list_sessions(
    *,
    mine: Annotated[bool, "Only your own sessions."] = False,
    owner: Annotated[str | None, "Only sessions of this owner."] = None,
    tag: Annotated[str | None, "Only sessions with this tag."] = None,
    agent: Annotated[str | None, "Only sessions of this agent."] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=100, help="Number of sessions, at most 100.")
    ] = _LISTED,
    page: Annotated[str | None, "Continue a list at this page."] = None,
    place: TeamPlace,
) -> None:
    """List shared sessions of this project, newest first."""
    asked = {"owner": owner, "tag": tag, "agent": agent, "page": page, "mine": "true" if mine else None}
    with place.opened(ask=True) as where:
        if where.away is not None:
            _list_tracked(where, where.away, agent=agent, unknown=owner or tag or page)
            return
        found = where.client.page(where.key, limit=str(limit), **{key: one for key, one in asked.items() if one})
        if wants_json():
            said = found.model_dump(mode="json")
            print_json({"server": where.server, "project": where.key, "count": len(found.sessions), **said})
            return
    for one in found.sessions:
        _print_row(one.id, one.owner, one.agent, one.visibility, one.record_count, one.title)
    if not found.sessions:
        say("No shared session here is visible to you.")
    if found.next_page:
        say(f"There are more: --page {found.next_page}")


def _list_tracked(where: TeamProject, away: SmartForkError, *, agent: str | None, unknown: str | None) -> None:
    """List the tracked sessions from this machine's data, since the server does not answer. `away` is its error.

    Raise `away` if `unknown`, the value of a filter that only the server can evaluate, is given.
    """
    if unknown:
        raise away
    tracked = where.tracking.read().aliases.values()
    found = [one for one in tracked if one.session_id and agent in (None, one.platform)]
    user = where.client.account.user
    if wants_json():
        rows = [
            {
                "id": one.session_id, "project": where.key, "owner": user, "agent": one.platform,
                "visibility": one.visibility, "record_count": one.base_count, "title": one.title,
                "root_id": one.root_id, "parent_id": one.parent_id, "seen": one.last_pulled_at,
            }
            for one in found
        ]  # fmt: skip
        head = {"server": where.server, "project": where.key, "count": len(rows)}
        print_json({**head, "sessions": rows, "next_page": None, "server_error": away.message})
        return
    for one in found:
        _print_row(one.session_id or "", user, one.platform, one.visibility, one.base_count, one.title)
    say(f"{away.message} This list has only your tracked sessions, as of the last push or pull.")
    say(away.hint)


def _print_row(session_id: str, owner: str, agent: str, visibility: str, records: int, title: str) -> None:  # noqa: PLR0917
    about = plain(f"{owner:<10} {agent:<8} {visibility:<7} {records:>6} records")
    out.row(plain(session_id[:13], "bold"), about, plain(title or "untitled"))


@app.command("show")
def show(
    *,
    session: CurrentArgument = None,
    at: Annotated[str | None, "Number of messages from the start."] = None,
    place: TeamPlace,
) -> None:
    """Print a shared session with numbered messages."""
    from smart_fork.team.shared_session_reader import messages_of

    with place.opened() as where:
        one = messages_of(where, session, message_count(at))
    if printed_as_json(one):
        return
    info = one.session
    out.print(plain(f"# {info.title or 'untitled'}", "bold"))
    out.print(plain(f"{info.agent} {info.id} · {info.owner} · {info.visibility}"))
    for message in one.messages:
        _print_message(message)


@app.command("log")
def log(*, session: CurrentArgument = None, place: TeamPlace) -> None:
    """Show the forks and branches of a shared session as a tree."""
    from smart_fork.team.shared_session_reader import family

    with place.opened() as where:
        members = family(where, session)
    if printed_as_json({"count": len(members), "sessions": json_of(members)}):
        return
    for one in members:
        name = one.session_id[:13] if one.session_id else "not pushed"
        begins = f"from record {one.base_count}, " if one.parent_id else ""
        alias = f" [{one.alias}]" if one.alias else ""
        out.print(plain("  " * one.depth) + plain(name, "bold") + plain(f"  {one.owner}{alias}  {one.title}"))
        out.print(plain(f"{'  ' * one.depth}  {begins}{one.record_count} records, {one.visibility}", "dim"))


@app.command("diff")
def diff(
    *,
    session: SessionArgument,
    other: Annotated[str | None, typer.Argument(metavar="[B]", help="Second session. Default: the parent.")] = None,
    place: TeamPlace,
) -> None:
    """Show where two sessions diverge."""
    from smart_fork.team.shared_session_reader import divergence

    with place.opened() as where:
        found = divergence(where, session, other)
    if printed_as_json(found):
        return
    out.print(plain(f"They have {found.common_messages} messages in common, {found.common_records} records."))
    for side in (found.a, found.b):
        out.print(plain(f"\n{side.session_id[:13]}", "bold") + plain(f"  {side.owner}  {side.title}"))
        for message in side.said:
            _print_message(message)
        if not side.said:
            out.print(plain("It has no further messages."))


@app.command("status")
def status(place: TeamPlace) -> None:
    """Show unpushed, unpulled and withdrawn messages."""
    from smart_fork.team import facade, tracked_sessions

    with place.opened(ask=True) as where:
        found = tracked_sessions.status(where)
        failed = facade.failed_jobs(where.client) if where.away is None else None
        if wants_json():
            told = {} if failed is None else {"failed_jobs": json_of(failed)}
            told |= {} if where.away is None else {"server_error": where.away.message}
            print_json({"server": where.server, "project": where.key, "aliases": json_of(found)} | told)
            return
    for one in found:
        numbers = [f"{one.ahead} ahead" if one.ahead else "", f"{one.behind} behind" if one.behind else ""]
        said = ", ".join(filter(None, (_STATES.get(one.state, one.state.replace("_", " ")), *numbers)))
        out.print(plain(f"{'*' if one.current else ' '} {one.alias}", "bold") + plain(f"  {said}  {one.title}"))
        if way := _NEXT.get(one.state):
            out.print(plain(f"    {way.format(one.alias)}", "dim"))
    if where.away is not None:
        say(f"{where.away.message} This list is from the last push or pull. It may be out of date.")
        say(where.away.hint)
    if failed:
        say(f"{facade.jobs_in_words(failed)} {facade.JOBS_HINT}")
    if not found:
        say("Nothing is tracked here: `smart-fork team push`, `pull`, `branch` or `fork` starts it.")


def _print_message(message: TeamMessage) -> None:
    out.print(plain(f"\n## {message.number} · {message.role} · {message.timestamp}", "dim"))
    out.print(plain(message.text))
