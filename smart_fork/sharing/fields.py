"""Fields of what travels: texts, ids, digests and counts, checked on their way in. Unknown names are refused.

The import takes 0.1 s because of pydantic, so only what sends or receives sessions imports it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from smart_fork.errors import Usage
from smart_fork.sharing.limits import TEXT
from smart_fork.snippets import printable

#: The most characters of a wrong value that an error repeats.
_SHOWN = 200


def shown(text: str) -> str:
    """A text for people, in one line and without terminal control characters."""
    return " ".join(printable(text).split())


#: Text for people, without terminal control characters.
Text = Annotated[str, StringConstraints(max_length=TEXT), AfterValidator(shown)]
AgentName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
SessionId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")]
#: See `sharing.canonical.written` and `sharing.segments.Place.digest`.
Digest = Annotated[str, StringConstraints(pattern=r"^sf1:[0-9a-f]{64}$")]
SegmentDigest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, le=1 << 40)]


class Message(BaseModel):
    """The base class of all messages."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def refused(error: ValidationError) -> Usage:
    """Return an error in plain words for an invalid message."""
    first = error.errors(include_url=False, include_input=False)[0]
    where, kind = printable(".".join(map(str, first["loc"])))[:100] or "The request", first["type"]
    if kind == "extra_forbidden":
        return Usage(f"{where} is unknown in this version of the protocol.")
    if kind == "missing":
        return Usage(f"{where} is missing.")
    if kind == "json_invalid":
        return Usage("The request is not JSON.")
    if kind == "value_error":
        return Usage(f"{where}: {printable(first['msg'].removeprefix('Value error, '))[:_SHOWN]}")
    if kind == "string_unicode":
        return Usage(f"{where} is not UTF-8, which the team server needs.", "Type it in UTF-8.")
    if kind in ("string_too_long", "too_long"):
        unit = "characters" if kind == "string_too_long" else "entries"
        return Usage(f"{where} is too long: at most {first['ctx']['max_length']} {unit}.")
    return Usage(f"{where} has an invalid value.")
