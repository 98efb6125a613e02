"""What Codex's calls were given and gave back."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any

from indexer.transcripts.actions import failure_of
from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session
from smart_fork.agents.codex.fold import CALLS, OUTPUTS, arguments_of, ordinal_of, text_of, unwrapped
from smart_fork.agents.forms import Record
from smart_fork.agents.work import GivenBack, UsedTool, Work, in_paragraphs

#: What a record has in it that tells of thoughts.
_REASONS = b'"reasoning"'


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

    def thoughts_between(self, session: Session) -> Mapping[int, str]:
        """Of its own log: what a fork has from its parent, it has without thoughts."""
        ordinals = [int(turn.id) for turn in session.turns]
        found: dict[int, list[str]] = {}
        try:
            for line in LineReader(session.source_path):
                if _REASONS in line.source and (text := _reasoned(line.record)):
                    found.setdefault(bisect_left(ordinals, ordinal_of(line)), []).append(text)
        except OSError:  # the log is gone since, or was a copy that is put away again
            return {}
        return {number: in_paragraphs(texts) for number, texts in found.items() if number < len(ordinals)}


def _reasoned(record: Record) -> str:
    """The summary of what the model thought; what is encrypted is nobody's to read."""
    item = _item(record)
    if item.get("type") != "reasoning":
        return ""
    summary, content = item.get("summary"), item.get("content")
    parts = [*(summary if isinstance(summary, list) else ()), *(content if isinstance(content, list) else ())]
    return in_paragraphs(part.get("text") for part in parts if isinstance(part, dict))


def _item(record: Record) -> dict[str, Any]:
    """The item in a record, or that is one itself, as old versions wrote them."""
    payload = record.get("payload")
    return payload if isinstance(payload, dict) else record


def _call_id(item: dict[str, Any]) -> str:
    return str(item.get("call_id") or item.get("id") or "")
