"""A thread that the real Codex has rewound, twice, through its server: `thread/revert`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.agents import Machine
from tests.e2e.model_server import Message
from tests.indexer.transcripts.records import codex_log, id_of, meta
from tests.smart_fork.agents.codex.test_resumed import LOADED, SUMMARY

pytestmark = pytest.mark.e2e

ALPHA, BETA, GAMMA, DELTA = "ALPHA keep thumbnails", "BETA with quality 80", "GAMMA without EXIF", "DELTA videos too"
GONE = "GONE as bitmaps", "GONE with quality 5"


class Server:
    """Codex's app-server on its standard streams."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process, self._calls = process, 0
        self.call("initialize", clientInfo={"name": "test", "version": "1"}, capabilities={"experimentalApi": True})
        self._send({"method": "initialized"})

    def call(self, method: str, **params: object) -> Any:
        self._calls += 1
        self._send({"id": self._calls, "method": method, "params": params})
        return next(one["result"] for one in self._said() if one.get("id") == self._calls and "method" not in one)

    def turn(self, thread: str, prompt: str) -> str:
        """Say something, and wait for the answer. Returns the turn's id."""
        said = [{"type": "text", "text": prompt}]
        turn: str = self.call("turn/start", threadId=thread, input=said)["turn"]["id"]
        ended = (one["params"]["turn"]["id"] for one in self._said() if one.get("method") == "turn/completed")
        assert turn == next(ended)
        return turn

    def _send(self, message: dict[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(message)}\n")
        self._process.stdin.flush()

    def _said(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        return map(json.loads, self._process.stdout)


@contextmanager
def server(machine: Machine) -> Iterator[Server]:
    process = subprocess.Popen(
        [machine.programs / "codex", "app-server"], cwd=machine.project, env=machine.env, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    with process:
        yield Server(process)


def test_a_rewound_thread_is_one_session_without_what_was_taken_back(machine):
    machine.know_smart_fork()
    with server(machine) as codex:
        thread = codex.call("thread/start", cwd=str(machine.project))["thread"]["id"]
        codex.turn(thread, ALPHA)
        for gone, instead in zip(GONE, (BETA, GAMMA), strict=True):
            codex.call("thread/revert", threadId=thread, beforeTurnId=codex.turn(thread, gone))
            codex.turn(thread, instead)
    machine.codex("exec", "fork", thread, DELTA)
    sent = machine.model.wait_for_prompt(DELTA).said

    assert 3 == len([log for log in machine.logs("codex") if thread in log.path.name])
    listed = json.loads(machine.smart_fork("list", "--include-automated", "--json").stdout)["sessions"]
    fork, first = [one["session_id"] for one in listed]
    assert thread == first
    assert [*sent[:-1]] == shown(machine, thread)
    assert [*sent, Message("assistant", f"Noted: {DELTA}")] == shown(machine, fork)
    assert not [one for one in sent if "GONE" in one.text]
    branch = json.loads(machine.smart_fork("branch", thread, "--json").stdout)["session_id"]
    machine.codex("exec", "fork", branch, "Which ones?")
    assert [*sent[:-1]] == machine.model.wait_for_prompt("Which ones?").said[:-1]


@pytest.mark.thorough  # what the program does
def test_codex_sends_what_is_said_to_be_loaded_after_a_compaction(machine):
    about = {"cwd": str(machine.project), "timestamp": "2026-07-01T10:00:00.000Z", "model_provider": "mock"}
    cases = [
        (records, expected)
        for records, expected, _ in LOADED.values()
        if "rolled_back" not in str(records) or "task_started" in str(records)
    ]
    for number, (records, expected) in enumerate(cases, 1):
        codex_log(machine.home, id_of(number), meta(id_of(number), **about), *records)
        machine.codex("exec", "fork", id_of(number), f"ask {number}")
        sent = [one.text for one in machine.model.wait_for_prompt(f"ask {number}").said][:-1]

        assert expected.split(", ") == [
            text for text in sent if text != SUMMARY and not text.startswith("<turn_aborted>")
        ]


def shown(machine: Machine, session_id: str) -> list[Message]:
    messages = json.loads(machine.smart_fork("show", session_id, "--json").stdout)["messages"]
    return [Message(one["role"], one["text"]) for one in messages]
