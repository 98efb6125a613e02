"""``smart-fork excise`` and the server's tool."""

from __future__ import annotations

import io
import json
import uuid
from pathlib import Path

import pytest

from smart_fork.excise import suggest
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.forks import codex_path, codex_records, write_log
from tests.smart_fork.mcp_client import answer, refusal
from tests.smart_fork.world import World

pytestmark = pytest.mark.usefixtures("claude_records")


def call(name: str, identity: str, **arguments: object) -> list[dict]:
    return [{"type": "tool_use", "id": identity, "name": name, "input": arguments}]


def result(identity: str, output: str) -> list[dict]:
    return [{"type": "tool_result", "tool_use_id": identity, "content": output}]


@pytest.fixture
def claude_records(world: World, shop: Path) -> Path:
    """Return the records of a session: a prompt, a call with its result, an answer, another prompt and answer."""
    session = str(uuid.uuid4())
    records = world.claude_records(
        session, shop, "add retry", "I look", "x", "Retry is there", "and the docs", "Docs are there"
    )
    records[1]["message"]["content"] = call("Read", "t1", file="a")
    records[2]["message"]["content"] = result("t1", "ok")
    return world.write_claude(session, shop, records)


def ids(path: Path) -> list[str]:
    return [one["uuid"] for line in path.read_bytes().splitlines() if "uuid" in (one := json.loads(line))]


@pytest.mark.parametrize("damage", [b'{"type":"user","uuid":"0123', b"\0" * 300, b"[1, 2]\nnull"])
def test_a_transcript_whose_beginning_is_damaged_is_listed_and_cut(run, claude_records, damage):  # noqa: F811
    claude_records.write_bytes(damage + b"\n" + claude_records.read_bytes())
    last = ids_behind(damage, claude_records)[-1]

    assert run("excise", "list", claude_records.stem).code == 0
    assert run("excise", "cut", "--id", last, claude_records.stem, "--yes").code == 0

    assert last not in ids_behind(damage, claude_records)
    assert claude_records.read_bytes().startswith(damage + b"\n")


def ids_behind(damage: bytes, path: Path) -> list[str]:
    lines = path.read_bytes().removeprefix(damage + b"\n").splitlines()
    return [one["uuid"] for line in lines if "uuid" in (one := json.loads(line))]


def test_list_numbers_the_turns_and_changes_nothing(run, claude_records):  # noqa: F811
    """E-070, E-003, E-012."""
    before = claude_records.read_bytes()

    shown = run("excise", "list", claude_records.stem)

    lines = [line.split() for line in shown.out.splitlines()]
    assert [str(number) for number in range(6)] == [line[0] for line in lines]
    assert ["user", "assistant", "tool", "assistant", "user", "assistant"] == [line[1] for line in lines]
    assert "[tool_use: Read]" in shown.out
    assert "[tool_result] ok" in shown.out
    listed = json.loads(run("excise", "list", "--json").out)  # the newest of Claude's (E-022)
    assert ids(claude_records) == [turn["id"] for turn in listed["turns"]]
    assert before == claude_records.read_bytes()


def test_cut_says_what_goes_and_asks(run, claude_records, monkeypatch):  # noqa: F811
    """E-072."""
    before = claude_records.read_bytes()

    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    refused = run("excise", "cut", "1", claude_records.stem)

    assert "Will remove 2 turn(s) (including 1 pulled in by tool-call dependency):" in refused.err
    assert "(dep)" in refused.err
    assert "Commit? [y/N]" in refused.err
    assert (1, before) == (refused.code, claude_records.read_bytes())
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert 0 == run("excise", "cut", "1", claude_records.stem).code
    assert 4 == len(ids(claude_records))


def test_cut_by_id_verify_and_undo(run, claude_records):  # noqa: F811
    """E-041, E-062, E-073."""
    before = claude_records.read_bytes()
    assert "(no snapshots)" in run("excise", "rollback", "--list").out

    done = json.loads(run("excise", "cut", claude_records.stem, "--id", ids(claude_records)[1], "-y", "--json").out)

    assert 2 == len(done["removed"])
    assert 0 == run("excise", "verify", claude_records.stem).code
    assert done["snapshot"] in run("excise", "rollback", "--list").out
    assert 0 == run("excise", "rollback", done["snapshot"]).code
    assert before == claude_records.read_bytes()


def test_a_warning_ends_with_1_and_nothing_is_written(run, claude_records):  # noqa: F811
    """E-071."""
    before = claude_records.read_bytes()

    refused = run("excise", "cut", "2", claude_records.stem, "-y")

    assert (1, before) == (refused.code, claude_records.read_bytes())
    assert "dependency warnings (re-run with --force to override)" in refused.err
    assert 1 == run("excise", "cut", "2", claude_records.stem, "--dry-run").code
    assert 0 == run("excise", "cut", "2", claude_records.stem, "-y", "--force").code
    assert 2 == run("excise", "cut", "99", claude_records.stem, "-y").code
    assert 3 == run("excise", "list", "/nowhere/x.jsonl").code


def test_verify_ends_with_1_where_something_is_broken(run, claude_records):  # noqa: F811
    """E-041."""
    lines = claude_records.read_bytes().splitlines(keepends=True)
    claude_records.write_bytes(b"".join(lines[:1] + lines[2:]))

    broken = run("excise", "verify", claude_records.stem)

    assert 1 == broken.code
    assert "not in the file" in broken.out
    assert "t1" in broken.out


def test_a_branch_leaves_out_what_is_named(run, claude_records, tmp_path):  # noqa: F811
    """E-075: the session itself stays as it is."""
    before = claude_records.read_bytes()

    made = json.loads(run("branch", claude_records.stem, "--excise", "1", "--cwd", str(tmp_path), "--json").out)

    assert before == claude_records.read_bytes()
    assert [ids(claude_records)[1]] == made["removed"][:1]
    copied = Path(made["new_path"])
    assert copied.stem == made["new_session_id"] != claude_records.stem
    assert len(ids(copied)) == len(ids(claude_records)) - len(made["removed"])
    assert 2 == run("branch", claude_records.stem, "--excise", "1", "--title", "x").code


def test_a_branch_of_codex_elsewhere_says_what_is_true_there_and_shows_what_was_said(run, world, shop, tmp_path):  # noqa: F811
    """B-070, B-071, B-091, E-075: in the newest form, which has screen events that a copy lacks."""
    session = str(uuid.uuid4())
    records = codex_records(
        session, shop, ["add retry", "swordfish"], git={"branch": "main"}, runtime_workspace_roots=[str(shop)]
    )
    item = {"type": "UserMessage", "content": [{"type": "text", "text": "add retry"}]}
    shown = {
        "type": "event_msg",
        "ordinal": 99,
        "payload": {"type": "item_completed", "thread_id": session, "item": item},
    }
    write_log(codex_path(world.home, session), [*records[:4], shown, *records[4:]])

    made = json.loads(run("branch", session, "--excise", "4-7", "--cwd", str(tmp_path), "--json").out)

    header, *copy = [json.loads(line) for line in Path(made["new_path"]).read_bytes().splitlines()]
    assert {"swordfish"} == {one["payload"]["turn_id"] for one in copy if "swordfish" in json.dumps(one)}
    told = header["payload"]
    assert (str(tmp_path), [str(tmp_path)], session) == (
        told["cwd"], told["runtime_workspace_roots"], told["forked_from_id"],
    )  # fmt: skip
    assert not {"git", "history_mode"} & set(told)
    assert {str(tmp_path)} == {one["payload"]["cwd"] for one in copy if one["type"] == "turn_context"}
    assert {"type": "user_message", "message": "add retry"} in [one["payload"] for one in copy]
    assert not any("ordinal" in one for one in copy)


def test_a_branch_of_an_old_fork_of_codex_has_its_own_header(run, world, shop):  # noqa: F811
    """B-091: the header of the parent, which was copied into it, comes second."""
    parent, child = str(uuid.uuid4()), str(uuid.uuid4())
    records = codex_records(parent, shop, ["add retry", "and the docs"], cli_version="0.1")
    own = codex_records(child, shop, [], cli_version="0.2", history_mode="legacy")
    write_log(
        codex_path(world.home, child),
        [{name: value for name, value in one.items() if name != "ordinal"} for one in (*own, *records)],
    )

    made = json.loads(run("branch", child, "--excise", "4-7", "--json").out)

    headers = [json.loads(line) for line in Path(made["new_path"]).read_bytes().splitlines()]
    assert [(made["new_session_id"], "0.2")] == [
        (one["payload"]["id"], one["payload"]["cli_version"]) for one in headers if one["type"] == "session_meta"
    ]


def test_a_cut_of_what_a_fork_has_from_its_parent_makes_a_branch(run, world: World, shop):  # noqa: F811
    parent, child = str(uuid.uuid4()), str(uuid.uuid4())
    records = codex_records(parent, shop, ["add retry", "swordfish"])
    path = write_log(codex_path(world.home, parent), records)
    base = {"thread_id": parent, "end_ordinal_exclusive": len(records), "end_byte_offset": path.stat().st_size}
    own = write_log(
        codex_path(world.home, child),
        codex_records(child, shop, ["and the tests"], len(records), forked_from_id=parent, history_base=base),
    )
    before = path.read_bytes(), own.read_bytes()
    listed = json.loads(run("excise", "list", child, "--json").out)["turns"]
    numbers = ",".join(
        str(turn["number"]) for turn in listed if "swordfish" in turn["preview"] and turn["role"] != "system"
    )

    assert any(turn["inherited"] for turn in listed)
    made = json.loads(run("excise", "cut", numbers, child, "--branch", "--json").out)

    text = Path(made["new_path"]).read_text()
    assert "add retry" in text
    assert "and the tests" in text
    assert "Done: swordfish" not in text
    assert "history_base" not in text
    assert before == (path.read_bytes(), own.read_bytes())
    assert 0 == run("excise", "verify", made["new_session_id"]).code


def test_suggestions_name_ranges_reasons_and_savings_and_cut_nothing(world: World, shop, run):  # noqa: F811
    """E-076: a reverted attempt, a repeated output, a long unused output, and a secret."""
    session = str(uuid.uuid4())
    token = "ghp_" + "a1B2" * 9
    names = " ".join(f"uniqueName{number}Of{number}Many" for number in range(700))
    contents = [
        "try it with threads", call("Edit", "t1", file_path="a.py", new_string="x" * 400), result("t1", "edited"),
        call("Bash", "t2", command="git checkout -- a.py"), result("t2", "restored"),
        call("Bash", "t3", command="make"), result("t3", "the same line again\n" * 60),
        call("Bash", "t4", command="make"), result("t4", "the same line again\n" * 60),
        call("Read", "t5", file_path="b.py"), result("t5", names),
        f"my token is {token}", [{"type": "text", "text": "I have used implementationDetail"}],
    ]  # fmt: skip
    records = world.claude_records(session, shop, *["?" for _ in contents])
    for record, content in zip(records, contents, strict=True):
        kind = "assistant" if isinstance(content, list) and content[0]["type"] in ("tool_use", "text") else "user"
        record |= {"type": kind, "message": {"role": kind, "content": content}}
    path = world.write_claude(session, shop, records)
    before = path.read_bytes()

    suggested = suggest(session)
    found = {one["kind"]: one for one in suggested["suggestions"]}

    assert (session, "claude", str(path)) == tuple(suggested[key] for key in ("session_id", "tool", "path"))
    assert {"reverted": "1-4", "repeated": "5-6", "unused": "9-10", "secret": "11"} == {
        kind: one["range"] for kind, one in found.items()
    }
    assert found["unused"]["tokens"] > 2000
    assert "github-token" in found["secret"]["reason"]
    assert all(one["reason"] for one in found.values())
    assert token not in run("excise", "suggest", session).out
    assert before == path.read_bytes()
    for one in found.values():
        if one["kind"] != "secret":
            assert 0 == run("excise", "cut", one["range"], session, "--dry-run").code


def test_the_servers_tool_is_a_dry_run_unless_it_is_told_otherwise(world: World, claude_records):
    """E-074."""
    before = claude_records.read_bytes()

    dry = answer(world, "excise_session", session_id=claude_records.stem, turns="1")

    assert (True, 2, before) == (dry["dry_run"], len(dry["removed"]), claude_records.read_bytes())
    assert {"removed", "dependents", "warnings", "relinked", "tokens_before", "tokens_after"} <= dry.keys()
    assert "snapshot" not in dry
    done = answer(world, "excise_session", session_id=claude_records.stem, ids=[ids(claude_records)[1]], dry_run=False)
    assert (False, 2, 1) == (done["dry_run"], len(done["removed"]), len(done["relinked"]))
    assert done["snapshot"]
    assert 4 == len(ids(claude_records))


def test_the_servers_tool_refuses_what_is_not_said_what_would_break_and_the_caller_itself(
    world: World, claude_records, monkeypatch
):
    assert "session_id or path" in refusal(world, "excise_session", turns="1")
    assert [
        "t1" in one["reason"]
        for one in answer(world, "excise_session", path=str(claude_records), turns="2")["warnings"]
    ]
    assert "dependency warnings" in refusal(world, "excise_session", path=str(claude_records), turns="2", dry_run=False)
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", claude_records.stem)
    assert "running" in refusal(world, "excise_session", session_id=claude_records.stem[:9], turns="1", dry_run=False)
