"""Removal of turns from Qwen Code's logs, and of sub-agents' files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from indexer.json_values import dict_in, text_in
from indexer.transcripts.model import Item, Role
from smart_fork.agents.decoders import Record
from smart_fork.agents.excision import titles
from smart_fork.agents.excision.transcript import TranscriptTurn
from smart_fork.agents.qwen.log_files import agents_of
from smart_fork.agents.qwen.session_reader import CODEC, is_typed, parts_of, typed_in
from smart_fork.agents.tree_cutter import COMPACTS, NOTHING, PLAIN, RecordFacts, TreeCutter, files_below


class QwenCutter(TreeCutter):
    """Loads Qwen Code's logs, ``<session-id>.jsonl``, so that turns can be removed."""

    codec = CODEC
    roles: ClassVar[Mapping[str, Role]] = {"user": "user", "assistant": "assistant", "tool_result": "tool"}

    def begins(self, record: Record) -> bool:
        """Return True if `record` can begin a log of Qwen Code, and of no other agent.

        Other agents' records name their parents too, but have neither messages with ``parts`` nor ``systemPayload``.
        """
        of_parts = isinstance(dict_in(record.get("message")).get("parts"), list)
        return "uuid" in record and "parentUuid" in record and (of_parts or "systemPayload" in record)

    def said(self, record: Record, item: Item) -> str:
        return typed_in(record, item.text) if record.get("type") == "user" else item.text

    def is_typed(self, record: Record) -> bool:
        return is_typed(record) and record.get("isSidechain") is not True

    def about(self, record: Record) -> RecordFacts:
        """Return a record's preview, and the call or title that it repeats. Telemetry records repeat calls."""
        payload = dict_in(record.get("systemPayload"))
        event, title = dict_in(payload.get("uiEvent")), payload.get("customTitle")
        call, words = event.get("call_id"), (record.get("subtype"), event.get("event.name"), payload.get("rawCommand"))
        said = " ".join(word for word in (*words, title) if isinstance(word, str))
        calls = (f"call:{call}",) if isinstance(call, str) else ()
        return RecordFacts(
            "" if parts_of(record.get("message")) else said,
            COMPACTS if CODEC.sums_up(record) else NOTHING,
            repeats=(*calls, *titles.mark_of_title(title)),
        )

    def copied(self, record: Record) -> str:
        """Return the text of the model's answer that a telemetry record repeats; empty for other records."""
        return text_in(dict_in(dict_in(record.get("systemPayload")).get("uiEvent")).get("response_text"))

    def files_of(self, path: Path) -> list[Path]:
        return files_below(agents_of(path))

    def beside(self, path: Path, removed: Sequence[TranscriptTurn]) -> list[Path]:
        """Return the logs of the sub-agents that the `removed` turns' calls began."""
        folder = agents_of(path)
        calls = {call.id for turn in removed for call in turn.tool_calls if PLAIN.fullmatch(call.id)}
        found = [one for call in sorted(calls) for one in sorted(folder.glob(f"agent-*-{call}.*"))]
        return [one for one in found if one.name.endswith((".jsonl", ".meta.json")) and one.is_file()]
