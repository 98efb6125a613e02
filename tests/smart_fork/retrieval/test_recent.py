"""Recent sessions straight from the logs (F-132, F-136)."""

from __future__ import annotations

import os

import orjson
import pytest

from indexer.transcripts.lines import GLANCE_BYTES
from smart_fork.errors import Usage
from smart_fork.retrieval import recent
from smart_fork.retrieval.listing import list_recent


def ids(agent: str, project, limit: int = 20, **more: object) -> list[str]:
    return [one["session_id"] for one in list_recent(agent, str(project) if project else None, limit, **more)]


def test_newest_first_of_this_project_and_agent(world, shop):
    first = world.claude(shop, "one", "1")
    second = world.codex(shop, "two", "2")
    world.claude(world.repository("elsewhere"), "three", "3")
    third = world.claude(shop, "four", "4")

    assert ids("both", shop) == [third, second, first]
    assert ids("claude", shop) == [third, first]
    assert ids("both", shop, 1) == [third]
    assert len(ids("both", None, everywhere=True)) == 4


def test_no_index_and_no_model_are_needed(world, shop):
    world.claude(shop, "one", "1")

    ids("both", shop)

    assert not (world.home / ".smart-fork").exists()


def test_machines_sessions_are_listed_on_request(world, shop):
    machine = world.codex(shop, "one", "1", source="exec", originator="codex_exec")

    assert ids("both", shop) == []
    assert ids("both", shop, automated=True) == [machine]


def test_only_the_beginning_of_a_log_is_read(world, shop, monkeypatch):
    session_id = world.claude(shop, "one", "1")
    log = world.log_of(session_id)
    with log.open("ab") as file:
        file.write(log.read_bytes().splitlines()[-1].ljust(GLANCE_BYTES) + b"\n")
        file.write(b"\xff not read\n" * 100)
    seen = []
    loads = orjson.loads
    monkeypatch.setattr("orjson.loads", lambda raw: (seen.append(raw), loads(raw))[1])

    assert ids("claude", shop) == [session_id]
    assert not any(b"not read" in raw for raw in seen)


def test_a_log_that_breaks_its_reader_hides_no_other(world, shop, monkeypatch):
    good, bad = world.claude(shop, "one", "1"), world.claude(shop, "two", "2")
    from indexer.transcripts.claude import ClaudeAdapter

    glance = ClaudeAdapter.glance

    def glance_or_break(self, path):
        if bad in path.name:
            raise KeyError("odd")
        return glance(self, path)

    monkeypatch.setattr(ClaudeAdapter, "glance", glance_or_break)

    assert ids("claude", shop) == [good]


def test_a_projects_own_sessions_are_found_behind_many_of_others(world, shop, monkeypatch):
    monkeypatch.setattr(recent, "MAX_LOOKED_AT", 3)
    own = world.claude(shop, "one", "1")
    other = world.repository("elsewhere")
    for number in range(5):
        world.claude(other, f"other {number}", "x")

    assert ids("both", shop) == [own]


def test_a_wrong_request_is_refused(world, shop):
    with pytest.raises(Usage, match="agent_type"):
        ids("gemini", shop)
    with pytest.raises(Usage, match="limit must be at least 1"):
        ids("both", shop, 0)
    with pytest.raises(Usage, match="does not exist"):
        ids("both", "/no/such/place")


def test_the_time_is_that_of_the_log(world, shop):
    session_id = world.claude(shop, "one", "1")
    os.utime(world.log_of(session_id), (0, 0))

    assert list_recent("both", str(shop), 1)[0]["last_modified"] == "1970-01-01T00:00:00.000Z"
