"""Sessions that a repository keeps as checkpoints are sessions of their authors: found, listed, shown and forked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smart_fork import sessions
from smart_fork.agents import READERS, checkpoints
from tests.smart_fork.checkpointed import THERE, Entry, claude, commit, frozen, jsonl, session
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.world import World, git

RETRY = "add retry with backoff to the uploader"
DONE = "The uploader retries five times"
ALICES = "60309e1e-0000-4000-8000-0000000000a1"
SECOND = "70309e1e-0000-4000-8000-0000000000a2"


@pytest.fixture
def kept(world: World, shop: Path) -> Path:
    """A clone with one checkpoint of Alice's."""
    commit(shop, "a1b2c3d4e5f6", session(ALICES, claude(world, ALICES, RETRY, DONE)), session_id=ALICES)
    return shop


def test_it_is_found_as_its_authors_and_works_here(kept, world):
    found = world.find(RETRY, kept)

    (hit,) = found["results"]
    assert (ALICES, "Alice", str(kept)) == (hit["session_id"], hit["author"], hit["working_directory"])
    assert f"smart-fork fork {ALICES}" == hit["fork_command"]
    assert "written by others (Alice)" in found["notice"]


def test_it_is_listed_before_and_after_it_is_indexed(kept, world, run):  # noqa: F811
    for title in ("add retry", RETRY):
        (one,) = json.loads(run("list", "--json").out)["sessions"]
        assert (ALICES, "Alice", title) == (one["session_id"], one["author"], one["title"])
        assert "(shared by Alice)" in run("list").out
        world.find(RETRY, kept)


def test_it_is_shown_as_its_authors(kept, run):  # noqa: F811
    run("list")
    shown = json.loads(run("show", ALICES[:8], "--json").out)

    assert ("Alice", [RETRY, DONE]) == (shown["owner"], [one["text"] for one in shown["messages"]])
    assert "written by others (Alice)" in shown["notice"]


def test_where_no_ref_has_moved_git_is_not_asked(kept, world, monkeypatch):
    world.find(RETRY, kept)

    def refused(*_, **__):
        raise AssertionError("git was asked")

    monkeypatch.setattr(checkpoints, "_git", refused)
    assert [ALICES] == world.ids(RETRY, kept)


def test_a_session_in_several_checkpoints_is_one_in_its_newest_form(kept, world):
    longer = claude(world, ALICES, RETRY, DONE, "and a jitter", "A tenth of jitter was added")
    commit(kept, "b1b2c3d4e5f6", session(ALICES, longer, created="2026-01-03T03:04:05Z"), session_id=ALICES)
    older = claude(world, ALICES, RETRY, "Half of it is there")
    commit(kept, "c1b2c3d4e5f6", session(ALICES, older, created="2026-01-01T03:04:05Z"), session_id=ALICES)

    (hit,) = world.find("jitter", kept)["results"]
    assert (ALICES, 2) == (hit["session_id"], hit["turns"] // 2)


def test_a_branch_that_moves_is_noticed_and_what_it_has_no_more_is_gone(kept, world, home):
    assert [ALICES] == world.ids(RETRY, kept)
    commit(kept, "b1b2c3d4e5f6", session(SECOND, claude(world, SECOND, "paginate the list", "It has pages")))
    assert SECOND in world.ids("paginate the list", kept)

    commit(kept, "a1b2c3d4e5f6", [], remove="a1/b2c3d4e5f6")
    assert [SECOND] == world.ids(RETRY, kept)
    assert [f"{SECOND}.md"] == [path.name for path in (home / ".smart-fork/index/claude").iterdir()]
    git(kept, "update-ref", "-d", "refs/heads/entire/checkpoints/v1")
    assert [] == world.ids(RETRY, kept)


def test_one_that_is_among_the_persons_own_is_theirs(kept, world):
    assert [ALICES] == world.ids(RETRY, kept)
    world.claude(kept, "my own words about retry", DONE, session_id=ALICES)

    (hit,) = world.find("my own words about retry", kept)["results"]
    assert "author" not in hit
    assert ".claude" in hit["jsonl_path"]


def test_what_a_person_forgot_does_not_come_back(kept, world, run):  # noqa: F811
    assert [ALICES] == world.ids(RETRY, kept)
    assert 0 == run("forget", ALICES, "--yes").code
    assert [] == world.ids(RETRY, kept)
    longer = claude(world, ALICES, RETRY, DONE, "and a jitter", "A tenth of jitter was added")
    commit(kept, "b1b2c3d4e5f6", session(ALICES, longer, created="2026-01-03T03:04:05Z"))

    assert [] == world.ids(RETRY, kept)
    assert [] == json.loads(run("list", "--json").out)["sessions"]


def test_one_setting_switches_it_off(kept, world, monkeypatch):
    assert [ALICES] == world.ids(RETRY, kept)
    monkeypatch.setenv("SMART_FORK_CHECKPOINTS", "false")
    assert [] == world.ids(RETRY, kept)
    monkeypatch.delenv("SMART_FORK_CHECKPOINTS")
    assert [ALICES] == world.ids(RETRY, kept)


@pytest.mark.parametrize(
    "ref",
    [
        "refs/remotes/upstream/entire/checkpoints/v1",
        "refs/entire/checkpoints/v1.1",
        "refs/entire/remotes/origin/checkpoints/v1.1",
        "refs/entire/checkpoints/f6/a1b2c3d4e5f6",
        "refs/entire/checkpoints/ZN/01KVBJCWYA4YW6J5M9GP655HZN",
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_each_form_of_the_refs_is_read(ref, packed, world, shop):
    name = ref.rpartition("/")[2]
    commit(
        shop, name if "v1" not in name else "a1b2c3d4e5f6", session(ALICES, claude(world, ALICES, RETRY, DONE)), ref=ref
    )
    if packed:
        git(shop, "pack-refs", "--all")

    (hit,) = world.find(RETRY, shop)["results"]
    assert (ALICES, "Alice") == (hit["session_id"], hit["author"])


def test_a_transcript_in_parts_is_put_together(world, shop):
    first, second = claude(world, ALICES, RETRY, DONE).splitlines()
    (facts, _, prompt) = session(ALICES, b"")
    parts = [Entry("0/full.jsonl", first), Entry("0/full.jsonl.001", second)]
    commit(shop, "a1b2c3d4e5f6", [facts, prompt, *parts])

    (hit,) = world.find(RETRY, shop)["results"]
    assert 2 == hit["turns"]


def test_a_session_of_codex_is_found(world, shop):
    session_id = world.codex(THERE, RETRY, DONE)
    log = world.log_of(session_id)
    data = log.read_bytes()
    log.unlink()
    commit(shop, "a1b2c3d4e5f6", session(session_id, data, agent="Codex"))

    (hit,) = world.find(RETRY, shop)["results"]
    assert (session_id, "codex", str(shop)) == (hit["session_id"], hit["agent_type"], hit["working_directory"])


def test_paths_of_its_edits_are_this_clones(world, shop):
    edit = {"file_path": f"{THERE}/src/upload.py", "old_string": "a", "new_string": "b"}
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "Edit", "input": edit}]}
    records = world.claude_records(ALICES, f"{THERE}/src", RETRY, DONE)
    records[1]["message"] = call
    back = world.claude_records(ALICES, f"{THERE}/src", "x", "Done in /Users/alice/notes")
    back[0] |= {"parentUuid": records[1]["uuid"]}
    back[0]["message"]["content"] = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}]
    commit(shop, "a1b2c3d4e5f6", session(ALICES, jsonl([*records, *back]), files_touched=["src/upload.py"]))
    checkpoints.note(shop)

    read = sessions.read(sessions.locate(ALICES))
    assert [str(shop / "src/upload.py")] == [
        path for turn in read.turns for one in turn.tool_calls for path in one.edits
    ]
    assert (str(shop / "src"), f"Done in {Path.home()}/notes") == (read.cwd, read.turns[-1].text)


def test_nothing_is_written_into_the_repository(kept, world, run):  # noqa: F811
    before = frozen(kept)
    world.find(RETRY, kept)
    run("list")
    run("show", ALICES)

    assert before == frozen(kept)
    assert 1 == len(list(READERS["claude"].discover()))
