"""The changes of a cut are undone together, and a failed cut leaves nothing useless behind."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from smart_fork.agents.excision import snapshots
from smart_fork.errors import ForkRefused
from smart_fork.excise import Refused, Request, check, cut, load_auto, rollback
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.excise.test_crashes import Breaking, no_space
from tests.smart_fork.forks import said, text
from tests.smart_fork.session_family import ids_with, relatives
from tests.support.cases import thorough_except_first

pytestmark = [pytest.mark.usefixtures("command_model"), pytest.mark.slow]


@pytest.fixture
def family(world, shop) -> list[Path]:
    """A session, a copy of it, and two branches by smart-fork."""
    return relatives(world, shop, 2)


def contents(paths: list[Path]) -> list[bytes]:
    return [path.read_bytes() for path in paths]


@pytest.mark.parametrize("which", thorough_except_first([2, 0, 1, 3]))
def test_one_rollback_puts_back_all_files_of_a_cut_whichever_of_its_snapshots_is_named(world, family, which):
    before = contents(family)
    outcome = cut(Request(family[0].stem, ids=ids_with(family[0], "swordfish")))
    after = contents(family)
    assert not any("swordfish" in path.read_text() for path in family)
    assert 3 == len(outcome["followed"])
    names = [outcome["snapshot"], *(one["snapshot"] for one in outcome["followed"])]

    undone = rollback(names[which])

    assert before == contents(family)
    assert {str(path) for path in family} == {undone["path"], *(one["path"] for one in undone["followed"])}
    assert [] == undone["left"]
    rollback(undone["snapshot"])
    assert after == contents(family)


def test_the_command_says_all_that_was_put_back_and_fails_where_something_was_not(run, family):  # noqa: F811
    before = contents(family)
    cutting = run(
        "excise", "cut", family[0].stem, *(f"--id={one}" for one in ids_with(family[0], "swordfish")), "-y"
    ).out
    (undo,) = [line.split()[-1] for line in cutting.splitlines() if line.startswith("Undo: ")]
    family[2].write_bytes(family[2].read_bytes() + family[2].read_bytes() * 3)
    family[3].unlink()

    undone = run("excise", "rollback", undo)

    assert 1 == undone.code
    assert before[:2] == contents(family[:2])
    assert [f"Restored {path} from" in undone.out for path in family] == [True, True, False, False]
    assert f"not restored: {family[2]}: The session continued after the cut" in undone.err
    assert f"not restored: {family[3]}: it no longer exists" in undone.err
    assert not family[3].exists()


@pytest.mark.thorough
def test_what_is_as_it_was_already_is_no_error_and_makes_no_snapshot(world, family):
    outcome = cut(Request(family[0].stem, ids=ids_with(family[0], "swordfish")))
    rollback(outcome["snapshot"])
    count = len(snapshots.snapshots())

    again = rollback(outcome["snapshot"])

    assert (None, count) == (again["snapshot"], len(snapshots.snapshots()))


@pytest.mark.thorough
def test_a_snapshot_that_is_put_elsewhere_puts_back_nothing_else(world, family):
    outcome = cut(Request(family[0].stem, ids=ids_with(family[0], "swordfish")))
    after = contents(family)

    rollback(outcome["snapshot"], to=world.home / "there.jsonl")

    assert after == contents(family)


@pytest.mark.thorough
def test_the_snapshot_of_a_cut_that_failed_can_be_used(claude_session):
    """The snapshot was taken before the step that failed."""
    before, failed = claude_session.read_bytes(), 0
    for number in range(1, 20):
        known = {one.id for one in snapshots.snapshots()}
        try:
            cut(Request(str(claude_session), ids=("a3",)), disk=Breaking(number, no_space))
        except OSError:
            failed += len(snapshots.snapshots()) - len(known)
        for one in snapshots.snapshots():
            if one.id not in known:
                rollback(one.id)
                assert before == claude_session.read_bytes()
    assert failed > 2


def test_what_was_said_after_a_cut_that_failed_is_not_undone_by_its_snapshot(claude_session):
    planned = ("a3",)
    with pytest.raises(OSError, match="No space"):
        cut(Request(str(claude_session), ids=planned), disk=Breaking(9, no_space))
    (snapshot,) = snapshots.snapshots()
    with claude_session.open("a") as file:
        file.write(json.dumps(said("u9", "a5", "user", "go on")) + "\n")

    with pytest.raises(ForkRefused, match="continued after the cut"):
        rollback(snapshot.id)


# -- what verify finds


def test_verify_finds_a_call_whose_result_a_forced_cut_has_taken(claude_session):
    assert check(str(claude_session))["ok"]

    outcome = cut(Request(str(claude_session), ids=("r1",), force=True))

    found = check(str(claude_session))
    assert (False, [{"turn_id": "a3", "reason": "calls t1, but their result was cut"}]) == (
        found["ok"],
        found["dangling"],
    )
    rollback(outcome["snapshot"])
    assert check(str(claude_session))["ok"]


def test_verify_is_content_with_a_call_that_its_agent_has_left_unanswered(world, shop):
    session = "11111111-aaaa-4000-8000-000000000001"
    tool = [{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}]
    records = [
        said("u1", None, "user", "go"), said("a1", "u1", "assistant", tool), said("u2", "a1", "user", "on"),
        said("a2", "u2", "assistant", text("done")), said("u3", "a2", "user", "more"),
    ]  # fmt: skip
    path = world.write_claude(session, shop, [one | {"sessionId": session, "cwd": str(shop)} for one in records])

    cut(Request(str(path), ids=("u3",)))

    assert check(str(path))["ok"]


def test_codex_s_header_only_goes_when_it_is_insisted_on_and_verify_says_what_is_broken(codex_session):
    before = codex_session.read_bytes()

    with pytest.raises(Refused, match="without turn 0, its header, Codex can no longer load the session"):
        cut(Request(str(codex_session), ids=("0",)))
    dry = cut(Request(str(codex_session), ids=("0",), dry_run=True))

    assert ["without turn 0, its header, Codex can no longer load the session"] == [
        one["reason"] for one in dry["warnings"]
    ]
    assert before == codex_session.read_bytes()
    cut(Request(str(codex_session), ids=("0",), force=True))
    found = check(str(codex_session))
    assert not found["ok"]
    assert "not session_meta" in found["dangling"][0]["reason"]


# -- Cursor


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Cursor's database with two conversations."""
    path = tmp_path / "state.vscdb"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE cursorDiskKV (key TEXT UNIQUE, value BLOB)")
    add(path, *(f"c1:b{n}" for n in range(1, 6)), "c2:x1", "c2:x2")
    return path


def add(database: Path, *names: str) -> None:
    rows = []
    for name in names:
        bubble = {"type": 1, "text": f"says {name}", "bubbleId": name.partition(":")[2]}
        rows.append((f"bubbleId:{name}", json.dumps(bubble)))
    with closing(sqlite3.connect(database)) as db, db:
        db.executemany("INSERT INTO cursorDiskKV VALUES (?, ?)", rows)


def bubbles(path: Path, composer: str = "") -> list[str]:
    return [turn.id for turn in load_auto(path).turns] if not composer else [
        json.loads(line)["bubble"]["bubbleId"] for line in path.read_text().splitlines()
        if json.loads(line)["composerId"] == composer
    ]  # fmt: skip


def test_a_second_cut_of_a_database_keeps_what_the_first_cut_out(database):
    side = database.with_name("state.vscdb.excised.jsonl")
    cut(Request(str(database), ids=("b2", "b5")))
    first = side.read_bytes()
    assert ["b1", "b3", "b4"] == bubbles(database)

    second = cut(Request(str(database), ids=("b3",)))

    assert ["b1", "b4"] == bubbles(side) == bubbles(database)
    rollback(second["snapshot"])
    assert first == side.read_bytes()
    assert ["b1", "b3", "b4"] == bubbles(database)


def test_what_cursor_has_added_since_the_first_cut_is_there_in_the_second(database):
    cut(Request(str(database), ids=("b2", "b5")))
    add(database, "c1:b6")

    cut(Request(str(database), ids=("b4",)))

    assert ["b1", "b3", "b6"] == bubbles(database.with_name("state.vscdb.excised.jsonl"))


def test_a_cut_of_one_conversation_keeps_the_other_s(database):
    side = database.with_name("state.vscdb.excised.jsonl")
    one = cut(Request(str(database), ids=("b2",), composer="c1"))
    other = cut(Request(str(database), ids=("x2",), composer="c2"))

    assert (None, True) == (one["snapshot"], bool(other["snapshot"]))
    assert [["b1", "b3", "b4", "b5"], ["x1"]] == [bubbles(side, "c1"), bubbles(side, "c2")]
    cut(Request(str(side), ids=("b5",), composer="c1"))
    assert [["b1", "b3", "b4"], ["x1"]] == [bubbles(side, "c1"), bubbles(side, "c2")]
    rollback(other["snapshot"])
    assert [["b1", "b3", "b4", "b5"], []] == [bubbles(side, "c1"), bubbles(side, "c2")]
    cut(Request(str(database), ids=("x1",), composer="c2"))
    assert ["x2"] == bubbles(side, "c2")


def test_a_line_of_no_conversation_stays_once(database):
    side, note = database.with_name("state.vscdb.excised.jsonl"), b'{"note": "of none"}\n'
    cut(Request(str(database), ids=("b2",), composer="c1"))
    side.write_bytes(side.read_bytes() + note)

    for one in ("b5", "b4"):
        cut(Request(str(side), ids=(one,), composer="c1"))

    assert 1 == side.read_bytes().count(note)
    assert ["b1", "b3"] == [one for one in bubbles(side) if one.startswith("b")]


def test_a_secret_that_was_masked_in_a_database_stays_masked(database):
    token = "ghp_" + "a1B2" * 9
    with closing(sqlite3.connect(database)) as db, db:
        bubble = {"type": 1, "text": token, "bubbleId": "b9"}
        db.execute("INSERT INTO cursorDiskKV VALUES ('bubbleId:c1:b9', ?)", (json.dumps(bubble),))
    cut(Request(str(database), secrets=True))

    cut(Request(str(database), ids=("b1",)))

    side = database.with_name("state.vscdb.excised.jsonl").read_text()
    assert token not in side
    assert "[REDACTED:github-token]" in side
