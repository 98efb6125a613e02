"""Secrets of every kind in every field of a push: the server and its files never contain them."""

from __future__ import annotations

import itertools
import json
import logging
import random
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from smart_fork.agents.claude.log_files import slug
from smart_fork.team.client import Client
from smart_fork.team.server.postgres_process import OWNER
from smart_fork.team.stored_logins import Account
from tests.indexer.masking.invented_secrets import ALNUM, HEX, TOKENS, UPPER
from tests.indexer.transcripts.records import item, message, meta, result, use, user
from tests.smart_fork.team.server.shared_sessions import index_all
from tests.support.exhaustive import full_or_sample

pytestmark = pytest.mark.slow

#: So many secrets, of which each stands in another field of both logs, in so many exchanges; all kinds are among the fewer.
PLANTED, EXCHANGES = full_or_sample((400, 20), (120, 6))
#: So many characters of each are its own.
MADE_UP = 12
ID = "44444444-4444-4444-8444-444444444444"
THREAD = "01a10000-0000-7000-8000-000000000000"


def claude_fields(token: Callable[[], str], number: int, parent: str | None) -> list[dict]:
    """Return an exchange with a secret in every field that a person, an agent or a tool can fill."""
    call = f"toolu_{number}"
    given = {
        "command": f"deploy --with {token()} now", token(): "as a name", "name": token(), "id": token(), "data": token(),
        "deep": [{"er": [token()]}], "text": json.dumps({"auth": token()}), "argv": ["deploy", token()],
    }  # fmt: skip
    thinking = {"type": "thinking", "thinking": f"the key is {token()} then", "signature": "c2ln"}
    shown = {"stdout": f"ok {token()}", "filePath": f"/srv/{token()}", "type": token()}
    back = result(f"r{number}", f"a{number}", call, [{"type": "text", "text": f"ok {token()}"}])
    return [
        user(f"u{number}", parent, f"use {token()} please", permissionMode=token(), todos=[token()], hookInfos=token()),
        {"type": "attachment", "uuid": f"x{number}", "parentUuid": f"u{number}", "attachment": {"type": "hook", "text": token()}},
        {"type": "assistant", "uuid": f"a{number}", "parentUuid": f"x{number}", "message": {
            "role": "assistant", "id": f"m{number}", "content": [thinking, use(call, "Bash") | {"input": given}]}},
        back | {"toolUseResult": shown},
        {"type": "assistant", "uuid": f"b{number}", "parentUuid": f"r{number}", "gitBranch": f"fix/{token()}", "message": {
            "role": "assistant", "id": f"n{number}", "content": [{"type": "text", "text": f"used {token()}."}]}},
        {"type": "file-history-snapshot", "messageId": f"u{number}", "snapshot": {"content": token()}},
        {"type": "custom-title", "customTitle": f"with {token()}", "sessionId": ID},
    ]  # fmt: skip


def codex_fields(token: Callable[[], str], number: int) -> list[dict]:
    call = f"call_{number}"
    return [
        message("developer", token()),
        message("user", f"use {token()} please"),
        item(
            "reasoning",
            summary=[{"type": "summary_text", "text": f"the key is {token()} then"}],
            encrypted_content="gA",
        ),
        item(
            "function_call", call_id=call, name="shell", arguments=json.dumps({"cmd": ["deploy", token()], token(): 1})
        ),
        item("function_call_output", call_id=call, output=json.dumps({"output": f"ok {token()}", "metadata": {}})),
        item("custom_tool_call", call_id=f"{call}b", name="apply_patch", input=f"*** Begin\n+{token()}\n*** End"),
        item("custom_tool_call_output", call_id=f"{call}b", output=[{"type": "input_text", "text": f"ok {token()}"}]),
        {"timestamp": "", "type": "event_msg", "payload": {"type": "agent_message", "message": f"used {token()}."}},
        message("assistant", f"used {token()}."),
    ]


def logs(machine, tokens: list[str]) -> list[str]:
    root = str(machine.repository)
    records, parent = [], None
    token = partial(next, itertools.cycle(tokens))
    for number in range(EXCHANGES):
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
        *(one for number in range(EXCHANGES) for one in codex_fields(token, number)),
    ]
    (day / f"rollout-2026-07-01T10-00-00-{THREAD}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rollout))
    return [ID, THREAD]


def dumped(database, installed, name: str) -> bytes:
    command = [installed["pg_dump"], "--no-password", "--format=plain", f"--dbname={database.conninfo(OWNER, name)}"]
    return subprocess.run(command, capture_output=True, check=True).stdout


def another(token: str, number: int) -> str:
    """Return a token of a kind that no other test has: the end of its longest line is random."""
    lines = token.splitlines()
    at = lines.index(max(lines[1:-1] or lines, key=len))
    line, _, region = lines[at].partition("-us")
    kept, end = line[:-MADE_UP], line[-MADE_UP:]
    fitting = next((some for some in (HEX, UPPER) if set(end) <= set(some)), ALNUM)
    made = "".join(random.Random(number).choices(fitting, k=len(end)))  # noqa: S311
    lines[at] = kept + made + (f"-us{region}" if region else "")
    return "\n".join(lines)


def planted() -> list[str]:
    """Secrets of every kind."""
    every = [token for tokens in TOKENS.values() for token in tokens]
    return [another(every[number % len(every)], number) for number in range(PLANTED)]


def secret(token: str) -> bytes:
    """Return the part of a secret that no other secret has."""
    lines = token.splitlines()
    return max(lines[1:-1] or lines, key=len).partition("-us")[0][-MADE_UP:].encode()


def written(*folders: Path) -> bytes:
    """Return all bytes in the folders, decompressed where needed."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert files
    return b"\n".join(path.read_bytes() for path in files)


def test_no_secret_of_any_kind_in_any_field_reaches_the_server(
    *, alice, bob, team, address, database, installed, base, caplog
):
    caplog.set_level(logging.DEBUG)
    answers, tokens = [], planted()
    for number, reference in enumerate(logs(alice, tokens)):
        token = tokens[number]
        said = alice.do("team", "push", reference, "--public", "--yes", "--json", "--title", f"with {token}",
                        "--summary", f"about {token}", "--tags", f"a,{token}")  # fmt: skip
        assert said.code == 0, (said.out, said.err)
        answers.append(said)
    index_all(team)
    pushed = [one.json["session_id"] for one in answers]
    every = tokens[:8]
    answers += [bob.do("team", "find", f"where is {token} from", "--json") for token in every]
    answers += [bob.do("team", verb, token) for token in every[:2] for verb in ("show", "fork", "pull", "log")]
    forked = bob.do("team", "fork", pushed[0], "--yes", "--json")
    assert forked.code == 0, forked.err
    stored = b"\n".join(line for session in pushed for line in team.stored(session))
    with Client(Account(address, "alice", team.tokens["alice"])) as client:
        audit = client.audit().model_dump_json().encode()
    there = [
        dumped(database, installed, base), stored, audit, caplog.text.encode(),
        *(f"{one.out}{one.err}".encode() for one in [*answers, forked]),
        written(*(one.home / ".smart-fork/team" for one in (alice, bob))),
        written(*(one.repository / ".smart-fork" for one in (alice, bob)), bob.home / ".claude"),
    ]  # fmt: skip

    assert (PLANTED, PLANTED) == (len(tokens), len(set(map(secret, tokens))))
    assert stored.count(b"[REDACTED:") > PLANTED
    assert [] == [(place, token) for token in tokens for place, text in enumerate(there) if secret(token) in text]
    assert all(sum(one.json["masked"].values()) > PLANTED // 4 for one in answers[:2])
