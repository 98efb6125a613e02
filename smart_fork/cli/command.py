"""The kinds of commands and groups that all commands are of: what they are given is checked here, before they run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from smart_fork.cli.output import answer_in_json
from smart_fork.given import refuse_both, refuse_empty

_Function = TypeVar("_Function", bound=Callable[..., Any])
_JSON = Parameter(
    "as_json",
    Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[bool, typer.Option("--json", help="Print JSON.")],
)

#: Options and arguments that contradict each other, in whichever command both are.
_CONTRADICTORY = (
    ("--project", "--all-projects"),
    ("--project", "--all"),
    ("--here", "--all-projects"),
    ("--team", "--all-projects"),
    ("--team", "--include-automated"),
    ("--team", "--explain"),
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


def _check(command: Any, ctx: Any, args: list[str]) -> None:
    values, _, _ = command.make_parser(ctx).parse_args(args=list(args))
    named = {one: one.opts if one.param_type_name == "option" else [one.human_readable_name] for one in command.params}
    refuse_empty({names[0]: values.get(one.name) for one, names in named.items()})
    refuse_both({name: values.get(one.name) for one, names in named.items() for name in names}, _CONTRADICTORY)


class Command(TyperCommand):
    """Refuses empty values, and such as contradict each other."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click."""
        _check(self, ctx, args)
        return super().parse_args(ctx, args)


class Group(TyperGroup):
    """A group that does the same with what it is given itself."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click."""
        _check(self, ctx, args)
        return super().parse_args(ctx, args)


def with_signature(run: Callable[..., Any], shown: list[Parameter]) -> None:
    """Give a command these parameters, as typer reads them."""
    shown = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in shown]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in shown}


def takes_json(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option --json, its last one."""

    @functools.wraps(command)
    def run(*, as_json: bool, **given: Any) -> Any:
        answer_in_json(as_json)
        return command(**given)

    with_signature(run, [*inspect.signature(command, eval_str=True).parameters.values(), _JSON])
    return run


class Commands(typer.Typer):
    """Commands of these kinds."""

    def __init__(self, **how: Any) -> None:
        super().__init__(cls=Group, **how)

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = None, json: bool = True, **how: Any
    ) -> Callable[[_Function], _Function]:
        """See typer. Each command takes --json unless `json` is false."""
        add = super().command(name, cls=cls or Command, **how)

        def added(command: _Function) -> _Function:
            add(takes_json(command) if json else command)
            return command

        return added
