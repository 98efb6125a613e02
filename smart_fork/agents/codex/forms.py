"""Codex's records as they are shared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from indexer.transcripts.model import Session
from smart_fork.agents.codex.copy import kept
from smart_fork.agents.codex.fold import unwrapped
from smart_fork.agents.forms import Becomes, Forms, Identity, Record, Told

_OUTPUTS = ("function_call_output", "custom_tool_call_output", "tool_search_output")
_IMAGES = ("input_image", "image_generation_call")
#: The tool that sets another agent to work.
_AGENT = "spawn_agent"


class CodexForms(Forms):
    """Records of Codex, in today's form, after those of the sessions that theirs was forked from. Headers are none:
    one is made for each file.
    """

    taken = frozenset({"ordinal"})
    thoughts = ("reasoning",)

    def records_of(self, session: Session, end: int | None = None) -> Iterator[Record]:
        last = None if end is None else session.turns[end].id
        for _, record in kept(session.source_path, last):
            if record["type"] != "session_meta":
                yield record

    def anew(self, records: Iterable[Record], becomes: Becomes) -> Iterator[Record]:
        """A header, and the records in the form of before copy-on-write, which has no numbers."""
        begun = False
        for record in records:
            made = self.incoming(record, Identity(becomes.place, {}))
            if not begun:
                yield _header(str(made.get("timestamp") or ""), becomes)
                begun = True
            yield made

    def told(self, record: Record) -> Told:
        item = record.get("payload")
        if record.get("type") != "response_item" or not isinstance(item, dict):
            return Told()
        kind, output = item.get("type"), item.get("output")
        parts = [*_parts(item.get("content")), *_parts(output)]
        images = sum(part.get("type") in _IMAGES for part in (item, *parts))
        text = output if isinstance(output, str) else "\n".join(str(part.get("text") or "") for part in _parts(output))
        return Told(
            outputs=((str(item.get("call_id") or item.get("id") or ""), unwrapped(text)),) if kind in _OUTPUTS else (),
            thoughts=int(kind in self.thoughts),
            images=images,
            agents=int(item.get("name") == _AGENT and kind not in _OUTPUTS),
        )


def _header(moment: str, becomes: Becomes) -> Record:
    meta: dict[str, Any] = {
        "id": becomes.session_id,
        "timestamp": moment,
        "cwd": becomes.place.root,
        "originator": "smart-fork",
        "cli_version": "0.0.0",
        "source": "cli",
    }
    if becomes.forked_from:
        meta["forked_from_id"] = becomes.forked_from
    return {"timestamp": moment, "type": "session_meta", "payload": meta}


def _parts(content: object) -> Iterator[dict[str, Any]]:
    return (part for part in content if isinstance(part, dict)) if isinstance(content, list) else iter(())
