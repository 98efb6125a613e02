"""Secrets of every kind in every field of what is pushed: nowhere on the server, nor in anything that it writes."""

from __future__ import annotations

import json
import logging
import subprocess

from smart_fork.agents.claude.slugs import slug
from smart_fork.teamserver.cluster import OWNER
from tests.indexer.masking.invented import TOKENS
from tests.indexer.transcripts.records import item, message, meta, result, use, user
from tests.smart_fork.teamserver.shop import index_all

#: One of each kind: with every field of both logs that is some hundreds of places.
KINDS = {kind: tokens[0] for kind, tokens in TOKENS.items()}
ID = "44444444-4444-4444-8444-444444444444"
THREAD = "01a10000-0000-7000-8000-000000000000"


def claude_fields(token: str, number: int, parent: str | None) -> list[dict]:
    """An exchange that has a secret wherever a person, an agent or a tool can put one."""
    call = f"toolu_{number}"
    given = {
        "command": f"deploy --with {token} now", token: "as a name", "name": token, "id": token, "data": token,
        "deep": [{"er": [token]}], "text": json.dumps({"auth": token}), "argv": ["deploy", token],
    }  # fmt: skip
    thinking = {"type": "thinking", "thinking": f"the key is {token} then", "signature": "c2ln"}
    shown = {"stdout": f"ok {token}", "filePath": f"/srv/{token}", "type": token}
    back = result(f"r{number}", f"a{number}", call, [{"type": "text", "text": f"ok {token}"}])
    return [
        user(f"u{number}", parent, f"use {token} please", permissionMode=token, todos=[token], hookInfos=token),
        {"type": "attachment", "uuid": f"x{number}", "parentUuid": f"u{number}", "attachment": {"type": "hook", "text": token}},
        {"type": "assistant", "uuid": f"a{number}", "parentUuid": f"x{number}", "message": {
            "role": "assistant", "id": f"m{number}", "content": [thinking, use(call, "Bash") | {"input": given}]}},
        back | {"toolUseResult": shown},
        {"type": "assistant", "uuid": f"b{number}", "parentUuid": f"r{number}", "gitBranch": f"fix/{token}", "message": {
            "role": "assistant", "id": f"n{number}", "content": [{"type": "text", "text": f"used {token}."}]}},
        {"type": "file-history-snapshot", "messageId": f"u{number}", "snapshot": {"content": token}},
        {"type": "custom-title", "customTitle": f"with {token}", "sessionId": ID},
    ]  # fmt: skip


def codex_fields(token: str, number: int) -> list[dict]:
    call = f"call_{number}"
    return [
        message("developer", token),
        message("user", f"use {token} please"),
        item(
            "reasoning", summary=[{"type": "summary_text", "text": f"the key is {token} then"}], encrypted_content="gA"
        ),
        item("function_call", call_id=call, name="shell", arguments=json.dumps({"cmd": ["deploy", token], token: 1})),
        item("function_call_output", call_id=call, output=json.dumps({"output": f"ok {token}", "metadata": {}})),
        item("custom_tool_call", call_id=f"{call}b", name="apply_patch", input=f"*** Begin\n+{token}\n*** End"),
        item("custom_tool_call_output", call_id=f"{call}b", output=[{"type": "input_text", "text": f"ok {token}"}]),
        {"timestamp": "", "type": "event_msg", "payload": {"type": "agent_message", "message": f"used {token}."}},
        message("assistant", f"used {token}."),
    ]


def logs(machine, tokens: list[str]) -> list[str]:
    root = str(machine.repository)
    records, parent = [], None
    for number, token in enumerate(tokens):
        records += claude_fields(token, number, parent)
        parent = f"b{number}"
    folder = machine.home / ".claude/projects" / slug(root)
    folder.mkdir(parents=True)
    whole = ({"sessionId": ID, "cwd": root, "timestamp": "2026-07-01T10:00:00.000Z"} | record for record in records)
    here = (record | {"cwd": root, "sessionId": ID} for record in whole)
    (folder / f"{ID}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in here))
    day = machine.home / ".codex/sessions/2026/07/01"
    day.mkdir(parents=True)
    rollout = [
        meta(THREAD, cwd=root),
        *(one for number, token in enumerate(tokens) for one in codex_fields(token, number)),
    ]
    (day / f"rollout-2026-07-01T10-00-00-{THREAD}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rollout))
    return [ID, THREAD]


def told(token: str) -> list[bytes]:
    """How a secret would be written: as it is, and as JSON has its lines; of a long one the middle is enough."""
    lines = max(token.splitlines(), key=len)
    return [lines.encode()] if len(token.splitlines()) == 1 else [token.splitlines()[2].encode()]


def dumped(database, installed, name: str) -> bytes:
    command = [installed["pg_dump"], "--no-password", "--format=plain", f"--dbname={database.conninfo(OWNER, name)}"]
    return subprocess.run(command, capture_output=True, check=True).stdout


def test_no_secret_of_any_kind_in_any_field_reaches_the_server(*, alice, team, database, installed, base, caplog):
    caplog.set_level(logging.DEBUG)
    answers = []
    for number, reference in enumerate(logs(alice, list(KINDS.values()))):
        token = list(KINDS.values())[number]
        said = alice.do("team", "push", reference, "--public", "--yes", "--json", "--title", f"with {token}",
                        "--summary", f"about {token}", "--tags", f"a,{token}")  # fmt: skip
        assert said.code == 0, (said.out, said.err)
        answers.append(said)
    index_all(team)
    stored = b"\n".join(line for one in answers for line in team.stored(one.json["session_id"]))
    everything = b"\n".join(
        [
            dumped(database, installed, base),
            stored,
            caplog.text.encode(),
            *(f"{one.out}{one.err}".encode() for one in answers),
        ]
    )

    assert stored.count(b"[REDACTED:") > 20 * len(KINDS)
    assert [] == [kind for kind, token in KINDS.items() for way in told(token) if way in everything]
    assert all(sum(one.json["masked"].values()) > len(KINDS) for one in answers)
