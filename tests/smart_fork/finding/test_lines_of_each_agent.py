"""Tests from a line of code to the session that wrote it, for each agent, with logs as the agents write them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from smart_fork import read
from smart_fork.agents.log_readers import READERS
from tests.indexer.transcripts.records import (
    READ_LOGS,
    answering,
    below_home,
    calling,
    copilot_log,
    gemini_log,
    happened,
    lay_out,
    linked,
    qwen_log,
    ran,
    requested,
    spoken,
)
from tests.smart_fork.agents.opencode import database
from tests.smart_fork.finding.test_authorship import BODY, ask, commit
from tests.support.cases import thorough_except

PROMPT = "retry the upload five times"
#: Later than each fixture, in seconds.
AFTERWARDS = 1_900_000_000
OLD, NEW = "    return send(part)\n", "    return retried(send, part, times=5)\n"


def _qwen(shop: Path, tool: str, given: dict) -> None:
    records = (
        linked("user", "u1", None, PROMPT, cwd=str(shop)),
        linked("assistant", "a1", "u1", calling("c1", tool, **given), cwd=str(shop)),
        linked("tool_result", "r1", "a1", answering("c1", tool, output="Done."), cwd=str(shop)),
        linked("assistant", "a2", "r1", "Done.", cwd=str(shop)),
    )
    qwen_log(Path.home(), *records, cwd=str(shop))


def _gemini(shop: Path, tool: str, given: dict) -> None:
    work = spoken("gemini", "a1", toolCalls=[ran("c1", tool, "Done.", **given)])
    gemini_log(Path.home(), spoken("user", "u1", PROMPT), work, spoken("gemini", "a2", "Done."), cwd=str(shop))


def _copilot(shop: Path, tool: str, given: dict) -> None:
    call = {"toolCallId": "c1", "name": tool, "arguments": given, "type": "function"}
    events = (
        happened("user.message", "u1", content=PROMPT),
        happened("assistant.message", "a1", content="", toolRequests=[call]),
        happened("tool.execution_start", "s1", toolCallId="c1", toolName=tool, arguments=given),
        happened("tool.execution_complete", "r1", toolCallId="c1", success=True, result={"content": "Done."}),
        happened("assistant.message", "a2", content="Done."),
    )
    copilot_log(Path.home(), *events, cwd=str(shop))


def _opencode(shop: Path, tool: str, given: dict) -> None:
    path = database.make()
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM session WHERE id <> ?", (database.TOOLS,))
        db.execute("UPDATE session SET directory = ?", (str(shop),))
        for row, data in db.execute("SELECT id, data FROM part").fetchall():
            part = json.loads(data)
            if part.get("tool") == "edit":
                part["tool"], part["state"]["input"] = tool, given
                db.execute("UPDATE part SET data = ? WHERE id = ?", (json.dumps(part), row))
        db.commit()


def _patch(name: str) -> str:
    added = "".join(f"+{line}\n" for line in BODY.splitlines())
    return f"*** Begin Patch\n*** Add File: {name}\n{added}*** End Patch\n"


#: How an agent writes a call of a tool, the tools that edit, and what these are given.
TOOLS: dict[tuple[str, str], tuple[Callable, Callable[[str], object]]] = {
    ("qwen", "write_file"): (_qwen, lambda file: {"file_path": file, "content": BODY}),
    ("qwen", "edit"): (_qwen, lambda file: {"file_path": file, "old_string": "", "new_string": BODY}),
    ("gemini", "write_file"): (_gemini, lambda file: {"file_path": file, "content": BODY}),
    ("gemini", "replace"): (_gemini, lambda file: {"file_path": file, "old_string": "pass", "new_string": BODY}),
    ("copilot", "create"): (_copilot, lambda file: {"path": file, "file_text": BODY}),
    ("copilot", "edit"): (_copilot, lambda file: {"path": file, "old_str": "pass", "new_str": BODY}),
    ("copilot", "apply_patch"): (_copilot, _patch),
    ("opencode", "write"): (_opencode, lambda file: {"filePath": file, "content": BODY}),
    ("opencode", "edit"): (_opencode, lambda file: {"filePath": file, "oldString": "pass", "newString": BODY}),
    ("opencode", "multiedit"): (
        _opencode, lambda file: {"filePath": file, "edits": [{"oldString": "pass", "newString": BODY}]},
    ),
    ("opencode", "apply_patch"): (_opencode, lambda file: {"patchText": _patch(file)}),
}  # fmt: skip


#: One of each agent; its others are told alike.
FIRST = {agent: (agent, tool) for agent, tool in reversed(TOOLS)}.values()


@pytest.mark.parametrize(("agent", "tool"), thorough_except(TOOLS, *FIRST))
def test_a_line_leads_to_the_session_of_an_agent_and_that_to_its_commit(world, shop, agent, tool):
    write, given = TOOLS[agent, tool]
    write(shop, tool, given(str(shop / "upload.py")))
    name = commit(shop, "upload.py", BODY, at=AFTERWARDS)

    (hit,) = ask(world, shop, lines=["upload.py:2-3"])["results"]

    assert (hit["agent_type"], hit["wrote"]["lines"], hit["wrote"]["of"]) == (agent, 2, 2)
    assert [one.commit for one in read(hit["session_id"]).commits.commits] == [name]


def read_only(shop: Path, agent: str) -> None:
    """Copy an agent's fixture into its home. The session in it edits this file, by a longer line."""
    lay_out(agent, str(shop))
    log = Path.home() / below_home(agent)
    if agent == "goose":
        with closing(sqlite3.connect(log.parent)) as db:
            told = "UPDATE messages SET content_json = replace(content_json, 'return retried(send, part)', ?)"
            db.execute(told, (NEW.strip(),))
            db.commit()
    else:
        text = log.read_text().replace("retried(send, path)", "return retried(send, part)")
        log.write_text(text.replace("return retried(send, part)", NEW.strip()))
    commit(shop, "upload.py", f"def upload(part):\n{OLD}", at=1_700_000_000)
    commit(shop, "upload.py", f"def upload(part):\n{NEW}", at=AFTERWARDS)


@pytest.mark.parametrize("agent", sorted(set(READ_LOGS) - {"cursor"}))
def test_a_line_leads_to_the_session_of_an_agent_that_is_only_read(world, shop, agent):
    read_only(shop, agent)

    answer = ask(world, shop, lines=["upload.py:1", "upload.py:2"])

    assert [(hit["agent_type"], hit["wrote"]["lines"]) for hit in answer["results"]] == [(agent, 1)]
    assert answer["code"] == {"lines": 2, "unknown": 1}


def test_the_lines_of_an_agent_whose_log_has_no_times_are_nobodys(world, shop):
    read_only(shop, "cursor")

    assert ask(world, shop, lines=["upload.py:2"])["results"] == []


def test_the_lines_of_every_agent_that_is_read_are_tried():
    tried = {agent for agent, _ in TOOLS} | set(READ_LOGS) | {"claude", "codex"}
    assert tried == {agent.name for agent in READERS}


def test_a_call_that_failed_wrote_nothing(world, shop):
    given = {"path": str(shop / "upload.py"), "file_text": BODY}
    events = (
        happened("user.message", "u1", content=PROMPT),
        happened("assistant.message", "a1", content="", toolRequests=[requested("c1", "create", **given)]),
        happened("tool.execution_complete", "r1", toolCallId="c1", success=False, error={"message": "It exists."}),
    )
    copilot_log(Path.home(), *events, cwd=str(shop))
    commit(shop, "upload.py", BODY, at=AFTERWARDS)

    assert ask(world, shop, lines=["upload.py:2"])["results"] == []
