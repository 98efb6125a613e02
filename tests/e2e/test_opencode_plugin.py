"""Our plugin for OpenCode, run by node with the events that OpenCode gives it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from smart_fork.agents import AGENTS
from tests.support.executables import SKIP_MISSING, fail_or_skip

pytestmark = pytest.mark.e2e
SESSION, BELOW = "ses_one", "ses_below"
#: Gives the plugin its events and calls, and prints what the calls have become.
OPENCODE = """
const { SmartFork } = await import(process.argv[1])
const { events, calls } = JSON.parse(process.argv[2])
const hooks = await SmartFork({ directory: "/shop" })
for (const event of events) hooks.event({ event })
for (const call of calls) await hooks["tool.execute.before"](call.input, call.output)
console.log(JSON.stringify(calls.map((call) => call.output)))
"""
NOTE = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"


@pytest.fixture
def node() -> str:
    found = shutil.which("node")
    if not found:
        if SKIP_MISSING:
            pytest.skip("SMART_FORK_E2E is skip")
        fail_or_skip("there is no node")
    return str(found)


def said(node: str, folder: Path, *events: dict, calls: tuple = (), program: str = sys.executable, **env: str) -> list:
    """What the command has heard, in its order, and what the calls have become."""
    heard, plugin = folder / "heard", folder / "plugin.mjs"
    plugin.write_text(AGENTS["opencode"].hooks.content([program, "-c", NOTE, str(heard)]))
    done = subprocess.run(
        [node, "--input-type=module", "-e", OPENCODE, str(plugin), json.dumps({"events": events, "calls": calls})],
        env={"PATH": os.environ["PATH"]} | env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "" == done.stderr
    lines = heard.read_text().splitlines() if heard.exists() else []
    return [[json.loads(line) for line in lines], json.loads(done.stdout)]


def of(kind: str, **properties: object) -> dict:
    return {"type": kind, "properties": properties}


def is_now(state: str, session: str = SESSION) -> dict:
    return of("session.status", sessionID=session, status={"type": state})


WORK = (
    of("session.created", info={"id": SESSION}),
    is_now("busy"),
    is_now("busy"),
    of("session.created", info={"id": BELOW, "parentID": SESSION}),
    is_now("busy", BELOW),
    is_now("idle", BELOW),
    of("permission.asked", sessionID=SESSION, permission="bash", patterns=["touch x"]),
    of("permission.replied", sessionID=SESSION),
    is_now("retry"),
    is_now("idle"),
    of("session.idle", sessionID=SESSION),
    of("file.edited"),
    {},
)


def test_what_a_worker_does_is_told_in_its_order_and_once(node, tmp_path):
    heard, _ = said(node, tmp_path, *WORK, SMART_FORK_WORKER_ID="opencode-1")

    names = ["SessionStart", "UserPromptSubmit", "PermissionRequest", "UserPromptSubmit", "Stop"]
    assert names == [event["hook_event_name"] for event in heard]
    assert {(SESSION, "/shop")} == {(event["session_id"], event["cwd"]) for event in heard}
    assert ("bash", {"command": "touch x"}) == (heard[2]["tool_name"], heard[2]["tool_input"])


def test_of_a_persons_session_only_its_start_is_told(node, tmp_path):
    heard, _ = said(node, tmp_path, *WORK)

    assert ["SessionStart"] == [event["hook_event_name"] for event in heard]


def test_our_tools_are_told_which_session_calls_and_others_are_not(node, tmp_path):
    calls = tuple(
        {"input": {"tool": tool, "sessionID": SESSION}, "output": {"args": {"intent": "x"}}}
        for tool in ("smart-fork_find_sessions", "bash")
    )

    _, made = said(node, tmp_path, calls=calls)

    assert [{"intent": "x", "calling_session": SESSION}, {"intent": "x"}] == [one["args"] for one in made]


def test_where_smart_fork_is_gone_nothing_is_said(node, tmp_path):
    heard, _ = said(node, tmp_path, *WORK, program=str(tmp_path / "gone"), SMART_FORK_WORKER_ID="opencode-1")

    assert [] == heard
