"""Tests of recent sessions, read from the logs (F-132, F-136)."""

from __future__ import annotations

import json
import os
import shutil
import uuid

import orjson
import pytest

from indexer.transcripts.lines import GLANCE_BYTES
from smart_fork.agents.claude.log_files import ClaudeAdapter
from smart_fork.errors import Usage
from smart_fork.finding import recent, session_notes
from smart_fork.finding.recent import list_recent
from tests.smart_fork.world import git

#: What Claude Code writes of a session that a program has started.
PROGRAM = {"entrypoint": "sdk-cli", "promptSource": "sdk", "origin": None}


def ids(agent: str, project, limit: int = 20, **more: object) -> list[str]:
    return [one.session_id for one in list_recent(agent, str(project) if project else None, limit, **more).sessions]


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


def test_only_the_beginning_and_the_end_of_a_log_are_read(world, shop, monkeypatch):
    session_id = world.claude(shop, "one", "1")
    log = world.log_of(session_id)
    last = log.read_bytes().splitlines()[-1]
    with log.open("ab") as file:
        file.write(last.ljust(GLANCE_BYTES) + b"\n")
        file.write(b"\xff not read\n" * 10_000)
        file.write((last + b"\n") * 30)
    seen = []
    loads = orjson.loads
    monkeypatch.setattr("orjson.loads", lambda raw: (seen.append(raw), loads(raw))[1])

    assert ids("claude", shop) == [session_id]
    assert not any(b"not read" in raw for raw in seen)


def test_a_log_that_breaks_its_reader_hides_no_other(world, shop, monkeypatch):
    good, bad = world.claude(shop, "one", "1"), world.claude(shop, "two", "2")
    from smart_fork.agents.claude.log_files import ClaudeAdapter

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
        ids("nobody", shop)
    with pytest.raises(Usage, match=r"^limit "):
        ids("both", shop, 0)
    with pytest.raises(Usage, match="does not exist"):
        ids("both", "/no/such/place")


def append(log, *records):
    with log.open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_session_s_time_is_that_of_its_last_work_whatever_touches_its_file(world, shop, agent, indexed):
    """A later title, a restored backup and a copy of the home do not count as work."""
    old, new = (getattr(world, agent)(shop, words, "done", "and then", "done") for words in ("old", "new"))
    worked = json.loads(world.log_of(new).read_text().splitlines()[-1])["timestamp"]
    if agent == "claude":
        append(world.log_of(old), {"type": "ai-title", "aiTitle": "Old", "sessionId": old}, {"type": "mode"})
    os.utime(world.log_of(old), (4e9, 4e9))
    os.utime(world.log_of(new), (315_532_800, 315_532_800))  # what an archive says that keeps no times
    if indexed:
        world.find("anything", shop)

    found = list_recent("both", str(shop), 5).sessions

    assert [one.session_id for one in found] == [new, old]
    assert found[0].last_modified == worked


@pytest.mark.parametrize(
    ("moment", "tells"),
    [
        ("2099-01-01T00:00:00.000Z", False),
        ("1970-01-01T00:00:00.000Z", False),
        ("0001-01-01T00:00:00Z", False),
        ("yesterday", False),
        (None, False),
        (-5, False),
        (4_102_444_800_000, False),
        (1_770_000_000, True),
        (1_770_000_000_000, True),
        ("1770000000123", True),
        ("2026-02-02T02:40:00.000Z", True),
        ("2026-02-02T03:40:00+01:00", True),
    ],
)
def test_only_a_time_that_can_be_one_is_the_time_of_a_session(world, shop, moment, tells):
    other, session_id = world.claude(shop, "one", "1"), world.claude(shop, "two", "2")
    log = world.log_of(session_id)
    first, last = map(json.loads, log.read_text().splitlines())
    append(log, last | {"uuid": str(uuid.uuid4()), "parentUuid": last["uuid"], "timestamp": moment})

    found, read = list_recent("both", str(shop), 5).sessions[0], ClaudeAdapter().read(log).session

    assert found.session_id == session_id
    assert ("2026-02-02T02:40:00" == found.last_modified[:19]) is tells
    assert tells or found.last_modified == last["timestamp"]
    assert (read.started, read.last_activity) == (first["timestamp"], found.last_modified)
    assert other in ids("both", shop)


def test_a_log_without_times_has_the_time_of_its_file(world, shop):
    session_id = world.claude(shop, "one", "1", timestamp=None)
    os.utime(world.log_of(session_id), (1_770_000_000, 1_770_000_000))

    assert list_recent("both", str(shop), 1).sessions[0].last_modified == "2026-02-02T02:40:00.000Z"


def test_the_last_time_stands_before_a_long_tail_of_records_without_one(world, shop):
    long, later = world.claude(shop, "one", "x" * GLANCE_BYTES, "more", "1"), world.claude(shop, "two", "2")
    last = json.loads(world.log_of(long).read_text().splitlines()[-1])["timestamp"]
    append(
        world.log_of(long),
        *({"type": "last-prompt", "lastPrompt": "more" * 1000, "sessionId": long} for _ in range(60)),
    )

    found = list_recent("both", str(shop), 5).sessions

    assert [(later, True), (long, True)] == [(one.session_id, one.last_modified >= last) for one in found]
    assert found[1].last_modified == last


@pytest.mark.slow
def test_a_last_record_of_megabytes_still_tells_its_time(world, shop):
    first, second = world.claude(shop, "one", "1"), world.claude(shop, "two", "2")
    one, *_ = world.claude_records(first, shop, "picture" * 400_000)
    append(world.log_of(first), one)

    assert ids("both", shop) == [first, second]


def test_a_pinned_session_stays_first_and_the_others_follow_by_their_work(world, shop):
    first, second, third = (world.claude(shop, words, "1") for words in ("one", "two", "three"))
    session_notes.mark("claude", first, [session_notes.PINNED])
    os.utime(world.log_of(second), (4e9, 4e9))

    assert ids("both", shop) == [first, third, second]


def test_a_removed_worktree_is_of_the_repository_that_still_lists_it(world, shop):
    for name in ("gone", "kept"):
        git(shop, "worktree", "add", "-q", str(world.home / name))
    session_id = world.claude(world.home / "gone/src", "one", "1")
    shutil.rmtree(world.home / "gone")

    assert [session_id] == ids("both", shop)
    assert [session_id] == ids("both", world.home / "kept")
    assert [] == ids("both", world.repository("elsewhere"))


def test_sessions_that_no_person_started_are_counted_where_they_are_hidden(world, shop):
    world.claude(shop, "one", "1")
    for number in range(3):
        world.claude(shop, f"by a program {number}", "done", **PROGRAM)
    world.claude(world.repository("elsewhere"), "elsewhere", "done", **PROGRAM)

    assert (1, 3) == (len(ids("both", shop)), list_recent("both", str(shop), 20).hidden_automated)
    assert (4, 0) == (
        len(ids("both", shop, automated=True)),
        list_recent("both", str(shop), 20, automated=True).hidden_automated,
    )


def test_sessions_of_two_agents_may_have_one_id(world, shop):
    session = world.codex(shop, "add retry", "done")
    world.claude(shop, "add retry", "done", session_id=session)

    assert {("claude", session), ("codex", session)} == {
        (one.agent_type, one.session_id) for one in list_recent("all", str(shop), 5).sessions
    }
