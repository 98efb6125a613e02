"""``backup`` and ``restore``: the database of a team's server, on its own machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from indexer.settings import TEAM_DSN
from smart_fork.cli.output import out, plain, print_json, printed_as_json, say, wants_json
from smart_fork.cli.team.server import DataOption, DsnOption
from smart_fork.cli.team.words import app
from smart_fork.errors import NotFound
from smart_fork.teamserver.installed import check_installed

if TYPE_CHECKING:
    from smart_fork.teamserver.backup import Place

RunAsOption = Annotated[
    str | None, typer.Option("--run-as", metavar="USER", help="User that runs the server. Required for root.")
]


@app.command("backup")
def backup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the backup file.")],
    *,
    days: Annotated[int, typer.Option("--days", min=1, help="Days until a later backup deletes this one.")] = 30,
    data: DataOption = None,
    dsn: DsnOption = None,
) -> None:
    """Back up the server's database while it runs."""
    with _found(data, dsn) as place:
        from smart_fork.teamserver.backup import backup as write

        done = write(place, folder, now=datetime.now(UTC), days=days)
    if wants_json():
        removed = [str(one) for one in done.removed]
        until = done.until.isoformat(timespec="seconds")
        print_json({"path": str(done.path), "bytes": done.size, "until": until, "removed": removed})
        return
    out.print(plain(str(done.path)))
    say(f"{done.size} bytes. It keeps later withdrawals until {done.until:%Y-%m-%d}.")
    if done.removed:
        say(f"Removed old backups: {', '.join(one.name for one in done.removed)}")


@app.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(help="Backup file.")],
    *,
    data: DataOption = None,
    dsn: DsnOption = None,
    run_as: RunAsOption = None,
) -> None:
    """Restore a backup. Stop the server first."""
    if not file.is_file():  # before a database is made for it
        raise NotFound(f"No such backup: {file}", "smart-fork team backup DIR prints the files that it wrote.")
    with _found(data, dsn, run_as=run_as, stopped=True) as place:
        from smart_fork.teamserver.backup import restore as put

        done = put(place, file)
    if printed_as_json({"path": str(file), "withdrawals": done}):
        return
    say(f"{file} restored; {done} withdrawals applied again. Start the server: smart-fork team serve")


@contextmanager
def _found(data: Path | None, dsn: str | None, *, run_as: str | None = None, stopped: bool = False) -> Iterator[Place]:
    """The database of the server: that of one that runs, or one that runs for as long as this lasts."""
    dsn = dsn or TEAM_DSN.text() or None
    check_installed(embedded=True)
    from smart_fork.teamserver.address import data_folder
    from smart_fork.teamserver.backup import Place
    from smart_fork.teamserver.cluster import OWNER, Account, Cluster, programs
    from smart_fork.teamserver.database import address, at_hand

    folder = (data or data_folder()).absolute()
    if dsn is not None or not stopped:
        if not stopped:
            with at_hand(folder, dsn):
                pass  # whoever does not answer says so here
        yield Place(dsn or address(folder), programs())
        return
    with Cluster(folder, Account.named(run_as), programs()).running() as running:
        yield Place(running.conninfo(OWNER), programs())
