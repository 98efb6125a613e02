"""The kinds of commands and groups that all commands are of: what they are given is checked here, before they run."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from indexer.safe_files import state_home
from indexer.settings import VARIABLES
from smart_fork.cli.command_table import ALIASES, unknown
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
_ID = re.compile(r"[0-9a-f]{8}[0-9a-f-]*")
#: Commands that run even with settings that mean nothing: these show them, and agents wait for those.
_WHATEVER_IS_SET = ("config", "doctor", "hook", "mcp")


def _refuse_repeated(given: Sequence[Any]) -> None:
    """Refuse a second value of an option that takes one: click would silently take the last."""
    options = [one for one in given if one.param_type_name == "option" and not (one.multiple or one.count)]
    for one, number in Counter(one for one in options if not one.is_flag or one.secondary_opts).items():
        if number > 1:
            raise Usage(f"{one.opts[0]} is given {number} times", "It takes one value: give it once.")


def _names(parameter: Any) -> list[str]:
    """Return how a person sees a parameter: an option's names, or the word for an argument."""
    return parameter.opts if parameter.param_type_name == "option" else [parameter.metavar or parameter.name.upper()]


def meant(given: Any) -> Any:
    """References in the place of numbers and names, where a session is expected."""
    if not isinstance(given, str):
        return [meant(one) for one in given] if given else given
    if _ID.fullmatch(given):
        return given
    from smart_fork.cli import last_answer  # most know the id

    return last_answer.meant(given)


class _OurWay:
    """Shared behavior of commands and groups, placed before typer's own class."""

    params: list[Any]
    make_parser: Callable[[Any], Any]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click. Empty, repeated and contradictory values are refused."""
        values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        _refuse_repeated(order)
        named = {one: _names(one) for one in self.params}
        Usage.refuse_empty({names[0]: values.get(one.name) for one, names in named.items()})
        given = {name: values.get(one.name) for one, names in named.items() for name in names}
        Usage.refuse_both(given, _CONTRADICTORY)
        left: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        for name in _SESSIONS.intersection(ctx.params):
            ctx.params[name] = meant(ctx.params[name])
        return left

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """See click. Few commands are asked for their help: its examples and groups are added then."""
        from smart_fork.cli.help_pages import dress

        words, above = list[str](), ctx
        while above.parent is not None:
            words.insert(0, above.info_name)
            above = above.parent
        dress(self, " ".join(words))
        super().format_help(ctx, formatter)  # type: ignore[misc]


class Command(_OurWay, TyperCommand):
    """A command."""

    def invoke(self, ctx: Any) -> Any:
        """See click. Settings are refused that mean nothing. What a session was told of and names here is followed."""
        if ctx.info_name not in _WHATEVER_IS_SET and (
            fault := next(filter(None, (one.fault() for one in VARIABLES)), "")
        ):
            raise Usage(fault, "Correct or unset it. `smart-fork config` shows each setting.")
        if (state_home() / RECALL).is_dir():
            from smart_fork.agents import AGENTS  # the list of commands needs no agents
            from smart_fork.hooks import recall_switch

            recall_switch.follow(AGENTS.caller_session(os.environ), " ".join(map(str, ctx.params.values())))
        return super().invoke(ctx)


class Group(_OurWay, TyperGroup):
    """A group, which does the same with what it is given itself."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """See click. A command that does not exist is refused with the one that may be meant."""
        args = [ALIASES.get(args[0], args[0]) if ctx.parent is None else args[0], *args[1:]]
        if self.get_command(ctx, args[0]) is None and args[0][:1] != "-":
            raise unknown(args, ctx.command_path, self.list_commands(ctx))
        return super().resolve_command(ctx, args)


class Commands(typer.Typer):
    """Commands of these kinds."""

    def __init__(self, **how: Any) -> None:
        super().__init__(cls=Group, **how)

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = None, json: bool = True, **how: Any
    ) -> Callable[[_Function], _Function]:
        """See typer. Each command takes --json and requests unless `json` is false."""
        add = super().command(name, cls=cls or Command, **how)

        def added(command: _Function) -> _Function:
            if json:
                from smart_fork.cli.options import with_options  # the list of commands needs no agents

                add(with_options(command))
            else:
                add(command)
            return command

        return added
