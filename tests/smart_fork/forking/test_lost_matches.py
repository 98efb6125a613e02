"""Tests of matches before a compaction or gap: the agent's own fork lacks them, the recommended fork has them."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from indexer.transcripts.model import Resumed, Session, Turn
from smart_fork.agents.copier import NewSession
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.references import Reference
from smart_fork.agents.request_fields import Options
from smart_fork.cli.fork import ways_in_words
from smart_fork.finding.hit import Match, Price
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.ranking import ExchangeEvidence, PointParts, lost
from smart_fork.finding.request import FindRequest
from smart_fork.forking.copies import write_branch
from smart_fork.forking.fork_content import IntentEvidence, chosen, end_of_whole
from smart_fork.forking.fork_points import ForkPoint, branch_point, point_at
from smart_fork.forking.plan import fork_session, ways
from smart_fork.forking.request import BestSessions, Budget, ForkRequest
from smart_fork.forking.results import SelectedExchange, Selection
from smart_fork.forking.search_and_fork import best_of, recommended
from smart_fork.forking.spawn import WorkerRequest
from smart_fork.system.processes import Machine
from tests.smart_fork.agents.qwen.test_log import fixture as qwen_fixture
from tests.smart_fork.agents.qwen.test_log import read_qwen
from tests.smart_fork.answers import a_fork, a_hit, an_answer
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.forking.test_copies import NOW
from tests.smart_fork.forks import NEW, choosing, told
from tests.smart_fork.mcp_client import answer
from tests.smart_fork.searches import find_and_fork, opened
from tests.support.cases import parametrize_subtests

SIGN, SIGNED = "how do we sign the webhook payloads", "hooks.py signs them with HMAC over the timestamp."
SAID = [(SIGN, SIGNED, 21_000), ("rename the first column", "The first is renamed.", 22_000)]
LATER = [("paint the bikeshed green", "It is green now.", 23_000), ("water the plants", "They are wet.", 24_000)]
NOTES = {
    "gap": "Its agent alone loads 4 of 8 messages: a record was never written",
    "compaction": "The session was compacted after it: a fork of all of it would not know this",
}


def worked(world, shop, why: str) -> str:
    """Return a session of eight messages, of which Claude Code loads the last four; optionally with a summary."""
    session_id = world.sized_claude(shop, *SAID, *LATER)
    records = [*map(json.loads, world.log_of(session_id).read_text().splitlines())]
    if why == "gap":
        records[4]["parentUuid"] = "11111111-2222-4333-8444-555555555555"
    else:
        summary = records[4] | {
            "uuid": "sum", "parentUuid": "edge", "isCompactSummary": True, "timestamp": records[3]["timestamp"],
            "message": {"role": "user", "content": "Columns were renamed."},
        }  # fmt: skip
        edge = {"type": "system", "subtype": "compact_boundary", "uuid": "edge", "parentUuid": None}
        records[4]["parentUuid"] = "sum"
        records[4:4] = [summary | edge | {"message": None, "isCompactSummary": False}, summary]
    world.write_claude(session_id, shop, records)
    return session_id


def session_of(world, session_id: str) -> Session:
    return READERS["claude"].read(world.log_of(session_id)).session


def loaded(session: Session) -> list[str]:
    """Return the texts that the agent loads when it resumes a session."""
    return [str(turn.text) for turn in session.turns[session.resumed.start :] if turn.text]


def copied(world, session_id: str, command: str) -> list[str]:
    """Return the texts that a fork loads if smart-fork copies the session for it."""
    words, session = shlex.split(command.rpartition("&& ")[2]), session_of(world, session_id)
    assert ["smart-fork", "fork", session_id] == words[:3]
    at = int(words[words.index("--at") + 1]) if "--at" in words else None
    point = point_at(session, at) if at is not None else end_of_whole(session, borrowed=False)[0]
    becomes = NewSession(NEW, world.home, NOW)
    written = write_branch(session, becomes, at=point.message_id)
    return loaded(READERS["claude"].read(written.path).session)


@pytest.mark.parametrize("why", ["gap", "compaction"])
def test_what_is_not_loaded_any_more_is_forked_at_the_match_and_says_why(world, shop, why):
    session_id = worked(world, shop, why)

    hit = world.find(SIGN, shop)["results"][0]

    assert SIGN not in loaded(session_of(world, session_id))
    assert hit["match"]["lost"] == why
    assert hit["fork_note"] == NOTES[why]
    assert hit["fork_command"].endswith(f"smart-fork fork {session_id} --at 1")
    assert copied(world, session_id, hit["fork_command"]) == [SIGN, SIGNED]
    of = 8 + (why == "compaction")
    assert hit["resumed"] == {"start": 4, "reason": why, "messages": of - 4, "of": of}


@pytest.mark.parametrize(("why", "begins"), [("gap", "smart-fork fork"), ("compaction", "claude --resume")])
def test_what_is_still_loaded_is_forked_whole_and_a_gap_is_bridged(world, shop, why, begins):
    session_id = worked(world, shop, why)

    hit = world.find(LATER[1][0], shop)["results"][0]

    assert "lost" not in hit["match"]
    assert "fork_note" not in hit
    assert hit["fork_command"].rpartition("&& ")[2].startswith(begins)
    if why == "gap":
        assert copied(world, session_id, hit["fork_command"]) == [text for one in (*SAID, *LATER) for text in one[:2]]


@parametrize_subtests(
    ("turn", "ends", "forgotten", "gap", "why"),
    [(2, 5, 6, 0, "compaction"), (2, 6, 6, 0, ""), (2, None, 6, 0, ""), (2, None, 0, 3, "gap"), (3, None, 0, 3, "")],
)
def test_a_match_is_lost_whose_exchange_ends_before_the_compaction_or_that_stands_before_the_gap(
    turn, ends, forgotten, gap, why
):
    assert why == lost(turn, ends, forgotten, gap)


def test_next_forks_at_the_match_and_the_line_below_says_why(world, shop, run):  # noqa: F811
    session_id = worked(world, shop, "compaction")

    said = run("find", SIGN).err.splitlines()

    first = next(at for at, line in enumerate(said) if line.startswith("Next:"))
    assert f'Next: smart-fork fork {session_id[:8]} --at 1 "PROMPT"' == said[first].partition("  # ")[0]
    assert NOTES["compaction"] == said[first + 1].strip()


@pytest.mark.parametrize("why", ["gap", "compaction"])
def test_auto_fork_carries_what_matched_and_a_choice_of_ones_own_stays(world, shop, why, monkeypatch):
    session_id = worked(world, shop, why)
    calls: list[dict] = []

    def fork_session(request: ForkRequest, _engine: object = None):
        calls.append(told(request)[2])
        return a_fork(request.session, warnings=request.notes)

    monkeypatch.setattr("smart_fork.forking.plan.fork_session", fork_session)

    def forked(intent: str, **choice: object) -> dict:
        request = FindRequest(intent, agent_type="claude")
        return find_and_fork(request, Engine(world.model), choosing(**choice), shop).as_json()["forked_session"]

    first, *_ = (
        forked(SIGN, auto_fork=True),
        forked(SIGN, fork_session_id=session_id),
        forked(SIGN, auto_fork=True, at=3),
        forked(LATER[1][0], auto_fork=True),
    )

    assert [NOTES[why]] == first["warnings"]
    assert [1, 1, 3, None] == [call.get("at") for call in calls]


def test_a_model_reads_the_same_in_the_answer_of_the_tool(world, shop, monkeypatch):
    session_id = worked(world, shop, "compaction")
    monkeypatch.chdir(shop)

    told = answer(world, intent=SIGN)
    read = answer(world, "read_session", session_id=session_id)

    assert NOTES["compaction"] == told["results"][0]["fork_note"]
    assert told["results"][0]["fork_command"].endswith("--at 1")
    assert {"start": 4, "reason": "compaction", "messages": 5, "of": 9} == told["results"][0]["resumed"]
    assert read["resumed"] == told["results"][0]["resumed"]
    assert "give at=1" in told["next"]
    assert told["next"].endswith(f"{NOTES['compaction']}.")


@pytest.mark.parametrize(
    ("why", "line"), [("gap", "a record was never written"), ("compaction", "the session was compacted")]
)
def test_show_marks_where_the_loaded_part_begins(world, shop, run, why, line):  # noqa: F811
    session_id = worked(world, shop, why)

    said = run("show", session_id).out
    before, after = said.split("> Its agent alone loads what follows, from message 4 on")

    assert line in before
    assert SAID[1][1] in before
    assert LATER[0][0] in after


def test_a_fork_of_a_session_with_a_gap_is_a_copy_and_costs_what_that_carries(world, shop, programs):
    session_id = worked(world, shop, "gap")

    forked = fork_session(ForkRequest(session_id, dry_run=True))

    assert forked.warnings[0] == f"{NOTES['gap']}. The fork is a copy with everything before that"
    assert "--fork-session" not in forked.command
    assert 24_000 == forked.price.tokens == forked.price.whole_tokens


def test_a_worker_that_forks_a_session_with_a_gap_begins_with_a_copy_as_well(world, shop, programs):
    session_id = worked(world, shop, "gap")
    asked = WorkerRequest(
        {"project_path": str(shop), "fork_from": session_id, "prompt": "go"}, "claude", None, Machine()
    )

    ready = asked.ready()

    assert 7 == ready.worker.content.point.index
    assert [f"{NOTES['gap']}. The fork is a copy with everything before that"] == ready.notes


def test_a_gap_in_what_was_never_answered_is_bridged_up_to_the_end_as_its_agent_forks_it(world, shop):
    session_id = worked(world, shop, "gap")
    records = world.claude_records(session_id, shop, "and now feed the cat")
    records[0]["parentUuid"] = session_of(world, session_id).turns[-1].id
    world.write_claude(session_id, shop, records, mode="a")
    session = session_of(world, session_id)

    point, _ = end_of_whole(session, borrowed=False)

    assert session.unfinished
    assert 8 == point.index == branch_point(session, point.message_id)
    assert "and now feed the cat" in copied(world, session_id, f"smart-fork fork {session_id}")


@parametrize_subtests("why", ["gap", "compaction"])
def test_several_forks_carry_what_matched_as_well(why):
    lost = a_hit(0.9, "a", match=Match(2, "m2", ends_at_message=3, lost=why), fork_note="It would have forgotten that")
    hits = [lost, a_hit(0.8, "b", match=Match(2, "m3"))]

    asked, _ = best_of(an_answer(*hits), ForkRequest(), BestSessions(2))

    assert [(3, ("It would have forgotten that",)), (None, ())] == [(one.at, one.notes) for one in asked]


@parametrize_subtests("min_score", [None, 0.1])
@parametrize_subtests("score", [0.9, 0.2])
@parametrize_subtests("why", ["gap", "compaction", ""])
def test_a_result_is_forked_in_the_same_way_by_itself_and_as_one_of_several(why, score, min_score):
    hit = a_hit(score, "a", match=Match(2, "m2", ends_at_message=3, token_estimate=90_000, lost=why))
    like = ForkRequest(options=Options("go on"))

    fit = score >= (min_score or 0.3)
    several = best_of(an_answer(hit), like, BestSessions(1, min_score))[0] if fit else []

    alone = recommended(hit, replace(like, session=str(Reference("claude", "a"))), min_score)
    assert several == [alone] * fit
    assert alone.found == ("m2" if fit else None)
    assert (alone.at, bool(alone.notes)) == ((3, True) if why else (None, False))


def test_what_a_compaction_has_forgotten_can_be_had_within_a_budget_that_would_hold_all_of_it(world, shop):
    session = session_of(world, worked(world, shop, "compaction"))
    with opened(Engine(world.model)) as library:
        kept = chosen(session, len(session.turns) - 1, Budget(100_000), IntentEvidence(SIGN, (), library))

    assert kept.excerpt is not None
    assert {0, 1} <= kept.excerpt.kept


@parametrize_subtests(
    ("there", "instructions", "at", "budget"),
    [(31_000, 5_000, 3, None), (90_000, 20_000, 3, "30k"), (60_000, 22_000, 3, None), (150_000, 20_000, 3, "30k")],
)
def test_the_cheapest_fork_that_carries_the_match_is_recommended(there, instructions, at, budget):
    hit = a_hit(
        match=Match(2, ends_at_message=3, token_estimate=there, lost="compaction"),
        token_estimate=33_000, price=Price(33_000, there, instructions=instructions),
    )  # fmt: skip

    assert at == hit.suggested_at
    assert budget == hit.suggested_budget
    assert 30_000 + instructions == hit.within_budget
    assert f"smart-fork fork session-1 --at 3{' --budget 30k' if budget else ''}" == hit.suggested_fork()


#: The first exchange answers.
EVIDENCE = ExchangeEvidence({0: PointParts(1, 1, 1, 0, 0)}, 0)


def test_of_the_ways_to_fork_it_those_are_marked_that_carry_the_match(world, shop):
    session = session_of(world, worked(world, shop, "compaction"))

    found = ways(session, None, Budget(30_000), EVIDENCE)

    carried = {way.option: way.carries for way in found}
    assert {"": False, "--at match": True, "--budget match": True, "--budget 30000": True} == carried
    there = ways(session, ForkPoint(3, session.turns[3].id), Budget(30_000), EVIDENCE)
    assert {"--at 3": True, "--at match": True} == {way.option: way.carries for way in there if "--at" in way.option}
    words = list(ways_in_words(found))
    assert any("whole session" in line and line.endswith("has forgotten the match") for line in words)
    assert any("--at match" in line and "21,000" in line and line.endswith("carries the match") for line in words)


def test_a_way_that_costs_more_than_the_whole_and_carries_nothing_more_is_not_offered(world, shop, monkeypatch):
    session = session_of(world, worked(world, shop, "gap"))
    row = SelectedExchange(number=1, message=0, title="", tokens=9, kept="whole", kept_tokens=9)
    much = Selection(
        session_id="s", budget="9", tokens=90_000, whole_tokens=99_000, kept=1, left_out=0, exchanges=(row,)
    )
    monkeypatch.setattr("smart_fork.forking.plan.within", lambda *_: type("Kept", (), {"selection": much}))

    found = ways(session, None, Budget(30_000), EVIDENCE)

    assert ["", "--at match"] == [way.option for way in found]
    assert {None} == {way.carries for way in found}


def turns_of(*steps: tuple[str, str, bool, int]) -> tuple[Turn, ...]:
    return tuple(
        Turn(identity, None, role, "", text=identity, prompt=prompt, loaded=tokens, token_est=1)
        for identity, role, prompt, tokens in steps
    )


def test_an_exchange_that_was_compacted_midway_is_forked_before_that_for_what_stands_there():
    steps = [
        ("p1", "user", True, 0), ("a1", "assistant", False, 20_000), ("sum", "system", False, 900),
        ("a2", "assistant", False, 25_000), ("p2", "user", True, 0), ("a3", "assistant", False, 26_000),
    ]  # fmt: skip
    session = Session("claude", "s", Path("log"), turns_of(*steps), resumed=Resumed(2, "compaction"))

    assert (1, 1, 3, 3, None, None) == session.ends()
    assert 1 == branch_point(session, "p1")
    assert 3 == branch_point(session, "a2")
    assert 2 == session.compacted() == session.compacted(2)
    assert 0 == session.compacted(1)


def test_what_a_compaction_has_kept_beside_its_summary_is_not_lost():
    steps = [
        ("p1", "user", True, 0), ("a1", "assistant", False, 20_000), ("p2", "user", True, 0),
        ("a2", "assistant", False, 21_000), ("sum", "system", False, 900), ("p3", "user", True, 0),
    ]  # fmt: skip
    session = Session("claude", "s", Path("log"), turns_of(*steps), resumed=Resumed(4, "compaction", (2, 3)))

    ends, forgotten = session.ends(), session.compacted()

    assert 2 == forgotten
    assert ["compaction", ""] == [lost(turn, ends[turn], forgotten) for turn in (0, 2)]
    assert 4 == session.compacted(5)


def test_an_agent_whose_compactions_leave_no_turn_loads_what_follows_them():
    steps = [("p1", "user", True, 0), ("a1", "assistant", False, 90_000), ("p2", "user", True, 0)]
    session = Session("codex", "s", Path("log"), turns_of(*steps), resumed=Resumed(2, "compaction"))
    bare = replace(session, turns=session.turns[:2])

    assert 2 == session.compacted()
    assert (1, 1, None) == session.ends()
    assert session.token_estimate == session.instructions + session.turns[2].token_est
    assert bare.token_estimate == bare.instructions
    assert "compaction" == lost(0, session.ends()[0], session.compacted())


@parametrize_subtests(("counted", "loads"), [(60_000, 60_000), (30_000, 60_000)])
def test_after_a_gap_a_copy_costs_what_it_carries_also_where_the_agent_counts_only_what_follows(counted, loads):
    steps = [
        ("p1", "user", True, 0), ("a1", "assistant", False, 20_001), ("a2", "assistant", False, 50_000),
        ("p2", "user", True, 0), ("a3", "assistant", False, counted),
    ]  # fmt: skip
    session = Session("claude", "s", Path("log"), turns_of(*steps), resumed=Resumed(3, "gap"))

    assert 20_001 - sum(turn.token_est for turn in session.turns[:2]) == session.instructions
    assert loads == pytest.approx(session.token_estimate, abs=10)


def test_what_qwen_code_has_compacted_is_lost_in_its_fork_and_carried_by_one_before(home):
    session = read_qwen(qwen_fixture(home, "compressed"))
    start, reason, _ = session.resumed

    assert "compaction" == reason
    assert start == session.compacted()
    end = session.ends()[0]
    assert "compaction" == lost(0, end, session.compacted())
    becomes = NewSession(NEW, home, NOW)
    written = write_branch(session, becomes, at=session.turns[end].id)
    assert "Describe the uploader" in loaded(read_qwen(written.path))
    assert ForkPoint(end, session.turns[end].id) == point_at(session, 0)
