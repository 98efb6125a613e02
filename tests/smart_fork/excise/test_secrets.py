"""Secrets are masked in lines that stay: `cut --secrets`."""

from __future__ import annotations

import json

from smart_fork.excise import Request, cut
from tests.indexer.masking.invented_secrets import KEY_BEGIN, KEY_END, made_up
from tests.smart_fork.forks import SESSION, said, write_log


def test_thinking_with_a_secret_is_cut_and_not_changed(tmp_path):
    """Its signature would become invalid."""
    token = "ghp_" + "a1B2" * 9
    message = {"role": "assistant", "id": "m1"}
    path = write_log(tmp_path / f"{SESSION}.jsonl", [
        said("u1", None, "user", "go"),
        said("a1", "u1", "assistant", [], message=message | {"content": [{"type": "thinking", "thinking": token, "signature": "sig"}]}),
        said("a2", "a1", "assistant", [], message=message | {"content": [{"type": "thinking", "thinking": token, "signature": "sig"}, {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": f"curl -H {token}"}}]}),
        said("r1", "a2", "user", [{"type": "tool_result", "tool_use_id": "t1", "content": f"ok {token}"}], toolUseResult={"stdout": token}),
    ])  # fmt: skip

    outcome = cut(Request(str(path), secrets=True))

    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert (["a1"], ["u1", "a2", "r1"]) == (outcome["removed"], [record["uuid"] for record in records])
    assert token not in path.read_text()
    (call,) = records[1]["message"]["content"]
    assert ("t1", "u1") == (call["id"], records[1]["parentUuid"])


def test_what_a_command_has_printed_as_a_secret_is_masked_wherever_it_is_said(tmp_path):
    answer = "Harbor" + "#4711x"
    path = write_log(tmp_path / f"{SESSION}.jsonl", [
        said("u1", None, "user", "go"),
        said("a1", "u1", "assistant", [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "cat ~/.vault_pass"}}]),
        said("r1", "a1", "user", [{"type": "tool_result", "tool_use_id": "t1", "content": answer}], toolUseResult={"stdout": answer}),
        said("a2", "r1", "assistant", f"It says {answer}"),
    ])  # fmt: skip

    cut(Request(str(path), secrets=True))

    assert answer not in path.read_text()
    assert ["u1", "a1", "r1", "a2"] == [json.loads(line)["uuid"] for line in path.read_bytes().splitlines()]


def test_the_lines_of_a_key_in_a_patch_are_masked_as_one_text(tmp_path):
    """Also in a hunk that begins in the middle of it."""
    key = [KEY_BEGIN.format("RSA "), *(made_up(64, seed=seed) for seed in range(21, 27)), KEY_END.format("RSA ")]
    hunks = [{"lines": [f"-{line}" for line in key]}, {"lines": [f" {key[2]}", f"+{key[3]}"]}]
    path = write_log(tmp_path / f"{SESSION}.jsonl", [
        said("u1", None, "user", "go"),
        said("a1", "u1", "assistant", [{"type": "tool_use", "id": "t1", "name": "Edit", "input": {"old_string": key[4]}}]),
        said("r1", "a1", "user", [{"type": "tool_result", "tool_use_id": "t1", "content": "done"}], toolUseResult={"structuredPatch": hunks}),
    ])  # fmt: skip

    cut(Request(str(path), secrets=True))

    assert not [line for line in key[1:-1] if line in path.read_text()]
    assert ["u1", "a1", "r1"] == [json.loads(line)["uuid"] for line in path.read_bytes().splitlines()]


def test_beside_a_secret_all_else_of_its_record_stays_as_it_is(tmp_path):
    token = "ghp_" + "a1B2" * 9
    told = {
        "stdout": token,
        "names": ["a", "b"],
        "hunks": [{"lines": [" one", "+two"]}, {"lines": [" three"]}],
        "code": 0,
    }
    path = write_log(tmp_path / f"{SESSION}.jsonl", [said("u1", None, "user", "go", toolUseResult=told)])
    before = path.read_text()

    cut(Request(str(path), secrets=True))

    assert before.replace(token, "[REDACTED:github-token]") == path.read_text()


def test_of_named_messages_alone_the_secrets_are_masked(tmp_path):
    first, second, last = ("ghp_" + part * 9 for part in ("a1B2", "c3D4", "e5F6"))
    path = write_log(tmp_path / f"{SESSION}.jsonl", [
        said("u1", None, "user", first), said("a1", "u1", "assistant", second), said("u2", "a1", "user", last),
    ])  # fmt: skip

    outcome = cut(Request(str(path), "1", secrets=True))

    assert {"github-token": 1} == outcome["masked"]
    assert [True, False, True] == [one in path.read_text() for one in (first, second, last)]


def test_secrets_of_a_torn_line_and_of_a_record_behind_another_in_its_line_are_masked(tmp_path):
    first, second = ("ghp_" + part * 9 for part in ("a1B2", "c3D4"))
    path = write_log(tmp_path / f"{SESSION}.jsonl", [said("u1", None, "user", "go")])
    glued = [said("a1", "u1", "assistant", "gone"), said("u2", "a1", "user", f"it is {first}")]
    torn = json.dumps(said("a2", "u2", "assistant", f"not {second}"))[:-9]
    path.write_text(path.read_text() + "".join(map(json.dumps, glued)) + "\n" + torn + "\n")

    outcome = cut(Request(str(path), secrets=True))

    _, line, damaged = path.read_text().splitlines()
    assert {"github-token": 2} == outcome["masked"]
    assert "".join(map(json.dumps, glued)).replace(first, "[REDACTED:github-token]").replace("}{", "} {") == line
    assert torn.replace(second, "[REDACTED:github-token]") == damaged


def test_arguments_that_are_json_in_json_stay_json(codex_session):
    token = "ghp_" + "a1B2" * 9
    content = codex_session.read_text().replace(
        '"arguments": "{}"', '"arguments": ' + json.dumps(json.dumps({"cmd": f'curl -H "{token}"'})), 1
    )
    codex_session.write_text(content)

    cut(Request(str(codex_session), secrets=True))

    calls = [
        record["payload"]
        for line in codex_session.read_bytes().splitlines()
        if (record := json.loads(line))["payload"].get("arguments")
    ]
    assert {"cmd": 'curl -H "[REDACTED:github-token]"'} == json.loads(calls[0]["arguments"])
    assert len(content) == codex_session.stat().st_size
