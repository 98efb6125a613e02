"""Writes chats as logs of Claude Code, so that they are read by the reader that reads people's own."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from forms import Chat, Haystack

from smart_fork.agents.claude.log import slug

#: Between two turns: a chat has a date and no times.
_TURN = timedelta(minutes=1)


def write(haystack: Haystack, home: Path, project: Path) -> Mapping[str, str]:
    """Write one log a chat, all of them of `project`. Return the chat's name by session id."""
    project.mkdir(parents=True, exist_ok=True)
    folder = home / ".claude/projects" / slug(str(project))
    folder.mkdir(parents=True, exist_ok=True)
    names = {}
    for chat in haystack.chats:
        session = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{haystack.name} {chat.name}"))
        names[session] = chat.name
        log = folder / f"{session}.jsonl"
        if not log.exists():
            lines = [json.dumps(record, ensure_ascii=False) for record in _records(chat, session, project)]
            log.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="replace")
    return names


def _records(chat: Chat, session: str, project: Path) -> Iterator[dict[str, Any]]:
    parent, said = None, uuid.UUID(session)
    for number, turn in enumerate(chat.turns):
        identity = str(uuid.uuid5(said, str(number)))
        message: dict[str, Any] = {"role": turn.role, "content": turn.text}
        if turn.role == "assistant":
            message |= {"id": f"msg_{identity}", "model": "none", "content": [{"type": "text", "text": turn.text}]}
        yield {
            "type": turn.role, "uuid": identity, "parentUuid": parent, "isSidechain": False, "userType": "external",
            "sessionId": session, "cwd": str(project), "version": "2.1.0", "gitBranch": "",
            "timestamp": f"{chat.began + number * _TURN:%Y-%m-%dT%H:%M:%S.000Z}", "message": message,
        }  # fmt: skip
        parent = identity
