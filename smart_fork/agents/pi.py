"""Pi: ``~/.pi/agent/sessions/--<directory>--/<time>_<session-id>.jsonl``, a tree of records with ``parentId``.

The format is known from Pi's sources, see ``tests/fixtures/pi/README.md``.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import MappingProxyType

from indexer.json_values import dict_in, dicts_in
from indexer.transcripts.model import GivenBack, Item, UsedTool
from smart_fork.agents.decoders import Header, ReadCodec, Record, status_first, text_of
from smart_fork.agents.log_adapters import ReadAdapter

#: Records that only connect two messages, and messages that no person wrote.
_LINKS = ("model_change", "thinking_level_change", "custom", "label", "session_info")
_INJECTED = ("custom", "hookMessage", "branchSummary", "compactionSummary", "bashExecution")
#: The end of a failed command's output.
_ENDED = re.compile(r"\n*Command exited with code (\d{1,9})\s*\Z")


class PiCodec(ReadCodec):
    """The decoder of Pi's records."""

    tools = MappingProxyType({
        "bash": "Bash", "read": "Read", "edit": "Edit", "write": "Write", "grep": "Grep", "find": "Glob",
    })  # fmt: skip
    shell = "bash"

    def decode(self, record: Record) -> Item:
        message = dict_in(record.get("message"))
        content = message.get("content")
        parts, text = dicts_in(content), text_of(content)
        images = sum(one.get("type") == "image" for one in parts)
        if message.get("role") == "toolResult":
            call, failed = str(message.get("toolCallId") or ""), message.get("isError") is True
            return Item(results=(GivenBack(call, status_first(text, _ENDED), failed),), images=images)
        calls = (
            UsedTool(str(one.get("id") or ""), str(one.get("name") or ""), one.get("arguments"))
            for one in parts
            if one.get("type") == "toolCall"
        )
        thoughts = (str(one.get("thinking") or "") for one in parts if one.get("type") == "thinking")
        return Item(text, tuple(calls), (), tuple(thoughts), images)

    def header(self, record: Record) -> Header | None:
        """Return the place and facts of a record. Records in the first version of Pi's format have no ids."""
        kind, moment = record.get("type"), record.get("timestamp")
        if kind == "session":
            above = record.get("parentSession") or record.get("branchedFrom")
            return Header(
                moment=moment, session_id=record.get("id"), cwd=record.get("cwd"),
                parent_session=session_of(Path(above)) if isinstance(above, str) else None,
            )  # fmt: skip
        place = Header(id=record.get("id"), parent=record.get("parentId", ""), moment=moment)
        if kind in _LINKS:
            return place._replace(title=record.get("name"), named=True) if kind == "session_info" else place
        if kind == "compaction":
            return place._replace(role="system", compacts=True)
        if kind in ("branch_summary", "custom_message"):
            return place._replace(role="system")
        message = record.get("message")
        return self._message(place, message) if kind == "message" and isinstance(message, dict) else None

    def _message(self, place: Header, message: Record) -> Header | None:
        role = message.get("role")
        if role == "assistant":
            loaded = dict_in(message.get("usage")).get("totalTokens", 0)
            stopped = message.get("stopReason") == "aborted"
            return place._replace(role=role, model=message.get("model"), loaded=loaded, interrupts=stopped)
        if role in _INJECTED:
            return place._replace(role="system")
        return place._replace(role="user") if role in ("user", "toolResult") else None


class PiAdapter(ReadAdapter):
    """The adapter that finds and reads Pi's sessions."""

    name = "pi"
    resumes = ("pi", "--session")
    codec = PiCodec()
    depth = 1

    def id_of(self, path: Path) -> str:
        return session_of(path)


def session_of(log: Path) -> str:
    """Return the id of the session that a log is named after."""
    return log.stem.rpartition("_")[2]
