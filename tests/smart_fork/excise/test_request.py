"""Cuts of real files: written, refused and undone."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from smart_fork.agents.excision import snapshots
from smart_fork.errors import ForkRefused, NotFound, Usage
from smart_fork.excise import Refused, Request, check, cut, load_auto, plan, rollback
from smart_fork.excise.writing import change_of, write
from smart_fork.workers.registry import Registry
from tests.smart_fork.forks import SESSION, codex_path, codex_records, said, text, write_log


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]


def ids(path: Path) -> list[str]:
    return [record.get("uuid") or record["type"] for record in records(path)]


def cut_of(path: Path, *names: str, **more: object) -> dict:
    return cut(Request(str(path), ids=names, **more))


def test_a_call_goes_with_its_result_and_the_rest_is_linked_anew(claude_session):
    """E-030, E-032, E-040."""
    before = {
        record.get("uuid"): line for line in claude_session.read_bytes().splitlines() if (record := json.loads(line))
    }

    outcome = cut_of(claude_session, "a3")

    assert ["a3", "r1"] == outcome["removed"]
    assert (["a3"], ["r1"], ["a4"]) == (outcome["seeds"], outcome["dependents"], outcome["relinked"])
    assert ["mode", "u1", "x1", "a1", "a2", "s1", "a4", "dead", "u2", "a5"] == ids(claude_session)
    for line in claude_session.read_bytes().splitlines():
        record = json.loads(line)
        if record.get("uuid") == "a4":
            assert line == before["a4"].replace(b'"parentUuid": "r1"', b'"parentUuid": "a2"')
        else:
            assert line == before[record.get("uuid")]
    assert check(str(claude_session))["ok"]
    assert outcome["tokens_after"] < outcome["tokens_before"]


def test_a_dry_run_changes_nothing(claude_session, home):
    """E-072."""
    before = claude_session.read_bytes()

    outcome = cut_of(claude_session, "a3", dry_run=True)

    assert (before, True, ["a3", "r1"]) == (claude_session.read_bytes(), outcome["dry_run"], outcome["removed"])
    assert not (home / ".smart-fork/snapshots").exists()


def test_a_result_whose_call_stays_is_only_cut_when_it_is_insisted_on(claude_session):
    """E-031, E-071."""
    before = claude_session.read_bytes()

    with pytest.raises(Refused) as refused:
        cut_of(claude_session, "r1")

    assert "dependency warnings (re-run with --force to override)" in refused.value.message
    assert "t1" in refused.value.message
    assert "a3" in refused.value.message
    assert "aborted by dependency-aware check" in refused.value.message
    assert before == claude_session.read_bytes()
    assert ["r1"] == cut_of(claude_session, "r1", force=True)["removed"]


def test_cutting_everything_or_every_prompt_has_to_be_insisted_on(claude_session):
    """E-073."""
    for turns in ("0-7", "0,6"):
        with pytest.raises(Refused):
            cut(Request(str(claude_session), turns))
    assert cut(Request(str(claude_session), "0,6", force=True))["removed"] == ["u1", "u2"]


def test_what_is_not_there_is_not_cut(claude_session):
    """E-034, E-070, E-073."""
    for request, words in (
        (Request(str(claude_session), "8"), "turn 8 out of range (the last one is 7)"),
        (Request(str(claude_session), "x-3"), 'bad range "x-3"'),
        (Request(str(claude_session), "abc"), 'bad turn "abc"'),
        (Request(str(claude_session), ids=("zzz",)), "no turn with id zzz"),
        (Request(str(claude_session)), "nothing to cut was named"),
    ):
        with pytest.raises(Usage) as error:
            cut(request)
        assert words == error.value.message
    with pytest.raises(NotFound):
        cut(Request("/nowhere/x.jsonl", "1"))


def test_an_undone_cut_is_there_again_byte_for_byte_and_so_is_an_undone_undoing(claude_session):
    """E-060, E-062, E-064."""
    first = claude_session.read_bytes()
    snapshot = cut_of(claude_session, "a3")["snapshot"]
    second = claude_session.read_bytes()

    undone = rollback(snapshot)
    assert first == claude_session.read_bytes()
    rollback(undone["snapshot"])
    assert second == claude_session.read_bytes()
    assert 3 == len(snapshots.snapshots())


def test_snapshots_are_private_unique_and_kept_for_thirty_days(claude_session, home):
    """E-060, E-063."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    cut(Request(str(claude_session), ids=("a3",)), now=now)
    cut(Request(str(claude_session), ids=("a5",)), now=now)
    kept = snapshots.snapshots(SESSION)

    assert 2 == len({one.id for one in kept})
    assert {0o600} == {stat.S_IMODE(one.path.stat().st_mode) for one in kept}
    assert {0o700} == {
        stat.S_IMODE(folder.stat().st_mode) for folder in (home / ".smart-fork/snapshots", kept[0].path.parent)
    }

    cut(Request(str(claude_session), ids=("dead",)), now=now + timedelta(days=31))
    assert 1 == len(snapshots.snapshots())


@pytest.mark.parametrize("name", ["..", "../x", "a/../b", "x", "20260101T000000.000000Z/..", ""])
def test_an_id_that_is_none_is_no_path(home, name):
    """E-063, X-002."""
    with pytest.raises(Usage):
        rollback(name)


def test_a_snapshot_that_is_not_there_is_named(home):
    """E-062."""
    with pytest.raises(NotFound) as error:
        rollback("20260101T000000.000000Z")
    assert "snapshot 20260101T000000.000000Z not found at" in error.value.message


def test_a_snapshot_of_unknown_origin_needs_a_place(claude_session, home):
    """E-062."""
    first = claude_session.read_bytes()
    snapshot = cut_of(claude_session, "a3")["snapshot"]
    (home / ".smart-fork/excise.jsonl").unlink()

    with pytest.raises(Usage) as error:
        rollback(snapshot)
    assert "--to" in error.value.hint
    rollback(snapshot, to=home / "elsewhere.jsonl")
    assert first == (home / "elsewhere.jsonl").read_bytes()


def test_a_session_that_has_gone_on_since_is_only_rolled_back_when_it_is_insisted_on(claude_session):
    snapshot = cut_of(claude_session, "a3")["snapshot"]
    with claude_session.open("a") as file:
        file.write(json.dumps(said("u9", "a5", "user", "go on")) + "\n")

    with pytest.raises(ForkRefused):
        rollback(snapshot)
    rollback(snapshot, force=True)
    assert "u9" not in ids(claude_session)


def test_the_log_of_cuts_names_what_was_named_and_what_went(claude_session, home):
    """E-061."""
    outcome = cut_of(claude_session, "a3")
    (entry,) = [json.loads(line) for line in (home / ".smart-fork/excise.jsonl").read_text().splitlines()]

    assert (["a3", "r1"], ["a3"], "cut", "claude") == (
        entry["removed_ids"],
        entry["seed_ids"],
        entry["command"],
        entry["tool"],
    )
    assert (SESSION, outcome["snapshot"], str(claude_session)) == (
        entry["session_id"],
        entry["snapshot"],
        entry["source_path"],
    )
    assert 0o600 == stat.S_IMODE((home / ".smart-fork/excise.jsonl").stat().st_mode)


def test_mode_and_link_of_a_transcript_are_kept_and_nothing_lies_beside_it(claude_session, home):
    """E-055, E-057."""
    target = home / "real" / claude_session.name
    target.parent.mkdir()
    claude_session.rename(target)
    target.chmod(0o640)
    claude_session.symlink_to(target)

    cut_of(claude_session, "a3")

    assert claude_session.is_symlink()
    assert 0o640 == stat.S_IMODE(target.stat().st_mode)
    assert "a3" not in ids(target)
    assert [target] == list(target.parent.iterdir())
    assert [claude_session] == list(claude_session.parent.iterdir())


def test_a_transcript_that_has_changed_since_it_was_read_is_left_alone(claude_session):
    """E-056."""
    planned = plan(load_auto(claude_session), {"a3"})
    with claude_session.open("a") as file:
        file.write(json.dumps(said("u9", "a5", "user", "go on")) + "\n")
    before = claude_session.read_bytes()

    with pytest.raises(ForkRefused):
        write(planned, change_of(planned, "cut", snapshots.DISK, datetime.now(UTC), follows=True))
    assert before == claude_session.read_bytes()
    assert [claude_session] == list(claude_session.parent.iterdir())


def test_a_running_session_of_claude_is_refused(claude_session, home, posing):
    """E-075: Claude Code records which sessions run."""
    note = home / ".claude/sessions/1.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"pid": posing("claude"), "sessionId": SESSION}))
    before = claude_session.read_bytes()

    with pytest.raises(ForkRefused) as refused:
        cut_of(claude_session, "a3")

    assert "running" in refused.value.message
    assert before == claude_session.read_bytes()
    note.write_text(json.dumps({"pid": 2**22 + 1, "sessionId": SESSION}))  # it was killed, and left its note
    cut_of(claude_session, "a3")


def test_a_session_that_codex_has_open_is_refused(codex_session, home):
    """E-075: Codex holds a lock for each open session, and leaves the lock file behind when it is killed."""
    lock = home / ".codex/thread-writer-locks" / f"{SESSION}.lock"
    lock.parent.mkdir()
    lock.touch()
    before = codex_session.read_bytes()
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ForkRefused, match="running"):
            cut_of(codex_session, "4")
    assert before == codex_session.read_bytes()

    assert ["4", "5"] == cut_of(codex_session, "4")["removed"]
    with lock.open("rb") as free:
        fcntl.flock(free, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.skipif(not Path("/proc/self/fdinfo").exists(), reason="the system does not tell who has a file open")
def test_a_session_that_another_process_has_open_for_writing_is_refused(claude_session):
    """E-075: older versions leave no note. A process that only reads does no harm."""
    code = "import sys; file = open(sys.argv[1], sys.argv[2]); print('open', flush=True); sys.stdin.read()"
    for mode, refused in (("a", True), ("r", False)):
        command = [sys.executable, "-c", code, str(claude_session), mode]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout.readline() == b"open\n"
            if refused:
                with pytest.raises(ForkRefused, match=f"process {other.pid}"):
                    cut_of(claude_session, "a3")
            else:
                cut_of(claude_session, "a3")
            other.stdin.close()
            other.wait()


def test_a_worker_of_ours_that_runs_is_refused(claude_session, repo, marked):
    """E-075."""
    with Registry() as registry:
        worker = registry.add("claude", source_session_id="", session_id=SESSION, place="process", cwd=repo)
        registry.set_started(worker.id, command=["claude"], pid=marked(worker.id))
        with pytest.raises(ForkRefused, match=worker.id):
            cut_of(claude_session, "a3")
        registry.set_started(worker.id, command=["claude"], pid=os.getpid())  # a number that was given again
    cut_of(claude_session, "a3")


def test_lines_of_bookkeeping_go_with_what_they_repeat(home, repo):
    path = write_log(home / f".claude/projects/x/{SESSION}.jsonl", [
        {"type": "queue-operation", "operation": "enqueue", "content": "the password is swordfish", "sessionId": SESSION},
        said("u1", None, "user", "the password is swordfish"),
        {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}},
        said("a0", "u1", "assistant", [{"type": "thinking", "thinking": "hm", "signature": "s"}], message={"role": "assistant", "id": "m1", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}),
        said("a1", "a0", "assistant", [], message={"role": "assistant", "id": "m1", "content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}]}),
        {"type": "progress", "toolUseID": "t1", "data": {"output": "swordfish"}, "uuid": "p1", "parentUuid": "a1"},
        said("r1", "p1", "user", [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]),
        said("a2", "r1", "assistant", text("done")),
        said("u2", "a2", "user", "and now the docs"),
        {"type": "last-prompt", "lastPrompt": "and now the docs", "leafUuid": "a2", "sessionId": SESSION},
    ])  # fmt: skip

    outcome = cut_of(path, "u1", "a1", "a2")

    assert ["u2", "last-prompt"] == ids(path)
    assert {"line-1", "line-3", "a0", "p1"} == set(outcome["repeated"])
    assert b"swordfish" not in path.read_bytes()
    assert [None, None] == [record.get("parentUuid", record.get("leafUuid")) for record in records(path)]


@pytest.mark.parametrize("last", ["r1", "r2"])
@pytest.mark.parametrize(("named", "stays"), [("a1", ["a2", "r2"]), ("a2", ["a1", "r1"])])
def test_what_is_left_of_parallel_calls_stays_on_the_way_from_the_leaf(home, repo, named, stays, last):
    """E-040: Claude Code continues from one result only. The other branch hangs on it by its answer's id."""

    def part(uid, parent, call):
        block = {"type": "tool_use", "id": call, "name": "Bash", "input": {}}
        return said(uid, parent, "assistant", [], message={"role": "assistant", "id": "m1", "content": [block]})

    path = write_log(home / f".claude/projects/x/{SESSION}.jsonl", [
        said("u1", None, "user", "both"),
        part("a1", "u1", "t1"),
        part("a2", "a1", "t2"),
        said("r1", "a1", "user", [{"type": "tool_result", "tool_use_id": "t1", "content": "left"}]),
        said("r2", "a2", "user", [{"type": "tool_result", "tool_use_id": "t2", "content": "right"}]),
        said("a3", last, "assistant", text("done")),
    ])  # fmt: skip

    cut_of(path, named)

    parents = {record["uuid"]: record["parentUuid"] for record in records(path)}
    way, current = [], "a3"
    while current:
        way.append(current)
        current = parents[current]
    assert ["a3", *stays[::-1], "u1"] == way


def test_a_rollout_keeps_every_byte_in_its_place(codex_session):
    """E-005: Codex's own database and the headers of its forks name places in the file."""
    before = codex_session.read_bytes()
    lines = before.splitlines(keepends=True)

    outcome = cut_of(codex_session, "4")

    after = codex_session.read_bytes()
    assert ["4", "5"] == outcome["removed"]
    assert len(before) == len(after)
    assert [line for line in lines if line in after.splitlines(keepends=True)] == lines[:4] + lines[6:]
    assert [record["ordinal"] for record in records(codex_session)] == [0, 1, 2, 3, *range(6, 17)]
    again = cut_of(codex_session, "12")
    assert ["12", "13"] == again["removed"]
    assert len(before) == codex_session.stat().st_size
    rollback(outcome["snapshot"], force=True)
    assert before == codex_session.read_bytes()


def test_what_codex_must_keep_loses_what_it_repeats(home, repo):
    found = codex_records(SESSION, repo, ["add retry", "and the docs"])
    found[8]["payload"]["last_agent_message"] = "Done: add retry"
    found.insert(9, {"timestamp": "", "ordinal": 9, "type": "compacted", "payload": {"message": "", "replacement_history": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "add retry"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a summary"}]}]}})  # fmt: skip
    for number, record in enumerate(found):
        record["ordinal"] = number
    path = write_log(codex_path(home, SESSION), found)
    size = path.stat().st_size

    cut(Request(str(path), ids=("3", "4", "6")))

    left = records(path)
    assert [None] == [one["payload"]["last_agent_message"] for one in left if "last_agent_message" in one["payload"]]
    (compacted,) = [one for one in left if one["type"] == "compacted"]
    assert 1 == len(compacted["payload"]["replacement_history"])
    assert b"Done: add retry" not in path.read_bytes()
    assert size == path.stat().st_size
