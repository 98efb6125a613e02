"""Construction of MCP tools from functions and request classes, from which `cli.options` makes commands.

The tools check their arguments, and shorten their answers for a model.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING
from dataclasses import Field as DataclassField
from inspect import Parameter
from typing import Annotated, Any, Literal, Union, get_origin

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp_types import CallToolResult, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field, ValidationError

from indexer.errors import joined
from indexer.json_values import Value
from smart_fork.agents.request_fields import FieldInput, inputs
from smart_fork.display_text import shown
from smart_fork.errors import Usage, speak_of_tools
from smart_fork.hooks import hint_switch
from smart_fork.server.calls import (
    caller_of,
    in_thread,
    own_projects,
    roots_question,
    unawaited_answer,
    with_progress,
    without_session_argument,
)
from smart_fork.system import call_context

#: The bytes of an answer with `RESULTS` results. The snippets share what the other fields leave.
ANSWER, RESULTS = 4_000, 5
SNIPPET_LEAST, TITLE = 80, 80
#: The fields of a result by which a model decides. `explain` adds the other fields.
_RESULT = (
    "rank", "score", "session_id", "agent_type", "title", "working_directory", "project_inferred_from", "began_in",
    "date", "snippet", "said_by", "match", "token_estimate", "outcome", "drift", "can_fork", "warning", "fork_note",
    "resumed", "origin", "also_remote", "wrote", "noted",
)  # fmt: skip
#: The fields with which a result can be opened. Only smart_fork has them.
_PLACES = ("source_path", "lines", "jsonl_path", "fork_command")
_MATCH = ("turn_index", "words", "token_estimate")
_INDEX = ("sessions", "complete", "problem")
#: Fields that a model does not need, or has sent itself.
_LEFT_OUT = ("query", "also", "collections", "count", "engine", "fallback_used")


def brief(answer: Mapping[str, Any], *, places: bool) -> dict[str, Any]:
    """Reduce a search's answer to the fields by which a model chooses. With `places`, keep also paths and commands."""
    kept = {key: value for key, value in answer.items() if places or key not in _LEFT_OUT}
    if "index" in answer:
        kept["index"] = _only(answer["index"], (*_INDEX, *(() if answer["index"]["complete"] else ("unread_logs",))))
    if "selection" in (forked := kept.get("forked_session", {})):
        others = {"merged": [_selected(one) for one in forked["merged"]]} if "merged" in forked else {}
        kept["forked_session"] = forked | {"selection": _selected(forked["selection"]), **others}
    if "results" in answer:
        kept["results"] = [_result(hit, answer, places=places) for hit in answer["results"]]
        _cut(kept)
    return kept


def answered(answer: Value | Mapping[str, Any]) -> CallToolResult:
    """Return `answer` as a tool's result: one line of JSON, without keys that have no value."""
    said = _without_nulls(answer.as_json() if isinstance(answer, Value) else answer)
    text = json.dumps(said, ensure_ascii=False, separators=(",", ":"))
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=said)


def _result(hit: Mapping[str, Any], answer: Mapping[str, Any], *, places: bool) -> dict[str, Any]:
    kept = _only(hit, (*_RESULT, *(_PLACES if places else ())))
    if not places and f"{hit['working_directory']}/".startswith(f"{answer['project_path']}/"):
        del kept["working_directory"]
    kept["title"] = _beginning(hit["title"], TITLE)
    if hit["headline"] != hit["title"]:
        kept |= {"headline": _beginning(hit["headline"], TITLE), **_only(hit, ("edited_files",))}
    kept["match"] = _only(hit["match"], _MATCH)
    if noted := kept.get("noted"):
        verdicts = [*([noted.pop("verdict")] if "verdict" in noted else []), *noted.pop("forks", ())]
        kept["noted"] = noted | ({"said": [one["said"] for one in verdicts]} if verdicts else {})
    if hit["drift"]:
        kept["drift"] = _only(hit["drift"], ("files", "changed"))
    kept |= {key: hit["price"][key] for key in ("cached", "cached_until") if hit["price"].get("cached")}
    if (size := hit["lineage"]["family_size"]) > 1:
        kept["lineage"] = hit["lineage"] if places else {"family_size": size}
    return kept


def _selected(selection: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the dropped exchanges from the description of a fork within a token budget."""
    return {**selection, "exchanges": [one for one in selection["exchanges"] if one["kept"] != "nothing"]}


def _cut(answer: dict[str, Any]) -> None:
    """Shorten the snippets in place, so that the JSON of `RESULTS` results has at most `ANSWER` bytes."""
    hits = [hit for hit in answer["results"] if hit.get("snippet")]
    if hits:
        bare = [hit | {"snippet": ""} for hit in answer["results"]]
        written = len(_written(_without_nulls(answer | {"results": bare})))
        room = ANSWER * max(1.0, len(answer["results"]) / RESULTS) - written
        for hit in hits:
            hit["snippet"] = _beginning(hit["snippet"], max(SNIPPET_LEAST, int(room / len(hits))))


def _beginning(text: str, most: int) -> str:
    """Return the longest beginning of `text` that takes at most `most` bytes in JSON."""
    short = text[:most]
    while len(written := _written(short)) > most + 2:  # its quotes
        short = short[: -max(1, (len(written) - most) // 2)]
    return text if short == text else short[:-1].rstrip() + "…"


def _written(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(errors="replace")


def _only(told: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: told[key] for key in keys if key in told}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


#: Pairs of parameters that contradict each other in any tool.
_CONTRADICTORY = (("project_path", "all_projects"),)
#: The parameter that may be blank or missing if another parameter says what to find. The request class checks that.
_MAY_BE_BLANK = "intent"
#: The number of unknown parameters that an error names.
MAX_NAMED = 5
_KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a finite number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}


def checked_arguments(given: Mapping[str, Any], model: type[BaseModel], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments `given` to a tool, converted to the types that `model` accepts.

    `schema` is the tool's published JSON schema. Some clients send lists, whole numbers, true and false as JSON in a
    text.

    Raises:
        ToolError: A parameter is unknown, missing, empty or of the wrong type, or two contradict each other.
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
            raise ToolError(f"{name} is required ({_allowed(known[name])}): {known[name].get('description', '')}")
    wrong = _wrong(given, model)
    mended = {**given, **{name: _parsed(given[name]) for name in wrong if "number" not in _kinds(known[name])}}
    if wrong and (still := _wrong(mended, model)):
        name = still[0]
        raise ToolError(f"{name} must be {_allowed(known[name])}, not {shown(given[name])}")
    # Blank elements of lists are ignored, since models fill lists up.
    said = {name: one for name, one in mended.items() if name != _MAY_BE_BLANK and not isinstance(one, list)}
    if (empty := Usage.first_empty(said)) is not None:
        raise ToolError(f"{empty} is empty: give {_allowed(known[empty])}, or drop it")
    try:
        Usage.refuse_both(mended, _CONTRADICTORY)
    except Usage as error:
        raise ToolError(joined(error.message, error.hint)) from error
    return mended


def _allowed(schema: Mapping[str, Any]) -> str:
    """Return in words which values a parameter of this JSON schema accepts, such as "a whole number or 'match'"."""
    if "anyOf" in schema:
        return " or ".join(_allowed(one) for one in schema["anyOf"] if one.get("type") != "null")
    if constants := schema.get("enum") or [schema[key] for key in ("const",) if key in schema]:
        return " or ".join(repr(one) for one in constants)
    if schema.get("type") == "array" and schema.get("items", {}).get("type") == "string":
        return "a list of texts"
    return _KINDS[schema["type"]]


def _wrong(arguments: Mapping[str, Any], model: type[BaseModel]) -> list[str]:
    """Return the names of the arguments whose type `model` does not accept without a conversion."""
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
    """Return False for arguments that cannot be encoded: with a lone surrogate, or nested too deeply."""
    try:
        json.dumps(arguments, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


Handler = Callable[..., Any]


def asynchronous(handler: Handler) -> Handler:
    """Return a coroutine function for the SDK that runs `handler`, in a thread if it is a plain function.

    Its parameters are those of `handler`, with each request class replaced by its fields. `caller` gets the identified
    caller. An argument `None` means the default.
    """
    context = Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=Context[Any, Any])
    arguments, requests = inputs(handler, _made)
    wants = {one.name for one in arguments} & {"ctx", "caller"}
    shown = [context, *(_optional(one) for one in arguments if get_origin(one.annotation) is Annotated)]

    @functools.wraps(handler)
    async def run(ctx: Context[Any, Any], **given: Any) -> Any:
        given = {name: value for name, value in given.items() if value is not None}
        told = json.dumps(given, default=str)
        for parameter, (request, named) in requests.items():
            values = {of.name: given.pop(name) for name, of in named.items() if name in given}
            given[parameter] = request(
                **{name: tuple(one) if isinstance(one, list) else one for name, one in values.items()}
            )
        if "ctx" in wants:
            given["ctx"] = ctx
        if "caller" in wants:
            given["caller"] = await caller_of(ctx)
            await in_thread(functools.partial(hint_switch.follow, given["caller"].session_id, told))
        if inspect.iscoroutinefunction(handler):
            return await handler(**given)
        return await in_thread(functools.partial(handler, **given))

    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in shown}
    return run


def _made(one: DataclassField[Any], said: FieldInput, other: Mapping[str, Any]) -> Iterator[Parameter]:
    """Yield the tool's parameter for the field `one` of a request class, if it has a description.

    `other` has descriptions by field name, which take precedence over the class's own in `said`.
    """
    described = other.get(one.name, said.described)
    if not described:
        return
    kind: Any = Union[(Literal[said.choices],) if said.choices else said.types]  # noqa: UP007 - of several
    default = Parameter.empty if said.required or one.default is MISSING else None if one.default == () else one.default
    about = Annotated[kind, Field(description=described)] if isinstance(described, str) else described
    yield Parameter(said.key or one.name, Parameter.KEYWORD_ONLY, default=default, annotation=about)


def _optional(one: Parameter) -> Parameter:
    """Return the parameter `one` as keyword-only. If it has a default value, null is accepted as well."""
    kind: Any = one.annotation
    if one.default is not Parameter.empty:
        kind = Annotated[(kind.__origin__ | None, *kind.__metadata__)]
    return one.replace(kind=Parameter.KEYWORD_ONLY, annotation=kind)


#: Notes about calls that were cancelled too late, for each client's next answer.
_late: defaultdict[str, list[str]] = defaultdict(list)


def _client_key(context: Context[Any, Any]) -> str:
    """Return a key that distinguishes the server's clients; empty on stdin and stdout, where there is only one."""
    request = context.request_context.request
    return "" if request is None else f"session {request.headers.get('mcp-session-id', id(context))}"


def _late_workers(tool: str, answer: object) -> Iterator[str]:
    """Yield a note for each worker in the `answer` of a call that was cancelled too late to prevent its start."""
    told = answer.as_json() if isinstance(answer, Value) else answer
    waiting: list[Any] = [told]
    while waiting:
        one = waiting.pop()
        waiting += one.values() if isinstance(one, dict) else one if isinstance(one, list | tuple) else ()
        if isinstance(one, dict) and (worker := one.get("worker_id")):
            yield f"Your cancelled call of {tool} came too late: worker {worker}. list_workers shows it."


class StrictTool(Tool):
    """An MCP tool that refuses unknown parameters and wrong values, and tells a model how to correct the call.

    The SDK would silently ignore a misspelled parameter, and its own messages do not help a model.
    """

    async def run(self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False) -> Any:  # noqa: FBT001, FBT002
        """Check the arguments and run the tool. A client of the HTTP service is limited to its own projects.

        Raises:
            ToolError: The tool refuses the arguments, or fails.
        """
        speak_of_tools()
        given = without_session_argument(arguments, context)
        accepted = checked_arguments(given, self.fn_metadata.arg_model, self.parameters)
        if (asked := roots_question(context)) and not asked.keys() <= (context.input_responses or {}).keys():
            return InputRequiredResult(input_requests=asked)
        if (own := await own_projects(context)) is not None:
            call_context.limit_to(own)
        client = _client_key(context)
        if not (self.annotations and self.annotations.read_only_hint):
            unawaited_answer.set(lambda answer: _late[client].extend(_late_workers(self.name, answer)))
        try:
            result = await with_progress(context, super().run(accepted, context, convert_result))
        except UnexpectedToolError as error:
            raise UnexpectedToolError(
                f"{self.name} failed unexpectedly. Ask once more; if it fails again, smart-fork's doctor says why."
            ) from error
        except ToolError as error:
            raise ToolError(str(error.__cause__ or error)) from error
        if isinstance(result, CallToolResult):
            result.content.extend(TextContent(type="text", text=note) for note in _late.pop(client, ()))
        return result


class _UnchangedArguments(FuncMetadata):
    """The SDK's metadata of a function. Arguments are passed on as they are, and `answered` encodes the result."""

    def pre_parse_json(self, data: dict[str, Any]) -> dict[str, Any]:
        return data

    def convert_result(self, result: Any) -> CallToolResult | InputRequiredResult:
        return result if isinstance(result, InputRequiredResult) else answered(result)


def strict(handler: Handler, title: str, *, reads: bool = True, ends: bool = False) -> Tool:
    """Return the MCP tool that runs `handler` (see `asynchronous`).

    `reads` marks a tool that changes nothing, `ends` one that deletes or ends something. The tool publishes no schema
    of results, since no agent shows that to its model.
    """
    hints = ToolAnnotations(
        read_only_hint=reads, destructive_hint=ends, idempotent_hint=reads or ends, open_world_hint=False
    )
    said, run = inspect.cleandoc(handler.__doc__ or ""), asynchronous(handler)
    tool = StrictTool.from_function(run, title=title, description=said, annotations=hints, structured_output=False)
    tool.parameters["additionalProperties"] = False
    for schema in (tool.parameters, *tool.parameters["properties"].values()):
        _shorten(schema)
    tool.fn_metadata = _UnchangedArguments(arg_model=tool.fn_metadata.arg_model)
    return tool


def _shorten(described: dict[str, Any]) -> None:
    """Remove titles, null types and empty defaults, which cost the model tokens, from a JSON schema in place."""
    described.pop("title", None)
    kinds = [kind for kind in described.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        del described["anyOf"]
        described |= kinds[0]
    elif kinds:
        described["anyOf"] = kinds
    if described.get("default", 0) in (None, ""):
        del described["default"]
