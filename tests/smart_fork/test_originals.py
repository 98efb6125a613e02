"""The log of a session that goes furthest is the session; of equal ones that where it was begun (F-060, F-103)."""

from __future__ import annotations

import json
import os
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from indexer.json_values import json_of
from smart_fork.agents.claude.log_files import folder_of
from smart_fork.agents.copier import NewSession
from smart_fork.agents.storage import Storage
from smart_fork.errors import NotFound
from smart_fork.excise import Request, check, cut, rollback
from smart_fork.finding import session_lookup
from smart_fork.finding.recent import list_recent
from smart_fork.forking.copies import write_branch
from smart_fork.system.processes import Processes
from smart_fork.workers.registry import Registry
from smart_fork.workers.termination import close_workers
from smart_fork.workers.worktree import Worktree
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.session_family import branch, lineage
from tests.support.cases import thorough_except_first

pytestmark = pytest.mark.usefixtures("command_model")
NOW = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001 - Codex names its files by local time
SAID = ("add retry to the uploader", "retries are there", "the passphrase is swordfish", "I will remember swordfish")


@pytest.fixture
def born(world, shop) -> Path:
    """The log of a session of the repository, with something beside it."""
    log = world.log_of(world.claude(shop, *SAID))
    beside = log.with_suffix("") / "tool-results"
    beside.mkdir(parents=True)
    (beside / "long.txt").write_text("long")
    return log


@pytest.fixture
def tree(shop):
    """A worktree of a worker that has ended."""
    made = Worktree.create(shop, "tree", Processes())
    with Registry() as registry:
        worker = registry.add(
            "claude", source_session_id="s", place="process", cwd=made.path, worktree=made.path, branch=made.branch,
            base_commit=made.base,
        )  # fmt: skip
        registry.set_state(worker.id, "ended")
    return made.path


def staged(log: Path, directory: Path) -> Path:
    """A copy as a fork into that directory has it made: newer than the original."""
    made = Storage.stage(log, log.stem, folder_of(directory))
    with Registry() as registry:
        registry.add_staged_copy(made.path, session_id=log.stem, source_path=log)
    later = log.stat().st_mtime + 600
    os.utime(made.path, (later, later))
    return made.path


def go_on(world, log: Path, cwd: Path, *said: str) -> None:
    """What is written when the session is resumed there."""
    before = [json.loads(line) for line in log.read_text().splitlines()]
    records = world.claude_records(log.stem, cwd, *said)
    records[0]["parentUuid"] = before[-1]["uuid"]
    for record in records:
        record["timestamp"] = (datetime.fromisoformat(before[-1]["timestamp"]) + timedelta(hours=1)).isoformat()
    with log.open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def ids(log: Path, word: str) -> list[str]:
    return [json.loads(line)["uuid"] for line in log.read_text().splitlines() if word in line]


@pytest.mark.parametrize(
    ("first_seen", "more"), thorough_except_first([("original", ()), ("copy", ()), ("copy", ("more", "done there"))])
)
def test_every_answer_names_the_log_that_goes_furthest_else_the_original(world, born, tree, first_seen, more):
    shop = tree.parent.parent
    if first_seen == "original":
        world.find("retry", shop)
    copy = staged(born, tree)
    if more:
        go_on(world, copy, tree, *more)
    if first_seen == "copy":
        away = born.rename(world.home / "away")
        world.find("retry", shop)
        away.rename(born)

    longest, other = (copy, born) if more else (born, copy)
    found = world.find("retry to the uploader", shop)["results"]
    assert [str(longest)] == [one["jsonl_path"] for one in found]
    assert [str(longest)] == [one.jsonl_path for one in list_recent("both", str(shop), 9).sessions]
    assert (
        longest
        == session_lookup.locate(born.stem).path
        == session_lookup.read(session_lookup.locate(born.stem[:8])).source_path
    )
    (told,) = lineage(born.stem)["sessions"]
    assert (str(longest), [str(other)]) == (told["jsonl_path"], told["copies"])
    assert [len(SAID + more)] * 2 == [branch(born.stem)["copied"], found[0]["turns"]]


def test_one_that_drifted_into_the_directory_of_its_copy_is_still_the_original_of_equal_ones(world, shop, born, tree):
    """Also where nobody knows any more who made the copy."""
    go_on(world, born, tree, "look into the worktree", "done")
    copy = folder_of(tree) / born.name
    copy.parent.mkdir()
    shutil.copyfile(born, copy)

    assert born == session_lookup.locate(born.stem).path
    assert [str(born)] == [one["jsonl_path"] for one in world.find("retry to the uploader", shop)["results"]]


def test_of_copies_that_nothing_tells_apart_the_one_that_we_made_is_not_the_original(world, shop, tree):
    """A log without any directory in it."""
    records = [record | {"cwd": ""} for record in world.claude_records("", shop, *SAID)]
    session_id = "11111111-aaaa-4000-8000-000000000001"
    log = world.write_claude(session_id, shop, records)
    copy = staged(log, tree)

    assert log == session_lookup.locate(session_id).path
    world.find("retry", shop, all_projects=True)
    assert copy.exists()


def test_an_archived_or_misfiled_rollout_is_not_the_original(world, shop):
    session_id = world.codex(shop, *SAID)
    log = world.log_of(session_id)
    for folder in ("archived_sessions", "sessions/2027/07/07"):
        copy = world.home / ".codex" / folder / log.name
        copy.parent.mkdir(parents=True)
        shutil.copyfile(log, copy)

    assert log == session_lookup.locate(session_id).path
    assert [str(log)] == [one["jsonl_path"] for one in world.find("retry to the uploader", shop)["results"]]
    assert [str(log)] == [one.jsonl_path for one in list_recent("both", str(shop), 9).sessions]


def test_when_the_agent_has_deleted_the_original_its_copy_is_the_session_and_only_once(world, shop, born, tree):
    copy = staged(born, tree)
    world.find("retry", shop)
    born.unlink()

    (found,) = world.find("retry to the uploader", shop)["results"]
    assert (str(copy), True) == (found["jsonl_path"], found["can_fork"])
    assert copy == session_lookup.locate(born.stem).path
    assert 1 == len(list_recent("both", str(shop), 9).sessions)


@pytest.mark.slow
def test_a_cut_by_id_cuts_the_original_and_its_copies_and_one_rollback_puts_all_back(world, shop, born, tree):
    copy = staged(born, tree)
    before = born.read_bytes()

    outcome = cut(Request(born.stem, ids=ids(born, "swordfish")))

    assert (str(born), [str(copy)]) == (outcome["path"], [one["path"] for one in outcome["followed"]])
    for path in (born, copy):
        assert "swordfish" not in path.read_text()
    assert check(born.stem)["ok"]
    undone = rollback(outcome["snapshot"])
    assert (before, before) == (born.read_bytes(), copy.read_bytes())
    assert {str(born), str(copy)} == {undone["path"], *(one["path"] for one in undone["followed"])}


def test_verify_finds_what_was_cut_in_a_copy_that_did_not_follow(world, shop, born, tree):
    copy = staged(born, tree)

    cut(Request(born.stem, ids=ids(born, "swordfish"), follow=False))

    found = check(born.stem)
    assert (False, [str(copy)]) == (found["ok"], [one["path"] for one in found["copies"]])
    assert "swordfish" in found["copies"][0]["words_found"]


def test_a_fork_at_a_message_is_made_of_the_original(world, shop, born, tree):
    copy = staged(born, tree)
    cut(Request(str(copy), ids=ids(copy, "swordfish"), follow=False))
    session = session_lookup.read(session_lookup.locate(born.stem))

    made = write_branch(
        session, at=session.turns[3].id,
        becomes=NewSession("11111111-aaaa-4000-8000-000000000009", shop, NOW),
    )  # fmt: skip

    assert "swordfish" in made.path.read_text()


# -- what becomes of the copies


def test_pruning_a_worktree_takes_the_copy_that_was_staged_for_it_and_nothing_else(world, shop, born, tree, run):  # noqa: F811
    copy, elsewhere = staged(born, tree), staged(born, world.home)
    own = world.claude(tree, "the fork's own", "done")

    pruned = json.loads(run("worktrees", "--prune", "--json").out)

    assert ([str(tree)], [str(copy)], []) == (pruned["removed"], pruned["copies"], pruned["notes"])
    assert [False, False, True, True] == [
        path.exists() for path in (copy, copy.with_suffix(""), elsewhere, copy.with_name(f"{own}.jsonl"))
    ]
    assert born.with_suffix("").is_dir()
    assert born == session_lookup.locate(born.stem).path
    with Registry() as registry:
        assert [elsewhere] == [*registry.staged_copies()]


def test_closing_a_worker_with_its_worktree_takes_the_copy_as_well(world, shop, born, tree):
    copy = staged(born, tree)
    with Registry() as registry:
        (worker,) = registry.workers()

    (closed,) = json_of(close_workers([worker.id], remove_worktree=True))

    assert (True, False, True) == (closed["worktree_removed"], copy.exists(), born.exists())


def test_a_copy_in_which_the_session_went_on_is_kept_and_that_is_said(world, shop, born, tree, run):  # noqa: F811
    copy = staged(born, tree)
    go_on(world, copy, tree, "only here", "yes")

    pruned = run("worktrees", "--prune")

    assert copy.exists()
    assert f"{copy} is kept: the session continued in it, 2 records are only there" in pruned.err
    assert f"Removed {tree}" in pruned.out


def test_a_copy_that_is_all_that_is_left_of_a_session_is_kept_and_that_is_said(world, shop, born, tree):
    copy = staged(born, tree)
    born.unlink()
    with Registry() as registry:
        (worker,) = registry.workers()

    (closed,) = json_of(close_workers([worker.id], remove_worktree=True))

    assert copy.exists()
    assert "it is the last copy of this session" in closed["note"]


@pytest.mark.thorough
def test_a_copy_with_other_long_results_beside_it_is_kept(world, shop, born, tree, run):  # noqa: F811
    copy = staged(born, tree)
    (copy.with_suffix("") / "more.txt").write_text("more")

    assert "contains files that the original does not have" in run("worktrees", "--prune").err
    assert copy.exists()


def test_copies_for_a_worktree_that_was_removed_by_hand_go_with_the_next_prune(world, shop, born, tree, run):  # noqa: F811
    copy = staged(born, tree)
    shutil.rmtree(tree)

    run("worktrees", "--prune")

    assert not copy.exists()
    with pytest.raises(NotFound):
        session_lookup.locate("11111111-aaaa-4000-8000-00000000000a")
