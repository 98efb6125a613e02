"""Taking back what was shared, and seeing what was done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from smart_fork.agents.options import takes
from smart_fork.cli.command import Commands
from smart_fork.cli.options import YesOption
from smart_fork.cli.output import out, plain, printed_as_json, say, wants_json
from smart_fork.errors import Usage
from smart_fork.team.commands import words
from smart_fork.team.commands.words import app
from smart_fork.team.requests import Description

if TYPE_CHECKING:
    from smart_fork.sharing.withdrawal import Taken
    from smart_fork.team.withdraw import Done

excise = Commands(help="Withdraw messages of a shared session, everywhere.", no_args_is_help=True)
app.add_typer(excise, name="excise")


@app.command("privacy")
@takes(without=("title", "tags", "summary"), order="public private")
def privacy(
    *,
    session: words.SessionArgument,
    described: Description,
    yes: YesOption = False,
    place: words.TeamPlace,
) -> None:
    """Make a shared session public or private."""
    from smart_fork.team.withdraw import privacy as change

    wanted = described.visibility
    if wanted is None:
        raise Usage("Say --public or --private")
    if wanted == "public" and not words.agreed(
        "All members of the project will be able to read it. Continue?", yes=yes
    ):
        raise typer.Abort
    with place.current() as where:
        info = change(where, session, wanted)
    if not printed_as_json({"session_id": info.id, "visibility": info.visibility}):
        out.print(plain(f"{info.id} is {info.visibility}."))


@app.command("delete")
def delete(
    *,
    session: words.SessionArgument,
    everywhere: Annotated[bool, "Also from all forks and all machines."] = False,
    yes: YesOption = False,
    place: words.TeamPlace,
) -> None:
    """Delete a shared session."""
    from smart_fork.team.withdraw import delete as take_away

    what = "Withdraw it from all users, for good?" if everywhere else "Hide it?"
    with place.current() as where:
        if not words.agreed(what, yes=yes):
            raise typer.Abort
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
    force: words.ForceOption = False,
    place: words.TeamPlace,
) -> None:
    """Withdraw messages from a shared session and all its copies."""
    from smart_fork.team.withdraw import ExciseAsked, planned, send, withdrawn_before

    if len(meant) > 2 or (len(meant) == 1 and not secrets):
        raise Usage("Give messages and a session", "smart-fork team excise cut 5-7,9 ID")
    asked = ExciseAsked(meant[-1], meant[0] if len(meant) == 2 else "", secrets, force)
    with place.current() as where:
        if (before := withdrawn_before(where, asked)) is not None:
            say("It was already withdrawn: the first answer was lost. Nothing more changed.")
            _print_done(before, "excise", cut=0, masked={})
            return
        made = planned(where, asked)
        if not wants_json():
            edited = len(made.edits) - made.cut
            say(f"{made.info.title or 'untitled'}: this removes {made.cut} records and masks {edited}")
        if not words.agreed("Withdraw this from all users, for good?", yes=yes):
            raise typer.Abort
        done = send(where, made)
    _print_done(done, "excise", cut=made.cut, masked=dict(made.masked))


@app.command("sync")
def sync(
    *,
    remove: Annotated[bool, "Remove affected copies."] = False,
    place: words.TeamPlace,
) -> None:
    """Apply withdrawals to this machine now."""
    from smart_fork.team.changes import take_over

    with place.opened() as where:
        taken = take_over(where.client, at_once=True, remove=remove)
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
    place: words.TeamPlace,
) -> None:
    """Show who pushed, pulled, forked and withdrew what."""
    from smart_fork.team.withdraw import audited

    with place.current() as where:
        lines = audited(where, session, since=since, mine=mine, limit=limit)
    if printed_as_json([line.model_dump(mode="json") for line in lines]):
        return
    if not lines:
        say("No entries, or you may not see them.")
    for line in lines:
        what = " ".join(filter(None, (line.verb, line.session_id, line.project)))
        out.print(plain(f"{line.at:%Y-%m-%d %H:%M}  {line.actor:<16} {what}"))


def _print_done(done: Done, verb: str, **more: Any) -> None:
    about = {"session_id": done.info.id, "revision": done.info.revision, "record_count": done.info.record_count}
    if printed_as_json({"verb": verb, **about, "descendants": done.descendants, **more, **_taken(done.here)}):
        return
    out.print(plain(f"Withdrawn. Sessions made from it also changed: {done.descendants}."))
    say("Manual copies keep it. Server backups keep it until they expire.")
    say("Your own log still has it: smart-fork excise cut removes it there.")
    _say(done.here)


def _taken(taken: Taken) -> dict[str, Any]:
    put_off = {str(path): why for path, why in (taken.put_off or {}).items()}
    return {"changed": list(map(str, taken.changed)), "removed": list(map(str, taken.removed)), "put_off": put_off}


def _say(taken: Taken) -> None:
    for path in taken.changed:
        out.print(plain(f"  cut      {path}"))
    for path in taken.removed:
        out.print(plain(f"  removed  {path}"))
    for path, why in (taken.put_off or {}).items():
        out.print(plain(f"  put off  {path}: {why}"))
