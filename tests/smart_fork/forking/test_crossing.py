"""Tests of families across several agents, from recorded handovers and from the logs' own text."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import pytest

from indexer.safe_files import state_home
from indexer.session_work import Outcome, edits_of, known_files
from smart_fork import provenance
from smart_fork.agents.request_fields import Options
from smart_fork.excise.answer import CutRequest as Request
from smart_fork.excise.cutting import cut
from smart_fork.finding import session_lookup
from smart_fork.finding.evidence import families
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import ForkRequest
from smart_fork.workers.registry import Registry
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.forks import FakeProcesses
from tests.smart_fork.forks import branched as branch
from tests.smart_fork.session_family import lineage
from tests.smart_fork.world import Did

SAID = ("add retry", "it retries", "and the docs", "docs are there")


@pytest.fixture
def handed(no_waiting, programs, monkeypatch):
    processes = FakeProcesses()
    monkeypatch.setattr("smart_fork.system.processes.Processes", lambda: processes)

    def fork(parent: str, agent: str, **more: object) -> str:
        options = Options("go on", place="process", brief=False)
        return str(fork_session(ForkRequest(parent, options, as_agent=agent, **more)).new_session_id)

    return fork


def told(session_id: str) -> list[tuple[int, str, str]]:
    return [(one["depth"], one["agent_type"], one["session_id"]) for one in lineage(session_id)["sessions"]]


@pytest.fixture
def family(world, shop, handed):
    """Return a session, its handover to another agent, and that session handed back."""
    first = world.claude(shop, *SAID)
    second = handed(first, "codex", at=1)
    return first, second, handed(second, "claude")


def test_whoever_of_a_family_is_asked_tells_of_all_agents_sessions(family):
    first, second, third = family
    expected = [(0, "claude", first), (1, "codex", second), (2, "claude", third)]

    assert [expected] * 3 == [told(one) for one in family]


def test_it_tells_where_each_was_handed_over_and_how_to_get_back(family):
    first, second, _ = family

    members = {one["session_id"]: one for one in lineage(second)["sessions"]}

    left = members[second]["left_parent_at"]
    assert (1, "it retries") == (left["message"], left["text"])
    assert f"claude --resume {first}" in lineage(second)["return_command"]
    assert [False] * 3 == [one["log_gone"] for one in members.values()]


@pytest.mark.thorough
def test_a_register_that_is_lost_takes_no_family_with_it(family):
    first, second, third = family
    with Registry() as registry:
        path = registry.path
    path.unlink()

    assert [(0, "claude", first), (1, "codex", second), (2, "claude", third)] == told(first)


def test_without_any_note_a_session_says_itself_from_where_it_is(family):
    first, second, _ = family
    shutil.rmtree(state_home())

    assert [(0, "claude", first), (1, "codex", second)] == told(second)[:2]


def test_the_tree_names_the_agents_where_there_are_several(family, run, world, shop):  # noqa: F811
    alone = world.claude(shop, "something else", "done")

    said, other = run("lineage", family[0]).out, run("lineage", alone).out

    assert "Claude Code · " in said
    assert "Codex · " in said
    assert "Claude Code" not in other


def test_a_cut_says_which_sessions_were_told_of_what_it_takes_out(family):
    first, second, third = family

    done = cut(Request(first, "1"))

    said = [one for one in done.remains if "a hand-over of this one" in one]
    assert {f"session {second} of Codex", f"session {third} of Claude Code"} == {one.partition(",")[0] for one in said}


def test_a_branch_as_another_agents_is_told_of_it_and_of_its_family(world, shop):
    first = world.claude(shop, *SAID)

    branched = branch(first, at=1, as_agent="codex", title="aside")

    copy = session_lookup.read(session_lookup.locate(branched.session_id))
    assert ("codex", list(SAID[:2])) == (copy.agent, [turn.text for _, turn in copy.messages])
    assert ("codex", "aside (Branch)") == (branched.agent_type, branched.title)
    assert (first, 1) == (branched.parent.session_id, branched.at)
    assert branched.resume_command.endswith(f"codex resume {branched.session_id}")
    assert f"claude --resume {first}" in branched.resume_original
    assert any("of this Claude Code session" in one for one in branched.warnings)
    assert [(0, "claude", first), (1, "codex", branched.session_id)] == told(first)


def test_a_session_and_what_was_told_of_it_are_one_result(world, shop):
    """The best session of the family stands for all, of whichever agent."""
    first = world.claude(shop, *SAID)
    second = branch(first, as_agent="codex").session_id
    third = branch(second, as_agent="qwen").session_id
    other = world.codex(shop, "add retry to the mailer", "the mailer retries")

    found = world.ids("add retry", shop)

    assert (2, 1) == (len(found), found.count(other))
    assert 1 == len({first, second, third} & set(found))


@pytest.mark.slow
def test_who_was_told_of_a_session_finds_there_only_what_was_not_told(world, shop):
    """Its search leaves out the messages that were handed over to it, as a fork's search leaves out its parent's."""
    first = world.claude(shop, *SAID)
    second, early = (branch(first, as_agent="codex", at=at).session_id for at in (None, 1))
    other = world.codex(shop, "add retry to the mailer", "the mailer retries")

    assert [[other]] * 2 == [world.ids("add retry", shop, caller_session_id=one) for one in (first, second)]
    assert [other] == world.ids("docs are there", shop, caller_session_id=second)
    assert {first, second} & set(world.ids("docs are there", shop, caller_session_id=early)[:1])
    assert other == world.ids("add retry", shop, caller_session_id=early)[0]
    more = world.claude_records(first, shop, "translate the invoices into Finnish", "Laskut on tehty")
    more[0]["parentUuid"] = json.loads(world.log_of(first).read_text().splitlines()[-1])["uuid"]
    world.write_claude(first, shop, more, "a")
    assert first == world.ids("Finnish invoices", shop, caller_session_id=second)[0]


@pytest.mark.thorough
def test_what_became_of_the_work_is_known_of_what_was_told_as_well(world, shop):
    edits = [Did("Edit", {"file_path": f"{shop}/{name}", "new_string": "b"}) for name in ("upload.py", "a (done)")]
    runs = [Did("Bash", {"command": "git commit -m x"}, "[main 0123456] x"), Did("Read", {"file_path": f"{shop}/r.py"})]
    first = world.worked("claude", shop, "> add retry", *edits, *runs, "it retries")
    patch = "*** Begin Patch\n*** Update File: one, two.py\n*** Update File: three.py\n*** End Patch"
    second = world.worked("codex", shop, "> and here", Did("apply_patch", patch), "done")

    for source, others in ((first, ("codex", "qwen", "gemini", "copilot")), (second, ("claude",))):
        own = session_lookup.read(session_lookup.locate(source))
        expected = (Outcome.of(own), edits_of(own, "").files, known_files(own, "").edits)
        for agent in others:
            told = session_lookup.read(session_lookup.locate(branch(source, as_agent=agent).session_id))
            assert expected == (Outcome.of(told), edits_of(told, "").files, known_files(told, "").edits)


def test_families_that_name_each_other_in_a_circle_are_one_and_end():
    for one, of in (("a", "b"), ("b", "a"), ("c", "gone"), ("d", "gone")):
        provenance.remember_handover(provenance.HandedOver(one, "codex", "claude", of))
    rows = [SimpleNamespace(row=number, session_id=one, root_id="") for number, one in enumerate("abcde")]

    named = families(rows)

    assert named[2] == named[3]
    assert [4] == [row for row in named if named[row] == named[4]]
