"""The form in which a client asks a person which found session to fork."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio.from_thread
from mcp.server.mcpserver import Context
from mcp.shared.message import ServerMessageMetadata
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from indexer.lazy_compilation import late
from indexer.masking import mask, shorten
from indexer.masking.alternate_readings import BRACKETS
from smart_fork.display_text import minute, printable
from smart_fork.errors import NotFound
from smart_fork.finding.hit import Hit
from smart_fork.forking.request import AnswerPending
from smart_fork.server import mcp_tasks
from smart_fork.server.calls import roots_question

if TYPE_CHECKING:
    from smart_fork.forking.request import Ask


#: The length of titles in a list of choices.
TITLE_CHARACTERS = 60
#: Replacements of characters with a meaning in Markdown, HTML or a label.
_MARKUP = str.maketrans(f"{BRACKETS}[]`|\\·", f"{'()' * (len(BRACKETS) // 2)}()'//-", "*")
_ENTITY = late(r"&(?=#?\w+;)")
#: Marks of emphasis at the ends of words, and of headings. Inside words they belong to names in code.
_EMPHASIS = late(r"(?<!\w)[_~]+|[_~]+(?!\w)|^\s*#+\s*")
#: The field of the form, and its value for no session.
FIELD, NONE = "session", "none"
QUESTION = "Several past sessions fit about equally well. Fork which one?"
EXPENSIVE = "A fork of this session loads much of the model's context. Fork it?"
NONE_LABEL, NOT_LABEL = "None of these", "Do not fork"
_LESS = f"Ask the user, or give budget {Hit.BUDGET!r}: a fork within it is not asked about."
#: The first protocol version with `oneOf` for titled choices. Earlier versions have `enumNames`.
_ONE_OF = "2025-11-25"


class Unanswered(AnswerPending):
    """Raised to end a tool call with a question to a person. The client asks, and repeats the call with the answer.

    The exception's argument is the call's result: the question.
    """


def choice_form(ctx: Context[Any, Any]) -> Ask | None:
    """Return a function that lets a person choose one of the found sessions in a form, and returns the session's id.

    Return `None` if the client shows no forms.
    """
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
    except AnswerPending:
        raise
    except Exception as error:
        raise no_choice_error(hits, "this client could not ask the user") from error
    said = (answer.content or {}).get(FIELD) if answer.action == "accept" else None
    if answer.action == "decline" or said == NONE:
        raise declined_error(hits)
    chosen = next((hit.session_id for hit in hits if hit.session_id == said), None)
    if chosen is None:
        raise no_choice_error(hits, "the question has no answer")
    return chosen


def _form(hits: Sequence[Hit], version: str) -> ElicitRequest:
    told = labels(hits)
    question, none = (QUESTION, NONE_LABEL) if len(hits) > 1 else (EXPENSIVE, NOT_LABEL)
    # The question has the numbered choices too, since some clients hide a form's choices at first.
    message = "\n".join([question, *(f"{number}. {label}" for number, label in enumerate(told.values(), start=1))])
    choices = told | {NONE: none}
    offered: dict[str, Any] = (
        {"oneOf": [{"const": value, "title": label} for value, label in choices.items()]}
        if version >= _ONE_OF
        else {"enum": list(choices), "enumNames": list(choices.values())}
    )
    chosen = {"default": hits[0].session_id} if len(hits) == 1 and version >= _ONE_OF else {}
    field = {"type": "string", "title": "Session", **offered, **chosen}
    schema = {"type": "object", "properties": {FIELD: field}, "required": [FIELD]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def _asked(ctx: Context[Any, Any], request: ElicitRequest) -> ElicitResult:
    # The question belongs to this call, since some clients read nothing else.
    belongs = ServerMessageMetadata(related_request_id=ctx.request_id)
    send = partial(ctx.session.send_request, request, ElicitResult, metadata=belongs)
    answer: ElicitResult = anyio.from_thread.run(send)
    return answer


def _asked_again(ctx: Context[Any, Any], request: ElicitRequest) -> ElicitResult:
    if (given := (ctx.input_responses or {}).get(FIELD)) is None and (task := mcp_tasks.current.get()) is not None:
        given = anyio.from_thread.run(task.ask, FIELD, request)
    if given is None:
        raise Unanswered(InputRequiredResult(input_requests={FIELD: request, **roots_question(ctx)}))
    return ElicitResult.model_validate(given, from_attributes=True)


def labels(hits: Sequence[Hit]) -> dict[str, str]:
    """Return a line of text for each found session, by id: its title (untrusted), agent, date and score."""
    told = {hit.session_id: _label(hit) for hit in hits}
    often = Counter(told.values())
    return {one: label if often[label] == 1 else f"{label} · {one}" for one, label in told.items()}


def no_choice_error(hits: Sequence[Hit], why: str) -> NotFound:
    """Return the error for a fork that was not started because the person chose none of `hits`. `why` is the reason."""
    several = len(hits) > 1
    what = f"{len(hits)} sessions have about the same score" if several else f"it loads {_tokens(hits[0])}"
    ask = "Ask the user which one. If you cannot ask, choose by their work." if several else _LESS
    return NotFound(f"Nothing was forked: {what}, and {why}", f"{ask} Then call again with its fork_session_id.")


def declined_error(hits: Sequence[Hit]) -> NotFound:
    """Return the error for a fork of `hits` that the person, or Codex by its settings, has declined."""
    what = "none of the sessions" if len(hits) > 1 else f"no fork that loads {_tokens(hits[0])}"
    return NotFound(
        f"Nothing was forked: the user chose {what}, or this client did without asking",
        "Ask the user what to do instead. fork_session_id forks a session without a question"
        f"{'' if len(hits) > 1 else f', budget {Hit.BUDGET!r} less of it'}.",
    )


def _label(hit: Hit) -> str:
    words = _ENTITY.sub("+", shorten(printable(mask(hit.headline)), TITLE_CHARACTERS).translate(_MARKUP))
    named = _EMPHASIS.sub("", words).strip() or "(no title)"
    when = minute(hit.last_activity or hit.date)
    chance = f"{math.floor(hit.score * 100 + 1e-9)} %"
    return " · ".join(filter(None, (named, hit.agent_type, when, chance, _tokens(hit))))


def _tokens(hit: Hit) -> str:
    return f"{round(hit.token_estimate / 1000)}k tokens" if hit.token_estimate >= 1000 else ""
