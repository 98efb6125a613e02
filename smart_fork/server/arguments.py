"""What the server is asked and given, held against what it has and takes: one sentence of ours for each mistake."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from pydantic import BaseModel, ValidationError

from indexer.errors import joined
from smart_fork.errors import Usage
from smart_fork.snippets import shown

#: Parameters that contradict each other, in whichever tool both are.
_CONTRADICTORY = (("project_path", "all_projects"),)
#: It may be blank or missing beside other questions: the request itself checks that.
_MAY_BE_BLANK = "intent"
#: Of parameters that are not known, how many are named.
MAX_NAMED = 5

#: What the library says to a client that has not introduced itself.
_NOT_BEGUN = "Invalid request parameters"
#: What the protocol asks of the parts of a request.
_FORM = {"name": "text", "uri": "text", "arguments": "an object"}
_KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a finite number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}


async def in_own_words(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Middleware of a server: a request that is not of the protocol's form is refused in our words.

    Raises:
        MCPError: it is not.
    """
    try:
        return await call_next(ctx)
    except ValidationError as error:
        where = error.errors(include_url=False, include_input=False)[0]["loc"]
        given: Any = ctx.params or {}
        name = next((str(part) for part in reversed(where) if isinstance(given, Mapping) and part in given), "")
        allowed = _FORM.get(name, "something else")
        why = (
            f"{name} must be {allowed}, not {shown(given[name])}"
            if name
            else f"{where[-1] if where else 'params'} is required"
        )
        raise MCPError(code=INVALID_PARAMS, message=f"{ctx.method}: {why}") from error
    except ValueError as error:  # what the library says of a prompt
        raise MCPError(code=INVALID_PARAMS, message=f"{ctx.method}: {error}") from error
    except MCPError as error:
        if error.error.message == _NOT_BEGUN:
            raise MCPError(code=INVALID_PARAMS, message=f"{ctx.method}: send initialize first") from error
        raise


def taken(given: Mapping[str, Any], model: type[BaseModel], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that `model`, of which `schema` is published, takes: `given`, without what only looks like text.

    Some clients send lists, whole numbers, true and false as JSON in a text.

    Raises:
        ToolError: a parameter is unknown, missing, or not what it may be.
    """
    known: Mapping[str, Any] = schema.get("properties", {})
    if unknown := sorted(set(given) - set(known)):
        names = ", ".join(shown(name).strip('"') for name in unknown[:MAX_NAMED])
        raise ToolError(f"unknown parameter: {names}. Known: {', '.join(known) or 'none'}.")
    if not _passable(given):
        raise ToolError("a parameter has a lone surrogate or is nested too deeply")
    required = schema.get("required", ())
    if _MAY_BE_BLANK in required and given.get(_MAY_BE_BLANK) is None:
        given = {**given, _MAY_BE_BLANK: ""}
    for name in required:
        if name not in given:
            raise ToolError(f"{name} is required ({allowed(known[name])}): {known[name].get('description', '')}")
    wrong = _wrong(given, model)
    mended = {**given, **{name: _parsed(given[name]) for name in wrong if "number" not in _kinds(known[name])}}
    if wrong and (still := _wrong(mended, model)):
        name = still[0]
        raise ToolError(f"{name} must be {allowed(known[name])}, not {shown(given[name])}")
    # A blank element of a list says nothing: models fill lists up.
    said = {name: one for name, one in mended.items() if name != _MAY_BE_BLANK and not isinstance(one, list)}
    if (empty := Usage.first_empty(said)) is not None:
        raise ToolError(f"{empty} is empty: give {allowed(known[empty])}, or drop it")
    try:
        Usage.refuse_both(mended, _CONTRADICTORY)
    except Usage as error:
        raise ToolError(joined(error.message, error.hint)) from error
    return mended


def allowed(schema: Mapping[str, Any]) -> str:
    """In words which values a parameter of this JSON schema takes, such as "a whole number or 'match'"."""
    if "anyOf" in schema:
        return " or ".join(allowed(one) for one in schema["anyOf"] if one.get("type") != "null")
    if constants := schema.get("enum") or [schema[key] for key in ("const",) if key in schema]:
        return " or ".join(repr(one) for one in constants)
    if schema.get("type") == "array" and schema.get("items", {}).get("type") == "string":
        return "a list of texts"
    return _KINDS[schema["type"]]


def _wrong(arguments: Mapping[str, Any], model: type[BaseModel]) -> list[str]:
    """Which arguments are not of their types, exactly: true is no number, and a number no text."""
    try:
        model.model_validate(arguments, strict=True)
    except ValidationError as error:
        return list(dict.fromkeys(str(problem["loc"][0]) for problem in error.errors(include_url=False)))
    return []


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    return {str(one.get("type")) for one in schema.get("anyOf", [schema])}


def _parsed(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)  # as some languages write a whole number
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _passable(arguments: Mapping[str, Any]) -> bool:
    """Whether they can be stored and compared. One of the protocol's versions lets through more than text can be."""
    try:
        json.dumps(arguments, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


_INTRODUCTIONS = ("initialize", "server/discover")
#: The SDK serves these whether there are any or not; and for them Claude Code adds three tools of its own.
_ABSENT = ("resources",)


async def only_what_there_is(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Middleware of a server: it names only what it has."""
    result = await call_next(ctx)
    if ctx.method in _INTRODUCTIONS and isinstance(result, dict):
        for name in _ABSENT:
            result["capabilities"].pop(name, None)
    return result
