"""Options and arguments of commands, made of the fields of their requests. See `smart_fork.agents.options`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from smart_fork.agents.options import Options, Said, inputs, said_of
from smart_fork.cli.output import answer_in_json
from smart_fork.errors import Usage

_NAMED = "worktree_name"
_WORKTREE_NAME = Annotated[
    str | None, typer.Option("--worktree-name", help="Name of the worktree. Implies --worktree.")
]
#: Stands where a command takes options of a worker.
NOTHING_SAID = Options()
_JSON = Parameter(
    "as_json",
    Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[bool, typer.Option("--json", help="Print JSON.")],
)


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command as typer runs it: each request is replaced by its fields; --json is the last option."""
    shown, requests = inputs(command, _made)
    either = any(one.name == "worktree" and one.default is None for one in shown)

    @functools.wraps(command)
    def run(*, as_json: bool, **given: Any) -> Any:
        answer_in_json(as_json)
        if either and given["worktree"] is False and (given.get(_NAMED) or given.get("with_changes")):
            raise Usage("--no-worktree goes with neither --worktree-name nor --with-changes")
        for name, (request, named) in requests.items():
            given[name] = request(**_values({one: given.pop(one) for one in named}, named))
        return command(**given)

    with_signature(run, [*shown, _JSON])
    return run


def with_signature(run: Callable[..., Any], shown: list[Parameter]) -> None:
    """Give a command these parameters, as typer reads them."""
    shown = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in shown]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in shown}


def _made(one: Field[Any], said: Said, other: Mapping[str, Any]) -> Iterator[Parameter]:
    """The option of a field; the second one is for the name of a worktree."""
    described = other.get(one.name)
    if not (said.help or described):
        return
    if described is None or isinstance(described, str):
        described = _annotation(one.name, said, described or said.help)
    name, default = one.name, one.default
    if _turned_off(said):
        name, default = said.flags[0][2:].replace("-", "_"), False
    elif default is MISSING:
        default = Parameter.empty
    elif default == () or described.__origin__ is bool:
        default = default or (False if described.__origin__ is bool else None)
    yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=described)
    if name == "worktree":
        yield Parameter(_NAMED, Parameter.KEYWORD_ONLY, default=None, annotation=other.get(_NAMED, _WORKTREE_NAME))


def _turned_off(said: Said) -> bool:
    """Return whether the flag makes a true field false."""
    return len(said.flags) == 1 and said.flags[0].startswith("--no-")


def _annotation(name: str, said: Said, described: str) -> Any:
    how: dict[str, Any] = {"help": described, "metavar": said.metavar, "min": said.min, "max": said.max}
    flags = said.flags or (f"--{name.replace('_', '-')}",)
    shown = typer.Argument(**how) if said.argument else typer.Option(*flags, hidden=said.hidden, **how)
    if bool in said.types:
        return Annotated[bool, shown]
    return Annotated[(said.read or said.types[0]) | None, shown]


def _values(given: Mapping[str, Any], named: Mapping[str, Field[Any]]) -> dict[str, Any]:
    """The fields of a request, without those of which nothing was said."""
    values = {}
    for name, value in given.items():
        said = said_of(named[name])
        if name == _NAMED and value is not None:
            values["worktree"] = value
        elif name != _NAMED and said is not None and value is not None:
            values[named[name].name] = not value if _turned_off(said) else _plain(value, said)
    return values


def _plain(value: Any, said: Said) -> Any:
    """A value as requests have it."""
    if isinstance(value, str) and int in said.types and value.isascii() and value.isdigit():
        return int(value)
    if isinstance(value, Path) and Path not in said.types:
        return str(value)
    return tuple(value) if isinstance(value, list) else value
