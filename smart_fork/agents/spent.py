"""How many tokens a worker's model has written, as the agent itself recorded it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Agent


def output_tokens(agent: Agent, log: Path, since: str) -> int:
    """The tokens of all answers in `log` from the time `since` on: what a fork has copied is older.

    Raises:
        OSError: the log cannot be read.
    """
    records = (line.record for line in LineReader(log) if str(line.record.get("timestamp") or "") >= since)
    return _of_claude(records) if agent == "claude" else _of_codex(records)


def _of_claude(records: Iterable[dict[str, Any]]) -> int:
    """A message stands in several records; each says what was written up to then."""
    written: dict[str, int] = {}
    for record in records:
        message = record.get("message")
        usage = message.get("usage") if isinstance(message, dict) else None
        if record.get("type") == "assistant" and isinstance(message, dict) and isinstance(usage, dict):
            key = str(message.get("id") or record.get("uuid"))
            written[key] = max(written.get(key, 0), _number(usage.get("output_tokens")))
    return sum(written.values())


def _of_codex(records: Iterable[dict[str, Any]]) -> int:
    """A count may be repeated, which its total tells; the total itself goes on from the parent's."""
    written = 0
    before: object = None
    for record in records:
        payload = record.get("payload")
        info = payload.get("info") if isinstance(payload, dict) and payload.get("type") == "token_count" else None
        last = info.get("last_token_usage") if isinstance(info, dict) else None
        if not isinstance(info, dict) or not isinstance(last, dict):
            continue
        total = info.get("total_token_usage")
        if total is None or total != before:
            written += _number(last.get("output_tokens"))
        before = total
    return written


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
