"""A command that is killed at every moment and then repeated: its result exists once, and complete."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest

from smart_fork.team.server import auth
from tests.smart_fork.team.server.killed_commands import killed
from tests.smart_fork.team.server.machines import TeamMachine
from tests.smart_fork.team.server.test_two_people import ANSWER, MORE, MORE_ANSWER, PROMPT, go_on, said, session_of
from tests.support.exhaustive import full_or_sample

#: At every such moment of those that have many: `SMART_FORK_DRILLS=all` kills at each.
EACH = full_or_sample(1, 2)


def shared_by(team, name):
    """Return a person's shared sessions: id, parent, and number of records. All records must exist."""
    rows = team.owned.execute(
        "SELECT id::text, parent_id::text, record_count FROM sessions WHERE owner_id = %s ORDER BY id",
        (team.people[name].id,),
    ).fetchall()
    assert all(records == len(team.stored(session)) for session, _, records in rows)
    return rows


def unmade(team, machine, session, tracking):
    """Undo the effects of a run, so that the next one begins in the first state."""
    for table, key in (("session_segments", "session_id"), ("sessions", "id")):
        team.owned.execute(f"DELETE FROM {table} WHERE {key} = %s", (session,))  # noqa: S608
    path = machine.repository / ".smart-fork/tracking.json"
    path.unlink() if tracking is None else path.write_text(json.dumps(tracking))


def killed_after_the_commit(team, machine, *words):
    """Push to the server, and kill the client before it sees the answer."""
    assert any(killed(machine, moment, *words) and shared_by(team, "alice") for moment in count(1))
    assert machine.tracking()["begun"]


@pytest.mark.thorough
def test_a_first_push_that_is_killed_at_any_moment_makes_one_session(alice, team, monkeypatch):
    """C-056: the push is sent in parts, which has more moments."""
    monkeypatch.setattr("smart_fork.team.push.MAX_ENCLOSED_BYTES", 0)
    log = session_of(alice, "claude", PROMPT, ANSWER)
    seen = set()
    for moment in count(1, EACH):
        ended = not killed(alice, moment, "team", "push", log, "--yes", "--public")
        before = shared_by(team, "alice")
        again = alice.team("push", log, "--yes")
        (one,) = shared_by(team, "alice")
        assert before in ([], [one])
        assert (*one, "public" if before else "private") == (
            again["session_id"], again["parent_id"], again["record_count"], again["visibility"]
        )  # fmt: skip
        assert [again["alias"]] == list(alice.tracking()["aliases"])
        assert "begun" not in alice.tracking()
        seen.add((bool(before), again["created"], again["up_to_date"]))
        if ended:
            break
        unmade(team, alice, one[0], None)

    assert {(False, True, False), (True, False, True)} == seen


@pytest.mark.thorough
def test_what_was_said_after_a_lost_answer_is_appended_to_the_session_that_was_made(alice, team):
    log = session_of(alice, "claude", PROMPT, ANSWER)
    killed_after_the_commit(team, alice, "team", "push", log, "--yes")
    go_on(alice, next(alice.home.glob(f".claude/projects/*/{log}.jsonl")), "claude", MORE, MORE_ANSWER)

    again = alice.team("push", log, "--yes")

    assert [(again["session_id"], None, 4)] == shared_by(team, "alice")
    assert (2, False) == (again["pushed_records"], again["created"])


@pytest.mark.thorough
def test_where_it_has_changed_after_a_lost_answer_that_is_said_and_deleted_it_is_made_again(alice, team):
    log = session_of(alice, "claude", PROMPT, ANSWER)
    killed_after_the_commit(team, alice, "team", "push", log, "--yes")
    ((first, *_),) = shared_by(team, "alice")
    path = next(alice.home.glob(f".claude/projects/*/{log}.jsonl"))
    path.write_text(path.read_text().replace("five times", "six times"))

    refused = alice.do("team", "push", log, "--yes", "--json")
    for _ in range(2):  # who asks again, since that answer was lost, is told the same
        alice.team("delete", first, "--yes")
    again = alice.team("push", log, "--yes")

    assert (9, True) == (refused.code, first in json.loads(refused.out)["hint"])
    assert (True, True) == (again["created"], again["session_id"] != first)


@pytest.mark.thorough
def test_a_fork_that_an_agent_made_is_pushed_once_whenever_that_is_killed(alice, team):
    parent = session_of(alice, "claude", PROMPT, ANSWER)
    above = alice.team("push", parent, "--yes")["session_id"]
    with alice.here():
        fork = alice.world.fork_claude(parent, alice.repository, MORE, MORE_ANSWER)
    before = alice.tracking()
    for moment in count(1):
        ended = not killed(alice, moment, "team", "push", fork, "--yes")
        again = alice.team("push", fork, "--yes")
        assert [(again["session_id"], above, 4)] == [one for one in shared_by(team, "alice") if one[1]]
        if ended:
            break
        unmade(team, alice, again["session_id"], before)


def untracked(machine):
    """Return the copies that no alias names, and the stored data about them."""
    path = machine.repository / ".smart-fork/tracking.json"
    aliases = machine.tracking()["aliases"].values() if path.exists() else ()
    logs = {file for one in aliases for file in one["files"]}
    ids = {Path(log).stem for log in logs}
    team = machine.home / ".smart-fork/team"
    kept = machine.state(
        "SELECT id FROM pulled UNION ALL SELECT session_id FROM foreign_ids UNION ALL SELECT session_id FROM unfinished_copies"
    )
    return [
        *(str(log) for log in machine.home.glob(".claude/projects/*/*") if str(log) not in logs),
        *(one for (one,) in kept if one not in ids), *map(str, team.glob("arrived-*")),
    ]  # fmt: skip


@pytest.mark.thorough
def test_a_fork_that_is_killed_at_any_moment_and_asked_for_again_is_made_once(alice, bob, team):
    hers = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes", "--public")["session_id"]
    known, kept = set(), 0
    for moment in count(1, EACH):
        ended = not killed(bob, moment, "team", "fork", hers)
        made = {session for session, *_ in shared_by(team, "bob")} - known
        path = bob.repository / ".smart-fork/tracking.json"
        unanswered = not path.exists() or "begun" in bob.tracking() or not made
        bob.team("sync")
        assert [] == untracked(bob)
        again = bob.team("fork", hers)
        assert made | {again["session_id"]} == {session for session, *_ in shared_by(team, "bob")} - known
        assert not (made and unanswered) or made == {again["session_id"]}
        assert all([PROMPT, ANSWER] == said("claude", file) for file in again["files"])
        kept += bool(made and unanswered)
        known |= made | {again["session_id"]}
        if ended:
            break

    assert kept


@pytest.mark.thorough
def test_an_invitation_is_good_for_whoever_is_killed_and_for_nobody_else(tmp_path, team, address, capsys):
    person = team.add("carol").name
    machine, other = (TeamMachine(tmp_path / name, "shop", team, capsys) for name in ("carol", "other"))
    tokens = machine.home / ".smart-fork/team/tokens.json"
    for moment in count(1):
        with team.pool.transaction() as db:
            invitation = auth.invite(db, person)
        ended = not killed(machine, moment, "team", "login", address, invitation)
        if not ended:
            machine.team("login", address, invitation)
        refused = other.do("team", "login", address, invitation, "--json")
        assert [] == machine.team("list")["sessions"]
        assert "begun" not in json.loads(tokens.read_text())
        assert (4, True) == (refused.code, "This invitation is invalid" in refused.out)
        if ended:
            break
        tokens.unlink()


@pytest.mark.thorough
def test_a_withdrawal_that_is_killed_at_any_moment_and_asked_for_again_takes_out_the_same_messages_alone(alice, team):
    """A withdrawal changes the numbers of messages, so the repeated command must not withdraw others."""
    lost = 0
    for moment in count(1, full_or_sample(1, 3)):
        log = session_of(alice, "claude", PROMPT, ANSWER, MORE, MORE_ANSWER, PROMPT, ANSWER)
        session = alice.team("push", log, "--yes")["session_id"]
        before = len(team.stored(session))
        ended = not killed(alice, moment, "team", "excise", "cut", "1-2", session, "--yes")
        there = len(team.stored(session))
        if ended:
            break
        again = alice.do("team", "excise", "cut", "1-2", session, "--yes")
        assert before - 2 == len(team.stored(session))
        assert ("already withdrawn" in again.err) == (there < before)
        lost += there < before

    assert lost
    assert [] == alice.state("SELECT * FROM withdrawals")


@pytest.mark.thorough
def test_after_a_withdrawal_without_an_answer_other_numbers_are_asked_for_again(alice, team):
    session = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER, MORE, MORE_ANSWER), "--yes")["session_id"]
    before = len(team.stored(session))
    assert any(
        killed(alice, moment, "team", "excise", "cut", "1-2", session, "--yes") and len(team.stored(session)) < before
        for moment in count(1)
    )

    refused = alice.do("team", "excise", "cut", "1", session, "--yes")

    assert (9, before - 2) == (refused.code, len(team.stored(session)))
    assert "(1-2)" in refused.err
    assert f"team show {session}" in refused.err
