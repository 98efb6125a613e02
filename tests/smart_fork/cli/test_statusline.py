"""The segment of a status line."""

from __future__ import annotations

import io
import json

import pytest

from smart_fork.cli.quick_answers import status_segment
from smart_fork.workers.registry import Registry
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.world import World

RETRY = "add retry with backoff to the uploader"


def start(registry: Registry, cwd, *, source: str = "", session: str | None = None, status: str = "", **more) -> str:
    worker = registry.add("claude", name="w", source_session_id=source, place="process", cwd=cwd, prompt="x", **more)
    if session:
        registry.set_session_id(worker.id, session)
    registry.set_state(worker.id, "running")
    if status:
        registry.set_status(worker.id, status, "")
    return worker.id


def status_of(session_id: str, directory) -> dict:
    """Return the JSON that Claude Code gives to a status line, with the keys that are read."""
    return {"session_id": session_id, "cwd": str(directory), "workspace": {"project_dir": str(directory)}}


def test_it_says_whose_fork_this_is_and_what_the_workers_do(world: World, shop):
    parent = world.claude(shop, RETRY, "done")
    world.find(RETRY, shop)
    with Registry() as registry:
        start(registry, shop, source=parent, session="11111111-0000-4000-8000-000000000001")
        start(registry, shop, status="waiting")
        start(registry, shop, status="working")

    said = status_segment(status_of("11111111-0000-4000-8000-000000000001", shop))

    assert "fork of add retry with backoff to the u… · 2 workers, 1 asks" == said


def test_a_fork_whose_worker_has_ended_is_still_one(world: World, shop):
    parent = world.claude(shop, RETRY, "done")
    world.find(RETRY, shop)
    with Registry() as registry:
        worker = start(registry, shop, source=parent, session="11111111-0000-4000-8000-000000000001")
        registry.set_state(worker, "ended")

    assert "fork of add retry with backoff to the u…" == status_segment(
        status_of("11111111-0000-4000-8000-000000000001", shop)
    )


def test_workers_of_other_projects_and_those_that_are_over_do_not_count(world: World, shop, tmp_path):
    with Registry() as registry:
        start(registry, tmp_path)
        registry.set_state(start(registry, shop), "ended")
        assert "" == status_segment(status_of("x", shop))
        start(registry, tmp_path, caller_session_id="caller-0000")

    assert "1 worker" == status_segment(status_of("caller-0000", shop))


@pytest.mark.parametrize("given", [None, [], "x", {}, {"session_id": 7, "workspace": []}, {"cwd": "/does/not/exist"}])
def test_whatever_it_is_given_it_says_nothing_rather_than_fail(home, given):
    assert "" == status_segment(given)


def test_the_command_gives_json_as_well(run, monkeypatch):  # noqa: F811
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"no json")))

    assert {"segment": ""} == json.loads(run("statusline", "--json").out)
