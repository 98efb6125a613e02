"""Tests of Gemini CLI's live status, from its log, screen and hooks, and of its command lines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from indexer.masking import mask_screen
from smart_fork.agents import AGENTS
from smart_fork.agents.agent import ClientCall
from smart_fork.agents.fork_plan import ForkPlan
from smart_fork.agents.gemini.runtime import GeminiScreen
from smart_fork.agents.request_fields import Options
from smart_fork.agents.start_command import LaunchRequest
from smart_fork.forking.session_use import SessionUse
from smart_fork.workers.hook_events import WorkerEvent
from tests.indexer.transcripts.records import SESSION, gemini_log, id_of, ran, spoken
from tests.smart_fork.agents.gemini.test_log import fixture

SINCE = "2026-07-01T09:00:00.000Z"
ASKING = """\
 > run it
╭───────────────────────────────────────────────────╮
│ ? Shell  touch q                                  │
│ ╭───────────────────────────────────────────────╮ │
│ │ touch q                                       │ │
│ ╰───────────────────────────────────────────────╯ │
│ Allow execution of [Shell]?                       │
│                                                   │
│ ● 1. Allow once                                   │
│   2. Allow for this session                       │
│   3. No, suggest changes (esc)                    │
╰───────────────────────────────────────────────────╯
"""
IDLE = """\
 > second step
✦ PONG 3: second step
                                   ? for shortcuts
──────────────────────────────────────────────────
 Shift+Tab to accept edits
 >   Type your message or @path/to/file
 workspace (/directory)       branch       /model
 ~/shop                       main         Auto
"""
WORKING = IDLE.replace("                                   ? for", " ⠹ Thinking... (esc to cancel, 1s)       ? for")


@pytest.mark.parametrize(
    ("records", "status"),
    [
        ([spoken("user", "u", "go")], "working"),
        ([spoken("user", "u", "go"), spoken("gemini", "a", "done")], "idle"),
        ([spoken("gemini", "a", "")], "working"),
        ([spoken("gemini", "a", "I look", toolCalls=[ran("c", "x", "y")])], "working"),
        ([spoken("user", "u", "go"), spoken("info", "i") | {"content": "Request cancelled."}], "idle"),
        ([spoken("gemini", "a", "done"), spoken("user", "c", "<session_context></session_context>")], "idle"),
        ([], ""),
    ],
)
def test_its_log_tells_whether_it_works(home, records, status):
    assert AGENTS.tail_of("gemini").activity(gemini_log(home, *records), SINCE).status == status


def test_an_error_is_told_as_what_kept_it_from_going_on(home):
    log = gemini_log(home, spoken("user", "u", "go"), spoken("error", "e", "no quota"))

    assert ("idle", "no quota") == (
        AGENTS.tail_of("gemini").activity(log, SINCE).status,
        AGENTS.tail_of("gemini").activity(log, SINCE).problem,
    )


def test_what_it_has_written_is_counted_once(home):
    assert AGENTS.tail_of("gemini").output_tokens(fixture(home, "tools"), SINCE) == 14


def test_its_screen_tells_a_question_work_and_rest():
    screen = GeminiScreen()
    question = screen.question(mask_screen(ASKING))

    assert question is not None
    assert "Allow execution of [Shell]?" in question.text
    assert (question.options, question.marked) == (("1", "2", "3"), "1")
    assert [screen.question(mask_screen(one)) for one in (IDLE, WORKING)] == [None, None]
    assert [(screen.works(one), screen.rests(one)) for one in (ASKING, IDLE, WORKING)] == [
        (False, False), (False, True), (True, False),
    ]  # fmt: skip


def request(form: str = "fork", **more: object) -> LaunchRequest:
    said: dict = {"agent": "gemini", "session_id": "" if form == "new" else SESSION} | more
    return LaunchRequest(
        target_cwd=Path("/srv/shop"), program="gemini", new_session_id=id_of(9), form=form, **said
    )  # fmt: skip


@pytest.mark.parametrize(
    ("form", "session", "staging"),
    [("fork", f"--resume {id_of(9)}", "branch"), ("resume", f"--resume {SESSION}", "name"), ("new", f"--session-id {id_of(9)}", "nothing")],
)  # fmt: skip
def test_no_log_of_a_person_s_is_resumed_as_it_is(form, session, staging):
    plan = ForkPlan.of(request(form, prompt="go on there"))

    assert (" ".join(plan.argv[1:3]), plan.staging) == (session, staging)
    assert plan.argv[-1] == "--prompt-interactive=go on there"


@pytest.mark.parametrize("prompt", ["/clear all", "?help me", " / what"])
def test_a_prompt_that_looks_like_a_command_is_a_prompt(prompt):
    """A resumed session would forget a prompt that begins with a question mark."""
    told = ForkPlan.of(request(prompt=prompt)).argv[-1]

    assert told.startswith("--prompt-interactive=Prompt: ")


def test_a_fork_of_others_sessions_asks_before_it_acts():
    assert "--approval-mode default" in " ".join(ForkPlan.of(request(prompt="go on there", of_others=True)).argv)
    assert "--yolo" in ForkPlan.of(request(prompt="go on there", options=Options(skip_permissions=True))).argv


def test_its_events_are_those_of_claude_code_under_other_names():
    hooks = AGENTS["gemini"].hooks
    said = {"hook_event_name": "BeforeAgent", "session_id": SESSION, "prompt": "go"}

    assert WorkerEvent.of(hooks.event(said)).hook_event_name == "UserPromptSubmit"
    asks = hooks.event({"hook_event_name": "Notification", "notification_type": "ToolPermission"})
    assert WorkerEvent.of(asks).notification_type == "permission_prompt"
    assert hooks.handler("x")["timeout"] == 3000
    assert list(hooks.notes(json.dumps({"hooksConfig": {"enabled": False}})))
    assert not list(hooks.notes("{}"))


def test_a_calling_session_is_the_one_that_its_process_has_begun(home, monkeypatch):
    """Gemini CLI does not tell its servers which session calls."""
    old = gemini_log(home, spoken("user", "u", "old"), session=id_of(3))
    mine = gemini_log(home, spoken("user", "u", "mine"))
    began = psutil.Process(os.getppid()).create_time()
    for log, moment in ((old, began - 60), (mine, began + 1)):
        start = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        log.write_text(log.read_text().replace("2026-07-01T10:00:00.000Z", start, 1))
    caller = AGENTS["gemini"].caller

    def told(environment: object = os.environ) -> str | None:
        return caller.session_id(ClientCall({}, {}, environment, "/srv/shop"))

    os.utime(mine, (1, 1))
    assert (told(), told({})) == (SESSION, None)
    monkeypatch.setattr(psutil.Process, "cmdline", lambda _: ["node", "gemini", "--resume", id_of(3)])
    assert told() == id_of(3)


def test_a_session_is_open_in_the_process_that_has_begun_it(home, tmp_path):
    """The process was started without a session's id. A process in another directory belongs to another session."""
    program = tmp_path / "gemini"
    shutil.copy(shutil.which("sleep") or "", program)
    logs = [gemini_log(home, spoken("user", "u", "go"), session=id_of(n), cwd=str(tmp_path / name)) for n, name in ((1, "shop"), (2, "other"))]  # fmt: skip
    for name in ("shop", "other"):
        (tmp_path / name).mkdir()
    process = subprocess.Popen([str(program), "60"], cwd=tmp_path / "shop")
    try:
        start = datetime.fromtimestamp(psutil.Process(process.pid).create_time() + 2, UTC)
        for log in logs:
            moment = start.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            log.write_text(log.read_text().replace("2026-07-01T10:00:00.000Z", moment, 1))
        found = [SessionUse("gemini", id_of(n), log).processes for n, log in enumerate(logs, start=1)]

        assert found == [[process.pid], []]
    finally:
        process.kill()
        process.wait()
