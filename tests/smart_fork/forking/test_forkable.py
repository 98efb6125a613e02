"""Tests that one function decides both `can_fork` of a result and the refusal of a fork."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from smart_fork.agents.request_fields import Options
from smart_fork.errors import NotFound, SmartForkError
from smart_fork.excise import erasure
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import ForkRequest
from tests.smart_fork.world import World, add_program
from tests.support.cases import thorough_except_first

INTENT = "add retry with backoff to the uploader"
Case = Callable[[World, Path, str], None]


def moved(world: World, session_id: str, cwd: str | None) -> None:
    """Rewrite the log so that the session worked in `cwd`."""
    log = world.log_of(session_id)
    records = [json.loads(line) for line in log.read_text().splitlines()]
    for record in records:
        for part in (record, record.get("payload", {})):
            if "cwd" in part:
                part.update({"cwd": cwd} if cwd is not None else {})
                if cwd is None:
                    del part["cwd"]
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    if cwd is None and "/projects/" in str(log):  # its folder's name must not tell either
        folder = log.parent.with_name("-no-where")
        folder.mkdir()
        log.rename(folder / log.name)


CASES: dict[str, tuple[Case, bool]] = {
    "all is well": (lambda world, shop, one: None, True),
    "it does not say where it worked": (lambda world, shop, one: moved(world, one, None), False),
    "where it worked is no path of this system": (lambda world, shop, one: moved(world, one, "C:\\shop"), False),
    "its directory is gone": (lambda world, shop, one: moved(world, one, str(shop.parent / "gone")), False),
    "its directory is gone from its repository": (lambda world, shop, one: moved(world, one, str(shop / "gone")), True),
    "its directory is a file now": (lambda world, shop, one: moved(world, one, str(shop / ".git/HEAD")), False),
    "its directory's name is too long": (lambda world, shop, one: moved(world, one, f"/{'x' * 5000}"), False),
    "its log is gone, and kept": (lambda world, shop, one: world.log_of(one).unlink(), True),
    "its log is gone, and not kept": (
        lambda world, shop, one: (world.log_of(one).unlink(), shutil.rmtree(world.home / ".smart-fork/kept")), False,
    ),
    "its log has been emptied": (lambda world, shop, one: world.log_of(one).write_text(""), False),
    "its program is gone": (
        lambda world, shop, one: [(world.home / "bin" / name).unlink() for name in ("claude", "codex")], False,
    ),
    "its program is too old": (
        lambda world, shop, one: [add_program(world.home / "bin", name, "nothing") for name in ("claude", "codex")], False,
    ),
}  # fmt: skip


def can_fork(world: World, shop: Path, **more: object) -> bool:
    (hit,) = world.find(INTENT, shop, all_projects=True, include_automated=True, **more)["results"]
    assert hit["can_fork"] is ("warning" not in hit)
    return hit["can_fork"]


def refused(session_id: str, cwd: Path | None = None) -> str:
    try:
        fork_session(
            ForkRequest(session_id, Options("go on", place="process"), dry_run=True, cwd=str(cwd) if cwd else None)
        )
    except SmartForkError as error:
        return error.message or "refused"
    return ""


@pytest.mark.parametrize("agent", thorough_except_first(["claude", "codex"]))
@pytest.mark.parametrize("case", CASES)
def test_what_a_result_says_of_forking_is_what_a_fork_does(world, shop, agent, case, monkeypatch):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "true")
    session_id = world.worked(agent, shop, f"> {INTENT}", "Done")
    before = moved.__name__ in CASES[case][0].__code__.co_names
    if not before:
        world.find(INTENT, shop)
    CASES[case][0](world, shop, session_id)
    monkeypatch.setattr("smart_fork.agents.programs._seen", {})
    if case == "its log has been emptied":
        world.find(INTENT, shop)
        monkeypatch.setenv("SMART_FORK_INDEXING", "false")  # the index does not know yet

    assert CASES[case][1] is can_fork(world, shop)
    assert CASES[case][1] is not bool(refused(session_id))


@pytest.mark.parametrize("agent", ["claude", "codex"])
@pytest.mark.parametrize("cwd", [None, "gone"])
def test_where_it_is_said_where_the_fork_works_its_own_directory_is_not_needed(world, shop, agent, cwd):
    session_id = world.worked(agent, shop, f"> {INTENT}", "Done")
    moved(world, session_id, cwd and str(shop / cwd))

    assert can_fork(world, shop, works_in=str(shop))
    assert "" == refused(session_id, shop)


def test_a_sub_agent_s_session_is_refused_as_its_result_says(world, shop):
    session_id = world.claude(shop, INTENT, "Done", teamName="reviewers")

    assert not can_fork(world, shop)
    assert "sub-agent" in refused(session_id)


def test_an_automated_session_can_be_forked(world, shop):
    session_id = world.codex(shop, INTENT, "Done", source="exec", originator="codex_exec")

    assert can_fork(world, shop)
    assert "" == refused(session_id)


def test_one_that_was_forgotten_is_no_result(world, shop):
    session_id = world.claude(shop, INTENT, "Done")
    world.find(INTENT, shop)
    erasure.forget(session_id)

    assert [] == world.ids(INTENT, shop)


@pytest.mark.skipif(sys.platform != "win32" and os.geteuid() == 0, reason="root may read everything")
def test_a_log_that_may_not_be_read_is_said_and_refused(world, shop):
    session_id = world.claude(shop, INTENT, "Done")
    world.find(INTENT, shop)
    world.log_of(session_id).chmod(0)

    assert not can_fork(world, shop)
    with pytest.raises(NotFound):
        fork_session(ForkRequest(session_id, Options("go on", place="process"), dry_run=True))
