"""Reads transcripts: the prompts a person typed, what was there at a time, and where an agent keeps its log."""

from __future__ import annotations

import hashlib
import json
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import orjson

from .clone import Clone, Part
from .opencode import records, write

Record = Mapping[str, Any]

#: A text that begins so was not typed: an agent or its harness wrote it.
_NOT_TYPED = (
    "<command-", "<local-command-", "<bash-", "<task-notification", "<system-reminder", "<environment_context",
    "<user_instructions", "<ide_", "<turn_aborted", "<session_context", "[Request interrupted", "Caveat:",
    "# AGENTS.md instructions", "This session is being continued from a previous conversation",
)  # fmt: skip
_OUTPUT = re.compile(r"<bash-std(?:out|err)>(?!</)")
_CWD = re.compile(rb'"cwd"\s*:\s*"(/[^"\\]+)"')


class Prompt(NamedTuple):
    """A text that a person typed, when, and whether the output of a command of theirs came right before it."""

    time: float
    text: str
    after_output: bool


class Line(NamedTuple):
    """A line of a transcript as it is, when it was written, and a person's text in it."""

    time: float
    line: bytes
    text: str


@dataclass(frozen=True)
class Transcript:
    """A session's transcript, as its last checkpoint has it. `files` are all that its checkpoints name."""

    session: str
    agent: str
    lines: tuple[Line, ...]
    files: frozenset[str]
    branch: str

    @cached_property
    def prompts(self) -> tuple[Prompt, ...]:
        """The texts that a person typed."""
        found, output = [], False
        for time, _, text in self.lines:
            if text and not text.startswith(_NOT_TYPED):
                found.append(Prompt(time, text, output))
            output = bool(_OUTPUT.search(text)) if text else output
        return tuple(found)

    @cached_property
    def root(self) -> bytes:
        """The folder that the repository was in: the one that the session's files are named by, or began in."""
        said = next((found[1] for line in self.lines if (found := _CWD.search(line.line))), b"")
        if not said:
            return b""
        named = [f"/{name}".encode() for name in sorted(self.files)]
        began = PurePosixPath(os.fsdecode(said))
        above = [os.fsencode(one) for one in (began, *began.parents)]
        whole = b"\n".join(line.line for line in self.lines)
        return next((one for one in above[:-1] if any(one + name in whole for name in named)), said)

    @cached_property
    def _times(self) -> list[float]:
        return list(accumulate((line.time for line in self.lines), max))

    def until(self, time: float) -> list[Line]:
        """The lines that were there before a time."""
        return list(self.lines[: bisect_left(self._times, time)])

    def moved(self, lines: list[Line], to: Path) -> bytes:
        """Return lines as a log whose repository is in the folder `to`."""
        log = b"".join(line.line + b"\n" for line in lines)
        if not self.root:
            return log
        return re.sub(re.escape(self.root) + rb"(?![\w.-])", lambda _: os.fsencode(to), log)


def transcripts(clone: Clone) -> dict[str, Transcript]:
    """Return the sessions of a clone whose transcript is there and says what a person typed."""
    parts: dict[str, list[Part]] = {}
    for part in clone.parts:
        parts.setdefault(part.session, []).append(part)
    read = (_read(clone, session, known) for session, known in parts.items())
    return {one.session: one for one in read if one and one.prompts}


def _read(clone: Clone, session: str, parts: list[Part]) -> Transcript | None:
    files = frozenset[str]().union(*(part.files for part in parts))
    for part in reversed(parts):
        blobs = clone.blobs(part.transcript)
        text = b"".join(blobs.get(one, b"") for one in part.transcript)
        agent = _agent_of(part)
        if agent and text and (lines := _AGENTS[agent].lines(text)):
            return Transcript(session, agent, tuple(lines), files, _branch(lines) or part.branch)
    return None


def _agent_of(part: Part) -> str:
    """Return the agent of a part; the first checkpoints named none, and only Claude Code kept them."""
    return next((word for word in _AGENTS if word in (part.agent or "claude").lower()), "")


def _branch(lines: list[Line]) -> str:
    found = (re.search(rb'"(?:gitBranch|branch)"\s*:\s*"([^"\\]+)"', one.line) for one in lines[:50])
    return next((one[1].decode("utf-8", "replace") for one in found if one), "")


def seconds(said: object) -> float:
    """Return a time that a record says, in seconds; 0 if it says none."""
    if not isinstance(said, str):
        return 0.0
    try:
        time = datetime.fromisoformat(said)
    except ValueError:
        return 0.0
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _records(said: Callable[[Record], str]) -> Callable[[bytes], list[Line]]:
    """Return a reader of logs with one record a line. A record without a time has that of the next one with a time."""

    def lines(text: bytes) -> list[Line]:
        found: list[Line] = []
        waiting: list[Line] = []
        for line in text.splitlines():
            record = _json(line)
            if not record:
                continue
            waiting.append(Line(seconds(record.get("timestamp")), line, _told(said, record)))
            if waiting[-1].time:
                found += [one._replace(time=max(waiting[-1].time, found[-1].time if found else 0.0)) for one in waiting]
                waiting = []
        return found + [one._replace(time=found[-1].time) for one in waiting if found]

    return lines


def _told(said: Callable[[Record], str], record: Record) -> str:
    try:
        return said(record).strip()
    except (AttributeError, KeyError, TypeError):  # not of a form that is known
        return ""


def _json(line: bytes) -> dict[str, Any]:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return record if isinstance(record, dict) else {}


def _text(content: object) -> str:
    """Return the text of a message's content: a text, or blocks of which some are texts."""
    if isinstance(content, str):
        return content
    blocks = [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []
    if any(one.get("type") == "tool_result" for one in blocks):
        return ""
    return "\n".join(one["text"] for one in blocks if isinstance(one.get("text"), str))


def _claude(record: Record) -> str:
    hidden = ("isMeta", "isSidechain", "isCompactSummary", "isVisibleInTranscriptOnly")
    if record.get("type") != "user" or any(record.get(one) for one in hidden):
        return ""
    return _text(record["message"]["content"])


def _codex(record: Record) -> str:
    payload = record["payload"]
    if record["type"] == "response_item" and payload.get("type") == "message" and payload.get("role") == "user":
        return _text(payload["content"])
    return ""


def _copilot(record: Record) -> str:
    return str(record["data"]["content"]) if record["type"] == "user.message" else ""


def _gemini(text: bytes) -> list[Line]:
    """Each message of a document is a line here; the document's own fields are in each."""
    document = _json(text)
    if not document:
        return _records(lambda record: _text(record["content"]) if record["type"] == "user" else "")(text)
    found = []
    for message in document.get("messages") or ():
        if isinstance(message, dict):
            said = _text(message.get("content")) if message.get("type") == "user" else ""
            found.append(Line(seconds(message.get("timestamp")), json.dumps(message).encode(), said.strip()))
    return found


def _opencode(text: bytes) -> list[Line]:
    """What is said of the session is the first line, and each message is one."""
    return [Line(time, json.dumps(record).encode(), said.strip()) for time, record, said in records(text)]


class _Agent(NamedTuple):
    """Reads an agent's transcripts, and says where in a home its log is."""

    lines: Callable[[bytes], list[Line]]
    path: Callable[[str, float, Path], str]


def _claude_path(session: str, _: float, clone: Path) -> str:
    return f".claude/projects/{re.sub(r'[^A-Za-z0-9]', '-', str(clone))}/{session}.jsonl"


def _codex_path(session: str, time: float, _: Path) -> str:
    began = datetime.fromtimestamp(time, UTC)
    return f".codex/sessions/{began:%Y/%m/%d}/rollout-{began:%Y-%m-%dT%H-%M-%S}-{session}.jsonl"


def _gemini_path(session: str, time: float, clone: Path) -> str:
    began, project = datetime.fromtimestamp(time, UTC), hashlib.sha256(str(clone).encode()).hexdigest()
    return f".gemini/tmp/{project}/chats/session-{began:%Y-%m-%dT%H-%M}-{session[:8]}.json"


def _copilot_path(session: str, _: float, __: Path) -> str:
    return f".copilot/session-state/{session}/events.jsonl"


def _opencode_path(session: str, _: float, __: Path) -> str:
    return f".local/share/opencode/opencode.db/{session}"


#: By a word of the name that a checkpoint gives the agent.
_AGENTS = {
    "claude": _Agent(_records(_claude), _claude_path),
    "codex": _Agent(_records(_codex), _codex_path),
    "gemini": _Agent(_gemini, _gemini_path),
    "copilot": _Agent(_records(_copilot), _copilot_path),
    "opencode": _Agent(_opencode, _opencode_path),
}


class Log(NamedTuple):
    """A log in a home: its content and when it was changed last."""

    path: Path
    content: bytes
    changed: float

    def write(self) -> None:
        """Write it as its agent does."""
        if self.path.parent.suffix == ".db":
            write(self.path, self.content)
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)  # what is kept of it stays as it is
        self.path.write_bytes(self.content)
        os.utime(self.path, (self.changed, self.changed))


def log_of(transcript: Transcript, time: float, home: Path, clone: Path) -> Log | None:
    """Return the log that a session had at a time, if it had one."""
    if not (there := transcript.until(time)):
        return None
    path = home / _AGENTS[transcript.agent].path(transcript.session, there[0].time, clone)
    log = transcript.moved(there, clone)
    if path.suffix == ".json":
        log = json.dumps(
            {
                "sessionId": transcript.session,
                "projectHash": path.parent.parent.name,
                "startTime": datetime.fromtimestamp(there[0].time, UTC).isoformat(),
                "lastUpdated": datetime.fromtimestamp(there[-1].time, UTC).isoformat(),
                "messages": [json.loads(line) for line in log.splitlines()],
            }
        ).encode()
    return Log(path, log, there[-1].time)
