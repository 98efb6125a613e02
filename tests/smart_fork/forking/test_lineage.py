"""Tests of a session's family: parents, fork points, running workers, resume commands."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_fork.agents.ancestry import CopiedMessage, FamilyLog
from smart_fork.agents.claude.log_files import ClaudeAdapter, folder_of
from smart_fork.agents.storage import Storage
from smart_fork.errors import NotFound
from smart_fork.forking.family import parents
from smart_fork.workers.registry import Registry
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.forks import codex_path, codex_records, write_log
from tests.smart_fork.mcp_client import answer
from tests.smart_fork.session_family import branch, lineage
from tests.smart_fork.world import World


def tree(session_id: str) -> list[tuple[int, str]]:
    return [(one["depth"], one["session_id"]) for one in lineage(session_id)["sessions"]]


def members(session_id: str) -> dict[str, dict]:
    return {one["session_id"]: one for one in lineage(session_id)["sessions"]}


@pytest.fixture
def native(world: World, shop: Path):
    """Write forks as Claude Code does: the parent's records with their ids, under the fork's own header."""

    def fork(parent: str, *said: str, keep: int | None = None) -> str:
        copied = [json.loads(line) for line in world.log_of(parent).read_text().splitlines()]
        copied = [record for record in copied if "uuid" in record][:keep]
        session_id = str(uuid.uuid4())
        own = world.claude_records(session_id, shop, *said)
        own[0]["parentUuid"] = copied[-1]["uuid"]
        tracked = [one["timestamp"] for one in (*copied, own[0]) if one["type"] == "user"]
        snapshots = [{"type": "file-history-snapshot", "snapshot": {"timestamp": moment}} for moment in tracked]
        head = [{"type": "mode"}, *snapshots]
        world.write_claude(session_id, shop, [{**one, "sessionId": session_id} for one in (*head, *copied, *own)])
        return session_id

    return fork


def go_on(world: World, session_id: str, shop: Path, *said: str) -> None:
    path = world.log_of(session_id)
    last = json.loads(path.read_text().splitlines()[-1])
    more = world.claude_records(session_id, shop, *said)
    more[0]["parentUuid"] = last["uuid"]
    world.write_claude(session_id, shop, more, mode="a")


def written(world: World, session_id: str) -> str:
    """Branch a session at message 1."""
    return branch(session_id, at=1, now=datetime.fromisoformat(world.now()).timestamp())["session_id"]


def test_the_session_that_is_asked_for_is_read_once(world, shop, native, monkeypatch):
    first = world.claude(shop, "add retry", "Retries", "and docs", "Documented")
    fork = native(first, "in blue", "Blue")
    read, real = [], ClaudeAdapter.read

    def noting(self, path, *given, **named):
        read.append(path.stem)
        return real(self, path, *given, **named)

    monkeypatch.setattr(ClaudeAdapter, "read", noting)

    assert [(0, first), (1, fork)] == tree(first)
    assert sorted((first, fork)) == sorted(read)


# Claude Code


def test_forks_that_record_nothing_are_known_by_what_they_share(world, shop, native):
    """The parent shares most and began first, even if it continued after the fork."""
    first = world.claude(shop, "add retry", "Retries", "and docs", "Documented")
    fork = native(first, "in blue", "Blue")
    again = native(fork, "in red", "Red")
    early = native(first, "in green", "Green", keep=2)
    go_on(world, first, shop, "and now?", "Done")

    expected = [(0, first), (1, fork), (2, again), (1, early)]
    assert [expected] * 4 == [tree(one) for one in (first, fork, again, early)]
    told = members(again)
    assert {"message": 3, "role": "assistant", "text": "Documented"} == told[fork]["left_parent_at"]
    assert (5, 1) == (told[again]["left_parent_at"]["message"], told[early]["left_parent_at"]["message"])
    assert (None, first, fork, 6) == (
        told[first]["parent"],
        told[fork]["parent"],
        told[again]["parent"],
        told[fork]["turns"],
    )
    assert f"cd {shop} && claude --resume {fork}" == lineage(again)["return_command"]
    assert lineage(first)["return_command"] is None


def test_a_prompt_that_was_written_after_its_answer_does_not_part_a_family(world, shop, native):
    """Claude Code does so now and then; its forks have both in order."""
    first = world.claude(shop, "add retry", "Retries", "and docs", "Documented")
    fork = native(first, "in blue", "Blue")
    again = native(fork, "in red", "Red")
    for session_id in (first, again):
        lines = world.log_of(session_id).read_text().splitlines(keepends=True)
        start = next(i for i, line in enumerate(lines) if "uuid" in json.loads(line))
        lines[start], lines[start + 1] = lines[start + 1], lines[start]
        world.log_of(session_id).write_text("".join(lines))

    assert [[(0, first), (1, fork), (2, again)]] * 3 == [tree(one) for one in (first, fork, again)]
    told = members(first)
    assert ["Documented", "Blue"] == [told[one]["left_parent_at"]["text"] for one in (fork, again)]


def test_what_is_no_relative_is_not_in_the_family(world, shop, native):
    first = world.claude(shop, "add retry", "Retries")
    world.claude(shop, "add retry", "Retries")
    world.codex(shop, "add retry", "Retries")

    assert [(0, first)] == tree(first)


@pytest.mark.thorough
def test_branches_say_whose_they_are_and_forks_of_them_copy_that(world, shop, native):
    """A fork of a branch records the branch's parent, and is still the branch's fork."""
    first = world.claude(shop, "add retry", "Retries", "and docs", "Documented")
    made = written(world, first)
    fork = native(made, "in blue", "Blue")
    grown = written(world, first)
    more = world.claude_records(grown, shop, "in red", "Red")
    more[0]["parentUuid"] = json.loads(world.log_of(grown).read_text().splitlines()[1])["uuid"]
    world.write_claude(grown, shop, more, mode="a")
    later = native(grown, "in green", "Green")

    above = {name: one["parent"] for name, one in members(first).items()}
    assert {first: None, made: first, fork: made, grown: first, later: grown} == above
    assert 1 == members(first)[made]["left_parent_at"]["message"]
    assert "Red" == members(first)[later]["left_parent_at"]["text"]


def test_a_parent_that_is_gone_is_told_and_keeps_its_forks_together(world, shop):
    first = world.claude(shop, "add retry", "Retries", "and docs", "Documented")
    one, two = branch(first)["session_id"], branch(first, at=1)["session_id"]
    world.log_of(first).unlink()

    told = members(one)

    assert [(0, first), (1, one), (1, two)] == tree(two)
    assert (True, None, first) == (told[first]["log_gone"], told[first]["resume_command"], told[one]["parent"])
    assert lineage(one)["return_command"] is None


def test_sessions_that_say_they_are_each_others_forks_do_not_go_round(world, shop):
    ids = ["60309e1e-0000-4000-8000-00000000000" + end for end in "ab"]
    for own, other in (ids, ids[::-1]):
        more = {"forkedFrom": {"sessionId": other, "messageUuid": "x"}}
        world.claude(shop, "add retry", "Retries", session_id=own, **more)
    itself = world.claude(
        shop, "x", "y", session_id=ids[0].replace("6", "7", 1), forkedFrom={"sessionId": ids[0].replace("6", "7", 1)}
    )

    assert [0, 1] == [depth for depth, _ in tree(ids[0])]
    assert set(ids) == {one for _, one in tree(ids[1])}
    assert [(0, itself)] == tree(itself)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdef"), st.sampled_from(["", *"abcdefx"]), st.text("123", max_size=4), st.booleans()
        ),
        max_size=8,
    ),
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("abcdefx")),
)
def test_whatever_logs_claim_nobody_is_below_itself(said, forks):
    """B-077: copies, cycles, missing parents."""
    family = [
        FamilyLog("claude", name, Path(name), recorded=above, begun=shared[:1], native=native,
            messages=[CopiedMessage(f"{one}{i}", above) for i, one in enumerate(shared)])
        for name, above, shared, native in said
    ]  # fmt: skip

    above = parents(family, forks)

    for name in above:
        seen = []
        current: str | None = name
        while current is not None:
            assert current not in seen
            seen.append(current)
            current = above.get(current)


def test_copies_of_a_log_are_one_session(world, shop):
    first = world.claude(shop, "add retry", "Retries")
    worktree = shop / ".worktrees/x"
    worktree.mkdir(parents=True)
    staged = Storage.stage(world.log_of(first), first, folder_of(worktree)).path

    told = members(first)

    assert [(0, first)] == tree(first)
    assert {str(staged), str(folder_of(shop) / f"{first}.jsonl")} == {told[first]["jsonl_path"], *told[first]["copies"]}


def test_a_branch_in_another_project_is_found_from_either_side(world, shop):
    first = world.claude(shop, "add retry", "Retries")
    other = world.repository("other")
    made = branch(first, cwd=str(other))["session_id"]

    assert [(0, first), (1, made)] == tree(made)
    assert f"cd {shop} && claude --resume {first}" == lineage(made)["return_command"]


@pytest.mark.parametrize("what", ["ended", "recycled", "never started"])
def test_a_worker_that_is_no_more_is_not_told_as_running_whoever_asks_first(world, shop, native, marked, what):
    """Its end was not recorded: it was killed, the machine restarted, or its start was cut off."""
    first = world.claude(shop, "add retry", "Retries")
    fork = native(first, "in blue", "Blue")
    with Registry() as registry:
        begun = 1.0 if what == "never started" else None
        worker = registry.add("claude", source_session_id=first, place="tmux", cwd=shop, now=begun)
        registry.set_session_id(worker.id, fork)
        if what != "never started":
            gone = subprocess.Popen(["true"])
            gone.wait()
            pid = gone.pid if what == "ended" else marked("claude-1")
            registry.set_started(worker.id, command=["claude"], terminal_id="%1", pid=pid)
            registry.set_status(worker.id, "working")

        assert members(first)[fork]["running"] is None
        assert ("ended" if what != "never started" else "failed") == registry.get(worker.id).state


def test_what_we_started_is_known_and_what_runs_is_told(world, shop, native):
    """The registry tells it before the agent has written a log, and also the caller."""
    first = world.claude(shop, "add retry", "Retries")
    fork = native(first, "in blue", "Blue")
    silent = "60309e1e-0000-4000-8000-00000000000c"
    with Registry() as registry:
        for session_id, caller in ((fork, None), (silent, fork)):
            worker = registry.add(
                "claude", name="blue", source_session_id=first, caller_session_id=caller, place="tmux", cwd=shop
            )
            registry.set_session_id(worker.id, session_id)
            registry.set_started(worker.id, command=["claude"], attach="tmux attach")
        registry.set_state(registry.get(fork).id, "ended")

    told = members(first)

    assert [(0, first), (1, fork), (1, silent)] == tree(first)
    assert (None, fork) == (told[fork]["running"], told[silent]["started_by"])
    assert ("blue", "tmux", "running", "tmux attach") == tuple(
        told[silent]["running"][key] for key in ("name", "place", "status", "attach")
    )
    assert told[silent]["log_gone"]


def test_a_point_that_the_parent_has_rewound_has_no_number(world, shop, native):
    first = world.claude(shop, "add retry", "Retries")
    fork = native(first, "in blue", "Blue")
    more = world.claude_records(first, shop, "from the start", "Yes")
    world.write_claude(first, shop, more, mode="a")

    assert (first, None) == (members(fork)[fork]["parent"], members(fork)[fork]["left_parent_at"])


@pytest.mark.thorough
def test_hundreds_of_forks_are_told_fast(world, shop, native):
    """The work grows only with their number: 150 forks, each of the one before or of the first."""
    first = world.claude(shop, *("add retry", "Retries") * 20)
    last = first
    expected = {first: None}
    for number in range(150):
        parent = last if number % 3 else first
        last = native(parent, f"step {number}", "Done")
        expected[last] = parent
    began = time.process_time()

    assert expected == {name: one["parent"] for name, one in members(first).items()}
    assert time.process_time() - began < 10


# Codex


def test_forks_of_codex_say_whose_they_are(world, shop, home):
    """Copy-on-write through two levels, a copy by smart-fork, and a copy by an old version."""
    ids = ["60309e1e-0000-4000-8000-00000000000" + end for end in "abcd"]
    write_log(codex_path(home, ids[0]), codex_records(ids[0], shop, ["first", "second"]))
    base = {"thread_id": ids[0], "end_ordinal_exclusive": 9}
    write_log(
        codex_path(home, ids[1]),
        codex_records(ids[1], shop, ["third"], start=9, forked_from_id=ids[0], history_base=base),
    )
    base = {"thread_id": ids[1], "end_ordinal_exclusive": 18}
    write_log(codex_path(home, ids[2]), codex_records(ids[2], shop, ["fourth"], start=18, history_base=base))
    old = codex_records(ids[3], shop, ["fifth"])
    write_log(codex_path(home, ids[3]), [old[0], *codex_records(ids[0], shop, ["first"]), *old[1:]])
    made = branch(ids[1])["session_id"]

    told = members(ids[2])

    above = {name: one["parent"] for name, one in told.items()}
    assert {ids[0]: None, ids[1]: ids[0], ids[2]: ids[1], ids[3]: ids[0], made: ids[1]} == above
    left = {name: one["left_parent_at"] and one["left_parent_at"]["text"] for name, one in told.items()}
    assert {
        ids[0]: None,
        ids[1]: "Done: first",
        ids[2]: "Done: third",
        ids[3]: "Done: first",
        made: "Done: third",
    } == left
    assert f"cd {shop} && codex resume {ids[1]}" == lineage(made)["return_command"]


# How it is told


def test_the_command_draws_a_tree_and_nothing_in_it_steers_the_terminal(world, shop, native, run):  # noqa: F811
    first = world.claude(shop, "add \x1b[31mretry\x1b[0m\x07 [bold]now[/bold]", "Ret\x9bries")
    fork = native(first, "in blue", "Blue")
    branch(fork, title="mine\nand yours")

    drawn = run("lineage", fork)

    assert 0 == drawn.code
    assert not any((ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 for c in drawn.out)
    lines = drawn.out.splitlines()
    assert lines[0].startswith(f"{first[:8]}  add ")
    assert "[bold]now[/bold]" in lines[0]
    assert f"└── {fork[:8]}" in drawn.out
    assert 'forked after message 1: "Ret' in drawn.out
    assert "mine and yours (Branch)" in drawn.out
    assert f"To return to its parent: cd {shop} && claude --resume {first}" == lines[-1]
    assert lineage(fork) == json.loads(run("lineage", fork, "--json").out)
    assert 3 == run("lineage", "99999999-0000").code


def test_an_index_that_knows_the_logs_tells_the_same(world, shop, native):
    first = world.claude(shop, "add retry", "Retries")
    fork = native(first, "in blue", "Blue")
    before = lineage(fork)

    world.find("retry", shop)

    assert before == lineage(fork)


@pytest.mark.thorough
def test_a_hit_says_how_large_its_family_is(world, shop, native, run):  # noqa: F811
    first = world.claude(shop, "add retry", "Retries")
    alone = run("find", "add retry", "--explain").out
    native(first, "in blue", "Blue")

    found = run("find", "add retry", "--explain").out

    assert "in its family" not in alone
    assert 1 == found.count("2 in its family")


def test_a_branch_at_the_match_ends_with_the_exchange_that_answers(world, shop, run):  # noqa: F811
    """C-022."""
    first = world.claude(shop, "add retry to the uploader", "Retries", "rename the logo", "Renamed")

    made = json.loads(run("branch", first, "--at", "match", "--intent", "retry uploader", "--json").out)

    assert (1, ["Branched after message 1, where the exchange that answers best ends"]) == (
        made["at"],
        made["warnings"],
    )
    assert "logo" not in Path(made["path"]).read_text()
    for wrong in (["--at", "match"], ["--intent", "x"], ["--at", "1", "--intent", "x"], ["--at", "-1"], ["--at", "x"]):
        assert 2 == run("branch", first, *wrong).code


def test_over_mcp(world, shop, native, monkeypatch):
    monkeypatch.chdir(shop)
    first = world.claude(shop, "add retry", "Retries", "docs", "Documented")

    made = answer(world, "branch_session", session_id=first, at=1, title="mine", project_path=".")
    family = answer(world, "session_lineage", session_id=made["session_id"])

    assert ("mine (Branch)", 1) == (made["title"], made["at"])
    assert [(0, first), (1, made["session_id"])] == [(one["depth"], one["session_id"]) for one in family["sessions"]]


def test_a_session_that_is_not_there(world, shop):
    with pytest.raises(NotFound):
        lineage("99999999-0000-4000-8000-000000000001")
