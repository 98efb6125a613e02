"""Qwen Code's sessions as they are cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from indexer.transcripts.items import GivenBack, Item
from indexer.transcripts.model import Role
from indexer.unchecked import dict_in, text_in
from smart_fork.agents.codec import Record
from smart_fork.agents.qwen.codec import QwenCodec, parts_of
from smart_fork.agents.qwen.fold import is_typed, typed_in
from smart_fork.agents.tree_cut import COMPACTS, NOTHING, TreeLoader
from smart_fork.cuts import titles

_ROLES: dict[object, Role] = {"user": "user", "assistant": "assistant", "tool_result": "tool"}


class QwenLoader(TreeLoader):
    """Reads ``<session-id>.jsonl``."""

    tool = "qwen"
    codec = QwenCodec()

    @staticmethod
    def begins(record: Record) -> bool:
        """See `TreeLoader.begins`.

        Others link their records as well, but have no messages of ``parts``, and no payload of the system.
        """
        of_parts = isinstance(dict_in(record.get("message")).get("parts"), list)
        return "uuid" in record and "parentUuid" in record and (of_parts or "systemPayload" in record)

    def said(self, record: Record, item: Item) -> str:
        return typed_in(record, item.text) if record.get("type") == "user" else item.text

    def role(self, record: Record, said: str, results: Sequence[GivenBack]) -> Role:
        return _ROLES.get(str(record.get("type")), "system")

    def is_typed(self, record: Record) -> bool:
        return is_typed(record) and record.get("isSidechain") is not True

    def note(self, record: Record) -> str:
        return "" if parts_of(record.get("message")) else _note(record)

    def meta(self, record: Record) -> Mapping[str, Any]:
        return COMPACTS if record.get("subtype") == "chat_compression" else NOTHING

    def repeats(self, record: Record) -> tuple[str, ...]:
        return (*_calls_repeated(record), *titles.quoting(_payload(record).get("customTitle")))

    def copied(self, record: Record) -> str:
        """Telemetry repeats an answer."""
        return text_in(_event(record).get("response_text"))


def _payload(record: dict[str, Any]) -> dict[str, Any]:
    return dict_in(record.get("systemPayload"))


def _event(record: dict[str, Any]) -> dict[str, Any]:
    return dict_in(_payload(record).get("uiEvent"))


def _note(record: dict[str, Any]) -> str:
    """What a line of bookkeeping is, for a list."""
    payload = _payload(record)
    words = (
        record.get("subtype"),
        _event(record).get("event.name"),
        payload.get("rawCommand"),
        payload.get("customTitle"),
    )
    return " ".join(word for word in words if isinstance(word, str))


def _calls_repeated(record: dict[str, Any]) -> tuple[str, ...]:
    """The call that a line of telemetry repeats, with what came back."""
    call = _event(record).get("call_id")
    return (f"call:{call}",) if isinstance(call, str) else ()
