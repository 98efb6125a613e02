"""The command line: thin over the library. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import logging
import os
import sys
from importlib import import_module
from typing import Any

import typer

from smart_fork.cli.output import complain, log_to_stderr, print_json
from smart_fork.errors import SmartForkError

log = logging.getLogger(__name__)

#: What a wrong option or argument is raised as; newer versions of typer bring their own.
_WrongUse: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")

#: Each command, or group of commands, and where it is defined: a function of a module below here, or its app.
_COMMANDS = {
    "find": "search.find",
    "list": "search.list_sessions",
    "show": "search.show",
    "fork": "forking.fork",
    "new": "starting.new",
    "resume": "starting.resume",
    "continue": "starting.continue_newest",
    "spawn": "starting.spawn",
    "branch": "families.branch",
    "lineage": "families.lineage",
    "active": "following.active",
    "read": "following.read",
    "message": "following.message",
    "wait": "following.wait",
    "close": "following.close",
    "stop": "following.stop",
    "compare": "comparing.compare",
    "worktrees": "worktrees.worktrees",
    "excise": "excise.app",
    "forget": "forgetting.forget",
    "index": "index.app",
    "setup": "setup.app",
    "hook": "hooks.hook",
    "mcp": "system.mcp",
    "serve": "serving.serve",
    "service": "service.app",
    "status": "overview.status",
    "open": "serving.open_page",
    "logs": "serving.logs",
    "doctor": "system.doctor",
    "demo": "system.demo",
    "statusline": "glances.statusline",
    "welcome": "glances.welcome",
}
_HELP = "Find the past Claude Code or Codex session that already knows how, in this repository, and run a fork of it."
#: What the agents run, not people.
_HIDDEN = ("hook", "welcome")


def application(only: str | None = None) -> typer.Typer:
    """The command line, of all commands or of that one alone: to define them all takes as long as to find something."""
    app = typer.Typer(
        name="smart-fork",
        help=_HELP,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in _COMMANDS if only is None else (only,):
        place, _, what = _COMMANDS[name].partition(".")
        module = import_module(f"{__name__}.{place}")
        if what == "app":
            app.add_typer(module.app, name=name)
        else:
            kind = getattr(module, "COMMAND_CLASSES", {}).get(name)
            app.command(name, cls=kind, hidden=name in _HIDDEN)(getattr(module, what))
    return app


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        sys.stdout.write(f"smart-fork {version('smart-fork')}\n")
        raise typer.Exit


def _options(
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Log what is done to stderr."),
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),  # noqa: ARG001
) -> None:
    log_to_stderr(verbose=verbose)


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
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 0
    sys.exit(status)


def _named(arguments: list[str]) -> str | None:
    """The command that is meant; `None` where all have to be known: to list them, or for a shell that completes."""
    completes = any(name.startswith("_") and name.endswith("_COMPLETE") for name in os.environ)
    name = next((one for one in arguments if not one.startswith("-")), None)
    return name if name in _COMMANDS and not completes else None


def _run() -> int:
    arguments = sys.argv[1:]
    as_json = "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
    try:
        if not arguments and sys.stdin.isatty() and sys.stdout.isatty():
            from smart_fork.cli.picker import pick

            return pick()
        return int(application(_named(arguments))(standalone_mode=False) or 0)
    except SmartForkError as error:
        complain(error, as_json=as_json)
        return error.exit_code
    except _WrongUse as error:
        if as_json:
            print_json({"error": error.format_message()})
        error.show()
        return int(error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        raise
    except Exception as error:
        log.info("this is where it happened", exc_info=error)
        from indexer.failures import next_step

        known = "`smart-fork doctor` checks every part; `smart-fork --verbose …` shows where it happened."
        hint = next_step(error) or known
        complain(SmartForkError(f"{type(error).__name__}: {error}", hint), as_json=as_json)
        return 1
