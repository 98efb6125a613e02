"""Tests of Qwen Code's live status, from its log and screen, and of its command lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from indexer.masking import mask_screen
from smart_fork.agents import AGENTS
from smart_fork.agents.qwen.runtime import QwenScreen
from smart_fork.agents.request_fields import Options
from smart_fork.agents.start_command import LaunchRequest
from tests.indexer.transcripts.records import SESSION, answering, calling, id_of, linked, qwen_log
from tests.smart_fork.agents.qwen.test_log import fixture
from tests.support.cases import parametrize_subtests

SINCE = "2026-07-01T09:00:00.000Z"
NEW = id_of(9)

ASKING = """\
  > Make it CALL run_shell_command

  ? Shell touch made.txt (make) ←

     touch made.txt

   Allow execution of: 'touch'?

   › 1. Yes, allow once
     2. Always allow run 'touch *' commands in this project
     3. Always allow run 'touch *' commands for this user
     4. No, suggest changes (esc)

  ⠏ Waiting for user confirmation...
"""
WORKING = """\
  > Take your time

  ⠏ Counting electrons... (4s · ↓ 12 tokens · esc to cancel)

────────────────────────────────────────
>   Type your message or @path/to/file
────────────────────────────────────────
  ➜ shop · git:(main) · mock
  Enter to steer · Ctrl+Q to queue · Auto mode (shift + tab to cycle)
"""
IDLE = """\
  > Take your time

  ◆︎ Noted.

────────────────────────────────────────
*   Type your message or @path/to/file
────────────────────────────────────────
  ➜ shop · git:(main) · mock
  YOLO mode (shift + tab to cycle)
"""


@pytest.mark.parametrize(
    ("records", "status"),
    [
        ([linked("user", "u1", None, "one")], "working"),
        ([linked("assistant", "a1", "u1", "first")], "idle"),
        ([linked("assistant", "a1", "u1", "first", calling("c", "read_file"))], "working"),
        ([linked("tool_result", "r1", "a1", answering("c", "read_file", output="x"))], "working"),
        ([linked("tool_result", "r1", "a1", toolCallResult={"status": "cancelled"})], "idle"),
        ([linked("assistant", "a1", "u1", "first"), linked("system", "s", "a1", subtype="ui_telemetry")], "idle"),
        ([linked("assistant", "a1", "u1", "first"), linked("user", "n", "a1", "x", subtype="notification")], "working"),
        ([linked("assistant", "a1", "u1", "x", isSidechain=True)], ""),
        ([], ""),
    ],
)
def test_the_end_of_a_log_says_whether_it_works(home, records, status):
    path = qwen_log(home, *records)

    assert AGENTS.tail_of("qwen").activity(path, SINCE).status == status


def test_what_was_written_and_what_is_in_the_context_is_told(home):
    path = fixture(home, "tools")

    assert AGENTS.tail_of("qwen").activity(path, SINCE).tokens == 10486
    assert AGENTS.tail_of("qwen").output_tokens(path, SINCE) == 7 * 11


def test_a_task_in_the_background_is_one_until_it_reports(home):
    records = [json.loads(line) for line in fixture(home, "tools").read_text().splitlines()]
    launched = next(i for i, record in enumerate(records) if "Background agent launched" in str(record))

    assert [task.what for task in AGENTS.tail_of("qwen").running_tasks(records[: launched + 1])] == ["look"]
    assert AGENTS.tail_of("qwen").running_tasks(records) == ()


def test_a_question_is_read_with_its_options():
    asked = QwenScreen().question(mask_screen(ASKING))

    assert asked is not None
    assert asked.text.startswith("? Shell touch made.txt (make)")
    assert "Allow execution of: 'touch'?" in asked.text
    assert (asked.options, asked.marked) == (("1", "2", "3", "4"), "1")


@parametrize_subtests(
    ("screen", "works", "hears"),
    [(ASKING, False, False), (WORKING, True, True), (IDLE, False, True), ("", False, False)],
)
def test_a_screen_says_whether_it_works_and_whether_it_hears(screen, works, hears):
    assert (QwenScreen().works(screen), QwenScreen().hears(screen)) == (works, hears)
    assert (QwenScreen().question(mask_screen(screen)) is not None) == (screen is ASKING)


def test_what_is_typed_is_held_until_enter():
    typed = IDLE.replace("Type your message or @path/to/file", "go on with the tests, please")

    assert QwenScreen().holds(typed, "go on with the tests, please")
    assert not QwenScreen().holds(IDLE, "Take your time")


def request(**more: object) -> LaunchRequest:
    basis = {"agent": "qwen", "session_id": SESSION, "program": "qwen"}
    return LaunchRequest(**(basis | {"target_cwd": Path("/r"), "new_session_id": NEW} | more))


@parametrize_subtests(
    ("more", "argv", "session_id", "staging"),
    [
        ({"form": "new"}, ["--session-id", NEW], NEW, "nothing"),
        ({"form": "resume"}, ["--resume", SESSION], SESSION, "nothing"),
        ({}, ["--resume", NEW], NEW, "branch"),
        ({"at": "m1"}, ["--resume", NEW], NEW, "branch"),
        ({"options": Options(skip_permissions=True)}, ["--resume", NEW, "--yolo"], NEW, "branch"),
        ({"prompt": "add x"}, ["--resume", NEW, "--prompt-interactive=add x"], NEW, "branch"),
        ({"prompt": " --help"}, ["--resume", NEW, "--prompt-interactive= --help"], NEW, "branch"),
        ({"prompt": " /clear"}, ["--resume", NEW, "--prompt-interactive=Prompt:  /clear"], NEW, "branch"),
        ({"prompt": "-x", "headless": True}, ["--resume", NEW, "--output-format", "json", "--prompt=-x"], NEW, "branch"),
    ],
)  # fmt: skip
def test_each_way_to_start_it_is_one_command(more, argv, session_id, staging):
    line = AGENTS["qwen"].starter.line(request(**more))

    assert (list(line.argv), line.session_id, line.staging) == (["qwen", *argv], session_id, staging)
