"""The turns of a transcript as they are numbered."""

from __future__ import annotations

from typing import Any

from smart_fork.cuts.model import Transcript


def listed(session: Transcript) -> dict[str, Any]:
    """A transcript's turns in the order of the file, with the numbers that they have everywhere."""
    return {
        "session_id": session.session_id,
        "tool": session.tool,
        "path": str(session.source_path),
        "tokens": session.tokens,
        "turns": [
            {
                "number": number,
                "id": turn.id,
                "role": turn.role,
                "timestamp": turn.timestamp,
                "tokens": turn.token_est,
                "inherited": turn.inherited,
                "calls": [call.id for call in turn.tool_calls],
                "results": [result.tool_use_id for result in turn.tool_results],
                "preview": turn.preview,
            }
            for number, turn in zip(session.numbers, session.turns, strict=True)
        ],
    }
