"""The form "which of these?", for clients that show forms to a person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import anyio.from_thread
from mcp.server.mcpserver import Context
from mcp.shared.message import ServerMessageMetadata
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from smart_fork.forking.which import Ask, Later, labels, nobody_chose, none_wanted
from smart_fork.retrieval.answer import Hit

#: What is asked for, and what stands for none of them.
FIELD, NONE = "session", "none"
QUESTION = "Several past sessions fit about equally well. Fork which one?"
NONE_LABEL = "None of these"
#: The first version in which a choice with titles is a `oneOf`; the others know `enumNames`.
_ONE_OF = "2025-11-25"


class Unanswered(Later):
    """The client answers the form by calling the tool again; `form` is what it gets until then."""

    def __init__(self, form: InputRequiredResult) -> None:
        super().__init__(QUESTION)
        self.form = form


def asking(ctx: Context[Any, Any]) -> Ask | None:
    """Asks the person at the client of this call, from a working thread; `None` where it shows no forms."""
    capabilities = ctx.client_capabilities
    offered = capabilities.elicitation if capabilities else None
    if offered is None or (offered.form is None and offered.url is not None):
        return None
    return partial(_chosen, ctx)


def _chosen(ctx: Context[Any, Any], hits: Sequence[Hit]) -> str:
    version = ctx.protocol_version or ""
    ask = _asked_again if version in MODERN_PROTOCOL_VERSIONS else _asked
    try:
        answer = ask(ctx, _form(hits, version))
    except Later:
        raise
    except Exception as error:
        raise nobody_chose(len(hits), "this client could not ask the user") from error
    said = (answer.content or {}).get(FIELD) if answer.action == "accept" else None
    if answer.action == "decline" or said == NONE:
        raise none_wanted()
    chosen = next((hit.session_id for hit in hits if hit.session_id == said), None)
    if chosen is None:
        raise nobody_chose(len(hits), "none of them was chosen")
    return chosen


def _form(hits: Sequence[Hit], version: str) -> ElicitRequest:
    told = labels(hits)
    choices = told | {NONE: NONE_LABEL}
    offered: dict[str, Any] = (
        {"oneOf": [{"const": value, "title": label} for value, label in choices.items()]}
        if version >= _ONE_OF
        else {"enum": list(choices), "enumNames": list(choices.values())}
    )
    field = {"type": "string", "title": "Session", **offered}
    schema = {"type": "object", "properties": {FIELD: field}, "required": [FIELD]}
    return ElicitRequest(params=ElicitRequestFormParams(message=_message(told.values()), requested_schema=schema))


def _message(labels: Iterable[str]) -> str:
    """The question with the sessions, numbered: a client may show the choices only when they are opened."""
    return "\n".join([QUESTION, *(f"{number}. {label}" for number, label in enumerate(labels, start=1))])


def _asked(ctx: Context[Any, Any], request: ElicitRequest) -> ElicitResult:
    # With the answer to this very call: not every client listens to anything else.
    belongs = ServerMessageMetadata(related_request_id=ctx.request_id)
    send = partial(ctx.session.send_request, request, ElicitResult, metadata=belongs)
    answer: ElicitResult = anyio.from_thread.run(send)
    return answer


def _asked_again(ctx: Context[Any, Any], request: ElicitRequest) -> ElicitResult:
    given = (ctx.input_responses or {}).get(FIELD)
    if given is None:
        raise Unanswered(InputRequiredResult(input_requests={FIELD: request}))
    return ElicitResult.model_validate(given, from_attributes=True)
