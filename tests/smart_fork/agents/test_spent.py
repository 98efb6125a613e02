"""Tokens that a worker's model has written."""

from __future__ import annotations

import pytest

from smart_fork.agents.tail import output_tokens
from tests.smart_fork.forks import write_log

SINCE = "2026-01-01T00:00:02.000Z"
BEFORE, AFTER = "2026-01-01T00:00:01.000Z", "2026-01-01T00:00:03.000Z"


def claude(key: object, tokens: object, time: str = AFTER) -> dict:
    return {
        "type": "assistant",
        "uuid": "u",
        "timestamp": time,
        "message": {"id": key, "usage": {"output_tokens": tokens}},
    }


def codex(last: object, total: object, time: str = AFTER) -> dict:
    info = {"last_token_usage": {"output_tokens": last}, "total_token_usage": total}
    return {"timestamp": time, "type": "event_msg", "payload": {"type": "token_count", "info": info}}


@pytest.mark.parametrize(
    ("agent", "records", "written"),
    [
        ("claude", [claude("old", 500, BEFORE), claude("a", 1), claude("a", 20), claude("b", 7)], 27),
        ("claude", [claude(None, 3), claude("x", -1), claude("y", "9"), claude("z", True), {"type": "assistant"}], 3),
        ("codex", [codex(500, {"t": 1}, BEFORE), codex(20, {"t": 2}), codex(20, {"t": 2}), codex(5, {"t": 3})], 25),
        (
            "codex",
            [codex(20, None), codex(20, None), {"timestamp": AFTER, "payload": {"type": "token_count", "info": None}}],
            40,
        ),
        ("codex", [], 0),
    ],
    ids=["claude", "odd claude", "codex", "odd codex", "empty"],
)
def test_what_was_written_since_the_start_is_counted_once(tmp_path, agent, records, written):
    """F-105."""
    assert written == output_tokens(agent, write_log(tmp_path / "log.jsonl", records), SINCE)
