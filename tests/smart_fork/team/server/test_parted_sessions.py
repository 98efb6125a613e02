"""Sessions that continued on two machines: every message names a next step, and the parent stays."""

from __future__ import annotations

import json
import re
import shlex
from itertools import count
from pathlib import Path

import pytest

from tests.smart_fork.team.server.killed_commands import killed
from tests.smart_fork.team.server.machines import TeamMachine
from tests.smart_fork.team.server.test_killed_clients import shared_by, unmade
from tests.smart_fork.team.server.test_two_people import ANSWER, MORE, MORE_ANSWER, PROMPT, go_on, said, session_of
from tests.support.exhaustive import full_or_sample

pytestmark = pytest.mark.slow

HERE, HERE_ANSWER = "and the tests", "They pass."


@pytest.fixture
def second_machine(tmp_path, team, alice, address, capsys):
    """A second machine of a person."""
    machine = TeamMachine(tmp_path / "second", "elsewhere/shop", team, capsys)
    machine.invited(address, "alice")
    return machine


@pytest.fixture(params=["claude", pytest.param("codex", marks=pytest.mark.thorough)])
def parted(alice, second_machine, request):
    """A session that continued on two machines of Alice. The second machine has pushed first."""
    pushed = alice.team("push", session_of(alice, request.param, PROMPT, ANSWER), "--yes")
    there = second_machine.team("pull", pushed["session_id"])
    go_on(second_machine, there["files"][0], request.param, MORE, MORE_ANSWER)
    second_machine.team("push", "--yes")
    go_on(alice, pushed["files"][0], request.param, HERE, HERE_ANSWER)
    return pushed


def texts(machine, reference):
    return [one["text"] for one in machine.team("show", reference)["messages"]]


def advised(refused):
    """Return the commands that an error names, as arguments."""
    hint = refused.err.partition("\n")[2]
    found = re.findall(
        r"smart-fork ((?:team|alias) [^;:.]*?)(?= turns| makes| sends| takes| shares| writes| copies| again| gets|[,;:.]|$)",
        hint,
    )
    return [shlex.split(one) for one in found]


def test_a_branch_of_a_parted_session_is_what_is_here_with_the_session_as_its_parent(alice, second_machine, parted):
    branched = alice.team("branch")
    pushed = alice.team("push", "--yes")

    assert (parted["session_id"], parted["session_id"]) == (branched["parent_id"], branched["root_id"])
    assert (2, parted["files"], True) == (branched["base_count"], branched["files"], branched["created"])
    assert branched["session_id"] == pushed["session_id"] != parted["session_id"]
    assert (parted["session_id"], 2, 4) == (pushed["parent_id"], pushed["pushed_records"], pushed["record_count"])
    assert [PROMPT, ANSWER, HERE, HERE_ANSWER] == texts(alice, pushed["session_id"])
    assert [PROMPT, ANSWER, MORE, MORE_ANSWER] == texts(second_machine, parted["session_id"])


def test_who_does_what_each_message_says_has_both_sessions_in_the_end(alice, parted):
    """A push is refused. Then the named commands are run one after the other, as they are printed."""
    refused = alice.do("team", "push", "--yes")
    steps = advised(refused)

    assert (9, 3) == (refused.code, len(steps)), refused.err
    for step in steps:
        done = alice.do(*step, *(("--yes",) if step[1] == "push" else ()))
        assert 0 == done.code, (step, done.out, done.err)
    assert ["up_to_date", "up_to_date"] == [one["state"] for one in alice.team("status")["aliases"]]
    logs = [said(one["platform"], one["files"][0]) for one in alice.tracking()["aliases"].values()]
    assert [[PROMPT, ANSWER, MORE, MORE_ANSWER], [PROMPT, ANSWER, HERE, HERE_ANSWER]] == logs


def test_every_verb_on_a_parted_session_names_the_branch_before_somebody_is_asked_whether_to_send(alice, parted):
    """Without a terminal, a question would be a usage error, 2."""
    for words in (("push",), ("push", "--dry-run"), ("push", "--yes"), ("pull", parted["session_id"]), ("status",)):
        told = alice.do("team", *words)
        assert f"smart-fork team branch {parted['alias']}" in told.out + told.err, words
        assert (0 if words == ("status",) else 9) == told.code, words


@pytest.mark.thorough
def test_a_local_branch_of_a_parted_session_is_a_branch_with_its_first_push(alice, parted):
    made = alice.team("branch", parted["alias"], "--local", "--alias", "mine")

    assert (None, parted["session_id"], parted["files"]) == (made["session_id"], made["parent_id"], made["files"])
    assert ("pending", 2) == next(
        (one["state"], one["ahead"]) for one in alice.team("status")["aliases"] if one["alias"] == "mine"
    )
    pushed = alice.team("push", "--yes")
    assert (parted["session_id"], True, 2, 4, "mine") == tuple(
        pushed[key] for key in ("parent_id", "created", "base_count", "record_count", "alias")
    )


@pytest.mark.thorough
def test_the_first_messages_of_a_parted_session_are_a_branch_as_far_as_both_sides_have_them(alice, parted):
    made = alice.team("branch", parted["alias"], "--at", "2")
    refused = alice.do("team", "branch", parted["alias"], "--at", "3")

    assert [PROMPT, ANSWER] == texts(alice, made["session_id"])
    assert (2, True) == (
        refused.code,
        f"smart-fork team branch {parted['alias']} takes all local records" in refused.err,
    )


def test_a_pull_by_force_keeps_what_is_here_as_a_branch_with_its_parent(alice, parted):
    pulled = alice.team("pull", parted["session_id"], "--force")
    (name,) = set(alice.tracking()["aliases"]) - {parted["alias"]}
    pushed = alice.team("push", name, "--yes")

    assert any(f"smart-fork team push {name}" in warning for warning in pulled["warnings"])
    assert (parted["session_id"], 2) == (pushed["parent_id"], pushed["base_count"])
    assert [PROMPT, ANSWER, HERE, HERE_ANSWER] == texts(alice, pushed["session_id"])


def test_a_pull_before_a_push_says_to_push_where_nobody_else_has_pushed(alice):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    go_on(alice, pushed["files"][0], "claude", HERE, HERE_ANSWER)

    refused = alice.do("team", "pull", pushed["session_id"])

    assert (9, True) == (refused.code, f"smart-fork team push {pushed['alias']} sends them." in refused.err)
    assert 0 == alice.do("team", "push", pushed["alias"], "--yes").code


@pytest.mark.thorough
def test_a_push_with_nothing_new_says_to_pull_where_somebody_else_has_pushed(alice, second_machine):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    there = second_machine.team("pull", pushed["session_id"])
    go_on(second_machine, there["files"][0], "claude", MORE, MORE_ANSWER)
    second_machine.team("push", "--yes")

    refused = alice.do("team", "push", "--yes")
    alice.team("pull", pushed["alias"])

    assert (9, True) == (refused.code, f"smart-fork team pull {pushed['alias']} gets the new records" in refused.err)
    assert alice.team("push")["up_to_date"]


@pytest.mark.thorough
def test_a_branch_that_is_killed_at_any_moment_and_asked_for_again_is_made_once(alice, team, parted):
    tracking = alice.repository / ".smart-fork/tracking.json"
    before = tracking.read_text()
    for moment in count(1, full_or_sample(1, 2)):
        ended = not killed(alice, moment, "team", "branch", parted["alias"])
        if set(alice.tracking()["aliases"]) == {parted["alias"]}:
            alice.team("branch", parted["alias"])
        children = [session for session, parent, _ in shared_by(team, "alice") if parent == parted["session_id"]]
        assert {parted["session_id"], *children} == {one["sessionId"] for one in alice.tracking()["aliases"].values()}
        assert (1, "begun" in alice.tracking()) == (len(children), False)
        if ended:
            break
        unmade(team, alice, children[0], json.loads(before))


def test_a_local_branch_of_a_tracked_session_leaves_its_alias_alone(alice):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")

    made = alice.team("branch", "--local")

    assert {pushed["alias"], made["alias"]} == set(alice.tracking()["aliases"])
    assert pushed["alias"] != made["alias"]


@pytest.mark.thorough
def test_a_pending_branch_whose_parent_was_deleted_is_shared_alone_by_force(alice):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    made = alice.team("branch", "--local", "--alias", "mine")
    go_on(alice, made["files"][0], "claude", HERE, HERE_ANSWER)
    alice.team("delete", pushed["session_id"], "--yes")

    refused = alice.do("team", "push", "mine", "--yes")
    forced = alice.team("push", "mine", "--yes", "--force")

    assert (3, True) == (refused.code, "smart-fork team push mine --force" in refused.err)
    assert (None, 4) == (forced["parent_id"], forced["record_count"])


@pytest.mark.thorough
def test_options_that_say_where_a_copy_is_written_are_refused_with_the_next_command(alice, parted, tmp_path):
    refused = alice.do("team", "branch", parted["alias"], "--into", str(tmp_path), "--yes")

    assert (2, True) == (refused.code, f"smart-fork team branch {parted['alias']}, then" in refused.err)
    assert Path(parted["files"][0]).exists()


@pytest.mark.thorough
def test_a_session_that_was_changed_here_leads_to_both_of_its_ways_out(alice):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    log = Path(pushed["files"][0])
    log.write_text(log.read_text().replace("five times", "six times"))

    refused = alice.do("team", "push", "--yes")
    for step in advised(refused):
        assert 0 == alice.do(*step, *(("--yes",) if step[1] == "push" else ())).code, step

    assert (9, 2) == (refused.code, len(advised(refused)))
