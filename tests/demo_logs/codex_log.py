"""A scripted session as Codex 0.146 writes it: an envelope a line.

What was said stands in ``response_item`` and again in ``event_msg`` ``user_message`` and ``agent_message``.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from tests.demo_logs.clock import DemoClock, ordered_id, short_id, stamp
from tests.demo_logs.script import CommandRun, FileEdit, Prompt, Read, Say, Scripted

Record = dict[str, Any]

MODEL = "gpt-5"
PROVIDER = "openai"


class CodexLog:
    """The records of one rollout, in file order."""

    def __init__(self, scripted: Scripted, session_id: str, cwd: str, clock: DemoClock) -> None:
        self.scripted = scripted
        self.session_id = session_id
        self.cwd = cwd
        self.clock = clock
        self.records: list[Record] = []
        self._turn = ""
        self.tokens = 9_000

    def write(self) -> list[Record]:
        """The whole file."""
        meta: Record = {
            "id": self.session_id,
            "timestamp": stamp(self.clock.now),
            "cwd": self.cwd,
            "originator": "codex-tui",
            "cli_version": "0.146.0",
            "source": "cli",
            "thread_source": "user",
            "model_provider": PROVIDER,
            "base_instructions": {"text": "You are a coding agent."},
            "git": {"branch": self.scripted.branch},
        }
        self._add("session_meta", meta)
        for number, asked in enumerate(self.scripted.asked):
            self._exchange(number, asked)
        return self.records

    def _exchange(self, number: int, asked: Prompt) -> None:
        self.clock.pause()
        self._turn = ordered_id(self.clock.now, self.session_id, number)
        started = self.clock.now
        self._event(
            "task_started", turn_id=self._turn, started_at=int(started.timestamp()), model_context_window=258_400
        )
        if number == 0:
            where = f"  <cwd>{self.cwd}</cwd>\n  <shell>bash</shell>\n"
            self._message("user", f"<environment_context>\n{where}</environment_context>")
        self._add(
            "turn_context",
            {
                "turn_id": self._turn,
                "cwd": self.cwd,
                "approval_policy": "on-request",
                "sandbox_policy": {"type": "read-only"},
                "model": MODEL,
                "summary": "auto",
            },
        )
        self._message("user", asked.prompt)
        self._event("user_message", message=asked.prompt)
        said = ""
        for step in asked.steps:
            if isinstance(step, Say):
                said = step.text
                self._event("agent_message", message=said)
                self._message("assistant", said)
            else:
                self._action(step)
        self._token_count()
        self._finished(said, started)

    def _message(self, role: str, text: str) -> None:
        part = "output_text" if role == "assistant" else "input_text"
        content = [{"type": part, "text": text}]
        self._add("response_item", {"type": "message", "role": role, "content": content})

    def _action(self, step: Read | FileEdit | CommandRun) -> None:
        call = self._new_id("call_")
        if isinstance(step, FileEdit):
            self._add(
                "response_item",
                {
                    "type": "custom_tool_call",
                    "status": "completed",
                    "call_id": call,
                    "name": "apply_patch",
                    "input": _patch(step),
                },
            )
            mark = "M" if step.old else "A"
            output = (
                f"Exit code: 0\nWall time: 0.1 seconds\nOutput:\nUpdated the following files:\n{mark} {step.path}\n"
            )
            self._add("response_item", {"type": "custom_tool_call_output", "call_id": call, "output": output})
            return
        command = f"cat {step.path}" if isinstance(step, Read) else step.command
        text, status = (step.text, 0) if isinstance(step, Read) else (step.output, step.status)
        arguments = json.dumps({"cmd": command, "workdir": self.cwd})
        self._add(
            "response_item", {"type": "function_call", "name": "exec_command", "arguments": arguments, "call_id": call}
        )
        output = f"Chunk ID: {call[-6:]}\nWall time: 1.2 seconds\nProcess exited with code {status}\nOutput:\n{text}\n"
        self._add("response_item", {"type": "function_call_output", "call_id": call, "output": output})

    def _token_count(self) -> None:
        self.tokens += 1_700
        usage = {
            "input_tokens": self.tokens,
            "cached_input_tokens": self.tokens - 900,
            "output_tokens": 400,
            "reasoning_output_tokens": 0,
            "total_tokens": self.tokens + 400,
        }
        info = {"total_token_usage": usage, "last_token_usage": usage, "model_context_window": 258_400}
        self._event("token_count", info=info, rate_limits=None)

    def _finished(self, said: str, started: datetime) -> None:
        ended = self.clock.now
        milliseconds = int((ended - started).total_seconds() * 1000)
        self._event(
            "task_complete",
            turn_id=self._turn,
            last_agent_message=said,
            completed_at=int(ended.timestamp()),
            duration_ms=milliseconds,
        )

    def _event(self, kind: str, **fields: Any) -> None:
        self._add("event_msg", {"type": kind, **fields})

    def _add(self, kind: str, payload: Record) -> None:
        self.records.append({"timestamp": stamp(self.clock.tick()), "type": kind, "payload": payload})

    def _new_id(self, prefix: str) -> str:
        return short_id(prefix, self.session_id, len(self.records))


def _patch(step: FileEdit) -> str:
    added = "".join(f"+{line}\n" for line in step.new.splitlines())
    if not step.old:
        return f"*** Begin Patch\n*** Add File: {step.path}\n{added}*** End Patch"
    removed = "".join(f"-{line}\n" for line in step.old.splitlines())
    return f"*** Begin Patch\n*** Update File: {step.path}\n@@\n{removed}{added}*** End Patch"
