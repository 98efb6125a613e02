"""Tests of the workers on the page: the board, messages to workers, and windows that listen for changes."""

from __future__ import annotations

import http.client
import json
import re
from contextlib import closing
from urllib.parse import urlencode

import pytest
from markupsafe import escape

from smart_fork.page import worker_page
from smart_fork.page.renderer import NAME_CHARACTERS, worker_title
from smart_fork.page.worker_board import WorkerBoard, _together, asked
from smart_fork.page.worker_page import LIVE, MAX_LISTENERS
from smart_fork.workers.observation import Observation, WorkerReader
from smart_fork.workers.registry import Registry
from tests.smart_fork import agent_screens
from tests.smart_fork.fake_agents import AGENT
from tests.smart_fork.fake_tmux import Stage
from tests.smart_fork.service.test_page import DONE, HOSTILE, RETRY, Tags
from tests.support.cases import thorough_except_first


def the_card(stage: Stage):
    (card,) = WorkerBoard(stage.around).view().cards
    return card


def test_a_worker_stands_in_the_column_of_what_it_does_and_can_be_told_what_it_hears(world, shop):
    stage = Stage(world, shop)
    stage.asked("go")
    works = the_card(stage)
    stage.terminal.screen = agent_screens.CLAUDE_PERMISSION
    asks = the_card(stage)
    stage.terminal.screen = agent_screens.CLAUDE_IDLE
    stage.said("All is done")
    idle = the_card(stage)

    assert [("working", "queue"), ("idle", "message"), ("asks", "")] == [
        (one.column, one.hears) for one in (works, idle, asks)
    ]
    assert "All is done" == idle.work.said
    assert asks.options
    assert [number for number, _ in asks.options] == ["1", "2", "3"][: len(asks.options)]
    assert all(text and text not in asks.question for _, text in asks.options)
    assert asks.asked == asked(f"\u276f {asks.worker.waiting_for}") != asked("Delete everything?\n1. Yes")
    assert 3 == len({one.version for one in (works, idle, asks)})


def test_those_of_one_prompt_that_began_together_are_compared(world, shop):
    with Registry() as registry:
        for prompt, now in (("same", 100.0), ("same", 130.0), ("same", 500.0), ("other", 131.0), ("", 1.0), ("", 2.0)):
            registry.add("claude", source_session_id="x", place="process", cwd=shop, prompt=prompt, now=now)
        workers = registry.workers()

    assert {workers[-1].id: (workers[-1].id, workers[-2].id), workers[-2].id: (workers[-1].id, workers[-2].id)} == (
        _together(workers)
    )


def send(served, **fields: str) -> tuple[int, str]:
    answer = served.answer("POST", "/worker", urlencode(fields).encode(), Origin=f"http://127.0.0.1:{served.port}")
    return answer.status, answer.headers.get("Location") or answer.read().decode()


@pytest.fixture
def worker(served, world, shop) -> str:
    """Start a silent worker process from the page, and end it with the test."""
    (world.home / "bin/claude").write_text(AGENT)
    knows = world.claude(shop, RETRY, DONE)
    form = served.form("/fork")
    asked = {"form": form, "session": knows, "prompt": HOSTILE, "place": "process"}
    assert 303 == served.answer("POST", "/fork", urlencode(asked).encode()).status
    with Registry() as registry:
        (one,) = registry.workers()
    yield one.id
    send(served, form=served.form("/worker"), worker=one.id, do="close")


@pytest.mark.slow
def test_a_fork_that_two_windows_ask_for_is_started_once_and_another_one_when_that_is_said(served, worker):
    """Two tabs, two browsers, or one that went back each have a form with a name of its own."""
    with Registry() as registry:
        knows = registry.get(worker).source_session_id
    asked = {"session": knows, "prompt": HOSTILE, "place": "process"}

    def press(**fields: str) -> tuple[str, str]:
        body = urlencode({"form": served.form("/fork"), **fields}).encode()
        place = served.answer("POST", "/fork", body).headers["Location"]
        text = served.get(place)[1]
        return re.findall(r"<dd>(claude-\d+)</dd>", text)[0], text

    same, text = press(**asked)

    assert same == worker
    assert "no other was started" in text
    assert ["/static/page.js"] == [attrs["src"].partition("?")[0] for tag, attrs in Tags(text).found if tag == "script"]
    inside = re.search(r'<form class="note".*?</form>', text, re.DOTALL)
    assert inside
    another, text = press(**{str(a["name"]): str(a["value"]) for tag, a in Tags(inside[0]).found if tag == "input"})
    try:
        assert another != worker
        assert "no other was started" not in text
        with Registry() as registry:
            assert {worker, another} == {one.id for one in registry.workers()}
    finally:
        send(served, form=served.form("/worker"), worker=another, do="close")


@pytest.mark.parametrize(
    ("path", "before"),
    thorough_except_first(
        [
            ("/workers", "<h3[^>]*><bdi>"),
            ("/", '<a class="row" href="/workers#[^"]*"><bdi>'),
            ("/compare?worker={}", "<h1><bdi>"),
        ]
    ),
)
def test_a_worker_without_a_name_is_called_what_it_was_asked(served, worker, path, before):
    text = served.get(path.format(worker))[1]

    assert re.search(before + re.escape(str(escape(HOSTILE))), text)
    assert f"<bdi>{worker}</bdi>" not in text


def test_a_worker_is_called_by_its_name_where_it_has_one(world, shop):
    with Registry() as registry:
        named, bare, silent = (
            WorkerReader.described(
                registry.add("claude", source_session_id="x", place="process", cwd=shop, **how),
                Observation("running", "working", ""),
            )
            for how in ({"name": "fixer", "prompt": RETRY}, {"prompt": f"{RETRY} " * 20}, {})
        )

    assert ["fixer", silent.worker_id] == [worker_title(named), worker_title(silent)]
    assert worker_title(bare).startswith(RETRY)
    assert NAME_CHARACTERS >= len(worker_title(bare))


def test_a_worker_is_closed_once_by_a_form_of_the_page_alone(served, worker):
    text = served.get("/workers")[1]
    form = re.search(rf'value="{worker}">\s*<input type="hidden" name="form" value="([^"]+)"', text)
    assert form
    assert ["/static/page.js"] == [attrs["src"].partition("?")[0] for tag, attrs in Tags(text).found if tag == "script"]
    assert not [name for _, attrs in Tags(text).found for name in attrs if name.startswith("on") or name == "style"]
    assert "Running" in served.get("/")[1]
    wrong = {"worker": worker, "do": "close", "form": "made.up"}
    foreign = served.answer("POST", "/worker", urlencode(wrong).encode(), Origin="http://evil.example")
    assert (400, 403) == (send(served, **wrong)[0], foreign.status)
    assert (400, 404) == (
        send(served, **wrong | {"form": form[1], "do": "praise"})[0],
        send(served, **wrong | {"form": form[1], "worker": "nobody-there"})[0],
    )

    first, again = (send(served, worker=worker, do="close", form=form[1]) for _ in range(2))

    assert first == again == (303, f"/workers?told={form[1]}")
    assert "has ended" in re.sub(r"\s+", " ", served.get(first[1])[1])
    assert 'class="worker ended"' in served.get("/board")[1]
    later = send(served, worker=worker, do="close", form=served.form("/worker"))
    assert "It had ended already" in served.get(later[1])[1]


def test_what_a_worker_does_is_told_to_a_bounded_number_of_windows(served, world, monkeypatch):
    monkeypatch.setattr(worker_page, "MAX_LISTENERS", 1)
    assert MAX_LISTENERS > 1

    def listens() -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)
        connection.request("GET", LIVE, headers={"Cookie": served.cookie()})
        return connection

    with closing(listens()) as one, closing(listens()) as other:
        first = one.getresponse()
        assert {"asks": 0, "running": 0} == {
            key: told for key, told in json.loads(first.readline().removeprefix(b"data: ")).items() if key != "version"
        }
        late = other.getresponse().read()
        assert late.startswith(b"retry: ")
        assert b"data: " in late
        assert "text/event-stream" in first.headers["Content-Type"]
