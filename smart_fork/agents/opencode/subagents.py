"""The sub-agents of OpenCode's sessions: sessions of their own in the same database, which name their parent.

The part of the call that began one names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import orjson

from indexer.transcripts.model import Session
from indexer.unchecked import dict_in, dicts_in
from smart_fork.agents.opencode import fold
from smart_fork.agents.opencode.database import Document
from smart_fork.agents.subagents import SubAgents

#: What the record of an answer has in it that names a sub-agent; and what such a name is.
_NAMES, _NAME = b'"sessionId"', re.compile(r"ses_[A-Za-z0-9]{1,60}")


class OpenCodeSubAgents(SubAgents):
    """See `SubAgents`."""

    def begun(self, session: Session) -> Mapping[str, str]:
        raw = [turn.raw for turn in session.turns if turn.tool_calls and _NAMES in turn.raw]
        named = [pair for one in raw for pair in _named(one)]
        return {call: name for call, name in named if _of(session, name, 0)}

    def read(self, session: Session, name: str) -> Session | None:
        found = _of(session, name)
        return fold.of_document(session.source_path.with_name(name), found) if found else None


def _of(session: Session, name: str, most: int = -1) -> Document | None:
    """The session of this name, or its first messages, if `session` has begun it; `None` where it cannot be read."""
    if not _NAME.fullmatch(name):
        return None
    try:
        found = fold.written(session.source_path.with_name(name), most)
    except OSError:
        return None
    return found if found["info"].get("parentID") == session.session_id else None


def _named(raw: bytes) -> Iterator[tuple[str, str]]:
    for part in dicts_in(orjson.loads(raw).get("parts")):
        name = dict_in(dict_in(part.get("state")).get("metadata")).get("sessionId")
        if part.get("type") == "tool" and isinstance(name, str):
            yield str(part.get("callID") or part.get("id") or ""), name
