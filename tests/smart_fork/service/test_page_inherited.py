"""Tests of the inherited beginning of a fork, as the page shows it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from smart_fork.display_text import in_words
from smart_fork.page.worker_board import Inherited, inherited
from smart_fork.workers.observation import WorkerReader
from smart_fork.workers.registry import Registry
from tests.smart_fork.service.test_page import DONE, RETRY

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def a_fork(world, shop, *turns: tuple[str, str, float, int], kind: str = "fork"):
    """Register a worker with a log of `turns`: the speaker, the text, the minutes after its start, and the loaded
    tokens.
    """
    session_id = world.claude(shop, RETRY, DONE)
    log, above = world.log_of(session_id), None
    lines = []
    for number, (role, text, minutes, loaded) in enumerate(turns):
        said = {"role": role, "content": text if role == "user" else [{"type": "text", "text": text}]}
        usage = {"usage": {"input_tokens": loaded, "output_tokens": 0}, "id": f"m{number}"} if loaded else {}
        at = (NOW + timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")
        lines.append({"type": role, "uuid": f"u{number}", "parentUuid": above, "sessionId": session_id, "cwd": str(shop), "timestamp": at, "message": said | usage})  # fmt: skip
        above = f"u{number}"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with Registry() as registry:
        return registry.add("claude", source_session_id="parent", session_id=session_id, place="process", cwd=shop, prompt="go", kind=kind, now=NOW.timestamp())  # fmt: skip


COPIED = (
    ("user", RETRY, -600, 0), ("assistant", DONE, -590, 12_000),
    ("user", "and the docs", -60, 0), ("assistant", "Written.", -58, 30_000),
)  # fmt: skip


def test_what_a_fork_began_with_is_the_conversation_and_the_time_that_its_agent_worked_on_it(world, shop):
    worker = a_fork(world, shop, *COPIED, ("user", "go", 1, 0), ("assistant", "Gone.", 90, 31_000))

    began = inherited(worker, WorkerReader())

    assert began == Inherited(began.tokens, 2, 12 * 60.0)
    assert 18_000 <= began.tokens < 18_100, "without the instructions and tools, which a new session loads as well"


@pytest.mark.parametrize(
    ("turns", "kind"),
    [((("user", "go", 1, 0), ("assistant", "Gone.", 2, 12_000)), "fork"), (COPIED, "new"), (COPIED, "resume")],
)
def test_nothing_is_said_of_a_worker_that_began_with_nothing_of_another_session(world, shop, turns, kind):
    assert inherited(a_fork(world, shop, *turns, kind=kind), WorkerReader()) is None


def test_the_board_says_how_much_of_a_context_is_from_the_parent(served, world, shop):
    a_fork(world, shop, *COPIED, ("user", "go", 1, 0), ("assistant", "Gone.", 90, 31_000))

    text = " ".join(served.get("/workers")[1].split())

    assert "18k of them from its parent" in text
    assert "first answer: 31k input tokens" in text
    assert "2 exchanges, on which its agent worked 12 min" in text


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 seconds"), (29, "29 seconds"), (60, "1 minute"), (3_590, "59 minutes"), (6_600, "1 hour")],
)
def test_a_time_that_something_took_is_said_in_one_unit(seconds, said):
    assert said == in_words(seconds)
