"""Records as the agents write them, and logs made of them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from indexer.transcripts.base import ReadResult
from indexer.transcripts.model import Session
from smart_fork.agents.claude.log_files import ClaudeAdapter, slug
from smart_fork.agents.codex.log_files import CodexAdapter
from smart_fork.agents.copilot.log_files import CopilotAdapter
from smart_fork.agents.gemini.log_files import GeminiAdapter
from smart_fork.agents.goose import GooseAdapter
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.qwen.log_files import QwenAdapter
from smart_fork.agents.qwen.log_files import slug as qwen_slug

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
SESSION = "11111111-1111-4111-8111-111111111111"
CWD = "/srv/shop"


def id_of(number: int) -> str:
    return str(uuid.UUID(int=number, version=4))


def write(path: Path, *records: object, end: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(record) for record in records) + end, encoding="utf-8")
    return path


# Claude Code


def claude_log(home: Path, *records: object, session: str = SESSION, cwd: str = CWD) -> Path:
    return write(home / ".claude/projects" / slug(cwd) / f"{session}.jsonl", *records)


def read_claude(path: Path) -> Session:
    return said(ClaudeAdapter().read(path))


def chained(kind: str, identity: str, parent: str | None, **more: object) -> dict[str, object]:
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "userType": "external",
        "cwd": CWD,
        "sessionId": SESSION,
        "version": "2.1.197",
        "gitBranch": "main",
        "type": kind,
        "uuid": identity,
        "timestamp": "2026-07-01T10:00:00.000Z",
    } | more


def user(identity: str, parent: str | None, content: object, **more: object) -> dict[str, object]:
    return chained("user", identity, parent, message={"role": "user", "content": content}, **more)


def result(identity: str, parent: str, call: str, content: object = "ok", **more: object) -> dict[str, object]:
    return user(identity, parent, [{"type": "tool_result", "tool_use_id": call, "content": content} | more])


def assistant(
    identity: str, parent: str | None, *blocks: object, message: str = "", **more: object
) -> dict[str, object]:
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    body = {"id": message or f"msg_{identity}", "role": "assistant", "model": "claude", "content": content}
    return chained("assistant", identity, parent, message=body, **more)


def use(call: str, name: str, **given: object) -> dict[str, object]:
    return {"type": "tool_use", "id": call, "name": name, "input": given}


# Codex


def codex_path(home: Path, session: str, folder: str = "sessions/2026/07/01") -> Path:
    return home / ".codex" / folder / f"rollout-2026-07-01T10-00-00-{session}.jsonl"


def codex_log(home: Path, session: str, *records: object, folder: str = "sessions/2026/07/01") -> Path:
    return write(codex_path(home, session, folder), *records)


def read_codex(path: Path) -> Session:
    return said(CodexAdapter().read(path))


def enveloped(kind: str, ordinal: int | None = None, **payload: object) -> dict[str, object]:
    number = {} if ordinal is None else {"ordinal": ordinal}
    return {"timestamp": "2026-07-01T10:00:00.000Z", **number, "type": kind, "payload": payload}


def meta(session: str, ordinal: int | None = None, **more: object) -> dict[str, object]:
    about = {"id": session, "cwd": CWD, "cli_version": "0.169.0", "originator": "codex-tui", "source": "cli"}
    return enveloped("session_meta", ordinal, **(about | more))


def item(kind: str, ordinal: int | None = None, **payload: object) -> dict[str, object]:
    return enveloped("response_item", ordinal, type=kind, **payload)


def message(role: str, text: str, ordinal: int | None = None, **more: object) -> dict[str, object]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", ordinal, role=role, content=[{"type": kind, "text": text}], **more)


def event(kind: str, **payload: object) -> dict[str, object]:
    return enveloped("event_msg", type=kind, **payload)


# Qwen Code


def qwen_log(home: Path, *records: object, session: str = SESSION, cwd: str = CWD) -> Path:
    return write(home / ".qwen/projects" / qwen_slug(cwd) / f"chats/{session}.jsonl", *records)


def read_qwen(path: Path) -> Session:
    return said(QwenAdapter().read(path))


def linked(kind: str, identity: str, parent: str | None, *parts: object, **more: object) -> dict[str, object]:
    """A record of Qwen Code; a text is a part that says it."""
    role = "model" if kind == "assistant" else "user"
    content = [{"text": part} if isinstance(part, str) else part for part in parts]
    return {
        "uuid": identity,
        "parentUuid": parent,
        "sessionId": SESSION,
        "timestamp": "2026-07-01T10:00:00.000Z",
        "type": kind,
        "cwd": CWD,
        "version": "0.24.4",
        "gitBranch": "main",
        **({"message": {"role": role, "parts": content}} if kind != "system" else {}),
    } | more


def calling(call: str, name: str, **given: object) -> dict[str, object]:
    return {"functionCall": {"id": call, "name": name, "args": given}}


def answering(call: str, name: str, **response: object) -> dict[str, object]:
    return {"functionResponse": {"id": call, "name": name, "response": response}}


# Gemini CLI


def gemini_log(home: Path, *records: object, session: str = SESSION, cwd: str = CWD, name: str = "") -> Path:
    chats = home / ".gemini/tmp" / Path(cwd).name / "chats"
    path = write(chats / f"session-2026-07-01T10-00-{name or session[:8]}.jsonl", gemini_head(session, cwd), *records)
    (chats.parent / ".project_root").write_text(cwd)
    return path


def gemini_head(session: str = SESSION, cwd: str = CWD, **more: object) -> dict[str, object]:
    moment = "2026-07-01T10:00:00.000Z"
    return {
        "sessionId": session,
        "projectHash": hashlib.sha256(cwd.encode()).hexdigest(),
        "startTime": moment,
        "lastUpdated": moment,
        "kind": "main",
    } | more


def read_gemini(path: Path) -> Session:
    return said(GeminiAdapter().read(path))


def spoken(kind: str, identity: str, *parts: object, **more: object) -> dict[str, object]:
    """A message of Gemini CLI; a text is a part that says it."""
    content = [{"text": part} if isinstance(part, str) else part for part in parts]
    return {"id": identity, "timestamp": "2026-07-01T10:00:00.000Z", "type": kind, "content": content} | more


def ran(call: str, tool: str, output: str | None = None, **given: object) -> dict[str, object]:
    """A call as it stands beside a message."""
    result = {} if output is None else {"result": [answering(call, tool, output=output)], "status": "success"}
    return {"id": call, "name": tool, "args": given} | result


def listed(*messages: object) -> dict[str, object]:
    return {"$set": {"messages": [*messages], "lastUpdated": "2026-07-01T10:00:00.000Z"}}


# Copilot CLI


def copilot_log(home: Path, *records: object, session: str = SESSION, cwd: str = CWD) -> Path:
    """The log of these events, after the one that begins it; one without a parent comes after the one before it."""
    begins = happened("session.start", "start", sessionId=session, copilotVersion="1.0.102", context={"cwd": cwd})
    return write(home / ".copilot/session-state" / session / "events.jsonl", *in_a_row(begins, *records))


def happened(kind: str, identity: str, **data: object) -> dict[str, object]:
    """An event of Copilot CLI."""
    return {"type": kind, "data": data, "id": identity, "timestamp": "2026-07-01T10:00:00.000Z"}


def in_a_row(*events: object) -> list[object]:
    """Events, each after the one before it."""
    made: list[object] = []
    parent = None
    for event in events:
        made.append({"parentId": parent} | event if isinstance(event, dict) else event)
        parent = event.get("id") if isinstance(event, dict) else parent
    return made


def requested(call: str, tool: str, **given: object) -> dict[str, object]:
    """A call of a tool in an answer of Copilot CLI."""
    return {"toolCallId": call, "name": tool, "arguments": given, "type": "function"}


def read_copilot(path: Path) -> Session:
    return said(CopilotAdapter().read(path))


# Agents that are only read: their fixtures lie as they would in a home

#: The log of each agent's fixture, below its home.
READ_LOGS = {
    agent: next((FIXTURES / agent / "home").rglob(name))
    for agent, name in {
        "amp": "T-*.json",
        "cursor": "agent-transcripts/*/*.jsonl",
        "droid": "*.jsonl",
        "goose": "*.sql",
        "kimi": "main/wire.jsonl",
        "pi": "*.jsonl",
    }.items()
}

#: The agents whose log is one JSON document.
DOCUMENTS = {agent for agent, path in READ_LOGS.items() if path.suffix == ".json"}


def read_records(agent: str) -> list[dict[str, object]]:
    """The records of an agent's fixture. A document is one record."""
    if agent in DOCUMENTS:
        return [json.loads(READ_LOGS[agent].read_text())]
    if agent == "goose":
        with tempfile.TemporaryDirectory() as folder:
            path = made_database(READ_LOGS[agent], Path(folder, "sessions.db"))
            return list(GooseAdapter().records(path / below_home(agent).name))
    return [json.loads(line) for line in READ_LOGS[agent].read_text().splitlines()]


def below_home(agent: str) -> Path:
    """Where the log of an agent's fixture is, below a home."""
    path = READ_LOGS[agent].relative_to(FIXTURES / agent / "home")
    return path.with_suffix(".db") / "20260516_1" if path.suffix == ".sql" else path


def made_database(source: Path, path: Path) -> Path:
    """The database of which a fixture has the statements."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(source.read_text())
    return path


def lay_out(agent: str, cwd: str = "") -> list[Path]:
    """Put the fixtures of an agent into the home, and return its logs. They were last written at one time."""
    shutil.copytree(FIXTURES / agent / "home", Path.home(), dirs_exist_ok=True)
    for source in (FIXTURES / agent / "home").rglob("*.*"):
        if (file := Path.home() / source.relative_to(FIXTURES / agent / "home")).is_file():
            file.write_text(file.read_text().replace("/home/ada/shop", cwd or "/home/ada/shop"))
            os.utime(file, (1_790_000_000, 1_790_000_000))
            if file.suffix == ".sql":
                made_database(file, file.with_suffix(".db"))
                file.unlink()
    return [file.path for file in READERS[agent].discover()]


def said_in(agent: str, **record: object) -> Callable[[Path, str], Path]:
    """How an agent writes down a prompt: as this record, with the prompt in the place of PROMPT."""

    def written(home: Path, text: str) -> Path:
        made = json.loads(json.dumps(record).replace('"PROMPT"', json.dumps(text)))
        return write(home / below_home(agent), made)

    return written


#: How each agent writes down that somebody has asked something, as the only record of a log.
ASKED: dict[str, Callable[[Path, str], Path]] = {
    "claude": lambda home, text: claude_log(home, user("u1", None, text)),
    "codex": lambda home, text: codex_log(home, id_of(1), meta(id_of(1)), message("user", text)),
    "qwen": lambda home, text: qwen_log(home, linked("user", "u1", None, text)),
    "gemini": lambda home, text: gemini_log(home, spoken("user", "u1", text)),
    "copilot": lambda home, text: copilot_log(home, happened("user.message", "u1", content=text)),
    "amp": said_in("amp", id="x", messages=[{"role": "user", "content": [{"type": "text", "text": "PROMPT"}]}]),
    "cursor": said_in("cursor", role="user", message={"content": [{"type": "text", "text": "PROMPT"}]}),
    "kimi": said_in(
        "kimi", type="context.append_message", message={"role": "user", "content": [{"type": "text", "text": "PROMPT"}]}
    ),
    "pi": said_in("pi", type="message", id="m1", parentId=None, message={"role": "user", "content": "PROMPT"}),
    "goose": said_in("goose", type="message", role="user", content=[{"type": "text", "text": "PROMPT"}]),
    "droid": said_in("droid", type="message", id="m1", message={"role": "user", "content": "PROMPT"}),
}


# What was read


def said(result: ReadResult) -> Session:
    assert result.session is not None, result.skipped
    return result.session


def prompts(session: Session) -> list[str]:
    return [turn.text for turn in session.turns if turn.prompt]


def texts(session: Session) -> list[str]:
    return [turn.text for turn in session.turns if turn.text]


def actions(session: Session) -> list[str]:
    return [call.action for turn in session.turns for call in turn.tool_calls]


def notes(session: Session) -> list[str]:
    return [result.note for turn in session.turns for result in turn.tool_results]
