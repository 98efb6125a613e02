"""The command line: thin over the library. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import typer

from smart_fork.cli import (
    comparing,
    excise,
    families,
    following,
    forgetting,
    forking,
    index,
    overview,
    search,
    service,
    serving,
    setting_up,
    starting,
    system,
    worktrees,
)
from smart_fork.cli.output import complain, log_to_stderr, print_json
from smart_fork.errors import SmartForkError

log = logging.getLogger(__name__)

#: What a wrong option or argument is raised as; newer versions of typer bring their own.
_WrongUse: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")

app = typer.Typer(
    name="smart-fork",
    help="Find the past Claude Code or Codex session that already knows how, in this repository, and run a fork of it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("find")(search.find)
app.command("list")(search.list_sessions)
app.command("show")(search.show)
app.command("fork", cls=forking.ForkCommand)(forking.fork)
app.command("new")(starting.new)
app.command("resume")(starting.resume)
app.command("continue")(starting.continue_newest)
app.command("spawn")(starting.spawn)
app.command("branch")(families.branch)
app.command("lineage")(families.lineage)
app.command("active")(following.active)
app.command("read")(following.read)
app.command("message")(following.message)
app.command("wait")(following.wait)
app.command("close")(following.close)
app.command("stop")(following.stop)
app.command("forget")(forgetting.forget)
app.command("compare")(comparing.compare)
app.command("worktrees")(worktrees.worktrees)
app.add_typer(index.app, name="index")
app.add_typer(setting_up.app, name="setup")
app.command("hook", hidden=True)(setting_up.hook)
app.add_typer(excise.app, name="excise")
app.add_typer(service.app, name="service")
app.command("mcp")(system.mcp)
app.command("serve")(serving.serve)
app.command("status")(overview.status)
app.command("open")(serving.open_page)
app.command("logs")(serving.logs)
app.command("doctor")(system.doctor)
app.command("demo")(system.demo)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        sys.stdout.write(f"smart-fork {version('smart-fork')}\n")
        raise typer.Exit


@app.callback()
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


def _run() -> int:
    arguments = sys.argv[1:]
    as_json = "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)
    try:
        return int(app(standalone_mode=False) or 0)
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
        hint = "`smart-fork doctor` checks every part; `smart-fork --verbose …` shows where it happened."
        complain(SmartForkError(f"{type(error).__name__}: {error}", hint), as_json=as_json)
        return 1
