"""Options of commands, made from requests such as `smart_fork.agents.options.Options`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from enum import StrEnum
from inspect import Parameter
from typing import Annotated, Any

import typer

from smart_fork.agents.options import Options, Said, ordered, said_of
from smart_fork.budget.wanted import BudgetAsked
from smart_fork.cli.command import with_signature
from smart_fork.errors import Usage


class PlaceChoice(StrEnum):
    """Where a worker can run."""

    tmux = "tmux"
    process = "process"
    iterm2 = "iterm2"
    here = "here"


#: Of some options the command line knows other values.
_KINDS: dict[str, type] = {"place": PlaceChoice}
WorktreeName = Annotated[str | None, typer.Option("--worktree-name", help="Name of the worktree. Implies --worktree.")]
_NAMED = "worktree_name"
#: Defaults of the parameters that are replaced.
NOTHING_SAID, NO_BUDGET = Options(), BudgetAsked()


def takes_options(
    *, without: Sequence[str] = (), order: str = "", **other: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace each parameter of a command that is a request by the request's fields, `without` these.

    `other` has descriptions or annotations of this command for some of them. They are shown in `order`, else in that of
    the request; other parameters may be among them.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        shown: list[Parameter] = []
        made: dict[str, tuple[Any, set[str]]] = {}
        for one in inspect.signature(command, eval_str=True).parameters.values():
            request: Any = one.annotation
            parameters = _parameters(request, without, other) if is_dataclass(request) else [one]
            shown += parameters
            if is_dataclass(request):
                made[one.name] = request, {parameter.name for parameter in parameters}
        shown = ordered(shown, order)
        either = any(one.name == "worktree" and one.default is None for one in shown)

        @functools.wraps(command)
        def run(**given: Any) -> None:
            if either and given["worktree"] is False and given.get(_NAMED):
                raise Usage("--no-worktree goes with neither --worktree-name nor --with-changes")
            for name, (request, names) in made.items():
                given[name] = _request(request, {one: given.pop(one) for one in names})
            command(**given)

        with_signature(run, shown)
        return run

    return decorate


def _parameters(request: Any, without: Sequence[str], other: dict[str, Any]) -> list[Parameter]:
    made = []
    for one in fields(request):
        said, described = said_of(one), other.get(one.name)
        if one.name in without or not (said.help or described):
            continue
        if described is None or isinstance(described, str):
            described = _annotation(one.name, said, described or said.help)
        made.append(_parameter(one.name, one.default, described))
        if one.name == "worktree":
            made.append(_parameter(_NAMED, None, other.get(_NAMED, WorktreeName)))
    return made


def _parameter(name: str, default: Any, annotation: Any) -> Parameter:
    kind = Parameter.KEYWORD_ONLY
    flag = default is None and annotation.__origin__ is bool
    return Parameter(name, kind, default=False if flag else default, annotation=annotation)


def _annotation(name: str, said: Said, described: str) -> Any:
    flags = said.flags or (f"--{name.replace('_', '-')}",)
    option = typer.Option(*flags, help=described)
    if bool in said.types:
        return Annotated[bool, option]
    return Annotated[_KINDS.get(name, said.types[0]) | None, option]


def _request(request: Any, given: dict[str, Any]) -> Any:
    name = given.pop(_NAMED, None)
    values: dict[str, Any] = {key: value.value if isinstance(value, StrEnum) else value for key, value in given.items()}
    if name is not None:
        values["worktree"] = name
    return request(**values)
