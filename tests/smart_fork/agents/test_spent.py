"""The tokens that a worker's model has written, and the token use of its first answer."""

from __future__ import annotations

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.log_tail import TokenUse
from tests.smart_fork.forks import write_log
from tests.support.cases import parametrize_subtests

SINCE = "2026-01-01T00:00:02.000Z"
BEFORE, AFTER = "2026-01-01T00:00:01.000Z", "2026-01-01T00:00:03.000Z"
OWN, PARENT = "11111111-0000-7000-8000-000000000001", "11111111-0000-7000-8000-000000000002"


def claude(key: object, tokens: object, time: str = AFTER, model: str = "m", **usage: object) -> dict:
    return {
        "type": "assistant",
        "uuid": "u",
        "timestamp": time,
        "message": {"id": key, "model": model, "usage": {"output_tokens": tokens, **usage}},
    }


def claude_cached(key: str, *numbers: object, time: str = AFTER) -> dict:
    read, wrote, sent, output = numbers
    cached = {"cache_read_input_tokens": read, "cache_creation_input_tokens": wrote}
    return claude(key, output, time, input_tokens=sent, **cached)


def codex(last: object, total: object, time: str = AFTER, **usage: object) -> dict:
    info = {"last_token_usage": {"output_tokens": last, **usage}, "total_token_usage": total}
    return {"timestamp": time, "type": "event_msg", "payload": {"type": "token_count", "info": info}}


def of_thread(thread: str, last: object, total: object, **usage: object) -> list[dict]:
    """Return the two records in which Codex notes the tokens of an answer."""
    noted = {"thread_id": thread, "usage": {"output_tokens": last, **usage}, "thread_token_usage": total}
    return [{"timestamp": AFTER, "type": "token_usage_record", "payload": noted}, codex(last, total, **usage)]


def meta(thread: str) -> dict:
    return {"timestamp": AFTER, "type": "session_meta", "payload": {"id": thread}}


def qwen(usage: object, time: str = AFTER) -> dict:
    return {"timestamp": time, "type": "assistant", "usageMetadata": usage}


def gemini(tokens: object, key: str = "g", time: str = AFTER) -> dict:
    return {"timestamp": time, "type": "gemini", "id": key, "tokens": tokens}


def copilot(usage: object, time: str = AFTER) -> dict:
    return {"timestamp": time, "type": "session.usage_record", "data": {"usage": usage}}


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
        ("codex", [meta(OWN), meta(PARENT), *of_thread(PARENT, 9, {"t": 1}), *of_thread(OWN, 4, {"t": 2})], 4),
        ("codex", [], 0),
    ],
    ids=["claude", "odd claude", "codex", "odd codex", "copied codex", "empty"],
)
def test_what_was_written_since_the_start_is_counted_once(tmp_path, agent, records, written):
    """F-105."""
    assert written == AGENTS.tail_of(agent).output_tokens(write_log(tmp_path / f"{OWN}.jsonl", records), SINCE)


CODEX_USAGE = {"input_tokens": 142_100, "cached_input_tokens": 142_000}
QWEN_USAGE = {"promptTokenCount": 900, "candidatesTokenCount": 7}
GEMINI_TOKENS = {"input": 900, "output": 7, "thoughts": 3, "cached": 800, "total": 910}
COPILOT_USAGE = {"inputTokens": 5_560, "outputTokens": 7, "cacheReadTokens": 5_000, "cacheWriteTokens": 500}


@parametrize_subtests(
    ("agent", "records", "use", "words"),
    [
        (
            "claude",
            [
                claude_cached("parents", 9, 9, 9, 9, time=BEFORE), claude("s", 0, model="<synthetic>", input_tokens=8),
                claude_cached("a", 142_000, 1_100, 4, 1), claude_cached("a", 142_000, 1_100, 4, 20),
                claude_cached("b", 143_000, 90, 4, 5),
            ],
            TokenUse(142_000, 1_100, 4, 20), "read 142k from the cache, wrote 1.1k",
        ),
        ("claude", [claude_cached("a", 0, 150_000, 4, 1)], TokenUse(0, 150_000, 4, 1), "read 0 from the cache, wrote 150k"),
        ("claude", [claude("a", 1, input_tokens=8_200)], TokenUse(None, None, 8_200, 1), "8.2k input tokens"),
        ("codex", [codex(20, {"t": 1}, **CODEX_USAGE)], TokenUse(142_000, None, 100, 20), "read 142k from the cache, 100 not cached"),
        (
            "codex",
            [
                meta(OWN), meta(PARENT), *of_thread(PARENT, 9, {"t": 1}, input_tokens=7),
                *of_thread(OWN, 20, {"t": 2}, **CODEX_USAGE, cache_write_input_tokens=60),
            ],
            TokenUse(142_000, 60, 40, 20), "read 142k from the cache, wrote 60",
        ),
        ("qwen", [qwen(QWEN_USAGE)], TokenUse(None, None, 900, 7), "900 input tokens"),
        (
            "qwen", [qwen(QWEN_USAGE, BEFORE), qwen({**QWEN_USAGE, "cachedContentTokenCount": 850})],
            TokenUse(850, None, 50, 7), "read 850 from the cache, 50 not cached",
        ),
        (
            "gemini", [gemini(None), gemini(GEMINI_TOKENS), gemini({"input": 5}, "later")],
            TokenUse(800, None, 100, 10), "read 800 from the cache, 100 not cached",
        ),
        ("copilot", [copilot(COPILOT_USAGE)], TokenUse(5_000, 500, 60, 7), "read 5.0k from the cache, wrote 500"),
    ],
)  # fmt: skip
def test_a_first_answer_took_what_the_log_says_of_it(tmp_path, agent, records, use, words):
    found = AGENTS.tail_of(agent).first_answer(write_log(tmp_path / f"rollout-{OWN}.jsonl", records), SINCE)

    assert (use, words) == (found, str(found))


@parametrize_subtests("odd", [-5, 1 << 60, True, "9", 1.5, [], {}])
def test_what_is_no_number_of_tokens_is_not_known(tmp_path, odd):
    claudes, qwens = claude_cached("a", odd, odd, 8, odd), qwen({**QWEN_USAGE, "cachedContentTokenCount": odd})

    assert TokenUse(None, None, 8, 0) == AGENTS.tail_of("claude").first_answer(
        write_log(tmp_path / "c", [claudes]), SINCE
    )
    assert TokenUse(None, None, 900, 7) == AGENTS.tail_of("qwen").first_answer(
        write_log(tmp_path / "q", [qwens]), SINCE
    )


@parametrize_subtests(
    ("agent", "records"),
    [
        ("claude", []),
        ("claude", [claude_cached("a", 0, 0, 0, 9), claude("b", 1, BEFORE, input_tokens=3), claude("b", 1, "", input_tokens=3)]),
        ("claude", [{**claude("a", 1), "message": None}, {**claude("b", 1), "message": {"usage": [1]}}]),
        # A copy with times of its own, of a version that does not note whose an answer is.
        ("codex", [meta(OWN), meta(PARENT), codex(20, {"t": 1}, **CODEX_USAGE)]),
        ("codex", [{"timestamp": AFTER, "type": "token_usage_record", "payload": {"usage": "?", "thread_id": 7}}]),
        ("qwen", [qwen(None), qwen({"promptTokenCount": -1})]),
        ("gemini", [gemini([]), gemini({"input": "900"})]),
        ("copilot", [copilot(None), copilot({"inputTokens": None})]),
    ],
)  # fmt: skip
def test_where_nothing_is_known_of_a_first_answer_nothing_is_said(tmp_path, agent, records):
    assert AGENTS.tail_of(agent).first_answer(write_log(tmp_path / f"{OWN}.jsonl", records), SINCE) is None
