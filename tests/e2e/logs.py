"""What the agents write down: one file a session."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Log:
    """One session's file, decoded."""

    path: Path

    @property
    def records(self) -> list[Json]:
        lines = self.path.read_bytes().split(b"\n")
        # Behind the last newline is nothing, or a line being written; blank lines stand where something was cut.
        return [json.loads(line) for line in lines[:-1] if line.strip()]

    @property
    def sha256(self) -> str:
        return sha256(self.path.read_bytes()).hexdigest()

    @property
    def meta(self) -> Json:
        """Codex: the payload of the first record."""
        payload: Json = self.records[0]["payload"]
        return payload

    @property
    def session_id(self) -> str:
        return self.path.stem if not self.path.stem.startswith("rollout-") else self.path.stem[-36:]

    @property
    def chain(self) -> list[Json]:
        """Claude: the records that have a uuid."""
        return [record for record in self.records if record.get("uuid")]

    def answers(self, text: str) -> bool:
        """Whether the model has said `text` in it."""
        written, now = json.dumps(text)[1:-1], self.path.stat()
        return any(written in answer for answer in _answers(self, now.st_size, now.st_mtime_ns))


@lru_cache(maxsize=1000)
def _answers(log: Log, _size: int, _changed: int) -> list[str]:
    """Who waits for an answer looks ten times a second at all logs of a machine, of which one has changed."""
    return [json.dumps(record) for record in log.records if _is_answer(record)]


def _is_answer(record: Json) -> bool:
    if record.get("type") == "assistant":
        return True
    payload = record.get("payload") or {}
    return record.get("type") == "response_item" and payload.get("role") == "assistant"
