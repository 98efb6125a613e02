"""Options of commands, made from requests such as `smart_fork.agents.options.Options`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import typer

from smart_fork.agents.options import Options, Said, is_said, ordered, said_of
from smart_fork.cli.output import answer_in_json
from smart_fork.errors import Usage

#: Where a worker can run.
PlaceChoice = Literal["tmux", "process", "iterm2", "here"]
#: Of some options the command line knows other values.
_KINDS: dict[str, Any] = {"place": PlaceChoice, "at": str, "cwd": Path, "project": Path}
WorktreeName = Annotated[str | None, typer.Option("--worktree-name", help="Name of the worktree. Implies --worktree.")]
_NAMED = "worktree_name"
_Function = TypeVar("_Function", bound=Callable[..., Any])
#: Stands where a command takes options of a worker.
NOTHING_SAID = Options()


#: How a command's requests are shown, by its attribute of this name.
_TAKES = "takes"
_JSON = Parameter(
    "as_json",
    Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[bool, typer.Option("--json", help="Print JSON.")],
)


def takes_options(*, without: Sequence[str] = (), order: str = "", **other: Any) -> Callable[[_Function], _Function]:
    """Describe how the requests among a command's parameters are shown: `without` these fields, in that `order`.

    `other` has descriptions or annotations of this command for some fields.
    """

    def decorate(command: _Function) -> _Function:
        setattr(command, _TAKES, (without, order, other))
        return command

    return decorate


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command as typer runs it: each request is replaced by its fields; --json is the last option."""
    without, order, other = getattr(command, _TAKES, ((), "", {}))
    shown: list[Parameter] = []
    requests: dict[str, tuple[Any, set[str]]] = {}
    for one in inspect.signature(command, eval_str=True).parameters.values():
        request: Any = one.annotation
        parameters = _parameters(request, without, other) if is_dataclass(request) else [one]
        shown += parameters
        if is_dataclass(request):
            requests[one.name] = request, {parameter.name for parameter in parameters}
    shown = ordered(shown, order)
    either = any(one.name == "worktree" and one.default is None for one in shown)

    @functools.wraps(command)
    def run(*, as_json: bool, **given: Any) -> Any:
        answer_in_json(as_json)
        if either and given["worktree"] is False and (given.get(_NAMED) or given.get("with_changes")):
            raise Usage("--no-worktree goes with neither --worktree-name nor --with-changes")
        for name, (request, names) in requests.items():
            given[name] = _request(request, {one: given.pop(one) for one in names})
        return command(**given)

    with_signature(run, [*shown, _JSON])
    return run


def with_signature(run: Callable[..., Any], shown: list[Parameter]) -> None:
    """Give a command these parameters, as typer reads them."""
    shown = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in shown]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in shown}


def _parameters(request: Any, without: Sequence[str], other: dict[str, Any]) -> list[Parameter]:
    made = []
    shown = [one for one in fields(request) if is_said(one)]
    own = {} if shown else get_type_hints(request, include_extras=True)
    for one in shown or fields(request):
        said, described = said_of(one), other.get(one.name, own.get(one.name))
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
    default = Parameter.empty if default is MISSING else False if flag else None if default == () else default
    return Parameter(name, kind, default=default, annotation=annotation)


def _annotation(name: str, said: Said, described: str) -> Any:
    flags = said.flags or (f"--{name.replace('_', '-')}",)
    option = typer.Option(*flags, help=described)
    if bool in said.types:
        return Annotated[bool, option]
    return Annotated[_KINDS.get(name, said.types[0]) | None, option]


def _request(request: Any, given: dict[str, Any]) -> Any:
    name = given.pop(_NAMED, None)
    said = {one.name: said_of(one) for one in fields(request) if is_said(one)}
    if said:
        given = {key: _plain(value, said.get(key)) for key, value in given.items() if value is not None}
    return request(**given) if name is None else request(**given | {"worktree": name})


def _plain(value: Any, said: Said | None) -> Any:
    """A value as requests have it."""
    if isinstance(value, str) and said is not None and int in said.types and value.isascii() and value.isdigit():
        return int(value)
    return tuple(value) if isinstance(value, list) else str(value) if isinstance(value, Path) else value
