"""A scripted session as Codex writes it: an envelope a line.

Two forms that are both in use: as 0.146 writes it (what was said stands in ``response_item`` and again in ``event_msg``
``user_message`` and ``agent_message``), and as 0.169 does (numbered records, forks that hold only what came after).
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from indexer.shapes import dataclass
from smart_fork.demo.clock import DemoClock, ordered_id, short_id, stamp
from smart_fork.demo.script import CommandRun, Delegate, FileEdit, Prompt, Read, Say, Scripted

Record = dict[str, Any]

MODEL = "gpt-5"
PROVIDER = "openai"


@dataclass(frozen=True, slots=True)
class ParentMark:
    """Where a copy-on-write fork leaves its parent: the parent's id, its next record's number, its file's size.

    `tokens` is what its conversation takes of the context there.
    """

    thread_id: str
    ordinal: int
    offset: int
    tokens: int


class CodexLog:
    """The records of one rollout, in file order."""

    def __init__(self, scripted: Scripted, session_id: str, cwd: str, clock: DemoClock, commit: str) -> None:
        self.scripted = scripted
        self.session_id = session_id
        self.cwd = cwd
        self.clock = clock
        self.commit = commit
        self.records: list[Record] = []
        self._ordinal: int | None = None
        self._turn = ""
        self.tokens = 9_000

    def write(self, *, paginated: bool, base: ParentMark | None = None) -> list[Record]:
        """The whole file. Only a paginated one can be, or have, a fork with a `base`."""
        self.tokens = base.tokens if base else self.tokens
        self._ordinal = (base.ordinal if base else 0) if paginated else None
        self._meta(paginated, base)
        for number, asked in enumerate(self.scripted.asked):
            self._exchange(number, asked, first=number == 0 and base is None)
        return self.records

    def _meta(self, paginated: bool, base: ParentMark | None) -> None:  # noqa: FBT001
        moment = stamp(self.clock.now)
        meta: Record = {"id": self.session_id, "session_id": self.session_id}
        if base:
            meta |= {"forked_from_id": base.thread_id, "forked_from_ordinal_exclusive": base.ordinal}
        meta |= {
            "timestamp": moment,
            "cwd": self.cwd,
            "originator": "codex-tui",
            "cli_version": "0.169.0" if paginated else "0.146.0",
            "source": "vscode" if paginated else "cli",
            "thread_source": "user",
            "model_provider": PROVIDER,
            "base_instructions": {"text": "You are a coding agent."},
        }
        if paginated:
            meta["history_mode"] = "paginated"
        if base:
            meta["history_base"] = {
                "thread_id": base.thread_id,
                "end_ordinal_exclusive": base.ordinal,
                "end_byte_offset": base.offset,
            }
        meta["git"] = {"commit_hash": self.commit, "branch": self.scripted.branch}
        self._add("session_meta", meta)

    def _exchange(self, number: int, asked: Prompt, *, first: bool) -> None:
        self.clock.pause()
        self._turn = ordered_id(self.clock.now, self.session_id, number)
        started = self.clock.now
        self._event(
            "task_started", turn_id=self._turn, started_at=int(started.timestamp()), model_context_window=258_400
        )
        if first:
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
        self._said("UserMessage", asked.prompt)
        said = ""
        for step in asked.steps:
            if isinstance(step, Say):
                said = step.text
                self._said("AgentMessage", said)
                self._message("assistant", said)
            elif isinstance(step, Delegate):
                raise TypeError("The demo's Codex has no sub-agents")
            else:
                self._action(step)
        self._token_count()
        self._finished(said, started)

    def _said(self, kind: str, text: str) -> None:
        """What was said, once more as the screen shows it."""
        if self._ordinal is None:
            name = "user_message" if kind == "UserMessage" else "agent_message"
            self._event(name, message=text)
            return
        content = [{"type": "text", "text": text}] if kind == "UserMessage" else [{"type": "Text", "text": text}]
        item = {"type": kind, "id": self._new_id("item_"), "content": content}
        self._event("item_completed", thread_id=self.session_id, turn_id=self._turn, item=item)

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
        record: Record = {"timestamp": stamp(self.clock.tick())}
        if self._ordinal is not None:
            record["ordinal"] = self._ordinal
            self._ordinal += 1
        self.records.append(record | {"type": kind, "payload": payload})

    def _new_id(self, prefix: str) -> str:
        return short_id(prefix, self.session_id, len(self.records))


def _patch(step: FileEdit) -> str:
    added = "".join(f"+{line}\n" for line in step.new.splitlines())
    if not step.old:
        return f"*** Begin Patch\n*** Add File: {step.path}\n{added}*** End Patch"
    removed = "".join(f"-{line}\n" for line in step.old.splitlines())
    return f"*** Begin Patch\n*** Update File: {step.path}\n@@\n{removed}{added}*** End Patch"
