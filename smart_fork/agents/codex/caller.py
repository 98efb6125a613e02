"""Which session of Codex calls: each call says it. Under its daemon neither environment nor directory says anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexer.unchecked import dict_in
from smart_fork.agents.calls import Calls, ClientCall


class CodexCalls(Calls):
    """See `Calls`."""

    def session_id(self, call: ClientCall) -> str | None:
        """See `Calls.session_id`."""
        thread = call.meta.get("threadId") or call.meta.get("sessionId")
        return thread if isinstance(thread, str) else None

    def workspaces(self, meta: Mapping[str, Any]) -> list[str]:
        """See `Calls.workspaces`."""
        return list(dict_in(dict_in(meta.get("x-codex-turn-metadata")).get("workspaces")))
