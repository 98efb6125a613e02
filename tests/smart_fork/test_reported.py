"""Tests of the progress that a client gets during a long call."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import anyio.to_thread
import mcp_types as types
import pytest
from mcp import Client

from smart_fork.server import calls as reporting
from smart_fork.server.calls import Reporter, with_progress
from tests.smart_fork.tool_server import create_server
from tests.smart_fork.world import World

RETRY = "add retry with backoff to the uploader"


class Heard:
    """A client, and a clock that tests move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[tuple[float, float, str]] = []
        self.reporter = Reporter(self.hear, lambda: self.now)

    async def hear(self, number: float, total: float, words: str) -> None:
        self.told.append((number, total, words))

    def tell(self, *stages: tuple[float, str, int, int]) -> None:
        async def tell() -> None:
            for self.now, *stage in stages:
                await self.reporter.tell(*stage)

        anyio.run(tell)


def test_stages_are_parts_of_one_whole_whose_numbers_only_grow():
    heard = Heard()
    heard.tell(
        (0, "reading", 0, 2), (1, "reading", 1, 2), (2, "reading", 2, 2), (3, "loading", 0, 1), (7, "loading", 1, 1),
        (8, "embedding", 0, 9), (9, "embedding", 3, 9), (10, "embedding", 3, 9), (11, "reading", 0, 2),
        (12, "embedding", 9, 9),
    )  # fmt: skip

    numbers, totals, words = zip(*heard.told, strict=True)
    assert list(numbers) == sorted(set(numbers))
    assert all(number <= total for number, total in zip(numbers, totals, strict=True))
    assert [
        "reading logs: 0 of 2 (0 %)", "reading logs: 1 of 2 (50 %), about 1 s left", "reading logs: 2 of 2 (100 %)",
        "loading the model: 0 s", "loading the model: 4 s", "embedding passages: 0 of 9 (0 %)",
        "embedding passages: 3 of 9 (33 %), about 2 s left", "reading logs: 0 of 2 (0 %)",
    ] == list(words)[:8]  # fmt: skip
    assert (12, 12) == heard.told[-1][:2]


def test_much_is_told_now_and_then_alone_but_each_stages_beginning_and_end():
    heard = Heard()
    heard.tell(*((number / 1000, "reading", number, 1000) for number in range(1001)), (1.0, "loading", 0, 1))

    assert 4 < len(heard.told) < 9
    assert ["reading logs: 1,000 of 1,000 (100 %)", "loading the model: 0 s"] == [
        words for *_, words in heard.told[-2:]
    ]


def test_what_has_nothing_to_tell_says_now_and_then_that_it_goes_on(monkeypatch):
    monkeypatch.setattr(reporting, "BEAT_SECONDS", 0.0)
    heard = Heard()

    async def work() -> str:
        while len(heard.told) < 3:
            heard.now += 1
            await anyio.lowlevel.checkpoint()
        return "done"

    class Context:
        report_progress = heard.hear

    monkeypatch.setattr(reporting, "Reporter", lambda _: heard.reporter)

    assert "done" == anyio.run(with_progress, Context(), work())
    numbers = [number for number, *_ in heard.told]
    assert numbers == sorted(set(numbers))
    assert all(words.startswith("working: ") for *_, words in heard.told)


def test_what_fails_fails_as_it_would_without():
    async def work() -> None:
        raise LookupError("as it is")

    class Context:
        report_progress = None

    with pytest.raises(LookupError, match="as it is"):
        anyio.run(with_progress, Context(), work())


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("find_sessions", {"intent": RETRY}), ("smart_fork", {"intent": RETRY}), ("list_sessions", {}),
        ("read_session", {"session_id": "SESSION"}), ("list_workers", {}), ("index_status", {}),
        ("wait_workers", {"workers": ["none"]}), ("message_worker", {"worker": "none", "message": "go"}),
    ],
)  # fmt: skip
def test_every_tool_that_takes_long_says_so_to_whoever_asks_for_it(world: World, shop, monkeypatch, tool, arguments):
    monkeypatch.chdir(shop)
    monkeypatch.setattr(reporting, "BEAT_SECONDS", 0.0)
    session = world.claude(shop, RETRY, "done")
    arguments = {name: session if value == "SESSION" else value for name, value in arguments.items()}
    told: list[tuple[float, float | None]] = []
    enough = anyio.Event()

    async def hear(number: float, total: float | None, _words: str | None) -> None:
        told.append((number, total))
        if len(told) >= 3:
            enough.set()

    async def talk() -> types.CallToolResult:
        async with Client(create_server(world.model, everything=True), mode="legacy") as client:
            return await client.call_tool(tool, arguments, progress_callback=hear)

    real = anyio.to_thread.run_sync

    async def slowly(*words, **more):
        await enough.wait()
        return await real(*words, **more)

    monkeypatch.setattr("smart_fork.server.calls.anyio.to_thread.run_sync", slowly)
    anyio.run(talk)

    assert len(told) >= 3
    assert [number for number, _ in told] == sorted({number for number, _ in told})
