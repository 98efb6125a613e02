"""A scripted session as Claude Code 2.1 writes it: one record for each block of a message, linked by ``parentUuid``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.demo_logs.clock import DemoClock, random_id, short_id, stamp
from tests.demo_logs.script import CommandRun, FileEdit, Prompt, Read, Say, Scripted

Record = dict[str, Any]
#: What the agent does with its tools.
Action = Read | FileEdit | CommandRun

VERSION = "2.1.197"
MODEL = "claude-opus-4-8"


class ClaudeLog:
    """The records of one session, in file order. `parent` is where the next one is linked to."""

    def __init__(self, scripted: Scripted, session_id: str, cwd: str, clock: DemoClock) -> None:
        self.scripted = scripted
        self.session_id = session_id
        self.cwd = cwd
        self.clock = clock
        self.records: list[Record] = []
        self.parent: str | None = None
        self._tokens = 11_000

    def write(self, before: Sequence[Record] = ()) -> list[Record]:
        """The whole file; for a fork, `before` are its parent's records, of which the conversation is taken over."""
        self._add_plain("mode", mode="normal")
        self._add_plain("permission-mode", permissionMode="default")
        if before:  # the files as they were when the fork was made: the only trace of when that was
            self._snapshot(random_id(self.session_id, "fork"))
        for record in before:
            if "uuid" in record:
                self.records.append(record | {"sessionId": self.session_id})
                self.parent = record["uuid"]
                self._tokens += 380 * (record["type"] == "assistant")
        for asked in self.scripted.asked:
            self._exchange(asked)
        if self.scripted.title:
            self._add_plain("ai-title", aiTitle=self.scripted.title)
        self._add_plain("last-prompt", lastPrompt=self.scripted.asked[-1].prompt, leafUuid=self.parent)
        return self.records

    def _exchange(self, asked: Prompt) -> None:
        self.clock.pause()
        self._prompt(asked.prompt)
        message = ""
        for step in asked.steps:
            # What is said before an action is a block of the same message as the action.
            message = message or self._new_id("msg_01")
            if isinstance(step, Say):
                self._assistant(message, {"type": "text", "text": step.text})
            else:
                self._action(message, step)
                message = ""
        self._add("system", subtype="turn_duration", durationMs=21_000, isMeta=False)

    def _prompt(self, text: str) -> None:
        how: Record = {"origin": {"kind": "human"}, "promptSource": "typed", "permissionMode": "default"}
        how["promptId"] = random_id(self.session_id, len(self.records), "prompt")
        self._snapshot(random_id(self.session_id, len(self.records) + 1))
        self._add("user", message={"role": "user", "content": text}, **how)

    def _snapshot(self, message: str) -> None:
        snapshot = {"messageId": message, "trackedFileBackups": {}, "timestamp": stamp(self.clock.now)}
        self.records.append(
            {"type": "file-history-snapshot", "messageId": message, "snapshot": snapshot, "isSnapshotUpdate": False}
        )

    def _action(self, message: str, step: Action) -> None:
        call = self._new_id("toolu_01")
        name, arguments = self._tool(step)
        block = {"type": "tool_use", "id": call, "name": name, "input": arguments, "caller": {"type": "direct"}}
        source = self._assistant(message, block)
        result, failed, structured = _outcome(step)
        content = [{"tool_use_id": call, "type": "tool_result", "content": result, "is_error": failed}]
        self._add(
            "user",
            message={"role": "user", "content": content},
            toolUseResult=structured,
            sourceToolAssistantUUID=source,
        )

    def _tool(self, step: Action) -> tuple[str, Record]:
        if isinstance(step, CommandRun):
            return "Bash", {"command": step.command, "description": f"Run {step.command.split()[0]}"}
        path = f"{self.cwd}/{step.path}"
        if isinstance(step, Read):
            return "Read", {"file_path": path}
        if not step.old:
            return "Write", {"file_path": path, "content": step.new}
        return "Edit", {"file_path": path, "old_string": step.old, "new_string": step.new, "replace_all": False}

    def _assistant(self, message: str, block: Record) -> str:
        self._tokens += 380
        usage = {
            "input_tokens": 6,
            "cache_creation_input_tokens": 380,
            "cache_read_input_tokens": self._tokens,
            "output_tokens": 120,
        }
        said: Record = {
            "id": message,
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": [block],
            "stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn",
            "stop_sequence": None,
            "usage": usage,
        }
        return self._add("assistant", message=said, requestId=self._new_id("req_01"))

    def _add(self, kind: str, **fields: Any) -> str:
        identity = random_id(self.session_id, len(self.records))
        self.records.append(
            {
                "parentUuid": self.parent,
                "isSidechain": False,
                "type": kind,
                **fields,
                "uuid": identity,
                "timestamp": stamp(self.clock.tick()),
                "userType": "external",
                "entrypoint": "cli",
                "cwd": self.cwd,
                "sessionId": self.session_id,
                "version": VERSION,
                "gitBranch": self.scripted.branch,
            }
        )
        self.parent = identity
        return identity

    def _add_plain(self, kind: str, **fields: Any) -> None:
        self.records.append({"type": kind, **fields, "sessionId": self.session_id})

    def _new_id(self, prefix: str) -> str:
        return short_id(prefix, self.session_id, len(self.records))


def _outcome(step: Read | FileEdit | CommandRun) -> tuple[str, bool, Any]:
    """What the tool answers, whether it failed, and the same once more in the structured form that stands beside it."""
    if isinstance(step, CommandRun):
        if step.status:
            text = f"Exit code {step.status}\n{step.output}"
            return text, True, f"Error: {text}"
        return step.output, False, {"stdout": step.output, "stderr": "", "interrupted": False, "isImage": False}
    if isinstance(step, Read):
        numbered = "\n".join(f"{number}\t{line}" for number, line in enumerate(step.text.splitlines(), 1))
        return numbered, False, {"type": "text", "file": {"filePath": step.path, "content": step.text}}
    said = f"The file {step.path} has been updated successfully."
    return said, False, {"filePath": step.path, "userModified": False}
