"""What Codex's calls were given and gave back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from indexer.transcripts.actions import failure_of
from smart_fork.agents.codex.fold import CALLS, OUTPUTS, arguments_of, text_of, unwrapped
from smart_fork.agents.forms import Record
from smart_fork.agents.work import GivenBack, UsedTool, Work


class CodexWork(Work):
    """See `Work`. What an edit changes is the patch that it was given."""

    def used(self, record: Record) -> Iterator[UsedTool]:
        item = _item(record)
        if (kind := item.get("type")) in CALLS:
            yield UsedTool(_call_id(item), str(item.get("name") or kind), arguments_of(item))

    def gave(self, record: Record) -> Iterator[GivenBack]:
        item = _item(record)
        if item.get("type") in OUTPUTS:
            output = unwrapped(text_of(item.get("output")))
            yield GivenBack(_call_id(item), output, bool(failure_of(output)))


def _item(record: Record) -> dict[str, Any]:
    """The item in a record, or that is one itself, as old versions wrote them."""
    payload = record.get("payload")
    return payload if isinstance(payload, dict) else record


def _call_id(item: dict[str, Any]) -> str:
    return str(item.get("call_id") or item.get("id") or "")
