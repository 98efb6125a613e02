"""Properties of every cut, of random transcripts and of a corpus of real ones."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.safe_files import Disk
from smart_fork.agents.excision import snapshots
from smart_fork.agents.excision.transcript import Call, Result
from smart_fork.errors import NotFound, Usage
from smart_fork.excise import (
    ClaudeLoader,
    Request,
    Turn,
    closure,
    cut,
    excise,
    load_auto,
    load_with_tool,
    plan,
    rollback,
    verify,
)
from smart_fork.excise.cut_plan import broken_links, calls_without_result, results_without_call
from smart_fork.excise.writing import write_lines
from tests.support.exhaustive import full_or_sample

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("corpus")]

CUTS, PARTS = full_or_sample(300, 30), 3

NAMES = [f"n{number}" for number in range(12)]
CALLS = ["", *(f"t{number}" for number in range(6))]
turns_of = st.lists(
    st.builds(
        lambda name, parent, calls, results: (name, parent, calls, results),
        st.sampled_from(NAMES),  # ids come twice
        st.one_of(st.none(), st.sampled_from([*NAMES, "gone"])),  # circles, self references, missing parents
        st.lists(st.sampled_from(CALLS), max_size=3),  # parallel calls
        st.lists(st.sampled_from(CALLS), max_size=3),  # several results in a turn
    ),
    max_size=14,
)
cuts = st.sets(st.sampled_from([*NAMES, "unknown"]), max_size=5)


def as_turns(found: list) -> list[Turn]:
    return [
        Turn(name, parent, tool_calls=tuple(Call(one, "T") for one in calls), tool_results=tuple(map(Result, results)))
        for name, parent, calls, results in found
    ]


def as_records(found: list, draw: random.Random) -> list[dict]:
    """Return the turns as records of Claude Code, some of them sidechains, among bookkeeping lines."""
    records: list[dict] = []
    for name, parent, calls, results in found:
        blocks = [{"type": "tool_use", "id": one, "name": "T", "input": {}} for one in calls]
        blocks += [{"type": "tool_result", "tool_use_id": one, "content": "<&>"} for one in results]
        blocks += [{"type": "text", "text": f"{name} sagt naïve 漢字 \ud83e\udd8a {draw.random()}"}]
        kind = "assistant" if calls else "user"
        records.append({
            "type": kind, "uuid": name, "parentUuid": parent, "isSidechain": draw.random() < 0.1, "sessionId": "s" * 32,
            "logicalParentUuid": draw.choice([None, parent]), "timestamp": "", "message": {"role": kind, "content": blocks},
        })  # fmt: skip
        if draw.random() < 0.2:
            records.append({"type": "summary", "summary": "x", "leafUuid": draw.choice(NAMES)})
    return records


@given(turns_of, cuts)
def test_the_closure_is_what_the_seeds_pull_in_and_nothing_else(found, seeds):
    """E-030, E-035, E-036, E-039: computed in another way."""
    turns = as_turns(found)
    gone = closure(turns, seeds)

    assert seeds & {turn.id for turn in turns} <= gone
    assert gone == closure(turns, gone)
    expected = seeds & {turn.id for turn in turns}
    while True:
        more = {
            turn.id
            for position, turn in enumerate(turns)
            for result in turn.tool_results
            if result.tool_use_id and owner_of(turns, position, result.tool_use_id) in expected
        }
        if more <= expected:
            break
        expected |= more
    assert expected == gone


def owner_of(turns: list[Turn], position: int, call: str) -> str | None:
    """Return the turn of a call: the last one up to the result, or else the first one after it."""
    having = [at for at, turn in enumerate(turns) if any(one.id == call for one in turn.tool_calls)]
    before = [at for at in having if at <= position]
    return turns[before[-1] if before else having[0]].id if having else None


@given(turns_of, cuts)
def test_survivors_keep_order_and_ids_and_nothing_is_changed_in_place(found, seeds):
    """E-032, E-034."""
    turns = as_turns(found)
    before = list(turns)

    left = excise(turns, seeds)

    assert left == [turn for turn in before if turn.id not in seeds]
    assert turns == before
    assert left is not turns
    assert excise(left, seeds) == left


@given(turns_of, cuts)
def test_a_cut_leaves_no_result_alone_that_was_not_alone_before(found, seeds):
    """E-030, E-031, E-038: a result goes with its call; a call without its result is named."""
    turns = as_turns(found)
    gone = closure(turns, seeds)
    left = excise(turns, gone)
    known = {call.id for turn in turns for call in turn.tool_calls}
    kept = {call.id for turn in left for call in turn.tool_calls}

    for turn in left:
        for result in turn.tool_results:
            assert result.tool_use_id in kept or result.tool_use_id not in known or not result.tool_use_id
    warnings = verify(turns, gone)
    assert warnings == sorted(warnings)
    assert {one.turn_id for one in warnings} <= gone
    if calls_without_result(left) - calls_without_result(turns) - duplicated(turns):
        assert warnings


def duplicated(turns: list[Turn]) -> set[str]:
    ids = [call.id for turn in turns for call in turn.tool_calls]
    return {one for one in ids if ids.count(one) > 1}


@given(turns_of, cuts, st.randoms(use_true_random=False))
def test_a_written_cut_is_whole_repeatable_and_can_be_undone(found, seeds, draw):
    """E-002, E-032, E-033, E-040, E-041, E-060."""
    home = Path(snapshots.root()).parent
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = home.parent / f"{'a' * 32}.jsonl"
    lines = [json.dumps(record) for record in as_records(found, draw)] or [
        json.dumps({"type": "mode", "sessionId": "x"})
    ]
    path.write_text(draw.choice(["\n", "\n\n"]).join(lines) + draw.choice(["", "\n"]))
    before = path.read_bytes()
    session = ClaudeLoader.load(path)
    raws = {turn.raw for turn in session.turns}
    gaps = {one.reason.split()[2] for one in broken_links(session)}
    wanted = tuple(seeds & {turn.id for turn in session.turns})
    if not wanted:
        return

    outcome = cut(Request(str(path), ids=wanted, force=True, tool="claude"))

    after = ClaudeLoader.load(path)
    assert [
        turn.id for turn in session.turns if turn.id not in outcome["removed"] and not turn.id.startswith("line-")
    ] == [turn.id for turn in after.turns if not turn.id.startswith("line-")]
    for turn in after.turns:
        assert turn.raw in raws or turn.id in outcome["relinked"] or turn.id.startswith("line-")
    assert {one.reason.split()[2] for one in broken_links(after)} <= gaps
    assert {one.reason for one in results_without_call(after.turns)} <= {
        one.reason for one in results_without_call(session.turns)
    } | {f"holds the result of {one}, which no earlier turn calls" for one in duplicated(list(session.turns))}
    assert not path.read_bytes() or path.read_bytes().endswith(b"\n")
    again = plan(after, set(outcome["removed"]) & {turn.id for turn in after.turns if not turn.id.startswith("line-")})
    assert not again.gone
    rollback(outcome["snapshot"])
    assert before == path.read_bytes()


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(PARTS))
def test_hundreds_of_random_cuts_of_real_sessions_leave_them_whole(home, real_home, monkeypatch, part):
    """Each is planned, written and read again. No new result lacks its call, and all other lines are verbatim."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(real_home))
    paths = sorted(path for path in real_home.rglob("*.jsonl") if path.stat().st_size < 1_000_000)
    draw = random.Random(part)  # noqa: S311 - chance decides samples
    draw.shuffle(paths)
    done = 0
    for path in paths * 9:
        done += cut_at_random(path, draw)
        if done == CUTS // PARTS:
            break

    assert done == CUTS // PARTS


class Hasty(Disk):
    """A disk that does not wait for writes."""

    def sync(self, descriptor):
        pass

    def sync_folder(self, folder):
        pass


def raw(turn: Turn, content: bytes) -> bytes:
    return content[turn.kept.start : turn.kept.end]


def cut_at_random(path: Path, draw: random.Random) -> bool:
    """Make one random cut of a copy of a log. Return False if it cannot be read or has nothing to cut."""
    try:
        session = load_auto(path)
    except (Usage, NotFound):  # a log of another kind, or a fork whose parent is not in the corpus
        return False
    spoken = [at for at, turn in enumerate(session.turns) if turn.role != "system" and not turn.inherited]
    if not spoken:
        return False
    start = draw.choice(spoken)
    chosen = {turn.id for turn in session.turns[start : start + draw.choice((1, 1, 2, 5, 40))] if not turn.inherited}
    planned = plan(session, chosen)
    gone = {at for at, turn in enumerate(session.turns) if turn.id in planned.gone}
    before = path.read_bytes()
    own = [(at, turn) for at, turn in enumerate(session.turns) if at not in gone and not turn.inherited]
    expected = [planned.edits.get(at, raw(turn, before)).rstrip() for at, turn in own]
    try:
        write_lines(session, gone, planned.edits, disk=Hasty())
        after = load_with_tool(session.tool, path)
        content = path.read_bytes()
        assert expected == [raw(turn, content).rstrip() for turn in after.own], path
        assert {one.reason for one in results_without_call(after.turns)} <= {
            one.reason for one in results_without_call(session.turns)
        }, path
        lost = calls_without_result(after.turns) - calls_without_result(session.turns)
        assert not lost or planned.warnings or planned.repeated, (path, lost)
        known = {one.reason for one in broken_links(session)}
        assert {one.reason for one in broken_links(after)} <= known, path
        assert len(before) == path.stat().st_size or not session.padded
    finally:
        path.write_bytes(before)
    return True
