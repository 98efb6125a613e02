"""Asks smart-fork's local service for a hint (one line about a past session), and prints it for the model.

The agent's session waits for the hook, so this module imports next to nothing, asks once and ends in time. It asks at a
session's first prompt, and at each edit or failure, and gives no hint twice in a session. If anything fails, it prints
nothing.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import time

from smart_fork.hooks import ASKED, EDITS, ERRORS, LATE, NO_PROMPTS, RECALL
from smart_fork.system.peers import SERVICE, is_ours

TYPE_CHECKING = False  # `typing` itself takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType
    from typing import Any

EVENT, BEFORE_A_TOOL, BEGUN = "UserPromptSubmit", "PreToolUse", "SessionStart"
#: The events of a tool call: the folder for the files about its hints, and the service's path to ask.
_CALLS = {
    BEFORE_A_TOOL: (EDITS, "/before-edit"),
    "PostToolUse": (ERRORS, "/after-failure"),
    "PostToolUseFailure": (ERRORS, "/after-failure"),
}
#: The hint after a compaction. The tag is `indexer.transcripts.texts.RECALL_TAG`.
COMPACTED = (
    "<smart-fork-recall>What this compaction dropped can still be searched: call find_sessions with session='self' "
    "and an intent, and read_session for the messages.</smart-fork-recall>"
)
#: How long a prompt may wait, from the start of this process, and the variable that changes it.
MILLISECONDS, MAX_MILLISECONDS, VARIABLE = 150, 60_000, "SMART_FORK_RECALL_MS"
#: The seconds left to write the file about a session's hints if the time is over before the question.
NOTING = 0.02
#: The limits of a prompt that is sent, of a log that is read, of an answer, and of its line.
PROMPT_CHARACTERS, HEAD_BYTES, ANSWER_BYTES, LINE_CHARACTERS = 4_000, 1 << 20, 1 << 14, 1_000
ERROR_CHARACTERS = 20_000
_NOTE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
#: The values as in `indexer.environment`, which imports more than this whole module.
_OFF = ("0", "false", "no", "off", "never")
#: Content of a log that is not a person's new session: an answer, a source session, or a parent agent.
_BEGUN = (b'"role":"assistant"', b'"forked_from_id":"', b'"subagent"')


class _LateError(BaseException):
    """An error: the hook's time is over. It is a `BaseException` so that ``except Exception`` does not catch it."""


def tell(agent: str, body: bytes, state: str) -> None:
    """Print the hint (one line about a past session) for the event in `body`, if smart-fork's service gives one.

    `state` is smart-fork's folder.
    """
    if os.environ.get("SMART_FORK_SERVICE", "").strip().lower() in _OFF:
        return
    left = limit() - age()
    signal.signal(signal.SIGALRM, _late)
    signal.setitimer(signal.ITIMER_REAL, max(left, NOTING))
    try:
        event = json.loads(body)
        line = line_for(agent, event, state, time.monotonic() + left)
    except (_LateError, Exception):  # noqa: BLE001 - nobody is there to tell
        return
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if line:
        said = {"hookSpecificOutput": {"hookEventName": event["hook_event_name"], "additionalContext": line}}
        os.write(1, json.dumps(said).encode())


def limit() -> float:
    """Return how many seconds the agent may wait for a hint (one line about a past session)."""
    said = os.environ.get(VARIABLE, "")
    wanted = int(said) if said.isascii() and said.isdigit() else MILLISECONDS
    return min(wanted, MAX_MILLISECONDS) / 1000


def age() -> float:
    """Return the seconds since this process started; if they are unknown, the processor time that it has used."""
    try:
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - nothing is imported for it
            began = int(file.read().rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began)
    except (OSError, AttributeError, ValueError, IndexError):
        return time.process_time()


def _late(_number: int, _frame: FrameType | None) -> None:
    raise _LateError


def line_for(agent: str, event: Any, state: str, until: float) -> str:
    """Return the hint (one line about a past session) for a hook's event, or "". The hook must end at `until`."""
    ask = {EVENT: _first_prompt, BEGUN: _compacted}.get(event["hook_event_name"], _at_a_call)
    return ask(agent, event, state, until)


def _first_prompt(agent: str, event: Any, state: str, until: float) -> str:
    """Return the hint (one line about a past session) for a session's first prompt, or ""."""
    session_id, prompt = event["session_id"], event["prompt"]
    with open(f"{state}/{RECALL}/{agent}", "rb") as file:  # noqa: PTH123 - nothing is imported for it
        marks = file.read(ANSWER_BYTES).split()
    if event.get("agent_id") or not (_is_id(session_id) and prompt) or NO_PROMPTS in marks:
        return ""
    try:
        note = os.open(f"{state}/{RECALL}/{ASKED}/{session_id}", _NOTE | os.O_EXCL, 0o600)
    except FileExistsError:  # the service was asked about this session already
        return ""
    with _late_noted(note, LATE):
        if _is_begun(event.get("transcript_path"), (*_BEGUN, *marks)):
            return ""
        asked = {"agent": agent, "session_id": session_id, "directory": event["cwd"]}
        answer = _answer(state, "/recall", asked | {"prompt": prompt[:PROMPT_CHARACTERS]}, until)
        line = _if_safe(answer["line"])
        if line:
            os.write(note, f"{answer['session_id']}\n".encode())
        return line


def _at_a_call(agent: str, event: Any, state: str, until: float) -> str:
    """Return the hint (a line about a past session) for an edit or a failed tool call; "" if it was given before."""
    folder, route = _CALLS[event["hook_event_name"]]
    given = event["tool_input"]
    if folder == ERRORS:
        given = {"command": given["command"], "output": output_of(event)[-ERROR_CHARACTERS:]}
    session_id = event["session_id"]
    if event.get("agent_id") or not _is_id(session_id):
        return ""
    asked = {"agent": agent, "session_id": session_id, "directory": event["cwd"], "tool": event["tool_name"]}
    note = os.open(f"{state}/{RECALL}/{folder}/{session_id}", _NOTE | os.O_APPEND, 0o600)
    with _late_noted(note, LATE + b"\n"):
        answer = _answer(state, route, asked | {"given": given}, until)
        line, key = _if_safe(answer["line"]), f"{answer['key']}\n".encode()
        if not line or key in os.read(note, HEAD_BYTES):
            return ""
        os.write(note, key)
        return line


def output_of(event: Any) -> str:
    """Return a failed tool call's output: the field ``error`` of Claude Code, or ``tool_response`` of Codex."""
    output = event.get("error") or event.get("tool_response")
    return output if isinstance(output, str) else ""


class _late_noted:  # noqa: N801 - as a function; `contextlib` takes longer to import than most of this
    """A context that closes the file `note`; it first writes `late` if the hook's time ended before the answer."""

    def __init__(self, note: int, late: bytes) -> None:
        self._note, self._late = note, late

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None and issubclass(kind, (_LateError, TimeoutError)):
                os.write(self._note, self._late)
        finally:
            os.close(self._note)


def _compacted(_agent: str, event: Any, _state: str, _until: float) -> str:
    return COMPACTED if event["source"] == "compact" and not event.get("agent_id") else ""


def _if_safe(line: object) -> str:
    """Return `line`, a hint about a past session, if it is safe for a model: one short, printable line; else ""."""
    return line if isinstance(line, str) and line.isprintable() and len(line) <= LINE_CHARACTERS else ""


def _is_id(text: object) -> bool:
    """Return True if the text can be a session's id, and so a file's name."""
    if not isinstance(text, str):
        return False
    return text.isascii() and text.replace("-", "").replace("_", "").isalnum() and len(text) <= 128


def _is_begun(log: object, marks: Iterable[bytes]) -> bool:
    """Return True if the log contains one of the texts `marks`, because its session already had a prompt."""
    if not isinstance(log, str) or not log:
        return False
    try:
        opened = os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return False
    try:
        head = os.read(opened, HEAD_BYTES) if stat.S_ISREG(os.fstat(opened).st_mode) else b""
    finally:
        os.close(opened)
    return any(mark in head for mark in marks)


def _answer(state: str, to: str, asked: dict[str, object], until: float) -> dict[str, Any]:
    """Return the answer of smart-fork's local service to the question `asked`, posted to the URL path `to`.

    Raises:
        TimeoutError: the time limit is over.
        ValueError: the socket is another user's, or the answer is an error or invalid.
    """
    if until <= time.monotonic():
        raise TimeoutError
    with open(f"{state}/service.json", "rb") as file:  # noqa: PTH123 - nothing is imported for it
        path = json.loads(file.read(ANSWER_BYTES))["socket"]
    content = json.dumps(asked).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(max(0.001, until - time.monotonic()))
        connection.connect(path)
        if not is_ours(connection):
            raise ValueError("another user listens there")
        head = f"POST {to} HTTP/1.1\r\nHost: {SERVICE}\r\nContent-Length: {len(content)}\r\n\r\n"
        connection.sendall(head.encode() + content)
        with connection.makefile("rb") as stream:
            status, length = int(stream.readline(ANSWER_BYTES).split()[1]), 0
            while line := stream.readline(ANSWER_BYTES).strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            found = json.loads(stream.read(min(length, ANSWER_BYTES)))
    if status != 200 or not isinstance(found, dict):
        raise ValueError(status)
    return found
