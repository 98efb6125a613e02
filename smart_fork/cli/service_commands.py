"""The commands ``serve``, ``logs``, ``open`` and ``service``."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import webbrowser
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from indexer.environment import Setting
from indexer.errors import next_step, what_failed
from indexer.project import project_of
from indexer.safe_files import private_dir, state_home
from smart_fork.agents import AGENTS
from smart_fork.cli.command import CommandApp
from smart_fork.cli.output import err, out, printed_as_json, say, wants_json, working
from smart_fork.cli.service import installation, json_log
from smart_fork.cli.service.client import Service, ServiceGoneError, find_service, started_service
from smart_fork.cli.service.installation import ServiceInstallation
from smart_fork.cli.service.instance import Address
from smart_fork.cli.service.instance import stop as end
from smart_fork.cli.service.token import rotate as change
from smart_fork.errors import NotFound, ProgramFailed
from smart_fork.system.processes import Processes


def serve(
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65535, help="Port. It is kept for later starts.")
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "localhost",
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Allow connections from other machines.")
    ] = False,
) -> None:
    """Run the service in this terminal: MCP over HTTP, a fresh index, and the page. Ctrl-C ends it."""
    from smart_fork.cli.service.server import serve as run

    if (there := find_service()) is not None:
        say(f"The service is already running: {there.address.url} (process {there.address.pid})")
        return
    run(host, port, allow_remote=allow_remote, on_ready=_print_address if err.is_terminal else None)
    # A thread may still be in the model, whose libraries abort the process when Python is taken down around them.
    with contextlib.suppress(OSError):  # its log's disk may be full: it was ended all the same
        sys.stderr.flush()
    os._exit(0)


def _print_address(address: Address) -> None:
    """Print the running service's address, how to stop it, and how agents and people connect to it."""
    token = shlex.quote(str(state_home() / "service-token"))
    say(f"Serving at {address.url}. Ctrl-C ends it, or elsewhere: smart-fork service stop")
    if not address.socket:
        say("It has no socket: smart-fork's own commands do without it. `smart-fork logs` says why.")
    say("Its page: smart-fork open. Over HTTP:")
    for way in AGENTS.registrations():
        if command := way.over_http(f"{address.url}/mcp", token):
            say(f"  {command}")


def logs(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new records as they come.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=10_000, help="Number of records.")] = 50,
) -> None:
    """Print the service's log."""
    for record in chain(json_log.last_lines(lines), json_log.follow() if follow else ()):
        if not printed_as_json(record):
            out.print(f"{record.get('time', '')} {record.get('level', '')} {record.get('message', '')}")


def open_page(
    print_only: Annotated[bool, typer.Option("--print", help="Print the address. Open nothing.")] = False,
) -> None:
    """Open the service's page in the browser, on the current project. A private file signs the browser in, once."""
    service = _running_service()
    try:
        way_in = service.way_in(_current_project())
    except ServiceGoneError as error:
        raise ProgramFailed(f"The service does not answer: {error}", "`smart-fork logs` says more.") from error
    # The code itself would be in the browser's command line, where every user of this machine can read it.
    address = Path(way_in.file).as_uri()
    if printed_as_json({"url": address, **way_in.as_json()}):
        return
    if print_only or not webbrowser.open(address):
        out.print(address)
        say(f"It works once, within a minute. If the browser cannot read the file, use a code: {way_in.page}open")


def _running_service() -> Service:
    """Return the running service of this smart-fork home, or start one.

    Raises:
        ProgramFailed: the service does not start.
        NotFound: SMART_FORK_SERVICE or SMART_FORK_BACKGROUND forbids to start a service.
    """
    if (service := started_service()) is not None:
        return service
    if Setting.SERVICE.is_off() or Setting.BACKGROUND.is_off():
        raise NotFound("The service is not running", "Start it: smart-fork serve")
    log, processes = private_dir(state_home() / "logs") / "service-crash.log", Processes()
    with working("starting the service"):
        command = Processes.python("smart_fork", "serve")
        begun = processes.start(command, cwd=private_dir(state_home()), env=os.environ, log=log)
        service = started_service(lambda: processes.alive(begun))
    if service is None:
        raise ProgramFailed("The service did not start", f"{log} says why, or run `smart-fork serve`.")
    say(f"The service runs at {service.address.url}. It ends with: smart-fork service stop")
    return service


def _current_project() -> str:
    """Return the main directory of the git repository at the working directory; empty outside one."""
    try:
        project = project_of(Path.cwd())
    except OSError:  # the directory is gone
        return ""
    return project.root if project.git else ""


app = CommandApp(help="The service that keeps the index fresh: install it once and forget it.", no_args_is_help=True)


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
    out.print(f"Installed: port {state.port}, indexed every {state.every}.")
    out.print(f"  unit {state.unit}")
    out.print(f"  logs {state.logs}")
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
        out.print("The service was removed." if there else "No service is installed.")


@app.command("stop")
def stop() -> None:
    """Stop the running service."""
    stopped = end()
    if not printed_as_json({"stopped": stopped}):
        out.print("The service was stopped." if stopped else "No service runs.")


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
    out.print(f"The token was changed; {runs}. To sign in again: smart-fork open")
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


def _print_state(state: ServiceInstallation) -> None:
    running = f"runs, process {state.pid}" if state.running else "does not run"
    ended = f"; last exit: {state.ended}" if state.ended else ""
    out.print(f"The service {running}{ended}.")
    if state.restart:
        change = "{from} -> {to}".format_map(state.restart)
        out.print(f"  restart pending: {change}, when it is idle")
    for key in ("kind", "unit", "program", "port", "every", "logs"):
        value = getattr(state, key)
        out.print(f"  {key:<8} {value if value is not None else '-'}")
    if not state.program_found:
        say("Its program is gone or its settings are damaged: `smart-fork service install` rewrites them.")
    elif not state.running:
        say(f"The logs in {state.logs} say why; `smart-fork service install` starts it.")
