"""``service install``, ``uninstall``, ``stop``, ``rotate``, ``status`` and ``print``."""

from __future__ import annotations

from typing import Annotated

import typer

from indexer.failures import next_step, what_failed
from smart_fork.cli.command import Commands
from smart_fork.cli.output import out, plain, printed_as_json, say, wants_json
from smart_fork.cli.service.lock import stop as end
from smart_fork.cli.service.token import rotate as change
from smart_fork.cli.service.units import installation
from smart_fork.cli.service.units.installation import ServiceState
from smart_fork.errors import NotFound, ProgramFailed

app = Commands(help="The service that keeps the index fresh: install it once and forget it.", no_args_is_help=True)


PortOption = Annotated[
    int | None, typer.Option("--port", min=1, max=65535, help="Port. Default: as installed before, else 8766.")
]
EveryOption = Annotated[str | None, typer.Option("--every", help="Indexing interval: 15m, 1h or five cron fields.")]
KindOption = Annotated[
    installation.Kind | None, typer.Option("--kind", help="Service manager. Default: the one on this machine.")
]


@app.command("install")
def install(
    port: PortOption = None,
    every: EveryOption = None,
    kind: KindOption = None,
    only_print: Annotated[bool, typer.Option("--print", help="Print what would be written. Change nothing.")] = False,
) -> None:
    """Start the service now and at every login."""
    if only_print:
        print_unit(port, every, kind)
        return
    keeper = installation.supervisor(kind)
    notes = installation.install(keeper, installation.settings_for(keeper, port=port, every=every))
    state = installation.look(keeper)
    if printed_as_json({"service": state.as_json(), "notes": notes}):
        return
    out.print(plain(f"Installed: port {state.port}, indexed every {state.every}."))
    out.print(plain(f"  unit {state.unit}"))
    out.print(plain(f"  logs {state.logs}"))
    for note in notes:
        say(note)


@app.command("uninstall")
def uninstall() -> None:
    """Remove the service. Index and logs stay."""
    if installation.native_kind() is None:
        there = False
    else:
        keeper = installation.supervisor()
        there = keeper.path.exists()
        keeper.uninstall()
    if not printed_as_json({"removed": there}):
        out.print(plain("The service was removed." if there else "No service is installed."))


@app.command("stop")
def stop() -> None:
    """Stop the running service."""
    stopped = end()
    if not printed_as_json({"stopped": stopped}):
        out.print(plain("The service was stopped." if stopped else "No service runs."))


@app.command("rotate")
def rotate() -> None:
    """Change the token. Old tokens and cookies stop working."""
    try:
        done = change()
    except OSError as error:
        raise ProgramFailed(f"The token was not changed: {what_failed(error)}", next_step(error)) from error
    if printed_as_json(done):
        return
    runs = f"the service at {done.service} has taken it" if done.service else "no service runs"
    out.print(plain(f"The token was changed; {runs}. To sign in again: smart-fork open"))
    for holder in done.holders:
        say(f"{holder} has the old token: put the new one there.")


@app.command("status")
def status() -> None:
    """Show whether the service is installed and running."""
    state = installation.look(installation.supervisor())
    if not (printed_as_json(state) or state.installed):
        raise NotFound("No service is installed", "`smart-fork service install` installs it.")
    if not wants_json():
        _print_state(state)
    if not state.installed:
        raise typer.Exit(NotFound.exit_code)
    if not state.running:
        raise typer.Exit(1)


@app.command("print")
def print_unit(port: PortOption = None, every: EveryOption = None, kind: KindOption = None) -> None:
    """Print what `install` would write."""
    keeper = installation.supervisor(kind)
    content = keeper.written(installation.settings_for(keeper, port=port, every=every))
    if not printed_as_json({"kind": keeper.name, "unit": str(keeper.path), "content": content.decode()}):
        typer.echo(content, nl=False)


def _print_state(state: ServiceState) -> None:
    running = f"runs, process {state.pid}" if state.running else "does not run"
    ended = f"; last exit: {state.ended}" if state.ended else ""
    out.print(plain(f"The service {running}{ended}."))
    if state.restart:
        change = "{from} -> {to}".format_map(state.restart)
        out.print(plain(f"  restart pending: {change}, when it is idle"))
    for key in ("kind", "unit", "program", "port", "every", "logs"):
        value = getattr(state, key)
        out.print(plain(f"  {key:<8} {value if value is not None else '-'}"))
    if not state.program_found:
        say("Its program is gone or its settings are damaged: `smart-fork service install` rewrites them.")
    elif not state.running:
        say(f"The logs in {state.logs} say why; `smart-fork service install` starts it.")
