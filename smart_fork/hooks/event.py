"""What an agent says in the event of a hook, as far as it is looked at.

It is read by hand and not by pydantic, whose import takes longer than all else that a hook does while its agent waits.
Nothing is refused, either: each version of an agent says more than the one before, and a hook that failed would stop
the agent or have it complain. A key that is not known is passed over; a value of another type was not said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from indexer.shapes import dataclass


@dataclass(frozen=True, slots=True)
class HookEvent:
    """One event, with Claude Code's names. What was not said is empty; `asks` is what a permission is asked for."""

    session_id: str = ""
    hook_event_name: str = ""
    prompt: str = ""
    source: str = ""
    reason: str = ""
    tool_name: str = ""
    notification_type: str = ""
    message: str = ""
    asks: str = ""

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> HookEvent:
        """The event in an object that an agent, or whoever has the service's token, has written."""
        told = {one.name: _text(said.get(one.name)) for one in fields(cls)}
        call = said.get("tool_input")
        asks = (_text(call.get("description")) or _command(call.get("command"))) if isinstance(call, Mapping) else ""
        return cls(**told | {"asks": asks})


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _command(value: object) -> str:
    """A command, which may be said as the list of its words."""
    return " ".join(map(_text, value)) if isinstance(value, list) else _text(value)
