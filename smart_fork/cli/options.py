"""What can be said of any worker, as options of the commands that start one: made of `Options`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from enum import StrEnum
from inspect import Parameter
from typing import Annotated, Any

import typer

from smart_fork.agents.options import Options, Said, said_of
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
#: Stands where a command takes them.
NOTHING_SAID = Options()


def takes_options(
    *, without: Sequence[str] = (), order: str = "", **other: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command, in place of its parameter `options`, those of a worker, `without` these.

    `other` are annotations that this command has for some of them, and `order` is the one that they are shown in, where
    it is not that of `Options`; other parameters may be among them.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        made = _parameters(without, other)
        shown: list[Parameter] = []
        for one in inspect.signature(command, eval_str=True).parameters.values():
            shown += made if one.name == "options" else [one]
        shown = _ordered(shown, order.split())
        names = {one.name for one in made}
        either = any(one.name == "worktree" and one.default is None for one in made)

        @functools.wraps(command)
        def run(**given: Any) -> None:
            said = {name: given.pop(name) for name in names}
            if either and said["worktree"] is False and said.get(_NAMED):
                raise Usage("--no-worktree goes with neither --worktree-name nor --with-changes")
            command(**given, options=_options(said))

        with_signature(run, shown)
        return run

    return decorate


def _parameters(without: Sequence[str], other: dict[str, Any]) -> list[Parameter]:
    made = []
    for one in fields(Options):
        said = said_of(one)
        if one.name in without or not (said.help or one.name in other):
            continue
        made.append(_parameter(one.name, one.default, other.get(one.name) or _annotation(one.name, said)))
        if one.name == "worktree":
            made.append(_parameter(_NAMED, None, other.get(_NAMED, WorktreeName)))
    return made


def _parameter(name: str, default: Any, annotation: Any) -> Parameter:
    kind = Parameter.KEYWORD_ONLY
    flag = default is None and annotation.__origin__ is bool
    return Parameter(name, kind, default=False if flag else default, annotation=annotation)


def _annotation(name: str, said: Said) -> Any:
    flags = said.flags or (f"--{name.replace('_', '-')}",)
    option = typer.Option(*flags, help=said.help)
    if bool in said.types:
        return Annotated[bool, option]
    return Annotated[_KINDS.get(name, said.types[0]) | None, option]


def _ordered(shown: list[Parameter], order: Sequence[str]) -> list[Parameter]:
    """These parameters, of which those that `order` names take each other's places."""
    named = {one.name: one for one in shown}
    those = iter(name for name in order if name in named)
    return [named[next(those)] if one.name in order else one for one in shown]


def _options(given: dict[str, Any]) -> Options:
    name = given.pop(_NAMED, None)
    values: dict[str, Any] = {key: value.value if isinstance(value, StrEnum) else value for key, value in given.items()}
    if name is not None:
        values["worktree"] = name
    return Options(**values)
