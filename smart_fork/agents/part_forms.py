"""Converts messages with Gemini's parts for sharing, for all agents that use them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from smart_fork.agents.codec import Record
from smart_fork.agents.forms import Forms, Image, all_texts

_SHARED = frozenset({"text", "thought", "thoughtSignature", "functionCall", "functionResponse", "inlineData"})


class PartForms(Forms):
    """Records whose messages have Gemini's parts."""

    thoughts = ()

    def image(self, value: Record) -> Image | None:
        data = value.get("inlineData")
        if not isinstance(data, dict) or not isinstance(data.get("data"), str):
            return None
        return Image(str(data.get("mimeType") or "image"), len(data["data"]) * 3 // 4, lambda note: {"text": note})

    def _is_thought(self, value: Mapping[str, Any]) -> bool:
        return value.get("thought") is True


def shared_of(part: Record) -> Record:
    """Return the fields of a part that may be shared."""
    return {name: value for name, value in part.items() if name in _SHARED}


def unsigned(part: Record) -> Record:
    """Return the part without its signature, which is bound to an account."""
    return {name: value for name, value in part.items() if name != "thoughtSignature"}


def withheld(part: Record, ids: Collection[str], mark: str) -> Record:
    """Return the part with `mark` in the place of these calls' inputs and outputs."""
    call, answer = part.get("functionCall"), part.get("functionResponse")
    if isinstance(call, dict) and str(call.get("id")) in ids:
        return part | {"functionCall": call | {"args": all_texts(call.get("args"), mark)}}
    if isinstance(answer, dict) and str(answer.get("id")) in ids:
        return part | {"functionResponse": answer | {"response": {"output": mark}}}
    return part
