"""The sub-agents of Gemini CLI's sessions: a log each in a folder that is named after the session, beside its log.

The record of the call that began one names it, once that has ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from indexer.transcripts.files import regular_files
from indexer.transcripts.model import Session
from indexer.unchecked import dict_in, dicts_in, json_in
from smart_fork.agents.gemini import fold
from smart_fork.agents.gemini.home import CHATS
from smart_fork.agents.subagents import SubAgents

#: What the record of a call has in it that names a sub-agent; and what a session is called that has such a folder.
_NAMES, _ID = b'"agentId"', re.compile(r"[0-9A-Za-z-]{1,100}")


class GeminiSubAgents(SubAgents):
    """See `SubAgents`."""

    def begun(self, session: Session) -> Mapping[str, str]:
        answers = [turn.raw for turn in session.turns if turn.tool_calls and _NAMES in turn.raw]
        logs = _logs(session) if answers else {}
        return {call: name for raw in answers for call, name in named_in(raw) if name in logs}

    def read(self, session: Session, name: str) -> Session | None:
        log = _logs(session).get(name)
        return None if log is None else fold.read_subagent(log)


def _logs(session: Session) -> Mapping[str, Path]:
    """The logs that are there, by what the sub-agents are called. Those of sub-agents' own are not told."""
    chats = session.source_path.parent
    if (
        chats.name != CHATS
        or not _ID.fullmatch(session.session_id)
        or (folder := chats / session.session_id).is_symlink()
    ):
        return {}
    return {file.path.stem: file.path for file in regular_files(folder, "gemini")}


def named_in(raw: bytes) -> Iterator[tuple[str, str]]:
    """The calls of a record, each with the sub-agent that it names."""
    for call in dicts_in(dict_in(json_in(raw)).get("toolCalls")):
        if isinstance(name := call.get("agentId"), str):
            yield str(call.get("id") or ""), name
