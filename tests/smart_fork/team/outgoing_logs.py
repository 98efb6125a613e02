"""Logs in a clone, and the records of them that would be shared."""

from __future__ import annotations

import json
from pathlib import Path

from smart_fork.sharing.outgoing import Outgoing, prepare
from tests.indexer.transcripts.records import assistant, claude_log, codex_log, result, use, user

NEW = "22222222-2222-4222-8222-222222222222"


def claude(home: Path, root: Path, *records: dict) -> Path:
    here = [record | {"cwd": str(root)} for record in records]
    return claude_log(home, *here, cwd=str(root))


def one_call(call: dict, output: object, **more: object) -> tuple[dict, ...]:
    """Return the records of a prompt, a tool call, its result, and an answer."""
    return (
        user("u1", None, "please"),
        assistant("a1", "u1", call),
        result("r1", "a1", str(call["id"]), output) | more,
        assistant("a2", "r1", "done"),
    )


def sent(log: Path, root: Path, agent: str = "claude", **more) -> tuple[Outgoing, list[dict]]:
    out = prepare(log, agent, root, **more)
    return out, [json.loads(record) for record in out.records]


__all__ = ["NEW", "assistant", "claude", "codex_log", "one_call", "result", "sent", "use", "user"]
