"""Droid, Factory's agent: ``~/.factory/sessions/<slug>/<session-id>.jsonl``, in Anthropic's message format.

The format is known from public sources only, see ``tests/fixtures/droid/README.md``.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from indexer.json_values import dict_in
from indexer.transcripts.model import Item
from smart_fork.agents.decoders import Header, ReadCodec, Record, item_of
from smart_fork.agents.log_adapters import ReadAdapter

#: The beginning of a sub-agent's title.
_SUBAGENT = "# Task Tool Invocation"
#: The roles of messages, and the records outside the conversation.
_ROLES, _ASIDE = ("user", "assistant"), ("todo_state", "agent_turn_outcome", "session_end")


class DroidCodec(ReadCodec):
    """The decoder of Droid's records."""

    tools = MappingProxyType({"Execute": "Bash", "Create": "Write", "ApplyPatch": "apply_patch"})
    starting = ("Task",)
    shell = "Execute"

    def decode(self, record: Record) -> Item:
        return item_of(dict_in(record.get("message")).get("content"))

    def header(self, record: Record) -> Header | None:
        """Return the place and facts of a record. A session's first message may name the session's id as its parent."""
        kind, message = record.get("type"), record.get("message")
        if kind == "session_start":
            title = record.get("sessionTitle") or record.get("title")
            return Header(
                id=record.get("id"), parent=None, session_id=record.get("id"), cwd=record.get("cwd"), title=title,
                version=record.get("version"),
                origin="subagent" if isinstance(title, str) and title.startswith(_SUBAGENT) else None,
            )  # fmt: skip
        if kind == "compaction_state":
            loaded = record.get("summaryTokens")
            return Header("system", record.get("id"), moment=record.get("timestamp"), loaded=loaded, compacts=True)
        if kind in _ASIDE:
            return Header(moment=record.get("timestamp"))
        if kind != "message" or not isinstance(message, dict) or (role := message.get("role")) not in _ROLES:
            return None
        return Header(
            role, record.get("id"), record.get("parentId", ""), record.get("timestamp"), model=message.get("model")
        )


class DroidAdapter(ReadAdapter):
    """The adapter that finds and reads Droid's sessions. A settings file beside each log names the model."""

    name = "droid"
    codec = DroidCodec()
    depth = 1

    def beside(self, path: Path) -> Header:
        return Header(model=self.stated(path.with_suffix(".settings.json")).get("model"))
