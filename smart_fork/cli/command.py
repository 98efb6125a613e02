"""Base classes of all commands and command groups: they check the given options and arguments before a command runs."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from indexer.environment import VARIABLES
from indexer.safe_files import state_home
from smart_fork.cli.command_table import ALIASES, unknown_command
from smart_fork.errors import Usage
from smart_fork.hooks import RECALL

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: Options and arguments that contradict each other, in whichever command both are.
_CONTRADICTORY = (
    ("--project", "--all-projects"),
    ("--project", "--all"),
    ("--here", "--all-projects"),
    ("--team", "--all-projects"),
    ("--team", "--include-automated"),
    ("--team", "--explain"),
    ("--team", "--tag"),
    ("--team", "--archived"),
    ("SESSION", "--session"),
    ("SNAPSHOT", "--list"),
    ("--to", "--list"),
    ("--mine", "--owner"),
    ("--server", "--data"),
    ("--server", "--dsn"),
    ("--data", "--dsn"),
    ("--public", "--private"),
    ("--remove", "--print"),
    ("--remove", "--recall"),
    ("--remove", "--allow-reading"),
    ("--remove", "--keep-logs"),
)

#: Parameters that take references to sessions, in whichever command they are.
_SESSIONS = frozenset({"session", "sessions", "reference", "fork_from", "resume_session_id"})
#: The key in a command's ``ctx.meta`` of the number of words after ``--``: none of them is an option or an id.
WORDS_BEHIND_DASHES = "smart_fork.words_behind_dashes"
_ID = re.compile(r"[0-9a-f]{8}[0-9a-f-]*")
#: Commands that run even with invalid settings: some show the settings, and agents wait for the others.
_WHATEVER_IS_SET = ("config", "doctor", "hook", "mcp")


def _refuse_repeated(given: Sequence[Any]) -> None:
    """Refuse an option that takes one value and is given twice: click would silently use the last value."""
    options = [one for one in given if one.param_type_name == "option" and not (one.multiple or one.count)]
    for one, number in Counter(one for one in options if not one.is_flag or one.secondary_opts).items():
        if number > 1:
            raise Usage(f"{one.opts[0]} is given {number} times", "It takes one value: give it once.")


def _names(parameter: Any) -> list[str]:
    """Return a click parameter's names as help shows them: an option's flags, or an argument's metavar alone."""
    return parameter.opts if parameter.param_type_name == "option" else [parameter.metavar or parameter.name.upper()]


def session_references(given: Any) -> Any:
    """Replace the shortcuts in `given`, a text or a list of texts, by references to sessions.

    Shortcuts are titles, worker names and result numbers: ``1`` is the first session of the last list at this terminal.
    """
    if not isinstance(given, str):
        return [session_references(one) for one in given] if given else given
    if _ID.fullmatch(given):
        return given
    from smart_fork.cli import listed_sessions  # most know the id

    return listed_sessions.reference_of(given)


class _CheckedParameters:
    """A mixin for `Command` and `Group`, listed before typer's class: it checks options and arguments."""

    params: list[Any]
    make_parser: Callable[[Any], Any]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse `args` as click does, and replace numbers of results, such as ``1``, by references to those sessions.

        Refuse empty, repeated and contradictory values.
        """
        ctx.meta[WORDS_BEHIND_DASHES] = len(args) - args.index("--") - 1 if "--" in args else 0
        values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        _refuse_repeated(order)
        named = {one: _names(one) for one in self.params}
        Usage.refuse_empty({names[0]: values.get(one.name) for one, names in named.items()})
        given = {name: values.get(one.name) for one, names in named.items() for name in names}
        Usage.refuse_both(given, _CONTRADICTORY)
        left: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        for name in _SESSIONS.intersection(ctx.params):
            ctx.params[name] = session_references(ctx.params[name])
        return left

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write this command's help as click does, with examples. Many options are shown in groups."""
        words, above = list[str](), ctx
        while above.parent is not None:
            words.insert(0, above.info_name)
            above = above.parent
        add_examples(self, " ".join(words))
        super().format_help(ctx, formatter)  # type: ignore[misc]


class Command(_CheckedParameters, TyperCommand):
    """A typer command that checks its options, its arguments and the settings before it runs."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command, unless an environment variable of smart-fork has an invalid value.

        If an agent passes a session that a hint (a line about a past session) named, record that the hint was followed.
        """
        if ctx.info_name not in _WHATEVER_IS_SET and (
            fault := next(filter(None, (one.fault() for one in VARIABLES)), "")
        ):
            raise Usage(fault, "Correct or unset it. `smart-fork config` shows each setting.")
        if (state_home() / RECALL).is_dir():
            from smart_fork.agents import AGENTS  # the list of commands needs no agents
            from smart_fork.hooks import hint_switch

            hint_switch.follow(AGENTS.caller_session(os.environ), " ".join(map(str, ctx.params.values())))
        return super().invoke(ctx)


class Group(_CheckedParameters, TyperGroup):
    """A typer group of commands. It checks its own options, and suggests a command if a name is unknown."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the subcommand that `args` call, as click does; for an unknown name, suggest a similar one."""
        args = [ALIASES.get(args[0], args[0]) if ctx.parent is None else args[0], *args[1:]]
        if self.get_command(ctx, args[0]) is None and args[0][:1] != "-":
            raise unknown_command(args, ctx.command_path, self.list_commands(ctx))
        return super().resolve_command(ctx, args)


class CommandApp(typer.Typer):
    """A typer application with commands of the class `Command` and groups of the class `Group`."""

    def __init__(self, **how: Any) -> None:
        super().__init__(cls=Group, **how)

    def command(  # type: ignore[override]
        self, name: str, *, json: bool = True, **how: Any
    ) -> Callable[[_Function], _Function]:
        """Return a decorator that registers a function as a command, with ``--json`` unless `json` is false.

        Each parameter of a request class, such as `FindRequest`, becomes one option for each field.
        """
        add = super().command(name, cls=Command, **how)

        def added(command: _Function) -> _Function:
            if json:
                from smart_fork.cli.options import with_options  # the list of commands needs no agents

                add(with_options(command))
            else:
                add(command)
            return command

        return added


#: The help of a command with fewer options has them in one group.
_MANY = 9
_SEARCH, _FORK, _RUN, _OUTPUT = "Where to search", "What to fork", "How it runs", "Options"
_GROUPS: Mapping[str, str] = {
    **dict.fromkeys(("--agent", "--project", "--all-projects", "--team", "--include-automated", "--server"), _SEARCH),
    **dict.fromkeys(("--at", "--intent", "--also", "--top", "--min-score", "--budget", "--keep", "--drop"), _FORK),
    **dict.fromkeys(
        ("--merge", "--as", "--unmasked", "--fork-from", "--resume", "--continue", "--fork", "--excise"), _FORK
    ),
    **dict.fromkeys(("--worktree", "--worktree-name", "--with-changes", "--in", "--cwd", "--name", "--start"), _RUN),
    **dict.fromkeys(("--skip-permissions", "--brief"), _RUN),
    **dict.fromkeys(("--json", "--dry-run", "--explain", "--limit", "--no-snippets", "--yes", "--help"), _OUTPUT),
}


@cache
def examples(path: str = "") -> tuple[str, ...]:
    """Return the example command lines of all commands, or at most two for the command `path`, such as ``team push``.

    The examples name a session of ``smart-fork demo``, so that people can try them there.
    """
    from importlib.resources import files  # few commands are asked for their help

    lines = files("smart_fork.cli").joinpath("examples.txt").read_text(encoding="utf-8").splitlines()
    return tuple(one for one in lines if f"{one} ".startswith(f"{path} "))[:2] if path else tuple(lines)


def add_examples(command: Any, path: str) -> None:
    """Add the examples of the command `path` to its help. If it has many options, show them in groups."""
    if path and (shown := examples(path)):
        command.epilog = "\n\n".join(("Examples:", *(f"  smart-fork {one}" for one in shown)))
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    if path and len(options) >= _MANY:
        for one in options:
            one.rich_help_panel = next((_GROUPS[name] for name in one.opts if name in _GROUPS), "Options")
