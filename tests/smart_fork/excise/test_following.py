"""A cut reaches everything that was made from its session, or names what it does not reach."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from indexer import kept_logs, state_db
from indexer.refresh import complete
from indexer.safe_files import index_db, state_home
from indexer.session_export import export_path
from smart_fork import provenance
from smart_fork.agents.excision import snapshots
from smart_fork.agents.log_readers import READERS
from smart_fork.excise import Request, check, cut, erasure, rollback, writing
from smart_fork.finding.index_access import opened
from smart_fork.workers.registry import Registry
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.excise.test_families import next_run
from tests.smart_fork.forks import codex_records, said, text
from tests.smart_fork.session_family import branch
from tests.smart_fork.world import WordsModel, World
from tests.support import forkserver
from tests.support.cases import thorough_except_first

pytestmark = [pytest.mark.usefixtures("command_model"), pytest.mark.slow]
SECRET = "hunter77swordfish"
SAID = ("add retry to the uploader", "retries are there", f"the password is {SECRET}", "it is noted", "go on", "done")
#: No mask takes it for a secret: exports have it.
PLAIN = (*SAID[:2], f"we meet in {SECRET}", *SAID[3:])


def indexed() -> None:
    with opened() as store:
        complete(store, READERS, WordsModel(), patience=5)


def holders(home: Path) -> list[Path]:
    """Return the agents' logs that have the secret."""
    found = (path for folder in home.glob(".[!s]*") for path in folder.rglob("*"))
    return sorted(path for path in found if path.is_file() and SECRET.encode() in path.read_bytes())


def numbers(session_id: str) -> str:
    from smart_fork.excise.lookup import load_numbered, locate_transcript

    session = load_numbered("auto", locate_transcript(session_id))
    found = [
        n
        for n, turn in zip(session.numbers, session.turns, strict=True)
        if n is not None and SECRET.encode() in turn.raw
    ]
    return ",".join(map(str, found))


def cut_secret(session_id: str, **how) -> dict:
    return cut(Request(session_id, numbers(session_id), force=True, **how))


@pytest.fixture(params=thorough_except_first(["claude", "codex"]))
def chain(request, world, shop) -> list[str]:
    """Return a session, its branch, the branch's branch, and so on."""
    made = [getattr(world, request.param)(shop, *SAID)]
    for _ in range(4):
        made.append(branch(made[-1])["session_id"])
    return made


@pytest.mark.thorough
def test_without_an_index_and_without_a_register_all_generations_are_cut(world, chain):
    shutil.rmtree(state_home())
    assert 5 == len(holders(world.home))
    done = cut_secret(chain[0])

    assert (4, [], True) == (len(done["followed"]), done["left"], done["erased"])
    assert [] == holders(world.home)
    assert [True] * 5 == [check(one)["ok"] for one in chain]


def test_a_branch_that_is_younger_than_the_index_is_cut(world, shop):
    first = world.claude(shop, *SAID)
    indexed()
    branch(first)
    done = cut_secret(first)

    assert (1, []) == (len(done["followed"]), holders(world.home))


@pytest.mark.thorough
def test_forks_of_forks_that_are_in_the_register_are_cut(world, shop):
    made = [world.claude(shop, *SAID)]
    for number in range(3):
        made.append(world.fork_claude(made[-1], shop, f"in blue {number}", "blue"))
        with Registry() as registry:
            worker = registry.add("claude", source_session_id=made[-2], session_id=made[-1], place="process", cwd=shop)
            registry.set_state(worker.id, "ended")
    done = cut_secret(made[0])

    assert (3, [], []) == (len(done["followed"]), done["left"], holders(world.home))


def test_a_fork_of_which_nothing_says_whose_it_is_is_named_and_verify_fails(world, shop):
    first = world.claude(shop, *SAID)
    fork = world.fork_claude(first, shop, "in blue", "blue")
    done = cut_secret(first)

    (left,) = done["left"]
    assert (str(world.log_of(fork)), False) == (left["path"], done["erased"])
    assert "cut it there" in left["reason"]
    found = check(first)
    assert (False, [left["path"]]) == (found["ok"], [one["path"] for one in found["copies"]])
    cut_secret(fork)
    assert check(first)["ok"]


def test_what_is_cut_in_the_middle_is_cut_below_and_said_of_what_is_above(world, chain):
    done = cut_secret(chain[2])

    assert sorted(map(world.log_of, chain[:2])) == holders(world.home)
    assert ([], True) == (done["left"], check(chain[2])["ok"])
    assert all(any(one in line for line in done["remains"]) for one in chain[:2])


def test_verify_reads_what_was_not_to_follow(world, chain):
    done = cut_secret(chain[0], follow=False)

    assert done["snapshot"]
    found = check(chain[0])
    assert (False, set(map(str, map(world.log_of, chain[1:])))) == (
        found["ok"],
        {one["path"] for one in found["copies"]},
    )
    assert erasure.erase_again(chain[0])
    assert ([], True) == (holders(world.home), check(chain[0])["ok"])


@pytest.mark.thorough
def test_a_branch_that_says_it_itself_is_named(world, shop):
    first = world.claude(shop, *SAID)
    path = Path(branch(first)["path"])
    own = world.claude_records(path.stem, shop, "go on", f"with {SECRET} it works")
    world.write_claude(path.stem, shop, own, mode="a")
    done = cut_secret(first)

    assert ([str(path)], [str(path)]) == (
        [one["path"] for one in done["left"]],
        [one["path"] for one in done["followed"]],
    )
    assert "contain the cut text" in done["left"][0]["reason"]
    assert not check(first)["ok"]


def test_ordinary_words_that_a_branch_says_itself_are_no_trace(world, shop):
    first = world.claude(shop, *SAID[:3], "I will remember that")
    path = Path(branch(first)["path"])
    world.write_claude(path.stem, shop, world.claude_records(path.stem, shop, "go on", "I will remember"), mode="a")
    cut(Request(first, "2-3"))

    assert check(first)["ok"]


def test_a_branch_that_is_running_is_named_and_cut_by_the_next_index_run(world, shop, run, posing):  # noqa: F811
    first = world.claude(shop, *SAID)
    path = Path(branch(first)["path"])
    note = world.home / ".claude/sessions/1.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"pid": posing("claude"), "sessionId": path.stem}))
    done = cut_secret(first)

    assert ([str(path)], False) == ([one["path"] for one in done["left"]], done["erased"])
    assert "index run" in done["left"][0]["reason"]
    assert not check(first)["ok"]
    note.unlink()
    assert 0 == run("index", "run").code
    assert ([], True) == (holders(world.home), check(first)["ok"])
    assert [] == state_db.rows("SELECT * FROM owed_erasures")


def test_why_a_branch_could_not_be_cut_is_said(world, shop, monkeypatch):
    first = world.claude(shop, *SAID)
    path = branch(first)["path"]
    monkeypatch.setattr(writing, "write", Mock(side_effect=OSError(28, "No space left on device")))

    (left,) = cut_secret(first)["left"]

    assert (path, True) == (left["path"], left["reason"].startswith("No space left on device: the next"))


def test_an_undone_cut_is_not_made_by_the_next_run(world, shop, posing):
    first = world.claude(shop, *SAID)
    path = Path(branch(first)["path"])
    note = world.home / ".claude/sessions/1.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"pid": posing("claude"), "sessionId": path.stem}))
    done = cut_secret(first)
    note.unlink()
    rollback(done["snapshot"])
    erasure.run_pending()

    assert 2 == len(holders(world.home))


def test_where_signed_thinking_goes_with_its_secret_the_records_of_a_copy_follow_each_other(world, shop):
    session_id, token = "5b2f0000-0000-4000-8000-000000000002", "ghp_" + "a1B2" * 9
    records = [
        said("u1", None, "user", "add retry"),
        said("a1", "u1", "assistant", [{"type": "thinking", "thinking": token, "signature": "sig"}]),
        said("a2", "a1", "assistant", text("added")),
    ]
    world.write_claude(session_id, shop, [one | {"sessionId": session_id, "cwd": str(shop)} for one in records])
    copy = Path(branch(session_id)["path"])
    assert token in copy.read_text()
    cut(Request(session_id, secrets=True))

    written = [one for line in copy.read_text().splitlines() if "uuid" in (one := json.loads(line))]
    assert token not in copy.read_text()
    assert [None, *(one["uuid"] for one in written[:-1])] == [one["parentUuid"] for one in written]


def test_secrets_are_masked_in_all_generations(world, shop):
    token = "ghp_" + "a1B2" * 9
    first = world.claude(shop, *SAID, f"my token is {token}", "noted")
    last = branch(branch(first)["session_id"])["session_id"]
    shutil.rmtree(state_home())
    cut(Request(first, secrets=True))

    log = world.log_of(last).read_text()
    assert (False, True) == (token in log, "my token is [REDACTED:github-token]" in log)
    assert check(first)["ok"]


KILLED = """
import os, signal, sys
from indexer.safe_files import Disk
from smart_fork.excise import Request, cut, writing
whole, left = writing.write, [int(sys.argv[3])]
def write(*arguments, **more):
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    return whole(*arguments, **more)
writing.write = write
import smart_fork.excise.cutting as request
request.write = write
cut(Request(sys.argv[1], sys.argv[2], force=True))
"""


@pytest.mark.parametrize("written", thorough_except_first([1, 0, 2]))
def test_what_is_killed_between_two_files_is_finished_by_the_next_run(world, shop, run, written):  # noqa: F811
    first = world.claude(shop, *SAID)
    last = branch(branch(first)["session_id"])["session_id"]
    indexed()
    root = str(Path(__file__).resolve().parents[3])
    done = forkserver.run(
        [sys.executable, "-c", KILLED, first, numbers(first), str(written)],
        env=os.environ | {"PYTHONPATH": root}, cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert -signal.SIGKILL == done.returncode, done.stderr
    assert 3 - written == len(holders(world.home))
    assert check(first)["ok"] is (written == 0)
    assert 0 == run("index", "run").code

    assert (3 if not written else 0) == len(holders(world.home))
    assert [True, True] == [check(one)["ok"] for one in (first, last)]


class TestBeside:
    """Logs of sub-agents, and long results, next to a log."""

    @pytest.fixture
    def log(self, world: World, shop) -> Path:
        call = [{"type": "tool_use", "id": "toolu_1", "name": "Task", "input": {"prompt": f"try {SECRET}"}}]
        answer = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}]
        records = [
            said("u1", None, "user", "add retry"),
            said("a1", "u1", "assistant", text("added")),
            said("u2", "a1", "user", f"the password is {SECRET}"),
            said("c1", "u2", "assistant", call),
            said("r1", "c1", "user", answer, toolUseResult={"agentId": "1a"}),
            said("a2", "r1", "assistant", text("tried")),
        ]
        session_id = "5b2f0000-0000-4000-8000-000000000001"
        path = world.write_claude(
            session_id, shop, [one | {"sessionId": session_id, "cwd": str(shop)} for one in records]
        )
        for name in ("subagents/agent-1a.jsonl", "subagents/agent-1a.meta.json", "tool-results/toolu_1.txt"):
            place = path.with_suffix("") / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps({"uuid": "s1", "message": {"content": f"I try {SECRET}"}}) + "\n")
        return path

    def test_those_of_calls_that_are_cut_go_in_the_original_and_in_each_copy(self, world, shop, log):
        branch(branch(log.stem)["session_id"])
        before = {path: path.read_bytes() for path in holders(world.home)}
        assert 12 == len(before)
        done = cut_secret(log.stem)

        assert ([], []) == (holders(world.home), done["left"])
        assert check(log.stem)["ok"]
        rollback(done["snapshot"])
        assert before == {path: path.read_bytes() for path in holders(world.home)}

    def test_the_next_run_takes_away_what_a_killed_cut_has_left_of_them(self, world, shop, log, run, monkeypatch):  # noqa: F811
        def killed(path: Path, new: bytes) -> None:
            bring(path, new)
            raise KeyboardInterrupt

        bring = writing.write_or_delete
        with monkeypatch.context() as patch:
            patch.setattr(writing, "write_or_delete", killed)
            with pytest.raises(KeyboardInterrupt):
                cut_secret(log.stem)
        assert 2 == len(holders(world.home))
        assert 0 == run("index", "run").code

        assert ([], True) == (holders(world.home), check(log.stem)["ok"])

    @pytest.mark.thorough
    def test_others_that_have_what_was_cut_are_named(self, world, shop, log):
        other = log.with_suffix("") / "subagents/agent-2b.jsonl"
        other.write_text(json.dumps({"uuid": "s2", "message": {"content": f"found {SECRET}"}}) + "\n")
        copy = Path(branch(log.stem)["path"]).with_suffix("") / "subagents/agent-2b.jsonl"
        done = cut_secret(log.stem)

        assert {str(other), str(copy)} == {one["path"] for one in done["left"]} == set(map(str, holders(world.home)))
        found = check(log.stem)
        assert (False, False) == (done["erased"], found["ok"])
        assert {str(other), str(copy)} == {one["path"] for one in found["copies"]}

    def test_others_are_cut_by_their_paths_and_are_named_no_more(self, world, shop, log):
        other = log.with_suffix("") / "subagents/agent-2b.jsonl"
        other.write_text(json.dumps({"uuid": "s2", "type": "user", "message": {"content": f"found {SECRET}"}}) + "\n")
        cut_secret(log.stem)
        assert not check(log.stem)["ok"]
        cut(Request(str(other), ids=("s2",), force=True))

        assert ([], True) == (holders(world.home), check(log.stem)["ok"])

    def test_what_was_shown_in_place_of_a_long_result_goes_with_it(self, world, shop, log):
        shown = [{"kind": "tool-result", "toolUseId": "toolu_1", "replacement": f"it begins with {SECRET}"}]
        with log.open("a") as file:
            file.write(json.dumps({"type": "content-replacement", "sessionId": log.stem, "replacements": shown}) + "\n")
        branch(log.stem)
        assert 9 > len(holders(world.home)) > 4
        cut_secret(log.stem)

        assert [] == holders(world.home)

    def test_an_undone_undoing_takes_them_away_once_more(self, world, shop, log):
        done = cut_secret(log.stem)
        undone = rollback(done["snapshot"])
        assert 4 == len(holders(world.home))
        rollback(undone["snapshot"])

        assert ([], True) == (holders(world.home), check(log.stem)["ok"])


@pytest.mark.parametrize("agent", thorough_except_first(["codex", "gemini"]))
def test_each_session_that_was_told_is_named_with_what_to_do(world, shop, agent):
    first = world.claude(shop, *SAID)
    branch(first, as_agent=agent)  # masked, it has nothing of the secret
    told = branch(first, as_agent=agent, unmasked=True)
    again = branch(told["session_id"])
    done = cut_secret(first)

    assert {told["path"], again["path"]} == {one["path"] for one in done["left"]}
    assert not done["erased"]
    found = check(first)
    assert (False, 2) == (found["ok"], len(found["copies"]))


@pytest.mark.parametrize("agent", thorough_except_first(["codex", "gemini"]))
def test_a_told_session_that_has_a_cut_sentence_of_ordinary_words_is_named(world, shop, agent):
    first = world.claude(shop, *SAID[:2], "nobody may read that session before the next cut", "I will remember that")
    told = branch(first, as_agent=agent)
    done = cut(Request(first, "2-3", force=True))

    assert ([told["path"]], False) == ([one["path"] for one in done["left"]], check(first)["ok"])


def test_a_told_session_that_never_had_what_was_cut_is_not_named(world, shop):
    first = world.claude(shop, *SAID[:2])
    branch(first, as_agent="codex")
    more = world.claude_records(first, shop, "nobody may read that session", "I will remember")
    more[0]["parentUuid"] = json.loads(world.log_of(first).read_text().splitlines()[-1])["uuid"]
    world.write_claude(first, shop, more, mode="a")
    done = cut(Request(first, "2-3", force=True))

    assert ([], True) == (done["left"], check(first)["ok"])


@pytest.mark.thorough
def test_a_told_session_that_was_cut_itself_is_behind_no_more(world, shop):
    first = world.claude(shop, *SAID)
    told = branch(first, as_agent="codex", unmasked=True)["session_id"]
    cut_secret(first)
    cut_secret(told)

    assert [True, True] == [check(one)["ok"] for one in (first, told)]


@pytest.mark.thorough
def test_a_copy_that_is_kept_of_a_branch_whose_log_is_gone_is_named(world, shop, monkeypatch):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "true")
    first = world.claude(shop, *SAID)
    gone = branch(first)
    indexed()
    Path(gone["path"]).unlink()
    done = cut_secret(first)

    kept = kept_logs.find("claude", gone["session_id"])
    assert [str(kept.folder)] == [one["path"] for one in done["left"]]
    assert f"smart-fork forget {gone['session_id']}" in done["left"][0]["reason"]
    assert not check(first)["ok"]


@pytest.mark.parametrize("agents", thorough_except_first([
    ["claude", "claude"], ["codex", "claude"], ["qwen", "gemini", "claude"], ["claude", "codex", "qwen"], ["gemini", "codex"],
]))  # fmt: skip
def test_exports_of_lost_parents_are_named_at_any_depth_until_they_are_forgotten(world, shop, run, agents):  # noqa: F811
    above = a_line_of_hand_overs(world, shop, agents)
    last = above.pop()
    indexed()
    for _, path in above:
        path.unlink()
    done = cut_secret(last[0])
    next_run()

    exports = {str(export_path(agent, one)) for agent, (one, _) in zip(agents, above, strict=False)} | {str(index_db())}
    found = check(last[0])
    named = {one["path"] for one in found["copies"]}
    assert exports <= named == {one["path"] for one in done["left"]}
    assert (False, False) == (done["erased"], found["ok"])
    for command in {" ".join(one["reason"].partition("smart-fork ")[2].split()[:2]) for one in found["copies"]}:
        assert 0 == run(*command.split(), "--yes").code
    assert check(last[0])["ok"]


def test_the_export_of_a_lost_session_beside_it_is_named(world, shop):
    first = world.claude(shop, *PLAIN)
    told, other = branch(first, as_agent="codex"), branch(first)["session_id"]
    indexed()
    world.log_of(other).unlink()
    done = cut_secret(told["session_id"])

    assert {str(export_path("claude", other)), str(index_db())} == {one["path"] for one in done["left"]}
    assert any(f"session {first} of Claude Code, which has the same turns" in one for one in done["remains"])


def test_a_parent_that_never_had_what_was_cut_is_not_named(world, shop):
    first = world.claude(shop, *SAID[:2])
    told = branch(first, as_agent="codex")
    log = Path(told["path"])
    more = codex_records(told["session_id"], shop, [PLAIN[2]], len(log.read_text().splitlines()))[1:]
    log.write_text(log.read_text() + "".join(f"{json.dumps(one)}\n" for one in more))
    indexed()
    done = cut_secret(told["session_id"])
    assert done["numbers"]

    assert ([], [], True) == (done["left"], done["remains"], check(told["session_id"])["ok"])


def a_line_of_hand_overs(world, shop, agents) -> list[tuple[str, Path]]:
    """Return sessions of these agents, each handed over from the one before."""
    first = world.claude(shop, *PLAIN)
    made = [(first, world.log_of(first))]
    for at, agent in enumerate(agents):
        if agent != "claude" or at:
            one = branch(made[-1][0], **({} if at and agent == agents[at - 1] else {"as_agent": agent}))
            made.append((one["session_id"], Path(one["path"])))
    if len(made) > len(agents):
        made[0][1].unlink()  # as if it had been begun with that agent
        provenance.forget_handover(made[1][0])
    return made[-len(agents) :]


def test_where_the_snapshots_are_gone_records_that_were_cut_are_known_all_the_same(world, shop):
    first = world.claude(shop, *SAID)
    path = Path(branch(first)["path"])
    done = cut_secret(first, follow=False)
    snapshots.discard([done["snapshot"]])

    assert [str(path)] == [one["path"] for one in check(first)["copies"]]


def test_earlier_versions_of_files_that_the_agent_keeps_are_named(world: World, shop):
    kept, other = world.claude(shop, *SAID), world.claude(shop, *SAID)
    (history := world.home / ".claude" / "file-history" / kept).mkdir(parents=True)

    assert str(history) in cut(Request(kept, secrets=True))["remains"]
    assert not any("file-history" in one for one in cut(Request(other, secrets=True))["remains"])
