"""The entry of the command line: it imports and runs the called command, and prints errors."""

from __future__ import annotations

import gc
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from indexer.errors import IndexerError, next_step, what_failed
from smart_fork.cli.command import CommandApp
from smart_fork.cli.command_table import COMMANDS, command_in, command_module
from smart_fork.cli.output import Unprinted, complain, log_to_stderr
from smart_fork.errors import NotFound, SmartForkError, Usage

log = logging.getLogger(__name__)

#: The exception for a wrong option or argument. Newer versions of typer have a class of their own.
_WrongUse: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")

#: The next step after an error that names none.
_KNOWN = "`smart-fork doctor` checks every part; `smart-fork --verbose …` shows where it happened."
#: Commands without ``--json``, because they return no answer.
_WITHOUT_JSON = frozenset({"choices", "help", "hook", "mcp", "serve"})
_HELP = """Find the past session that knows how, and fork it.

  smart-fork find "add retry to the uploader"   which session knows how?
  smart-fork fork 70f1a07f "do it again"        fork it with your prompt
  smart-fork setup                              let your agents do both
"""


def application(*names: str, every: bool = False) -> typer.Typer:
    """Return a typer application with the commands `names`.

    Without `names`, the application only lists all commands; with `every`, also those that agents and services run.
    """
    app = CommandApp(
        name="smart-fork", help=_HELP, no_args_is_help=True, pretty_exceptions_enable=False,
        epilog=None if every else "smart-fork help --all also lists what agents and services run.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    app.callback()(_options)
    for name in names:
        entry = COMMANDS[name]
        module, what = command_module(name), entry.place.rpartition(".")[2]
        function = getattr(module, what)
        if isinstance(function, typer.Typer):
            app.add_typer(function, name=name, help=entry.purpose)
        else:
            rest = inspect.cleandoc(function.__doc__ or "").partition("\n\n")[2]  # what it says after its purpose
            told = f"{entry.purpose}\n\n{rest}".strip()
            app.command(name, json=name not in _WITHOUT_JSON, help=told)(function)
    for name, entry in () if names else COMMANDS.items():
        how: dict[str, Any] = {"help": entry.purpose, "hidden": entry.hidden and not every}
        app.command(name, json=False, rich_help_panel=entry.panel, **how)(_placeholder)
    return app


@cache
def command_line(*names: str, every: bool = False) -> Callable[..., Any]:
    """Return the click command of `application` with the same arguments. It is cached, because it is slow to build."""
    return typer.main.get_command(application(*names, every=every))


def mcp(
    tools: Annotated[
        Literal["few", "all"],
        typer.Option("--tools", envvar="SMART_FORK_TOOLS", help="Tools that the agent sees: few or all."),
    ] = "few",
    begun: Annotated[str, typer.Option("--begun", hidden=True)] = "",
) -> None:
    """Serve MCP on stdin and stdout. Agents start this."""
    gc.disable()  # nearly all that is made until it serves are modules, which stay: to look through them takes a tenth
    from indexer.default_embedder import configured_embedder
    from smart_fork.server import Server

    gc.freeze()
    gc.enable()
    Server.run_stdio(begun, configured_embedder(background=True), everything=tools == "all")


def hook(agent: Annotated[str, typer.Argument(help="Name of the agent that runs it.")] = "") -> None:
    """Take one hook event from stdin, without output. Agents run the module `smart_fork.hooks`, which starts faster."""
    from smart_fork.hooks.__main__ import main as take_event

    take_event(agent)


def show_help(
    topic: Annotated[
        list[str] | None, typer.Argument(help="Command, such as: team push. Default: all commands.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="List every command, also those that agents run.")] = False,
) -> None:
    """Print the help of a command."""
    words = topic or []
    names = [word for word in words[:1] if word in COMMANDS]
    command_line(*names, every=every)([*words, "--help"], prog_name="smart-fork", standalone_mode=False)


def _placeholder() -> None:
    """Stand in for each command's function in the list of all commands, which only prints help."""
    raise NotImplementedError


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        sys.stdout.write(f"smart-fork {version('smart-fork')}\n")
        raise typer.Exit


def _options(
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Log each step to stderr."),
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),  # noqa: ARG001
) -> None:
    log_to_stderr(verbose=verbose)
    _note_caller()


def _note_caller() -> None:
    """Store which agent, if any, runs this command.

    If a person runs it, also note the names (not the values) of the login variables for agents in the environment.
    """
    from smart_fork.agents import AGENTS
    from smart_fork.system.call_context import calling

    calling.set(AGENTS.around(os.environ))
    if sys.stdin.isatty() and sys.stderr.isatty():
        AGENTS.note_login_variables_of_person(os.environ)


def main() -> None:
    """Run the command of `sys.argv`, and end the process.

    The exit code is 0 for success, 1 after an error, 2 after wrong usage, and 3 if nothing was found.
    """
    try:
        try:
            status = _run()
        finally:
            sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as error:
        # The reader, such as `head`, has seen enough; typer and rich turn that into an exit of their own.
        if not isinstance(error, BrokenPipeError) and not isinstance(error.__context__, BrokenPipeError):
            raise
        _write_nowhere()
        status = 0
    except OSError as error:  # of the last that was to be written
        status = _report_unprinted(Unprinted(error))
    sys.exit(status)


def _write_nowhere() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _report_unprinted(error: Unprinted) -> int:
    """Report on stderr that stdout could not be written. Return the exit code."""
    _write_nowhere()
    complain(error)
    return error.exit_code


def _is_directory_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _commands_to_import(arguments: list[str]) -> Iterable[str]:
    """Return the names of the commands to import for a command line: one, or none to list the commands.

    If a shell completes a line that cannot be split into words, return all.
    """
    asks = next((one for name, one in os.environ.items() if name.startswith("_") and name.endswith("_COMPLETE")), None)
    if asks is not None:
        from smart_fork.cli.quick_answers import words_before

        asked = words_before(asks.partition("_")[2], os.environ)
        if asked is None:
            return COMMANDS
        arguments, _ = asked
    name = command_in(arguments)
    return (name,) if name else ()


def _run() -> int:
    arguments = sys.argv[1:]
    as_json = "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
    try:
        if not arguments and sys.stdin.isatty() and sys.stdout.isatty():
            from smart_fork.cli.session_picker import pick

            chosen = pick()
            if isinstance(chosen, int):
                return chosen
            arguments = chosen
        return int(command_line(*_commands_to_import(arguments))(arguments, standalone_mode=False) or 0)
    except Unprinted as error:
        return _report_unprinted(error)
    except SmartForkError as error:
        unhinted = isinstance(error, IndexerError) and not error.hint
        complain(SmartForkError(error.message, _KNOWN) if unhinted else error, as_json=as_json)
        return error.exit_code
    except _WrongUse as error:
        path = error.ctx.command_path if error.ctx else "smart-fork"
        complain(Usage(error.format_message().rstrip("."), f"`{path} --help` shows what it takes."), as_json=as_json)
        return int(error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        raise
    except Exception as error:
        if isinstance(error, FileNotFoundError) and _is_directory_gone():
            gone = NotFound("The current directory was removed", "Change to an existing one: cd DIR.")
            complain(gone, as_json=as_json)
            return gone.exit_code
        log.info("this is where it happened", exc_info=error)
        hint = next_step(error) or _KNOWN
        said = what_failed(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        complain(SmartForkError(said, hint), as_json=as_json)
        return 1
