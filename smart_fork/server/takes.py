"""Arguments of tools, made from requests: a sibling of `smart_fork.cli.options`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter
from typing import Annotated, Any, Literal, Union

from pydantic import Field

from smart_fork.agents.options import ordered, said_of

Tool = Callable[..., Awaitable[Any]]


def takes_requests(*, without: Sequence[str] = (), order: str = "", **other: Any) -> Callable[[Tool], Tool]:
    """Replace each parameter of a tool that is a request by the request's fields, `without` these.

    `other` has descriptions or annotations of this tool for some of them. They are listed in `order`, else in that of
    the request. `None` means a field's default.
    """

    def decorate(tool: Tool) -> Tool:
        signature = inspect.signature(tool, eval_str=True)
        shown: list[Parameter] = []
        made: dict[str, tuple[Any, dict[str, str]]] = {}
        for one in signature.parameters.values():
            request: Any = one.annotation
            if not is_dataclass(request):
                shown.append(one if one.name == "self" else one.replace(kind=Parameter.KEYWORD_ONLY))
                continue
            arguments = _arguments(request, without, other)
            shown += arguments.values()
            made[one.name] = request, {name: argument.name for name, argument in arguments.items()}

        shown = ordered(shown, order)

        @functools.wraps(tool)
        async def run(*bound: Any, **given: Any) -> Any:
            for parameter, (request, keys) in made.items():
                values = {name: given.pop(key) for name, key in keys.items()}
                given[parameter] = request(**{name: _frozen(one) for name, one in values.items() if one is not None})
            return await tool(*bound, **given)

        run.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in shown if one.name != "self"}
        return run

    return decorate


def _arguments(request: Any, without: Sequence[str], other: dict[str, Any]) -> dict[str, Parameter]:
    """Return the arguments for a request's fields, by the field's name."""
    made = {}
    for one in fields(request):
        said = said_of(one)
        described = other.get(one.name, said.described)
        if one.name in without or not described:
            continue
        kind: Any = Union[(Literal[said.choices],) if said.choices else said.types]  # noqa: UP007 - of several
        required = one.default is MISSING
        if isinstance(described, str):
            described = Annotated[kind if required else kind | None, Field(description=described)]
        default = Parameter.empty if required else None if one.default == () else one.default
        name = said.key or one.name
        made[one.name] = Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=described)
    return made


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
