"""The command line: thin over the library. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import typer

from indexer.errors import IndexerError
from smart_fork.cli.command import Command, Commands
from smart_fork.cli.command_table import COMMANDS, group, named
from smart_fork.cli.output import Unprinted, complain, log_to_stderr
from smart_fork.errors import NotFound, SmartForkError, Usage

log = logging.getLogger(__name__)

#: What a wrong option or argument is raised as; newer versions of typer bring their own.
_WrongUse: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")

#: What there is always to do.
_KNOWN = "`smart-fork doctor` checks every part; `smart-fork --verbose …` shows where it happened."
#: Commands without an answer.
_WITHOUT_JSON = frozenset({"choices", "help", "hook", "mcp", "serve"})
_HELP = """Find the past session that knows how, and fork it.

  smart-fork find "add retry to the uploader"   which session knows how?
  smart-fork fork 70f1a07f "do it again"        fork it with your prompt
  smart-fork setup                              let your agents do both
"""


def application(*names: str, every: bool = False) -> typer.Typer:
    """The command line of these commands alone; without any, a list of what people type, or of `every` command."""
    app = Commands(
        name="smart-fork", help=_HELP, no_args_is_help=True, pretty_exceptions_enable=False,
        epilog=None if every else "smart-fork help --all also lists what agents and services run.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    app.callback()(_options)
    for name in names:
        entry = COMMANDS[name]
        module, what = group(name), entry.place.rpartition(".")[2]
        if what == "app":
            app.add_typer(module.app, name=name, help=entry.purpose)
        else:
            kind = getattr(module, "COMMAND_CLASSES", {}).get(name, Command)
            function = getattr(module, what)
            rest = inspect.cleandoc(function.__doc__ or "").partition("\n\n")[2]  # what it says after its purpose
            told = f"{entry.purpose}\n\n{rest}".strip()
            app.command(name, cls=kind, json=name not in _WITHOUT_JSON, help=told)(function)
    for name, entry in () if names else COMMANDS.items():
        how: dict[str, Any] = {"help": entry.purpose, "hidden": entry.hidden and not every}
        app.command(name, json=False, rich_help_panel=entry.panel, **how)(_undefined)
    return app


@cache
def command_line(*names: str, every: bool = False) -> Callable[..., Any]:
    """The same, ready to be run; made once in a process, for of a command like `team` that takes a while."""
    return typer.main.get_command(application(*names, every=every))


def _undefined() -> None:
    """Refuse to run a command that is only listed."""
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
    _look_around()


def _look_around() -> None:
    """Know whether an agent runs this; and what a person has set, who does."""
    from smart_fork.agents import AGENTS
    from smart_fork.system.call_context import calling

    calling.set(AGENTS.around(os.environ))
    if sys.stdin.isatty() and sys.stderr.isatty():
        from smart_fork.agents.login import note_variables_of_person

        note_variables_of_person(os.environ)


def main() -> None:
    """The program. Exit 0 done, 1 error, 2 usage, 3 not found."""
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
        status = _unwritten(Unprinted(error))
    sys.exit(status)


def _write_nowhere() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _unwritten(error: Unprinted) -> int:
    """Say that stdout does not take what is printed. What was done is done."""
    _write_nowhere()
    complain(error)
    return error.exit_code


def _is_nowhere() -> bool:
    """Return True if the working directory was removed."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _meant(arguments: list[str]) -> Iterable[str]:
    """The command that is meant, none where they are listed, all where a shell asks what cannot be told beforehand."""
    asks = next((one for name, one in os.environ.items() if name.startswith("_") and name.endswith("_COMPLETE")), None)
    if asks is not None:
        from smart_fork.cli.completion import words_before

        asked = words_before(asks.partition("_")[2], os.environ)
        if asked is None:
            return COMMANDS
        arguments, _ = asked
    name = named(arguments)
    return (name,) if name else ()


def _run() -> int:
    arguments = sys.argv[1:]
    as_json = "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
    try:
        if not arguments and sys.stdin.isatty() and sys.stdout.isatty():
            from smart_fork.cli.picker import pick

            chosen = pick()
            if isinstance(chosen, int):
                return chosen
            arguments = chosen
        return int(command_line(*_meant(arguments))(arguments, standalone_mode=False) or 0)
    except Unprinted as error:
        return _unwritten(error)
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
        if isinstance(error, FileNotFoundError) and _is_nowhere():
            gone = NotFound("The current directory was removed", "Change to an existing one: cd DIR.")
            complain(gone, as_json=as_json)
            return gone.exit_code
        log.info("this is where it happened", exc_info=error)
        from indexer.errors import next_step, what_failed

        hint = next_step(error) or _KNOWN
        said = what_failed(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        complain(SmartForkError(said, hint), as_json=as_json)
        return 1
