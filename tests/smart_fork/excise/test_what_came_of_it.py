"""All commands that remove text use one list of everything made from a session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import smart_fork
from indexer import kept_logs
from indexer.safe_files import index_db
from indexer.session_export import export_path
from smart_fork.excise import Request, check, cut
from smart_fork.excise.lookup import load_auto
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.excise.test_following import SECRET, holders, indexed, numbers
from tests.smart_fork.session_family import branch
from tests.smart_fork.world import World
from tests.support.cases import thorough_except_first

pytestmark = [pytest.mark.usefixtures("command_model"), pytest.mark.slow]
#: No mask takes it for a secret, and everything that the two sessions share has it.
SAID = (f"we meet in {SECRET} today", f"noted: {SECRET}")
TITLE = f"Meeting in {SECRET}"


def native_copy(world: World, shop: Path, of: str) -> str:
    """A copy that only the agent knows, with its title. The original continues by itself."""
    old = [json.loads(line) for line in world.log_of(of).read_text().splitlines()]
    last = [one for one in old if "uuid" in one][-1]["uuid"]
    copy = world.claude(shop, "x")
    own, more = (world.claude_records(one, shop, "in blue", "blue") for one in (copy, of))
    own[0]["parentUuid"] = more[0]["parentUuid"] = last
    world.write_claude(copy, shop, [one | {"sessionId": copy} for one in old] + own)
    world.write_claude(of, shop, more, mode="a")
    return copy


@pytest.fixture
def session_id(world, shop) -> str:
    made = world.claude(shop, *SAID)
    world.write_claude(made, shop, [{"type": "ai-title", "aiTitle": TITLE, "sessionId": made}], mode="a")
    return made


@pytest.mark.parametrize("forked", thorough_except_first([True, False]))
def test_a_native_copy_that_shares_nothing_any_more_is_named_for_its_title(world, shop, session_id, run, forked):  # noqa: F811
    copy = native_copy(world, shop, session_id)
    if forked:
        branch(copy)
    indexed()
    for one in (session_id, copy):
        cut(Request(one, numbers(one), force=True))
    titles = [turn.id for turn in load_auto(world.log_of(session_id)).turns if SECRET.encode() in turn.raw]
    done = cut(Request(session_id, ids=titles, force=True))
    indexed()

    have = {str(path) for path in holders(world.home)}
    assert str(world.log_of(copy)) in have
    assert have <= {one["path"] for one in done["left"]}
    assert have <= {one["path"] for one in check(session_id)["copies"]}
    assert 1 == run("excise", "verify", session_id).code


def test_our_own_files_of_a_session_that_has_it_are_named_beside_its_log(world, shop, session_id, monkeypatch):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "true")
    copy = native_copy(world, shop, session_id)
    indexed()
    done = cut(Request(session_id, numbers(session_id), force=True))

    own = {str(index_db()), str(export_path("claude", copy)), str(kept_logs.find("claude", copy).folder)}
    named = {one["path"] for one in done["left"]}
    assert {str(world.log_of(copy)), *own} <= named == {one["path"] for one in check(session_id)["copies"]}
    cut(Request(copy, numbers(copy), force=True))
    indexed()
    assert own.isdisjoint(one["path"] for one in check(session_id)["copies"])


def test_who_forgets_a_session_is_told_what_came_of_it_and_is_left(world, shop, session_id, run):  # noqa: F811
    copy, told = native_copy(world, shop, session_id), branch(session_id, as_agent="codex")
    gone = branch(session_id)
    indexed()
    Path(gone["path"]).unlink()
    done = smart_fork.forget(session_id)

    assert done.erased
    left = {one.path: one.reason for one in done.left}
    assert {str(world.log_of(copy)), told["path"], str(export_path("claude", gone["session_id"]))} == set(left)
    assert f"smart-fork forget {told['session_id']}" in left[told["path"]]
    for one in (copy, told["session_id"], gone["session_id"]):
        assert 0 == run("forget", one, "--yes").code
    assert smart_fork.forget(session_id).left is None
