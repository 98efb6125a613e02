"""Sessions of other agents as OpenCode takes them: a document of what was said, as ``opencode import`` reads one.

Seen with 1.18: it takes no question without the model that was asked, and goes on with that of the last one. Which one
it is to be is said where a copy is written (see `usual_model`): that depends on the machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from smart_fork.agents.forms import Becomes, Record, Teller, Utterance

UNKNOWN = {"providerID": "unknown", "modelID": "unknown"}
_AGENT = "build"
_NO_TOKENS = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}


class OpenCodeTeller(Teller):
    """Its documents."""

    def log_of(self, said: Iterable[Utterance], becomes: Becomes) -> Iterator[Record]:
        """See `Teller.log_of`: one document. Times only grow, since OpenCode sorts by them, and by ids."""
        messages: list[Record] = []
        moment, asked = 0, ""
        for number, one in enumerate(said):
            moment = max(moment + 1, _milliseconds(one.moment))
            identity = _identity("msg", becomes.session_id, number)
            info = _asked(moment) if one.user else _answered(moment, asked, becomes.place.root)
            asked = identity if one.user else asked
            names = {"sessionID": becomes.session_id, "messageID": identity}
            text = {"id": _identity("prt", becomes.session_id, number), "type": "text", "text": one.text, **names}
            messages.append({"info": {"id": identity, "sessionID": becomes.session_id, **info}, "parts": [text]})
        times = [message["info"]["time"]["created"] for message in messages] or [0]
        yield {
            "info": {
                "id": becomes.session_id, "slug": "told", "title": "", "version": "0", "projectID": "",
                "directory": becomes.place.root, "time": {"created": times[0], "updated": times[-1]},
            },
            "messages": messages,
        }  # fmt: skip


def _asked(moment: int) -> dict[str, Any]:
    return {"role": "user", "time": {"created": moment}, "agent": _AGENT, "model": UNKNOWN}


def _answered(moment: int, asked: str, root: str) -> dict[str, Any]:
    return {
        "role": "assistant", "parentID": asked, "mode": _AGENT, "agent": _AGENT, "path": {"cwd": root, "root": root},
        "cost": 0, "tokens": _NO_TOKENS, "time": {"created": moment, "completed": moment}, "finish": "stop", **UNKNOWN,
    }  # fmt: skip


def _identity(kind: str, session_id: str, number: int) -> str:
    """An id in their order; what stands behind the number is of this session alone."""
    chance = hashlib.blake2b(f"{session_id} {kind} {number}".encode("utf-8", "replace")).hexdigest()[:14]
    return f"{kind}_{number:012x}{chance}"


def _milliseconds(moment: str) -> int:
    try:
        return max(0, int(datetime.fromisoformat(moment).timestamp() * 1000))
    except (ValueError, OverflowError):
        return 0
