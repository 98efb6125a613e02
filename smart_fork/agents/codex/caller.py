"""Which session of Codex calls: each call says it. Under its daemon neither environment nor directory says anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smart_fork.agents.calls import ClientCall


class CodexCalls:
    """See `Calls`."""

    argument: str | None = None

    def session_id(self, call: ClientCall) -> str | None:
        """See `Calls.session_id`."""
        thread = call.meta.get("threadId") or call.meta.get("sessionId")
        return thread if isinstance(thread, str) else None

    def workspaces(self, meta: Mapping[str, Any]) -> list[str]:
        """See `Calls.workspaces`."""
        turn = meta.get("x-codex-turn-metadata")
        named = turn.get("workspaces") if isinstance(turn, Mapping) else None
        return [path for path in named if isinstance(path, str)] if isinstance(named, Mapping) else []
